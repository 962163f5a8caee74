/* client.c: Asks a node over HTTPS, with libcurl and the cluster's certificate. */
#include "cluster/client.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"
#include "net/curl_socket.h"
#include "net/net.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#define REPLY_MAX ((size_t)16 << 20)
#define LINE_MAX_BYTES ((size_t)1 << 20)
#define ASK_MS 100
#define HOST_MAX_BYTES 300

struct client {
    CURL *curl;
    CURLM *multi; /* of this one transfer: so that go_on is asked, and silence noticed */
    bool (*go_on)(void *user);
    void *go_on_user;
    struct curl_slist *headers;
    char *base; /* "https://host:port" */
    char *address;
    char why[CURL_ERROR_SIZE];
    /* The reply under way. */
    struct buf text;
    size_t limit;
    bool too_long;
    const struct client_stream *lines; /* NULL: text is gathered */
    bool enough, silent;
    double heard_s; /* clock */
};

static void start_curl(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* ---- opening ----------------------------------------------------------------------------- */

/* An address must be only a host and a port: other text would change the URL's meaning. */
static bool is_address(const char *text) {
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                            "-._:[]%");
    return n > 0 && n <= HOST_MAX_BYTES && text[n] == '\0';
}

static bool is_bare_v6(const char *address) {
    const char *colon = strchr(address, ':');
    return *address != '[' && colon != NULL && strchr(colon + 1, ':') != NULL;
}

static bool has_port(const char *address) {
    const char *close = strchr(address, ']');
    if (*address == '[')
        return close != NULL && close[1] == ':';
    return !is_bare_v6(address) && strchr(address, ':') != NULL;
}

bool client_full_address(const char *address, char *out, size_t size) {
    bool bare_v6 = is_bare_v6(address);
    char port[16] = "";
    if (!has_port(address))
        snprintf(port, sizeof port, ":%d", NODE_PORT);
    return snprintf(out, size, "%s%s%s%s", bare_v6 ? "[" : "", address, bare_v6 ? "]" : "",
                    port) < (int)size;
}

/* As client_full_address(), IPv6 as the system writes it. */
static bool canonical_address(const char *address, char out[NET_TEXT_BYTES]) {
    char full[NET_TEXT_BYTES], v6[INET6_ADDRSTRLEN];
    struct in6_addr a;
    if (!client_full_address(address, full, sizeof full))
        return false;
    char *close = *full == '[' ? strchr(full, ']') : NULL;
    if (close != NULL)
        *close = '\0';
    if (close != NULL && inet_pton(AF_INET6, full + 1, &a) == 1 &&
        inet_ntop(AF_INET6, &a, v6, sizeof v6) != NULL)
        return snprintf(out, NET_TEXT_BYTES, "[%s]%s", v6, close + 1) < NET_TEXT_BYTES;
    if (close != NULL)
        *close = ']';
    memcpy(out, full, sizeof full);
    return true;
}

bool client_is_address(const char *address, const char *full) {
    char one[NET_TEXT_BYTES], other[NET_TEXT_BYTES];
    if (!canonical_address(address, one) || !canonical_address(full, other))
        return false;
    size_t n = (size_t)(strrchr(one, ':') - one);
    return str_eq(one, other) ||
           (!has_port(address) && n == (size_t)(strrchr(other, ':') - other) &&
            memcmp(one, other, n) == 0);
}

/* "https://host:port" of an address in any of its forms; NULL: no memory. A URL writes the zone
 * of a link-local address as %25eth0 (RFC 6874); curl takes both. */
static char *base_of(const char *address) {
    static const char scheme[] = "https://";
    size_t n = sizeof scheme - 1, size = strlen(address) + 64;
    char *text = mem_alloc(size);
    if (text == NULL)
        return NULL;
    memcpy(text, scheme, n);
    client_full_address(address, text + n, size - n);
    return text;
}

static size_t on_data(char *bytes, size_t size, size_t n, void *user);

