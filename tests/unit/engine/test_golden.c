/* The whole model against the outside world: golden/logits and golden/quant-models, whose expected
 * values are a float64 forward pass written elsewhere (golden/README.md), through the public API
 * on one rank. The cache is f32, so that only our own rounding is left; tests/e2e/test_bits.sh
 * shows that every other way to run gives the same bits as this one. */
#include "base/median.h"
#include "base/util.h"
#include "format/gguf.h"
#include "format/gguf_write.h"
#include "lockstep/lockstep.h"
#include "quant/quant.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define LOGITS SHARED_DIR "/golden/logits/"
#define QUANTS SHARED_DIR "/golden/quant-models/"

static char path_buf[512];

static const char *path(const char *folder, const char *name, const char *suffix) {
    snprintf(path_buf, sizeof path_buf, "%s%s%s", folder, name, suffix);
    return path_buf;
}

static float *read_f32(const char *name, size_t n) {
    float *v = malloc(n * sizeof *v);
    FILE *f = fopen(name, "rb");
    assert_non_null(f);
    assert_int_equal(fread(v, sizeof *v, n, f), n);
    fclose(f);
    return v;
}

static size_t append_ids(int32_t *ids, size_t n, const json_t *array, size_t count) {
    assert_true(json_array_size(array) >= count);
    for (size_t i = 0; i < count; i++)
        ids[n + i] = (int32_t)json_integer_value(json_array_get(array, i));
    return n + count;
}

/* ---- one run: all rows of the given ids ---------------------------------------------------- */

/* Of a model's prompt, and with the greedy tokens that follow, but the last. */
enum { N_PROMPT = 48, N_MORE = 31, N_POS = N_PROMPT + N_MORE };

struct run {
    size_t n_vocab;
    float *rows; /* [positions, n_vocab] */
};

static bool keep(void *user, size_t first_pos, size_t n, const float *logits) {
    struct run *r = user;
    memcpy(r->rows + first_pos * r->n_vocab, logits, n * r->n_vocab * sizeof *logits);
    return true;
}

/* Rows of ids, the first n_prompt in chunks of n_chunk, the rest one by one. */
static float *run_prompt(const char *model, const int32_t *ids, size_t n_prompt, int n_chunk) {
    struct lockstep_options opt;
    struct lockstep_error err;
    struct lockstep *ls;
    lockstep_options_init(&opt);
    opt.model_path = model;
    opt.n_threads = 2;
    opt.n_chunk = n_chunk;
    opt.kv = "f32";
    enum lockstep_status st = lockstep_open(&ls, &opt, &err);
    if (st != LOCKSTEP_OK)
        fail_msg("%s", err.text);
    struct run r = {.n_vocab = (size_t)lockstep_model_info(ls)->n_vocab};
    r.rows = malloc((n_prompt + N_MORE) * r.n_vocab * sizeof *r.rows);
    st = lockstep_eval(ls, ids, n_prompt, keep, &r, &err);
    for (size_t i = n_prompt; i < n_prompt + N_MORE && st == LOCKSTEP_OK; i++)
        st = lockstep_eval(ls, ids + i, 1, keep, &r, &err);
    if (st != LOCKSTEP_OK)
        fail_msg("%s", err.text);
    lockstep_close(ls);
    return r.rows;
}

static float *run_model(const char *model, const int32_t *ids, int n_chunk) {
    return run_prompt(model, ids, N_PROMPT, n_chunk);
}

static size_t argmax(const float *row, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (row[i] > row[best])
            best = i;
    return best;
}

/* ---- golden/logits -------------------------------------------------------------------------- */

