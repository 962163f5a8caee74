/* model_internal.h: shared by model.c (opening) and forward.c (computing). */
#ifndef LOCKSTEP_MODEL_MODEL_INTERNAL_H
#define LOCKSTEP_MODEL_MODEL_INTERNAL_H

#include "base/async_worker.h"
#include "mixers/indexer.h"
#include "model/kv_prefault.h"
#include "model/model.h"
#include "model/recurrent_states.h"
#include "shaders/router.h"
#include "shaders/shaders_recurrent.h"
#include "weights/recurrent_layout.h"

/* Rows of logits computed and gathered at once. */
#define LOGIT_ROWS (4 * ACT_GROUP)
/* Query heads that a task keeps together even if threads stay idle. */
#define ATTN_LEAST 4

/* The same activations in the forms that the matrices reading them want. */
struct acts {
    struct act f32, q8;
};

/* Some of these forms. */
struct forms {
    bool f32, q8;
};

struct product;

/* cos and sin of the step's positions, for one set of frequencies. */
struct rope_angles {
    uint32_t n_pairs; /* 0: not used */
    double *freqs;    /* [n_pairs] */
    float *cos, *sin; /* [n, n_pairs] */
    float scale;
};

/* Latent attention; heads are this share's. */
struct mla_buffers {
    float *q_low; /* [n, ld_q_low]: of compressed.c too, and the packed ones */
    size_t ld_q_low;
    struct acts q_low_act;
    struct acts *nope_act, *result_act; /* [heads] of [n, nope], [n, kv_rank] */
    float *q_latent;                    /* [n, ld_latent]: heads latent_stride apart */
    size_t ld_latent, latent_stride;
    float *result;            /* [n, heads * kv_rank] */
    float *heads_out;         /* [n, heads, v_dim rounded up to tiles] */
    struct product *products; /* [heads] */
};

/* Choosers whose scores are there at once. */
#define INDEX_TOGETHER 32

/* The indexer (indexer.c). A chooser is a token's, or, where blocks are chosen, that of a token and
 * a key-value head of this share. */
struct index_buffers {
    const struct indexer_kernels *k;
    struct kv_shape shape;
    struct kv_cache kv; /* of index keys */
    struct kv_prefault *kv_prefault;
    float *q, *k_new, *weights; /* [n, ldq], [n, ldk], [n, ldw] */
    size_t ldq, ldk, ldw;
    uint32_t n_choosers; /* of a token */
    float *scores;       /* [INDEX_TOGETHER, ld_scores] */
    size_t ld_scores;
    uint32_t *chosen;   /* [n, n_choosers, ld_chosen] of the whole step; ascending positions */
    size_t ld_chosen;   /* 0: no context is so long that a selection is needed */
    uint32_t *n_chosen; /* [n, n_choosers] */
    const uint8_t **pages; /* [n_pages_max] of the running layer */
};

/* Attention to compressed keys (compressed.c); groups of heads are this share's. */
struct compressed_buffers {
    const struct indexer_kernels *k;
    struct kv_cache kv; /* COMPRESSED_PARTS of each layer of the stage */
    struct kv_prefault *kv_prefault;
    float *raw; /* [n, ld_raw]: products of x for compressed keys, and the index's weights */
    float *index_q;              /* [n, ld_index_q] */
    float *scores;               /* [INDEX_TOGETHER, ld_scores] of compressed keys */
    uint32_t *chosen, *n_chosen; /* [n, ld_chosen], [n] of the whole step; ascending blocks */
    size_t ld_raw, ld_index_q, ld_scores;
    size_t ld_chosen; /* 0: no context is so long that a selection is needed */
    uint8_t *seen;    /* [n_threads, seen_bytes]: what a token sees, copied side by side */
    const uint8_t **seen_pages; /* [n_threads, n_seen_pages] */
    size_t seen_bytes;
    uint32_t n_seen_pages, n_groups;
    struct acts *group_act; /* [n_groups]: results of a group's heads */
    float *low_out;         /* [n, n_groups, low_stride]: low-rank outputs, */
    float *low;             /* [n, n_groups, o_rank]: close together */
    size_t low_stride;
    struct product *products; /* [n_groups] */
};

/* Mixed residual streams (hyper.c). */
struct hyper_buffers {
    struct acts *act; /* [n_pieces] of all streams of a token side by side */
    uint32_t n_pieces;
    float *parts; /* [n_pieces, n, ld_mix]: products of these */
    float *mix;   /* [n, ld_mix]: their sums, then coefficients */
    size_t ld_mix;
};

