/* program_darwin.c: the path from dyld(3), which may be relative or a link. Not yet run. */
#include "base/program.h"

#include <errno.h>
#include <limits.h>
#include <mach-o/dyld.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

bool program_path(char *out, size_t size, bool *gone) {
    char started[PATH_MAX], real[PATH_MAX];
    uint32_t n = sizeof started;
    if (_NSGetExecutablePath(started, &n) != 0)
        return false;
    *gone = realpath(started, real) == NULL;
    if (*gone && errno != ENOENT)
        return false;
    int len = snprintf(out, size, "%s", *gone ? started : real);
    return len >= 0 && (size_t)len < size;
}

void program_confine(void) {
    struct rlimit core;
    if (getrlimit(RLIMIT_CORE, &core) != 0)
        return;
    core.rlim_cur = 0;
    setrlimit(RLIMIT_CORE, &core);
}
