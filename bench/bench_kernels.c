/* bench_kernels.c: the products of kernels.h beside the machine's roofs, type by type.
 *
 *     bench_kernels [--type q8_0,f16] [--threads 1,2] [--rounds 5] [--tokens 512]
 *
 * matmul on the shape of a 1B model's FFN gate, matmul_fixed on that of its FFN down; for
 * decode several of the former in a row, so that 512 MB come from memory. All measurements of a
 * round follow each other, and the medians of the rounds are shown: a slow moment of the
 * machine hits the roofs too. */
#include "base/clock.h"
#include "base/median.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/util.h"
#include "kernels/kernels.h"
#include "roof/roof.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define N_ROWS 8192
#define N_COLS 2048
#define SEG_COLS 256
#define DECODE_BYTES ((size_t)512 << 20)
#define MAX_ROUNDS 31

struct options {
    const char *types, *threads;
    int rounds;
    uint32_t tokens;
};

struct measured {
    double decode_gbs[MAX_ROUNDS], prefill_gops[MAX_ROUNDS], fixed_gops[MAX_ROUNDS];
    double read_gbs[MAX_ROUNDS], peak_gops[MAX_ROUNDS];
};

struct bench {
    const struct kernels *k;
    struct pool *pool;
    struct wmat w, down;
    uint32_t n_matrices; /* that decode reads, one after the other in memory */
    uint8_t *weights;
    struct act one, many, many_down;
    float *y;
    int64_t *y_fixed;
};

/* Words that are sane weights wherever they stand: f16 of 0.06 to 0.12, and any bytes. */
static void fill_weights(uint8_t *p, size_t bytes) {
    uint64_t x = 1;
    for (size_t i = 0; i + 2 <= bytes; i += 2) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        uint16_t word = (uint16_t)(0x2c00 | (x >> 54));
        memcpy(p + i, &word, 2);
    }
}

static struct act act_alloc(enum qtype type, uint32_t n_tokens, uint32_t n_cols) {
    struct act a = {.kind = act_kind_for(type), .n_tokens = n_tokens, .n_cols = n_cols};
    size_t n = (size_t)n_tokens * n_cols, n_blocks = n / ACT_BLOCK;
    a.f = mem_huge_alloc(n * sizeof(float));
    a.q = mem_huge_alloc(n);
    a.d = mem_huge_alloc(n_blocks * sizeof(float));
    a.sums = mem_huge_alloc(n_blocks * sizeof(struct act_sums));
    a.start = mem_huge_alloc(n_blocks * sizeof(int32_t));
    a.s = mem_huge_alloc(n_blocks * sizeof(float));
    return a;
}

static void act_free(const struct act *a) {
    size_t n = (size_t)a->n_tokens * a->n_cols, n_blocks = n / ACT_BLOCK;
    mem_huge_free(a->f, n * sizeof(float));
    mem_huge_free(a->q, n);
    mem_huge_free(a->d, n_blocks * sizeof(float));
    mem_huge_free(a->sums, n_blocks * sizeof(struct act_sums));
    mem_huge_free(a->start, n_blocks * sizeof(int32_t));
    mem_huge_free(a->s, n_blocks * sizeof(float));
}

static void act_fill(const struct kernels *k, const struct act *a) {
    size_t n = (size_t)a->n_tokens * a->n_cols;
    float *x = mem_huge_alloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((i * 2654435761u >> 7) % 2001) * 1e-3f - 1.0f;
    k->act_pack(a, x, a->n_cols, 0, (uint32_t)div_up(a->n_cols, ACT_BLOCK));
    mem_huge_free(x, n * sizeof *x);
}

static void decode_on_thread(void *arg, struct pool *pool, int thread) {
    (void)thread;
    const struct bench *b = arg;
    size_t begin, end, per_matrix = wmat_n_tiles(&b->w);
    while (pool_claim(pool, per_matrix * b->n_matrices, 8, &begin, &end)) {
        while (begin < end) {
            size_t matrix = begin / per_matrix, from = begin % per_matrix;
            size_t to = MIN(per_matrix, from + (end - begin));
            struct wmat w = b->w;
            w.tiles = b->weights + matrix * wmat_bytes(&b->w);
            b->k->matmul(&w, &b->one, b->y, N_ROWS, (uint32_t)from, (uint32_t)to);
            begin += to - from;
        }
    }
}

static void prefill_on_thread(void *arg, struct pool *pool, int thread) {
    (void)thread;
    const struct bench *b = arg;
    size_t begin, end;
    while (pool_claim(pool, wmat_n_tiles(&b->w) / 2, 1, &begin, &end))
        b->k->matmul(&b->w, &b->many, b->y, N_ROWS, (uint32_t)begin * 2, (uint32_t)end * 2);
}

static void prefill_fixed_on_thread(void *arg, struct pool *pool, int thread) {
    (void)thread;
    const struct bench *b = arg;
    size_t begin, end;
    while (pool_claim(pool, wmat_n_tiles(&b->down) / 2, 1, &begin, &end))
        b->k->matmul_fixed(&b->down, &b->many_down, b->y_fixed, N_COLS, NULL, SEG_COLS,
                           (uint32_t)begin * 2, (uint32_t)end * 2);
}

static double seconds(struct bench *b, void (*fn)(void *, struct pool *, int)) {
    double begin = clock_s();
    pool_run(b->pool, fn, b);
    return clock_s() - begin;
}

