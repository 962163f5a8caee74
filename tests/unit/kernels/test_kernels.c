/* The products: packed weights times packed activations.
 *
 * Every instruction set that this machine runs is compared with the scalar definition for
 * equal bits, for every type that wmat_type_supported() knows; the definition itself is compared
 * with a sum in double over what qtype_info()->dequantize() makes of the file's bytes. */
#include "kernel_fixture.h"

#include "kernels/tiles.h"
#include "quant/quant.h"

#include <stdlib.h>

/* ---- random matrices in the file's format ------------------------------------------------ */

/* Where a block keeps its f16 scales, and the largest |scale * q| that the rest of the block can
 * multiply them by: a bound on the values without decoding them. */
struct block_facts {
    enum qtype type;
    int n_scales;
    struct {
        size_t at;
        double largest;
    } scale[2];
};

#define AT(type, field) offsetof(struct block_##type, field)

static const struct block_facts block_facts[] = {
    {QT_Q8_0, 1, {{AT(q8_0, d), 128}}},
    {QT_Q4_0, 1, {{AT(q4_0, d), 8}}},
    {QT_Q4_1, 2, {{AT(q4_1, d), 15}, {AT(q4_1, m), 1}}},
    {QT_Q5_0, 1, {{AT(q5_0, d), 16}}},
    {QT_Q5_1, 2, {{AT(q5_1, d), 31}, {AT(q5_1, m), 1}}},
    {QT_Q2_K, 2, {{AT(q2_K, d), 15 * 3}, {AT(q2_K, dmin), 15}}},
    {QT_Q3_K, 1, {{AT(q3_K, d), 32 * 4}}},
    {QT_Q4_K, 2, {{AT(q4_K, d), 63 * 15}, {AT(q4_K, dmin), 63}}},
    {QT_Q5_K, 2, {{AT(q5_K, d), 63 * 31}, {AT(q5_K, dmin), 63}}},
    {QT_Q6_K, 1, {{AT(q6_K, d), 128 * 32}}},
    {QT_IQ4_NL, 1, {{AT(iq4_nl, d), 127}}},
    {QT_IQ4_XS, 1, {{AT(iq4_xs, d), 32 * 127}}},
    {QT_IQ3_S, 1, {{AT(iq3_s, d), 31 * 15}}},
    {QT_IQ3_XXS, 1, {{AT(iq3_xxs, d), 31 * 0.25 * 62}}},
    {QT_IQ2_S, 1, {{AT(iq2_s, d), 31 * 0.125 * 43}}},
    {QT_IQ2_XS, 1, {{AT(iq2_xs, d), 31 * 0.125 * 43}}},
    {QT_IQ2_XXS, 1, {{AT(iq2_xxs, d), 31 * 0.125 * 43}}},
    {QT_TQ1_0, 1, {{AT(tq1_0, d), 1}}},
    {QT_TQ2_0, 1, {{AT(tq2_0, d), 1}}},
    {QT_IQ1_S, 1, {{AT(iq1_s, d), 15 * 1.125}}},
    {QT_IQ1_M, 0, {{0}}},
    {QT_MXFP4, 0, {{0}}},
    {QT_NVFP4, 0, {{0}}},
    {QT_MLX4, 2, {{AT(q4_1, d), 15}, {AT(q4_1, m), 1}}}, /* bf16 */
    {QT_MLX8, 2, {{AT(mlx8, d), 255}, {AT(mlx8, m), 1}}},
    {QT_MLX8_F16, 2, {{AT(mlx8, d), 255}, {AT(mlx8, m), 1}}},
};

static const struct block_facts *facts_of(enum qtype type) {
    for (size_t i = 0; i < ARRAY_LEN(block_facts); i++)
        if (block_facts[i].type == type)
            return &block_facts[i];
    return NULL;
}

static bool is_float_type(enum qtype type) {
    return act_kind_for(type) == ACT_F32;
}

struct matrix {
    enum qtype type;
    uint32_t n_rows, n_cols;
    size_t row_bytes;
    struct buf bytes;
};

