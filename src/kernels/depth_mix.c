/* depth_mix.c: plain loops of single IEEE operations around the exact exp. */
#include "kernels/depth_mix.h"

#include "base/util.h"

#include <math.h>

/* x . y over 16 lanes and the fixed tree. */
static float dot(const float *x, const float *y, uint32_t n) {
    float lanes[16] = {0};
    for (uint32_t i = 0; i < n; i++)
        lanes[i % 16] = fmaf(x[i], y[i], lanes[i % 16]);
    for (uint32_t half = 8; half >= 1; half /= 2)
        for (uint32_t i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    return lanes[0];
}

static void softmax(const struct kernels *k, float *x, uint32_t n) {
    float most = x[0], sum = 0.0f;
    for (uint32_t i = 1; i < n; i++)
        most = MAX(most, x[i]);
    for (uint32_t i = 0; i < n; i++)
        x[i] -= most;
    k->exp(x, x, n);
    for (uint32_t i = 0; i < n; i++)
        sum += x[i];
    for (uint32_t i = 0; i < n; i++)
        x[i] /= sum;
}

void depth_mix(const struct kernels *k, float *out, const float *const *streams, uint32_t n,
               const float *score, uint32_t n_embd, float eps) {
    float p[DEPTH_MIX_MAX] = {0};
    BUG_ON(n < 1 || n > DEPTH_MIX_MAX);
    for (uint32_t i = 0; i < n; i++) {
        float squares = dot(streams[i], streams[i], n_embd);
        p[i] = dot(streams[i], score, n_embd) / sqrtf(squares / (float)n_embd + eps);
    }
    softmax(k, p, n);
    for (uint32_t c = 0; c < n_embd; c++)
        out[c] = p[0] * streams[0][c];
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t c = 0; c < n_embd; c++)
            out[c] = fmaf(p[i], streams[i][c], out[c]);
}
