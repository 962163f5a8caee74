/* report.c: writes and reads a node's report: the deployments that it runs or could serve. */
#include "node/report.h"

#include "base/duration.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/sentence.h"
#include "base/util.h"

#include <assert.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define TERM_MAX ((json_int_t)1 << 52)
/* Of deployments in one report: of those that are up as many as may be, and some that end. */
#define RUNS_MAX 4096

static const char *const states[RUN_N_STATES] = {
    [RUN_WAITING] = "waiting",   [RUN_STARTING] = "starting", [RUN_LISTENING] = "listening",
    [RUN_STOPPING] = "stopping", [RUN_FAILED] = "failed",     [RUN_ASLEEP] = "asleep",
};
static const char *const reasons[STANDBY_N] = {
    [STANDBY_READY] = "",
    [STANDBY_MISSING] = "missing",
    [STANDBY_COPYING] = "copying",
    [STANDBY_DAMAGED] = "damaged",
    [STANDBY_DIFFERENT] = "different",
    [STANDBY_DISK] = "disk",
    [STANDBY_MEMORY] = "memory",
    [STANDBY_FAILED] = "failed",
};

const char *run_state_name(enum run_state s) {
    return states[s];
}

/* The index of a word in a table, in which some places are empty; 0: it is not there. */
static int find_word(const char *const *table, int n, const json_t *word) {
    for (int i = 0; i < n && json_is_string(word); i++)
        if (table[i] != NULL && str_eq(table[i], json_string_value(word)))
            return i;
    return 0;
}

/* ---- building ---------------------------------------------------------------------------- */

void report_deinit(struct node_report *r) {
    for (size_t i = 0; i < r->n_runs; i++) {
        mem_free(r->runs[i].closed);
        mem_free(r->runs[i].sentence);
        mem_free(r->runs[i].standby_sentence);
    }
    mem_free(r->runs);
    mem_free(r->able);
    *r = (struct node_report){.runs = NULL};
}

bool report_set_text(char **text, const char *value) {
    char *copy = mem_strdup(value);
    if (copy == NULL)
        return false;
    sentence_mend(copy);
    mem_free(*text);
    *text = copy;
    return true;
}

struct run_report *report_add_run(struct node_report *r, const char *name) {
    if (!mem_reserve(&r->runs, &r->cap_runs, r->n_runs + 1, sizeof *r->runs))
        return NULL;
    struct run_report *run = &r->runs[r->n_runs++];
    *run = (struct run_report){.named = false};
    snprintf(run->name, sizeof run->name, "%s", name);
    if (report_set_text(&run->closed, "") && report_set_text(&run->sentence, "") &&
        report_set_text(&run->standby_sentence, ""))
        return run;
    mem_free(run->closed);
    mem_free(run->sentence);
    r->n_runs--;
    return NULL;
}

bool report_add_able(struct node_report *r, const char *name, int share_port) {
    if (!mem_reserve(&r->able, &r->cap_able, r->n_able + 1, sizeof *r->able))
        return false;
    struct able_report *able = &r->able[r->n_able++];
    able->share_port = share_port;
    snprintf(able->name, sizeof able->name, "%s", name);
    return true;
}

/* The name is the first field of either kind of entry. */
static_assert(offsetof(struct run_report, name) == 0 && offsetof(struct able_report, name) == 0,
              "by_name()");
static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

void report_sort(struct node_report *r) {
    if (r->n_runs > 0)
        qsort(r->runs, r->n_runs, sizeof *r->runs, by_name);
    if (r->n_able > 0)
        qsort(r->able, r->n_able, sizeof *r->able, by_name);
}

const struct run_report *report_run(const struct node_report *r, const char *name) {
    return r->n_runs > 0 ? bsearch(name, r->runs, r->n_runs, sizeof *r->runs, by_name) : NULL;
}

const struct run_report *report_of(const struct node_report *r, const char *name) {
    static char empty[1];
    static const struct run_report none = {
        .closed = empty, .sentence = empty, .standby_sentence = empty};
    const struct run_report *run = report_run(r, name);
    return run != NULL ? run : &none;
}

const struct able_report *report_able(const struct node_report *r, const char *name) {
    return r->n_able > 0 ? bsearch(name, r->able, r->n_able, sizeof *r->able, by_name) : NULL;
}

/* ---- reading ----------------------------------------------------------------------------- */

/* 0 where it is not within the bounds. */
static json_int_t number(const json_t *o, const char *key, json_int_t min, json_int_t max) {
    json_int_t n = json_integer_value(json_object_get(o, key));
    return n >= min && n <= max ? n : 0;
}

static bool flag(const json_t *o, const char *key) {
    return json_is_true(json_object_get(o, key));
}

static bool read_standby(struct run_report *run, const json_t *standby) {
    const json_t *sentence = json_object_get(standby, "sentence");
    if (!json_is_string(sentence))
        return true;
    run->standby =
        (enum standby)find_word(reasons, STANDBY_N, json_object_get(standby, "reason"));
    return report_set_text(&run->standby_sentence, json_string_value(sentence));
}

