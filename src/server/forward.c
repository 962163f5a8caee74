/* One thread and poll(). A connection is two sockets, and a pipe of bytes from each to the other. */
#include "server/forward.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "fabric/net.h"
#include "fabric/wake.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

#define PIPE_BYTES 16384
/* A client that was told that nobody is there may still be sending its request: hanging up on it at once would take back
 * the words. */
#define LINGER_NS 2000000000ull
#define CONNECT_NS 5000000000ull
#define ACCEPT_AGAIN_MS 50

enum { CLIENT, SERVER };

struct pipe {
    size_t begin, end; /* what is still to be sent */
    bool eof;          /* no more comes in */
    bool ended;        /* nor goes out */
    char bytes[PIPE_BYTES];
};

struct connection {
    int fd[2];         /* SERVER's is -1 where nobody is there */
    bool connecting;   /* to the server */
    uint64_t until_ns; /* 0: as long as it lasts */
    struct pipe from[2];
};

struct forward {
    int listener, port;
    char *refusal;
    pthread_t thread;
    struct wake wake;

    pthread_mutex_t lock; /* guards what follows */
    bool closing, changed;
    bool has_target;
    struct net_address target;

    /* The thread's. */
    struct connection *all[FORWARD_CONNECTIONS_MAX];
    int n;
};

/* ---- one connection --------------------------------------------------------------------------- */

/* A machine that lost its power says nothing; these ask it. */
static void watch_peer(int fd) {
    int one = 1, idle = 10, gap = 3, count = 3;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
#ifdef TCP_KEEPIDLE
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
#endif
#ifdef TCP_KEEPINTVL
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &gap, sizeof gap);
#endif
#ifdef TCP_KEEPCNT
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
#endif
    (void)idle, (void)gap, (void)count;
}

static void connection_free(struct connection *c) {
    for (int side = 0; side < 2; side++)
        if (c->fd[side] >= 0)
            close(c->fd[side]);
    mem_free(c);
}

/* Nobody is there: the client gets the refusal, and what it sends is read and dropped. */
static void refuse(struct forward *f, struct connection *c) {
    struct pipe *to_client = &c->from[SERVER];
    if (c->fd[SERVER] >= 0)
        close(c->fd[SERVER]);
    c->fd[SERVER] = -1;
    c->connecting = false;
    c->until_ns = clock_ns() + LINGER_NS;
    to_client->eof = true;
    if (f->refusal == NULL)
        return;
    to_client->end = MIN(strlen(f->refusal), sizeof to_client->bytes);
    memcpy(to_client->bytes, f->refusal, to_client->end);
}

static void begin_connecting(struct forward *f, struct connection *c,
                             const struct net_address *target) {
    int fd = net_socket(target->sa.ss_family, SOCK_STREAM, 0);
    if (fd >= 0)
        net_setup(fd);
    if (fd < 0 || (connect(fd, (const struct sockaddr *)&target->sa, target->len) != 0 &&
                   errno != EINPROGRESS)) {
        if (fd >= 0)
            close(fd);
        refuse(f, c);
        return;
    }
    watch_peer(fd);
    c->fd[SERVER] = fd;
    c->connecting = true;
    c->until_ns = clock_ns() + CONNECT_NS;
}

static void accept_one(struct forward *f, bool has_target, const struct net_address *target) {
    struct net_address from;
    int fd = net_accept(f->listener, &from);
    if (fd < 0) {
        if (errno == EMFILE ||
            errno == ENFILE) /* it still waits: not to be asked about at once again */
            poll(NULL, 0, ACCEPT_AGAIN_MS);
        return;
    }
    struct connection *c = mem_calloc(1, sizeof *c);
    if (c == NULL) {
        close(fd);
        return;
    }
    watch_peer(fd);
    c->fd[CLIENT] = fd;
    c->fd[SERVER] = -1;
    f->all[f->n++] = c;
    if (has_target)
        begin_connecting(f, c, target);
    else
        refuse(f, c);
}

