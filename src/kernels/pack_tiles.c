/* pack_tiles.c: from rows of the file's blocks to tiles of 16 rows. The values keep their bits, and
 * only their positions change; but what is too small becomes 0 (docs/numerics.md). */
#include "base/exact.h"
#include "base/util.h"
#include "kernels/kernels.h"
#include "kernels/simd.h"
#include "kernels/tiles.h"
#include "quant/quant_iq_tables.h"

bool wmat_type_supported(enum qtype type) {
    return (uint32_t)type < QT_N &&
           (act_kind_for(type) == ACT_F32 || tile_formats[type].scales != TILE_FLOATS);
}

enum act_kind act_kind_for(enum qtype weight_type) {
    return weight_type == QT_F32 || weight_type == QT_F16 || weight_type == QT_BF16 ||
                   weight_type == QT_F8_E4M3
               ? ACT_F32
               : ACT_Q8;
}

static size_t tile_bytes(const struct wmat *w) {
    if (w->type == QT_F8_E4M3)
        return div_up(w->n_cols, ACT_BLOCK) * TILE_F8_BLOCK;
    if (act_kind_for(w->type) == ACT_F32)
        return (size_t)w->n_cols * tile_col_bytes(w->type);
    uint32_t n_blocks = w->n_cols / ACT_BLOCK;
    if (n_blocks == 0)
        return 0;
    return tile_block_at(w->type, w->col_phase, n_blocks - 1) + tile_block_bytes(w->type);
}

struct wmat wmat_shape(enum qtype type, uint32_t n_rows, uint32_t n_cols, uint32_t col_phase) {
    BUG_ON(!wmat_type_supported(type));
    BUG_ON(act_kind_for(type) == ACT_Q8 && n_cols % ACT_BLOCK != 0);
    BUG_ON(col_phase % ACT_BLOCK != 0 || col_phase >= QK_K);
    struct wmat w = {.type = type,
                     .n_rows = n_rows,
                     .n_cols = n_cols,
                     .col_phase = col_phase,
                     .scale = 1.0f};
    w.tile_bytes = round_up(tile_bytes(&w), TILE_VECTOR);
    return w;
}

size_t wmat_bytes(const struct wmat *w) {
    return wmat_n_tiles(w) * w->tile_bytes;
}

/* ---- the codes of 32 columns as the file stores them ---------------------------------------
 *
 * Each function gives the codes (kernels.h) of block sb of a superblock, or of a simple block,
 * as eight words of four. Word v holds columns 4v to 4v+3, the first one lowest. The file's
 * bytes are also read four at a time. Everything here is inlined into a loop for one type. */

#define ONES 0x01010101u /* times a byte: that byte in each of four */

