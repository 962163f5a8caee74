/* request.c: Asks a hub over HTTP: redirects, tokens, refusals, and what is tried again. */
#include "hub/request.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/program.h"
#include "base/util.h"
#include "net/curl_socket.h"
#include "net/net.h"

#include <curl/curl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define PUBLIC_HUB "https://huggingface.co"
#define CONNECT_MS 15000L
#define REPLY_MAX ((size_t)64 << 20)
#define REDIRECTS_MAX 8
#define FIRST_WAIT_S 0.25
#define LONGEST_WAIT_S 30.0
#define LONGEST_RETRY_AFTER_S 600.0

struct hub_connection {
    CURL *curl;
    struct hub_settings s;
    char endpoint[512]; /* without a slash at its end */
    char origin[512];   /* "https://host:port" of it */
    struct curl_slist *with_token;
    char why[CURL_ERROR_SIZE];
    /* The request under way. */
    const char *repo, *file;       /* for sentences; file may be NULL */
    struct hub_download *download; /* NULL: text is gathered */
    struct buf text;
    bool own;    /* it goes to the hub, and not to another host */
    bool ranged; /* it has asked for the rest */
    bool begun;  /* the body is the file's */
    bool given_up;
    enum status st; /* of take() and restart() */
    struct err err;
    char code[64];   /* X-Error-Code */
    char linked[96]; /* X-Linked-ETag, without quotes */
    char *
        direct; /* owned: where the last part of this file came from; NULL: by the hub's word */
    uint64_t range_at, range_all; /* Content-Range */
    bool has_range;
};

const char *hub_endpoint(void) {
    const char *own = env_get("HF_ENDPOINT");
    return own != NULL ? own : PUBLIC_HUB;
}

/* ---- the callbacks of libcurl --------------------------------------------------------------- */

static bool is_wanted(struct hub_connection *c) {
    c->given_up |= c->s.go_on != NULL && !c->s.go_on(c->s.user);
    return !c->given_up;
}

static int on_progress(void *user, curl_off_t a, curl_off_t b, curl_off_t d, curl_off_t e) {
    (void)a, (void)b, (void)d, (void)e;
    return is_wanted(user) ? 0 : 1;
}

