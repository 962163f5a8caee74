/* quota.c: The CPU time that a cgroup allows this process. */
#include "base/quota.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/util.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define GROUPS_BYTES 65536

/* Reads up to two numbers at the beginning of a file ("max" is not a number). Returns how many.
 */
static int numbers(const char *folder, const char *name, double out[2]) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return 0;
    FILE *f = fopen(path, "rb");
    int n = f != NULL ? fscanf(f, "%lf %lf", &out[0], &out[1]) : 0;
    if (f != NULL)
        fclose(f);
    return MAX(n, 0);
}

static double limit_in(const char *folder) {
    double time[2], period[2];
    if (numbers(folder, "cpu.max", time) == 2)
        return time[0] > 0 && time[1] > 0 ? time[0] / time[1] : INFINITY;
    if (numbers(folder, "cpu.cfs_quota_us", time) >= 1 &&
        numbers(folder, "cpu.cfs_period_us", period) >= 1 && time[0] > 0 && period[0] > 0)
        return time[0] / period[0];
    return INFINITY;
}

/* The smallest quota of a group and its ancestors. In a container the path may be the host's;
 * then only the top exists. */
static double limit_up(char *folder, size_t n_top) {
    double least = limit_in(folder);
    for (char *end; (end = strrchr(folder + n_top, '/')) != NULL;) {
        *end = '\0';
        least = fmin(least, limit_in(folder));
    }
    return least;
}

/* A line is "0::/a/b" (version 2), or "4:cpu,cpuacct:/a/b" (version 1). The hierarchy of
 * version 1 is named after its controllers. */
static double limit_of_line(const char *root, char *line) {
    char folder[PATH_MAX], *controllers = strchr(line, ':'), *group;
    if (controllers == NULL || (group = strchr(controllers + 1, ':')) == NULL)
        return INFINITY;
    *controllers++ = *group++ = '\0';
    bool all = *controllers == '\0';
    if (!all && !str_list_has(controllers, "cpu"))
        return INFINITY;
    int n_top = snprintf(folder, sizeof folder, "%s%s%s", root, all ? "" : "/", controllers);
    if ((size_t)n_top + strlen(group) >= sizeof folder)
        return INFINITY;
    snprintf(folder + n_top, sizeof folder - (size_t)n_top, "%s", group);
    return limit_up(folder, (size_t)n_top);
}

double quota_of(const char *root, const char *groups) {
    char text[GROUPS_BYTES], *rest = text, *line;
    double least = INFINITY;
    snprintf(text, sizeof text, "%s", groups);
    while ((line = strsep(&rest, "\n")) != NULL)
        least = fmin(least, limit_of_line(root, line));
    return least;
}

double quota_cores(void) {
    char *groups;
    struct err none;
    if (file_read_text(&groups, NULL, "/proc/self/cgroup", GROUPS_BYTES - 1, &none) != ST_OK)
        return INFINITY;
    double cores = quota_of("/sys/fs/cgroup", groups);
    mem_free(groups);
    return cores;
}
