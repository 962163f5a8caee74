/* membership.c: The ranks of an instance after a loss, or when a machine is back. */
#include "ranks/membership.h"

#include "base/mem.h"
#include "base/util.h"
#include "base/words.h"
#include "fabric/launch_env.h"

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where opt's strings are. */
static const size_t strings[] = {
    offsetof(struct lockstep_options, model_path),
    offsetof(struct lockstep_options, worker_path),
    offsetof(struct lockstep_options, parallel),
    offsetof(struct lockstep_options, link),
    offsetof(struct lockstep_options, experts),
    offsetof(struct lockstep_options, kv),
    offsetof(struct lockstep_options, emulate_link),
    offsetof(struct lockstep_options, hosts),
    offsetof(struct lockstep_options, rendezvous),
    offsetof(struct lockstep_options, secret),
    offsetof(struct lockstep_options, rdma_matrix),
    offsetof(struct lockstep_options, devices),
};

static const char **string_at(struct lockstep_options *opt, size_t i) {
    return (const char **)(void *)((char *)opt + strings[i]);
}

/* Frees the text that was there. */
static void set_string(const char **at, char *text) {
    mem_free((void *)(uintptr_t)*at);
    *at = text;
}

static void drop_strings(struct lockstep_options *opt) {
    for (size_t i = 0; i < ARRAY_LEN(strings); i++)
        set_string(string_at(opt, i), NULL);
}

/* With copies of the strings; if there is no memory, none of them leaks. */
static enum status copy_options(struct lockstep_options *out,
                                const struct lockstep_options *opt, struct err *err) {
    bool whole = true;
    *out = *opt;
    for (size_t i = 0; i < ARRAY_LEN(strings); i++) {
        const char **at = string_at(out, i), *text = *at;
        *at = text != NULL ? mem_strdup(text) : NULL;
        whole &= text == NULL || *at != NULL;
    }
    if (whole)
        return ST_OK;
    drop_strings(out);
    return err_set(err, ST_NO_MEMORY, "no memory for options");
}

enum status membership_init(struct membership *s, const struct lockstep_options *opt,
                            struct err *err) {
    *s = (struct membership){.out = 0};
    TRY(copy_options(&s->all, opt, err));
    s->all.progress = NULL; /* only for the first opening, while a user watches */
    s->all.placed = NULL;   /* the machines that were chosen then stay */
    return copy_options(&s->opt, &s->all, err);
}

void membership_deinit(struct membership *s) {
    drop_strings(&s->opt);
    drop_strings(&s->all);
}

/* Bits of all ranks on machines, other than the first's, that lost one. */
static uint64_t all_of_machines(const struct launch_hosts *hosts, uint64_t lost) {
    uint64_t all = 0;
    for (int i = 0; i < hosts->n; i++)
        for (int j = 0; j < hosts->n; j++)
            if (lost >> j & 1 && str_eq(hosts->names[i], hosts->names[j]) &&
                !str_eq(hosts->names[i], hosts->names[0]))
                all |= (uint64_t)1 << i;
    return all;
}

/* The hosts with unset bits, as text for launch_hosts(); NULL: no memory. *n: how many. */
static char *other_hosts(const struct launch_hosts *hosts, uint64_t gone, int *n) {
    size_t cap = (size_t)hosts->n * (LAUNCH_NAME_BYTES + 16) + 16, len = 0;
    char *text = mem_calloc(1, cap);
    *n = 0;
    for (int i = 0; text != NULL && i < hosts->n; i++) {
        const char *host = hosts->names[i];
        if (gone >> i & 1)
            continue;
        bool v6_port = hosts->ports[i] != 0 && strchr(host, ':') != NULL;
        len += (size_t)snprintf(text + len, cap - len, "%s%s%s%s", *n > 0 ? "," : "",
                                v6_port ? "[" : "", host, v6_port ? "]" : "");
        if (hosts->ports[i] != 0)
            len += (size_t)snprintf(text + len, cap - len, ":%d", hosts->ports[i]);
        ++*n;
    }
    return text;
}

