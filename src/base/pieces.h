/* pieces.h: where a block of memory may be cut, since a device takes memory in pieces of whole
 * pages and of limited size. Parts take their places in the block one after the other, and none
 * lies in two pieces. */
#ifndef LOCKSTEP_BASE_PIECES_H
#define LOCKSTEP_BASE_PIECES_H

#include <stdbool.h>
#include <stddef.h>

#define PIECES_PAGE 4096
/* Parts share a piece up to this size. A larger part has its own. */
#define PIECES_TOGETHER ((size_t)1 << 30)

struct pieces {
    size_t most;          /* bytes of a piece; 0: of any size */
    size_t *at;           /* owned: [n] where they begin */
    size_t n, cap, total; /* bytes of the block so far */
};

/* *at: the place of a part of `bytes`, rounded up to cache lines. unit: if the part is larger than
 * a piece, it is cut into several between such units; 0: it is not, and its piece is too large.
 * False: no memory for the list. */
bool pieces_take(struct pieces *p, size_t bytes, size_t unit, size_t *at);
/* Where piece i ends; the last one's end is that of a whole page. */
size_t pieces_end(const struct pieces *p, size_t i);
void pieces_free(struct pieces *p);

/* Bytes of as many units as a piece of at most `most` takes, in whole pages: one piece of several
 * of equal size. It is larger than `most` where no number of units fits. */
size_t pieces_of_units(size_t unit, size_t most);

#endif
