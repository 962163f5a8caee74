/* quantize_fit.c: the searches.
 *
 * Some steps are tried for a part. For each, least squares gives the best scale (and minimum) for
 * its quants, and the one with the least weighted error wins. In a superblock, the parts' scales
 * become integers times a common d. So the integers around them are tried too, with the quants that
 * they give, and d is fitted again to all quants, a few times over. */
#include "quant/quantize_fit.h"

#include "base/util.h"

uint16_t quant_store_scale(float *d, bool up) {
    uint16_t half = f32_to_f16(*d);
    if (*d == 0 || fabsf(*d) >= 0x1p-14f)
        return half;
    if (up ? fabsf(f16_to_f32(half)) < fabsf(*d) : f16_to_f32(half) == 0)
        half++; /* the next one away from zero */
    *d = f16_to_f32(half);
    return half;
}

float quant_extreme(const float *x, int n) {
    float best = 0;
    for (int i = 0; i < n; i++)
        best = fabsf(x[i]) > fabsf(best) ? x[i] : best;
    return best;
}

void quant_range(const float *x, int n, float *min, float *max) {
    *min = *max = x[0];
    for (int i = 1; i < n; i++) {
        *min = x[i] < *min ? x[i] : *min;
        *max = x[i] > *max ? x[i] : *max;
    }
}

/* ---- sums -------------------------------------------------------------------------- */

typedef float lanes __attribute__((vector_size(16)));
typedef int32_t int_lanes __attribute__((vector_size(16)));
#define N_LANES 4

static inline lanes load(const float *x) {
    lanes v;
    memcpy(&v, x, sizeof v);
    return v;
}

static inline lanes all(float x) {
    return (lanes){x, x, x, x};
}

static inline float add_lanes(lanes v) {
    return (v[0] + v[2]) + (v[1] + v[3]);
}

/* As nearest_between(). */
static inline lanes nearest_lanes(lanes x, float low, float high) {
    for (int k = 0; k < N_LANES; k++) {
        x[k] = x[k] > low ? x[k] : low;
        x[k] = x[k] < high ? x[k] : high;
    }
    return (x + 12582912.0f) - 12582912.0f;
}

/* The values of iq4_nl that are nearest: the first one, and what each next one adds to it. */
static inline lanes nearest_iq4(lanes x) {
    lanes value = all((float)quant_iq4_nl_values[0]);
    for (int i = 0; i < 15; i++) {
        float a = (float)quant_iq4_nl_values[i], b = (float)quant_iq4_nl_values[i + 1];
        value += (lanes)((x + x > a + b) & (int_lanes)all(b - a));
    }
    return value;
}

/* Of w times each. Without weights, w counts the values. */
struct sums {
    float w, x, q, qq, xq;
};

static void sum_values(const float *x, const float *w, int n, struct sums *s) {
    lanes sw = all(0), sx = all(0);
    for (int i = 0; i < n; i += N_LANES) {
        lanes wi = w ? load(w + i) : all(1);
        sw += wi;
        sx += wi * load(x + i);
    }
    s->w = add_lanes(sw);
    s->x = add_lanes(sx);
}

/* q, qq and xq with the quants nearest to id * x + offset. iq4: values of iq4_nl; else integers
 * from low to high. Inlined, so that a loop has no branches. */
static inline void sum_quants(const float *x, const float *w, int n, float id, float offset,
                              bool iq4, float low, float high, struct sums *s) {
    lanes sq = all(0), sqq = all(0), sxq = all(0);
    for (int i = 0; i < n; i += N_LANES) {
        lanes xi = load(x + i), scaled = id * xi + offset;
        lanes q = iq4 ? nearest_iq4(scaled) : nearest_lanes(scaled, low, high);
        lanes wq = w ? load(w + i) * q : q;
        sq += wq;
        sqq += wq * q;
        sxq += wq * xi;
    }
    s->q = add_lanes(sq);
    s->qq = add_lanes(sqq);
    s->xq = add_lanes(sxq);
}

static void sum_grid(const float *x, const float *w, int n, float id,
                     const struct quant_grid *g, struct sums *s) {
    float low = (float)g->low, high = -low - 1;
    if (g->iq4)
        sum_quants(x, w, n, id, 0, true, 0, 0, s);
    else if (w)
        sum_quants(x, w, n, id, 0, false, low, high, s);
    else
        sum_quants(x, NULL, n, id, 0, false, low, high, s);
}

static void sum_affine(const float *x, const float *w, int n, struct affine a, int high,
                       struct sums *s) {
    float id = inverse(a.scale);
    if (w)
        sum_quants(x, w, n, id, a.min * id, false, 0, (float)high, s);
    else
        sum_quants(x, NULL, n, id, a.min * id, false, 0, (float)high, s);
}

