/* api_sequence.c: the steps of a model's one sequence, and lockstep_eval(). If the model was
 * opened with failover, a step is repeated after the loss of a rank. */
#include "base/float_env.h"
#include "base/util.h"
#include "engine/api_impl.h"

static bool sink_rows(void *user, uint32_t first, uint32_t n, const float *logits) {
    struct api_rows *sink = user;
    if (sink->stopped) /* before a rank was lost */
        return false;
    if (first < sink->n_given)
        return true;
    sink->n_given = first + n;
    sink->stopped = !sink->rows(sink->user, sink->first_pos + first, n, logits);
    return !sink->stopped;
}

/* The window's pages of a step that feeds positions [begin, end); how many. */
static uint32_t lay_window(struct lockstep *ls, size_t begin, size_t end) {
    uint32_t window = ls->in.rank.hp.window, size = ls->in.rank.job.n_pages[KV_WINDOW], n = 0;
    if (window == 0)
        return 0;
    uint32_t n_pages = (uint32_t)div_up(end, KV_PAGE);
    for (uint32_t i = kv_window_first(window, (uint32_t)begin); i < n_pages; i++)
        ls->window_pages[n++] = i % size;
    if (n_pages > size)
        ls->window_low = MAX(ls->window_low, n_pages - size);
    return n;
}

/* ---- states of recurrent layers ---------------------------------------------------------- */

static bool is_recurrent(const struct lockstep *ls) {
    return ls->in.rank.hp.recurrent.kind != RECURRENT_NONE;
}

/* The slot of the fewest tokens but for that in use. */
static uint32_t state_to_replace(const struct lockstep *ls) {
    uint32_t best = ls->state == 0 ? 1 : 0;
    for (uint32_t i = 0; i < INSTANCE_STATES; i++)
        if (i != ls->state && ls->state_ids[i] < ls->state_ids[best])
            best = i;
    return best;
}

/* The largest number of the first n tokens for which a state exists. States of more tokens are
 * of no use now. */
static size_t state_rewind(struct lockstep *ls, size_t n) {
    size_t most = 0;
    ls->state_ids[ls->state] = ls->n_ids;
    for (uint32_t i = 0; i < INSTANCE_STATES; i++) {
        if (ls->state_ids[i] > n)
            ls->state_ids[i] = 0;
        if (ls->state_ids[i] > most) {
            most = ls->state_ids[i];
            ls->state = i;
        }
    }
    ls->at_snapshot = most != 0;
    return most;
}

/* The step of n tokens as runs: a prompt's piece leaves a snapshot where its last page ends, since
 * the next prompt may differ behind that. Returns how many. */
static uint32_t state_runs(struct lockstep *ls, size_t n, struct step_run out[2]) {
    size_t end = ls->n_ids + n, at = (end - 1) / KV_PAGE * KV_PAGE;
    out[0] = (struct step_run){.pos = (uint32_t)ls->n_ids, .n_tokens = (uint32_t)n};
    if (!is_recurrent(ls))
        return 1;
    uint32_t from = ls->state, to = from;
    ls->state_ids[from] = ls->n_ids;
    if (ls->at_snapshot)
        to = ls->state = state_to_replace(ls);
    ls->at_snapshot = false;
    out[0].state_from = from;
    out[0].state = to;
    if (at <= ls->n_ids)
        return 1;
    ls->state_ids[to] = end;
    uint32_t snapshot = state_to_replace(ls);
    if (snapshot == from && ls->n_ids != 0) /* still to be read: no snapshot then */
        return 1;
    ls->state_ids[snapshot] = at;
    out[1] = out[0];
    out[0].state = out[1].state_from = snapshot;
    out[0].n_tokens = (uint32_t)(at - ls->n_ids);
    out[1].pos = (uint32_t)at;
    out[1].n_tokens -= out[0].n_tokens;
    return 2;
}

void api_rewind(struct lockstep *ls, size_t n) {
    uint32_t window = ls->in.rank.hp.window;
    if (window != 0 && kv_window_first(window, (uint32_t)n) < ls->window_low)
        n = 0;
    if (is_recurrent(ls))
        n = state_rewind(ls, n);
    if (n == 0)
        ls->window_low = 0;
    ls->n_ids = n;
    ls->n_owed = 0;
}

/* Feeds n <= n_chunk tokens, which may lie where they belong in ls->ids already. */
static enum status try_feed(struct lockstep *ls, const int32_t *ids, size_t n, size_t n_outputs,
                            struct api_rows *sink, struct err *err) {
    TRY(api_check_open(ls, err));
    struct step_run runs[2];
    const uint32_t n_runs = state_runs(ls, n, runs);
    for (size_t i = 0; i < n_outputs; i++)
        ls->outputs[i] = (uint32_t)(n - n_outputs + i);
    const struct step step = {
        .n_tokens = (uint32_t)n,
        .n_runs = n_runs,
        .n_pages = (uint32_t)div_up(ls->n_ids + n, KV_PAGE),
        .n_outputs = (uint32_t)n_outputs,
        .tokens = ids,
        .runs = runs,
        .pages = ls->pages,
        .n_window_pages = lay_window(ls, ls->n_ids, ls->n_ids + n),
        .window_pages = ls->window_pages,
        .outputs = ls->outputs,
    };
    const struct step_sink to = {.rows = sink_rows, .user = sink};
    ls->in_step = true;
    enum status st = rank_lead_step(&ls->in.rank, &step, &to, err);
    ls->in_step = false;
    TRY(instance_explain(&ls->in, st, err));
    memmove(ls->ids + ls->n_ids, ids, n * sizeof *ids);
    ls->n_ids += n;
    return ST_OK;
}

