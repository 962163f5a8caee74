/* The engine's small parts: stop strings in pieces of text, guesses from the text itself, and how large
 * a piece of a prompt may be. */
#include "base/rng.h"
#include "base/util.h"
#include "engine/lookup.h"
#include "engine/pace.h"
#include "engine/stops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* ---- stop strings -------------------------------------------------------------------------------------- */

static const struct stop stop_list[] = {{"aab", 3}, {"abba", 4}, {"b\nb", 3}, {"bbbb", 4}};

/* Where a text ends by the definition: before the earliest stop string in it. */
static size_t end_of(const char *text, size_t len, int *which) {
    for (size_t at = 0; at < len; at++)
        for (size_t i = 0; i < ARRAY_LEN(stop_list); i++)
            if (strncmp(text + at, stop_list[i].text, stop_list[i].len) == 0) {
                *which = (int)i;
                return at;
            }
    *which = -1;
    return len;
}

/* Random texts in random pieces: what goes out is the text up to its end, nothing of a stop string,
 * and nothing is held without need. No stop string here is part of another, so the earliest to
 * begin is the first to be complete. */
static void text_in_pieces_ends_where_the_whole_does(void **state) {
    (void)state;
    int n_stopped = 0;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        char text[40] = "", held[40], out[40];
        for (size_t i = 0; i < 30; i++)
            text[i] = "aabbb\n"[rng_u64(seed, i) % 6];
        size_t n_held = 0, n_out = 0, at = 0;
        int which = -1, want;
        size_t end = end_of(text, 30, &want);
        while (at < 30 && which < 0) {
            size_t n = MIN(rng_u64(seed, 100 + at) % 4 + 1, 30 - at);
            memcpy(held + n_held, text + at, n);
            n_held += n;
            at += n;
            size_t go = stops_scan(stop_list, ARRAY_LEN(stop_list), held, n_held, &which);
            memcpy(out + n_out, held, go);
            n_out += go;
            n_held -= go;
            memmove(held, held + go, n_held);
            assert_true(which >= 0 || n_held < 4);
        }
        assert_int_equal(which, want);
        if (which >= 0)
            assert_int_equal(n_out, end);
        assert_memory_equal(out, text, n_out);
        n_stopped += which >= 0;
    }
    assert_true(n_stopped > 100 && n_stopped < 3000);
}

static void without_stop_strings_nothing_is_held(void **state) {
    (void)state;
    int which;
    assert_int_equal(stops_scan(NULL, 0, "abc", 3, &which), 3);
    assert_int_equal(which, -1);
    assert_int_equal(stops_scan(stop_list, 4, "", 0, &which), 0);
    assert_int_equal(which, -1);
}

/* ---- guesses ------------------------------------------------------------------------------------------- */

static void what_followed_the_longest_match_is_guessed(void **state) {
    (void)state;
    /* 1 2 3 occurs with 7 after it; 2 3 alone, later, with 8. */
    int32_t ids[32] = {1, 2, 3, 7, 5, 9, 2, 3, 8, 4, 1, 2, 3};
    assert_int_equal(lookup_guess(ids, 13, 3), 3);
    assert_int_equal(ids[13], 7);
    assert_int_equal(ids[14], 5);
    assert_int_equal(ids[15], 9);
    /* Of equal matches the latest. */
    int32_t two[32] = {1, 2, 7, 6, 1, 2, 8, 6, 5, 1, 2};
    assert_int_equal(lookup_guess(two, 11, 1), 1);
    assert_int_equal(two[11], 8);
}

static void a_period_goes_on(void **state) {
    (void)state;
    int32_t ids[64] = {9, 1, 2, 3, 1, 2, 3, 1, 2, 3};
    assert_int_equal(lookup_guess(ids, 10, 8), 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(ids[10 + i], i % 3 + 1);
    int32_t same[64] = {4, 4, 4};
    assert_int_equal(lookup_guess(same, 3, 5), 5);
    assert_int_equal(same[7], 4);
}

static void nothing_is_guessed_without_a_match(void **state) {
    (void)state;
    int32_t ids[32] = {1, 2, 3, 4, 5, 6, 3};
    assert_int_equal(lookup_guess(ids, 7, 3), 0);
    for (size_t n = 0; n < 3; n++)
        assert_int_equal(lookup_guess(ids, n, 3), 0);
}

/* Guesses that fail cost little: at most one in LOOKUP_PROBE tokens in the end. */
static void trust_follows_what_came_true(void **state) {
    (void)state;
    struct lookup_trust t;
    lookup_trust_init(&t);
    size_t n = 0;
    for (int i = 0; i < 1000; i++) {
        size_t k = lookup_trust_k(&t, 0.15, 11);
        lookup_trust_learn(&t, k, 0);
        n += k;
    }
    assert_true(n >= 20 && n < 1000 / LOOKUP_PROBE + 30);
    for (int i = 0; i < 100; i++) {
        size_t k = lookup_trust_k(&t, 0.15, 11);
        lookup_trust_learn(&t, k, k);
    }
    assert_int_equal(lookup_trust_k(&t, 0.15, 11), 11);
    assert_int_equal(lookup_trust_k(&t, 0.15, 3), 3);
    /* In a full batch a token costs more than it can bring. */
    assert_int_equal(lookup_trust_k(&t, 1.2, 11), 0);
}

/* ---- pieces of prompts ------------------------------------------------------------------------------------ */

/* A machine on which a step takes 10 ms and `token` for each token: streams come to wait 10 to 20 ms
 * and some, and prompts get on. */
static void pieces_fit_what_streams_can_bear(void **state) {
    (void)state;
    static const double token[] = {0.00001, 0.0002, 0.003, 0.1};
    for (size_t i = 0; i < ARRAY_LEN(token); i++) {
        struct pace p = {0};
        for (int step = 0; step < 50; step++)
            pace_add(&p, 4, 0, 4, 0.010 + 4 * token[i]);
        double usual = 0.010 + 4 * token[i], sum = 0, largest = 0;
        for (int step = 0; step < 500; step++) {
            size_t n = pace_piece(&p, 4096);
            double s = usual + (double)n * token[i];
            assert_true(n >= 1);
            pace_add(&p, 4 + n, n, 4, s);
            if (step < 100)
                continue;
            sum += s;
            largest = s > largest ? s : largest;
        }
        assert_true(sum / 400 > 1.2 * usual);
        assert_true(largest < 2.5 * usual);
    }
}

static void the_price_of_a_token_is_learnt(void **state) {
    (void)state;
    struct pace p = {0};
    for (size_t i = 0; i < 200; i++)
        pace_add(&p, 1 + i % 5, 0, 1, 0.020 + 0.002 * (double)(1 + i % 5));
    assert_float_equal((float)pace_token_s(&p), 0.002f, 1e-6);
    assert_float_equal((float)pace_step_s(&p, 1), 0.022f, 1e-6);
    assert_float_equal((float)pace_step_s(&p, 9), 0.038f, 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_in_pieces_ends_where_the_whole_does),
        cmocka_unit_test(without_stop_strings_nothing_is_held),
        cmocka_unit_test(what_followed_the_longest_match_is_guessed),
        cmocka_unit_test(a_period_goes_on),
        cmocka_unit_test(nothing_is_guessed_without_a_match),
        cmocka_unit_test(trust_follows_what_came_true),
        cmocka_unit_test(pieces_fit_what_streams_can_bear),
        cmocka_unit_test(the_price_of_a_token_is_learnt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
