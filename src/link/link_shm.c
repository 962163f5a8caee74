/* link_shm.c: the link `shm`: two rings of slots in memory that both processes map, one ring
 * per direction.
 *
 * The sender fills slot (sent mod N), then publishes it by storing sent + 1 into the slot's own
 * word (release). The receiver polls that word (acquire), reads the slot in place, and returns
 * it by storing its count into the ring's `taken` (release, read by the sender with acquire).
 * So a message costs the transfer of its own cache lines and one more.
 *
 * Sleep: a side that sleeps sets `sleeping`, checks once more, and waits on `bell`. The other
 * side checks `sleeping` after publishing. Both are seq_cst with a fence between, so at least
 * one of the two sees the other. There is a bell for messages and one for free slots.
 *
 * The other process is hostile until checked. Data that is read twice is copied first, and the
 * peer's counters only ever decide "not now". */
#include "link/links.h"

#include "base/futex.h"
#include "base/mem.h"
#include "base/util.h"
#include "link/shm_segment.h"

#include <sodium.h>
#include <stdatomic.h>

/* A long sum uses more slots than a core's second-level cache holds. Its data has then moved to
 * the cache that both cores share, where reading it costs less than from the other core's own
 * cache. Zen 4, 1 MB each way: 110 us instead of 200 with 8 slots and 4 messages ahead. */
#define SHM_N_SLOTS 32u
#define SHM_AHEAD 16
#define SHM_KEY_BYTES 32

struct shm_bell {
    _Alignas(CACHE_LINE) _Atomic uint32_t rings;
    _Atomic uint32_t sleeping;
};

struct shm_slot {
    _Alignas(CACHE_LINE) _Atomic uint32_t published; /* message number + 1 */
    uint8_t pad[CACHE_LINE - 4 - sizeof(struct wire_msg)];
    struct wire_msg msg; /* ends at the cache line: the payload is aligned */
    uint8_t payload[LINK_SLOT_BYTES];
};

struct shm_ring {
    _Alignas(CACHE_LINE) _Atomic uint32_t taken; /* messages given back by the receiver */
    struct shm_bell message, room;
    struct shm_slot slots[SHM_N_SLOTS];
};

struct shm_shared {
    uint8_t key[SHM_KEY_BYTES]; /* random: proves that both map the same memory */
    struct shm_ring rings[2];   /* [0]: lower rank to higher */
};

/* What the lower rank tells the higher one. */
struct shm_blob {
    uint8_t key[SHM_KEY_BYTES];
    char name[SHM_NAME_BYTES];
};

struct shm_link {
    struct link base;
    struct shm_segment segment;
    struct shm_ring *tx, *rx;
    uint32_t sent, received; /* this side's counts; they wrap */
};

static struct shm_link *shm_of(struct link *l) {
    return (struct shm_link *)l;
}

static void shm_assign(struct shm_link *s, bool lower) {
    struct shm_shared *m = s->segment.base;
    s->tx = &m->rings[lower ? 0 : 1];
    s->rx = &m->rings[lower ? 1 : 0];
}

static enum status shm_offer(struct link **out, struct link_env *env, uint8_t *blob,
                             struct err *err) {
    struct shm_link *s = mem_calloc(1, sizeof *s);
    if (s == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a link");
    s->base = (struct link){.ops = &link_shm, .slot_bytes = LINK_SLOT_BYTES};
    s->segment.fd = -1;
    if (env->rank < env->peer) {
        enum status st = shm_segment_create(&s->segment, sizeof(struct shm_shared), err);
        if (st != ST_OK) {
            mem_free(s);
            return st;
        }
        struct shm_shared *m = s->segment.base;
        randombytes_buf(m->key, sizeof m->key);
        struct shm_blob *b = (struct shm_blob *)blob;
        memcpy(b->key, m->key, sizeof b->key);
        memcpy(b->name, s->segment.name, sizeof b->name);
        shm_assign(s, true);
    }
    *out = &s->base;
    return ST_OK;
}

static enum status shm_accept(struct link *l, struct link_env *env, const uint8_t *blob,
                              struct err *err) {
    if (env->rank < env->peer)
        return ST_OK;
    struct shm_link *s = shm_of(l);
    struct shm_blob b;
    memcpy(&b, blob, sizeof b);
    b.name[sizeof b.name - 1] = '\0';
    TRY(shm_segment_attach(&s->segment, b.name, sizeof(struct shm_shared), err));
    const struct shm_shared *m = s->segment.base;
    if (sodium_memcmp(m->key, b.key, sizeof b.key) != 0)
        return err_set(err, ST_UNSUPPORTED, "%s is another process's memory", b.name);
    shm_assign(s, false);
    return ST_OK;
}

static void shm_ready(struct link *l) {
    shm_segment_hide(&shm_of(l)->segment);
}

static void shm_ring_bell(struct shm_bell *bell) {
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&bell->sleeping, memory_order_relaxed) == 0)
        return;
    atomic_fetch_add_explicit(&bell->rings, 1, memory_order_seq_cst);
    futex_wake(&bell->rings, 1, true);
}

