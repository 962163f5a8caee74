/* openai.c: /v1/models, and functions that all of OpenAI's endpoints share. */
#include "api/openai.h"

#include "api/anthropic.h"
#include "base/util.h"

#include <stdio.h>

static const char *error_type(int http_status) {
    switch (http_status) {
    case 401:
        return "authentication_error";
    case 429:
        return "rate_limit_error";
    case 500:
        return "server_error";
    case 503:
        return "service_unavailable_error";
    default:
        return "invalid_request_error";
    }
}

/* OpenAI's own; NULL: it has none. */
static const char *error_code(int http_status, enum err_code code) {
    static const char *const codes[ERR_N] = {
        [ERR_PROMPT_TOO_LONG] = "context_length_exceeded",
        [ERR_MODEL_UNKNOWN] = "model_not_found",
        [ERR_RESPONSE_UNKNOWN] = "previous_response_not_found",
    };
    return http_status == 401 ? "invalid_api_key" : codes[code];
}

json_t *openai_error(int http_status, enum err_code code, const char *sentence,
                     const char *field) {
    return json_pack("{s:{s:o, s:s, s:s?, s:s?}}", "error", "message",
                     bytes_json(sentence, strlen(sentence)), "type", error_type(http_status),
                     "param", field[0] != '\0' ? field : NULL, "code",
                     error_code(http_status, code));
}

const char *openai_finish(enum service_finish f) {
    switch (f) {
    case FINISH_LENGTH:
        return "length";
    case FINISH_CALLS:
        return "tool_calls";
    default:
        return "stop";
    }
}

void openai_stream_error(struct reply *r, enum status st, const struct err *why) {
    reply_sse(r, NULL, openai_error(http_status_of(st), why->code, why->text, ""));
}

/* ---- requests ---------------------------------------------------------------------------- */

void openai_handle(struct service *s, struct http_request *http,
                   void (*go)(struct service *s, struct http_request *http, struct params *p)) {
    struct params p;
    if (params_init(&p, http))
        go(s, http, &p);
    if (p.st != ST_OK)
        reply_error(http, &openai_chat_dialect, p.st, &p.err, p.field);
    params_deinit(&p);
}

void openai_param_stream(struct params *p, struct openai_stream *stream) {
    const json_t *options = NULL;
    param_bool(p, "stream", &stream->on);
    param_object(p, "stream_options", &options);
    const json_t *usage = json_object_get(options, "include_usage");
    if (usage != NULL && !json_is_boolean(usage) && !json_is_null(usage))
        params_fail(p, "stream_options", "stream_options.include_usage must be true or false");
    stream->include_usage = json_is_true(usage);
}

void openai_param_extra(struct params *p, const char *effort, struct service_request *r) {
    const json_t *extra = NULL;
    param_object(p, "chat_template_kwargs", &extra);
    if (extra == NULL && effort == NULL)
        return;
    json_t *all = extra != NULL ? json_copy((json_t *)extra) : json_object();
    if (effort != NULL)
        extra_effort(all, effort);
    json_object_set_new(p->body, "chat_template_kwargs", all);
    r->extra = all;
}

/* ---- replies ----------------------------------------------------------------------------- */

json_t *openai_frame(const struct reply *r, const char *id_prefix, const char *object,
                     json_t *choices) {
    const struct service_facts *f = service_facts(r->service);
    const struct openai_stream *stream = r->state;
    json_t *v = json_pack("{s:o, s:s, s:I, s:s, s:s, s:o}", "id",
                          json_sprintf("%s-%s", id_prefix, r->id), "object", object, "created",
                          (json_int_t)r->created, "model", f->name, "system_fingerprint",
                          f->fingerprint, "choices", choices);
    if (r->stream && stream->include_usage) /* it comes with the last one */
        json_object_set_new(v, "usage", json_null());
    return v;
}

json_t *openai_usage(const struct reply *r) {
    struct reply_usage u = reply_usage(r);
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:I}}", "prompt_tokens",
                     (json_int_t)u.n_prompt, "completion_tokens", (json_int_t)u.n_generated,
                     "total_tokens", (json_int_t)(u.n_prompt + u.n_generated),
                     "prompt_tokens_details", "cached_tokens", (json_int_t)u.n_cached,
                     "completion_tokens_details", "reasoning_tokens",
                     (json_int_t)u.n_reasoning);
}

void openai_stream_end(struct reply *r, json_t *frame) {
    const struct openai_stream *stream = r->state;
    if (stream->include_usage) {
        json_object_set_new(frame, "usage", openai_usage(r));
        reply_sse(r, NULL, frame);
    } else {
        json_decref(frame);
    }
    reply_raw(r, "data: [DONE]\n\n");
}

static json_t *token_json(const struct generation *g, int32_t id, float logprob) {
    const char *bytes;
    size_t n = generation_token_bytes(g, id, &bytes);
    json_t *numbers = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(numbers, json_integer((unsigned char)bytes[i]));
    return json_pack("{s:o, s:f, s:o}", "token", bytes_json(bytes, n), "logprob",
                     (double)MAX(logprob, -9999.0f), "bytes", numbers);
}

