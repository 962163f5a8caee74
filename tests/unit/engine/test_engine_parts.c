/* The engine's small parts: stop strings in pieces of text, guesses from the text itself, how
 * large a piece of a prompt may be, who is left when a rank was lost, when whom is asked
 * whether it is back, a job as text, and what a worker hears of the process that started it. */
#include "base/mem.h"
#include "base/rng.h"
#include "base/util.h"
#include "engine/ngram_draft.h"
#include "engine/rejoin.h"
#include "engine/step_cost.h"
#include "engine/stops.h"
#include "ranks/job.h"
#include "ranks/launch.h"
#include "ranks/membership.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- stop strings ------------------------------------------------------------------------ */

static const struct stop stop_list[] = {{"aab", 3}, {"abba", 4}, {"b\nb", 3}, {"bbbb", 4}};

/* Where a text ends by the definition: before the earliest stop string in it. */
static size_t end_of(const char *text, size_t len, int *which) {
    for (size_t at = 0; at < len; at++)
        for (size_t i = 0; i < ARRAY_LEN(stop_list); i++)
            if (strncmp(text + at, stop_list[i].text, stop_list[i].len) == 0) {
                *which = (int)i;
                return at;
            }
    *which = -1;
    return len;
}

/* Random texts in random pieces: what goes out is the text up to its end, nothing of a stop
 * string, and nothing is held without need. No stop string here is part of another, so the
 * earliest to begin is the first to be complete. */
static void text_in_pieces_ends_where_the_whole_does(void **state) {
    (void)state;
    int n_stopped = 0;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        char text[40] = "", held[40], out[40];
        for (size_t i = 0; i < 30; i++)
            text[i] = "aabbb\n"[rng_u64(seed, i) % 6];
        size_t n_held = 0, n_out = 0, at = 0;
        int which = -1, want;
        size_t end = end_of(text, 30, &want);
        while (at < 30 && which < 0) {
            size_t n = MIN(rng_u64(seed, 100 + at) % 4 + 1, 30 - at);
            memcpy(held + n_held, text + at, n);
            n_held += n;
            at += n;
            size_t go = stops_scan(stop_list, ARRAY_LEN(stop_list), held, n_held, &which);
            memcpy(out + n_out, held, go);
            n_out += go;
            n_held -= go;
            memmove(held, held + go, n_held);
            assert_true(which >= 0 || n_held < 4);
        }
        assert_int_equal(which, want);
        if (which >= 0)
            assert_int_equal(n_out, end);
        assert_memory_equal(out, text, n_out);
        n_stopped += which >= 0;
    }
    assert_true(n_stopped > 100 && n_stopped < 3000);
}

static void without_stop_strings_nothing_is_held(void **state) {
    (void)state;
    int which;
    assert_int_equal(stops_scan(NULL, 0, "abc", 3, &which), 3);
    assert_int_equal(which, -1);
    assert_int_equal(stops_scan(stop_list, 4, "", 0, &which), 0);
    assert_int_equal(which, -1);
}

/* ---- guesses ----------------------------------------------------------------------------- */

static void what_followed_the_longest_match_is_guessed(void **state) {
    (void)state;
    /* 1 2 3 occurs with 7 after it; 2 3 alone, later, with 8. */
    int32_t ids[32] = {1, 2, 3, 7, 5, 9, 2, 3, 8, 4, 1, 2, 3};
    assert_int_equal(ngram_draft(ids, 13, 3), 3);
    assert_int_equal(ids[13], 7);
    assert_int_equal(ids[14], 5);
    assert_int_equal(ids[15], 9);
    /* Of equal matches the latest. */
    int32_t two[32] = {1, 2, 7, 6, 1, 2, 8, 6, 5, 1, 2};
    assert_int_equal(ngram_draft(two, 11, 1), 1);
    assert_int_equal(two[11], 8);
}

