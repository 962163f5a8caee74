/* The tokenizer against golden/tokenizers (three independent implementations), golden/logits'
 * text_ids, and golden/hostile's broken vocabularies. */
#include "arch/hparams.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "base/util.h"
#include "format/gguf_write.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/tokenizer.h"

#include <dirent.h>
#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <utf8proc.h>

#include <cmocka.h>

#define GOLDEN SHARED_DIR "/golden/"

static char tmp_dir[] = "/tmp/lockstep-tokenizer-XXXXXX";

/* --- helpers --- */

static const char *const vocabularies[] = {"gpt-2", "llama-3", "llama-spm", "qwen3",
                                           "deepseek-v3"};

static struct tokenizer *open_file(const char *path) {
    struct gguf *g;
    struct err err;
    struct tokenizer *t;
    if (gguf_open(&g, path, NULL, &err) != ST_OK)
        fail_msg("%s", err.text);
    if (tokenizer_open(&t, g, &err) != ST_OK)
        fail_msg("%s", err.text);
    gguf_close(g);
    return t;
}

static struct tokenizer *open_vocabulary(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s.gguf", tmp_dir, name);
    if (access(path, R_OK) != 0) {
        char cmd[512];
        snprintf(cmd, sizeof cmd, "gzip -dc " GOLDEN "tokenizers/%s.gguf.gz >%s", name, path);
        assert_int_equal(system(cmd), 0);
    }
    return open_file(path);
}

static json_t *load_json(const char *path) {
    json_error_t e;
    json_t *j = json_load_file(path, JSON_ALLOW_NUL, &e);
    if (j == NULL)
        fail_msg("%s: %s", path, e.text);
    return j;
}

static json_t *open_cases(const char *name) {
    char path[256];
    snprintf(path, sizeof path, GOLDEN "tokenizers/%s.json", name);
    return load_json(path);
}

static size_t unhex(const char *hex, char *out) {
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++)
        sscanf(hex + 2 * i, "%2hhx", (unsigned char *)&out[i]);
    return n;
}

static void print_ids(const char *what, const int32_t *ids, size_t n) {
    fprintf(stderr, "  %s:", what);
    for (size_t i = 0; i < n; i++)
        fprintf(stderr, " %d", ids[i]);
    fprintf(stderr, "\n");
}

/* The ids of text are exactly `want`; says which case if not. */
static bool gives(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
                  const json_t *want) {
    int32_t *ids;
    size_t n;
    struct err err;
    if (tokenize(t, text, len, flags, &ids, &n, &err) != ST_OK)
        fail_msg("%s", err.text);
    bool same = n == json_array_size(want);
    for (size_t i = 0; same && i < n; i++)
        same = ids[i] == json_integer_value(json_array_get(want, i));
    if (!same) {
        fprintf(stderr, "text \"%.*s\" (flags %u)\n", (int)MIN(len, 200), text, flags);
        print_ids("got", ids, n);
        char *s = json_dumps(want, JSON_COMPACT);
        fprintf(stderr, "  want %s\n", s);
        free(s);
    }
    mem_free(ids);
    return same;
}

/* Calls check() for every text of a list of cases. */
static size_t each_case(const struct tokenizer *t, json_t *list,
                        size_t (*check)(const struct tokenizer *, const json_t *, const char *,
                                        size_t)) {
    static char text[1 << 20];
    size_t i, n_bad = 0;
    json_t *c;
    json_array_foreach(list, i, c) {
        const char *hex = json_string_value(json_object_get(c, "hex"));
        size_t len = hex != NULL ? unhex(hex, text) : 0;
        if (hex == NULL) {
            len = json_string_length(json_object_get(c, "text"));
            memcpy(text, json_string_value(json_object_get(c, "text")), len);
        }
        n_bad += check(t, c, text, len);
    }
    return n_bad;
}

/* --- golden --- */

static size_t check_ids(const struct tokenizer *t, const json_t *c, const char *text,
                        size_t len) {
    const json_t *want = json_object_get(c, "ids");
    size_t n_bad = !gives(t, text, len, TOKENIZE_SPECIAL, want);
    const json_t *plain = json_object_get(c, "ids_special_as_text");
    if (plain != NULL)
        n_bad += !gives(t, text, len, 0, plain);
    return n_bad;
}

static size_t check_with_specials(const struct tokenizer *t, const json_t *c, const char *text,
                                  size_t len) {
    return !gives(t, text, len, TOKENIZE_SPECIAL | TOKENIZE_BOS, json_object_get(c, "ids"));
}

