/* engine_states.c: the states of sequences, and their snapshots.
 *
 * A sequence leaves snapshots at three kinds of places. One is the end of its prompt's last
 * whole page: the next request of a conversation begins in the same way at least up to there.
 * Others are every SNAPSHOT_EVERY tokens before that, and the end of each generated page, where
 * the new one replaces the last. A snapshot costs no copy: its slot is left alone, and the
 * sequence continues in another. */
#include "base/util.h"
#include "engine/engine_internal.h"

#define SNAPSHOT_EVERY (64 * KV_PAGE)

void states_find(struct engine *e, struct seq *s) {
    uint32_t *pages = s->slot->pages;
    size_t n = s->n_pages;
    s->from_state = s->own_state = s->snapshot_slot = STATE_NONE;
    if (e->states == NULL)
        return;
    while (n > 0 && states_of(e->states, pages[n - 1]) == STATE_NONE)
        n--;
    pages_release(e->pages, pages + n, s->n_pages - n);
    s->n_pages = n;
    s->from_state = n > 0 ? states_of(e->states, pages[n - 1]) : STATE_NONE;
    if (n > 0)
        states_hold(e->states, s->from_state);
}

bool states_begin(struct engine *e, struct seq *s) {
    if (e->states == NULL)
        return true;
    s->snapshot_page = PAGE_NONE;
    s->snapshot_at = 0;
    s->own_state = states_take(e->states);
    return s->own_state != STATE_NONE;
}

void states_end(struct engine *e, struct seq *s) {
    if (e->states == NULL)
        return;
    states_release(e->states, s->from_state);
    states_release(e->states, s->own_state);
    states_release(e->states, s->snapshot_slot);
    s->from_state = s->own_state = s->snapshot_slot = STATE_NONE;
}

/* The last position up to `end` at which a snapshot is wanted. */
static size_t snapshot_before(const struct seq *s, size_t end) {
    size_t last = (s->n_ids - 1) / KV_PAGE * KV_PAGE;
    if (s->state == SEQ_DECODE)
        return end % KV_PAGE == 0 ? end : 0;
    return end >= last ? last : end / SNAPSHOT_EVERY * SNAPSHOT_EVERY;
}

void states_plan(struct engine *e, struct seq *s) {
    s->snapshot_at = 0;
    if (e->states == NULL || e->cfg.no_prefix_cache || s->n_feed == 0)
        return;
    size_t at = snapshot_before(s, s->n_fed + s->n_feed);
    if (at <= s->n_fed)
        return;
    s->snapshot_slot = states_take(e->states);
    s->snapshot_at = s->snapshot_slot != STATE_NONE ? at : 0;
}

uint32_t states_runs(struct engine *e, const struct seq *s, struct step_run run,
                     struct step_run out[ENGINE_RUNS]) {
    out[0] = run;
    if (e->states == NULL)
        return 1;
    out[0].state_from = s->from_state;
    out[0].state = s->own_state;
    if (s->snapshot_at == 0)
        return 1;
    out[0].state = s->snapshot_slot;
    out[0].n_tokens = (uint32_t)s->snapshot_at - run.pos;
    if (out[0].n_tokens == run.n_tokens)
        return 1;
    out[1] = run;
    out[1].pos += out[0].n_tokens;
    out[1].n_tokens -= out[0].n_tokens;
    out[1].state_from = s->snapshot_slot;
    out[1].state = s->own_state;
    return 2;
}

static void go_on_from(struct engine *e, struct seq *s, uint32_t slot) {
    states_hold(e->states, slot);
    states_release(e->states, s->from_state);
    s->from_state = slot;
}

void states_step_done(struct engine *e, struct seq *s) {
    if (e->states == NULL)
        return;
    go_on_from(e, s, s->snapshot_at == s->n_fed ? s->snapshot_slot : s->own_state);
    if (s->snapshot_at == 0)
        return;
    uint32_t page = s->slot->pages[s->snapshot_at / KV_PAGE - 1];
    states_keep(e->states, s->snapshot_slot, page);
    states_release(e->states, s->snapshot_slot);
    s->snapshot_slot = STATE_NONE;
    if (s->snapshot_at > s->n_prompt) {
        if (s->snapshot_page != PAGE_NONE)
            states_drop(e->states, s->snapshot_page);
        s->snapshot_page = page;
    }
    s->snapshot_at = 0;
}
