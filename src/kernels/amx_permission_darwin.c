/* amx_permission_darwin.c: no Mac has AMX: those with Intel's processors are older. */
#include "kernels/amx_permission.h"

bool amx_permitted(void) {
    return false;
}
