/* verbs_device.c: Opens the RDMA devices of this machine, once per process. */
#include "base/util.h" /* a file without RDMA headers is not empty either */

#if __has_include(<infiniband/verbs.h>)
#include "link/verbs_device.h"

#include "base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

const struct verbs_choices verbs_choices = {
    .slab_bytes = (size_t)32 << 20,
    .max_frames = 4095,
    .access = {IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
               IBV_ACCESS_LOCAL_WRITE},
    .hop_limit = 1,
};

struct verbs_slot_free {
    struct verbs_slot_free *next;
};

static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;
static struct verbs_device *devices; /* guarded by devices_lock */

/* ---- opening ----------------------------------------------------------------------------- */

static enum status find_port(struct verbs_device *d, struct ibv_port_attr *attr,
                             struct err *err) {
    for (uint8_t port = 1; port <= 2; port++) {
        memset(attr, 0, sizeof *attr);
        if (d->lib->query_port(d->context, port, attr) == 0 && attr->state == IBV_PORT_ACTIVE) {
            d->port = port;
            return ST_OK;
        }
    }
    return err_set(err, ST_UNSUPPORTED, "RDMA device %s has no active port", d->name);
}

/* Linux lists a RoCE address twice: for version 1, which is a raw Ethernet protocol, and for
 * version 2, which is UDP and what networks are configured for. */
static bool is_roce_v2(const struct verbs_device *d, int gid_index) {
    char path[160], type[16] = "";
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%u/gid_attrs/types/%d", d->name,
             d->port, gid_index);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return false;
    if (fgets(type, sizeof type, f) == NULL)
        type[0] = '\0';
    fclose(f);
    return str_starts(type, "RoCE v2");
}

/* The entry with an IPv4 address (of several one of RoCE v2, else the first); without any the
 * table's first, which InfiniBand uses. */
static enum status find_gid(struct verbs_device *d, int n_gids, union ibv_gid *gid,
                            struct err *err) {
    int first = -1, v2 = -1;
    for (int i = 0; i < n_gids; i++) {
        if (d->lib->query_gid(d->context, d->port, i, gid) != 0 || !verbs_gid_is_ipv4(gid))
            continue;
        first = first < 0 ? i : first;
        v2 = v2 < 0 && is_roce_v2(d, i) ? i : v2;
    }
    d->gid_index = v2 >= 0 ? v2 : MAX(first, 0);
    if (d->lib->query_gid(d->context, d->port, d->gid_index, gid) != 0)
        return err_set(err, ST_UNSUPPORTED, "RDMA device %s has no address (GID)", d->name);
    return ST_OK;
}

static enum status find_address(struct verbs_device *d, struct err *err) {
    struct ibv_port_attr attr;
    union ibv_gid gid;
    TRY(find_port(d, &attr, err));
    TRY(find_gid(d, attr.gid_tbl_len, &gid, err));
    d->address = (struct verbs_address){
        .lid = attr.lid,
        .mtu = (uint8_t)attr.active_mtu,
        .is_global = attr.link_layer == IBV_LINK_LAYER_ETHERNET || attr.lid == 0};
    memcpy(d->address.gid, gid.raw, sizeof d->address.gid);
    return ST_OK;
}

