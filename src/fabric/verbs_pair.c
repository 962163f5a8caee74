#include "base/util.h" /* a file without RDMA headers is not empty either */

#if __has_include(<infiniband/verbs.h>)
#include "fabric/verbs_pair.h"

#include "base/mem.h"
#include "base/util.h"
#include "fabric/fabric.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>

const struct verbs_choices verbs_choices = {
    .slab_bytes = (size_t)32 << 20,
    .max_frames = 4095,
    .access = {IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
               IBV_ACCESS_LOCAL_WRITE},
    .hop_limit = 1,
};

struct verbs_device {
    struct verbs_device *next;
    int users; /* pairs */
    const struct verbs_lib *lib;
    char name[64];
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    uint8_t *slab;
    size_t slab_used;
    struct free_slot *free[VERBS_N_CLASSES]; /* guarded by the registry's lock */
    uint8_t port;
    int gid_index;
    union ibv_gid gid;
    struct ibv_port_attr port_attr;
};

struct free_slot {
    struct free_slot *next;
};

struct verbs_pair {
    struct verbs_pair *next;
    int users; /* channels; guarded by the registry's lock, like `ready` */
    bool ready, reliable;
    struct verbs_peer_id who;
    struct verbs_device *device;
    struct ibv_comp_channel *events; /* of cq; NULL: the device has none */
    struct ibv_cq *cq;
    struct ibv_qp *qp[VERBS_N_CLASSES];
    uint32_t psn, depth[VERBS_N_CLASSES]; /* messages that a queue takes */
    pthread_mutex_t lock;                 /* guards what follows */
    uint32_t posted[VERBS_N_CLASSES];     /* receive slots that belong to this pair */
    uint32_t sending[VERBS_N_CLASSES];
    struct verbs_channel *channels[VERBS_MAX_CHANNELS]; /* by id - 1 */
    int n_asleep;
    char broken[160]; /* why no channel works any more */
};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct verbs_device *devices; /* guarded by registry_lock */
static struct verbs_pair *pairs;     /* guarded by registry_lock */

/* ---- devices --------------------------------------------------------------------------------------- */

static enum status find_port(struct verbs_device *d, struct err *err) {
    for (uint8_t port = 1; port <= 2; port++) {
        memset(&d->port_attr, 0, sizeof d->port_attr);
        if (d->lib->query_port(d->context, port, &d->port_attr) == 0 &&
            d->port_attr.state == IBV_PORT_ACTIVE) {
            d->port = port;
            return ST_OK;
        }
    }
    return err_set(err, ST_UNSUPPORTED, "RDMA device %s has no active port", d->name);
}

/* The entry with an IPv4 address mapped into IPv6, which RoCE and Thunderbolt route by; else the
 * first, which InfiniBand uses. */
static enum status find_gid(struct verbs_device *d, struct err *err) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    for (int i = 0; i < d->port_attr.gid_tbl_len; i++) {
        union ibv_gid gid;
        if (d->lib->query_gid(d->context, d->port, i, &gid) == 0 &&
            memcmp(gid.raw, mapped, sizeof mapped) == 0) {
            d->gid_index = i;
            d->gid = gid;
            return ST_OK;
        }
    }
    d->gid_index = 0;
    if (d->lib->query_gid(d->context, d->port, 0, &d->gid) != 0)
        return err_set(err, ST_UNSUPPORTED, "RDMA device %s has no address (GID)", d->name);
    return ST_OK;
}

