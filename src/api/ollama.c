/* ollama.c: /api/chat, /api/generate, /api/embed and the older /api/embeddings. Streams are
 * lines of JSON, and are the default. */
#include "api/ollama.h"
#include "api/dialects.h"
#include "api/openai.h"
#include "base/clock.h"
#include "base/duration.h"
#include "base/mem.h"
#include "base/util.h"
#include "chat/chat.h"
#include "server/fim.h"
#include "server/form_params.h"
#include "server/prompts.h"
#include "server/request_params.h"

#include <stdio.h>
#include <time.h>

struct ollama_state {
    bool generate; /* /api/generate: "response" instead of "message" */
};

json_t *ollama_error(int http_status, enum err_code code, const char *sentence,
                     const char *field) {
    (void)http_status;
    (void)code;
    (void)field;
    return json_pack("{s:o}", "error", bytes_json(sentence, strlen(sentence)));
}

/* ---- one line, or the whole -------------------------------------------------------------- */

static bool is_generate(const struct reply *r) {
    return ((const struct ollama_state *)r->state)->generate;
}

static json_t *frame(const struct reply *r, bool done) {
    return json_pack("{s:s, s:o, s:b}", "model", service_facts(r->service)->name, "created_at",
                     time_json(reply_now(r)), "done", done);
}

static json_t *message_of(json_t *content, json_t *thinking, json_t *calls) {
    json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content", content);
    if (thinking != NULL)
        json_object_set_new(m, "thinking", thinking);
    if (calls != NULL)
        json_object_set_new(m, "tool_calls", calls);
    return m;
}

static void add_message(const struct reply *r, json_t *line, json_t *content, json_t *thinking,
                        json_t *calls) {
    if (!is_generate(r)) {
        json_object_set_new(line, "message", message_of(content, thinking, calls));
        return;
    }
    json_object_set_new(line, "response", content);
    if (thinking != NULL)
        json_object_set_new(line, "thinking", thinking);
    json_decref(calls);
}

static json_t *call_json(const struct reply_choice *c, size_t index) {
    const struct reply_call *call = &c->calls[index];
    return json_pack("{s:s, s:{s:I, s:s, s:o}}", "id", call->id, "function", "index",
                     (json_int_t)index, "name", call->name, "arguments", reply_arguments(call));
}

static json_t *nanoseconds(double s) {
    return json_integer((json_int_t)(s * 1e9));
}

static void add_figures(const struct reply *r, json_t *line) {
    const struct engine_done *d = &r->choices[0].done;
    struct reply_usage u = reply_usage(r);
    json_object_set_new(line, "done_reason",
                        json_string(r->choices[0].finish == FINISH_LENGTH ? "length" : "stop"));
    json_object_set_new(line, "total_duration", nanoseconds(clock_s() - r->begun_s));
    json_object_set_new(line, "load_duration", json_integer(0));
    json_object_set_new(line, "prompt_eval_count", json_integer((json_int_t)u.n_prompt));
    json_object_set_new(line, "prompt_eval_duration", nanoseconds(d->prompt_s));
    json_object_set_new(line, "eval_count", json_integer((json_int_t)u.n_generated));
    json_object_set_new(line, "eval_duration", nanoseconds(d->generate_s));
}

/* Of the content's tokens, in OpenAI's form; the list is taken over. */
static void add_logprobs(json_t *line, json_t *list) {
    if (list != NULL)
        json_object_set_new(line, "logprobs", list);
}

/* A call that was cut off is left out. Its arguments, an object here, would be empty, and
 * nothing would tell the client that the call is incomplete. */
static void line_event(struct reply *r, int choice, const struct service_event *ev) {
    struct reply_choice *c = &r->choices[choice];
    bool called = ev->kind == EVENT_CALL_END && !ev->cut;
    openai_note_logprobs(r, c, ev);
    if (!r->stream || (ev->kind != EVENT_CONTENT && ev->kind != EVENT_REASONING && !called))
        return;
    json_t *line = frame(r, false);
    if (ev->kind == EVENT_CONTENT)
        add_message(r, line, bytes_json(ev->text, ev->len), NULL, NULL);
    else if (ev->kind == EVENT_REASONING)
        add_message(r, line, json_string(""), bytes_json(ev->text, ev->len), NULL);
    else
        add_message(r, line, json_string(""), NULL,
                    json_pack("[o]", call_json(c, c->n_calls - 1)));
    add_logprobs(line, openai_take_logprobs(c));
    reply_ndjson(r, line);
}

