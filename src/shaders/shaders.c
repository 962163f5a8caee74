/* shaders.c: which variant of each shader a device runs, and the kernels made of them. */
#include "shaders/shaders_impl.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"
#include "kernels/tiles.h"

#include <stdio.h>
#include <string.h>

#define PARTIALS_BYTES (SHADERS_PARTIALS * sizeof(float))

static const char *const names[SHADER_N] = {
    [SHADER_ACT_PACK] = "act_pack",
    [SHADER_ACT_WEIGH] = "weighing of what experts read",
    [SHADER_RMSNORM] = "rmsnorm",
    [SHADER_VECTOR] = "vector",
    [SHADER_COPY] = "copy",
    [SHADER_ROPE] = "rope",
    [SHADER_ACTIVATE] = "activate",
    [SHADER_KV_STORE] = "kv_store",
    [SHADER_HEADS] = "gates of heads",
    [SHADER_LANES16] = "norm of 16 lanes",
    [SHADER_ROW_NORM] = "norm of a row of heads",
    [SHADER_ROUTE] = "choice of experts",
    [SHADER_CHOSEN] = "biases of experts",
    [SHADER_GROUP] = "grouping by expert",
    [SHADER_CONV] = "convolution",
    [SHADER_RECURRENT_GATES] = "gates of a recurrence",
    [SHADER_RECURRENCE] = "recurrence",
    [SHADER_ATTENTION_MERGE] = "attention_merge",
};

const char *shader_name(enum shader s) {
    return names[s];
}

const char *shaders_attention_name(enum kv_type type) {
    static const char *const of[KV_N_TYPES] = {
        [KV_F16] = "attention f16", [KV_F32] = "attention f32", [KV_Q8_0] = "attention q8_0"};
    return of[type];
}

struct device *shaders_device(const struct shaders *s) {
    return s->d;
}

uint64_t shaders_test_ns(const struct shaders *s) {
    return s->test_ns;
}

const char *shaders_why_no_matrix(const struct shaders *s) {
    return s->why_no_matrix;
}

/* The kernels are the device's. */
void shaders_close(struct shaders *s) {
    if (s != NULL && s->partials != NULL && device_unmap(s->d, s->partials))
        mem_huge_free(s->partials, PARTIALS_BYTES);
    mem_free(s);
}

#if !defined(LOCKSTEP_HAS_SHADERS)

bool shaders_built(void) {
    return false;
}

enum status shaders_open(struct shaders **out, struct device *d, struct err *err) {
    (void)out, (void)d;
    return err_set(err, ST_BAD_INPUT, "this build has no shaders: glslc was not there");
}

enum status shaders_prepare(struct shaders *s, enum qtype type, struct err *err) {
    (void)type;
    return shaders_open(&s, NULL, err);
}

enum status shaders_prepare_attention(struct shaders *s, enum kv_type type, uint32_t group,
                                      struct err *err) {
    (void)type, (void)group;
    return shaders_open(&s, NULL, err);
}

#else

/* ---- variants ---------------------------------------------------------------------------- */

/* A shader as it is, with f64, with packed dots, and with both (cmake/shaders.cmake). */
struct code {
    const uint32_t *words[4];
    const size_t *bytes[4];
};

#define EXTERN(name)              \
    extern const uint32_t name[]; \
    extern const size_t name##_bytes;
#define EXTERN_PAIR(name) EXTERN(name##_spv) EXTERN(name##_f64_spv)
#define PAIR(name)                                   \
    {                                                \
        {name##_spv, name##_f64_spv}, {              \
            &name##_spv_bytes, &name##_f64_spv_bytes \
        }                                            \
    }
EXTERN_PAIR(act_pack)
EXTERN_PAIR(act_weigh)
EXTERN_PAIR(rmsnorm)
EXTERN_PAIR(vector)
EXTERN_PAIR(copy)
EXTERN_PAIR(rope)
EXTERN_PAIR(activate)
EXTERN_PAIR(kv_store)
EXTERN_PAIR(heads)
EXTERN_PAIR(lanes16)
EXTERN_PAIR(row_norm)
EXTERN_PAIR(route)
EXTERN_PAIR(chosen)
EXTERN_PAIR(group)
EXTERN_PAIR(conv)
EXTERN_PAIR(recurrent_gates)
EXTERN_PAIR(recurrence)
EXTERN_PAIR(attention)
EXTERN_PAIR(attention_merge)
EXTERN_PAIR(matmul)
EXTERN_PAIR(matmul_dot)
EXTERN_PAIR(matmul_tiles)
EXTERN_PAIR(matmul_tiles_dot)
EXTERN_PAIR(matmul_matrix_khr)
EXTERN_PAIR(matmul_matrix_nv)
EXTERN_PAIR(matmul_matrix_emulated)