static const uint8_t *matrix_row(const void *ctx, uint32_t r) {
    const struct matrix *m = ctx;
    BUG_ON(r >= m->n_rows);
    return m->bytes.p + r * m->row_bytes;
}

/* An f16 between 2^-8 and 2^-4; now and then zero, subnormal or the largest. */
static uint16_t random_f16(struct random *r) {
    static const uint16_t odd[] = {0, 0x8000, 1, 0x83ff, 0x0400, 0x7bff, 0xfbff};
    uint64_t u = random_u64(r);
    if (u % 64 == 0)
        return PICK(r, odd);
    return (uint16_t)((u >> 8 & 0x83ff) | (7 + (u >> 32) % 4) << 10);
}

/* Near 2^-5; now and then one whose half is subnormal, or a large one. */
static uint8_t random_e8m0(struct random *r) {
    static const uint8_t odd[] = {0, 1, 2, 200};
    return random_below(r, 64) == 0 ? PICK(r, odd) : (uint8_t)(120 + random_below(r, 6));
}

static bool has_bf16_scales(enum qtype type) {
    return type == QT_MLX4 || type == QT_MLX8;
}

/* Any codes but NaN. */
static void random_f8_blocks(struct random *r, uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct block_f8_e4m3 b = {.d = random_float(r, 0, 0x1p-7f)};
        for (int k = 0; k < QK; k++) {
            b.qs[k] = (uint8_t)random_u64(r);
            b.qs[k] = (b.qs[k] & 0x7f) == 0x7f ? 0 : b.qs[k];
        }
        memcpy(p + i * sizeof b, &b, sizeof b);
    }
}

static void random_floats_as(struct random *r, enum qtype type, uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float f = random_float(r, -1, 1);
        uint16_t h = type == QT_F16 ? random_f16(r) : f32_to_bf16(f);
        if (type == QT_F32)
            memcpy(p + 4 * i, &f, 4);
        else
            memcpy(p + 2 * i, &h, 2);
    }
}

/* iq1_m keeps the nibbles of its d in the highest bits of four words. */
static void set_iq1_m_d(uint8_t *block, uint16_t d) {
    uint8_t *scales = block + AT(iq1_m, scales);
    for (int k = 0; k < 4; k++)
        scales[2 * k + 1] = (uint8_t)((scales[2 * k + 1] & 15) | (d >> 4 * k & 15) << 4);
}

static uint16_t iq1_m_d(const uint8_t *block) {
    uint16_t d = 0;
    for (int k = 0; k < 4; k++)
        d = (uint16_t)(d | block[AT(iq1_m, scales) + 2 * (size_t)k + 1] >> 4 << 4 * k);
    return d;
}

/* Any bytes, but finite scales. */
static struct matrix matrix_random(struct random *r, enum qtype type, uint32_t n_rows,
                                   uint32_t n_cols) {
    struct matrix m = {.type = type, .n_rows = n_rows, .n_cols = n_cols};
    assert_true(qtype_row_bytes(type, n_cols, &m.row_bytes));
    m.bytes = buf_new(n_rows * m.row_bytes, 1);
    if (type == QT_F8_E4M3) {
        random_f8_blocks(r, m.bytes.p, m.bytes.n / sizeof(struct block_f8_e4m3));
        return m;
    }
    if (is_float_type(type)) {
        random_floats_as(r, type, m.bytes.p, (size_t)n_rows * n_cols);
        return m;
    }
    for (size_t i = 0; i < m.bytes.n; i++)
        m.bytes.p[i] = (uint8_t)random_u64(r);
    const struct block_facts *facts = facts_of(type);
    assert_non_null(facts);
    size_t block_bytes = qtype_info(type)->block_bytes;
    for (uint8_t *b = m.bytes.p; b < m.bytes.p + m.bytes.n; b += block_bytes)
        for (int i = 0; i < facts->n_scales; i++) {
            uint16_t h = random_f16(r);
            if (has_bf16_scales(type))
                h = f32_to_bf16(f16_to_f32(h));
            memcpy(b + facts->scale[i].at, &h, 2);
        }
    if (type == QT_IQ1_M)
        for (uint8_t *b = m.bytes.p; b < m.bytes.p + m.bytes.n; b += block_bytes)
            set_iq1_m_d(b, random_f16(r));
    if (type == QT_MXFP4)
        for (uint8_t *b = m.bytes.p; b < m.bytes.p + m.bytes.n; b += block_bytes)
            b[offsetof(struct block_mxfp4, e)] = random_e8m0(r);
    return m;
}

