/* run.c: kernels, and the commands that are recorded, run and waited for. */
#include "base/util.h"

#if defined(LOCKSTEP_HAS_VULKAN)
#include "device/device_internal.h"

#include "base/clock.h"
#include "base/mem.h"

#define PUSH_BYTES 128
/* How long a device that is hardware is asked without sleeping: being woken costs more than most
 * of the runs between two exact sums of a step take. */
#define SPIN_NS 1000000

/* ---- errors ---------------------------------------------------------------------------------- */

enum status device_is_lost(struct device *d, struct err *err) {
    d->lost = true;
    if (err != NULL)
        *err = d->why_lost;
    return ST_PEER_LOST;
}

enum status device_failed(struct device *d, VkResult r, const char *what, struct err *err) {
    const char *name = d->physical.info.name;
    switch (r) {
    case VK_ERROR_DEVICE_LOST:
        err_set(&d->why_lost, ST_PEER_LOST, "the device %s was lost: %s", name, what);
        return device_is_lost(d, err);
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS:
        return err_set(err, ST_NO_MEMORY, "%s: no memory: %s", name, what);
    case VK_ERROR_INVALID_EXTERNAL_HANDLE:
        return err_set(err, ST_UNSUPPORTED, "%s: its driver does not take host memory: %s",
                       name, what);
    default:
        return err_set(err, ST_IO, "%s: %s (Vulkan's error %d)", name, what, (int)r);
    }
}

/* ---- kernels --------------------------------------------------------------------------------- */

static VkResult make_pipeline(struct device *d, VkShaderModule module,
                              const uint32_t *constants, uint32_t n, VkPipeline *out) {
    VkSpecializationMapEntry entries[32];
    BUG_ON(n > ARRAY_LEN(entries));
    for (uint32_t i = 0; i < n; i++)
        entries[i] = (VkSpecializationMapEntry){i, 4 * i, 4};
    const VkSpecializationInfo special = {n, entries, 4 * (size_t)n, constants};
    const VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = "main",
                  .pSpecializationInfo = n > 0 ? &special : NULL},
        .layout = d->layout};
    return d->CreateComputePipelines(d->handle, VK_NULL_HANDLE, 1, &info, NULL, out);
}

enum status device_kernel_make(struct device *d, struct device_kernel **out,
                               const uint32_t *spirv, size_t spirv_bytes,
                               const uint32_t *constants, uint32_t n_constants,
                               struct err *err) {
    const VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                           .codeSize = spirv_bytes,
                                           .pCode = spirv};
    VkShaderModule module;
    if (d->lost)
        return device_is_lost(d, err);
    struct device_kernel *k = mem_calloc(1, sizeof *k);
    if (k == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a kernel");
    VkResult r = d->CreateShaderModule(d->handle, &info, NULL, &module);
    if (r == VK_SUCCESS) {
        r = make_pipeline(d, module, constants, n_constants, &k->pipeline);
        d->DestroyShaderModule(d->handle, module, NULL);
    }
    if (r != VK_SUCCESS) {
        mem_free(k);
        return device_failed(d, r, "the driver does not compile a shader", err);
    }
    k->next = d->kernels;
    d->kernels = k;
    *out = k;
    return ST_OK;
}

void device_free_kernels(struct device *d) {
    for (struct device_kernel *k = d->kernels, *next; k != NULL; k = next) {
        next = k->next;
        d->DestroyPipeline(d->handle, k->pipeline, NULL);
        mem_free(k);
    }
    d->kernels = NULL;
}

/* ---- recording ------------------------------------------------------------------------------- */

VkResult device_begin(struct device *d, VkCommandBuffer commands,
                      VkCommandBufferUsageFlags usage) {
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                           .flags = usage};
    return d->BeginCommandBuffer(commands, &info);
}

/* What was written before is seen by what reads (or writes) after. */
static void barrier(struct device *d, VkCommandBuffer commands, VkPipelineStageFlags to,
                    VkAccessFlags access) {
    const VkMemoryBarrier all = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                 .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT,
                                 .dstAccessMask = access};
    d->CmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, to, 0, 1, &all, 0,
                          NULL, 0, NULL);
}

static void record(struct device *d, VkCommandBuffer commands, const struct noted_run *run,
                   const void *push, bool first) {
    if (!first && run->beside == 0)
        barrier(d, commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
    if (first || d->bound != run->pipeline)
        d->CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, run->pipeline);
    d->bound = run->pipeline;
    if (run->push_bytes > 0)
        d->CmdPushConstants(commands, d->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                            run->push_bytes, push);
    d->CmdDispatch(commands, run->groups[0], run->groups[1], run->groups[2]);
}

static void record_list(struct device *d, VkCommandBuffer commands) {
    bool first = true;
    for (const struct noted_run *run = NULL; (run = commands_next(d->list, run)) != NULL;
         first = false)
        record(d, commands, run, run + 1, first);
}

