/* plan.h: the split of a model over ranks. A pure function of the model and the wanted shares,
 * so every rank computes the same plan by itself.
 *
 * A group of n_ranks = tp * pp ranks is pp pipeline stages of tp ranks each. Rank r is member r
 * % tp of stage r / tp. A stage holds a run of layers, divided by the bytes of the weights. (It
 * has none if there are more stages than layers; then it passes on what it gets.) Its members
 * split every layer by units (docs/numerics.md): query heads (in whole attention segments), FFN
 * segments, tiles of vocabulary rows. The last stage holds the output matrix. No stage holds
 * the embedding, since its rows are read from the file. */
#ifndef LOCKSTEP_WEIGHTS_PLAN_H
#define LOCKSTEP_WEIGHTS_PLAN_H

#include "arch/hparams.h"
#include "base/status.h"
#include "format/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLAN_MAX_RANKS 64
#define PLAN_MAX_WEIGHTS (2 * PLAN_MAX_RANKS)

/* Of layers of one kind of attention. */
struct head_share {
    uint32_t begin, end;       /* query heads */
    uint32_t kv_begin, kv_end; /* the kv heads that these need; may overlap the neighbours' */
};

struct ff_share {
    uint32_t begin, end; /* columns */
};

/* One rank's share; all ranges half open, empty ranges are legal. */
struct share {
    int stage, member;
    bool last_stage; /* holds the output matrix */
    uint32_t layer_begin, layer_end;
    struct head_share heads[ATTN_KINDS_MAX]; /* by hparams.attn */
    uint32_t unit_begin, unit_end;           /* of recurrent layers (recurrent.h) */
    struct ff_share ff[FF_WIDTHS_MAX];       /* of dense layers, by hparams.ff_widths */
    uint32_t shared_begin, shared_end;       /* columns of the shared experts */
    uint32_t expert_begin, expert_end;       /* experts held */
    uint32_t expert_ff_begin, expert_ff_end; /* and the columns held of each */
    uint32_t embd_begin, embd_end;           /* rows of ffn_latent_up (moe_params.n_latent) */
    uint32_t vocab_begin,
        vocab_end; /* rows of the output matrix; empty but on the last stage */
};

/* How experts are split: a slice of each (balanced for any routing), or whole ones. Or slices on
 * the ranks on processors, and all else on those on devices: plan_experts_apart(). Or slices, as
 * placement finds best. */
enum experts_mode { EXPERTS_SLICE, EXPERTS_WHOLE, EXPERTS_CPU, EXPERTS_AUTO };

struct plan {
    int n_ranks, tp, pp;
    struct share shares[PLAN_MAX_RANKS];
};

/* "tensor2xpipeline3": 2 and 3, each up to PLAN_MAX_RANKS. */
bool plan_parse_layout(const char *text, int *tp, int *pp);
/* "auto", "tensor", "pipeline", "tensor2xpipeline3" with n_ranks -> tp, pp. A NULL is "auto",
 * which is tensor. */
enum status plan_parse_parallel(const char *text, int n_ranks, int *tp, int *pp,
                                struct err *err);

/* ST_BAD_INPUT also for a model whose exact sums would have more than FIXED_TERMS_MAX terms.
 *
 * weights: n_weights relative numbers > 0: 0 of them (equal), tp (members of every stage), pp
 * (stages), or n_ranks. If tp == pp, they are the members'. Or 2 n_ranks, of which any may be 0,
 * but not all of a stage: what ranks hold of all but the experts, then what they hold of these. */
enum status plan_make(struct plan *out, const struct hparams *hp, const struct gguf *g, int tp,
                      int pp, const double *weights, int n_weights, enum experts_mode experts,
                      struct err *err);
/* Such weights, from n_weights of the other kinds: where a stage has ranks in `processors` and
 * others, these have the experts, and the others have all else. Returns how many; without such a
 * stage they are copied as they are. */
int plan_experts_apart(double out[PLAN_MAX_WEIGHTS], const double *weights, int n_weights,
                       int tp, int pp, uint64_t processors);
/* The run of layers of each of n stages, [bounds[s], bounds[s + 1]). A stage's load is its
 * bytes per unit of its share; the largest load is the smallest that whole layers allow. Every
 * stage has a layer if there are enough; the last one has the output matrix too. A step of many
 * tokens reads all these bytes, and a machine must hold them. For a single token all divisions
 * are equally fast, since the stages wait for each other.
 *
 *   layer_bytes  [n_layers], with output_bytes together below 2^64
 *   shares       [n] relative, > 0, finite
 *   bounds       [n + 1] out */
enum status plan_cut_stages(uint32_t *bounds, const uint64_t *layer_bytes, uint32_t n_layers,
                            uint64_t output_bytes, const double *shares, int n,
                            struct err *err);

/* "slice", "whole", "cpu", "auto"; NULL is auto. */
enum status plan_parse_experts(const char *text, enum experts_mode *out, struct err *err);

/* "one rank", "tensor3", "pipeline2", "tensor2xpipeline2" */
void plan_text(const struct plan *plan, char *buf, size_t size);

/* Segment lengths in columns (docs/numerics.md). */
uint32_t plan_attn_segment(uint32_t out_dim, enum qtype type);
uint32_t plan_ffn_segment(uint32_t n_ff);
uint32_t plan_expert_segment(uint32_t n_ff);
/* Of a recurrent layer's output product. */
uint32_t plan_recurrent_segment(const struct hparams *hp, enum qtype type);

#endif
