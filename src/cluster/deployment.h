/* deployment.h: one deployment: a model that a cluster is asked to serve, or one that was taken
 * down. It is sent and stored as JSON, and parsed once when it arrives:
 *
 *     {"name": "qwen3-8b", "version": 1795000000, "home": node, "since": Unix time,
 *      "port": 8080, "tls": false, "nodes": "auto", "copies": true,
 *      "model": files (model_files.h), "hint": path, "args": [words of lockstep serve],
 *      "files": {"api-key-file": text, ...}, "moved": true (else absent),
 *      "layout": {"nodes": "rack,shelf", "parallel": "tensor2"} (likewise),
 *      "idle": seconds (likewise)}
 *     {"name": "qwen3-8b", "version": 1795000600, "removed": true}
 *
 * or one more name of a deployment, by which requests find it, too:
 *
 *     {"name": "chat", "version": 1795000000, "of": "qwen3-8b"} */
#ifndef LOCKSTEP_CLUSTER_DEPLOYMENT_H
#define LOCKSTEP_CLUSTER_DEPLOYMENT_H

#include "base/status.h"
#include "cluster/model_files.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define DEPLOYMENT_ARGS_MAX 256
#define DEPLOYMENT_FILES_MAX 3      /* api-key-file, tls-cert, tls-key */
#define DEPLOYMENTS_DIGEST_BYTES 33 /* hex, and its 0 */

/* What one option of lockstep serve names: on the node that serves it becomes a file. */
struct deployment_file {
    const char *option, *text;
};

struct deployment {
    json_t *json; /* as it came, and as it is told; owned. The texts below are its. */
    const char *name;
    json_int_t version;
    const char *of; /* not NULL: it is only a name, of that deployment */
    bool up;        /* else it was taken down, or is a name, and what follows is empty */
    const char *home, *nodes, *hint;
    json_int_t since; /* Unix time; 0: not known */
    int port;
    bool tls, copies;
    bool moved; /* to its home, from a node that served it before (deployments_move()) */
    /* The layout that somebody has chosen: the nodes that compute while all of them are there, and
     * how; others may take over. NULL: whatever is fastest. */
    const char *layout_nodes, *layout_parallel;
    json_int_t idle_s;        /* asked nothing for so long, its server ends; 0: never */
    struct model_files model; /* owned */
    const char **args;        /* [n_args]; the array is owned */
    size_t n_args;
    struct deployment_file files[DEPLOYMENT_FILES_MAX];
    size_t n_files;
};

/* A deployment's name is a file's, too. */
#define DEPLOYMENT_NAME_RULE \
    "1 to 63 letters, digits and signs of ASCII, no blank, comma or slash, no dot or dash first"
bool deployment_name_is_good(const char *name);
/* A layout's "parallel": auto, tensor, pipeline, tensor2xpipeline2, or a text of plan_text(). */
bool deployment_parallel_is_good(const char *text);

/* Reads it; json is copied. deployment_free() it. ST_BAD_INPUT: it is not of the form above. */
enum status deployment_parse(struct deployment **out, const json_t *json, struct err *err);
/* Another one of the same; NULL: no memory. */
struct deployment *deployment_copy(const struct deployment *d);
void deployment_free(struct deployment *d); /* NULL is fine */

/* Whether they are the same in every field. */
bool deployment_equal(const struct deployment *a, const struct deployment *b);
/* Whether both have the same layout, or none. */
bool deployment_same_layout(const struct deployment *a, const struct deployment *b);
/* The text of a file, by its option; NULL: it has none. */
const char *deployment_file(const struct deployment *d, const char *option);
/* The same for the same deployment, on any node. */
void deployment_digest(const struct deployment *d, char out[DEPLOYMENTS_DIGEST_BYTES]);
/* Of any JSON: the same for the same values, whatever the order of their keys. */
void deployments_json_digest(const json_t *v, char out[DEPLOYMENTS_DIGEST_BYTES]);

#endif
