/* sleep.h: when a model that nobody asks is unloaded. Functions of numbers, without a clock. */
#ifndef LOCKSTEP_NODE_SLEEP_H
#define LOCKSTEP_NODE_SLEEP_H

#include "node/report.h"

/* Does a say it later than b, or of a later server? */
bool sleep_is_newer(const struct keep *a, const struct keep *b);
/* For how long the model may go unasked, ms: what a client has said since it was last asleep
 * (slept_term: the term in which it was, 0: never), or else what its deployment says (idle_s; 0:
 * nothing). DURATION_NEVER: for ever. */
int64_t sleep_idle_ms(json_int_t idle_s, const struct keep *keep, uint64_t slept_term);
/* Whether it is unloaded now. unused_s: since a question was last under way. in_use: one is; or
 * that is not known for now. */
bool sleep_is_due(int64_t idle_ms, double unused_s, bool in_use);

#endif
