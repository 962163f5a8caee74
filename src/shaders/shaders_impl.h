/* shaders_impl.h: what the files of this module share: the kernels of a device, by shader and by
 * weight type. */
#ifndef LOCKSTEP_SHADERS_SHADERS_IMPL_H
#define LOCKSTEP_SHADERS_SHADERS_IMPL_H

#include "shaders/shaders.h"

enum shader {
    SHADER_ACT_PACK,
    SHADER_ACT_WEIGH,
    SHADER_RMSNORM,
    SHADER_VECTOR,
    SHADER_COPY,
    SHADER_ROPE,
    SHADER_ACTIVATE,
    SHADER_KV_STORE,
    SHADER_HEADS,
    SHADER_LANES16,
    SHADER_ROW_NORM,
    SHADER_ROUTE,
    SHADER_CHOSEN,
    SHADER_GROUP,
    SHADER_CONV,
    SHADER_RECURRENT_GATES,
    SHADER_RECURRENCE,
    SHADER_ATTENTION_MERGE,
    SHADER_N
};

/* The products of one weight type: of one token, and of SHADERS_TOKENS together (matmul.comp); of
 * SHADERS_SIDE tokens and as many rows (matmul_tiles.comp, or matmul_matrix.comp). The latter
 * computes whole squares: it is for SHADERS_MANY tokens or more. */
#define SHADERS_TOKENS 4
#define SHADERS_SIDE 64
#define SHADERS_MANY 24
enum product {
    PRODUCT_ONE,
    PRODUCT_FEW,
    PRODUCT_MANY,
    PRODUCT_FIXED_ONE,
    PRODUCT_FIXED_FEW,
    PRODUCT_FIXED_MANY,
    PRODUCT_N
};

struct shaders {
    struct device *d;
    struct device_kernel *kernels[SHADER_N];
    struct device_kernel *products[QT_N][PRODUCT_N];
    struct device_kernel *attention[KV_N_TYPES][SHADERS_HEADS_MOST]; /* of 1, 2... heads */
    float *partials; /* of attention, [SHADERS_PARTIALS]; the device's own memory */
    uint64_t test_ns;
    char why_no_matrix[512];
};

/* Floats: 128 heads of 126 dimensions over 131,072 positions take as many. */
#define SHADERS_PARTIALS (4u << 20)

const char *shader_name(enum shader s);
const char *shaders_attention_name(enum kv_type type);

/* shaders_attention() by workgroups of up to `together` heads of a kv head, in 1..
 * SHADERS_HEADS_MOST: each key and value is read and decoded once for them. */
void shaders_attention_by(struct shaders *s, const struct shaders_attention *a,
                          uint32_t together);

/* As few workgroups for a kv head as there can be, and of these as alike as they can be. */
uint32_t shaders_heads_together(uint32_t group);

/* Compares the kernels with the scalar definition: all but those below; the products of one type;
 * attention by one head, and by so many together.
 * ST_BAD_INPUT: one differs; or what device_map(), device_finish() say. */
enum status shaders_test(struct shaders *s, struct err *err);
enum status shaders_test_products(struct shaders *s, enum qtype type, struct err *err);
enum status shaders_test_attention(struct shaders *s, enum kv_type type, uint32_t together,
                                   struct err *err);

#endif
