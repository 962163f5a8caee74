/* normalize.h: Unicode's normalization form C, which a few models' own tokenizers apply first. */
#ifndef LOCKSTEP_TOKENIZER_NORMALIZE_H
#define LOCKSTEP_TOKENIZER_NORMALIZE_H

#include "base/status.h"

#include <stddef.h>

/* The most that form C makes of a text, in bytes of the text for one of the result: U+0DDD and
 * Hangul syllables. */
#define NFC_SHRINKS 3

/* *out is valid UTF-8 text in form C, for mem_free(); NULL if it is in that form already. A
 * character with more than 31 marks is left as it is (real ones have a few), so that the time is
 * linear. ST_NO_MEMORY. */
enum status normalize_nfc(const char *text, size_t len, char **out, size_t *out_len);

#endif
