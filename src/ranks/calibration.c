/* calibration.c: Measures ranks and wires before a model loads, and shares the results with
 * rank 0. */
#include "ranks/calibration.h"

#include "base/clock.h"
#include "base/median.h"
#include "base/mem.h"
#include "base/util.h"
#include "net/host_id.h"
#include "ranks/device_reading.h"
#include "ranks/machine_speed.h"
#include "ranks/placement.h"

#include <math.h>
#include <stdio.h>

#define RATE_ROUNDS 2
#define CROSSING_MOST 60.0
#define RATE_MOST 1e15 /* bytes/s; a rank that says more does not measure */

/* An exchange is repeated so often, or until all of its kind together took WIRE_SECONDS. */
#define WIRE_TRIES 21
#define WIRE_TRIES_LEAST 3
#define ANSWER_TRIES 5
#define WIRE_SECONDS 0.12

/* ---- the rate ---------------------------------------------------------------------------- */

/* The device that computes tokens, which placement predicts; NULL: the processor does. */
static struct shaders *token_device(const struct calibration *s) {
    return s->cfg->device_from <= 1 ? s->cfg->shaders : NULL;
}

static enum status measure_rate(double *rate, double *ops, double crossing_s,
                                const struct calibration *s, struct err *err) {
    struct machine_speed *m;
    struct gguf_totals all;
    gguf_totals(s->g, &all);
    const struct machine_speed_wish wish = {
        .type = machine_speed_type(&all),
        .bytes = (size_t)MIN(all.n_bytes / (uint64_t)s->job->n_ranks, SIZE_MAX),
        .kernels = s->kernels,
        .pool = s->pool,
        .device = token_device(s),
        .crossing_s = crossing_s};
    TRY(machine_speed_open(&m, &wish, err));
    enum status st = fabric_barrier(s->all, err);
    if (st == ST_OK)
        st = machine_speed_read(rate, m, err);
    if (st == ST_OK)
        *ops = machine_speed_batch(m);
    machine_speed_close(m);
    return st;
}

/* ---- wires ------------------------------------------------------------------------------- */

/* Nanoseconds by layout: of this rank, then sums over the ranks that have measured. */
struct timed {
    int64_t sum_ns[PLACEMENT_MAX], n_sums;
    int64_t hand_ns[PLACEMENT_MAX], n_hands[PLACEMENT_MAX];
    int64_t answer_ns[PLACEMENT_MAX];
    int64_t no_wires[PLACEMENT_MAX]; /* ranks that could not form their team */
};

struct layouts {
    int n;
    int tp[PLACEMENT_MAX];
};

static struct layouts open_layouts(const struct job *job) {
    struct layouts l = {0};
    for (int tp = job->n_ranks; tp >= 1; tp--)
        if (job->n_ranks % tp == 0 && (job->placement == JOB_PLACE_ALL || tp == job->tp))
            l.tp[l.n++] = tp;
    return l;
}

struct stopwatch {
    double ns[WIRE_TRIES], spent_ns;
    size_t n;
};

static void note(struct stopwatch *w, uint64_t began_ns) {
    w->ns[w->n] = (double)(clock_ns() - began_ns);
    w->spent_ns += w->ns[w->n++];
}

static bool is_enough(size_t n, double spent_ns, double budget_ns) {
    return n == WIRE_TRIES || (n >= WIRE_TRIES_LEAST && spent_ns > budget_ns);
}

/* Sums are timed in pairs. If a rank comes late by the wire's delay, it waits only in every
 * second sum, and so do the others. The first sum of a pair carries how long the sums have
 * taken every member so far. All members see the same total, so all stop together. */
static enum status time_sum(int64_t *out_ns, struct team *team, int64_t *x, size_t n,
                            double budget_ns, struct err *err) {
    struct stopwatch w = {.n = 0};
    double spent_ns = 0;
    while (!is_enough(w.n, spent_ns, budget_ns)) {
        memset(x, 0, n * sizeof *x);
        x[0] = (int64_t)(w.spent_ns * 1e-3);
        uint64_t began = clock_ns();
        TRY(fabric_allreduce(team, x, n, err));
        spent_ns = (double)x[0] * 1e3 / team_size(team);
        TRY(fabric_allreduce(team, x, n, err));
        note(&w, began);
    }
    *out_ns = (int64_t)(median(w.ns, w.n) / 2);
    return ST_OK;
}