static enum status register_slab(struct verbs_device *d, struct err *err) {
    d->slab = mem_huge_alloc(verbs_choices.slab_bytes);
    if (d->slab == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for the RDMA slab");
    for (size_t i = 0; i < ARRAY_LEN(verbs_choices.access) && d->mr == NULL; i++)
        d->mr =
            d->lib->reg_mr(d->pd, d->slab, verbs_choices.slab_bytes, verbs_choices.access[i]);
    if (d->mr == NULL)
        return err_set(err, ST_UNSUPPORTED,
                       "RDMA device %s registers no memory: %s (ulimit -l?)", d->name,
                       strerror(errno));
    return ST_OK;
}

static void device_free(struct verbs_device *d) {
    if (d->mr != NULL)
        d->lib->dereg_mr(d->mr);
    mem_huge_free(d->slab, verbs_choices.slab_bytes);
    if (d->pd != NULL)
        d->lib->dealloc_pd(d->pd);
    if (d->context != NULL)
        d->lib->close_device(d->context);
    mem_free(d);
}

static enum status device_init(struct verbs_device *d, struct ibv_device *device,
                               struct err *err) {
    d->context = d->lib->open_device(device);
    if (d->context == NULL)
        return err_set(err, ST_UNSUPPORTED, "RDMA device %s does not open: %s", d->name,
                       strerror(errno));
    TRY(find_port(d, err));
    TRY(find_gid(d, err));
    d->pd = d->lib->alloc_pd(d->context);
    if (d->pd == NULL)
        return err_set(err, ST_UNSUPPORTED, "RDMA device %s: no protection domain: %s", d->name,
                       strerror(errno));
    return register_slab(d, err);
}

static enum status device_open(struct verbs_device **out, const struct verbs_lib *lib,
                               struct ibv_device *device, struct err *err) {
    const char *name = lib->get_device_name(device);
    for (struct verbs_device *d = devices; d != NULL; d = d->next)
        if (str_eq(d->name, name)) {
            *out = d;
            return ST_OK;
        }
    struct verbs_device *d = mem_calloc(1, sizeof *d);
    if (d == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for an RDMA device");
    d->lib = lib;
    snprintf(d->name, sizeof d->name, "%s", name);
    enum status st = device_init(d, device, err);
    if (st != ST_OK) {
        device_free(d);
        return st;
    }
    d->next = devices;
    devices = d;
    *out = d;
    return ST_OK;
}

/* The named device, or the first that works. */
static enum status device_find(struct verbs_device **out, const char *name, struct err *err) {
    const struct verbs_lib *lib;
    TRY(verbs_lib_get(&lib, err));
    int n = 0;
    struct ibv_device **list = lib->get_device_list(&n);
    enum status st = err_set(err, ST_UNSUPPORTED, "no RDMA device%s%s", name ? " called " : "",
                             name ? name : "");
    for (int i = 0; list != NULL && i < n && st != ST_OK; i++)
        if (name == NULL || str_eq(lib->get_device_name(list[i]), name))
            st = device_open(out, lib, list[i], err);
    if (list != NULL)
        lib->free_device_list(list);
    return st;
}

static void device_release(struct verbs_device *d) {
    if (--d->users > 0)
        return;
    struct verbs_device **at = &devices;
    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
    device_free(d);
}

/* ---- slots of the slab -------------------------------------------------------------------------------- */

static struct verbs_head *slab_take(struct verbs_device *d, int class) {
    pthread_mutex_lock(&registry_lock);
    struct free_slot *s = d->free[class];
    size_t bytes = verbs_class_bytes[class];
    if (s != NULL) {
        d->free[class] = s->next;
    } else if (d->slab_used + bytes <= verbs_choices.slab_bytes) {
        s = (struct free_slot *)(d->slab + d->slab_used);
        d->slab_used += bytes;
    }
    pthread_mutex_unlock(&registry_lock);
    return (struct verbs_head *)s;
}

static void slab_give(struct verbs_device *d, int class, void *slot) {
    struct free_slot *s = slot;
    pthread_mutex_lock(&registry_lock);
    s->next = d->free[class];
    d->free[class] = s;
    pthread_mutex_unlock(&registry_lock);
}

/* ---- pairs ---------------------------------------------------------------------------------------------- */

static enum status create_queue(struct verbs_pair *p, int class, struct err *err) {
    struct verbs_device *d = p->device;
    uint32_t frames = verbs_class_bytes[class] / VERBS_FRAME;
    uint32_t depth = verbs_choices.max_frames / frames;
    depth = MIN(depth, 256u);
    struct ibv_qp_init_attr init = {
        .send_cq = p->cq,
        .recv_cq = p->cq,
        .qp_type = p->reliable ? IBV_QPT_RC : IBV_QPT_UC,
        .sq_sig_all = 1,
        .cap = {.max_send_wr = depth,
                .max_recv_wr = depth,
                .max_send_sge = 1,
                .max_recv_sge = 1},
    };
    p->qp[class] = d->lib->create_qp(d->pd, &init);
    if (p->qp[class] == NULL)
        return err_set(err, ST_UNSUPPORTED, "RDMA device %s gives no queue pair: %s", d->name,
                       strerror(errno));
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = d->port,
                               .qp_access_flags = IBV_ACCESS_LOCAL_WRITE};
    int rc =
        d->lib->modify_qp(p->qp[class], &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (rc != 0)
        return err_set(err, ST_UNSUPPORTED, "RDMA device %s: queue pair to INIT: %s", d->name,
                       strerror(rc));
    struct ibv_qp_init_attr granted = init;
    if (d->lib->query_qp(p->qp[class], &attr, IBV_QP_CAP, &granted) == 0)
        depth = MIN(depth, MIN(granted.cap.max_send_wr, granted.cap.max_recv_wr));
    p->depth[class] = depth;
    return ST_OK;
}

/* Queue pairs first: hardware still writes into what they point to. */
static void pair_free(struct verbs_pair *p) {
    const struct verbs_lib *lib = p->device->lib;
    for (int class = 0; class < VERBS_N_CLASSES; class ++)
        if (p->qp[class] != NULL)
            lib->destroy_qp(p->qp[class]);
    if (p->cq != NULL)
        lib->destroy_cq(p->cq);
    if (p->events != NULL)
        lib->destroy_comp_channel(p->events);
    device_release(p->device);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}

/* With completions as events where the device has them (Apple's may not). */
static void create_completion_queue(struct verbs_pair *p) {
    struct verbs_device *d = p->device;
    const int n = 2 * 256 * VERBS_N_CLASSES;
    if (d->lib->create_comp_channel != NULL && d->context->ops.req_notify_cq != NULL)
        p->events = d->lib->create_comp_channel(d->context);
    if (p->events != NULL) {
        fcntl(p->events->fd, F_SETFL, O_NONBLOCK);
        p->cq = d->lib->create_cq(d->context, n, NULL, p->events, 0);
        if (p->cq != NULL)
            return;
        d->lib->destroy_comp_channel(p->events);
        p->events = NULL;
    }
    p->cq = d->lib->create_cq(d->context, n, NULL, NULL, 0);
}

/* The device goes with its last pair, also with one that could not be made. */
static enum status pair_new(struct verbs_pair **out, struct verbs_device *d,
                            const struct verbs_peer_id *who, bool reliable, struct err *err) {
    struct verbs_pair *p = mem_calloc(1, sizeof *p);
    d->users++;
    if (p == NULL) {
        device_release(d);
        return err_set(err, ST_NO_MEMORY, "no memory for queue pairs");
    }
    p->device = d;
    p->who = *who;
    p->reliable = reliable;
    p->psn = randombytes_random() & 0xffffff;
    pthread_mutex_init(&p->lock, NULL);
    create_completion_queue(p);
    enum status st = p->cq != NULL ? ST_OK
                                   : err_set(err, ST_UNSUPPORTED,
                                             "RDMA device %s gives no completion queue: %s",
                                             d->name, strerror(errno));
    for (int class = 0; st == ST_OK && class < VERBS_N_CLASSES; class ++)
        st = create_queue(p, class, err);
    if (st != ST_OK) {
        pair_free(p);
        return st;
    }
    p->next = pairs;
    pairs = p;
    *out = p;
    return ST_OK;
}

static struct verbs_pair *pair_find(const struct verbs_device *d,
                                    const struct verbs_peer_id *who, bool reliable) {
    for (struct verbs_pair *p = pairs; p != NULL; p = p->next)
        if (p->ready && p->device == d && p->reliable == reliable && p->broken[0] == '\0' &&
            memcmp(&p->who, who, sizeof *who) == 0)
            return p;
    return NULL;
}

static enum status pair_broken(struct verbs_pair *p, struct err *err, const char *what,
                               const char *why) {
    if (p->broken[0] == '\0')
        snprintf(p->broken, sizeof p->broken, "RDMA device %.40s: %s: %s", p->device->name,
                 what, why);
    for (int i = 0; p->n_asleep > 0 && i < VERBS_MAX_CHANNELS; i++)
        if (p->channels[i] != NULL)
            wake_ring(&p->channels[i]->wake);
    return err_set(err, ST_PEER_LOST, "%s", p->broken);
}

/* A work request's id: the slot's place in the slab, its class, and the direction. */
static uint64_t wr_id_of(const struct verbs_pair *p, const void *slot, int class, bool send) {
    return ((uint64_t)((const uint8_t *)slot - p->device->slab) << 8) |
           (uint64_t)(class << 1 | send);
}

static enum status post_recv(struct verbs_pair *p, int class, void *slot, struct err *err) {
    struct ibv_sge sge = {.addr = (uintptr_t)slot,
                          .length = verbs_class_bytes[class],
                          .lkey = p->device->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id_of(p, slot, class, false),
                             .sg_list = &sge,
                             .num_sge = 1},
                       *bad;
    int rc = ibv_post_recv(p->qp[class], &wr, &bad);
    return rc == 0 ? ST_OK : pair_broken(p, err, "post receive", strerror(rc));
}

/* One channel more: for each of its messages under way a receive in every class. */
static enum status post_for_channels(struct verbs_pair *p, uint32_t n_channels,
                                     struct err *err) {
    for (int class = 0; class < VERBS_N_CLASSES; class ++) {
        uint32_t want = n_channels * (VERBS_CREDITS + (class == 0 ? VERBS_CREDIT_SLOTS : 0));
        if (want > p->depth[class])
            return err_set(err, ST_UNSUPPORTED,
                           "RDMA device %s: %u groups are too many for queues of %u",
                           p->device->name, n_channels, p->depth[class]);
        for (; p->posted[class] < want; p->posted[class]++) {
            void *slot = slab_take(p->device, class);
            if (slot == NULL)
                return err_set(err, ST_NO_MEMORY, "RDMA device %s: the slab is full",
                               p->device->name);
            TRY(post_recv(p, class, slot, err));
        }
    }
    return ST_OK;
}

static int modify_to_rtr(struct verbs_pair *p, int class, const struct verbs_hello *h) {
    const struct verbs_device *d = p->device;
    struct ibv_qp_attr a = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)MIN(h->mtu, (uint8_t)d->port_attr.active_mtu),
        .dest_qp_num = h->qpn[class],
        .rq_psn = h->psn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.dlid = h->lid, .port_num = d->port, .is_global = h->is_global},
    };
    memcpy(a.ah_attr.grh.dgid.raw, h->gid, sizeof h->gid);
    a.ah_attr.grh.sgid_index = (uint8_t)d->gid_index;
    a.ah_attr.grh.hop_limit = verbs_choices.hop_limit;
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (p->reliable)
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    return d->lib->modify_qp(p->qp[class], &a, mask);
}

