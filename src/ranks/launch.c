/* launch.c: Starts worker processes, sends them their jobs, and explains why one ended. */
#include "ranks/launch.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/program.h"
#include "base/util.h"
#include "net/net.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The socket is this descriptor in the worker. */
#define WORKER_FD 3
#define EXPLAIN_MS 300
#define REPORT_MAX 600
#define READY "ready"
#define ERROR "error: "
/* How often the group is looked after while workers load. */
#define LOOK_MS 100
#define JOB_MAX ((size_t)1 << 20)

struct child {
    pid_t pid;
    int rank, fd;
    bool ready, reaped;
    bool untold; /* reaped elsewhere: its exit status is not known */
    int status;
    const char *host; /* where ssh or the node runs it; NULL: here */
    int node_port;    /* of the node there, 0: the usual one; -1: ssh */
    /* It says "ready" or "error: ...", a line each; the remote shell that starts it may have
     * said something before. */
    char line[REPORT_MAX]; /* what there is of the running one */
    size_t n_line;
    char complaint[REPORT_MAX]; /* empty: none */
};

struct launch {
    int n;
    struct child *children;
    struct launch_hosts hosts; /* the names above */
};

/* ---- starting ---------------------------------------------------------------------------- */

static bool is_lockstep; /* the program that calls us, whatever its file is called */

void launch_from_lockstep(void) {
    is_lockstep = true;
}

/* This program, if it is lockstep. *gone: its file is not there any more. */
static bool own_program(char *buf, size_t size, bool *gone) {
    if (!program_path(buf, size, gone))
        return false;
    const char *base = strrchr(buf, '/');
    return is_lockstep || (base != NULL && str_eq(base + 1, "lockstep"));
}

static bool is_program(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode) && access(path, X_OK) == 0;
}

static enum status find_worker(const char *given, char *buf, size_t size, struct err *err) {
    const char *env = env_get("LOCKSTEP_WORKER");
    if (given != NULL || env != NULL) {
        snprintf(buf, size, "%s", given != NULL ? given : env);
        if (access(buf, X_OK) == 0)
            return ST_OK;
        return err_set(err, ST_NOT_FOUND, "the worker program %s cannot be run: %s", buf,
                       strerror(errno));
    }
    bool gone;
    if (own_program(buf, size, &gone)) {
        if (!gone)
            return ST_OK;
        return err_set(err, ST_NOT_FOUND,
                       "the lockstep program was replaced or removed while it runs: start it "
                       "again");
    }
    const char *path = getenv("PATH");
    while (path != NULL && *path != '\0') {
        size_t len = strcspn(path, ":");
        snprintf(buf, size, "%.*s/lockstep", (int)len, path);
        if (len > 0 && is_program(buf))
            return ST_OK;
        path += len + (path[len] == ':');
    }
    return err_set(err, ST_NOT_FOUND,
                   "the lockstep program, which runs the other ranks, is not in $PATH: set "
                   "worker_path or $LOCKSTEP_WORKER");
}

/* It is not an error here if a worker has ended already: its end is noticed and explained
 * later. */
static enum status send_job(int fd, const char *text, struct err *err) {
    size_t n = strlen(text) + 1, done = 0; /* '\0' ends it */
    while (done < n) {
        ssize_t k = send(fd, text + done, n - done, MSG_NOSIGNAL);
        if (k < 0 && (errno == EPIPE || errno == ECONNRESET))
            return ST_OK;
        if (k < 0 && errno != EINTR)
            return err_set(err, ST_IO, "cannot give a worker its job: %s", strerror(errno));
        done += (size_t)MAX(k, 0);
    }
    return ST_OK;
}

static void dismiss(int fd) {
    (void)send(fd, "", 1,
               MSG_NOSIGNAL | MSG_DONTWAIT); /* a worker that cannot read it has ended */
    close(fd);
}

/* The words for the other machine's shell. */
static enum status quote_path(const char *path, char *buf, size_t size, struct err *err) {
    if (strchr(path, '\'') != NULL || snprintf(buf, size, "'%s'", path) >= (int)size)
        return err_set(err, ST_BAD_INPUT, "%s cannot be named in a command for ssh", path);
    return ST_OK;
}

