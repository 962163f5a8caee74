/* The failure matrix: {killed, stopped, interface down, corrupted slot, lost slot} x every link x
 * {decode, prefill, each by parts of layers and in stages; bootstrap}, with the bundled model on
 * real ranks. Every survivor gets an error: within 200 ms where the kernel tells (a closed
 * socket), else within the silence limit; and nothing is left behind: no process, descriptor,
 * thread, file in /dev/shm, System V segment.
 *
 * A cell of the matrix is a process with its own network, IPC and mount namespaces, so that
 * "lo" can be taken down and /dev/shm counted; without the right to make them, the rows that
 * need it are skipped. A cell that only was too slow (others use this machine too) runs again,
 * alone, four times at most. */
#include "fabric_ranks.h"

#include "lockstep/lockstep.h"

#include <fnmatch.h>
#include <net/if.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define SILENCE_MS 400
#define FORMING_MS 2000 /* the least that bootstrap.c waits for a rank that has come */
#define TOLD_MS 200     /* where the kernel tells */
#define SLACK_MS 300    /* beats are silence / 6 apart; processes wait for a core */
#define CELL_LIMIT_MS 30000
#define N_AT_ONCE 3

enum fault { KILLED, STOPPED, CUT, CORRUPTED, LOST, N_FAULTS };
enum phase { DECODE, DECODE_STAGES, PREFILL, PREFILL_STAGES, BOOTSTRAP, N_PHASES };
static const char *const fault_names[] = {"killed", "stopped", "interface down",
                                          "corrupted slot", "lost slot"};
static const char *const phase_names[] = {"decode", "decode in stages", "prefill",
                                          "prefill in stages", "bootstrap"};

struct cell {
    enum fault fault;
    const struct link_ops *link;
    enum phase phase;
    char name[80];
};

/* What the ranks of a cell write, in memory that they share with it. */
struct outcome {
    _Atomic uint64_t ended_ns;
    _Atomic int status; /* enum status of the call that failed */
    char text[512], left[128];
};
struct notes {
    _Atomic int ticks; /* tokens or chunks that rank 0 has seen */
    _Atomic uint64_t last_tick_ns, struck_ns;
    struct outcome ranks[MAX_TEST_RANKS];
};

static bool is_decode(const struct cell *c) {
    return c->phase == DECODE || c->phase == DECODE_STAGES;
}

static bool is_prefill(const struct cell *c) {
    return c->phase == PREFILL || c->phase == PREFILL_STAGES;
}

static bool strikes_a_rank(enum fault f) {
    return f == KILLED || f == STOPPED || f == CUT;
}

/* ---- a rank --------------------------------------------------------------------------------- */

struct rank_of_cell {
    const struct cell *cell;
    struct notes *notes;
    int rank, n_ranks, listen_fd;
    const char *rendezvous;
};

static void tick(struct notes *n) {
    atomic_store(&n->last_tick_ns, clock_ns());
    atomic_fetch_add(&n->ticks, 1);
}

static bool on_token(void *notes, int32_t id, const char *text, size_t len) {
    (void)id, (void)text, (void)len;
    tick(notes);
    return true;
}

static enum lockstep_status decode(struct lockstep *ls, struct notes *n,
                                   struct lockstep_error *err) {
    static const int32_t ids[] = {1, 2, 3};
    struct lockstep_request req;
    struct lockstep_result result;
    enum lockstep_status st = LOCKSTEP_OK;
    lockstep_request_init(&req);
    req.ids = ids;
    req.n_ids = 3;
    req.ignore_end = true;
    req.on_token = on_token;
    req.user = n;
    while (st == LOCKSTEP_OK)
        st = lockstep_generate(ls, &req, &result, err);
    return st;
}