/* The README's tolerance for an engine that computes in f32. */
static const struct {
    const char *name;
    double tolerance;
} logits_models[] = {
    {"llama", 1e-3},
    {"llama-tied", 1e-3},
    {"llama-rope3", 1e-3},
    {"qwen2", 1e-3},
    {"qwen3", 1e-3},
    {"llama-moe", 1e-3},
    {"qwen3moe", 1e-3},
    {"deepseek2-lite", 1e-3},
    {"deepseek2-lite27", 5e-3},
    {"deepseek2-v3", 1e-3},
    {"deepseek2-v3-mla", 1e-3},
    {"gpt-oss-f32", 1e-3},
    {"glm4moe", 1e-3},
    {"gemma3", 1e-3},
    {"gemma3n", 1e-3},
    {"gemma4", 1e-3},
    {"gemma4-moe", 1e-3},
    {"gemma4-ple", 1e-3},
    {"step35", 1e-3},
    {"phi3", 1e-3},
    {"minimax-m2", 1e-3},
    {"qwen3next", 1e-3},
    {"qwen35", 1e-3},
    {"qwen35moe", 1e-3},
    {"lfm2", 1e-3},
    {"lfm2moe", 1e-3},
    {"nemotron_h", 1e-3},
    {"nemotron_h_moe", 1e-3},
    {"granitehybrid", 1e-3},
    {"mistral3", 1e-3},
    {"seed_oss", 1e-3},
    {"olmo2", 1e-3},
    {"ernie4_5-moe", 1e-3},
    {"hunyuan-moe", 1e-3},
    {"bailingmoe2", 1e-3},
    {"llama4", 1e-3},
    {"deepseek32", 1e-3},
    {"deepseek4", 2e-4},
    {"glm-dsa", 1e-3},
    {"kimi-linear", 1e-3},
    {"kimi-k3", 1e-3},
    {"minimax-m3", 1e-3},
};

static void compare_rows(const char *name, const float *got, const float *expected, size_t n,
                         double tolerance) {
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)expected[i]);
        worst = d > worst || isnan(d) ? d : worst;
    }
    print_message("%-14s largest difference %.2e\n", name, worst);
    assert_true(worst <= tolerance);
}

static void check_logits_model(const char *name, double tolerance) {
    if (access(path(LOGITS, name, ".gguf"), R_OK) != 0) { /* a clone has not all of them */
        print_message("%s is not here\n", name);
        return;
    }
    json_t *j = json_load_file(path(LOGITS, name, ".json"), 0, NULL);
    assert_non_null(j);
    const json_t *greedy = json_object_get(j, "greedy_ids");
    size_t n_vocab = (size_t)json_integer_value(json_object_get(j, "n_vocab"));
    const json_t *prompt = json_object_get(j, "prompt_ids");
    const size_t n_prompt = json_array_size(prompt), n_pos = n_prompt + N_MORE;
    int32_t *ids = malloc(n_pos * sizeof *ids);
    size_t n = append_ids(ids, 0, prompt, n_prompt);
    append_ids(ids, n, greedy, N_MORE);
    float *expected = read_f32(path(LOGITS, name, ".true.f32"), n_pos * n_vocab);
    float *at_once = run_prompt(path(LOGITS, name, ".gguf"), ids, n_prompt, 0);
    float *one_by_one = run_prompt(path(LOGITS, name, ".gguf"), ids, n_prompt, 1);
    compare_rows(name, at_once, expected, n_pos * n_vocab, tolerance);
    assert_memory_equal(at_once, one_by_one, n_pos * n_vocab * sizeof *at_once);
    for (size_t k = 0; k < json_array_size(greedy); k++)
        assert_int_equal(argmax(at_once + (n_prompt - 1 + k) * n_vocab, n_vocab),
                         json_integer_value(json_array_get(greedy, k)));
    free(ids);
    free(expected);
    free(at_once);
    free(one_by_one);
    json_decref(j);
}

static void logits_are_true(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(logits_models); i++)
        check_logits_model(logits_models[i].name, logits_models[i].tolerance);
}

/* ---- files made from those: a truth that is known already -------------------------------- */

/* A golden llama under another name, its matrices divided by the factors that the other
 * architecture multiplies with: the same function, so the same true logits. */
#define EMBED 12.0f
#define RESIDUAL 0.22f
#define ATTENTION 0.0078125f
#define LOGITS_BY 8.0f

static const char made_path[] = "test_golden.made.gguf";

enum { N_LAYERS = 2, N_KV_HEADS = 2 }; /* of the golden llamas */

/* What the values of a tensor are multiplied by on their way into the file. */
static float granite_factor(const char *name, float head_dim) {
    if (strcmp(name, "token_embd.weight") == 0)
        return 1 / EMBED;
    if (strstr(name, "attn_output.weight") != NULL || strstr(name, "ffn_down") != NULL)
        return 1 / RESIDUAL;
    if (strstr(name, "attn_q.weight") != NULL)
        return 1 / (sqrtf(head_dim) * ATTENTION);
    return strcmp(name, "output.weight") == 0 ? LOGITS_BY : 1;
}

