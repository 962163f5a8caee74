/* matmul_amx.c: products of many tokens with code weights on AMX's tiles. All other products
 * are AVX-512's.
 *
 * An AMX tile register holds up to 16 rows of 64 bytes. A block of a weight tile, unpacked to
 * signed bytes, has the form of tdpbssd's second operand: 8 rows, each of 4 columns of the 16
 * lanes. A block of the tokens of a group is its first operand without a change. The exact
 * integer sums, a row of 16 lanes for each token, come back through memory.
 *
 * Cost (Granite Rapids) of a block of two weight tiles and twelve tokens: multiplying keeps the
 * tile unit busy for 27 cycles and storing the sums for 33, one after the other. The float
 * operations take 48, since 512-bit vectors have one port for products while tiles are in use.
 * So the minimum is 60, and 85 were measured with all data in near caches. AVX-512 alone takes
 * 190.
 *
 * Unpacked weights have one form for all types of a family ("staged"). They are made once for
 * several calls. */
#include "kernels/matmul_isa.h"

#include "kernels/matmul_avx512.inc.h"
#include "kernels/tile_config.h"

/* With fewer tokens AVX-512 is at least as fast (Granite Rapids: by a fifth with 12, equal with
 * 24): unpacking must serve more than two calls. */
#define TOKENS_LEAST (2 * ACT_GROUP + 1)

/* Weight tiles of a call. */
#define TILES 2

/* ---- staged weights ---------------------------------------------------------------------
 *
 * For each block of columns: the codes of both tiles as int8, 512 bytes each, then the scales
 * of the one and of the other, vectors of 16 f32:
 *   STAGED_ONE          d            acc = fma(dot, d * dx, acc)
 *   STAGED_SUM          d, m         the same, then fma(m, s, acc)
 *   STAGED_PAIR         d0, d1       d for each half
 *   STAGED_HALVES       d, sc0, sc1
 *   STAGED_HALVES_MINS  d, sc0, sc1, dmin, min0, min1 */
enum staged { STAGED_ONE, STAGED_SUM, STAGED_PAIR, STAGED_HALVES, STAGED_HALVES_MINS };

#define CODES_BYTES (ACT_BLOCK * TILE_ROWS)
#define MOST_SCALES 6
_Static_assert(TILES *(CODES_BYTES + MOST_SCALES * TILE_VECTOR) <= MM_STAGED_BLOCK_BYTES,
               "the driver has room for every form");

INLINE enum staged staged_form(enum qtype type) {
    switch (scales_of(type)) {
    case TILE_D_D:
        return STAGED_PAIR;
    case TILE_HALVES:
        return STAGED_HALVES;
    case TILE_HALVES_MIN:
        return STAGED_HALVES_MINS;
    case TILE_SCALE_MIN:
        return STAGED_SUM;
    default:
        return tile_has_m(type) ? STAGED_SUM : STAGED_ONE;
    }
}

INLINE size_t staged_scales(enum staged form) {
    static const uint8_t n[] = {1, 2, 2, 3, MOST_SCALES};
    return n[form];
}

INLINE size_t staged_block_bytes(enum staged form) {
    return TILES * (CODES_BYTES + staged_scales(form) * TILE_VECTOR);
}

/* The sums of the halves of a block are wanted, each. */
INLINE int staged_parts(enum staged form) {
    return form >= STAGED_PAIR ? 2 : 1;
}

/* The weights as signed bytes. */
INLINE __m512i unpack_signed(enum qtype type, const uint8_t *p, int j) {
    __m512i w = codes(type, p, j);
    if (has_table(type)) {
        __m128i values = _mm_loadu_si128((const __m128i *)tile_formats[type].values);
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), w);
    }
    return _mm512_sub_epi8(w, _mm512_set1_epi8((char)tile_formats[type].bias));
}

INLINE void stage_codes(enum qtype type, const uint8_t *vectors, uint8_t *to) {
    UNROLL
    for (int j = 0; j < 8; j++)
        _mm512_store_si512(to + TILE_VECTOR * j, unpack_signed(type, vectors, j));
}

INLINE __m512 load_block_d(enum qtype type, const uint8_t *super, const uint8_t *block) {
    switch (scales_of(type)) {
    case TILE_E8M0:
        return load_e8m0(block);
    case TILE_SCALE:
    case TILE_SCALE_MIN:
        return _mm512_mul_ps(load_super_d(type, super), load_i8(block));
    case TILE_HALVES:
    case TILE_HALVES_MIN:
        return load_super_d(type, super);
    default:
        return load_scale(type, block);
    }
}

