/* JSON Schema to grammar: which JSON texts are let through (tables by hand from the JSON Schema
 * specification), what is refused, and that hostile schemas end quickly. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"
#include "grammar/grammar.h"
#include "schema/json_schema.h"
#include "schema/regex.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL SHARED_DIR "/golden/logits/llama.gguf"

static struct tokenizer *tokenizer;
static struct token_trie *trie;

static int open_model(void **state) {
    (void)state;
    struct gguf *g;
    struct err err;
    if (gguf_open(&g, MODEL, NULL, &err) != ST_OK ||
        tokenizer_open(&tokenizer, g, &err) != ST_OK ||
        token_trie_open(&trie, tokenizer, &err) != ST_OK)
        return -1;
    gguf_close(g);
    return 0;
}

static int close_model(void **state) {
    (void)state;
    token_trie_close(trie);
    tokenizer_close(tokenizer);
    return 0;
}

static json_t *parse(const char *text) {
    json_error_t e;
    json_t *j = json_loads(text, JSON_DECODE_ANY, &e);
    if (j == NULL)
        fail_msg("%s: %s", text, e.text);
    return j;
}

static enum status open_schema(struct grammar **out, const char *text, struct err *err) {
    json_t *schema = parse(text);
    char *gbnf = NULL;
    enum status st = json_schema_to_gbnf(schema, &gbnf, err);
    json_decref(schema);
    if (st != ST_OK)
        return st;
    st = grammar_open(out, gbnf, strlen(gbnf), trie, err);
    mem_free(gbnf);
    return st;
}

/* 'w': a whole text; 'b': the beginning of one; 'n': neither. */
static char reads(struct grammar *g, const char *text) {
    struct grammar_matcher *m;
    struct err err;
    assert_int_equal(grammar_matcher_open(&m, g, &err), ST_OK);
    bool ok = grammar_matcher_accept_bytes(m, text, strlen(text));
    char c = !ok ? 'n' : grammar_matcher_may_end(m) ? 'w' : 'b';
    grammar_matcher_close(m);
    return c;
}

struct schema_case {
    const char *schema;
    const char *good[8], *bad[12]; /* bad: not a whole text */
};

static void check_cases(const struct schema_case *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct grammar *g;
        struct err err;
        if (open_schema(&g, cases[i].schema, &err) != ST_OK)
            fail_msg("%s: %s", cases[i].schema, err.text);
        for (size_t k = 0; cases[i].good[k] != NULL; k++)
            if (reads(g, cases[i].good[k]) != 'w')
                fail_msg("%s must allow %s", cases[i].schema, cases[i].good[k]);
        for (size_t k = 0; cases[i].bad[k] != NULL; k++)
            if (reads(g, cases[i].bad[k]) == 'w')
                fail_msg("%s must not allow %s", cases[i].schema, cases[i].bad[k]);
        grammar_close(g);
    }
}

static void simple_types(void **state) {
    (void)state;
    static const struct schema_case cases[] = {
        {"true", {"1", "{\"a\": [null]}", "\"x\""}, {"", "nul"}},
        {"{}", {"[]", "-0.5e3"}, {"01", "+1", ".5", "1.", "'x'"}},
        {"{\"type\":\"null\"}", {"null"}, {"0"}},
        {"{\"type\":\"boolean\"}", {"true", "false"}, {"True"}},
        {"{\"type\":\"integer\"}", {"0", "-12"}, {"1.0", "-0", "007", "1e3"}},
        {"{\"type\":\"number\"}", {"0", "-1.25", "1e9", "1E-2"}, {"1e999", "NaN"}},
        {"{\"type\":\"string\"}",
         {"\"\"", "\"\\n\\u00e9\"", "\"\xf0\x9f\x98\x80\"", "\"\\ud83d\\ude00\""},
         {"\"\\ud83d\"", "\"\\u0000\"", "\"\n\"", "\"\\x\"", "\""}},
        {"{\"type\":[\"string\",\"null\"],\"maxLength\":1}",
         {"null", "\"a\""},
         {"\"ab\"", "1"}},
        {"{\"type\":\"string\",\"nullable\":true}", {"null", "\"a\""}, {"1"}},
        {"{\"enum\":[\"a\\\"b\",2,null,{\"x\":[1]}]}",
         {"\"a\\\"b\"", "2", "null", "{\"x\":[1]}"},
         {"\"a\"", "3"}},
        {"{\"enum\":[\"a\",2],\"type\":\"integer\"}", {"2"}, {"\"a\""}},
        {"{\"type\":\"string\",\"format\":\"enum\",\"enum\":[\"a\",\"b\"]}",
         {"\"a\"", "\"b\""},
         {"\"c\""}},
        {"{\"type\":\"integer\",\"format\":\"int32\",\"enum\":[1,2,3],\"minimum\":1,"
         "\"exclusiveMaximum\":3}",
         {"1", "2"},
         {"0", "3"}},
        {"{\"enum\":[\"\xc3\xa9\",\"ab\",\"abc\",7],\"minLength\":2,\"maxLength\":2}",
         {"\"ab\"", "7"},
         {"\"\xc3\xa9\"", "\"abc\""}},
        {"{\"const\":\"ab\",\"minLength\":1,\"format\":\"x\"}", {"\"ab\""}, {"\"a\""}},
        {"{\"const\":\"\xc3\xa9\"}", {"\"\xc3\xa9\""}, {"\"e\""}},
        {"{\"const\":0.1}", {"0.1"}, {"0.10000000000000001"}},
        {"{\"const\":[0.30000000000000004]}", {"[0.30000000000000004]"}, {"[0.3]"}},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"const\":\"x\"},false]}",
         {"5", "\"x\""},
         {"\"y\""}},
        {"{\"title\":\"T\",\"description\":\"d\",\"default\":3,\"type\":\"integer\"}",
         {"3"},
         {"x"}},
    };
    check_cases(cases, ARRAY_LEN(cases));
}

