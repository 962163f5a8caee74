/* grammar.c: runs a grammar's automaton: states, look-up tables, masks.
 *
 * A configuration is a node and a frame: where the automaton is in a rule, and the calls that
 * wait for it. Frames are numbered, equal ones once, and share their tails. A state is a
 * sorted set of configurations that are about to read a byte, and whether the text may end;
 * states are numbered too, so that "the same place in the grammar" is the same number, and the
 * table of transitions (state x class of bytes) fills itself as it is used. State DEAD has no
 * configurations.
 *
 * When states or frames become too many, those that no matcher stands in are forgotten. */
#include "tokenizer/grammar.h"

#include "base/mem.h"
#include "base/util.h"
#include "tokenizer/grammar_impl.h"

#include <inttypes.h>
#include <stdlib.h>

#define DEAD 0
#define UNKNOWN UINT32_MAX
#define CUT (UNKNOWN - 1) /* as DEAD, but because a limit was met */

/* Beyond SOFT, everything that is not in use is forgotten before the next mask or token; a
 * single step may go beyond it, up to HARD, and what it finds then counts as not allowed. */
#define SOFT_STATES (1u << 14)
#define HARD_STATES (1u << 16)
#define SOFT_CONFIGS (1u << 20)
#define HARD_CONFIGS (1u << 22)
#define SOFT_FRAMES (1u << 18)
#define HARD_FRAMES (1u << 20)
/* Readings of one text at the same time. */
#define STATE_MAX_CONFIGS 2048
#define CLOSURE_MAX 8192
#define N_MASKS 256 /* kept */
#define WORK_OF_CONFIG 8

struct config {
    uint32_t node;
    uint32_t frame; /* 0: nothing waits */
};

struct frame {
    uint32_t node; /* where the caller goes on */
    uint32_t below;
    uint32_t depth;
    uint32_t chain; /* of the hash table */
};

struct state {
    uint32_t first, n; /* configs[first .. first+n) */
    uint32_t chain;    /* of the hash table */
    bool may_end;
    uint64_t *mask; /* in grammar.masks, or NULL */
};

struct seen {
    uint64_t config;
    uint32_t turn;
};

/* The hash tables have one fixed size: the limits above keep their chains short. */
#define STATE_BUCKETS (1u << 14)
#define FRAME_BUCKETS (1u << 16)
#define SEEN_SIZE (4 * CLOSURE_MAX)

struct grammar {
    const struct token_trie *trie;
    struct grammar_automaton a;
    uint32_t start; /* a state */
    bool gave_up;   /* the last closure met a limit */
    int64_t work;   /* units since it was charged last */
    int64_t credit; /* units left for this grammar */
    struct grammar_matcher *matchers;

    struct frame *frames; /* [0] is no frame */
    struct state *states;
    struct config *configs;
    uint32_t *table; /* [n_states, a.n_classes] */
    size_t n_frames, n_states, n_configs;
    size_t frames_cap, states_cap, configs_cap, table_cap;
    uint32_t *frame_buckets, *state_buckets;

    /* one closure */
    struct config *todo, *found;
    size_t n_todo, n_found;
    bool may_end;
    struct seen *seen; /* [SEEN_SIZE], those of this turn */
    uint32_t turn;
    size_t n_seen;

    uint32_t *path; /* [trie->max_depth + 1] states of a walk */
    uint64_t *masks[N_MASKS];
    uint32_t mask_state[N_MASKS];
    size_t next_mask;
    size_t mask_words;
};

struct grammar_matcher {
    struct grammar *g;
    struct grammar_matcher *prev, *next;
    uint32_t state;
    bool ended;
};

/* --- frames --- */

static uint32_t mix(uint64_t x) {
    x *= 0x9e3779b97f4a7c15u;
    return (uint32_t)(x >> 32);
}

