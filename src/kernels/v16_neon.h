/* v16_neon.h: sixteen f32 lanes in four registers. lanes16.inc.h uses these; v16_avx512.h
 * documents them. */
#ifndef LOCKSTEP_KERNELS_V16_NEON_H
#define LOCKSTEP_KERNELS_V16_NEON_H

#include "kernels/simd.h"
#include "kernels/tidy.h"

#include <arm_neon.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    float32x4_t r[4]; /* lanes 4i to 4i+3 */
} v16;
typedef struct {
    int32x4_t r[4];
} v16i;

#define RECUR_TILES 2
#define ATTN_TILES 4
#define ATTN_VECTORS 4
#define ATTN_TILES_FOR(queries) ((queries) == 1 ? 4 : (queries) == 2 ? 2 : 1)
#define ATTN_VECTORS_FOR(queries) ((queries) == 1 ? 4 : (queries) == 2 ? 2 : 1)

/* One operation on each of the four registers. */
#define V16_EACH(type, i, expr) \
    type out_;                  \
    UNROLL                      \
    for (int i = 0; i < 4; i++) \
        out_.r[i] = (expr);     \
    return out_

INLINE v16 v16_zero(void) {
    V16_EACH(v16, i, vdupq_n_f32(0));
}
INLINE v16 v16_set(float x) {
    V16_EACH(v16, i, vdupq_n_f32(x));
}
INLINE v16 v16_load(const float *p) {
    V16_EACH(v16, i, vld1q_f32(p + 4 * i));
}
INLINE void v16_store(float *p, v16 v) {
    UNROLL
    for (int i = 0; i < 4; i++)
        vst1q_f32(p + 4 * i, v.r[i]);
}
INLINE v16 v16_load_n(const float *p, size_t n) {
    if (n == 16)
        return v16_load(p);
    float x[16] = {0};
    memcpy(x, p, n * sizeof *x);
    return v16_load(x);
}
INLINE void v16_store_n(float *p, v16 v, size_t n) {
    float x[16];
    if (n == 16) {
        v16_store(p, v);
        return;
    }
    v16_store(x, v);
    memcpy(p, x, n * sizeof *x);
}
INLINE v16 v16_keep(v16 v, size_t begin, size_t end, v16 rest) {
    static const uint32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    uint32x4_t from = vdupq_n_u32((uint32_t)begin), to = vdupq_n_u32((uint32_t)end);
    v16 out;
    UNROLL
    for (int i = 0; i < 4; i++) {
        uint32x4_t lane = vld1q_u32(lanes + 4 * i);
        uint32x4_t kept = vandq_u32(vcgeq_u32(lane, from), vcltq_u32(lane, to));
        out.r[i] = vbslq_f32(kept, v.r[i], rest.r[i]);
    }
    return out;
}

INLINE v16 v16_add(v16 a, v16 b) {
    V16_EACH(v16, i, vaddq_f32(a.r[i], b.r[i]));
}
INLINE v16 v16_sub(v16 a, v16 b) {
    V16_EACH(v16, i, vsubq_f32(a.r[i], b.r[i]));
}
INLINE v16 v16_mul(v16 a, v16 b) {
    V16_EACH(v16, i, vmulq_f32(a.r[i], b.r[i]));
}
INLINE v16 v16_div(v16 a, v16 b) {
    V16_EACH(v16, i, vdivq_f32(a.r[i], b.r[i]));
}
INLINE v16 v16_fma(v16 a, v16 b, v16 c) {
    V16_EACH(v16, i, vfmaq_f32(c.r[i], a.r[i], b.r[i]));
}
INLINE v16 v16_fms(v16 a, v16 b, v16 c) {
    V16_EACH(v16, i, vfmaq_f32(vnegq_f32(c.r[i]), a.r[i], b.r[i]));
}
INLINE v16 v16_fmaddsub(v16 a, v16 b, v16 c) {
    const uint32x4_t even = vreinterpretq_u32_u64(vdupq_n_u64(0x80000000u));
    V16_EACH(v16, i,
             vfmaq_f32(vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(c.r[i]), even)),
                       a.r[i], b.r[i]));
}
INLINE v16 v16_abs(v16 v) {
    V16_EACH(v16, i, vabsq_f32(v.r[i]));
}
/* Not vmaxq: that gives NaN where one is NaN. */
INLINE v16 v16_max(v16 a, v16 b) {
    V16_EACH(v16, i, vbslq_f32(vcgtq_f32(a.r[i], b.r[i]), a.r[i], b.r[i]));
}
INLINE v16 v16_min(v16 a, v16 b) {
    V16_EACH(v16, i, vbslq_f32(vcltq_f32(a.r[i], b.r[i]), a.r[i], b.r[i]));
}
INLINE v16 v16_negate(v16 v) {
    V16_EACH(v16, i, vnegq_f32(v.r[i]));
}
INLINE v16 v16_if_less(v16 a, v16 b, v16 yes, v16 no) {
    V16_EACH(v16, i, vbslq_f32(vcltq_f32(a.r[i], b.r[i]), yes.r[i], no.r[i]));
}
INLINE v16 v16_if_nan(v16 v, v16 yes, v16 no) {
    V16_EACH(v16, i, vbslq_f32(vceqq_f32(v.r[i], v.r[i]), no.r[i], yes.r[i]));
}

INLINE v16 v16_tidy(v16 v) {
    V16_EACH(v16, i, tidy_4(v.r[i]));
}

