/* matmul.comp: matmul() and matmul_fixed() of kernels.h, of every weight type, on the tiles
 * that the processor has too. A workgroup has a tile's 16 rows and TOKENS tokens of a group:
 * what is decoded of a weight serves them all. PARTS lanes share a row. The integer part of a
 * block is theirs in any order; the chain of FMAs over blocks is one lane's for each row and
 * token. Where chains are short (segments, pieces of floats), each lane walks chains of its
 * own. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
#ifdef DOT
#extension GL_EXT_spirv_intrinsics : require
/* Of Vulkan 1.3, by name unknown to this compiler: OpSDot of four int8 in a word. */
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int packed_dot(int a, int b, spirv_literal int format);
#endif

/* Of tile_formats in kernels/tiles.h. */
layout(constant_id = 2) const uint SCALES = 1; /* enum tile_scales */
layout(constant_id = 3) const uint LOW = 8;
layout(constant_id = 4) const uint HIGH = 0;
layout(constant_id = 5) const uint BIAS = 128;
layout(constant_id = 6) const uint BY_TABLE = 0;
layout(constant_id = 7) const uint TABLE0 = 0; /* 16 values of int8 */
layout(constant_id = 8) const uint TABLE1 = 0;
layout(constant_id = 9) const uint TABLE2 = 0;
layout(constant_id = 10) const uint TABLE3 = 0;
layout(constant_id = 11) const float D_FACTOR = 1.0;
layout(constant_id = 12) const uint FLOATS = 0; /* FLOATS_... */
layout(constant_id = 13) const uint FIXED = 0;
layout(constant_id = 14) const uint TOKENS = 1;

#define D 1u
#define D_M 2u
#define D_M_BF16 3u
#define E8M0 4u
#define D_D 5u
#define SCALE 6u
#define SCALE_MIN 7u
#define HALVES 8u
#define HALVES_MIN 9u

#define FLOATS_F32 1u
#define FLOATS_F16 2u
#define FLOATS_BF16 3u
#define FLOATS_F8 4u
#define PIECE 256u

layout(constant_id = 15) const uint PARTS = 16; /* lanes of a row; at least TOKENS */
layout(local_size_x = 16, local_size_y_id = 15) in;

layout(push_constant) uniform P {
    uvec2 tiles, values; /* values: q, or f of float types */
    uvec2 d, sums, s, y, rows; /* rows: of y, int64, which is added to; 0: row t is written */
    uint n_cols, col_phase, tile_bytes, n_tokens, ldy, seg_cols;
    float scale;
} p;

shared uvec4 box[TOKENS * PARTS * 16u];

const bool TWO = SCALES == D_M || SCALES == D_M_BF16 || SCALES == D_D || SCALES == SCALE_MIN ||
                 SCALES == HALVES_MIN;

uint lane, part;
Words tile;
uint gs, group, first_token; /* within the group */
uint n_mine;                 /* tokens */

/* Beyond the group's end there are no tokens: the last one's results are computed in their
 * place. */
uint token_in_group(uint t) { return first_token + min(t, n_mine - 1u); }

/* ---- codes ------------------------------------------------------------------------------- */

const uint CODES_AT = SCALES == E8M0 || SCALES == SCALE                         ? 16u
                      : SCALES == D || SCALES == SCALE_MIN || SCALES == HALVES ? 32u
                                                                                : 64u;
const uint BLOCK_BYTES = CODES_AT + (LOW + HIGH) * 64u;

uint super_of(uint b) { return (p.col_phase / 32u + b) / 8u; }

uint block_at(uint b) {
    return (SCALES >= SCALE ? (super_of(b) + 1u) * 64u : 0u) + b * BLOCK_BYTES;
}

uint super_at(uint b) {
    uint super = super_of(b), first = super > 0u ? super * 8u - p.col_phase / 32u : 0u;
    return block_at(first) - 64u;
}

uint byte_at(uint at) { return tile.at[at / 4u] >> 8u * (at & 3u) & 255u; }
uint half_at(uint at) { return tile.at[at / 4u] >> 8u * (at & 2u) & 0xffffu; }
int signed_byte_at(uint at) { return bitfieldExtract(int(byte_at(at)), 0, 8); }

