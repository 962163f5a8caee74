/* What nodes say of themselves, as it comes: JSON of the form in node/report.h, of a good node and
 * of any other. */
#include "base/json.h"
#include "base/util.h"
#include "cluster/addresses.h"
#include "node/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ID "00112233445566778899aabbccddeeff"
#define CONTENT ID ID

static json_t *parse(const char *text) {
    json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(v);
    return v;
}

static struct node_report read_report(const char *runs, const char *able) {
    struct node_report r;
    struct err err;
    json_t *a = parse(runs), *b = parse(able);
    assert_int_equal(report_parse(&r, a, b, &err), ST_OK);
    json_decref(a);
    json_decref(b);
    return r;
}

static const char two_runs[] =
    "{\"z\": {\"id\": \"" ID "\", \"named\": true, \"version\": 1795000000, "
    "\"state\": \"listening\", \"term\": 3, \"ranks\": 2, \"failures\": 0, \"port\": 40000, "
    "\"requests\": 1, \"questions\": 2, \"asked\": 17, \"copying\": false, \"answers\": true, \"closed\": \"\", "
    "\"sentence\": \"\", \"content\": \"" CONTENT "\", \"memory\": 68719476736, "
    "\"standby\": null}, "
    "\"a\": {\"id\": \"" ID "\", \"named\": false, \"version\": 7, \"state\": \"failed\", "
    "\"term\": 0, \"ranks\": 0, \"failures\": 5, \"port\": 0, \"requests\": 0, "
    "\"questions\": 0, \"asked\": 0, "
    "\"copying\": true, \"answers\": false, \"closed\": \"the port is taken\", "
    "\"sentence\": \"rank 1 is gone\", \"content\": \"\", \"memory\": 1, "
    "\"standby\": {\"reason\": \"memory\", \"sentence\": \"there is no room\"}}, "
    "\"s\": {\"id\": \"" ID "\", \"named\": true, \"version\": 7, \"state\": \"asleep\", "
    "\"term\": 4, \"ranks\": 0, \"failures\": 0, \"port\": 0, \"requests\": 0, "
    "\"questions\": 0, \"asked\": 3, \"copying\": false, \"answers\": false, \"closed\": \"\", "
    "\"sentence\": \"\", \"content\": \"\", \"memory\": 1, \"standby\": null, "
    "\"slept\": 1795000000, "
    "\"keep\": {\"term\": 4, \"at\": 1795000000123, \"ms\": -1}}}";

/* What was heard, field by field; and told on, it is the same JSON. */
static void a_report_is_read_and_told(void **state) {
    (void)state;
    struct node_report r = read_report(two_runs, "{\"z\": 7343, \"a\": 0}");
    const struct run_report *z = report_run(&r, "z"), *a = report_run(&r, "a"),
                            *s = report_run(&r, "s");
    assert_non_null(s);
    assert_non_null(z);
    assert_non_null(a);
    assert_string_equal(z->id, ID);
    assert_true(z->named && z->answers && !z->copying);
    assert_int_equal(z->version, 1795000000);
    assert_int_equal(z->state, RUN_LISTENING);
    assert_int_equal(z->term, 3);
    assert_int_equal(z->ranks, 2);
    assert_int_equal(z->port, 40000);
    assert_int_equal(z->memory, 68719476736);
    assert_string_equal(z->content, CONTENT);
    assert_int_equal(z->standby, STANDBY_NONE);
    assert_int_equal(z->questions, 2);
    assert_int_equal(z->asked, 17);
    assert_int_equal(z->keep.term, 0);
    assert_int_equal(s->state, RUN_ASLEEP);
    assert_int_equal(s->slept, 1795000000);
    assert_int_equal(s->keep.term, 4);
    assert_int_equal(s->keep.at_ms, 1795000000123);
    assert_int_equal(s->keep.ms, -1);
    assert_int_equal(a->state, RUN_FAILED);
    assert_int_equal(a->failures, 5);
    assert_true(a->copying);
    assert_string_equal(a->closed, "the port is taken");
    assert_string_equal(a->sentence, "rank 1 is gone");
    assert_int_equal(a->standby, STANDBY_MEMORY);
    assert_string_equal(a->standby_sentence, "there is no room");
    assert_int_equal(report_able(&r, "z")->share_port, 7343);
    assert_int_equal(report_able(&r, "a")->share_port, 0);
    json_t *told = report_runs_json(&r), *expected = parse(two_runs);
    assert_true(json_equal(told, expected));
    json_decref(told);
    json_decref(expected);
    told = report_able_json(&r);
    expected = parse("{\"z\": 7343, \"a\": 0}");
    assert_true(json_equal(told, expected));
    json_decref(told);
    json_decref(expected);
    report_deinit(&r);
}

