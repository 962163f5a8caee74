/* sum_codec.c: Packs and unpacks fixed-point sums for the wire, in portable code, and chooses
 * the fastest version. */
#include "fabric/sum_codec.h"

#include "base/util.h"

#include <stdatomic.h>

#define ROW CHECK_LANES

/* ---- the plain loops: the definition -------------------------------------------------------- */

static inline void check_row(struct check *c, const int32_t *row) {
    for (int k = 0; k < ROW; k++) {
        c->sum[k] += (uint32_t)row[k];
        c->sums[k] += c->sum[k];
    }
}

static uint64_t plain_narrow(int32_t *out, const int64_t *x, size_t n_rows, struct check *c) {
    uint64_t wide = 0;
    for (size_t r = 0; r < n_rows; r++, x += ROW, out += ROW) {
        for (int k = 0; k < ROW; k++) {
            wide |= ((uint64_t)x[k] + 0x80000000u) >> 32;
            out[k] = (int32_t)(uint32_t)(uint64_t)x[k];
        }
        check_row(c, out);
    }
    return wide;
}

static void plain_add(int64_t *x, const int32_t *in, size_t n_rows, struct check *c) {
    for (size_t r = 0; r < n_rows; r++, x += ROW, in += ROW) {
        int32_t row[ROW];
        memcpy(row, in, sizeof row);
        check_row(c, row);
        for (int k = 0; k < ROW; k++)
            x[k] = (int64_t)((uint64_t)x[k] + (uint64_t)(int64_t)row[k]);
    }
}

static void plain_copy(int64_t *x, const int32_t *in, size_t n_rows, struct check *c) {
    for (size_t r = 0; r < n_rows; r++, x += ROW, in += ROW) {
        int32_t row[ROW];
        memcpy(row, in, sizeof row);
        check_row(c, row);
        for (int k = 0; k < ROW; k++)
            x[k] = row[k];
    }
}

static void plain_check(struct check *c, const void *data, size_t n_rows) {
    int32_t row[ROW];
    for (size_t r = 0; r < n_rows; r++) {
        memcpy(row, (const uint8_t *)data + r * sizeof row, sizeof row);
        check_row(c, row);
    }
}

const struct pack_loops pack_loops_plain = {plain_narrow, plain_add, plain_copy, plain_check};

static const struct pack_loops *select_loops(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
        return &pack_loops_avx512;
    if (__builtin_cpu_supports("avx2"))
        return &pack_loops_avx2;
#endif
    return &pack_loops_plain;
}

const struct pack_loops *pack_loops_select(void) {
    static const struct pack_loops *_Atomic chosen; /* relaxed: everybody chooses the same */
    const struct pack_loops *l = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (l == NULL) {
        l = select_loops();
        atomic_store_explicit(&chosen, l, memory_order_relaxed);
    }
    return l;
}

/* ---- narrow ------------------------------------------------------------------------------ */

/* All n elements, the last row through a copy; 0 if all fitted. */
static uint64_t narrow_all(int32_t *out, const int64_t *x, size_t n, struct check *c) {
    const struct pack_loops *loops = pack_loops_select();
    uint64_t wide = loops->narrow(out, x, n / ROW, c);
    size_t rest = n % ROW;
    if (rest != 0) {
        int64_t in[ROW] = {0};
        int32_t row[ROW];
        memcpy(in, x + n - rest, rest * sizeof *x);
        wide |= loops->narrow(row, in, 1, c);
        memcpy(out + n - rest, row, rest * sizeof *out);
    }
    return wide;
}

typedef void widen_fn(int64_t *x, const int32_t *in, size_t n_rows, struct check *c);

static void widen_all(widen_fn *fn, int64_t *x, const int32_t *in, size_t n, struct check *c) {
    fn(x, in, n / ROW, c);
    size_t rest = n % ROW;
    if (rest != 0) {
        int64_t to[ROW] = {0};
        int32_t row[ROW] = {0};
        memcpy(to, x + n - rest, rest * sizeof *x);
        memcpy(row, in + n - rest, rest * sizeof *in);
        fn(to, row, 1, c);
        memcpy(x + n - rest, to, rest * sizeof *x);
    }
}

