/* matmul_avx512.c: micro-kernels for AVX-512 with VNNI. A register is one tile's 16 rows.
 *
 * One body per family of types, compiled for m tiles x n tokens. Each weight vector is loaded
 * once and used with n broadcast activations. Every sum stays in a register. vpdpbusd
 * multiplies unsigned x signed, so weights are stored with a bias, and a block's integer sum
 * starts at -bias * (sum of the block's activations). */
#include "kernels/matmul_isa.h"

#include "kernels/matmul_avx512.inc.h"

/* One token, floats: the prefetch distance, over all tiles side by side together (Zen 5: 4 to 8
 * KiB are equal). */
#define FLOAT_PREFETCH_BYTES 8192

/* The same for blocks that are read from WIDE tiles side by side.
 *
 * Intel's servers: prefetch into the second-level cache, which allows three times as many
 * requests as the first. There one tile gives 0.56 of the roof (Q4_0, Granite Rapids), four
 * 0.94. 640 to 1536 bytes, and eight tiles by 512, are equal.
 *
 * Zen 5: prefetch into the first level. There one tile gives 0.69 to 0.77 (Q8_0), four 0.83 to
 * 0.86. Four give 0.93 to 0.95 if they prefetch a line or two between multiplications instead
 * of a whole block before it. 1024 to 1536 bytes are equal.
 *
 * Zen 4, types of eight bits: prefetch into the second level. The products are 1.12 to 1.14
 * times as fast (1.02 times if other guests leave it 35 GB/s).
 *
 * Zen 4, types of fewer bits: one tile, or two if a tile and the activations exceed the
 * first-level cache. As one stream, weights pass through that cache without evicting the
 * activations, but each tile then reads the activations from the second (8192 columns, one
 * thread: Q4_0 0.95 instead of 0.83 of the roof, Q4_K 0.90 instead of 0.85; four tiles are
 * slower). */
#define WIDE 4
#define WIDE_PREFETCH_BYTES 1280
#define TWO_COLS 4096

/* Ice Lake's servers keep more lines under way with more streams: a plain loop over 16 streams
 * reads 1.2 times as fast as one over four. A token over eight tiles, prefetched into the
 * first-level cache, is 1.02 (Q4_0), 1.04 (Q8_0), 1.08 (F16) and 1.09 times (Q4_K) as fast as
 * over four. */
#define WIDEST 8
#define WIDEST_PREFETCH_BYTES 1024

/* Of two tiles, what stays in the smallest first-level cache, 32 KiB, while activations pass. */
#define CHUNK_BYTES 18432

INLINE __m512i broadcast_4(const void *p) {
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm512_set1_epi32(x);
}

/* Of the processors with AVX-512 the one of this family. It reads faster by itself than where
 * lines are asked for into the first cache (F16 at 1.0 instead of 0.85 of the roof). */
INLINE bool is_zen4(void) {
    return __builtin_cpu_is("amdfam19h");
}

INLINE bool is_amd(void) {
    return __builtin_cpu_is("amd");
}

INLINE bool is_intel(void) {
    return __builtin_cpu_is("intel");
}

INLINE bool is_ice_lake(void) {
    return __builtin_cpu_is("icelake-server");
}

/* One token of m tiles side by side: asks for a line that a later iteration loads; it may lie
 * beyond the matrix. */
INLINE void prefetch_line(int m, const uint8_t *p) {
    const size_t ahead = m == WIDEST ? WIDEST_PREFETCH_BYTES : WIDE_PREFETCH_BYTES;
    const char *later = (const char *)((uintptr_t)p + ahead);
    if (m == WIDE && (is_intel() || is_zen4()))
        _mm_prefetch(later, _MM_HINT_T1);
    else
        _mm_prefetch(later, _MM_HINT_T0);
}

/* Before the multiplications of step `step` of a block's n_steps: asks for its share of the
 * lines. vectors: of the blocks. */
INLINE void prefetch_share(enum qtype type, int m, int n, const uint8_t *const *vectors,
                           size_t step, size_t n_steps) {
    size_t lines = div_up(tile_block_bytes(type), CACHE_LINE);
    if (n > 1 || m < WIDE)
        return;
    UNROLL
    for (size_t l = lines * step / n_steps; l < lines * (step + 1) / n_steps; l++) {
        UNROLL
        for (int i = 0; i < m; i++)
            prefetch_line(m, vectors[i] - tile_codes_at(type) + l * CACHE_LINE);
    }
}

