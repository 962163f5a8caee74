/* regular.c: the terms of regular sets. Terms are stored once (a hash table), with `or` and
 * `and` as sorted lists. So derivatives that mean the same mostly have the same number, and the
 * automaton stays small. */
#include "schema/regular.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "base/util.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NODES (1u << 19)
#define MAX_WORK (1u << 23) /* nodes looked at by derivatives */
#define MAX_DEPTH 1500      /* of recursion */
#define BUCKETS (1u << 14)
#define MANY REGULAR_MANY
#define MINUS 0x100u /* of a multiple: what has been read so far */

static const struct grammar_range characters[] = {{0, 0xd7ff}, {0xe000, CODE_POINT_MAX}};

/* --- terms --- */

static uint32_t give_up(struct regular *r, enum status st) {
    if (r->st == ST_OK)
        r->st = st;
    return 0; /* r->nothing, whatever it is asked for */
}

static bool spend(struct regular *r) {
    if (r->st == ST_OK && ++r->work > MAX_WORK)
        r->st = ST_UNSUPPORTED;
    return r->st == ST_OK;
}

static uint32_t plus(uint32_t a, uint32_t b) {
    return a > MANY - b ? MANY : a + b;
}

static uint32_t times(uint32_t a, uint32_t b) {
    uint64_t product = (uint64_t)a * b;
    return a == 0 || b == 0 ? 0 : product >= MANY ? MANY : (uint32_t)product;
}

/* What follows from the parts. */
static void derive_facts(const struct regular *r, struct regular_node *n) {
    static const struct regular_node none;
    bool has_parts = n->kind >= REGULAR_CAT && n->kind <= REGULAR_REPEAT;
    const struct regular_node *a = has_parts ? &r->nodes[n->a] : &none;
    const struct regular_node *b = has_parts ? &r->nodes[n->b] : &none;
    n->plain = true;
    switch (n->kind) {
    case REGULAR_SET:
        n->shortest = n->longest = 1;
        break;
    case REGULAR_EMPTY:
        n->has_empty = true;
        break;
    case REGULAR_CAT:
        n->has_empty = a->has_empty && b->has_empty;
        n->plain = a->plain && b->plain;
        n->shortest = plus(a->shortest, b->shortest);
        n->longest = plus(a->longest, b->longest);
        break;
    case REGULAR_OR:
        n->has_empty = a->has_empty || b->has_empty;
        n->plain = a->plain && b->plain;
        n->shortest = MIN(a->shortest, b->shortest);
        n->longest = MAX(a->longest, b->longest);
        break;
    case REGULAR_REPEAT:
        n->has_empty = n->min == 0 || a->has_empty;
        n->plain = a->plain;
        n->shortest = times(a->shortest, n->min);
        n->longest = times(a->longest, n->max);
        break;
    case REGULAR_AND:
        n->has_empty = a->has_empty && b->has_empty;
        n->plain = false;
        n->shortest = MAX(a->shortest, b->shortest);
        n->longest = MIN(a->longest, b->longest);
        break;
    case REGULAR_NOT:
        n->has_empty = !a->has_empty;
        n->plain = false;
        n->longest = MANY;
        break;
    case REGULAR_MULTIPLE:
        n->plain = false;
        n->longest = MANY;
        break;
    }
}

static bool same_node(const struct regular *r, const struct regular_node *x,
                      const struct regular_node *y) {
    if (x->kind != y->kind || x->b != y->b || x->min != y->min || x->max != y->max)
        return false;
    if (x->kind != REGULAR_SET)
        return x->a == y->a;
    return memcmp(r->ranges + x->a, r->ranges + y->a, x->b * sizeof *r->ranges) == 0;
}

static uint32_t mix(uint32_t hash, uint32_t v) {
    return (uint32_t)((hash ^ v) * 0x9e3779b97f4a7c15u >> 29);
}

