/* anthropic.c: the Messages API of Anthropic: /v1/messages and /v1/messages/count_tokens. */
#include "api/anthropic.h"

#include "base/mem.h"
#include "base/util.h"
#include "server/form_params.h"

/* ---- errors, usage ----------------------------------------------------------------------- */

static const char *error_type(int http_status) {
    switch (http_status) {
    case 401:
        return "authentication_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 500:
        return "api_error";
    case 503:
        return "overloaded_error";
    default:
        return "invalid_request_error";
    }
}

/* An object by which a program may decide instead of by the sentence. A tool runner of
 * Anthropic's library that gets this for its thread asks again with the whole conversation. */
static json_t *error_details(enum err_code code) {
    if (code != ERR_THREADS_UNSUPPORTED)
        return NULL;
    return json_pack("{s:s}", "error_code", "thread_unsupported_request");
}

json_t *anthropic_error(int http_status, enum err_code code, const char *sentence,
                        const char *field) {
    (void)field;
    return json_pack("{s:s, s:{s:s, s:o, s:o*}}", "type", "error", "error", "type",
                     error_type(http_status), "message", bytes_json(sentence, strlen(sentence)),
                     "details", error_details(code));
}

/* Cached tokens are not among input_tokens. What is cached depends on the machine. So a stream
 * says nothing of it before the end, since another machine may have to begin it with the same
 * bytes (gateway/gateway.h). */
static json_t *usage_json(const struct reply *r, bool at_end) {
    struct reply_usage u = reply_usage(r);
    size_t n_cached = at_end ? u.n_cached : 0;
    return json_pack("{s:I, s:I, s:i, s:I}", "input_tokens",
                     (json_int_t)(u.n_prompt - n_cached), "cache_read_input_tokens",
                     (json_int_t)n_cached, "cache_creation_input_tokens", 0, "output_tokens",
                     (json_int_t)u.n_generated);
}

static const char *stop_reason(const struct reply_choice *c) {
    if (c->finish == FINISH_LENGTH)
        return "max_tokens";
    if (c->finish == FINISH_CALLS)
        return "tool_use";
    return c->done.stop == ENGINE_STOP_STRING ? "stop_sequence" : "end_turn";
}

/* ---- streamed: a message of blocks, one open at a time ----------------------------------- */

enum block { BLOCK_NONE, BLOCK_TEXT, BLOCK_THINKING, BLOCK_CALL };

struct message_state {
    enum block open;
    int index; /* of the open block, or the next */
};

/* content and usage are taken over. */
static json_t *message_frame(const struct reply *r, json_t *content, const char *reason,
                             const char *stop_sequence, json_t *usage) {
    return json_pack("{s:o, s:s, s:s, s:s, s:o, s:s?, s:s?, s:o}", "id",
                     json_sprintf("msg_%s", r->id), "type", "message", "role", "assistant",
                     "model", service_facts(r->service)->name, "content", content,
                     "stop_reason", reason, "stop_sequence", stop_sequence, "usage", usage);
}

static void message_begin(struct reply *r) {
    reply_sse(r, "message_start",
              json_pack("{s:s, s:o}", "type", "message_start", "message",
                        message_frame(r, json_array(), NULL, NULL, usage_json(r, false))));
    reply_sse(r, "ping", json_pack("{s:s}", "type", "ping"));
}

static void delta(struct reply *r, json_t *piece) {
    const struct message_state *s = r->state;
    reply_sse(r, "content_block_delta",
              json_pack("{s:s, s:i, s:o}", "type", "content_block_delta", "index", s->index,
                        "delta", piece));
}

/* A thought ends with its signature, here an empty one. The AI SDK does not send back a thought
 * without a signature. */
static void close_block(struct reply *r) {
    struct message_state *s = r->state;
    if (s->open == BLOCK_NONE)
        return;
    if (s->open == BLOCK_THINKING)
        delta(r, json_pack("{s:s, s:s}", "type", "signature_delta", "signature", ""));
    reply_sse(r, "content_block_stop",
              json_pack("{s:s, s:i}", "type", "content_block_stop", "index", s->index++));
    s->open = BLOCK_NONE;
}

static void open_block(struct reply *r, enum block kind, json_t *block) {
    struct message_state *s = r->state;
    close_block(r);
    s->open = kind;
    reply_sse(r, "content_block_start",
              json_pack("{s:s, s:i, s:o}", "type", "content_block_start", "index", s->index,
                        "content_block", block));
}

static void put_text(struct reply *r, const struct service_event *ev) {
    const struct message_state *s = r->state;
    if (s->open != BLOCK_TEXT)
        open_block(r, BLOCK_TEXT, json_pack("{s:s, s:s}", "type", "text", "text", ""));
    delta(r,
          json_pack("{s:s, s:o}", "type", "text_delta", "text", bytes_json(ev->text, ev->len)));
}

