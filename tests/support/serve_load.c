/* serve_load: many clients of lockstep serve at once, all in one thread.
 *
 *   serve_load storm PORT PID SECONDS   64 clients: streams in three dialects, whole answers, bad
 *                                       requests, clients that hang up or hardly read. Half of
 *                                       them are one greedy client (by key), the others one each.
 *   serve_load prompt PORT TOKENS [SEED]  a prompt of so many tokens comes while four streams run;
 *                                       with a seed that a shorter one had, only the rest of it is
 *                                       computed
 *   serve_load speed PORT TOKENS        tokens/s of one stream
 *
 * It says what it found and ends with 0 if all was as it should be. PID is the server's, for
 * its memory and threads. */
#include "base/clock.h"
#include "base/median.h"
#include "base/rng.h"
#include "base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define N_CLIENTS 64
#define TAIL 256
#define GAPS_MAX 65536
#define WAITS_MAX 1024

static int port, n_wrong;

__attribute__((format(printf, 1, 2))) static void wrong(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    if (n_wrong++ < 20) {
        printf("FAILED: ");
        vprintf(fmt, ap);
        printf("\n");
    }
    va_end(ap);
}

/* ---- a connection, and the answer that comes over it ------------------------------------- */

enum part { PART_HEAD, PART_SIZE, PART_DATA, PART_DATA_END, PART_REST, PART_DONE };

struct answer {
    enum part part;
    char line[1024]; /* of the head, or a chunk's size */
    size_t n_line, left, n_body;
    int status;
    bool chunked;
    char tail[TAIL + 1]; /* the body's end */
};

struct conn {
    int fd; /* -1: none */
    struct answer a;
};

static bool conn_open(struct conn *c, int receive_bytes) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int yes = 1;
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_bytes > 0)
        setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return connect(c->fd, (struct sockaddr *)&at, sizeof at) == 0;
}