static long status_of(struct hub_connection *c) {
    long status = 0;
    curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static uint64_t end_of(const struct hub_download *d) {
    return d->end != 0 ? d->end : d->bytes;
}

/* Before the first byte of a file: does it begin where it should? */
static enum status begin_body(struct hub_connection *c) {
    struct hub_download *d = c->download;
    c->begun = true;
    if (status_of(c) == 206 && c->has_range &&
        (c->range_at != d->at || c->range_all != d->bytes))
        return err_set(&c->err, ST_IO,
                       "%s: the host sends another part of %s than was asked for", c->repo,
                       c->file);
    if (status_of(c) == 200 && d->end != 0)
        return err_set(&c->err, ST_UNSUPPORTED, "%s: the host sends no parts of %s", c->repo,
                       c->file);
    if (status_of(c) == 200 && d->at > 0) {
        TRY(d->restart(d->user, &c->err));
        d->at = 0;
    }
    return ST_OK;
}

static size_t on_bytes(char *bytes, size_t size, size_t n, void *user) {
    struct hub_connection *c = user;
    size_t all = size * n;
    struct hub_download *d = c->download;
    bool is_file = d != NULL && (status_of(c) == 200 || status_of(c) == 206);
    if (!is_file) /* a document, or what is said about an error */
        return c->text.len + all <= REPLY_MAX && buf_add(&c->text, bytes, all) ? all : 0;
    if (!c->begun)
        c->st = begin_body(c);
    if (c->st == ST_OK && all > end_of(d) - d->at)
        c->st = err_set(&c->err, ST_IO, "%s: the host sends more of %s than it has", c->repo,
                        c->file);
    if (c->st == ST_OK)
        c->st = d->take(d->user, bytes, all, &c->err);
    if (c->st != ST_OK)
        return 0;
    d->at += all;
    return all;
}

/* The value of a header of that name, or NULL; n: of the line. */
static const char *value_of(const char *line, size_t n, const char *name, size_t *n_value) {
    size_t k = strlen(name);
    if (n <= k || strncasecmp(line, name, k) != 0 || line[k] != ':')
        return NULL;
    line += k + 1;
    n -= k + 1;
    while (n > 0 && strchr(" \"", *line) != NULL)
        line++, n--;
    while (n > 0 && strchr(" \"\r\n", line[n - 1]) != NULL)
        n--;
    *n_value = n;
    return line;
}

static size_t on_header(char *line, size_t size, size_t n, void *user) {
    struct hub_connection *c = user;
    size_t all = size * n, k;
    const char *value;
    unsigned long long from, to, whole;
    char text[128];
    if ((value = value_of(line, all, "X-Error-Code", &k)) != NULL)
        snprintf(c->code, sizeof c->code, "%.*s", (int)MIN(k, sizeof c->code - 1), value);
    if ((value = value_of(line, all, "X-Linked-ETag", &k)) != NULL && c->own)
        snprintf(c->linked, sizeof c->linked, "%.*s", (int)MIN(k, sizeof c->linked - 1), value);
    if ((value = value_of(line, all, "Content-Range", &k)) != NULL) {
        snprintf(text, sizeof text, "%.*s", (int)MIN(k, sizeof text - 1), value);
        c->has_range = sscanf(text, "bytes %llu-%llu/%llu", &from, &to, &whole) == 3;
        c->range_at = c->has_range ? from : 0;
        c->range_all = c->has_range ? whole : 0;
    }
    return all;
}

/* ---- opening ------------------------------------------------------------------------------- */

static void start_curl(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* "scheme://host:port"; false: no address of HTTP. */
static bool origin_of(const char *url, char *out, size_t size) {
    CURLU *u = curl_url();
    char *scheme = NULL, *host = NULL, *port = NULL;
    bool good = u != NULL && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
                curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
                curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                (str_eq(scheme, "https") || str_eq(scheme, "http")) &&
                snprintf(out, size, "%s://%s:%s", scheme, host, port) < (int)size;
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(u);
    return good;
}

static bool set_up(struct hub_connection *c) {
    CURL *h = c->curl;
    bool secure = str_starts(c->origin, "https:");
    bool good =
        curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
        curl_easy_setopt(h, CURLOPT_TCP_KEEPALIVE, 1L) == CURLE_OK &&
        curl_easy_setopt(h, CURLOPT_OPENSOCKETFUNCTION, curl_socket_open) == CURLE_OK &&
        curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS) == CURLE_OK &&
        curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L) == CURLE_OK &&
        curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, (long)c->s.silence_s) == CURLE_OK &&
        curl_easy_setopt(h, CURLOPT_USERAGENT, "lockstep/" LOCKSTEP_VERSION) == CURLE_OK &&
        curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, secure ? "https" : "http,https") ==
            CURLE_OK &&
        curl_easy_setopt(h, CURLOPT_ERRORBUFFER, c->why) == CURLE_OK &&
        curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L) == CURLE_OK &&
        curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, on_progress) == CURLE_OK &&
        curl_easy_setopt(h, CURLOPT_XFERINFODATA, c) == CURLE_OK &&
        curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_bytes) == CURLE_OK &&
        curl_easy_setopt(h, CURLOPT_WRITEDATA, c) == CURLE_OK &&
        curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK &&
        curl_easy_setopt(h, CURLOPT_HEADERDATA, c) == CURLE_OK;
    if (good && c->s.pin != NULL)
        good = curl_easy_setopt(h, CURLOPT_PROXY, "") == CURLE_OK &&
               curl_easy_setopt(h, CURLOPT_SSL_VERIFYPEER, 0L) == CURLE_OK &&
               curl_easy_setopt(h, CURLOPT_SSL_VERIFYHOST, 0L) == CURLE_OK &&
               curl_easy_setopt(h, CURLOPT_PINNEDPUBLICKEY, c->s.pin) == CURLE_OK;
    else if (good && c->s.certificates != NULL)
        good = curl_easy_setopt(h, CURLOPT_CAINFO, c->s.certificates) == CURLE_OK;
    if (good && secure && c->s.token != NULL) {
        struct buf line = {.len = 0};
        buf_printf(&line, "Authorization: Bearer %s", c->s.token);
        c->with_token = curl_slist_append(NULL, buf_cstr(&line));
        buf_free(&line);
        good = c->with_token != NULL;
    }
    return good;
}

