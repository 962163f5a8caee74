/* talk_server.c: A running server answers in lockstep chat. If the connection breaks in the middle
 * of an answer, another node of its cluster is asked for the same one, which has the same bits
 * wherever it is computed; what is here already is compared and left out. */
#include "view/talkers.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/printable.h"
#include "base/util.h"
#include "base/words.h"
#include "cli/ask_server.h"
#include "cli/cli.h"
#include "server/reply.h"

#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <time.h>

#define URLS_MAX 64
#define LOOK_S 5.0
/* How long another server is looked for: among several nodes, and where only one is known, which
 * may be started again. */
#define PATIENCE_S 60.0
#define PATIENCE_ALONE_S 5.0
#define AGAIN_MS 300

struct remote {
    struct talker talker;
    struct ask_server *ask;
    char *model; /* owned */
    char urls[URLS_MAX][SERVER_URL_BYTES];
    size_t n_urls, at; /* at: the one that is asked */
    /* The answer under way. */
    struct writer *writer;
    struct talk_answer *answer;
    size_t n_text, n_thoughts; /* bytes that this try has given */
    double begun_s, first_s, last_s;
};

/* ---- the answer -------------------------------------------------------------------------- */

static enum status give(struct remote *r, struct buf *all, size_t *n_given, const json_t *piece,
                        bool is_thought, struct err *err) {
    const char *text = json_string_value(piece);
    size_t n = json_string_length(piece), old = all->len - *n_given;
    if (text == NULL || n == 0)
        return ST_OK;
    old = MIN(old, n);
    if (old > 0 && memcmp(all->bytes + *n_given, text, old) != 0)
        return err_set(err, ST_IO,
                       "%s goes on with another answer: it has other settings or another model",
                       r->urls[r->at]);
    *n_given += n;
    if (old == n)
        return ST_OK;
    r->last_s = clock_s();
    if (r->first_s == 0)
        r->first_s = r->last_s;
    if (!buf_add(all, text + old, n - old))
        return err_set(err, ST_NO_MEMORY, "not enough memory for the conversation");
    return writer_put(r->writer, text + old, n - old, is_thought)
               ? ST_OK
               : err_set(err, ST_IO, "cannot write the answer");
}

static enum status on_event(void *user, const json_t *event, struct err *err) {
    struct remote *r = user;
    const json_t *error = json_object_get(event, "error");
    const json_t *usage = json_object_get(event, "usage");
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const json_t *delta = json_object_get(choice, "delta");
    if (error != NULL)
        return err_set(err, ST_IO, "%s: %.400s", r->urls[r->at],
                       json_is_string(error) ? json_string_value(error)
                                             : json_text(error, "message"));
    if (json_is_object(usage)) {
        r->answer->n_prompt =
            (size_t)json_integer_value(json_object_get(usage, "prompt_tokens"));
        r->answer->n_generated =
            (size_t)json_integer_value(json_object_get(usage, "completion_tokens"));
    }
    TRY(give(r, &r->answer->thoughts, &r->n_thoughts,
             json_object_get(delta, "reasoning_content"), true, err));
    return give(r, &r->answer->text, &r->n_text, json_object_get(delta, "content"), false, err);
}

static void on_told(void *user, const json_t *comment) {
    struct remote *r = user;
    const char *sentence = json_text(comment, "sentence");
    copy_printable(r->answer->told, sizeof r->answer->told, sentence, strlen(sentence));
}

/* The next node; false: none answers for too long. */
static bool try_next(struct remote *r, double lost_s) {
    double patience = r->n_urls > 1 ? PATIENCE_S : PATIENCE_ALONE_S;
    if (clock_s() - lost_s > patience || cli_interrupted())
        return false;
    size_t lost = r->at;
    r->at = (r->at + 1) % r->n_urls;
    if (r->at != lost)
        snprintf(r->answer->told, sizeof r->answer->told, "%.100s is lost; %.100s goes on",
                 r->urls[lost], r->urls[r->at]);
    if (r->at == 0)
        poll(NULL, 0, AGAIN_MS);
    return true;
}

static enum status ask(struct remote *r, const json_t *body, struct err *err) {
    char name[REPLY_NAME_TEXT];
    unsigned long long client;
    double lost_s = 0;
    randombytes_buf(&client, sizeof client);
    reply_make_name(name, client);
    struct ask_server_stream stream = {
        .body = body, .name = name, .event = on_event, .told = on_told, .user = r};
    for (;;) {
        bool lost, had_any = r->answer->text.len + r->answer->thoughts.len > 0;
        r->n_text = r->n_thoughts = 0;
        enum status st = ask_server_chat(r->ask, r->urls[r->at], &stream, &lost, err);
        if (st == ST_OK || !lost)
            return st == ST_CANCELLED ? ST_OK : st;
        if (r->answer->text.len + r->answer->thoughts.len > 0 && !had_any)
            lost_s = 0; /* it had begun only now */
        if (lost_s == 0)
            lost_s = clock_s();
        if (!try_next(r, lost_s))
            return cli_interrupted() ? ST_OK
                   : r->n_urls > 1
                       ? err_prefix(err, st, "none of %zu nodes goes on: ", r->n_urls)
                       : st;
    }
}

static void set_real(json_t *o, const char *name, float v) {
    char text[32]; /* as it is written: a float's neighbours as a double have long fractions */
    snprintf(text, sizeof text, "%.7g", (double)v);
    json_object_set_new(o, name, json_real(strtod(text, NULL)));
}

