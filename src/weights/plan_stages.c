/* plan_stages.c: which layers a pipeline stage holds.
 *
 * A stage's load is its bytes per unit of its share. The slowest stage sets the pace of a full
 * pipeline, and the fullest machine decides whether the model fits. So the largest load is made
 * as small as whole layers allow. Among the divisions that reach it, the one with the least sum
 * of squares is chosen. Bytes and shares are whole numbers here, so every machine finds the
 * same division. */
#include "base/mem.h"
#include "base/util.h"
#include "weights/plan.h"

#include <math.h>

/* Units of the sum of all bytes, and of the sum of all shares: a load times its bytes stays
 * below 2^63. */
#define BYTES_BITS 20
#define SHARE_BITS 16

struct stages {
    const uint64_t *upto; /* [n_layers + 1] bytes of the layers before this one */
    uint64_t output, unit;
    uint32_t n_layers, at_least; /* layers that each stage has */
    int n;
    uint64_t share[PLAN_MAX_RANKS];
    /* [n + 1][n_layers + 1] of the first stages that hold the first layers; none: UINT64_MAX */
    uint64_t *best;
    uint32_t *from; /* the same: where the last one of these begins */
};

static uint64_t bytes_of(const struct stages *st, int s, uint32_t begin, uint32_t end) {
    uint64_t output = s == st->n - 1 ? st->output : 0;
    return (st->upto[end] - st->upto[begin] + output) / st->unit;
}

/* The least sum of squares of all divisions whose loads are at most `limit`; without a limit
 * (0), the least possible largest load. */
static uint64_t solve(struct stages *st, uint64_t limit) {
    uint32_t width = st->n_layers + 1;
    for (uint32_t end = 0; end < width; end++)
        st->best[end] = end == 0 ? 0 : UINT64_MAX;
    for (int s = 0; s < st->n; s++) {
        const uint64_t *before = st->best + (size_t)s * width;
        for (uint32_t end = 0; end < width; end++) {
            uint64_t least = UINT64_MAX;
            uint32_t from = 0;
            for (uint32_t n = st->at_least; n <= end; n++) { /* loads grow with n */
                uint64_t bytes = bytes_of(st, s, end - n, end);
                uint64_t load = (bytes << SHARE_BITS) / st->share[s];
                uint64_t own = limit == 0 ? load : load * bytes, rest = before[end - n];
                if ((limit != 0 && load > limit) || own >= least)
                    break;
                if (rest == UINT64_MAX)
                    continue;
                uint64_t all = limit == 0 ? MAX(own, rest) : own + rest;
                if (all < least) {
                    least = all;
                    from = end - n;
                }
            }
            st->best[(size_t)(s + 1) * width + end] = least;
            st->from[(size_t)(s + 1) * width + end] = from;
        }
    }
    return st->best[(size_t)st->n * width + st->n_layers];
}

enum status plan_cut_stages(uint32_t *bounds, const uint64_t *layer_bytes, uint32_t n_layers,
                            uint64_t output_bytes, const double *shares, int n,
                            struct err *err) {
    BUG_ON(n < 1 || n > PLAN_MAX_RANKS);
    size_t width = (size_t)n_layers + 1, cells = width * ((size_t)n + 1);
    uint64_t *upto = mem_alloc(width * sizeof *upto);
    struct stages st = {.upto = upto,
                        .output = output_bytes,
                        .n_layers = n_layers,
                        .n = n,
                        .at_least = n_layers >= (uint32_t)n ? 1 : 0,
                        .best = mem_alloc(cells * sizeof *st.best),
                        .from = mem_alloc(cells * sizeof *st.from)};
    enum status status = ST_OK;
    if (upto == NULL || st.best == NULL || st.from == NULL) {
        status = err_set(err, ST_NO_MEMORY, "no memory to plan %u layers", n_layers);
        goto done;
    }
    upto[0] = 0;
    for (uint32_t l = 0; l < n_layers; l++)
        upto[l + 1] = upto[l] + layer_bytes[l];
    st.unit = ((upto[n_layers] + output_bytes) >> BYTES_BITS) + 1;
    double sum = 0;
    for (int s = 0; s < n; s++)
        sum += shares[s];
    for (int s = 0; s < n; s++)
        st.share[s] = MAX((uint64_t)floor(shares[s] / sum * (1 << SHARE_BITS) + 0.5), 1u);
    uint64_t limit = solve(&st, 0);
    solve(&st, MAX(limit, 1u));
    bounds[n] = n_layers;
    for (int s = n; s > 0; s--)
        bounds[s - 1] = st.from[(size_t)s * width + bounds[s]];
done:
    mem_free(upto);
    mem_free(st.best);
    mem_free(st.from);
    return status;
}
