/* gateway_merge.h: merges the answers of several servers to a request for all of them. Texts
 * in, text out. */
#ifndef LOCKSTEP_GATEWAY_GATEWAY_MERGE_H
#define LOCKSTEP_GATEWAY_GATEWAY_MERGE_H

#include "server/reply.h"

enum gateway_merge {
    MERGE_NONE,
    /* "data" or "models" of all, in the first one's object, and each again by further names */
    MERGE_LISTS,
    /* {"status", "why", "models": {NAME: its answer}}; 200 as long as one of them can be asked */
    MERGE_HEALTH,
    MERGE_METRICS, /* of all, with a label model="NAME" */
};
/* How the answers to GET `path` become one. */
enum gateway_merge gateway_merge_of(const char *path);

struct gateway_part {
    char name[64];   /* of the deployment */
    json_t *names;   /* further ones; NULL: none; owned by the caller */
    int status;      /* 0: no node serves it */
    struct buf text; /* owned by the caller */
};
/* n >= 1. Appends the body to *out and returns the status. If all parts are errors: the status
 * and body of the first part that was answered; 503 if none was. */
int gateway_merge(enum gateway_merge how, const struct gateway_part *parts, size_t n,
                  struct buf *out);

#endif
