/* thread.h: the library's own threads. */
#ifndef LOCKSTEP_BASE_THREAD_H
#define LOCKSTEP_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* pthread_create(), with every signal but SIGBUS blocked in the new thread, since the main
 * thread handles signals. The stack has at least 1 MiB. The floating-point environment is the
 * default one, whatever the caller's is. Returns 0 or an errno, as pthread_create() does. */
int thread_start(pthread_t *out, void *(*fn)(void *), void *arg);

/* The calling thread's work gives way to others' from here on, where both want a core. */
void thread_lower_priority(void);

/* Calls fn(arg) with this much stack: on this thread if enough of its stack is left, otherwise
 * on a new thread, for which it waits. Meanwhile signals for this thread wait too; signals for
 * the process reach the other thread. If no thread can be started, it calls fn on this thread
 * anyway. */
void thread_call(size_t stack_bytes, void (*fn)(void *arg), void *arg);

/* Of the calling thread's stack. Its first call may allocate and read files. */
size_t thread_stack_left(void);

/* pthread_cond_init() for thread_cond_wait_until(). The latter is pthread_cond_wait() until a
 * time of clock_ns(); false: the time has come. (pthread_cond_timedwait() uses the wall clock:
 * if it is set back by an hour, the wait takes an hour longer.) */
void thread_cond_init(pthread_cond_t *c);
bool thread_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *m, uint64_t until_ns);

#endif
