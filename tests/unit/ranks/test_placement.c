/* Placement: which layout wins is arithmetic, and here it is done by hand from what the models'
 * cards and the machines' makers say; shares follow rates and memory; what cannot be is told
 * with its reason. Models are headers of the true shapes (convert/synth.h). The published
 * figures are in docs/links.md, with their sources. */
#include "base/mem.h"
#include "base/util.h"
#include "convert/synth.h"
#include "model/model.h"
#include "ranks/placement.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define GB 1000000000u

struct model_file {
    char path[64];
    struct gguf *g;
    struct hparams hp;
};

static void open_shape(struct model_file *m, const char *shape, enum qtype type) {
    struct err err = {.text = ""};
    const struct synth_options opts = {
        .shape = shape, .type = type, .header_only = true, .n_threads = 1};
    const struct gguf_options header = {.header_only = true};
    snprintf(m->path, sizeof m->path, "/tmp/lockstep-placement-XXXXXX");
    close(mkstemp(m->path));
    if (synth_write(m->path, &opts, &err) != ST_OK ||
        gguf_open(&m->g, m->path, &header, &err) != ST_OK ||
        hparams_read(&m->hp, m->g, &err) != ST_OK)
        fail_msg("%s: %s", shape, err.text);
}

static void close_shape(struct model_file *m) {
    gguf_close(m->g);
    unlink(m->path);
}

/* n machines that are alike, and one exchange's time; freed with mem_free(). */
struct cluster {
    struct placement_machine machines[PLAN_MAX_RANKS];
    struct placement_wires wires;
    int n;
};

static struct cluster machines_alike(int n, uint64_t memory_bytes, double rate,
                                     double exchange_s) {
    struct cluster c = {.n = n};
    for (int i = 0; i < n; i++)
        c.machines[i] = (struct placement_machine){
            .memory_bytes = memory_bytes, .rate = rate, .n_threads = 8};
    placement_wires_set(&c.wires, exchange_s);
    return c;
}

static const struct model_config config = {
    .n_tokens_max = 512, .n_ctx = 4096, .n_runs_max = 1, .n_pages = {4096 / KV_PAGE}};

static struct placement_wish wish_for(const struct model_file *m, const struct cluster *c) {
    return (struct placement_wish){.g = m->g,
                                   .hp = &m->hp,
                                   .cfg = &config,
                                   .n_ranks = c->n,
                                   .machines = c->machines,
                                   .wires = &c->wires};
}

static struct placement *rank_wish(const struct placement_wish *wish) {
    struct err err = {.text = ""};
    struct placement *p = mem_calloc(1, sizeof *p);
    assert_non_null(p);
    if (placement_rank(p, wish, &err) != ST_OK)
        fail_msg("%s", err.text);
    return p;
}

static struct placement *rank_all(const struct model_file *m, const struct cluster *c) {
    const struct placement_wish wish = wish_for(m, c);
    return rank_wish(&wish);
}

static const struct placement_candidate *of_tp(const struct placement *p, int tp) {
    for (int i = 0; i < p->n; i++)
        if (p->list[i].tp == tp)
            return &p->list[i];
    fail_msg("no candidate with tp %d", tp);
    return NULL;
}

static void assert_about(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance * want))
        fail_msg("%g, expected %g within %g %%", got, want, 100 * tolerance);
}

/* ---- which layout ------------------------------------------------------------------------ */

static uint32_t sums_of(const char *shape, int tp) {
    struct model_file m;
    open_shape(&m, shape, QT_Q4_K);
    struct plan plan;
    struct err err;
    uint32_t n = 0;
    assert_int_equal(plan_make(&plan, &m.hp, m.g, tp, 1, NULL, 0, EXPERTS_SLICE, &err), ST_OK);
    for (uint32_t l = 0; l < m.hp.n_layers; l++)
        n += model_layer_sums(&m.hp, &plan, l);
    close_shape(&m);
    return n;
}

/* A layer sums after its attention and after its FFN. Gemma 4 sums twice where experts stand
 * beside the dense FFN. Nemotron's layers have one of the two; its 23 of Mamba-2 norm over 8
 * groups of heads, which three ranks cannot hold whole. Kimi K3's 92 layers with experts sum in
 * the latent space, too. The gates of Gemma 3n's first layers have a mean. */
