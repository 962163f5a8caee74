/* Fuzzes the dialects: a request's body in, the reply out, whole or streamed. HTTP and the service
 * are stood in for here: the first byte chooses the route, the second what the service says to
 * what it gets. Whatever comes, there is exactly one reply, and all that it says is JSON. */
#include "api/dialects.h"
#include "base/mem.h"
#include "base/util.h"
#include "net/json_peek.h"
#include "server/background.h"
#include "server/memo.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- HTTP -------------------------------------------------------------------------------- */

struct http_request {
    const char *path, *body;
    size_t body_len;
    bool streams, ended;
    char type[40];
    void (*release)(void *user);
    void *release_user;
};

const char *http_path(const struct http_request *r) {
    return r->path;
}
const char *http_method(const struct http_request *r) {
    (void)r;
    return "POST";
}
const char *http_header(const struct http_request *r, const char *name) {
    (void)r, (void)name;
    return NULL;
}
const char *http_query(const struct http_request *r, const char *name) {
    (void)r, (void)name;
    return NULL;
}

const char *http_body(const struct http_request *r, size_t *len) {
    *len = r->body_len;
    return r->body;
}
void http_forget_body(struct http_request *r) {
    r->body = "";
    r->body_len = 0;
}
bool http_is_trusted(const struct http_request *r) {
    (void)r;
    return true;
}
int http_key(const struct http_request *r) {
    (void)r;
    return 0;
}
unsigned long long http_client(const struct http_request *r) {
    (void)r;
    return 1;
}
void http_set_header(struct http_request *r, const char *name, const char *value) {
    (void)r, (void)name, (void)value;
}
void http_set_account(struct http_request *r, const struct http_account *a) {
    (void)r, (void)a;
}
void http_on_gone(struct http_request *r, void (*on_gone)(void *user), void *user) {
    (void)r, (void)on_gone, (void)user;
}
void http_set_release(struct http_request *r, void (*release)(void *user), void *user) {
    r->release = release;
    r->release_user = user;
}

static void check_json(const char *text, size_t len) {
    json_t *v = json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    BUG_ON(v == NULL);
    json_decref(v);
}

void http_reply(struct http_request *r, int status, const char *type, const void *body,
                size_t len) {
    BUG_ON(r->ended || r->streams || status < 200 || status > 599);
    if (str_eq(type, "application/json"))
        check_json(body, len);
    r->ended = true;
}

void http_stream_begin(struct http_request *r, int status, const char *type) {
    BUG_ON(r->ended || r->streams || status != 200);
    r->streams = true;
    snprintf(r->type, sizeof r->type, "%s", type);
}

void http_fill_quiet(struct http_request *r, const char *type, const char *filler) {
    (void)r;
    BUG_ON(!str_eq(type, "text/event-stream") || filler[0] != ':');
}
bool http_quiet_end(struct http_request *r) {
    return r->streams;
}

/* Of a stream. */
static void check_event(const char *text, size_t len) {
    const char *at = memmem(text, len, "data: ", 6);
    BUG_ON(at == NULL);
    at += 6;
    if (*at == '{')
        check_json(at, len - (size_t)(at - text));
    else
        BUG_ON(strncmp(at, "[DONE]\n", 7) != 0);
}

/* A piece is a line, or whole events: several where a stream begins late. */
enum status http_stream_write(struct http_request *r, const void *data, size_t len) {
    const char *text = data;
    bool events = str_eq(r->type, "text/event-stream");
    BUG_ON(!r->streams || r->ended || len == 0 || text[len - 1] != '\n');
    if (!events)
        check_json(text, len);
    while (events && len > 0) {
        const char *end = memmem(text, len, "\n\n", 2);
        BUG_ON(end == NULL);
        size_t n = (size_t)(end - text) + 2;
        check_event(text, n);
        text += n;
        len -= n;
    }
    return ST_OK;
}

void http_stream_end(struct http_request *r) {
    BUG_ON(!r->streams || r->ended);
    r->ended = true;
}

/* ---- the service ------------------------------------------------------------------------- */

struct generation {
    int unused;
};
static struct generation the_generation;
static struct memo *memo;
static struct background *background;
static unsigned mode;

static const struct service_facts facts = {.name = "model",
                                           .path = "model.gguf",
                                           .architecture = "llama",
                                           .type = "f16",
                                           .chat_format = "hermes",
                                           .template_source = "",
                                           .n_ctx = 4096,
                                           .n_ctx_train = 4096,
                                           .n_vocab = 1000,
                                           .n_embd = 4,
                                           .n_ranks = 1,
                                           .n_layers = 1};

