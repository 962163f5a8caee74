/* grammar_mask.c: which tokens may come next.
 *
 * A mask is found by walking the trie of all tokens through the table of transitions. A node
 * that cannot continue is skipped with its whole subtree. So the walk is fast if few bytes may
 * follow. If many may, as in a string, most bytes lead to the same state. Then the walk uses
 * the tokens' shapes (token_shapes.h), in which such bytes are one symbol. Bytes that lead
 * elsewhere (the next letter of a known key) are exceptions: the tokens that begin with them
 * are walked one by one.
 *
 * Masks are cached by state: as a list if few tokens are allowed, otherwise as bits. */
#include "grammar/grammar_run.h"

#include "base/mem.h"
#include "base/util.h"

#include <inttypes.h>

#define MIXED CUT /* in place of a state: there are several */
/* Where no more nodes of the trie can be reached it is walked as it is. */
#define NODES_LEAST 8192
/* Up to TOKENS_MOST tokens may be checked one by one. Up to TOKENS_FEW are checked so rather
 * than computing a state's transitions for them. */
#define TOKENS_MOST 16384
#define TOKENS_FEW 256
/* Adding a mask of a shape. */
#define WORK_OF_MASK 64
/* A cached mask of at most this many tokens is a list. */
#define FEW_TOKENS 512

static void set_bit(uint64_t *mask, int32_t id) {
    mask[id / 64] |= (uint64_t)1 << id % 64;
}

/* --- over the trie --- */

/* The nodes from `from` to before `to`, which are those below some nodes of the root. False: it
 * takes more work than `most`. */
static bool walk_nodes(struct grammar *g, uint32_t state, size_t from, size_t to,
                       int64_t most) {
    const struct token_trie *trie = g->trie;
    uint32_t *path = g->masks.path;
    path[0] = state;
    const struct trie_node *node = trie->nodes + from, *end = trie->nodes + to;
    while (node < end) {
        if (++g->work > most)
            return false;
        uint32_t at = grammar_step(g, path[node->depth], node->byte);
        if (at == DEAD) {
            node = trie->nodes + node->after;
            continue;
        }
        path[node->depth + 1] = at;
        uint32_t k = node->first_token;
        node++;
        while (k < node->first_token)
            set_bit(g->masks.mask, trie->tokens[k++]);
    }
    return true;
}

static bool walk_trie(struct grammar *g, uint32_t state, int64_t most) {
    return walk_nodes(g, state, 0, g->trie->n_nodes, most);
}

/* All tokens that begin with this byte, instead of what the mask says of them. */
static bool walk_byte(struct grammar *g, uint32_t state, uint8_t byte, int64_t most) {
    const struct token_trie *trie = g->trie;
    size_t from = trie->root[byte], to = from + trie->n_below[byte];
    for (uint32_t k = trie->nodes[from].first_token; k < trie->nodes[to].first_token; k++)
        g->masks.mask[trie->tokens[k] / 64] &= ~((uint64_t)1 << trie->tokens[k] % 64);
    g->work += trie->nodes[to].first_token - trie->nodes[from].first_token;
    return walk_nodes(g, state, from, to, most);
}

/* --- over the shapes --- */

/* Where a state goes by any alike byte, and by any character beyond ASCII. */
struct leaps {
    uint32_t from, alike, character; /* UNKNOWN: not asked for yet */
};

#define N_LEAPS 256

struct shape_walk {
    struct grammar *g;
    const struct token_shapes *shapes;
    uint32_t first;     /* where the first symbol leads, if it is SHAPE_ALIKE */
    uint8_t alike[128]; /* [n_alike] one byte of each class */
    size_t n_alike;
    struct leaps leaps[N_LEAPS]; /* by number of the state */
};

static void begin_walk(struct shape_walk *w, struct grammar *g, const struct token_shapes *s) {
    bool seen[256] = {false};
    w->g = g;
    w->shapes = s;
    w->n_alike = 0;
    for (size_t i = 0; i < N_LEAPS; i++)
        w->leaps[i].from = DEAD;
    for (uint8_t b = 0; b < 128; b++) {
        bool in = byte_set_has(&s->alike, b);
        if (in && !seen[g->a.class_of[b]])
            w->alike[w->n_alike++] = b;
        seen[g->a.class_of[b]] |= in;
    }
}

