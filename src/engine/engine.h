/* engine.h: the scheduler: many requests at once on one instance of a model.
 *
 * The engine owns rank 0 and one thread, which forms the steps. A step has the decodes of all
 * running requests and a bounded piece of a prompt (continuous batching, chunked prefill). KV
 * pages are shared by prefix: full pages are found by the hash of all tokens up to their end.
 * Freed pages can still be found until they are reused, least recently used first. A request
 * that does not fit waits in a bounded queue; clients take turns. A request's text never
 * depends on what else runs, on reused pages, chunks or speculation (docs/numerics.md).
 *
 * Threads: engine_submit(), engine_cancel() and engine_stats() from any thread. Callbacks run
 * on the engine's thread, between steps. They must not block, and must not call the engine
 * except for engine_cancel(). */
#ifndef LOCKSTEP_ENGINE_ENGINE_H
#define LOCKSTEP_ENGINE_ENGINE_H

#include "base/status.h"
#include "engine/throughput.h"
#include "format/gguf.h"
#include "lockstep/lockstep.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;
struct engine_request_handle;

struct engine_config {
    struct lockstep_options model; /* n_ctx: of one request; failover: a lost rank ends none */
    /* over all ranks; 0: for 8 contexts, or what is left of memory if less */
    size_t kv_memory_bytes;
    int n_running_max; /* requests that decode together, default 64 */
    int n_queue_max; /* waiting requests, default 256; beyond it engine_submit says ST_AGAIN */
    /* of a step with a prompt's piece in it, default 256: bounds how long a decode waits for
     * others' prompts */
    int n_step_tokens;
    bool no_prefix_cache, no_speculation;
    /* failover: a machine that was left out and is back is used again: the model is opened on
     * all machines. This happens once nothing has run for this long (default 2 s). It happens
     * at the latest when the machine has been back for this long (default 600 s), or for five
     * times as long as the model took to open. */
    double rejoin_idle_s, rejoin_latest_s;
    /* The ranks are lost, and the engine cannot continue: called on the engine's thread before
     * any request learns of it. It may end the process, so that clients get nothing. NULL:
     * none. */
    void (*on_lost)(const char *why);
};
void engine_config_init(struct engine_config *cfg);

enum status engine_open(struct engine **out, const struct engine_config *cfg, struct err *err);
/* Ends all requests with ST_CANCELLED, then everything else. NULL is fine. */
void engine_close(struct engine *e);

/* As of the opening, including ranks that were lost since. */
const struct lockstep_model_info *engine_model_info(const struct engine *e);
const struct tokenizer *engine_tokenizer(const struct engine *e);
const struct gguf *engine_gguf(const struct engine *e);

/* The process of a rank (0: this one). */
int engine_rank_pid(struct engine *e, int rank);

/* Tokens that would repeat a sequence (dry.h). */
struct engine_dry {
    float multiplier, base;      /* 0: off; at least 1 */
    int allowed_length;          /* at least 1: so long a sequence is not yet penalized more */
    int last_n;                  /* tokens looked back on */
    const char *const *breakers; /* [n_breakers] no sequence has a token with one of these */
    size_t n_breakers;
};

struct engine_sampling {
    struct lockstep_sampling base;
    float typical_p;       /* 1: off */
    float top_n_sigma;     /* 0: off; only logits so many deviations below the best are kept */
    float xtc_probability; /* 0: off; how often the likeliest go, of those with p >= ... */
    float xtc_threshold;   /* ... this one, but for the last of them; above 0.5: never */
    struct engine_dry dry;
    float presence_penalty, frequency_penalty; /* 0: off; counted over the generated tokens */
    const struct engine_bias {
        int32_t id;
        float bias;
    } * biases;
    size_t n_biases;
};
void engine_sampling_init(struct engine_sampling *s);

