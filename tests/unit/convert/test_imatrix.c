/* Importance matrices: both of llama.cpp's formats say the same, what is damaged is refused,
 * and the weighted error of a quantized matrix goes down. The formats: llama.cpp,
 * tools/imatrix/imatrix.cpp (save_imatrix, save_imatrix_legacy). */
#include "base/util.h"
#include "convert/quantize_file.h"
#include "format/gguf_write.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define NAME "blk.0.ffn_up_exps.weight"
enum { COLS = 512, ROWS = 24, MATRICES = 2, CALLS = 7 };

static char dir[] = "/tmp/lockstep-test-imatrix-XXXXXX";
static char model[64], dat[64], sums[64], out[64];

/* Mean squares of activations: a few columns matter far more than most, others in each matrix. */
static float importance(int matrix, int col) {
    return (col + 3 * matrix) % 11 == 0 ? 40.0f : 0.05f + 0.01f * (float)(col % 5);
}

/* Sums of several uniform numbers: bell-shaped. */
static float weight(size_t i) {
    uint32_t s = (uint32_t)i * 2654435761u + 12345u;
    float x = 0;
    for (int k = 0; k < 6; k++) {
        s = s * 1664525u + 1013904223u;
        x += (float)(s >> 8) * 0x1p-24f - 0.5f;
    }
    return x;
}

static void write_model(void) {
    struct gguf_writer *w;
    struct err err;
    const uint64_t dims[] = {COLS, ROWS, MATRICES};
    float row[COLS];
    assert_int_equal(gguf_writer_open(&w, model, &err), ST_OK);
    gguf_write_tensor_info(w, NAME, QT_F32, 3, dims);
    assert_int_equal(gguf_writer_begin_data(w, false, &err), ST_OK);
    for (size_t r = 0; r < ROWS * MATRICES; r++) {
        for (size_t c = 0; c < COLS; c++)
            row[c] = weight(r * COLS + c);
        assert_int_equal(gguf_write_data(w, row, sizeof row, &err), ST_OK);
    }
    assert_int_equal(gguf_writer_finish(w, &err), ST_OK);
    gguf_writer_close(w);
}

static void write_sums(const char *path, float counts[MATRICES], float factor) {
    struct gguf_writer *w;
    struct err err;
    const uint64_t dims[] = {COLS, MATRICES}, count_dims[] = {1, MATRICES};
    assert_int_equal(gguf_writer_open(&w, path, &err), ST_OK);
    gguf_write_str(w, "general.type", "imatrix");
    gguf_write_tensor_info(w, NAME ".in_sum2", QT_F32, 2, dims);
    gguf_write_tensor_info(w, NAME ".counts", QT_F32, 2, count_dims);
    assert_int_equal(gguf_writer_begin_data(w, false, &err), ST_OK);
    for (int m = 0; m < MATRICES; m++)
        for (int c = 0; c < COLS; c++) {
            float sum = factor * importance(m, c);
            assert_int_equal(gguf_write_data(w, &sum, sizeof sum, &err), ST_OK);
        }
    assert_int_equal(gguf_write_data(w, counts, MATRICES * sizeof *counts, &err), ST_OK);
    assert_int_equal(gguf_writer_finish(w, &err), ST_OK);
    gguf_writer_close(w);
}

/* cut: bytes to leave out at the end. */
static void write_dat(const char *path, int32_t n_values, size_t cut) {
    FILE *f = fopen(path, "wb");
    int32_t one = 1, len = sizeof NAME - 1, calls = CALLS;
    assert_non_null(f);
    fwrite(&one, 4, 1, f);
    fwrite(&len, 4, 1, f);
    fwrite(NAME, 1, (size_t)len, f);
    fwrite(&calls, 4, 1, f);
    fwrite(&n_values, 4, 1, f);
    for (int i = 0; i < COLS * MATRICES; i++) {
        float sum = CALLS * importance(i / COLS, i % COLS);
        fwrite(&sum, 4, 1, f);
    }
    fflush(f);
    long size = ftell(f);
    fclose(f);
    assert_int_equal(truncate(path, size - (long)cut), 0);
}

