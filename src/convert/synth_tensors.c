/* synth_tensors.c: which tensors a shape has, as real files of the architecture have them. */
#include "base/mem.h"
#include "convert/synth_parts.h"

#include <stdio.h>

/* ---- what a list is made of -------------------------------------------------------- */

static struct synth_tensor *add(struct synth_plan *p) {
    if (!mem_reserve(&p->tensors, &p->capacity, p->n + 1, sizeof *p->tensors)) {
        p->failed = true;
        return NULL;
    }
    p->tensors[p->n] = (struct synth_tensor){0};
    return &p->tensors[p->n++];
}

/* layer < 0: a tensor of the whole model. dims: innermost first, 0 beyond the last. */
static void add_tensor(struct synth_plan *p, int layer, const char *name, enum synth_role role,
                       enum qtype type, uint64_t d0, uint64_t d1, uint64_t d2) {
    struct synth_tensor *t = add(p);
    if (!t)
        return;
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s", name);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s", layer, name);
    t->role = role;
    t->dims[0] = d0;
    t->dims[1] = d1;
    t->dims[2] = d2;
    t->n_dims = d2 ? 3 : d1 ? 2 : 1;
    t->type = type;
}

static void add_matrix(struct synth_plan *p, int layer, const char *name, uint64_t n_in,
                       uint64_t n_out) {
    add_tensor(p, layer, name, ROLE_WEIGHT, qtype_for_row(p->type, n_in), n_in, n_out, 0);
}

static void add_experts(struct synth_plan *p, int layer, const char *name, uint64_t n_in,
                        uint64_t n_out, uint64_t n) {
    add_tensor(p, layer, name, ROLE_WEIGHT, qtype_for_row(p->type, n_in), n_in, n_out, n);
}

static void add_f32(struct synth_plan *p, int layer, const char *name, enum synth_role role,
                    uint64_t d0, uint64_t d1) {
    add_tensor(p, layer, name, role, QT_F32, d0, d1, 0);
}

static void add_norm(struct synth_plan *p, int layer, const char *name, uint64_t n) {
    add_f32(p, layer, name, ROLE_NORM, n, 0);
}

static void add_bias(struct synth_plan *p, int layer, const char *name, uint64_t n) {
    add_f32(p, layer, name, ROLE_BIAS, n, 0);
}

/* ---- attention --------------------------------------------------------------------- */

static void add_attn_gate(struct synth_plan *p, int layer, uint64_t n_heads, uint64_t v_dim) {
    const struct synth_shape *s = p->shape;
    if (s->gate == SYNTH_GATE_HEADS)
        add_matrix(p, layer, "attn_gate.weight", s->n_embd, n_heads);
    if (s->gate == SYNTH_GATE_VALUES)
        add_matrix(p, layer, "attn_gate.weight", s->n_embd, n_heads * v_dim);
}

static void add_attention(struct synth_plan *p, int layer) {
    const struct synth_shape *s = p->shape;
    const bool windowed = synth_layer(s, (uint32_t)layer) == 'W';
    const uint64_t n_heads = synth_layer_heads(s, (uint32_t)layer);
    const uint64_t dim = synth_layer_head_dim(s, (uint32_t)layer);
    const uint64_t n_q = n_heads * dim, n_kv = synth_layer_kv_heads(s, (uint32_t)layer) * dim;
    add_matrix(p, layer, "attn_q.weight", s->n_embd,
               s->gate == SYNTH_GATE_IN_Q ? 2 * n_q : n_q);
    add_matrix(p, layer, "attn_k.weight", s->n_embd, n_kv);
    if (!s->v_is_k || windowed)
        add_matrix(p, layer, "attn_v.weight", s->n_embd, n_kv);
    if (s->qkv_bias) {
        add_bias(p, layer, "attn_q.bias", n_q);
        add_bias(p, layer, "attn_k.bias", n_kv);
        add_bias(p, layer, "attn_v.bias", n_kv);
    }
    if (s->qk_norm) {
        add_norm(p, layer, "attn_q_norm.weight", dim);
        add_norm(p, layer, "attn_k_norm.weight", dim);
    }
    add_attn_gate(p, layer, n_heads, dim);
    add_matrix(p, layer, "attn_output.weight", n_q, s->n_embd);
    if (s->sinks) {
        add_bias(p, layer, "attn_output.bias", s->n_embd);
        add_bias(p, layer, "attn_sinks.weight", s->n_heads);
    }
}

