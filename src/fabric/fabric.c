/* fabric.c: opens and closes a group and its teams, and answers queries about them. */
#include "fabric/group.h"

#include "base/clock.h"
#include "base/float_env.h"
#include "base/mem.h"
#include "base/util.h"
#include "fabric/bootstrap.h"
#include "fabric/team.h"
#include "net/net.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <unistd.h>

void fabric_config_defaults(struct fabric_config *cfg) {
    *cfg = (struct fabric_config){
        .n_ranks = 1,
        .listen_fd = -1,
        .link = FABRIC_LINK_AUTO,
        .bootstrap_ms = 30000,
        .silence_ms = 3000,
        .compute_ms = 600000,
        .spin_us = 50,
        .yield_us = 2000,
        .max_message_bytes = (size_t)1 << 20,
    };
}

static enum status check_config(const struct fabric_config *cfg, struct err *err) {
    if (cfg->n_ranks < 1 || cfg->n_ranks > FABRIC_MAX_RANKS)
        return err_set(err, ST_BAD_INPUT, "%d ranks: expected 1 to %d", cfg->n_ranks,
                       FABRIC_MAX_RANKS);
    if (cfg->rank < 0 || cfg->rank >= cfg->n_ranks)
        return err_set(err, ST_BAD_INPUT, "rank %d of %d ranks", cfg->rank, cfg->n_ranks);
    if (cfg->silence_ms < 10 || cfg->bootstrap_ms < 1 || cfg->spin_us < 0 ||
        cfg->yield_us < 0 || cfg->compute_ms < 1)
        return err_set(err, ST_BAD_INPUT,
                       "time limits: expected silence_ms >= 10, bootstrap_ms >= 1, "
                       "compute_ms >= 1, spin_us >= 0, yield_us >= 0");
    if (cfg->emulate != NULL)
        TRY(link_emulate_check(cfg->emulate, err));
    return ST_OK;
}

/* ---- wires ------------------------------------------------------------------------------- */

static enum status take_wires(struct fabric *f, const uint64_t *wires, struct err *err) {
    int n = f->cfg.n_ranks;
    for (int r = 0; r < n; r++)
        f->wires[r] = (wires != NULL ? wires[r] : ~0ull) & (~0ull >> (64 - n)) & ~(1ull << r);
    for (int r = 0; r < n; r++)
        for (int q = 0; q < r; q++)
            if ((f->wires[r] >> q & 1) != (f->wires[q] >> r & 1))
                return err_set(err, ST_BAD_INPUT,
                               "wires: rank %d and rank %d do not agree whether they have one",
                               q, r);
    return ST_OK;
}

/* The first step from here towards each rank on shortest paths: breadth first from each rank,
 * in the same order as a team of all ranks uses. */
static void find_next_hops(struct fabric *f) {
    for (int root = 0; root < f->cfg.n_ranks; root++) {
        int queue[FABRIC_MAX_RANKS], parent[FABRIC_MAX_RANKS], tail = 0;
        for (int r = 0; r < f->cfg.n_ranks; r++)
            parent[r] = -1;
        queue[tail++] = root;
        parent[root] = root;
        for (int head = 0; head < tail; head++)
            for (int k = 1; k < f->cfg.n_ranks; k++) {
                int at = queue[head], r = (at + k) % f->cfg.n_ranks;
                if (parent[r] < 0 && f->wires[at] >> r & 1) {
                    parent[r] = at;
                    queue[tail++] = r;
                }
            }
        f->next_hop[root] = parent[f->cfg.rank] >= 0 ? parent[f->cfg.rank] : root;
    }
}

/* The ranks that rank 0 reaches over these wires, itself among them. */
static uint64_t reached(const uint64_t *wires, int n) {
    uint64_t seen = 1;
    for (int step = 0; step < n; step++)
        for (int r = 0; r < n; r++)
            seen |= seen >> r & 1 ? wires[r] : 0;
    return seen;
}

static uint64_t wires_from(const struct fabric *f) {
    uint64_t row = 0;
    for (int r = 0; r < f->cfg.n_ranks; r++)
        row |= (uint64_t)(r != f->cfg.rank && f->peers[r].opened != FABRIC_LINK_TCP) << r;
    return row;
}

/* Everybody's row. All are told, which is little enough for the sockets' buffers, before any is
 * heard. */
