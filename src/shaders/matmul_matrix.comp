/* matmul_matrix.comp: what matmul_tiles.comp does, of coded weights, by matrix units. A subgroup has
 * squares of 16 rows and 16 tokens, of which each lane has some pairs. Integer sums of a block, or
 * of its halves where these have scales of their own, come from matrix units; scales and chains of
 * FMAs are each lane's, in the order of columns, as they are without. */
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "exact.glsl"

#define number int
/* uvec4 [block of the step][row or token][3]: two halves of a block, and one that is padding. With
 * scales of halves it lies between those of rows and is zero: from the first half on 32 columns are
 * that half and zeros, and from the zeros on they are zeros and the other half. */
#define CODES 384
#include "squares.glsl"
#include "matrix_unit.glsl"

const bool HALVED = SCALES == D_D || SCALES >= HALVES;
const uint STRIDE = 3u;
const uint ROW_HALF = HALVED ? 2u : 1u; /* from one half of a row's block to the other */
const uint FRAGMENTS = LANES / 16u;     /* squares of 16 of a subgroup: 16 of 256 / LANES subgroups */

uint cells[16];              /* of each of a lane's cells: row | token << 8 */
uint fragment_row, fragment_token; /* where the subgroup's first fragment is; the others: tokens */

/* Which cells are this lane's. False: not as many as was told. */
bool find_cells() {
    if (self < 64u) {
        uint first = self / 4u | self % 4u << 10;
        row_codes[self] = uvec4(first, first + 256u, first + 512u, first + 768u);
    }
    barrier();
    sums_matrix places = NO_SUMS;
    LOAD_SUMS(places, 0u, 4u);
    if (subgroup_lanes() != LANES || !has_all_cells(places)) return false;
    UNROLL for (uint i = 0u; i < CELLS; i++) cells[i] = uint(CELL(places, i));
    barrier();
    return true;
}

/* Each lane takes half a block of a row, and of a token; and the scales of one of them. */
void take_blocks(uint begin) {
    uint i = self % SIDE, which = self / SIDE, b = begin + which / 2u, h = which % 2u;
    if (b >= n_blocks) return;
    look_at_row(i);
    uint at = block_at(b) + CODES_AT, v = h * 4u, act = act_at(i, b, n_blocks);
    uint place = which / 2u * SIDE + i;
    row_codes[place * STRIDE + h * ROW_HALF] =
        uvec4(weights(at, v), weights(at, v + 1u), weights(at, v + 2u), weights(at, v + 3u));
    if (HALVED && h == 0u) row_codes[place * STRIDE + 1u] = uvec4(0u);
    token_codes[place * STRIDE + h] = Quads(p.values).at[2u * act + h];
    if (h == 0u) row_scales[place] = row_terms(b);
    else token_scales[place] = token_terms(act);
}

/* What sums of a block's halves add to a chain; if these have no scales of their own, `low` is the
 * sum of all of it. */
float with_sums(float acc, uvec4 row, uvec2 token, int low, int high) {
    if (SCALES == D_D) {
        float dx = uintBitsToFloat(token.x);
        acc = fma_(float(low), mul_(uintBitsToFloat(row.x), dx), acc);
        return fma_(float(high), mul_(uintBitsToFloat(row.y), dx), acc);
    }
    if (SCALES >= HALVES)
        low = bitfieldExtract(int(row.z), 0, 16) * low + (int(row.z) >> 16) * high;
    return with_block(acc, row, token, low);
}

void add_block(uint which) {
    uint row = (which * SIDE + fragment_row) * STRIDE;
    rows_matrix first, second;
    LOAD_ROWS(first, row, STRIDE);
    if (HALVED || K == 16u) LOAD_ROWS(second, row + (K == 16u ? ROW_HALF : 1u), STRIDE);
    UNROLL for (uint f = 0u; f < FRAGMENTS; f++) {
        uint token = which * SIDE + fragment_token + f * 16u;
        columns_matrix x;
        sums_matrix low = NO_SUMS, high = NO_SUMS;
        LOAD_COLUMNS(x, token * STRIDE, STRIDE);
        MULTIPLY_ADD(low, first, x);
        if (K == 16u) LOAD_COLUMNS(x, token * STRIDE + 1u, STRIDE);
        if (HALVED) MULTIPLY_ADD(high, second, x);
        else if (K == 16u) MULTIPLY_ADD(low, second, x);
        UNROLL for (uint i = 0u; i < CELLS; i++) {
            uint c = cells[i], to = f * CELLS + i;
            sum_of[to] = with_sums(sum_of[to],
                                   row_scales[which * SIDE + fragment_row + (c & 255u)],
                                   token_scales[token + (c >> 8)], CELL(low, i), CELL(high, i));
        }
    }
}

void product() {
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

void main() {
    self = gl_LocalInvocationID.x;
    first_row = gl_WorkGroupID.y * SIDE;
    if (!take_square(gl_WorkGroupID.x) || !find_cells()) return;
    fragment_row = subgroup() * FRAGMENTS / 4u * 16u;
    fragment_token = subgroup() * FRAGMENTS % 4u * 16u;
    UNROLL for (uint i = 0u; i < PAIRS; i++) {
        sum_of[i] = 0.0;
        fixed_sum_of[i] = uvec2(0u);
    }
    product();
    UNROLL for (uint i = 0u; i < PAIRS; i++) {
        uint c = cells[i % CELLS], n = fragment_token + i / CELLS * 16u + (c >> 8);
        uint row = first_row + fragment_row + (c & 255u);
        if (n < n_mine && row < p.n_tiles * 16u) write_pair(y_row(n), row, i);
    }
}
