/* How many per second: what has just begun, goes on, and has ended. */
#include "engine/throughput.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_nothing_has_no_throughput(void **state) {
    (void)state;
    struct throughput p = {.slot = 0};
    assert_true(throughput_per_s(&p, 0) == 0);
    assert_true(throughput_per_s(&p, 123456.7) == 0);
    throughput_add(&p, 123456.7, 0);
    assert_true(throughput_per_s(&p, 123456.7) == 0);
}

static void test_a_steady_throughput_is_told(void **state) {
    (void)state;
    struct throughput p = {.slot = 0};
    for (int i = 0; i < 2000; i++) {
        double now = 1000.0 + i * 0.02; /* 50 a second */
        throughput_add(&p, now, 1);
        if (i > 60) {
            double told = throughput_per_s(&p, now);
            assert_true(told > 48 && told < 53);
        }
    }
}

static void test_what_has_begun_is_not_diluted(void **state) {
    (void)state;
    struct throughput p = {.slot = 0};
    for (int i = 0; i <= 100; i++)
        throughput_add(&p, 1000.2 + i * 0.01, 1);
    double told = throughput_per_s(&p, 1001.2);
    assert_true(told > 95 && told < 105);
    struct throughput once = {.slot = 0};
    throughput_add(&once, 1000.2, 5);
    assert_true(throughput_per_s(&once, 1000.2) <= 10);
}

static void test_what_has_ended_fades(void **state) {
    (void)state;
    struct throughput p = {.slot = 0};
    for (int i = 0; i < 400; i++)
        throughput_add(&p, 1000.0 + i * 0.01, 1);
    double first = throughput_per_s(&p, 1004.0), later = throughput_per_s(&p, 1006.0);
    assert_true(first > later && later > 0);
    assert_true(throughput_per_s(&p, 1009.0) == 0);
    throughput_add(&p, 5000.0, 3);
    double again = throughput_per_s(&p, 5001.0);
    assert_true(again > 2.5 && again < 3.5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_has_no_throughput),
        cmocka_unit_test(test_a_steady_throughput_is_told),
        cmocka_unit_test(test_what_has_begun_is_not_diluted),
        cmocka_unit_test(test_what_has_ended_fades),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
