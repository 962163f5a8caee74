/* synth.c: from a shape to a file: the keys and tensors that real files of the architecture
 * have, and their data, chunk by chunk, on a pool of threads. */
#include "convert/synth.h"

#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/util.h"
#include "convert/synth_parts.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

enum role {
    ROLE_WEIGHT, /* deviation 1/sqrt(columns), so that products keep the size of activations */
    ROLE_NORM,   /* near 1 */
    ROLE_BIAS,   /* small */
    ROLE_LLAMA3_FACTORS
};

struct tensor {
    char name[GGUF_NAME_MAX + 1];
    enum role role;
    enum qtype type;
    uint32_t n_dims;
    uint64_t dims[GGUF_MAX_DIMS];
};

struct synth_plan {
    const struct synth_shape *shape;
    enum qtype type; /* of the matrices */
    uint32_t n_layers;
    struct tensor *tensors; /* [n] */
    size_t n, capacity;
    bool failed; /* no memory */
};

/* ---- the list of tensors ----------------------------------------------------------- */

static struct tensor *add(struct synth_plan *p) {
    if (!mem_reserve(&p->tensors, &p->capacity, p->n + 1, sizeof *p->tensors)) {
        p->failed = true;
        return NULL;
    }
    p->tensors[p->n] = (struct tensor){0};
    return &p->tensors[p->n++];
}

