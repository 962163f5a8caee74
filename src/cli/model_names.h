/* model_names.h: models by name, on this machine and in the cluster. */
#ifndef LOCKSTEP_CLI_MODEL_NAMES_H
#define LOCKSTEP_CLI_MODEL_NAMES_H

#include "cli/cli.h"
#include "cluster/identity.h"
#include "net/net.h"

/* A MODEL argument. A path stays as it is (and is argv's memory). A word that is not a path and
 * has no slash is the name of one of this machine's models: those of its node, or those in the
 * folder that a node would use. hf:ORG/REPO[:QUANT], ollama: and lmstudio: are models in
 * other programs' folders (hub/stores.h).
 * ST_NOT_FOUND: there is no such model. */
enum status models_here(const char **word, struct err *err);
#define CLI_MODEL(out, help) CLI_ARG_FOUND("MODEL", out, models_here, help)
#define CLI_MODEL_HELP \
    "GGUF file (the first part of a split one), Hugging Face folder\nof safetensors, or the name of one (lockstep models),\nor hf:ORG/REPO[:QUANT] (lockstep pull)"

/* Which models are where: [{"name", "bytes", "files", "nodes": [{"node": name, "path",
 * "address"}]}], sorted by name; equal names with other sizes are other models. A machine
 * without a node is {"node": null, "path"}. also: a node's name, or an address that is asked,
 * heard or not; NULL: none. Nodes that do not answer are named on stderr. Without a cluster's
 * key there is this machine alone. */
enum status models_everywhere(json_t **out, const char *also, struct err *err);

/* A node that has the model. */
struct models_holder {
    char node[64];
    char address[NET_TEXT_BYTES];
    uint64_t bytes;
};
/* from: the node's name or address; NULL: any. also: as above. ST_NOT_FOUND; ST_BAD_INPUT:
 * several models are called so. */
enum status models_holder(struct models_holder *out, const char *name, const char *from,
                          const char *also, struct err *err);
/* Has the node offer it (node/node.h), and calls use() with what it says: the offer stands
 * until use() returns, with its status. */
enum status models_offer(const struct identity *id, const struct models_holder *holder,
                         const char *name,
                         enum status (*use)(void *user, const json_t *offer, struct err *err),
                         void *user, struct err *err);

#endif