static void layers_add_as_often_as_they_must(void **state) {
    (void)state;
    assert_int_equal(sums_of("qwen3-30b-a3b", 2), 2 * 48);
    assert_int_equal(sums_of("qwen3-next-80b-a3b", 2), 2 * 48);
    assert_int_equal(sums_of("gemma-4-31b", 2), 2 * 60);
    assert_int_equal(sums_of("gemma-4-26b-a4b", 2), 3 * 30);
    assert_int_equal(sums_of("nemotron-3-nano-30b-a3b", 2), 52);
    assert_int_equal(sums_of("nemotron-3-nano-30b-a3b", 3), 52 + 23);
    assert_int_equal(sums_of("kimi-k3", 2), 2 * 93 + 92);
    const struct hparams sparse = {.n_layers = 4, .n_sparse = 2};
    const struct plan two = {.n_ranks = 2, .tp = 2, .pp = 1};
    for (uint32_t l = 0; l < 4; l++)
        assert_int_equal(model_layer_sums(&sparse, &two, l), l < 2 ? 3 : 2);
}

/* Llama 3.3 70B in f16: 70.55e9 parameters, of which the embedding (128256 x 8192) is not read:
 * 139.0e9 bytes for a token. 80 layers have 160 sums; the words and the logits are two
 * exchanges more. */
static void equal_machines_on_a_fast_wire_are_tensor(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "llama-3.3-70b", QT_F16);
    struct cluster c = machines_alike(4, 512ull * GB, 819e9, 5e-6);
    struct placement *p = rank_all(&m, &c);
    assert_int_equal(p->n, 3);
    assert_int_equal(p->list[0].tp, 4);
    assert_true(p->list[0].fits);
    assert_about(p->list[0].read_s, 139.0e9 / 4 / 819e9, 0.01);
    assert_about(p->list[0].between_s, 162 * 5e-6, 1e-9);
    const struct placement_candidate *both = of_tp(p, 2), *pipeline = of_tp(p, 1);
    assert_about(both->read_s, 139.0e9 / 2 / 819e9, 0.01);
    assert_about(both->between_s, (160 + 1 + 2) * 5e-6, 1e-9);
    assert_about(pipeline->read_s, 139.0e9 / 819e9, 0.01);
    assert_about(pipeline->between_s, 4 * 5e-6, 1e-9); /* N exchanges (docs/links.md) */
    for (int i = 0; i < p->n; i++)
        for (int r = 0; r < 4; r++)
            assert_true(p->list[i].shares[r] == 1);
    mem_free(p);
    close_shape(&m);
}

/* Llama 3.2 1B in Q4_0: 1.236e9 weights of 18/32 bytes, 7.0 ms at 100 GB/s. 34 exchanges of 300
 * us are 10.2 ms, and halving 7.0 wins 3.5: a pipeline. At 30 us they are 1.0 ms: tensor. */
static void a_small_model_on_a_slow_wire_is_a_pipeline(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "llama-3.2-1b", QT_Q4_0);
    struct cluster slow = machines_alike(2, 64ull * GB, 100e9, 300e-6);
    struct cluster fast = machines_alike(2, 64ull * GB, 100e9, 30e-6);
    struct placement *p = rank_all(&m, &slow), *q = rank_all(&m, &fast);
    assert_int_equal(p->list[0].tp, 1);
    assert_about(p->list[0].read_s, 1.236e9 * 18 / 32 / 100e9, 0.02);
    assert_about(p->list[1].between_s, 34 * 300e-6, 1e-9);
    assert_int_equal(q->list[0].tp, 2);
    mem_free(p);
    mem_free(q);
    close_shape(&m);
}

/* Qwen3 235B A22B in Q8_0: 22.2e9 of its parameters work on a token, 0.62e9 of these are the
 * embedding; 34 bytes for 32 weights. */
static void of_experts_those_at_work_are_read(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "qwen3-235b-a22b", QT_Q8_0);
    struct cluster c = machines_alike(2, 512ull * GB, 819e9, 5e-6);
    struct placement *p = rank_all(&m, &c);
    assert_about(of_tp(p, 1)->read_s, (22.2e9 - 0.62e9) * 34 / 32 / 819e9, 0.03);
    assert_about(of_tp(p, 2)->read_s, (22.2e9 - 0.62e9) * 34 / 64 / 819e9, 0.03);
    /* Memory is that of all experts: 235e9 parameters on two. */
    for (int r = 0; r < 2; r++)
        assert_in_range(of_tp(p, 2)->bytes[r], 120ull * GB, 130ull * GB);
    mem_free(p);
    close_shape(&m);
}

static void every_layout_is_looked_at_once(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "qwen3-0.6b", QT_Q8_0);
    for (int n = 1; n <= PLAN_MAX_RANKS; n++) {
        struct cluster c = machines_alike(n, 0, 50e9, 20e-6);
        struct placement *p = rank_all(&m, &c);
        uint64_t seen = 0;
        int divisors = 0;
        for (int tp = 1; tp <= n; tp++)
            divisors += n % tp == 0;
        assert_int_equal(p->n, divisors);
        for (int i = 0; i < p->n; i++) {
            assert_int_equal(p->list[i].tp * p->list[i].pp, n);
            assert_false(seen >> (p->list[i].tp - 1) & 1);
            seen |= 1ull << (p->list[i].tp - 1);
            assert_true(i == 0 || placement_tokens_per_s(&p->list[i]) <=
                                      placement_tokens_per_s(&p->list[i - 1]));
        }
        mem_free(p);
    }
    close_shape(&m);
}

