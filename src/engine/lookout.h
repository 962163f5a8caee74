/* lookout.h: when machines that were left out are asked whether they are back, and when they
 * are taken in.
 *
 * Asking costs next to nothing, taking in is a pause: shares change, so everybody loads. So it
 * waits for a moment in which nothing runs, but not for ever; and a machine that is lost again
 * soon after it was taken in is believed ever later, so that one which comes only to go costs a
 * few pauses and not one after the other.
 *
 * Pure: asks nobody itself, and times are the caller's, in seconds. Machines are bits as in
 * survivors.h. */
#ifndef LOCKSTEP_ENGINE_LOOKOUT_H
#define LOCKSTEP_ENGINE_LOOKOUT_H

#include "fabric/fabric.h"

#include <stdbool.h>
#include <stdint.h>

/* A machine is asked so long after it was lost, then ever less often. */
#define LOOKOUT_FIRST_S 2.0
#define LOOKOUT_RARELY_S 60.0
/* One that is back and waits to be taken in is asked so often whether it still is. */
#define LOOKOUT_AGAIN_S 10.0
/* Lost so soon after it was taken in it has failed. It is then asked after eight times as long
 * as before. */
#define LOOKOUT_PROVEN_S 600.0
#define LOOKOUT_PATIENCE_S 3600.0

struct lookout {
    double idle_s;   /* taken in when nothing has run for so long, */
    double latest_s; /* or when it has been back for so long */
    uint64_t out;    /* machines that are left out */
    uint64_t asked;  /* of these: an answer is due */
    uint64_t back;   /* would take part, as far as is known */
    double back_s;   /* since when one of them would */
    struct lookout_machine {
        double ask_s, every_s;
        double joined_s; /* when it was taken in last; 0: never was */
        int n_failed;    /* times in a row */
        bool joining;    /* is being taken in */
    } machines[FABRIC_MAX_RANKS];
};

void lookout_init(struct lookout *l, double idle_s, double latest_s);
/* These are left out now: whoever was not before was lost, whoever was is being taken in. */
void lookout_update(struct lookout *l, uint64_t out, double now_s);
/* Whoever is being taken in takes part now. */
void lookout_joined(struct lookout *l, double now_s);

/* Who is to be asked now; counts as asked. */
uint64_t lookout_ask(struct lookout *l, double now_s);
/* What came of it. */
void lookout_hear(struct lookout *l, int machine, bool is_back, double now_s);

/* Who is to be taken in now; 0: nobody, or not yet. busy_s: when something ran last. */
uint64_t lookout_take_in(const struct lookout *l, double busy_s, double now_s);

#endif
