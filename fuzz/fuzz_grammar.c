/* Fuzzes grammars. The first byte of the input chooses: even, the rest is GBNF, then after a
 * zero byte text for it; odd, the rest is a JSON Schema, then after a zero byte text. What is
 * drawn from the masks must be accepted. */
#include "base/mem.h"
#include "base/rng.h"
#include "base/util.h"
#include "format/gguf_write.h"
#include "grammar/grammar.h"
#include "schema/json_schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct token_trie *trie;

/* All bytes, a few longer tokens, an end token. */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    enum { N = 270 };
    static const char *const more[] = {"ab", "{\"", "\":", "\",", "\"}", "true", "null",
                                       "[[", "]]",  "  ",  "12",  "a\"", "\\\"", "</s>"};
    static char texts[N][8];
    struct gguf_str tokens[N];
    int32_t types[N];
    float scores[N] = {0};
    for (int i = 0; i < N; i++) {
        if (i < 256)
            snprintf(texts[i], sizeof texts[i], "<0x%02X>", i);
        else
            snprintf(texts[i], sizeof texts[i], "%s", more[i - 256]);
        tokens[i] = (struct gguf_str){texts[i], strlen(texts[i])};
        types[i] = i < 256 ? 6 : i < N - 1 ? 1 : 3;
    }
    char path[64];
    snprintf(path, sizeof path, "/tmp/fuzz_grammar.%d.gguf", (int)getpid());
    struct gguf_writer *w;
    struct gguf *g;
    struct tokenizer *t;
    struct err err;
    BUG_ON(gguf_writer_open(&w, path, &err) != ST_OK);
    gguf_write_str(w, "general.architecture", "llama");
    gguf_write_str(w, "tokenizer.ggml.model", "llama");
    gguf_write_str_array(w, "tokenizer.ggml.tokens", tokens, N);
    gguf_write_i32_array(w, "tokenizer.ggml.token_type", types, N);
    gguf_write_f32_array(w, "tokenizer.ggml.scores", scores, N);
    BUG_ON(gguf_writer_begin_data(w, false, &err) != ST_OK);
    BUG_ON(gguf_writer_finish(w, &err) != ST_OK);
    gguf_writer_close(w);
    BUG_ON(gguf_open(&g, path, NULL, &err) != ST_OK);
    BUG_ON(tokenizer_open(&t, g, &err) != ST_OK);
    BUG_ON(token_trie_open(&trie, t, &err) != ST_OK);
    gguf_close(g);
    unlink(path);
    return 0;
}

static bool bit(const uint64_t *mask, int32_t id) {
    return (mask[id / 64] >> id % 64 & 1) != 0;
}

static void draw(struct grammar *g, uint64_t seed) {
    struct grammar_matcher *m;
    struct err err;
    BUG_ON(grammar_matcher_open(&m, g, &err) != ST_OK);
    for (uint64_t i = 0; i < 40; i++) {
        const uint64_t *mask;
        if (grammar_matcher_mask(m, &mask, &err) != ST_OK)
            break;
        int32_t id = (int32_t)(rng_u64(seed, i) % (uint64_t)trie->n_tokens);
        while (!bit(mask, id))
            id = (id + 1) % trie->n_tokens;
        BUG_ON(!grammar_matcher_accept(m, id));
        if (tokenizer_is_end(trie->t, id))
            break;
    }
    grammar_matcher_close(m);
}

static void use(const char *gbnf, size_t len, const char *text, size_t text_len) {
    struct grammar *g;
    struct grammar_matcher *m;
    struct err err;
    if (grammar_open(&g, gbnf, len, trie, &err) != ST_OK)
        return;
    BUG_ON(grammar_matcher_open(&m, g, &err) != ST_OK);
    for (size_t i = 0; i < text_len; i++)
        if (!grammar_matcher_accept_bytes(m, text + i, 1))
            break;
    grammar_matcher_close(m);
    for (uint64_t seed = 0; seed < 3; seed++)
        draw(g, seed);
    grammar_close(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1)
        return 0;
    const char *source = (const char *)data + 1;
    const char *zero = size > 1 ? memchr(source, 0, size - 1) : NULL;
    size_t len = zero != NULL ? (size_t)(zero - source) : size - 1;
    const char *text = zero != NULL ? zero + 1 : "";
    size_t text_len = zero != NULL ? size - 2 - len : 0;
    if (data[0] % 2 == 0) {
        use(source, len, text, text_len);
        return 0;
    }
    json_t *schema = json_loadb(source, len, JSON_DECODE_ANY, NULL);
    char *gbnf;
    struct err err;
    if (schema != NULL && json_schema_to_gbnf(schema, &gbnf, &err) == ST_OK) {
        use(gbnf, strlen(gbnf), text, text_len);
        mem_free(gbnf);
    }
    json_decref(schema);
    return 0;
}
