/* program.h: the path of this program's file, and settings from its environment. */
#ifndef LOCKSTEP_BASE_PROGRAM_H
#define LOCKSTEP_BASE_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

/* Its absolute path. *gone: no more there (on Linux also if another file is now). False: not
 * known. */
bool program_path(char *out, size_t size, bool *gone);

/* For a process that talks to strangers and holds keys; call it at the start. From then on the
 * process and its children get no rights from a file (setuid, capabilities), and a crash leaves
 * no core file, which would contain keys. The core limit is the soft one: `prlimit
 * --core=unlimited -p PID` raises it for debugging. Does nothing on a system without these
 * features. */
void program_confine(void);

/* A variable of its environment; NULL if it is not set, or empty, which means the same. */
static inline char *env_get(const char *name) {
    char *text = getenv(name);
    return text != NULL && *text != '\0' ? text : NULL;
}

#endif
