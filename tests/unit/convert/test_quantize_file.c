/* quantize_file: what is converted and what is kept, the same bytes for any number of threads,
 * and nothing left behind when it fails. */
#include "base/util.h"
#include "convert/quantize_file.h"
#include "fixture.h"
#include "format/gguf_write.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static char dir[] = "/tmp/lockstep-test-quantize-XXXXXX";
static char in_path[64], out_path[64], other_path[64];

static struct gguf *open_or_fail(const char *path) {
    struct gguf *g = NULL;
    struct err err = {.text = ""};
    if (gguf_open(&g, path, NULL, &err) != ST_OK)
        fail_msg("%s", err.text);
    return g;
}

/* name, columns, rows, and the type that it must get when Q4_K is wished */
static const struct {
    const char *name;
    enum qtype type;
    uint32_t n_dims;
    uint64_t dims[3];
    enum qtype expected;
} tensors[] = {
    {"token_embd.weight", QT_F32, 2, {512, 40}, QT_Q4_K},
    {"blk.0.attn_norm.weight", QT_F32, 1, {512}, QT_F32},
    {"blk.0.attn_q.weight", QT_F16, 2, {512, 30}, QT_Q4_K},
    {"blk.0.attn_k.weight", QT_Q8_0, 2, {512, 30}, QT_Q4_K},
    {"blk.0.attn_v.weight", QT_Q4_K, 2, {512, 30}, QT_Q4_K},
    {"blk.0.odd.weight", QT_F32, 2, {96, 5}, QT_Q8_0},
    {"blk.0.odder.weight", QT_F32, 2, {100, 5}, QT_F16},
    {"blk.0.ffn_gate_inp.weight", QT_F32, 2, {512, 4}, QT_F32},
    {"blk.0.ffn_up_exps.weight", QT_BF16, 3, {256, 7, 4}, QT_Q4_K},
    {"blk.0.ffn_up_exps.bias", QT_F32, 2, {256, 4}, QT_F32},
};

/* Some bits that are finite in every type: a repeating ramp, quantized. */
static void write_data(struct gguf_writer *w, enum qtype type, size_t n) {
    const struct qtype_info *info = qtype_info(type);
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(i * 37 % 251) * 0.01f - 1.2f;
    uint8_t *blocks = malloc(n / info->block_values * info->block_bytes);
    info->quantize(x, NULL, blocks, n / info->block_values);
    struct err err;
    assert_int_equal(
        gguf_write_data(w, blocks, n / info->block_values * info->block_bytes, &err), ST_OK);
    free(blocks);
    free(x);
}

static size_t n_values(size_t i) {
    size_t n = 1;
    for (uint32_t d = 0; d < tensors[i].n_dims; d++)
        n *= (size_t)tensors[i].dims[d];
    return n;
}

static void write_input(void) {
    struct gguf_writer *w;
    struct err err;
    assert_int_equal(gguf_writer_open(&w, in_path, &err), ST_OK);
    gguf_write_str(w, "general.name", "kept");
    gguf_write_u32(w, "general.file_type", 0);
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++)
        gguf_write_tensor_info(w, tensors[i].name, tensors[i].type, tensors[i].n_dims,
                               tensors[i].dims);
    assert_int_equal(gguf_writer_begin_data(w, false, &err), ST_OK);
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++)
        write_data(w, tensors[i].type, n_values(i));
    assert_int_equal(gguf_writer_finish(w, &err), ST_OK);
    gguf_writer_close(w);
}

static void convert(const char *path, int n_threads, struct quantize_report *report) {
    struct gguf *g = open_or_fail(in_path);
    struct err err = {.text = ""};
    const struct quantize_options opts = {.type = QT_Q4_K, .n_threads = n_threads};
    if (quantize_file(g, path, &opts, report, &err) != ST_OK)
        fail_msg("%s", err.text);
    gguf_close(g);
}

/* What a tensor should hold: its values, through the quantizer, in one go. */
static void check_data(const struct gguf_tensor *before, const struct gguf_tensor *after) {
    const struct qtype_info *from = qtype_info(before->type), *to = qtype_info(after->type);
    size_t n = (size_t)(before->dims[0] * before->dims[1] * before->dims[2]);
    if (before->type == after->type) {
        assert_memory_equal(before->data, after->data, before->size_bytes);
        return;
    }
    float *x = malloc(n * sizeof *x);
    uint8_t *expected = malloc(after->size_bytes);
    from->dequantize(before->data, x, n / from->block_values);
    to->quantize(x, NULL, expected, n / to->block_values);
    assert_memory_equal(after->data, expected, after->size_bytes);
    free(expected);
    free(x);
}