INLINE uint32_t get_word(const void *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE uint16_t get_u16(const void *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Bits 0 to 3 to bit 0 of four bytes. */
INLINE uint32_t spread_bits(uint32_t bits) {
    return (bits & 15) * 0x00204081u & ONES;
}

/* Four digits of two bits to four bytes. */
INLINE uint32_t spread_pairs(uint32_t digits) {
    digits = (digits | digits << 12) & 0x000f000f;
    return (digits | digits << 6) & 0x03030303;
}

/* Four digits of four bits to four bytes. */
INLINE uint32_t spread_nibbles(uint32_t digits) {
    digits = (digits | digits << 8) & 0x00ff00ff;
    return (digits | digits << 4) & 0x0f0f0f0f;
}

/* `bits` bits of each of 32 bytes. */
INLINE void bit_codes(const uint8_t *p, uint32_t shift, uint32_t bits, uint32_t *w) {
    for (uint32_t v = 0; v < 8; v++)
        w[v] = get_word(p + 4 * v) >> shift & ((1u << bits) - 1) * ONES;
}

/* One bit of each of 32 bytes, above the codes' low bits. */
INLINE void add_high_bits(const uint8_t *p, uint32_t shift, uint32_t low_bits, uint32_t *w) {
    for (uint32_t v = 0; v < 8; v++)
        w[v] |= (get_word(p + 4 * v) >> shift & ONES) << low_bits;
}

INLINE void nibble_codes(const uint8_t *qs, uint32_t *w) {
    for (uint32_t v = 0; v < 4; v++) {
        w[v] = get_word(qs + 4 * v) & 0x0f0f0f0f;
        w[v + 4] = get_word(qs + 4 * v) >> 4 & 0x0f0f0f0f;
    }
}

/* Bit i of a little-endian word is the fifth bit of code i. */
INLINE void add_fifth_bits(const uint8_t qh[4], uint32_t *w) {
    for (uint32_t v = 0; v < 8; v++)
        w[v] |= spread_bits(get_word(qh) >> 4 * v) << 4;
}

INLINE void q6_K_codes(const struct block_q6_K *b, uint32_t sb, uint32_t *w) {
    uint32_t half = sb / 4, k = sb % 4;
    const uint8_t *qh = b->qh + 32 * half;
    bit_codes(b->ql + 64 * half + 32 * (k & 1), 4 * (k >> 1), 4, w);
    for (uint32_t v = 0; v < 8; v++)
        w[v] |= (get_word(qh + 4 * v) >> 2 * k & 3 * ONES) << 4;
}

/* Seven stored signs; the eighth makes the number of minus signs even. */
INLINE uint32_t with_even_parity(uint32_t seven) {
    return (seven & 127) | (uint32_t)__builtin_parity(seven & 127) << 7;
}

/* Eight digits of two bits and their signs. */
INLINE void iq2_codes(uint32_t digits, uint32_t minus, uint32_t *w) {
    w[0] = spread_pairs(digits & 255) | spread_bits(minus) << 2;
    w[1] = spread_pairs(digits >> 8) | spread_bits(minus >> 4) << 2;
}

/* Four digits of three bits and their signs. */
INLINE uint32_t iq3_codes(uint32_t digits, uint32_t minus) {
    return spread_nibbles(digits) | spread_bits(minus) << 3;
}

/* iq2_xxs: a word of four places, then one of 4 x 7 signs and four bits of scale. */
INLINE void iq2_xxs_codes(const uint8_t *qs, uint32_t sb, uint32_t *w) {
    const uint8_t *places = qs + 8 * sb;
    for (uint32_t k = 0; k < 4; k++)
        iq2_codes(quant_iq2xxs_words[places[k]],
                  with_even_parity(get_word(places + 4) >> 7 * k), w + 2 * k);
}

INLINE void iq2_xs_codes(const uint8_t *qs, uint32_t sb, uint32_t *w) {
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t q = get_u16(qs + 2 * (4 * sb + k));
        iq2_codes(quant_iq2xs_words[q & 511], with_even_parity(q >> 9), w + 2 * k);
    }
}

INLINE void iq2_s_codes(const struct block_iq2_s *b, uint32_t sb, uint32_t *w) {
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t place = b->qs[4 * sb + k] | (uint32_t)(b->qh[sb] >> 2 * k & 3) << 8;
        iq2_codes(quant_iq2s_words[place], b->qs[QK_K / 8 + 4 * sb + k], w + 2 * k);
    }
}

INLINE void iq3_xxs_codes(const struct block_iq3_xxs *b, uint32_t sb, uint32_t *w) {
    uint32_t signs = get_word(b->qs + QK_K / 4 + 4 * sb);
    for (uint32_t v = 0; v < 8; v++)
        w[v] = iq3_codes(quant_iq3xxs_words[b->qs[8 * sb + v]],
                         with_even_parity(signs >> 7 * (v / 2)) >> 4 * (v % 2));
}

INLINE void iq3_s_codes(const struct block_iq3_s *b, uint32_t sb, uint32_t *w) {
    for (uint32_t v = 0; v < 8; v++) {
        uint32_t place = b->qs[8 * sb + v] | (uint32_t)(b->qh[sb] >> v & 1) << 8;
        w[v] = iq3_codes(quant_iq3s_words[place],
                         (uint32_t)b->signs[4 * sb + v / 2] >> 4 * (v % 2));
    }
}

