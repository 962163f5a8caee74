/* pages.c: Which sequence owns which page of the KV cache, and which full pages can be found by
 * their prefix. */
#include "engine/pages.h"

#include "base/mem.h"
#include "base/util.h"

struct page {
    uint32_t n_holders;
    uint32_t before, n_after; /* known pages that follow it */
    uint32_t chain;           /* next in the bucket */
    uint32_t older, newer;    /* cached: its neighbours; free: older is the next free one */
    uint32_t beside; /* the other kind's page of these positions; PAGE_NONE: none is known */
    uint64_t hash;
    bool known; /* full and findable; for a window page: beside a known page */
};

/* Pages of one kind: which are free, and which are cached, by age. */
struct stock {
    struct page *list; /* [n] */
    uint32_t n, free, oldest, newest;
    size_t n_free, n_cached;
};

struct pages {
    bool find;
    struct stock whole, window;
    int32_t *ids;       /* [whole.n, KV_PAGE] of known pages */
    uint32_t n_buckets; /* a power of two */
    uint32_t *buckets;  /* [n_buckets] */
    void (*on_forget)(void *user, uint32_t page);
    void *on_forget_user;
};

static bool stock_init(struct stock *o, uint32_t n) {
    *o = (struct stock){.n = n, .n_free = n, .oldest = PAGE_NONE, .newest = PAGE_NONE};
    o->list = mem_calloc(n, sizeof *o->list);
    /* The first pages first: memory becomes resident from the start. */
    for (uint32_t i = 0; i < n && o->list != NULL; i++)
        o->list[i].older = i + 1 < n ? i + 1 : PAGE_NONE;
    o->free = n > 0 ? 0 : PAGE_NONE;
    return o->list != NULL;
}