static void a_layout_may_be_given(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "qwen3-0.6b", QT_Q8_0);
    struct cluster c = machines_alike(4, 0, 50e9, 20e-6);
    struct placement_wish wish = wish_for(&m, &c);
    wish.tp = wish.pp = 2;
    struct placement *p = rank_wish(&wish);
    assert_int_equal(p->n, 1);
    assert_int_equal(p->list[0].tp, 2);
    mem_free(p);
    wish.tp = wish.pp = 0;
    wish.shares = (const double[]){5, 1, 1, 1};
    wish.n_shares = 4;
    p = rank_wish(&wish);
    for (int i = 0; i < p->n; i++) {
        assert_int_equal(p->list[i].n_shares, 4);
        assert_true(p->list[i].shares[0] == 5);
    }
    mem_free(p);
    close_shape(&m);
}

/* Two ranks of three have no wire: stages of three ranks cannot be, one after the other they
 * can. */
static void where_no_wire_is_there_is_no_team(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "qwen3-0.6b", QT_Q8_0);
    struct cluster c = machines_alike(3, 0, 50e9, 1e-6);
    c.wires.sum_s[3] = INFINITY;
    struct placement *p = rank_all(&m, &c);
    assert_int_equal(p->list[0].tp, 1);
    assert_false(p->list[1].fits);
    assert_non_null(strstr(p->list[1].why_not, "no wires"));
    mem_free(p);
    close_shape(&m);
}

/* ---- devices ----------------------------------------------------------------------------- */

static uint32_t waits_of(const char *shape, int tp) {
    struct model_file m;
    open_shape(&m, shape, QT_Q4_K);
    struct plan plan;
    struct err err;
    uint32_t n = 1;
    assert_int_equal(plan_make(&plan, &m.hp, m.g, tp, 1, NULL, 0, EXPERTS_SLICE, &err), ST_OK);
    for (uint32_t l = 0; l < m.hp.n_layers; l++)
        n += model_layer_waits(&m.hp, &plan, l);
    close_shape(&m);
    return n;
}

/* A step is one submission, of teams one for each sum more, with or without experts and layers that
 * keep a state; also where experts weigh what they read (Llama 4), or are in a latent space. */
static void a_step_on_a_device_is_few_submissions(void **state) {
    (void)state;
    assert_int_equal(waits_of("llama-3.3-70b", 1), 1);
    assert_int_equal(waits_of("llama-3.3-70b", 4), 1 + 2 * 80);
    assert_int_equal(waits_of("qwen3-30b-a3b", 1), 1);
    assert_int_equal(waits_of("qwen3-30b-a3b", 2), 1 + 2 * 48);
    assert_int_equal(waits_of("kimi-k2", 1), 1);
    assert_int_equal(waits_of("gpt-oss-120b", 1), 1);
    assert_int_equal(waits_of("gpt-oss-120b", 2), 1 + 2 * 36);
    assert_int_equal(waits_of("llama-4-scout", 1), 1);
    assert_int_equal(waits_of("nemotron-3-super-120b-a12b", 1), 1);
    assert_int_equal(waits_of("gemma-4-31b", 1), 1);
    assert_int_equal(waits_of("qwen3-next-80b-a3b", 1), 1);
    assert_int_equal(waits_of("qwen3-next-80b-a3b", 2), 1 + 2 * 48);
    assert_int_equal(waits_of("qwen3.5-27b", 1), 1);
    assert_int_equal(waits_of("qwen3.5-27b", 2), 1 + 2 * 64);
    assert_int_equal(waits_of("lfm2-1.2b", 1), 1);
    assert_int_equal(waits_of("lfm2-1.2b", 2), 1 + 2 * 16);
}

/* Llama 3.3 70B in f16 on four devices: 25 us for each of a team's 161 submissions, or one in each
 * stage. A processor in the team that reads at a tenth is waited for anyway. */
