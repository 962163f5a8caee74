/* grammar.c: runs a grammar's automaton: states and look-up tables, which grammar_run.h
 * explains. If there are too many states or frames, those that no matcher uses are dropped. */
#include "grammar/grammar_run.h"

#include "base/mem.h"
#include "base/util.h"

#include <stdlib.h>

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
    g->states[i] = (struct state){(uint32_t)g->n_configs, (uint32_t)g->n_found, *bucket,
                                  g->may_end, NO_MASK};
    memcpy(&g->configs[g->n_configs], g->found, g->n_found * sizeof *g->found);
    g->n_configs += g->n_found;
    for (size_t k = 0; k < g->a.n_classes; k++)
        g->table[i * g->a.n_classes + k] = UNKNOWN;
    *bucket = i;
    return i;
}

/* Bytes around one that no configuration of a state can tell from it. */
struct alike {
    uint8_t low, high;
};

static void narrow(struct alike *a, uint8_t byte, const struct grammar_node *n) {
    if (n->low > n->high)
        return;
    if (n->low > byte)
        a->high = MIN(a->high, (uint8_t)(n->low - 1));
    else if (n->high < byte)
        a->low = MAX(a->low, (uint8_t)(n->high + 1));
    else
        *a = (struct alike){MAX(a->low, n->low), MIN(a->high, n->high)};
}

uint32_t grammar_find_step(struct grammar *g, uint32_t from, size_t class) {
    uint8_t byte = g->a.a_byte_of[class];
    struct alike alike = {0, UINT8_MAX};
    g->gave_up = false;
    g->work += g->states[from].n;
    begin_closure(g);
    for (uint32_t i = 0; i < g->states[from].n; i++) {
        struct config c = g->configs[g->states[from].first + i];
        const struct grammar_node *n = &g->a.nodes[c.node];
        narrow(&alike, byte, n);
        if (n->low <= byte && byte <= n->high) {
            visit(g, n->next, c.frame);
            close_over(g);
        }
    }
    g->work += WORK_OF_CONFIG * (int64_t)g->n_seen;
    uint32_t to = get_state(g); /* may move the table */
    uint32_t *row = &g->table[from * g->a.n_classes];
    for (size_t k = g->a.class_of[alike.low]; k <= g->a.class_of[alike.high]; k++)
        row[k] = to == DEAD && g->gave_up ? CUT : to;
    return to;
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
    g->frames[0] = (struct frame){0};
    g->states[DEAD] = (struct state){.mask = NO_MASK};
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

bool grammar_tidy(struct grammar *g) {
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
    masks_forget(g);
    return true;
}

/* --- opening --- */

static enum status read_grammar(struct grammar *g, const char *gbnf, size_t len,
                                struct err *err) {
    struct grammar_tree tree = {0};
    enum status st = grammar_parse(&tree, gbnf, len, g->trie->t, err);
    if (st == ST_OK)
        st = grammar_compile(&g->a, &tree, err);
    memcpy(g->tokens, tree.tokens, sizeof g->tokens);
    g->n_tokens = tree.n_tokens;
    grammar_tree_deinit(&tree);
    return st;
}

static bool work_space_init(struct grammar *g) {
    g->frame_buckets = mem_calloc(FRAME_BUCKETS, sizeof *g->frame_buckets);
    g->state_buckets = mem_calloc(STATE_BUCKETS, sizeof *g->state_buckets);
    g->todo = mem_alloc(CLOSURE_MAX * sizeof *g->todo);
    g->found = mem_alloc(CLOSURE_MAX * sizeof *g->found);
    g->seen = mem_calloc(SEEN_SIZE, sizeof *g->seen);
    return g->frame_buckets != NULL && g->state_buckets != NULL && g->todo != NULL &&
           g->found != NULL && g->seen != NULL && masks_init(g) && tables_init(g);
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
    masks_deinit(g);
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
    grammar_tidy(g);
    uint32_t state = m->state;
    for (size_t i = 0; i < len && state != DEAD; i++)
        state = grammar_step_text(g, state, (uint8_t)bytes[i]);
    if (state == DEAD)
        return false;
    m->state = state;
    return true;
}

/* By a token that the grammar names. */
static bool accept_named(struct grammar_matcher *m, int32_t id) {
    struct grammar *g = m->g;
    for (size_t i = 0; i < g->n_tokens && !m->ended; i++) {
        if (g->tokens[i] != id)
            continue;
        grammar_tidy(g);
        uint32_t state = grammar_step(g, m->state, (uint8_t)(GRAMMAR_TOKEN_BYTE + i));
        m->state = state != DEAD ? state : m->state;
        return state != DEAD;
    }
    return false;
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
    if (!accept_named(m, id) &&
        (bytes.len == 0 || !grammar_matcher_accept_bytes(m, bytes.ptr, bytes.len)))
        return false;
    m->g->credit += GRAMMAR_TOKEN_WORK;
    return true;
}