static void line_end(struct reply *r) {
    json_t *line = frame(r, true);
    add_message(r, line, json_string(""), NULL, NULL);
    add_figures(r, line);
    add_logprobs(line, openai_take_logprobs(&r->choices[0]));
    reply_ndjson(r, line);
}

static void line_error(struct reply *r, enum status st, const struct err *why) {
    reply_ndjson(r, ollama_error(http_status_of(st), why->code, why->text, ""));
}

static json_t *whole(struct reply *r) {
    const struct reply_choice *c = &r->choices[0];
    size_t n = c->n_calls;
    n -= n > 0 && c->calls[n - 1].cut;
    json_t *v = frame(r, true), *calls = n > 0 ? json_array() : NULL;
    for (size_t i = 0; i < n; i++)
        json_array_append_new(calls, call_json(c, i));
    add_message(r, v, buf_json(&c->content),
                c->reasoning.len > 0 ? buf_json(&c->reasoning) : NULL, calls);
    add_figures(r, v);
    add_logprobs(v, json_incref(c->content_logprobs));
    return v;
}

const struct dialect ollama_dialect = {.stream_type = "application/x-ndjson",
                                       .event = line_event,
                                       .end = line_end,
                                       .stream_error = line_error,
                                       .whole = whole,
                                       .error = ollama_error};

static json_t *embed_whole(struct reply *r) {
    json_t *vectors = json_array();
    for (int i = 0; i < r->n_parts; i++)
        json_array_append(vectors, r->choices[i].vector);
    return json_pack("{s:s, s:o, s:o, s:i, s:I}", "model", service_facts(r->service)->name,
                     "embeddings", vectors, "total_duration",
                     nanoseconds(clock_s() - r->begun_s), "load_duration", 0,
                     "prompt_eval_count", (json_int_t)reply_usage(r).n_prompt);
}

static json_t *embeddings_whole(struct reply *r) {
    return json_pack("{s:O}", "embedding", r->choices[0].vector);
}

static const struct dialect embed_dialect = {.whole = embed_whole, .error = ollama_error};
static const struct dialect embeddings_dialect = {.whole = embeddings_whole,
                                                  .error = ollama_error};

/* ---- the request ------------------------------------------------------------------------- */

static void refuse(struct http_request *http, const struct params *p) {
    reply_error(http, &ollama_dialect, p->st, &p->err, p->field);
}

void ollama_param_model(struct params *p, struct service *s) {
    json_t *name = json_object_get(p->body, "name");
    if (name != NULL && json_object_get(p->body, "model") == NULL)
        json_object_set(p->body, "model", name);
    param_model(p, s);
}

/* The fields of `options` are read as if they were the request's own. */
static void param_options(struct params *p, struct service_request *r,
                          struct request_memory *m) {
    const json_t *options = NULL;
    param_object(p, "options", &options);
    if (options != NULL)
        json_object_update_missing(p->body, (json_t *)options);
    param_int(p, "num_predict", -2, 1 << 24, &r->n_predict);
    r->n_predict = MAX(r->n_predict, -1);
    param_sampling(p, r, m);
    param_stops(p, "stop", r, m);
}

static void param_format(struct params *p, struct service_request *r) {
    const json_t *format = json_object_get(p->body, "format");
    const char *word = json_string_value(format);
    if (json_is_object(format)) {
        r->form = FORM_SCHEMA;
        r->schema = format;
    } else if (word != NULL && str_eq(word, "json")) {
        r->form = FORM_JSON;
    } else if (format != NULL && !json_is_null(format) && (word == NULL || *word != '\0')) {
        params_fail(p, "format", "format must be \"json\" or a JSON schema");
    }
    param_form(p, "format", NULL, r);
}

