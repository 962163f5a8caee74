/* shaders.h: the kernels of kernels.h on a device, with the same bits.
 *
 * Each function records one or a few runs on the device (device.h); their results are there
 * after device_finish(). All pointers are host addresses within mapped memory, and what they
 * point to is laid out as kernels.h says: the same tiles, activations and cache pages. Every
 * function here takes whole rows of several tokens, where kernels.h has a vector.
 *
 * shaders_open() and shaders_prepare...() compare every kernel with the scalar definition on
 * numbers that include the corners, so that a device whose arithmetic differs is never used. */
#ifndef LOCKSTEP_SHADERS_SHADERS_H
#define LOCKSTEP_SHADERS_SHADERS_H

#include "device/device.h"
#include "kernels/activation.h"
#include "kernels/kernels.h"
#include "shaders/router.h"

struct shaders;

/* False: this build has no shaders, since glslc was not there. */
bool shaders_built(void);

/* d is borrowed. ST_BAD_INPUT: no shaders in this build, or the device fails the self-test; the
 * sentence names the operation, the device and its driver. */
enum status shaders_open(struct shaders **out, struct device *d, struct err *err);
void shaders_close(struct shaders *s);
/* Makes and tests the products of weights of this type, which takes the driver a while: before
 * the first product of such a matrix. Again: nothing. Fails as shaders_open(). */
enum status shaders_prepare(struct shaders *s, enum qtype type, struct err *err);
/* The same of attention to a cache of this type, where so many query heads share a kv head: before
 * the first shaders_attention() of such heads. Groups of 1 to SHADERS_HEADS_MOST have a kernel
 * each, and larger ones are taken in such parts: what a workgroup keeps of 4 heads are 12.25 KB of
 * the 16 KB of shared memory that every device has. */
#define SHADERS_HEADS_MOST 4
enum status shaders_prepare_attention(struct shaders *s, enum kv_type type, uint32_t group,
                                      struct err *err);
struct device *shaders_device(const struct shaders *s);
/* The time that making and testing kernels took. */
uint64_t shaders_test_ns(const struct shaders *s);
/* Why products do without the device's matrix units, though it has some: their kernel was not
 * compiled or failed the self-test. "": they are used. */
const char *shaders_why_no_matrix(const struct shaders *s);

/* Rows of f32: token t's is at p + t * ld. */
struct rows {
    float *p;
    size_t ld;
};

/* act_pack() of all blocks of a (a->n_tokens tokens) from x [n_tokens, ldx]. */
void shaders_act_pack(struct shaders *s, const struct act *a, const float *x, size_t ldx);

/* The same of chosen rows: token t is row rows[t] of x; rows are in mapped memory. */
void shaders_act_pack_rows(struct shaders *s, const struct act *a, const float *x, size_t ldx,
                           const uint32_t *rows);

/* matmul() and matmul_fixed() of all tiles. `beside`: it needs nothing of the run before it
 * (device_run_beside()). */
void shaders_matmul(struct shaders *s, const struct wmat *w, const struct act *x, float *y,
                    size_t ldy, bool beside);
void shaders_matmul_fixed(struct shaders *s, const struct wmat *w, const struct act *x,
                          int64_t *y, size_t ldy, uint32_t seg_cols);

/* With matmul_fixed()'s rows, which are in mapped memory: adds to the rows of y. */
void shaders_matmul_fixed_add(struct shaders *s, const struct wmat *w, const struct act *x,
                              int64_t *y, size_t ldy, const uint32_t *rows, uint32_t seg_cols);

/* rmsnorm() of n_rows rows of n: row i's y at y + i * ldy, x at x + i * ldx; w [n] of all
 * rows, NULL: none. For heads: n_heads of each of n_tokens tokens, `stride` apart within a
 * token's row. */
void shaders_rmsnorm(struct shaders *s, struct rows y, struct rows x, const float *w,
                     uint32_t n, uint32_t n_rows, float eps);
void shaders_head_norms(struct shaders *s, struct rows x, const float *w, uint32_t head_dim,
                        uint32_t n_heads, size_t stride, uint32_t n_tokens, float eps);

/* definition.h's center() of n_rows rows of n, and plain_norm() of n_heads heads of each token. */
void shaders_center(struct shaders *s, struct rows y, struct rows x, uint32_t n,
                    uint32_t n_rows);
