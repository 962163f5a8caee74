/* Cores and NUMA domains, of machines that hwloc imagines; each in a process of its own, since
 * a machine is looked at once. That threads stay where they should is test_numa_vm's. And
 * quotas of CPU time, and limits of memory. */
#include "base/file.h"
#include "base/machine.h"
#include "base/mem.h"
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

/* ---- quotas and limits, in folders like those of cgroups --------------------------------- */

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
    put("memory/memory.limit_in_bytes", "9223372036854771712\n"); /* version 1 */
    put("memory/memory.usage_in_bytes", "5000\n");
    put("memory/job/memory.limit_in_bytes", "1000\n");
    put("memory/job/memory.usage_in_bytes", "950\n"); /* all of it in a step */
    put("memory/job/memory.stat", "cache 0\ninactive_file 0\nactive_file 0\n"
                                  "total_inactive_file 700\ntotal_active_file 100\n");
    put("memory/job/step/memory.limit_in_bytes", "2000\n");
    put("memory/job/step/memory.usage_in_bytes", "950\n");
    put("memory/job/step/memory.stat", "inactive_file 700\nactive_file 100\n"
                                       "total_inactive_file 700\ntotal_active_file 100\n");
    put("box/memory.max", "1000\n"); /* version 2, whose numbers include what is in a group */
    put("box/memory.current", "950\n");
    put("box/memory.stat", "anon 150\nfile 800\ninactive_file 500\nactive_file 200\n");
    put("box/inner/memory.max", "max\n");
    put("box/inner/memory.current", "950\n");
    put("box/tight/memory.max", "90\n"); /* ... since it had more */
    put("box/tight/memory.current", "100\n");
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

#ifdef __linux__
static void limits_of_memory_do_not_count_files(void **state) {
    (void)state;
    static const struct {
        const char *groups;
        uint64_t left, limit;
    } list[] = {
        {"0::/\n", UINT64_MAX, UINT64_MAX},
        {"0::/box\n", 750, 1000},
        {"0::/box/inner/deeper\n", 750, 1000},
        {"0::/box/tight\n", 0, 90},
        {"4:memory:/\n0::/\n", 9223372036854771712u - 5000, 9223372036854771712u},
        {"4:memory:/job\n0::/\n", 850, 1000},
        {"12:cpu:/box\n4:memory:/job/step/task\n", 850, 1000},
        {"4:memory:/job/step\n0::/box\n", 750, 1000},
        {"nonsense\n:\n::\n", UINT64_MAX, UINT64_MAX},
    };
    char groups[64];
    snprintf(groups, sizeof groups, "%s/groups", root);
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        put("groups", list[i].groups);
        uint64_t left = mem_left_in_groups(root, groups);
        if (left != list[i].left)
            fail_msg("\"%s\" leaves %llu bytes", list[i].groups, (unsigned long long)left);
        uint64_t limit = mem_limit_of_groups(root, groups);
        if (limit != list[i].limit)
            fail_msg("\"%s\" allows %llu bytes", list[i].groups, (unsigned long long)limit);
    }
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_whole_domains_or_fractions),
        cmocka_unit_test(quotas_are_the_least_of_all_groups),
#ifdef __linux__
        cmocka_unit_test(limits_of_memory_do_not_count_files),
#endif
    };
    return cmocka_run_group_tests(tests, make_hierarchies, drop_hierarchies);
}