const struct service_facts *service_facts(const struct service *s) {
    (void)s;
    return &facts;
}
bool service_is_model(const struct service *s, const char *name) {
    (void)s;
    return name == NULL || str_eq(name, "model");
}
void service_stats(struct service *s, struct engine_stats *out) {
    (void)s;
    *out = (struct engine_stats){.healthy = true};
}
enum status service_rank_stats(struct service *s, struct engine_rank_stats *out,
                               struct err *err) {
    (void)s, (void)out;
    return err_set(err, ST_PEER_LOST, "no ranks");
}
struct memo *service_memo(struct service *s) {
    (void)s;
    return memo;
}
struct background *service_background(struct service *s) {
    (void)s;
    return background;
}
void service_request_init(struct service_request *r) {
    *r = (struct service_request){.n_predict = -1, .n_choices = 1};
    r->sampling.typical_p = 1;
}
void generation_cancel(struct generation *g) {
    BUG_ON(g != &the_generation);
}
void generation_release(struct generation *g) {
    BUG_ON(g != NULL && g != &the_generation);
}
size_t generation_token_bytes(const struct generation *g, int32_t id, const char **bytes) {
    (void)g;
    *bytes = &"\xff\"x"[id % 3];
    return 1;
}
size_t generation_token_chars(const struct generation *g, int32_t id) {
    const char *bytes;
    return generation_token_bytes(g, id, &bytes);
}
void engine_sampling_init(struct engine_sampling *s) {
    *s = (struct engine_sampling){.typical_p = 1};
}

