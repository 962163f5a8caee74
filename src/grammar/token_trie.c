/* token_trie.c: Builds the trie over the bytes of a vocabulary's tokens. */
#include "grammar/token_trie.h"

#include "base/mem.h"
#include "base/util.h"
#include "grammar/token_shapes.h"

#include <stdlib.h>

struct entry {
    struct gguf_str bytes;
    int32_t id;
};

static int by_bytes(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    int order = memcmp(x->bytes.ptr, y->bytes.ptr, MIN(x->bytes.len, y->bytes.len));
    if (order != 0)
        return order;
    if (x->bytes.len != y->bytes.len)
        return x->bytes.len < y->bytes.len ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Whether a byte is in no UTF-8 (beyond U+10FFFF), and so in no text of a grammar. */
static bool is_no_text(struct gguf_str bytes) {
    for (size_t i = 0; i < bytes.len; i++)
        if ((uint8_t)bytes.ptr[i] >= 0xf5)
            return true;
    return false;
}

/* The tokens that text is made of, sorted by their bytes. Returns how many. A token longer
 * than a depth can count is left out: no grammar needs it. */
static size_t collect(const struct tokenizer *t, struct entry *entries, size_t *n_bytes) {
    size_t n = 0;
    for (int32_t id = 0; id < tokenizer_facts(t)->n_text; id++) {
        struct gguf_str bytes = token_bytes(t, id, false);
        if (bytes.len == 0 || bytes.len > UINT16_MAX - 1 || tokenizer_is_end(t, id) ||
            is_no_text(bytes))
            continue;
        entries[n++] = (struct entry){bytes, id};
        *n_bytes += bytes.len;
    }
    qsort(entries, n, sizeof *entries, by_bytes);
    return n;
}

static size_t common_prefix(struct gguf_str a, struct gguf_str b) {
    size_t n = 0;
    while (n < a.len && n < b.len && a.ptr[n] == b.ptr[n])
        n++;
    return n;
}

static bool find_ends(struct token_trie *trie) {
    for (int32_t id = 0; id < trie->n_tokens; id++)
        trie->n_ends += tokenizer_is_end(trie->t, id);
    trie->ends = mem_alloc(trie->n_ends * sizeof *trie->ends);
    if (trie->ends == NULL)
        return false;
    size_t n = 0;
    for (int32_t id = 0; id < trie->n_tokens; id++)
        if (tokenizer_is_end(trie->t, id))
            trie->ends[n++] = id;
    return true;
}

/* path[d] is the open node at depth d: its `after` is set when something follows that is
 * not below it. */
static void fill(struct token_trie *trie, const struct entry *entries, size_t n,
                 uint32_t *path) {
    struct gguf_str last = {"", 0};
    size_t open = 0;
    for (size_t i = 0; i < n; i++) {
        struct gguf_str bytes = entries[i].bytes;
        size_t shared = common_prefix(last, bytes);
        while (open > shared)
            trie->nodes[path[--open]].after = (uint32_t)trie->n_nodes;
        for (; open < bytes.len; open++) {
            path[open] = (uint32_t)trie->n_nodes;
            trie->nodes[trie->n_nodes++] = (struct trie_node){
                .first_token = (uint32_t)i,
                .depth = (uint16_t)open,
                .byte = (uint8_t)bytes.ptr[open],
            };
        }
        trie->max_depth = MAX(trie->max_depth, (uint16_t)bytes.len);
        trie->tokens[i] = entries[i].id;
        last = bytes;
    }
    while (open > 0)
        trie->nodes[path[--open]].after = (uint32_t)trie->n_nodes;
    trie->nodes[trie->n_nodes] = (struct trie_node){.first_token = (uint32_t)n};
}

static void find_roots(struct token_trie *trie) {
    for (uint32_t i = 0; i < trie->n_nodes; i = trie->nodes[i].after) {
        trie->root[trie->nodes[i].byte] = i;
        trie->n_below[trie->nodes[i].byte] = trie->nodes[i].after - i;
    }
}

static bool make_shapes(struct token_trie *trie) {
    for (size_t i = 0; i < TOKEN_SHAPES; i++)
        if ((trie->shapes[i] = token_shapes_new(trie, i)) == NULL)
            return false;
    return true;
}

enum status token_trie_open(struct token_trie **out, const struct tokenizer *t,
                            struct err *err) {
    size_t n_tokens = (size_t)tokenizer_facts(t)->n_tokens, n_bytes = 0;
    struct token_trie *trie = mem_calloc(1, sizeof *trie);
    struct entry *entries = mem_alloc(n_tokens * sizeof *entries);
    uint32_t *path = mem_alloc(UINT16_MAX * sizeof *path);
    enum status st = ST_NO_MEMORY;
    if (trie == NULL || entries == NULL || path == NULL)
        goto out;
    size_t n = collect(t, entries, &n_bytes);
    trie->t = t;
    trie->n_tokens = (int32_t)n_tokens;
    trie->nodes = mem_alloc((n_bytes + 1) * sizeof *trie->nodes);
    trie->tokens = mem_alloc(n * sizeof *trie->tokens);
    if (trie->nodes == NULL || trie->tokens == NULL || !find_ends(trie))
        goto out;
    fill(trie, entries, n, path);
    struct trie_node *trimmed =
        mem_realloc(trie->nodes, (trie->n_nodes + 1) * sizeof *trie->nodes);
    trie->nodes = trimmed != NULL ? trimmed : trie->nodes;
    find_roots(trie);
    if (make_shapes(trie))
        st = ST_OK;
out:
    mem_free(entries);
    mem_free(path);
    if (st != ST_OK) {
        token_trie_close(trie);
        return err_set(err, st, "no memory for a trie of %zu tokens", n_tokens);
    }
    *out = trie;
    return ST_OK;
}

void token_trie_close(struct token_trie *trie) {
    if (trie == NULL)
        return;
    for (size_t i = 0; i < TOKEN_SHAPES; i++)
        token_shapes_free(trie->shapes[i]);
    mem_free(trie->nodes);
    mem_free(trie->tokens);
    mem_free(trie->ends);
    mem_free(trie);
}

static struct trie_node no_nodes[1];

const struct token_trie token_trie_empty = {.nodes = no_nodes};

bool token_mask_is_empty(const struct token_trie *trie, const uint64_t *mask) {
    for (size_t i = 0; i < div_up((size_t)trie->n_tokens, 64); i++)
        if (mask[i] != 0)
            return false;
    return true;
}

void token_mask_clear_ends(const struct token_trie *trie, uint64_t *mask) {
    for (size_t i = 0; i < trie->n_ends; i++)
        mask[trie->ends[i] / 64] &= ~(UINT64_C(1) << (trie->ends[i] % 64));
}
