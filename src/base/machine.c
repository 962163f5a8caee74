/* machine.c: Finds this machine's cores and NUMA domains with hwloc, and the part of them that
 * a rank uses. */
#include "base/machine.h"

#include "base/quota.h"
#include "base/util.h"

#include <hwloc.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <unistd.h>

#define DOMAINS_MAX 64

static struct {
    hwloc_topology_t topology; /* NULL: hwloc does not start */
    hwloc_bitmap_t usable;
    int n_domains, n_cores; /* in the domains */
    int n_at_once;          /* cores that a quota allows; INT_MAX: no quota */
    bool bound;
    struct {
        hwloc_bitmap_t cpus;
        int n_cores;
    } domains[DOMAINS_MAX];
} machine;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int count_cores(hwloc_const_bitmap_t cpus) {
    hwloc_topology_t t = machine.topology;
    int n = 0;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_CORE, o)) != NULL;)
        n += hwloc_bitmap_intersects(o->cpuset, cpus);
    /* Some virtual machines have processors without cores. */
    return n > 0 ? n : MAX(hwloc_bitmap_weight(cpus), 1);
}

/* Memory without cores of its own (of a card, or a faster kind) is near cores that another
 * domain has already. */
static void add_domain(hwloc_const_bitmap_t cpus, hwloc_bitmap_t rest) {
    hwloc_bitmap_t own = hwloc_bitmap_alloc();
    if (own == NULL)
        return;
    hwloc_bitmap_and(own, cpus, rest);
    if (hwloc_bitmap_iszero(own) || machine.n_domains == DOMAINS_MAX) {
        hwloc_bitmap_free(own);
        return;
    }
    hwloc_bitmap_andnot(rest, rest, own);
    machine.domains[machine.n_domains].cpus = own;
    machine.domains[machine.n_domains++].n_cores = count_cores(own);
}

static void find_domains(void) {
    hwloc_bitmap_t rest = hwloc_bitmap_dup(machine.usable);
    hwloc_obj_t o = NULL;
    while (rest != NULL &&
           (o = hwloc_get_next_obj_by_type(machine.topology, HWLOC_OBJ_NUMANODE, o)) != NULL)
        add_domain(o->cpuset, rest);
    hwloc_bitmap_free(rest);
}

static bool find_usable(void) {
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    machine.usable = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(machine.topology));
    if (bound == NULL || machine.usable == NULL)
        return false;
    if (hwloc_get_cpubind(machine.topology, bound, HWLOC_CPUBIND_THREAD) == 0) {
        machine.bound = !hwloc_bitmap_isincluded(machine.usable, bound);
        hwloc_bitmap_and(machine.usable, machine.usable, bound);
    }
    hwloc_bitmap_free(bound);
    return !hwloc_bitmap_iszero(machine.usable);
}

static void look(void) {
    hwloc_topology_t *t = &machine.topology;
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    machine.n_cores = (int)MAX(n, 1);
    machine.n_at_once = (int)fmax(fmin(ceil(quota_cores()), INT_MAX), 1);
    if (hwloc_topology_init(t) != 0) {
        *t = NULL;
        return;
    }
    if (hwloc_topology_load(*t) != 0 || !find_usable()) {
        hwloc_topology_destroy(*t);
        *t = NULL;
        return;
    }
    if (!hwloc_topology_is_thissystem(*t))
        machine.n_at_once = INT_MAX;
    machine.n_cores = count_cores(machine.usable);
    find_domains();
}

int machine_n_cores(void) {
    pthread_once(&once, look);
    return MIN(machine.n_cores, machine.n_at_once);
}

int machine_n_domains(void) {
    pthread_once(&once, look);
    return MAX(machine.n_domains, 1);
}

bool machine_is_bound(void) {
    pthread_once(&once, look);
    return machine.bound;
}

/* Its domains, [*begin, *end). */
static void part(int nth, int n, int *begin, int *end) {
    int all = machine_n_domains();
    *begin = nth * all / n;
    *end = MAX((nth + 1) * all / n, *begin + 1);
}

int machine_part_cores(int nth, int n) {
    int begin, end, b, e, n_beside = 0, n_cores = 0;
    if (machine_n_domains() == 1)
        return MAX(machine_n_cores() / MAX(n, 1), 1);
    part(nth, n, &begin, &end);
    for (int i = 0; i < n; i++) {
        part(i, n, &b, &e);
        n_beside += b == begin;
    }
    for (int i = begin; i < end; i++)
        n_cores += machine.domains[i].n_cores;
    return MAX(MIN(n_cores / n_beside, machine.n_at_once / n), 1);
}

void machine_keep_to(int nth, int n) {
    int begin, end;
    if (machine_n_domains() == 1)
        return;
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    if (cpus == NULL)
        return;
    part(nth, n, &begin, &end);
    for (int i = begin; i < end; i++)
        hwloc_bitmap_or(cpus, cpus, machine.domains[i].cpus);
    hwloc_set_cpubind(machine.topology, n > 1 ? cpus : machine.usable, HWLOC_CPUBIND_THREAD);
    hwloc_bitmap_free(cpus);
}
