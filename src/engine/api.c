/* api.c: lockstep.h on top of rank.h: one sequence, whose pages are the cache's in order. Those of
 * layers with a window go round: page i of the sequence is the cache's i mod n. */
#include "base/c_locale.h"
#include "base/clock.h"
#include "base/float_env.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/util.h"
#include "chat/chat.h"
#include "engine/sampler.h"
#include "engine/trace.h"
#include "kernels/roof.h"
#include "lockstep/lockstep.h"
#include "ranks/instance.h"
#include "tokenizer/tokenizer.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

_Static_assert(sizeof(struct lockstep_error) == sizeof(struct err) &&
                   offsetof(struct lockstep_error, code) == offsetof(struct err, code) &&
                   sizeof(int) == sizeof(enum err_code),
               "one layout");
_Static_assert((int)LOCKSTEP_ERROR_PROMPT_TOO_LONG == ERR_PROMPT_TOO_LONG &&
                   (int)LOCKSTEP_ERROR_GRAMMAR_ENDLESS == ERR_GRAMMAR_ENDLESS,
               "one numbering");
_Static_assert((int)LOCKSTEP_AGAIN == ST_AGAIN && (int)LOCKSTEP_IO == ST_IO &&
                   (int)LOCKSTEP_PEER_LOST == ST_PEER_LOST &&
                   (int)LOCKSTEP_CANCELLED == ST_CANCELLED && (int)ST_N == ST_CANCELLED + 1,
               "one numbering");

struct lockstep {
    struct instance in;
    struct membership left;

    /* The sequence: what the cache holds. */
    int32_t *ids; /* [n_ctx] */
    size_t n_ids;
    size_t n_owed;          /* of ids, after a recovery that failed: held before; else 0 */
    uint32_t *pages;        /* [div_up(n_ctx, KV_PAGE)] 0, 1, 2... */
    uint32_t *window_pages; /* [as many]: what a step sees of these */
    uint32_t window_low;    /* pages before this one were overwritten */
    /* Of recurrent layers: the tokens whose state is in each slot, 0: none; which slot has that of
     * n_ids; and whether it is a snapshot, which the next step leaves alone. */
    size_t state_ids[INSTANCE_STATES];
    uint32_t state;
    bool at_snapshot;
    uint32_t *outputs;     /* [n_chunk] */
    atomic_bool cancelled; /* set anywhere, relaxed; taken back when a call begins */

    pid_t owner; /* who opened it: a child of fork() has neither its threads nor its ranks */
    atomic_bool busy; /* a call computes: acquire in call_begin(), release in call_end() */
    bool in_step;     /* of its steps: the ranks compute, and rows() may be called */
};

static enum lockstep_status done(enum status st) {
    return (enum lockstep_status)st;
}

/* A struct lockstep_error is a struct err under its public name. */
static struct err *err_of(struct lockstep_error *err, struct err *local) {
    return err != NULL ? (struct err *)(void *)err : local;
}

/* A recovery may have failed. */
static enum status check_open(const struct lockstep *ls, struct err *err) {
    return ls->in.rank.model != NULL
               ? ST_OK
               : err_set(err, ST_PEER_LOST,
                         "a rank was lost, and the model could not be opened again");
}

static enum status check_owner(const struct lockstep *ls, struct err *err) {
    return ls->owner == getpid()
               ? ST_OK
               : err_set(err, ST_BAD_INPUT,
                         "this model is open in the process %d, not in this child of it",
                         (int)ls->owner);
}

/* Before what computes. */
static enum status call_begin(struct lockstep *ls, struct err *err) {
    TRY(check_owner(ls, err));
    if (!atomic_exchange_explicit(&ls->busy, true, memory_order_acquire))
        return ST_OK;
    return err_set(err, ST_BAD_INPUT,
                   "this model is computing: one call at a time, and none from its callbacks");
}

static void call_end(struct lockstep *ls) {
    atomic_store_explicit(&ls->busy, false, memory_order_release);
}

