/* progress.h: the progress of commands that write a large file. On a terminal it is one line that
 * changes; elsewhere a plain line now and then, of what takes long. */
#ifndef LOCKSTEP_CLI_PROGRESS_H
#define LOCKSTEP_CLI_PROGRESS_H

#include "format/progress.h"

struct cli_mark {
    uint64_t ns, bytes;
};

struct cli_progress {
    const char *verb; /* "writing" */
    uint64_t last_ns; /* when the line was last drawn, or a plain one was written */
    uint64_t begin_ns;
    struct cli_mark mark[2];  /* how far it was some seconds ago: for the rate */
    bool draws;               /* stderr is a terminal that can (cli_has_escapes) */
    struct progress progress; /* for the library */
};

/* From here on Ctrl-C ends the job in an orderly way. p stays where it is until _end. */
void cli_progress_begin(struct cli_progress *p, const char *verb);
/* Wipes the line. Returns the seconds since _begin. */
double cli_progress_end(struct cli_progress *p);

#endif
