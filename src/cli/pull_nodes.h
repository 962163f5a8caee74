/* pull_nodes.h: other machines of the cluster download a model from this one while it comes
 * (lockstep pull --nodes). */
#ifndef LOCKSTEP_CLI_PULL_NODES_H
#define LOCKSTEP_CLI_PULL_NODES_H

#include "hub/files.h"

struct pull_nodes;

/* What became of it on one machine: path, or a sentence. */
typedef void (*pull_nodes_fn)(void *user, const char *node, const char *path,
                              const char *sentence);

/* which: "all", or names of nodes with commas between them. They begin at once, and get what this
 * machine has in its cache of the hub so far. name, revision and files stay the caller's until
 * the end. ST_NOT_FOUND: no cluster key, or no such node; ST_BAD_INPUT: no other machine. */
enum status pull_nodes_begin(struct pull_nodes **out, const char *which,
                             const struct hub_name *name, const char *revision,
                             const struct hub_files *files, struct err *err);
/* Bytes that all of them have. */
uint64_t pull_nodes_bytes(struct pull_nodes *p);
int pull_nodes_n(const struct pull_nodes *p);
/* How many have not ended. */
int pull_nodes_running(struct pull_nodes *p);
/* Stops those that have not ended if stop, else waits for them. Calls fn for each. Returns how
 * many have the model. */
int pull_nodes_end(struct pull_nodes *p, bool stop, pull_nodes_fn fn, void *user);

#endif
