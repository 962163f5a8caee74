/* machine.h: this machine's cores, and which of them are close to the same memory.
 *
 * A machine with several sockets (or one whose socket is divided) is several NUMA domains:
 * cores reach their own domain's memory at full speed and the others' at a half of it or less.
 * Ranks on such a machine each keep to a part of it, and have their weights there, since Linux
 * gives a page to the domain of the core that first writes it.
 *
 * Only cores that this process may use count (taskset, containers), and no more than it may use
 * at once (base/quota.h), as it was when it was first asked; a core with two hardware threads
 * is one core. For a machine that is not there, hwloc's HWLOC_SYNTHETIC says how it looks. */
#ifndef LOCKSTEP_BASE_MACHINE_H
#define LOCKSTEP_BASE_MACHINE_H

#include <stdbool.h>

int machine_n_cores(void);
/* At least 1. Where the system does not tell, and on every Mac, 1. */
int machine_n_domains(void);

/* May this process use fewer of them than others may? A launcher that binds what it starts has
 * shared them out. */
bool machine_is_bound(void);

/* The cores of the nth of n parts: whole domains, or, of more parts than domains, a fraction of
 * one. At least 1. */
int machine_part_cores(int nth, int n);
/* From now on the calling thread, and those that it starts, run in the domains of that part
 * only; the only part (0 of 1) is everywhere again. On a machine of one domain nothing changes. */
void machine_keep_to(int nth, int n);

#endif
