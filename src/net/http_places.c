/* http_places.c: Who may connect. A connection costs a slot and an open file, and anybody can
 * hold one that sends nothing. So when all slots are taken, these are closed first: the oldest
 * one of the address that has the most of them. After them come connections that have had an
 * answer and have sent nothing since, or that never complete a request. A connection that waits
 * for an answer stays. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"
#include "net/http_internal.h"

#include <netinet/in.h>

/* After this long without a whole request a connection may be closed. */
#define KEPT_S 5.0

struct http_address {
    struct http_address *next;
    unsigned char bytes[16]; /* IPv4 mapped to IPv6 */
    int n, n_silent;         /* connections, and those without a byte */
};

static void bytes_of(const struct net_address *a, unsigned char out[16]) {
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (a->sa.ss_family == AF_INET6) {
        memcpy(out, &((const struct sockaddr_in6 *)(const void *)&a->sa)->sin6_addr, 16);
        return;
    }
    memcpy(out, mapped, sizeof mapped);
    memcpy(out + 12, &((const struct sockaddr_in *)(const void *)&a->sa)->sin_addr, 4);
}

/* Where it is, or would be, in its list. */
static struct http_address **find(struct http_server *s, const unsigned char bytes[16]) {
    unsigned hash = 0;
    for (int i = 0; i < 16; i++)
        hash = hash * 31 + bytes[i];
    struct http_address **at = &s->addresses[hash % HTTP_ADDRESS_BUCKETS];
    while (*at != NULL && memcmp((*at)->bytes, bytes, 16) != 0)
        at = &(*at)->next;
    return at;
}

bool http_places_take(struct http_connection *c) {
    struct http_server *s = c->server;
    unsigned char bytes[16];
    bytes_of(&c->from, bytes);
    struct http_address **at = find(s, bytes), *a = *at;
    if (a == NULL) {
        a = mem_calloc(1, sizeof *a);
        if (a == NULL)
            return false;
        memcpy(a->bytes, bytes, sizeof a->bytes);
        *at = a;
    }
    c->address = a;
    a->n++;
    a->n_silent++;
    return s->cfg.max_per_address == 0 || a->n <= s->cfg.max_per_address;
}

void http_places_leave(struct http_connection *c) {
    struct http_address *a = c->address;
    if (a == NULL)
        return;
    c->address = NULL;
    a->n--;
    a->n_silent -= !c->spoke;
    if (a->n > 0)
        return;
    *find(c->server, a->bytes) = a->next;
    mem_free(a);
}

void http_places_spoke(struct http_connection *c) {
    c->spoke = true;
    c->address->n_silent--;
}

/* Has it kept its place for long without a whole request? */
static bool is_unused(const struct http_connection *c, double now_s) {
    bool unused = c->stage == STAGE_HEAD || c->stage == STAGE_LINGER ||
                  (c->stage == STAGE_BODY && !c->r->trusted);
    return unused && now_s - c->stage_s >= KEPT_S;
}

/* Which connection to close for a new one; NULL: none. */
static struct http_connection *victim(struct http_server *s) {
    struct http_connection *silent = NULL, *unused = NULL;
    double now_s = clock_s();
    for (struct http_connection *c = s->first; c != NULL; c = c->next) {
        if (!c->spoke) {
            if (silent == NULL || c->address->n_silent > silent->address->n_silent)
                silent = c;
        } else if (is_unused(c, now_s)) {
            if (unused == NULL || c->address->n > unused->address->n)
                unused = c;
        }
    }
    return silent != NULL ? silent : unused;
}

bool http_places_left(struct http_server *s) {
    return s->n_connections < s->cfg.max_connections || victim(s) != NULL;
}

void http_places_clear(struct http_server *s) {
    struct http_connection *c = victim(s);
    if (c != NULL)
        http_connection_close(c);
}
