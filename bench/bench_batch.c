/* bench_batch.c: what running together brings: tokens per second of 1, 2, 4, 8, 16 streams of
 * one engine, and what guessing brings (prompt lookup) to one stream.
 *
 *     bench_batch MODEL [--threads N] [--ranks N] [--streams 1,8,16] [--predict 32] [--prompt 64]
 *                       [--temp T] [--rounds 3] [--guess | --gap N]
 *
 * All streams begin at once with different prompts; the rate is that of the time in which all
 * of them decode: from the last first token to the first end. The rounds go through all numbers
 * in turn, and the medians are shown; beside them tokens per second of this process's CPU time
 * (one rank, one thread: nobody waits for anybody), which a busy machine changes less. --guess:
 * one greedy stream, guesses off and on, over a text that repeats itself and one that does not
 * (random tokens; a model of random weights soon runs into a loop, so its answers are half and
 * half). --gap N: streams decode while a prompt of N tokens arrives: the usual time between two
 * tokens, the times while the prompt is computed in usual ones, and how many of them are longer
 * than three; beside them the largest before the prompt came, which is what the machine does by
 * itself. */
#include "base/clock.h"
#include "base/median.h"
#include "base/rng.h"
#include "base/util.h"
#include "engine/engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define STREAMS_MAX 64
#define ROUNDS_MAX 15
#define SETS_MAX 8

struct options {
    struct engine_config cfg;
    int streams[SETS_MAX], n_sets, n_predict, n_prompt, rounds;
    float temperature;
    bool guess;
    int gap;
};

struct stream {
    double first_s, last_s;
    size_t n;
};

struct run {
    pthread_mutex_t lock;
    pthread_cond_t over;
    struct stream streams[STREAMS_MAX];
    int n_left, n_begun;
    size_t n_counted;      /* tokens while all decode */
    double begun_s, end_s; /* of that time */
    double begun_cpu_s, end_cpu_s;
};

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct user {
    struct run *run;
    int i, n;
};

static void on_token(void *user, const struct engine_token *t) {
    (void)t;
    const struct user *u = user;
    struct run *run = u->run;
    double now = clock_s();
    if (run->streams[u->i].n++ == 0 && ++run->n_begun == u->n) {
        run->begun_s = now;
        run->begun_cpu_s = cpu_s();
    } else if (run->begun_s != 0 && run->end_s == 0) {
        run->n_counted++;
    }
    run->streams[u->i].last_s = now;
}

static void on_done(void *user, const struct engine_done *d) {
    const struct user *u = user;
    struct run *run = u->run;
    if (d->st != ST_OK) {
        fprintf(stderr, "bench_batch: %s\n", d->error);
        exit(1);
    }
    pthread_mutex_lock(&run->lock);
    if (run->end_s == 0) {
        run->end_s = run->streams[u->i].last_s;
        run->end_cpu_s = cpu_s();
    }
    if (--run->n_left == 0)
        pthread_cond_signal(&run->over);
    pthread_mutex_unlock(&run->lock);
}

static void fill_prompt(const struct engine *e, int32_t *ids, int n, uint64_t seed,
                        int period) {
    uint64_t n_vocab = (uint64_t)engine_model_info(e)->n_vocab;
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(rng_u64(seed, (uint64_t)(i % period)) % n_vocab);
}

/* Tokens per second of n streams together. */
struct rate {
    double wall, cpu;
};

static struct rate measure(struct engine *e, const struct options *o, int n, uint64_t seed,
                           int period) {
    static int32_t ids[1 << 16];
    struct user users[STREAMS_MAX];
    struct run run = {.n_left = n};
    pthread_mutex_init(&run.lock, NULL);
    pthread_cond_init(&run.over, NULL);
    for (int i = 0; i < n; i++) {
        struct engine_request r;
        engine_request_init(&r);
        fill_prompt(e, ids, o->n_prompt, seed + (uint64_t)i, period);
        users[i] = (struct user){.run = &run, .i = i, .n = n};
        r.ids = ids;
        r.n_ids = (size_t)o->n_prompt;
        r.n_predict = o->n_predict;
        r.ignore_end = true;
        r.sampling.base.temperature = o->temperature;
        r.on_token = on_token;
        r.on_done = on_done;
        r.user = &users[i];
        struct err err;
        if (engine_submit(e, &r, NULL, &err) != ST_OK) {
            fprintf(stderr, "bench_batch: %s\n", err.text);
            exit(1);
        }
    }
    pthread_mutex_lock(&run.lock);
    while (run.n_left > 0)
        pthread_cond_wait(&run.over, &run.lock);
    pthread_mutex_unlock(&run.lock);
    if (run.n_counted == 0) {
        fprintf(
            stderr,
            "bench_batch: %d streams never decoded together: --predict more, or --prompt less\n",
            n);
        exit(1);
    }
    return (struct rate){(double)run.n_counted / (run.end_s - run.begun_s),
                         (double)run.n_counted / (run.end_cpu_s - run.begun_cpu_s)};
}

