/* trace.h: records when this rank's thread 0 was in a step, between ranks, or waiting for a sum
 * in parallel to its step. It also records when that sum was under way. Written without
 * allocation or locks while it runs; engine/trace.h makes a file of all ranks' traces. */
#ifndef LOCKSTEP_MODEL_TRACE_H
#define LOCKSTEP_MODEL_TRACE_H

#include <stddef.h>
#include <stdint.h>

enum trace_kind {
    TRACE_STEP,
    TRACE_SUM,
    TRACE_SUM_BESIDE,
    TRACE_WAIT,
    TRACE_RECEIVE,
    TRACE_SEND,
    TRACE_GATHER,
    TRACE_TELL,
    TRACE_N_KINDS
};

/* Goes over the wire between ranks of the same build. */
struct trace_event {
    uint64_t begin_ns, end_ns; /* clock_ns() of this rank's machine */
    uint32_t kind;
    uint32_t size; /* a step: tokens; sums, waits: elements; else bytes */
};

struct trace {
    struct trace_event *events; /* [cap], borrowed */
    size_t n, cap;              /* when it is full, what comes later is not noted */
};

static inline void trace_note(struct trace *t, enum trace_kind kind, uint64_t begin_ns,
                              uint64_t end_ns, size_t size) {
    if (t->n < t->cap)
        t->events[t->n++] = (struct trace_event){begin_ns, end_ns, kind, (uint32_t)size};
}

#endif
