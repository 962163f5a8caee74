/* plan.c: The plan: which rank holds which layers, heads, columns, experts and rows. */
#include "weights/plan.h"

#include "base/mem.h"
#include "base/util.h"
#include "kernels/kernels.h"
#include "weights/recurrent_layout.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bool plan_parse_layout(const char *text, int *tp, int *pp) {
    int end = 0;
    return sscanf(text, "tensor%4dxpipeline%4d%n", tp, pp, &end) == 2 && text[end] == '\0' &&
           *tp >= 1 && *pp >= 1 && *tp <= PLAN_MAX_RANKS && *pp <= PLAN_MAX_RANKS;
}

enum status plan_parse_parallel(const char *text, int n_ranks, int *tp, int *pp,
                                struct err *err) {
    if (n_ranks < 1 || n_ranks > PLAN_MAX_RANKS)
        return err_set(err, ST_BAD_INPUT, "%d ranks: expected 1 to %d", n_ranks,
                       PLAN_MAX_RANKS);
    int t = n_ranks, p = 1;
    if (text == NULL || str_eq(text, "auto") || str_eq(text, "tensor")) {
        /* as initialised */
    } else if (str_eq(text, "pipeline")) {
        t = 1;
        p = n_ranks;
    } else if (plan_parse_layout(text, &t, &p)) {
        if (t * p != n_ranks)
            return err_set(err, ST_BAD_INPUT, "%s needs %d ranks, but there are %d", text,
                           t * p, n_ranks);
    } else {
        return err_set(
            err, ST_BAD_INPUT,
            "unknown parallelism %s: expected auto, tensor, pipeline or something like "
            "tensor2xpipeline2",
            text);
    }
    *tp = t;
    *pp = p;
    return ST_OK;
}

enum status plan_parse_experts(const char *text, enum experts_mode *out, struct err *err) {
    if (text == NULL || str_eq(text, "auto"))
        *out = EXPERTS_AUTO;
    else if (str_eq(text, "slice"))
        *out = EXPERTS_SLICE;
    else if (str_eq(text, "whole"))
        *out = EXPERTS_WHOLE;
    else if (str_eq(text, "cpu"))
        *out = EXPERTS_CPU;
    else
        return err_set(err, ST_BAD_INPUT,
                       "unknown way to split experts %s: expected auto, slice, whole or cpu",
                       text);
    return ST_OK;
}

/* The fewest parts of this many columns each that are whole blocks of the type (superblocks may
 * be divided). */
static uint32_t parts_in_blocks(uint32_t n_cols, enum qtype type) {
    uint32_t n = 1;
    while (qtype_info(type)->block_values > 1 && (uint64_t)n * n_cols % ACT_BLOCK != 0)
        n++;
    return n;
}

uint32_t plan_attn_segment(uint32_t out_dim, enum qtype type) {
    if (act_kind_for(type) == ACT_F32)
        return out_dim; /* of f8_e4m3 too: the bits are those of f32 */
    return parts_in_blocks(out_dim, type) * out_dim;
}

uint32_t plan_ffn_segment(uint32_t n_ff) {
    uint32_t seg = n_ff & (0u - n_ff); /* the largest power of two that divides it */
    return MIN(seg, 256u);
}

uint32_t plan_expert_segment(uint32_t n_ff) {
    return MIN(plan_ffn_segment(n_ff),
               64u); /* experts are narrow: finer, so that many ranks share */
}

uint32_t plan_recurrent_segment(const struct hparams *hp, enum qtype type) {
    uint32_t own = recurrent_head_cols(hp), unit = recurrent_unit_cols(hp);
    if (act_kind_for(type) == ACT_F32 || own % ACT_BLOCK == 0)
        return own;
    return parts_in_blocks(unit, type) * unit;
}

/* The number of columns that must stay together: the most that any layer's blocks join, since
 * one plan serves all layers and their types may differ. */
