/* link_tcp.c: the link `tcp`: messages one after the other on a connected non-blocking socket.
 *
 * send() tries to write at once. What the kernel does not accept stays in its slot, and
 * progress() continues. recv() reads all available bytes into one buffer and returns messages
 * in place. Both are polled while a collective runs. During a sleep, the socket is in poll(). */
#include "link/links.h"

#include "base/mem.h"
#include "base/util.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define TCP_N_SLOTS 8u
#define TCP_HELD_MAX 4u /* messages kept back for one system call */
#define TCP_STRIDE (sizeof(struct wire_msg) + LINK_SLOT_BYTES)
#define TCP_RX_BYTES (8 * TCP_STRIDE)

struct tcp_link {
    struct link base;
    int fd;
    uint8_t *tx;              /* [TCP_N_SLOTS][TCP_STRIDE] */
    uint32_t queued, flushed; /* messages given to send(), wholly written; they wrap */
    size_t written;           /* bytes of message `flushed` already written */
    bool handed;              /* slot() has told the next slot: it is being filled */
    uint8_t *rx;              /* [TCP_RX_BYTES]: bytes [rx_begin, rx_end) are unread */
    size_t rx_begin, rx_end;
};

static struct tcp_link *tcp_of(struct link *l) {
    return (struct tcp_link *)l;
}

static enum status tcp_offer(struct link **out, struct link_env *env, uint8_t *blob,
                             struct err *err) {
    (void)blob;
    struct tcp_link *t = mem_calloc(1, sizeof *t);
    uint8_t *buffers = mem_alloc(TCP_N_SLOTS * TCP_STRIDE + TCP_RX_BYTES);
    if (t == NULL || buffers == NULL) {
        mem_free(t);
        mem_free(buffers);
        return err_set(err, ST_NO_MEMORY, "no memory for a link");
    }
    t->base = (struct link){.ops = &link_tcp, .slot_bytes = LINK_SLOT_BYTES};
    t->fd = env->data_fd;
    env->data_fd = -1;
    t->tx = buffers;
    t->rx = buffers + TCP_N_SLOTS * TCP_STRIDE;
    *out = &t->base;
    return ST_OK;
}

static enum status tcp_accept(struct link *l, struct link_env *env, const uint8_t *blob,
                              struct err *err) {
    (void)l, (void)env, (void)blob, (void)err;
    return ST_OK; /* the bootstrap connected the socket */
}

static uint8_t *tcp_tx(const struct tcp_link *t, uint32_t message) {
    return t->tx + message % TCP_N_SLOTS * TCP_STRIDE;
}

static struct wire_msg *tcp_slot(struct link *l) {
    struct tcp_link *t = tcp_of(l);
    if (t->queued - t->flushed == TCP_N_SLOTS)
        return NULL;
    t->handed = true;
    return (struct wire_msg *)tcp_tx(t, t->queued);
}

static enum status tcp_broken(struct err *err) {
    return err_set(err, ST_PEER_LOST, "its TCP connection broke: %s", strerror(errno));
}

/* On the wire each message is padded, so that headers stay aligned in the buffers. */
static size_t tcp_wire_bytes(const struct wire_msg *m) {
    return sizeof *m + round_up(m->n_bytes, sizeof *m);
}

/* All that waits, for one system call. */
static int tcp_pieces(const struct tcp_link *t, struct iovec *pieces) {
    int n = 0;
    size_t skip = t->written;
    for (uint32_t k = t->flushed; k != t->queued; k++, skip = 0) {
        uint8_t *at = tcp_tx(t, k);
        pieces[n++] = (struct iovec){at + skip, tcp_wire_bytes((struct wire_msg *)at) - skip};
    }
    return n;
}

static void tcp_written(struct tcp_link *t, size_t n) {
    for (t->written += n; t->flushed != t->queued; t->flushed++) {
        size_t whole = tcp_wire_bytes((const struct wire_msg *)tcp_tx(t, t->flushed));
        if (t->written < whole)
            return;
        t->written -= whole;
    }
    if (!t->handed)
        t->flushed = t->queued = 0; /* the first slot is the one that the caches have */
}

