/* instance.c: Opens a model on all its ranks, and again on the remaining ones after a loss. */
#include "ranks/instance.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/util.h"
#include "device/device.h"

#include "base/printable.h"
#include "link/links.h"
#include "net/net.h"

#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DEFAULT_SILENCE_MS 3000
#define RECOVERY_PAUSE_MS 1000

static enum status set_token(uint8_t token[FABRIC_TOKEN_BYTES], const char *secret,
                             struct err *err);

/* The index among the ranks of this machine, if another program starts them. */
static enum status set_local(struct job *job, const struct lockstep_options *opt,
                             struct err *err) {
    job->n_local = MAX(opt->n_local, 1);
    job->local_rank = opt->local_rank;
    job->own_cores = machine_is_bound();
    return job->local_rank >= 0 && job->local_rank < job->n_local
               ? ST_OK
               : err_set(err, ST_BAD_INPUT, "local rank %d of %d on this machine",
                         job->local_rank, job->n_local);
}

/* How many ranks there are, and how many of them share this machine. */
static enum status count_ranks(struct job *job, const struct lockstep_options *opt,
                               struct err *err) {
    struct launch_place place;
    job->n_ranks = job->n_local = opt->n_ranks;
    if (opt->hosts != NULL) {
        TRY(launch_from_hosts(&place, opt->hosts, 0, 0, err));
        job->n_ranks = place.n_ranks;
        job->n_local = place.n_local;
        if (opt->rendezvous != NULL)
            return err_set(err, ST_BAD_INPUT, "either hosts or a rendezvous, not both");
    }
    if (opt->rendezvous == NULL || opt->n_ranks < 2)
        return ST_OK;
    TRY(set_local(job, opt, err));
    job->invites = true;
    return set_token(job->token, opt->secret, err);
}

/* Before any other rank is started, which would find the same fault and say it once more. */
static enum status check_links(const struct lockstep_options *opt, int n_ranks,
                               struct err *err) {
    uint64_t wires[FABRIC_MAX_RANKS];
    bool complete;
    if (opt->emulate_link != NULL)
        TRY(link_emulate_check(opt->emulate_link, err));
    return opt->rdma_matrix != NULL
               ? launch_rdma_wires(wires, &complete, opt->rdma_matrix, n_ranks, err)
               : ST_OK;
}

/* Ranks of one machine are alike and close together, unless they are on different devices; several
 * machines are measured. */
static enum job_placement open_placement(const struct job *job,
                                         const struct lockstep_options *opt) {
    const bool are_alike = job->n_local >= job->n_ranks && !job_devices_differ(opt->devices);
    if (job->n_ranks == 1 || are_alike || opt->n_split != 0)
        return JOB_PLACE_TOLD;
    const bool any = opt->parallel == NULL || str_eq(opt->parallel, "auto");
    /* Experts are apart in teams alone. */
    return any && job->experts != EXPERTS_CPU ? JOB_PLACE_ALL : JOB_PLACE_SHARES;
}

/* Copies the texts; each is NULL if it is NULL there. If there is no memory for one, the job is
 * empty again. */
static enum status job_texts(struct job *job, const char *model_path, const char *rendezvous,
                             const struct lockstep_options *opt, struct err *err) {
    const struct {
        char **to;
        const char *from;
    } texts[] = {{&job->model_path, model_path},
                 {&job->rendezvous, rendezvous},
                 {&job->emulate, opt->emulate_link},
                 {&job->rdma, opt->rdma_matrix},
                 {&job->devices, opt->devices}};
    bool whole = true;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        *texts[i].to = texts[i].from != NULL ? mem_strdup(texts[i].from) : NULL;
        whole &= texts[i].from == NULL || *texts[i].to != NULL;
    }
    if (whole)
        return ST_OK;
    job_deinit(job);
    return err_set(err, ST_NO_MEMORY, "no memory for a job");
}

