/* matmul_amx.c: products of several tokens with weights of codes on AMX's tiles; AVX-512's for all others.
 *
 * A tile register of AMX holds up to 16 rows of 64 bytes. A block of a weight tile, unpacked to signed bytes, is
 * what tdpbssd wants of its second operand: 8 rows, each of 4 columns of the 16 lanes. A block of the tokens of a
 * group is its first operand as it lies, and the exact integer sums, a row of 16 lanes for each token, come back
 * through memory. What is left for vectors are the three operations of floats, which bound it: 36 cycles for a
 * block of two tiles and twelve tokens, where the multiplying alone takes AVX-512 100.
 *
 * Unpacked weights are of one form for all types of a family ("staged"). They are made once for several calls. */
#include "kernels/matmul_amx.h"

#include "kernels/matmul_avx512.h"
#include "kernels/matmul_avx512.inc.h"

/* With fewer tokens AVX-512 is faster: unpacking pays when more than one call or so uses it. */
#define TOKENS_LEAST 8

/* Weight tiles of a call. */
#define TILES 2

/* ---- staged weights ---------------------------------------------------------------------
 *
 * For each block of columns: the codes of both tiles as int8, 512 bytes each, then the scales of the one and of
 * the other, vectors of 16 f32:
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
    const size_t block_bytes = tile_block_bytes(type);
    for (uint32_t b = c->begin / ACT_BLOCK; b < c->end / ACT_BLOCK; b++) {
        size_t super = (size_t)tile_super_of(c->col_phase, b) * TILE_VECTOR;
        UNROLL
        for (int i = 0; i < TILES; i++) {
            const uint8_t *block = c->w[i] + c->blocks_at + b * block_bytes;
            stage_codes(type, block + tile_codes_at(type), to + i * CODES_BYTES);
            uint8_t *scales = to + TILES * CODES_BYTES;
            stage_scales(type, c->w[i] + super, block,
                         (float *)(void *)scales + i * staged_scales(form) * TILE_ROWS);
        }
        to += staged_block_bytes(form);
    }
}

/* ---- tiles of AMX ----------------------------------------------------------------------- */

/* Their shapes, for ldtilecfg. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_config) == 64, "as Intel's manual has it");

/* The last group of tokens may be smaller than the others: it has registers of its own, so that the shapes are set
 * once for a whole product.
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
    _tile_loadconfig(&config);
}

/* The exact integer sums of a block, or of its halves. */
typedef int32_t block_dots[2][TILES][MM_MAX_TOKENS][TILE_ROWS];

INLINE void tile_dots(enum staged form, int n, const int8_t *q, const uint8_t *w,
                      block_dots to) {
    const int parts = staged_parts(form);
    UNROLL
    for (int h = 0; h < parts; h++) {
        _tile_loadd(3, w + CODES_BYTES / 2 * h, TILE_VECTOR);
        _tile_loadd(4, w + CODES_BYTES / 2 * h + CODES_BYTES, TILE_VECTOR);
        if (n == ACT_GROUP) {
            _tile_zero(0);
            _tile_zero(1);
            _tile_loadd(2, q + ACT_BLOCK / 2 * h, ACT_BLOCK);
            _tile_dpbssd(0, 2, 3);
            _tile_dpbssd(1, 2, 4);
            _tile_stored(0, to[h][0], TILE_VECTOR);
            _tile_stored(1, to[h][1], TILE_VECTOR);
        } else {
            _tile_zero(5);
            _tile_zero(6);
            _tile_loadd(7, q + ACT_BLOCK / 2 * h, ACT_BLOCK);
            _tile_dpbssd(5, 7, 3);
            _tile_dpbssd(6, 7, 4);
            _tile_stored(5, to[h][0], TILE_VECTOR);
            _tile_stored(6, to[h][1], TILE_VECTOR);
        }
    }
}

/* ---- floats ----------------------------------------------------------------------------- */

INLINE __m512 dots_of(const int32_t *row) {
    return _mm512_cvtepi32_ps(_mm512_load_si512(row));
}

/* acc += dot * (d * dx), in kernels.h's order; then, perhaps, m * s. */
INLINE void add_sums(enum staged form, int n, int32_t (*dots)[MM_MAX_TOKENS][TILE_ROWS],
                     const float *scales, const float *dx, const float *s,
                     __m512 (*acc)[MM_MAX_TOKENS]) {
    const size_t apart = staged_scales(form) * TILE_ROWS;
    UNROLL
    for (int t = 0; t < n; t++) {
        __m512 dt = _mm512_set1_ps(dx[t]);
        UNROLL
        for (int i = 0; i < TILES; i++) {
            __m512 d = _mm512_mul_ps(_mm512_load_ps(scales + i * apart), dt);
            acc[i][t] = _mm512_fmadd_ps(dots_of(dots[i][t]), d, acc[i][t]);
        }
        UNROLL
        for (int i = 0; i < TILES && form == STAGED_SUM; i++)
            acc[i][t] = _mm512_fmadd_ps(_mm512_load_ps(scales + i * apart + TILE_ROWS),
                                        _mm512_set1_ps(s[t]), acc[i][t]);
    }
}

/* acc += (sc0 * dot0 + sc1 * dot1) * (d * dx). The inner sum is exact: it and its terms are integers below 2^24 in
 * magnitude; it starts at +0, which an integer's zero is. */
