/* hub_relay.h: stands for a hub (hub/request.h) to the nodes of the cluster, for one repository,
 * over HTTPS: they download from this machine what it downloads, while it comes. So the bytes
 * cross the line to the hub once, and each machine checks its files by the hub's checksums.
 *
 *     GET /api/models/ORG/REPO/revision/REV   the list of files, as a hub gives it
 *     GET /ORG/REPO/resolve/COMMIT/FILE       from the byte of "Range: bytes=N-" on as much as is
 *                                             here, at most HUB_RELAY_PIECE_BYTES; 503: none yet
 *
 * Holders of the cluster's key may read. */
#ifndef LOCKSTEP_NODE_HUB_RELAY_H
#define LOCKSTEP_NODE_HUB_RELAY_H

#include "cluster/identity.h"
#include "hub/files.h"

#define HUB_RELAY_PIECE_BYTES ((size_t)16 << 20)

struct hub_relay;

/* files: of hub_list(); they and name stay the caller's until hub_relay_close(). Listens on any
 * free port of all addresses. */
enum status hub_relay_open(struct hub_relay **out, const struct identity *id,
                           const struct hub_name *name, const struct hub_files *files,
                           struct err *err);
int hub_relay_port(const struct hub_relay *r);
void hub_relay_close(struct hub_relay *r); /* NULL is fine */

#endif
