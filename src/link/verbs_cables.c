/* verbs_cables.c: Finds out by trial which RDMA device reaches which rank. */
#include "base/util.h" /* a file without RDMA headers is not empty either */

#if __has_include(<infiniband/verbs.h>)
#include "link/verbs_cables.h"

#include "base/clock.h"
#include "base/log.h"

#include <sodium.h>
#include <stdio.h>
#include <time.h>

#define DEVICES_MAX 16
/* Queue pairs on a device at once: no more than a pair of processes needs. So if a link is
 * possible, it can be looked for. */
#define AT_ONCE VERBS_N_CLASSES
#define N_PROBES (DEVICES_MAX * AT_ONCE)
/* A message may be lost on a working wire. So it is sent this many times, spread over a round's
 * time. */
static const double send_at[] = {0, 0, 0.25, 0.5};
#define N_SENDS ((int)ARRAY_LEN(send_at))
#define NAP_NS 20000

/* What the two sides tell each other, in the blobs of link_talk(). */
struct told_devices {
    uint32_t n;       /* that work */
    uint32_t settled; /* the user chose the device and link: no fallback */
    uint32_t known_qpn,
        known_peer_qpn; /* of a pair that other groups of these processes use; 0: none */
};
struct told_probes {
    struct verbs_address at[DEVICES_MAX];
    uint32_t qpn[N_PROBES]; /* 0: none */
    uint32_t psn;
};
struct told_bits {
    uint64_t bits; /* by probe */
};
static_assert(sizeof(struct told_devices) == 16 && sizeof(struct told_bits) == 8 &&
                  sizeof(struct told_probes) == 516,
              "the same everywhere");
static_assert(sizeof(struct told_probes) <= LINK_BLOB_BYTES && N_PROBES <= 64, "fits");

/* The content of a probe: the sender and the device. */
struct probe_msg {
    uint32_t magic, psn, probe, round;
};
static_assert(sizeof(struct probe_msg) == 16, "the same everywhere");

/* One queue pair. Both sides number probes alike: AT_ONCE * (device of the lower rank) + one of
 * AT_ONCE. */
struct probe {
    struct verbs_device *device; /* NULL: not in this round */
    struct ibv_qp *qp;
    void *slots[N_SENDS + 1]; /* received into; the last is sent */
};

struct search {
    struct link_env *env;
    struct verbs_device *devices[DEVICES_MAX];
    int n, n_theirs, round;
    uint32_t psn, their_psn;
    struct ibv_cq *cq[DEVICES_MAX]; /* by device */
    struct probe probes[N_PROBES];
    uint64_t heard;
};

static enum status talk(struct search *s, const void *mine, void *theirs, size_t n_bytes,
                        struct err *err) {
    uint8_t out[LINK_BLOB_BYTES] = {0}, in[LINK_BLOB_BYTES];
    memcpy(out, mine, n_bytes);
    TRY(link_talk(s->env, FABRIC_LINK_VERBS, out, in, err));
    memcpy(theirs, in, n_bytes);
    return ST_OK;
}

/* ---- a round's queue pairs --------------------------------------------------------------- */

static int n_rounds(const struct search *s) {
    return (MAX(s->n, s->n_theirs) + AT_ONCE - 1) / AT_ONCE;
}

/* Device a of the lower rank tries device a + k of the higher one, for each k in turn. So no
 * device has more than AT_ONCE of them in a round. False: there is no such pair. */
static bool probe_devices(const struct search *s, int probe, int *mine, int *theirs) {
    bool lower = s->env->rank < s->env->peer;
    int n = MAX(s->n, s->n_theirs), k = s->round * AT_ONCE + probe % AT_ONCE;
    int a = probe / AT_ONCE, b = (a + k) % n;
    *mine = lower ? a : b;
    *theirs = lower ? b : a;
    return k < n && *mine < s->n && *theirs < s->n_theirs;
}

static uint64_t wr_id_of(int probe, int slot) {
    return (uint64_t)probe << 8 | (uint64_t)slot;
}

static bool probe_open(struct search *s, int i, struct verbs_device *d, struct ibv_cq *cq) {
    struct probe *p = &s->probes[i];
    uint32_t depth = 0;
    struct err unused; /* a device with no free queue pair reaches no rank */
    p->device = d;
    for (size_t k = 0; k < ARRAY_LEN(p->slots); k++)
        if ((p->slots[k] = verbs_slot_take(d, 0)) == NULL)
            return false;
    return cq != NULL &&
           verbs_queue_new(&p->qp, &depth, d, cq, 0, s->env->cfg->rdma_reliable, &unused) ==
               ST_OK &&
           depth >= N_SENDS;
}

/* Its queue pair goes before the memory that it points to. */
static void probe_close(struct probe *p) {
    if (p->device == NULL)
        return;
    if (p->qp != NULL)
        p->device->lib->destroy_qp(p->qp);
    for (size_t k = 0; k < ARRAY_LEN(p->slots); k++)
        if (p->slots[k] != NULL)
            verbs_slot_give(p->device, 0, p->slots[k]);
    *p = (struct probe){0};
}