/* Columns [col_begin, col_begin + n_cols) of all rows, packed. */
struct tiles {
    struct wmat w;
    struct buf bytes;
};

/* That a matrix of nvfp4 has as a whole. */
#define NVFP4_SCALE 0.0037f

static struct tiles tiles_of(const struct matrix *m, uint32_t col_begin, uint32_t n_cols) {
    uint32_t phase = is_float_type(m->type) ? 0 : col_begin % QK_K;
    struct tiles t = {.w = wmat_shape(m->type, m->n_rows, n_cols, phase)};
    t.bytes = buf_new(wmat_bytes(&t.w), 64);
    /* As two threads would. */
    uint32_t n = wmat_n_tiles(&t.w), half = n / 2;
    wmat_pack(&t.w, t.bytes.p, half, n, matrix_row, m, col_begin);
    wmat_pack(&t.w, t.bytes.p, 0, half, matrix_row, m, col_begin);
    if (m->type == QT_NVFP4)
        t.w.scale = NVFP4_SCALE;
    t.w.tiles = t.bytes.p;
    return t;
}

/* All, or half of them (CMakeLists.txt): TEST_TYPES=even or odd. */
static const enum qtype *types_supported(size_t *n) {
    static enum qtype list[QT_N + 1];
    const char *half = getenv("TEST_TYPES");
    size_t n_all = 0;
    *n = 0;
    for (uint32_t type = 0; type < QT_N; type++) {
        if (!wmat_type_supported((enum qtype)type))
            continue;
        if (half == NULL || str_eq(half, n_all++ % 2 == 0 ? "even" : "odd"))
            list[(*n)++] = (enum qtype)type;
    }
    return list;
}

#define FOR_EACH_TYPE(type)                                \
    size_t n_types_;                                       \
    const enum qtype *types_ = types_supported(&n_types_); \
    for (enum qtype type = types_[0]; n_types_ > 0; n_types_--, type = *++types_)

/* ---- every instruction set against the definition ---------------------------------------- */

#define TOKENS_MOST 47

struct product_case {
    uint32_t n_rows, n_cols, col_begin, n_tokens, seg_cols, tile_begin, tile_end;
    size_t ldy;
    uint32_t rows[TOKENS_MOST]; /* that fixed-point sums are added to, by token */
};

/* Where n_cols of seg_cols columns each can be cut off the type's whole rows. */
static struct product_case random_case(struct random *r, enum qtype type) {
    static const uint32_t rows[] = {1, 15, 16, 17, 33, 64, 160};
    static const uint32_t blocks[] = {1, 2, 3, 7, 8, 9, 16, 17, 40, 136};
    static const uint32_t tokens[] = {1,  1,  1,  2,  3,  4,  5,  6,  7,          8,  9,
                                      10, 11, 12, 13, 23, 24, 25, 26, 27,         28, 29,
                                      30, 31, 32, 33, 34, 35, 36, 37, TOKENS_MOST};
    static const uint32_t odd_cols[] = {1, 2, 31, 33, 47, 64, 100};
    struct product_case c = {.n_rows = PICK(r, rows), .n_tokens = PICK(r, tokens)};
    uint32_t n_blocks = PICK(r, blocks);
    c.n_cols = n_blocks * ACT_BLOCK;
    c.seg_cols = n_blocks % 2 == 0 && random_below(r, 2) ? 2 * ACT_BLOCK : ACT_BLOCK;
    if (random_below(r, 4) == 0)
        c.seg_cols = c.n_cols;
    if (is_float_type(type) && random_below(r, 2)) {
        c.n_cols = PICK(r, odd_cols);
        c.seg_cols = random_below(r, 2) ? 1 : c.n_cols;
    }
    c.col_begin = random_below(r, 9) * ACT_BLOCK;
    uint32_t n_tiles = (uint32_t)div_up(c.n_rows, TILE_ROWS);
    c.tile_begin = random_below(r, 3) ? 0 : random_below(r, n_tiles);
    c.tile_end = random_below(r, 3)
                     ? n_tiles
                     : c.tile_begin + random_below(r, n_tiles - c.tile_begin) + 1;
    c.ldy = n_tiles * TILE_ROWS + (random_below(r, 2) ? 0 : 5);
    for (uint32_t t = 0; t < c.n_tokens; t++)
        c.rows[t] = random_below(r, c.n_tokens);
    return c;
}