static enum lockstep_status prefill(struct lockstep *ls, struct notes *n,
                                    struct lockstep_error *err) {
    static int32_t ids[400];
    enum lockstep_status st = LOCKSTEP_OK;
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        ids[i] = (int32_t)(i % 200 + 5);
    while (st == LOCKSTEP_OK) {
        lockstep_reset(ls);
        tick(n);
        st = lockstep_eval(ls, ids, ARRAY_LEN(ids), NULL, NULL, err);
    }
    return st;
}

static void describe(const struct rank_of_cell *r, struct lockstep_options *opt) {
    const struct cell *c = r->cell;
    bool forming = c->phase == BOOTSTRAP;
    lockstep_options_init(opt);
    opt->model_path = SOURCE_DIR "/models/jargon-3m-f16.gguf";
    opt->n_ranks = r->n_ranks;
    opt->rank = r->rank;
    opt->rendezvous = r->rendezvous;
    opt->secret = "matrix";
    opt->link = c->link->name;
    bool stages = c->phase == DECODE_STAGES || c->phase == PREFILL_STAGES;
    opt->parallel = stages ? "pipeline" : "tensor";
    opt->n_threads = is_prefill(c) ? 2 : 1; /* all of them leave a step together */
    opt->n_ctx = 512;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    opt->n_chunk =
        128; /* a rank looks after what it computes, which takes several times as long */
#endif
    opt->silence_ms = SILENCE_MS;
    /* The first message is the job that rank 0 tells; 300 messages later the model has long
     * run. */
    if (c->fault == CORRUPTED)
        opt->emulate_link = forming ? "flip=1" : "flip=300";
    if (c->fault == LOST)
        opt->emulate_link = forming ? "lose=1" : "lose=300";
}

static enum lockstep_status lead(const struct rank_of_cell *r,
                                 const struct lockstep_options *opt,
                                 struct lockstep_error *err) {
    struct lockstep *ls = NULL;
    enum lockstep_status st = lockstep_open(&ls, opt, err);
    if (st == LOCKSTEP_OK)
        st = is_decode(r->cell) ? decode(ls, r->notes, err) : prefill(ls, r->notes, err);
    atomic_store(&r->notes->ranks[0].ended_ns, clock_ns());
    lockstep_close(ls);
    return st;
}

static void rank_main(const struct rank_of_cell *r) {
    struct lockstep_options opt;
    struct lockstep_error err = {.text = ""};
    struct outcome *out = &r->notes->ranks[r->rank];
    int n_fds = count_entries("/proc/self/fd");
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* also where the cell gives up */
    signal(SIGPIPE, SIG_IGN);
    describe(r, &opt);
    enum lockstep_status st = r->rank == 0 ? lead(r, &opt, &err) : lockstep_follow(&opt, &err);
    if (r->rank != 0)
        atomic_store(&out->ended_ns, clock_ns());
    snprintf(out->text, sizeof out->text, "%s", err.text);
    int fds = count_entries("/proc/self/fd") - n_fds;
    if (fds != 0 || !threads_become(3)) /* two are ".." and "." */
        snprintf(out->left, sizeof out->left, "%d descriptors, %d threads", fds,
                 count_entries("/proc/self/task") - 2);
    atomic_store(&out->status, (int)st);
    _exit(0);
}

/* ---- a cell --------------------------------------------------------------------------------- */

static bool set_loopback(bool up) {
    struct ifreq r = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &r) == 0;
    r.ifr_flags = (short)(up ? r.ifr_flags | IFF_UP : r.ifr_flags & ~IFF_UP);
    ok = ok && ioctl(fd, SIOCSIFFLAGS, &r) == 0;
    close(fd);
    return ok;
}

static bool isolate(void) {
    return unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWNS) == 0 &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", "/dev/shm", "tmpfs", 0, NULL) == 0 && set_loopback(true);
}

static bool may_isolate(void) {
    int status = 1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(!isolate());
    waitpid(pid, &status, 0);
    return status == 0;
}

