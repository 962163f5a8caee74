/* matmul_tiles.comp: matmul() and matmul_fixed() of kernels.h for many tokens. A workgroup has a
 * square of 64 rows, of four of the processor's tiles, and 64 tokens. What a step along the
 * columns needs of both is decoded once, into shared memory. A lane has 4 rows of 4 tokens: their
 * chains of FMAs are its alone, in the order of columns. Within a block the sums of products are
 * exact in any order, in integers as in f32, since they stay below 2^24. */
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "exact.glsl"

layout(constant_id = 13) const uint FIXED = 0;
layout(constant_id = 14) const uint EACH = 4; /* rows, tokens of a lane: always 4, which drivers
                                                 unroll and glslc need not */
layout(local_size_x = 256) in;

layout(push_constant) uniform P { /* matmul.comp's */
    uvec2 tiles, values;
    uvec2 d, sums, s, y, rows;
    uint n_cols, col_phase, tile_bytes, n_tokens, ldy, seg_cols;
    float scale;
    uint n_used;
    uvec2 choices, matrices;
    uint n_tiles, n_experts;
    uvec2 groups; /* not 0: choices grouped by expert, a square for each workgroup: groups.glsl */
    uint n_squares;
} p;

#include "matmul.glsl"
#include "groups.glsl"

const uint PAIRS = EACH * EACH;
const uint SIDE = 16u * EACH;           /* rows, tokens of a workgroup */
const uint STEP = 128u / SIDE;          /* blocks */
const uint STEP_COLUMNS = 1024u / SIDE; /* of floats */

/* A step's weights and activations. Coded: uvec4 [half a block][row or token]. Floats:
 * vec4 [column][four rows or tokens]. */
shared uvec4 row_codes[256], token_codes[256];
shared uvec4 row_scales[128];   /* row_terms() */
shared uvec2 token_scales[128]; /* token_terms() */

shared uint token_of[SIDE_TOKENS]; /* of x */

uint self, across, down; /* this lane; its place along the tokens and along the rows */
uint first_row, n_blocks;
uint first_token, n_mine; /* or, of grouped choices, their first place; tokens that are written */
uvec2 tiles;
float scale;

float sum_of[PAIRS];    /* a chain; of pieces of floats the sum of those that have ended */
uvec2 fixed_sum_of[PAIRS];

void look_at_row(uint row) {
    uint i = (first_row + row) / 16u;
    tile = Words(further(tiles, min(i, p.n_tiles - 1u), p.tile_bytes));
    lane = row % 16u;
}

bool is_grouped() { return p.groups != uvec2(0u); }

uint choice_at(uint place) {
    return Words(p.groups).at[rows_at(p.n_experts, p.n_squares, place)];
}

/* False: there is no such square, of all lanes alike. Beyond the last token its own values are
 * taken, and what comes of them is not written. */
bool take_square(uint which) {
    first_token = which * SIDE;
    n_mine = min(p.n_tokens - min(first_token, p.n_tokens), SIDE);
    tiles = p.tiles;
    scale = p.scale;
    if (is_grouped()) {
        Words words = Words(p.groups);
        uint at = squares_at(p.n_experts, which), expert = words.at[at];
        if (expert == NO_EXPERT) return false;
        uvec4 matrix = Quads(p.matrices).at[expert];
        first_token = words.at[at + 1u];
        n_mine = min(words.at[expert + 1u] - first_token, SIDE);
        tiles = matrix.xy;
        scale = uintBitsToFloat(matrix.z);
    }
    if (n_mine == 0u || tiles == uvec2(0u)) return false;
    if (self < SIDE) {
        uint token = first_token + min(self, n_mine - 1u);
        if (is_grouped()) token = choice_at(token) / (FIXED != 0u ? 1u : p.n_used);
        token_of[self] = token;
    }
    barrier();
    return true;
}

uint act_at(uint token, uint b, uint n) {
    token = token_of[token];
    uint group = token / 12u;
    return group * 12u * n + b * min(p.n_tokens - group * 12u, 12u) + token % 12u;
}

/* The end of a segment, or of all columns. */
void end_chain() {
    if (FIXED == 0u) return;
    [[unroll]] for (uint i = 0u; i < PAIRS; i++) {
        fixed_sum_of[i] = add64(fixed_sum_of[i], to_fixed(sum_of[i]));
        sum_of[i] = 0.0;
    }
}

/* ---- coded ------------------------------------------------------------------------------- */

#ifdef DOT
#define number int
int dot16(uvec4 w, uvec4 x) {
    ivec4 a = ivec4(w), b = ivec4(x);
    return packed_dot(a.x, b.x, 0) + packed_dot(a.y, b.y, 0) + packed_dot(a.z, b.z, 0) +
           packed_dot(a.w, b.w, 0);
}
#else
#define number float
vec4 unpacked(uint four) {
    int a = int(four);
    return vec4(bitfieldExtract(a, 0, 8), bitfieldExtract(a, 8, 8), bitfieldExtract(a, 16, 8),
                a >> 24);
}
float dot16(uvec4 w, uvec4 x) {
    return dot(unpacked(w.x), unpacked(x.x)) + dot(unpacked(w.y), unpacked(x.y)) +
           dot(unpacked(w.z), unpacked(x.z)) + dot(unpacked(w.w), unpacked(x.w));
}
#endif

