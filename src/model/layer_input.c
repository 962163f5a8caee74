/* layer_input.c: Inputs of their own for each layer (Gemma's per-layer embeddings).
 *
 * Before the layers, for a token with embedding x0 and each layer l of this stage:
 *   p_l = (embedding of the token for l * sqrt(width) + rmsnorm(W_l x0 / sqrt(n_embd))) / sqrt(2)
 * and at the end of layer l, with the residual stream x:
 *   x += rmsnorm(proj (act(gate x) * p_l)), then x *= layer_output_scale.
 * If there are several residual streams (streams.c), x is the first one times its scale, and the
 * result is added to the others.
 * The matrices are small and whole on every rank. The embeddings are large and read by rows.
 * Every stage makes its own layers' inputs from the tokens. */
#include "model/forward.h"

#include "kernels/activation.h"

#include <math.h>

/* x0 of all tokens of the step, packed. */
static void pack_embeddings(struct forward_pass *r, struct pool *pool, const struct acts *x) {
    struct model *m = r->m;
    const uint32_t e = m->hp->n_embd;
    size_t begin, end;
    forward_host(r, pool);
    while (pool_claim(pool, r->whole->n_tokens, 1, &begin, &end))
        for (size_t t = begin; t < end; t++) {
            weights_embed_row(&m->w, r->whole->tokens[t], m->normed + t * e);
            forward_scale(m->normed + t * e, e, m->hp->embed_scale);
        }
    pool_barrier(pool);
    forward_pack(r, pool, x, m->normed, e);
}

/* p_l of all layers of the stage of token t, in the place of W_l x0. */
static void finish_inputs(struct model *m, int32_t id, size_t t) {
    const struct layer_input_buffers *b = &m->input;
    const uint32_t n = m->hp->n_layer_input;
    const float *row = weights_input_row(&m->w, id, m->share->layer_begin * n,
                                         m->w.n_layers * n, b->rows + t * b->ld_rows);
    for (uint32_t l = 0; l < m->w.n_layers; l++, row += n) {
        float *p = b->all + t * b->ld_all + (size_t)l * n;
        forward_scale(p, n, 1.0f / sqrtf((float)m->hp->n_embd));
        m->k->rmsnorm(p, p, m->w.input_norm, n, m->hp->rms_eps);
        for (uint32_t i = 0; i < n; i++)
            p[i] = exact_tidy((row[i] * sqrtf((float)n) + p[i]) * (1.0f / sqrtf(2.0f)));
    }
}

void layer_inputs_forward(struct forward_pass *r, struct pool *pool) {
    struct model *m = r->m;
    const struct acts x = forward_acts_part(&m->x_act, 0, r->whole->n_tokens);
    const struct product proj = {&m->w.input_proj, &x, m->input.all, m->input.ld_all};
    size_t begin, end;
    pack_embeddings(r, pool, &x);
    forward_products(r, pool, &proj, 1);
    forward_host(r, pool);
    while (pool_claim(pool, r->whole->n_tokens, 1, &begin, &end))
        for (size_t t = begin; t < end; t++)
            finish_inputs(m, r->whole->tokens[t], t);
    pool_barrier(pool);
}

/* To the residual stream, or to all streams but the first, of a token of the microbatch. */
static void add_output(struct forward_pass *r, const struct layer_weights *lw, size_t t,
                       const float *y) {
    const struct model *m = r->m;
    const uint32_t e = m->hp->n_embd, n = m->hp->n_streams;
    float *x = r->x + t * e;
    for (uint32_t i = 1; i < n; i++)
        m->k->add(m->streams.all + ((r->first + t) * n + i) * e, y, e);
    if (n != 0)
        return;
    m->k->add(x, y, e);
    if (lw->out_scale != NULL)
        forward_scale(x, e, *lw->out_scale);
}

void layer_input_add(struct forward_pass *r, struct pool *pool,
                     const struct layer_weights *lw) {
    struct model *m = r->m;
    struct layer_input_buffers *b = &m->input;
    const struct tokens mine = r->mine;
    const uint32_t n = m->hp->n_layer_input, e = m->hp->n_embd;
    const size_t layer = (size_t)(lw - m->w.layers);
    const struct acts x = forward_acts_part(&m->x_act, mine.begin, mine.n);
    const struct acts mid_act = forward_acts_part(&b->mid_act, mine.begin, mine.n);
    float *mid = b->mid + mine.begin * b->ld_mid, *out = b->out + mine.begin * b->ld_out;
    const struct product gate = {&lw->input.gate, &x, mid, b->ld_mid};
    const struct product proj = {&lw->input.proj, &mid_act, out, b->ld_out};
    size_t begin, end;
    if (mine.n == 0) /* the other ranks of the team have barriers of their own */
        return;
    forward_pack(r, pool, &x, r->x + (size_t)mine.begin * e, e);
    forward_products(r, pool, &gate, 1);
    forward_host(r, pool);
    while (pool_claim(pool, mine.n, 1, &begin, &end))
        for (size_t t = begin; t < end; t++) {
            size_t of_step = r->first + mine.begin + t;
            ffn_activate(m->k, m->hp->ffn_act, m->hp->situ, 0, mid + t * b->ld_mid,
                         b->all + of_step * b->ld_all + layer * n, n);
        }
    pool_barrier(pool);
    forward_pack(r, pool, &mid_act, mid, b->ld_mid);
    forward_products(r, pool, &proj, 1);
    forward_host(r, pool);
    while (pool_claim(pool, mine.n, 1, &begin, &end))
        for (size_t t = begin; t < end; t++) {
            float *y = out + t * b->ld_out;
            m->k->rmsnorm(y, y, lw->input.post_norm, e, m->hp->rms_eps);
            add_output(r, lw, mine.begin + t, y);
        }
    pool_barrier(pool);
}
