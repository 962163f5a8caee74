/* addresses.h: a list of addresses, "host:port" or "[v6]:port" each, in the order in which they
 * are tried. Zeroed it is empty. */
#ifndef LOCKSTEP_CLUSTER_ADDRESSES_H
#define LOCKSTEP_CLUSTER_ADDRESSES_H

#include "net/net.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct addresses {
    char (*list)[NET_TEXT_BYTES]; /* owned */
    size_t n, cap;
};

void addresses_deinit(struct addresses *a);
bool addresses_has(const struct addresses *a, const char *address);
/* Behind the others, unless it is among them. False: no memory, or it is too long. */
bool addresses_add(struct addresses *a, const char *address);
void addresses_add_all(struct addresses *a, const struct addresses *more);

/* From another machine: the first `max` that can be addresses; whatever else is there is left
 * out. */
void addresses_parse(struct addresses *out, const json_t *list, size_t max);
/* A new reference. */
json_t *addresses_json(const struct addresses *a);

#endif