static struct imatrix *open_or_fail(const char *path) {
    struct imatrix *m = NULL;
    struct err err = {.text = ""};
    if (imatrix_open(&m, path, &err) != ST_OK)
        fail_msg("%s", err.text);
    return m;
}

static const struct gguf_tensor tensor = {
    .name = NAME, .type = QT_F32, .n_dims = 3, .dims = {COLS, ROWS, MATRICES, 1}};

static void both_formats_say_the_same(void **state) {
    (void)state;
    float counts[MATRICES] = {8, 8};
    write_sums(sums, counts, 8); /* a power of two: exact */
    write_dat(dat, COLS * MATRICES, 0);
    const char *const paths[] = {sums, dat};
    for (size_t p = 0; p < 2; p++) {
        struct imatrix *m = open_or_fail(paths[p]);
        const float *values;
        struct err err;
        assert_int_equal(imatrix_n(m), 1);
        assert_int_equal(imatrix_find(m, &tensor, &values, &err), ST_OK);
        for (int i = 0; i < COLS * MATRICES; i++) {
            /* .dat: 7 x / 7 may be off by a rounding of each */
            float want = importance(i / COLS, i % COLS);
            assert_true(fabsf(values[i] - want) <= (p == 0 ? 0 : 0x1p-22f * want));
        }
        struct gguf_tensor other = tensor;
        other.name[0] = 'x';
        assert_int_equal(imatrix_find(m, &other, &values, &err), ST_OK);
        assert_null(values);
        other = tensor;
        other.dims[0] = 2 * COLS;
        assert_int_equal(imatrix_find(m, &other, &values, &err), ST_BAD_INPUT);
        imatrix_close(m);
    }
}

static void a_matrix_without_tokens_weighs_all_alike(void **state) {
    (void)state;
    float counts[MATRICES] = {8, 0};
    const float *values;
    struct err err;
    write_sums(sums, counts, 8);
    struct imatrix *m = open_or_fail(sums);
    assert_int_equal(imatrix_find(m, &tensor, &values, &err), ST_OK);
    for (int c = 0; c < COLS; c++) {
        assert_true(values[c] == importance(0, c));
        assert_true(values[COLS + c] == 1.0f);
    }
    imatrix_close(m);
    /* However small the activations of its neighbours are: as they are before ffn_down. */
    const float small = 0x1p-18f; /* exact */
    write_sums(sums, counts, 8 * small);
    m = open_or_fail(sums);
    assert_int_equal(imatrix_find(m, &tensor, &values, &err), ST_OK);
    for (int c = 0; c < COLS; c++) {
        assert_true(values[c] == small * importance(0, c));
        assert_true(values[COLS + c] == 1.0f);
    }
    imatrix_close(m);
}

/* What never saw an activation must not become zero. */
static void zeros_are_raised(void **state) {
    (void)state;
    float counts[MATRICES] = {8, 8};
    const float *values;
    struct err err;
    write_sums(sums, counts, 0);
    struct imatrix *m = open_or_fail(sums);
    assert_int_equal(imatrix_find(m, &tensor, &values, &err), ST_OK);
    for (int i = 0; i < COLS * MATRICES; i++)
        assert_true(values[i] == 1.0f);
    imatrix_close(m);
}

static void refused(const char *path) {
    struct imatrix *m = NULL;
    struct err err = {.text = ""};
    enum status st = imatrix_open(&m, path, &err);
    assert_true(st == ST_BAD_INPUT || st == ST_NOT_FOUND);
    assert_true(strlen(err.text) > 20 && strstr(err.text, path) != NULL);
    assert_null(m);
}

