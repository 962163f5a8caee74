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
    for (int format = 0; format < CHAT_N_FORMATS; format++) {
        const char *opening = constraint_opening((enum chat_format)format);
        assert_true(constraint_knows_calls((enum chat_format)format) || format == CHAT_PLAIN ||
                    strlen(chat_format_call((enum chat_format)format)) > 5);
        if (opening != NULL)
            assert_string_equal(opening, chat_format_call((enum chat_format)format));
    }
}

/* The token before calls comes first, and then what the grammar says; after thoughts, too. */
static void test_an_opening(void **state) {
    (void)state;
    uint64_t mask[WORDS] = {0};
    for (int thinks = 0; thinks < 2; thinks++) {
        struct engine_constraint c;
        const struct constraint_rules rules = {.gbnf = "root ::= \"ab\"",
                                               .trigger = thinks ? "b" : NULL,
                                               .call = CALL,
                                               .opening = CALL};
        assert_int_equal(constraint_open(&c, &rules, trie, NULL), ST_OK);
        if (thinks) {
            assert_int_equal(may(&c, token("a")), 1);
            assert_int_equal(may(&c, token("<|im_end|>")), 0);
            c.accept(c.state, token("b"));
        }
        assert_int_equal(c.known(c.state, TOKEN_NONE, mask), ENGINE_ALLOWS_SOME);
        assert_int_equal(mask[token("a") / 64] >> token("a") % 64 & 1, 0);
        assert_int_equal(mask[token(CALL) / 64] >> token(CALL) % 64 & 1, 1);
        assert_int_equal(c.known(c.state, token(CALL), mask), ENGINE_ALLOWS_UNKNOWN);
        assert_int_equal(may(&c, token("a")), 0);
        assert_int_equal(may(&c, token("<|im_end|>")), 0);
        assert_int_equal(may(&c, token(CALL)), 1);
        c.accept(c.state, token(CALL));
        assert_int_equal(may(&c, token(CALL)), 0);
        assert_int_equal(may(&c, token("a")), 1);
        c.accept(c.state, token("a"));
        c.accept(c.state, token("b"));
        assert_int_equal(may(&c, token("<|im_end|>")), 1);
        c.free(c.state);
    }
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

static void add_event(void *arg, const struct chat_event *e) {
    char *text = arg;
    const char *bracket = e->kind == CHAT_CALL_BEGIN ? "["
                          : e->kind == CHAT_CALL_END ? "]"
                                                     : "";
    strcat(text, bracket);
    strncat(text, e->text, e->len);
}

#define K3_MARKS "<|open|><|close|>"
#define K3_OPEN(tag) "<|open|>" tag "<|sep|>"
#define K3_CLOSE(tag) "<|close|>" tag "<|sep|>"
#define K3_ARGUMENT(key, type, value) \
    K3_OPEN("argument key=\"" key "\" type=\"" type "\"") value K3_CLOSE("argument")
#define K3_CALL(name, arguments) \
    K3_CLOSE("response")         \
    K3_OPEN("tools")             \
    K3_OPEN("call tool=\"" name "\" index=\"1\"") arguments K3_CLOSE("call") K3_CLOSE("tools")
#define K3_ADD \
    K3_OPEN("call tool=\"add\" index=\"1\"") K3_ARGUMENT("a", "number", "1") K3_CLOSE("call")

/* What is enforced is what is read: the grammar takes these texts, and the parser finds the calls
 * in them, behind the token that opens them. */
static void test_enforced_calls_are_read(void **state) {
    (void)state;
    static const struct {
        enum chat_format format;
        const char *prompt, *one, *two; /* two calls, where there may be */
    } cases[] = {
        {CHAT_HERMES, "",
         "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>",
         "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
         "<tool_call>\n{\"name\": \"sub\", \"arguments\": {}}\n</tool_call>"},
        {CHAT_LLAMA3, "", "{\"name\": \"add\", \"parameters\": {\"a\": 1}}", NULL},
        {CHAT_FIREFUNCTION, "", " functools[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]",
         " functools[{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"sub\", "
         "\"arguments\": {}}]"},
        {CHAT_COMMAND_R, "",
         "Action:\n```json\n[{\"tool_name\": \"add\", \"parameters\": {\"a\": 1}}]\n```",
         "Action:\n```json\n[{\"tool_name\": \"add\", \"parameters\": {\"a\": 1}}, {\"tool_name\": "
         "\"sub\", \"parameters\": {}}]\n```"},
        {CHAT_FUNCTIONARY, "", "<function=add>{\"a\": 1}</function>",
         "<function=add>{\"a\": 1}</function><function=sub>{}</function>"},
        {CHAT_FUNCTIONARY_V32, ">>>", "add\n{\"a\": 1}", "add\n{\"a\": 1}>>>sub\n{}"},
        {CHAT_NEMOTRON, "",
         "<TOOLCALL>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]</TOOLCALL>", NULL},
        {CHAT_TOOL_CALLS, "",
         "<tool_calls>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]</tool_calls>", NULL},
        {CHAT_GIGACHAT, "", "{\"name\": \"add\", \"arguments\": {\"a\": 1}}", NULL},
        {CHAT_GRANITE, "", "[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]",
         "[{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"sub\", \"arguments\": {}}]"},
        {CHAT_LFM2, "", "[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]",
         "[{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"sub\", \"arguments\": {}}]"},
        {CHAT_COMMAND_A, "", "[{\"tool_name\": \"add\", \"parameters\": {\"a\": 1}}]",
         "[{\"tool_name\": \"add\", \"parameters\": {\"a\": 1}}, {\"tool_name\": \"sub\", "
         "\"parameters\": {}}]"},
        {CHAT_APERTUS, "", "[{\"add\": {\"a\": 1}}]", "[{\"add\": {\"a\": 1}}, {\"sub\": {}}]"},
        {CHAT_GEMMA, "", "call:add{\"a\": 1}", NULL},
        {CHAT_KIMI_K3, K3_OPEN("response"),
         K3_CLOSE("response") K3_OPEN("tools") K3_ADD K3_CLOSE("tools"),
         K3_CLOSE("response") K3_OPEN("tools") K3_ADD K3_OPEN("call tool=\"sub\" index=\"2\"")
             K3_OPEN("json type=\"object\"") "{}" K3_CLOSE("json") K3_CLOSE("call")
                 K3_CLOSE("tools") K3_CLOSE("message")},
    };
    json_t *tools = json_loads(
        "[{\"type\":\"function\",\"function\":{\"name\":\"add\",\"parameters\":{\"type\":\"object\","
        "\"properties\":{\"a\":{\"type\":\"integer\"}}}}},{\"type\":\"function\",\"function\":{"
        "\"name\":\"sub\",\"parameters\":{}}}]",
        0, NULL);
    assert_non_null(tools);
    size_t n = 0;
    for (int format = 0; format < CHAT_N_FORMATS; format++)
        n += constraint_knows_calls((enum chat_format)format) ||
             constraint_opening((enum chat_format)format) != NULL;
    assert_int_equal(n, ARRAY_LEN(cases));
    for (size_t i = 0; i < 2 * ARRAY_LEN(cases); i++) {
        bool parallel = i % 2 == 1;
        enum chat_format format = cases[i / 2].format;
        const char *text = parallel ? cases[i / 2].two : cases[i / 2].one;
        const char *opening = constraint_opening(format);
        char *gbnf = NULL, read[512] = "";
        struct err err = {.text = ""};
        struct grammar *grammar = NULL;
        if (text == NULL)
            continue;
        if (constraint_tool_gbnf(format, tools, NULL, parallel, NULL, &gbnf, &err) != ST_OK ||
            grammar_open(&grammar, gbnf, strlen(gbnf), trie, &err) != ST_OK)
            fail_msg("%s: %s", chat_format_name(format), err.text);
        if (!reads(grammar, text))
            print_message("%s: %s\n%s\n", chat_format_name(format), text, gbnf);
        assert_true(reads(grammar, text));
        assert_false(reads(grammar, "other"));
        struct chat_parser *p;
        const struct chat_style plain = {format, "", "", "", ""};
        const struct chat_parse_options o = {
            .style = format == CHAT_KIMI_K3 ? chat_style_detect(K3_MARKS, NULL, NULL) : plain,
            .prompt = cases[i / 2].prompt,
            .prompt_len = strlen(cases[i / 2].prompt),
            .tools = tools,
            .on_event = add_event,
            .arg = read};
        assert_int_equal(chat_parser_open(&p, &o, &err), ST_OK);
        if (opening != NULL)
            assert_int_equal(chat_parser_put(p, opening, strlen(opening), &err), ST_OK);
        assert_int_equal(chat_parser_put(p, text, strlen(text), &err), ST_OK);
        assert_int_equal(chat_parser_end(p, false, &err), ST_OK);
        chat_parser_close(p);
        assert_string_equal(read, parallel ? "[add{\"a\": 1}][sub{}]" : "[add{\"a\": 1}]");
        grammar_close(grammar);
        mem_free(gbnf);
    }
    json_decref(tools);
}

/* Arguments that say what they are: each as its schema says, in the schema's order; as one object
 * where that says more of them. */
static void test_typed_arguments(void **state) {
    (void)state;
    static const char text[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
        "\"object\",\"properties\":{\"s\":{\"type\":\"string\",\"description\":\"d\"},\"n\":{"
        "\"type\":\"integer\",\"minimum\":0},\"e\":{\"enum\":[\"x y\",1,null]},\"o\":{\"$ref\":"
        "\"#/$defs/O\"},\"m\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},\"l\":{"
        "\"type\":[\"boolean\",\"array\"]},\"a\\\"&\":{}},\"required\":[\"s\",\"n\"],"
        "\"additionalProperties\":false,\"$defs\":{\"O\":{\"type\":\"object\",\"properties\":{\"p\":"
        "{\"$ref\":\"#/$defs/P\"}},\"required\":[\"p\"],\"additionalProperties\":false},\"P\":{"
        "\"const\":7}}}}},{\"type\":\"function\",\"function\":{\"name\":\"g\",\"parameters\":{"
        "\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\",\"maxLength\":2}},"
        "\"required\":[\"s\"]}}},{\"type\":\"function\",\"function\":{\"name\":\"h\",\"parameters\":"
        "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"any\"}}]";
#define S K3_ARGUMENT("s", "string", "it")
#define N K3_ARGUMENT("n", "number", "5")
#define BLOCK(json) K3_OPEN("json type=\"object\"") json K3_CLOSE("json")
    static const struct {
        const char *text;
        bool fits;
    } cases[] = {
        {K3_CALL("f", S N), true},
        {K3_CALL("f", N S), false},
        {K3_CALL("f", S), false},
        {K3_CALL("f", S N N), false},
        {K3_CALL("f", ""), false},
        {K3_CALL("f", BLOCK("{\"s\": \"it\", \"n\": 5}")), false},
        {K3_CALL("f", K3_ARGUMENT("s", "string", "\"<<|<|\n<|>|c <|") N), true},
        {K3_CALL("f", K3_ARGUMENT("s", "string", "") N), true},
        {K3_CALL("f", K3_ARGUMENT("s", "string", "a<|close|>b") N), false},
        {K3_CALL("f", K3_ARGUMENT("s", "string", "a<|<<|close|>") N), false},
        {K3_CALL("f", K3_ARGUMENT("s", "number", "1") N), false},
        {K3_CALL("f", S K3_ARGUMENT("n", "number", "-5")), false},
        {K3_CALL("f", S N K3_ARGUMENT("e", "string", "x y")), true},
        {K3_CALL("f", S N K3_ARGUMENT("e", "number", "1")), true},
        {K3_CALL("f", S N K3_ARGUMENT("e", "null", "null")), true},
        {K3_CALL("f", S N K3_ARGUMENT("e", "string", "1")), false},
        {K3_CALL("f", S N K3_ARGUMENT("o", "object", "{\"p\": 7}")), true},
        {K3_CALL("f", S N K3_ARGUMENT("o", "object", "{\"p\": 8}")), false},
        {K3_CALL("f", S N K3_ARGUMENT("m", "string", "5")), true},
        {K3_CALL("f", S N K3_ARGUMENT("m", "null", "null")), true},
        {K3_CALL("f", S N K3_ARGUMENT("m", "number", "5")), false},
        {K3_CALL("f", S N K3_ARGUMENT("l", "array", "[1, \"\"]")), true},
        {K3_CALL("f", S N K3_ARGUMENT("l", "boolean", "false")), true},
        {K3_CALL("f", S N K3_ARGUMENT("a&quot;&amp;", "object", "{\"k\": []}")), true},
        {K3_CALL("f", S N K3_ARGUMENT("a&quot;&amp;", "string", "{}")), true},
        {K3_CALL("g", BLOCK("{\"s\": \"it\"}")), true},
        {K3_CALL("g", BLOCK("{\"s\": \"its\"}")), false},
        {K3_CALL("g", S), false},
        {K3_CALL("h", ""), true},
        {K3_CALL("h", S), false},
        {K3_CALL("any", ""), true},
        {K3_CALL("any", BLOCK("{\"s\": [1]}")), true},
        {K3_CALL("any", BLOCK("5")), false},
        {K3_CALL("none", ""), false},
        {"{\"x\": 1}", true}, /* the answer instead */
        {"so", false},
    };
    json_t *tools = json_loads(text, 0, NULL), *answer = json_pack("{s:s}", "type", "object");
    assert_non_null(tools);
    char *gbnf = NULL;
    struct err err = {.text = ""};
    struct grammar *grammar = NULL;
    if (constraint_tool_gbnf(CHAT_KIMI_K3, tools, NULL, true, answer, &gbnf, &err) != ST_OK ||
        grammar_open(&grammar, gbnf, strlen(gbnf), trie, &err) != ST_OK)
        fail_msg("%s\n%s", err.text, gbnf != NULL ? gbnf : "");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (reads(grammar, cases[i].text) != cases[i].fits)
            print_message("%s\n%s\n", cases[i].text, gbnf);
        assert_int_equal(reads(grammar, cases[i].text), cases[i].fits);
    }
    grammar_close(grammar);
    mem_free(gbnf);
    json_decref(tools);
    json_decref(answer);
#undef S
#undef N
#undef BLOCK
}

/* An opening that no single token has: its tokens, one after the other; after thoughts, too. */
static void test_an_opening_of_several_tokens(void **state) {
    (void)state;
    static const char opening[] = CALL "answer" CALL;
    int32_t *ids;
    size_t n;
    assert_int_equal(tokenize(t, opening, strlen(opening), TOKENIZE_SPECIAL, &ids, &n, NULL),
                     ST_OK);
    assert_true(n >= 3 && ids[0] == token(CALL) && ids[n - 1] == token(CALL));
    for (int thinks = 0; thinks < 2; thinks++) {
        struct engine_constraint c;
        const struct constraint_rules rules = {
            .gbnf = "root ::= \"ab\"", .trigger = thinks ? "b" CALL : NULL, .opening = opening};
        assert_int_equal(constraint_open(&c, &rules, trie, NULL), ST_OK);
        if (thinks) {
            assert_int_equal(may(&c, token("a")), 1);
            assert_int_equal(may(&c, token("<|im_end|>")), 0);
            c.accept(c.state, token("b"));
            assert_int_equal(may(&c, token("a")), 1);
            c.accept(c.state, token(CALL));
        }
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(may(&c, token("a")), ids[i] == token("a"));
            assert_int_equal(may(&c, token("<|im_end|>")), 0);
            assert_int_equal(may(&c, ids[i]), 1);
            struct engine_constraint other =
                c; /* a choice beside it stands where this one does */
            other.state = c.clone(c.state);
            assert_int_equal(may(&other, ids[i]), 1);
            other.free(other.state);
            c.accept(c.state, ids[i]);
        }
        assert_int_equal(may(&c, token(CALL)), 0);
        assert_int_equal(may(&c, token("a")), 1);
        c.free(c.state);
    }
    mem_free(ids);
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
        cmocka_unit_test(test_an_opening),
        cmocka_unit_test(test_enforced_calls_are_read),
        cmocka_unit_test(test_references_within_parameters),
        cmocka_unit_test(test_typed_arguments),
        cmocka_unit_test(test_an_opening_of_several_tokens),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
