/* activation.c: plain loops of single IEEE operations between two calls of the exact exp. The
 * compiler may vectorize them, which changes no bit. */
#include "kernels/activation.h"

#include "base/exact.h"
#include "base/util.h"

#include <math.h>

#define CHUNK 256
#define OAI_ALPHA 1.702f
#define OAI_LIMIT 7.0f
#define SQRT_2_OVER_PI 0.79788456080286535588f

static void swiglu_oai(const struct kernels *k, float *gate, float *up, size_t n) {
    float e[CHUNK] = {0}; /* n >= 1, but the compiler cannot know */
    for (size_t i = 0; i < n; i++) {
        gate[i] = gate[i] < OAI_LIMIT ? gate[i] : OAI_LIMIT;
        up[i] = up[i] < OAI_LIMIT ? up[i] : OAI_LIMIT;
        up[i] = up[i] > -OAI_LIMIT ? up[i] : -OAI_LIMIT;
        e[i] = -OAI_ALPHA * gate[i];
    }
    k->exp(e, e, n);
    for (size_t i = 0; i < n; i++)
        gate[i] = exact_tidy(gate[i] / (1.0f + e[i]) * (up[i] + 1.0f));
}

static void swiglu_limited(const struct kernels *k, float *gate, const float *up, float limit,
                           size_t n) {
    float e[CHUNK] = {0};
    for (size_t i = 0; i < n; i++)
        e[i] = -gate[i];
    k->exp(e, e, n);
    for (size_t i = 0; i < n; i++) {
        float g = gate[i] / (1.0f + e[i]), u = up[i];
        g = g > limit ? limit : g; /* NaN stays */
        u = u > limit ? limit : u;
        u = u < -limit ? -limit : u;
        gate[i] = exact_tidy(g * u);
    }
}

static void clamp_halves(float *gate, float *up, float limit, size_t n) {
    for (size_t i = 0; i < n; i++) { /* NaN stays */
        gate[i] = gate[i] > limit ? limit : gate[i];
        up[i] = up[i] > limit ? limit : up[i];
        up[i] = up[i] < -limit ? -limit : up[i];
    }
}

static void geglu(const struct kernels *k, float *gate, const float *up, size_t n) {
    float e[CHUNK] = {0};
    for (size_t i = 0; i < n; i++) {
        float g = gate[i];
        e[i] = 2.0f * (SQRT_2_OVER_PI * (g + 0.044715f * (g * g * g)));
    }
    k->exp(e, e, n);
    for (size_t i = 0; i < n; i++)
        gate[i] = exact_tidy(0.5f * gate[i] * (2.0f - 2.0f / (e[i] + 1.0f)) * up[i]);
}

static void situ_glu(const struct kernels *k, struct situ_params situ, float *gate, float *up,
                     size_t n) {
    float e[CHUNK] = {0};
    for (size_t i = 0; i < n; i++)
        e[i] = -gate[i];
    k->exp(e, e, n);
    k->softcap(gate, situ.gate, n);
    k->softcap(up, situ.up, n);
    for (size_t i = 0; i < n; i++)
        gate[i] = exact_tidy(gate[i] / (1.0f + e[i]) * up[i]);
}

static void relu2(float *gate, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float g = gate[i] < 0.0f ? 0.0f : gate[i]; /* NaN stays */
        gate[i] = exact_tidy(g * g);
    }
}

void ffn_activate(const struct kernels *k, enum ffn_act act, struct situ_params situ,
                  float limit, float *gate, float *up, size_t n) {
    if (act == FFN_SWIGLU_CLAMPED && limit != 0.0f)
        clamp_halves(gate, up, limit, n);
    if (act == FFN_SWIGLU_CLAMPED || (act == FFN_SWIGLU && limit == 0.0f)) {
        k->swiglu(gate, gate, up, n);
        return;
    }
    if (act == FFN_RELU2) {
        relu2(gate, n);
        return;
    }
    for (size_t at = 0; at < n; at += CHUNK) {
        size_t part = MIN(n - at, (size_t)CHUNK);
        if (act == FFN_SWIGLU_OAI)
            swiglu_oai(k, gate + at, up + at, part);
        else if (act == FFN_SITU)
            situ_glu(k, situ, gate + at, up + at, part);
        else if (act == FFN_SWIGLU)
            swiglu_limited(k, gate + at, up + at, limit, part);
        else
            geglu(k, gate + at, up + at, part);
    }
}

void sigmoids(const struct kernels *k, float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = -x[i];
    k->exp(x, x, n);
    for (size_t i = 0; i < n; i++)
        x[i] = exact_tidy(1.0f / (1.0f + x[i]));
}

void softmax(const struct kernels *k, float *x, size_t n) {
    float m = -INFINITY, sum = 0.0f;
    for (size_t i = 0; i < n; i++)
        m = x[i] > m ? x[i] : m;
    for (size_t i = 0; i < n; i++)
        x[i] -= m;
    k->exp(x, x, n);
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    for (size_t i = 0; i < n; i++)
        x[i] = exact_tidy(x[i] / sum);
}
