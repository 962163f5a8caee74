/* memory.c: the memory that a device knows, and where it knows it.
 *
 * What is shared is imported: a buffer of the device over the host's own pages. A copy is a buffer
 * of the device's memory, which is filled through a small one that both see. Shaders reach both by
 * address, so that neither has descriptors, whose ranges end at 128 MiB on some devices. */
#include "base/util.h"

#if defined(LOCKSTEP_HAS_VULKAN)
#include "device/device_internal.h"

#include "base/mem.h"

#include <stdatomic.h>

#define PAGE 4096
#define STAGING_BYTES ((size_t)16 << 20)

static uint32_t find_memory(const struct device *d, uint32_t allowed,
                            VkMemoryPropertyFlags want) {
    const VkPhysicalDeviceMemoryProperties *m = &d->physical.memory;
    for (uint32_t i = 0; i < m->memoryTypeCount; i++)
        if ((allowed >> i & 1) && (m->memoryTypes[i].propertyFlags & want) == want)
            return i;
    return UINT32_MAX;
}

static void destroy(struct device *d, struct device_buffer *b) {
    if (b->buffer != VK_NULL_HANDLE)
        d->DestroyBuffer(d->handle, b->buffer, NULL);
    if (b->memory != VK_NULL_HANDLE)
        d->FreeMemory(d->handle, b->memory, NULL);
    *b = (struct device_buffer){0};
}

static bool is_refused(const struct device *d) {
    static atomic_ulong blocks; /* of the process */
    return d->fault.kind == DEVICE_FAULT_MEMORY &&
           atomic_fetch_add(&blocks, 1) + 1 == d->fault.n;
}

/* The buffer's memory is of one of the `allowed` types, best one that has `wanted` too. import: a
 * VkImportMemoryHostPointerInfoEXT, or NULL. */
static VkResult give_memory(struct device *d, struct device_buffer *b, size_t bytes,
                            uint32_t allowed, VkMemoryPropertyFlags needed,
                            VkMemoryPropertyFlags wanted, const void *import) {
    VkMemoryRequirements r;
    d->GetBufferMemoryRequirements(d->handle, b->buffer, &r);
    uint32_t type = find_memory(d, allowed & r.memoryTypeBits, needed | wanted);
    if (type == UINT32_MAX)
        type = find_memory(d, allowed & r.memoryTypeBits, needed);
    if (type == UINT32_MAX || (import != NULL && r.size > bytes))
        return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    const VkMemoryAllocateFlagsInfo flags = {.sType =
                                                 VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                             .pNext = import,
                                             .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = &flags,
                                       .allocationSize = import != NULL ? bytes : r.size,
                                       .memoryTypeIndex = type};
    VkResult result = is_refused(d) ? VK_ERROR_OUT_OF_DEVICE_MEMORY
                                    : d->AllocateMemory(d->handle, &info, NULL, &b->memory);
    if (result == VK_SUCCESS)
        result = d->BindBufferMemory(d->handle, b->buffer, b->memory, 0);
    return result;
}

static VkResult make_buffer(struct device *d, struct device_buffer *b, size_t bytes,
                            const void *next) {
    const VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .pNext = next,
        .size = bytes,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT};
    return d->CreateBuffer(d->handle, &info, NULL, &b->buffer);
}

#define HOST_VISIBLE \
    (VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)

/* ---- shared ---------------------------------------------------------------------------------- */

static VkResult import(struct device *d, struct device_buffer *b, void *host, size_t bytes) {
    const VkExternalMemoryHandleTypeFlagBits type =
        VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
    const VkExternalMemoryBufferCreateInfo external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, .handleTypes = type};
    const VkImportMemoryHostPointerInfoEXT pointer = {
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
        .handleType = type,
        .pHostPointer = host};
    VkMemoryHostPointerPropertiesEXT can = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    VkResult r = d->GetMemoryHostPointerPropertiesEXT(d->handle, type, host, &can);
    if (r == VK_SUCCESS)
        r = make_buffer(d, b, bytes, &external);
    if (r == VK_SUCCESS)
        r = give_memory(d, b, bytes, can.memoryTypeBits, HOST_VISIBLE,
                        VK_MEMORY_PROPERTY_HOST_CACHED_BIT, &pointer);
    return r;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static VkResult need_staging(struct device *d) {
    struct device_buffer *b = &d->staging;
    if (d->staging_bytes != NULL)
        return VK_SUCCESS;
    VkResult r = make_buffer(d, b, STAGING_BYTES, NULL);
    if (r == VK_SUCCESS)
        r = give_memory(d, b, STAGING_BYTES, UINT32_MAX, HOST_VISIBLE, 0, NULL);
    if (r == VK_SUCCESS)
        r = d->MapMemory(d->handle, b->memory, 0, VK_WHOLE_SIZE, 0, &d->staging_bytes);
    if (r != VK_SUCCESS)
        destroy(d, b);
    return r;
}

