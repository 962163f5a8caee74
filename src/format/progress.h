/* progress.h: how quantize and synth, which take long, report their progress. */
#ifndef LOCKSTEP_FORMAT_PROGRESS_H
#define LOCKSTEP_FORMAT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    /* Called now and then from the calling thread; false ends the job with ST_CANCELLED. */
    bool (*report)(void *arg, uint64_t bytes_done, uint64_t bytes_total);
    void *arg;
};

/* p may be NULL. */
static inline bool progress_report(const struct progress *p, uint64_t done, uint64_t total) {
    return !p || !p->report || p->report(p->arg, done, total);
}

#endif
