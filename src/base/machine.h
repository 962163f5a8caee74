/* machine.h: this machine's cores, and which of them are close to the same memory.
 *
 * A machine with several sockets (or with a divided socket) has several NUMA domains. Cores
 * reach their own domain's memory at full speed, and other domains' memory at half speed or
 * less. So each rank on such a machine uses one part of it. Its weights are there too, since
 * Linux puts a page in the domain of the core that first writes it.
 *
 * Only cores that this process may use count (taskset, containers). Their number is also
 * limited by the CPU quota (base/quota.h) at the time of the first call. A core with two
 * hardware threads counts as one core. hwloc's HWLOC_SYNTHETIC describes a machine that does
 * not exist. */
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
/* From now on, the calling thread and the threads that it starts run only in the domains of
 * that part. Part 0 of 1 is the whole machine again. On a machine with one domain nothing
 * changes. */
void machine_keep_to(int nth, int n);

#endif