static void param_logprobs(struct params *p, struct service_request *r) {
    param_bool(p, "logprobs", &r->logprobs);
    param_int(p, "top_logprobs", 0, 20, &r->n_top);
    r->n_top = r->logprobs ? r->n_top : 0;
}

/* What would be missed if it were ignored. */
static void refuse_the_rest(struct params *p) {
    const char *template = "";
    const json_t *context = NULL;
    param_text(p, "template", &template);
    param_array(p, "context", &context);
    if (*template != '\0')
        params_fail(p, "template",
                    "template is not supported: the model's own is used; with raw, a prompt is "
                    "taken as it is");
    if (json_array_size(context) > 0)
        params_fail(p, "context",
                    "context is not supported: send the conversation to /api/chat");
}

/* think: a template's enable_thinking, or how hard. Kept alive by the body. */
static void param_think(struct params *p, struct service_request *r) {
    const json_t *think = json_object_get(p->body, "think");
    if (!json_is_boolean(think) && !json_is_string(think))
        return;
    json_t *extra = json_object();
    if (json_is_boolean(think))
        json_object_set(extra, "enable_thinking", (json_t *)think);
    else
        extra_effort(extra, json_string_value(think));
    json_object_set_new(p->body, "think", extra);
    r->extra = extra;
}

/* Calls here have no type. */
static void complete_calls(json_t *message) {
    json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t i;
    json_array_foreach(calls, i, call) {
        if (json_object_get(call, "type") == NULL)
            json_object_set_new(call, "type", json_string("function"));
    }
}

/* A tool's images are not the user's fault: the conversation goes on, and the model is told. */
static bool leave_out_images(json_t *message) {
    const char *role = json_string_value(json_object_get(message, "role"));
    if (role == NULL || !str_eq(role, "tool"))
        return false;
    json_t *text = chat_result_text(json_object_get(message, "content"));
    if (text == NULL)
        return false;
    json_t *stands_in = json_pack("{s:s}", "type", "image");
    json_object_set_new(message, "content",
                        json_pack("[{s:s, s:o}, {s:s, s:o}]", "type", "text", "text", text,
                                  "type", "text", "text", chat_stand_in(stands_in)));
    json_decref(stands_in);
    return true;
}

static void param_messages(struct params *p, struct service_request *r) {
    size_t i;
    json_t *m;
    param_array(p, "messages", &r->messages);
    json_array_foreach((json_t *)r->messages, i, m) {
        if (json_array_size(json_object_get(m, "images")) > 0 && !leave_out_images(m))
            params_fail(p, "messages", "messages[%zu]: images are not supported by this model",
                        i);
        complete_calls(m);
        if (json_is_object(m) && json_object_get(m, "content") == NULL)
            json_object_set_new(m, "content", json_string(""));
    }
    r->continue_last = ends_with_answer(r->messages);
}

/* What is to stand between the prompt and a suffix; true: that was asked for. */
static bool param_suffix(struct params *p, struct service *s, struct service_request *r,
                         struct request_memory *m) {
    const char *suffix = "";
    param_text(p, "suffix", &suffix);
    if (*suffix == '\0' || p->st != ST_OK)
        return false;
    p->st = fim_prompt(s, r->prompt, suffix, &m->ids, &r->n_ids, &p->err);
    r->ids = m->ids;
    return true;
}

/* A prompt as a conversation, kept alive by the body; raw: as it is. */
static void param_prompt(struct params *p, struct service *s, struct service_request *r,
                         struct request_memory *m) {
    const char *prompt = "", *system = NULL;
    bool raw = false;
    if (json_array_size(json_object_get(p->body, "images")) > 0)
        params_fail(p, "images", "images are not supported by this model");
    param_text(p, "prompt", &prompt);
    param_text(p, "system", &system);
    param_bool(p, "raw", &raw);
    r->prompt = prompt;
    r->prompt_len = strlen(prompt);
    if (param_suffix(p, s, r, m) || p->st != ST_OK || raw || r->prompt_len == 0)
        return;
    json_t *messages = json_array();
    if (system != NULL && *system != '\0')
        json_array_append_new(messages,
                              json_pack("{s:s, s:s}", "role", "system", "content", system));
    json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", prompt));
    json_object_set_new(p->body, "messages", messages);
    r->messages = messages;
}

