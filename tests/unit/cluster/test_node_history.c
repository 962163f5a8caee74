/* The history of a cluster: a ring that is full, and the rings of several nodes as one list. */
#include "base/json.h"
#include "base/util.h"
#include "cluster/history.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static const char *kind_at(const json_t *list, size_t i) {
    return json_text(json_array_get(list, i), "kind");
}

static const char *text_at(const json_t *list, size_t i, const char *key) {
    return json_text(json_array_get(list, i), key);
}

static double time_at(const json_t *list, size_t i) {
    return json_number_value(json_object_get(json_array_get(list, i), "time"));
}

static void begin(struct history *h, const char *name) {
    assert_true(node_history_init(h, name));
}

/* ---- one ring ---------------------------------------------------------------------------- */

static void test_an_event_says_what_happened(void **state) {
    (void)state;
    struct history h;
    begin(&h, "ann");
    double before = history_now();
    history_note(&h, 0, HAPPENED_PLACED, "ann", "m", "%s on %d ranks", "m", 3);
    history_note(&h, 7.5, HAPPENED_LOST, "bob", "", "bob is lost");
    json_t *list = history_json(&h);
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(kind_at(list, 0), "placed");
    assert_string_equal(text_at(list, 0, "node"), "ann");
    assert_string_equal(text_at(list, 0, "model"), "m");
    assert_string_equal(text_at(list, 0, "by"), "ann");
    assert_string_equal(text_at(list, 0, "sentence"), "m on 3 ranks");
    assert_true(time_at(list, 0) >= before && time_at(list, 0) <= history_now());
    assert_string_equal(kind_at(list, 1), "lost");
    assert_null(json_object_get(json_array_get(list, 1), "model"));
    assert_true(time_at(list, 1) == 7.5);
    json_decref(list);
    node_history_deinit(&h);
}

static void test_the_latest_are_kept(void **state) {
    (void)state;
    struct history h;
    begin(&h, "ann");
    for (int i = 0; i < HISTORY_MAX + 10; i++)
        history_note(&h, i + 1, HAPPENED_FAILED, "ann", "m", "the %d-th", i);
    json_t *list = history_json(&h);
    assert_int_equal(json_array_size(list), HISTORY_MAX);
    assert_string_equal(text_at(list, 0, "sentence"), "the 10-th");
    assert_true(time_at(list, HISTORY_MAX - 1) == HISTORY_MAX + 10);
    json_decref(list);
    node_history_deinit(&h);
}

static void test_a_node_is_gone_until_it_is_back(void **state) {
    (void)state;
    struct history h;
    begin(&h, "ann");
    assert_false(history_is_gone(&h, "bob"));
    history_note(&h, 0, HAPPENED_LOST, "bob", "", "bob is lost");
    history_note(&h, 0, HAPPENED_FAILED, "bob", "m", "m failed");
    assert_true(history_is_gone(&h, "bob"));
    assert_false(history_is_gone(&h, "cat"));
    history_note(&h, 0, HAPPENED_BACK, "bob", "", "bob is back");
    assert_false(history_is_gone(&h, "bob"));
    node_history_deinit(&h);
}

/* Bytes that are no text become some, so that the list stays JSON. */
static void test_a_sentence_is_text(void **state) {
    (void)state;
    struct history h;
    begin(&h, "ann");
    history_note(&h, 0, HAPPENED_FAILED, "ann", "m", "%s", "a\xff\xfe b");
    json_t *list = history_json(&h);
    assert_string_equal(text_at(list, 0, "sentence"), "a?? b");
    json_decref(list);
    node_history_deinit(&h);
}

/* ---- several ----------------------------------------------------------------------------- */

struct rings {
    struct history of[3];
};

static void rings_begin(struct rings *r) {
    static const char *const names[] = {"ann", "bob", "cat"};
    for (size_t i = 0; i < 3; i++)
        begin(&r->of[i], names[i]);
}

/* Their merge; the rings end. */
static json_t *rings_merge(struct rings *r) {
    json_t *lists[3];
    for (size_t i = 0; i < 3; i++)
        lists[i] = history_json(&r->of[i]);
    json_t *all = history_merge(lists, 3);
    for (size_t i = 0; i < 3; i++) {
        json_decref(lists[i]);
        node_history_deinit(&r->of[i]);
    }
    return all;
}

struct note {
    size_t ring;
    double time;
    enum happening kind;
    const char *node, *model, *sentence;
};

