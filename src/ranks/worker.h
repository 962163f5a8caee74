/* worker.h: the whole life of a worker process. */
#ifndef LOCKSTEP_RANKS_WORKER_H
#define LOCKSTEP_RANKS_WORKER_H

#include "base/status.h"
#include "format/source.h"

/* How to read a model's data from another machine (struct job's source). The ranks' own fabric
 * does not exist before the group is complete, so the calling program provides it. */
struct worker_sources {
    enum status (*open)(struct file_source *out, const char *address, struct err *err);
    void (*close)(struct file_source *s);
};

/* As lockstep_worker_main(), which has no sources: a job that names one is an error there. */
int worker_main(int argc, char **argv, const struct worker_sources *sources);

#endif
