/* synth.c: from a shape to a file: its keys, its tensors (synth_keys.c, synth_tensors.c) and
 * their data, chunk by chunk, on a pool of threads. */
#include "convert/synth.h"

#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/util.h"
#include "convert/synth_parts.h"

#include <math.h>

static uint64_t n_values(const struct synth_tensor *t) {
    uint64_t n = t->dims[0];
    for (uint32_t i = 1; i < t->n_dims; i++)
        n *= t->dims[i];
    return n;
}

static uint64_t n_blocks(const struct synth_tensor *t) {
    return n_values(t) / qtype_info(t->type)->block_values;
}

uint64_t synth_shape_params(size_t i) {
    const struct synth_shape *shape = synth_shape_find(synth_shape_name(i));
    struct synth_plan p = {.shape = shape, .type = QT_F32, .n_layers = shape->n_layers};
    synth_list_tensors(&p);
    uint64_t n = 0;
    for (size_t k = 0; k < p.n; k++)
        n += p.tensors[k].role == ROLE_FACTORS ? 0 : n_values(&p.tensors[k]);
    mem_free(p.tensors);
    return n;
}

/* ---- data -------------------------------------------------------------------------- */

/* Llama 3.1's frequency scaling, as its converter stores it. Frequencies with less than one turn
 * in the context of training are divided by the factor, and those with `high` turns are kept.
 * Between them is a ramp. */
static float llama3_factor(const struct synth_shape *s, uint32_t i) {
    const double low = 1, high = (double)s->factors.high, factor = (double)s->factors.factor;
    double wavelength = 2 * M_PI * pow((double)s->rope_base, 2.0 * i / s->head_dim);
    double ramp = (s->factors.n_ctx_orig / wavelength - low) / (high - low);
    ramp = fmin(fmax(ramp, 0), 1);
    return (float)(1 / ((1 - ramp) / factor + ramp));
}

static void rope_factors(const struct synth_shape *s, float *dst) {
    for (uint32_t i = 0; i < s->head_dim / 2; i++)
        dst[i] = s->factors.n_turning == 0  ? llama3_factor(s, i)
                 : i < s->factors.n_turning ? 1.0f
                                            : 1e30f;
}

/* Of token t: experts 7 t, 7 t + 1 ... */
static void token_experts(const struct synth_shape *s, uint64_t first, int32_t *dst, size_t n) {
    const uint64_t n_used = s->experts.n_used;
    for (size_t i = 0; i < n; i++)
        dst[i] = (int32_t)(((first + i) / n_used * 7 + (first + i) % n_used) % s->experts.n);
}

struct chunk {
    const struct synth_shape *shape;
    const struct synth_tensor *tensor;
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
    case ROLE_DECAY:
        fill_f32_around(c, -1, 0.1f);
        break;
    case ROLE_FACTORS:
        rope_factors(c->shape, (float *)c->dst);
        break;
    case ROLE_EXPERTS:
        token_experts(c->shape, c->first_block, (int32_t *)c->dst, c->n_blocks);
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

static enum status write_tensor(struct writing *job, const struct synth_tensor *t,
                                struct err *err) {
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
    synth_write_keys(p, w);
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
    synth_list_tensors(&p);
    struct gguf_writer *w = NULL;
    enum status st =
        p.failed ? err_set(err, ST_NO_MEMORY, "no memory") : gguf_writer_open(&w, path, err);
    if (st == ST_OK)
        st = write_file(&p, opts, w, err);
    gguf_writer_close(w);
    mem_free(p.tensors);
    return st;
}