/* Recurrent layers; heads and units are this share's. */
struct recurrent_buffers {
    const struct recurrent_kernels *k;
    struct recurrent_layout lay;
    float *rows;              /* [n, lay.ld]: products of x, changed in place */
    float *out;               /* [n, lay.out_ld] */
    struct acts low_act[2];   /* [k_dim]: of rows from lay.low_at on */
    float *q_scale, *k_scale; /* [k_dim]: what a delta net's normed queries, keys are times */
    struct acts *out_act;     /* [lay.n_pieces] of out */
    struct product *products; /* [n_in_max] */
    uint32_t n_in_max;
    uint32_t *in_order; /* [n] 0, 1, 2... */
    /* For a device: [n_heads]; and the step's [n_runs_max + MICROBATCHES_MAX - 1] */
    struct shaders_recurrent_head *heads;
    struct shaders_run *runs;
    bool groups_whole; /* of Mamba-2: each group's heads are on one rank */
};

/* The layers' own inputs (layer_input.c). */
struct layer_input_buffers {
    float *all;  /* [n, ld_all]: of all layers of the stage side by side */
    float *mid;  /* [n, ld_mid]: gates */
    float *out;  /* [n, ld_out] */
    float *rows; /* [n, ld_rows]: of the embeddings */
    size_t ld_all, ld_mid, ld_out, ld_rows;
    struct acts mid_act;
};

/* Several residual streams (streams.c). */
struct stream_buffers {
    float *all;    /* [n, n_streams, n_embd]; NULL: there is one */
    float *laurel; /* [n, n_embd] */
    float *low;    /* [n, ld_low] */
    float *square; /* [n, ld_square] */
    size_t ld_low, ld_square;
    struct acts low_act;
    float *gate_rows, *cutoffs; /* [n, ld_gate], [n]: of sparse gates (ffn.c) */
    size_t ld_gate;
};

/* The f32 values of gate, and of up, that a thread holds at a time; a token's n_ff fits in most
 * models. */
#define FFN_FLOATS 12288

/* The first half of an FFN, or of an expert: ffn_up_forward(). */
struct ffn_up {
    const struct wmat *gate, *up;
    const struct acts *x, *out;
    const float *gate_bias, *up_bias; /* [gate's rows]; NULL: none */
    const float *weights; /* [n_tokens] that a token's results are multiplied by; NULL: none */
    float limit;          /* ffn_activate()'s */
    /* gate x that is there already, [n_tokens, ld_gate], and what it counts from [n_tokens]; NULL:
     * it is computed, and counts as it is */
    const float *gate_rows, *cutoffs;
    size_t ld_gate;
};

struct moe_group {
    uint32_t expert, group;
};

/* With at most this many tokens, each thread adds up the experts' results by itself. */
#define MOE_FEW 8

/* Experts; rows are (token, expert) pairs sorted by expert, at most n * n_used of them. */
struct moe_buffers {
    float *logits; /* [n, ld_logits] */
    size_t ld_logits;
    float *router_scratch;    /* [n_threads, n_experts] */
    struct choice *choices;   /* [n, n_used] */
    uint32_t *first;          /* [n_experts + 1]: rows of expert e are first[e]..first[e+1] */
    uint32_t *filled;         /* [n_experts], zero between steps */
    uint32_t *active;         /* [n_active] experts with rows */
    uint32_t *slot;           /* [n_experts]: where an active one stands in active */
    uint32_t *tokens;         /* of the rows */
    float *weights;           /* of the rows, by the router */
    struct moe_group *groups; /* every group of ACT_GROUP rows of every active expert */
    size_t n_active, n_groups, n_ups;
    struct acts in_act, mid_act; /* of all rows; the experts' parts: */
    struct acts *in, *mid;       /* [n_experts] */
    struct ffn_up *ups;          /* [n_experts + 1] */
    int64_t *sums; /* [n_threads - 1, MOE_FEW, ld_acc]: of few tokens' down products */
    /* In a latent space: what the experts read, then the sum of what they give. */
    float *latents; /* [n, ld_latents] */
    size_t ld_latents;
    struct acts latent_act;
    uint32_t *in_order; /* [n] 0, 1, 2... */
};

/* A rank's device (on_device.c). Tables of a step are by layer, since what is recorded reads them
 * later. */
struct device_buffers {
    enum status st; /* the device's, by the thread that waited for it, before a barrier */
    struct err err;
    uint64_t *pages;               /* [n_layers, n_pages_max] of a layer's cache */
    uint64_t *token_pages;         /* [n_layers, n]: where a token's keys and values go */
    uint32_t *slots;               /* [n]: and in which position of that page */
    float *growths;                /* [n]: what queries are multiplied with */
    struct shaders_query *queries; /* [n_layers, n] */
    float *embeddings;             /* [n, n_embd] for x, which is the device's alone; or NULL */
    /* [DEVICE_FFN_TOKENS, ld_ff]; of experts [n choices, ld_expert] */
    float *gate, *up;
    size_t ld_ff, ld_expert;
    /* Experts: the matrices, [n_layers, 3, n_experts] of gate, up and down. What the device
     * chooses: routers' logits, [n, ld_logits + TILE_ROWS] with the shared experts' as the last
     * tile, and then the weights of these, [n]; the choices of a token. Choices of many tokens
     * grouped by expert; their sums [n, ld_acc], where acc is the host's, or NULL. */
    struct shaders_matrix *matrices;
    float *routing;
    struct choice *choices;
    uint32_t *groups;
    int64_t *sums;
    struct pieces inner, others; /* of the model's block */
    void **mapped; /* owned: [n_mapped] what the device knows of this rank's memory */
    size_t n_mapped, cap_mapped;
    struct device_counts counted; /* what is in times, or was before the first step */
};

