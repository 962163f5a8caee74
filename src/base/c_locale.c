/* c_locale.c: Switches the calling thread to the C locale and back. */
#include "base/c_locale.h"

#include <errno.h>
#include <pthread.h>

/* For the life of the process. 0: no memory for it, and the caller's stays. */
static locale_t c_locale;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make(void) {
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

locale_t c_locale_begin(void) {
    pthread_once(&once, make);
    return uselocale(c_locale);
}

void c_locale_end(locale_t callers) {
    int why = errno;
    uselocale(callers);
    errno = why;
}
