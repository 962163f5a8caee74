/* device_steps.c: Times whole steps on a rank's device and on its processor. */
#include "ranks/device_steps.h"

#include "base/util.h"

#include <math.h>
#include <stdio.h>

/* Steps of 1, 4, 16, ... tokens. With more a graphics processor is the faster one, or never. */
#define TOKENS_FACTOR 4
#define TOKENS_TELLING 16
#define TOKENS_MOST 256
/* The first is not counted: memory becomes its own, commands are recorded. */
#define TRIES 3
#define TRIES_LONG 2 /* from TOKENS_TELLING on */

static uint32_t tokens_most(const struct model_config *cfg) {
    return MIN(MIN(cfg->n_tokens_max, cfg->n_ctx), (uint32_t)TOKENS_MOST);
}

/* The first n tokens of a sequence of its own, which leaves nothing behind: later ones write these
 * pages and states before they read them. */
static enum status run_step(struct model *m, const struct hparams *hp, uint32_t n,
                            uint32_t seed, struct err *err) {
    int32_t tokens[TOKENS_MOST];
    uint32_t pages[TOKENS_MOST / KV_PAGE];
    const struct step_run run = {.n_tokens = n};
    const uint32_t n_pages = (uint32_t)div_up(n, KV_PAGE), output = n - 1;
    for (uint32_t i = 0; i < n; i++) /* a mixture is to choose others */
        tokens[i] = (int32_t)((i + seed) * 2654435761u % hp->n_vocab);
    for (uint32_t i = 0; i < n_pages; i++)
        pages[i] = i;
    const struct step step = {.n_tokens = n,
                              .n_runs = 1,
                              .n_pages = n_pages,
                              .n_window_pages = hp->window != 0 ? n_pages : 0,
                              .n_outputs = 1,
                              .tokens = tokens,
                              .runs = &run,
                              .pages = pages,
                              .window_pages = pages,
                              .outputs = &output};
    return model_step(m, &step, NULL, err);
}

/* Seconds of the best step, without what it waited for other ranks. */
static enum status time_steps(double *seconds, struct model *m, const struct hparams *hp,
                              uint32_t n, struct err *err) {
    const uint32_t n_tries = n < TOKENS_TELLING ? TRIES : TRIES_LONG;
    *seconds = INFINITY;
    for (uint32_t i = 0; i < n_tries; i++) {
        (void)model_times(m, true);
        TRY(run_step(m, hp, n, i, err));
        const struct model_times t = model_times(m, true);
        if (i > 0)
            *seconds = MIN(*seconds, (double)(t.step_ns - MIN(t.fabric_ns, t.step_ns)) * 1e-9);
    }
    return ST_OK;
}

struct measured {
    double device_s, processor_s; /* of a step of n tokens */
    uint32_t n;
};

static enum status measure(struct measured *out, struct model *m, bool chooses,
                           const struct hparams *hp, uint32_t n, struct err *err) {
    out->n = n;
    if (chooses)
        model_set_device_steps(m, 0, UINT32_MAX);
    TRY(time_steps(&out->device_s, m, hp, n, err));
    if (chooses)
        model_set_device_steps(m, 0, 0);
    return time_steps(&out->processor_s, m, hp, n, err);
}

/* What each token more costs the device costs the processor less: so it will never be slower. With
 * few tokens both do little but read the weights. */
static bool is_hopeless(const struct measured *now, const struct measured *before) {
    return now->n >= TOKENS_TELLING &&
           now->device_s - before->device_s > now->processor_s - before->processor_s;
}

enum status device_steps_measure(struct device_steps *out, struct model *m, bool chooses,
                                 const struct model_config *cfg, const struct hparams *hp,
                                 struct team *all, struct err *err) {
    struct device_steps found = {UINT32_MAX, UINT32_MAX};
    struct measured before = {0}, now = {0};
    int64_t n_looking = chooses; /* ranks; it goes on while there is one */
    if (all != NULL)
        TRY(fabric_allreduce(all, &n_looking, 1, err));
    for (uint32_t n = 1; n <= tokens_most(cfg) && n_looking != 0; n *= TOKENS_FACTOR) {
        TRY(measure(&now, m, chooses, hp, n, err));
        const bool slower = now.device_s > now.processor_s;
        found.from = slower ? UINT32_MAX : MIN(found.from, n);
        n_looking = chooses && slower && !is_hopeless(&now, &before);
        before = now;
        if (all != NULL)
            TRY(fabric_allreduce(all, &n_looking, 1, err));
    }
    if (!chooses)
        return ST_OK;
    *out = found;
    model_set_device_steps(m, found.from, found.until);
    return ST_OK;
}

void device_steps_text(char *buf, size_t size, const struct device_steps *its,
                       const char *device, const char *isa) {
    if (device == NULL || its->from >= its->until)
        snprintf(buf, size, "%s", isa);
    else if (its->from <= 1 && its->until == UINT32_MAX)
        snprintf(buf, size, "%s", device);
    else if (its->until == UINT32_MAX)
        snprintf(buf, size, "%.160s from %u tokens on, %.32s below", device, its->from, isa);
    else
        snprintf(buf, size, "%.160s below %u tokens, %.32s from there on", device, its->until,
                 isa);
}