static void what_is_damaged_is_refused(void **state) {
    (void)state;
    size_t whole = 4 + 4 + sizeof NAME - 1 + 4 + 4 + COLS * MATRICES * 4;
    for (size_t left = 1; left < whole; left += left < 64 ? 1 : 97) {
        write_dat(dat, COLS * MATRICES, whole - left);
        refused(dat);
    }
    write_dat(dat, COLS * MATRICES + 1, 0);
    refused(dat);
    write_dat(dat, -1, 0);
    refused(dat);
    float counts[MATRICES] = {8, 8};
    write_sums(sums, counts, NAN);
    refused(sums);
    write_sums(sums, counts, -8);
    refused(sums);
    write_sums(sums, counts, INFINITY);
    refused(sums);
    refused(model); /* a GGUF without importances */
    refused("/nowhere/at.all");
}

/* sum of importance x (x - what the file has)^2 */
static double weighted_error(enum qtype type, const struct imatrix *m, size_t *n_weighted) {
    struct gguf *g = NULL;
    struct err err = {.text = ""};
    struct quantize_report report;
    const struct quantize_options opts = {.type = type, .n_threads = 2, .imatrix = m};
    assert_int_equal(gguf_open(&g, model, NULL, &err), ST_OK);
    if (quantize_file(g, out, &opts, &report, &err) != ST_OK)
        fail_msg("%s", err.text);
    gguf_close(g);
    *n_weighted = report.n_weighted;
    assert_int_equal(gguf_open(&g, out, NULL, &err), ST_OK);
    const struct gguf_tensor *t = gguf_tensor(g, NAME);
    assert_non_null(t);
    const struct qtype_info *info = qtype_info(t->type);
    size_t row_bytes;
    double error = 0;
    assert_true(qtype_row_bytes(t->type, COLS, &row_bytes));
    for (size_t r = 0; r < ROWS * MATRICES; r++) {
        float row[COLS];
        info->dequantize(t->data + r * row_bytes, row, COLS / info->block_values);
        for (size_t c = 0; c < COLS; c++) {
            double miss = (double)row[c] - (double)weight(r * COLS + c);
            error += (double)importance((int)(r / ROWS), (int)c) * miss * miss;
        }
    }
    gguf_close(g);
    return error;
}

static void the_weighted_error_goes_down(void **state) {
    (void)state;
    static const enum qtype types[] = {QT_Q4_0, QT_Q4_1, QT_Q5_0, QT_Q5_1, QT_Q2_K,
                                       QT_Q3_K, QT_Q4_K, QT_Q5_K, QT_Q6_K, QT_IQ4_NL};
    float counts[MATRICES] = {8, 8};
    size_t n;
    write_sums(sums, counts, 8);
    struct imatrix *m = open_or_fail(sums);
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        double plain = weighted_error(types[i], NULL, &n);
        assert_int_equal(n, 0);
        double weighted = weighted_error(types[i], m, &n);
        assert_int_equal(n, 1);
        print_message("%s: %.4g without, %.4g with importances\n", qtype_info(types[i])->name,
                      plain, weighted);
        assert_true(weighted < 0.97 * plain);
    }
    imatrix_close(m);
}

static int make_files(void **state) {
    (void)state;
    if (!mkdtemp(dir))
        return 1;
    snprintf(model, sizeof model, "%s/model.gguf", dir);
    snprintf(dat, sizeof dat, "%s/imatrix.dat", dir);
    snprintf(sums, sizeof sums, "%s/imatrix.gguf", dir);
    snprintf(out, sizeof out, "%s/out.gguf", dir);
    write_model();
    return 0;
}

static int remove_files(void **state) {
    (void)state;
    unlink(model);
    unlink(dat);
    unlink(sums);
    unlink(out);
    return rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_formats_say_the_same),
        cmocka_unit_test(a_matrix_without_tokens_weighs_all_alike),
        cmocka_unit_test(zeros_are_raised),
        cmocka_unit_test(what_is_damaged_is_refused),
        cmocka_unit_test(the_weighted_error_goes_down),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