static struct engine *open_or_exit(const struct engine_config *cfg) {
    struct engine *e;
    struct err err;
    if (engine_open(&e, cfg, &err) != ST_OK) {
        fprintf(stderr, "bench_batch: %s\n", err.text);
        exit(1);
    }
    return e;
}

static void bench_streams(struct options *o) {
    static double wall[SETS_MAX][ROUNDS_MAX], cpu[SETS_MAX][ROUNDS_MAX];
    o->cfg.no_speculation = o->cfg.no_prefix_cache = true;
    struct engine *e = open_or_exit(&o->cfg);
    for (int round = 0; round < o->rounds; round++)
        for (int i = 0; i < o->n_sets; i++) {
            struct rate r = measure(e, o, o->streams[i], (uint64_t)round * 1000, 1 << 16);
            wall[i][round] = r.wall;
            cpu[i][round] = r.cpu;
        }
    double one = median(wall[0], o->rounds), one_cpu = median(cpu[0], o->rounds);
    printf("streams  tokens/s  times the first  tokens/s of CPU time  times the first\n");
    for (int i = 0; i < o->n_sets; i++) {
        double w = median(wall[i], o->rounds), c = median(cpu[i], o->rounds);
        printf("%7d  %8.2f  %15.2f  %20.2f  %15.2f\n", o->streams[i], w, w / one, c,
               c / one_cpu);
    }
    engine_close(e);
}

static void bench_guesses(struct options *o) {
    static double rates[2][2][ROUNDS_MAX]; /* [guesses][text][round] */
    static const int periods[] = {1 << 16, 23};
    o->temperature = 0;
    for (int on = 0; on < 2; on++) {
        o->cfg.no_speculation = !on;
        struct engine *e = open_or_exit(&o->cfg);
        for (int text = 0; text < 2; text++)
            for (int round = 0; round < o->rounds; round++)
                rates[on][text][round] =
                    measure(e, o, 1, (uint64_t)round * 1000, periods[text]).cpu;
        struct engine_stats s;
        engine_stats(e, &s);
        printf(
            "guesses %s: random prompt %.2f tokens/s of CPU time, repeating prompt %.2f; %llu of "
            "%llu right\n",
            on ? "on" : "off", median(rates[on][0], o->rounds), median(rates[on][1], o->rounds),
            (unsigned long long)s.accepted, (unsigned long long)s.speculated);
        engine_close(e);
    }
}

/* ---- gaps -------------------------------------------------------------------------------- */

#define GAPS_MAX 4096

struct gaps {
    double last_s, alone[GAPS_MAX], beside[GAPS_MAX];
    int n_alone, n_beside;
};

static void show_gaps(int stream, struct gaps *g) {
    int n_long = 0;
    if (g->n_alone == 0 || g->n_beside == 0) {
        printf("stream %d: no gaps to tell of\n", stream);
        return;
    }
    double usual = median(g->alone, g->n_alone); /* sorts */
    double middle = median(g->beside, g->n_beside);
    for (int i = 0; i < g->n_beside; i++)
        n_long += g->beside[i] > 3 * usual;
    printf(
        "stream %d: usual gap %.2f ms, largest of %d %.2f times; beside the prompt %.2f times, "
        "one in ten %.2f, largest of %d %.2f; %d longer than 3\n",
        stream, usual * 1e3, g->n_alone, g->alone[g->n_alone - 1] / usual, middle / usual,
        quantile(g->beside, (size_t)g->n_beside, 0.9) / usual, g->n_beside,
        g->beside[g->n_beside - 1] / usual, n_long);
}

static struct {
    pthread_mutex_t lock;
    bool prompt_begun, prompt_over; /* written by the main and the engine's thread */
} phase = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool in_phase(bool *over) {
    pthread_mutex_lock(&phase.lock);
    bool begun = phase.prompt_begun;
    *over = phase.prompt_over;
    pthread_mutex_unlock(&phase.lock);
    return begun;
}

static void note_gap(void *user, const struct engine_token *t) {
    (void)t;
    struct gaps *g = user;
    double now = clock_s(), gap = now - g->last_s;
    bool over, begun = in_phase(&over);
    if (g->last_s != 0 && !begun && g->n_alone < GAPS_MAX)
        g->alone[g->n_alone++] = gap;
    if (g->last_s != 0 && begun && !over && g->n_beside < GAPS_MAX)
        g->beside[g->n_beside++] = gap;
    g->last_s = now;
}

