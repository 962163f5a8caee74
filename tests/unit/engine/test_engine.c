/* The engine: what a request's text is depends on nothing but the request. The reference is
 * lockstep_generate(), which knows one sequence and none of the engine's devices; every way of
 * running beside others, in pieces, again, from known pages and with guesses has to give the
 * same bytes. */
#include "engine_fixture.h"

/* ---- one text, whatever happens ------------------------------------------------------ */

static void alone(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.no_prefix_cache = cfg.no_speculation = true;
    struct engine *e = open_engine(&cfg);
    for (int i = 0; i < N_REQUESTS; i++) {
        call_run(e, &calls[i]);
        assert_same(&calls[i].out[0], &expected[i]);
        assert_int_equal(calls[i].out[0].done.n_cached, 0);
        assert_int_equal(calls[i].out[0].running, 1);
    }
    engine_close(e);
}

static void beside_fifteen_others_and_from_known_pages(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.no_speculation = true;
    struct engine *e = open_engine(&cfg);
    run_together(e);
    run_together(e);
    for (int i = 0; i < N_REQUESTS; i++) /* all full pages but the one with the last token */
        assert_int_equal(calls[i].out[0].done.n_cached,
                         (calls[i].req.n_ids - 1) / KV_PAGE * KV_PAGE);
    assert_int_equal(idle_stats_of(e).pages_used, 0);
    engine_close(e);
}

static void with_pieces_of_any_size(void **state) {
    (void)state;
    static const int sizes[] = {1, 7, 17, 300};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct engine_config cfg = plain_config();
        cfg.n_step_tokens = sizes[i];
        cfg.model.n_chunk = sizes[i];
        struct engine *e = open_engine(&cfg);
        run_together(e);
        engine_close(e);
    }
}

/* How many guesses are made is a matter of what steps cost here and now; of many, some are
 * right and some are not. */
static void with_guesses(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    struct engine_stats s = {0};
    run_together(e);
    for (int i = 0; i < 20 * N_REQUESTS && (s.accepted == 0 || s.accepted == s.speculated);
         i++) {
        struct call *c = &calls[i % N_REQUESTS];
        call_run(e, c);
        assert_same(&c->out[0], &expected[i % N_REQUESTS]);
        s = stats_of(e);
    }
    print_message("guesses: %llu, right: %llu\n", (unsigned long long)s.speculated,
                  (unsigned long long)s.accepted);
    assert_true(s.accepted > 0 && s.accepted < s.speculated);
    engine_close(e);
}

/* The smallest cache: eight pages for sixteen requests of up to six. How they meet is a matter
 * of what steps cost here and now; of many rounds, some have no page left for somebody. */
static void put_back_for_want_of_pages(void **state) {
    (void)state;
    for (int guesses = 0; guesses < 2; guesses++) {
        struct engine_config cfg = plain_config();
        cfg.no_speculation = guesses == 0;
        struct engine *e = open_engine(&cfg);
        size_t total = stats_of(e).pages_total;
        engine_close(e);
        /* 8 contexts of 8 pages by default. */
        assert_int_equal(total, 64);
        cfg.kv_memory_bytes =
            /* 2 layers, 2 kv heads of 32, K and V, f16 */
            8 * (size_t)KV_PAGE * 2 * 2 * 2 * 32 * 2;
        e = open_engine(&cfg);
        assert_int_equal(stats_of(e).pages_total, 8);
        struct engine_stats s = {0};
        for (int i = 0; i < 20 && s.preemptions == 0; i++) {
            run_together(e);
            s = idle_stats_of(e);
        }
        print_message("put back: %llu times\n", (unsigned long long)s.preemptions);
        assert_true(s.preemptions > 0);
        assert_int_equal(s.pages_used, 0);
        engine_close(e);
    }
}

/* Five requests that each come to need the whole cache. Whoever was put back is not forgotten:
 * until a request ends, it is among the running or the queued. It begins once, before its
 * tokens. */
static void put_back_again_and_again(void **state) {
    (void)state;
    struct lockstep *ls = open_lockstep(NULL);
    struct engine_config cfg = plain_config();
    cfg.kv_memory_bytes = 8 * (size_t)KV_PAGE * 2 * 2 * 2 * 32 * 2;
    struct engine *e = open_engine(&cfg);
    static struct call some[5];
    static struct output want;
    n_ended = 0;
    gate_close();
    for (int i = 0; i < 5; i++) {
        some[i] = calls[i];
        some[i].req.n_predict = 512 - (int)some[i].req.n_ids;
        call_submit(e, &some[i]);
    }
    gate_open();
    for (int i = 0; i < 5; i++) {
        call_wait(&some[i]);
        memset(&want, 0, sizeof want);
        lockstep_answer(ls, &some[i].req, &want);
        assert_same(&some[i].out[0], &want);
    }
    for (int i = 0; i < 5; i++) {
        assert_true(some[i].out[0].n_there >= 5 - some[i].place);
        assert_true(some[i].out[0].n_begun == 1 && some[i].n_begun == 1);
    }
    uint64_t n = idle_stats_of(e).preemptions;
    print_message("put back: %llu times\n", (unsigned long long)n);
    assert_true(n >= 4);
    lockstep_close(ls);
    engine_close(e);
}