static enum status time_team(struct timed *t, int i, const struct calibration *s, int tp,
                             int64_t *x, size_t n, double budget_ns, struct err *err) {
    int ranks[PLAN_MAX_RANKS], first = s->job->rank / tp * tp;
    struct team *team = s->all;
    for (int m = 0; m < tp; m++)
        ranks[m] = first + m;
    enum status st = tp == s->job->n_ranks ? ST_OK : fabric_team(s->f, &team, ranks, tp, err);
    if (st == ST_BAD_INPUT) { /* on every member alike */
        t->no_wires[i] = 1;
        return ST_OK;
    }
    return st == ST_OK ? time_sum(&t->sum_ns[i], team, x, n, budget_ns, err) : st;
}

/* There and back; the first float says whether it is the last time. */
static enum status ping(int64_t *out_ns, const struct calibration *s, int to, float *x,
                        size_t n_bytes, double budget_ns, struct err *err) {
    struct stopwatch w = {.n = 0};
    for (bool last = false; !last;) {
        last = is_enough(w.n + 1, w.spent_ns, budget_ns);
        x[0] = last ? 1.0f : 0.0f;
        uint64_t began = clock_ns();
        TRY(fabric_send(s->f, to, x, n_bytes, err));
        TRY(fabric_recv(s->f, to, x, n_bytes, err));
        note(&w, began);
    }
    *out_ns = (int64_t)(median(w.ns, w.n) / 2);
    return ST_OK;
}

static enum status pong(const struct calibration *s, int from, float *x, size_t n_bytes,
                        struct err *err) {
    for (bool last = false; !last;) {
        TRY(fabric_recv(s->f, from, x, n_bytes, err));
        last = x[0] != 0;
        TRY(fabric_send(s->f, from, x, n_bytes, err));
    }
    return ST_OK;
}

/* Even stages with the next ones, then odd ones. */
static enum status time_hands(struct timed *t, int i, const struct calibration *s, int tp,
                              float *x, size_t n_bytes, double budget_ns, struct err *err) {
    int rank = s->job->rank, n_stages = s->job->n_ranks / tp, stage = rank / tp;
    for (int turn = 0; turn < 2; turn++) {
        if (stage % 2 == turn && stage + 1 < n_stages) {
            TRY(ping(&t->hand_ns[i], s, rank + tp, x, n_bytes, budget_ns, err));
            t->n_hands[i] = 1;
        } else if (stage % 2 != turn && stage > 0) {
            TRY(pong(s, rank - tp, x, n_bytes, err));
        }
    }
    return ST_OK;
}

/* rows: [n_vocab], on rank 0 what comes from everybody. */
static enum status time_answer(struct timed *t, int i, const struct calibration *s, int tp,
                               float *rows, float *part, struct err *err) {
    double ns[ANSWER_TRIES];
    uint8_t word[256] = {0};
    size_t bytes[PLAN_MAX_RANKS] = {0};
    int n_ranks = s->job->n_ranks;
    for (int m = 0; m < tp; m++)
        bytes[n_ranks - tp + m] = (size_t)(s->hp->n_vocab / (uint32_t)tp) * sizeof *rows;
    for (int k = 0; k < ANSWER_TRIES; k++) {
        uint64_t began = clock_ns();
        TRY(fabric_broadcast(s->all, 0, word, sizeof word, err));
        TRY(fabric_gather(s->all, 0, part, rows, bytes, err));
        ns[k] = (double)(clock_ns() - began);
    }
    t->answer_ns[i] = s->job->rank == 0 ? (int64_t)median(ns, ANSWER_TRIES) : 0;
    return ST_OK;
}