static enum status make_job(struct job *out, const struct lockstep_options *opt,
                            struct err *err) {
    struct job job = {.rank = 0};
    if (opt->model_path == NULL)
        return err_set(err, ST_BAD_INPUT, "no model was named");
    if (opt->rank != 0)
        return err_set(err, ST_BAD_INPUT, "rank %d does not open a model: it follows rank 0",
                       opt->rank);
    if (opt->n_split < 0 || opt->n_split > LOCKSTEP_MAX_RANKS || opt->n_threads < 0 ||
        opt->n_ctx < 0 || opt->n_chunk < 0 || opt->silence_ms < 0)
        return err_set(err, ST_BAD_INPUT,
                       "an option of lockstep_open is negative or too large");
    TRY(count_ranks(&job, opt, err));
    if (opt->n_split > job.n_ranks)
        return err_set(err, ST_BAD_INPUT, "the split has %d weights, but there are %d ranks",
                       opt->n_split, job.n_ranks);
    TRY(plan_parse_parallel(opt->parallel, job.n_ranks, &job.tp, &job.pp, err));
    TRY(plan_parse_experts(opt->experts, &job.experts, err));
    job.placement = open_placement(&job, opt);
    TRY(job_parse_link(opt->link, &job.link, err));
    TRY(kv_parse_type(opt->kv, &job.kv_type, err));
    TRY(check_links(opt, job.n_ranks, err));
    job.n_weights = opt->n_split;
    for (int i = 0; i < opt->n_split; i++)
        job.weights[i] = opt->split[i];
    job.n_threads = opt->n_threads;
    job_set_threads(&job);
    job.n_ctx = (uint32_t)opt->n_ctx; /* 0 until the file is open */
    job.n_chunk = opt->n_chunk != 0 ? (uint32_t)opt->n_chunk : INSTANCE_DEFAULT_CHUNK;
    job.silence_ms = opt->silence_ms != 0 ? opt->silence_ms : DEFAULT_SILENCE_MS;
    char path[PATH_MAX];
    TRY(file_absolute(path, sizeof path, opt->model_path, err));
    TRY(job_texts(&job, path, job.invites ? opt->rendezvous : NULL, opt, err));
    *out = job;
    return ST_OK;
}

static enum status set_context(struct job *job, const struct hparams *hp, struct err *err) {
    if (job->n_ctx == 0)
        job->n_ctx = MIN(hp->n_ctx_train, (uint32_t)INSTANCE_DEFAULT_CTX);
    if (job->n_ctx > hp->n_ctx_train)
        return err_set(
            err, ST_BAD_INPUT,
            "a context of %u is more than the model's %u, the most that --ctx may be",
            job->n_ctx, hp->n_ctx_train);
    job->n_chunk = MIN(job->n_chunk, job->n_ctx);
    job->n_runs = 1;
    if (hp->recurrent.kind != RECURRENT_NONE) {
        job->n_states = INSTANCE_STATES;
        job->n_runs = 2; /* a snapshot divides a step */
    }
    job->n_pages[KV_WHOLE] = (uint32_t)div_up(job->n_ctx, KV_PAGE);
    if (hp->window != 0)
        job->n_pages[KV_WINDOW] = kv_window_pages(hp->window, job->n_ctx, job->n_chunk);
    return ST_OK;
}

/* A listening socket that the others reach as *address. */
static enum status listen_at(int *out, char **address, const char *host_port, struct err *err) {
    struct net_address at;
    char text[NET_TEXT_BYTES];
    int fd = -1;
    TRY(net_resolve(&at, host_port, true, err));
    TRY(net_listen(&fd, &at, err));
    enum status st = net_local(fd, &at, err);
    if (st == ST_OK) {
        net_text(&at, text);
        *address = mem_strdup(text);
        if (*address == NULL)
            st = err_set(err, ST_NO_MEMORY, "no memory for an address");
    }
    if (st != ST_OK) {
        close(fd);
        return st;
    }
    *out = fd;
    return ST_OK;
}

