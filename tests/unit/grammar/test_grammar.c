/* Grammars: which texts they match (tables worked out by hand), that a mask says of every token
 * what feeding it would, that what is generated at random is what the grammar asks for (JSON is
 * read by jansson), and that hostile grammars are refused or stay small. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/util.h"
#include "grammar/grammar.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define VOCABULARY SHARED_DIR "/golden/tokenizers/llama-3.gguf.gz"

static struct tokenizer *tokenizer;
static struct token_trie *trie;

static int open_vocabulary(void **state) {
    (void)state;
    char path[] = "/tmp/lockstep-grammar-XXXXXX", cmd[512];
    close(mkstemp(path));
    snprintf(cmd, sizeof cmd, "gzip -dc " VOCABULARY " >%s", path);
    struct gguf *g;
    struct err err;
    if (system(cmd) != 0 || gguf_open(&g, path, NULL, &err) != ST_OK ||
        tokenizer_open(&tokenizer, g, &err) != ST_OK ||
        token_trie_open(&trie, tokenizer, &err) != ST_OK)
        return -1;
    gguf_close(g);
    return unlink(path);
}

static int close_vocabulary(void **state) {
    (void)state;
    token_trie_close(trie);
    tokenizer_close(tokenizer);
    return 0;
}

static struct grammar *open_grammar(const char *gbnf) {
    struct grammar *g;
    struct err err;
    if (grammar_open(&g, gbnf, strlen(gbnf), trie, &err) != ST_OK)
        fail_msg("%s", err.text);
    return g;
}

static struct grammar_matcher *open_matcher(struct grammar *g) {
    struct grammar_matcher *m;
    struct err err;
    assert_int_equal(grammar_matcher_open(&m, g, &err), ST_OK);
    return m;
}

/* 'w': a whole text; 'b': the beginning of one; 'n': neither. */
static char reads(const char *gbnf, const char *text) {
    struct grammar *g = open_grammar(gbnf);
    struct grammar_matcher *m = open_matcher(g);
    bool ok = grammar_matcher_accept_bytes(m, text, strlen(text));
    char c = !ok ? 'n' : grammar_matcher_may_end(m) ? 'w' : 'b';
    grammar_matcher_close(m);
    grammar_close(g);
    return c;
}