static uint32_t leap_alike(const struct shape_walk *w, uint32_t from) {
    uint32_t to = grammar_step(w->g, from, w->alike[0]);
    for (size_t i = 1; i < w->n_alike; i++)
        if (grammar_step(w->g, from, w->alike[i]) != to)
            return MIXED;
    return to;
}

static uint32_t leap_range(struct grammar *g, uint32_t from, uint8_t low, uint8_t high) {
    uint32_t to = grammar_step(g, from, low);
    for (unsigned b = low + 1u; b <= high; b++)
        if (g->a.class_of[b] != g->a.class_of[b - 1] && grammar_step(g, from, (uint8_t)b) != to)
            return MIXED;
    return to;
}

/* The well-formed sequences of Unicode's table 3-7. */
static uint32_t leap_character(struct grammar *g, uint32_t from) {
    static const struct {
        uint8_t lead[2], second[2], n_more;
    } rows[] = {{{0xc2, 0xdf}, {0x80, 0xbf}, 0}, {{0xe0, 0xe0}, {0xa0, 0xbf}, 1},
                {{0xe1, 0xec}, {0x80, 0xbf}, 1}, {{0xed, 0xed}, {0x80, 0x9f}, 1},
                {{0xee, 0xef}, {0x80, 0xbf}, 1}, {{0xf0, 0xf0}, {0x90, 0xbf}, 2},
                {{0xf1, 0xf3}, {0x80, 0xbf}, 2}, {{0xf4, 0xf4}, {0x80, 0x8f}, 2}};
    uint32_t all = MIXED;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint32_t to = leap_range(g, from, rows[i].lead[0], rows[i].lead[1]);
        if (to != MIXED)
            to = leap_range(g, to, rows[i].second[0], rows[i].second[1]);
        for (int k = 0; k < rows[i].n_more && to != MIXED; k++)
            to = leap_range(g, to, 0x80, 0xbf);
        if (to == MIXED || (i > 0 && to != all))
            return MIXED;
        all = to;
    }
    return all;
}

/* MIXED also where it is not known and few tokens ask for it. */
static uint32_t leap(struct shape_walk *w, uint32_t from, uint16_t symbol, size_t n_tokens) {
    struct leaps *l = &w->leaps[from % N_LEAPS];
    if (l->from != from)
        *l = (struct leaps){from, UNKNOWN, UNKNOWN};
    uint32_t *to = symbol == SHAPE_ALIKE ? &l->alike : &l->character;
    if (*to == UNKNOWN && n_tokens <= TOKENS_FEW)
        return MIXED;
    if (*to == UNKNOWN) {
        *to = symbol == SHAPE_ALIKE ? leap_alike(w, from) : leap_character(w->g, from);
        w->g->work += (int64_t)w->n_alike;
    }
    return *to;
}

/* What shapes do not say. */
static void walk_tokens(struct grammar *g, uint32_t state, const int32_t *tokens, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct gguf_str bytes = token_bytes(g->trie->t, tokens[i], false);
        uint32_t at = state;
        for (size_t k = 0; k < bytes.len && at != DEAD; k++)
            at = grammar_step(g, at, (uint8_t)bytes.ptr[k]);
        g->work += (int64_t)bytes.len;
        if (at != DEAD)
            set_bit(g->masks.mask, tokens[i]);
    }
}

static void take_tokens(struct grammar *g, const struct token_shapes *s,
                        const struct shape_node *node) {
    uint64_t *restrict mask = g->masks.mask;
    if (node->mask == SHAPE_NO_MASK) {
        for (uint32_t k = node->first_token; k < node[1].first_token; k++)
            set_bit(mask, s->tokens[k]);
        return;
    }
    const uint64_t *restrict words = s->masks + node->mask * s->mask_words;
    for (size_t i = 0; i < s->mask_words; i++)
        mask[i] |= words[i];
    g->work += WORK_OF_MASK;
}

enum walked { WALKED, NOT_THIS_WAY, TOO_FAR };

