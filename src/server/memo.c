/* memo.c: a list with the most recently used entry at its head. It has a few thousand entries
 * at most, and a request looks one up once. */
#include "server/memo.h"

#include "base/mem.h"
#include "base/util.h"

#include <pthread.h>

struct entry {
    struct entry *prev, *next;
    char *id, *text;
    int owner;
    size_t bytes;
};

struct memo {
    pthread_mutex_t lock; /* guards all below */
    struct entry *first, *last;
    size_t n, n_max, bytes, max_bytes;
};

enum status memo_open(struct memo **out, size_t n_max, size_t max_bytes, struct err *err) {
    struct memo *m = mem_calloc(1, sizeof *m);
    if (m == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a memo");
    pthread_mutex_init(&m->lock, NULL);
    m->n_max = n_max;
    m->max_bytes = max_bytes;
    *out = m;
    return ST_OK;
}

static void unlink_entry(struct memo *m, struct entry *e) {
    *(e->prev != NULL ? &e->prev->next : &m->first) = e->next;
    *(e->next != NULL ? &e->next->prev : &m->last) = e->prev;
    e->prev = e->next = NULL;
    m->n--;
    m->bytes -= e->bytes;
}

static void link_first(struct memo *m, struct entry *e) {
    e->next = m->first;
    *(m->first != NULL ? &m->first->prev : &m->last) = e;
    m->first = e;
    m->n++;
    m->bytes += e->bytes;
}

static void entry_free(struct entry *e) {
    mem_free(e->id);
    mem_free(e->text);
    mem_free(e);
}

static struct entry *find(const struct memo *m, const char *id) {
    struct entry *e = m->first;
    while (e != NULL && !str_eq(e->id, id))
        e = e->next;
    return e;
}

/* NULL: none that this owner may know of. */
static struct entry *find_own(const struct memo *m, const char *id, int owner) {
    struct entry *e = find(m, id);
    return e != NULL && e->owner == owner ? e : NULL;
}

static void drop(struct memo *m, struct entry *e) {
    unlink_entry(m, e);
    entry_free(e);
}

void memo_close(struct memo *m) {
    if (m == NULL)
        return;
    while (m->first != NULL)
        drop(m, m->first);
    pthread_mutex_destroy(&m->lock);
    mem_free(m);
}

void memo_put(struct memo *m, const char *id, int owner, char *text) {
    struct entry *e = mem_calloc(1, sizeof *e);
    if (e != NULL)
        *e = (struct entry){.id = mem_strdup(id), .text = text, .owner = owner};
    if (e == NULL || e->id == NULL) {
        mem_free(text);
        mem_free(e);
        return;
    }
    e->bytes = sizeof *e + strlen(id) + strlen(text) + 2;
    pthread_mutex_lock(&m->lock);
    struct entry *old = find(m, id);
    bool others = old != NULL && old->owner != owner;
    if (old != NULL && !others)
        drop(m, old);
    if (!others)
        link_first(m, e);
    while (m->n > m->n_max || m->bytes > m->max_bytes)
        drop(m, m->last);
    pthread_mutex_unlock(&m->lock);
    if (others)
        entry_free(e);
}

char *memo_get(struct memo *m, const char *id, int owner) {
    char *text = NULL;
    pthread_mutex_lock(&m->lock);
    struct entry *e = find_own(m, id, owner);
    if (e != NULL) {
        unlink_entry(m, e);
        link_first(m, e);
        text = mem_strdup(e->text);
    }
    pthread_mutex_unlock(&m->lock);
    return text;
}

bool memo_forget(struct memo *m, const char *id, int owner) {
    pthread_mutex_lock(&m->lock);
    struct entry *e = find_own(m, id, owner);
    if (e != NULL)
        drop(m, e);
    pthread_mutex_unlock(&m->lock);
    return e != NULL;
}
