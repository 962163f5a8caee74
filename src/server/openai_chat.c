/* openai_chat.c: /v1/chat/completions. */
#include "base/util.h"
#include "server/openai.h"

struct chat_state {
    bool include_usage;
    int n_top;
};

/* ---- logprobs ---------------------------------------------------------------------------------------- */

static json_t *token_json(const struct generation *g, int32_t id, float logprob) {
    const char *bytes;
    size_t n = generation_token_bytes(g, id, &bytes);
    json_t *numbers = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(numbers, json_integer((unsigned char)bytes[i]));
    return json_pack("{s:o, s:f, s:o}", "token", bytes_json(bytes, n), "logprob",
                     (double)MAX(logprob, -9999.0f), "bytes", numbers);
}

static void keep_logprob(struct reply_choice *c, const struct service_event *ev) {
    const struct engine_token *t = ev->token;
    json_t *entry = token_json(ev->generation, t->id, t->logprob), *top = json_array();
    for (int i = 0; i < t->n_top; i++)
        json_array_append_new(top, token_json(ev->generation, t->top[i].id, t->top[i].logprob));
    json_object_set_new(entry, "top_logprobs", top);
    if (c->logprobs == NULL)
        c->logprobs = json_array();
    json_array_append_new(c->logprobs, entry);
}

/* What is kept, as the API has it, and is no longer kept. */
static json_t *take_logprobs(struct reply_choice *c) {
    json_t *list = c->logprobs;
    c->logprobs = NULL;
    return list != NULL ? json_pack("{s:o}", "content", list) : json_null();
}

static void drop_logprobs(struct reply_choice *c) {
    json_decref(c->logprobs);
    c->logprobs = NULL;
}

/* ---- streamed ---------------------------------------------------------------------------------------- */

static json_t *chunk_frame(const struct reply *r, json_t *choices) {
    return json_pack("{s:o, s:s, s:I, s:s, s:o}", "id", json_sprintf("chatcmpl-%s", r->id),
                     "object", "chat.completion.chunk", "created", (json_int_t)r->created,
                     "model", service_facts(r->service)->name, "choices", choices);
}

static void chunk(struct reply *r, int choice, json_t *delta, json_t *logprobs,
                  const char *finish) {
    json_t *one = json_pack("{s:i, s:o, s:o, s:s?}", "index", choice, "delta", delta, "logprobs",
                            logprobs, "finish_reason", finish);
    reply_sse(r, NULL, chunk_frame(r, json_pack("[o]", one)));
}

static void chat_begin(struct reply *r) {
    for (int i = 0; i < r->n_each; i++)
        chunk(r, i, json_pack("{s:s, s:s}", "role", "assistant", "content", ""), json_null(),
              NULL);
}

static json_t *call_begin(const struct service_event *ev) {
    return json_pack("{s:[{s:I, s:s, s:s, s:{s:o, s:s}}]}", "tool_calls", "index",
                     (json_int_t)ev->call, "id", ev->id, "type", "function", "function", "name",
                     bytes_json(ev->text, ev->len), "arguments", "");
}

static json_t *call_piece(const struct service_event *ev) {
    return json_pack("{s:[{s:I, s:{s:o}}]}", "tool_calls", "index", (json_int_t)ev->call,
                     "function", "arguments", bytes_json(ev->text, ev->len));
}

static void stream_event(struct reply *r, int choice, const struct service_event *ev) {
    struct reply_choice *c = &r->choices[choice];
    switch (ev->kind) {
    case EVENT_CONTENT:
        chunk(r, choice, json_pack("{s:o}", "content", bytes_json(ev->text, ev->len)),
              take_logprobs(c), NULL);
        break;
    case EVENT_REASONING:
        chunk(r, choice, json_pack("{s:o}", "reasoning_content", bytes_json(ev->text, ev->len)),
              json_null(), NULL);
        break;
    case EVENT_CALL_BEGIN: chunk(r, choice, call_begin(ev), json_null(), NULL); break;
    case EVENT_ARGUMENTS: chunk(r, choice, call_piece(ev), json_null(), NULL); break;
    case EVENT_DONE:
        chunk(r, choice, json_object(), take_logprobs(c), openai_finish(ev->finish));
        break;
    default: break;
    }
}

static void chat_event(struct reply *r, int choice, const struct service_event *ev) {
    struct reply_choice *c = &r->choices[choice];
    if (ev->kind == EVENT_TOKEN)
        keep_logprob(c, ev);
    else if (ev->kind != EVENT_CONTENT && ev->kind != EVENT_DONE)
        drop_logprobs(c); /* they are for the content's tokens */
    if (r->stream)
        stream_event(r, choice, ev);
}

static void chat_end(struct reply *r) {
    const struct chat_state *state = r->state;
    if (state->include_usage) {
        json_t *last = chunk_frame(r, json_array());
        json_object_set_new(last, "usage", openai_usage(r));
        reply_sse(r, NULL, last);
    }
    reply_raw(r, "data: [DONE]\n\n");
}

/* ---- whole ------------------------------------------------------------------------------------------- */

