/* device.c: the list of devices; one of them is chosen, opened and closed. */
#include "base/util.h"

#if defined(LOCKSTEP_HAS_VULKAN)
#include "device/device_internal.h"

#include "base/float_env.h"
#include "base/mem.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define PUSH_BYTES 128

/* ---- the list -------------------------------------------------------------------------------- */

/* All of an instance; free *out with mem_free(). */
static enum status describe_all(const struct vulkan *v, struct physical **out, uint32_t *n,
                                struct err *err) {
    VkPhysicalDevice *handles;
    TRY(vulkan_devices(v, &handles, n, err));
    struct physical *list = mem_calloc(*n, sizeof *list);
    for (uint32_t i = 0; list != NULL && i < *n; i++)
        physical_describe(v, handles[i], &list[i]);
    mem_free(handles);
    *out = list;
    return list != NULL ? ST_OK
                        : err_set(err, ST_NO_MEMORY, "no memory for the list of devices");
}

enum status device_list(struct device_info **out, size_t *n, char *why, size_t why_size,
                        struct err *err) {
    struct vulkan v;
    struct physical *list = NULL;
    struct err none;
    uint32_t count = 0;
    enum status st = vulkan_get(&v, &none);
    if (st == ST_OK)
        st = describe_all(&v, &list, &count, &none);
    struct device_info *infos = mem_calloc(MAX(count, 1u), sizeof *infos);
    for (uint32_t i = 0; st == ST_OK && infos != NULL && i < count; i++)
        infos[i] = list[i].info;
    mem_free(list);
    if (infos == NULL || st == ST_NO_MEMORY) {
        mem_free(infos);
        return err_set(err, ST_NO_MEMORY, "no memory for the list of devices");
    }
    snprintf(why, why_size, "%s", st == ST_OK ? "" : none.text);
    *out = infos;
    *n = st == ST_OK ? count : 0;
    return ST_OK;
}

/* ---- the choice ------------------------------------------------------------------------------ */

static bool contains(const char *text, const char *part) {
    size_t n = strlen(part);
    for (; *text != '\0'; text++)
        if (strncasecmp(text, part, n) == 0)
            return true;
    return false;
}

static bool is_number(const char *name, uint32_t n, uint32_t *out) {
    if (*name == '\0' || strlen(name) > 9 || name[strspn(name, "0123456789")] != '\0')
        return false;
    *out = (uint32_t)strtoul(name, NULL, 10);
    return *out < n;
}

/* The one that is called so, best one that can be opened; n: none. */
static uint32_t choose(const struct physical *list, uint32_t n, const char *name) {
    uint32_t found = n, i;
    if (is_number(name, n, &i))
        return i;
    for (i = n; i-- > 0;) {
        const struct device_info *info = &list[i].info;
        bool fits = str_eq(name, "auto") ? info->kind != DEVICE_SOFTWARE
                                         : *name != '\0' && contains(info->name, name);
        if (fits && (found == n || info->lacks[0] == '\0' || list[found].info.lacks[0] != '\0'))
            found = i;
    }
    return found;
}

static enum status none_such(const struct physical *list, uint32_t n, const char *name,
                             struct err *err) {
    char all[300] = "";
    for (uint32_t i = 0; i < n; i++) {
        size_t at = strlen(all);
        snprintf(all + at, sizeof all - at, "%s%u: %s (%s)", i ? ", " : "", i,
                 list[i].info.name, device_kind_name(list[i].info.kind));
    }
    return str_eq(name, "auto")
               ? err_set(err, ST_BAD_INPUT, "no device is hardware; those here: %s", all)
               : err_set(err, ST_BAD_INPUT, "no device is called \"%.60s\"; those here: %s",
                         name, all);
}

static enum status find(struct device *d, const char *name, struct err *err) {
    struct physical *list;
    uint32_t n;
    TRY(describe_all(&d->vk, &list, &n, err));
    uint32_t i = choose(list, n, name);
    enum status st = i < n ? ST_OK : none_such(list, n, name, err);
    if (st == ST_OK)
        d->physical = list[i];
    mem_free(list);
    if (st == ST_OK && d->physical.info.lacks[0] != '\0')
        st = err_set(err, ST_BAD_INPUT, "the device %s lacks %s", d->physical.info.name,
                     d->physical.info.lacks);
    return st;
}

/* ---- opening --------------------------------------------------------------------------------- */

static uint32_t name_extensions(const struct physical *p, const char *names[5]) {
    uint32_t n = 0;
    names[n++] = VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME;
    if (p->dot_khr)
        names[n++] = VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME;
    if (p->fma_khr)
        names[n++] = SHADER_FMA_EXTENSION;
    if (p->info.matrix == DEVICE_MATRIX_KHR)
        names[n++] = MATRIX_KHR_EXTENSION;
    if (p->info.matrix == DEVICE_MATRIX_NV)
        names[n++] = VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME;
    if (p->portability)
        names[n++] = "VK_KHR_portability_subset";
    return n;
}

static enum status make_device(struct device *d, struct err *err) {
    static const float priority = 1;
    const char *names[5];
    struct feature_chain features;
    physical_features(&d->vk, &d->physical, &features);
    features.base.features.robustBufferAccess = VK_FALSE; /* its checks cost time */
    features.matrix.robust = VK_FALSE;
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                           .queueFamilyIndex = d->physical.queue_family,
                                           .queueCount = 1,
                                           .pQueuePriorities = &priority};
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = &features.base,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue,
                                     .enabledExtensionCount =
                                         name_extensions(&d->physical, names),
                                     .ppEnabledExtensionNames = names};
    VkResult r = d->vk.CreateDevice(d->physical.handle, &info, NULL, &d->handle);
    if (r != VK_SUCCESS) {
        d->handle = NULL;
        return device_failed(d, r, "it does not open", err);
    }
