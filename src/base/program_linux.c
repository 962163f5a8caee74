/* program_linux.c: On Linux: the path of this program's file, and giving up new rights and core
 * files. */
#include "base/program.h"

#include "base/util.h"

#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define GONE " (deleted)"

bool program_path(char *out, size_t size, bool *gone) {
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    if (n <= 0)
        return false;
    out[n] = '\0';
    size_t len = (size_t)n, tail = strlen(GONE);
    *gone = len > tail && str_eq(out + len - tail, GONE);
    if (*gone)
        out[len - tail] = '\0';
    return true;
}

void program_confine(void) {
    struct rlimit core;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (getrlimit(RLIMIT_CORE, &core) != 0)
        return;
    core.rlim_cur = 0;
    setrlimit(RLIMIT_CORE, &core);
}
