/* kv_ahead.h: a thread that makes pages of the KV cache resident before a step writes to them.
 *
 * The first write to a page has the system clear its memory, and the host of a virtual machine find it
 * first: 1 to 60 ms, for which every stream of the step would wait. Page ids are first used in ascending
 * order (engine/pages.h), so a few beyond the largest one so far are kept ready. A cache that has
 * been used up to its end costs nothing any more. It never decides anything: where the system cannot do it
 * (before Linux 5.14, macOS), or the steps are faster, pages become resident as they are written to. */
#ifndef LOCKSTEP_MODEL_KV_AHEAD_H
#define LOCKSTEP_MODEL_KV_AHEAD_H

#include "model/kv.h"

#define KV_AHEAD_PAGES 16

struct kv_ahead;

/* kv is borrowed until kv_ahead_close(). NULL if there is no thread to be had, which the calls below bear. */
struct kv_ahead *kv_ahead_open(const struct kv_cache *kv);
void kv_ahead_close(struct kv_ahead *a);

/* A step is going to write to this page. One thread at a time. */
void kv_ahead_note(struct kv_ahead *a, enum kv_kind kind, uint32_t page);

#endif
