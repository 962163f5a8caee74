/* bench_http.c: what HTTP costs: tokens per second of one greedy stream, and of several, three
 * ways in turn.
 *
 *     bench_http MODEL [--threads N] [--streams 1] [--predict 128] [--rounds 7] [--guess]
 *
 *   generate  lockstep_generate(), which `lockstep bench` measures; one stream only
 *   engine    the server's own engine, asked in its process
 *   http      the same engine, asked over HTTP by another process: /v1/completions, streamed
 *
 * All three hold the same weights, begin with the same prompts, get as many tokens and see the
 * same context, in rounds that go through them in turn, each from another one on, so that what
 * disturbs the machine disturbs all. A stream's rate is that after its first token; several are
 * added up. Shown are the medians of the rate, of the time outside of steps (for each step; a
 * request's arrival and end included), and of each round's ratio to the way before it in this
 * list, with the quartiles. The client has a process of its own and runs on the same cores.
 * Guesses (prompt lookup) are off, since lockstep_generate() makes none, unless --guess is
 * given. */
#include "api/server.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/util.h"
#include "lockstep/lockstep.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define STREAMS_MAX 64
#define ROUNDS_MAX 101

enum way { WAY_GENERATE, WAY_ENGINE, WAY_HTTP, N_WAYS };
static const char *const way_names[N_WAYS] = {"generate", "engine", "http"};

struct options {
    struct server_config server;
    int n_streams, n_predict, rounds;
};

__attribute__((noreturn)) static void die(const char *what) {
    fprintf(stderr, "bench_http: %s\n", what);
    exit(1);
}

static int32_t first_token(int stream) {
    return 300 + 7 * stream;
}

/* The tokens after a stream's first one, of all streams. */
struct times {
    double first_s, last_s; /* of a stream; 0: not yet */
};

static double rate_of(const struct times *t, const struct options *o) {
    double rate = 0;
    for (int i = 0; i < o->n_streams; i++)
        rate += o->n_predict / (t[i].last_s - t[i].first_s);
    return rate;
}

static void note(struct times *t) {
    t->last_s = clock_s();
    if (t->first_s == 0)
        t->first_s = t->last_s;
}

/* ---- lockstep_generate() ----------------------------------------------------------------- */

static double by_generate(struct lockstep *ls, const struct options *o) {
    struct lockstep_request req;
    struct lockstep_sampling greedy;
    struct lockstep_result result;
    struct lockstep_error err;
    int32_t id = first_token(0);
    lockstep_request_init(&req);
    lockstep_sampling_init(&greedy);
    req.ids = &id;
    req.n_ids = 1;
    req.n_predict = o->n_predict + 1;
    req.ignore_end = true;
    greedy.temperature = 0;
    req.sampling = &greedy;
    lockstep_reset(ls);
    if (lockstep_generate(ls, &req, &result, &err) != LOCKSTEP_OK)
        die(err.text);
    return o->n_predict / result.generate_s;
}

/* ---- the engine -------------------------------------------------------------------------- */

struct asked {
    pthread_mutex_t lock;
    pthread_cond_t over;
    int n_left;
};

struct asker {
    struct asked *asked;
    struct times *times;
};

static void on_event(void *user, const struct service_event *ev) {
    struct asker *a = user;
    note(a->times);
    if (ev->kind != EVENT_DONE)
        return;
    if (ev->done->st != ST_OK)
        die(ev->done->error);
    pthread_mutex_lock(&a->asked->lock);
    if (--a->asked->n_left == 0)
        pthread_cond_signal(&a->asked->over);
    pthread_mutex_unlock(&a->asked->lock);
}

static double by_engine(struct server *s, const struct options *o) {
    struct asker askers[STREAMS_MAX];
    struct times times[STREAMS_MAX] = {{0}};
    struct asked asked = {.n_left = o->n_streams};
    pthread_mutex_init(&asked.lock, NULL);
    pthread_cond_init(&asked.over, NULL);
    for (int i = 0; i < o->n_streams; i++) {
        struct service_request r;
        struct err err;
        int32_t id = first_token(i);
        askers[i] = (struct asker){.asked = &asked, .times = &times[i]};
        service_request_init(&r);
        r.ids = &id;
        r.n_ids = 1;
        r.n_predict = o->n_predict + 1;
        r.ignore_end = true;
        r.sampling.base.temperature = 0;
        r.on_event = on_event;
        r.user = &askers[i];
        struct generation *g;
        if (service_generate(server_service(s), &r, &g, &err) != ST_OK)
            die(err.text);
        generation_release(g);
    }
    pthread_mutex_lock(&asked.lock);
    while (asked.n_left > 0)
        pthread_cond_wait(&asked.over, &asked.lock);
    pthread_mutex_unlock(&asked.lock);
    pthread_mutex_destroy(&asked.lock);
    pthread_cond_destroy(&asked.over);
    return rate_of(times, o);
}

