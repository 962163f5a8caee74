/* exact64.glsl: exact_softplus() of base/exact.h, which computes in f64, with the same bits on every
 * device: an f64 here is integers, each operation rounded once to nearest even. Few numbers go
 * through this, the gates of a recurrent layer.
 *
 * No infinity, NaN or subnormal comes up between f64s: what is given to them is -80..20. */
struct f64 { /* m * 2^e, 2^52 <= m < 2^53; or zero: m = 0 */
    bool negative;
    int e;
    uvec2 m;
};

const f64 ZERO64 = f64(false, 0, uvec2(0u));
const f64 ONE64 = f64(false, -52, uvec2(0u, 0x100000u));

bool is_zero64(f64 a) { return (a.m.x | a.m.y) == 0u; }

bool less64(uvec2 a, uvec2 b) { return a.y < b.y || (a.y == b.y && a.x < b.x); }

f64 minus64(f64 a) { return f64(!a.negative, a.e, a.m); }

/* ---- integers of 128 bits, the lowest word first ------------------------------------------ */

uvec4 shift_left(uvec4 a, int n) {
    if (n >= 64) a = uvec4(0u, 0u, a.xy);
    if ((n & 32) != 0) a = uvec4(0u, a.xyz);
    int s = n & 31;
    return s == 0 ? a : a << s | uvec4(0u, a.xyz) >> (32 - s);
}

/* The lowest bit stands for all that are shifted out. */
uvec4 shift_right(uvec4 a, int n) {
    if (n > 127) return uvec4((a.x | a.y | a.z | a.w) != 0u ? 1u : 0u, 0u, 0u, 0u);
    bool lost = false;
    if (n >= 64) {
        lost = (a.x | a.y) != 0u;
        a = uvec4(a.zw, 0u, 0u);
    }
    if ((n & 32) != 0) {
        lost = lost || a.x != 0u;
        a = uvec4(a.yzw, 0u);
    }
    int s = n & 31;
    if (s != 0) {
        lost = lost || a.x << (32 - s) != 0u;
        a = a >> s | uvec4(a.yzw, 0u) << (32 - s);
    }
    a.x |= lost ? 1u : 0u;
    return a;
}

uvec4 add128(uvec4 a, uvec4 b) {
    uvec4 carry, r = uaddCarry(a, b, carry); /* word by word; then the carries, upwards */
    uint more;
    r.y = uaddCarry(r.y, carry.x, more);
    r.z = uaddCarry(r.z, carry.y | more, more);
    return uvec4(r.xyz, r.w + (carry.z | more));
}

uvec4 neg128(uvec4 a) { return add128(~a, uvec4(1u, 0u, 0u, 0u)); }

uvec4 product128(uvec2 a, uvec2 b) {
    uint h0, l0, h1, l1, h2, l2, h3, l3;
    umulExtended(a.x, b.x, h0, l0);
    umulExtended(a.x, b.y, h1, l1);
    umulExtended(a.y, b.x, h2, l2);
    umulExtended(a.y, b.y, h3, l3);
    return add128(add128(uvec4(l0, h0, l3, h3), uvec4(0u, l1, h1, 0u)), uvec4(0u, l2, h2, 0u));
}

int top_bit(uvec4 a) {
    return a.w != 0u ? 96 + findMSB(a.w)
                     : a.z != 0u ? 64 + findMSB(a.z) : a.y != 0u ? 32 + findMSB(a.y) : findMSB(a.x);
}

/* ---- operations -------------------------------------------------------------------------- */

/* a * 2^e to the nearest f64; what is below a is in its lowest bit. */
f64 round64(bool negative, int e, uvec4 a) {
    int top = top_bit(a);
    if (top < 0) return ZERO64;
    if (top <= 52) return f64(negative, e - (52 - top), shift_left(a, 52 - top).xy);
    uvec4 b = shift_right(a, top - 54); /* two bits more, unless there is only one */
    if (top == 53) b = shift_left(a, 1);
    uint rest = b.x & 3u;
    uvec2 m = uvec2(b.x >> 2 | b.y << 30, b.y >> 2);
    if (rest == 3u || (rest == 2u && (m.x & 1u) != 0u)) m = add64(m, uvec2(1u, 0u));
    e += top - 52;
    return m.y >= 0x200000u ? f64(negative, e + 1, uvec2(0u, 0x100000u)) : f64(negative, e, m);
}

f64 fma64(f64 a, f64 b, f64 c) {
    if (is_zero64(a) || is_zero64(b)) return c;
    uvec4 p = product128(a.m, b.m), q = uvec4(c.m, 0u, 0u);
    bool negative = a.negative != b.negative;
    int e = a.e + b.e, apart = is_zero64(c) ? 0 : c.e - e;
    if (apart > 74) { /* so that 128 bits hold both */
        p = shift_right(p, apart - 74);
        e += apart - 74;
        apart = 74;
    }
    q = apart >= 0 ? shift_left(q, apart) : shift_right(q, -apart);
    if (negative == c.negative || is_zero64(c)) return round64(negative, e, add128(p, q));
    p = add128(p, neg128(q));
    bool other = (p.w & SIGN) != 0u;
    return round64(negative != other, e, other ? neg128(p) : p);
}