/* y [n_tokens, ldy] as it is wanted of matmul_fixed: the sums, or what was there and the sums
 * of all tokens that go to a row. */
static void want_fixed_sums(const struct product_case *c, const uint32_t *rows,
                            const struct tiles *t, const struct act *a, struct buf *y) {
    struct buf sums = buf_new(y->n, 8);
    int64_t *to = (int64_t *)y->p, *from = (int64_t *)(rows != NULL ? sums.p : y->p);
    definition()->matmul_fixed(&t->w, a, from, c->ldy, NULL, c->seg_cols, c->tile_begin,
                               c->tile_end);
    for (uint32_t i = 0; rows != NULL && i < c->n_tokens; i++)
        for (uint32_t row = c->tile_begin * TILE_ROWS; row < c->tile_end * TILE_ROWS; row++)
            to[rows[i] * c->ldy + row] += from[i * c->ldy + row];
    buf_free(&sums);
}

static void check_fixed(const struct product_case *c, const uint32_t *rows,
                        const struct tiles *t, const struct act *a, const char *what,
                        uint64_t seed) {
    size_t bytes = ((size_t)(c->n_tokens - 1) * c->ldy + wmat_n_tiles(&t->w) * TILE_ROWS) * 8;
    struct buf want = buf_new(bytes, 8);
    want_fixed_sums(c, rows, t, a, &want);
    FOR_EACH_TABLE(k) {
        struct buf y = buf_new(bytes, 8);
        k->matmul_fixed(&t->w, a, (int64_t *)y.p, c->ldy, rows, c->seg_cols, c->tile_begin,
                        c->tile_end);
        if (memcmp(y.p, want.p, bytes) != 0)
            fail_msg("%s: fixed point%s, %s, seed %llu", k->name, rows != NULL ? " added" : "",
                     what, (unsigned long long)seed);
        buf_free(&y);
    }
    buf_free(&want);
}

/* The file's row, long enough for the case's columns and whole blocks of the type. */
static uint32_t file_cols(enum qtype type, const struct product_case *c) {
    return (uint32_t)round_up(c->col_begin + c->n_cols, qtype_info(type)->block_values);
}

/* Mostly of one magnitude; blocks of zeros and of tiny values; rarely infinity or NaN. */
static void spoil(struct random *r, float *x, size_t n) {
    static const float odd[] = {0.0f, -0.0f, 1e-38f, 1e30f, INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i + ACT_BLOCK <= n; i += ACT_BLOCK) {
        uint32_t kind = random_below(r, 64);
        for (size_t k = i; kind < 2 && k < i + ACT_BLOCK; k++)
            x[k] *= kind == 0 ? 0.0f : 1e-36f;
        if (kind == 2)
            x[i + random_below(r, ACT_BLOCK)] = PICK(r, odd);
    }
}