/* Of what nothing is said there is an empty run, whose texts may be read. */
static void what_is_not_said_is_empty(void **state) {
    (void)state;
    struct node_report r = read_report("{}", "{}"), zeroed = {.runs = NULL};
    assert_null(report_run(&r, "m"));
    assert_null(report_able(&r, "m"));
    assert_null(report_run(&zeroed, "m"));
    assert_string_equal(report_of(&r, "m")->sentence, "");
    assert_string_equal(report_of(&r, "m")->id, "");
    assert_int_equal(report_of(&r, "m")->term, 0);
    report_deinit(&r);
    report_deinit(&zeroed);
}

/* A peer is hostile until checked: other types, numbers beyond all bounds, names that are none. */
static void nonsense_is_nothing(void **state) {
    (void)state;
    static const char *const runs[] = {
        "{\"m\": null}",
        "{\"m\": [1, 2]}",
        "{\"m\": {\"id\": 3, \"named\": \"yes\", \"version\": -1, \"state\": \"dancing\", "
        "\"term\": -5, \"ranks\": \"two\", \"failures\": 99999999999, \"port\": 65536, "
        "\"requests\": -1, \"copying\": 1, \"closed\": null, \"sentence\": 7, "
        "\"content\": \"short\", \"memory\": -1, \"standby\": {\"reason\": \"tired\"}}}",
        "{\"m\": {\"term\": 9223372036854775807, \"port\": -1, \"standby\": \"memory\"}}",
    };
    for (size_t i = 0; i < ARRAY_LEN(runs); i++) {
        struct node_report r = read_report(runs[i], "{\"m\": -1, \"n\": \"x\"}");
        const struct run_report *m = report_run(&r, "m");
        assert_non_null(m);
        assert_true(!m->named && !m->copying && !m->answers);
        assert_int_equal(m->version, 0);
        assert_int_equal(m->state, RUN_UNKNOWN);
        assert_int_equal(m->term, 0);
        assert_int_equal(m->ranks + m->failures + m->port, 0);
        assert_int_equal(m->requests, 0);
        assert_int_equal(m->memory, 0);
        assert_int_equal(m->standby, STANDBY_NONE);
        assert_string_equal(m->id, "");
        assert_string_equal(m->content, "");
        assert_string_equal(m->closed, "");
        assert_string_equal(m->sentence, "");
        assert_int_equal(report_able(&r, "m")->share_port, 0);
        assert_int_equal(report_able(&r, "n")->share_port, 0);
        report_deinit(&r);
    }
    struct node_report r =
        read_report("{\"../m\": {}, \"\": {}, \"a b\": {}}", "{\"../m\": 1}");
    assert_int_equal(r.n_runs + r.n_able, 0);
    report_deinit(&r);
    struct err err;
    json_t *object = json_object(), *list = json_array();
    assert_int_equal(report_parse(&r, list, object, &err), ST_BAD_INPUT);
    assert_int_equal(report_parse(&r, object, list, &err), ST_BAD_INPUT);
    assert_int_equal(report_parse(&r, NULL, object, &err), ST_BAD_INPUT);
    json_decref(object);
    json_decref(list);
}

static void addresses_are_a_list_without_repeats(void **state) {
    (void)state;
    struct addresses a, more = {.list = NULL};
    char too_long[NET_TEXT_BYTES + 1];
    memset(too_long, 'x', NET_TEXT_BYTES);
    too_long[NET_TEXT_BYTES] = '\0';
    json_t *said = parse("[\"a:1\", 3, \"b:2\", null, \"a:1\", [\"c:3\"], \"d:4\", \"e:5\"]");
    addresses_parse(&a, said, 3);
    assert_int_equal(a.n, 3);
    assert_string_equal(a.list[2], "d:4");
    assert_true(addresses_has(&a, "b:2"));
    assert_false(addresses_has(&a, "e:5"));
    assert_false(addresses_add(&more, too_long));
    assert_true(addresses_add(&more, "b:2") && addresses_add(&more, "f:6"));
    addresses_add_all(&a, &more);
    json_t *told = addresses_json(&a),
           *expected = parse("[\"a:1\", \"b:2\", \"d:4\", \"f:6\"]");
    assert_true(json_equal(told, expected));
    json_decref(told);
    json_decref(expected);
    json_decref(said);
    addresses_deinit(&a);
    addresses_deinit(&more);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_report_is_read_and_told),
                                       cmocka_unit_test(what_is_not_said_is_empty),
                                       cmocka_unit_test(nonsense_is_nothing),
                                       cmocka_unit_test(addresses_are_a_list_without_repeats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
