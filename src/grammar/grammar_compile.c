/* grammar_compile.c: the tree of a grammar to an automaton over bytes. Two checks make running
 * it safe: no rule calls itself before reading a byte, and the root can end. */
#include "grammar/grammar.h"
#include "grammar/grammar_impl.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "base/util.h"

/* Up to this many copies of a repeated item are written one after the other. Beyond that,
 * groups of them become rules of their own. */
#define COPIES_MAX 64

/* A limit on the copies of the tree's items. Nearly every copy adds a node. Copies of nothing
 * ("" and {0}) add none, and nested repetitions of them would never finish. */
#define COPIED_ITEMS_MAX (4 * GRAMMAR_MAX_NODES)

#define NODE_BUCKETS (1u << 14)
/* Nodes are not shared beyond: a text may be made to have them all in one bucket. */
#define CHAIN_LOOKED_AT 64

struct compiler {
    const struct grammar_tree *tree;
    struct grammar_automaton *a;
    struct err *err;
    uint32_t n_copied;
    uint32_t *buckets; /* [NODE_BUCKETS] a hash table of all nodes that may be shared */
    uint32_t *chain;   /* [a->n_nodes] of the table */
    size_t chain_cap;
};

#define NONE UINT32_MAX

static uint32_t *filled(size_t n) {
    uint32_t *v = mem_alloc(n * sizeof *v);
    for (size_t i = 0; v != NULL && i < n; i++)
        v[i] = NONE;
    return v;
}

/* --- building, from the end to the front: each function gets the next node and returns the
 * first one. Equal continuations are the same node: alternatives that end alike, and the ends
 * of [a-z]{0,3} and [a-z]{0,9} before the same text. So a text with several such readings is in
 * one node, not in many --- */

/* A node that will be changed, and so is not shared. */
static enum status add_own_node(struct compiler *c, struct grammar_node node, uint32_t *out) {
    struct grammar_automaton *a = c->a;
    if (a->n_nodes == GRAMMAR_MAX_NODES)
        return err_set(c->err, ST_BAD_INPUT,
                       "the grammar is too large: its automaton has more than %d nodes",
                       GRAMMAR_MAX_NODES);
    if (!mem_reserve(&a->nodes, &a->nodes_cap, a->n_nodes + 1, sizeof *a->nodes) ||
        !mem_reserve(&c->chain, &c->chain_cap, a->n_nodes + 1, sizeof *c->chain))
        return err_set(c->err, ST_NO_MEMORY, "no memory for the grammar's automaton");
    a->nodes[a->n_nodes] = node;
    *out = (uint32_t)a->n_nodes++;
    return ST_OK;
}

static bool same_node(const struct grammar_node *x, const struct grammar_node *y) {
    return x->kind == y->kind && x->low == y->low && x->high == y->high && x->next == y->next &&
           x->other == y->other;
}

static uint32_t *bucket_of(const struct compiler *c, const struct grammar_node *n) {
    uint64_t key = ((uint64_t)n->next << 32 | n->other) ^
                   (uint64_t)(n->kind << 16 | n->low << 8 | n->high) << 20;
    return &c->buckets[(key * 0x9e3779b97f4a7c15u >> 32) % NODE_BUCKETS];
}

static enum status add_node(struct compiler *c, struct grammar_node node, uint32_t *out) {
    uint32_t *bucket = bucket_of(c, &node);
    uint32_t left = CHAIN_LOOKED_AT;
    for (uint32_t i = *bucket; i != NONE && left-- > 0; i = c->chain[i])
        if (same_node(&c->a->nodes[i], &node)) {
            *out = i;
            return ST_OK;
        }
    TRY(add_own_node(c, node, out));
    c->chain[*out] = *bucket;
    *bucket = *out;
    return ST_OK;
}

static enum status add_bytes(struct compiler *c, uint8_t low, uint8_t high, uint32_t next,
                             uint32_t *out) {
    return add_node(c, (struct grammar_node){NODE_BYTES, low, high, false, next, NONE}, out);
}

static enum status add_split(struct compiler *c, uint32_t next, uint32_t other, uint32_t *out) {
    return add_node(c, (struct grammar_node){NODE_SPLIT, 0, 0, false, next, other}, out);
}

static enum status add_call(struct compiler *c, uint32_t rule, uint32_t next, uint32_t *out) {
    return add_node(c, (struct grammar_node){NODE_CALL, 0, 0, false, next, rule}, out);
}

/* *choice = other or *choice. */
static enum status or_else(struct compiler *c, uint32_t other, uint32_t *choice) {
    if (*choice == NONE) {
        *choice = other;
        return ST_OK;
    }
    return add_split(c, other, *choice, choice);
}

