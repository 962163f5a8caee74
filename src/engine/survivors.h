/* survivors.h: with what a model is opened again when a rank was lost.
 *
 * A process of this machine that died can be started again; so can all ranks that somebody else starts (a
 * rendezvous), who has to do it. Another machine is left out from then on, with all its ranks: it may be off, and asking
 * it costs minutes. Which ranks compute never changes a bit. */
#ifndef LOCKSTEP_ENGINE_SURVIVORS_H
#define LOCKSTEP_ENGINE_SURVIVORS_H

#include "base/status.h"
#include "lockstep/lockstep.h"

struct survivors {
    struct lockstep_options opt; /* its strings are owned */
    char left_out[512];          /* by the last call */
};

/* Nobody is lost yet. survivors_deinit() is due in any case. */
enum status survivors_init(struct survivors *s, const struct lockstep_options *opt,
                           struct err *err);
void survivors_deinit(struct survivors *s);

/* The ranks of which `lost` has a bit are gone (0: nobody knows which): opt becomes that of the machines left, with their
 * shares of the split and their cables, if there were any on other machines; a division into stages that was asked for
 * then holds no more. *left_out: these machines' names, borrowed until the next call, or NULL. On errors nothing has
 * changed. */
enum status survivors_leave_out(struct survivors *s, uint64_t lost, const char **left_out,
                                struct err *err);

#endif
