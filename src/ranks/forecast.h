/* forecast.h: which layouts a model would have on machines that do not run it: from its header, and
 * from what is known of the machines and of the wires between them. A pure function of these;
 * placement.h has the formulas. Exchanges take a latency and the time of their bytes, while ranks
 * that are there measure their own (calibration.h). */
#ifndef LOCKSTEP_RANKS_FORECAST_H
#define LOCKSTEP_RANKS_FORECAST_H

#include "ranks/calibration.h"

/* Of so many machines each part is looked at, of more the fastest ones. */
#define FORECAST_PARTS_MACHINES 4
#define FORECAST_LAYOUTS (PLACEMENT_MAX + PLAN_MAX_RANKS + (1 << FORECAST_PARTS_MACHINES))

struct forecast_wish {
    const struct gguf *g;
    const struct hparams *hp;
    uint32_t n_ctx;                           /* 0: as without --ctx */
    int n;                                    /* machines, with a rank each */
    const struct placement_machine *machines; /* [n] */
    /* [n * n], of the machines i and j at i * n + j. bandwidth 0: not known, and left out */
    const struct pair_speed *links;
};

/* As a session of one sequence would have it without further options: n_ctx, n_chunk 0: the
 * defaults. ST_BAD_INPUT: the context is too long. */
enum status forecast_configure(struct model_config *out, const struct hparams *hp,
                               uint32_t n_ctx, uint32_t n_chunk, struct err *err);

/* out: [FORECAST_LAYOUTS], the fastest first, what does not fit last; *n: how many. ST_BAD_INPUT:
 * there is none; ST_NO_MEMORY. */
enum status forecast_make(struct calibration_layout *out, int *n,
                          const struct forecast_wish *wish, struct err *err);

#endif
