/* A libibverbs in user space, for the tests of the verbs link on machines without RDMA: loaded
 * through LOCKSTEP_IBVERBS. Its wires are queues in memory that the tests' processes share: the
 * file descriptor in STANDIN_FD, inherited by fork.
 *
 * It imitates the limits of Apple's Thunderbolt RDMA (as told, not as measured): UC only,
 * SEND/RECV with one SGE, 10 queue pairs per device, a send and its receive equal in 4 KiB
 * frames, queues counted in frames, one region for everything, the address at its index in the
 * GID table, receives only after RTS, and silence when a peer dies. Breaking a rule that
 * hardware answers with corruption ends the process.
 *
 * STANDIN_CABLES="0.1-2.0 ..." makes several machines of the tests' processes: device 1 of
 * machine 0 and device 0 of machine 2 are joined, and nothing else is; a process is of machine
 * STANDIN_MACHINE, which has as many devices as cables name. A message to where no cable leads
 * vanishes; with STANDIN_TELLS the connection is refused at once, as Apple's is said to be.
 * Without cables every process has one device, from which all others are reached.
 *
 * Completions raise events through a socket in the abstract namespace; STANDIN_NO_EVENTS takes
 * that away, as other systems may.
 *
 * STANDIN_FLOAT: loaded, it sets rounding upwards and flushes subnormals, as a library built with
 * -ffast-math does.
 *
 * STANDIN_NO_MEMORY: no memory can be registered, as where little may be locked.
 *
 * STANDIN_LOSE_AFTER=N: so does every message after the Nth.
 *
 * STANDIN_LOSE=N, STANDIN_CORRUPT=N, STANDIN_FAIL=N: the Nth message that a process sends
 * vanishes, arrives with a flipped bit, or completes in error. */
#include <infiniband/verbs.h>

#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#if defined(__SSE__)
#include <immintrin.h>
#endif

#define EXPORT __attribute__((visibility("default")))
#define FRAME 4096u
#define MAX_BYTES (9 * FRAME)
#define N_QUEUES 256
#define RING 256u
#define MAX_QPS 10
#define MAX_FRAMES 4095u
#define GID_INDEX 1
#define N_DEVICES 4

__attribute__((constructor)) static void set_float(void) {
    if (getenv("STANDIN_FLOAT") == NULL)
        return;
    fesetround(FE_UPWARD);
#if defined(__SSE__)
    _mm_setcsr(_mm_getcsr() | 0x8040); /* FTZ, DAZ */
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    __asm__ volatile("msr fpcr, %0" ::"r"(fpcr | 1u << 24)); /* FZ */
#endif
}

struct slot {
    uint32_t n_bytes;
    uint8_t data[MAX_BYTES];
};

/* What one queue pair receives. One sender, one receiver. */
struct queue {
    _Atomic uint32_t used, posted, head, tail; /* counts since the start */
    _Atomic uint32_t armed; /* the next arrival raises an event at the door */
    int machine, device;    /* whose */
    char door[64];
    struct slot ring[RING];
};

struct recv {
    uint64_t wr_id;
    void *at;
    uint32_t n_bytes;
};

struct sqp {
    struct ibv_qp qp; /* first */
    struct scq *cq;
    struct queue *mine, *theirs;
    struct recv recvs[RING];
    uint32_t recv_head, recv_tail, recv_frames;
};

struct events {
    struct ibv_comp_channel channel; /* first */
    struct scq *cq;
    char door[64];
};

struct scq {
    struct ibv_cq cq; /* first */
    struct events *events;
    int armed; /* the next send that completes raises an event */
    unsigned unacknowledged;
    struct sqp *qps[MAX_QPS];
    struct ibv_wc done[2 * RING]; /* of sends */
    uint32_t head, tail;
};

struct sdevice {
    struct ibv_context context; /* first */
    struct ibv_device device;
    struct ibv_mr region;
    int number, n_qps;
};

static struct queue *queues; /* [N_QUEUES], shared */
static struct sdevice devices[N_DEVICES];
static int n_open, sent;

