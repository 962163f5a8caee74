#include "base/program.h"

#include "base/util.h"

#include <string.h>
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
