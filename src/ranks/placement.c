/* placement.c: Predicts the time of a token for every layout, and chooses the fastest that
 * fits. */
#include "ranks/placement.h"

#include "base/mem.h"
#include "base/util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* How often shares are moved away from ranks with too little memory. */
#define FIT_TRIES 16
/* A share that does not fit is cut to what would, and this much more, for layers and heads are
 * not cut. */
#define FIT_MARGIN 0.99
#define SHARE_PARTS 16   /* largest whole number of the smallest share */
#define SHARE_MOST 999   /* and of any */
#define SHARE_ERROR 0.05 /* by how much a whole number may miss a share */
#define SHARE_LEAST 1e-6 /* of all: practically nothing */

void placement_wires_set(struct placement_wires *w, double exchange_s) {
    w->bandwidth = 0;
    for (int i = 0; i <= PLAN_MAX_RANKS; i++) {
        w->sum_s[i] = w->hand_s[i] = exchange_s;
        w->answer_s[i] = 2 * exchange_s;
    }
}

/* ---- one plan ---------------------------------------------------------------------------- */

/* A candidate with what is needed to find its shares. */
struct weighed {
    struct placement_candidate *c;
    struct model_bytes sizes[PLAN_MAX_RANKS];
};

static bool alike_halves(const struct share *a, const struct share *b) {
    bool same = true;
    for (int i = 0; i < ATTN_KINDS_MAX; i++) {
        const struct head_share *x = &a->heads[i], *y = &b->heads[i];
        same &= x->end - x->begin == y->end - y->begin &&
                x->kv_end - x->kv_begin == y->kv_end - y->kv_begin;
    }
    for (int i = 0; i < FF_WIDTHS_MAX; i++)
        same &= a->ff[i].end - a->ff[i].begin == b->ff[i].end - b->ff[i].begin;
    return same;
}

/* Shares of the same shape take the same memory, give or take where a superblock is cut. */
static bool alike(const struct share *a, const struct share *b) {
    return a->layer_begin == b->layer_begin && a->layer_end == b->layer_end &&
           alike_halves(a, b) &&
           a->shared_end - a->shared_begin == b->shared_end - b->shared_begin &&
           a->expert_end - a->expert_begin == b->expert_end - b->expert_begin &&
           a->expert_ff_end - a->expert_ff_begin == b->expert_ff_end - b->expert_ff_begin &&
           a->vocab_end - a->vocab_begin == b->vocab_end - b->vocab_begin;
}

static enum status weigh(struct weighed *w, const struct placement_wish *q,
                         const double *shares, int n_shares, struct err *err) {
    struct placement_candidate *c = w->c;
    double apart[PLAN_MAX_WEIGHTS];
    if (q->experts == EXPERTS_CPU && n_shares <= q->n_ranks) {
        n_shares = plan_experts_apart(apart, shares, n_shares, c->tp, c->pp, q->processors);
        shares = apart;
    }
    TRY(plan_make(&c->plan, q->hp, q->g, c->tp, c->pp, shares, n_shares, q->experts, err));
    for (int r = 0; r < q->n_ranks; r++) {
        const struct share *sh = &c->plan.shares[r];
        /* Rank 0 has buffers that no other has. */
        if (r > 1 && alike(sh, sh - 1) &&
            q->machines[r].n_threads == q->machines[r - 1].n_threads)
            w->sizes[r] = w->sizes[r - 1];
        else
            TRY(model_measure(&w->sizes[r], q->g, q->hp, &c->plan, r, q->cfg,
                              MAX(q->machines[r].n_threads, 1), err));
        c->bytes[r] =
            w->sizes[r].weights + w->sizes[r].kv + w->sizes[r].states + w->sizes[r].buffers;
    }
    return ST_OK;
}

/* Does rank r have too little memory? */
static bool is_short(const struct weighed *w, const struct placement_wish *q, int r) {
    return q->machines[r].memory_bytes != 0 && w->c->bytes[r] > q->machines[r].memory_bytes;
}

static bool fits(const struct weighed *w, const struct placement_wish *q) {
    for (int r = 0; r < q->n_ranks; r++)
        if (is_short(w, q, r))
            return false;
    return true;
}

/* ---- shares ------------------------------------------------------------------------------ */

