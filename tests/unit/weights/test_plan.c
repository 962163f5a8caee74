/* The plan: every unit of every layer belongs to exactly one rank, whatever the weights; shares
 * follow the weights, those of stages by bytes; what cannot be split is refused with a
 * sentence. */
#include "base/util.h"
#include "convert/synth.h"
#include "weights/plan.h"
#include "weights/weights.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static struct hparams shape_1b(void) {
    struct hparams hp = {.n_layers = 16,
                         .n_embd = 2048,
                         .n_vocab = 128256,
                         .n_heads = 32,
                         .n_kv_heads = 8,
                         .head_dim = 64,
                         .v_dim = 64,
                         .n_ff = 8192};
    hparams_set_common(&hp, 0);
    return hp;
}

static struct gguf *open_any(void) {
    struct gguf *g;
    struct err err;
    if (gguf_open(&g, SHARED_DIR "/golden/logits/llama.gguf", NULL, &err) != ST_OK)
        return NULL;
    return g;
}

static void segments_depend_on_the_model_alone(void **state) {
    (void)state;
    assert_int_equal(plan_ffn_segment(8192), 256);
    assert_int_equal(plan_ffn_segment(176), 16);
    assert_int_equal(plan_ffn_segment(175), 1);
    assert_int_equal(plan_ffn_segment(14336), 256);
    assert_int_equal(plan_attn_segment(64, QT_Q8_0), 64);
    assert_int_equal(plan_attn_segment(16, QT_Q8_0), 32);
    assert_int_equal(plan_attn_segment(16, QT_F16), 16);
    assert_int_equal(plan_attn_segment(80, QT_Q4_0), 160);
}

/* Every layer's heads, FFN columns, and the vocabulary are covered once, in order. */
static void check_cover(const struct plan *p, const struct hparams *hp) {
    uint32_t layer = 0;
    for (int s = 0; s < p->pp; s++) {
        uint32_t head = 0, ff = 0, row = 0;
        for (int m = 0; m < p->tp; m++) {
            const struct share *sh = &p->shares[s * p->tp + m];
            assert_int_equal(sh->layer_begin, layer);
            assert_true(sh->layer_end >= sh->layer_begin + (hp->n_layers >= (uint32_t)p->pp));
            assert_int_equal(sh->heads[0].begin, head);
            assert_int_equal(sh->ff[0].begin, ff);
            head = sh->heads[0].end;
            ff = sh->ff[0].end;
            uint32_t group = hp->n_heads / hp->n_kv_heads;
            for (uint32_t h = sh->heads[0].begin; h < sh->heads[0].end; h++)
                assert_true(h / group >= sh->heads[0].kv_begin &&
                            h / group < sh->heads[0].kv_end);
            if (s == p->pp - 1) {
                assert_int_equal(sh->vocab_begin, row);
                assert_int_equal(sh->vocab_begin % TILE_ROWS, 0);
                row = sh->vocab_end;
            } else {
                assert_int_equal(sh->vocab_begin, sh->vocab_end);
            }
        }
        assert_int_equal(head, hp->n_heads);
        assert_int_equal(ff, hp->n_ff);
        if (s == p->pp - 1)
            assert_int_equal(row, hp->n_vocab);
        layer = p->shares[s * p->tp].layer_end;
    }
    assert_int_equal(layer, hp->n_layers);
}

static void every_unit_has_one_owner(void **state) {
    (void)state;
    struct gguf *g = open_any();
    if (g == NULL)
        skip();
    struct hparams hp = shape_1b();
    const double weights[] = {512, 512, 256, 256.5, 1, 1e-3, 7, 3};
    for (int tp = 1; tp <= 8; tp++)
        for (int pp = 1; tp * pp <= PLAN_MAX_RANKS; pp++) /* up to more stages than layers */
            for (int n = 0; n <= 8; n++) {
                if (n != 0 && n != tp && n != pp && (n != tp * pp || n > 8))
                    continue;
                struct plan p;
                struct err err;
                assert_int_equal(plan_make(&p, &hp, g, tp, pp, weights, n, EXPERTS_SLICE, &err),
                                 ST_OK);
                check_cover(&p, &hp);
            }
    gguf_close(g);
}