static enum status tcp_progress(struct link *l, struct err *err) {
    struct tcp_link *t = tcp_of(l);
    while (t->flushed != t->queued) {
        struct iovec pieces[TCP_N_SLOTS];
        struct msghdr all = {.msg_iov = pieces, .msg_iovlen = tcp_pieces(t, pieces)};
        ssize_t put = all.msg_iovlen == 1
                          ? send(t->fd, pieces->iov_base, pieces->iov_len, MSG_NOSIGNAL)
                          : sendmsg(t->fd, &all, MSG_NOSIGNAL);
        if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            break;
        if (put < 0)
            return tcp_broken(err);
        tcp_written(t, (size_t)put);
    }
    l->tx_pending = t->flushed != t->queued;
    return ST_OK;
}

static enum status tcp_send(struct link *l, struct err *err) {
    struct tcp_link *t = tcp_of(l);
    t->queued++;
    t->handed = false;
    l->tx_pending = true;
    return l->hold && t->queued - t->flushed < TCP_HELD_MAX ? ST_OK : tcp_progress(l, err);
}

/* ST_OK: a whole message is in the buffer. */
static enum status tcp_parse(struct tcp_link *t, const struct wire_msg **out, struct err *err) {
    size_t have = t->rx_end - t->rx_begin;
    const struct wire_msg *m = (const struct wire_msg *)(t->rx + t->rx_begin);
    if (have < sizeof *m)
        return ST_AGAIN;
    if (m->n_bytes > LINK_SLOT_BYTES)
        return err_set(err, ST_PEER_LOST, "a message longer than its slot");
    if (have < tcp_wire_bytes(m))
        return ST_AGAIN;
    *out = m;
    return ST_OK;
}

static enum status tcp_recv(struct link *l, const struct wire_msg **out, struct err *err) {
    struct tcp_link *t = tcp_of(l);
    enum status st = tcp_parse(t, out, err);
    if (st != ST_AGAIN)
        return st;
    /* Moving what is left is rare: only where a whole message might not fit behind it. */
    if (t->rx_begin != 0 && TCP_RX_BYTES - t->rx_end < 2 * TCP_STRIDE) {
        memmove(t->rx, t->rx + t->rx_begin, t->rx_end - t->rx_begin);
        t->rx_end -= t->rx_begin;
        t->rx_begin = 0;
    }
    ssize_t got = recv(t->fd, t->rx + t->rx_end, TCP_RX_BYTES - t->rx_end, 0);
    if (got == 0)
        return err_set(err, ST_PEER_LOST, "it closed its TCP connection");
    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? ST_AGAIN
                                                                         : tcp_broken(err);
    t->rx_end += (size_t)got;
    return tcp_parse(t, out, err);
}

static void tcp_done(struct link *l) {
    struct tcp_link *t = tcp_of(l);
    t->rx_begin += tcp_wire_bytes((const struct wire_msg *)(t->rx + t->rx_begin));
    if (t->rx_begin == t->rx_end)
        t->rx_begin = t->rx_end = 0;
}

static struct pollfd tcp_poll_fd(struct link *l, bool for_slot) {
    (void)for_slot;
    short events = (short)(POLLIN | (l->tx_pending ? POLLOUT : 0));
    return (struct pollfd){.fd = tcp_of(l)->fd, .events = events};
}

static void tcp_close(struct link *l) {
    struct tcp_link *t = tcp_of(l);
    if (t->fd >= 0)
        close(t->fd);
    mem_free(t->tx);
    mem_free(t);
}

const struct link_ops link_tcp = {
    .name = "tcp",
    .n_ahead = LINK_AHEAD,
    .id = FABRIC_LINK_TCP,
    .private_slots = true,
    .offer = tcp_offer,
    .accept = tcp_accept,
    .slot = tcp_slot,
    .send = tcp_send,
    .recv = tcp_recv,
    .done = tcp_done,
    .progress = tcp_progress,
    .poll_fd = tcp_poll_fd,
    .close = tcp_close,
};
