/* physical.c: What a device can, and what it must be able to for shaders to run there. */
#include "base/util.h"

#if defined(LOCKSTEP_HAS_VULKAN)
#include "device/vulkan_lib.h"

#include "base/mem.h"

#include <stdio.h>

/* Host memory is imported in pages of so many bytes. */
#define PAGE 4096

struct extensions {
    VkExtensionProperties *list;
    uint32_t n;
};

static struct extensions extensions_of(const struct vulkan *v, VkPhysicalDevice handle) {
    struct extensions e = {0};
    VkResult r = v->EnumerateDeviceExtensionProperties(handle, NULL, &e.n, NULL);
    if (r == VK_SUCCESS)
        e.list = mem_calloc(MAX(e.n, 1u), sizeof *e.list);
    if (e.list == NULL)
        e.n = 0;
    else if (v->EnumerateDeviceExtensionProperties(handle, NULL, &e.n, e.list) < 0)
        e.n = 0;
    return e;
}

static bool has(const struct extensions *e, const char *name) {
    for (uint32_t i = 0; i < e->n; i++)
        if (str_eq(e->list[i].extensionName, name))
            return true;
    return false;
}

static enum device_kind kind_of(VkPhysicalDeviceType type) {
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
        return DEVICE_DISCRETE;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
        return DEVICE_INTEGRATED;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
        return DEVICE_SOFTWARE;
    default:
        return DEVICE_OTHER;
    }
}

static void describe_memory(struct physical *p) {
    const VkPhysicalDeviceMemoryProperties *m = &p->memory;
    bool all_own = m->memoryHeapCount > 0;
    for (uint32_t i = 0; i < m->memoryHeapCount; i++) {
        if (m->memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT)
            p->info.memory_bytes = MAX(p->info.memory_bytes, m->memoryHeaps[i].size);
        else
            all_own = false;
    }
    p->info.unified =
        (all_own || p->info.kind == DEVICE_INTEGRATED || p->info.kind == DEVICE_SOFTWARE) &&
        !device_is_without("unified");
}

static bool find_queue(const struct vulkan *v, struct physical *p) {
    VkQueueFamilyProperties list[32];
    uint32_t n = ARRAY_LEN(list);
    v->GetPhysicalDeviceQueueFamilyProperties(p->handle, &n, list);
    for (p->queue_family = 0; p->queue_family < n; p->queue_family++)
        if (list[p->queue_family].queueFlags & VK_QUEUE_COMPUTE_BIT)
            return true;
    return false;
}

void physical_features(const struct vulkan *v, const struct physical *p,
                       struct feature_chain *out) {
    *out = (struct feature_chain){
        .base = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &out->v11},
        .v11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
                .pNext = &out->v12},
        .v12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES},
        .dot = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES},
        .fma = {.type = SHADER_FMA_FEATURES_TYPE},
        .matrix = {.type =
                       p->info.matrix == DEVICE_MATRIX_KHR
                           ? MATRIX_KHR_FEATURES_TYPE
                           : VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV}};
    void **end = &out->v12.pNext;
    if (p->dot_khr || p->info.api_version >= 1003) {
        *end = &out->dot;
        end = &out->dot.pNext;
    }
    if (p->fma_khr) {
        *end = &out->fma;
        end = &out->fma.next;
    }
    if (p->info.matrix == DEVICE_MATRIX_KHR || p->info.matrix == DEVICE_MATRIX_NV)
        *end = &out->matrix;
    v->GetPhysicalDeviceFeatures2(p->handle, &out->base);
}

__attribute__((format(printf, 2, 3))) static void lack(struct device_info *info,
                                                       const char *fmt, ...) {
    size_t at = strlen(info->lacks);
    va_list ap;
    if (at > 0 && at + 2 < sizeof info->lacks)
        at += (size_t)snprintf(info->lacks + at, sizeof info->lacks - at, ", ");
    va_start(ap, fmt);
    vsnprintf(info->lacks + at, sizeof info->lacks - at, fmt, ap);
    va_end(ap);
}

