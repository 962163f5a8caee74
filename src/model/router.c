/* router.c: Chooses the experts of a token, and their weights. */
#include "model/router.h"

#include "base/exact.h"
#include "base/util.h"
#include "kernels/activation.h"

#include <math.h>

/* The smallest sum that weights are divided by: the smallest normal half, as the reference
 * does. */
#define MIN_WEIGHT_SUM 6.103515625e-5f

static float group_score(const struct moe_params *p, const float *rank, uint32_t n) {
    float best = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if (rank[i] > best) {
            second = best;
            best = rank[i];
        } else if (rank[i] > second) {
            second = rank[i];
        }
    }
    return n == 1 || p->groups_by_best ? best : best + second;
}

/* Takes experts outside the best groups out of the race. Few groups: counted in squares. */
static void keep_best_groups(const struct moe_params *p, float *rank) {
    uint32_t n = p->n_experts / p->n_groups;
    uint64_t keep[65536 / 64] = {0};
    for (uint32_t g = 0; g < p->n_groups; g++) {
        float mine = group_score(p, rank + g * n, n);
        uint32_t better = 0;
        for (uint32_t h = 0; h < p->n_groups; h++) {
            float other = group_score(p, rank + h * n, n);
            better += other > mine || (other == mine && h < g);
        }
        if (better < p->n_groups_used)
            keep[g / 64] |= (uint64_t)1 << g % 64;
    }
    for (uint32_t i = 0; i < p->n_experts; i++)
        if (!(keep[i / n / 64] >> i / n % 64 & 1))
            rank[i] = -INFINITY;
}

static void take_best(const struct moe_params *p, float *rank, const float *probs,
                      struct choice *out) {
    for (uint32_t j = 0; j < p->n_used; j++) {
        uint32_t best = 0;
        bool found = false;
        for (uint32_t i = 0; i < p->n_experts; i++)
            if (rank[i] == rank[i] && (!found || rank[i] > rank[best])) {
                best = i;
                found = true;
            }
        out[j] = (struct choice){best, probs[best]};
        rank[best] = NAN; /* taken */
    }
}

static void choose(const struct moe_params *p, const float *probs, const float *choice_bias,
                   float *rank, struct choice *out) {
    for (uint32_t i = 0; i < p->n_experts; i++) {
        float r = probs[i] + (choice_bias != NULL ? choice_bias[i] : 0.0f);
        /* A broken model's are the last, but some: no expert is chosen twice. */
        rank[i] = r == r ? r : -INFINITY;
    }
    if (p->n_groups > 1)
        keep_best_groups(p, rank);
    take_best(p, rank, probs, out);
}

static bool is_among(const struct choice *list, uint32_t n, uint32_t expert) {
    for (uint32_t j = 0; j < n; j++)
        if (list[j].expert == expert)
            return true;
    return false;
}

/* No expert is there twice: where one is given again, another takes its place and has no weight. */
static void take_given(const struct moe_params *p, const int32_t *given, const float *probs,
                       struct choice *out) {
    for (uint32_t j = 0; j < p->n_used; j++)
        out[j] = (struct choice){(uint32_t)given[j], probs[given[j]]};
    for (uint32_t j = 1; j < p->n_used; j++) {
        uint32_t first = 0, other = 0;
        while (out[first].expert != out[j].expert)
            first++;
        if (first == j)
            continue;
        out[first].weight += out[j].weight;
        while (is_among(out, p->n_used, other))
            other++;
        out[j] = (struct choice){other, 0.0f};
    }
}

void router_choose(const struct kernels *k, const struct moe_params *p, float *logits,
                   const float *choice_bias, const int32_t *given, float *scratch,
                   struct choice *out) {
    if (p->gating == GATING_SOFTMAX)
        softmax(k, logits, p->n_experts);
    else if (p->gating == GATING_SIGMOID)
        sigmoids(k, logits, p->n_experts);
    else if (p->gating == GATING_SQRT_SOFTPLUS)
        for (uint32_t i = 0; i < p->n_experts; i++)
            logits[i] = exact_tidy(sqrtf(exact_softplus(logits[i])));
    if (given != NULL)
        take_given(p, given, logits, out);
    else
        choose(p, logits, choice_bias, scratch, out);

    float weights[256], sum = 0.0f;
    uint32_t n = MIN(p->n_used, (uint32_t)ARRAY_LEN(weights));
    for (uint32_t j = 0; j < n; j++)
        weights[j] = out[j].weight;
    if (p->gating == GATING_SOFTMAX_CHOSEN)
        softmax(k, weights, n);
    for (uint32_t j = 0; j < n; j++)
        sum += weights[j];
    sum = sum > MIN_WEIGHT_SUM ? sum : MIN_WEIGHT_SUM;
    for (uint32_t j = 0; j < n; j++) {
        if (p->normalize)
            weights[j] /= sum;
        out[j].weight = exact_tidy(weights[j] * p->scale);
    }
}