static void on_several_threads(void **state) {
    (void)state;
    for (int n = 2; n <= 3; n++) {
        struct engine_config cfg = plain_config();
        cfg.model.n_threads = n;
        struct engine *e = open_engine(&cfg);
        run_together(e);
        engine_close(e);
    }
}

static void on_several_ranks(void **state) {
    (void)state;
    static const char *const parallel[] = {"tensor2", "pipeline2", "tensor3"};
    for (size_t i = 0; i < ARRAY_LEN(parallel); i++) {
        struct engine_config cfg = plain_config();
        cfg.model.n_ranks = i == 2 ? 3 : 2;
        cfg.model.parallel = i == 1 ? "pipeline" : "tensor";
        cfg.model.link = i == 2 ? "tcp" : "auto";
        struct engine *e = open_engine(&cfg);
        assert_string_equal(engine_model_info(e)->parallel, parallel[i]);
        run_together(e);
        assert_true(stats_of(e).fabric_s > 0);
        struct engine_rank_stats ranks[3];
        engine_rank_stats(e, ranks);
        for (int r = 0; r < cfg.model.n_ranks; r++)
            assert_true(ranks[r].compute_s > 0 && ranks[r].fabric_s > 0 &&
                        ranks[r].resident_bytes > 100000);
        engine_close(e);
    }
}

/* Experts that are chosen per token, latent attention, windows and sinks, quantized weights:
 * all of them beside others, in pieces, with guesses, in a small cache. */
static void of_every_kind_of_model(void **state) {
    (void)state;
    static const char *const names[] = {
        "logits/qwen3.gguf",
        "logits/llama-moe.gguf",
        "logits/qwen3moe.gguf",
        "logits/gpt-oss-f32.gguf",
        "logits/deepseek2-lite.gguf",
        "logits/gemma3.gguf",
        "logits/glm4moe.gguf",
        "logits/phi3.gguf",
        "quant-models/q-llama-q8_0.gguf",
        "quant-models/q-llama-Q4_K_M.gguf",
        "quant-models/q-qwen3moe-q4_0.gguf",
    };
    static struct call some[6];
    static struct output want[6];
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct lockstep *ls = open_model(names[i], NULL);
        for (int j = 0; j < 6; j++) {
            memset(&want[j], 0, sizeof want[j]);
            some[j] = calls[2 * j + 1];
            some[j].req.n_predict = 25;
            lockstep_answer(ls, &some[j].req, &want[j]);
        }
        lockstep_close(ls);
        struct engine_config cfg = plain_config();
        cfg.model.model_path = golden_path(names[i]);
        cfg.model.n_threads = 2;
        cfg.n_step_tokens = 50;
        struct engine *e = open_engine(&cfg);
        for (int round = 0; round < 2; round++) {
            for (int j = 0; j < 6; j++)
                call_submit(e, &some[j]);
            for (int j = 0; j < 6; j++)
                call_wait(&some[j]);
            for (int j = 0; j < 6; j++)
                assert_same(&some[j].out[0], &want[j]);
        }
        engine_close(e);
    }
}

/* gpt-oss: a window of 16 in one of two layers; Gemma 3: in five of six. In steps of 17 tokens
 * a sequence needs two pages of these layers at once, however long it is, and the reference,
 * which takes the prompt in one step, keeps them all. */
static struct engine *windowed;
static size_t most_used, most_windows_used;

static void note_pages(void *user, const struct engine_token *t) {
    struct engine_stats s = stats_of(windowed);
    most_used = MAX(most_used, s.pages_used);
    most_windows_used = MAX(most_windows_used, s.window_pages_used);
    on_token(user, t);
}

