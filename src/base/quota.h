/* quota.h: how much CPU time the system lets this process have, where somebody has set a limit
 * (docker run --cpus, systemd's CPUQuota): a cgroup's, of version 1 or 2. More threads than
 * that would only be stopped in the middle of their work. */
#ifndef LOCKSTEP_BASE_QUOTA_H
#define LOCKSTEP_BASE_QUOTA_H

/* In cores, 2.5 for 250 % of one; INFINITY: no limit, or none that can be read. */
double quota_cores(void);

/* The same, of a process whose groups are `groups` (/proc/self/cgroup's text), in the
 * hierarchies below root (/sys/fs/cgroup). */
double quota_of(const char *root, const char *groups);

#endif