static void put_thinking(struct reply *r, const struct service_event *ev) {
    const struct message_state *s = r->state;
    if (s->open != BLOCK_THINKING)
        open_block(
            r, BLOCK_THINKING,
            json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", ""));
    delta(r, json_pack("{s:s, s:o}", "type", "thinking_delta", "thinking",
                       bytes_json(ev->text, ev->len)));
}

static void message_event(struct reply *r, int choice, const struct service_event *ev) {
    (void)choice;
    if (!r->stream)
        return;
    switch (ev->kind) {
    case EVENT_CONTENT:
        put_text(r, ev);
        break;
    case EVENT_REASONING:
        put_thinking(r, ev);
        break;
    case EVENT_CALL_BEGIN:
        open_block(r, BLOCK_CALL,
                   json_pack("{s:s, s:s, s:o, s:{}}", "type", "tool_use", "id", ev->id, "name",
                             bytes_json(ev->text, ev->len), "input"));
        break;
    case EVENT_ARGUMENTS:
        delta(r, json_pack("{s:s, s:o}", "type", "input_json_delta", "partial_json",
                           bytes_json(ev->text, ev->len)));
        break;
    case EVENT_CALL_END:
        close_block(r);
        break;
    default:
        break;
    }
}

static void message_end(struct reply *r) {
    const struct reply_choice *c = &r->choices[0];
    close_block(r);
    reply_sse(r, "message_delta",
              json_pack("{s:s, s:{s:s, s:s?}, s:o}", "type", "message_delta", "delta",
                        "stop_reason", stop_reason(c), "stop_sequence", c->done.stop_string,
                        "usage", usage_json(r, true)));
    reply_sse(r, "message_stop", json_pack("{s:s}", "type", "message_stop"));
}

static void message_error(struct reply *r, enum status st, const struct err *why) {
    reply_sse(r, "error", anthropic_error(http_status_of(st), why->code, why->text, ""));
}

/* ---- whole ------------------------------------------------------------------------------- */

static json_t *message_whole(struct reply *r) {
    const struct reply_choice *c = &r->choices[0];
    json_t *content = json_array();
    if (c->reasoning.len > 0)
        json_array_append_new(content,
                              json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
                                        buf_json(&c->reasoning), "signature", ""));
    if (c->content.len > 0 || c->n_calls == 0)
        json_array_append_new(
            content, json_pack("{s:s, s:o}", "type", "text", "text", buf_json(&c->content)));
    for (size_t i = 0; i < c->n_calls; i++)
        json_array_append_new(content, json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use",
                                                 "id", c->calls[i].id, "name", c->calls[i].name,
                                                 "input", reply_arguments(&c->calls[i])));
    return message_frame(r, content, stop_reason(c), c->done.stop_string, usage_json(r, true));
}

const struct dialect anthropic_dialect = {.stream_type = "text/event-stream",
                                          .id_header = "request-id",
                                          .begin = message_begin,
                                          .event = message_event,
                                          .end = message_end,
                                          .stream_error = message_error,
                                          .whole = message_whole,
                                          .error = anthropic_error};

/* ---- models ------------------------------------------------------------------------------ */

json_t *anthropic_model(const struct service *s) {
    const struct service_facts *f = service_facts(s);
    return json_pack("{s:s, s:s, s:s, s:o}", "type", "model", "id", f->name, "display_name",
                     f->name, "created_at", time_json(f->file_modified));
}

json_t *anthropic_models(const struct service *s) {
    const char *name = service_facts(s)->name;
    return json_pack("{s:[o], s:b, s:s, s:s}", "data", anthropic_model(s), "has_more", 0,
                     "first_id", name, "last_id", name);
}

/* ---- the request ------------------------------------------------------------------------- */

/* What the service only borrows. */
struct owned {
    json_t *messages, *tools, *extra;
    struct request_memory memory;
};

static void owned_deinit(struct owned *o) {
    json_decref(o->messages);
    json_decref(o->tools);
    json_decref(o->extra);
    request_memory_deinit(&o->memory);
}

