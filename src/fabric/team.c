/* team.c: shapes of teams (team.h), and the measurement that chooses the sum's algorithm. */
#include "fabric/team.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"
#include "fabric/sum_codec.h"

#include <sodium.h>

/* ---- shape ------------------------------------------------------------------------------- */

static bool wired(const struct team *t, int a, int b) {
    return t->f->wires[t->ranks[a]] >> t->ranks[b] & 1;
}

/* parent[i] of every member on a shortest way from root; false if some cannot be reached. */
static bool search(const struct team *t, int root, int parent[FABRIC_MAX_RANKS]) {
    int queue[FABRIC_MAX_RANKS], head = 0, tail = 0;
    for (int i = 0; i < t->size; i++)
        parent[i] = -2;
    parent[root] = -1;
    queue[tail++] = root;
    while (head < tail) {
        int at = queue[head++];
        for (int k = 1; k < t->size; k++) { /* starting behind oneself spreads the load */
            int i = (at + k) % t->size;
            if (parent[i] == -2 && wired(t, at, i)) {
                parent[i] = at;
                queue[tail++] = i;
            }
        }
    }
    return tail == t->size;
}

static void see_tree(const struct team *t, const int parent[FABRIC_MAX_RANKS],
                     struct team_tree *tree) {
    tree->parent = parent[t->index];
    tree->n_children = 0;
    for (int i = 0; i < t->size; i++) {
        if (parent[i] == t->index)
            tree->children[tree->n_children++] = (int8_t)i;
        int at = i; /* up from i until this rank's child, or past the root */
        while (at >= 0 && parent[at] != t->index)
            at = parent[at];
        tree->branch[i] = (int8_t)at;
    }
}

/* Depth first with a limit: a dense small graph has a ring at once, and without one the tree
 * serves. */
static bool extend_ring(struct team *t, int n, uint64_t used, int *budget) {
    if (n == t->size)
        return wired(t, t->ring[n - 1], t->ring[0]);
    for (int i = 1; i < t->size && --*budget > 0; i++) {
        if (used >> i & 1 || !wired(t, t->ring[n - 1], i))
            continue;
        t->ring[n] = (int8_t)i;
        if (extend_ring(t, n + 1, used | 1ull << i, budget))
            return true;
    }
    return false;
}

static void find_hosts(struct team *t) {
    t->n_hosts = 0;
    for (int i = 0; i < t->size; i++) {
        int host = t->f->peers[t->ranks[i]].host;
        t->leader[i] = (int8_t)i;
        for (int k = i - 1; k >= 0; k--)
            if (t->f->peers[t->ranks[k]].host == host)
                t->leader[i] = (int8_t)k;
        t->n_hosts += t->leader[i] == i;
    }
}

/* A team of one has no links and sends nothing. */
static void find_ahead(struct team *t) {
    t->n_ahead = SIZE_MAX;
    for (int i = 0; i < t->size; i++) {
        const struct link *l = t->f->peers[t->ranks[i]].link;
        if (l != NULL)
            t->n_ahead = MIN(t->n_ahead, l->ops->n_ahead);
    }
}

