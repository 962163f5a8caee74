/* http.c: The server's socket, and the loop that accepts connections, waits for all of them and
 * checks timeouts. http_connection.c handles each connection. */
#include "net/http.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "net/http_internal.h"
#include "net/http_workers.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#define BACKLOG 1024
#define EVENTS_MAX 64
#define ACCEPTS_PER_TURN 64
/* Of two idle_s, for a head to come, if head_s is more. */
#define LATE_IDLES 2
/* For the owners of what was cut to end it. */
#define CUT_MS 3000

void http_config_init(struct http_config *cfg) {
    *cfg = (struct http_config){
        .host = "127.0.0.1",
        .max_body_bytes = (size_t)32 << 20,
        .max_bodies_bytes = (size_t)256 << 20,
        .max_unread_bytes = (size_t)1 << 20,
        .max_connections = 512,
        .idle_s = 60,
        .head_s = 20,
        .quiet_ms = 10000,
    };
}

int http_port(const struct http_server *s) {
    return s->port;
}

int http_max_connections(const struct http_server *s) {
    return s->cfg.max_connections;
}

int http_n_running(const struct http_server *s) {
    return atomic_load(&s->n_running);
}

/* ---- the loop ---------------------------------------------------------------------------- */

void http_server_wake(struct http_server *s) {
    if (!atomic_exchange(&s->woken, true)) {
        ssize_t n = write(s->wake[1], "", 1);
        (void)n; /* full: it is awake */
    }
}

static void listen_or_not(struct http_server *s, bool listens) {
    if (s->listens == listens)
        return;
    s->listens = listens;
    http_poll_change(s->poll, s->listener, listens ? HTTP_POLL_READ : 0u, &s->listener);
}

/* A connection without a slot waits in the system's queue. */
static void accept_some(struct http_server *s) {
    struct net_address from;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        if (!http_places_left(s)) {
            listen_or_not(s, false);
            return;
        }
        int fd = net_accept(s->listener, &from);
        bool no_files = fd < 0 && (errno == EMFILE || errno == ENFILE);
        if (no_files || (fd >= 0 && s->n_connections >= s->cfg.max_connections))
            http_places_clear(s);
        if (no_files) /* until the next look at the clock */
            listen_or_not(s, false);
        if (fd < 0)
            return;
        (void)http_connection_open(s, fd, &from);
    }
}

static void look_at_dirty(struct http_server *s) {
    char some[64];
    while (read(s->wake[0], some, sizeof some) > 0)
        continue;
    atomic_store(&s->woken, false); /* before the look: what changes after it wakes again */
    for (struct http_connection *c = s->first, *next; c != NULL; c = next) {
        next = c->next;
        if (c->r != NULL && atomic_exchange(&c->r->dirty, false))
            http_connection_run(c, 0);
    }
}

static void go_on(struct http_server *s) {
    s->again = false;
    for (struct http_connection *c = s->first, *next; c != NULL; c = next) {
        next = c->next;
        if (c->again)
            http_connection_run(c, 0);
    }
}

static void tick(struct http_server *s) {
    double now_s = clock_s();
    for (struct http_connection *c = s->first, *next; c != NULL; c = next) {
        next = c->next;
        http_connection_tick(c, now_s);
    }
    listen_or_not(s, true);
}

static void free_dead(struct http_server *s) {
    for (struct http_connection *c = s->dead, *next; c != NULL; c = next) {
        next = c->next;
        mem_free(c);
    }
    s->dead = NULL;
}

static void turn(struct http_server *s, int timeout_ms) {
    struct http_poll_event found[EVENTS_MAX];
    size_t n = http_poll_wait(s->poll, found, EVENTS_MAX, timeout_ms);
    for (size_t i = 0; i < n; i++) {
        struct http_connection *c = found[i].what;
        if (found[i].what == &s->listener)
            accept_some(s);
        else if (found[i].what == &s->woken)
            look_at_dirty(s);
        else if (c->fd >= 0) /* not closed yet in this iteration */
            http_connection_run(c, found[i].events);
    }
    if (s->again)
        go_on(s);
}