/* Before what asks the ranks, which they hear between steps. */
static enum status check_ask(const struct lockstep *ls, struct err *err) {
    TRY(check_owner(ls, err));
    if (ls->in_step)
        return err_set(err, ST_BAD_INPUT,
                       "this model is in a step: its ranks cannot be asked before it ends");
    return ST_OK;
}

const char *lockstep_version(void) {
    return LOCKSTEP_VERSION;
}

void lockstep_free(void *p) {
    mem_free(p);
}

void lockstep_options_init(struct lockstep_options *opt) {
    *opt = (struct lockstep_options){.n_ranks = 1};
}

void lockstep_sampling_init(struct lockstep_sampling *s) {
    *s = (struct lockstep_sampling){.temperature = 0.8f,
                                    .top_k = 40,
                                    .top_p = 0.95f,
                                    .min_p = 0.05f,
                                    .repeat_penalty = 1.0f,
                                    .repeat_last_n = 64};
}

void lockstep_request_init(struct lockstep_request *req) {
    *req = (struct lockstep_request){.n_predict = -1};
    lockstep_sampling_init(&req->sampling);
}

/* ---- opening ----------------------------------------------------------------------------- */

static enum status alloc_sequence(struct lockstep *ls, struct err *err) {
    uint32_t n_ctx = ls->in.rank.job.n_ctx, n_pages = (uint32_t)div_up(n_ctx, KV_PAGE);
    ls->ids = mem_calloc(n_ctx, sizeof *ls->ids);
    ls->pages = mem_calloc(n_pages, sizeof *ls->pages);
    ls->window_pages = mem_calloc(n_pages, sizeof *ls->window_pages);
    ls->outputs = mem_calloc(ls->in.rank.job.n_chunk, sizeof *ls->outputs);
    if (ls->ids == NULL || ls->pages == NULL || ls->window_pages == NULL || ls->outputs == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a sequence of %u tokens", n_ctx);
    for (uint32_t i = 0; i < n_pages; i++)
        ls->pages[i] = i;
    return ST_OK;
}

static enum status open_model(struct lockstep *ls, const struct lockstep_options *opt,
                              struct err *err) {
    TRY(membership_init(&ls->left, opt, err));
    TRY(instance_plan(&ls->in, opt, err));
    TRY(instance_start(&ls->in, opt, err));
    return alloc_sequence(ls, err);
}

enum lockstep_status lockstep_open(struct lockstep **out, const struct lockstep_options *opt,
                                   struct lockstep_error *err_) {
    struct err local, *err = err_of(err_, &local);
    struct lockstep *ls = mem_calloc(1, sizeof *ls);
    if (ls == NULL)
        return done(err_set(err, ST_NO_MEMORY, "no memory to open a model"));
    ls->owner = getpid();
    struct float_env env;
    float_env_begin(&env); /* tables are made, and threads started */
    enum status st = open_model(ls, opt, err);
    float_env_end(&env);
    if (st != ST_OK) {
        lockstep_close(ls);
        return done(st);
    }
    *out = ls;
    return LOCKSTEP_OK;
}

enum lockstep_status lockstep_follow(const struct lockstep_options *opt,
                                     struct lockstep_error *err_) {
    struct err local, *err = err_of(err_, &local);
    struct float_env env;
    float_env_begin(&env);
    enum status st = instance_follow(opt, err);
    float_env_end(&env);
    return done(st);
}

void lockstep_close(struct lockstep *ls) {
    if (ls == NULL || ls->owner != getpid())
        return;
    instance_close(&ls->in);
    membership_deinit(&ls->left);
    mem_free(ls->ids);
    mem_free(ls->pages);
    mem_free(ls->window_pages);
    mem_free(ls->outputs);
    mem_free(ls);
}

const struct lockstep_model_info *lockstep_model_info(const struct lockstep *ls) {
    return &ls->in.info;
}

/* What the fields say, for people. */
static void describe_rank(struct lockstep_rank_info *info, int rank, const struct hparams *hp,
                          uint64_t state_bytes) {
    char windows[64] = "", ffn[48] = "", experts[96] = "", states[48] = "";
    if (state_bytes != 0)
        snprintf(states, sizeof states, ", %.1f MB of states", (double)state_bytes * 1e-6);
    if (info->kv_window_bytes != 0)
        snprintf(windows, sizeof windows, " (%.1f of them for windows of %u)",
                 (double)info->kv_window_bytes * 1e-6, hp->window);
    if (hparams_has_dense(hp))
        snprintf(ffn, sizeof ffn, ", FFN %d-%d", info->ffn_begin, info->ffn_end);
    if (hp->moe.n_experts != 0)
        snprintf(experts, sizeof experts, ", columns %d-%d of experts %d-%d",
                 info->expert_ffn_begin, info->expert_ffn_end, info->expert_begin,
                 info->expert_end);
    snprintf(
        info->text, sizeof info->text,
        "rank %d: layers %d-%d, heads %d-%d%s%s, vocabulary %d-%d; %.1f MB of weights, %.1f "
        "MB of KV cache%s%s, resident %.1f MB; %s%s%s",
        rank, info->layer_begin, info->layer_end, info->head_begin, info->head_end, ffn,
        experts, info->vocab_begin, info->vocab_end, (double)info->weight_bytes * 1e-6,
        (double)info->kv_bytes * 1e-6, windows, states, (double)info->resident_bytes * 1e-6,
        info->link, info->rdma_device[0] != '\0' ? " over " : "", info->rdma_device);
}

enum lockstep_status lockstep_rank_info(struct lockstep *ls, int rank,
                                        struct lockstep_rank_info *out,
                                        struct lockstep_error *err_) {
    struct err local, *err = err_of(err_, &local);
    struct rank *r = &ls->in.rank;
    if (rank < 0 || rank >= r->job.n_ranks)
        return done(err_set(err, ST_BAD_INPUT, "there is no rank %d", rank));
    enum status st = check_ask(ls, err);
    if (st == ST_OK)
        st = check_open(ls, err);
    if (st == ST_OK)
        st = instance_explain(&ls->in, rank_lead_reports(r, ls->in.reports, err), err);
    if (st != ST_OK)
        return done(st);
    const struct rank_report *rep = &ls->in.reports[rank];
    const struct share *sh = &r->plan.shares[rank];
    bool dense = hparams_has_dense(&r->hp);
    *out = (struct lockstep_rank_info){
        .pid = (int)rep->pid,
        .layer_begin = (int)sh->layer_begin,
        .layer_end = (int)sh->layer_end,
        .head_begin = (int)sh->head_begin,
        .head_end = (int)sh->head_end,
        .ffn_begin = dense ? (int)sh->ff_begin : 0,
        .ffn_end = dense ? (int)sh->ff_end : 0,
        .expert_begin = (int)sh->expert_begin,
        .expert_end = (int)sh->expert_end,
        .expert_ffn_begin = (int)sh->expert_ff_begin,
        .expert_ffn_end = (int)sh->expert_ff_end,
        .vocab_begin = (int)sh->vocab_begin,
        .vocab_end = (int)sh->vocab_end,
        .weight_bytes = rep->weight_bytes,
        .replicated_bytes = rep->replicated_bytes,
        .kv_bytes = rep->kv_bytes,
        .kv_window_bytes = rep->kv_window_bytes,
        .buffer_bytes = rep->buffer_bytes,
        .resident_bytes = rep->resident_bytes,
    };
    bool self = rank == 0 || r->f == NULL;
    snprintf(out->link, sizeof out->link, "%s", self ? "self" : fabric_link_name(r->f, rank));
    snprintf(out->rdma_device, sizeof out->rdma_device, "%s",
             self ? "" : fabric_link_device(r->f, rank));
    describe_rank(out, rank, &r->hp, rep->state_bytes);
    return LOCKSTEP_OK;
}

/* ---- text -------------------------------------------------------------------------------- */

/* bound: "" or "at least ", before the number. */
static enum status check_room(const struct lockstep *ls, const char *bound, size_t n_ids,
                              struct err *err) {
    if (n_ids < (size_t)ls->in.info.n_ctx)
        return ST_OK;
    return err_set_code(err, ST_BAD_INPUT, ERR_PROMPT_TOO_LONG,
                        "the prompt has %s%zu tokens, but the context holds %d (--ctx) and an "
                        "answer needs room too",
                        bound, n_ids, ls->in.info.n_ctx);
}

enum lockstep_status lockstep_tokenize(struct lockstep *ls, const char *text, size_t len,
                                       bool add_bos, bool special, int32_t **ids, size_t *n_ids,
                                       struct lockstep_error *err_) {
    struct err local, *err = err_of(err_, &local);
    unsigned flags = (add_bos ? TOKENIZE_BOS : 0u) | (special ? TOKENIZE_SPECIAL : 0u);
    return done(tokenize(ls->in.tokenizer, text, len, flags, ids, n_ids, err));
}

enum lockstep_status lockstep_check_text(struct lockstep *ls, const char *text, size_t len,
                                         struct lockstep_error *err_) {
    struct err local, *err = err_of(err_, &local);
    return done(
        check_room(ls, "at least ", tokenizer_least_ids(ls->in.tokenizer, text, len), err));
}

enum lockstep_status lockstep_detokenize(struct lockstep *ls, const int32_t *ids, size_t n,
                                         bool special, char **text, size_t *len,
                                         struct lockstep_error *err_) {
    struct err local, *err = err_of(err_, &local);
    int32_t n_vocab = tokenizer_facts(ls->in.tokenizer)->n_tokens;
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return done(err_set(err, ST_BAD_INPUT, "%d is none of the %d tokens of this model",
                                ids[i], n_vocab));
    return done(detokenize(ls->in.tokenizer, ids, n, special, text, len, err));
}

/* The conversation as OpenAI's messages. */
static enum status messages_json(json_t **out, const struct lockstep_message *messages,
                                 size_t n, struct err *err) {
    json_t *list = json_array();
    enum status st = ST_OK;
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        const struct lockstep_message *m = &messages[i];
        if (m->role == NULL || m->content == NULL)
            st = err_set(err, ST_BAD_INPUT, "message %zu of the conversation has no %s", i,
                         m->role == NULL ? "role" : "content");
        else if (json_array_append_new(list, json_pack("{s:s, s:s}", "role", m->role, "content",
                                                       m->content)) != 0)
            st = err_set(err, ST_BAD_INPUT, "message %zu of the conversation is not UTF-8", i);
    }
    if (st == ST_OK)
        *out = list;
    else
        json_decref(list);
    return st;
}