static void golden_cases(void **state) {
    (void)state;
    size_t n_bad = 0;
    for (size_t i = 0; i < ARRAY_LEN(vocabularies); i++) {
        struct tokenizer *t = open_vocabulary(vocabularies[i]);
        json_t *j = open_cases(vocabularies[i]);
        size_t n = each_case(t, json_object_get(j, "upstream"), check_ids) +
                   each_case(t, json_object_get(j, "cases"), check_ids) +
                   each_case(t, json_object_get(j, "with_specials"), check_with_specials);
        if (n > 0)
            fprintf(stderr, "%s: %zu cases differ\n", vocabularies[i], n);
        n_bad += n;
        json_decref(j);
        tokenizer_close(t);
    }
    assert_int_equal(n_bad, 0);
}

/* golden/logits holds models of architectures that lockstep does not know yet, too. */
static bool is_known_model(const char *path) {
    struct gguf *g;
    struct hparams hp;
    struct err err;
    if (gguf_open(&g, path, NULL, &err) != ST_OK)
        fail_msg("%s", err.text);
    bool known = hparams_read(&hp, g, &err) != ST_UNSUPPORTED;
    gguf_close(g);
    return known;
}

static void text_ids_of_the_golden_models(void **state) {
    (void)state;
    DIR *dir = opendir(GOLDEN "logits");
    assert_non_null(dir);
    size_t n_models = 0;
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char *dot = strrchr(e->d_name, '.');
        if (dot == NULL || strcmp(dot, ".json") != 0)
            continue;
        char path[512];
        snprintf(path, sizeof path, GOLDEN "logits/%s", e->d_name);
        json_t *j = load_json(path), *list = json_object_get(j, "text_ids"), *c;
        snprintf(path, sizeof path, GOLDEN "logits/%.*s.gguf", (int)(dot - e->d_name),
                 e->d_name);
        if (list == NULL || access(path, R_OK) != 0 || !is_known_model(path)) {
            json_decref(j);
            continue;
        }
        struct tokenizer *t = open_file(path);
        size_t i;
        json_array_foreach(list, i, c) {
            const json_t *text = json_object_get(c, "text");
            assert_true(gives(t, json_string_value(text), json_string_length(text),
                              TOKENIZE_SPECIAL, json_object_get(c, "ids")));
        }
        tokenizer_close(t);
        json_decref(j);
        n_models++;
    }
    closedir(dir);
    assert_true(n_models >= 15);
}

/* --- decoding --- */

