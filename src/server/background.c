/* background.c: a list of jobs, the oldest first. One lock guards all of them: an event is a few
 * hundred bytes, and a client asks seldom. */
#include "server/background.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/util.h"

#include <pthread.h>

#define FOLLOWERS_MAX 32 /* streams of one job, each of which gets every event */
#define WAITING_MAX 8

/* A stream; it lives as long as its request. */
struct follower {
    struct background *b;
    struct background_job *job; /* NULL: it is over; b->lock */
    struct http_request *http;
    struct follower *next;
};

struct background_job {
    struct background *b;
    struct background_job *prev, *next;
    char *id, *text, *conversation;
    int owner;
    size_t n_bytes, n_text_bytes; /* of all that it keeps; of its texts */
    bool ended, cancelled, forgotten;
    void (*cancel)(void *user);
    void *user;

    bool keeps;        /* its events */
    struct buf events; /* one after the other */
    size_t *ends, n_events, n_ends_cap;
    struct follower *followers;
    int n_followers;
    struct http_request *waiting[WAITING_MAX]; /* for the end */
    int n_waiting;
};

struct background {
    pthread_mutex_t lock; /* guards all below */
    struct background_job *first, *last;
    size_t n, n_max, bytes, max_bytes;
};

enum status background_open(struct background **out, size_t n_max, size_t max_bytes,
                            struct err *err) {
    struct background *b = mem_calloc(1, sizeof *b);
    if (b == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for responses in the background");
    pthread_mutex_init(&b->lock, NULL);
    b->n_max = n_max;
    b->max_bytes = max_bytes;
    *out = b;
    return ST_OK;
}

/* ---- the list, with the lock held -------------------------------------------------------- */

static void job_free(struct background_job *job) {
    mem_free(job->id);
    mem_free(job->text);
    mem_free(job->conversation);
    mem_free(job->ends);
    buf_free(&job->events);
    mem_free(job);
}

static void drop(struct background_job *job) {
    struct background *b = job->b;
    *(job->prev != NULL ? &job->prev->next : &b->first) = job->next;
    *(job->next != NULL ? &job->next->prev : &b->last) = job->prev;
    b->n--;
    b->bytes -= job->n_bytes;
    job_free(job);
}

static void link_last(struct background_job *job) {
    struct background *b = job->b;
    job->prev = b->last;
    *(b->last != NULL ? &b->last->next : &b->first) = job;
    b->last = job;
    b->n++;
    b->bytes += job->n_bytes;
}

/* NULL: none that this owner may know of. */
static struct background_job *find(const struct background *b, const char *id, int owner) {
    struct background_job *job = b->first;
    while (job != NULL && (job->forgotten || job->owner != owner || !str_eq(job->id, id)))
        job = job->next;
    return job;
}

static struct background_job *find_running(const struct background *b, const char *id,
                                           int owner) {
    struct background_job *job = find(b, id, owner);
    return job != NULL && !job->ended ? job : NULL;
}

/* For n more jobs, with so many bytes, by dropping what has ended; false: that is not enough. */
static bool make_room(struct background *b, size_t n, size_t bytes) {
    struct background_job *job = b->first, *next;
    for (; job != NULL && (b->n + n > b->n_max || b->bytes + bytes > b->max_bytes);
         job = next) {
        next = job->next;
        if (job->ended)
            drop(job);
    }
    return b->n + n <= b->n_max && b->bytes + bytes <= b->max_bytes;
}

void background_close(struct background *b) {
    if (b == NULL)
        return;
    while (b->first != NULL)
        drop(b->first);
    pthread_mutex_destroy(&b->lock);
    mem_free(b);
}

/* ---- a job's maker ----------------------------------------------------------------------- */

static struct background_job *job_new(struct background *b,
                                      const struct background_start *start) {
    struct background_job *job = mem_calloc(1, sizeof *job);
    if (job == NULL)
        return NULL;
    *job = (struct background_job){.b = b,
                                   .id = mem_strdup(start->id),
                                   .owner = start->owner,
                                   .keeps = start->events,
                                   .cancel = start->cancel,
                                   .user = start->user};
    if (job->id == NULL || start->text == NULL || start->conversation == NULL) {
        job_free(job);
        return NULL;
    }
    job->text = start->text;
    job->conversation = start->conversation;
    job->n_text_bytes = strlen(job->text) + strlen(job->conversation);
    job->n_bytes = sizeof *job + job->n_text_bytes;
    return job;
}

enum status background_begin(struct background *b, const struct background_start *start,
                             struct background_job **out, struct err *err) {
    enum status st = ST_OK;
    struct background_job *job = job_new(b, start);
    *out = NULL;
    if (job == NULL) {
        mem_free(start->text);
        mem_free(start->conversation);
        return err_set(err, ST_NO_MEMORY, "no memory for a response in the background");
    }
    pthread_mutex_lock(&b->lock);
    bool there = find(b, start->id, start->owner) != NULL;
    if (!there && make_room(b, 1, job->n_bytes))
        *out = job;
    else if (!there)
        st = err_set(err, ST_AGAIN,
                     "the responses in the background are as many as may be: %zu of %zu, with "
                     "%zu of %zu MiB; wait for one, or cancel one",
                     b->n, b->n_max, b->bytes >> 20, b->max_bytes >> 20);
    if (*out != NULL)
        link_last(job);
    else
        job_free(job);
    pthread_mutex_unlock(&b->lock);
    return st;
}

void background_show(struct background_job *job, char *text) {
    if (text == NULL)
        return;
    pthread_mutex_lock(&job->b->lock);
    mem_free(job->text);
    job->text = text;
    pthread_mutex_unlock(&job->b->lock);
}

static void count(struct background_job *job, size_t more, size_t less) {
    job->n_bytes += more - less;
    job->b->bytes += more - less;
}

static void keep_nothing(struct background_job *job) {
    count(job, 0, job->events.len + job->n_events * sizeof *job->ends);
    job->keeps = false;
    job->n_events = job->n_ends_cap = 0;
    mem_free(job->ends);
    job->ends = NULL;
    buf_free(&job->events);
}

/* What finds no room costs the job all its events: a stream with a hole would be wrong. */
static void keep_event(struct background_job *job, const char *event, size_t len) {
    if (!job->keeps)
        return;
    size_t n = len + sizeof *job->ends;
    if (!make_room(job->b, 0, n) ||
        !mem_reserve(&job->ends, &job->n_ends_cap, job->n_events + 1, sizeof *job->ends) ||
        !buf_add(&job->events, event, len)) {
        keep_nothing(job);
        return;
    }
    job->ends[job->n_events++] = job->events.len;
    count(job, n, 0);
}

/* Takes the follower at *at out of the list, and ends its request. */
static void let_go(struct follower **at) {
    struct follower *f = *at;
    *at = f->next;
    f->job->n_followers--;
    f->job = NULL;
    http_stream_end(f->http); /* f may be gone */
}

void background_tell(struct background_job *job, const char *event, size_t len) {
    pthread_mutex_lock(&job->b->lock);
    keep_event(job, event, len);
    for (struct follower **at = &job->followers; *at != NULL;)
        if (http_stream_write((*at)->http, event, len) == ST_OK)
            at = &(*at)->next;
        else
            let_go(at);
    pthread_mutex_unlock(&job->b->lock);
}

bool background_is_cancelled(const struct background_job *job) {
    pthread_mutex_lock(&job->b->lock);
    bool cancelled = job->cancelled;
    pthread_mutex_unlock(&job->b->lock);
    return cancelled;
}

static void answer(struct http_request *http, const char *text) {
    static const char none[] = "{\"error\":{\"message\":\"no memory\"}}";
    http_reply(http, text != NULL ? 200 : 500, "application/json", text != NULL ? text : none,
               strlen(text != NULL ? text : none));
}

/* Others remember the texts of what has ended, if they want to. */
static void forget_texts(struct background_job *job) {
    mem_free(job->text);
    mem_free(job->conversation);
    job->text = job->conversation = NULL;
    count(job, 0, job->n_text_bytes);
}

bool background_end(struct background_job *job, char *text) {
    struct background *b = job->b;
    pthread_mutex_lock(&b->lock);
    bool found = !job->forgotten;
    while (job->followers != NULL)
        let_go(&job->followers);
    for (int i = 0; i < job->n_waiting; i++)
        answer(job->waiting[i], text);
    job->ended = true;
    forget_texts(job);
    if (job->forgotten || !job->keeps)
        drop(job);
    pthread_mutex_unlock(&b->lock);
    mem_free(text);
    return found;
}

/* ---- clients ----------------------------------------------------------------------------- */

bool background_get(struct background *b, const char *id, int owner, char **text,
                    char **conversation) {
    pthread_mutex_lock(&b->lock);
    struct background_job *job = find_running(b, id, owner);
    *text = job != NULL ? mem_strdup(job->text) : NULL;
    *conversation = job != NULL ? mem_strdup(job->conversation) : NULL;
    pthread_mutex_unlock(&b->lock);
    return job != NULL;
}

/* The client has gone. */
static void gone(void *user) {
    struct follower *f = user;
    struct background *b = f->b;
    pthread_mutex_lock(&b->lock);
    struct follower **at = f->job != NULL ? &f->job->followers : NULL;
    while (at != NULL && *at != f)
        at = &(*at)->next;
    if (at != NULL)
        let_go(at);
    pthread_mutex_unlock(&b->lock);
}

static enum status check_follow(const struct background_job *job, struct err *err) {
    if (job == NULL)
        return err_set(err, ST_NOT_FOUND,
                       "no response with this id is known here, or not any more");
    if (!job->keeps)
        return err_set(err, ST_UNSUPPORTED,
                       "stream: only a background response that was made with stream can be "
                       "streamed again, as long as its events are kept");
    if (job->n_followers >= FOLLOWERS_MAX)
        return err_set(err, ST_AGAIN, "this response has %d streams already", FOLLOWERS_MAX);
    return ST_OK;
}

/* With the lock held: what there is already, in one piece, and the rest as it comes. */
static void follow(struct background_job *job, long after, struct follower *f) {
    size_t from = after < 0 ? 0 : MIN((size_t)after + 1, job->n_events);
    size_t begin = from > 0 ? job->ends[from - 1] : 0;
    http_set_release(f->http, mem_free, f);
    http_stream_begin(f->http, 200, "text/event-stream");
    http_fill_quiet(f->http, "text/event-stream", ": still at work\n\n");
    if (job->events.len > begin)
        (void)http_stream_write(f->http, job->events.bytes + begin, job->events.len - begin);
    if (job->ended) {
        http_stream_end(f->http);
        return;
    }
    f->job = job;
    f->next = job->followers;
    job->followers = f;
    job->n_followers++;
}

enum status background_follow(struct background *b, const char *id, int owner, long after,
                              struct http_request *http, struct err *err) {
    struct follower *f = mem_calloc(1, sizeof *f);
    if (f == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a stream");
    *f = (struct follower){.b = b, .http = http};
    pthread_mutex_lock(&b->lock);
    struct background_job *job = find(b, id, owner);
    enum status st = check_follow(job, err);
    if (st == ST_OK)
        follow(job, after, f);
    pthread_mutex_unlock(&b->lock);
    if (st != ST_OK)
        mem_free(f);
    else
        http_on_gone(http, gone, f); /* the request lives at least until the handler returns */
    return st;
}

/* With the lock held. */
static void cancel(struct background_job *job) {
    job->cancelled = true;
    job->cancel(job->user);
}

bool background_cancel(struct background *b, const char *id, int owner,
                       struct http_request *http) {
    pthread_mutex_lock(&b->lock);
    struct background_job *job = find_running(b, id, owner);
    if (job != NULL && job->n_waiting < WAITING_MAX)
        job->waiting[job->n_waiting++] = http;
    else if (job != NULL)
        answer(http, job->text);
    if (job != NULL)
        cancel(job);
    pthread_mutex_unlock(&b->lock);
    return job != NULL;
}

bool background_forget(struct background *b, const char *id, int owner) {
    pthread_mutex_lock(&b->lock);
    struct background_job *job = find(b, id, owner);
    if (job != NULL && job->ended) {
        drop(job);
    } else if (job != NULL) {
        job->forgotten = true;
        cancel(job);
    }
    pthread_mutex_unlock(&b->lock);
    return job != NULL;
}
