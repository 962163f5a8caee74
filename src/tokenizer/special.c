/* special.c: Finds special tokens in text, with a trie. */
#include "tokenizer/special.h"

#include "base/mem.h"
#include "base/util.h"

/* The child of node with this byte, 0 if it has none. */
static uint32_t find_child(const struct special_trie *s, uint32_t node, uint8_t byte) {
    uint32_t i = s->nodes[node].child;
    while (i != 0 && s->nodes[i].byte != byte)
        i = s->nodes[i].sibling;
    return i;
}

static void add_token(struct special_trie *s, struct gguf_str token, int32_t id) {
    uint32_t node = 0;
    for (size_t i = 0; i < token.len; i++) {
        uint8_t byte = (uint8_t)token.ptr[i];
        uint32_t next = find_child(s, node, byte);
        if (next == 0) {
            next = (uint32_t)s->n_nodes++;
            s->nodes[next] = (struct special_node){byte, -1, 0, s->nodes[node].child};
            s->nodes[node].child = next;
        }
        node = next;
    }
    if (s->nodes[node].id < 0)
        s->nodes[node].id = id;
    s->starts[(uint8_t)token.ptr[0]] = true;
}

enum status special_init(struct special_trie *s, const struct vocab *v, struct err *err) {
    size_t n_bytes = 1;
    for (int32_t i = 0; i < v->n_tokens; i++) {
        size_t len = vocab_is_special(v, i) ? vocab_token(v, i).len : 0;
        if (len > SPECIAL_MAX_BYTES)
            return err_set(err, ST_BAD_INPUT,
                           "tokenizer.ggml.tokens: token %d is special and has %zu bytes, at "
                           "most %d are possible",
                           i, len, SPECIAL_MAX_BYTES);
        n_bytes += len;
    }
    if (n_bytes > UINT32_MAX)
        return err_set(err, ST_BAD_INPUT, "tokenizer.ggml.tokens: too many special tokens");
    s->nodes = mem_alloc(n_bytes * sizeof *s->nodes);
    if (s->nodes == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for the special tokens");
    s->nodes[0] = (struct special_node){.id = -1};
    s->n_nodes = 1;
    for (int32_t i = 0; i < v->n_tokens; i++)
        if (vocab_is_special(v, i) && vocab_token(v, i).len > 0)
            add_token(s, vocab_token(v, i), i);
    return ST_OK;
}

void special_deinit(struct special_trie *s) {
    mem_free(s->nodes);
    *s = (struct special_trie){0};
}

/* The longest token at the start of text; *end is its length. */
static int32_t match_here(const struct special_trie *s, const struct vocab *v, const char *text,
                          size_t len, bool any, size_t *end) {
    int32_t best = -1;
    uint32_t node = 0;
    for (size_t i = 0; i < len; i++) {
        node = find_child(s, node, (uint8_t)text[i]);
        if (node == 0)
            break;
        int32_t id = s->nodes[node].id;
        if (id >= 0 && (any || v->type[id] == TOKEN_USER_DEFINED)) {
            best = id;
            *end = i + 1;
        }
    }
    return best;
}

struct special_match special_find(const struct special_trie *s, const struct vocab *v,
                                  const char *text, size_t len, size_t from, bool any) {
    for (size_t i = from; i < len; i++) {
        size_t n;
        if (!s->starts[(uint8_t)text[i]])
            continue;
        int32_t id = match_here(s, v, text + i, len - i, any, &n);
        if (id >= 0)
            return (struct special_match){i, i + n, id};
    }
    return (struct special_match){len, len, -1};
}