static enum status time_wires(struct timed *t, const struct layouts *l,
                              const struct calibration *s, int64_t *x, size_t n, float *rows,
                              struct err *err) {
    double budget_ns = WIRE_SECONDS * 1e9 / (3 * l->n);
    for (int i = 0; i < l->n; i++) {
        int tp = l->tp[i];
        TRY(fabric_barrier(s->all, err));
        if (tp > 1)
            TRY(time_team(t, i, s, tp, x, n, budget_ns, err));
        if (tp < s->job->n_ranks)
            TRY(time_hands(t, i, s, tp, rows, s->hp->n_embd * sizeof *rows, budget_ns, err));
        TRY(time_answer(t, i, s, tp, rows, rows + s->hp->n_vocab, err));
    }
    t->n_sums = 1;
    return fabric_allreduce(s->all, (int64_t *)t, sizeof *t / sizeof(int64_t), err);
}

static double mean_s(int64_t sum_ns, int64_t n) {
    return n > 0 && sum_ns > 0 ? (double)sum_ns * 1e-9 / (double)n : 0;
}

static enum status measure_wires(struct placement_wires *w, const struct calibration *s,
                                 struct err *err) {
    size_t n = round_up(s->hp->n_embd, TILE_ROWS);
    size_t n_rows = MAX(s->hp->n_vocab, s->hp->n_embd) + s->hp->n_vocab;
    int64_t *x = mem_calloc(n, sizeof *x);
    float *rows = mem_calloc(n_rows, sizeof *rows);
    const struct layouts l = open_layouts(s->job);
    struct timed t = {.n_sums = 0};
    enum status st = x != NULL && rows != NULL
                         ? time_wires(&t, &l, s, x, n, rows, err)
                         : err_set(err, ST_NO_MEMORY, "no memory to measure the wires");
    placement_wires_set(w, 0);
    for (int i = 0; i < l.n; i++) {
        w->sum_s[l.tp[i]] = t.no_wires[i] != 0 ? INFINITY : mean_s(t.sum_ns[i], t.n_sums);
        w->hand_s[l.tp[i]] = mean_s(t.hand_ns[i], t.n_hands[i]);
        w->answer_s[l.tp[i]] = mean_s(t.answer_ns[i], 1);
    }
    mem_free(x);
    mem_free(rows);
    return st;
}

/* ---- machines ---------------------------------------------------------------------------- */

/* Goes over the wire between ranks of the same build. */
struct machine_report {
    uint64_t memory_bytes;
    double rate, int8_ops, crossing_s;
    int32_t n_threads, unused;
    uint8_t host[32];
    char device[64]; /* with memory of its own; "": its memory is the host's */
};

static enum status look_at_device(struct machine_report *mine, const struct calibration *s,
                                  struct err *err) {
    const struct device_info *info = device_info(shaders_device(token_device(s)));
    struct job_device its;
    TRY(job_device(s->job, &its, err));
    const char *name = its.name;
    mine->memory_bytes = device_reading_memory(info, mine->memory_bytes);
    /* Two cards of one name have numbers. */
    if (!info->unified)
        snprintf(mine->device, sizeof mine->device, "%.8s %.48s",
                 strspn(name, "0123456789") == strlen(name) ? name : "", info->name);
    return device_reading_crossing(&mine->crossing_s, token_device(s), err);
}

/* Whether two ranks take memory from one place. */
static bool share_memory(const struct machine_report *a, const struct machine_report *b) {
    return memcmp(a->host, b->host, sizeof a->host) == 0 &&
           memcmp(a->device, b->device, sizeof a->device) == 0;
}

static bool makes_sense(const struct machine_report *r) {
    return r->rate > 0 && r->rate < RATE_MOST && r->n_threads >= 1 &&
           r->n_threads <= POOL_MAX_THREADS && r->int8_ops >= 0 &&
           r->int8_ops < RATE_MOST * 1e3 && r->crossing_s >= 0 && r->crossing_s < CROSSING_MOST;
}

