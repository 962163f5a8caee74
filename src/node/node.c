/* node.c: The HTTP endpoints of a node, and the workers that it starts. */
#include "node/node.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "cluster/catalog.h"
#include "cluster/client.h"
#include "cluster/devices.h"
#include "cluster/store.h"
#include "hub/pull.h"
#include "kernels/kernels.h"
#include "net/host_id.h"
#include "net/http.h"
#include "node/controller.h"
#include "node/model_share.h"
#include "node/peers.h"
#include "ranks/launch.h"
#include "server/reply.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define TASKS_MAX 64
#define PROGRESS_S 0.25
#define RELAY_SILENCE_S 30
#define OFFER_LOOK_MS 100
#define LAST_WORDS_MS 1000 /* so that clients learn how their tasks ended */
/* What keeps proxies, and the client's patience, alive. */
#define QUIET_FILLER "\n"
#define BODY_MAX ((size_t)4 << 20)
#define LINE_BYTES 1024
/* A client without the key may still connect; it must not take all of http_config's
 * max_connections. */
#define CONNECTIONS_OF_ONE (2 * TASKS_MAX)

/* A request that takes its time, on a thread of its own. It lives until the connection is done
 * with it. */
struct task {
    struct node *node;
    struct http_request *request;
    void (*run)(struct task *t);
    bool by_name; /* the request has a model's name, and not its files */
    json_t *body;
    struct model_files files;
    const char *hint;
    /* Guarded by node.lock: */
    struct task *next;
    bool gone; /* the client has disconnected, or the node ends */
    pid_t pid; /* of the worker; 0: none, or ended */
    int rank;
    double
        begun_s; /* clock: when the first bytes of a model came that it fetches; 0: of none */
    uint64_t first_bytes, bytes; /* that were here then, and are now */
};

struct node {
    struct http_server *http;
    const struct identity *id;
    char *name, *store, *worker_path;
    struct node_devices *devices;
    pthread_mutex_t borrowed; /* held while one of the two is used */
    struct discovery *seen;
    struct controller *controller;
    pthread_mutex_t lock;
    pthread_cond_t idle; /* no task is left */
    struct task *tasks;
    int n_tasks;
    bool closing;
};

static void refuse_for(struct http_request *r, enum status st, const char *sentence) {
    peers_refuse(r, http_status_of(st), sentence);
}

/* ---- what it is -------------------------------------------------------------------------- */

/* What this machine is: {"name", "version", "machine", "cores", "memory_bytes",
 * "memory_available_bytes", "isa"}; NULL: no memory. */
static json_t *node_facts(const char *name) {
    const struct kernels *k;
    uint8_t id[32];
    char machine[2 * BEACON_ID_BYTES + 1];
    struct err ignored;
    host_id(id);
    sodium_bin2hex(machine, sizeof machine, id, BEACON_ID_BYTES);
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:I, s:I, s:s}", "name", name, "version",
                     LOCKSTEP_VERSION, "machine", machine, "cores", machine_n_cores(),
                     "numa_domains", machine_n_domains(), "memory_bytes",
                     (json_int_t)mem_total(), "memory_available_bytes",
                     (json_int_t)mem_available(), "isa",
                     kernels_select(&k, &ignored) == ST_OK ? k->name : "none");
}

static json_t *say_download(const struct task *t) {
    double passed_s = clock_s() - t->begun_s;
    bool known = t->bytes > t->first_bytes && passed_s > 0;
    double rate = known ? (double)(t->bytes - t->first_bytes) / passed_s : 0;
    uint64_t total = t->files.bytes, left = total > t->bytes ? total - t->bytes : 0;
    return json_pack("{s:s, s:s, s:I, s:I, s:o, s:o}", "model", t->files.name, "from",
                     json_text(t->body, "from"), "bytes", (json_int_t)t->bytes, "total",
                     (json_int_t)total, "rate", known ? json_real(rate) : json_null(), "left_s",
                     known ? json_real((double)left / rate) : json_null());
}

/* The interface on which that address was heard. */
static const char *interface_of(const struct discovered *seen, const char *address) {
    char text[NET_TEXT_BYTES];
    for (int i = 0; i < seen->n_addresses; i++) {
        net_text(&seen->addresses[i], text);
        if (str_eq(text, address))
            return seen->interfaces[i];
    }
    return "";
}

