#include "engine/job.h"

#include "base/machine.h"
#include "base/mem.h"
#include "base/util.h"
#include "fabric/links.h"

#include <jansson.h>
#include <sodium.h>
#include <stdio.h>

void job_deinit(struct job *job) {
    mem_free(job->model_path);
    mem_free(job->rendezvous);
    mem_free(job->emulate);
    mem_free(job->rdma);
    mem_free(job->source);
    *job = (struct job){0};
}

void job_set_threads(struct job *job) {
    if (job->n_threads != 0)
        return;
    job->n_threads =
        job->own_cores ? machine_n_cores() : machine_part_cores(job->local_rank, job->n_local);
}

void job_keep_to_part(const struct job *job) {
    if (job->n_local > 1 && !job->own_cores)
        machine_keep_to(job->local_rank, job->n_local);
}

enum status job_parse_link(const char *text, enum fabric_link *out, struct err *err) {
    char known[128] = "auto";
    *out = FABRIC_LINK_AUTO;
    if (text == NULL || str_eq(text, "auto"))
        return ST_OK;
    for (const struct link_ops *const *ops = link_table; *ops != NULL; ops++) {
        size_t n = strlen(known);
        *out = (*ops)->id;
        if (str_eq(text, (*ops)->name))
            return ST_OK;
        snprintf(known + n, sizeof known - n, ", %s", (*ops)->name);
    }
    return err_set(err, ST_BAD_INPUT, "unknown link %s: expected %s", text, known);
}

enum status job_to_json(const struct job *job, char **text, struct err *err) {
    char token[FABRIC_TOKEN_BYTES * 2 + 1];
    sodium_bin2hex(token, sizeof token, job->token, sizeof job->token);
    json_t *weights = json_array();
    for (int i = 0; i < job->n_weights; i++)
        json_array_append_new(weights, json_real(job->weights[i]));
    json_t *o = json_pack(
        "{s:s, s:s, s:s, s:s*, s:s*, s:s*, s:i, s:i, s:i, s:i, s:o, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, "
        "s:i, s:i, s:i, s:i, s:i}",
        "model", job->model_path, "rendezvous", job->rendezvous, "token", token, "emulate",
        job->emulate, "rdma", job->rdma, "source", job->source, "rank", job->rank, "n_ranks",
        job->n_ranks, "tp", job->tp, "pp", job->pp, "weights", weights, "link", (int)job->link,
        "n_threads", job->n_threads, "n_ctx", (int)job->n_ctx, "n_chunk", (int)job->n_chunk,
        "n_runs", (int)job->n_runs, "n_pages", (int)job->n_pages[KV_WHOLE], "n_window_pages",
        (int)job->n_pages[KV_WINDOW], "kv_type", (int)job->kv_type, "experts",
        (int)job->experts, "silence_ms", job->silence_ms, "n_local", job->n_local, "local_rank",
        job->local_rank, "placement", (int)job->placement);
    *text = o != NULL ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(o);
    return *text != NULL ? ST_OK : err_set(err, ST_BAD_INPUT, "the job of a rank is not UTF-8");
}

enum status job_from_json(struct job *out, const char *text, size_t len, struct err *err) {
    json_error_t why;
    json_t *o = json_loadb(text, len, 0, &why), *weights = NULL;
    const char *model, *rendezvous, *token, *emulate = NULL, *rdma = NULL, *source = NULL;
    struct job job = {0};
    int link, n_ctx, n_chunk, n_runs, n_pages, n_window_pages, kv_type, experts, placement;
    size_t token_len = 0;
    enum status st = ST_OK;
    if (o == NULL ||
        json_unpack_ex(
            o, &why, 0,
            "{s:s, s:s, s:s, s?s, s?s, s?s, s:i, s:i, s:i, s:i, s:o, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, "
            "s:i, s:i, s:i, s:i, s:i}",
            "model", &model, "rendezvous", &rendezvous, "token", &token, "emulate", &emulate,
            "rdma", &rdma, "source", &source, "rank", &job.rank, "n_ranks", &job.n_ranks, "tp",
            &job.tp, "pp", &job.pp, "weights", &weights, "link", &link, "n_threads",
            &job.n_threads, "n_ctx", &n_ctx, "n_chunk", &n_chunk, "n_runs", &n_runs, "n_pages",
            &n_pages, "n_window_pages", &n_window_pages, "kv_type", &kv_type, "experts",
            &experts, "silence_ms", &job.silence_ms, "n_local", &job.n_local, "local_rank",
            &job.local_rank, "placement", &placement) != 0) {
        st = err_set(err, ST_BAD_INPUT, "the job of this worker cannot be read: %s", why.text);
        goto done;
    }
    if (job.n_ranks < 1 || job.n_ranks > PLAN_MAX_RANKS || job.rank < 0 ||
        job.rank >= job.n_ranks || job.tp < 1 || job.pp < 1 || job.tp > PLAN_MAX_RANKS ||
        job.pp > PLAN_MAX_RANKS || job.tp * job.pp != job.n_ranks ||
        json_array_size(weights) > PLAN_MAX_RANKS || n_ctx < 1 || n_chunk < 1 || n_runs < 1 ||
        n_pages < 1 || n_window_pages < 0 || kv_type < 0 || kv_type >= KV_N_TYPES ||
        placement < 0 || placement >= JOB_PLACE_N || job.local_rank < 0 ||
        job.local_rank >= job.n_local || job.n_local > PLAN_MAX_RANKS ||
        sodium_hex2bin(job.token, sizeof job.token, token, strlen(token), NULL, &token_len,
                       NULL) != 0 ||
        token_len != sizeof job.token) {
        st = err_set(err, ST_BAD_INPUT, "the job of this worker makes no sense");
        goto done;
    }
    job.n_weights = (int)json_array_size(weights);
    for (int i = 0; i < job.n_weights; i++)
        job.weights[i] = json_number_value(json_array_get(weights, (size_t)i));
    job.link = (enum fabric_link)link;
    job.n_ctx = (uint32_t)n_ctx;
    job.n_chunk = (uint32_t)n_chunk;
    job.n_runs = (uint32_t)n_runs;
    job.n_pages[KV_WHOLE] = (uint32_t)n_pages;
    job.n_pages[KV_WINDOW] = (uint32_t)n_window_pages;
    job.kv_type = (enum kv_type)kv_type;
    job.placement = (enum job_placement)placement;
    job.experts = experts == EXPERTS_WHOLE ? EXPERTS_WHOLE : EXPERTS_SLICE;
    job.model_path = mem_strdup(model);
    job.rendezvous = mem_strdup(rendezvous);
    job.emulate = emulate != NULL ? mem_strdup(emulate) : NULL;
    job.rdma = rdma != NULL ? mem_strdup(rdma) : NULL;
    job.source = source != NULL ? mem_strdup(source) : NULL;
    if (job.model_path == NULL || job.rendezvous == NULL || (emulate && job.emulate == NULL) ||
        (rdma && job.rdma == NULL) || (source && job.source == NULL)) {
        st = err_set(err, ST_NO_MEMORY, "no memory for a job");
        job_deinit(&job);
        goto done;
    }
    *out = job;
done:
    json_decref(o);
    return st;
}
