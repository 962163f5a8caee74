/* gateway_pass.c: one request on its way through a gateway. It asks the server that its route
 * names, and the next one if that is lost. */
#include "gateway/gateway_internal.h"

#include "api/dialects.h"
#include "api/page.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "cluster/client.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

#define CONNECT_S 5L
#define KEEPALIVE_IDLE_S 10L
#define KEEPALIVE_GAP_S 3L
#define AGAIN_S 0.3
/* How long a request waits for a node that serves: a new request, and one that was under way. */
#define PATIENCE_NEW_S 60.0
#define PATIENCE_LOST_S 600.0
/* A server that ends refuses requests at once, and the controllers need a moment to announce
 * the next one: ten seconds if its node is lost. A request that watches the server does not
 * wait for that. */
#define REFUSED_S 2.0
#define WHOLE_MAX ((size_t)256 << 20)
#define EVENT_MAX ((size_t)16 << 20)
#define FILLER ": still at work\n\n"

/* The units of a stream of one choice: these keep their order, while several choices may take
 * turns in another one. */
struct lane {
    uint64_t *seen; /* [n_seen] digests of the units that the client has */
    size_t n_seen, cap;
    size_t n_units; /* complete ones in this try */
};

/* ---- the request ------------------------------------------------------------------------- */

static bool is_among(const char *name, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcasecmp(name, list[i]) == 0)
            return true;
    return false;
}

/* Of one connection, not of the request; or what curl writes itself. */
static bool is_ours(const char *name) {
    static const char *const ours[] = {
        "connection", "keep-alive",     "te",     "upgrade", "transfer-encoding", "trailer",
        "host",       "content-length", "expect", "date",    "proxy-connection"};
    return is_among(name, ours, ARRAY_LEN(ours));
}

/* Without memory there is one header less. */
static void append(struct curl_slist **list, const char *line) {
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (longer != NULL)
        *list = longer;
}

static void add_header(struct curl_slist **list, const char *name, const char *value) {
    size_t size = strlen(name) + strlen(value) + 3;
    char *line = mem_alloc(size);
    if (line == NULL)
        return;
    snprintf(line, size, *value != '\0' ? "%s: %s" : "%s;", name, value);
    append(list, line);
    mem_free(line);
}

static void take_header(void *user, const char *name, const char *value) {
    struct passing *p = user;
    if (!is_ours(name))
        add_header(&p->headers, name, value);
}

static void add_escaped(struct buf *t, const char *text, bool is_path) {
    static const char plain[] = "-._~";
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        char hex[4];
        bool is_plain = (*c >= '0' && *c <= '9') || (*c >= 'A' && *c <= 'Z') ||
                        (*c >= 'a' && *c <= 'z') || strchr(plain, *c) != NULL ||
                        (is_path && *c == '/');
        if (is_plain) {
            buf_add(t, c, 1);
        } else {
            snprintf(hex, sizeof hex, "%%%02X", *c);
            buf_add(t, hex, 3);
        }
    }
}

static void take_argument(void *user, const char *name, const char *value) {
    struct buf *t = user;
    buf_add(t, memchr(t->bytes, '?', t->len) == NULL ? "?" : "&", 1);
    add_escaped(t, name, false);
    buf_add_str(t, "=");
    add_escaped(t, value, false);
}

/* So that its answer is the same from any server. */
static void name_request(struct passing *p) {
    char value[REPLY_NAME_TEXT];
    reply_make_name(value, http_client(p->r));
    add_header(&p->headers, REPLY_NAME_HEADER, value);
}

void passing_set_model(struct passing *p, const char *name, const char *before) {
    struct buf path = {0};
    add_header(&p->headers, REPLY_MODEL_HEADER, name);
    if (before == NULL)
        return;
    add_escaped(&path, before, true);
    add_escaped(&path, name, false);
    if (path.failed) {
        buf_free(&path);
        return;
    }
    mem_free(p->path);
    p->path = path.bytes;
}

bool passing_only_asks(const struct passing *p) {
    return str_eq(p->method, "GET");
}

