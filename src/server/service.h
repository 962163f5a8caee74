/* service.h: what every dialect of the server needs, in terms of none of them. A conversation
 * or a prompt goes in. Content, reasoning, tool calls and token probabilities come out as
 * events.
 *
 * The service owns the engine and what belongs to its model (chat template, trie of tokens).
 * With cfg.restart a thread of its own watches the engine and opens the instance again when a
 * rank is lost.
 *
 * Threads: everything may be called from any thread. Events come on the engine's thread: they
 * must not block or call service_generate(). */
#ifndef LOCKSTEP_SERVER_SERVICE_H
#define LOCKSTEP_SERVER_SERVICE_H

#include "base/status.h"
#include "engine/engine.h"
#include "server/background.h"
#include "server/memo.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct service;
struct service_event;
struct generation;

struct service_config {
    struct engine_config engine; /* what it points to is borrowed until service_close() */
    const char *name;            /* the model's name in the APIs; NULL: the file's name */
    bool restart;
};

enum status service_open(struct service **out, const struct service_config *cfg,
                         struct err *err);
/* Ends what runs (ENGINE_STOP_CANCELLED) and refuses the new; the rest still works. */
void service_stop(struct service *s);
void service_close(struct service *s); /* NULL is fine */

/* How a model's embeddings are made of its last hidden states: GGUF's pooling_type. */
enum pooling {
    POOLING_NONE = 0, /* or the file does not say */
    POOLING_MEAN,
    POOLING_FIRST,
    POOLING_LAST,
    POOLING_RANK, /* no vector, but a score */
};

struct service_facts {
    const char *name, *path;
    const char *architecture, *type, *chat_format, *template_source;
    const char *placement; /* what was measured for it, in a line; "": nothing */
    int n_ctx, n_ctx_train, n_vocab, n_embd, n_ranks, n_layers;
    int n_places; /* requests that are computed at once */
    uint64_t n_params, weight_bytes;
    bool thinks;
    enum pooling pooling; /* of embeddings, by the file's word */
    /* Of what decides the bits of an answer: the model's name and size, the KV type, the
     * version. Not of ranks, splits, links or instruction sets, which decide nothing. */
    const char *fingerprint;
    int64_t created;       /* Unix time of the opening */
    int64_t file_modified; /* Unix time */
};
/* As of the first opening; borrowed until service_close(). */
const struct service_facts *service_facts(const struct service *s);
/* Whether a request that says so means the model of this name: Ollama's clients add ":latest". */
bool service_name_is(const char *given, const char *name);
/* "default" and "lockstep": whatever there is. */
bool service_means_any(const char *given);
/* True for the model's name, its file's name, "default" and "lockstep", each also with
 * ":latest"; and for NULL. */
bool service_is_model(const struct service *s, const char *name);

void service_stats(struct service *s, struct engine_stats *out);
/* Of each rank, out [service_facts()->n_ranks]; ST_PEER_LOST while there are none. */
enum status service_rank_stats(struct service *s, struct engine_rank_stats *out,
                               struct err *err);

/* Of all of them, and why they are placed so (engine/view.h); ST_PEER_LOST while there are none. */
enum status service_view(struct service *s, struct engine_view *out, struct err *err);

/* What dialects keep between requests, and what they answer without a client. */
struct memo *service_memo(struct service *s);
struct background *service_background(struct service *s);

enum service_tools { TOOLS_AUTO, TOOLS_NONE, TOOLS_REQUIRED };
enum service_form { FORM_TEXT, FORM_JSON, FORM_SCHEMA, FORM_GBNF };

/* All borrowed for the call. */
struct service_request {
    /* The prompt: one of these. */
    const json_t *messages; /* OpenAI's shape */
    bool continue_last;     /* the last of them is an answer that is to go on */
    const char *prompt;     /* text as it is, special tokens in it recognized */
    size_t prompt_len;
    const int32_t *ids;
    size_t n_ids;

    const json_t *tools; /* with messages: OpenAI's array, or NULL */
    const json_t *extra; /* with messages: further template variables, or NULL */
    enum service_tools tool_choice;
    const char *tool_name; /* TOOLS_REQUIRED: this one of them; NULL: any */
    bool one_call;         /* no parallel calls */

