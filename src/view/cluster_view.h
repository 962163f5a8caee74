/* cluster_view.h: what lockstep top shows of GET /v1/cluster, and lockstep ps of the same. */
#ifndef LOCKSTEP_VIEW_CLUSTER_VIEW_H
#define LOCKSTEP_VIEW_CLUSTER_VIEW_H

#include "view/canvas.h"

#include <jansson.h>
#include <stddef.h>

enum cluster_view { VIEW_OVERVIEW, VIEW_NODES, VIEW_MODELS, VIEW_EVENTS, N_VIEWS };
const char *view_name(enum cluster_view v);

/* The lines of a view. Fields that are missing or of another type are shown as "-". */
void view_show(struct canvas *c, const json_t *cluster, enum cluster_view v);
/* One line: how many nodes and models, and how fast. */
void view_show_summary(struct canvas *c, const json_t *cluster);

/* A number under a key; -1: it is not known. */
double view_number(const json_t *o, const char *key);
/* Seconds as "12 s", "3 min", "2 h", "5 d"; "-" if not known (negative). */
const char *view_age(double seconds, char out[16]);
/* cli_bytes() of a number that may be unknown. */
const char *view_bytes(double bytes, char out[32]);
/* What a deployment's workers hold together; -1: not known. */
double view_deployment_bytes(const json_t *cluster, const char *name);
/* The nodes that compute it, the serving one first, with commas. */
void view_deployment_nodes(const json_t *cluster, const json_t *deployment, char *out,
                           size_t size);

#endif
