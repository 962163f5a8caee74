/* openai_responses.c: /v1/responses. An answer is a list of items: thoughts, messages, calls.
 * At most one is open at a time; its content is a part of what the reply stores anyway. The
 * same code makes the list for a stream and for a whole answer. A stream sends each step as an
 * event.
 *
 * Unless `store` is false, a response is stored with its conversation (memo.h), so the next
 * request can continue from its id. One in the background is a job (background.h) until then. */
#include "api/openai.h"
#include "api/openai_items.h"
#include "base/mem.h"
#include "base/util.h"
#include "server/form_params.h"
#include "server/memo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum item_kind { ITEM_NONE, ITEM_REASONING, ITEM_MESSAGE, ITEM_CALL, ITEM_CUSTOM };

struct response_state {
    json_t *response; /* owned: the object as it is told; output and status grow */
    json_t *items; /* owned: the conversation before the answer; NULL: nothing is remembered */
    int n_events;
    enum item_kind open;
    json_t *item;               /* owned: the open one, as it was begun */
    size_t begun;               /* where its text begins in the choice's */
    json_t *logprobs;           /* owned: of the open message */
    bool carry;                 /* thoughts come along as encrypted_content */
    bool summarize;             /* thoughts are told as their summaries */
    int owner;                  /* http_key() of the request */
    struct background_job *job; /* NULL: it is its client's */
};

static void state_deinit(void *state) {
    struct response_state *s = state;
    json_decref(s->response);
    json_decref(s->items);
    json_decref(s->item);
    json_decref(s->logprobs);
}

static const char *type_of(const json_t *tool) {
    const char *type = json_string_value(json_object_get(tool, "type"));
    return type != NULL ? type : json_kind(json_object_get(tool, "type"));
}

/* ---- events ------------------------------------------------------------------------------ */

static void tell_job(struct background_job *job, const char *type, json_t *v) {
    struct buf event = {0};
    buf_add_sse(&event, type, v);
    if (!event.failed)
        background_tell(job, event.bytes, event.len);
    buf_free(&event);
}

/* fields is taken over. */
static void tell(struct reply *r, const char *type, json_t *fields) {
    struct response_state *s = r->state;
    if (r->stream) {
        json_t *v = json_pack("{s:s, s:i}", "type", type, "sequence_number", s->n_events++);
        json_object_update(v, fields);
        if (s->job != NULL)
            tell_job(s->job, type, v);
        else
            reply_sse(r, type, v);
    }
    json_decref(fields);
}

static void tell_response(struct reply *r, const char *type) {
    const struct response_state *s = r->state;
    tell(r, type, json_pack("{s:O}", "response", s->response));
}

/* ---- items ------------------------------------------------------------------------------- */

static json_t *output_of(const struct response_state *s) {
    return json_object_get(s->response, "output");
}

static json_int_t item_index(const struct response_state *s) {
    return (json_int_t)json_array_size(output_of(s));
}

/* Where an event of the open item happens. */
static json_t *place(const struct response_state *s) {
    return json_pack("{s:O, s:I}", "item_id", json_object_get(s->item, "id"), "output_index",
                     item_index(s));
}

/* Whether the open item is a thought that is told as its summary. */
static bool in_summary(const struct response_state *s) {
    return s->open == ITEM_REASONING && s->summarize;
}

static json_t *part_place(const struct response_state *s) {
    json_t *v = place(s);
    json_object_set_new(v, in_summary(s) ? "summary_index" : "content_index", json_integer(0));
    return v;
}

static json_t *with(json_t *object, const char *key, json_t *value) {
    json_object_set_new(object, key, value);
    return object;
}

/* The only part of a message or a thought. text and logprobs are taken over; logprobs may be
 * NULL. */
static json_t *part_json(const struct response_state *s, json_t *text, json_t *logprobs) {
    if (s->open == ITEM_REASONING)
        return json_pack("{s:s, s:o}", "type", s->summarize ? "summary_text" : "reasoning_text",
                         "text", text);
    return json_pack("{s:s, s:o, s:[], s:o}", "type", "output_text", "text", text,
                     "annotations", "logprobs", logprobs != NULL ? logprobs : json_array());
}