static void round_open(struct search *s, struct told_probes *mine) {
    int d, unused;
    s->heard = 0;
    s->psn = randombytes_random() & 0xffffff;
    *mine = (struct told_probes){.psn = s->psn};
    for (int i = 0; i < s->n; i++) {
        const int n_completions = 2 * AT_ONCE * N_SENDS;
        s->cq[i] =
            s->devices[i]->lib->create_cq(s->devices[i]->context, n_completions, NULL, NULL, 0);
        mine->at[i] = s->devices[i]->address;
    }
    for (int i = 0; i < N_PROBES; i++) {
        if (!probe_devices(s, i, &d, &unused))
            continue;
        if (probe_open(s, i, s->devices[d], s->cq[d]))
            mine->qpn[i] = s->probes[i].qp->qp_num;
        else
            probe_close(&s->probes[i]);
    }
}

static void round_close(struct search *s) {
    for (int i = 0; i < N_PROBES; i++)
        probe_close(&s->probes[i]);
    for (int i = 0; i < s->n; i++) {
        if (s->cq[i] != NULL)
            s->devices[i]->lib->destroy_cq(s->cq[i]);
        s->cq[i] = NULL;
    }
}

static bool probe_connect(struct search *s, int i, const struct told_probes *theirs) {
    struct probe *p = &s->probes[i];
    struct err unused; /* some hardware says at once that a cable leads elsewhere */
    int mine, other, rc = 0;
    if (p->qp == NULL || theirs->qpn[i] == 0 || !probe_devices(s, i, &mine, &other))
        return false;
    if (verbs_queue_connect(p->device, p->qp, s->env->cfg->rdma_reliable, &theirs->at[other],
                            theirs->qpn[i], theirs->psn, s->psn, &unused) != ST_OK)
        return false;
    for (int k = 0; k < N_SENDS && rc == 0; k++)
        rc = verbs_post_recv(p->device, p->qp, 0, p->slots[k], wr_id_of(i, k));
    return rc == 0;
}

/* Finds which of them are connected and can receive. Connecting to an address where nothing
 * listens may take a second. So devices with the same index on both machines come first, and
 * those for which it is too late are left out. */
static uint64_t round_connect(struct search *s, const struct told_probes *theirs,
                              uint64_t patience_ns) {
    uint64_t ready = 0, begun = clock_ns();
    s->their_psn = theirs->psn;
    for (int k = 0; k < AT_ONCE; k++)
        for (int i = k; i < N_PROBES && clock_ns() - begun < patience_ns; i += AT_ONCE)
            ready |= (uint64_t)probe_connect(s, i, theirs) << i;
    return ready;
}

/* ---- sending and hearing ----------------------------------------------------------------- */

static void send_over(struct search *s, uint64_t probes) {
    for (int i = 0; i < N_PROBES; i++) {
        if ((probes >> i & 1) == 0)
            continue;
        const struct probe *p = &s->probes[i];
        struct probe_msg m = {.magic = WIRE_MAGIC,
                              .psn = s->psn,
                              .probe = (uint32_t)i,
                              .round = (uint32_t)s->round};
        memcpy(p->slots[N_SENDS], &m, sizeof m);
        verbs_post_send(p->device, p->qp, 0, p->slots[N_SENDS], wr_id_of(i, N_SENDS));
    }
}

static void hear(struct search *s) {
    for (int d = 0; d < s->n; d++) {
        struct ibv_wc wc[16];
        int n = s->cq[d] != NULL ? ibv_poll_cq(s->cq[d], ARRAY_LEN(wc), wc) : 0;
        for (int k = 0; k < n; k++) {
            uint64_t i = wc[k].wr_id >> 8, slot = wc[k].wr_id & 255;
            struct probe_msg m;
            if (wc[k].status != IBV_WC_SUCCESS || i >= N_PROBES || slot >= N_SENDS)
                continue; /* a send that ended, well or not */
            memcpy(&m, s->probes[i].slots[slot], sizeof m);
            if (m.magic == WIRE_MAGIC && m.psn == s->their_psn && m.probe == i &&
                m.round == (uint32_t)s->round)
                s->heard |= (uint64_t)1 << i;
        }
    }
}