static bool are_alike(const struct machine_report *all, int n) {
    double slowest = all[0].rate, fastest = all[0].rate;
    for (int i = 1; i < n; i++) {
        slowest = MIN(slowest, all[i].rate);
        fastest = MAX(fastest, all[i].rate);
    }
    return slowest >= (1 - PLACEMENT_ALIKE) * fastest;
}

/* machines: on rank 0. If rates differ, other work may have disturbed a measurement. So they
 * are measured again, and the faster one counts. */
static enum status measure_machines(struct placement_machine *machines,
                                    const struct calibration *s, struct err *err) {
    int n = s->job->n_ranks;
    struct machine_report mine = {.n_threads = s->job->n_threads}, all[PLAN_MAX_RANKS];
    size_t parts[PLAN_MAX_RANKS];
    for (int i = 0; i < n; i++)
        parts[i] = sizeof mine;
    host_id(mine.host);
    uint64_t free_bytes = mem_available();
    mine.memory_bytes = free_bytes - free_bytes / 16;
    if (token_device(s) != NULL)
        TRY(look_at_device(&mine, s, err));
    TRY(fabric_barrier(s->all, err)); /* all have looked before the first takes some */
    uint8_t again = 1;
    for (int round = 0; round < RATE_ROUNDS && again; round++) {
        double rate, ops;
        TRY(measure_rate(&rate, &ops, mine.crossing_s, s, err));
        mine.rate = MAX(mine.rate, rate);
        mine.int8_ops = MAX(mine.int8_ops, ops);
        TRY(fabric_gather(s->all, 0, &mine, all, parts, err));
        again = s->job->rank == 0 && !are_alike(all, n);
        TRY(fabric_broadcast(s->all, 0, &again, sizeof again, err));
    }
    for (int i = 0; i < n && s->job->rank == 0; i++) {
        uint64_t together = 0;
        for (int j = 0; j < n; j++)
            together += share_memory(&all[i], &all[j]);
        if (!makes_sense(&all[i]))
            return err_set(err, ST_PEER_LOST, "rank %d sent measurements that make no sense",
                           i);
        machines[i] = (struct placement_machine){.memory_bytes = all[i].memory_bytes / together,
                                                 .rate = all[i].rate,
                                                 .int8_ops = all[i].int8_ops,
                                                 .crossing_s = all[i].crossing_s,
                                                 .n_threads = all[i].n_threads};
    }
    return ST_OK;
}

/* ---- the choice -------------------------------------------------------------------------- */

static size_t say_rates(char *buf, size_t size, const struct placement_machine *machines,
                        int n) {
    size_t at = 0;
    for (int i = 0; i < MIN(n, 8); i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%.1f", i > 0 ? ", " : "",
                               machines[i].rate * 1e-9);
    return at + (size_t)snprintf(buf + at, size - at, "%s GB/s", n > 8 ? ", .." : "");
}

/* Three digits: "41 us", "50.1 ms". */
static const char *time_text(double s, char buf[32]) {
    bool large = s >= 0.9995e-3;
    snprintf(buf, 32, "%.3g %s", s * (large ? 1e3 : 1e6), large ? "ms" : "us");
    return buf;
}

/* "tensor2 (48.1 tokens/s predicted; pipeline2 27.0); shares 2,1 by memory bandwidth (31.2,
 * 15.4 GB/s); a sum takes 41 us"; "by free memory and memory bandwidth" where a rank has less
 * than its bandwidth is worth. */