enum lockstep_status lockstep_chat_prompt(struct lockstep *ls,
                                          const struct lockstep_message *messages, size_t n,
                                          char **text, size_t *len,
                                          struct lockstep_error *err_) {
    struct err local, *err = err_of(err_, &local);
    struct chat *chat = NULL;
    json_t *list = NULL;
    locale_t callers = c_locale_begin(); /* templates have numbers */
    enum status st = messages_json(&list, messages, n, err);
    const struct chat_request request = {.messages = list, .add_generation_prompt = true};
    if (st == ST_OK)
        st = chat_open(&chat, ls->in.tokenizer, NULL, 0, err);
    if (st == ST_OK)
        st = chat_render(chat, &request, text, len, err);
    chat_close(chat);
    json_decref(list);
    c_locale_end(callers);
    return done(st);
}

/* ---- steps ------------------------------------------------------------------------------- */

/* What one step hands to whoever wants the rows. */
struct row_sink {
    bool (*rows)(void *user, size_t first_pos, size_t n, const float *logits);
    void *user;
    size_t first_pos;
    uint32_t n_given; /* rows of this step; those of a step that is made again are known */
    bool stopped;
};

static bool sink_rows(void *user, uint32_t first, uint32_t n, const float *logits) {
    struct row_sink *sink = user;
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

/* The most of the first n tokens whose state there is; the states of more are of no use now. */
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

/* Goes back to the first n positions, or to none if a window's pages before these are gone. */
static void rewind_to(struct lockstep *ls, size_t n) {
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
                            struct row_sink *sink, struct err *err) {
    TRY(check_open(ls, err));
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

static bool is_cancelled(struct lockstep *ls) {
    return atomic_load_explicit(&ls->cancelled, memory_order_relaxed);
}

void lockstep_cancel(struct lockstep *ls) {
    atomic_store_explicit(&ls->cancelled, true, memory_order_relaxed);
}

static bool wait_before_trying(void *ls, int ms, const char *why) {
    (void)why;
    for (; ms > 0 && !is_cancelled(ls); ms -= 10)
        usleep(10000);
    return !is_cancelled(ls);
}

/* Feeds what is owed. */
static enum status restore(struct lockstep *ls, struct err *err) {
    struct row_sink nobody = {.rows = NULL};
    enum status st = ST_OK;
    while (st == ST_OK && ls->n_ids < ls->n_owed && !is_cancelled(ls))
        st = try_feed(ls, ls->ids + ls->n_ids,
                      MIN(ls->n_owed - ls->n_ids, (size_t)ls->in.rank.job.n_chunk), 0, &nobody,
                      err);
    if (is_cancelled(ls))
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
    rewind_to(ls, 0);
    ls->n_owed = n;
    enum status st = instance_recover(&ls->in, &ls->left, &how, err);
    if (st == ST_OK)
        instance_describe(&ls->in);
    if (st != ST_OK && !is_cancelled(ls))
        return st;
    return restore(ls, err);
}

/* Before a call does anything: the model is open, and its cache holds the sequence. */
static enum status resume(struct lockstep *ls, struct err *err) {
    enum status st = check_open(ls, err);
    if (st == ST_OK)
        st = restore(ls, err);
    bool may = ls->left.opt.failover;
    for (int i = 0; st == ST_PEER_LOST && may && i < RECOVERY_TRIES; i++) {
        st = recover(ls, ls->n_owed, err);
        may = ls->in.rank.model != NULL;
    }
    return st;
}

/* Feeds n <= n_chunk tokens; the last n_outputs of them give logits. */
static enum status feed(struct lockstep *ls, const int32_t *ids, size_t n, size_t n_outputs,
                        struct row_sink *sink, struct err *err) {
    size_t n_held = ls->n_ids;
    sink->first_pos = n_held + n - n_outputs;
    sink->n_given = 0;
    enum status st = try_feed(ls, ids, n, n_outputs, sink, err);
    /* Something that kills ranks whenever it is computed must not do so for ever. */
    bool may = ls->left.opt.failover;
    for (int i = 0; st == ST_PEER_LOST && may && i < RECOVERY_TRIES; i++) {
        st = recover(ls, n_held, err);
        may = ls->in.rank.model != NULL;
        if (st == ST_OK)
            st = try_feed(ls, ids, n, n_outputs, sink, err);
    }
    return st;
}

static enum status check_ids(const struct lockstep *ls, const int32_t *ids, size_t n,
                             struct err *err) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= ls->in.info.n_vocab)
            return err_set(err, ST_BAD_INPUT, "token %d is not in the vocabulary of %d", ids[i],
                           ls->in.info.n_vocab);
    return ST_OK;
}

