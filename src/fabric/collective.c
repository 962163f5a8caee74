/* collective.c: broadcast, gather, barrier, send and receive (allreduce.c has the sum), as
 * sequences of messages between pairs. All members run the same sequence, so a message's
 * position says what it is. The header repeats it, and message.c compares. */
#include "fabric/group.h"
#include "fabric/team.h"

#include "base/prefetch.h"
#include "base/util.h"
#include "fabric/check.h"

/* ---- pieces ------------------------------------------------------------------------------ */

static enum status send_piece(struct fabric *f, int to, enum wire_kind kind, uint16_t team,
                              size_t at, const uint8_t *piece, size_t n, struct err *err) {
    void *payload;
    TRY(message_begin(f, to, &payload, err));
    if (n != 0)
        memcpy(payload, piece, n);
    return message_end(f, to, kind, team, at, n, err);
}

enum status team_send(struct team *t, int to, enum wire_kind kind, uint64_t offset,
                      const void *from, size_t n_bytes, uint32_t check, struct err *err) {
    void *payload;
    TRY(message_begin(t->f, t->ranks[to], &payload, err));
    if (t->past_caches)
        prefetch_demote(payload, from, n_bytes);
    else
        memcpy(payload, from, n_bytes);
    return message_end_checked(t->f, t->ranks[to], kind, t->id, offset, n_bytes, check, err);
}

static enum status send_bytes(struct fabric *f, int to, enum wire_kind kind, uint16_t team,
                              const uint8_t *buf, size_t n_bytes, struct err *err) {
    size_t at = 0;
    do {
        size_t n = MIN(n_bytes - at, LINK_SLOT_BYTES);
        TRY(send_piece(f, to, kind, team, at, n != 0 ? buf + at : NULL, n, err));
        at += n;
    } while (at < n_bytes);
    return ST_OK;
}

static enum status recv_bytes(struct fabric *f, int from, enum wire_kind kind, uint16_t team,
                              uint8_t *buf, size_t n_bytes, struct err *err) {
    size_t at = 0;
    do {
        size_t n = MIN(n_bytes - at, LINK_SLOT_BYTES);
        TRY(message_recv(f, from, kind, team, at, n != 0 ? buf + at : NULL, n, err));
        at += n;
    } while (at < n_bytes);
    return ST_OK;
}

/* ---- the others -------------------------------------------------------------------------- */

/* Takes a piece from the parent and hands it on before the next: the pieces follow each other
 * down the tree. */
enum status fabric_broadcast(struct team *t, int root, void *buf, size_t n_bytes,
                             struct err *err) {
    if (root < 0 || root >= t->size)
        return err_set(err, ST_BAD_INPUT, "broadcast from member %d of %d", root, t->size);
    if (t->size == 1)
        return ST_OK;
    TRY(group_failure_check(t->f, err));
    const struct team_tree *tree = &t->trees[root];
    size_t at = 0;
    do {
        size_t n = MIN(n_bytes - at, LINK_SLOT_BYTES);
        uint8_t *piece = n != 0 ? (uint8_t *)buf + at : NULL;
        if (tree->parent >= 0)
            TRY(message_recv(t->f, t->ranks[tree->parent], WIRE_BROADCAST, t->id, at, piece, n,
                             err));
        for (int i = 0; i < tree->n_children; i++)
            TRY(send_piece(t->f, t->ranks[tree->children[i]], WIRE_BROADCAST, t->id, at, piece,
                           n, err));
        at += n;
    } while (at < n_bytes);
    return message_flush(t->f, err);
}

/* One part on its way to the root, from slot to slot. */
static enum status relay_part(struct team *t, int from, int to, size_t n_bytes,
                              struct err *err) {
    for (size_t at = 0; at < n_bytes;) {
        size_t n = MIN(n_bytes - at, LINK_SLOT_BYTES);
        void *payload;
        TRY(message_begin(t->f, t->ranks[to], &payload, err));
        TRY(message_recv(t->f, t->ranks[from], WIRE_GATHER, t->id, at, payload, n, err));
        TRY(message_end(t->f, t->ranks[to], WIRE_GATHER, t->id, at, n, err));
        at += n;
    }
    return ST_OK;
}

