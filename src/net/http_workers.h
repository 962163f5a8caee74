/* http_workers.h: the threads that call a server's handler. A request that takes long to read
 * delays neither the connections nor other requests. There is one thread for quick requests,
 * two for short ones, and one for long ones with a lower priority (enum http_lane).
 *
 * A lane keeps the order in which requests came. As many quick and short requests may wait as
 * there are connections; at most HTTP_LONG_WAITING long ones may. */
#ifndef LOCKSTEP_NET_HTTP_WORKERS_H
#define LOCKSTEP_NET_HTTP_WORKERS_H

#include "net/http.h"

struct http_workers;

enum status http_workers_open(struct http_workers **out, struct err *err);
/* After those that wait have had their turn. NULL is fine. */
void http_workers_close(struct http_workers *w);
/* http_request_handle(), on a thread of the lane. False: too many wait there. */
bool http_workers_give(struct http_workers *w, enum http_lane lane, struct http_request *r);

#endif