struct passing *passing_open(struct gateway *f, struct http_request *r) {
    struct buf path = {0};
    struct passing *p = mem_calloc(1, sizeof *p);
    const char *model = http_query(r, "model");
    if (p == NULL)
        return NULL;
    p->f = f;
    p->r = r;
    p->method = http_method(r);
    if (str_eq(p->method, "HEAD"))
        p->method = "GET"; /* the answer has the length of that one's */
    add_escaped(&path, http_path(r), true);
    http_each_query(r, take_argument, &path);
    http_each_header(r, take_header, p);
    if (http_header(r, REPLY_NAME_HEADER) == NULL)
        name_request(p);
    append(&p->headers, "Expect:"); /* libcurl leaves out what it would say by itself */
    if (http_header(r, "Content-Type") == NULL)
        append(&p->headers, "Content-Type:");
    p->path = path.bytes;
    p->asked_model = model != NULL ? mem_strdup(model) : NULL;
    if (path.failed || (model != NULL && p->asked_model == NULL)) {
        passing_free(p);
        return NULL;
    }
    return p;
}

void passing_free(void *user) {
    struct passing *p = user;
    curl_slist_free_all(p->headers);
    curl_slist_free_all(p->reply_headers);
    mem_free(p->path);
    mem_free(p->asked_model);
    buf_free(&p->text);
    for (size_t i = 0; i < GATEWAY_LANES; i++)
        if (p->lanes[i] != NULL) {
            mem_free(p->lanes[i]->seen);
            mem_free(p->lanes[i]);
        }
    mem_free(p);
}

void passing_gone(void *user) {
    struct passing *p = user;
    atomic_store_explicit(&p->gone, true, memory_order_relaxed);
    pthread_cond_broadcast(&p->f->changed);
}

/* ---- the answer -------------------------------------------------------------------------- */

/* Of which choice a unit is: OpenAI's streams have several, and say which. */
static size_t lane_of(const char *bytes, size_t n) {
    static const char key[] = "\"index\":";
    const char *at = memmem(bytes, n, key, sizeof key - 1);
    unsigned long index = at != NULL ? strtoul(at + sizeof key - 1, NULL, 10) : GATEWAY_LANES;
    return MIN(index + 1, GATEWAY_LANES) % GATEWAY_LANES;
}

static struct lane *lane_place(struct passing *p, size_t i) {
    if (p->lanes[i] == NULL)
        p->lanes[i] = mem_calloc(1, sizeof *p->lanes[i]);
    return p->lanes[i];
}

static bool remember(struct lane *l, uint64_t digest) {
    if (!mem_reserve(&l->seen, &l->cap, l->n_seen + 1, sizeof *l->seen))
        return false;
    l->seen[l->n_seen++] = digest;
    return true;
}

/* One event or line; false: no more is wanted. */
static bool give_unit(struct passing *p, const char *bytes, size_t n) {
    uint64_t digest;
    uint8_t hash[crypto_generichash_BYTES_MIN];
    static const char news[] = ": lockstep {";
    if (p->units == GATEWAY_EVENTS && n > strlen(news) && str_starts(bytes, news))
        return http_stream_write(p->r, bytes, n) == ST_OK; /* it waits there; no event */
    if (p->units == GATEWAY_EVENTS && *bytes == ':')
        return true; /* the server's filler; the client gets ours */
    struct lane *l = lane_place(p, lane_of(bytes, n));
    if (l == NULL)
        return false;
    crypto_generichash(hash, sizeof hash, (const uint8_t *)bytes, n, NULL, 0);
    memcpy(&digest, hash, sizeof digest);
    size_t i = l->n_units++;
    if (i < l->n_seen) {
        p->broken = l->seen[i] != digest;
        return !p->broken;
    }
    return remember(l, digest) && http_stream_write(p->r, bytes, n) == ST_OK;
}

/* The units that are complete in p->text; false: no more is wanted. */
static bool give_units(struct passing *p) {
    const char *end = p->units == GATEWAY_EVENTS ? "\n\n" : "\n";
    size_t n_end = strlen(end), at = 0;
    bool wanted = true;
    while (wanted && p->text.len > at) {
        const char *from = p->text.bytes + at, *stop = strstr(from, end);
        if (stop == NULL)
            break;
        size_t n = (size_t)(stop - from) + n_end;
        wanted = give_unit(p, from, n);
        at += n;
    }
    memmove(p->text.bytes, p->text.bytes + at, p->text.len - at + 1);
    p->text.len -= at;
    return wanted;
}

