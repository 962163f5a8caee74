/* kv_prefault.h: a thread that makes pages of the KV cache resident before a step writes to them.
 *
 * The first write to a page has the system clear its memory, and the host of a virtual machine
 * find it first: 1 to 60 ms, for which every stream of the step would wait. Page ids are first
 * used in ascending order (engine/pages.h), so a few beyond the largest one so far are kept
 * ready. A cache that has been used up to its end costs nothing any more. It never decides
 * anything: where the system cannot do it (before Linux 5.14, macOS), or the steps are faster,
 * pages become resident as they are written to. */
#ifndef LOCKSTEP_MODEL_KV_PREFAULT_H
#define LOCKSTEP_MODEL_KV_PREFAULT_H

#include "model/kv_cache.h"

#define KV_AHEAD_PAGES 16
/* While no step runs so many bytes of each kind, but no more than this share of what the
 * machine had left at first. */
#define KV_AHEAD_IDLE_BYTES ((size_t)2 << 30)
#define KV_AHEAD_IDLE_SHARE 8

struct kv_prefault;

/* kv is borrowed until kv_prefault_close(). NULL if there is no thread to be had, which the calls
 * below bear. */
struct kv_prefault *kv_prefault_open(const struct kv_cache *kv);
void kv_prefault_close(struct kv_prefault *a);

/* One thread at a time: a step begins, is going to write to this page, has ended. */
void kv_prefault_step_begin(struct kv_prefault *a);
void kv_prefault_note(struct kv_prefault *a, enum kv_kind kind, uint32_t page);
void kv_prefault_step_end(struct kv_prefault *a);

#endif