#define JSON                                                                           \
    "root ::= value\n"                                                                 \
    "value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"   \
    "object ::= \"{\" (pair (\",\" pair)*)? \"}\"\n"                                   \
    "pair ::= string \":\" value\n"                                                    \
    "array ::= \"[\" (value (\",\" value)*)? \"]\"\n"                                  \
    "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" [\"\\\\/bfnrt])* \"\\\"\"\n" \
    "number ::= \"-\"? (\"0\" | [1-9] [0-9]{0,14}) (\".\" [0-9]{1,9})?\n"

static void texts_that_match(void **state) {
    (void)state;
    static const struct {
        const char *gbnf, *text;
        char want;
    } cases[] = {
        {"root ::= \"\"", "", 'w'},
        {"root ::= \"\"", "a", 'n'},
        {"root ::= \"yes\" | \"no\"", "", 'b'},
        {"root ::= \"yes\" | \"no\"", "ye", 'b'},
        {"root ::= \"yes\" | \"no\"", "yes", 'w'},
        {"root ::= \"yes\" | \"no\"", "yess", 'n'},
        {"root ::= \"yes\" | \"no\"", "No", 'n'},
        {"root ::= [a-c]+ # letters\n", "abc", 'w'},
        {"root ::= [a-c]+", "abd", 'n'},
        {"root ::= [^a-c]", "\xe4\xb8\xad", 'w'},
        {"root ::= [^a-c]", "\xe4\xb8", 'b'},
        {"root ::= [^a-c]", "\xed\xa0\x80", 'n'}, /* a surrogate */
        {"root ::= .", "\xf4\x8f\xbf\xbf", 'w'},
        {"root ::= .", "\xf4\x90\x80\x80", 'n'}, /* beyond U+10FFFF */
        {"root ::= .", "\xc0\x80", 'n'},         /* overlong */
        {"root ::= [\\u00e0-\\u00ff]+", "\xc3\xa0\xc3\xbf", 'w'},
        {"root ::= [\\u00e0-\\u00ff]", "\xc3\x9f", 'n'},
        {"root ::= [\\u0100-\\uffff]", "\xe0\xa0\x80", 'w'},
        {"root ::= [\\u0100-\\uffff]", "\xc3\xbf", 'n'},
        {"root ::= [\\u0100-\\uffff]", "\xf0\x90\x80\x80", 'n'},
        {"root ::= [\\u1234-\\u5678]", "\xe1\x88\xb3", 'n'}, /* U+1233 */
        {"root ::= [\\u1234-\\u5678]", "\xe1\x88\xb4", 'w'},
        {"root ::= [\\u1234-\\u5678]", "\xe5\x99\xb8", 'w'},
        {"root ::= [\\u1234-\\u5678]", "\xe5\x99\xb9", 'n'}, /* U+5679 */
        {"root ::= [\\U00012345-\\U0010FFFF]", "\xf0\x92\x8d\x84", 'n'},
        {"root ::= [\\U00012345-\\U0010FFFF]", "\xf0\x92\x8d\x85", 'w'},
        {"root ::= [a\\]\\-x]+", "a]-x", 'w'},
        {"root ::= [a-]+", "a-", 'w'},
        {"root ::= \"\\x41\\u00e9\\n\"", "A\xc3\xa9\n", 'w'},
        {"root ::= \"a\r\n\" [ \t\n]+ x\nx ::= [^\n]", "a\r\n\n\t \nb", 'w'}, /* as they are */
        {"root ::= \"a\r\n\" [ \t\n]+ x\nx ::= [^\n]", "a\n", 'n'},
        {"root ::= \"a\"{2,3}", "a", 'b'},
        {"root ::= \"a\"{2,3}", "aaa", 'w'},
        {"root ::= \"a\"{2,3}", "aaaa", 'n'},
        {"root ::= \"a\"{,2} \"b\"{2} \"c\"{1,}", "aabbccc", 'w'},
        {"root ::= \"a\"{,2} \"b\"{2} \"c\"{1,}", "aaabb", 'n'},
        {"root ::= (\"a\" | )  \"b\"", "b", 'w'},
        {"root ::= (\"a\"*)* \"b\"", "aab", 'w'}, /* an empty item, repeated */
        {"root ::= \"a\" (((((((((\"\"){64}){64}){64}){64}){64}){64}){64}){64}) \"b\"", "ab",
         'w'},
        {"root ::= \"a\" (((((((((\"b\"{0} \"\"){9}){64}){64}){64}){64}){64}){64}){64})", "a",
         'w'},
        {"root ::= x\nx ::=\n  \"a\"\n  | \"b\" (\n \"c\"\n )\n", "bc", 'w'},
        {"root ::= \"(\" root \")\" | \"x\"", "((x)", 'b'},
        {"root ::= \"(\" root \")\" | \"x\"", "((x))", 'w'},
        {"root ::= \"a\" root | \"a\"", "aaaaaaaa", 'w'},      /* right recursion */
        {"root ::= \"a\" | \"b\" x\nx ::= \"c\" x", "b", 'n'}, /* could never end */
        {"root ::= [] | \"a\"", "a", 'w'},
        /* what is written alike in several places */
        {"root ::= a b c\na ::= \"x\"?\nb ::= \"x\"?\nc ::=", "xx", 'w'},
        {"root ::= a b c\na ::= \"x\"?\nb ::= \"x\"?\nc ::=", "xxx", 'n'},
        {"root ::= a \"!\" | b \"?\"\na ::= \"(\" b \")\" | \"x\"\nb ::= \"(\" b \")\" | \"x\"",
         "((x))?", 'w'},
        {"root ::= \"a\" [x-z]{0,3} | \"b\" [x-z]{0,9}", "axyzx", 'n'},
        {"root ::= \"a\" [x-z]{0,3} | \"b\" [x-z]{0,9}", "bxyzx", 'w'},
        {JSON, "{\"a\":[1,-2.5,{}],\"b\\n\":null}", 'w'},
        {JSON, "{\"a\":[1,-2.5,{}],\"b\\n\":nul", 'b'},
        {JSON, "{\"a\" :1}", 'n'},
        {JSON, "[01]", 'n'},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char got = reads(cases[i].gbnf, cases[i].text);
        if (got != cases[i].want)
            fail_msg("case %zu: \"%s\": %c, not %c", i, cases[i].text, got, cases[i].want);
    }
}

/* Many repetitions take another way through the compiler: all counts around its edges. */
static void counts(void **state) {
    (void)state;
    static const int limits[][2] = {{0, 63},     {0, 64},   {0, 65},     {0, 127},   {0, 128},
                                    {3, 200},    {64, 64},  {65, 65},    {130, 400}, {0, 4096},
                                    {100, 4200}, {0, 5000}, {4097, 4097}};
    char gbnf[64];
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        int min = limits[i][0], max = limits[i][1];
        snprintf(gbnf, sizeof gbnf, "root ::= \"ab\"{%d,%d}", min, max);
        struct grammar *g = open_grammar(gbnf);
        struct grammar_matcher *m = open_matcher(g);
        for (int n = 0; n <= max; n++) {
            if (grammar_matcher_may_end(m) != (n >= min))
                fail_msg("{%d,%d}: wrong after %d", min, max, n);
            assert_int_equal(grammar_matcher_accept_bytes(m, "ab", 2), n < max);
        }
        grammar_matcher_close(m);
        grammar_close(g);
    }
}

