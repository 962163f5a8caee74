/* wake.h: a pipe that wakes a thread from poll(). Signals sent before the sleep are not lost,
 * and several count as one. Any thread, and signal handlers, may send them. */
#ifndef LOCKSTEP_NET_WAKE_H
#define LOCKSTEP_NET_WAKE_H

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct wake {
    int fds[2]; /* [0] becomes readable; -1: closed */
};
#define WAKE_CLOSED \
    {               \
        { -1, -1 }  \
    }

static inline void wake_close(struct wake *w) {
    for (int i = 0; i < 2; i++)
        if (w->fds[i] >= 0)
            close(w->fds[i]);
    *w = (struct wake)WAKE_CLOSED;
}

static inline enum status wake_open(struct wake *w, struct err *err) {
    if (pipe(w->fds) != 0) {
        *w = (struct wake)WAKE_CLOSED;
        return err_set(err, ST_IO, "no pipe: %s", strerror(errno));
    }
    for (int i = 0; i < 2; i++) {
        fcntl(w->fds[i], F_SETFD, FD_CLOEXEC);
        fcntl(w->fds[i], F_SETFL, O_NONBLOCK);
    }
    return ST_OK;
}

static inline void wake_ring(const struct wake *w) {
    ssize_t ignored = write(w->fds[1], "", 1); /* a full pipe is readable already */
    (void)ignored;
}

static inline void wake_drain(const struct wake *w) {
    char drain[64];
    while (read(w->fds[0], drain, sizeof drain) > 0)
        ;
}

#endif