static void shares_follow_the_weights(void **state) {
    (void)state;
    struct gguf *g = open_any();
    if (g == NULL)
        skip();
    struct hparams hp = shape_1b();
    struct plan p;
    struct err err;
    assert_int_equal(
        plan_make(&p, &hp, g, 2, 1, (const double[]){3, 1}, 2, EXPERTS_SLICE, &err), ST_OK);
    assert_int_equal(p.shares[0].heads[0].end, 24);
    assert_int_equal(p.shares[0].ff[0].end, 6144);
    gguf_close(g);
}

/* What each stage of a cut has for a unit of its share: the most of it. */
static double largest_load(const uint32_t *bounds, const uint64_t *bytes, uint64_t output,
                           const double *shares, int n) {
    double most = 0;
    for (int s = 0; s < n; s++) {
        double sum = s == n - 1 ? (double)output : 0;
        for (uint32_t l = bounds[s]; l < bounds[s + 1]; l++)
            sum += (double)bytes[l];
        most = MAX(most, sum / shares[s]);
    }
    return most;
}

/* Tries every cut with a layer for each stage; stages from s on. */
static double least_load(uint32_t *bounds, int s, const uint64_t *bytes, uint32_t n_layers,
                         uint64_t output, const double *shares, int n) {
    if (s == n)
        return largest_load(bounds, bytes, output, shares, n);
    double least = INFINITY;
    uint32_t first = s == n - 1 ? n_layers : bounds[s] + 1;
    for (bounds[s + 1] = first; bounds[s + 1] + (uint32_t)(n - 1 - s) <= n_layers;
         bounds[s + 1]++)
        least = fmin(least, least_load(bounds, s + 1, bytes, n_layers, output, shares, n));
    return least;
}

static void no_cut_of_layers_is_evener(void **state) {
    (void)state;
    enum { LAYERS = 10 };
    const double shares[][4] = {{1, 1, 1, 1}, {512, 512, 256, 256.5}, {1, 7, 2, 1}};
    const uint64_t outputs[] = {0, 1000000, 2500000, 90000000};
    uint32_t found[5], tried[5] = {0};
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(shares) * ARRAY_LEN(outputs) * 4 * 4; i++) {
        const double *share = shares[i % 3];
        uint64_t bytes[LAYERS], output = outputs[i / 3 % 4];
        int n = 1 + (int)(i / 12 % 4);
        for (uint32_t l = 0; l < LAYERS; l++) /* alike, of two kinds, or anything */
            bytes[l] = i / 48 < 2    ? 1000000
                       : i / 48 == 2 ? 1000000 * (l < 3 ? 1 : 9)
                                     : 1 + (l * 7919 + i) * 2654435761u % 5000000;
        assert_int_equal(plan_cut_stages(found, bytes, LAYERS, output, share, n, &err), ST_OK);
        assert_int_equal(found[0], 0);
        assert_int_equal(found[n], LAYERS);
        for (int s = 0; s < n; s++)
            assert_true(found[s + 1] > found[s]);
        /* Bytes count to 2^-20 of the sum, shares to 2^-16: the smallest share here is an
         * eleventh. */
        double least = least_load(tried, 0, bytes, LAYERS, output, share, n);
        assert_true(largest_load(found, bytes, output, share, n) <= least * (1 + 1e-3));
    }
    /* The others are even too where one stage has more than its share in any case. */
    const uint64_t same[] = {5, 5, 5, 5, 5, 5, 5, 5, 5, 5};
    assert_int_equal(plan_cut_stages(found, same, LAYERS, 1000, shares[0], 4, &err), ST_OK);
    assert_memory_equal(found, ((const uint32_t[]){0, 3, 6, 9, 10}), sizeof found);
    /* Fewer layers than stages. */
    assert_int_equal(plan_cut_stages(found, same, 2, 0, shares[0], 4, &err), ST_OK);
    assert_int_equal(largest_load(found, same, 0, shares[0], 4), 5);
}

/* DeepSeek V3: three dense layers of a twentieth of the others' bytes, and a large output
 * matrix. */
