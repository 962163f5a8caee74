/* errand.h: a thread that does one thing at a time for its owner, who works on meanwhile.
 *
 * Beside a rank's pool: what mostly waits (for the network) needs no core of its own, and the
 * pool's threads keep theirs. Between errands the thread sleeps.
 *
 * One thread owns it: it alone calls what follows. What it wrote before errand_start() is
 * visible to the errand, and what the errand wrote is visible to it after errand_wait(). */
#ifndef LOCKSTEP_BASE_ERRAND_H
#define LOCKSTEP_BASE_ERRAND_H

#include "base/status.h"

struct errand;

enum status errand_open(struct errand **out, struct err *err);
/* Nothing may be under way. NULL is fine. */
void errand_close(struct errand *e);

/* Runs fn(arg) on the thread. Nothing may be under way. Allocates nothing. */
void errand_start(struct errand *e, void (*fn)(void *arg), void *arg);
/* Sleeps until the last errand has ended. Not to be called without one. */
void errand_wait(struct errand *e);

#endif
