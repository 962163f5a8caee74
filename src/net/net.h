/* net.h: TCP sockets: addresses, connecting, and reads and writes with a deadline. Every socket
 * made here is non-blocking, close-on-exec and TCP_NODELAY. */
#ifndef LOCKSTEP_NET_NET_H
#define LOCKSTEP_NET_NET_H

#include "base/status.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct net_address {
    struct sockaddr_storage sa;
    socklen_t len;
};
/* "127.0.0.1:7000", "[fe80::1%eth0]:7000": for sentences. */
#define NET_TEXT_BYTES 96
void net_text(const struct net_address *a, char out[NET_TEXT_BYTES]);

/* "host:port", "[v6]:port"; with port 0 "host", "[v6]". Returns what snprintf() does. */
int net_join(char *out, size_t size, const char *host, int port);

/* Resolves "host:port" or "[v6]:port". for_listen: an empty host or "*" means any. */
enum status net_resolve(struct net_address *out, const char *host_port, bool for_listen,
                        struct err *err);
/* At most max addresses "host:port" by which other machines may reach that port of this
 * machine. These are the current addresses of its interfaces, without loopback and link-local
 * ones. Returns how many. */
size_t net_own_addresses(int port, char (*out)[NET_TEXT_BYTES], size_t max);

/* socket() whose descriptor child processes do not inherit. */
int net_socket(int family, int type, int protocol);
enum status net_listen(int *fd, const struct net_address *a, struct err *err);
/* The listener's next connection, or -1. */
int net_accept(int listen_fd, struct net_address *from);
void net_setup(int fd);
enum status net_local(int fd, struct net_address *out, struct err *err);

/* One attempt, bounded by the deadline. ST_AGAIN: nothing listens there, or the host is not
 * reachable (yet). ST_TIMEOUT: no answer by then. */
enum status net_connect(int *fd, const struct net_address *a, uint64_t deadline_ns,
                        struct err *err);

/* All n bytes or an error: ST_TIMEOUT, ST_PEER_LOST when the other side closed. */
enum status net_read(int fd, void *buf, size_t n, uint64_t deadline_ns, struct err *err);
enum status net_write(int fd, const void *buf, size_t n, uint64_t deadline_ns, struct err *err);

/* What poll() is asked for to tell of a peer that has closed its side. */
#ifdef POLLRDHUP
#define NET_POLL_GONE POLLRDHUP
#else
#define NET_POLL_GONE POLLHUP /* where it has to be asked for */
#endif

/* Milliseconds until the deadline for poll(): 0 when past. */
int net_ms_left(uint64_t deadline_ns);

#endif
