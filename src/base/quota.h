/* quota.h: the CPU time that a cgroup (version 1 or 2) allows this process (docker run --cpus,
 * systemd's CPUQuota). With more threads than that, the system would stop threads in the middle
 * of their work. */
#ifndef LOCKSTEP_BASE_QUOTA_H
#define LOCKSTEP_BASE_QUOTA_H

/* In cores, 2.5 for 250 % of one; INFINITY: no limit, or none that can be read. */
double quota_cores(void);

/* The same for a process whose groups are `groups` (the text of /proc/self/cgroup), in the
 * hierarchies below root (/sys/fs/cgroup). */
double quota_of(const char *root, const char *groups);

#endif
