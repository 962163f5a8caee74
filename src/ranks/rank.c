/* rank.c: opens one rank, and carries rank 0's messages. A message is a broadcast to all: a
 * header of HEADER_WORDS 32-bit words, with the body inside if it fits, otherwise in a second
 * broadcast. A decode step is one message of 256 bytes. */
#include "ranks/rank.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/printable.h"
#include "base/util.h"
#include "fabric/launch_env.h"
#include "hf/hf_folder.h"
#include "shaders/shaders.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { OP_STEP = 1, OP_HIDDEN, OP_REPORT, OP_TRACE_BEGIN, OP_TRACE_END, OP_COMPARE, OP_CLOSE };

/* words[0..6]: magic, op, n_tokens, n_runs, n_pages, n_window_pages, n_outputs; then tokens, runs,
 * pages, window_pages, outputs. */
#define MESSAGE_MAGIC 0x6c6b7331u
#define HEADER_WORDS 64
#define HEADER_FIELDS 7

#define RUN_WORDS 6
_Static_assert(sizeof(struct step_run) == RUN_WORDS * sizeof(uint32_t), "runs travel as words");

static enum status make_plan(struct rank *r, struct err *err) {
    const struct job *job = &r->job;
    double apart[PLAN_MAX_WEIGHTS];
    const double *weights = job->weights;
    int n = job->n_weights;
    if (job->experts == EXPERTS_CPU && n <= job->n_ranks) {
        n = plan_experts_apart(apart, weights, n, job->tp, job->pp, job_processors(job));
        weights = apart;
    }
    return plan_make(&r->plan, &r->hp, r->g, job->tp, job->pp, weights, n, job->experts, err);
}

enum status rank_init(struct rank *r, struct job *job, struct gguf *g, struct err *err) {
    *r = (struct rank){.job = *job, .g = g};
    *job = (struct job){0};
    job_keep_to_part(&r->job); /* before it has threads, and memory */
    TRY(kernels_select(&r->kernels, err));
    const struct gguf_options opts = {.header_only = r->job.source != NULL};
    if (r->g == NULL)
        TRY(hf_open_any(&r->g, r->job.model_path, &opts, err));
    TRY(hparams_read(&r->hp, r->g, err));
    TRY(weights_check(r->g, &r->hp, err));
    return make_plan(r, err);
}

/* The RDMA device towards each rank, from the job's matrix. */
static enum status choose_devices(const struct job *job, char names[][LAUNCH_NAME_BYTES],
                                  const char **devices, struct err *err) {
    TRY(launch_rdma_matrix(names, job->rdma, job->rank, job->n_ranks, err));
    for (int i = 0; i < job->n_ranks; i++)
        devices[i] = names[i][0] != '\0' ? names[i] : NULL;
    return ST_OK;
}

static enum status open_fabric(struct rank *r, int listen_fd, const struct rank_hooks *hooks,
                               struct err *err) {
    char names[PLAN_MAX_RANKS][LAUNCH_NAME_BYTES];
    const char *devices[PLAN_MAX_RANKS];
    uint64_t wires[PLAN_MAX_RANKS];
    bool complete;
    struct fabric_config cfg;
    fabric_config_defaults(&cfg);
    cfg.rank = r->job.rank;
    cfg.n_ranks = r->job.n_ranks;
    cfg.rendezvous = r->job.rendezvous;
    cfg.listen_fd = listen_fd;
    memcpy(cfg.token, r->job.token, sizeof cfg.token);
    cfg.link = r->job.link;
    cfg.emulate = r->job.emulate;
    cfg.silence_ms = r->job.silence_ms;
    cfg.missing = &r->missing;
    if (r->n_words_max != 0)
        cfg.max_message_bytes = MAX(model_max_message_bytes(&r->hp, r->job.n_chunk),
                                    r->n_words_max * sizeof *r->words);
    if (hooks != NULL) {
        cfg.hopeless = hooks->hopeless;
        cfg.hopeless_user = hooks->hopeless_user;
    }
    if (r->job.rdma != NULL) {
        TRY(choose_devices(&r->job, names, devices, err));
        cfg.rdma_devices = devices;
        TRY(launch_rdma_wires(wires, &complete, r->job.rdma, r->job.n_ranks, err));
        if (!complete)
            cfg.wires = wires;
    }
    return fabric_open(&r->f, &cfg, err);
}