enum status hub_open(struct hub_connection **out, const struct hub_settings *s,
                     struct err *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_curl);
    struct hub_connection *c = mem_calloc(1, sizeof *c);
    if (c == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to ask a hub");
    c->s = *s;
    size_t n = strlen(s->endpoint);
    while (n > 0 && s->endpoint[n - 1] == '/')
        n--;
    if (snprintf(c->endpoint, sizeof c->endpoint, "%.*s", (int)n, s->endpoint) >=
            (int)sizeof c->endpoint ||
        !origin_of(c->endpoint, c->origin, sizeof c->origin)) {
        mem_free(c);
        return err_set(err, ST_BAD_INPUT, "HF_ENDPOINT is no address of a hub: '%.200s'",
                       s->endpoint);
    }
    c->curl = curl_easy_init();
    if (c->curl == NULL || !set_up(c)) {
        hub_close(c);
        return err_set(err, ST_NO_MEMORY, "no memory to ask a hub");
    }
    *out = c;
    return ST_OK;
}

void hub_close(struct hub_connection *c) {
    if (c->curl != NULL)
        curl_easy_cleanup(c->curl);
    curl_slist_free_all(c->with_token);
    buf_free(&c->text);
    mem_free(c->direct);
    mem_free(c);
}

/* ---- what went wrong ----------------------------------------------------------------------- */

/* The origin that this request went to, which is not always the hub's. */
static const char *host_of(struct hub_connection *c, char *out, size_t size) {
    char *url = NULL;
    curl_easy_getinfo(c->curl, CURLINFO_EFFECTIVE_URL, &url);
    return url != NULL && origin_of(url, out, size) ? out : c->origin;
}

/* *again: another try may help. */
static enum status say_failure(struct hub_connection *c, CURLcode rc, bool *again,
                               struct err *err) {
    char host[512];
    if (c->given_up)
        return err_set(err, ST_CANCELLED, "%s: given up", c->repo);
    if (c->st != ST_OK)
        return err_set(err, c->st, "%s", c->err.text);
    host_of(c, host, sizeof host);
    const char *what = c->why[0] != '\0' ? c->why : curl_easy_strerror(rc);
    if (rc == CURLE_PEER_FAILED_VERIFICATION || rc == CURLE_SSL_ISSUER_ERROR)
        return err_set(err, ST_REFUSED,
                       "the certificate of %.200s is not one to trust: %.120s (SSL_CERT_FILE "
                       "names a file of others to trust)",
                       host, what);
    if (rc == CURLE_SSL_CACERT_BADFILE)
        return err_set(err, ST_BAD_INPUT, "SSL_CERT_FILE is no file of certificates: %.200s",
                       what);
    if (rc == CURLE_UNSUPPORTED_PROTOCOL)
        return err_set(err, ST_REFUSED, "%s: the hub leads to an address that is not HTTPS",
                       c->repo);
    *again = rc != CURLE_OUT_OF_MEMORY && rc != CURLE_WRITE_ERROR && rc != CURLE_URL_MALFORMAT;
    enum status st = rc == CURLE_OPERATION_TIMEDOUT || rc == CURLE_COULDNT_CONNECT ||
                             rc == CURLE_COULDNT_RESOLVE_HOST
                         ? ST_TIMEOUT
                         : ST_IO;
    return err_set(err, st, "%s: %.200s: %.160s", c->repo, host, what);
}

static enum status say_not_allowed(const struct hub_connection *c, long status,
                                   struct err *err) {
    bool token = c->with_token != NULL;
    if (str_eq(c->code, "GatedRepo"))
        return err_set(err, ST_REFUSED, "%s is gated: accept its terms at %.200s/%s%s", c->repo,
                       c->endpoint, c->repo,
                       token ? ", with the account that the token belongs to"
                             : ", and give that account's token in HF_TOKEN");
    if (status == 403)
        return err_set(err, ST_REFUSED, "%s may not be read %s: %.200s/%s says what it wants",
                       c->repo, token ? "with this token" : "without a token (HF_TOKEN)",
                       c->endpoint, c->repo);
    if (token)
        return err_set(err, ST_REFUSED,
                       "%s: the hub does not accept the token (HF_TOKEN, or the file token in "
                       "HF_HOME), or there is no such repository",
                       c->repo);
    return err_set(err, ST_REFUSED,
                   "%s: there is no such repository, or it wants a token: HF_TOKEN is not set",
                   c->repo);
}

