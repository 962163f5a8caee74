/* launch.h: who am I, when somebody else started the ranks? From the environment of torchrun, Slurm,
 * Open MPI or PMI (MPICH, Intel MPI), from a host file, and RDMA devices from MLX's matrix. */
#ifndef LOCKSTEP_FABRIC_LAUNCH_H
#define LOCKSTEP_FABRIC_LAUNCH_H

#include "fabric/fabric.h"

#define LAUNCH_NAME_BYTES 128

struct launch {
    const char *by; /* "torchrun", "Slurm", "Open MPI", "PMI"; NULL: no launcher */
    int rank, n_ranks;
    /* "host:port" of rank 0 if the launcher tells the host (torchrun, Slurm), else "". */
    char rendezvous[LAUNCH_NAME_BYTES];
};

/* `get` is getenv or a test's. ST_OK with by == NULL: nobody launched us. ST_BAD_INPUT: a
 * launcher's variables that make no sense. `port` serves where the launcher names none. */
enum status launch_from_env(struct launch *out, const char *(*get)(const char *name), int port,
                            struct err *err);

/* A file with one "host" or "host:port" per line and rank; '#' begins a comment. The rank's line
 * is the n-th; rank 0's is the rendezvous. */
enum status launch_from_hosts(struct launch *out, const char *text, int rank, int port,
                              struct err *err);

/* MLX's matrix, [[null,"rdma_en5"],["rdma_en5",null]]: names[r] is the device of `rank` towards r, ""
 * where there is none. n_ranks must be the matrix's. */
enum status launch_rdma_matrix(char names[][LAUNCH_NAME_BYTES], const char *json, int rank,
                               int n_ranks, struct err *err);

#endif