/* Latent attention, with the up-projection of the latent split into K and V as today's
 * converters write it. */
static void add_latent_attention(struct synth_plan *p, int layer) {
    const struct synth_shape *s = p->shape;
    const struct synth_mla *m = &s->mla;
    uint64_t n_q = (uint64_t)s->n_heads * s->head_dim;
    if (m->q_rank) {
        add_matrix(p, layer, "attn_q_a.weight", s->n_embd, m->q_rank);
        add_norm(p, layer, "attn_q_a_norm.weight", m->q_rank);
        add_matrix(p, layer, "attn_q_b.weight", m->q_rank, n_q);
    } else {
        add_matrix(p, layer, "attn_q.weight", s->n_embd, n_q);
    }
    add_matrix(p, layer, "attn_kv_a_mqa.weight", s->n_embd, m->kv_rank + m->rope_dim);
    add_norm(p, layer, "attn_kv_a_norm.weight", m->kv_rank);
    add_experts(p, layer, "attn_k_b.weight", s->head_dim - m->rope_dim, m->kv_rank, s->n_heads);
    add_experts(p, layer, "attn_v_b.weight", m->kv_rank, m->v_dim, s->n_heads);
    add_attn_gate(p, layer, s->n_heads, m->v_dim);
    add_matrix(p, layer, "attn_output.weight", (uint64_t)s->n_heads * m->v_dim, s->n_embd);
}

static void add_indexer(struct synth_plan *p, int layer) {
    const struct synth_indexer *x = &p->shape->indexer;
    const uint64_t n_embd = p->shape->n_embd, n_q = (uint64_t)x->n_heads * x->k_dim;
    if (x->block) {
        add_matrix(p, layer, "indexer.q_proj.weight", n_embd, n_q);
        add_matrix(p, layer, "indexer.k_proj.weight", n_embd, x->k_dim);
        add_norm(p, layer, "indexer.q_norm.weight", x->k_dim);
        add_norm(p, layer, "indexer.k_norm.weight", x->k_dim);
        return;
    }
    add_norm(p, layer, "indexer.k_norm.weight", x->k_dim);
    add_bias(p, layer, "indexer.k_norm.bias", x->k_dim);
    add_matrix(p, layer, "indexer.proj.weight", n_embd, x->n_heads);
    add_matrix(p, layer, "indexer.attn_k.weight", n_embd, x->k_dim);
    add_matrix(p, layer, "indexer.attn_q_b.weight", p->shape->mla.q_rank, n_q);
}

static bool has_indexer(const struct synth_shape *s, uint32_t layer) {
    const struct synth_indexer *x = &s->indexer;
    if (x->top_k == 0 || s->compressed.n_groups || (x->block && layer < s->experts.n_dense))
        return false;
    return !x->shares || layer < 2 || (layer - 2) % 4 == 0;
}

/* ---- DeepSeek V4 -------------------------------------------------------------------- */

/* Keys of blocks of 4 overlap: they are made of two halves. */
static void add_compressor(struct synth_plan *p, int layer, const char *prefix, uint64_t dim,
                           uint64_t ratio) {
    const uint64_t width = ratio == 4 ? 2 * dim : dim;
    char name[64];
    snprintf(name, sizeof name, "%s_compressor_kv.weight", prefix);
    add_matrix(p, layer, name, p->shape->n_embd, width);
    snprintf(name, sizeof name, "%s_compressor_gate.weight", prefix);
    add_matrix(p, layer, name, p->shape->n_embd, width);
    snprintf(name, sizeof name, "%s_compressor_ape.weight", prefix);
    add_f32(p, layer, name, ROLE_BIAS, width, ratio);
    snprintf(name, sizeof name, "%s_compressor_norm.weight", prefix);
    add_norm(p, layer, name, dim);
}

