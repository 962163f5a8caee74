/* worker.h: the whole life of a worker process, for the program that is one. */
#ifndef LOCKSTEP_RANKS_WORKER_H
#define LOCKSTEP_RANKS_WORKER_H

#include "base/status.h"
#include "format/source.h"

/* How to get at a model's data on another machine (struct job's source): the ranks' own fabric
 * is no help before a group stands, so whoever runs the program brings it. */
struct worker_sources {
    enum status (*open)(struct file_source *out, const char *address, struct err *err);
    void (*close)(struct file_source *s);
};

/* As lockstep_worker_main(), which has no sources: a job that names one is an error there. */
int worker_main(int argc, char **argv, const struct worker_sources *sources);

#endif