/* ---- f32, f16, bf16: one FMA per column ----------------------------------------------- */

/* e4m3 at an f16's places is 2^8 too small. */
INLINE __m512 load_f8(const uint8_t *p) {
    __m256i w = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p));
    __m256i size = _mm256_slli_epi16(_mm256_and_si256(w, _mm256_set1_epi16(0x7f)), 7);
    __m256i sign = _mm256_slli_epi16(_mm256_and_si256(w, _mm256_set1_epi16(0x80)), 8);
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(size, sign)), _mm512_set1_ps(256.0f));
}

/* A column of a tile. */
INLINE __m512 load_floats(enum qtype type, const uint8_t *tile, size_t col) {
    const uint8_t *p = tile + tile_col_at(type, col);
    if (type == QT_F32)
        return _mm512_loadu_ps(p);
    if (type == QT_F16)
        return load_f16(p);
    if (type == QT_BF16)
        return load_bf16(p);
    return _mm512_mul_ps(load_f8(p), _mm512_loadu_ps(tile + tile_f8_scales_at(col)));
}

INLINE void mm_float(const struct mm_call *c, enum qtype type, int m, int n) {
    __m512 acc[MM_MAX_TILES][MM_MAX_TOKENS], sum[MM_MAX_TILES][MM_MAX_TOKENS];
    const float *x = c->f;
    uintptr_t ahead = c->ahead;
    size_t col = c->begin;
    acc_begin(c, m, n, sum);
    for (uint32_t end = c->begin + c->seg_cols; end <= c->end; end += c->seg_cols) {
        size_t piece = col;
        acc_zero(m, n, acc);
        while (col < end) {
            size_t stop = MIN(col + ACT_BLOCK, end);
            prefetch_ahead(c, &ahead);
            for (; col < stop; col++, x += c->gs) {
                __m512 w[MM_MAX_TILES];
                UNROLL
                for (int i = 0; i < m; i++)
                    w[i] = load_floats(type, c->w[i], col);
                UNROLL
                for (int t = 0; t < n; t++) {
                    __m512 xt = _mm512_set1_ps(x[t]);
                    UNROLL
                    for (int i = 0; i < m; i++)
                        acc[i][t] = _mm512_fmadd_ps(w[i], xt, acc[i][t]);
                }
            }
            if (col == end || col - piece == FLOAT_PIECE) {
                acc_add(m, n, acc, sum);
                acc_zero(m, n, acc);
                piece = col;
            }
        }
        acc_store(c, m, n, end, sum);
        acc_zero(m, n, sum);
    }
}

/* acc += the n_cols columns of a tile from col on; asks for what comes `ahead` bytes later. */
INLINE __m512 add_columns(enum qtype type, const uint8_t *tile, size_t col, const float *x,
                          size_t gs, size_t n_cols, size_t ahead, __m512 acc) {
    const size_t col_bytes = tile_col_bytes(type);
    UNROLL
    for (size_t i = 0; i < n_cols; i++) {
        if (i * col_bytes % CACHE_LINE == 0 && !is_zen4())
            _mm_prefetch((const char *)((uintptr_t)tile + tile_col_at(type, col + i) + ahead),
                         _MM_HINT_T0);
        acc = _mm512_fmadd_ps(load_floats(type, tile, col + i),
                              _mm512_set1_ps(x[(col + i) * gs]), acc);
    }
    return acc;
}

/* One token. The FMAs of a row wait for each other, so m tiles take turns; by `run` columns, since
 * memory likes long runs. */
INLINE void mm_float_one(const struct mm_call *c, enum qtype type, int m, size_t run) {
    __m512 acc[MM_MAX_TILES][MM_MAX_TOKENS], sum[MM_MAX_TILES][MM_MAX_TOKENS];
    const size_t gs = c->gs, ahead = FLOAT_PREFETCH_BYTES / (size_t)m;
    size_t col = 0;
    for (uint32_t end = c->seg_cols; end <= c->n_cols; end += c->seg_cols) {
        acc_zero(m, 1, sum);
        while (col < end) {
            size_t stop = MIN(col + FLOAT_PIECE, end);
            acc_zero(m, 1, acc);
            for (; col + run <= stop; col += run) {
                UNROLL
                for (int i = 0; i < m; i++)
                    acc[i][0] =
                        add_columns(type, c->w[i], col, c->f, gs, run, ahead, acc[i][0]);
            }
            for (; col < stop; col++) {
                UNROLL
                for (int i = 0; i < m; i++)
                    acc[i][0] = add_columns(type, c->w[i], col, c->f, gs, 1, ahead, acc[i][0]);
            }
            acc_add(m, 1, acc, sum);
        }
        acc_store(c, m, 1, end, sum);
    }
}

