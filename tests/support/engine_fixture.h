/* engine_fixture.h: what the tests of the engine share: calls and what came of them, gates that
 * hold a thread, engines, and sixteen requests whose answers lockstep_generate() gives. Each
 * program that includes this is its own worker: see is_worker(). */
#ifndef LOCKSTEP_TESTS_ENGINE_FIXTURE_H
#define LOCKSTEP_TESTS_ENGINE_FIXTURE_H

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
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL "logits/llama.gguf"
#define N_REQUESTS 16
#define N_PREDICT 60
#define N_VOCAB 288
#define CHOICES 4

/* ---- a call and what came of it ------------------------------------------------------ */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int n_ended; /* calls, in order */

/* A closed gate holds the thread that is to pass it until the test opens it. */
struct gate {
    bool closed, reached;
};

static inline void close_gate(struct gate *g) {
    pthread_mutex_lock(&lock);
    *g = (struct gate){.closed = true};
    pthread_mutex_unlock(&lock);
}

static inline void open_gate(struct gate *g) {
    pthread_mutex_lock(&lock);
    g->closed = false;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static inline void wait_reached(struct gate *g) {
    pthread_mutex_lock(&lock);
    while (!g->reached)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static inline void pass_gate(struct gate *g) {
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

static inline void gate_close(void) {
    close_gate(&token_gate);
}

static inline void gate_open(void) {
    open_gate(&token_gate);
}

static inline void gate_wait_reached(void) {
    wait_reached(&token_gate);
}

static inline void gate_pass(void) {
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
    int n_begun; /* how often its request had begun when the first one came */
};

struct call {
    struct engine *e;
    struct engine_request_handle *handle;
    struct engine_request req;
    struct output out[CHOICES];
    size_t cancel_at; /* after so many tokens; 0: never */
    bool over;
    int place;   /* among the calls that ended */
    int n_begun; /* how often it began */
    float embedding[512];
};

static inline struct engine_stats stats_of(struct engine *e) {
    struct engine_stats s;
    engine_stats(e, &s);
    return s;
}

static inline void on_begun(void *user) {
    struct call *c = user;
    c->n_begun++;
}

static inline void on_token(void *user, const struct engine_token *t) {
    struct call *c = user;
    struct output *o = &c->out[t->choice];
    gate_pass();
    struct engine_stats s = stats_of(c->e);
    if (o->n_ids == 0)
        o->running = s.running;
    if (o->n_ids == 0)
        o->n_begun = c->n_begun;
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

static inline void on_done(void *user, const struct engine_done *d) {
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

static inline void on_embedding(void *user, const float *v, size_t n) {
    memcpy(((struct call *)user)->embedding, v, n * sizeof *v);
}

static inline void call_submit(struct engine *e, struct call *c) {
    struct err err = {.text = ""};
    c->e = e;
    c->req.on_token = on_token;
    c->req.on_done = on_done;
    c->req.on_begun = on_begun;
    c->req.on_embedding = on_embedding;
    c->req.user = c;
    memset(c->out, 0, sizeof c->out);
    c->over = false;
    c->n_begun = 0;
    assert_int_equal(engine_submit(e, &c->req, &c->handle, &err), ST_OK);
}

static inline void call_wait(struct call *c) {
    pthread_mutex_lock(&lock);
    while (!c->over)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static inline void call_run(struct engine *e, struct call *c) {
    call_submit(e, c);
    call_wait(c);
}

/* ---- engines ------------------------------------------------------------------------- */

static inline const char *this_program(void) {
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    assert_true(n > 0);
    path[n] = '\0';
    return path;
}

static inline struct engine_config plain_config(void) {
    struct engine_config cfg;
    engine_config_init(&cfg);
    cfg.model.model_path = golden_path(MODEL);
    cfg.model.worker_path = this_program();
    cfg.model.n_threads = 1;
    cfg.model.n_ctx = 512;
    cfg.n_running_max = 16;
    return cfg;
}

static inline struct engine *open_engine(const struct engine_config *cfg) {
    struct engine *e = NULL;
    struct err err = {.text = ""};
    if (engine_open(&e, cfg, &err) != ST_OK)
        fail_msg("%s", err.text);
    return e;
}

/* Once the thread has shown what is after the last request. */
static inline struct engine_stats idle_stats_of(struct engine *e) {
    struct engine_stats s = stats_of(e);
    for (int i = 0; i < 20000 && (s.running > 0 || s.pages_used > 0); i++) {
        usleep(1000);
        s = stats_of(e);
    }
    return s;
}

/* ---- the sixteen requests ------------------------------------------------------------ */

static int32_t prompts[N_REQUESTS][400];
static struct call calls[N_REQUESTS];
static struct output expected[N_REQUESTS];

/* Lengths around the borders of pages; half of them share a beginning; two are the same. */
static inline void make_calls(void) {
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

static inline bool collect(void *user, int32_t id, const char *text, size_t len) {
    struct collected *c = user;
    c->ids[c->n_ids++] = id;
    memcpy(c->text + c->n_text, text, len);
    c->n_text += len;
    return true;
}

static inline struct lockstep *open_model(const char *name, const char *kv) {
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

static inline struct lockstep *open_lockstep(const char *kv) {
    return open_model(MODEL, kv);
}

static inline void lockstep_answer(struct lockstep *ls, const struct engine_request *r,
                                   struct output *out) {
    static struct collected c;
    memset(&c, 0, sizeof c);
    struct lockstep_request req;
    lockstep_request_init(&req);
    req.ids = r->ids;
    req.n_ids = r->n_ids;
    req.n_predict = r->n_predict;
    req.ignore_end = r->ignore_end;
    req.sampling = &r->sampling.base;
    req.on_token = collect;
    req.user = &c;
    lockstep_reset(ls);
    assert_int_equal(lockstep_generate(ls, &req, NULL, NULL), LOCKSTEP_OK);
    memcpy(out->ids, c.ids, sizeof c.ids);
    memcpy(out->text, c.text, sizeof c.text);
    out->n_ids = c.n_ids;
    out->n_text = c.n_text;
}

static inline int make_expected(void **state) {
    (void)state;
    make_calls();
    struct lockstep *ls = open_lockstep(NULL);
    for (int i = 0; i < N_REQUESTS; i++)
        lockstep_answer(ls, &calls[i].req, &expected[i]);
    lockstep_close(ls);
    return 0;
}

static inline void assert_same(const struct output *a, const struct output *b) {
    assert_int_equal(a->n_ids, b->n_ids);
    assert_memory_equal(a->ids, b->ids, a->n_ids * sizeof *a->ids);
    /* The last piece of text (half a character) is let out at the end by the engine only. */
    assert_true(a->n_text >= b->n_text);
    assert_memory_equal(a->text, b->text, b->n_text);
}

static inline void run_together(struct engine *e) {
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

/* ---- failover ------------------------------------------------------------------------ */

/* Kills a rank after some time, once those of the last loss are there again. */
static inline void lose(struct engine *e, int rank, useconds_t after_us) {
    struct engine_stats s = stats_of(e);
    while (s.recovering) {
        usleep(1000);
        s = stats_of(e);
    }
    usleep(after_us);
    kill(engine_rank_pid(e, rank), SIGKILL);
}

static inline void wait_for_recovery(struct engine *e, uint64_t n) {
    while (stats_of(e).recoveries < n && stats_of(e).healthy)
        usleep(1000);
    assert_int_equal(stats_of(e).recoveries, n);
    assert_true(stats_of(e).healthy);
}

/* Ranks above 0 are this program again: main() is then lockstep_worker_main(). */
static inline bool is_worker(int argc, char **argv) {
    return argc > 1 && str_eq(argv[1], "worker");
}

#endif