static void a_period_goes_on(void **state) {
    (void)state;
    int32_t ids[64] = {9, 1, 2, 3, 1, 2, 3, 1, 2, 3};
    assert_int_equal(ngram_draft(ids, 10, 8), 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(ids[10 + i], i % 3 + 1);
    int32_t same[64] = {4, 4, 4};
    assert_int_equal(ngram_draft(same, 3, 5), 5);
    assert_int_equal(same[7], 4);
}

static void nothing_is_guessed_without_a_match(void **state) {
    (void)state;
    int32_t ids[32] = {1, 2, 3, 4, 5, 6, 3};
    assert_int_equal(ngram_draft(ids, 7, 3), 0);
    for (size_t n = 0; n < 3; n++)
        assert_int_equal(ngram_draft(ids, n, 3), 0);
}

/* Guesses that fail cost little: at most one in NGRAM_PROBE tokens in the end. */
static void trust_follows_what_came_true(void **state) {
    (void)state;
    struct ngram_trust t;
    ngram_trust_init(&t);
    size_t n = 0;
    for (int i = 0; i < 1000; i++) {
        size_t k = ngram_trust_k(&t, 0.15, 11);
        ngram_trust_learn(&t, k, 0);
        n += k;
    }
    assert_true(n >= 20 && n < 1000 / NGRAM_PROBE + 30);
    for (int i = 0; i < 100; i++) {
        size_t k = ngram_trust_k(&t, 0.15, 11);
        ngram_trust_learn(&t, k, k);
    }
    assert_int_equal(ngram_trust_k(&t, 0.15, 11), 11);
    assert_int_equal(ngram_trust_k(&t, 0.15, 3), 3);
    /* In a full batch a token costs more than it can bring. */
    assert_int_equal(ngram_trust_k(&t, 1.2, 11), 0);
}

/* ---- pieces of prompts ------------------------------------------------------------------- */

/* A machine: a step costs fixed_s and token_s for each token's work; or read_s if that is more,
 * to read the weights. */
struct machine {
    double fixed_s, token_s, read_s;
};

static double step_takes(const struct machine *m, size_t n_streams, double work) {
    double computes = m->fixed_s + m->token_s * ((double)n_streams + work);
    return computes > m->read_s ? computes : m->read_s;
}

/* One step of n streams beside a prompt at pos, on a machine that just now takes `slower` times
 * as long. Returns the step's time, in those of a step without the prompt. */
static double piece_step(struct step_cost *p, const struct machine *m, size_t n_streams,
                         size_t *pos, double slower) {
    size_t n = step_cost_fit(p, *pos, step_cost_room(p, n_streams, 0), 256);
    double work = step_cost_work(p, *pos, n), s = step_takes(m, n_streams, work);
    step_cost_add(p, &(struct step_sample){.n_tokens = n_streams + n,
                                           .n_streams = n_streams,
                                           .work = work,
                                           .seconds = s * slower});
    *pos += n;
    return s / step_takes(m, n_streams, 0);
}

static void stream_steps(struct step_cost *p, const struct machine *m, size_t n_streams,
                         int n) {
    for (int i = 0; i < n; i++)
        step_cost_add(p, &(struct step_sample){.n_tokens = n_streams,
                                               .n_streams = n_streams,
                                               .seconds = step_takes(m, n_streams, 0)});
}

/* 64 tokens, nobody waits. */
static void prompt_alone(struct step_cost *p, const struct machine *m) {
    double work = step_cost_work(p, 0, 64);
    step_cost_add(p, &(struct step_sample){
                         .n_tokens = 64, .work = work, .seconds = step_takes(m, 0, work)});
}

static const struct machine machines[] = {
    {0.010, 0.00001, 0}, {0.010, 0.0002, 0}, {0.010, 0.003, 0},
    {0.001, 0.001, 0},   {0.050, 0.014, 0},  {0.0, 0.1, 0},
};

/* What a step may take, in usual ones: where pieces are often late, and at most. */
#define BUSY 1.6
#define REGULAR 2.0
#define LEAP 2.6 /* while it is not known how a piece's cost grows */

/* On a machine that takes what is expected of it, streams wait for two or three usual steps from
 * the first piece on, more only where a single token takes longer, and prompts get the rest. */
static void pieces_fit_what_streams_can_bear(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(machines); i++)
        for (size_t n_streams = 1; n_streams <= 16; n_streams *= 2) {
            const struct machine *m = &machines[i];
            struct step_cost p;
            step_cost_init(&p, 0, 0, 0);
            prompt_alone(&p, m);
            stream_steps(&p, m, n_streams, 20);
            double sum = 0, one = step_takes(m, n_streams, 1) / step_takes(m, n_streams, 0);
            size_t pos = 0;
            for (int step = 0; step < 200; step++) {
                double ratio = piece_step(&p, m, n_streams, &pos, 1);
                assert_true(ratio < (one > REGULAR ? one : REGULAR) + 0.01);
                sum += step < 50 ? 0 : ratio;
            }
            double most = step_takes(m, n_streams, 256) / step_takes(m, n_streams, 0);
            assert_true(sum / 150 > 0.86 * (most < REGULAR ? most : REGULAR));
            assert_true(pos >= 180);
        }
}

/* Nothing is known: a token at a time, and never a leap. */
static void the_first_pieces_are_small(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(machines); i++) {
        struct step_cost p;
        size_t pos = 0;
        step_cost_init(&p, 0, 0, 0);
        assert_true(step_cost_room(&p, 3, 0) == 0); /* what is usual comes first */
        for (int step = 0; step < 100; step++)
            assert_true(piece_step(&p, &machines[i], 3, &pos, 1) < REGULAR + 0.01);
        assert_true(pos >= 70);
    }
}