static void check_product(struct random *r, enum qtype type) {
    struct product_case c = random_case(r, type);
    const struct kernels *def = definition();
    struct matrix m = matrix_random(r, type, c.n_rows, file_cols(type, &c));
    struct tiles t = tiles_of(&m, c.col_begin, c.n_cols);
    struct buf x = floats_random(r, (size_t)c.n_tokens * c.n_cols, -3, 3);
    spoil(r, (float *)x.p, x.n / 4);
    struct packed a =
        packed_from(def, act_kind_for(type), (float *)x.p, c.n_cols, c.n_tokens, c.n_cols);

    size_t n = (size_t)(c.n_tokens - 1) * c.ldy + wmat_n_tiles(&t.w) * TILE_ROWS;
    struct buf want = floats_new(n);
    def->matmul(&t.w, &a.act, (float *)want.p, c.ldy, c.tile_begin, c.tile_end);
    char what[160];
    snprintf(what, sizeof what,
             "%s %u x %u from column %u, %u tokens, segments of %u, tiles %u to %u, ldy %zu",
             qtype_info(type)->name, c.n_rows, c.n_cols, c.col_begin, c.n_tokens, c.seg_cols,
             c.tile_begin, c.tile_end, c.ldy);
    FOR_EACH_ISA(k) {
        struct buf y = floats_new(n);
        k->matmul(&t.w, &a.act, (float *)y.p, c.ldy, c.tile_begin, c.tile_end);
        /* What lies outside the tiles keeps its canary in both. */
        check_floats((float *)y.p, (float *)want.p, n, k->name, what, r->seed);
        buf_free(&y);
    }
    check_fixed(&c, NULL, &t, &a.act, what, r->seed);
    check_fixed(&c, c.rows, &t, &a.act, what, r->seed);
    buf_free(&want);
    packed_free(&a);
    buf_free(&x);
    buf_free(&t.bytes);
    buf_free(&m.bytes);
}

static void every_isa_gives_the_bits_of_the_definition(void **state) {
    (void)state;
    isa_or_skip();
    FOR_EACH_TYPE(type)
    for (uint64_t seed = 0; seed < 120; seed++)
        check_product(&(struct random){.seed = seed << 8 | type}, type);
}

/* ---- the definition against a sum in double ----------------------------------------------- */

/* A bound on |value| of the block that holds column c, from its scales alone. */
static double largest_value(const struct matrix *m, const uint8_t *row, uint32_t c) {
    const struct qtype_info *info = qtype_info(m->type);
    const struct block_facts *facts = facts_of(m->type);
    const uint8_t *block = row + c / info->block_values * info->block_bytes;
    double sum = 0;
    if (m->type == QT_MXFP4)
        return ldexp(12, block[offsetof(struct block_mxfp4, e)] - 128);
    if (m->type == QT_IQ1_M)
        return fabs((double)f16_to_f32(iq1_m_d(block))) * 15 * 1.125;
    if (m->type == QT_NVFP4)
        return 224 * 12 * (double)NVFP4_SCALE;
    for (int i = 0; i < facts->n_scales; i++) {
        uint16_t h;
        memcpy(&h, block + facts->scale[i].at, 2);
        float scale = has_bf16_scales(m->type) ? bf16_to_f32(h) : f16_to_f32(h);
        sum += fabs((double)scale) * facts->scale[i].largest;
    }
    return sum;
}

/* The value that the packed activations hold for column c of a single token. */
static double packed_value(const struct act *a, uint32_t c) {
    return a->kind == ACT_F32 ? (double)a->f[c] : (double)a->d[c / ACT_BLOCK] * a->q[c];
}

/* Each term is rounded a few times where it is made (scales, dequantize()'s own rounding of W),
 * and each of the at most 2 * (n + 1) additions rounds once, all relative to less than the sum
 * of the terms' magnitudes: (2n + 8) * 2^-24 of it, n counting columns (float types) or blocks. */
