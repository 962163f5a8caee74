/* activation.h: the activation between the two halves of an FFN; sigmoids of gates, softmax. */
#ifndef LOCKSTEP_KERNELS_ACTIVATION_H
#define LOCKSTEP_KERNELS_ACTIVATION_H

#include "kernels/kernels.h"

enum ffn_act {
    FFN_SWIGLU,         /* silu(gate) * up */
    FFN_SWIGLU_CLAMPED, /* the same with gate and up limited before it */
    FFN_SWIGLU_OAI,     /* gpt-oss: clamped, silu with 1.702, (up + 1) */
    FFN_GEGLU,          /* gelu(gate) * up, the tanh form */
    FFN_SITU,           /* Kimi K3: both halves bounded by tanh */
    FFN_RELU2,          /* the square of max(up, 0): there is no gate */
};

/* Of experts, from a router's logits. */
enum gating {
    GATING_SOFTMAX,        /* weights are softmax probabilities of all experts */
    GATING_SIGMOID,        /* each expert's sigmoid */
    GATING_SOFTMAX_CHOSEN, /* softmax over the chosen experts' logits */
    GATING_SQRT_SOFTPLUS,  /* the root of each expert's softplus, ln(1 + e^x) */
};

/* Of FFN_SITU. */
struct situ_params {
    float gate, up;
};

/* gate = act(gate) * up, [n] both, tidied (kernels.h). up is overwritten if the form needs space.
 *   FFN_SWIGLU      silu(gate) * up; limit > 0: min(silu(gate), limit) * clamp(up, -limit, limit)
 *   FFN_SWIGLU_CLAMPED  silu(min(gate, limit)) * clamp(up, -limit, limit); limit 0: FFN_SWIGLU
 *   FFN_SWIGLU_OAI  g = min(gate, 7), u = clamp(up, -7, 7): g * sigmoid(1.702 g) * (u + 1)
 *                   (gpt-oss's reference code)
 *   FFN_GEGLU       0.5 g (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))) * up, with tanh(z) as
 *                   1 - 2 / (exp(2z) + 1)
 *   FFN_SITU        b tanh(gate / b) * sigmoid(gate) * l tanh(up / l), with b, l of situ
 *   FFN_RELU2       max(gate, 0)^2; up is not read */
void ffn_activate(const struct kernels *k, enum ffn_act act, struct situ_params situ,
                  float limit, float *gate, float *up, size_t n);

/* x = 1 / (1 + exp(-x)), [n], tidied */
void sigmoids(const struct kernels *k, float *x, size_t n);

/* x = exp(x - largest) / sum, [n], tidied; the sum is in order. */
void softmax(const struct kernels *k, float *x, size_t n);

#endif
