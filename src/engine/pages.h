/* pages.h: who owns which page of the KV cache, and which full pages hold what: rank 0's
 * book-keeping over page ids, which mean the same on every rank.
 *
 * A page is free, held (by one sequence or several), or cached: full, held by nobody, findable.
 * A full page is known by its tokens and the page before it: since that page is known the same
 * way, both being equal means that all tokens up to the page's end are, and so, by
 * docs/numerics.md, its bits. A hash finds candidates; tokens and the page before are compared.
 *
 * Cached pages are taken again least recently used first. A sequence releases its pages
 * from the last to the first, so a page always goes before the page before it.
 *
 * Layers with a window have pages of their own (model/kv_cache.h), for the same positions. A
 * sequence holds one beside each of its pages while its tokens still see it, and gives it back,
 * before that page, when they do not. Beside a known page it stays cached as long as nobody
 * needs the room; so a beginning is worth going on from as far as the last of its window's pages
 * are there too.
 *
 * One thread. Nothing is allocated after pages_open(). */
#ifndef LOCKSTEP_ENGINE_PAGES_H
#define LOCKSTEP_ENGINE_PAGES_H

#include "base/status.h"
#include "kernels/kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE_NONE UINT32_MAX

struct pages;

/* n_window_pages: 0: no layer has a window, and the calls about these are not made. find: false:
 * nothing is ever cached or found. */
enum status pages_open(struct pages **out, uint32_t n_pages, uint32_t n_window_pages, bool find,
                       struct err *err);
void pages_close(struct pages *p); /* NULL is fine */

/* A page to write, held once; PAGE_NONE if all are held. */
uint32_t pages_take(struct pages *p);

/* The page with these KV_PAGE tokens after page `before` (PAGE_NONE: at the start), held once
 * more; PAGE_NONE if there is none. The caller holds `before`. */
uint32_t pages_find(struct pages *p, uint32_t before, const int32_t *ids);

/* Makes a full page, held once by the caller alone, findable. If an equal one exists already, the
 * caller gets that one (held for it) and its own is freed: their bits are the same. */
uint32_t pages_publish(struct pages *p, uint32_t page, uint32_t before, const int32_t *ids);

/* Gives a sequence's pages back, the last first. */
void pages_release(struct pages *p, const uint32_t *list, size_t n);

/* Called with every known page that is to be one no more. */
void pages_on_forget(struct pages *p, void (*call)(void *user, uint32_t page), void *user);

/* The same for the pages of layers with a window. */
uint32_t pages_window_take(struct pages *p);
/* Is there one beside this known page, which the caller holds? */
bool pages_window_known(const struct pages *p, uint32_t page);
/* It, held once more. */
uint32_t pages_window_hold(struct pages *p, uint32_t page);
/* After pages_publish() has given `page`: the caller's own one, full, beside it; or the one
 * that is there already, and the caller's is freed. */
uint32_t pages_window_publish(struct pages *p, uint32_t page, uint32_t mine);
void pages_window_release(struct pages *p, uint32_t window_page);

struct pages_count {
    size_t total, held, cached; /* the rest is free */
};
struct pages_count pages_count(const struct pages *p);
struct pages_count pages_window_count(const struct pages *p);
/* How many pages_take(), pages_window_take() would succeed now. */
size_t pages_available(const struct pages *p);
size_t pages_window_available(const struct pages *p);

#endif
