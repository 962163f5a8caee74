/* screen.c: The whole terminal for one command: raw keys, frames, and its modes put back. */
#include "view/screen.h"

#include "base/util.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

/* The alternate screen, without a cursor, and without wrapping at the last column. */
#define ENTER "\033[?1049h\033[?25l\033[?7l\033[2J"
#define LEAVE "\033[0m\033[?7h\033[?25h\033[?1049l"

/* After Esc: how long the rest of a key's sequence may take to come. */
#define ESCAPE_MS 50

static struct termios before;
static volatile sig_atomic_t entered, ended, resized;
static int wake_pipe[2] = {-1, -1}; /* signals and other threads write, screen_key() reads */
static char keys[64];               /* pressed, and not taken yet */
static size_t n_keys;

static void write_all(const char *bytes, size_t n) {
    while (n > 0) {
        ssize_t k = write(STDOUT_FILENO, bytes, n);
        if (k < 0 && errno == EAGAIN)
            poll(&(struct pollfd){.fd = STDOUT_FILENO, .events = POLLOUT}, 1, 100);
        else if (k < 0 && errno != EINTR)
            return;
        n -= k > 0 ? (size_t)k : 0;
        bytes += k > 0 ? k : 0;
    }
}

/* Both are safe in a signal handler. */
static void enter(void) {
    struct termios raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    write_all(ENTER, sizeof ENTER - 1);
    entered = 1;
}

static void leave(void) {
    if (!entered)
        return;
    entered = 0;
    write_all(LEAVE, sizeof LEAVE - 1);
    tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

void screen_wake(void) {
    int error = errno;
    ssize_t n = write(wake_pipe[1], "", 1);
    (void)n;
    errno = error;
}

static void on_end(int number) {
    ended = number;
    screen_wake();
}

static void on_resize(int number) {
    (void)number;
    resized = 1;
    screen_wake();
}

/* The shell gets its terminal; when it lets the process go on, all is drawn again. */
static void on_stop(int number) {
    int error = errno;
    sigset_t this;
    leave();
    signal(number, SIG_DFL);
    raise(number);
    sigemptyset(&this);
    sigaddset(&this, number);
    sigprocmask(SIG_UNBLOCK, &this, NULL); /* stops here */
    struct sigaction act = {.sa_handler = on_stop};
    sigemptyset(&act.sa_mask);
    sigaction(number, &act, NULL);
    enter();
    on_resize(0);
    errno = error;
}

static void on_signal(int number, void (*handler)(int)) {
    struct sigaction act = {.sa_handler = handler};
    sigfillset(&act.sa_mask);
    sigaction(number, &act, NULL);
}

enum status screen_open(struct err *err) {
    if (!isatty(STDIN_FILENO) || !cli_has_escapes(STDOUT_FILENO) ||
        tcgetattr(STDIN_FILENO, &before) != 0)
        return err_set(err, ST_UNSUPPORTED,
                       "this is no terminal for a full screen; --once prints it once, and "
                       "--json as JSON");
    if (pipe(wake_pipe) != 0)
        return err_set(err, ST_IO, "cannot make a pipe: %s", strerror(errno));
    for (int i = 0; i < 2; i++)
        if (fcntl(wake_pipe[i], F_SETFL, O_NONBLOCK) != 0 ||
            fcntl(wake_pipe[i], F_SETFD, FD_CLOEXEC) != 0)
            return err_set(err, ST_IO, "cannot set up a pipe: %s", strerror(errno));
    on_signal(SIGINT, on_end);
    on_signal(SIGTERM, on_end);
    on_signal(SIGHUP, on_end);
    on_signal(SIGQUIT, on_end);
    on_signal(SIGWINCH, on_resize);
    on_signal(SIGTSTP, on_stop);
    enter();
    return ST_OK;
}

void screen_close(void) {
    static const int all[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP};
    leave();
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        signal(all[i], SIG_DFL);
}

/* ---- keys -------------------------------------------------------------------------------- */

static const struct {
    const char *bytes;
    enum screen_key key;
} known[] = {
    {"\033[A", SCREEN_KEY_UP},       {"\033OA", SCREEN_KEY_UP},
    {"\033[B", SCREEN_KEY_DOWN},     {"\033OB", SCREEN_KEY_DOWN},
    {"\033[C", SCREEN_KEY_NEXT},     {"\033OC", SCREEN_KEY_NEXT},
    {"\033[D", SCREEN_KEY_BACK},     {"\033OD", SCREEN_KEY_BACK},
    {"\033[Z", SCREEN_KEY_BACK},     {"\t", SCREEN_KEY_NEXT},
    {"\033[5~", SCREEN_KEY_PAGE_UP}, {"\033[6~", SCREEN_KEY_PAGE_DOWN},
    {"\033[H", SCREEN_KEY_HOME},     {"\033[F", SCREEN_KEY_END},
    {"\033OH", SCREEN_KEY_HOME},     {"\033OF", SCREEN_KEY_END},
    {"\033[1~", SCREEN_KEY_HOME},    {"\033[4~", SCREEN_KEY_END},
    {" ", SCREEN_KEY_PAGE_DOWN},     {"k", SCREEN_KEY_UP},
    {"j", SCREEN_KEY_DOWN},          {"l", SCREEN_KEY_NEXT},
    {"h", SCREEN_KEY_BACK},          {"g", SCREEN_KEY_HOME},
    {"G", SCREEN_KEY_END},           {"q", SCREEN_KEY_QUIT},
    {"\003", SCREEN_KEY_INTERRUPT},
};

static void drop_keys(size_t n) {
    memmove(keys, keys + n, n_keys - n);
    n_keys -= n;
}

/* The end of an escape sequence that means nothing here: so that no part of it does. */
static size_t unknown_length(void) {
    size_t i = 1;
    if (n_keys > 1 && (keys[1] == '[' || keys[1] == 'O'))
        for (i = 2; i < n_keys && (keys[i] < '@' || keys[i] > '~');)
            i++;
    return MIN(i + 1, n_keys);
}

static enum screen_key take_key(char *letter) {
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        size_t n = strlen(known[i].bytes);
        if (n <= n_keys && memcmp(keys, known[i].bytes, n) == 0) {
            drop_keys(n);
            return known[i].key;
        }
    }
    bool escape = keys[0] == '\033', alone = n_keys == 1;
    *letter = keys[0];
    drop_keys(escape ? unknown_length() : 1);
    return escape && alone ? SCREEN_KEY_QUIT : SCREEN_KEY_OTHER;
}