static void *loop(void *user) {
    struct http_server *s = user;
    double tick_s = clock_s();
    while (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
        double left_ms = (tick_s - clock_s()) * 1000;
        turn(s, s->again ? 0 : (int)MAX(MIN(left_ms + 1, HTTP_TICK_MS), 0));
        if (clock_s() >= tick_s) {
            tick_s = clock_s() + HTTP_TICK_MS / 1000.0;
            tick(s);
        }
        if (s->n_connections < s->cfg.max_connections)
            listen_or_not(s, true);
        free_dead(s);
    }
    while (s->first != NULL)
        http_connection_close(s->first);
    free_dead(s);
    return NULL;
}

/* ---- opening and closing ------------------------------------------------------------------- */

#define PEM_MAX ((size_t)1 << 20)
#define FILES_WANTED ((rlim_t)1 << 16)

/* A connection is an open file. A program may have few of them (1024, on a Mac 256) until it
 * raises the limit; a Mac allows at most 10240. */
static rlim_t files_allowed(void) {
    struct rlimit now, more;
    if (getrlimit(RLIMIT_NOFILE, &now) != 0)
        return RLIM_INFINITY;
    for (rlim_t n = FILES_WANTED; n > now.rlim_cur; n /= 2) {
        more = (struct rlimit){.rlim_cur = MIN(n, now.rlim_max), .rlim_max = now.rlim_max};
        if (more.rlim_cur > now.rlim_cur && setrlimit(RLIMIT_NOFILE, &more) == 0)
            return more.rlim_cur;
    }
    return now.rlim_cur;
}

/* Half of the files are for all else: clients that only stay must not keep a lost rank from
 * being replaced. */
static int connection_limit(const struct http_config *cfg) {
    return (int)MIN((rlim_t)cfg->max_connections, MAX(files_allowed() / 2, 1));
}

static enum status listen_on(struct http_server *s, const char *host, int *fd_out,
                             struct err *err) {
    char port[16];
    snprintf(port, sizeof port, "%d", s->cfg.port);
    struct addrinfo *list = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    int rc = getaddrinfo(host, port, &hints, &list);
    if (rc != 0)
        return err_set(err, ST_BAD_INPUT, "%s: %s", host, gai_strerror(rc));
    int fd = -1, why = 0;
    for (struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
        int yes = 1, no = 0;
        fd = net_socket(a->ai_family, SOCK_STREAM, 0);
        if (fd < 0) {
            why = why != 0 ? why : errno; /* that a port is taken says more */
            continue;
        }
        net_setup(fd);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (a->ai_family == AF_INET6 &&
            str_eq(s->host, "*")) /* whatever the system's default is */
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
        if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
            why = errno;
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd < 0)
        return err_set(
            err, ST_IO, "cannot listen on %s port %d: %s%s", host, s->cfg.port, strerror(why),
            why == EADDRINUSE ? " by another program (--port takes another)"
            : why == EACCES   ? " (the system's ports end at 1023: --port takes another)"
                              : "");
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    getsockname(fd, (struct sockaddr *)&at, &len);
    s->port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                             : ((struct sockaddr_in *)&at)->sin_port);
    *fd_out = fd;
    return ST_OK;
}

static enum status begin_listening(struct http_server *s, int *fd, struct err *err) {
    if (!str_eq(s->host, "*"))
        return listen_on(s, s->host, fd, err);
    if (listen_on(s, "::", fd, err) == ST_OK)
        return ST_OK;
    return listen_on(s, "0.0.0.0", fd, err); /* a system without IPv6 */
}

