/* pieces.c: Places in a block of memory that is cut into pieces. */
#include "base/pieces.h"

#include "base/mem.h"
#include "base/util.h"

static size_t most_of(const struct pieces *p) {
    return p->most != 0 ? p->most : SIZE_MAX;
}

static bool begin_piece(struct pieces *p, size_t at) {
    if (!mem_reserve(&p->at, &p->cap, p->n + 1, sizeof *p->at))
        return false;
    p->at[p->n++] = at;
    return true;
}

bool pieces_take(struct pieces *p, size_t bytes, size_t unit, size_t *at) {
    const size_t most = most_of(p), together = MIN(most, PIECES_TOGETHER),
                 begin = p->n != 0 ? p->at[p->n - 1] : 0;
    if (p->n == 0 || p->total + bytes - begin > together) {
        p->total = round_up(p->total, PIECES_PAGE);
        if (!begin_piece(p, p->total))
            return false;
    }
    *at = p->total;
    p->total += round_up(bytes, CACHE_LINE);
    if (unit == 0 || bytes <= most)
        return true;
    const size_t each = pieces_of_units(unit, most);
    for (size_t cut = each; cut < bytes; cut += each)
        if (!begin_piece(p, *at + cut))
            return false;
    return true;
}

size_t pieces_end(const struct pieces *p, size_t i) {
    return i + 1 < p->n ? p->at[i + 1] : round_up(p->total, PIECES_PAGE);
}

void pieces_free(struct pieces *p) {
    mem_free(p->at);
    p->at = NULL;
    p->n = p->cap = 0;
}

size_t pieces_of_units(size_t unit, size_t most) {
    const size_t odd =
                     MIN(unit & (~unit + 1), (size_t)PIECES_PAGE), /* the power of two in it */
        least = unit * (PIECES_PAGE / odd);
    return MAX(most / least, (size_t)1) * least;
}