static void crossings_are_of_those_who_are_waited_for(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "llama-3.3-70b", QT_F16);
    struct cluster c = machines_alike(4, 0, 819e9, 5e-6);
    for (int r = 0; r < 4; r++)
        c.machines[r].crossing_s = 25e-6;
    struct placement *p = rank_all(&m, &c);
    assert_about(of_tp(p, 4)->crossing_s, 161 * 25e-6, 1e-9);
    assert_int_equal(of_tp(p, 4)->n_waits, 161);
    assert_about(of_tp(p, 2)->crossing_s, 162 * 25e-6, 1e-9);
    assert_about(of_tp(p, 1)->crossing_s, 4 * 25e-6, 1e-9);
    assert_about(1 / placement_tokens_per_s(of_tp(p, 4)),
                 139.0e9 / 4 / 819e9 + 162 * 5e-6 + 161 * 25e-6, 0.01);
    assert_true(of_tp(p, 4)->prompt_s == 0);
    mem_free(p);
    c.machines[2].crossing_s = 0;
    c.machines[2].rate = 81.9e9;
    struct placement_wish wish = wish_for(&m, &c);
    wish.shares = (const double[]){1, 1, 1, 1};
    wish.n_shares = 4;
    p = rank_wish(&wish);
    assert_true(of_tp(p, 4)->crossing_s == 0);
    assert_about(of_tp(p, 1)->crossing_s, 3 * 25e-6, 1e-9);
    mem_free(p);
    close_shape(&m);
}

/* A slow way there and back makes a pipeline of what would be a team: 70B in Q4_K on two devices
 * of 1 TB/s saves 20 ms by halving, and 161 crossings of 150 us are 24. */
static void slow_crossings_make_a_pipeline(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "llama-3.3-70b", QT_Q4_K);
    struct cluster c = machines_alike(2, 0, 1000e9, 5e-6);
    struct placement *p = rank_all(&m, &c);
    assert_int_equal(p->list[0].tp, 2);
    mem_free(p);
    c.machines[0].crossing_s = c.machines[1].crossing_s = 150e-6;
    p = rank_all(&m, &c);
    assert_int_equal(p->list[0].tp, 1);
    mem_free(p);
    close_shape(&m);
}

/* 68.4e9 multiply-adds for a token of a prompt: 70.55e9 parameters less the embedding and the
 * output matrix. Two ranks halve them. Stages do so but for the output matrix, since they are cut
 * by bytes. */
static void prompts_are_bounded_by_the_int8_rate(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "llama-3.3-70b", QT_Q8_0);
    struct cluster c = machines_alike(2, 0, 1000e9, 5e-6);
    c.machines[0].int8_ops = c.machines[1].int8_ops = 100e12;
    struct placement *p = rank_all(&m, &c);
    assert_about(of_tp(p, 2)->prompt_s, 2 * 68.4e9 / 2 / 100e12, 0.01);
    assert_about(of_tp(p, 1)->prompt_s, 2 * 68.4e9 / 2 / 100e12, 0.03);
    mem_free(p);
    /* 1 Gbit/s: two sums of 8192 numbers of 4 bytes in each of 80 layers; each rank sends half of
     * a sum, and half of the result. A pipeline hands on one row: less than it computes. */
    c.wires.bandwidth = 125e6;
    p = rank_all(&m, &c);
    assert_about(of_tp(p, 2)->prompt_s, 2 * 80 * 8192 * 4 / 125e6, 0.001);
    assert_about(of_tp(p, 1)->prompt_s, 2 * 68.4e9 / 2 / 100e12, 0.03);
    mem_free(p);
    c.wires.bandwidth = 0;
    c.machines[1].int8_ops = 0;
    p = rank_all(&m, &c);
    assert_true(p->list[0].prompt_s == 0);
    mem_free(p);
    close_shape(&m);
}

/* ---- shares ------------------------------------------------------------------------------ */

static void check_shares(const struct model_file *m, const double *rates, int n,
                         const double *want) {
    struct cluster c = machines_alike(n, 0, 1, 1e-6);
    for (int i = 0; i < n; i++)
        c.machines[i].rate = rates[i] * 1e9;
    struct placement *p = rank_all(m, &c);
    for (int i = 0; i < p->n; i++)
        assert_false(p->list[i].by_memory);
    for (int i = 0; i < p->n; i++)
        for (int r = 0; r < n; r++)
            if (p->list[i].shares[r] != want[r])
                fail_msg("rates %g, %g..: rank %d's share is %g, expected %g", rates[0],
                         rates[1], r, p->list[i].shares[r], want[r]);
    mem_free(p);
}

static void shares_follow_rates_in_small_numbers(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "qwen3-0.6b", QT_Q8_0);
#define CHECK(n, ...)                            \
    do {                                         \
        const double both[2][n] = {__VA_ARGS__}; \
        check_shares(&m, both[0], n, both[1]);   \
    } while (0)
    CHECK(2, {819, 273}, {3, 1});
    CHECK(2, {31.2, 15.4}, {2, 1});
    CHECK(2, {15.4, 31.2}, {1, 2});
    CHECK(2, {30, 20}, {3, 2});
    CHECK(2, {47, 53}, {1, 1}); /* noise */
    CHECK(2, {100, 85.1}, {1, 1});
    CHECK(2, {100, 80}, {5, 4});
    CHECK(3, {100, 92, 86}, {1, 1, 1});
    CHECK(4, {819, 800, 273, 280}, {3, 3, 1, 1});
