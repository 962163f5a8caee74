/* synth_keys.c: the keys of a shape, as real files of the architecture have them. */
#include "convert/synth_parts.h"

#include <stdio.h>

struct keys {
    struct gguf_writer *w;
    const struct synth_shape *shape;
    uint32_t n_layers;
};

static const char *arch_key(const struct keys *k, const char *name, char buf[128]) {
    snprintf(buf, 128, "%s.%s", k->shape->arch, name);
    return buf;
}

static void put_u32(const struct keys *k, const char *name, uint32_t v) {
    char key[128];
    gguf_write_u32(k->w, arch_key(k, name, key), v);
}

static void put_f32(const struct keys *k, const char *name, float v) {
    char key[128];
    gguf_write_f32(k->w, arch_key(k, name, key), v);
}

static void put_bool(const struct keys *k, const char *name, bool v) {
    char key[128];
    gguf_write_bool(k->w, arch_key(k, name, key), v);
}

/* ---- by layer ---------------------------------------------------------------------- */

#define LAYERS_MAX 1024

static uint32_t kv_heads_or_0(const struct synth_shape *s, uint32_t layer) {
    if (!synth_layer_has_attention(synth_layer(s, layer)))
        return 0;
    return s->mla.kv_rank ? 1 : synth_layer_kv_heads(s, layer);
}

static uint32_t n_ff_or_0(const struct synth_shape *s, uint32_t layer) {
    return synth_layer_has_ffn(synth_layer(s, layer)) ? s->n_ff : 0;
}

static uint32_t has_window(const struct synth_shape *s, uint32_t layer) {
    return synth_layer(s, layer) == 'W';
}

/* One number for each layer. */
static void put_array(const struct keys *k, const char *name,
                      uint32_t (*of)(const struct synth_shape *, uint32_t)) {
    int32_t v[LAYERS_MAX];
    char key[128];
    uint32_t n = 0;
    for (; n < k->n_layers && n < LAYERS_MAX; n++)
        v[n] = (int32_t)of(k->shape, n);
    gguf_write_i32_array(k->w, arch_key(k, name, key), v, n);
}

static bool has_ffn_alone(const struct synth_shape *s) {
    for (uint32_t l = 0; l < s->n_layers; l++)
        if (synth_layer(s, l) == 'f')
            return true;
    return false;
}

/* ---- parts ------------------------------------------------------------------------- */

static void put_expert_keys(const struct keys *k) {
    const struct synth_experts *e = &k->shape->experts;
    put_u32(k, "expert_count", e->n);
    put_u32(k, "expert_used_count", e->n_used);
    put_u32(k, "expert_feed_forward_length", e->n_ff);
    if (e->n_shared)
        put_u32(k, "expert_shared_count", e->n_shared);
    if (e->n_ff_shared)
        put_u32(k, "expert_shared_feed_forward_length", e->n_ff_shared);
    if (e->n_dense)
        put_u32(k, "leading_dense_block_count", e->n_dense);
    if (e->n_hash)
        put_u32(k, "hash_layer_count", e->n_hash);
    if (e->period)
        put_u32(k, "interleave_moe_layer_step", e->period);
    if (e->n_groups) {
        put_u32(k, "expert_group_count", e->n_groups);
        put_u32(k, "expert_group_used_count", e->n_groups_used);
    }
    if (e->n_latent)
        put_u32(k, e->latent_key, e->n_latent);
    if (e->weights_scale > 0)
        put_f32(k, "expert_weights_scale", e->weights_scale);
    if (e->gating) {
        put_u32(k, "expert_gating_func", e->gating);
        put_bool(k, "expert_weights_norm", e->weights_norm);
    }
}

static void put_heads(const struct keys *k) {
    const struct synth_shape *s = k->shape;
    if (s->windowed.n_heads)
        put_array(k, "attention.head_count", synth_layer_heads);
    else
        put_u32(k, "attention.head_count", s->n_heads);
    if (s->kv_heads_array)
        put_array(k, "attention.head_count_kv", kv_heads_or_0);
    else
        put_u32(k, "attention.head_count_kv", s->mla.kv_rank ? 1 : s->n_kv_heads);
}

static void put_windowed(const struct keys *k) {
    const struct synth_windowed *w = &k->shape->windowed;
    put_u32(k, "attention.sliding_window", w->size);
    if (w->head_dim) {
        put_u32(k, "attention.key_length_swa", w->head_dim);
        put_u32(k, "attention.value_length_swa", w->head_dim);
        put_u32(k, "rope.dimension_count_swa", w->head_dim);
    }
    if (w->rope_base > 0) {
        put_f32(k, "rope.freq_base_swa", w->rope_base);
        put_array(k, "attention.sliding_window_pattern", has_window);
    }
}