/* per_layer: head_count_kv is an array, as in files of Granite 4 (whose config.json names the
 * kind of each layer, also where all are attention). */
static void copy_keys(struct gguf_writer *w, const struct gguf *g, const char *from,
                      const char *to, const int32_t *per_layer) {
    static const char *const numbers[] = {
        "block_count",          "embedding_length",       "feed_forward_length",
        "context_length",       "attention.head_count",   "attention.head_count_kv",
        "attention.key_length", "attention.value_length", "rope.dimension_count",
        "expert_count",         "expert_used_count",      "expert_feed_forward_length"};
    static const char *const reals[] = {"attention.layer_norm_rms_epsilon", "rope.freq_base"};
    char old[96], new[96];
    gguf_write_keys_of(w, g);
    gguf_write_str(w, "general.architecture", to);
    for (size_t i = 0; i < ARRAY_LEN(numbers) + ARRAY_LEN(reals); i++) {
        bool real = i >= ARRAY_LEN(numbers);
        const char *name = real ? reals[i - ARRAY_LEN(numbers)] : numbers[i];
        uint32_t n;
        float f;
        snprintf(old, sizeof old, "%s.%s", from, name);
        snprintf(new, sizeof new, "%s.%s", to, name);
        if (real && gguf_f32(g, old, &f, NULL) == ST_OK)
            gguf_write_f32(w, new, f);
        if (per_layer != NULL && strcmp(name, "attention.head_count_kv") == 0)
            gguf_write_i32_array(w, new, per_layer, N_LAYERS);
        else if (!real && gguf_u32(g, old, &n, NULL) == ST_OK)
            gguf_write_u32(w, new, n);
    }
}

static void make_granite(const char *from, const char *arch, const int32_t *per_layer) {
    struct gguf *g;
    struct gguf_writer *w;
    struct err err;
    char key[96];
    uint32_t head_dim = 0;
    assert_int_equal(gguf_open(&g, path(LOGITS, from, ".gguf"), NULL, &err), ST_OK);
    assert_int_equal(gguf_u32(g, "llama.attention.key_length", &head_dim, &err), ST_OK);
    assert_int_equal(gguf_writer_open(&w, made_path, &err), ST_OK);
    copy_keys(w, g, "llama", arch, per_layer);
    const struct {
        const char *name;
        float value;
    } factors[] = {{"embedding_scale", EMBED},
                   {"residual_scale", RESIDUAL},
                   {"attention.scale", ATTENTION},
                   /* Where the embedding is the output matrix too, it is divided already. */
                   {"logit_scale", gguf_tensor(g, "output.weight") ? LOGITS_BY : 1 / EMBED}};
    for (size_t i = 0; i < ARRAY_LEN(factors); i++) {
        snprintf(key, sizeof key, "%s.%s", arch, factors[i].name);
        gguf_write_f32(w, key, factors[i].value);
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        gguf_write_tensor_info(w, t->name, t->type, t->n_dims, t->dims);
    }
    assert_int_equal(gguf_writer_begin_data(w, false, &err), ST_OK);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        assert_int_equal(t->type, QT_F32);
        float by = granite_factor(t->name, (float)head_dim), *v = malloc(t->size_bytes);
        memcpy(v, t->data, t->size_bytes);
        for (size_t k = 0; k < t->size_bytes / sizeof *v; k++)
            v[k] *= by;
        assert_int_equal(gguf_write_data(w, v, t->size_bytes, &err), ST_OK);
        free(v);
    }
    assert_int_equal(gguf_writer_finish(w, &err), ST_OK);
    gguf_writer_close(w);
    gguf_close(g);
}

static void granite_is_a_llama_with_factors(void **state) {
    (void)state;
    static const int32_t per_layer[N_LAYERS] = {N_KV_HEADS, N_KV_HEADS};
    static const char *const made[][2] = {
        {"llama", "granite"}, {"llama-moe", "granitemoe"}, {"llama", "granite"}};
    for (size_t i = 0; i < ARRAY_LEN(made); i++) {
        make_granite(made[i][0], made[i][1], i == 2 ? per_layer : NULL);
        json_t *j = json_load_file(path(LOGITS, made[i][0], ".json"), 0, NULL);
        int32_t ids[N_POS];
        size_t n = append_ids(ids, 0, json_object_get(j, "prompt_ids"), N_PROMPT);
        append_ids(ids, n, json_object_get(j, "greedy_ids"), N_POS - N_PROMPT);
        size_t n_vocab = (size_t)json_integer_value(json_object_get(j, "n_vocab"));
        float *expected = read_f32(path(LOGITS, made[i][0], ".true.f32"), N_POS * n_vocab);
        float *got = run_model(made_path, ids, 0);
        compare_rows(made[i][1], got, expected, N_POS * n_vocab, 1e-3);
        free(expected);
        free(got);
        json_decref(j);
        remove(made_path);
    }
}

