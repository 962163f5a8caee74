/* device_fixture.h: what the tests that compute on a device share. */
#ifndef LOCKSTEP_TESTS_DEVICE_FIXTURE_H
#define LOCKSTEP_TESTS_DEVICE_FIXTURE_H

#include "base/mem.h"
#include "shaders/shaders.h"

#include <stdio.h>

/* Whether this build and this machine have something to test; if not, says why. */
static inline bool device_is_testable(void) {
    struct device_info *list = NULL;
    size_t n = 0;
    char why[256] = "this build has no shaders";
    bool found =
        shaders_built() && device_list(&list, &n, why, sizeof why, NULL) == ST_OK && n > 0;
    mem_free(list);
    if (!found)
        printf("skip: %s\n", why);
    return found;
}

#endif