bool api_is_cancelled(struct lockstep *ls) {
    return atomic_load_explicit(&ls->cancelled, memory_order_relaxed);
}

void lockstep_cancel(struct lockstep *ls) {
    atomic_store_explicit(&ls->cancelled, true, memory_order_relaxed);
}

static bool wait_before_trying(void *ls, int ms, const char *why) {
    (void)why;
    for (; ms > 0 && !api_is_cancelled(ls); ms -= 10)
        usleep(10000);
    return !api_is_cancelled(ls);
}

/* Feeds what is owed. */
static enum status restore(struct lockstep *ls, struct err *err) {
    struct api_rows nobody = {.rows = NULL};
    enum status st = ST_OK;
    while (st == ST_OK && ls->n_ids < ls->n_owed && !api_is_cancelled(ls))
        st = try_feed(ls, ls->ids + ls->n_ids,
                      MIN(ls->n_owed - ls->n_ids, (size_t)ls->in.rank.job.n_chunk), 0, &nobody,
                      err);
    if (api_is_cancelled(ls))
        return err_set(err, ST_CANCELLED, "cancelled");
    if (st == ST_OK)
        ls->n_owed = 0;
    return st;
}

/* A rank was lost: opens the model again and feeds the first n tokens, which the cache held.
 * Cancelled, it ends as the call does at any other time. What it does not get done, the next
 * call tries again (resume). */
static enum status recover(struct lockstep *ls, size_t n, struct err *err) {
    const struct recovery how = {.wait = wait_before_trying, .user = ls};
    api_rewind(ls, 0);
    ls->n_owed = n;
    enum status st = instance_recover(&ls->in, &ls->left, &how, err);
    if (st == ST_OK)
        instance_describe(&ls->in);
    if (st != ST_OK && !api_is_cancelled(ls))
        return st;
    return restore(ls, err);
}

enum status api_resume(struct lockstep *ls, struct err *err) {
    enum status st = api_check_open(ls, err);
    if (st == ST_OK)
        st = restore(ls, err);
    bool may = ls->left.opt.failover;
    for (int i = 0; st == ST_PEER_LOST && may && i < RECOVERY_TRIES; i++) {
        st = recover(ls, ls->n_owed, err);
        may = ls->in.rank.model != NULL;
    }
    return st;
}

enum status api_feed(struct lockstep *ls, const int32_t *ids, size_t n, size_t n_outputs,
                     struct api_rows *sink, struct err *err) {
    size_t n_held = ls->n_ids;
    sink->first_pos = n_held + n - n_outputs;
    sink->n_given = 0;
    enum status st = try_feed(ls, ids, n, n_outputs, sink, err);
    /* A request that kills ranks whenever it is computed must not do so for ever. */
    bool may = ls->left.opt.failover;
    for (int i = 0; st == ST_PEER_LOST && may && i < RECOVERY_TRIES; i++) {
        st = recover(ls, n_held, err);
        may = ls->in.rank.model != NULL;
        if (st == ST_OK)
            st = try_feed(ls, ids, n, n_outputs, sink, err);
    }
    return st;
}

void lockstep_reset(struct lockstep *ls) {
    api_rewind(ls, 0);
}

static enum status eval(struct lockstep *ls, const int32_t *ids, size_t n,
                        struct api_rows *sink, struct err *err) {
    TRY(api_check_ids(ls, ids, n, err));
    TRY(api_resume(ls, err));
    if (n > (size_t)ls->in.info.n_ctx - ls->n_ids)
        return err_set_code(err, ST_BAD_INPUT, ERR_PROMPT_TOO_LONG,
                            "%zu tokens after %zu do not fit the context of %d (--ctx)", n,
                            ls->n_ids, ls->in.info.n_ctx);
    for (size_t at = 0; at < n && !sink->stopped;) {
        if (api_is_cancelled(ls))
            return err_set(err, ST_CANCELLED, "cancelled");
        size_t k = MIN(n - at, (size_t)ls->in.rank.job.n_chunk);
        TRY(api_feed(ls, ids + at, k, sink->rows != NULL ? k : 0, sink, err));
        at += k;
    }
    if (sink->stopped) { /* how far beyond its rows a chunk went is not the caller's business */
        api_rewind(ls, sink->first_pos + sink->n_given);
        return err_set(err, ST_CANCELLED, "stopped by the caller");
    }
    return api_is_cancelled(ls) ? err_set(err, ST_CANCELLED, "cancelled") : ST_OK;
}

enum lockstep_status lockstep_eval(struct lockstep *ls, const int32_t *ids, size_t n,
                                   bool (*rows)(void *, size_t, size_t, const float *),
                                   void *user, struct lockstep_error *err_) {
    struct err local, *err = api_err(err_, &local);
    enum status st = api_call_begin(ls, err);
    if (st != ST_OK)
        return api_done(st);
    atomic_store_explicit(&ls->cancelled, false, memory_order_relaxed);
    struct api_rows sink = {.rows = rows, .user = user};
    struct float_env env;
    float_env_begin(&env);
    st = eval(ls, ids, n, &sink, err);
    float_env_end(&env);
    api_call_end(ls);
    return api_done(st);
}