/* Small pieces cost nothing while the weights are read, and then each token what the processor
 * needs for it: never a leap over what streams can bear. */
static void hidden_pieces_do_not_leap(void **state) {
    (void)state;
    static const double token_s[] = {0.00005, 0.0002, 0.0005, 0.001, 0.002, 0.005};
    for (size_t i = 0; i < 2 * ARRAY_LEN(token_s); i++)
        for (size_t n_streams = 1; n_streams <= 16; n_streams *= 2) {
            const struct machine m = {0.0002, token_s[i / 2], 0.010};
            struct step_cost p;
            step_cost_init(&p, 0, 0, 0);
            if (i % 2 == 0)
                prompt_alone(&p, &m);
            stream_steps(&p, &m, n_streams, 20);
            double sum = 0;
            size_t pos = 0;
            for (int step = 0; step < 200; step++) {
                double ratio = piece_step(&p, &m, n_streams, &pos, 1);
                assert_true(ratio < LEAP);
                sum += step < 50 ? 0 : ratio;
            }
            double most = step_takes(&m, n_streams, 256) / step_takes(&m, n_streams, 0);
            assert_true(sum / 150 > 0.8 * (most < REGULAR ? most : REGULAR));
        }
}

/* A hiccup of ten steps' length in every seventh: pieces stay as they were. In every fifth:
 * they are smaller, but go on. */
static void hiccups_make_pieces_smaller(void **state) {
    (void)state;
    const struct machine m = {0.050, 0.014, 0};
    static const int every[] = {1000, 7, 5};
    static const double most[] = {REGULAR, REGULAR, BUSY + 0.2};
    size_t got[] = {0, 0, 0};
    for (size_t i = 0; i < ARRAY_LEN(every); i++) {
        struct step_cost p;
        step_cost_init(&p, 0, 0, 0);
        prompt_alone(&p, &m);
        stream_steps(&p, &m, 4, 20);
        for (int step = 0; step < 300; step++) {
            bool hiccup = step % every[i] == 3;
            double ratio = piece_step(&p, &m, 4, &got[i], hiccup ? 10 : 1);
            assert_true(ratio < (step < 100 ? REGULAR : most[i]) + 0.05);
        }
    }
    assert_true((double)got[1] > 0.7 * (double)got[0]);
    assert_true((double)got[2] > 0.4 * (double)got[0]);
}

/* Now and then a step takes 1.6 times as long as expected: after the first such one not even
 * that takes three usual ones. */
static void rare_late_steps_are_borne(void **state) {
    (void)state;
    const struct machine m = {0.050, 0.005, 0};
    struct step_cost p;
    size_t pos = 0;
    step_cost_init(&p, 0, 0, 0);
    prompt_alone(&p, &m);
    stream_steps(&p, &m, 4, 20);
    for (int step = 0; step < 1000; step++) {
        double slower = step % 90 == 89 ? 1.6 : 1;
        double waited = slower * piece_step(&p, &m, 4, &pos, slower);
        assert_true(step < 100 || waited < 3);
    }
    assert_true(pos > 1000 * 10 * 6 / 10);
}

/* Four times as slow from some step on, and quick again later: a few steps, and pieces are as
 * before. */
static void a_slower_machine_cancels_out(void **state) {
    (void)state;
    const struct machine m = {0.050, 0.014, 0};
    struct step_cost p;
    size_t pos = 0;
    step_cost_init(&p, 0, 0, 0);
    prompt_alone(&p, &m);
    stream_steps(&p, &m, 4, 20);
    for (int step = 0; step < 300; step++) {
        size_t before = pos;
        assert_true(piece_step(&p, &m, 4, &pos, step >= 100 && step < 200 ? 4 : 1) < 2.6);
        bool settled = (step > 0 && step < 100) || (step >= 130 && step < 200) || step >= 230;
        assert_true(!settled || pos == before || pos - before >= 5);
    }
}

/* A token late in a long context costs ten times as much: what is known of one prompt holds for
 * another. */
static void work_grows_with_the_context(void **state) {
    (void)state;
    const struct machine m = {0.050, 0.005, 0};
    struct step_cost p;
    size_t pos = 0, late = 30000;
    step_cost_init(&p, 0.0003, 0.001, 100);
    assert_float_equal((float)step_cost_work(&p, 0, 2), 2.0013f, 1e-6);
    assert_float_equal((float)step_cost_work(&p, 30000, 1), 10.1f, 1e-4);
    assert_int_equal(step_cost_fit(&p, 0, 2.0014, 10), 2);
    assert_int_equal(step_cost_fit(&p, 0, 2.0012, 10), 1);
    assert_int_equal(step_cost_fit(&p, 30000, 10.0, 10), 1); /* never none */
    assert_int_equal(step_cost_fit(&p, 30000, 0, 10), 0);
    assert_int_equal(step_cost_fit(&p, 0, 1000, 10), 10);
    stream_steps(&p, &m, 4, 20);
    for (int step = 0; step < 100; step++)
        piece_step(&p, &m, 4, &pos, 1);
    for (int step = 0; step < 100; step++)
        assert_true(piece_step(&p, &m, 4, &late, 1) < REGULAR + 0.01);
    assert_true(late > 30050);
}

