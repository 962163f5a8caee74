/* Blocks of memory in pieces: no part lies in two, each begins on a page, none is too large. */
#include "base/pieces.h"
#include "base/rng.h"
#include "base/util.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* The piece that `at` is in. */
static size_t piece_of(const struct pieces *p, size_t at) {
    size_t i = 0;
    while (i + 1 < p->n && p->at[i + 1] <= at)
        i++;
    return i;
}

static void check_pieces(const struct pieces *p) {
    assert_int_equal(p->at[0], 0);
    for (size_t i = 0; i < p->n; i++) {
        const size_t bytes = pieces_end(p, i) - p->at[i];
        assert_int_equal(p->at[i] % PIECES_PAGE, 0);
        assert_true(bytes > 0 && bytes % PIECES_PAGE == 0);
        assert_true(p->most == 0 || bytes <= p->most);
    }
}

static void parts_lie_in_one_piece(void **state) {
    enum { N = 3000, MOST = 16 * PIECES_PAGE };
    struct pieces p = {.most = MOST};
    size_t end = 0;
    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        const size_t bytes = 1 + (size_t)(rng_uniform(1, i) * (i % 50 == 0 ? MOST : 5000));
        size_t at;
        assert_true(pieces_take(&p, bytes, 0, &at));
        assert_true(at >= end && at % CACHE_LINE == 0);
        assert_int_equal(piece_of(&p, at), piece_of(&p, at + bytes - 1));
        end = at + bytes;
        assert_true(p.total >= end);
    }
    check_pieces(&p);
    assert_true(p.n > 10 && p.n < N / 5);
    pieces_free(&p);
}

static void a_large_part_is_cut_between_units(void **state) {
    static const size_t units[] = {64, 192, 8192, 24576, 16448, 32832};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        struct pieces p = {.most = 4u << 20};
        size_t before, at, after, bytes = units[i] * 1000 + 5 * p.most;
        assert_true(pieces_take(&p, 100, 0, &before));
        assert_true(pieces_take(&p, bytes, units[i], &at));
        assert_true(pieces_take(&p, 100, 0, &after));
        assert_int_equal(before, 0);
        assert_int_equal(at % PIECES_PAGE, 0);
        assert_true(after >= at + bytes);
        check_pieces(&p);
        assert_true(p.n >= 1 + 5);
        for (size_t k = 1; k < p.n && p.at[k] < after; k++)
            assert_int_equal((p.at[k] - at) % units[i], 0);
        pieces_free(&p);
    }
}

/* What cannot be cut has a piece of its own, which a device may refuse. */
static void what_is_whole_stays_whole(void **state) {
    struct pieces p = {.most = 2 * PIECES_PAGE}, any = {0};
    size_t small, large, next;
    (void)state;
    assert_true(pieces_take(&p, 64, 0, &small));
    assert_true(pieces_take(&p, 9000, 0, &large));
    assert_true(pieces_take(&p, 64, 0, &next));
    assert_int_equal(large, PIECES_PAGE);
    assert_int_equal(next, 4 * PIECES_PAGE);
    assert_int_equal(p.n, 3);
    pieces_free(&p);
    assert_true(pieces_take(&any, PIECES_TOGETHER, 64, &small));
    assert_true(pieces_take(&any, 3 * PIECES_TOGETHER, 64, &large));
    assert_true(pieces_take(&any, 64, 64, &next));
    assert_int_equal(any.n, 3);
    assert_int_equal(any.at[2], 4 * PIECES_TOGETHER);
    pieces_free(&any);
}

static void units_fill_pieces(void **state) {
    (void)state;
    assert_int_equal(pieces_of_units(4096, 65536), 65536);
    assert_int_equal(pieces_of_units(20480, 65536), 61440);
    assert_int_equal(pieces_of_units(64, 5 * PIECES_PAGE), 5 * PIECES_PAGE);
    assert_int_equal(pieces_of_units(17408, 100000), 4 * 17408);
    assert_int_equal(pieces_of_units(17408, 4096), 4 * 17408); /* no fewer are whole pages */
    assert_int_equal(pieces_of_units((size_t)8 << 20, (size_t)1 << 30), (size_t)1 << 30);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_lie_in_one_piece),
        cmocka_unit_test(a_large_part_is_cut_between_units),
        cmocka_unit_test(what_is_whole_stays_whole),
        cmocka_unit_test(units_fill_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
