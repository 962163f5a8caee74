/* matmul_tiles.comp: matmul() and matmul_fixed() of kernels.h for many tokens. A workgroup has a
 * square of 64 rows, of four of the processor's tiles, and 64 tokens. What a step along the
 * columns needs of both is decoded once, into shared memory. A lane has 4 rows of 4 tokens: their
 * chains of FMAs are its alone, in the order of columns. Within a block the sums of products are
 * exact in any order, in integers as in f32, since they stay below 2^24. */
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "exact.glsl"

#ifdef DOT
#define number int
#else
#define number float
#endif
#define CODES 256 /* coded: uvec4 [half a block][row or token]; floats: vec4 [column][4 of them] */
#include "squares.glsl"

/* ---- coded ------------------------------------------------------------------------------- */

#ifdef DOT
int dot16(uvec4 w, uvec4 x) {
    ivec4 a = ivec4(w), b = ivec4(x);
    return packed_dot(a.x, b.x, 0) + packed_dot(a.y, b.y, 0) + packed_dot(a.z, b.z, 0) +
           packed_dot(a.w, b.w, 0);
}
#else
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

void write_token(uint t) {
    uint n = place(t, across);
    if (n >= n_mine) return;
    uvec2 y = y_row(n);
    [[unroll]] for (uint r = 0u; r < EACH; r++) {
        uint row = first_row + place(r, down), i = r * EACH + t;
        if (row >= p.n_tiles * 16u) continue;
        write_pair(y, row, i);
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