static void each_tensor_gets_its_type(void **state) {
    (void)state;
    struct quantize_report report;
    write_input();
    convert(out_path, 2, &report);
    struct gguf *in = open_or_fail(in_path), *out = open_or_fail(out_path);
    struct gguf_str name;
    uint32_t file_type;
    assert_int_equal(gguf_str(out, "general.name", &name, NULL), ST_OK);
    assert_memory_equal(name.ptr, "kept", name.len);
    assert_int_equal(gguf_u32(out, "general.file_type", &file_type, NULL), ST_OK);
    assert_int_equal(file_type, gguf_file_type(QT_Q4_K));
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        const struct gguf_tensor *t = gguf_tensor(out, tensors[i].name);
        assert_non_null(t);
        assert_int_equal(t->type, tensors[i].expected);
        check_data(gguf_tensor(in, tensors[i].name), t);
    }
    assert_int_equal(report.n_tensors, ARRAY_LEN(tensors));
    assert_int_equal(report.n_converted, 6);
    assert_int_equal(report.n_fallback, 2);
    gguf_close(in);
    gguf_close(out);
}

static void threads_do_not_show(void **state) {
    (void)state;
    struct quantize_report report;
    size_t n_a = 0, n_b = 0;
    write_input();
    convert(out_path, 1, &report);
    convert(other_path, 3, &report);
    uint8_t *a = read_whole(out_path, &n_a), *b = read_whole(other_path, &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    free(a);
    free(b);
}

static bool stop_at_once(void *arg, uint64_t done, uint64_t total) {
    (void)arg;
    assert_true(done > 0 && done <= total);
    return false;
}

static void failures_leave_nothing(void **state) {
    (void)state;
    struct quantize_report report;
    struct err err;
    write_input();
    unlink(out_path);
    struct gguf *g = open_or_fail(in_path);
    const struct progress stop = {stop_at_once, NULL};
    struct quantize_options opts = {.type = QT_Q8_0, .n_threads = 2, .progress = &stop};
    assert_int_equal(quantize_file(g, out_path, &opts, &report, &err), ST_CANCELLED);
    assert_int_equal(access(out_path, F_OK), -1);
    opts = (struct quantize_options){.type = QT_IQ2_S, .n_threads = 1};
    assert_int_equal(quantize_file(g, out_path, &opts, &report, &err), ST_UNSUPPORTED);
    assert_int_equal(access(out_path, F_OK), -1);
    gguf_close(g);
}

/* ---- NVFP4, which has a scale of each whole matrix in a tensor beside it ----------------- */

static const float matrix_scales[] = {0.5f, 3.0f};

#define ROW_BLOCKS (256 / QK_NVFP4)

/* A matrix of 2 rows, whose scale stands under one of the names that files have, and two
 * matrices of 2 rows with theirs under the other: 6 rows. */
static void write_nvfp4(uint64_t n_scales, struct block_nvfp4 blocks[6 * ROW_BLOCKS]) {
    struct gguf_writer *w;
    struct err err;
    const uint64_t one[] = {256, 2}, two[] = {256, 2, 2}, n_one = 1;
    uint8_t *bytes = (uint8_t *)blocks;
    for (size_t i = 0; i < 6 * ROW_BLOCKS * sizeof *blocks; i++)
        bytes[i] = (uint8_t)(i * 37 % 113); /* as a scale: a finite e4m3 */
    assert_int_equal(gguf_writer_open(&w, in_path, &err), ST_OK);
    gguf_write_tensor_info(w, "blk.0.attn_q.weight", QT_NVFP4, 2, one);
    gguf_write_tensor_info(w, "blk.0.attn_q.scale", QT_F32, 1, &n_one);
    gguf_write_tensor_info(w, "blk.0.ffn_up_exps.weight", QT_NVFP4, 3, two);
    gguf_write_tensor_info(w, "blk.0.ffn_up_exps.weight.scale", QT_F32, 1, &n_scales);
    assert_int_equal(gguf_writer_begin_data(w, false, &err), ST_OK);
    assert_int_equal(gguf_write_data(w, blocks, 2 * ROW_BLOCKS * sizeof *blocks, &err), ST_OK);
    assert_int_equal(gguf_write_data(w, matrix_scales, sizeof(float), &err), ST_OK);
    assert_int_equal(
        gguf_write_data(w, blocks + 2 * ROW_BLOCKS, 4 * ROW_BLOCKS * sizeof *blocks, &err),
        ST_OK);
    assert_int_equal(gguf_write_data(w, matrix_scales, n_scales * sizeof(float), &err), ST_OK);
    assert_int_equal(gguf_writer_finish(w, &err), ST_OK);
    gguf_writer_close(w);
}

/* Another type has no such scale, and a file that gives it one is refused: it belongs to the
 * values. */
static void scales_of_matrices_go_into_values(void **state) {
    (void)state;
    static const float scale_of_row[6] = {0.5f, 0.5f, 0.5f, 0.5f, 3.0f, 3.0f};
    struct quantize_report report;
    struct block_nvfp4 blocks[6 * ROW_BLOCKS];
    float x[6][256];
    uint8_t expected[256 / QK * sizeof(struct block_q8_0)];
    struct err err;
    write_nvfp4(2, blocks);
    qtype_info(QT_NVFP4)->dequantize(blocks, x[0], 6 * ROW_BLOCKS);
    struct gguf *g = open_or_fail(in_path);
    struct quantize_options opts = {.type = QT_Q8_0, .n_threads = 2};
    if (quantize_file(g, out_path, &opts, &report, &err) != ST_OK)
        fail_msg("%s", err.text);
    gguf_close(g);
    g = open_or_fail(out_path);
    assert_int_equal(gguf_n_tensors(g), 2);
    for (size_t r = 0; r < 6; r++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, r >= 2);
        assert_int_equal(t->type, QT_Q8_0);
        for (size_t i = 0; i < 256; i++)
            x[r][i] *= scale_of_row[r];
        qtype_info(QT_Q8_0)->quantize(x[r], NULL, expected, 256 / QK);
        assert_memory_equal(t->data + (r < 2 ? r : r - 2) * sizeof expected, expected,
                            sizeof expected);
    }
    gguf_close(g);
    write_nvfp4(1, blocks);
    g = open_or_fail(in_path);
    assert_int_equal(quantize_file(g, out_path, &opts, &report, &err), ST_BAD_INPUT);
    assert_non_null(
        strstr(err.text, "one f32 for each matrix in blk.0.ffn_up_exps.weight.scale"));
    gguf_close(g);
}