/* Form C of the text, of which bytes that are not valid UTF-8 are kept, by utf8proc as a whole. */
static size_t in_form_c(const char *text, size_t len, char *out) {
    size_t n_out = 0;
    for (size_t i = 0; i < len;) {
        size_t n = utf8_valid_prefix((const uint8_t *)text + i, len - i);
        utf8proc_uint8_t *normal = NULL;
        utf8proc_ssize_t got =
            utf8proc_map((const utf8proc_uint8_t *)text + i, (utf8proc_ssize_t)n, &normal,
                         (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        assert_true(got >= 0);
        memcpy(out + n_out, normal, (size_t)got);
        free(normal);
        n_out += (size_t)got;
        i += n;
        if (i < len)
            out[n_out++] = text[i++];
    }
    return n_out;
}

/* SentencePiece knows no difference between U+2581 and a space, and Qwen's normalizes. */
static size_t as_vocabulary_sees_it(const struct tokenizer *t, const char *text, size_t len,
                                    char *out) {
    bool spm = str_eq(tokenizer_facts(t)->model, "llama");
    size_t n = 0;
    if (str_eq(tokenizer_facts(t)->pre, "qwen2"))
        return in_form_c(text, len, out);
    for (size_t i = 0; i < len; i++) {
        out[n++] = text[i];
        if (spm && n >= 3 && memcmp(out + n - 3, "\xe2\x96\x81", 3) == 0) {
            n -= 2;
            out[n - 1] = ' ';
        }
    }
    return n;
}

/* Decodes ids piece by piece, checking that each piece is whole characters. */
static size_t decode_streaming(const struct tokenizer *t, const int32_t *ids, size_t n,
                               char *out) {
    struct token_stream s;
    token_stream_init(&s, t, true);
    size_t room = tokenizer_max_token_bytes(t), len = 0;
    char *piece = malloc(room);
    for (size_t i = 0; i <= n; i++) {
        size_t got = i < n ? token_stream_put(&s, ids[i], piece, room)
                           : token_stream_end(&s, piece, room);
        json_t *valid = json_stringn(piece, got);
        assert_non_null(valid);
        json_decref(valid);
        memcpy(out + len, piece, got);
        len += got;
    }
    free(piece);
    return len;
}

static size_t check_round_trip(const struct tokenizer *t, const json_t *c, const char *text,
                               size_t len) {
    (void)c;
    static char streamed[1 << 20], seen[1 << 20];
    int32_t *ids;
    size_t n, got, n_seen = as_vocabulary_sees_it(t, text, len, seen);
    char *back;
    struct err err;
    assert_int_equal(tokenize(t, text, len, 0, &ids, &n, &err), ST_OK);
    assert_int_equal(detokenize(t, ids, n, true, &back, &got, &err), ST_OK);
    size_t bad = got != n_seen || memcmp(back, seen, n_seen) != 0;
    if (bad)
        fprintf(stderr, "\"%.*s\" came back as \"%s\"\n", (int)len, text, back);
    size_t n_streamed = decode_streaming(t, ids, n, streamed);
    bad += n_streamed != got || memcmp(streamed, back, got) != 0;
    mem_free(back);
    mem_free(ids);
    return bad;
}

static void valid_text_comes_back(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(vocabularies); i++) {
        struct tokenizer *t = open_vocabulary(vocabularies[i]);
        json_t *j = open_cases(vocabularies[i]);
        assert_int_equal(each_case(t, json_object_get(j, "upstream"), check_round_trip) +
                             each_case(t, json_object_get(j, "cases"), check_round_trip),
                         0);
        json_decref(j);
        tokenizer_close(t);
    }
}

/* Marks in any order and number take linear time. More than 31 stay as they are. */
static void many_marks_are_left_alone(void **state) {
    (void)state;
    static char text[300001];
    struct tokenizer *t = open_vocabulary("qwen3");
    for (size_t n_marks = 31; n_marks <= 100000; n_marks = n_marks == 31 ? 32 : 100000) {
        size_t len = 0;
        text[len++] = 'a';
        for (size_t i = 0; i < n_marks; i++) { /* above, below: the other way round in form C */
            memcpy(text + len, i % 2 == 0 ? "\xcc\x81" : "\xcc\xa3", 2);
            len += 2;
        }
        int32_t *ids;
        size_t n, got;
        char *back;
        struct err err;
        assert_int_equal(tokenize(t, text, len, 0, &ids, &n, &err), ST_OK);
        assert_int_equal(detokenize(t, ids, n, true, &back, &got, &err), ST_OK);
        bool same = got == len && memcmp(back, text, len) == 0;
        assert_int_equal(same, n_marks > 31);
        mem_free(back);
        mem_free(ids);
        if (n_marks == 100000)
            break;
    }
    tokenizer_close(t);
}

/* The raw bytes of the tokens are the bytes of the text, valid or not. */
static size_t check_bytes(const struct tokenizer *t, const json_t *c, const char *text,
                          size_t len) {
    (void)c;
    static char normal[1 << 20];
    int32_t *ids;
    size_t n, at = 0, i = 0;
    struct err err;
    assert_int_equal(tokenize(t, text, len, 0, &ids, &n, &err), ST_OK);
    if (str_eq(tokenizer_facts(t)->pre, "qwen2")) {
        len = in_form_c(text, len, normal);
        text = normal;
    }
    for (i = 0; i < n; i++) {
        struct gguf_str b = token_bytes(t, ids[i], true);
        if (i == 0 && str_eq(tokenizer_facts(t)->model, "llama")) {
            assert_true(b.len > 0 && b.ptr[0] == ' ');
            b.ptr++;
            b.len--;
        }
        assert_true(at + b.len <= len);
        assert_memory_equal(b.ptr, text + at, b.len);
        at += b.len;
    }
    assert_int_equal(at, len);
    static char streamed[1 << 20];
    decode_streaming(t, ids, n, streamed);
    mem_free(ids);
    return 0;
}

static void invalid_utf8_is_kept_as_bytes(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(vocabularies); i++) {
        struct tokenizer *t = open_vocabulary(vocabularies[i]);
        json_t *j = open_cases(vocabularies[i]);
        each_case(t, json_object_get(j, "invalid_utf8"), check_bytes);
        char noise[4096];
        for (size_t k = 0; k < sizeof noise; k++)
            noise[k] = (char)rng_u64(i, k);
        check_bytes(t, NULL, noise, sizeof noise);
        json_decref(j);
        tokenizer_close(t);
    }
}

/* Unicode's recommendation (chapter 3, "maximal subpart"): one U+FFFD per broken sequence. */
static void broken_characters_become_replacements(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"a\xf0\x9f\x98", "a\xef\xbf\xbd"},
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
        {"\xe2\x82z", "\xef\xbf\xbdz"},
        {"\xc0\xafz", "\xef\xbf\xbd\xef\xbf\xbdz"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xe2\xe2\x82\xac", "\xef\xbf\xbd\xe2\x82\xac"},
        {"\xff", "\xef\xbf\xbd"},
    };
    struct tokenizer *t = open_vocabulary("gpt-2");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int32_t ids[8];
        size_t n = strlen(cases[i].bytes), len;
        for (size_t k = 0; k < n; k++)
            ids[k] = tokenizer_find(t, cases[i].bytes + k, 1);
        char *text;
        struct err err;
        assert_int_equal(detokenize(t, ids, n, false, &text, &len, &err), ST_OK);
        assert_string_equal(text, cases[i].text);
        mem_free(text);
    }
    tokenizer_close(t);
}

