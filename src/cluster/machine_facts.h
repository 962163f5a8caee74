/* machine_facts.h: what a machine has, and how much of it is free, for who looks at a cluster. */
#ifndef LOCKSTEP_CLUSTER_MACHINE_FACTS_H
#define LOCKSTEP_CLUSTER_MACHINE_FACTS_H

#include <jansson.h>

/* {"processor", "isa", "cores", "memory", "memory_free", "load", "disk_free"}: bytes, and the load
 * of the last minute. disk_free: of the disk of `folder`, null if it cannot be told. A new
 * reference; NULL: no memory. */
json_t *machine_facts(const char *folder);

#endif
