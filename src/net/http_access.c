/* http_access.c: Which requests are allowed: by API key, and for a server that is local to this
 * machine also by Host and Origin. */
#include "base/util.h"
#include "net/http_internal.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <sodium.h>
#include <strings.h>
#include <unistd.h>

/* ---- keys -------------------------------------------------------------------------------- */

const char *http_shown_key(const struct http_request *r) {
    const char *bearer = http_header(r, "Authorization");
    if (bearer != NULL && strncasecmp(bearer, "Bearer ", 7) == 0)
        return bearer + 7 + strspn(bearer + 7, " ");
    return http_header(r, "x-api-key");
}

int http_key(const struct http_request *r) {
    const struct http_server *s = r->server;
    const char *key = http_shown_key(r);
    unsigned char hash[HTTP_KEY_BYTES];
    int which = 0;
    if (key == NULL)
        return 0;
    crypto_generichash(hash, sizeof hash, (const unsigned char *)key, strlen(key), NULL, 0);
    for (size_t i = 0; i < s->n_keys; i++) /* all of them: the time tells nothing */
        which |=
            -(sodium_memcmp(hash, s->keys[i], sizeof hash) == 0 && which == 0) & (int)(i + 1);
    return which;
}

unsigned long long http_client(const struct http_request *r) {
    unsigned char hash[16];
    unsigned long long id;
    const char *key = http_shown_key(r);
    const void *text = key != NULL ? (const void *)key : r->address;
    size_t len = key != NULL ? strlen(key) : r->n_address;
    crypto_generichash(hash, sizeof hash, text, len, NULL, 0);
    memcpy(&id, hash, sizeof id);
    return id;
}

void http_client_host(const struct http_request *r, char *out, size_t size) {
    int family = r->n_address == sizeof(struct in_addr) ? AF_INET : AF_INET6;
    if (inet_ntop(family, r->address, out, (socklen_t)size) == NULL)
        *out = '\0';
}

bool http_is_1_0(const struct http_request *r) {
    return r->head.is_1_0;
}

/* ---- this machine alone ------------------------------------------------------------------ */

#define HOST_BYTES 256

static bool is_port(const char *s) {
    return *s == '\0' || (*s == ':' && strspn(s + 1, "0123456789") == strlen(s + 1));
}

/* The name or address of NAME, NAME:PORT, ADDRESS:PORT or [ADDRESS]:PORT, in lower case; "" for
 * other forms or if it is too long. */
static void host_of(const char *host_and_port, char out[HOST_BYTES]) {
    struct in6_addr address;
    bool bracket = *host_and_port == '[';
    size_t n = bracket ? strcspn(host_and_port, "]") : strcspn(host_and_port, ":");
    out[0] = '\0';
    if (n + 1 >= HOST_BYTES)
        return;
    if (bracket) { /* a zone (fe80::1%25eth0) does not change the owner */
        char inner[HOST_BYTES] = "";
        memcpy(inner, host_and_port + 1, n - 1);
        inner[strcspn(inner, "%")] = '\0';
        if (host_and_port[n] != ']' || inet_pton(AF_INET6, inner, &address) != 1)
            return;
        n++;
    }
    if (!is_port(host_and_port + n))
        return;
    for (size_t i = 0; i < n; i++)
        out[i] = (char)tolower((unsigned char)host_and_port[i]);
    out[n] = '\0';
}

/* A web page can make its own name resolve to this machine's address (DNS rebinding) and then
 * read the answers of a local server. The Host header then has the page's name. Names that
 * others cannot own, and addresses, are safe. */
static bool names_this_machine(const char *host) {
    static const char *const tails[] = {".localhost", ".local", ".internal"};
    char own[HOST_BYTES] = "";
    struct in_addr address;
    for (size_t i = 0; i < ARRAY_LEN(tails); i++)
        if (str_ends(host, tails[i]))
            return true;
    (void)gethostname(own, sizeof own - 1);
    return *host == '[' || str_eq(host, "localhost") ||
           (*host != '\0' && strcasecmp(host, own) == 0) ||
           inet_pton(AF_INET, host, &address) == 1;
}

static bool is_loopback(const char *host) {
    struct in_addr address;
    return str_eq(host, "localhost") || str_ends(host, ".localhost") || str_eq(host, "[::1]") ||
           (inet_pton(AF_INET, host, &address) == 1 && str_starts(host, "127."));
}

/* A web page may send requests anywhere, though it cannot read the answers. The model would
 * still compute what it asks. The Origin header has the page's origin, or "null" if it has
 * none. Programs and browser extensions send no Origin, or one with a scheme of their own.
 * host: the request's host. */
static bool is_of_own_page(const struct http_request *r, const char *host) {
    const char *origin = http_header(r, "Origin"), *allowed = r->server->cors_origin;
    char from[HOST_BYTES];
    if (origin == NULL ||
        (allowed != NULL && (str_eq(allowed, "*") || str_eq(allowed, origin))))
        return true;
    if (!str_starts(origin, "http://") && !str_starts(origin, "https://"))
        return !str_eq(origin, "null");
    host_of(strstr(origin, "://") + strlen("://"), from);
    return is_loopback(from) || (*from != '\0' && str_eq(from, host));
}

bool http_is_local_origin(const char *origin) {
    static const char *const schemes[] = {"app://", "tauri://", "vscode-webview://",
                                          "vscode-file://"};
    char host[HOST_BYTES];
    for (size_t i = 0; i < ARRAY_LEN(schemes); i++)
        if (str_starts(origin, schemes[i]))
            return strlen(origin) < HOST_BYTES && strpbrk(origin, " \t,") == NULL;
    if (!str_starts(origin, "http://") && !str_starts(origin, "https://"))
        return false;
    host_of(strstr(origin, "://") + strlen("://"), host);
    return is_loopback(host);
}

const char *http_access_origin(const struct http_request *r) {
    const char *origin = http_header(r, "Origin"), *given = r->server->cors_origin;
    bool all = given != NULL && str_eq(given, "*");
    bool local = r->server->cfg.cors_local && origin != NULL && http_is_local_origin(origin);
    return local && !all ? origin : given;
}

const char *http_why_not_local(const struct http_request *r) {
    const char *header = http_header(r, "Host");
    char host[HOST_BYTES] = "localhost"; /* HTTP/1.0 has none */
    if (header != NULL)
        host_of(header, host);
    if (!names_this_machine(host))
        return "the Host header names another machine: with an API key, or --insecure, every "
               "name may be used";
    if (!is_of_own_page(r, host))
        return "the Origin header names a page of another machine: --cors ORIGIN lets it in";
    return NULL;
}
