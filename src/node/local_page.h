/* local_page.h: the page of the cluster for people at a node's own machine, while no model is up
 * and afterwards: a port of 127.0.0.1, with the page and /v1/cluster. It passes nothing on to a
 * model.
 *
 * Who reaches it sees and may change the cluster without a key: every user of this machine, and
 * no page of another name or origin (controller_cluster.c). */
#ifndef LOCKSTEP_NODE_LOCAL_PAGE_H
#define LOCKSTEP_NODE_LOCAL_PAGE_H

#include "base/status.h"

#define LOCAL_PAGE_PORT 7343

struct controller;
struct local_page;

/* port: if it is taken, any free one; 0: any free one. ST_IO, ST_NO_MEMORY. */
enum status local_page_open(struct local_page **out, struct controller *k, int port,
                            struct err *err);
int local_page_port(const struct local_page *p);
/* Before the controller is closed. NULL is fine. */
void local_page_close(struct local_page *p);

#endif
