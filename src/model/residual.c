/* residual.c: The residual stream between the products of a step. Sums come out of fixed point
 * and through the norms behind a block. Then they are normed and packed for the next block. In
 * a sharded step each rank does this for its own tokens. */
#include "model/on_device.h"

#include "base/prefetch.h"
#include "shaders/definition.h"

#include <math.h>

void forward_norm(const struct model *m, float *y, const float *x, const float *w) {
    const uint32_t e = m->hp->n_embd;
    if (m->hp->arch->layer_norm) {
        center(y, x, e);
        x = y;
    }
    m->k->rmsnorm(y, x, w, e, m->hp->rms_eps);
}

/* What a block's summed acc does to the residual stream. */
struct result {
    const float *norm; /* [n_embd] of what is in acc, before m->beside is added; NULL: none */
    const float *post_norm; /* [n_embd]; NULL: none */
    const float *scale;     /* [1], of the stream after it; NULL: none */
    bool laurel;            /* then the mean of it and streams.laurel, times sqrt(2) */
};

static struct result result_of_layer(const struct layer_weights *lw) {
    return (struct result){
        .norm = lw->moe_post_norm, .post_norm = lw->ffn_post_norm, .scale = lw->out_scale};
}

static void add_result(const struct forward_pass *r, uint32_t t, const struct result *res) {
    const struct model *m = r->m;
    uint32_t e = m->hp->n_embd;
    float *x = r->x + (size_t)t * e, *y = m->normed + (size_t)t * e;
    const int64_t *acc = r->acc + (size_t)t * m->ld_acc;
    if (res->post_norm == NULL && m->hp->residual_scale == 1.0f) {
        m->k->fixed_add(x, acc, e);
    } else {
        m->k->fixed_get(y, acc, e);
        if (res->norm != NULL) {
            m->k->rmsnorm(y, y, res->norm, e, m->hp->rms_eps);
            m->k->add(y, m->beside + (size_t)(r->first + t) * e, e);
        }
        if (res->post_norm != NULL)
            m->k->rmsnorm(y, y, res->post_norm, e, m->hp->rms_eps);
        forward_scale(y, e, m->hp->residual_scale);
        m->k->add(x, y, e);
    }
    if (res->scale != NULL)
        forward_scale(x, e, *res->scale);
    if (res->laurel) {
        m->k->add(x, m->streams.laurel + (size_t)(r->first + t) * e, e);
        forward_scale(x, e, 1.0f / sqrtf(2.0f));
    }
}

/* Of this rank's tokens, on the device. */
static void record_result(const struct forward_pass *r, const struct result *res) {
    const struct model *m = r->m;
    struct shaders *s = m->shaders;
    const uint32_t e = m->hp->n_embd, first = r->mine.begin, n = r->mine.n;
    const struct rows x = {r->x + (size_t)first * e, e}, y = {m->normed + (size_t)first * e, e};
    const int64_t *acc = r->acc + (size_t)first * m->ld_acc;
    const size_t of_step = (size_t)(r->first + first) * e;
    if (res->post_norm == NULL && m->hp->residual_scale == 1.0f) {
        shaders_fixed_add(s, x, acc, m->ld_acc, e, n);
    } else {
        shaders_fixed_get(s, y, acc, m->ld_acc, e, n);
        if (res->norm != NULL) {
            shaders_rmsnorm(s, y, y, res->norm, e, n, m->hp->rms_eps);
            shaders_add(s, y, (struct rows){m->beside + of_step, e}, e, n);
        }
        if (res->post_norm != NULL)
            shaders_rmsnorm(s, y, y, res->post_norm, e, n, m->hp->rms_eps);
        shaders_scale(s, y, m->hp->residual_scale, e, n);
        shaders_add(s, x, y, e, n);
    }
    if (res->scale != NULL)
        shaders_scale(s, x, *res->scale, e, n);
    if (res->laurel) {
        shaders_add(s, x, (struct rows){m->streams.laurel + of_step, e}, e, n);
        shaders_scale(s, x, 1.0f / sqrtf(2.0f), e, n);
    }
}

/* norm_pack() without a mixture, and packing, on the device. */
static void record_norm(const struct forward_pass *r, const struct result *res,
                        const float *w) {
    const struct model *m = r->m;
    const uint32_t e = m->hp->n_embd;
    const size_t at = (size_t)r->mine.begin * e;
    const struct rows x = {r->x + at, e}, y = {m->normed + at, e};
    if (res != NULL)
        record_result(r, res);
    if (w != NULL)
        device_record_norm(m, y, x, w, r->mine.n);
    else
        shaders_copy(m->shaders, y.p, e * sizeof *y.p, x.p, e * sizeof *x.p, e * sizeof *x.p,
                     r->mine.n);
}