static enum status register_slab(struct verbs_device *d, struct err *err) {
    d->slab = mem_huge_alloc(verbs_choices.slab_bytes);
    if (d->slab == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for the RDMA slab");
    for (size_t i = 0; i < ARRAY_LEN(verbs_choices.access) && d->mr == NULL; i++)
        d->mr =
            d->lib->reg_mr(d->pd, d->slab, verbs_choices.slab_bytes, verbs_choices.access[i]);
    if (d->mr == NULL)
        return err_set(err, ST_NO_MEMORY, "RDMA device %s registers no memory: %s (ulimit -l?)",
                       d->name, strerror(errno));
    return ST_OK;
}

static void device_free(struct verbs_device *d) {
    if (d->mr != NULL)
        d->lib->dereg_mr(d->mr);
    mem_huge_free(d->slab, verbs_choices.slab_bytes);
    if (d->pd != NULL)
        d->lib->dealloc_pd(d->pd);
    if (d->context != NULL)
        d->lib->close_device(d->context);
    mem_free(d);
}

static enum status device_init(struct verbs_device *d, struct ibv_device *device,
                               struct err *err) {
    d->context = d->lib->open_device(device);
    if (d->context == NULL)
        return err_set(err, ST_UNSUPPORTED, "RDMA device %s does not open: %s", d->name,
                       strerror(errno));
    TRY(find_address(d, err));
    d->pd = d->lib->alloc_pd(d->context);
    if (d->pd == NULL)
        return err_set(err, ST_UNSUPPORTED, "RDMA device %s: no protection domain: %s", d->name,
                       strerror(errno));
    return register_slab(d, err);
}

static enum status device_open(struct verbs_device **out, const struct verbs_lib *lib,
                               struct ibv_device *device, struct err *err) {
    const char *name = lib->get_device_name(device);
    for (struct verbs_device *d = devices; d != NULL; d = d->next)
        if (str_eq(d->name, name)) {
            d->users++;
            *out = d;
            return ST_OK;
        }
    struct verbs_device *d = mem_calloc(1, sizeof *d);
    if (d == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for an RDMA device");
    d->lib = lib;
    snprintf(d->name, sizeof d->name, "%s", name);
    enum status st = device_init(d, device, err);
    if (st != ST_OK) {
        device_free(d);
        return st;
    }
    d->users = 1;
    d->next = devices;
    devices = d;
    *out = d;
    return ST_OK;
}

enum status verbs_devices_open(struct verbs_device **out, int max, int *n, const char *name,
                               struct err *err) {
    const struct verbs_lib *lib;
    *n = 0;
    TRY(verbs_lib_get(&lib, err));
    int n_listed = 0;
    struct ibv_device **list = lib->get_device_list(&n_listed);
    enum status st = err_set(err, ST_UNSUPPORTED, "no RDMA device%s%s", name ? " called " : "",
                             name ? name : "");
    pthread_mutex_lock(&devices_lock);
    for (int i = 0; list != NULL && i < n_listed && *n < max; i++)
        if (name == NULL || str_eq(lib->get_device_name(list[i]), name)) {
            struct err why;
            enum status opened = device_open(&out[*n], lib, list[i], &why);
            *n += opened == ST_OK;
            if (opened != ST_OK && st != ST_NO_MEMORY)
                st = err_set(err, opened, "%s", why.text);
        }
    pthread_mutex_unlock(&devices_lock);
    if (list != NULL)
        lib->free_device_list(list);
    return *n > 0 ? ST_OK : st;
}

void verbs_device_hold(struct verbs_device *d) {
    pthread_mutex_lock(&devices_lock);
    d->users++;
    pthread_mutex_unlock(&devices_lock);
}

/* It goes with its last user, under the lock: the library may not know it twice. */
void verbs_device_close(struct verbs_device *d) {
    pthread_mutex_lock(&devices_lock);
    if (--d->users == 0) {
        struct verbs_device **at = &devices;
        while (*at != d)
            at = &(*at)->next;
        *at = d->next;
        device_free(d);
    }
    pthread_mutex_unlock(&devices_lock);
}

/* ---- slots of the slab ------------------------------------------------------------------- */

void *verbs_slot_take(struct verbs_device *d, int class) {
    pthread_mutex_lock(&devices_lock);
    struct verbs_slot_free *s = d->free[class];
    size_t bytes = verbs_class_bytes[class];
    if (s != NULL) {
        d->free[class] = s->next;
    } else if (d->slab_used + bytes <= verbs_choices.slab_bytes) {
        s = (struct verbs_slot_free *)(d->slab + d->slab_used);
        d->slab_used += bytes;
    }
    pthread_mutex_unlock(&devices_lock);
    return s;
}

void verbs_slot_give(struct verbs_device *d, int class, void *slot) {
    struct verbs_slot_free *s = slot;
    pthread_mutex_lock(&devices_lock);
    s->next = d->free[class];
    d->free[class] = s;
    pthread_mutex_unlock(&devices_lock);
}

/* ---- queue pairs ------------------------------------------------------------------------- */

static enum status queue_init(struct ibv_qp *qp, uint32_t *depth, const struct verbs_device *d,
                              const struct ibv_qp_init_attr *made, struct err *err) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = d->port,
                               .qp_access_flags = IBV_ACCESS_LOCAL_WRITE};
    int rc = d->lib->modify_qp(
        qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (rc != 0)
        return err_set(err, ST_UNSUPPORTED, "RDMA device %s: queue pair to INIT: %s", d->name,
                       strerror(rc));
    struct ibv_qp_init_attr granted = *made;
    if (d->lib->query_qp(qp, &attr, IBV_QP_CAP, &granted) == 0)
        *depth = MIN(*depth, MIN(granted.cap.max_send_wr, granted.cap.max_recv_wr));
    return ST_OK;
}

enum status verbs_queue_new(struct ibv_qp **out, uint32_t *depth, struct verbs_device *d,
                            struct ibv_cq *cq, int class, bool reliable, struct err *err) {
    *depth = MIN(verbs_choices.max_frames / (verbs_class_bytes[class] / VERBS_FRAME),
                 VERBS_DEPTH_MAX);
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .qp_type = reliable ? IBV_QPT_RC : IBV_QPT_UC,
        .sq_sig_all = 1,
        .cap = {.max_send_wr = *depth,
                .max_recv_wr = *depth,
                .max_send_sge = 1,
                .max_recv_sge = 1},
    };
    struct ibv_qp *qp = d->lib->create_qp(d->pd, &init);
    if (qp == NULL)
        return err_set(err, ST_UNSUPPORTED, "RDMA device %s gives no queue pair: %s", d->name,
                       strerror(errno));
    enum status st = queue_init(qp, depth, d, &init, err);
    if (st != ST_OK)
        d->lib->destroy_qp(qp);
    else
        *out = qp;
    return st;
}