/* ---- integer dot products --------------------------------------------------------------- */

/* What unpack() exceeds the weights by, as a power of two; -1: nothing. */
INLINE int operand_bias_log2(enum qtype type) {
    return has_table(type) ? 7 : bias_log2(type);
}

/* The weights as unsigned bytes, biased: codes, or what a table has for them. */
INLINE __m512i unpack(enum qtype type, const uint8_t *p, int j) {
    __m512i w = codes(type, p, j);
    if (!has_table(type))
        return w;
    __m128i values = _mm_loadu_si128((const __m128i *)tile_formats[type].values);
    values = _mm_xor_si128(values, _mm_set1_epi8(-128));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), w);
}

/* The initial values of a block's integer sums: -bias * the sum of its activations. start: -128
 * times that, loaded from memory, since computing it would use the ports of vpdpbusd (6 % of
 * the time of Q8_0 on Zen 5). */
INLINE __m512i bias_start(enum qtype type, const int32_t *start) {
    const int log2 = operand_bias_log2(type);
    if (log2 < 0)
        return _mm512_setzero_si512();
    return _mm512_srai_epi32(_mm512_set1_epi32(*start), (unsigned)(7 - log2));
}

/* Codes of four bits that are weights but for their bias. */
INLINE bool is_nibbles(enum qtype type) {
    const struct tile_format *f = &tile_formats[type];
    return f->low_bits == 4 && f->high_bits == 0 && f->values == NULL;
}

/* dot[i][0] = the block's exact integer sums with one token, by two chains of vpdpbusd. High
 * nibbles are multiplied where they stand: their sum is sixteen times as large, and so is where
 * it begins. */
INLINE void dot_block_one(enum qtype type, int m, const uint8_t *const *w, const int8_t *q,
                          const int32_t *start, __m512i (*dot)[MM_MAX_TOKENS]) {
    const bool in_place = is_nibbles(type);
    __m512i odd[MM_MAX_TILES];
    UNROLL
    for (int i = 0; i < m; i++) {
        dot[i][0] = in_place ? _mm512_setzero_si512() : bias_start(type, start);
        odd[i] = _mm512_setzero_si512();
        if (in_place && operand_bias_log2(type) >= 0)
            odd[i] = _mm512_set1_epi32(*start);
    }
    UNROLL
    for (int v = 0; v < 4; v++) {
        prefetch_share(type, m, 1, w, (size_t)v, 4);
        UNROLL
        for (int i = 0; i < m; i++) {
            __m512i hi = in_place ? _mm512_and_si512(load(w[i] + TILE_VECTOR * v),
                                                     _mm512_set1_epi8((char)0xf0))
                                  : unpack(type, w[i], v + 4);
            dot[i][0] =
                _mm512_dpbusd_epi32(dot[i][0], unpack(type, w[i], v), broadcast_4(q + 4 * v));
            odd[i] = _mm512_dpbusd_epi32(odd[i], hi, broadcast_4(q + 16 + 4 * v));
        }
    }
    UNROLL
    for (int i = 0; i < m; i++)
        dot[i][0] =
            _mm512_add_epi32(dot[i][0], in_place ? _mm512_srai_epi32(odd[i], 4) : odd[i]);
}

/* dot[i][t] = the block's exact integer sums. */
INLINE void dot_block(enum qtype type, int m, int n, const uint8_t *const *w, const int8_t *q,
                      const int32_t *start, __m512i (*dot)[MM_MAX_TOKENS]) {
    if (n == 1) {
        dot_block_one(type, m, w, q, start, dot);
        return;
    }
    UNROLL
    for (int t = 0; t < n; t++) {
        UNROLL
        for (int i = 0; i < m; i++)
            dot[i][t] = bias_start(type, start + t);
    }
    UNROLL
    for (int v = 0; v < 4; v++) {
        __m512i lo[MM_MAX_TILES], hi[MM_MAX_TILES];
        UNROLL
        for (int i = 0; i < m; i++) {
            lo[i] = unpack(type, w[i], v);
            hi[i] = unpack(type, w[i], v + 4);
        }
        UNROLL
        for (int t = 0; t < n; t++) {
            __m512i x = broadcast_4(q + t * ACT_BLOCK + 4 * v);
            UNROLL
            for (int i = 0; i < m; i++)
                dot[i][t] = _mm512_dpbusd_epi32(dot[i][t], lo[i], x);
        }
        UNROLL
        for (int t = 0; t < n; t++) {
            __m512i x = broadcast_4(q + t * ACT_BLOCK + 16 + 4 * v);
            UNROLL
            for (int i = 0; i < m; i++)
                dot[i][t] = _mm512_dpbusd_epi32(dot[i][t], hi[i], x);
        }
    }
}