static uint32_t x_blocks(const struct model *m) {
    return (uint32_t)div_up(m->x_act.f32.n_cols, ACT_BLOCK);
}

/* What a half layer reads in place of x, of a model that mixes over depth. */
struct mixture {
    const float *score; /* NULL: it reads x */
    uint32_t layer;     /* of the model */
    bool begins;        /* the layer, before which x may be kept */
};

static void mix(const struct forward_pass *r, size_t t, const struct mixture *mixed) {
    const struct model *m = r->m;
    const uint32_t e = m->hp->n_embd, layer = mixed->layer + !mixed->begins;
    depth_mix_token(m, m->normed + t * e, r->x + t * e, r->first + t,
                    hparams_n_kept(m->hp, layer), mixed->score);
    if (mixed->begins)
        depth_keep(m, r->x + t * e, r->first + t, layer);
}

/* For this rank's tokens: x takes in the result in acc (NULL: none), then normed =
 * rmsnorm(x, or the mixture) * w (w NULL: x), packed for the next products. */
static void norm_pack(struct forward_pass *r, struct pool *pool, const struct result *res,
                      const struct mixture *mixed, const float *w) {
    struct model *m = r->m;
    const struct tokens mine = r->mine;
    const bool alone = r->step->n_tokens == 1;
    const struct acts packed = forward_acts_part(&m->x_act, mine.begin, mine.n);
    uint32_t e = m->hp->n_embd;
    size_t begin, end;
    if (on_device(r) && mixed->score == NULL) {
        if (mine.n != 0 && device_records(pool))
            record_norm(r, res, w);
        pool_barrier(pool);
        forward_pack(r, pool, &packed, m->normed + (size_t)mine.begin * e, e);
        return;
    }
    forward_host(r, pool);
    while (pool_claim(pool, mine.n, 1, &begin, &end))
        for (size_t t = mine.begin + begin; t < mine.begin + end; t++) {
            if (res != NULL && alone)
                prefetch_read(r->acc + t * m->ld_acc, e * sizeof *r->acc);
            if (alone)
                forward_own_blocks(&m->x_act, 0, x_blocks(m));
            if (res != NULL)
                add_result(r, (uint32_t)t, res);
            if (mixed->score != NULL)
                mix(r, t, mixed);
            const float *x = mixed->score != NULL ? m->normed + t * e : r->x + t * e;
            if (w != NULL)
                forward_norm(m, m->normed + t * e, x, w);
            else
                memcpy(m->normed + t * e, r->x + t * e, e * sizeof *r->x);
            if (alone) /* not worth a barrier */
                forward_pack_group(m, &m->x_act, m->normed, e, 0);
        }
    pool_barrier(pool);
    if (alone)
        return;
    forward_pack(r, pool, &packed, m->normed + (size_t)mine.begin * e, e);
}

/* For this rank's tokens: x takes in the result in acc. */
static void take_result(struct forward_pass *r, struct pool *pool, const struct result *res) {
    const struct tokens mine = r->mine;
    size_t begin, end;
    if (on_device(r)) {
        if (mine.n != 0 && device_records(pool))
            record_result(r, res);
        pool_barrier(pool);
        return;
    }
    while (pool_claim(pool, mine.n, 1, &begin, &end))
        for (size_t t = mine.begin + begin; t < mine.begin + end; t++)
            add_result(r, (uint32_t)t, res);
    pool_barrier(pool);
}

void residual_end_layer(struct forward_pass *r, struct pool *pool,
                        const struct layer_weights *lw) {
    const bool has_input = lw->input.gate.n_rows != 0;
    if (lw->attn_hyper.scale != NULL) {
        hyper_take(r, pool);
        return;
    }
    struct result res = result_of_layer(lw);
    if (has_input)
        res.scale = NULL; /* comes last */
    take_result(r, pool, &res);
    if (r->m->hp->n_streams != 0)
        streams_correct(r, pool, lw);
    if (has_input)
        layer_input_add(r, pool, lw);
}

/* What attention reads is kept for the FFN, since another part of the step may come between. */
static void keep_beside(struct forward_pass *r, struct pool *pool) {
    struct model *m = r->m;
    const struct tokens mine = r->mine;
    const uint32_t e = m->hp->n_embd;
    size_t begin, end;
    if (on_device(r)) {
        if (mine.n != 0 && device_records(pool))
            shaders_copy(m->shaders, m->beside + (size_t)(r->first + mine.begin) * e,
                         e * sizeof *m->beside, m->normed + (size_t)mine.begin * e,
                         e * sizeof *m->normed, e * sizeof *m->normed, mine.n);
        pool_barrier(pool);
        return;
    }
    while (pool_claim(pool, mine.n, 1, &begin, &end))
        for (size_t t = mine.begin + begin; t < mine.begin + end; t++)
            memcpy(m->beside + (r->first + t) * e, m->normed + t * e, e * sizeof *m->beside);
    pool_barrier(pool);
}