static void strings(void **state) {
    (void)state;
    static const struct schema_case cases[] = {
        {"{\"type\":\"string\",\"minLength\":null,\"pattern\":null,\"enum\":null,\"not\":null}",
         {"\"\""},
         {"null"}},
        {"{\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"\xf0\x9f\x98\x80\\n\\ud83d\\ude00\""},
         {"\"a\"", "\"abcd\""}},
        {"{\"type\":\"string\",\"minLength\":3}", {"\"abc\"", "\"abcd\""}, {"\"ab\""}},
        {"{\"pattern\":\"^[a-c]+\\\\d{2}$\"}",
         {"\"ab12\""},
         {"\"12\"", "\"ab123\"", "\"d12\""}},
        {"{\"pattern\":\"b\"}", {"\"b\"", "\"abc\""}, {"\"\"", "\"ac\""}},
        {"{\"pattern\":\"^a|b$\"}", {"\"ax\"", "\"xb\""}, {"\"xa\"", "\"x\""}},
        {"{\"pattern\":\"^(foo|ba[rz])(?:-\\\\w*)?$\"}",
         {"\"foo\"", "\"bar-\"", "\"baz-a_1\""},
         {"\"fo\"", "\"foo-!\"", "\"bax\""}},
        {"{\"pattern\":\"^\\\\S+@\\\\S+$\"}", {"\"a@b\""}, {"\"a b@c\""}},
        {"{\"pattern\":\"^[^\\\"\\\\\\\\]$\"}", {"\"a\""}, {"\"\\\"\"", "\"\\\\\""}},
        {"{\"pattern\":\"^.$\"}",
         {"\"\\\"\"", "\"\\\\\"", "\"\\t\"", "\"\xc3\xa9\""},
         {"\"\\n\"", "\"\""}},
        {"{\"pattern\":\"^\\\\u0041\\\\x42[\\\\-\\\\]x]$\"}",
         {"\"AB-\"", "\"AB]\""},
         {"\"ABy\""}},
        {"{\"pattern\":\"^[a-z]+$\",\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"abc\""},
         {"\"a\"", "\"abcd\""}},
        {"{\"pattern\":\"^([a-z]{2}-)*x?$\",\"maxLength\":4}",
         {"\"\"", "\"ab-\"", "\"ab-x\""},
         {"\"ab-cd-\""}},
        {"{\"format\":\"ipv4\",\"type\":\"string\"}",
         {"\"192.168.0.255\""},
         {"\"1.2.3.256\"", "\"1.2.3\""}},
        {"{\"format\":\"made-up\",\"type\":\"string\"}", {"\"anything\""}, {"1"}},
    };
    check_cases(cases, ARRAY_LEN(cases));
}

/* From RFC 3339, 4291, 5321, 3986 and 1123, by hand. */
static void formats(void **state) {
    (void)state;
    static const struct schema_case cases[] = {
        {"{\"format\":\"date\"}",
         {"\"2024-02-29\"", "\"2000-02-29\"", "\"2023-12-31\"", "\"2023-04-30\"",
          "\"0001-01-29\"", "\"2023-02-28\""},
         {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-02-30\"", "\"2024-04-31\"",
          "\"2024-13-01\"", "\"24-01-01\"", "\"2024-01-32\"", "\"2024-01-00\"",
          "\"0000-02-29\"", "5"}},
        {"{\"format\":\"date-time\",\"type\":\"string\"}",
         {"\"2024-02-29T23:59:59.5Z\"", "\"2024-12-31T00:00:00.123456789+13:45\"",
          "\"2024-12-31T00:00:00-23:59\""},
         {"\"2024-02-28\"", "\"2023-02-29T00:00:00Z\"", "\"2024-12-31T24:00:00Z\"",
          "\"2024-12-31T00:00:00+24:00\""}},
        {"{\"format\":\"time\"}", {"\"23:59:59+14:00\""}, {"\"23:59:59\"", "\"23:60:00Z\""}},
        {"{\"format\":\"duration\"}",
         {"\"P1Y2M3DT4H5M6S\"", "\"PT36H\"", "\"P2W\"", "\"P1D\"", "\"PT1H30M\""},
         {"\"P\"", "\"PT\"", "\"P1YT\"", "\"P1H\"", "\"P1D2H\"", "\"P2W1D\"", "\"PT1D\""}},
        {"{\"format\":\"uuid\",\"type\":\"string\"}",
         {"\"123e4567-e89b-12d3-a456-426614174000\"",
          "\"123E4567-E89B-12D3-A456-426614174000\""},
         {"\"123e4567\"", "\"123e4567e89b12d3a456426614174000\""}},
        {"{\"format\":\"email\",\"type\":\"string\"}",
         {"\"a.b@example.org\"", "\"te~st@my-host.co.uk\""},
         {"\"a@b\"", "\"@b.de\"", "\"a@-b.de\"", "\"a@b-.de\"", "\"a..b@c.de\""}},
        {"{\"format\":\"hostname\"}",
         {"\"localhost\"", "\"ec2-1-2.eu-west-1.compute.amazonaws.com\""},
         {"\"\"", "\"-a\"", "\"a-\"", "\"a..b\"", "\"a_b\"", "\"a.\""}},
        {"{\"format\":\"ipv6\"}",
         {"\"::\"", "\"::1\"", "\"2001:db8::7\"", "\"1:2:3:4:5:6:7:8\"", "\"::ffff:1.2.3.4\"",
          "\"1::\"", "\"fe80:0:0::1\""},
         {"\"1\"", "\":1\"", "\"1:2:3:4:5:6:7:8:9\"", "\"1::2::3\"", "\"12345::\"",
          "\"::1.2.3\"", "\"1:2:3:4:5:6:7:1.2.3.4\"", "\":::\""}},
        {"{\"format\":\"uri\"}",
         {"\"https://a:b@[::1]:80/x/%20?q=1#f\"", "\"urn:isbn:1\"", "\"mailto:a@b.de\"",
          "\"file:///x\""},
         {"\"a\"", "\"//a/b\"", "\"http://a b\"", "\"http://a/%2\"", "\"http://[a]/\"",
          "\":x\""}},
    };
    check_cases(cases, ARRAY_LEN(cases));
}

