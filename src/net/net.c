/* net.c: TCP sockets: addresses, connecting, and reads and writes with a deadline. */
#include "net/net.h"

#include "base/clock.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void net_text(const struct net_address *a, char out[NET_TEXT_BYTES]) {
    char host[64], port[16];
    if (getnameinfo((const struct sockaddr *)&a->sa, a->len, host, sizeof host, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(out, NET_TEXT_BYTES, "an unknown address");
    else
        snprintf(out, NET_TEXT_BYTES, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

enum status net_resolve(struct net_address *out, const char *host_port, bool for_listen,
                        struct err *err) {
    const char *colon = host_port ? strrchr(host_port, ':') : NULL;
    char host[256];
    size_t n = colon ? (size_t)(colon - host_port) : 0;
    if (colon == NULL || n >= sizeof host)
        return err_set(err, ST_BAD_INPUT, "rendezvous \"%s\": expected host:port",
                       host_port ? host_port : "");
    if (colon[1 + strspn(colon + 1, "0123456789")] == '\0' &&
        (colon[1] == '\0' || strtoul(colon + 1, NULL, 10) > UINT16_MAX))
        return err_set(err, ST_BAD_INPUT, "rendezvous \"%s\": a port is 0 to 65535", host_port);
    memcpy(host, host_port, n);
    host[n] = '\0';
    char *name = host;
    if (n >= 2 && host[0] == '[' && host[n - 1] == ']') {
        host[n - 1] = '\0';
        name++;
    }
    bool any = name[0] == '\0' || str_eq(name, "*");
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = for_listen ? AI_PASSIVE : AI_ADDRCONFIG};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(any ? NULL : name, colon + 1, &hints, &list);
    if (rc != 0 && !for_listen) { /* where only loopback has this family, AI_ADDRCONFIG fails */
        hints.ai_flags = 0;
        rc = getaddrinfo(any ? NULL : name, colon + 1, &hints, &list);
    }
    if (rc != 0)
        return err_set(err, ST_NOT_FOUND, "rendezvous \"%s\": %s", host_port, gai_strerror(rc));
    memcpy(&out->sa, list->ai_addr, list->ai_addrlen);
    out->len = list->ai_addrlen;
    freeaddrinfo(list);
    return ST_OK;
}

static bool is_reachable(const struct ifaddrs *i) {
    if (i->ifa_addr == NULL || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK))
        return false;
    return i->ifa_addr->sa_family == AF_INET ||
           (i->ifa_addr->sa_family == AF_INET6 &&
            !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)i->ifa_addr)->sin6_addr));
}

size_t net_own_addresses(int port, char (*out)[NET_TEXT_BYTES], size_t max) {
    struct ifaddrs *all;
    size_t n = 0;
    if (getifaddrs(&all) != 0)
        return 0;
    for (const struct ifaddrs *i = all; i != NULL && n < max; i = i->ifa_next) {
        if (!is_reachable(i))
            continue;
        struct net_address a = {.len = sizeof(struct sockaddr_in)};
        if (i->ifa_addr->sa_family == AF_INET6)
            a.len = sizeof(struct sockaddr_in6);
        memcpy(&a.sa, i->ifa_addr, a.len);
        if (a.sa.ss_family == AF_INET)
            ((struct sockaddr_in *)&a.sa)->sin_port = htons((uint16_t)port);
        else
            ((struct sockaddr_in6 *)&a.sa)->sin6_port = htons((uint16_t)port);
        net_text(&a, out[n++]);
    }
    freeifaddrs(all);
    return n;
}

int net_join(char *out, size_t size, const char *host, int port) {
    bool v6 = strchr(host, ':') != NULL;
    const char *left = v6 ? "[" : "", *right = v6 ? "]" : "";
    return port != 0 ? snprintf(out, size, "%s%s%s:%d", left, host, right, port)
                     : snprintf(out, size, "%s%s%s", left, host, right);
}

void net_setup(int fd) {
    int one = 1;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
#ifdef SO_NOSIGPIPE
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &one, sizeof one);
#endif
}

int net_socket(int family, int type, int protocol) {
#ifdef SOCK_CLOEXEC
    /* at once, so that a child which another thread starts just now has no part in it */
    return socket(family, type | SOCK_CLOEXEC, protocol);
#else
    int fd = socket(family, type, protocol);
    if (fd >= 0)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
#endif
}