static enum walked walk_shapes(struct shape_walk *w, uint32_t state, int64_t most) {
    struct grammar *g = w->g;
    const struct token_shapes *s = w->shapes;
    uint32_t *path = g->masks.path;
    path[0] = state;
    const struct shape_node *node = s->nodes, *end = node + s->n_nodes;
    while (node < end) {
        if (++g->work > most)
            return TOO_FAR;
        const struct shape_node *after = s->nodes + node->after;
        size_t n_below = after->first_token - node->first_token;
        uint32_t from = path[node->depth], to;
        if (node->symbol < SHAPE_ALIKE)
            to = grammar_step(g, from, (uint8_t)node->symbol);
        else if (node->depth == 0 && node->symbol == SHAPE_ALIKE)
            to = w->first;
        else
            to = leap(w, from, node->symbol, n_below);
        if (to == MIXED && n_below > TOKENS_MOST)
            return NOT_THIS_WAY;
        if (to == MIXED)
            walk_tokens(g, state, s->tokens + node->first_token, n_below);
        if (to == MIXED || to == DEAD) {
            node = after;
            continue;
        }
        path[node->depth + 1] = to;
        take_tokens(g, s, node);
        node++;
    }
    return WALKED;
}

/* The alike bytes that do not lead where the others do. */
static enum walked walk_exceptions(struct shape_walk *w, uint32_t state, int64_t most) {
    for (uint8_t b = 0; b < 128; b++)
        if (byte_set_has(&w->shapes->alike, b) && w->g->trie->n_below[b] > 0 &&
            grammar_step(w->g, state, b) != w->first && !walk_byte(w->g, state, b, most))
            return TOO_FAR;
    return WALKED;
}

/* --- which shapes --- */

/* The state that most of the trie's nodes reach by one ASCII byte. */
struct reach {
    uint32_t usual;
    uint32_t n_of_usual; /* these nodes */
};

static struct reach find_reach(struct grammar *g, uint32_t state) {
    enum { GROUPS = 16 };
    struct reach groups[GROUPS];
    size_t n_groups = 0, best = 0;
    for (uint8_t b = 0; b < 128; b++) {
        uint32_t to = grammar_step(g, state, b);
        size_t i = 0;
        while (i < n_groups && groups[i].usual != to)
            i++;
        if (to == DEAD || i == GROUPS)
            continue;
        if (i == n_groups)
            groups[n_groups++] = (struct reach){.usual = to};
        groups[i].n_of_usual += g->trie->n_below[b];
        best = groups[i].n_of_usual > groups[best].n_of_usual ? i : best;
    }
    return n_groups > 0 ? groups[best] : (struct reach){.usual = DEAD};
}

/* Nodes behind the alike bytes that lead to the usual state, and less those behind exceptions. */
static int64_t gain(struct grammar *g, uint32_t state, uint32_t usual,
                    const struct token_shapes *s) {
    int64_t n = 0;
    for (uint8_t b = 0; b < 128; b++)
        if (byte_set_has(&s->alike, b)) {
            uint32_t to = grammar_step(g, state, b);
            n += to == usual ? (int64_t)g->trie->n_below[b] : -(int64_t)g->trie->n_below[b];
        }
    return n;
}

/* Begins a walk over the shapes that save most. False: none do. */
static bool choose_shapes(struct shape_walk *w, struct grammar *g, uint32_t state) {
    struct reach r = find_reach(g, state);
    int64_t most = NODES_LEAST;
    const struct token_shapes *best = NULL;
    if (r.n_of_usual < NODES_LEAST)
        return false;
    for (size_t i = 0; i < TOKEN_SHAPES; i++) {
        const struct token_shapes *s = g->trie->shapes[i];
        int64_t n = s != NULL ? gain(g, state, r.usual, s) : 0;
        if (n <= most)
            continue;
        begin_walk(w, g, s);
        if (leap_alike(w, r.usual) == MIXED)
            continue;
        best = s;
        most = n;
    }
    if (best == NULL)
        return false;
    begin_walk(w, g, best);
    w->first = r.usual;
    return true;
}

/* --- a mask --- */

static bool walk(struct grammar *g, uint32_t state, int64_t most) {
    struct shape_walk w;
    if (!choose_shapes(&w, g, state))
        return walk_trie(g, state, most);
    enum walked done = walk_shapes(&w, state, most);
    if (done == WALKED)
        done = walk_exceptions(&w, state, most);
    if (done != NOT_THIS_WAY)
        return done == WALKED;
    memset(g->masks.mask, 0, g->masks.n_words * sizeof *g->masks.mask);
    return walk_trie(g, state, most);
}