#undef CHECK
    close_shape(&m);
}

/* A rank of a team that is twice as fast has twice as much, so that both need the same time;
 * the pipeline's stages take turns, and the faster one has more layers. */
static void unequal_machines_wait_for_nobody(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "llama-3.1-8b", QT_Q8_0);
    struct cluster c = machines_alike(2, 0, 800e9, 5e-6);
    c.machines[1].rate = 400e9;
    struct placement *p = rank_all(&m, &c);
    double bytes = (8.03e9 - 0.525e9) * 34 /
                   32; /* 8.03e9 parameters, 128256 x 4096 of them the embedding */
    assert_int_equal(p->list[0].tp, 2);
    assert_about(p->list[0].read_s, bytes / 1200e9, 0.03);
    const struct share *stages = of_tp(p, 1)->plan.shares;
    assert_true(stages[0].layer_end - stages[0].layer_begin >
                stages[1].layer_end - stages[1].layer_begin);
    mem_free(p);
    close_shape(&m);
}

/* ---- memory ------------------------------------------------------------------------------ */

/* 141 GB on machines of 110 and 60 GB that are equally fast: halves do not fit, 2 : 1 does. */
static void memory_bounds_shares(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "llama-3.3-70b", QT_F16);
    struct cluster c = machines_alike(2, 110ull * GB, 800e9, 5e-6);
    c.machines[1].memory_bytes = 60ull * GB;
    struct placement *p = rank_all(&m, &c);
    for (int i = 0; i < p->n; i++) {
        assert_true(p->list[i].fits && p->list[i].by_memory);
        for (int r = 0; r < 2; r++)
            assert_true(p->list[i].bytes[r] <= c.machines[r].memory_bytes);
        assert_true(p->list[i].bytes[0] > p->list[i].bytes[1]);
    }
    /* What fits is used: the small one is not left half empty. */
    assert_true(of_tp(p, 2)->bytes[1] > 40ull * GB);
    mem_free(p);
    close_shape(&m);
}

/* Just enough: 8.03e9 weights of 34/32 bytes less the embedding are 8.0 GB, with cache and
 * buffers below 9 GB of 9.4 in six very different machines. */
static void six_machines_are_filled(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "llama-3.1-8b", QT_Q8_0);
    const double memory[] = {4.2, 1.1, 2.0, 0.9, 2.4, 1.2}, rates[] = {10, 80, 20, 70, 30, 300};
    struct cluster c = machines_alike(6, 0, 1, 5e-6);
    for (int r = 0; r < 6; r++)
        c.machines[r] = (struct placement_machine){
            .memory_bytes = (uint64_t)(memory[r] * GB), .rate = rates[r] * 1e9, .n_threads = 2};
    struct placement *p = rank_all(&m, &c);
    const struct placement_candidate *tensor = of_tp(p, 6);
    if (!tensor->fits)
        fail_msg("tensor6: %s", tensor->why_not);
    for (int r = 0; r < 6; r++)
        assert_true(tensor->bytes[r] <= c.machines[r].memory_bytes);
    mem_free(p);
    close_shape(&m);
}

static void what_does_not_fit_says_why(void **state) {
    (void)state;
    struct model_file m;
    char text[400];
    open_shape(&m, "llama-3.3-70b", QT_F16);
    struct cluster c = machines_alike(2, 64ull * GB, 800e9, 5e-6);
    c.machines[1].memory_bytes = 32ull * GB;
    struct placement *p = rank_all(&m, &c);
    double need;
    int rank;
    for (int i = 0; i < p->n; i++) {
        assert_false(p->list[i].fits);
        assert_int_equal(
            sscanf(p->list[i].why_not, "rank %d would need %lf GB, has", &rank, &need), 2);
        assert_true(need > (rank == 0 ? 64 : 32) && need < 141);
        assert_non_null(strstr(p->list[i].why_not, rank == 0 ? "has 64.0 GB" : "has 32.0 GB"));
    }
    placement_refusal(p, text, sizeof text);
    assert_non_null(strstr(text, "tensor2: rank "));
    assert_non_null(strstr(text, "; pipeline2: rank "));
    placement_refusal(p, text, 20); /* cut, not overrun */
    assert_true(strlen(text) < 20);
    mem_free(p);
    close_shape(&m);
}

/* ---- the rest ---------------------------------------------------------------------------- */