f64 div64(f64 a, f64 b) {
    if (is_zero64(a)) return ZERO64;
    uvec2 rest = a.m, q = uvec2(0u);
    for (int i = 0; i < 56; i++) { /* a bit after the other */
        q = uvec2(q.x << 1, q.y << 1 | q.x >> 31);
        if (!less64(rest, b.m)) {
            rest = add64(rest, neg64(b.m));
            q.x |= 1u;
        }
        rest = uvec2(rest.x << 1, rest.y << 1 | rest.x >> 31);
    }
    if ((rest.x | rest.y) != 0u) q.x |= 1u;
    return round64(a.negative != b.negative, a.e - b.e - 55, uvec4(q, 0u, 0u));
}

f64 times_power64(f64 a, int n) { return f64(a.negative, a.e + n, a.m); }

/* |n| < 2^21 */
f64 of_int64(int n) {
    int top = findMSB(abs(n));
    return n == 0 ? ZERO64 : f64(n < 0, top - 52, uvec2(0u, uint(abs(n)) << (20 - top)));
}

f64 of_float64(float x) {
    uint u = floatBitsToUint(x), e = u >> 23 & 255u;
    if (e == 0u) return ZERO64; /* x is tidied */
    return f64((u & SIGN) != 0u, int(e) - 179, uvec2(u << 29, (u & 0x7fffffu | 0x800000u) >> 3));
}

/* Of a normal f32's range. */
float to_float(f64 a) {
    if (is_zero64(a)) return 0.0;
    uint m = a.m.x >> 29 | a.m.y << 3, rest = a.m.x << 3; /* 24 bits, and what is below them */
    uint u = uint(a.e + 178) << 23;
    u += m; /* whose highest bit counts the exponent up */
    if (rest > SIGN || (rest == SIGN && (m & 1u) != 0u)) u++;
    return uintBitsToFloat(u | (a.negative ? SIGN : 0u));
}

/* ---- softplus ---------------------------------------------------------------------------- */

#define LOG2E64 f64(false, -52, uvec2(0x652b82feu, 0x171547u))
#define LN2_HI64 f64(false, -53, uvec2(0xfee00000u, 0x162e42u))
#define LN2_LO64 f64(false, -85, uvec2(0x35793c76u, 0x1a39efu))
#define MANY64 f64(false, 0, uvec2(0u, 0x180000u)) /* 1.5 * 2^52: a sum with it is a whole number */
#define SQRT_HALF uvec2(0x667f3bcdu, 0x16a09eu)

/* ln(1 + e^x), or where e^x is small its series: exp64() and log64() of exact.h as one list of FMAs,
 * step by step. Drivers put each call into the code anew, so there is one call of each. */
f64 softplus64(f64 x, bool small) {
    f64 v = x, whole = ZERO64, part = ONE64, e = ZERO64, s = ZERO64, s2 = ZERO64;
    int n = 0;
    for (int step = 0; step < 36; step++) {
        bool exps = step >= 4 && step < 17, logs = step >= 21 && step < 33; /* series */
        f64 a = v, b = ONE64, c = ZERO64, q = ZERO64;
        if (exps || logs || step == 20) /* r / 13 ... r / 1; 1 / 23 ... 1 / 1; (m - 1) / (m + 1) */
            q = div64(logs ? ONE64 : part,
                      exps ? of_int64(17 - step) : logs ? of_int64(65 - 2 * step) : v);
        if (step == 0) { /* x * log2(e), then the nearest whole number */
            b = LOG2E64;
        } else if (step == 1) {
            c = MANY64;
        } else if (step < 4 || step > 33) { /* less, or more, whole * ln(2) */
            a = whole;
            b = step == 2 || step == 35 ? LN2_HI64 : LN2_LO64;
            c = step == 2 ? x : v;
        } else if (exps) {
            b = q;
            c = ONE64;
        } else if (logs) {
            b = s2;
            c = q;
        } else if (step == 17) { /* 1 + e, or 1 - e / 2 */
            a = small ? times_power64(minus64(v), -1) : v;
            c = ONE64;
        } else if (step == 18 && small) {
            a = e;
            b = v;
        } else if (step == 18 || step == 19) { /* m - 1, m + 1 */
            c = step == 18 ? minus64(ONE64) : ONE64;
        } else if (step == 20) {
            s = q;
            a = b = s;
        } else { /* 2 s * the series */
            a = times_power64(s, 1);
            b = v;
        }
        v = fma64(a, b, c);
        if (step == 1) {
            n = int(v.m.x);
            whole = of_int64(-n);
        } else if (step == 3) {
            part = v;
            v = ONE64;
        } else if (step == 16) {
            e = v = times_power64(v, n);
        } else if (step == 17 && !small) { /* m from the root of 1/2 on */
            bool low = less64(v.m, SQRT_HALF);
            whole = of_int64(v.e + (low ? 52 : 53));
            part = v = f64(false, low ? -52 : -53, v.m);
        } else if (step == 18) {
            if (small) return v;
            s = part;
            part = v;
            v = s;
        } else if (step == 20) {
            s2 = v;
            v = ZERO64;
        }
    }
    return v;
}

float softplus_(float x) {
    if (is_nan(x) || x > 20.0) return x;
    if (x < -80.0) return 0.0;
    return to_float(softplus64(of_float64(x), x < -12.0));
}