static uint32_t hash_of(const struct regular *r, const struct regular_node *n) {
    uint32_t hash = mix(mix(mix(n->kind, n->b), n->min), n->max);
    if (n->kind != REGULAR_SET)
        return mix(hash, n->a);
    for (uint32_t i = 0; i < n->b; i++)
        hash = mix(mix(hash, r->ranges[n->a + i].low), r->ranges[n->a + i].high);
    return hash;
}

/* The term of a node. A set's ranges are the last ones; they go if it is known. */
static uint32_t keep(struct regular *r, struct regular_node node) {
    if (r->st != ST_OK)
        return 0;
    uint32_t *bucket = &r->buckets[hash_of(r, &node) % BUCKETS];
    for (uint32_t i = *bucket; i != MANY; i = r->nodes[i].chain)
        if (same_node(r, &r->nodes[i], &node)) {
            if (node.kind == REGULAR_SET)
                r->n_ranges = node.a;
            return i;
        }
    if (r->n_nodes == MAX_NODES)
        return give_up(r, ST_UNSUPPORTED);
    if (!mem_reserve(&r->nodes, &r->nodes_cap, r->n_nodes + 1, sizeof *r->nodes))
        return give_up(r, ST_NO_MEMORY);
    derive_facts(r, &node);
    node.chain = *bucket;
    r->nodes[r->n_nodes] = node;
    *bucket = (uint32_t)r->n_nodes;
    return (uint32_t)r->n_nodes++;
}

static int by_low(const void *a, const void *b) {
    const struct grammar_range *x = a, *y = b;
    return x->low < y->low ? -1 : x->low > y->low;
}

/* ranges[first ..) without overlap, surrogates and gaps of nothing. */
static void settle(struct regular *r, size_t first) {
    size_t n = r->n_ranges - first, joined = first;
    struct grammar_range *v = r->ranges;
    if (n > 1)
        qsort(v + first, n, sizeof *v, by_low);
    for (size_t i = first; i < first + n; i++) {
        if (joined > first && v[i].low <= v[joined - 1].high + 1)
            v[joined - 1].high = MAX(v[joined - 1].high, v[i].high);
        else
            v[joined++] = v[i];
    }
    r->n_ranges = joined;
}

static bool add_range(struct regular *r, uint32_t low, uint32_t high) {
    if (low > high)
        return true;
    if (!mem_reserve(&r->ranges, &r->ranges_cap, r->n_ranges + 1, sizeof *r->ranges)) {
        give_up(r, ST_NO_MEMORY);
        return false;
    }
    r->ranges[r->n_ranges++] = (struct grammar_range){low, high};
    return true;
}

uint32_t regular_set(struct regular *r, const struct grammar_range *ranges, size_t n) {
    size_t first = r->n_ranges;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < ARRAY_LEN(characters); k++)
            if (!add_range(r, MAX(ranges[i].low, characters[k].low),
                           MIN(ranges[i].high, characters[k].high)))
                return 0;
    settle(r, first);
    return keep(r, (struct regular_node){.kind = REGULAR_SET,
                                         .a = (uint32_t)first,
                                         .b = (uint32_t)(r->n_ranges - first)});
}

uint32_t regular_text(struct regular *r, const char *utf8, size_t len) {
    uint32_t *chars = mem_alloc((len + 1) * sizeof *chars), term = r->empty;
    size_t n = 0;
    if (chars == NULL)
        return give_up(r, ST_NO_MEMORY);
    for (size_t i = 0; i < len;) {
        int step = utf8_check((const uint8_t *)utf8 + i, len - i);
        chars[n++] = step > 0 ? utf8_decode((const uint8_t *)utf8 + i, step) : 0xfffd;
        i += step > 0 ? (size_t)step : 1;
    }
    while (n-- > 0)
        term = regular_cat(r, regular_set(r, &(struct grammar_range){chars[n], chars[n]}, 1),
                           term);
    mem_free(chars);
    return term;
}

