/* sum_codec_avx2.c: sum_codec.h's loops with 256-bit vectors: a row of 16 words is two of them.
 */
#include "fabric/sum_codec.h"

#include <immintrin.h>

struct lanes {
    __m256i sum0, sum1, sums0, sums1;
};

static inline struct lanes lanes_load(const struct check *c) {
    return (struct lanes){_mm256_load_si256((const __m256i *)c->sum),
                          _mm256_load_si256((const __m256i *)c->sum + 1),
                          _mm256_load_si256((const __m256i *)c->sums),
                          _mm256_load_si256((const __m256i *)c->sums + 1)};
}

static inline void lanes_store(struct check *c, struct lanes l) {
    _mm256_store_si256((__m256i *)c->sum, l.sum0);
    _mm256_store_si256((__m256i *)c->sum + 1, l.sum1);
    _mm256_store_si256((__m256i *)c->sums, l.sums0);
    _mm256_store_si256((__m256i *)c->sums + 1, l.sums1);
}

static inline void lanes_row(struct lanes *l, __m256i w0, __m256i w1) {
    l->sum0 = _mm256_add_epi32(l->sum0, w0);
    l->sum1 = _mm256_add_epi32(l->sum1, w1);
    l->sums0 = _mm256_add_epi32(l->sums0, l->sum0);
    l->sums1 = _mm256_add_epi32(l->sums1, l->sum1);
}

/* The low halves of 8 int64; ors what does not fit into *wide. */
static inline __m256i low_halves(const int64_t *x, __m256i *wide) {
    const __m256i bias = _mm256_set1_epi64x(0x80000000);
    __m256i a = _mm256_loadu_si256((const __m256i *)x);
    __m256i b = _mm256_loadu_si256((const __m256i *)x + 1);
    __m256i over = _mm256_or_si256(_mm256_add_epi64(a, bias), _mm256_add_epi64(b, bias));
    *wide = _mm256_or_si256(*wide, over);
    __m256 lows = _mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b),
                                    _MM_SHUFFLE(2, 0, 2, 0));
    return _mm256_permute4x64_epi64(_mm256_castps_si256(lows), _MM_SHUFFLE(3, 1, 2, 0));
}

static uint64_t avx2_narrow(int32_t *out, const int64_t *x, size_t n_rows, struct check *c) {
    struct lanes l = lanes_load(c);
    __m256i wide = _mm256_setzero_si256();
    for (size_t r = 0; r < n_rows; r++, x += 16, out += 16) {
        __m256i w0 = low_halves(x, &wide), w1 = low_halves(x + 8, &wide);
        _mm256_storeu_si256((__m256i *)out, w0);
        _mm256_storeu_si256((__m256i *)out + 1, w1);
        lanes_row(&l, w0, w1);
    }
    lanes_store(c, l);
    const __m256i high = _mm256_set1_epi64x((long long)0xffffffff00000000u);
    return !_mm256_testz_si256(wide, high);
}

static inline void add_eight(int64_t *x, __m256i w) {
    __m256i *to = (__m256i *)x;
    __m256i a = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(w));
    __m256i b = _mm256_cvtepi32_epi64(_mm256_extracti128_si256(w, 1));
    _mm256_storeu_si256(to, _mm256_add_epi64(_mm256_loadu_si256(to), a));
    _mm256_storeu_si256(to + 1, _mm256_add_epi64(_mm256_loadu_si256(to + 1), b));
}

static void avx2_add(int64_t *x, const int32_t *in, size_t n_rows, struct check *c) {
    struct lanes l = lanes_load(c);
    for (size_t r = 0; r < n_rows; r++, x += 16, in += 16) {
        __m256i w0 = _mm256_loadu_si256((const __m256i *)in);
        __m256i w1 = _mm256_loadu_si256((const __m256i *)in + 1);
        lanes_row(&l, w0, w1);
        add_eight(x, w0);
        add_eight(x + 8, w1);
    }
    lanes_store(c, l);
}

static inline void copy_eight(int64_t *x, __m256i w) {
    __m256i *to = (__m256i *)x;
    _mm256_storeu_si256(to, _mm256_cvtepi32_epi64(_mm256_castsi256_si128(w)));
    _mm256_storeu_si256(to + 1, _mm256_cvtepi32_epi64(_mm256_extracti128_si256(w, 1)));
}

static void avx2_copy(int64_t *x, const int32_t *in, size_t n_rows, struct check *c) {
    struct lanes l = lanes_load(c);
    for (size_t r = 0; r < n_rows; r++, x += 16, in += 16) {
        __m256i w0 = _mm256_loadu_si256((const __m256i *)in);
        __m256i w1 = _mm256_loadu_si256((const __m256i *)in + 1);
        lanes_row(&l, w0, w1);
        copy_eight(x, w0);
        copy_eight(x + 8, w1);
    }
    lanes_store(c, l);
}

static void avx2_check(struct check *c, const void *data, size_t n_rows) {
    struct lanes l = lanes_load(c);
    const __m256i *in = data;
    for (size_t r = 0; r < n_rows; r++, in += 2)
        lanes_row(&l, _mm256_loadu_si256(in), _mm256_loadu_si256(in + 1));
    lanes_store(c, l);
}

const struct pack_loops pack_loops_avx2 = {avx2_narrow, avx2_add, avx2_copy, avx2_check};
