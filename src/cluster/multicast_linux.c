/* multicast_linux.c: How sockets of several programs share the multicast port on Linux. */
#include "cluster/multicast.h"

bool multicast_share(int fd, int family) {
    int yes = 1, no = 0;
    /* Not SO_REUSEPORT: Linux may then give a group's datagram to a socket that has not joined
     * on the interface by which it came. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0)
        return false;
    /* Otherwise it receives what any socket has joined on any interface. IPv6 has no such
     * option for interfaces. */
    return family == AF_INET6 ||
           setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &no, sizeof no) == 0;
}
