/* ask_server.c: Asks a running server over HTTP: JSON, and answers as they are made. */
#include "cli/ask_server.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/program.h"
#include "base/util.h"
#include "cluster/client.h"
#include "net/http.h"
#include "server/reply.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>

#define ASK_MS 50
#define CONNECT_MS 5000L
#define SILENCE_S 90.0 /* servers write something every ten seconds */
#define REPLY_MAX ((size_t)16 << 20)

struct ask_server {
    struct ask_server_config cfg;
    CURL *curl;
    CURLM *multi;
    struct curl_slist *headers; /* of the request under way */
    char why[CURL_ERROR_SIZE];
    struct buf text;                        /* what has come and is not used yet */
    const struct ask_server_stream *stream; /* NULL: text is gathered */
    bool too_long, enough, ended, ending;   /* ended: [DONE] has come */
    double heard_s, until_s;                /* clock; 0: no end */
    enum status st;                         /* of event() */
    struct err err;
};

/* ---- URLs -------------------------------------------------------------------------------- */

static bool has_port(const char *host) {
    const char *close = strrchr(host, ']');
    return strchr(close != NULL ? close : host, ':') != NULL;
}

enum status ask_server_url(char out[SERVER_URL_BYTES], const char *word, size_t n,
                           struct err *err) {
    char text[SERVER_URL_BYTES - 16];
    if (n == 0 || n >= sizeof text)
        return err_set(err, ST_BAD_INPUT,
                       n == 0 ? "a server's address is empty"
                              : "a server's address is too long");
    memcpy(text, word, n);
    text[n] = '\0';
    while (n > 0 && text[n - 1] == '/')
        text[--n] = '\0';
    if (n > 3 && str_eq(text + n - 3, "/v1")) /* as other clients want it */
        text[n -= 3] = '\0';
    bool has_scheme = str_starts(text, "http://") || str_starts(text, "https://");
    const char *host = has_scheme ? strstr(text, "://") + 3 : text;
    for (const char *c = text; *c != '\0'; c++)
        if (*c <= ' ' || *c == 0x7f || strchr("\"<>\\^`{|}?#@", *c) != NULL)
            return err_set(err, ST_BAD_INPUT,
                           "\"%.100s\" is not the address of a server: host:port or a URL",
                           text);
    if (*host == '\0' || (!has_scheme && strchr(text, '/') != NULL))
        return err_set(err, ST_BAD_INPUT,
                       "\"%.100s\" is not the address of a server: host:port or a URL", text);
    if (has_scheme)
        snprintf(out, SERVER_URL_BYTES, "%s", text);
    else if (has_port(host))
        snprintf(out, SERVER_URL_BYTES, "http://%s", text);
    else
        snprintf(out, SERVER_URL_BYTES, "http://%s:%d", text, SERVER_PORT);
    return ST_OK;
}

bool ask_server_url_at(char out[SERVER_URL_BYTES], const char *url, const char *host) {
    const char *begin = strstr(url, "://") + 3, *path = strchr(begin, '/');
    size_t n_host = path != NULL ? (size_t)(path - begin) : strlen(begin);
    const char *close = memchr(begin, ']', n_host);
    const char *from = close != NULL ? close : begin;
    const char *colon = memchr(from, ':', n_host - (size_t)(from - begin));
    const char *rest = colon != NULL ? colon : begin + n_host;
    bool bare_v6 = strchr(host, ':') != NULL && *host != '[';
    return snprintf(out, SERVER_URL_BYTES, "%.*s%s%s%s%s", (int)(begin - url), url,
                    bare_v6 ? "[" : "", host, bare_v6 ? "]" : "", rest) < SERVER_URL_BYTES;
}

/* ---- opening ----------------------------------------------------------------------------- */

static size_t on_data(char *bytes, size_t size, size_t n, void *user);
static size_t on_header(char *bytes, size_t size, size_t n, void *user);