static void the_same_facts_give_the_same_answer(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "qwen1.5-moe-a2.7b", QT_Q4_0);
    struct cluster c = machines_alike(6, 5ull * GB, 50e9, 40e-6);
    c.machines[3] =
        (struct placement_machine){.memory_bytes = 2ull * GB, .rate = 77e9, .n_threads = 3};
    struct placement *p = rank_all(&m, &c), *q = rank_all(&m, &c);
    for (int i = 0; i < p->n; i++) {
        const struct placement_candidate *a = &p->list[i], *b = &q->list[i];
        assert_int_equal(a->tp, b->tp);
        assert_memory_equal(a->shares, b->shares, sizeof a->shares);
        assert_memory_equal(a->bytes, b->bytes, sizeof a->bytes);
        assert_true(a->read_s == b->read_s && a->between_s == b->between_s);
    }
    mem_free(p);
    mem_free(q);
    close_shape(&m);
}

/* Others' figures on Mac Studios (M3 Ultra), tokens/s. The rate is what their engine reached on
 * one machine, so what is tested is how time divides and what exchanges cost: 30 us for an
 * all-reduce over RDMA, 300 us for a message over TCP, as they were measured there. Contexts
 * and prompts are not stated: 25 % is agreement. */
static void predictions_agree_with_published_figures(void **state) {
    (void)state;
    struct model_file llama, qwen;
    open_shape(&llama, "llama-3.3-70b", QT_F16);
    open_shape(&qwen, "qwen3-235b-a22b", QT_Q8_0);
    double llama_bytes = 139.0e9, qwen_bytes = (22.2e9 - 0.62e9) * 34 / 32;
    const struct {
        const struct model_file *m;
        double bytes, alone; /* for a token; tokens/s on one machine */
        int n, tp;
        double exchange_s, tokens_per_s;
    } published[] = {
        {&llama, llama_bytes, 5, 4, 4, 30e-6, 16},     /* MLX, tensor parallel */
        {&llama, llama_bytes, 5, 4, 1, 300e-6, 5},     /* a pipeline */
        {&qwen, qwen_bytes, 19.5, 2, 2, 30e-6, 26.2},  /* exo 1.0, MLX */
        {&qwen, qwen_bytes, 20.4, 2, 1, 300e-6, 17.2}, /* llama.cpp, layers over TCP */
    };
    for (size_t i = 0; i < ARRAY_LEN(published); i++) {
        struct cluster c =
            machines_alike(published[i].n, 512ull * GB, published[i].bytes * published[i].alone,
                           published[i].exchange_s);
        struct placement *p = rank_all(published[i].m, &c);
        assert_about(placement_tokens_per_s(of_tp(p, published[i].tp)),
                     published[i].tokens_per_s, 0.25);
        mem_free(p);
    }
    /* 160 exchanges of 300 us: 48 ms of waiting for a token. */
    struct cluster c = machines_alike(4, 512ull * GB, 700e9, 300e-6);
    struct placement *p = rank_all(&llama, &c);
    assert_about(of_tp(p, 4)->between_s, 48e-3, 0.02);
    mem_free(p);
    close_shape(&llama);
    close_shape(&qwen);
}

/* ---- fewer machines ---------------------------------------------------------------------- */

static uint64_t kept(const struct model_file *m, const struct cluster *c) {
    const struct placement_wish wish = wish_for(m, c);
    struct placement *p = rank_wish(&wish);
    struct placement_fewer fewer;
    struct err err = {.text = ""};
    if (placement_fewer(&fewer, &wish, p, &err) != ST_OK)
        fail_msg("%s", err.text);
    if (fewer.keep != 0 && p->list[0].fits)
        assert_true(fewer.tokens_per_s >
                    PLACEMENT_FEWER_GAIN * placement_tokens_per_s(&p->list[0]));
    assert_int_equal(fewer.n, __builtin_popcountll(fewer.keep));
    mem_free(p);
    return fewer.keep;
}

/* Qwen3 0.6B in Q8_0 is read in 6 ms at 100 GB/s; over 1 ms wires even the three exchanges of a
 * pipeline of three cost half as much again. At 3 us three machines are nearly three times as
 * fast as one. */
static void a_machine_alone_may_be_the_fastest(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "qwen3-0.6b", QT_Q8_0);
    struct cluster slow = machines_alike(3, 64ull * GB, 100e9, 1e-3);
    struct cluster fast = machines_alike(3, 64ull * GB, 100e9, 3e-6);
    assert_int_equal(kept(&m, &slow), 1);
    assert_int_equal(kept(&m, &fast), 0);
    close_shape(&m);
}

/* 0.70 GB at 50, 20 and 100 GB/s over 1 ms wires: alone 14 ms; with the third machine 4.6 + 4.6
 * + 2 or 3; the second one only adds an exchange. Which machine is named when does not matter. */
