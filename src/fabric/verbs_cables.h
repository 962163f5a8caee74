/* verbs_cables.h: which RDMA device of this machine reaches another rank, found out by trying.
 *
 * Over Thunderbolt each cable is a device of its own and nothing routes; a server may have several cards on
 * networks that are not connected; and queue pairs of kind UC never say that nobody hears them. So both sides
 * connect queue pairs between their devices, as many at once as the hardware allows, send a message over each, and agree
 * on the first pair of devices over which both were heard. */
#ifndef LOCKSTEP_FABRIC_VERBS_CABLES_H
#define LOCKSTEP_FABRIC_VERBS_CABLES_H

#include "fabric/links.h"
#include "fabric/verbs_device.h"
#include "fabric/verbs_pair.h"

/* Both sides call it at the same time. given: the one device that may be used, or NULL. Where each side has one device
 * only, and somebody asked for it or for RDMA alone, there is nothing to try. Gives up after patience_ns.
 *
 * ST_UNSUPPORTED: a side has no device, or *tried becomes true: no device reaches one of the other's. */
enum status verbs_cable_find(char device[VERBS_NAME_BYTES], bool *tried, struct link_env *env,
                             const struct verbs_peer_id *who, const char *given,
                             uint64_t patience_ns, struct err *err);

#endif