void *client_curl(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_curl);
    CURL *h = curl_easy_init();
    if (h != NULL &&
        (curl_easy_setopt(h, CURLOPT_NOPROXY, "*") != CURLE_OK ||
         curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L) != CURLE_OK ||
         curl_easy_setopt(h, CURLOPT_TCP_KEEPALIVE, 1L) != CURLE_OK ||
         curl_easy_setopt(h, CURLOPT_OPENSOCKETFUNCTION, curl_socket_open) != CURLE_OK)) {
        curl_easy_cleanup(h);
        return NULL;
    }
#if LIBCURL_VERSION_NUM >= 0x075700
    /* Otherwise a name server that does not answer would delay a caller that has given up long
     * ago. */
    if (h != NULL)
        (void)curl_easy_setopt(h, CURLOPT_QUICK_EXIT, 1L);
#endif
    return h;
}

bool client_pin(void *curl, const char *pin) {
    return curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L) == CURLE_OK &&
           curl_easy_setopt(curl, CURLOPT_PINNEDPUBLICKEY, pin) == CURLE_OK;
}

static CURLcode set_up(struct client *c, const struct identity *id) {
    CURL *h = c->curl;
    CURLcode rc = CURLE_OK;
#define SET(option, value)                           \
    do {                                             \
        if (rc == CURLE_OK)                          \
            rc = curl_easy_setopt(h, option, value); \
    } while (0)
    SET(CURLOPT_PROTOCOLS_STR, "https");
    if (rc == CURLE_OK && !client_pin(h, id->pin))
        rc = CURLE_OUT_OF_MEMORY;
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_HTTPHEADER, c->headers);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)CLIENT_CONNECT_MS);
    SET(CURLOPT_ERRORBUFFER, c->why);
    SET(CURLOPT_WRITEFUNCTION, on_data);
    SET(CURLOPT_WRITEDATA, c);
#undef SET
    return rc;
}