/* What is multiplied by the activations' sum. */
INLINE __m512 load_block_m(enum qtype type, const uint8_t *super, const uint8_t *block,
                           __m512 d) {
    if (scales_of(type) == TILE_SCALE_MIN) {
        __m512 min = _mm512_mul_ps(load_f16(super + 2 * TILE_ROWS), load_u8(block + TILE_ROWS));
        return _mm512_xor_ps(min, _mm512_set1_ps(-0.0f));
    }
    __m512 m = load_scale(type, block + 2 * TILE_ROWS);
    if (tile_formats[type].bias == 0)
        return m;
    return _mm512_fmadd_ps(_mm512_set1_ps(tile_formats[type].bias), d, m);
}

INLINE void stage_scales(enum qtype type, const uint8_t *super, const uint8_t *block,
                         float *to) {
    const enum staged form = staged_form(type);
    __m512 d = load_block_d(type, super, block);
    _mm512_store_ps(to, d);
    if (form == STAGED_SUM)
        _mm512_store_ps(to + TILE_ROWS, load_block_m(type, super, block, d));
    if (form == STAGED_PAIR)
        _mm512_store_ps(to + TILE_ROWS, load_f16(block + 2 * TILE_ROWS));
    if (form >= STAGED_HALVES) {
        _mm512_store_ps(to + TILE_ROWS, load_i8(block));
        _mm512_store_ps(to + 2 * TILE_ROWS, load_i8(block + TILE_ROWS));
    }
    if (form == STAGED_HALVES_MINS) {
        _mm512_store_ps(to + 3 * TILE_ROWS, load_f16(super + 2 * TILE_ROWS));
        _mm512_store_ps(to + 4 * TILE_ROWS, load_u8(block + 2 * TILE_ROWS));
        _mm512_store_ps(to + 5 * TILE_ROWS, load_u8(block + 3 * TILE_ROWS));
    }
}

INLINE void stage(enum qtype type, const struct mm_call *c, uint8_t *to) {
    const enum staged form = staged_form(type);
    for (uint32_t b = c->begin / ACT_BLOCK; b < c->end / ACT_BLOCK; b++) {
        UNROLL
        for (int i = 0; i < TILES; i++) {
            const uint8_t *block = c->w[i] + tile_block_at(type, c->col_phase, b);
            stage_codes(type, block + tile_codes_at(type), to + i * CODES_BYTES);
            uint8_t *scales = to + TILES * CODES_BYTES;
            stage_scales(type, c->w[i] + tile_super_at(type, c->col_phase, b), block,
                         (float *)(void *)scales + i * staged_scales(form) * TILE_ROWS);
        }
        to += staged_block_bytes(form);
    }
}

/* ---- tiles of AMX ----------------------------------------------------------------------- */

/* The last group of tokens may be smaller than the others. It has registers of its own, so the
 * shapes are set once for a whole product.
 *   0, 1  sums with either weight tile    5, 6  the same of the last group
 *   2     activations of a group          7     the same of the last group
 *   3, 4  weights */
static void set_shapes(enum staged form, uint32_t n_tokens) {
    static const bool last[8] = {[5] = true, [6] = true, [7] = true};
    struct tile_config config = {.palette = 1};
    uint32_t remain = n_tokens % ACT_GROUP;
    uint8_t full = ACT_GROUP, rest = remain > 0 ? (uint8_t)remain : ACT_GROUP;
    uint16_t cols = (uint16_t)(ACT_BLOCK / staged_parts(form));
    for (int i = 0; i < 8; i++) {
        config.rows[i] = last[i] ? rest : full;
        config.row_bytes[i] = TILE_VECTOR;
    }
    config.row_bytes[2] = config.row_bytes[7] = cols;
    config.rows[3] = config.rows[4] = (uint8_t)(cols / 4);
    tile_config_load(&config);
}

/* The last bit of MAGIC's f32 counts ones. Its bits plus an integer (below 2^22 in magnitude)
 * are the bits of MAGIC + the integer. So sums start at these bits and end in a float
 * subtraction. While tiles are in use, 512-bit multiplications and conversions have one port
 * (Granite Rapids: half the rate, whatever the tiles do), and additions the other. */
#define MAGIC 0x1.8p23f
#define MAGIC_BITS 0x4b400000