static struct regular_node node_of(const struct regular *r, uint32_t term) {
    return r->nodes[term];
}

uint32_t regular_cat(struct regular *r, uint32_t a, uint32_t b) {
    struct regular_node x = node_of(r, a);
    if (a == r->nothing || b == r->nothing)
        return r->nothing;
    if (a == r->empty || b == r->empty)
        return a == r->empty ? b : a;
    if (a == r->all && b == r->all)
        return a;
    if (x.kind == REGULAR_CAT) { /* to the right */
        if (++r->depth > MAX_DEPTH)
            return give_up(r, ST_UNSUPPORTED);
        b = regular_cat(r, x.b, b);
        r->depth--;
        return regular_cat(r, x.a, b);
    }
    return keep(r, (struct regular_node){.kind = REGULAR_CAT, .a = a, .b = b});
}

/* The head of a sorted list of `kind`, and the rest (zero: none). */
static uint32_t head(const struct regular *r, enum regular_kind kind, uint32_t term) {
    return r->nodes[term].kind == kind ? r->nodes[term].a : term;
}

static uint32_t rest(const struct regular *r, enum regular_kind kind, uint32_t term) {
    return r->nodes[term].kind == kind ? r->nodes[term].b : MANY;
}

/* The union of two sorted lists, each of one term or more. */
static uint32_t merge_lists(struct regular *r, enum regular_kind kind, uint32_t a, uint32_t b) {
    uint32_t *items = NULL, term;
    size_t n = 0, cap = 0;
    while ((a != MANY || b != MANY) && spend(r)) {
        uint32_t x = a != MANY ? head(r, kind, a) : MANY,
                 y = b != MANY ? head(r, kind, b) : MANY;
        if (!mem_reserve(&items, &cap, n + 1, sizeof *items))
            give_up(r, ST_NO_MEMORY);
        else
            items[n++] = MIN(x, y);
        a = x <= y ? rest(r, kind, a) : a;
        b = y <= x ? rest(r, kind, b) : b;
    }
    term = n > 0 && r->st == ST_OK ? items[--n] : 0;
    while (n > 0 && r->st == ST_OK)
        term = keep(r, (struct regular_node){.kind = kind, .a = items[--n], .b = term});
    mem_free(items);
    return term;
}

/* Two sets of one character as one. */
static uint32_t unite_sets(struct regular *r, uint32_t a, uint32_t b) {
    struct regular_node x = node_of(r, a), y = node_of(r, b);
    size_t first = r->n_ranges;
    for (uint32_t i = 0; i < x.b + y.b; i++) {
        struct grammar_range range = r->ranges[i < x.b ? x.a + i : y.a + (i - x.b)];
        if (!add_range(r, range.low, range.high))
            return 0;
    }
    settle(r, first);
    return keep(r, (struct regular_node){.kind = REGULAR_SET,
                                         .a = (uint32_t)first,
                                         .b = (uint32_t)(r->n_ranges - first)});
}

uint32_t regular_or(struct regular *r, uint32_t a, uint32_t b) {
    if (a == b || b == r->nothing || a == r->all)
        return a;
    if (a == r->nothing || b == r->all)
        return b;
    if (r->nodes[a].kind == REGULAR_SET && r->nodes[b].kind == REGULAR_SET)
        return unite_sets(r, a, b);
    return merge_lists(r, REGULAR_OR, a, b);
}

uint32_t regular_and(struct regular *r, uint32_t a, uint32_t b) {
    if (a == b || b == r->all || a == r->nothing)
        return a;
    if (a == r->all || b == r->nothing)
        return b;
    if (a == r->empty || b == r->empty)
        return r->nodes[a].has_empty && r->nodes[b].has_empty ? r->empty : r->nothing;
    return merge_lists(r, REGULAR_AND, a, b);
}