/* The tokens that the grammar names here. */
static void add_named(struct grammar *g, uint32_t state) {
    for (size_t i = 0; i < g->n_tokens; i++)
        if (grammar_step(g, state, (uint8_t)(GRAMMAR_TOKEN_BYTE + i)) != DEAD)
            set_bit(g->masks.mask, g->tokens[i]);
}

/* Into masks.mask. False: it takes more work than `most`. */
static bool fill_mask(struct grammar *g, uint32_t state, int64_t most) {
    struct masks_of_grammar *m = &g->masks;
    memset(m->mask, 0, m->n_words * sizeof *m->mask);
    if (!walk(g, state, most))
        return false;
    add_named(g, state);
    if (g->states[state].may_end)
        for (size_t k = 0; k < g->trie->n_ends; k++)
            set_bit(m->mask, g->trie->ends[k]);
    return true;
}

/* --- kept masks --- */

static void drop_oldest(struct grammar *g) {
    struct masks_of_grammar *m = &g->masks;
    struct kept_mask *k = &m->kept[m->oldest];
    m->kept_bytes -=
        k->words != NULL ? m->n_words * sizeof *k->words : k->n_ids * sizeof *k->ids;
    g->states[k->state].mask = NO_MASK;
    mem_free(k->words);
    mem_free(k->ids);
    *k = (struct kept_mask){0};
    m->oldest = (m->oldest + 1) % KEPT_MASKS;
    m->n_kept--;
}

/* Stops at more than FEW_TOKENS. */
static size_t count_tokens(const struct masks_of_grammar *m) {
    size_t n = 0;
    for (size_t i = 0; i < m->n_words && n <= FEW_TOKENS; i++)
        if (m->mask[i] != 0)
            n += (size_t)__builtin_popcountll(m->mask[i]);
    return n;
}

static void list_tokens(const struct masks_of_grammar *m, int32_t *ids) {
    for (size_t i = 0; i < m->n_words; i++)
        for (uint64_t word = m->mask[i]; word != 0; word &= word - 1)
            *ids++ = (int32_t)(i * 64) + __builtin_ctzll(word);
}

/* Keeps masks.mask, of n tokens, if there is memory. */
static void keep_mask(struct grammar *g, uint32_t state, size_t n) {
    struct masks_of_grammar *m = &g->masks;
    struct kept_mask k = {.state = state, .n_ids = (uint32_t)n};
    size_t bytes = n <= FEW_TOKENS ? n * sizeof *k.ids : m->n_words * sizeof *k.words;
    while (m->n_kept == KEPT_MASKS ||
           (m->n_kept > 0 && m->kept_bytes + bytes > KEPT_MASK_BYTES))
        drop_oldest(g);
    if (n <= FEW_TOKENS && (k.ids = mem_alloc(bytes)) != NULL)
        list_tokens(m, k.ids);
    else if (n > FEW_TOKENS && (k.words = mem_alloc(bytes)) != NULL)
        memcpy(k.words, m->mask, bytes);
    else
        return;
    size_t at = (m->oldest + m->n_kept++) % KEPT_MASKS;
    m->kept[at] = k;
    m->kept_bytes += bytes;
    g->states[state].mask = (uint32_t)at;
}

/* NULL: none. */
static const uint64_t *kept_mask(struct grammar *g, uint32_t state) {
    struct masks_of_grammar *m = &g->masks;
    if (g->states[state].mask == NO_MASK)
        return NULL;
    const struct kept_mask *k = &m->kept[g->states[state].mask];
    if (k->words != NULL)
        return k->words;
    memset(m->mask, 0, m->n_words * sizeof *m->mask);
    for (uint32_t i = 0; i < k->n_ids; i++)
        set_bit(m->mask, k->ids[i]);
    return m->mask;
}

void masks_forget(struct grammar *g) {
    struct masks_of_grammar *m = &g->masks;
    for (size_t i = 0; m->kept != NULL && i < KEPT_MASKS; i++) {
        mem_free(m->kept[i].words);
        mem_free(m->kept[i].ids);
        m->kept[i] = (struct kept_mask){0};
    }
    m->oldest = m->n_kept = m->kept_bytes = 0;
}

bool masks_init(struct grammar *g) {
    struct masks_of_grammar *m = &g->masks;
    m->path = mem_alloc(((size_t)g->trie->max_depth + 1) * sizeof *m->path);
    m->n_words = div_up((size_t)g->trie->n_tokens, 64);
    m->mask = mem_calloc(m->n_words, sizeof *m->mask);
    m->kept = mem_calloc(KEPT_MASKS, sizeof *m->kept);
    return m->path != NULL && m->mask != NULL && m->kept != NULL;
}