/* Member i's part, as seen from here: this rank's own, or from the child whose branch contains
 * i. */
static enum status gather_part(struct team *t, int root, int i, const void *part, uint8_t *to,
                               size_t n_bytes, struct err *err) {
    const struct team_tree *tree = &t->trees[root];
    int from = tree->branch[i];
    if (n_bytes == 0)
        return ST_OK;
    if (i == t->index && root == t->index) {
        memmove(to, part, n_bytes);
        return ST_OK;
    }
    if (i == t->index)
        return send_bytes(t->f, t->ranks[tree->parent], WIRE_GATHER, t->id, part, n_bytes, err);
    if (from < 0)
        return ST_OK;
    if (root == t->index)
        return recv_bytes(t->f, t->ranks[from], WIRE_GATHER, t->id, to, n_bytes, err);
    return relay_part(t, from, tree->parent, n_bytes, err);
}

enum status fabric_gather(struct team *t, int root, const void *part, void *all,
                          const size_t *part_bytes, struct err *err) {
    if (root < 0 || root >= t->size)
        return err_set(err, ST_BAD_INPUT, "gather at member %d of %d", root, t->size);
    TRY(group_failure_check(t->f, err));
    size_t at = 0;
    for (int i = 0; i < t->size; i++) {
        uint8_t *to = t->index == root && part_bytes[i] != 0 ? (uint8_t *)all + at : NULL;
        TRY(gather_part(t, root, i, part, to, part_bytes[i], err));
        at += part_bytes[i];
    }
    return message_flush(t->f, err);
}

/* Piece k of a member's rows, buffer after buffer; past the last one none: n is 0. */
struct piece {
    uint8_t *at;
    size_t n;
};

static struct piece piece_of(const struct fabric_rows *list, size_t n, const uint32_t *first,
                             int member, size_t k) {
    size_t rows = first[member + 1] - first[member];
    for (size_t i = 0; i < n; i++) {
        size_t bytes = rows * list[i].row_bytes, pieces = div_up(bytes, LINK_SLOT_BYTES);
        size_t at = k * LINK_SLOT_BYTES;
        if (k < pieces)
            return (struct piece){(uint8_t *)list[i].at + first[member] * list[i].row_bytes +
                                      at,
                                  MIN(bytes - at, LINK_SLOT_BYTES)};
        k -= pieces;
    }
    return (struct piece){NULL, 0};
}

static size_t n_pieces(const struct fabric_rows *list, size_t n, const uint32_t *first,
                       int member) {
    size_t pieces = 0;
    for (size_t i = 0; i < n; i++)
        pieces +=
            div_up((first[member + 1] - first[member]) * list[i].row_bytes, LINK_SLOT_BYTES);
    return pieces;
}

static enum status send_share(struct team *t, int to, struct piece p, size_t k,
                              struct err *err) {
    return p.n == 0 ? ST_OK
                    : team_send(t, to, WIRE_SHARE, k, p.at, p.n, check_of(p.at, p.n), err);
}

static enum status recv_share(struct team *t, int from, struct piece p, size_t k,
                              struct err *err) {
    return p.n == 0 ? ST_OK
                    : message_recv(t->f, t->ranks[from], WIRE_SHARE, t->id, k, p.at, p.n, err);
}

/* Everybody to everybody. */
enum status mesh_share(struct team *t, const struct fabric_rows *list, size_t n,
                       const uint32_t *first, struct err *err) {
    size_t count = 0;
    for (int i = 0; i < t->size; i++)
        count = MAX(count, n_pieces(list, n, first, i));
    for (size_t k = 0; k < count + t->n_ahead; k++) {
        for (int i = 1; i < t->size; i++)
            TRY(send_share(t, (t->index + i) % t->size, piece_of(list, n, first, t->index, k),
                           k, err));
        for (int i = 1; k >= t->n_ahead && i < t->size; i++) {
            int from = (t->index + i) % t->size;
            TRY(recv_share(t, from, piece_of(list, n, first, from, k - t->n_ahead),
                           k - t->n_ahead, err));
        }
    }
    return ST_OK;
}

