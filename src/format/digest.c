/* digest.c: Digests of a model's keys, shapes and samples, to compare it with another rank's. */
#include "format/digest.h"

#include "base/util.h"
#include "format/rows.h"

#include <sodium.h>
#include <stdio.h>

/* Whole blocks of every type. */
#define SAMPLE_COLS 256u

static void hash_text(crypto_generichash_state *h, const char *text) {
    crypto_generichash_update(h, (const uint8_t *)text, strlen(text) + 1);
}

static void hash_keys(crypto_generichash_state *h, const struct gguf *g) {
    for (size_t i = 0; i < gguf_n_keys(g); i++) {
        struct gguf_str key = gguf_key_at(g, i);
        char name[256], value[256];
        snprintf(name, sizeof name, "%.*s", (int)MIN(key.len, sizeof name - 1), key.ptr);
        gguf_value_text(g, name, value, sizeof value);
        hash_text(h, name);
        hash_text(h, value);
    }
}

static void hash_row(crypto_generichash_state *h, const struct gguf_tensor *t, uint64_t row) {
    uint8_t buf[2 * SAMPLE_COLS * sizeof(float)]; /* no type takes more */
    uint64_t n = MIN(t->dims[0], SAMPLE_COLS);
    size_t n_bytes;
    if (qtype_row_bytes(t->type, n, &n_bytes) && n_bytes <= sizeof buf)
        crypto_generichash_update(h, tensor_row(t, row, 0, n, buf), n_bytes);
}

void gguf_digest(struct gguf_digest *out, const struct gguf *g) {
    crypto_generichash_state header, data;
    *out = (struct gguf_digest){.has_data = true};
    crypto_generichash_init(&header, NULL, 0, GGUF_DIGEST_BYTES);
    crypto_generichash_init(&data, NULL, 0, GGUF_DIGEST_BYTES);
    hash_keys(&header, g);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        uint32_t type = t->type;
        hash_text(&header, t->name);
        crypto_generichash_update(&header, (const uint8_t *)&type, sizeof type);
        crypto_generichash_update(&header, (const uint8_t *)t->dims, sizeof t->dims);
        out->has_data = out->has_data && tensor_has_data(t);
        if (!out->has_data)
            continue;
        hash_row(&data, t, 0);
        hash_row(&data, t, gguf_n_values(t) / t->dims[0] - 1);
    }
    crypto_generichash_final(&header, out->header, GGUF_DIGEST_BYTES);
    crypto_generichash_final(&data, out->data, GGUF_DIGEST_BYTES);
}

bool gguf_digest_same(const struct gguf_digest *a, const struct gguf_digest *b) {
    return memcmp(a->header, b->header, sizeof a->header) == 0 &&
           (!a->has_data || !b->has_data || memcmp(a->data, b->data, sizeof a->data) == 0);
}