/* The characters low to high. Their UTF-8 forms have the same length, and each byte's range is
 * independent of the others. */
static enum status add_block(struct compiler *c, uint32_t low, uint32_t high, uint32_t next,
                             uint32_t *choice) {
    uint8_t from[4], to[4];
    int len = utf8_encode(low, from);
    utf8_encode(high, to);
    uint32_t node = next;
    for (int i = len - 1; i >= 0; i--)
        TRY(add_bytes(c, from[i], to[i], node, &node));
    return or_else(c, node, choice);
}

/* Cuts low..high where the UTF-8 length changes, around the surrogates, and where a byte's
 * range would depend on the byte before it. */
static enum status add_range(struct compiler *c, uint32_t low, uint32_t high, uint32_t next,
                             uint32_t *choice) {
    static const uint32_t last_of_length[] = {0x7f, 0x7ff, 0xd7ff, 0xdfff, 0xffff};
    while (low <= high) {
        uint32_t end = high;
        for (size_t i = 0; i < ARRAY_LEN(last_of_length); i++)
            if (low <= last_of_length[i] && last_of_length[i] < end)
                end = last_of_length[i];
        for (uint32_t bits = 6; low > 0x7f && bits <= 18; bits += 6) {
            uint32_t mask = (1u << bits) - 1;
            if ((low & ~mask) == (end & ~mask))
                break;
            if ((low & mask) != 0) { /* up to where the lower bytes begin anew */
                end = low | mask;
                break;
            }
            if ((end & mask) != mask) /* whole turns of the lower bytes first */
                end = (end & ~mask) - 1;
        }
        if (low < 0xd800 || low > 0xdfff)
            TRY(add_block(c, low, end, next, choice));
        low = end + 1;
    }
    return ST_OK;
}

static enum status add_class(struct compiler *c, const struct grammar_item *item, uint32_t next,
                             uint32_t *out) {
    uint32_t choice = NONE;
    for (uint32_t i = 0; i < item->b; i++) {
        struct grammar_range r = c->tree->ranges[item->a + i];
        TRY(add_range(c, r.low, r.high, next, &choice));
    }
    if (choice == NONE) /* an empty class matches nothing: a range that no byte is in */
        return add_bytes(c, 1, 0, next, out);
    *out = choice;
    return ST_OK;
}

static enum status add_item(struct compiler *c, uint32_t index, uint32_t next, uint32_t *out);

static enum status add_copies(struct compiler *c, uint32_t item, uint32_t n, uint32_t next,
                              uint32_t *out) {
    *out = next;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t before = *out;
        TRY(add_item(c, item, before, out));
        if (*out == before) /* nothing, however often */
            break;
    }
    return ST_OK;
}

static enum status add_rule_of(struct compiler *c, uint32_t item, uint32_t n, uint32_t *rule) {
    struct grammar_automaton *a = c->a;
    uint32_t end = NONE, start;
    TRY(add_node(c, (struct grammar_node){NODE_END, 0, 0, false, NONE, NONE}, &end));
    TRY(add_copies(c, item, n, end, &start));
    if (!mem_reserve(&a->starts, &a->starts_cap, a->n_rules + 1, sizeof *a->starts))
        return err_set(c->err, ST_NO_MEMORY, "no memory for the grammar's automaton");
    a->starts[a->n_rules] = start;
    *rule = (uint32_t)a->n_rules++;
    return ST_OK;
}

static uint32_t group_size(uint32_t n) {
    uint32_t size = COPIES_MAX;
    while (size * size < n)
        size *= 2;
    return size;
}

/* n times, in groups if there are many. */
static enum status add_exactly(struct compiler *c, uint32_t item, uint32_t n, uint32_t next,
                               uint32_t *out) {
    if (n <= COPIES_MAX)
        return add_copies(c, item, n, next, out);
    uint32_t size = group_size(n), rule;
    TRY(add_rule_of(c, item, size, &rule));
    TRY(add_copies(c, item, n % size, next, out));
    for (uint32_t i = 0; i < n / size; i++)
        TRY(add_call(c, rule, *out, out));
    return ST_OK;
}

static enum status add_few(struct compiler *c, uint32_t item, uint32_t n, uint32_t next,
                           uint32_t *out) {
    *out = next;
    for (uint32_t i = 0; i < n; i++) {
        TRY(add_item(c, item, *out, out));
        TRY(add_split(c, *out, next, out));
    }
    return ST_OK;
}

/* 0 to n times. If n is large, with g groups of s and n = g*s + r: either at most g-1 groups
 * and then less than s more, or all g groups and at most r more. */