/* Eight digits, moved down or up together. */
INLINE void iq1_codes(uint32_t place, bool down, uint32_t *w) {
    iq2_codes(quant_iq1s_words[place], down ? 0xff : 0, w);
}

INLINE void iq1_s_codes(const struct block_iq1_s *b, uint32_t sb, uint32_t *w) {
    for (uint32_t k = 0; k < 4; k++)
        iq1_codes(b->qs[4 * sb + k] | (uint32_t)(b->qh[sb] >> 3 * k & 7) << 8, b->qh[sb] >> 15,
                  w + 2 * k);
}

INLINE void iq1_m_codes(const struct block_iq1_m *b, uint32_t sb, uint32_t *w) {
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t high = (uint32_t)b->qh[2 * sb + k / 2] >> 4 * (k % 2);
        iq1_codes(b->qs[4 * sb + k] | (high & 7) << 8, high >> 3 & 1, w + 2 * k);
    }
}

/* Sixteen values are the low nibbles of eight bytes, then the high ones. */
INLINE void nvfp4_codes(const struct block_nvfp4 *b, uint32_t sb, uint32_t *w) {
    for (uint32_t v = 0; v < 8; v++)
        w[v] = get_word(b->qs + 16 * sb + v / 4 * 8 + v % 2 * 4) >> v % 4 / 2 * 4 & 15 * ONES;
}

/* Digit `digit` (the highest is 0) of a byte that holds five base-3 digits as a fraction of
 * 256. */
INLINE uint8_t ternary_code(uint8_t byte, uint32_t digit) {
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    return (uint8_t)((uint8_t)(byte * power[digit]) * 3 >> 8);
}

/* Five digits of 32 bytes, five of 16, four of the last 4. */
INLINE void tq1_0_codes(const struct block_tq1_0 *b, uint32_t sb, uint32_t *w) {
    uint8_t codes[ACT_BLOCK];
    for (uint32_t i = 0; i < ACT_BLOCK; i++) {
        uint32_t v = ACT_BLOCK * sb + i;
        if (v < 160)
            codes[i] = ternary_code(b->qs[i], sb);
        else if (v < 240)
            codes[i] = ternary_code(b->qs[32 + v % 16], (v - 160) / 16);
        else
            codes[i] = ternary_code(b->qh[v % 4], (v - 240) / 4);
    }
    memcpy(w, codes, sizeof codes);
}

/* Tensors lie aligned in the file, and every block with a 16-bit field has an even size. */
#define BLOCK(name, p) ((const struct block_##name *)(const void *)(p))