/* Each hands on what came last, its own first. */
enum status ring_share(struct team *t, const struct fabric_rows *list, size_t n,
                       const uint32_t *first, struct err *err) {
    for (int s = 0; s < t->size - 1; s++) {
        int out = team_after(t, -s), in = team_after(t, -s - 1);
        size_t count = MAX(n_pieces(list, n, first, out), n_pieces(list, n, first, in));
        for (size_t k = 0; k < count + t->n_ahead; k++) {
            TRY(send_share(t, team_after(t, 1), piece_of(list, n, first, out, k), k, err));
            if (k >= t->n_ahead)
                TRY(recv_share(t, team_after(t, -1),
                               piece_of(list, n, first, in, k - t->n_ahead), k - t->n_ahead,
                               err));
        }
    }
    return ST_OK;
}

/* If all pairs are wired, every member sends to every other: one message time. Otherwise up and
 * down the first member's tree. */
enum status fabric_barrier(struct team *t, struct err *err) {
    const struct team_tree *tree = &t->trees[0];
    TRY(group_failure_check(t->f, err));
    for (int i = 1; t->mesh && i < t->size; i++)
        TRY(send_piece(t->f, t->ranks[(t->index + i) % t->size], WIRE_BARRIER, t->id, 0, NULL,
                       0, err));
    for (int i = 1; t->mesh && i < t->size; i++)
        TRY(message_recv(t->f, t->ranks[(t->index + i) % t->size], WIRE_BARRIER, t->id, 0, NULL,
                         0, err));
    if (t->mesh)
        return message_flush(t->f, err);
    for (int i = 0; i < tree->n_children; i++)
        TRY(message_recv(t->f, t->ranks[tree->children[i]], WIRE_BARRIER, t->id, 0, NULL, 0,
                         err));
    if (tree->parent >= 0) {
        TRY(send_piece(t->f, t->ranks[tree->parent], WIRE_BARRIER, t->id, 0, NULL, 0, err));
        TRY(message_recv(t->f, t->ranks[tree->parent], WIRE_BARRIER, t->id, 0, NULL, 0, err));
    }
    for (int i = 0; i < tree->n_children; i++)
        TRY(send_piece(t->f, t->ranks[tree->children[i]], WIRE_BARRIER, t->id, 0, NULL, 0,
                       err));
    return message_flush(t->f, err);
}

enum status fabric_meet(struct team *t, struct err *err) {
    t->f->meeting = true;
    enum status st = fabric_barrier(t, err);
    t->f->meeting = false;
    return st;
}

static enum status check_peer(const struct fabric *f, int rank, struct err *err) {
    if (rank < 0 || rank >= f->cfg.n_ranks || rank == f->cfg.rank)
        return err_set(err, ST_BAD_INPUT, "rank %d is not another rank of %d", rank,
                       f->cfg.n_ranks);
    return ST_OK;
}

enum status fabric_send(struct fabric *f, int to, const void *buf, size_t n_bytes,
                        struct err *err) {
    TRY(check_peer(f, to, err));
    TRY(group_failure_check(f, err));
    TRY(send_bytes(f, to, WIRE_DATA_P2P, 0, buf, n_bytes, err));
    return message_flush(f, err);
}

enum status fabric_recv(struct fabric *f, int from, void *buf, size_t n_bytes,
                        struct err *err) {
    TRY(check_peer(f, from, err));
    TRY(group_failure_check(f, err));
    return recv_bytes(f, from, WIRE_DATA_P2P, 0, buf, n_bytes, err);
}

/* What is rooted at that rank comes from it, or, without a wire, from the neighbour before us in
 * the tree of the group. */
enum status fabric_wait(struct fabric *f, int from, int timeout_ms, struct err *err) {
    TRY(check_peer(f, from, err));
    return message_wait(f, from, f->next_hop[from], timeout_ms, err);
}
