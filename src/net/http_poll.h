/* http_poll.h: which of many sockets can be read or written. One file per system: epoll or
 * poll().
 *
 * One thread. */
#ifndef LOCKSTEP_NET_HTTP_POLL_H
#define LOCKSTEP_NET_HTTP_POLL_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct http_poll;

enum http_poll_events {
    HTTP_POLL_READ = 1,
    HTTP_POLL_WRITE = 2,
    HTTP_POLL_HALF = 4, /* the other side sends no more; it may still read */
    HTTP_POLL_GONE = 8, /* the connection is broken; told in any case */
};

struct http_poll_event {
    void *what;
    unsigned events;
};

enum status http_poll_open(struct http_poll **out, struct err *err);
void http_poll_close(struct http_poll *p); /* NULL is fine */
/* what: comes with each event. False: no memory. */
bool http_poll_add(struct http_poll *p, int fd, unsigned events, void *what);
void http_poll_change(struct http_poll *p, int fd, unsigned events, void *what);
void http_poll_remove(struct http_poll *p, int fd);
/* Waits for at most timeout_ms; returns how many of out [max] were set. */
size_t http_poll_wait(struct http_poll *p, struct http_poll_event *out, size_t max,
                      int timeout_ms);

#endif