static void check_against_double(struct random *r, enum qtype type, uint32_t n_cols) {
    enum { ROWS = 19 };
    struct matrix m = matrix_random(r, type, ROWS,
                                    (uint32_t)round_up(n_cols, qtype_info(type)->block_values));
    struct tiles t = tiles_of(&m, 0, n_cols);
    struct buf x = floats_random(r, n_cols, -2, 2), w = floats_new(m.n_cols);
    struct packed a =
        packed_from(definition(), act_kind_for(type), (float *)x.p, n_cols, 1, n_cols);
    float y[2 * TILE_ROWS];
    definition()->matmul(&t.w, &a.act, y, 2 * TILE_ROWS, 0, 2);
    for (uint32_t row = 0; row < ROWS; row++) {
        const struct qtype_info *info = qtype_info(type);
        info->dequantize(matrix_row(&m, row), (float *)w.p, m.n_cols / info->block_values);
        double sum = 0, magnitude = 0;
        for (uint32_t c = 0; c < n_cols; c++) {
            double wc = (double)((float *)w.p)[c] * (double)t.w.scale,
                   xc = packed_value(&a.act, c);
            sum += wc * xc;
            magnitude +=
                fabs(xc) *
                (is_float_type(type) ? fabs(wc) : largest_value(&m, matrix_row(&m, row), c));
        }
        double steps = is_float_type(type) ? n_cols : n_cols / ACT_BLOCK;
        double bound = magnitude * (2 * steps + 8) * 0x1p-24;
        if (!(fabs((double)y[row] - sum) <= bound))
            fail_msg("%s, %u columns, seed %llu: row %u is %.9g, in double %.9g, bound %.3g",
                     info->name, n_cols, (unsigned long long)r->seed, row, (double)y[row], sum,
                     bound);
    }
    for (uint32_t row = ROWS; row < 2 * TILE_ROWS; row++)
        assert_true(y[row] == 0.0f); /* rows that are not there */
    packed_free(&a);
    buf_free(&w);
    buf_free(&x);
    buf_free(&t.bytes);
    buf_free(&m.bytes);
}

static void the_definition_is_the_formats(void **state) {
    (void)state;
    static const uint32_t cols[] = {32, 64, 96, 256, 288, 512, 544, 1024};
    FOR_EACH_TYPE(type)
    for (size_t i = 0; i < ARRAY_LEN(cols); i++)
        check_against_double(&(struct random){.seed = i << 8 | type}, type, cols[i]);
}

/* ---- what the contract promises about splits and batches ---------------------------------- */

static void check_splits(const struct kernels *k, struct random *r, enum qtype type) {
    enum { ROWS = 35, BLOCKS = 24, TOKENS = 3, LDY = 48 };
    uint32_t n_cols = BLOCKS * ACT_BLOCK, seg = ACT_BLOCK << random_below(r, 2);
    uint32_t cut = (1 + random_below(r, n_cols / seg - 1)) * seg;
    struct matrix m = matrix_random(r, type, ROWS, n_cols);
    struct buf x = floats_random(r, (size_t)TOKENS * n_cols, -1, 1);
    int64_t sum[2][TOKENS * LDY] = {0};
    const uint32_t share[3][2] = {{0, n_cols}, {0, cut}, {cut, n_cols}};
    for (int i = 0; i < 3; i++) {
        uint32_t begin = share[i][0], n = share[i][1] - begin;
        struct tiles t = tiles_of(&m, begin, n);
        struct packed a =
            packed_from(k, act_kind_for(type), (float *)x.p + begin, n_cols, TOKENS, n);
        int64_t y[TOKENS * LDY];
        k->matmul_fixed(&t.w, &a.act, y, LDY, NULL, seg, 0, wmat_n_tiles(&t.w));
        for (size_t j = 0; j < ARRAY_LEN(y); j++)
            sum[i > 0][j] += y[j];
        packed_free(&a);
        buf_free(&t.bytes);
    }
    if (memcmp(sum[0], sum[1], sizeof sum[0]) != 0)
        fail_msg("%s %s, seed %llu: cut at column %u, segments of %u", k->name,
                 qtype_info(type)->name, (unsigned long long)r->seed, cut, seg);
    buf_free(&x);
    buf_free(&m.bytes);
}

