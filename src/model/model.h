/* model.h: one rank's part of a model, ready to compute steps.
 *
 * A step feeds some tokens of some sequences through all layers at once, on all ranks: every
 * rank calls model_step() with the same step. The model uses the network only for the team's
 * exact sum, the pipeline's send and receive, and the gather of logits. A group of one rank
 * skips them.
 *
 * One thread calls (the rank's main thread); the pool's threads compute. Nothing is allocated
 * in a step. */
#ifndef LOCKSTEP_MODEL_MODEL_H
#define LOCKSTEP_MODEL_MODEL_H

#include "arch/hparams.h"
#include "base/pool.h"
#include "base/status.h"
#include "fabric/fabric.h"
#include "kernels/kernels.h"
#include "model/kv_cache.h"
#include "model/trace.h"
#include "weights/plan.h"
#include "weights/weights.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Consecutive tokens of one sequence. */
struct step_run {
    uint32_t pos; /* of its first token; earlier positions are in the cache */
    uint32_t n_tokens;
    /* its page table: step.pages[page_begin...], one id per KV_PAGE positions, up to that of
     * its last token */
    uint32_t page_begin;
    /* likewise step.window_pages, for the layers with a window: from kv_window_first() of its
     * first token on */
    uint32_t window_begin;
    /* Slots of states (recurrent.h): the one to continue from, of the tokens before pos, and
     * the one that holds the new state after the step. Both may be the same. Unused at pos = 0,
     * or if no layer is recurrent. */
    uint32_t state_from, state;
};

struct step {
    bool hidden; /* the outputs are hidden states, not logits */
    uint32_t n_tokens, n_runs, n_pages, n_window_pages, n_outputs;
    const int32_t *tokens;        /* [n_tokens], run after run */
    const struct step_run *runs;  /* [n_runs] */
    const uint32_t *pages;        /* [n_pages] */
    const uint32_t *window_pages; /* [n_window_pages]; none if no layer has a window */
    const uint32_t *outputs;      /* [n_outputs] ascending token indices that are wanted */
};

/* Rank 0 gets the step's outputs, valid during the call: [n_vocab] f32 logits, or the [n_embd] f32
 * hidden state after the output norm. Either function may be NULL. */
struct step_sink {
    /* All rows in order, in blocks [n_rows, n_vocab], on the calling thread. Returns false to skip
     * the rest (other ranks finish the step regardless). */
    bool (*rows)(void *user, uint32_t first_output, uint32_t n_rows, const float *rows);
    /* Each row once, on any of the pool's threads (0..pool_n_threads - 1), several at a time. */
    void (*row)(void *user, int thread, uint32_t output, const float *row);
    void *user;
};

struct shaders; /* shaders/shaders.h */

struct model_config {
    uint32_t n_tokens_max; /* of a step */
    uint32_t n_ctx;        /* positions of a sequence */
    uint32_t n_runs_max;   /* sequences in a step */
    /* Of the cache, by kind: at least div_up(n_ctx, KV_PAGE), and kv_window_pages(). */
    uint32_t n_pages[KV_KINDS];
    uint32_t n_states; /* slots for states; 0 if no layer is recurrent */
    enum kv_type kv_type;
    struct shaders *shaders; /* the rank's device; NULL: none; borrowed until model_close() */
    /* A step of [device_from, device_until) tokens is the device's, any other the pool's. Where
     * there are others, the device's memory is the host's: both use one cache. */
    uint32_t device_from, device_until;
    const struct file_source *source; /* as weights_load's from; NULL: the file is here */
    void (*progress)(void *user, double fraction);
    void *progress_user;
};

struct model_times {
    uint64_t step_ns, fabric_ns, steps, exchanges;
    /* device_counts() */
    uint64_t device_submissions, device_recorded, device_dispatches, device_bus_bytes;
};

struct model;

