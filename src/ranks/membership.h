/* membership.h: the ranks with which a model is opened again after a rank was lost or is back.
 *
 * A dead process of this machine can be started again. So can ranks that another program starts
 * (a rendezvous); that program has to do it. Another machine is left out, with all its ranks,
 * until it is known to be back (rejoin.h): it may be off, and asking it takes minutes. Which
 * ranks compute never changes a bit. */
#ifndef LOCKSTEP_RANKS_MEMBERSHIP_H
#define LOCKSTEP_RANKS_MEMBERSHIP_H

#include "base/status.h"
#include "lockstep/lockstep.h"

#include <stdint.h>

/* Machines are bits: that of the first rank of each in the options that were given. */
struct membership {
    struct lockstep_options opt; /* of the machines that take part; its strings are owned */
    struct lockstep_options all; /* as given; likewise */
    uint64_t out;                /* ranks of `all` on machines that are left out */
    uint64_t machines_out;
    uint64_t lost_once;  /* ranks of `all` */
    uint64_t on_trial;   /* ranks of `all` that were taken back and have not been kept yet */
    char left_out[512];  /* names of the machines that are left out; "": none is */
    char last_call[512]; /* of those that the last call was about */
};

/* No rank is lost yet. Call membership_deinit() in any case. */
enum status membership_init(struct membership *s, const struct lockstep_options *opt,
                            struct err *err);
void membership_deinit(struct membership *s);

/* The ranks with a bit in `lost` are gone (0: not known which; rank 0: no other). So is the
 * machine that is on trial. opt becomes the options of the remaining machines, with their
 * shares of the split and their cables, if there were any on other machines. A requested
 * division into stages holds only for all machines. *names: the machines left out, borrowed
 * until the next call, or NULL. On errors nothing has changed. */
enum status membership_leave_out(struct membership *s, uint64_t lost, const char **names,
                                 struct err *err);
/* These ranks of opt were lost. One that is lost a second time computes on its processor from then
 * on: it may have been its device. */
enum status membership_note_lost(struct membership *s, uint64_t lost, struct err *err);
/* These machines that were left out take part again, on trial until membership_keep(). Otherwise
 * as above. */
enum status membership_take_back(struct membership *s, uint64_t machines, const char **names,
                                 struct err *err);
void membership_keep(struct membership *s);

#endif