enum status pages_open(struct pages **out, uint32_t n_pages, uint32_t n_window_pages, bool find,
                       struct err *err) {
    struct pages *p = mem_calloc(1, sizeof *p);
    if (p == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a table of pages");
    *p = (struct pages){.find = find, .n_buckets = 16};
    while (p->n_buckets < n_pages && p->n_buckets < 1u << 31)
        p->n_buckets *= 2;
    p->ids = mem_calloc((size_t)n_pages * KV_PAGE, sizeof *p->ids);
    p->buckets = mem_calloc(p->n_buckets, sizeof *p->buckets);
    bool stocks = stock_init(&p->whole, n_pages) && stock_init(&p->window, n_window_pages);
    if (!stocks || p->ids == NULL || p->buckets == NULL) {
        pages_close(p);
        return err_set(err, ST_NO_MEMORY, "no memory for a table of %u pages", n_pages);
    }
    for (uint32_t i = 0; i < p->n_buckets; i++)
        p->buckets[i] = PAGE_NONE;
    *out = p;
    return ST_OK;
}

void pages_close(struct pages *p) {
    if (p == NULL)
        return;
    mem_free(p->whole.list);
    mem_free(p->window.list);
    mem_free(p->ids);
    mem_free(p->buckets);
    mem_free(p);
}

void pages_on_forget(struct pages *p, void (*call)(void *user, uint32_t page), void *user) {
    p->on_forget = call;
    p->on_forget_user = user;
}

/* ---- lists ------------------------------------------------------------------------------- */

static void put_free(struct stock *o, uint32_t id) {
    o->list[id].older = o->free;
    o->free = id;
    o->n_free++;
}

static void put_cached(struct stock *o, uint32_t id) {
    struct page *pg = &o->list[id];
    pg->older = o->newest;
    pg->newer = PAGE_NONE;
    if (o->newest != PAGE_NONE)
        o->list[o->newest].newer = id;
    else
        o->oldest = id;
    o->newest = id;
    o->n_cached++;
}

static void take_cached(struct stock *o, uint32_t id) {
    const struct page *pg = &o->list[id];
    if (pg->older != PAGE_NONE)
        o->list[pg->older].newer = pg->newer;
    else
        o->oldest = pg->newer;
    if (pg->newer != PAGE_NONE)
        o->list[pg->newer].older = pg->older;
    else
        o->newest = pg->older;
    o->n_cached--;
}

static uint32_t take_free(struct stock *o) {
    uint32_t id = o->free;
    if (id != PAGE_NONE) {
        o->free = o->list[id].older;
        o->n_free--;
    }
    return id;
}

static void hold(struct stock *o, uint32_t id) {
    if (o->list[id].n_holders++ == 0)
        take_cached(o, id);
}

static void release(struct stock *o, uint32_t id) {
    BUG_ON(id >= o->n || o->list[id].n_holders == 0);
    if (--o->list[id].n_holders > 0)
        return;
    if (o->list[id].known)
        put_cached(o, id);
    else
        put_free(o, id);
}

static struct pages_count count(const struct stock *o) {
    return (struct pages_count){
        .total = o->n, .held = o->n - o->n_free - o->n_cached, .cached = o->n_cached};
}

/* ---- the index --------------------------------------------------------------------------- */

/* Multiply and fold; ids are compared anyway. */
static uint64_t hash_page(uint64_t seed, const int32_t *ids) {
    uint64_t h = seed ^ 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < KV_PAGE; i++) {
        h = (h ^ (uint32_t)ids[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h;
}

static uint64_t hash_of(const struct pages *p, uint32_t before, const int32_t *ids) {
    return hash_page(before != PAGE_NONE ? p->whole.list[before].hash : 0, ids);
}

static int32_t *ids_of(const struct pages *p, uint32_t id) {
    return p->ids + (size_t)id * KV_PAGE;
}

static uint32_t lookup(const struct pages *p, uint32_t before, uint64_t hash,
                       const int32_t *ids) {
    uint32_t id = p->buckets[hash & (p->n_buckets - 1)];
    for (; id != PAGE_NONE; id = p->whole.list[id].chain)
        if (p->whole.list[id].hash == hash && p->whole.list[id].before == before &&
            memcmp(ids_of(p, id), ids, KV_PAGE * sizeof *ids) == 0)
            return id;
    return PAGE_NONE;
}

/* A cached page becomes unknown. */
static void forget(struct pages *p, uint32_t id) {
    struct page *pg = &p->whole.list[id];
    BUG_ON(pg->n_after != 0);
    if (p->on_forget != NULL)
        p->on_forget(p->on_forget_user, id);
    uint32_t *at = &p->buckets[pg->hash & (p->n_buckets - 1)];
    while (*at != id)
        at = &p->whole.list[*at].chain;
    *at = pg->chain;
    if (pg->beside != PAGE_NONE) { /* held by no sequence: holders of it also hold this page */
        take_cached(&p->window, pg->beside);
        put_free(&p->window, pg->beside);
    }
    if (pg->before != PAGE_NONE)
        p->whole.list[pg->before].n_after--;
    pg->known = false;
}

/* ---- what sequences do ------------------------------------------------------------------- */

uint32_t pages_take(struct pages *p) {
    uint32_t id = take_free(&p->whole);
    if (id == PAGE_NONE) {
        id = p->whole.oldest;
        if (id == PAGE_NONE)
            return PAGE_NONE;
        take_cached(&p->whole, id);
        forget(p, id);
    }
    p->whole.list[id] = (struct page){.n_holders = 1, .beside = PAGE_NONE};
    return id;
}

uint32_t pages_find(struct pages *p, uint32_t before, const int32_t *ids) {
    if (!p->find)
        return PAGE_NONE;
    BUG_ON(before != PAGE_NONE && p->whole.list[before].n_holders == 0);
    uint32_t id = lookup(p, before, hash_of(p, before, ids), ids);
    if (id != PAGE_NONE)
        hold(&p->whole, id);
    return id;
}

uint32_t pages_publish(struct pages *p, uint32_t page, uint32_t before, const int32_t *ids) {
    if (!p->find)
        return page;
    struct page *pg = &p->whole.list[page];
    BUG_ON(pg->n_holders != 1 || pg->known);
    BUG_ON(before != PAGE_NONE &&
           (p->whole.list[before].n_holders == 0 || !p->whole.list[before].known));
    uint64_t hash = hash_of(p, before, ids);
    uint32_t same = lookup(p, before, hash, ids);
    if (same != PAGE_NONE) {
        hold(&p->whole, same);
        pages_release(p, &page, 1);
        return same;
    }
    uint32_t *bucket = &p->buckets[hash & (p->n_buckets - 1)];
    pg->hash = hash;
    pg->before = before;
    pg->n_after = 0;
    pg->known = true;
    pg->chain = *bucket;
    *bucket = page;
    if (before != PAGE_NONE)
        p->whole.list[before].n_after++;
    memcpy(ids_of(p, page), ids, KV_PAGE * sizeof *ids);
    return page;
}

void pages_release(struct pages *p, const uint32_t *list, size_t n) {
    while (n-- > 0)
        release(&p->whole, list[n]);
}

struct pages_count pages_count(const struct pages *p) {
    return count(&p->whole);
}

size_t pages_available(const struct pages *p) {
    return p->whole.n_free + p->whole.n_cached;
}

/* ---- layers with a window ---------------------------------------------------------------- */

uint32_t pages_window_take(struct pages *p) {
    uint32_t id = take_free(&p->window);
    if (id == PAGE_NONE) {
        id = p->window.oldest;
        if (id == PAGE_NONE)
            return PAGE_NONE;
        take_cached(&p->window, id);
        p->whole.list[p->window.list[id].beside].beside = PAGE_NONE;
    }
    p->window.list[id] = (struct page){.n_holders = 1, .beside = PAGE_NONE};
    return id;
}

bool pages_window_known(const struct pages *p, uint32_t page) {
    return p->whole.list[page].beside != PAGE_NONE;
}

uint32_t pages_window_hold(struct pages *p, uint32_t page) {
    BUG_ON(p->whole.list[page].n_holders == 0 || !pages_window_known(p, page));
    hold(&p->window, p->whole.list[page].beside);
    return p->whole.list[page].beside;
}

uint32_t pages_window_publish(struct pages *p, uint32_t page, uint32_t mine) {
    if (!p->find)
        return mine;
    struct page *pg = &p->window.list[mine];
    BUG_ON(pg->n_holders != 1 || pg->known || !p->whole.list[page].known);
    if (pages_window_known(p, page)) {
        release(&p->window, mine);
        return pages_window_hold(p, page);
    }
    p->whole.list[page].beside = mine;
    pg->beside = page;
    pg->known = true;
    return mine;
}

void pages_window_release(struct pages *p, uint32_t window_page) {
    release(&p->window, window_page);
}

size_t pages_window_available(const struct pages *p) {
    return p->window.n_free + p->window.n_cached;
}

struct pages_count pages_window_count(const struct pages *p) {
    return count(&p->window);
}