/* Streams come and go while a long prompt is computed. */
static void usual_follows_the_streams(void **state) {
    (void)state;
    const struct machine m = {0.010, 0.010, 0};
    struct step_cost p;
    size_t pos = 0;
    step_cost_init(&p, 0, 0, 0);
    prompt_alone(&p, &m);
    stream_steps(&p, &m, 1, 20);
    for (int step = 0; step < 100; step++)
        assert_true(piece_step(&p, &m, 1, &pos, 1) < REGULAR + 0.01);
    for (int step = 0; step < 100; step++)
        assert_true(piece_step(&p, &m, 16, &pos, 1) < REGULAR + 0.01);
    assert_true(step_cost_room(&p, 16, 0) == 0 || step_cost_room(&p, 16, 0) > 10);
    for (int step = 0; step < 100; step++)
        assert_true(piece_step(&p, &m, 1, &pos, 1) < REGULAR + 0.01);
    /* Streams that an embedding keeps waiting wait for a step of it and for their own. */
    assert_true(step_cost_room(&p, 0, 1) <= 0.8 * 2);
}

/* About a second at a time, so that others get a turn. */
static void prompts_alone_come_in_large_steps(void **state) {
    (void)state;
    struct step_cost p;
    step_cost_init(&p, 0, 0, 0);
    assert_true(step_cost_room(&p, 0, 0) >= 64);
    prompt_alone(&p, &(struct machine){0, 0.001, 0});
    assert_float_equal((float)step_cost_room(&p, 0, 0), 1000, 1);
    prompt_alone(&p, &(struct machine){0, 0.2, 0});
    assert_float_equal((float)step_cost_room(&p, 0, 0), 64, 1e-3);
}

static void the_price_of_a_token_is_learnt(void **state) {
    (void)state;
    struct step_cost p;
    step_cost_init(&p, 0, 0, 0);
    for (size_t i = 0; i < 200; i++)
        stream_steps(&p, &(struct machine){0.020, 0.002, 0}, 1 + i % 5, 1);
    assert_float_equal((float)step_cost_token_s(&p), 0.002f, 1e-6);
    assert_float_equal((float)step_cost_of(&p, 1), 0.022f, 1e-6);
    assert_float_equal((float)step_cost_of(&p, 9), 0.038f, 1e-6);
}

/* ---- survivors --------------------------------------------------------------------------- */

static const char *leave_out(struct membership *s, uint64_t lost) {
    const char *left_out;
    struct err err = {.text = ""};
    if (membership_leave_out(s, lost, &left_out, &err) != ST_OK)
        fail_msg("%s", err.text);
    return left_out;
}

static void a_lost_machine_is_left_out_with_all_that_was_its(void **state) {
    (void)state;
    struct lockstep_options opt;
    lockstep_options_init(&opt);
    opt.hosts = "[::1]:7000, b c\nb # a comment";
    opt.n_split = 4;
    for (int i = 0; i < 4; i++)
        opt.split[i] = i + 1;
    opt.parallel = "tensor2xpipeline2";
    opt.rdma_matrix = "[[null,\"a1\",\"a2\",\"a3\"],[\"b0\",null,\"b2\",\"b3\"],"
                      "[\"c0\",\"c1\",null,\"c3\"],[\"d0\",\"d1\",\"d2\",null]]";
    struct membership s;
    assert_int_equal(membership_init(&s, &opt, NULL), ST_OK);
    assert_string_equal(leave_out(&s, 1 << 3), "b");
    assert_string_equal(s.opt.hosts, "[::1]:7000,c");
    assert_int_equal(s.opt.n_ranks, 2);
    assert_int_equal(s.opt.n_split, 2);
    assert_true(s.opt.split[0] == 1 && s.opt.split[1] == 3);
    assert_null(s.opt.parallel);
    assert_string_equal(s.opt.rdma_matrix, "[[null,\"a2\"],[\"c0\",null]]");
    assert_string_equal(leave_out(&s, 1 << 1), "c");
    assert_null(s.opt.hosts);
    assert_null(s.opt.rdma_matrix);
    assert_int_equal(s.opt.n_ranks, 1);
    assert_null(leave_out(&s, 1));
    membership_deinit(&s);
}

static const char *take_back(struct membership *s, uint64_t which) {
    const char *back;
    struct err err = {.text = ""};
    if (membership_take_back(s, which, &back, &err) != ST_OK)
        fail_msg("%s", err.text);
    return back;
}