INLINE void file_codes(enum qtype type, const uint8_t *p, uint32_t sb, uint32_t *w) {
    switch (type) {
    case QT_Q8_0:
        for (uint32_t v = 0; v < 8; v++)
            w[v] = get_word(BLOCK(q8_0, p)->qs + 4 * v) ^ 0x80 * ONES;
        break;
    case QT_Q4_0:
    case QT_IQ4_NL:
        nibble_codes(BLOCK(q4_0, p)->qs, w);
        break;
    case QT_MLX8:
    case QT_MLX8_F16:
        for (uint32_t v = 0; v < 8; v++)
            w[v] = get_word(BLOCK(mlx8, p)->qs + 4 * v);
        break;
    case QT_Q4_1:
    case QT_MLX4:
        nibble_codes(BLOCK(q4_1, p)->qs, w);
        break;
    case QT_MXFP4:
        nibble_codes(BLOCK(mxfp4, p)->qs, w);
        break;
    case QT_Q5_0:
        nibble_codes(BLOCK(q5_0, p)->qs, w);
        add_fifth_bits(BLOCK(q5_0, p)->qh, w);
        break;
    case QT_Q5_1:
        nibble_codes(BLOCK(q5_1, p)->qs, w);
        add_fifth_bits(BLOCK(q5_1, p)->qh, w);
        break;
    case QT_Q2_K:
        bit_codes(BLOCK(q2_K, p)->qs + 32 * (sb / 4), 2 * (sb % 4), 2, w);
        break;
    case QT_Q3_K:
        bit_codes(BLOCK(q3_K, p)->qs + 32 * (sb / 4), 2 * (sb % 4), 2, w);
        add_high_bits(BLOCK(q3_K, p)->hmask, sb, 2, w);
        break;
    case QT_Q4_K:
        bit_codes(BLOCK(q4_K, p)->qs + 32 * (sb / 2), 4 * (sb % 2), 4, w);
        break;
    case QT_Q5_K:
        bit_codes(BLOCK(q5_K, p)->qs + 32 * (sb / 2), 4 * (sb % 2), 4, w);
        add_high_bits(BLOCK(q5_K, p)->qh, sb, 4, w);
        break;
    case QT_Q6_K:
        q6_K_codes(BLOCK(q6_K, p), sb, w);
        break;
    case QT_IQ4_XS:
        nibble_codes(BLOCK(iq4_xs, p)->qs + 16 * sb, w);
        break;
    case QT_IQ3_S:
        iq3_s_codes(BLOCK(iq3_s, p), sb, w);
        break;
    case QT_IQ3_XXS:
        iq3_xxs_codes(BLOCK(iq3_xxs, p), sb, w);
        break;
    case QT_IQ2_S:
        iq2_s_codes(BLOCK(iq2_s, p), sb, w);
        break;
    case QT_IQ2_XS:
        iq2_xs_codes(p + offsetof(struct block_iq2_xs, qs), sb, w);
        break;
    case QT_IQ2_XXS:
        iq2_xxs_codes(p + offsetof(struct block_iq2_xxs, qs), sb, w);
        break;
    case QT_IQ1_S:
        iq1_s_codes(BLOCK(iq1_s, p), sb, w);
        break;
    case QT_IQ1_M:
        iq1_m_codes(BLOCK(iq1_m, p), sb, w);
        break;
    case QT_NVFP4:
        nvfp4_codes(BLOCK(nvfp4, p), sb, w);
        break;
    case QT_TQ1_0:
        tq1_0_codes(BLOCK(tq1_0, p), sb, w);
        break;
    case QT_TQ2_0:
        bit_codes(BLOCK(tq2_0, p)->qs + 32 * (sb / 4), 2 * (sb % 4), 2, w);
        break;
    default:
        BUG_ON(true);
    }
}

/* ---- the scales of a superblock ---------------------------------------------------------- */

#define SUPER_BLOCKS (QK_K / ACT_BLOCK)

struct super_scales {
    uint16_t d, dmin;
    uint8_t scale[2 * SUPER_BLOCKS], min[2 * SUPER_BLOCKS]; /* of blocks, or of halves */
};

/* 2k + 1 of a packed nibble k. */
INLINE uint8_t odd_scale(uint32_t nibble) {
    return (uint8_t)(2 * (nibble & 15) + 1);
}

/* k4_scale_min() of all eight blocks. */
INLINE void k4_scales(const uint8_t packed[12], struct super_scales *s) {
    const uint32_t six = 0x3f * ONES, four = 0x0f * ONES, two = 0x03 * ONES;
    uint32_t a = get_word(packed), b = get_word(packed + 4), c = get_word(packed + 8);
    uint32_t scale[2] = {a & six, (c & four) | (a >> 6 & two) << 4};
    uint32_t min[2] = {b & six, (c >> 4 & four) | (b >> 6 & two) << 4};
    memcpy(s->scale, scale, sizeof scale);
    memcpy(s->min, min, sizeof min);
}

INLINE void iq4_xs_scales(const struct block_iq4_xs *b, struct super_scales *s) {
    for (uint32_t sb = 0; sb < SUPER_BLOCKS; sb++) {
        int low = b->scales_l[sb / 2] >> 4 * (sb % 2) & 15;
        int high = get_u16(&b->scales_h) >> 2 * sb & 3;
        s->scale[sb] = (uint8_t)((low | high << 4) - 32);
    }
}

/* 2k + 1 of n nibbles. */
INLINE void odd_scales(const uint8_t *nibbles, uint32_t n, struct super_scales *s) {
    for (uint32_t i = 0; i < n; i++)
        s->scale[i] = odd_scale((uint32_t)nibbles[i / 2] >> 4 * (i % 2));
}