const char *passing_reply_header(const struct passing *p, const char *name) {
    size_t n = strlen(name);
    for (const struct curl_slist *h = p->reply_headers; h != NULL; h = h->next)
        if (strncasecmp(h->data, name, n) == 0 && h->data[n] == ':')
            return h->data + n + 1 + strspn(h->data + n + 1, " ");
    return NULL;
}

static const char *content_type(const struct passing *p) {
    const char *type = passing_reply_header(p, "Content-Type");
    return type != NULL ? type : "application/octet-stream";
}

static void give_headers(struct passing *p) {
    for (const struct curl_slist *h = p->reply_headers; h != NULL; h = h->next) {
        char name[128];
        const char *colon = strchr(h->data, ':');
        if (colon == NULL || (size_t)(colon - h->data) >= sizeof name)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(colon - h->data), h->data);
        /* What the server here says itself; the first one always, the others of a stream. */
        static const char *const said[] = {"Content-Type", "Cache-Control",
                                           "X-Accel-Buffering"};
        if (!is_ours(name) && !is_among(name, said, p->begun ? ARRAY_LEN(said) : 1))
            http_set_header(p->r, name, colon + 1 + strspn(colon + 1, " "));
    }
}

/* The first bytes of this try's body have come. */
static void begin_body(struct passing *p) {
    const char *type = content_type(p);
    p->units = p->status != 200                           ? GATEWAY_WHOLE
               : str_starts(type, "text/event-stream")    ? GATEWAY_EVENTS
               : str_starts(type, "application/x-ndjson") ? GATEWAY_LINES
                                                          : GATEWAY_WHOLE;
    if (p->units == GATEWAY_WHOLE || p->begun)
        return;
    p->begun = true;
    p->events = p->units == GATEWAY_EVENTS;
    give_headers(p);
    http_stream_begin(p->r, p->status, type);
    if (p->units == GATEWAY_EVENTS)
        http_fill_quiet(p->r, "text/event-stream", FILLER);
}

/* The client has a part of a stream, but this answer is not a stream. */
static bool is_out_of_place(const struct passing *p) {
    return p->begun && p->units == GATEWAY_WHOLE;
}

static size_t take_body(char *bytes, size_t size, size_t n, void *user) {
    struct passing *p = user;
    (void)size;
    if (!p->has_status) {
        p->has_status = true;
        begin_body(p);
    }
    if (!buf_add(&p->text, bytes, n) ||
        p->text.len > (p->units == GATEWAY_WHOLE ? WHOLE_MAX : EVENT_MAX)) {
        p->broken = true;
        return 0;
    }
    if (is_out_of_place(p)) {
        p->broken = p->status < 500; /* else it does not serve yet, or no more */
        return 0;
    }
    return p->units == GATEWAY_WHOLE || give_units(p) ? n : 0;
}

static size_t take_reply_header(char *bytes, size_t size, size_t n, void *user) {
    struct passing *p = user;
    char line[2048];
    (void)size;
    size_t len = n;
    while (len > 0 && (bytes[len - 1] == '\n' || bytes[len - 1] == '\r'))
        len--;
    if (len >= sizeof line)
        return n;
    memcpy(line, bytes, len);
    line[len] = '\0';
    if (str_starts(line, "HTTP/")) { /* another one came before: 100 Continue */
        const char *number = strchr(line, ' ');
        p->status = number != NULL ? atoi(number) : 0;
        curl_slist_free_all(p->reply_headers);
        p->reply_headers = NULL;
    } else if (len > 0) {
        append(&p->reply_headers, line);
    }
    return n;
}

/* ---- one try ----------------------------------------------------------------------------- */

static bool is_gone(struct passing *p) {
    return atomic_load_explicit(&p->gone, memory_order_relaxed);
}

static bool is_late(const struct passing *p) {
    bool streams = p->status == 200 && str_starts(content_type(p), "text/event-stream");
    return p->head_by_s > 0 && !streams && clock_s() > p->head_by_s;
}