/* item is taken over and gets its id. */
static void begin_item(struct reply *r, enum item_kind kind, const char *id_prefix,
                       json_t *item) {
    struct response_state *s = r->state;
    json_object_set_new(item, "id",
                        json_sprintf("%s_%s%02d", id_prefix, r->id, (int)item_index(s)));
    json_object_set_new(item, "status", json_string("in_progress"));
    s->open = kind;
    s->item = item;
    tell(r, "response.output_item.added",
         json_pack("{s:I, s:O}", "output_index", item_index(s), "item", item));
    if (kind == ITEM_MESSAGE || kind == ITEM_REASONING)
        tell(r,
             in_summary(s) ? "response.reasoning_summary_part.added"
                           : "response.content_part.added",
             with(part_place(s), "part", part_json(s, json_string(""), NULL)));
}

static void end_text(struct reply *r, const struct buf *text, const char *type) {
    struct response_state *s = r->state;
    json_t *whole = bytes_json(text->bytes + s->begun, text->len - s->begun);
    json_t *done = with(part_place(s), "text", json_incref(whole));
    if (s->open == ITEM_MESSAGE)
        json_object_set_new(done, "logprobs",
                            s->logprobs != NULL ? json_incref(s->logprobs) : json_array());
    json_t *part = part_json(s, whole, s->logprobs);
    s->logprobs = NULL;
    tell(r, type, done);
    tell(r,
         in_summary(s) ? "response.reasoning_summary_part.done" : "response.content_part.done",
         with(part_place(s), "part", json_incref(part)));
    json_object_set_new(s->item, in_summary(s) ? "summary" : "content", json_pack("[o]", part));
}

static void end_call(struct reply *r, const struct reply_choice *c) {
    struct response_state *s = r->state;
    json_t *arguments = buf_json(&c->calls[c->n_calls - 1].arguments);
    json_t *done = with(place(s), "arguments", json_incref(arguments));
    json_object_set(done, "name", json_object_get(s->item, "name"));
    tell(r, "response.function_call_arguments.done", done);
    json_object_set_new(s->item, "arguments", arguments);
}

/* The model has written the text as the one argument of a function: it is told when it is whole. */
static void end_custom(struct reply *r, const struct reply_choice *c) {
    struct response_state *s = r->state;
    json_t *input = items_custom_input(&c->calls[c->n_calls - 1].arguments);
    tell(r, "response.custom_tool_call_input.delta",
         with(place(s), "delta", json_incref(input)));
    tell(r, "response.custom_tool_call_input.done",
         with(place(s), "input", json_incref(input)));
    json_object_set_new(s->item, "input", input);
}

/* Programs that let nothing be stored send back no other form of a thought. */
static void carry_thought(json_t *item, const char *key) {
    const json_t *part = json_array_get(json_object_get(item, key), 0);
    json_object_set_new(item, "encrypted_content",
                        items_carried(json_object_get(part, "text")));
}

static void end_item(struct reply *r, const char *status) {
    struct response_state *s = r->state;
    const struct reply_choice *c = &r->choices[0];
    switch (s->open) {
    case ITEM_NONE:
        return;
    case ITEM_MESSAGE:
        end_text(r, &c->content, "response.output_text.done");
        break;
    case ITEM_REASONING:
        end_text(r, &c->reasoning,
                 s->summarize ? "response.reasoning_summary_text.done"
                              : "response.reasoning_text.done");
        if (s->carry)
            carry_thought(s->item, s->summarize ? "summary" : "content");
        break;
    case ITEM_CALL:
        end_call(r, c);
        break;
    case ITEM_CUSTOM:
        end_custom(r, c);
        break;
    }
    json_object_set_new(s->item, "status", json_string(status));
    tell(r, "response.output_item.done",
         json_pack("{s:I, s:O}", "output_index", item_index(s), "item", s->item));
    json_array_append_new(output_of(s), s->item);
    s->item = NULL;
    s->open = ITEM_NONE;
}

/* ---- what the service says --------------------------------------------------------------- */

