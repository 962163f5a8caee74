/* engine.c: opening, closing, the thread, and what other threads call.
 *
 * The thread's round: take in what was submitted, end what was cancelled, admit who fits, make one
 * step. Between rounds it sleeps if nothing runs or waits, looking every moment whether the
 * other ranks live. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"
#include "engine/engine_internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#define DEFAULT_CONTEXTS 8
#define IDLE_LOOK_MS 200
#define ASK_RANKS_S 1.0

void engine_config_init(struct engine_config *cfg) {
    *cfg =
        (struct engine_config){.n_running_max = 64, .n_queue_max = 256, .n_step_tokens = 256};
    lockstep_options_init(&cfg->model);
}

void engine_sampling_init(struct engine_sampling *s) {
    *s = (struct engine_sampling){.typical_p = 1};
    lockstep_sampling_init(&s->base);
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

/* ---- the thread --------------------------------------------------------------------------------------- */

/* Everybody hears why. */
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
        if (!req->r.embed && req->r.n_predict == 0)
            request_end(e, req, ENGINE_STOP_LENGTH, ST_OK, NULL);
    }
}

static void note_lost(struct engine *e, enum status st, struct err *err) {
    e->lost = instance_explain(&e->in, st, err);
    snprintf(e->stats.why, sizeof e->stats.why, "%s", err->text);
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
    for (int i = 0; i < e->in.info.n_ranks; i++)
        e->ranks[i] = (struct engine_rank_stats){
            .compute_s = (double)(reports[i].step_ns - reports[i].fabric_ns) * 1e-9,
            .fabric_s = (double)reports[i].fabric_ns * 1e-9,
            .resident_bytes = reports[i].resident_bytes,
        };
    pthread_mutex_unlock(&e->lock);
}

static void look_after_ranks(struct engine *e) {
    struct err err;
    if (e->lost != ST_OK || e->in.rank.f == NULL)
        return;
    enum status st = fabric_wait(e->in.rank.f, 1, 0, &err);
    if (st == ST_OK || st == ST_AGAIN)
        return;
    note_lost(e, st, &err);
}

static void sleep_a_moment(struct engine *e) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += IDLE_LOOK_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&e->wake, &e->lock, &until);
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
    e->stats.healthy = e->lost == ST_OK;
    e->shown = e->stats;
    e->shown.queued = e->n_queued;
}

/* Sleeps until there is something to do; takes in what was submitted. False: closing. */
static bool collect(struct engine *e, bool *any_cancelled) {
    pthread_mutex_lock(&e->lock);
    show_stats(e);
    bool idle = e->requests == NULL;
    if (idle && e->inbox == NULL && !e->closing)
        sleep_a_moment(e);
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
    if (idle && e->requests == NULL)
        look_after_ranks(e);
    return !closing;
}

static void *engine_main(void *arg) {
    struct engine *e = arg;
    bool any_cancelled;
    while (collect(e, &any_cancelled)) {
        mem_forbid_begin();
        if (any_cancelled)
            end_cancelled(e);
        end_empty(e);
        if (e->lost != ST_OK)
            end_all(e, ENGINE_STOP_ERROR, e->lost, e->stats.why);
        queue_admit(e);
        mem_forbid_end();
        if (e->n_running > 0) {
            step_once(e);
            ask_ranks(e);
        }
    }
    mem_forbid_begin();
    end_all(e, ENGINE_STOP_CANCELLED, ST_CANCELLED, NULL);
    mem_forbid_end();
    return NULL;
}

/* ---- opening ------------------------------------------------------------------------------------------ */

/* Bytes of one page of each kind, over all layers of all ranks. */
static void page_bytes(const struct instance *in, size_t bytes[KV_KINDS]) {
    const struct plan *plan = &in->rank.plan;
    memset(bytes, 0, KV_KINDS * sizeof *bytes);
    for (int i = 0; i < plan->n_ranks; i++) {
        size_t mine[KV_KINDS];
        model_kv_page_bytes(&in->rank.hp, &plan->shares[i], in->rank.job.kv_type, mine);
        for (int k = 0; k < KV_KINDS; k++)
            bytes[k] += mine[k];
    }
}

