/* microbatch.c: Decides from how many tokens on two microbatches are faster, and divides a step
 * in two. */
#include "model/microbatch.h"

/* Bytes per ns at which reading weights once more delays a rank that computes: measured with
 * mixtures of experts, which read the most. */
#define READ_RATE 10

uint32_t microbatch_worth(uint64_t weight_bytes, uint32_t n_layers, uint64_t sum_ns) {
    uint64_t hidden_ns = 2 * (uint64_t)n_layers * sum_ns; /* of MICROBATCH_LEAST tokens */
    double n = (double)weight_bytes / READ_RATE * MICROBATCH_LEAST /
               (double)MAX(hidden_ns, (uint64_t)1);
    return (uint32_t)MIN(MAX(n, (double)(MICROBATCHES_MAX * MICROBATCH_LEAST)),
                         (double)UINT32_MAX);
}

/* The tokens [begin, end) of a run, as a run that comes `begin` tokens later. */
static struct step_run part_of(const struct step_run *run, uint32_t begin, uint32_t end,
                               uint32_t window) {
    struct step_run part = *run;
    part.pos += begin;
    part.n_tokens = end - begin;
    if (begin > 0) /* the part before has left it there */
        part.state_from = run->state;
    if (window != 0) /* its first token may see fewer pages */
        part.window_begin +=
            kv_window_first(window, part.pos) - kv_window_first(window, run->pos);
    return part;
}

void microbatch_cut(struct microbatch *out, uint32_t n, const struct step *step,
                    uint32_t window, struct step_run *runs) {
    uint32_t each = step->n_tokens / n;
    each -= n > 1 ? each % ACT_GROUP : 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t begin = i * each, end = i + 1 < n ? begin + each : step->n_tokens;
        struct step *s = &out[i].step;
        out[i].first = begin;
        *s = *step;
        s->tokens += begin;
        s->n_tokens = end - begin;
        s->runs = runs;
        s->n_runs = 0;
        s->n_outputs = 0;
        for (uint32_t k = 0, first = 0; k < step->n_runs; first += step->runs[k++].n_tokens) {
            uint32_t from = MAX(begin, first), to = MIN(end, first + step->runs[k].n_tokens);
            if (from < to)
                runs[s->n_runs++] = part_of(&step->runs[k], from - first, to - first, window);
        }
        runs += s->n_runs;
    }
}