json_t *node_seen_json(const struct discovered *seen) {
    char machine[2 * BEACON_ID_BYTES + 1], list[DISCOVERY_ADDRESSES_MAX][NET_TEXT_BYTES];
    json_t *addresses = json_array();
    size_t n = discovered_addresses(seen, list);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(addresses, json_pack("{s:s, s:s}", "address", list[i],
                                                   "interface", interface_of(seen, list[i])));
    sodium_bin2hex(machine, sizeof machine, seen->beacon.machine, BEACON_ID_BYTES);
    return json_pack("{s:s, s:s, s:s, s:o, s:f}", "name", seen->beacon.name, "version",
                     seen->beacon.version, "machine", machine, "addresses", addresses, "age_s",
                     seen->age_s);
}

static void handle_node(struct node *n, struct http_request *r) {
    json_t *o = node_facts(n->name), *workers = json_array();
    pthread_mutex_lock(&n->lock);
    for (const struct task *t = n->tasks; t != NULL; t = t->next)
        if (t->pid != 0)
            json_array_append_new(workers, json_pack("{s:i, s:i, s:s}", "pid", (int)t->pid,
                                                     "rank", t->rank, "model", t->files.name));
    pthread_mutex_unlock(&n->lock);
    json_object_set_new(o, "models", json_string(n->store));
    node_devices_tell(n->devices, o);
    json_object_set_new(o, "workers", workers);
    pthread_mutex_lock(&n->borrowed);
    if (n->controller != NULL)
        json_object_set_new(o, "deployments", controller_deployments(n->controller));
    pthread_mutex_unlock(&n->borrowed);
    reply_json(r, 200, o);
}

static json_t *strangers(struct discovery *d) {
    char list[DISCOVERY_STRANGERS_MAX][NET_TEXT_BYTES];
    json_t *all = json_array();
    size_t n = d != NULL ? discovery_strangers(d, list, DISCOVERY_STRANGERS_MAX) : 0;
    for (size_t i = 0; i < n; i++)
        json_array_append_new(all, json_string(list[i]));
    return all;
}

static void handle_nodes(struct node *n, struct http_request *r) {
    json_t *o = NULL, *self;
    pthread_mutex_lock(&n->borrowed);
    if (n->controller != NULL) {
        json_t *nodes = controller_nodes(n->controller, &self);
        o = json_pack("{s:o, s:o, s:o}", "nodes", nodes, "self", self, "strangers",
                      strangers(n->seen));
    }
    pthread_mutex_unlock(&n->borrowed);
    if (o != NULL)
        reply_json(r, 200, o);
    else
        peers_refuse(r, 503, "this node begins, or ends");
}

/* Of the copies that others have asked for. Under the lock. */
static json_t *say_downloads(const struct node *n) {
    json_t *list = json_array();
    for (const struct task *t = n->tasks; t != NULL; t = t->next)
        if (t->begun_s > 0)
            json_array_append_new(list, say_download(t));
    return list;
}

void node_tell(void *node, json_t *facts) {
    struct node *n = node;
    node_devices_tell(n->devices, facts);
    pthread_mutex_lock(&n->lock);
    json_object_set_new(facts, "downloads", say_downloads(n));
    pthread_mutex_unlock(&n->lock);
}

static void handle_models(struct node *n, struct http_request *r) {
    reply_json(r, 200, json_pack("{s:o}", "models", catalog_read(n->store)));
}

/* ---- tasks ------------------------------------------------------------------------------- */

static void task_free(void *user) {
    struct task *t = user;
    model_files_deinit(&t->files);
    json_decref(t->body);
    mem_free(t);
}

static void task_gone(void *user) {
    struct task *t = user;
    pthread_mutex_lock(&t->node->lock);
    t->gone = true;
    if (t->pid != 0)
        kill(t->pid, SIGKILL);
    pthread_mutex_unlock(&t->node->lock);
}

static bool is_closing(struct node *n) {
    pthread_mutex_lock(&n->lock);
    bool closing = n->closing;
    pthread_mutex_unlock(&n->lock);
    return closing;
}