static void describe(char *buf, size_t size, const struct placement *p,
                     const struct calibration *s, const struct placement_machine *machines,
                     const struct placement_wires *wires) {
    const struct placement_candidate *c = &p->list[0];
    char how[64], text[100], time[32];
    placement_layout_text(c, how, sizeof how);
    size_t at = (size_t)snprintf(buf, size, "%s (%.1f tokens/s predicted", how,
                                 placement_tokens_per_s(c));
    for (int i = 1; i < MIN(p->n, 4); i++) {
        placement_layout_text(&p->list[i], how, sizeof how);
        if (p->list[i].fits)
            at += (size_t)snprintf(buf + at, size - at, "; %s %.1f", how,
                                   placement_tokens_per_s(&p->list[i]));
        else
            at += (size_t)snprintf(buf + at, size - at, "; %s does not fit", how);
    }
    placement_candidate_shares_text(c, 16, text, sizeof text);
    at += (size_t)snprintf(buf + at, size - at, "); %s by %smemory bandwidth (", text,
                           c->by_memory ? "free memory and " : "");
    at += say_rates(buf + at, size - at, machines, s->job->n_ranks);
    snprintf(buf + at, size - at, "); %s takes %s", c->tp > 1 ? "a sum" : "handing on",
             time_text(c->tp > 1 ? wires->sum_s[c->tp] : wires->hand_s[1], time));
}

/* "1 rank (44.0 tokens/s predicted; tensor3 12.3)". If leaving ranks out does not help and the
 * model does not fit, there is nothing to ask. */
static enum status ask_caller(struct calibration_choice *choice,
                              struct calibration_figures *figures, const struct calibration *s,
                              const struct placement *p, const struct placement_wish *wish,
                              struct err *err) {
    struct placement_fewer fewer;
    const struct placement_candidate *all = &p->list[0];
    char how[64], what[sizeof all->why_not + 4], why[CALIBRATION_TEXT];
    TRY(placement_fewer(&fewer, wish, p, err));
    if (fewer.keep == 0 && !all->fits)
        return ST_OK;
    placement_layout_text(all, how, sizeof how);
    if (all->fits)
        snprintf(what, sizeof what, " %.1f", placement_tokens_per_s(all));
    else
        snprintf(what, sizeof what, ": %s", all->why_not);
    if (fewer.keep == 0) {
        fewer.keep = UINT64_MAX >> (64 - wish->n_ranks);
        snprintf(why, sizeof why, "%s", choice->text);
    } else {
        snprintf(why, sizeof why, "%d rank%s (%.1f tokens/s predicted; %s%s)", fewer.n,
                 fewer.n == 1 ? "" : "s", fewer.tokens_per_s, how, what);
    }
    figures->kept = fewer.keep;
    choice->again = !s->placed(s->placed_user, fewer.keep, why);
    if (choice->again)
        snprintf(choice->text, sizeof choice->text, "%s", why);
    return ST_OK;
}

void calibration_layout_set(struct calibration_layout *out, uint64_t ranks,
                            const struct placement_candidate *c) {
    *out = (struct calibration_layout){.ranks = ranks,
                                       .tp = c->tp,
                                       .pp = c->pp,
                                       .fits = c->fits,
                                       .tokens_per_s = placement_tokens_per_s(c),
                                       .reading_s = c->read_s + c->crossing_s,
                                       .between_s = c->between_s,
                                       .prompt_s = c->prompt_s};
    snprintf(out->why_not, sizeof out->why_not, "%s", c->why_not);
}

/* Of these ranks the two between which it is least; 0: not measured. */
static double least_bandwidth(const struct pair_speeds *pairs, int n, uint64_t ranks) {
    double least = 0;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++)
            if ((ranks >> i & 1) && (ranks >> j & 1) &&
                (least == 0 || pairs->of[i][j].bandwidth < least))
                least = pairs->of[i][j].bandwidth;
    return least;
}

/* For people: what other layouts, and fewer machines, would give. */
static void keep_layouts(struct calibration_figures *f, const struct placement_wish *all_ranks,
                         const struct placement *all) {
    struct placement_wires wires = *all_ranks->wires;
    struct placement_wish of_some = *all_ranks;
    const struct placement_wish *wish = &of_some;
    of_some.wires = &wires;
    uint64_t whole = UINT64_MAX >> (64 - wish->n_ranks);
    struct placement *some = mem_alloc(sizeof *some);
    f->n_layouts = 0;
    for (int i = 0; i < all->n; i++)
        calibration_layout_set(&f->layouts[f->n_layouts++], whole, &all->list[i]);
    for (uint64_t ranks = whole - 2; some != NULL && wish->tp == 0 && ranks < whole &&
                                     wish->n_ranks <= CALIBRATION_PARTS_RANKS;
         ranks -= 2) { /* the first is in each */
        wires.bandwidth = least_bandwidth(&f->pairs, wish->n_ranks, ranks);
        if (placement_some(some, wish, ranks, NULL) == ST_OK)
            calibration_layout_set(&f->layouts[f->n_layouts++], ranks, &some->list[0]);
    }
    mem_free(some);
}

