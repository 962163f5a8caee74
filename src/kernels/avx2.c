/* avx2.c: the table for AVX2 with FMA and F16C. */
#include "kernels/v16_avx2.h"

#include "kernels/lanes16.inc.h"
#include "kernels/matmul_avx2.h"

const struct kernels kernels_avx2 = {
    .name = "avx2",
    .act_pack = act_pack,
    .matmul = matmul_avx2,
    .matmul_fixed = matmul_fixed_avx2,
    .fixed_add = fixed_add,
    .fixed_get = fixed_get,
    .rmsnorm = rmsnorm,
    .rope = rope,
    .swiglu = swiglu,
    .add = add,
    .exp = exp_lanes,
    .kv_store = kv_store,
    .attention = attention,
};
