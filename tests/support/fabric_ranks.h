/* fabric_ranks.h: runs one function as n ranks in n real processes, for the tests of the fabric.
 *
 * Children report by exit status; EXPECT prints what failed and leaves. The parent bounds the
 * time and ends what it started by pid. */
#ifndef FABRIC_RANKS_H
#define FABRIC_RANKS_H

#include "base/clock.h"
#include "base/util.h"
#include "fabric/fabric.h"
#include "link/links.h"
#include "net/net.h"

#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_TEST_RANKS 8
#define EXIT_LATE 9  /* of a rank where all was right, but too late */
#define LATE_TRIES 5 /* so often may that be: other programs use this machine too */

/* In memory that all processes of a test share. */
struct shared_notes {
    _Atomic uint64_t killed_at_ns;
    _Atomic int count;
    _Atomic int pids[MAX_TEST_RANKS];
};

struct ranks {
    int n;
    struct fabric_config cfg; /* of all; rank and listen_fd are filled in per child */
    void (*run)(struct ranks *r, struct fabric *f); /* after fabric_open */
    const void *arg;
    struct shared_notes *notes;
    int limit_ms; /* 0: a minute */
    pid_t pids[MAX_TEST_RANKS];
    int exits[MAX_TEST_RANKS]; /* exit status, or -signal */
    char rendezvous[NET_TEXT_BYTES];
    int listen_fd;
    const char *name; /* of the running test, for messages */
};