static json_t *request_body(const struct remote *r, const struct talk *t) {
    const struct lockstep_sampling *s = t->settings.sampling;
    json_t *o =
        json_pack("{s:s, s:O, s:b, s:{s:b}, s:i, s:i, s:I}", "model", r->model, "messages",
                  t->messages, "stream", 1, "stream_options", "include_usage", 1, "top_k",
                  s->top_k, "repeat_last_n", s->repeat_last_n, "seed", (json_int_t)s->seed);
    set_real(o, "temperature", s->temperature);
    set_real(o, "top_p", s->top_p);
    set_real(o, "min_p", s->min_p);
    set_real(o, "repeat_penalty", s->repeat_penalty);
    if (*t->settings.n_predict > 0)
        json_object_set_new(o, "max_tokens", json_integer(*t->settings.n_predict));
    json_object_update(o, t->settings.more);
    return o;
}

static enum status answer(struct talker *self, const struct talk *t, struct writer *w,
                          struct talk_answer *out, struct err *err) {
    struct remote *r = self->user;
    json_t *body = request_body(r, t);
    if (body == NULL)
        return err_set(err, ST_NO_MEMORY, "not enough memory for the conversation");
    r->writer = w;
    r->answer = out;
    r->begun_s = clock_s();
    r->first_s = r->last_s = 0;
    enum status st = ask(r, body, err);
    json_decref(body);
    out->first_s = r->first_s > 0 ? r->first_s - r->begun_s : 0;
    out->rest_s = r->last_s - r->first_s;
    return st;
}

/* ---- opening ----------------------------------------------------------------------------- */

static bool go_on(void *user) {
    (void)user;
    return cli_interrupted() == 0;
}

static enum status add_urls(struct remote *r, const char *urls, struct err *err) {
    size_t n;
    for (const char *at; (at = words_next(&urls, &n)) != NULL;) {
        if (r->n_urls == URLS_MAX)
            return err_set(err, ST_BAD_INPUT, "--server: more than %d addresses", URLS_MAX);
        TRY(ask_server_url(r->urls[r->n_urls], at, n, err));
        r->n_urls++;
    }
    return ST_OK;
}

/* The names at a server, one after another with ", ". */
static void list_names(const json_t *models, struct buf *out) {
    size_t i;
    json_t *m;
    json_array_foreach((json_t *)(uintptr_t)models, i, m) {
        buf_printf(out, "%s%s", i > 0 ? ", " : "", json_text(m, "id"));
    }
}

static enum status choose(struct remote *r, const json_t *models, const char *wanted,
                          struct err *err) {
    struct buf names = {0};
    size_t i;
    json_t *m;
    json_array_foreach((json_t *)(uintptr_t)models, i, m) {
        if (r->model == NULL && (wanted == NULL || str_eq(wanted, json_text(m, "id"))))
            r->model = mem_strdup(json_text(m, "id"));
    }
    if (r->model != NULL)
        return ST_OK;
    list_names(models, &names);
    enum status st =
        names.len == 0
            ? err_set(err, ST_NOT_FOUND, "%s has no model now", r->urls[r->at])
            : err_set(err, ST_NOT_FOUND, "%s has no model called %s, but %s", r->urls[r->at],
                      wanted != NULL ? wanted : "", buf_cstr(&names));
    buf_free(&names);
    return st;
}

/* Other nodes of the cluster that answer at the same port, where the server tells of them. */
static void learn_nodes(struct remote *r) {
    json_t *o, *node;
    size_t i;
    struct err ignored;
    if (ask_server_json(r->ask, r->urls[r->at], "/v1/cluster", LOOK_S, &o, &ignored) != ST_OK)
        return;
    const char *self = json_text(o, "self");
    json_array_foreach(json_object_get(o, "nodes"), i, node) {
        const char *address = json_text(node, "address");
        if (*address == '\0' || r->n_urls == URLS_MAX || str_eq(json_text(node, "name"), self))
            continue;
        bool known = !ask_server_url_at(r->urls[r->n_urls], r->urls[r->at], address);
        for (size_t k = 0; k < r->n_urls && !known; k++)
            known = str_eq(r->urls[k], r->urls[r->n_urls]);
        r->n_urls += !known;
    }
    json_decref(o);
}

static enum status look(struct remote *r, const char *model, struct err *err) {
    json_t *o;
    enum status st = ST_TIMEOUT;
    for (r->at = 0; r->at < r->n_urls; r->at++) {
        st = ask_server_json(r->ask, r->urls[r->at], "/v1/models", LOOK_S, &o, err);
        if (st == ST_OK)
            break;
    }
    if (st != ST_OK)
        return st;
    st = choose(r, json_object_get(o, "data"), model, err);
    json_decref(o);
    if (st == ST_OK)
        learn_nodes(r);
    return st;
}

enum status talk_server_open(struct talker **out, const char *urls, const char *model,
                             const char *key, struct err *err) {
    struct remote *r = mem_calloc(1, sizeof *r);
    if (r == NULL)
        return err_set(err, ST_NO_MEMORY, "not enough memory for the conversation");
    struct ask_server_config cfg = {.key = key, .go_on = go_on};
    enum status st = add_urls(r, urls, err);
    if (st == ST_OK)
        st = ask_server_open(&r->ask, &cfg, err);
    if (st == ST_OK)
        st = look(r, model, err);
    r->talker =
        (struct talker){.model = r->model, .is_server = true, .answer = answer, .user = r};
    if (st == ST_OK)
        *out = &r->talker;
    else
        talk_server_close(&r->talker);
    return st;
}

void talk_server_close(struct talker *t) {
    if (t == NULL)
        return;
    struct remote *r = t->user;
    ask_server_close(r->ask);
    mem_free(r->model);
    mem_free(r);
}

const char *talk_server_url(const struct talker *t) {
    const struct remote *r = t->user;
    return r->urls[r->at];
}