static void put_content(struct reply *r, struct reply_choice *c,
                        const struct service_event *ev) {
    struct response_state *s = r->state;
    json_t *logprobs = openai_take_logprobs(c);
    if (s->open != ITEM_MESSAGE) {
        end_item(r, "completed");
        s->begun = c->content.len - ev->len;
        begin_item(
            r, ITEM_MESSAGE, "msg",
            json_pack("{s:s, s:s, s:[]}", "type", "message", "role", "assistant", "content"));
    }
    if (logprobs != NULL && s->logprobs == NULL)
        s->logprobs = json_array();
    if (logprobs != NULL)
        json_array_extend(s->logprobs, logprobs);
    json_t *delta = with(part_place(s), "delta", bytes_json(ev->text, ev->len));
    tell(r, "response.output_text.delta",
         with(delta, "logprobs", logprobs != NULL ? logprobs : json_array()));
}

static void put_reasoning(struct reply *r, const struct reply_choice *c,
                          const struct service_event *ev) {
    struct response_state *s = r->state;
    if (s->open != ITEM_REASONING) {
        end_item(r, "completed");
        s->begun = c->reasoning.len - ev->len;
        begin_item(r, ITEM_REASONING, "rs",
                   json_pack("{s:s, s:[], s:[]}", "type", "reasoning", "summary", "content"));
    }
    tell(r,
         s->summarize ? "response.reasoning_summary_text.delta"
                      : "response.reasoning_text.delta",
         with(part_place(s), "delta", bytes_json(ev->text, ev->len)));
}

/* The namespace of a function, as the request had it; NULL: none. */
static const char *namespace_of(const struct response_state *s, const char *function) {
    const json_t *tool, *inner;
    size_t i, k;
    json_array_foreach(json_object_get(s->response, "tools"), i, tool) {
        json_array_foreach(json_object_get(tool, "tools"), k, inner) {
            const char *name = json_string_value(json_object_get(inner, "name"));
            if (name != NULL && str_eq(name, function))
                return json_string_value(json_object_get(tool, "name"));
        }
    }
    return NULL;
}

static bool is_custom(const struct response_state *s, const json_t *name) {
    const json_t *tool;
    size_t i;
    json_array_foreach(json_object_get(s->response, "tools"), i, tool) {
        if (str_eq(type_of(tool), "custom") && json_equal(json_object_get(tool, "name"), name))
            return true;
    }
    return false;
}

static void begin_call(struct reply *r, const struct service_event *ev) {
    json_t *call = json_pack("{s:s, s:s, s:o, s:s}", "type", "function_call", "call_id", ev->id,
                             "name", bytes_json(ev->text, ev->len), "arguments", "");
    const char *name = json_string_value(json_object_get(call, "name"));
    if (is_custom(r->state, json_object_get(call, "name"))) {
        json_object_set_new(call, "type", json_string("custom_tool_call"));
        json_object_del(call, "arguments");
        json_object_set_new(call, "input", json_string(""));
        begin_item(r, ITEM_CUSTOM, "ctc", call);
        return;
    }
    const char *space = name != NULL ? namespace_of(r->state, name) : NULL;
    if (space != NULL)
        json_object_set_new(call, "namespace", json_string(space));
    begin_item(r, ITEM_CALL, "fc", call);
}

static void response_event(struct reply *r, int choice, const struct service_event *ev) {
    const struct response_state *s = r->state;
    struct reply_choice *c = &r->choices[choice];
    if (ev->kind == EVENT_TOKEN) {
        openai_keep_logprob(c, ev);
        return;
    }
    if (ev->kind != EVENT_CONTENT && ev->kind != EVENT_DONE)
        json_decref(openai_take_logprobs(c)); /* they are for the message's tokens */
    switch (ev->kind) {
    case EVENT_CONTENT:
        put_content(r, c, ev);
        break;
    case EVENT_REASONING:
        put_reasoning(r, c, ev);
        break;
    case EVENT_CALL_BEGIN:
        end_item(r, "completed");
        begin_call(r, ev);
        break;
    case EVENT_ARGUMENTS:
        if (s->open == ITEM_CALL)
            tell(r, "response.function_call_arguments.delta",
                 with(place(s), "delta", bytes_json(ev->text, ev->len)));
        break;
    case EVENT_CALL_END:
        end_item(r, "completed");
        break;
    case EVENT_DONE:
        end_item(r, ev->finish == FINISH_LENGTH ? "incomplete" : "completed");
        break;
    default:
        break;
    }
}