static void add_compressed_attention(struct synth_plan *p, int layer) {
    const struct synth_shape *s = p->shape;
    const struct synth_compressed *c = &s->compressed;
    const uint64_t n_q = (uint64_t)s->n_heads * s->head_dim,
                   ratio = synth_layer_ratio(s, (uint32_t)layer);
    add_bias(p, layer, "attn_sinks.weight", s->n_heads);
    add_matrix(p, layer, "attn_q_a.weight", s->n_embd, c->q_rank);
    add_norm(p, layer, "attn_q_a_norm.weight", c->q_rank);
    add_matrix(p, layer, "attn_q_b.weight", c->q_rank, n_q);
    add_matrix(p, layer, "attn_kv.weight", s->n_embd, s->head_dim);
    add_norm(p, layer, "attn_kv_a_norm.weight", s->head_dim);
    add_matrix(p, layer, "attn_output_a.weight", n_q / c->n_groups,
               (uint64_t)c->n_groups * c->o_rank);
    add_matrix(p, layer, "attn_output_b.weight", (uint64_t)c->n_groups * c->o_rank, s->n_embd);
    if (ratio)
        add_compressor(p, layer, "attn", s->head_dim, ratio);
    if (ratio != 4)
        return;
    add_matrix(p, layer, "indexer.proj.weight", s->n_embd, s->indexer.n_heads);
    add_matrix(p, layer, "indexer.attn_q_b.weight", c->q_rank,
               (uint64_t)s->indexer.n_heads * s->indexer.k_dim);
    add_compressor(p, layer, "indexer", s->indexer.k_dim, ratio);
}

/* n coefficients of each half layer, or of the end, for the streams. */
static void add_hyper(struct synth_plan *p, int layer, const char *prefix, uint64_t n,
                      uint64_t n_scales) {
    char name[64];
    snprintf(name, sizeof name, "%s_fn.weight", prefix);
    add_f32(p, layer, name, ROLE_WEIGHT,
            (uint64_t)p->shape->compressed.n_streams * p->shape->n_embd, n);
    snprintf(name, sizeof name, "%s_scale.weight", prefix);
    add_norm(p, layer, name, n_scales);
    snprintf(name, sizeof name, "%s_base.weight", prefix);
    add_bias(p, layer, name, n);
}

/* ---- recurrent layers -------------------------------------------------------------- */

static void add_delta_net(struct synth_plan *p, int layer) {
    const struct synth_recurrent *r = &p->shape->recurrent;
    const uint64_t e = p->shape->n_embd, inner = (uint64_t)r->n_heads * r->v_dim;
    const uint64_t channels = 2 * (uint64_t)r->n_groups * r->k_dim + inner;
    add_matrix(p, layer, "attn_qkv.weight", e, channels);
    add_matrix(p, layer, "attn_gate.weight", e, inner);
    add_f32(p, layer, "ssm_conv1d.weight", ROLE_WEIGHT, r->n_taps, channels);
    add_bias(p, layer, "ssm_dt.bias", r->n_heads);
    add_f32(p, layer, "ssm_a", ROLE_DECAY, r->n_heads, 0);
    if (r->joint_gates) {
        add_matrix(p, layer, "ssm_ba.weight", e, 2 * r->n_heads);
    } else {
        add_matrix(p, layer, "ssm_beta.weight", e, r->n_heads);
        add_matrix(p, layer, "ssm_alpha.weight", e, r->n_heads);
    }
    add_norm(p, layer, "ssm_norm.weight", r->v_dim);
    add_matrix(p, layer, "ssm_out.weight", inner, e);
}