void lockstep_reset(struct lockstep *ls) {
    rewind_to(ls, 0);
}

static enum status eval(struct lockstep *ls, const int32_t *ids, size_t n,
                        struct row_sink *sink, struct err *err) {
    TRY(check_ids(ls, ids, n, err));
    TRY(resume(ls, err));
    if (n > (size_t)ls->in.info.n_ctx - ls->n_ids)
        return err_set_code(err, ST_BAD_INPUT, ERR_PROMPT_TOO_LONG,
                            "%zu tokens after %zu do not fit the context of %d (--ctx)", n,
                            ls->n_ids, ls->in.info.n_ctx);
    for (size_t at = 0; at < n && !sink->stopped;) {
        if (is_cancelled(ls))
            return err_set(err, ST_CANCELLED, "cancelled");
        size_t k = MIN(n - at, (size_t)ls->in.rank.job.n_chunk);
        TRY(feed(ls, ids + at, k, sink->rows != NULL ? k : 0, sink, err));
        at += k;
    }
    if (sink->stopped) { /* how far beyond its rows a chunk went is not the caller's business */
        rewind_to(ls, sink->first_pos + sink->n_given);
        return err_set(err, ST_CANCELLED, "stopped by the caller");
    }
    return is_cancelled(ls) ? err_set(err, ST_CANCELLED, "cancelled") : ST_OK;
}