/* Of a row's block: d and m, or a product of each that is the same for all tokens; the scales and
 * the mins of halves. */
uvec4 row_terms(uint b) {
    block r = scales_of(b);
    if (SCALES == SCALE || SCALES == SCALE_MIN) {
        r.d = mul_(r.d, float(r.s0));
        r.m = -mul_(r.m, float(r.min0));
    }
    return uvec4(floatBitsToUint(r.d), floatBitsToUint(r.m),
                 uint(r.s0 & 0xffff) | uint(r.s1) << 16, uint(r.min0) | uint(r.min1) << 16);
}

uvec2 token_terms(uint act) {
    float dx = Floats(p.d).at[act];
    if (SCALES == D_D) dx = mul_(dx, scale);
    uint more = 0u;
    if (SCALES == HALVES_MIN) more = Words(p.sums).at[act];
    else if (TWO && SCALES != D_D) more = floatBitsToUint(Floats(p.s).at[act]);
    return uvec2(floatBitsToUint(dx), more);
}

/* Each lane takes half a block of a row, and of a token; and the scales of one of them. */
void take_blocks(uint begin) {
    uint i = self % SIDE, which = self / SIDE, b = begin + which / 2u, h = which % 2u;
    if (b >= n_blocks) return;
    look_at_row(i);
    uint at = block_at(b) + CODES_AT, v = h * 4u, act = act_at(i, b, n_blocks);
    row_codes[self] = uvec4(weights(at, v), weights(at, v + 1u), weights(at, v + 2u),
                            weights(at, v + 3u));
    token_codes[self] = Quads(p.values).at[2u * act + h];
    if (h == 0u) row_scales[which / 2u * SIDE + i] = row_terms(b);
    else token_scales[which / 2u * SIDE + i] = token_terms(act);
}

/* Adds the products of half a block to those of all pairs. */
void add_products(uint which, inout number to[PAIRS]) {
    uvec4 w[EACH];
    [[unroll]] for (uint r = 0u; r < EACH; r++) w[r] = row_codes[which * SIDE + r * 16u + down];
    [[unroll]] for (uint t = 0u; t < EACH; t++) {
        uvec4 x = token_codes[which * SIDE + t * 16u + across];
        [[unroll]] for (uint i = t; i < PAIRS; i += EACH)
            to[i] += dot16(w[i / EACH], x);
    }
}

/* What half h of a block adds to `whole`, or to the pairs' chains. */
void add_scaled_half(uint which, uint h, const uvec4 rows[EACH], const uvec2 tokens[EACH],
                     inout number whole[PAIRS]) {
    number part[PAIRS];
    [[unroll]] for (uint i = 0u; i < PAIRS; i++) part[i] = number(0);
    add_products(which * 2u + h, part);
    [[unroll]] for (uint i = 0u; i < PAIRS; i++) {
        uvec4 row = rows[i / EACH];
        if (SCALES == D_D) {
            float d = uintBitsToFloat(h == 0u ? row.x : row.y);
            float dx = uintBitsToFloat(tokens[i % EACH].x);
            sum_of[i] = fma_(float(part[i]), mul_(d, dx), sum_of[i]);
        } else {
            whole[i] += number(bitfieldExtract(int(row.z), int(16u * h), 16)) * part[i];
        }
    }
}

/* As matmul.comp's step(). */
float with_block(float acc, uvec4 row, uvec2 token, number whole) {
    float d = uintBitsToFloat(row.x), m = uintBitsToFloat(row.y), dx = uintBitsToFloat(token.x);
    acc = fma_(float(whole), mul_(d, dx), acc);
    if (SCALES == HALVES_MIN) {
        int sums = int(token.y), low = bitfieldExtract(sums, 0, 16), high = sums >> 16;
        int mins = int(row.w & 0xffffu) * low + int(row.w >> 16) * high;
        acc = fma_(-float(mins), mul_(m, dx), acc);
    } else if (TWO) {
        acc = fma_(m, uintBitsToFloat(token.y), acc);
    }
    return acc;
}

void add_block(uint which) {
    uvec4 rows[EACH];
    uvec2 tokens[EACH];
    number whole[PAIRS];
    [[unroll]] for (uint i = 0u; i < EACH; i++) {
        rows[i] = row_scales[which * SIDE + i * 16u + down];
        tokens[i] = token_scales[which * SIDE + i * 16u + across];
    }
    [[unroll]] for (uint i = 0u; i < PAIRS; i++) whole[i] = number(0);
    [[dont_unroll]] for (uint h = 0u; h < 2u; h++) {
        if (SCALES == D_D || SCALES >= HALVES) add_scaled_half(which, h, rows, tokens, whole);
        else add_products(which * 2u + h, whole);
    }
    if (SCALES == D_D) return;
    [[unroll]] for (uint i = 0u; i < PAIRS; i++)
        sum_of[i] = with_block(sum_of[i], rows[i / EACH], tokens[i % EACH], whole[i]);
}