static void run_windowed(struct lockstep *ls, size_t n_prompt, int n_predict, size_t n_cached) {
    static struct call c;
    static struct output want;
    struct err err = {.text = ""};
    memset(&want, 0, sizeof want);
    memset(&c, 0, sizeof c);
    c.e = windowed;
    c.req = calls[13].req; /* the longest prompt, which is shortened */
    c.req.n_ids = n_prompt;
    c.req.n_predict = n_predict;
    c.req.on_token = note_pages;
    c.req.on_done = on_done;
    c.req.user = &c;
    lockstep_answer(ls, &c.req, &want);
    most_used = most_windows_used = 0;
    assert_int_equal(engine_submit(windowed, &c.req, &c.handle, &err), ST_OK);
    call_wait(&c);
    assert_same(&c.out[0], &want);
    assert_int_equal(c.out[0].done.n_cached, n_cached);
    assert_int_equal(idle_stats_of(windowed).window_pages_used, 0);
}

static void windows_give_their_pages_back(void **state) {
    (void)state;
    static const char *const names[] = {"logits/gpt-oss-f32.gguf", "logits/gemma3.gguf"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct lockstep *ls = open_model(names[i], NULL);
        struct engine_config cfg = plain_config();
        cfg.model.model_path = golden_path(names[i]);
        cfg.model.n_chunk = cfg.n_step_tokens = 17;
        windowed = open_engine(&cfg);
        assert_int_equal(stats_of(windowed).pages_total, 64);
        assert_int_equal(stats_of(windowed).window_pages_total, 16);
        run_windowed(ls, 300, 200, 0);
        assert_int_equal(most_used, 8);
        assert_int_equal(most_windows_used, 2);
        run_windowed(ls, 300, 20, 256); /* the windows' pages are there still */
        run_windowed(ls, 150, 20, 128); /* those in the middle too */
        engine_close(windowed);

        /* One context: of the prompt's pages, those of the windows were needed for what came. */
        struct lockstep_rank_info info;
        assert_int_equal(lockstep_rank_info(ls, 0, &info, NULL), LOCKSTEP_OK);
        cfg.kv_memory_bytes = info.kv_bytes - info.kv_window_bytes / 8 * 6; /* of 8 pages */
        windowed = open_engine(&cfg);
        assert_int_equal(stats_of(windowed).pages_total, 8);
        assert_int_equal(stats_of(windowed).window_pages_total, 2);
        run_windowed(ls, 300, 200, 0);
        run_windowed(ls, 300, 20, 0);
        run_windowed(ls, 300, 20, 256);
        engine_close(windowed);
        lockstep_close(ls);
    }
}

static void choices_are_requests_with_following_seeds(void **state) {
    (void)state;
    for (int off = 0; off < 2; off++) {
        struct engine_config cfg = plain_config();
        cfg.no_prefix_cache = off;
        struct engine *e = open_engine(&cfg);
        static struct call many, one;
        many = calls[13];
        many.req.sampling.base.temperature = 1.0f;
        one = many;
        many.req.n_choices = CHOICES;
        call_run(e, &many);
        for (int i = 0; i < CHOICES; i++) {
            one.req.sampling.base.seed = many.req.sampling.base.seed + (uint64_t)i;
            call_run(e, &one);
            assert_same(&many.out[i], &one.out[0]);
            if (i > 0 && !off)
                assert_int_equal(many.out[i].done.n_cached, (320 - 1) / 64 * 64);
        }
        engine_close(e);
    }
}

/* The context is full: the same end as lockstep_generate(). */
static void to_the_end_of_the_context(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.model.n_ctx = 130;
    struct engine *e = open_engine(&cfg);
    static struct call c;
    c = calls[5];
    c.req.n_predict = -1;
    call_run(e, &c);
    assert_int_equal(c.out[0].done.stop, ENGINE_STOP_LENGTH);
    assert_int_equal(c.out[0].n_ids, 130 - 127 + 1);
    assert_memory_equal(c.out[0].ids, expected[5].ids, c.out[0].n_ids * sizeof(int32_t));
    engine_close(e);
}

int main(int argc, char **argv) {
    if (is_worker(argc, argv))
        return lockstep_worker_main(argc - 1, argv + 1);
    golden_or_skip(MODEL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone),
        cmocka_unit_test(beside_fifteen_others_and_from_known_pages),
        cmocka_unit_test(with_pieces_of_any_size),
        cmocka_unit_test(with_guesses),
        cmocka_unit_test(put_back_for_want_of_pages),
        cmocka_unit_test(put_back_again_and_again),
        cmocka_unit_test(on_several_threads),
        cmocka_unit_test(on_several_ranks),
        cmocka_unit_test(of_every_kind_of_model),
        cmocka_unit_test(windows_give_their_pages_back),
        cmocka_unit_test(choices_are_requests_with_following_seeds),
        cmocka_unit_test(to_the_end_of_the_context),
    };
    return cmocka_run_group_tests(tests, make_expected, NULL);
}
