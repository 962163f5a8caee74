/* weights.h: one rank's share of a model's weights, packed for the kernels.
 *
 * weights_load() reads only the slices of the share and packs them with all threads of the pool
 * into one block of huge pages. It releases the file's pages meanwhile, so that nothing is
 * resident twice. The token embedding is not copied: its rows are read from the file's map when
 * a token comes (embed_row), so the GGUF must stay open. */
#ifndef LOCKSTEP_WEIGHTS_WEIGHTS_H
#define LOCKSTEP_WEIGHTS_WEIGHTS_H

#include "arch/hparams.h"
#include "base/pieces.h"
#include "base/pool.h"
#include "base/status.h"
#include "format/gguf.h"
#include "format/source.h"
#include "kernels/kernels.h"
#include "weights/plan.h"

#include <stdint.h>

/* Rows and columns of a matrix are those of this share; matrices that are not there have no
 * rows. */
struct ffn_weights {
    struct wmat gate, up; /* [ff, n_embd] */
    struct wmat down;     /* [n_embd, ff]: row-parallel */
};

struct moe_weights {
    struct wmat router;        /* [n_experts, n_embd]: whole on every rank */
    const float *router_bias;  /* [n_experts]; NULL: none */
    const float *router_scale; /* [n_embd]: of what it reads; NULL: it reads x_act */
    const float *expert_scale; /* [n_experts]: of the chosen weights; NULL: none */
    const float *choice_bias;  /* [n_experts]; NULL: none */
    const int32_t
        *of_token; /* [n_vocab, n_used]: experts, which are not chosen; NULL: they are */
    struct ffn_weights *experts;      /* [n_experts]; those that are not held have no rows */
    const float *gate_bias, *up_bias; /* [n_experts, bias_stride] of the columns held */
    const float *down_bias; /* [n_experts, n_embd]: on the stage's first member only */
    size_t bias_stride;
    float limit, shared_limit; /* hparams.expert_limit, ffn_limit */
    struct ffn_weights shared;
    struct wmat shared_router; /* [1, n_embd]: whole on every rank; no rows: none */
    /* Of experts in a latent space, which then stands for n_embd in theirs. */
    struct wmat latent_down;  /* [n_latent, n_embd]: whole on every rank; no rows: none */
    struct wmat latent_up;    /* [rows held of n_embd, n_latent] */
    const float *latent_norm; /* [n_latent], of the experts' sum; NULL: none */
};

struct mla_weights {
    struct wmat q_a;        /* [q_rank, n_embd]: whole; no rows: queries come from layer.q */
    const float *q_a_norm;  /* [q_rank] */
    struct wmat kv_a;       /* [kv_rank + n_rot, n_embd]: whole */
    const float *kv_a_norm; /* [kv_rank] */
    struct wmat *k_b;       /* [heads] of [kv_rank, nope] */
    struct wmat *v_b;       /* [heads] of [v_dim, kv_rank] */
};

/* Whole on every rank, but for q where each key-value head has its own (indexer_params.block). */
struct index_weights {
    struct wmat q;       /* [heads * k_dim, q_rank or n_embd] */
    struct wmat k;       /* [k_dim, n_embd] */
    struct wmat weights; /* [heads, n_embd] of the scores of heads; no rows: one head chooses */
    const float *q_norm, *k_norm, *k_norm_bias; /* [k_dim]; NULL: none */
};

/* What makes one key of a block of tokens; whole on every rank. Rows are head_dim or, where a block
 * overlaps the one before, twice that: first what it gives to the next block's key. */
struct compressor_weights {
    struct wmat kv, gate; /* [width, n_embd]; no rows: none */
    const float *ape;     /* [ratio, width rounded up to tiles]: added to the gates */
    const float *norm;    /* [dim] */
};

/* Attention to compressed keys (compressed.c); q and o of the layer are of the heads held. */
struct compressed_weights {
    uint32_t ratio;
    struct wmat q_a, kv; /* [q_rank, n_embd], [head_dim, n_embd]: whole, as all but out_a is */
    const float *q_a_norm, *kv_norm;
    struct compressor_weights keys, index;
    struct wmat index_q, index_weights; /* [heads * k_dim, q_rank], [heads, n_embd] */
    struct wmat *out_a; /* [groups held] of [o_rank, a group's heads * head_dim] */
};

