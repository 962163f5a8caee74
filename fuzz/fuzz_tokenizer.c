/* Fuzzes the tokenizer. The first byte of the input chooses:
 *   0 mod 3  the rest is text for a small BPE vocabulary; the second byte chooses the
 *            pre-tokenizer
 *   1 mod 3  the rest is text for a small SentencePiece vocabulary
 *   2 mod 3  the rest is a GGUF whose vocabulary is opened and used
 * What tokens stand for must be the text again, byte for byte. */
#include "base/mem.h"
#include "base/util.h"
#include "format/gguf_write.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct tokenizer *bpe[64], *spm;
static const char *path_of_fd(int fd, char buf[32]) {
    snprintf(buf, 32, "/proc/self/fd/%d", fd);
    return buf;
}

#define N_TOKENS 300

static char texts[N_TOKENS][16];
static struct gguf_str tokens[N_TOKENS];
static int32_t types[N_TOKENS];
static float scores[N_TOKENS];

static void set_token(int i, const char *text, int type) {
    snprintf(texts[i], sizeof texts[i], "%s", text);
    tokens[i] = (struct gguf_str){texts[i], strlen(texts[i])};
    types[i] = type;
    scores[i] = (float)-i;
}

/* A file in /tmp that is gone once open; NULL pre: SentencePiece. */
static struct tokenizer *build(const char *pre) {
    static const struct gguf_str merges[] = {{"a b", 3}, {"ab a", 4}, {"b a", 3}, {"ab ab", 5}};
    char path[64];
    snprintf(path, sizeof path, "/tmp/fuzz_tokenizer.%d.gguf", (int)getpid());
    struct gguf_writer *w;
    struct gguf *g;
    struct tokenizer *t;
    struct err err;
    BUG_ON(gguf_writer_open(&w, path, &err) != ST_OK);
    gguf_write_str(w, "general.architecture", "llama");
    gguf_write_str(w, "tokenizer.ggml.model", pre != NULL ? "gpt2" : "llama");
    if (pre != NULL)
        gguf_write_str(w, "tokenizer.ggml.pre", pre);
    gguf_write_bool(w, "tokenizer.lockstep.nfc", false); /* the text comes back byte for byte */
    gguf_write_str_array(w, "tokenizer.ggml.tokens", tokens, N_TOKENS);
    gguf_write_i32_array(w, "tokenizer.ggml.token_type", types, N_TOKENS);
    gguf_write_f32_array(w, "tokenizer.ggml.scores", scores, N_TOKENS);
    gguf_write_str_array(w, "tokenizer.ggml.merges", merges, ARRAY_LEN(merges));
    BUG_ON(gguf_writer_begin_data(w, false, &err) != ST_OK);
    BUG_ON(gguf_writer_finish(w, &err) != ST_OK);
    gguf_writer_close(w);
    BUG_ON(gguf_open(&g, path, NULL, &err) != ST_OK);
    BUG_ON(tokenizer_open(&t, g, &err) != ST_OK);
    gguf_close(g);
    unlink(path);
    return t;
}

/* The printable characters of byte-level BPE, as its definition counts them off. */
static void set_byte_tokens(void) {
    int next = 0x100;
    for (int b = 0; b < 256; b++) {
        bool printable = (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad);
        int c = printable ? b : next++;
        char text[3] = {(char)(c < 0x80 ? c : 0xc0 | c >> 6), (char)(0x80 | (c & 0x3f)), 0};
        if (c < 0x80)
            text[1] = 0;
        set_token(b, text, 1);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    static const char *const more[] = {"ab",  "aba",    "ba",  "abab",
                                       "<s>", "<s><s>", "<u>", " <u>"};
    for (int i = 256; i < N_TOKENS; i++) {
        int k = i - 256;
        bool named = k < (int)ARRAY_LEN(more);
        set_token(i, named ? more[k] : "", !named || k < 4 ? 1 : k < 6 ? 3 : 4);
    }
    set_byte_tokens();
    for (size_t i = 0; i < n_pretokenizer_specs; i++) {
        char name[64];
        size_t len = strcspn(pretokenizer_specs[i].names, " ");
        snprintf(name, sizeof name, "%.*s", (int)len, pretokenizer_specs[i].names);
        bpe[i] = build(name);
    }
    for (int b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", b);
        set_token(b, text, 6);
    }
    set_token(290, "\xe2\x96\x81", 1);
    set_token(291, "a", 1);
    set_token(292, "b", 1);
    set_token(293,
              "\xe2\x96\x81"
              "a",
              1);
    spm = build(NULL);
    return 0;
}

static void check_stream(const struct tokenizer *t, const int32_t *ids, size_t n) {
    struct err err;
    char *whole;
    size_t len, got = 0, cap = tokenizer_max_token_bytes(t) + 12;
    BUG_ON(detokenize(t, ids, n, true, &whole, &len, &err) != ST_OK);
    struct token_stream s;
    token_stream_init(&s, t, true);
    char *piece = malloc(cap);
    for (size_t i = 0; i <= n; i++) {
        size_t k =
            i < n ? token_stream_put(&s, ids[i], piece, cap) : token_stream_end(&s, piece, cap);
        BUG_ON(k > len - got || memcmp(whole + got, piece, k) != 0);
        got += k;
    }
    BUG_ON(got != len);
    free(piece);
    mem_free(whole);
}

static void use(const struct tokenizer *t, const char *text, size_t len, bool exact) {
    for (unsigned flags = 0; flags < 4; flags++) {
        int32_t *ids;
        size_t n, at = 0;
        struct err err;
        BUG_ON(tokenize(t, text, len, flags, &ids, &n, &err) != ST_OK);
        for (size_t i = 0; i < n && exact; i++) {
            struct gguf_str b = token_bytes(t, ids[i], true);
            BUG_ON(b.len > len - at || memcmp(b.ptr, text + at, b.len) != 0);
            at += b.len;
        }
        BUG_ON(exact && at != len);
        check_stream(t, ids, n);
        mem_free(ids);
    }
}

static int memory_file(void) {
#ifdef __linux__
    return memfd_create("fuzz", 0);
#else
    char path[] = "/tmp/lockstep-fuzz.XXXXXX";
    int fd = mkstemp(path);
    if (fd >= 0)
        unlink(path);
    return fd;
#endif
}

static void open_and_use(const uint8_t *data, size_t size) {
    char path[32];
    int fd = memory_file();
    BUG_ON(fd < 0 || write(fd, data, size) != (ssize_t)size);
    struct gguf *g;
    struct tokenizer *t;
    struct err err;
    if (gguf_open(&g, path_of_fd(fd, path), NULL, &err) == ST_OK) {
        if (tokenizer_open(&t, g, &err) == ST_OK) {
            static const char text[] = "<s> Hello 12345 world\xe2\x96\x81\xff\n\n</s>ab";
            use(t, text, sizeof text, false);
            use(t, (const char *)data, MIN(size, (size_t)256), false);
            tokenizer_close(t);
        }
        gguf_close(g);
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    const char *text = (const char *)data + 2;
    if (data[0] % 3 == 0)
        use(bpe[data[1] % n_pretokenizer_specs], text, size - 2, true);
    else if (data[0] % 3 == 1)
        use(spm, text, size - 2, false);
    else
        open_and_use(data + 1, size - 1);
    return 0;
}
