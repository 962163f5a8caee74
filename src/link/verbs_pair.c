/* verbs_pair.c: The queue pairs between two processes: connecting, sending, receiving, credits.
 */
#include "base/util.h" /* a file without RDMA headers is not empty either */

#if __has_include(<infiniband/verbs.h>)
#include "link/verbs_pair.h"

#include "base/mem.h"
#include "base/util.h"
#include "link/config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>

struct verbs_pair {
    struct verbs_pair *next;
    int users; /* channels; guarded by the registry's lock, like `ready` */
    bool ready, reliable;
    struct verbs_peer_id who;
    struct verbs_device *device;
    struct ibv_comp_channel *events; /* of cq; NULL: the device has none */
    struct ibv_cq *cq;
    struct ibv_qp *qp[VERBS_N_CLASSES];
    uint32_t peer_qpn;                             /* of class 0 */
    uint32_t psn, depth[VERBS_N_CLASSES];          /* messages that a queue takes */
    pthread_mutex_t lock;                          /* guards what follows */
    uint32_t posted[VERBS_N_CLASSES];              /* receive slots that belong to this pair */
    void *slots[VERBS_N_CLASSES][VERBS_DEPTH_MAX]; /* these, wherever they are now */
    uint32_t sending[VERBS_N_CLASSES];
    struct verbs_channel *channels[VERBS_MAX_CHANNELS]; /* by place_of() their id */
    uint32_t n_opened;                                  /* channels so far; wraps */
    int n_asleep;
    char broken[160]; /* why no channel works any more */
};

#define PLACE_BITS 8
static_assert(VERBS_MAX_CHANNELS < 1 << PLACE_BITS, "a place, or none");

/* VERBS_MAX_CHANNELS and more: none. */
static uint32_t place_of(uint32_t id) {
    return (id & ((1u << PLACE_BITS) - 1)) - 1;
}

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct verbs_pair *pairs; /* guarded by registry_lock */

/* ---- pairs ------------------------------------------------------------------------------- */

/* Queue pairs first: hardware still writes into what they point to. */
static void pair_free(struct verbs_pair *p) {
    const struct verbs_lib *lib = p->device->lib;
    for (int class = 0; class < VERBS_N_CLASSES; class ++)
        if (p->qp[class] != NULL)
            lib->destroy_qp(p->qp[class]);
    for (int class = 0; class < VERBS_N_CLASSES; class ++)
        for (uint32_t i = 0; i < p->posted[class]; i++)
            verbs_slot_give(p->device, class, p->slots[class][i]);
    if (p->cq != NULL)
        lib->destroy_cq(p->cq);
    if (p->events != NULL)
        lib->destroy_comp_channel(p->events);
    verbs_device_close(p->device);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}

