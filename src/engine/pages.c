#include "engine/pages.h"

#include "base/mem.h"
#include "base/util.h"

struct page {
    uint32_t n_holders;
    uint32_t before, n_after; /* known pages that follow it */
    uint32_t chain;           /* next in the bucket */
    uint32_t older, newer;    /* cached: its neighbours; free: older is the next free one */
    uint64_t hash;
    bool known; /* full and findable */
};

struct pages {
    bool find;
    uint32_t n_pages, n_buckets; /* n_buckets: a power of two */
    struct page *list;           /* [n_pages] */
    int32_t *ids;                /* [n_pages, KV_PAGE] of known pages */
    uint32_t *buckets;           /* [n_buckets] */
    uint32_t free, oldest, newest;
    size_t n_free, n_cached;
};

enum status pages_open(struct pages **out, uint32_t n_pages, bool find, struct err *err) {
    struct pages *p = mem_calloc(1, sizeof *p);
    if (p == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a table of pages");
    *p = (struct pages){.find = find, .n_pages = n_pages, .n_buckets = 16};
    while (p->n_buckets < n_pages && p->n_buckets < 1u << 31)
        p->n_buckets *= 2;
    p->list = mem_calloc(n_pages, sizeof *p->list);
    p->ids = mem_calloc((size_t)n_pages * KV_PAGE, sizeof *p->ids);
    p->buckets = mem_calloc(p->n_buckets, sizeof *p->buckets);
    if (p->list == NULL || p->ids == NULL || p->buckets == NULL) {
        pages_close(p);
        return err_set(err, ST_NO_MEMORY, "no memory for a table of %u pages", n_pages);
    }
    for (uint32_t i = 0; i < p->n_buckets; i++)
        p->buckets[i] = PAGE_NONE;
    /* The first pages first: memory becomes resident from the start. */
    for (uint32_t i = 0; i < n_pages; i++)
        p->list[i].older = i + 1 < n_pages ? i + 1 : PAGE_NONE;
    p->free = n_pages > 0 ? 0 : PAGE_NONE;
    p->oldest = p->newest = PAGE_NONE;
    p->n_free = n_pages;
    *out = p;
    return ST_OK;
}

void pages_close(struct pages *p) {
    if (p == NULL)
        return;
    mem_free(p->list);
    mem_free(p->ids);
    mem_free(p->buckets);
    mem_free(p);
}

/* ---- lists ------------------------------------------------------------------------------------- */

static void put_free(struct pages *p, uint32_t id) {
    p->list[id].older = p->free;
    p->free = id;
    p->n_free++;
}

static void put_cached(struct pages *p, uint32_t id) {
    struct page *pg = &p->list[id];
    pg->older = p->newest;
    pg->newer = PAGE_NONE;
    if (p->newest != PAGE_NONE)
        p->list[p->newest].newer = id;
    else
        p->oldest = id;
    p->newest = id;
    p->n_cached++;
}

static void take_cached(struct pages *p, uint32_t id) {
    const struct page *pg = &p->list[id];
    if (pg->older != PAGE_NONE)
        p->list[pg->older].newer = pg->newer;
    else
        p->oldest = pg->newer;
    if (pg->newer != PAGE_NONE)
        p->list[pg->newer].older = pg->older;
    else
        p->newest = pg->older;
    p->n_cached--;
}

/* ---- the index --------------------------------------------------------------------------------- */

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
    return hash_page(before != PAGE_NONE ? p->list[before].hash : 0, ids);
}

static int32_t *ids_of(const struct pages *p, uint32_t id) {
    return p->ids + (size_t)id * KV_PAGE;
}

static uint32_t lookup(const struct pages *p, uint32_t before, uint64_t hash, const int32_t *ids) {
    uint32_t id = p->buckets[hash & (p->n_buckets - 1)];
    for (; id != PAGE_NONE; id = p->list[id].chain)
        if (p->list[id].hash == hash && p->list[id].before == before &&
            memcmp(ids_of(p, id), ids, KV_PAGE * sizeof *ids) == 0)
            return id;
    return PAGE_NONE;
}

/* A cached page becomes unknown. */
static void forget(struct pages *p, uint32_t id) {
    struct page *pg = &p->list[id];
    BUG_ON(pg->n_after != 0);
    uint32_t *at = &p->buckets[pg->hash & (p->n_buckets - 1)];
    while (*at != id)
        at = &p->list[*at].chain;
    *at = pg->chain;
    if (pg->before != PAGE_NONE)
        p->list[pg->before].n_after--;
    pg->known = false;
}

static void hold(struct pages *p, uint32_t id) {
    if (p->list[id].n_holders++ == 0)
        take_cached(p, id);
}

/* ---- what sequences do --------------------------------------------------------------------------- */

uint32_t pages_take(struct pages *p) {
    uint32_t id = p->free;
    if (id != PAGE_NONE) {
        p->free = p->list[id].older;
        p->n_free--;
    } else if (p->oldest != PAGE_NONE) {
        id = p->oldest;
        take_cached(p, id);
        forget(p, id);
    } else {
        return PAGE_NONE;
    }
    p->list[id] = (struct page){.n_holders = 1};
    return id;
}

uint32_t pages_find(struct pages *p, uint32_t before, const int32_t *ids) {
    if (!p->find)
        return PAGE_NONE;
    BUG_ON(before != PAGE_NONE && p->list[before].n_holders == 0);
    uint32_t id = lookup(p, before, hash_of(p, before, ids), ids);
    if (id != PAGE_NONE)
        hold(p, id);
    return id;
}

uint32_t pages_publish(struct pages *p, uint32_t page, uint32_t before, const int32_t *ids) {
    if (!p->find)
        return page;
    struct page *pg = &p->list[page];
    BUG_ON(pg->n_holders != 1 || pg->known);
    BUG_ON(before != PAGE_NONE && (p->list[before].n_holders == 0 || !p->list[before].known));
    uint64_t hash = hash_of(p, before, ids);
    uint32_t same = lookup(p, before, hash, ids);
    if (same != PAGE_NONE) {
        hold(p, same);
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
        p->list[before].n_after++;
    memcpy(ids_of(p, page), ids, KV_PAGE * sizeof *ids);
    return page;
}

void pages_release(struct pages *p, const uint32_t *list, size_t n) {
    while (n-- > 0) {
        uint32_t id = list[n];
        BUG_ON(id >= p->n_pages || p->list[id].n_holders == 0);
        if (--p->list[id].n_holders > 0)
            continue;
        if (p->list[id].known)
            put_cached(p, id);
        else
            put_free(p, id);
    }
}

struct pages_count pages_count(const struct pages *p) {
    return (struct pages_count){.total = p->n_pages,
                                .held = p->n_pages - p->n_free - p->n_cached,
                                .cached = p->n_cached};
}

size_t pages_available(const struct pages *p) {
    return p->n_free + p->n_cached;
}
