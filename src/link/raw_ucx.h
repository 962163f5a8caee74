/* raw_ucx.h: raw.h over UCX: one tagged message after the other, over the transport that UCX
 * chooses. */
#ifndef LOCKSTEP_LINK_RAW_UCX_H
#define LOCKSTEP_LINK_RAW_UCX_H

#include "base/status.h"

#include <stddef.h>

struct raw_ucx;

/* Before the fork: only memory for the two to meet in. Each process starts its own UCX with its
 * first message. ST_UNSUPPORTED: built without UCX. */
enum status raw_ucx_open(struct raw_ucx **out, struct err *err);
void raw_ucx_close(struct raw_ucx *r);

void raw_ucx_send(struct raw_ucx *r, int side, const void *buf, size_t n);
void raw_ucx_recv(struct raw_ucx *r, int side, void *buf, size_t n);

#endif
