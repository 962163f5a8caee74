/* same_model.c: Compares the models that the ranks of a group have opened. */
#include "ranks/same_model.h"

#include "base/clock.h"
#include "base/content.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "format/digest.h"
#include "net/host_id.h"
#include "weights/plan.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define ASK_S 5.0
#define AT_ONCE_S 30.0 /* on a slow disk, the rest is read in the background */
/* Another process of this machine may be reading the same file: what it finds is kept. */
#define BUSY_MS 50
#define MACHINE_BYTES 64

/* What a rank says; between ranks of one build. */
struct opened {
    struct gguf_digest quick;
    uint8_t files[CONTENT_BYTES]; /* identifies the files, their machine and their state */
    uint8_t content[CONTENT_BYTES];
    uint64_t n_bytes;
    bool has_content;
    char machine[MACHINE_BYTES];
};

/* What rank 0 finds. */
struct comparison {
    uint64_t others;             /* a bit for each rank with another model */
    bool is_sure;                /* all is known */
    bool read_now;               /* what is not known is to be read, and compared again */
    char machine[MACHINE_BYTES]; /* of the first of the others */
};

struct same_model {
    const struct gguf *g;
    struct opened mine;
    bool is_sure, read_now;  /* as rank 0 found last */
    double asked_s, until_s; /* until_s: what is read at once is given up; 0: never */
    pthread_t thread;
    bool has_thread;
    uint8_t found[CONTENT_BYTES]; /* the thread's until it is done */
    atomic_bool unwanted, done;   /* release when set, acquire when read */
};

/* ---- this rank's ------------------------------------------------------------------------- */

static void identify(struct same_model *m) {
    crypto_generichash_state h;
    uint8_t host[CONTENT_BYTES];
    host_id(host);
    crypto_generichash_init(&h, NULL, 0, CONTENT_BYTES);
    crypto_generichash_update(&h, host, sizeof host);
    for (uint32_t i = 0; i < gguf_n_parts(m->g); i++) {
        struct file_id id = gguf_part_id(m->g, i);
        crypto_generichash_update(&h, (const uint8_t *)&id, sizeof id);
    }
    crypto_generichash_final(&h, m->mine.files, CONTENT_BYTES);
}

static bool go_on(void *user, uint64_t bytes) {
    const struct same_model *m = user;
    (void)bytes;
    return !atomic_load_explicit(&m->unwanted, memory_order_acquire) &&
           (m->until_s == 0 || clock_s() < m->until_s);
}

/* Of one file, in the state in which it was opened. */
static enum status part_content(struct same_model *m, uint32_t part, bool read,
                                uint8_t out[CONTENT_BYTES], struct err *err) {
    const struct content_progress progress = {go_on, m, .gently = m->has_thread};
    const char *path = gguf_part_path(m->g, part);
    const struct file_id then = gguf_part_id(m->g, part);
    struct file_id now;
    if (content_recall(&then, out))
        return ST_OK;
    if (!read)
        return ST_NOT_FOUND;
    enum status st;
    while ((st = content_read(out, path, &progress, err)) == ST_AGAIN && go_on(m, 0))
        poll(NULL, 0, BUSY_MS);
    if (st == ST_OK && (!file_id_at(path, &now) || !file_id_same(&now, &then)))
        st = err_set(err, ST_IO, "%s has changed since it was opened", path);
    return st;
}

/* The digest of all files, if it is known or may be read for. */
static enum status find_content(struct same_model *m, bool read, uint8_t out[CONTENT_BYTES],
                                struct err *err) {
    struct content all;
    uint8_t part[CONTENT_BYTES];
    content_begin(&all);
    for (uint32_t i = 0; i < gguf_n_parts(m->g); i++) {
        TRY(part_content(m, i, read, part, err));
        content_add(&all, part);
    }
    content_end(&all, out);
    return ST_OK;
}

