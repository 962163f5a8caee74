/* commands.c: lists of runs in a ring of bytes, in the order in which they were recorded. The list
 * that is being noted comes after the newest, and the oldest are given up where it needs room. */
#include "base/util.h"

#if defined(LOCKSTEP_HAS_VULKAN)
#include "device/commands.h"

#include "base/mem.h"

#include <string.h>

#define RING_BYTES ((size_t)8 << 20)
#define LIST_BYTES (RING_BYTES / 4) /* of a list at most: about 14,000 runs */
#define LISTS_MAX 512

struct list {
    size_t begin, n_bytes; /* in the ring */
    uint64_t mark;         /* equal lists have equal ones */
    VkCommandBuffer buffer;
};

struct commands {
    uint8_t *ring;
    size_t begin, n_bytes;        /* the list that is being noted */
    struct list lists[LISTS_MAX]; /* in a ring, too */
    size_t oldest, n_lists;
    uint64_t mark;
};

struct commands *commands_open(void) {
    struct commands *c = mem_calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->ring = mem_huge_alloc(RING_BYTES);
    if (c->ring == NULL) {
        mem_free(c);
        return NULL;
    }
    return c;
}

void commands_close(struct commands *c) {
    if (c == NULL)
        return;
    mem_huge_free(c->ring, RING_BYTES);
    mem_free(c);
}

/* ---- room -------------------------------------------------------------------------------- */

static struct list *list_at(struct commands *c, size_t i) {
    return &c->lists[(c->oldest + i) % LISTS_MAX];
}

static void give_up_oldest(struct commands *c) {
    c->oldest = (c->oldest + 1) % LISTS_MAX;
    c->n_lists--;
}

/* Where the bytes end that the list may grow into. */
static size_t room_end(struct commands *c) {
    size_t begin = c->n_lists != 0 ? list_at(c, 0)->begin : 0;
    return c->n_lists != 0 && begin >= c->begin ? begin : RING_BYTES;
}

static void move_to_begin(struct commands *c) {
    while (c->n_lists != 0 && list_at(c, 0)->begin >= c->begin)
        give_up_oldest(c);
    while (c->n_lists != 0 && list_at(c, 0)->begin < c->n_bytes)
        give_up_oldest(c);
    memmove(c->ring, c->ring + c->begin, c->n_bytes);
    c->begin = 0;
}

static bool make_room(struct commands *c, size_t n) {
    if (c->n_bytes + n > LIST_BYTES)
        return false;
    if (c->begin + c->n_bytes + n > RING_BYTES)
        move_to_begin(c);
    while (c->begin + c->n_bytes + n > room_end(c))
        give_up_oldest(c);
    return true;
}

/* ---- the list ---------------------------------------------------------------------------- */

bool commands_note(struct commands *c, const struct noted_run *run, const void *push) {
    const size_t n = sizeof *run + run->push_bytes;
    BUG_ON(run->push_bytes % 8 != 0);
    if (!make_room(c, n))
        return false;
    uint8_t *at = c->ring + c->begin + c->n_bytes;
    memcpy(at, run, sizeof *run);
    if (run->push_bytes != 0)
        memcpy(at + sizeof *run, push, run->push_bytes);
    c->n_bytes += n;
    return true;
}

const struct noted_run *commands_next(const struct commands *c, const struct noted_run *run) {
    const uint8_t *at =
        run == NULL ? c->ring + c->begin : (const uint8_t *)(run + 1) + run->push_bytes;
    return at < c->ring + c->begin + c->n_bytes ? (const struct noted_run *)at : NULL;
}

/* Of what differs most. */
static uint64_t mark_of(const struct commands *c) {
    uint64_t mark = c->n_bytes;
    for (const struct noted_run *run = NULL; (run = commands_next(c, run)) != NULL;) {
        uint64_t first = 0;
        memcpy(&first, run + 1, MIN(run->push_bytes, (uint32_t)sizeof first));
        mark = (mark ^ (uint64_t)(uintptr_t)run->pipeline ^ first) * 0x9e3779b97f4a7c15u;
        mark = (mark ^ mark >> 29 ^ run->groups[0] ^ (uint64_t)run->groups[1] << 32) *
               0xbf58476d1ce4e5b9u;
    }
    return mark;
}

bool commands_find(struct commands *c, VkCommandBuffer **buffer) {
    c->mark = mark_of(c);
    for (size_t i = c->n_lists; i-- > 0;) {
        struct list *l = list_at(c, i);
        if (l->mark == c->mark && l->n_bytes == c->n_bytes &&
            memcmp(c->ring + l->begin, c->ring + c->begin, c->n_bytes) == 0) {
            *buffer = &l->buffer;
            return true;
        }
    }
    if (c->n_lists == LISTS_MAX)
        give_up_oldest(c);
    *buffer = &list_at(c, c->n_lists)->buffer; /* what was there once is recorded anew */
    return false;
}

void commands_begin(struct commands *c, bool recorded) {
    if (recorded) {
        struct list *l = list_at(c, c->n_lists++);
        l->begin = c->begin;
        l->n_bytes = c->n_bytes;
        l->mark = c->mark;
        c->begin += c->n_bytes;
    }
    c->n_bytes = 0;
}
#endif