/* What is noted, and the merged list: "time by sentence" of each. */
static const struct {
    const char *name;
    struct note notes[7]; /* up to one without a node */
    const char *merged;
} merges[] = {
    {"what several noted is there once",
     {{1, 101.5, HAPPENED_LOST, "dee", "", "gone"},
      {0, 100.5, HAPPENED_LOST, "dee", "", "away"},
      {2, 102, HAPPENED_LOST, "dee", "", "silent"},
      {0, 103, HAPPENED_TOOK_OVER, "ann", "m", "ann takes over"},
      {0, 110, HAPPENED_BACK, "dee", "", "here"},
      {1, 109, HAPPENED_BACK, "dee", "", "there"}},
     "100.5 ann away|103.0 ann ann takes over|109.0 bob there|"},
    {"what one noted twice happened twice, and so did what two nodes or models did",
     {{0, 100, HAPPENED_FAILED, "ann", "m", "no memory"},
      {0, 102, HAPPENED_FAILED, "ann", "m", "no memory"},
      {0, 102.5, HAPPENED_FAILED, "ann", "x", "no memory"},
      {1, 103, HAPPENED_FAILED, "bob", "m", "no memory"}},
     "100.0 ann no memory|102.0 ann no memory|102.5 ann no memory|103.0 bob no memory|"},
    {"long after each other it happened twice",
     {{1, 300, HAPPENED_LOST, "dee", "", "gone"}, {0, 200, HAPPENED_LOST, "dee", "", "gone"}},
     "200.0 ann gone|300.0 bob gone|"},
    {"a request has one time, which whoever follows it later notes",
     {{0, 1000, HAPPENED_UP, "ann", "m", "up"},
      {1, 1000, HAPPENED_UP, "ann", "m", "up"},
      {2, 1000, HAPPENED_UP, "ann", "m", "up"},
      {2, 1000, HAPPENED_UP, "ann", "m", "up"}},
     "1000.0 ann up|"},
    {"nothing", {{0}}, ""}};

static void test_rings_are_merged(void **state) {
    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(merges); c++) {
        char got[256] = "";
        size_t len = 0;
        struct rings r;
        rings_begin(&r);
        for (const struct note *n = merges[c].notes; n->node != NULL; n++)
            history_note(&r.of[n->ring], n->time, n->kind, n->node, n->model, "%s",
                         n->sentence);
        json_t *all = rings_merge(&r);
        for (size_t i = 0; i < json_array_size(all) && len < sizeof got; i++)
            len += (size_t)snprintf(got + len, sizeof got - len, "%.1f %s %s|", time_at(all, i),
                                    text_at(all, i, "by"), text_at(all, i, "sentence"));
        if (strcmp(got, merges[c].merged) != 0)
            fail_msg("%s: got %s, expected %s", merges[c].name, got, merges[c].merged);
        json_decref(all);
    }
}

static void test_the_latest_of_all_are_kept(void **state) {
    (void)state;
    struct rings r;
    rings_begin(&r);
    for (int i = 0; i < HISTORY_MAX; i++)
        for (size_t n = 0; n < 3; n++)
            history_note(&r.of[n], 1000.0 * (i + 1) + (double)n, HAPPENED_PLACED, r.of[n].name,
                         "m", "%d", i);
    json_t *all = rings_merge(&r);
    assert_int_equal(json_array_size(all), HISTORY_MAX);
    assert_true(time_at(all, HISTORY_MAX - 1) == 1000.0 * HISTORY_MAX + 2);
    json_decref(all);
}

/* Another node may say anything. */
static void test_what_is_no_event_is_left_out(void **state) {
    (void)state;
    json_t *lists[] = {json_pack("[s, {}, {s:s, s:f, s:s, s:s}, {s:s, s:s, s:s, s:s}]", "lost",
                                 "kind", "odd", "time", 1.0, "node", "ann", "sentence", "x",
                                 "kind", "lost", "time", "now", "node", "ann", "sentence", "x"),
                       json_string("nothing"), NULL,
                       json_pack("[{s:s, s:i, s:s, s:s, s:i}, {s:s, s:i, s:s, s:s}]", "kind",
                                 "lost", "time", 1, "node", "ann", "sentence", "x", "model", 4,
                                 "kind", "left", "time", 2, "node", "ann", "sentence", "x")};
    json_t *all = history_merge(lists, ARRAY_LEN(lists));
    assert_int_equal(json_array_size(all), 1);
    assert_string_equal(kind_at(all, 0), "left");
    json_decref(all);
    all = history_merge(lists, 0);
    assert_int_equal(json_array_size(all), 0);
    json_decref(all);
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        json_decref(lists[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_event_says_what_happened),
        cmocka_unit_test(test_the_latest_are_kept),
        cmocka_unit_test(test_a_node_is_gone_until_it_is_back),
        cmocka_unit_test(test_a_sentence_is_text),
        cmocka_unit_test(test_rings_are_merged),
        cmocka_unit_test(test_the_latest_of_all_are_kept),
        cmocka_unit_test(test_what_is_no_event_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