enum lockstep_status lockstep_eval(struct lockstep *ls, const int32_t *ids, size_t n,
                                   bool (*rows)(void *, size_t, size_t, const float *),
                                   void *user, struct lockstep_error *err_) {
    struct err local, *err = err_of(err_, &local);
    enum status st = call_begin(ls, err);
    if (st != ST_OK)
        return done(st);
    atomic_store_explicit(&ls->cancelled, false, memory_order_relaxed);
    struct row_sink sink = {.rows = rows, .user = user};
    struct float_env env;
    float_env_begin(&env);
    st = eval(ls, ids, n, &sink, err);
    float_env_end(&env);
    call_end(ls);
    return done(st);
}

/* ---- generation -------------------------------------------------------------------------- */

struct generation {
    struct lockstep *ls;
    const struct lockstep_request *req;
    struct engine_sampling sampling;
    struct sampler sampler;
    struct token_stream stream;
    char *text; /* [tokenizer_max_token_bytes] */
    int32_t next;
    struct lockstep_result result;
};

static bool pick_next(void *user, size_t pos, size_t n, const float *logits) {
    struct generation *gen = user;
    BUG_ON(n != 1);
    /* The new token's index is its position: the same wherever the request is resumed. */
    const struct sampler_input in = {.logits = logits,
                                     .history = gen->ls->ids,
                                     .n_history = pos + 1,
                                     .n_prompt = gen->req->n_ids,
                                     .seed = gen->sampling.base.seed};
    gen->next = sampler_next(&gen->sampler, &gen->sampling, &in);
    return true;
}

