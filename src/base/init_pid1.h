/* init_pid1.h: a command that is PID 1. */
#ifndef LOCKSTEP_BASE_INIT_PID1_H
#define LOCKSTEP_BASE_INIT_PID1_H

/* As PID 1: goes on in a child and ends, with the child's exit status (of one that a signal killed:
 * 128 and its number), when the child does. Otherwise does nothing. Before any thread is started;
 * SIGCHLD is not ignored. */
void init_pid1(void);

#endif