/* layer < 0: a tensor of the whole model. dims: innermost first, 0 beyond the last. */
static void add_tensor(struct synth_plan *p, int layer, const char *name, enum role role,
                       enum qtype type, uint64_t d0, uint64_t d1, uint64_t d2) {
    struct tensor *t = add(p);
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

static void add_norm(struct synth_plan *p, int layer, const char *name, uint64_t n) {
    add_tensor(p, layer, name, ROLE_NORM, QT_F32, n, 0, 0);
}

static void add_bias(struct synth_plan *p, int layer, const char *name, uint64_t n) {
    add_tensor(p, layer, name, ROLE_BIAS, QT_F32, n, 0, 0);
}

static void add_attention(struct synth_plan *p, int layer) {
    const struct synth_shape *s = p->shape;
    uint64_t n_q = (uint64_t)s->n_heads * s->head_dim,
             n_kv = (uint64_t)s->n_kv_heads * s->head_dim;
    add_matrix(p, layer, "attn_q.weight", s->n_embd, n_q);
    add_matrix(p, layer, "attn_k.weight", s->n_embd, n_kv);
    add_matrix(p, layer, "attn_v.weight", s->n_embd, n_kv);
    if (s->qkv_bias) {
        add_bias(p, layer, "attn_q.bias", n_q);
        add_bias(p, layer, "attn_k.bias", n_kv);
        add_bias(p, layer, "attn_v.bias", n_kv);
    }
    if (s->qk_norm) {
        add_norm(p, layer, "attn_q_norm.weight", s->head_dim);
        add_norm(p, layer, "attn_k_norm.weight", s->head_dim);
    }
    add_matrix(p, layer, "attn_output.weight", n_q, s->n_embd);
    if (s->sliding_window) {
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
    add_matrix(p, layer, "attn_output.weight", (uint64_t)s->n_heads * m->v_dim, s->n_embd);
}

static void add_dense_ffn(struct synth_plan *p, int layer) {
    const struct synth_shape *s = p->shape;
    add_matrix(p, layer, "ffn_gate.weight", s->n_embd, s->n_ff);
    add_matrix(p, layer, "ffn_up.weight", s->n_embd, s->n_ff);
    add_matrix(p, layer, "ffn_down.weight", s->n_ff, s->n_embd);
}

/* A bias of every expert: [n_experts][n]. */
static void add_expert_bias(struct synth_plan *p, int layer, const char *name, uint64_t n) {
    add_tensor(p, layer, name, ROLE_BIAS, QT_F32, n, p->shape->experts.n, 0);
}

static void add_expert_ffn(struct synth_plan *p, int layer) {
    const struct synth_shape *s = p->shape;
    const struct synth_experts *e = &s->experts;
    add_tensor(p, layer, "ffn_gate_inp.weight", ROLE_WEIGHT, QT_F32, s->n_embd, e->n, 0);
    if (e->bias)
        add_bias(p, layer, "exp_probs_b.bias", e->n);
    add_experts(p, layer, "ffn_gate_exps.weight", s->n_embd, e->n_ff, e->n);
    add_experts(p, layer, "ffn_up_exps.weight", s->n_embd, e->n_ff, e->n);
    add_experts(p, layer, "ffn_down_exps.weight", e->n_ff, s->n_embd, e->n);
    if (s->sliding_window) {
        add_bias(p, layer, "ffn_gate_inp.bias", e->n);
        add_expert_bias(p, layer, "ffn_gate_exps.bias", e->n_ff);
        add_expert_bias(p, layer, "ffn_up_exps.bias", e->n_ff);
        add_expert_bias(p, layer, "ffn_down_exps.bias", s->n_embd);
    }
    uint64_t n_ff = e->n_ff_shared ? e->n_ff_shared : (uint64_t)e->n_shared * e->n_ff;
    if (e->n_ff_shared)
        add_tensor(p, layer, "ffn_gate_inp_shexp.weight", ROLE_WEIGHT, QT_F32, s->n_embd, 0, 0);
    if (n_ff) {
        add_matrix(p, layer, "ffn_gate_shexp.weight", s->n_embd, n_ff);
        add_matrix(p, layer, "ffn_up_shexp.weight", s->n_embd, n_ff);
        add_matrix(p, layer, "ffn_down_shexp.weight", n_ff, s->n_embd);
    }
}

static void add_layer(struct synth_plan *p, int layer) {
    const struct synth_shape *s = p->shape;
    add_norm(p, layer, "attn_norm.weight", s->n_embd);
    if (s->mla.kv_rank)
        add_latent_attention(p, layer);
    else
        add_attention(p, layer);
    add_norm(p, layer, s->sliding_window ? "post_attention_norm.weight" : "ffn_norm.weight",
             s->n_embd);
    if (s->experts.n && (uint32_t)layer >= s->experts.n_dense)
        add_expert_ffn(p, layer);
    else
        add_dense_ffn(p, layer);
}

static void add_all(struct synth_plan *p) {
    const struct synth_shape *s = p->shape;
    uint64_t n_vocab = synth_vocab_size(s->vocab);
    add_matrix(p, -1, "token_embd.weight", s->n_embd, n_vocab);
    if (s->llama3_factor > 0)
        add_tensor(p, -1, "rope_freqs.weight", ROLE_LLAMA3_FACTORS, QT_F32, s->head_dim / 2, 0,
                   0);
    for (uint32_t i = 0; i < p->n_layers; i++)
        add_layer(p, (int)i);
    add_norm(p, -1, "output_norm.weight", s->n_embd);
    if (!s->tied)
        add_matrix(p, -1, "output.weight", s->n_embd, n_vocab);
}

static uint64_t n_values(const struct tensor *t) {
    uint64_t n = t->dims[0];
    for (uint32_t i = 1; i < t->n_dims; i++)
        n *= t->dims[i];
    return n;
}

static uint64_t n_blocks(const struct tensor *t) {
    return n_values(t) / qtype_info(t->type)->block_values;
}

uint64_t synth_shape_params(size_t i) {
    const struct synth_shape *shape = synth_shape_find(synth_shape_name(i));
    struct synth_plan p = {.shape = shape, .type = QT_F32, .n_layers = shape->n_layers};
    add_all(&p);
    uint64_t n = 0;
    for (size_t k = 0; k < p.n; k++)
        n += p.tensors[k].role == ROLE_LLAMA3_FACTORS ? 0 : n_values(&p.tensors[k]);
    mem_free(p.tensors);
    return n;
}

/* ---- keys -------------------------------------------------------------------------- */

struct keys {
    struct gguf_writer *w;
    const char *arch;
};

static const char *arch_key(const struct keys *k, const char *name, char buf[128]) {
    snprintf(buf, 128, "%s.%s", k->arch, name);
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

static void put_expert_keys(const struct keys *k, const struct synth_experts *e) {
    char key[128];
    put_u32(k, "expert_count", e->n);
    put_u32(k, "expert_used_count", e->n_used);
    put_u32(k, "expert_feed_forward_length", e->n_ff);
    if (e->n_shared)
        put_u32(k, "expert_shared_count", e->n_shared);
    if (e->n_ff_shared)
        put_u32(k, "expert_shared_feed_forward_length", e->n_ff_shared);
    if (e->n_dense)
        put_u32(k, "leading_dense_block_count", e->n_dense);
    if (e->n_groups) {
        put_u32(k, "expert_group_count", e->n_groups);
        put_u32(k, "expert_group_used_count", e->n_groups_used);
    }
    if (e->weights_scale > 0)
        put_f32(k, "expert_weights_scale", e->weights_scale);
    if (e->gating) {
        put_u32(k, "expert_gating_func", e->gating);
        gguf_write_bool(k->w, arch_key(k, "expert_weights_norm", key), e->weights_norm);
    }
}

static void put_attention_keys(const struct keys *k, const struct synth_shape *s) {
    const struct synth_mla *m = &s->mla;
    put_u32(k, "attention.head_count", s->n_heads);
    put_u32(k, "attention.head_count_kv", m->kv_rank ? 1 : s->n_kv_heads);
    put_f32(k, "attention.layer_norm_rms_epsilon", s->rms_eps);
    put_u32(k, "attention.key_length", m->kv_rank ? m->kv_rank + m->rope_dim : s->head_dim);
    put_u32(k, "attention.value_length", m->kv_rank ? m->kv_rank : s->head_dim);
    put_u32(k, "rope.dimension_count", m->kv_rank ? m->rope_dim : s->head_dim);
    put_f32(k, "rope.freq_base", s->rope_base);
    if (m->kv_rank) {
        put_u32(k, "attention.kv_lora_rank", m->kv_rank);
        put_u32(k, "attention.key_length_mla", s->head_dim);
        put_u32(k, "attention.value_length_mla", m->v_dim);
    }
    if (m->q_rank)
        put_u32(k, "attention.q_lora_rank", m->q_rank);
    if (s->sliding_window)
        put_u32(k, "attention.sliding_window", s->sliding_window);
}

static void put_yarn_keys(const struct keys *k, const struct synth_yarn *y) {
    char key[128];
    gguf_write_str(k->w, arch_key(k, "rope.scaling.type", key), "yarn");
    put_f32(k, "rope.scaling.factor", y->factor);
    put_u32(k, "rope.scaling.original_context_length", y->n_ctx_orig);
    if (y->log_multiplier > 0)
        put_f32(k, "rope.scaling.yarn_log_multiplier", y->log_multiplier);
}

static void put_keys(const struct synth_plan *p, struct gguf_writer *w) {
    const struct synth_shape *s = p->shape;
    const struct keys k = {w, s->arch};
    char title[128];
    snprintf(title, sizeof title, "%s shape, random weights", s->title);
    gguf_write_str(w, "general.architecture", s->arch);
    gguf_write_str(w, "general.name", title);
    gguf_write_u32(w, "general.file_type", gguf_file_type(p->type));
    gguf_write_u32(w, "general.quantization_version", 2);
    put_u32(&k, "vocab_size", synth_vocab_size(s->vocab));
    put_u32(&k, "context_length", s->n_ctx);
    put_u32(&k, "embedding_length", s->n_embd);
    put_u32(&k, "block_count", p->n_layers);
    put_u32(&k, "feed_forward_length", s->n_ff);
    put_attention_keys(&k, s);
    if (s->yarn.factor > 0)
        put_yarn_keys(&k, &s->yarn);
    if (s->experts.n)
        put_expert_keys(&k, &s->experts);
}

/* ---- data -------------------------------------------------------------------------- */

/* Llama 3.1's frequency scaling, as its converter stores it. Low frequencies are divided by the
 * factor, and high ones are kept. Between wavelengths of n/4 and n (n = 8192 positions) there
 * is a ramp. */
static void llama3_factors(const struct synth_shape *s, float *dst) {
    const double n_ctx_orig = 8192, low = 1, high = 4, factor = (double)s->llama3_factor;
    for (uint32_t i = 0; i < s->head_dim / 2; i++) {
        double wavelength = 2 * M_PI * pow((double)s->rope_base, 2.0 * i / s->head_dim);
        double ramp = (n_ctx_orig / wavelength - low) / (high - low);
        ramp = fmin(fmax(ramp, 0), 1);
        dst[i] = (float)(1 / ((1 - ramp) / factor + ramp));
    }
}

struct chunk {
    const struct synth_shape *shape;
    const struct tensor *tensor;
    uint64_t seed, first_block;
    size_t n_blocks;
    uint8_t *dst;
};

static void fill_f32_around(const struct chunk *c, float mean, float sigma) {
    float *dst = (float *)c->dst;
    synth_fill(QT_F32, c->seed, c->first_block, sigma, dst, c->n_blocks);
    for (size_t i = 0; i < c->n_blocks; i++)
        dst[i] += mean;
}

static void fill_weights(void *arg, struct pool *pool, int thread) {
    const struct chunk *c = arg;
    (void)thread;
    size_t begin, end, block_bytes = qtype_info(c->tensor->type)->block_bytes;
    float sigma = 1 / sqrtf((float)c->tensor->dims[0]);
    while (pool_claim(pool, c->n_blocks, 1024, &begin, &end))
        synth_fill(c->tensor->type, c->seed, c->first_block + begin, sigma,
                   c->dst + begin * block_bytes, end - begin);
}

static void fill_chunk(struct chunk *c, struct pool *pool) {
    switch (c->tensor->role) {
    case ROLE_WEIGHT:
        pool_run(pool, fill_weights, c);
        break;
    case ROLE_NORM:
        fill_f32_around(c, 1, 0.05f);
        break;
    case ROLE_BIAS:
        fill_f32_around(c, 0, 0.02f);
        break;
    case ROLE_LLAMA3_FACTORS:
        llama3_factors(c->shape, (float *)c->dst);
        break;
    }
}

static uint64_t name_seed(uint64_t seed, const char *name) {
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 1099511628211u;
    return rng_u64(seed, hash);
}

#define CHUNK_BYTES ((size_t)16 << 20)

struct writing {
    const struct synth_plan *plan;
    const struct synth_options *opts;
    struct gguf_writer *w;
    struct pool *pool;
    uint8_t *buffer; /* [CHUNK_BYTES] */
    uint64_t bytes_done, bytes_total;
};

static enum status write_tensor(struct writing *job, const struct tensor *t, struct err *err) {
    size_t block_bytes = qtype_info(t->type)->block_bytes;
    uint64_t total = n_blocks(t), at_once = CHUNK_BYTES / block_bytes;
    struct chunk c = {.shape = job->plan->shape,
                      .tensor = t,
                      .dst = job->buffer,
                      .seed = name_seed(job->opts->seed, t->name)};
    for (; c.first_block < total; c.first_block += c.n_blocks) {
        c.n_blocks = (size_t)MIN(at_once, total - c.first_block);
        fill_chunk(&c, job->pool);
        TRY(gguf_write_data(job->w, c.dst, c.n_blocks * block_bytes, err));
        job->bytes_done += c.n_blocks * block_bytes;
        if (!progress_report(job->opts->progress, job->bytes_done, job->bytes_total))
            return err_set(err, ST_CANCELLED, "cancelled");
    }
    return ST_OK;
}

static enum status write_tensors(struct writing *job, struct err *err) {
    job->buffer = mem_alloc(CHUNK_BYTES);
    if (!job->buffer)
        return err_set(err, ST_NO_MEMORY, "no memory");
    TRY(pool_open(&job->pool, job->opts->n_threads, err));
    for (size_t i = 0; i < job->plan->n; i++)
        job->bytes_total += n_blocks(&job->plan->tensors[i]) *
                            qtype_info(job->plan->tensors[i].type)->block_bytes;
    for (size_t i = 0; i < job->plan->n; i++)
        TRY(write_tensor(job, &job->plan->tensors[i], err));
    return ST_OK;
}

static enum status write_file(const struct synth_plan *p, const struct synth_options *opts,
                              struct gguf_writer *w, struct err *err) {
    put_keys(p, w);
    TRY(synth_vocab_write(p->shape->vocab, w, err));
    for (size_t i = 0; i < p->n; i++)
        gguf_write_tensor_info(w, p->tensors[i].name, p->tensors[i].type, p->tensors[i].n_dims,
                               p->tensors[i].dims);
    TRY(gguf_writer_begin_data(w, opts->header_only, err));
    if (!opts->header_only) {
        struct writing job = {.plan = p, .opts = opts, .w = w};
        enum status st = write_tensors(&job, err);
        pool_close(job.pool);
        mem_free(job.buffer);
        if (st != ST_OK)
            return st;
    }
    return gguf_writer_finish(w, err);
}

enum status synth_write(const char *path, const struct synth_options *opts, struct err *err) {
    const struct synth_shape *shape = synth_shape_find(opts->shape);
    if (!shape)
        return err_set(err, ST_NOT_FOUND, "no shape is called '%s'", opts->shape);
    if (!synth_can_fill(opts->type))
        return err_set(err, ST_UNSUPPORTED, "type %s cannot be written",
                       qtype_info(opts->type)->name);
    struct synth_plan p = {.shape = shape,
                           .type = opts->type,
                           .n_layers = opts->n_layers ? opts->n_layers : shape->n_layers};
    add_all(&p);
    struct gguf_writer *w = NULL;
    enum status st =
        p.failed ? err_set(err, ST_NO_MEMORY, "no memory") : gguf_writer_open(&w, path, err);
    if (st == ST_OK)
        st = write_file(&p, opts, w, err);
    gguf_writer_close(w);
    mem_free(p.tensors);
    return st;
}