/* ---- the end ----------------------------------------------------------------------------- */

static json_t *usage_json(const struct reply *r) {
    struct reply_usage u = reply_usage(r);
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens",
                     (json_int_t)u.n_prompt, "input_tokens_details", "cached_tokens",
                     (json_int_t)u.n_cached, "output_tokens", (json_int_t)u.n_generated,
                     "output_tokens_details", "reasoning_tokens", (json_int_t)u.n_reasoning,
                     "total_tokens", (json_int_t)(u.n_prompt + u.n_generated));
}

/* As text (mem_free); NULL: no memory. */
static char *text_of(const json_t *v) {
    struct buf text = {0};
    if (buf_add_json(&text, json_incref((json_t *)v)))
        return text.bytes;
    buf_free(&text);
    return NULL;
}

static void set_status(const struct response_state *s, const char *status) {
    json_object_set_new(s->response, "status", json_string(status));
}

static void remember(const struct reply *r) {
    const struct response_state *s = r->state;
    if (s->items == NULL)
        return;
    json_array_extend(s->items, output_of(s));
    json_t *v = json_pack("{s:O, s:O}", "response", s->response, "items", s->items);
    char *text = v != NULL ? text_of(v) : NULL;
    json_decref(v);
    if (text != NULL)
        memo_put(service_memo(r->service),
                 json_string_value(json_object_get(s->response, "id")), s->owner, text);
}

/* It is remembered before it is no job any more, so that it can always be found. */
static void end_job(const struct reply *r) {
    struct response_state *s = r->state;
    struct background_job *job = s->job;
    if (job == NULL)
        return;
    s->job = NULL;
    if (!background_end(job, text_of(s->response)))
        (void)memo_forget(service_memo(r->service),
                          json_string_value(json_object_get(s->response, "id")), s->owner);
}

/* False: cut off by a limit. */
static bool conclude(struct reply *r) {
    struct response_state *s = r->state;
    bool cut = r->choices[0].finish == FINISH_LENGTH;
    set_status(s, cut ? "incomplete" : "completed");
    if (cut)
        json_object_set_new(s->response, "incomplete_details",
                            json_pack("{s:s}", "reason", "max_output_tokens"));
    json_object_set_new(s->response, "usage", usage_json(r));
    remember(r);
    return !cut;
}

static void response_begin(struct reply *r) {
    const struct response_state *s = r->state;
    if (s->job == NULL) {
        tell_response(r, "response.created");
    } else {
        set_status(s, "in_progress");
        background_show(s->job, text_of(s->response));
    }
    tell_response(r, "response.in_progress");
}

static void response_end(struct reply *r) {
    tell_response(r, conclude(r) ? "response.completed" : "response.incomplete");
    end_job(r);
}

/* What there is of it stays, too. */
static void end_early(struct reply *r) {
    struct response_state *s = r->state;
    end_item(r, "incomplete");
    json_object_set_new(s->response, "usage", usage_json(r));
    remember(r);
}

static void response_error(struct reply *r, enum status st, const struct err *why) {
    struct response_state *s = r->state;
    bool cancelled = s->job != NULL && background_is_cancelled(s->job);
    (void)st;
    set_status(s, cancelled ? "cancelled" : "failed");
    if (!cancelled)
        json_object_set_new(
            s->response, "error",
            json_pack("{s:s, s:s}", "code", "server_error", "message", why->text));
    if (s->job != NULL)
        end_early(r);
    tell_response(r, cancelled ? "response.cancelled" : "response.failed");
    end_job(r);
}

static json_t *response_whole(struct reply *r) {
    const struct response_state *s = r->state;
    conclude(r);
    return json_incref(s->response);
}

const struct dialect openai_response_dialect = {.stream_type = "text/event-stream",
                                                .begin = response_begin,
                                                .event = response_event,
                                                .end = response_end,
                                                .stream_error = response_error,
                                                .whole = response_whole,
                                                .state_deinit = state_deinit,
                                                .error = openai_error};

/* ---- the request ------------------------------------------------------------------------- */

