/* raw.h: the bare medium of a link, without the fabric's checks, deadlines and order. It
 * measures the cost that no link can avoid.
 *
 * Between two processes that were forked after raw_open(). */
#ifndef LOCKSTEP_LINK_RAW_H
#define LOCKSTEP_LINK_RAW_H

#include "base/status.h"
#include "link/config.h"

#include <stdbool.h>
#include <stdint.h>

struct raw;

/* ST_UNSUPPORTED: this link has no bare medium to compare with. */
enum status raw_open(struct raw **out, enum fabric_link link, size_t max_bytes,
                     struct err *err);
void raw_close(struct raw *r);

/* One message of n bytes from buf to the other side, or from there; busy-polled. */
void raw_send(struct raw *r, int side, const void *buf, size_t n);
void raw_recv(struct raw *r, int side, void *buf, size_t n);

#endif