static struct sdevice *device_of(struct ibv_context *c) {
    return (struct sdevice *)c;
}

static void rule(int ok, const char *text) {
    if (!ok) {
        fprintf(stderr, "stand-in verbs: broken rule: %s\n", text);
        abort();
    }
}

static int number(const char *name) {
    const char *s = getenv(name);
    return s != NULL ? atoi(s) : -1;
}

/* ---- cables ------------------------------------------------------------------------------- */

static int machine(void) {
    return number("STANDIN_MACHINE");
}

/* Calls back with both ends of each cable until it returns 0. */
static void each_cable(int (*see)(const int ends[4], void *user), void *user) {
    int e[4], n, more = 1;
    for (const char *s = getenv("STANDIN_CABLES");
         s != NULL && more && sscanf(s, " %d.%d-%d.%d%n", &e[0], &e[1], &e[2], &e[3], &n) == 4;
         s += n)
        more = see(e, user);
}

static int count_ours(const int e[4], void *n) {
    for (int i = 0; i < 4; i += 2)
        if (e[i] == machine() && e[i + 1] >= *(int *)n)
            *(int *)n = e[i + 1] + 1;
    return 1;
}

static int n_devices(void) {
    int n = 0;
    if (getenv("STANDIN_FD") == NULL)
        return 0;
    if (getenv("STANDIN_CABLES") == NULL)
        return 1;
    each_cable(count_ours, &n);
    return n <= N_DEVICES ? n : N_DEVICES;
}

struct way {
    int from[2], to[2], there; /* machine, device */
};

static int is_way(const int e[4], void *way) {
    struct way *w = way;
    w->there = (!memcmp(e, w->from, sizeof w->from) && !memcmp(e + 2, w->to, sizeof w->to)) ||
               (!memcmp(e, w->to, sizeof w->to) && !memcmp(e + 2, w->from, sizeof w->from));
    return !w->there;
}

static int leads_to(const struct sdevice *from, int machine_there, int device_there) {
    struct way w = {.from = {machine(), from->number}, .to = {machine_there, device_there}};
    each_cable(is_way, &w);
    return w.there || getenv("STANDIN_CABLES") == NULL;
}

/* ---- events ------------------------------------------------------------------------------- */

#ifdef __linux__
#define HAS_ABSTRACT_SOCKETS 1
#else
#define HAS_ABSTRACT_SOCKETS 0 /* so a device without events */
#endif

static socklen_t at_door(struct sockaddr_un *a, const char *door) {
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    memcpy(a->sun_path + 1, door, strlen(door)); /* abstract: the first byte is 0 */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(door));
}

static void raise_event(const struct events *from, const char *door) {
    struct sockaddr_un a;
    if (from != NULL && door[0] != '\0')
        sendto(from->channel.fd, "", 1, MSG_DONTWAIT, (struct sockaddr *)&a, at_door(&a, door));
}

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c) {
    static int n;
    struct sockaddr_un a;
    struct stat wires;
    struct events *e = calloc(1, sizeof *e);
    if (!HAS_ABSTRACT_SOCKETS || getenv("STANDIN_NO_EVENTS") != NULL ||
        fstat(number("STANDIN_FD"), &wires) != 0) {
        free(e);
        errno = ENOSYS;
        return NULL;
    }
    snprintf(e->door, sizeof e->door, "standin-%lu-%d-%d", (unsigned long)wires.st_ino,
             (int)getpid(), n++);
    e->channel.context = c;
    e->channel.fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (e->channel.fd < 0 || fcntl(e->channel.fd, F_SETFD, FD_CLOEXEC) != 0 ||
        bind(e->channel.fd, (struct sockaddr *)&a, at_door(&a, e->door)) != 0)
        abort();
    return &e->channel;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
    struct events *e = (struct events *)channel;
    rule(e->cq == NULL, "completion queues go before their channel");
    close(channel->fd);
    free(e);
    return 0;
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
                            void **cq_context) {
    struct events *e = (struct events *)channel;
    char c;
    if (recv(channel->fd, &c, 1, 0) != 1)
        return -1;
    e->cq->unacknowledged++;
    *cq = &e->cq->cq;
    *cq_context = NULL;
    return 0;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n) {
    ((struct scq *)cq)->unacknowledged -= n;
}

