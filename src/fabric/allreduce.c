/* allreduce.c: the exact sum, by several algorithms for different sizes and wires (team.h
 * chooses). It runs whole or as two halves: each member sums its share, and all members get the
 * shares. Integer addition is associative, and a chunk's wire format is lossless. So all
 * algorithms give the same bits.
 *
 * All of them cut x into chunks of PACK_CHUNK elements. A member sends a chunk only when its
 * sum is complete for that step. */
#include "fabric/sum_codec.h"
#include "fabric/team.h"

#include "base/util.h"

/* ---- one chunk --------------------------------------------------------------------------- */

struct packed {
    size_t n_bytes;
    enum wire_kind kind;
    uint32_t check;
};

/* Packs into the staging buffer, which stays in the first-level cache. Copying from there into
 * a slot is faster than packing into lines that the peer's core still holds, and it serves
 * several members. */
static struct packed stage(struct team *t, const int64_t *x, size_t n) {
    struct packed p;
    bool narrow;
    p.n_bytes = pack(t->staging, x, n, &narrow, &p.check);
    p.kind = narrow ? WIRE_SUM_32 : WIRE_SUM;
    return p;
}

static enum status send_staged(struct team *t, int to, struct packed p, size_t begin,
                               struct err *err) {
    return team_send(t, to, p.kind, begin * sizeof(int64_t), t->staging, p.n_bytes, p.check,
                     err);
}

/* To one member: straight into the slot where that is our own memory. */
static enum status send_one(struct team *t, int to, const int64_t *x, size_t n, size_t begin,
                            struct err *err) {
    void *payload;
    struct packed p;
    bool narrow;
    if (!t->f->peers[t->ranks[to]].link->ops->private_slots)
        return send_staged(t, to, stage(t, x, n), begin, err);
    TRY(message_begin(t->f, t->ranks[to], &payload, err));
    p.n_bytes = pack(payload, x, n, &narrow, &p.check);
    return message_end_checked(t->f, t->ranks[to], narrow ? WIRE_SUM_32 : WIRE_SUM, t->id,
                               begin * sizeof(int64_t), p.n_bytes, p.check, err);
}

typedef bool unpack_fn(int64_t *x, size_t n, const void *in, size_t n_bytes, bool narrow,
                       uint32_t *check);

/* The payload is read once, in its slot; whether it was whole is known after that. */
static enum status take(struct team *t, int from, unpack_fn *fn, int64_t *x, size_t begin,
                        size_t n, struct err *err) {
    struct message m;
    uint32_t check;
    int rank = t->ranks[from];
    TRY(message_next(t->f, rank, &m, err));
    bool fits =
        fn(x + begin, n, m.payload, m.header.n_bytes, m.header.kind == WIRE_SUM_32, &check);
    TRY(message_accept(t->f, rank, &m, check, WIRE_SUM, t->id, begin * sizeof(int64_t), err));
    if (fits)
        return ST_OK;
    group_failure_set(t->f, rank, "rank %d sums another number of elements than %zu", rank, n);
    return group_failure_check(t->f, err);
}

/* ---- ranges of x ------------------------------------------------------------------------- */

struct range {
    size_t begin, end;
};

static size_t n_chunks(struct range r) {
    return div_up(r.end - r.begin, PACK_CHUNK);
}

static struct range chunk_of(struct range r, size_t k) {
    size_t begin = MIN(r.begin + k * PACK_CHUNK, r.end);
    return (struct range){begin, MIN(begin + PACK_CHUNK, r.end)};
}

/* x is sharded: member i's share is [begin[i], begin[i + 1]). */
static struct range share_of(const size_t *begin, int i) {
    return (struct range){begin[i], begin[i + 1]};
}

/* Whole blocks, equal but for the last. begin [size + 1] */
static void shard_equally(const struct team *t, size_t n, size_t *begin) {
    size_t each = round_up(div_up(n, (size_t)t->size), PACK_BLOCK);
    for (int i = 0; i <= t->size; i++)
        begin[i] = MIN((size_t)i * each, n);
}

static enum status send_range(struct team *t, int to, const int64_t *x, struct range r,
                              struct err *err) {
    if (r.begin == r.end)
        return ST_OK;
    return send_one(t, to, x + r.begin, r.end - r.begin, r.begin, err);
}

static enum status take_range(struct team *t, int from, unpack_fn *fn, int64_t *x,
                              struct range r, struct err *err) {
    return r.begin == r.end ? ST_OK : take(t, from, fn, x, r.begin, r.end - r.begin, err);
}

/* ---- one-shot: everybody sends all to all, and adds -------------------------------------- */

static bool fits_mesh(const struct team *t) {
    return t->mesh;
}

static bool takes_part(const struct team *t, int i, bool leaders_only) {
    return i != t->index && (!leaders_only || t->leader[i] == i);
}