/* Whoever comes back has what it had, whatever the order in which machines go and come. */
static void a_machine_that_is_back_has_what_it_had(void **state) {
    (void)state;
    struct lockstep_options opt;
    lockstep_options_init(&opt);
    opt.hosts = "a:7000,b,c:7343,b,d";
    opt.n_split = 5;
    for (int i = 0; i < 5; i++)
        opt.split[i] = i + 1;
    opt.parallel = "tensor5xpipeline1";
    opt.rdma_matrix = "[[null,\"1\",null,null,null],[\"2\",null,null,null,null],"
                      "[null,null,null,\"3\",null],[null,null,\"4\",null,null],"
                      "[null,null,null,null,null]]";
    struct membership s;
    assert_int_equal(membership_init(&s, &opt, NULL), ST_OK);
    assert_null(take_back(&s, UINT64_MAX));
    assert_string_equal(leave_out(&s, 1 << 1), "b");
    assert_int_equal(s.machines_out, 1 << 1);
    assert_string_equal(leave_out(&s, 1 << 2), "d"); /* of a, c, d */
    assert_int_equal(s.machines_out, 1 << 1 | 1 << 4);
    assert_string_equal(s.left_out, "b, d");
    assert_string_equal(s.opt.hosts, "a:7000,c:7343");
    assert_null(take_back(&s, 1 << 2)); /* was never away */

    assert_string_equal(take_back(&s, 1 << 1), "b");
    assert_string_equal(s.opt.hosts, "a:7000,b,c:7343,b");
    assert_string_equal(s.left_out, "d");
    assert_true(s.opt.n_split == 4 && s.opt.n_ranks == 4);
    assert_true(s.opt.split[1] == 2 && s.opt.split[3] == 4);
    assert_null(s.opt.parallel);
    assert_string_equal(s.opt.rdma_matrix, "[[null,\"1\",null,null],[\"2\",null,null,null],"
                                           "[null,null,null,\"3\"],[null,null,\"4\",null]]");
    membership_keep(&s);

    /* It fails while d is tried, nobody knows why: d is out, b stays. */
    assert_string_equal(take_back(&s, 1 << 4), "d");
    assert_string_equal(s.opt.hosts, opt.hosts);
    assert_int_equal(s.opt.n_ranks, 5);
    assert_string_equal(s.opt.parallel, opt.parallel);
    assert_string_equal(s.opt.rdma_matrix, opt.rdma_matrix);
    assert_int_equal(s.opt.n_split, 5);
    assert_memory_equal(s.opt.split, opt.split, 5 * sizeof *opt.split);
    assert_string_equal(s.left_out, "");
    assert_string_equal(leave_out(&s, 0), "d");
    assert_string_equal(s.left_out, "d");
    assert_null(leave_out(&s, 0));

    /* Of two that are tried only the one that is known to be lost is out; then the other, if it
     * fails once more. */
    assert_string_equal(leave_out(&s, 1 << 2), "c");
    assert_string_equal(take_back(&s, 1 << 2 | 1 << 4), "c, d");
    assert_string_equal(leave_out(&s, 1 << 4), "d");
    assert_string_equal(s.left_out, "d");
    assert_string_equal(leave_out(&s, 0), "c");
    assert_string_equal(take_back(&s, 1 << 2 | 1 << 4), "c, d");
    assert_string_equal(leave_out(&s, 1 << 4), "d");
    membership_keep(&s);
    assert_null(leave_out(&s, 0));
    membership_deinit(&s);
}

static void what_can_come_back_stays(void **state) {
    (void)state;
    struct lockstep_options opt;
    lockstep_options_init(&opt);
    opt.n_ranks = 3;
    struct membership s;
    assert_int_equal(membership_init(&s, &opt, NULL), ST_OK); /* all of this machine */
    assert_null(leave_out(&s, 1 << 2));
    assert_int_equal(s.opt.n_ranks, 3);
    membership_deinit(&s);
    opt.hosts = "a,a,b";
    opt.parallel = "pipeline";
    opt.n_split = 2;
    assert_int_equal(membership_init(&s, &opt, NULL), ST_OK);
    assert_null(leave_out(&s, 1 << 1)); /* of this machine too */
    assert_null(leave_out(&s, 0));
    assert_string_equal(s.opt.hosts, "a,a,b");
    assert_string_equal(leave_out(&s, 1 << 2), "b");
    assert_string_equal(s.opt.hosts, "a,a");
    assert_string_equal(s.opt.parallel, "pipeline");
    assert_int_equal(s.opt.n_split, 0); /* not one share a rank: equal ones now */
    membership_deinit(&s);
    opt.hosts = "a,b,c,b,d"; /* two machines at once */
    opt.n_split = 0;
    assert_int_equal(membership_init(&s, &opt, NULL), ST_OK);
    assert_string_equal(leave_out(&s, 1 << 3 | 1 << 4 | 1 << 0), "b, d");
    assert_string_equal(s.opt.hosts, "a,c");
    membership_deinit(&s);
}