/* What a status means that is neither 2xx nor a redirect. */
static enum status say_status(struct hub_connection *c, bool *again, struct err *err) {
    char host[512];
    long status = status_of(c);
    host_of(c, host, sizeof host);
    *again = status == 429 || status == 408 || status >= 500 || !c->own;
    if (c->own && (status == 401 || status == 403))
        return say_not_allowed(c, status, err);
    if (c->own && status == 404 && c->file != NULL && !str_eq(c->code, "RepoNotFound"))
        return err_set(err, ST_NOT_FOUND, "%s has no file %s (any more)", c->repo, c->file);
    if (c->own && status == 404 && str_eq(c->code, "RevisionNotFound"))
        return err_set(err, ST_NOT_FOUND, "%s has no such revision", c->repo);
    if (c->own && status == 404)
        return err_set(err, ST_NOT_FOUND, "%.200s has no model %s", c->endpoint, c->repo);
    if (status == 429)
        return err_set(err, ST_TIMEOUT,
                       "%s: %.200s has had too many requests, and wants one to wait", c->repo,
                       host);
    return err_set(err, ST_IO, "%s: %.200s answers with HTTP status %ld", c->repo, host,
                   status);
}

/* ---- one request ---------------------------------------------------------------------------- */

static bool prepare(struct hub_connection *c, const char *url) {
    char origin[512], range[48];
    const struct hub_download *d = c->download;
    c->own = origin_of(url, origin, sizeof origin) && str_eq(origin, c->origin);
    c->ranged = d != NULL && (d->at > 0 || d->end != 0);
    c->begun = c->has_range = false;
    c->st = ST_OK;
    c->code[0] = c->why[0] = '\0';
    buf_clear(&c->text);
    if (c->ranged && d->end != 0)
        snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)d->at,
                 (unsigned long long)d->end - 1);
    else if (c->ranged)
        snprintf(range, sizeof range, "%llu-", (unsigned long long)d->at);
    return curl_easy_setopt(c->curl, CURLOPT_URL, url) == CURLE_OK &&
           curl_easy_setopt(c->curl, CURLOPT_HTTPHEADER, c->own ? c->with_token : NULL) ==
               CURLE_OK &&
           curl_easy_setopt(c->curl, CURLOPT_RANGE, c->ranged ? range : NULL) == CURLE_OK;
}

/* Another host's file must be the one that the list has. */
static enum status check_linked(const struct hub_connection *c, struct err *err) {
    const struct hub_download *d = c->download;
    if (d != NULL && c->linked[0] != '\0' && strlen(c->linked) == strlen(d->hash) &&
        !str_eq(c->linked, d->hash))
        return err_set(err, ST_IO, "%s: %s is another file now: pull again", c->repo, c->file);
    return ST_OK;
}

/* What came of one request. *next: where it leads, to be freed; NULL: it was the last. */
static enum status once(struct hub_connection *c, const char *url, char **next, bool *again,
                        struct err *err) {
    char *to = NULL;
    *next = NULL;
    if (!prepare(c, url))
        return err_set(err, ST_NO_MEMORY, "no memory to ask a hub");
    CURLcode rc = curl_easy_perform(c->curl);
    if (rc != CURLE_OK)
        return say_failure(c, rc, again, err);
    long status = status_of(c);
    TRY(check_linked(c, err));
    curl_easy_getinfo(c->curl, CURLINFO_REDIRECT_URL, &to);
    if (status >= 300 && status < 400 && to != NULL) {
        *next = mem_strdup(to);
        return *next != NULL ? ST_OK : err_set(err, ST_NO_MEMORY, "no memory to ask a hub");
    }
    if (status == 416 && c->download != NULL &&
        c->download->end == 0) { /* what is here is not a beginning of it */
        *again = true;
        TRY(c->download->restart(c->download->user, err));
        c->download->at = 0;
        return err_set(err, ST_IO, "%s: the host does not send the rest of %s", c->repo,
                       c->file);
    }
    return status == 200 || status == 206 ? ST_OK : say_status(c, again, err);
}

/* Of a file in parts: the hub is asked once where it lies. url is given away. */
static void keep_direct(struct hub_connection *c, char *url) {
    mem_free(c->direct);
    c->direct = url;
}

