/* gateway_asleep.c: what a gateway does itself for a model that is loaded on demand: it finds the
 * requests that need the model, and how long they want it to stay. While it is asleep, it answers
 * all others. */
#include "gateway/gateway_internal.h"

#include "api/dialects.h"
#include "api/page.h"
#include "base/buf.h"
#include "base/duration.h"
#include "base/mem.h"
#include "base/util.h"
#include "net/json_peek.h"
#include "server/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define JSON "application/json"
#define ALLOW "Access-Control-Allow-Origin"

/* ---- questions --------------------------------------------------------------------------- */

static bool is_one_of(const char *path, const char *const *places, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (path_is(places[i], path))
            return true;
    return false;
}

static bool may_ask(const struct passing *p) {
    return p->f->cfg.may_ask == NULL || p->f->cfg.may_ask(p->f->cfg.user, p->r, p->route->name);
}

static bool needs_model(const struct passing *p) {
    static const char *const places[] = {"/v1/chat/completions",
                                         "/v1/completions",
                                         "/v1/responses",
                                         "/v1/responses/input_tokens",
                                         "/v1/embeddings",
                                         "/v1/messages",
                                         "/v1/messages/count_tokens",
                                         "/api/chat",
                                         "/api/generate",
                                         "/api/embed",
                                         "/api/embeddings",
                                         "/api/pull",
                                         "/api/v0/chat/completions",
                                         "/api/v0/completions",
                                         "/api/v0/embeddings",
                                         "/completion",
                                         "/infill",
                                         "/apply-template",
                                         "/tokenize",
                                         "/detokenize"};
    return str_eq(p->method, "POST") && is_one_of(http_path(p->r), places, ARRAY_LEN(places));
}

static json_t *field(const struct passing *p, const char *key) {
    size_t n;
    const char *body = http_body(p->r, &n);
    char *text = json_peek_json(body, n, key);
    json_t *v = text != NULL ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    mem_free(text);
    return v;
}

/* Ollama's clients say for how long a model is to stay loaded. */
static void look_for_keep(struct passing *p) {
    static const char *const places[] = {"/api/chat", "/api/generate", "/api/embed",
                                         "/api/embeddings"};
    if (!is_one_of(http_path(p->r), places, ARRAY_LEN(places)))
        return;
    json_t *v = field(p, "keep_alive");
    if (json_is_number(v)) {
        p->keep_ms = duration_of_seconds(json_number_value(v));
        p->keeps = true;
    } else if (json_is_string(v)) {
        p->keeps = duration_parse(json_string_value(v), &p->keep_ms);
    }
    json_decref(v);
}

void question_begin(struct passing *p) {
    if (!needs_model(p) || p->is_unknown || !may_ask(p))
        return;
    p->question = true;
    look_for_keep(p);
    pthread_mutex_lock(&p->f->lock);
    p->route->use.n_now++;
    p->route->use.n_asked++;
    pthread_mutex_unlock(&p->f->lock);
}

void question_end(struct gateway_route *r) {
    pthread_mutex_lock(&r->gateway->lock);
    r->use.n_now--;
    pthread_mutex_unlock(&r->gateway->lock);
}

void question_reaches(struct passing *p) {
    if (!p->keeps)
        return;
    p->keeps = false;
    pthread_mutex_lock(&p->f->lock);
    p->route->use.n_keeps++;
    p->route->use.keep_ms = p->keep_ms;
    pthread_mutex_unlock(&p->f->lock);
}

/* ---- unloading --------------------------------------------------------------------------- */

static bool is_without(const struct passing *p, const char *key) {
    json_t *v = field(p, key);
    bool is = v == NULL || json_is_null(v) ||
              (json_is_string(v) && json_string_length(v) == 0) ||
              (json_is_array(v) && json_array_size(v) == 0);
    json_decref(v);
    return is;
}