enum status net_listen(int *out, const struct net_address *a, struct err *err) {
    char text[NET_TEXT_BYTES];
    net_text(a, text);
    int fd = net_socket(a->sa.ss_family, SOCK_STREAM, 0), one = 1;
    if (fd < 0)
        return err_set(err, ST_IO, "%s: no socket: %s", text, strerror(errno));
    net_setup(fd);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (const struct sockaddr *)&a->sa, a->len) != 0 || listen(fd, 256) != 0) {
        enum status st = err_set(err, ST_IO, "cannot listen at %s: %s", text, strerror(errno));
        close(fd);
        return st;
    }
    *out = fd;
    return ST_OK;
}

int net_accept(int listen_fd, struct net_address *from) {
    from->len = sizeof from->sa;
    int fd = accept(listen_fd, (struct sockaddr *)&from->sa, &from->len);
    if (fd >= 0)
        net_setup(fd);
    return fd;
}

enum status net_local(int fd, struct net_address *out, struct err *err) {
    out->len = sizeof out->sa;
    if (getsockname(fd, (struct sockaddr *)&out->sa, &out->len) != 0)
        return err_set(err, ST_IO, "getsockname: %s", strerror(errno));
    return ST_OK;
}

int net_ms_left(uint64_t deadline_ns) {
    uint64_t now = clock_ns();
    if (now >= deadline_ns)
        return 0;
    return (int)MIN((deadline_ns - now + 999999) / 1000000, (uint64_t)INT_MAX);
}

/* Waits for the socket; false when the deadline has passed. A signal ends no wait. */
static bool wait_ready(int fd, short events, uint64_t deadline_ns) {
    struct pollfd p = {.fd = fd, .events = events};
    int ms, n = -1;
    errno = EINTR;
    while (n < 0 && errno == EINTR && (ms = net_ms_left(deadline_ns)) > 0)
        n = poll(&p, 1, ms);
    return n > 0;
}

enum status net_connect(int *out, const struct net_address *a, uint64_t deadline_ns,
                        struct err *err) {
    char text[NET_TEXT_BYTES];
    net_text(a, text);
    int fd = net_socket(a->sa.ss_family, SOCK_STREAM, 0);
    if (fd < 0)
        return err_set(err, ST_IO, "%s: no socket: %s", text, strerror(errno));
    net_setup(fd);
    int error = 0;
    if (connect(fd, (const struct sockaddr *)&a->sa, a->len) != 0 && errno != EINPROGRESS &&
        errno != EINTR) /* it goes on as the others do */
        error = errno;
    if (error == 0 && !wait_ready(fd, POLLOUT, deadline_ns))
        error = ETIMEDOUT;
    socklen_t len = sizeof error;
    if (error == 0)
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (error == 0) {
        *out = fd;
        return ST_OK;
    }
    close(fd);
    bool not_yet = error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH ||
                   error == EHOSTDOWN || error == ECONNRESET;
    enum status st = not_yet ? ST_AGAIN : error == ETIMEDOUT ? ST_TIMEOUT : ST_IO;
    return err_set(err, st, "cannot connect to %s: %s", text, strerror(error));
}

enum status net_read(int fd, void *buf, size_t n, uint64_t deadline_ns, struct err *err) {
    for (size_t at = 0; at < n;) {
        ssize_t got = recv(fd, (char *)buf + at, n - at, 0);
        if (got > 0)
            at += (size_t)got;
        else if (got == 0)
            return err_set(err, ST_PEER_LOST, "the other side closed the connection");
        else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            return err_set(err, ST_PEER_LOST, "the connection broke: %s", strerror(errno));
        else if (!wait_ready(fd, POLLIN, deadline_ns))
            return err_set(err, ST_TIMEOUT, "no answer within the time limit");
    }
    return ST_OK;
}

enum status net_write(int fd, const void *buf, size_t n, uint64_t deadline_ns,
                      struct err *err) {
    for (size_t at = 0; at < n;) {
        ssize_t put = send(fd, (const char *)buf + at, n - at, MSG_NOSIGNAL);
        if (put >= 0)
            at += (size_t)put;
        else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            return err_set(err, ST_PEER_LOST, "the connection broke: %s", strerror(errno));
        else if (!wait_ready(fd, POLLOUT, deadline_ns))
            return err_set(err, ST_TIMEOUT, "nothing read within the time limit");
    }
    return ST_OK;
}