/* Rates, those alike replaced by their mean. */
static void level(double *rates, const struct placement_machine *machines, int n) {
    bool done[PLAN_MAX_RANKS] = {false};
    for (int left = n; left > 0;) {
        double fastest = 0, sum = 0;
        int members = 0;
        for (int r = 0; r < n; r++)
            if (!done[r])
                fastest = MAX(fastest, machines[r].rate);
        for (int r = 0; r < n; r++)
            if (!done[r] && machines[r].rate >= (1 - PLACEMENT_ALIKE) * fastest) {
                sum += machines[r].rate;
                members++;
            }
        for (int r = 0; r < n; r++)
            if (!done[r] && machines[r].rate >= (1 - PLACEMENT_ALIKE) * fastest) {
                rates[r] = sum / members;
                done[r] = true;
            }
        left -= members;
    }
}

static void scale_to_one(double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    for (int i = 0; i < n; i++)
        x[i] = MAX(x[i] / sum, SHARE_LEAST);
}

/* Shares in whole numbers, the least of them `parts`; false: none are near. */
static bool whole(double *out, const double *shares, int n, int parts) {
    double least = shares[0];
    for (int i = 1; i < n; i++)
        least = MIN(least, shares[i]);
    for (int i = 0; i < n; i++) {
        double want = shares[i] / least * parts;
        out[i] = floor(want + 0.5);
        if (out[i] > SHARE_MOST || fabs(out[i] - want) > SHARE_ERROR * want)
            return false;
    }
    return true;
}

/* The simplest numbers near these shares with which everything fits; else the shares as they
 * are. */
static enum status simplify(struct weighed *w, const struct placement_wish *q,
                            const double *shares, struct err *err) {
    for (int parts = 1; parts <= SHARE_PARTS; parts++) {
        if (!whole(w->c->shares, shares, q->n_ranks, parts))
            continue;
        TRY(weigh(w, q, w->c->shares, q->n_ranks, err));
        if (fits(w, q))
            return ST_OK;
    }
    memcpy(w->c->shares, shares, (size_t)q->n_ranks * sizeof *shares);
    return weigh(w, q, w->c->shares, q->n_ranks, err);
}

/* What a rank that is short may have of the model, or of the experts, if the rest of what it needs
 * stays. */
static double cut_down(const struct weighed *w, const struct placement_wish *q, int r,
                       double share, bool of_experts) {
    const struct model_bytes *b = &w->sizes[r];
    double held = of_experts ? MAX(b->experts, 1.0) : (double)(b->weights + b->kv + b->states);
    double rest = of_experts ? (double)w->c->bytes[r] - b->experts : (double)b->buffers;
    double room = (double)q->machines[r].memory_bytes - rest;
    return MAX(share * FIT_MARGIN * MAX(room, 0.0) / held, SHARE_LEAST);
}

/* Fills the ranks' memory. A rank with too little memory takes what fits; the others take the
 * rest in proportion to `rates`. False: the rest does not fit anywhere. */
static bool pour(double *shares, bool *full, const struct weighed *w,
                 const struct placement_wish *q, const double *rates, bool of_experts) {
    double rest = 1, of_rates = 0;
    for (int r = 0; r < q->n_ranks; r++) {
        if (is_short(w, q, r)) {
            shares[r] = cut_down(w, q, r, shares[r], of_experts);
            full[r] = true;
        }
        rest -= full[r] ? shares[r] : 0;
        of_rates += full[r] ? 0 : rates[r];
    }
    for (int r = 0; r < q->n_ranks && of_rates > 0; r++)
        if (!full[r])
            shares[r] = MAX(rest * rates[r] / of_rates, SHARE_LEAST);
    return of_rates > 0;
}

static enum status find_shares(struct weighed *w, const struct placement_wish *q,
                               struct err *err) {
    int n = q->n_ranks;
    double rates[PLAN_MAX_RANKS] = {0}, shares[PLAN_MAX_RANKS];
    bool full[PLAN_MAX_RANKS] = {false};
    level(rates, q->machines, n);
    memcpy(shares, rates, sizeof shares);
    scale_to_one(shares, n);
    w->c->n_shares = n;
    TRY(simplify(w, q, shares, err));
    if (fits(w, q))
        return ST_OK;
    w->c->by_memory = true;
    for (int i = 0; i < FIT_TRIES && !fits(w, q) && pour(shares, full, w, q, rates, false); i++)
        TRY(weigh(w, q, shares, n, err));
    if (!fits(w, q)) { /* the last try: as much as each has */
        for (int r = 0; r < n; r++)
            shares[r] = (double)q->machines[r].memory_bytes;
        scale_to_one(shares, n);
    }
    return simplify(w, q, shares, err);
}

