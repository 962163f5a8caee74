/* raw.c: The bare loops over shared memory and TCP that fabric bench compares links with. */
#include "link/raw.h"

#include "base/clock.h"
#include "base/futex.h"
#include "base/mem.h"
#include "base/util.h"
#include "link/raw_ucx.h"
#include "net/net.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

struct raw_lane {
    _Alignas(CACHE_LINE) _Atomic uint32_t full;
    _Alignas(CACHE_LINE) uint8_t data[];
};

struct raw {
    enum fabric_link link;
    size_t max_bytes, map_bytes;
    struct raw_lane *lanes[2]; /* shm: [side that writes] */
    int fds[2];                /* tcp: [side] */
    struct raw_ucx *ucx;
};

static enum status open_memory(struct raw *r, struct err *err) {
    size_t lane = round_up(sizeof(struct raw_lane) + r->max_bytes, 4096);
    r->map_bytes = 2 * lane;
    char *p =
        mmap(NULL, r->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_set(err, ST_NO_MEMORY, "no memory for the raw loop");
    r->lanes[0] = (struct raw_lane *)p;
    r->lanes[1] = (struct raw_lane *)(p + lane);
    return ST_OK;
}

static enum status open_sockets(struct raw *r, struct err *err) {
    struct net_address at;
    int listener = -1;
    TRY(net_resolve(&at, "127.0.0.1:0", true, err));
    TRY(net_listen(&listener, &at, err));
    enum status st = net_local(listener, &at, err);
    if (st == ST_OK)
        st = net_connect(&r->fds[0], &at, clock_ns() + 1000000000u, err);
    if (st == ST_OK && (r->fds[1] = net_accept(listener, &at)) < 0)
        st = err_set(err, ST_IO, "the raw loop's connection was not accepted");
    close(listener);
    return st;
}

enum status raw_open(struct raw **out, enum fabric_link link, size_t max_bytes,
                     struct err *err) {
    if (link != FABRIC_LINK_SHM && link != FABRIC_LINK_TCP && link != FABRIC_LINK_UCX)
        return err_set(err, ST_UNSUPPORTED, "no bare medium for this link");
    struct raw *r = mem_calloc(1, sizeof *r);
    if (r == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for the raw loop");
    *r = (struct raw){.link = link, .max_bytes = max_bytes, .fds = {-1, -1}};
    enum status st = link == FABRIC_LINK_SHM   ? open_memory(r, err)
                     : link == FABRIC_LINK_UCX ? raw_ucx_open(&r->ucx, err)
                                               : open_sockets(r, err);
    if (st != ST_OK) {
        raw_close(r);
        return st;
    }
    *out = r;
    return ST_OK;
}

void raw_close(struct raw *r) {
    if (r == NULL)
        return;
    if (r->lanes[0] != NULL)
        munmap(r->lanes[0], r->map_bytes);
    for (int i = 0; i < 2; i++)
        if (r->fds[i] >= 0)
            close(r->fds[i]);
    raw_ucx_close(r->ucx);
    mem_free(r);
}

void raw_send(struct raw *r, int side, const void *buf, size_t n) {
    if (r->link == FABRIC_LINK_UCX) {
        raw_ucx_send(r->ucx, side, buf, n);
        return;
    }
    if (r->link == FABRIC_LINK_SHM) {
        struct raw_lane *lane = r->lanes[side];
        while (atomic_load_explicit(&lane->full, memory_order_acquire) != 0)
            cpu_relax();
        memcpy(lane->data, buf, n);
        atomic_store_explicit(&lane->full, 1, memory_order_release);
        return;
    }
    for (size_t at = 0; at < n;) {
        ssize_t put = send(r->fds[side], (const char *)buf + at, n - at, MSG_NOSIGNAL);
        at += put > 0 ? (size_t)put : 0;
    }
}

void raw_recv(struct raw *r, int side, void *buf, size_t n) {
    if (r->link == FABRIC_LINK_UCX) {
        raw_ucx_recv(r->ucx, side, buf, n);
        return;
    }
    if (r->link == FABRIC_LINK_SHM) {
        struct raw_lane *lane = r->lanes[!side];
        while (atomic_load_explicit(&lane->full, memory_order_acquire) == 0)
            cpu_relax();
        memcpy(buf, lane->data, n);
        atomic_store_explicit(&lane->full, 0, memory_order_release);
        return;
    }
    for (size_t at = 0; at < n;) {
        ssize_t got = recv(r->fds[side], (char *)buf + at, n - at, 0);
        if (got == 0)
            return; /* the other process is gone: the fabric says so */
        at += got > 0 ? (size_t)got : 0;
    }
}
