/* matrix_unit.glsl: matrix units: products of int8 that the lanes of a subgroup compute together,
 * as int32, which are exact in any order. Compiled for GL_KHR_cooperative_matrix (KHR), for
 * GL_NV_cooperative_matrix (NV), or for neither (EMULATED): what tests run where no device has
 * matrix units, LANES lanes beside each other for a subgroup.
 *
 *   rows_matrix     16 rows of K int8, of row_codes
 *   columns_matrix  16 columns of K int8, of token_codes
 *   sums_matrix     int32 [16 rows][16 columns]: CELLS of them are a lane's, and which these are
 *                   is the driver's matter: what was loaded into one tells
 *
 * LOAD_...(matrix, at, stride): its first row or column is at [at] of the uvec4 in shared memory,
 * the next one `stride` further on. What was loaded stays as long as shared memory does. All lanes
 * of a subgroup do the same. */
#if defined(KHR) || defined(NV)
#pragma use_vulkan_memory_model
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#endif
#ifdef KHR
#extension GL_KHR_cooperative_matrix : require
#endif
#ifdef NV
#extension GL_NV_cooperative_matrix : require
#extension GL_NV_integer_cooperative_matrix : require
#endif

layout(constant_id = 16) const uint K = 32;     /* or 16 */
layout(constant_id = 17) const uint LANES = 32; /* of a subgroup: 16, 32 or 64 */
const uint CELLS = 256u / LANES;

#if defined(KHR)
#define rows_matrix coopmat<int8_t, gl_ScopeSubgroup, 16, K, gl_MatrixUseA>
#define columns_matrix coopmat<int8_t, gl_ScopeSubgroup, K, 16, gl_MatrixUseB>
#define sums_matrix coopmat<int, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>
#define LOAD_ROWS(m, at, stride) \
    coopMatLoad(m, row_codes, at, stride, gl_CooperativeMatrixLayoutRowMajor)
#define LOAD_COLUMNS(m, at, stride) \
    coopMatLoad(m, token_codes, at, stride, gl_CooperativeMatrixLayoutColumnMajor)
#define LOAD_SUMS LOAD_ROWS
#define MULTIPLY_ADD(to, rows, columns) to = coopMatMulAdd(rows, columns, to)
#elif defined(NV)
#define rows_matrix icoopmatNV<8, gl_ScopeSubgroup, 16, K>
#define columns_matrix icoopmatNV<8, gl_ScopeSubgroup, K, 16>
#define sums_matrix icoopmatNV<32, gl_ScopeSubgroup, 16, 16>
#define LOAD_ROWS(m, at, stride) coopMatLoadNV(m, row_codes, at, stride, false)
#define LOAD_COLUMNS(m, at, stride) coopMatLoadNV(m, token_codes, at, stride, true)
#define LOAD_SUMS LOAD_ROWS
#define MULTIPLY_ADD(to, rows, columns) to = coopMatMulAddNV(rows, columns, to)
#endif

/* For loops over cells and what depends on them. Software drivers take long to compile them. */
#ifdef EMULATED
#define UNROLL [[dont_unroll]]
#else
#define UNROLL [[unroll]]
#endif

#ifdef EMULATED
/* The cells of a lane are spread over the matrix, as those of a matrix unit are. */
#define NO_SUMS sums_matrix(int[16](0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
#define CELL(sums, i) sums.cells[i]
#define LOAD_ROWS(m, at, stride) m = place_in(at, stride)
#define LOAD_COLUMNS(m, at, stride) m = place_in(at, stride)
#define LOAD_SUMS(m, at, stride) load_sums(m, at, stride)
#define MULTIPLY_ADD(to, rows, columns) multiply_add(to, rows, columns)
#define rows_matrix place_in
#define columns_matrix place_in
struct place_in { uint at, stride; };
struct sums_matrix { int cells[16]; };

uint subgroup() { return gl_LocalInvocationID.x / LANES; }
uint subgroup_lanes() { return LANES; }

uvec2 place_of_cell(uint i) { /* row, column */
    uint n = i * LANES + gl_LocalInvocationID.x % LANES;
    return uvec2((n * 5u + n / 16u) % 16u, n / 16u);
}

void load_sums(inout sums_matrix m, uint at, uint stride) {
    UNROLL for (uint i = 0u; i < CELLS; i++) {
        uvec2 place = place_of_cell(i);
        m.cells[i] = int(row_codes[at + place.x * stride + place.y / 4u][place.y % 4u]);
    }
}

int dot_of_four(uint a, uint b) {
    int sum = 0;
    [[unroll]] for (int i = 0; i < 32; i += 8)
        sum += bitfieldExtract(int(a), i, 8) * bitfieldExtract(int(b), i, 8);
    return sum;
}

void multiply_add(inout sums_matrix to, rows_matrix rows, columns_matrix columns) {
    UNROLL for (uint i = 0u; i < CELLS; i++) {
        uvec2 place = place_of_cell(i);
        uint row = rows.at + place.x * rows.stride, column = columns.at + place.y * columns.stride;
        UNROLL for (uint k = 0u; k < K / 16u; k++) {
            uvec4 a = row_codes[row + k], b = token_codes[column + k];
            to.cells[i] += dot_of_four(a.x, b.x) + dot_of_four(a.y, b.y) + dot_of_four(a.z, b.z) +
                           dot_of_four(a.w, b.w);
        }
    }
}

bool has_all_cells(sums_matrix m) { return true; }
#else
#define NO_SUMS sums_matrix(0)
#define CELL(sums, i) sums[i]
uint subgroup() { return gl_SubgroupID; }
uint subgroup_lanes() { return gl_SubgroupSize; }
/* As was told: a lane has CELLS of them. */
bool has_all_cells(sums_matrix m) { return uint(m.length()) == CELLS; }
#endif
