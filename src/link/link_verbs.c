/* link_verbs.c: the link `verbs`: InfiniBand, RoCE, Thunderbolt 5 through libibverbs.
 * verbs_pair.c has the queue pairs and their rules. Here is one group's channel over them as a
 * link.
 *
 * The hardware reports neither the death of the peer nor (UC) a lost message. The side channel
 * and the counts in its heartbeats do. They also make up for a lost message that only returns
 * credits. */
#include "link/links.h"

#include "base/mem.h"
#include "base/util.h"

#if __has_include(<infiniband/verbs.h>)
#include "link/verbs_cables.h"
#include "link/verbs_pair.h"

#include <time.h>

struct verbs_link {
    struct link base;
    struct verbs_channel *channel;
    struct verbs_slot rx;
    uint64_t napped_us; /* since the last message */
    /* The message being written: its class is known when its length is. */
    _Alignas(64) uint8_t staging[sizeof(struct wire_msg) + LINK_SLOT_BYTES];
};

static struct verbs_link *verbs_of(struct link *l) {
    return (struct verbs_link *)l;
}

static_assert(sizeof(struct verbs_hello) <= LINK_BLOB_BYTES, "fits the offer");
static_assert(sizeof(struct verbs_head) + sizeof(struct wire_msg) + LINK_SLOT_BYTES <=
                  9 * VERBS_FRAME,
              "the largest message fits the largest slot");

static_assert(LINK_DEVICE_BYTES == VERBS_NAME_BYTES, "a device's name");

static struct verbs_peer_id peer_id(const struct link_env *env) {
    struct verbs_peer_id who = {.pid = env->other->pid};
    memcpy(who.host_id, env->other->host_id, sizeof who.host_id);
    return who;
}

static enum status verbs_find(struct link_env *env, struct err *err) {
    struct verbs_peer_id who = peer_id(env);
    return verbs_cable_find(env, &who, err);
}

static enum status verbs_offer(struct link **out, struct link_env *env, uint8_t *blob,
                               struct err *err) {
    struct verbs_peer_id who = peer_id(env);
    struct verbs_hello hello;
    struct verbs_channel *channel;
    TRY(verbs_channel_open(&channel, &who, env->device, env->cfg->rdma_reliable, &hello, err));
    struct verbs_link *v = mem_huge_alloc(sizeof *v);
    if (v == NULL) {
        verbs_channel_close(channel);
        return err_set(err, ST_NO_MEMORY, "no memory for a link");
    }
    v->base = (struct link){.ops = &link_verbs, .slot_bytes = LINK_SLOT_BYTES};
    v->channel = channel;
    memcpy(blob, &hello, sizeof hello);
    *out = &v->base;
    return ST_OK;
}

static enum status verbs_accept(struct link *l, struct link_env *env, const uint8_t *blob,
                                struct err *err) {
    (void)env;
    struct verbs_hello hello;
    memcpy(&hello, blob, sizeof hello);
    return verbs_channel_connect(verbs_of(l)->channel, &hello, err);
}

static void verbs_ready(struct link *l) {
    verbs_channel_ready(verbs_of(l)->channel);
}

/* Credits are looked at here, so that send() never has to wait; the slab's slot is taken there. */
static struct wire_msg *verbs_slot(struct link *l) {
    struct verbs_link *v = verbs_of(l);
    return l->tx_pending || !verbs_channel_has_credit(v->channel)
               ? NULL
               : (struct wire_msg *)v->staging;
}

static enum status verbs_progress(struct link *l, struct err *err) {
    struct verbs_link *v = verbs_of(l);
    struct wire_msg *m = (struct wire_msg *)v->staging;
    uint32_t n_bytes = (uint32_t)sizeof *m + m->n_bytes;
    struct verbs_slot slot;
    TRY(verbs_channel_broken(v->channel, err));
    l->tx_pending = !verbs_channel_slot(v->channel, n_bytes, &slot);
    if (l->tx_pending)
        return ST_OK;
    memcpy(slot.head + 1, m, n_bytes);
    return verbs_channel_send(v->channel, slot, n_bytes, err);
}

static enum status verbs_recv(struct link *l, const struct wire_msg **out, struct err *err) {
    struct verbs_link *v = verbs_of(l);
    enum status st = verbs_channel_recv(v->channel, &v->rx, err);
    if (st == ST_OK)
        *out = (const struct wire_msg *)(v->rx.head + 1);
    return st;
}

static void verbs_done(struct link *l) {
    struct verbs_link *v = verbs_of(l);
    struct err unused; /* a broken pair says so at the next poll */
    verbs_channel_done(v->channel, &unused);
    v->napped_us = 0;
}

static void verbs_consumed(struct link *l, uint64_t n_messages) {
    verbs_channel_consumed(verbs_of(l)->channel, n_messages);
}

/* If nothing wakes a sleeper, a nap is a sixteenth of the wait so far, between 50 us and 20 ms.
 * So no wait becomes longer by more than that, and an endless wait costs little CPU time. A
 * wait for a free send slot, with credit, is short and does the same. */
static void verbs_sleep(struct link *l, bool for_slot, int timeout_us) {
    struct verbs_link *v = verbs_of(l);
    if (!l->tx_pending && verbs_channel_sleep(v->channel, for_slot, timeout_us))
        return;
    int nap_us = MIN((int)MIN(MAX(v->napped_us / 16, 50u), 20000u), timeout_us);
    v->napped_us += (uint64_t)nap_us;
    nanosleep(&(struct timespec){.tv_nsec = nap_us * 1000L}, NULL);
}

static void verbs_kick(struct link *l) {
    verbs_channel_wake(verbs_of(l)->channel);
}

static void verbs_close(struct link *l) {
    struct verbs_link *v = verbs_of(l);
    verbs_channel_close(v->channel);
    mem_huge_free(v, sizeof *v);
}
#else
/* The other side may have devices, and tells of them. */
static enum status verbs_find(struct link_env *env, struct err *err) {
    uint8_t none[LINK_BLOB_BYTES] = {0}, theirs[LINK_BLOB_BYTES];
    TRY(link_talk(env, FABRIC_LINK_VERBS, none, theirs, err));
    return err_set(err, ST_UNSUPPORTED, "built without <infiniband/verbs.h>");
}

static enum status verbs_offer(struct link **out, struct link_env *env, uint8_t *blob,
                               struct err *err) {
    (void)out, (void)env, (void)blob;
    return err_set(err, ST_UNSUPPORTED, "built without <infiniband/verbs.h>");
}
#define verbs_accept NULL
#define verbs_ready NULL
#define verbs_slot NULL
#define verbs_progress NULL
#define verbs_recv NULL
#define verbs_done NULL
#define verbs_consumed NULL
#define verbs_sleep NULL
#define verbs_kick NULL
#define verbs_close NULL
#endif

const struct link_ops link_verbs = {
    .name = "verbs",
    .n_ahead = LINK_AHEAD,
    .id = FABRIC_LINK_VERBS,
    .private_slots = true,
    .find = verbs_find,
    .offer = verbs_offer,
    .accept = verbs_accept,
    .ready = verbs_ready,
    .slot = verbs_slot,
    .send = verbs_progress,
    .recv = verbs_recv,
    .done = verbs_done,
    .progress = verbs_progress,
    .consumed = verbs_consumed,
    .sleep = verbs_sleep,
    .kick = verbs_kick,
    .close = verbs_close,
};
