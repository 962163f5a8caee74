/* synth: shapes against what the model cards say, random blocks against the deviation they
 * should have, whatever the pieces they are made in. */
#include "arch/hparams.h"
#include "base/util.h"
#include "convert/synth.h"
#include "convert/synth_parts.h"
#include "format/gguf.h"
#include "weights/weights.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/lockstep-test-synth-XXXXXX";

/* Billions of parameters as published, to the digits given there. */
static const struct {
    const char *name;
    double billions;
} published[] = {
    {"llama-3.2-1b", 1.24},
    {"llama-3.2-3b", 3.21},
    {"llama-3.1-8b", 8.03},
    {"llama-3.3-70b", 70.55},
    {"qwen3-0.6b", 0.60},
    {"qwen3-8b", 8.19},
    {"qwen3-30b-a3b", 30.53},
    {"qwen3-235b-a22b", 235.09},
    {"qwen3-coder-480b", 480.15},
    {"deepseek-v2-lite", 15.71},
    {"deepseek-v3", 671.03},
    {"kimi-k2", 1026.41},
    {"deepseek-v2", 235.74},
    {"qwen1.5-moe-a2.7b", 14.32},
    {"qwen2-57b-a14b", 57.41},
    {"gpt-oss-20b", 20.91},
    {"gpt-oss-120b", 116.83},
    /* without the layers for multi-token prediction */
    {"qwen3-next-80b-a3b", 79.67},
    {"qwen3.5-35b-a3b", 34.66},
    {"qwen3.5-122b-a10b", 122.11},
    {"qwen3.5-397b-a17b", 396.35},
    {"qwen3.5-9b", 8.95},
    {"qwen3.5-27b", 26.90},
    {"gemma-4-26b-a4b", 25.23},
    {"gemma-4-31b", 30.70},
    {"kimi-linear-48b-a3b", 49.12},
    {"nemotron-3-nano-30b-a3b", 31.58},
    {"nemotron-3-super-120b-a12b", 120.67},
    {"granite-4.0-h-tiny", 6.94},
    {"granite-4.0-h-small", 32.21},
    {"step-3.5-flash", 196.96},
    {"lfm2-1.2b", 1.17},
    {"lfm2-8b-a1b", 8.34},
    {"llama-4-scout", 107.77},
    {"llama-4-maverick", 400.71},
};

/* The same, where only whole billions are published, or fewer digits. */
static const struct {
    const char *name;
    double billions, within;
} about[] = {
    {"deepseek-v4-flash", 284, 0.5},
    {"deepseek-v4-pro", 1600, 50},
    {"deepseek-v3.2", 671, 1}, /* DeepSeek V3's and an indexer */
    {"glm-5", 744, 0.5},
    {"glm-5.2", 744, 1},
    {"mistral-large-3", 675, 3}, /* with a tower for images */
    {"kimi-k3", 2800, 50},
    {"minimax-m3", 427, 1.5}, /* with a tower for images */
};

static size_t shape_index(const char *name) {
    size_t i = 0;
    while (synth_shape_name(i) && !str_eq(synth_shape_name(i), name))
        i++;
    assert_non_null(synth_shape_name(i));
    return i;
}

static void shapes_have_the_published_parameters(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(published); i++) {
        uint64_t params = synth_shape_params(shape_index(published[i].name));
        if (fabs((double)params * 1e-9 - published[i].billions) >= 0.006)
            fail_msg("%s: %.3f billion", published[i].name, (double)params * 1e-9);
    }
    for (size_t i = 0; i < ARRAY_LEN(about); i++) {
        uint64_t params = synth_shape_params(shape_index(about[i].name));
        assert_true(fabs((double)params * 1e-9 - about[i].billions) <= about[i].within);
    }
}

static struct gguf *write_header(const char *shape, enum qtype type) {
    const struct synth_options opts = {
        .shape = shape, .type = type, .header_only = true, .n_threads = 1};
    const struct gguf_options any = {.header_only = true};
    struct gguf *g = NULL;
    struct err err = {.text = ""};
    if (synth_write(path, &opts, &err) != ST_OK || gguf_open(&g, path, &any, &err) != ST_OK)
        fail_msg("%s: %s", shape, err.text);
    return g;
}

/* And each tensor has the shape that the architecture wants, and none is left over. */
static void every_header_opens(void **state) {
    (void)state;
    for (size_t i = 0; synth_shape_name(i); i++) {
        struct gguf *g = write_header(synth_shape_name(i), QT_Q4_K);
        struct gguf_array tokens;
        uint64_t params = 0;
        assert_int_equal(gguf_array(g, "tokenizer.ggml.tokens", &tokens, NULL), ST_OK);
        const struct gguf_tensor *embedding = gguf_tensor(g, "token_embd.weight");
        assert_int_equal(tokens.n, embedding->dims[1]);
        for (size_t k = 0; k < gguf_n_tensors(g); k++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, k);
            assert_null(t->data);
            if (!str_eq(t->name, "rope_freqs.weight"))
                params += t->dims[0] * t->dims[1] * t->dims[2];
        }
        assert_true(params == synth_shape_params(i));
        struct hparams hp;
        struct err err = {.text = ""};
        enum status st = hparams_read(&hp, g, &err);
        if (st == ST_OK)
            st = weights_check(g, &hp, &err);
        if (st != ST_OK)
            fail_msg("%s: %s", synth_shape_name(i), err.text);
        gguf_close(g);
    }
}