static int make_dir(void **state) {
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(in_path, sizeof in_path, "%s/in.gguf", dir);
    snprintf(out_path, sizeof out_path, "%s/out.gguf", dir);
    snprintf(other_path, sizeof other_path, "%s/other.gguf", dir);
    return 0;
}

static int remove_dir(void **state) {
    (void)state;
    unlink(in_path);
    unlink(out_path);
    unlink(other_path);
    return rmdir(dir);
}

/* ---- mixes ------------------------------------------------------------------------------- */

#define N_LAYERS 32

/* A model of 32 layers and eight query heads for a key head, or one for each; its matrices are
 * small. */
static void write_layers(uint32_t kv_heads, bool tied, uint32_t n_experts) {
    static const char *const parts[] = {"attn_q", "attn_k", "attn_v", "attn_output",
                                        "ffn_down"};
    const uint64_t dims[] = {256, 2};
    struct gguf_writer *w;
    struct err err;
    char name[64];
    assert_int_equal(gguf_writer_open(&w, in_path, &err), ST_OK);
    gguf_write_str(w, "general.architecture", "llama");
    gguf_write_u32(w, "llama.block_count", N_LAYERS);
    gguf_write_u32(w, "llama.attention.head_count", 8);
    gguf_write_u32(w, "llama.attention.head_count_kv", kv_heads);
    if (n_experts > 0)
        gguf_write_u32(w, "llama.expert_count", n_experts);
    gguf_write_tensor_info(w, "token_embd.weight", QT_F16, 2, dims);
    if (!tied)
        gguf_write_tensor_info(w, "output.weight", QT_F16, 2, dims);
    for (int layer = 0; layer < N_LAYERS; layer++)
        for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", layer, parts[k]);
            gguf_write_tensor_info(w, name, QT_F16, 2, dims);
        }
    assert_int_equal(gguf_writer_begin_data(w, false, &err), ST_OK);
    for (size_t i = 0; i < N_LAYERS * ARRAY_LEN(parts) + 1 + !tied; i++)
        write_data(w, QT_F16, 512);
    assert_int_equal(gguf_writer_finish(w, &err), ST_OK);
    gguf_writer_close(w);
}