enum status ask_server_open(struct ask_server **out, const struct ask_server_config *cfg,
                            struct err *err) {
    struct ask_server *a = mem_calloc(1, sizeof *a);
    if (a == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to ask a server");
    const char *trusted = env_get("SSL_CERT_FILE");
    a->cfg = *cfg;
    a->curl = client_curl();
    a->multi = curl_multi_init();
    CURL *h = a->curl;
    if (h == NULL || a->multi == NULL ||
        curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https") != CURLE_OK ||
        curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS) != CURLE_OK ||
        curl_easy_setopt(h, CURLOPT_ERRORBUFFER, a->why) != CURLE_OK ||
        curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_data) != CURLE_OK ||
        curl_easy_setopt(h, CURLOPT_WRITEDATA, a) != CURLE_OK ||
        curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header) != CURLE_OK ||
        curl_easy_setopt(h, CURLOPT_HEADERDATA, a) != CURLE_OK ||
        (trusted != NULL && curl_easy_setopt(h, CURLOPT_CAINFO, trusted) != CURLE_OK)) {
        ask_server_close(a);
        return err_set(err, ST_NO_MEMORY, "no memory to ask a server");
    }
    *out = a;
    return ST_OK;
}

void ask_server_close(struct ask_server *a) {
    if (a == NULL)
        return;
    curl_easy_cleanup(a->curl);
    curl_multi_cleanup(a->multi);
    curl_slist_free_all(a->headers);
    buf_free(&a->text);
    mem_free(a);
}

/* ---- what comes -------------------------------------------------------------------------- */

