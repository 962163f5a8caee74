/* openai_chat.c: OpenAI's endpoint for chats, /v1/chat/completions. */
#include "api/openai.h"
#include "base/util.h"
#include "server/form_params.h"

/* Logprobs as this API has them; the list is taken over. */
static json_t *wrapped(json_t *list) {
    return list != NULL ? json_pack("{s:o}", "content", list) : json_null();
}

static json_t *logprobs_json(struct reply_choice *c) {
    return wrapped(openai_take_logprobs(c));
}

/* ---- streamed ---------------------------------------------------------------------------- */

static json_t *chunk_frame(const struct reply *r, json_t *choices) {
    return openai_frame(r, "chatcmpl", "chat.completion.chunk", choices);
}

static void chunk(struct reply *r, int choice, json_t *delta, json_t *logprobs,
                  const char *finish) {
    json_t *one = json_pack("{s:i, s:o, s:o, s:s?}", "index", choice, "delta", delta,
                            "logprobs", logprobs, "finish_reason", finish);
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
              logprobs_json(c), NULL);
        break;
    case EVENT_REASONING:
        chunk(r, choice, json_pack("{s:o}", "reasoning_content", bytes_json(ev->text, ev->len)),
              json_null(), NULL);
        break;
    case EVENT_CALL_BEGIN:
        chunk(r, choice, call_begin(ev), json_null(), NULL);
        break;
    case EVENT_ARGUMENTS:
        chunk(r, choice, call_piece(ev), json_null(), NULL);
        break;
    case EVENT_DONE:
        chunk(r, choice, json_object(), logprobs_json(c), openai_finish(ev->finish));
        break;
    default:
        break;
    }
}

static void chat_event(struct reply *r, int choice, const struct service_event *ev) {
    struct reply_choice *c = &r->choices[choice];
    openai_note_logprobs(r, c, ev);
    if (r->stream)
        stream_event(r, choice, ev);
}

static void chat_end(struct reply *r) {
    openai_stream_end(r, chunk_frame(r, json_array()));
}

/* ---- whole ------------------------------------------------------------------------------- */

static json_t *calls_json(const struct reply_choice *c) {
    json_t *calls = json_array();
    for (size_t i = 0; i < c->n_calls; i++) {
        const struct reply_call *call = &c->calls[i];
        json_array_append_new(calls,
                              json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", call->id, "type",
                                        "function", "function", "name", call->name, "arguments",
                                        buf_json(&call->arguments)));
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
        json_t *logprobs = wrapped(json_incref(c->content_logprobs));
        json_array_append_new(choices, json_pack("{s:i, s:o, s:o, s:s}", "index", i, "message",
                                                 message_json(c), "logprobs", logprobs,
                                                 "finish_reason", openai_finish(c->finish)));
    }
    json_t *v = openai_frame(r, "chatcmpl", "chat.completion", choices);
    json_object_set_new(v, "usage", openai_usage(r));
    return v;
}

const struct dialect openai_chat_dialect = {.stream_type = "text/event-stream",
                                            .begin = chat_begin,
                                            .event = chat_event,
                                            .end = chat_end,
                                            .stream_error = openai_stream_error,
                                            .whole = chat_whole,
                                            .error = openai_error};

/* ---- the request ------------------------------------------------------------------------- */

/* "developer" is what OpenAI calls the system of late; templates know it by its old name. */
static void rename_developer(json_t *messages) {
    size_t i;
    json_t *m;
    json_array_foreach(messages, i, m) {
        const char *role = json_string_value(json_object_get(m, "role"));
        if (role != NULL && str_eq(role, "developer"))
            json_object_set_new(m, "role", json_string("system"));
    }
}

/* Only a model may have had nothing to say (but called a function), and the function that it
 * called. */
static void check_contents(struct params *p, const json_t *messages) {
    size_t i;
    json_t *m;
    json_array_foreach((json_t *)messages, i, m) {
        const char *role = json_string_value(json_object_get(m, "role"));
        const json_t *content = json_object_get(m, "content");
        if (role != NULL && !str_eq(role, "assistant") && !str_eq(role, "tool") &&
            (content == NULL || json_is_null(content)))
            params_fail(p, "messages", "messages[%zu].content is missing", i);
    }
}

static void param_messages(struct params *p, struct service_request *r) {
    param_array(p, "messages", &r->messages);
    if (p->st == ST_OK && json_array_size(r->messages) == 0)
        params_fail(p, "messages", "messages must be an array of at least one message");
    check_contents(p, r->messages);
    rename_developer((json_t *)r->messages);
    param_bool(p, "continue_final_message", &r->continue_last); /* vLLM's name */
    if (r->continue_last && !ends_with_answer(r->messages))
        params_fail(
            p, "continue_final_message",
            "continue_final_message needs a last message of the assistant with a content");
}

static void param_logprobs(struct params *p, struct service_request *r) {
    param_bool(p, "logprobs", &r->logprobs);
    param_int(p, "top_logprobs", 0, 20, &r->n_top);
    if (r->n_top > 0 && !r->logprobs)
        params_fail(p, "top_logprobs", "top_logprobs needs logprobs: true");
}

/* What would be missed if it were ignored. */
static void refuse_the_rest(struct params *p) {
    const json_t *modalities = NULL, *functions = NULL, *search = NULL, *what;
    size_t i;
    param_array(p, "functions", &functions);
    param_array(p, "modalities", &modalities);
    param_object(p, "web_search_options", &search);
    if (json_array_size(functions) > 0)
        params_fail(p, "functions", "functions is not supported; use tools, which followed it");
    json_array_foreach((json_t *)modalities, i,
                       what) if (!json_is_string(what) ||
                                 !str_eq(json_string_value(what), "text"))
        params_fail(p, "modalities", "modalities: only \"text\" comes out of this model");
    if (search != NULL)
        params_fail(p, "web_search_options", "web_search_options is not supported");
}

static void read_request(struct params *p, const struct service *s, struct service_request *r,
                         struct request_memory *m) {
    const json_t *format = NULL;
    const char *effort = NULL;
    service_request_init(r);
    param_model(p, s);
    param_messages(p, r);
    param_limit(p, "max_tokens", false, r);
    param_limit(p, "max_completion_tokens", false, r);
    param_int(p, "n", 1, 64, &r->n_choices);
    param_sampling(p, r, m);
    param_stops(p, "stop", r, m);
    param_logprobs(p, r);
    param_tools(p, r);
    param_object(p, "response_format", &format);
    param_form(p, "response_format", format, r);
    param_text(p, "reasoning_effort", &effort);
    openai_param_extra(p, effort, r);
    refuse_the_rest(p);
}

static void chat(struct service *s, struct http_request *http, struct params *p) {
    struct service_request r;
    struct request_memory m = {0};
    struct openai_stream stream = {0};
    read_request(p, s, &r, &m);
    openai_param_stream(p, &stream);
    struct reply *reply = NULL;
    if (p->st == ST_OK)
        reply =
            reply_open(s, http, &openai_chat_dialect, 1, r.n_choices, stream.on, sizeof stream);
    if (reply != NULL) {
        *(struct openai_stream *)reply->state = stream;
        reply_submit(reply, &r);
    }
    request_memory_deinit(&m);
}

void openai_chat(struct service *s, struct http_request *http) {
    openai_handle(s, http, chat);
}