/* A length beside a pattern is counted, not shared out; what a pattern looks at is seen. */
static void patterns_and_lengths(void **state) {
    (void)state;
    static const struct schema_case cases[] = {
        {"{\"pattern\":\"^[A-Za-z]+ [A-Za-z]+$\",\"maxLength\":50}",
         {"\"John Smith\"", "\"J S\"",
          "\"a bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\""},
         {"\"John\"", "\"J bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\"", "\" b\""}},
        {"{\"pattern\":\"^\\\\S+@\\\\S+$\",\"minLength\":5,\"maxLength\":12}",
         {"\"ab@cd\"", "\"abcdefgh@cd\""},
         {"\"a@b\"", "\"abcdefgh@example\""}},
        {"{\"pattern\":\"o{2}\",\"maxLength\":4}",
         {"\"oo\"", "\"xoox\"", "\"foo\""},
         {"\"fooox\"", "\"o\"", "\"oxo\""}},
        {"{\"pattern\":\"^(a|bc)*$\",\"minLength\":3,\"maxLength\":4}",
         {"\"aaa\"", "\"abc\"", "\"bcbc\"", "\"aaaa\""},
         {"\"aa\"", "\"bc\"", "\"abcbc\""}},
        {"{\"pattern\":\"^(?!^[-+.]*$)[+-]?0*\\\\d*\\\\.?\\\\d*$\"}",
         {"\"0\"", "\"-1.5\"", "\"+.5\"", "\"10.\"", "\"007\""},
         {"\"\"", "\"-\"", "\".\"", "\"+.\"", "\"1.2.3\"", "\"a\""}},
        {"{\"pattern\":\"^(?=.*\\\\d)(?=.*[a-z]).{4,6}$\"}",
         {"\"abc1\"", "\"1abcd\""},
         {"\"abcd\"", "\"1234\"", "\"ab1\"", "\"abcdef1\""}},
        {"{\"pattern\":\"(^$|^https?://)\"}",
         {"\"\"", "\"http://x\"", "\"https://\""},
         {"\"x\"", "\"ftp://http://\""}},
        {"{\"pattern\":\"\\\\bfoo\\\\b\"}",
         {"\"foo\"", "\"a foo!\"", "\"-foo\""},
         {"\"food\"", "\"afoo\"", "\"\""}},
        {"{\"pattern\":\"^(?!tmp)\\\\w+(?<!_)$\"}",
         {"\"a\"", "\"at_mp\""},
         {"\"tmp\"", "\"tmpx\"", "\"a_\""}},
        {"{\"pattern\":\"^a{,2}$\"}", {"\"a{,2}\""}, {"\"aa\""}},
        {"{\"allOf\":[{\"pattern\":\"^a\"},{\"pattern\":\"b$\"},{\"minLength\":3}]}",
         {"\"axb\"", "\"aab\""},
         {"\"ab\"", "\"axc\"", "\"xb\""}},
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"^[ab]\"}}",
         {"\"\"", "\"c\"", "\"ca\""},
         {"\"a\"", "\"bc\""}},
        {"{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"bc\"]}}",
         {"\"\"", "\"b\"", "\"bcd\""},
         {"\"a\"", "\"bc\""}},
        {"{\"format\":\"date\",\"pattern\":\"^202\"}",
         {"\"2024-02-29\""},
         {"\"1999-01-01\"", "\"2023-02-29\""}},
        {"{\"format\":\"email\",\"pattern\":\"^(?:(?!\\\\.).)+@\"}",
         {"\"a@b.cd\""},
         {"\"a@b\""}},
        {"{\"format\":\"email\",\"pattern\":\"^[a-z]+@[a-z]+$\"}", {"\"a@b\""}, {"\"a@b.cd\""}},
        {"{\"enum\":[\"ab\",\"b\",\"c\"],\"pattern\":\"^[ab]\",\"maxLength\":1}",
         {"\"b\""},
         {"\"ab\"", "\"c\""}},
    };
    check_cases(cases, ARRAY_LEN(cases));
}

