/* host_id.h: do two processes share one host, that is: can they share memory? One file per
 * system. */
#ifndef LOCKSTEP_NET_HOST_ID_H
#define LOCKSTEP_NET_HOST_ID_H

#include <stdint.h>

/* Equal for two processes if and only if they run under the same boot of one kernel and, on
 * Linux, in the same network, process and IPC namespaces (a namespace counts as a host). */
void host_id(uint8_t out[32]);

#endif