static enum status open_children(struct instance *in, const struct lockstep_options *opt,
                                 int *listen_fd, struct err *err) {
    struct job *job = &in->rank.job;
    struct launch_hosts hosts;
    struct launch_place place;
    randombytes_buf(job->token, sizeof job->token);
    if (opt->hosts != NULL) {
        TRY(launch_hosts(&hosts, opt->hosts, err));
        TRY(launch_from_hosts(&place, opt->hosts, 0, 0, err));
    }
    TRY(listen_at(listen_fd, &job->rendezvous,
                  opt->hosts != NULL ? place.rendezvous : "127.0.0.1:0", err));
    /* The cores of this machine are already divided. How many another machine has is not known
     * here. */
    int threads = opt->hosts != NULL ? opt->n_threads : job->n_threads;
    enum status st =
        launch_open(&in->launch, opt->worker_path, job, opt->hosts != NULL ? &hosts : NULL,
                    opt->by_nodes, threads, err);
    if (st != ST_OK)
        close(*listen_fd);
    return st;
}

static bool a_child_has_ended(void *launch) {
    return launch_any_ended(launch);
}

static enum status start_ranks(struct instance *in, const struct lockstep_options *opt,
                               struct err *err) {
    struct rank *r = &in->rank;
    struct rank_hooks hooks = {.progress = opt->progress,
                               .user = opt->progress_user,
                               .placed = opt->placed,
                               .placed_user = opt->placed_user};
    int listen_fd = -1;
    if (r->job.n_ranks > 1 && sodium_init() < 0)
        return err_set(err, ST_IO, "libsodium does not start");
    if (r->job.n_ranks > 1 && opt->rendezvous == NULL) {
        machine_keep_to(0, 1); /* children begin where this thread may run */
        enum status st = open_children(in, opt, &listen_fd, err);
        job_keep_to_part(&r->job);
        TRY(st);
        hooks.hopeless = a_child_has_ended;
        hooks.hopeless_user = in->launch;
    }
    TRY(rank_load(r, listen_fd, &hooks, err));
    return in->launch != NULL ? launch_wait_ready(in->launch, r->f, err) : ST_OK;
}

/* ---- a rank that another program started ---------------------------------------------------
 */

static enum status set_token(uint8_t token[FABRIC_TOKEN_BYTES], const char *secret,
                             struct err *err) {
    if (secret == NULL || *secret == '\0')
        return err_set(err, ST_BAD_INPUT,
                       "ranks on a network need a secret that all of them are given");
    if (sodium_init() < 0)
        return err_set(err, ST_IO, "libsodium does not start");
    crypto_generichash(token, FABRIC_TOKEN_BYTES, (const uint8_t *)secret, strlen(secret), NULL,
                       0);
    return ST_OK;
}

static enum status join_as_told(struct rank *r, const struct lockstep_options *opt,
                                struct err *err) {
    struct job job = {.rank = opt->rank,
                      .n_ranks = opt->n_ranks,
                      .n_threads = opt->n_threads,
                      .silence_ms =
                          opt->silence_ms != 0 ? opt->silence_ms : DEFAULT_SILENCE_MS};
    char path[PATH_MAX];
    if (opt->rendezvous == NULL || opt->rank < 1 || opt->rank >= opt->n_ranks)
        return err_set(err, ST_BAD_INPUT, "rank %d of %d does not follow a rank 0 elsewhere",
                       opt->rank, opt->n_ranks);
    if (opt->model_path != NULL)
        TRY(file_absolute(path, sizeof path, opt->model_path, err));
    TRY(set_local(&job, opt, err));
    TRY(job_parse_link(opt->link, &job.link, err));
    TRY(kv_parse_type(opt->kv, &job.kv_type, err));
    TRY(set_token(job.token, opt->secret, err));
    TRY(job_texts(&job, opt->model_path != NULL ? path : NULL, opt->rendezvous, opt, err));
    return rank_join(r, &job, err);
}

enum status instance_follow(const struct lockstep_options *opt, struct err *err) {
    static const struct rank_hooks none;
    struct rank r = {0};
    enum status st = join_as_told(&r, opt, err);
    if (st == ST_OK)
        st = rank_load(&r, -1, &none, err);
    if (st == ST_OK)
        st = rank_follow(&r, err);
    rank_close(&r);
    return st;
}