static void stages_have_as_many_bytes_as_their_share(void **state) {
    (void)state;
    char path[] = "/tmp/lockstep-test-plan-XXXXXX";
    close(mkstemp(path));
    const struct synth_options opts = {
        .shape = "deepseek-v3", .type = QT_Q4_K, .header_only = true, .n_threads = 1};
    const struct gguf_options header = {.header_only = true};
    struct gguf *g;
    struct hparams hp;
    struct plan p;
    struct err err;
    assert_int_equal(synth_write(path, &opts, &err), ST_OK);
    assert_int_equal(gguf_open(&g, path, &header, &err), ST_OK);
    assert_int_equal(hparams_read(&hp, g, &err), ST_OK);
    const double weights[] = {512, 512, 256, 256};
    for (int n_weights = 0; n_weights <= 4; n_weights += 4) {
        double held[4], sum = 0, shares = 0, layer = 0;
        assert_int_equal(plan_make(&p, &hp, g, 1, 4, weights, n_weights, EXPERTS_SLICE, &err),
                         ST_OK);
        for (int r = 0; r < 4; r++) {
            struct weights w;
            assert_int_equal(weights_describe(&w, g, &hp, &p.shares[r], &err), ST_OK);
            sum += held[r] = (double)(w.packed_bytes + w.replicated_bytes);
            shares += n_weights == 0 ? 1 : weights[r];
            layer = fmax(layer, held[r] / w.n_layers);
            weights_free(&w);
        }
        for (int r = 0; r < 4; r++)
            assert_true(fabs(held[r] - sum * (n_weights == 0 ? 1 : weights[r]) / shares) <
                        layer);
    }
    gguf_close(g);
    unlink(path);
}

/* DeepSeek V4 Flash has 64 heads in 8 groups, whose outputs are low-rank: a group is on one rank,
 * and ranks beyond the groups have none. */
static void groups_of_heads_stay_together(void **state) {
    (void)state;
    char path[] = "/tmp/lockstep-test-plan-XXXXXX";
    const struct synth_options synth = {
        .shape = "deepseek-v4-flash", .type = QT_Q4_K, .n_layers = 5, .header_only = true};
    const struct gguf_options header = {.header_only = true};
    const double weights[PLAN_MAX_RANKS] = {5, 1, 3, 1, 1, 2, 1, 1, 1, 4, 1};
    struct hparams hp;
    struct gguf *g;
    struct plan p;
    struct err err;
    close(mkstemp(path));
    assert_int_equal(synth_write(path, &synth, &err), ST_OK);
    assert_int_equal(gguf_open(&g, path, &header, &err), ST_OK);
    assert_int_equal(hparams_read(&hp, g, &err), ST_OK);
    for (int tp = 1; tp <= 11; tp++) {
        uint32_t head = 0;
        assert_int_equal(plan_make(&p, &hp, g, tp, 1, weights, tp, EXPERTS_SLICE, &err), ST_OK);
        for (int m = 0; m < tp; m++)
            for (uint32_t i = 0; i < hp.n_attn; i++) {
                const struct head_share *sh = &p.shares[m].heads[i];
                assert_int_equal(sh->begin, head);
                assert_int_equal(sh->end % 8, 0);
                head = i + 1 == hp.n_attn ? sh->end : head;
            }
        assert_int_equal(head, 64);
    }
    gguf_close(g);
    unlink(path);
}

static void nonsense_is_refused(void **state) {
    (void)state;
    struct gguf *g = open_any();
    if (g == NULL)
        skip();
    struct hparams hp = shape_1b();
    struct plan p;
    struct err err;
    int tp, pp;
    assert_int_equal(
        plan_make(&p, &hp, g, 3, 1, (const double[]){1, 1}, 2, EXPERTS_SLICE, &err),
        ST_BAD_INPUT);
    assert_int_equal(
        plan_make(&p, &hp, g, 2, 1, (const double[]){1, 0}, 2, EXPERTS_SLICE, &err),
        ST_BAD_INPUT);
    assert_int_equal(plan_parse_parallel("tensor2xpipeline2", 3, &tp, &pp, &err), ST_BAD_INPUT);
    assert_int_equal(plan_parse_parallel("tensor2xpipeline2x", 4, &tp, &pp, &err),
                     ST_BAD_INPUT);
    assert_int_equal(plan_parse_parallel("rings", 4, &tp, &pp, &err), ST_BAD_INPUT);
    assert_int_equal(plan_parse_parallel("auto", 65, &tp, &pp, &err), ST_BAD_INPUT);
    assert_int_equal(plan_parse_parallel("tensor2xpipeline3", 6, &tp, &pp, &err), ST_OK);
    assert_true(tp == 2 && pp == 3);
    gguf_close(g);
}

