/* router.c: chooses the experts of a token, and their weights, on the processor: the definition of
 * route.comp. */
#include "shaders/router.h"

#include "base/exact.h"
#include "base/util.h"
#include "kernels/activation.h"

#include <math.h>

static float group_score(const struct router *r, const float *rank, uint32_t n) {
    float best = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if (rank[i] > best) {
            second = best;
            best = rank[i];
        } else if (rank[i] > second) {
            second = rank[i];
        }
    }
    return n == 1 || r->groups_by_best ? best : best + second;
}

/* Takes experts outside the best groups out of the race. Few groups: counted in squares. */
static void keep_best_groups(const struct router *r, float *rank) {
    uint32_t n = r->n_experts / r->n_groups;
    uint64_t keep[65536 / 64] = {0};
    for (uint32_t g = 0; g < r->n_groups; g++) {
        float mine = group_score(r, rank + g * n, n);
        uint32_t better = 0;
        for (uint32_t h = 0; h < r->n_groups; h++) {
            float other = group_score(r, rank + h * n, n);
            better += other > mine || (other == mine && h < g);
        }
        if (better < r->n_groups_used)
            keep[g / 64] |= (uint64_t)1 << g % 64;
    }
    for (uint32_t i = 0; i < r->n_experts; i++)
        if (!(keep[i / n / 64] >> i / n % 64 & 1))
            rank[i] = -INFINITY;
}

static void take_best(const struct router *r, float *rank, const float *probs,
                      struct choice *out) {
    for (uint32_t j = 0; j < r->n_used; j++) {
        uint32_t best = 0;
        bool found = false;
        for (uint32_t i = 0; i < r->n_experts; i++)
            if (rank[i] == rank[i] && (!found || rank[i] > rank[best])) {
                best = i;
                found = true;
            }
        out[j] = (struct choice){best, probs[best]};
        rank[best] = NAN; /* taken */
    }
}

static void choose(const struct router *r, const float *probs, float *rank,
                   struct choice *out) {
    for (uint32_t i = 0; i < r->n_experts; i++) {
        float v = probs[i] + (r->choice_bias != NULL ? r->choice_bias[i] : 0.0f);
        /* A broken model's are the last, but some: no expert is chosen twice. */
        rank[i] = v == v ? v : -INFINITY;
    }
    if (r->n_groups > 1)
        keep_best_groups(r, rank);
    take_best(r, rank, probs, out);
}

static bool is_among(const struct choice *list, uint32_t n, uint32_t expert) {
    for (uint32_t j = 0; j < n; j++)
        if (list[j].expert == expert)
            return true;
    return false;
}

/* No expert is there twice: where one is given again, another takes its place and has no weight. */
static void take_given(const struct router *r, const int32_t *given, const float *probs,
                       struct choice *out) {
    for (uint32_t j = 0; j < r->n_used; j++)
        out[j] = (struct choice){(uint32_t)given[j], probs[given[j]]};
    for (uint32_t j = 1; j < r->n_used; j++) {
        uint32_t first = 0, other = 0;
        while (out[first].expert != out[j].expert)
            first++;
        if (first == j)
            continue;
        out[first].weight += out[j].weight;
        while (is_among(out, r->n_used, other))
            other++;
        out[j] = (struct choice){other, 0.0f};
    }
}

void router_choose(const struct kernels *k, const struct router *r, float *logits,
                   const int32_t *given, float *scratch, struct choice *out) {
    if (r->bias != NULL)
        k->add(logits, r->bias, r->n_experts);
    if (r->gating == GATING_SOFTMAX)
        softmax(k, logits, r->n_experts);
    else if (r->gating == GATING_SIGMOID)
        sigmoids(k, logits, r->n_experts);
    else if (r->gating == GATING_SQRT_SOFTPLUS)
        for (uint32_t i = 0; i < r->n_experts; i++)
            logits[i] = exact_tidy(sqrtf(exact_softplus(logits[i])));
    if (given != NULL)
        take_given(r, given, logits, out);
    else
        choose(r, logits, scratch, out);

    float weights[256], sum = 0.0f;
    uint32_t n = MIN(r->n_used, (uint32_t)ARRAY_LEN(weights));
    for (uint32_t j = 0; j < n; j++)
        weights[j] = out[j].weight;
    if (r->gating == GATING_SOFTMAX_CHOSEN)
        softmax(k, weights, n);
    for (uint32_t j = 0; j < n; j++)
        sum += weights[j];
    sum = sum > ROUTER_LEAST_SUM ? sum : ROUTER_LEAST_SUM;
    for (uint32_t j = 0; j < n; j++) {
        if (r->normalize)
            weights[j] /= sum;
        out[j].weight = exact_tidy(weights[j] * r->scale);
        if (r->expert_scale != NULL)
            out[j].weight = exact_tidy(out[j].weight * r->expert_scale[out[j].expert]);
    }
}
