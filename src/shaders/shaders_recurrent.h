/* shaders_recurrent.h: the kernels of recurrent layers (mixers/recurrent.h) on a device, beside
 * those of shaders.h: whole steps of several runs, whose states lie in slots. */
#ifndef LOCKSTEP_SHADERS_SHADERS_RECURRENT_H
#define LOCKSTEP_SHADERS_SHADERS_RECURRENT_H

#include "mixers/recurrent.h"
#include "shaders/shaders.h"

/* States with more rows (k_dim) are not computed here. */
#define SHADERS_STATE_ROWS 128

/* Tokens [first, first + n_tokens) of a step, which go on from the state at the device's address
 * `from` (0: from zero) and leave theirs at `to`. If `from` is the `to` of the run before it, this
 * run goes on after that one; no other run reads what one of the step writes. In mapped memory. */
struct shaders_run {
    uint32_t first, n_tokens;
    uint64_t from, to;
};

/* Where a step's runs have a layer's part of their states: from float `at` of each on. */
struct shaders_states {
    const float *any; /* of all states: where such memory is, for what is counted */
    size_t at;
    const struct shaders_run *runs;
    uint32_t n_runs, n_tokens; /* of all runs */
};

/* A head in a token's row of products: its number among all of the model's, the one among those
 * that are held whose key it reads, and where its values, beta and decays are. In mapped memory. */
struct shaders_recurrent_head {
    uint32_t head, group, at, beta, decay;
};

/* conv() of the n channels from x on, of rows of a step; w [n, n_taps], bias [n] or NULL are those
 * of these channels, and `states` has their history [n_taps - 1, ld_history]. `beside`: see
 * shaders_matmul(). */
struct shaders_conv {
    struct rows x;
    const float *w, *bias;
    size_t ld_history;
    uint32_t n, n_taps;
    bool silu;
};
void shaders_conv(struct shaders *s, const struct shaders_conv *c,
                  const struct shaders_states *states, bool beside);

/* The beta and the n decays of each head, in place: delta_gates() of definition.h, or
 * mamba2_gates(). */
enum shaders_gates { GATES_DELTA, GATES_DELTA_BOUNDED, GATES_MAMBA2 };
struct shaders_recurrent_gates {
    enum shaders_gates kind;
    const struct shaders_recurrent_head *heads; /* [n_heads] */
    uint32_t n_heads, n;
    const float *a, *bias; /* [all heads], [all heads, n] */
    float least;           /* of GATES_DELTA_BOUNDED */
};
void shaders_recurrent_gates(struct shaders *s, const struct shaders_recurrent_gates *g,
                             struct rows rows, uint32_t n_tokens);

/* recurrence() of all columns of each head: queries, keys, values from q_at, k_at, v_at on in a
 * token's row. `states`: of the first head, head_floats apart. Head i's results at
 * out + i * v_dim; with d they pass definition.h's mamba2_skip(). */
struct shaders_recurrence {
    struct rows rows, out;
    const struct shaders_recurrent_head *heads; /* [n_heads] */
    uint32_t n_heads, k_dim, v_dim, q_at, k_at, v_at;
    size_t head_floats;
    bool by_channel, delta;
    const float *d; /* [all heads]; NULL: none */
};
void shaders_recurrence(struct shaders *s, const struct shaders_recurrence *c,
                        const struct shaders_states *states);

#endif
