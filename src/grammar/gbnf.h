/* gbnf.h: writes a text or a character into a GBNF grammar. */
#ifndef LOCKSTEP_GRAMMAR_GBNF_H
#define LOCKSTEP_GRAMMAR_GBNF_H

#include "base/buf.h"

#include <stdint.h>

/* A literal of these bytes (valid UTF-8), with its quotes. */
void gbnf_literal(struct buf *t, const char *s, size_t n);
/* A character of a class: [...]. */
void gbnf_class_char(struct buf *t, uint32_t c);

#endif