/* The four codes of vector v of this lane's row, a byte each. */
uint codes(uint at, uint v) {
    uint base = at / 4u + lane, c;
    if (LOW == 8u) {
        c = tile.at[base + 16u * v];
    } else if (LOW == 4u) {
        c = tile.at[base + 16u * (v & 3u)] >> (v < 4u ? 0u : 4u) & 0x0f0f0f0fu;
    } else if (LOW == 6u) {
        base += v / 4u * 48u;
        if (v % 4u < 3u)
            c = tile.at[base + 16u * (v % 4u)] & 0x3f3f3f3fu;
        else
            c = (tile.at[base] >> 6 & 0x03030303u) | (tile.at[base + 16u] >> 6 & 0x03030303u) << 2 |
                (tile.at[base + 32u] >> 6 & 0x03030303u) << 4;
    } else {
        c = tile.at[base + 16u * (v / 4u)] >> 2u * (v & 3u) & 0x03030303u;
    }
    if (HIGH == 1u) c |= (tile.at[at / 4u + lane + 16u * LOW] >> v & 0x01010101u) << LOW;
    return c;
}

uint looked_up(uint code) {
    uint word = code < 8u ? (code < 4u ? TABLE0 : TABLE1) : (code < 12u ? TABLE2 : TABLE3);
    return word >> 8u * (code & 3u) & 255u;
}

/* The weights, as int8 in a word: code - BIAS without a borrow between bytes, or by the table. */
uint weights(uint at, uint v) {
    uint c = codes(at, v);
    if (BY_TABLE != 0u)
        return looked_up(c & 255u) | looked_up(c >> 8 & 255u) << 8 |
               looked_up(c >> 16 & 255u) << 16 | looked_up(c >> 24) << 24;
    return LOW == 8u ? c ^ 0x80808080u
                     : ((c | 0x80808080u) - BIAS * 0x01010101u) ^ 0x80808080u;
}

int dot4(uint a, uint b) {
#ifdef DOT
    return packed_dot(int(a), int(b), 0);
#else
    int x = int(a), y = int(b);
    return bitfieldExtract(x, 0, 8) * bitfieldExtract(y, 0, 8) +
           bitfieldExtract(x, 8, 8) * bitfieldExtract(y, 8, 8) +
           bitfieldExtract(x, 16, 8) * bitfieldExtract(y, 16, 8) + (x >> 24) * (y >> 24);
#endif
}

/* ---- blocks ------------------------------------------------------------------------------ */

/* What a block adds for a token: acc = fma(a0, b0, acc), and where TWO, fma(a1, b1, acc). */
struct terms {
    float a0, b0, a1, b1;
};

/* Of a block of this lane's row, what does not depend on the token. */
struct block {
    uint w[8];
    float d, m;        /* the block's, or its superblock's */
    int s0, s1;        /* scales and, */
    int min0, min1; /* where they are integers, mins */
};

block block_of(uint b) {
    block r;
    uint at = block_at(b);
    r.d = 0.0, r.m = 0.0, r.s0 = 0, r.s1 = 0, r.min0 = 0, r.min1 = 0;
    for (uint v = 0u; v < 8u; v++) r.w[v] = weights(at + CODES_AT, v);
    if (SCALES == E8M0) {
        r.d = uintBitsToFloat(max(byte_at(at + lane), 1u) - 1u << 23);
    } else if (SCALES == D_M_BF16) {
        r.d = from_bf16(half_at(at + 2u * lane));
        r.m = from_bf16(half_at(at + 32u + 2u * lane));
    } else if (SCALES < SCALE) {
        r.d = from_f16(half_at(at + 2u * lane));
        if (TWO) r.m = from_f16(half_at(at + 32u + 2u * lane));
    } else {
        uint super = super_at(b);
        r.d = mul_(from_f16(half_at(super + 2u * lane)), D_FACTOR);
        if (TWO) r.m = from_f16(half_at(super + 32u + 2u * lane));
        r.s0 = signed_byte_at(at + lane);
        if (SCALES == SCALE_MIN) r.min0 = int(byte_at(at + 16u + lane));
        if (SCALES >= HALVES) r.s1 = signed_byte_at(at + 16u + lane);
        if (SCALES == HALVES_MIN) {
            r.min0 = int(byte_at(at + 32u + lane));
            r.min1 = int(byte_at(at + 48u + lane));
        }
    }
    if ((SCALES == D_M || SCALES == D_M_BF16) && BIAS != 0u) r.m = fma_(float(BIAS), r.d, r.m);
    return r;
}