/* What the reply's state takes over, and what the service borrows. */
struct conversation {
    json_t *items, *messages, *tools;
    bool store, stream, carry, summarize, background;
    int owner; /* http_key() */
};

/* An item of an answer that is remembered; outputs: those that this request has asked for
 * already, by response. NULL: it is not known, or not any more. */
static json_t *recall_item(struct service *s, int owner, json_t *outputs, const char *id) {
    enum { N_ID = sizeof((struct reply *)NULL)->id - 1 };
    char response[N_ID + sizeof "resp_"];
    const char *own = strchr(id, '_');
    json_t *item;
    size_t i;
    if (own == NULL || strlen(own + 1) < N_ID)
        return NULL;
    snprintf(response, sizeof response, "resp_%.*s", (int)N_ID, own + 1);
    if (json_object_get(outputs, response) == NULL) {
        json_t *v = openai_recall(s, response, owner);
        json_t *output = json_object_get(json_object_get(v, "response"), "output");
        json_object_set(outputs, response, output);
        json_decref(v);
    }
    json_array_foreach(json_object_get(outputs, response), i, item) {
        const char *its = json_string_value(json_object_get(item, "id"));
        if (its != NULL && str_eq(its, id))
            return item;
    }
    return NULL;
}

/* In the place of references what they refer to. */
static void param_references(struct params *p, struct service *s, int owner) {
    json_t *input = json_object_get(p->body, "input"), *item, *outputs = json_object();
    size_t i;
    json_array_foreach(input, i, item) {
        const char *id = json_string_value(json_object_get(item, "id"));
        if (p->st != ST_OK || !str_eq(type_of(item), "item_reference"))
            continue;
        json_t *known = id != NULL ? recall_item(s, owner, outputs, id) : NULL;
        if (known != NULL)
            json_array_set(input, i, known);
        else
            params_fail(p, "input",
                        "input[%zu]: the item \"%.60s\" is not known here, or not any more", i,
                        id != NULL ? id : "");
    }
    json_decref(outputs);
}

static void param_previous(struct params *p, struct service *s, struct conversation *c) {
    const char *id = NULL;
    param_text(p, "previous_response_id", &id);
    if (p->st != ST_OK || id == NULL)
        return;
    json_t *before = openai_recall(s, id, c->owner);
    if (before == NULL)
        params_fail_code(p, ST_BAD_INPUT, ERR_RESPONSE_UNKNOWN, "previous_response_id",
                         "the response \"%.60s\" is not known here, or not any more", id);
    else if (openai_is_under_way(json_object_get(before, "response")))
        params_fail(p, "previous_response_id",
                    "the response \"%.60s\" is still under way: it cannot be continued yet",
                    id);
    json_array_extend(c->items, json_object_get(before, "items"));
    json_decref(before);
}

static void param_text_form(struct params *p, struct service_request *r) {
    const json_t *text = NULL;
    param_object(p, "text", &text);
    param_form(p, "text.format", json_object_get(text, "format"), r);
}

static void param_reasoning(struct params *p, struct service_request *r,
                            struct conversation *c) {
    const json_t *reasoning = NULL, *summary;
    param_object(p, "reasoning", &reasoning);
    summary = json_object_get(reasoning, "summary");
    if (summary == NULL)
        summary = json_object_get(reasoning, "generate_summary"); /* its older name */
    c->summarize = json_is_string(summary) && !str_eq(json_string_value(summary), "none");
    openai_param_extra(p, json_string_value(json_object_get(reasoning, "effort")), r);
}

/* Requests ask for logprobs and thoughts by name, in a list whose other entries do not apply
 * here. */
static void param_include(struct params *p, struct service_request *r, struct conversation *c) {
    const json_t *include = NULL, *what;
    size_t i;
    param_array(p, "include", &include);
    param_int(p, "top_logprobs", 0, 20, &r->n_top);
    json_array_foreach((json_t *)include, i, what) {
        const char *name = json_string_value(what);
        if (name != NULL && str_eq(name, "message.output_text.logprobs"))
            r->logprobs = true;
        if (name != NULL && str_eq(name, "reasoning.encrypted_content"))
            c->carry = true;
    }
    r->n_top = r->logprobs ? r->n_top : 0;
}