/* The exact integer sums of a block, or of its halves, and MAGIC_BITS. */
typedef int32_t block_dots[2][TILES][MM_MAX_TOKENS][TILE_ROWS];

/* Sums of half h of a block (or all of it) with weight tile i. */
INLINE void tile_multiply(enum staged form, int n, int h, int i, const int8_t *q,
                          const uint8_t *w) {
    static const _Alignas(64) int32_t magic[TILE_ROWS] = {
        MAGIC_BITS, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS,
        MAGIC_BITS, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS,
        MAGIC_BITS, MAGIC_BITS, MAGIC_BITS, MAGIC_BITS};
    q += ACT_BLOCK / staged_parts(form) * h;
    w += CODES_BYTES * i + CODES_BYTES / staged_parts(form) * h;
    if (n == ACT_GROUP && i == 0) {
        _tile_loadd(2, q, ACT_BLOCK);
        _tile_loadd(3, w, TILE_VECTOR);
        _tile_loadd(0, magic, 0);
        _tile_dpbssd(0, 2, 3);
    } else if (n == ACT_GROUP) {
        _tile_loadd(4, w, TILE_VECTOR);
        _tile_loadd(1, magic, 0);
        _tile_dpbssd(1, 2, 4);
    } else if (i == 0) {
        _tile_loadd(7, q, ACT_BLOCK);
        _tile_loadd(3, w, TILE_VECTOR);
        _tile_loadd(5, magic, 0);
        _tile_dpbssd(5, 7, 3);
    } else {
        _tile_loadd(4, w, TILE_VECTOR);
        _tile_loadd(6, magic, 0);
        _tile_dpbssd(6, 7, 4);
    }
}

INLINE void tile_store(int n, int i, int32_t (*to)[TILE_ROWS]) {
    if (n == ACT_GROUP && i == 0)
        _tile_stored(0, to, TILE_VECTOR);
    else if (n == ACT_GROUP)
        _tile_stored(1, to, TILE_VECTOR);
    else if (i == 0)
        _tile_stored(5, to, TILE_VECTOR);
    else
        _tile_stored(6, to, TILE_VECTOR);
}

/* ---- floats ----------------------------------------------------------------------------- */

/* A block's activations. */
struct tokens {
    const float *d, *s;
    float sum[2][TILE_ROWS]; /* STAGED_HALVES_MINS: of the halves */
};

INLINE void sum_halves(int n, const struct act_sums *sums, float (*to)[TILE_ROWS]) {
    __m512i pairs = _mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), sums);
    __m512i low = _mm512_srai_epi32(_mm512_slli_epi32(pairs, 16), 16);
    _mm512_storeu_ps(to[0], _mm512_cvtepi32_ps(low));
    _mm512_storeu_ps(to[1], _mm512_cvtepi32_ps(_mm512_srai_epi32(pairs, 16)));
}

INLINE __m512 dots_of(const int32_t *row) {
    return _mm512_sub_ps(_mm512_load_ps(row), _mm512_set1_ps(MAGIC));
}

/* An inner sum is exact: it and its terms are integers below 2^24 in magnitude. It starts at
 * +0, as an integer's zero is. */
INLINE __m512 sum_of_halves(__m512 a0, __m512 b0, __m512 a1, __m512 b1) {
    return _mm512_fmadd_ps(a1, b1, _mm512_fmadd_ps(a0, b0, _mm512_setzero_ps()));
}

/* One token's sums with weight tile i: in kernels.h's order. of: the tile's scales. */
INLINE __m512 add_block(enum staged form, int i, int t, block_dots dots, const float *of,
                        const struct tokens *x, float scale, __m512 acc) {
    __m512 d = _mm512_load_ps(of), next = _mm512_load_ps(of + TILE_ROWS);
    __m512 dx = _mm512_set1_ps(form == STAGED_PAIR ? x->d[t] * scale : x->d[t]);
    __m512 dot = dots_of(dots[0][i][t]);
    if (form >= STAGED_HALVES)
        dot = sum_of_halves(dot, next, dots_of(dots[1][i][t]),
                            _mm512_load_ps(of + 2 * TILE_ROWS));
    acc = _mm512_fmadd_ps(dot, _mm512_mul_ps(d, dx), acc);
    if (form == STAGED_SUM)
        acc = _mm512_fmadd_ps(next, _mm512_set1_ps(x->s[t]), acc);
    if (form == STAGED_PAIR)
        acc = _mm512_fmadd_ps(dots_of(dots[1][i][t]), _mm512_mul_ps(next, dx), acc);
    if (form == STAGED_HALVES_MINS) {
        __m512 below =
            sum_of_halves(_mm512_load_ps(of + 4 * TILE_ROWS), _mm512_set1_ps(x->sum[0][t]),
                          _mm512_load_ps(of + 5 * TILE_ROWS), _mm512_set1_ps(x->sum[1][t]));
        acc =
            _mm512_fnmadd_ps(below, _mm512_mul_ps(_mm512_load_ps(of + 3 * TILE_ROWS), dx), acc);
    }
    return acc;
}

