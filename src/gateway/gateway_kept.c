/* gateway_kept.c: asks a server, as soon as it serves, what it says of its model in lists, and
 * keeps that for the time when the model is asleep. */
#include "gateway/gateway_internal.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "cluster/client.h"

#include <sodium.h>
#include <stdio.h>
#include <strings.h>

#define ASK_MS 3000L
#define KEPT_MAX ((size_t)4 << 20)
#define ALLOW "Access-Control-Allow-Origin:"

static const struct {
    const char *path;
    const char *header; /* NULL: none */
    const char *body;   /* that is POSTed; NULL: GET */
} questions[KEPT_N] = {
    [KEPT_MODELS] = {"/v1/models", NULL, NULL},
    [KEPT_ANTHROPIC] = {"/v1/models", "anthropic-version: 2023-06-01", NULL},
    [KEPT_STUDIO] = {"/api/v0/models", NULL, NULL},
    [KEPT_TAGS] = {"/api/tags", NULL, NULL},
    [KEPT_SHOW] = {"/api/show", "Content-Type: application/json", "{\"model\": \"default\"}"},
    [KEPT_VERSION] = {"/api/version", NULL, NULL},
    [KEPT_PROPS] = {"/props", NULL, NULL},
};

/* One that is asked. The thread's. */
struct asking {
    struct gateway_route *route;
    char target[NET_TEXT_BYTES];
    uint64_t n_target;
    struct buf text;
    char origin[256]; /* that it lets in; "": it does not say */
};

static size_t take(char *bytes, size_t size, size_t n, void *user) {
    struct asking *a = user;
    return a->text.len + n <= KEPT_MAX && buf_add(&a->text, bytes, size * n) ? n : 0;
}

static size_t take_header(char *bytes, size_t size, size_t n, void *user) {
    struct asking *a = user;
    size_t len = strlen(ALLOW), end = n;
    (void)size;
    if (n <= len || strncasecmp(bytes, ALLOW, len) != 0)
        return n;
    while (end > len && (bytes[end - 1] == '\n' || bytes[end - 1] == '\r'))
        end--;
    while (len < end && bytes[len] == ' ')
        len++;
    snprintf(a->origin, sizeof a->origin, "%.*s", (int)(end - len), bytes + len);
    return n;
}

static bool is_over(const struct asking *a) {
    struct gateway_route *r = a->route;
    pthread_mutex_lock(&r->gateway->lock);
    bool over = r->removed || r->gateway->closing || r->n_targets != a->n_target;
    pthread_mutex_unlock(&r->gateway->lock);
    return over;
}

static int look(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    (void)a, (void)b, (void)c, (void)d;
    return is_over(user);
}

static struct curl_slist *headers_of(const struct asking *a, enum kept what) {
    char line[1024];
    struct curl_slist *list = NULL, *longer;
    if (questions[what].header != NULL)
        list = curl_slist_append(NULL, questions[what].header);
    if (a->route->key == NULL)
        return list;
    snprintf(line, sizeof line, "Authorization: Bearer %s", a->route->key);
    longer = curl_slist_append(list, line);
    sodium_memzero(line, sizeof line);
    return longer != NULL ? longer : list;
}

static bool set_up(CURL *h, struct asking *a, enum kept what, struct curl_slist *headers) {
    char url[NET_TEXT_BYTES + 64];
    const struct gateway *f = a->route->gateway;
    snprintf(url, sizeof url, "%s%s%s", f->scheme, a->target, questions[what].path);
    bool good = curl_easy_setopt(h, CURLOPT_URL, url) == CURLE_OK &&
                curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, ASK_MS) == CURLE_OK &&
                curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers) == CURLE_OK &&
                curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, take) == CURLE_OK &&
                curl_easy_setopt(h, CURLOPT_WRITEDATA, a) == CURLE_OK &&
                curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, take_header) == CURLE_OK &&
                curl_easy_setopt(h, CURLOPT_HEADERDATA, a) == CURLE_OK &&
                curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L) == CURLE_OK &&
                curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, look) == CURLE_OK &&
                curl_easy_setopt(h, CURLOPT_XFERINFODATA, a) == CURLE_OK;
    if (questions[what].body != NULL)
        good &= curl_easy_setopt(h, CURLOPT_POSTFIELDS, questions[what].body) == CURLE_OK;
    if (f->pin[0] != '\0')
        good &= client_pin(h, f->pin);
    return good;
}

/* What it says: JSON, owned by the caller; NULL: nothing that can be used. */
static char *ask(struct asking *a, enum kept what) {
    long status = 0;
    CURL *h = client_curl();
    if (h == NULL)
        return NULL;
    buf_clear(&a->text);
    struct curl_slist *headers = headers_of(a, what);
    if (set_up(h, a, what, headers) && curl_easy_perform(h) == CURLE_OK)
        curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(h);
    curl_slist_free_all(headers);
    return status == 200 && !a->text.failed ? mem_strdup(buf_cstr(&a->text)) : NULL;
}

static void keep(struct asking *a, enum kept what, char *text) {
    struct gateway_route *r = a->route;
    pthread_mutex_lock(&r->gateway->lock);
    char *before = r->kept[what];
    r->kept[what] = text;
    pthread_mutex_unlock(&r->gateway->lock);
    mem_free(before);
}

static void keep_origin(struct asking *a) {
    struct gateway_route *r = a->route;
    char *text = a->origin[0] != '\0' ? mem_strdup(a->origin) : NULL;
    pthread_mutex_lock(&r->gateway->lock);
    char *before = r->origin;
    r->origin = text;
    pthread_mutex_unlock(&r->gateway->lock);
    mem_free(before);
}

static void *asking_main(void *user) {
    struct asking *a = user;
    struct gateway *f = a->route->gateway;
    for (enum kept what = 0; what < KEPT_N && !is_over(a); what++) {
        char *text = ask(a, what);
        if (text != NULL)
            keep(a, what, text);
    }
    keep_origin(a);
    pthread_mutex_lock(&f->lock);
    a->route->keeping = false;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    buf_free(&a->text);
    mem_free(a);
    return NULL;
}

/* Where a thread still asks the server before, that one's words do: it is the same model. */
void kept_refresh(struct gateway_route *r) {
    pthread_t thread;
    if (!r->keeps || r->keeping || r->removed || r->gateway->closing)
        return;
    struct asking *a = mem_calloc(1, sizeof *a);
    if (a == NULL)
        return;
    a->route = r;
    a->n_target = r->n_targets + 1; /* gateway_to() counts this one now */
    memcpy(a->target, r->target, sizeof a->target);
    r->keeping = true;
    if (thread_start(&thread, asking_main, a) == 0) {
        pthread_detach(thread);
        return;
    }
    r->keeping = false;
    mem_free(a);
}

json_t *kept_json(struct gateway_route *r, enum kept what) {
    pthread_mutex_lock(&r->gateway->lock);
    json_t *v = r->kept[what] != NULL ? json_loads(r->kept[what], 0, NULL) : NULL;
    pthread_mutex_unlock(&r->gateway->lock);
    return v;
}

void kept_free(struct gateway_route *r) {
    for (enum kept what = 0; what < KEPT_N; what++)
        mem_free(r->kept[what]);
    mem_free(r->origin);
}