static enum status copy_piece(struct device *d, VkBuffer to, size_t offset, size_t n,
                              struct err *err) {
    const VkBufferCopy part = {.dstOffset = offset, .size = n};
    const VkMemoryBarrier then = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                         VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT};
    VkResult r = device_begin(d, d->copies, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
    if (r != VK_SUCCESS)
        return device_failed(d, r, "no copy can be recorded", err);
    d->CmdCopyBuffer(d->copies, d->staging.buffer, to, 1, &part);
    d->CmdPipelineBarrier(d->copies, VK_PIPELINE_STAGE_TRANSFER_BIT,
                          VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                          0, 1, &then, 0, NULL, 0, NULL);
    r = d->EndCommandBuffer(d->copies);
    if (r != VK_SUCCESS)
        return device_failed(d, r, "no copy can be recorded", err);
    return device_submit(d, d->copies, err);
}

static enum status fill(struct device *d, VkBuffer to, const char *host, size_t bytes,
                        struct err *err) {
    for (size_t at = 0; at < bytes; at += STAGING_BYTES) {
        size_t n = MIN(bytes - at, STAGING_BYTES);
        memcpy(d->staging_bytes, host + at, n);
        TRY(copy_piece(d, to, at, n, err));
    }
    return ST_OK;
}

static enum status copy(struct device *d, struct device_buffer *b, void *host, size_t bytes,
                        bool discards, struct err *err) {
    VkResult r = need_staging(d);
    if (r == VK_SUCCESS)
        r = make_buffer(d, b, bytes, NULL);
    if (r == VK_SUCCESS)
        r = give_memory(d, b, bytes, UINT32_MAX, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0, NULL);
    if (r != VK_SUCCESS)
        return device_failed(d, r, "a block of its own memory", err);
    TRY(fill(d, b->buffer, host, bytes, err));
    if (discards)
        mem_discard(host, bytes);
    return ST_OK;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

/* The first range that ends after `at`. */
static size_t find_range(const struct device *d, uintptr_t at) {
    size_t low = 0, high = d->n_ranges;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (d->ranges[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

enum status device_map(struct device *d, void *host, size_t bytes, enum device_place place,
                       struct err *err) {
    struct device_range range = {(uintptr_t)host, (uintptr_t)host + bytes, 0, false, {0}};
    size_t at = find_range(d, range.begin);
    BUG_ON(range.begin % PAGE != 0 || bytes % PAGE != 0 || bytes == 0);
    if (d->lost)
        return device_is_lost(d, err);
    BUG_ON(at < d->n_ranges && d->ranges[at].begin < range.end);
    if (bytes > d->physical.max_map)
        return err_set(err, ST_BAD_INPUT, "%s: %zu bytes at once, where its driver takes %llu",
                       d->physical.info.name, bytes, (unsigned long long)d->physical.max_map);
    if (!mem_reserve(&d->ranges, &d->cap_ranges, d->n_ranges + 1, sizeof *d->ranges))
        return err_set(err, ST_NO_MEMORY, "no memory for a list of mapped ranges");
    enum status st = ST_OK;
    if (place != DEVICE_SHARED && !d->physical.info.unified) {
        st = copy(d, &range.buffer, host, bytes, place == DEVICE_COPY, err);
    } else {
        range.crosses = !d->physical.info.unified;
        VkResult r = import(d, &range.buffer, host, bytes);
        if (r != VK_SUCCESS)
            st = device_failed(d, r, "mapping memory of the host", err);
    }
    if (st != ST_OK) {
        if (!d->busy) /* else it stays, as all that a run may still use */
            destroy(d, &range.buffer);
        return st;
    }
    const VkBufferDeviceAddressInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = range.buffer.buffer};
    range.address = d->GetBufferDeviceAddress(d->handle, &info);
    memmove(&d->ranges[at + 1], &d->ranges[at], (d->n_ranges - at) * sizeof *d->ranges);
    d->ranges[at] = range;
    d->n_ranges++;
    return ST_OK;
}

bool device_unmap(struct device *d, void *host) {
    size_t at = find_range(d, (uintptr_t)host);
    BUG_ON(at == d->n_ranges || d->ranges[at].begin != (uintptr_t)host);
    if (d->busy) /* what runs may use it still: device_close() */
        return false;
    destroy(d, &d->ranges[at].buffer);
    d->n_ranges--;
    memmove(&d->ranges[at], &d->ranges[at + 1], (d->n_ranges - at) * sizeof *d->ranges);
    return true;
}

size_t device_max_map(const struct device *d) {
    const uint64_t most = MIN(d->physical.max_map, (uint64_t)SIZE_MAX / PAGE * PAGE);
    return (size_t)(d->piece_most != 0 ? MIN(most, (uint64_t)d->piece_most * PAGE) : most);
}

static const struct device_range *range_of(const struct device *d, const void *host) {
    size_t at = find_range(d, (uintptr_t)host);
    BUG_ON(at == d->n_ranges || d->ranges[at].begin > (uintptr_t)host);
    return &d->ranges[at];
}

uint64_t device_address(const struct device *d, const void *host) {
    const struct device_range *range = range_of(d, host);
    return range->address + ((uintptr_t)host - range->begin);
}

size_t device_reach(const struct device *d, const void *host) {
    return range_of(d, host)->end - (uintptr_t)host;
}

void device_count_bus(struct device *d, const void *host, size_t bytes) {
    if (bytes != 0 && range_of(d, host)->crosses)
        d->counts.bus_bytes += bytes;
}

void device_free_memory(struct device *d) {
    for (size_t i = 0; i < d->n_ranges; i++)
        destroy(d, &d->ranges[i].buffer);
    destroy(d, &d->staging);
    d->n_ranges = 0;
}
#endif