static size_t common_prefix(const int32_t *a, size_t na, const int32_t *b, size_t nb) {
    size_t n = 0;
    while (n < na && n < nb && a[n] == b[n])
        n++;
    return n;
}

/* Feeds the part of the prompt that the cache does not hold, and picks the first token. */
static enum status feed_prompt(struct generation *gen, struct err *err) {
    struct lockstep *ls = gen->ls;
    const struct lockstep_request *req = gen->req;
    /* The last token is always fed: its logits are wanted. */
    rewind_to(ls, common_prefix(ls->ids, ls->n_ids, req->ids, req->n_ids - 1));
    gen->result.n_cached = ls->n_ids;
    while (ls->n_ids < req->n_ids) {
        if (is_cancelled(ls))
            return ST_CANCELLED;
        size_t k = MIN(req->n_ids - ls->n_ids, (size_t)ls->in.rank.job.n_chunk);
        bool last = ls->n_ids + k == req->n_ids;
        struct row_sink sink = {.rows = pick_next, .user = gen};
        /* The sampler looks back on the whole prompt, this chunk included. */
        memcpy(ls->ids + ls->n_ids, req->ids + ls->n_ids, k * sizeof *req->ids);
        TRY(feed(ls, req->ids + ls->n_ids, k, last ? 1 : 0, &sink, err));
    }
    return ST_OK;
}