static bool task_is_gone(struct task *t) {
    pthread_mutex_lock(&t->node->lock);
    bool gone = t->gone;
    pthread_mutex_unlock(&t->node->lock);
    return gone;
}

/* No more of it is to be seen in the list; its request has not ended yet. */
static void leave_list(struct task *t) {
    struct node *n = t->node;
    pthread_mutex_lock(&n->lock);
    for (struct task **at = &n->tasks; *at != NULL; at = &(*at)->next)
        if (*at == t) {
            *at = t->next;
            break;
        }
    pthread_mutex_unlock(&n->lock);
}

/* False: there are too many, or the node closes. */
static bool enter_list(struct task *t) {
    struct node *n = t->node;
    pthread_mutex_lock(&n->lock);
    bool room = n->n_tasks < TASKS_MAX && !n->closing;
    if (room) {
        n->n_tasks++;
        t->next = n->tasks;
        n->tasks = t;
    }
    pthread_mutex_unlock(&n->lock);
    return room;
}

/* Of those that entered, one runs no more. */
static void count_out(struct node *n) {
    pthread_mutex_lock(&n->lock);
    n->n_tasks--;
    pthread_cond_broadcast(&n->idle);
    pthread_mutex_unlock(&n->lock);
}

/* run() ends the request, after leave_list(). */
static void *task_main(void *user) {
    struct task *t = user;
    struct node *n = t->node;
    t->run(t);
    count_out(n);
    return NULL;
}

static void end_with_json(struct task *t, int status, json_t *v) {
    struct http_request *r = t->request;
    leave_list(t);
    reply_json(r, status, v);
}

static void end_with_error(struct task *t, enum status st, const char *sentence) {
    end_with_json(t, http_status_of(st), json_pack("{s:s}", "error", sentence));
}

static void end_stream(struct task *t) {
    struct http_request *r = t->request;
    leave_list(t);
    http_stream_end(r);
}

static enum status read_body(struct task *t, struct err *err) {
    json_error_t why;
    size_t len;
    const char *text = http_body(t->request, &len);
    json_t *model;
    if (json_count(text, len) > JSON_REQUEST_VALUES_MAX)
        return err_set(err, ST_BAD_INPUT, "the request has too many JSON values");
    t->body = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    if (t->body == NULL)
        return err_set(err, ST_BAD_INPUT, "the request is not valid JSON: %s", why.text);
    model = json_object_get(t->body, "model");
    if (t->by_name)
        return json_is_string(json_object_get(t->body, "name"))
                   ? ST_OK
                   : err_set(err, ST_BAD_INPUT, "the request names no model");
    if (model == NULL)
        return err_set(err, ST_BAD_INPUT, "the request names no model");
    t->hint = json_string_value(json_object_get(t->body, "hint"));
    return model_files_from_json(&t->files, model, err);
}

static void begin_task(struct node *n, struct http_request *r, void (*run)(struct task *t),
                       bool by_name) {
    struct err err;
    pthread_t thread;
    struct task *t = mem_calloc(1, sizeof *t);
    if (t == NULL) {
        peers_refuse(r, 503, "no memory for a request");
        return;
    }
    *t = (struct task){.node = n, .request = r, .run = run, .by_name = by_name};
    enum status st = read_body(t, &err);
    if (st != ST_OK) {
        refuse_for(r, st, err.text);
        task_free(t);
        return;
    }
    if (!enter_list(t)) {
        peers_refuse(r, 503, "this node has too much to do");
        task_free(t);
        return;
    }
    http_set_release(r, task_free, t);
    http_on_gone(r, task_gone, t);
    if (thread_start(&thread, task_main, t) == 0) {
        pthread_detach(thread);
        return;
    }
    leave_list(t);
    peers_refuse(r, 503, "no thread for a request");
    count_out(n);
}

/* ---- models ------------------------------------------------------------------------------ */

static void run_find(struct task *t) {
    char path[PATH_MAX];
    if (store_find(t->node->store, &t->files, t->hint, path, sizeof path))
        end_with_json(t, 200, json_pack("{s:s}", "path", path));
    else
        end_with_error(t, ST_NOT_FOUND, "this model is not here");
}

