/* verbs_cables.h: finds out by trial which RDMA device of this machine reaches another rank.
 *
 * Over Thunderbolt each cable is a device of its own, and nothing routes. A server may have
 * several cards on networks that are not connected. And UC queue pairs never report that nobody
 * receives. So both sides connect queue pairs between their devices, as many at once as the
 * hardware allows. They send a message over each, and agree on the first pair of devices that
 * worked in both directions. */
#ifndef LOCKSTEP_LINK_VERBS_CABLES_H
#define LOCKSTEP_LINK_VERBS_CABLES_H

#include "link/links.h"
#include "link/verbs_pair.h"

/* Fills env->device. Both sides call it at the same time. If each side has only one device, and
 * the configuration names it or allows RDMA alone, there is nothing to try. Gives up after
 * link_search_ns().
 *
 * ST_UNSUPPORTED: a side has no device, or env->no_cable: no device reaches one of the other's.
 */
enum status verbs_cable_find(struct link_env *env, const struct verbs_peer_id *who,
                             struct err *err);

#endif