static void check_batch(const struct kernels *k, struct random *r, enum qtype type) {
    enum { ROWS = 40, COLS = 320, TOKENS = 29, LDY = 48 };
    uint32_t file = (uint32_t)round_up(COLS, qtype_info(type)->block_values);
    struct matrix m = matrix_random(r, type, ROWS, file);
    struct tiles t = tiles_of(&m, 0, COLS);
    struct buf x = floats_random(r, (size_t)TOKENS * COLS, -1, 1);
    struct packed all = packed_from(k, act_kind_for(type), (float *)x.p, COLS, TOKENS, COLS);
    float y[TOKENS * LDY], alone[LDY];
    k->matmul(&t.w, &all.act, y, LDY, 0, wmat_n_tiles(&t.w));
    for (uint32_t i = 0; i < TOKENS; i++) {
        struct packed one =
            packed_from(k, act_kind_for(type), (float *)x.p + (size_t)i * COLS, COLS, 1, COLS);
        k->matmul(&t.w, &one.act, alone, LDY, 0, wmat_n_tiles(&t.w));
        check_floats(y + (size_t)i * LDY, alone, LDY, k->name, "token in a batch and alone",
                     r->seed);
        packed_free(&one);
    }
    packed_free(&all);
    buf_free(&x);
    buf_free(&t.bytes);
    buf_free(&m.bytes);
}

static void shares_add_up_exactly(void **state) {
    (void)state;
    FOR_EACH_TABLE(k) {
        FOR_EACH_TYPE(type)
        for (uint64_t seed = 0; seed < 8; seed++)
            check_splits(k, &(struct random){.seed = seed << 8 | type}, type);
    }
}

static void a_token_does_not_see_its_batch(void **state) {
    (void)state;
    FOR_EACH_TABLE(k) {
        FOR_EACH_TYPE(type)
        check_batch(k, &(struct random){.seed = type}, type);
    }
}

/* A file may hold w = -128, whose magnitude fits u8 but whose negation does not fit s8. */
static void minus_128_does_not_wrap(void **state) {
    (void)state;
    struct block_q8_0 w = {.d = 0x3c00};
    struct matrix m = {.type = QT_Q8_0, .n_rows = 1, .n_cols = QK, .row_bytes = sizeof w};
    memset(w.qs, -128, sizeof w.qs);
    m.bytes = buf_new(sizeof w, 1);
    memcpy(m.bytes.p, &w, sizeof w);
    struct tiles t = tiles_of(&m, 0, QK);
    float x[QK];
    for (int i = 0; i < QK; i++)
        x[i] = -127.0f;
    FOR_EACH_TABLE(k) {
        struct packed a = packed_from(k, ACT_Q8, x, QK, 1, QK);
        float y[TILE_ROWS];
        k->matmul(&t.w, &a.act, y, TILE_ROWS, 0, 1);
        assert_true(y[0] == 32.0f * 128 * 127);
        packed_free(&a);
    }
    buf_free(&t.bytes);
    buf_free(&m.bytes);
}

/* ---- activations ---------------------------------------------------------------------------- */

/* The expected q of a block whose largest value is 127, so that d = 1 and nothing is scaled:
 * ties go to even. */
static void ties_go_to_even(void **state) {
    (void)state;
    static const struct {
        float x;
        int q;
    } cases[] = {{127, 127},    {0.5f, 0},     {1.5f, 2},       {2.5f, 2},
                 {-0.5f, 0},    {-1.5f, -2},   {-126.5f, -126}, {-127, -127},
                 {126.5f, 126}, {125.5f, 126}, {0.50001f, 1},   {-0.0f, 0}};
    float x[ACT_BLOCK] = {0};
    int32_t sum = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        x[i] = cases[i].x;
        sum += cases[i].q;
    }
    x[ACT_BLOCK - 1] = -3.0f;
    FOR_EACH_TABLE(k) {
        struct packed a = packed_from(k, ACT_Q8, x, ACT_BLOCK, 1, ACT_BLOCK);
        for (size_t i = 0; i < ARRAY_LEN(cases); i++)
            assert_int_equal(a.act.q[i], cases[i].q);
        assert_true(a.act.d[0] == 1.0f);
        assert_int_equal(a.act.sums[0].half[0], sum);
        assert_int_equal(a.act.sums[0].half[1], -3);
        assert_int_equal(a.act.start[0], -128 * (sum - 3));
        assert_true(a.act.s[0] == (float)(sum - 3));
        packed_free(&a);
    }
}

