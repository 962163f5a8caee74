/* block_key.c: plain loops of single IEEE operations around the exact exp. */
#include "model/block_key.h"

#include "base/exact.h"

#include <math.h>

void compress_rows(const struct kernels *k, float *out, const float *const *values,
                   const float *const *gates, uint32_t n, uint32_t dim, float *scratch) {
    float *most = scratch, *e = most + dim, *sums = e + dim;
    for (uint32_t c = 0; c < dim; c++) {
        most[c] = -INFINITY;
        sums[c] = out[c] = 0.0f;
    }
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t c = 0; c < dim; c++)
            most[c] = gates[r][c] > most[c] ? gates[r][c] : most[c];
    for (uint32_t r = 0; r < n; r++) {
        for (uint32_t c = 0; c < dim; c++)
            e[c] = gates[r][c] - most[c];
        k->exp(e, e, dim);
        for (uint32_t c = 0; c < dim; c++) {
            e[c] = exact_tidy(e[c]);
            sums[c] += e[c];
            out[c] += e[c] * values[r][c];
        }
    }
    for (uint32_t c = 0; c < dim; c++)
        out[c] = exact_tidy(out[c] / sums[c]);
}
