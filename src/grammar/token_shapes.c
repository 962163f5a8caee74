/* token_shapes.c: Groups the tokens of a vocabulary that a grammar cannot distinguish. */
#include "grammar/token_shapes.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "base/util.h"

/* Setting this many bits one by one takes longer than adding a mask. */
#define MANY_TOKENS 256
#define NONE UINT32_MAX

/* --- a trie with lists of children, while it is being made --- */

struct draft_node {
    uint32_t child, sibling; /* NONE: no more */
    uint32_t token;          /* the first of this shape, NONE: none */
    uint32_t n_tokens;
    uint16_t symbol;
};

struct draft {
    const struct token_trie *trie;
    const struct byte_set *alike;
    struct draft_node *nodes; /* [0] is the root */
    size_t n, cap;
    uint32_t *next_token; /* [number of tokens] of the same shape */
    uint32_t *path; /* [max_depth + 1] the node after each number of bytes of the last token */
    bool *firm;     /* likewise: that node depends on no byte behind these */
};

static void draft_deinit(struct draft *d) {
    mem_free(d->nodes);
    mem_free(d->next_token);
    mem_free(d->path);
    mem_free(d->firm);
}

static bool draft_add(struct draft *d, uint16_t symbol, uint32_t *out) {
    if (!mem_reserve(&d->nodes, &d->cap, d->n + 1, sizeof *d->nodes))
        return false;
    d->nodes[d->n] = (struct draft_node){NONE, NONE, NONE, 0, symbol};
    *out = (uint32_t)d->n++;
    return true;
}

/* The child of a node. It becomes the first one: it will be asked for again soon. */
static bool draft_child(struct draft *d, uint32_t parent, uint16_t symbol, uint32_t *out) {
    uint32_t *at = &d->nodes[parent].child;
    while (*at != NONE && d->nodes[*at].symbol != symbol)
        at = &d->nodes[*at].sibling;
    *out = *at;
    if (*at != NONE)
        *at = d->nodes[*at].sibling;
    else if (!draft_add(d, symbol, out))
        return false;
    d->nodes[*out].sibling = d->nodes[parent].child;
    d->nodes[parent].child = *out;
    return true;
}

/* The symbol at the beginning of s, and its length. */
static uint16_t symbol_at(const struct draft *d, const uint8_t *s, size_t n, size_t *len) {
    int whole = utf8_check(s, n);
    *len = whole > 1 ? (size_t)whole : 1;
    return whole > 1 ? SHAPE_CHARACTER : byte_set_has(d->alike, *s) ? SHAPE_ALIKE : *s;
}

/* The token after one with which it shares n_shared bytes. */
static bool draft_token(struct draft *d, uint32_t k, size_t n_shared) {
    struct gguf_str bytes = token_bytes(d->trie->t, d->trie->tokens[k], false);
    const uint8_t *s = (const uint8_t *)bytes.ptr;
    size_t at = n_shared;
    while (!d->firm[at])
        at--;
    while (at < bytes.len) {
        size_t len;
        uint32_t node;
        uint16_t symbol = symbol_at(d, s + at, bytes.len - at, &len);
        if (!draft_child(d, d->path[at], symbol, &node))
            return false;
        for (size_t i = 1; i < len; i++)
            d->firm[at + i] = false;
        /* A byte that is not a whole character may be the beginning of one in the next token. */
        d->firm[at + len] = d->firm[at] && (symbol < 128 || symbol >= SHAPE_ALIKE);
        at += len;
        d->path[at] = node;
    }
    struct draft_node *last = &d->nodes[d->path[bytes.len]];
    d->next_token[k] = last->token;
    last->token = k;
    last->n_tokens++;
    return true;
}

static size_t shared_bytes(const struct token_trie *trie, uint32_t k) {
    struct gguf_str a = token_bytes(trie->t, trie->tokens[k - 1], false),
                    b = token_bytes(trie->t, trie->tokens[k], false);
    size_t n = 0;
    while (n < a.len && n < b.len && a.ptr[n] == b.ptr[n])
        n++;
    return n;
}

static bool draft_init(struct draft *d, const struct token_trie *trie,
                       const struct byte_set *alike) {
    uint32_t n_tokens = trie->nodes[trie->n_nodes].first_token, root;
    *d = (struct draft){.trie = trie, .alike = alike};
    d->next_token = mem_alloc(((size_t)n_tokens + 1) * sizeof *d->next_token);
    d->path = mem_calloc((size_t)trie->max_depth + 1, sizeof *d->path);
    d->firm = mem_calloc((size_t)trie->max_depth + 1, sizeof *d->firm);
    if (d->next_token == NULL || d->path == NULL || d->firm == NULL || !draft_add(d, 0, &root))
        return false;
    d->firm[0] = true;
    for (uint32_t k = 0; k < n_tokens; k++)
        if (!draft_token(d, k, k > 0 ? shared_bytes(trie, k) : 0))
            return false;
    return true;
}