/* Lines of System V's table of segments but its heading. */
static int sysv_segments(void) {
    FILE *f = fopen("/proc/sysvipc/shm", "r");
    int n = -1, c;
    while (f != NULL && (c = fgetc(f)) != EOF)
        n += c == '\n';
    if (f != NULL)
        fclose(f);
    return f != NULL ? n : 0;
}

static _Noreturn void failed(const struct cell *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "FAILED: %s: ", c->name);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
    _exit(1);
}

static void start(struct rank_of_cell *r, int rank, pid_t *pids) {
    r->rank = rank;
    fflush(NULL);
    pids[rank] = fork();
    if (pids[rank] == 0)
        rank_main(r);
}

static void ms_sleep(int ms) {
    usleep((useconds_t)ms * 1000);
}

/* Nobody has been hit yet: where a rank is given up as silent, the machine is too busy, and the
 * cell is none: it runs again as one that was late. */
static void wait_for_ticks(const struct cell *c, struct notes *n, int ticks) {
    uint64_t end = clock_ns() + CELL_LIMIT_MS * 1000000ull;
    while (atomic_load(&n->ticks) < ticks) {
        bool ended = atomic_load(&n->ranks[0].status) != 0;
        if (ended && strstr(n->ranks[0].text, "has been silent for") != NULL)
            _exit(EXIT_LATE);
        if (ended || clock_ns() > end)
            failed(c, "never computed: %s", n->ranks[0].text);
        ms_sleep(1);
    }
}

/* Sockets at rank 0's port in a state of TCP (include/net/tcp_states.h); connections that wait
 * for accept(), which have no inode yet, are not among them. */
#define TCP_IS_ESTABLISHED 0x01
#define TCP_IS_LISTENING 0x0a
static int sockets_at(const char *rendezvous, unsigned state) {
    FILE *f = fopen("/proc/net/tcp", "r");
    unsigned port = (unsigned)atoi(strrchr(rendezvous, ':') + 1), local, is;
    unsigned long inode;
    char line[256];
    int n = 0;
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "%*d: %*8x:%x %*8x:%*x %x %*x:%*x %*x:%*x %*x %*u %*u %lu", &local,
                   &is, &inode) == 3)
            n += local == port && is == state && inode != 0;
    if (f != NULL)
        fclose(f);
    return n;
}

/* Waits until `n` sockets at rank 0's port are in the state. Where the machine is too busy for
 * that, the cell is none: it runs again as one that was late. */
static void wait_for_sockets(const struct rank_of_cell *r, unsigned state, int n) {
    for (int ms = 0; sockets_at(r->rendezvous, state) != n; ms++) {
        if (ms == FORMING_MS)
            _exit(EXIT_LATE);
        ms_sleep(1);
    }
}

/* Each rank above has two connections to rank 0, the second after it has proved itself on the
 * first. */
static void wait_for_ranks(const struct rank_of_cell *r, int n) {
    wait_for_sockets(r, TCP_IS_ESTABLISHED, 2 * n);
    ms_sleep(100); /* it proves itself on the second too */
}

#define VICTIM 1

/* Three ranks, of which one is hit, or all are cut off from each other. */
static void strike(const struct cell *c, struct rank_of_cell *r, pid_t *pids) {
    bool forming = c->phase == BOOTSTRAP;
    /* The group waits: for a rank that never comes when one is killed (all that came hear of
     * it), else for one that comes when the victim is stopped already, so that the links cannot
     * open. */
    r->n_ranks = forming && c->fault == KILLED ? 4 : 3;
    start(r, 0, pids);
    start(r, 1, pids);
    if (!forming || c->fault == KILLED)
        start(r, 2, pids);
    if (forming)
        wait_for_ranks(r, c->fault == KILLED ? 2 : 1);
    else
        wait_for_ticks(c, r->notes, is_decode(c) ? 20 : 2);
    if (forming && c->fault != KILLED) {
        kill(pids[VICTIM], SIGSTOP);
        start(r, 2, pids);
        wait_for_sockets(r, TCP_IS_LISTENING, 0); /* all have come: rank 0 listens no longer */
    }
    atomic_store(&r->notes->struck_ns, clock_ns());
    if (c->fault == CUT) {
        if (!set_loopback(false))
            failed(c, "lo stays up");
        kill(pids[VICTIM], SIGCONT);
    } else {
        kill(pids[VICTIM], c->fault == KILLED ? SIGKILL : SIGSTOP);
    }
}

