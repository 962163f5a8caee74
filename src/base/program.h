/* program.h: where this program's own file is. */
#ifndef LOCKSTEP_BASE_PROGRAM_H
#define LOCKSTEP_BASE_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

/* Its absolute path. *gone: no more there (on Linux also if another file is now). False: not known. */
bool program_path(char *out, size_t size, bool *gone);

#endif