enum status client_open(struct client **out, const struct identity *id, const char *address,
                        struct err *err) {
    char token[IDENTITY_TOKEN_BYTES + 32];
    if (!is_address(address))
        return err_set(err, ST_BAD_INPUT, "\"%.100s\" is not a valid address of a node",
                       address);
    struct client *c = mem_calloc(1, sizeof *c);
    if (c == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a client");
    snprintf(token, sizeof token, "Authorization: Bearer %s", id->token);
    c->address = mem_strdup(address);
    c->base = base_of(address);
    c->curl = client_curl();
    c->multi = curl_multi_init();
    c->headers = curl_slist_append(NULL, token);
    struct curl_slist *more =
        c->headers != NULL ? curl_slist_append(c->headers, "Content-Type: application/json")
                           : NULL;
    enum status st = ST_OK;
    if (c->address == NULL || c->base == NULL || c->curl == NULL || c->multi == NULL ||
        more == NULL)
        st = err_set(err, ST_NO_MEMORY, "no memory for a client");
    else if (set_up(c, id) != CURLE_OK)
        st = err_set(err, ST_UNSUPPORTED,
                     "this libcurl cannot check a public key that is known in advance");
    if (st != ST_OK) {
        client_close(c);
        return st;
    }
    *out = c;
    return ST_OK;
}

void client_close(struct client *c) {
    if (c == NULL)
        return;
    curl_easy_cleanup(c->curl);
    curl_multi_cleanup(c->multi);
    curl_slist_free_all(c->headers);
    mem_free(c->base);
    mem_free(c->address);
    buf_free(&c->text);
    mem_free(c);
}

void client_ask_whether(struct client *c, bool (*go_on)(void *user), void *user) {
    c->go_on = go_on;
    c->go_on_user = user;
}

/* ---- what comes -------------------------------------------------------------------------- */

static bool gather(struct client *c, const char *bytes, size_t n) {
    if (n > c->limit - c->text.len) {
        c->too_long = true;
        return false;
    }
    return buf_add(&c->text, bytes, n);
}

/* Hands out the whole lines of what was gathered. */
static bool hand_out(struct client *c) {
    struct buf *t = &c->text;
    size_t begin = 0;
    for (char *end; (end = memchr(t->bytes + begin, '\n', t->len - begin)) != NULL;) {
        char *line = t->bytes + begin;
        *end = '\0';
        begin = (size_t)(end - t->bytes) + 1;
        if (*line != '\0' && !c->lines->line(c->lines->user, line)) {
            c->enough = true;
            return false;
        }
    }
    memmove(t->bytes, t->bytes + begin, t->len - begin + 1);
    t->len -= begin;
    return true;
}

static bool went_well(struct client *c) {
    long status = 0;
    curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
    return status >= 200 && status < 300;
}

static size_t on_data(char *bytes, size_t size, size_t n, void *user) {
    struct client *c = user;
    size_t all = size * n;
    c->heard_s = clock_s();
    bool good = gather(c, bytes, all);
    if (good && c->lines != NULL && went_well(c))
        good = hand_out(c);
    return good ? all : 0;
}

/* ---- asking ------------------------------------------------------------------------------ */

static enum status say_failure(struct client *c, CURLcode rc, struct err *err) {
    if (c->enough)
        return err_set(err, ST_CANCELLED, "the request to %s was given up", c->address);
    if (c->silent)
        return err_set(err, ST_TIMEOUT, "the node at %s has said nothing for %d s", c->address,
                       CLIENT_SILENCE_MS / 1000);
    if (c->too_long)
        return err_set(err, ST_IO, "the node at %s answers with more than was asked for",
                       c->address);
    if (rc == CURLE_SSL_PINNEDPUBKEYNOTMATCH)
        return err_set(
            err, ST_REFUSED,
            "the node at %s has another cluster key: lockstep key --set there, or here (a node "
            "that runs has to be started again to use it)",
            c->address);
    if (rc == CURLE_PARTIAL_FILE || rc == CURLE_GOT_NOTHING || rc == CURLE_RECV_ERROR ||
        rc == CURLE_SEND_ERROR)
        return err_set(err, ST_IO, "the node at %s closed the connection", c->address);
    enum status st = rc == CURLE_OUT_OF_MEMORY          ? ST_NO_MEMORY
                     : rc == CURLE_COULDNT_RESOLVE_HOST ? ST_NOT_FOUND
                     : rc == CURLE_COULDNT_CONNECT || rc == CURLE_OPERATION_TIMEDOUT
                         ? ST_TIMEOUT
                         : ST_IO;
    return err_set(err, st, "no answer from the node at %s: %s", c->address,
                   c->why[0] != '\0' ? c->why : curl_easy_strerror(rc));
}

/* What the node said with an error status. */
static enum status say_refusal(struct client *c, struct err *err) {
    long status = 0;
    const char *sentence = NULL;
    curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
    json_t *o = json_loadb(buf_cstr(&c->text), c->text.len, 0, NULL);
    json_unpack(o, "{s:s}", "error", &sentence);
    enum status st = status == 404   ? ST_NOT_FOUND
                     : status == 400 ? ST_BAD_INPUT
                     : status == 401 ? ST_REFUSED
                     : status == 507 ? ST_NO_MEMORY
                                     : ST_IO;
    if (sentence != NULL)
        err_set(err, st, "the node at %s: %.400s", c->address, sentence);
    else
        err_set(err, st, "the node at %s answers with HTTP status %ld", c->address, status);
    json_decref(o);
    return st;
}

/* Path and body; the text stays until the call is over. */
static bool prepare(struct client *c, const char *path, const char *body, size_t limit) {
    char url[1024];
    buf_clear(&c->text);
    c->limit = limit;
    c->too_long = c->enough = c->silent = false;
    c->heard_s = clock_s();
    c->lines = NULL;
    c->why[0] = '\0';
    if (snprintf(url, sizeof url, "%s%s", c->base, path) >= (int)sizeof url)
        return false;
    CURLcode rc = curl_easy_setopt(c->curl, CURLOPT_URL, url);
    if (rc == CURLE_OK && body == NULL)
        rc = curl_easy_setopt(c->curl, CURLOPT_HTTPGET, 1L);
    if (rc == CURLE_OK && body != NULL)
        rc = curl_easy_setopt(c->curl, CURLOPT_POST, 1L);
    if (rc == CURLE_OK && body != NULL)
        rc = curl_easy_setopt(c->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
    if (rc == CURLE_OK && body != NULL)
        rc = curl_easy_setopt(c->curl, CURLOPT_POSTFIELDS, body);
    if (rc == CURLE_OK)
        rc = curl_easy_setopt(c->curl, CURLOPT_TIMEOUT_MS, (long)CLIENT_REPLY_MS);
    return rc == CURLE_OK;
}

static enum status no_memory(const struct client *c, struct err *err) {
    return err_set(err, ST_NO_MEMORY, "no memory to ask the node at %s", c->address);
}

/* Runs the transfer. It asks before and repeatedly during the transfer whether to go on: each
 * of many short transfers may be over before the first wait. */
static CURLcode perform(struct client *c) {
    CURLcode rc = CURLE_FAILED_INIT;
    int running = 1, left;
    while (running != 0) {
        c->enough |= c->go_on != NULL && !c->go_on(c->go_on_user);
        if (c->enough)
            return CURLE_ABORTED_BY_CALLBACK;
        if (curl_multi_perform(c->multi, &running) != CURLM_OK)
            return CURLE_FAILED_INIT;
        c->silent = clock_s() - c->heard_s > CLIENT_SILENCE_MS * 1e-3;
        if (running != 0 && c->silent)
            return CURLE_ABORTED_BY_CALLBACK;
        if (running != 0)
            curl_multi_poll(c->multi, NULL, 0, ASK_MS, NULL);
    }
    for (CURLMsg *m; (m = curl_multi_info_read(c->multi, &left)) != NULL;)
        if (m->msg == CURLMSG_DONE)
            rc = m->data.result;
    return rc;
}

/* After prepare(). */
static enum status ask(struct client *c, struct err *err) {
    if (curl_multi_add_handle(c->multi, c->curl) != CURLM_OK)
        return no_memory(c, err);
    CURLcode rc = perform(c);
    curl_multi_remove_handle(c->multi, c->curl);
    if (rc != CURLE_OK)
        return say_failure(c, rc, err);
    return went_well(c) ? ST_OK : say_refusal(c, err);
}

enum status client_json(struct client *c, const char *path, const json_t *body, json_t **reply,
                        struct err *err) {
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    json_error_t why;
    enum status st = ST_OK;
    if ((body != NULL && text == NULL) || !prepare(c, path, text, REPLY_MAX))
        st = no_memory(c, err);
    if (st == ST_OK)
        st = ask(c, err);
    free(text);
    TRY(st);
    json_t *o = json_loadb(buf_cstr(&c->text), c->text.len, 0, &why);
    if (o == NULL)
        return err_set(err, ST_IO, "the answer of the node at %s is not valid JSON: %s",
                       c->address, why.text);
    *reply = o;
    return ST_OK;
}

enum status client_pieces(struct client *c, const char *path, const struct client_pieces *p,
                          void *buf, struct err *err) {
    char query[256];
    size_t all = p->n * p->count;
    snprintf(query, sizeof query, "%s?at=%llu&n=%zu&stride=%llu&count=%zu", path,
             (unsigned long long)p->at, p->n, (unsigned long long)p->stride, p->count);
    if (!prepare(c, query, NULL, MAX(all, (size_t)65536)))
        return no_memory(c, err);
    TRY(ask(c, err));
    if (c->text.len != all)
        return err_set(err, ST_IO, "the node at %s gave %zu bytes of a file instead of %zu",
                       c->address, c->text.len, all);
    memcpy(buf, c->text.bytes, all);
    return ST_OK;
}

enum status client_get(const struct identity *id, const char *address, const char *path,
                       json_t **reply, struct err *err) {
    struct client *c;
    TRY(client_open(&c, id, address, err));
    enum status st = client_json(c, path, NULL, reply, err);
    client_close(c);
    return st;
}

enum status client_lines(struct client *c, const char *path, const json_t *body,
                         const struct client_stream *to, struct err *err) {
    char *text = json_dumps(body, JSON_COMPACT);
    enum status st = ST_OK;
    if (text == NULL || !prepare(c, path, text, LINE_MAX_BYTES) ||
        curl_easy_setopt(c->curl, CURLOPT_TIMEOUT_MS, 0L) != CURLE_OK)
        st = no_memory(c, err);
    c->lines = to;
    if (st == ST_OK)
        st = ask(c, err);
    c->lines = NULL;
    free(text);
    return st;
}
