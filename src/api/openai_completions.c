/* openai_completions.c: /v1/completions: continues plain text. */
#include "api/openai.h"
#include "base/mem.h"
#include "base/util.h"
#include "server/fim.h"
#include "server/form_params.h"
#include "server/prompts.h"

#include <math.h>

#define PROMPTS_MAX 64
/* Numbers of a request's prompts in logprobs, of which each takes 200 bytes until they are sent. */
#define ECHO_VALUES_MAX ((size_t)1 << 18)

/* Of a prompt that stands before its answers. */
struct echo {
    char *text; /* owned */
    size_t len;
    bool from_text;   /* it was given so, and not as tokens */
    json_t *logprobs; /* owned; NULL: none */
    size_t n_chars;   /* of the text up to the last token in logprobs */
};

struct completion_state {
    struct openai_stream stream; /* first: what openai_frame() looks for */
    struct echo *echoes;         /* owned, [n_echoes], one a prompt; NULL: none */
    size_t n_echoes;
    uint64_t told[PROMPTS_MAX]; /* choices whose stream has its prompt, by bits */
};

static void echoes_free(struct echo *echoes, size_t n) {
    for (size_t i = 0; echoes != NULL && i < n; i++) {
        mem_free(echoes[i].text);
        json_decref(echoes[i].logprobs);
    }
    mem_free(echoes);
}

static void state_deinit(void *state) {
    struct completion_state *s = state;
    echoes_free(s->echoes, s->n_echoes);
}

/* The prompt of a choice; NULL: it is not told. */
static struct echo *echo_of(const struct reply *r, int choice) {
    const struct completion_state *s = r->state;
    return s->echoes != NULL ? &s->echoes[choice / r->n_each] : NULL;
}

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

static json_t *no_logprobs(void) {
    return json_pack("{s:[], s:[], s:[], s:[]}", "tokens", "token_logprobs", "top_logprobs",
                     "text_offset");
}

/* The API promises the token itself in top_logprobs, even if it is not among the likeliest. */
static void add_logprob(json_t *logprobs, const struct service_event *ev, size_t offset) {
    const struct engine_token *t = ev->token;
    bool known = !isnan(t->logprob);
    json_t *top = known ? json_object() : json_null();
    for (int i = 0; known && i < t->n_top; i++)
        put_top(top, ev->generation, t->top[i].id, t->top[i].logprob);
    if (known)
        put_top(top, ev->generation, t->id, t->logprob);
    append(logprobs, "text_offset", json_integer((json_int_t)offset));
    append(logprobs, "tokens", token_text(ev->generation, t->id));
    append(logprobs, "token_logprobs", known ? json_real((double)t->logprob) : json_null());
    append(logprobs, "top_logprobs", top);
}

static void keep_logprob(const struct reply *r, int choice, const struct service_event *ev) {
    struct reply_choice *c = &r->choices[choice];
    const struct echo *echo = echo_of(r, choice);
    if (c->n_chars == 0 && echo != NULL)
        c->n_chars = echo->n_chars;
    if (c->logprobs == NULL)
        c->logprobs = no_logprobs();
    add_logprob(c->logprobs, ev, c->n_chars);
    c->n_chars += generation_token_chars(ev->generation, ev->token->id);
}

/* Of the token at this place of the prompt, which counts in the text: a first one that the
 * tokenizer has added does not, nor does the space that some put before a text. */
static size_t prompt_chars(const struct echo *echo, const struct service_event *ev) {
    const char *bytes, *rest = echo->text + MIN(echo->n_chars, echo->len);
    size_t len = generation_token_bytes(ev->generation, ev->token->id, &bytes), n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((uint8_t)bytes[i] & 0xc0) != 0x80;
    if (!echo->from_text || echo->n_chars > 0 || len == 0)
        return n;
    if (bytes[0] == ' ' && rest[0] != ' ')
        return n - 1;
    return strncmp(bytes, rest, MIN(len, strlen(rest))) == 0 ? n : 0;
}

static void keep_prompt(struct echo *echo, const struct service_event *ev) {
    if (echo->logprobs == NULL)
        echo->logprobs = no_logprobs();
    add_logprob(echo->logprobs, ev, echo->n_chars);
    echo->n_chars += prompt_chars(echo, ev);
}