/* A queue pair made later than this is not armed. */
static int standin_notify(struct ibv_cq *cq, int solicited_only) {
    (void)solicited_only;
    struct scq *s = (struct scq *)cq;
    s->armed = 1;
    for (int i = 0; i < MAX_QPS; i++)
        if (s->qps[i] != NULL)
            atomic_store(&s->qps[i]->mine->armed, 1);
    return 0;
}

/* ---- device ------------------------------------------------------------------------------- */

EXPORT struct ibv_device **ibv_get_device_list(int *n) {
    struct ibv_device **list = calloc(N_DEVICES + 1, sizeof(struct ibv_device *));
    *n = n_devices();
    for (int i = 0; i < *n; i++) {
        devices[i].number = i;
        snprintf(devices[i].device.name, sizeof devices[i].device.name, "standin%d", i);
        list[i] = &devices[i].device;
    }
    return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list) {
    free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *d) {
    return d->name;
}

static int standin_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc);
static int standin_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
static int standin_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *d) {
    if (queues == NULL) {
        void *p = mmap(NULL, N_QUEUES * sizeof *queues, PROT_READ | PROT_WRITE, MAP_SHARED,
                       number("STANDIN_FD"), 0);
        if (p == MAP_FAILED)
            return NULL;
        queues = p;
    }
    struct ibv_context *c = &devices[atoi(d->name + strlen("standin"))].context;
    rule(c->device == NULL, "a device is opened once");
    c->device = d;
    c->ops.poll_cq = standin_poll;
    c->ops.post_send = standin_send;
    c->ops.post_recv = standin_recv;
    c->ops.req_notify_cq = standin_notify;
    n_open++;
    return c;
}

EXPORT int ibv_close_device(struct ibv_context *c) {
    rule(device_of(c)->n_qps == 0, "the device is closed after its queue pairs");
    c->device = NULL;
    if (--n_open == 0) {
        munmap(queues, N_QUEUES * sizeof *queues);
        queues = NULL;
    }
    return 0;
}

#undef ibv_query_port
EXPORT int ibv_query_port(struct ibv_context *c, uint8_t port,
                          struct _compat_ibv_port_attr *compat) {
    (void)c;
    struct ibv_port_attr *a = (struct ibv_port_attr *)compat;
    if (port != 1)
        return EINVAL;
    a->state = IBV_PORT_ACTIVE;
    a->active_mtu = IBV_MTU_1024;
    a->gid_tbl_len = 2;
    a->link_layer = IBV_LINK_LAYER_ETHERNET;
    return 0;
}

EXPORT int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid) {
    (void)port;
    static const uint8_t gids[2][16] = {
        {0xfe, 0x80, [15] = 1}, {[10] = 0xff, [11] = 0xff, [12] = 169, [13] = 254, [15] = 1}};
    memcpy(gid->raw, gids[index], sizeof gid->raw);
    gid->raw[14] = (uint8_t)(device_of(c)->number + N_DEVICES * (machine() + 1));
    return 0;
}

/* ---- resources ----------------------------------------------------------------------------- */

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *c) {
    struct ibv_pd *pd = calloc(1, sizeof *pd);
    pd->context = c;
    return pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd) {
    rule(device_of(pd->context)->region.addr == NULL, "regions go before their domain");
    free(pd);
    return 0;
}

