/* openai_completions.c: /v1/completions: continues plain text. */
#include "api/openai.h"
#include "base/mem.h"
#include "base/util.h"
#include "server/fim.h"
#include "server/form_params.h"
#include "server/prompts.h"

#define PROMPTS_MAX 64

/* ---- logprobs: four arrays side by side -------------------------------------------------- */

/* A token that is not valid text by itself, as OpenAI writes it. As U+FFFD all such tokens
 * would have the same key. */
static json_t *token_text(const struct generation *g, int32_t id) {
    const char *bytes;
    size_t n = generation_token_bytes(g, id, &bytes);
    json_t *v = memchr(bytes, '\0', n) == NULL ? json_stringn(bytes, n) : NULL;
    if (v != NULL)
        return v;
    struct buf text = {0};
    buf_add_str(&text, "bytes:");
    for (size_t i = 0; i < n; i++)
        buf_printf(&text, "\\x%02x", (unsigned char)bytes[i]);
    v = buf_json(&text);
    buf_free(&text);
    return v;
}

static void append(json_t *logprobs, const char *name, json_t *v) {
    json_array_append_new(json_object_get(logprobs, name), v);
}

/* Of tokens that look alike all the same, the likelier. */
static void put_top(json_t *top, const struct generation *g, int32_t id, float logprob) {
    json_t *text = token_text(g, id);
    if (json_object_get(top, json_string_value(text)) == NULL)
        json_object_set_new(top, json_string_value(text), json_real((double)logprob));
    json_decref(text);
}

/* The API promises the token itself in top_logprobs, even if it is not among the likeliest. */
static void keep_logprob(struct reply_choice *c, const struct service_event *ev) {
    const struct engine_token *t = ev->token;
    json_t *top = json_object();
    if (c->logprobs == NULL)
        c->logprobs = json_pack("{s:[], s:[], s:[], s:[]}", "tokens", "token_logprobs",
                                "top_logprobs", "text_offset");
    for (int i = 0; i < t->n_top; i++)
        put_top(top, ev->generation, t->top[i].id, t->top[i].logprob);
    put_top(top, ev->generation, t->id, t->logprob);
    json_t *text = token_text(ev->generation, t->id);
    append(c->logprobs, "text_offset", json_integer((json_int_t)c->n_chars));
    c->n_chars += generation_token_chars(ev->generation, t->id);
    append(c->logprobs, "tokens", text);
    append(c->logprobs, "token_logprobs", json_real((double)t->logprob));
    append(c->logprobs, "top_logprobs", top);
}

static json_t *logprobs_json(struct reply_choice *c) {
    json_t *v = openai_take_logprobs(c);
    return v != NULL ? v : json_null();
}

/* ---- replies ----------------------------------------------------------------------------- */

static json_t *frame(const struct reply *r, json_t *choices) {
    return openai_frame(r, "cmpl", "text_completion", choices);
}

static json_t *choice_json(int index, json_t *text, json_t *logprobs, const char *finish) {
    return json_pack("{s:i, s:o, s:o, s:s?}", "index", index, "text", text, "logprobs",
                     logprobs, "finish_reason", finish);
}

static void completion_event(struct reply *r, int choice, const struct service_event *ev) {
    struct reply_choice *c = &r->choices[choice];
    if (ev->kind == EVENT_TOKEN)
        keep_logprob(c, ev);
    else if (r->stream && ev->kind == EVENT_CONTENT)
        reply_sse(r, NULL,
                  frame(r, json_pack("[o]", choice_json(choice, bytes_json(ev->text, ev->len),
                                                        logprobs_json(c), NULL))));
    else if (r->stream && ev->kind == EVENT_DONE)
        reply_sse(
            r, NULL,
            frame(r, json_pack("[o]", choice_json(choice, json_string(""), logprobs_json(c),
                                                  openai_finish(ev->finish)))));
}

static void completion_end(struct reply *r) {
    openai_stream_end(r, frame(r, json_array()));
}

static json_t *completion_whole(struct reply *r) {
    json_t *choices = json_array();
    for (int i = 0; i < r->n_parts * r->n_each; i++) {
        struct reply_choice *c = &r->choices[i];
        json_array_append_new(choices, choice_json(i, buf_json(&c->content), logprobs_json(c),
                                                   openai_finish(c->finish)));
    }
    json_t *v = frame(r, choices);
    json_object_set_new(v, "usage", openai_usage(r));
    return v;
}

const struct dialect openai_completion_dialect = {.stream_type = "text/event-stream",
                                                  .event = completion_event,
                                                  .end = completion_end,
                                                  .stream_error = openai_stream_error,
                                                  .whole = completion_whole,
                                                  .error = openai_error};

/* ---- the request ------------------------------------------------------------------------- */

static void refuse_the_rest(struct params *p) {
    bool echo = false;
    param_bool(p, "echo", &echo);
    if (echo)
        params_fail(p, "echo", "echo is not supported");
}

static void read_request(struct params *p, const struct service *s, struct service_request *r,
                         struct request_memory *m) {
    const json_t *format = NULL;
    int logprobs = -1;
    service_request_init(r);
    r->n_predict = 16; /* what the API promises */
    param_model(p, s);
    param_limit(p, "max_tokens", true, r);
    param_int(p, "n", 1, 64, &r->n_choices);
    param_int(p, "logprobs", 0, 20, &logprobs);
    r->logprobs = logprobs >= 0;
    r->n_top = MAX(logprobs, 0);
    param_sampling(p, r, m);
    param_stops(p, "stop", r, m);
    param_object(p, "response_format", &format);
    param_form(p, "response_format", format, r);
    refuse_the_rest(p);
}

/* What is to stand behind the answer. */
static void param_suffix(struct params *p, struct service *s, struct prompts *prompts) {
    const char *suffix = "";
    param_text(p, "suffix", &suffix);
    if (*suffix == '\0')
        return;
    for (size_t i = 0; i < prompts->n && p->st == ST_OK; i++) {
        struct one_prompt *one = &prompts->list[i];
        if (one->text == NULL)
            params_fail(p, "suffix", "suffix needs a prompt that is text");
        else
            p->st = fim_prompt(s, one->text, suffix, &one->ids, &one->n_ids, &p->err);
    }
}

static void answer(struct service *s, struct http_request *http,
                   const struct service_request *r, const struct prompts *prompts,
                   struct openai_stream stream) {
    struct service_request *each = prompts_requests(prompts, r);
    if (each == NULL) {
        struct err why;
        enum status st = err_set(&why, ST_NO_MEMORY, "no memory for the prompts");
        reply_error(http, &openai_chat_dialect, st, &why, "");
        return;
    }
    struct reply *reply = reply_open(s, http, &openai_completion_dialect, (int)prompts->n,
                                     r->n_choices, stream.on, sizeof stream);
    if (reply != NULL) {
        *(struct openai_stream *)reply->state = stream;
        reply_submit(reply, each);
    }
    mem_free(each);
}

static void completions(struct service *s, struct http_request *http, struct params *p) {
    struct service_request r;
    struct request_memory m = {0};
    struct prompts prompts = {0};
    struct openai_stream stream = {0};
    read_request(p, s, &r, &m);
    openai_param_stream(p, &stream);
    param_prompts(p, "prompt", PROMPTS_MAX, &prompts);
    param_suffix(p, s, &prompts);
    if (p->st == ST_OK)
        answer(s, http, &r, &prompts, stream);
    prompts_deinit(&prompts);
    request_memory_deinit(&m);
}

void openai_completions(struct service *s, struct http_request *http) {
    openai_handle(s, http, completions);
}