static void mix(const char *name, const struct quantize_choice *choices, size_t n) {
    struct gguf *g = open_or_fail(in_path);
    struct quantize_report report;
    struct err err = {.text = ""};
    const struct quantize_mix *m = quantize_mix_find(name);
    assert_non_null(m);
    const struct quantize_options opts = {
        .type = m->type, .mix = m, .n_threads = 1, .choices = choices, .n_choices = n};
    if (quantize_file(g, out_path, &opts, &report, &err) != ST_OK)
        fail_msg("%s", err.text);
    assert_int_equal(report.n_fallback, 0);
    gguf_close(g);
}

/* The layers in which a part has a type, as "0-3,6". */
static void assert_layers(const struct gguf *g, const char *part, enum qtype type,
                          const char *expected) {
    char text[256] = "", name[64];
    int first = -1;
    for (int layer = 0; layer <= N_LAYERS; layer++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
        const struct gguf_tensor *t = gguf_tensor(g, name);
        bool is = t != NULL && t->type == type;
        if (is && first < 0)
            first = layer;
        if (is || first < 0)
            continue;
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, first == layer - 1 ? "%s%d" : "%s%d-%d",
                 n > 0 ? "," : "", first, layer - 1);
        first = -1;
    }
    if (strcmp(text, expected) != 0)
        print_message("%s\n", part);
    assert_string_equal(text, expected);
}

/* What files of these names have by other programs: for 32 layers these are well known. */
static void mixes_give_some_matrices_more_bits(void **state) {
    (void)state;
    static const char all[] = "0-31", more[] = "0-3,6,9,12,15,18,21,24,27-31";
    static const struct {
        const char *mix;
        uint32_t kv_heads, n_experts, file_type;
        struct {
            const char *part;
            enum qtype type;
            const char *layers;
        } parts[7];
    } cases[] = {
        {"Q4_K_M",
         1,
         0,
         15,
         {{"attn_q", QT_Q4_K, all},
          {"attn_k", QT_Q4_K, all},
          {"attn_v", QT_Q6_K, more},
          {"ffn_down", QT_Q6_K, more},
          {"attn_output", QT_Q4_K, all},
          {"attn_v", QT_Q4_K, "4-5,7-8,10-11,13-14,16-17,19-20,22-23,25-26"}}},
        {"q4_k_s", 1, 0, 14, {{"attn_v", QT_Q5_K, "0-3"}, {"ffn_down", QT_Q5_K, "0-3"}}},
        {"Q5_K_M", 1, 0, 17, {{"attn_v", QT_Q6_K, more}, {"attn_q", QT_Q5_K, all}}},
        {"Q5_K_S", 1, 0, 16, {{"attn_v", QT_Q5_K, all}, {"ffn_down", QT_Q5_K, all}}},
        {"Q3_K_M",
         1,
         0,
         12,
         {{"attn_v", QT_Q5_K, "0-1"},
          {"attn_v", QT_Q4_K, "2-31"},
          {"ffn_down", QT_Q5_K, "0-1"},
          {"ffn_down", QT_Q4_K, "2-31"},
          {"attn_output", QT_Q4_K, all},
          {"attn_q", QT_Q3_K, all}}},
        {"Q3_K_L",
         1,
         0,
         13,
         {{"attn_v", QT_Q5_K, all}, {"ffn_down", QT_Q5_K, all}, {"attn_output", QT_Q5_K, all}}},
        {"Q3_K_S", 1, 0, 11, {{"attn_v", QT_Q3_K, all}, {"ffn_down", QT_Q3_K, all}}},
        {"Q2_K",
         1,
         0,
         10,
         {{"attn_v", QT_Q4_K, all},
          {"ffn_down", QT_Q3_K, all},
          {"attn_output", QT_Q3_K, all},
          {"attn_q", QT_Q2_K, all}}},
        {"Q2_K", 8, 0, 10, {{"attn_v", QT_Q3_K, all}}},
        {"Q6_K", 1, 0, 18, {{"attn_v", QT_Q6_K, all}, {"ffn_down", QT_Q6_K, all}}},
        {"Q4_K_M",
         1,
         8,
         15,
         {{"attn_k", QT_Q8_0, all},
          {"attn_v", QT_Q8_0, all},
          {"attn_output", QT_Q5_K, all},
          {"attn_q", QT_Q4_K, all}}},
        {"Q5_K_M", 1, 8, 17, {{"attn_v", QT_Q8_0, all}, {"attn_output", QT_Q5_K, all}}},
        {"Q4_0", 1, 0, 2, {{"attn_v", QT_Q4_0, all}, {"ffn_down", QT_Q4_0, all}}},
        {"Q5_1", 1, 0, 9, {{"attn_v", QT_Q5_1, all}, {"ffn_down", QT_Q5_1, all}}},
        {"Q4_1", 1, 8, 3, {{"attn_k", QT_Q8_0, all}, {"attn_output", QT_Q4_1, all}}},
        {"IQ4_NL",
         1,
         0,
         25,
         {{"attn_v", QT_Q5_K, all},
          {"ffn_down", QT_Q5_K, "0-3"},
          {"ffn_down", QT_IQ4_NL, "4-31"},
          {"attn_q", QT_IQ4_NL, all}}},
        {"IQ4_XS", 8, 8, 30, {{"attn_output", QT_Q5_K, all}, {"attn_q", QT_IQ4_XS, all}}},
        {"IQ4_XS", 8, 0, 30, {{"attn_v", QT_IQ4_XS, all}, {"ffn_down", QT_Q5_K, "0-3"}}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        bool tied = i % 2 == 1;
        uint32_t file_type;
        write_layers(cases[i].kv_heads, tied, cases[i].n_experts);
        mix(cases[i].mix, NULL, 0);
        struct gguf *g = open_or_fail(out_path);
        for (size_t k = 0; k < 7 && cases[i].parts[k].part != NULL; k++)
            assert_layers(g, cases[i].parts[k].part, cases[i].parts[k].type,
                          cases[i].parts[k].layers);
        assert_int_equal(gguf_tensor(g, tied ? "token_embd.weight" : "output.weight")->type,
                         QT_Q6_K);
        assert_int_equal(gguf_u32(g, "general.file_type", &file_type, NULL), ST_OK);
        assert_int_equal(file_type, cases[i].file_type);
        gguf_close(g);
    }
    assert_null(quantize_mix_find("q2_k"));
    assert_null(quantize_mix_find("q4_0"));
    assert_null(quantize_mix_find("Q4_K"));
}

/* With an importance matrix the simple types add a minimum, and the others need no more bits. */
static void importances_change_some_mixes(void **state) {
    (void)state;
    static const struct {
        const char *mix;
        enum qtype first,
            rest; /* of ffn_down in the first eighth of the layers, and in others */
    } cases[] = {{"Q4_0", QT_Q4_1, QT_Q4_0},
                 {"Q5_0", QT_Q5_1, QT_Q5_0},
                 {"IQ4_XS", QT_IQ4_XS, QT_IQ4_XS},
                 {"Q4_K_S", QT_Q5_K, QT_Q4_K}};
    write_layers(8, false, 0);
    struct gguf *g = open_or_fail(in_path);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct quantize_mix *m = quantize_mix_find(cases[i].mix);
        const struct gguf_tensor *first = gguf_tensor(g, "blk.3.ffn_down.weight");
        const struct gguf_tensor *rest = gguf_tensor(g, "blk.4.ffn_down.weight");
        assert_int_equal(quantize_mix_type(m, g, first, true), cases[i].first);
        assert_int_equal(quantize_mix_type(m, g, rest, true), cases[i].rest);
    }
    gguf_close(g);
}

