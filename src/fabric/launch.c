#include "fabric/launch.h"

#include "base/util.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

/* In this order: torchrun and mpirun may run inside a Slurm job, and then know better. */
static const struct launcher {
    const char *by, *rank, *n_ranks;
} launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS"},
};

static enum status number(int *out, const char *name, const char *text, long min, long max,
                          struct err *err) {
    char *end;
    long v = strtol(text, &end, 10);
    if (end == text || *end != '\0' || v < min || v > max)
        return err_set(err, ST_BAD_INPUT, "%s=%.40s: expected a number from %ld to %ld", name,
                       text, min, max);
    *out = (int)v;
    return ST_OK;
}

static enum status join(struct launch *l, size_t n_host, const char *host, int port,
                        struct err *err) {
    int n = snprintf(l->rendezvous, sizeof l->rendezvous, "%.*s:%d", (int)n_host, host, port);
    return n < (int)sizeof l->rendezvous
               ? ST_OK
               : err_set(err, ST_BAD_INPUT, "a host name of %zu characters", n_host);
}

/* The first host of Slurm's list: "node3", "gpu[07-12,20]", "a1,a2". */
static enum status first_slurm_host(struct launch *l, const char *list, int port,
                                    struct err *err) {
    char host[LAUNCH_NAME_BYTES];
    size_t prefix = strcspn(list, "[,");
    const char *rest = list + prefix;
    size_t digits = *rest == '[' ? strspn(rest + 1, "0123456789") : 0;
    if (prefix + digits >= sizeof host || (*rest == '[' && digits == 0))
        return err_set(err, ST_BAD_INPUT, "SLURM_STEP_NODELIST=%.80s: no first host", list);
    memcpy(host, list, prefix);
    memcpy(host + prefix, rest + (digits != 0), digits);
    return join(l, prefix + digits, host, port, err);
}

static enum status find_first_host(struct launch *l, const char *(*get)(const char *), int port,
                                   struct err *err) {
    const char *host = get("MASTER_ADDR"), *at = get("MASTER_PORT");
    const char *list = get("SLURM_STEP_NODELIST");
    if (str_eq(l->by, "torchrun") && host != NULL) {
        if (at != NULL)
            TRY(number(&port, "MASTER_PORT", at, 1, 65535, err));
        return join(l, strlen(host), host, port, err);
    }
    return list != NULL ? first_slurm_host(l, list, port, err) : ST_OK;
}

enum status launch_from_env(struct launch *out, const char *(*get)(const char *name), int port,
                            struct err *err) {
    struct launch l = {.n_ranks = 1};
    for (size_t i = 0; l.by == NULL && i < ARRAY_LEN(launchers); i++) {
        const struct launcher *by = &launchers[i];
        const char *rank = get(by->rank), *n_ranks = get(by->n_ranks);
        if (rank == NULL || n_ranks == NULL)
            continue;
        TRY(number(&l.n_ranks, by->n_ranks, n_ranks, 1, FABRIC_MAX_RANKS, err));
        TRY(number(&l.rank, by->rank, rank, 0, l.n_ranks - 1, err));
        l.by = by->by;
        TRY(find_first_host(&l, get, port, err));
    }
    *out = l;
    return ST_OK;
}

enum status launch_from_hosts(struct launch *out, const char *text, int rank, int port,
                              struct err *err) {
    struct launch l = {.by = "host file", .rank = rank};
    for (const char *at = text; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n') {
        at += strspn(at, " \t");
        size_t n = strcspn(at, " \t\r\n#");
        if (n == 0)
            continue;
        if (l.n_ranks++ != 0)
            continue;
        if (memchr(at, ':', n) == NULL)
            TRY(join(&l, n, at, port, err));
        else if (n < sizeof l.rendezvous)
            memcpy(l.rendezvous, at, n);
    }
    if (l.n_ranks > FABRIC_MAX_RANKS || rank < 0 || rank >= l.n_ranks)
        return err_set(err, ST_BAD_INPUT, "the host file names %d ranks, this is rank %d",
                       l.n_ranks, rank);
    *out = l;
    return ST_OK;
}

static enum status read_row(char names[][LAUNCH_NAME_BYTES], const json_t *row, int rank,
                            int n_ranks, struct err *err) {
    if (!json_is_array(row) || json_array_size(row) != (size_t)n_ranks)
        return err_set(err, ST_BAD_INPUT, "RDMA matrix: row %d has no %d entries", rank,
                       n_ranks);
    for (int r = 0; r < n_ranks; r++) {
        const json_t *e = json_array_get(row, (size_t)r);
        const char *name =
            json_is_array(e) ? json_string_value(json_array_get(e, 0)) : json_string_value(e);
        if ((name == NULL && !json_is_null(e)) ||
            (name != NULL && strlen(name) >= LAUNCH_NAME_BYTES))
            return err_set(err, ST_BAD_INPUT, "RDMA matrix: row %d, entry %d is no device name",
                           rank, r);
        snprintf(names[r], LAUNCH_NAME_BYTES, "%s", name != NULL ? name : "");
    }
    return ST_OK;
}

enum status launch_rdma_matrix(char names[][LAUNCH_NAME_BYTES], const char *json, int rank,
                               int n_ranks, struct err *err) {
    json_error_t why;
    json_t *matrix = json_loads(json, 0, &why);
    if (matrix == NULL)
        return err_set(err, ST_BAD_INPUT, "RDMA matrix: line %d: %s", why.line, why.text);
    enum status st =
        json_array_size(matrix) == (size_t)n_ranks
            ? read_row(names, json_array_get(matrix, (size_t)rank), rank, n_ranks, err)
            : err_set(err, ST_BAD_INPUT, "RDMA matrix: %zu rows for %d ranks",
                      json_array_size(matrix), n_ranks);
    json_decref(matrix);
    return st;
}