/* What the weights leave of this machine's memory, with a fifth for everything else. */
static size_t memory_left(const struct instance *in) {
    long n = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    double weights = 0, all = n > 0 && size > 0 ? (double)n * (double)size : 0;
    for (size_t i = 0; i < gguf_n_tensors(in->rank.g); i++)
        weights += (double)gguf_tensor_at(in->rank.g, i)->size_bytes;
    return (size_t)MAX(0.8 * all - weights, 0.0);
}

/* As many contexts as there is memory for, the last in part: pages of each kind in the proportion in which
 * a long sequence holds them. */
static enum status size_cache(struct engine *e, struct err *err) {
    struct job *job = &e->in.rank.job;
    job->n_chunk = MAX(job->n_chunk, (uint32_t)e->cfg.n_step_tokens);
    job->n_chunk = MAX(job->n_chunk, (uint32_t)e->cfg.n_running_max + 1);
    size_t bytes[KV_KINDS], one[KV_KINDS] = {div_up(job->n_ctx, KV_PAGE)};
    if (engine_window(e) != 0)
        one[KV_WINDOW] = kv_window_pages(engine_window(e), job->n_ctx, job->n_chunk);
    e->n_window_most = (uint32_t)one[KV_WINDOW];
    page_bytes(&e->in, bytes);
    size_t least = one[KV_WHOLE] * bytes[KV_WHOLE] + one[KV_WINDOW] * bytes[KV_WINDOW];
    size_t memory = e->cfg.kv_memory_bytes;
    if (memory == 0)
        memory = MAX(least, MIN(DEFAULT_CONTEXTS * least, memory_left(&e->in)));
    if (memory < least)
        return err_set(err, ST_BAD_INPUT,
                       "a KV cache of %.1f MB is too small: one request's context of %u tokens "
                       "needs %.1f MB",
                       (double)memory * 1e-6, job->n_ctx, (double)least * 1e-6);
    for (int k = 0; k < KV_KINDS; k++) {
        size_t n = memory / least * one[k] + memory % least * one[k] / least;
        job->n_pages[k] = (uint32_t)MIN(n, (size_t)INT32_MAX);
    }
    job->n_runs = (uint32_t)e->cfg.n_running_max;
    return ST_OK;
}

/* An f32 of attention takes about as long as so many of the weights' products in int8. */
#define ATTN_PRICE 2.0