static void numbers(void **state) {
    (void)state;
    static const struct schema_case cases[] = {
        {"{\"type\":\"integer\",\"minimum\":1,\"maximum\":10}",
         {"1", "9", "10"},
         {"0", "11", "-1", "01"}},
        {"{\"type\":\"integer\",\"minimum\":-105,\"maximum\":23}",
         {"-105", "-99", "-1", "0", "23", "9"},
         {"-106", "24", "30", "-200"}},
        {"{\"type\":\"integer\",\"minimum\":98765,\"maximum\":123456}",
         {"98765", "99999", "100000", "123456", "119999"},
         {"98764", "123457", "9999", "200000", "98699"}},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":0}", {"1", "100000"}, {"0", "-1"}},
        {"{\"type\":\"integer\",\"minimum\":0,\"exclusiveMinimum\":true}", {"1"}, {"0"}},
        {"{\"type\":\"integer\",\"maximum\":-7.5}", {"-8", "-1000"}, {"-7", "0"}},
        {"{\"type\":\"integer\",\"minimum\":0,\"maximum\":30,\"multipleOf\":7}",
         {"0", "7", "28"},
         {"1", "35", "-7"}},
        {"{\"type\":\"integer\",\"multipleOf\":12}",
         {"0", "12", "-144", "1200"},
         {"13", "06", "6"}},
        {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
         {"0", "0.5", "1"},
         {"1.1", "-0.1", "2"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":3}",
         {"0.5", "1", "2.999"},
         {"0", "0.0", "3", "3.0", "-1"}},
        {"{\"type\":\"number\",\"minimum\":-2,\"maximum\":2.5}",
         {"-2", "-1.5", "-0.5", "0", "1.9", "2"},
         {"-2.5", "2.6", "3"}},
        {"{\"type\":\"number\",\"minimum\":0.1,\"maximum\":0.9}",
         {"0.100", "0.555"},
         {"0.099", "0.901", "1"}},
        {"{\"minimum\":5}", {"5", "5.5", "1000"}, {"4", "4.9"}},
        {"{\"type\":\"integer\"}",
         {"1234567890123456789", "-9223372036854775808", "18446744073709551615"},
         {"123456789012345678901"}},
        {"{\"type\":\"integer\",\"minimum\":0}", {"0", "9223372036854775807"}, {"-1"}},
        {"{\"type\":\"integer\",\"minimum\":-9223372036854775808,\"maximum\":"
         "9223372036854775807}",
         {"-9223372036854775808", "9223372036854775807", "0", "-1"},
         {"-9223372036854775809", "9223372036854775808"}},
        {"{\"type\":\"integer\",\"exclusiveMaximum\":1152921504606846977}",
         {"1152921504606846976", "-5"},
         {"1152921504606846977"}},
        {"{\"type\":\"number\"}",
         {"1e100", "1.5E+200", "1e-300", "12345678901234567890.12345678901234567890"},
         {"1e400", "1e308"}},
        {"{\"type\":\"number\",\"minimum\":0}", {"1e-7", "1e20", "0", "0.5"}, {"-1e-7", "-1"}},
        {"{\"type\":\"number\",\"minimum\":0,\"maximum\":0.5}", {"0.5", "0"}, {"9e-1", "0.6"}},
        {"{\"type\":\"number\",\"minimum\":-1,\"maximum\":1}",
         {"1e-5", "-2.5e-3", "1", "-1"},
         {"1e0", "1e1", "-1.1"}},
        {"{\"type\":\"number\",\"minimum\":0.01}",
         {"0.01", "0.99", "0.5", "1", "1.5", "20"},
         {"0", "0.009", "0.00", "-1", "1."}},
        {"{\"type\":\"number\",\"minimum\":0.1,\"maximum\":2}",
         {"0.1", "0.10", "0.7", "1.25", "2", "2.0"},
         {"0", "0.0", "0.09", "2.01", "2.0000001"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":1.25,\"exclusiveMaximum\":1.5}",
         {"1.251", "1.26", "1.3", "1.4999", "1.2500010"},
         {"1.25", "1.250", "1", "1.2", "1.5", "1.50"}},
        {"{\"type\":\"number\",\"minimum\":-99.99,\"exclusiveMaximum\":-0.5}",
         {"-99.99", "-99.5", "-1", "-0.51"},
         {"-0.5", "-0.50", "-99.991", "-100", "0"}},
        {"{\"type\":\"number\",\"minimum\":0,\"maximum\":0}", {"0", "0.0"}, {"-1", "0.1"}},
        {"{\"type\":\"number\",\"minimum\":1e-7,\"maximum\":1e-6}",
         {"0.0000001", "0.0000005", "0.000001"},
         {"0", "0.00000009", "0.0000011"}},
    };
    check_cases(cases, ARRAY_LEN(cases));
}

static void arrays(void **state) {
    (void)state;
    static const struct schema_case cases[] = {
        {"{\"type\":\"array\"}",
         {"[]", "[1, \"a\",{}]", "[\n  1,\n  2\n]"},
         {"[1,]", "[,1]", "[1 2]"}},
        {"{\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
         {"[1]", "[1,2,3]"},
         {"[]", "[1,2,3,4]", "[\"a\"]"}},
        {"{\"items\":{\"type\":\"integer\"},\"maxItems\":0}", {"[]"}, {"[1]"}},
        {"{\"items\":{\"type\":\"integer\"},\"maxItems\":1}", {"[]", "[1]"}, {"[1,2]"}},
        {"{\"items\":{\"type\":\"integer\"},\"minItems\":2}",
         {"[1,2]", "[1,2,3,4,5]"},
         {"[1]", "[]"}},
        {"{\"items\":false}", {"[]"}, {"[1]"}},
        {"{\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"integer\"}],\"items\":false}",
         {"[\"a\",1]"},
         {"[1,\"a\"]", "[\"a\",1,2]"}},
        {"{\"prefixItems\":[{\"type\":\"string\"}],\"items\":{\"type\":\"null\"},\"maxItems\":"
         "3}",
         {"[\"a\"]", "[\"a\",null,null]"},
         {"[\"a\",1]", "[\"a\",null,null,null]"}},
        {"{\"items\":[{\"type\":\"string\"}],\"additionalItems\":{\"type\":\"null\"}}",
         {"[\"a\",null]"},
         {"[null]"}},
        {"{\"items\":{\"enum\":[\"a\",\"b\",\"c\"]},\"uniqueItems\":true,\"minItems\":1,"
         "\"maxItems\":2}",
         {"[\"a\"]", "[\"a\",\"c\"]", "[\"b\", \"c\"]"},
         {"[]", "[\"a\",\"a\"]", "[\"a\",\"b\",\"c\"]"}},
        {"{\"items\":{\"$ref\":\"#/$defs/C\"},\"uniqueItems\":true,\"type\":\"array\",\"$defs\":"
         "{\"C\":{\"enum\":[\"a\",\"b\"],\"type\":\"string\"}}}",
         {"[]", "[\"a\"]", "[\"a\",\"b\"]"},
         {"[\"b\",\"b\"]", "[\"c\"]"}},
        {"{\"items\":{\"enum\":[\"a\",1,\"a\"],\"type\":\"string\"},\"uniqueItems\":true}",
         {"[]", "[\"a\"]"},
         {"[\"a\",\"a\"]", "[1]"}},
        {"{\"items\":{\"const\":\"a\"},\"uniqueItems\":true}", {"[\"a\"]"}, {"[\"a\",\"a\"]"}},
    };
    check_cases(cases, ARRAY_LEN(cases));
}

static void objects(void **state) {
    (void)state;
    static const struct schema_case cases[] = {
        {"{\"type\":\"object\",\"required\":null,\"properties\":null,\"allOf\":[{\"maxProperties\":1,"
         "\"required\":null}]}",
         {"{}", "{\"a\":1}"},
         {"{\"a\":1,\"b\":2}", "null"}},
        {"{\"type\":\"object\"}",
         {"{}", "{\"a\": {\"b\": 1}}", "{ }"},
         {"{a:1}", "{\"a\"}", "[]"}},
        {"{\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\"},\"c\":true}"
         ","
         "\"required\":[\"b\"]}",
         {"{\"b\":\"x\"}", "{\"a\":1,\"b\":\"x\"}", "{\"b\":\"x\",\"c\":[]}",
          "{\n  \"a\": 1,\n  \"b\": \"\",\n  \"c\": null\n}"},
         {"{}", "{\"a\":1}", "{\"a\":1,\"b\":2}", "{\"b\":\"x\",\"d\":1}", "{\"b\":\"x\",}",
          "{,\"b\":\"x\"}"}},
        {"{\"properties\":{\"a\":{\"type\":\"integer\"}},\"additionalProperties\":{\"type\":"
         "\"null\"}}",
         {"{}", "{\"a\":1}", "{\"x\":null}", "{\"a\":1,\"ab\":null,\"\":null}"},
         {"{\"a\":null}", "{\"x\":1}", "{\"x\":null,\"a\":null}", "{\"\\u0061\":null}"}},
        {"{\"properties\":{\"ab\":true,\"ac\":true,\"b\xc3\xa9\":true},"
         "\"additionalProperties\":{\"type\":\"null\"}}",
         {"{\"ad\":null}", "{\"a\":null}", "{\"abc\":null}", "{\"b\xc3\xa8\":null}",
          "{\"b\":null}"},
         {"{\"ad\":1}", "{\"x\":null,\"ab\":1}", "{\"x\":null,\"b\xc3\xa9\":null}"}},
        {"{\"properties\":{\"a\":true},\"additionalProperties\":false}",
         {"{}", "{\"a\":1}"},
         {"{\"b\":1}"}},
        {"{\"additionalProperties\":{\"type\":\"integer\"},\"minProperties\":1,"
         "\"maxProperties\":2}",
         {"{\"x\":1}", "{\"x\":1,\"y\":2}"},
         {"{}", "{\"x\":1,\"y\":2,\"z\":3}", "{\"x\":\"1\"}"}},
        {"{\"properties\":{\"a\":true,\"b\":true,\"c\":true},\"minProperties\":2}",
         {"{\"a\":1,\"c\":1}", "{\"b\":1,\"c\":1}", "{\"a\":1,\"b\":1,\"c\":1}"},
         {"{\"a\":1}", "{}"}},
        {"{\"properties\":{\"a\":true,\"b\":true,\"c\":true},\"maxProperties\":1}",
         {"{\"a\":1}", "{\"c\":1}", "{}"},
         {"{\"a\":1,\"b\":1}"}},
        {"{\"properties\":{\"a\":true},\"required\":[\"z\"]}",
         {"{\"z\":1}", "{\"a\":1,\"z\":{}}"},
         {"{\"a\":1}"}},
        {"{\"properties\":{\"a\\\"\\n\":{\"type\":\"null\"}},\"required\":[\"a\\\"\\n\"]}",
         {"{\"a\\\"\\n\":null}"},
         {"{}"}},
        {"{\"patternProperties\":{\"^x-[a-z]+$\":{\"type\":\"null\"}},\"additionalProperties\":"
         "false}",
         {"{}", "{\"x-a\":null,\"x-bc\":null}"},
         {"{\"x-\":null}", "{\"x-a\":1}", "{\"y\":null}"}},
        {"{\"propertyNames\":{\"enum\":[\"a\",\"b\"]},\"additionalProperties\":{\"type\":"
         "\"null\"}}",
         {"{}", "{\"b\":null}"},
         {"{\"c\":null}", "{\"a\":1}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"type\":\"string\",\"enum\":[\"a\",\"b\"]},"
         "\"additionalProperties\":{\"type\":\"null\"},\"required\":[\"a\",\"b\"]}",
         {"{\"a\":null,\"b\":null}"},
         {"{}", "{\"a\":null}", "{\"a\":1,\"b\":1}", "{\"a\":null,\"b\":null,\"c\":null}"}},
        {"{\"propertyNames\":{\"$ref\":\"#/$defs/N\"},\"properties\":{\"b\":{\"type\":\"null\"},"
         "\"z\":true},\"additionalProperties\":true,\"minProperties\":1,\"$defs\":{\"N\":{\"enum\":"
         "[\"a\",\"b\"]}}}",
         {"{\"b\":null}", "{\"a\":[]}", "{\"b\":null,\"a\":1}"},
         {"{}", "{\"z\":1}", "{\"b\":1}", "{\"a\":1,\"a\":1}"}},
        {"{\"propertyNames\":{\"const\":\"a\"},\"properties\":{\"a\":true,\"z\":true}}",
         {"{}", "{\"a\":1}"},
         {"{\"z\":1}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"maxLength\":2}}",
         {"{\"ab\":1}"},
         {"{\"abc\":1}"}},
        {"{\"properties\":{\"a\":false,\"b\":{\"type\":\"null\"}}}",
         {"{}", "{\"b\":null}"},
         {"{\"a\":1}"}},
    };
    check_cases(cases, ARRAY_LEN(cases));
}

static void put_together(void **state) {
    (void)state;
    static const struct schema_case cases[] = {
        {"{\"$ref\":\"#/$defs/a~1b%20c\",\"$defs\":{\"a/b c\":{\"type\":\"integer\"}}}",
         {"1"},
         {"\"1\""}},
        {"{\"$defs\":{\"tree\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":"
         "\"integer\"},"
         "\"kids\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
         "tree\"}}},\"required\":[\"v\"]}},"
         "\"$ref\":\"#/$defs/tree\"}",
         {"{\"v\":1}", "{\"v\":1,\"kids\":[{\"v\":2,\"kids\":[]}]}"},
         {"{\"v\":1,\"kids\":[{}]}"}},
        {"{\"type\":[\"array\",\"null\"],\"items\":{\"$ref\":\"#\"}}",
         {"null", "[]", "[[],null]"},
         {"[1]"}},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},"
         "{\"properties\":{\"b\":{\"type\":\"null\"}},\"required\":[\"b\"]}]}",
         {"{\"a\":1,\"b\":null}"},
         {"{\"a\":1}", "{\"b\":null}"}},
        {"{\"allOf\":[{\"minimum\":3},{\"minimum\":5,\"type\":\"integer\"}],\"maximum\":6}",
         {"5", "6"},
         {"4", "7", "5.5"}},
        {"{\"$ref\":\"#/$defs/a\",\"maxLength\":2,\"$defs\":{\"a\":{\"type\":\"string\"}}}",
         {"\"ab\""},
         {"\"abc\""}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
         "\"integer\"}},"
         "\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
         {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":2}"},
         {"{}"}},
        {"{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"x\"},\"n\":{\"type\":\"integer\"}},"
         "\"required\":[\"k\",\"n\"]},"
         "{\"properties\":{\"k\":{\"const\":\"y\"}},\"required\":[\"k\"]}]}",
         {"{\"k\":\"x\",\"n\":1}", "{\"k\":\"y\"}"},
         {"{\"k\":\"x\"}", "{\"k\":\"z\"}"}},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"number\"}}},{\"properties\":{\"a\":{"
         "\"minimum\":2,"
         "\"type\":\"integer\"}}}]}",
         {"{\"a\":2}"},
         {"{\"a\":1}", "{\"a\":2.5}"}},
    };
    check_cases(cases, ARRAY_LEN(cases));
}