static int modify_to_rtr(const struct verbs_device *d, struct ibv_qp *qp, bool reliable,
                         const struct verbs_address *to, uint32_t qpn, uint32_t psn) {
    struct ibv_qp_attr a = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)MIN(to->mtu, d->address.mtu),
        .dest_qp_num = qpn,
        .rq_psn = psn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.dlid = to->lid, .port_num = d->port, .is_global = to->is_global},
    };
    memcpy(a.ah_attr.grh.dgid.raw, to->gid, sizeof to->gid);
    a.ah_attr.grh.sgid_index = (uint8_t)d->gid_index;
    a.ah_attr.grh.hop_limit = verbs_choices.hop_limit;
    int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (reliable)
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    return d->lib->modify_qp(qp, &a, mask);
}

static int modify_to_rts(const struct verbs_device *d, struct ibv_qp *qp, bool reliable,
                         uint32_t psn) {
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS,
                            .sq_psn = psn,
                            .timeout = 14,
                            .retry_cnt = 7,
                            .rnr_retry = 7,
                            .max_rd_atomic = 1};
    int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (reliable)
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    return d->lib->modify_qp(qp, &a, mask);
}

enum status verbs_queue_connect(const struct verbs_device *d, struct ibv_qp *qp, bool reliable,
                                const struct verbs_address *to, uint32_t qpn,
                                uint32_t their_psn, uint32_t my_psn, struct err *err) {
    int rc = modify_to_rtr(d, qp, reliable, to, qpn, their_psn);
    if (rc != 0)
        return err_set(err, ST_UNSUPPORTED, "RDMA device %s: queue pair to RTR: %s%s", d->name,
                       strerror(rc),
                       rc == EINVAL      ? " (wrong GID, or the Thunderbolt Bridge is active)"
                       : rc == ETIMEDOUT ? " (the GID is not reachable on this cable)"
                       : rc == EBUSY     ? " (left over from a crash: reboot)"
                                         : "");
    if ((rc = modify_to_rts(d, qp, reliable, my_psn)) != 0)
        return err_set(err, ST_UNSUPPORTED, "RDMA device %s: queue pair to RTS: %s", d->name,
                       strerror(rc));
    return ST_OK;
}

int verbs_post_recv(const struct verbs_device *d, struct ibv_qp *qp, int class, void *slot,
                    uint64_t wr_id) {
    struct ibv_sge sge = {
        .addr = (uintptr_t)slot, .length = verbs_class_bytes[class], .lkey = d->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;
    return ibv_post_recv(qp, &wr, &bad);
}

int verbs_post_send(const struct verbs_device *d, struct ibv_qp *qp, int class, void *slot,
                    uint64_t wr_id) {
    struct ibv_sge sge = {
        .addr = (uintptr_t)slot, .length = verbs_class_bytes[class], .lkey = d->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = wr_id,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    return ibv_post_send(qp, &wr, &bad);
}
#endif
