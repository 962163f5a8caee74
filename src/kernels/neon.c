/* neon.c: the table for arm64 with dot product (ARMv8.2; every Apple M, Graviton 2 and later). */
#include "kernels/v16_neon.h"

#include "kernels/lanes16.inc.h"
#include "kernels/matmul_neon.h"

const struct kernels kernels_neon = {
    .name = "neon",
    .act_pack = act_pack,
    .matmul = matmul_neon,
    .matmul_fixed = matmul_fixed_neon,
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
