/* rejoin.c: When a machine that was left out is asked again, and when it is taken in. */
#include "engine/rejoin.h"

#include "base/util.h"

void rejoin_init(struct rejoin *l, double idle_s, double latest_s) {
    *l = (struct rejoin){.idle_s = idle_s, .latest_s = latest_s};
}

static void is_lost(struct rejoin_machine *m, double pause_s, double now_s) {
    double proven_s =
        MIN(MAX(REJOIN_PROVEN_PAUSES * pause_s, REJOIN_PROVEN_MIN_S), REJOIN_PROVEN_MAX_S);
    bool soon = m->joining || (m->joined_s != 0 && now_s - m->joined_s < proven_s);
    m->n_failed = soon ? m->n_failed + 1 : 0;
    m->joining = false;
    m->every_s = m->n_failed > 0 ? MAX(REJOIN_FIRST_S, pause_s) : REJOIN_FIRST_S;
    for (int i = 0; i < m->n_failed && m->every_s < REJOIN_PATIENCE_S; i++)
        m->every_s *= 2;
    m->every_s = MIN(m->every_s, REJOIN_PATIENCE_S);
    m->ask_s = now_s + m->every_s;
}

void rejoin_update(struct rejoin *l, uint64_t out, double now_s) {
    for (int i = 0; i < FABRIC_MAX_RANKS; i++) {
        bool was = l->out >> i & 1, is = out >> i & 1;
        if (is && !was)
            is_lost(&l->machines[i], l->pause_s, now_s);
        l->machines[i].joining |= was && !is;
    }
    l->out = out;
    l->asked &= out;
    l->back &= out;
}

void rejoin_joined(struct rejoin *l, double now_s) {
    for (int i = 0; i < FABRIC_MAX_RANKS; i++) {
        if (l->machines[i].joining)
            l->machines[i].joined_s = now_s;
        l->machines[i].joining = false;
    }
}

uint64_t rejoin_ask(struct rejoin *l, double now_s) {
    uint64_t due = 0;
    for (int i = 0; i < FABRIC_MAX_RANKS; i++)
        if ((l->out & ~l->asked) >> i & 1 && now_s >= l->machines[i].ask_s)
            due |= (uint64_t)1 << i;
    l->asked |= due;
    return due;
}

void rejoin_drop(struct rejoin *l, uint64_t machines) {
    l->asked &= ~machines;
}

void rejoin_hear(struct rejoin *l, int machine, bool is_back, double now_s) {
    uint64_t bit = (uint64_t)1 << machine;
    struct rejoin_machine *m = &l->machines[machine];
    if (is_back && l->back == 0)
        l->back_s = now_s;
    l->back = is_back ? l->back | bit : l->back & ~bit;
    l->asked &= ~bit;
    m->every_s = is_back ? REJOIN_AGAIN_S : MIN(1.5 * m->every_s, REJOIN_RARELY_S);
    m->ask_s = now_s + m->every_s;
}

uint64_t rejoin_take_in(const struct rejoin *l, double busy_s, double now_s) {
    double latest_s = MIN(REJOIN_LATEST_PAUSES * l->pause_s, l->latest_s);
    bool now = now_s - busy_s >= l->idle_s || now_s - l->back_s >= latest_s;
    return now ? l->back : 0;
}
