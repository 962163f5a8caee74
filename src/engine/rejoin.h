/* rejoin.h: when machines that were left out are asked whether they are back, and when they
 * are taken in.
 *
 * Asking costs next to nothing, taking in is a pause: shares change, so everybody loads. So it
 * waits for a moment in which nothing runs, but not for long: a multiple of the pause. A machine
 * that is lost again soon after it was taken in is asked ever later, so that one which comes
 * only to go costs a few pauses and not one after the other. What is soon, and how long it is
 * not asked, are multiples of the pause, too: a small model that loads in a second has all
 * machines back within seconds, and a large one is not loaded for nothing all the time.
 *
 * Pure: asks nobody itself, and times are the caller's, in seconds. Machines are bits as in
 * membership.h. */
#ifndef LOCKSTEP_ENGINE_REJOIN_H
#define LOCKSTEP_ENGINE_REJOIN_H

#include "fabric/fabric.h"

#include <stdbool.h>
#include <stdint.h>

/* A machine is asked so long after it was lost, then ever less often. */
#define REJOIN_FIRST_S 2.0
#define REJOIN_RARELY_S 60.0
/* One that is back and waits to be taken in is asked so often whether it still is: taking in one
 * that is not is a pause for nothing. */
#define REJOIN_AGAIN_S 2.0
/* In pauses: one that is back is taken in while something runs when it has waited for so many. */
#define REJOIN_LATEST_PAUSES 5.0
/* One that is lost within so many after it was taken in has failed; a loss is silence, too, so
 * it is not less than 30 s. It is then asked after two pauses (of REJOIN_FIRST_S at least),
 * after four the next time, and so on. */
#define REJOIN_PROVEN_PAUSES 20.0
#define REJOIN_PROVEN_MIN_S 30.0
#define REJOIN_PROVEN_MAX_S 600.0
#define REJOIN_PATIENCE_S 3600.0

struct rejoin {
    double idle_s;   /* taken in when nothing has run for so long, */
    double latest_s; /* or when it has been back for so long, or REJOIN_LATEST_PAUSES */
    double pause_s;  /* how long it takes to open the model; the caller's, who keeps it true */
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
/* These are left out now: whoever was not before was lost, whoever was is being taken in. */
void rejoin_update(struct rejoin *l, uint64_t out, double now_s);
/* Whoever is being taken in takes part now. */
void rejoin_joined(struct rejoin *l, double now_s);

/* Who is to be asked now; counts as asked. */
uint64_t rejoin_ask(struct rejoin *l, double now_s);
/* What was asked of these is not waited for any more: no answer is due. */
void rejoin_drop(struct rejoin *l, uint64_t machines);
/* What came of it. */
void rejoin_hear(struct rejoin *l, int machine, bool is_back, double now_s);

/* Who is to be taken in now; 0: nobody, or not yet. busy_s: when something ran last. */
uint64_t rejoin_take_in(const struct rejoin *l, double busy_s, double now_s);

#endif