/* The thread that starts it may have all signals blocked (thread_start()), but the child must
 * get them. */
static enum status start(pid_t *pid, const char *program, char **argv,
                         const posix_spawn_file_actions_t *files, short flags,
                         struct err *err) {
    posix_spawnattr_t how;
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_init(&how);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setflags(&how, (short)(flags | POSIX_SPAWN_SETSIGMASK));
    int rc = posix_spawnp(pid, program, files, &how, argv, environ);
    posix_spawnattr_destroy(&how);
    return rc == 0 ? ST_OK : err_set(err, ST_IO, "cannot start %s: %s", program, strerror(rc));
}

/* What the child's end of the socket pair is to it. */
enum wiring { AS_WORKER_FD, AS_STDIO, AS_STDIO_AND_ERROR };

static void close_pair(const int pair[2]) {
    close(pair[0]);
    close(pair[1]);
}

static void close_on_exec(const int pair[2]) {
    fcntl(pair[0], F_SETFD, FD_CLOEXEC);
    fcntl(pair[1], F_SETFD, FD_CLOEXEC);
}

/* The descriptor `from` is to be `to` in the child. */
static void hand_over(posix_spawn_file_actions_t *files, int from, int to) {
    if (from == to) /* dup2 onto itself would leave it close-on-exec */
        fcntl(from, F_SETFD, 0);
    posix_spawn_file_actions_adddup2(files, from, to);
}

static enum status spawn_wired(pid_t *pid, const char *program, char **argv, int fd, int ready,
                               enum wiring wiring, struct err *err) {
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    if (wiring == AS_WORKER_FD) {
        hand_over(&files, fd, WORKER_FD);
    } else {
        hand_over(&files, fd, STDIN_FILENO);
        hand_over(&files, fd, STDOUT_FILENO);
    }
    if (wiring == AS_STDIO_AND_ERROR)
        hand_over(&files, fd, STDERR_FILENO);
    if (ready >= 0)
        hand_over(&files, ready, LAUNCH_READY_FD);
    enum status st = start(pid, program, argv, &files, 0, err);
    posix_spawn_file_actions_destroy(&files);
    return st;
}

/* ready: NULL, or receives the end of a pipe; the child has the other end. */
static enum status spawn_alone(pid_t *pid, int *fd, int *ready, const char *program,
                               char **argv, enum wiring wiring, struct err *err) {
    int pair[2], its_ready[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return err_set(err, ST_IO, "cannot make a socket for a worker: %s", strerror(errno));
    if (ready != NULL && pipe(its_ready) != 0) {
        close_pair(pair);
        return err_set(err, ST_IO, "cannot make a pipe for a server: %s", strerror(errno));
    }
    close_on_exec(pair);
    if (ready != NULL)
        close_on_exec(its_ready);
    enum status st = spawn_wired(pid, program, argv, pair[1], its_ready[1], wiring, err);
    if (st != ST_OK) {
        close_pair(pair);
        if (ready != NULL)
            close_pair(its_ready);
        return st;
    }
    close(pair[1]);
    *fd = pair[0];
    if (ready != NULL) {
        close(its_ready[1]);
        fcntl(its_ready[0], F_SETFL, O_NONBLOCK);
        *ready = its_ready[0];
    }
    return ST_OK;
}

/* A child that is started meanwhile would inherit the sockets, and keep them open. */
static enum status spawn(pid_t *pid, int *fd, int *ready, const char *program, char **argv,
                         enum wiring wiring, struct err *err) {
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&one_at_a_time);
    enum status st = spawn_alone(pid, fd, ready, program, argv, wiring, err);
    pthread_mutex_unlock(&one_at_a_time);
    return st;
}

static enum status spawn_here(pid_t *pid, int *fd, const char *program, struct err *err) {
    char name[] = "lockstep", verb[] = "worker";
    char *argv[] = {name, verb, NULL};
    return spawn(pid, fd, NULL, program, argv, AS_WORKER_FD, err);
}