static enum status add_up_to(struct compiler *c, uint32_t item, uint32_t n, uint32_t next,
                             uint32_t *out) {
    if (n <= COPIES_MAX)
        return add_few(c, item, n, next, out);
    uint32_t size = group_size(n), groups = n / size, rule, less, more;
    TRY(add_rule_of(c, item, size, &rule));
    TRY(add_few(c, item, size - 1, next, &less));
    TRY(add_few(c, item, n % size, next, &more));
    uint32_t some = less;
    for (uint32_t i = 0; i < groups; i++) {
        if (i > 0) {
            TRY(add_call(c, rule, some, &some));
            TRY(add_split(c, some, less, &some));
        }
        TRY(add_call(c, rule, more, &more));
    }
    return add_split(c, some, more, out);
}

static enum status add_any_number(struct compiler *c, uint32_t item, uint32_t next,
                                  uint32_t *out) {
    uint32_t loop = NONE, body;
    TRY(add_own_node(c, (struct grammar_node){NODE_SPLIT, 0, 0, false, next, next}, &loop));
    TRY(add_item(c, item, loop, &body));
    c->a->nodes[loop].next = body;
    *out = loop;
    return ST_OK;
}

static enum status add_repeat(struct compiler *c, const struct grammar_item *r, uint32_t next,
                              uint32_t *out) {
    uint32_t item = c->tree->children[r->a], rest;
    TRY(r->max == GRAMMAR_NO_LIMIT ? add_any_number(c, item, next, &rest)
                                   : add_up_to(c, item, r->max - r->min, next, &rest));
    return add_exactly(c, item, r->min, rest, out);
}

static enum status add_item(struct compiler *c, uint32_t index, uint32_t next, uint32_t *out) {
    const struct grammar_item *item = &c->tree->items[index];
    uint32_t node = next;
    if (c->n_copied++ == COPIED_ITEMS_MAX)
        return err_set(c->err, ST_BAD_INPUT,
                       "the grammar is too large: its repetitions copy more than %d items",
                       COPIED_ITEMS_MAX);
    switch (item->kind) {
    case ITEM_LITERAL:
        for (uint32_t i = item->b; i-- > 0;) {
            uint8_t byte = c->tree->bytes[item->a + i];
            TRY(add_bytes(c, byte, byte, node, &node));
        }
        break;
    case ITEM_CLASS:
        TRY(add_class(c, item, next, &node));
        break;
    case ITEM_SEQUENCE:
        for (uint32_t i = item->b; i-- > 0;)
            TRY(add_item(c, c->tree->children[item->a + i], node, &node));
        break;
    case ITEM_CHOICE:
        node = NONE;
        for (uint32_t i = item->b; i-- > 0;) {
            uint32_t first;
            TRY(add_item(c, c->tree->children[item->a + i], next, &first));
            TRY(or_else(c, first, &node));
        }
        break;
    case ITEM_REPEAT:
        TRY(add_repeat(c, item, next, &node));
        break;
    case ITEM_RULE:
        TRY(add_call(c, item->a, next, &node));
        break;
    }
    *out = node;
    return ST_OK;
}

static enum status build(struct compiler *c) {
    struct grammar_automaton *a = c->a;
    a->starts_cap = a->n_rules = c->tree->n_rules;
    a->starts = mem_calloc(a->n_rules, sizeof *a->starts);
    if (a->starts == NULL)
        return err_set(c->err, ST_NO_MEMORY, "no memory for the grammar's automaton");
    for (size_t i = 0; i < c->tree->n_rules; i++) {
        uint32_t end = NONE, start;
        TRY(add_node(c, (struct grammar_node){NODE_END, 0, 0, false, NONE, NONE}, &end));
        TRY(add_item(c, c->tree->rules[i].item, end, &start));
        a->starts[i] = start;
    }
    a->root = a->starts[c->tree->root];
    return ST_OK;
}

/* --- which nodes can reach the end of their rule --- */

/* Predecessors of nodes and callers of rules, as linked lists of edges. */
struct edges {
    uint32_t *head, *link; /* edge e belongs to node e / 2 */
    uint32_t *callers, *next_caller;
    uint32_t *begins;     /* [node] a rule that it begins */
    uint32_t *next_begun; /* [rule] another rule that the same node begins */
    uint32_t *todo;
};

static void edges_deinit(struct edges *e) {
    mem_free(e->head);
    mem_free(e->link);
    mem_free(e->callers);
    mem_free(e->next_caller);
    mem_free(e->begins);
    mem_free(e->next_begun);
    mem_free(e->todo);
}

