/* http_poll_darwin.c: waits for many sockets with poll(), which scans a list of all of them. On
 * macOS, POLLHUP of a socket means that the other side sends no more, whether or not it still
 * reads. (Linux has POLLRDHUP for that. test_http passes there with this file, too.) */
#include "base/mem.h"
#include "net/http_poll.h"
#include "net/net.h"

#include <poll.h>

#define BROKEN (POLLERR | POLLNVAL | (POLLHUP & ~NET_POLL_GONE))

struct http_poll {
    struct pollfd *fds; /* [n] */
    void **what;        /* [n] */
    unsigned *wanted;   /* [n] */
    size_t n, fds_cap, what_cap, wanted_cap;
};

enum status http_poll_open(struct http_poll **out, struct err *err) {
    *out = mem_calloc(1, sizeof **out);
    return *out != NULL ? ST_OK : err_set(err, ST_NO_MEMORY, "no memory for an HTTP server");
}

void http_poll_close(struct http_poll *p) {
    if (p == NULL)
        return;
    mem_free(p->fds);
    mem_free(p->what);
    mem_free(p->wanted);
    mem_free(p);
}

/* poll() reports a closed side again and again, so sockets whose owner does not need that are
 * left out. */
static void set(struct http_poll *p, size_t i, int fd, unsigned events, void *what) {
    short asked = (short)(((events & HTTP_POLL_READ) != 0 ? POLLIN : 0) |
                          ((events & HTTP_POLL_WRITE) != 0 ? POLLOUT : 0) |
                          ((events & HTTP_POLL_HALF) != 0 ? NET_POLL_GONE : 0));
    p->fds[i] = (struct pollfd){.fd = asked != 0 ? fd : -fd - 1, .events = asked};
    p->what[i] = what;
    p->wanted[i] = events;
}

static size_t find(const struct http_poll *p, int fd) {
    size_t i = 0;
    while (i < p->n && p->fds[i].fd != fd && p->fds[i].fd != -fd - 1)
        i++;
    return i;
}

bool http_poll_add(struct http_poll *p, int fd, unsigned events, void *what) {
    if (!mem_reserve(&p->fds, &p->fds_cap, p->n + 1, sizeof *p->fds) ||
        !mem_reserve(&p->what, &p->what_cap, p->n + 1, sizeof(void *)) ||
        !mem_reserve(&p->wanted, &p->wanted_cap, p->n + 1, sizeof *p->wanted))
        return false;
    set(p, p->n++, fd, events, what);
    return true;
}

void http_poll_change(struct http_poll *p, int fd, unsigned events, void *what) {
    size_t i = find(p, fd);
    if (i < p->n)
        set(p, i, fd, events, what);
}

void http_poll_remove(struct http_poll *p, int fd) {
    size_t i = find(p, fd);
    if (i == p->n)
        return;
    p->n--;
    p->fds[i] = p->fds[p->n];
    p->what[i] = p->what[p->n];
    p->wanted[i] = p->wanted[p->n];
}

size_t http_poll_wait(struct http_poll *p, struct http_poll_event *out, size_t max,
                      int timeout_ms) {
    size_t n = 0;
    if (poll(p->fds, (nfds_t)p->n, timeout_ms) <= 0)
        return 0;
    for (size_t i = 0; i < p->n && n < max; i++) {
        short e = p->fds[i].revents;
        unsigned events = ((e & POLLIN) != 0 ? HTTP_POLL_READ : 0u) |
                          ((e & POLLOUT) != 0 ? HTTP_POLL_WRITE : 0u) |
                          ((e & NET_POLL_GONE) != 0 ? p->wanted[i] & HTTP_POLL_HALF : 0u) |
                          ((e & BROKEN) != 0 ? HTTP_POLL_GONE : 0u);
        if (events != 0)
            out[n++] = (struct http_poll_event){p->what[i], events};
    }
    return n;
}