/* Rank 0 sends the job to ranks that another program started. The token is not sent. */
static enum status invite(struct rank *r, struct err *err) {
    enum status st = ST_OK;
    for (int i = 1; i < r->job.n_ranks && st == ST_OK; i++) {
        struct job its = r->job; /* shares the strings */
        char *text = NULL;
        its.rank = i;
        memset(its.token, 0, sizeof its.token);
        st = job_to_json(&its, &text, err);
        uint32_t n = st == ST_OK ? (uint32_t)strlen(text) : 0;
        if (st == ST_OK)
            st = fabric_send(r->f, i, &n, sizeof n, err);
        if (st == ST_OK)
            st = fabric_send(r->f, i, text, n, err);
        free(text);
    }
    return st;
}

#define INVITATION_MAX (1u << 20)

static enum status hear_invitation(struct rank *r, struct job *out, struct err *err) {
    uint32_t n;
    TRY(fabric_recv(r->f, 0, &n, sizeof n, err));
    char *text = n <= INVITATION_MAX ? mem_alloc(n) : NULL;
    if (text == NULL)
        return err_set(err, ST_BAD_INPUT, "rank 0 sent a job of %u bytes", n);
    enum status st = fabric_recv(r->f, 0, text, n, err);
    if (st == ST_OK)
        st = job_from_json(out, text, n, err);
    mem_free(text);
    return st;
}

enum status rank_join(struct rank *r, struct job *mine, struct err *err) {
    struct job job;
    *r = (struct rank){.job = *mine};
    *mine = (struct job){0};
    TRY(open_fabric(r, -1, NULL, err));
    TRY(hear_invitation(r, &job, err));
    struct fabric *f = r->f;
    struct job told = r->job; /* moved from here into the new job */
    r->job = (struct job){0};
    job.rank = told.rank;
    job.n_threads = told.n_threads;
    job.n_local = told.n_local;
    job.local_rank = told.local_rank;
    job.own_cores = told.own_cores;
    job_set_threads(&job);
    if (told.model_path != NULL) {
        mem_free(job.model_path);
        job.model_path = told.model_path;
        told.model_path = NULL;
    }
    bool same_group = job.n_ranks == told.n_ranks;
    job_deinit(&told);
    enum status st = rank_init(r, &job, NULL, err);
    r->f = f;
    return st != ST_OK || same_group
               ? st
               : err_set(err, ST_BAD_INPUT, "rank 0's job is for another number of ranks");
}

static enum status join_group(struct rank *r, int listen_fd, const struct rank_hooks *hooks,
                              struct err *err) {
    if (r->job.n_ranks == 1)
        return ST_OK;
    if (r->f == NULL)
        TRY(open_fabric(r, listen_fd, hooks, err));
    if (r->job.invites)
        TRY(invite(r, err));
    int ranks[PLAN_MAX_RANKS];
    for (int i = 0; i < r->job.n_ranks; i++)
        ranks[i] = i;
    return fabric_team(r->f, &r->all, ranks, r->job.n_ranks, err);
}

static enum status compare_models(struct rank *r, uint64_t n_at_once, struct err *err) {
    return same_model_compare(r->same, r->all, r->job.rank, r->job.n_ranks, n_at_once, err);
}

/* A rank on another machine opened the file that it has under that path. The bits of a mixture
 * of two models would be wrong. */
static enum status check_model(struct rank *r, struct err *err) {
    TRY(same_model_open(&r->same, r->g, err));
    return compare_models(r, SAME_MODEL_AT_ONCE, err);
}

