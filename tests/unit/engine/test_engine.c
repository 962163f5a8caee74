/* The engine: what a request's text is depends on nothing but the request. The reference is
 * lockstep_generate(), which knows one sequence and none of the engine's devices; every way of
 * running beside others, in pieces, again, from known pages and with guesses has to give the
 * same bytes. */
#include "base/clock.h"
#include "base/rng.h"
#include "base/util.h"
#include "engine/engine_internal.h"
#include "fixture.h"
#include "kernels/kernels.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL "logits/llama.gguf"
#define N_REQUESTS 16
#define N_PREDICT 60
#define N_VOCAB 288
#define CHOICES 4

/* ---- a call and what came of it ---------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int n_ended; /* calls, in order */

/* A closed gate holds the thread that is to pass it until the test opens it. */
struct gate {
    bool closed, reached;
};

static void close_gate(struct gate *g) {
    pthread_mutex_lock(&lock);
    *g = (struct gate){.closed = true};
    pthread_mutex_unlock(&lock);
}

static void open_gate(struct gate *g) {
    pthread_mutex_lock(&lock);
    g->closed = false;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_reached(struct gate *g) {
    pthread_mutex_lock(&lock);
    while (!g->reached)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void pass_gate(struct gate *g) {
    pthread_mutex_lock(&lock);
    g->reached = g->reached || g->closed;
    pthread_cond_broadcast(&changed);
    while (g->closed)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* Holds the engine in the next token's callback (which nobody else may do), so that what a test
 * submits meanwhile is there at once, however slowly the test gets on. */
static struct gate token_gate;

static void gate_close(void) {
    close_gate(&token_gate);
}

static void gate_open(void) {
    open_gate(&token_gate);
}

static void gate_wait_reached(void) {
    wait_reached(&token_gate);
}

static void gate_pass(void) {
    pass_gate(&token_gate);
}

struct output {
    int32_t ids[1024];
    size_t n_ids;
    char text[16384];
    size_t n_text;
    float logprobs[1024];
    struct engine_top tops[1024][3];
    struct engine_done done;
    char stop_string[64], error[512];
    int running; /* requests, by the engine's figures when the first token came */
    int n_there; /* running and queued, by these when the last one came */
};

struct call {
    struct engine *e;
    struct engine_request_handle *handle;
    struct engine_request req;
    struct output out[CHOICES];
    size_t cancel_at; /* after so many tokens; 0: never */
    bool over;
    int place; /* among the calls that ended */
    float embedding[512];
};

static struct engine_stats stats_of(struct engine *e) {
    struct engine_stats s;
    engine_stats(e, &s);
    return s;
}

static void on_token(void *user, const struct engine_token *t) {
    struct call *c = user;
    struct output *o = &c->out[t->choice];
    gate_pass();
    struct engine_stats s = stats_of(c->e);
    if (o->n_ids == 0)
        o->running = s.running;
    o->n_there = s.running + s.queued;
    o->logprobs[o->n_ids] = t->logprob;
    for (int i = 0; i < MIN(t->n_top, 3); i++)
        o->tops[o->n_ids][i] = t->top[i];
    o->ids[o->n_ids++] = t->id;
    memcpy(o->text + o->n_text, t->text, t->len);
    o->n_text += t->len;
    if (c->cancel_at != 0 && o->n_ids == c->cancel_at)
        engine_cancel(c->e, c->handle);
}

static void on_done(void *user, const struct engine_done *d) {
    struct call *c = user;
    struct output *o = &c->out[d->choice];
    o->done = *d;
    snprintf(o->stop_string, sizeof o->stop_string, "%s",
             d->stop_string != NULL ? d->stop_string : "");
    snprintf(o->error, sizeof o->error, "%s", d->error != NULL ? d->error : "");
    if (!d->last)
        return;
    pthread_mutex_lock(&lock);
    c->over = true;
    c->place = n_ended++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void on_embedding(void *user, const float *v, size_t n) {
    memcpy(((struct call *)user)->embedding, v, n * sizeof *v);
}

static void call_submit(struct engine *e, struct call *c) {
    struct err err = {.text = ""};
    c->e = e;
    c->req.on_token = on_token;
    c->req.on_done = on_done;
    c->req.on_embedding = on_embedding;
    c->req.user = c;
    memset(c->out, 0, sizeof c->out);
    c->over = false;
    assert_int_equal(engine_submit(e, &c->req, &c->handle, &err), ST_OK);
}

static void call_wait(struct call *c) {
    pthread_mutex_lock(&lock);
    while (!c->over)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void call_run(struct engine *e, struct call *c) {
    call_submit(e, c);
    call_wait(c);
}

/* ---- engines ----------------------------------------------------------------------------- */

static const char *this_program(void) {
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    assert_true(n > 0);
    path[n] = '\0';
    return path;
}

static struct engine_config plain_config(void) {
    struct engine_config cfg;
    engine_config_init(&cfg);
    cfg.model.model_path = golden_path(MODEL);
    cfg.model.worker_path = this_program();
    cfg.model.n_threads = 1;
    cfg.model.n_ctx = 512;
    cfg.n_running_max = 16;
    return cfg;
}

static struct engine *open_engine(const struct engine_config *cfg) {
    struct engine *e = NULL;
    struct err err = {.text = ""};
    if (engine_open(&e, cfg, &err) != ST_OK)
        fail_msg("%s", err.text);
    return e;
}

/* Once the thread has shown what is after the last request. */
static struct engine_stats idle_stats_of(struct engine *e) {
    struct engine_stats s = stats_of(e);
    for (int i = 0; i < 20000 && (s.running > 0 || s.pages_used > 0); i++) {
        usleep(1000);
        s = stats_of(e);
    }
    return s;
}

/* ---- the sixteen requests ---------------------------------------------------------------- */

static int32_t prompts[N_REQUESTS][400];
static struct call calls[N_REQUESTS];
static struct output expected[N_REQUESTS];

/* Lengths around the borders of pages; half of them share a beginning; two are the same. */
static void make_calls(void) {
    static const size_t lengths[N_REQUESTS] = {1,   5,   63,  64,  65,  127, 128, 129,
                                               150, 200, 200, 257, 300, 320, 100, 90};
    for (int i = 0; i < N_REQUESTS; i++) {
        for (size_t j = 0; j < lengths[i]; j++)
            prompts[i][j] =
                (int32_t)(rng_u64(i % 2 == 0 && j < 140 ? 99 : (uint64_t)i, j) % 256);
        memset(&calls[i], 0, sizeof calls[i]);
        struct engine_request *r = &calls[i].req;
        engine_request_init(r);
        r->ids = prompts[i];
        r->n_ids = lengths[i];
        r->n_predict = N_PREDICT;
        r->ignore_end = true;
        r->client = (uint64_t)i % 3;
        r->sampling.base.seed = (uint64_t)i * 77;
        /* Greedy ones run into loops, which can be guessed. */
        r->sampling.base.temperature = i % 3 == 0 ? 0.0f : 0.3f * (float)(i % 4 + 1);
        if (i % 5 == 1)
            r->sampling.base.repeat_penalty = 1.2f;
        if (i % 5 == 2)
            r->sampling.base.top_k = 0;
    }
}

struct collected {
    int32_t ids[1024];
    char text[16384];
    size_t n_ids, n_text;
};

static bool collect(void *user, int32_t id, const char *text, size_t len) {
    struct collected *c = user;
    c->ids[c->n_ids++] = id;
    memcpy(c->text + c->n_text, text, len);
    c->n_text += len;
    return true;
}

static struct lockstep *open_model(const char *name, const char *kv) {
    struct lockstep_options opt;
    lockstep_options_init(&opt);
    opt.model_path = golden_path(name);
    opt.n_ctx = 512;
    opt.n_threads = 1;
    opt.kv = kv;
    struct lockstep *ls = NULL;
    struct lockstep_error err = {.text = ""};
    if (lockstep_open(&ls, &opt, &err) != LOCKSTEP_OK)
        fail_msg("%s", err.text);
    return ls;
}

static struct lockstep *open_lockstep(const char *kv) {
    return open_model(MODEL, kv);
}

static void lockstep_answer(struct lockstep *ls, const struct engine_request *r,
                            struct output *out) {
    static struct collected c;
    memset(&c, 0, sizeof c);
    struct lockstep_request req;
    lockstep_request_init(&req);
    req.ids = r->ids;
    req.n_ids = r->n_ids;
    req.n_predict = r->n_predict;
    req.ignore_end = r->ignore_end;
    req.sampling = r->sampling.base;
    req.on_token = collect;
    req.user = &c;
    lockstep_reset(ls);
    assert_int_equal(lockstep_generate(ls, &req, NULL, NULL), LOCKSTEP_OK);
    memcpy(out->ids, c.ids, sizeof c.ids);
    memcpy(out->text, c.text, sizeof c.text);
    out->n_ids = c.n_ids;
    out->n_text = c.n_text;
}

static int make_expected(void **state) {
    (void)state;
    make_calls();
    struct lockstep *ls = open_lockstep(NULL);
    for (int i = 0; i < N_REQUESTS; i++)
        lockstep_answer(ls, &calls[i].req, &expected[i]);
    lockstep_close(ls);
    return 0;
}

static void assert_same(const struct output *a, const struct output *b) {
    assert_int_equal(a->n_ids, b->n_ids);
    assert_memory_equal(a->ids, b->ids, a->n_ids * sizeof *a->ids);
    /* The last piece of text (half a character) is let out at the end by the engine only. */
    assert_true(a->n_text >= b->n_text);
    assert_memory_equal(a->text, b->text, b->n_text);
}

/* One request alone gets what it is to get. */
static void assert_answers(struct engine *e) {
    call_run(e, &calls[3]);
    assert_same(&calls[3].out[0], &expected[3]);
}

static void assert_machines(const struct engine_stats *s, int n_ranks, const char *left_out) {
    assert_int_equal(s->n_ranks, n_ranks);
    assert_string_equal(s->left_out, left_out);
}

static void run_together(struct engine *e) {
    gate_close();
    for (int i = 0; i < N_REQUESTS; i++)
        call_submit(e, &calls[i]);
    gate_open();
    for (int i = 0; i < N_REQUESTS; i++)
        call_wait(&calls[i]);
    for (int i = 0; i < N_REQUESTS; i++) {
        assert_int_equal(calls[i].out[0].done.stop, ENGINE_STOP_LENGTH);
        assert_same(&calls[i].out[0], &expected[i]);
    }
}

/* ---- one text, whatever happens ---------------------------------------------------------- */

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
 * until a request ends, it is among the running or the queued. */
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
    for (int i = 0; i < 5; i++)
        assert_true(some[i].out[0].n_there >= 5 - some[i].place);
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

/* ---- turns, limits, ends ----------------------------------------------------------------- */

/* One slot, taken while the others are submitted: nine of client 1, then one of client 2.
 * Whoever has not been served comes first; after that they alternate. */
static void clients_take_turns(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.n_running_max = 1;
    struct engine *e = open_engine(&cfg);
    static struct call many[9], other[2];
    n_ended = 0;
    gate_close();
    for (int i = 0; i < 9; i++) {
        many[i] = calls[0];
        many[i].req.client = 1;
        call_submit(e, &many[i]);
        if (i == 0)
            gate_wait_reached();
    }
    for (int i = 0; i < 2; i++) {
        other[i] = calls[0];
        other[i].req.client = 2;
        call_submit(e, &other[i]);
    }
    gate_open();
    for (int i = 0; i < 9; i++)
        call_wait(&many[i]);
    for (int i = 0; i < 2; i++) {
        call_wait(&other[i]);
        assert_int_equal(other[i].place, 1 + 2 * i);
    }
    for (int i = 1; i < 9; i++) /* in the order of their submission */
        assert_int_equal(many[i].place, i == 1 ? 2 : i + 2);
    engine_close(e);
}

static void the_queue_is_bounded(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.n_running_max = 1;
    cfg.n_queue_max = 2;
    struct engine *e = open_engine(&cfg);
    static struct call some[3];
    gate_close();
    for (int i = 0; i < 3; i++) {
        some[i] = calls[0];
        some[i].req.n_predict = 400;
        some[i].cancel_at = 30;
        call_submit(e, &some[i]);
        if (i == 0)
            gate_wait_reached(); /* it runs, and does not wait */
    }
    struct err err = {.text = ""};
    assert_int_equal(engine_submit(e, &calls[0].req, NULL, &err), ST_AGAIN);
    assert_true(strlen(err.text) > 0);
    gate_open();
    for (int i = 0; i < 3; i++) {
        call_wait(&some[i]);
        assert_int_equal(some[i].out[0].done.stop, ENGINE_STOP_CANCELLED);
    }
    call_run(e, &calls[0]);
    engine_close(e);
}

static void cancelled_within_a_step(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.no_speculation = true;
    struct engine *e = open_engine(&cfg);
    static struct call c;
    c = calls[2];
    c.cancel_at = 3;
    call_run(e, &c);
    assert_int_equal(c.out[0].done.stop, ENGINE_STOP_CANCELLED);
    assert_int_equal(c.out[0].n_ids, 3);
    assert_int_equal(idle_stats_of(e).pages_used, 0);
    engine_close(e);
}

static void *close_engine(void *e) {
    engine_close(e);
    return NULL;
}

static void closing_ends_everything(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.n_running_max = 2;
    struct engine *e = open_engine(&cfg);
    gate_close();
    for (int i = 0; i < N_REQUESTS; i++)
        call_submit(e, &calls[i]);
    gate_wait_reached();
    pthread_t closer;
    assert_int_equal(pthread_create(&closer, NULL, close_engine, e), 0);
    for (bool closing = false; !closing; usleep(100)) {
        pthread_mutex_lock(&e->lock);
        closing = e->closing;
        pthread_mutex_unlock(&e->lock);
    }
    gate_open();
    pthread_join(closer, NULL);
    for (int i = 0; i < N_REQUESTS; i++) {
        assert_true(calls[i].over);
        assert_int_equal(calls[i].out[0].done.stop, ENGINE_STOP_CANCELLED);
    }
}

static void bad_requests_are_refused_with_a_sentence(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    struct engine_request good = calls[0].req, bad[12];
    int32_t outside = N_VOCAB;
    const char *empty_stop = "";
    struct engine_bias bias = {.id = -1};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        bad[i] = good;
    bad[0].n_ids = 0;
    bad[1].n_ids = 512;
    bad[1].ids = calls[12].req.ids;
    bad[2].ids = &outside;
    bad[3].sampling.base.temperature = NAN;
    bad[4].sampling.base.top_p = 0;
    bad[5].sampling.typical_p = -1;
    bad[6].n_choices = 0;
    bad[7].n_top = 21;
    bad[8].stops = &empty_stop;
    bad[8].n_stops = 1;
    bad[9].sampling.biases = &bias;
    bad[9].sampling.n_biases = 1;
    bad[10].n_predict = -2;
    bad[11].sampling.presence_penalty = INFINITY;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err err = {.text = ""};
        assert_int_equal(engine_submit(e, &bad[i], NULL, &err), ST_BAD_INPUT);
        assert_true(strlen(err.text) > 10);
    }
    assert_int_equal(stats_of(e).queued, 0);
    engine_close(e);
    cfg.kv_memory_bytes = 1000;
    struct err err = {.text = ""};
    assert_int_equal(engine_open(&e, &cfg, &err), ST_BAD_INPUT);
    assert_non_null(strstr(err.text, "context"));
}

/* Kills a rank of two under eight requests: everybody hears it, and why. Seconds till the last
 * did. */
static double lose_a_rank(void) {
    struct engine_config cfg = plain_config();
    cfg.model.n_ranks = 2;
    cfg.n_running_max = 4;
    cfg.no_speculation = true;
    struct engine *e = open_engine(&cfg);
    static struct call some[8];
    gate_close();
    for (int i = 0; i < 8; i++) {
        some[i] = calls[0];
        some[i].req.n_predict = -1;
        some[i].req.client = (uint64_t)i;
        call_submit(e, &some[i]);
    }
    gate_wait_reached();
    kill(engine_rank_pid(e, 1), SIGKILL);
    double began = clock_s();
    gate_open();
    for (int i = 0; i < 8; i++)
        call_wait(&some[i]);
    double took = clock_s() - began;
    for (int i = 0; i < 8; i++) {
        assert_int_equal(some[i].out[0].done.stop, ENGINE_STOP_ERROR);
        assert_int_equal(some[i].out[0].done.st, ST_PEER_LOST);
        assert_non_null(strstr(some[i].out[0].error, "rank 1"));
    }
    while (stats_of(e).healthy)
        usleep(1000);
    assert_non_null(strstr(stats_of(e).why, "rank 1"));
    print_message("%.3f s, why: %s\n", took, stats_of(e).why);
    struct err err = {.text = ""};
    assert_int_equal(engine_submit(e, &calls[0].req, NULL, &err), ST_PEER_LOST);
    engine_close(e);
    return took;
}

/* Within a second; a machine that is busy with something else gets more than one try. */
static void a_lost_rank_ends_every_request(void **state) {
    (void)state;
    double best = INFINITY;
    for (int i = 0; i < 4 && best > 1.0; i++)
        best = fmin(best, lose_a_rank());
    assert_true(best < 1.0);
}

#ifdef __linux__
static atomic_bool wall_goes_back;

/* In place of the C library's: with wall_goes_back somebody sets the wall's clock back by an
 * hour whenever it was read. */
int clock_gettime(clockid_t id, struct timespec *t) {
    int rc = (int)syscall(SYS_clock_gettime, id, t);
    if (id == CLOCK_REALTIME && atomic_load(&wall_goes_back))
        t->tv_sec += 3600;
    return rc;
}
#endif

/* Nobody asks anything, and still it shows. */
static void a_rank_lost_at_rest_is_noticed(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.model.n_ranks = 2;
    struct engine *e = open_engine(&cfg);
    call_run(e, &calls[0]);
    kill(engine_rank_pid(e, 1), SIGKILL);
    for (int i = 0; i < 500 && stats_of(e).healthy; i++)
        usleep(10000);
    assert_false(stats_of(e).healthy);
    assert_non_null(strstr(stats_of(e).why, "rank 1"));
    engine_close(e);
}

static void a_clock_that_is_set_back_lets_nobody_sleep(void **state) {
#ifdef __linux__
    atomic_store(&wall_goes_back, true);
    a_rank_lost_at_rest_is_noticed(state);
    atomic_store(&wall_goes_back, false);
#else
    (void)state;
    skip(); /* a libc whose clock cannot be replaced */
#endif
}

/* ---- failover ---------------------------------------------------------------------------- */

/* Kills a rank after some time, once those of the last loss are there again. */
static void lose(struct engine *e, int rank, useconds_t after_us) {
    struct engine_stats s = stats_of(e);
    while (s.recovering) {
        usleep(1000);
        s = stats_of(e);
    }
    usleep(after_us);
    kill(engine_rank_pid(e, rank), SIGKILL);
}

static void wait_for_recovery(struct engine *e, uint64_t n) {
    while (stats_of(e).recoveries < n && stats_of(e).healthy)
        usleep(1000);
    assert_int_equal(stats_of(e).recoveries, n);
    assert_true(stats_of(e).healthy);
}

/* Under way, in the middle of prompts or of answers: every answer is what it would have been. */
static void answers_go_on_when_ranks_are_lost(void **state) {
    (void)state;
    static const char *const parallel[] = {"tensor", "pipeline", "tensor"};
    for (size_t i = 0; i < ARRAY_LEN(parallel); i++) {
        struct engine_config cfg = plain_config();
        cfg.model.n_ranks = i == 0 ? 3 : 2;
        cfg.model.parallel = parallel[i];
        cfg.model.link = i == 2 ? "tcp" : "auto";
        cfg.model.failover = true;
        struct engine *e = open_engine(&cfg);
        for (uint64_t n = 1; n <= 4; n++) {
            gate_close();
            for (int k = 0; k < N_REQUESTS; k++)
                call_submit(e, &calls[k]);
            gate_wait_reached();
            if (n % 2 == 0) { /* once in the middle of an answer, once at any time later */
                gate_open();
                lose(e, 1, (useconds_t)(n * 3000));
            } else {
                lose(e, cfg.model.n_ranks - 1, 0);
                gate_open();
            }
            for (int k = 0; k < N_REQUESTS; k++) {
                call_wait(&calls[k]);
                assert_int_equal(calls[k].out[0].done.stop, ENGINE_STOP_LENGTH);
                assert_same(&calls[k].out[0], &expected[k]);
            }
            wait_for_recovery(e, n);
            assert_int_equal(stats_of(e).n_ranks, cfg.model.n_ranks);
        }
        struct engine_stats s = idle_stats_of(e);
        assert_int_equal(s.pages_used, 0);
        engine_close(e);
    }
}

static void a_rank_lost_at_rest_comes_back(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.model.n_ranks = 2;
    cfg.model.failover = true;
    struct engine *e = open_engine(&cfg);
    call_run(e, &calls[3]);
    lose(e, 1, 0);
    wait_for_recovery(e, 1);
    assert_answers(e);
    engine_close(e);
}

/* At rest a loss has nothing to do with the one before if the ranks have lived for a while in
 * between, however many there are in how short a time. */
static void ranks_lost_at_rest_again_and_again_come_back(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.model.n_ranks = 2;
    cfg.model.failover = true;
    struct engine *e = open_engine(&cfg);
    for (uint64_t n = 1; n <= RECOVERY_TRIES + 2; n++) {
        double began = clock_s();
        lose(e, 1, 0);
        wait_for_recovery(e, n);
        double took = clock_s() - began; /* more than to open it */
        usleep((useconds_t)(took * 1e6));
    }
    assert_answers(e);
    engine_close(e);
}

/* A wire that dies in the middle of the prompt, whenever that is computed: at last everybody
 * hears why. */
static void a_loss_at_the_same_place_ends_it(void **state) {
    (void)state;
    static struct call c;
    struct engine_config cfg = plain_config();
    int32_t ids[400];
    cfg.model.n_ranks = 2;
    cfg.model.failover = true;
    /* To form takes less than half of these messages, and the prompt more of them. */
    cfg.model.emulate_link = "dead=80";
    cfg.model.n_chunk = 17;
    cfg.n_step_tokens = 17;
    struct engine *e = open_engine(&cfg);
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        ids[i] = (int32_t)(i % 50 + 3);
    c = calls[0];
    c.req.ids = ids;
    c.req.n_ids = ARRAY_LEN(ids);
    call_run(e, &c);
    assert_int_equal(c.out[0].done.stop, ENGINE_STOP_ERROR);
    assert_non_null(strstr(c.out[0].error, "died after 80 messages"));
    assert_int_equal(c.out[0].n_ids, 0);
    assert_int_equal(stats_of(e).recoveries, RECOVERY_TRIES);
    engine_close(e);
}

/* Ranks that cannot come back: after some tries everybody hears why. */
static void a_recovery_that_fails_says_so(void **state) {
    (void)state;
    char worker[] = "/tmp/lockstep-worker-XXXXXX";
    int fd = mkstemp(worker);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(unlink(worker), 0);
    assert_int_equal(symlink(this_program(), worker), 0);
    struct engine_config cfg = plain_config();
    cfg.model.n_ranks = 2;
    cfg.model.worker_path = worker;
    cfg.model.failover = true;
    struct engine *e = open_engine(&cfg);
    assert_int_equal(unlink(worker), 0);
    static struct call c;
    c = calls[0];
    gate_close();
    call_submit(e, &c);
    gate_wait_reached();
    lose(e, 1, 0);
    gate_open();
    call_wait(&c);
    assert_int_equal(c.out[0].done.stop, ENGINE_STOP_ERROR);
    assert_non_null(strstr(c.out[0].error, worker));
    while (stats_of(e).healthy)
        usleep(1000);
    assert_non_null(strstr(stats_of(e).why, worker));
    engine_close(e);
}

/* ---- machines that come back ------------------------------------------------------------- */

/* Machines that are all this one. An ssh that goes nowhere reaches them, unless a file beside
 * it says that the machine is off; where one says that it is broken, it answers, but no rank
 * lives there; one that hangs never answers, and the file gets the pid of whoever waits. */
struct machines {
    char dir[64], ssh[128];
};

static void set_machine(const struct machines *m, const char *host, const char *what, bool is) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s-%s", m->dir, what, host);
    if (!is) {
        assert_int_equal(unlink(path), 0);
        return;
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
}

static void machines_begin(struct machines *m) {
    static const char script[] =
        "#!/bin/sh\n"
        "host=$1\n"
        "shift\n"
        "[ ! -e \"${0%/*}/off-$host\" ] || exit 255\n"
        "hung=${0%/*}/hung-$host\n"
        "[ ! -e \"$hung\" ] || { echo $$ >\"$hung\"; exec sleep 1000; }\n"
        "[ \"$2\" != --version ] || exit 0\n"
        "[ ! -e \"${0%/*}/broken-$host\" ] || exit 1\n"
        "exec sh -c \"$*\"\n";
    snprintf(m->dir, sizeof m->dir, "/tmp/lockstep-machines-XXXXXX");
    assert_non_null(mkdtemp(m->dir));
    snprintf(m->ssh, sizeof m->ssh, "%s/ssh", m->dir);
    FILE *f = fopen(m->ssh, "w");
    assert_non_null(f);
    fputs(script, f);
    assert_int_equal(fchmod(fileno(f), 0700), 0);
    fclose(f);
    setenv("LOCKSTEP_SSH", m->ssh, 1);
}

static void machines_end(const struct machines *m) {
    unsetenv("LOCKSTEP_SSH");
    assert_int_equal(unlink(m->ssh), 0);
    assert_int_equal(rmdir(m->dir), 0);
}

static struct engine_config three_machines(void) {
    struct engine_config cfg = plain_config();
    cfg.model.hosts = "127.0.0.1,127.0.0.2,127.0.0.3";
    cfg.model.n_split = 3;
    for (int i = 0; i < 3; i++)
        cfg.model.split[i] = 3 - i;
    cfg.model.failover = true;
    cfg.rejoin_idle_s = 0.2;
    return cfg;
}

static void wait_for_rejoin(struct engine *e, uint64_t n) {
    while (stats_of(e).rejoins < n && stats_of(e).healthy)
        usleep(1000);
    assert_int_equal(stats_of(e).rejoins, n);
    assert_true(stats_of(e).healthy);
}

/* Whether a child of this process has ended; it stays until this process asks for it. */
static bool has_ended(pid_t pid) {
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f != NULL) {
        (void)!fscanf(f, "%*d (%*[^)]) %c", &state);
        fclose(f);
    }
    return state == 'Z';
}

/* Stops this process until the others have given it up and ended, 30 s at most. */
static void stand_still(struct engine *e, int n_ranks) {
    pid_t me = getpid(), others[3];
    for (int i = 1; i < n_ranks; i++)
        others[i] = engine_rank_pid(e, i);
    pid_t helper = fork();
    assert_true(helper >= 0);
    if (helper == 0) {
        kill(me, SIGSTOP);
        for (int ms = 0, i = 1; ms < 30000 && i < n_ranks; ms += 10, usleep(10000))
            i += has_ended(others[i]);
        kill(me, SIGCONT);
        _exit(0);
    }
    assert_int_equal(waitpid(helper, NULL, 0), helper);
}

/* Rank 0 was stopped, and its machines have given it up: nothing is wrong with them, and all
 * take part again. */
static void a_server_that_stood_still_goes_on_with_all(void **state) {
    (void)state;
    struct machines m;
    machines_begin(&m);
    struct engine_config cfg = three_machines();
    struct engine *e = open_engine(&cfg);
    stand_still(e, 3);
    wait_for_recovery(e, 1);
    struct engine_stats s = stats_of(e);
    assert_machines(&s, 3, "");
    assert_int_equal(s.rejoins, 0);
    assert_answers(e);
    engine_close(e);
    machines_end(&m);
}

/* Nothing runs: who is off is left out; who is back takes part again. One of two at first, and
 * then the other. */
static void a_machine_that_is_back_takes_part_again(void **state) {
    (void)state;
    struct machines m;
    machines_begin(&m);
    struct engine_config cfg = three_machines();
    struct engine *e = open_engine(&cfg);
    assert_int_equal(stats_of(e).n_ranks, 3);
    assert_string_equal(stats_of(e).left_out, "");
    set_machine(&m, "127.0.0.2", "off", true);
    set_machine(&m, "127.0.0.3", "off", true);
    lose(e, 1, 0);
    wait_for_recovery(e, 1); /* which finds that the other is off, too */
    struct engine_stats s = stats_of(e);
    assert_machines(&s, 1, "127.0.0.2, 127.0.0.3");
    assert_answers(e);
    set_machine(&m, "127.0.0.3", "off", false);
    wait_for_rejoin(e, 1);
    s = stats_of(e);
    assert_machines(&s, 2, "127.0.0.2");
    call_run(e, &calls[4]);
    assert_same(&calls[4].out[0], &expected[4]);
    set_machine(&m, "127.0.0.2", "off", false);
    wait_for_rejoin(e, 2);
    s = stats_of(e);
    assert_machines(&s, 3, "");
    call_run(e, &calls[5]);
    assert_same(&calls[5].out[0], &expected[5]);
    engine_close(e);
    machines_end(&m);
}

/* Something always runs, and nobody can tell from the answers that somebody came in between. */
static void a_machine_comes_back_in_the_middle_of_answers(void **state) {
    (void)state;
    struct machines m;
    machines_begin(&m);
    struct engine_config cfg = three_machines();
    cfg.rejoin_idle_s = INFINITY;
    cfg.rejoin_latest_s = 0;
    struct engine *e = open_engine(&cfg);
    lose(e, 2, 0);
    for (int i = 0; i < N_REQUESTS; i++)
        call_submit(e, &calls[i]);
    uint64_t n = 0;
    do {
        n = stats_of(e).rejoins; /* once more after it */
        for (int i = 0; i < N_REQUESTS; i++) {
            call_wait(&calls[i]);
            assert_same(&calls[i].out[0], &expected[i]);
            call_submit(e, &calls[i]);
        }
    } while (n == 0 && stats_of(e).healthy);
    for (int i = 0; i < N_REQUESTS; i++) {
        call_wait(&calls[i]);
        assert_same(&calls[i].out[0], &expected[i]);
    }
    assert_int_equal(stats_of(e).n_ranks, 3);
    engine_close(e);
    machines_end(&m);
}

/* It answers, but no rank lives there: one pause, and the others go on. */
static void a_machine_that_only_seems_to_be_back_is_done_without(void **state) {
    (void)state;
    struct machines m;
    machines_begin(&m);
    struct engine_config cfg = three_machines();
    struct engine *e = open_engine(&cfg);
    set_machine(&m, "127.0.0.3", "broken", true);
    lose(e, 2, 0);
    wait_for_recovery(e, 2); /* without it, and without it again */
    struct engine_stats s = stats_of(e);
    assert_machines(&s, 2, "127.0.0.3");
    assert_int_equal(s.rejoins, 0);
    assert_answers(e);
    engine_close(e);
    set_machine(&m, "127.0.0.3", "broken", false);
    machines_end(&m);
}

/* Whoever asks ends with the engine. */
static void a_machine_that_hangs_holds_nobody_up(void **state) {
    (void)state;
    struct machines m;
    machines_begin(&m);
    struct engine_config cfg = three_machines();
    struct engine *e = open_engine(&cfg);
    set_machine(&m, "127.0.0.2", "hung", true);
    lose(e, 1, 0);
    char path[256];
    int pid = 0;
    snprintf(path, sizeof path, "%s/hung-127.0.0.2", m.dir);
    while (pid == 0) {
        assert_answers(e);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        if (fscanf(f, "%d", &pid) != 1)
            pid = 0;
        fclose(f);
    }
    assert_int_equal(kill(pid, 0), 0);
    engine_close(e);
    assert_int_equal(kill(pid, 0), -1);
    set_machine(&m, "127.0.0.2", "hung", false);
    machines_end(&m);
}

/* Eight threads, each with one request after the other: answers, embeddings, several choices,
 * cancelled at any moment or never, in a cache that is too small. What came is always a
 * beginning of what is due. */
#define STORM_THREADS 8
#define STORM_ROUNDS 25

struct storm {
    struct engine *e;
    uint64_t seed;
    pthread_t thread;
    struct call call;
    int n_cancelled, n_whole, n_wrong;
};
static atomic_int n_storming; /* threads */

/* The handle is good as long as on_done has not come. */
static void cancel_if_running(struct call *c) {
    pthread_mutex_lock(&lock);
    if (!c->over)
        engine_cancel(c->e, c->handle);
    pthread_mutex_unlock(&lock);
}

static void storm_round(struct storm *s, uint64_t round) {
    uint64_t dice = rng_u64(s->seed, round);
    size_t which = dice % N_REQUESTS;
    struct call *c = &s->call;
    memset(c, 0, sizeof *c);
    c->req = calls[which].req;
    c->req.client = s->seed % 5;
    c->req.embed = dice / 16 % 8 == 0;
    c->req.n_choices = !c->req.embed && dice / 128 % 4 == 0 ? 2 : 1;
    c->cancel_at = dice / 512 % 4 == 0 ? 1 + dice / 2048 % 50 : 0;
    call_submit(s->e, c);
    if (dice / 4096 % 4 == 0) {
        usleep((useconds_t)(dice / 16384 % 3000));
        cancel_if_running(c);
    }
    call_wait(c);
    const struct output *got = &c->out[0], *want = &expected[which];
    bool cancelled = got->done.stop == ENGINE_STOP_CANCELLED;
    s->n_cancelled += cancelled;
    s->n_whole += !cancelled && !c->req.embed;
    bool right = got->n_ids <= want->n_ids &&
                 memcmp(got->ids, want->ids, got->n_ids * sizeof *got->ids) == 0 &&
                 (cancelled || c->req.embed || got->n_ids == want->n_ids);
    s->n_wrong += !right;
}

static void *storm_main(void *arg) {
    struct storm *s = arg;
    for (uint64_t round = 0; round < STORM_ROUNDS; round++)
        storm_round(s, round);
    atomic_fetch_sub(&n_storming, 1);
    return NULL;
}

/* Until so many more tokens have come that some were computed after the last loss, or there are no
 * more to come. Ranks that are lost more than RECOVERY_TRIES times with nothing between are given
 * up, and how far a loaded machine comes between two losses nobody knows. */
static void wait_for_tokens(struct engine *e) {
    uint64_t enough = stats_of(e).tokens_generated + 100;
    while (stats_of(e).tokens_generated < enough && atomic_load(&n_storming) > 0)
        usleep(1000);
}

/* n_losses times meanwhile a rank is killed. */
static void storm(const struct engine_config *cfg, int n_losses) {
    static struct storm storms[STORM_THREADS];
    struct engine *e = open_engine(cfg);
    atomic_store(&n_storming, STORM_THREADS);
    for (size_t i = 0; i < STORM_THREADS; i++) {
        storms[i] = (struct storm){.e = e, .seed = i};
        assert_int_equal(pthread_create(&storms[i].thread, NULL, storm_main, &storms[i]), 0);
    }
    int n_cancelled = 0, n_whole = 0;
    for (int i = 0; i < n_losses; i++) {
        lose(e, 1 + i % (cfg->model.n_ranks - 1),
             (useconds_t)(rng_u64(7, (uint64_t)i) % 20000));
        if (i % RECOVERY_TRIES == RECOVERY_TRIES - 1)
            wait_for_tokens(e);
    }
    for (size_t i = 0; i < STORM_THREADS; i++) {
        pthread_join(storms[i].thread, NULL);
        assert_int_equal(storms[i].n_wrong, 0);
        n_cancelled += storms[i].n_cancelled;
        n_whole += storms[i].n_whole;
    }
    print_message("%d whole answers, %d cancelled\n", n_whole, n_cancelled);
    assert_true(n_whole > 20 && n_cancelled > 20);
    struct engine_stats s = idle_stats_of(e);
    assert_int_equal(s.pages_used, 0);
    assert_int_equal(s.running, 0);
    assert_int_equal(s.queued, 0);
    assert_true(s.recoveries <= (uint64_t)n_losses && (s.recoveries > 0 || n_losses == 0));
    engine_close(e);
}

static struct engine_config storm_config(void) {
    struct engine_config cfg = plain_config();
    cfg.n_running_max = 6;
    cfg.kv_memory_bytes = 12 * (size_t)KV_PAGE * 2 * 2 * 2 * 32 * 2;
    return cfg;
}

static void a_storm_of_requests(void **state) {
    (void)state;
    struct engine_config cfg = storm_config();
    storm(&cfg, 0);
}

static void a_storm_while_ranks_are_lost(void **state) {
    (void)state;
    struct engine_config cfg = storm_config();
    cfg.model.n_ranks = 2;
    cfg.model.failover = true;
    storm(&cfg, 8);
}

/* ---- stop strings ------------------------------------------------------------------------ */

/* Every string of the answer (bytes: a token is a byte or few) as a stop: the text ends before its
 * first occurrence, wherever tokens begin and end. */
static void text_ends_before_a_stop_string(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    static struct call c;
    const struct output *full = &expected[4];
    for (size_t at = 0; at + 12 < full->n_text; at += 5) {
        char stop[16] = "", never[] = "\x01never";
        /* Whole characters. */
        size_t begin = at, end = at + 3 + at % 5;
        while (begin > 0 && ((uint8_t)full->text[begin] & 0xc0) == 0x80)
            begin--;
        while (end < full->n_text && ((uint8_t)full->text[end] & 0xc0) == 0x80)
            end++;
        memcpy(stop, full->text + begin, end - begin);
        if (strlen(stop) != end - begin)
            continue; /* a NUL is part of the text, and none of a string */
        const char *stops[] = {never, stop};
        const char *first = memmem(full->text, full->n_text, stop, strlen(stop));
        c = calls[4];
        c.req.stops = stops;
        c.req.n_stops = 2;
        call_run(e, &c);
        assert_int_equal(c.out[0].done.stop, ENGINE_STOP_STRING);
        assert_string_equal(c.out[0].stop_string, stop);
        assert_int_equal(c.out[0].n_text, first - full->text);
        assert_memory_equal(c.out[0].text, full->text, c.out[0].n_text);
    }
    /* One that never comes holds nothing back in the end. */
    const char *half = "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd!!";
    c = calls[4];
    c.req.stops = &half;
    c.req.n_stops = 1;
    call_run(e, &c);
    assert_same(&c.out[0], full);
    engine_close(e);
}

/* ---- log probabilities ------------------------------------------------------------------- */

struct rows {
    float *logits; /* [n, N_VOCAB] */
    size_t n;
};

static bool keep_rows(void *user, size_t first, size_t n, const float *logits) {
    struct rows *r = user;
    memcpy(r->logits + first * N_VOCAB, logits, n * N_VOCAB * sizeof *logits);
    r->n = first + n;
    return true;
}

static double logprob_in_double(const float *logits, int32_t id) {
    double sum = 0, best = -INFINITY;
    for (int i = 0; i < N_VOCAB; i++)
        best = fmax(best, (double)logits[i]);
    for (int i = 0; i < N_VOCAB; i++)
        sum += exp((double)logits[i] - best);
    return (double)logits[id] - best - log(sum);
}

static void logprobs_are_those_of_the_unmodified_distribution(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    static struct call c;
    c = calls[8];
    c.req.logprobs = true;
    c.req.n_top = 3;
    c.req.sampling.base.repeat_penalty = 1.5f;
    c.req.sampling.frequency_penalty = 0.5f;
    call_run(e, &c);
    engine_close(e);
    struct lockstep *ls = open_lockstep(NULL);
    struct rows rows = {.logits = malloc(512 * N_VOCAB * sizeof(float))};
    int32_t ids[512];
    size_t n = c.req.n_ids;
    memcpy(ids, c.req.ids, n * sizeof *ids);
    memcpy(ids + n, c.out[0].ids, c.out[0].n_ids * sizeof *ids);
    assert_int_equal(lockstep_eval(ls, ids, n + c.out[0].n_ids, keep_rows, &rows, NULL),
                     LOCKSTEP_OK);
    lockstep_close(ls);
    for (size_t i = 0; i < c.out[0].n_ids; i++) {
        const float *row = rows.logits + (n + i - 1) * N_VOCAB;
        /* exp is good to 2 ulp, and 1e-6 is several of a logprob of 8. */
        assert_float_equal(c.out[0].logprobs[i], logprob_in_double(row, c.out[0].ids[i]), 2e-6);
        for (int t = 0; t < 3; t++) {
            struct engine_top top = c.out[0].tops[i][t];
            int better = 0;
            for (int v = 0; v < N_VOCAB; v++)
                better += row[v] > row[top.id] || (row[v] == row[top.id] && v < top.id);
            assert_int_equal(better, t);
            assert_float_equal(top.logprob, logprob_in_double(row, top.id), 2e-6);
        }
    }
    free(rows.logits);
}

/* ---- constraints ------------------------------------------------------------------------- */

/* Allows tokens whose id mod 7 is how many came before mod 7; after `left` of them nothing, or
 * all. */
struct sevens {
    int n, left;
    enum engine_allows then;
};
static atomic_int n_living;

static enum engine_allows sevens_mask(void *state, uint64_t *mask, struct err *err) {
    (void)err;
    struct sevens *s = state;
    if (s->left <= 0)
        return s->then;
    for (int i = s->n % 7; i < N_VOCAB; i += 7)
        mask[i / 64] |= 1ull << (i % 64);
    return ENGINE_ALLOWS_SOME;
}

static void sevens_accept(void *state, int32_t id) {
    struct sevens *s = state;
    if (s->left-- > 0)
        assert_int_equal(id % 7, s->n % 7);
    s->n++;
}

static void *sevens_clone(const void *state) {
    struct sevens *copy = malloc(sizeof *copy);
    *copy = *(const struct sevens *)state;
    n_living++;
    return copy;
}

static void sevens_free(void *state) {
    free(state);
    n_living--;
}

static struct engine_constraint sevens(const struct sevens *first) {
    return (struct engine_constraint){.state = sevens_clone(first),
                                      .mask = sevens_mask,
                                      .accept = sevens_accept,
                                      .clone = sevens_clone,
                                      .free = sevens_free};
}

static void constraints_are_obeyed_and_freed(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.kv_memory_bytes = 8 * (size_t)KV_PAGE * 2 * 2 * 2 * 32 * 2;
    struct engine *e = open_engine(&cfg);
    static struct call c;
    const struct sevens first = {.left = 20};
    c = calls[9];
    c.req.n_choices = 3;
    c.req.constraint = sevens(&first);
    call_run(e, &c);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(c.out[i].n_ids, 20);
        for (int j = 0; j < 20; j++)
            assert_int_equal(c.out[i].ids[j] % 7, j % 7);
        assert_int_equal(c.out[i].done.stop, ENGINE_STOP_ERROR);
        assert_int_equal(c.out[i].done.st, ST_BAD_INPUT);
        assert_true(strlen(c.out[i].error) > 10);
    }
    engine_close(e);
    assert_int_equal(n_living, 0);
}

static void a_constraint_may_let_go(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    static struct call c;
    const struct sevens first = {.left = 5, .then = ENGINE_ALLOWS_ALL};
    c = calls[9];
    c.req.constraint = sevens(&first);
    call_run(e, &c);
    assert_int_equal(c.out[0].n_ids, N_PREDICT);
    assert_int_equal(c.out[0].done.stop, ENGINE_STOP_LENGTH);
    size_t n_others = 0;
    for (int j = 0; j < N_PREDICT; j++)
        n_others += c.out[0].ids[j] % 7 != j % 7;
    assert_true(n_others > 0);
    engine_close(e);
    assert_int_equal(n_living, 0);
}

/* Holds the helper thread that makes a mask. */
static struct gate mask_gate;

static enum engine_allows held_mask(void *state, uint64_t *mask, struct err *err) {
    pass_gate(&mask_gate);
    return sevens_mask(state, mask, err);
}

/* Its mask is held: the one after n tokens. */
static void submit_held(struct engine *e, struct call *c, int n) {
    const struct sevens first = {.left = 20};
    *c = calls[9];
    c->req.n_predict = 15;
    c->req.constraint = sevens(&first);
    c->req.constraint.mask = held_mask;
    if (n == 0) {
        close_gate(&mask_gate);
        call_submit(e, c);
    } else {
        gate_close();
        call_submit(e, c);
        gate_wait_reached(); /* the second mask may be made already, the third is not begun */
        close_gate(&mask_gate);
        gate_open();
    }
    wait_reached(&mask_gate);
}

static void assert_sevens(const struct call *c) {
    assert_int_equal(c->out[0].done.stop, ENGINE_STOP_LENGTH);
    assert_int_equal(c->out[0].n_ids, 15);
    for (int j = 0; j < 15; j++)
        assert_int_equal(c->out[0].ids[j] % 7, j % 7);
}

static bool is_over(struct call *c) {
    pthread_mutex_lock(&lock);
    bool over = c->over;
    pthread_mutex_unlock(&lock);
    return over;
}

static void a_mask_in_the_making_delays_nobody_else(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    for (int n = 0; n < 2; n++) {
        static struct call held;
        submit_held(e, &held, n);
        run_together(e);
        assert_false(is_over(&held));
        open_gate(&mask_gate);
        call_wait(&held);
        assert_sevens(&held);
    }
    engine_close(e);
    assert_int_equal(n_living, 0);
}

/* The request is over at once; its one slot is free when the helper is. */
static void a_request_is_cancelled_while_its_mask_is_made(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.n_running_max = 1;
    struct engine *e = open_engine(&cfg);
    for (int n = 0; n < 2; n++) {
        static struct call held;
        submit_held(e, &held, n);
        engine_cancel(e, held.handle);
        call_wait(&held);
        assert_int_equal(held.out[0].done.stop, ENGINE_STOP_CANCELLED);
        assert_int_equal(n_living, 1);
        call_submit(e, &calls[3]);
        open_gate(&mask_gate);
        call_wait(&calls[3]);
        assert_same(&calls[3].out[0], &expected[3]);
        assert_int_equal(n_living, 0);
    }
    engine_close(e);
}

static void *open_mask_gate(void *arg) {
    usleep(50 * 1000); /* closing has begun by now, most likely */
    open_gate(&mask_gate);
    return arg;
}

static void an_engine_is_closed_while_a_mask_is_made(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    static struct call held;
    pthread_t opener;
    submit_held(e, &held, 1);
    assert_int_equal(pthread_create(&opener, NULL, open_mask_gate, NULL), 0);
    engine_close(e);
    pthread_join(opener, NULL);
    assert_true(is_over(&held));
    assert_int_equal(held.out[0].done.stop, ENGINE_STOP_CANCELLED);
    assert_int_equal(n_living, 0);
}

/* The ranks are lost while all who run wait for a mask: the text goes on where it was. */
static void a_rank_is_lost_while_a_mask_is_made(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.model.n_ranks = 2;
    cfg.model.failover = true;
    struct engine *e = open_engine(&cfg);
    static struct call held;
    submit_held(e, &held, 1);
    lose(e, 1, 0);
    wait_for_recovery(e, 1);
    assert_false(is_over(&held));
    open_gate(&mask_gate);
    call_wait(&held);
    assert_sevens(&held);
    engine_close(e);
    assert_int_equal(n_living, 0);
}

/* The jobs of one request never overlap, those of another run beside them. */
static atomic_int n_in_mask;

static enum engine_allows lonely_mask(void *state, uint64_t *mask, struct err *err) {
    assert_int_equal(atomic_fetch_add(&n_in_mask, 1), 0);
    enum engine_allows allows = sevens_mask(state, mask, err);
    usleep(100);
    atomic_fetch_sub(&n_in_mask, 1);
    return allows;
}

static void masks_of_one_request_are_made_one_by_one(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    static struct call c, held;
    const struct sevens first = {.left = 20};
    submit_held(e, &held, 0);
    c = calls[9];
    c.req.n_choices = CHOICES;
    c.req.constraint = sevens(&first);
    c.req.constraint.mask = lonely_mask;
    call_run(e, &c);
    for (int i = 0; i < CHOICES; i++)
        assert_int_equal(c.out[i].n_ids, 20);
    assert_false(is_over(&held));
    open_gate(&mask_gate);
    call_wait(&held);
    engine_close(e);
    assert_int_equal(n_living, 0);
}

/* What is known is answered at once, and why nothing fits is said. */
static enum engine_allows sevens_known(void *state, int32_t id, uint64_t *mask) {
    struct sevens *s = state;
    if (s->n % 2 == 0 || s->left <= 1)
        return ENGINE_ALLOWS_UNKNOWN;
    if (id != TOKEN_NONE)
        sevens_accept(s, id);
    return sevens_mask(s, mask, NULL);
}

static enum engine_allows odd_mask(void *state, uint64_t *mask, struct err *err) {
    const struct sevens *s = state;
    assert_true(s->n == 0 || s->n % 2 == 1 || s->left <= 0);
    if (s->left <= 0)
        err_set(err, ST_UNSUPPORTED, "that is all");
    return sevens_mask(state, mask, err);
}

static void what_is_known_of_a_mask_is_used(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    static struct call c;
    const struct sevens first = {.left = 20};
    c = calls[9];
    c.req.constraint = sevens(&first);
    c.req.constraint.mask = odd_mask;
    c.req.constraint.known = sevens_known;
    call_run(e, &c);
    assert_int_equal(c.out[0].n_ids, 20);
    for (int j = 0; j < 20; j++)
        assert_int_equal(c.out[0].ids[j] % 7, j % 7);
    assert_int_equal(c.out[0].done.st, ST_BAD_INPUT);
    assert_string_equal(c.out[0].error, "that is all");
    engine_close(e);
    assert_int_equal(n_living, 0);
}

/* ---- padding ----------------------------------------------------------------------------- */

/* A copy of the model whose last `n` tokens are unused ones. */
static void write_padded_model(const char *path, uint32_t n) {
    static const char key[] = "tokenizer.ggml.token_type";
    static char bytes[4 << 20];
    const uint32_t unused = 5;
    FILE *f = fopen(golden_path(MODEL), "rb");
    size_t len = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    char *at = memmem(bytes, len, key, sizeof key - 1);
    assert_non_null(at);
    at += sizeof key - 1 + 4 + 4 + 8; /* value type, element type, number */
    for (uint32_t i = N_VOCAB - n; i < N_VOCAB; i++)
        memcpy(at + 4 * i, &unused, sizeof unused);
    f = fopen(path, "wb");
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    fclose(f);
}

static void a_token_of_padding_never_comes(void **state) {
    (void)state;
    char path[] = "/tmp/lockstep-padded-XXXXXX";
    close(mkstemp(path));
    write_padded_model(path, 3);
    struct engine_config cfg = plain_config();
    cfg.model.model_path = path;
    struct engine *e = open_engine(&cfg);
    static struct call c;
    const struct engine_bias biases[] = {{N_VOCAB - 1, 1e5f}, {N_VOCAB - 3, 1e5f}};
    c = calls[9];
    c.req.sampling.biases = biases;
    c.req.sampling.n_biases = 2;
    call_run(e, &c);
    assert_int_equal(c.out[0].n_ids, N_PREDICT);
    for (size_t i = 0; i < c.out[0].n_ids; i++)
        assert_true(c.out[0].ids[i] < N_VOCAB - 3);
    engine_close(e);
    remove(path);
}

/* ---- embeddings -------------------------------------------------------------------------- */

/* The last hidden state times the output matrix (f32 in this file) are the logits. */
static void the_last_hidden_state_gives_the_logits(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.model.kv = "f32";
    struct engine *e = open_engine(&cfg);
    static struct call c;
    c = calls[8];
    c.req.embed = c.req.embed_last = true;
    call_run(e, &c);
    struct lockstep *ls = open_lockstep("f32");
    struct rows rows = {.logits = malloc(512 * N_VOCAB * sizeof(float))};
    lockstep_eval(ls, c.req.ids, c.req.n_ids, keep_rows, &rows, NULL);
    lockstep_close(ls);
    const struct gguf_tensor *w = gguf_tensor(engine_gguf(e), "output.weight");
    assert_non_null(w);
    const float *weights = (const float *)(const void *)w->data;
    size_t n_embd = (size_t)engine_model_info(e)->n_embd;
    for (size_t v = 0; v < N_VOCAB; v++) {
        double sum = 0;
        for (size_t i = 0; i < n_embd; i++)
            sum += (double)weights[v * n_embd + i] * (double)c.embedding[i];
        /* 128 products in f32: 128 * 2^-24 * the sum of their sizes, which is below 30. */
        assert_float_equal((float)sum, rows.logits[(c.req.n_ids - 1) * N_VOCAB + v], 2.5e-4);
    }
    free(rows.logits);
    engine_close(e);
}

/* The mean is that of the last states of all beginnings, beside streams and in pieces. */
static void the_mean_is_that_of_all_positions(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.n_step_tokens = 13;
    struct engine *e = open_engine(&cfg);
    static struct call c, stream;
    double sum[512] = {0};
    size_t n_embd = (size_t)engine_model_info(e)->n_embd;
    stream = calls[0];
    stream.req.n_predict = 300;
    call_submit(e, &stream);
    for (size_t n = 1; n <= 70; n++) {
        c = calls[8];
        c.req.embed = c.req.embed_last = true;
        c.req.n_ids = n;
        call_run(e, &c);
        for (size_t i = 0; i < n_embd; i++)
            sum[i] += (double)c.embedding[i];
    }
    c.req.embed_last = false;
    call_run(e, &c);
    for (size_t i = 0; i < n_embd; i++)
        assert_true(c.embedding[i] == (float)(sum[i] / 70));
    call_wait(&stream);
    assert_memory_equal(stream.out[0].ids, expected[0].ids, N_PREDICT * sizeof(int32_t));
    engine_close(e);
}

/* The other ranks are this program again. Argument: only the tests of this name (cmocka's
 * wildcards). */
int main(int argc, char **argv) {
    if (argc > 1 && str_eq(argv[1], "worker"))
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
        cmocka_unit_test(clients_take_turns),
        cmocka_unit_test(the_queue_is_bounded),
        cmocka_unit_test(cancelled_within_a_step),
        cmocka_unit_test(closing_ends_everything),
        cmocka_unit_test(bad_requests_are_refused_with_a_sentence),
        cmocka_unit_test(a_lost_rank_ends_every_request),
        cmocka_unit_test(a_rank_lost_at_rest_is_noticed),
        cmocka_unit_test(a_clock_that_is_set_back_lets_nobody_sleep),
        cmocka_unit_test(answers_go_on_when_ranks_are_lost),
        cmocka_unit_test(a_rank_lost_at_rest_comes_back),
        cmocka_unit_test(ranks_lost_at_rest_again_and_again_come_back),
        cmocka_unit_test(a_loss_at_the_same_place_ends_it),
        cmocka_unit_test(a_recovery_that_fails_says_so),
        cmocka_unit_test(a_server_that_stood_still_goes_on_with_all),
        cmocka_unit_test(a_machine_that_is_back_takes_part_again),
        cmocka_unit_test(a_machine_comes_back_in_the_middle_of_answers),
        cmocka_unit_test(a_machine_that_only_seems_to_be_back_is_done_without),
        cmocka_unit_test(a_machine_that_hangs_holds_nobody_up),
        cmocka_unit_test(a_storm_of_requests),
        cmocka_unit_test(a_storm_while_ranks_are_lost),
        cmocka_unit_test(text_ends_before_a_stop_string),
        cmocka_unit_test(logprobs_are_those_of_the_unmodified_distribution),
        cmocka_unit_test(constraints_are_obeyed_and_freed),
        cmocka_unit_test(a_constraint_may_let_go),
        cmocka_unit_test(a_mask_in_the_making_delays_nobody_else),
        cmocka_unit_test(a_request_is_cancelled_while_its_mask_is_made),
        cmocka_unit_test(an_engine_is_closed_while_a_mask_is_made),
        cmocka_unit_test(a_rank_is_lost_while_a_mask_is_made),
        cmocka_unit_test(masks_of_one_request_are_made_one_by_one),
        cmocka_unit_test(what_is_known_of_a_mask_is_used),
        cmocka_unit_test(a_token_of_padding_never_comes),
        cmocka_unit_test(the_last_hidden_state_gives_the_logits),
        cmocka_unit_test(the_mean_is_that_of_all_positions),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_expected, NULL);
}
