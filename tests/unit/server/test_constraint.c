/* Constraints of a request's text (server/constraint.h): before the answer, in it, and where
 * calls may stand for it. */
#include "base/mem.h"
#include "base/util.h"
#include "format/gguf.h"
#include "grammar/grammar.h"
#include "server/constraint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define CALL "<|im_start|>" /* stands for the token that begins calls */
#define WORDS 64

static struct gguf *g;
static struct tokenizer *t;
static struct token_trie *trie;

static int set_up(void **state) {
    (void)state;
    assert_int_equal(gguf_open(&g, SOURCE_DIR "/models/jargon-3m-f16.gguf", NULL, NULL), ST_OK);
    assert_int_equal(tokenizer_open(&t, g, NULL), ST_OK);
    assert_int_equal(token_trie_open(&trie, t, NULL), ST_OK);
    assert_true(trie->n_tokens <= 64 * WORDS);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    token_trie_close(trie);
    tokenizer_close(t);
    gguf_close(g);
    return 0;
}

static int32_t token(const char *text) {
    int32_t id = tokenizer_find(t, text, strlen(text));
    assert_true(id >= 0);
    return id;
}

static struct engine_constraint begin(const char *trigger, const char *call) {
    struct engine_constraint c;
    const struct constraint_rules rules = {
        .gbnf = "root ::= \"ab\"", .trigger = trigger, .call = call};
    assert_int_equal(constraint_open(&c, &rules, trie, NULL), ST_OK);
    return c;
}

/* -1: nothing is asked of the next token; else whether it may be this one. */
static int may(const struct engine_constraint *c, int32_t id) {
    uint64_t mask[WORDS] = {0};
    enum engine_allows allows = c->mask(c->state, mask, NULL);
    assert_int_not_equal(allows, ENGINE_ALLOWS_NONE);
    if (allows == ENGINE_ALLOWS_ALL)
        return -1;
    return (int)(mask[id / 64] >> (id % 64) & 1);
}

static void test_the_answer_alone(void **state) {
    (void)state;
    struct engine_constraint c = begin(NULL, NULL);
    assert_int_equal(may(&c, token("a")), 1);
    assert_int_equal(may(&c, token("b")), 0);
    assert_int_equal(may(&c, token(CALL)), 0);
    c.accept(c.state, token("a"));
    c.accept(c.state, token("b"));
    assert_int_equal(may(&c, token("a")), 0);
    assert_int_equal(may(&c, token("<|im_end|>")), 1);
    c.free(c.state);
}

/* The same answers from what is known already, and none where it is not. */
static void test_what_is_known(void **state) {
    (void)state;
    uint64_t mask[WORDS] = {0};
    struct engine_constraint c = begin("b", NULL);
    assert_int_equal(c.known(c.state, TOKEN_NONE, mask), ENGINE_ALLOWS_SOME);
    assert_int_equal(c.known(c.state, token("a"), mask), ENGINE_ALLOWS_SOME);
    assert_int_equal(mask[token("b") / 64] >> token("b") % 64 & 1, 1);
    assert_int_equal(mask[token("<|im_end|>") / 64] >> token("<|im_end|>") % 64 & 1, 0);
    assert_int_equal(c.known(c.state, token("b"), mask), ENGINE_ALLOWS_UNKNOWN);
    c.accept(c.state, token("b"));
    assert_int_equal(may(&c, token("a")), 1);
    assert_int_equal(may(&c, token("b")), 0);
    c.free(c.state);

    c = begin(NULL, CALL);
    memset(mask, 0, sizeof mask);
    assert_int_equal(c.known(c.state, TOKEN_NONE, mask), ENGINE_ALLOWS_SOME);
    assert_int_equal(mask[token("a") / 64] >> token("a") % 64 & 1, 1);
    assert_int_equal(mask[token(CALL) / 64] >> token(CALL) % 64 & 1, 1);
    assert_int_equal(c.known(c.state, token("a"), mask), ENGINE_ALLOWS_UNKNOWN);
    struct engine_constraint other = c;
    other.state = c.clone(c.state);
    assert_int_equal(other.known(other.state, token(CALL), mask), ENGINE_ALLOWS_ALL);
    assert_int_equal(may(&other, token("b")), -1);
    c.accept(c.state, token("a")); /* of which the first choice knew nothing before */
    assert_int_equal(may(&c, token(CALL)), 0);
    c.free(c.state);
    other.free(other.state);
}