/* The weighted squared error, but for the constant sum of w x x. */
static float error_of(const struct sums *s, struct affine a) {
    return a.scale * (a.scale * s->qq - 2 * a.min * s->q - 2 * s->xq) +
           a.min * (a.min * s->w + 2 * s->x);
}

/* ---- one part ---------------------------------------------------------------------- */

#define STEPS 5 /* to each side */

struct best_scale {
    float d, gain;
};

/* For given quants the best d is sum(w x q) / sum(w q q), and the error falls with sum(w x q)^2
 * / sum(w q q). */
static void try_scale(const float *x, const float *w, int n, const struct quant_grid *g,
                      float id, struct best_scale *best) {
    struct sums s;
    sum_grid(x, w, n, id, g, &s);
    if (s.qq > 0 && s.xq * s.xq > best->gain * s.qq)
        *best = (struct best_scale){s.xq / s.qq, s.xq * s.xq / s.qq};
}

/* The extreme value is put near either end of the grid. */
float quant_fit_scale(const float *x, const float *w, int n, const struct quant_grid *g) {
    float max = quant_extreme(x, n), width = g->iq4 ? 4.0f : 0.2f;
    float low = (float)g->low, high = g->iq4 ? (float)quant_iq4_nl_values[15] : -low - 1;
    struct best_scale best = {0, 0};
    for (int step = -STEPS; step <= STEPS && fabsf(max) > 1e-30f; step++) {
        try_scale(x, w, n, g, (low + width * (float)step) / max, &best);
        try_scale(x, w, n, g, (high + width * (float)step) / max, &best);
    }
    return best.d;
}

/* Least squares for x = scale * q - min. */
static struct affine solve_affine(const struct sums *s, bool any_min) {
    struct affine a = {0, 0};
    float determinant = s->w * s->qq - s->q * s->q;
    if (determinant > 0) {
        a.scale = (s->w * s->xq - s->x * s->q) / determinant;
        a.min = (s->q * s->xq - s->qq * s->x) / determinant;
    }
    if (!(determinant > 0) || (a.min < 0 && !any_min)) {
        a.min = 0;
        a.scale = s->qq > 0 ? s->xq / s->qq : 0;
    }
    return a;
}

struct affine quant_fit_affine(const float *x, const float *w, int n, int high, bool any_min) {
    float min, max, best_error = INFINITY;
    struct sums s;
    quant_range(x, n, &min, &max);
    min = any_min ? min : MIN(min, 0);
    struct affine best = {0, -min};
    if (!(max - min > 1e-30f))
        return best;
    sum_values(x, w, n, &s);
    for (int step = -STEPS; step <= STEPS + 2; step++) {
        /* The last two begin with the best one so far. */
        struct affine a = {(max - min) / ((float)high + 0.2f * (float)step), -min};
        sum_affine(x, w, n, step > STEPS ? best : a, high, &s);
        a = solve_affine(&s, any_min);
        float error = error_of(&s, a);
        if (a.scale > 0 && error < best_error) {
            best = a;
            best_error = error;
        }
    }
    return best;
}

/* ---- superblocks ------------------------------------------------------------------- */

#define ROUNDS 3 /* of choosing integers for d, and d for integers */

/* Chooses the best integer near the part's scale. Returns the error; adds what d's least squares
 * need. */
static float choose_scale(const float *x, const float *w, int n, struct symmetric_parts *p,
                          int i, struct sums *of_d) {
    float d = f16_to_f32(p->d), best_error = INFINITY;
    struct sums best = {0};
    int scale = p->scale[i];
    for (int s = MAX(scale - 1, p->scale_low); s <= MIN(scale + 1, -p->scale_low - 1); s++) {
        struct affine a = {d * (float)s, 0};
        struct sums sums = {0};
        sum_grid(x, w, n, inverse(a.scale), &p->grid, &sums);
        float e = error_of(&sums, a);
        if (e < best_error) {
            best_error = e;
            best = sums;
            p->scale[i] = (int8_t)s;
        }
    }
    float s = (float)p->scale[i];
    of_d->qq += s * s * best.qq;
    of_d->xq += s * best.xq;
    return best_error;
}

static void start_symmetric(const float *x, const float *w, struct symmetric_parts *p) {
    float fit[16];
    int n = QK_K / p->n_parts;
    for (int i = 0; i < p->n_parts; i++)
        fit[i] = quant_fit_scale(x + n * i, w ? w + n * i : NULL, n, &p->grid);
    float d = quant_extreme(fit, p->n_parts) / (float)p->scale_low;
    p->d = quant_store_scale(&d, true);
    for (int i = 0; i < p->n_parts; i++)
        p->scale[i] =
            (int8_t)nearest_between(inverse(d) * fit[i], p->scale_low, -p->scale_low - 1);
}