static void param_background(struct params *p, struct conversation *c) {
    param_bool(p, "background", &c->background);
    if (c->background && !c->store)
        params_fail(p, "background",
                    "background needs store: nobody could ask for the response otherwise");
}

static void refuse_the_rest(struct params *p) {
    static const char *const nulls[] = {"conversation", "prompt"};
    for (size_t i = 0; i < ARRAY_LEN(nulls); i++) {
        const json_t *v = json_object_get(p->body, nulls[i]);
        if (v != NULL && !json_is_null(v))
            params_fail(p, nulls[i], "%s is not supported", nulls[i]);
    }
}

static void read_request(struct params *p, struct service *s, struct service_request *r,
                         struct request_memory *m, struct conversation *c) {
    const char *instructions = NULL;
    service_request_init(r);
    c->items = json_array();
    c->store = true;
    param_model(p, s);
    param_limit(p, "max_output_tokens", false, r);
    param_bool(p, "store", &c->store);
    param_bool(p, "stream", &c->stream);
    param_background(p, c);
    param_sampling(p, r, m);
    r->tools = c->tools = items_tools(p);
    param_tool_choice(p, r);
    param_text_form(p, r);
    param_reasoning(p, r, c);
    param_include(p, r, c);
    refuse_the_rest(p);
    param_text(p, "instructions", &instructions);
    param_previous(p, s, c);
    param_references(p, s, c->owner);
    if (p->st == ST_OK)
        items_add_input(p, c->items);
    if (p->st != ST_OK)
        return;
    r->messages = c->messages = items_messages(c->items, instructions);
    if (json_array_size(r->messages) == 0)
        params_fail(p, "input", "input must have at least one item");
}

/* A request's field as it was given, or what stands for its absence. */
static void echo(json_t *response, const struct params *p, const char *key, json_t *otherwise) {
    json_t *v = json_object_get(p->body, key);
    if (v != NULL && !json_is_null(v)) {
        json_object_set(response, key, v);
        json_decref(otherwise);
    } else {
        json_object_set_new(response, key, otherwise);
    }
}

/* The float as it was meant: 0.8 rather than 0.800000012. */
static json_t *short_real(float v) {
    return json_real(round((double)v * 1e6) / 1e6);
}

static json_t *response_json(const struct reply *r, const struct params *p,
                             const struct service_request *request,
                             const struct conversation *c) {
    json_t *v =
        json_pack("{s:o, s:s, s:I, s:s, s:b, s:n, s:n, s:s, s:[], s:n}", "id",
                  json_sprintf("resp_%s", r->id), "object", "response", "created_at",
                  (json_int_t)r->created, "status", c->background ? "queued" : "in_progress",
                  "background", c->background, "error", "incomplete_details", "model",
                  service_facts(r->service)->name, "output", "usage");
    static const char *const nullable[] = {"instructions", "max_output_tokens",
                                           "max_tool_calls", "previous_response_id", "user"};
    for (size_t i = 0; i < ARRAY_LEN(nullable); i++)
        echo(v, p, nullable[i], json_null());
    echo(v, p, "tools", json_array());
    echo(v, p, "tool_choice", json_string("auto"));
    echo(v, p, "parallel_tool_calls", json_true());
    echo(v, p, "text", json_pack("{s:{s:s}}", "format", "type", "text"));
    echo(v, p, "reasoning", json_pack("{s:n, s:n}", "effort", "summary"));
    echo(v, p, "metadata", json_object());
    json_object_set_new(v, "truncation", json_string("disabled")); /* whatever was asked */
    echo(v, p, "temperature", short_real(request->sampling.base.temperature));
    echo(v, p, "top_p", short_real(request->sampling.base.top_p));
    echo(v, p, "top_logprobs", json_integer(0));
    json_object_set_new(v, "store", json_boolean(c->store));
    return v;
}

static void prepare(struct reply *reply, const struct params *p,
                    const struct service_request *r, const struct conversation *c) {
    struct response_state *state = reply->state;
    state->response = response_json(reply, p, r, c);
    state->items = c->store ? json_incref(c->items) : NULL;
    state->carry = c->carry;
    state->summarize = c->summarize;
    state->owner = c->owner;
}