/* Hands the new token out. False if the generation ends with it. */
static bool emit(struct generation *gen, int n_predict) {
    struct lockstep *ls = gen->ls;
    const struct lockstep_request *req = gen->req;
    gen->result.n_generated++;
    bool end = tokenizer_is_end(ls->in.tokenizer, gen->next);
    size_t len = 0;
    if (!end)
        len = token_stream_put(&gen->stream, gen->next, gen->text,
                               tokenizer_max_token_bytes(ls->in.tokenizer));
    bool go_on = req->on_token == NULL || req->on_token(req->user, gen->next, gen->text, len);
    if (!go_on)
        gen->result.stop = "cancelled";
    else if (end && !req->ignore_end)
        gen->result.stop = "end";
    else if (n_predict >= 0 && gen->result.n_generated >= (size_t)n_predict)
        gen->result.stop = "length";
    else if (ls->n_ids == (size_t)ls->in.info.n_ctx)
        gen->result.stop = "context";
    else if (is_cancelled(ls))
        gen->result.stop = "cancelled";
    return gen->result.stop == NULL;
}

static enum status begin(struct generation *gen, struct err *err) {
    struct lockstep *ls = gen->ls;
    ls->n_owed = 0; /* it is the prompt that is wanted */
    TRY(resume(ls, err));
    TRY(sampler_init(&gen->sampler, ls->in.rank.kernels, (uint32_t)ls->in.info.n_vocab,
                     (uint32_t)tokenizer_facts(ls->in.tokenizer)->n_text, err));
    gen->text = mem_alloc(tokenizer_max_token_bytes(ls->in.tokenizer));
    if (gen->text == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to generate");
    return feed_prompt(gen, err);
}

static enum status generate(struct generation *gen, struct err *err) {
    double began = clock_s();
    enum status st = gen->req->n_predict == 0 ? ST_OK : begin(gen, err);
    double first = clock_s();
    gen->result.prompt_s = first - began;
    if (gen->req->n_predict == 0)
        gen->result.stop = "length";
    while (st == ST_OK && gen->result.stop == NULL && emit(gen, gen->req->n_predict)) {
        struct row_sink sink = {.rows = pick_next, .user = gen};
        int32_t id = gen->next;
        gen->ls->ids[gen->ls->n_ids] = id;
        st = feed(gen->ls, &id, 1, 1, &sink, err);
    }
    if (st == ST_CANCELLED)
        gen->result.stop = "cancelled";
    gen->result.generate_s = clock_s() - first;
    return st == ST_CANCELLED ? ST_OK : st;
}

enum lockstep_status lockstep_generate(struct lockstep *ls, const struct lockstep_request *req,
                                       struct lockstep_result *result,
                                       struct lockstep_error *err_) {
    struct err local, *err = err_of(err_, &local);
    if (req->n_ids == 0)
        return done(err_set(err, ST_BAD_INPUT, "the prompt is empty"));
    enum status st = check_room(ls, "", req->n_ids, err);
    if (st == ST_OK)
        st = check_ids(ls, req->ids, req->n_ids, err);
    struct generation gen = {.ls = ls, .req = req};
    gen.result.n_prompt = req->n_ids;
    engine_sampling_init(&gen.sampling);
    gen.sampling.base = req->sampling;
    if (st == ST_OK)
        st = sampling_check(&gen.sampling, (uint32_t)ls->in.info.n_vocab, err);
    if (st == ST_OK)
        st = call_begin(ls, err);
    if (st != ST_OK)
        return done(st);
    atomic_store_explicit(&ls->cancelled, false, memory_order_relaxed);
    token_stream_init(&gen.stream, ls->in.tokenizer, false);
    /* What an answer begins with follows other text. */
    gen.stream.started = true;
    struct float_env env;
    float_env_begin(&env);
    st = generate(&gen, err);
    float_env_end(&env);
    call_end(ls);
    sampler_deinit(&gen.sampler);
    mem_free(gen.text);
    if (st == ST_OK && result != NULL)
        *result = gen.result;
    return done(st);
}

void lockstep_times(struct lockstep *ls, struct lockstep_times *out, bool reset) {
    struct model_times t = {0};
    if (ls->in.rank.model != NULL) /* or a recovery failed */
        t = model_times(ls->in.rank.model, reset);
    *out = (struct lockstep_times){
        .compute_s = (double)(t.step_ns - t.fabric_ns) * 1e-9,
        .fabric_s = (double)t.fabric_ns * 1e-9,
        .steps = t.steps,
        .exchanges = t.exchanges,
    };
}

enum lockstep_status lockstep_trace_begin(struct lockstep *ls, struct lockstep_error *err_) {
    struct err local, *err = err_of(err_, &local);
    enum status st = check_ask(ls, err);
    if (st == ST_OK)
        st = check_open(ls, err);
    if (st == ST_OK)
        st = instance_explain(&ls->in, rank_lead_trace_begin(&ls->in.rank, err), err);
    return done(st);
}

enum lockstep_status lockstep_trace_end(struct lockstep *ls, const char *path,
                                        struct lockstep_error *err_) {
    struct err local, *err = err_of(err_, &local);
    struct trace_event *events = NULL;
    size_t n[PLAN_MAX_RANKS];
    if (path == NULL)
        return done(err_set(err, ST_BAD_INPUT, "a trace needs a path to be written to"));
    enum status st = check_ask(ls, err);
    if (st != ST_OK)
        return done(st);
    st = rank_lead_trace_end(&ls->in.rank, &events, n, err);
    if (st == ST_OK)
        st = trace_write(path, events, n, ls->in.rank.job.n_ranks, err);
    mem_free(events);
    return done(instance_explain(&ls->in, st, err));
}

/* Large beside any cache, small beside any model worth measuring. */
#define ROOF_BYTES ((size_t)1 << 30)
#define ROOF_ROUNDS 3

enum lockstep_status lockstep_roofs(struct lockstep *ls, struct lockstep_roofs *out,
                                    struct lockstep_error *err_) {
    struct err local, *err = err_of(err_, &local);
    const struct rank *r = &ls->in.rank;
    struct pool *pool;
    /* Ranks in NUMA domains of their own have roofs of their own, which add up; this thread is
     * in the first's. */
    const size_t n_ranks = (size_t)r->job.n_ranks;
    const size_t n_domains = (size_t)MIN(MAX(r->job.n_local, 1), machine_n_domains());
    enum status st = check_open(ls, err);
    if (st == ST_OK)
        st = pool_open(&pool, (int)div_up(n_ranks, n_domains) * r->job.n_threads, err);
    if (st != ST_OK)
        return done(st);
    enum qtype type = QT_F32;
    (void)qtype_from_name(ls->in.info.type, &type);
    bool f32 = act_kind_for(type) == ACT_F32;
    /* The weights themselves are the best buffer: what decode reads. A share that is too small is
     * replaced by a block of its own. */
    const struct weights *w = model_weights(r->model);
    void *own = w->block_bytes >= ROOF_BYTES / 2 ? NULL : mem_huge_alloc(ROOF_BYTES);
    const void *buf = own != NULL ? own : w->block;
    size_t bytes = own != NULL ? ROOF_BYTES : w->block_bytes;
    if (own != NULL)
        memset(own, 1, ROOF_BYTES);
    *out = (struct lockstep_roofs){
        .read_gbs = (double)n_domains * roof_read_gbs(pool, buf, bytes, ROOF_ROUNDS),
        .peak_gops = (double)n_domains * (f32 ? roof_f32_gops(pool) : roof_int8_gops(pool)),
        .peak_kind = f32 ? "f32" : "int8",
    };
    if (own != NULL)
        mem_huge_free(own, ROOF_BYTES);
    pool_close(pool);
    return LOCKSTEP_OK;
}
