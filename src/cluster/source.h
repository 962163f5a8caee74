/* source.h: reads a model's data slice by slice from the machine that shares it
 * (node/model_share.h). */
#ifndef LOCKSTEP_CLUSTER_SOURCE_H
#define LOCKSTEP_CLUSTER_SOURCE_H

#include "cluster/identity.h"
#include "format/source.h"

#define SOURCE_CONNECTIONS_MAX 32

/* As many connections as there are threads that read, SOURCE_CONNECTIONS_MAX at most: further
 * threads wait. A read that fails for want of an answer is tried again a few times. The
 * identity stays the caller's until source_close(). */
enum status source_open(struct file_source *out, const struct identity *id, const char *address,
                        struct err *err);
void source_close(struct file_source *s);

#endif
