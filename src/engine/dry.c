/* dry.c: finds how long a sequence each next token would repeat. */
#include "engine/dry.h"

#include "base/mem.h"
#include "base/util.h"

#include <string.h>

/* No sequence counts as longer: at any base that is in use, it cannot come again already. */
#define LENGTH_MAX 64

static bool has_any(struct gguf_str text, const char *const *strings, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (memmem(text.ptr, text.len, strings[i], strlen(strings[i])) != NULL)
            return true;
    return false;
}

uint64_t *dry_breakers(const struct tokenizer *t, uint32_t n_vocab, const char *const *strings,
                       size_t n) {
    const uint32_t n_text = MIN(n_vocab, (uint32_t)tokenizer_facts(t)->n_tokens);
    uint64_t *bits = mem_calloc(div_up(n_vocab, 64), sizeof *bits);
    if (bits == NULL)
        return NULL;
    for (uint32_t id = 0; id < n_text; id++)
        if (has_any(token_bytes(t, (int32_t)id, false), strings, n))
            bits[id / 64] |= (uint64_t)1 << (id % 64);
    return bits;
}

static bool breaks(const uint64_t *breakers, int32_t id) {
    return (breakers[id / 64] >> (id % 64) & 1) != 0;
}

/* How many tokens before `end` are those before n, one after the other. */
static uint32_t repeated(const uint64_t *breakers, const int32_t *history, size_t begin,
                         size_t end, size_t n) {
    uint32_t length = 0;
    while (length < LENGTH_MAX && end - length > begin &&
           history[end - length - 1] == history[n - length - 1] &&
           !breaks(breakers, history[n - length - 1]))
        length++;
    return length;
}

/* By products in order, the same everywhere; base 1.75 has 3e15 after LENGTH_MAX. */
static float penalty_of(const struct engine_dry *dry, uint32_t length) {
    double penalty = (double)dry->multiplier;
    for (uint32_t i = (uint32_t)dry->allowed_length; i < length && penalty < 1e30; i++)
        penalty *= (double)dry->base;
    return (float)penalty;
}

void dry_penalize(const struct engine_dry *dry, const uint64_t *breakers,
                  const int32_t *history, size_t n, float *logits, uint32_t *counts) {
    const size_t begin = n - MIN(n, (size_t)dry->last_n);
    for (size_t end = begin + 1; end < n; end++)
        if (history[end - 1] == history[n - 1] && !breaks(breakers, history[end])) {
            uint32_t length = repeated(breakers, history, begin, end, n);
            counts[history[end]] = MAX(counts[history[end]], length);
        }
    for (size_t end = begin + 1; end < n; end++) {
        const int32_t id = history[end];
        if (counts[id] >= (uint32_t)dry->allowed_length)
            logits[id] -= penalty_of(dry, counts[id]);
        counts[id] = 0;
    }
}
