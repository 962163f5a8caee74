/* mem_linux.c: available memory on Linux: the kernel's own estimate, and cgroups' limits (both
 * versions). Also the memory that this process uses. */
#include "base/mem.h"
#include "base/util.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void mem_give_back(void) {
#ifdef __GLIBC__ /* others have nothing of that kind */
    (void)malloc_trim(0);
#endif
}

/* The first number after `key` at the beginning of a line (key "": of the file). False: none,
 * or "max". */
static bool read_number(const char *path, const char *key, uint64_t *out) {
    FILE *f = fopen(path, "r");
    char line[256];
    bool found = false;
    while (f != NULL && !found && fgets(line, sizeof line, f) != NULL) {
        unsigned long long v;
        found = str_starts(line, key) && sscanf(line + strlen(key), " %llu", &v) == 1;
        if (found)
            *out = v;
    }
    if (f != NULL)
        fclose(f);
    return found;
}

/* Files' pages of a group and of all in it, as its usage counts them. Version 1 has sums of its
 * own for that ("total_"); version 2 has no others. */
static uint64_t cached_in(const char *stat_path, const char *total_key, const char *key) {
    uint64_t n = 0;
    if (!read_number(stat_path, total_key, &n))
        read_number(stat_path, key, &n);
    return n;
}

/* The files of one version's groups. */
struct names {
    const char *limit, *usage; /* usage NULL: as if a group had nothing */
};

/* A group's limit minus its usage, where file pages count as free. UINT64_MAX: no limit. */
static uint64_t left_in(const char *dir, const struct names *names) {
    char path[512];
    uint64_t limit, used;
    snprintf(path, sizeof path, "%s/%s", dir, names->limit);
    if (!read_number(path, "", &limit))
        return UINT64_MAX;
    if (names->usage == NULL)
        return limit;
    snprintf(path, sizeof path, "%s/%s", dir, names->usage);
    if (!read_number(path, "", &used))
        return UINT64_MAX;
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    uint64_t cached = cached_in(path, "total_inactive_file ", "inactive_file ") +
                      cached_in(path, "total_active_file ", "active_file ");
    used -= MIN(used, cached);
    return limit - MIN(limit, used);
}

/* The least that this group and those above it leave. The path is the host's where a container
 * sees only its own group, as the root: what is not there is passed over. */
static uint64_t left_up(const char *root, const char *group, const struct names *names) {
    char dir[512];
    uint64_t least = UINT64_MAX;
    int n = snprintf(dir, sizeof dir, "%s%s", root, group);
    if (n < 0 || n >= (int)sizeof dir)
        return least;
    for (;;) {
        least = MIN(least, left_in(dir, names));
        char *slash = strrchr(dir + strlen(root), '/');
        if (slash == NULL)
            return least;
        *slash = '\0';
    }
}

static uint64_t least_of(const char *root, const char *groups, const struct names *v2,
                         const struct names *v1) {
    FILE *f = fopen(groups, "r");
    char line[512], memory[512];
    uint64_t least = UINT64_MAX;
    snprintf(memory, sizeof memory, "%s/memory", root);
    while (f != NULL && fgets(line, sizeof line, f) != NULL) { /* "4:memory:/a/b", "0::/a/b" */
        char *names = strchr(line, ':'), *path = names != NULL ? strchr(names + 1, ':') : NULL;
        if (path == NULL)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (names[1] == '\0')
            least = MIN(least, left_up(root, path, v2));
        else if (strstr(names, "memory") != NULL)
            least = MIN(least, left_up(memory, path, v1));
    }
    if (f != NULL)
        fclose(f);
    return least;
}

uint64_t mem_left_in_groups(const char *root, const char *groups) {
    static const struct names v2 = {"memory.max", "memory.current"},
                              v1 = {"memory.limit_in_bytes", "memory.usage_in_bytes"};
    return least_of(root, groups, &v2, &v1);
}

uint64_t mem_limit_of_groups(const char *root, const char *groups) {
    static const struct names v2 = {"memory.max", NULL}, v1 = {"memory.limit_in_bytes", NULL};
    return least_of(root, groups, &v2, &v1);
}

#define ROOT "/sys/fs/cgroup"
#define GROUPS "/proc/self/cgroup"

uint64_t mem_available(void) {
    uint64_t kb = 0;
    if (!read_number("/proc/meminfo", "MemAvailable:", &kb))
        return 0;
    return MIN(kb * 1024, mem_left_in_groups(ROOT, GROUPS));
}

uint64_t mem_total(void) {
    long n = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    if (n <= 0 || size <= 0)
        return 0;
    return MIN((uint64_t)n * (uint64_t)size, mem_limit_of_groups(ROOT, GROUPS));
}

struct mem_resident mem_resident(void) {
    static const char status[] = "/proc/self/status";
    uint64_t anon = 0, file = 0, shmem = 0; /* KiB */
    read_number(status, "RssAnon:", &anon);
    read_number(status, "RssFile:", &file);
    read_number(status, "RssShmem:", &shmem);
    return (struct mem_resident){anon * 1024, file * 1024, shmem * 1024};
}