static void say_line(struct task *t, json_t *v) {
    char *text = json_dumps(v, JSON_COMPACT);
    if (text != NULL) {
        /* A client that does not read is noticed by go_on_fetching(). */
        (void)http_stream_write(t->request, text, strlen(text));
        (void)http_stream_write(t->request, "\n", 1);
    }
    free(text);
    json_decref(v);
}

struct told {
    struct task *task;
    double next_s;
};

static void note_bytes(struct task *t, uint64_t bytes, double now) {
    pthread_mutex_lock(&t->node->lock);
    if (t->begun_s == 0) {
        t->begun_s = now;
        t->first_bytes = bytes;
    }
    t->bytes = bytes;
    pthread_mutex_unlock(&t->node->lock);
}

static bool go_on_fetching(void *user, uint64_t bytes) {
    struct told *told = user;
    double now = clock_s();
    note_bytes(told->task, bytes, now);
    if (now >= told->next_s) {
        told->next_s = now + PROGRESS_S;
        say_line(told->task, json_pack("{s:I}", "bytes", (json_int_t)bytes));
    }
    return !task_is_gone(told->task);
}

static const char *why_gone(struct task *t) {
    return is_closing(t->node) ? "the node was told to end; what it has of the model is kept"
                               : "who asked for it has hung up; what is here is kept";
}

/* store.h's ST_NO_MEMORY is the disk's. */
static int fetch_status(enum status st) {
    return st == ST_NO_MEMORY ? 507 : http_status_of(st);
}

static void run_fetch(struct task *t) {
    struct told told = {.task = t};
    const struct store_progress progress = {go_on_fetching, &told};
    const char *from = json_string_value(json_object_get(t->body, "from"));
    char path[PATH_MAX];
    struct err err;
    if (from == NULL) {
        end_with_error(t, ST_BAD_INPUT, "the request does not say where to fetch from");
        return;
    }
    enum status st = store_check_room(t->node->store, &t->files, &err);
    if (st != ST_OK) {
        end_with_json(t, fetch_status(st), json_pack("{s:s}", "error", err.text));
        return;
    }
    http_stream_begin(t->request, 200, "application/x-ndjson");
    http_fill_quiet(t->request, "application/x-ndjson", QUIET_FILLER);
    st = store_fetch(t->node->store, t->node->id, from, &t->files, &progress, path, sizeof path,
                     &err);
    if (st == ST_CANCELLED)
        err_set(&err, st, "%s", why_gone(t));
    if (st == ST_OK)
        log_info("%s is here now: %s", t->files.name, path);
    else
        log_error("fetching %s: %s", t->files.name, err.text);
    say_line(t, st == ST_OK
                    ? json_pack("{s:s}", "path", path)
                    : json_pack("{s:s, s:i}", "error", err.text, "status", fetch_status(st)));
    end_stream(t);
}

/* ---- a model of a hub, from the machine that downloads it --------------------------------- */

static bool go_on_pulling(void *user, uint64_t bytes, uint64_t total) {
    struct told *told = user;
    pthread_mutex_lock(&told->task->node->lock);
    told->task->files.bytes = total;
    pthread_mutex_unlock(&told->task->node->lock);
    return go_on_fetching(told, bytes);
}

/* The relay (hub_relay.h) at the port that the request names, of the machine that sent it. */
static enum status pull_relayed(struct task *t, const struct progress *progress,
                                struct hub_pulled *out, struct err *err) {
    const char *revision = "main";
    int port = 0;
    char host[NET_TEXT_BYTES], at[NET_TEXT_BYTES + 16], endpoint[sizeof at + 16];
    struct hub_name name;
    json_unpack(t->body, "{s?s, s?i}", "revision", &revision, "port", &port);
    if (port < 1 || port > 65535)
        return err_set(err, ST_BAD_INPUT, "the request does not say where to fetch from");
    TRY(hub_name_parse(&name, json_text(t->body, "name"), err));
    http_client_host(t->request, host, sizeof host);
    net_join(at, sizeof at, host, port);
    snprintf(endpoint, sizeof endpoint, "https://%s", at);
    const struct hub_settings settings = {.endpoint = endpoint,
                                          .token = t->node->id->token,
                                          .pin = t->node->id->pin,
                                          .silence_s = RELAY_SILENCE_S};
    return hub_pull(&name, &settings, revision, progress, out, err);
}