/* acc += dot * (d * dx), in kernels.h's order */
INLINE void add_dots(int m, int n, __m512i (*dot)[MM_MAX_TOKENS], const __m512 *d,
                     const float *dx, __m512 (*acc)[MM_MAX_TOKENS]) {
    UNROLL
    for (int t = 0; t < n; t++) {
        __m512 dt = _mm512_set1_ps(dx[t]);
        UNROLL
        for (int i = 0; i < m; i++)
            acc[i][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i][t]), _mm512_mul_ps(d[i], dt),
                                        acc[i][t]);
    }
}

/* Types with scales per block, before the vectors. */
INLINE void mm_block(const struct mm_call *c, enum qtype type, int m, int n) {
    __m512 acc[MM_MAX_TILES][MM_MAX_TOKENS];
    const size_t block_bytes = tile_block_bytes(type), gs = c->gs;
    const int8_t *q = c->q;
    const float *d = c->d, *s = c->s;
    const int32_t *start = c->start;
    const uint8_t *w[MM_MAX_TILES];
    uintptr_t ahead = c->ahead;
    UNROLL
    for (int i = 0; i < m; i++)
        w[i] = c->w[i] + c->begin / ACT_BLOCK * block_bytes;
    acc_begin(c, m, n, acc);
    for (uint32_t end = c->begin + c->seg_cols; end <= c->end; end += c->seg_cols) {
        for (size_t b = c->seg_cols / ACT_BLOCK; b > 0; b--) {
            __m512i dot[MM_MAX_TILES][MM_MAX_TOKENS];
            const uint8_t *vectors[MM_MAX_TILES];
            __m512 dw[MM_MAX_TILES];
            if (n > 1)
                prefetch_ahead(c, &ahead);
            UNROLL
            for (int i = 0; i < m; i++)
                vectors[i] = w[i] + tile_codes_at(type);
            dot_block(type, m, n, vectors, q, start, dot);
            UNROLL
            for (int i = 0; i < m; i++)
                dw[i] = scales_of(type) == TILE_E8M0 ? load_e8m0(w[i]) : load_scale(type, w[i]);
            add_dots(m, n, dot, dw, d, acc);
            if (tile_has_m(type)) {
                UNROLL
                for (int i = 0; i < m; i++) {
                    __m512 mw = load_scale(type, w[i] + 2 * TILE_ROWS);
                    if (tile_formats[type].bias != 0)
                        mw =
                            _mm512_fmadd_ps(_mm512_set1_ps(tile_formats[type].bias), dw[i], mw);
                    UNROLL
                    for (int t = 0; t < n; t++)
                        acc[i][t] = _mm512_fmadd_ps(mw, _mm512_set1_ps(s[t]), acc[i][t]);
                }
            }
            UNROLL
            for (int i = 0; i < m; i++)
                w[i] += block_bytes;
            q += gs * ACT_BLOCK;
            d += gs;
            s += gs;
            start += gs;
        }
        acc_store(c, m, n, end, acc);
        acc_zero(m, n, acc);
    }
}

/* ---- types with superblocks ------------------------------------------------------------- */