static void prompt_over(void *user, const struct engine_done *d) {
    (void)user;
    (void)d;
    pthread_mutex_lock(&phase.lock);
    phase.prompt_over = true;
    pthread_mutex_unlock(&phase.lock);
}

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static void submit_or_exit(struct engine *e, const struct engine_request *r) {
    struct err err;
    if (engine_submit(e, r, NULL, &err) == ST_OK)
        return;
    fprintf(stderr, "bench_batch: %s\n", err.text);
    exit(1);
}

static void bench_gaps(struct options *o) {
    static struct gaps gaps[STREAMS_MAX];
    static int32_t ids[1 << 16];
    int n = o->streams[0];
    o->cfg.no_speculation = true;
    o->cfg.model.n_ctx = o->gap + 64;
    struct engine *e = open_or_exit(&o->cfg);
    struct engine_request r;
    engine_request_init(&r);
    r.ids = ids;
    r.ignore_end = true;
    r.on_token = note_gap;
    for (int i = 0; i < n; i++) {
        fill_prompt(e, ids, 16, (uint64_t)i, 1 << 16);
        r.n_ids = 16;
        r.user = &gaps[i];
        submit_or_exit(e, &r);
    }
    struct engine_stats s = {0};
    while (s.tokens_generated < (uint64_t)(100 * n)) {
        nap();
        engine_stats(e, &s);
    }
    pthread_mutex_lock(&phase.lock);
    phase.prompt_begun = true;
    pthread_mutex_unlock(&phase.lock);
    fill_prompt(e, ids, o->gap, 777, 1 << 16);
    r.n_ids = (size_t)o->gap;
    r.n_predict = 1;
    r.on_token = NULL;
    r.on_done = prompt_over;
    double began = clock_s();
    submit_or_exit(e, &r);
    for (bool over = false; !over; nap())
        in_phase(&over);
    double took = clock_s() - began;
    engine_close(e);
    for (int i = 0; i < n; i++)
        show_gaps(i, &gaps[i]);
    printf("prompt of %d tokens: %.2f s\n", o->gap, took);
}

static void parse_streams(struct options *o, const char *text) {
    o->n_sets = 0;
    for (char *end; *text != '\0' && o->n_sets < SETS_MAX; text = *end == ',' ? end + 1 : end) {
        int n = (int)strtol(text, &end, 10);
        if (end == text || n < 1 || n > STREAMS_MAX)
            break;
        o->streams[o->n_sets++] = n;
    }
}

static void parse(struct options *o, int argc, char **argv) {
    o->cfg.model.model_path = argv[1];
    for (int i = 2; i < argc; i++) {
        const char *v = i + 1 < argc ? argv[i + 1] : "";
        if (str_eq(argv[i], "--guess")) {
            o->guess = true;
            continue;
        }
        if (str_eq(argv[i], "--threads"))
            o->cfg.model.n_threads = atoi(v);
        else if (str_eq(argv[i], "--ranks"))
            o->cfg.model.n_ranks = atoi(v);
        else if (str_eq(argv[i], "--streams"))
            parse_streams(o, v);
        else if (str_eq(argv[i], "--predict"))
            o->n_predict = atoi(v);
        else if (str_eq(argv[i], "--prompt"))
            o->n_prompt = MIN(atoi(v), 1 << 16);
        else if (str_eq(argv[i], "--gap"))
            o->gap = MIN(atoi(v), 1 << 16);
        else if (str_eq(argv[i], "--temp"))
            o->temperature = (float)atof(v);
        else if (str_eq(argv[i], "--rounds"))
            o->rounds = MIN(MAX(atoi(v), 1), ROUNDS_MAX);
        i++;
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && str_eq(argv[1], "worker"))
        return lockstep_worker_main(argc, argv);
    if (argc < 2 || argv[1][0] == '-') {
        fprintf(stderr,
                "usage: bench_batch MODEL [--threads N] [--ranks N] [--streams 1,8,16] "
                "[--predict N] [--prompt N] [--temp T] [--rounds N] [--guess | --gap N]\n");
        return 2;
    }
    struct options o = {.streams = {1, 2, 4, 8, 16},
                        .n_sets = 5,
                        .n_predict = 32,
                        .n_prompt = 64,
                        .rounds = 3,
                        .temperature = 0.8f};
    engine_config_init(&o.cfg);
    o.cfg.model.worker_path = "/proc/self/exe";
    parse(&o, argc, argv);
    if (o.gap > 0)
        bench_gaps(&o);
    else if (o.guess)
        bench_guesses(&o);
    else
        bench_streams(&o);
    return 0;
}