/* ---- what was opened ----------------------------------------------------------------------- */

/* The type of most of the bytes. */
static const char *main_type(const struct gguf_totals *all) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < QT_N; i++)
        if (all->types[i].n_bytes > all->types[best].n_bytes)
            best = i;
    return qtype_info(best)->name;
}

void instance_describe(struct instance *in) {
    struct rank *r = &in->rank;
    struct lockstep_model_info *info = &in->info;
    struct gguf_totals all;
    struct gguf_str s = {"", 0};
    gguf_totals(r->g, &all);
    (void)gguf_str(r->g, "general.name", &s, NULL);
    copy_printable(in->name, sizeof in->name, s.ptr, s.len);
    snprintf(in->arch, sizeof in->arch, "%s", r->hp.arch->name);
    plan_text(&r->plan, in->parallel, sizeof in->parallel);
    const struct device_steps *its = &r->device_steps;
    device_steps_text(in->computes, sizeof in->computes, its,
                      r->device != NULL ? device_info(r->device)->name : NULL,
                      r->kernels->name);
    *info = (struct lockstep_model_info){
        .architecture = in->arch,
        .name = in->name,
        .type = main_type(&all),
        .n_params = all.n_values,
        .weight_bytes = all.n_bytes,
        .parallel = in->parallel,
        .placement = r->placement,
        .isa = in->computes,
        .sums = model_sum_algorithm(r->model),
        .n_vocab = (int)r->hp.n_vocab,
        .n_ctx = (int)r->job.n_ctx,
        .n_ctx_train = (int)r->hp.n_ctx_train,
        .n_layers = (int)r->hp.n_layers,
        .n_embd = (int)r->hp.n_embd,
        .n_ranks = r->job.n_ranks,
        .n_threads = r->job.n_threads,
        .device_from = r->device != NULL ? (int)MIN(its->from, (uint32_t)INT_MAX) : 0,
        .device_until = r->device != NULL ? (int)MIN(its->until, (uint32_t)INT_MAX) : 0,
        .has_chat_template = tokenizer_facts(in->tokenizer)->chat_template != NULL,
    };
    for (int i = 0; i < r->job.n_ranks; i++) {
        info->token_weight_bytes += in->reports[i].token_bytes;
        info->token_macs += in->reports[i].token_macs;
    }
}

/* What instance_plan() says but for the tokenizer; the file may be open already. */
static enum status plan(struct instance *in, const struct lockstep_options *opt,
                        struct err *err) {
    struct job job;
    TRY(make_job(&job, opt, err));
    TRY(rank_init(&in->rank, &job, in->rank.g, err));
    return set_context(&in->rank.job, &in->rank.hp, err);
}

/* What instance_start() says but for info. */
static enum status start(struct instance *in, const struct lockstep_options *opt,
                         struct err *err) {
    TRY(instance_explain(in, start_ranks(in, opt, err), err));
    return instance_explain(in, rank_lead_reports(&in->rank, in->reports, err), err);
}

enum status instance_plan(struct instance *in, const struct lockstep_options *opt,
                          struct err *err) {
    in->began_s = clock_s();
    TRY(plan(in, opt, err));
    return tokenizer_open(&in->tokenizer, in->rank.g, err);
}

enum status instance_start(struct instance *in, const struct lockstep_options *opt,
                           struct err *err) {
    in->considered = considered_take();
    enum status st = start(in, opt, err);
    if (st == ST_AGAIN && in->rank.figures != NULL && opt->hosts != NULL)
        considered_keep(in->rank.figures, in->rank.placement, opt->hosts);
    if (st == ST_AGAIN)
        return err_set(err, st, "other machines are to do it, as placed() was told");
    TRY(st);
    instance_describe(in);
    in->info.load_s = clock_s() - in->began_s;
    return ST_OK;
}

void instance_close(struct instance *in) {
    if (in->rank.model != NULL)
        rank_lead_close(&in->rank);
    rank_close(&in->rank);
    launch_close(in->launch);
    tokenizer_close(in->tokenizer);
    considered_free(in->considered);
    *in = (struct instance){0};
}