static int modify_to_rts(struct verbs_pair *p, int class) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS,
                            .sq_psn = p->psn,
                            .timeout = 14,
                            .retry_cnt = 7,
                            .rnr_retry = 7,
                            .max_rd_atomic = 1};
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (p->reliable)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    return p->device->lib->modify_qp(p->qp[class], &a, mask);
}

static enum status pair_connect(struct verbs_pair *p, const struct verbs_hello *h,
                                struct err *err) {
    for (int class = 0; class < VERBS_N_CLASSES; class ++) {
        int rc = modify_to_rtr(p, class, h);
        if (rc != 0)
            return err_set(err, ST_UNSUPPORTED, "RDMA device %s: queue pair to RTR: %s%s",
                           p->device->name, strerror(rc),
                           rc == EINVAL ? " (wrong GID, or the Thunderbolt Bridge is active)"
                           : rc == ETIMEDOUT ? " (the GID is not reachable on this cable)"
                           : rc == EBUSY     ? " (left over from a crash: reboot)"
                                             : "");
        if ((rc = modify_to_rts(p, class)) != 0)
            return err_set(err, ST_UNSUPPORTED, "RDMA device %s: queue pair to RTS: %s",
                           p->device->name, strerror(rc));
    }
    return ST_OK;
}

/* ---- channels: opening ------------------------------------------------------------------------------------ */

