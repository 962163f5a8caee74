/* nodes.h: the cluster from a command's side: lists its nodes, and runs ranks on all of them
 * (--nodes). */
#ifndef LOCKSTEP_CLI_NODES_H
#define LOCKSTEP_CLI_NODES_H

#include "cli/cli.h"
#include "cluster/discovery.h"
#include "cluster/identity.h"
#include "lockstep/lockstep.h"

/* The key of this user's cluster and what follows from it. ST_NOT_FOUND: there is no key yet. */
enum status nodes_identity(struct identity *out, struct err *err);

/* All nodes, sorted by name, as GET /v1/nodes lists them (node/node.h): the node at address
 * `at` itself, and the others that it knows. at NULL: this machine's own node. If that does not
 * run: the nodes that answer a question on all networks, which takes a second. *strangers: how
 * many others have another key or version; stranger: the first of them. A new array. */
enum status nodes_find(const struct identity *id, const char *at, json_t **list,
                       char stranger[NET_TEXT_BYTES], size_t *n_strangers, struct err *err);

/* Asks each node of such a list, all at once, for GET path. An entry has the answer, what is
 * known of the node, and "address", where it answered; "error" if it did not. A new array. */
json_t *nodes_ask_all(const struct identity *id, const json_t *nodes, const char *path);
/* Is that the "machine" of a node on this machine? */
bool nodes_is_this_machine(const char *machine_hex);
/* A node's address without its port; "[v6]:port" loses its brackets. False: too long. */
bool nodes_host_of(const char *address, char *out, size_t size);

/* --nodes auto (auto@ADDRESS: the nodes that the one there knows), or names and addresses
 * separated by commas. Finds these nodes, ensures that each has the model or knows where it is,
 * and fills opt->hosts and by_nodes with this machine first.
 *
 * weights: "copy", "stream", or "auto" (NULL). Reports its progress on stderr unless quiet.
 * `auto` without any node is one rank here, with a warning. Call nodes_end() when the ranks
 * have ended: until then they may ask for weights. */
enum status nodes_place(struct lockstep_options *opt, const char *which, const char *weights,
                        bool quiet, struct err *err);
/* Without --nodes: opt->devices, where it names nodes (device_list.h), becomes that of this
 * machine's ranks. */
enum status nodes_name_devices(struct lockstep_options *opt, bool quiet, struct err *err);
/* After LOCKSTEP_AGAIN (opt->placed, which nodes_place() sets for `auto`): opt is for those
 * machines that make it faster, and they have the model now. */
enum status nodes_place_again(struct lockstep_options *opt, struct err *err);
void nodes_end(void);

#endif
