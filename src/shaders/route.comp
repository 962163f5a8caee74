/* route.comp: router_choose() of router.h, with the router's bias before it, and the shared experts'
 * weight. A workgroup has a token. Sums are in the order of the experts, by each lane for itself. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
/* SHADERS_EXPERTS_MAX, SHADERS_USED_MAX and SHADERS_EXPERT_GROUPS_MAX */
#define EXPERTS 1024
#define USED 64
#define GROUPS 64
#define LANES 256u /* at least USED */
layout(local_size_x = 256) in;
/* enum gating */
#define SOFTMAX 0u
#define SIGMOID 1u
#define SOFTMAX_CHOSEN 2u
layout(push_constant) uniform P {
    uvec2 logits, bias, choice_bias, expert_scale; /* biases, scale: 0: none */
    uvec2 choices; /* expert and weight */
    uvec2 shared_logits, shared_weights; /* 0: none */
    uint ld_logits, ld_shared, n_experts, n_used;
    uint n_groups, n_groups_used, groups_by_best, gating, normalize;
    float scale;
} p;
shared float value[EXPERTS]; /* of the experts, and in the end of the chosen ones */
shared float ranks[EXPERTS], of_group[GROUPS], chosen_value[USED];
shared uint chosen[USED];

uint lane;

bool above(float a, float b) { return !is_nan(a) && !is_nan(b) && a > b; }

/* Of a and b, the n-th and the m-th: whether a comes first. */
bool precedes(float a, uint n, float b, uint m) {
    return above(a, b) || (!is_nan(a) && a == b && n < m);
}

/* Of the first n values. */
void softmax(uint n) {
    float most = -INF, sum = 0.0;
    for (uint i = 0u; i < n; i++)
        if (!is_nan(value[i]) && value[i] > most) most = value[i];
    barrier();
    for (uint i = lane; i < n; i += LANES) value[i] = exp_(add_(value[i], -most));
    barrier();
    for (uint i = 0u; i < n; i++) sum = add_(sum, value[i]);
    barrier();
    for (uint i = lane; i < n; i += LANES) value[i] = tidy_(div_(value[i], sum));
    barrier();
}

float logit(uint i) {
    float x = Floats(further(p.logits, gl_WorkGroupID.x * 4u, p.ld_logits)).at[i];
    return p.bias != uvec2(0u) ? tidy_(add_(x, Floats(p.bias).at[i])) : x;
}

/* One more after the experts: the shared ones. A function is copied to each of its calls, and code
 * is large enough. */
void take_logits() {
    const bool has_shared = p.shared_logits != uvec2(0u);
    for (uint i = lane; i < p.n_experts + (has_shared ? 1u : 0u); i += LANES) {
        const bool is_shared = i == p.n_experts;
        float x = is_shared ? Floats(further(p.shared_logits, gl_WorkGroupID.x * 4u, p.ld_shared)).at[0]
                            : logit(i);
        if (is_shared || p.gating == SIGMOID) x = tidy_(div_(1.0, add_(1.0, exp_(-x))));
        if (is_shared) Floats(p.shared_weights).at[gl_WorkGroupID.x] = x;
        else value[i] = x;
    }
    barrier();
}

float group_score(uint begin, uint n) {
    float best = -INF, second = -INF;
    for (uint i = begin; i < begin + n; i++) {
        if (ranks[i] > best) {
            second = best;
            best = ranks[i];
        } else if (ranks[i] > second) {
            second = ranks[i];
        }
    }
    return n == 1u || p.groups_by_best != 0u ? best : add_(best, second);
}

/* Experts outside the best groups are out of the race. */
void keep_best_groups() {
    uint n = p.n_experts / p.n_groups;
    if (lane < p.n_groups) of_group[lane] = group_score(lane * n, n);
    barrier();
    for (uint i = lane; i < p.n_experts; i += LANES) {
        uint g = i / n, better = 0u;
        for (uint h = 0u; h < p.n_groups; h++)
            if (precedes(of_group[h], h, of_group[g], g)) better++;
        if (better >= p.n_groups_used) ranks[i] = -INF;
    }
    barrier();
}

/* An expert's place is the number of those before it: no rank is a NaN. */
void choose() {
    for (uint i = lane; i < p.n_experts; i += LANES) {
        float r = value[i];
        if (p.choice_bias != uvec2(0u)) r = add_(r, Floats(p.choice_bias).at[i]);
        ranks[i] = is_nan(r) ? -INF : r;
    }
    barrier();
    if (p.n_groups > 1u) keep_best_groups();
    for (uint i = lane; i < p.n_experts; i += LANES) {
        uint place = 0u;
        for (uint h = 0u; h < p.n_experts; h++)
            if (ranks[h] > ranks[i] || (ranks[h] == ranks[i] && h < i)) place++;
        if (place < p.n_used) {
            chosen[place] = i;
            chosen_value[place] = value[i];
        }
    }
    barrier();
    if (lane < p.n_used) value[lane] = chosen_value[lane];
    barrier();
}

float weight() {
    float sum = 0.0, w = value[lane];
    for (uint i = 0u; i < p.n_used; i++) sum = add_(sum, value[i]);
    if (!above(sum, 6.103515625e-5)) sum = 6.103515625e-5; /* ROUTER_LEAST_SUM */
    if (p.normalize != 0u) w = div_(w, sum);
    w = tidy_(mul_(w, p.scale));
    return p.expert_scale != uvec2(0u)
               ? tidy_(mul_(w, Floats(p.expert_scale).at[chosen[lane]])) : w;
}

void main() {
    lane = gl_LocalInvocationID.x;
    take_logits();
    for (uint after = 0u; after < 2u; after++) {
        if (p.gating == (after != 0u ? SOFTMAX_CHOSEN : SOFTMAX))
            softmax(after != 0u ? p.n_used : p.n_experts);
        if (after == 0u) choose();
    }
    if (lane < p.n_used)
        Pairs(p.choices).at[gl_WorkGroupID.x * p.n_used + lane] =
            uvec2(chosen[lane], floatBitsToUint(weight()));
}
