/* forward.h: shared by the files that compute a step: the running step, the network as phases,
 * packing, products. All threads of the rank call these functions together unless a comment
 * says otherwise. A phase ends with a barrier. */
#ifndef LOCKSTEP_MODEL_FORWARD_H
#define LOCKSTEP_MODEL_FORWARD_H

#include "base/exact.h"
#include "base/util.h"
#include "model/microbatch.h"
#include "model/model_internal.h"
#include "model/sequence_shard.h"

/* A sum that m->async_worker does while the threads compute. Thread 0's but for what the
 * async_worker writes. */
struct sum {
    bool under_way;
    int64_t *acc;
    size_t n_values;
    uint64_t began_ns, ended_ns; /* from here on the async worker's until async_worker_wait() */
    enum status st;
    struct err err;
};

/* Of a step. */
struct tokens {
    uint32_t begin, n;
};

struct forward_pass {
    struct model *m;
    const struct step *whole;
    struct microbatch microbatches[MICROBATCHES_MAX];
    uint32_t n_microbatches;
    bool on_device; /* the step is the device's: on_device.h */
    /* The step's tokens are sharded to the team; first [tp + 1] says how (sequence_shard.h). */
    bool sharded;
    uint32_t shard_first[PLAN_MAX_RANKS + 1];
    /* The microbatch that the phases work on: its tokens and its part of m->x, m->acc and the
     * angles. Thread 0 writes before a barrier. */
    const struct step *step;
    float *x;
    int64_t *acc;
    uint32_t first;
    /* of its tokens those whose residual stream, norms and routing are this rank's: all, unless
     * sharded */
    struct tokens mine;
    struct sum sum;
    const struct step_sink *sink; /* NULL but on rank 0 */
    bool rows_wanted;             /* by sink->rows, thread 0's */
    const float *rows;            /* thread 0 writes before a barrier, all read after it */
    enum status st; /* thread 0's alone; the others learn of it in forward_whole() */
    struct err err;
    bool told[2]; /* whether st was ST_OK, by phase: forward_whole() */
};

/* One product of a phase: y [n_tokens, ldy] = w x. Writes whole tiles: y has space for w's rows
 * rounded up to TILE_ROWS. */
struct product {
    const struct wmat *w;
    const struct acts *x;
    float *y;
    size_t ldy;
};

/* This thread's next tiles of a loop over n_tiles, of tile_bytes each (pool_claim). The kernels
 * multiply one token with up to four tiles side by side, and several tokens with two. Fewer
 * tiles cost nearly as much, so a claim is whole fours or pairs. */
bool forward_claim_tiles(const struct forward_pass *r, struct pool *pool, size_t n_tiles,
                         size_t tile_bytes, size_t *begin, size_t *end);

/* Before the pool computes: what was recorded on a device has run (on_device.h). Ends with a
 * barrier; without a device it does nothing. */
void forward_host(struct forward_pass *r, struct pool *pool);

/* All products of the list, claimed as one row of tiles. */
void forward_products(struct forward_pass *r, struct pool *pool, const struct product *list,
                      size_t n);

/* acc = w x in fixed point over this rank's columns (none: zero), plus the bias (NULL: none) on
 * the rank that holds it. */
void forward_fixed_product(struct forward_pass *r, struct pool *pool, int thread,
                           const struct wmat *w, uint32_t segment, const struct acts *x,
                           const float *bias);
/* Thread 0: notes how long the network took, and its error. Always followed by forward_whole(). */
void forward_net_done(struct forward_pass *r, enum trace_kind kind, size_t size, uint64_t began,
                      enum status st);
/* A barrier, after thread 0 has done what can fail: are the group and the model's files whole? All
 * threads get the same answer, so that they leave a step together. */
bool forward_whole(struct forward_pass *r, struct pool *pool, int thread);
/* The exact sum over the team of the first n_values of acc. False if the group was lost. */
bool forward_team_sum(struct forward_pass *r, struct pool *pool, int thread, size_t n_values);

/* If the step is sharded: all members get the activations a of all tokens, in the given forms,
 * and n more buffers (at most FORWARD_MORE) with a row per token. False: the group was lost. */
#define FORWARD_MORE 3
bool forward_tell(struct forward_pass *r, struct pool *pool, int thread, const struct acts *a,
                  struct forms told, const struct fabric_rows *more, size_t n);
/* These activations as rows; list [FORWARD_ACT_ROWS]. Returns how many. */
#define FORWARD_ACT_ROWS 6
size_t forward_act_rows(const struct acts *a, struct forms told, struct fabric_rows *list);

/* Packs a from x [n_tokens, ldx], in each form that a product reads. */
void forward_pack(struct forward_pass *r, struct pool *pool, const struct acts *a,
                  const float *x, size_t ldx);
/* One thread: packs blocks [block_begin, block_end) of columns of all tokens of a; x [n_tokens,
 * ldx] begins with these. */
void forward_pack_blocks(const struct model *m, const struct acts *a, const float *x,
                         size_t ldx, uint32_t block_begin, uint32_t block_end);
