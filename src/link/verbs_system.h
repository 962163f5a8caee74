/* verbs_system.h: whether this system's RDMA carries messages of more than one frame. All but
 * the smallest class of slots (verbs_device.h) need it. macOS has it from 26.3 on; older
 * versions lose or damage such messages silently. */
#ifndef LOCKSTEP_LINK_VERBS_SYSTEM_H
#define LOCKSTEP_LINK_VERBS_SYSTEM_H

#include "base/status.h"

#include <stdbool.h>
#include <stdlib.h>

/* ST_UNSUPPORTED: it does not. */
enum status verbs_system_check(struct err *err);

/* version: of macOS, as in "26.3" or "26.3.1". */
static inline bool verbs_macos_carries_frames(const char *version) {
    char *end;
    long major = strtol(version, &end, 10), minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    return major > 26 || (major == 26 && minor >= 3);
}

#endif
