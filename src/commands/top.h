/* top.h: what lockstep top shows of GET /v1/cluster, and lockstep ps of the same. */
#ifndef LOCKSTEP_COMMANDS_TOP_H
#define LOCKSTEP_COMMANDS_TOP_H

#include "cli/canvas.h"

#include <jansson.h>
#include <stddef.h>

enum top_view { TOP_OVERVIEW, TOP_NODES, TOP_MODELS, TOP_EVENTS, TOP_N_VIEWS };
const char *top_view_name(enum top_view v);

/* The lines of a view. Fields that are missing or of another type are shown as "-". */
void top_show(struct canvas *c, const json_t *cluster, enum top_view v);
/* One line: how many nodes and models, and how fast. */
void top_show_summary(struct canvas *c, const json_t *cluster);

/* A number under a key; -1: it is not known. */
double top_number(const json_t *o, const char *key);
/* Seconds as "12 s", "3 min", "2 h", "5 d"; "-" if not known (negative). */
const char *top_age(double seconds, char out[16]);
/* cli_bytes() of a number that may be unknown. */
const char *top_bytes(double bytes, char out[32]);
/* What a deployment's workers hold together; -1: not known. */
double top_deployment_bytes(const json_t *cluster, const char *name);
/* The nodes that compute it, the serving one first, with commas. */
void top_deployment_nodes(const json_t *cluster, const json_t *deployment, char *out,
                          size_t size);

#endif