/* ---- wide -------------------------------------------------------------------------------- */

static size_t bitmap_bytes(size_t n) {
    return div_up(div_up(n, PACK_BLOCK), 64) * 8;
}

static size_t pack_wide(uint8_t *out, const int64_t *x, size_t n) {
    uint64_t *bitmap = (uint64_t *)out;
    memset(bitmap, 0, bitmap_bytes(n));
    uint8_t *at = out + bitmap_bytes(n);
    for (size_t i = 0; i < n; i += PACK_BLOCK) {
        size_t m = MIN(n - i, (size_t)PACK_BLOCK), block = i / PACK_BLOCK;
        int32_t narrow[PACK_BLOCK];
        struct check unused = {0};
        bool wide = narrow_all(narrow, x + i, m, &unused) != 0;
        size_t bytes = m * (wide ? sizeof(int64_t) : sizeof(int32_t));
        if (wide)
            bitmap[block / 64] |= 1ull << block % 64;
        memcpy(at, wide ? (const void *)(x + i) : narrow, bytes);
        at += bytes;
    }
    return (size_t)(at - out);
}

static void add_block(int64_t *x, const uint8_t *in, size_t n, bool wide) {
    for (size_t i = 0; i < n; i++) {
        int64_t v;
        int32_t v32;
        if (wide) {
            memcpy(&v, in + i * sizeof v, sizeof v);
        } else {
            memcpy(&v32, in + i * sizeof v32, sizeof v32);
            v = v32;
        }
        x[i] = (int64_t)((uint64_t)x[i] + (uint64_t)v);
    }
}

/* The bitmap is copied before it decides where to read: the sender could still write to it. */
static bool add_wide(int64_t *x, size_t n, const uint8_t *in, size_t n_bytes) {
    uint64_t bitmap[PACK_CHUNK / PACK_BLOCK / 64];
    size_t at = bitmap_bytes(n);
    if (at > sizeof bitmap || n_bytes < at)
        return false;
    memcpy(bitmap, in, at);
    for (size_t i = 0; i < n; i += PACK_BLOCK) {
        size_t m = MIN(n - i, (size_t)PACK_BLOCK), block = i / PACK_BLOCK;
        bool wide = bitmap[block / 64] >> block % 64 & 1;
        size_t bytes = m * (wide ? sizeof(int64_t) : sizeof(int32_t));
        if (n_bytes - at < bytes)
            return false;
        add_block(x + i, in + at, m, wide);
        at += bytes;
    }
    return at == n_bytes;
}

/* ---- both -------------------------------------------------------------------------------- */

size_t pack(void *out, const int64_t *x, size_t n, bool *narrow, uint32_t *check) {
    struct check c = {0};
    size_t n_bytes = n * sizeof(int32_t);
    *narrow = narrow_all(out, x, n, &c) == 0;
    if (!*narrow) {
        n_bytes = pack_wide(out, x, n);
        c = (struct check){0};
        check_bytes(&c, out, n_bytes);
    }
    *check = check_end(&c, n_bytes);
    return n_bytes;
}

static bool unpack(widen_fn *fn, int64_t *x, size_t n, const void *in, size_t n_bytes,
                   bool narrow, uint32_t *check) {
    struct check c = {0};
    bool fits = n_bytes == n * sizeof(int32_t);
    if (narrow && fits) {
        widen_all(fn, x, in, n, &c);
    } else {
        check_bytes(&c, in, n_bytes);
        fits = !narrow && add_wide(x, n, in, n_bytes);
    }
    *check = check_end(&c, n_bytes);
    return fits;
}

bool unpack_add(int64_t *x, size_t n, const void *in, size_t n_bytes, bool narrow,
                uint32_t *check) {
    return unpack(pack_loops_select()->add, x, n, in, n_bytes, narrow, check);
}

bool unpack_copy(int64_t *x, size_t n, const void *in, size_t n_bytes, bool narrow,
                 uint32_t *check) {
    if (!narrow)
        memset(x, 0, n * sizeof *x);
    return unpack(pack_loops_select()->copy, x, n, in, n_bytes, narrow, check);
}