static bool all_ended(const struct rank_of_cell *r, int n, bool victim_too) {
    for (int i = 0; i < n; i++)
        if ((i != VICTIM || victim_too) && atomic_load(&r->notes->ranks[i].status) == 0)
            return false;
    return true;
}

/* How long an error may take, from the moment at which something was done to the group. */
static int allowed_ms(const struct cell *c) {
    if (c->fault == KILLED)
        return TOLD_MS;
    if (c->phase == BOOTSTRAP && !strikes_a_rank(c->fault))
        return FORMING_MS + SILENCE_MS; /* from the start, joining included */
    /* What is wrong with a slot is seen when it is read; the time runs from the last token, or
     * from the beginning of the prompt, of which some must be computed before it comes to the
     * slot. */
    if (!strikes_a_rank(c->fault) && is_prefill(c))
        return FORMING_MS + SILENCE_MS + SLACK_MS;
    if (c->fault == CORRUPTED)
        return SILENCE_MS + SLACK_MS;
    if (c->phase == BOOTSTRAP && strikes_a_rank(c->fault))
        return FORMING_MS + SLACK_MS;
    return SILENCE_MS + SLACK_MS;
}

static bool judge(const struct cell *c, const struct rank_of_cell *r, int n) {
    bool on_time = true;
    for (int i = 0; i < n; i++) {
        const struct outcome *out = &r->notes->ranks[i];
        bool ticks = !strikes_a_rank(c->fault) && c->phase != BOOTSTRAP;
        uint64_t since = atomic_load(ticks ? &r->notes->last_tick_ns : &r->notes->struck_ns);
        if (i == VICTIM && (c->fault == KILLED || c->fault == STOPPED))
            continue;
        double ms = (double)(int64_t)(out->ended_ns - since) * 1e-6;
        if (out->status != LOCKSTEP_PEER_LOST || out->text[0] == '\0')
            failed(c, "rank %d: %s: %s", i, status_name((enum status)out->status), out->text);
        if (strikes_a_rank(c->fault) && c->fault != CUT && c->phase != BOOTSTRAP &&
            strstr(out->text, "rank 1") == NULL)
            failed(c, "rank %d blames another: %s", i, out->text);
        if (out->left[0] != '\0')
            failed(c, "rank %d leaves behind: %s", i, out->left);
        if (i == 0)
            printf("%-32s %6.0f ms  %s\n", c->name, ms, out->text);
        on_time &= ms <= allowed_ms(c);
    }
    return on_time;
}

