/* verbs_system_linux.c: Linux's RDMA carries messages of more than one frame. */
#include "link/verbs_system.h"

enum status verbs_system_check(struct err *err) {
    (void)err;
    return ST_OK;
}