static enum status follow(struct hub_connection *c, const char *first, bool *again,
                          struct err *err) {
    bool in_parts = c->download != NULL && c->download->end != 0;
    bool directly = in_parts && c->direct != NULL;
    char *url = mem_strdup(directly ? c->direct : first);
    c->linked[0] = '\0';
    for (int i = 0; i <= REDIRECTS_MAX && url != NULL; i++) {
        char *next = NULL;
        enum status st = once(c, url, &next, again, err);
        if (st != ST_OK || next == NULL) {
            *again |= st != ST_OK && directly; /* the address has expired, perhaps */
            bool keeps = st == ST_OK && in_parts && !c->own;
            keep_direct(c, keeps ? url : NULL);
            if (!keeps)
                mem_free(url);
            return st;
        }
        mem_free(url);
        url = next;
    }
    mem_free(url);
    return url == NULL
               ? err_set(err, ST_NO_MEMORY, "no memory to ask a hub")
               : err_set(err, ST_IO, "%s: the hub leads from one address to the next", c->repo);
}

/* ---- again and again ------------------------------------------------------------------------ */

/* False: given up meanwhile. */
static bool wait_a_while(struct hub_connection *c, double s) {
    double until = clock_s() + s;
    while (is_wanted(c) && clock_s() < until)
        poll(NULL, 0, 50);
    return !c->given_up;
}

/* How long the host wants one to wait, if it says. */
static double wanted_wait(struct hub_connection *c) {
    curl_off_t s = 0;
    curl_easy_getinfo(c->curl, CURLINFO_RETRY_AFTER, &s);
    return MIN((double)s, LONGEST_RETRY_AFTER_S);
}

static enum status ask(struct hub_connection *c, const char *url, struct err *err) {
    struct hub_download *d = c->download;
    double wait_s = FIRST_WAIT_S;
    for (int left = HUB_TRIES;;) {
        bool again = false;
        uint64_t before = d != NULL ? d->at : 0;
        enum status st = follow(c, url, &again, err);
        if (st == ST_OK && d != NULL && d->at < end_of(d)) {
            again = true;
            st = err_set(err, ST_IO, "%s: %s ends early", c->repo, c->file);
        }
        bool came = d != NULL && d->at > before;
        bool relayed = c->s.pin != NULL && again;
        if (came || (relayed && status_of(c) == 503)) {
            left = HUB_TRIES;
            wait_s = FIRST_WAIT_S;
        }
        if (st == ST_OK || !again || --left == 0)
            return st;
        if (came && relayed && is_wanted(c)) /* the next piece may be there */
            continue;
        if (!wait_a_while(c, MAX(wait_s, wanted_wait(c))))
            return err_set(err, ST_CANCELLED, "%s: given up", c->repo);
        wait_s = MIN(wait_s * 2, LONGEST_WAIT_S);
    }
}

enum status hub_json(struct hub_connection *c, const char *path, const char *repo, json_t **out,
                     struct err *err) {
    struct buf url = {.len = 0};
    c->repo = repo;
    c->file = NULL;
    c->download = NULL;
    buf_printf(&url, "%s/%s", c->endpoint, path);
    enum status st = url.failed ? err_set(err, ST_NO_MEMORY, "no memory to ask a hub")
                                : ask(c, buf_cstr(&url), err);
    buf_free(&url);
    TRY(st);
    if (json_count(buf_cstr(&c->text), c->text.len) > JSON_REQUEST_VALUES_MAX)
        return err_set(err, ST_BAD_INPUT, "%s: its description is too long", repo);
    *out = json_loadb(buf_cstr(&c->text), c->text.len, 0, NULL);
    return *out != NULL
               ? ST_OK
               : err_set(err, ST_BAD_INPUT, "%s: its description is not valid JSON", repo);
}

/* A file's name in a URL: all but its slashes. */
static void add_escaped(struct hub_connection *c, struct buf *url, const char *name) {
    for (const char *part = name;; part += strcspn(part, "/") + 1) {
        size_t n = strcspn(part, "/");
        char *text = curl_easy_escape(c->curl, part, (int)n);
        url->failed |= text == NULL;
        buf_printf(url, "/%s", text != NULL ? text : "");
        curl_free(text);
        if (part[n] == '\0')
            return;
    }
}

enum status hub_download(struct hub_connection *c, struct hub_download *d, struct err *err) {
    struct buf url = {.len = 0};
    if (d->at == end_of(d))
        return ST_OK;
    c->repo = d->repo;
    c->file = d->file;
    c->download = d;
    buf_printf(&url, "%s/%s/resolve/%s", c->endpoint, d->repo, d->commit);
    add_escaped(c, &url, d->file);
    enum status st = url.failed ? err_set(err, ST_NO_MEMORY, "no memory to ask a hub")
                                : ask(c, buf_cstr(&url), err);
    c->download = NULL;
    buf_free(&url);
    return st;
}
