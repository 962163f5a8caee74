/* sleep.c: Decides when a model that nobody asks is unloaded. */
#include "node/sleep.h"

#include "base/duration.h"

bool sleep_is_newer(const struct keep *a, const struct keep *b) {
    if (a->term != b->term)
        return a->term > b->term;
    return a->at_ms != b->at_ms ? a->at_ms > b->at_ms : a->ms > b->ms;
}

int64_t sleep_idle_ms(json_int_t idle_s, const struct keep *keep, uint64_t slept_term) {
    if (keep->term > slept_term)
        return keep->ms;
    return idle_s > 0 ? (int64_t)idle_s * 1000 : DURATION_NEVER;
}

bool sleep_is_due(int64_t idle_ms, double unused_s, bool in_use) {
    return !in_use && idle_ms != DURATION_NEVER && unused_s * 1e3 >= (double)idle_ms;
}
