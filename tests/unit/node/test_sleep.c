/* When a model that nobody asks is unloaded. */
#include "base/duration.h"
#include "node/sleep.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void when_it_is_due(void **state) {
    (void)state;
    assert_false(sleep_is_due(DURATION_NEVER, 1e9, false));
    assert_false(sleep_is_due(30000, 29.99, false));
    assert_true(sleep_is_due(30000, 30, false));
    assert_false(sleep_is_due(30000, 3000, true));
    assert_true(sleep_is_due(0, 0, false)); /* keep_alive 0: as soon as nothing is under way */
    assert_false(sleep_is_due(0, 0, true));
}

/* A client's word counts until the model is asleep, then what up said. */
static void whose_word_counts(void **state) {
    (void)state;
    const struct keep none = {.term = 0}, two = {.term = 2, .at_ms = 5, .ms = 7000};
    const struct keep never = {.term = 2, .at_ms = 5, .ms = DURATION_NEVER};
    assert_int_equal(sleep_idle_ms(0, &none, 0), DURATION_NEVER);
    assert_int_equal(sleep_idle_ms(30, &none, 0), 30000);
    assert_int_equal(sleep_idle_ms(30, &two, 0), 7000);
    assert_int_equal(sleep_idle_ms(0, &two, 1), 7000);
    assert_int_equal(sleep_idle_ms(30, &never, 1), DURATION_NEVER);
    assert_int_equal(sleep_idle_ms(30, &two, 2), 30000); /* it was asleep in that term */
    assert_int_equal(sleep_idle_ms(0, &two, 3), DURATION_NEVER);
}

/* All nodes take the same one of several, in whatever order they hear of them. */
static void the_latest_word_counts(void **state) {
    (void)state;
    const struct keep list[] = {{.term = 0, .at_ms = 9, .ms = 9},
                                {.term = 1, .at_ms = 100, .ms = 1},
                                {.term = 2, .at_ms = 50, .ms = DURATION_NEVER},
                                {.term = 2, .at_ms = 50, .ms = 3},
                                {.term = 2, .at_ms = 51, .ms = 0}};
    const size_t n = sizeof list / sizeof *list;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            assert_int_equal(sleep_is_newer(&list[i], &list[j]), i > j);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(when_it_is_due),
                                       cmocka_unit_test(whose_word_counts),
                                       cmocka_unit_test(the_latest_word_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