/* --- facts --- */

static int32_t find(const struct tokenizer *t, const char *text) {
    return tokenizer_find(t, text, strlen(text));
}

static void facts_and_ends(void **state) {
    (void)state;
    struct tokenizer *t = open_vocabulary("llama-3");
    const struct tokenizer_facts *f = tokenizer_facts(t);
    assert_int_equal(f->n_tokens, 128256);
    assert_int_equal(f->bos, 128000);
    assert_true(f->add_bos);
    assert_false(f->add_eos);
    assert_true(tokenizer_is_end(t, find(t, "<|eot_id|>")));
    assert_true(tokenizer_is_end(t, find(t, "<|end_of_text|>")));
    assert_false(tokenizer_is_end(t, find(t, " the")));
    assert_false(tokenizer_is_end(t, TOKEN_NONE));
    assert_true(tokenizer_is_control(t, 128000));
    assert_false(tokenizer_is_control(t, 1 << 30));
    assert_int_equal(token_bytes(t, 128000, false).len, 0);
    assert_int_equal(token_bytes(t, 128000, true).len, strlen("<|begin_of_text|>"));
    assert_int_equal(token_bytes(t, -7, true).len, 0);
    assert_int_equal(find(t, "no such token, surely"), TOKEN_NONE);
    tokenizer_close(t);

    t = open_vocabulary("llama-spm");
    f = tokenizer_facts(t);
    assert_int_equal(f->bos, 1);
    assert_int_equal(f->eos, 2);
    assert_true(tokenizer_is_end(t, 2));
    tokenizer_close(t);
}

/* --- hostile vocabularies --- */

static enum status open_hostile(const char *file, struct err *err) {
    char path[512];
    snprintf(path, sizeof path, GOLDEN "hostile/%s", file);
    struct gguf *g;
    TRY(gguf_open(&g, path, NULL, err));
    struct tokenizer *t;
    enum status st = tokenizer_open(&t, g, err);
    gguf_close(g);
    if (st == ST_OK) {
        int32_t *ids;
        size_t n;
        assert_int_equal(tokenize(t, "Hello <s> \xff", 11, 3, &ids, &n, err), ST_OK);
        mem_free(ids);
        tokenizer_close(t);
    }
    return st;
}

static void broken_vocabularies_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *file, *says; /* NULL: accepted */
    } cases[] = {
        {"valid.gguf", NULL},
        {"tokens-empty.gguf", "tokenizer.ggml.tokens: the vocabulary is empty"},
        {"tokens-wrong-type.gguf", "tokenizer.ggml.tokens: the elements must be strings"},
        {"token-types-short.gguf", "tokenizer.ggml.token_type: 10 types for 272 tokens"},
        {"token-types-unknown.gguf", "has type 77"},
        {"merges-missing.gguf", "tokenizer.ggml.merges is missing"},
        {"merges-broken.gguf", "is not two parts with a space between"},
        {"bos-out-of-range.gguf", "token 100000 does not exist, the vocabulary has 272"},
        {"eos-out-of-range.gguf", NULL}, /* 2^32-1 is how some files write "none" */
        {"tokens-strange.gguf", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err = {.text = ""};
        enum status st = open_hostile(cases[i].file, &err);
        assert_int_equal(st, cases[i].says == NULL ? ST_OK : ST_BAD_INPUT);
        if (cases[i].says != NULL && strstr(err.text, cases[i].says) == NULL)
            fail_msg("%s: \"%s\"", cases[i].file, err.text);
    }
}

/* --- time --- */

static void a_large_vocabulary_opens_quickly(void **state) {
    (void)state;
    struct tokenizer *t = open_vocabulary("llama-3"); /* also unpacks it */
    tokenizer_close(t);
    uint64_t begin_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
    t = open_vocabulary("llama-3");
    double s = (double)(clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns) * 1e-9;
    printf("llama-3 opened in %.0f ms of processor time\n", s * 1e3);
    assert_true(s < 2); /* 0.1 s in a release build; this one may be sanitized */
    tokenizer_close(t);
}

static enum status count_word(void *arg, const char *text, size_t len) {
    size_t *sums = arg;
    (void)text;
    sums[0]++;
    sums[1] += len;
    return ST_OK;
}

static struct splitter *open_counting(size_t spec, struct pretokenizer **pre) {
    struct err err;
    assert_int_equal(pretokenizer_open_counting(pre, &pretokenizer_specs[spec], &err), ST_OK);
    struct splitter *s = splitter_open(*pre);
    assert_non_null(s);
    return s;
}