uint32_t regular_not(struct regular *r, uint32_t a) {
    if (a == r->nothing || a == r->all)
        return a == r->nothing ? r->all : r->nothing;
    if (r->nodes[a].kind == REGULAR_NOT)
        return r->nodes[a].a;
    return keep(r, (struct regular_node){.kind = REGULAR_NOT, .a = a});
}

uint32_t regular_repeat(struct regular *r, uint32_t a, uint32_t min, uint32_t max) {
    struct regular_node x = node_of(r, a);
    if (max == 0 || a == r->empty || (a == r->nothing && min == 0))
        return r->empty;
    if ((min == 1 && max == 1) || a == r->nothing)
        return a;
    if (x.has_empty)
        min = 0;
    if (x.kind == REGULAR_REPEAT && x.min == 0 && x.max == MANY)
        return a;
    return keep(r,
                (struct regular_node){.kind = REGULAR_REPEAT, .a = a, .min = min, .max = max});
}

/* In a: the remainder so far, and MINUS + digits behind the point (0: none came yet). In b: m, in
 * min: places. */
uint32_t regular_multiple(struct regular *r, uint32_t m, uint32_t places) {
    return keep(r, (struct regular_node){
                       .kind = REGULAR_MULTIPLE, .has_empty = true, .b = m, .min = places});
}

void regular_init(struct regular *r) {
    *r = (struct regular){.st = ST_OK};
    r->buckets = mem_alloc(BUCKETS * sizeof *r->buckets);
    if (r->buckets == NULL || !mem_reserve(&r->nodes, &r->nodes_cap, 16, sizeof *r->nodes)) {
        give_up(r, ST_NO_MEMORY);
        return;
    }
    for (size_t i = 0; i < BUCKETS; i++)
        r->buckets[i] = MANY;
    r->nothing = regular_set(r, NULL, 0);
    r->empty = keep(r, (struct regular_node){.kind = REGULAR_EMPTY});
    r->any = regular_set(r, characters, ARRAY_LEN(characters));
    r->all = regular_repeat(r, r->any, 0, MANY);
}

void regular_deinit(struct regular *r) {
    mem_free(r->nodes);
    mem_free(r->ranges);
    mem_free(r->buckets);
    mem_free(r->memo);
    mem_free(r->memo_turn);
    *r = (struct regular){.st = ST_OK};
}

enum status regular_status(const struct regular *r) {
    return r->st;
}

/* --- derivatives --- */

static uint32_t derive(struct regular *r, uint32_t term, uint32_t c);

static uint32_t derive_set(const struct regular *r, const struct regular_node *n, uint32_t c) {
    for (uint32_t i = 0; i < n->b; i++)
        if (r->ranges[n->a + i].low <= c && c <= r->ranges[n->a + i].high)
            return r->empty;
    return r->nothing;
}

/* Of a cat, along all parts that may be left out. */
static uint32_t derive_cat(struct regular *r, struct regular_node n, uint32_t c) {
    uint32_t sum = r->nothing;
    for (;;) {
        sum = regular_or(r, sum, regular_cat(r, derive(r, n.a, c), n.b));
        if (!r->nodes[n.a].has_empty || r->st != ST_OK)
            return sum;
        if (r->nodes[n.b].kind != REGULAR_CAT)
            return regular_or(r, sum, derive(r, n.b, c));
        n = node_of(r, n.b);
    }
}

static uint32_t derive_list(struct regular *r, enum regular_kind kind, uint32_t term,
                            uint32_t c) {
    uint32_t sum = kind == REGULAR_OR ? r->nothing : r->all;
    for (; term != MANY && r->st == ST_OK; term = rest(r, kind, term)) {
        uint32_t part = derive(r, head(r, kind, term), c);
        sum = kind == REGULAR_OR ? regular_or(r, sum, part) : regular_and(r, sum, part);
    }
    return sum;
}