static uint32_t joined_parts(const struct hparams *hp, const struct gguf *g, const char *matrix,
                             uint32_t n_cols) {
    uint32_t n = 1;
    for (uint32_t l = 0; l < hp->n_layers; l++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s.weight", l, matrix);
        const struct gguf_tensor *t = gguf_tensor(g, name);
        if (t != NULL)
            n = MAX(n, parts_in_blocks(n_cols, t->type));
    }
    return n;
}

/* Query heads that stay together: of a low-rank output those of whole groups. */
static uint32_t head_unit(const struct hparams *hp, const struct gguf *g,
                          const struct attn_kind *kind) {
    const struct compress_params *c = &hp->compress;
    if (c->n_groups == 0)
        return joined_parts(hp, g, "attn_output", hparams_out_dim(hp, kind));
    return kind->n_heads / c->n_groups * joined_parts(hp, g, "attn_output_b", c->o_rank);
}

/* Cuts n units into n_parts by weights: bounds[i] = round(n * (w0 + ... + w(i-1)) / sum w). */
static void cut(uint32_t n, const double *weights, int n_parts, uint32_t *bounds) {
    double sum = 0, upto = 0;
    for (int i = 0; i < n_parts; i++)
        sum += weights[i];
    bounds[0] = 0;
    for (int i = 0; i < n_parts; i++) {
        upto += weights[i];
        uint32_t b = (uint32_t)floor((double)n * (upto / sum) + 0.5);
        bounds[i + 1] = i + 1 == n_parts ? n : MIN(b, n);
    }
}

/* Bounds of the members' parts: columns of the shared experts, and columns of each expert or
 * numbers of experts. */
struct experts_cut {
    uint32_t shared[PLAN_MAX_RANKS + 1], units[PLAN_MAX_RANKS + 1];
};

static void cut_experts(struct experts_cut *c, const struct moe_params *moe,
                        const double *weights, const double *of_experts, int tp,
                        enum experts_mode mode) {
    memset(c, 0, sizeof *c);
    if (moe->n_experts == 0)
        return;
    uint32_t seg = plan_expert_segment(moe->n_ff);
    cut(mode == EXPERTS_WHOLE ? moe->n_experts : moe->n_ff / seg, of_experts, tp, c->units);
    for (int i = 0; i <= tp && mode != EXPERTS_WHOLE; i++)
        c->units[i] *= seg;
    if (moe->n_ff_shared == 0)
        return;
    seg = plan_ffn_segment(moe->n_ff_shared);
    cut(moe->n_ff_shared / seg, weights, tp, c->shared);
    for (int i = 0; i <= tp; i++)
        c->shared[i] *= seg;
}

/* Of a rank all but the experts, then the experts: each stage has some of both. */
static enum status check_apart(const double *weights, int tp, int pp, struct err *err) {
    for (int s = 0; s < 2 * pp; s++) {
        double sum = 0;
        for (int m = 0; m < tp; m++) {
            const double w = weights[s * tp + m];
            sum += w >= 0 ? w : NAN;
        }
        if (!(sum > 0) || !isfinite(sum))
            return err_set(err, ST_BAD_INPUT,
                           "the split of %s makes no sense for stage %d of the pipeline",
                           s < pp ? "layers" : "experts", s % pp);
    }
    return ST_OK;
}

static enum status check_weights(const double *weights, int n_weights, int tp, int pp,
                                 struct err *err) {
    if (n_weights == 2 * tp * pp)
        return check_apart(weights, tp, pp, err);
    if (n_weights != 0 && n_weights != tp && n_weights != pp && n_weights != tp * pp) {
        if (tp == 1 || pp == 1)
            return err_set(err, ST_BAD_INPUT,
                           "the split has %d weights, but there are %d ranks", n_weights,
                           tp * pp);
        return err_set(
            err, ST_BAD_INPUT,
            "the split has %d weights: expected %d (members of a stage), %d (stages) or "
            "%d (ranks)",
            n_weights, tp, pp, tp * pp);
    }
    for (int i = 0; i < n_weights; i++)
        if (!(weights[i] > 0) || !isfinite(weights[i]))
            return err_set(err, ST_BAD_INPUT,
                           "weight %d of the split is %g: expected more than 0", i + 1,
                           weights[i]);
    return ST_OK;
}

