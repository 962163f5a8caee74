/* c_locale.h: numbers in files and languages have a point, whatever the locale of the program
 * that calls us: a German one makes strtod() stop at it and printf() write a comma.
 *
 * Between these two the calling thread, and nobody else, is in the C locale. What is written for
 * people, and callbacks, are the caller's. lockstep itself stays in the C locale for numbers. */
#ifndef LOCKSTEP_BASE_C_LOCALE_H
#define LOCKSTEP_BASE_C_LOCALE_H

#include <locale.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

/* Returns the caller's locale for c_locale_end(), which leaves errno alone. */
locale_t c_locale_begin(void);
void c_locale_end(locale_t callers);

#endif
