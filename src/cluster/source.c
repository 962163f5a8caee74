/* source.c: Reads slices of a model's files from the machine that shares them. */
#include "cluster/source.h"

#include "base/mem.h"
#include "base/util.h"
#include "cluster/client.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>

#define TRIES 4
#define TRY_AGAIN_MS 250
#define ASK_BYTES ((size_t)1 << 20)

struct source {
    const struct identity *id;
    char *address;
    pthread_mutex_t lock; /* guards: */
    pthread_cond_t free;  /* one more may be taken */
    struct client *idle[SOURCE_CONNECTIONS_MAX];
    int n_idle, n_taken;
};

static void give_back(struct source *s, struct client *c) {
    pthread_mutex_lock(&s->lock);
    s->n_taken--;
    if (c != NULL)
        s->idle[s->n_idle++] = c;
    pthread_cond_signal(&s->free);
    pthread_mutex_unlock(&s->lock);
}

static enum status take_client(struct source *s, struct client **out, struct err *err) {
    pthread_mutex_lock(&s->lock);
    while (s->n_taken == SOURCE_CONNECTIONS_MAX)
        pthread_cond_wait(&s->free, &s->lock);
    s->n_taken++;
    *out = s->n_idle > 0 ? s->idle[--s->n_idle] : NULL;
    pthread_mutex_unlock(&s->lock);
    enum status st = *out != NULL ? ST_OK : client_open(out, s->id, s->address, err);
    if (st != ST_OK)
        give_back(s, NULL);
    return st;
}

/* One request, as often as is useful. */
static enum status read_some(struct client *c, uint32_t part, const struct client_pieces *p,
                             uint8_t *buf, struct err *err) {
    char path[64];
    snprintf(path, sizeof path, "/v1/files/%u", part);
    enum status st = client_pieces(c, path, p, buf, err);
    for (int i = 1; i < TRIES && (st == ST_IO || st == ST_TIMEOUT); i++) {
        poll(NULL, 0, TRY_AGAIN_MS << i);
        st = client_pieces(c, path, p, buf, err);
    }
    return st;
}

static enum status read_pieces(struct source *s, struct client *c, uint32_t part, uint64_t at,
                               size_t n, uint64_t stride, size_t count, uint8_t *out,
                               size_t out_stride, struct err *err) {
    size_t at_once = MAX(ASK_BYTES / n, (size_t)1);
    uint8_t *buf = mem_alloc(MIN(at_once, count) * n);
    enum status st = buf != NULL
                         ? ST_OK
                         : err_set(err, ST_NO_MEMORY, "no memory for data from %s", s->address);
    for (size_t done = 0; st == ST_OK && done < count; done += at_once) {
        const struct client_pieces p = {at + done * stride, n, stride,
                                        MIN(at_once, count - done)};
        st = read_some(c, part, &p, buf, err);
        for (size_t i = 0; st == ST_OK && i < p.count; i++)
            memcpy(out + (done + i) * out_stride, buf + i * n, n);
    }
    mem_free(buf);
    return st;
}

static enum status read_source(void *user, uint32_t part, uint64_t at, size_t n,
                               uint64_t stride, size_t count, uint8_t *out, size_t out_stride,
                               struct err *err) {
    struct source *s = user;
    struct client *c;
    if (n == 0 || count == 0)
        return ST_OK;
    if (n == stride && n == out_stride) { /* one piece, then: rows that follow each other */
        size_t all = n * count;
        n = MIN(all, ASK_BYTES);
        if (all % n != 0) {
            TRY(read_source(user, part, at + all / n * n, all % n, 0, 1, out + all / n * n, 0,
                            err));
        }
        count = all / n;
        stride = out_stride = n;
    }
    TRY(take_client(s, &c, err));
    enum status st = read_pieces(s, c, part, at, n, stride, count, out, out_stride, err);
    give_back(s, c);
    return st;
}

enum status source_open(struct file_source *out, const struct identity *id, const char *address,
                        struct err *err) {
    struct source *s = mem_calloc(1, sizeof *s);
    if (s != NULL)
        s->address = mem_strdup(address);
    if (s == NULL || s->address == NULL) {
        mem_free(s);
        return err_set(err, ST_NO_MEMORY, "no memory for a source");
    }
    s->id = id;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->free, NULL);
    *out = (struct file_source){read_source, s};
    return ST_OK;
}

void source_close(struct file_source *f) {
    struct source *s = f->user;
    for (int i = 0; i < s->n_idle; i++)
        client_close(s->idle[i]);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->free);
    mem_free(s->address);
    mem_free(s);
    *f = (struct file_source){NULL, NULL};
}