/* Layers from `first` on count as one, which is not cut. */
static void join_layers(uint64_t *bytes, uint32_t n_layers, uint32_t first) {
    for (uint32_t l = first + 1; l < n_layers; l++)
        bytes[first] += bytes[l];
}

/* Bytes as in the file: packed ones differ by a few vectors and rows of padding. */
static enum status cut_stages(uint32_t *bounds, const struct hparams *hp, const struct gguf *g,
                              const double *weights, int pp, struct err *err) {
    uint64_t *bytes = mem_calloc(hp->n_layers, sizeof *bytes);
    if (bytes == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to plan %u layers", hp->n_layers);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        unsigned long l =
            str_starts(t->name, "blk.") ? strtoul(t->name + 4, NULL, 10) : ULONG_MAX;
        if (l < hp->n_layers)
            bytes[l] += t->size_bytes;
    }
    const struct gguf_tensor *output =
        gguf_tensor(g, hp->tied ? "token_embd.weight" : "output.weight");
    const uint32_t joined = MIN(hparams_first_joined(hp), hp->n_layers - 1);
    join_layers(bytes, hp->n_layers, joined);
    enum status st = plan_cut_stages(bounds, bytes, joined + 1,
                                     output != NULL ? output->size_bytes : 0, weights, pp, err);
    for (int i = 0; i <= pp && st == ST_OK; i++)
        bounds[i] = bounds[i] > joined ? hp->n_layers : bounds[i];
    mem_free(bytes);
    return st;
}

/* The weight of every rank, and of every stage: the sum of its ranks'. */
static void spread_weights(double *of_ranks, double *of_stages, const double *given,
                           int n_given, int tp, int pp) {
    for (int s = 0; s < pp; s++) {
        of_stages[s] = 0;
        for (int m = 0; m < tp; m++) {
            int r = s * tp + m;
            of_ranks[r] = n_given == 0         ? 1.0
                          : n_given >= tp * pp ? given[r]
                          : n_given == tp      ? given[m]
                                               : given[s];
            of_stages[s] += of_ranks[r];
        }
    }
}

int plan_experts_apart(double out[PLAN_MAX_WEIGHTS], const double *weights, int n_weights,
                       int tp, int pp, uint64_t processors) {
    double of_ranks[PLAN_MAX_RANKS], of_stages[PLAN_MAX_RANKS];
    const bool fits =
        n_weights == 0 || n_weights == tp || n_weights == pp || n_weights == tp * pp;
    bool any = false;
    if (fits)
        spread_weights(of_ranks, of_stages, weights, n_weights, tp, pp);
    for (int s = 0; s < pp && fits; s++) {
        const uint64_t members = UINT64_MAX >> (64 - tp), theirs = processors >> (s * tp);
        const bool both = (theirs & members) != 0 && (~theirs & members) != 0;
        any |= both;
        for (int r = s * tp; r < (s + 1) * tp; r++) {
            const bool on_processor = (processors >> r & 1) != 0;
            out[r] = both && on_processor ? 0 : of_ranks[r];
            out[tp * pp + r] = both && !on_processor ? 0 : of_ranks[r];
        }
    }
    for (int i = 0; i < n_weights && !any; i++)
        out[i] = weights[i];
    return any ? 2 * tp * pp : n_weights;
}

/* How a stage's members divide what each of its layers has: bounds in units, member m from [m] to
 * [m + 1]. */