/* ---- the rejoin ------------------------------------------------------------------------- */

/* Seconds from one question to the next, while nobody answers. */
static double next_question(struct rejoin *l, int machine, double now) {
    double begin = now;
    while (rejoin_ask(l, now) == 0)
        now += 0.25;
    rejoin_hear(l, machine, false, now);
    return now - begin;
}

static void who_is_away_is_asked_ever_less_often(void **state) {
    (void)state;
    struct rejoin l;
    rejoin_init(&l, 2, 600);
    assert_int_equal(rejoin_ask(&l, 1e9), 0);
    rejoin_update(&l, 1 << 3, 100);
    assert_int_equal(rejoin_ask(&l, 101.9), 0);
    assert_int_equal(rejoin_ask(&l, 102), 1 << 3);
    assert_int_equal(rejoin_ask(&l, 1000), 0); /* its answer is due */
    rejoin_hear(&l, 3, false, 103);
    double now = 103, last = 2;
    for (int i = 0; i < 20; i++) {
        double wait = next_question(&l, 3, now);
        assert_true(wait >= last && wait < 1.5 * last + 0.5 && wait <= 60);
        last = wait;
        now += wait;
    }
    assert_float_equal(last, 60, 0);
    assert_int_equal(rejoin_take_in(&l, 0, now), 0);
}

/* Asked once more and then taken in, which fails: no answer is due any more, and it is asked
 * again. */
static void who_is_not_asked_any_more_owes_no_answer(void **state) {
    (void)state;
    struct rejoin l;
    rejoin_init(&l, 2, 600);
    rejoin_update(&l, 1 << 1 | 1 << 2, 100);
    assert_int_equal(rejoin_ask(&l, 102), 1 << 1 | 1 << 2);
    rejoin_drop(&l, 1 << 1);
    assert_int_equal(l.asked, 1 << 2);
    assert_int_equal(rejoin_ask(&l, 102), 1 << 1);
}

static void who_is_back_waits_for_a_quiet_moment_but_not_for_ever(void **state) {
    (void)state;
    struct rejoin l;
    rejoin_init(&l, 2, 600);
    l.pause_s = 200; /* five of them are more than 600 s */
    rejoin_update(&l, 1 << 1 | 1 << 2, 100);
    assert_int_equal(rejoin_ask(&l, 102), 1 << 1 | 1 << 2);
    assert_int_equal(rejoin_take_in(&l, 0, 102), 0);
    rejoin_hear(&l, 2, true, 102);
    assert_int_equal(rejoin_take_in(&l, 101, 102), 0);
    assert_int_equal(rejoin_take_in(&l, 100, 102), 1 << 2);
    assert_int_equal(rejoin_ask(&l, 103.5), 0);
    assert_int_equal(rejoin_ask(&l, 104), 1 << 2); /* still? */
    rejoin_hear(&l, 2, true, 112);
    rejoin_hear(&l, 1, true, 113);
    assert_int_equal(rejoin_take_in(&l, 701, 701), 0);
    assert_int_equal(rejoin_take_in(&l, 702, 702), 1 << 1 | 1 << 2);
    (void)rejoin_ask(&l, 703);
    rejoin_hear(&l, 2, false, 704); /* gone again */
    assert_int_equal(rejoin_take_in(&l, 0, 704), 1 << 1);
    rejoin_hear(&l, 1, false, 704);
    assert_int_equal(rejoin_take_in(&l, 0, 1e9), 0);
}

/* A model that opens in a second has its machines back within seconds, though something always
 * runs. */
static void who_is_back_waits_for_five_pauses(void **state) {
    (void)state;
    struct rejoin l;
    rejoin_init(&l, 2, 600);
    l.pause_s = 1;
    rejoin_update(&l, 1, 100);
    assert_int_equal(rejoin_ask(&l, 102), 1);
    rejoin_hear(&l, 0, true, 102);
    assert_int_equal(rejoin_take_in(&l, 106.5, 106.5), 0);
    assert_int_equal(rejoin_take_in(&l, 107, 107), 1);
}

/* Loses machine 0 and takes it in again `n` times, which stays for stays_s each time: how long
 * after each loss it is asked. */
static void come_and_go(double pause_s, double stays_s, const double *waits, size_t n) {
    struct rejoin l;
    rejoin_init(&l, 2, 600);
    l.pause_s = pause_s;
    double now = 100;
    for (size_t i = 0; i < n; i++) {
        rejoin_update(&l, 1, now);
        assert_int_equal(rejoin_ask(&l, now + waits[i] - 0.5), 0);
        now += waits[i];
        assert_int_equal(rejoin_ask(&l, now), 1);
        rejoin_hear(&l, 0, true, now);
        rejoin_update(&l, 0, now); /* is taken in, which may take hours */
        now += 10000;
        if (i % 2 == 1) { /* else lost before it takes part */
            rejoin_joined(&l, now);
            now += stays_s;
        }
    }
}

