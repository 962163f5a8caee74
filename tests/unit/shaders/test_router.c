/* The router: as many different experts as a token uses, whatever a broken model's scores are. */
#include "base/util.h"
#include "kernels/kernels.h"
#include "shaders/router.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define N_EXPERTS 8
#define N_USED 3

static void choose(const struct router *r, const float *scores, struct choice *out) {
    float logits[N_EXPERTS], scratch[N_EXPERTS];
    memcpy(logits, scores, sizeof logits);
    router_choose(kernels_get(ISA_SCALAR), r, logits, NULL, scratch, out);
}

/* The table's experts in its order; their weights are those of the scores, and add up to the scale.
 * sqrt(ln(1 + e^x)) of 0, 1 and -2: 0.832554611, 1.145976303, 0.356269576. */
static void given_experts_are_weighed_by_their_scores(void **state) {
    (void)state;
    const struct router p = {.n_experts = N_EXPERTS,
                             .n_used = N_USED,
                             .n_groups = 1,
                             .n_groups_used = 1,
                             .gating = GATING_SQRT_SOFTPLUS,
                             .normalize = true,
                             .scale = 1.5f};
    static const double roots[] = {1.145976303, 0.356269576, 0.832554611};
    const double sum = roots[0] + roots[1] + roots[2];
    const int32_t given[N_USED] = {5, 2, 7}, twice[N_USED] = {5, 0, 5};
    float scratch[N_EXPERTS], logits[N_EXPERTS] = {9, 9, -2, 9, 9, 1, 9, 0};
    struct choice c[N_USED];
    router_choose(kernels_get(ISA_SCALAR), &p, logits, given, scratch, c);
    for (int i = 0; i < N_USED; i++) {
        assert_int_equal(c[i].expert, given[i]);
        assert_true(fabs((double)c[i].weight - 1.5 * roots[i] / sum) < 1e-6);
    }
    /* No expert is there twice, and the sum is as if it were. */
    memcpy(logits, (float[N_EXPERTS]){0, 9, 9, 9, 9, 1, 9, 9}, sizeof logits);
    router_choose(kernels_get(ISA_SCALAR), &p, logits, twice, scratch, c);
    const double both = 2 * roots[0] + roots[2];
    assert_int_equal(c[0].expert, 5);
    assert_int_equal(c[1].expert, 0);
    assert_true(fabs((double)c[0].weight - 1.5 * 2 * roots[0] / both) < 1e-6);
    assert_true(fabs((double)c[1].weight - 1.5 * roots[2] / both) < 1e-6);
    assert_true(c[2].expert != 5 && c[2].expert != 0 && c[2].weight == 0.0f);
}

static void assert_different(const struct choice *c) {
    bool seen[N_EXPERTS] = {false};
    for (int i = 0; i < N_USED; i++) {
        assert_in_range(c[i].expert, 0, N_EXPERTS - 1);
        assert_false(seen[c[i].expert]);
        seen[c[i].expert] = true;
    }
}

static void the_best_come_first_and_of_equals_the_lower(void **state) {
    (void)state;
    const struct router p = {.n_experts = N_EXPERTS,
                             .n_used = N_USED,
                             .n_groups = 1,
                             .n_groups_used = 1,
                             .gating = GATING_SIGMOID,
                             .scale = 1};
    struct choice c[N_USED];
    choose(&p, (float[N_EXPERTS]){0, 2, -1, 2, 1, 0, 3, 0}, c);
    assert_int_equal(c[0].expert, 6);
    assert_int_equal(c[1].expert, 1);
    assert_int_equal(c[2].expert, 3);
}

static void no_expert_is_chosen_twice(void **state) {
    (void)state;
    static const float broken[][N_EXPERTS] = {
        {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN},
        {1, NAN, NAN, NAN, NAN, NAN, NAN, NAN},
        {NAN, NAN, 1, NAN, NAN, 2, NAN, NAN},
        {INFINITY, 1, 1, 1, 1, 1, 1, 1},
        {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(broken); i++)
        for (int gating = GATING_SOFTMAX; gating <= GATING_SIGMOID; gating++)
            for (uint32_t groups = 1; groups <= 4; groups *= 4) {
                const struct router p = {.n_experts = N_EXPERTS,
                                         .n_used = N_USED,
                                         .n_groups = groups,
                                         .n_groups_used = MIN(groups, 2u),
                                         .gating = (enum gating)gating,
                                         .scale = 1};
                struct choice c[N_USED];
                choose(&p, broken[i], c);
                assert_different(c);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_come_first_and_of_equals_the_lower),
        cmocka_unit_test(given_experts_are_weighed_by_their_scores),
        cmocka_unit_test(no_expert_is_chosen_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