#define RESERVED(n) "<|reserved_special_token_" n "|> "

static void wrong_grammars_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *gbnf, *says;
    } cases[] = {
        {"", "no rule \"root\""},
        {"a ::= \"b\"", "no rule \"root\""},
        {"root ::= a\nb ::= \"c\"", "line 1: rule a is not defined"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2: rule root is defined twice"},
        {"root = \"a\"", "line 1: ::= is expected"},
        {"root ::= \"a", "line 1: a literal or class does not end"},
        {"root ::= \"a\n", "line 1: a literal or class does not end"},
        {"root ::= \"a\n\" (\n[\n", "line 3: a literal or class does not end"},
        {"root ::= \"\n\n\" ]", "line 3: something that belongs to no rule"},
        {"root ::= [a", "line 1: a literal or class does not end"},
        {"root ::= [b-a]", "a range in a class runs backwards"},
        {"root ::= (\"a\"", ") is expected"},
        {"root ::= \"a\")", "something that belongs to no rule"},
        {"root ::= \"a\"{3,2}", "ends before it begins"},
        {"root ::= \"a\"{99999999999}", "too large"},
        {"root ::= \"a\"{x}", "a number is expected"},
        {"root ::= \"\\q\"", "unknown escape"},
        {"root ::= \"\\x4\"", "too few hexadecimal digits"},
        {"root ::= \"\\ud800\"", "no such character"},
        {"root ::= \"\\UFFFFFFFF\"", "no such character"},
        {"root ::= \"\xff\"", "not valid UTF-8"},
        {"root ::= * \"a\"", "something that belongs to no rule"},
        {"root ::= root \"a\" | \"a\"", "line 1: rule root calls itself before it reads"},
        {"root ::= \"x\" a\na ::= b\nb ::= c? a \"y\"\nc ::= \"z\"", "calls itself"},
        {"root ::= (e a)*\na ::= e e root \"b\"\ne ::= \"q\"?", "calls itself"},
        {"root ::= a | b\na ::= b \"x\" | \"y\"\nb ::= a \"x\" | \"y\"", "calls itself"},
        {"root ::= \"z\" | a\na ::= \"q\"? b\nb ::= c\nc ::= \"q\"? b", "calls itself"},
        {"root ::= \"a\" root", "endless"},
        {"root ::= <x", "line 1: the name of a token does not end"},
        {"root ::= <x\n>", "line 1: the name of a token does not end"},
        {"root ::= <\xff>", "not valid UTF-8"},
        {"root ::= <|eot_id|>", "a token that ends the turn"},
        {"root ::= " RESERVED("0") RESERVED("1") RESERVED("2") RESERVED("3") RESERVED("4")
             RESERVED("5") RESERVED("6") RESERVED("7") RESERVED("8") RESERVED("9")
                 RESERVED("10") RESERVED("11"),
         "names too many tokens"},
        {"root ::= a\na ::= \"(\" b \")\"\nb ::= a a", "endless"},
        {"root ::= []", "endless"},
        {"root ::= ((((((((((\"a\"{9}){9}){9}){9}){9}){9}){9}){9}){9}){9})", "too large"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct grammar *g;
        struct err err = {.text = ""};
        enum status st = grammar_open(&g, cases[i].gbnf, strlen(cases[i].gbnf), trie, &err);
        if (st != ST_BAD_INPUT || strstr(err.text, cases[i].says) == NULL)
            fail_msg("\"%s\": %s, not \"%s\"", cases[i].gbnf, err.text, cases[i].says);
    }
}

/* A grammar in one long string. */
static char *repeated(const char *head, const char *piece, size_t n, const char *tail) {
    char *s = malloc(strlen(head) + n * strlen(piece) + strlen(tail) + 1),
         *at = stpcpy(s, head);
    for (size_t i = 0; i < n; i++)
        at = stpcpy(at, piece);
    strcpy(at, tail);
    return s;
}

static void hostile_grammars_stay_small(void **state) {
    (void)state;
    static const struct {
        const char *head, *piece;
        size_t n;
        const char *tail;
    } cases[] = {
        {"root ::= ", "(", 100000, "\"a\""},
        {"root ::= \"a\"", "*", 100000, ""},
        {"root ::= \"a\"", "{60000}", 10, ""},
        {"root ::= \"", "a", 1000000, "\""},
        {"root ::= \"", "a", 2000000, "\""},
        {"root ::= a", "\na ::= a", 1000, ""},
        {"root ::= ", "x ", 200000, "\nx ::= \"y\""},
        {"root ::= ", "x", 900000, ""},
        {"root ::= [", "a-zA-Z\\u1234-\\u8765", 40000, "]"},
        /* next to nothing, copied by repetitions of repetitions */
        {"root ::= (((((((((", "\"\"", 100000,
         "\"a\"){64}){64}){64}){64}){64}){64}){64}){64})"},
    };
    double begin = clock_s();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *gbnf = repeated(cases[i].head, cases[i].piece, cases[i].n, cases[i].tail);
        struct grammar *g;
        struct err err;
        if (grammar_open(&g, gbnf, strlen(gbnf), trie, &err) == ST_OK)
            grammar_close(g);
        free(gbnf);
    }
    assert_true(clock_s() - begin < 20);
}

