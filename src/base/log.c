/* log.c: Prints the messages of the command line and the daemons on stderr, by level. */
#include "base/log.h"

#include "base/util.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static _Atomic int level_now = -1; /* -1: not read from the environment yet; relaxed, a hint */
static char process_name[32];      /* written before threads start */

/* -1: no level has that name. */
static int level_of(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(level_names); i++)
        if (str_eq(name, level_names[i]))
            return (int)i;
    return -1;
}

static int level_from_env(void) {
    const char *s = getenv("LOCKSTEP_LOG");
    int level = s != NULL ? level_of(s) : LOG_INFO;
    return level >= 0 ? level : LOG_INFO;
}

bool log_knows(const char *level) {
    return level_of(level) >= 0;
}

void log_set_level(enum log_level level) {
    atomic_store_explicit(&level_now, (int)level, memory_order_relaxed);
}

void log_set_name(const char *name) {
    snprintf(process_name, sizeof process_name, "%s", name);
}

void log_line(enum log_level level, const char *fmt, ...) {
    int now = atomic_load_explicit(&level_now, memory_order_relaxed);
    if (now < 0)
        log_set_level((enum log_level)(now = level_from_env()));
    if ((int)level > now)
        return;
    char line[1024];
    int n = snprintf(line, sizeof line, "lockstep%s%s: %s", process_name[0] ? " " : "",
                     process_name, level <= LOG_WARN ? level_names[level] : "");
    if (level <= LOG_WARN)
        n += snprintf(line + n, sizeof line - (size_t)n, ": ");
    va_list ap;
    va_start(ap, fmt);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
    va_end(ap);
    n = MIN(n + MAX(m, 0), (int)sizeof line - 2);
    line[n++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, (size_t)n);
    (void)ignored;
}
