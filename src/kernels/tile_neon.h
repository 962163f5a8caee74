/* tile_neon.h: how the products of arm64 (matmul_neon.c, matmul_i8mm.c) read a tile and write
 * their results. A tile's 16 rows are four registers, its quarters. A quarter is four rows,
 * with their scales or sums as 32-bit lanes, or with four columns of their codes as bytes. */
#ifndef LOCKSTEP_KERNELS_TILE_NEON_H
#define LOCKSTEP_KERNELS_TILE_NEON_H

#include "base/util.h"
#include "kernels/simd.h"
#include "kernels/tidy.h"
#include "kernels/tile_driver.h"
#include "kernels/tile_walk.h"

#include <arm_neon.h>

#define QUARTERS 4
#define QUARTER_ROWS 4

/* ---- results -------------------------------------------------------------------------------- */

/* docs/numerics.md: to the nearest multiple of 2^-24, saturated; NaN takes the upper limit. By
 * way of double, which holds them exactly. */
INLINE int64x2x2_t fixed_of(float32x4_t x) {
    x = vminnmq_f32(x, vdupq_n_f32(FIXED_LIMIT));
    x = vmaxnmq_f32(x, vdupq_n_f32(-FIXED_LIMIT));
    x = vmulq_n_f32(x, 1 << FIXED_BITS);
    return (int64x2x2_t){
        {vcvtnq_s64_f64(vcvt_f64_f32(vget_low_f32(x))), vcvtnq_s64_f64(vcvt_high_f64_f32(x))}};
}

INLINE void store_fixed(int64_t *y, bool first, float32x4_t sums) {
    int64x2x2_t v = fixed_of(sums);
    if (!first) {
        v.val[0] = vaddq_s64(v.val[0], vld1q_s64(y));
        v.val[1] = vaddq_s64(v.val[1], vld1q_s64(y + 2));
    }
    vst1q_s64(y, v.val[0]);
    vst1q_s64(y + 2, v.val[1]);
}

/* sums[r]: those of quarter r of tile i and token t, of the segment that ends at column `end`. */
INLINE void store_rows(const struct mm_call *c, int i, int t, uint32_t end,
                       const float32x4_t *sums) {
    if (c->y != NULL) {
        float *y = c->y + (size_t)t * c->ldy + c->row[i];
        UNROLL
        for (int r = 0; r < QUARTERS; r++)
            vst1q_f32(y + QUARTER_ROWS * r, tidy_4(sums[r]));
        return;
    }
    int64_t *y = c->fixed[t] + c->row[i];
    const bool first = !c->adds && end == c->seg_cols;
    UNROLL
    for (int r = 0; r < QUARTERS; r++)
        store_fixed(y + QUARTER_ROWS * r, first, sums[r]);
}

/* ---- numbers of four rows ---------------------------------------------------------------- */

INLINE float32x4_t load_f16(const uint8_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

INLINE float32x4_t load_bf16(const uint8_t *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}

INLINE int32x4_t load_u8(const uint8_t *p) {
    uint32_t word;
    memcpy(&word, p, sizeof word);
    uint16x8_t wide = vmovl_u8(vcreate_u8(word));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)));
}

INLINE int32x4_t load_i8(const uint8_t *p) {
    uint32_t word;
    memcpy(&word, p, sizeof word);
    int16x8_t wide = vmovl_s8(vcreate_s8(word));
    return vmovl_s16(vget_low_s16(wide));
}

/* 2^(e - 128), or 0 for e = 0; there is no e between 0 and 88. */
INLINE float32x4_t load_e8m0(const uint8_t *p) {
    int32x4_t e = vmaxq_s32(vsubq_s32(load_u8(p), vdupq_n_s32(1)), vdupq_n_s32(0));
    return vreinterpretq_f32_s32(vshlq_n_s32(e, 23));
}

/* ---- a block of codes and its scales ----------------------------------------------------- */

struct coded_block {
    const uint8_t *super; /* scales of its superblock, if it has one */
    const uint8_t *scales, *vectors;
};

/* Block b of tile i. */
INLINE struct coded_block coded_block_at(const struct mm_call *c, enum qtype type, uint32_t i,
                                         uint32_t b) {
    const uint8_t *block = c->w[i] + tile_block_at(type, c->col_phase, b);
    return (struct coded_block){
        .super = c->w[i] + tile_super_at(type, c->col_phase, b),
        .scales = block,
        .vectors = block + tile_codes_at(type),
    };
}

/* d of quarter r's superblock, times the type's factor. */
INLINE float32x4_t load_super_d(enum qtype type, const struct coded_block *b, int r) {
    float32x4_t d = load_f16(b->super + 2 * QUARTER_ROWS * r);
    float factor = tile_formats[type].d_factor;
    return factor != 0 ? vmulq_n_f32(d, factor) : d;
}

