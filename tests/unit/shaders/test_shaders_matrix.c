/* Products by matrix units, which a device without any emulates (LOCKSTEP_DEVICE_MATRIX): the bits
 * are those of the scalar definition, for each type of weights and both numbers of columns.
 * labels: slow */
#include "products_fixture.h"

#define MANY 24 /* tokens: fewer are not multiplied by matrix units */

static const char *const columns[VARIANTS] = {"32", "16", "32"};

static int open_with_matrix(void **state) {
    (void)state;
    for (size_t i = 0; i < VARIANTS; i++) {
        setenv("LOCKSTEP_DEVICE_MATRIX", columns[i], 1);
        open_variant(&devices[i], without[i]);
    }
    unsetenv("LOCKSTEP_DEVICE_MATRIX");
    return 0;
}

static void the_device_says_so(void **state) {
    (void)state;
    for (size_t i = 0; i < VARIANTS; i++) {
        const struct device_info *info = device_info(devices[i].d);
        assert_true(info->features[DEVICE_MATRIX]);
        assert_int_equal(info->matrix, DEVICE_MATRIX_EMULATED);
        assert_int_equal(info->matrix_columns, atoi(columns[i]));
    }
}

/* Compared with the definition, and none has been replaced by the kernel for other devices. */
static void check_by_matrix(struct on *on, enum qtype type) {
    check_type(on, type, MANY);
    assert_string_equal(shaders_why_no_matrix(on->s), "");
}

static void products_are_alike(void **state) {
    (void)state;
    size_t i = 0;
    for (int type = 0; type < QT_N; type++)
        if (wmat_type_supported((enum qtype)type) && act_kind_for((enum qtype)type) == ACT_Q8)
            check_by_matrix(&devices[i++ % VARIANTS], (enum qtype)type);
}

/* Scales of blocks, of halves, of halves with mins, two of a block: with either number of columns,
 * and any number of tokens. */
static void products_of_any_number_of_tokens_are_alike(void **state) {
    (void)state;
    static const enum qtype types[] = {QT_Q8_0, QT_Q6_K, QT_Q2_K, QT_NVFP4};
    for (size_t i = 0; i < 2 * ARRAY_LEN(types); i++) {
        struct on *on = &devices[i % 2];
        const enum qtype type = types[i / 2];
        struct err err = {0};
        if (shaders_prepare(on->s, type, &err) != ST_OK)
            fail_msg("%s", err.text);
        assert_string_equal(shaders_why_no_matrix(on->s), "");
        for (uint32_t n = MANY + (uint32_t)i % 5; n <= 70; n += 9)
            check_product(
                on, type,
                &(struct product_case){1 + n * 7 % 70, 64 + 32 * (n / 3 % 3), 0, 32, n});
    }
}

static void grouped_experts_are_alike(void **state) {
    (void)state;
    static const enum qtype types[VARIANTS] = {QT_Q4_K, QT_NVFP4, QT_Q4_0};
    for (size_t i = 0; i < VARIANTS; i++) {
        struct err err = {0};
        if (shaders_prepare(devices[i].s, types[i], &err) != ST_OK)
            fail_msg("%s", err.text);
        check_chosen(&devices[i], types[i], 26, false);
        check_chosen(&devices[i], types[i], 130, true); /* a square of each, and some */
        check_chosen(&devices[i], types[i], 150, true); /* two squares */
    }
}

static void open_with(struct on *on, const char *name, const char *value) {
    setenv("LOCKSTEP_DEVICE_MATRIX", "32", 1);
    setenv(name, value, 1);
    open_variant(on, strstr(name, "WITHOUT") != NULL ? value : "");
    unsetenv(name);
    unsetenv("LOCKSTEP_DEVICE_MATRIX");
}

/* A kernel for matrix units that computes wrong is not used, and the bits are the same. */
static void one_that_computes_wrong_is_not_used(void **state) {
    (void)state;
    struct on on = {0};
    open_with(&on, "LOCKSTEP_DEVICE_FAULT", "fma:matrix");
    check_type(&on, QT_Q5_0, MANY);
    assert_non_null(strstr(shaders_why_no_matrix(on.s), "product with q5_0 differs"));
    check_type(&on, QT_Q8_0, MANY);
    close_variant(&on);
}

static void they_can_be_taken_away(void **state) {
    (void)state;
    struct on on = {0};
    open_with(&on, "LOCKSTEP_DEVICE_WITHOUT", "dot,matrix");
    assert_false(device_info(on.d)->features[DEVICE_MATRIX]);
    assert_int_equal(device_info(on.d)->matrix, DEVICE_MATRIX_NONE);
    close_variant(&on);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_says_so),
        cmocka_unit_test(products_of_any_number_of_tokens_are_alike),
        cmocka_unit_test(products_are_alike),
        cmocka_unit_test(grouped_experts_are_alike),
        cmocka_unit_test(one_that_computes_wrong_is_not_used),
        cmocka_unit_test(they_can_be_taken_away),
    };
    return device_is_testable() ? cmocka_run_group_tests(tests, open_with_matrix, close_all)
                                : 77;
}