static enum status channel_add(struct verbs_pair *p, struct verbs_channel *c, struct err *err) {
    uint32_t n = 0;
    int free = -1;
    enum status st = ST_OK;
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < VERBS_MAX_CHANNELS; i++) {
        n += p->channels[i] != NULL;
        if (p->channels[i] == NULL && free < 0)
            free = i;
    }
    if (free < 0)
        st = err_set(err, ST_UNSUPPORTED, "%d groups share one pair already",
                     VERBS_MAX_CHANNELS);
    else
        st = post_for_channels(p, n + 1, err);
    if (st == ST_OK) {
        p->channels[free] = c;
        c->id = (uint32_t)free + 1;
        c->pair = p;
    }
    pthread_mutex_unlock(&p->lock);
    return st;
}

static void fill_hello(const struct verbs_pair *p, const struct verbs_channel *c, bool shared,
                       struct verbs_hello *h) {
    const struct verbs_device *d = p->device;
    *h = (struct verbs_hello){.pair = shared ? p->qp[0]->qp_num : 0,
                              .channel = c->id,
                              .psn = p->psn,
                              .lid = d->port_attr.lid,
                              .mtu = (uint8_t)d->port_attr.active_mtu,
                              .reliable = p->reliable,
                              .is_global = d->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET ||
                                           d->port_attr.lid == 0};
    memcpy(h->gid, d->gid.raw, sizeof h->gid);
    for (int class = 0; class < VERBS_N_CLASSES; class ++)
        h->qpn[class] = p->qp[class]->qp_num;
}

