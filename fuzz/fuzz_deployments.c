/* What is on a node's disk, and what another node tells: two lists of deployments, apart by a 0
 * byte. Merged in either order they give the same, and what is taken is of the form that is
 * told on. */
#include "base/util.h"
#include "cluster/deployments.h"

#include <sodium.h>
#include <stdlib.h>

static void merge(struct deployments *d, const json_t *list) {
    bool changed;
    struct err err;
    (void)deployments_merge(d, list, &changed, &err);
}

/* Each of them by itself, so that a bad one does not hide the next. */
static void merge_each(struct deployments *d, const json_t *list) {
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)list, i, one) {
        json_t *alone = json_pack("[O]", one);
        merge(d, alone);
        json_decref(alone);
    }
}

static void check_form(const struct deployments *d) {
    size_t i;
    json_t *one, *list = deployments_list(d);
    struct deployment *parsed;
    struct err err;
    json_array_foreach(list, i, one) {
        if (deployment_parse(&parsed, one, &err) != ST_OK)
            abort();
        deployment_free(parsed);
    }
    json_decref(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct deployments d[2];
    char digest[2][DEPLOYMENTS_DIGEST_BYTES];
    const uint8_t *end = memchr(data, 0, n);
    size_t n_first = end != NULL ? (size_t)(end - data) : n;
    if (sodium_init() < 0)
        return 0;
    deployments_init(&d[0]);
    deployments_init(&d[1]);
    json_t *lists[] = {json_loadb((const char *)data, n_first, 0, NULL),
                       json_loadb((const char *)data + n_first + (end != NULL),
                                  n - n_first - (end != NULL), 0, NULL)};
    for (int i = 0; i < 2; i++) {
        merge_each(&d[i], lists[i]);
        merge_each(&d[i], lists[!i]);
        check_form(&d[i]);
        deployments_digest(&d[i], digest[i]);
    }
    if (memcmp(digest[0], digest[1], sizeof digest[0]) != 0)
        abort();
    merge(&d[0], lists[0]);
    for (int i = 0; i < 2; i++) {
        json_decref(lists[i]);
        deployments_deinit(&d[i]);
    }
    return 0;
}
