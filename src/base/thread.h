/* thread.h: threads of the library's own. */
#ifndef LOCKSTEP_BASE_THREAD_H
#define LOCKSTEP_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* pthread_create() with every signal but SIGBUS blocked in the new thread: signals are the main
 * thread's business; with a stack of 1 MiB at least; and with the default floating-point
 * environment, whatever the caller's is. Returns what that returns: 0, or an errno. */
int thread_start(pthread_t *out, void *(*fn)(void *), void *arg);

/* The calling thread's work gives way to others' from here on, where both want a core. */
void thread_lower_priority(void);

/* Calls fn(arg): on this thread if it has that much of its stack left, else on a thread with a
 * stack of that size, for which it waits; signals meant for this thread wait as well, those for
 * the process reach the other. Where no thread can be had, on this one all the same. */
void thread_call(size_t stack_bytes, void (*fn)(void *arg), void *arg);

/* Of the calling thread's stack. Its first call may allocate and read files. */
size_t thread_stack_left(void);

/* pthread_cond_init() for thread_cond_wait_until(), which is pthread_cond_wait() until that
 * time of clock_ns() at most; false: it has come. (pthread_cond_timedwait() goes by the wall's
 * clock: where somebody sets that back by an hour, it waits an hour longer.) */
void thread_cond_init(pthread_cond_t *c);
bool thread_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, uint64_t until_ns);

#endif