/* Everything given is borrowed until model_close(): g, pool, kernels, f (NULL for a plan of one
 * rank). rank: of the plan. Teams are created here, so all ranks open at the same time. */
enum status model_open(struct model **out, const struct gguf *g, const struct hparams *hp,
                       const struct plan *plan, int rank, const struct model_config *cfg,
                       struct pool *pool, const struct kernels *kernels, struct fabric *f,
                       struct err *err);
void model_close(struct model *m);

/* What one rank keeps of one layer's keys and values, of a kind of hp->attn, and of layer `layer`
 * of the model. */
struct kv_shape model_kv_shape(const struct hparams *hp, const struct share *sh,
                               const struct attn_kind *kind, enum kv_type type);
struct kv_keep model_kv_keep(const struct hparams *hp, const struct share *sh, uint32_t layer,
                             enum kv_type type);

/* Bytes of one page of each kind, over all the layers of a share. */
void model_kv_page_bytes(const struct hparams *hp, const struct share *sh, enum kv_type type,
                         size_t bytes[KV_KINDS]);

/* Bytes of all states. */
size_t model_state_bytes(const struct model *m);

/* What model_open() would allocate for a rank with this many threads, from the header alone. */
struct model_bytes {
    uint64_t weights, buffers;
    uint64_t kv;                   /* cfg's pages; of these: */
    uint64_t kv_windows;           /* those of layers with a window */
    uint64_t kv_index;             /* the keys that an indexer chooses by */
    uint64_t states;               /* cfg's */
    double token;                  /* of the weights, read for one token (struct weights) */
    double experts, token_experts; /* of weights, of token: the experts (struct weights) */
    double token_macs;             /* no bytes: multiply-adds of the weights for one token */
};
enum status model_measure(struct model_bytes *out, const struct gguf *g,
                          const struct hparams *hp, const struct plan *plan, int rank,
                          const struct model_config *cfg, int n_threads, struct err *err);

/* How often the ranks of a team add exactly in a layer, in a step. */
uint32_t model_layer_sums(const struct hparams *hp, const struct plan *plan, uint32_t layer);
/* How often a rank on a device waits for it within a layer, in a token's step: before each exact
 * sum and before what the processor does in between (docs/gpu.md). One wait more ends the step.
 * With several residual streams it is the least that it can be. */
uint32_t model_layer_waits(const struct hparams *hp, const struct plan *plan, uint32_t layer);

/* The largest message that a model's collectives send, for fabric_config.max_message_bytes. */
size_t model_max_message_bytes(const struct hparams *hp, uint32_t n_tokens_max);

/* What model_step() demands of a step; rank 0 asks before it tells the others. */
enum status model_check_step(const struct model *m, const struct step *step, struct err *err);

/* sink may be NULL, and is on ranks other than 0. ST_BAD_INPUT: the step itself breaks a rule
 * (a token outside the vocabulary, a page outside the cache); nothing has been sent then.
 * ST_PEER_LOST. */
enum status model_step(struct model *m, const struct step *step, const struct step_sink *sink,
                       struct err *err);

/* From the next step on: model_config's. */
void model_set_device_steps(struct model *m, uint32_t from, uint32_t until);
/* Whether the rank's device was lost, or fails in another way. m may be NULL. */
bool model_device_is_lost(const struct model *m);
const struct weights *model_weights(const struct model *m);
/* Of the cache, index keys included; of these, what layers with a window have. */
size_t model_kv_bytes(const struct model *m);
size_t model_kv_window_bytes(const struct model *m);
size_t model_buffer_bytes(const struct model *m);
struct model_times model_times(struct model *m, bool reset);
/* From the next step on; events NULL: no more. The trace is the model's, events are borrowed. */
/* How the team of this rank's stage adds up one token (team_algorithm); "none" alone. */
const char *model_sum_algorithm(const struct model *m);
void model_trace_begin(struct model *m, struct trace_event *events, size_t cap);
const struct trace *model_trace(const struct model *m);

#endif
