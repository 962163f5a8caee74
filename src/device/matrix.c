/* matrix.c: which matrix units of a device shaders use: those that multiply int8 with sums of
 * int32, 16 rows by 16, as a subgroup. */
#include "base/util.h"

#if defined(LOCKSTEP_HAS_VULKAN)
#include "device/vulkan_lib.h"

#include "base/mem.h"

#define SIDE 16

/* What this build's shaders are compiled for. */
#if defined(LOCKSTEP_HAS_MATRIX_KHR)
static const bool knows_khr = true;
#else
static const bool knows_khr = false;
#endif
#if defined(LOCKSTEP_HAS_MATRIX_NV)
static const bool knows_nv = true;
#else
static const bool knows_nv = false;
#endif

static uint32_t columns_of(const struct matrix_khr_shape *s) {
    const bool fits =
        s->m == SIDE && s->n == SIDE && (s->k == 16 || s->k == 32) &&
        s->a == VK_COMPONENT_TYPE_SINT8_NV && s->b == VK_COMPONENT_TYPE_SINT8_NV &&
        s->c == VK_COMPONENT_TYPE_SINT32_NV && s->result == VK_COMPONENT_TYPE_SINT32_NV &&
        !s->saturates && s->scope == VK_SCOPE_SUBGROUP_NV;
    return fits ? s->k : 0;
}

/* The most columns of a shape that fits; 0: none does. */
static uint32_t find_khr(const struct vulkan *v, VkPhysicalDevice handle) {
    struct matrix_khr_shape *list = NULL;
    uint32_t n = 0, columns = 0;
    if (v->matrix_khr_shapes != NULL && v->matrix_khr_shapes(handle, &n, NULL) == VK_SUCCESS)
        list = mem_calloc(MAX(n, 1u), sizeof *list);
    for (uint32_t i = 0; list != NULL && i < n; i++)
        list[i].type = MATRIX_KHR_SHAPE_TYPE;
    if (list == NULL || v->matrix_khr_shapes(handle, &n, list) < 0)
        n = 0;
    for (uint32_t i = 0; i < n; i++)
        columns = MAX(columns, columns_of(&list[i]));
    mem_free(list);
    return columns;
}

static uint32_t find_nv(const struct vulkan *v, VkPhysicalDevice handle) {
    VkCooperativeMatrixPropertiesNV *list = NULL;
    uint32_t n = 0, columns = 0;
    if (v->matrix_nv_shapes != NULL && v->matrix_nv_shapes(handle, &n, NULL) == VK_SUCCESS)
        list = mem_calloc(MAX(n, 1u), sizeof *list);
    for (uint32_t i = 0; list != NULL && i < n; i++)
        list[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_NV;
    if (list == NULL || v->matrix_nv_shapes(handle, &n, list) < 0)
        n = 0;
    for (uint32_t i = 0; i < n; i++) {
        const VkCooperativeMatrixPropertiesNV *s = &list[i];
        columns = MAX(columns, columns_of(&(struct matrix_khr_shape){.m = s->MSize,
                                                                     .n = s->NSize,
                                                                     .k = s->KSize,
                                                                     .a = s->AType,
                                                                     .b = s->BType,
                                                                     .c = s->CType,
                                                                     .result = s->DType,
                                                                     .scope = s->scope}));
    }
    mem_free(list);
    return columns;
}

static bool try_it(const struct vulkan *v, struct physical *p, enum device_matrix matrix,
                   uint32_t columns) {
    struct feature_chain f;
    const uint32_t lanes = p->info.subgroup;
    p->info.matrix = matrix;
    physical_features(v, p, &f);
    p->info.features[DEVICE_MATRIX] = columns != 0 && f.matrix.matrix &&
                                      f.v12.vulkanMemoryModel &&
                                      (lanes == 16 || lanes == 32 || lanes == 64);
    p->info.matrix_columns = columns;
    p->info.matrix_lanes = lanes;
    if (!p->info.features[DEVICE_MATRIX])
        p->info.matrix = DEVICE_MATRIX_NONE;
    return p->info.features[DEVICE_MATRIX];
}

void physical_describe_matrix(const struct vulkan *v, struct physical *p, bool khr, bool nv) {
    p->info.features[DEVICE_MATRIX] = false;
    if (device_is_without(device_feature_name(DEVICE_MATRIX)))
        return;
    if (device_emulated_matrix() != 0) {
        p->info.features[DEVICE_MATRIX] = true;
        p->info.matrix = DEVICE_MATRIX_EMULATED;
        p->info.matrix_columns = device_emulated_matrix();
        p->info.matrix_lanes = 32;
        return;
    }
    if (khr && knows_khr && try_it(v, p, DEVICE_MATRIX_KHR, find_khr(v, p->handle)))
        return;
    if (nv && knows_nv)
        try_it(v, p, DEVICE_MATRIX_NV, find_nv(v, p->handle));
}
#endif
