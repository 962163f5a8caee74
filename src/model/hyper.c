/* hyper.c: residual streams that are mixed around every half layer (model/stream_mix.h).
 *
 *   begin   every stream is the token's embedding
 *   half    coefficients pre, post, C from a product of all streams; the half layer reads
 *           rmsnorm(sum of pre_i s_i); then s_j = post_j * (what it gives) + sum of C_ij s_i
 *   end     x = sum of pre_i s_i
 *
 * All of it is of single tokens and whole on every rank; in a sharded step a rank does it for its
 * own tokens. The coefficients of a half layer stay in its token's row until it is over. */
#include "model/stream_mix.h"

#include "model/forward.h"

/* t: of the whole step */
static float *streams_of(const struct model *m, size_t t) {
    return m->streams.all + t * m->hp->n_streams * m->hp->n_embd;
}

static float *mix_of(const struct model *m, size_t t) {
    return m->hyper.mix + t * m->hyper.ld_mix;
}

static struct hyper_args args_of(const struct model *m, const struct hyper_weights *w) {
    return (struct hyper_args){.n = m->hp->n_streams,
                               .n_embd = m->hp->n_embd,
                               .n_iterations = m->hp->hyper.n_iterations,
                               .eps = m->hp->hyper.eps,
                               .rms_eps = m->hp->rms_eps,
                               .scale = w->scale,
                               .base = w->base};
}

void hyper_start(struct forward_pass *r, struct pool *pool) {
    struct model *m = r->m;
    const uint32_t e = m->hp->n_embd;
    size_t begin, end;
    while (pool_claim(pool, r->whole->n_tokens, 1, &begin, &end))
        for (size_t t = begin; t < end; t++)
            for (uint32_t i = 0; i < m->hp->n_streams; i++)
                memcpy(streams_of(m, t) + (size_t)i * e, m->x + t * e, e * sizeof *m->x);
    pool_barrier(pool);
}

/* What is in acc goes to the streams of this rank's tokens. */
void hyper_take(struct forward_pass *r, struct pool *pool) {
    struct model *m = r->m;
    const uint32_t e = m->hp->n_embd, n = m->hp->n_streams;
    const struct tokens mine = r->mine;
    size_t begin, end;
    while (pool_claim(pool, mine.n, 1, &begin, &end))
        for (size_t t = mine.begin + begin; t < mine.begin + end; t++) {
            const float *mix = mix_of(m, r->first + t);
            float *y = m->normed + t * e;
            m->k->fixed_get(y, r->acc + t * m->ld_acc, e);
            hyper_write(streams_of(m, r->first + t), mix + n, mix + 2 * (size_t)n, y, n, e);
        }
    pool_barrier(pool);
}

/* The products of n tokens' streams, from token `first` of the whole step on; a: theirs. */
static void multiply(struct forward_pass *r, struct pool *pool, const struct hyper_weights *w,
                     const struct acts *a, size_t first) {
    struct model *m = r->m;
    const struct product p = {&w->fn, a, mix_of(m, first), m->hyper.ld_mix};
    forward_pack(r, pool, a, streams_of(m, first), (size_t)m->hp->n_streams * m->hp->n_embd);
    forward_products(r, pool, &p, 1);
}

void hyper_half(struct forward_pass *r, struct pool *pool, const struct hyper_weights *w,
                const float *norm) {
    struct model *m = r->m;
    const struct hyper_args args = args_of(m, w);
    const struct tokens mine = r->mine;
    const uint32_t e = m->hp->n_embd;
    const struct acts flat = forward_acts_part(&m->hyper.act, mine.begin, mine.n);
    const struct acts x_act = forward_acts_part(&m->x_act, mine.begin, mine.n);
    size_t begin, end;
    if (mine.n == 0) /* the other ranks of the team have barriers of their own */
        return;
    multiply(r, pool, w, &flat, r->first + mine.begin);
    while (pool_claim(pool, mine.n, 1, &begin, &end))
        for (size_t t = mine.begin + begin; t < mine.begin + end; t++) {
            float *mix = mix_of(m, r->first + t), *x = m->normed + t * e;
            const float *streams = streams_of(m, r->first + t);
            hyper_begin(m->k, &args, streams, mix);
            hyper_read(x, mix, streams, args.n, e);
            m->k->rmsnorm(x, x, norm, e, m->hp->rms_eps);
        }
    pool_barrier(pool);
    forward_pack(r, pool, &x_act, m->normed + (size_t)mine.begin * e, e);
}

void hyper_join(struct forward_pass *r, struct pool *pool) {
    struct model *m = r->m;
    const struct hyper_args args = args_of(m, &m->w.hyper_end);
    const uint32_t n_tokens = r->whole->n_tokens, e = m->hp->n_embd;
    const struct acts flat = forward_acts_part(&m->hyper.act, 0, n_tokens);
    size_t begin, end;
    multiply(r, pool, &m->w.hyper_end, &flat, 0);
    while (pool_claim(pool, n_tokens, 1, &begin, &end))
        for (size_t t = begin; t < end; t++) {
            hyper_end(m->k, &args, streams_of(m, t), mix_of(m, t));
            hyper_read(m->x + t * e, mix_of(m, t), streams_of(m, t), args.n, e);
        }
    pool_barrier(pool);
}
