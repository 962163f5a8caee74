#include "link/verbs_system.h"

enum status verbs_system_check(struct err *err) {
    (void)err;
    return ST_OK;
}