enum status service_prompt(struct service *s, const struct service_request *r, int32_t **ids,
                           size_t *n_ids, struct err *err) {
    (void)s;
    BUG_ON(!json_is_array(r->messages));
    *n_ids = json_array_size(r->messages);
    *ids = mem_calloc(*n_ids + 1, sizeof **ids);
    return *ids != NULL ? ST_OK : err_set(err, ST_NO_MEMORY, "no memory");
}
enum status service_render(struct service *s, const struct service_request *r, char **text,
                           size_t *len, struct err *err) {
    (void)s;
    BUG_ON(!json_is_array(r->messages));
    *text = mem_strdup("a prompt");
    *len = strlen("a prompt");
    return *text != NULL ? ST_OK : err_set(err, ST_NO_MEMORY, "no memory");
}
enum status service_tokenize(struct service *s, const char *text, size_t len, bool add_special,
                             bool parse_special, int32_t **ids, size_t *n_ids,
                             struct err *err) {
    (void)s, (void)add_special, (void)parse_special;
    *ids = mem_calloc(len + 1, sizeof **ids);
    if (*ids == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory");
    for (size_t i = 0; i < len; i++)
        (*ids)[i] = (uint8_t)text[i];
    *n_ids = len;
    return ST_OK;
}
enum status service_detokenize(struct service *s, const int32_t *ids, size_t n, char **text,
                               size_t *len, struct err *err) {
    (void)s;
    *text = mem_calloc(n + 1, 1);
    if (*text == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory");
    for (size_t i = 0; i < n; i++)
        (*text)[i] = (char)ids[i];
    *len = n;
    return ST_OK;
}

/* What the header promises of a request. */
static void check_request(const struct service_request *r) {
    size_t n_bytes = 0;
    BUG_ON(r->messages != NULL && !json_is_array(r->messages));
    BUG_ON(r->messages == NULL && r->prompt == NULL && r->ids == NULL);
    BUG_ON(r->tools != NULL && !json_is_array(r->tools));
    BUG_ON(r->extra != NULL && !json_is_object(r->extra));
    BUG_ON(r->form == FORM_SCHEMA && r->schema == NULL);
    BUG_ON(r->form == FORM_GBNF && r->gbnf == NULL);
    BUG_ON(r->n_choices < 1 || r->n_choices > 64 || r->n_predict < -1 || r->n_top < 0);
    for (size_t i = 0; i < r->n_stops; i++)
        n_bytes += strlen(r->stops[i]);
    for (size_t i = 0; i < r->n_ids; i++)
        n_bytes += (size_t)r->ids[i];
    if (r->messages == NULL && r->prompt != NULL)
        n_bytes += strlen(r->prompt);
    BUG_ON(n_bytes == SIZE_MAX); /* all of it was read */
    for (size_t i = 0; i < r->sampling.n_biases; i++)
        BUG_ON(r->sampling.biases[i].id < 0);
    for (size_t i = 0; i < r->n_stop_ids; i++)
        BUG_ON(r->stop_ids[i] < 0);
    for (size_t i = 0; i < r->sampling.dry.n_breakers; i++)
        n_bytes += strlen(r->sampling.dry.breakers[i]);
    BUG_ON(n_bytes == SIZE_MAX);
}

static void say(const struct service_request *r, int choice, enum service_event_kind kind,
                const char *text) {
    const struct engine_top top[20] = {{.id = 1}, {.id = 2}};
    const struct engine_token token = {.id = 3, .top = top, .n_top = r->n_top, .n_prompt = 5};
    const struct service_event ev = {.kind = kind,
                                     .choice = choice,
                                     .text = text,
                                     .len = strlen(text),
                                     .id = "call_1",
                                     .cut = (mode & 8) != 0,
                                     .token = &token,
                                     .generation = &the_generation};
    if (kind != EVENT_TOKEN || r->logprobs)
        r->on_event(r->user, &ev);
}

static void tell_prompt(const struct service_request *r) {
    const struct engine_top top[20] = {{.id = 1}, {.id = 2}};
    for (int i = 0; r->prompt_logprobs && i < 3; i++) {
        const struct engine_token token = {.id = i,
                                           .logprob = i == 0 ? NAN : -1.5f,
                                           .top = top,
                                           .n_top = i == 0 ? 0 : r->n_top,
                                           .n_prompt = 3};
        const struct service_event ev = {
            .kind = EVENT_PROMPT, .token = &token, .generation = &the_generation};
        r->on_event(r->user, &ev);
    }
}

static void answer(const struct service_request *r, int choice) {
    static const float vector[4] = {1, 2, 3, 4};
    const struct service_event embedding = {
        .kind = EVENT_EMBEDDING, .vector = vector, .n_embd = 4};
    if (r->embed)
        r->on_event(r->user, &embedding);
    for (unsigned bits = mode; bits != 0 && !r->embed; bits >>= 2) {
        say(r, choice, EVENT_TOKEN, "");
        if (r->logprobs && bits & 8)
            say(r, choice, EVENT_MARKUP, "");
        if ((bits & 3) == 1)
            say(r, choice, EVENT_CONTENT, "text \xe2\x82\xac \"");
        else if ((bits & 3) == 2)
            say(r, choice, EVENT_REASONING, "thought");
        if ((bits & 3) != 3)
            continue;
        say(r, choice, EVENT_CALL_BEGIN, "look");
        say(r, choice, EVENT_ARGUMENTS, "{\"a\":");
        say(r, choice, EVENT_ARGUMENTS, bits & 4 ? "1}" : "");
        say(r, choice, EVENT_CALL_END, "");
    }
}

enum status service_generate(struct service *s, const struct service_request *r,
                             struct generation **out, struct err *err) {
    static const enum service_finish finishes[] = {FINISH_STOP, FINISH_LENGTH, FINISH_ERROR,
                                                   FINISH_CANCELLED};
    (void)s;
    check_request(r);
    if (mode == 0)
        return err_set(err, ST_AGAIN, "the queue is full");
    *out = &the_generation;
    tell_prompt(r);
    for (int i = 0; i < r->n_choices; i++) {
        const struct engine_done done = {.choice = i,
                                         .last = i + 1 == r->n_choices,
                                         .stop = ENGINE_STOP_STRING,
                                         .stop_string = "stop",
                                         .st = ST_PEER_LOST,
                                         .error = mode & 16 ? "rank 1 is lost" : NULL,
                                         .n_prompt = 5};
        answer(r, i);
        const struct service_event ev = {.kind = EVENT_DONE,
                                         .choice = i,
                                         .finish = finishes[mode / 64],
                                         .done = &done,
                                         .last = done.last};
        r->on_event(r->user, &ev);
    }
    return ST_OK;
}

/* ---- requests ---------------------------------------------------------------------------- */

static const struct route *route_at(size_t n) {
    static const struct route *const tables[] = {openai_routes, anthropic_routes, ollama_routes,
                                                 misc_routes};
    for (;;)
        for (size_t t = 0; t < ARRAY_LEN(tables); t++)
            for (const struct route *r = tables[t]; r->method != NULL; r++)
                if (n-- == 0)
                    return r;
}

/* What is found without reading the body is what reading it finds. */
static void peek(const char *body, size_t len) {
    char *name = json_peek_text(body, len, "model");
    json_t *whole = json_loadb(body, len, JSON_REJECT_DUPLICATES, NULL);
    const char *read = json_string_value(json_object_get(whole, "model"));
    BUG_ON(name != NULL && whole != NULL && (read == NULL || !str_eq(name, read)));
    json_decref(whole);
    mem_free(name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err err;
    if (memo == NULL)
        BUG_ON(memo_open(&memo, 16, 1 << 16, &err) != ST_OK ||
               background_open(&background, 4, 1 << 14, &err) != ST_OK);
    if (size < 2)
        return 0;
    const struct route *route = route_at(data[0] % 32);
    char *body = malloc(size - 1), path[64];
    memcpy(body, data + 2, size - 2);
    body[size - 2] = '\0';
    mode = data[1];
    snprintf(path, sizeof path, "%s%.20s", route->path,
             route->path[strlen(route->path) - 1] == '/' ? "model" : "");
    struct http_request r = {.path = path, .body = body, .body_len = size - 2};
    peek(body, size - 2);
    route->handle(NULL, &r);
    BUG_ON(!r.ended);
    if (r.release != NULL)
        r.release(r.release_user);
    free(body);
    return 0;
}
