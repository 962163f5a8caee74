/* engine.c: the engine's thread, and the functions that other threads call.
 *
 * One iteration of the thread: take new requests, end cancelled ones, admit those that fit,
 * make one step. With failover it also continues with other ranks after a loss, or with one
 * more when it is back. If there is nothing to compute, it sleeps between iterations: nothing
 * runs or waits, or all running sequences wait for a mask. It keeps checking that the other
 * ranks are alive. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "engine/dry.h"
#include "engine/engine_internal.h"

#include <math.h>
#include <stdio.h>

#define IDLE_LOOK_MS 200
#define ASK_RANKS_S 1.0
#define MASK_THREADS 2

void engine_config_init(struct engine_config *cfg) {
    *cfg = (struct engine_config){.n_running_max = 64,
                                  .n_queue_max = 256,
                                  .n_step_tokens = 256,
                                  .rejoin_idle_s = 2,
                                  .rejoin_latest_s = 600};
    lockstep_options_init(&cfg->model);
}

void engine_request_init(struct engine_request *r) {
    *r = (struct engine_request){.n_choices = 1, .n_predict = -1};
    engine_sampling_init(&r->sampling);
}

void engine_histogram_add(struct engine_histogram *h, double seconds) {
    size_t i = 0;
    while (i + 1 < ARRAY_LEN(h->bounds) && seconds > h->bounds[i])
        i++;
    h->counts[i]++;
    h->sum += seconds;
    h->n++;
}

static void histogram_init(struct engine_histogram *h) {
    static const double bounds[16] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2,
                                      0.5,   1,     2,     5,    10,   30,   60,  INFINITY};
    memcpy(h->bounds, bounds, sizeof bounds);
}

/* ---- the thread -------------------------------------------------------------------------- */

/* All requests get the reason. */
static void end_all(struct engine *e, enum engine_stop stop, enum status st, const char *why) {
    while (e->requests != NULL)
        request_end(e, e->requests, stop, st, why);
}

static void end_cancelled(struct engine *e) {
    struct engine_request_handle *next;
    for (struct engine_request_handle *req = e->requests; req != NULL; req = next) {
        next = req->next;
        if (atomic_load_explicit(&req->cancelled, memory_order_relaxed))
            request_end(e, req, ENGINE_STOP_CANCELLED, ST_CANCELLED, NULL);
    }
}

/* A request for no tokens is done before it begins. */
static void end_empty(struct engine *e) {
    struct engine_request_handle *next;
    for (struct engine_request_handle *req = e->requests; req != NULL; req = next) {
        next = req->next;
        if (!req->r.embed && req->r.n_predict == 0 && !req->r.prompt_logprobs)
            request_end(e, req, ENGINE_STOP_LENGTH, ST_OK, NULL);
    }
}

static void note_lost(struct engine *e, enum status st, struct err *err) {
    e->lost = instance_explain(&e->in, st, err);
    snprintf(e->stats.why, sizeof e->stats.why, "%s", err->text);
}

void engine_show_reports(struct engine *e, const struct rank_report *reports) {
    for (int i = 0; i < e->in.rank.job.n_ranks; i++)
        e->ranks[i] = (struct engine_rank_stats){
            .compute_s = (double)(reports[i].step_ns - reports[i].fabric_ns) * 1e-9,
            .fabric_s = (double)reports[i].fabric_ns * 1e-9,
            .resident_bytes = reports[i].resident_bytes,
        };
}

/* Every second in which steps are made. */
static void ask_ranks(struct engine *e) {
    struct rank_report reports[PLAN_MAX_RANKS];
    struct err err;
    double now = clock_s();
    if (now - e->asked_s < ASK_RANKS_S || e->lost != ST_OK)
        return;
    e->asked_s = now;
    enum status st = rank_lead_reports(&e->in.rank, reports, &err);
    if (st != ST_OK) {
        note_lost(e, st, &err);
        return;
    }
    pthread_mutex_lock(&e->lock);
    engine_show_reports(e, reports);
    view_go_on(e, reports);
    pthread_mutex_unlock(&e->lock);
}