/* ---- HTTP, in the client's process ------------------------------------------------------- */

static int connect_or_die(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int yes = 1;
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) != 0)
        die("the client cannot connect");
    return fd;
}

static void post_or_die(int fd, int stream, int n_tokens) {
    char body[256], text[512];
    int n_body = snprintf(body, sizeof body,
                          "{\"prompt\":[%d],\"max_tokens\":%d,\"ignore_eos\":true,"
                          "\"temperature\":0,\"stream\":true}",
                          first_token(stream), n_tokens);
    int n = snprintf(text, sizeof text,
                     "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                     "Content-Length: %d\r\n\r\n%s",
                     n_body, body);
    if (send(fd, text, (size_t)n, MSG_NOSIGNAL) != n)
        die("the client cannot ask");
}

/* False: the answer is over. `end` keeps its last bytes. */
static bool read_stream(int fd, struct times *t, char end[16]) {
    char data[65536];
    ssize_t got = recv(fd, data, sizeof data, 0);
    if (got < 0)
        die("the client lost its connection");
    if (got == 0)
        return false;
    if (t->first_s == 0 && (got < 12 || memcmp(data, "HTTP/1.1 200", 12) != 0))
        die("the server refuses the request");
    note(t);
    size_t n = MIN((size_t)got, (size_t)15), have = strlen(end), keep = MIN(have, 15 - n);
    memmove(end, end + have - keep, keep);
    memcpy(end + keep, data + got - n, n);
    end[keep + n] = '\0';
    return true;
}

/* The head comes with the first token, and what follows the last one comes with it. */
static double by_client(int port, const struct options *o) {
    struct times times[STREAMS_MAX] = {{0}};
    struct pollfd p[STREAMS_MAX];
    char ends[STREAMS_MAX][16] = {{0}};
    for (int i = 0; i < o->n_streams; i++) {
        p[i] = (struct pollfd){.fd = connect_or_die(port), .events = POLLIN};
        post_or_die(p[i].fd, i, o->n_predict + 1);
    }
    for (int n_left = o->n_streams; n_left > 0;) {
        poll(p, (nfds_t)o->n_streams, -1);
        for (int i = 0; i < o->n_streams; i++) {
            if (p[i].revents == 0 || read_stream(p[i].fd, &times[i], ends[i]))
                continue;
            if (strstr(ends[i], "0\r\n\r\n") == NULL)
                die("an answer has no end");
            close(p[i].fd);
            p[i].fd = -1;
            n_left--;
        }
    }
    return rate_of(times, o);
}

struct client {
    pid_t pid;
    int ask, answer; /* pipes */
};

/* Before there are threads. */
static struct client start_client(const struct options *o) {
    int ask[2], answer[2];
    if (pipe(ask) != 0 || pipe(answer) != 0)
        die("no pipe for a client");
    pid_t pid = fork();
    if (pid < 0)
        die("no process for a client");
    if (pid == 0) {
        int port;
        close(ask[1]);
        while (read(ask[0], &port, sizeof port) == sizeof port) {
            double rate = by_client(port, o);
            if (write(answer[1], &rate, sizeof rate) != sizeof rate)
                break;
        }
        _exit(0);
    }
    close(ask[0]);
    close(answer[1]);
    return (struct client){.pid = pid, .ask = ask[1], .answer = answer[0]};
}

static double by_http(const struct client *c, struct server *s) {
    const int port = server_port(s);
    double rate;
    if (write(c->ask, &port, sizeof port) != sizeof port ||
        read(c->answer, &rate, sizeof rate) != sizeof rate)
        die("the client is gone");
    return rate;
}

/* ---- rounds ------------------------------------------------------------------------------ */

static double at_share(const double *v, int n, double share) {
    double sorted[ROUNDS_MAX];
    memcpy(sorted, v, (size_t)n * sizeof *v);
    sort_values(sorted, (size_t)n);
    return sorted[(int)(share * (n - 1) + 0.5)];
}

struct result {
    double rate[ROUNDS_MAX];    /* tokens/s */
    double outside[ROUNDS_MAX]; /* seconds outside of steps, for each */
};

static double seconds_outside(double wall_s, double steps_s, uint64_t n_steps) {
    return n_steps > 0 ? (wall_s - steps_s) / (double)n_steps : 0;
}

