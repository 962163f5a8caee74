/* Cores and NUMA domains, of machines that hwloc imagines; each in a process of its own, since a machine is looked at once.
 * That threads stay where they should is test_numa_vm's. */
#include "base/machine.h"
#include "base/util.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_whole_domains_or_fractions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
