/* http_poll_linux.c: Waits for many sockets with epoll. */
#include "base/mem.h"
#include "base/util.h"
#include "net/http_poll.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_MAX 64

struct http_poll {
    int fd;
};

enum status http_poll_open(struct http_poll **out, struct err *err) {
    struct http_poll *p = mem_calloc(1, sizeof *p);
    if (p == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for an HTTP server");
    p->fd = epoll_create1(EPOLL_CLOEXEC);
    if (p->fd < 0) {
        mem_free(p);
        return err_set(err, ST_IO, "epoll: %s", strerror(errno));
    }
    *out = p;
    return ST_OK;
}

void http_poll_close(struct http_poll *p) {
    if (p == NULL)
        return;
    close(p->fd);
    mem_free(p);
}

static int control(struct http_poll *p, int what_to_do, int fd, unsigned events, void *what) {
    struct epoll_event e = {.data.ptr = what};
    e.events = ((events & HTTP_POLL_READ) != 0 ? EPOLLIN : 0u) |
               ((events & HTTP_POLL_WRITE) != 0 ? EPOLLOUT : 0u) |
               ((events & HTTP_POLL_HALF) != 0 ? EPOLLRDHUP : 0u);
    return epoll_ctl(p->fd, what_to_do, fd, &e);
}

bool http_poll_add(struct http_poll *p, int fd, unsigned events, void *what) {
    return control(p, EPOLL_CTL_ADD, fd, events, what) == 0;
}

void http_poll_change(struct http_poll *p, int fd, unsigned events, void *what) {
    (void)control(p, EPOLL_CTL_MOD, fd, events, what);
}

void http_poll_remove(struct http_poll *p, int fd) {
    (void)control(p, EPOLL_CTL_DEL, fd, 0, NULL);
}

size_t http_poll_wait(struct http_poll *p, struct http_poll_event *out, size_t max,
                      int timeout_ms) {
    struct epoll_event found[EVENTS_MAX];
    int n = epoll_wait(p->fd, found, (int)MIN(max, EVENTS_MAX), timeout_ms);
    for (int i = 0; i < n; i++) {
        unsigned e = found[i].events;
        out[i] = (struct http_poll_event){
            .what = found[i].data.ptr,
            .events = ((e & EPOLLIN) != 0 ? HTTP_POLL_READ : 0u) |
                      ((e & EPOLLOUT) != 0 ? HTTP_POLL_WRITE : 0u) |
                      ((e & EPOLLRDHUP) != 0 ? HTTP_POLL_HALF : 0u) |
                      ((e & (EPOLLHUP | EPOLLERR)) != 0 ? HTTP_POLL_GONE : 0u)};
    }
    return (size_t)MAX(n, 0);
}
