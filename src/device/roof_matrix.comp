/* roof_matrix.comp: multiply-adds of matrix units: four chains in each subgroup, of int8. */
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 256) in;

layout(buffer_reference, std430, buffer_reference_align = 16) buffer Words {
    int at[];
};

layout(push_constant) uniform Push {
    Words to;
    uint n;   // rounds
    int word; // unknown to the compiler
};

shared uvec4 row_codes[64], token_codes[64];
#include "matrix_unit.glsl"

void main() {
    uint self = gl_LocalInvocationID.x;
    if (self < 64u) row_codes[self] = token_codes[self] = uvec4(uint(word) + self);
    barrier();
    rows_matrix rows, more_rows;
    columns_matrix columns, more_columns;
    sums_matrix a = NO_SUMS, b = NO_SUMS, c = NO_SUMS, d = NO_SUMS;
    LOAD_ROWS(rows, 0u, 2u);
    LOAD_ROWS(more_rows, 1u, 2u);
    LOAD_COLUMNS(columns, 2u, 2u);
    LOAD_COLUMNS(more_columns, 3u, 2u);
    for (uint round = 0u; round < n; round++) {
        MULTIPLY_ADD(a, rows, columns);
        MULTIPLY_ADD(b, rows, more_columns);
        MULTIPLY_ADD(c, more_rows, columns);
        MULTIPLY_ADD(d, more_rows, more_columns);
    }
    int all = 0;
    UNROLL for (uint i = 0u; i < CELLS; i++)
        all |= CELL(a, i) | CELL(b, i) | CELL(c, i) | CELL(d, i);
    if (all == 0x12345678) to.at[0] = all;
}
