/* on_device.h: the operations of a step on a device, for a rank that has one
 * (model_config.shaders), in steps of as many tokens as are the device's (device_from).
 *
 * A step is the same sequence of operations on the pool and on a device. An operation that is here
 * is recorded by one of the threads, and runs later, in order. One that is not here is computed by
 * the pool: forward_host() before it waits for all that was recorded. The step's buffers, the
 * weights and the cache are memory that both read and write, so nothing is copied in between. */
#ifndef LOCKSTEP_MODEL_ON_DEVICE_H
#define LOCKSTEP_MODEL_ON_DEVICE_H

#include "model/forward.h"

static inline bool on_device(const struct forward_pass *r) {
    return r->on_device;
}

/* Whether this thread is the one that records; a barrier follows. */
bool device_records(struct pool *pool);

/* The thread that records: packs a from x [n_tokens, ldx] in each form. */
void device_record_pack(struct shaders *s, const struct acts *a, const float *x, size_t ldx);

/* The same thread: the first half of an FFN, n tokens from `first` on. */
void device_record_up(const struct model *m, const struct ffn_up *u, uint32_t first,
                      uint32_t n);

/* The same thread: forward_norm() of n rows. */
void device_record_norm(const struct model *m, struct rows y, struct rows x, const float *w,
                        uint32_t n);

/* As the functions of forward.h and ffn.c whose names they have. Each ends with a barrier. */
void device_products(struct forward_pass *r, struct pool *pool, const struct product *list,
                     size_t n);
void device_fixed_product(struct forward_pass *r, struct pool *pool, const struct wmat *w,
                          uint32_t segment, const struct acts *x, const float *bias);
void device_pack(struct forward_pass *r, struct pool *pool, const struct acts *a,
                 const float *x, size_t ldx);
/* False: an entry of the list needs what only the pool does, and nothing was done. */
bool device_ffn_up(struct forward_pass *r, struct pool *pool, const struct ffn_up *list,
                   size_t n);

/* A recurrent layer from the products of x on to acc. False: the group was lost. */
bool recurrent_device(struct forward_pass *r, struct pool *pool, int thread,
                      const struct recurrent_weights *w);

/* Thread 0: an error of the device is the step's. */
void device_tell_error(struct forward_pass *r);
/* After the threads: nothing is left recorded; an error of the device is the step's. */
void device_end_step(struct forward_pass *r);

/* Whether the weights' matrices, the cache and the inner buffers are the device's alone: it does
 * all that touches them. */
bool device_keeps_buffers(const struct model *m);
/* And the residual stream and what is summed, which no other rank reads. */
bool device_keeps_stream(const struct model *m);
/* Embeddings that the host wrote, to where the device keeps the residual stream. */
void device_take_embeddings(struct forward_pass *r, struct pool *pool);

/* Opening: what it needs of the step's buffers, and the memory that it shares with the device. */
#define DEVICE_FFN_TOKENS (16 * ACT_GROUP) /* that go through an FFN's middle together */
enum status device_share_memory(struct model *m, struct err *err);
size_t device_piece_most(const struct model *m); /* of that memory (pieces.h) */
/* Where the experts' matrices are on the device, in a buffer that it does not share yet. */
void moe_share_matrices(struct model *m);
void device_leave_memory(struct model *m);

/* Whether a device chooses the experts of a layer itself. The choices of more tokens than
 * device_few() are grouped; those of fewer read an expert for each, seldom several if there are as
 * many experts as choices. */
bool device_chooses(const struct hparams *hp, uint32_t layer);
static inline uint32_t device_few(const struct moe_params *p) {
    const uint32_t n_used = MAX(p->n_used, 1u);
    return MIN(MAX(MOE_FEW * n_used, p->n_experts), (uint32_t)DEVICE_FFN_TOKENS) / n_used;
}

#endif
