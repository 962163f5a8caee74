/* printable.h: which characters may be shown as they are. */
#ifndef LOCKSTEP_TOKENIZER_PRINTABLE_H
#define LOCKSTEP_TOKENIZER_PRINTABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <utf8proc.h>

/* Neither control characters, which would drive a terminal, nor those that only change how their neighbours look, nor what is no
 * character. Spaces are. */
static inline bool is_printable(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    default:
        return true;
    }
}

#endif
