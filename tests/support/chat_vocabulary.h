/* chat_vocabulary.h: a small vocabulary for tests of conversations, and what they look for. */
#ifndef LOCKSTEP_TESTS_CHAT_VOCABULARY_H
#define LOCKSTEP_TESTS_CHAT_VOCABULARY_H

#include "format/gguf_write.h"
#include "tokenizer/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* A small vocabulary with the given special tokens after "a", "b", "<s>", "</s>". */
static inline struct tokenizer *vocabulary(const char *const *specials, size_t n) {
    struct gguf_str tokens[16] = {{"a", 1}, {"b", 1}, {"<s>", 3}, {"</s>", 4}};
    int32_t types[16] = {1, 1, 3, 3};
    static const struct gguf_str merges[] = {{"a b", 3}};
    for (size_t i = 0; i < n; i++) {
        tokens[4 + i] = (struct gguf_str){specials[i], strlen(specials[i])};
        types[4 + i] = 3;
    }
    char path[64];
    snprintf(path, sizeof path, "/tmp/chat_vocabulary.%d.gguf", (int)getpid());
    struct gguf_writer *w;
    struct gguf *g;
    struct tokenizer *t;
    struct err err;
    assert_int_equal(gguf_writer_open(&w, path, &err), ST_OK);
    gguf_write_str(w, "general.architecture", "llama");
    gguf_write_str(w, "tokenizer.ggml.model", "gpt2");
    gguf_write_str_array(w, "tokenizer.ggml.tokens", tokens, 4 + n);
    gguf_write_i32_array(w, "tokenizer.ggml.token_type", types, 4 + n);
    gguf_write_str_array(w, "tokenizer.ggml.merges", merges, 1);
    gguf_write_u32(w, "tokenizer.ggml.bos_token_id", 2);
    gguf_write_u32(w, "tokenizer.ggml.eos_token_id", 3);
    assert_int_equal(gguf_writer_begin_data(w, false, &err), ST_OK);
    assert_int_equal(gguf_writer_finish(w, &err), ST_OK);
    gguf_writer_close(w);
    assert_int_equal(gguf_open(&g, path, NULL, &err), ST_OK);
    unlink(path);
    assert_int_equal(tokenizer_open(&t, g, &err), ST_OK);
    gguf_close(g);
    return t;
}

/* Each of the pieces is in the text, one after the other; NULL ends them. */
static inline void assert_in_order(const char *name, const char *text,
                                   const char *const *pieces) {
    for (; *pieces != NULL; pieces++) {
        const char *found = strstr(text, *pieces);
        if (found == NULL)
            print_message("%s: no \"%s\" in its place; what follows is:\n%s\n", name, *pieces,
                          text);
        assert_non_null(found);
        text = found + strlen(*pieces);
    }
}

#endif