/* A number of heads for some layers only is another kind of model. */
static void layers_that_differ_are_refused(void **state) {
    (void)state;
    static const struct {
        int32_t per_layer[N_LAYERS];
        enum lockstep_status status;
    } bad[] = {{{N_KV_HEADS, 0}, LOCKSTEP_UNSUPPORTED},
               {{N_KV_HEADS, 1}, LOCKSTEP_UNSUPPORTED},
               {{0, 0}, LOCKSTEP_BAD_INPUT},
               {{-2, -2}, LOCKSTEP_BAD_INPUT}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct lockstep_options opt;
        struct lockstep_error err;
        struct lockstep *ls;
        make_granite("llama", "granite", bad[i].per_layer);
        lockstep_options_init(&opt);
        opt.model_path = made_path;
        assert_int_equal(lockstep_open(&ls, &opt, &err), bad[i].status);
        print_message("%s\n", err.text);
        remove(made_path);
    }
}

/* ---- golden/quant-models -------------------------------------------------------------------- */

static double log_sum_exp(const float *x, size_t n) {
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        if (max < (double)x[i])
            max = (double)x[i];
    for (size_t i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum);
}

/* KL divergence from softmax(p) to softmax(q), in nats, in double. */
static double kl(const float *p, const float *q, size_t n) {
    double norm_p = log_sum_exp(p, n), norm_q = log_sum_exp(q, n), sum = 0;
    for (size_t i = 0; i < n; i++) {
        double log_p = (double)p[i] - norm_p, log_q = (double)q[i] - norm_q;
        sum += exp(log_p) * (log_p - log_q);
    }
    return sum;
}

static double reference(const json_t *file, const char *key) {
    return json_number_value(
        json_object_get(json_object_get(file, "reference_quantized_vs_true"), key));
}

/* Median KL divergence, and how often both would say the same, over all positions. */
static double compare_distributions(const float *expected, const float *got, size_t n_vocab,
                                    double *top1) {
    double divergence[N_POS], agree = 0;
    for (size_t i = 0; i < N_POS; i++) {
        const float *p = expected + i * n_vocab, *q = got + i * n_vocab;
        divergence[i] = kl(p, q, n_vocab);
        if (argmax(p, n_vocab) == argmax(q, n_vocab))
            agree += 1;
    }
    sort_values(divergence, N_POS);
    *top1 = agree / N_POS;
    return divergence[N_POS / 2];
}

/* At most 3 times llama.cpp's median KL, top-1 agreement within 0.06 of its (README). */
static void check_quant_model(const json_t *file, const int32_t *ids, size_t n_vocab) {
    const char *name = json_string_value(json_object_get(file, "gguf"));
    if (access(path(QUANTS, name, ""), R_OK) != 0) { /* a clone has not all of them */
        print_message("%-24s is not there\n", name);
        return;
    }
    float *expected = read_f32(
        path(QUANTS, json_string_value(json_object_get(file, "true")), ""), N_POS * n_vocab);
    float *got = run_model(path(QUANTS, name, ""), ids, 0);
    double top1, median = compare_distributions(expected, got, n_vocab, &top1);
    print_message("%-24s median KL %.2e (llama.cpp %.2e), top-1 %.3f (%.3f)\n", name, median,
                  reference(file, "kl_median"), top1, reference(file, "top1_agree"));
    assert_true(median <= 3 * reference(file, "kl_median"));
    assert_true(top1 >= reference(file, "top1_agree") - 0.06);
    free(expected);
    free(got);
}