/* A scale, and perhaps a minimum, for a block: integers times the superblock's d and dmin. */
INLINE void mm_super(const struct mm_call *c, enum qtype type, int m, int n) {
    __m512 acc[MM_MAX_TILES][MM_MAX_TOKENS];
    const bool has_min = scales_of(type) == TILE_SCALE_MIN;
    uintptr_t ahead = c->ahead;
    uint32_t first = c->begin / ACT_BLOCK, b = first;
    acc_begin(c, m, n, acc);
    for (uint32_t end = c->begin + c->seg_cols; end <= c->end; end += c->seg_cols) {
        while (b < end / ACT_BLOCK) {
            uint32_t super = tile_super_of(c->col_phase, b);
            uint32_t stop = MIN(end / ACT_BLOCK, tile_super_end(c->col_phase, super));
            const uint8_t *block[MM_MAX_TILES];
            __m512 d[MM_MAX_TILES], dmin[MM_MAX_TILES];
            UNROLL
            for (int i = 0; i < m; i++) {
                const uint8_t *scales = c->w[i] + tile_super_at(type, c->col_phase, b);
                block[i] = c->w[i] + tile_block_at(type, c->col_phase, b);
                d[i] = load_super_d(type, scales);
                dmin[i] = load_f16(scales + 2 * TILE_ROWS);
            }
            for (; b < stop; b++) {
                __m512i dot[MM_MAX_TILES][MM_MAX_TOKENS];
                const uint8_t *vectors[MM_MAX_TILES];
                size_t at = (size_t)(b - first) * c->gs;
                const float *dx = c->d + at, *sx = c->s + at;
                UNROLL
                for (int i = 0; i < m; i++)
                    vectors[i] = block[i] + tile_codes_at(type);
                if (n > 1)
                    prefetch_ahead(c, &ahead);
                dot_block(type, m, n, vectors, c->q + at * ACT_BLOCK, c->start + at, dot);
                __m512 scale[MM_MAX_TILES], min[MM_MAX_TILES];
                UNROLL
                for (int i = 0; i < m; i++) {
                    scale[i] = _mm512_mul_ps(d[i], load_i8(block[i]));
                    if (has_min)
                        min[i] = _mm512_mul_ps(dmin[i], load_u8(block[i] + TILE_ROWS));
                }
                add_dots(m, n, dot, scale, dx, acc);
                if (has_min) {
                    UNROLL
                    for (int t = 0; t < n; t++) {
                        __m512 st = _mm512_set1_ps(sx[t]);
                        UNROLL
                        for (int i = 0; i < m; i++)
                            acc[i][t] = _mm512_fnmadd_ps(min[i], st, acc[i][t]);
                    }
                }
                UNROLL
                for (int i = 0; i < m; i++)
                    block[i] += tile_block_bytes(type);
            }
        }
        acc_store(c, m, n, end, acc);
        acc_zero(m, n, acc);
    }
}

/* out[half][t], of n tokens: the initial value of the half's integer sum, -bias times the sum
 * of its activations; without a bias, that sum itself. */
INLINE void half_sums(enum qtype type, const struct act_sums *sums, int n, int32_t (*out)[16]) {
    __m512i pairs = _mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), sums), half[2];
    half[0] = _mm512_srai_epi32(_mm512_slli_epi32(pairs, 16), 16);
    half[1] = _mm512_srai_epi32(pairs, 16);
    UNROLL
    for (int i = 0; i < 2; i++) {
        if (operand_bias_log2(type) >= 0)
            half[i] =
                _mm512_sub_epi32(_mm512_setzero_si512(),
                                 _mm512_slli_epi32(half[i], (unsigned)operand_bias_log2(type)));
        _mm512_store_si512(out[i], half[i]);
    }
}

/* dot[i][t] = the exact integer sums of one half of a block. */
INLINE void dot_half_block(enum qtype type, int half, int m, int n,
                           const uint8_t *const *vectors, const int8_t *q, int32_t (*sums)[16],
                           __m512i (*dot)[MM_MAX_TOKENS]) {
    UNROLL
    for (int t = 0; t < n; t++) {
        UNROLL
        for (int i = 0; i < m; i++)
            dot[i][t] = operand_bias_log2(type) >= 0 ? _mm512_set1_epi32(sums[half][t])
                                                     : _mm512_setzero_si512();
    }
    UNROLL
    for (int v = 0; v < 4; v++) {
        __m512i w[MM_MAX_TILES];
        prefetch_share(type, m, n, vectors, (size_t)(4 * half + v), 8);
        UNROLL
        for (int i = 0; i < m; i++)
            w[i] = unpack(type, vectors[i], 4 * half + v);
        UNROLL
        for (int t = 0; t < n; t++) {
            __m512i x = broadcast_4(q + t * ACT_BLOCK + 16 * half + 4 * v);
            UNROLL
            for (int i = 0; i < m; i++)
                dot[i][t] = _mm512_dpbusd_epi32(dot[i][t], w[i], x);
        }
    }
}

/* f[i][t] += sc * dot of one half of a block. Exact: every term and sum is an integer below
 * 2^24 in magnitude (the most: q6_K, 16 * 32 * 127 * 128 * 2). */
