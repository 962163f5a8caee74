/* nodes.h: the cluster from a command's side: who is there, and ranks on all of it (--nodes). */
#ifndef LOCKSTEP_CLI_NODES_H
#define LOCKSTEP_CLI_NODES_H

#include "cli/cli.h"
#include "cluster/discovery.h"
#include "cluster/identity.h"
#include "lockstep/lockstep.h"

/* The key of this user's cluster and what follows from it. ST_NOT_FOUND: there is none yet. */
enum status nodes_identity(struct identity *out, struct err *err);

/* All nodes, sorted by name, as GET /v1/nodes lists them (node/node.h): what the node at that
 * address knows of the others, and itself. at NULL: this machine's own node; where it does not
 * run, those that answer a question on all networks, which takes a second. *strangers: how many
 * others have another key or version, the first of them in stranger. A new array. */
enum status nodes_find(const struct identity *id, const char *at, json_t **list,
                       char stranger[NET_TEXT_BYTES], size_t *n_strangers, struct err *err);

/* Of each node of such a list, all at once, what GET path gives there, beside what is known of
 * it and "address", where it answered; with "error" if it did not. A new array. */
json_t *nodes_ask_all(const struct identity *id, const json_t *nodes, const char *path);
/* Is that the "machine" of a node on this machine? */
bool nodes_is_this_machine(const char *machine_hex);
/* A node's address without its port; "[v6]:port" loses its brackets. False: too long. */
bool nodes_host_of(const char *address, char *out, size_t size);

/* --nodes auto (auto@ADDRESS: what the node there knows), or names and addresses with commas:
 * finds these nodes, sees to it that each has the model or knows where it is, and fills
 * opt->hosts and by_nodes: this machine first.
 * weights: "copy", "stream", or "auto" (NULL). Says on stderr what it does, unless quiet.
 * `auto` without any node is one rank here, with a warning. nodes_end() is due when the ranks
 * are gone: until then they may ask for weights. */
enum status nodes_place(struct lockstep_options *opt, const char *which, const char *weights,
                        bool quiet, struct err *err);
/* After LOCKSTEP_AGAIN (opt->placed, which nodes_place() sets for `auto`): opt is for those
 * machines that make it faster, and they have the model now. */
enum status nodes_place_again(struct lockstep_options *opt, struct err *err);
void nodes_end(void);

#endif