/* Of two that fit the last counts. */
static void choices_come_before_the_mix(void **state) {
    (void)state;
    static const struct quantize_choice choices[] = {{"blk.*.attn_", QT_Q8_0},
                                                     {"attn_v", QT_F16},
                                                     {"blk.1*down", QT_Q5_0},
                                                     {"output.weight", QT_Q4_K}};
    write_layers(1, false, 0);
    mix("Q4_K_M", choices, ARRAY_LEN(choices));
    struct gguf *g = open_or_fail(out_path);
    assert_layers(g, "attn_q", QT_Q8_0, "0-31");
    assert_layers(g, "attn_v", QT_F16, "0-31");
    assert_layers(g, "ffn_down", QT_Q5_0, "1,10-19");
    assert_layers(g, "ffn_down", QT_Q6_K, "0,2-3,6,9,21,24,27-31");
    assert_layers(g, "attn_output", QT_Q4_K, "0-31");
    assert_int_equal(gguf_tensor(g, "output.weight")->type, QT_Q4_K);
    assert_int_equal(gguf_tensor(g, "token_embd.weight")->type, QT_Q4_K);
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_tensor_gets_its_type),
        cmocka_unit_test(threads_do_not_show),
        cmocka_unit_test(failures_leave_nothing),
        cmocka_unit_test(scales_of_matrices_go_into_values),
        cmocka_unit_test(mixes_give_some_matrices_more_bits),
        cmocka_unit_test(importances_change_some_mixes),
        cmocka_unit_test(choices_come_before_the_mix),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
