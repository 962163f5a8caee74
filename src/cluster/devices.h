/* devices.h: the devices of a node's machine, as GET /v1/node tells them, and how others read what
 * a node tells. Each is an object of `lockstep devices --json`:
 *
 *     {"name", "driver", "kind", "memory_bytes", "unified", "crossing_us": number or null,
 *      "error": null or why it cannot be used, ...}
 *
 * `lockstep devices` looks at them in a process of its own, once, so that no driver is in the
 * node's process, and one that crashes or hangs ends no node. */
#ifndef LOCKSTEP_CLUSTER_DEVICES_H
#define LOCKSTEP_CLUSTER_DEVICES_H

#include "base/status.h"

#include <jansson.h>

#define NODE_DEVICES_MAX 16

struct node_devices;

/* Begins to look, on a thread of its own. worker_path: as launch_open's, copied. ST_NO_MEMORY. */
enum status node_devices_open(struct node_devices **out, const char *worker_path,
                              struct err *err);
/* Ends the look, if it goes on. NULL is fine. */
void node_devices_close(struct node_devices *d);
/* Adds to a node's facts: "devices", null until they are known, and "devices_error" if they cannot
 * be. From any thread. */
void node_devices_tell(struct node_devices *d, json_t *facts);

/* Whether a list is of that form. ST_BAD_INPUT: a sentence with what is wrong with it. */
enum status node_devices_check(const json_t *list, struct err *err);
/* Of another node's facts: where "devices" is there and not of that form, it becomes null, and
 * "devices_error" the sentence. The latter is a text that can be printed, or missing. */
void node_devices_mend(json_t *facts);

#endif