static enum status exchange_rows(const struct fabric *f, uint64_t *rows, uint64_t deadline_ns,
                                 struct err *err) {
    struct wire_row mine = {wires_from(f)}, theirs;
    for (int i = 0; i < 2 * f->cfg.n_ranks; i++) {
        const struct peer *p = &f->peers[i % f->cfg.n_ranks];
        if (p->link == NULL)
            continue;
        bool tell = i < f->cfg.n_ranks;
        enum status st = tell ? net_write(p->side_fd, &mine, sizeof mine, deadline_ns, err)
                              : net_read(p->side_fd, &theirs, sizeof theirs, deadline_ns, err);
        if (st != ST_OK)
            return forming_failed(st, p->rank, p->pid, err);
        if (!tell)
            rows[p->rank] = theirs.bits;
    }
    rows[f->cfg.rank] = mine.bits;
    return ST_OK;
}

/* The user named no cables. RDMA (and shared memory) may connect all ranks, though not each
 * pair directly. Then the collectives use only these links, as with named cables: two steps
 * over cables are faster than one over the ordinary network. */
static enum status find_wires(struct fabric *f, uint64_t deadline_ns, struct err *err) {
    uint64_t rows[FABRIC_MAX_RANKS], all = ~0ull >> (64 - f->cfg.n_ranks);
    int lost = 0;
    if (f->cfg.wires != NULL || f->cfg.link == FABRIC_LINK_TCP)
        return ST_OK;
    TRY(exchange_rows(f, rows, deadline_ns, err));
    uint64_t here = reached(rows, f->cfg.n_ranks);
    if ((here & all) == all) {
        TRY(take_wires(f, rows, err));
        find_next_hops(f);
        return ST_OK;
    }
    while (here >> lost & 1)
        lost++;
    if (f->cfg.link == FABRIC_LINK_VERBS)
        return err_set(err, ST_UNSUPPORTED, "no RDMA cable leads from rank 0 to rank %d", lost);
    return ST_OK;
}

/* ---- opening ----------------------------------------------------------------------------- */

/* Until when a rank may keep this one waiting. It may first look for cables to this many
 * others, one after the other: for each the time to connect, to listen, and to listen once
 * more, and some reserve. */
static uint64_t patient_until(const struct fabric *f, int n_searches) {
    uint64_t searches = 4 * (uint64_t)n_searches * link_search_ns(&f->cfg);
    return clock_ns() + MAX(forming_limit_ns(&f->cfg), searches);
}

/* Pairs in ascending order on every rank: then two ranks always get to each other. */
static enum status open_links(struct fabric *f, struct mesh *mesh, struct err *err) {
    const struct wire_rank *self = &mesh->who[f->cfg.rank];
    struct peer *me = &f->peers[f->cfg.rank];
    while (memcmp(mesh->who[me->host].host_id, self->host_id, sizeof self->host_id) != 0)
        me->host++;
    for (int r = 0; r < f->cfg.n_ranks; r++) {
        if (r == f->cfg.rank)
            continue;
        struct peer *p = &f->peers[r];
        struct link_env env = {.rank = f->cfg.rank,
                               .peer = r,
                               .self = self,
                               .other = &mesh->who[r],
                               .side_fd = mesh->side[r],
                               .data_fd = mesh->data[r],
                               .deadline_ns = patient_until(f, f->cfg.rank + r),
                               .cfg = &f->cfg};
        p->pid = (int)mesh->who[r].pid;
        for (p->host = 0; memcmp(mesh->who[p->host].host_id, mesh->who[r].host_id, 32) != 0;)
            p->host++;
        p->same_host = memcmp(self->host_id, mesh->who[r].host_id, sizeof self->host_id) == 0;
        enum status st = link_open(&p->link, &env, err);
        mesh->data[r] = env.data_fd;
        if (st != ST_OK)
            return forming_failed(st, r, p->pid, err);
        p->opened = env.opened;
        if (env.opened == FABRIC_LINK_VERBS)
            snprintf(p->device, sizeof p->device, "%s", env.device);
        p->side_fd = mesh->side[r];
        mesh->side[r] = -1;
    }
    return ST_OK;
}