static bool edges_init(struct edges *e, const struct grammar_automaton *a) {
    e->head = filled(a->n_nodes);
    e->link = filled(2 * a->n_nodes);
    e->callers = filled(a->n_rules);
    e->next_caller = filled(a->n_nodes);
    e->begins = filled(a->n_nodes);
    e->next_begun = filled(a->n_rules);
    e->todo = mem_alloc(a->n_nodes * sizeof *e->todo);
    if (e->head == NULL || e->link == NULL || e->callers == NULL || e->next_caller == NULL ||
        e->begins == NULL || e->next_begun == NULL || e->todo == NULL)
        return false;
    for (uint32_t i = 0; i < a->n_rules; i++) {
        e->next_begun[i] = e->begins[a->starts[i]];
        e->begins[a->starts[i]] = i;
    }
    for (uint32_t i = 0; i < a->n_nodes; i++) {
        const struct grammar_node *n = &a->nodes[i];
        if (n->kind == NODE_END)
            continue;
        e->link[2 * i] = e->head[n->next];
        e->head[n->next] = 2 * i;
        if (n->kind == NODE_SPLIT) {
            e->link[2 * i + 1] = e->head[n->other];
            e->head[n->other] = 2 * i + 1;
        } else if (n->kind == NODE_CALL) {
            e->next_caller[i] = e->callers[n->other];
            e->callers[n->other] = i;
        }
    }
    return true;
}

/* What `reaches` says about node i, from what it says about the nodes after it. */
static bool reaches_now(const struct grammar_automaton *a, uint32_t i, bool through_bytes,
                        const bool *reaches) {
    const struct grammar_node *n = &a->nodes[i];
    switch ((enum node_kind)n->kind) {
    case NODE_BYTES:
        return through_bytes && n->low <= n->high && reaches[n->next];
    case NODE_SPLIT:
        return reaches[n->next] || reaches[n->other];
    case NODE_CALL:
        return reaches[n->next] && reaches[a->starts[n->other]];
    case NODE_END:
        return true;
    }
    return false;
}

/* reaches[i]: some text (only the empty one if not through_bytes) leads from node i to its
 * rule's end. */
static void find_reaching(const struct grammar_automaton *a, struct edges *e,
                          bool through_bytes, bool *reaches) {
    size_t n_todo = 0;
    for (uint32_t i = 0; i < a->n_nodes; i++) {
        reaches[i] = a->nodes[i].kind == NODE_END;
        if (reaches[i])
            e->todo[n_todo++] = i;
    }
    while (n_todo > 0) {
        uint32_t done = e->todo[--n_todo];
        for (uint32_t edge = e->head[done]; edge != NONE; edge = e->link[edge]) {
            uint32_t i = edge / 2;
            if (!reaches[i] && reaches_now(a, i, through_bytes, reaches)) {
                reaches[i] = true;
                e->todo[n_todo++] = i;
            }
        }
        for (uint32_t rule = e->begins[done]; rule != NONE; rule = e->next_begun[rule])
            for (uint32_t i = e->callers[rule]; i != NONE; i = e->next_caller[i])
                if (!reaches[i] && reaches_now(a, i, through_bytes, reaches)) {
                    reaches[i] = true;
                    e->todo[n_todo++] = i;
                }
    }
}

/* --- rules that call themselves before reading anything --- */

/* A walk over calls that happen before a byte is read: nodes in depth-first order, through
 * splits, into rules, and past rules that can be empty. A node that is met while it is still
 * open has led to itself. Loops of splits alone (an empty item repeated) are harmless, so only
 * an open node that begins a rule counts. */
struct walk {
    const struct grammar_automaton *a;
    const struct edges *e;
    const bool *empty; /* can reach the end of the rule without a byte */
    uint8_t *color;    /* 0 new, 1 open, 2 done */
    uint32_t *stack;
    size_t n_stack;
};

/* The nodes that may come after i without a byte being read. */
static size_t followers(const struct walk *w, uint32_t i, uint32_t out[2]) {
    const struct grammar_node *n = &w->a->nodes[i];
    size_t n_out = 0;
    if (n->kind == NODE_SPLIT) {
        out[n_out++] = n->next;
        out[n_out++] = n->other;
    } else if (n->kind == NODE_CALL) {
        out[n_out++] = w->a->starts[n->other];
        if (w->empty[w->a->starts[n->other]])
            out[n_out++] = n->next;
    }
    return n_out;
}