/* 2k + 1 of the highest four bits of a word for each block, `stride` bytes apart. */
INLINE void odd_scales_of_words(const uint8_t *words, size_t stride, struct super_scales *s) {
    for (uint32_t sb = 0; sb < SUPER_BLOCKS; sb++)
        s->scale[sb] = odd_scale(get_word(words + stride * sb) >> 28);
}

/* Four words of four times three bits; their highest nibbles are d's, the lowest first. */
INLINE void iq1_m_scales(const struct block_iq1_m *b, struct super_scales *s) {
    s->d = 0;
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t word = get_u16(b->scales + 2 * k);
        s->d = (uint16_t)(s->d | word >> 12 << 4 * k);
        for (uint32_t i = 0; i < 4; i++)
            s->scale[4 * k + i] = odd_scale(word >> 3 * i & 7);
    }
}

INLINE void file_scales(enum qtype type, const uint8_t *p, struct super_scales *s) {
    s->d = get_u16(p); /* in most of these types it comes first */
    switch (type) {
    case QT_Q2_K:
        s->d = get_u16(&BLOCK(q2_K, p)->d);
        s->dmin = get_u16(&BLOCK(q2_K, p)->dmin);
        for (uint32_t i = 0; i < 2 * SUPER_BLOCKS; i++) {
            s->scale[i] = BLOCK(q2_K, p)->scales[i] & 15;
            s->min[i] = BLOCK(q2_K, p)->scales[i] >> 4;
        }
        break;
    case QT_Q3_K:
        s->d = get_u16(&BLOCK(q3_K, p)->d);
        for (uint32_t i = 0; i < 2 * SUPER_BLOCKS; i++)
            s->scale[i] = (uint8_t)k3_scale(BLOCK(q3_K, p)->scales, i);
        break;
    case QT_Q4_K:
    case QT_Q5_K: /* these begin alike */
        s->dmin = get_u16(&BLOCK(q4_K, p)->dmin);
        k4_scales(BLOCK(q4_K, p)->scales, s);
        break;
    case QT_Q6_K:
        s->d = get_u16(&BLOCK(q6_K, p)->d);
        memcpy(s->scale, BLOCK(q6_K, p)->scales, sizeof s->scale);
        break;
    case QT_IQ4_XS:
        iq4_xs_scales(BLOCK(iq4_xs, p), s);
        break;
    case QT_IQ3_S:
        odd_scales(BLOCK(iq3_s, p)->scales, SUPER_BLOCKS, s);
        break;
    case QT_IQ3_XXS:
        odd_scales_of_words(BLOCK(iq3_xxs, p)->qs + QK_K / 4, 4, s);
        break;
    case QT_IQ2_S:
        odd_scales(BLOCK(iq2_s, p)->scales, 2 * SUPER_BLOCKS, s);
        break;
    case QT_IQ2_XS:
        odd_scales(BLOCK(iq2_xs, p)->scales, 2 * SUPER_BLOCKS, s);
        break;
    case QT_IQ2_XXS:
        odd_scales_of_words(p + offsetof(struct block_iq2_xxs, qs) + 4, 8, s);
        break;
    case QT_IQ1_S:
        for (uint32_t sb = 0; sb < SUPER_BLOCKS; sb++)
            s->scale[sb] = odd_scale(BLOCK(iq1_s, p)->qh[sb] >> 12 & 7);
        break;
    case QT_IQ1_M:
        iq1_m_scales(BLOCK(iq1_m, p), s);
        break;
    case QT_TQ1_0:
        s->d = get_u16(&BLOCK(tq1_0, p)->d);
        memset(s->scale, 1, sizeof s->scale);
        break;
    case QT_TQ2_0:
        s->d = get_u16(&BLOCK(tq2_0, p)->d);
        memset(s->scale, 1, sizeof s->scale);
        break;
    default:
        BUG_ON(true);
    }
}

/* ---- codes and scales into a lane of the tile ----------------------------------------------- */