static void run_pull(struct task *t) {
    struct told told = {.task = t};
    const struct progress progress = {go_on_pulling, &told};
    const char *name = json_text(t->body, "name");
    struct hub_pulled got;
    struct err err;
    if ((t->files.name = mem_strdup(name)) == NULL) { /* for the list of downloads */
        end_with_error(t, ST_NO_MEMORY, "no memory for a request");
        return;
    }
    http_stream_begin(t->request, 200, "application/x-ndjson");
    http_fill_quiet(t->request, "application/x-ndjson", QUIET_FILLER);
    enum status st = pull_relayed(t, &progress, &got, &err);
    if (st == ST_CANCELLED)
        err_set(&err, st, "%s", why_gone(t));
    if (st == ST_OK)
        log_info("%s is here now: %s", name, got.path);
    else
        log_error("fetching %s: %s", name, err.text);
    say_line(t, st == ST_OK
                    ? json_pack("{s:s, s:I}", "path", got.path, "bytes", (json_int_t)got.bytes)
                    : json_pack("{s:s, s:i}", "error", err.text, "status", fetch_status(st)));
    end_stream(t);
}

static bool go_on_linking(void *user, uint64_t bytes) {
    (void)bytes;
    return !task_is_gone(user);
}

static void run_link(struct task *t) {
    const struct store_progress progress = {go_on_linking, t};
    const char *from = json_string_value(json_object_get(t->body, "from"));
    char path[PATH_MAX];
    struct err err;
    enum status st = from != NULL ? store_link(t->node->store, t->node->id, from, &t->files,
                                               &progress, path, sizeof path, &err)
                                  : err_set(&err, ST_BAD_INPUT,
                                            "the request does not say where the model is");
    if (st == ST_OK)
        end_with_json(t, 200, json_pack("{s:s}", "path", path));
    else
        end_with_error(t, st, err.text);
}

static enum status find_offer(struct task *t, char path[PATH_MAX], struct err *err) {
    const char *name = json_string_value(json_object_get(t->body, "name"));
    json_t *catalog = catalog_read_all(t->node->store);
    const char *found = catalog_find(catalog, name);
    if (found != NULL)
        snprintf(path, PATH_MAX, "%s", found);
    json_decref(catalog);
    return found != NULL ? ST_OK
                         : err_set(err, ST_NOT_FOUND, "no model called %s is here", name);
}

static void run_offer(struct task *t) {
    char path[PATH_MAX];
    struct model_share *share;
    struct err err;
    enum status st = find_offer(t, path, &err);
    if (st == ST_OK)
        st = model_files_read(&t->files, path, &err);
    if (st == ST_OK)
        st = model_share_open(&share, t->node->id, &t->files, path, &err);
    if (st != ST_OK) {
        end_with_error(t, st, err.text);
        return;
    }
    http_stream_begin(t->request, 200, "application/x-ndjson");
    http_fill_quiet(t->request, "application/x-ndjson", QUIET_FILLER);
    say_line(t, json_pack("{s:o, s:s, s:i}", "model", model_files_json(&t->files), "path", path,
                          "port", model_share_port(share)));
    while (!task_is_gone(t))
        poll(NULL, 0, OFFER_LOOK_MS);
    model_share_close(share);
    end_stream(t);
}

/* ---- workers ----------------------------------------------------------------------------- */

/* Hands on what the worker says until it says no more. */
static void hand_on(struct task *t, int fd) {
    char text[LINE_BYTES];
    for (;;) {
        ssize_t n = read(fd, text, sizeof text);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        if (http_stream_write(t->request, text, (size_t)n) != ST_OK)
            task_gone(t);
    }
}

/* Its exit, once it has come. */
static int wait_for(struct task *t, pid_t pid) {
    siginfo_t info;
    int status = 0;
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR)
        continue;
    /* Until it is reaped, no other process has its pid. */
    pthread_mutex_lock(&t->node->lock);
    t->pid = 0;
    pthread_mutex_unlock(&t->node->lock);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return status;
}