static void add_kda(struct synth_plan *p, int layer) {
    const struct synth_recurrent *r = &p->shape->recurrent;
    const uint64_t e = p->shape->n_embd, dim = r->k_dim, all = r->n_heads * dim;
    static const char *const of[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "attn_%s.weight", of[i]);
        add_matrix(p, layer, name, e, all);
        snprintf(name, sizeof name, "ssm_conv1d_%s.weight", of[i]);
        add_tensor(p, layer, name, ROLE_WEIGHT, QT_F32, r->n_taps, 1, all);
    }
    add_matrix(p, layer, "ssm_f_a.weight", e, dim);
    add_matrix(p, layer, "ssm_f_b.weight", dim, all);
    add_matrix(p, layer, "ssm_beta.weight", e, r->n_heads);
    if (r->whole_gate) {
        add_f32(p, layer, "ssm_a", ROLE_DECAY, r->n_heads, 0);
        add_matrix(p, layer, "ssm_g.weight", e, all);
    } else {
        add_f32(p, layer, "ssm_a", ROLE_DECAY, 1, r->n_heads);
        add_matrix(p, layer, "ssm_g_a.weight", e, dim);
        add_matrix(p, layer, "ssm_g_b.weight", dim, all);
    }
    add_bias(p, layer, "ssm_dt.bias", all);
    add_norm(p, layer, "ssm_norm.weight", dim);
    add_matrix(p, layer, "attn_output.weight", all, e);
}

static void add_mamba2(struct synth_plan *p, int layer) {
    const struct synth_recurrent *r = &p->shape->recurrent;
    const uint64_t e = p->shape->n_embd, inner = (uint64_t)r->n_heads * r->v_dim;
    const uint64_t channels = inner + 2 * (uint64_t)r->n_groups * r->k_dim;
    add_matrix(p, layer, "ssm_in.weight", e, inner + channels + r->n_heads);
    add_f32(p, layer, "ssm_conv1d.weight", ROLE_WEIGHT, r->n_taps, channels);
    add_bias(p, layer, "ssm_conv1d.bias", channels);
    add_bias(p, layer, "ssm_dt.bias", r->n_heads);
    add_f32(p, layer, "ssm_a", ROLE_DECAY, 1, r->n_heads);
    add_f32(p, layer, "ssm_d", ROLE_NORM, 1, r->n_heads);
    add_f32(p, layer, "ssm_norm.weight", ROLE_NORM, inner / r->n_groups, r->n_groups);
    add_matrix(p, layer, "ssm_out.weight", inner, e);
}

static void add_short_conv(struct synth_plan *p, int layer) {
    const uint64_t e = p->shape->n_embd;
    add_matrix(p, layer, "shortconv.in_proj.weight", e, 3 * e);
    add_f32(p, layer, "shortconv.conv.weight", ROLE_WEIGHT, p->shape->recurrent.n_taps, e);
    add_matrix(p, layer, "shortconv.out_proj.weight", e, e);
}

static void add_recurrent(struct synth_plan *p, int layer) {
    switch (p->shape->recurrent.kind) {
    case SYNTH_NOT_RECURRENT:
        break;
    case SYNTH_DELTA:
        add_delta_net(p, layer);
        break;
    case SYNTH_KDA:
        add_kda(p, layer);
        break;
    case SYNTH_MAMBA2:
        add_mamba2(p, layer);
        break;
    case SYNTH_SHORT_CONV:
        add_short_conv(p, layer);
        break;
    }
}

/* ---- FFNs -------------------------------------------------------------------------- */

static void add_dense_ffn(struct synth_plan *p, int layer) {
    const struct synth_shape *s = p->shape;
    if (!s->relu2)
        add_matrix(p, layer, "ffn_gate.weight", s->n_embd, s->n_ff);
    add_matrix(p, layer, "ffn_up.weight", s->n_embd, s->n_ff);
    add_matrix(p, layer, "ffn_down.weight", s->n_ff, s->n_embd);
}