INLINE float32x4_t load_super_dmin(const struct coded_block *b, int r) {
    return load_f16(b->super + 2 * TILE_ROWS + 2 * QUARTER_ROWS * r);
}

/* The scale of quarter r's weights in this block. For types with scales per half it is the part
 * outside of these: d0 or d1 for `half`, or the superblock's d. */
INLINE float32x4_t load_d(enum qtype type, const struct coded_block *b, int r, int half) {
    switch (scales_of(type)) {
    case TILE_E8M0:
        return load_e8m0(b->scales + QUARTER_ROWS * r);
    case TILE_D_M_BF16:
        return load_bf16(b->scales + 2 * QUARTER_ROWS * r);
    case TILE_SCALE:
    case TILE_SCALE_MIN:
        return vmulq_f32(load_super_d(type, b, r),
                         vcvtq_f32_s32(load_i8(b->scales + QUARTER_ROWS * r)));
    case TILE_HALVES:
    case TILE_HALVES_MIN:
        return load_super_d(type, b, r);
    default:
        return load_f16(b->scales + 2 * TILE_ROWS * half + 2 * QUARTER_ROWS * r);
    }
}

/* What every weight of quarter r has besides: m, with 128 d where codes are biased, or -(dmin *
 * min). */
INLINE bool has_offset(enum qtype type) {
    return tile_has_m(type) || scales_of(type) == TILE_SCALE_MIN;
}

INLINE float32x4_t load_offset(enum qtype type, const struct coded_block *b, int r,
                               float32x4_t d) {
    if (scales_of(type) == TILE_SCALE_MIN) {
        int32x4_t min = load_u8(b->scales + TILE_ROWS + QUARTER_ROWS * r);
        return vnegq_f32(vmulq_f32(load_super_dmin(b, r), vcvtq_f32_s32(min)));
    }
    const uint8_t *p = b->scales + 2 * TILE_ROWS + 2 * QUARTER_ROWS * r;
    float32x4_t m = scales_of(type) == TILE_D_M_BF16 ? load_bf16(p) : load_f16(p);
    return tile_formats[type].bias != 0 ? vfmaq_n_f32(m, d, tile_formats[type].bias) : m;
}

/* ---- codes ------------------------------------------------------------------------------- */

INLINE uint8x16_t shift_right(uint8x16_t v, int bits) {
    return bits == 0 ? v : vshlq_u8(v, vdupq_n_s8((int8_t)-bits));
}

/* Code k of the four that lie in three vectors (kernels.h). */
INLINE uint8x16_t six_bits(const uint8_t *p, int k) {
    if (k < 3)
        return vandq_u8(vld1q_u8(p + TILE_VECTOR * k), vdupq_n_u8(63));
    uint8x16_t w = vshrq_n_u8(vld1q_u8(p), 6);
    w = vorrq_u8(w, vshlq_n_u8(vshrq_n_u8(vld1q_u8(p + TILE_VECTOR), 6), 2));
    return vorrq_u8(w, vshlq_n_u8(vshrq_n_u8(vld1q_u8(p + 2 * TILE_VECTOR), 6), 4));
}

/* Vector j of 8 (columns 4j to 4j+3) of one quarter's codes. p: the block's vectors from this
 * quarter's bytes on. */
INLINE uint8x16_t codes(enum qtype type, const uint8_t *p, int j) {
    const int low = tile_formats[type].low_bits, high = tile_formats[type].high_bits;
    if (low == 8)
        return vld1q_u8(p + TILE_VECTOR * j);
    if (low == 6)
        return six_bits(p + TILE_VECTOR * 3 * (j / 4), j % 4);
    uint8x16_t w;
    if (low == 4)
        w = shift_right(vld1q_u8(p + TILE_VECTOR * (j % 4)), j / 4 * 4);
    else
        w = shift_right(vld1q_u8(p + TILE_VECTOR * (j / 4)), j % 4 * 2);
    w = vandq_u8(w, vdupq_n_u8((uint8_t)((1 << low) - 1)));
    p += TILE_VECTOR * low;
    if (high == 1) {
        uint8x16_t bit = shift_right(vld1q_u8(p), j - low);
        w = vorrq_u8(w, vandq_u8(bit, vdupq_n_u8((uint8_t)(1 << low))));
    }
    return w;
}

INLINE int8x16_t look_up(enum qtype type, uint8x16_t codes_) {
    return vqtbl1q_s8(vld1q_s8(tile_formats[type].values), codes_);
}

#endif