/* Asked for nothing, Ollama loads the model; ours is loaded. */
static void say_loaded(struct service *s, struct http_request *http, bool generate) {
    json_t *v = json_pack("{s:s, s:o, s:b, s:s}", "model", service_facts(s)->name, "created_at",
                          time_json((int64_t)time(NULL)), "done", 1, "done_reason", "load");
    if (generate)
        json_object_set_new(v, "response", json_string(""));
    else
        json_object_set_new(v, "message", message_of(json_string(""), NULL, NULL));
    reply_json(http, 200, v);
}

static void answer(struct service *s, struct http_request *http, struct service_request *r,
                   bool stream, bool generate) {
    if (r->messages == NULL ? r->prompt_len == 0 && r->ids == NULL
                            : json_array_size(r->messages) == 0) {
        say_loaded(s, http, generate);
        return;
    }
    struct reply *reply =
        reply_open(s, http, &ollama_dialect, 1, 1, stream, sizeof(struct ollama_state));
    if (reply == NULL)
        return;
    *(struct ollama_state *)reply->state = (struct ollama_state){generate};
    reply_submit(reply, r);
}

/* For how long the model is to stay loaded. A node's port acts on it (gateway_asleep.c); a server
 * alone stays as it is. */
static void param_keep_alive(struct params *p) {
    const json_t *keep = json_object_get(p->body, "keep_alive");
    int64_t ignored;
    bool good = keep == NULL || json_is_null(keep) || json_is_number(keep) ||
                (json_is_string(keep) && duration_parse(json_string_value(keep), &ignored));
    if (!good)
        params_fail(
            p, "keep_alive",
            "keep_alive must be a time such as \"5m\", or a number of seconds: 0 unloads "
            "the model after the answer, and less keeps it");
}

static void handle(struct service *s, struct http_request *http, bool generate) {
    struct params p;
    struct service_request r;
    struct request_memory m = {0};
    bool stream = true;
    service_request_init(&r);
    if (params_init(&p, http)) {
        ollama_param_model(&p, s);
        param_options(&p, &r, &m);
        param_format(&p, &r);
        param_logprobs(&p, &r);
        refuse_the_rest(&p);
        param_keep_alive(&p);
        param_think(&p, &r);
        param_bool(&p, "stream", &stream);
        param_array(&p, "tools", &r.tools);
        tools_check(&p, r.tools);
        if (generate)
            param_prompt(&p, s, &r, &m);
        else
            param_messages(&p, &r);
    }
    if (p.st == ST_OK)
        answer(s, http, &r, stream, generate);
    else
        refuse(http, &p);
    request_memory_deinit(&m);
    params_deinit(&p);
}

void ollama_chat(struct service *s, struct http_request *http) {
    handle(s, http, false);
}

void ollama_generate(struct service *s, struct http_request *http) {
    handle(s, http, true);
}

static void embed(struct service *s, struct http_request *http, const char *field,
                  const struct dialect *dialect, size_t n_max) {
    struct params p;
    struct service_request r, *each = NULL;
    struct prompts inputs = {0};
    service_request_init(&r);
    if (params_init(&p, http)) {
        ollama_param_model(&p, s);
        param_keep_alive(&p);
        param_prompts(&p, field, n_max, &inputs);
        r.truncate = true;
        param_bool(&p, "truncate", &r.truncate);
        param_embedding(&p, s, &r);
    }
    if (p.st == ST_OK && (each = prompts_requests(&inputs, &r)) == NULL)
        params_fail(&p, field, "no memory for the input");
    if (p.st == ST_OK) {
        struct reply *reply = reply_open(s, http, dialect, (int)inputs.n, 1, false, 0);
        if (reply != NULL)
            reply_submit(reply, each);
    } else {
        refuse(http, &p);
    }
    mem_free(each);
    prompts_deinit(&inputs);
    params_deinit(&p);
}

void ollama_embed(struct service *s, struct http_request *http) {
    embed(s, http, "input", &embed_dialect, EMBED_INPUTS_MAX);
}

void ollama_embeddings(struct service *s, struct http_request *http) {
    embed(s, http, "prompt", &embeddings_dialect, 1);
}