static void add_expert_biases(struct synth_plan *p, int layer) {
    const struct synth_experts *e = &p->shape->experts;
    add_bias(p, layer, "ffn_gate_inp.bias", e->n);
    add_f32(p, layer, "ffn_gate_exps.bias", ROLE_BIAS, e->n_ff, e->n);
    add_f32(p, layer, "ffn_up_exps.bias", ROLE_BIAS, e->n_ff, e->n);
    add_f32(p, layer, "ffn_down_exps.bias", ROLE_BIAS, p->shape->n_embd, e->n);
}

static void add_expert_matrices(struct synth_plan *p, int layer) {
    const struct synth_shape *s = p->shape;
    const struct synth_experts *e = &s->experts;
    const uint64_t width = e->n_latent ? e->n_latent : s->n_embd;
    if (e->beside_dense) {
        add_experts(p, layer, "ffn_gate_up_exps.weight", width, 2 * (uint64_t)e->n_ff, e->n);
    } else {
        if (!s->relu2)
            add_experts(p, layer, "ffn_gate_exps.weight", width, e->n_ff, e->n);
        add_experts(p, layer, "ffn_up_exps.weight", width, e->n_ff, e->n);
    }
    add_experts(p, layer, "ffn_down_exps.weight", e->n_ff, width, e->n);
}

/* What stands around experts in a latent space. Kimi K3's has a norm. */
static void add_latent(struct synth_plan *p, int layer) {
    const struct synth_shape *s = p->shape;
    char name[64];
    snprintf(name, sizeof name, "ffn_%s_down.weight", s->experts.latent_name);
    add_matrix(p, layer, name, s->n_embd, s->experts.n_latent);
    snprintf(name, sizeof name, "ffn_%s_norm.weight", s->experts.latent_name);
    if (s->depth_mix)
        add_norm(p, layer, name, s->experts.n_latent);
    snprintf(name, sizeof name, "ffn_%s_up.weight", s->experts.latent_name);
    add_matrix(p, layer, name, s->experts.n_latent, s->n_embd);
}

static void add_shared_expert(struct synth_plan *p, int layer) {
    const struct synth_shape *s = p->shape;
    const struct synth_experts *e = &s->experts;
    uint64_t n_ff = e->n_ff_shared ? e->n_ff_shared : (uint64_t)e->n_shared * e->n_ff;
    if (e->shared_router)
        add_f32(p, layer, "ffn_gate_inp_shexp.weight", ROLE_WEIGHT, s->n_embd, 0);
    if (n_ff == 0)
        return;
    if (!s->relu2)
        add_matrix(p, layer, "ffn_gate_shexp.weight", s->n_embd, n_ff);
    add_matrix(p, layer, "ffn_up_shexp.weight", s->n_embd, n_ff);
    add_matrix(p, layer, "ffn_down_shexp.weight", n_ff, s->n_embd);
}

static void add_expert_ffn(struct synth_plan *p, int layer) {
    const struct synth_shape *s = p->shape;
    const struct synth_experts *e = &s->experts;
    add_f32(p, layer, "ffn_gate_inp.weight", ROLE_WEIGHT, s->n_embd, e->n);
    if ((uint32_t)layer < e->n_hash)
        add_tensor(p, layer, "ffn_gate_tid2eid.weight", ROLE_EXPERTS, QT_I32, e->n_used,
                   synth_vocab_size(s->vocab), 0);
    else if (e->bias)
        add_bias(p, layer, "exp_probs_b.bias", e->n);
    add_expert_matrices(p, layer);
    if (s->sinks)
        add_expert_biases(p, layer);
    if (e->n_latent)
        add_latent(p, layer);
    if (e->beside_dense) {
        add_norm(p, layer, "ffn_gate_inp.scale", s->n_embd);
        add_norm(p, layer, "ffn_down_exps.scale", e->n);
        add_norm(p, layer, "pre_ffw_norm_2.weight", s->n_embd);
        add_norm(p, layer, "post_ffw_norm_1.weight", s->n_embd);
        add_norm(p, layer, "post_ffw_norm_2.weight", s->n_embd);
    }
    add_shared_expert(p, layer);
}