struct model {
    const struct gguf *g;
    const struct hparams *hp;
    const struct share *share;
    struct plan plan;
    int rank;
    struct weights w;
    struct kv_cache kv;
    struct kv_prefault *kv_prefault; /* NULL: none */
    struct recurrent_states states;
    struct model_config cfg;
    struct pool *pool;
    const struct kernels *k;
    struct shaders *shaders; /* NULL: the pool computes */
    struct device_buffers on_device;
    struct fabric *f;  /* NULL: alone */
    struct team *team; /* of the stage; NULL if tp == 1 */
    struct team *all;  /* NULL if alone */
    /* tokens from which on a step takes MICROBATCHES_MAX microbatches; the same in a team */
    uint32_t microbatches_from;
    struct async_worker *
        async_worker; /* for sums in parallel to compute; NULL: no step has several microbatches */
    /* Long steps are sharded (forward.c); the same in a team, like the forms in which the
     * members' products read the inputs of a layer's halves (but for routers), and those of
     * latent queries. */
    bool shards;
    struct forms x_told, q_low_told;

    struct rope_angles rope[ATTN_KINDS_MAX];          /* each is of one kind or of several: */
    const struct rope_angles *angles[ATTN_KINDS_MAX]; /* of each kind of attention */

    /* Step buffers, in one block; n = n_tokens_max, all leading dimensions in elements. */
    uint8_t *block;
    size_t block_bytes, inner_bytes; /* the first are those of inner buffers (model.c) */
    float *x;                        /* [n, n_embd] residual stream */
    float *normed;                   /* [n, n_embd] */
    float *q, *k_new, *v_new;        /* [n, ldq], [n, ldk], [n, ldv] of this share's heads */
    size_t ldq, ldk, ldv;
    float *gates; /* [n, ld_gates]: of the heads, where each has one number */
    size_t ld_gates;
    float *att; /* [n, heads * out_dim] close together, at most ld_att */
    size_t ld_att;
    int64_t *acc; /* [n, ld_acc] fixed point */
    size_t ld_acc;
    struct acts x_act, att_act, ff_act;
    float *ffn_scratch;    /* [n_threads, 2 * FFN_FLOATS] */
    float *shared_logits;  /* [n, TILE_ROWS]: of a shared_router, whose only row is the first */
    float *shared_weights; /* [n]: sigmoids of these */
    struct acts shared_act;
    /* [n, n_embd]: what an FFN beside experts gave, normed; or what attention has read and the FFN
     * beside it will read */
    float *beside;
    float *
        router_in; /* [n, n_embd]: what the router reads where that is not x_act, and packed: */
    struct acts router_act;
    struct layer_input_buffers input;
    struct stream_buffers streams;
    float *kept; /* [n, streams kept, n_embd] (depth.c) */
    struct mla_buffers mla;
    struct index_buffers index;
    struct compressed_buffers compressed;
    struct hyper_buffers hyper;
    struct moe_buffers moe;
    struct recurrent_buffers recurrent;
    float *out_rows; /* [LOGIT_ROWS, n_embd] */
    float *logits;   /* [LOGIT_ROWS, ld_vocab] of this share */
    size_t ld_vocab;
    int32_t *suppressed; /* owned: [n_suppressed] rows of logits that are -INFINITY */
    size_t n_suppressed;
    float *gathered;           /* rank 0: [LOGIT_ROWS, n_vocab], part after part */
    float *logits_all;         /* rank 0: [LOGIT_ROWS, n_vocab] */
    const uint8_t **page_ptrs; /* [n_pages_max] of the running layer */
    size_t n_pages_max;
    struct step_run *microbatch_runs; /* [n_runs_max + MICROBATCHES_MAX - 1] */
    float *attn_scratch;              /* [n_threads, scratch_floats] */
    size_t scratch_floats;
    size_t *part_bytes; /* [n_ranks] for the gather */

    struct model_times times;
    struct trace trace; /* thread 0 */
};

/* Bytes of a page of a share's index keys, over its layers (model_sizes.c). */
size_t model_index_page_bytes(const struct hparams *hp, const struct share *sh,
                              enum kv_type type);

#endif
