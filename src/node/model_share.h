/* model_share.h: the files of one model for the nodes of the cluster, over HTTPS. GET
 * /v1/files/I?at=..&n=..&stride=..&count=.. returns `count` pieces of n bytes (one without
 * count), one after the other, together at most SHARE_PIECE_BYTES. Holders of the cluster's key
 * may read, as long as a program has the share open. */
#ifndef LOCKSTEP_NODE_MODEL_SHARE_H
#define LOCKSTEP_NODE_MODEL_SHARE_H

#include "cluster/identity.h"
#include "cluster/model_files.h"

#define SHARE_PIECE_BYTES ((size_t)16 << 20)

struct model_share;

/* files: of the model at path; both stay the caller's until model_share_close(). Listens on any
 * free port of all addresses. */
enum status model_share_open(struct model_share **out, const struct identity *id,
                             const struct model_files *files, const char *path,
                             struct err *err);
int model_share_port(const struct model_share *s);
/* Are they still the files that they were? */
bool share_is_intact(const struct model_share *s);
void model_share_close(struct model_share *s); /* NULL is fine */

#endif
