/* What a node tells of its devices, as another one reads it: a good list, and any other. */
#include "base/json.h"
#include "base/util.h"
#include "cluster/devices.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define REST                                                               \
    "\"driver\": \"v1\", \"kind\": \"software\", \"memory_bytes\": 4096, " \
    "\"unified\": true, \"crossing_us\": null, \"error\": \"it lacks pages\"}"
#define GOOD "{\"name\": \"llvmpipe\", " REST

static enum status check(const char *text, struct err *err) {
    json_t *list = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(list);
    enum status st = node_devices_check(list, err);
    json_decref(list);
    return st;
}

static void test_good_lists(void **state) {
    (void)state;
    struct err err;
    assert_int_equal(check("[]", &err), ST_OK);
    assert_int_equal(check("[" GOOD ", " GOOD "]", &err), ST_OK);
}

static void test_other_lists(void **state) {
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"{}", "is not a list"},
        {"\"x\"", "is not a list"},
        {"[1]", "device 0 has no valid \"name\""},
        {"[{}]", "device 0 has no valid \"name\""},
        {"[" GOOD ", {\"name\": \"\", " REST "]", "device 1 has no valid \"name\""},
        {"[{\"name\": 7, " REST "]", "no valid \"name\""},
        {"[{\"name\": \"a\\u001b[2J\", " REST "]", "no valid \"name\""},
        {"[{\"name\": \"a\", \"driver\": [], \"kind\": \"software\"}]", "no valid \"driver\""},
        {"[{\"name\": \"a\", \"driver\": \"\", \"kind\": \"fast\"}]", "no valid \"kind\""},
        {"[{\"name\": \"a\", \"driver\": \"\", \"kind\": \"other\", \"memory_bytes\": -1}]",
         "no valid \"memory_bytes\""},
        {"[{\"name\": \"a\", \"driver\": \"\", \"kind\": \"other\", "
         "\"memory_bytes\": 9223372036854775807}]",
         "no valid \"memory_bytes\""},
        {"[{\"name\": \"a\", \"driver\": \"\", \"kind\": \"other\", \"memory_bytes\": 1}]",
         "no valid \"unified\""},
        {"[{\"name\": \"a\", \"driver\": \"\", \"kind\": \"other\", \"memory_bytes\": 1, "
         "\"unified\": false, \"crossing_us\": \"fast\"}]",
         "no valid \"crossing_us\""},
        {"[{\"name\": \"a\", \"driver\": \"\", \"kind\": \"other\", \"memory_bytes\": 1, "
         "\"unified\": false, \"crossing_us\": 1, \"error\": 1}]",
         "no valid \"error\""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err;
        assert_int_equal(check(cases[i].text, &err), ST_BAD_INPUT);
        if (strstr(err.text, cases[i].sentence) == NULL)
            fail_msg("%s: %s", cases[i].text, err.text);
    }
}

static void test_huge_lists(void **state) {
    (void)state;
    struct err err;
    json_t *one = json_loads(GOOD, 0, NULL), *list = json_array();
    for (int i = 0; i < NODE_DEVICES_MAX; i++)
        json_array_append(list, one);
    assert_int_equal(node_devices_check(list, &err), ST_OK);
    json_array_append(list, one);
    assert_int_equal(node_devices_check(list, &err), ST_BAD_INPUT);
    assert_string_equal(err.text, "it says that it has 17 devices, more than 16");
    json_array_clear(list);
    char *name = malloc(1u << 20);
    memset(name, 'a', (1u << 20) - 1);
    name[(1u << 20) - 1] = '\0';
    json_object_set_new(one, "name", json_string(name));
    json_array_append(list, one);
    assert_int_equal(node_devices_check(list, &err), ST_BAD_INPUT);
    free(name);
    json_decref(list);
    json_decref(one);
}

/* Of an older node, of a good one, and of one that lies. */
static void test_mending(void **state) {
    (void)state;
    json_t *old = json_loads("{\"name\": \"bob\"}", 0, NULL), *same = json_deep_copy(old);
    node_devices_mend(old);
    assert_true(json_equal(old, same));
    json_decref(same);
    json_decref(old);
    json_t *good = json_loads("{\"devices\": [" GOOD "]}", 0, NULL);
    same = json_deep_copy(good);
    node_devices_mend(good);
    assert_true(json_equal(good, same));
    json_decref(same);
    json_decref(good);
    json_t *bad = json_loads("{\"devices\": [7], \"devices_error\": {\"a\": 1}}", 0, NULL);
    node_devices_mend(bad);
    assert_true(json_is_null(json_object_get(bad, "devices")));
    assert_string_equal(json_text(bad, "devices_error"),
                        "what it says of its device 0 has no valid \"name\"");
    json_decref(bad);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_lists),
        cmocka_unit_test(test_other_lists),
        cmocka_unit_test(test_huge_lists),
        cmocka_unit_test(test_mending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