/* more: another chunk follows at once. */
static enum status shot_send(struct team *t, bool leaders_only, bool more, int64_t *x,
                             struct range r, struct err *err) {
    if (t->size == 2) {
        t->f->peers[t->ranks[!t->index]].link->hold = more;
        return send_one(t, !t->index, x + r.begin, r.end - r.begin, r.begin, err);
    }
    struct packed p = stage(t, x + r.begin, r.end - r.begin);
    /* Starts after one's own index, so that members begin with different peers. */
    for (int k = 1; k < t->size; k++) {
        int to = (t->index + k) % t->size;
        if (takes_part(t, to, leaders_only))
            TRY(send_staged(t, to, p, r.begin, err));
    }
    return ST_OK;
}

static enum status shot_add(struct team *t, bool leaders_only, int64_t *x, struct range r,
                            struct err *err) {
    for (int k = 1; k < t->size; k++) {
        int from = (t->index + k) % t->size;
        if (takes_part(t, from, leaders_only))
            TRY(take_range(t, from, unpack_add, x, r, err));
    }
    return ST_OK;
}

static enum status shots(struct team *t, bool leaders_only, int64_t *x, size_t n,
                         struct err *err) {
    struct range all = {0, n};
    size_t count = n_chunks(all);
    /* Two by two: see struct link's hold. */
    for (size_t k = 0; k < count + t->n_ahead; k += 2) {
        if (k < count)
            TRY(shot_send(t, leaders_only, k + 1 < count, x, chunk_of(all, k), err));
        if (k + 1 < count)
            TRY(shot_send(t, leaders_only, false, x, chunk_of(all, k + 1), err));
        for (size_t j = k; k >= t->n_ahead && j < k + 2 && j - t->n_ahead < count; j++)
            TRY(shot_add(t, leaders_only, x, chunk_of(all, j - t->n_ahead), err));
    }
    return ST_OK;
}

static enum status sum_one_shot(struct team *t, int64_t *x, size_t n, struct err *err) {
    return shots(t, false, x, n, err);
}

/* ---- scatter: each member adds up its share, then hands it to all ------------------------ */

static bool fits_scatter(const struct team *t) {
    return t->mesh && t->size > 2;
}

static enum status shard_out(struct team *t, int64_t *x, const size_t *begin, size_t k,
                             struct err *err) {
    for (int i = 1; i < t->size; i++) {
        int to = (t->index + i) % t->size;
        TRY(send_range(t, to, x, chunk_of(share_of(begin, to), k), err));
    }
    return ST_OK;
}

static enum status add_share(struct team *t, int64_t *x, const size_t *begin, size_t k,
                             struct err *err) {
    for (int i = 1; i < t->size; i++)
        TRY(take_range(t, (t->index + i) % t->size, unpack_add, x,
                       chunk_of(share_of(begin, t->index), k), err));
    return ST_OK;
}

static enum status hand_out(struct team *t, int64_t *x, const size_t *begin, size_t k,
                            struct err *err) {
    struct range r = chunk_of(share_of(begin, t->index), k);
    if (r.begin == r.end)
        return ST_OK;
    return shot_send(t, false, false, x, r, err);
}

static enum status take_shares(struct team *t, int64_t *x, const size_t *begin, size_t k,
                               struct err *err) {
    for (int i = 1; i < t->size; i++) {
        int from = (t->index + i) % t->size;
        TRY(take_range(t, from, unpack_copy, x, chunk_of(share_of(begin, from), k), err));
    }
    return ST_OK;
}

typedef enum status step_fn(struct team *t, int64_t *x, const size_t *begin, size_t k,
                            struct err *err);

static enum status windowed(struct team *t, step_fn *send, step_fn *recv, int64_t *x,
                            const size_t *begin, struct err *err) {
    size_t count = 0;
    for (int i = 0; i < t->size; i++)
        count = MAX(count, n_chunks(share_of(begin, i)));
    for (size_t k = 0; k < count + t->n_ahead; k++) {
        if (k < count)
            TRY(send(t, x, begin, k, err));
        if (k >= t->n_ahead && k - t->n_ahead < count)
            TRY(recv(t, x, begin, k - t->n_ahead, err));
    }
    return ST_OK;
}

static enum status mesh_reduce_scatter(struct team *t, int64_t *x, const size_t *begin,
                                       struct err *err) {
    return windowed(t, shard_out, add_share, x, begin, err);
}

static enum status sum_scatter(struct team *t, int64_t *x, size_t n, struct err *err) {
    size_t begin[FABRIC_MAX_RANKS + 1];
    shard_equally(t, n, begin);
    TRY(mesh_reduce_scatter(t, x, begin, err));
    return windowed(t, hand_out, take_shares, x, begin, err);
}

/* ---- ring: the shares go round, first adding up, then as results ------------------------- */

