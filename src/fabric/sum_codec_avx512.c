/* sum_codec_avx512.c: sum_codec.h's loops with 512-bit vectors: a row of 16 words is one of
 * them. */
#include "fabric/sum_codec.h"

#include <immintrin.h>

struct lanes {
    __m512i sum, sums;
};

static inline struct lanes lanes_load(const struct check *c) {
    return (struct lanes){_mm512_load_si512(c->sum), _mm512_load_si512(c->sums)};
}

static inline void lanes_store(struct check *c, struct lanes l) {
    _mm512_store_si512(c->sum, l.sum);
    _mm512_store_si512(c->sums, l.sums);
}

static inline void lanes_row(struct lanes *l, __m512i w) {
    l->sum = _mm512_add_epi32(l->sum, w);
    l->sums = _mm512_add_epi32(l->sums, l->sum);
}

static uint64_t avx512_narrow(int32_t *out, const int64_t *x, size_t n_rows, struct check *c) {
    const __m512i bias = _mm512_set1_epi64(0x80000000);
    struct lanes l = lanes_load(c);
    __m512i wide = _mm512_setzero_si512();
    for (size_t r = 0; r < n_rows; r++, x += 16, out += 16) {
        __m512i a = _mm512_loadu_si512(x), b = _mm512_loadu_si512(x + 8);
        wide = _mm512_or_si512(
            wide, _mm512_or_si512(_mm512_add_epi64(a, bias), _mm512_add_epi64(b, bias)));
        __m512i w = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(a)),
                                       _mm512_cvtepi64_epi32(b), 1);
        _mm512_storeu_si512(out, w);
        lanes_row(&l, w);
    }
    lanes_store(c, l);
    return _mm512_test_epi64_mask(wide, _mm512_set1_epi64((long long)0xffffffff00000000u));
}

static void avx512_add(int64_t *x, const int32_t *in, size_t n_rows, struct check *c) {
    struct lanes l = lanes_load(c);
    for (size_t r = 0; r < n_rows; r++, x += 16, in += 16) {
        __m512i w = _mm512_loadu_si512(in);
        __m512i a = _mm512_cvtepi32_epi64(_mm512_castsi512_si256(w));
        __m512i b = _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(w, 1));
        lanes_row(&l, w);
        _mm512_storeu_si512(x, _mm512_add_epi64(_mm512_loadu_si512(x), a));
        _mm512_storeu_si512(x + 8, _mm512_add_epi64(_mm512_loadu_si512(x + 8), b));
    }
    lanes_store(c, l);
}

static void avx512_copy(int64_t *x, const int32_t *in, size_t n_rows, struct check *c) {
    struct lanes l = lanes_load(c);
    for (size_t r = 0; r < n_rows; r++, x += 16, in += 16) {
        __m512i w = _mm512_loadu_si512(in);
        lanes_row(&l, w);
        _mm512_storeu_si512(x, _mm512_cvtepi32_epi64(_mm512_castsi512_si256(w)));
        _mm512_storeu_si512(x + 8, _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(w, 1)));
    }
    lanes_store(c, l);
}

static void avx512_check(struct check *c, const void *data, size_t n_rows) {
    struct lanes l = lanes_load(c);
    const uint8_t *in = data;
    for (size_t r = 0; r < n_rows; r++, in += CHECK_ROW_BYTES)
        lanes_row(&l, _mm512_loadu_si512(in));
    lanes_store(c, l);
}

const struct pack_loops pack_loops_avx512 = {avx512_narrow, avx512_add, avx512_copy,
                                             avx512_check};