/* ---- micro-kernels ---------------------------------------------------------------------- */

/* The first sums of block 0 and what comes after them: those of its other halves, or of block
 * 1. */
INLINE void begin_tiles(const struct mm_call *c, enum staged form, int n, size_t n_blocks,
                        block_dots dots) {
    const int parts = staged_parts(form);
    UNROLL
    for (int i = 0; i < TILES; i++)
        tile_multiply(form, n, 0, i, c->q, c->staged);
    UNROLL
    for (int h = 0; h < parts; h++) {
        size_t next = parts == 1 || h == 1 ? MIN(1, n_blocks - 1) : 0;
        UNROLL
        for (int i = 0; i < TILES; i++) {
            tile_store(n, i, dots[h][i]);
            tile_multiply(form, n, parts == 2 && h == 0, i, c->q + next * c->gs * ACT_BLOCK,
                          c->staged + next * staged_block_bytes(form));
        }
    }
}

/* Prefetches the lines to which the last sums are written or added. Tiles are stored in order
 * after them, and would wait for memory too. */
INLINE void prefetch_results(const struct mm_call *c, int n) {
    if (c->part != NULL)
        return;
    UNROLL
    for (int t = 0; t < n; t++) {
        for (uint32_t i = 0; i < c->n_tiles; i++) {
            if (c->y != NULL) {
                __builtin_prefetch(c->y + (size_t)t * c->ldy + c->row[i], 1);
            } else {
                __builtin_prefetch(c->fixed[t] + c->row[i], 1);
                __builtin_prefetch(c->fixed[t] + c->row[i] + 8, 1);
            }
        }
    }
}

/* Three things run at a time, in small pieces, since a tile's sums take long: the vector work
 * of a block, storing the sums of the next one, and multiplying for two pieces after these. The
 * loop uses copies of c's fields: the compiler assumes that each store changes c. */
INLINE void mm_staged(const struct mm_call *c, enum staged form, int n) {
    _Alignas(CACHE_LINE) block_dots dots[2];
    __m512 acc[TILES][MM_MAX_TOKENS];
    const size_t n_blocks = (c->end - c->begin) / ACT_BLOCK, gs = c->gs;
    const size_t q_bytes = gs * ACT_BLOCK, w_bytes = staged_block_bytes(form);
    const size_t last_q = (n_blocks - 1) * q_bytes, last_w = (n_blocks - 1) * w_bytes;
    const int8_t *q = c->q, *q_end = q + last_q;
    const uint8_t *w = c->staged, *w_end = w + last_w, *w_next = w;
    const int parts = staged_parts(form);
    const float scale = c->scale;
    struct tokens x = {.d = c->d, .s = c->s};
    const struct act_sums *sums = c->sums;
    size_t now = 0;
    uintptr_t ahead = c->ahead;
    const uint32_t seg_blocks = c->seg_cols / ACT_BLOCK;
    prefetch_results(c, n);
    acc_begin(c, TILES, n, acc);
    begin_tiles(c, form, n, n_blocks, dots[0]);
    q = MIN(q + q_bytes, q_end);
    w_next = MIN(w_next + w_bytes, w_end);
    for (uint32_t end = c->begin + c->seg_cols; end <= c->end; end += c->seg_cols) {
        for (uint32_t b = seg_blocks; b > 0; b--) {
            const float *scales = (const float *)(const void *)(w + TILES * CODES_BYTES);
            prefetch_ahead(c, &ahead);
            if (form == STAGED_HALVES_MINS)
                sum_halves(n, sums, x.sum);
            UNROLL
            for (int h = 0; h < parts; h++) {
                if (h == parts - 1) {
                    q = MIN(q + q_bytes, q_end);
                    w_next = MIN(w_next + w_bytes, w_end);
                }
                UNROLL
                for (int i = 0; i < TILES; i++) {
                    tile_store(n, i, dots[now ^ 1][h][i]);
                    tile_multiply(form, n, parts == 2 && h == 0, i, q, w_next);
                    UNROLL
                    for (int t = n * h / parts; t < n * (h + 1) / parts; t++)
                        acc[i][t] = add_block(form, i, t, dots[now],
                                              scales + i * staged_scales(form) * TILE_ROWS, &x,
                                              scale, acc[i][t]);
                }
            }
            w += w_bytes;
            x.d += gs;
            x.s += gs;
            sums += gs;
            now ^= 1;
        }
        acc_store(c, TILES, n, end, acc);
        acc_zero(TILES, n, acc);
    }
}

