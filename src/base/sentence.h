/* sentence.h: sentences for people, in buffers (struct err is one), as JSON takes them: UTF-8,
 * whatever the names in them are. */
#ifndef LOCKSTEP_BASE_SENTENCE_H
#define LOCKSTEP_BASE_SENTENCE_H

#include <stdarg.h>
#include <stddef.h>

/* snprintf() and vsnprintf() into a buffer of size >= 1: what does not fit is cut between
 * characters, and bytes that are no UTF-8 become '?'. */
__attribute__((format(printf, 3, 4))) void sentence_print(char *out, size_t size,
                                                          const char *fmt, ...);
void sentence_vprint(char *out, size_t size, const char *fmt, va_list ap);
/* The same of what a buffer holds. */
void sentence_mend(char *text);

#endif
