/* launch_env.c: Reads rank, number of ranks and rank 0's address from launchers' environment
 * variables. */
#include "fabric/launch_env.h"

#include "base/util.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

/* In this order: torchrun and mpirun may run inside a Slurm job, and then know better. */
static const struct launcher {
    const char *by, *rank, *n_ranks, *n_local, *local_rank;
} launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LOCAL_RANK"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "MPI_LOCALRANKID"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_LOCALID"},
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

static enum status join(struct launch_place *l, size_t n_host, const char *host, int port,
                        struct err *err) {
    bool v6 = memchr(host, ':', n_host) != NULL && *host != '[';
    int n = snprintf(l->rendezvous, sizeof l->rendezvous, "%s%.*s%s:%d", v6 ? "[" : "",
                     (int)n_host, host, v6 ? "]" : "", port);
    return n < (int)sizeof l->rendezvous
               ? ST_OK
               : err_set(err, ST_BAD_INPUT, "a host name of %zu characters", n_host);
}

/* The first host of Slurm's list: "node3", "gpu[07-12,20]", "a1,a2". */
static enum status first_slurm_host(struct launch_place *l, const char *list, int port,
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

static enum status find_first_host(struct launch_place *l, const char *(*get)(const char *),
                                   int port, struct err *err) {
    const char *host = get("MASTER_ADDR"), *at = get("MASTER_PORT");
    const char *list = get("SLURM_STEP_NODELIST");
    if (str_eq(l->by, "torchrun") && host != NULL) {
        if (at != NULL)
            TRY(number(&port, "MASTER_PORT", at, 1, 65534, err));
        const char *store = get("TORCHELASTIC_USE_AGENT_STORE");
        if (at != NULL && store != NULL && str_eq(store, "True"))
            port++; /* torchrun itself listens on its port */
        return join(l, strlen(host), host, port, err);
    }
    return list != NULL ? first_slurm_host(l, list, port, err) : ST_OK;
}

enum status launch_from_env(struct launch_place *out, const char *(*get)(const char *name),
                            int port, struct err *err) {
    struct launch_place l = {.n_ranks = 1, .n_local = 1};
    for (size_t i = 0; l.by == NULL && i < ARRAY_LEN(launchers); i++) {
        const struct launcher *by = &launchers[i];
        const char *rank = get(by->rank), *n_ranks = get(by->n_ranks);
        if (rank == NULL || n_ranks == NULL)
            continue;
        TRY(number(&l.n_ranks, by->n_ranks, n_ranks, 1, FABRIC_MAX_RANKS, err));
        TRY(number(&l.rank, by->rank, rank, 0, l.n_ranks - 1, err));
        if (get(by->n_local) != NULL)
            TRY(number(&l.n_local, by->n_local, get(by->n_local), 1, FABRIC_MAX_RANKS, err));
        if (l.n_local > 1 && get(by->local_rank) != NULL)
            TRY(number(&l.local_rank, by->local_rank, get(by->local_rank), 0, l.n_local - 1,
                       err));
        l.by = by->by;
        TRY(find_first_host(&l, get, port, err));
    }
    *out = l;
    return ST_OK;
}

/* One "host", "host:port", "[v6]:port" or "v6" of n characters. */
static enum status add_host(struct launch_hosts *l, const char *at, size_t n, struct err *err) {
    const char *end = at + n, *colon = memchr(at, ':', n), *name = at;
    size_t n_name = n;
    int port = 0;
    if (*at == '[') {
        const char *close = memchr(at, ']', n);
        name = at + 1;
        n_name = close != NULL ? (size_t)(close - name) : 0;
        colon = close != NULL && close + 1 < end && close[1] == ':' ? close + 1 : NULL;
    } else if (colon != NULL && memchr(colon + 1, ':', (size_t)(end - colon - 1)) == NULL) {
        n_name = (size_t)(colon - at);
    } else {
        colon = NULL;
    }
    char digits[8] = "";
    if (colon != NULL && (size_t)(end - colon) <= sizeof digits) {
        memcpy(digits, colon + 1, (size_t)(end - colon - 1));
        TRY(number(&port, "port", digits, 1, 65535, err));
    }
    if (n_name == 0 || n_name >= LAUNCH_NAME_BYTES || *name == '-' ||
        (colon != NULL && port == 0))
        return err_set(err, ST_BAD_INPUT, "\"%.*s\" is not a valid host", (int)MIN(n, 80u), at);
    if (l->n == FABRIC_MAX_RANKS)
        return err_set(err, ST_BAD_INPUT, "more than %d hosts", FABRIC_MAX_RANKS);
    if (l->n == 0)
        l->port = port;
    l->ports[l->n] = port;
    memcpy(l->names[l->n], name, n_name);
    l->names[l->n++][n_name] = '\0';
    return ST_OK;
}

enum status launch_hosts(struct launch_hosts *out, const char *text, struct err *err) {
    out->n = out->port = 0;
    for (const char *at = text; *at != '\0';) {
        size_t n = strcspn(at, ", \t\r\n#");
        if (n != 0)
            TRY(add_host(out, at, n, err));
        at += n;
        if (*at == '#')
            at += strcspn(at, "\n");
        else if (*at != '\0')
            at++;
    }
    return out->n != 0 ? ST_OK : err_set(err, ST_BAD_INPUT, "no host is named");
}

void launch_beside(const struct launch_hosts *hosts, int rank, int *n_local, int *local_rank) {
    *n_local = *local_rank = 0;
    for (int r = 0; r < hosts->n; r++) {
        bool beside = str_eq(hosts->names[r], hosts->names[rank]);
        *n_local += beside;
        *local_rank += beside && r < rank;
    }
}

enum status launch_from_hosts(struct launch_place *out, const char *text, int rank, int port,
                              struct err *err) {
    struct launch_hosts hosts;
    struct launch_place l = {.by = "host file", .rank = rank};
    TRY(launch_hosts(&hosts, text, err));
    l.n_ranks = hosts.n;
    if (rank < 0 || rank >= l.n_ranks)
        return err_set(err, ST_BAD_INPUT, "%d hosts are named, this is rank %d", l.n_ranks,
                       rank);
    launch_beside(&hosts, rank, &l.n_local, &l.local_rank);
    TRY(join(&l, strlen(hosts.names[0]), hosts.names[0], hosts.port ? hosts.port : port, err));
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
            return err_set(err, ST_BAD_INPUT,
                           "RDMA matrix: row %d, entry %d is not a device name", rank, r);
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

enum status launch_rdma_wires(uint64_t *wires, bool *complete, const char *json, int n_ranks,
                              struct err *err) {
    uint64_t towards[FABRIC_MAX_RANKS] = {0};
    char names[FABRIC_MAX_RANKS][LAUNCH_NAME_BYTES];
    for (int r = 0; r < n_ranks; r++) {
        TRY(launch_rdma_matrix(names, json, r, n_ranks, err));
        for (int q = 0; q < n_ranks; q++)
            towards[r] |= (uint64_t)(q != r && names[q][0] != '\0') << q;
    }
    *complete = true;
    for (int r = 0; r < n_ranks; r++) {
        wires[r] = 0;
        for (int q = 0; q < n_ranks; q++)
            wires[r] |= (towards[r] >> q & towards[q] >> r & 1) << q;
        for (int q = 0; q < n_ranks; q++)
            *complete &= q == r || (wires[r] >> q & 1) != 0;
    }
    return ST_OK;
}