static void one_round(struct bench *b, struct measured *m, int r) {
    size_t bytes = wmat_bytes(&b->w) * b->n_matrices;
    double ops = 2.0 * N_ROWS * N_COLS * b->many.n_tokens;
    m->read_gbs[r] = roof_read_gbs(b->pool, b->weights, bytes, 1);
    m->decode_gbs[r] = (double)bytes / seconds(b, decode_on_thread) * 1e-9;
    bool floats = b->many.kind == ACT_F32;
    m->peak_gops[r] = floats ? roof_f32_gops(b->pool) : roof_int8_gops(b->pool);
    m->prefill_gops[r] = ops / seconds(b, prefill_on_thread) * 1e-9;
    m->fixed_gops[r] = ops / seconds(b, prefill_fixed_on_thread) * 1e-9;
}

static void bench_type(const struct kernels *k, enum qtype type, struct pool *pool,
                       const struct options *o) {
    struct bench b = {.k = k,
                      .pool = pool,
                      .w = wmat_shape(type, N_ROWS, N_COLS, 0),
                      .down = wmat_shape(type, N_COLS, N_ROWS, 0)};
    b.n_matrices = (uint32_t)div_up(DECODE_BYTES, wmat_bytes(&b.w));
    size_t bytes = wmat_bytes(&b.w) * b.n_matrices;
    size_t y_values = (size_t)o->tokens * N_ROWS, fixed_values = (size_t)o->tokens * N_COLS;
    b.weights = mem_huge_alloc(bytes);
    b.w.tiles = b.down.tiles = b.weights;
    b.y = mem_huge_alloc(y_values * sizeof *b.y);
    b.y_fixed = mem_huge_alloc(fixed_values * sizeof *b.y_fixed);
    fill_weights(b.weights, bytes);
    b.one = act_alloc(type, 1, N_COLS);
    b.many = act_alloc(type, o->tokens, N_COLS);
    act_fill(k, &b.one);
    act_fill(k, &b.many);
    b.many_down = act_alloc(type, o->tokens, N_ROWS);
    act_fill(k, &b.many_down);

    struct measured m;
    for (int r = 0; r < o->rounds; r++)
        one_round(&b, &m, r);
    double read = median(m.read_gbs, o->rounds), peak = median(m.peak_gops, o->rounds);
    double decode = median(m.decode_gbs, o->rounds);
    double prefill = median(m.prefill_gops, o->rounds);
    double fixed = median(m.fixed_gops, o->rounds);
    printf("%-8s %7d  %6.1f %6.1f %5.2f   %6.0f %6.0f %5.2f   %6.0f %5.2f\n",
           qtype_info(type)->name, pool_n_threads(pool), decode, read, decode / read, prefill,
           peak, prefill / peak, fixed, fixed / peak);
    fflush(stdout);
    mem_huge_free(b.weights, bytes);
    mem_huge_free(b.y, y_values * sizeof *b.y);
    mem_huge_free(b.y_fixed, fixed_values * sizeof *b.y_fixed);
    act_free(&b.one);
    act_free(&b.many);
    act_free(&b.many_down);
}

/* Is `name` one of the comma-separated words of list? */
static bool listed(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *p = list; p != NULL; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncasecmp(p, name, n) == 0 && (p[n] == ',' || p[n] == 0))
            return true;
    }
    return false;
}

static bool parse(int argc, char **argv, struct options *o) {
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc)
            return false;
        if (str_eq(argv[i], "--type"))
            o->types = argv[i + 1];
        else if (str_eq(argv[i], "--threads"))
            o->threads = argv[i + 1];
        else if (str_eq(argv[i], "--rounds"))
            o->rounds = atoi(argv[i + 1]);
        else if (str_eq(argv[i], "--tokens"))
            o->tokens = (uint32_t)atoi(argv[i + 1]);
        else
            return false;
    }
    return o->rounds >= 1 && o->rounds <= MAX_ROUNDS && o->tokens >= 1;
}

int main(int argc, char **argv) {
    struct options o = {.threads = "1,2", .rounds = 5, .tokens = 512};
    struct err err;
    const struct kernels *k;
    if (!parse(argc, argv, &o)) {
        fprintf(stderr, "usage: bench_kernels [--type q8_0,f16] [--threads 1,2] [--rounds 5] "
                        "[--tokens 512]\n");
        return 2;
    }
    if (kernels_select(&k, &err) != ST_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 2;
    }
    printf("%s, %d x %d, %u tokens\n", k->name, N_ROWS, N_COLS, o.tokens);
    printf("type     threads  decode   roof          prefill   peak          fixed\n"
           "                    GB/s   GB/s           GOP/s  GOP/s           GOP/s\n");
    for (int threads = 1; threads <= 256; threads++) {
        char number[16];
        snprintf(number, sizeof number, "%d", threads);
        struct pool *pool;
        if (!listed(o.threads, number))
            continue;
        if (pool_open(&pool, threads, &err) != ST_OK) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        for (uint32_t type = 0; type < QT_N; type++) {
            const struct qtype_info *info = qtype_info(type);
            if (info == NULL || !wmat_type_supported(type))
                continue;
            if (o.types == NULL || listed(o.types, info->name))
                bench_type(k, type, pool, &o);
        }
        pool_close(pool);
    }
    return 0;
}