static enum status hash_keys(struct http_server *s, struct err *err) {
    s->keys = mem_calloc(s->cfg.n_api_keys, sizeof *s->keys);
    if (s->keys == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for API keys");
    s->n_keys = s->cfg.n_api_keys;
    for (size_t i = 0; i < s->n_keys; i++)
        crypto_generichash(s->keys[i], HTTP_KEY_BYTES,
                           (const unsigned char *)s->cfg.api_keys[i],
                           strlen(s->cfg.api_keys[i]), NULL, 0);
    return ST_OK;
}

static enum status read_certificate(struct http_server *s, struct err *err) {
    const struct http_config *cfg = &s->cfg;
    char *cert = NULL, *key = NULL;
    enum status st = ST_OK;
    if (cfg->tls_cert_path != NULL) {
        st = file_read_text(&cert, NULL, cfg->tls_cert_path, PEM_MAX, err);
        if (st == ST_OK)
            st = file_read_text(&key, NULL, cfg->tls_key_path, PEM_MAX, err);
        if (st == ST_OK)
            st = http_tls_open(&s->tls, cert, key, err);
    } else if (cfg->tls_cert_pem != NULL) {
        st = http_tls_open(&s->tls, cfg->tls_cert_pem, cfg->tls_key_pem, err);
    }
    if (key != NULL)
        sodium_memzero(key, strlen(key));
    mem_free(cert);
    mem_free(key);
    return st;
}

static enum status open_pipe(struct http_server *s, struct err *err) {
    if (pipe(s->wake) != 0) {
        s->wake[0] = s->wake[1] = -1;
        return err_set(err, ST_IO, "no pipe for an HTTP server: %s", strerror(errno));
    }
    for (int i = 0; i < 2; i++) {
        fcntl(s->wake[i], F_SETFL, O_NONBLOCK);
        fcntl(s->wake[i], F_SETFD, FD_CLOEXEC);
    }
    return ST_OK;
}

static enum status open_parts(struct http_server *s, struct err *err) {
    const struct http_config *cfg = &s->cfg;
    if ((cfg->tls_cert_path == NULL) != (cfg->tls_key_path == NULL))
        return err_set(err, ST_BAD_INPUT, "TLS needs both a certificate and a key");
    TRY(read_certificate(s, err));
    s->host = mem_strdup(cfg->host);
    s->cors_origin = cfg->cors_origin != NULL ? mem_strdup(cfg->cors_origin) : NULL;
    if (s->host == NULL || (cfg->cors_origin != NULL && s->cors_origin == NULL))
        return err_set(err, ST_NO_MEMORY, "no memory for an HTTP server");
    TRY(hash_keys(s, err));
    TRY(begin_listening(s, &s->listener, err));
    TRY(open_pipe(s, err));
    if (cfg->lane != NULL)
        TRY(http_workers_open(&s->workers, err));
    TRY(http_poll_open(&s->poll, err));
    s->listens = true;
    if (!http_poll_add(s->poll, s->listener, HTTP_POLL_READ, &s->listener) ||
        !http_poll_add(s->poll, s->wake[0], HTTP_POLL_READ, &s->woken) ||
        thread_start(&s->thread, loop, s) != 0)
        return err_set(err, ST_NO_MEMORY, "no thread for an HTTP server");
    s->running = true;
    return ST_OK;
}

enum status http_open(struct http_server **out, const struct http_config *cfg,
                      struct err *err) {
    if (sodium_init() < 0)
        return err_set(err, ST_IO, "libsodium does not start");
    struct http_server *s = mem_calloc(1, sizeof *s);
    if (s == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for an HTTP server");
    s->cfg = *cfg;
    s->cfg.max_connections = connection_limit(cfg);
    s->cfg.head_s = MIN(cfg->head_s, LATE_IDLES * cfg->idle_s);
    s->listener = s->wake[0] = s->wake[1] = -1;
    enum status st = open_parts(s, err);
    if (st != ST_OK) {
        http_close(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

bool http_drain(struct http_server *s, int wait_ms) {
    atomic_store_explicit(&s->draining, true, memory_order_relaxed);
    for (int ms = 0; ms < wait_ms && atomic_load(&s->n_running) != 0; ms += 10)
        usleep(10000);
    return atomic_load(&s->n_running) == 0;
}

void http_close(struct http_server *s) {
    if (s == NULL)
        return;
    atomic_store_explicit(&s->stop, true, memory_order_relaxed);
    if (s->running) {
        http_server_wake(s);
        pthread_join(s->thread, NULL);
    }
    http_workers_close(s->workers);
    if (s->running)
        (void)http_drain(s, CUT_MS);
    http_poll_close(s->poll);
    http_tls_close(s->tls);
    for (int i = 0; i < 2; i++)
        if (s->wake[i] >= 0)
            close(s->wake[i]);
    if (s->listener >= 0)
        close(s->listener);
    mem_free(s->host);
    mem_free(s->cors_origin);
    mem_free(s->keys);
    mem_free(s);
}