enum status same_model_open(struct same_model **out, const struct gguf *g, struct err *err) {
    struct same_model *m = mem_calloc(1, sizeof *m);
    if (m == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to compare models");
    m->g = g;
    gguf_digest(&m->mine.quick, g);
    m->mine.n_bytes = gguf_file_bytes(g);
    (void)gethostname(m->mine.machine, sizeof m->mine.machine - 1);
    identify(m);
    m->mine.has_content = find_content(m, false, m->mine.content, NULL) == ST_OK;
    *out = m;
    return ST_OK;
}

/* ---- reading in the background -------------------------------------------------------------
 */

static void *read_main(void *user) {
    struct same_model *m = user;
    struct err err;
    enum status st = find_content(m, true, m->found, &err);
    if (st == ST_OK)
        atomic_store_explicit(&m->done, true, memory_order_release);
    else if (st != ST_CANCELLED)
        log_warn("the model's digest is not known: %s", err.text);
    return NULL;
}

void same_model_read_on(struct same_model *m) {
    if (m->is_sure || m->mine.has_content || m->has_thread || !m->mine.quick.has_data)
        return;
    m->has_thread = true; /* which the thread reads */
    if (thread_start(&m->thread, read_main, m) != 0)
        m->has_thread = false;
}

void same_model_close(struct same_model *m) {
    if (m == NULL)
        return;
    atomic_store_explicit(&m->unwanted, true, memory_order_release);
    if (m->has_thread)
        pthread_join(m->thread, NULL);
    mem_free(m);
}

/* ---- comparing --------------------------------------------------------------------------- */

static bool are_same_files(const struct opened *a, const struct opened *b) {
    return memcmp(a->files, b->files, sizeof a->files) == 0;
}

static bool have_content(const struct opened *a, const struct opened *b) {
    return a->has_content && b->has_content;
}

static bool are_different(const struct opened *a, const struct opened *b) {
    return !gguf_digest_same(&a->quick, &b->quick) ||
           (!are_same_files(a, b) && have_content(a, b) &&
            memcmp(a->content, b->content, sizeof a->content) != 0);
}

/* A rank with only the header reads the rest from rank 0's machine. */
static bool are_surely_same(const struct opened *a, const struct opened *b) {
    return are_same_files(a, b) || have_content(a, b) || !b->quick.has_data;
}

static struct comparison judge(const struct opened *all, int n_ranks, uint64_t n_at_once) {
    struct comparison v = {.is_sure = true};
    for (int i = n_ranks - 1; i > 0; i--) {
        v.is_sure &= are_surely_same(&all[0], &all[i]);
        if (!are_different(&all[0], &all[i]))
            continue;
        v.others |= (uint64_t)1 << i;
        memcpy(v.machine, all[i].machine, sizeof v.machine);
    }
    v.read_now = !v.is_sure && all[0].n_bytes <= n_at_once;
    return v;
}

static enum status compare_known(struct same_model *m, struct team *all, int rank, int n_ranks,
                                 uint64_t n_at_once, struct err *err) {
    struct opened list[PLAN_MAX_RANKS];
    struct comparison v = {.others = 0};
    size_t parts[PLAN_MAX_RANKS];
    for (int i = 0; i < n_ranks; i++)
        parts[i] = sizeof list[i];
    list[0] = m->mine;
    TRY(fabric_gather(all, 0, &m->mine, list, parts, err));
    if (rank == 0)
        v = judge(list, n_ranks, n_at_once);
    TRY(fabric_broadcast(all, 0, &v, sizeof v, err));
    m->is_sure = v.is_sure;
    m->read_now = v.read_now;
    if (v.others == 0)
        return ST_OK;
    v.machine[sizeof v.machine - 1] = '\0';
    return err_set(err, ST_BAD_INPUT,
                   "rank %d has opened another model than rank 0, on the machine %s: the same "
                   "file has to be on both machines",
                   __builtin_ctzll(v.others), v.machine);
}

static void take_content(struct same_model *m) {
    if (m->mine.has_content || !m->has_thread ||
        !atomic_load_explicit(&m->done, memory_order_acquire))
        return;
    memcpy(m->mine.content, m->found, sizeof m->found);
    m->mine.has_content = true;
}

static void read_at_once(struct same_model *m) {
    struct err ignored; /* then it is not known */
    if (m->mine.has_content || !m->mine.quick.has_data)
        return;
    m->until_s = clock_s() + AT_ONCE_S;
    m->mine.has_content = find_content(m, true, m->mine.content, &ignored) == ST_OK;
    m->until_s = 0;
}

enum status same_model_compare(struct same_model *m, struct team *all, int rank, int n_ranks,
                               uint64_t n_at_once, struct err *err) {
    take_content(m);
    TRY(compare_known(m, all, rank, n_ranks, n_at_once, err));
    if (!m->read_now)
        return ST_OK;
    read_at_once(m);
    return compare_known(m, all, rank, n_ranks, 0, err);
}

bool same_model_is_due(struct same_model *m) {
    double now = clock_s();
    if (m->is_sure || now - m->asked_s < ASK_S)
        return false;
    take_content(m);
    if (m->mine.has_content)
        m->asked_s = now;
    return m->mine.has_content;
}
