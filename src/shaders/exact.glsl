/* exact.glsl: base/exact.h, the conversions of quant/quant.h and 64-bit integers for shaders: the
 * results of IEEE 754 from what a device has; addresses of mapped memory.
 *
 * Taken for granted, and found out by the self-test (selftest.c): f32 add, subtract and multiply
 * round to nearest even, and conversions between f32 and integers below 2^24 are exact. Whether
 * something is NaN, zero or tiny is asked of its bits, since a driver may assume that there is no
 * NaN. Subnormals may be flushed: docs/numerics.md says why that does not show. */
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require

/* FMA  0  GLSL's fma() is fused
 *      1  it is not, but there is f64 (compiled with -DF64): an exact product, a sum that is rounded
 *         to odd, then to f32
 *      2  neither: error-free transformations in f32
 *      3  rounds twice: a fault for tests
 * FAULTY_DIVISION  also a fault: a / b as a * (1 / b) */
layout(constant_id = 0) const uint FMA = 0;
layout(constant_id = 1) const uint FAULTY_DIVISION = 0;

#define INF uintBitsToFloat(0x7f800000u)
#define NAN uintBitsToFloat(0x7fc00000u)
#define SIGN 0x80000000u
#define LEAST_BITS 0x2b800000u /* 2^-40 */

/* ---- memory ------------------------------------------------------------------------------ */

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Pairs { uvec2 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Quads { uvec4 at[]; };

/* int64 and addresses as (low, high): what every device has. */
uvec2 add64(uvec2 a, uvec2 b) {
    uint carry;
    uint low = uaddCarry(a.x, b.x, carry);
    return uvec2(low, a.y + b.y + carry);
}

uvec2 neg64(uvec2 a) { return add64(~a, uvec2(1u, 0u)); }

/* The address n * size bytes further on. */
uvec2 further(uvec2 address, uint n, uint size) {
    uint high, low;
    umulExtended(n, size, high, low);
    return add64(address, uvec2(low, high));
}

/* ---- single operations ------------------------------------------------------------------- */

bool is_nan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }

bool is_finite(float x) { return (floatBitsToUint(x) & 0x7f800000u) != 0x7f800000u; }

float tidy_(float x) {
    return (floatBitsToUint(x) & 0x7fffffffu) < LEAST_BITS ? 0.0 : x;
}

float add_(float a, float b) {
    precise float r = a + b;
    return r;
}

float mul_(float a, float b) {
    precise float r = a * b;
    return r;
}

#ifdef F64
float fma_f64(float a, float b, float c) {
    precise double p = double(a) * double(b), cc = double(c); /* exact */
    precise double s = p + cc;
    precise double t = s - p;
    precise double u = s - t;
    precise double e1 = p - u;
    precise double e2 = cc - t;
    precise double e = e1 + e2; /* what s lacks, exactly */
    uvec2 bits = unpackDouble2x32(s);
    if (abs(e) > 0.0lf && (bits.x & 1u) == 0u && (bits.y & 0x7ff00000u) != 0x7ff00000u) {
        if ((e > 0.0lf) == (s > 0.0lf)) {
            bits.x |= 1u;
        } else {
            bits.y -= bits.x == 0u ? 1u : 0u;
            bits.x -= 1u;
        }
    }
    return float(packDouble2x32(bits));
}
#endif

/* As above with pairs of f32: Boldo and Melquiond, "Emulation of FMA and correctly rounded
 * sums". Where |a| or |b| or |c| is large, all is computed 2^-32 times as large, so that
 * splitting does not overflow and nothing is subnormal; what is not finite, or exact, is what
 * two operations give. */
float fma_f32(float a, float b, float c) {
    bool large = max(max(abs(a), abs(b)), abs(c)) > 1267650600228229401496703205376.0; /* 2^100 */
    bool of_a = abs(a) > abs(b);
    float down = large ? 2.3283064365386963e-10 : 1.0; /* 2^-32 */
    a = of_a ? mul_(a, down) : a;
    b = of_a ? b : mul_(b, down);
    c = mul_(c, down);
    precise float ka = 4097.0 * a, a1 = ka - a, ah = ka - a1, al = a - ah;
    precise float kb = 4097.0 * b, b1 = kb - b, bh = kb - b1, bl = b - bh;
    precise float p = a * b;
    precise float q1 = ah * bh, q2 = q1 - p, q3 = ah * bl, q4 = q2 + q3, q5 = al * bh,
                  q6 = q4 + q5, q7 = al * bl;
    precise float pl = q7 + q6;
    precise float th = c + pl, t1 = th - c, t2 = th - t1, t3 = c - t2, t4 = pl - t1, tl = t3 + t4;
    precise float vh = p + th, v1 = vh - p, v2 = vh - v1, v3 = p - v2, v4 = th - v1, vl = v3 + v4;
    precise float z = tl + vl, z1 = z - tl, z2 = z - z1, z3 = tl - z2, z4 = vl - z1, ze = z3 + z4;
    uint zb = floatBitsToUint(z);
    if ((floatBitsToUint(ze) & 0x7fffffffu) != 0u && (zb & 1u) == 0u)
        zb = (ze > 0.0) == (z > 0.0) ? zb | 1u : zb - 1u;
    precise float r = vh + uintBitsToFloat(zb), plain = p + c;
    if (!is_finite(r) || (floatBitsToUint(p) & 0x7fffffffu) == 0u)
        r = plain;
    if ((floatBitsToUint(c) & 0x7fffffffu) == 0x7f800000u && is_finite(a) && is_finite(b))
        r = c; /* even where a * b overflows to the other infinity */
    return large ? mul_(r, 4294967296.0) : r;
}

