/* controller_asker.h: who asks at a deployment's port, and what that one may. */
#ifndef LOCKSTEP_NODE_CONTROLLER_ASKER_H
#define LOCKSTEP_NODE_CONTROLLER_ASKER_H

#include "node/controller_internal.h"

struct asker {
    struct controller *k;
    json_t *seen;               /* the names that its key is good for, as keys; owned */
    bool admin, looks, manages; /* looks: its key is good for anything that is up */
    const char *why_not;        /* a sentence; "": it manages */
};
void asker_init(struct asker *a, struct controller *k, const struct http_request *r);
void asker_deinit(struct asker *a);
/* Whether that deployment exists for it; user: the asker. */
bool asker_sees(void *user, const char *deployment);

#endif