static uint32_t derive_repeat(struct regular *r, struct regular_node n, uint32_t c) {
    uint32_t more =
        regular_repeat(r, n.a, n.min > 0 ? n.min - 1 : 0, n.max == MANY ? MANY : n.max - 1);
    return regular_cat(r, derive(r, n.a, c), more);
}

/* max counts the digits behind the point, plus 1 once it has come. */
static uint32_t derive_multiple(struct regular *r, struct regular_node n, uint32_t c) {
    if (c == '-')
        return keep(r, n);
    if (c == '.' && n.max == 0) {
        n.max = 1;
        return keep(r, n);
    }
    if (c < '0' || c > '9')
        return r->nothing;
    if (n.max > n.min) { /* all places have come: zeros may follow */
        if (c != '0')
            return r->nothing;
        return keep(r, n);
    }
    n.max += n.max > 0;
    n.a = (uint32_t)(((uint64_t)n.a * 10 + (c - '0')) % n.b);
    uint64_t scaled = n.a;
    for (uint32_t i = n.max > 0 ? n.max - 1 : 0; i < n.min; i++)
        scaled = scaled * 10 % n.b;
    n.has_empty = scaled == 0;
    return keep(r, n);
}

/* Texts t such that c and then t is of the term. */
static uint32_t derive(struct regular *r, uint32_t term, uint32_t c) {
    struct regular_node n = node_of(r, term);
    uint32_t out = r->nothing;
    if (!spend(r))
        return out;
    if (n.kind == REGULAR_SET)
        return derive_set(r, &n, c);
    if (term < r->turn_cap && r->memo_turn[term] == r->turn)
        return r->memo[term];
    if (++r->depth > MAX_DEPTH)
        return give_up(r, ST_UNSUPPORTED);
    switch (n.kind) {
    case REGULAR_SET:
    case REGULAR_EMPTY:
        break;
    case REGULAR_CAT:
        out = derive_cat(r, n, c);
        break;
    case REGULAR_OR:
    case REGULAR_AND:
        out = derive_list(r, n.kind, term, c);
        break;
    case REGULAR_NOT:
        out = regular_not(r, derive(r, n.a, c));
        break;
    case REGULAR_REPEAT:
        out = derive_repeat(r, n, c);
        break;
    case REGULAR_MULTIPLE:
        out = derive_multiple(r, n, c);
        break;
    }
    r->depth--;
    if (term < r->turn_cap) {
        r->memo[term] = out;
        r->memo_turn[term] = r->turn;
    }
    return out;
}

/* Space to remember the derivatives of all terms that exist now. */
static bool begin_turn(struct regular *r) {
    size_t had = r->turn_cap;
    if (r->n_nodes > had) {
        if (!mem_reserve(&r->memo, &r->memo_cap, r->n_nodes * 2, sizeof *r->memo) ||
            !mem_reserve(&r->memo_turn, &r->turn_cap, r->n_nodes * 2, sizeof *r->memo_turn)) {
            r->turn_cap = had;
            give_up(r, ST_NO_MEMORY);
            return false;
        }
        r->turn_cap = MIN(r->turn_cap, r->memo_cap);
        memset(r->memo_turn + had, 0, (r->turn_cap - had) * sizeof *r->memo_turn);
    }
    r->turn++;
    r->depth = 0;
    return r->st == ST_OK;
}

static uint32_t step(struct regular *r, uint32_t term, uint32_t c) {
    return begin_turn(r) ? derive(r, term, c) : r->nothing;
}

bool regular_matches(struct regular *r, uint32_t term, const char *utf8, size_t len) {
    for (size_t i = 0; i < len && r->st == ST_OK;) {
        int n = utf8_check((const uint8_t *)utf8 + i, len - i);
        if (n <= 0)
            return false;
        term = step(r, term, utf8_decode((const uint8_t *)utf8 + i, n));
        i += (size_t)n;
    }
    return r->st == ST_OK && r->nodes[term].has_empty;
}