static enum status start_worker(struct task *t, pid_t *pid, int *fd, struct err *err) {
    char path[PATH_MAX], address[NET_TEXT_BYTES];
    const char *store = t->node->store;
    json_t *job = json_object_get(t->body, "job");
    if (!json_is_object(job))
        return err_set(err, ST_BAD_INPUT, "the request has no job");
    json_object_del(job, "source");
    if (!store_find(store, &t->files, t->hint, path, sizeof path)) {
        if (!store_find_link(store, &t->files, path, sizeof path, address, sizeof address))
            return err_set(err, ST_NOT_FOUND, "%s is not here", t->files.name);
        json_object_set_new(job, "source", json_string(address));
    }
    json_object_set_new(job, "model", json_string(path));
    char *text = json_dumps(job, JSON_COMPACT);
    if (text == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a job");
    enum status st = launch_worker(pid, fd, t->node->worker_path, text, err);
    free(text);
    return st;
}

static void run_worker(struct task *t) {
    struct err err;
    char last[256];
    pid_t pid;
    int fd,
        rank =
            (int)json_integer_value(json_object_get(json_object_get(t->body, "job"), "rank"));
    enum status st = start_worker(t, &pid, &fd, &err);
    if (st != ST_OK) {
        end_with_error(t, st, err.text);
        return;
    }
    log_info("rank %d of %s: worker %d begins", rank, t->files.name, (int)pid);
    pthread_mutex_lock(&t->node->lock);
    t->pid = pid;
    t->rank = rank;
    if (t->gone)
        kill(pid, SIGKILL);
    pthread_mutex_unlock(&t->node->lock);
    http_stream_begin(t->request, 200, "text/plain; charset=utf-8");
    http_fill_quiet(t->request, "text/plain; charset=utf-8", QUIET_FILLER);
    hand_on(t, fd);
    int status = wait_for(t, pid);
    close(fd);
    bool killed = WIFSIGNALED(status);
    const char *how = killed ? "signal" : "exit";
    int number = killed ? WTERMSIG(status) : WEXITSTATUS(status);
    log_info("rank %d of %s: worker %d ended: %s %d", rank, t->files.name, (int)pid, how,
             number);
    if (is_closing(t->node)) {
        snprintf(last, sizeof last,
                 "\nerror: the node %s was told to end, and ended its worker\n", t->node->name);
        (void)http_stream_write(t->request, last, strlen(last));
    }
    snprintf(last, sizeof last, "\n%s %d\n", how, number);
    (void)http_stream_write(t->request, last, strlen(last));
    end_stream(t);
}

/* ---- routes ------------------------------------------------------------------------------ */

static const struct {
    const char *method, *path;
    void (*handle)(struct node *n, struct http_request *r); /* one of the three */
    void (*run)(struct task *t);
    bool by_name; /* of run: as in struct task */
    void (*keep)(struct controller *k, struct http_request *r);
} routes[] = {
    {"GET", "/v1/node", .handle = handle_node},
    {"GET", "/v1/nodes", .handle = handle_nodes},
    {"GET", "/v1/models", .handle = handle_models},
    {"POST", "/v1/models/offer", .run = run_offer, .by_name = true},
    {"POST", "/v1/models/find", .run = run_find},
    {"POST", "/v1/models/fetch", .run = run_fetch},
    {"POST", "/v1/models/link", .run = run_link},
    {"POST", "/v1/models/pull", .run = run_pull, .by_name = true},
    {"POST", "/v1/workers", .run = run_worker},
    {"GET", "/v1/deployments", .keep = controller_handle_list},
    {"POST", "/v1/deployments", .keep = controller_handle_put},
    {"POST", "/v1/deployments/remove", .keep = controller_handle_remove},
    {"POST", "/v1/deployments/sync", .keep = controller_handle_sync},
    {"GET", "/v1/cluster", .keep = controller_handle_cluster},
    {"GET", "/v1/cluster/self", .keep = controller_handle_self},
    {"POST", "/v1/cluster/speed", .keep = controller_handle_speed},
    {"POST", "/v1/cluster/plan", .keep = controller_handle_plan},
    {"POST", "/v1/cluster/move", .keep = controller_handle_move},
};

static const char nothing_there[] = "there is nothing at this path";

static void hand_to_controller(struct node *n, struct http_request *r,
                               void (*keep)(struct controller *k, struct http_request *r)) {
    pthread_mutex_lock(&n->borrowed);
    if (n->controller != NULL)
        keep(n->controller, r);
    else
        peers_refuse(r, 404, nothing_there);
    pthread_mutex_unlock(&n->borrowed);
}

static void handle(void *user, struct http_request *r) {
    struct node *n = user;
    bool known = false;
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        if (!str_eq(http_path(r), routes[i].path))
            continue;
        known = true;
        if (!str_eq(http_method(r), routes[i].method))
            continue;
        if (routes[i].handle != NULL)
            routes[i].handle(n, r);
        else if (routes[i].run != NULL)
            begin_task(n, r, routes[i].run, routes[i].by_name);
        else
            hand_to_controller(n, r, routes[i].keep);
        return;
    }
    if (known)
        peers_refuse(r, 405, "this path does not support that method");
    else
        peers_refuse(r, 404, nothing_there);
}