/* Multiplications of one token in the layers' weights. */
static double layer_products(const struct instance *in) {
    const struct moe_params *moe = &in->rank.hp.moe;
    double n = 0;
    for (size_t i = 0; i < gguf_n_tensors(in->rank.g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(in->rank.g, i);
        double all = (double)t->dims[0] * (double)t->dims[1] * (double)t->dims[2];
        bool of_experts = t->dims[2] > 1 && t->dims[2] == moe->n_experts;
        if (str_starts(t->name, "blk."))
            n += of_experts ? all * moe->n_used / moe->n_experts : all;
    }
    return n;
}

/* What a position that a token sees adds to its work. */
static void open_pace(struct engine *e) {
    const struct hparams *hp = &e->in.rank.hp;
    double one = hp->n_heads * ((double)hp->head_dim + hp->v_dim) / layer_products(&e->in);
    uint32_t n_window = 0;
    for (uint32_t i = 0; i < hp->n_layers; i++)
        n_window += hparams_layer_window(hp, i) != 0;
    pace_init(&e->pace, ATTN_PRICE * one * (hp->n_layers - n_window),
              ATTN_PRICE * one * n_window, hp->window);
}

static bool alloc_slot(const struct engine *e, struct slot *slot) {
    uint32_t n_ctx = engine_n_ctx(e);
    slot->ids = mem_calloc(n_ctx + 1 + GUESSES_MAX, sizeof *slot->ids);
    slot->pages = mem_calloc(div_up(n_ctx, KV_PAGE), sizeof *slot->pages);
    if (engine_window(e) != 0)
        slot->window_pages = mem_calloc(div_up(n_ctx, KV_PAGE), sizeof *slot->window_pages);
    slot->mask = mem_calloc(div_up(engine_n_vocab(e), 64), sizeof *slot->mask);
    slot->held = mem_alloc(e->held_cap);
    slot->sum = mem_calloc(e->in.rank.hp.n_embd, sizeof *slot->sum);
    return slot->ids != NULL && slot->pages != NULL &&
           (engine_window(e) == 0 || slot->window_pages != NULL) && slot->mask != NULL &&
           slot->held != NULL && slot->sum != NULL;
}

static bool alloc_slots(struct engine *e) {
    e->n_slots = (size_t)e->cfg.n_running_max;
    /* A stop string may have begun, the next token's text and the stream's rest come on top. */
    e->held_cap = STOP_BYTES_MAX + tokenizer_max_token_bytes(e->in.tokenizer) + 16;
    e->slots = mem_calloc(e->n_slots, sizeof *e->slots);
    e->running = mem_calloc(e->n_slots, sizeof *e->running);
    if (e->slots == NULL || e->running == NULL)
        return false;
    for (size_t i = e->n_slots; i-- > 0;) {
        if (!alloc_slot(e, &e->slots[i]))
            return false;
        e->slots[i].next_free = e->free_slot;
        e->free_slot = &e->slots[i];
    }
    return true;
}

static bool alloc_step(struct engine *e) {
    size_t n = engine_n_chunk(e);
    e->tokens = mem_calloc(n, sizeof *e->tokens);
    e->runs = mem_calloc(e->n_slots, sizeof *e->runs);
    size_t n_pages = e->n_slots * div_up(engine_n_ctx(e), KV_PAGE);
    e->page_table = mem_calloc(n_pages, sizeof *e->page_table);
    e->window_table = mem_calloc(n_pages, sizeof *e->window_table);
    e->outputs = mem_calloc(n, sizeof *e->outputs);
    e->rows = mem_calloc(n, sizeof *e->rows);
    e->embedding = mem_calloc(e->in.rank.hp.n_embd, sizeof *e->embedding);
    e->step = (struct step){.tokens = e->tokens,
                            .runs = e->runs,
                            .pages = e->page_table,
                            .window_pages = e->window_table,
                            .outputs = e->outputs};
    return e->tokens != NULL && e->runs != NULL && e->page_table != NULL &&
           e->window_table != NULL && e->outputs != NULL && e->rows != NULL &&
           e->embedding != NULL;
}

static enum status open_samplers(struct engine *e, struct err *err) {
    int n = e->in.info.n_threads;
    e->samplers = mem_calloc((size_t)n, sizeof *e->samplers);
    if (e->samplers == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for samplers");
    for (int i = 0; i < n; i++)
        TRY(sampler_init(&e->samplers[i], e->in.rank.kernels, engine_n_vocab(e),
                         (uint32_t)tokenizer_facts(e->in.tokenizer)->n_text, err));
    return ST_OK;
}

static enum status check_config(const struct engine_config *cfg, struct err *err) {
    if (cfg->n_running_max < 1 || cfg->n_running_max > 4096)
        return err_set(err, ST_BAD_INPUT, "%d running requests: expected 1 to 4096",
                       cfg->n_running_max);
    if (cfg->n_queue_max < 1 || cfg->n_queue_max > 1 << 20)
        return err_set(err, ST_BAD_INPUT, "%d waiting requests: expected 1 to %d",
                       cfg->n_queue_max, 1 << 20);
    if (cfg->n_step_tokens < 1 || cfg->n_step_tokens > 1 << 16)
        return err_set(err, ST_BAD_INPUT, "%d tokens in a step: expected 1 to %d",
                       cfg->n_step_tokens, 1 << 16);
    return ST_OK;
}

static enum status open_all(struct engine *e, struct err *err) {
    TRY(check_config(&e->cfg, err));
    TRY(instance_plan(&e->in, &e->cfg.model, err));
    TRY(size_cache(e, err));
    TRY(instance_start(&e->in, &e->cfg.model, err));
    const uint32_t *n_pages = e->in.rank.job.n_pages;
    TRY(pages_open(&e->pages, n_pages[KV_WHOLE], n_pages[KV_WINDOW], !e->cfg.no_prefix_cache,
                   err));
    if (!alloc_slots(e) || !alloc_step(e))
        return err_set(err, ST_NO_MEMORY, "no memory for %d running requests",
                       e->cfg.n_running_max);
    TRY(open_samplers(e, err));
    open_pace(e);
    histogram_init(&e->stats.first_token_s);
    histogram_init(&e->stats.between_tokens_s);
    histogram_init(&e->stats.queue_s);
    show_stats(e);
    if (pthread_create(&e->thread, NULL, engine_main, e) != 0)
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
    pthread_cond_init(&e->wake, NULL);
    enum status st = open_all(e, err);
    if (st != ST_OK) {
        engine_close(e);
        return st;
    }
    *out = e;
    return ST_OK;
}

static void free_slots(struct engine *e) {
    for (size_t i = 0; e->slots != NULL && i < e->n_slots; i++) {
        struct slot *slot = &e->slots[i];
        mem_free(slot->ids);
        mem_free(slot->pages);
        mem_free(slot->window_pages);
        mem_free(slot->mask);
        mem_free(slot->held);
        mem_free(slot->sum);
    }
    mem_free(e->slots);
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
    for (int i = 0; e->samplers != NULL && i < e->in.info.n_threads; i++)
        sampler_deinit(&e->samplers[i]);
    mem_free(e->samplers);
    free_slots(e);
    mem_free(e->running);
    mem_free(e->tokens);
    mem_free(e->runs);
    mem_free(e->page_table);
    mem_free(e->window_table);
    mem_free(e->outputs);
    mem_free(e->rows);
    mem_free(e->embedding);
    pages_close(e->pages);
    instance_close(&e->in);
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

int engine_rank_pid(const struct engine *e, int rank) {
    BUG_ON(rank < 0 || rank >= e->in.info.n_ranks);
    return (int)e->in.reports[rank].pid;
}

/* ---- submission, from any thread ------------------------------------------------------------------------- */

static enum status check_prompt(const struct engine *e, const struct engine_request *r,
                                struct err *err) {
    size_t n_ctx = engine_n_ctx(e);
    if (r->n_ids == 0)
        return err_set(err, ST_BAD_INPUT, "the prompt is empty");
    if (r->n_ids > n_ctx || (r->n_ids == n_ctx && !r->embed))
        return err_set(err, ST_BAD_INPUT,
                       ENGINE_TOO_LONG
                       ": it has %zu tokens, and this model's maximum context length "
                       "is %zu tokens%s",
                       r->n_ids, n_ctx, r->embed ? "" : ", the answer included");
    for (size_t i = 0; i < r->n_ids; i++)
        if (r->ids[i] < 0 || (uint32_t)r->ids[i] >= engine_n_vocab(e))
            return err_set(err, ST_BAD_INPUT, "token %d is not in the vocabulary of %u",
                           r->ids[i], engine_n_vocab(e));
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

/* All but the constraint, which stays the caller's until nothing can fail any more. */
static bool copy_request(struct engine_request_handle *req, const struct engine_request *r) {
    req->r = *r;
    req->r.ids = copy_of(r->ids, r->n_ids, sizeof *r->ids);
    req->r.sampling.biases =
        copy_of(r->sampling.biases, r->sampling.n_biases, sizeof *r->sampling.biases);
    req->seqs = mem_calloc((size_t)r->n_choices, sizeof *req->seqs);
    req->n_left = r->n_choices;
    if (!copy_stops(req, r) || req->r.ids == NULL || req->r.sampling.biases == NULL ||
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
    } else if (e->n_queued >= e->cfg.n_queue_max) {
        st = err_set(err, ST_AGAIN, "%d requests wait already", e->n_queued);
    } else {
        req->submitted_s = clock_s();
        *handle = req;
        *e->inbox_end = req;
        e->inbox_end = &req->next;
        e->n_queued++;
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
    if (req == NULL || !copy_request(req, r) || !give_constraints(req))
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
    out->queued = e->n_queued;
    pthread_mutex_unlock(&e->lock);
}

void engine_rank_stats(struct engine *e, struct engine_rank_stats *out) {
    pthread_mutex_lock(&e->lock);
    memcpy(out, e->ranks, (size_t)e->in.info.n_ranks * sizeof *out);
    pthread_mutex_unlock(&e->lock);
}