/* Lost while it is taken in, or soon after: asked ever later, in pauses; one that has stayed
 * begins anew. */
static void who_comes_only_to_go_is_asked_ever_later(void **state) {
    (void)state;
    static const double small[] = {2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600};
    static const double large[] = {2, 120, 240, 480, 960};
    static const double huge[] = {2, 2000, 3600}, stays[] = {2, 4, 2, 4, 2};
    come_and_go(0.1, 29, small, ARRAY_LEN(small));
    come_and_go(1, 29, small, ARRAY_LEN(small));
    come_and_go(1, 30, stays, ARRAY_LEN(stays));
    come_and_go(60, 599, large, ARRAY_LEN(large)); /* 20 pauses are more than ten minutes */
    come_and_go(1000, 599, huge, ARRAY_LEN(huge));
}

/* ---- a rank's job on its way ------------------------------------------------------------- */

static const struct job whole_job = {
    .model_path = "/models/a b.gguf",
    .rendezvous = "127.0.0.1:4000",
    .emulate = "latency=3us",
    .source = "[::1]:9",
    .token = {1, 2, 255},
    .rank = 3,
    .n_ranks = 6,
    .tp = 3,
    .pp = 2,
    .n_weights = 3,
    .weights = {1, 1.0 / 3, 1e-9},
    .placement = JOB_PLACE_SHARES,
    .link = FABRIC_LINK_UCX,
    .n_threads = 7,
    .n_ctx = 131072,
    .n_chunk = 512,
    .n_runs = 16,
    .n_pages = {100, 20},
    .kv_type = KV_N_TYPES - 1,
    .experts = EXPERTS_WHOLE,
    .silence_ms = 3000,
    .n_local = 2,
    .local_rank = 1,
};

static json_t *job_as_json(void) {
    struct err err;
    char *text;
    assert_int_equal(job_to_json(&whole_job, &text, &err), ST_OK);
    json_t *o = json_loads(text, 0, NULL);
    assert_non_null(o);
    free(text);
    return o;
}

static void job_arrives_as_it_was_sent(void **state) {
    (void)state;
    struct err err;
    struct job job;
    char *text;
    assert_int_equal(job_to_json(&whole_job, &text, &err), ST_OK);
    assert_int_equal(job_from_json(&job, text, strlen(text), &err), ST_OK);
    free(text);
    assert_string_equal(job.model_path, whole_job.model_path);
    assert_string_equal(job.rendezvous, whole_job.rendezvous);
    assert_string_equal(job.emulate, whole_job.emulate);
    assert_null(job.rdma);
    assert_string_equal(job.source, whole_job.source);
    assert_memory_equal(job.token, whole_job.token, sizeof job.token);
    assert_memory_equal(job.weights, whole_job.weights, sizeof job.weights);
    struct job numbers = whole_job;
    numbers.model_path = job.model_path;
    numbers.rendezvous = job.rendezvous;
    numbers.emulate = job.emulate;
    numbers.source = job.source;
    assert_memory_equal(&job, &numbers, sizeof job); /* no number is forgotten */
    job_deinit(&job);
}

/* Of what is sent every part is wanted, of its kind and within its range; the sentence names
 * it. */
static void job_that_makes_no_sense_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *name, *value;
    } bad[] = {
        {"rank", "-1"},
        {"rank", "6"},
        {"n_ranks", "65"},
        {"tp", "0"},
        {"pp", "1"},
        {"link", "99"},
        {"n_threads", "-1"},
        {"n_threads", "4096"},
        {"n_ctx", "0"},
        {"n_ctx", "1e3"},
        {"n_ctx", "99999999999"},
        {"n_chunk", "0"},
        {"n_runs", "0"},
        {"n_pages", "0"},
        {"n_window_pages", "-1"},
        {"kv_type", "-1"},
        {"kv_type", "77"},
        {"experts", "-1"},
        {"experts", "9"},
        {"silence_ms", "0"},
        {"n_local", "65"},
        {"local_rank", "2"},
        {"placement", "3"},
        {"model", "7"},
        {"rendezvous", "null"},
        {"emulate", "[]"},
        {"weights", "{}"},
        {"token", "\"00\""},
        {"token", "7"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err err;
        struct job job;
        json_t *o = job_as_json();
        json_object_set_new(o, bad[i].name, json_loads(bad[i].value, JSON_DECODE_ANY, NULL));
        char *text = json_dumps(o, JSON_COMPACT);
        json_decref(o);
        if (job_from_json(&job, text, strlen(text), &err) != ST_BAD_INPUT ||
            strstr(err.text, "makes no sense: ") == NULL)
            fail_msg("%s: %s", bad[i].name, bad[i].value);
        free(text);
    }
    json_t *o = job_as_json();
    const char *name;
    json_t *value;
    json_object_foreach(o, name, value) {
        struct err err;
        struct job job;
        json_t *less = json_copy(o);
        json_object_del(less, name);
        char *text = json_dumps(less, JSON_COMPACT);
        json_decref(less);
        enum status st = job_from_json(&job, text, strlen(text), &err);
        free(text);
        if (st == ST_OK) { /* a job without this is another one */
            assert_true(str_eq(name, "emulate") || str_eq(name, "source"));
            job_deinit(&job);
        } else {
            assert_int_equal(st, ST_BAD_INPUT);
            assert_non_null(strstr(err.text, name));
        }
    }
    json_decref(o);
}