/* The frame (node, below); 0 if a limit is met. */
static uint32_t get_frame(struct grammar *g, uint32_t node, uint32_t below) {
    uint32_t *bucket = &g->frame_buckets[mix((uint64_t)node << 32 | below) % FRAME_BUCKETS];
    for (uint32_t i = *bucket; i != 0; i = g->frames[i].chain)
        if (g->frames[i].node == node && g->frames[i].below == below)
            return i;
    uint32_t depth = g->frames[below].depth + 1;
    if (depth > GRAMMAR_MAX_DEPTH) /* not giving up: the text must go on without nesting */
        return 0;
    if (g->n_frames == HARD_FRAMES ||
        !mem_reserve(&g->frames, &g->frames_cap, g->n_frames + 1, sizeof *g->frames)) {
        g->gave_up = true;
        return 0;
    }
    uint32_t i = (uint32_t)g->n_frames++;
    g->frames[i] = (struct frame){node, below, depth, *bucket};
    *bucket = i;
    return i;
}

/* --- closure: from a configuration to those that read bytes --- */

/* True the first time that this configuration comes up in this turn. */
static bool is_new(struct grammar *g, struct config c) {
    uint64_t key = (uint64_t)c.node << 32 | c.frame;
    for (uint32_t i = mix(key);; i++) {
        struct seen *s = &g->seen[i % SEEN_SIZE];
        if (s->turn != g->turn) {
            *s = (struct seen){key, g->turn};
            return true;
        }
        if (s->config == key)
            return false;
    }
}

static void visit(struct grammar *g, uint32_t node, uint32_t frame) {
    struct config c = {node, frame};
    if (!g->a.nodes[node].can_end)
        return;
    if (g->n_seen == CLOSURE_MAX) {
        g->gave_up = true;
        return;
    }
    if (is_new(g, c)) {
        g->n_seen++;
        g->todo[g->n_todo++] = c;
    }
}

static void visit_call(struct grammar *g, const struct grammar_node *call, uint32_t frame) {
    /* A call with nothing behind it needs no frame: right recursion does not pile up. */
    if (g->a.nodes[call->next].kind != NODE_END) {
        frame = get_frame(g, call->next, frame);
        if (frame == 0)
            return;
    }
    visit(g, g->a.starts[call->other], frame);
}

static void visit_end(struct grammar *g, uint32_t frame) {
    if (frame == 0)
        g->may_end = true;
    else
        visit(g, g->frames[frame].node, g->frames[frame].below);
}

static void begin_closure(struct grammar *g) {
    g->n_todo = g->n_found = g->n_seen = 0;
    g->may_end = false;
    if (++g->turn == 0) {
        memset(g->seen, 0, SEEN_SIZE * sizeof *g->seen);
        g->turn = 1;
    }
}

static void close_over(struct grammar *g) {
    while (g->n_todo > 0) {
        struct config c = g->todo[--g->n_todo];
        const struct grammar_node *n = &g->a.nodes[c.node];
        switch ((enum node_kind)n->kind) {
        case NODE_BYTES:
            g->found[g->n_found++] = c;
            break;
        case NODE_SPLIT:
            visit(g, n->next, c.frame);
            visit(g, n->other, c.frame);
            break;
        case NODE_CALL:
            visit_call(g, n, c.frame);
            break;
        case NODE_END:
            visit_end(g, c.frame);
            break;
        }
    }
}

/* --- states --- */

static int by_node(const void *a, const void *b) {
    const struct config *x = a, *y = b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    return x->frame < y->frame ? -1 : x->frame > y->frame;
}

static void sort_found(struct grammar *g) {
    if (g->n_found > 16) {
        qsort(g->found, g->n_found, sizeof *g->found, by_node);
        return;
    }
    for (size_t i = 1; i < g->n_found; i++) {
        struct config c = g->found[i];
        size_t k = i;
        for (; k > 0 && by_node(&g->found[k - 1], &c) > 0; k--)
            g->found[k] = g->found[k - 1];
        g->found[k] = c;
    }
}

static bool has_room(struct grammar *g) {
    size_t n_table = (g->n_states + 1) * g->a.n_classes;
    return mem_reserve(&g->table, &g->table_cap, n_table, sizeof *g->table) &&
           mem_reserve(&g->configs, &g->configs_cap, g->n_configs + g->n_found + 1,
                       sizeof *g->configs) &&
           mem_reserve(&g->states, &g->states_cap, g->n_states + 1, sizeof *g->states);
}