static char *ssh_program(void) {
    static char ssh[] = "ssh";
    char *given = env_get("LOCKSTEP_SSH");
    return given != NULL ? given : ssh;
}

static enum status spawn_over_ssh(struct child *c, const char *program, struct err *err) {
    char quoted[4096], verb[] = "worker", stdio[] = "--stdio";
    char *argv[] = {ssh_program(), (char *)(uintptr_t)c->host, quoted, verb, stdio, NULL};
    TRY(quote_path(program, quoted, sizeof quoted, err));
    return spawn(&c->pid, &c->fd, NULL, argv[0], argv, AS_STDIO, err);
}

#define ADDRESS_BYTES (LAUNCH_NAME_BYTES + 16)

/* The stand-in of a worker that the node there has started (commands/remote.c). */
static enum status spawn_by_node(struct child *c, const char *program, struct err *err) {
    char address[ADDRESS_BYTES], name[] = "lockstep", verb[] = "remote";
    char *argv[] = {name, verb, address, NULL};
    net_join(address, sizeof address, c->host, c->node_port);
    return spawn(&c->pid, &c->fd, NULL, program, argv, AS_STDIO, err);
}

static enum status spawn_child(struct child *c, const char *program, struct err *err) {
    enum status st = c->host == NULL     ? spawn_here(&c->pid, &c->fd, program, err)
                     : c->node_port >= 0 ? spawn_by_node(c, program, err)
                                         : spawn_over_ssh(c, program, err);
    if (st == ST_OK)
        return st;
    c->pid = 0;
    return err_prefix(err, st, "rank %d: ", c->rank);
}

enum status launch_worker(pid_t *pid, int *fd, const char *worker_path, const char *job,
                          struct err *err) {
    char program[4096];
    TRY(find_worker(worker_path, program, sizeof program, err));
    TRY(spawn_here(pid, fd, program, err));
    return send_job(*fd, job, err);
}

#define WORDS_MAX 512

enum status launch_command(pid_t *pid, int *fd, int *ready, const char *worker_path,
                           char *const *words, struct err *err) {
    char program[4096], name[] = "lockstep", *argv[WORDS_MAX + 2] = {name};
    TRY(find_worker(worker_path, program, sizeof program, err));
    for (size_t n = 0; words[n] != NULL; n++) {
        if (n == WORDS_MAX)
            return err_set(err, ST_BAD_INPUT, "more than %d words for lockstep", WORDS_MAX);
        argv[1 + n] = words[n];
    }
    return spawn(pid, fd, ready, program, argv, ready != NULL ? AS_STDIO_AND_ERROR : AS_STDIO,
                 err);
}

static bool is_elsewhere(const struct launch_hosts *hosts, int rank) {
    return hosts != NULL && !str_eq(hosts->names[rank], hosts->names[0]);
}

/* Starts one worker and gives it its part of the job. Once it is started it is one of l's
 * children, even if it cannot be told. */
static enum status start_child(struct launch *l, const char *program, const struct job *job,
                               int rank, const struct launch_hosts *hosts, bool by_nodes,
                               int threads, struct err *err) {
    struct child *c = &l->children[l->n];
    c->rank = rank;
    c->fd = -1;
    c->node_port = -1;
    if (is_elsewhere(hosts, rank)) {
        c->host = l->hosts.names[rank];
        c->node_port = by_nodes ? l->hosts.ports[rank] : -1;
    }
    struct job its = *job; /* shares the strings */
    its.rank = rank;
    its.n_threads = threads;
    its.n_local = job->n_ranks;
    its.local_rank = rank;
    if (hosts != NULL)
        launch_beside(hosts, rank, &its.n_local, &its.local_rank);
    char *text = NULL;
    TRY(job_to_json(&its, &text, err));
    enum status st = spawn_child(c, program, err);
    if (st == ST_OK) {
        l->n++;
        st = send_job(c->fd, text, err);
    }
    free(text);
    return st;
}

