/* kernel_fixture.h: what the tests of the kernels share: every table that runs here, buffers
 * that end at a guard page, random numbers whose seed is printed, comparison of bits. */
#ifndef LOCKSTEP_TESTS_KERNEL_FIXTURE_H
#define LOCKSTEP_TESTS_KERNEL_FIXTURE_H

#include "amx_on_avx512.h"
#include "base/rng.h"
#include "base/util.h"
#include "kernels/kernels.h"
#include "vnni_on_avx2.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- tables --------------------------------------------------------------------------- */

/* kernels_get(), and where the machine has AVX2 but not AVX-VNNI, or AVX-512 but not AMX, the
 * latter's kernels all the same. */
static inline const struct kernels *table_of(enum isa isa) {
    const struct kernels *k = kernels_get(isa);
#if defined(__x86_64__)
    if (k == NULL && isa == ISA_AVXVNNI)
        k = vnni_on_avx2();
    if (k == NULL && isa == ISA_AMX)
        k = amx_on_avx512();
#endif
    return k;
}

/* Every table that runs here, but the definition itself. */
#define FOR_EACH_ISA(k)                                   \
    for (int isa_ = ISA_SCALAR + 1; isa_ < ISA_N; isa_++) \
        for (const struct kernels *k = table_of((enum isa)isa_); k != NULL; k = NULL)

/* The definition too. */
#define FOR_EACH_TABLE(k)                    \
    for (int isa_ = 0; isa_ < ISA_N; isa_++) \
        for (const struct kernels *k = table_of((enum isa)isa_); k != NULL; k = NULL)

static inline const struct kernels *definition(void) {
    return kernels_get(ISA_SCALAR);
}

/* Skips the test where only the definition runs. */
static inline void isa_or_skip(void) {
    FOR_EACH_ISA(k) {
        return;
    }
    print_message("skip: this machine runs only the scalar kernels\n");
    skip();
}

/* ---- random numbers ------------------------------------------------------------------- */

struct random {
    uint64_t seed, counter;
};

static inline uint64_t random_u64(struct random *r) {
    return rng_u64(r->seed, r->counter++);
}

/* 0..n-1 */
static inline uint32_t random_below(struct random *r, uint32_t n) {
    return (uint32_t)(random_u64(r) % n);
}

static inline float random_float(struct random *r, float low, float high) {
    return low + (high - low) * (float)rng_uniform(r->seed, r->counter++);
}

#define PICK(r, list) ((list)[random_below((r), ARRAY_LEN(list))])

/* ---- buffers -------------------------------------------------------------------------- */

#define CANARY 0xA5

/* n bytes that end where an unreadable page begins (aligned ones: less than 64 bytes before).
 * Everything but the n bytes is canary: buf_check() sees a write beside them. */
struct buf {
    uint8_t *map;
    size_t map_bytes;
    uint8_t *p;
    size_t n;
};

static inline struct buf buf_new(size_t n, size_t align) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = round_up(n + 256, page);
    struct buf b = {.n = n, .map_bytes = body + page};
    b.map = mmap(NULL, b.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(b.map != MAP_FAILED);
    assert_int_equal(mprotect(b.map + body, page, PROT_NONE), 0);
    memset(b.map, CANARY, body);
    b.p = b.map + body - round_up(n, align);
    return b;
}

static inline bool buf_intact(const struct buf *b) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uint8_t *end = b->map + b->map_bytes - page;
    for (const uint8_t *p = b->map; p < end; p++)
        if ((p < b->p || p >= b->p + b->n) && *p != CANARY)
            return false;
    return true;
}

static inline void buf_free(struct buf *b) {
    assert_true(buf_intact(b));
    munmap(b->map, b->map_bytes);
}

static inline struct buf floats_new(size_t n) {
    return buf_new(n * sizeof(float), sizeof(float));
}

static inline struct buf floats_random(struct random *r, size_t n, float low, float high) {
    struct buf b = floats_new(n);
    for (size_t i = 0; i < n; i++)
        ((float *)b.p)[i] = random_float(r, low, high);
    return b;
}

/* ---- bits ----------------------------------------------------------------------------- */

/* Equal bits; a NaN equals a NaN. */
static inline bool same_float(float a, float b) {
    return (a != a && b != b) || memcmp(&a, &b, sizeof a) == 0;
}

static inline void check_floats(const float *got, const float *want, size_t n, const char *isa,
                                const char *what, uint64_t seed) {
    for (size_t i = 0; i < n; i++)
        if (!same_float(got[i], want[i]))
            fail_msg("%s %s, seed %llu: [%zu] is %a, the definition gives %a", isa, what,
                     (unsigned long long)seed, i, (double)got[i], (double)want[i]);
}

/* ---- packed activations --------------------------------------------------------------- */

struct packed {
    struct act act;
    struct buf f, q, d, sums, start, s;
};

static inline struct packed packed_new(enum act_kind kind, uint32_t n_tokens, uint32_t n_cols) {
    struct packed p = {.act = {.kind = kind, .n_tokens = n_tokens, .n_cols = n_cols}};
    size_t n = (size_t)n_tokens * n_cols, n_blocks = n / ACT_BLOCK;
    bool q8 = kind == ACT_Q8;
    p.f = buf_new(q8 ? 0 : n * 4, 64);
    p.q = buf_new(q8 ? n : 0, 64);
    p.d = buf_new(q8 ? n_blocks * 4 : 0, 64);
    p.sums = buf_new(q8 ? n_blocks * sizeof(struct act_sums) : 0, 64);
    p.start = buf_new(q8 ? n_blocks * 4 : 0, 64);
    p.s = buf_new(q8 ? n_blocks * 4 : 0, 64);
    p.act.f = (float *)p.f.p;
    p.act.q = (int8_t *)p.q.p;
    p.act.d = (float *)p.d.p;
    p.act.sums = (struct act_sums *)p.sums.p;
    p.act.start = (int32_t *)p.start.p;
    p.act.s = (float *)p.s.p;
    return p;
}

static inline void packed_free(struct packed *p) {
    buf_free(&p->f);
    buf_free(&p->q);
    buf_free(&p->d);
    buf_free(&p->sums);
    buf_free(&p->start);
    buf_free(&p->s);
}

/* Packs all of x [n_tokens, ldx]. */
static inline struct packed packed_from(const struct kernels *k, enum act_kind kind,
                                        const float *x, size_t ldx, uint32_t n_tokens,
                                        uint32_t n_cols) {
    struct packed p = packed_new(kind, n_tokens, n_cols);
    k->act_pack(&p.act, x, ldx, 0, (uint32_t)div_up(n_cols, ACT_BLOCK));
    return p;
}

#endif
