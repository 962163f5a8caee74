/* program.h: where this program's own file is, and what its environment says. */
#ifndef LOCKSTEP_BASE_PROGRAM_H
#define LOCKSTEP_BASE_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

/* Its absolute path. *gone: no more there (on Linux also if another file is now). False: not
 * known. */
bool program_path(char *out, size_t size, bool *gone);

/* For a process that hears strangers and holds keys, as it begins: neither it nor what it starts
 * gets rights from a file (setuid, capabilities), and a crash leaves no core file, in which keys
 * would be. The limit is the soft one: `prlimit --core=unlimited -p PID` takes it back to look for
 * a bug. A system that has no such thing does without. */
void program_confine(void);

/* A variable of its environment; NULL if it is not set, or empty, which means the same. */
static inline char *env_get(const char *name) {
    char *text = getenv(name);
    return text != NULL && *text != '\0' ? text : NULL;
}

#endif