/* ---- a worker and who started it --------------------------------------------------------- */

/* What a worker reads where its parent writes these bytes and then, if it is to, ends. */
static struct launch_wire wire_with(int *parent, const char *bytes, size_t n, bool ends) {
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(write(pair[0], bytes, n), n);
    *parent = pair[0];
    if (ends) {
        close(pair[0]);
        *parent = -1;
    }
    return (struct launch_wire){.in = pair[1], .out = pair[1]};
}

static void a_worker_tells_dismissal_from_death(void **state) {
    (void)state;
    static const struct {
        size_t n; /* bytes of "{}\0\0": a job, and a dismissal */
        bool ends;
        enum status job;
        enum launch_parent parent;
    } cases[] = {
        {3, false, ST_OK, PARENT_THERE}, {3, true, ST_OK, PARENT_GONE},
        {4, false, ST_OK, PARENT_DONE},  {4, true, ST_OK, PARENT_DONE},
        {2, true, ST_BAD_INPUT, 0},      {0, true, ST_BAD_INPUT, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int parent;
        char *text = NULL;
        size_t n = 0;
        struct err err;
        struct launch_wire w = wire_with(&parent, "{}\0", cases[i].n, cases[i].ends);
        assert_int_equal(launch_worker_job(&w, &text, &n, &err), cases[i].job);
        if (cases[i].job == ST_OK) {
            assert_int_equal(n, 2);
            assert_string_equal(text, "{}");
            for (int again = 0; again < 2; again++)
                assert_int_equal(launch_worker_parent(&w, 0), cases[i].parent);
        }
        mem_free(text);
        close(w.in);
        if (parent >= 0)
            close(parent);
    }
    int parent;
    struct launch_wire w = wire_with(&parent, "", 0, false);
    assert_int_equal(launch_worker_parent(&w, 0), PARENT_THERE);
    assert_int_equal(write(parent, "", 1), 1);
    close(parent);
    assert_int_equal(launch_worker_parent(&w, 60000), PARENT_DONE);
    close(w.in);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_in_pieces_ends_where_the_whole_does),
        cmocka_unit_test(without_stop_strings_nothing_is_held),
        cmocka_unit_test(what_followed_the_longest_match_is_guessed),
        cmocka_unit_test(a_period_goes_on),
        cmocka_unit_test(nothing_is_guessed_without_a_match),
        cmocka_unit_test(trust_follows_what_came_true),
        cmocka_unit_test(pieces_fit_what_streams_can_bear),
        cmocka_unit_test(the_first_pieces_are_small),
        cmocka_unit_test(hidden_pieces_do_not_leap),
        cmocka_unit_test(hiccups_make_pieces_smaller),
        cmocka_unit_test(rare_late_steps_are_borne),
        cmocka_unit_test(a_slower_machine_cancels_out),
        cmocka_unit_test(work_grows_with_the_context),
        cmocka_unit_test(usual_follows_the_streams),
        cmocka_unit_test(prompts_alone_come_in_large_steps),
        cmocka_unit_test(the_price_of_a_token_is_learnt),
        cmocka_unit_test(a_lost_machine_is_left_out_with_all_that_was_its),
        cmocka_unit_test(what_can_come_back_stays),
        cmocka_unit_test(a_machine_that_is_back_has_what_it_had),
        cmocka_unit_test(who_is_away_is_asked_ever_less_often),
        cmocka_unit_test(who_is_not_asked_any_more_owes_no_answer),
        cmocka_unit_test(who_is_back_waits_for_a_quiet_moment_but_not_for_ever),
        cmocka_unit_test(who_is_back_waits_for_five_pauses),
        cmocka_unit_test(who_comes_only_to_go_is_asked_ever_later),
        cmocka_unit_test(job_arrives_as_it_was_sent),
        cmocka_unit_test(job_that_makes_no_sense_is_refused),
        cmocka_unit_test(a_worker_tells_dismissal_from_death),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