INLINE void put_word(uint8_t *vector, uint32_t lane, uint32_t word) {
    memcpy(vector + 4 * lane, &word, sizeof word);
}

INLINE void put_u16(uint8_t *dst, uint32_t lane, uint16_t v) {
    memcpy(dst + 2 * lane, &v, sizeof v);
}

/* Two bits of w's bytes: word v of 8 into bits 2 * (v % 4) of vector v / 4. */
INLINE void put_pairs(uint8_t *dst, uint32_t lane, const uint32_t *w) {
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t bits = 0;
        for (uint32_t k = 0; k < 4; k++)
            bits |= (w[4 * h + k] & 3 * ONES) << 2 * k;
        put_word(dst + h * TILE_VECTOR, lane, bits);
    }
}

INLINE void put_codes(enum qtype type, uint8_t *dst, uint32_t lane, const uint32_t *w) {
    const uint32_t low = tile_formats[type].low_bits, high = tile_formats[type].high_bits;
    uint32_t bits = 0;
    if (low == 8)
        for (uint32_t v = 0; v < 8; v++)
            put_word(dst + v * TILE_VECTOR, lane, w[v]);
    else if (low == 4)
        for (uint32_t v = 0; v < 4; v++)
            put_word(dst + v * TILE_VECTOR, lane,
                     (w[v] & 15 * ONES) | (w[v + 4] & 15 * ONES) << 4);
    else if (low == 6)
        for (uint32_t v = 0; v < 6; v++)
            put_word(dst + v * TILE_VECTOR, lane,
                     w[v + v / 3] | (w[v / 3 * 4 + 3] >> v % 3 * 2 & 3 * ONES) << 6);
    else
        put_pairs(dst, lane, w);
    dst += low * TILE_VECTOR;
    if (high == 1) {
        for (uint32_t v = 0; v < 8; v++)
            bits |= (w[v] >> low & ONES) << v;
        put_word(dst, lane, bits);
    }
}

/* The scales of the superblock's block sb into that block. */
INLINE void put_scales(enum qtype type, uint8_t *block, uint32_t sb, uint32_t lane,
                       const struct super_scales *s) {
    const enum tile_scales kind = tile_formats[type].scales;
    const uint32_t n = kind == TILE_SCALE || kind == TILE_SCALE_MIN ? 1 : 2;
    const bool has_min = kind == TILE_SCALE_MIN || kind == TILE_HALVES_MIN;
    for (uint32_t i = 0; i < n; i++) {
        block[i * TILE_ROWS + lane] = s->scale[sb * n + i];
        if (has_min)
            block[(n + i) * TILE_ROWS + lane] = s->min[sb * n + i];
    }
}

/* One row's share of blocks [begin, end) of a superblock, at `blocks`; its d and dmin go to
 * `super`. */
INLINE void pack_super(enum qtype type, uint8_t *super, uint8_t *blocks, const uint8_t *src,
                       uint32_t begin, uint32_t end, uint32_t lane) {
    const enum tile_scales kind = tile_formats[type].scales;
    struct super_scales s;
    file_scales(type, src, &s);
    put_u16(super, lane, s.d);
    if (kind == TILE_SCALE_MIN || kind == TILE_HALVES_MIN)
        put_u16(super + 2 * TILE_ROWS, lane, s.dmin);
    for (uint32_t sb = begin; sb < end; sb++, blocks += tile_block_bytes(type)) {
        uint32_t codes[8];
        file_codes(type, src, sb, codes);
        put_scales(type, blocks, sb, lane, &s);
        put_codes(type, blocks + tile_codes_at(type), lane, codes);
    }
}

/* exact_tidy() of a bf16. */
INLINE uint16_t tidy_bf16(uint16_t v) {
    return (v & 0x7fff) < EXACT_LEAST_BITS >> 16 ? 0 : v;
}

/* Half of an unsigned e4m3, as f16, which holds it; the NaN code is 0 (dequant_iq.c). */
INLINE uint16_t e4m3_half(uint8_t code) {
    uint32_t exponent = code >> 3 & 15, mantissa = code & 7;
    if ((code & 127) == 127)
        return 0;
    if (exponent == 0)
        return f32_to_f16((float)mantissa * 0x1p-10f);
    return (uint16_t)((exponent + 7) << 10 | mantissa << 7);
}