#undef ibv_reg_mr
EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) {
    struct ibv_mr *region = &device_of(pd->context)->region;
    rule(region->addr == NULL, "one region per device");
    rule((uintptr_t)addr % FRAME == 0, "regions are page-aligned");
    if (!(access & IBV_ACCESS_LOCAL_WRITE) || getenv("STANDIN_NO_MEMORY") != NULL) {
        errno = ENOMEM;
        return NULL;
    }
    *region = (struct ibv_mr){
        .context = pd->context, .pd = pd, .addr = addr, .length = length, .lkey = 7};
    return region;
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr) {
    rule(device_of(mr->context)->n_qps == 0, "queue pairs go before the region they use");
    mr->addr = NULL;
    return 0;
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *cq_context,
                                    struct ibv_comp_channel *channel, int vector) {
    (void)cqe, (void)cq_context, (void)vector;
    struct scq *s = calloc(1, sizeof *s);
    s->cq.context = c;
    s->events = (struct events *)channel;
    if (channel != NULL)
        s->events->cq = s;
    return &s->cq;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq) {
    struct scq *s = (struct scq *)cq;
    for (int i = 0; i < MAX_QPS; i++)
        rule(s->qps[i] == NULL, "queue pairs go before their completion queue");
    rule(s->unacknowledged == 0, "every event is acknowledged");
    if (s->events != NULL)
        s->events->cq = NULL;
    free(s);
    return 0;
}

static struct queue *queue_take(uint32_t *number_of_it) {
    for (uint32_t i = 0; i < N_QUEUES; i++) {
        uint32_t unused = 0;
        if (!atomic_compare_exchange_strong(&queues[i].used, &unused, 1))
            continue;
        atomic_store(&queues[i].posted, 0);
        atomic_store(&queues[i].head, 0);
        atomic_store(&queues[i].tail, 0);
        *number_of_it = i + 1;
        return &queues[i];
    }
    return NULL;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init) {
    if (init->qp_type != IBV_QPT_UC || init->cap.max_send_sge != 1 ||
        init->cap.max_inline_data) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    struct sdevice *d = device_of(pd->context);
    struct sqp *s = calloc(1, sizeof *s);
    s->mine = d->n_qps < MAX_QPS ? queue_take(&s->qp.qp_num) : NULL;
    if (s->mine == NULL) {
        free(s);
        errno = EBUSY;
        return NULL;
    }
    d->n_qps++;
    s->mine->machine = machine();
    s->mine->device = d->number;
    s->qp.context = pd->context;
    s->cq = (struct scq *)init->recv_cq;
    atomic_store(&s->mine->armed, 0);
    snprintf(s->mine->door, sizeof s->mine->door, "%s",
             s->cq->events != NULL ? s->cq->events->door : "");
    for (int i = 0; i < MAX_QPS; i++)
        if (s->cq->qps[i] == NULL) {
            s->cq->qps[i] = s;
            break;
        }
    return &s->qp;
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp) {
    struct sqp *s = (struct sqp *)qp;
    for (int i = 0; i < MAX_QPS; i++)
        if (s->cq->qps[i] == s)
            s->cq->qps[i] = NULL;
    atomic_store(&s->mine->used, 0);
    device_of(qp->context)->n_qps--;
    free(s);
    return 0;
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask) {
    struct sqp *s = (struct sqp *)qp;
    enum ibv_qp_state before = qp->state;
    if (!(mask & IBV_QP_STATE) || (int)a->qp_state != (int)before + 1)
        return EINVAL; /* RESET, INIT, RTR, RTS: one after the other */
    if (a->qp_state == IBV_QPS_RTR) {
        if (!a->ah_attr.is_global || a->ah_attr.grh.hop_limit != 1 ||
            a->ah_attr.grh.sgid_index != GID_INDEX || a->dest_qp_num == 0 ||
            a->dest_qp_num > N_QUEUES)
            return EINVAL;
        s->theirs = &queues[a->dest_qp_num - 1];
        int there = a->ah_attr.grh.dgid.raw[14];
        if (getenv("STANDIN_TELLS") != NULL &&
            !leads_to(device_of(qp->context), there / N_DEVICES - 1, there % N_DEVICES))
            return ETIMEDOUT;
    }
    qp->state = a->qp_state;
    return 0;
}

EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask,
                        struct ibv_qp_init_attr *init) {
    (void)qp, (void)a, (void)mask;
    init->cap.max_send_wr = init->cap.max_recv_wr = RING;
    return 0;
}

EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status) {
    return status == IBV_WC_SUCCESS ? "success" : "transport error";
}

/* ---- traffic -------------------------------------------------------------------------------- */

