/* verbs_system_darwin.c: macOS's RDMA, by its version. Not yet run. */
#include "link/verbs_system.h"

#include <sys/sysctl.h>

enum status verbs_system_check(struct err *err) {
    char version[32] = "";
    size_t size = sizeof version - 1;
    sysctlbyname("kern.osproductversion", version, &size, NULL, 0);
    if (verbs_macos_carries_frames(version))
        return ST_OK;
    return err_set(err, ST_UNSUPPORTED, "RDMA needs macOS 26.3 or later, this is %s", version);
}