/* round(a * b + c), rounded once. */
float fma_(float a, float b, float c) {
    if (FMA == 3u) return add_(mul_(a, b), c);
#ifdef F64
    return fma_f64(a, b, c);
#else
    if (FMA == 2u) return fma_f32(a, b, c);
    precise float r = fma(a, b, c);
    return r;
#endif
}

/* Of zeros, infinities and NaN: by the rules of IEEE, and not the device's. */
float div_special(uint a, uint b) {
    uint sa = a & 0x7fffffffu, sb = b & 0x7fffffffu, sign = (a ^ b) & SIGN;
    bool zero_a = sa < 0x800000u, zero_b = sb < 0x800000u; /* subnormals do not come up */
    if (sa > 0x7f800000u || sb > 0x7f800000u || (zero_a && zero_b) ||
        (sa == 0x7f800000u && sb == 0x7f800000u))
        return NAN;
    return uintBitsToFloat(zero_a || sb == 0x7f800000u ? sign : sign | 0x7f800000u);
}

/* a / b, correctly rounded: the device's own reciprocal is only a first guess. A quotient below
 * 2^-126 becomes 0. */
float div_(float a, float b) {
    uint ua = floatBitsToUint(a), ub = floatBitsToUint(b);
    int ea = int(ua >> 23 & 255u), eb = int(ub >> 23 & 255u);
    if (ea == 0 || ea == 255 || eb == 0 || eb == 255) return div_special(ua, ub);
    float ma = uintBitsToFloat((ua & 0x7fffffu) | 0x3f800000u);
    float mb = uintBitsToFloat((ub & 0x7fffffu) | 0x3f800000u);
    int e = ea - eb;
    if (ma < mb) {
        ma = mul_(ma, 2.0);
        e--;
    }
    precise float y = 1.0 / mb;
    precise float q = ma * y;
    if (FAULTY_DIVISION == 0u) {
        y = fma_(fma_(-mb, y, 1.0), y, y);
        q = mul_(ma, y);
        q = fma_(fma_(-mb, q, ma), y, q);
        float half_unit = mul_(mb, 5.9604644775390625e-8); /* of q in [1, 2), times mb */
        for (int i = 0; i < 2; i++) {
            float r = fma_(-mb, q, ma);
            if (r > half_unit) q = add_(q, 1.1920928955078125e-7);
            else if (r < -half_unit) q = add_(q, -1.1920928955078125e-7);
        }
    }
    uint uq = floatBitsToUint(q), sign = (ua ^ ub) & SIGN;
    e += int(uq >> 23);
    if (e < 1) return uintBitsToFloat(sign);
    return uintBitsToFloat(e > 254 ? sign | 0x7f800000u : sign | uint(e) << 23 | (uq & 0x7fffffu));
}

/* The square root, correctly rounded. */
float sqrt_(float x) {
    uint u = floatBitsToUint(x);
    int e = int(u >> 23 & 255u);
    if (e == 0 || u == 0x7f800000u || is_nan(x)) return x;
    if ((u & SIGN) != 0u) return NAN;
    int k = e - 127, odd = k & 1;
    float m = uintBitsToFloat((u & 0x7fffffu) | uint(127 + odd) << 23); /* [1, 4) */
    precise float s = sqrt(m);
    precise float h = 0.5 / s;
    s = fma_(fma_(-s, s, m), h, s);
    for (int i = 0; i < 2; i++) {
        float unit = mul_(s, 1.1920928955078125e-7), r = fma_(-s, s, m);
        if (r > unit) s = add_(s, 1.1920928955078125e-7);
        else if (r <= -unit) s = add_(s, -1.1920928955078125e-7);
    }
    return uintBitsToFloat(floatBitsToUint(s) + (uint((k - odd) / 2) << 23));
}

/* ---- functions of exact.h ---------------------------------------------------------------- */