/* Looks at the followers of the open node i. Returns a rule that has led to itself, or NONE. */
static uint32_t open_followers(struct walk *w, uint32_t i) {
    uint32_t next[2];
    size_t n = followers(w, i, next);
    for (size_t k = 0; k < n; k++) {
        bool call = w->a->nodes[i].kind == NODE_CALL && k == 0;
        if (w->color[next[k]] == 1 && call)
            return w->a->nodes[i].other;
        if (w->color[next[k]] == 0)
            w->stack[w->n_stack++] = next[k];
    }
    return NONE;
}

#define LEAVE 0x80000000u /* on the stack: close the node */

/* A rule that can lead to itself without reading a byte, NONE if none does. */
static uint32_t find_left_recursion(struct walk *w) {
    for (uint32_t rule = 0; rule < w->a->n_rules; rule++) {
        w->stack[w->n_stack++] = w->a->starts[rule];
        while (w->n_stack > 0) {
            uint32_t i = w->stack[--w->n_stack];
            if ((i & LEAVE) != 0) {
                w->color[i & ~LEAVE] = 2;
            } else if (w->color[i] == 0) {
                w->color[i] = 1;
                w->stack[w->n_stack++] = i | LEAVE;
                uint32_t found = open_followers(w, i);
                if (found != NONE)
                    return found;
            }
        }
    }
    return NONE;
}

static enum status check_left_recursion(struct compiler *c, const struct edges *e,
                                        const bool *empty) {
    struct grammar_automaton *a = c->a;
    struct walk w = {.a = a, .e = e, .empty = empty};
    w.color = mem_calloc(a->n_nodes, 1);
    w.stack = mem_alloc((3 * a->n_nodes + 1) * sizeof *w.stack);
    enum status st = ST_OK;
    if (w.color == NULL || w.stack == NULL) {
        st = err_set(c->err, ST_NO_MEMORY, "no memory to check the grammar");
    } else {
        uint32_t rule = find_left_recursion(&w);
        const struct grammar_rule *named =
            rule < c->tree->n_rules ? &c->tree->rules[rule] : NULL;
        if (named != NULL)
            st = err_set(c->err, ST_BAD_INPUT,
                         "grammar, line %u: rule %.*s calls itself before it reads anything",
                         named->line, (int)MIN(named->name_len, 64u), named->name);
        else if (rule != NONE)
            st = err_set(c->err, ST_BAD_INPUT,
                         "the grammar: a repeated item calls itself before it reads anything");
    }
    mem_free(w.color);
    mem_free(w.stack);
    return st;
}

static enum status check(struct compiler *c) {
    struct grammar_automaton *a = c->a;
    struct edges e = {0};
    bool *reaches = mem_alloc(a->n_nodes);
    enum status st = ST_OK;
    if (reaches == NULL || !edges_init(&e, a))
        st = err_set(c->err, ST_NO_MEMORY, "no memory to check the grammar");
    if (st == ST_OK) {
        find_reaching(a, &e, false, reaches);
        st = check_left_recursion(c, &e, reaches);
    }
    if (st == ST_OK) {
        find_reaching(a, &e, true, reaches);
        for (size_t i = 0; i < a->n_nodes; i++)
            a->nodes[i].can_end = reaches[i];
        if (!reaches[a->root])
            st = err_set_code(c->err, ST_BAD_INPUT, ERR_GRAMMAR_ENDLESS,
                              "the grammar is endless: no text is a whole root");
    }
    edges_deinit(&e);
    mem_free(reaches);
    return st;
}

/* Bytes between the same borders of all ranges are one class. */
static void find_classes(struct grammar_automaton *a) {
    bool border[257] = {false};
    for (size_t i = 0; i < a->n_nodes; i++)
        if (a->nodes[i].kind == NODE_BYTES) {
            border[a->nodes[i].low] = true;
            border[a->nodes[i].high + 1] = true;
        }
    for (int b = 0; b < 256; b++) {
        if (b == 0 || border[b])
            a->a_byte_of[a->n_classes++] = (uint8_t)b;
        a->class_of[b] = (uint8_t)(a->n_classes - 1);
    }
}

enum status grammar_compile(struct grammar_automaton *a, const struct grammar_tree *tree,
                            struct err *err) {
    struct compiler c = {.tree = tree, .a = a, .err = err, .buckets = filled(NODE_BUCKETS)};
    enum status st = c.buckets != NULL
                         ? build(&c)
                         : err_set(err, ST_NO_MEMORY, "no memory for the grammar's automaton");
    mem_free(c.buckets);
    mem_free(c.chain);
    if (st == ST_OK)
        st = check(&c);
    if (st == ST_OK)
        find_classes(a);
    return st;
}

void grammar_automaton_deinit(struct grammar_automaton *a) {
    mem_free(a->nodes);
    mem_free(a->starts);
    *a = (struct grammar_automaton){0};
}
