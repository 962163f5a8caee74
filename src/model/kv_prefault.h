/* kv_prefault.h: a thread that makes pages of the KV cache resident before a step writes to
 * them.
 *
 * At the first write to a page the system clears its memory, and the host of a virtual machine
 * first has to find it. That takes 1 to 60 ms, and every stream of the step would wait. Page
 * ids are first used in ascending order (engine/pages.h). So a few pages beyond the largest id
 * so far are kept resident. A cache that has been used up to its end costs nothing any more.
 * The thread never decides anything. If the system cannot do it (before Linux 5.14, macOS), or
 * the steps are faster, pages become resident as they are written to. */
#ifndef LOCKSTEP_MODEL_KV_PREFAULT_H
#define LOCKSTEP_MODEL_KV_PREFAULT_H

#include "model/kv_cache.h"

#define KV_AHEAD_PAGES 16
/* While no step runs: this many bytes of each kind, but no more than this share of the memory
 * that the machine had left at first. */
#define KV_AHEAD_IDLE_BYTES ((size_t)2 << 30)
#define KV_AHEAD_IDLE_SHARE 8

struct kv_prefault;

/* kv is borrowed until kv_prefault_close(). NULL if no thread can be started; the calls below
 * accept NULL. */
struct kv_prefault *kv_prefault_open(const struct kv_cache *kv);
void kv_prefault_close(struct kv_prefault *a);

/* One thread at a time: a step begins, is going to write to this page, has ended. */
void kv_prefault_step_begin(struct kv_prefault *a);
void kv_prefault_note(struct kv_prefault *a, enum kv_kind kind, uint32_t page);
void kv_prefault_step_end(struct kv_prefault *a);

#endif