static long status_of(struct ask_server *a) {
    long status = 0;
    curl_easy_getinfo(a->curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static size_t on_header(char *bytes, size_t size, size_t n, void *user) {
    struct ask_server *a = user;
    static const char ending[] = HTTP_ENDING_HEADER ":";
    if (size * n >= sizeof ending - 1 && strncasecmp(bytes, ending, sizeof ending - 1) == 0)
        a->ending = true;
    return size * n;
}

/* ": lockstep {...}" */
static void take_comment(struct ask_server *a, const char *line, size_t n) {
    static const char begin[] = ": lockstep ";
    size_t n_begin = sizeof begin - 1;
    if (n < n_begin || memcmp(line, begin, n_begin) != 0 || a->stream->told == NULL)
        return;
    json_t *comment = json_loadb(line + n_begin, n - n_begin, 0, NULL);
    if (json_is_object(comment))
        a->stream->told(a->stream->user, comment);
    json_decref(comment);
}

/* One line "data: ..." of an event, or a comment. */
static enum status take_line(struct ask_server *a, const char *line, size_t n) {
    static const char begin[] = "data:";
    take_comment(a, line, n);
    if (n < sizeof begin - 1 || memcmp(line, begin, sizeof begin - 1) != 0)
        return ST_OK;
    line += sizeof begin - 1;
    n -= sizeof begin - 1;
    while (n > 0 && (*line == ' ' || line[n - 1] == '\r')) {
        line += *line == ' ';
        n--;
    }
    if (n == 6 && memcmp(line, "[DONE]", 6) == 0) {
        a->ended = true;
        return ST_OK;
    }
    json_t *event = json_loadb(line, n, JSON_ALLOW_NUL, NULL);
    if (event == NULL)
        return err_set(&a->err, ST_IO, "what the server sends is not valid JSON");
    enum status st = a->stream->event(a->stream->user, event, &a->err);
    json_decref(event);
    return st;
}

static bool take_lines(struct ask_server *a) {
    struct buf *t = &a->text;
    size_t at = 0;
    for (char *end; a->st == ST_OK && t->len > at &&
                    (end = memchr(t->bytes + at, '\n', t->len - at)) != NULL;) {
        size_t n = (size_t)(end - t->bytes) - at;
        a->st = take_line(a, t->bytes + at, n);
        at += n + 1;
    }
    memmove(t->bytes, t->bytes + at, t->len - at + 1);
    t->len -= at;
    return a->st == ST_OK;
}

static size_t on_data(char *bytes, size_t size, size_t n, void *user) {
    struct ask_server *a = user;
    size_t all = size * n;
    a->heard_s = clock_s();
    a->too_long = all > REPLY_MAX - a->text.len;
    if (a->too_long || !buf_add(&a->text, bytes, all))
        return 0;
    if (a->stream != NULL && status_of(a) == 200 && !take_lines(a))
        return 0;
    return all;
}

/* ---- asking ------------------------------------------------------------------------------ */

static CURLcode perform(struct ask_server *a) {
    CURLcode rc = CURLE_FAILED_INIT;
    int running = 1, left;
    while (running != 0) {
        double now = clock_s();
        a->enough |= a->cfg.go_on != NULL && !a->cfg.go_on(a->cfg.user);
        if (a->enough || a->ended)
            return CURLE_ABORTED_BY_CALLBACK;
        if (now - a->heard_s > SILENCE_S || (a->until_s > 0 && now > a->until_s))
            return CURLE_OPERATION_TIMEDOUT;
        if (curl_multi_perform(a->multi, &running) != CURLM_OK)
            return CURLE_FAILED_INIT;
        if (running != 0 && !a->ended)
            curl_multi_poll(a->multi, NULL, 0, ASK_MS, NULL);
    }
    for (CURLMsg *m; (m = curl_multi_info_read(a->multi, &left)) != NULL;)
        if (m->msg == CURLMSG_DONE)
            rc = m->data.result;
    return rc;
}

static bool add_header(struct curl_slist **list, const char *name, const char *value) {
    char line[1200];
    if (value == NULL)
        return true;
    snprintf(line, sizeof line, *value != '\0' ? "%s: %s" : "%s:", name, value);
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (longer != NULL)
        *list = longer;
    return longer != NULL;
}

static bool add_headers(struct ask_server *a, bool has_body, const char *name) {
    char key[1100];
    if (a->cfg.key != NULL)
        snprintf(key, sizeof key, "Bearer %s", a->cfg.key);
    curl_slist_free_all(a->headers);
    a->headers = NULL;
    return add_header(&a->headers, "Expect", "") &&
           add_header(&a->headers, "Content-Type", has_body ? "application/json" : NULL) &&
           add_header(&a->headers, "Authorization", a->cfg.key != NULL ? key : NULL) &&
           add_header(&a->headers, REPLY_NAME_HEADER, name);
}

static bool prepare(struct ask_server *a, const char *url, const char *path, const char *body,
                    const char *name) {
    char full[SERVER_URL_BYTES + 256];
    buf_clear(&a->text);
    a->too_long = a->enough = a->ended = a->ending = false;
    a->st = ST_OK;
    a->why[0] = '\0';
    a->heard_s = clock_s();
    if (snprintf(full, sizeof full, "%s%s", url, path) >= (int)sizeof full)
        return false;
    CURL *h = a->curl;
    return add_headers(a, body != NULL, name) &&
           curl_easy_setopt(h, CURLOPT_URL, full) == CURLE_OK &&
           curl_easy_setopt(h, CURLOPT_HTTPHEADER, a->headers) == CURLE_OK &&
           curl_easy_setopt(h, body != NULL ? CURLOPT_POST : CURLOPT_HTTPGET, 1L) == CURLE_OK &&
           (body == NULL || (curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE,
                                              (curl_off_t)strlen(body)) == CURLE_OK &&
                             curl_easy_setopt(h, CURLOPT_POSTFIELDS, body) == CURLE_OK));
}

/* A new connection reached it, and TLS did not begin. */
static bool is_without_tls(struct ask_server *a) {
    curl_off_t begun = 0;
    long port = 0, n_new = 0;
    curl_easy_getinfo(a->curl, CURLINFO_NUM_CONNECTS, &n_new);
    curl_easy_getinfo(a->curl, CURLINFO_LOCAL_PORT, &port);
    curl_easy_getinfo(a->curl, CURLINFO_APPCONNECT_TIME_T, &begun);
    return n_new > 0 && port > 0 && begun == 0;
}

static enum status say_failure(struct ask_server *a, const char *url, CURLcode rc,
                               struct err *err) {
    if (a->enough)
        return err_set(err, ST_CANCELLED, "the request to %s was given up", url);
    if (a->st != ST_OK)
        return err_set(err, a->st, "%s", a->err.text);
    if (a->too_long)
        return err_set(err, ST_IO, "%s answers with more than was asked for", url);
    if (rc == CURLE_PEER_FAILED_VERIFICATION)
        return err_set(err, ST_REFUSED,
                       "%s: its certificate is not one that this machine trusts for that name "
                       "(SSL_CERT_FILE names a file of others): %s",
                       url, a->why);
    if (rc == CURLE_SSL_CACERT_BADFILE)
        return err_set(err, ST_BAD_INPUT, "%s: $SSL_CERT_FILE is no file of certificates: %s",
                       url, a->why);
    if (str_starts(url, "https://") && is_without_tls(a))
        return err_set(err, ST_IO, "%s does not speak TLS: its address begins with http://",
                       url);
    if (rc == CURLE_PARTIAL_FILE || rc == CURLE_GOT_NOTHING || rc == CURLE_RECV_ERROR ||
        rc == CURLE_SEND_ERROR)
        return err_set(err, ST_IO, "%s closed the connection%s", url,
                       str_starts(url, "http://") && status_of(a) == 0
                           ? " (if it speaks TLS, its address begins with https://)"
                           : "");
    enum status st = rc == CURLE_OUT_OF_MEMORY          ? ST_NO_MEMORY
                     : rc == CURLE_COULDNT_RESOLVE_HOST ? ST_NOT_FOUND
                     : rc == CURLE_COULDNT_CONNECT || rc == CURLE_OPERATION_TIMEDOUT
                         ? ST_TIMEOUT
                         : ST_IO;
    return err_set(err, st, "no answer from %s: %s", url,
                   a->why[0] != '\0' ? a->why : curl_easy_strerror(rc));
}

/* What the server said with an error status, in the form of any of its APIs. */
static enum status say_refusal(struct ask_server *a, const char *url, struct err *err) {
    long status = status_of(a);
    json_t *o = json_loadb(buf_cstr(&a->text), a->text.len, 0, NULL);
    const json_t *e = json_object_get(o, "error");
    const char *sentence = json_is_string(e) ? json_string_value(e) : json_text(e, "message");
    enum status st = status == 404                    ? ST_NOT_FOUND
                     : status == 401 || status == 403 ? ST_REFUSED
                     : status == 503 || status == 429 ? ST_AGAIN
                     : status >= 400 && status < 500  ? ST_BAD_INPUT
                                                      : ST_IO;
    if (*sentence != '\0')
        err_set(err, st, "%s: %.400s%s", url, sentence,
                status == 401 ? " (--api-key KEY, or $LOCKSTEP_API_KEY)" : "");
    else
        err_set(err, st, "%s answers with HTTP status %ld", url, status);
    json_decref(o);
    return st;
}

static CURLcode transfer(struct ask_server *a) {
    if (curl_multi_add_handle(a->multi, a->curl) != CURLM_OK)
        return CURLE_OUT_OF_MEMORY;
    CURLcode rc = perform(a);
    curl_multi_remove_handle(a->multi, a->curl);
    return rc;
}

enum status ask_server_json(struct ask_server *a, const char *url, const char *path,
                            double seconds, json_t **out, struct err *err) {
    a->stream = NULL;
    if (!prepare(a, url, path, NULL, NULL))
        return err_set(err, ST_NO_MEMORY, "no memory to ask %s", url);
    a->until_s = clock_s() + seconds;
    CURLcode rc = transfer(a);
    if (rc != CURLE_OK)
        return say_failure(a, url, rc, err);
    if (status_of(a) != 200)
        return say_refusal(a, url, err);
    json_t *o = json_loadb(buf_cstr(&a->text), a->text.len, 0, NULL);
    if (o == NULL)
        return err_set(err, ST_IO, "what %s%s answers is not valid JSON", url, path);
    *out = o;
    return ST_OK;
}

enum status ask_server_chat(struct ask_server *a, const char *url,
                            const struct ask_server_stream *s, bool *lost, struct err *err) {
    char *body = json_dumps(s->body, JSON_COMPACT);
    *lost = false;
    if (body == NULL || !prepare(a, url, "/v1/chat/completions", body, s->name)) {
        free(body);
        return err_set(err, ST_NO_MEMORY, "no memory to ask %s", url);
    }
    a->stream = s;
    a->until_s = 0;
    CURLcode rc = transfer(a);
    a->stream = NULL;
    free(body);
    if (a->ended)
        return ST_OK;
    if (rc == CURLE_OK && status_of(a) != 200) {
        *lost = a->ending || status_of(a) == 502;
        return say_refusal(a, url, err);
    }
    *lost = !a->enough && a->st == ST_OK && !a->too_long &&
            rc != CURLE_PEER_FAILED_VERIFICATION && rc != CURLE_OUT_OF_MEMORY;
    if (rc == CURLE_OK)
        return err_set(err, ST_IO, "%s ended in the middle of the answer", url);
    return say_failure(a, url, rc, err);
}