void quant_fit_symmetric_parts(const float *x, const float *w, struct symmetric_parts *p) {
    float best_error = INFINITY;
    int n = QK_K / p->n_parts;
    start_symmetric(x, w, p);
    struct symmetric_parts best = *p;
    for (int round = 0; round < ROUNDS; round++) {
        struct sums of_d = {0};
        float error = 0;
        for (int i = 0; i < p->n_parts; i++)
            error += choose_scale(x + n * i, w ? w + n * i : NULL, n, p, i, &of_d);
        if (!(error < best_error))
            break;
        best_error = error;
        best = *p;
        float d = of_d.qq > 0 ? of_d.xq / of_d.qq : 0;
        p->d = quant_store_scale(&d, true);
    }
    *p = best;
}

/* Least squares for x = d * a - dmin * b, where a is scale * q and b is min. */
struct pair_sums {
    float aa, ab, bb, xa, xb; /* of w times each */
};

/* d and dmin, which is not negative. */
static void solve_pair(const struct pair_sums *s, float *d, float *dmin) {
    float determinant = s->aa * s->bb - s->ab * s->ab;
    *dmin = determinant > 0 ? (s->ab * s->xa - s->aa * s->xb) / determinant : 0;
    *d = determinant > 0 ? (s->bb * s->xa - s->ab * s->xb) / determinant : 0;
    if (!(determinant > 0) || *dmin < 0) {
        *dmin = 0;
        *d = s->aa > 0 ? s->xa / s->aa : 0;
    }
}

static void add_pair(struct pair_sums *to, const struct sums *s, float scale, float min) {
    to->aa += scale * scale * s->qq;
    to->ab += scale * min * s->q;
    to->bb += min * min * s->w;
    to->xa += scale * s->xq;
    to->xb += min * s->x;
}

/* Chooses the best pair near the part's. The best min for the quants of a pair counts. */
static float choose_pair(const float *x, const float *w, int n, struct affine_parts *p, int i,
                         struct pair_sums *of_d) {
    float d = f16_to_f32(p->d), dmin = f16_to_f32(p->dmin), best_error = INFINITY;
    struct sums sums, best = {0};
    int scale = p->scale[i], min = p->min[i];
    sum_values(x, w, n, &sums);
    for (int k = 0; k < 9; k++) {
        int s = scale + k / 3 - 1, m = min + k % 3 - 1;
        if (s < 0 || s > p->levels || m < 0 || m > p->levels)
            continue;
        struct affine a = {d * (float)s, dmin * (float)m};
        sum_affine(x, w, n, a, p->high, &sums);
        m = nearest_between((a.scale * sums.q - sums.x) / sums.w * inverse(dmin), 0, p->levels);
        a.min = dmin * (float)m;
        float error = error_of(&sums, a);
        if (error < best_error) {
            best_error = error;
            best = sums;
            p->scale[i] = (uint8_t)s;
            p->min[i] = (uint8_t)m;
        }
    }
    add_pair(of_d, &best, (float)p->scale[i], (float)p->min[i]);
    return best_error;
}

static void start_affine(const float *x, const float *w, struct affine_parts *p) {
    struct affine fit[16];
    float max_scale = 0, max_min = 0;
    int n = QK_K / p->n_parts;
    for (int i = 0; i < p->n_parts; i++) {
        fit[i] = quant_fit_affine(x + n * i, w ? w + n * i : NULL, n, p->high, false);
        max_scale = MAX(max_scale, fit[i].scale);
        max_min = MAX(max_min, fit[i].min);
    }
    float d = max_scale / (float)p->levels, dmin = max_min / (float)p->levels;
    p->d = quant_store_scale(&d, true);
    p->dmin = quant_store_scale(&dmin, true);
    for (int i = 0; i < p->n_parts; i++) {
        p->scale[i] = (uint8_t)nearest_between(inverse(d) * fit[i].scale, 0, p->levels);
        p->min[i] = (uint8_t)nearest_between(inverse(dmin) * fit[i].min, 0, p->levels);
    }
}

void quant_fit_affine_parts(const float *x, const float *w, struct affine_parts *p) {
    float best_error = INFINITY;
    int n = QK_K / p->n_parts;
    start_affine(x, w, p);
    struct affine_parts best = *p;
    for (int round = 0; round < ROUNDS; round++) {
        struct pair_sums of_d = {0};
        float error = 0, d, dmin;
        for (int i = 0; i < p->n_parts; i++)
            error += choose_pair(x + n * i, w ? w + n * i : NULL, n, p, i, &of_d);
        if (!(error < best_error))
            break;
        best_error = error;
        best = *p;
        solve_pair(&of_d, &d, &dmin);
        p->d = quant_store_scale(&d, true);
        p->dmin = quant_store_scale(&dmin, true);
    }
    *p = best;
}
