/* ngram_draft.c: Drafts tokens from the text so far: what followed the last tokens when they
 * occurred before. */
#include "engine/ngram_draft.h"

#include "base/util.h"

size_t ngram_draft(int32_t *ids, size_t n, size_t k) {
    if (n < NGRAM_MIN + 1)
        return 0;
    size_t first = n > NGRAM_BACK ? n - NGRAM_BACK : 0;
    size_t best = 0, best_len = NGRAM_MIN - 1;
    /* end: one after an earlier match; only a longer one replaces it. */
    for (size_t end = n - 1; end > first && best_len < NGRAM_LONG; end--) {
        if (ids[end - 1] != ids[n - 1])
            continue;
        size_t len = 1;
        while (len < NGRAM_LONG && len < end - first && ids[end - 1 - len] == ids[n - 1 - len])
            len++;
        if (len > best_len) {
            best_len = len;
            best = end;
        }
    }
    if (best_len < NGRAM_MIN)
        return 0;
    /* Past the end of the text the guesses themselves are copied: a period goes on. */
    for (size_t i = 0; i < k; i++)
        ids[n + i] = ids[best + i];
    return k;
}

void ngram_trust_init(struct ngram_trust *t) {
    *t = (struct ngram_trust){.hits = 1, .misses = 1};
}

void ngram_trust_learn(struct ngram_trust *t, size_t n, size_t n_right) {
    if (n == 0)
        return;
    t->hits = 0.9 * t->hits + (double)n_right;
    t->misses = 0.9 * t->misses + (n_right < n ? 1.0 : 0.0);
}

size_t ngram_trust_k(struct ngram_trust *t, double price, size_t k_max) {
    double p = (t->hits + 0.1) / (t->hits + t->misses + 0.2), chance = p;
    size_t k = 0;
    while (k < k_max && chance > price) {
        chance *= p;
        k++;
    }
    if (k == 0 && k_max > 0 && ++t->n_without >= NGRAM_PROBE)
        k = 1;
    if (k > 0)
        t->n_without = 0;
    return k;
}