/* Rules in a chain, the last first, so that what is known of each comes from the next. */
static void long_chains_of_rules(void **state) {
    (void)state;
    enum { N = 20000 };
    char *gbnf = malloc(N * 32 + 64), *at = stpcpy(gbnf, "root ::= r0\n");
    for (int i = 0; i < N; i++)
        at += sprintf(at, "r%d ::= \"x\" r%d\n", i, i + 1);
    sprintf(at, "r%d ::= \"a\"\n", N);
    double begin = clock_s();
    struct grammar *g = open_grammar(gbnf);
    assert_true(clock_s() - begin < 5);
    grammar_close(g);
    free(gbnf);
}

static void nesting_has_an_end(void **state) {
    (void)state;
    struct grammar *g = open_grammar("root ::= \"(\" root \")\" | \"x\"");
    struct grammar_matcher *m = open_matcher(g);
    int depth = 0;
    while (depth < 10 * GRAMMAR_MAX_DEPTH && grammar_matcher_accept_bytes(m, "(", 1))
        depth++;
    assert_int_equal(depth, GRAMMAR_MAX_DEPTH);
    assert_true(grammar_matcher_accept_bytes(m, "x", 1));
    for (; depth > 0; depth--)
        assert_true(grammar_matcher_accept_bytes(m, ")", 1));
    assert_true(grammar_matcher_may_end(m));
    grammar_matcher_close(m);
    grammar_close(g);
}

/* 2^n readings after n letters. */
static void too_many_readings_are_an_error(void **state) {
    (void)state;
    struct grammar *g = open_grammar("root ::= s\ns ::= \"a\" (s \"b\" | s \"c\") | \"a\"");
    struct grammar_matcher *m = open_matcher(g);
    double begin = clock_s();
    int n = 0;
    while (n < 1000 && grammar_matcher_accept_bytes(m, "a", 1))
        n++;
    assert_true(n > 5 && n < 100);
    const uint64_t *mask;
    struct err err;
    enum status st = grammar_matcher_mask(m, &mask, &err);
    assert_true(st == ST_OK || st == ST_UNSUPPORTED);
    assert_true(clock_s() - begin < 10);
    grammar_matcher_close(m);
    grammar_close(g);
}

/* Where the text may end, too: it would end in the middle of what was to be said, and nobody be
 * told. */
static void what_is_given_up_is_no_end(void **state) {
    (void)state;
    struct grammar *g =
        open_grammar("root ::= \"a\"* | s\ns ::= \"a\" (s \"b\" | s \"c\") | \"a\"");
    struct grammar_matcher *m = open_matcher(g);
    const uint64_t *mask;
    struct err err = {.text = ""};
    enum status st = ST_OK;
    int n = 0;
    for (; n < 100 && (st = grammar_matcher_mask(m, &mask, &err)) == ST_OK; n++)
        if (!grammar_matcher_accept_bytes(m, "a", 1))
            fail_msg("after %d letters the mask is whole, but none follows", n);
    assert_int_equal(st, ST_UNSUPPORTED);
    assert_non_null(strstr(err.text, "in too many ways"));
    assert_true(n > 5);
    assert_true(grammar_matcher_may_end(m));
    assert_int_equal(grammar_matcher_mask(m, &mask, &err), ST_UNSUPPORTED); /* asked again */
    grammar_matcher_close(m);
    grammar_close(g);
}

/* --- budgets --- */

/* After a few letters all 26 classes may be at all their counts, and each letter ends others. */
static char *hard_grammar(void) {
    static char gbnf[2048];
    char *at = gbnf + sprintf(gbnf, "root ::= (w \" \"?)*\nw ::= \"~\"");
    for (int c = 'a'; c <= 'z'; c++)
        at += sprintf(at, " | [^%c]{0,60}", c);
    return gbnf;
}

