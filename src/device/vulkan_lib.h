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

/* Of VK_KHR_cooperative_matrix, which is younger than many headers. */
#define MATRIX_KHR_EXTENSION "VK_KHR_cooperative_matrix"
#define MATRIX_KHR_FEATURES_TYPE ((VkStructureType)1000506000)
#define MATRIX_KHR_SHAPE_TYPE ((VkStructureType)1000506001)
struct matrix_khr_shape {
    VkStructureType type;
    void *next;
    uint32_t m, n, k;
    VkComponentTypeNV a, b, c, result;
    VkBool32 saturates;
    VkScopeNV scope;
};
typedef VkResult(VKAPI_PTR *matrix_khr_shapes)(VkPhysicalDevice, uint32_t *,
                                               struct matrix_khr_shape *);

struct vulkan {
    VkInstance instance;
#define X(name) PFN_vk##name name;
    VULKAN_INSTANCE_CALLS(X)
#undef X
    /* Of extensions; NULL: the library knows none. */
    matrix_khr_shapes matrix_khr_shapes;
    PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesNV matrix_nv_shapes;
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

/* The columns of the matrix units that LOCKSTEP_DEVICE_MATRIX asks for; 0: of none. */
uint32_t device_emulated_matrix(void);

void physical_describe(const struct vulkan *v, VkPhysicalDevice handle, struct physical *out);

/* Of VK_KHR_shader_fma, which is younger than many headers. */
#define SHADER_FMA_EXTENSION "VK_KHR_shader_fma"
#define SHADER_FMA_FEATURES_TYPE ((VkStructureType)1000579000)
struct shader_fma_features {
    VkStructureType type;
    void *next;
    VkBool32 float16, float32, float64;
};

/* Of VK_KHR_cooperative_matrix and VK_NV_cooperative_matrix. */
struct matrix_features {
    VkStructureType type;
    void *next;
    VkBool32 matrix, robust;
};

/* The features of a device, as a chain that is asked for, and later for the device to be opened. */
struct feature_chain {
    VkPhysicalDeviceFeatures2 base;
    VkPhysicalDeviceVulkan11Features v11;
    VkPhysicalDeviceVulkan12Features v12;
    VkPhysicalDeviceShaderIntegerDotProductFeatures dot;
    struct shader_fma_features fma;
    struct matrix_features matrix;
};
/* Links it, with the extensions' parts where they are there, and asks the device. */
void physical_features(const struct vulkan *v, const struct physical *p,
                       struct feature_chain *out);

/* What of matrix units is in p->info, where these extensions are there; last of all (matrix.c). */
void physical_describe_matrix(const struct vulkan *v, struct physical *p, bool khr, bool nv);

#endif
