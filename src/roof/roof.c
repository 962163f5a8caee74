/* roof.c: runs the loops of roof_*.c on all threads and takes the best. */
#include "roof/roof.h"

#include "base/clock.h"
#include "base/median.h"
#include "base/util.h"
#include "kernels/kernels.h"
#include "roof/roof_loops.h"

#include <stdatomic.h>

/* The loops of the instruction set that the kernels use here. */
static const struct roof_loops *roof_loops(void) {
    static const struct roof_loops *const all[] = {
#if defined(__x86_64__)
        &roof_loops_amx,
        &roof_loops_avx512,
        &roof_loops_avxvnni,
        &roof_loops_avx2,
#elif defined(__aarch64__)
        &roof_loops_i8mm,
        &roof_loops_neon,
#endif
    };
    const struct kernels *k;
    if (kernels_select(&k, NULL) == ST_OK)
        for (size_t i = 0; i < ARRAY_LEN(all); i++)
            if (str_eq(all[i]->name, k->name))
                return all[i];
    return &roof_loops_scalar;
}

#define MAX_ROUNDS 64
#define CHUNK_BYTES (1 << 20)
#define PEAK_SECONDS 0.02
#define PEAK_TRIES 5

struct read_job {
    const uint8_t *buf;
    size_t n_chunks;
    uint64_t (*read)(const uint8_t *p, size_t bytes);
    _Atomic uint64_t seen; /* relaxed: keeps the loads alive */
};

static void read_on_thread(void *arg, struct pool *pool, int thread) {
    (void)thread;
    struct read_job *job = arg;
    size_t begin, end;
    uint64_t seen = 0;
    while (pool_claim(pool, job->n_chunks, 1, &begin, &end))
        seen |= job->read(job->buf + begin * CHUNK_BYTES, (end - begin) * CHUNK_BYTES);
    atomic_fetch_or_explicit(&job->seen, seen, memory_order_relaxed);
}

static double read_once(struct pool *pool, struct read_job *job) {
    double begin = clock_s();
    pool_run(pool, read_on_thread, job);
    return (double)(job->n_chunks * CHUNK_BYTES) / (clock_s() - begin) * 1e-9;
}

double roof_read_gbs(struct pool *pool, const void *buf, size_t bytes, int rounds) {
    const struct roof_loops *loops = roof_loops();
    struct read_job job = {.buf = buf, .n_chunks = bytes / CHUNK_BYTES};
    double gbs[ROOF_READ_LOOPS][MAX_ROUNDS], best = 0;
    int best_loop = 0;
    int n_loops = 0;
    while (n_loops < ROOF_READ_LOOPS && loops->read[n_loops] != NULL)
        n_loops++;
    rounds = MIN(MAX(rounds, 1), MAX_ROUNDS);
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < n_loops; i++) {
            job.read = loops->read[i];
            gbs[i][r] = read_once(pool, &job);
        }
    for (int i = 0; i < n_loops; i++) {
        double middle = median(gbs[i], rounds);
        best_loop = middle > best ? i : best_loop;
        best = MAX(best, middle);
    }
    job.read = loops->read[best_loop];
    for (int r = 0; r < rounds; r++)
        gbs[best_loop][r] = read_once(pool, &job);
    return median(gbs[best_loop], rounds);
}

struct peak_job {
    uint64_t (*run)(uint64_t rounds);
    uint64_t rounds; /* of each thread */
    _Atomic uint64_t seen;
};

static void peak_on_thread(void *arg, struct pool *pool, int thread) {
    (void)pool;
    (void)thread;
    struct peak_job *job = arg;
    atomic_fetch_or_explicit(&job->seen, job->run(job->rounds), memory_order_relaxed);
}

/* The best of several runs, each long enough for the clock: 10^9 operations/s. */
static double peak_gops(struct pool *pool, uint64_t (*run)(uint64_t), double macs) {
    struct peak_job job = {.run = run, .rounds = 1000};
    double best = 0;
    for (int tries = 0; tries < PEAK_TRIES;) {
        double begin = clock_s();
        pool_run(pool, peak_on_thread, &job);
        double s = clock_s() - begin;
        if (s < PEAK_SECONDS) {
            job.rounds *= 2;
            continue;
        }
        double ops = 2.0 * macs * (double)job.rounds * pool_n_threads(pool);
        best = MAX(best, ops / s * 1e-9);
        tries++;
    }
    return best;
}

double roof_int8_gops(struct pool *pool) {
    const struct roof_loops *loops = roof_loops();
    return peak_gops(pool, loops->int8, loops->int8_macs);
}

double roof_f32_gops(struct pool *pool) {
    const struct roof_loops *loops = roof_loops();
    return peak_gops(pool, loops->f32, loops->f32_macs);
}
