/* meter.h: measures how fast the links are: ping-pong and sum over each link. A raw loop over
 * the same medium runs beside it (raw.h), so the difference is the fabric's own cost. */
#ifndef LOCKSTEP_FABRIC_METER_H
#define LOCKSTEP_FABRIC_METER_H

#include "fabric/fabric.h"

#define METER_MAX_ROWS 64

struct meter_config {
    enum fabric_link link;
    int n_ranks;
    int n_rounds;        /* interleaved: every size and op once per round */
    size_t max_bytes;    /* sizes 8, 64, 512, 2 Ki, 8 Ki, 64 Ki, 1 Mi up to this */
    const char *emulate; /* NULL, or what struct fabric_config's emulate says */
};

struct meter_row {
    const char *link, *op; /* "pingpong": one way, of rank 0 and 1; "sum": over all ranks */
    size_t bytes;          /* on the wire: a sum of bytes / 4 elements */
    double median_us, p99_us;
    double raw_median_us; /* one way over the bare medium; 0: not measured */
    /* Both sides send, then both receive, as in a sum of two ranks; over the bare medium. */
    double raw_exchange_us;
};

/* Starts n_ranks processes on this host, one per core as far as there are cores, measures, and
 * ends them. Blocks for about a second per link. rows [METER_MAX_ROWS]. */
enum status meter_run(const struct meter_config *cfg, struct meter_row *rows, size_t *n_rows,
                      struct err *err);

#endif
