/* ucx_lib.h: OpenUCX, loaded at run time: libucp.so.0, or the file that LOCKSTEP_UCP names. */
#ifndef LOCKSTEP_LINK_UCX_LIB_H
#define LOCKSTEP_LINK_UCX_LIB_H

#include "base/status.h"

#include <ucp/api/ucp.h>

/* Called as the headers declare them. */
#define UCX_SYMBOLS(X)                \
    X(ucp_config_read)                \
    X(ucp_config_release)             \
    X(ucp_init_version)               \
    X(ucp_cleanup)                    \
    X(ucp_worker_create)              \
    X(ucp_worker_destroy)             \
    X(ucp_worker_progress)            \
    X(ucp_worker_get_address)         \
    X(ucp_worker_release_address)     \
    X(ucp_worker_get_efd)             \
    X(ucp_worker_arm)                 \
    X(ucp_ep_create)                  \
    X(ucp_ep_close_nbx)               \
    X(ucp_worker_set_am_recv_handler) \
    X(ucp_am_send_nbx)                \
    X(ucp_am_data_release)            \
    X(ucp_tag_send_nbx)               \
    X(ucp_tag_recv_nbx)               \
    X(ucp_request_check_status)       \
    X(ucp_request_free)               \
    X(ucs_status_string)

struct ucx_lib {
#define X(name) __typeof__(&name) name;
    UCX_SYMBOLS(X)
#undef X
};

/* The same table for the whole process. ST_UNSUPPORTED: no such library here. */
enum status ucx_lib_get(const struct ucx_lib **out, struct err *err);

#endif