/* len bytes of fill, at most, and tail behind them: how many. */
static size_t fill_text(char *text, size_t len, const char *fill, const char *tail) {
    size_t n = 0, n_fill = strlen(fill);
    for (; n + n_fill <= len; n += n_fill)
        memcpy(text + n, fill, n_fill);
    memcpy(text + n, tail, strlen(tail));
    return n + strlen(tail);
}

/* The steps of one run, whose words are the text together. */
static uint64_t steps_of(struct splitter *s, const char *text, size_t n) {
    size_t sums[2] = {0, 0};
    uint64_t before = splitter_work(s).n_steps;
    assert_int_equal(splitter_run(s, text, n, count_word, sums), ST_OK);
    assert_int_equal(sums[1], n);
    return splitter_work(s).n_steps - before;
}

/* Texts on which a careless pattern is quadratic: four times the text, four times the steps. */
static void no_text_takes_quadratic_time(void **state) {
    (void)state;
    static const char *const fills[] = {" ",
                                        "a",
                                        "A",
                                        "7",
                                        "\n",
                                        "\r",
                                        "\t",
                                        "'",
                                        "(",
                                        "a ",
                                        "A1",
                                        " \n",
                                        "\xc2\xa0",
                                        "_",
                                        "\xcc\x81",
                                        "\xe3\x80\x80",
                                        "\xc3\xa9",
                                        "<|",
                                        "'s",
                                        "\x01",
                                        "\xc7\x85",
                                        "\xe4\xb8\xad",
                                        "\xe0\xb8\x81",
                                        "\xf0\x9f\x98\x80",
                                        ("\xe4\xb8\xad"
                                         "A"),
                                        "A\xcc\x81",
                                        "    x",
                                        "\n   "};
    static const char *const tails[] = {"", "a", "\n", "7", "\xcc\x81"};
    enum { LEN = 1 << 10 };
    static char text[4 * LEN + 8];
    for (size_t p = 0; p < n_pretokenizer_specs; p++) {
        struct pretokenizer *pre;
        struct splitter *s = open_counting(p, &pre);
        for (size_t f = 0; f < ARRAY_LEN(fills); f++)
            for (size_t k = 0; k < ARRAY_LEN(tails); k++) {
                uint64_t one = steps_of(s, text, fill_text(text, LEN, fills[f], tails[k]));
                uint64_t four = steps_of(s, text, fill_text(text, 4 * LEN, fills[f], tails[k]));
                if (four > 4 * one + one / 8) /* a few steps for the tail, and for odd bytes */
                    fail_msg("%s: fill %zu, tail %zu: %llu steps, then %llu",
                             pretokenizer_specs[p].names, f, k, (unsigned long long)one,
                             (unsigned long long)four);
            }
        assert_int_equal(splitter_work(s).n_given_up, 0);
        splitter_close(s);
        pretokenizer_close(pre);
    }
}

/* Millions of characters in one match: no limit of the regex engine cuts it. What a run is cut
 * into does not depend on its length, beyond threes of digits. */
static void long_runs_are_cut_as_short_ones(void **state) {
    (void)state;
    static const char *const fills[] = {" ", "\n", " \n", "A", "a", "\xc2\xa0"};
    size_t len = 3 << 20, n_short = 3 << 10;
    char *text = malloc(len + 8);
    for (size_t p = 0; p < n_pretokenizer_specs; p++) {
        struct pretokenizer *pre;
        struct err err;
        assert_int_equal(pretokenizer_open(&pre, &pretokenizer_specs[p], &err), ST_OK);
        struct splitter *s = splitter_open(pre);
        for (size_t f = 0; f < ARRAY_LEN(fills); f++) {
            size_t few[2] = {0, 0}, many[2] = {0, 0};
            size_t n = fill_text(text, n_short, fills[f], "x");
            assert_int_equal(splitter_run(s, text, n, count_word, few), ST_OK);
            if (few[0] > 8) /* cut everywhere: nothing is long */
                continue;
            n = fill_text(text, len, fills[f], "x");
            assert_int_equal(splitter_run(s, text, n, count_word, many), ST_OK);
            if (many[0] != few[0] || splitter_work(s).n_given_up != 0)
                fail_msg("%s: fill %zu: %zu words, not %zu", pretokenizer_specs[p].names, f,
                         many[0], few[0]);
        }
        splitter_close(s);
        pretokenizer_close(pre);
    }
    free(text);
}

