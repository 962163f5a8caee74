/* curl_socket.h: sockets of libcurl that the workers which this process may start meanwhile do not
 * inherit: they would keep them open. */
#ifndef LOCKSTEP_NET_CURL_SOCKET_H
#define LOCKSTEP_NET_CURL_SOCKET_H

#include "net/net.h"

#include <curl/curl.h>

/* For CURLOPT_OPENSOCKETFUNCTION. */
static inline curl_socket_t curl_socket_open(void *user, curlsocktype purpose,
                                             struct curl_sockaddr *a) {
    (void)user;
    (void)purpose;
    return net_socket(a->family, a->socktype, a->protocol);
}

#endif