/* The state of what the closure has found; DEAD if a limit is met. */
static uint32_t get_state(struct grammar *g) {
    if (g->n_found == 0 && !g->may_end)
        return DEAD;
    sort_found(g);
    uint32_t hash = g->may_end;
    for (size_t i = 0; i < g->n_found; i++)
        hash =
            mix(((uint64_t)g->found[i].node << 32 | g->found[i].frame) ^ (uint64_t)hash << 16);
    uint32_t *bucket = &g->state_buckets[hash % STATE_BUCKETS];
    for (uint32_t i = *bucket; i != DEAD; i = g->states[i].chain) {
        const struct state *s = &g->states[i];
        if (s->n == g->n_found && s->may_end == g->may_end &&
            memcmp(&g->configs[s->first], g->found, s->n * sizeof *g->found) == 0)
            return i;
    }
    if (g->n_found > STATE_MAX_CONFIGS || g->n_states == HARD_STATES ||
        g->n_configs > HARD_CONFIGS || !has_room(g)) {
        g->gave_up = true;
        return DEAD;
    }
    uint32_t i = (uint32_t)g->n_states++;
    g->states[i] =
        (struct state){(uint32_t)g->n_configs, (uint32_t)g->n_found, *bucket, g->may_end, NULL};
    memcpy(&g->configs[g->n_configs], g->found, g->n_found * sizeof *g->found);
    g->n_configs += g->n_found;
    for (size_t k = 0; k < g->a.n_classes; k++)
        g->table[i * g->a.n_classes + k] = UNKNOWN;
    *bucket = i;
    return i;
}

/* Of a step that is not in the table. */
static uint32_t find_step(struct grammar *g, uint32_t from, size_t class) {
    uint8_t byte = g->a.a_byte_of[class];
    g->gave_up = false;
    g->work += g->states[from].n;
    begin_closure(g);
    for (uint32_t i = 0; i < g->states[from].n; i++) {
        struct config c = g->configs[g->states[from].first + i];
        const struct grammar_node *n = &g->a.nodes[c.node];
        if (n->low <= byte && byte <= n->high) {
            visit(g, n->next, c.frame);
            close_over(g);
        }
    }
    g->work += WORK_OF_CONFIG * (int64_t)g->n_seen;
    uint32_t to = get_state(g); /* may move the table */
    g->table[from * g->a.n_classes + class] = to == DEAD && g->gave_up ? CUT : to;
    return to;
}

/* Was a byte given up that could follow? What only longer tokens lose, shorter ones still say. */
static bool is_cut(const struct grammar *g, uint32_t state) {
    for (size_t k = 0; k < g->a.n_classes; k++)
        if (g->table[state * g->a.n_classes + k] == CUT)
            return true;
    return false;
}

static inline uint32_t step(struct grammar *g, uint32_t from, uint8_t byte) {
    size_t class = g->a.class_of[byte];
    uint32_t to = g->table[from * g->a.n_classes + class];
    if (to < CUT)
        return to;
    return to == CUT ? DEAD : find_step(g, from, class);
}

/* --- starting, forgetting --- */

/* Builds the frame `i` of an old table again; false if a limit is met. */
static bool keep_frame(struct grammar *g, const struct frame *old, uint32_t i, uint32_t *out) {
    uint32_t stack[GRAMMAR_MAX_DEPTH], n = 0;
    for (; i != 0; i = old[i].below)
        stack[n++] = old[i].node;
    *out = 0;
    while (n > 0)
        if ((*out = get_frame(g, stack[--n], *out)) == 0)
            return false;
    return true;
}

static uint32_t keep_state(struct grammar *g, const struct grammar *old, uint32_t i) {
    if (i == DEAD)
        return DEAD;
    const struct state *s = &old->states[i];
    begin_closure(g);
    g->may_end = s->may_end;
    for (uint32_t k = 0; k < s->n; k++) {
        struct config c = old->configs[s->first + k];
        if (keep_frame(g, old->frames, c.frame, &c.frame))
            g->found[g->n_found++] = c;
    }
    return get_state(g);
}