enum status launch_open(struct launch **out, const char *worker_path, const struct job *job,
                        const struct launch_hosts *hosts, bool by_nodes, int threads,
                        struct err *err) {
    char program[4096];
    TRY(find_worker(worker_path, program, sizeof program, err));
    struct launch *l = mem_calloc(1, sizeof *l);
    if (l != NULL)
        l->children = mem_calloc((size_t)job->n_ranks, sizeof *l->children);
    if (l == NULL || l->children == NULL) {
        mem_free(l);
        return err_set(err, ST_NO_MEMORY, "no memory to start workers");
    }
    enum status st = ST_OK;
    if (hosts != NULL)
        l->hosts = *hosts;
    for (int rank = 1; rank < job->n_ranks && st == ST_OK; rank++)
        st = start_child(l, program, job, rank, hosts, by_nodes, threads, err);
    if (st != ST_OK) {
        launch_close(l);
        return st;
    }
    *out = l;
    return ST_OK;
}

/* ---- watching ---------------------------------------------------------------------------- */

/* A process that is no longer our child has ended, too: the calling program ignores SIGCHLD, or
 * waits for any child. */
static void reap(struct child *c) {
    if (c->reaped || c->pid <= 0)
        return;
    pid_t ended = waitpid(c->pid, &c->status, WNOHANG);
    c->untold = ended < 0 && errno == ECHILD;
    c->reaped = ended == c->pid || c->untold;
}

/* A killed process ends at once, unless the kernel holds it (a file server that is gone). Then
 * it is left behind after this time. */
#define REAP_MS 1000

static void kill_and_reap(pid_t pid, int *status) {
    kill(pid, SIGKILL);
    for (int ms = 0; ms < REAP_MS; ms++) {
        pid_t ended = waitpid(pid, status, WNOHANG);
        if (ended == pid || (ended < 0 && errno != EINTR))
            return;
        usleep(1000);
    }
    log_warn("process %d does not end, though it was killed", (int)pid);
}

static void hear_line(struct child *c) {
    c->line[c->n_line] = '\0';
    c->n_line = 0;
    if (str_eq(c->line, READY))
        c->ready = true;
    else if (str_starts(c->line, ERROR) && c->complaint[0] == '\0')
        snprintf(c->complaint, sizeof c->complaint, "%s", c->line + strlen(ERROR));
}

/* Reads what the worker says, without blocking. False when it will say no more. */
static bool listen_to(struct child *c) {
    for (;;) {
        char said[256];
        ssize_t n = recv(c->fd, said, sizeof said, MSG_DONTWAIT);
        if (n <= 0)
            return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
        for (ssize_t i = 0; i < n; i++)
            if (said[i] == '\n')
                hear_line(c);
            else if (c->n_line < sizeof c->line - 1)
                c->line[c->n_line++] = said[i];
    }
}

/* A sentence if this worker's end is the cause of a loss rather than its consequence. */
static bool explain_child(struct child *c, struct err *err) {
    listen_to(c);
    if (c->complaint[0] != '\0') {
        err_set(err, ST_PEER_LOST, "rank %d failed: %s", c->rank, c->complaint);
        return true;
    }
    if (!c->reaped)
        return false;
    if (c->untold) {
        err_set(
            err, ST_PEER_LOST,
            "rank %d (pid %d) has ended for an unknown reason, since this program ignores SIGCHLD "
            "or waits for any child",
            c->rank, (int)c->pid);
        return true;
    }
    if (c->host != NULL && c->node_port < 0 && WIFEXITED(c->status) &&
        WEXITSTATUS(c->status) == 255) {
        err_set(err, ST_PEER_LOST, "rank %d: ssh to %s ended in an error", c->rank, c->host);
        return true;
    }
    if (WIFSIGNALED(c->status)) {
        err_set(err, ST_PEER_LOST, "rank %d (pid %d) was killed by signal %d (%s)", c->rank,
                (int)c->pid, WTERMSIG(c->status), strsignal(WTERMSIG(c->status)));
        return true;
    }
    /* A worker that lost the group itself exits with 3 and is not the cause. */
    if (WEXITSTATUS(c->status) != status_exit_code(ST_PEER_LOST)) {
        err_set(err, ST_PEER_LOST, "rank %d (pid %d) ended with exit status %d", c->rank,
                (int)c->pid, WEXITSTATUS(c->status));
        return true;
    }
    return false;
}

