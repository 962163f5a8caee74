/* vulkan_lib.h: Vulkan, loaded at run time: its calls, an instance, and what its devices can. */
#ifndef LOCKSTEP_DEVICE_VULKAN_LIB_H
#define LOCKSTEP_DEVICE_VULKAN_LIB_H

#include "device/device.h"

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#define VULKAN_INSTANCE_CALLS(X)              \
                                              \
    X(EnumeratePhysicalDevices)               \
    X(EnumerateDeviceExtensionProperties)     \
    X(GetPhysicalDeviceProperties2)           \
    X(GetPhysicalDeviceFeatures2)             \
    X(GetPhysicalDeviceMemoryProperties)      \
    X(GetPhysicalDeviceQueueFamilyProperties) \
    X(CreateDevice)                           \
    X(GetDeviceProcAddr)

struct vulkan {
    VkInstance instance;
#define X(name) PFN_vk##name name;
    VULKAN_INSTANCE_CALLS(X)
#undef X
};

/* ST_UNSUPPORTED: there is no library, or it has no driver. A process has one instance for good:
 * with the last of them, drivers would be unloaded, which have threads and leave memory behind. */
enum status vulkan_get(struct vulkan *out, struct err *err);
/* Free *out with mem_free(). */
enum status vulkan_devices(const struct vulkan *v, VkPhysicalDevice **out, uint32_t *n,
                           struct err *err);

/* A device before it is opened. */
struct physical {
    VkPhysicalDevice handle;
    struct device_info info;
    VkPhysicalDeviceMemoryProperties memory;
    uint64_t max_map;
    uint32_t queue_family;
    /* Extensions to be enabled: VK_KHR_shader_fma, VK_KHR_shader_integer_dot_product (a part of
     * Vulkan 1.3), VK_KHR_portability_subset (must be, where it is). */
    bool fma_khr, dot_khr, portability;
};
/* Whether LOCKSTEP_DEVICE_WITHOUT or LOCKSTEP_DEVICE_PROFILE takes it away. */
bool device_is_without(const char *feature);

void physical_describe(const struct vulkan *v, VkPhysicalDevice handle, struct physical *out);

/* Of VK_KHR_shader_fma, which is younger than many headers. */
#define SHADER_FMA_EXTENSION "VK_KHR_shader_fma"
#define SHADER_FMA_FEATURES_TYPE ((VkStructureType)1000579000)
struct shader_fma_features {
    VkStructureType type;
    void *next;
    VkBool32 float16, float32, float64;
};

/* The features of a device, as a chain that is asked for, and later for the device to be opened. */
struct feature_chain {
    VkPhysicalDeviceFeatures2 base;
    VkPhysicalDeviceVulkan11Features v11;
    VkPhysicalDeviceVulkan12Features v12;
    VkPhysicalDeviceShaderIntegerDotProductFeatures dot;
    struct shader_fma_features fma;
};
/* Links it, with the extensions' parts where they are there, and asks the device. */
void physical_features(const struct vulkan *v, const struct physical *p,
                       struct feature_chain *out);

#endif
