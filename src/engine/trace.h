/* trace.h: writes what all ranks did as a file for a browser's trace viewer (chrome://tracing,
 * ui.perfetto.dev). */
#ifndef LOCKSTEP_ENGINE_TRACE_H
#define LOCKSTEP_ENGINE_TRACE_H

#include "base/status.h"
#include "model/trace.h"

/* Chrome's JSON array format, a process per rank: steps, in them "compute" and the calls
 * between ranks, and a rank's waits between two steps. events: n[0] of rank 0, then n[1] of
 * rank 1, ...; times in ns from a common zero. Written to PATH.part, renamed when it is
 * complete. */
enum status trace_write(const char *path, const struct trace_event *events, const size_t *n,
                        int n_ranks, struct err *err);

#endif