/* And what is submitted later, and the host, sees what was written. */
static VkResult end_commands(struct device *d, VkCommandBuffer commands) {
    barrier(d, commands, VK_PIPELINE_STAGE_HOST_BIT | VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
            VK_ACCESS_HOST_READ_BIT | VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
    return d->EndCommandBuffer(commands);
}

/* A list that is too long to be kept is recorded while it comes. */
static void begin_long_list(struct device *d) {
    VkResult r = device_begin(d, d->runs, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT);
    d->is_long = true;
    if (r == VK_SUCCESS)
        record_list(d, d->runs);
    else
        d->record_status =
            device_failed(d, r, "no commands can be recorded", &d->record_problem);
}

static void note(struct device *d, const struct noted_run *run, const void *push) {
    if (!d->recording) {
        d->recording = true;
        d->is_long = false;
        d->record_status = ST_OK;
    }
    if (!d->is_long && !commands_note(d->list, run, push))
        begin_long_list(d);
    if (d->is_long && d->record_status == ST_OK)
        record(d, d->runs, run, push, false);
    d->counts.runs++;
}

static void run(struct device *d, const struct device_kernel *k, const void *push,
                size_t push_bytes, const uint32_t groups[3], bool beside) {
    uint32_t x = groups[0], y = groups[1], z = groups[2];
    uint8_t bytes[PUSH_BYTES] = {0};
    BUG_ON(push_bytes > PUSH_BYTES || push_bytes % 4 != 0);
    if (x == 0 || y == 0 || z == 0 || d->lost)
        return;
    if (x > DEVICE_GROUPS_MAX) {
        BUG_ON(y != 1);
        y = (uint32_t)div_up(x, DEVICE_GROUPS_MAX);
        x = DEVICE_GROUPS_MAX;
    }
    BUG_ON(y > DEVICE_GROUPS_MAX || z > DEVICE_GROUPS_MAX);
    const struct noted_run noted = {.pipeline = k->pipeline,
                                    .groups = {x, y, z},
                                    .push_bytes = (uint32_t)round_up(push_bytes, 8),
                                    .beside = beside};
    if (push_bytes != 0)
        memcpy(bytes, push, push_bytes);
    note(d, &noted, bytes);
}

void device_run(struct device *d, const struct device_kernel *k, const void *push,
                size_t push_bytes, uint32_t x, uint32_t y, uint32_t z) {
    run(d, k, push, push_bytes, (uint32_t[3]){x, y, z}, false);
}

void device_run_beside(struct device *d, const struct device_kernel *k, const void *push,
                       size_t push_bytes, uint32_t x, uint32_t y, uint32_t z) {
    run(d, k, push, push_bytes, (uint32_t[3]){x, y, z}, true);
}

bool device_has_work(const struct device *d) {
    return d->recording;
}

/* ---- running --------------------------------------------------------------------------------- */

static VkResult await(struct device *d) {
    uint64_t begin = clock_ns();
    VkResult r = VK_NOT_READY;
    if (d->physical.info.kind != DEVICE_SOFTWARE) /* whose threads need the processor */
        while (r == VK_NOT_READY && clock_ns() - begin < SPIN_NS)
            r = d->GetFenceStatus(d->handle, d->fence);
    if (r == VK_NOT_READY)
        r = d->WaitForFences(d->handle, 1, &d->fence, VK_TRUE, d->timeout_ns);
    d->counts.wait_ns += clock_ns() - begin;
    return r;
}

static bool hangs(const struct device *d) {
    return d->fault.kind == DEVICE_FAULT_HANG && d->counts.submissions == d->fault.n;
}

enum status device_submit(struct device *d, VkCommandBuffer commands, struct err *err) {
    const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                               .commandBufferCount = 1,
                               .pCommandBuffers = &commands};
    VkResult r = d->ResetFences(d->handle, 1, &d->fence);
    if (r == VK_SUCCESS)
        r = d->QueueSubmit(d->queue, 1, &info, d->fence);
    if (r != VK_SUCCESS)
        return device_failed(d, r, "commands cannot be submitted", err);
    d->counts.submissions++;
    r = hangs(d) ? VK_TIMEOUT : await(d);
    if (r == VK_SUCCESS && d->lost_after != 0 && d->counts.submissions >= d->lost_after)
        r = VK_ERROR_DEVICE_LOST;
    if (r == VK_TIMEOUT) {
        d->busy = true;
        err_set(&d->why_lost, ST_PEER_LOST,
                "the device %s did not answer within %llu s (LOCKSTEP_DEVICE_TIMEOUT)",
                d->physical.info.name, (unsigned long long)d->timeout_s);
        return device_is_lost(d, err);
    }
    return r == VK_SUCCESS ? ST_OK : device_failed(d, r, "while it ran commands", err);
}

/* *commands: of the list, as they were recorded for an equal one, or now. */
static VkResult commands_of_list(struct device *d, VkCommandBuffer *commands, bool *recorded) {
    VkCommandBuffer *buffer;
    VkResult r = VK_SUCCESS;
    *recorded = false;
    if (commands_find(d->list, &buffer)) {
        *commands = *buffer;
        return VK_SUCCESS;
    }
    if (*buffer == VK_NULL_HANDLE)
        r = device_allocate_commands(d, buffer);
    if (r == VK_SUCCESS)
        r = device_begin(d, *buffer, 0);
    if (r == VK_SUCCESS) {
        record_list(d, *buffer);
        r = end_commands(d, *buffer);
        *recorded = r == VK_SUCCESS;
    }
    *commands = *buffer;
    return r;
}

enum status device_finish(struct device *d, struct err *err) {
    VkCommandBuffer commands = d->runs;
    bool recorded = false;
    if (d->lost)
        return device_is_lost(d, err);
    if (!d->recording)
        return ST_OK;
    d->recording = false;
    VkResult r = VK_SUCCESS;
    if (d->record_status == ST_OK)
        r = d->is_long ? end_commands(d, d->runs) : commands_of_list(d, &commands, &recorded);
    commands_begin(d->list, recorded);
    if (d->record_status != ST_OK) {
        if (err != NULL)
            *err = d->record_problem;
        return d->record_status;
    }
    if (r != VK_SUCCESS)
        return device_failed(d, r, "no commands can be recorded", err);
    d->counts.recorded += recorded || d->is_long;
    return device_submit(d, commands, err);
}

struct device_counts device_counts(const struct device *d) {
    return d->counts;
}
#endif
