/* Whose a slot for a state is: held, kept beside a known page, taken again. */
#include "engine/states.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { N_PAGES = 6, N_SLOTS = 3 };

static struct pages *pages;
static struct states *states;
static int32_t ids[KV_PAGE];

static int open_both(void **state) {
    struct err err;
    (void)state;
    assert_int_equal(pages_open(&pages, N_PAGES, 0, true, &err), ST_OK);
    assert_int_equal(states_open(&states, N_SLOTS, pages, N_PAGES, &err), ST_OK);
    return 0;
}

static int close_both(void **state) {
    (void)state;
    states_close(states);
    pages_close(pages);
    return 0;
}

/* A known page, held, whose tokens are all `id`. */
static uint32_t page_of(int32_t id) {
    for (size_t i = 0; i < KV_PAGE; i++)
        ids[i] = id;
    return pages_publish(pages, pages_take(pages), PAGE_NONE, ids);
}

static void check_count(size_t held, size_t kept) {
    struct states_count c = states_count(states);
    assert_int_equal(c.total, N_SLOTS);
    assert_int_equal(c.held, held);
    assert_int_equal(c.kept, kept);
    assert_int_equal(states_available(states), N_SLOTS - held);
}

static void slots_are_held_and_given_back(void **state) {
    (void)state;
    uint32_t a = states_take(states), b = states_take(states), c = states_take(states);
    assert_int_equal(a, 0); /* memory becomes resident in order */
    assert_true(b != a && c != a && c != b);
    assert_int_equal(states_take(states), STATE_NONE);
    states_hold(states, b);
    states_release(states, b);
    check_count(3, 0);
    states_release(states, b);
    assert_int_equal(states_take(states), b);
    states_release(states, STATE_NONE);
}

static void snapshots_last_until_slots_run_out(void **state) {
    (void)state;
    uint32_t pages_kept[2];
    for (int i = 0; i < 2; i++) {
        uint32_t slot = states_take(states);
        pages_kept[i] = page_of(10 + i);
        states_keep(states, slot, pages_kept[i]);
        states_release(states, slot);
    }
    check_count(0, 2);
    uint32_t first = states_of(states, pages_kept[0]);
    states_hold(states, first); /* used again: the other one is older now */
    states_release(states, first);
    (void)states_take(states);
    assert_int_equal(states_take(states), 1);
    assert_int_equal(states_of(states, pages_kept[1]), STATE_NONE);
    assert_int_equal(states_of(states, pages_kept[0]), first);
    states_hold(states, first); /* a sequence goes on from it */
    assert_int_equal(states_take(states), STATE_NONE);
    check_count(3, 0);
}

static void a_second_snapshot_of_a_page_is_none(void **state) {
    (void)state;
    uint32_t page = page_of(5), a = states_take(states), b = states_take(states);
    states_keep(states, a, page);
    states_keep(states, b, page);
    assert_int_equal(states_of(states, page), a);
    states_release(states, a);
    states_release(states, b);
    check_count(0, 1);
    states_drop(states, page);
    check_count(0, 0);
    assert_int_equal(states_of(states, page), STATE_NONE);
}

static void a_snapshot_goes_with_its_page(void **state) {
    (void)state;
    uint32_t page = page_of(5), a = states_take(states);
    states_keep(states, a, page);
    pages_release(pages, &page, 1); /* cached */
    for (int i = 0; i < N_PAGES; i++)
        (void)pages_take(pages); /* that one too */
    assert_int_equal(states_of(states, page), STATE_NONE);
    check_count(1, 0); /* who holds it keeps it */
    states_release(states, a);
    check_count(0, 0);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, open_both, close_both)
    const struct CMUnitTest tests[] = {
        CASE(slots_are_held_and_given_back),
        CASE(snapshots_last_until_slots_run_out),
        CASE(a_second_snapshot_of_a_page_is_none),
        CASE(a_snapshot_goes_with_its_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