/* Sends over these until one of the wanted ones has been heard, or it is enough. */
static void listen_for(struct search *s, uint64_t probes, uint64_t wanted,
                       uint64_t patience_ns) {
    uint64_t begun = clock_ns(), now = begun;
    for (int n_sent = 0; (s->heard & wanted) == 0 && now - begun < patience_ns;
         now = clock_ns()) {
        for (;
             n_sent < N_SENDS && (double)(now - begun) >= send_at[n_sent] * (double)patience_ns;
             n_sent++)
            send_over(s, probes);
        hear(s);
        if ((s->heard & wanted) == 0)
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    hear(s); /* the nap may have been a long one */
}

/* Each side stops at the first message that it receives. Over two cables these may differ, or
 * one side may have stopped without any because the message came late. So each side listens
 * once more for what the other has received. */
static enum status round_try(uint64_t *both, struct search *s, uint64_t probes,
                             uint64_t patience_ns, struct err *err) {
    struct told_bits mine, theirs = {0};
    bool again = probes != 0;
    *both = 0;
    for (int turn = 0; turn < 2 && again; turn++) {
        uint64_t wanted = turn == 0 ? probes : theirs.bits & ~s->heard;
        if (wanted != 0)
            listen_for(s, turn == 0 ? probes : 0, wanted, patience_ns);
        mine.bits = s->heard & probes;
        TRY(talk(s, &mine, &theirs, sizeof mine, err));
        theirs.bits &= probes;
        *both = mine.bits & theirs.bits;
        again = *both == 0 && (mine.bits | theirs.bits) != 0;
    }
    return ST_OK;
}

static enum status round_run(uint64_t *both, struct search *s, uint64_t patience_ns,
                             struct err *err) {
    struct told_probes mine, theirs;
    struct told_bits my_ready, their_ready;
    round_open(s, &mine);
    enum status st = talk(s, &mine, &theirs, sizeof mine, err);
    if (st == ST_OK) {
        my_ready.bits = round_connect(s, &theirs, patience_ns);
        st = talk(s, &my_ready, &their_ready, sizeof my_ready, err);
    }
    if (st == ST_OK)
        st = round_try(both, s, my_ready.bits & their_ready.bits, patience_ns, err);
    round_close(s);
    return st;
}

/* ---- the search -------------------------------------------------------------------------- */

static void take_device(const struct search *s, const char *name) {
    snprintf(s->env->device, sizeof s->env->device, "%s", name);
}

static enum status search_all(struct search *s, struct err *err) {
    uint64_t both = 0, patience_ns = link_search_ns(s->env->cfg) / (uint64_t)n_rounds(s);
    int mine, theirs, i = 0;
    for (s->round = 0; s->round < n_rounds(s); s->round++) {
        TRY(round_run(&both, s, patience_ns, err));
        if (both != 0)
            break;
    }
    s->env->no_cable = both == 0;
    if (both == 0)
        return err_set(err, ST_UNSUPPORTED,
                       "none of the %d RDMA devices here reaches one of the %d of rank %d",
                       s->n, s->n_theirs, s->env->peer);
    while ((both >> i & 1) == 0)
        i++;
    probe_devices(s, i, &mine, &theirs);
    take_device(s, s->devices[mine]->name);
    return ST_OK;
}

static bool may_use(const struct search *s, const char *device) {
    for (int i = 0; i < s->n; i++)
        if (str_eq(s->devices[i]->name, device))
            return true;
    return false;
}

static enum status agree(struct search *s, const struct verbs_peer_id *who, bool given,
                         struct err *err) {
    const struct fabric_config *cfg = s->env->cfg;
    struct told_devices mine = {.n = (uint32_t)s->n,
                                .settled = given || cfg->link == FABRIC_LINK_VERBS},
                        theirs;
    char known[VERBS_NAME_BYTES];
    if (verbs_pair_known(who, cfg->rdma_reliable, known, &mine.known_qpn,
                         &mine.known_peer_qpn) &&
        !may_use(s, known))
        mine.known_qpn = 0;
    TRY(talk(s, &mine, &theirs, sizeof mine, err));
    if (theirs.n > DEVICES_MAX)
        return err_set(err, ST_BAD_INPUT, "rank %d tells of %u RDMA devices", s->env->peer,
                       theirs.n);
    if (s->n == 0)
        return ST_UNSUPPORTED; /* err says why */
    if (theirs.n == 0)
        return err_set(err, ST_UNSUPPORTED, "rank %d has no RDMA device that works",
                       s->env->peer);
    s->n_theirs = (int)theirs.n;
    bool share = mine.known_qpn != 0 && mine.known_qpn == theirs.known_peer_qpn &&
                 mine.known_peer_qpn == theirs.known_qpn;
    bool settled = mine.settled && theirs.settled && s->n == 1 && s->n_theirs == 1;
    if (!share && !settled)
        return search_all(s, err);
    take_device(s, share ? known : s->devices[0]->name);
    return ST_OK;
}

enum status verbs_cable_find(struct link_env *env, const struct verbs_peer_id *who,
                             struct err *err) {
    const char *const *devices = env->cfg->rdma_devices;
    const char *given = devices != NULL ? devices[env->peer] : NULL;
    struct search s = {.env = env};
    enum status opened = verbs_devices_open(s.devices, DEVICES_MAX, &s.n, given, err);
    if (opened == ST_NO_MEMORY && env->cfg->link == FABRIC_LINK_AUTO)
        log_warn("RDMA is not used towards rank %d: %s", env->peer, err->text);
    enum status st = agree(&s, who, given != NULL, err);
    for (int i = 0; i < s.n; i++)
        verbs_device_close(s.devices[i]);
    return st;
}
#endif