/* Makes empty tables. */
static bool tables_init(struct grammar *g) {
    g->frames = NULL;
    g->states = NULL;
    g->configs = NULL;
    g->table = NULL;
    g->frames_cap = g->states_cap = g->configs_cap = g->table_cap = 0;
    g->n_states = g->n_configs = g->n_found = 0;
    if (!mem_reserve(&g->frames, &g->frames_cap, 1, sizeof *g->frames) || !has_room(g))
        return false;
    memset(g->frame_buckets, 0, FRAME_BUCKETS * sizeof *g->frame_buckets);
    memset(g->state_buckets, 0, STATE_BUCKETS * sizeof *g->state_buckets);
    memset(g->mask_state, 0, sizeof g->mask_state);
    g->frames[0] = (struct frame){0};
    g->states[DEAD] = (struct state){0};
    for (size_t k = 0; k < g->a.n_classes; k++)
        g->table[k] = DEAD;
    g->n_frames = g->n_states = 1;
    begin_closure(g);
    visit(g, g->a.root, 0);
    close_over(g);
    g->start = get_state(g);
    return true;
}

static void tables_deinit(struct grammar *g) {
    mem_free(g->frames);
    mem_free(g->states);
    mem_free(g->configs);
    mem_free(g->table);
}

/* Between steps: if the tables have become large, forgets what no matcher stands in. False: they
 * are as they were. */
static bool tidy(struct grammar *g) {
    if (g->n_states < SOFT_STATES && g->n_configs < SOFT_CONFIGS && g->n_frames < SOFT_FRAMES)
        return false;
    struct grammar old = *g;
    if (!tables_init(g)) { /* no memory: go on with what there is */
        tables_deinit(g);
        *g = old;
        return false;
    }
    for (struct grammar_matcher *m = g->matchers; m != NULL; m = m->next)
        m->state = keep_state(g, &old, m->state);
    tables_deinit(&old);
    return true;
}

/* --- opening --- */

static enum status read_grammar(struct grammar *g, const char *gbnf, size_t len,
                                struct err *err) {
    struct grammar_tree tree = {0};
    enum status st = grammar_parse(&tree, gbnf, len, err);
    if (st == ST_OK)
        st = grammar_compile(&g->a, &tree, err);
    grammar_tree_deinit(&tree);
    return st;
}

static bool work_space_init(struct grammar *g) {
    g->frame_buckets = mem_calloc(FRAME_BUCKETS, sizeof *g->frame_buckets);
    g->state_buckets = mem_calloc(STATE_BUCKETS, sizeof *g->state_buckets);
    g->todo = mem_alloc(CLOSURE_MAX * sizeof *g->todo);
    g->found = mem_alloc(CLOSURE_MAX * sizeof *g->found);
    g->seen = mem_calloc(SEEN_SIZE, sizeof *g->seen);
    g->path = mem_alloc(((size_t)g->trie->max_depth + 1) * sizeof *g->path);
    g->mask_words = div_up((size_t)g->trie->n_tokens, 64);
    return g->frame_buckets != NULL && g->state_buckets != NULL && g->todo != NULL &&
           g->found != NULL && g->seen != NULL && g->path != NULL && tables_init(g);
}