static void one_long_word(void **state) {
    (void)state;
    size_t len = 1 << 18;
    char *text = malloc(len);
    for (size_t i = 0; i < len; i++)
        text[i] = (char)('a' + rng_u64(3, i) % 26);
    for (size_t i = 0; i < ARRAY_LEN(vocabularies); i++) {
        struct tokenizer *t = open_vocabulary(vocabularies[i]);
        double begin = clock_s();
        check_bytes(t, NULL, text, len);
        assert_true(clock_s() - begin < 10);
        tokenizer_close(t);
    }
    free(text);
}

/* No text becomes fewer ids than its bytes alone promise. */
static size_t check_least(const struct tokenizer *t, const json_t *c, const char *text,
                          size_t len) {
    (void)c;
    int32_t *ids;
    size_t n;
    struct err err;
    assert_int_equal(tokenize(t, text, len, TOKENIZE_SPECIAL, &ids, &n, &err), ST_OK);
    mem_free(ids);
    return tokenizer_least_ids(t, text, len) > n;
}

static void bytes_tell_the_least_ids(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(vocabularies); i++) {
        struct tokenizer *t = open_vocabulary(vocabularies[i]);
        json_t *j = open_cases(vocabularies[i]);
        assert_int_equal(each_case(t, json_object_get(j, "upstream"), check_least) +
                             each_case(t, json_object_get(j, "cases"), check_least) +
                             each_case(t, json_object_get(j, "invalid_utf8"), check_least),
                         0);
        static const char *const fills[] = {" ", "\n", "\xe2\x96\x81", "a", "=", "\xff"};
        char text[4096];
        for (size_t f = 0; f < ARRAY_LEN(fills); f++)
            assert_int_equal(
                check_least(t, NULL, text, fill_text(text, sizeof text - 8, fills[f], "")), 0);
        assert_true(tokenizer_least_ids(t, NULL, 1 << 20) > 100);
        json_decref(j);
        tokenizer_close(t);
    }
}

/* --- pre-tokenizers that no golden vocabulary has --- */

struct words {
    char text[512];
};

static enum status collect_word(void *arg, const char *text, size_t len) {
    struct words *w = arg;
    strncat(w->text, text, len);
    strcat(w->text, "|");
    return ST_OK;
}

/* Expected cuts: worked out by hand from the patterns in the models' tokenizer.json. */
static void words_of_other_models(void **state) {
    (void)state;
    static const struct {
        const char *name, *text, *words;
    } cases[] = {
        {"gpt-4o", "HelloWorld it's 12345", "Hello|World| it's| |123|45|"},
        {"gpt-4o", "a/\nb", "a|/\n|b|"},
        {"tekken", "HelloWorld it's 12", "Hello|World| it|'s| |1|2|"},
        {"kimi-k2", "Hi\xe4\xb8\xad\xe6\x96\x87 12345",
         "Hi|\xe4\xb8\xad\xe6\x96\x87| |123|45|"},
        /* the comma belongs to Han by its script extensions only */
        {"kimi-k2", "\xe4\xb8\xad\xe3\x80\x81\xe6\x96\x87",
         "\xe4\xb8\xad|\xe3\x80\x81|\xe6\x96\x87|"},
        {"deepseek-llm", "Hi there\n\n12,3 ", "Hi| there|\n|\n|12|,|3| |"},
        {"deepseek-coder", "int x=12;", "int| x|=|1|2|;|"},
        {"starcoder", "x = 10", "x| =| |1|0|"},
        {"falcon", "a1234.b", "a|123|4|.|b|"},
        {"default", "a1234.b", "a|123|4|.|b|"},
        {"tiny_aya", "n 1234567 12ab", "n| |1|234|567| |12|ab|"},
        {"qwen35", "e\xcc\x81t\xc3\xa9 12", "e\xcc\x81t\xc3\xa9| |1|2|"},
        {"seed-coder", "a;\n\nb", "a|;|\n\n|b|"},
        {"exaone-moe", "ab cd 1", "ab cd| |1|"},
        {"gpt-2", "I'm  here\xe1\xa0\x8e.", "I|'m| | here|\xe1\xa0\x8e.|"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct pretokenizer_spec *spec =
            pretokenizer_find((struct gguf_str){cases[i].name, strlen(cases[i].name)});
        assert_non_null(spec);
        struct pretokenizer *pre;
        struct err err;
        struct words w = {""};
        assert_int_equal(pretokenizer_open(&pre, spec, &err), ST_OK);
        struct splitter *s = splitter_open(pre);
        splitter_run(s, cases[i].text, strlen(cases[i].text), collect_word, &w);
        if (!str_eq(w.text, cases[i].words))
            fail_msg("%s: \"%s\" is cut \"%s\"", cases[i].name, cases[i].text, w.text);
        splitter_close(s);
        pretokenizer_close(pre);
    }
    assert_null(pretokenizer_find((struct gguf_str){"gpt", 3}));
    assert_null(pretokenizer_find((struct gguf_str){"gpt-2 phi-2", 11}));
    assert_null(pretokenizer_find((struct gguf_str){"", 0}));
}

static void *tokenize_often(void *arg) {
    const struct tokenizer *t = arg;
    static const char text[] =
        "Hello world, 12345 it's \xe4\xb8\xad\xe6\x96\x87 <|eot_id|>\n\n";
    for (int i = 0; i < 200; i++) {
        int32_t *ids;
        size_t n;
        struct err err;
        if (tokenize(t, text, sizeof text - 1, TOKENIZE_SPECIAL, &ids, &n, &err) != ST_OK)
            return (void *)1;
        mem_free(ids);
    }
    return NULL;
}

/* For the thread sanitizer. */
static void threads_share_a_tokenizer(void **state) {
    (void)state;
    struct tokenizer *t = open_vocabulary("llama-3");
    pthread_t threads[3];
    void *failed;
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, tokenize_often, t), 0);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    tokenizer_close(t);
}