#define X(call)                                                               \
    d->call = (PFN_vk##call)d->vk.GetDeviceProcAddr(d->handle, "vk" #call);   \
    if (d->call == NULL)                                                      \
        return err_set(err, ST_UNSUPPORTED, "%s: its driver has no vk" #call, \
                       d->physical.info.name);
    VULKAN_DEVICE_CALLS(X)
#undef X
    return ST_OK;
}

VkResult device_allocate_commands(struct device *d, VkCommandBuffer *out) {
    const VkCommandBufferAllocateInfo one = {.sType =
                                                 VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                             .commandPool = d->pool,
                                             .commandBufferCount = 1};
    return d->AllocateCommandBuffers(d->handle, &one, out);
}

static VkResult make_parts(struct device *d) {
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .flags =
                                              VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                          .queueFamilyIndex = d->physical.queue_family};
    const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    const VkPushConstantRange push = {VK_SHADER_STAGE_COMPUTE_BIT, 0, PUSH_BYTES};
    const VkPipelineLayoutCreateInfo layout = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .pushConstantRangeCount = 1,
        .pPushConstantRanges = &push};
    d->GetDeviceQueue(d->handle, d->physical.queue_family, 0, &d->queue);
    VkResult r = d->CreateCommandPool(d->handle, &pool, NULL, &d->pool);
    if (r == VK_SUCCESS)
        r = device_allocate_commands(d, &d->runs);
    if (r == VK_SUCCESS)
        r = device_allocate_commands(d, &d->copies);
    if (r == VK_SUCCESS)
        r = d->CreateFence(d->handle, &fence, NULL, &d->fence);
    if (r == VK_SUCCESS)
        r = d->CreatePipelineLayout(d->handle, &layout, NULL, &d->layout);
    return r;
}

/* A software device computes in threads that inherit how the one that opens it treats subnormals.
 */
static enum status make_all(struct device *d, struct err *err) {
    struct float_env env;
    float_env_begin(&env);
    if (d->flushes)
        float_env_flush();
    enum status st = make_device(d, err);
    VkResult r = st == ST_OK ? make_parts(d) : VK_SUCCESS;
    float_env_end(&env);
    return r == VK_SUCCESS ? st : device_failed(d, r, "it does not open", err);
}

static bool opening_fails(const struct device *d) {
    static atomic_ulong openings; /* of the process */
    return atomic_fetch_add(&openings, 1) + 1 == d->fault.n &&
           d->fault.kind == DEVICE_FAULT_OPEN;
}

static enum status open_it(struct device *d, const char *name, struct err *err) {
    TRY(device_settings(d, err));
    enum status st = vulkan_get(&d->vk, err);
    if (st == ST_OK)
        st = find(d, name, err);
    if (st == ST_UNSUPPORTED || st == ST_NOT_FOUND) /* no Vulkan, no device */
        st = ST_BAD_INPUT;
    TRY(st);
    if (d->timeout_s == 0) /* a software device shares its processor with others */
        d->timeout_s = d->physical.info.kind == DEVICE_SOFTWARE ? 120 : 10;
    d->timeout_ns = (uint64_t)d->timeout_s * 1000000000u;
    if (opening_fails(d))
        return device_failed(d, VK_ERROR_INITIALIZATION_FAILED, "it does not open", err);
    d->list = commands_open();
    if (d->list == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a device's commands");
    TRY(make_all(d, err));
    bool *fma = &d->physical.info.features[DEVICE_FMA];
    TRY(device_try_fma(d, fma, err));
    *fma &= !device_is_without(device_feature_name(DEVICE_FMA));
    return ST_OK;
}

enum status device_open(struct device **out, const char *name, struct err *err) {
    struct device *d = mem_calloc(1, sizeof *d);
    if (d == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a device");
    enum status st = open_it(d, name, err);
    if (st != ST_OK) {
        device_close(d);
        return st;
    }
    *out = d;
    return ST_OK;
}

/* What may still run there uses what would be destroyed. It gets its time once more. */
static bool has_ended(struct device *d) {
    return !d->busy ||
           d->WaitForFences(d->handle, 1, &d->fence, VK_TRUE, d->timeout_ns) != VK_TIMEOUT;
}

static void destroy_parts(struct device *d) {
    device_free_kernels(d);
    device_free_memory(d);
    if (d->layout != VK_NULL_HANDLE)
        d->DestroyPipelineLayout(d->handle, d->layout, NULL);
    if (d->fence != VK_NULL_HANDLE)
        d->DestroyFence(d->handle, d->fence, NULL);
    if (d->pool != VK_NULL_HANDLE)
        d->DestroyCommandPool(d->handle, d->pool, NULL);
}

/* Devices that do not answer stay as they are until the process ends. */
static _Atomic(struct device *) left;

void device_close(struct device *d) {
    if (d == NULL)
        return;
    if (d->handle != NULL && !has_ended(d)) {
        d->left_before = atomic_exchange(&left, d);
        return;
    }
    if (d->handle != NULL && d->DestroyPipeline != NULL) {
        destroy_parts(d);
        d->DestroyDevice(d->handle, NULL);
    }
    commands_close(d->list);
    mem_free(d->ranges);
    mem_free(d);
}

const struct device_info *device_info(const struct device *d) {
    return &d->physical.info;
}

const struct device_fault *device_fault(const struct device *d) {
    return &d->fault;
}
#endif