static bool fits_ring(const struct team *t) {
    return t->has_ring;
}

/* Sends one share to the next in the ring while another comes from the one before. */
static enum status ring_step(struct team *t, unpack_fn *fn, int64_t *x, struct range out,
                             struct range in, struct err *err) {
    int next = team_after(t, 1), before = team_after(t, -1);
    size_t n_out = n_chunks(out), n_in = n_chunks(in);
    for (size_t k = 0; k < MAX(n_out, n_in) + t->n_ahead; k++) {
        if (k < n_out)
            TRY(send_range(t, next, x, chunk_of(out, k), err));
        if (k >= t->n_ahead && k - t->n_ahead < n_in)
            TRY(take_range(t, before, fn, x, chunk_of(in, k - t->n_ahead), err));
    }
    return ST_OK;
}

/* After it each member's own share is complete: it is the last that comes round to it. */
static enum status ring_reduce_scatter(struct team *t, int64_t *x, const size_t *begin,
                                       struct err *err) {
    for (int s = 1; s < t->size; s++)
        TRY(ring_step(t, unpack_add, x, share_of(begin, team_after(t, -s)),
                      share_of(begin, team_after(t, -s - 1)), err));
    return ST_OK;
}

static enum status sum_ring(struct team *t, int64_t *x, size_t n, struct err *err) {
    size_t begin[FABRIC_MAX_RANKS + 1];
    shard_equally(t, n, begin);
    TRY(ring_reduce_scatter(t, x, begin, err));
    for (int s = 0; s < t->size - 1; s++)
        TRY(ring_step(t, unpack_copy, x, share_of(begin, team_after(t, -s)),
                      share_of(begin, team_after(t, -s - 1)), err));
    return ST_OK;
}

/* ---- hierarchical: inside the hosts, between their leaders, inside the hosts ------------- */

static bool fits_hierarchical(const struct team *t) {
    return t->mesh && t->n_hosts > 1 && t->n_hosts < t->size;
}

static enum status to_leader(struct team *t, int64_t *x, size_t n, struct err *err) {
    struct range all = {0, n};
    for (size_t k = 0; k < n_chunks(all); k++) {
        struct range r = chunk_of(all, k);
        if (t->leader[t->index] != t->index)
            TRY(send_range(t, t->leader[t->index], x, r, err));
        for (int i = 0; i < t->size; i++)
            if (i != t->index && t->leader[i] == t->index)
                TRY(take_range(t, i, unpack_add, x, r, err));
    }
    return ST_OK;
}

static enum status from_leader(struct team *t, int64_t *x, size_t n, struct err *err) {
    struct range all = {0, n};
    for (size_t k = 0; k < n_chunks(all); k++) {
        struct range r = chunk_of(all, k);
        if (t->leader[t->index] != t->index)
            TRY(take_range(t, t->leader[t->index], unpack_copy, x, r, err));
        for (int i = 0; i < t->size; i++)
            if (i != t->index && t->leader[i] == t->index)
                TRY(send_range(t, i, x, r, err));
    }
    return ST_OK;
}

static enum status sum_hierarchical(struct team *t, int64_t *x, size_t n, struct err *err) {
    TRY(to_leader(t, x, n, err));
    if (t->leader[t->index] == t->index)
        TRY(shots(t, true, x, n, err));
    return from_leader(t, x, n, err);
}

/* ---- tree: up to the first member, down again; over any wires that connect the team ------ */

static bool fits_tree(const struct team *t) {
    (void)t;
    return true;
}

static enum status sum_tree(struct team *t, int64_t *x, size_t n, struct err *err) {
    const struct team_tree *tree = &t->trees[0];
    struct range all = {0, n};
    for (size_t k = 0; k < n_chunks(all); k++) {
        for (int i = 0; i < tree->n_children; i++)
            TRY(take_range(t, tree->children[i], unpack_add, x, chunk_of(all, k), err));
        if (tree->parent >= 0)
            TRY(send_range(t, tree->parent, x, chunk_of(all, k), err));
    }
    for (size_t k = 0; k < n_chunks(all); k++) {
        if (tree->parent >= 0)
            TRY(take_range(t, tree->parent, unpack_copy, x, chunk_of(all, k), err));
        for (int i = 0; i < tree->n_children; i++)
            TRY(send_range(t, tree->children[i], x, chunk_of(all, k), err));
    }
    return ST_OK;
}

const struct sum_algorithm sum_algorithms[] = {
    {"one-shot", fits_mesh, sum_one_shot, mesh_reduce_scatter, mesh_share},
    {"scatter", fits_scatter, sum_scatter, mesh_reduce_scatter, mesh_share},
    {"ring", fits_ring, sum_ring, ring_reduce_scatter, ring_share},
    {"hierarchical", fits_hierarchical, sum_hierarchical, NULL, NULL},
    {"tree", fits_tree, sum_tree, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