static void a_mask_has_a_budget(void **state) {
    (void)state;
    struct grammar *g = open_grammar(hard_grammar());
    struct grammar_matcher *m = open_matcher(g);
    const uint64_t *mask;
    struct err err = {.text = ""};
    double begin = clock_s();
    assert_int_equal(grammar_matcher_mask(m, &mask, &err), ST_UNSUPPORTED);
    assert_non_null(strstr(err.text, "too hard"));
    assert_non_null(strstr(err.text, "allows here"));
    assert_true(clock_s() - begin < 10); /* some 0.1 s; the build may be sanitized */
    grammar_matcher_close(m);
    grammar_close(g);
}

/* What is known costs nothing. */
static void a_grammar_has_a_budget(void **state) {
    (void)state;
    struct grammar *g = open_grammar(JSON);
    struct grammar_matcher *m = open_matcher(g);
    const uint64_t *mask, *again;
    struct err err = {.text = ""};
    grammar_limit_work(g, 100000);
    assert_int_equal(grammar_matcher_mask(m, &mask, &err), ST_OK);
    int n = 0;
    while (grammar_matcher_mask(m, &mask, &err) == ST_OK &&
           grammar_matcher_accept_bytes(m, "[\"a\",", 5))
        n++;
    assert_non_null(strstr(err.text, "too hard"));
    assert_non_null(strstr(err.text, "this answer"));
    assert_true(n > 0 && n < 500);
    grammar_matcher_close(m);
    m = open_matcher(g);
    assert_int_equal(grammar_matcher_mask(m, &mask, &err), ST_OK);
    assert_true(grammar_matcher_known(m, TOKEN_NONE, &again));
    grammar_matcher_close(m);
    grammar_close(g);
}

/* --- masks --- */

static bool bit(const uint64_t *mask, int32_t id) {
    return (mask[id / 64] >> id % 64 & 1) != 0;
}

static void check_mask(struct grammar *g, struct grammar_matcher *m) {
    const uint64_t *borrowed;
    struct err err;
    size_t n_words = div_up((size_t)trie->n_tokens, 64);
    uint64_t *mask = malloc(n_words * sizeof *mask);
    assert_int_equal(grammar_matcher_mask(m, &borrowed, &err), ST_OK);
    memcpy(mask, borrowed, n_words * sizeof *mask);
    struct grammar_matcher *probe = open_matcher(g);
    for (int32_t id = 0; id < trie->n_tokens; id++) {
        grammar_matcher_copy(probe, m);
        if (grammar_matcher_accept(probe, id) != bit(mask, id))
            fail_msg("token %d: the mask says %d", id, bit(mask, id));
    }
    grammar_matcher_close(probe);
    free(mask);
}

