/* Durations as people write them; those of Ollama's keep_alive are in its API's documentation. */
#include "base/duration.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void what_is_a_duration(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {
        {"30s", 30000},
        {"30m", 1800000},
        {"2h", 7200000},
        {"1h30m", 5400000},
        {"1d", 86400000},
        {"500ms", 500},
        {"1.5h", 5400000},
        {".5s", 500},
        {"300", 300000},
        {"0", 0},
        {"0s", 0},
        {"-0", 0},
        {"0.0001s", 1}, /* not none */
        {"never", DURATION_NEVER},
        {"-1", DURATION_NEVER},
        {"-5m", DURATION_NEVER},
        {"99999999h", DURATION_NEVER},
    };
    static const char *const bad[] = {"",      " 5m", "5m ", "5 m",    "m",   "5x",  "soon",
                                      "1h30",  "--1", "+5m", "1e3",    "5mm", "0x5", ".",
                                      "Never", "5,5", "-",   "never5", "nan", "inf", "5m-3s"};
    int64_t ms;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(duration_parse(good[i].text, &ms));
        assert_int_equal(ms, good[i].ms);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(duration_parse(bad[i], &ms));
}

static void absurd_numbers(void **state) {
    (void)state;
    char digits[400];
    int64_t ms;
    memset(digits, '9', sizeof digits);
    digits[sizeof digits - 1] = '\0';
    assert_false(duration_parse(digits, &ms));
    strcpy(digits + 30, "h");
    assert_true(duration_parse(digits, &ms));
    assert_int_equal(ms, DURATION_NEVER);
    assert_int_equal(duration_of_seconds(-1e300), DURATION_NEVER);
    assert_int_equal(duration_of_seconds(1e300), DURATION_NEVER);
    assert_int_equal(duration_of_seconds(0.0 / 0.0), DURATION_NEVER);
    assert_int_equal(duration_of_seconds(2.5), 2500);
}

static void what_is_printed(void **state) {
    (void)state;
    static const struct {
        int64_t ms;
        const char *text;
    } list[] = {{DURATION_NEVER, "never"}, {0, "0s"},           {45000, "45s"},
                {1800000, "30m"},          {90000, "1m30s"},    {5400000, "1h30m"},
                {7200000, "2h"},           {360000000, "100h"}, {999, "0s"}};
    char text[32];
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        duration_print(list[i].ms, text, sizeof text);
        assert_string_equal(text, list[i].text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_a_duration),
                                       cmocka_unit_test(absurd_numbers),
                                       cmocka_unit_test(what_is_printed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