struct heads_cut {
    uint32_t bounds[PLAN_MAX_RANKS + 1], unit; /* in heads */
};
struct ff_cut {
    uint32_t bounds[PLAN_MAX_RANKS + 1], segment; /* in columns */
};
struct members_cut {
    struct heads_cut heads[ATTN_KINDS_MAX];
    struct ff_cut ffs[FF_WIDTHS_MAX];
    uint32_t tiles[PLAN_MAX_RANKS + 1], embd_tiles[PLAN_MAX_RANKS + 1];
    struct experts_cut experts;
    uint32_t units[PLAN_MAX_RANKS + 1], n_joined; /* of recurrent layers, n_joined together */
};

static struct head_share share_heads(const struct heads_cut *c, const struct attn_kind *kind,
                                     int m) {
    uint32_t group = kind->n_heads / kind->n_kv_heads;
    struct head_share h = {.begin = MIN(c->bounds[m] * c->unit, kind->n_heads),
                           .end = MIN(c->bounds[m + 1] * c->unit, kind->n_heads)};
    h.kv_begin = h.begin / group;
    h.kv_end = h.begin == h.end ? h.kv_begin : (uint32_t)div_up(h.end, group);
    return h;
}

static void share_layers(struct share *sh, const struct members_cut *c,
                         const struct hparams *hp, enum experts_mode experts, int m) {
    bool whole = experts == EXPERTS_WHOLE;
    sh->shared_begin = c->experts.shared[m];
    sh->shared_end = c->experts.shared[m + 1];
    sh->expert_begin = whole ? c->experts.units[m] : 0;
    sh->expert_end = whole ? c->experts.units[m + 1] : hp->moe.n_experts;
    sh->expert_ff_begin = whole ? 0 : c->experts.units[m];
    sh->expert_ff_end = whole ? hp->moe.n_ff : c->experts.units[m + 1];
    sh->embd_begin = MIN(c->embd_tiles[m] * TILE_ROWS, hp->n_embd);
    sh->embd_end = MIN(c->embd_tiles[m + 1] * TILE_ROWS, hp->n_embd);
    for (uint32_t i = 0; i < hp->n_attn; i++)
        sh->heads[i] = share_heads(&c->heads[i], &hp->attn[i], m);
    sh->unit_begin = MIN(c->units[m] * c->n_joined, recurrent_n_units(hp));
    sh->unit_end = MIN(c->units[m + 1] * c->n_joined, recurrent_n_units(hp));
    for (uint32_t i = 0; i < hp->n_ff_widths; i++)
        sh->ff[i] = (struct ff_share){c->ffs[i].bounds[m] * c->ffs[i].segment,
                                      c->ffs[i].bounds[m + 1] * c->ffs[i].segment};
    if (sh->last_stage) {
        sh->vocab_begin = MIN(c->tiles[m] * TILE_ROWS, hp->n_vocab);
        sh->vocab_end = MIN(c->tiles[m + 1] * TILE_ROWS, hp->n_vocab);
    }
}

/* What is added up in fixed point for one value of a token: the segments of all ranks and a bias.
 * */
static enum status check_terms(const struct hparams *hp, const struct gguf *g,
                               struct err *err) {
    const struct moe_params *moe = &hp->moe;
    uint64_t most = 0;
    for (uint32_t i = 0; i < hp->n_attn; i++)
        most = MAX(most, (uint64_t)hp->attn[i].n_heads + 1);
    for (uint32_t i = 0; i < hp->n_ff_widths; i++)
        most = MAX(most, (uint64_t)hp->ff_widths[i] / plan_ffn_segment(hp->ff_widths[i]) + 1);
    if (moe->n_experts != 0) {
        uint64_t each = moe->n_ff / plan_expert_segment(moe->n_ff) + 1;
        uint64_t shared =
            moe->n_ff_shared != 0 ? moe->n_ff_shared / plan_ffn_segment(moe->n_ff_shared) : 0;
        most = MAX(most, moe->n_used * each + shared);
        if (moe->n_latent != 0)
            most = MAX(most, moe->n_latent / plan_ffn_segment(moe->n_latent) + shared);
    }
    if (hp->recurrent.kind != RECURRENT_NONE)
        most = MAX(most, (uint64_t)recurrent_out_cols(hp) / recurrent_head_cols(hp));
    if (most <= FIXED_TERMS_MAX)
        return ST_OK;
    return err_set(err, ST_BAD_INPUT,
                   "%s: its widths make sums of %llu segments, of which at most %d are added "
                   "up exactly",
                   gguf_path(g), (unsigned long long)most, FIXED_TERMS_MAX);
}