static void the_slow_one_is_left_out(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "llama-3.2-1b", QT_Q4_0);
    struct cluster c = machines_alike(3, 64ull * GB, 50e9, 1e-3);
    c.machines[1].rate = 20e9;
    c.machines[2].rate = 100e9;
    assert_int_equal(kept(&m, &c), 5);
    c.machines[1].rate = 100e9;
    c.machines[2].rate = 20e9;
    assert_int_equal(kept(&m, &c), 3);
    close_shape(&m);
}

/* 141 GB do not fit one or two machines of 64 GB, however slow the wire; and where three have
 * too little, two have less. */
static void memory_needs_them_all(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "llama-3.3-70b", QT_F16);
    struct cluster c = machines_alike(3, 64ull * GB, 100e9, 20e-3);
    assert_int_equal(kept(&m, &c), 0);
    c = machines_alike(3, 32ull * GB, 100e9, 20e-3);
    assert_int_equal(kept(&m, &c), 0);
    close_shape(&m);
}

/* 30 MB, as beside another model, are less than the buffers of a step of 512 tokens (the
 * activations alone are 512 x 4096 floats, 8 MB, five times and more), so all three together
 * cannot have 8.5 GB that two of them have room for. That the full one is the fastest does not
 * make it stay, nor does it matter whether the machine that has most is the last. */
static void a_full_one_is_left_out(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "llama-3.1-8b", QT_Q8_0);
    struct cluster c = machines_alike(4, 6ull * GB, 100e9, 5e-6);
    c.machines[1] = (struct placement_machine){
        .memory_bytes = GB / 1000 * 30, .rate = 300e9, .n_threads = 8};
    c.machines[2].memory_bytes = 5ull * GB;
    struct placement *p = rank_all(&m, &c);
    assert_false(p->list[0].fits);
    mem_free(p);
    assert_int_equal(kept(&m, &c), 1 | 4 | 8);
    c.n = 3;
    assert_int_equal(kept(&m, &c), 1 | 4);
    c.machines[2].memory_bytes = 0; /* unknown: enough */
    assert_int_equal(kept(&m, &c), 1 | 4);
    close_shape(&m);
}

/* Between two and seven machines every number of those that stay has wires to be thought with:
 * those that were measured are for teams that divide all. */
static void wires_that_were_not_measured(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "qwen3-0.6b", QT_Q8_0);
    for (int n = 2; n <= 7; n++) {
        struct cluster c = machines_alike(n, 64ull * GB, 100e9, 2e-3);
        for (int tp = 1; tp <= n; tp++) {
            if (n % tp != 0)
                c.wires.sum_s[tp] = c.wires.hand_s[tp] = c.wires.answer_s[tp] = 0;
            if (tp == n)
                c.wires.hand_s[tp] = 0;
        }
        /* Were an exchange free where none was measured, several would be the fastest. */
        assert_int_equal(kept(&m, &c), 1);
    }
    close_shape(&m);
}

/* Qwen3 235B A22B in q4_K, 4.5 bits a weight, on a card of 24 GB at 1008 GB/s and a processor at
 * 80: 94 layers of 128 experts of 3 * 4096 * 1536 are 127.7 GB, of which a token reads 8 of 128.
 * All else is 7.3e9 weights, 4.1 GB. That is the card's, and what fits beside it of the experts: 3
 * of 24 segments. So the processor reads 21 / 24 of 7.98 GB, and the card what comes before it. */
static void experts_are_divided_by_the_memory_that_is_left(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "qwen3-235b-a22b", QT_Q4_K);
    struct cluster c = machines_alike(2, 0, 80e9, 20e-6);
    c.machines[0].rate = 1008e9;
    c.machines[0].memory_bytes = (uint64_t)24 * GB;
    c.machines[0].crossing_s = 25e-6;
    struct placement_wish wish = wish_for(&m, &c);
    wish.experts = EXPERTS_AUTO;
    wish.processors = 1 << 1;
    struct placement *p = rank_wish(&wish);
    const struct placement_candidate *best = &p->list[0];
    assert_int_equal(p->n, 3);
    assert_true(best->fits && best->tp == 2);
    assert_int_equal(best->n_shares, 4);
    assert_int_equal(best->plan.shares[0].heads[0].end, 64);
    assert_int_equal(best->plan.shares[1].heads[0].begin, 64);
    assert_int_equal(best->plan.shares[0].expert_ff_end, 3 * 64);
    assert_int_equal(best->plan.shares[1].vocab_end - best->plan.shares[1].vocab_begin, 0);
    assert_about(best->read_s, 21.0 / 24 * 7.98 / 80 + 4.1 / 1008, 0.05);
    char text[100];
    placement_candidate_shares_text(best, 2, text, sizeof text);
    assert_memory_equal(text, "shares 1,0, experts 0.1", 23);
    placement_layout_text(best, text, sizeof text);
    assert_string_equal(text, "tensor2 with experts apart");
    mem_free(p);

    wish.experts = EXPERTS_SLICE; /* then the processor has its part of all layers */
    p = rank_wish(&wish);
    assert_int_equal(p->n, 2);
    assert_true(p->list[0].read_s > 1.3 * (21.0 / 24 * 7.98 / 80 + 4.1 / 1008));
    mem_free(p);
    wish.experts = EXPERTS_CPU; /* nothing of the experts is the card's */
    p = rank_wish(&wish);
    assert_int_equal(of_tp(p, 2)->plan.shares[0].expert_ff_end, 0);
    assert_about(of_tp(p, 2)->read_s, 7.98 / 80 + 4.1 / 1008, 0.05);
    mem_free(p);
    close_shape(&m);
}

