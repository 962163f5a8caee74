/* matmul.comp: matmul() and matmul_fixed() of kernels.h, of every weight type, on the tiles
 * that the processor has too. A workgroup has a tile's 16 rows and TOKENS tokens of a group:
 * what is decoded of a weight serves them all. PARTS lanes share a row. The integer part of a
 * block is theirs in any order; the chain of FMAs over blocks is one lane's for each row and
 * token. Where chains are short (segments, pieces of floats), each lane walks chains of its
 * own. Choices that are grouped by expert are TOKENS of an expert after the others. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"

layout(constant_id = 13) const uint FIXED = 0;
layout(constant_id = 14) const uint TOKENS = 1;
layout(constant_id = 15) const uint PARTS = 16; /* lanes of a row; at least TOKENS */
layout(local_size_x = 16, local_size_y_id = 15) in;

layout(push_constant) uniform P {
    uvec2 tiles, values; /* values: q, or f of float types */
    uvec2 d, sums, s, y, rows; /* rows: of y, int64, which is added to; 0: row t is written; of
                                  choices: not 0: row t is added to */
    uint n_cols, col_phase, tile_bytes, n_tokens, ldy, seg_cols;
    float scale;
    uint n_used;           /* not 0: matrices are those of experts, of which a token has so many: */
    uvec2 choices, matrices; /* expert and weight of each choice; address and scale by expert */
    uint n_tiles, n_experts;
    uvec2 groups; /* not 0: choices grouped by expert, for several tokens at a time: groups.glsl */
    uint n_squares;
} p;

#include "matmul.glsl"
#include "groups.glsl"

shared uvec4 box[TOKENS * PARTS * 16u];

uint part;
uint first_token; /* or, of grouped choices, their first place */
uint n_mine;      /* tokens */
uint act_base[TOKENS], act_step[TOKENS]; /* where a token's blocks are, or columns of floats */
float scale;

bool is_grouped() { return TOKENS > 1u && p.groups != uvec2(0u); }