    enum service_form form; /* of the content; not with TOOLS_REQUIRED */
    const json_t *schema;   /* FORM_SCHEMA */
    const char *gbnf;       /* FORM_GBNF */

    struct engine_sampling sampling;
    int n_predict, n_choices;
    bool ignore_end;
    const char *const *stops;
    size_t n_stops;
    const int32_t *stop_ids; /* as in struct engine_request */
    size_t n_stop_ids;
    int min_tokens;
    bool logprobs;
    int n_top;
    bool prompt_logprobs;   /* EVENT_PROMPT comes */
    bool chances;           /* as in struct engine_request */
    bool embed, embed_last; /* one normalized vector instead of text */
    int n_dimensions;       /* its first ones, normalized again; 0: all */
    bool truncate;          /* a prompt that is too long loses its end */
    bool follows;           /* as in struct engine_request */
    uint64_t client;
    bool seed_by_chance; /* the client has given none: reply_submit() chooses it */

    void (*on_event)(void *user, const struct service_event *ev);
    void *user;
};
void service_request_init(struct service_request *r);

enum service_event_kind {
    EVENT_CONTENT,    /* text */
    EVENT_REASONING,  /* text */
    EVENT_CALL_BEGIN, /* text: the function's name; id */
    EVENT_ARGUMENTS,  /* text: a piece of JSON */
    EVENT_CALL_END,
    /* token: if logprobs were asked for; before the text it completes. Never an end token */
    EVENT_TOKEN,
    /* likewise: no text comes of the tokens since the last one, or they were a call's */
    EVENT_MARKUP,
    /* token: of the prompt, before all else; choice 0's. Of the first the logprob is NAN */
    EVENT_PROMPT,
    EVENT_EMBEDDING, /* vector */
    EVENT_BEGUN,     /* it was queued, and is computed from now on; before all but EVENT_LOST */
    EVENT_LOST,      /* it waits, since ranks were lost; text: engine_request's host */
    EVENT_DONE,      /* of this choice */
};

enum service_finish {
    FINISH_STOP,
    FINISH_LENGTH,
    FINISH_CALLS,
    FINISH_CANCELLED,
    FINISH_ERROR
};

/* Borrowed during the callback. */
struct service_event {
    enum service_event_kind kind;
    int choice;
    const char *text; /* len bytes, not NUL-terminated */
    size_t len;
    size_t call;    /* the number of the call, from 0 */
    const char *id; /* EVENT_CALL_BEGIN */
    bool cut;       /* EVENT_CALL_END: the model was stopped within the call */
    const struct engine_token
        *token; /* the text event with which this came; NULL: at the end */
    const struct generation *generation;
    const float *vector; /* [n_embd] */
    size_t n_embd;
    /* EVENT_DONE */
    enum service_finish finish;
    const struct engine_done *done;
    bool last; /* no event follows */
};

/* After ST_OK, events come until one is EVENT_DONE and last. *out (may be NULL) is to be released.
 * ST_AGAIN: the queue is full. ST_PEER_LOST: the instance is over (or being opened again): the
 * sentence says why. ST_BAD_INPUT, ST_UNSUPPORTED: the request's fault, with a sentence. */
enum status service_generate(struct service *s, const struct service_request *r,
                             struct generation **out, struct err *err);
/* Takes effect within one step; harmless after the end. */
void generation_cancel(struct generation *g);
void generation_release(struct generation *g); /* NULL is fine; does not cancel */

/* The prompt of a conversation as tokens. *ids is owned by the caller (mem_free). */
enum status service_prompt(struct service *s, const struct service_request *r, int32_t **ids,
                           size_t *n_ids, struct err *err);
/* The same as text (mem_free), NUL-terminated. */
enum status service_render(struct service *s, const struct service_request *r, char **text,
                           size_t *len, struct err *err);
enum status service_tokenize(struct service *s, const char *text, size_t len, bool add_special,
                             bool parse_special, int32_t **ids, size_t *n_ids, struct err *err);
enum status service_detokenize(struct service *s, const int32_t *ids, size_t n, char **text,
                               size_t *len, struct err *err);
/* The bytes of a token, for logprobs; only in callbacks of a generation. */
size_t generation_token_bytes(const struct generation *g, int32_t id, const char **bytes);
/* The characters of the text that begin in it; likewise. */
size_t generation_token_chars(const struct generation *g, int32_t id);

#endif
