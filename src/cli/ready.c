/* ready.c: reports that a command is ready, to the process that started it: on a descriptor, or
 * to systemd. */
#include "cli/ready.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/program.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FD_MIN 3 /* 0 to 2 have a meaning already */

static int ready_fd = -1;
static struct sockaddr_un manager; /* sun_family AF_UNSPEC: no address */
static socklen_t manager_bytes;

const struct cli_option ready_options[] = {
    CLI_INT(
        0, "ready-fd", "N", &ready_fd, FD_MIN, INT_MAX,
        "when it is ready, writes a line of JSON with its port to\nthis descriptor and closes "
        "it"),
    CLI_END};

/* The path, or '@' and a name in Linux' abstract name space. */
static void find_manager(const char *name) {
    size_t n = strlen(name);
    if ((*name != '/' && *name != '@') || n >= sizeof manager.sun_path) {
        log_warn("NOTIFY_SOCKET=%s: not the path of a Unix socket", name);
        return;
    }
    manager.sun_family = AF_UNIX;
    memcpy(manager.sun_path, name, n + 1);
    if (*name == '@')
        manager.sun_path[0] = '\0';
    manager_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
}

enum status ready_begin(struct err *err) {
    const char *name = env_get("NOTIFY_SOCKET");
    if (name != NULL)
        find_manager(name);
    unsetenv("NOTIFY_SOCKET"); /* a child's words are not this command's */
    if (ready_fd < 0)
        return ST_OK;
    int flags = fcntl(ready_fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        return err_set(err, ST_BAD_INPUT, "--ready-fd %d: %s", ready_fd,
                       flags < 0 ? strerror(errno) : "it is open for reading only");
    fcntl(ready_fd, F_SETFD, FD_CLOEXEC);
    return ST_OK;
}

static void tell_manager(const char *state) {
    if (manager.sun_family != AF_UNIX)
        return;
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd < 0)
        return;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (sendto(fd, state, strlen(state), 0, (const struct sockaddr *)&manager, manager_bytes) <
        0)
        log_warn("cannot tell the service manager %s: %s", state, strerror(errno));
    close(fd);
}

static enum status write_line(const struct buf *line, struct err *err) {
    size_t done = 0;
    while (done < line->len) {
        ssize_t n = write(ready_fd, line->bytes + done, line->len - done);
        if (n < 0 && errno != EINTR)
            return err_set(err, ST_IO, "--ready-fd %d: %s", ready_fd, strerror(errno));
        done += n > 0 ? (size_t)n : 0;
    }
    return ST_OK;
}

static enum status tell_starter(const json_t *line, struct err *err) {
    struct buf text = {0};
    char *json = line != NULL ? json_dumps(line, JSON_COMPACT) : NULL;
    enum status st = ST_OK;
    if (json == NULL || !buf_add_str(&text, json) || !buf_add_str(&text, "\n"))
        st = err_set(err, ST_NO_MEMORY, "no memory for --ready-fd");
    if (st == ST_OK)
        st = write_line(&text, err);
    free(json);
    buf_free(&text);
    close(ready_fd);
    ready_fd = -1;
    return st;
}

enum status ready_say(json_t *line, struct err *err) {
    enum status st = ready_fd >= 0 ? tell_starter(line, err) : ST_OK;
    json_decref(line);
    if (st == ST_OK)
        tell_manager("READY=1");
    return st;
}

void ready_say_stopping(void) {
    tell_manager("STOPPING=1");
}