/* Block sb of the file's block, which is of one or two. */
INLINE void pack_block(enum qtype type, uint8_t *dst, const uint8_t *src, uint32_t sb,
                       uint32_t lane) {
    uint32_t codes[8];
    if (tile_formats[type].scales == TILE_E8M0) {
        dst[lane] = src[0] < 128 - 40 ? 0 : src[0];
    } else if (tile_formats[type].scales == TILE_D_D) {
        for (uint32_t h = 0; h < 2; h++)
            put_u16(dst + h * 2 * TILE_ROWS, lane, e4m3_half(src[2 * sb + h]));
    } else {
        const bool bf16 = tile_formats[type].scales == TILE_D_M_BF16;
        for (uint32_t i = 0; i < (tile_has_m(type) ? 2u : 1u);
             i++) { /* d comes first, then m */
            uint16_t v = get_u16(src + 2 * i);
            put_u16(dst + i * 2 * TILE_ROWS, lane, bf16 ? tidy_bf16(v) : v);
        }
    }
    file_codes(type, src, sb, codes);
    put_codes(type, dst + tile_codes_at(type), lane, codes);
}

/* ---- a tile: all its rows side by side, so that the writes run along it ------------------ */

struct tile_source {
    const uint8_t *rows[TILE_ROWS]; /* as in the file */
    uint32_t n_rows;
    uint32_t col_begin; /* where the share begins in them */
};

INLINE void pack_supers(enum qtype type, const struct wmat *w, uint8_t *tile,
                        const struct tile_source *src) {
    const size_t file_bytes = qtype_info(type)->block_bytes;
    for (uint32_t b = 0, end; b < w->n_cols / ACT_BLOCK; b = end) {
        uint32_t super = tile_super_of(w->col_phase, b), from = src->col_begin / ACT_BLOCK + b;
        end = MIN(tile_super_end(w->col_phase, super), w->n_cols / ACT_BLOCK);
        for (uint32_t r = 0; r < src->n_rows; r++)
            pack_super(type, tile + tile_super_at(type, w->col_phase, b),
                       tile + tile_block_at(type, w->col_phase, b),
                       src->rows[r] + from / SUPER_BLOCKS * file_bytes, from % SUPER_BLOCKS,
                       from % SUPER_BLOCKS + end - b, r);
    }
}

INLINE void pack_blocks(enum qtype type, const struct wmat *w, uint8_t *tile,
                        const struct tile_source *src) {
    const size_t file_bytes = qtype_info(type)->block_bytes;
    const uint32_t n = qtype_info(type)->block_values / ACT_BLOCK;
    uint32_t begin = src->col_begin / ACT_BLOCK, end = begin + w->n_cols / ACT_BLOCK;
    for (uint32_t b = begin; b < end; b++) {
        for (uint32_t r = 0; r < src->n_rows; r++)
            pack_block(type, tile, src->rows[r] + b / n * file_bytes, b % n, r);
        tile += tile_block_bytes(type);
    }
}

/* Times the least value, 2^-9, it is EXACT_LEAST. */
#define F8_LEAST_SCALE 0x1p-31f

/* The bytes stay; a block's scale goes before them. */
INLINE void pack_f8(const struct wmat *w, uint8_t *tile, const struct tile_source *src) {
    const size_t first = src->col_begin / QK;
    for (uint32_t col = 0; col < w->n_cols; col++) {
        for (uint32_t r = 0; r < src->n_rows; r++) {
            const uint8_t *block =
                src->rows[r] + (first + col / QK) * sizeof(struct block_f8_e4m3);
            if (col % QK == 0) {
                float d;
                memcpy(&d, block + offsetof(struct block_f8_e4m3, d), sizeof d);
                d = fabsf(d) < F8_LEAST_SCALE ? 0.0f : d;
                memcpy(tile + tile_f8_scales_at(col) + r * sizeof d, &d, sizeof d);
            }
            tile[tile_col_at(QT_F8_E4M3, col) + r] =
                block[offsetof(struct block_f8_e4m3, qs) + col % QK];
        }
    }
}