static void reap_all(struct launch *l) {
    for (int i = 0; i < l->n; i++)
        reap(&l->children[i]);
}

/* The first worker with an end that explains a loss; -1: none. */
static int explain_any(struct launch *l, struct err *err) {
    for (int i = 0; i < l->n; i++)
        if (explain_child(&l->children[i], err))
            return l->children[i].rank;
    return -1;
}

void launch_explain(struct launch *l, int lost_rank, struct err *err) {
    if (l == NULL)
        return;
    for (int ms = 0; ms < EXPLAIN_MS; ms += 5) {
        reap_all(l);
        for (int i = 0; i < l->n; i++)
            if (l->children[i].rank == lost_rank && explain_child(&l->children[i], err))
                return;
        usleep(5000);
    }
    explain_any(l, err);
}

int launch_lost_rank(struct launch *l) {
    struct err ignored;
    reap_all(l);
    return explain_any(l, &ignored);
}

void launch_kill(struct launch *l, uint64_t ranks) {
    reap_all(l);
    for (int i = 0; i < l->n; i++)
        if (ranks >> l->children[i].rank & 1 && !l->children[i].reaped)
            kill(l->children[i].pid, SIGKILL);
}

bool launch_any_ended(struct launch *l) {
    bool any = false;
    reap_all(l);
    for (int i = 0; i < l->n; i++)
        any |= l->children[i].reaped;
    return any;
}

/* A rank that falls silent while others load, or without a word: only the group knows. */
static enum status look_after(struct launch *l, struct fabric *f, struct err *err) {
    enum status st = fabric_wait(f, 1, 0, err);
    if (st == ST_OK || st == ST_AGAIN)
        return ST_OK;
    launch_explain(l, fabric_lost_rank(f), err);
    return st;
}

enum status launch_wait_ready(struct launch *l, struct fabric *f, struct err *err) {
    for (;;) {
        int waiting = 0;
        struct pollfd fds[PLAN_MAX_RANKS];
        for (int i = 0; i < l->n; i++) {
            struct child *c = &l->children[i];
            bool more = listen_to(c);
            if (!more) {
                err_set(err, ST_PEER_LOST, "rank %d (pid %d) ended while %s loading", c->rank,
                        (int)c->pid, c->ready ? "others were" : "it was");
                launch_explain(l, c->rank, err);
                return ST_PEER_LOST;
            }
            if (c->ready)
                continue;
            fds[waiting++] = (struct pollfd){.fd = c->fd, .events = POLLIN};
        }
        if (waiting == 0)
            return ST_OK;
        TRY(look_after(l, f, err));
        poll(fds, (nfds_t)waiting, LOOK_MS);
    }
}

void launch_close(struct launch *l) {
    if (l == NULL)
        return;
    uint64_t deadline = clock_ns() + (uint64_t)LAUNCH_GRACE_MS * 1000000;
    for (int i = 0; i < l->n; i++)
        dismiss(l->children[i].fd);
    for (;;) {
        int alive = 0;
        for (int i = 0; i < l->n; i++) {
            reap(&l->children[i]);
            alive += !l->children[i].reaped;
        }
        if (alive == 0)
            break;
        if (clock_ns() > deadline) {
            for (int i = 0; i < l->n; i++)
                if (!l->children[i].reaped)
                    kill_and_reap(l->children[i].pid, &l->children[i].status);
            break;
        }
        usleep(1000);
    }
    mem_free(l->children);
    mem_free(l);
}

/* ---- asking ------------------------------------------------------------------------------ */