/* While nothing is computed, which would notice. */
static void look_after_ranks(struct engine *e) {
    struct err err;
    if (e->lost != ST_OK)
        return;
    enum status st = gguf_check_intact(e->in.rank.g, &err);
    if (st == ST_OK && e->in.rank.f != NULL)
        st = fabric_wait(e->in.rank.f, 1, 0, &err);
    if (st == ST_OK || st == ST_AGAIN)
        return;
    note_lost(e, st, &err);
}

/* With e->lock held. */
static void sleep_a_moment(struct engine *e) {
    (void)thread_cond_wait_until(&e->wake, &e->lock, engine_ms_from_now(IDLE_LOOK_MS));
}

static void show_stats(struct engine *e) {
    struct pages_count pages = pages_count(e->pages);
    e->stats.running = (int)e->n_running;
    e->stats.pages_total = pages.total;
    e->stats.pages_used = pages.held;
    e->stats.pages_cached = pages.cached;
    pages = pages_window_count(e->pages);
    e->stats.window_pages_total = pages.total;
    e->stats.window_pages_used = pages.held;
    struct states_count states = {0};
    if (e->states != NULL)
        states = states_count(e->states);
    e->stats.states_total = states.total;
    e->stats.states_used = states.held;
    e->stats.states_kept = states.kept;
    e->stats.healthy = e->lost == ST_OK;
    e->stats.hopeless = e->lost == ST_BAD_INPUT;
    e->shown = e->stats;
    e->n_back = queue_count_back(e);
}

/* A helper thread has made a mask. */
static void on_mask_made(void *user) {
    struct engine *e = user;
    pthread_mutex_lock(&e->lock);
    e->mask_made = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

/* With e->lock held: nothing to compute, and nothing that could have changed that. */
static bool is_idle(const struct engine *e) {
    return (e->requests == NULL || e->rests) && e->inbox == NULL && !e->closing &&
           !e->any_cancelled && !e->mask_made;
}

/* Sleeps until there is something to do; takes in what was submitted. False: closing. */
static bool collect(struct engine *e, bool *any_cancelled) {
    pthread_mutex_lock(&e->lock);
    show_stats(e);
    bool idle = is_idle(e);
    if (idle)
        sleep_a_moment(e);
    e->mask_made = false;
    struct engine_request_handle *req = e->inbox;
    e->inbox = NULL;
    e->inbox_end = &e->inbox;
    *any_cancelled = e->any_cancelled;
    e->any_cancelled = false;
    bool closing = e->closing;
    pthread_mutex_unlock(&e->lock);
    while (req != NULL) {
        struct engine_request_handle *next = req->next;
        queue_put(e, req);
        req = next;
    }
    if (idle && (e->requests == NULL || e->rests))
        look_after_ranks(e);
    return !closing;
}

/* Not if the model is wrong: opening it again would open the same file. */
static void recover_if_lost(struct engine *e) {
    if (e->lost != ST_OK && e->lost != ST_BAD_INPUT && e->left.opt.failover)
        engine_recover(e);
    if (e->lost != ST_OK && e->cfg.on_lost != NULL)
        e->cfg.on_lost(e->stats.why);
}

static void *engine_main(void *arg) {
    struct engine *e = arg;
    bool any_cancelled;
    while (collect(e, &any_cancelled)) {
        engine_look_out(e);
        recover_if_lost(e);
        mem_forbid_begin();
        seq_end_lingering(e);
        if (any_cancelled)
            end_cancelled(e);
        end_empty(e);
        if (e->lost != ST_OK)
            end_all(e, ENGINE_STOP_ERROR, e->lost, e->stats.why);
        queue_admit(e);
        mem_forbid_end();
        e->rests = e->n_running == 0 || !step_once(e);
        if (!e->rests) {
            ask_ranks(e);
            recover_if_lost(e); /* before it shows */
        }
    }
    mem_forbid_begin();
    end_all(e, ENGINE_STOP_CANCELLED, ST_CANCELLED, NULL);
    mem_forbid_end();
    return NULL;
}

/* ---- opening and closing ----------------------------------------------------------------- */

static enum status start_thread(struct engine *e, struct err *err) {
    histogram_init(&e->stats.first_token_s);
    histogram_init(&e->stats.between_tokens_s);
    histogram_init(&e->stats.queue_s);
    show_stats(e);
    if (thread_start(&e->thread, engine_main, e) != 0)
        return err_set(err, ST_NO_MEMORY, "cannot start the engine's thread");
    e->has_thread = true;
    return ST_OK;
}

enum status engine_open(struct engine **out, const struct engine_config *cfg, struct err *err) {
    struct engine *e = mem_calloc(1, sizeof *e);
    if (e == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for an engine");
    e->cfg = *cfg;
    e->inbox_end = &e->inbox;
    pthread_mutex_init(&e->lock, NULL);
    thread_cond_init(&e->wake);
    enum status st = engine_open_parts(e, err);
    if (st == ST_OK)
        st = masks_open(&e->masks, MASK_THREADS, div_up(engine_n_vocab(e), 64), on_mask_made, e,
                        err);
    if (st == ST_OK)
        st = start_thread(e, err);
    if (st != ST_OK) {
        engine_close(e);
        return st;
    }
    *out = e;
    return ST_OK;
}

void engine_close(struct engine *e) {
    if (e == NULL)
        return;
    if (e->has_thread) {
        pthread_mutex_lock(&e->lock);
        e->closing = true;
        pthread_cond_signal(&e->wake);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->thread, NULL);
    }
    masks_close(e->masks);
    seq_end_lingering(e);
    engine_close_parts(e);
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->lock);
    mem_free(e);
}

