/* stream_mix.c: plain loops of single IEEE operations around the exact exp. The compiler may
 * vectorize them, which changes no bit. */
#include "model/stream_mix.h"

#include "base/exact.h"
#include "base/util.h"
#include "kernels/activation.h"

#include <math.h>

/* 1 / RMS of all values. */
static float inverse_rms(const struct hyper_args *a, const float *streams) {
    float squares = 0.0f;
    for (uint32_t i = 0; i < a->n; i++) {
        const float *s = streams + (size_t)i * a->n_embd;
        squares += exact_dot(s, s, a->n_embd);
    }
    return 1.0f / sqrtf(squares / (float)(a->n * a->n_embd) + a->rms_eps);
}

static void scale_and_shift(float *m, float r, float scale, const float *base, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        m[i] = m[i] * r * scale + base[i];
}

/* Each row [from] is divided by its sum over [to]; `columns`: each column by that over [from]. */
static void divide_by_sums(float *c, uint32_t n, float eps, bool columns) {
    const uint32_t next = columns ? n : 1, line = columns ? 1 : n;
    for (uint32_t i = 0; i < n; i++) {
        float sum = 0.0f;
        for (uint32_t j = 0; j < n; j++)
            sum += c[i * line + j * next];
        for (uint32_t j = 0; j < n; j++)
            c[i * line + j * next] = exact_tidy(c[i * line + j * next] / (sum + eps));
    }
}

static void pre_of(const struct kernels *k, const struct hyper_args *a, float r, float *m) {
    scale_and_shift(m, r, a->scale[0], a->base, a->n);
    sigmoids(k, m, a->n);
    for (uint32_t i = 0; i < a->n; i++)
        m[i] += a->eps;
}

void hyper_begin(const struct kernels *k, const struct hyper_args *a, const float *streams,
                 float *m) {
    const uint32_t n = a->n;
    const float r = inverse_rms(a, streams);
    float *post = m + n, *c = post + n;
    BUG_ON(n > HYPER_STREAMS_MAX);
    pre_of(k, a, r, m);
    scale_and_shift(post, r, a->scale[1], a->base + n, n);
    sigmoids(k, post, n);
    for (uint32_t i = 0; i < n; i++)
        post[i] *= 2.0f;
    scale_and_shift(c, r, a->scale[2], a->base + 2 * (size_t)n, n * n);
    for (uint32_t i = 0; i < n; i++)
        softmax(k, c + i * n, n);
    for (uint32_t i = 0; i < n * n; i++)
        c[i] += a->eps;
    divide_by_sums(c, n, a->eps, true);
    for (uint32_t i = 1; i < a->n_iterations; i++) {
        divide_by_sums(c, n, a->eps, false);
        divide_by_sums(c, n, a->eps, true);
    }
}

void hyper_end(const struct kernels *k, const struct hyper_args *a, const float *streams,
               float *m) {
    pre_of(k, a, inverse_rms(a, streams), m);
}

void hyper_read(float *x, const float *pre, const float *streams, uint32_t n, uint32_t n_embd) {
    for (uint32_t c = 0; c < n_embd; c++)
        x[c] = pre[0] * streams[c];
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t c = 0; c < n_embd; c++)
            x[c] += pre[i] * streams[(size_t)i * n_embd + c];
    exact_tidy_all(x, n_embd);
}

/* Channels of all streams that are read before they are written. */
#define CHUNK 64

void hyper_write(float *streams, const float *post, const float *c, const float *y, uint32_t n,
                 uint32_t n_embd) {
    float was[HYPER_STREAMS_MAX][CHUNK];
    BUG_ON(n > HYPER_STREAMS_MAX);
    for (uint32_t at = 0; at < n_embd; at += CHUNK) {
        const uint32_t width = MIN(n_embd - at, (uint32_t)CHUNK);
        for (uint32_t i = 0; i < n; i++)
            memcpy(was[i], streams + (size_t)i * n_embd + at, width * sizeof(float));
        for (uint32_t j = 0; j < n; j++) {
            float *s = streams + (size_t)j * n_embd + at;
            for (uint32_t e = 0; e < width; e++)
                s[e] = post[j] * y[at + e];
            for (uint32_t i = 0; i < n; i++)
                for (uint32_t e = 0; e < width; e++)
                    s[e] += c[i * n + j] * was[i][e];
            exact_tidy_all(s, width);
        }
    }
}
