/* streams.c: Several residual streams (Gemma 3n's AltUp, arXiv 2301.13310), of which the layers
 * compute the first, and LAuReL (arXiv 2411.07501), a low-rank part beside attention.
 *
 *   begin    s_0 = x0; s_i = P_i x0, as long as x0
 *   predict  m = tanh(R rmsnorm(s_0) / n_embd); s_i += sum over j of (A m)_ij s_j; x = s_0
 *   laurel   with the normed x: l = x + rmsnorm(W_r W_l x); x = (x + attention + l) / sqrt(2)
 *   correct  m of x; d = x - s_0; s_i += d * ((B m)_i + 1); x = s_0 * scale, for layer_input.c
 *   end      x = (s_0 + sum over i of U_i s_i, each as long as s_0) / n_streams
 *
 * All of it is of single tokens and whole on every rank. */
#include "model/forward.h"

#include "base/util.h"
#include "shaders/definition.h"

#include <math.h>

#define STREAMS_MAX 16

static float *streams_of(const struct model *m, size_t t) {
    return m->streams.all + t * m->hp->n_streams * m->hp->n_embd;
}

/* m of x; row [n_embd] is scratch. */
static void modalities(const struct model *m, const struct stream_weights *w, const float *x,
                       float *row, float *out) {
    const uint32_t e = m->hp->n_embd, n = m->hp->n_streams;
    float twice[STREAMS_MAX];
    m->k->rmsnorm(row, x, w->router_norm, e, m->hp->rms_eps);
    forward_scale(row, e, 1.0f / (float)e);
    for (uint32_t i = 0; i < n; i++)
        twice[i] = 2.0f * exact_dot(row, w->router + i * w->router_stride, e);
    m->k->exp(twice, twice, n);
    for (uint32_t i = 0; i < n; i++)
        out[i] = 1.0f - 2.0f / (twice[i] + 1.0f);
}

/* s *= length of `like` / length of s */
static void set_length(float *s, const float *like, uint32_t n) {
    const float own = lanes16_squares(s, n), wanted = lanes16_squares(like, n);
    forward_scale(s, n, own > 0.0f ? sqrtf(wanted) / sqrtf(own) : 0.0f);
}

void streams_begin(struct forward_pass *r, struct pool *pool) {
    struct model *m = r->m;
    struct stream_buffers *b = &m->streams;
    const uint32_t e = m->hp->n_embd, n_tokens = r->whole->n_tokens;
    const struct acts x = forward_acts_part(&m->x_act, 0, n_tokens);
    size_t begin, end;
    forward_pack(r, pool, &x, m->x, e);
    for (uint32_t i = 1; i < m->hp->n_streams; i++) {
        const struct product p = {&m->w.stream_in[i - 1], &x, b->square, b->ld_square};
        forward_products(r, pool, &p, 1);
        forward_host(r, pool);
        while (pool_claim(pool, n_tokens, 1, &begin, &end))
            for (size_t t = begin; t < end; t++) {
                float *s = streams_of(m, t);
                memcpy(s, m->x + t * e, e * sizeof *s);
                memcpy(s + (size_t)i * e, b->square + t * b->ld_square, e * sizeof *s);
                set_length(s + (size_t)i * e, s, e);
            }
        pool_barrier(pool);
    }
}

void streams_end(struct forward_pass *r, struct pool *pool) {
    struct model *m = r->m;
    struct stream_buffers *b = &m->streams;
    const uint32_t e = m->hp->n_embd, n = m->hp->n_streams, n_tokens = r->whole->n_tokens;
    const struct acts x = forward_acts_part(&m->x_act, 0, n_tokens);
    size_t begin, end;
    for (uint32_t i = 1; i < n; i++) {
        const struct product p = {&m->w.stream_out[i - 1], &x, b->square, b->ld_square};
        forward_pack(r, pool, &x, b->all + (size_t)i * e, (size_t)n * e);
        forward_products(r, pool, &p, 1);
        forward_host(r, pool);
        while (pool_claim(pool, n_tokens, 1, &begin, &end))
            for (size_t t = begin; t < end; t++) {
                const float *s = streams_of(m, t);
                float *sum = m->x + t * e, *y = b->square + t * b->ld_square;
                if (i == 1)
                    memcpy(sum, s, e * sizeof *sum);
                set_length(y, s, e);
                m->k->add(sum, y, e);
                if (i + 1 == n)
                    forward_scale(sum, e, 1.0f / (float)n);
            }
        pool_barrier(pool);
    }
}