static void check_quant_models(const char *list) {
    json_t *j = json_load_file(list, 0, NULL);
    assert_non_null(j);
    int32_t ids[N_POS];
    size_t n = append_ids(ids, 0, json_object_get(j, "prompt_ids"), N_PROMPT);
    append_ids(ids, n, json_object_get(j, "forced_ids_after_prompt"), N_POS - N_PROMPT);
    size_t n_vocab = (size_t)json_integer_value(json_object_get(j, "n_vocab")), i;
    json_t *file;
    json_array_foreach(json_object_get(j, "files"), i, file)
        check_quant_model(file, ids, n_vocab);
    json_decref(j);
}

static void quantized_models_stay_near(void **state) {
    (void)state;
    check_quant_models(QUANTS "q-llama.json");
    check_quant_models(QUANTS "q-qwen3moe.json");
}

/* Its experts are multiplied with 8-bit activations, so it is judged as the quantized models are;
 * llama.cpp's median for blocks of 32 is 1e-3 (README). */
static void gpt_oss_with_mxfp4_experts_stays_near(void **state) {
    (void)state;
    json_t *j = json_load_file(LOGITS "gpt-oss-mxfp4.json", 0, NULL);
    assert_non_null(j);
    int32_t ids[N_POS];
    size_t n = append_ids(ids, 0, json_object_get(j, "prompt_ids"), N_PROMPT);
    append_ids(ids, n, json_object_get(j, "greedy_ids"), N_POS - N_PROMPT);
    size_t n_vocab = (size_t)json_integer_value(json_object_get(j, "n_vocab"));
    float *expected = read_f32(LOGITS "gpt-oss-mxfp4.true.f32", N_POS * n_vocab);
    float *got = run_model(LOGITS "gpt-oss-mxfp4.gguf", ids, 0);
    double top1, median = compare_distributions(expected, got, n_vocab, &top1);
    print_message("gpt-oss-mxfp4            median KL %.2e, top-1 %.3f\n", median, top1);
    assert_true(median <= 3e-3);
    free(expected);
    free(got);
    json_decref(j);
}

/* ---- NVFP4, of which there is no golden model -------------------------------------------- */

/* A matrix's own scale, as its files have them. */
#define NVFP4_SCALE 0.0078f

static size_t nearest_fp4(float x) {
    static const float values[16] = {0, 0.5f,  1,  1.5f,  2,  3,  4,  6,
                                     0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    size_t best = 0;
    for (size_t i = 1; i < ARRAY_LEN(values); i++)
        if (fabsf(values[i] - x) < fabsf(values[best] - x))
            best = i;
    return best;
}

static float e4m3(unsigned code) {
    unsigned e = code >> 3, m = code & 7;
    return e == 0 ? ldexpf((float)m, -9) : ldexpf(1 + (float)m / 8, (int)e - 7);
}

/* 64 values, already divided by the matrix's scale: of each 16 the smallest e4m3 that reaches
 * amax / 6. */
static void to_nvfp4(const float *v, struct block_nvfp4 *b) {
    for (size_t sub = 0; sub < 4; sub++, v += 16) {
        float amax = 0;
        unsigned code = 1;
        for (int i = 0; i < 16; i++)
            amax = fmaxf(amax, fabsf(v[i]));
        while (code < 126 && e4m3(code) * 6 < amax)
            code++;
        b->d[sub] = (uint8_t)code;
        for (size_t i = 0; i < 8; i++)
            b->qs[8 * sub + i] = (uint8_t)(nearest_fp4(v[i] / e4m3(code)) |
                                           nearest_fp4(v[i + 8] / e4m3(code)) << 4);
    }
}

static bool is_matrix(const struct gguf_tensor *t) {
    return t->n_dims == 2 && strncmp(t->name, "blk.", 4) == 0;
}

/* The tensor's values, its matrices rounded to what NVFP4 can hold; blocks (may be NULL): as
 * that. */
static float *rounded(const struct gguf_tensor *t, struct block_nvfp4 *blocks) {
    const struct qtype_info *info = qtype_info(t->type);
    size_t n = t->dims[0] * t->dims[1];
    float *v = malloc(n * sizeof *v);
    info->dequantize(t->data, v, n / info->block_values);
    for (size_t i = 0; is_matrix(t) && i < n; i += QK_NVFP4) {
        struct block_nvfp4 b;
        for (size_t k = i; k < i + QK_NVFP4; k++)
            v[k] /= NVFP4_SCALE;
        to_nvfp4(v + i, &b);
        qtype_info(QT_NVFP4)->dequantize(&b, v + i, 1);
        for (size_t k = i; k < i + QK_NVFP4; k++)
            v[k] *= NVFP4_SCALE;
        if (blocks != NULL)
            blocks[i / QK_NVFP4] = b;
    }
    return v;
}

/* q-llama with its matrices in NVFP4 and a scale beside each, or the same numbers in F32. */
static void make_nvfp4(bool f32) {
    struct gguf *g;
    struct gguf_writer *w;
    struct err err;
    const uint64_t one = 1;
    const float scale = NVFP4_SCALE;
    assert_int_equal(gguf_open(&g, path(QUANTS, "q-llama-f16", ".gguf"), NULL, &err), ST_OK);
    assert_int_equal(gguf_writer_open(&w, made_path, &err), ST_OK);
    gguf_write_keys_of(w, g);
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1)
            assert_int_equal(gguf_writer_begin_data(w, false, &err), ST_OK);
        for (size_t i = 0; i < gguf_n_tensors(g); i++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, i);
            bool nvfp4 = is_matrix(t) && !f32;
            size_t n = t->dims[0] * t->dims[1];
            char name[80];
            snprintf(name, sizeof name, "%.*sscale", (int)(strlen(t->name) - strlen("weight")),
                     t->name);
            if (pass == 0) {
                gguf_write_tensor_info(w, t->name, nvfp4 ? QT_NVFP4 : QT_F32, t->n_dims,
                                       t->dims);
                if (nvfp4)
                    gguf_write_tensor_info(w, name, QT_F32, 1, &one);
                continue;
            }
            struct block_nvfp4 *b = nvfp4 ? malloc(n / QK_NVFP4 * sizeof *b) : NULL;
            float *v = rounded(t, b);
            assert_int_equal(gguf_write_data(w, nvfp4 ? (void *)b : (void *)v,
                                             nvfp4 ? n / QK_NVFP4 * sizeof *b : n * sizeof *v,
                                             &err),
                             ST_OK);
            if (nvfp4)
                assert_int_equal(gguf_write_data(w, &scale, sizeof scale, &err), ST_OK);
            free(b);
            free(v);
        }
    }
    assert_int_equal(gguf_writer_finish(w, &err), ST_OK);
    gguf_writer_close(w);
    gguf_close(g);
}

