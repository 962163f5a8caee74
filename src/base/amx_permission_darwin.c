/* amx_permission_darwin.c: no Mac has AMX: those with Intel's processors are older. */
#include "base/amx_permission.h"

bool amx_permitted(void) {
    return false;
}
