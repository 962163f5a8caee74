/* considered.h: the layouts that were looked at before other machines than all were chosen, for who
 * wants to know why: the ranks that have measured them are gone then, and a single rank measures
 * nothing. Kept for the thread that opens the model again, without the machines left out. */
#ifndef LOCKSTEP_RANKS_CONSIDERED_H
#define LOCKSTEP_RANKS_CONSIDERED_H

#include "ranks/calibration.h"

struct considered {
    struct calibration_figures figures;
    char why[CALIBRATION_TEXT]; /* what was chosen, in a line */
    char *hosts;                /* as lockstep_options has them; owned */
};

/* Copies the texts. Without memory nothing is kept. */
void considered_keep(const struct calibration_figures *figures, const char *why,
                     const char *hosts);
/* What this thread has kept, once; NULL: nothing. considered_free() it. */
struct considered *considered_take(void);
void considered_free(struct considered *c); /* NULL is fine */

#endif
