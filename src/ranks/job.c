/* job.c: Writes and reads a rank's job as JSON. */
#include "ranks/job.h"

#include "base/machine.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/util.h"
#include "base/words.h"
#include "link/links.h"

#include <assert.h>
#include <jansson.h>
#include <limits.h>
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

void job_deinit(struct job *job) {
    mem_free(job->model_path);
    mem_free(job->rendezvous);
    mem_free(job->emulate);
    mem_free(job->rdma);
    mem_free(job->source);
    mem_free(job->devices);
    *job = (struct job){0};
}

/* out->name is what the list says. */
static enum status divide_steps(struct job_device *out, struct err *err) {
    char *plus = strchr(out->name, '+'), name[sizeof out->name];
    out->until = UINT32_MAX;
    if (plus == NULL) {
        out->measures = str_eq(out->name, "auto");
        return ST_OK;
    }
    const bool cpu_first = strncmp(out->name, "cpu+", 4) == 0, cpu_last = str_eq(plus, "+cpu");
    out->divides = true;
    out->measures = !cpu_first && str_eq(plus, "+auto");
    if (cpu_first == cpu_last && !out->measures)
        return err_set(
            err, ST_BAD_INPUT,
            "--device %s: expected a device, and +cpu or +auto behind it, or cpu+ before it",
            out->name);
    if (cpu_first)
        out->until = JOB_PROMPT_TOKENS;
    else if (cpu_last)
        out->from = JOB_PROMPT_TOKENS;
    *plus = '\0';
    snprintf(name, sizeof name, "%s", cpu_first ? plus + 1 : out->name);
    memcpy(out->name, name, sizeof name);
    return ST_OK;
}

enum status job_device(const struct job *job, struct job_device *out, struct err *err) {
    const char *list = job->devices != NULL ? job->devices : "cpu", *mine = list;
    size_t len;
    int n = 0;
    for (const char *at, *rest = list; (at = words_next(&rest, &len)) != NULL;) {
        if (len == 0 || len >= sizeof out->name)
            return err_set(err, ST_BAD_INPUT, "--device %s: a name is empty or too long", list);
        if (n++ == job->rank)
            mine = at;
    }
    if (n != 1 && n != job->n_ranks)
        return err_set(err, ST_BAD_INPUT,
                       "--device names %d devices for %d ranks: expected one, or one a rank", n,
                       job->n_ranks);
    *out = (struct job_device){.measures = false};
    snprintf(out->name, sizeof out->name, "%.*s", (int)strcspn(mine, ","), mine);
    TRY(divide_steps(out, err));
    if (out->name[0] == '\0')
        return err_set(err, ST_BAD_INPUT, "--device %s: a name is empty", list);
    if (str_eq(out->name, "cpu"))
        *out = (struct job_device){.measures = false};
    return ST_OK;
}

static bool device_of(const struct job *job, int rank, struct job_device *out) {
    struct job other = *job; /* shares the strings */
    other.rank = rank;
    return job_device(&other, out, NULL) == ST_OK;
}

uint64_t job_processors(const struct job *job) {
    struct job_device its;
    uint64_t ranks = 0;
    for (int i = 0; i < job->n_ranks; i++)
        if (device_of(job, i, &its) && its.name[0] == '\0')
            ranks |= (uint64_t)1 << i;
    return ranks;
}

bool job_measures_devices(const struct job *job) {
    struct job_device its;
    bool any = false;
    for (int i = 0; i < job->n_ranks; i++)
        any |= device_of(job, i, &its) && its.measures;
    return any;
}