/* Some layers of a model are its first ones. */
static void few_layers_are_the_first(void **state) {
    (void)state;
    static const char *const shapes[] = {
        "qwen3-next-80b-a3b",         "gemma-4-31b",    "glm-5.2",
        "nemotron-3-super-120b-a12b", "step-3.5-flash", "deepseek-v4-pro"};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct gguf *whole = write_header(shapes[i], QT_Q4_K), *few = NULL;
        struct synth_options opts = {.shape = shapes[i],
                                     .type = QT_Q4_K,
                                     .n_layers = 5,
                                     .header_only = true,
                                     .n_threads = 1};
        const struct gguf_options any = {.header_only = true};
        struct hparams hp;
        struct err err;
        assert_int_equal(synth_write(path, &opts, &err), ST_OK);
        assert_int_equal(gguf_open(&few, path, &any, &err), ST_OK);
        assert_int_equal(hparams_read(&hp, few, &err), ST_OK);
        assert_int_equal(hp.n_layers, 5);
        assert_int_equal(weights_check(few, &hp, &err), ST_OK);
        for (size_t k = 0; k < gguf_n_tensors(few); k++) {
            const struct gguf_tensor *t = gguf_tensor_at(few, k),
                                     *same = gguf_tensor(whole, t->name);
            assert_non_null(same);
            assert_memory_equal(t->dims, same->dims, sizeof t->dims);
        }
        gguf_close(few);
        gguf_close(whole);
    }
}

static int compare_str(const void *a, const void *b) {
    const struct gguf_str *x = a, *y = b;
    int c = memcmp(x->ptr, y->ptr, MIN(x->len, y->len));
    return c ? c : (x->len > y->len) - (x->len < y->len);
}

static void no_two_tokens_are_equal(void **state) {
    (void)state;
    static const char *const shapes[] = {"llama-3.2-1b", "deepseek-v3", "kimi-k2",
                                         "gpt-oss-20b",  "qwen3.5-9b",  "gemma-4-31b",
                                         "glm-5",        "lfm2-1.2b",   "llama-4-scout"};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct gguf *g = write_header(shapes[i], QT_F16);
        struct gguf_array tokens;
        assert_int_equal(gguf_array(g, "tokenizer.ggml.tokens", &tokens, NULL), ST_OK);
        struct gguf_str *sorted = malloc(tokens.n * sizeof *sorted);
        memcpy(sorted, tokens.strs, tokens.n * sizeof *sorted);
        qsort(sorted, tokens.n, sizeof *sorted, compare_str);
        for (size_t k = 1; k < tokens.n; k++)
            assert_int_not_equal(compare_str(&sorted[k - 1], &sorted[k]), 0);
        free(sorted);
        gguf_close(g);
    }
}

/* Standard error of a deviation over n values is about 1/sqrt(2n), of the mean 1/sqrt(n)
 * deviations; scales that vary from block to block and few blocks make it larger: 2 % and 3 %
 * are generous. */
#define N_VALUES ((size_t)1 << 18)

static void blocks_have_the_wanted_deviation(void **state) {
    (void)state;
    const float sigma = 0.02f;
    for (uint32_t type = 0; type < QT_N; type++) {
        const struct qtype_info *info = qtype_info(type);
        if (!info || !synth_can_fill((enum qtype)type) || !info->dequantize)
            continue;
        size_t n_blocks = N_VALUES / info->block_values;
        uint8_t *blocks = malloc(n_blocks * info->block_bytes);
        float *values = malloc(N_VALUES * sizeof *values);
        synth_fill((enum qtype)type, 1, 0, sigma, blocks, n_blocks);
        info->dequantize(blocks, values, n_blocks);
        double sum = 0, squares = 0;
        for (size_t i = 0; i < N_VALUES; i++) {
            sum += (double)values[i];
            squares += (double)values[i] * (double)values[i];
        }
        if (fabs(sum / N_VALUES) > 0.03 * (double)sigma ||
            fabs(sqrt(squares / N_VALUES) / (double)sigma - 1) > 0.02)
            fail_msg("%s: mean %g, deviation %g", info->name, sum / N_VALUES,
                     sqrt(squares / N_VALUES));
        free(values);
        free(blocks);
    }
}

static void pieces_make_the_same_blocks(void **state) {
    (void)state;
    enum { N = 24 };
    for (uint32_t type = 0; type < QT_N; type++) {
        const struct qtype_info *info = qtype_info(type);
        if (!info || !synth_can_fill((enum qtype)type))
            continue;
        uint64_t whole[N * 32], pieces[N * 32], other[N * 32];
        size_t bytes = N * info->block_bytes;
        synth_fill((enum qtype)type, 7, 5, 1, whole, N);
        for (size_t i = 0, n = 1; i < N; i += n, n++) {
            n = MIN(n, N - i);
            synth_fill((enum qtype)type, 7, 5 + i, 1, (uint8_t *)pieces + i * info->block_bytes,
                       n);
        }
        assert_memory_equal(whole, pieces, bytes);
        synth_fill((enum qtype)type, 8, 5, 1, other, N);
        assert_memory_not_equal(whole, other, bytes);
    }
}

static void unknown_wishes_are_refused(void **state) {
    (void)state;
    struct err err;
    struct synth_options opts = {.shape = "nonesuch", .type = QT_Q8_0, .n_threads = 1};
    assert_int_equal(synth_write(path, &opts, &err), ST_NOT_FOUND);
    opts = (struct synth_options){.shape = "qwen3-0.6b", .type = QT_IQ2_XXS, .n_threads = 1};
    assert_int_equal(synth_write(path, &opts, &err), ST_UNSUPPORTED);
}

static int make_file(void **state) {
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_have_the_published_parameters),
        cmocka_unit_test(every_header_opens),
        cmocka_unit_test(few_layers_are_the_first),
        cmocka_unit_test(no_two_tokens_are_equal),
        cmocka_unit_test(blocks_have_the_wanted_deviation),
        cmocka_unit_test(pieces_make_the_same_blocks),
        cmocka_unit_test(unknown_wishes_are_refused),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