static void measure_generate(struct result *r, int at, struct lockstep *ls,
                             const struct options *o) {
    struct lockstep_times t;
    lockstep_times(ls, &t, true);
    double began = clock_s();
    r->rate[at] = by_generate(ls, o);
    double wall = clock_s() - began;
    lockstep_times(ls, &t, true);
    r->outside[at] = seconds_outside(wall, t.compute_s + t.fabric_s, t.steps);
}

/* client: NULL for the engine's own callbacks. */
static void measure_server(struct result *r, int at, struct server *s,
                           const struct client *client, const struct options *o) {
    struct engine_stats before, after;
    service_stats(server_service(s), &before);
    double began = clock_s();
    r->rate[at] = client != NULL ? by_http(client, s) : by_engine(s, o);
    double wall = clock_s() - began;
    do /* the engine shows a step's figures when it looks for the next one */
        service_stats(server_service(s), &after);
    while (after.running > 0);
    r->outside[at] = seconds_outside(
        wall, after.compute_s + after.fabric_s - before.compute_s - before.fabric_s,
        after.steps - before.steps);
}

static void show(const struct result *results, int first_way, int n) {
    printf("way       tokens/s  outside of a step  times the way before (quartiles)\n");
    for (int way = first_way; way < N_WAYS; way++) {
        const struct result *r = &results[way];
        double ratios[ROUNDS_MAX];
        printf("%-8s  %8.2f  %14.1f us", way_names[way], at_share(r->rate, n, 0.5),
               at_share(r->outside, n, 0.5) * 1e6);
        for (int i = 0; i < n && way > first_way; i++)
            ratios[i] = r->rate[i] / r[-1].rate[i];
        if (way > first_way)
            printf("  %.3f (%.3f to %.3f)", at_share(ratios, n, 0.5), at_share(ratios, n, 0.25),
                   at_share(ratios, n, 0.75));
        printf("\n");
    }
}

/* ls: NULL: several streams. */
static void bench(const struct client *client, struct lockstep *ls, struct server *s,
                  const struct options *o) {
    static struct result results[N_WAYS];
    for (int round = -1; round < o->rounds; round++) {
        int at = MAX(round, 0); /* the first round warms up */
        for (int i = 0; i < N_WAYS; i++) {
            enum way way = (enum way)((at + i) % N_WAYS);
            if (way != WAY_GENERATE)
                measure_server(&results[way], at, s, way == WAY_HTTP ? client : NULL, o);
            else if (ls != NULL)
                measure_generate(&results[way], at, ls, o);
        }
    }
    show(results, ls != NULL ? WAY_GENERATE : WAY_ENGINE, o->rounds);
}

static void parse(struct options *o, int argc, char **argv) {
    struct engine_config *e = &o->server.service.engine;
    e->model.model_path = argv[1];

    e->no_speculation = e->no_prefix_cache = true;
    for (int i = 2; i < argc; i++) {
        if (str_eq(argv[i], "--guess")) {
            e->no_speculation = false;
            continue;
        }
        int v = i + 1 < argc ? atoi(argv[i + 1]) : 0;
        if (str_eq(argv[i], "--threads"))
            e->model.n_threads = v;
        else if (str_eq(argv[i], "--streams"))
            o->n_streams = MIN(MAX(v, 1), STREAMS_MAX);
        else if (str_eq(argv[i], "--predict"))
            o->n_predict = MAX(v, 2);
        else if (str_eq(argv[i], "--rounds"))
            o->rounds = MIN(MAX(v, 1), ROUNDS_MAX);
        i++;
    }
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: bench_http MODEL [--threads N] [--streams N] [--predict N] "
                        "[--rounds N] [--guess]\n");
        return 2;
    }
    struct options o = {.n_streams = 1, .n_predict = 128, .rounds = 7};
    server_config_init(&o.server);
    o.server.http.port = 0;
    parse(&o, argc, argv);
    o.server.service.engine.model.n_ctx = o.n_predict + 16;
    struct client client = start_client(&o);
    struct err err;
    struct lockstep_error ls_err;
    struct server *s;
    struct lockstep *ls = NULL;
    if (o.n_streams == 1 &&
        lockstep_open(&ls, &o.server.service.engine.model, &ls_err) != LOCKSTEP_OK)
        die(ls_err.text);
    if (server_open(&s, &o.server, &err) != ST_OK)
        die(err.text);
    bench(&client, ls, s, &o);
    if (ls != NULL)
        lockstep_close(ls);
    server_close(s, 1000);
    close(client.ask);
    waitpid(client.pid, NULL, 0);
    return 0;
}
