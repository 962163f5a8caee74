/* squares.glsl: what matmul_tiles.comp and matmul_matrix.comp share: products of many tokens, by
 * workgroups of 256 lanes. A workgroup has a square of 64 rows, of four of the processor's tiles,
 * and 64 tokens; a lane has 16 pairs of a row and a token, whose chains are its alone.
 * Defined before it is included: `number`, the type of sums of products, and CODES, how long
 * row_codes and token_codes are. */
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

/* A step's weights and activations, as the includer lays them out. */
shared uvec4 row_codes[CODES], token_codes[CODES];
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

/* Where the row of y of the n-th token is. */
uvec2 y_row(uint n) {
    uint row = first_token + n, size = FIXED != 0u ? 8u : 4u;
    if (is_grouped()) row = choice_at(row) / (FIXED != 0u ? p.n_used : 1u);
    else if (FIXED != 0u && p.rows != uvec2(0u)) row = Words(p.rows).at[row];
    return further(p.y, row * size, p.ldy);
}

/* Pair i's, to this row of the matrix, in its token's row of y. */
void write_pair(uvec2 y, uint row, uint i) {
    if (FIXED == 0u) Floats(y).at[row] = tidy_(sum_of[i]);
    else if (is_grouped()) add_beside(further(y, row, 8u), fixed_sum_of[i]);
    else if (p.rows != uvec2(0u)) Pairs(y).at[row] = add64(Pairs(y).at[row], fixed_sum_of[i]);
    else Pairs(y).at[row] = fixed_sum_of[i];
}
