/* The plan: every unit of every layer belongs to exactly one rank, whatever the weights; shares
 * follow the weights; what cannot be split is refused with a sentence. */
#include "base/util.h"
#include "model/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct hparams shape_1b(void) {
    return (struct hparams){.n_layers = 16,
                            .n_embd = 2048,
                            .n_vocab = 128256,
                            .n_heads = 32,
                            .n_kv_heads = 8,
                            .head_dim = 64,
                            .v_dim = 64,
                            .n_ff = 8192};
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
    struct hparams hp = shape_1b();
    assert_int_equal(plan_ffn_segment(8192), 256);
    assert_int_equal(plan_ffn_segment(176), 16);
    assert_int_equal(plan_ffn_segment(175), 1);
    assert_int_equal(plan_ffn_segment(14336), 256);
    assert_int_equal(plan_attn_segment(&hp, QT_Q8_0), 64);
    hp.v_dim = 16;
    assert_int_equal(plan_attn_segment(&hp, QT_Q8_0), 32);
    assert_int_equal(plan_attn_segment(&hp, QT_F16), 16);
    hp.v_dim = 80;
    assert_int_equal(plan_attn_segment(&hp, QT_Q4_0), 160);
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
            assert_int_equal(sh->head_begin, head);
            assert_int_equal(sh->ff_begin, ff);
            head = sh->head_end;
            ff = sh->ff_end;
            uint32_t group = hp->n_heads / hp->n_kv_heads;
            for (uint32_t h = sh->head_begin; h < sh->head_end; h++)
                assert_true(h / group >= sh->kv_begin && h / group < sh->kv_end);
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
                assert_int_equal(plan_make(&p, &hp, g, tp, pp, weights, n, EXPERTS_SLICE, &err), ST_OK);
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
    assert_int_equal(plan_make(&p, &hp, g, 2, 1, (const double[]){3, 1}, 2, EXPERTS_SLICE, &err), ST_OK);
    assert_int_equal(p.shares[0].head_end, 24);
    assert_int_equal(p.shares[0].ff_end, 6144);
    assert_int_equal(plan_make(&p, &hp, g, 1, 2, (const double[]){3, 1}, 2, EXPERTS_SLICE, &err), ST_OK);
    assert_in_range(p.shares[0].layer_end, 11, 12);
    gguf_close(g);
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
    assert_int_equal(plan_make(&p, &hp, g, 3, 1, (const double[]){1, 1}, 2, EXPERTS_SLICE, &err), ST_BAD_INPUT);
    assert_int_equal(plan_make(&p, &hp, g, 2, 1, (const double[]){1, 0}, 2, EXPERTS_SLICE, &err), ST_BAD_INPUT);
    assert_int_equal(plan_parse_parallel("tensor2xpipeline2", 3, &tp, &pp, &err), ST_BAD_INPUT);
    assert_int_equal(plan_parse_parallel("tensor2xpipeline2x", 4, &tp, &pp, &err), ST_BAD_INPUT);
    assert_int_equal(plan_parse_parallel("rings", 4, &tp, &pp, &err), ST_BAD_INPUT);
    assert_int_equal(plan_parse_parallel("auto", 65, &tp, &pp, &err), ST_BAD_INPUT);
    assert_int_equal(plan_parse_parallel("tensor2xpipeline3", 6, &tp, &pp, &err), ST_OK);
    assert_true(tp == 2 && pp == 3);
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_depend_on_the_model_alone),
        cmocka_unit_test(every_unit_has_one_owner),
        cmocka_unit_test(shares_follow_the_weights),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