/* Of a half layer, or of the end, where the residual streams are mixed (model/stream_mix.h). */
struct hyper_weights {
    struct wmat *fn; /* [n_fn] of [coefficients, HYPER_PIECE columns or fewer]; NULL: none */
    uint32_t n_fn;   /* pieces of all columns of the streams side by side */
    const float *scale, *base;
};
/* Columns of a piece: many, so that threads share them. */
#define HYPER_PIECE 1024
static inline uint32_t hyper_n_pieces(const struct hparams *hp) {
    return hp->n_streams * ((hp->n_embd + HYPER_PIECE - 1) / HYPER_PIECE);
}
/* Where piece i begins, and how many columns it has. No piece is of two streams. */
static inline uint32_t hyper_piece(const struct hparams *hp, uint32_t i, uint32_t *n_cols) {
    const uint32_t per_stream = hyper_n_pieces(hp) / hp->n_streams,
                   begin = i % per_stream * HYPER_PIECE;
    *n_cols = hp->n_embd - begin < HYPER_PIECE ? hp->n_embd - begin : HYPER_PIECE;
    return i / per_stream * hp->n_embd + begin;
}

struct recurrent_weights {
    uint32_t n_in, *in_at; /* [n_in] where in a row (recurrent_layout) the products begin */
    struct wmat *in;       /* [n_in] of x */
    uint32_t n_out;
    struct wmat *out; /* [n_out] pieces of [n_embd, columns held]: row-parallel */
    uint32_t out_segment;
    uint32_t index;            /* among the stage's recurrent layers */
    struct wmat decays, gates; /* by channel: [heads held * k_dim, k_dim] of low_at[0], [1] */
    const float *conv;         /* [channels, n_taps]: whole on every rank, like these: */
    const float *conv_k, *conv_v; /* where conv is that of q alone; NULL: conv has all */
    const float *conv_bias;       /* [channels]; NULL: none */
    const float *a, *dt_bias, *d; /* [heads]; NULL: none */
    const float *norm;            /* [v_dim], of Mamba-2 of all columns; NULL: none */
};

/* The end of a layer with inputs of its own (layer_input.c); whole on every rank. */
struct layer_input_weights {
    struct wmat gate;       /* [n_layer_input, n_embd]; no rows: none */
    struct wmat proj;       /* [n_embd, n_layer_input] */
    const float *post_norm; /* [n_embd] */
};

/* What a layer has where the residual stream is several (streams.c); whole on every rank. */
struct stream_weights {
    const float *router_norm;   /* [n_embd]; NULL: there is one stream */
    const float *router;        /* [n_streams, router_stride] */
    const float *predict;       /* [n_streams * n_streams, n_streams] */
    const float *correct;       /* [n_streams, n_streams] */
    const float *correct_scale; /* [n_embd] */
    size_t router_stride;
    struct wmat laurel_l;     /* [n_laurel, n_embd] */
    struct wmat laurel_r;     /* [n_embd, n_laurel] */
    const float *laurel_norm; /* [n_embd] */
};

struct layer_weights {
    const float *attn_norm;                /* [n_embd]; NULL: none */
    struct wmat q, k, v;                   /* [heads * head_dim, n_embd], [kv_heads * ...] */
    const float *q_bias, *k_bias, *v_bias; /* as the rows above; NULL: none */
    const float *q_norm, *k_norm; /* [head_dim], or as the rows (QK_NORM_ROW); NULL: none */
    const float *sinks;           /* [heads]; NULL: none */
    struct wmat head_gate; /* [heads, n_embd], or each head has v_dim rows; no rows: none */
    struct wmat o;         /* [n_embd, heads * out_dim]: row-parallel */
    const float *o_bias;   /* [n_embd]: on the stage's first member only */
    uint32_t o_segment;
    struct mla_weights mla;
    struct index_weights *index;           /* NULL: no indexer */
    struct compressed_weights *compressed; /* NULL: others */
    bool chooses; /* attends to chosen keys, its own indexer's or an earlier one's */
    struct recurrent_weights *recurrent;         /* NULL: attention */
    const float *attn_post_norm, *ffn_post_norm; /* [n_embd]; NULL: none */
    const float *ffn_norm;                       /* [n_embd]; NULL: none */
    struct ffn_weights ffn;                      /* dense layers */
    const float *gate_bias, *up_bias;            /* [ff] of the columns held; NULL: none */
    const float *down_bias; /* [n_embd]: on the stage's first member only */
    uint32_t ffn_segment;
    float ffn_limit;         /* hparams.ffn_limit */
    struct moe_weights *moe; /* NULL: dense */
    /* Where an FFN stands beside the experts, [n_embd]: of what it gives, of what they read and
     * of what they give. NULL: none does. */
    const float *dense_post_norm, *moe_norm, *moe_post_norm;
    struct layer_input_weights input;
    struct stream_weights streams;
    struct hyper_weights attn_hyper, ffn_hyper;
    const float *attn_score, *ffn_score; /* [n_embd]: of mixtures (depth.c); NULL: none */
    bool sparse;                         /* the gate counts from hparams.sparse_deviations on */
    const float *out_scale; /* [1]: the residual stream is multiplied by it; NULL: none */
    uint32_t attn;          /* its kind: hparams.attn */
    uint32_t window;        /* 0: none */
    uint32_t chunk;         /* 0: none */
    bool has_rope;
    bool has_mixer, has_ffn; /* attention or a recurrence; an FFN */
    bool has_kv;             /* keys and values of its own */
};