const struct lockstep_model_info *engine_model_info(const struct engine *e) {
    return &e->in.info;
}

const struct tokenizer *engine_tokenizer(const struct engine *e) {
    return e->in.tokenizer;
}

const struct gguf *engine_gguf(const struct engine *e) {
    return e->in.rank.g;
}

int engine_rank_pid(struct engine *e, int rank) {
    BUG_ON(rank < 0 || rank >= PLAN_MAX_RANKS);
    pthread_mutex_lock(&e->lock);
    int pid = e->pids[rank];
    pthread_mutex_unlock(&e->lock);
    return pid;
}

/* ---- submission, from any thread --------------------------------------------------------- */

/* bound: "" or "at least ", before the number. Clients of other makers look for "prompt is too
 * long" and "maximum context length". */
static enum status check_length(const struct engine *e, const char *bound, size_t n_ids,
                                bool embed, struct err *err) {
    size_t n_ctx = engine_n_ctx(e);
    if (n_ids < n_ctx || (n_ids == n_ctx && embed))
        return ST_OK;
    return err_set_code(err, ST_BAD_INPUT, ERR_PROMPT_TOO_LONG,
                        "the prompt is too long: it has %s%zu tokens, and this model's maximum "
                        "context length is %zu tokens%s",
                        bound, n_ids, n_ctx, embed ? "" : ", the answer included");
}

enum status engine_check_text(const struct engine *e, const char *text, size_t len, bool embed,
                              struct err *err) {
    return check_length(e, "at least ", tokenizer_least_ids(engine_tokenizer(e), text, len),
                        embed, err);
}

static enum status check_prompt(const struct engine *e, const struct engine_request *r,
                                struct err *err) {
    if (r->n_ids == 0)
        return err_set(err, ST_BAD_INPUT, "the prompt is empty");
    TRY(check_length(e, "", r->n_ids, r->embed, err));
    for (size_t i = 0; i < r->n_ids; i++)
        if (r->ids[i] < 0 || (uint32_t)r->ids[i] >= engine_n_vocab(e))
            return err_set(err, ST_BAD_INPUT, "token %d is not in the vocabulary of %u",
                           r->ids[i], engine_n_vocab(e));
    return ST_OK;
}