static void pair_release_locked(struct verbs_pair *p) {
    if (--p->users > 0)
        return;
    struct verbs_pair **at = &pairs;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    pair_free(p);
}

enum status verbs_channel_open(struct verbs_channel **out, const struct verbs_peer_id *who,
                               const char *device, bool reliable, struct verbs_hello *hello,
                               struct err *err) {
    struct verbs_channel *c = mem_calloc(1, sizeof *c);
    struct verbs_device *d = NULL;
    struct verbs_pair *p = NULL;
    if (c == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a link");
    if (wake_open(&c->wake, err) != ST_OK) {
        mem_free(c);
        return ST_IO;
    }
    pthread_mutex_lock(&registry_lock);
    enum status st = device_find(&d, device, err);
    if (st == ST_OK && (p = pair_find(d, who, reliable)) == NULL)
        st = pair_new(&p, d, who, reliable, err);
    bool shared = st == ST_OK && p->ready;
    if (st == ST_OK)
        p->users++;
    pthread_mutex_unlock(&registry_lock);
    if (st == ST_OK) {
        c->pair = p;
        st = channel_add(p, c, err);
        if (st == ST_OK)
            fill_hello(p, c, shared, hello);
    }
    if (st != ST_OK) {
        verbs_channel_close(c);
        return st;
    }
    *out = c;
    return ST_OK;
}

enum status verbs_channel_connect(struct verbs_channel *c, const struct verbs_hello *theirs,
                                  struct err *err) {
    struct verbs_pair *p = c->pair;
    c->peer_id = theirs->channel;
    if (theirs->reliable != p->reliable)
        return err_set(err, ST_UNSUPPORTED, "one side wants RC queue pairs, the other UC");
    pthread_mutex_lock(&registry_lock);
    bool shared = p->ready;
    pthread_mutex_unlock(&registry_lock);
    if (shared != (theirs->pair != 0))
        return err_set(err, ST_AGAIN, "another group is opening or closing this pair");
    return shared ? ST_OK : pair_connect(p, theirs, err);
}

void verbs_channel_ready(struct verbs_channel *c) {
    pthread_mutex_lock(&registry_lock);
    c->pair->ready = true;
    pthread_mutex_unlock(&registry_lock);
}

/* What has been received and not consumed goes back to the hardware. */
static void channel_remove(struct verbs_channel *c) {
    struct verbs_pair *p = c->pair;
    struct err ignored;
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < ARRAY_LEN(c->inbox); i++)
        if (c->inbox[i].head != NULL)
            post_recv(p, c->inbox[i].class, c->inbox[i].head, &ignored);
    p->channels[c->id - 1] = NULL;
    pthread_mutex_unlock(&p->lock);
}

void verbs_channel_close(struct verbs_channel *c) {
    if (c->id != 0)
        channel_remove(c);
    if (c->pair != NULL) {
        pthread_mutex_lock(&registry_lock);
        pair_release_locked(c->pair);
        pthread_mutex_unlock(&registry_lock);
    }
    wake_close(&c->wake);
    mem_free(c);
}

/* ---- messages ---------------------------------------------------------------------------------------------- */

/* A credit is the sum of what the peer has consumed, so late or repeated news cannot harm. */
static void take_credit(struct verbs_channel *c, uint64_t taken) {
    if (taken > c->taken_by_peer && taken <= c->sent)
        c->taken_by_peer = taken;
}

/* Something came for the channel: whoever looked, its own thread may sleep. */
static void channel_rouse(struct verbs_channel *c) {
    if (c->asleep)
        wake_ring(&c->wake);
}