void masks_deinit(struct grammar *g) {
    struct masks_of_grammar *m = &g->masks;
    masks_forget(g);
    mem_free(m->kept);
    mem_free(m->path);
    mem_free(m->mask);
}

/* --- what matchers are asked --- */

/* Was a byte given up that could follow? What only longer tokens lose, shorter ones still say. */
static bool is_cut(const struct grammar *g, uint32_t state) {
    for (size_t k = 0; k < g->a.n_classes; k++)
        if (g->table[state * g->a.n_classes + k] == CUT)
            return true;
    return false;
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

static enum status make_mask(struct grammar *g, uint32_t state, int64_t most, struct err *err) {
    charge(g);
    bool whole = fill_mask(g, state, MIN(g->credit, most));
    charge(g);
    if (!whole)
        return too_much_work(g, err);
    if (is_cut(g, state))
        return err_set(err, ST_UNSUPPORTED, "the grammar can be read in too many ways");
    size_t n = count_tokens(&g->masks);
    if (n == 0)
        return err_set(
            err, ST_UNSUPPORTED,
            "no token of the model continues the text as the grammar wants it, or it "
            "nests too deeply");
    keep_mask(g, state, n);
    return ST_OK;
}

static enum status find_mask(struct grammar_matcher *m, int64_t most, const uint64_t **mask,
                             struct err *err) {
    struct grammar *g = m->g;
    BUG_ON(m->ended);
    grammar_tidy(g);
    *mask = kept_mask(g, m->state);
    if (*mask != NULL)
        return ST_OK;
    *mask = g->masks.mask;
    enum status st = make_mask(g, m->state, most, err);
    if (st != ST_UNSUPPORTED || !is_cut(g, m->state) || !grammar_tidy(g))
        return st;
    return make_mask(g, m->state, most, err); /* it was the tables' size, they are tidied now */
}

enum status grammar_matcher_mask(struct grammar_matcher *m, const uint64_t **mask,
                                 struct err *err) {
    const uint64_t *found;
    TRY(find_mask(m, GRAMMAR_MASK_WORK, &found, err));
    *mask = found;
    return ST_OK;
}

void grammar_matcher_prepare(struct grammar_matcher *m, int64_t units) {
    const uint64_t *found;
    (void)find_mask(m, units, &found, NULL);
}

/* What the table says already; UNKNOWN, CUT or DEAD: nothing that goes on. */
static uint32_t known_step(const struct grammar *g, uint32_t from, uint8_t byte) {
    return g->table[from * g->a.n_classes + g->a.class_of[byte]];
}

/* Where a token leads, if that is known. False: it is not, or nowhere. */
static bool known_token(const struct grammar *g, int32_t id, uint32_t *state) {
    struct gguf_str bytes = token_bytes(g->trie->t, id, false);
    uint32_t at = *state;
    for (size_t i = 0; i < g->n_tokens; i++)
        if (g->tokens[i] == id && bytes.len == 0) {
            *state = known_step(g, at, (uint8_t)(GRAMMAR_TOKEN_BYTE + i));
            return *state < CUT && *state != DEAD;
        } else if (g->tokens[i] == id) { /* it is text, too */
            return false;
        }
    for (size_t i = 0; i < bytes.len; i++) {
        uint8_t byte = (uint8_t)bytes.ptr[i];
        at = byte < GRAMMAR_TOKEN_BYTE ? known_step(g, at, byte) : DEAD;
        if (at >= CUT || at == DEAD)
            return false;
    }
    *state = at;
    return bytes.len > 0;
}

bool grammar_matcher_known(struct grammar_matcher *m, int32_t id, const uint64_t **mask) {
    struct grammar *g = m->g;
    uint32_t state = m->state;
    if (m->ended || (id != TOKEN_NONE && tokenizer_is_end(g->trie->t, id)))
        return false;
    if (id != TOKEN_NONE && !known_token(g, id, &state))
        return false;
    const uint64_t *kept = kept_mask(g, state);
    if (kept == NULL)
        return false;
    m->state = state;
    if (id != TOKEN_NONE)
        g->credit += GRAMMAR_TOKEN_WORK;
    *mask = kept;
    return true;
}
