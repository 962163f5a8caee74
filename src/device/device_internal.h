/* device_internal.h: an open device, for the files of this folder. */
#ifndef LOCKSTEP_DEVICE_DEVICE_INTERNAL_H
#define LOCKSTEP_DEVICE_DEVICE_INTERNAL_H

#include "device/commands.h"
#include "device/vulkan_lib.h"

#define VULKAN_DEVICE_CALLS(X)           \
    X(DestroyDevice)                     \
    X(GetDeviceQueue)                    \
    X(CreateCommandPool)                 \
    X(DestroyCommandPool)                \
    X(AllocateCommandBuffers)            \
    X(BeginCommandBuffer)                \
    X(EndCommandBuffer)                  \
    X(ResetCommandBuffer)                \
    X(CmdBindPipeline)                   \
    X(CmdPushConstants)                  \
    X(CmdDispatch)                       \
    X(CmdPipelineBarrier)                \
    X(CmdCopyBuffer)                     \
    X(QueueSubmit)                       \
    X(CreateFence)                       \
    X(DestroyFence)                      \
    X(GetFenceStatus)                    \
    X(WaitForFences)                     \
    X(ResetFences)                       \
    X(CreateBuffer)                      \
    X(DestroyBuffer)                     \
    X(GetBufferMemoryRequirements)       \
    X(GetBufferDeviceAddress)            \
    X(AllocateMemory)                    \
    X(FreeMemory)                        \
    X(BindBufferMemory)                  \
    X(MapMemory)                         \
    X(GetMemoryHostPointerPropertiesEXT) \
    X(CreateShaderModule)                \
    X(DestroyShaderModule)               \
    X(CreatePipelineLayout)              \
    X(DestroyPipelineLayout)             \
    X(CreateComputePipelines)            \
    X(DestroyPipeline)

/* Zero: none. */
struct device_buffer {
    VkBuffer buffer;
    VkDeviceMemory memory;
};

struct device_range {
    uintptr_t begin, end; /* of the host */
    uint64_t address;     /* the device's, of begin */
    bool crosses;         /* a device with memory of its own reads the host's */
    struct device_buffer buffer;
};

struct device_kernel {
    VkPipeline pipeline;
    struct device_kernel *next; /* of the device's */
};

struct device {
    struct vulkan vk;
    struct physical physical;
    VkDevice handle;
#define X(name) PFN_vk##name name;
    VULKAN_DEVICE_CALLS(X)
#undef X
    VkQueue queue;
    VkCommandPool pool;
    VkCommandBuffer runs, copies; /* of a long list; of copies */
    VkFence fence;                /* of the one submission that there is */
    VkPipelineLayout layout;
    struct device_kernel *kernels;

    struct device_range *ranges; /* ascending */
    size_t n_ranges, cap_ranges;
    struct device_buffer staging;
    void *staging_bytes;

    bool recording; /* the list has begun */
    bool is_long;   /* it is in runs, not in list */
    struct commands *list;
    VkPipeline bound;          /* of the run that was recorded last */
    enum status record_status; /* of what is recorded */
    struct err record_problem;

    bool lost, busy; /* for good; a submission may still run there */
    struct err why_lost;
    struct device *left_before; /* device_close() */
    unsigned long timeout_s;    /* 0: not told */
    uint64_t timeout_ns;
    unsigned long lost_after; /* submissions, for tests; 0: it is not lost by itself */
    unsigned long piece_most; /* bytes, for tests; 0: as the driver says */
    struct device_fault fault;
    bool flushes; /* a software device's threads flush subnormals, for tests */
    struct device_counts counts;
};

/* What the environment asks for. ST_BAD_INPUT: nobody knows it. */
enum status device_settings(struct device *d, struct err *err);

/* From now on; why_lost is there. */
enum status device_is_lost(struct device *d, struct err *err);
/* What a failed call means: "the device: what". Loses the device where it is lost. */
enum status device_failed(struct device *d, VkResult r, const char *what, struct err *err);

VkResult device_allocate_commands(struct device *d, VkCommandBuffer *out);
VkResult device_begin(struct device *d, VkCommandBuffer commands,
                      VkCommandBufferUsageFlags usage);
/* Runs what was recorded and waits. */
enum status device_submit(struct device *d, VkCommandBuffer commands, struct err *err);

void device_free_memory(struct device *d);
void device_free_kernels(struct device *d);

/* Whether fma() is fused; false where there are no shaders. */
enum status device_try_fma(struct device *d, bool *fused, struct err *err);

#endif