INLINE void dot_half(enum qtype type, int half, int m, int n, const uint8_t *const *vectors,
                     const int8_t *q, int32_t (*sums)[16], const __m512 *scale,
                     __m512 (*f)[MM_MAX_TOKENS]) {
    __m512i dot[MM_MAX_TILES][MM_MAX_TOKENS];
    dot_half_block(type, half, m, n, vectors, q, sums, dot);
    UNROLL
    for (int t = 0; t < n; t++) {
        UNROLL
        for (int i = 0; i < m; i++)
            f[i][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i][t]), scale[i], f[i][t]);
    }
}

/* Types with a d for each half of a block, before the vectors. */
INLINE void mm_pair(const struct mm_call *c, enum qtype type, int m, int n) {
    __m512 acc[MM_MAX_TILES][MM_MAX_TOKENS];
    const size_t block_bytes = tile_block_bytes(type);
    uintptr_t ahead = c->ahead;
    uint32_t first = c->begin / ACT_BLOCK, b = first;
    acc_begin(c, m, n, acc);
    for (uint32_t end = c->begin + c->seg_cols; end <= c->end; end += c->seg_cols) {
        for (; b < end / ACT_BLOCK; b++) {
            const uint8_t *block[MM_MAX_TILES], *vectors[MM_MAX_TILES];
            _Alignas(64) int32_t sums[2][16];
            size_t at = (size_t)(b - first) * c->gs;
            const int8_t *q = c->q + at * ACT_BLOCK;
            float dx[MM_MAX_TOKENS];
            half_sums(type, c->sums + at, n, sums);
            UNROLL
            for (int t = 0; t < n; t++)
                dx[t] = c->d[at + (size_t)t] * c->scale;
            UNROLL
            for (int i = 0; i < m; i++) {
                block[i] = c->w[i] + b * block_bytes;
                vectors[i] = block[i] + tile_codes_at(type);
            }
            if (n > 1)
                prefetch_ahead(c, &ahead);
            UNROLL
            for (int half = 0; half < 2; half++) {
                __m512i dot[MM_MAX_TILES][MM_MAX_TOKENS];
                __m512 d[MM_MAX_TILES];
                dot_half_block(type, half, m, n, vectors, q, sums, dot);
                UNROLL
                for (int i = 0; i < m; i++)
                    d[i] = load_f16(block[i] + 2 * TILE_ROWS * half);
                add_dots(m, n, dot, d, dx, acc);
            }
        }
        acc_store(c, m, n, end, acc);
        acc_zero(m, n, acc);
    }
}

/* acc[t] -= (min0 * sum0 + min1 * sum1) * (dmin * dx), for one tile of a type without bias. */
INLINE void subtract_mins(int n, const uint8_t *mins, int32_t (*sums)[16], __m512 dmin,
                          const float *dx, __m512 *acc) {
    __m512 min0 = load_u8(mins), min1 = load_u8(mins + TILE_ROWS);
    UNROLL
    for (int t = 0; t < n; t++) {
        __m512 sum0 = _mm512_set1_ps((float)sums[0][t]);
        __m512 sum1 = _mm512_set1_ps((float)sums[1][t]);
        __m512 below = _mm512_fmadd_ps(min1, sum1, _mm512_mul_ps(min0, sum0)); /* exact */
        acc[t] = _mm512_fnmadd_ps(below, _mm512_mul_ps(dmin, _mm512_set1_ps(dx[t])), acc[t]);
    }
}

