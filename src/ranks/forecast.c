/* forecast.c: ranks the layouts of parts of some machines. */
#include "ranks/forecast.h"

#include "base/mem.h"
#include "base/util.h"
#include "ranks/instance.h"

#include <stdlib.h>

enum status forecast_configure(struct model_config *c, const struct hparams *hp, uint32_t n_ctx,
                               uint32_t n_chunk, struct err *err) {
    c->n_ctx = n_ctx != 0 ? n_ctx : MIN(hp->n_ctx_train, (uint32_t)INSTANCE_DEFAULT_CTX);
    if (c->n_ctx > hp->n_ctx_train)
        return err_set(
            err, ST_BAD_INPUT,
            "a context of %u is more than the model's %u, the most that --ctx may be", c->n_ctx,
            hp->n_ctx_train);
    c->n_tokens_max = MIN(n_chunk != 0 ? n_chunk : (uint32_t)INSTANCE_DEFAULT_CHUNK, c->n_ctx);
    c->n_runs_max = 1;
    c->n_states = hp->recurrent.kind != RECURRENT_NONE ? INSTANCE_STATES : 0;
    c->n_pages[KV_WHOLE] = (uint32_t)div_up(c->n_ctx, KV_PAGE);
    if (hp->window != 0)
        c->n_pages[KV_WINDOW] = kv_window_pages(hp->window, c->n_ctx, c->n_tokens_max);
    return ST_OK;
}

struct forecast {
    const struct forecast_wish *wish;
    struct model_config cfg;
    struct placement *placement; /* owned */
    struct calibration_layout *out;
    int n;
};

/* The slowest wire between two of these machines counts. */
static void find_wires(struct placement_wires *w, const struct forecast_wish *wish,
                       uint64_t ranks) {
    double latency = 0, bandwidth = 0;
    for (int i = 0; i < wish->n; i++)
        for (int j = i + 1; j < wish->n; j++) {
            const struct pair_speed *p = &wish->links[i * wish->n + j];
            if ((ranks >> i & 1) == 0 || (ranks >> j & 1) == 0)
                continue;
            latency = MAX(latency, p->latency_s);
            if (p->bandwidth > 0 && (bandwidth == 0 || p->bandwidth < bandwidth))
                bandwidth = p->bandwidth;
        }
    const double row = wish->hp->n_embd * sizeof(float),
                 per_byte = bandwidth > 0 ? 1 / bandwidth : 0;
    placement_wires_set(w, latency + row * per_byte);
    for (int tp = 2; tp <= wish->n; tp++)
        w->sum_s[tp] = latency + 2.0 * (tp - 1) / tp * row * per_byte;
    for (int tp = 1; tp <= wish->n; tp++)
        w->answer_s[tp] = 2 * latency + wish->hp->n_vocab * sizeof(float) * per_byte;
    w->bandwidth = bandwidth;
}

/* Of all machines every layout, of some the best one. */
static enum status look_at(struct forecast *f, uint64_t ranks, struct err *err) {
    const struct forecast_wish *q = f->wish;
    struct placement_machine machines[PLAN_MAX_RANKS];
    struct placement_wires wires;
    int n = 0;
    for (int i = 0; i < q->n; i++)
        if (ranks >> i & 1)
            machines[n++] = q->machines[i];
    find_wires(&wires, q, ranks);
    const struct placement_wish wish = {.g = q->g,
                                        .hp = q->hp,
                                        .cfg = &f->cfg,
                                        .experts = EXPERTS_AUTO,
                                        .processors = UINT64_MAX,
                                        .n_ranks = n,
                                        .machines = machines,
                                        .wires = &wires};
    enum status st = placement_rank(f->placement, &wish, err);
    for (int i = 0; st == ST_OK && i < (n == q->n ? f->placement->n : 1); i++)
        calibration_layout_set(&f->out[f->n++], ranks, &f->placement->list[i]);
    return st == ST_BAD_INPUT ? ST_OK : st; /* there are others */
}

/* Each machine alone, and the fastest 2, 3, ... */
static enum status look_at_many(struct forecast *f, struct err *err) {
    int order[PLAN_MAX_RANKS];
    uint64_t ranks = 0;
    for (int i = 0; i < f->wish->n; i++) {
        int at = i;
        for (; at > 0 && f->wish->machines[i].rate > f->wish->machines[order[at - 1]].rate;
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (int i = 0; i < f->wish->n; i++) {
        ranks |= (uint64_t)1 << order[i];
        TRY(look_at(f, (uint64_t)1 << i, err));
        if (i > 0)
            TRY(look_at(f, ranks, err));
    }
    return ST_OK;
}

static enum status look_at_parts(struct forecast *f, struct err *err) {
    for (uint64_t ranks = 1; ranks < (uint64_t)1 << f->wish->n; ranks++)
        TRY(look_at(f, ranks, err));
    return ST_OK;
}

static int compare(const void *a_, const void *b_) {
    const struct calibration_layout *a = a_, *b = b_;
    if (a->fits != b->fits)
        return a->fits ? -1 : 1;
    return (a->tokens_per_s < b->tokens_per_s) - (a->tokens_per_s > b->tokens_per_s);
}

enum status forecast_make(struct calibration_layout *out, int *n,
                          const struct forecast_wish *wish, struct err *err) {
    struct forecast f = {.wish = wish, .out = out};
    BUG_ON(wish->n < 1 || wish->n > PLAN_MAX_RANKS / 2);
    TRY(forecast_configure(&f.cfg, wish->hp, wish->n_ctx, 0, err));
    f.placement = mem_alloc(sizeof *f.placement);
    enum status st = f.placement == NULL
                         ? err_set(err, ST_NO_MEMORY, "no memory for a placement")
                     : wish->n <= FORECAST_PARTS_MACHINES ? look_at_parts(&f, err)
                                                          : look_at_many(&f, err);
    mem_free(f.placement);
    if (st == ST_OK && f.n == 0)
        st = err_set(err, ST_BAD_INPUT, "no layout of this model suits these machines");
    qsort(out, (size_t)f.n, sizeof *out, compare);
    *n = f.n;
    return st;
}
