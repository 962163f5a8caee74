/* depth_mix.c: plain loops of single IEEE operations around the exact exp. */
#include "model/depth_mix.h"

#include "base/exact.h"
#include "base/util.h"
#include "kernels/activation.h"

#include <math.h>

void depth_mix(const struct kernels *k, float *out, const float *const *streams, uint32_t n,
               const float *score, uint32_t n_embd, float eps) {
    float p[DEPTH_MIX_MAX] = {0};
    BUG_ON(n < 1 || n > DEPTH_MIX_MAX);
    for (uint32_t i = 0; i < n; i++) {
        float squares = exact_dot(streams[i], streams[i], n_embd);
        p[i] = exact_dot(streams[i], score, n_embd) / sqrtf(squares / (float)n_embd + eps);
    }
    softmax(k, p, n);
    for (uint32_t c = 0; c < n_embd; c++)
        out[c] = p[0] * streams[0][c];
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t c = 0; c < n_embd; c++)
            out[c] = fmaf(p[i], streams[i][c], out[c]);
    exact_tidy_all(out, n_embd);
}
