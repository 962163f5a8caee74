/* states.h: which sequence or page owns which state slot (model/recurrent_states.h): rank 0's
 * book-keeping.
 *
 * A slot is free, held (by sequences), or kept. A kept slot is a snapshot: the state after the
 * last token of a known page (pages.h), from which another sequence may continue. A state
 * cannot be rolled back, so a cached prefix can be reused only at these positions. When slots
 * run out, the least recently used snapshot that no sequence holds is dropped.
 *
 * One thread. Nothing is allocated after states_open(). */
#ifndef LOCKSTEP_ENGINE_STATES_H
#define LOCKSTEP_ENGINE_STATES_H

#include "base/status.h"
#include "engine/pages.h"
#include "model/recurrent_states.h"

struct states;

/* pages: borrowed until states_close(); snapshots of pages that it forgets are let go. */
enum status states_open(struct states **out, uint32_t n_slots, struct pages *pages,
                        uint32_t n_pages, struct err *err);
void states_close(struct states *s); /* NULL is fine */

/* A slot, held once; STATE_NONE: sequences hold all. */
uint32_t states_take(struct states *s);
void states_hold(struct states *s, uint32_t slot);
void states_release(struct states *s, uint32_t slot); /* STATE_NONE is fine */

/* A held slot becomes the snapshot of a known page that the caller holds. Where there is one
 * already it stays: both have the same bits. */
void states_keep(struct states *s, uint32_t slot, uint32_t page);
/* The snapshot of a page; STATE_NONE: it has none. */
uint32_t states_of(const struct states *s, uint32_t page);
/* Lets go of a page's snapshot, if there is one and no sequence holds it. */
void states_drop(struct states *s, uint32_t page);

struct states_count {
    size_t total, held, kept; /* held: by sequences */
};
struct states_count states_count(const struct states *s);
/* How many states_take() would succeed now. */
size_t states_available(const struct states *s);

#endif