/* A scale, and perhaps a minimum, for each half of a block. */
INLINE void mm_halves(const struct mm_call *c, enum qtype type, int m, int n) {
    __m512 acc[MM_MAX_TILES][MM_MAX_TOKENS];
    uintptr_t ahead = c->ahead;
    uint32_t first = c->begin / ACT_BLOCK, b = first;
    acc_begin(c, m, n, acc);
    for (uint32_t end = c->begin + c->seg_cols; end <= c->end; end += c->seg_cols) {
        while (b < end / ACT_BLOCK) {
            uint32_t super = tile_super_of(c->col_phase, b);
            uint32_t stop = MIN(end / ACT_BLOCK, tile_super_end(c->col_phase, super));
            const uint8_t *scales[MM_MAX_TILES], *block[MM_MAX_TILES];
            __m512 d[MM_MAX_TILES];
            UNROLL
            for (int i = 0; i < m; i++) {
                scales[i] = c->w[i] + tile_super_at(type, c->col_phase, b);
                block[i] = c->w[i] + tile_block_at(type, c->col_phase, b);
                d[i] = load_super_d(type, scales[i]);
            }
            for (; b < stop; b++) {
                const uint8_t *vectors[MM_MAX_TILES];
                __m512 scale0[MM_MAX_TILES], scale1[MM_MAX_TILES];
                __m512 f[MM_MAX_TILES][MM_MAX_TOKENS];
                _Alignas(64) int32_t sums[2][16];
                size_t at = (size_t)(b - first) * c->gs;
                const int8_t *q = c->q + at * ACT_BLOCK;
                const float *dx = c->d + at;
                half_sums(type, c->sums + at, n, sums);
                UNROLL
                for (int i = 0; i < m; i++) {
                    scale0[i] = load_i8(block[i]);
                    scale1[i] = load_i8(block[i] + TILE_ROWS);
                    vectors[i] = block[i] + tile_codes_at(type);
                }
                if (n > 1)
                    prefetch_ahead(c, &ahead);
                acc_zero(m, n, f);
                dot_half(type, 0, m, n, vectors, q, sums, scale0, f);
                dot_half(type, 1, m, n, vectors, q, sums, scale1, f);
                UNROLL
                for (int t = 0; t < n; t++) {
                    __m512 dt = _mm512_set1_ps(dx[t]);
                    UNROLL
                    for (int i = 0; i < m; i++)
                        acc[i][t] =
                            _mm512_fmadd_ps(f[i][t], _mm512_mul_ps(d[i], dt), acc[i][t]);
                }
                if (scales_of(type) == TILE_HALVES_MIN) {
                    UNROLL
                    for (int i = 0; i < m; i++)
                        subtract_mins(n, block[i] + 2 * TILE_ROWS, sums,
                                      load_f16(scales[i] + 2 * TILE_ROWS), dx, acc[i]);
                }
                UNROLL
                for (int i = 0; i < m; i++)
                    block[i] += tile_block_bytes(type);
            }
        }
        acc_store(c, m, n, end, acc);
        acc_zero(m, n, acc);
    }
}

/* ---- the table ------------------------------------------------------------------------ */

#define INSTANCE(family, type, m, n)                                   \
    static void family##_##type##_##m##x##n(const struct mm_call *c) { \
        family(c, QT_##type, m, n);                                    \
    }
#define SIDE_BY_SIDE(family, type, name, m)              \
    static void type##_##name(const struct mm_call *c) { \
        family(c, QT_##type, m, 1);                      \
    }

#define BLOCK_INSTANCES(family, type)                                                  \
    SIDE_BY_SIDE(family, type, alone, 1)                                               \
    SIDE_BY_SIDE(family, type, two, 2)                                                 \
    SIDE_BY_SIDE(family, type, wide, WIDE)                                             \
    SIDE_BY_SIDE(family, type, widest, WIDEST)                                         \
    INSTANCE(family, type, 2, 2)                                                       \
    INSTANCE(family, type, 2, 3)                                                       \
    INSTANCE(family, type, 2, 4)                                                       \
    INSTANCE(family, type, 2, 5)                                                       \
    INSTANCE(family, type, 2, 6)                                                       \
    static const struct mm_kernels type##_kernels = {                                  \
        .many = {NULL, NULL, family##_##type##_2x2, family##_##type##_2x3,             \
                 family##_##type##_2x4, family##_##type##_2x5, family##_##type##_2x6}, \
        .many_tiles = 2,                                                               \
        .chunk_bytes = CHUNK_BYTES,                                                    \
        .max_tokens = 6,                                                               \
    };

