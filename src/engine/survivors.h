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
};

/* Nobody is lost yet. survivors_deinit() is due in any case. */
enum status survivors_init(struct survivors *s, const struct lockstep_options *opt,
                           struct err *err);
void survivors_deinit(struct survivors *s);

/* Rank `lost` (-1: nobody knows which) is gone: if it ran on another machine, opt becomes that of the machines left, with
 * their shares of the split and their cables; a division into stages that was asked for holds no more. *left_out: this
 * machine's name, borrowed until the next call, or NULL. On errors nothing has changed. */
enum status survivors_leave_out(struct survivors *s, int lost, const char **left_out,
                                struct err *err);

#endif