static void end_connecting(struct forward *f, struct connection *c) {
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(c->fd[SERVER], SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error != 0) {
        refuse(f, c);
        return;
    }
    c->connecting = false;
    c->until_ns = 0;
}

/* False: that side is broken. */
static bool fill(struct pipe *p, int fd) {
    ssize_t n = recv(fd, p->bytes + p->end, sizeof p->bytes - p->end, 0);
    if (n > 0)
        p->end += (size_t)n;
    else if (n == 0)
        p->eof = true;
    return n >= 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static bool drain(struct pipe *p, int fd) {
    ssize_t n = send(fd, p->bytes + p->begin, p->end - p->begin, MSG_NOSIGNAL);
    if (n > 0)
        p->begin += (size_t)n;
    if (p->begin == p->end)
        p->begin = p->end = 0;
    return n >= 0 || errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* Moves what can be moved; false: the connection is over. */
static bool move(struct connection *c, const short events[2]) {
    for (int side = 0; side < 2; side++) {
        struct pipe *p = &c->from[side];
        int to = c->fd[!side];
        if ((events[side] & (POLLIN | POLLHUP | POLLERR)) != 0 && !p->eof &&
            p->end < sizeof p->bytes && !fill(p, c->fd[side]))
            return false;
        if (to < 0)
            p->begin = p->end = 0; /* dropped */
        else if (p->begin < p->end && !(c->connecting && side == CLIENT) && !drain(p, to))
            return false;
        if (p->eof && p->begin == p->end && !p->ended && !(c->connecting && side == CLIENT)) {
            p->ended = true;
            if (to >= 0)
                shutdown(to, SHUT_WR);
        }
    }
    return !(c->from[CLIENT].ended && c->from[SERVER].ended);
}

/* ---- the thread ------------------------------------------------------------------------------- */

/* What is waited for at each side of a connection. */
static void ask_for(const struct connection *c, struct pollfd fds[2]) {
    for (int side = 0; side < 2; side++) {
        const struct pipe *in = &c->from[side], *out = &c->from[!side];
        bool has_room = !in->eof && in->end < sizeof in->bytes;
        bool connecting = c->connecting && side == SERVER;
        bool has_words = out->begin < out->end;
        short events = 0;
        if (has_room && !connecting)
            events |= POLLIN;
        if (connecting || has_words)
            events |= POLLOUT;
        /* What is asked for nothing would still report a hang-up, again and again. */
        fds[side] = (struct pollfd){.fd = events != 0 ? c->fd[side] : -1, .events = events};
    }
}

static int ms_until_next(const struct forward *f) {
    uint64_t until = UINT64_MAX;
    for (int i = 0; i < f->n; i++)
        if (f->all[i]->until_ns != 0)
            until = MIN(until, f->all[i]->until_ns);
    return until == UINT64_MAX ? -1 : net_ms_left(until) + 1;
}

/* The connections to the target before; those that were refused may linger. */
static void drop_all(struct forward *f) {
    for (int i = f->n - 1; i >= 0; i--)
        if (f->all[i]->fd[SERVER] >= 0) {
            connection_free(f->all[i]);
            f->all[i] = f->all[--f->n];
        }
}

static bool take_orders(struct forward *f, bool *has_target, struct net_address *target) {
    pthread_mutex_lock(&f->lock);
    bool changed = f->changed, closing = f->closing;
    f->changed = false;
    *has_target = f->has_target;
    *target = f->target;
    pthread_mutex_unlock(&f->lock);
    if (changed)
        drop_all(f);
    return !closing;
}

static void serve_one(struct forward *f, int i, const struct pollfd fds[2], uint64_t now) {
    struct connection *c = f->all[i];
    const short events[2] = {fds[CLIENT].revents, fds[SERVER].revents};
    if (c->connecting && events[SERVER] != 0) {
        end_connecting(f, c);
    } else if (c->connecting && now >= c->until_ns) {
        refuse(f, c);
    } else if (c->until_ns != 0 && now >= c->until_ns) {
        f->all[i] = NULL;
    }
    if (f->all[i] == NULL || !move(c, events)) {
        connection_free(c);
        f->all[i] = NULL;
    }
}

static void *forward_main(void *user) {
    struct forward *f = user;
    struct pollfd fds[2 + 2 * FORWARD_CONNECTIONS_MAX];
    struct net_address target;
    bool has_target;
    while (take_orders(f, &has_target, &target)) {
        bool has_room = f->n < FORWARD_CONNECTIONS_MAX;
        int n = f->n;
        fds[0] = (struct pollfd){.fd = f->wake.fds[0], .events = POLLIN};
        fds[1] = (struct pollfd){.fd = has_room ? f->listener : -1, .events = POLLIN};
        for (int i = 0; i < n; i++)
            ask_for(f->all[i], fds + 2 + 2 * i);
        poll(fds, (nfds_t)(2 + 2 * n), ms_until_next(f));
        wake_drain(&f->wake);
        uint64_t now = clock_ns();
        for (int i = 0; i < n; i++)
            serve_one(f, i, fds + 2 + 2 * i, now);
        f->n = 0;
        for (int i = 0; i < n; i++)
            if (f->all[i] != NULL)
                f->all[f->n++] = f->all[i];
        if (fds[1].revents != 0)
            accept_one(f, has_target, &target);
    }
    return NULL;
}

/* ---- the interface ---------------------------------------------------------------------------- */

static enum status listen_everywhere(int *fd, int port, struct err *err) {
    struct net_address a;
    char text[32];
    snprintf(text, sizeof text, "[::]:%d", port);
    if (net_resolve(&a, text, true, err) == ST_OK && net_listen(fd, &a, err) == ST_OK)
        return ST_OK;
    snprintf(text, sizeof text, "0.0.0.0:%d", port); /* a system without IPv6 */
    TRY(net_resolve(&a, text, true, err));
    return net_listen(fd, &a, err);
}

static void forward_free(struct forward *f) {
    for (int i = 0; i < f->n; i++)
        connection_free(f->all[i]);
    if (f->listener >= 0)
        close(f->listener);
    wake_close(&f->wake);
    pthread_mutex_destroy(&f->lock);
    mem_free(f->refusal);
    mem_free(f);
}

enum status forward_open(struct forward **out, int port, const char *refusal, struct err *err) {
    struct forward *f = mem_calloc(1, sizeof *f);
    if (f == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to forward a port");
    f->listener = -1;
    f->wake = (struct wake)WAKE_CLOSED;
    f->port = port;
    f->refusal = refusal != NULL ? mem_strdup(refusal) : NULL;
    pthread_mutex_init(&f->lock, NULL);
    enum status st = wake_open(&f->wake, err);
    if (st == ST_OK)
        st = listen_everywhere(&f->listener, port, err);
    if (st == ST_OK && thread_start(&f->thread, forward_main, f) != 0)
        st = err_set(err, ST_NO_MEMORY, "no thread to forward a port");
    if (st != ST_OK) {
        forward_free(f);
        return st;
    }
    *out = f;
    return ST_OK;
}

enum status forward_to(struct forward *f, const char *address, struct err *err) {
    struct net_address target = {.len = 0};
    if (address != NULL)
        TRY(net_resolve(&target, address, false, err));
    pthread_mutex_lock(&f->lock);
    bool same = f->has_target == (address != NULL) && f->target.len == target.len &&
                memcmp(&f->target.sa, &target.sa, target.len) == 0;
    if (!same) {
        f->has_target = address != NULL;
        f->target = target;
        f->changed = true;
    }
    pthread_mutex_unlock(&f->lock);
    if (!same)
        wake_ring(&f->wake);
    return ST_OK;
}

void forward_close(struct forward *f) {
    if (f == NULL)
        return;
    pthread_mutex_lock(&f->lock);
    f->closing = true;
    pthread_mutex_unlock(&f->lock);
    wake_ring(&f->wake);
    pthread_join(f->thread, NULL);
    forward_free(f);
}