/* Blocks [block_begin, block_end) of a single token, which this thread will pack soon. They
 * leave the caches of the threads that read the last token's blocks there (base/prefetch.h). */
void forward_own_blocks(const struct acts *a, uint32_t block_begin, uint32_t block_end);
/* One thread: packs group `group` of a alone; x [n_tokens, ldx] is of all of them. */
void forward_pack_group(const struct model *m, const struct acts *a, const float *x, size_t ldx,
                        uint32_t group);
void forward_acts_set_tokens(struct acts *a, uint32_t n_tokens);
/* The part of a that belongs to tokens [first, first + n); first: a multiple of ACT_GROUP, or a
 * where it stands alone. */
struct acts forward_acts_part(const struct acts *a, uint32_t first, uint32_t n);
/* The same buffer for fewer columns: layers of a model may differ in their widths. */
struct acts forward_acts_narrow(const struct acts *a, uint32_t n_cols);
static inline const struct act *forward_act_for(const struct acts *a, const struct wmat *w) {
    return act_kind_for(w->type) == ACT_F32 ? &a->f32 : &a->q8;
}

/* x * 2^24 to the nearest integer, as the kernels do it (docs/numerics.md). */
int64_t forward_fixed(float x);

/* x *= by, [n] */
static inline void forward_scale(float *x, uint32_t n, float by) {
    for (uint32_t i = 0; i < n && by != 1.0f; i++)
        x[i] = exact_tidy(x[i] * by);
}

/* y = the norm of the residual stream x, both [n_embd], times w: rmsnorm(); of an architecture with
 * layer_norm, of x less its mean. y may be x. */
void forward_norm(const struct model *m, float *y, const float *x, const float *w);

/* residual.c: this rank's tokens of the residual stream, from a sum in acc to the packed x_act of
 * the next products. A layer begins by adding what the one before gave; layer: of the stage. */
void residual_begin_layer(struct forward_pass *r, struct pool *pool, uint32_t layer,
                          const float *norm);
void residual_after_mixer(struct forward_pass *r, struct pool *pool,
                          const struct layer_weights *lw);
/* What an FFN gave is set aside for residual_end_layer(); then the inputs of the experts beside
 * it and of their router. */
void residual_set_beside(struct forward_pass *r, struct pool *pool,
                         const struct layer_weights *lw);
/* The residual stream after a layer. */
void residual_end_layer(struct forward_pass *r, struct pool *pool,
                        const struct layer_weights *lw);

/* layer_input.c: before the layers, their inputs of all tokens of the step; at a layer's end,
 * what it makes of its own, added to this rank's tokens. */
void layer_inputs_forward(struct forward_pass *r, struct pool *pool);
void layer_input_add(struct forward_pass *r, struct pool *pool, const struct layer_weights *lw);

/* streams.c: of all tokens of the step: the streams of the embeddings in m->x, on the first stage,
 * and m->x of the streams in the end, on the last. */
void streams_begin(struct forward_pass *r, struct pool *pool);
void streams_end(struct forward_pass *r, struct pool *pool);
/* Of this rank's tokens: before a layer the streams are predicted, and x is the first; then, from
 * the packed normed x, what comes beside attention; after the layer all are corrected by x. */
void streams_predict(struct forward_pass *r, struct pool *pool, const struct layer_weights *lw);
void streams_laurel(struct forward_pass *r, struct pool *pool, const struct layer_weights *lw);
void streams_correct(struct forward_pass *r, struct pool *pool, const struct layer_weights *lw);

/* hyper.c: of all tokens of the step: the streams of the embeddings in m->x, on the first stage,
 * and m->x of the streams in the end, on the last. */
void hyper_start(struct forward_pass *r, struct pool *pool);
void hyper_join(struct forward_pass *r, struct pool *pool);
/* Of this rank's tokens: what a half layer has left in acc goes to the streams; the coefficients
 * of the next half layer, and what it reads, packed in x_act. */
void hyper_take(struct forward_pass *r, struct pool *pool);
void hyper_half(struct forward_pass *r, struct pool *pool, const struct hyper_weights *w,
                const float *norm);

/* depth.c, one thread: out = what token t of the whole step reads, of n_kept streams and x; then x
 * is kept if it is to be, and begins anew. layer: of the model. */
void depth_mix_token(const struct model *m, float *out, const float *x, size_t t,
                     uint32_t n_kept, const float *score);
void depth_keep(const struct model *m, float *x, size_t t, uint32_t layer);
/* Values that a token keeps. */
static inline size_t depth_width(const struct model *m) {
    return (size_t)hparams_n_kept(m->hp, m->hp->n_layers) * m->hp->n_embd;
}

/* attention.c: from the packed, normed x_act, not yet told, to acc. False if the group was
 * lost. */
bool attention_forward(struct forward_pass *r, struct pool *pool, int thread,
                       const struct layer_weights *lw, uint32_t layer);