void coded_product() {
    n_blocks = p.n_cols / 32u;
    for (uint begin = 0u; begin < n_blocks; begin += STEP) {
        take_blocks(begin);
        barrier();
        uint n = min(n_blocks - begin, STEP);
        [[dont_unroll]] for (uint i = 0u; i < n; i++) {
            add_block(i);
            if (FIXED != 0u && (begin + i + 1u) * 32u % p.seg_cols == 0u) end_chain();
        }
        barrier();
    }
}

/* ---- floats ------------------------------------------------------------------------------ */

/* Each lane takes four rows and four tokens of a column. Beyond the end there are zeros, which
 * change no sum. */
void take_columns(uint begin, uint end) {
    uint c = begin + self / 16u, i = self % 16u * 4u;
    vec4 w = vec4(0.0), x = vec4(0.0);
    if (c < end) {
        for (uint k = 0u; k < 4u; k++) {
            look_at_row(i + k);
            w[k] = weight(c);
            x[k] = Floats(p.values).at[act_at(i + k, c, p.n_cols)];
        }
    }
    row_codes[self] = floatBitsToUint(w);
    token_codes[self] = floatBitsToUint(x);
}

/* A piece of at most 256 columns: a chain from 0, which is added to the sum. */
void add_piece(uint begin, uint end) {
    float acc[PAIRS];
    [[unroll]] for (uint i = 0u; i < PAIRS; i++) acc[i] = 0.0;
    for (uint c = begin; c < end; c += STEP_COLUMNS) {
        take_columns(c, end);
        barrier();
        [[dont_unroll]] for (uint k = 0u; k < STEP_COLUMNS; k++) {
            vec4 w = uintBitsToFloat(row_codes[k * 16u + down]);
            vec4 x = uintBitsToFloat(token_codes[k * 16u + across]);
            [[unroll]] for (uint i = 0u; i < PAIRS; i++)
                acc[i] = fma_(w[i / EACH], x[i % EACH], acc[i]);
        }
        barrier();
    }
    [[unroll]] for (uint i = 0u; i < PAIRS; i++) sum_of[i] = add_(sum_of[i], acc[i]);
}

void float_product() {
    uint seg_cols = FIXED != 0u ? p.seg_cols : p.n_cols;
    for (uint begin = 0u; begin < p.n_cols; begin += seg_cols) {
        uint end = begin + seg_cols;
        for (uint c = begin; c < end; c += PIECE) add_piece(c, min(c + PIECE, end));
        end_chain();
    }
}

/* ---- what a workgroup does --------------------------------------------------------------- */

/* Which of a workgroup's rows and tokens a lane has: of floats those close together. */
uint place(uint i, uint first) { return FLOATS != 0u ? first * EACH + i : i * 16u + first; }

/* Where the row of y of the n-th token is. */
uvec2 y_row(uint n) {
    uint row = first_token + n, size = FIXED != 0u ? 8u : 4u;
    if (is_grouped()) row = choice_at(row) / (FIXED != 0u ? p.n_used : 1u);
    else if (FIXED != 0u && p.rows != uvec2(0u)) row = Words(p.rows).at[row];
    return further(p.y, row * size, p.ldy);
}

void write_token(uint t) {
    uint n = place(t, across);
    if (n >= n_mine) return;
    uvec2 y = y_row(n);
    [[unroll]] for (uint r = 0u; r < EACH; r++) {
        uint row = first_row + place(r, down), i = r * EACH + t;
        if (row >= p.n_tiles * 16u) continue;
        if (FIXED == 0u) Floats(y).at[row] = tidy_(sum_of[i]);
        else if (is_grouped()) add_beside(further(y, row, 8u), fixed_sum_of[i]);
        else if (p.rows != uvec2(0u)) Pairs(y).at[row] = add64(Pairs(y).at[row], fixed_sum_of[i]);
        else Pairs(y).at[row] = fixed_sum_of[i];
    }
}

void main() {
    self = gl_LocalInvocationID.x;
    across = self % 16u;
    down = self / 16u;
    first_row = gl_WorkGroupID.y * SIDE;
    if (!take_square(gl_WorkGroupID.x)) return;
    [[unroll]] for (uint i = 0u; i < PAIRS; i++) {
        sum_of[i] = 0.0;
        fixed_sum_of[i] = uvec2(0u);
    }
    if (FLOATS != 0u) float_product();
    else coded_product();
    [[unroll]] for (uint t = 0u; t < EACH; t++) write_token(t);
}