#define FLOAT_INSTANCES(type)                                                             \
    static void type##_wide(const struct mm_call *c) {                                    \
        mm_float_one(c, QT_##type, WIDE, 8);                                              \
    }                                                                                     \
    static void type##_widest(const struct mm_call *c) {                                  \
        mm_float_one(c, QT_##type, WIDEST, 4);                                            \
    }                                                                                     \
    INSTANCE(mm_float, type, 2, 2)                                                        \
    INSTANCE(mm_float, type, 2, 3)                                                        \
    INSTANCE(mm_float, type, 2, 4)                                                        \
    INSTANCE(mm_float, type, 2, 5)                                                        \
    INSTANCE(mm_float, type, 2, 6)                                                        \
    INSTANCE(mm_float, type, 2, 7)                                                        \
    INSTANCE(mm_float, type, 2, 8)                                                        \
    INSTANCE(mm_float, type, 2, 9)                                                        \
    INSTANCE(mm_float, type, 2, 10)                                                       \
    INSTANCE(mm_float, type, 2, 11)                                                       \
    INSTANCE(mm_float, type, 2, 12)                                                       \
    static const struct mm_kernels type##_kernels = {                                     \
        .many = {NULL, NULL, mm_float_##type##_2x2, mm_float_##type##_2x3,                \
                 mm_float_##type##_2x4, mm_float_##type##_2x5, mm_float_##type##_2x6,     \
                 mm_float_##type##_2x7, mm_float_##type##_2x8, mm_float_##type##_2x9,     \
                 mm_float_##type##_2x10, mm_float_##type##_2x11, mm_float_##type##_2x12}, \
        .many_tiles = 2,                                                                  \
        .chunk_bytes = CHUNK_BYTES,                                                       \
        .max_tokens = 12,                                                                 \
    };

#define BLOCK_TYPE(type) BLOCK_INSTANCES(mm_block, type)
#define PAIR_TYPE(type) BLOCK_INSTANCES(mm_pair, type)
#define SUPER_TYPE(type) BLOCK_INSTANCES(mm_super, type)
#define HALVES_TYPE(type) BLOCK_INSTANCES(mm_halves, type)
TILE_FLOAT_TYPES(FLOAT_INSTANCES)
TILE_BLOCK_TYPES(BLOCK_TYPE)
TILE_PAIR_TYPES(PAIR_TYPE)
TILE_SUPER_TYPES(SUPER_TYPE)
TILE_HALVES_TYPES(HALVES_TYPE)

#define ENTRY(type) [QT_##type] = &type##_kernels,
static const struct mm_kernels *const kernels_of[QT_N] = {TILE_FLOAT_TYPES(ENTRY)
                                                              TILE_CODED_TYPES(ENTRY)};

/* One token, by the number of tiles side by side. */
#define FLOAT_ONE(type) [QT_##type] = {[WIDE] = type##_wide, [WIDEST] = type##_widest},
#define CODED_ONE(type) \
    [QT_##type] = {     \
        [1] = type##_alone, [2] = type##_two, [WIDE] = type##_wide, [WIDEST] = type##_widest},
static const mm_fn one_of[QT_N][WIDEST + 1] = {TILE_FLOAT_TYPES(FLOAT_ONE)
                                                   TILE_CODED_TYPES(CODED_ONE)};

/* How many tiles of w one token goes over side by side. */
static uint32_t tiles_of_one(const struct wmat *w) {
    if (is_ice_lake())
        return WIDEST;
    if (!is_zen4() || act_kind_for(w->type) == ACT_F32 ||
        tile_block_bytes(w->type) >= ACT_BLOCK * TILE_ROWS)
        return WIDE;
    return w->n_cols >= TWO_COLS ? 2 : 1;
}

/* Settings that differ between processors. The second-level cache of Zen 4 and Zen 5 is fast
 * enough: calls over all columns make products of many tokens 1 to 4 % faster on the former (a
 * whole prompt: Q4_K 3 %, Q8_0 0 %), 0 to 6 % on the latter. */
struct mm_kernels mm_kernels_avx512(const struct wmat *w) {
    const enum qtype type = w->type;
    struct mm_kernels k = *kernels_of[type];
    if (is_amd())
        k.chunk_bytes = 0;
    k.one_tiles = tiles_of_one(w);
    k.one = one_of[type][k.one_tiles];
    if (k.one_tiles == WIDEST) {
        k.rest = one_of[type][WIDE];
        k.rest_tiles = WIDE;
    }
    return k;
}

void matmul_avx512(const struct wmat *w, const struct act *x, float *y, size_t ldy,
                   uint32_t tile_begin, uint32_t tile_end) {
    struct mm_kernels k = mm_kernels_avx512(w);
    mm_drive(&k, w, x, y, ldy, tile_begin, tile_end);
}

void matmul_fixed_avx512(const struct wmat *w, const struct act *x, int64_t *y, size_t ldy,
                         const uint32_t *rows, uint32_t seg_cols, uint32_t tile_begin,
                         uint32_t tile_end) {
    struct mm_kernels k = mm_kernels_avx512(w);
    mm_drive_fixed(&k, w, x, y, ldy, rows, seg_cols, tile_begin, tile_end);
}