enum screen_key screen_key(int wait_ms, char *letter) {
    struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                           {.fd = wake_pipe[0], .events = POLLIN}};
    char bytes[64];
    *letter = 0;
    if (n_keys > 0)
        return take_key(letter);
    int n = ended || resized ? 0 : poll(fds, ARRAY_LEN(fds), wait_ms);
    while (read(wake_pipe[0], bytes, sizeof bytes) > 0)
        continue;
    if (ended)
        return SCREEN_KEY_INTERRUPT;
    if (resized) {
        resized = 0;
        return SCREEN_KEY_RESIZED;
    }
    if (n <= 0 || fds[0].revents == 0)
        return SCREEN_KEY_NONE;
    ssize_t got = read(STDIN_FILENO, keys, sizeof keys);
    if (got <= 0)
        return got < 0 && (errno == EINTR || errno == EAGAIN) ? SCREEN_KEY_NONE
                                                              : SCREEN_KEY_INTERRUPT;
    n_keys = (size_t)got;
    if (n_keys == 1 && keys[0] == '\033' && poll(fds, 1, ESCAPE_MS) > 0 &&
        (got = read(STDIN_FILENO, keys + 1, sizeof keys - 1)) > 0)
        n_keys += (size_t)got;
    return take_key(letter);
}

/* ---- frames ------------------------------------------------------------------------------ */

static void add_lines(struct buf *out, const struct canvas *c, size_t from, int *left) {
    for (size_t i = from; i<c->n_lines && * left> 0; i++, --*left) {
        size_t n;
        const char *line = canvas_line(c, i, &n);
        buf_add(out, line, n);
        buf_add_str(out, "\033[K\r\n");
    }
}

void screen_draw(const struct canvas *head, const struct canvas *body, size_t from,
                 const struct canvas *foot, int lines) {
    struct buf out = {0};
    int left = lines - (int)foot->n_lines;
    buf_add_str(&out, "\033[H");
    add_lines(&out, head, 0, &left);
    add_lines(&out, body, from, &left);
    for (; left > 0; left--)
        buf_add_str(&out, "\033[K\r\n");
    left = (int)foot->n_lines;
    add_lines(&out, foot, 0, &left);
    /* The last line has no end: it would scroll. */
    if (out.len > 2 && memcmp(out.bytes + out.len - 2, "\r\n", 2) == 0)
        out.len -= 2;
    if (!out.failed)
        write_all(out.bytes, out.len);
    buf_free(&out);
}