static bool shm_has_room(struct shm_link *s) {
    return s->sent - atomic_load_explicit(&s->tx->taken, memory_order_acquire) < SHM_N_SLOTS;
}

static struct wire_msg *shm_slot(struct link *l) {
    struct shm_link *s = shm_of(l);
    return shm_has_room(s) ? &s->tx->slots[s->sent % SHM_N_SLOTS].msg : NULL;
}

static enum status shm_send(struct link *l, struct err *err) {
    (void)err;
    struct shm_link *s = shm_of(l);
    struct shm_slot *slot = &s->tx->slots[s->sent % SHM_N_SLOTS];
    atomic_store_explicit(&slot->published, ++s->sent, memory_order_release);
    shm_ring_bell(&s->tx->message);
    return ST_OK;
}

static bool shm_has_message(struct shm_link *s) {
    struct shm_slot *slot = &s->rx->slots[s->received % SHM_N_SLOTS];
    return atomic_load_explicit(&slot->published, memory_order_acquire) == s->received + 1;
}

static enum status shm_recv(struct link *l, const struct wire_msg **out, struct err *err) {
    struct shm_link *s = shm_of(l);
    if (!shm_has_message(s))
        return ST_AGAIN;
    struct shm_slot *slot = &s->rx->slots[s->received % SHM_N_SLOTS];
    if (*(volatile uint32_t *)&slot->msg.n_bytes > LINK_SLOT_BYTES)
        return err_set(err, ST_PEER_LOST, "a message longer than its slot");
    *out = &slot->msg;
    return ST_OK;
}

static void shm_done(struct link *l) {
    struct shm_link *s = shm_of(l);
    atomic_store_explicit(&s->rx->taken, ++s->received, memory_order_release);
    shm_ring_bell(&s->rx->room);
}

static void shm_sleep(struct link *l, bool for_slot, int timeout_us) {
    struct shm_link *s = shm_of(l);
    struct shm_bell *bell = for_slot ? &s->tx->room : &s->rx->message;
    uint32_t rings = atomic_load_explicit(&bell->rings, memory_order_seq_cst);
    atomic_store_explicit(&bell->sleeping, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
    if (!(for_slot ? shm_has_room(s) : shm_has_message(s)))
        futex_wait(&bell->rings, rings, timeout_us, true);
    atomic_store_explicit(&bell->sleeping, 0, memory_order_relaxed);
}

static void shm_kick(struct link *l) {
    struct shm_link *s = shm_of(l);
    struct shm_bell *bells[] = {&s->tx->room, &s->rx->message};
    for (size_t i = 0; i < ARRAY_LEN(bells); i++) {
        atomic_fetch_add_explicit(&bells[i]->rings, 1, memory_order_seq_cst);
        futex_wake(&bells[i]->rings, INT32_MAX, true);
    }
}

static void shm_close(struct link *l) {
    struct shm_link *s = shm_of(l);
    shm_segment_close(&s->segment);
    mem_free(s);
}

const struct link_ops link_shm = {
    .name = "shm",
    .n_ahead = SHM_AHEAD,
    .id = FABRIC_LINK_SHM,
    .same_host_only = true,
    .offer = shm_offer,
    .accept = shm_accept,
    .ready = shm_ready,
    .slot = shm_slot,
    .send = shm_send,
    .recv = shm_recv,
    .done = shm_done,
    .sleep = shm_sleep,
    .kick = shm_kick,
    .close = shm_close,
};
