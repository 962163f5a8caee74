/* Cores and NUMA domains, of machines that hwloc imagines; each in a process of its own, since
 * a machine is looked at once. That threads stay where they should is test_numa_vm's. And
 * quotas of CPU time. */
#include "base/file.h"
#include "base/machine.h"
#include "base/quota.h"
#include "base/util.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct expected {
    const char *machine;
    int n_cores, n_domains;
    int parts[7][6]; /* [n][nth]: cores of the nth of n parts */
};

static bool holds(const struct expected *e) {
    setenv("HWLOC_SYNTHETIC", e->machine, 1);
    bool ok = machine_n_cores() == e->n_cores && machine_n_domains() == e->n_domains;
    for (int n = 1; n < (int)ARRAY_LEN(e->parts); n++)
        for (int i = 0; i < n; i++)
            ok &= machine_part_cores(i, n) == e->parts[n][i];
    machine_keep_to(0, 2);
    machine_keep_to(0, 1);
    return ok && !machine_is_bound();
}

static void check(const struct expected *e) {
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(holds(e) ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0)
        fail_msg("%s: something else", e->machine);
}

static void parts_are_whole_domains_or_fractions(void **state) {
    (void)state;
    static const struct expected list[] = {
        {"core:8 pu:2",
         8,
         1,
         {{0}, {8}, {4, 4}, {2, 2, 2}, {2, 2, 2, 2}, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1}}},
        {"pack:2 [numa] core:4 pu:2",
         8,
         2,
         {{0}, {8}, {4, 4}, {2, 2, 4}, {2, 2, 2, 2}, {1, 1, 1, 2, 2}, {1, 1, 1, 1, 1, 1}}},
        {"numa:4 core:3 pu:1",
         12,
         4,
         {{0}, {12}, {6, 6}, {3, 3, 6}, {3, 3, 3, 3}, {1, 1, 3, 3, 3}, {1, 1, 3, 1, 1, 3}}},
        /* A faster kind of memory on each socket. */
        {"pack:2 [numa] [numa] core:2 pu:1",
         4,
         2,
         {{0}, {4}, {2, 2}, {1, 1, 2}, {1, 1, 1, 1}, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1}}},
        {"numa:1 core:1 pu:2",
         1,
         1,
         {{0}, {1}, {1, 1}, {1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1}}},
    };
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        check(&list[i]);
}

/* ---- quotas, in folders like those of cgroups -------------------------------------------- */

static char root[] = "/tmp/lockstep-quota-XXXXXX";

static void put(const char *path, const char *text) {
    char whole[256];
    struct err err;
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    assert_int_equal(file_make_folders(whole, 0700, &err), ST_OK);
    FILE *f = fopen(whole, "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int make_hierarchies(void **state) {
    (void)state;
    if (mkdtemp(root) == NULL)
        return -1;
    put("box/cpu.max", "250000 100000\n"); /* version 2 */
    put("box/inner/cpu.max", "max 100000\n");
    put("box/tight/cpu.max", "50000 100000\n");
    put("odd/cpu.max", "x\n");
    put("cpu.max/none", "");                     /* a folder */
    put("cpu,cpuacct/cpu.cfs_quota_us", "-1\n"); /* version 1 */
    put("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put("cpu,cpuacct/box/cpu.cfs_quota_us", "300000\n");
    put("cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
    put("top/cpu/cpu.cfs_quota_us", "400000\n"); /* a container's */
    put("top/cpu/cpu.cfs_period_us", "100000\n");
    return 0;
}

static int drop_hierarchies(void **state) {
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void quotas_are_the_least_of_all_groups(void **state) {
    (void)state;
    static const struct {
        const char *groups;
        double cores;
    } list[] = {
        {"0::/\n", INFINITY},
        {"0::/box\n", 2.5},
        {"0::/box/inner\n", 2.5},
        {"0::/box/inner/deeper\n", 2.5},
        {"0::/box/tight\n", 0.5},
        {"0::/odd\n", INFINITY},
        {"12:memory:/box\n4:cpu,cpuacct:/box/a\n0::/\n", 3},
        {"4:cpu,cpuacct:/\n", INFINITY},
        {"4:cpu,cpuacct:/box\n0::/box/tight\n", 0.5},
        {"4:cpuacct,cpuset:/box\n", INFINITY},
        {"", INFINITY},
        {"nonsense\n:\n::\n", INFINITY},
    };
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        if (quota_of(root, list[i].groups) != list[i].cores)
            fail_msg("\"%s\" is %g cores", list[i].groups, quota_of(root, list[i].groups));
    char top[64], *text = calloc(1, 20000);
    snprintf(top, sizeof top, "%s/top", root);
    assert_true(quota_of(top, "4:cpu:/docker/0123456789\n") == 4);
    assert_non_null(text);
    memset(text, '/', 19999); /* longer than a path */
    memcpy(text, "0::", 3);
    assert_true(isinf(quota_of(root, text)));
    free(text);
    assert_true(quota_cores() > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_whole_domains_or_fractions),
        cmocka_unit_test_setup_teardown(quotas_are_the_least_of_all_groups, make_hierarchies,
                                        drop_hierarchies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