static enum status open_group(struct fabric *f, struct err *err) {
    if (f->cfg.n_ranks == 1) {
        if (f->cfg.listen_fd >= 0)
            close(f->cfg.listen_fd);
        return ST_OK;
    }
    if (sodium_init() < 0)
        return err_set(err, ST_IO, "libsodium does not start");
    uint64_t deadline = clock_ns() + (uint64_t)f->cfg.bootstrap_ms * 1000000u;
    struct mesh mesh;
    TRY(mesh_open(&mesh, &f->cfg, deadline, err));
    enum status st = wake_open(&f->kick, err);
    if (st == ST_OK)
        st = wake_open(&f->side_wake, err);
    if (st == ST_OK)
        st = open_links(f, &mesh, err);
    if (st == ST_OK)
        st = find_wires(f, patient_until(f, 2 * f->cfg.n_ranks), err);
    mesh_close(&mesh); /* what the links did not take */
    return st == ST_OK ? side_start(f, err) : st;
}

static enum status open_fabric(struct fabric **out, const struct fabric_config *cfg,
                               struct err *err) {
    TRY(check_config(cfg, err));
    struct fabric *f = mem_calloc(1, sizeof *f);
    struct peer *peers = mem_calloc((size_t)cfg->n_ranks, sizeof *peers);
    if (f == NULL || peers == NULL) {
        mem_free(f);
        mem_free(peers);
        return err_set(err, ST_NO_MEMORY, "no memory for a group of %d ranks", cfg->n_ranks);
    }
    f->cfg = *cfg;
    f->peers = peers;
    f->lost_rank = -1;
    f->kick = f->side_wake = (struct wake)WAKE_CLOSED;
    for (int r = 0; r < cfg->n_ranks; r++) {
        peers[r].rank = r;
        peers[r].side_fd = -1;
    }
    enum status st = take_wires(f, cfg->wires, err);
    find_next_hops(f);
    if (st == ST_OK)
        st = open_group(f, err);
    f->emulated = cfg->emulate != NULL;
    f->cfg.rendezvous = NULL; /* borrowed until here */
    f->cfg.wires = NULL;
    f->cfg.emulate = NULL;
    f->cfg.rdma_devices = NULL;
    if (st != ST_OK) {
        fabric_close(f);
        return st;
    }
    *out = f;
    return ST_OK;
}

/* A library that a link loads may set rounding, or flush subnormals: not for the caller. */
enum status fabric_open(struct fabric **out, const struct fabric_config *cfg, struct err *err) {
    struct float_env callers;
    float_env_begin(&callers);
    enum status st = open_fabric(out, cfg, err);
    float_env_end(&callers);
    return st;
}

void fabric_close(struct fabric *f) {
    if (f == NULL)
        return;
    side_stop(f);
    for (int r = 0; r < f->cfg.n_ranks; r++) {
        link_close(f->peers[r].link);
        if (f->peers[r].side_fd >= 0)
            close(f->peers[r].side_fd);
    }
    while (f->teams != NULL) {
        struct team *t = f->teams;
        f->teams = t->next;
        team_free(t);
    }
    wake_close(&f->kick);
    wake_close(&f->side_wake);
    sodium_memzero(f->cfg.token, sizeof f->cfg.token);
    mem_free(f->peers);
    mem_free(f);
}

void fabric_abort(struct fabric *f) {
    atomic_store_explicit(&f->aborted, true, memory_order_relaxed);
    group_kick(f);
}

/* ---- questions --------------------------------------------------------------------------- */

int fabric_rank(const struct fabric *f) {
    return f->cfg.rank;
}

int fabric_n_ranks(const struct fabric *f) {
    return f->cfg.n_ranks;
}

const char *fabric_link_name(const struct fabric *f, int rank) {
    BUG_ON(rank < 0 || rank >= f->cfg.n_ranks);
    return rank == f->cfg.rank ? "self" : f->peers[rank].link->name;
}

const char *fabric_link_device(const struct fabric *f, int rank) {
    BUG_ON(rank < 0 || rank >= f->cfg.n_ranks);
    return f->peers[rank].device;
}

enum fabric_link fabric_link_kind(const struct fabric *f, int rank) {
    BUG_ON(rank < 0 || rank >= f->cfg.n_ranks);
    return rank == f->cfg.rank ? FABRIC_LINK_AUTO : f->peers[rank].opened;
}

uint64_t fabric_sent_bytes(const struct fabric *f, int rank) {
    BUG_ON(rank < 0 || rank >= f->cfg.n_ranks);
    return f->peers[rank].sent_bytes;
}

int fabric_lost_rank(const struct fabric *f) {
    return group_has_failed(f) ? f->lost_rank : -1;
}