/* s_i of token t of the step; x [n_embd]: the first. */
static void predict(const struct model *m, const struct stream_weights *w, size_t t, float *x,
                    float *row) {
    const uint32_t e = m->hp->n_embd, n = m->hp->n_streams;
    float *s = streams_of(m, t), of_m[STREAMS_MAX], coef[STREAMS_MAX * STREAMS_MAX];
    modalities(m, w, s, row, of_m);
    for (uint32_t i = 0; i < n * n; i++)
        coef[i] = exact_tidy(exact_dot(w->predict + (size_t)i * n, of_m, n));
    for (uint32_t c = 0; c < e; c++) {
        float was[STREAMS_MAX];
        for (uint32_t j = 0; j < n; j++)
            was[j] = s[(size_t)j * e + c];
        for (uint32_t i = 0; i < n; i++) {
            float sum = 0.0f;
            for (uint32_t j = 0; j < n; j++)
                sum = fmaf(coef[i * n + j], was[j], sum);
            s[(size_t)i * e + c] = exact_tidy(was[i] + sum);
        }
    }
    memcpy(x, s, e * sizeof *x);
}

/* Of a token t of the step: x is its row, row [n_embd] is scratch. */
typedef void token_fn(const struct model *m, const struct stream_weights *w, size_t t, float *x,
                      float *row);

static void each_of_mine(struct forward_pass *r, struct pool *pool,
                         const struct stream_weights *w, token_fn *fn) {
    struct model *m = r->m;
    const uint32_t e = m->hp->n_embd;
    size_t begin, end;
    forward_host(r, pool);
    while (pool_claim(pool, r->mine.n, 1, &begin, &end))
        for (size_t t = r->mine.begin + begin; t < r->mine.begin + end; t++)
            fn(m, w, r->first + t, r->x + t * e, m->normed + t * e);
    pool_barrier(pool);
}

void streams_predict(struct forward_pass *r, struct pool *pool,
                     const struct layer_weights *lw) {
    each_of_mine(r, pool, &lw->streams, predict);
}

void streams_laurel(struct forward_pass *r, struct pool *pool, const struct layer_weights *lw) {
    struct model *m = r->m;
    struct stream_buffers *b = &m->streams;
    const struct stream_weights *w = &lw->streams;
    const struct tokens mine = r->mine;
    const uint32_t e = m->hp->n_embd;
    const struct acts x = forward_acts_part(&m->x_act, mine.begin, mine.n);
    const struct acts low_act = forward_acts_part(&b->low_act, mine.begin, mine.n);
    float *low = b->low + mine.begin * b->ld_low, *out = b->square + mine.begin * b->ld_square;
    const struct product down = {&w->laurel_l, &x, low, b->ld_low};
    const struct product up = {&w->laurel_r, &low_act, out, b->ld_square};
    size_t begin, end;
    if (mine.n == 0)
        return;
    forward_products(r, pool, &down, 1);
    forward_pack(r, pool, &low_act, low, b->ld_low);
    forward_products(r, pool, &up, 1);
    forward_host(r, pool);
    while (pool_claim(pool, mine.n, 1, &begin, &end))
        for (size_t t = begin; t < end; t++) {
            float *l = b->laurel + (r->first + mine.begin + t) * e;
            m->k->rmsnorm(l, out + t * b->ld_square, w->laurel_norm, e, m->hp->rms_eps);
            m->k->add(l, m->normed + (mine.begin + t) * e, e);
        }
    pool_barrier(pool);
}

static void correct(const struct model *m, const struct stream_weights *w, size_t t, float *x,
                    float *row) {
    const uint32_t e = m->hp->n_embd, n = m->hp->n_streams;
    float *s = streams_of(m, t), of_m[STREAMS_MAX], coef[STREAMS_MAX];
    modalities(m, w, x, row, of_m);
    for (uint32_t i = 0; i < n; i++)
        coef[i] = exact_tidy(exact_dot(w->correct + (size_t)i * n, of_m, n) + 1.0f);
    for (uint32_t c = 0; c < e; c++)
        row[c] = exact_tidy(x[c] - s[c]);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t c = 0; c < e; c++)
            s[(size_t)i * e + c] = exact_tidy(fmaf(row[c], coef[i], s[(size_t)i * e + c]));
    for (uint32_t c = 0; c < e; c++)
        x[c] = exact_tidy(s[c] * w->correct_scale[c]);
}

void streams_correct(struct forward_pass *r, struct pool *pool,
                     const struct layer_weights *lw) {
    each_of_mine(r, pool, &lw->streams, correct);
}
