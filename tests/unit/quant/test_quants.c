/* Block types: every one of golden/quants bit by bit, half-precision conversions against
 * their definition in double. */
#include "base/util.h"
#include "fixture.h"
#include "quant/quant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <jansson.h>

static uint32_t bits(float f) {
    uint32_t b;
    memcpy(&b, &f, sizeof b);
    return b;
}

static uint8_t *read_golden(const char *name, size_t *len) {
    char path[256];
    snprintf(path, sizeof path, "quants/%s", name);
    uint8_t *bytes = read_whole(golden_path(path), len);
    assert_non_null(bytes);
    return bytes;
}

/* Expected bits: llama.cpp's dequantizers (golden/README.md). */
static void check_type(const json_t *entry) {
    const char *name = json_string_value(json_object_get(entry, "type"));
    enum qtype type;
    assert_true(qtype_from_name(name, &type));
    const struct qtype_info *info = qtype_info(type);
    assert_int_equal(type, json_integer_value(json_object_get(entry, "gguf_type_id")));
    assert_int_equal(info->block_values,
                     json_integer_value(json_object_get(entry, "block_values")));
    assert_non_null(info->dequantize);
    assert_int_equal(info->block_bytes,
                     json_integer_value(json_object_get(entry, "block_bytes")));

    size_t raw_len, f32_len;
    uint8_t *raw = read_golden(json_string_value(json_object_get(entry, "raw")), &raw_len);
    float *expected =
        (float *)read_golden(json_string_value(json_object_get(entry, "f32")), &f32_len);
    size_t n_blocks = raw_len / info->block_bytes, n = n_blocks * info->block_values;
    assert_int_equal(f32_len, n * sizeof(float));

    /* One byte off: blocks need no alignment. */
    uint8_t *shifted = malloc(raw_len + 1);
    memcpy(shifted + 1, raw, raw_len);
    float *got = malloc(n * sizeof *got);
    info->dequantize(shifted + 1, got, n_blocks);
    for (size_t i = 0; i < n; i++)
        if (bits(got[i]) != bits(expected[i]))
            fail_msg("%s: value %zu is %a, expected %a", name, i, (double)got[i],
                     (double)expected[i]);
    free(got);
    free(shifted);
    free(raw);
    free(expected);
}

static void all_golden_types_are_bit_identical(void **state) {
    (void)state;
    golden_or_skip("quants/index.json");
    json_t *index = json_load_file(golden_path("quants/index.json"), 0, NULL);
    assert_non_null(index);
    assert_int_equal(json_array_size(index), 25);
    size_t i;
    json_t *entry;
    json_array_foreach(index, i, entry) check_type(entry);
    json_decref(index);
}

/* The value of a binary16, by IEEE 754's definition. */
static double half_value(uint16_t h) {
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double magnitude = exponent == 0    ? ldexp(mantissa, -24)
                       : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                        : ldexp(1024 + mantissa, exponent - 25);
    return h >> 15 ? -magnitude : magnitude;
}

static void every_half_converts_exactly_and_back(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = f16_to_f32((uint16_t)h);
        double expected = half_value((uint16_t)h);
        if (isnan(expected)) {
            assert_true(isnan(f) && isnan(f16_to_f32(f32_to_f16(f))));
            continue;
        }
        assert_int_equal(bits(f), bits((float)expected));
        assert_int_equal(f32_to_f16(f), h);
    }
}

/* Between two neighbours the nearer one wins, and the even one in the middle. */
static void halves_round_to_nearest_even(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double low = half_value((uint16_t)h);
        double high = h + 1 == 0x7c00 ? 65536.0 : half_value((uint16_t)(h + 1));
        float middle = (float)((low + high) / 2); /* 12 bits of mantissa: exact */
        uint16_t even = (uint16_t)(h + (h & 1));
        assert_int_equal(f32_to_f16(middle), even);
        assert_int_equal(f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(f32_to_f16(-middle), even | 0x8000);
    }
    assert_int_equal(f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(f32_to_f16(1e-30f), 0);
}

static void bf16_is_the_upper_half_rounded_to_even(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = bf16_to_f32((uint16_t)h);
        assert_int_equal(bits(f), h << 16);
        if (isnan(f)) {
            assert_true(isnan(bf16_to_f32(f32_to_bf16(f))));
            continue;
        }
        assert_int_equal(f32_to_bf16(f), h);
        if ((h & 0x7fff) >= 0x7f80)
            continue;
        uint32_t middle_bits = h << 16 | 0x8000;
        float middle, above, below;
        memcpy(&middle, &middle_bits, 4);
        memcpy(&above, &(uint32_t){middle_bits + 1}, 4);
        memcpy(&below, &(uint32_t){middle_bits - 1}, 4);
        assert_int_equal(f32_to_bf16(middle), h + (h & 1));
        assert_int_equal(f32_to_bf16(above), h + 1);
        assert_int_equal(f32_to_bf16(below), h);
    }
}

static void names_and_sizes(void **state) {
    (void)state;
    enum qtype type;
    assert_true(qtype_from_name("Q4_k", &type));
    assert_int_equal(type, QT_Q4_K);
    assert_true(qtype_from_name("BF16", &type));
    assert_int_equal(type, QT_BF16);
    assert_false(qtype_from_name("q4", &type));
    assert_false(qtype_from_name("", &type));
    for (uint32_t id = 0; id < 64; id++) {
        const struct qtype_info *info = qtype_info(id);
        if (info) {
            assert_true(qtype_from_name(info->name, &type));
            assert_int_equal(type, id);
        }
    }
    assert_null(qtype_info(4)); /* removed */
    assert_null(qtype_info(31));
    assert_null(qtype_info(UINT32_MAX));

    size_t bytes = 7;
    assert_true(qtype_row_bytes(QT_Q8_0, 64, &bytes));
    assert_int_equal(bytes, 68);
    assert_true(qtype_row_bytes(QT_Q8_0, 0, &bytes));
    assert_int_equal(bytes, 0);
    assert_false(qtype_row_bytes(QT_Q8_0, 33, &bytes));
    assert_false(qtype_row_bytes(QT_F64, UINT64_MAX / 8 + 1, &bytes));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_golden_types_are_bit_identical),
        cmocka_unit_test(every_half_converts_exactly_and_back),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(bf16_is_the_upper_half_rounded_to_even),
        cmocka_unit_test(names_and_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
