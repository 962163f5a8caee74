/* pages.h: which sequences own which page of the KV cache, and what full pages contain. This is
 * rank 0's book-keeping of page ids, which mean the same on every rank.
 *
 * A page is free, held (by one sequence or several), or cached: full, not held, findable. A
 * full page is identified by its tokens and the page before it. That page is identified in the
 * same way. So if both are equal, all tokens up to the page's end are equal, and so, by
 * docs/numerics.md, are its bits. A hash finds candidates; then tokens and the page before are
 * compared.
 *
 * Cached pages are reused least recently used first. A sequence releases its pages from the
 * last to the first, so a page is always reused before the page before it.
 *
 * Layers with a window have pages of their own (model/kv_cache.h), for the same positions. A
 * sequence holds one beside each of its pages while its tokens still see it. It releases that
 * one earlier, when they no longer do. Beside a known page, a window page stays cached until
 * its memory is needed. So a prefix can be reused only as far as its last window pages are
 * cached too.
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
 * more; PAGE_NONE if it is not cached. The caller holds `before`. */
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
/* Whether there is one beside this known page, which the caller holds. */
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