/* --- automata --- */

/* Where the characters are cut: between two cuts a term cannot tell them apart. */
struct cuts {
    uint32_t *v;
    size_t n, cap;
};

static void add_cut(struct regular *r, struct cuts *cuts, uint32_t c) {
    if (!mem_reserve(&cuts->v, &cuts->cap, cuts->n + 1, sizeof *cuts->v))
        give_up(r, ST_NO_MEMORY);
    else
        cuts->v[cuts->n++] = c;
}

static void find_cuts(struct regular *r, struct cuts *cuts, uint32_t term) {
    struct regular_node n = node_of(r, term);
    if (!spend(r) || (term < r->turn_cap && r->memo_turn[term] == r->turn))
        return;
    if (term < r->turn_cap)
        r->memo_turn[term] = r->turn;
    if (++r->depth > MAX_DEPTH) {
        give_up(r, ST_UNSUPPORTED);
        return;
    }
    switch (n.kind) {
    case REGULAR_EMPTY:
        break;
    case REGULAR_SET:
        for (uint32_t i = 0; i < n.b; i++) {
            add_cut(r, cuts, r->ranges[n.a + i].low);
            add_cut(r, cuts, r->ranges[n.a + i].high + 1);
        }
        break;
    case REGULAR_CAT:
        find_cuts(r, cuts, n.a);
        if (r->nodes[n.a].has_empty)
            find_cuts(r, cuts, n.b);
        break;
    case REGULAR_OR:
    case REGULAR_AND:
        for (; term != MANY && r->st == ST_OK; term = rest(r, n.kind, term))
            find_cuts(r, cuts, head(r, n.kind, term));
        break;
    case REGULAR_NOT:
    case REGULAR_REPEAT:
        find_cuts(r, cuts, n.a);
        break;
    case REGULAR_MULTIPLE:
        for (uint32_t c = '-'; c <= '9' + 1; c++)
            add_cut(r, cuts, c);
        break;
    }
    r->depth--;
}

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

struct builder {
    struct regular *r;
    struct regular_automaton *a;
    uint32_t *state_of; /* [term], MANY: none yet */
    size_t n_terms, terms_cap, max_states;
    bool full;
    struct cuts cuts;
};

static uint32_t state_of(struct builder *b, uint32_t term) {
    struct regular_automaton *a = b->a;
    if (term >= b->n_terms) {
        size_t had = b->n_terms;
        if (!mem_reserve(&b->state_of, &b->terms_cap, b->r->n_nodes, sizeof *b->state_of))
            return give_up(b->r, ST_NO_MEMORY);
        b->n_terms = b->r->n_nodes;
        memset(b->state_of + had, 0xff, (b->n_terms - had) * sizeof *b->state_of);
    }
    if (b->state_of[term] != MANY)
        return b->state_of[term];
    if (a->n_states == b->max_states) {
        b->full = true;
        return 0;
    }
    if (!mem_reserve(&a->states, &a->states_cap, a->n_states + 1, sizeof *a->states))
        return give_up(b->r, ST_NO_MEMORY);
    a->states[a->n_states] =
        (struct regular_state){.term = term, .accepts = b->r->nodes[term].has_empty};
    return b->state_of[term] = (uint32_t)a->n_states++;
}

static void add_edge(struct builder *b, size_t from, struct regular_edge edge) {
    struct regular_automaton *a = b->a;
    struct regular_state *s = &a->states[from];
    struct regular_edge *last = s->n > 0 ? &a->edges[a->n_edges - 1] : NULL;
    if (last != NULL && last->to == edge.to && last->high + 1 == edge.low) {
        last->high = edge.high;
        return;
    }
    if (!mem_reserve(&a->edges, &a->edges_cap, a->n_edges + 1, sizeof *a->edges)) {
        give_up(b->r, ST_NO_MEMORY);
        return;
    }
    a->edges[a->n_edges++] = edge;
    s->n++;
}