static void describe_features(const struct vulkan *v, struct physical *p) {
    static const struct {
        size_t at;
        const char *name;
    } needed[] = {
        {offsetof(struct feature_chain, v12.bufferDeviceAddress), "buffer addresses"},
        {offsetof(struct feature_chain, v12.storageBuffer8BitAccess), "8-bit storage"},
        {offsetof(struct feature_chain, v11.storageBuffer16BitAccess), "16-bit storage"},
        {offsetof(struct feature_chain, v12.shaderInt8), "8-bit integers"},
        {offsetof(struct feature_chain, base.features.shaderInt16), "16-bit integers"}};
    struct feature_chain f;
    bool *is = p->info.features;
    physical_features(v, p, &f);
    for (size_t i = 0; i < ARRAY_LEN(needed); i++)
        if (!*(const VkBool32 *)((const char *)&f + needed[i].at))
            lack(&p->info, "%s", needed[i].name);
    is[DEVICE_FMA_KHR] = f.fma.float32;
    is[DEVICE_F64] = f.base.features.shaderFloat64;
    is[DEVICE_INT64] = f.base.features.shaderInt64;
    is[DEVICE_DOT] = f.dot.shaderIntegerDotProduct;
    for (int i = 0; i < DEVICE_N_FEATURES; i++)
        is[i] &= !device_is_without(device_feature_name((enum device_feature)i));
}

/* What can be mapped at once, in whole pages. */
static uint64_t max_map(const VkPhysicalDeviceVulkan11Properties *v11,
                        const VkPhysicalDeviceMaintenance4Properties *m4) {
    uint64_t most = v11->maxMemoryAllocationSize;
    if (m4->maxBufferSize != 0)
        most = MIN(most, m4->maxBufferSize);
    return most / PAGE * PAGE;
}

static void describe_properties(const struct vulkan *v, struct physical *p, bool imports) {
    VkPhysicalDeviceMaintenance4Properties m4 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES};
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDeviceVulkan12Properties v12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES};
    VkPhysicalDeviceVulkan11Properties v11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &v12};
    VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                       .pNext = &v11};
    void **end = &v12.pNext;
    if (p->info.api_version >= 1003) {
        *end = &m4;
        end = &m4.pNext;
    }
    if (imports)
        *end = &host;
    v->GetPhysicalDeviceProperties2(p->handle, &all);
    snprintf(p->info.driver, sizeof p->info.driver, "%.120s %.120s", v12.driverName,
             v12.driverInfo);
    p->info.subgroup = v11.subgroupSize;
    p->max_map = max_map(&v11, &m4);
    if (!imports)
        lack(&p->info, "VK_EXT_external_memory_host");
    else if (host.minImportedHostPointerAlignment > PAGE)
        lack(&p->info, "import of host memory in pages of %d bytes", PAGE);
}

void physical_describe(const struct vulkan *v, VkPhysicalDevice handle, struct physical *out) {
    VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    const VkPhysicalDeviceProperties *p = &all.properties;
    struct extensions e = extensions_of(v, handle);
    *out = (struct physical){.handle = handle};
    v->GetPhysicalDeviceProperties2(handle, &all);
    snprintf(out->info.name, sizeof out->info.name, "%s", p->deviceName);
    out->info.kind = kind_of(p->deviceType);
    out->info.api_version =
        VK_API_VERSION_MAJOR(p->apiVersion) * 1000 + VK_API_VERSION_MINOR(p->apiVersion);
    v->GetPhysicalDeviceMemoryProperties(handle, &out->memory);
    describe_memory(out);
    if (!find_queue(v, out))
        lack(&out->info, "a compute queue");
    if (out->info.api_version < 1002) {
        lack(&out->info, "Vulkan 1.2");
    } else {
        out->fma_khr = has(&e, SHADER_FMA_EXTENSION);
        out->dot_khr = has(&e, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
        out->portability = has(&e, "VK_KHR_portability_subset");
        describe_features(v, out);
        describe_properties(v, out, has(&e, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME));
        physical_describe_matrix(v, out, has(&e, MATRIX_KHR_EXTENSION),
                                 has(&e, VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME));
    }
    mem_free(e.list);
}
#endif
