/* names.c: the names of kinds of devices and of their features. */
#include "device/device.h"

#include "base/util.h"

const char *device_feature_name(enum device_feature f) {
    static const char *const names[] = {"fma", "fma-khr", "f64", "int64", "dot", "matrix"};
    _Static_assert(ARRAY_LEN(names) == DEVICE_N_FEATURES, "one name each");
    return names[f];
}

const char *device_kind_name(enum device_kind k) {
    static const char *const names[] = {"discrete", "integrated", "software", "other"};
    return names[k];
}
