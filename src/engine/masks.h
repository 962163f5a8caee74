/* masks.h: which tokens a constraint allows next, computed beside the engine's thread.
 *
 * A job belongs to a sequence: accept a token, then report what may follow it. If the
 * constraint knows the answer already (engine_constraint.known), the job is done at once, on
 * the caller's thread. Everything else goes to one of a few helper threads, so a hard grammar
 * delays only its own request. The jobs of one request run one at a time; requests take turns.
 *
 * One thread, the owner, calls all functions. It owns a job, except between masks_begin() and
 * masks_are_made(). Jobs and their lines must not move until then. */
#ifndef LOCKSTEP_ENGINE_MASKS_H
#define LOCKSTEP_ENGINE_MASKS_H

#include "base/status.h"
#include "engine/engine.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What the jobs of one request share. All zero at first. */
struct mask_line {
    bool busy;     /* one of its jobs is running */
    uint64_t turn; /* when a helper has taken one of them last */
};

struct mask_job {
    /* Set by the owner before the first masks_begin(). */
    const struct engine_constraint *constraint;
    void *state; /* of this sequence */
    struct mask_line *line;
    uint64_t *mask; /* [n_words] */
    /* Outputs. */
    enum engine_allows allows;
    struct err err; /* of ENGINE_ALLOWS_NONE: why */

    int32_t id;
    atomic_int stage; /* enum mask_stage; released by a helper, acquired by the owner */
    struct mask_job *next;
};

struct masks;

/* n_words: of a mask. on_made is called on a helper's thread after each job that was not
 * answered at once. */
enum status masks_open(struct masks **out, int n_threads, size_t n_words,
                       void (*on_made)(void *user), void *user, struct err *err);
/* Waits for the jobs that are running; those that wait are not begun. NULL is fine. */
void masks_close(struct masks *m);

/* Accepts the token id (TOKEN_NONE: none), then finds what may follow. Allocates nothing. */
void masks_begin(struct masks *m, struct mask_job *job, int32_t id);
/* The outputs are there. Also true of a job that was never begun. */
bool masks_are_made(struct mask_job *job);
/* The job is not wanted any more. False: it is running, and masks_are_made() comes later. */
bool masks_drop(struct masks *m, struct mask_job *job);

#endif