void openai_keep_logprob(struct reply_choice *c, const struct service_event *ev) {
    const struct engine_token *t = ev->token;
    json_t *entry = token_json(ev->generation, t->id, t->logprob), *top = json_array();
    for (int i = 0; i < t->n_top; i++)
        json_array_append_new(top, token_json(ev->generation, t->top[i].id, t->top[i].logprob));
    json_object_set_new(entry, "top_logprobs", top);
    if (c->logprobs == NULL)
        c->logprobs = json_array();
    json_array_append_new(c->logprobs, entry);
}

json_t *openai_take_logprobs(struct reply_choice *c) {
    json_t *list = c->logprobs;
    c->logprobs = NULL;
    return list;
}

/* They cover the content's tokens: those that came with it. In an answer without calls they
 * also cover tokens at its end that produced no text. */
static bool is_of_content(const struct reply_choice *c, const struct service_event *ev) {
    return ev->kind == EVENT_CONTENT || (ev->kind == EVENT_DONE && c->n_calls == 0);
}

static void gather_logprobs(struct reply_choice *c) {
    json_t *list = openai_take_logprobs(c);
    if (c->content_logprobs == NULL) {
        c->content_logprobs = list;
        return;
    }
    if (list != NULL)
        json_array_extend(c->content_logprobs, list);
    json_decref(list);
}

void openai_note_logprobs(const struct reply *r, struct reply_choice *c,
                          const struct service_event *ev) {
    if (ev->kind == EVENT_TOKEN)
        openai_keep_logprob(c, ev);
    else if (!is_of_content(c, ev))
        json_decref(openai_take_logprobs(c));
    else if (!r->stream)
        gather_logprobs(c);
}

/* ---- /v1/models -------------------------------------------------------------------------- */

static json_t *model_json(const struct service *s) {
    const struct service_facts *f = service_facts(s);
    return json_pack("{s:s, s:s, s:I, s:s, s:i, s:i, s:{s:i, s:i, s:I, s:s}}", "id", f->name,
                     "object", "model", "created", (json_int_t)f->created, "owned_by",
                     "lockstep", "max_model_len", f->n_ctx, "context_length", f->n_ctx, "meta",
                     "n_ctx", f->n_ctx, "n_vocab", f->n_vocab, "n_params",
                     (json_int_t)f->n_params, "type", f->type);
}

/* Anthropic's clients list models at the same path, and identify themselves. */
static bool asks_as_anthropic(const struct http_request *r) {
    return http_header(r, "anthropic-version") != NULL;
}

static void list_models(struct service *s, struct http_request *r) {
    if (asks_as_anthropic(r)) {
        reply_json(r, 200, anthropic_models(s));
        return;
    }
    reply_json(r, 200, json_pack("{s:s, s:[o]}", "object", "list", "data", model_json(s)));
}

static void say_unknown(struct service *s, struct http_request *r, const char *name,
                        bool anthropic) {
    struct err why;
    enum status st =
        err_set_code(&why, ST_NOT_FOUND, ERR_MODEL_UNKNOWN,
                     "the model \"%.100s\" does not exist here; this server has \"%.200s\"",
                     name, service_facts(s)->name);
    reply_error(r, anthropic ? &anthropic_dialect : &openai_chat_dialect, st, &why, "model");
}

static void show_model(struct service *s, struct http_request *r) {
    const char *name = path_below(r, "/v1/models/");
    bool anthropic = asks_as_anthropic(r);
    if (service_is_model(s, name))
        reply_json(r, 200, anthropic ? anthropic_model(s) : model_json(s));
    else
        say_unknown(s, r, name, anthropic);
}

/* ---- /api/v0/models, as LM Studio has them ----------------------------------------------- */

static json_t *studio_json(const struct service *s) {
    const struct service_facts *f = service_facts(s);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:[s], s:i, s:i}", "id", f->name,
                     "object", "model", "type", "llm", "publisher", "lockstep", "arch",
                     f->architecture, "compatibility_type", "gguf", "quantization", f->type,
                     "state", "loaded", "capabilities", "tool_use", "max_context_length",
                     f->n_ctx, "loaded_context_length", f->n_ctx);
}

static void studio_list(struct service *s, struct http_request *r) {
    reply_json(r, 200, json_pack("{s:s, s:[o]}", "object", "list", "data", studio_json(s)));
}

static void studio_show(struct service *s, struct http_request *r) {
    const char *name = path_below(r, "/api/v0/models/");
    if (service_is_model(s, name))
        reply_json(r, 200, studio_json(s));
    else
        say_unknown(s, r, name, false);
}

const struct route openai_routes[] = {
    {"POST", "/v1/chat/completions", openai_chat},
    {"POST", "/v1/completions", openai_completions},
    {"POST", "/v1/embeddings", openai_embeddings},
    {"POST", "/v1/responses", openai_responses},
    {"POST", "/v1/responses/input_tokens", openai_response_count},
    {"POST", "/v1/responses/", openai_response_cancel},
    {"GET", "/v1/responses/", openai_response_show},
    {"DELETE", "/v1/responses/", openai_response_forget},
    {"POST", "/api/v0/chat/completions", openai_chat},
    {"POST", "/api/v0/completions", openai_completions},
    {"POST", "/api/v0/embeddings", openai_embeddings},
    {"GET", "/api/v0/models", studio_list},
    {"GET", "/api/v0/models/", studio_show},
    {"GET", "/v1/models", list_models},
    {"GET", "/v1/models/", show_model},
    {NULL, NULL, NULL}};
