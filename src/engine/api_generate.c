/* api_generate.c: lockstep_generate(): the prompt, then a token at a time. */
#include "base/clock.h"
#include "base/float_env.h"
#include "base/mem.h"
#include "base/util.h"
#include "engine/api_grammar.h"
#include "engine/api_impl.h"
#include "engine/sampler.h"
#include "tokenizer/tokenizer.h"

struct generation {
    struct lockstep *ls;
    struct lockstep_request req;
    struct engine_sampling sampling;
    struct sampler sampler;
    struct api_grammar grammar;
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
                                     .mask = gen->grammar.mask,
                                     .history = gen->ls->ids,
                                     .n_history = pos + 1,
                                     .n_prompt = gen->req.n_ids,
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
    const struct lockstep_request *req = &gen->req;
    /* The last token is always fed: its logits are wanted. */
    api_rewind(ls, common_prefix(ls->ids, ls->n_ids, req->ids, req->n_ids - 1));
    gen->result.n_cached = ls->n_ids;
    while (ls->n_ids < req->n_ids) {
        if (api_is_cancelled(ls))
            return ST_CANCELLED;
        size_t k = MIN(req->n_ids - ls->n_ids, (size_t)ls->in.rank.job.n_chunk);
        bool last = ls->n_ids + k == req->n_ids;
        struct api_rows sink = {.rows = pick_next, .user = gen};
        /* The sampler looks back on the whole prompt, this chunk included. */
        memcpy(ls->ids + ls->n_ids, req->ids + ls->n_ids, k * sizeof *req->ids);
        TRY(api_feed(ls, req->ids + ls->n_ids, k, last ? 1 : 0, &sink, err));
    }
    return ST_OK;
}

/* Hands the new token out. False if the generation ends with it. */
static bool emit(struct generation *gen, int n_predict) {
    struct lockstep *ls = gen->ls;
    const struct lockstep_request *req = &gen->req;
    gen->result.n_generated++;
    bool end = tokenizer_is_end(ls->in.tokenizer, gen->next);
    size_t len = 0;
    if (!end)
        len = token_stream_put(&gen->stream, gen->next, gen->text,
                               tokenizer_max_token_bytes(ls->in.tokenizer));
    bool go_on = req->on_token == NULL || req->on_token(req->user, gen->next, gen->text, len);
    if (!go_on)
        gen->result.stop = "cancelled";
    else if (end && (!req->ignore_end || gen->grammar.mask != NULL))
        gen->result.stop = "end";
    else if (n_predict >= 0 && gen->result.n_generated >= (size_t)n_predict)
        gen->result.stop = "length";
    else if (ls->n_ids == (size_t)ls->in.info.n_ctx)
        gen->result.stop = "context";
    else if (api_is_cancelled(ls))
        gen->result.stop = "cancelled";
    return gen->result.stop == NULL;
}

static enum status begin(struct generation *gen, struct err *err) {
    struct lockstep *ls = gen->ls;
    ls->n_owed = 0; /* it is the prompt that is wanted */
    TRY(api_resume(ls, err));
    TRY(sampler_init(&gen->sampler, ls->in.rank.kernels, (uint32_t)ls->in.info.n_vocab,
                     (uint32_t)tokenizer_facts(ls->in.tokenizer)->n_text, err));
    gen->text = mem_alloc(tokenizer_max_token_bytes(ls->in.tokenizer));
    if (gen->text == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to generate");
    TRY(api_grammar_next(&gen->grammar, TOKEN_NONE, err));
    return feed_prompt(gen, err);
}

static enum status generate(struct generation *gen, struct err *err) {
    double began = clock_s();
    enum status st = gen->req.n_predict == 0 ? ST_OK : begin(gen, err);
    double first = clock_s();
    gen->result.prompt_s = first - began;
    if (gen->req.n_predict == 0)
        gen->result.stop = "length";
    while (st == ST_OK && gen->result.stop == NULL && emit(gen, gen->req.n_predict)) {
        struct api_rows sink = {.rows = pick_next, .user = gen};
        int32_t id = gen->next;
        gen->ls->ids[gen->ls->n_ids] = id;
        st = api_grammar_next(&gen->grammar, id, err);
        if (st == ST_OK)
            st = api_feed(gen->ls, &id, 1, 1, &sink, err);
    }
    if (st == ST_CANCELLED)
        gen->result.stop = "cancelled";
    gen->result.generate_s = clock_s() - first;
    return st == ST_CANCELLED ? ST_OK : st;
}

static const struct lockstep_sampling default_sampling = {.temperature = 0.8f,
                                                          .top_k = 40,
                                                          .top_p = 0.95f,
                                                          .min_p = 0.05f,
                                                          .repeat_penalty = 1.0f,
                                                          .repeat_last_n = 64};
static const struct lockstep_request default_request = {.n_predict = -1};

void lockstep_sampling_defaults(struct lockstep_sampling *s, size_t size) {
    api_give_defaults(s, size, &default_sampling, sizeof default_sampling);
}

void lockstep_request_defaults(struct lockstep_request *req, size_t size) {
    api_give_defaults(req, size, &default_request, sizeof default_request);
}

/* The request and its sampling, whichever version of them the caller knows. */
static enum status take_request(struct generation *gen, const struct lockstep_request *theirs,
                                struct err *err) {
    gen->req = default_request;
    TRY(api_take(&gen->req, sizeof gen->req, theirs, "request", err));
    engine_sampling_init(&gen->sampling);
    if (gen->req.sampling != NULL)
        TRY(api_take(&gen->sampling.base, sizeof gen->sampling.base, gen->req.sampling,
                     "sampling", err));
    gen->result.n_prompt = gen->req.n_ids;
    return ST_OK;
}

static enum status check_request(struct generation *gen, struct err *err) {
    const struct lockstep_request *req = &gen->req;
    const struct lockstep *ls = gen->ls;
    if (req->n_ids == 0)
        return err_set(err, ST_BAD_INPUT, "the prompt is empty");
    TRY(api_check_room(ls, "", req->n_ids, err));
    TRY(api_check_ids(ls, req->ids, req->n_ids, err));
    return sampling_check(&gen->sampling, (uint32_t)ls->in.info.n_vocab, err);
}

enum lockstep_status lockstep_generate(struct lockstep *ls,
                                       const struct lockstep_request *theirs,
                                       struct lockstep_result *result,
                                       struct lockstep_error *err_) {
    struct err local, *err = api_err(err_, &local);
    struct generation gen = {.ls = ls};
    enum status st = take_request(&gen, theirs, err);
    if (st == ST_OK)
        st = check_request(&gen, err);
    if (st == ST_OK)
        st = api_call_begin(ls, err);
    if (st != ST_OK)
        return api_done(st);
    atomic_store_explicit(&ls->cancelled, false, memory_order_relaxed);
    token_stream_init(&gen.stream, ls->in.tokenizer, false);
    /* What an answer begins with follows other text. */
    gen.stream.started = true;
    struct float_env env;
    float_env_begin(&env);
    st = api_grammar_open(&gen.grammar, ls, &gen.req, err);
    if (st == ST_OK)
        st = generate(&gen, err);
    float_env_end(&env);
    api_call_end(ls);
    api_grammar_close(&gen.grammar);
    sampler_deinit(&gen.sampler);
    mem_free(gen.text);
    if (st == ST_OK && result != NULL)
        *result = gen.result;
    return api_done(st);
}