float exp_(float x) {
    if (is_nan(x)) return x;
    if (x < -87.3) return 0.0;
    if (x > 88.72) return INF;
    float n = roundEven(mul_(x, uintBitsToFloat(0x3fb8aa3bu)));
    float r = fma_(n, uintBitsToFloat(0x3102e308u), fma_(n, uintBitsToFloat(0xbf317218u), x));
    float p = uintBitsToFloat(0x3ab5121au);
    p = fma_(p, r, uintBitsToFloat(0x3c091cf1u));
    p = fma_(p, r, uintBitsToFloat(0x3d2aac79u));
    p = fma_(p, r, uintBitsToFloat(0x3e2aaa49u));
    p = fma_(p, r, uintBitsToFloat(0x3efffffeu));
    float y = add_(fma_(p, mul_(r, r), r), 1.0);
    return uintBitsToFloat(floatBitsToUint(y) + (uint(int(n)) << 23));
}

float tanh_(float x) {
    return add_(1.0, -div_(2.0, add_(exp_(add_(x, x)), 1.0)));
}

/* ---- other formats ----------------------------------------------------------------------- */

float from_f16(uint h) {
    uint sign = (h & 0x8000u) << 16, e = h >> 10 & 31u, m = h & 0x3ffu;
    if (e == 0u)
        return uintBitsToFloat(sign | floatBitsToUint(mul_(float(m), 5.9604644775390625e-8)));
    if (e == 31u) return uintBitsToFloat(sign | 0x7f800000u | m << 13);
    return uintBitsToFloat(sign | (e + 112u) << 23 | m << 13);
}

float from_bf16(uint h) { return uintBitsToFloat(h << 16); }

float from_e4m3(uint b) {
    uint sign = (b & 0x80u) << 24, e = b >> 3 & 15u, m = b & 7u;
    if (e == 0u) return uintBitsToFloat(sign | floatBitsToUint(mul_(float(m), 0.001953125)));
    return uintBitsToFloat(sign | (e + 120u) << 23 | m << 20);
}

/* To nearest even. */
uint to_f16(float f) {
    uint u = floatBitsToUint(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return sign | 0x7e00u | (a >> 13 & 0x3ffu);
    if (a >= 0x477ff000u) return sign | 0x7c00u;
    if (a < 0x33000000u) return sign;
    if (a < 0x38800000u) { /* a subnormal f16 */
        uint shift = 126u - (a >> 23), m = (a & 0x7fffffu) | 0x800000u;
        uint q = m >> shift, rest = m & ((1u << shift) - 1u), tie = 1u << (shift - 1u);
        return sign | (q + (rest > tie || (rest == tie && (q & 1u) != 0u) ? 1u : 0u));
    }
    return sign | (a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13;
}

/* fixed_from_f32() of scalar.c: x * 2^24 to the nearest integer, ties to even; saturated at
 * +-2^24, NaN to the upper limit. */
uvec2 to_fixed(float x) {
    if (is_nan(x) || x > 16777216.0) x = 16777216.0;
    if (x < -16777216.0) x = -16777216.0;
    float v = abs(mul_(x, 16777216.0));
    uvec2 r = uvec2(uint(roundEven(min(v, 8388608.0))), 0u);
    if (v >= 8388608.0) {
        uint u = floatBitsToUint(v), m = (u & 0x7fffffu) | 0x800000u;
        int shift = int(u >> 23) - 150; /* 0..25 */
        r = shift == 0 ? uvec2(m, 0u) : uvec2(m << shift, m >> (32 - shift));
    }
    return x < 0.0 ? neg64(r) : r;
}

/* (float)a * 2^-24: to nearest even. */
float from_fixed(uvec2 a) {
    bool negative = (a.y & SIGN) != 0u;
    if (negative) a = neg64(a);
    int top = a.y != 0u ? 32 + findMSB(a.y) : findMSB(a.x); /* -1: zero */
    float v = float(a.x);
    if (top >= 24) {
        int shift = top - 23;        /* 1..40 */
        uint m = a.y, rest = a.x; /* 24 bits; what is below them, its last bit for all the rest */
        if (shift < 32) {
            m = a.x >> shift | a.y << (32 - shift);
            rest = a.x << (32 - shift);
        } else if (shift > 32) {
            m = a.y >> (shift - 32);
            rest = a.y << (64 - shift) | a.x >> (shift - 32) |
                   ((a.x << (64 - shift)) != 0u ? 1u : 0u);
        }
        if (rest > SIGN || (rest == SIGN && (m & 1u) != 0u)) m++;
        v = mul_(float(m), uintBitsToFloat(uint(127 + shift) << 23));
    }
    v = mul_(v, 5.9604644775390625e-8);
    return negative ? -v : v;
}