static enum status check_ends(const struct engine *e, const struct engine_request *r,
                              struct err *err) {
    if (r->n_stop_ids > STOPS_MAX)
        return err_set(err, ST_BAD_INPUT, "%zu stop tokens: expected at most %d", r->n_stop_ids,
                       STOPS_MAX);
    for (size_t i = 0; i < r->n_stop_ids; i++)
        if (r->stop_ids[i] < 0 || (uint32_t)r->stop_ids[i] >= engine_n_vocab(e))
            return err_set(err, ST_BAD_INPUT,
                           "stop token %d is not in the vocabulary of "
                           "%u",
                           r->stop_ids[i], engine_n_vocab(e));
    if (r->min_tokens < 0)
        return err_set(err, ST_BAD_INPUT, "at least %d tokens: expected 0 or more",
                       r->min_tokens);
    if (r->min_tokens > 0 && r->constraint.mask != NULL)
        return err_set(err, ST_UNSUPPORTED,
                       "min_tokens cannot be kept where a grammar or a schema says when the "
                       "answer ends");
    return ST_OK;
}

static enum status check_request(const struct engine *e, const struct engine_request *r,
                                 struct err *err) {
    TRY(check_prompt(e, r, err));
    TRY(sampling_check(&r->sampling, engine_n_vocab(e), err));
    if (r->n_choices < 1 || r->n_choices > CHOICES_MAX)
        return err_set(err, ST_BAD_INPUT, "%d choices: expected 1 to %d", r->n_choices,
                       CHOICES_MAX);
    if (r->embed && r->n_choices != 1)
        return err_set(err, ST_BAD_INPUT, "an embedding has one choice, not %d", r->n_choices);
    BUG_ON(r->embed && r->prompt_logprobs);
    if (r->n_predict < -1)
        return err_set(err, ST_BAD_INPUT, "%d new tokens: expected 0 or more, or -1",
                       r->n_predict);
    if (r->n_top < 0 || r->n_top > TOP_MAX)
        return err_set(err, ST_BAD_INPUT, "the %d most probable tokens: expected 0 to %d",
                       r->n_top, TOP_MAX);
    if (r->n_stops > STOPS_MAX)
        return err_set(err, ST_BAD_INPUT, "%zu stop strings: expected at most %d", r->n_stops,
                       STOPS_MAX);
    for (size_t i = 0; i < r->n_stops; i++) {
        size_t n = strlen(r->stops[i]);
        if (n == 0 || n > STOP_BYTES_MAX)
            return err_set(err, ST_BAD_INPUT, "a stop string of %zu bytes: expected 1 to %d", n,
                           STOP_BYTES_MAX);
    }
    TRY(check_ends(e, r, err));
    if (r->constraint.mask != NULL && r->n_choices > 1 && r->constraint.clone == NULL)
        return err_set(err, ST_BAD_INPUT,
                       "a constraint of several choices must know how to be "
                       "cloned");
    return ST_OK;
}

static void *copy_of(const void *from, size_t n, size_t size) {
    void *to = mem_calloc(n, size);
    if (to != NULL && n > 0)
        memcpy(to, from, n * size);
    return to;
}

static bool copy_stops(struct engine_request_handle *req, const struct engine_request *r) {
    req->stops = mem_calloc(r->n_stops, sizeof *req->stops);
    for (size_t i = 0; req->stops != NULL && i < r->n_stops; i++) {
        req->stops[i] = (struct stop){mem_strdup(r->stops[i]), strlen(r->stops[i])};
        if (req->stops[i].text == NULL)
            return false;
    }
    req->r.stops = NULL; /* the copies have their lengths */
    return req->stops != NULL;
}

/* The stop tokens, and behind them the model's ends, which may not come early either. */
static bool copy_stop_ids(struct engine_request_handle *req, const struct engine_request *r,
                          const struct tokenizer *t) {
    const int32_t *ends;
    size_t n_ends = tokenizer_ends(t, &ends);
    int32_t *ids = mem_calloc(r->n_stop_ids + n_ends + 1, sizeof *ids);
    req->r.stop_ids = ids;
    if (ids == NULL)
        return false;
    for (size_t i = 0; i < r->n_stop_ids; i++)
        ids[i] = r->stop_ids[i];
    for (size_t i = 0; i < n_ends; i++)
        ids[r->n_stop_ids + i] = ends[i];
    req->n_banned = r->n_stop_ids + n_ends;
    return true;
}

static bool find_breakers(struct engine_request_handle *req, const struct engine_request *r,
                          const struct tokenizer *t, uint32_t n_vocab) {
    const struct engine_dry *dry = &r->sampling.dry;
    req->r.sampling.dry.breakers = NULL; /* the bits are a copy */
    if (dry->multiplier == 0)
        return true;
    req->dry_breakers = dry_breakers(t, n_vocab, dry->breakers, dry->n_breakers);
    return req->dry_breakers != NULL;
}