static void pack_beside(struct forward_pass *r, struct pool *pool) {
    struct model *m = r->m;
    const struct tokens mine = r->mine;
    const uint32_t e = m->hp->n_embd;
    const struct acts x = forward_acts_part(&m->x_act, mine.begin, mine.n);
    forward_pack(r, pool, &x, m->beside + (size_t)(r->first + mine.begin) * e, e);
}

void residual_begin_layer(struct forward_pass *r, struct pool *pool, uint32_t layer,
                          const float *norm) {
    const struct layer_weights *lw = &r->m->w.layers[layer];
    const bool several = r->m->hp->n_streams != 0;
    struct result res = {0};
    bool add = layer != 0;
    if (lw->attn_hyper.scale != NULL) {
        if (add)
            hyper_take(r, pool);
        hyper_half(r, pool, &lw->attn_hyper, norm);
        return;
    }
    if (add)
        res = result_of_layer(lw - 1);
    if (add && lw[-1].input.gate.n_rows != 0) {
        residual_end_layer(r, pool, lw - 1);
        add = false;
    }
    if (several)
        streams_predict(r, pool, lw);
    const struct mixture mixed = {lw->attn_score, r->m->share->layer_begin + layer, true};
    norm_pack(r, pool, add ? &res : NULL, &mixed, norm);
    if (r->m->hp->parallel_blocks)
        keep_beside(r, pool);
    if (several)
        streams_laurel(r, pool, lw);
}

void residual_after_mixer(struct forward_pass *r, struct pool *pool,
                          const struct layer_weights *lw) {
    const struct result res = {.post_norm = lw->attn_post_norm,
                               .laurel = r->m->hp->n_streams != 0};
    const uint32_t layer = r->m->share->layer_begin + (uint32_t)(lw - r->m->w.layers);
    if (lw->ffn_hyper.scale != NULL) {
        hyper_take(r, pool);
        hyper_half(r, pool, &lw->ffn_hyper, lw->ffn_norm);
        return;
    }
    if (r->m->hp->parallel_blocks) {
        take_result(r, pool, &res);
        pack_beside(r, pool);
        return;
    }
    norm_pack(r, pool, &res, &(struct mixture){lw->ffn_score, layer, false}, lw->ffn_norm);
}

/* On the device. */
static void record_beside(const struct forward_pass *r, const struct layer_weights *lw) {
    const struct model *m = r->m;
    struct shaders *s = m->shaders;
    const uint32_t e = m->hp->n_embd, first = r->mine.begin, n = r->mine.n;
    const float eps = m->hp->rms_eps;
    const struct rows y = {m->beside + (size_t)(r->first + first) * e, e},
                      in = {m->router_in + (size_t)first * e, e},
                      x = {r->x + (size_t)first * e, e};
    shaders_fixed_get(s, y, r->acc + (size_t)first * m->ld_acc, m->ld_acc, e, n);
    shaders_rmsnorm(s, y, y, lw->dense_post_norm, e, n, eps);
    shaders_rmsnorm(s, in, x, lw->moe->router_scale, e, n, eps);
    shaders_scale(s, in, 1.0f / sqrtf((float)e), e, n);
}

void residual_set_beside(struct forward_pass *r, struct pool *pool,
                         const struct layer_weights *lw) {
    struct model *m = r->m;
    const struct tokens mine = r->mine;
    const uint32_t e = m->hp->n_embd;
    size_t begin, end;
    if (on_device(r) && mine.n != 0 && device_records(pool))
        record_beside(r, lw);
    while (!on_device(r) && pool_claim(pool, mine.n, 1, &begin, &end))
        for (size_t t = mine.begin + begin; t < mine.begin + end; t++) {
            float *y = m->beside + (r->first + t) * e, *in = m->router_in + t * e;
            m->k->fixed_get(y, r->acc + t * m->ld_acc, e);
            m->k->rmsnorm(y, y, lw->dense_post_norm, e, m->hp->rms_eps);
            m->k->rmsnorm(in, r->x + t * e, lw->moe->router_scale, e, m->hp->rms_eps);
            forward_scale(in, e, 1.0f / sqrtf((float)e));
        }
    pool_barrier(pool);
    const struct acts in = forward_acts_part(&m->router_act, mine.begin, mine.n);
    forward_pack(r, pool, &in, m->router_in + (size_t)mine.begin * e, e);
    norm_pack(r, pool, NULL, &(struct mixture){0}, lw->moe_norm);
}