static int run_cell(const struct cell *c, bool isolated) {
    pid_t pids[MAX_TEST_RANKS] = {0};
    struct ranks net; /* for its free port and the stand-in's wires */
    int n = strikes_a_rank(c->fault) ? 3 : 2;
    if (isolated && !isolate())
        failed(c, "no namespaces any more");
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    ranks_init(&net, n, c->link->id);
    close(net.listen_fd); /* rank 0 listens there itself */
    struct rank_of_cell r = {.cell = c, .n_ranks = n, .rendezvous = net.rendezvous};
    r.notes =
        mmap(NULL, sizeof *r.notes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int files = count_entries("/dev/shm"), segments = sysv_segments();
    if (strikes_a_rank(c->fault)) {
        strike(c, &r, pids);
    } else {
        atomic_store(&r.notes->struck_ns, clock_ns());
        start(&r, 0, pids);
        start(&r, 1, pids);
    }
    uint64_t end = clock_ns() + CELL_LIMIT_MS * 1000000ull;
    while (!all_ended(&r, n, c->fault != KILLED && c->fault != STOPPED) && clock_ns() < end)
        ms_sleep(1);
    bool ended = clock_ns() < end;
    if (!ended || c->fault == STOPPED)
        for (int i = 0; i < n; i++)
            if (!ended || i == VICTIM)
                kill(pids[i], SIGKILL);
    while (waitpid(-1, NULL, 0) > 0) /* a process of a process would come here too */
        continue;
    if (!ended)
        failed(c, "some rank did not end: %s", r.notes->ranks[0].text);
    bool on_time = judge(c, &r, n);
    if (isolated && (count_entries("/dev/shm") != files || sysv_segments() != segments))
        failed(c, "leaves %d files in /dev/shm, %d segments", count_entries("/dev/shm") - files,
               sysv_segments() - segments);
    fflush(stdout);
    return on_time ? 0 : EXIT_LATE;
}

/* ---- the matrix ----------------------------------------------------------------------------- */

static struct cell cells[N_FAULTS * N_PHASES * 8];
static int n_cells;

/* Only the cells whose names the pattern matches; NULL: all. */
static void fill(bool isolated, const char *pattern) {
    EACH_LINK(ops)
    for (int fault = 0; fault < N_FAULTS; fault++)
        for (int phase = 0; phase < N_PHASES; phase++) {
            struct cell *c = &cells[n_cells];
            if (fault == CUT && !isolated)
                continue;
            *c = (struct cell){
                .fault = (enum fault)fault, .link = *ops, .phase = (enum phase)phase};
            snprintf(c->name, sizeof c->name, "%s, %s, %s", (*ops)->name, phase_names[phase],
                     fault_names[fault]);
            n_cells += pattern == NULL || fnmatch(pattern, c->name, 0) == 0;
        }
}

/* Runs n cells of the list, at_once at a time. Returns how many failed; those that only were
 * too slow are what the list has afterwards, *n_late of them. */
static int run_cells(int *list, int n, int at_once, bool isolated, int *n_late) {
    struct {
        pid_t pid;
        int cell;
    } running[N_AT_ONCE] = {{0, 0}};
    int next = 0, n_running = 0, bad = 0;
    *n_late = 0;
    while (next < n || n_running > 0) {
        for (int k = 0; k < at_once && next < n; k++) {
            if (running[k].pid != 0)
                continue;
            running[k].cell = list[next++];
            fflush(NULL);
            running[k].pid = fork();
            if (running[k].pid == 0)
                _exit(run_cell(&cells[running[k].cell], isolated));
            n_running++;
        }
        int status;
        pid_t pid = waitpid(-1, &status, 0);
        for (int k = 0; k < at_once; k++) {
            if (running[k].pid != pid)
                continue;
            bool slow = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_LATE;
            if (slow)
                list[(*n_late)++] = running[k].cell;
            bad += status != 0 && !slow;
            running[k].pid = 0;
            n_running--;
        }
    }
    return bad;
}

int main(void) {
    int list[ARRAY_LEN(cells)], bad = 0;
    bool isolated = may_isolate();
    if (!isolated)
        printf("skip: interface down: no right to make namespaces\n");
    fill(isolated, getenv("LOCKSTEP_CASE"));
    int n = n_cells;
    for (int i = 0; i < n; i++)
        list[i] = i;
    for (int tries = 0; tries < LATE_TRIES && n > 0; tries++)
        bad += run_cells(list, n, tries == 0 ? N_AT_ONCE : 1, isolated, &n);
    for (int i = 0; i < n; i++)
        fprintf(stderr, "FAILED: %s: late %d times\n", cells[list[i]].name, LATE_TRIES);
    bad += n;
    printf("%d of %d cells as they should be\n", n_cells - bad, n_cells);
    return bad != 0;
}