/* The matrix without the ranks that are gone. */
static enum status other_cables(char **out, const char *matrix, uint64_t gone,
                                struct err *err) {
    json_t *rows = json_loads(matrix, 0, NULL);
    for (int i = FABRIC_MAX_RANKS - 1; i >= 0; i--) {
        if ((gone >> i & 1) == 0)
            continue;
        json_array_remove(rows, (size_t)i);
        for (size_t r = 0; r < json_array_size(rows); r++)
            json_array_remove(json_array_get(rows, r), (size_t)i);
    }
    char *text = rows != NULL ? json_dumps(rows, JSON_COMPACT) : NULL;
    json_decref(rows);
    *out = text != NULL ? mem_strdup(text) : NULL;
    free(text);
    return *out != NULL ? ST_OK
                        : err_set(err, ST_NO_MEMORY, "no memory for a matrix of cables");
}

/* The shares of the ranks left, where every rank has one. */
static void other_shares(struct lockstep_options *opt, int n_ranks, uint64_t gone) {
    int n = 0;
    for (int i = 0; opt->n_split == n_ranks && i < n_ranks; i++)
        if ((gone >> i & 1) == 0)
            opt->split[n++] = opt->split[i];
    opt->n_split = n;
}

/* The devices of the ranks left, where every rank has one. NULL: no memory, or there are none. */
static char *other_devices(const char *devices, uint64_t gone) {
    char *text = devices != NULL ? mem_strdup(devices) : NULL, *to = text;
    if (text == NULL || strchr(devices, ',') == NULL)
        return text;
    size_t n;
    const char *its;
    for (int i = 0; (its = words_next(&devices, &n)) != NULL; i++) {
        if (gone >> i & 1)
            continue;
        if (to != text)
            *to++ = ',';
        memcpy(to, its, n);
        to += n;
    }
    *to = '\0';
    return text;
}

static void name_machines(char *text, size_t size, const struct launch_hosts *hosts,
                          uint64_t gone) {
    size_t len = 0;
    text[0] = '\0';
    for (int i = 0; i < hosts->n && len < size; i++) {
        bool named = false;
        for (int j = 0; j < i; j++)
            named |= str_eq(hosts->names[i], hosts->names[j]);
        if (gone >> i & 1 && !named)
            len += (size_t)snprintf(text + len, size - len, "%s%s", len > 0 ? ", " : "",
                                    hosts->names[i]);
    }
}

/* A bit for each machine that has some of these ranks: its first rank's. */
static uint64_t machines_of(const struct launch_hosts *hosts, uint64_t ranks) {
    uint64_t machines = 0;
    for (int i = 0; i < hosts->n; i++) {
        int first = 0;
        while (!str_eq(hosts->names[first], hosts->names[i]))
            first++;
        if (ranks >> i & 1)
            machines |= (uint64_t)1 << first;
    }
    return machines;
}

/* The options of all ranks but these. */
static enum status options_without(struct lockstep_options *out,
                                   const struct lockstep_options *all,
                                   const struct launch_hosts *hosts, uint64_t gone,
                                   struct err *err) {
    char *matrix = NULL;
    int n;
    TRY(copy_options(out, all, err));
    out->n_ranks = hosts->n;
    if (gone == 0)
        return ST_OK;
    char *others = other_hosts(hosts, gone, &n);
    enum status st = others != NULL
                         ? ST_OK
                         : err_set(err, ST_NO_MEMORY, "no memory for the hosts that are left");
    if (st == ST_OK && n > 1 && all->rdma_matrix != NULL)
        st = other_cables(&matrix, all->rdma_matrix, gone, err);
    if (st != ST_OK || n == 1) {
        mem_free(others);
        others = NULL;
    }
    set_string(&out->hosts, others);
    set_string(&out->rdma_matrix, matrix);
    char *devices = other_devices(out->devices, gone);
    if (st == ST_OK && out->devices != NULL && devices == NULL)
        st = err_set(err, ST_NO_MEMORY, "no memory for a list of devices");
    set_string(&out->devices, devices);
    other_shares(out, hosts->n, gone);
    const char *how = out->parallel;
    if (how != NULL && !str_eq(how, "tensor") && !str_eq(how, "pipeline"))
        set_string(&out->parallel, NULL);
    out->n_ranks = n;
    if (st != ST_OK)
        drop_strings(out);
    return st;
}