/* --- the trie --- */

void token_shapes_free(struct token_shapes *s) {
    if (s == NULL)
        return;
    mem_free(s->nodes);
    mem_free(s->tokens);
    mem_free(s->masks);
    mem_free(s);
}

static void put_node(struct token_shapes *s, const struct draft *d,
                     const struct draft_node *from, uint16_t depth, uint32_t *n_tokens,
                     uint32_t *n_masks) {
    struct shape_node *to = &s->nodes[s->n_nodes++];
    *to = (struct shape_node){.first_token = *n_tokens,
                              .mask = SHAPE_NO_MASK,
                              .depth = depth,
                              .symbol = from->symbol};
    for (uint32_t k = from->token; k != NONE; k = d->next_token[k])
        s->tokens[(*n_tokens)++] = d->trie->tokens[k];
    if (from->n_tokens < MANY_TOKENS)
        return;
    to->mask = (*n_masks)++;
    uint64_t *mask = s->masks + to->mask * s->mask_words;
    for (uint32_t k = to->first_token; k < *n_tokens; k++)
        mask[s->tokens[k] / 64] |= UINT64_C(1) << s->tokens[k] % 64;
}

/* In the order of a walk from the left. stack: [max_depth + 1] draft nodes above; index: likewise,
 * as nodes. */
static void put_nodes(struct token_shapes *s, const struct draft *d, uint32_t *stack,
                      uint32_t *index) {
    uint32_t n_tokens = 0, n_masks = 0, at = d->nodes[0].child;
    size_t depth = 0;
    for (;;) {
        if (at != NONE) {
            stack[depth] = at;
            index[depth] = (uint32_t)s->n_nodes;
            put_node(s, d, &d->nodes[at], (uint16_t)depth, &n_tokens, &n_masks);
            at = d->nodes[at].child;
            depth++;
        } else if (depth > 0) {
            depth--;
            s->nodes[index[depth]].after = (uint32_t)s->n_nodes;
            at = d->nodes[stack[depth]].sibling;
        } else {
            break;
        }
    }
    s->nodes[s->n_nodes] = (struct shape_node){.first_token = n_tokens, .mask = SHAPE_NO_MASK};
}

static struct token_shapes *shapes_of(const struct draft *d) {
    const struct token_trie *trie = d->trie;
    size_t n_masks = 0, n_tokens = trie->nodes[trie->n_nodes].first_token;
    for (size_t i = 0; i < d->n; i++)
        n_masks += d->nodes[i].n_tokens >= MANY_TOKENS;
    struct token_shapes *s = mem_calloc(1, sizeof *s);
    uint32_t *stacks = mem_alloc(2 * ((size_t)trie->max_depth + 1) * sizeof *stacks);
    if (s != NULL) {
        s->alike = *d->alike;
        s->mask_words = div_up((size_t)trie->n_tokens, 64);
        s->nodes =
            mem_alloc(d->n * sizeof *s->nodes); /* no node for the root, but one for the stop */
        s->tokens = mem_alloc(n_tokens * sizeof *s->tokens);
        s->masks = mem_calloc(n_masks * s->mask_words, sizeof *s->masks);
    }
    if (s == NULL || stacks == NULL || s->nodes == NULL || s->tokens == NULL ||
        s->masks == NULL) {
        token_shapes_free(s);
        s = NULL;
    } else {
        put_nodes(s, d, stacks, stacks + trie->max_depth + 1);
    }
    mem_free(stacks);
    return s;
}

/* Ranges of bytes that are alike. */
static const char *const sets[TOKEN_SHAPES] = {
    " !#[]\x7f", /* what a JSON string may hold: every schema asks for it */
    "azAZ09__",  "azAZ09", "azAZ", "az",
};

static struct byte_set set_of(const char *ranges) {
    struct byte_set set = {{0}};
    for (; *ranges != '\0'; ranges += 2)
        for (int b = ranges[0]; b <= ranges[1]; b++)
            set.bits[b / 64] |= UINT64_C(1) << b % 64;
    return set;
}

struct token_shapes *token_shapes_new(const struct token_trie *trie, size_t which) {
    struct draft d;
    const struct byte_set alike = set_of(sets[which]);
    struct token_shapes *s = draft_init(&d, trie, &alike) ? shapes_of(&d) : NULL;
    draft_deinit(&d);
    return s;
}