static void param_choice_of_tools(struct params *p, struct service_request *r) {
    const json_t *choice = NULL;
    param_object(p, "tool_choice", &choice);
    if (choice == NULL)
        return;
    const char *type = json_string_value(json_object_get(choice, "type"));
    r->one_call = json_is_true(json_object_get(choice, "disable_parallel_tool_use"));
    if (type != NULL && str_eq(type, "none"))
        r->tool_choice = TOOLS_NONE;
    else if (type != NULL && (str_eq(type, "any") || str_eq(type, "tool")))
        r->tool_choice = TOOLS_REQUIRED;
    else if (type == NULL || !str_eq(type, "auto"))
        params_fail(p, "tool_choice",
                    "tool_choice.type must be \"auto\", \"any\", \"tool\" or \"none\"");
    if (type != NULL && str_eq(type, "tool")) {
        r->tool_name = json_string_value(json_object_get(choice, "name"));
        if (r->tool_name == NULL)
            params_fail(p, "tool_choice", "tool_choice.name must be a string");
    }
    tool_choice_check(p, r);
}

/* What templates know as enable_thinking and reasoning_effort, which has no more than "high". An
 * effort does not turn thinking on here: it is one of the whole answer. NULL: neither is said. */
static json_t *thinking_of(struct params *p) {
    const json_t *thinking = NULL, *config = NULL;
    param_object(p, "thinking", &thinking);
    param_object(p, "output_config", &config);
    const char *type = json_string_value(json_object_get(thinking, "type"));
    const char *effort = json_string_value(json_object_get(config, "effort"));
    if (type == NULL && effort == NULL)
        return NULL;
    json_t *extra = json_object();
    if (type != NULL)
        json_object_set_new(extra, "enable_thinking", json_boolean(!str_eq(type, "disabled")));
    if (effort != NULL)
        json_object_set_new(extra, "reasoning_effort",
                            json_string(str_list_has("xhigh,max", effort) ? "high" : effort));
    return extra;
}

/* A schema for the answer: output_config.format, at first called output_format. */
static void param_output(struct params *p, struct service_request *r) {
    const json_t *config = NULL, *format = NULL;
    param_object(p, "output_config", &config);
    param_object(p, "output_format", &format);
    const json_t *newer = json_object_get(config, "format");
    if (newer != NULL && !json_is_null(newer))
        param_form(p, "output_config.format", newer, r);
    else
        param_form(p, "output_format", format, r);
}

/* Conversations that a server stores. A request that continues one has only the new
 * messages, so answering it alone would answer something else. */
static void refuse_thread(struct params *p) {
    const json_t *thread = NULL;
    param_object(p, "thread", &thread);
    if (thread != NULL)
        params_fail_code(p, ST_BAD_INPUT, ERR_THREADS_UNSUPPORTED, "thread",
                         "thread is not supported; send the whole conversation without it");
}

static void read_conversation(struct params *p, const struct service *s,
                              struct service_request *r, struct owned *o) {
    service_request_init(r);
    param_model(p, s);
    refuse_thread(p);
    r->messages = o->messages = anthropic_messages_of(p);
    r->continue_last = ends_with_answer(r->messages);
    r->tools = o->tools = anthropic_tools_of(p);
    r->extra = o->extra = thinking_of(p);
    param_choice_of_tools(p, r);
}

static void refuse(struct http_request *http, const struct params *p) {
    reply_error(http, &anthropic_dialect, p->st, &p->err, p->field);
}

static void messages(struct service *s, struct http_request *http) {
    struct params p;
    struct service_request r;
    struct owned o = {0};
    bool stream = false;
    if (params_init(&p, http)) {
        read_conversation(&p, s, &r, &o);
        param_limit(&p, "max_tokens", false, &r);
        if (!json_is_number(json_object_get(p.body, "max_tokens")))
            params_fail(&p, "max_tokens", "max_tokens is missing");
        param_sampling(&p, &r, &o.memory);
        param_stops(&p, "stop_sequences", &r, &o.memory);
        param_output(&p, &r);
        param_bool(&p, "stream", &stream);
    }
    if (p.st != ST_OK) {
        refuse(http, &p);
    } else {
        struct reply *reply =
            reply_open(s, http, &anthropic_dialect, 1, 1, stream, sizeof(struct message_state));
        if (reply != NULL)
            reply_submit(reply, &r);
    }
    owned_deinit(&o);
    params_deinit(&p);
}

static void count_tokens(struct service *s, struct http_request *http) {
    struct params p;
    struct service_request r;
    struct owned o = {0};
    int32_t *ids = NULL;
    size_t n;
    if (params_init(&p, http))
        read_conversation(&p, s, &r, &o);
    if (p.st == ST_OK)
        p.st = service_prompt(s, &r, &ids, &n, &p.err);
    if (p.st == ST_OK)
        reply_json(http, 200, json_pack("{s:I}", "input_tokens", (json_int_t)n));
    else
        refuse(http, &p);
    mem_free(ids);
    owned_deinit(&o);
    params_deinit(&p);
}

const struct route anthropic_routes[] = {{"POST", "/v1/messages", messages},
                                         {"POST", "/v1/messages/count_tokens", count_tokens},
                                         {NULL, NULL, NULL}};
