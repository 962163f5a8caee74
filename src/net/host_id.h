/* host_id.h: tells whether two processes run on one host, that is, whether they can share
 * memory. One file per system. */
#ifndef LOCKSTEP_NET_HOST_ID_H
#define LOCKSTEP_NET_HOST_ID_H

#include <stdint.h>

/* Equal for two processes if and only if they run under the same boot of one kernel. On Linux
 * they must also share the network, process and IPC namespaces (a namespace counts as a host).
 */
void host_id(uint8_t out[32]);

#endif