enum status grammar_open(struct grammar **out, const char *gbnf, size_t len,
                         const struct token_trie *trie, struct err *err) {
    struct grammar *g = mem_calloc(1, sizeof *g);
    if (g == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a grammar");
    g->trie = trie;
    g->credit = GRAMMAR_FIRST_WORK;
    enum status st = read_grammar(g, gbnf, len, err);
    if (st == ST_OK && !work_space_init(g))
        st = err_set(err, ST_NO_MEMORY, "no memory for a grammar");
    if (st == ST_OK && g->start == DEAD)
        st = err_set(err, ST_BAD_INPUT,
                     "the grammar nests too deeply or can be read in too "
                     "many ways from its start");
    if (st != ST_OK) {
        grammar_close(g);
        return st;
    }
    *out = g;
    return ST_OK;
}

void grammar_limit_work(struct grammar *g, int64_t units) {
    g->credit = units;
}

void grammar_close(struct grammar *g) {
    if (g == NULL)
        return;
    BUG_ON(g->matchers != NULL);
    grammar_automaton_deinit(&g->a);
    tables_deinit(g);
    mem_free(g->frame_buckets);
    mem_free(g->state_buckets);
    mem_free(g->todo);
    mem_free(g->found);
    mem_free(g->seen);
    mem_free(g->path);
    for (size_t i = 0; i < N_MASKS; i++)
        mem_free(g->masks[i]);
    mem_free(g);
}

/* --- matchers --- */

enum status grammar_matcher_open(struct grammar_matcher **out, struct grammar *g,
                                 struct err *err) {
    struct grammar_matcher *m = mem_calloc(1, sizeof *m);
    if (m == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a grammar's matcher");
    m->g = g;
    m->state = g->start;
    m->next = g->matchers;
    if (g->matchers != NULL)
        g->matchers->prev = m;
    g->matchers = m;
    *out = m;
    return ST_OK;
}

void grammar_matcher_close(struct grammar_matcher *m) {
    if (m == NULL)
        return;
    if (m->prev != NULL)
        m->prev->next = m->next;
    else
        m->g->matchers = m->next;
    if (m->next != NULL)
        m->next->prev = m->prev;
    mem_free(m);
}

void grammar_matcher_copy(struct grammar_matcher *to, const struct grammar_matcher *from) {
    BUG_ON(to->g != from->g);
    to->state = from->state;
    to->ended = from->ended;
}

bool grammar_matcher_may_end(const struct grammar_matcher *m) {
    return !m->ended && m->g->states[m->state].may_end;
}

bool grammar_matcher_accept_bytes(struct grammar_matcher *m, const char *bytes, size_t len) {
    struct grammar *g = m->g;
    if (m->ended)
        return false;
    tidy(g);
    uint32_t state = m->state;
    for (size_t i = 0; i < len && state != DEAD; i++)
        state = step(g, state, (uint8_t)bytes[i]);
    if (state == DEAD)
        return false;
    m->state = state;
    return true;
}

bool grammar_matcher_accept(struct grammar_matcher *m, int32_t id) {
    const struct tokenizer *t = m->g->trie->t;
    if (tokenizer_is_end(t, id)) {
        if (!grammar_matcher_may_end(m))
            return false;
        m->ended = true;
        return true;
    }
    struct gguf_str bytes = token_bytes(t, id, false);
    if (bytes.len == 0 || !grammar_matcher_accept_bytes(m, bytes.ptr, bytes.len))
        return false;
    m->g->credit += GRAMMAR_TOKEN_WORK;
    return true;
}

/* --- masks --- */

static void set_bit(uint64_t *mask, int32_t id) {
    mask[id / 64] |= (uint64_t)1 << id % 64;
}

/* Walks all tokens through the automaton at once; what cannot go on is skipped with all that
 * begins with it. False: it takes more work than `most`. */
static bool fill_mask(struct grammar *g, uint32_t state, uint64_t *mask, int64_t most) {
    const struct token_trie *trie = g->trie;
    memset(mask, 0, g->mask_words * sizeof *mask);
    g->path[0] = state;
    const struct trie_node *node = trie->nodes, *end = node + trie->n_nodes;
    while (node < end) {
        if (++g->work > most)
            return false;
        uint32_t to = step(g, g->path[node->depth], node->byte);
        if (to == DEAD) {
            node = trie->nodes + node->after;
            continue;
        }
        g->path[node->depth + 1] = to;
        uint32_t k = node->first_token;
        node++;
        while (k < node->first_token)
            set_bit(mask, trie->tokens[k++]);
    }
    if (g->states[state].may_end)
        for (size_t k = 0; k < trie->n_ends; k++)
            set_bit(mask, trie->ends[k]);
    return true;
}

/* The oldest mask makes room; NULL: no memory. */
static uint64_t *new_mask(struct grammar *g) {
    size_t i = g->next_mask;
    if (g->masks[i] == NULL)
        g->masks[i] = mem_alloc(g->mask_words * sizeof **g->masks);
    if (g->masks[i] == NULL)
        return NULL;
    g->states[g->mask_state[i]].mask = NULL;
    g->mask_state[i] = DEAD;
    return g->masks[i];
}

static void keep_mask(struct grammar *g, uint32_t state) {
    size_t i = g->next_mask;
    g->states[state].mask = g->masks[i];
    g->mask_state[i] = state;
    g->next_mask = (i + 1) % N_MASKS;
}

static void charge(struct grammar *g) {
    g->credit -= g->work;
    g->work = 0;
}

static enum status too_much_work(const struct grammar *g, struct err *err) {
    if (g->credit <= 0)
        return err_set(err, ST_UNSUPPORTED,
                       "the grammar is too hard: finding which tokens of this answer it allows "
                       "has taken too many steps");
    return err_set(
        err, ST_UNSUPPORTED,
        "the grammar is too hard: finding which tokens it allows here takes more than "
        "%" PRId64 " steps",
        GRAMMAR_MASK_WORK);
}

static enum status make_mask(struct grammar *g, uint32_t state, int64_t most,
                             const uint64_t **mask, struct err *err) {
    uint64_t *fresh = new_mask(g);
    if (fresh == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a grammar's mask");
    charge(g);
    bool whole = fill_mask(g, state, fresh, MIN(g->credit, most));
    charge(g);
    if (!whole)
        return too_much_work(g, err);
    if (is_cut(g, state))
        return err_set(err, ST_UNSUPPORTED, "the grammar can be read in too many ways");
    if (token_mask_is_empty(g->trie, fresh))
        return err_set(
            err, ST_UNSUPPORTED,
            "no token of the model continues the text as the grammar wants it, or it "
            "nests too deeply");
    keep_mask(g, state);
    *mask = fresh;
    return ST_OK;
}

static enum status find_mask(struct grammar_matcher *m, int64_t most, const uint64_t **mask,
                             struct err *err) {
    struct grammar *g = m->g;
    BUG_ON(m->ended);
    tidy(g);
    if (g->states[m->state].mask != NULL) {
        *mask = g->states[m->state].mask;
        return ST_OK;
    }
    enum status st = make_mask(g, m->state, most, mask, err);
    if (st != ST_UNSUPPORTED || !is_cut(g, m->state) || !tidy(g))
        return st;
    /* It was the tables' size, and they are tidied now. */
    return make_mask(g, m->state, most, mask, err);
}

enum status grammar_matcher_mask(struct grammar_matcher *m, const uint64_t **mask,
                                 struct err *err) {
    return find_mask(m, GRAMMAR_MASK_WORK, mask, err);
}

void grammar_matcher_prepare(struct grammar_matcher *m, int64_t units) {
    const uint64_t *mask;
    (void)find_mask(m, units, &mask, NULL);
}

bool grammar_matcher_known(struct grammar_matcher *m, int32_t id, const uint64_t **mask) {
    const struct grammar *g = m->g;
    uint32_t state = m->state;
    if (m->ended || (id != TOKEN_NONE && tokenizer_is_end(g->trie->t, id)))
        return false;
    struct gguf_str bytes = token_bytes(g->trie->t, id, false);
    if (id != TOKEN_NONE && bytes.len == 0)
        return false;
    for (size_t i = 0; i < bytes.len; i++) {
        state = g->table[state * g->a.n_classes + g->a.class_of[(uint8_t)bytes.ptr[i]]];
        if (state >= CUT || state == DEAD)
            return false;
    }
    if (g->states[state].mask == NULL)
        return false;
    m->state = state;
    if (id != TOKEN_NONE)
        m->g->credit += GRAMMAR_TOKEN_WORK;
    *mask = g->states[state].mask;
    return true;
}