INLINE void add_halves(enum staged form, int n, block_dots dots, const float *scales,
                       const float *dx, __m512 (*acc)[MM_MAX_TOKENS]) {
    UNROLL
    for (int i = 0; i < TILES; i++) {
        const float *of = scales + i * staged_scales(form) * TILE_ROWS;
        __m512 d = _mm512_load_ps(of), scale0 = _mm512_load_ps(of + TILE_ROWS),
               scale1 = _mm512_load_ps(of + 2 * TILE_ROWS);
        UNROLL
        for (int t = 0; t < n; t++) {
            __m512 f = _mm512_fmadd_ps(dots_of(dots[0][i][t]), scale0, _mm512_setzero_ps());
            f = _mm512_fmadd_ps(dots_of(dots[1][i][t]), scale1, f);
            acc[i][t] = _mm512_fmadd_ps(f, _mm512_mul_ps(d, _mm512_set1_ps(dx[t])), acc[i][t]);
        }
    }
}

/* acc -= (min0 * sum0 + min1 * sum1) * (dmin * dx) */
INLINE void subtract_mins(int n, const float *scales, const struct act_sums *sums,
                          const float *dx, __m512 (*acc)[MM_MAX_TOKENS]) {
    _Alignas(64) float sum[2][TILE_ROWS];
    __m512i pairs = _mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), sums);
    __m512i low = _mm512_srai_epi32(_mm512_slli_epi32(pairs, 16), 16);
    _mm512_store_ps(sum[0], _mm512_cvtepi32_ps(low));
    _mm512_store_ps(sum[1], _mm512_cvtepi32_ps(_mm512_srai_epi32(pairs, 16)));
    UNROLL
    for (int i = 0; i < TILES; i++) {
        const float *of = scales + (i * MOST_SCALES + 3) * TILE_ROWS;
        __m512 dmin = _mm512_load_ps(of), min0 = _mm512_load_ps(of + TILE_ROWS),
               min1 = _mm512_load_ps(of + 2 * TILE_ROWS);
        UNROLL
        for (int t = 0; t < n; t++) {
            __m512 below =
                _mm512_fmadd_ps(min0, _mm512_set1_ps(sum[0][t]), _mm512_setzero_ps());
            below = _mm512_fmadd_ps(min1, _mm512_set1_ps(sum[1][t]), below);
            acc[i][t] =
                _mm512_fnmadd_ps(below, _mm512_mul_ps(dmin, _mm512_set1_ps(dx[t])), acc[i][t]);
        }
    }
}

/* acc += dot0 * (d0 * (dx * scale)), then dot1 and d1 */
INLINE void add_pair(int n, block_dots dots, const float *scales, const float *dx, float scale,
                     __m512 (*acc)[MM_MAX_TOKENS]) {
    float dxs[MM_MAX_TOKENS];
    UNROLL
    for (int t = 0; t < n; t++)
        dxs[t] = dx[t] * scale;
    add_sums(STAGED_PAIR, n, dots[0], scales, dxs, NULL, acc);
    add_sums(STAGED_PAIR, n, dots[1], scales + TILE_ROWS, dxs, NULL, acc);
}

/* ---- micro-kernels ---------------------------------------------------------------------- */

INLINE void add_block(const struct mm_call *c, enum staged form, int n, size_t at,
                      const uint8_t *w, block_dots dots, __m512 (*acc)[MM_MAX_TOKENS]) {
    const float *scales = (const float *)(const void *)(w + TILES * CODES_BYTES);
    const float *dx = c->d + at;
    if (form == STAGED_PAIR)
        add_pair(n, dots, scales, dx, c->scale, acc);
    else if (form < STAGED_PAIR)
        add_sums(form, n, dots[0], scales, dx, c->s + at, acc);
    else
        add_halves(form, n, dots, scales, dx, acc);
    if (form == STAGED_HALVES_MINS)
        subtract_mins(n, scales, c->sums + at, dx, acc);
}

/* The tiles work at a block while vectors are at the one before. */
INLINE void mm_staged(const struct mm_call *c, enum staged form, int n) {
    _Alignas(CACHE_LINE) block_dots dots[2];
    __m512 acc[TILES][MM_MAX_TOKENS];
    const size_t gs = c->gs, n_blocks = (c->end - c->begin) / ACT_BLOCK;
    const uint8_t *w = c->staged;
    uintptr_t ahead = c->ahead;
    size_t b = 0;
    acc_begin(c, TILES, n, acc);
    tile_dots(form, n, c->q, w, dots[0]);
    for (uint32_t end = c->begin + c->seg_cols; end <= c->end; end += c->seg_cols) {
        for (; b < (end - c->begin) / ACT_BLOCK; b++, w += staged_block_bytes(form)) {
            size_t next = b + 1;
            if (next < n_blocks)
                tile_dots(form, n, c->q + next * gs * ACT_BLOCK, w + staged_block_bytes(form),
                          dots[next % 2]);
            prefetch_ahead(c, &ahead);
            add_block(c, form, n, b * gs, w, dots[b % 2], acc);
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

static struct mm_kernels kernels_for(enum qtype type) {
    struct mm_kernels k = mm_kernels_avx512(type);
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
    struct mm_kernels k = kernels_for(w->type);
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
    struct mm_kernels k = kernels_for(w->type);
    set_shapes(staged_form(w->type), x->n_tokens);
    mm_drive_fixed(&k, w, x, y, ldy, rows, seg_cols, tile_begin, tile_end);
    _tile_release();
}
