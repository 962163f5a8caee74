/* sampler.h: the next token from its logits. A pure function of (logits, mask, history,
 * settings, seed, index of the token). It is the same on every machine, since exp and log are
 * ours (exact.h) and every sum has one order.
 *
 * The order is that of other engines:
 *   1. repetition penalty on the last tokens, presence and frequency penalties on the generated
 *      ones, DRY, biases, the mask
 *   2. top-n-sigma; top-k, typical-p, top-p, min-p, XTC on the probabilities at temperature 1
 *   3. temperature, then one draw
 *
 * Candidates are ranked by logit, equal ones by id. Temperature 0 takes the first. Without
 * top-k, typical-p, top-p, min-p and XTC no ranking is needed, and the draw walks the vocabulary
 * in the order of the ids. */
#ifndef LOCKSTEP_ENGINE_SAMPLER_H
#define LOCKSTEP_ENGINE_SAMPLER_H

#include "base/status.h"
#include "engine/engine.h"
#include "kernels/kernels.h"

#include <stdint.h>

struct candidate {
    float logit, p;
    int32_t id;
};

/* The memory of one sampling at a time: one per thread. */
struct sampler {
    const struct kernels *kernels;
    uint32_t n_vocab, n_text;
    struct candidate *candidates; /* [n_vocab] */
    float *logits, *p;            /* [n_vocab] as changed by penalties; unnormalized weights */
    double *sums;                 /* of p by blocks of ids */
    uint32_t *counts;             /* [n_vocab] zero between calls */
};

/* n_vocab: of a row of logits. Only the first n_text of them are tokens; what is behind is padding
 * (tokenizer_facts), and never comes. */
enum status sampler_init(struct sampler *sm, const struct kernels *kernels, uint32_t n_vocab,
                         uint32_t n_text, struct err *err);
void sampler_deinit(struct sampler *sm);

/* ST_BAD_INPUT for settings that make no sense, with a sentence. */
enum status sampling_check(const struct engine_sampling *s, uint32_t n_vocab, struct err *err);

struct sampler_input {
    const float *logits;  /* [n_vocab], untouched */
    const uint64_t *mask; /* a bit for each token that may come, at least one; NULL: all */
    const int32_t
        *banned; /* [n_banned] tokens that may not come, not all that the mask allows */
    size_t n_banned;
    /* all tokens so far, the newest last; the new one's index follows */
    const int32_t *history;
    size_t n_history, n_prompt;
    const uint64_t *dry_breakers; /* if dry.multiplier is not 0 */
    uint64_t seed;                /* instead of that in the settings */
};

/* Allocates nothing. */
int32_t sampler_next(struct sampler *sm, const struct engine_sampling *s,
                     const struct sampler_input *in);

/* log softmax(logits)[id]; top [n_top] gets the most probable tokens, the best first. */
float sampler_logprobs(struct sampler *sm, const float *logits, int32_t id,
                       struct engine_top *top, int n_top);

/* With which probability sampler_next() of the same input gives the token id. top [n_top] gets what
 * it may give, the likeliest first, with the probability as logprob; *n: how many these are. */
float sampler_chances(struct sampler *sm, const struct engine_sampling *s,
                      const struct sampler_input *in, int32_t id, struct engine_top *top,
                      int n_top, int *n);

#endif
