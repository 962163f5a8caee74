/* rejoin.h: when machines that were left out are asked whether they are back, and when they are
 * taken in.
 *
 * Asking costs almost nothing. Taking a machine in is a pause: shares change, so all ranks
 * load. So it waits until nothing runs, but only for a multiple of the pause. A machine that is
 * lost soon after it was taken in is asked less and less often. So a machine that keeps failing
 * costs a few pauses, not one after the other. "Soon", and how long it is not asked, are
 * multiples of the pause, too. So a small model that loads in a second uses all machines again
 * within seconds, and a large one is not reloaded all the time for nothing.
 *
 * Pure: it asks no machine itself, and the caller provides times, in seconds. Machines are bits
 * as in membership.h. */
#ifndef LOCKSTEP_ENGINE_REJOIN_H
#define LOCKSTEP_ENGINE_REJOIN_H

#include "fabric/fabric.h"

#include <stdbool.h>
#include <stdint.h>

/* A machine is asked this long after it was lost, then less and less often. */
#define REJOIN_FIRST_S 2.0
#define REJOIN_RARELY_S 60.0
/* How often a machine that is back and waits to be taken in is asked again. Taking in one that
 * is gone would be a pause for nothing. */
#define REJOIN_AGAIN_S 2.0
/* In pauses: after a machine has been back for this many, it is taken in although something
 * runs. */
#define REJOIN_LATEST_PAUSES 5.0
/* A machine that is lost within this time after it was taken in has failed. A loss may be
 * noticed only by silence, so the time is at least 30 s. The machine is then asked after two
 * pauses (at least REJOIN_FIRST_S), after four the next time, and so on. */
#define REJOIN_PROVEN_PAUSES 20.0
#define REJOIN_PROVEN_MIN_S 30.0
#define REJOIN_PROVEN_MAX_S 600.0
#define REJOIN_PATIENCE_S 3600.0

struct rejoin {
    double idle_s;   /* a machine is taken in when nothing has run for this long, */
    double latest_s; /* or when it has been back for this long, or REJOIN_LATEST_PAUSES */
    double pause_s;  /* how long it takes to open the model; the caller updates it */
    uint64_t out;    /* machines that are left out */
    uint64_t asked;  /* of these: an answer is due */
    uint64_t back;   /* would take part, as far as is known */
    double back_s;   /* since when one of them would */
    struct rejoin_machine {
        double ask_s, every_s;
        double joined_s; /* when it was taken in last; 0: never was */
        int n_failed;    /* times in a row */
        bool joining;    /* is being taken in */
    } machines[FABRIC_MAX_RANKS];
};

void rejoin_init(struct rejoin *l, double idle_s, double latest_s);
/* The machines that are left out now. Those that were not before have been lost; those that
 * were are being taken in. */
void rejoin_update(struct rejoin *l, uint64_t out, double now_s);
/* The machines that were being taken in now take part. */
void rejoin_joined(struct rejoin *l, double now_s);

/* The machines to ask now; they count as asked. */
uint64_t rejoin_ask(struct rejoin *l, double now_s);
/* What was asked of these is not waited for any more: no answer is due. */
void rejoin_drop(struct rejoin *l, uint64_t machines);
/* What came of it. */
void rejoin_hear(struct rejoin *l, int machine, bool is_back, double now_s);

/* The machines to take in now; 0: none, or not yet. busy_s: when something last ran. */
uint64_t rejoin_take_in(const struct rejoin *l, double busy_s, double now_s);

#endif