enum status plan_make(struct plan *out, const struct hparams *hp, const struct gguf *g, int tp,
                      int pp, const double *weights, int n_weights, enum experts_mode experts,
                      struct err *err) {
    BUG_ON(tp < 1 || pp < 1 || tp * pp > PLAN_MAX_RANKS);
    TRY(check_terms(hp, g, err));
    TRY(check_weights(weights, n_weights, tp, pp, err));
    double w[PLAN_MAX_RANKS], w_stage[PLAN_MAX_RANKS];
    uint32_t layers[PLAN_MAX_RANKS + 1];
    spread_weights(w, w_stage, weights, n_weights, tp, pp);
    const double *of_experts = n_weights == 2 * tp * pp ? weights + (size_t)tp * (size_t)pp : w;
    TRY(cut_stages(layers, hp, g, w_stage, pp, err));

    struct plan p = {.n_ranks = tp * pp, .tp = tp, .pp = pp};
    struct members_cut c = {
        .n_joined = hp->recurrent.kind == RECURRENT_NONE
                        ? 1
                        : joined_parts(hp, g, recurrent_out_name(hp), recurrent_unit_cols(hp)),
    };
    for (uint32_t i = 0; i < hp->n_attn; i++)
        c.heads[i].unit = head_unit(hp, g, &hp->attn[i]);
    for (uint32_t i = 0; i < hp->n_ff_widths; i++)
        c.ffs[i].segment = plan_ffn_segment(hp->ff_widths[i]);
    for (int s = 0; s < pp; s++) {
        const double *ws = w + s * tp;
        for (uint32_t i = 0; i < hp->n_attn; i++)
            cut((uint32_t)div_up(hp->attn[i].n_heads, c.heads[i].unit), ws, tp,
                c.heads[i].bounds);
        for (uint32_t i = 0; i < hp->n_ff_widths; i++)
            cut(hp->ff_widths[i] / c.ffs[i].segment, ws, tp, c.ffs[i].bounds);
        cut((uint32_t)div_up(hp->n_vocab, TILE_ROWS), ws, tp, c.tiles);
        cut((uint32_t)div_up(hp->n_embd, TILE_ROWS), ws, tp, c.embd_tiles);
        cut((uint32_t)div_up(recurrent_n_units(hp), c.n_joined), ws, tp, c.units);
        cut_experts(&c.experts, &hp->moe, ws, of_experts + s * tp, tp, experts);
        for (int m = 0; m < tp; m++) {
            struct share *sh = &p.shares[s * tp + m];
            *sh = (struct share){.stage = s,
                                 .member = m,
                                 .last_stage = s == pp - 1,
                                 .layer_begin = layers[s],
                                 .layer_end = layers[s + 1]};
            share_layers(sh, &c, hp, experts, m);
        }
    }
    *out = p;
    return ST_OK;
}

void plan_text(const struct plan *plan, char *buf, size_t size) {
    if (plan->n_ranks == 1)
        snprintf(buf, size, "one rank");
    else if (plan->pp == 1)
        snprintf(buf, size, "tensor%d", plan->tp);
    else if (plan->tp == 1)
        snprintf(buf, size, "pipeline%d", plan->pp);
    else
        snprintf(buf, size, "tensor%dxpipeline%d", plan->tp, plan->pp);
}
