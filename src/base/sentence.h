/* sentence.h: formats sentences for people into buffers (struct err is one). The result is
 * always valid UTF-8, as JSON requires, whatever names it contains. */
#ifndef LOCKSTEP_BASE_SENTENCE_H
#define LOCKSTEP_BASE_SENTENCE_H

#include <stdarg.h>
#include <stddef.h>

/* snprintf() and vsnprintf() into a buffer of size >= 1. Text that does not fit is cut between
 * characters, and invalid UTF-8 bytes become '?'. */
__attribute__((format(printf, 3, 4))) void sentence_print(char *out, size_t size,
                                                          const char *fmt, ...);
void sentence_vprint(char *out, size_t size, const char *fmt, va_list ap);
/* The same of what a buffer holds. */
void sentence_mend(char *text);

#endif