static void odd_values_are_packed_as_defined(void **state) {
    (void)state;
    FOR_EACH_TABLE(k) {
        float x[4 * ACT_BLOCK] = {0};
        for (int i = 0; i < ACT_BLOCK; i++) {
            x[i] = 1e-38f;
            x[ACT_BLOCK + i] = NAN;
        }
        x[2 * ACT_BLOCK] = NAN;
        x[2 * ACT_BLOCK + 1] = -2.0f;
        x[3 * ACT_BLOCK] = INFINITY;
        x[3 * ACT_BLOCK + 1] = 1.0f;
        struct packed a = packed_from(k, ACT_Q8, x, ARRAY_LEN(x), 1, ARRAY_LEN(x));
        for (int i = 0; i < 2 * ACT_BLOCK; i++)
            assert_int_equal(a.act.q[i], 0);
        assert_true(a.act.d[0] == 0 && a.act.d[1] == 0);
        assert_int_equal(a.act.q[2 * ACT_BLOCK], 127);
        assert_int_equal(a.act.q[2 * ACT_BLOCK + 1], -127);
        assert_true(a.act.d[2] == 2.0f / 127);
        assert_int_equal(a.act.q[3 * ACT_BLOCK], 127); /* infinity * 0 */
        assert_int_equal(a.act.q[3 * ACT_BLOCK + 1], 0);
        assert_true(isinf(a.act.d[3]));
        packed_free(&a);
    }
}

/* Ranges of blocks, as threads take them, and rows that end at a guard page. */
static void check_act_pack(const struct kernels *k, struct random *r, enum act_kind kind) {
    uint32_t n_tokens = 1 + random_below(r, 40), n_cols = (1 + random_below(r, 9)) * ACT_BLOCK;
    if (kind == ACT_F32)
        n_cols -= random_below(r, ACT_BLOCK);
    size_t ldx = n_cols + random_below(r, 4);
    struct buf x = floats_random(r, (n_tokens - 1) * ldx + n_cols, -5, 5);
    spoil(r, (float *)x.p, x.n / 4);
    struct packed want = packed_from(definition(), kind, (float *)x.p, ldx, n_tokens, n_cols);
    struct packed got = packed_new(kind, n_tokens, n_cols);
    uint32_t n_blocks = (uint32_t)div_up(n_cols, ACT_BLOCK),
             cut = random_below(r, n_blocks + 1);
    /* Empty ranges, too; they begin nowhere. */
    const float *all = (float *)x.p;
    size_t right = cut < n_blocks ? (size_t)cut * ACT_BLOCK : 0;
    k->act_pack(&got.act, all, ldx, 0, cut);
    k->act_pack(&got.act, all + right, ldx, cut, n_blocks);
    check_floats(got.act.f, want.act.f, got.f.n / 4, k->name, "act_pack f", r->seed);
    check_floats(got.act.d, want.act.d, got.d.n / 4, k->name, "act_pack d", r->seed);
    check_floats(got.act.s, want.act.s, got.s.n / 4, k->name, "act_pack s", r->seed);
    if (memcmp(got.q.p, want.q.p, got.q.n) != 0 ||
        memcmp(got.sums.p, want.sums.p, got.sums.n) != 0 ||
        memcmp(got.start.p, want.start.p, got.start.n) != 0)
        fail_msg("%s act_pack, seed %llu", k->name, (unsigned long long)r->seed);
    packed_free(&got);
    packed_free(&want);
    buf_free(&x);
}

static void every_isa_packs_activations_alike(void **state) {
    (void)state;
    isa_or_skip();
    for (uint64_t seed = 0; seed < 200; seed++)
        FOR_EACH_ISA(k)
    check_act_pack(k, &(struct random){.seed = seed}, seed % 2 ? ACT_Q8 : ACT_F32);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_definition_is_the_formats),
        cmocka_unit_test(minus_128_does_not_wrap),
        cmocka_unit_test(ties_go_to_even),
        cmocka_unit_test(odd_values_are_packed_as_defined),
        cmocka_unit_test(every_isa_packs_activations_alike),
        cmocka_unit_test(every_isa_gives_the_bits_of_the_definition),
        cmocka_unit_test(shares_add_up_exactly),
        cmocka_unit_test(a_token_does_not_see_its_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