/* Hands a received slot to its channel; false: nobody wants it. */
static bool deliver(struct verbs_pair *p, int class, struct verbs_head *h) {
    struct verbs_channel *c =
        h->channel - 1 < VERBS_MAX_CHANNELS ? p->channels[h->channel - 1] : NULL;
    if (c == NULL || h->n_bytes > verbs_class_bytes[class] - sizeof *h)
        return false;
    take_credit(c, h->taken);
    channel_rouse(c);
    const struct wire_msg *m = (const struct wire_msg *)(h + 1);
    if (h->n_bytes < sizeof *m || m->n_bytes > h->n_bytes - sizeof *m)
        return false; /* only credits, or nonsense */
    uint32_t ahead = m->seq - (uint32_t)c->received;
    struct verbs_slot *box = &c->inbox[m->seq % ARRAY_LEN(c->inbox)];
    if (ahead >= VERBS_CREDITS || box->head != NULL)
        return false;
    *box = (struct verbs_slot){.head = h, .class = class};
    return true;
}

static enum status completed(struct verbs_pair *p, const struct ibv_wc *wc, struct err *err) {
    int class = (int)(wc->wr_id >> 1 & 127);
    bool send = wc->wr_id & 1;
    void *slot = p->device->slab + (wc->wr_id >> 8);
    if (wc->status != IBV_WC_SUCCESS)
        return pair_broken(p, err, send ? "a send ended in error" : "a receive ended in error",
                           p->device->lib->wc_status_str(wc->status));
    if (send) {
        p->sending[class]--;
        slab_give(p->device, class, slot);
        return ST_OK;
    }
    return deliver(p, class, slot) ? ST_OK : post_recv(p, class, slot, err);
}

/* Some completions; *n: how many. */
static enum status pair_take(struct verbs_pair *p, int *n, struct err *err) {
    struct ibv_wc wc[16];
    if (p->broken[0] != '\0')
        return err_set(err, ST_PEER_LOST, "%s", p->broken);
    *n = ibv_poll_cq(p->cq, ARRAY_LEN(wc), wc);
    if (*n < 0)
        return pair_broken(p, err, "poll", strerror(errno));
    for (int i = 0; i < *n; i++)
        TRY(completed(p, &wc[i], err));
    return ST_OK;
}

static enum status pair_poll(struct verbs_pair *p, struct err *err) {
    int n;
    return pair_take(p, &n, err);
}

