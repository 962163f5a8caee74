/* throughput.h: how many of something there were per second, over the last seconds. One thread at a
 * time; a copy may be read anywhere. */
#ifndef LOCKSTEP_ENGINE_THROUGHPUT_H
#define LOCKSTEP_ENGINE_THROUGHPUT_H

#include <stdint.h>

#define THROUGHPUT_SLOTS 8
#define THROUGHPUT_SLOT_S 0.5

/* Zeroed: nothing yet. */
struct throughput {
    uint64_t counts[THROUGHPUT_SLOTS]; /* by slot, modulo their number */
    int64_t slot;                      /* the latest, of the clock's */
    double begun_s; /* since when there has been no gap as long as all slots */
};

/* now_s: clock_s(). */
void throughput_add(struct throughput *p, double now_s, uint64_t n);
/* 0 if there was nothing for as long as all slots are. */
double throughput_per_s(const struct throughput *p, double now_s);

#endif