terms terms_of(const block r, uint act) {
    terms t = terms(0.0, 0.0, 0.0, 0.0);
    uvec4 q0 = Quads(p.values).at[2u * act], q1 = Quads(p.values).at[2u * act + 1u];
    int low = dot4(r.w[0], q0.x) + dot4(r.w[1], q0.y) + dot4(r.w[2], q0.z) + dot4(r.w[3], q0.w);
    int high = dot4(r.w[4], q1.x) + dot4(r.w[5], q1.y) + dot4(r.w[6], q1.z) + dot4(r.w[7], q1.w);
    float dx = Floats(p.d).at[act];
    t.a0 = float(low + high);
    t.b0 = mul_(r.d, dx);
    if (SCALES == D_D) {
        float both = mul_(dx, p.scale);
        t = terms(float(low), mul_(r.d, both), float(high), mul_(r.m, both));
    } else if (SCALES == D_M || SCALES == D_M_BF16) {
        t.a1 = r.m;
        t.b1 = Floats(p.s).at[act];
    } else if (SCALES == SCALE || SCALES == SCALE_MIN) {
        t.b0 = mul_(mul_(r.d, float(r.s0)), dx);
        t.a1 = -mul_(r.m, float(r.min0));
        if (SCALES == SCALE_MIN) t.b1 = Floats(p.s).at[act];
    } else if (SCALES >= HALVES) {
        t.a0 = float(r.s0 * low + r.s1 * high);
        if (SCALES == HALVES_MIN) {
            int sums = int(Words(p.sums).at[act]);
            t.a1 = -float(r.min0 * bitfieldExtract(sums, 0, 16) + r.min1 * (sums >> 16));
            t.b1 = mul_(r.m, dx);
        }
    }
    return t;
}

uint act_at(uint b, uint t) {
    return group * 12u * (p.n_cols / 32u) + b * gs + token_in_group(t);
}

float step(terms v, float acc) {
    acc = fma_(v.a0, v.b0, acc);
    if (TWO) acc = fma_(v.a1, v.b1, acc);
    return acc;
}

/* ---- floats ------------------------------------------------------------------------------ */

float weight(uint c) {
    if (FLOATS == FLOATS_F32) return uintBitsToFloat(tile.at[c * 16u + lane]);
    if (FLOATS == FLOATS_F16) return from_f16(half_at(c * 32u + 2u * lane));
    if (FLOATS == FLOATS_BF16) return from_bf16(half_at(c * 32u + 2u * lane));
    uint at = c / 32u * (64u + 512u);
    return mul_(from_e4m3(byte_at(at + 64u + c % 32u * 16u + lane)),
                uintBitsToFloat(tile.at[at / 4u + lane]));
}

/* ---- chains: columns [begin, end) in order ----------------------------------------------- */

void float_chain(uint begin, uint end, out float acc[TOKENS]) {
    for (uint t = 0u; t < TOKENS; t++) acc[t] = 0.0;
    Floats f = Floats(further(p.values, group * 12u * 4u, p.n_cols));
    for (uint c = begin; c < end; c++) {
        float w = weight(c);
        for (uint t = 0u; t < TOKENS; t++)
            acc[t] = fma_(w, f.at[c * gs + token_in_group(t)], acc[t]);
    }
}

void segment(uint begin, uint end, out float sum[TOKENS]) {
    for (uint t = 0u; t < TOKENS; t++) sum[t] = 0.0;
    if (FLOATS == 0u) {
        for (uint b = begin / 32u; b < end / 32u; b++) {
            block r = block_of(b);
            for (uint t = 0u; t < TOKENS; t++) sum[t] = step(terms_of(r, act_at(b, t)), sum[t]);
        }
        return;
    }
    for (uint c = begin; c < end; c += PIECE) {
        float acc[TOKENS];
        float_chain(c, min(c + PIECE, end), acc);
        for (uint t = 0u; t < TOKENS; t++) sum[t] = add_(sum[t], acc[t]);
    }
}

