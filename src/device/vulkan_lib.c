/* vulkan_lib.c: Loads Vulkan at run time and makes an instance. */
#include "base/util.h" /* a file without Vulkan's headers is not empty either */

#if defined(LOCKSTEP_HAS_VULKAN)
#include "device/vulkan_lib.h"

#include "base/mem.h"
#include "base/program.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

/* A driver's own library does as the loader, where it is the only one: it is told first for which
 * version of their interface it is called. */
static PFN_vkGetInstanceProcAddr of_driver(void *handle) {
    PFN_vkGetInstanceProcAddr get;
    VkResult(VKAPI_PTR * agree)(uint32_t *);
    uint32_t version = 5;
    *(void **)&get = dlsym(handle, "vk_icdGetInstanceProcAddr");
    *(void **)&agree = dlsym(handle, "vk_icdNegotiateLoaderICDInterfaceVersion");
    if (agree != NULL && agree(&version) != VK_SUCCESS)
        return NULL;
    return get;
}

static PFN_vkGetInstanceProcAddr load(const char *given, struct err *err) {
    static const char *const names[] = {"libvulkan.so.1", "libvulkan.1.dylib",
                                        "/opt/homebrew/lib/libvulkan.1.dylib",
                                        "libMoltenVK.dylib"};
    void *handle = given != NULL ? dlopen(given, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (size_t i = 0; given == NULL && handle == NULL && i < ARRAY_LEN(names); i++)
        handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        if (given != NULL)
            err_set(err, ST_UNSUPPORTED, "no Vulkan library: %.300s", dlerror());
        else
            err_set(err, ST_UNSUPPORTED, "no Vulkan library (libvulkan) is installed");
        return NULL;
    }
    PFN_vkGetInstanceProcAddr get;
    *(void **)&get = dlsym(handle, "vkGetInstanceProcAddr");
    if (get == NULL)
        get = of_driver(handle);
    if (get == NULL)
        err_set(err, ST_UNSUPPORTED, "the Vulkan library has no vkGetInstanceProcAddr");
    return get;
}

/* Drivers that lack parts of Vulkan, as Apple's, are listed only for those who ask for them. */
static bool lists_portable(PFN_vkGetInstanceProcAddr get) {
    PFN_vkEnumerateInstanceExtensionProperties list =
        (PFN_vkEnumerateInstanceExtensionProperties)get(
            NULL, "vkEnumerateInstanceExtensionProperties");
    VkExtensionProperties all[64];
    uint32_t n = ARRAY_LEN(all);
    VkResult r = list != NULL ? list(NULL, &n, all) : VK_ERROR_UNKNOWN;
    for (uint32_t i = 0; (r == VK_SUCCESS || r == VK_INCOMPLETE) && i < n; i++)
        if (str_eq(all[i].extensionName, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME))
            return true;
    return false;
}

static VkResult make_instance(PFN_vkGetInstanceProcAddr get, VkInstance *out) {
    static const char *const extensions[] = {VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME};
    const VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                   .pApplicationName = "lockstep",
                                   .apiVersion = VK_API_VERSION_1_3};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                 .pApplicationInfo = &app};
    PFN_vkCreateInstance create = (PFN_vkCreateInstance)get(NULL, "vkCreateInstance");
    if (create == NULL)
        return VK_ERROR_INCOMPATIBLE_DRIVER;
    if (lists_portable(get)) {
        info.flags = VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
        info.enabledExtensionCount = ARRAY_LEN(extensions);
        info.ppEnabledExtensionNames = extensions;
    }
    return create(&info, NULL, out);
}

static enum status make(struct vulkan *out, const char *given, struct err *err) {
    struct vulkan v;
    PFN_vkGetInstanceProcAddr get = load(given, err);
    if (get == NULL)
        return ST_UNSUPPORTED;
    VkResult r = make_instance(get, &v.instance);
    if (r == VK_ERROR_INCOMPATIBLE_DRIVER)
        return err_set(err, ST_UNSUPPORTED, "Vulkan has no driver for a device here");
    if (r != VK_SUCCESS)
        return err_set(err, ST_UNSUPPORTED, "Vulkan does not start (error %d)", (int)r);
#define X(name) v.name = (PFN_vk##name)get(v.instance, "vk" #name);
    VULKAN_INSTANCE_CALLS(X)
#undef X
#define X(name)                             \
    if (v.name == NULL)                     \
        return err_set(err, ST_UNSUPPORTED, \
                       "the Vulkan library has no vk" #name ": it is too old");
    VULKAN_INSTANCE_CALLS(X)
#undef X
    v.matrix_khr_shapes =
        (matrix_khr_shapes)get(v.instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    v.matrix_nv_shapes = (PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesNV)get(
        v.instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesNV");
    *out = v;
    return ST_OK;
}

enum status vulkan_get(struct vulkan *out, struct err *err) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct vulkan made;
    static char of[1024]; /* the library that it was made of */
    const char *given = env_get("LOCKSTEP_VULKAN_LIB");
    enum status st = ST_OK;
    pthread_mutex_lock(&lock);
    if (made.instance == NULL || !str_eq(of, given != NULL ? given : "")) {
        struct vulkan v;
        st = make(&v, given, err);
        if (st == ST_OK) {
            made = v;
            snprintf(of, sizeof of, "%s", given != NULL ? given : "");
        }
    }
    if (st == ST_OK)
        *out = made;
    pthread_mutex_unlock(&lock);
    return st;
}

enum status vulkan_devices(const struct vulkan *v, VkPhysicalDevice **out, uint32_t *n,
                           struct err *err) {
    uint32_t count = 0;
    VkResult r = v->EnumeratePhysicalDevices(v->instance, &count, NULL);
    VkPhysicalDevice *list = mem_calloc(MAX(count, 1u), sizeof *list);
    if (list == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for the list of devices");
    if (r == VK_SUCCESS)
        r = v->EnumeratePhysicalDevices(v->instance, &count, list);
    if (r != VK_SUCCESS && r != VK_INCOMPLETE)
        count = 0;
    if (count == 0) {
        mem_free(list);
        return err_set(err, ST_NOT_FOUND, "Vulkan finds no device here");
    }
    *out = list;
    *n = count;
    return ST_OK;
}
#endif