/* All exact sums of a model have at most FIXED_TERMS_MAX terms, which no width can exceed
 * unnoticed: an odd one has segments of one column. */
static void sums_of_too_many_segments_are_refused(void **state) {
    (void)state;
    struct gguf *g = open_any();
    if (g == NULL)
        skip();
    const struct moe_params experts = {.n_experts = 512, .n_used = 256, .n_ff = 64 * 127};
    struct hparams wide = shape_1b(), many = shape_1b(), used = shape_1b();
    struct hparams *list[] = {&wide, &many, &used};
    struct plan p;
    struct err err;
    wide.n_ff = FIXED_TERMS_MAX; /* and a bias */
    many.n_heads = many.n_kv_heads = 32768;
    hparams_set_common(&wide, 0);
    hparams_set_common(&many, 0);
    used.moe = experts;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        assert_int_equal(plan_make(&p, list[i], g, 1, 1, NULL, 0, EXPERTS_SLICE, &err),
                         ST_BAD_INPUT);
        assert_non_null(strstr(err.text, "segments, of which at most 32767"));
    }
    wide.n_ff = FIXED_TERMS_MAX - 2; /* odd */
    hparams_set_common(&wide, 0);
    used.moe.n_ff = 64 * 126;
    assert_int_equal(plan_make(&p, &wide, g, 1, 1, NULL, 0, EXPERTS_SLICE, &err), ST_OK);
    assert_int_equal(plan_make(&p, &used, g, 1, 1, NULL, 0, EXPERTS_SLICE, &err), ST_OK);
    gguf_close(g);
}

/* The last layers read the cache of an earlier one, which must be on the same rank. */
static void layers_that_share_a_cache_are_in_one_stage(void **state) {
    (void)state;
    struct gguf *g = open_any();
    if (g == NULL)
        skip();
    struct hparams hp = shape_1b();
    hp.n_shared_kv = 6; /* of 16: 10 to 15 */
    for (uint32_t l = 0; l < hp.n_layers; l++)
        hp.layer_flags[l] = l % 4 != 2 ? LAYER_WINDOW : 0;
    assert_int_equal(hparams_kv_layer(&hp, 9), 9);
    assert_int_equal(hparams_kv_layer(&hp, 11), 9); /* the last of its own with a window */
    assert_int_equal(hparams_kv_layer(&hp, 14), 6); /* and without one */
    assert_int_equal(hparams_first_joined(&hp), 6);
    for (int pp = 1; pp <= 16; pp++) {
        struct plan p;
        struct err err;
        assert_int_equal(plan_make(&p, &hp, g, 1, pp, NULL, 0, EXPERTS_SLICE, &err), ST_OK);
        for (int s = 0; s < pp; s++) {
            const struct share *sh = &p.shares[s];
            assert_true(sh->layer_end <= 6 || sh->layer_end == 16);
            assert_int_equal(sh->layer_begin, s == 0 ? 0 : p.shares[s - 1].layer_end);
        }
        assert_int_equal(p.shares[pp - 1].layer_end, 16);
    }
    gguf_close(g);
}

/* Heads of each kind of attention, and FFN columns of each width, are divided by themselves. */
static void kinds_of_layers_are_divided_apart(void **state) {
    (void)state;
    struct gguf *g = open_any();
    if (g == NULL)
        skip();
    struct hparams hp = shape_1b();
    struct plan p;
    struct err err;
    struct attn_kind full = hp.attn[0];
    full.n_heads = 12, full.n_kv_heads = 3, full.rope.n_rot = 64, full.rope.base = 10000;
    assert_int_equal(hparams_set_attn(&hp, g, 3, &full, &err), ST_OK);
    assert_int_equal(hp.n_attn, 2);
    assert_int_equal(hp.layer_attn[3], 1);
    hp.ff_widths[hp.n_ff_widths++] = 768;
    assert_int_equal(plan_make(&p, &hp, g, 3, 1, NULL, 0, EXPERTS_SLICE, &err), ST_OK);
    for (uint32_t m = 0; m < 3; m++) {
        assert_int_equal(p.shares[m].heads[1].begin, 4 * m);
        assert_int_equal(p.shares[m].heads[1].end, 4 * (m + 1));
        assert_int_equal(p.shares[m].heads[1].kv_begin, m);
        assert_int_equal(p.shares[m].heads[1].kv_end, m + 1);
        assert_int_equal(p.shares[m].ff[1].begin, 256 * m);
        assert_int_equal(p.shares[m].ff[1].end, 256 * (m + 1));
    }
    assert_int_equal(p.shares[2].heads[0].end, 32);
    full.n_kv_heads = 5;
    assert_int_equal(hparams_set_attn(&hp, g, 4, &full, &err), ST_BAD_INPUT);
    for (full.n_kv_heads = 1; full.n_kv_heads <= 2; full.n_kv_heads++)
        assert_int_equal(hparams_set_attn(&hp, g, 4, &full, &err), ST_OK);
    full.n_kv_heads = 4;
    assert_int_equal(hparams_set_attn(&hp, g, 4, &full, &err), ST_UNSUPPORTED);
    gguf_close(g);
}