static void a_mask_is_what_accept_says(void **state) {
    (void)state;
    static const struct {
        const char *gbnf, *text;
    } cases[] = {
        {JSON, ""},
        {JSON, "{\"a"},
        {JSON, "{\"a\":[1,\"x\xe4\xb8"},
        {JSON, "12"},
        {JSON, "{\"a\":{}}"},
        {"root ::= .*", "x"},
        {"root ::= [a-z]{3,8} \"!\"", "ab"},
        {"root ::= \" the\" \" quick\"?", " the"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct grammar *g = open_grammar(cases[i].gbnf);
        struct grammar_matcher *m = open_matcher(g);
        assert_true(grammar_matcher_accept_bytes(m, cases[i].text, strlen(cases[i].text)));
        check_mask(g, m);
        grammar_matcher_close(m);
        grammar_close(g);
    }
}

/* The mask after each text, by its definition: each token's bytes are fed to a matcher of a
 * grammar that has never made a mask. */
static void check_mask_after(const char *gbnf, const char *text) {
    struct grammar *g = open_grammar(gbnf), *other = open_grammar(gbnf);
    struct grammar_matcher *m = open_matcher(g), *there = open_matcher(other),
                           *probe = open_matcher(other);
    const uint64_t *mask;
    struct err err;
    assert_true(grammar_matcher_accept_bytes(m, text, strlen(text)));
    assert_true(grammar_matcher_accept_bytes(there, text, strlen(text)));
    if (grammar_matcher_mask(m, &mask, &err) != ST_OK)
        fail_msg("%s: after \"%s\": %s", gbnf, text, err.text);
    for (int32_t id = 0; id < trie->n_tokens; id++) {
        struct gguf_str bytes = token_bytes(tokenizer, id, false);
        bool end = tokenizer_is_end(tokenizer, id);
        grammar_matcher_copy(probe, there);
        bool may =
            end ? grammar_matcher_may_end(there)
                : bytes.len > 0 && grammar_matcher_accept_bytes(probe, bytes.ptr, bytes.len);
        if (may != bit(mask, id))
            fail_msg("%s: after \"%s\" the mask says %d of \"%.*s\"", gbnf, text, bit(mask, id),
                     (int)bytes.len, bytes.ptr);
    }
    grammar_matcher_close(probe);
    grammar_matcher_close(there);
    grammar_matcher_close(m);
    grammar_close(g);
    grammar_close(other);
}

/* Strings in all the ways that shapes are used, or cannot be. */
static void masks_by_their_definition(void **state) {
    (void)state;
#define TEXT "[^\"\\\\\\x00-\\x1f]"
    static const struct {
        const char *gbnf, *texts[4];
    } cases[] = {
        {JSON, {"\"", "\"a\\", "[\"\xe4\xb8", "{\"k\":"}},
        {"root ::= \"\\\"\" " TEXT "{0,200} \"\\\",\"", {"\"", "\"abc"}},
        {"root ::= \"\\\"\" " TEXT "{2,7} \"\\\" \" [a-z]*",
         {"\"", "\"a", "\"abcde", "\"abc\" "}},
        /* bytes that lead elsewhere than the others, at once or later */
        {"root ::= \"\\\"\" (\"name\" [0-9] | [^n\"\\\\] " TEXT
         "* | \"n\" [^a\"\\\\]*) \"\\\"\"",
         {"\"", "\"n", "\"na", "\"x"}},
        {"root ::= [a-z]{0,11} (\" \" [A-Za-z0-9_-]{1,40})* \"!\"",
         {"", "abc", "a b", "a bC-d_e"}},
        {"root ::= ([a-z]{1,3} [0-9])* | [A-Za-z]+", {"", "a", "ab1", "Ab"}},
        /* characters that are not alike */
        {"root ::= ([a-z] | [\\u00e0-\\u00ff])*", {"", "\xc3"}},
        {"root ::= [^a\\u4e00-\\u4eff]*", {"b"}},
        {"root ::= [a-z\\u0080-\\uffff]{0,5}", {"", "abcd", "\xe4\xb8\xad"}},
        {"root ::= [ -~]{0,3} | [ -~\\u0080-\\U0010FFFF]* \"\\n\"", {"", "abc"}},
        {"root ::= (w \" \"?)*\nw ::= \"a\" [a-z]{0,3} | \"b\" [a-z]{0,9} | \"t\" [a-z]{0,5}",
         {"", "a", "bcdt", "tttt "}},
        {"root ::= \"(\" root \")\" | [^()]*", {"((", "(x"}},
    };
#undef TEXT
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t k = 0; k < 4 && cases[i].texts[k] != NULL; k++)
            check_mask_after(cases[i].gbnf, cases[i].texts[k]);
}

/* As deep as rules may nest, and one less. */
static int32_t token_of(const char *text) {
    int32_t id = tokenizer_find(tokenizer, text, strlen(text));
    assert_true(id >= 0);
    return id;
}

static bool mask_has(struct grammar_matcher *m, int32_t id) {
    const uint64_t *mask;
    struct err err;
    assert_int_equal(grammar_matcher_mask(m, &mask, &err), ST_OK);
    return mask[id / 64] >> id % 64 & 1;
}

/* Tokens that no text is made of. Their characters are another thing; a name that is no token's is
 * its characters. */
static void named_tokens(void **state) {
    (void)state;
    const int32_t begin = token_of("<|start_header_id|>"), end = token_of("<|end_header_id|>");
    struct grammar *g =
        open_grammar("root ::= <|start_header_id|> text <|end_header_id|> <x\"y>\n"
                     "text ::= [^0-9]+\n");
    struct grammar_matcher *m = open_matcher(g);
    assert_true(mask_has(m, begin));
    assert_false(mask_has(m, end));
    assert_false(mask_has(m, token_of("<")));
    assert_false(grammar_matcher_accept_bytes(m, "<|start_header_id|>", 19));
    assert_false(grammar_matcher_accept_bytes(m, "\xf5", 1)); /* what stands for it within */
    assert_false(grammar_matcher_accept(m, end));
    check_mask(g, m);
    assert_true(grammar_matcher_accept(m, begin));
    assert_false(mask_has(m, begin));
    assert_false(mask_has(m, end));
    check_mask(g, m);
    assert_true(grammar_matcher_accept_bytes(m, "<|end_header_id|>", 17));
    assert_true(mask_has(m, end));
    assert_true(mask_has(m, token_of("<")));
    check_mask(g, m);
    const uint64_t *mask;
    assert_false(grammar_matcher_known(m, begin, &mask));
    assert_true(grammar_matcher_accept(m, end));
    assert_false(grammar_matcher_accept(m, end));
    assert_true(mask_has(m, token_of("<")));
    assert_true(grammar_matcher_accept_bytes(m, "<x\"y>", 5));
    assert_true(grammar_matcher_may_end(m));
    grammar_matcher_close(m);
    /* What has been asked once is known: by these tokens, too. */
    m = open_matcher(g);
    assert_true(grammar_matcher_known(m, begin, &mask));
    assert_false(mask[end / 64] >> end % 64 & 1);
    grammar_matcher_close(m);
    grammar_close(g);
}

