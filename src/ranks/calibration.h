/* calibration.h: what the ranks of a group measure about their machines and wires before they
 * load a model, and the placement that follows from it (placement.h).
 *
 * Collective: every rank calls it at the same point. It takes some tenths of a second.
 *
 *   rate      Each rank multiplies with zeros in the file's main type, with all its threads, by
 *             the product that decode uses. All ranks do it at once, so ranks on one machine share
 *             its memory bus. It reads as many bytes as a rank's share, but at most
 *             MACHINE_SPEED_BYTES. So a model that fits the caches is measured in the caches. A
 *             rank on a device does so there, with memory that lies as the weights of a model that
 *             the device does alone.
 *   batch     The same product with many tokens, as of a prompt; not of a rank on a device.
 *   crossing  Of a rank on a device: from a submission to its result on the host.
 *   memory    What the machine has available (mem_available) minus a sixteenth, divided among its
 *             ranks. Of a device with memory of its own that memory, minus a sixteenth.
 *   sums, hand-overs, the way to rank 0 and back
 *             The fabric's own calls with the sizes of a token, medians, for every possible
 *             layout.
 *
 * Rank 0 decides and tells the others, so the ranks cannot disagree. */
#ifndef LOCKSTEP_RANKS_CALIBRATION_H
#define LOCKSTEP_RANKS_CALIBRATION_H

#include "model/model.h"
#include "ranks/job.h"
#include "ranks/pair_speed.h"
#include "ranks/placement.h"

#define CALIBRATION_TEXT 480

struct calibration {
    const struct job *job; /* placement says what is open */
    const struct gguf *g;
    const struct hparams *hp;
    const struct model_config *cfg;
    const struct kernels *kernels;
    struct pool *pool;
    struct fabric *f;
    struct team *all; /* of all ranks, more than one */
    /* lockstep.h's, of rank 0; NULL: all ranks compute. */
    bool (*placed)(void *user, uint64_t fastest, const char *why);
    void *placed_user;
};

struct calibration_choice {
    bool again; /* placed() said so, and nothing is chosen */
    int tp, pp, n_weights;
    double weights[PLAN_MAX_WEIGHTS];
    char text[CALIBRATION_TEXT]; /* for people; of rank 0 */
};

/* A layout that was looked at, for who wants to know why one was chosen. */
struct calibration_layout {
    uint64_t ranks; /* a bit each */
    int tp, pp;
    bool fits;
    double tokens_per_s;
    double reading_s, between_s; /* of a token; crossings are part of the reading */
    double prompt_s;             /* of a prompt's token; 0: unknown */
    char why_not[160];
};
void calibration_layout_set(struct calibration_layout *out, uint64_t ranks,
                            const struct placement_candidate *c);
/* Of all ranks every layout; of up to so many ranks also the best one of each part of them. */
#define CALIBRATION_PARTS_RANKS 4
#define CALIBRATION_LAYOUTS (PLACEMENT_MAX + (1 << (CALIBRATION_PARTS_RANKS - 1)))
/* What the choice was made from; n_ranks 0: nothing was measured. */
struct calibration_figures {
    int n_ranks, n_layouts;
    uint64_t kept; /* the ranks that compute, a bit each */
    struct calibration_layout layouts[CALIBRATION_LAYOUTS]; /* of all ranks first */
    struct placement_machine machines[PLAN_MAX_RANKS];
    struct placement_wires wires;
    struct pair_speeds pairs;
};
/* figures: what rank 0 chooses from; of no use elsewhere. ST_BAD_INPUT: no layout that is open
 * fits: the same sentence on every rank. ST_PEER_LOST, ST_NO_MEMORY. */
enum status calibration_place(struct calibration_choice *out,
                              struct calibration_figures *figures, const struct calibration *s,
                              struct err *err);

#endif
