/* hyper.c: residual streams that are mixed around every half layer (model/stream_mix.h).
 *
 *   begin   every stream is the token's embedding
 *   half    coefficients pre, post, C from a product of all streams; the half layer reads
 *           rmsnorm(sum of pre_i s_i); then s_j = post_j * (what it gives) + sum of C_ij s_i
 *   end     x = sum of pre_i s_i
 *
 * All of it is of single tokens and whole on every rank; in a sharded step a rank does it for its
 * own tokens. The product is the sum of products of pieces of the streams, so that threads share
 * that of one token. The coefficients of a half layer stay in its token's row until it is over. */
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
    forward_host(r, pool);
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
    forward_host(r, pool);
    while (pool_claim(pool, mine.n, 1, &begin, &end))
        for (size_t t = mine.begin + begin; t < mine.begin + end; t++) {
            const float *mix = mix_of(m, r->first + t);
            float *y = m->normed + t * e;
            m->k->fixed_get(y, r->acc + t * m->ld_acc, e);
            hyper_write(streams_of(m, r->first + t), mix + n, mix + 2 * (size_t)n, y, n, e);
        }
    pool_barrier(pool);
}

/* Piece i's products of a microbatch, or of a step. */
static float *part_of(const struct model *m, uint32_t i) {
    return m->hyper.parts + (size_t)i * m->cfg.n_tokens_max * m->hyper.ld_mix;
}

/* The products of the streams of n tokens, from token `first` of the whole step on, by pieces of
 * their columns; sum_parts() adds these. */
static void multiply(struct forward_pass *r, struct pool *pool, const struct hyper_weights *w,
                     size_t first, uint32_t n) {
    struct model *m = r->m;
    const struct hyper_buffers *b = &m->hyper;
    const size_t ld = (size_t)m->hp->n_streams * m->hp->n_embd, n_groups = act_n_groups(n);
    const uint32_t n_tiles = wmat_n_tiles(&w->fn[0]);
    uint32_t n_cols;
    size_t begin, end;
    forward_host(r, pool);
    while (pool_claim(pool, b->n_pieces * n_groups, 1, &begin, &end))
        for (size_t i = begin; i < end; i++) {
            const uint32_t piece = (uint32_t)(i / n_groups);
            const struct acts a = forward_acts_part(&b->act[piece], 0, n);
            const float *x = streams_of(m, first) + hyper_piece(m->hp, piece, &n_cols);
            forward_pack_group(m, &a, x, ld, (uint32_t)(i % n_groups));
        }
    pool_barrier(pool);
    while (pool_claim(pool, (size_t)b->n_pieces * n_tiles, 1, &begin, &end))
        for (size_t i = begin; i < end; i++) {
            const uint32_t piece = (uint32_t)(i / n_tiles), tile = (uint32_t)(i % n_tiles);
            const struct acts a = forward_acts_part(&b->act[piece], 0, n);
            m->k->matmul(&w->fn[piece], &a.f32, part_of(m, piece), b->ld_mix, tile, tile + 1);
        }
    pool_barrier(pool);
}

/* Of the t-th token that was multiplied, in order of the pieces. */
static void sum_parts(const struct model *m, size_t t, float *mix) {
    for (uint32_t i = 0; i < m->hyper.n_pieces; i++) {
        const float *part = part_of(m, i) + t * m->hyper.ld_mix;
        for (size_t j = 0; j < m->hyper.ld_mix; j++)
            mix[j] = i == 0 ? part[j] : mix[j] + part[j];
    }
}

void hyper_half(struct forward_pass *r, struct pool *pool, const struct hyper_weights *w,
                const float *norm) {
    struct model *m = r->m;
    const struct hyper_args args = args_of(m, w);
    const struct tokens mine = r->mine;
    const uint32_t e = m->hp->n_embd;
    const struct acts x_act = forward_acts_part(&m->x_act, mine.begin, mine.n);
    size_t begin, end;
    if (mine.n == 0) /* the other ranks of the team have barriers of their own */
        return;
    multiply(r, pool, w, r->first + mine.begin, mine.n);
    while (pool_claim(pool, mine.n, 1, &begin, &end))
        for (size_t t = mine.begin + begin; t < mine.begin + end; t++) {
            float *mix = mix_of(m, r->first + t), *x = m->normed + t * e;
            const float *streams = streams_of(m, r->first + t);
            sum_parts(m, t - mine.begin, mix);
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
    size_t begin, end;
    multiply(r, pool, &m->w.hyper_end, 0, n_tokens);
    while (pool_claim(pool, n_tokens, 1, &begin, &end))
        for (size_t t = begin; t < end; t++) {
            sum_parts(m, t, mix_of(m, t));
            hyper_end(m->k, &args, streams_of(m, t), mix_of(m, t));
            hyper_read(m->x + t * e, mix_of(m, t), streams_of(m, t), args.n, e);
        }
    pool_barrier(pool);
}
