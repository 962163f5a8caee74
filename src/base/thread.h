/* thread.h: threads of the library's own. */
#ifndef LOCKSTEP_BASE_THREAD_H
#define LOCKSTEP_BASE_THREAD_H

#include <pthread.h>

/* pthread_create() with every signal blocked in the new thread: signals are the main thread's business; and with a stack of 1 MiB at
 * least. Returns what that returns: 0, or an errno. */
int thread_start(pthread_t *out, void *(*fn)(void *), void *arg);

#endif