static enum status post_send(struct verbs_channel *c, struct verbs_slot s, uint32_t n_bytes,
                             struct err *err) {
    struct verbs_pair *p = c->pair;
    *s.head =
        (struct verbs_head){.channel = c->peer_id, .n_bytes = n_bytes, .taken = c->received};
    c->told = c->received;
    /* Whole slots: the frames of a send and its receive must be equally many. */
    struct ibv_sge sge = {.addr = (uintptr_t)s.head,
                          .length = verbs_class_bytes[s.class],
                          .lkey = p->device->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = wr_id_of(p, s.head, s.class, true),
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    int rc = ibv_post_send(p->qp[s.class], &wr, &bad);
    if (rc != 0)
        return pair_broken(p, err, "post send", strerror(rc));
    p->sending[s.class]++;
    return ST_OK;
}

static bool slot_of_class(struct verbs_pair *p, int class, struct verbs_slot *out) {
    if (p->sending[class] >= p->depth[class])
        return false;
    *out = (struct verbs_slot){.head = slab_take(p->device, class), .class = class};
    return out->head != NULL;
}

/* A pair that broke lets everybody through: the next call tells why. */
bool verbs_channel_has_credit(struct verbs_channel *c) {
    struct err unused;
    pthread_mutex_lock(&c->pair->lock);
    bool ok = c->sent - c->taken_by_peer < VERBS_CREDITS;
    if (!ok)
        ok = pair_poll(c->pair, &unused) != ST_OK || c->sent - c->taken_by_peer < VERBS_CREDITS;
    pthread_mutex_unlock(&c->pair->lock);
    return ok;
}

enum status verbs_channel_broken(struct verbs_channel *c, struct err *err) {
    pthread_mutex_lock(&c->pair->lock);
    enum status st =
        c->pair->broken[0] == '\0' ? ST_OK : err_set(err, ST_PEER_LOST, "%s", c->pair->broken);
    pthread_mutex_unlock(&c->pair->lock);
    return st;
}

bool verbs_channel_slot(struct verbs_channel *c, size_t n_bytes, struct verbs_slot *out) {
    int class = 0;
    struct err unused;
    while (sizeof(struct verbs_head) + n_bytes > verbs_class_bytes[class])
        class ++;
    pthread_mutex_lock(&c->pair->lock);
    bool ok = c->sent - c->taken_by_peer < VERBS_CREDITS && slot_of_class(c->pair, class, out);
    if (!ok)
        pair_poll(c->pair, &unused); /* frees sent slots, for the next try */
    pthread_mutex_unlock(&c->pair->lock);
    return ok;
}

enum status verbs_channel_send(struct verbs_channel *c, struct verbs_slot slot,
                               uint32_t n_bytes, struct err *err) {
    pthread_mutex_lock(&c->pair->lock);
    c->sent++;
    enum status st = post_send(c, slot, n_bytes, err);
    pthread_mutex_unlock(&c->pair->lock);
    return st;
}

enum status verbs_channel_recv(struct verbs_channel *c, struct verbs_slot *out,
                               struct err *err) {
    struct verbs_slot *box = &c->inbox[c->received % ARRAY_LEN(c->inbox)];
    enum status st = ST_OK;
    pthread_mutex_lock(&c->pair->lock);
    if (box->head == NULL)
        st = pair_poll(c->pair, err);
    if (st == ST_OK && box->head == NULL)
        st = ST_AGAIN;
    *out = *box;
    pthread_mutex_unlock(&c->pair->lock);
    return st;
}

enum status verbs_channel_done(struct verbs_channel *c, struct err *err) {
    struct verbs_slot *box = &c->inbox[c->received % ARRAY_LEN(c->inbox)], credit;
    pthread_mutex_lock(&c->pair->lock);
    enum status st = post_recv(c->pair, box->class, box->head, err);
    box->head = NULL;
    c->received++;
    if (st == ST_OK && c->received - c->told >= VERBS_CREDITS / 2 &&
        slot_of_class(c->pair, 0, &credit))
        st = post_send(c, credit, 0, err);
    pthread_mutex_unlock(&c->pair->lock);
    return st;
}

/* ---- sleeping ----------------------------------------------------------------------------------------------- */

static void pair_drain_events(struct verbs_pair *p) {
    const struct verbs_lib *lib = p->device->lib;
    struct ibv_cq *cq;
    void *unused;
    while (lib->get_cq_event(p->events, &cq, &unused) == 0)
        lib->ack_cq_events(cq, 1);
}

/* The next completion raises an event; those that have come by now are taken, as they raise none. */
static enum status pair_arm(struct verbs_pair *p, struct err *err) {
    int n;
    pair_drain_events(p);
    if (ibv_req_notify_cq(p->cq, 0) != 0)
        return pair_broken(p, err, "notify", strerror(errno));
    do
        TRY(pair_take(p, &n, err));
    while (n > 0);
    return ST_OK;
}

static bool has_what_it_waits_for(const struct verbs_channel *c, bool for_slot) {
    return for_slot ? c->sent - c->taken_by_peer < VERBS_CREDITS
                    : c->inbox[c->received % ARRAY_LEN(c->inbox)].head != NULL;
}

/* The threads of several groups may sleep on one pair, and an event may wake only one of them. So who wakes
 * looks at everything that came, which rouses those whom it is for, and arms again while others sleep. */
bool verbs_channel_sleep(struct verbs_channel *c, bool for_slot, int timeout_us) {
    struct verbs_pair *p = c->pair;
    struct err unused; /* a broken pair says so at the next poll */
    if (p->events == NULL)
        return false;
    pthread_mutex_lock(&p->lock);
    c->asleep = pair_arm(p, &unused) == ST_OK && !has_what_it_waits_for(c, for_slot);
    bool sleeps = c->asleep;
    p->n_asleep += sleeps;
    pthread_mutex_unlock(&p->lock);
    if (!sleeps)
        return true;
    struct pollfd fds[] = {{.fd = p->events->fd, .events = POLLIN},
                           {.fd = c->wake.fds[0], .events = POLLIN}};
    poll(fds, ARRAY_LEN(fds), (timeout_us + 999) / 1000);
    wake_drain(&c->wake);
    pthread_mutex_lock(&p->lock);
    c->asleep = false;
    if (--p->n_asleep > 0)
        pair_arm(p, &unused);
    pthread_mutex_unlock(&p->lock);
    return true;
}

void verbs_channel_wake(struct verbs_channel *c) {
    wake_ring(&c->wake);
}
#endif
