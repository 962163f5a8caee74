/* template_arena.c: Memory of a template or a render, freed all at once. */
#include "jinja/template_arena.h"

#include "base/mem.h"
#include "base/util.h"

#define CHUNK_MIN ((size_t)64 << 10)
#define CHUNK_MAX ((size_t)4 << 20)

struct arena_chunk {
    struct arena_chunk *older;
    _Alignas(16) char bytes[];
};

void arena_init(struct arena *a, size_t limit_bytes) {
    *a = (struct arena){.limit = limit_bytes};
}

void arena_deinit(struct arena *a) {
    for (struct arena_chunk *c = a->chunks, *older; c != NULL; c = older) {
        older = c->older;
        mem_free(c);
    }
    *a = (struct arena){0};
}

/* A large block gets a chunk with as much free space again behind it, so a text that keeps
 * growing is rarely copied. */
static bool add_chunk(struct arena *a, size_t size_bytes) {
    size_t usual = MIN(MAX(a->total, CHUNK_MIN), CHUNK_MAX);
    if (size_bytes > a->limit / 4)
        return false;
    size_t size = size_bytes > usual / 2 ? size_bytes * 2 : usual;
    if (size > a->limit - a->total)
        return false;
    struct arena_chunk *c = mem_alloc(sizeof *c + size);
    if (c == NULL)
        return false;
    c->older = a->chunks;
    a->chunks = c;
    a->next = c->bytes;
    a->end = c->bytes + size;
    a->total += size;
    return true;
}

void *arena_alloc(struct arena *a, size_t size_bytes, size_t align) {
    for (int attempt = 0; attempt < 2; attempt++) {
        size_t gap = a->next == NULL ? 0 : -(size_t)a->next & (align - 1);
        if (a->next != NULL && gap <= (size_t)(a->end - a->next) &&
            size_bytes <= (size_t)(a->end - a->next) - gap) {
            char *p = a->next + gap;
            a->next = p + size_bytes;
            return p;
        }
        if (attempt == 0 && !add_chunk(a, size_bytes + align))
            return NULL;
    }
    return NULL;
}

bool arena_extend(struct arena *a, const char *end, size_t size_bytes) {
    if (end == NULL || end != a->next || size_bytes > (size_t)(a->end - a->next))
        return false;
    a->next += size_bytes;
    return true;
}