bool job_devices_differ(const char *devices) {
    size_t n, len;
    const char *first = words_next(&devices, &n);
    for (const char *at; (at = words_next(&devices, &len)) != NULL;)
        if (len != n || memcmp(at, first, n) != 0)
            return true;
    return false;
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

/* The parts of a job in its text form. Numbers are int, uint32_t or enum, texts owned. */
struct number {
    const char *name;
    size_t at;
    int min, max;
};
#define NUMBER(name, member, min, max) \
    { name, offsetof(struct job, member), min, max }
static const struct number numbers[] = {
    NUMBER("rank", rank, 0, PLAN_MAX_RANKS - 1),
    NUMBER("n_ranks", n_ranks, 1, PLAN_MAX_RANKS),
    NUMBER("tp", tp, 1, PLAN_MAX_RANKS),
    NUMBER("pp", pp, 1, PLAN_MAX_RANKS),
    NUMBER("link", link, FABRIC_LINK_AUTO, FABRIC_LINK_UCX),
    NUMBER("n_threads", n_threads, 0, POOL_MAX_THREADS),
    NUMBER("n_ctx", n_ctx, 1, INT_MAX),
    NUMBER("n_chunk", n_chunk, 1, INT_MAX),
    NUMBER("n_runs", n_runs, 1, INT_MAX),
    NUMBER("n_pages", n_pages[KV_WHOLE], 1, INT_MAX),
    NUMBER("n_window_pages", n_pages[KV_WINDOW], 0, INT_MAX),
    NUMBER("n_states", n_states, 0, INT_MAX),
    NUMBER("kv_type", kv_type, 0, KV_N_TYPES - 1),
    NUMBER("experts", experts, EXPERTS_SLICE, EXPERTS_AUTO),
    NUMBER("silence_ms", silence_ms, 1, INT_MAX),
    NUMBER("n_local", n_local, 1, PLAN_MAX_RANKS),
    NUMBER("local_rank", local_rank, 0, PLAN_MAX_RANKS - 1),
    NUMBER("may_lack_device", may_lack_device, 0, 1),
    NUMBER("placement", placement, 0, JOB_PLACE_N - 1),
};
static_assert(sizeof(enum fabric_link) == sizeof(int) && sizeof(uint32_t) == sizeof(int),
              "numbers of a job are as large as int");

struct text {
    const char *name;
    size_t at;
    bool optional;
};
static const struct text texts[] = {
    {"model", offsetof(struct job, model_path), false},
    {"rendezvous", offsetof(struct job, rendezvous), false},
    {"emulate", offsetof(struct job, emulate), true},
    {"rdma", offsetof(struct job, rdma), true},
    {"source", offsetof(struct job, source), true},
    {"devices", offsetof(struct job, devices), true},
};

static char **text_of(struct job *job, const struct text *t) {
    return (char **)((char *)job + t->at);
}

enum status job_to_json(const struct job *job, char **text, struct err *err) {
    char token[FABRIC_TOKEN_BYTES * 2 + 1];
    sodium_bin2hex(token, sizeof token, job->token, sizeof job->token);
    json_t *weights = json_array();
    for (int i = 0; i < job->n_weights; i++)
        json_array_append_new(weights, json_real(job->weights[i]));
    json_t *o = json_pack("{s:s, s:o}", "token", token, "weights", weights);
    bool is_whole = o != NULL;
    for (size_t i = 0; i < ARRAY_LEN(texts) && is_whole; i++) {
        const char *value = *text_of((struct job *)job, &texts[i]);
        if (value != NULL || !texts[i].optional)
            is_whole = json_object_set_new(o, texts[i].name, json_string(value)) == 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(numbers) && is_whole; i++) {
        int value;
        memcpy(&value, (const char *)job + numbers[i].at, sizeof value);
        is_whole = json_object_set_new(o, numbers[i].name, json_integer(value)) == 0;
    }
    *text = is_whole ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(o);
    return *text != NULL ? ST_OK
                         : err_set(err, ST_BAD_INPUT, "the path of the model is not UTF-8");
}

static enum status take_number(struct job *job, const json_t *o, const struct number *n,
                               struct err *err) {
    const json_t *v = json_object_get(o, n->name);
    json_int_t value = json_integer_value(v);
    if (!json_is_integer(v) || value < n->min || value > n->max)
        return err_set(
            err, ST_BAD_INPUT,
            "the job of this worker makes no sense: %s is not a number from %d to %d", n->name,
            n->min, n->max);
    int fits = (int)value;
    memcpy((char *)job + n->at, &fits, sizeof fits);
    return ST_OK;
}

static enum status take_text(struct job *job, const json_t *o, const struct text *t,
                             struct err *err) {
    const json_t *v = json_object_get(o, t->name);
    if (v == NULL && t->optional)
        return ST_OK;
    if (!json_is_string(v))
        return err_set(err, ST_BAD_INPUT,
                       "the job of this worker makes no sense: %s is not a text", t->name);
    *text_of(job, t) = mem_strdup(json_string_value(v));
    return *text_of(job, t) != NULL ? ST_OK : err_set(err, ST_NO_MEMORY, "no memory for a job");
}

/* Whether they fit the ranks is said where the plan is made. */
static enum status take_weights(struct job *job, const json_t *v, struct err *err) {
    size_t n = json_array_size(v);
    if (!json_is_array(v) || n > PLAN_MAX_WEIGHTS)
        return err_set(
            err, ST_BAD_INPUT,
            "the job of this worker makes no sense: weights are not up to %d numbers",
            PLAN_MAX_WEIGHTS);
    job->n_weights = (int)n;
    for (size_t i = 0; i < n; i++)
        job->weights[i] = json_number_value(json_array_get(v, i));
    return ST_OK;
}

static enum status take_token(struct job *job, const char *hex, struct err *err) {
    size_t n = 0;
    if (hex == NULL ||
        sodium_hex2bin(job->token, sizeof job->token, hex, strlen(hex), NULL, &n, NULL) != 0 ||
        n != sizeof job->token)
        return err_set(err, ST_BAD_INPUT,
                       "the job of this worker makes no sense: token is not %d bytes in hex",
                       FABRIC_TOKEN_BYTES);
    return ST_OK;
}

static enum status take_parts(struct job *job, const json_t *o, struct err *err) {
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        TRY(take_number(job, o, &numbers[i], err));
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        TRY(take_text(job, o, &texts[i], err));
    TRY(take_weights(job, json_object_get(o, "weights"), err));
    TRY(take_token(job, json_string_value(json_object_get(o, "token")), err));
    if (job->tp * job->pp != job->n_ranks || job->rank >= job->n_ranks ||
        job->local_rank >= job->n_local)
        return err_set(err, ST_BAD_INPUT,
                       "the job of this worker makes no sense: rank %d of %d (%d x %d), %d of "
                       "the %d on its machine",
                       job->rank, job->n_ranks, job->tp, job->pp, job->local_rank,
                       job->n_local);
    return ST_OK;
}

enum status job_from_json(struct job *out, const char *text, size_t len, struct err *err) {
    json_error_t why;
    struct job job = {0};
    json_t *o = json_loadb(text, len, 0, &why);
    enum status st = o != NULL ? take_parts(&job, o, err)
                               : err_set(err, ST_BAD_INPUT,
                                         "the job of this worker cannot be read: %s", why.text);
    json_decref(o);
    if (st == ST_OK)
        *out = job;
    else
        job_deinit(&job);
    return st;
}
