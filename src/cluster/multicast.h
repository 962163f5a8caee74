/* multicast.h: sends one datagram to all listeners on every network of this machine, by UDP
 * multicast.
 *
 * A *port* is a socket for one interface and one address family. So each datagram's interface
 * is known, and the routing table does not choose it. Everything goes to one group of
 * site-local scope (IPv4) or link-local scope (IPv6) with a hop limit of 1: no router forwards
 * it. It also reaches this machine's own processes, all of which may use the same UDP port.
 * With IPv6 it is sent once from each address. The receiver answers to the source address, and
 * a link-local address differs in meaning on each machine.
 *
 * One thread at a time. Nothing blocks. It is not an error if a datagram is dropped (no route,
 * no carrier, a firewall): send only what is sent again. */
#ifndef LOCKSTEP_CLUSTER_MULTICAST_H
#define LOCKSTEP_CLUSTER_MULTICAST_H

#include "net/net.h"

#include <net/if.h>
#include <netinet/in.h>

#define MULTICAST_GROUP_V4 "239.255.73.42"
#define MULTICAST_GROUP_V6 "ff12::8000:7342" /* T = 1: not from the registry */
#define MULTICAST_PORTS_MAX 64
#define MULTICAST_SOURCES_MAX 4

struct multicast_port {
    int fd, family;
    unsigned index;        /* of the interface */
    struct in_addr source; /* its address that datagrams come from, if IPv4 */
    int n_sources6;        /* the IPv6 addresses other than the link-local one */
    struct in6_addr sources6[MULTICAST_SOURCES_MAX];
    char interface[IF_NAMESIZE];
    struct net_address group; /* where it sends to */
};

struct multicast {
    uint16_t udp_port;
    char only[IF_NAMESIZE]; /* the one interface to use; "": all */
    int n_ports;
    struct multicast_port ports[MULTICAST_PORTS_MAX];
};

/* only may be NULL: every interface. No ports yet. */
void multicast_init(struct multicast *m, uint16_t udp_port, const char *only);
void multicast_deinit(struct multicast *m);

/* Closes the ports of interfaces that went away, and opens ports for new interfaces that are
 * up. Returns `from`: ports[from, n_ports) are new. Loopback counts. Interfaces without
 * multicast (mostly VPNs) do not. The next call retries those that cannot be opened.
 *
 * *failed, if not NULL: the errno of the last interface that could not be opened, 0 if all
 * could. */
int multicast_look(struct multicast *m, int *failed);

void multicast_send(const struct multicast_port *p, const void *bytes, size_t n);

/* The port's next datagram, at most n bytes of it. ST_AGAIN: there is none. ST_BAD_INPUT: it
 * came by another interface or from an address that cannot be answered (the next may be valid).
 * from->sa has the interface as its scope if it needs one. */
enum status multicast_recv(const struct multicast_port *p, void *bytes, size_t n, size_t *got,
                           struct net_address *from);

/* Before a socket is bound: lets other processes bind the same port, so that each receives the
 * groups that it has joined itself. False with errno. One file per system. */
bool multicast_share(int fd, int family);

#endif
