/* placement.h: how many tensor ranks times how many pipeline stages, and each rank's share. It
 * predicts every possible layout from the speed of the machines and wires. Pure functions:
 * measurements come from calibration.h, or from a user's numbers for imagined machines
 * (lockstep plan --bandwidth).
 *
 * The time of one stream's token, from an empty context, for pp stages of tp ranks
 * (docs/links.md):
 *
 *   reading    sum over stages of max over its members of (its bytes of a token's weights / its
 *              rate), of the experts and of the rest, one after the other
 *   between    layers * sums a layer * sum_s
 *              + (pp - 1) * hand_s                      the hidden state, from stage to stage
 *              + answer_s - (tp == 1 ? hand_s : 0)      the step's words there and the logits back
 *   crossings  sum over stages of (1 + its layers' waits) * crossing_s
 *                                                       of ranks on devices (model_layer_waits)
 *
 * A layer has two sums, or three with a norm over the heads of all ranks (QK_NORM_ROW). Stages
 * wait for each other, so only tp divides the reading. The step's words reach the last stage of
 * a pipeline long before the hidden state does, so only tensor ranks wait for them. Bytes are
 * those of this very plan (model_measure): slices as packed, the expected part of the experts
 * that are used, and what several ranks keep twice. Attention over a long context and the rest
 * of a step's computation are left out: they are the same everywhere, or small.
 *
 * With EXPERTS_AUTO, a team of ranks on devices and on processors has one candidate more: all but
 * the experts is on the devices, and the experts are divided by rates and by the memory that is
 * left. It is for models that the devices alone cannot hold.
 *
 * Prompts are predicted only where the int8 rates are given. All ranks work at the same time, and
 * the slowest of them counts; the output matrix and attention are left out. The bytes of the sums,
 * or of the hidden state, go over the wires at the same time, where their bandwidth is known: the
 * longer of the two counts.
 *
 * Shares follow the rates, since for a prompt and for many requests all ranks work at the same
 * time. They stay within the ranks' memory: what does not fit one goes to the others in
 * proportion. Rates within PLACEMENT_ALIKE of the fastest of their kind count as equal. Shares
 * become small whole numbers if any are near, so that a measurement's noise gives no lopsided
 * split. */
#ifndef LOCKSTEP_RANKS_PLACEMENT_H
#define LOCKSTEP_RANKS_PLACEMENT_H

#include "model/model.h"

#define PLACEMENT_ALIKE 0.15
#define PLACEMENT_MAX 13 /* divisors of a number up to PLAN_MAX_RANKS, and one more */

/* What one rank has. */
struct placement_machine {
    uint64_t memory_bytes; /* that it may take; 0: unknown, everything fits */
    double rate; /* bytes/s at which it reads weights for a token, with all its threads; > 0 */
    int n_threads;
    /* of a rank on a device: from a submission to its result on the host; 0: on the processor */
    double crossing_s;
    double int8_ops; /* operations/s, 2 for each multiply-add of bytes; 0: unknown */
};

/* Seconds that exchanges keep a token waiting, by the tp of a layout; INFINITY: it cannot have
 * them. */
struct placement_wires {
    /* an exact sum of n_embd numbers over tp ranks: [tp] > 1 */
    double sum_s[PLAN_MAX_RANKS + 1];
    double hand_s[PLAN_MAX_RANKS +
                  1]; /* n_embd floats from one stage to the next: [tp] < n_ranks */
    /* a word from rank 0 to all, and the logits back to it */
    double answer_s[PLAN_MAX_RANKS + 1];
    double bandwidth; /* bytes/s between the two that are slowest, for prompts; 0: unknown */
};
/* Where every exchange takes the same time. */
void placement_wires_set(struct placement_wires *w, double exchange_s);

struct placement_wish {
    const struct gguf *g;
    const struct hparams *hp;
    const struct model_config *cfg;
    enum experts_mode experts;
    uint64_t processors; /* bit r: rank r is on one, others on devices; for the experts */
    int n_ranks;
    const struct placement_machine *machines; /* [n_ranks] */
    const struct placement_wires *wires;
    int tp, pp;           /* the only layout to look at; 0: all with tp * pp = n_ranks */
    const double *shares; /* as plan_make's weights; n_shares = 0: they are to be found */
    int n_shares;
};

struct placement_candidate {
    int tp, pp;
    int n_shares;
    /* [n_shares], for plan_make(); those found are [n_ranks], or [2 n_ranks] where experts are
     * divided otherwise than the rest */
    double shares[PLAN_MAX_WEIGHTS];
    bool by_memory;                 /* not by rates alone: these shares would not fit */
    struct plan plan;               /* made with them */
    uint64_t bytes[PLAN_MAX_RANKS]; /* [n_ranks] of memory: weights, KV cache, buffers */
    double read_s, between_s;       /* of a token */
    double prompt_s;   /* of a prompt's token, with the ranks' int8 rates; 0: unknown */
    double crossing_s; /* of the members that each stage waits for, as read_s */
    uint32_t n_waits;  /* for a device, of one rank of each stage: what crossing_s is made of */
    bool fits;
    char why_not[160]; /* "rank 2 would need 40.1 GB, has 32.0 GB" */
};

static inline double placement_tokens_per_s(const struct placement_candidate *c) {
    return 1 / (c->read_s + c->between_s + c->crossing_s);
}

struct placement {
    int n;
    /* the fastest first, what does not fit last */
    struct placement_candidate list[PLACEMENT_MAX];
};

/* Fills out (large: not for a stack) with the layouts for which plan_make() makes a plan;
 * ST_BAD_INPUT if there are none. It is not an error if nothing fits: list[0].fits is false
 * then. */
enum status placement_rank(struct placement *out, const struct placement_wish *wish,
                           struct err *err);

/* The same with some of the ranks alone (a bit each, the first always). Wires that were not
 * measured count as those of the next larger team. */
enum status placement_some(struct placement *out, const struct placement_wish *wish,
                           uint64_t keep, struct err *err);

/* Worth the others' absence: a prediction is not exact. */
#define PLACEMENT_FEWER_GAIN 1.1
struct placement_fewer {
    uint64_t keep; /* bits of the ranks; 0: all of them are the fastest */
    int n;
    double tokens_per_s;
};
/* Rank 0 with the fastest of the others. Is one stream faster there, by PLACEMENT_FEWER_GAIN,
 * than in the best layout of `all`? If the model does not fit all ranks because one lacks
 * memory for its part of what every rank has (a layer, buffers): does it fit those with the
 * most memory, and how many of them are the fastest? */
enum status placement_fewer(struct placement_fewer *out, const struct placement_wish *wish,
                            const struct placement *all, struct err *err);

/* "tensor2: rank 1 would need 40.1 GB, has 32.0 GB; pipeline2: ...", for when nothing fits. */
void placement_refusal(const struct placement *p, char *buf, size_t size);
/* "tensor2", "tensor2 with experts apart" */
void placement_layout_text(const struct placement_candidate *c, char *buf, size_t size);
/* Its shares: "equal shares", "shares 2,1", "shares 1,0, experts 0.4,0.6"; as much as fits, of the
 * first n ranks. */
void placement_candidate_shares_text(const struct placement_candidate *c, int n, char *buf,
                                     size_t size);
/* "equal shares", "shares 2,1": of n numbers; buf gets as much as fits. */
void placement_shares_text(const double *shares, int n, char *buf, size_t size);

#endif