/* not, if, dependentRequired, oneOf, contains ...: by hand from the specification. */
static void conditions(void **state) {
    (void)state;
    static const struct schema_case cases[] = {
        {"{\"not\":{\"type\":[\"string\",\"null\"]}}",
         {"1", "[]", "{\"a\":1}", "true"},
         {"\"a\"", "null"}},
        {"{\"type\":\"integer\",\"not\":{\"minimum\":5,\"maximum\":9}}",
         {"4", "10", "-1"},
         {"5", "9"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":true,\"b\":true},\"not\":{\"required\":[\"a\",\"b\"]}}",
         {"{}", "{\"a\":1}", "{\"b\":1}"},
         {"{\"a\":1,\"b\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":true,\"b\":true,\"c\":true},\"dependentRequired\":{\"a\":[\"b\"]}}",
         {"{}", "{\"b\":1}", "{\"a\":1,\"b\":1}", "{\"c\":1}"},
         {"{\"a\":1}", "{\"a\":1,\"c\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":true,\"b\":true},\"dependencies\":{\"a\":{\"properties\":{\"b\":{\"type\":\"null\"}}}}}",
         {"{\"b\":1}", "{\"a\":1}", "{\"a\":1,\"b\":null}"},
         {"{\"a\":1,\"b\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"x\",\"y\"]},\"n\":{\"type\":\"integer\"}},\"required\":[\"k\"],\"if\":{\"properties\":{\"k\":{\"const\":\"x\"}}},\"then\":{\"required\":[\"n\"]},\"else\":{\"properties\":{\"n\":false}}}",
         {"{\"k\":\"x\",\"n\":1}", "{\"k\":\"y\"}"},
         {"{\"k\":\"x\"}", "{\"k\":\"y\",\"n\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"r\":{\"type\":\"number\"},\"s\":{\"type\":\"number\"}},\"oneOf\":[{\"required\":[\"r\"]},{\"required\":[\"s\"]}]}",
         {"{\"r\":1}", "{\"s\":1}"},
         {"{}", "{\"r\":1,\"s\":1}"}},
        {"{\"oneOf\":[{\"type\":\"integer\",\"multipleOf\":3},{\"type\":\"integer\",\"multipleOf\":5}]}",
         {"3", "5", "-10"},
         {"15", "1", "0"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"minimum\":5},\"maxItems\":3}",
         {"[5]", "[1,7,2]", "[9,9,9]"},
         {"[]", "[1]", "[1,2,3]", "[5,5,5,5]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"contains\":{\"const\":1},\"minContains\":2,\"maxContains\":2}",
         {"[1,1]", "[1,2,1]"},
         {"[1]", "[1,1,1]", "[2,2]"}},
        {"{\"type\":\"object\",\"allOf\":[{\"properties\":{\"a\":true}}],\"properties\":{\"b\":true},\"unevaluatedProperties\":false}",
         {"{\"a\":1,\"b\":2}"},
         {"{\"c\":1}"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"}],\"unevaluatedItems\":false}",
         {"[\"a\"]"},
         {"[\"a\",1]"}},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}}}],\"additionalProperties\":{\"type\":\"string\"},\"type\":\"object\"}",
         {"{\"b\":\"x\"}"},
         {"{\"a\":1}", "{\"a\":\"x\"}"}},
        {"{\"allOf\":[{\"prefixItems\":[{\"type\":\"integer\"}]},{\"items\":{\"minimum\":5}}],\"type\":\"array\"}",
         {"[5]", "[7,9]"},
         {"[1]", "[5,1]"}},
        {"{\"patternProperties\":{\"^a\":{\"type\":\"integer\"},\"b$\":{\"minimum\":5}},\"properties\":{\"ab\":{\"maximum\":9},\"x\":{\"type\":\"null\"}},\"additionalProperties\":false}",
         {"{\"ab\":7,\"x\":null}", "{\"a\":1}", "{\"xb\":5}", "{\"aab\":6}"},
         {"{\"ab\":10}", "{\"ab\":4}", "{\"aab\":4}", "{\"y\":1}", "{\"a\":\"x\"}"}},
        {"{\"properties\":{\"ab\":true,\"abc\":true},\"propertyNames\":{\"maxLength\":2},\"additionalProperties\":{\"type\":\"null\"}}",
         {"{\"ab\":1}", "{\"x\":null}"},
         {"{\"abc\":1}", "{\"xyz\":null}", "{\"x\":1}"}},
        {"{\"properties\":{\"a\":false},\"additionalProperties\":true}",
         {"{\"b\":1}"},
         {"{\"a\":1}"}},
        {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",\"c\"]},\"uniqueItems\":true}",
         {"[\"c\",\"a\"]", "[\"b\",\"c\",\"a\"]"},
         {"[\"a\",\"b\",\"a\"]"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"uniqueItems\":true}",
         {"[false,true]", "[]"},
         {"[true,true]"}},
        {"{\"type\":\"number\",\"multipleOf\":0.01}",
         {"1.25", "0.1", "3", "-7.50"},
         {"0.125", "1.001"}},
        {"{\"type\":\"number\",\"multipleOf\":0.5,\"minimum\":0,\"maximum\":10}",
         {"9.5", "10", "0.50"},
         {"10.5", "9.25", "-0.5"}},
        {"{\"type\":\"integer\",\"multipleOf\":25,\"minimum\":0}",
         {"0", "100", "1000000"},
         {"10", "-25"}},
        {"{\"not\":{\"enum\":[1,null,[],\"a\",true]}}",
         {"2", "\"b\"", "false", "1.5"},
         {"1", "1.0", "null", "\"a\"", "true", "[]"}},
        {"{\"enum\":[{\"a\":1},{\"a\":\"x\"},5],\"properties\":{\"a\":{\"type\":\"string\"}}}",
         {"{\"a\":\"x\"}", "5"},
         {"{\"a\":1}"}},
    };
    check_cases(cases, ARRAY_LEN(cases));
}

/* A length that decides one repetition is its count, however large. */
static void large_lengths(void **state) {
    (void)state;
    static char texts[3][10010];
    const size_t n[] = {10000, 9989, 10001};
    for (size_t i = 0; i < ARRAY_LEN(n); i++) {
        memset(texts[i], 'a', n[i] + 2);
        texts[i][0] = texts[i][n[i] + 1] = '"';
    }
    const struct schema_case cases[] = {
        {"{\"pattern\":\"^[a-z]*$\",\"minLength\":9990,\"maxLength\":10000}",
         {texts[0]},
         {texts[1], texts[2]}}};
    check_cases(cases, ARRAY_LEN(cases));
}

/* Many strings are one reading each: their beginnings stand once. */
static void large_enums(void **state) {
    (void)state;
    static char schema[400000];
    char *at = stpcpy(schema, "{\"enum\":[");
    for (int i = 0; i < 10000; i++)
        at += sprintf(at, "\"value %d of many\",", i);
    strcpy(at, "\"value\"]}");
    const struct schema_case cases[] = {
        {schema,
         {"\"value 0 of many\"", "\"value 9999 of many\"", "\"value\""},
         {"\"value 10000 of many\"", "\"value 12\"", "\"val\""}}};
    check_cases(cases, ARRAY_LEN(cases));
}

static void refused(void **state) {
    (void)state;
    static const struct {
        const char *schema;
        enum status st;
        const char *says;
    } cases[] = {
        {"5", ST_BAD_INPUT, "must be an object or a boolean"},
        {"false", ST_BAD_INPUT, "endless"},
        {"{\"type\":\"strin\"}", ST_BAD_INPUT, "no type \"strin\""},
        {"{\"type\":5}", ST_BAD_INPUT, "type must be"},
        {"{\"enum\":5}", ST_BAD_INPUT, "enum must be an array"},
        {"{\"enum\":[]}", ST_BAD_INPUT, "endless"},
        {"{\"minLength\":-1}", ST_BAD_INPUT, "minLength must be a whole number"},
        {"{\"minimum\":\"a\",\"type\":\"integer\"}", ST_BAD_INPUT, "minimum must be a number"},
        {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", ST_BAD_INPUT, "endless"},
        {"{\"type\":\"number\",\"minimum\":5,\"maximum\":-4}", ST_BAD_INPUT, "endless"},
        {"{\"$ref\":\"#/nowhere\"}", ST_BAD_INPUT, "leads nowhere"},
        {"{\"$ref\":\"http://example.org/x\"}", ST_BAD_INPUT, "leads nowhere"},
        {"{\"$ref\":\"#\"}", ST_BAD_INPUT, "calls itself"},
        {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", ST_BAD_INPUT, "calls itself"},
        {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", ST_BAD_INPUT,
         "endless"},
        {"{\"propertyNames\":{\"enum\":[\"a\"]},\"required\":[\"z\"]}", ST_BAD_INPUT,
         "endless"},
        {"{\"type\":\"array\",\"uniqueItems\":true}", ST_UNSUPPORTED, "uniqueItems"},
        {"{\"pattern\":\"(a\"}", ST_UNSUPPORTED, ") is expected"},
        {"{\"pattern\":\"[a\"}", ST_UNSUPPORTED, "a class does not end"},
        {"{\"pattern\":\"a**\"}", ST_UNSUPPORTED, "a repetition of a repetition"},
        {"{\"enum\":[\"a\"],\"pattern\":\"b\"}", ST_BAD_INPUT, "endless"},
        {"{\"not\":{}}", ST_BAD_INPUT, "endless"},
        {"{\"properties\":{\"a/b\":{\"items\":{\"pattern\":\"(a)\\\\1\"}}}}", ST_UNSUPPORTED,
         "pattern, byte 4: this escape is not supported (at #/properties/a~1b/items)"},
        {"{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"properties\":{\"a\":{\"$dynamicRef\":\"#x\"}}}}}",
         ST_UNSUPPORTED, "\"$dynamicRef\" is not supported (at #/$defs/n/properties/a)"},
        {"{\"pattern\":\"^(^a)*$\"}", ST_UNSUPPORTED, "inside a repetition"},
        {"{\"pattern\":\"^(?:\\\\S+\\\\s+){0,99}$\",\"maxLength\":5000}", ST_UNSUPPORTED,
         "maxLength"},
        {"{\"pattern\":\"^abc$\",\"maxLength\":2}", ST_BAD_INPUT, "endless"},
        {"{\"type\":\"array\",\"not\":{\"uniqueItems\":true}}", ST_UNSUPPORTED, "\"not"},
        {"{\"items\":{\"type\":\"string\"},\"uniqueItems\":true}", ST_UNSUPPORTED,
         "uniqueItems"},
        {"{\"type\":\"number\",\"multipleOf\":1e-30}", ST_UNSUPPORTED, "multipleOf"},
        {"{\"type\":\"integer\",\"multipleOf\":0}", ST_BAD_INPUT, "multipleOf must be"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct grammar *g;
        struct err err = {.text = ""};
        enum status st = open_schema(&g, cases[i].schema, &err);
        if (st != cases[i].st || strstr(err.text, cases[i].says) == NULL)
            fail_msg("%s: \"%s\", not \"%s\"", cases[i].schema, err.text, cases[i].says);
    }
}

/* A schema in one long string. */
static char *repeated(const char *head, const char *piece, size_t n, const char *middle,
                      const char *close, const char *tail) {
    size_t len =
        strlen(head) + n * (strlen(piece) + strlen(close)) + strlen(middle) + strlen(tail);
    char *s = malloc(len + 1), *at = stpcpy(s, head);
    for (size_t i = 0; i < n; i++)
        at = stpcpy(at, piece);
    at = stpcpy(at, middle);
    for (size_t i = 0; i < n; i++)
        at = stpcpy(at, close);
    strcpy(at, tail);
    return s;
}

static void try_to_open(const char *schema) {
    struct grammar *g;
    struct err err;
    double begin = clock_s();
    if (open_schema(&g, schema, &err) == ST_OK)
        grammar_close(g);
    double took = clock_s() - begin;
    if (took > 10)
        fail_msg("%.100s took %.1f s", schema, took);
}

static void hostile_schemas_end(void **state) {
    (void)state;
    static const struct {
        const char *head, *piece;
        size_t n;
        const char *middle, *close, *tail;
    } cases[] = {
        {"", "{\"items\":", 1000, "{}", "}", ""},
        {"", "{\"allOf\":[", 1000, "{}", "]}", ""},
        {"", "{\"anyOf\":[{\"type\":\"null\"},", 500, "{}", "]}", ""},
        {"{\"pattern\":\"", "(", 100, "a", ")", "\"}"},
        {"{\"pattern\":\"", "(a|", 100, "a", ")*", "\"}"},
        {"{\"pattern\":\"", "a", 100000, "", "", "\"}"},
        {"{\"pattern\":\"", "(", 20, "a", "){99}", "\"}"},
        {"{\"enum\":[", "\"abc\",", 100000, "1", "", "]}"},
        {"{\"required\":[", "\"abc\",", 100000, "\"d\"", "", "]}"},
        {"{\"allOf\":[", "{\"required\":[\"a\"]},", 20000, "{}", "", "]}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *s = repeated(cases[i].head, cases[i].piece, cases[i].n, cases[i].middle,
                           cases[i].close, cases[i].tail);
        try_to_open(s);
        free(s);
    }
    /* Twice the next one, 40 times: 2^40 if nobody counts. */
    static char doubling[40 * 80 + 64];
    char *at = stpcpy(doubling, "{\"$ref\":\"#/$defs/0\",\"$defs\":{");
    for (int i = 0; i < 40; i++)
        at += sprintf(
            at, "\"%d\":{\"allOf\":[{\"$ref\":\"#/$defs/%d\"},{\"$ref\":\"#/$defs/%d\"}]},", i,
            i + 1, i + 1);
    strcpy(at, "\"40\":{\"type\":\"null\"}}}");
    try_to_open(doubling);
    try_to_open("{\"maxLength\":1e18,\"minLength\":60000}");
    try_to_open(
        "{\"items\":{\"items\":{\"maxItems\":60000},\"maxItems\":60000},\"maxItems\":60000}");
    try_to_open("{\"maxProperties\":1e9,\"minProperties\":1e8}");
    try_to_open("{\"type\":\"integer\",\"multipleOf\":1e300}");
    try_to_open("{\"type\":\"number\",\"minimum\":-1e308,\"maximum\":1e308}");
    try_to_open("{\"type\":\"number\",\"minimum\":1e300}");
    try_to_open("{\"pattern\":\"(x+x+)+y\",\"maxLength\":500}");
    try_to_open("{\"not\":{\"pattern\":\"a.{20}b\"}}");
    try_to_open(
        "{\"pattern\":\"(a$|b)(c$|d)(c$|d)(c$|d)(c$|d)(c$|d)(c$|d)(c$|d)(c$|d)(c$|d)(c$|d)\"}");
    try_to_open("{\"oneOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}");
    try_to_open("{\"not\":{\"$ref\":\"#\"}}");
    try_to_open("{\"if\":{\"$ref\":\"#\"},\"then\":{\"not\":{\"$ref\":\"#\"}}}");
}

static void json_objects(void **state) {
    (void)state;
    struct grammar *g;
    struct err err;
    assert_int_equal(
        grammar_open(&g, json_object_gbnf(), strlen(json_object_gbnf()), trie, &err), ST_OK);
    assert_int_equal(reads(g, "{\"a\": [1, {\"b\": null}]}"), 'w');
    assert_int_equal(reads(g, "[1]"), 'n');
    assert_int_equal(reads(g, "{\"a\""), 'b');
    grammar_close(g);
}

static void several_schemas_in_one_grammar(void **state) {
    (void)state;
    json_t *a = parse("{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{\"type\":\"integer\"}}}");
    json_t *b = parse("{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{\"const\":\"y\"}}}");
    json_t *c = parse("{\"$ref\":\"#/$defs/x\"}"); /* a part of a */
    const struct json_schema_rule rules[] = {{.name = "first", .schema = a},
                                             {.name = "second", .schema = b},
                                             {.name = "third", .schema = c, .root = a}};
    char *gbnf;
    struct grammar *g;
    struct err err;
    assert_int_equal(
        json_schema_rules_to_gbnf(
            rules, 3, "root ::= \"<\" first \">\" ws second | \"+\" third\n", &gbnf, &err),
        ST_OK);
    assert_int_equal(grammar_open(&g, gbnf, strlen(gbnf), trie, &err), ST_OK);
    assert_int_equal(reads(g, "<12> \"y\""), 'w');
    assert_int_equal(reads(g, "<\"y\">"), 'n');
    assert_int_equal(reads(g, "+12"), 'w');
    assert_int_equal(reads(g, "+\"y\""), 'n');
    grammar_close(g);
    mem_free(gbnf);
    json_decref(a);
    json_decref(b);
    json_decref(c);
}

static void regular_expressions(void **state) {
    (void)state;
    static const struct {
        const char *regex, *good[3], *bad[3];
    } cases[] = {{"a|bc", {"a", "bc"}, {"ab", "", "abc"}},
                 {"^[0-9]{3}-\\d+$", {"123-4", "000-12345"}, {"123-", "12-4", "\"123-4\""}},
                 {"(\"|\\n|\xc3\xa9)*", {"", "\"\n", "\xc3\xa9"}, {"e", "n"}},
                 {"[^a]b?", {"x", "]b", "\\"}, {"a", "ab", "xbb"}}};
    struct err err;
    char *gbnf;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct grammar *g;
        assert_int_equal(regex_to_gbnf(cases[i].regex, &gbnf, &err), ST_OK);
        assert_int_equal(grammar_open(&g, gbnf, strlen(gbnf), trie, &err), ST_OK);
        for (size_t k = 0; k < 3; k++) {
            if (cases[i].good[k] != NULL)
                assert_int_equal(reads(g, cases[i].good[k]), 'w');
            if (cases[i].bad[k] != NULL)
                assert_int_not_equal(reads(g, cases[i].bad[k]), 'w');
        }
        grammar_close(g);
        mem_free(gbnf);
    }
    static const char *const refused[] = {"(",     "a)(b",     "(a)\\1", "a{9999}{9999}",
                                          "a\\bb", "[^\\s\\S]"};
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        err.text[0] = '\0';
        assert_int_not_equal(regex_to_gbnf(refused[i], &gbnf, &err), ST_OK);
        assert_true(strlen(err.text) > 10);
    }
}

int main(void) {
    if (access(MODEL, R_OK) != 0) {
        printf("skip: " MODEL " is not there\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simple_types),
        cmocka_unit_test(strings),
        cmocka_unit_test(formats),
        cmocka_unit_test(numbers),
        cmocka_unit_test(arrays),
        cmocka_unit_test(objects),
        cmocka_unit_test(put_together),
        cmocka_unit_test(refused),
        cmocka_unit_test(hostile_schemas_end),
        cmocka_unit_test(patterns_and_lengths),
        cmocka_unit_test(conditions),
        cmocka_unit_test(large_enums),
        cmocka_unit_test(large_lengths),
        cmocka_unit_test(json_objects),
        cmocka_unit_test(several_schemas_in_one_grammar),
        cmocka_unit_test(regular_expressions),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