/* All but the constraint, which stays the caller's until nothing can fail any more. */
static bool copy_request(struct engine_request_handle *req, const struct engine_request *r,
                         const struct tokenizer *t, uint32_t n_vocab) {
    req->r = *r;
    req->r.ids = copy_of(r->ids, r->n_ids, sizeof *r->ids);
    req->r.sampling.biases =
        copy_of(r->sampling.biases, r->sampling.n_biases, sizeof *r->sampling.biases);
    bool stops = copy_stop_ids(req, r, t) && find_breakers(req, r, t, n_vocab);
    req->seqs = mem_calloc((size_t)r->n_choices, sizeof *req->seqs);
    req->n_left = r->n_choices;
    if (!copy_stops(req, r) || !stops || req->r.ids == NULL || req->r.sampling.biases == NULL ||
        req->seqs == NULL)
        return false;
    for (int i = 0; i < r->n_choices; i++)
        req->seqs[i] = (struct seq){.req = req, .choice = i};
    return true;
}

/* The first choice has the caller's state, the others clones of it. */
static bool give_constraints(struct engine_request_handle *req) {
    const struct engine_constraint *c = &req->r.constraint;
    if (c->mask == NULL)
        return true;
    for (int i = 1; i < req->r.n_choices; i++) {
        req->seqs[i].constraint = c->clone(c->state);
        if (req->seqs[i].constraint == NULL)
            return false;
    }
    req->seqs[0].constraint = c->state;
    return true;
}

static enum status enqueue(struct engine *e, struct engine_request_handle *req,
                           struct engine_request_handle **handle, struct err *err) {
    enum status st = ST_OK;
    pthread_mutex_lock(&e->lock);
    if (!e->shown.healthy) {
        st = err_set(err, ST_PEER_LOST, "%s", e->shown.why);
    } else if (!req->r.follows && e->n_queued >= e->cfg.n_queue_max) {
        st = err_set(err, ST_AGAIN, "%d %s already", e->n_queued,
                     e->n_queued == 1 ? "request waits" : "requests wait");
    } else {
        req->submitted_s = clock_s();
        *handle = req;
        *e->inbox_end = req;
        e->inbox_end = &req->next;
        e->n_queued += !req->r.follows;
        pthread_cond_signal(&e->wake);
    }
    pthread_mutex_unlock(&e->lock);
    return st;
}

enum status engine_submit(struct engine *e, const struct engine_request *r,
                          struct engine_request_handle **handle, struct err *err) {
    TRY(check_request(e, r, err));
    struct engine_request_handle *req = mem_calloc(1, sizeof *req);
    enum status st = ST_OK;
    if (req == NULL || !copy_request(req, r, e->in.tokenizer, engine_n_vocab(e)) ||
        !give_constraints(req))
        st = err_set(err, ST_NO_MEMORY, "no memory for a request");
    struct engine_request_handle *ignored;
    if (st == ST_OK)
        st = enqueue(e, req, handle != NULL ? handle : &ignored, err);
    if (st != ST_OK && req != NULL) {
        if (req->seqs != NULL)
            req->seqs[0].constraint = NULL; /* still the caller's */
        request_free(req);
    }
    return st;
}

void engine_cancel(struct engine *e, struct engine_request_handle *handle) {
    atomic_store_explicit(&handle->cancelled, true, memory_order_relaxed);
    pthread_mutex_lock(&e->lock);
    e->any_cancelled = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

void engine_stats(struct engine *e, struct engine_stats *out) {
    pthread_mutex_lock(&e->lock);
    *out = e->shown;
    out->queued = e->n_queued + e->n_back;
    pthread_mutex_unlock(&e->lock);
}

void engine_rank_stats(struct engine *e, struct engine_rank_stats *out) {
    pthread_mutex_lock(&e->lock);
    memcpy(out, e->ranks, (size_t)e->in.info.n_ranks * sizeof *out);
    pthread_mutex_unlock(&e->lock);
}