static int look(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    struct passing *p = user;
    (void)a, (void)b, (void)c, (void)d;
    pthread_mutex_lock(&p->f->lock);
    bool over = p->f->closing || p->route->removed || p->route->n_targets != p->target;
    pthread_mutex_unlock(&p->f->lock);
    return over || is_gone(p) || is_late(p);
}

static CURLcode set_up(CURL *curl, struct passing *p, const char *target) {
    size_t n;
    const char *body = http_body(p->r, &n);
    struct buf url = {0};
    buf_add_str(&url, p->f->scheme);
    buf_add_str(&url, target);
    buf_add_str(&url, p->path);
    CURLcode rc = url.failed ? CURLE_OUT_OF_MEMORY : CURLE_OK;
#define SET(option, value)                                  \
    do {                                                    \
        if (rc == CURLE_OK)                                 \
            rc = curl_easy_setopt(curl, (option), (value)); \
    } while (0)
    SET(CURLOPT_URL, url.bytes);
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    SET(CURLOPT_TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    SET(CURLOPT_TCP_KEEPINTVL, KEEPALIVE_GAP_S);
    SET(CURLOPT_HTTPHEADER, p->headers);
    SET(CURLOPT_HEADERFUNCTION, take_reply_header);
    SET(CURLOPT_HEADERDATA, p);
    SET(CURLOPT_WRITEFUNCTION, take_body);
    SET(CURLOPT_WRITEDATA, p);
    SET(CURLOPT_NOPROGRESS, 0L);
    SET(CURLOPT_XFERINFOFUNCTION, look);
    SET(CURLOPT_XFERINFODATA, p);
    if (p->limit_s > 0)
        SET(CURLOPT_TIMEOUT_MS, (long)(p->limit_s * 1000));
    if (!str_eq(p->method, "GET")) {
        SET(CURLOPT_CUSTOMREQUEST, p->method);
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)n);
        SET(CURLOPT_POSTFIELDS, body);
    }
    if (rc == CURLE_OK && p->f->pin[0] != '\0' && !client_pin(curl, p->f->pin))
        rc = CURLE_OUT_OF_MEMORY;
#undef SET
    buf_free(&url);
    return rc;
}

/* The answer of that server has come, whole; false: it has been lost, or is not wanted. */
static bool try_once(struct passing *p, const char *target) {
    CURL *curl = client_curl();
    curl_slist_free_all(p->reply_headers);
    p->reply_headers = NULL;
    p->status = 0;
    p->has_status = false;
    p->head_by_s = p->head_s > 0 ? clock_s() + p->head_s : 0;
    p->units = GATEWAY_WHOLE;
    p->text.len = 0;
    for (size_t i = 0; i < GATEWAY_LANES; i++)
        if (p->lanes[i] != NULL)
            p->lanes[i]->n_units = 0;
    CURLcode rc = curl != NULL ? set_up(curl, p, target) : CURLE_OUT_OF_MEMORY;
    if (rc == CURLE_OK)
        rc = curl_easy_perform(curl);
    curl_easy_cleanup(curl);
    if (rc != CURLE_OK)
        log_debug("%s %s: %s", target, p->path, curl_easy_strerror(rc));
    return rc == CURLE_OK && p->status != 0 && !is_out_of_place(p);
}

/* ---- all tries --------------------------------------------------------------------------- */

/* Sleeps for a moment, or until the target changes. */
static void sleep_a_little(struct gateway *f) {
    uint64_t until_ns = clock_ns() + (uint64_t)(AGAIN_S * 1e9);
    pthread_mutex_lock(&f->lock);
    if (!f->closing)
        (void)thread_cond_wait_until(&f->changed, &f->lock, until_ns);
    pthread_mutex_unlock(&f->lock);
}

