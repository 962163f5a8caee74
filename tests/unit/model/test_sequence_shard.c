/* Sharding: every token of a step belongs to one member, in whole groups, by the members' parts
 * of the FFN or the experts. */
#include "base/util.h"
#include "kernels/kernels.h"
#include "model/sequence_shard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* A stage of so many members; columns: of each one's FFN. */
static struct plan make_plan(const uint32_t *columns, int tp) {
    struct plan p = {.n_ranks = tp, .tp = tp, .pp = 1};
    uint32_t at = 0;
    for (int i = 0; i < tp; i++) {
        p.shares[i].ff[0].begin = at;
        p.shares[i].ff[0].end = at += columns[i];
    }
    return p;
}

static void check_shards(const struct plan *p, uint32_t n_tokens, const uint32_t *first) {
    assert_int_equal(first[0], 0);
    assert_int_equal(first[p->tp], n_tokens);
    for (int i = 0; i < p->tp; i++) {
        assert_true(first[i] <= first[i + 1]);
        assert_true(first[i] % ACT_GROUP == 0 || first[i] == n_tokens);
    }
}

static void every_token_has_one_owner(void **state) {
    (void)state;
    static const uint32_t columns[][4] = {
        {1, 1}, {3, 1}, {1, 2, 1}, {176, 0, 64, 1}, {0, 0, 0, 5}};
    for (size_t k = 0; k < ARRAY_LEN(columns); k++)
        for (int tp = 2; tp <= 4; tp++) {
            struct plan p = make_plan(columns[k], tp);
            for (uint32_t n = 1; n <= 600; n++) {
                uint32_t first[PLAN_MAX_RANKS + 1];
                shard_tokens(&p, 0, n, first);
                check_shards(&p, n, first);
            }
        }
}

/* By parts, but for the rounding to groups. */
static void parts_are_as_large_as_the_work(void **state) {
    (void)state;
    static const uint32_t columns[] = {300, 100, 0, 200};
    struct plan p = make_plan(columns, 4);
    uint32_t first[PLAN_MAX_RANKS + 1], before = 0;
    shard_tokens(&p, 0, 600, first);
    for (int i = 0; i < 4; before += columns[i++])
        assert_in_range(first[i], before > ACT_GROUP ? before - ACT_GROUP : 0, before);
    assert_int_equal(first[2], first[3]); /* nothing of the work, no tokens */
}

static void experts_count_before_dense_layers(void **state) {
    (void)state;
    struct plan p = make_plan((const uint32_t[]){10, 10}, 2);
    for (int i = 0; i < 2; i++) {
        struct share *sh = &p.shares[i];
        sh->expert_end = 8;
        sh->expert_ff_begin = i == 0 ? 0 : 48;
        sh->expert_ff_end = i == 0 ? 48 : 64;
    }
    uint32_t first[PLAN_MAX_RANKS + 1];
    shard_tokens(&p, 0, 40 * ACT_GROUP, first);
    assert_int_equal(first[1], 30 * ACT_GROUP);
}

/* The members of a later stage go by their own parts. */
static void stages_shard_among_themselves(void **state) {
    (void)state;
    struct plan p = make_plan((const uint32_t[]){1, 1, 1, 3}, 4);
    p.tp = p.pp = 2;
    uint32_t first[PLAN_MAX_RANKS + 1];
    shard_tokens(&p, 0, 8 * ACT_GROUP, first);
    assert_int_equal(first[1], 4 * ACT_GROUP);
    shard_tokens(&p, 1, 8 * ACT_GROUP, first);
    assert_int_equal(first[1], 2 * ACT_GROUP);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_has_one_owner),
        cmocka_unit_test(parts_are_as_large_as_the_work),
        cmocka_unit_test(experts_count_before_dense_layers),
        cmocka_unit_test(stages_shard_among_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
