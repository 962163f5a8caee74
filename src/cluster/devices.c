/* devices.c: Asks a process for this machine's devices; checks what another node tells of its own.
 */
#include "cluster/devices.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/printable.h"
#include "base/thread.h"
#include "base/util.h"
#include "device/device.h"
#include "ranks/launch.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_S 60.0 /* a driver that takes longer does not answer */
#define LOOK_MS 100
#define ANSWER_MAX ((size_t)1 << 16)
#define TEXT_MAX 512
#define MEMORY_MAX ((json_int_t)1 << 52)

struct node_devices {
    char *worker_path; /* owned; may be NULL */
    pthread_t thread;
    pthread_mutex_t lock;
    /* Guarded: */
    bool closing;
    json_t *list;   /* owned; NULL: not known */
    struct err why; /* it cannot be known; "": it can */
};

/* ---- what a node says -------------------------------------------------------------------- */

/* Short, and without what would move a terminal's cursor. */
static bool is_text(const json_t *v) {
    char clean[TEXT_MAX];
    const char *s = json_string_value(v);
    if (s == NULL || json_string_length(v) >= sizeof clean)
        return false;
    copy_printable(clean, sizeof clean, s, json_string_length(v));
    return str_eq(clean, s);
}

static bool is_kind(const json_t *v) {
    for (int k = DEVICE_DISCRETE; k <= DEVICE_OTHER; k++)
        if (json_is_string(v) &&
            str_eq(json_string_value(v), device_kind_name((enum device_kind)k)))
            return true;
    return false;
}

/* The first of its fields that is not as it has to be; NULL: all are. */
static const char *wrong_field(const json_t *o) {
    const json_t *name = json_object_get(o, "name"), *error = json_object_get(o, "error"),
                 *memory = json_object_get(o, "memory_bytes"),
                 *crossing = json_object_get(o, "crossing_us");
    if (!is_text(name) || json_string_length(name) == 0)
        return "name";
    if (!is_text(json_object_get(o, "driver")))
        return "driver";
    if (!is_kind(json_object_get(o, "kind")))
        return "kind";
    if (!json_is_integer(memory) || json_integer_value(memory) < 0 ||
        json_integer_value(memory) > MEMORY_MAX)
        return "memory_bytes";
    if (!json_is_boolean(json_object_get(o, "unified")))
        return "unified";
    if (!json_is_null(crossing) && !(json_number_value(crossing) > 0))
        return "crossing_us";
    return json_is_null(error) || is_text(error) ? NULL : "error";
}

enum status node_devices_check(const json_t *list, struct err *err) {
    size_t i;
    json_t *one;
    if (!json_is_array(list))
        return err_set(err, ST_BAD_INPUT, "what it says of its devices is not a list");
    if (json_array_size(list) > NODE_DEVICES_MAX)
        return err_set(err, ST_BAD_INPUT, "it says that it has %zu devices, more than %d",
                       json_array_size(list), NODE_DEVICES_MAX);
    json_array_foreach((json_t *)(uintptr_t)list, i, one) {
        const char *wrong = wrong_field(one);
        if (wrong != NULL)
            return err_set(err, ST_BAD_INPUT,
                           "what it says of its device %zu has no valid \"%s\"", i, wrong);
    }
    return ST_OK;
}

void node_devices_mend(json_t *facts) {
    json_t *list = json_object_get(facts, "devices");
    struct err err;
    if (!is_text(json_object_get(facts, "devices_error")))
        json_object_del(facts, "devices_error");
    if (list == NULL || json_is_null(list) || node_devices_check(list, &err) == ST_OK)
        return;
    json_object_set_new(facts, "devices", json_null());
    json_object_set_new(facts, "devices_error", json_string(err.text));
}

/* ---- the look ---------------------------------------------------------------------------- */

static bool is_closing(struct node_devices *d) {
    pthread_mutex_lock(&d->lock);
    bool closing = d->closing;
    pthread_mutex_unlock(&d->lock);
    return closing;
}

/* All that the process says until it ends. */
static enum status hear(struct node_devices *d, int fd, struct buf *text, struct err *err) {
    const double until_s = clock_s() + LOOK_S;
    char bytes[4096];
    while (clock_s() < until_s && text->len < ANSWER_MAX && !is_closing(d)) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, LOOK_MS) <= 0)
            continue;
        ssize_t n = read(fd, bytes, sizeof bytes);
        if (n == 0)
            return ST_OK;
        if (n < 0 && errno != EINTR)
            break;
        if (n > 0 && !buf_add(text, bytes, (size_t)n))
            return err_set(err, ST_NO_MEMORY, "no memory for a list of devices");
    }
    return err_set(err, ST_TIMEOUT, "lockstep devices does not answer on this machine");
}

static enum status read_list(json_t **out, struct buf *text, int status, struct err *err) {
    if (WIFSIGNALED(status))
        return err_set(err, ST_IO, "lockstep devices was killed by signal %d (%s)",
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) != 0)
        return err_set(err, ST_IO, "lockstep devices ended with status %d",
                       WEXITSTATUS(status));
    json_t *list = json_loadb(buf_cstr(text), text->len, 0, NULL);
    enum status st = node_devices_check(list, err);
    if (st == ST_OK)
        *out = json_incref(list);
    json_decref(list);
    return st;
}

static enum status ask(struct node_devices *d, json_t **out, struct err *err) {
    char verb[] = "devices", json[] = "--json", *words[] = {verb, json, NULL};
    struct buf text = {0};
    pid_t pid;
    int fd, status = 0;
    TRY(launch_command(&pid, &fd, NULL, d->worker_path, words, err));
    enum status st = hear(d, fd, &text, err);
    if (st != ST_OK)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    close(fd);
    if (st == ST_OK)
        st = read_list(out, &text, status, err);
    buf_free(&text);
    return st;
}

static void *look(void *user) {
    struct node_devices *d = user;
    struct err err = {.text = ""};
    json_t *list = NULL;
    enum status st = ask(d, &list, &err);
    if (st != ST_OK && !is_closing(d))
        log_warn("the devices of this machine are not known: %s", err.text);
    pthread_mutex_lock(&d->lock);
    d->list = list;
    if (st != ST_OK)
        d->why = err;
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

enum status node_devices_open(struct node_devices **out, const char *worker_path,
                              struct err *err) {
    struct node_devices *d = mem_calloc(1, sizeof *d);
    if (d == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a list of devices");
    pthread_mutex_init(&d->lock, NULL);
    d->worker_path = worker_path != NULL ? mem_strdup(worker_path) : NULL;
    if ((worker_path == NULL || d->worker_path != NULL) &&
        thread_start(&d->thread, look, d) == 0) {
        *out = d;
        return ST_OK;
    }
    pthread_mutex_destroy(&d->lock);
    mem_free(d->worker_path);
    mem_free(d);
    return err_set(err, ST_NO_MEMORY, "no thread to look at devices");
}

void node_devices_close(struct node_devices *d) {
    if (d == NULL)
        return;
    pthread_mutex_lock(&d->lock);
    d->closing = true;
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    pthread_mutex_destroy(&d->lock);
    json_decref(d->list);
    mem_free(d->worker_path);
    mem_free(d);
}

void node_devices_tell(struct node_devices *d, json_t *facts) {
    pthread_mutex_lock(&d->lock);
    json_object_set_new(facts, "devices",
                        d->list != NULL ? json_deep_copy(d->list) : json_null());
    if (d->why.text[0] != '\0')
        json_object_set_new(facts, "devices_error", json_string(d->why.text));
    pthread_mutex_unlock(&d->lock);
}