/* The experts go by the rates and by the memory that the rest leaves, which is the devices'. */
static enum status find_apart(struct weighed *w, const struct placement_wish *q,
                              struct err *err) {
    const int n = q->n_ranks;
    double rates[PLAN_MAX_RANKS] = {0}, *experts = w->c->shares + n;
    bool full[PLAN_MAX_RANKS] = {false};
    level(rates, q->machines, n);
    w->c->n_shares = plan_experts_apart(w->c->shares, rates, n, n, 1, q->processors);
    memcpy(experts, rates, (size_t)n * sizeof *rates);
    scale_to_one(w->c->shares, n);
    scale_to_one(experts, n);
    for (int r = 0; r < n; r++)
        w->c->shares[r] *= (q->processors >> r & 1) == 0;
    TRY(weigh(w, q, w->c->shares, 2 * n, err));
    for (int i = 0; i < FIT_TRIES && !fits(w, q) && pour(experts, full, w, q, rates, true); i++)
        TRY(weigh(w, q, w->c->shares, 2 * n, err));
    w->c->by_memory = true;
    return ST_OK;
}

/* ---- the prediction ---------------------------------------------------------------------- */

/* A rank on a device waits for it before each sum and at the end of the stage's step. */
static uint32_t stage_waits(const struct placement_wish *q, const struct plan *plan,
                            int stage) {
    const struct share *sh = &plan->shares[stage * plan->tp];
    uint32_t n = 1;
    for (uint32_t l = sh->layer_begin; l < sh->layer_end; l++)
        n += model_layer_waits(q->hp, plan, l);
    return n;
}

/* The member that its team waits for: one for the experts, and one for the rest, which is before
 * and after them. */
static void predict_stage(struct weighed *w, const struct placement_wish *q, int stage) {
    struct placement_candidate *c = w->c;
    const uint32_t n_waits = stage_waits(q, &c->plan, stage);
    double read_s = 0, crossing_s = 0, experts_s = 0;
    bool waits = false;
    for (int r = stage * c->tp; r < (stage + 1) * c->tp; r++) {
        const struct placement_machine *m = &q->machines[r];
        const double experts = w->sizes[r].token_experts / m->rate,
                     read = w->sizes[r].token / m->rate - experts,
                     crossing = n_waits * m->crossing_s;
        waits |= m->crossing_s > 0;
        experts_s = MAX(experts_s, experts);
        if (read + crossing >= read_s + crossing_s) {
            read_s = read;
            crossing_s = crossing;
        }
    }
    c->read_s += read_s + experts_s;
    c->crossing_s += crossing_s;
    c->n_waits += waits ? n_waits : 0;
}

/* What the ranks' int8 rates allow: all of them work at the same time. */
static double prompt_s(const struct weighed *w, const struct placement_wish *q) {
    double slowest = 0;
    for (int r = 0; r < q->n_ranks; r++) {
        const struct share *sh = &w->c->plan.shares[r];
        const double rows = sh->last_stage ? sh->vocab_end - sh->vocab_begin : 0,
                     macs = w->sizes[r].token_macs - rows * q->hp->n_embd;
        if (q->machines[r].int8_ops == 0)
            return 0;
        slowest = MAX(slowest, 2 * macs / q->machines[r].int8_ops);
    }
    return slowest;
}

/* Most numbers of a sum need 32 bits on the wire (fabric/sum_codec.c). A member sends and gets
 * each part of a sum, and then each part of the result, but its own. */
static double prompt_wires_s(const struct placement_candidate *c,
                             const struct placement_wish *q, double n_sums) {
    const double row = q->hp->n_embd * sizeof(float), others = (double)(c->tp - 1) / c->tp;
    if (q->wires->bandwidth <= 0)
        return 0;
    const double sums = c->tp > 1 ? n_sums * 2 * others * row : 0, hands = c->pp > 1 ? row : 0;
    return (sums + hands) / q->wires->bandwidth;
}

static void predict(struct weighed *w, const struct placement_wish *q) {
    struct placement_candidate *c = w->c;
    const struct placement_wires *wires = q->wires;
    double n_sums = 0;
    for (uint32_t l = 0; l < q->hp->n_layers; l++)
        n_sums += model_layer_sums(q->hp, &c->plan, l);
    c->read_s = c->between_s = c->crossing_s = 0;
    c->n_waits = 0;
    c->prompt_s = prompt_s(w, q);
    if (c->prompt_s > 0)
        c->prompt_s = MAX(c->prompt_s, prompt_wires_s(c, q, n_sums));
    for (int s = 0; s < c->pp; s++)
        predict_stage(w, q, s);
    if (q->n_ranks == 1)
        return;
    if (c->tp > 1)
        c->between_s += n_sums * wires->sum_s[c->tp];
    if (c->pp > 1)
        c->between_s += (c->pp - 1) * wires->hand_s[c->tp];
    double answer = wires->answer_s[c->tp];
    c->between_s += c->tp > 1 ? answer : MAX(answer - wires->hand_s[c->tp], 0.0);
}

