/* init_pid1.h: lets a command run as PID 1 of a container. */
#ifndef LOCKSTEP_BASE_INIT_PID1_H
#define LOCKSTEP_BASE_INIT_PID1_H

/* If this process is PID 1: forks and returns in the child. The parent exits when the child
 * does, with its exit status (128 plus the number of a signal that killed it). Otherwise does
 * nothing. Call it before any thread is started and while SIGCHLD is not ignored. */
void init_pid1(void);

#endif