/* Constrained decoding: which tokens may come next. One per choice, made by the caller. NULL
 * functions: no constraint. An end token that it allows ends the choice, even if the choice
 * ignores end tokens.
 *
 * mask and accept may be slow. They run on helper threads of the engine, from the moment when a
 * token is known. A choice whose mask is not ready takes no part in a step. Calls for the
 * states of one request never overlap, so states may share what they know. */
enum engine_allows {
    ENGINE_ALLOWS_NONE,
    ENGINE_ALLOWS_SOME,
    ENGINE_ALLOWS_ALL,
    ENGINE_ALLOWS_UNKNOWN /* of known() only */
};

struct engine_constraint {
    void *state;
    /* Some: sets bit i of mask [div_up(n_vocab, 64)], all zero before, for every allowed token.
     * None: the choice ends with ST_BAD_INPUT, and err says why (unchanged: nothing fits). */
    enum engine_allows (*mask)(void *state, uint64_t *mask, struct err *err);
    void (*accept)(void *state, int32_t id);
    /* Both in one (id TOKEN_NONE: nothing to accept), on the engine's thread: what is known
     * already, within microseconds and without allocating. Unknown: the state has not changed,
     * the mask may have. NULL: nothing ever is. */
    enum engine_allows (*known)(void *state, int32_t id, uint64_t *mask);
    void *(*clone)(const void *state); /* for n > 1 */
    void (*free)(void *state);
};

struct engine_top {
    int32_t id;
    float logprob;
};

/* One generated token of one choice. Borrowed during the callback. */
struct engine_token {
    int choice;
    int32_t id;
    /* whole characters that became complete, stop strings cut off; not NUL-ended */
    const char *text;
    size_t len;
    float logprob;                /* if asked for: of the unmodified distribution */
    const struct engine_top *top; /* [n_top], best first */
    int n_top;
    size_t n_prompt, n_cached,
        n_generated; /* of this choice, as in engine_done; this one included */
};

enum engine_stop {
    ENGINE_STOP_END,
    ENGINE_STOP_STRING,
    ENGINE_STOP_LENGTH,
    ENGINE_STOP_CANCELLED,
    ENGINE_STOP_ERROR
};

struct engine_done {
    enum engine_stop stop; /* of choice 0..n-1 in turn: on_done is called once per choice */
    int choice;
    bool last;               /* no callback follows */
    const char *stop_string; /* which one, NULL if none */
    enum status st;          /* ENGINE_STOP_ERROR: why, with the sentence */
    const char *error;
    size_t n_prompt, n_cached, n_generated; /* n_cached: found in the prefix cache */
    double queued_s, prompt_s, generate_s;
};

/* ST_BAD_INPUT with ERR_PROMPT_TOO_LONG for a text of this many bytes if the context cannot
 * hold its tokens; this is found without tokenizing. embed: no space for an answer is needed. */
enum status engine_check_text(const struct engine *e, const char *text, size_t len, bool embed,
                              struct err *err);