static void in_region(const struct ibv_qp *qp, const struct ibv_sge *sge) {
    const struct ibv_mr *region = &device_of(qp->context)->region;
    rule(sge->lkey == region->lkey && sge->addr >= (uintptr_t)region->addr &&
             sge->addr + sge->length <= (uintptr_t)region->addr + region->length,
         "buffers lie in the region");
}

static int standin_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    (void)bad;
    struct sqp *s = (struct sqp *)qp;
    rule(wr->num_sge == 1 && wr->next == NULL, "one SGE");
    rule(qp->state == IBV_QPS_RTS, "receives are posted after RTS");
    in_region(qp, wr->sg_list);
    s->recv_frames += wr->sg_list->length / FRAME;
    rule(s->recv_frames <= MAX_FRAMES && s->recv_tail - s->recv_head < RING,
         "no more receives than the queue is deep, in frames");
    s->recvs[s->recv_tail++ % RING] =
        (struct recv){wr->wr_id, (void *)(uintptr_t)wr->sg_list->addr, wr->sg_list->length};
    atomic_fetch_add(&s->mine->posted, 1);
    return 0;
}

static void carry(const struct events *from, struct queue *to, const void *data,
                  uint32_t n_bytes) {
    uint32_t tail = atomic_load(&to->tail);
    if (!atomic_load(&to->used) || atomic_load(&to->posted) == tail)
        return; /* nobody there, or no receive posted: UC drops it */
    struct slot *slot = &to->ring[tail % RING];
    slot->n_bytes = n_bytes;
    memcpy(slot->data, data, n_bytes);
    if (sent == number("STANDIN_CORRUPT"))
        slot->data[60] ^= 4;
    atomic_store(&to->tail, tail + 1);
    if (atomic_exchange(&to->armed, 0))
        raise_event(from, to->door);
}

static int standin_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    (void)bad;
    struct sqp *s = (struct sqp *)qp;
    rule(qp->state == IBV_QPS_RTS && wr->opcode == IBV_WR_SEND && wr->num_sge == 1,
         "SEND with one SGE on a connected queue pair");
    in_region(qp, wr->sg_list);
    sent++;
    int after = number("STANDIN_LOSE_AFTER");
    if (sent != number("STANDIN_LOSE") && (after < 0 || sent <= after) &&
        leads_to(device_of(qp->context), s->theirs->machine, s->theirs->device))
        carry(s->cq->events, s->theirs, (void *)(uintptr_t)wr->sg_list->addr,
              wr->sg_list->length);
    s->cq->done[s->cq->tail++ % (2 * RING)] = (struct ibv_wc){
        .wr_id = wr->wr_id,
        .status = sent == number("STANDIN_FAIL") ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS,
    };
    if (s->cq->armed) {
        s->cq->armed = 0;
        raise_event(s->cq->events, s->mine->door);
    }
    return 0;
}

static int take_one(struct sqp *s, struct ibv_wc *wc) {
    uint32_t head = atomic_load(&s->mine->head);
    if (head == atomic_load(&s->mine->tail))
        return 0;
    const struct slot *slot = &s->mine->ring[head % RING];
    struct recv *r = &s->recvs[s->recv_head++ % RING];
    s->recv_frames -= r->n_bytes / FRAME;
    rule((slot->n_bytes + FRAME - 1) / FRAME == r->n_bytes / FRAME,
         "a send and its receive have equally many frames");
    memcpy(r->at, slot->data, slot->n_bytes);
    *wc = (struct ibv_wc){.wr_id = r->wr_id,
                          .status = IBV_WC_SUCCESS,
                          .opcode = IBV_WC_RECV,
                          .byte_len = slot->n_bytes};
    atomic_store(&s->mine->head, head + 1);
    return 1;
}

static int standin_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc) {
    struct scq *s = (struct scq *)cq;
    int got = 0;
    while (got < n && s->head != s->tail)
        wc[got++] = s->done[s->head++ % (2 * RING)];
    for (int i = 0; i < MAX_QPS; i++)
        while (got < n && s->qps[i] != NULL && take_one(s->qps[i], &wc[got]))
            got++;
    return got;
}