void shaders_plain_norms(struct shaders *s, struct rows x, uint32_t head_dim, uint32_t n_heads,
                         size_t stride, uint32_t n_tokens, float eps);

/* Of a row of heads close together: sums[t * ld_sums] = the squares of each head of token t, in
 * fixed point; row_norm() by the square root of such a sum. */
void shaders_row_squares(struct shaders *s, int64_t *sums, size_t ld_sums, struct rows x,
                         uint32_t head_dim, uint32_t n_heads, uint32_t n_tokens);
void shaders_row_norm(struct shaders *s, struct rows x, const int64_t *sums, size_t ld_sums,
                      const float *w, uint32_t n, float count, uint32_t n_tokens, float eps);

/* gate_head() of the heads of each token, stride floats apart; the gates are not written. Each
 * value of a head times its token's number: by [n_tokens]. */
struct shaders_heads {
    struct rows x;
    size_t stride;
    uint32_t dim, n_heads, n_tokens;
};
void shaders_gate_heads(struct shaders *s, const struct shaders_heads *h, struct rows gates,
                        size_t gate_stride, bool one);
void shaders_scale_heads(struct shaders *s, const struct shaders_heads *h, const float *by);

/* fixed_add(), fixed_get(), add() and x *= by of n_rows rows of n. shaders_add_vector(): the
 * same row [n] to each. */
void shaders_fixed_add(struct shaders *s, struct rows x, const int64_t *acc, size_t ld_acc,
                       uint32_t n, uint32_t n_rows);
void shaders_fixed_get(struct shaders *s, struct rows x, const int64_t *acc, size_t ld_acc,
                       uint32_t n, uint32_t n_rows);
void shaders_add(struct shaders *s, struct rows y, struct rows x, uint32_t n, uint32_t n_rows);
void shaders_add_vector(struct shaders *s, struct rows y, const float *x, uint32_t n,
                        uint32_t n_rows);
/* y *= x, value by value. */
void shaders_times(struct shaders *s, struct rows y, struct rows x, uint32_t n,
                   uint32_t n_rows);
void shaders_scale(struct shaders *s, struct rows x, float by, uint32_t n, uint32_t n_rows);
/* Each row times its own number: by [n_rows]. */
void shaders_scale_rows(struct shaders *s, struct rows x, const float *by, uint32_t n,
                        uint32_t n_rows);
void shaders_softcap(struct shaders *s, struct rows x, float cap, uint32_t n, uint32_t n_rows);
/* acc[t][i] = 0; acc[t][i] += the fixed point of by * bias[i], as forward_fixed() rounds. */
void shaders_fixed_zero(struct shaders *s, int64_t *acc, size_t ld_acc, uint32_t n,
                        uint32_t n_rows);
void shaders_fixed_bias(struct shaders *s, int64_t *acc, size_t ld_acc, const float *bias,
                        float by, uint32_t n, uint32_t n_rows);

/* rope() of the heads of each token, stride floats apart; token t's cos and sin [n_rot / 2] at
 * cos + t * n_rot / 2. */
void shaders_rope(struct shaders *s, struct rows x, uint32_t n_heads, size_t stride,
                  uint32_t n_rot, const float *cos, const float *sin, enum rope_mode mode,
                  uint32_t n_tokens);

/* ffn_activate() of rows of n: gate = act(gate) * up. False: a kind of activation that is not
 * here, and nothing is recorded. */
bool shaders_activate(struct shaders *s, enum ffn_act act, struct situ_params situ, float limit,
                      struct rows gate, struct rows up, uint32_t n, uint32_t n_rows);

/* kv_store() of each token's keys and values [n_kv_heads, dim] at pages[t], position slots[t]
 * of it; pages: device addresses, both [n_tokens] in mapped memory. */
void shaders_kv_store(struct shaders *s, const struct kv_shape *shape, struct rows k,
                      struct rows v, const uint64_t *pages, const uint32_t *slots,
                      uint32_t n_tokens);