static void explore(struct builder *b, size_t i) {
    struct regular *r = b->r;
    uint32_t term = b->a->states[i].term;
    b->cuts.n = 0;
    b->a->states[i].first = (uint32_t)b->a->n_edges;
    if (!begin_turn(r))
        return;
    for (size_t k = 0; k < ARRAY_LEN(characters); k++) {
        add_cut(r, &b->cuts, characters[k].low);
        add_cut(r, &b->cuts, characters[k].high + 1);
    }
    find_cuts(r, &b->cuts, term);
    if (r->st == ST_OK)
        qsort(b->cuts.v, b->cuts.n, sizeof *b->cuts.v, by_value);
    for (size_t k = 0; k + 1 < b->cuts.n && r->st == ST_OK && !b->full; k++) {
        uint32_t low = b->cuts.v[k], high = b->cuts.v[k + 1] - 1;
        if (low > high || low > CODE_POINT_MAX || (low >= 0xd800 && low <= 0xdfff))
            continue;
        uint32_t to = step(r, term, low);
        if (to != r->nothing)
            add_edge(b, i, (struct regular_edge){low, high, state_of(b, to)});
    }
}

/* Leaves out what leads nowhere: states from which nothing is accepted. */
static bool prune(struct regular_automaton *a) {
    bool *lives = mem_calloc(a->n_states + 1, 1);
    uint32_t *number = mem_alloc((a->n_states + 1) * sizeof *number);
    bool ok = lives != NULL && number != NULL;
    for (bool changed = ok; changed;) {
        changed = false;
        for (size_t i = a->n_states; i-- > 0;) {
            const struct regular_state *s = &a->states[i];
            bool now = s->accepts;
            for (uint32_t k = 0; k < s->n && !now; k++)
                now = lives[a->edges[s->first + k].to];
            changed = changed || (now && !lives[i]);
            lives[i] = lives[i] || now;
        }
    }
    size_t n_states = 0, n_edges = 0;
    for (size_t i = 0; i < a->n_states && ok; i++)
        number[i] = lives[i] || i == 0 ? (uint32_t)n_states++ : MANY;
    for (size_t i = 0; i < a->n_states && ok; i++) {
        struct regular_state s = a->states[i];
        if (number[i] == MANY)
            continue;
        uint32_t first = (uint32_t)n_edges;
        for (uint32_t k = 0; k < s.n; k++) {
            struct regular_edge e = a->edges[s.first + k];
            if (lives[e.to])
                a->edges[n_edges++] = (struct regular_edge){e.low, e.high, number[e.to]};
        }
        a->states[number[i]] =
            (struct regular_state){first, (uint32_t)n_edges - first, s.term, s.accepts};
    }
    if (ok) {
        a->n_states = n_states;
        a->n_edges = n_edges;
    }
    mem_free(lives);
    mem_free(number);
    return ok;
}

enum status regular_automaton_init(struct regular_automaton *a, struct regular *r,
                                   uint32_t term, size_t max_states) {
    struct builder b = {.r = r, .a = a, .max_states = max_states};
    if (r->st == ST_OK)
        state_of(&b, term);
    for (size_t i = 0; i < a->n_states && r->st == ST_OK && !b.full; i++)
        explore(&b, i);
    mem_free(b.state_of);
    mem_free(b.cuts.v);
    if (r->st != ST_OK || b.full)
        return b.full ? ST_UNSUPPORTED : r->st;
    return prune(a) ? ST_OK : ST_NO_MEMORY;
}

void regular_automaton_deinit(struct regular_automaton *a) {
    mem_free(a->states);
    mem_free(a->edges);
    *a = (struct regular_automaton){0};
}

bool regular_automaton_is_empty(const struct regular_automaton *a) {
    return a->n_states == 1 && !a->states[0].accepts && a->n_edges == 0;
}