static void add_ffn(struct synth_plan *p, int layer) {
    const struct synth_experts *e = &p->shape->experts;
    const uint32_t l = (uint32_t)layer;
    const bool moe = e->n && l >= e->n_dense && (e->period == 0 || (l + 1) % e->period == 0);
    if (moe)
        add_expert_ffn(p, layer);
    if (!moe || e->beside_dense)
        add_dense_ffn(p, layer);
}

/* ---- the whole --------------------------------------------------------------------- */

static void add_ffn_norms(struct synth_plan *p, int layer) {
    const struct synth_shape *s = p->shape;
    if (s->norm_after_attn || s->post_norms)
        add_norm(p, layer, "post_attention_norm.weight", s->n_embd);
    if (!s->norm_after_attn)
        add_norm(p, layer, "ffn_norm.weight", s->n_embd);
    if (s->post_norms) {
        add_norm(p, layer, "post_ffw_norm.weight", s->n_embd);
        add_norm(p, layer, "layer_output_scale.weight", 1);
    }
}

static void add_layer(struct synth_plan *p, int layer) {
    const struct synth_shape *s = p->shape;
    const char letter = synth_layer(s, (uint32_t)layer);
    add_norm(p, layer, "attn_norm.weight", s->n_embd);
    if (s->depth_mix) {
        add_f32(p, layer, "attn_res_score.weight", ROLE_WEIGHT, s->n_embd, 0);
        add_f32(p, layer, "ffn_res_score.weight", ROLE_WEIGHT, s->n_embd, 0);
    }
    const uint64_t n_streams = s->compressed.n_streams;
    if (n_streams) {
        add_hyper(p, layer, "hc_attn", n_streams * (n_streams + 2), 3);
        add_hyper(p, layer, "hc_ffn", n_streams * (n_streams + 2), 3);
    }
    if (s->compressed.n_groups)
        add_compressed_attention(p, layer);
    else if (synth_layer_is_recurrent(letter))
        add_recurrent(p, layer);
    else if (synth_layer_has_attention(letter) && s->mla.kv_rank)
        add_latent_attention(p, layer);
    else if (synth_layer_has_attention(letter))
        add_attention(p, layer);
    if (synth_layer_has_attention(letter) && has_indexer(s, (uint32_t)layer))
        add_indexer(p, layer);
    if (!synth_layer_has_ffn(letter))
        return;
    if (letter != 'f')
        add_ffn_norms(p, layer);
    add_ffn(p, layer);
}

void synth_list_tensors(struct synth_plan *p) {
    const struct synth_shape *s = p->shape;
    uint64_t n_vocab = synth_vocab_size(s->vocab);
    add_matrix(p, -1, "token_embd.weight", s->n_embd, n_vocab);
    if (s->factors.factor > 0 || s->factors.n_turning)
        add_f32(p, -1, "rope_freqs.weight", ROLE_FACTORS, s->head_dim / 2, 0);
    for (uint32_t i = 0; i < p->n_layers; i++)
        add_layer(p, (int)i);
    if (s->compressed.n_streams)
        add_hyper(p, -1, "output_hc", s->compressed.n_streams, 1);
    if (s->depth_mix)
        add_f32(p, -1, "output_res_score.weight", ROLE_WEIGHT, s->n_embd, 0);
    add_norm(p, -1, s->embd_norm ? "token_embd_norm.weight" : "output_norm.weight", s->n_embd);
    if (!s->tied)
        add_matrix(p, -1, "output.weight", s->n_embd, n_vocab);
}