static json_t *calls_json(const struct reply_choice *c) {
    json_t *calls = json_array();
    for (size_t i = 0; i < c->n_calls; i++) {
        const struct reply_call *call = &c->calls[i];
        json_array_append_new(calls, json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", call->id, "type",
                                               "function", "function", "name", call->name,
                                               "arguments", buf_json(&call->arguments)));
    }
    return calls;
}

static json_t *message_json(const struct reply_choice *c) {
    bool silent = c->content.len == 0 && c->n_calls > 0;
    json_t *m = json_pack("{s:s, s:o, s:n}", "role", "assistant", "content",
                          silent ? json_null() : buf_json(&c->content), "refusal");
    if (c->reasoning.len > 0)
        json_object_set_new(m, "reasoning_content", buf_json(&c->reasoning));
    if (c->n_calls > 0)
        json_object_set_new(m, "tool_calls", calls_json(c));
    return m;
}

static json_t *chat_whole(struct reply *r) {
    json_t *choices = json_array();
    for (int i = 0; i < r->n_each; i++) {
        struct reply_choice *c = &r->choices[i];
        json_array_append_new(choices, json_pack("{s:i, s:o, s:o, s:s}", "index", i, "message",
                                                 message_json(c), "logprobs", take_logprobs(c),
                                                 "finish_reason", openai_finish(c->finish)));
    }
    return json_pack("{s:o, s:s, s:I, s:s, s:o, s:o}", "id", json_sprintf("chatcmpl-%s", r->id),
                     "object", "chat.completion", "created", (json_int_t)r->created, "model",
                     service_facts(r->service)->name, "choices", choices, "usage",
                     openai_usage(r));
}

const struct dialect openai_chat_dialect = {.stream_type = "text/event-stream",
                                            .begin = chat_begin,
                                            .event = chat_event,
                                            .end = chat_end,
                                            .stream_error = openai_stream_error,
                                            .whole = chat_whole,
                                            .error = openai_error};

/* ---- the request ---------------------------------------------------------------------------------------- */

/* "developer" is what OpenAI calls the system of late; templates know it by its old name. */
static void rename_developer(json_t *messages) {
    size_t i;
    json_t *m;
    json_array_foreach (messages, i, m) {
        const char *role = json_string_value(json_object_get(m, "role"));
        if (role != NULL && str_eq(role, "developer"))
            json_object_set_new(m, "role", json_string("system"));
    }
}

static void param_messages(struct params *p, struct service_request *r) {
    param_array(p, "messages", &r->messages);
    if (p->st == ST_OK && json_array_size(r->messages) == 0)
        params_fail(p, "messages", "messages must be an array of at least one message");
    rename_developer((json_t *)r->messages);
}

/* chat_template_kwargs, and reasoning_effort, which is a variable of some templates. */
static void param_extra(struct params *p, struct service_request *r) {
    const char *effort = NULL;
    const json_t *extra = NULL;
    param_object(p, "chat_template_kwargs", &extra);
    param_text(p, "reasoning_effort", &effort);
    if (extra == NULL && effort == NULL)
        return;
    json_t *all = extra != NULL ? json_copy((json_t *)extra) : json_object();
    if (effort != NULL)
        json_object_set_new(all, "reasoning_effort", json_string(effort));
    json_object_set_new(p->body, "chat_template_kwargs", all); /* keeps it alive */
    r->extra = all;
}

static void param_logprobs(struct params *p, struct service_request *r) {
    param_bool(p, "logprobs", &r->logprobs);
    param_int(p, "top_logprobs", 0, 20, &r->n_top);
    if (r->n_top > 0 && !r->logprobs)
        params_fail(p, "top_logprobs", "top_logprobs needs logprobs: true");
}

static void read_request(struct params *p, const struct service *s, struct service_request *r,
                         struct request_memory *m) {
    service_request_init(r);
    param_model(p, s);
    param_messages(p, r);
    param_int(p, "max_tokens", 1, 1 << 24, &r->n_predict);
    param_int(p, "max_completion_tokens", 1, 1 << 24, &r->n_predict);
    param_int(p, "n", 1, 64, &r->n_choices);
    param_sampling(p, r, m);
    param_stops(p, "stop", r, m);
    param_logprobs(p, r);
    param_tools(p, r);
    param_form(p, r);
    param_extra(p, r);
}

static void answer(struct service *s, struct http_request *http, struct service_request *r,
                   bool stream, bool include_usage) {
    struct reply *reply = reply_open(s, http, &openai_chat_dialect, 1, r->n_choices, stream,
                                     sizeof(struct chat_state));
    if (reply == NULL)
        return;
    *(struct chat_state *)reply->state = (struct chat_state){include_usage, r->n_top};
    reply_submit(reply, r);
}

void openai_chat(struct service *s, struct http_request *http) {
    struct params p;
    struct service_request r;
    struct request_memory m = {0};
    bool stream = false, include_usage = false;
    size_t len;
    const char *body = http_body(http, &len);
    if (params_init(&p, body, len)) {
        read_request(&p, s, &r, &m);
        openai_param_stream(&p, &stream, &include_usage);
    }
    if (p.st == ST_OK)
        answer(s, http, &r, stream, include_usage);
    else
        openai_refuse(http, &p);
    request_memory_deinit(&m);
    params_deinit(&p);
}
