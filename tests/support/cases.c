/* cases.c: linked into every test program: LOCKSTEP_CASE names the cases that run, `*` and `?`
 * being wild. tools/test-one sets it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

__attribute__((constructor)) static void choose_cases(void) {
    const char *pattern = getenv("LOCKSTEP_CASE");
    if (pattern != NULL)
        cmocka_set_test_filter(pattern);
}