static const char *bytes_text(uint64_t bytes, char buf[32]) {
    bool large = bytes >= 1000000000u;
    snprintf(buf, 32, "%.1f %s", (double)bytes * (large ? 1e-9 : 1e-6), large ? "GB" : "MB");
    return buf;
}

/* Why it cannot be: the rank that misses most, or a wire that is not there. */
static void judge(struct weighed *w, const struct placement_wish *q) {
    struct placement_candidate *c = w->c;
    double most = 1;
    char need[32], have[32];
    c->fits = isfinite(c->between_s);
    if (!c->fits)
        snprintf(c->why_not, sizeof c->why_not,
                 "there are no wires between ranks that it needs");
    for (int r = 0; r < q->n_ranks; r++)
        if (is_short(w, q, r)) {
            double times = (double)c->bytes[r] / (double)q->machines[r].memory_bytes;
            c->fits = false;
            if (times <= most)
                continue;
            most = times;
            snprintf(c->why_not, sizeof c->why_not, "rank %d would need %s, has %s", r,
                     bytes_text(c->bytes[r], need),
                     bytes_text(q->machines[r].memory_bytes, have));
        }
}

static enum status consider(struct placement_candidate *c, const struct placement_wish *q,
                            bool apart, struct err *err) {
    struct weighed w = {.c = c};
    if (q->n_shares != 0) {
        c->n_shares = q->n_shares;
        memcpy(c->shares, q->shares, (size_t)q->n_shares * sizeof *q->shares);
        TRY(weigh(&w, q, q->shares, q->n_shares, err));
    } else if (apart) {
        TRY(find_apart(&w, q, err));
    } else {
        TRY(find_shares(&w, q, err));
    }
    predict(&w, q);
    judge(&w, q);
    return ST_OK;
}

/* What fits before what does not, then by time; the order of what is alike stays (more tensor
 * ranks first). */
static bool is_better(const struct placement_candidate *a,
                      const struct placement_candidate *b) {
    if (a->fits != b->fits)
        return a->fits;
    return placement_tokens_per_s(a) > placement_tokens_per_s(b);
}

/* One more candidate, in its place. ST_BAD_INPUT: the given shares are for another layout. */
static enum status add_candidate(struct placement *out, const struct placement_wish *q, int tp,
                                 bool apart, struct err *err) {
    BUG_ON(out->n == PLACEMENT_MAX);
    struct placement_candidate *c = &out->list[out->n];
    *c = (struct placement_candidate){.tp = tp, .pp = q->n_ranks / tp};
    TRY(consider(c, q, apart, err));
    out->n++;
    for (int i = out->n - 1; i > 0 && is_better(&out->list[i], &out->list[i - 1]); i--) {
        struct placement_candidate other = out->list[i];
        out->list[i] = out->list[i - 1];
        out->list[i - 1] = other;
    }
    return ST_OK;
}

/* Whether the experts of a team of all ranks may be divided otherwise than the rest. */
static bool may_part(const struct placement_wish *q) {
    const uint64_t all = UINT64_MAX >> (64 - q->n_ranks);
    return q->experts == EXPERTS_AUTO && q->hp->moe.n_experts != 0 && q->n_shares == 0 &&
           (q->processors & all) != 0 && (~q->processors & all) != 0;
}

enum status placement_rank(struct placement *out, const struct placement_wish *q,
                           struct err *err) {
    BUG_ON(q->n_ranks < 1 || q->n_ranks > PLAN_MAX_RANKS);
    enum status refused = ST_OK;
    out->n = 0;
    for (int tp = q->n_ranks; tp >= 1; tp--) {
        if (q->n_ranks % tp != 0 || (q->tp != 0 && q->tp != tp))
            continue;
        enum status st = add_candidate(out, q, tp, false, err);
        if (st == ST_OK && tp == q->n_ranks && may_part(q))
            st = add_candidate(out, q, tp, true, err);
        if (st == ST_BAD_INPUT)
            refused = st;
        else if (st != ST_OK)
            return st;
    }
    return out->n > 0 ? ST_OK : refused;
}

/* ---- fewer machines ---------------------------------------------------------------------- */

/* Times for teams of any size, from the sizes that divide n. A team between two of them is like
 * the larger one. A hand-over takes as long as from rank to rank. */
static void fill_wires(struct placement_wires *out, const struct placement_wires *w, int n) {
    *out = *w;
    for (int tp = n; tp > 1; tp--) {
        if (tp == n || n % tp != 0)
            out->hand_s[tp] = w->hand_s[1];
        if (n % tp == 0)
            continue;
        out->sum_s[tp] = out->sum_s[tp + 1];
        out->answer_s[tp] = out->answer_s[tp + 1];
    }
}