/* Fills everything but choices. ST_BAD_INPUT: the wires do not connect the members. */
static enum status find_shape(struct team *t, struct err *err) {
    t->trees = mem_calloc((size_t)t->size, sizeof *t->trees);
    t->staging = mem_huge_alloc(LINK_SLOT_BYTES);
    if (t->trees == NULL || t->staging == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a team of %d", t->size);
    int parent[FABRIC_MAX_RANKS], budget = 100000;
    t->mesh = true;
    for (int root = 0; root < t->size; root++) {
        if (!search(t, root, parent))
            return err_set(err, ST_BAD_INPUT,
                           "the wires do not connect rank %d with the others", t->ranks[root]);
        see_tree(t, parent, &t->trees[root]);
        for (int i = 0; i < root; i++)
            t->mesh = t->mesh && wired(t, i, root);
    }
    t->ring[0] = 0;
    t->has_ring = t->size > 2 && extend_ring(t, 1, 1, &budget);
    find_hosts(t);
    find_ahead(t);
    return ST_OK;
}

int team_after(const struct team *t, int steps) {
    int at = 0;
    while (t->ring[at] != t->index)
        at++;
    return t->ring[(at + steps + t->size) % t->size];
}

/* ---- choice ------------------------------------------------------------------------------ */

static const size_t measured_elements[TEAM_MAX_CHOICES] = {512, 4096, 32768, 262144};
#define REPEATS 3

/* A way to sum: an algorithm, its slots filled through the caches (even ways) or past them. */
#define MAX_WAYS 16

static struct team_choice way_of(size_t way) {
    return (struct team_choice){0, &sum_algorithms[way / 2], way % 2 == 1};
}

/* Some of the members do. */
static bool share_memory(const struct team *t) {
    return t->n_hosts < t->size && !t->f->emulated;
}

static bool fits(const struct team *t, size_t way) {
    struct team_choice c = way_of(way);
    if (c.past_caches && !share_memory(t))
        return false;
    if (t->size == 2 && way / 2 > 0)
        return false; /* nothing beats saying it once */
    return c.algorithm->fits(t);
}

/* The algorithm of what follows. */
static const struct sum_algorithm *take_way(struct team *t, struct team_choice c) {
    t->past_caches = c.past_caches;
    return c.algorithm;
}

/* The best of a few, in ns: what disturbs only ever adds. */
static enum status time_one(struct team *t, size_t way, int64_t *x, size_t n, int64_t *best,
                            struct err *err) {
    const struct sum_algorithm *a = take_way(t, way_of(way));
    *best = INT64_MAX;
    for (int i = 0; i < REPEATS; i++) {
        TRY(fabric_barrier(t, err));
        uint64_t begin = clock_ns();
        TRY(a->sum(t, x, n, err));
        TRY(message_flush(t->f, err));
        *best = MIN(*best, (int64_t)(clock_ns() - begin));
    }
    return ST_OK;
}

/* Every member timed it; the sum of all members' times decides, which all know exactly. */
static enum status choose(struct team *t, size_t n, int64_t *x, struct team_choice *chosen,
                          struct err *err) {
    int64_t times[MAX_WAYS] = {0}, best = INT64_MAX;
    size_t n_ways = 0;
    for (; way_of(n_ways).algorithm->name != NULL; n_ways++) {
        BUG_ON(n_ways >= ARRAY_LEN(times));
        if (fits(t, n_ways))
            TRY(time_one(t, n_ways, x, n, &times[n_ways], err));
    }
    TRY(way_of(n_ways - 1).algorithm->sum(t, times, n_ways, err));
    for (size_t i = 0; i < n_ways; i++)
        if (fits(t, i) && times[i] < best) {
            best = times[i];
            *chosen = way_of(i);
        }
    return ST_OK;
}

/* Measures the choices that fit the shape; a collective call. */
static enum status measure_choices(struct team *t, struct err *err) {
    struct team_choice *c = t->choices;
    t->n_choices = 1;
    c[0] = (struct team_choice){SIZE_MAX, &sum_algorithms[0], false};
    if (t->size == 1 || (t->size == 2 && !share_memory(t))) /* there is one way */
        return ST_OK;
    size_t limit = MAX(t->f->cfg.max_message_bytes / sizeof(int64_t), measured_elements[0]);
    int64_t *x = mem_huge_alloc(measured_elements[TEAM_MAX_CHOICES - 1] * sizeof *x);
    if (x == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to measure a team");
    enum status st = ST_OK;
    int n = 1;
    while (n < TEAM_MAX_CHOICES && measured_elements[n] <= limit)
        n++;
    /* From the largest size down: its messages go through all slots, and the slots are still
     * new. */
    for (int i = n - 1; i >= 0 && st == ST_OK; i--) {
        st = choose(t, measured_elements[i], x, &c[i], err);
        c[i].max_elements = measured_elements[i] * 3; /* half way up, as sizes go */
    }
    t->n_choices = n;
    c[n - 1].max_elements = SIZE_MAX;
    mem_huge_free(x, measured_elements[TEAM_MAX_CHOICES - 1] * sizeof *x);
    return st;
}

static struct team_choice choice(const struct team *t, size_t n) {
    int i = 0;
    while (i + 1 < t->n_choices && n > t->choices[i].max_elements)
        i++;
    return t->choices[i];
}

const char *team_algorithm(const struct team *t, size_t n) {
    return t->size == 1 ? "none" : choice(t, n).algorithm->name;
}

enum status fabric_allreduce(struct team *t, int64_t *x, size_t n, struct err *err) {
    if (t->size == 1 || n == 0)
        return ST_OK;
    TRY(group_failure_check(t->f, err));
    TRY(take_way(t, choice(t, n))->sum(t, x, n, err));
    return message_flush(t->f, err);
}

/* What has halves has them for sums of any size: that of the largest counts, since these are
 * what they are for. */
static struct team_choice of_halves(const struct team *t) {
    return t->choices[t->n_choices - 1];
}

bool team_has_halves(const struct team *t) {
    return t->size > 1 && of_halves(t).algorithm->share != NULL;
}

enum status fabric_reduce_scatter(struct team *t, int64_t *x, const size_t *begin,
                                  struct err *err) {
    TRY(group_failure_check(t->f, err));
    TRY(take_way(t, of_halves(t))->reduce_scatter(t, x, begin, err));
    return message_flush(t->f, err);
}

enum status fabric_allgather(struct team *t, const struct fabric_rows *list, size_t n,
                             const uint32_t *first, struct err *err) {
    TRY(group_failure_check(t->f, err));
    TRY(take_way(t, of_halves(t))->share(t, list, n, first, err));
    return message_flush(t->f, err);
}

enum status fabric_allreduce_beside(struct team *t, int64_t *x, size_t n, struct err *err) {
    t->f->patient = true;
    enum status st = fabric_allreduce(t, x, n, err);
    t->f->patient = false;
    return st;
}

/* ---- opening ----------------------------------------------------------------------------- */

static uint16_t team_hash(const int *ranks, int n_ranks) {
    uint8_t h[crypto_generichash_BYTES_MIN];
    crypto_generichash(h, sizeof h, (const uint8_t *)ranks, (size_t)n_ranks * sizeof *ranks,
                       NULL, 0);
    return (uint16_t)(h[0] | h[1] << 8);
}

static enum status check_members(const struct fabric *f, const int *ranks, int n_ranks,
                                 int *index, struct err *err) {
    uint64_t seen = 0;
    *index = -1;
    if (n_ranks < 1 || n_ranks > f->cfg.n_ranks)
        return err_set(err, ST_BAD_INPUT, "a team of %d in a group of %d", n_ranks,
                       f->cfg.n_ranks);
    for (int i = 0; i < n_ranks; i++) {
        if (ranks[i] < 0 || ranks[i] >= f->cfg.n_ranks || seen >> ranks[i] & 1)
            return err_set(err, ST_BAD_INPUT,
                           "a team with rank %d in place %d of a group of %d", ranks[i], i,
                           f->cfg.n_ranks);
        seen |= 1ull << ranks[i];
        if (ranks[i] == f->cfg.rank)
            *index = i;
    }
    if (*index < 0)
        return err_set(err, ST_BAD_INPUT, "rank %d opens a team that it is not a member of",
                       f->cfg.rank);
    return ST_OK;
}

enum status fabric_team(struct fabric *f, struct team **out, const int *ranks, int n_ranks,
                        struct err *err) {
    int index;
    TRY(check_members(f, ranks, n_ranks, &index, err));
    for (struct team *t = f->teams; t != NULL; t = t->next)
        if (t->size == n_ranks &&
            memcmp(t->ranks, ranks, (size_t)n_ranks * sizeof *ranks) == 0) {
            *out = t;
            return ST_OK;
        }
    struct team *t = mem_calloc(1, sizeof *t);
    if (t == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a team");
    t->f = f;
    t->id = team_hash(ranks, n_ranks);
    t->size = n_ranks;
    t->index = index;
    memcpy(t->ranks, ranks, (size_t)n_ranks * sizeof *ranks);
    enum status st = find_shape(t, err);
    if (st == ST_OK)
        st = measure_choices(t, err);
    if (st != ST_OK) {
        team_free(t);
        return st;
    }
    t->next = f->teams;
    f->teams = t;
    *out = t;
    return ST_OK;
}

void team_free(struct team *t) {
    mem_free(t->trees);
    mem_huge_free(t->staging, LINK_SLOT_BYTES);
    mem_free(t);
}

int team_size(const struct team *t) {
    return t->size;
}

int team_index(const struct team *t) {
    return t->index;
}

bool team_in_one_host(const struct team *t) {
    return t->n_hosts == 1 && !t->f->emulated;
}