/* From now on these ranks of `all` are left out. */
static enum status set_out(struct membership *s, const struct launch_hosts *hosts, uint64_t out,
                           struct err *err) {
    struct lockstep_options opt;
    TRY(options_without(&opt, &s->all, hosts, out, err));
    drop_strings(&s->opt);
    s->opt = opt;
    name_machines(s->last_call, sizeof s->last_call, hosts, out ^ s->out);
    name_machines(s->left_out, sizeof s->left_out, hosts, out);
    s->out = out;
    s->machines_out = machines_of(hosts, out);
    return ST_OK;
}

/* The ranks of `all` that opt's are. */
static uint64_t ranks_of_all(const struct membership *s, uint64_t ranks) {
    uint64_t of_all = 0;
    for (int i = 0, rank = 0; i < FABRIC_MAX_RANKS; i++)
        if ((s->out >> i & 1) == 0)
            of_all |= (ranks >> rank++ & 1) << i;
    return of_all;
}

/* devices, with "cpu" for these of n ranks. NULL: no memory. */
static char *without_devices(const char *devices, uint64_t ranks, int n) {
    const size_t cap = (strlen(devices) + sizeof "cpu,") * (size_t)n;
    char *text = mem_alloc(cap);
    size_t name = 0;
    const char *its = words_next(&devices, &name);
    for (size_t i = 0, len = 0; text != NULL && i < (size_t)n; i++) {
        const bool keeps = (ranks >> i & 1) == 0;
        len += (size_t)snprintf(text + len, cap - len, "%s%.*s", i > 0 ? "," : "",
                                keeps ? (int)name : 3, keeps ? its : "cpu");
        if (devices != NULL) /* else the last is that of all others */
            its = words_next(&devices, &name);
    }
    return text;
}

static enum status drop_devices(struct lockstep_options *opt, uint64_t ranks, struct err *err) {
    if (opt->devices == NULL || ranks == 0)
        return ST_OK;
    char *devices = without_devices(opt->devices, ranks, opt->n_ranks);
    if (devices == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a list of devices");
    set_string(&opt->devices, devices);
    return ST_OK;
}

enum status membership_note_lost(struct membership *s, uint64_t lost, struct err *err) {
    const uint64_t of_all = ranks_of_all(s, lost), again = of_all & s->lost_once;
    uint64_t here = 0; /* of opt */
    for (int i = 0; i < FABRIC_MAX_RANKS; i++)
        if (ranks_of_all(s, (uint64_t)1 << i) & again)
            here |= (uint64_t)1 << i;
    s->lost_once |= of_all;
    TRY(drop_devices(&s->opt, here, err));
    return drop_devices(&s->all, again, err);
}

enum status membership_leave_out(struct membership *s, uint64_t lost, const char **names,
                                 struct err *err) {
    struct launch_hosts hosts;
    *names = NULL;
    if (s->all.hosts == NULL)
        return ST_OK;
    TRY(launch_hosts(&hosts, s->all.hosts, err));
    uint64_t gone = all_of_machines(&hosts, ranks_of_all(s, lost));
    if ((gone & s->on_trial) == 0) /* else it is known which of them it was */
        gone |= s->on_trial;
    if (gone == 0)
        return ST_OK;
    TRY(set_out(s, &hosts, s->out | gone, err));
    s->on_trial &= ~gone;
    *names = s->last_call;
    return ST_OK;
}

enum status membership_take_back(struct membership *s, uint64_t machines, const char **names,
                                 struct err *err) {
    struct launch_hosts hosts;
    *names = NULL;
    if ((machines & s->machines_out) == 0)
        return ST_OK;
    TRY(launch_hosts(&hosts, s->all.hosts, err));
    uint64_t back = all_of_machines(&hosts, machines & s->machines_out);
    TRY(set_out(s, &hosts, s->out & ~back, err));
    s->on_trial |= back;
    *names = s->last_call;
    return ST_OK;
}

void membership_keep(struct membership *s) {
    s->on_trial = 0;
}
