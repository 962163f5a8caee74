/* multicast.c: Sends and receives datagrams by multicast on every interface of this machine. */
#include "cluster/multicast.h"

#include "base/util.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* host: numeric, or NULL for any. */
static bool resolve(struct net_address *out, int family, const char *host, uint16_t udp_port) {
    char port[8];
    struct addrinfo hints = {.ai_family = family,
                             .ai_socktype = SOCK_DGRAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *list;
    snprintf(port, sizeof port, "%u", udp_port);
    if (getaddrinfo(host, port, &hints, &list) != 0) {
        errno = EAFNOSUPPORT;
        return false;
    }
    memcpy(&out->sa, list->ai_addr, list->ai_addrlen);
    out->len = list->ai_addrlen;
    freeaddrinfo(list);
    return true;
}

/* ---- opening ----------------------------------------------------------------------------- */

static bool set(int fd, int level, int name, const void *value, socklen_t n) {
    return setsockopt(fd, level, name, value, n) == 0;
}

static bool set_v4(const struct multicast_port *p) {
    struct ip_mreqn interface = {.imr_ifindex = (int)p->index, .imr_address = p->source};
    uint8_t one = 1;
    return set(p->fd, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface) &&
           set(p->fd, IPPROTO_IP, IP_MULTICAST_TTL, &one, sizeof one) &&
           set(p->fd, IPPROTO_IP, IP_MULTICAST_LOOP, &one, sizeof one);
}

static bool set_v6(const struct multicast_port *p) {
    int one = 1;
    return set(p->fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) &&
           set(p->fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &p->index, sizeof p->index) &&
           set(p->fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &one, sizeof one) &&
           set(p->fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &one, sizeof one) &&
           set(p->fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, &one, sizeof one);
}

static bool bind_any(const struct multicast_port *p, uint16_t udp_port) {
    struct net_address any;
    return resolve(&any, p->family, NULL, udp_port) && multicast_share(p->fd, p->family) &&
           bind(p->fd, (struct sockaddr *)&any.sa, any.len) == 0;
}

static bool join(struct multicast_port *p, uint16_t udp_port) {
    bool v4 = p->family == AF_INET;
    if (!resolve(&p->group, p->family, v4 ? MULTICAST_GROUP_V4 : MULTICAST_GROUP_V6, udp_port))
        return false;
    if (!v4)
        ((struct sockaddr_in6 *)&p->group.sa)->sin6_scope_id = p->index;
    struct group_req g = {.gr_interface = p->index, .gr_group = p->group.sa};
    return set(p->fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, MCAST_JOIN_GROUP, &g, sizeof g);
}

/* Fills p->fd and p->group; false with errno. */
static bool port_open(struct multicast_port *p, uint16_t udp_port) {
    p->fd = socket(p->family, SOCK_DGRAM, 0);
    if (p->fd < 0)
        return false;
    net_setup(p->fd);
    if ((p->family == AF_INET ? set_v4(p) : set_v6(p)) && bind_any(p, udp_port) &&
        join(p, udp_port))
        return true;
    int error = errno;
    close(p->fd);
    errno = error;
    return false;
}

void multicast_init(struct multicast *m, uint16_t udp_port, const char *only) {
    m->udp_port = udp_port;
    m->n_ports = 0;
    snprintf(m->only, sizeof m->only, "%s", only ? only : "");
}

void multicast_deinit(struct multicast *m) {
    for (int i = 0; i < m->n_ports; i++)
        close(m->ports[i].fd);
    m->n_ports = 0;
}

/* ---- looking ----------------------------------------------------------------------------- */

static bool same_interface(const struct multicast_port *a, const struct multicast_port *b) {
    return a->family == b->family && a->index == b->index;
}

static bool same_port(const struct multicast_port *a, const struct multicast_port *b) {
    return same_interface(a, b) && a->source.s_addr == b->source.s_addr &&
           str_eq(a->interface, b->interface);
}

typedef bool same_fn(const struct multicast_port *a, const struct multicast_port *b);

static bool among(const struct multicast_port *ports, int n, same_fn *same,
                  const struct multicast_port *p) {
    for (int i = 0; i < n; i++)
        if (same(&ports[i], p))
            return true;
    return false;
}

/* IPv6 counts once the interface has the link-local address that datagrams come from. */
static bool usable(const struct ifaddrs *i, int family) {
    if (i->ifa_addr == NULL || i->ifa_addr->sa_family != family || !(i->ifa_flags & IFF_UP) ||
        !(i->ifa_flags & (IFF_MULTICAST | IFF_LOOPBACK)))
        return false;
    return family == AF_INET ||
           IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr);
}

static bool describe(struct multicast_port *out, const struct ifaddrs *i, int family) {
    *out = (struct multicast_port){.fd = -1, .family = family};
    if (family == AF_INET)
        out->source = ((struct sockaddr_in *)i->ifa_addr)->sin_addr;
    out->index = if_nametoindex(i->ifa_name); /* 0: it has just gone */
    return out->index != 0 && if_indextoname(out->index, out->interface) != NULL;
}

/* Adds what there should be a port for, one for each interface: it may have several addresses,
 * and other names in front of them. */
static int list(struct multicast_port *out, int n, const struct multicast *m,
                const struct ifaddrs *all, int family) {
    for (const struct ifaddrs *i = all; i != NULL && n < MULTICAST_PORTS_MAX; i = i->ifa_next)
        if (usable(i, family) && describe(&out[n], i, family) &&
            (m->only[0] == '\0' || str_eq(m->only, out[n].interface)) &&
            !among(out, n, same_interface, &out[n]))
            n++;
    return n;
}

