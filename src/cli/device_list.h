/* device_list.h: --device with a device for each node, "rack=4090,shelf=cpu", and the list for
 * ranks that follows from it. */
#ifndef LOCKSTEP_CLI_DEVICE_LIST_H
#define LOCKSTEP_CLI_DEVICE_LIST_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* A node, and how many of the ranks are there. */
struct device_host {
    const char *name;
    int n_ranks;
};

/* Whether it names nodes. text may be NULL. */
bool device_list_has_nodes(const char *text);

/* Whether each word is NODE=DEVICE, of another node. *absent: the first node that is none of hosts
 * [n], within text, and its length; NULL: all are there. ST_BAD_INPUT. */
enum status device_list_check(const char *text, const struct device_host *hosts, size_t n,
                              const char **absent, size_t *absent_len, struct err *err);

/* The devices of the ranks of these hosts in turn, for struct lockstep_options; a node that is not
 * named computes on its processor. ST_BAD_INPUT: too long. */
enum status device_list_of_ranks(char *out, size_t size, const char *text,
                                 const struct device_host *hosts, size_t n, struct err *err);

#endif
