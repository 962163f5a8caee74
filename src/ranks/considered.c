/* considered.c: keeps what was considered from one opening of a model to the next. */
#include "ranks/considered.h"

#include "base/mem.h"

#include <stdio.h>

static _Thread_local struct considered *kept;

void considered_free(struct considered *c) {
    if (c != NULL)
        mem_free(c->hosts);
    mem_free(c);
}

void considered_keep(const struct calibration_figures *figures, const char *why,
                     const char *hosts) {
    considered_free(kept);
    kept = mem_alloc(sizeof *kept);
    if (kept == NULL)
        return;
    kept->figures = *figures;
    snprintf(kept->why, sizeof kept->why, "%s", why);
    kept->hosts = mem_strdup(hosts);
    if (kept->hosts == NULL) {
        mem_free(kept);
        kept = NULL;
    }
}

struct considered *considered_take(void) {
    struct considered *c = kept;
    kept = NULL;
    return c;
}