static int unpack(void **state) {
    (void)state;
    return mkdtemp(tmp_dir) == NULL;
}

static int remove_unpacked(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(vocabularies); i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s.gguf", tmp_dir, vocabularies[i]);
        unlink(path);
    }
    return rmdir(tmp_dir);
}

/* --- what a file does not say --- */

/* A SentencePiece vocabulary with some of Phi-3's tokens. */
static struct tokenizer *open_spm(const char *arch, const char *name) {
    static const char *const tokens[] = {"<unk>", "<s>",      "</s>",    "<0x0A>",
                                         "a",     "<|user|>", "<|end|>", "\xe2\x96\x81"};
    static const int32_t types[] = {2, 3, 3, 6, 1, 3, 3, 1};
    static const float scores[ARRAY_LEN(tokens)] = {0};
    struct gguf_str strs[ARRAY_LEN(tokens)];
    struct gguf_writer *w;
    struct err err;
    char path[256];
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++)
        strs[i] = (struct gguf_str){tokens[i], strlen(tokens[i])};
    snprintf(path, sizeof path, "%s/spm.gguf", tmp_dir);
    assert_int_equal(gguf_writer_open(&w, path, &err), ST_OK);
    gguf_write_str(w, "general.architecture", arch);
    gguf_write_str(w, "general.name", name);
    gguf_write_str(w, "tokenizer.ggml.model", "llama");
    gguf_write_str_array(w, "tokenizer.ggml.tokens", strs, ARRAY_LEN(tokens));
    gguf_write_i32_array(w, "tokenizer.ggml.token_type", types, ARRAY_LEN(tokens));
    gguf_write_f32_array(w, "tokenizer.ggml.scores", scores, ARRAY_LEN(tokens));
    assert_int_equal(gguf_writer_begin_data(w, false, &err), ST_OK);
    assert_int_equal(gguf_writer_finish(w, &err), ST_OK);
    gguf_writer_close(w);
    struct tokenizer *t = open_file(path);
    unlink(path);
    return t;
}

/* "rstrip": true is what the tokenizer.json of Phi-3 and 3.5 says of <|user|> and <|end|>; the
 * names are those of Microsoft's own file and of what converters make of a folder's name since. */
static void phi3_swallows_spaces_after_its_tokens(void **state) {
    (void)state;
    static const struct {
        const char *arch, *name, *ids;
    } files[] = {{"phi3", "Phi3", "[5, 7, 4, 6, 5]"},
                 {"phi3", "Phi 3.5 Mini Instruct", "[5, 7, 4, 6, 5]"},
                 {"phi3", "A Finetune", "[5, 7, 4, 6, 5]"},
                 {"llama", "Phi-3-mini-4k-instruct", "[5, 7, 4, 6, 5]"},
                 {"llama", "Phi 3 Mini 4k Instruct", "[5, 7, 4, 6, 5]"},
                 {"llama", "Llama 2", "[5, 7, 3, 4, 6, 7, 3, 5]"}};
    static const char text[] = "<|user|>\na<|end|>\n<|user|>";
    static const char wide[] = "<|user|>\n\xe3\x80\x80"
                               "a<|end|>\xc2\xa0\n<|user|>";
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct tokenizer *t = open_spm(files[i].arch, files[i].name);
        json_t *want = json_loads(files[i].ids, 0, NULL);
        if (!gives(t, text, sizeof text - 1, TOKENIZE_SPECIAL, want))
            fail_msg("%s \"%s\"", files[i].arch, files[i].name);
        /* Unicode's spaces as well, as \s in Hugging Face's added_vocabulary.rs: full-width,
         * no-break */
        if (i == 0 && !gives(t, wide, sizeof wide - 1, TOKENIZE_SPECIAL, want))
            fail_msg("wide spaces");
        json_decref(want);
        tokenizer_close(t);
    }
}

