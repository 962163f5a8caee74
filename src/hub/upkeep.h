/* upkeep.h: what is done with a model of the hub's cache once it is there. */
#ifndef LOCKSTEP_HUB_UPKEEP_H
#define LOCKSTEP_HUB_UPKEEP_H

#include "format/progress.h"
#include "hub/name.h"

#include <stdint.h>

/* Removes the model's links from all snapshots, and each blob that no link leads to any more. What
 * was left of a download goes when the repository has no model left. *bytes: freed.
 * ST_NOT_FOUND: nothing of it is there. */
enum status hub_remove(const struct hub_name *name, uint64_t *bytes, struct err *err);

/* Compares each file's content with its checksum. ST_IO: the sentence names the one that differs.
 * ST_UNSUPPORTED: a file is no link to a blob, so that no checksum is known. */
enum status hub_verify(const struct hub_name *name, const struct progress *progress,
                       uint64_t *bytes, struct err *err);

#endif