static void test_calls_instead(void **state) {
    (void)state;
    struct engine_constraint c = begin(NULL, CALL);
    assert_int_equal(may(&c, token("a")), 1);
    assert_int_equal(may(&c, token("b")), 0);
    assert_int_equal(may(&c, token(CALL)), 1);
    struct engine_constraint other = c; /* the choice beside it answers */
    other.state = c.clone(c.state);
    assert_non_null(other.state);
    c.accept(c.state, token(CALL));
    assert_int_equal(may(&c, token("b")), -1);
    c.accept(c.state, token("b"));
    assert_int_equal(may(&c, token("b")), -1);
    other.accept(other.state, token("a"));
    assert_int_equal(may(&other, token(CALL)), 0); /* not in the middle of it */
    assert_int_equal(may(&other, token("b")), 1);
    c.free(c.state);
    other.free(other.state);
    /* A vocabulary without such a token. */
    c = begin(NULL, "<no such token>");
    assert_int_equal(may(&c, token("a")), 1);
    assert_int_equal(may(&c, token(CALL)), 0);
    c.free(c.state);
}

/* A model that thinks first cannot end its turn before it has answered, but by a call that it
 * may make. */
static void test_before_the_answer(void **state) {
    (void)state;
    for (int calls = 0; calls < 2; calls++) {
        struct engine_constraint c = begin("b", calls ? "<|im_end|>" : NULL);
        assert_int_equal(may(&c, token("a")), 1);
        assert_int_equal(may(&c, token("<|im_end|>")), calls);
        c.accept(c.state, token("a"));
        assert_int_equal(may(&c, token("<|im_end|>")), calls);
        c.accept(c.state, token("b"));
        assert_int_equal(may(&c, token("a")), 1);
        assert_int_equal(may(&c, token("b")), 0);
        c.free(c.state);
    }
}

/* End tokens that are to be ignored come when nothing else may. */
static void test_ends_are_ignored(void **state) {
    (void)state;
    struct engine_constraint c;
    const struct constraint_rules rules = {.gbnf = "root ::= \"a\" \"b\"?", .ignore_end = true};
    assert_int_equal(constraint_open(&c, &rules, trie, NULL), ST_OK);
    c.accept(c.state, token("a"));
    assert_int_equal(may(&c, token("b")), 1);
    assert_int_equal(may(&c, token("<|im_end|>")), 0);
    c.accept(c.state, token("b"));
    assert_int_equal(may(&c, token("<|im_end|>")), 1);
    c.free(c.state);
}

static void test_what_nothing_fits(void **state) {
    (void)state;
    struct engine_constraint c;
    struct err err = {.text = ""};
    for (int of_schema = 0; of_schema < 2; of_schema++) {
        const struct constraint_rules rules = {.gbnf = "root ::= []", .of_schema = of_schema};
        assert_int_equal(constraint_open(&c, &rules, trie, &err), ST_BAD_INPUT);
        assert_non_null(strstr(err.text, of_schema ? "the schema allows no value"
                                                   : "the grammar is endless"));
        assert_int_equal(err.code, ERR_GRAMMAR_ENDLESS);
    }
}

static void test_formats(void **state) {
    (void)state;
    for (int format = 0; format < CHAT_N_FORMATS; format++)
        assert_true(constraint_knows_calls((enum chat_format)format) || format == CHAT_PLAIN ||
                    strlen(chat_format_call((enum chat_format)format)) > 5);
}