/* The node that serves now; false: none until then, or the answer is no longer needed. */
static bool find_target(struct passing *p, double until_s, char out[NET_TEXT_BYTES]) {
    struct gateway *f = p->f;
    double latest_s = clock_s() + PATIENCE_LOST_S;
    bool rang = false;
    for (;;) {
        pthread_mutex_lock(&f->lock);
        bool closing = f->closing || p->route->removed;
        memcpy(out, p->route->target, NET_TEXT_BYTES);
        p->target = p->route->n_targets;
        if (*out != '\0')
            memcpy(p->served_by, p->route->name_of_server, sizeof p->served_by);
        bool sleeps = asleep_is(p->route);
        bool wakes = sleeps || (p->route->woken && p->route->coming[0] != '\0');
        pthread_mutex_unlock(&f->lock);
        if (closing || is_gone(p) || (sleeps && !p->question))
            return false;
        if (sleeps && !rang && f->cfg.wake != NULL)
            f->cfg.wake(f->cfg.user);
        rang |= sleeps;
        if (wakes && p->question) /* it takes as long as it takes to load a model */
            until_s = MIN(MAX(until_s, clock_s() + PATIENCE_NEW_S), latest_s);
        if (*out != '\0')
            return true;
        if (clock_s() >= until_s)
            return false;
        wait_look(p);
        sleep_a_little(f);
    }
}

static bool is_ending(const struct passing *p) {
    return p->status == 503 && passing_reply_header(p, HTTP_ENDING_HEADER) != NULL;
}

/* Is there another one, until then? */
static bool is_target_changing(struct passing *p, double until_s) {
    while (clock_s() < until_s && !is_gone(p)) {
        pthread_mutex_lock(&p->f->lock);
        bool changed = p->route->n_targets != p->target || p->route->removed || p->f->closing;
        pthread_mutex_unlock(&p->f->lock);
        if (changed)
            return true;
        sleep_a_little(p->f);
    }
    return false;
}

bool passing_ask(struct passing *p, bool patient) {
    char target[NET_TEXT_BYTES];
    bool waits =
        patient &&
        !passing_only_asks(p); /* a request that watches the server needs the answer at once */
    double until = clock_s() + (waits ? PATIENCE_NEW_S : 0);
    p->broken = false;
    while (find_target(p, until, target)) {
        wait_end(p);
        question_reaches(p);
        if (try_once(p, target) &&
            !(is_ending(p) && is_target_changing(p, MAX(until, clock_s() + REFUSED_S)))) {
            asleep_add_expiry(p);
            return true;
        }
        if (p->broken || is_gone(p))
            return false;
        if (p->status != 0 && waits) {
            waits = false; /* not anew for each that is lost */
            until = clock_s() + PATIENCE_LOST_S;
        }
        if (clock_s() >= until)
            break;
        wait_note_lost(p);
        sleep_a_little(p->f);
    }
    return !is_gone(p) && asleep_answers(p);
}

static json_t *nobody(const struct passing *p) {
    static const char why[] =
        "no node serves this model just now; one begins as soon as it can";
    if (str_eq(http_path(p->r), "/health"))
        return json_pack("{s:s, s:s}", "status", "unhealthy", "why", why);
    return dialect_error(http_path(p->r), 503, ERR_NONE, why, "");
}

void passing_set(struct passing *p, int status, const char *type, char *text) {
    curl_slist_free_all(p->reply_headers);
    p->reply_headers = NULL;
    add_header(&p->reply_headers, "Content-Type", type);
    p->units = GATEWAY_WHOLE;
    p->text.len = 0;
    p->status = text != NULL && buf_add_str(&p->text, text) ? status : 503;
    mem_free(text);
}

void passing_set_json(struct passing *p, int status, json_t *v) {
    struct buf text = {0};
    buf_add_json(&text, v);
    passing_set(p, status, "application/json", text.bytes);
}

void passing_add_header(struct passing *p, const char *name, const char *value) {
    add_header(&p->reply_headers, name, value);
}

void passing_give(struct passing *p, int status, const char *type, const struct buf *text) {
    give_headers(p);
    http_reply(p->r, status, type, text->bytes, text->len);
}

void passing_end(struct passing *p, bool complete) {
    if (p->begun && !complete) {
        http_stream_break(p->r);
    } else if (p->begun) {
        if (p->text.len > 0)
            (void)http_stream_write(p->r, p->text.bytes, p->text.len);
        http_stream_end(p->r);
    } else if (complete && p->gives_page) {
        (void)page_answer(p->r);
    } else if (complete) {
        passing_give(p, p->status, content_type(p), &p->text);
    } else {
        http_set_header(p->r, "Retry-After", "5");
        reply_json(p->r, 503, nobody(p));
    }
}