/* Ranks 1 to n - 1, the fastest first. If all of them together cannot hold the model: those
 * with most memory first. */
static bool goes_before(const struct placement_machine *a, const struct placement_machine *b,
                        bool all_fit) {
    if (all_fit)
        return a->rate > b->rate;
    return b->memory_bytes != 0 &&
           (a->memory_bytes == 0 || a->memory_bytes > b->memory_bytes); /* 0: enough */
}

static void sort_others(int *order, const struct placement_wish *q, bool all_fit) {
    for (int i = 1; i < q->n_ranks; i++) {
        int at = i - 1;
        for (; at > 0 && goes_before(&q->machines[i], &q->machines[order[at - 1]], all_fit);
             at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

enum status placement_some(struct placement *out, const struct placement_wish *q, uint64_t keep,
                           struct err *err) {
    struct placement_machine machines[PLAN_MAX_RANKS];
    struct placement_wires wires;
    struct placement_wish some = *q;
    fill_wires(&wires, q->wires, q->n_ranks);
    some.machines = machines;
    some.wires = &wires;
    some.n_ranks = 0;
    some.processors = 0;
    for (int r = 0; r < q->n_ranks; r++)
        if (keep >> r & 1) {
            some.processors |= (q->processors >> r & 1) << some.n_ranks;
            machines[some.n_ranks++] = q->machines[r];
        }
    return placement_rank(out, &some, err);
}

enum status placement_fewer(struct placement_fewer *out, const struct placement_wish *q,
                            const struct placement *all, struct err *err) {
    struct placement *p = mem_alloc(sizeof *p);
    const struct placement_candidate *best = &all->list[0];
    int order[PLAN_MAX_RANKS];
    enum status st =
        p != NULL ? ST_OK : err_set(err, ST_NO_MEMORY, "no memory for a placement");
    *out = (struct placement_fewer){.tokens_per_s = 0};
    if (best->fits)
        out->tokens_per_s = PLACEMENT_FEWER_GAIN * placement_tokens_per_s(best);
    sort_others(order, q, best->fits);
    uint64_t keep = 1;
    for (int n = 1; st == ST_OK && n < q->n_ranks; n++) {
        if (n > 1)
            keep |= (uint64_t)1 << order[n - 2];
        st = placement_some(p, q, keep, err);
        if (st == ST_OK && p->list[0].fits &&
            placement_tokens_per_s(&p->list[0]) > out->tokens_per_s)
            *out = (struct placement_fewer){keep, n, placement_tokens_per_s(&p->list[0])};
    }
    mem_free(p);
    return st;
}

/* ---- for people -------------------------------------------------------------------------- */

void placement_refusal(const struct placement *p, char *buf, size_t size) {
    size_t at = 0;
    buf[0] = '\0';
    for (int i = 0; i < p->n && at < size; i++) {
        char how[64];
        placement_layout_text(&p->list[i], how, sizeof how);
        at += (size_t)snprintf(buf + at, size - at, "%s%s: %s", i > 0 ? "; " : "", how,
                               p->list[i].why_not);
    }
}

void placement_layout_text(const struct placement_candidate *c, char *buf, size_t size) {
    char how[40];
    plan_text(&c->plan, how, sizeof how);
    snprintf(buf, size, "%s%s", how,
             c->n_shares > c->plan.n_ranks ? " with experts apart" : "");
}

void placement_candidate_shares_text(const struct placement_candidate *c, int n, char *buf,
                                     size_t size) {
    const int n_ranks = c->plan.n_ranks;
    char experts[100];
    placement_shares_text(c->shares, MIN(MIN(c->n_shares, n_ranks), n), buf, size);
    if (c->n_shares <= n_ranks)
        return;
    placement_shares_text(c->shares + n_ranks, MIN(n_ranks, n), experts, sizeof experts);
    const size_t at = strlen(buf);
    snprintf(buf + at, size - at, ", experts %s",
             experts + (str_starts(experts, "shares ") ? strlen("shares ") : 0));
}

void placement_shares_text(const double *shares, int n, char *buf, size_t size) {
    size_t at = (size_t)snprintf(buf, size, "shares ");
    bool equal = true;
    for (int i = 0; i < n && at < size; i++) {
        at += (size_t)snprintf(buf + at, size - at, "%s%.3g", i > 0 ? "," : "", shares[i]);
        equal &= shares[i] == shares[0];
    }
    if (equal)
        snprintf(buf, size, "equal shares");
}