static void masks_at_the_end_of_nesting(void **state) {
    (void)state;
    char text[GRAMMAR_MAX_DEPTH + 1] = "";
    memset(text, '(', GRAMMAR_MAX_DEPTH - 1);
    for (int i = 0; i < 2; i++) {
        check_mask_after("root ::= \"(\" root \")\" | [^()]*", text);
        text[GRAMMAR_MAX_DEPTH - 1] = '(';
    }
}

/* 40 words of a choice that can be told apart in many ways: it took 20 million units for each
 * mask, with 0.4 s, when alternatives that go on alike were in different places. */
static void words_in_a_row_take_little_work(void **state) {
    (void)state;
    char gbnf[2048], *at = gbnf + sprintf(gbnf, "root ::= (w \" \"?)*\nw ::= ");
    for (int i = 0; i < 40; i++)
        at += sprintf(at, "%s\"%c\" [a-z]{0,%d}", i > 0 ? " | " : "", 'a' + i % 26, i % 12);
    static const char *const texts[] = {"so",   "me", " word", "s in",
                                        " a r", "ow", " as",   " ever"};
    struct grammar *g = open_grammar(gbnf);
    struct grammar_matcher *m = open_matcher(g);
    const uint64_t *mask;
    struct err err;
    grammar_limit_work(g, 1 << 24);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        if (grammar_matcher_mask(m, &mask, &err) != ST_OK)
            fail_msg("after %zu pieces: %s", i, err.text);
        assert_true(grammar_matcher_accept_bytes(m, texts[i], strlen(texts[i])));
    }
    grammar_matcher_close(m);
    grammar_close(g);
}

/* known() says what accept() and mask() have found before, and nothing else. */
static void what_is_known(void **state) {
    (void)state;
    struct grammar *g = open_grammar(JSON);
    struct grammar_matcher *m = open_matcher(g), *other = open_matcher(g);
    const uint64_t *mask, *known;
    struct err err;
    int32_t quote = tokenizer_find(tokenizer, "\"", 1), a = tokenizer_find(tokenizer, "a", 1);
    assert_false(grammar_matcher_known(m, TOKEN_NONE, &known));
    grammar_matcher_prepare(m, 10); /* not for so little */
    assert_false(grammar_matcher_known(m, TOKEN_NONE, &known));
    grammar_matcher_prepare(m, GRAMMAR_MASK_WORK);
    assert_true(grammar_matcher_known(m, TOKEN_NONE, &known));
    assert_true(bit(known, quote) && !bit(known, a));
    assert_false(grammar_matcher_known(m, a, &known)); /* does not fit */
    assert_false(grammar_matcher_known(m, quote, &known));
    assert_true(grammar_matcher_accept(m, quote));
    assert_int_equal(grammar_matcher_mask(m, &mask, &err), ST_OK);
    assert_true(bit(mask, a));
    assert_true(grammar_matcher_known(other, quote, &known) && bit(known, a));
    assert_true(grammar_matcher_known(m, a, &known) && bit(known, a));
    assert_true(grammar_matcher_accept(m, quote));
    assert_true(grammar_matcher_may_end(m));
    assert_int_equal(grammar_matcher_mask(m, &mask, &err), ST_OK);
    assert_false(grammar_matcher_known(m, trie->ends[0], &known));
    assert_true(grammar_matcher_may_end(m));
    grammar_matcher_close(other);
    grammar_matcher_close(m);
    grammar_close(g);
}

static int32_t nth_allowed(const uint64_t *mask, uint64_t n) {
    for (int32_t w = 0;; w++) {
        uint64_t here = (uint64_t)__builtin_popcountll(mask[w]);
        if (n >= here) {
            n -= here;
            continue;
        }
        uint64_t bits = mask[w];
        while (n-- > 0)
            bits &= bits - 1;
        return w * 64 + __builtin_ctzll(bits);
    }
}

static size_t count_allowed(const uint64_t *mask) {
    size_t n = 0;
    for (size_t w = 0; w < div_up((size_t)trie->n_tokens, 64); w++)
        n += (size_t)__builtin_popcountll(mask[w]);
    return n;
}