bool question_unloads(struct passing *p) {
    bool generates = path_is("/api/generate", http_path(p->r));
    if (!p->question || !p->keeps || p->keep_ms != 0 ||
        !(generates || path_is("/api/chat", http_path(p->r))))
        return false;
    if (generates ? !is_without(p, "prompt") || !is_without(p, "suffix")
                  : !is_without(p, "messages"))
        return false;
    question_reaches(p);
    json_t *v = json_pack("{s:s, s:o, s:b, s:s}", "model", p->route->name, "created_at",
                          time_json((int64_t)time(NULL)), "done", 1, "done_reason", "unload");
    if (generates)
        json_object_set_new(v, "response", json_string(""));
    else
        json_object_set_new(v, "message",
                            json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
    passing_set_json(p, 200, v);
    return true;
}

/* ---- while it is asleep ------------------------------------------------------------------ */

bool asleep_is(const struct gateway_route *r) {
    return r->slept != 0 && r->target[0] == '\0' && !r->removed && !r->gateway->closing;
}

static void say_why(const struct passing *p, int64_t since, char *out, size_t size) {
    json_t *time = time_json(since);
    snprintf(out, size, "%s is asleep since %s: the next question loads it", p->route->name,
             json_string_value(time));
    json_decref(time);
}

/* The entry of its model in a list, where nothing was kept. */
static json_t *entry_without(const struct passing *p, enum kept what) {
    const char *name = p->route->name;
    json_int_t since = (json_int_t)p->route->since;
    switch (what) {
    case KEPT_ANTHROPIC:
        return json_pack("{s:s, s:s, s:s, s:o}", "type", "model", "id", name, "display_name",
                         name, "created_at", time_json(since));
    case KEPT_STUDIO:
        return json_pack("{s:s, s:s, s:s, s:s}", "id", name, "object", "model", "type", "llm",
                         "publisher", "lockstep");
    case KEPT_TAGS:
        return json_pack("{s:o, s:o, s:o, s:{}}", "name", json_sprintf("%s:latest", name),
                         "model", json_sprintf("%s:latest", name), "modified_at",
                         time_json(since), "details");
    default:
        return json_pack("{s:s, s:s, s:I, s:s}", "id", name, "object", "model", "created",
                         since, "owned_by", "lockstep");
    }
}

static json_t *list_without(const struct passing *p, enum kept what) {
    json_t *entry = entry_without(p, what);
    if (what == KEPT_TAGS)
        return json_pack("{s:[o]}", "models", entry);
    if (what == KEPT_ANTHROPIC)
        return json_pack("{s:[o], s:b, s:s, s:s}", "data", entry, "has_more", 0, "first_id",
                         p->route->name, "last_id", p->route->name);
    return json_pack("{s:s, s:[o]}", "object", "list", "data", entry);
}

/* A list of its model alone. */
static json_t *list_of(struct passing *p, enum kept what) {
    json_t *list = kept_json(p->route, what);
    if (list == NULL)
        list = list_without(p, what);
    json_t *entry = json_array_get(json_object_get(list, "data"), 0);
    if (what == KEPT_STUDIO && entry != NULL) {
        json_object_set_new(entry, "state", json_string("not-loaded"));
        json_object_del(entry, "loaded_context_length");
    }
    return list;
}

static json_t *entry_of(struct passing *p, enum kept what) {
    json_t *list = list_of(p, what);
    json_t *entry = json_incref(json_array_get(json_object_get(list, "data"), 0));
    json_decref(list);
    return entry;
}

static enum kept models_as(const struct passing *p) {
    return http_header(p->r, "anthropic-version") != NULL ? KEPT_ANTHROPIC : KEPT_MODELS;
}

/* What its server would say, as far as that can be known; NULL: not at all. */
static json_t *look_up(struct passing *p) {
    const char *path = http_path(p->r);
    static const char models[] = "/v1/models/", studio[] = "/api/v0/models/";
    if (str_eq(p->method, "POST"))
        return path_is("/api/show", path) && !p->is_unknown ? kept_json(p->route, KEPT_SHOW)
                                                            : NULL;
    if (path_is("/v1/models", path))
        return list_of(p, models_as(p));
    if (path_is("/api/v0/models", path))
        return list_of(p, KEPT_STUDIO);
    if (path_is("/api/tags", path))
        return list_of(p, KEPT_TAGS);
    if (path_is("/api/ps", path))
        return json_pack("{s:[]}", "models");
    if (path_is("/api/version", path))
        return kept_json(p->route, KEPT_VERSION);
    if (path_is("/props", path))
        return kept_json(p->route, KEPT_PROPS);
    const char *below = path_below(p->r, models);
    if (str_starts(path, path_without_version(models, path)) &&
        service_name_is(below, p->route->name))
        return entry_of(p, models_as(p));
    if (str_starts(path, studio) && service_name_is(path + strlen(studio), p->route->name))
        return entry_of(p, KEPT_STUDIO);
    return NULL;
}

static void refuse(struct passing *p, int status, enum err_code code, const char *sentence) {
    passing_set_json(p, status,
                     dialect_error(http_path(p->r), status, code, sentence,
                                   code == ERR_MODEL_UNKNOWN ? "model" : ""));
}

static void say_otherwise(struct passing *p, const char *why) {
    char sentence[512];
    bool responses =
        str_starts(http_path(p->r), path_without_version("/v1/responses/", http_path(p->r)));
    snprintf(sentence, sizeof sentence, "the model does not exist here; this server has \"%s\"",
             p->route->name);
    if (needs_model(p) || path_is("/api/show", http_path(p->r)))
        refuse(p, 404, ERR_MODEL_UNKNOWN, sentence);
    else if (responses)
        refuse(p, 404, ERR_RESPONSE_UNKNOWN,
               "no response with this id is stored: the model was asleep meanwhile");
    else if (passing_only_asks(p) && str_eq(http_path(p->r), "/slots"))
        refuse(p, 503, ERR_NONE, why);
    else
        refuse(p, 404, ERR_NONE, "there is nothing at this path");
}

/* The same pages may read it as of its server. */
static void let_in(struct passing *p) {
    const char *origin = http_header(p->r, "Origin");
    char *given;
    pthread_mutex_lock(&p->f->lock);
    given = p->route->origin != NULL ? mem_strdup(p->route->origin) : NULL;
    pthread_mutex_unlock(&p->f->lock);
    if (given == NULL && origin != NULL && http_is_local_origin(origin))
        given = mem_strdup(origin);
    if (given != NULL) {
        passing_add_header(p, ALLOW, given);
        passing_add_header(p, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
        passing_add_header(p, "Access-Control-Allow-Headers", "*, Authorization");
    }
    mem_free(given);
}

static void say_metrics(struct passing *p) {
    passing_set(
        p, 200, "text/plain; version=0.0.4",
        mem_strdup("# HELP lockstep_asleep 1: the model is not loaded until somebody asks.\n"
                   "# TYPE lockstep_asleep gauge\nlockstep_asleep 1\n"));
}

static void say_it(struct passing *p, const char *why) {
    struct buf text = {0};
    buf_printf(&text, "lockstep: %s.\n", why);
    passing_set(p, 200, "text/plain; charset=utf-8", text.bytes);
}

static void answer(struct passing *p, const char *why) {
    const char *path = http_path(p->r);
    json_t *known;
    if (path_is("/health", path))
        passing_set_json(p, 200,
                         json_pack("{s:s, s:b, s:s}", "status", "ok", "asleep", 1, "why", why));
    else if (str_eq(p->method, "OPTIONS"))
        passing_set(p, 204, "text/plain", mem_strdup(""));
    else if (!may_ask(p))
        refuse(p, 401, ERR_NONE, "an API key is needed: Authorization: Bearer KEY");
    else if (passing_only_asks(p) && path_is("/metrics", path))
        say_metrics(p);
    else if (passing_only_asks(p) && str_eq(path, "/"))
        say_it(p, why);
    else if ((known = look_up(p)) != NULL)
        passing_set_json(p, 200, known);
    else
        say_otherwise(p, why);
    if (p->status == 401)
        passing_add_header(p, "WWW-Authenticate", "Bearer");
    let_in(p);
}

bool asleep_answers(struct passing *p) {
    char why[256];
    pthread_mutex_lock(&p->f->lock);
    int64_t since = p->route != NULL && asleep_is(p->route) ? p->route->slept : 0;
    pthread_mutex_unlock(&p->f->lock);
    if (since == 0 || p->begun || p->question)
        return false;
    if (page_is_asked(p->r)) { /* given at the end: p is gone with its request */
        p->gives_page = true;
        return true;
    }
    say_why(p, since, why, sizeof why);
    answer(p, why);
    return true;
}

/* ---- until when it stays ----------------------------------------------------------------- */

void asleep_add_expiry(struct passing *p) {
    size_t i;
    json_t *one;
    pthread_mutex_lock(&p->f->lock);
    int64_t when = p->route->expires;
    pthread_mutex_unlock(&p->f->lock);
    if (when == 0 || p->status != 200 || !passing_only_asks(p) ||
        !path_is("/api/ps", http_path(p->r)))
        return;
    json_t *all = p->text.len > 0 ? json_loadb(p->text.bytes, p->text.len, 0, NULL) : NULL;
    json_array_foreach(json_object_get(all, "models"), i, one) {
        json_object_set_new(one, "expires_at", time_json(when));
    }
    if (json_is_object(all)) {
        buf_clear(&p->text);
        buf_add_json(&p->text, json_incref(all));
    }
    json_decref(all);
}