/* ---- what a workgroup does --------------------------------------------------------------- */

uint box_at(uint i, uint t) { return (t * PARTS + i) * 16u + lane; }

uvec2 y_row(uint t, uint size) {
    uint token = group * 12u + first_token + t;
    if (FIXED != 0u && p.rows != uvec2(0u)) token = Words(p.rows).at[token];
    return further(further(p.y, token * size, p.ldy), gl_WorkGroupID.x * 16u + lane, size);
}

/* A lane's segments, and then all lanes' sums: integers, so in any order. */
void fixed_product() {
    uvec2 sums[TOKENS];
    for (uint t = 0u; t < TOKENS; t++) sums[t] = uvec2(0u);
    for (uint c = part * p.seg_cols; c < p.n_cols; c += PARTS * p.seg_cols) {
        float sum[TOKENS];
        segment(c, c + p.seg_cols, sum);
        for (uint t = 0u; t < TOKENS; t++) sums[t] = add64(sums[t], to_fixed(sum[t]));
    }
    for (uint t = 0u; t < TOKENS; t++) box[box_at(part, t)].xy = sums[t];
    barrier();
    if (part >= n_mine) return;
    uvec2 all = uvec2(0u);
    for (uint i = 0u; i < PARTS; i++) all = add64(all, box[box_at(i, part)].xy);
    Pairs y = Pairs(y_row(part, 8u));
    y.at[0] = p.rows != uvec2(0u) ? add64(y.at[0], all) : all;
}

/* PARTS pieces side by side, then their sums in order. */
void float_product() {
    float sum = 0.0;
    for (uint begin = 0u; begin < p.n_cols; begin += PARTS * PIECE) {
        uint n = (min(p.n_cols - begin, PARTS * PIECE) + PIECE - 1u) / PIECE;
        uint c = begin + part * PIECE;
        float acc[TOKENS];
        float_chain(c, part < n ? min(c + PIECE, p.n_cols) : c, acc);
        for (uint t = 0u; t < TOKENS; t++) box[box_at(part, t)].x = floatBitsToUint(acc[t]);
        barrier();
        if (part < n_mine)
            for (uint i = 0u; i < n; i++) sum = add_(sum, uintBitsToFloat(box[box_at(i, part)].x));
        barrier();
    }
    if (part < n_mine) Floats(y_row(part, 4u)).at[0] = tidy_(sum);
}

/* PARTS blocks side by side, then their terms in order. */
void block_product() {
    float acc = 0.0;
    uint n_blocks = p.n_cols / 32u;
    for (uint begin = 0u; begin < n_blocks; begin += PARTS) {
        uint n = min(n_blocks - begin, PARTS);
        if (part < n) {
            block r = block_of(begin + part);
            for (uint t = 0u; t < TOKENS; t++) {
                terms v = terms_of(r, act_at(begin + part, t));
                box[box_at(part, t)] = floatBitsToUint(vec4(v.a0, v.b0, v.a1, v.b1));
            }
        }
        barrier();
        if (part < n_mine)
            for (uint i = 0u; i < n; i++) {
                vec4 v = uintBitsToFloat(box[box_at(i, part)]);
                acc = step(terms(v.x, v.y, v.z, v.w), acc);
            }
        barrier();
    }
    if (part < n_mine) Floats(y_row(part, 4u)).at[0] = tidy_(acc);
}

void main() {
    lane = gl_LocalInvocationID.x;
    part = gl_LocalInvocationID.y;
    tile = Words(further(p.tiles, gl_WorkGroupID.x, p.tile_bytes));
    const uint per_group = (12u + TOKENS - 1u) / TOKENS;
    group = gl_WorkGroupID.y / per_group;
    gs = min(p.n_tokens - group * 12u, 12u);
    first_token = gl_WorkGroupID.y % per_group * TOKENS;
    if (first_token >= gs) return; /* of all lanes alike */
    n_mine = min(gs - first_token, TOKENS);
    if (FIXED != 0u) fixed_product();
    else if (FLOATS != 0u) float_product();
    else block_product();
}