static const struct code codes[SHADER_N] = {
    PAIR(act_pack),        PAIR(act_weigh),  PAIR(rmsnorm),
    PAIR(vector),          PAIR(copy),       PAIR(rope),
    PAIR(activate),        PAIR(kv_store),   PAIR(heads),
    PAIR(lanes16),         PAIR(row_norm),   PAIR(route),
    PAIR(chosen),          PAIR(group),      PAIR(conv),
    PAIR(recurrent_gates), PAIR(recurrence), PAIR(attention_merge),
};
static const struct code attention_code = PAIR(attention);
#define WITH_DOT(name)                                                       \
    {                                                                        \
        {name##_spv, name##_f64_spv, name##_dot_spv, name##_dot_f64_spv}, {  \
            &name##_spv_bytes, &name##_f64_spv_bytes, &name##_dot_spv_bytes, \
                &name##_dot_f64_spv_bytes                                    \
        }                                                                    \
    }
static const struct code product_code = WITH_DOT(matmul), many_code = WITH_DOT(matmul_tiles);

static const struct code matrix_codes[DEVICE_N_MATRIX] = {
#if defined(LOCKSTEP_HAS_MATRIX_KHR)
    [DEVICE_MATRIX_KHR] = PAIR(matmul_matrix_khr),
#endif
#if defined(LOCKSTEP_HAS_MATRIX_NV)
    [DEVICE_MATRIX_NV] = PAIR(matmul_matrix_nv),
#endif
    [DEVICE_MATRIX_EMULATED] = PAIR(matmul_matrix_emulated),
};

/* exact.glsl's FMA */
enum { FMA_FUSED, FMA_F64, FMA_F32, FMA_FAULT };

static uint32_t fma_of(const struct shaders *s, bool faulty) {
    const bool *has = device_info(s->d)->features;
    if (faulty)
        return FMA_FAULT;
    return has[DEVICE_FMA] ? FMA_FUSED : has[DEVICE_F64] ? FMA_F64 : FMA_F32;
}

/* Makes a kernel with its constants from 2 on; the first two are the arithmetic's. */
static enum status make(struct shaders *s, struct device_kernel **out, const struct code *code,
                        const char *name, uint32_t *constants, uint32_t n, struct err *err) {
    const struct device_fault *f = device_fault(s->d);
    const bool *has = device_info(s->d)->features;
    bool faulty = f->kernel[0] == '\0' || str_eq(f->kernel, name);
    constants[0] = fma_of(s, f->kind == DEVICE_FAULT_FMA && faulty);
    constants[1] = f->kind == DEVICE_FAULT_DIVISION && faulty;
    int i =
        (constants[0] == FMA_F64 ? 1 : 0) + (code->words[2] != NULL && has[DEVICE_DOT] ? 2 : 0);
    return device_kernel_make(s->d, out, code->words[i], *code->bytes[i], constants, n, err);
}

/* ---- products ---------------------------------------------------------------------------- */

static uint32_t float_kind(enum qtype type) { /* matmul.comp's FLOATS */
    return type == QT_F32 ? 1 : type == QT_F16 ? 2 : type == QT_BF16 ? 3 : 4;
}

/* matmul.comp's constants. */
enum {
    C_SCALES = 2,
    C_LOW,
    C_HIGH,
    C_BIAS,
    C_BY_TABLE,
    C_TABLE,
    C_D_FACTOR = C_TABLE + 4,
    C_FLOATS,
    C_FIXED,
    C_TOKENS, /* of matmul_tiles.comp: rows and tokens of a lane */
    C_PARTS,
    C_N,
    C_MATRIX_COLUMNS = C_N, /* of matmul_matrix.comp alone */
    C_MATRIX_LANES,
    C_MATRIX_N
};

static void product_constants(enum qtype type, enum product p, uint32_t *c) {
    const struct tile_format *f = &tile_formats[type];
    float factor = f->d_factor != 0 ? f->d_factor : 1.0f;
    memset(c, 0, C_N * sizeof *c);
    c[C_SCALES] = f->scales;
    c[C_LOW] = f->low_bits;
    c[C_HIGH] = f->high_bits;
    c[C_BIAS] = f->bias;
    c[C_BY_TABLE] = f->values != NULL;
    if (f->values != NULL)
        memcpy(&c[C_TABLE], f->values, 16);
    memcpy(&c[C_D_FACTOR], &factor, sizeof factor);
    c[C_FLOATS] = act_kind_for(type) == ACT_F32 ? float_kind(type) : 0;
    c[C_FIXED] = p >= PRODUCT_FIXED_ONE;
    /* A token alone waits for memory: more lanes have more of it on its way. */
    bool one = p == PRODUCT_ONE || p == PRODUCT_FIXED_ONE;
    c[C_TOKENS] = one ? 1 : SHADERS_TOKENS;
    c[C_PARTS] = one ? 32 : 16;
}