struct weights {
    uint32_t n_layers; /* of the stage */
    struct layer_weights *layers;
    const float *output_norm;       /* [n_embd]; last stage only, as: */
    const float *output_score;      /* [n_embd]: of a mixture (depth.c); NULL: none */
    struct wmat output;             /* [vocab rows, n_embd]; last stage only */
    const struct gguf_tensor *embd; /* token_embd.weight */
    const float *rope_factors;      /* [n_rot/2] divides the frequencies; NULL: none */
    /* Of the layers' inputs: their embeddings, of all layers side by side, and what makes this
     * stage's of the token's own embedding. */
    const struct gguf_tensor *input_embd; /* NULL: none */
    struct wmat input_proj;               /* [n_layers * n_layer_input, n_embd] */
    const float *input_norm;              /* [n_layer_input] */
    /* Of streams, each [n_streams - 1] of [n_embd, n_embd]: what makes the others of the first, on
     * the first stage, and what they count with in the end, on the last. */
    struct wmat *stream_in, *stream_out;
    struct hyper_weights hyper_end; /* last stage only */

    struct rows_here {
        struct gguf_tensor t; /* with data that came from elsewhere: */
        uint8_t *bytes;       /* owned; NULL: in the file */
    } embd_here, input_here;

    void **owned; /* the arrays above */
    size_t n_owned, cap_owned;
    /* owned: all matrices, and then, from matrix_bytes on, all vectors; either in pieces */
    uint8_t *block;
    size_t block_bytes, matrix_bytes;
    struct pieces matrices, others;
    bool has_type[QT_N];     /* of some matrix */
    size_t packed_bytes;     /* matrices */
    size_t replicated_bytes; /* norms, biases, factors */
    double token_bytes; /* of the matrices, read for one token: of the experts, those used */
    double token_macs;
    double expert_bytes;       /* of the experts, without shared ones */
    double token_expert_bytes; /* of those used for one token, and of shared ones beside them */
};

/* progress(user, fraction) is called on the calling thread; may be NULL. from: where the data
 * is, if the local file is only a header; otherwise NULL. piece_most: of the block's pieces
 * (pieces.h); 0: it is not cut. With `from`, only the share's own slices
 * are transferred, and only the packed weights are kept (and, on the first stage, the
 * embedding). */
enum status weights_load(struct weights *out, const struct gguf *g, const struct hparams *hp,
                         const struct share *share, const struct file_source *from,
                         size_t piece_most, struct pool *pool,
                         void (*progress)(void *user, double fraction), void *user,
                         struct err *err);
void weights_free(struct weights *w);

/* Row `id` of the embedding as f32: out [n_embd]. */
void weights_embed_row(const struct weights *w, int32_t id, float *out);
/* Values [begin, begin + n) of row `id` of the embeddings of the layers' inputs, somewhere in
 * buf. It has space for one more block (QK_K) on either side. */
const float *weights_input_row(const struct weights *w, int32_t id, uint32_t begin, uint32_t n,
                               float *buf);

/* What weights_load() would make of a share, from the header alone: shapes and sizes, no data.
 * Freed with weights_free(). */
enum status weights_describe(struct weights *out, const struct gguf *g,
                             const struct hparams *hp, const struct share *share,
                             struct err *err);

/* Checks every tensor that the model needs (names, shapes, types) without loading.
 * ST_UNSUPPORTED: there is one besides that would change its answers, as a bias has that the
 * architecture is not known to have. */
enum status weights_check(const struct gguf *g, const struct hparams *hp, struct err *err);

#endif
