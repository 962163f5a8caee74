/* throughput.c: a sliding window of half seconds. */
#include "engine/throughput.h"

#include "base/util.h"

#include <string.h>

#define LEAST_S THROUGHPUT_SLOT_S /* what has just begun is not divided by less */

static int64_t slot_of(double now_s) {
    return (int64_t)(now_s / THROUGHPUT_SLOT_S);
}

void throughput_add(struct throughput *p, double now_s, uint64_t n) {
    int64_t slot = slot_of(now_s);
    if (n == 0)
        return;
    if (slot - p->slot >= THROUGHPUT_SLOTS) {
        memset(p->counts, 0, sizeof p->counts);
        p->begun_s = now_s;
        p->slot = slot;
    }
    while (p->slot < slot)
        p->counts[++p->slot % THROUGHPUT_SLOTS] = 0;
    p->counts[p->slot % THROUGHPUT_SLOTS] += n;
}

double throughput_per_s(const struct throughput *p, double now_s) {
    int64_t slot = slot_of(now_s), first = slot - THROUGHPUT_SLOTS + 1;
    double since_s = MAX(p->begun_s, (double)first * THROUGHPUT_SLOT_S);
    uint64_t n = 0;
    for (int64_t s = MAX(first, p->slot - THROUGHPUT_SLOTS + 1); s <= p->slot; s++)
        n += s >= 0 ? p->counts[s % THROUGHPUT_SLOTS] : 0;
    return n > 0 ? (double)n / MAX(now_s - since_s, LEAST_S) : 0;
}
