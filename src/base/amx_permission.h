/* amx_permission.h: asks the system for permission to use AMX's tile registers, which are 8 KiB
 * more to save with each thread's registers. */
#ifndef LOCKSTEP_BASE_AMX_PERMISSION_H
#define LOCKSTEP_BASE_AMX_PERMISSION_H

#include <stdbool.h>

/* Asks for it, on the first call, for all threads of the process. Any thread may call. */
bool amx_permitted(void);

#endif