static bool reads(struct grammar *grammar, const char *text) {
    struct grammar_matcher *m;
    assert_int_equal(grammar_matcher_open(&m, grammar, NULL), ST_OK);
    bool whole =
        grammar_matcher_accept_bytes(m, text, strlen(text)) && grammar_matcher_may_end(m);
    grammar_matcher_close(m);
    return whole;
}

/* Each function's parameters are a document of their own, and so is the answer's schema: the
 * same reference means another thing in each. */
static void test_references_within_parameters(void **state) {
    (void)state;
    json_t *tools = json_loads(
        "[{\"type\":\"function\",\"function\":{\"name\":\"paint\",\"parameters\":{\"type\":"
        "\"object\",\"properties\":{\"c\":{\"$ref\":\"#/$defs/C\"}},\"required\":[\"c\"],"
        "\"$defs\":{\"C\":{\"enum\":[\"red\"]}}}}},{\"type\":\"function\",\"function\":{"
        "\"name\":\"a\\\"b\",\"parameters\":{\"type\":\"object\",\"properties\":{\"c\":{"
        "\"$ref\":\"#/$defs/C\"},\"next\":{\"$ref\":\"#\"}},\"$defs\":{\"C\":{\"type\":"
        "\"integer\"}}}}},{\"type\":\"function\",\"function\":{\"name\":\"odd\","
        "\"parameters\":{\"properties\":{\"y\":{\"pattern\":\"(a)\\\\1\"}}}}},{\"type\":\"function\",\"function\":{\"name\":\"plain\","
        "\"parameters\":{}}}]",
        0, NULL);
    json_t *answer =
        json_loads("{\"$ref\":\"#/$defs/C\",\"$defs\":{\"C\":{\"type\":\"null\"}}}", 0, NULL);
    assert_non_null(tools);
    char *gbnf = NULL;
    struct err err = {.text = ""};
    struct grammar *grammar = NULL;
    if (constraint_tool_gbnf(CHAT_HERMES, tools, NULL, true, answer, &gbnf, &err) != ST_OK ||
        grammar_open(&grammar, gbnf, strlen(gbnf), trie, &err) != ST_OK)
        fail_msg("%s", err.text);
#define AS_CALL(json) "<tool_call>\n" json "\n</tool_call>"
#define PAINT(c) AS_CALL("{\"name\": \"paint\", \"arguments\": {\"c\": " c "}}")
#define A_B(arguments) AS_CALL("{\"name\": \"a\\\"b\", \"arguments\": " arguments "}")
    assert_true(reads(grammar, PAINT("\"red\"")));
    assert_false(reads(grammar, PAINT("5")));
    assert_true(reads(grammar, A_B("{\"c\": 5, \"next\": {\"c\":1}}") "\n" A_B("{}")));
    assert_false(reads(grammar, A_B("{\"c\": \"red\"}")));
    assert_true(reads(grammar, AS_CALL("{\"name\":\"odd\",\"arguments\":{\"x\":[1]}}")));
    assert_false(reads(grammar, AS_CALL("{\"name\":\"odd\"}")));
    assert_true(reads(grammar, AS_CALL("{\"name\":\"plain\",\"arguments\":{\"x\":[1]}}")));
    assert_false(reads(grammar, AS_CALL("{\"name\":\"plain\",\"arguments\":5}")));
    assert_true(reads(grammar, "null"));
    assert_false(reads(grammar, "5"));
    grammar_close(grammar);
    mem_free(gbnf);
    json_decref(answer);
    json_decref(tools);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_answer_alone),
        cmocka_unit_test(test_what_is_known),
        cmocka_unit_test(test_calls_instead),
        cmocka_unit_test(test_ends_are_ignored),
        cmocka_unit_test(test_before_the_answer),
        cmocka_unit_test(test_what_nothing_fits),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_references_within_parameters),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
