/* verbs_lib.h: libibverbs, loaded at run time: libibverbs.so.1, macOS's librdma.dylib, or the
 * file that LOCKSTEP_IBVERBS names. ibv_post_send, ibv_post_recv, ibv_poll_cq and
 * ibv_req_notify_cq are inline calls through the context and need no symbol. */
#ifndef LOCKSTEP_LINK_VERBS_LIB_H
#define LOCKSTEP_LINK_VERBS_LIB_H

#include "base/status.h"

#include <infiniband/verbs.h>

struct verbs_lib {
    struct ibv_device **(*get_device_list)(int *n);
    void (*free_device_list)(struct ibv_device **list);
    const char *(*get_device_name)(struct ibv_device *device);
    struct ibv_context *(*open_device)(struct ibv_device *device);
    int (*close_device)(struct ibv_context *context);
    struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
    int (*dealloc_pd)(struct ibv_pd *pd);
    struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t length, int access);
    int (*dereg_mr)(struct ibv_mr *mr);
    struct ibv_cq *(*create_cq)(struct ibv_context *context, int cqe, void *cq_context,
                                struct ibv_comp_channel *channel, int comp_vector);
    int (*destroy_cq)(struct ibv_cq *cq);
    struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *init);
    int (*destroy_qp)(struct ibv_qp *qp);
    int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
    int (*query_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                    struct ibv_qp_init_attr *init);
    int (*query_port)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr);
    int (*query_gid)(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid);
    const char *(*wc_status_str)(enum ibv_wc_status status);
    /* Completions as events; all NULL where the library lacks one of them. */
    struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *context);
    int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
    int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **cq,
                        void **cq_context);
    void (*ack_cq_events)(struct ibv_cq *cq, unsigned n);
};

/* The same table for the whole process. ST_UNSUPPORTED: no such library here. */
enum status verbs_lib_get(const struct verbs_lib **out, struct err *err);

#endif
