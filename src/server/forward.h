/* forward.h: one TCP port of this machine that leads to another machine's: whoever connects here talks to the server
 * there, byte for byte, so TLS and streams pass as they are.
 *
 * As long as nobody is there, clients get a few words instead (HTTP's 503), or, where there are none, are hung up on.
 *
 * A thread of its own; FORWARD_CONNECTIONS_MAX connections at once, further ones wait to be accepted. A connection ends
 * when both sides have ended, when either machine has gone silent (TCP keepalive, some 20 s), and when the target changes. */
#ifndef LOCKSTEP_SERVER_FORWARD_H
#define LOCKSTEP_SERVER_FORWARD_H

#include "base/status.h"

#define FORWARD_CONNECTIONS_MAX 256

struct forward;

/* Listens on all addresses. refusal: what a client gets while there is no target, copied; NULL: nothing. ST_IO: the port
 * is taken. */
enum status forward_open(struct forward **out, int port, const char *refusal, struct err *err);
/* "host:port", or NULL: nobody is there. A name is looked up here. ST_NOT_FOUND: no such name; the target is as it was. */
enum status forward_to(struct forward *f, const char *address, struct err *err);
/* Ends all connections. NULL is fine. */
void forward_close(struct forward *f);

#endif
