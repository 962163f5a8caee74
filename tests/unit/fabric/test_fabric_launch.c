/* Rank and rendezvous from what launchers leave in the environment (variables as their manuals
 * name them), host files, and MLX's matrix of RDMA devices. */
#include "base/util.h"
#include "fabric/launch_env.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const char *const *environment; /* name, value, ..., NULL */

static const char *get(const char *name) {
    for (const char *const *at = environment; *at != NULL; at += 2)
        if (str_eq(*at, name))
            return at[1];
    return NULL;
}

static struct launch_place launched(const char *const *env) {
    struct launch_place l;
    struct err err;
    environment = env;
    assert_int_equal(launch_from_env(&l, get, 7000, &err), ST_OK);
    return l;
}

static void launchers_tell_rank_and_place(void **state) {
    (void)state;
    static const struct {
        const char *env[12], *by;
        int rank, n_ranks;
        const char *rendezvous;
    } cases[] = {
        {{NULL}, NULL, 0, 1, ""},
        {{"RANK", "1", "WORLD_SIZE", "4", "MASTER_ADDR", "10.0.0.9", "MASTER_PORT", "29500",
          NULL},
         "torchrun",
         1,
         4,
         "10.0.0.9:29500"},
        {{"RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "::1", "MASTER_PORT", "29500",
          "TORCHELASTIC_USE_AGENT_STORE", "True", NULL},
         "torchrun",
         0,
         2,
         "[::1]:29501"}, /* its own port is taken by torchrun */
        {{"OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_SIZE", "3", NULL},
         "Open MPI",
         2,
         3,
         ""},
        {{"PMI_RANK", "0", "PMI_SIZE", "2", NULL}, "PMI", 0, 2, ""},
        {{"SLURM_PROCID", "5", "SLURM_NTASKS", "8", "SLURM_STEP_NODELIST", "gpu[07-12,20]",
          NULL},
         "Slurm",
         5,
         8,
         "gpu07:7000"},
        {{"SLURM_PROCID", "0", "SLURM_NTASKS", "2", "SLURM_STEP_NODELIST", "alpha,beta", NULL},
         "Slurm",
         0,
         2,
         "alpha:7000"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct launch_place l = launched(cases[i].env);
        assert_true(cases[i].by == NULL ? l.by == NULL : str_eq(l.by, cases[i].by));
        assert_int_equal(l.rank, cases[i].rank);
        assert_int_equal(l.n_ranks, cases[i].n_ranks);
        assert_string_equal(l.rendezvous, cases[i].rendezvous);
    }
}

static void launchers_tell_who_is_beside(void **state) {
    (void)state;
    static const struct {
        const char *env[10];
        int n_local, local_rank;
    } cases[] = {
        {{"RANK", "5", "WORLD_SIZE", "8", "LOCAL_WORLD_SIZE", "4", "LOCAL_RANK", "1", NULL},
         4,
         1},
        {{"OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2",
          "OMPI_COMM_WORLD_LOCAL_SIZE", "2", "OMPI_COMM_WORLD_LOCAL_RANK", "1", NULL},
         2,
         1},
        {{"PMI_RANK", "1", "PMI_SIZE", "2", "MPI_LOCALNRANKS", "2", NULL}, 2, 0},
        {{"SLURM_PROCID", "3", "SLURM_NTASKS", "4", "SLURM_LOCALID", "1", NULL}, 1, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct launch_place l = launched(cases[i].env);
        assert_int_equal(l.n_local, cases[i].n_local);
        assert_int_equal(l.local_rank, cases[i].local_rank);
    }
}

static void nonsense_is_refused(void **state) {
    (void)state;
    static const char *const bad[][9] = {
        {"RANK", "1", "WORLD_SIZE", "4", "LOCAL_WORLD_SIZE", "2", "LOCAL_RANK", "2", NULL},
        {"RANK", "4", "WORLD_SIZE", "4", NULL},
        {"RANK", "x", "WORLD_SIZE", "4", NULL},
        {"PMI_RANK", "0", "PMI_SIZE", "1000000", NULL},
        {"SLURM_PROCID", "0", "SLURM_NTASKS", "2", "SLURM_STEP_NODELIST", "gpu[", NULL},
    };
    struct launch_place l;
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        environment = bad[i];
        assert_int_equal(launch_from_env(&l, get, 7000, &err), ST_BAD_INPUT);
    }
}

static void host_files(void **state) {
    (void)state;
    struct launch_place l;
    struct err err;
    const char *text = "# two machines\n alpha:7100 # first\n\nbeta\n";
    assert_int_equal(launch_from_hosts(&l, text, 1, 7000, &err), ST_OK);
    assert_int_equal(l.n_ranks, 2);
    assert_string_equal(l.rendezvous, "alpha:7100");
    assert_int_equal(launch_from_hosts(&l, "alpha", 0, 7000, &err), ST_OK);
    assert_string_equal(l.rendezvous, "alpha:7000");
    assert_int_equal(launch_from_hosts(&l, "a,b,a,a,b", 3, 7000, &err), ST_OK);
    assert_int_equal(l.n_local, 3);
    assert_int_equal(l.local_rank, 2);
    assert_int_equal(launch_from_hosts(&l, text, 2, 7000, &err), ST_BAD_INPUT);
    assert_int_equal(launch_from_hosts(&l, "", 0, 7000, &err), ST_BAD_INPUT);
}

static void mlx_matrices(void **state) {
    (void)state;
    char names[3][LAUNCH_NAME_BYTES];
    struct err err;
    const char *m = "[[null,\"rdma_en5\",\"rdma_en4\"],[\"rdma_en5\",null,\"rdma_en3\"],"
                    "[[\"rdma_en4\"],\"rdma_en3\",null]]";
    assert_int_equal(launch_rdma_matrix(names, m, 0, 3, &err), ST_OK);
    assert_string_equal(names[0], "");
    assert_string_equal(names[1], "rdma_en5");
    assert_string_equal(names[2], "rdma_en4");
    assert_int_equal(launch_rdma_matrix(names, m, 2, 3, &err), ST_OK);
    assert_string_equal(names[0], "rdma_en4");
    assert_int_equal(launch_rdma_matrix(names, m, 0, 2, &err), ST_BAD_INPUT);
    assert_int_equal(launch_rdma_matrix(names, "[[1]]", 0, 1, &err), ST_BAD_INPUT);
    assert_int_equal(launch_rdma_matrix(names, "[[", 0, 1, &err), ST_BAD_INPUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launchers_tell_rank_and_place),
        cmocka_unit_test(launchers_tell_who_is_beside),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(host_files),
        cmocka_unit_test(mlx_matrices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