/* Together with all ranks: what the job leaves open, and the plan that follows. */
static enum status choose_placement(struct rank *r, const struct model_config *cfg,
                                    const struct rank_hooks *hooks, struct err *err) {
    const struct calibration calibration = {.job = &r->job,
                                            .g = r->g,
                                            .hp = &r->hp,
                                            .cfg = cfg,
                                            .kernels = r->kernels,
                                            .pool = r->pool,
                                            .f = r->f,
                                            .all = r->all,
                                            .placed = hooks->placed,
                                            .placed_user = hooks->placed_user};
    struct calibration_choice choice;
    if (r->figures == NULL)
        r->figures = mem_calloc(1, sizeof *r->figures);
    if (r->figures == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to choose a placement");
    TRY(calibration_place(&choice, r->figures, &calibration, err));
    if (choice.again) {
        snprintf(r->placement, sizeof r->placement, "%s", choice.text);
        return ST_AGAIN;
    }
    r->job.tp = choice.tp;
    r->job.pp = choice.pp;
    r->job.n_weights = choice.n_weights;
    memcpy(r->job.weights, choice.weights, sizeof r->job.weights);
    snprintf(r->placement, sizeof r->placement, "%s", choice.text);
    return make_plan(r, err);
}

static void close_device(struct rank *r) {
    shaders_close(r->shaders);
    device_close(r->device);
    r->shaders = NULL;
    r->device = NULL;
}

static enum status open_named_device(struct rank *r, const char *name, struct err *err) {
    enum status st = device_open(&r->device, name, err);
    if (st == ST_OK)
        st = shaders_open(&r->shaders, r->device, err);
    if (st != ST_OK)
        close_device(r);
    return st;
}

/* After a loss the rank goes on without a device that does not open again, or has no memory for the
 * model: with the same bits. So it does if it chose the device itself. */
static bool may_lack_device(const struct rank *r, const char *name) {
    return str_eq(name, "auto") || r->job.may_lack_device != 0;
}

/* Prompts and tokens are on the device and on the processor over one cache. */
static enum status check_divided(const struct rank *r, const struct job_device *its,
                                 struct err *err) {
    const struct device_info *info = device_info(r->device);
    if (!its->divides || info->unified)
        return ST_OK;
    return err_set(
        err, ST_BAD_INPUT,
        "rank %d: %s has memory of its own, so prompts and tokens are both its own, or "
        "both the processor's: --device %s",
        r->job.rank, info->name, its->name);
}

static enum status open_device(struct rank *r, struct job_device *its, struct err *err) {
    struct err why;
    TRY(job_device(&r->job, its, err));
    if (its->name[0] == '\0')
        return ST_OK;
    enum status st = open_named_device(r, its->name, &why);
    if (st == ST_OK)
        return check_divided(r, its, err);
    if (!may_lack_device(r, its->name))
        return err_set(err, st, "rank %d: %s", r->job.rank, why.text);
    log_warn("rank %d computes on its processor: %s", r->job.rank, why.text);
    return ST_OK;
}

static enum status open_model(struct rank *r, struct model_config *cfg, const char *name,
                              struct err *err) {
    enum status st = model_open(&r->model, r->g, &r->hp, &r->plan, r->job.rank, cfg, r->pool,
                                r->kernels, r->f, err);
    if (r->shaders == NULL || !may_lack_device(r, name) ||
        (st != ST_NO_MEMORY && st != ST_UNSUPPORTED && st != ST_BAD_INPUT))
        return st;
    log_warn("rank %d computes on its processor: %s", r->job.rank, err->text);
    close_device(r);
    cfg->shaders = NULL;
    return model_open(&r->model, r->g, &r->hp, &r->plan, r->job.rank, cfg, r->pool, r->kernels,
                      r->f, err);
}

enum status rank_load(struct rank *r, int listen_fd, const struct rank_hooks *hooks,
                      struct err *err) {
    hparams_set_context(&r->hp, r->job.n_ctx);
    r->n_words_max = HEADER_WORDS + (size_t)r->job.n_chunk * 2 +
                     (size_t)r->job.n_runs * RUN_WORDS +
                     r->job.n_runs * 2 * div_up(r->job.n_ctx, KV_PAGE);
    r->words = mem_calloc(r->n_words_max, sizeof *r->words);
    if (r->words == NULL) {
        if (listen_fd >= 0)
            close(listen_fd);
        return err_set(err, ST_NO_MEMORY, "no memory for messages");
    }
    TRY(join_group(r, listen_fd, hooks, err));
    if (r->all != NULL)
        TRY(check_model(r, err));
    TRY(pool_open(&r->pool, r->job.n_threads, err));
    struct job_device its;
    TRY(open_device(r, &its, err));
    struct model_config cfg = {
        .n_tokens_max = r->job.n_chunk,
        .n_ctx = r->job.n_ctx,
        .n_runs_max = r->job.n_runs,
        .n_pages = {r->job.n_pages[KV_WHOLE], r->job.n_pages[KV_WINDOW]},
        .n_states = r->job.n_states,
        .kv_type = r->job.kv_type,
        .shaders = r->shaders,
        .device_from = its.from,
        .device_until = its.until,
        .source = hooks->source,
        .progress = hooks->progress,
        .progress_user = hooks->user,
    };
    if (r->job.placement != JOB_PLACE_TOLD && r->all != NULL)
        TRY(choose_placement(r, &cfg, hooks, err));
    TRY(open_model(r, &cfg, its.name, err));
    r->device_steps = (struct device_steps){its.from, its.until};
    if (job_measures_devices(&r->job))
        TRY(device_steps_measure(&r->device_steps, r->model,
                                 its.measures && r->device != NULL &&
                                     device_info(r->device)->unified,
                                 &cfg, &r->hp, r->all, err));
    if (r->same != NULL)
        same_model_read_on(r->same);
    return ST_OK;
}

struct gguf *rank_close_but_file(struct rank *r) {
    struct gguf *g = r->g;
    same_model_close(r->same);
    model_close(r->model);
    close_device(r);
    fabric_close(r->f);
    pool_close(r->pool);
    mem_free(r->words);
    mem_free(r->trace);
    mem_free(r->figures);
    if (r->job.n_local > 1)
        machine_keep_to(0, 1);
    job_deinit(&r->job);
    *r = (struct rank){0};
    return g;
}

void rank_close(struct rank *r) {
    gguf_close(rank_close_but_file(r));
}

struct rank_report rank_report(const struct rank *r) {
    const struct weights *w = model_weights(r->model);
    struct mem_resident res = mem_resident();
    struct model_times times = model_times(r->model, false);
    struct rank_report report = {
        .pid = getpid(),
        .weight_bytes = w->packed_bytes + w->replicated_bytes,
        .replicated_bytes = w->replicated_bytes,
        .token_bytes = (uint64_t)w->token_bytes,
        .token_macs = (uint64_t)w->token_macs,
        .kv_bytes = model_kv_bytes(r->model),
        .kv_window_bytes = model_kv_window_bytes(r->model),
        .state_bytes = model_state_bytes(r->model),
        .buffer_bytes = model_buffer_bytes(r->model),
        .resident_bytes = res.anon_bytes + res.shmem_bytes,
        .step_ns = times.step_ns,
        .fabric_ns = times.fabric_ns,
    };
    for (int i = 0; i < r->job.n_ranks && r->f != NULL; i++) {
        report.sent_bytes[i] = fabric_sent_bytes(r->f, i);
        report.links[i] = (uint8_t)fabric_link_kind(r->f, i);
    }
    if (r->device != NULL)
        copy_printable(report.device, sizeof report.device, device_info(r->device)->name,
                       strlen(device_info(r->device)->name));
    return report;
}

/* ---- messages ---------------------------------------------------------------------------- */

static size_t body_words(const uint32_t *h) {
    return (size_t)h[2] + (size_t)h[3] * RUN_WORDS + h[4] + h[5] + h[6];
}

/* Broadcasts words[0 .. HEADER_FIELDS + body). */
static enum status say(struct rank *r, struct err *err) {
    size_t n = HEADER_FIELDS + body_words(r->words);
    TRY(fabric_broadcast(r->all, 0, r->words, HEADER_WORDS * sizeof *r->words, err));
    if (n <= HEADER_WORDS)
        return ST_OK;
    return fabric_broadcast(r->all, 0, r->words + HEADER_WORDS,
                            (n - HEADER_WORDS) * sizeof *r->words, err);
}

static enum status hear(struct rank *r, struct err *err) {
    TRY(fabric_broadcast(r->all, 0, r->words, HEADER_WORDS * sizeof *r->words, err));
    size_t n = HEADER_FIELDS + body_words(r->words);
    if (r->words[0] != MESSAGE_MAGIC || n > r->n_words_max)
        return err_set(err, ST_PEER_LOST, "rank 0 sent a message that makes no sense");
    if (n <= HEADER_WORDS)
        return ST_OK;
    return fabric_broadcast(r->all, 0, r->words + HEADER_WORDS,
                            (n - HEADER_WORDS) * sizeof *r->words, err);
}

static void put_step(uint32_t *words, const struct step *s) {
    const uint32_t op = s->hidden ? OP_HIDDEN : OP_STEP;
    const uint32_t h[HEADER_FIELDS] = {
        MESSAGE_MAGIC, op, s->n_tokens, s->n_runs, s->n_pages, s->n_window_pages, s->n_outputs};
    memcpy(words, h, sizeof h);
    uint32_t *at = words + HEADER_FIELDS;
    memcpy(at, s->tokens, s->n_tokens * sizeof *at);
    at += s->n_tokens;
    memcpy(at, s->runs, s->n_runs * sizeof *s->runs);
    at += (size_t)s->n_runs * RUN_WORDS;
    memcpy(at, s->pages, s->n_pages * sizeof *at);
    at += s->n_pages;
    if (s->n_window_pages != 0)
        memcpy(at, s->window_pages, s->n_window_pages * sizeof *at);
    at += s->n_window_pages;
    memcpy(at, s->outputs, s->n_outputs * sizeof *at);
}

static struct step get_step(const uint32_t *words) {
    struct step s = {.hidden = words[1] == OP_HIDDEN,
                     .n_tokens = words[2],
                     .n_runs = words[3],
                     .n_pages = words[4],
                     .n_window_pages = words[5],
                     .n_outputs = words[6]};
    const uint32_t *at = words + HEADER_FIELDS;
    s.tokens = (const int32_t *)at;
    at += s.n_tokens;
    s.runs = (const struct step_run *)at;
    at += (size_t)s.n_runs * RUN_WORDS;
    s.pages = at;
    at += s.n_pages;
    s.window_pages = at;
    at += s.n_window_pages;
    s.outputs = at;
    return s;
}

static void put_op(struct rank *r, uint32_t op) {
    const uint32_t h[HEADER_FIELDS] = {MESSAGE_MAGIC, op};
    memcpy(r->words, h, sizeof h);
}

static enum status compare_if_due(struct rank *r, struct err *err) {
    if (!same_model_is_due(r->same))
        return ST_OK;
    put_op(r, OP_COMPARE);
    TRY(say(r, err));
    return compare_models(r, 0, err);
}

enum status rank_lead_step(struct rank *r, const struct step *step,
                           const struct step_sink *sink, struct err *err) {
    TRY(model_check_step(r->model, step, err));
    if (r->all != NULL) {
        TRY(compare_if_due(r, err));
        put_step(r->words, step);
        TRY(say(r, err));
    }
    return model_step(r->model, step, sink, err);
}

static enum status gather_reports(struct rank *r, struct rank_report *reports,
                                  struct err *err) {
    struct rank_report mine = rank_report(r);
    if (r->all == NULL) {
        reports[0] = mine;
        return ST_OK;
    }
    size_t parts[PLAN_MAX_RANKS];
    for (int i = 0; i < r->job.n_ranks; i++)
        parts[i] = sizeof mine;
    return fabric_gather(r->all, 0, &mine, reports, parts, err);
}

enum status rank_lead_reports(struct rank *r, struct rank_report *reports, struct err *err) {
    if (r->all != NULL) {
        put_op(r, OP_REPORT);
        TRY(say(r, err));
    }
    return gather_reports(r, reports, err);
}

/* ---- traces ------------------------------------------------------------------------------ */

/* Leaving a barrier is the moment that clocks of different machines have in common. */
static enum status trace_begin(struct rank *r, struct err *err) {
    if (r->trace == NULL)
        r->trace = mem_calloc(RANK_TRACE_EVENTS, sizeof *r->trace);
    if (r->trace == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a trace");
    if (r->all != NULL)
        TRY(fabric_barrier(r->all, err));
    r->trace_zero_ns = clock_ns();
    model_trace_begin(r->model, r->trace, RANK_TRACE_EVENTS);
    return ST_OK;
}

/* counts, all: on rank 0. */
static enum status gather_traces(struct rank *r, uint64_t *counts, struct trace_event **all,
                                 struct err *err) {
    uint64_t mine = model_trace(r->model)->n, total = 0;
    size_t parts[PLAN_MAX_RANKS];
    for (size_t i = 0; i < mine; i++) {
        r->trace[i].begin_ns -= r->trace_zero_ns;
        r->trace[i].end_ns -= r->trace_zero_ns;
    }
    model_trace_begin(r->model, NULL, 0);
    for (int i = 0; i < r->job.n_ranks; i++)
        parts[i] = sizeof mine;
    if (r->all == NULL)
        counts[0] = mine;
    else
        TRY(fabric_gather(r->all, 0, &mine, counts, parts, err));
    if (r->all != NULL) /* all know all sizes */
        TRY(fabric_broadcast(r->all, 0, counts, (size_t)r->job.n_ranks * sizeof *counts, err));
    for (int i = 0; i < r->job.n_ranks; i++) {
        if (counts[i] > RANK_TRACE_EVENTS)
            return err_set(err, ST_PEER_LOST, "rank %d sent a trace that makes no sense", i);
        parts[i] = counts[i] * sizeof *r->trace;
        total += counts[i];
    }
    if (r->job.rank == 0) {
        *all = mem_calloc(MAX(total, 1u), sizeof **all);
        if (*all == NULL)
            return err_set(err, ST_NO_MEMORY, "no memory for the ranks' traces");
    }
    if (r->all != NULL)
        return fabric_gather(r->all, 0, r->trace, r->job.rank == 0 ? *all : NULL, parts, err);
    memcpy(*all, r->trace, parts[0]);
    return ST_OK;
}

enum status rank_lead_trace_begin(struct rank *r, struct err *err) {
    if (r->all != NULL) {
        put_op(r, OP_TRACE_BEGIN);
        TRY(say(r, err));
    }
    return trace_begin(r, err);
}

enum status rank_lead_trace_end(struct rank *r, struct trace_event **events, size_t *n,
                                struct err *err) {
    uint64_t counts[PLAN_MAX_RANKS];
    if (r->trace == NULL)
        return err_set(err, ST_BAD_INPUT, "no trace was begun");
    if (r->all != NULL) {
        put_op(r, OP_TRACE_END);
        TRY(say(r, err));
    }
    struct trace_event *all = NULL;
    enum status st = gather_traces(r, counts, &all, err);
    if (st != ST_OK) {
        mem_free(all);
        return st;
    }
    for (int i = 0; i < r->job.n_ranks; i++)
        n[i] = counts[i];
    *events = all;
    return ST_OK;
}

void rank_lead_close(struct rank *r) {
    if (r->all == NULL)
        return;
    put_op(r, OP_CLOSE);
    struct err ignored; /* a rank that cannot receive it is gone already */
    (void)say(r, &ignored);
}

enum status rank_follow(struct rank *r, struct err *err) {
    for (;;) {
        TRY(fabric_wait(r->f, 0, -1, err));
        TRY(hear(r, err));
        if (r->words[1] == OP_CLOSE)
            return ST_OK;
        if (r->words[1] == OP_REPORT) {
            TRY(gather_reports(r, NULL, err));
            continue;
        }
        if (r->words[1] == OP_COMPARE) {
            TRY(compare_models(r, 0, err));
            continue;
        }
        if (r->words[1] == OP_TRACE_BEGIN) {
            TRY(trace_begin(r, err));
            continue;
        }
        if (r->words[1] == OP_TRACE_END) {
            uint64_t counts[PLAN_MAX_RANKS];
            TRY(gather_traces(r, counts, NULL, err));
            continue;
        }
        struct step step = get_step(r->words);
        TRY(model_step(r->model, &step, NULL, err));
    }
}