static void answer(struct service *s, struct http_request *http, const struct params *p,
                   struct service_request *r, const struct conversation *c) {
    struct reply *reply = reply_open(s, http, &openai_response_dialect, 1, 1, c->stream,
                                     sizeof(struct response_state));
    if (reply == NULL)
        return;
    prepare(reply, p, r, c);
    reply_submit(reply, r);
}

/* ---- in the background ------------------------------------------------------------------- */

static void cancel_reply(void *reply) {
    reply_cancel(reply);
}

/* A request that is asked again, under the same name, finds its job: *is_new is false. */
static enum status begin_job(struct reply *reply, const struct conversation *c, bool *is_new,
                             struct err *err) {
    struct response_state *s = reply->state;
    const struct background_start start = {
        .id = json_string_value(json_object_get(s->response, "id")),
        .owner = c->owner,
        .text = text_of(s->response),
        .conversation = text_of(c->items),
        .events = c->stream,
        .cancel = cancel_reply,
        .user = reply};
    TRY(background_begin(service_background(reply->service), &start, &s->job, err));
    *is_new = s->job != NULL;
    return ST_OK;
}

static enum status submit_job(struct reply *reply, struct service_request *r,
                              const struct conversation *c, struct err *err) {
    bool is_new = false;
    enum status st = begin_job(reply, c, &is_new, err);
    if (st != ST_OK || !is_new) {
        reply_drop(reply);
        return st;
    }
    tell_response(reply, "response.created");
    tell_response(reply, "response.queued");
    return reply_submit_alone(reply, r, err);
}

/* What was refused at once is no response. */
static void forget_job(struct service *s, const char *id, int owner) {
    (void)background_forget(service_background(s), id, owner);
    (void)memo_forget(service_memo(s), id, owner);
}

static void answer_later(struct service *s, struct http_request *http, struct params *p,
                         struct service_request *r, const struct conversation *c) {
    struct reply *reply = reply_open_alone(s, http, &openai_response_dialect, c->stream,
                                           sizeof(struct response_state));
    if (reply == NULL)
        return;
    prepare(reply, p, r, c);
    json_t *queued = json_deep_copy(((struct response_state *)reply->state)->response);
    char *id = mem_strdup(json_string_value(json_object_get(queued, "id")));
    p->st = submit_job(reply, r, c, &p->err);
    if (p->st != ST_OK)
        forget_job(s, id, c->owner);
    else if (c->stream)
        p->st = background_follow(service_background(s), id, c->owner, -1, http, &p->err);
    else
        reply_json(http, 200, json_incref(queued));
    json_decref(queued);
    mem_free(id);
}

/* ---- routes ------------------------------------------------------------------------------ */

static void conversation_deinit(struct conversation *c) {
    json_decref(c->items);
    json_decref(c->messages);
    json_decref(c->tools);
}

static void respond(struct service *s, struct http_request *http, struct params *p) {
    struct service_request r;
    struct request_memory m = {0};
    struct conversation c = {0};
    c.owner = http_key(http);
    read_request(p, s, &r, &m, &c);
    if (p->st == ST_OK && c.background)
        answer_later(s, http, p, &r, &c);
    else if (p->st == ST_OK)
        answer(s, http, p, &r, &c);
    conversation_deinit(&c);
    request_memory_deinit(&m);
}

void openai_responses(struct service *s, struct http_request *http) {
    openai_handle(s, http, respond);
}

static void count(struct service *s, struct http_request *http, struct params *p) {
    struct service_request r;
    struct request_memory m = {0};
    struct conversation c = {0};
    int32_t *ids = NULL;
    size_t n;
    c.owner = http_key(http);
    read_request(p, s, &r, &m, &c);
    if (p->st == ST_OK)
        p->st = service_prompt(s, &r, &ids, &n, &p->err);
    if (p->st == ST_OK)
        reply_json(http, 200,
                   json_pack("{s:s, s:I}", "object", "response.input_tokens", "input_tokens",
                             (json_int_t)n));
    mem_free(ids);
    conversation_deinit(&c);
    request_memory_deinit(&m);
}

void openai_response_count(struct service *s, struct http_request *http) {
    openai_handle(s, http, count);
}