/* compressed.c: the same of a layer that attends to compressed keys. */
bool compressed_forward(struct forward_pass *r, struct pool *pool, int thread,
                        const struct layer_weights *lw, uint32_t layer);
/* Opening: sizes of buffers, the floats of a thread's scratch, the caches. */
void compressed_size(struct model *m);
size_t compressed_scratch_floats(const struct hparams *hp);
enum status compressed_open(struct model *m, struct err *err);
void compressed_close(struct model *m);
/* indexer.c. Of a layer without an indexer these do nothing and return 0.
 * Its products of x, whose first token is the step's `first`: at most 2. */
size_t indexer_products_of_x(struct model *m, const struct layer_weights *lw,
                             const struct acts *x, uint32_t first, struct product *list);
/* The product of its queries, of all tokens. */
size_t indexer_query_product(struct model *m, const struct layer_weights *lw,
                             const struct acts *of, struct product *list);
/* What those products of x gave, for forward_tell(): at most 2. */
size_t indexer_rows(const struct model *m, const struct layer_weights *lw,
                    struct fabric_rows *list);
/* One token's, one thread: norms, RoPE, the key into its cache. */
void indexer_finish_token(struct forward_pass *r, const struct layer_weights *lw,
                          uint32_t layer, uint32_t t);
/* Thread 0, before a barrier. */
void indexer_point_at_pages(struct forward_pass *r, const struct layer_weights *lw,
                            uint32_t layer);
/* All tokens' choices, once all of them are finished. */
void indexer_choose(struct forward_pass *r, struct pool *pool, int thread,
                    const struct layer_weights *lw);
/* The n positions that token t's queries of a local kv head attend to, of `end`; NULL: to all. */
const uint32_t *indexer_chosen(const struct forward_pass *r, const struct layer_weights *lw,
                               uint32_t t, uint32_t kv, uint32_t end, uint32_t *n);
/* Thread 0: what the next stage's first layer needs of the last choice. */
enum status indexer_send(struct forward_pass *r);
enum status indexer_receive(struct forward_pass *r);
/* Opening: sizes of buffers, the floats of a thread's scratch, the cache of keys. */
void indexer_size(struct index_buffers *b, const struct hparams *hp, const struct share *sh,
                  const struct model_config *cfg);
size_t indexer_scratch_floats(const struct model *m);
enum status indexer_open(struct model *m, struct err *err);
void indexer_close(struct model *m);
/* Of the cache of index keys; whether a layer has a part of it. */
struct kv_shape indexer_shape(const struct hparams *hp, enum kv_type type);
bool indexer_has_keys(const struct hparams *hp, uint32_t layer);
/* recurrent.c: from x_act, not yet told, to acc. False if the group was lost. */
bool recurrent_forward(struct forward_pass *r, struct pool *pool, int thread,
                       const struct recurrent_weights *w);
/* What does not change from step to step. */
void recurrent_prepare(struct model *m);
/* Whether a device does all of such a layer: recurrent_device.c. */
bool recurrent_is_on_device(const struct hparams *hp);
#define RECURRENT_LENGTH_EPS 1e-6f /* queries and keys are divided by their length */
/* Mamba-2: no group is on two ranks of a stage. */
bool recurrent_groups_are_whole(const struct hparams *hp, const struct plan *plan);
/* ffn.c: from x_act to acc. False if the group was lost. */
bool ffn_forward(struct forward_pass *r, struct pool *pool, int thread,
                 const struct layer_weights *lw);
/* out [n_tokens, gate's rows] = act(gate x) * (up x) of every entry, packed for what comes
 * next. */
void ffn_up_forward(struct forward_pass *r, struct pool *pool, int thread,
                    const struct ffn_up *list, size_t n);
/* moe.c: from x_act, not yet told, to acc. False if the group was lost, or one of it chose an
 * expert that is not there: r->st. */
bool moe_forward(struct forward_pass *r, struct pool *pool, int thread,
                 const struct layer_weights *lw);

/* outputs.c. Opening: the tokens that the file says never come. */
enum status outputs_open(struct model *m, struct err *err);
/* Outputs [first, first + n) of the step, from the last stage to rank 0 and its sink.
 * False: the group was lost. */
bool output_rows(struct forward_pass *r, struct pool *pool, int thread, uint32_t first,
                 uint32_t n);

/* The most positions that a token of the step sees. */
static inline uint32_t forward_longest(const struct step *step) {
    uint32_t n = 0;
    for (uint32_t s = 0; s < step->n_runs; s++)
        n = MAX(n, step->runs[s].pos + step->runs[s].n_tokens);
    return n;
}

/* The position of token t of the step. */
static inline const struct step_run *forward_run_of(const struct step *step, uint32_t t,
                                                    uint32_t *first) {
    *first = 0;
    for (uint32_t i = 0; i < step->n_runs; i++) {
        if (t < *first + step->runs[i].n_tokens)
            return &step->runs[i];
        *first += step->runs[i].n_tokens;
    }
    return NULL;
}

#endif
