/* engine_open.c: opening, and opening again after a rank was lost or is back.
 *
 * The data of requests (slots, tokens, texts, constraints) does not depend on the ranks and
 * stays. Opening again puts running sequences back into the queue, as if there were no pages.
 * It gives the engine another instance, another cache, samplers for its threads and a new
 * estimate of how long steps take. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "engine/engine_internal.h"
#include "weights/recurrent_layout.h"

#include <stdio.h>

#define DEFAULT_CONTEXTS 8

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
    double all = (double)mem_total();
    struct gguf_totals weights;
    gguf_totals(in->rank.g, &weights);
    return (size_t)MAX(0.8 * all - (double)weights.n_bytes, 0.0);
}

/* Bytes of one state, over all ranks. */
static size_t state_bytes(const struct instance *in) {
    size_t n = 0;
    for (int i = 0; i < in->rank.plan.n_ranks; i++)
        n += recurrent_state_bytes(&in->rank.hp, &in->rank.plan.shares[i]);
    return n;
}

/* Of a context: its own, and the snapshots that a request leaves (engine_states.c). */
#define STATES_PER_CONTEXT 3
/* Small states: as many as fit this part of the memory. */
#define STATES_PART 8

/* The number of state slots, of `one` bytes each, for this many contexts within this much
 * memory. */
static uint32_t count_states(const struct engine *e, size_t one, size_t n_contexts,
                             size_t memory) {
    size_t most = (size_t)STATES_PER_CONTEXT * (size_t)e->cfg.n_running_max;
    if (one == 0)
        return 0;
    return (uint32_t)MIN(MAX(STATES_PER_CONTEXT * n_contexts, memory / STATES_PART / one),
                         most);
}

/* As many contexts as there is memory for, the last in part: pages of each kind in the
 * proportion in which a long sequence holds them. */
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
    const size_t state = state_bytes(&e->in);
    least += STATES_PER_CONTEXT * state;
    size_t memory = e->cfg.kv_memory_bytes;
    if (memory == 0)
        memory = MAX(least, MIN(DEFAULT_CONTEXTS * least, memory_left(&e->in)));
    if (memory < least)
        return err_set(err, ST_BAD_INPUT,
                       "a KV cache of %.3g MB is too small: one request's context of %u tokens "
                       "needs %.1f MB",
                       (double)memory * 1e-6, job->n_ctx, (double)least * 1e-6);
    for (int k = 0; k < KV_KINDS; k++) {
        size_t n = memory / least * one[k] + memory % least * one[k] / least;
        job->n_pages[k] = (uint32_t)MIN(n, (size_t)INT32_MAX);
    }
    job->n_states = count_states(e, state, MAX(memory / least, (size_t)1), memory);
    job->n_runs = (uint32_t)e->cfg.n_running_max * (state != 0 ? ENGINE_RUNS : 1);
    return ST_OK;
}

/* An f32 operation of attention takes about as long as this many int8 products of weights. */
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

/* Multiplications for each position of the context in a layer that makes keys of blocks of them:
 * with a key of a large block, or of an indexer with that of a small one. */
static double compressed_work(const struct hparams *hp, uint32_t layer, double one) {
    const struct compress_params *c = &hp->compress;
    const uint32_t ratio = c->n_groups != 0 ? c->ratios[layer] : 0;
    const double key = ratio == COMPRESS_FINE ? (double)c->n_heads * c->k_dim : one;
    return ratio != 0 ? key / ratio : 0;
}

/* What a position that a token sees adds to its work. */
static void open_step_cost(struct engine *e) {
    const struct hparams *hp = &e->in.rank.hp;
    double whole = 0, windowed = 0;
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        const struct attn_kind *kind = hparams_attn(hp, i);
        double one = kind->n_heads * ((double)kind->head_dim + kind->v_dim);
        if (hparams_layer_has_attention(hp, i))
            *(kind->window != 0 ? &windowed : &whole) += one;
        whole += compressed_work(hp, i, one);
    }
    double price = ATTN_PRICE / layer_products(&e->in);
    step_cost_init(&e->step_cost, price * whole, price * windowed, hp->window);
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
    e->runs = mem_calloc(ENGINE_RUNS * e->n_slots, sizeof *e->runs);
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

