/* first.h: a command that is PID 1. */
#ifndef LOCKSTEP_BASE_FIRST_H
#define LOCKSTEP_BASE_FIRST_H

/* As PID 1: goes on in a child and ends, with the child's exit status (of one that a signal killed:
 * 128 and its number), when the child does. Otherwise does nothing. Before any thread is started;
 * SIGCHLD is not ignored. */
void first_step_aside(void);

#endif
