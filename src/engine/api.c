/* api.c: lockstep.h on top of the ranks: opens and closes a model, describes it, and checks
 * which calls are allowed when. api_text.c, api_sequence.c, api_generate.c and api_measure.c
 * have the rest. */
#include "base/float_env.h"
#include "base/mem.h"
#include "base/util.h"
#include "engine/api_impl.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

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

enum lockstep_status api_done(enum status st) {
    return (enum lockstep_status)st;
}

struct err *api_err(struct lockstep_error *err, struct err *local) {
    return err != NULL ? (struct err *)(void *)err : local;
}

enum status api_check_open(const struct lockstep *ls, struct err *err) {
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

enum status api_call_begin(struct lockstep *ls, struct err *err) {
    TRY(check_owner(ls, err));
    if (!atomic_exchange_explicit(&ls->busy, true, memory_order_acquire))
        return ST_OK;
    return err_set(err, ST_BAD_INPUT,
                   "this model is computing: one call at a time, and none from its callbacks");
}

void api_call_end(struct lockstep *ls) {
    atomic_store_explicit(&ls->busy, false, memory_order_release);
}

enum status api_check_ask(const struct lockstep *ls, struct err *err) {
    TRY(check_owner(ls, err));
    if (ls->in_step)
        return err_set(err, ST_BAD_INPUT,
                       "this model is in a step: its ranks cannot be asked before it ends");
    return ST_OK;
}

enum status api_check_ids(const struct lockstep *ls, const int32_t *ids, size_t n,
                          struct err *err) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= ls->in.info.n_vocab)
            return err_set(err, ST_BAD_INPUT, "token %d is not in the vocabulary of %d", ids[i],
                           ls->in.info.n_vocab);
    return ST_OK;
}

enum status api_check_room(const struct lockstep *ls, const char *bound, size_t n_ids,
                           struct err *err) {
    if (n_ids < (size_t)ls->in.info.n_ctx)
        return ST_OK;
    return err_set_code(err, ST_BAD_INPUT, ERR_PROMPT_TOO_LONG,
                        "the prompt has %s%zu tokens, but the context holds %d (--ctx) and an "
                        "answer needs room too",
                        bound, n_ids, ls->in.info.n_ctx);
}

const char *lockstep_version(void) {
    return LOCKSTEP_VERSION;
}

void lockstep_free(void *p) {
    mem_free(p);
}

/* ---- structs of callers that know fewer or more fields -------------------------------------- */

/* More than any version of a struct will ever have: then size was never set. */
#define STRUCT_MAX 65536

void api_give_defaults(void *theirs, size_t size, const void *ours, size_t ours_size) {
    memset(theirs, 0, size);
    memcpy(theirs, ours, MIN(size, ours_size));
    memcpy(theirs, &size, sizeof size);
}

enum status api_take(void *ours, size_t ours_size, const void *theirs, const char *name,
                     struct err *err) {
    const unsigned char *bytes = theirs;
    size_t size;
    memcpy(&size, theirs, sizeof size);
    if (size <= sizeof size || size > STRUCT_MAX)
        return err_set(err, ST_BAD_INPUT, "struct lockstep_%s: call lockstep_%s_init() first",
                       name, name);
    for (size_t i = ours_size; i < size; i++)
        if (bytes[i] != 0)
            return err_set(err, ST_BAD_INPUT,
                           "struct lockstep_%s has a field that this library, version %s, does "
                           "not know",
                           name, LOCKSTEP_VERSION);
    memcpy(ours, theirs, MIN(size, ours_size));
    memcpy(ours, &ours_size, sizeof ours_size);
    return ST_OK;
}

static const struct lockstep_options default_options = {.n_ranks = 1};

void lockstep_options_defaults(struct lockstep_options *opt, size_t size) {
    api_give_defaults(opt, size, &default_options, sizeof default_options);
}

static enum status take_options(struct lockstep_options *opt,
                                const struct lockstep_options *theirs, struct err *err) {
    *opt = default_options;
    return api_take(opt, sizeof *opt, theirs, "options", err);
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

enum lockstep_status lockstep_open(struct lockstep **out, const struct lockstep_options *theirs,
                                   struct lockstep_error *err_) {
    struct err local, *err = api_err(err_, &local);
    struct lockstep *ls = mem_calloc(1, sizeof *ls);
    if (ls == NULL)
        return api_done(err_set(err, ST_NO_MEMORY, "no memory to open a model"));
    ls->owner = getpid();
    struct float_env env;
    float_env_begin(&env); /* tables are made, and threads started */
    struct lockstep_options opt;
    enum status st = take_options(&opt, theirs, err);
    if (st == ST_OK)
        st = open_model(ls, &opt, err);
    float_env_end(&env);
    if (st != ST_OK) {
        lockstep_close(ls);
        return api_done(st);
    }
    *out = ls;
    return LOCKSTEP_OK;
}

enum lockstep_status lockstep_follow(const struct lockstep_options *theirs,
                                     struct lockstep_error *err_) {
    struct err local, *err = api_err(err_, &local);
    struct float_env env;
    float_env_begin(&env);
    struct lockstep_options opt;
    enum status st = take_options(&opt, theirs, err);
    if (st == ST_OK)
        st = instance_follow(&opt, err);
    float_env_end(&env);
    return api_done(st);
}

void lockstep_close(struct lockstep *ls) {
    if (ls == NULL || ls->owner != getpid())
        return;
    token_trie_close(ls->trie);
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
    struct err local, *err = api_err(err_, &local);
    struct rank *r = &ls->in.rank;
    if (rank < 0 || rank >= r->job.n_ranks)
        return api_done(err_set(err, ST_BAD_INPUT, "there is no rank %d", rank));
    enum status st = api_check_ask(ls, err);
    if (st == ST_OK)
        st = api_check_open(ls, err);
    if (st == ST_OK)
        st = instance_explain(&ls->in, rank_lead_reports(r, ls->in.reports, err), err);
    if (st != ST_OK)
        return api_done(st);
    const struct rank_report *rep = &ls->in.reports[rank];
    const struct share *sh = &r->plan.shares[rank];
    bool dense = hparams_has_dense(&r->hp);
    *out = (struct lockstep_rank_info){
        .pid = (int)rep->pid,
        .layer_begin = (int)sh->layer_begin,
        .layer_end = (int)sh->layer_end,
        .head_begin = (int)sh->heads[0].begin,
        .head_end = (int)sh->heads[0].end,
        .ffn_begin = dense ? (int)sh->ff[0].begin : 0,
        .ffn_end = dense ? (int)sh->ff[0].end : 0,
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