/* What others can reach it by from anywhere; the system's order, in which temporary ones are
 * last. */
static void find_sources6(struct multicast_port *p, const struct ifaddrs *all) {
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        if (p->family != AF_INET6 || p->n_sources6 == MULTICAST_SOURCES_MAX ||
            i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET6 ||
            !str_eq(i->ifa_name, p->interface))
            continue;
        const struct in6_addr *a = &((const struct sockaddr_in6 *)i->ifa_addr)->sin6_addr;
        if (!IN6_IS_ADDR_LINKLOCAL(a) && !IN6_IS_ADDR_LOOPBACK(a))
            p->sources6[p->n_sources6++] = *a;
    }
}

/* The port that is open already, with the addresses that its interface has now. */
static void keep(struct multicast_port *out, const struct multicast_port *open,
                 const struct multicast_port *there, int n) {
    struct multicast_port kept = *open;
    for (int i = 0; i < n; i++)
        if (same_port(&there[i], open)) {
            kept.n_sources6 = there[i].n_sources6;
            memcpy(kept.sources6, there[i].sources6, sizeof kept.sources6);
        }
    *out = kept;
}

int multicast_look(struct multicast *m, int *failed) {
    struct multicast_port there[MULTICAST_PORTS_MAX];
    struct ifaddrs *all;
    int ignored, n = 0, kept = 0;
    failed = failed ? failed : &ignored;
    *failed = 0;
    if (getifaddrs(&all) != 0) {
        *failed = errno;
        return m->n_ports;
    }
    n = list(there, n, m, all, AF_INET);
    n = list(there, n, m, all, AF_INET6);
    for (int i = 0; i < n; i++)
        find_sources6(&there[i], all);
    freeifaddrs(all);
    for (int i = 0; i < m->n_ports; i++)
        if (among(there, n, same_port, &m->ports[i]))
            keep(&m->ports[kept++], &m->ports[i], there, n);
        else
            close(m->ports[i].fd);
    m->n_ports = kept;
    for (int i = 0; i < n; i++) {
        if (among(m->ports, kept, same_port, &there[i]))
            continue;
        if (port_open(&there[i], m->udp_port))
            m->ports[m->n_ports++] = there[i];
        else
            *failed = errno;
    }
    return kept;
}

/* ---- datagrams --------------------------------------------------------------------------- */

/* Space for one in6_pktinfo, aligned like a control-message header. */
union pktinfo_room {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(struct in6_pktinfo))];
};

static struct msghdr message(struct iovec *part, const struct net_address *at,
                             union pktinfo_room *room) {
    struct msghdr m = {.msg_name = (void *)(uintptr_t)&at->sa,
                       .msg_namelen = at->len,
                       .msg_iov = part,
                       .msg_iovlen = 1,
                       .msg_control = room,
                       .msg_controllen = sizeof room->bytes};
    return m;
}

static void send_from6(const struct multicast_port *p, const struct in6_addr *source,
                       const void *bytes, size_t n) {
    const struct in6_pktinfo info = {.ipi6_addr = *source, .ipi6_ifindex = p->index};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n};
    union pktinfo_room room = {.bytes = {0}};
    struct msghdr m = message(&part, &p->group, &room);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = IPPROTO_IPV6;
    c->cmsg_type = IPV6_PKTINFO;
    c->cmsg_len = CMSG_LEN(sizeof info);
    memcpy(CMSG_DATA(c), &info, sizeof info);
    ssize_t ignored = sendmsg(p->fd, &m, 0);
    (void)ignored;
}

void multicast_send(const struct multicast_port *p, const void *bytes, size_t n) {
    ssize_t ignored =
        sendto(p->fd, bytes, n, 0, (const struct sockaddr *)&p->group.sa, p->group.len);
    (void)ignored;
    for (int i = 0; i < p->n_sources6; i++)
        send_from6(p, &p->sources6[i], bytes, n);
}

/* The interface that a datagram came by; 0: it does not say. */
static unsigned interface_of(struct msghdr *m) {
    struct in6_pktinfo info = {.ipi6_ifindex = 0};
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c))
        if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO)
            memcpy(&info, CMSG_DATA(c), sizeof info);
    return (unsigned)info.ipi6_ifindex;
}

enum status multicast_recv(const struct multicast_port *p, void *bytes, size_t n, size_t *got,
                           struct net_address *from) {
    struct iovec part = {.iov_base = bytes, .iov_len = n};
    union pktinfo_room room;
    from->len = sizeof from->sa;
    struct msghdr m = message(&part, from, &room);
    ssize_t r = recvmsg(p->fd, &m, 0);
    if (r < 0)
        return ST_AGAIN; /* or an error of the socket's, which this has taken from it */
    from->len = m.msg_namelen;
    *got = (size_t)r;
    if (p->family == AF_INET)
        return ((const struct sockaddr_in *)&from->sa)->sin_addr.s_addr == INADDR_ANY
                   ? ST_BAD_INPUT
                   : ST_OK;
    /* Linux gives an IPv6 group's datagrams to every socket that joined it on any interface. */
    const struct in6_addr *a = &((const struct sockaddr_in6 *)&from->sa)->sin6_addr;
    return !IN6_IS_ADDR_UNSPECIFIED(a) && interface_of(&m) == p->index ? ST_OK : ST_BAD_INPUT;
}