void take_token(uint t, uint token) {
    uint group = token / 12u;
    act_base[t] = group * 12u * (FLOATS != 0u ? p.n_cols : p.n_cols / 32u) + token % 12u;
    act_step[t] = min(p.n_tokens - group * 12u, 12u);
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

terms terms_of(const block r, uint act) {
    terms t = terms(0.0, 0.0, 0.0, 0.0);
    uvec4 q0 = Quads(p.values).at[2u * act], q1 = Quads(p.values).at[2u * act + 1u];
    int low = dot4(r.w[0], q0.x) + dot4(r.w[1], q0.y) + dot4(r.w[2], q0.z) + dot4(r.w[3], q0.w);
    int high = dot4(r.w[4], q1.x) + dot4(r.w[5], q1.y) + dot4(r.w[6], q1.z) + dot4(r.w[7], q1.w);
    float dx = Floats(p.d).at[act];
    t.a0 = float(low + high);
    t.b0 = mul_(r.d, dx);
    if (SCALES == D_D) {
        float both = mul_(dx, scale);
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

uint act_at(uint b, uint t) { return act_base[t] + b * act_step[t]; }

float step(terms v, float acc) {
    acc = fma_(v.a0, v.b0, acc);
    if (TWO) acc = fma_(v.a1, v.b1, acc);
    return acc;
}

/* ---- chains: columns [begin, end) in order ----------------------------------------------- */

void float_chain(uint begin, uint end, out float acc[TOKENS]) {
    for (uint t = 0u; t < TOKENS; t++) acc[t] = 0.0;
    Floats f = Floats(p.values);
    for (uint c = begin; c < end; c++) {
        float w = weight(c);
        for (uint t = 0u; t < TOKENS; t++)
            acc[t] = fma_(w, f.at[act_at(c, t)], acc[t]);
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

uint choice_at(uint place) {
    return Words(p.groups).at[rows_at(p.n_experts, p.n_squares, place)];
}

uvec2 y_row(uint t, uint size) {
    uint token = first_token + t;
    if (is_grouped()) token = choice_at(token) / (FIXED != 0u ? p.n_used : 1u);
    else if (p.n_used != 0u) token = gl_WorkGroupID.y;
    else if (FIXED != 0u && p.rows != uvec2(0u)) token = Words(p.rows).at[token];
    return further(further(p.y, token * size, p.ldy), gl_WorkGroupID.x * 16u + lane, size);
}

/* False: this rank does not hold the expert. */
bool take_expert(uint expert) {
    uvec4 matrix = Quads(p.matrices).at[expert];
    tile = Words(further(matrix.xy, gl_WorkGroupID.x, p.tile_bytes));
    scale = uintBitsToFloat(matrix.z);
    return matrix.xy != uvec2(0u);
}

/* The matrix of a choice, and the token of x that it reads. */
bool take_choice(uint i, uint token) {
    take_token(0u, token);
    return take_expert(Pairs(p.choices).at[i].x);
}

/* A lane's segments, and then all lanes' sums: integers, so in any order. A token's choices are
 * added up: each reads a token of x of its own. */
void fixed_product() {
    uvec2 sums[TOKENS];
    for (uint t = 0u; t < TOKENS; t++) sums[t] = uvec2(0u);
    const uint n_segments = p.n_cols / p.seg_cols, n_each = is_grouped() ? 1u : max(p.n_used, 1u);
    for (uint i = part; i < n_segments * n_each; i += PARTS) {
        uint c = i % n_segments * p.seg_cols, choice = gl_WorkGroupID.y * p.n_used + i / n_segments;
        float sum[TOKENS];
        if (p.n_used != 0u && !is_grouped() && !take_choice(choice, choice)) continue;
        segment(c, c + p.seg_cols, sum);
        for (uint t = 0u; t < TOKENS; t++) sums[t] = add64(sums[t], to_fixed(sum[t]));
    }
    for (uint t = 0u; t < TOKENS; t++) box[box_at(part, t)].xy = sums[t];
    barrier();
    if (part >= n_mine) return;
    uvec2 all = uvec2(0u);
    for (uint i = 0u; i < PARTS; i++) all = add64(all, box[box_at(i, part)].xy);
    uvec2 address = y_row(part, 8u);
    Pairs y = Pairs(address);
    if (is_grouped()) add_beside(address, all);
    else y.at[0] = p.rows != uvec2(0u) ? add64(y.at[0], all) : all;
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

/* What a workgroup computes of one matrix: choices of an expert that are not in squares, or some
 * tokens of a group, or a token. How many times TOKENS that is; 0: nothing, of all lanes alike. */
uint take_work() {
    const uint per_group = (12u + TOKENS - 1u) / TOKENS, y = gl_WorkGroupID.y;
    if (is_grouped()) {
        Words first = Words(p.groups);
        uint end = first.at[y + 1u], n = rest_of(end - first.at[y]);
        first_token = end - n;
        n_mine = n;
        return n != 0u && take_expert(y) ? (n + TOKENS - 1u) / TOKENS : 0u;
    }
    n_mine = 1u;
    if (p.n_used != 0u) return FIXED != 0u || take_choice(y, y / p.n_used) ? 1u : 0u;
    first_token = y / per_group * 12u + y % per_group * TOKENS;
    uint end = min(p.n_tokens, y / per_group * 12u + 12u);
    n_mine = end - min(first_token, end);
    return n_mine != 0u ? 1u : 0u;
}

/* The i-th TOKENS of these. Beyond the last there are no tokens: its results are computed in their
 * place. */
void take_tokens(uint i, uint first, uint n) {
    first_token = first + i * TOKENS;
    n_mine = min(n - i * TOKENS, TOKENS);
    for (uint t = 0u; t < TOKENS; t++) {
        uint token = first_token + min(t, n_mine - 1u);
        if (is_grouped()) token = choice_at(token) / (FIXED != 0u ? 1u : p.n_used);
        take_token(t, token);
    }
}

void main() {
    lane = gl_LocalInvocationID.x;
    part = gl_LocalInvocationID.y;
    tile = Words(further(p.tiles, gl_WorkGroupID.x, p.tile_bytes));
    scale = p.scale;
    const uint n_times = take_work(), first = first_token, n = n_mine;
    for (uint i = 0u; i < n_times; i++) {
        if (is_grouped() || p.n_used == 0u) take_tokens(i, first, n);
        if (FIXED != 0u) fixed_product();
        else if (FLOATS != 0u) float_product();
        else block_product();
        if (FIXED != 0u) barrier(); /* before the next ones are put into the box */
    }
}