/* a, which is taken over, and behind it b's. */
static json_t *joined(json_t *a, const json_t *b) {
    const char *name;
    json_t *list;
    json_object_foreach((json_t *)b, name, list)
        json_array_extend(json_object_get(a, name), list);
    return a;
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

/* The prompt comes first, once for each choice. */
static void stream_echo(struct reply *r, int choice) {
    struct completion_state *s = r->state;
    const struct echo *echo = echo_of(r, choice);
    uint64_t *told = &s->told[choice / 64], bit = (uint64_t)1 << (choice % 64);
    if (echo == NULL || (*told & bit) != 0)
        return;
    *told |= bit;
    json_t *logprobs = echo->logprobs != NULL ? json_incref(echo->logprobs) : json_null();
    reply_sse(r, NULL,
              frame(r, json_pack("[o]", choice_json(choice, bytes_json(echo->text, echo->len),
                                                    logprobs, NULL))));
}

static void completion_event(struct reply *r, int choice, const struct service_event *ev) {
    struct reply_choice *c = &r->choices[choice];
    if (ev->kind == EVENT_PROMPT) {
        keep_prompt(echo_of(r, choice), ev);
        return;
    }
    if (r->stream)
        stream_echo(r, choice);
    if (ev->kind == EVENT_TOKEN)
        keep_logprob(r, choice, ev);
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

static json_t *whole_text(const struct reply *r, int choice) {
    const struct echo *echo = echo_of(r, choice);
    const struct buf *content = &r->choices[choice].content;
    struct buf text = {0};
    if (echo == NULL)
        return buf_json(content);
    buf_add(&text, echo->text, echo->len);
    buf_add(&text, content->bytes, content->len);
    json_t *v = buf_json(&text);
    buf_free(&text);
    return v;
}

static json_t *whole_logprobs(const struct reply *r, int choice) {
    const struct echo *echo = echo_of(r, choice);
    json_t *own = logprobs_json(&r->choices[choice]);
    if (echo == NULL || echo->logprobs == NULL)
        return own;
    json_t *both = joined(joined(no_logprobs(), echo->logprobs), own);
    json_decref(own);
    return both;
}

static json_t *completion_whole(struct reply *r) {
    json_t *choices = json_array();
    for (int i = 0; i < r->n_parts * r->n_each; i++) {
        json_array_append_new(choices, choice_json(i, whole_text(r, i), whole_logprobs(r, i),
                                                   openai_finish(r->choices[i].finish)));
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
                                                  .state_deinit = state_deinit,
                                                  .error = openai_error};

/* ---- the request ------------------------------------------------------------------------- */

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
}

/* Of an evaluation, that wants to know how likely a text is. */
static void check_echo(struct params *p, struct service *s, const struct service_request *r,
                       const struct prompts *prompts) {
    size_t n = 0, n_ctx = (size_t)service_facts(s)->n_ctx;
    for (size_t i = 0; i < prompts->n; i++) {
        const struct one_prompt *one = &prompts->list[i];
        n += one->text != NULL ? MIN(one->len + 1, n_ctx) : one->n_ids; /* at most */
    }
    if (r->logprobs && n * (size_t)(r->n_top + 2) > ECHO_VALUES_MAX)
        params_fail(
            p, "echo",
            "echo with logprobs: the prompts may have %zu tokens, and with %d each that "
            "is too much for one request, whose limit is %zu tokens; ask for less",
            n, r->n_top, ECHO_VALUES_MAX / (size_t)(r->n_top + 2));
}

/* The prompts' texts; NULL: p says why. */
static struct echo *make_echoes(struct params *p, struct service *s,
                                const struct prompts *prompts) {
    struct echo *echoes = mem_calloc(MAX(prompts->n, 1), sizeof *echoes);
    for (size_t i = 0; echoes != NULL && i < prompts->n && p->st == ST_OK; i++) {
        const struct one_prompt *one = &prompts->list[i];
        struct echo *echo = &echoes[i];
        echo->from_text = one->text != NULL;
        echo->len = one->len;
        if (one->text == NULL)
            p->st =
                service_detokenize(s, one->ids, one->n_ids, &echo->text, &echo->len, &p->err);
        else
            echo->text = mem_strndup(one->text, one->len);
        if (p->st == ST_OK && echo->text == NULL)
            p->st = err_set(&p->err, ST_NO_MEMORY, "no memory for the prompts");
    }
    if (echoes == NULL)
        p->st = err_set(&p->err, ST_NO_MEMORY, "no memory for the prompts");
    if (p->st == ST_OK)
        return echoes;
    echoes_free(echoes, prompts->n);
    return NULL;
}

static struct echo *param_echo(struct params *p, struct service *s, struct service_request *r,
                               const struct prompts *prompts) {
    const char *suffix = "";
    bool echo = false;
    param_bool(p, "echo", &echo);
    param_text(p, "suffix", &suffix);
    if (echo && *suffix != '\0')
        params_fail(p, "echo", "echo is not supported with a suffix");
    if (p->st != ST_OK || !echo)
        return NULL;
    check_echo(p, s, r, prompts);
    r->prompt_logprobs = r->logprobs;
    return p->st == ST_OK ? make_echoes(p, s, prompts) : NULL;
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

/* state is taken over. */
static void answer(struct service *s, struct http_request *http,
                   const struct service_request *r, const struct prompts *prompts,
                   struct completion_state state) {
    struct service_request *each = prompts_requests(prompts, r);
    if (each == NULL) {
        struct err why;
        enum status st = err_set(&why, ST_NO_MEMORY, "no memory for the prompts");
        reply_error(http, &openai_chat_dialect, st, &why, "");
        state_deinit(&state);
        return;
    }
    struct reply *reply = reply_open(s, http, &openai_completion_dialect, (int)prompts->n,
                                     r->n_choices, state.stream.on, sizeof state);
    if (reply != NULL) {
        *(struct completion_state *)reply->state = state;
        reply_submit(reply, each);
    } else {
        state_deinit(&state);
    }
    mem_free(each);
}

static void completions(struct service *s, struct http_request *http, struct params *p) {
    struct service_request r;
    struct request_memory m = {0};
    struct prompts prompts = {0};
    struct completion_state state = {.n_echoes = 0};
    read_request(p, s, &r, &m);
    openai_param_stream(p, &state.stream);
    param_prompts(p, "prompt", PROMPTS_MAX, &prompts);
    state.echoes = param_echo(p, s, &r, &prompts);
    state.n_echoes = prompts.n;
    param_suffix(p, s, &prompts);
    if (p->st == ST_OK)
        answer(s, http, &r, &prompts, state);
    else
        state_deinit(&state);
    prompts_deinit(&prompts);
    request_memory_deinit(&m);
}

void openai_completions(struct service *s, struct http_request *http) {
    openai_handle(s, http, completions);
}