#define EXPECT(cond, ...)                                                       \
    do {                                                                        \
        if (!(cond)) {                                                          \
            fprintf(stderr, "%s:%d: expected %s: ", __FILE__, __LINE__, #cond); \
            fprintf(stderr, __VA_ARGS__);                                       \
            fprintf(stderr, "\n");                                              \
            _exit(1);                                                           \
        }                                                                       \
    } while (0)

/* Something came too late, or a rank that lives was thought dead because it did not get to run. */
#define EXPECT_SOON(cond, ...)                                                   \
    do {                                                                         \
        if (!(cond)) {                                                           \
            fprintf(stderr, "%s:%d: late: not %s: ", __FILE__, __LINE__, #cond); \
            fprintf(stderr, __VA_ARGS__);                                        \
            fprintf(stderr, "\n");                                               \
            _exit(EXIT_LATE);                                                    \
        }                                                                        \
    } while (0)

static inline int count_entries(const char *dir) {
    DIR *d = opendir(dir);
    int n = 0;
    while (d != NULL && readdir(d) != NULL)
        n++;
    if (d != NULL)
        closedir(d);
    return n;
}

/* A joined thread is listed for a moment longer. TSan's own thread comes with the first of
 * ours. */
static inline bool threads_become(int n) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    n++;
#endif
#endif
#ifdef __SANITIZE_THREAD__
    n++;
#endif
    for (int i = 0; i < 200 && count_entries("/proc/self/task") > n; i++)
        usleep(1000);
    return count_entries("/proc/self/task") <= n;
}

/* Memory as a file, which children inherit. */
static inline int memory_file(void) {
#ifdef __linux__
    return memfd_create("standin", 0);
#else
    char path[] = "/tmp/lockstep-standin.XXXXXX";
    int fd = mkstemp(path);
    if (fd >= 0)
        unlink(path);
    return fd;
#endif
}

/* Fresh wires for the stand-in libibverbs (standin_verbs.c), inherited by the ranks. */
static inline void standin_wires(void) {
    static int fd = -1;
    char text[16];
    if (fd >= 0)
        close(fd);
    fd = memory_file();
    if (fd < 0 || ftruncate(fd, (off_t)4 << 30) != 0)
        abort();
    snprintf(text, sizeof text, "%d", fd);
    setenv("STANDIN_FD", text, 1);
#ifdef STANDIN_VERBS
    setenv("LOCKSTEP_IBVERBS", STANDIN_VERBS, 1);
#endif
}

/* Asked in another process: nothing of the library stays in the test's own. */
static inline bool ucx_is_there(void) {
#ifdef __SANITIZE_THREAD__
    return false; /* its own threads are a mystery to TSan */
#elif __has_include(<ucp/api/ucp.h>)
    int status = 1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(dlopen("libucp.so.0", RTLD_NOW) == NULL);
    waitpid(pid, &status, 0);
    return status == 0;
#else
    return false;
#endif
}

/* NULL, or why this build or machine cannot have the link. LOCKSTEP_TEST_LINKS (a name) leaves out
 * the others. */
static inline const char *link_is_missing(const struct link_ops *ops) {
    static int ucx = -1;
    const char *only = getenv("LOCKSTEP_TEST_LINKS");
    if (only != NULL && !str_eq(only, ops->name))
        return "not in LOCKSTEP_TEST_LINKS";
#ifndef STANDIN_VERBS
    if (ops == &link_verbs)
        return "no <infiniband/verbs.h>";
#endif
    if (ucx < 0 && ops == &link_ucx)
        ucx = ucx_is_there();
    return ops == &link_ucx && !ucx ? "no UCX (Debian: libucx-dev)" : NULL;
}

/* The next link of the table that can be; what cannot is said once. */
static inline const struct link_ops *const *skip_missing(const struct link_ops *const *ops) {
    static unsigned said;
    const char *why;
    for (; *ops != NULL && (why = link_is_missing(*ops)) != NULL; ops++) {
        if (!(said >> (*ops)->id & 1))
            printf("skip: %s: %s\n", (*ops)->name, why);
        said |= 1u << (*ops)->id;
    }
    return ops;
}
#define EACH_LINK(ops)                                                               \
    for (const struct link_ops *const *ops = skip_missing(link_table); *ops != NULL; \
         ops = skip_missing(ops + 1))

/* What each run needs anew: memory in common, wires, rank 0's door. */
static inline void ranks_renew(struct ranks *r) {
    r->notes =
        mmap(NULL, sizeof *r->notes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    standin_wires();
    struct net_address any = {0};
    struct err err;
    if (net_resolve(&any, "127.0.0.1:0", true, &err) != ST_OK ||
        net_listen(&r->listen_fd, &any, &err) != ST_OK ||
        net_local(r->listen_fd, &any, &err) != ST_OK) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    net_text(&any, r->rendezvous);
}

static inline void ranks_init(struct ranks *r, int n, enum fabric_link link) {
    memset(r, 0, sizeof *r);
    r->n = n;
    fabric_config_defaults(&r->cfg);
    r->cfg.n_ranks = n;
    r->cfg.link = link;
    r->cfg.bootstrap_ms = 20000;
    memset(r->cfg.token, 0x5a, sizeof r->cfg.token);
    ranks_renew(r);
}

/* In the rank's own process. */
static inline struct fabric_config ranks_config(const struct ranks *r, int rank) {
    struct fabric_config cfg = r->cfg;
    char machine[16];
    snprintf(machine, sizeof machine, "%d", rank);
    setenv("STANDIN_MACHINE", machine, 1); /* each is its own, for STANDIN_CABLES */
    cfg.rank = rank;
    cfg.rendezvous = r->rendezvous;
    cfg.listen_fd = rank == 0 ? r->listen_fd : -1;
    return cfg;
}

static inline void ranks_child(struct ranks *r, int rank) {
    struct fabric *f = NULL;
    struct err err;
    int n_fds = count_entries("/proc/self/fd"), n_threads = count_entries("/proc/self/task");
    struct fabric_config cfg = ranks_config(r, rank);
    if (rank != 0) {
        close(r->listen_fd);
        n_fds--;
    }
    enum status st = fabric_open(&f, &cfg, &err);
    EXPECT(st == ST_OK, "fabric_open of rank %d: %s", rank, err.text);
    r->run(r, f);
    fabric_close(f);
    int left = count_entries("/proc/self/fd") - n_fds + (rank == 0);
    EXPECT(left == 0, "rank %d leaves %d descriptors open", rank, left);
    EXPECT(threads_become(n_threads), "rank %d leaves a thread", rank);
    _exit(0);
}

static inline void ranks_start_one(struct ranks *r, int rank) {
    fflush(NULL);
    r->pids[rank] = fork();
    if (r->pids[rank] == 0)
        ranks_child(r, rank);
    atomic_store(&r->notes->pids[rank], r->pids[rank]);
}

static inline void ranks_start(struct ranks *r) {
    for (int i = 0; i < r->n; i++)
        ranks_start_one(r, i);
}

/* Waits for all; what is late is killed and counted as -SIGALRM. */
static inline void ranks_wait(struct ranks *r) {
    uint64_t end = clock_ns() + (uint64_t)(r->limit_ms ? r->limit_ms : 60000) * 1000000u;
    close(r->listen_fd);
    for (int i = 0; i < r->n; i++) {
        int status = 0;
        pid_t got = 0;
        while (r->pids[i] > 0 && (got = waitpid(r->pids[i], &status, WNOHANG)) == 0 &&
               clock_ns() < end)
            usleep(500);
        if (r->pids[i] > 0 && got == 0) {
            kill(r->pids[i], SIGKILL);
            waitpid(r->pids[i], &status, 0);
            fprintf(stderr, "rank %d did not end in time\n", i);
            r->exits[i] = -SIGALRM;
        } else {
            r->exits[i] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        }
    }
    munmap(r->notes, sizeof *r->notes);
}

/* After a run, while tries are left: a late rank counts as a good one, and true says to run
 * again. So lateness alone is a failure at the fifth time, anything else at the first. */
static inline bool ranks_forgive(struct ranks *r, int *tries) {
    bool late = false;
    if (++*tries < LATE_TRIES)
        for (int i = 0; i < r->n; i++)
            if (r->exits[i] == EXIT_LATE) {
                r->exits[i] = 0;
                late = true;
            }
    if (late)
        ranks_renew(r);
    return late;
}

/* The ranks run until none of them was late; every one must end well. */
static inline bool ranks_succeed(struct ranks *r) {
    bool again, good = true;
    int tries = 0;
    do {
        ranks_start(r);
        ranks_wait(r);
        again = ranks_forgive(r, &tries);
        for (int i = 0; i < r->n; i++)
            good &= r->exits[i] == 0;
    } while (again && good);
    return good;
}

#endif