static void conn_close(struct conn *c) {
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

static bool conn_post(struct conn *c, const char *path, const char *key, const char *body) {
    static char text[1 << 18];
    int n = snprintf(
        text, sizeof text,
        "POST %s HTTP/1.1\r\nHost: localhost\r\nx-api-key: %s\r\nContent-Length: %zu\r\n\r\n%s",
        path, key, strlen(body), body);
    c->a = (struct answer){.part = PART_HEAD};
    for (int at = 0; at < n;) {
        ssize_t sent = send(c->fd, text + at, (size_t)(n - at), MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        at += (int)sent;
    }
    return true;
}

static void keep_tail(struct answer *a, const char *data, size_t n) {
    size_t have = strlen(a->tail), add = MIN(n, (size_t)TAIL), keep = MIN(have, TAIL - add);
    memmove(a->tail, a->tail + have - keep, keep);
    memcpy(a->tail + keep, data + n - add, add);
    for (size_t i = 0; i < add; i++)
        if (a->tail[keep + i] == '\0')
            a->tail[keep + i] = ' ';
    a->tail[keep + add] = '\0';
    a->n_body += n;
}

static void take_line(struct answer *a) {
    char *end;
    if (a->part == PART_SIZE) {
        a->left = strtoul(a->line, &end, 16);
        a->part = a->left > 0 ? PART_DATA : PART_REST;
    } else if (a->part == PART_DATA_END) {
        a->part = PART_SIZE;
    } else if (a->n_line == 0) { /* of the head, or of the trailer */
        bool over = a->part == PART_REST || (!a->chunked && a->left == 0);
        a->part = over ? PART_DONE : a->chunked ? PART_SIZE : PART_DATA;
    } else if (a->part == PART_HEAD) {
        if (a->status == 0)
            sscanf(a->line, "HTTP/1.1 %d", &a->status);
        if (strncasecmp(a->line, "Content-Length:", 15) == 0)
            a->left = strtoul(a->line + 15, NULL, 10);
        if (strcasecmp(a->line, "Transfer-Encoding: chunked") == 0)
            a->chunked = true;
    }
    a->n_line = 0;
}

static void take_bytes(struct answer *a, const char *data, size_t n) {
    for (size_t i = 0; i < n && a->part != PART_DONE;) {
        if (a->part == PART_DATA) {
            size_t some = MIN(n - i, a->left);
            keep_tail(a, data + i, some);
            i += some;
            a->left -= some;
            if (a->left == 0)
                a->part = a->chunked ? PART_DATA_END : PART_DONE;
            continue;
        }
        char byte = data[i++];
        if (byte == '\n') {
            a->line[a->n_line] = '\0';
            take_line(a);
        } else if (byte != '\r' && a->n_line + 1 < sizeof a->line) {
            a->line[a->n_line++] = byte;
        }
    }
}

/* At most `most` bytes. False when the other side has closed. */
static bool conn_read(struct conn *c, size_t most) {
    char data[65536];
    ssize_t n = recv(c->fd, data, MIN(most, sizeof data), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0)
        return false;
    take_bytes(&c->a, data, (size_t)n);
    return true;
}

static void conn_wait(struct conn *c) {
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    poll(&p, 1, 1000);
}

/* ---- a storm ----------------------------------------------------------------------------- */

enum kind {
    KIND_CHAT,
    KIND_MESSAGES,
    KIND_OLLAMA,
    KIND_WHOLE,
    KIND_BAD,
    KIND_HANGS_UP,
    KIND_SLOW,
    N_KINDS
};
static const char *const kind_names[N_KINDS] = {"chats", "messages", "ollama's",    "whole",
                                                "bad",   "hung up",  "slow readers"};

struct client {
    struct conn c;
    char key[16];
    uint64_t seed, n_asked;
    enum kind kind;
    bool busy;
    double asked_s, first_s, until_s, next_read_s;
    size_t hang_up_after;
    /* For the first token of answers that were read normally; the last ones. */
    double waits_s[WAITS_MAX];
    size_t n_waited;
};

static struct client clients[N_CLIENTS];
static long n_done[N_KINDS];

static enum kind choose_kind(uint64_t dice) {
    static const int percent[N_KINDS] = {38, 12, 12, 12, 8, 12, 6};
    int at = (int)(dice % 100), k = 0;
    while (at >= percent[k])
        at -= percent[k++];
    return (enum kind)k;
}

static void ask(struct client *cl, double now) {
    static const char *const bad[] = {"{\"messages\":", "{\"messages\":[]}", "[1,2]",
                                      ("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
                                       "\"temperature\":\"hot\"}")};
    uint64_t dice = rng_u64(cl->seed, cl->n_asked++);
    char prompt[1024] = "", body[2048];
    size_t n_words = 3 + dice / 1000 % 60;
    for (size_t i = 0; i < n_words; i++)
        snprintf(prompt + strlen(prompt), 16, "word%llu ",
                 (unsigned long long)(rng_u64(cl->seed + 77, i + n_words) % 100));
    int n_predict = 5 + (int)(dice / 100000 % 100);
    const char *path = "/v1/chat/completions";
    cl->kind = choose_kind(dice);
    snprintf(body, sizeof body,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"max_tokens\":%d,"
             "\"stream\":%s,"
             "\"ignore_eos\":true,\"options\":{\"num_predict\":%d}}",
             prompt, cl->kind == KIND_SLOW ? 3000 : n_predict,
             cl->kind == KIND_WHOLE ? "false" : "true", n_predict);
    if (cl->kind == KIND_BAD)
        snprintf(body, sizeof body, "%s", bad[dice / 7 % ARRAY_LEN(bad)]);
    else if (cl->kind == KIND_MESSAGES)
        path = "/v1/messages";
    else if (cl->kind == KIND_OLLAMA)
        path = "/api/chat";
    cl->hang_up_after = dice / 3 % 6000;
    cl->asked_s = now;
    cl->first_s = 0;
    cl->next_read_s = 0;
    cl->until_s = now + (cl->kind == KIND_SLOW ? 2.0 : 300.0);
    /* Half of them use their connection again; the receive buffer cannot be changed on one. */
    if (cl->kind == KIND_SLOW || dice / 11 % 2 == 0)
        conn_close(&cl->c);
    if ((cl->c.fd < 0 && !conn_open(&cl->c, cl->kind == KIND_SLOW ? 4096 : 0)) ||
        !conn_post(&cl->c, path, cl->key, body)) {
        wrong("cannot ask: %s", strerror(errno));
        conn_close(&cl->c);
        return;
    }
    cl->busy = true;
}

static void judge(const struct client *cl) {
    static const char *const ends[N_KINDS] = {
        "data: [DONE]", "message_stop", "\"done_reason\":", "\"usage\":", "\"error\":", "", ""};
    const struct answer *a = &cl->c.a;
    int status = cl->kind == KIND_BAD ? 400 : 200;
    bool early = cl->kind == KIND_HANGS_UP || cl->kind == KIND_SLOW;
    if (a->status != status)
        wrong("%s: status %d: %s", kind_names[cl->kind], a->status, a->tail);
    else if (!early && strstr(a->tail, ends[cl->kind]) == NULL)
        wrong("%s: ends with %s", kind_names[cl->kind], a->tail);
}

static void end_request(struct client *cl, bool keep) {
    n_done[cl->kind]++;
    if (cl->first_s != 0 && cl->kind <= KIND_OLLAMA) {
        cl->waits_s[cl->n_waited++ % WAITS_MAX] = cl->first_s - cl->asked_s;
    }
    if (!keep)
        conn_close(&cl->c);
    cl->busy = false;
}

static void listen_to(struct client *cl, double now) {
    bool slow = cl->kind == KIND_SLOW;
    if (slow && now < cl->next_read_s)
        return;
    cl->next_read_s = now + 0.02;
    bool open = conn_read(&cl->c, slow ? 64 : 65536);
    if (cl->first_s == 0 && cl->c.a.n_body > 0)
        cl->first_s = now;
    if (cl->c.a.part == PART_DONE) {
        judge(cl);
        end_request(cl, true);
    } else if (!open) {
        wrong("%s: closed by the server after %zu bytes: %s", kind_names[cl->kind],
              cl->c.a.n_body, cl->c.a.tail);
        end_request(cl, false);
    } else if (cl->kind == KIND_HANGS_UP && cl->c.a.n_body > cl->hang_up_after) {
        end_request(cl, false);
    }
}

static void look_at_time(struct client *cl, double now) {
    if (now < cl->until_s)
        return;
    if (cl->kind != KIND_SLOW)
        wrong("%s: no end after five minutes", kind_names[cl->kind]);
    end_request(cl, false);
}

static void storm_round(bool asking) {
    struct pollfd p[N_CLIENTS];
    double now = clock_s();
    for (int i = 0; i < N_CLIENTS; i++) {
        struct client *cl = &clients[i];
        if (!cl->busy && asking)
            ask(cl, now);
        bool wants = cl->busy && (cl->kind != KIND_SLOW || now >= cl->next_read_s);
        p[i] = (struct pollfd){.fd = wants ? cl->c.fd : -1, .events = POLLIN};
    }
    poll(p, N_CLIENTS, 5);
    now = clock_s();
    for (int i = 0; i < N_CLIENTS; i++) {
        if (clients[i].busy && p[i].fd >= 0 && p[i].revents != 0)
            listen_to(&clients[i], now);
        if (clients[i].busy)
            look_at_time(&clients[i], now);
    }
}

/* A number of /proc/PID/status, -1 where there is none. */
static long status_of(int pid, const char *field) {
    char path[64], line[256];
    long value = -1;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (str_starts(line, field))
            value = strtol(line + strlen(field), NULL, 10);
    if (f != NULL)
        fclose(f);
    return value;
}

static double at_share(double *v, size_t n, double share) {
    sort_values(v, n);
    return n > 0 ? v[MIN((size_t)(share * (double)n), n - 1)] : 0;
}

static size_t n_waits(const struct client *cl) {
    return MIN(cl->n_waited, (size_t)WAITS_MAX);
}

/* The greedy one has 32 requests out at any time, the others one each: theirs wait less, and
 * all about as long. Compared are the middle ones of each client's waits: a machine that stands
 * still for a moment makes one wait of a client long, whoever happens to ask then, but a client
 * that is passed over waits long always. */
static void judge_fairness(void) {
    static double greedy[N_CLIENTS / 2 * WAITS_MAX];
    double each[N_CLIENTS / 2];
    size_t n_greedy = 0, n = 0;
    for (int i = 0; i < N_CLIENTS; i++) {
        struct client *cl = &clients[i];
        if (i < N_CLIENTS / 2) {
            memcpy(greedy + n_greedy, cl->waits_s, n_waits(cl) * sizeof *greedy);
            n_greedy += n_waits(cl);
        } else if (cl->n_waited > 0) {
            each[n++] = at_share(cl->waits_s, n_waits(cl), 0.5);
        }
    }
    if (n < N_CLIENTS / 2 || n_greedy == 0) {
        wrong("only %zu of %d clients were served", n + (n_greedy > 0), N_CLIENTS / 2 + 1);
        return;
    }
    double middle = at_share(each, n, 0.5), most = at_share(each, n, 1);
    double of_greedy = at_share(greedy, n_greedy, 0.5);
    printf(
        "waiting for the first token: %.0f ms (the middle of 32 clients), %.0f ms (the last of "
        "them), %.0f ms (the greedy one)\n",
        middle * 1e3, most * 1e3, of_greedy * 1e3);
    if (most > 3 * middle)
        wrong("one client waits %.1f times as long as others", most / middle);
    if (of_greedy < middle)
        wrong("who asks most waits least");
}

static bool all_are_served(void) {
    for (int i = N_CLIENTS / 2; i < N_CLIENTS; i++)
        if (clients[i].n_waited == 0)
            return false;
    return true;
}

/* On a slow machine it lasts longer: until everybody's turn has come once. */
#define TURN_S 60

static int storm(int pid, double seconds) {
    double began = clock_s(), sampled = 0;
    long memory[4] = {0}, threads = 0; /* the largest of each quarter, KiB */
    for (int i = 0; i < N_CLIENTS; i++) {
        clients[i].c.fd = -1;
        clients[i].seed = (uint64_t)i;
        snprintf(clients[i].key, sizeof clients[i].key, "key-%d", i < N_CLIENTS / 2 ? 0 : i);
    }
    for (double now = began;
         now < began + seconds || (!all_are_served() && now < began + seconds + TURN_S);
         now = clock_s()) {
        storm_round(true);
        if (now > sampled + 0.2) {
            long kib = status_of(pid, "RssAnon:");
            int quarter = MIN((int)(4 * (now - began) / seconds), 3);
            memory[quarter] = MAX(memory[quarter], kib);
            threads = MAX(threads, status_of(pid, "Threads:"));
            sampled = now;
        }
    }
    for (bool busy = true; busy;) {
        storm_round(false);
        busy = false;
        for (int i = 0; i < N_CLIENTS; i++)
            busy |= clients[i].busy;
    }
    for (int i = 0; i < N_CLIENTS; i++)
        conn_close(&clients[i].c);
    for (int k = 0; k < N_KINDS; k++)
        printf("%ld %s%s", n_done[k], kind_names[k], k + 1 < N_KINDS ? ", " : "\n");
    printf("memory: %.1f, %.1f, %.1f, %.1f MiB in the four quarters; %ld threads at most\n",
           (double)memory[0] / 1024, (double)memory[1] / 1024, (double)memory[2] / 1024,
           (double)memory[3] / 1024, threads);
    /* The first quarter grows into its buffers; 8 MiB for the chance of what meets. */
    if (memory[3] > memory[1] + memory[1] / 20 + 8192)
        wrong("the memory grows");
    judge_fairness();
    return n_wrong > 0;
}

/* ---- a long prompt ----------------------------------------------------------------------- */

#define N_STREAMS 4
#define SLOW 3.0 /* times the usual gap */
/* Pieces are as long as the streams can bear (step_cost.h): a prompt of 1,000 takes more than
 * these. */
#define PIECES_MIN 8
#define EVENT_BYTES 150 /* of one token in a stream, less than it takes */

struct stream {
    struct conn c;
    double last_s;
    size_t n_gaps;
    double gaps[GAPS_MAX];
};

static struct stream streams[N_STREAMS];

static bool stream_round(struct conn *prompt) {
    struct pollfd p[N_STREAMS + 1];
    for (int i = 0; i < N_STREAMS; i++)
        p[i] = (struct pollfd){.fd = streams[i].c.fd, .events = POLLIN};
    p[N_STREAMS] = (struct pollfd){.fd = prompt != NULL ? prompt->fd : -1, .events = POLLIN};
    poll(p, N_STREAMS + 1, 1000);
    double now = clock_s();
    for (int i = 0; i < N_STREAMS; i++) {
        struct stream *s = &streams[i];
        size_t had = s->c.a.n_body;
        if (p[i].revents == 0)
            continue;
        if (!conn_read(&s->c, 65536) || s->c.a.part == PART_DONE)
            return false;
        if (s->c.a.n_body == had)
            continue;
        if (s->last_s != 0 && s->n_gaps < GAPS_MAX)
            s->gaps[s->n_gaps++] = now - s->last_s;
        s->last_s = now;
    }
    return prompt == NULL || p[N_STREAMS].revents == 0 || conn_read(prompt, 65536);
}

/* Gaps of all streams beside each one's usual one. */
struct gaps {
    double median, most,
        longest;       /* in usual gaps; most: all but one in a hundred are shorter */
    double slow_share; /* of those longer than SLOW usual ones */
};

/* Where each stream's gaps of a time begin; they end where those of the next time begin. */
struct mark {
    size_t at[N_STREAMS];
};

static struct mark mark_now(void) {
    struct mark m;
    for (int i = 0; i < N_STREAMS; i++)
        m.at[i] = streams[i].n_gaps;
    return m;
}

static double usual_gap(int i, const struct mark *from, const struct mark *to) {
    static double sorted[GAPS_MAX];
    size_t n = to->at[i] - from->at[i];
    memcpy(sorted, streams[i].gaps + from->at[i], n * sizeof *sorted);
    return at_share(sorted, n, 0.5);
}

/* What is usual goes evenly from `first` to `last` [N_STREAMS] between the marks: a stream's
 * step takes longer the more it has written, whatever else comes. */
static struct gaps judge_gaps(const struct mark *from, const struct mark *to,
                              const double *first, const double *last) {
    static double all[N_STREAMS * GAPS_MAX];
    struct gaps g = {0};
    size_t n = 0, n_slow = 0;
    for (int i = 0; i < N_STREAMS; i++) {
        double n_its = (double)(to->at[i] - from->at[i]);
        for (size_t k = from->at[i]; k < to->at[i]; k++) {
            double usual = first[i] + (last[i] - first[i]) * (double)(k - from->at[i]) / n_its;
            all[n++] = streams[i].gaps[k] / usual;
            n_slow += streams[i].gaps[k] > SLOW * usual;
        }
    }
    g.median = at_share(all, n, 0.5);
    g.most = at_share(all, n, 0.99);
    g.longest = at_share(all, n, 1);
    g.slow_share = n > 0 ? (double)n_slow / (double)n : 1;
    return g;
}

/* Before the streams begin, since they are not read meanwhile. */
static void write_long_prompt(char *body, size_t size, int n_tokens, uint64_t seed) {
    size_t n =
        (size_t)snprintf(body, size, "{\"max_tokens\":2,\"ignore_eos\":true,\"prompt\":[");
    for (uint64_t i = 0; i < (uint64_t)n_tokens; i++)
        n += (size_t)snprintf(body + n, size - n, "%s%u", i > 0 ? "," : "",
                              (unsigned)(300 + rng_u64(seed, i) % 500));
    snprintf(body + n, size - n, "]}");
}

/* Until each stream has so many gaps more. */
static bool stream_gaps(size_t n) {
    struct mark m = mark_now();
    for (int i = 0; i < N_STREAMS; i++)
        while (streams[i].n_gaps < m.at[i] + n)
            if (!stream_round(NULL))
                return false;
    return true;
}

/* Of letters, so that each token is seen when it comes: one that is a part of a character, or
 * no text, comes with the next. */
static bool start_streams(void) {
    for (int i = 0; i < N_STREAMS; i++) {
        struct stream *s = &streams[i];
        char text[256];
        snprintf(text, sizeof text,
                 "{\"prompt\":\"Stream %d: \",\"max_tokens\":100000,\"ignore_eos\":true,"
                 "\"temperature\":0.9,\"grammar\":\"root ::= [a-z ]*\",\"stream\":true}",
                 i);
        conn_close(&s->c);
        if (!conn_open(&s->c, 0) || !conn_post(&s->c, "/v1/completions", "s", text))
            return false;
        s->last_s = 0;
        s->n_gaps = 0;
    }
    return true;
}

/* What is usual is the middle one of so many. */
#define GAPS_USUAL 60

/* The times of a run, by where each begins. */
enum { BEFORE, BESIDE, ALONE, ALONE_BEGUN, AFTER, END, N_MARKS };

static bool answer_prompt(const char *body) {
    struct conn prompt = {.fd = -1};
    if (!conn_open(&prompt, 0) || !conn_post(&prompt, "/v1/completions", "p", body))
        return false;
    while (prompt.a.part != PART_DONE)
        if (!stream_round(&prompt))
            return false;
    if (prompt.a.status != 200)
        wrong("the prompt: status %d: %s", prompt.a.status, prompt.a.tail);
    conn_close(&prompt);
    return true;
}

static void print_gaps(const char *when, const struct gaps *g) {
    printf(
        "  %s, in usual gaps: %.2f (median), %.2f (99 %%), %.2f (longest), %.2f %% beyond 3\n",
        when, g->median, g->most, g->longest, g->slow_share * 1e2);
}

/* Says how long the streams' gaps are while a prompt is computed, and as many without it after
 * that: a machine that does something else for a moment makes long ones at any time, so both
 * are for people to judge. What must hold on any machine is that the prompt comes in pieces,
 * between which the streams go on. False: something ended that should not. */
static bool prompt_beside_streams(int n_tokens, uint64_t seed) {
    static char body[1 << 17];
    struct mark marks[N_MARKS];
    size_t had[N_STREAMS];
    write_long_prompt(body, sizeof body, n_tokens, seed);
    if (!start_streams() || !stream_gaps(20)) /* their own prompts are computed in these */
        return false;
    marks[BEFORE] = mark_now();
    if (!stream_gaps(GAPS_USUAL))
        return false;
    marks[BESIDE] = mark_now();
    for (int i = 0; i < N_STREAMS; i++)
        had[i] = streams[i].c.a.n_body;
    double began = clock_s();
    if (!answer_prompt(body))
        return false;
    double took = clock_s() - began;
    marks[ALONE] = mark_now();
    for (int i = 0; i < N_STREAMS; i++)
        if (streams[i].c.a.n_body - had[i] < PIECES_MIN * EVENT_BYTES)
            wrong("stream %d had %zu bytes while the prompt was computed", i,
                  streams[i].c.a.n_body - had[i]);
    size_t n_beside = marks[ALONE].at[0] - marks[BESIDE].at[0];
    if (!stream_gaps(GAPS_USUAL))
        return false;
    marks[ALONE_BEGUN] = mark_now();
    if (!stream_gaps(n_beside))
        return false;
    marks[AFTER] = mark_now();
    if (!stream_gaps(GAPS_USUAL))
        return false;
    marks[END] = mark_now();

    double before[N_STREAMS], between[N_STREAMS], after[N_STREAMS];
    for (int i = 0; i < N_STREAMS; i++) {
        before[i] = usual_gap(i, &marks[BEFORE], &marks[BESIDE]);
        between[i] = usual_gap(i, &marks[ALONE], &marks[ALONE_BEGUN]);
        after[i] = usual_gap(i, &marks[AFTER], &marks[END]);
    }
    struct gaps beside = judge_gaps(&marks[BESIDE], &marks[ALONE], before, between);
    struct gaps alone = judge_gaps(&marks[ALONE], &marks[AFTER], between, after);
    printf("a prompt of %d tokens beside %d streams: %.2f s, %.1f tokens/s; usual gap %.2f ms "
           "before, %.2f ms after %zu more tokens, %.2f ms at the end\n",
           n_tokens, N_STREAMS, took, n_tokens / took, before[0] * 1e3, between[0] * 1e3,
           n_beside, after[0] * 1e3);
    print_gaps("beside the prompt", &beside);
    print_gaps("as many without it", &alone);
    return true;
}

static int prompts(int n_tokens, uint64_t seed) {
    for (int i = 0; i < N_STREAMS; i++)
        streams[i].c.fd = -1;
    if (!prompt_beside_streams(n_tokens, seed))
        wrong("a stream ended");
    for (int i = 0; i < N_STREAMS; i++)
        conn_close(&streams[i].c);
    return n_wrong > 0;
}

/* ---- speed ------------------------------------------------------------------------------- */

/* The first token is not counted: it is the prompt's. */
static int speed(int n_tokens) {
    char body[256];
    struct conn c = {.fd = -1};
    double first = 0;
    snprintf(body, sizeof body,
             "{\"prompt\":[400],\"max_tokens\":%d,\"ignore_eos\":true,\"temperature\":0,"
             "\"stream\":true}",
             n_tokens);
    if (!conn_open(&c, 0) || !conn_post(&c, "/v1/completions", "k", body))
        return 1;
    while (c.a.part != PART_DONE) {
        conn_wait(&c);
        if (!conn_read(&c, 65536))
            return 1;
        if (first == 0 && c.a.n_body > 0)
            first = clock_s();
    }
    printf("%.2f\n", (n_tokens - 1) / (clock_s() - first));
    conn_close(&c);
    return c.a.status != 200;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr,
                "usage: serve_load storm PORT PID SECONDS | prompt PORT TOKENS [SEED] | "
                "speed PORT TOKENS\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    port = atoi(argv[2]);
    if (str_eq(argv[1], "storm") && argc == 5)
        return storm(atoi(argv[3]), atof(argv[4]));
    uint64_t seed = argc > 4 ? strtoull(argv[4], NULL, 10) : (uint64_t)getpid();
    return str_eq(argv[1], "prompt") ? prompts(atoi(argv[3]), seed) : speed(atoi(argv[3]));
}