/* Tokens drawn evenly from the mask until the end token or max_tokens. True if it ended. */
static bool generate(struct grammar *g, uint64_t seed, int max_tokens, char *out, size_t cap) {
    struct grammar_matcher *m = open_matcher(g);
    size_t len = 0;
    bool ended = false;
    for (int i = 0; i < max_tokens && !ended; i++) {
        const uint64_t *mask;
        struct err err;
        if (grammar_matcher_mask(m, &mask, &err) != ST_OK)
            fail_msg("%s", err.text);
        /* Ends when it can, half of the time. */
        bool stop = grammar_matcher_may_end(m) && rng_u64(seed, (uint64_t)i) % 2 == 0;
        int32_t id =
            stop ? trie->ends[0]
                 : nth_allowed(mask, rng_u64(seed + 1000, (uint64_t)i) % count_allowed(mask));
        assert_true(bit(mask, id));
        assert_true(grammar_matcher_accept(m, id));
        ended = tokenizer_is_end(tokenizer, id);
        struct gguf_str bytes = token_bytes(tokenizer, id, false);
        if (ended || len + bytes.len >= cap)
            break;
        memcpy(out + len, bytes.ptr, bytes.len);
        len += bytes.len;
    }
    out[len] = '\0';
    grammar_matcher_close(m);
    return ended;
}

static void random_json_is_json(void **state) {
    (void)state;
    struct grammar *g = open_grammar(JSON);
    static char text[1 << 16];
    size_t n_ended = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        if (!generate(g, seed, 300, text, sizeof text))
            continue;
        json_error_t e;
        json_t *j = json_loads(text, JSON_DECODE_ANY, &e);
        if (j == NULL)
            fail_msg("seed %d: %s: %s", (int)seed, e.text, text);
        json_decref(j);
        n_ended++;
    }
    assert_true(n_ended >= 10);
    grammar_close(g);
}

/* More states than are kept: what no matcher stands in is forgotten, what one stands in is not. */
static void states_are_forgotten(void **state) {
    (void)state;
    struct grammar *g = open_grammar("root ::= x{0,60000}\nx ::= [a-c] | \"(\" x \")\"");
    struct grammar_matcher *walker = open_matcher(g), *resting = open_matcher(g);
    assert_true(grammar_matcher_accept_bytes(resting, "ab((", 4));
    for (int i = 0; i < 60000; i++)
        assert_true(grammar_matcher_accept_bytes(walker, "b", 1));
    assert_false(grammar_matcher_accept_bytes(walker, "b", 1));
    assert_true(grammar_matcher_may_end(walker));
    assert_false(grammar_matcher_may_end(resting));
    assert_false(grammar_matcher_accept_bytes(resting, ")", 1));
    assert_true(grammar_matcher_accept_bytes(resting, "c))", 3));
    assert_false(grammar_matcher_accept_bytes(resting, ")", 1));
    assert_true(grammar_matcher_may_end(resting));
    check_mask(g, resting);
    grammar_matcher_close(walker);
    grammar_matcher_close(resting);
    grammar_close(g);
}

static void masks_are_quick(void **state) {
    (void)state;
    struct grammar *g = open_grammar(JSON);
    struct grammar_matcher *m = open_matcher(g);
    static const char *const steps[] = {"{", "\"", "key", "\":", "[", "{\"", "k", "\":", "\"x"};
    double worst = 0;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        const uint64_t *mask;
        struct err err;
        assert_true(grammar_matcher_accept_bytes(m, steps[i], strlen(steps[i])));
        double begin = clock_s();
        assert_int_equal(grammar_matcher_mask(m, &mask, &err), ST_OK);
        worst = MAX(worst, clock_s() - begin);
    }
    printf("slowest new mask: %.2f ms\n", worst * 1e3);
    assert_true(worst <
                0.2); /* about 1.5 ms alone; the machine may be busy, the build sanitized */
    grammar_matcher_close(m);
    grammar_close(g);
}

int main(void) {
    if (access(VOCABULARY, R_OK) != 0) {
        printf("skip: " VOCABULARY " is not there\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_that_match),
        cmocka_unit_test(counts),
        cmocka_unit_test(wrong_grammars_are_refused),
        cmocka_unit_test(hostile_grammars_stay_small),
        cmocka_unit_test(long_chains_of_rules),
        cmocka_unit_test(nesting_has_an_end),
        cmocka_unit_test(too_many_readings_are_an_error),
        cmocka_unit_test(what_is_given_up_is_no_end),
        cmocka_unit_test(a_mask_has_a_budget),
        cmocka_unit_test(a_grammar_has_a_budget),
        cmocka_unit_test(what_is_known),
        cmocka_unit_test(masks_by_their_definition),
        cmocka_unit_test(named_tokens),
        cmocka_unit_test(masks_at_the_end_of_nesting),
        cmocka_unit_test(words_in_a_row_take_little_work),
        cmocka_unit_test(a_mask_is_what_accept_says),
        cmocka_unit_test(random_json_is_json),
        cmocka_unit_test(states_are_forgotten),
        cmocka_unit_test(masks_are_quick),
    };
    return cmocka_run_group_tests(tests, open_vocabulary, close_vocabulary);
}
