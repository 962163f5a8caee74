/* multicast_darwin.c: How sockets of several programs share the multicast port on macOS. */
#include "cluster/multicast.h"

bool multicast_share(int fd, int family) {
    int yes = 1;
    (void)family;
    return setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes) == 0;
}