/* ---- opening and closing ------------------------------------------------------------------- */

static enum status listen_at(struct node *n, const struct node_config *cfg, struct err *err) {
    struct http_config http;
    http_config_init(&http);
    http.host = cfg->host;
    http.port = cfg->port;
    http.max_body_bytes = BODY_MAX;
    http.max_per_address = CONNECTIONS_OF_ONE;
    http.handle = handle;
    http.user = n;
    return peers_open(&n->http, &http, cfg->id, err);
}

static void node_free(struct node *n) {
    node_devices_close(n->devices);
    pthread_mutex_destroy(&n->borrowed);
    pthread_mutex_destroy(&n->lock);
    pthread_cond_destroy(&n->idle);
    mem_free(n->name);
    mem_free(n->store);
    mem_free(n->worker_path);
    mem_free(n);
}

enum status node_open(struct node **out, const struct node_config *cfg, struct err *err) {
    struct node *n = mem_calloc(1, sizeof *n);
    if (n == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a node");
    pthread_mutex_init(&n->borrowed, NULL);
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->idle, NULL);
    n->id = cfg->id;
    n->name = mem_strdup(cfg->name);
    n->store = mem_strdup(cfg->store);
    n->worker_path = cfg->worker_path != NULL ? mem_strdup(cfg->worker_path) : NULL;
    enum status st = ST_OK;
    if (n->name == NULL || n->store == NULL ||
        (cfg->worker_path != NULL && n->worker_path == NULL))
        st = err_set(err, ST_NO_MEMORY, "no memory for a node");
    if (st == ST_OK)
        st = node_devices_open(&n->devices, n->worker_path, err);
    if (st == ST_OK)
        st = listen_at(n, cfg, err);
    if (st != ST_OK) {
        node_free(n);
        return st;
    }
    *out = n;
    return ST_OK;
}

int node_port(const struct node *n) {
    return http_port(n->http);
}

void node_set_discovery(struct node *n, struct discovery *d) {
    pthread_mutex_lock(&n->borrowed);
    n->seen = d;
    pthread_mutex_unlock(&n->borrowed);
}

void node_set_controller(struct node *n, struct controller *k) {
    pthread_mutex_lock(&n->borrowed);
    n->controller = k;
    pthread_mutex_unlock(&n->borrowed);
}

int node_n_workers(struct node *n) {
    int count = 0;
    pthread_mutex_lock(&n->lock);
    for (const struct task *t = n->tasks; t != NULL; t = t->next)
        count += t->pid != 0;
    pthread_mutex_unlock(&n->lock);
    return count;
}

void node_close(struct node *n) {
    if (n == NULL)
        return;
    pthread_mutex_lock(&n->lock);
    n->closing = true;
    for (struct task *t = n->tasks; t != NULL; t = t->next) {
        t->gone = true;
        if (t->pid != 0)
            kill(t->pid, SIGKILL);
    }
    while (n->n_tasks > 0)
        pthread_cond_wait(&n->idle, &n->lock);
    pthread_mutex_unlock(&n->lock);
    (void)http_drain(n->http, LAST_WORDS_MS);
    http_close(n->http);
    node_free(n);
}