/* ---- samplers, one a thread -------------------------------------------------------------- */

static void close_samplers(struct engine *e) {
    for (int i = 0; i < e->n_samplers; i++)
        sampler_deinit(&e->samplers[i]);
    mem_free(e->samplers);
    e->samplers = NULL;
    e->n_samplers = 0;
}

static enum status open_samplers(struct engine *e, struct err *err) {
    int n = e->in.rank.job.n_threads;
    e->samplers = mem_calloc((size_t)n, sizeof *e->samplers);
    if (e->samplers == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for samplers");
    for (; e->n_samplers < n; e->n_samplers++)
        TRY(sampler_init(&e->samplers[e->n_samplers], e->in.rank.kernels, engine_n_vocab(e),
                         (uint32_t)tokenizer_facts(e->in.tokenizer)->n_text, err));
    return ST_OK;
}

/* ---- opening ----------------------------------------------------------------------------- */

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

static enum status open_pages(struct engine *e, struct err *err) {
    const uint32_t *n_pages = e->in.rank.job.n_pages;
    struct pages *fresh;
    TRY(pages_open(&fresh, n_pages[KV_WHOLE], n_pages[KV_WINDOW], !e->cfg.no_prefix_cache,
                   err));
    states_close(e->states);
    pages_close(e->pages);
    e->states = NULL;
    e->pages = fresh;
    if (e->in.rank.job.n_states == 0)
        return ST_OK;
    return states_open(&e->states, e->in.rank.job.n_states, fresh, n_pages[KV_WHOLE], err);
}

/* What others see of the ranks. */
static void show_ranks(struct engine *e) {
    pthread_mutex_lock(&e->lock);
    memset(e->ranks, 0, sizeof e->ranks);
    engine_show_reports(e, e->in.reports);
    view_begin(e, e->in.reports);
    for (int i = 0; i < PLAN_MAX_RANKS; i++)
        e->pids[i] = i < e->in.rank.job.n_ranks ? (int)e->in.reports[i].pid : 0;
    pthread_mutex_unlock(&e->lock);
    e->stats.n_ranks = e->in.rank.job.n_ranks;
    snprintf(e->stats.left_out, sizeof e->stats.left_out, "%s", e->left.left_out);
}

enum status engine_open_parts(struct engine *e, struct err *err) {
    TRY(check_config(&e->cfg, err));
    if ((e->view = mem_calloc(1, sizeof *e->view)) == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for an engine");
    TRY(membership_init(&e->left, &e->cfg.model, err));
    rejoin_init(&e->rejoin, e->cfg.rejoin_idle_s, e->cfg.rejoin_latest_s);
    TRY(instance_plan(&e->in, &e->cfg.model, err));
    TRY(size_cache(e, err));
    TRY(instance_start(&e->in, &e->cfg.model, err));
    TRY(open_pages(e, err));
    if (!alloc_slots(e) || !alloc_step(e))
        return err_set(err, ST_NO_MEMORY, "no memory for %d running requests",
                       e->cfg.n_running_max);
    TRY(open_samplers(e, err));
    open_step_cost(e);
    show_ranks(e);
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

void engine_close_parts(struct engine *e) {
    engine_stop_asking(e);
    close_samplers(e);
    free_slots(e);
    mem_free(e->running);
    mem_free(e->tokens);
    mem_free(e->runs);
    mem_free(e->page_table);
    mem_free(e->window_table);
    mem_free(e->outputs);
    mem_free(e->rows);
    mem_free(e->embedding);
    states_close(e->states);
    pages_close(e->pages);
    mem_free(e->view);
    instance_close(&e->in);
    membership_deinit(&e->left);
}

/* ---- opening again ----------------------------------------------------------------------- */

static enum status size_again(void *e, struct err *err) {
    return size_cache(e, err);
}

static void show_recovering(struct engine *e, const char *why) {
    pthread_mutex_lock(&e->lock);
    e->shown.recovering = true;
    e->shown.running = 0;
    e->n_back = queue_count_back(e);
    snprintf(e->shown.why, sizeof e->shown.why, "%s", why);
    pthread_mutex_unlock(&e->lock);
}

/* False: the engine is to close. */
static bool wait_before_trying(void *arg, int ms, const char *why) {
    struct engine *e = arg;
    uint64_t until_ns = engine_ms_from_now(ms);
    show_recovering(e, why);
    pthread_mutex_lock(&e->lock);
    while (!e->closing && thread_cond_wait_until(&e->wake, &e->lock, until_ns))
        continue;
    bool closing = e->closing;
    pthread_mutex_unlock(&e->lock);
    return !closing;
}

/* What goes with an instance. */
static enum status renew_rest(struct engine *e, struct err *err) {
    TRY(open_pages(e, err));
    close_samplers(e);
    TRY(open_samplers(e, err));
    open_step_cost(e);
    show_ranks(e);
    return ST_OK;
}

typedef enum status open_again_fn(struct instance *in, struct membership *left,
                                  const struct recovery *how, struct err *err);

static enum status open_again(struct engine *e, open_again_fn *open, struct err *err) {
    const struct recovery how = {.size = size_again, .wait = wait_before_trying, .user = e};
    double began = clock_s();
    TRY(open(&e->in, &e->left, &how, err));
    TRY(renew_rest(e, err));
    e->formed_s = clock_s();
    e->forming_s = e->formed_s - began;
    return ST_OK;
}

/* Some requests may kill ranks whenever they are computed, and some ranks may never live for
 * long. Neither must restart for ever. While there are requests, only results count as success,
 * since a request may kill slowly. Without requests there are no results. Then ranks count as
 * successful if they lived longer than the model had taken to open. */
static bool is_fruitless(struct engine *e) {
    bool at_rest = e->requests == NULL;
    if (e->n_given != e->n_given_at_loss || (at_rest && clock_s() - e->formed_s > e->forming_s))
        e->n_fruitless = 0;
    e->n_given_at_loss = e->n_given;
    return ++e->n_fruitless > RECOVERY_TRIES;
}

static void put_all_back(struct engine *e, const char *why) {
    while (e->n_running > 0)
        queue_put_back(e, e->running[e->n_running - 1]);
    show_recovering(e, why);
}

static void tell_lost(struct engine *e) {
    uint64_t lost = instance_lost_ranks(&e->in);
    char host[128] = "";
    for (int i = 0; i < e->view->n_ranks && host[0] == '\0'; i++)
        if (lost >> i & 1)
            snprintf(host, sizeof host, "%s", e->view->ranks[i].host);
    char *colon = strrchr(host, ':');
    if (colon != NULL && (colon == strchr(host, ':') || colon[-1] == ']'))
        *colon = '\0';
    for (const struct engine_request_handle *req = e->requests; req != NULL; req = req->next)
        if (req->r.on_lost != NULL)
            req->r.on_lost(req->r.user, host);
}

static void give_up(struct engine *e, const struct err *err) {
    snprintf(e->stats.why, sizeof e->stats.why, "%s", err->text);
    e->left.opt.failover = false;
}

void engine_recover(struct engine *e) {
    struct err err;
    snprintf(err.text, sizeof err.text, "%s", e->stats.why);
    put_all_back(e, e->stats.why);
    bool tries = !is_fruitless(e);
    if (tries)
        tell_lost(e);
    if (tries)
        e->lost = open_again(e, instance_recover, &err);
    if (e->lost == ST_OK)
        e->stats.recoveries++;
    else
        give_up(e, &err);
}

void engine_reopen(struct engine *e, const char *why) {
    struct err err;
    uint64_t machines_out = e->left.machines_out;
    put_all_back(e, why);
    e->n_fruitless = 0;
    e->lost = open_again(e, instance_reopen, &err);
    if (e->lost != ST_OK)
        give_up(e, &err);
    else if (e->left.machines_out == machines_out)
        e->stats.rejoins++;
    else
        e->stats.recoveries++;
}