/* Rank 0: to choice. Its text is the refusal if tp is 0. */
static enum status decide(struct calibration_choice *choice,
                          struct calibration_figures *figures, const struct calibration *s,
                          struct err *err) {
    const struct placement_machine *machines = figures->machines;
    const struct placement_wires *wires = &figures->wires;
    const struct job *job = s->job;
    struct placement *p = mem_alloc(sizeof *p);
    const struct placement_wish wish = {
        .g = s->g,
        .hp = s->hp,
        .cfg = s->cfg,
        .experts = job->experts,
        .processors = job_processors(job),
        .n_ranks = job->n_ranks,
        .machines = machines,
        .wires = wires,
        .tp = job->placement == JOB_PLACE_SHARES ? job->tp : 0,
        .pp = job->placement == JOB_PLACE_SHARES ? job->pp : 0,
    };
    enum status st = p != NULL ? placement_rank(p, &wish, err)
                               : err_set(err, ST_NO_MEMORY, "no memory for a placement");
    const struct placement_candidate *c = st == ST_OK ? &p->list[0] : NULL;
    figures->kept = UINT64_MAX >> (64 - job->n_ranks);
    if (st == ST_OK)
        keep_layouts(figures, &wish, p);
    if (st == ST_OK && c->fits) {
        choice->tp = c->tp;
        choice->pp = c->pp;
        choice->n_weights = c->n_shares;
        memcpy(choice->weights, c->shares, sizeof choice->weights);
        describe(choice->text, sizeof choice->text, p, s, machines, wires);
    } else if (st == ST_OK) {
        char why[CALIBRATION_TEXT / 2];
        placement_refusal(p, why, sizeof why);
        snprintf(
            choice->text, sizeof choice->text,
            "these machines cannot take the model with its KV cache and buffers: %s (--split tries regardless)",
            why);
    }
    if (st == ST_OK && s->placed != NULL && job->placement == JOB_PLACE_ALL)
        st = ask_caller(choice, figures, s, p, &wish, err);
    mem_free(p);
    return st;
}

enum status calibration_place(struct calibration_choice *out,
                              struct calibration_figures *figures, const struct calibration *s,
                              struct err *err) {
    struct calibration_choice choice = {.tp = 0};
    figures->n_ranks = 0;
    TRY(measure_machines(figures->machines, s, err));
    TRY(measure_wires(&figures->wires, s, err));
    TRY(pair_speed_measure(&figures->pairs, s->f, s->all, err));
    if (s->job->rank == 0) {
        figures->wires.bandwidth = least_bandwidth(&figures->pairs, s->job->n_ranks,
                                                   UINT64_MAX >> (64 - s->job->n_ranks));
        TRY(decide(&choice, figures, s, err));
    }
    figures->n_ranks = s->job->n_ranks;
    TRY(fabric_broadcast(s->all, 0, &choice, sizeof choice, err));
    choice.text[sizeof choice.text - 1] = '\0';
    if (choice.again) {
        *out = choice;
        return ST_OK;
    }
    if (choice.tp == 0)
        return err_set(err, ST_BAD_INPUT, "%s", choice.text);
    if (choice.tp < 1 || choice.pp < 1 || choice.tp > PLAN_MAX_RANKS ||
        choice.pp > PLAN_MAX_RANKS || choice.tp * choice.pp != s->job->n_ranks ||
        choice.n_weights < 0 || choice.n_weights > 2 * s->job->n_ranks)
        return err_set(err, ST_PEER_LOST, "rank 0 chose a placement that makes no sense");
    *out = choice;
    return ST_OK;
}