enum status instance_explain(struct instance *in, enum status st, struct err *err) {
    if (st == ST_PEER_LOST || st == ST_TIMEOUT)
        launch_explain(in->launch, in->rank.f != NULL ? fabric_lost_rank(in->rank.f) : -1, err);
    return st;
}

/* ---- after a loss ------------------------------------------------------------------------ */

/* The ranks that were lost or did not come, a bit each; 0: none, or not known. If this rank
 * itself stalled, its own bit: then no rank is left out, and ranks that are unreachable do not
 * come. */
uint64_t instance_lost_ranks(const struct instance *in) {
    int lost = in->rank.f != NULL ? fabric_lost_rank(in->rank.f) : -1;
    if (lost < 0 && in->rank.missing != 0)
        return in->rank.missing;
    if (lost < 0 && in->launch != NULL)
        lost = launch_lost_rank(in->launch);
    return lost >= 0 ? (uint64_t)1 << lost : 0;
}

static enum status leave_out_lost(struct instance *in, struct membership *left, const char *why,
                                  struct err *err) {
    const char *left_out;
    uint64_t lost = instance_lost_ranks(in);
    if (in->launch != NULL)
        launch_kill(in->launch, lost);
    TRY(membership_note_lost(left, lost | model_device_is_lost(in->rank.model), err));
    TRY(membership_leave_out(left, lost, &left_out, err));
    if (left_out != NULL)
        log_error("%s; going on without %s", why, left_out);
    else
        log_error("%s; %s", why,
                  left->opt.rendezvous != NULL ? "waiting for the ranks to come again"
                                               : "starting the ranks again");
    return ST_OK;
}

static void close_ranks(struct instance *in) {
    in->rank = (struct rank){.g = rank_close_but_file(&in->rank)};
    launch_close(in->launch);
    in->launch = NULL;
}

static enum status open_on(struct instance *in, struct membership *left,
                           const struct recovery *how, struct err *err) {
    considered_free(in->considered); /* of machines that may be others now */
    in->considered = NULL;
    TRY(plan(in, &left->opt, err));
    in->rank.job.may_lack_device = 1;
    if (how->size != NULL)
        TRY(how->size(how->user, err));
    return start(in, &left->opt, err);
}

static enum status start_again(struct instance *in, struct membership *left,
                               const struct recovery *how, struct err *err) {
    char why[sizeof err->text];
    snprintf(why, sizeof why, "%s", err->text);
    TRY(leave_out_lost(in, left, why, err));
    close_ranks(in);
    return open_on(in, left, how, err);
}

static bool may_pass(enum status st) {
    return st == ST_PEER_LOST || st == ST_TIMEOUT || st == ST_IO;
}

static void say_who_goes_on(const struct instance *in, double began_s) {
    int n = in->rank.job.n_ranks;
    log_info("%d rank%s went on after %.1f s%s%s", n, n == 1 ? "" : "s", clock_s() - began_s,
             in->rank.placement[0] != '\0' ? ": " : "", in->rank.placement);
}

enum status instance_recover(struct instance *in, struct membership *left,
                             const struct recovery *how, struct err *err) {
    double began = clock_s();
    enum status st = start_again(in, left, how, err);
    for (int i = 1; may_pass(st) && i < RECOVERY_TRIES; i++) {
        if (!how->wait(how->user, RECOVERY_PAUSE_MS, err->text))
            break;
        st = start_again(in, left, how, err);
    }
    if (st != ST_OK)
        return st;
    membership_keep(left);
    say_who_goes_on(in, began);
    return ST_OK;
}

enum status instance_reopen(struct instance *in, struct membership *left,
                            const struct recovery *how, struct err *err) {
    double began = clock_s();
    if (in->rank.model != NULL)
        rank_lead_close(&in->rank);
    close_ranks(in);
    if (open_on(in, left, how, err) != ST_OK)
        return instance_recover(in, left, how, err);
    membership_keep(left);
    say_who_goes_on(in, began);
    return ST_OK;
}