static void read_keep(struct keep *out, const json_t *keep) {
    json_int_t ms = json_integer_value(json_object_get(keep, "ms"));
    out->term = (uint64_t)number(keep, "term", 1, TERM_MAX - 1);
    out->at_ms = number(keep, "at", 1, TERM_MAX);
    out->ms = ms >= 0 && ms <= DURATION_MAX_MS ? ms : DURATION_NEVER;
}

static bool read_run(struct node_report *out, const char *name, const json_t *said) {
    struct run_report *run = report_add_run(out, name);
    if (run == NULL)
        return false;
    run->state =
        (enum run_state)find_word(states, RUN_N_STATES, json_object_get(said, "state"));
    run->named = flag(said, "named");
    run->copying = flag(said, "copying");
    run->answers = flag(said, "answers");
    run->version = number(said, "version", 1, TERM_MAX);
    run->term = (uint64_t)number(said, "term", 1, TERM_MAX - 1);
    run->ranks = (int)number(said, "ranks", 0, INT_MAX);
    run->failures = (int)number(said, "failures", 0, INT_MAX);
    run->port = (int)number(said, "port", 1, UINT16_MAX);
    run->requests = number(said, "requests", 0, INT_MAX);
    run->questions = number(said, "questions", 0, INT_MAX);
    run->asked = number(said, "asked", 0, TERM_MAX);
    run->slept = number(said, "slept", 1, TERM_MAX);
    read_keep(&run->keep, json_object_get(said, "keep"));
    run->memory = (uint64_t)number(said, "memory", 0, TERM_MAX);
    snprintf(run->id, sizeof run->id, "%s", json_text(said, "id"));
    if (strlen(json_text(said, "content")) == sizeof run->content - 1)
        memcpy(run->content, json_text(said, "content"), sizeof run->content);
    return report_set_text(&run->closed, json_text(said, "closed")) &&
           report_set_text(&run->sentence, json_text(said, "sentence")) &&
           read_standby(run, json_object_get(said, "standby"));
}

static bool read_all(struct node_report *out, const json_t *runs, const json_t *able) {
    const char *name;
    json_t *said;
    json_object_foreach((json_t *)(uintptr_t)runs, name, said) {
        if (deployment_name_is_good(name) && out->n_runs < RUNS_MAX &&
            !read_run(out, name, said))
            return false;
    }
    json_object_foreach((json_t *)(uintptr_t)able, name, said) {
        json_int_t port = json_integer_value(said);
        if (deployment_name_is_good(name) && out->n_able < RUNS_MAX &&
            !report_add_able(out, name, port > 0 && port <= UINT16_MAX ? (int)port : 0))
            return false;
    }
    return true;
}

enum status report_parse(struct node_report *out, const json_t *runs, const json_t *able,
                         struct err *err) {
    struct node_report r = {.runs = NULL};
    if (!json_is_object(runs) || !json_is_object(able))
        return err_set(err, ST_BAD_INPUT,
                       "a node says {\"runs\": {..}, \"able\": {..}} of its deployments");
    if (!read_all(&r, runs, able)) {
        report_deinit(&r);
        return err_set(err, ST_NO_MEMORY, "no memory for what a node says");
    }
    report_sort(&r);
    *out = r;
    return ST_OK;
}

/* ---- telling ----------------------------------------------------------------------------- */

json_t *report_standby_json(const struct run_report *run) {
    return run->standby == STANDBY_NONE
               ? json_null()
               : json_pack("{s:s, s:s}", "reason", reasons[run->standby], "sentence",
                           run->standby_sentence);
}

/* What few of them have. */
static void add_sleep(json_t *o, const struct run_report *run) {
    if (run->slept > 0)
        json_object_set_new(o, "slept", json_integer(run->slept));
    if (run->keep.term > 0)
        json_object_set_new(o, "keep",
                            json_pack("{s:I, s:I, s:I}", "term", (json_int_t)run->keep.term,
                                      "at", (json_int_t)run->keep.at_ms, "ms",
                                      (json_int_t)run->keep.ms));
}

static json_t *run_json(const struct run_report *run) {
    json_t *o = json_pack(
        "{s:s, s:b, s:I, s:s*, s:I, s:i, s:i, s:i, s:I, s:I, s:I, s:b, s:b, s:s, s:s, s:s, s:I, s:o}",
        "id", run->id, "named", run->named, "version", run->version, "state",
        run_state_name(run->state), "term", (json_int_t)run->term, "ranks", run->ranks,
        "failures", run->failures, "port", run->port, "requests", (json_int_t)run->requests,
        "questions", (json_int_t)run->questions, "asked", (json_int_t)run->asked, "copying",
        run->copying, "answers", run->answers, "closed", run->closed, "sentence", run->sentence,
        "content", run->content, "memory", (json_int_t)run->memory, "standby",
        report_standby_json(run));
    add_sleep(o, run);
    return o;
}

json_t *report_runs_json(const struct node_report *r) {
    json_t *o = json_object();
    for (size_t i = 0; i < r->n_runs; i++)
        json_object_set_new(o, r->runs[i].name, run_json(&r->runs[i]));
    return o;
}

json_t *report_able_json(const struct node_report *r) {
    json_t *o = json_object();
    for (size_t i = 0; i < r->n_able; i++)
        json_object_set_new(o, r->able[i].name, json_integer(r->able[i].share_port));
    return o;
}
