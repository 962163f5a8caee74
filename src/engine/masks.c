/* masks.c: The threads that compute which tokens a constraint allows next, in parallel to the
 * engine's steps. */
#include "engine/masks.h"

#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "tokenizer/tokenizer.h"

enum mask_stage { STAGE_MADE, STAGE_WAITING, STAGE_RUNNING };

struct masks {
    size_t n_words;
    void (*on_made)(void *user);
    void *user;
    pthread_t *threads;
    int n_threads;

    pthread_mutex_t lock;
    pthread_cond_t more;
    /* Guarded by lock, as are the lines, and the stages of jobs that are not made. */
    struct mask_job *waiting, **waiting_end;
    uint64_t next_turn;
    bool closing;
};

static void set_stage(struct mask_job *job, enum mask_stage stage) {
    atomic_store_explicit(&job->stage, stage, memory_order_release);
}

static enum mask_stage stage_of(struct mask_job *job) {
    return atomic_load_explicit(&job->stage, memory_order_acquire);
}

/* ---- the helpers -------------------------------------------------------------------------- */

/* With the lock held. */
static void take_out(struct masks *m, struct mask_job **at) {
    struct mask_job *job = *at;
    *at = job->next;
    if (m->waiting_end == &job->next)
        m->waiting_end = at;
    job->next = NULL;
}

/* The oldest job of the request that was served longest ago; NULL: none can be begun. With the
 * lock held. */
static struct mask_job *take_next(struct masks *m) {
    struct mask_job **best = NULL;
    for (struct mask_job **at = &m->waiting; *at != NULL; at = &(*at)->next) {
        const struct mask_line *line = (*at)->line;
        if (!line->busy && (best == NULL || line->turn < (*best)->line->turn))
            best = at;
    }
    if (best == NULL)
        return NULL;
    struct mask_job *job = *best;
    take_out(m, best);
    job->line->busy = true;
    job->line->turn = ++m->next_turn;
    set_stage(job, STAGE_RUNNING);
    return job;
}

static void run_job(const struct masks *m, struct mask_job *job) {
    const struct engine_constraint *c = job->constraint;
    if (job->id != TOKEN_NONE && c->accept != NULL)
        c->accept(job->state, job->id);
    memset(job->mask, 0, m->n_words * sizeof *job->mask);
    job->allows = c->mask(job->state, job->mask, &job->err);
}

static void *helper_main(void *arg) {
    struct masks *m = arg;
    pthread_mutex_lock(&m->lock);
    while (!m->closing) {
        struct mask_job *job = take_next(m);
        if (job == NULL) {
            pthread_cond_wait(&m->more, &m->lock);
            continue;
        }
        struct mask_line *line = job->line;
        pthread_mutex_unlock(&m->lock);
        run_job(m, job);
        pthread_mutex_lock(&m->lock);
        line->busy = false;
        set_stage(job, STAGE_MADE); /* from here on the job and the line are the owner's */
        pthread_mutex_unlock(&m->lock);
        m->on_made(m->user);
        pthread_mutex_lock(&m->lock);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* ---- the owner ---------------------------------------------------------------------------- */

/* True: the caller owns the line, and says when it no longer does. */
static bool claim(struct masks *m, struct mask_line *line) {
    pthread_mutex_lock(&m->lock);
    bool free = !line->busy;
    line->busy = true;
    pthread_mutex_unlock(&m->lock);
    return free;
}

static bool answer_at_once(struct masks *m, struct mask_job *job) {
    const struct engine_constraint *c = job->constraint;
    if (c->known == NULL || !claim(m, job->line))
        return false;
    memset(job->mask, 0, m->n_words * sizeof *job->mask);
    job->allows = c->known(job->state, job->id, job->mask);
    pthread_mutex_lock(&m->lock);
    job->line->busy = false;
    if (m->waiting != NULL) /* perhaps one of this line, which a helper has passed over */
        pthread_cond_signal(&m->more);
    pthread_mutex_unlock(&m->lock);
    return job->allows != ENGINE_ALLOWS_UNKNOWN;
}

void masks_begin(struct masks *m, struct mask_job *job, int32_t id) {
    BUG_ON(!masks_are_made(job));
    job->id = id;
    job->err.text[0] = '\0';
    if (answer_at_once(m, job))
        return;
    pthread_mutex_lock(&m->lock);
    set_stage(job, STAGE_WAITING);
    job->next = NULL;
    *m->waiting_end = job;
    m->waiting_end = &job->next;
    pthread_cond_signal(&m->more);
    pthread_mutex_unlock(&m->lock);
}

bool masks_are_made(struct mask_job *job) {
    return stage_of(job) == STAGE_MADE;
}

bool masks_drop(struct masks *m, struct mask_job *job) {
    if (masks_are_made(job))
        return true;
    pthread_mutex_lock(&m->lock);
    struct mask_job **at = &m->waiting;
    while (*at != NULL && *at != job)
        at = &(*at)->next;
    if (*at == job) {
        take_out(m, at);
        set_stage(job, STAGE_MADE);
    }
    pthread_mutex_unlock(&m->lock);
    return masks_are_made(job);
}

enum status masks_open(struct masks **out, int n_threads, size_t n_words,
                       void (*on_made)(void *user), void *user, struct err *err) {
    struct masks *m = mem_calloc(1, sizeof *m);
    if (m == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for the threads that make masks");
    *m = (struct masks){.n_words = n_words, .on_made = on_made, .user = user};
    m->waiting_end = &m->waiting;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->more, NULL);
    m->threads = mem_calloc((size_t)n_threads, sizeof *m->threads);
    while (m->threads != NULL && m->n_threads < n_threads &&
           thread_start(&m->threads[m->n_threads], helper_main, m) == 0)
        m->n_threads++;
    if (m->n_threads < n_threads) {
        masks_close(m);
        return err_set(err, ST_NO_MEMORY, "cannot start the threads that make masks");
    }
    *out = m;
    return ST_OK;
}

void masks_close(struct masks *m) {
    if (m == NULL)
        return;
    pthread_mutex_lock(&m->lock);
    m->closing = true;
    pthread_cond_broadcast(&m->more);
    pthread_mutex_unlock(&m->lock);
    for (int i = 0; i < m->n_threads; i++)
        pthread_join(m->threads[i], NULL);
    pthread_cond_destroy(&m->more);
    pthread_mutex_destroy(&m->lock);
    mem_free(m->threads);
    mem_free(m);
}
