/* merge.c: Joins the symbols of a word, best pair first. */
#include "tokenizer/merge.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "base/util.h"

void merger_deinit(struct merger *m) {
    mem_free(m->symbols);
    mem_free(m->heap);
}

static bool before(const struct merge_pair *a, const struct merge_pair *b) {
    return a->priority != b->priority ? a->priority < b->priority : a->left < b->left;
}

static void heap_push(struct merger *m, struct merge_pair pair) {
    size_t i = m->n_heap++;
    while (i > 0 && before(&pair, &m->heap[(i - 1) / 2])) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = pair;
}

static struct merge_pair heap_pop(struct merger *m) {
    struct merge_pair top = m->heap[0], last = m->heap[--m->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->n_heap; i = child) {
        if (child + 1 < m->n_heap && before(&m->heap[child + 1], &m->heap[child]))
            child++;
        if (!before(&m->heap[child], &last))
            break;
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = last;
    return top;
}

/* Offers symbol `left` and the one after it to the heap if they can join. */
static void offer(struct merger *m, int32_t left) {
    if (left < 0 || m->symbols[left].next < 0)
        return;
    const struct merge_symbol *a = &m->symbols[left], *b = &m->symbols[a->next];
    struct merge_pair pair = {.left = left, .len = a->len + b->len};
    if (m->v->merges != NULL) {
        const struct vocab_merge *merge = vocab_find_merge(m->v, a->id, b->id);
        if (merge == NULL)
            return;
        pair.priority = merge->rank;
        pair.id = merge->merged;
    } else {
        if (pair.len > m->v->max_token_bytes)
            return;
        pair.id = vocab_find(m->v, &m->v->text_ids, m->text + a->begin, pair.len);
        if (pair.id < 0)
            return;
        pair.priority = m->v->by_rank ? (uint32_t)pair.id : m->v->priority[pair.id];
    }
    heap_push(m, pair);
}

static void add_symbol(struct merger *m, size_t begin, size_t len, int32_t id) {
    int32_t i = (int32_t)m->n_symbols++;
    m->symbols[i] = (struct merge_symbol){(uint32_t)begin, (uint32_t)len, i - 1, i + 1, id};
}

static void split_into_symbols(struct merger *m, const char *text, size_t len) {
    const uint8_t *s = (const uint8_t *)text;
    m->n_symbols = 0;
    if (m->v->kind == VOCAB_BPE) {
        for (size_t i = 0; i < len; i++)
            add_symbol(m, i, 1, m->v->byte_id[s[i]]);
    } else {
        for (size_t i = 0; i < len;) {
            int n = utf8_check(s + i, len - i);
            size_t n_bytes = n > 0 ? (size_t)n : 1;
            add_symbol(m, i, n_bytes, vocab_find(m->v, &m->v->text_ids, text + i, n_bytes));
            i += n_bytes;
        }
    }
    m->symbols[m->n_symbols - 1].next = -1;
}

enum status merge_word(struct merger *m, const char *text, size_t len) {
    /* Each join takes one symbol away and offers two pairs. */
    if (len > INT32_MAX / 3 ||
        !mem_reserve(&m->symbols, &m->symbols_cap, len, sizeof *m->symbols) ||
        !mem_reserve(&m->heap, &m->heap_cap, 3 * len, sizeof *m->heap))
        return ST_NO_MEMORY;
    m->text = text;
    split_into_symbols(m, text, len);
    m->n_heap = 0;
    for (int32_t i = 0; i >= 0; i = m->symbols[i].next)
        offer(m, i);
    while (m->n_heap > 0) {
        struct merge_pair pair = heap_pop(m);
        struct merge_symbol *a = &m->symbols[pair.left];
        if (a->len == 0 || a->next < 0 || a->len + m->symbols[a->next].len != pair.len)
            continue;
        struct merge_symbol *b = &m->symbols[a->next];
        b->len = 0;
        a->len = pair.len;
        a->id = pair.id;
        a->next = b->next;
        if (a->next >= 0)
            m->symbols[a->next].prev = pair.left;
        offer(m, a->prev);
        offer(m, pair.left);
    }
    return ST_OK;
}