/* The product of many tokens by matrix units. */
static enum status make_by_matrix(struct shaders *s, struct device_kernel **out,
                                  uint32_t constants[C_MATRIX_N], struct err *err) {
    const struct device_info *info = device_info(s->d);
    constants[C_MATRIX_COLUMNS] = info->matrix_columns;
    constants[C_MATRIX_LANES] = info->matrix_lanes;
    return make(s, out, &matrix_codes[info->matrix], "matrix", constants, C_MATRIX_N, err);
}

static enum status make_products(struct shaders *s, enum qtype type, bool by_matrix,
                                 struct err *err) {
    struct device_kernel *made[PRODUCT_N];
    for (int p = 0; p < PRODUCT_N; p++) {
        uint32_t constants[C_MATRIX_N];
        product_constants(type, (enum product)p, constants);
        bool many = p == PRODUCT_MANY || p == PRODUCT_FIXED_MANY;
        enum status st = many && by_matrix
                             ? make_by_matrix(s, &made[p], constants, err)
                             : make(s, &made[p], many ? &many_code : &product_code,
                                    qtype_info(type)->name, constants, C_N, err);
        if (st != ST_OK)
            return st;
    }
    memcpy(s->products[type], made, sizeof made);
    enum status st = shaders_test_products(s, type, err);
    if (st != ST_OK)
        memset(s->products[type], 0, sizeof made);
    return st;
}

enum status shaders_prepare(struct shaders *s, enum qtype type, struct err *err) {
    BUG_ON(!wmat_type_supported(type));
    if (s->products[type][0] != NULL)
        return ST_OK;
    uint64_t begin = clock_ns();
    struct err why;
    bool by_matrix = device_info(s->d)->features[DEVICE_MATRIX] &&
                     act_kind_for(type) == ACT_Q8 && s->why_no_matrix[0] == '\0';
    enum status st = make_products(s, type, by_matrix, by_matrix ? &why : err);
    if (st != ST_OK && by_matrix) {
        snprintf(s->why_no_matrix, sizeof s->why_no_matrix, "%s", why.text);
        st = make_products(s, type, false, err);
    }
    s->test_ns += clock_ns() - begin;
    return st;
}

/* ---- attention --------------------------------------------------------------------------- */

static enum status make_attention(struct shaders *s, enum kv_type type, uint32_t together,
                                  struct err *err) {
    struct device_kernel **k = &s->attention[type][together - 1];
    uint32_t constants[] = {0, 0, type, together}; /* attention.comp's TYPE, HEADS */
    return *k != NULL ? ST_OK
                      : make(s, k, &attention_code, shaders_attention_name(type), constants,
                             ARRAY_LEN(constants), err);
}

enum status shaders_prepare_attention(struct shaders *s, enum kv_type type, uint32_t group,
                                      struct err *err) {
    const uint32_t together = shaders_heads_together(group);
    struct device_kernel **const of = s->attention[type];
    if (of[together - 1] != NULL)
        return ST_OK;
    const uint64_t begin = clock_ns();
    enum status st = make_attention(s, type, 1, err);
    if (st == ST_OK)
        st = make_attention(s, type, together, err);
    if (st == ST_OK)
        st = shaders_test_attention(s, type, together, err);
    if (st != ST_OK)
        of[0] = of[together - 1] = NULL;
    s->test_ns += clock_ns() - begin;
    return st;
}

/* ---- open -------------------------------------------------------------------------------- */

bool shaders_built(void) {
    return true;
}

static enum status make_all(struct shaders *s, struct err *err) {
    for (int i = 0; i < SHADER_N; i++) {
        uint32_t constants[] = {0, 0};
        enum status st =
            make(s, &s->kernels[i], &codes[i], names[i], constants, ARRAY_LEN(constants), err);
        if (st != ST_OK)
            return st;
    }
    return ST_OK;
}

static enum status take_partials(struct shaders *s, struct err *err) {
    float *p = mem_huge_alloc(PARTIALS_BYTES);
    if (p == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for the partials of attention");
    enum status st = device_map(s->d, p, PARTIALS_BYTES, DEVICE_COPY, err);
    if (st == ST_OK)
        s->partials = p;
    else
        mem_huge_free(p, PARTIALS_BYTES);
    return st;
}

enum status shaders_open(struct shaders **out, struct device *d, struct err *err) {
    uint64_t begin = clock_ns();
    struct shaders *s = mem_calloc(1, sizeof *s);
    if (s == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for shaders");
    s->d = d;
    enum status st = take_partials(s, err);
    if (st == ST_OK)
        st = make_all(s, err);
    if (st == ST_OK)
        st = shaders_test(s, err);
    s->test_ns = clock_ns() - begin;
    if (st == ST_OK)
        *out = s;
    else
        shaders_close(s);
    return st;
}

#endif