/* The same numbers, but for activations of 8 bits: as near as llama.cpp comes with MXFP4, whose
 * blocks of 32 see activations alike, with the README's factor of 3. */
static void nvfp4_is_near_its_numbers_in_f32(void **state) {
    (void)state;
    json_t *j = json_load_file(QUANTS "q-llama.json", 0, NULL), *file;
    int32_t ids[N_POS];
    size_t n = append_ids(ids, 0, json_object_get(j, "prompt_ids"), N_PROMPT), i;
    append_ids(ids, n, json_object_get(j, "forced_ids_after_prompt"), N_POS - N_PROMPT);
    size_t n_vocab = (size_t)json_integer_value(json_object_get(j, "n_vocab"));
    double bound = 0, top1;
    json_array_foreach(
        json_object_get(j, "files"), i,
        file) if (strstr(json_string_value(json_object_get(file, "gguf")), "mxfp4") != NULL)
        bound = 3 * reference(file, "kl_median");
    make_nvfp4(true);
    float *expected = run_model(made_path, ids, 0);
    make_nvfp4(false);
    float *got = run_model(made_path, ids, 0);
    double median = compare_distributions(expected, got, n_vocab, &top1);
    print_message("%-24s median KL %.2e (bound %.2e), top-1 %.3f\n", "nvfp4", median, bound,
                  top1);
    assert_true(bound > 0 && median <= bound);
    assert_true(top1 >= 0.9);
    free(expected);
    free(got);
    json_decref(j);
    remove(made_path);
}

int main(void) {
    FILE *there = fopen(LOGITS "llama.gguf", "rb");
    if (there == NULL) {
        printf("skip: " LOGITS " is not here\n");
        return 77;
    }
    fclose(there);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_true),
        cmocka_unit_test(granite_is_a_llama_with_factors),
        cmocka_unit_test(layers_that_differ_are_refused),
        cmocka_unit_test(nvfp4_is_near_its_numbers_in_f32),
        cmocka_unit_test(quantized_models_stay_near),
        cmocka_unit_test(gpt_oss_with_mxfp4_experts_stays_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
