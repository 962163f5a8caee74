/* template_arena.h: memory that is freed all at once. A compiled template owns one for its
 * tree; a render owns one for its values. Not thread-safe: one owner. */
#ifndef LOCKSTEP_JINJA_TEMPLATE_ARENA_H
#define LOCKSTEP_JINJA_TEMPLATE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks;
    char *next, *end;    /* what is free in the newest chunk */
    size_t total, limit; /* bytes of all chunks */
};

void arena_init(struct arena *a, size_t limit_bytes);
void arena_deinit(struct arena *a);

/* NULL when the limit is reached or the system has no memory. align is a power of two <= 16. */
void *arena_alloc(struct arena *a, size_t size_bytes, size_t align);

/* Grows the block that ends at `end` by size_bytes in place, if it is the newest one and its
 * chunk has enough space. So s = s + x in a loop costs x, not s. */
bool arena_extend(struct arena *a, const char *end, size_t size_bytes);

#endif