/* Gemma's tokenizer.model has add_dummy_prefix false; llama's has it true. */
static void gemma3_puts_no_space_in_front(void **state) {
    (void)state;
    static const struct {
        const char *arch, *ids;
    } files[] = {{"gemma3", "[5, 4, 6]"}, {"llama", "[5, 7, 4, 6]"}};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct tokenizer *t = open_spm(files[i].arch, "");
        json_t *want = json_loads(files[i].ids, 0, NULL);
        assert_true(gives(t, "<|user|>a<|end|>", 16, TOKENIZE_SPECIAL, want));
        json_decref(want);
        tokenizer_close(t);
    }
}

/* Gemma 4, by the rules of llama.cpp's LLAMA_VOCAB_PRE_TYPE_GEMMA4: tokens and merges of
 * SentencePiece's form; a run of line ends is taken whole if it is a token. */
static void gemma4_joins_sentencepieces_by_merges(void **state) {
    (void)state;
    static const char *const tokens[] = {
        "<unk>", "<bos>", "<0x21>", "\xe2\x96\x81",   "h",   "i",
        "hi",    "ih",    "\n",     "\xe2\x96\x81hi", "\n\n"};
    static const int32_t types[] = {2, 3, 6, 1, 1, 1, 1, 1, 1, 1, 1};
    static const char *const merges[] = {"h i", "i h", "\xe2\x96\x81 hi"};
    static const struct {
        const char *text, *ids;
    } cases[] = {{"hi hi", "[6, 9]"},         {" hi", "[9]"},
                 {"ihih", "[5, 6, 4]"},       {"hi\n\nhi", "[6, 10, 6]"},
                 {"\n\n\n!", "[8, 8, 8, 2]"}, {"h  hi", "[4, 3, 9]"}};
    struct gguf_str strs[ARRAY_LEN(tokens)], pairs[ARRAY_LEN(merges)];
    struct gguf_writer *w;
    struct err err;
    char path[256];
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++)
        strs[i] = (struct gguf_str){tokens[i], strlen(tokens[i])};
    for (size_t i = 0; i < ARRAY_LEN(merges); i++)
        pairs[i] = (struct gguf_str){merges[i], strlen(merges[i])};
    snprintf(path, sizeof path, "%s/gemma4.gguf", tmp_dir);
    assert_int_equal(gguf_writer_open(&w, path, &err), ST_OK);
    gguf_write_str(w, "general.architecture", "gemma4");
    gguf_write_str(w, "tokenizer.ggml.model", "gemma4");
    gguf_write_str_array(w, "tokenizer.ggml.tokens", strs, ARRAY_LEN(tokens));
    gguf_write_i32_array(w, "tokenizer.ggml.token_type", types, ARRAY_LEN(tokens));
    gguf_write_str_array(w, "tokenizer.ggml.merges", pairs, ARRAY_LEN(merges));
    assert_int_equal(gguf_writer_begin_data(w, false, &err), ST_OK);
    assert_int_equal(gguf_writer_finish(w, &err), ST_OK);
    gguf_writer_close(w);
    struct tokenizer *t = open_file(path);
    unlink(path);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *want = json_loads(cases[i].ids, 0, NULL);
        if (!gives(t, cases[i].text, strlen(cases[i].text), TOKENIZE_SPECIAL, want))
            fail_msg("%s", cases[i].text);
        json_decref(want);
    }
    tokenizer_close(t);
}

int main(void) {
    if (access(GOLDEN "tokenizers/gpt-2.json", R_OK) != 0) {
        printf("skip: " GOLDEN "tokenizers is not there\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_cases),
        cmocka_unit_test(text_ids_of_the_golden_models),
        cmocka_unit_test(valid_text_comes_back),
        cmocka_unit_test(many_marks_are_left_alone),
        cmocka_unit_test(invalid_utf8_is_kept_as_bytes),
        cmocka_unit_test(broken_characters_become_replacements),
        cmocka_unit_test(facts_and_ends),
        cmocka_unit_test(broken_vocabularies_are_refused),
        cmocka_unit_test(a_large_vocabulary_opens_quickly),
        cmocka_unit_test(no_text_takes_quadratic_time),
        cmocka_unit_test(long_runs_are_cut_as_short_ones),
        cmocka_unit_test(one_long_word),
        cmocka_unit_test(bytes_tell_the_least_ids),
        cmocka_unit_test(words_of_other_models),
        cmocka_unit_test(phi3_swallows_spaces_after_its_tokens),
        cmocka_unit_test(gemma3_puts_no_space_in_front),
        cmocka_unit_test(gemma4_joins_sentencepieces_by_merges),
        cmocka_unit_test(threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, unpack, remove_unpacked);
}