/* ---- the table -------------------------------------------------------------------------- */

#define INSTANCE(form, n)                             \
    static void form##_##n(const struct mm_call *c) { \
        mm_staged(c, form, n);                        \
    }
#define FORM(form)     \
    INSTANCE(form, 2)  \
    INSTANCE(form, 3)  \
    INSTANCE(form, 4)  \
    INSTANCE(form, 5)  \
    INSTANCE(form, 6)  \
    INSTANCE(form, 7)  \
    INSTANCE(form, 8)  \
    INSTANCE(form, 9)  \
    INSTANCE(form, 10) \
    INSTANCE(form, 11) \
    INSTANCE(form, 12)
FORM(STAGED_ONE)
FORM(STAGED_SUM)
FORM(STAGED_PAIR)
FORM(STAGED_HALVES)
FORM(STAGED_HALVES_MINS)

#define FORM_ENTRY(form)                                                              \
    [form] = {NULL,     NULL,     form##_2, form##_3,  form##_4,  form##_5, form##_6, \
              form##_7, form##_8, form##_9, form##_10, form##_11, form##_12}
static const mm_fn many_of[][MM_MAX_TOKENS + 1] = {
    FORM_ENTRY(STAGED_ONE), FORM_ENTRY(STAGED_SUM), FORM_ENTRY(STAGED_PAIR),
    FORM_ENTRY(STAGED_HALVES), FORM_ENTRY(STAGED_HALVES_MINS)};

#define STAGE(type)                                                  \
    static void stage_##type(const struct mm_call *c, uint8_t *to) { \
        stage(QT_##type, c, to);                                     \
    }
TILE_CODED_TYPES(STAGE)

#define STAGE_ENTRY(type) [QT_##type] = stage_##type,
static void (*const stage_of[QT_N])(const struct mm_call *c,
                                    uint8_t *to) = {TILE_CODED_TYPES(STAGE_ENTRY)};

/* Whether tiles are the faster, and whole segments of the columns can be staged. */
static bool wants_tiles(enum qtype type, uint32_t n_tokens, uint32_t cols) {
    return stage_of[type] != NULL && n_tokens >= TOKENS_LEAST && cols <= MM_STAGED_COLS;
}

static struct mm_kernels kernels_for(const struct wmat *w) {
    const enum qtype type = w->type;
    struct mm_kernels k = mm_kernels_avx512(w);
    memcpy(k.many, many_of[staged_form(type)], sizeof k.many);
    k.many_tiles = TILES;
    k.max_tokens = ACT_GROUP;
    k.stage = stage_of[type];
    return k;
}

void matmul_amx(const struct wmat *w, const struct act *x, float *y, size_t ldy,
                uint32_t tile_begin, uint32_t tile_end) {
    if (!wants_tiles(w->type, x->n_tokens, 0)) {
        matmul_avx512(w, x, y, ldy, tile_begin, tile_end);
        return;
    }
    struct mm_kernels k = kernels_for(w);
    set_shapes(staged_form(w->type), x->n_tokens);
    mm_drive(&k, w, x, y, ldy, tile_begin, tile_end);
    _tile_release();
}

void matmul_fixed_amx(const struct wmat *w, const struct act *x, int64_t *y, size_t ldy,
                      const uint32_t *rows, uint32_t seg_cols, uint32_t tile_begin,
                      uint32_t tile_end) {
    if (!wants_tiles(w->type, x->n_tokens, seg_cols)) {
        matmul_fixed_avx512(w, x, y, ldy, rows, seg_cols, tile_begin, tile_end);
        return;
    }
    struct mm_kernels k = kernels_for(w);
    set_shapes(staged_form(w->type), x->n_tokens);
    mm_drive_fixed(&k, w, x, y, ldy, rows, seg_cols, tile_begin, tile_end);
    _tile_release();
}
