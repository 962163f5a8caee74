/* avx512.c: the table for AVX-512 with VNNI. */
#include "kernels/v16_avx512.h"

#include "kernels/lanes16.inc.h"
#include "kernels/matmul_avx512.h"

const struct kernels kernels_avx512 = {
    .name = "avx512",
    .act_pack = act_pack,
    .matmul = matmul_avx512,
    .matmul_fixed = matmul_fixed_avx512,
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