static void put_attention_keys(const struct keys *k) {
    const struct synth_shape *s = k->shape;
    const struct synth_mla *m = &s->mla;
    put_heads(k);
    put_f32(k, "attention.layer_norm_rms_epsilon", s->rms_eps);
    put_u32(k, "attention.key_length", m->kv_rank ? m->kv_rank + m->rope_dim : s->head_dim);
    put_u32(k, "attention.value_length", m->kv_rank ? m->kv_rank : s->head_dim);
    put_u32(k, "rope.dimension_count",
            m->kv_rank ? m->rope_dim
            : s->n_rot ? s->n_rot
                       : s->head_dim);
    put_f32(k, "rope.freq_base", s->rope_base);
    if (m->kv_rank) {
        put_u32(k, "attention.kv_lora_rank", m->kv_rank);
        put_u32(k, "attention.key_length_mla", s->head_dim);
        put_u32(k, "attention.value_length_mla", m->v_dim);
    }
    if (m->q_rank)
        put_u32(k, "attention.q_lora_rank", m->q_rank);
    if (s->windowed.size)
        put_windowed(k);
}

static void put_indexer_keys(const struct keys *k) {
    const struct synth_indexer *x = &k->shape->indexer;
    put_u32(k, "attention.indexer.head_count", x->n_heads);
    put_u32(k, "attention.indexer.key_length", x->k_dim);
    put_u32(k, "attention.indexer.top_k", x->top_k);
    if (x->block) {
        put_u32(k, "attention.indexer.block_size", x->block);
        put_u32(k, "attention.indexer.local_blocks", x->n_local);
    }
}

static void put_recurrent_keys(const struct keys *k) {
    const struct synth_recurrent *r = &k->shape->recurrent;
    if (r->kind == SYNTH_SHORT_CONV) {
        put_u32(k, "shortconv.l_cache", r->n_taps);
        return;
    }
    put_u32(k, "ssm.conv_kernel", r->n_taps);
    if (r->kind == SYNTH_KDA) {
        put_u32(k, "kda.head_dim", r->k_dim);
        return;
    }
    put_u32(k, "ssm.state_size", r->k_dim);
    put_u32(k, "ssm.group_count", r->n_groups);
    put_u32(k, "ssm.time_step_rank", r->n_heads);
    put_u32(k, "ssm.inner_size", r->n_heads * r->v_dim);
}

static void put_compressed_keys(const struct keys *k) {
    const struct synth_compressed *c = &k->shape->compressed;
    put_u32(k, "attention.q_lora_rank", c->q_rank);
    put_u32(k, "attention.output_lora_rank", c->o_rank);
    put_u32(k, "attention.output_group_count", c->n_groups);
    put_array(k, "attention.compress_ratios", synth_layer_ratio);
    put_f32(k, "attention.compress_rope_freq_base", c->rope_base);
    put_u32(k, "hyper_connection.count", c->n_streams);
    put_u32(k, "hyper_connection.sinkhorn_iterations", c->n_iterations);
}

static void put_yarn_keys(const struct keys *k) {
    const struct synth_yarn *y = &k->shape->yarn;
    char key[128];
    gguf_write_str(k->w, arch_key(k, "rope.scaling.type", key), "yarn");
    put_f32(k, "rope.scaling.factor", y->factor);
    put_u32(k, "rope.scaling.original_context_length", y->n_ctx_orig);
    if (y->log_multiplier > 0)
        put_f32(k, "rope.scaling.yarn_log_multiplier", y->log_multiplier);
}

static void put_own_keys(const struct keys *k) {
    for (const struct synth_key *own = k->shape->keys; own->name; own++) {
        if (own->type == SYNTH_U32)
            put_u32(k, own->name, (uint32_t)own->value);
        else if (own->type == SYNTH_F32)
            put_f32(k, own->name, (float)own->value);
        else
            put_bool(k, own->name, own->value != 0);
    }
}

/* ---- the whole --------------------------------------------------------------------- */

static void put_sizes(const struct keys *k) {
    const struct synth_shape *s = k->shape;
    put_u32(k, "vocab_size", synth_vocab_size(s->vocab));
    put_u32(k, "context_length", s->n_ctx);
    put_u32(k, "embedding_length", s->n_embd);
    put_u32(k, "block_count", k->n_layers);
    if (has_ffn_alone(s))
        put_array(k, "feed_forward_length", n_ff_or_0);
    else if (s->n_ff)
        put_u32(k, "feed_forward_length", s->n_ff);
}

void synth_write_keys(const struct synth_plan *p, struct gguf_writer *w) {
    const struct synth_shape *s = p->shape;
    const struct keys k = {w, s, p->n_layers};
    char title[128];
    snprintf(title, sizeof title, "%s shape, random weights", s->title);
    gguf_write_str(w, "general.architecture", s->arch);
    gguf_write_str(w, "general.name", title);
    gguf_write_u32(w, "general.file_type", gguf_file_type(p->type));
    gguf_write_u32(w, "general.quantization_version", 2);
    put_sizes(&k);
    put_attention_keys(&k);
    if (s->yarn.factor > 0)
        put_yarn_keys(&k);
    if (s->experts.n)
        put_expert_keys(&k);
    if (s->indexer.top_k)
        put_indexer_keys(&k);
    if (s->recurrent.kind)
        put_recurrent_keys(&k);
    if (s->compressed.n_groups)
        put_compressed_keys(&k);
    put_own_keys(&k);
}