/* Llama 4 Maverick in q4_K on the same two. In 24 of 48 layers a token uses one of 128 experts of
 * 3 * 5120 * 8192, 1.70 GB of 217.4, and a shared one of that size. The others have 3 * 5120 *
 * 16384 in place of them, which is no expert: with attention and output that is 10.1e9 weights,
 * 5.68 GB, which the card reads alone. The shared one it reads while the processor is at its
 * experts. Of the 128 segments of these it holds the most that fit beside the rest. */
static void layers_without_experts_are_the_cards(void **state) {
    (void)state;
    struct model_file m;
    open_shape(&m, "llama-4-maverick", QT_Q4_K);
    struct plan plan;
    struct model_bytes b;
    struct err err;
    assert_int_equal(plan_make(&plan, &m.hp, m.g, 1, 1, NULL, 0, EXPERTS_SLICE, &err), ST_OK);
    assert_int_equal(model_measure(&b, m.g, &m.hp, &plan, 0, &config, 8, &err), ST_OK);
    assert_about(b.experts, 217.4e9, 0.05);
    assert_about(b.token_experts, b.experts / 128 * 2, 0.001);
    struct cluster c = machines_alike(2, 0, 80e9, 20e-6);
    c.machines[0].rate = 1008e9;
    c.machines[0].memory_bytes = (uint64_t)24 * GB;
    struct placement_wish wish = wish_for(&m, &c);
    wish.experts = EXPERTS_CPU;
    wish.processors = 1 << 1;
    struct placement *p = rank_wish(&wish);
    assert_about(of_tp(p, 2)->read_s, 1.70 / 80 + 5.68 / 1008, 0.05);
    mem_free(p);
    wish.experts = EXPERTS_AUTO;
    p = rank_wish(&wish);
    const uint64_t segment = (uint64_t)(b.experts / 128), *bytes = p->list[0].bytes;
    assert_int_equal(p->list[0].n_shares, 4);
    assert_int_equal(p->list[0].plan.shares[0].expert_ff_end, 8 * 64);
    assert_true(bytes[0] <= 24ull * GB && bytes[0] + segment > 24ull * GB);
    mem_free(p);
    close_shape(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_without_experts_are_the_cards),
        cmocka_unit_test(experts_are_divided_by_the_memory_that_is_left),
        cmocka_unit_test(a_machine_alone_may_be_the_fastest),
        cmocka_unit_test(the_slow_one_is_left_out),
        cmocka_unit_test(memory_needs_them_all),
        cmocka_unit_test(a_full_one_is_left_out),
        cmocka_unit_test(wires_that_were_not_measured),
        cmocka_unit_test(layers_add_as_often_as_they_must),
        cmocka_unit_test(equal_machines_on_a_fast_wire_are_tensor),
        cmocka_unit_test(a_small_model_on_a_slow_wire_is_a_pipeline),
        cmocka_unit_test(of_experts_those_at_work_are_read),
        cmocka_unit_test(every_layout_is_looked_at_once),
        cmocka_unit_test(a_layout_may_be_given),
        cmocka_unit_test(where_no_wire_is_there_is_no_team),
        cmocka_unit_test(a_step_on_a_device_is_few_submissions),
        cmocka_unit_test(crossings_are_of_those_who_are_waited_for),
        cmocka_unit_test(slow_crossings_make_a_pipeline),
        cmocka_unit_test(prompts_are_bounded_by_the_int8_rate),
        cmocka_unit_test(shares_follow_rates_in_small_numbers),
        cmocka_unit_test(unequal_machines_wait_for_nobody),
        cmocka_unit_test(memory_bounds_shares),
        cmocka_unit_test(six_machines_are_filled),
        cmocka_unit_test(what_does_not_fit_says_why),
        cmocka_unit_test(the_same_facts_give_the_same_answer),
        cmocka_unit_test(predictions_agree_with_published_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
