/* verbs_device.h: the RDMA devices of this machine, and queue pairs on them. Each device is
 * opened once per process. It has a context, a protection domain, a port, an address, and one
 * registered slab. All sent and received data lies in the slab.
 *
 * The rules of the most limited hardware hold everywhere (one table: verbs_choices): UC,
 * SEND/RECV, one SGE, both sides' slots of a queue pair have the same number of 4 KiB frames,
 * one region per device, at most 10 queue pairs per device, depth counted in frames.
 *
 * Threads: any. Devices and slabs have a lock of their own, which is held only briefly. */
#ifndef LOCKSTEP_LINK_VERBS_DEVICE_H
#define LOCKSTEP_LINK_VERBS_DEVICE_H

#include "link/verbs_lib.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VERBS_FRAME 4096u
#define VERBS_N_CLASSES 3
#define VERBS_NAME_BYTES 64
#define VERBS_DEPTH_MAX 256u /* messages of a queue pair; more than are ever under way */

static const uint32_t verbs_class_bytes[VERBS_N_CLASSES] = {1 * VERBS_FRAME, 3 * VERBS_FRAME,
                                                            9 * VERBS_FRAME};

/* The choices on which sources disagree or systems differ, in one place. */
struct verbs_choices {
    size_t slab_bytes;   /* per device; above 4 GiB silent corruption was reported */
    uint32_t max_frames; /* a queue's depth, in frames */
    int access[2];       /* tried in this order */
    uint8_t hop_limit;
};
extern const struct verbs_choices verbs_choices;

/* What the other side must know of a device to send to it. Travels. */
struct verbs_address {
    uint8_t gid[16];
    uint16_t lid;
    uint8_t mtu; /* enum ibv_mtu */
    uint8_t is_global;
};

/* An IPv4 address mapped into IPv6, which RoCE and Thunderbolt route by. */
static inline bool verbs_gid_is_ipv4(const union ibv_gid *gid) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(gid->raw, mapped, sizeof mapped) == 0;
}

struct verbs_slot_free;

struct verbs_device {
    const struct verbs_lib *lib;
    char name[VERBS_NAME_BYTES];
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    uint8_t *slab;
    uint8_t port;
    int gid_index;
    struct verbs_address address;
    /* Guarded by the devices' lock. */
    struct verbs_device *next;
    int users;
    size_t slab_used;
    struct verbs_slot_free *free[VERBS_N_CLASSES];
};

/* Opens every working device of this machine (an active port, an address, a registered slab),
 * at most max of them, in the system's order; with a name only that one. Each must be closed.
 * ST_UNSUPPORTED: none works; the sentence says why the last one does not. ST_NO_MEMORY: one
 * would work, but cannot register memory. */
enum status verbs_devices_open(struct verbs_device **out, int max, int *n, const char *name,
                               struct err *err);
/* One more user, who closes it too. */
void verbs_device_hold(struct verbs_device *d);
void verbs_device_close(struct verbs_device *d);

/* A slot of that class's size in the slab, page-aligned; NULL: the slab is full. */
void *verbs_slot_take(struct verbs_device *d, int class);
void verbs_slot_give(struct verbs_device *d, int class, void *slot);

/* A queue pair for messages of one class, in state INIT; *depth: how many messages it takes. */
enum status verbs_queue_new(struct ibv_qp **out, uint32_t *depth, struct verbs_device *d,
                            struct ibv_cq *cq, int class, bool reliable, struct err *err);
/* Connects to the queue pair qpn at that address. Its packet numbers begin at their_psn, ours
 * at my_psn. */
enum status verbs_queue_connect(const struct verbs_device *d, struct ibv_qp *qp, bool reliable,
                                const struct verbs_address *to, uint32_t qpn,
                                uint32_t their_psn, uint32_t my_psn, struct err *err);
/* A whole slot each: the frames of a send and its receive must be equally many. 0 or an errno. */
int verbs_post_recv(const struct verbs_device *d, struct ibv_qp *qp, int class, void *slot,
                    uint64_t wr_id);
int verbs_post_send(const struct verbs_device *d, struct ibv_qp *qp, int class, void *slot,
                    uint64_t wr_id);

#endif