/* attention() of every head of every token. Heads that share a kv head may read it together. */
struct shaders_query {   /* of a token, in mapped memory */
    uint32_t page_begin; /* its sequence's pages begin at pages[page_begin] */
    uint32_t begin, end; /* positions */
    uint32_t unused;
};
struct shaders_attention {
    const struct kv_shape *shape;
    const struct shaders_query *queries; /* [n_tokens] */
    const uint64_t *pages;               /* device addresses of this layer's pages */
    uint32_t n_tokens, n_heads;
    uint32_t first_head, group; /* head h reads kv head (first_head + h) / group - first_kv */
    uint32_t first_kv;
    struct rows q, out; /* head h's at h * q_stride, h * out_stride of a token's row */
    size_t q_stride, out_stride;
    const float *sinks; /* [n_heads]; NULL: none */
    float scale, softcap;
    uint32_t
        max_end; /* the largest end of queries; 0: not known, and spans are taken one by one */
};
void shaders_attention(struct shaders *s, const struct shaders_attention *a);

/* ---- experts ------------------------------------------------------------------------------ */

/* router_choose() of each token, where the device can: without given experts. */
#define SHADERS_EXPERTS_MAX 1024
#define SHADERS_USED_MAX 64
#define SHADERS_EXPERT_GROUPS_MAX 64
bool shaders_can_route(const struct router *r);
struct shaders_routing {
    struct rows logits;        /* not overwritten */
    struct rows shared_logits; /* the first of each row; NULL: there are none */
    float *shared_weights;     /* [n_tokens]: sigmoids of these */
    struct choice *out;        /* [n_tokens, n_used] */
    uint32_t n_tokens;
};
void shaders_route(struct shaders *s, const struct router *r,
                   const struct shaders_routing *tokens);

/* What tokens have chosen, in mapped memory, which may have been written on the device; and the
 * experts that are held. Rows of choices are n_tokens * n_used, those of tokens n_tokens. */
struct shaders_chosen {
    const struct choice *choices; /* [n_tokens, n_used] */
    uint32_t n_tokens, n_used;
    uint32_t begin, end; /* held */
    /* Of many tokens: choices grouped by expert (shaders_group()), so that products read an expert
     * once for several of its tokens, as those of one matrix do. NULL: for each of them. */
    uint32_t *groups; /* [shaders_group_words()] in mapped memory, aligned to 16 */
    uint32_t n_experts;
};
size_t shaders_group_words(uint32_t n_choices, uint32_t n_experts);
/* Groups them, for the products that follow. */
void shaders_group(struct shaders *s, const struct shaders_chosen *c);
/* A matrix of each expert, [n_experts] in mapped memory, aligned to 16. */
struct shaders_matrix {
    uint64_t tiles; /* of the device; 0: not held */
    float scale;
    uint32_t unused;
};
struct shaders_matrix shaders_matrix(const struct shaders *s, const struct wmat *w);

/* matmul() of x's token t, for each of its choices: a row of y of each, but for those that are not
 * held. `like`: one of the matrices. */
void shaders_chosen_matmul(struct shaders *s, const struct shaders_chosen *c,
                           const struct shaders_matrix *matrices, const struct wmat *like,
                           const struct act *x, struct rows y, bool beside);
/* The sum of matmul_fixed() of a token's choices, of which each has its own token of x. With groups
 * the sums meet in y, which is best the device's own memory. */
void shaders_chosen_matmul_fixed(struct shaders *s, const struct shaders_chosen *c,
                                 const struct shaders_matrix *matrices, const struct wmat *like,
                                 const struct act *x, int64_t *y, size_t ldy, uint32_t seg_cols,
                                 bool adds);
/* to's token i: that of x which the i-th choice is of, times its weight, as moe.c weighs inputs. */
void shaders_chosen_weigh(struct shaders *s, const struct shaders_chosen *c,
                          const struct act *to, const struct act *x);
/* The rows of choices plus their experts' biases [n_experts, stride]; times their weights. */
void shaders_chosen_add(struct shaders *s, const struct shaders_chosen *c, struct rows x,
                        const float *biases, size_t stride, uint32_t n);
void shaders_chosen_scale(struct shaders *s, const struct shaders_chosen *c, struct rows x,
                          uint32_t n);
/* shaders_fixed_bias() of all held experts of each token, by their weights. */
void shaders_chosen_fixed_bias(struct shaders *s, const struct shaders_chosen *c, int64_t *acc,
                               size_t ld_acc, const float *biases, size_t stride, uint32_t n);

/* ------------------------------------------------------------------------------------------- */

/* n bytes from one place of mapped memory to another, of each of n_rows rows; multiples of 4. */
void shaders_copy(struct shaders *s, void *to, size_t to_stride, const void *from,
                  size_t from_stride, size_t n, uint32_t n_rows);

#endif