INLINE v16 v16_even_twice(v16 v) {
    V16_EACH(v16, i, vtrn1q_f32(v.r[i], v.r[i]));
}
INLINE v16 v16_odd_twice(v16 v) {
    V16_EACH(v16, i, vtrn2q_f32(v.r[i], v.r[i]));
}
INLINE v16 v16_interleave(const float *a, const float *b) {
    float32x4_t a0 = vld1q_f32(a), a1 = vld1q_f32(a + 4);
    float32x4_t b0 = vld1q_f32(b), b1 = vld1q_f32(b + 4);
    return (v16){
        {vzip1q_f32(a0, b0), vzip2q_f32(a0, b0), vzip1q_f32(a1, b1), vzip2q_f32(a1, b1)}};
}

INLINE v16 v16_load_f16(const uint16_t *p) {
    V16_EACH(v16, i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))));
}
INLINE v16 v16_load_i8(const int8_t *p) {
    int8x16_t q = vld1q_s8(p);
    int16x8_t low = vmovl_s8(vget_low_s8(q)), high = vmovl_s8(vget_high_s8(q));
    return (v16){{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
                  vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
                  vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
                  vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}
/* One f16, in all lanes; p need not be aligned. */
INLINE v16 v16_set_f16(const uint8_t *p) {
    uint16x4_t h = vdup_n_u16((uint16_t)(p[0] | p[1] << 8));
    V16_EACH(v16, i, vcvt_f32_f16(vreinterpret_f16_u16(h)));
}
INLINE void v16_store_f16(uint16_t *p, v16 v) {
    UNROLL
    for (int i = 0; i < 4; i++)
        vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(v.r[i])));
}

/* dst[16 d + i] = src[i * stride + d] for 16 rows i and 16 columns d. */
INLINE void v16_transpose_16(uint16_t *dst, const uint16_t *src, size_t stride) {
    for (size_t part = 0; part < 4; part++) { /* 8 rows and 8 columns at a time */
        const uint16_t *from = src + part / 2 * 8 * stride + part % 2 * 8;
        uint16_t *to = dst + part % 2 * 8 * 16 + part / 2 * 8;
        uint32x4_t s[8];
        uint64x2_t r[8];
        UNROLL
        for (size_t i = 0; i < 8; i += 2) {
            uint16x8_t a = vld1q_u16(from + i * stride), b = vld1q_u16(from + (i + 1) * stride);
            s[i] = vreinterpretq_u32_u16(vzip1q_u16(a, b));
            s[i + 1] = vreinterpretq_u32_u16(vzip2q_u16(a, b));
        }
        UNROLL
        for (int i = 0; i < 8; i += 4) {
            r[i] = vreinterpretq_u64_u32(vzip1q_u32(s[i], s[i + 2]));
            r[i + 1] = vreinterpretq_u64_u32(vzip2q_u32(s[i], s[i + 2]));
            r[i + 2] = vreinterpretq_u64_u32(vzip1q_u32(s[i + 1], s[i + 3]));
            r[i + 3] = vreinterpretq_u64_u32(vzip2q_u32(s[i + 1], s[i + 3]));
        }
        UNROLL
        for (int i = 0; i < 4; i++) {
            vst1q_u16(to + 32 * i, vreinterpretq_u16_u64(vzip1q_u64(r[i], r[i + 4])));
            vst1q_u16(to + 32 * i + 16, vreinterpretq_u16_u64(vzip2q_u64(r[i], r[i + 4])));
        }
    }
}

INLINE float v16_sum(v16 v) {
    float32x4_t s = vaddq_f32(vaddq_f32(v.r[0], v.r[2]), vaddq_f32(v.r[1], v.r[3]));
    float32x2_t q = vadd_f32(vget_low_f32(s), vget_high_f32(s));
    return vget_lane_f32(q, 0) + vget_lane_f32(q, 1);
}
INLINE float v16_largest(v16 v) {
    float x[16], largest = -INFINITY;
    v16_store(x, v);
    for (int i = 0; i < 16; i++)
        largest = x[i] > largest ? x[i] : largest;
    return largest;
}

/* ---- integers ------------------------------------------------------------------------- */

INLINE v16i v16i_add(v16i a, v16i b) {
    V16_EACH(v16i, i, vaddq_s32(a.r[i], b.r[i]));
}
INLINE v16i v16i_shift_left(v16i v, unsigned bits) {
    V16_EACH(v16i, i, vshlq_s32(v.r[i], vdupq_n_s32((int)bits)));
}
INLINE v16i v16i_from_bits(v16 v) {
    V16_EACH(v16i, i, vreinterpretq_s32_f32(v.r[i]));
}
INLINE v16 v16_from_bits(v16i v) {
    V16_EACH(v16, i, vreinterpretq_f32_s32(v.r[i]));
}
INLINE v16i v16_round(v16 v) {
    V16_EACH(v16i, i, vcvtnq_s32_f32(v.r[i]));
}
INLINE v16 v16_from_int(v16i v) {
    V16_EACH(v16, i, vcvtq_f32_s32(v.r[i]));
}
INLINE void v16i_store_8(int8_t *p, v16i v) {
    int16x8_t lo = vcombine_s16(vmovn_s32(v.r[0]), vmovn_s32(v.r[1]));
    int16x8_t hi = vcombine_s16(vmovn_s32(v.r[2]), vmovn_s32(v.r[3]));
    vst1q_s8(p, vcombine_s8(vmovn_s16(lo), vmovn_s16(hi)));
}
INLINE int32_t v16i_sum(v16i v) {
    return vaddvq_s32(vaddq_s32(vaddq_s32(v.r[0], v.r[1]), vaddq_s32(v.r[2], v.r[3])));
}
/* Not by way of f64: that would round twice. */
INLINE v16 v16_from_int64(const int64_t *p) {
    float x[16];
    for (int i = 0; i < 16; i++)
        x[i] = (float)p[i];
    return v16_load(x);
}

#endif