/* Ranks 1 and 3 of two teams of two are on processors: they have the experts and nothing else. */
static void experts_are_apart_where_a_team_has_both(void **state) {
    (void)state;
    struct gguf *g = open_any();
    if (g == NULL)
        skip();
    struct hparams hp = shape_1b();
    hp.moe.n_experts = 8, hp.moe.n_used = 2, hp.moe.n_ff = 512, hp.moe.n_ff_shared = 256;
    const double given[] = {3, 1, 2, 2}, nothing[] = {0, 0, 1, 1}, negative[] = {1, 1, 2, -1};
    double w[PLAN_MAX_WEIGHTS];
    struct plan p;
    struct err err;
    assert_int_equal(plan_experts_apart(w, given, 4, 2, 2, 1 << 1 | 1 << 3), 8);
    assert_int_equal(plan_make(&p, &hp, g, 2, 2, w, 8, EXPERTS_CPU, &err), ST_OK);
    for (int r = 0; r < 4; r++) {
        const struct share *sh = &p.shares[r];
        const bool has_experts = r % 2 == 1;
        assert_int_equal(sh->heads[0].end - sh->heads[0].begin, has_experts ? 0 : 32);
        assert_int_equal(sh->ff[0].end - sh->ff[0].begin, has_experts ? 0 : 8192);
        assert_int_equal(sh->shared_end - sh->shared_begin, has_experts ? 0 : 256);
        assert_int_equal(sh->expert_ff_end - sh->expert_ff_begin, has_experts ? 512 : 0);
        assert_int_equal(sh->expert_end, 8);
    }
    /* A stage of processors alone, then a stage of both; and where none has both. */
    assert_int_equal(plan_experts_apart(w, given, 4, 2, 2, 1 << 0 | 1 << 1 | 1 << 3), 8);
    assert_true(w[0] == 3 && w[1] == 1 && w[2] == 2 && w[3] == 0);
    assert_true(w[4] == 3 && w[5] == 1 && w[6] == 0 && w[7] == 2);
    assert_int_equal(plan_experts_apart(w, given, 4, 1, 4, 1 << 1), 4);
    assert_int_equal(plan_experts_apart(w, given, 4, 2, 2, 0), 4);
    assert_int_equal(plan_experts_apart(w, given, 0, 2, 1, 1 << 0), 4);
    assert_true(w[0] == 0 && w[1] == 1 && w[2] == 1 && w[3] == 0);
    assert_int_equal(plan_make(&p, &hp, g, 2, 1, nothing, 4, EXPERTS_CPU, &err), ST_BAD_INPUT);
    assert_int_equal(plan_make(&p, &hp, g, 2, 1, negative, 4, EXPERTS_CPU, &err), ST_BAD_INPUT);
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_are_apart_where_a_team_has_both),
        cmocka_unit_test(segments_depend_on_the_model_alone),
        cmocka_unit_test(every_unit_has_one_owner),
        cmocka_unit_test(shares_follow_the_weights),
        cmocka_unit_test(no_cut_of_layers_is_evener),
        cmocka_unit_test(stages_have_as_many_bytes_as_their_share),
        cmocka_unit_test(groups_of_heads_stay_together),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(layers_that_share_a_cache_are_in_one_stage),
        cmocka_unit_test(kinds_of_layers_are_divided_apart),
        cmocka_unit_test(sums_of_too_many_segments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
