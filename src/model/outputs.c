/* outputs.c: the end of a step: rows of logits or hidden states, from the last stage to rank 0 and
 * the step's sink. */
#include "model/on_device.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>

enum status outputs_open(struct model *m, struct err *err) {
    static const char key[] = "tokenizer.ggml.suppress_tokens";
    struct gguf_array a;
    if (!m->hp->suppresses || !gguf_has(m->g, key))
        return ST_OK;
    TRY(gguf_array(m->g, key, &a, err));
    if (a.type != GGUF_I32 && a.type != GGUF_U32)
        return err_set(err, ST_BAD_INPUT, "%s: %s is not a list of tokens", gguf_path(m->g),
                       key);
    m->suppressed = mem_calloc(a.n, sizeof *m->suppressed);
    if (m->suppressed == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for %s", key);
    for (size_t i = 0; i < a.n; i++) {
        int64_t id = gguf_array_int(&a, i);
        if (id >= m->share->vocab_begin && id < m->share->vocab_end)
            m->suppressed[m->n_suppressed++] = (int32_t)(id - m->share->vocab_begin);
    }
    return ST_OK;
}

/* Parts of n rows from the members of the last stage -> rows of the whole vocabulary. */
static void join_parts(struct model *m, uint32_t n) {
    const struct plan *plan = &m->plan;
    const float *part = m->gathered;
    for (int i = plan->n_ranks - plan->tp; i < plan->n_ranks; i++) {
        const struct share *sh = &plan->shares[i];
        size_t width = sh->vocab_end - sh->vocab_begin;
        for (uint32_t row = 0; row < n; row++)
            memcpy(m->logits_all + (size_t)row * m->hp->n_vocab + sh->vocab_begin,
                   part + row * width, width * sizeof(float));
        part += n * width;
    }
}

/* The sign and the payload of a NaN depend on the processor; one leaves as all do. */
static void unify_nans(float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = isnan(x[i]) ? NAN : x[i];
}

/* Thread 0: this share's logits of n rows to rank 0. */
static enum status give_logits(struct forward_pass *r, uint32_t n) {
    struct model *m = r->m;
    size_t width = m->share->vocab_end - m->share->vocab_begin;
    /* Rows lie ld_vocab apart: close the gaps. */
    for (uint32_t row = 1; row < n && width != m->ld_vocab; row++)
        memmove(m->logits + row * width, m->logits + row * m->ld_vocab, width * sizeof(float));
    unify_nans(m->logits, n * width);
    const float *rows = m->logits;
    if (m->all != NULL) {
        for (int i = 0; i < m->plan.n_ranks; i++) {
            const struct share *sh = &m->plan.shares[i];
            m->part_bytes[i] = (size_t)n * (sh->vocab_end - sh->vocab_begin) * sizeof(float);
        }
        bool one_part = n == 1 && m->rank == 0; /* one row's parts already form the row */
        float *into = one_part ? m->logits_all : m->gathered;
        TRY(fabric_gather(m->all, 0, m->logits, into, m->part_bytes, &r->err));
        if (m->rank == 0 && !one_part)
            join_parts(m, n);
        rows = m->logits_all;
    }
    r->rows = rows;
    return ST_OK;
}

/* Thread 0: sends the hidden states of n outputs from the last stage, whose members all have
 * them, to rank 0. */
static enum status give_hidden(struct forward_pass *r, uint32_t n) {
    struct model *m = r->m;
    r->rows = m->out_rows;
    if (m->plan.pp == 1)
        return ST_OK;
    int from = m->plan.n_ranks - m->plan.tp;
    for (int i = 0; i < m->plan.n_ranks; i++)
        m->part_bytes[i] = i == from ? (size_t)n * m->hp->n_embd * sizeof(float) : 0;
    r->rows = m->logits_all;
    return fabric_gather(m->all, 0, m->out_rows, m->logits_all, m->part_bytes, &r->err);
}

/* Hands the rows of n outputs to the caller's functions, on rank 0. */
static void hand_on(struct forward_pass *r, struct pool *pool, int thread, uint32_t first,
                    uint32_t n) {
    const struct step_sink *sink = r->sink;
    if (sink == NULL)
        return;
    if (thread == 0 && r->rows_wanted)
        r->rows_wanted = sink->rows(sink->user, first, n, r->rows);
    size_t width = r->whole->hidden ? r->m->hp->n_embd : r->m->hp->n_vocab, begin, end;
    while (sink->row != NULL && pool_claim(pool, n, 1, &begin, &end))
        for (size_t i = begin; i < end; i++)
            sink->row(sink->user, thread, first + (uint32_t)i, r->rows + i * width);
    pool_barrier(pool);
}

/* Threads take pieces of all rows; a step often has only one row. */
static void cap_logits(struct forward_pass *r, struct pool *pool, uint32_t n) {
    enum { PIECE = 4096 };
    struct model *m = r->m;
    size_t begin, end, n_values = n * m->ld_vocab;
    if (m->hp->logit_softcap == 0.0f)
        return;
    forward_host(r, pool);
    while (pool_claim(pool, div_up(n_values, PIECE), 1, &begin, &end))
        for (size_t i = begin; i < end; i++)
            m->k->softcap(m->logits + i * PIECE, m->hp->logit_softcap,
                          MIN(n_values - i * PIECE, PIECE));
    pool_barrier(pool);
}

/* Thread 0 */
static void suppress(const struct model *m, uint32_t n) {
    for (size_t row = 0; row < n; row++)
        for (size_t i = 0; i < m->n_suppressed; i++)
            m->logits[row * m->ld_vocab + m->suppressed[i]] = -INFINITY;
}

/* The normed residual streams of n outputs, in out_rows. */
static void norm_outputs(struct forward_pass *r, struct pool *pool, uint32_t first,
                         uint32_t n) {
    const struct model *m = r->m;
    const uint32_t e = m->hp->n_embd;
    size_t begin, end;
    forward_host(r, pool);
    while (pool_claim(pool, n, 1, &begin, &end))
        for (size_t i = begin; i < end; i++) {
            const size_t t = r->whole->outputs[first + i];
            float *row = m->out_rows + i * e, *x = m->x + t * e;
            if (m->w.output_score != NULL) {
                depth_mix_token(m, row, x, t, hparams_n_kept(m->hp, m->hp->n_layers),
                                m->w.output_score);
                x = row;
            }
            forward_norm(m, row, x, m->w.output_norm);
            if (!r->whole->hidden)
                forward_scale(row, e, m->hp->logit_scale);
        }
    pool_barrier(pool);
}

static void norm_outputs_on_device(struct forward_pass *r, struct pool *pool, uint32_t first,
                                   uint32_t n) {
    const struct model *m = r->m;
    const uint32_t e = m->hp->n_embd;
    const struct rows out = {m->out_rows, e};
    const bool records = device_records(pool);
    for (uint32_t i = 0; records && i < n; i++) {
        const struct rows x = {m->x + (size_t)r->whole->outputs[first + i] * e, e},
                          row = {m->out_rows + (size_t)i * e, e};
        device_record_norm(m, row, x, m->w.output_norm, 1);
    }
    if (records && !r->whole->hidden && m->hp->logit_scale != 1.0f)
        shaders_scale(m->shaders, out, m->hp->logit_scale, e, n);
    pool_barrier(pool);
}

bool output_rows(struct forward_pass *r, struct pool *pool, int thread, uint32_t first,
                 uint32_t n) {
    struct model *m = r->m;
    uint32_t e = m->hp->n_embd;
    if (m->share->last_stage) {
        if (thread == 0)
            forward_acts_set_tokens(&m->x_act, n);
        if (on_device(r) && m->w.output_score == NULL)
            norm_outputs_on_device(r, pool, first, n);
        else
            norm_outputs(r, pool, first, n);
        if (!r->whole->hidden)
            forward_pack(r, pool, &m->x_act, m->out_rows, e);
        const struct product out = {&m->w.output, &m->x_act, m->logits, m->ld_vocab};
        if (!r->whole->hidden) {
            forward_products(r, pool, &out, 1);
            cap_logits(r, pool, n);
        }
    }
    forward_host(r, pool);
    if (thread == 0) {
        suppress(m, n);
        uint64_t began = clock_ns();
        size_t size =
            (size_t)n * (r->whole->hidden ? m->hp->n_embd : m->hp->n_vocab) * sizeof(float);
        forward_net_done(r, TRACE_GATHER, size, began,
                         r->whole->hidden ? give_hidden(r, n) : give_logits(r, n));
    }
    if (!forward_whole(r, pool, thread))
        return false;
    hand_on(r, pool, thread, first, n);
    return true;
}
