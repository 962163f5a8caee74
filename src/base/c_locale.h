/* c_locale.h: numbers in files and protocols have a decimal point, whatever the caller's locale
 * is. With a German locale, strtod() would stop at the point and printf() would write a comma.
 *
 * Between these two calls the calling thread is in the C locale. Other threads are not
 * affected. Text for people and callbacks use the caller's locale. lockstep itself stays in the
 * C locale for numbers. */
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