/* exact_tidy() of n f32 or bf16 values; f16 ones are 0 or at least 2^-24. */
INLINE void tidy_floats(enum qtype type, uint8_t *values, size_t n) {
    for (size_t i = 0; i < n && type == QT_F32; i++) {
        uint32_t v = get_word(values + 4 * i);
        v = (v & 0x7fffffff) < EXACT_LEAST_BITS ? 0 : v;
        memcpy(values + 4 * i, &v, sizeof v);
    }
    for (size_t i = 0; i < n && type == QT_BF16; i++) {
        uint16_t v = tidy_bf16(get_u16(values + 2 * i));
        memcpy(values + 2 * i, &v, sizeof v);
    }
}

/* Eight bytes of a row at a time; their columns are tidied together, as vectors. */
INLINE void pack_floats(enum qtype type, const struct wmat *w, uint8_t *tile,
                        const struct tile_source *src) {
    const size_t size = tile_col_bytes(type) / TILE_ROWS;
    if (type == QT_F8_E4M3) {
        pack_f8(w, tile, src);
        return;
    }
    for (uint32_t col = 0, n; col < w->n_cols; col += n) {
        n = MIN((uint32_t)(8 / size), w->n_cols - col);
        uint8_t *columns = tile + (size_t)col * TILE_ROWS * size;
        for (uint32_t r = 0; r < src->n_rows; r++) {
            const uint8_t *p = src->rows[r] + (size_t)(src->col_begin + col) * size;
            uint8_t values[8];
            memcpy(values, p, n == 8 / size ? 8 : n * size);
            for (uint32_t i = 0; i < n; i++)
                memcpy(columns + (i * TILE_ROWS + r) * size, values + i * size, size);
        }
        tidy_floats(type, columns, (size_t)n * TILE_ROWS);
    }
}

#define PACK_TILE(family, type)                                  \
    static void pack_##type(const struct wmat *w, uint8_t *tile, \
                            const struct tile_source *src) {     \
        family(QT_##type, w, tile, src);                         \
    }
#define PACK_FLOATS(type) PACK_TILE(pack_floats, type)
#define PACK_BLOCKS(type) PACK_TILE(pack_blocks, type)
#define PACK_SUPERS(type) PACK_TILE(pack_supers, type)
TILE_FLOAT_TYPES(PACK_FLOATS)
TILE_BLOCK_TYPES(PACK_BLOCKS)
TILE_PAIR_TYPES(PACK_BLOCKS)
TILE_SUPER_TYPES(PACK_SUPERS)
TILE_HALVES_TYPES(PACK_SUPERS)

typedef void (*pack_fn)(const struct wmat *w, uint8_t *tile, const struct tile_source *src);
#define ENTRY(type) [QT_##type] = pack_##type,
static const pack_fn pack_tile[QT_N] = {TILE_FLOAT_TYPES(ENTRY) TILE_CODED_TYPES(ENTRY)};

void wmat_pack(const struct wmat *w, uint8_t *tiles, uint32_t tile_begin, uint32_t tile_end,
               const uint8_t *(*src_row)(const void *ctx, uint32_t r), const void *ctx,
               uint32_t col_begin) {
    BUG_ON(tile_has_supers(w->type) && col_begin % QK_K != w->col_phase);
    BUG_ON(w->type == QT_F8_E4M3 && col_begin % QK != 0);
    for (uint32_t t = tile_begin; t < tile_end; t++) {
        uint8_t *tile = tiles + t * w->tile_bytes;
        uint32_t first = t * TILE_ROWS;
        struct tile_source src = {.n_rows = MIN(w->n_rows - first, (uint32_t)TILE_ROWS),
                                  .col_begin = col_begin};
        for (uint32_t r = 0; r < src.n_rows; r++)
            src.rows[r] = src_row(ctx, first + r);
        memset(tile, 0, w->tile_bytes);
        pack_tile[w->type](w, tile, &src);
    }
}
