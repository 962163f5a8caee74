/* launch_env.h: this rank's identity if another program started the ranks. It comes from the
 * environment of torchrun, Slurm, Open MPI or PMI (MPICH, Intel MPI), or from a host file. RDMA
 * devices come from MLX's matrix. */
#ifndef LOCKSTEP_FABRIC_LAUNCH_ENV_H
#define LOCKSTEP_FABRIC_LAUNCH_ENV_H

#include "fabric/fabric.h"

#define LAUNCH_NAME_BYTES 128

struct launch_place {
    const char *by; /* "torchrun", "Slurm", "Open MPI", "PMI"; NULL: no launcher */
    int rank, n_ranks;
    int n_local;    /* ranks on this host, as far as the launcher tells; 1 where it does not */
    int local_rank; /* which of these this is, 0 .. n_local - 1 */
    /* "host:port" of rank 0 if the launcher tells the host (torchrun, Slurm), else "". */
    char rendezvous[LAUNCH_NAME_BYTES];
};

/* `get` is getenv or a test's. ST_OK with by == NULL: no launcher started this process.
 * ST_BAD_INPUT: a launcher's variables are inconsistent. `port` is used if the launcher names
 * none. */
enum status launch_from_env(struct launch_place *out, const char *(*get)(const char *name),
                            int port, struct err *err);

/* One host per rank, in the order of the ranks. */
struct launch_hosts {
    int n, port;                 /* port: of the first, 0 where none is given */
    int ports[FABRIC_MAX_RANKS]; /* all of them */
    char names[FABRIC_MAX_RANKS][LAUNCH_NAME_BYTES];
};
/* "host", "host:port", "v6" or "[v6]:port", with commas, blanks or line ends between; '#'
 * begins a comment. The first one's port is the rendezvous's; those of the others are their
 * nodes' (lockstep node), and mean nothing to ssh. A name never begins with '-'. */
enum status launch_hosts(struct launch_hosts *out, const char *text, struct err *err);

/* How many of the ranks are on this one's host, and which of them it is. */
void launch_beside(const struct launch_hosts *hosts, int rank, int *n_local, int *local_rank);
/* This rank among hosts named as above; the first is the rendezvous. */
enum status launch_from_hosts(struct launch_place *out, const char *text, int rank, int port,
                              struct err *err);

/* MLX's matrix, [[null,"rdma_en5"],["rdma_en5",null]]: names[r] is the device of `rank` towards
 * r, "" for none. n_ranks must be the matrix's. */
enum status launch_rdma_matrix(char names[][LAUNCH_NAME_BYTES], const char *json, int rank,
                               int n_ranks, struct err *err);
/* wires [n_ranks] as in fabric_config: a cable is where both of its ends have a device.
 * *complete: every pair has one. */
enum status launch_rdma_wires(uint64_t *wires, bool *complete, const char *json, int n_ranks,
                              struct err *err);

#endif