/* Away from the terminal: without one, ssh fails rather than ask for a password. */
static enum status spawn_quietly(pid_t *pid, char **argv, const char *program,
                                 struct err *err) {
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    for (int fd = 0; fd < 3; fd++)
        posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
    enum status st = start(pid, program, argv, &files, POSIX_SPAWN_SETSID, err);
    posix_spawn_file_actions_destroy(&files);
    return st;
}

enum status launch_ask(pid_t *pid, const char *worker_path, const struct launch_hosts *hosts,
                       int r, bool by_nodes, struct err *err) {
    char program[4096], quoted[4096], address[ADDRESS_BYTES];
    char name[] = "lockstep", remote[] = "remote", question[] = "--ask",
         version[] = "--version";
    char *host = (char *)(uintptr_t)hosts->names[r];
    char *node[] = {name, remote, question, address, NULL};
    char *ssh[] = {ssh_program(), host, quoted, version, NULL};
    TRY(find_worker(worker_path, program, sizeof program, err));
    if (by_nodes) {
        net_join(address, sizeof address, host, hosts->ports[r]);
        return spawn_quietly(pid, node, program, err);
    }
    TRY(quote_path(program, quoted, sizeof quoted, err));
    return spawn_quietly(pid, ssh, ssh[0], err);
}

enum status launch_answer(pid_t pid) {
    int status;
    BUG_ON(pid <= 0); /* waitpid() and kill() would take that for a group of processes */
    pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR))
        return ST_AGAIN;
    return ended == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? ST_OK : ST_REFUSED;
}

void launch_stop_asking(pid_t pid) {
    int unused;
    BUG_ON(pid <= 0);
    kill_and_reap(pid, &unused);
}

/* ---- the worker's side ------------------------------------------------------------------- */

struct launch_wire launch_worker_wire(int argc, char **argv) {
    struct launch_wire w = {.in = WORKER_FD, .out = WORKER_FD};
    if (argc == 2 && str_eq(argv[1], "--stdio")) {
        w.in = STDIN_FILENO;
        w.out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
        dup2(STDERR_FILENO, STDOUT_FILENO);
    }
    return w;
}

enum status launch_worker_job(struct launch_wire *w, char **text, size_t *n, struct err *err) {
    size_t got = 0;
    char *job = mem_alloc(JOB_MAX), *end = NULL;
    if (job == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a job");
    while (end == NULL && got < JOB_MAX) {
        ssize_t k = read(w->in, job + got, JOB_MAX - got);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            break;
        end = memchr(job + got, '\0', (size_t)k);
        got += (size_t)k;
    }
    if (end == NULL) {
        mem_free(job);
        return err_set(err, ST_BAD_INPUT,
                       "a worker is started by lockstep itself, with its job on a socket");
    }
    if (end + 1 < job + got)
        w->parent = PARENT_DONE;
    *text = job;
    *n = (size_t)(end - job);
    return ST_OK;
}

enum launch_parent launch_worker_parent(struct launch_wire *w, int ms) {
    struct pollfd p = {.fd = w->in, .events = POLLIN};
    uint64_t end = clock_ns() + (uint64_t)ms * 1000000u;
    char word;
    int n = 0;
    if (w->parent == PARENT_THERE)
        do
            n = poll(&p, 1, net_ms_left(end));
        while (n < 0 && errno == EINTR); /* a signal ends no wait */
    if (n == 1)
        w->parent = read(w->in, &word, 1) > 0 ? PARENT_DONE : PARENT_GONE;
    return w->parent;
}

static bool say(int fd, const char *text, size_t n) {
    return write(fd, text, n) == (ssize_t)n; /* SIGPIPE is ignored in a worker */
}

bool launch_worker_say_ready(int fd) {
    return say(fd, READY "\n", strlen(READY "\n"));
}

bool launch_worker_say_error(int fd, const char *text) {
    char line[REPORT_MAX - 16];
    int n = snprintf(line, sizeof line - 1, ERROR "%s", text);
    n = MIN(n, (int)sizeof line - 2);
    line[n++] = '\n';
    return say(fd, line, (size_t)n);
}