/* With completions as events where the device has them (Apple's may not). */
static void create_completion_queue(struct verbs_pair *p) {
    struct verbs_device *d = p->device;
    const int n = 2 * VERBS_DEPTH_MAX * VERBS_N_CLASSES;
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

static enum status pair_new(struct verbs_pair **out, struct verbs_device *d,
                            const struct verbs_peer_id *who, bool reliable, struct err *err) {
    struct verbs_pair *p = mem_calloc(1, sizeof *p);
    if (p == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for queue pairs");
    verbs_device_hold(d);
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
        st = verbs_queue_new(&p->qp[class], &p->depth[class], d, p->cq, class, reliable, err);
    if (st != ST_OK) {
        pair_free(p);
        return st;
    }
    p->next = pairs;
    pairs = p;
    *out = p;
    return ST_OK;
}

static bool is_broken(struct verbs_pair *p) {
    pthread_mutex_lock(&p->lock);
    bool broken = p->broken[0] != '\0';
    pthread_mutex_unlock(&p->lock);
    return broken;
}

/* The ready pair to that process over that device (NULL: any). */
static struct verbs_pair *pair_find(const struct verbs_device *d,
                                    const struct verbs_peer_id *who, bool reliable) {
    for (struct verbs_pair *p = pairs; p != NULL; p = p->next)
        if (p->ready && (d == NULL || p->device == d) && p->reliable == reliable &&
            memcmp(&p->who, who, sizeof *who) == 0 && !is_broken(p))
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
    int rc =
        verbs_post_recv(p->device, p->qp[class], class, slot, wr_id_of(p, slot, class, false));
    return rc == 0 ? ST_OK : pair_broken(p, err, "post receive", strerror(rc));
}

/* For each message under way of each channel a receive in every class. After RTS: Apple's hardware
 * takes none before. With p->lock held. */
static enum status post_for_channels(struct verbs_pair *p, struct err *err) {
    uint32_t n_channels = 0;
    for (int i = 0; i < VERBS_MAX_CHANNELS; i++)
        n_channels += p->channels[i] != NULL;
    for (int class = 0; class < VERBS_N_CLASSES; class ++) {
        uint32_t want = n_channels * (VERBS_CREDITS + (class == 0 ? VERBS_CREDIT_SLOTS : 0));
        if (want > p->depth[class])
            return err_set(err, ST_UNSUPPORTED,
                           "RDMA device %s: %u groups are too many for queues of %u",
                           p->device->name, n_channels, p->depth[class]);
        for (; p->posted[class] < want; p->posted[class]++) {
            void *slot = verbs_slot_take(p->device, class);
            if (slot == NULL)
                return err_set(err, ST_NO_MEMORY, "RDMA device %s: the slab is full",
                               p->device->name);
            p->slots[class][p->posted[class]] = slot;
            TRY(post_recv(p, class, slot, err));
        }
    }
    return ST_OK;
}

static enum status pair_connect(struct verbs_pair *p, const struct verbs_hello *h,
                                struct err *err) {
    for (int class = 0; class < VERBS_N_CLASSES; class ++)
        TRY(verbs_queue_connect(p->device, p->qp[class], p->reliable, &h->address,
                                h->qpn[class], h->psn, p->psn, err));
    p->peer_qpn = h->qpn[0];
    pthread_mutex_lock(&p->lock);
    enum status st = post_for_channels(p, err);
    pthread_mutex_unlock(&p->lock);
    return st;
}

/* ---- channels: opening ------------------------------------------------------------------- */

/* connected: the pair is in use, and receives for one channel more are posted at once. */
static enum status channel_add(struct verbs_pair *p, struct verbs_channel *c, bool connected,
                               struct err *err) {
    int free = 0;
    enum status st = ST_OK;
    pthread_mutex_lock(&p->lock);
    while (free < VERBS_MAX_CHANNELS && p->channels[free] != NULL)
        free++;
    if (free == VERBS_MAX_CHANNELS) {
        st = err_set(err, ST_UNSUPPORTED, "%d groups share one pair already",
                     VERBS_MAX_CHANNELS);
    } else {
        p->channels[free] = c;
        c->id = p->n_opened++ << PLACE_BITS | ((uint32_t)free + 1);
        c->pair = p;
        if (connected)
            st = post_for_channels(p, err);
    }
    pthread_mutex_unlock(&p->lock);
    return st;
}

static void fill_hello(const struct verbs_pair *p, const struct verbs_channel *c, bool shared,
                       struct verbs_hello *h) {
    *h = (struct verbs_hello){.pair = shared ? p->qp[0]->qp_num : 0,
                              .channel = c->id,
                              .psn = p->psn,
                              .address = p->device->address,
                              .reliable = p->reliable};
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

bool verbs_pair_known(const struct verbs_peer_id *who, bool reliable,
                      char device[VERBS_NAME_BYTES], uint32_t *qpn, uint32_t *peer_qpn) {
    pthread_mutex_lock(&registry_lock);
    const struct verbs_pair *p = pair_find(NULL, who, reliable);
    if (p != NULL) {
        snprintf(device, VERBS_NAME_BYTES, "%s", p->device->name);
        *qpn = p->qp[0]->qp_num;
        *peer_qpn = p->peer_qpn;
    }
    pthread_mutex_unlock(&registry_lock);
    return p != NULL;
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
    int n;
    enum status st = verbs_devices_open(&d, 1, &n, device, err);
    pthread_mutex_lock(&registry_lock);
    if (st == ST_OK && (p = pair_find(d, who, reliable)) == NULL)
        st = pair_new(&p, d, who, reliable, err);
    bool shared = st == ST_OK && p->ready;
    if (st == ST_OK)
        p->users++;
    pthread_mutex_unlock(&registry_lock);
    if (n > 0)
        verbs_device_close(d); /* the pair holds it */
    if (st == ST_OK) {
        c->pair = p;
        st = channel_add(p, c, shared, err);
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
    p->channels[place_of(c->id)] = NULL;
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

/* ---- messages ---------------------------------------------------------------------------- */

/* A credit is the sum of what the peer has consumed, so late or repeated news cannot harm. */
static void take_credit(struct verbs_channel *c, uint64_t taken) {
    if (taken > c->taken_by_peer && taken <= c->sent)
        c->taken_by_peer = taken;
}

/* A message came for the channel. Another thread may have found it, while the channel's own
 * thread sleeps. */
static void channel_rouse(struct verbs_channel *c) {
    if (c->asleep)
        wake_ring(&c->wake);
}

/* Hands a received slot to its channel; false: no channel takes it. */
static bool deliver(struct verbs_pair *p, int class, struct verbs_head *h) {
    uint32_t place = place_of(h->channel);
    struct verbs_channel *c = place < VERBS_MAX_CHANNELS ? p->channels[place] : NULL;
    if (c == NULL || c->id != h->channel || h->n_bytes > verbs_class_bytes[class] - sizeof *h)
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
        verbs_slot_give(p->device, class, slot);
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
    int rc = verbs_post_send(p->device, p->qp[s.class], s.class, s.head,
                             wr_id_of(p, s.head, s.class, true));
    if (rc != 0)
        return pair_broken(p, err, "post send", strerror(rc));
    p->sending[s.class]++;
    return ST_OK;
}

static bool slot_of_class(struct verbs_pair *p, int class, struct verbs_slot *out) {
    if (p->sending[class] >= p->depth[class])
        return false;
    *out = (struct verbs_slot){.head = verbs_slot_take(p->device, class), .class = class};
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

void verbs_channel_consumed(struct verbs_channel *c, uint64_t n_messages) {
    pthread_mutex_lock(&c->pair->lock);
    take_credit(c, n_messages);
    pthread_mutex_unlock(&c->pair->lock);
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

/* ---- sleeping ---------------------------------------------------------------------------- */

static void pair_drain_events(struct verbs_pair *p) {
    const struct verbs_lib *lib = p->device->lib;
    struct ibv_cq *cq;
    void *unused;
    while (lib->get_cq_event(p->events, &cq, &unused) == 0)
        lib->ack_cq_events(cq, 1);
}

/* The next completion raises an event; those that have come by now are taken, as they raise
 * none. */
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

/* The threads of several groups may sleep on one pair, and an event may wake only one of them.
 * So a thread that wakes reads everything that came, wakes the threads that it is for, and arms
 * again while others sleep. */
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