struct engine_request {
    const int32_t *ids; /* the prompt; copied */
    size_t n_ids;
    /* 1 to 64; they share the prompt's full pages through the prefix cache; choice i samples
     * with seed + i */
    int n_choices;
    int n_predict; /* -1: to the end of the context */
    bool ignore_end;
    /* It belongs to another that was taken: the queue is not too long for it, nor longer by it. */
    bool follows;
    bool special; /* the text shows control tokens too (never the end token) */
    struct engine_sampling sampling;
    const char *const *stops; /* copied; at most 64 of 1 to 1024 bytes */
    size_t n_stops;
    const int32_t *stop_ids; /* copied; tokens that end the text, and are no part of it */
    size_t n_stop_ids;
    int min_tokens; /* no end before so many; not with a constraint */
    bool logprobs;
    int n_top; /* 0 to 20 */
    /* Instead of log probabilities: with which the tokens are drawn after all settings, 0 to 1;
     * there may be fewer than n_top that can be. */
    bool chances;
    /* on_prompt gets each token of the prompt, in order and once, before the first on_token;
     * what is in the cache of it is computed again. Not with embed. */
    bool prompt_logprobs;
    struct engine_constraint constraint; /* moved if engine_submit() says ST_OK */
    uint64_t client; /* requests of one client take turns with those of others */
    /* Embedding: no token is generated; on_embedding gets the mean (or last) of the final hidden
     * states, not normalized, [n_embd], before on_done. */
    bool embed, embed_last;
    void (*on_embedding)(void *user, const float *v, size_t n_embd);
    /* It was queued, and is computed from now on: once, before all others but on_lost. */
    void (*on_begun)(void *user);
    /* choice is 0, and there is no text; nothing predicts the first one: its logprob is NAN */
    void (*on_prompt)(void *user, const struct engine_token *t);
    void (*on_token)(void *user, const struct engine_token *t);
    void (*on_done)(void *user, const struct engine_done *d);
    /* Ranks were lost, and the request waits until the others have the model open. host: a machine
     * of theirs as the options name it, without its port; "": this one, or not known. */
    void (*on_lost)(void *user, const char *host);
    void *user;
};
void engine_request_init(struct engine_request *r);

/* handle may be NULL. ST_AGAIN: the queue is full (answer 503 with Retry-After). ST_PEER_LOST: the
 * instance is over. ST_BAD_INPUT: too long for the context, a
 * sampling setting out of range, a token outside the vocabulary: with a sentence. After ST_OK,
 * on_done(last) comes exactly once; *handle is valid until it returns. */
enum status engine_submit(struct engine *e, const struct engine_request *r,
                          struct engine_request_handle **handle, struct err *err);
/* Takes effect within one step; on_done still comes. Harmless after it. Thread-safe as long as the
 * caller knows that the handle is valid. */
void engine_cancel(struct engine *e, struct engine_request_handle *handle);

struct engine_histogram {
    double bounds[16]; /* seconds; upper bounds ascending, the last is infinity */
    uint64_t counts[16];
    double sum;
    uint64_t n;
};

struct engine_stats {
    uint64_t requests, tokens_prompt, tokens_cached, tokens_generated, steps, preemptions;
    uint64_t speculated, accepted;
    int running, queued; /* a request is one of the two from its submission to its end */
    int batch;           /* tokens in the last step */
    size_t pages_total, pages_used, pages_cached;
    size_t window_pages_total, window_pages_used;  /* of layers with a sliding window */
    size_t states_total, states_used, states_kept; /* of recurrent layers; kept: snapshots */
    struct engine_histogram first_token_s, between_tokens_s, queue_s;
    struct throughput generated,
        prompted;               /* tokens; those found in the cache are not computed */
    double compute_s, fabric_s; /* of rank 0 */
    uint64_t recoveries;        /* how often the model was opened again (failover) */
    uint64_t rejoins;           /* how often machines were taken in again */
    char left_out[512];         /* machines that were lost; "": none */
    int n_ranks;                /* that compute now */
    bool healthy;
    bool hopeless;   /* not healthy, since the files of the model are not what they were */
    bool recovering; /* healthy, but nothing is computed until the model is open again */
    char why[512];   /* if not healthy, or recovering: the lost rank and the cause */
};
void engine_stats(struct engine *e, struct engine_stats *out);

/* What the ranks have and hold, their links, and why they are placed so (view.h), as of the last
 * second in which something was computed. */
struct engine_view;
void engine_view(struct engine *e, struct engine_view *out);

/* Of each rank, as of the last second in which something was computed; zeros for ranks that no
 * longer exist. out [engine_model_info()->n_ranks]. */
struct engine_rank_stats {
    double compute_s, fabric_s; /* in kernels; in collectives, waiting for others and copying */
    uint64_t resident_bytes;
};
void engine_rank_stats(struct engine *e, struct engine_rank_stats *out);

#endif
