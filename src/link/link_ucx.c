/* link_ucx.c: the link `ucx`: OpenUCX's active messages: accelerated InfiniBand, several rails,
 * cloud networks, and on one host its own shared memory. It is never chosen automatically: the
 * user names it.
 *
 * A rank has one worker for all its peers. A message says which rank sent it. A received
 * message stays where UCX put it (on one host, in shared memory) until the caller has read it.
 * As in link_verbs.c, at most UCX_CREDITS messages of a direction are under way. Consumed
 * counts travel in each message's head, or alone if no message goes back. All messages are sent
 * eagerly, so a rank that computes need not look after what it has sent.
 *
 * Failure: between hosts, endpoints report a dead peer (UCP_ERR_HANDLING_MODE_PEER). UCX's
 * shared memory cannot, so on one host only the side channel does. */
#include "link/links.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"

#if defined(LOCKSTEP_HAS_UCX)
#include "link/ucx_lib.h"

#include <pthread.h>

#include <stdlib.h>
#include <unistd.h>

#define UCX_CREDITS 8u   /* messages under way per direction */
#define UCX_N_SLOTS 10u  /* and some to write into */
#define UCX_N_RETURNS 4u /* messages that only return credits: at most two are under way */
#define UCX_CLOSE_MS 50
#define UCX_AM_ID 1u

/* In front of every message. */
struct ucx_head {
    uint64_t taken;   /* messages that the sender has consumed */
    uint32_t n_bytes; /* of all that follows; 0: only returns credits */
    uint32_t rank;    /* of the sender */
    uint32_t unused[4];
};
static_assert(sizeof(struct ucx_head) == 32, "messages stay aligned");

#define UCX_STRIDE \
    ((sizeof(struct ucx_head) + sizeof(struct wire_msg) + LINK_SLOT_BYTES + 63) / 64 * 64)

struct ucx_link;

struct ucx_worker {
    struct ucx_worker *next;
    const struct fabric_config *cfg; /* whose worker it is */
    int users;                       /* links */
    const struct ucx_lib *lib;
    ucp_context_h context;
    ucp_worker_h worker;
    int event_fd;    /* UCX's; becomes readable after arming */
    int readable[2]; /* a pipe that always is */
    struct ucx_link *links[FABRIC_MAX_RANKS];
};

static pthread_mutex_t workers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ucx_worker
    *workers; /* guarded by workers_lock; what they hold by the group's thread */

/* A message that has come. */
struct ucx_box {
    const struct ucx_head *head; /* NULL: not there */
    bool kept;                   /* UCX's memory, to be given back; else a slot of `rx` */
};

/* A ring of messages to send: begin to end are under way. Those that only return credits have one
 * of their own, because they may go while the caller fills the next slot of the other. */
struct ucx_sends {
    uint8_t *slots; /* [n][stride] */
    size_t stride;
    uint32_t n, begin, end; /* begin and end wrap */
    void *request[UCX_N_SLOTS];
};

struct ucx_link {
    struct link base;
    struct ucx_worker *w;
    ucp_ep_h ep;
    int rank, peer;
    const char *failed; /* why no message goes any more */
    struct ucx_sends messages, returns;
    struct ucx_head returned[UCX_N_RETURNS]; /* the slots of `returns` */
    uint8_t *rx; /* [UCX_CREDITS][UCX_STRIDE], for what cannot stay where it arrived */
    struct ucx_box inbox[UCX_CREDITS]; /* by sequence number */
    uint64_t sent, taken_by_peer;      /* messages */
    uint64_t received, told;           /* consumed here; last told to the peer */
};

static struct ucx_link *ucx_of(struct link *l) {
    return (struct ucx_link *)l;
}

/* ---- the worker -------------------------------------------------------------------------- */

static void worker_free(struct ucx_worker *w) {
    if (w->worker != NULL)
        w->lib->ucp_worker_destroy(w->worker);
    if (w->context != NULL)
        w->lib->ucp_cleanup(w->context);
    for (int i = 0; i < 2; i++)
        if (w->readable[i] >= 0)
            close(w->readable[i]);
    mem_free(w);
}

static ucs_status_t on_message(void *worker, const void *header, size_t header_length,
                               void *data, size_t length, const ucp_am_recv_param_t *param);

static enum status worker_init(struct ucx_worker *w, struct err *err) {
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
    const ucp_worker_params_t how = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE |
                                                   UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT,
                                     .thread_mode = UCS_THREAD_MODE_SERIALIZED,
                                     .am_alignment = 8};
    const ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                                                          UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                          UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                            .id = UCX_AM_ID,
                                            .cb = on_message,
                                            .arg = w};
    ucs_status_t st =
        w->lib->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, NULL, &w->context);
    if (st == UCS_OK)
        st = w->lib->ucp_worker_create(w->context, &how, &w->worker);
    if (st == UCS_OK)
        st = w->lib->ucp_worker_set_am_recv_handler(w->worker, &handler);
    if (st == UCS_OK)
        st = w->lib->ucp_worker_get_efd(w->worker, &w->event_fd);
    if (st != UCS_OK)
        return err_set(err, ST_UNSUPPORTED, "UCX does not start: %s",
                       w->lib->ucs_status_string(st));
    if (pipe(w->readable) != 0 || write(w->readable[1], "", 1) != 1)
        return err_set(err, ST_IO, "no pipe for UCX");
    return ST_OK;
}

static enum status worker_find(struct ucx_worker **out, const struct fabric_config *cfg,
                               struct err *err) {
    for (struct ucx_worker *w = workers; w != NULL; w = w->next)
        if (w->cfg == cfg) {
            *out = w;
            return ST_OK;
        }
    const struct ucx_lib *lib;
    TRY(ucx_lib_get(&lib, err));
    struct ucx_worker *w = mem_calloc(1, sizeof *w);
    if (w == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a UCX worker");
    *w = (struct ucx_worker){.cfg = cfg, .lib = lib, .readable = {-1, -1}};
    enum status st = worker_init(w, err);
    if (st != ST_OK) {
        worker_free(w);
        return st;
    }
    w->next = workers;
    workers = w;
    *out = w;
    return ST_OK;
}

static enum status worker_take(struct ucx_worker **out, const struct fabric_config *cfg,
                               struct err *err) {
    pthread_mutex_lock(&workers_lock);
    enum status st = worker_find(out, cfg, err);
    if (st == ST_OK)
        (*out)->users++;
    pthread_mutex_unlock(&workers_lock);
    return st;
}

static void worker_give(struct ucx_worker *w) {
    pthread_mutex_lock(&workers_lock);
    if (--w->users == 0) {
        struct ucx_worker **at = &workers;
        while (*at != w)
            at = &(*at)->next;
        *at = w->next;
        worker_free(w);
    }
    pthread_mutex_unlock(&workers_lock);
}

/* ---- receiving --------------------------------------------------------------------------- */

/* The slot that is sent next. */
static struct ucx_head *next_slot(const struct ucx_sends *s) {
    return (struct ucx_head *)(s->slots + s->end % s->n * s->stride);
}

static bool is_full(const struct ucx_sends *s) {
    return s->end - s->begin == s->n;
}

/* The place of the message with that number; NULL where it cannot come now. */
static struct ucx_box *box_of(struct ucx_link *u, uint32_t seq) {
    struct ucx_box *box = &u->inbox[seq % UCX_CREDITS];
    return seq - (uint32_t)u->received < UCX_CREDITS && box->head == NULL ? box : NULL;
}

/* Runs inside ucp_worker_progress(). What cannot be a message in its place is dropped: it is
 * missed soon. */
static ucs_status_t on_message(void *worker, const void *header, size_t header_length,
                               void *data, size_t length, const ucp_am_recv_param_t *param) {
    (void)header, (void)header_length;
    struct ucx_worker *w = worker;
    struct ucx_head h; /* short messages lie anywhere */
    struct wire_msg m;
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV || length < sizeof h ||
        length > UCX_STRIDE)
        return UCS_OK;
    memcpy(&h, data, sizeof h);
    struct ucx_link *u = h.rank < FABRIC_MAX_RANKS ? w->links[h.rank] : NULL;
    if (u == NULL || h.n_bytes != length - sizeof h)
        return UCS_OK;
    if (h.taken > u->taken_by_peer && h.taken <= u->sent)
        u->taken_by_peer = h.taken;
    if (h.n_bytes < sizeof m)
        return UCS_OK; /* only credits */
    memcpy(&m, (const char *)data + sizeof h, sizeof m);
    struct ucx_box *box = box_of(u, m.seq);
    if (box == NULL || m.n_bytes > h.n_bytes - sizeof m)
        return UCS_OK;
    box->kept = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA && (uintptr_t)data % 8 == 0;
    box->head = data;
    if (box->kept)
        return UCS_INPROGRESS; /* until ucp_am_data_release() */
    box->head = memcpy(u->rx + m.seq % UCX_CREDITS * UCX_STRIDE, data, length);
    return UCS_OK;
}

static void empty_box(struct ucx_link *u, struct ucx_box *box) {
    if (box->kept)
        u->w->lib->ucp_am_data_release(u->w->worker, (void *)(uintptr_t)box->head);
    *box = (struct ucx_box){0};
}

static enum status ucx_failed(const struct ucx_link *u, struct err *err) {
    return err_set(err, ST_PEER_LOST, "UCX: %s", u->failed);
}

static enum status ucx_fails(struct ucx_link *u, ucs_status_t st, struct err *err) {
    if (u->failed == NULL)
        u->failed = u->w->lib->ucs_status_string(st);
    return ucx_failed(u, err);
}

/* ---- opening ----------------------------------------------------------------------------- */

/* The blob: how long the worker's address is, then the address. */
struct ucx_blob {
    uint16_t n_bytes;
    uint8_t address[LINK_BLOB_BYTES - 2];
};
static_assert(sizeof(struct ucx_blob) == LINK_BLOB_BYTES, "fits the offer");

static enum status fill_blob(struct ucx_link *u, uint8_t *blob, struct err *err) {
    const struct ucx_lib *lib = u->w->lib;
    struct ucx_blob b = {0};
    ucp_address_t *address;
    size_t n;
    ucs_status_t st = lib->ucp_worker_get_address(u->w->worker, &address, &n);
    if (st != UCS_OK)
        return err_set(err, ST_UNSUPPORTED, "UCX tells no address: %s",
                       lib->ucs_status_string(st));
    bool fits = n <= sizeof b.address;
    b.n_bytes = (uint16_t)n;
    memcpy(b.address, address, MIN(n, sizeof b.address));
    lib->ucp_worker_release_address(u->w->worker, address);
    if (!fits)
        return err_set(
            err, ST_UNSUPPORTED,
            "UCX's address takes %zu bytes, of %zu: fewer devices in UCX_NET_DEVICES "
            "make it shorter",
            n, sizeof b.address);
    memcpy(blob, &b, sizeof b);
    return ST_OK;
}

static enum status ucx_offer(struct link **out, struct link_env *env, uint8_t *blob,
                             struct err *err) {
    struct ucx_link *u = mem_calloc(1, sizeof *u);
    uint8_t *slots = mem_alloc((UCX_N_SLOTS + UCX_CREDITS) * UCX_STRIDE);
    if (u == NULL || slots == NULL) {
        mem_free(u);
        mem_free(slots);
        return err_set(err, ST_NO_MEMORY, "no memory for a link");
    }
    *u = (struct ucx_link){.base = {.ops = &link_ucx, .slot_bytes = LINK_SLOT_BYTES},
                           .messages = {.slots = slots, .stride = UCX_STRIDE, .n = UCX_N_SLOTS},
                           .rx = slots + UCX_N_SLOTS * UCX_STRIDE,
                           .rank = env->rank,
                           .peer = env->peer};
    u->returns = (struct ucx_sends){
        .slots = (uint8_t *)u->returned, .stride = sizeof *u->returned, .n = UCX_N_RETURNS};
    enum status st = worker_take(&u->w, env->cfg, err);
    if (st == ST_OK)
        st = fill_blob(u, blob, err);
    if (st != ST_OK) {
        link_close(&u->base);
        return st;
    }
    u->w->links[u->peer] = u;
    *out = &u->base;
    return ST_OK;
}

static void on_failure(void *link, ucp_ep_h ep, ucs_status_t status) {
    (void)ep;
    struct err unused;
    ucx_fails(link, status, &unused);
}

static enum status ucx_accept(struct link *l, struct link_env *env, const uint8_t *blob,
                              struct err *err) {
    struct ucx_link *u = ucx_of(l);
    struct ucx_blob b;
    memcpy(&b, blob, sizeof b);
    if (b.n_bytes > sizeof b.address)
        return err_set(err, ST_UNSUPPORTED, "its UCX address makes no sense");
    /* UCX's shared memory does not work with error handling. A user's own choice of transports
     * may fail: then errors must be reported as such, and not end this process. */
    bool same_host =
        memcmp(env->self->host_id, env->other->host_id, sizeof env->self->host_id) == 0;
    const ucp_ep_params_t how = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)b.address,
        .err_mode = same_host && getenv("UCX_TLS") == NULL ? UCP_ERR_HANDLING_MODE_NONE
                                                           : UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_failure, .arg = u},
    };
    ucs_status_t st = u->w->lib->ucp_ep_create(u->w->worker, &how, &u->ep);
    return st == UCS_OK ? ST_OK
                        : err_set(err, ST_UNSUPPORTED, "UCX does not reach it: %s",
                                  u->w->lib->ucs_status_string(st));
}

/* ---- messages ---------------------------------------------------------------------------- */

/* Sends that have ended free their slots. */
static enum status reap(struct ucx_link *u, struct ucx_sends *s, struct err *err) {
    const struct ucx_lib *lib = u->w->lib;
    for (; s->begin != s->end; s->begin++) {
        void **request = &s->request[s->begin % s->n];
        if (*request == NULL)
            continue;
        ucs_status_t st = lib->ucp_request_check_status(*request);
        if (st == UCS_INPROGRESS)
            break;
        lib->ucp_request_free(*request);
        *request = NULL;
        if (st != UCS_OK)
            return ucx_fails(u, st, err);
    }
    return ST_OK;
}

static enum status reap_sends(struct ucx_link *u, struct err *err) {
    TRY(reap(u, &u->messages, err));
    TRY(reap(u, &u->returns, err));
    u->base.tx_pending =
        u->messages.begin != u->messages.end || u->returns.begin != u->returns.end;
    return u->failed == NULL ? ST_OK : ucx_failed(u, err);
}

static enum status send_slot(struct ucx_link *u, struct ucx_sends *s, uint32_t n_bytes,
                             struct err *err) {
    static const ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                            .flags = UCP_AM_SEND_FLAG_EAGER};
    struct ucx_head *h = next_slot(s);
    *h = (struct ucx_head){.taken = u->received, .n_bytes = n_bytes, .rank = (uint32_t)u->rank};
    u->told = u->received;
    void *request =
        u->w->lib->ucp_am_send_nbx(u->ep, UCX_AM_ID, NULL, 0, h, sizeof *h + n_bytes, &how);
    if (UCS_PTR_IS_ERR(request))
        return ucx_fails(u, UCS_PTR_STATUS(request), err);
    s->request[s->end % s->n] = request;
    s->end++;
    TRY(reap_sends(u, err));
    if (s->begin == s->end) /* the first slot again: it is still in the first-level cache */
        s->begin = s->end = 0;
    return ST_OK;
}

/* Consumed counts go alone when nothing else takes them along. */
static enum status return_credit(struct ucx_link *u, struct err *err) {
    if (u->received - u->told < UCX_CREDITS / 2)
        return ST_OK;
    if (is_full(&u->returns))
        TRY(reap_sends(u, err));
    return is_full(&u->returns) ? ST_OK /* later */ : send_slot(u, &u->returns, 0, err);
}

static bool ucx_has_room(const struct ucx_link *u) {
    return u->sent - u->taken_by_peer < UCX_CREDITS && !is_full(&u->messages);
}

/* Credits come with what is received. A link that failed lets everybody through: send() tells
 * why. */
static struct wire_msg *ucx_slot(struct link *l) {
    struct ucx_link *u = ucx_of(l);
    struct err ignored;
    if (!ucx_has_room(u)) {
        u->w->lib->ucp_worker_progress(u->w->worker);
        if (reap_sends(u, &ignored) == ST_OK && !ucx_has_room(u))
            return NULL;
    }
    return (struct wire_msg *)(next_slot(&u->messages) + 1);
}

static enum status ucx_send(struct link *l, struct err *err) {
    struct ucx_link *u = ucx_of(l);
    const struct wire_msg *m = (const struct wire_msg *)(next_slot(&u->messages) + 1);
    if (u->failed != NULL)
        return ucx_failed(u, err);
    u->sent++;
    return send_slot(u, &u->messages, (uint32_t)sizeof *m + m->n_bytes, err);
}

static enum status ucx_progress(struct link *l, struct err *err) {
    struct ucx_link *u = ucx_of(l);
    u->w->lib->ucp_worker_progress(u->w->worker);
    return reap_sends(u, err);
}

/* What had come before the end still counts. */
static enum status ucx_recv(struct link *l, const struct wire_msg **out, struct err *err) {
    struct ucx_link *u = ucx_of(l);
    const struct ucx_box *box = &u->inbox[u->received % UCX_CREDITS];
    if (box->head == NULL)
        u->w->lib->ucp_worker_progress(u->w->worker);
    if (box->head != NULL) {
        *out = (const struct wire_msg *)(box->head + 1);
        return ST_OK;
    }
    TRY(return_credit(u, err));
    return u->failed == NULL ? ST_AGAIN : ucx_failed(u, err);
}

static void ucx_done(struct link *l) {
    struct ucx_link *u = ucx_of(l);
    struct err ignored; /* a link that failed says so at the next call */
    empty_box(u, &u->inbox[u->received % UCX_CREDITS]);
    u->received++;
    (void)return_credit(u, &ignored);
}

/* Armed, the event descriptor becomes readable; if something has come already, a sleep on the pipe
 * that always is readable ends at once. */
static struct pollfd ucx_poll_fd(struct link *l, bool for_slot) {
    (void)for_slot;
    struct ucx_worker *w = ucx_of(l)->w;
    bool armed = w->lib->ucp_worker_arm(w->worker) == UCS_OK;
    return (struct pollfd){.fd = armed ? w->event_fd : w->readable[0], .events = POLLIN};
}

/* ---- closing ----------------------------------------------------------------------------- */

/* Until the request has ended or the time is up. */
static void finish(struct ucx_worker *w, void *request, uint64_t deadline_ns) {
    while (w->lib->ucp_request_check_status(request) == UCS_INPROGRESS &&
           clock_ns() < deadline_ns)
        w->lib->ucp_worker_progress(w->worker);
    w->lib->ucp_request_free(request);
}

static void finish_sends(struct ucx_link *u, struct ucx_sends *s, uint64_t deadline_ns) {
    for (uint32_t i = 0; i < s->n; i++)
        if (s->request[i] != NULL)
            finish(u->w, s->request[i], deadline_ns);
}

static void ucx_close(struct link *l) {
    struct ucx_link *u = ucx_of(l);
    struct ucx_worker *w = u->w;
    uint64_t deadline = clock_ns() + UCX_CLOSE_MS * 1000000ull;
    const ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                     .flags = u->failed != NULL ? UCP_EP_CLOSE_FLAG_FORCE : 0};
    for (uint32_t i = 0; w != NULL && i < UCX_CREDITS; i++)
        empty_box(u, &u->inbox[i]);
    if (u->ep != NULL) {
        void *request = w->lib->ucp_ep_close_nbx(u->ep, &how);
        if (UCS_PTR_IS_PTR(request))
            finish(w, request, deadline);
    }
    if (w != NULL) {
        finish_sends(u, &u->messages, deadline);
        finish_sends(u, &u->returns, deadline);
        w->links[u->peer] = NULL;
        worker_give(w);
    }
    mem_free(u->messages.slots);
    mem_free(u);
}
#else
static enum status ucx_offer(struct link **out, struct link_env *env, uint8_t *blob,
                             struct err *err) {
    (void)out, (void)env, (void)blob;
    return err_set(err, ST_UNSUPPORTED, "built without <ucp/api/ucp.h>");
}
#define ucx_accept NULL
#define ucx_slot NULL
#define ucx_send NULL
#define ucx_progress NULL
#define ucx_recv NULL
#define ucx_done NULL
#define ucx_poll_fd NULL
#define ucx_close NULL
#endif

const struct link_ops link_ucx = {
    .name = "ucx",
    .n_ahead = LINK_AHEAD,
    .id = FABRIC_LINK_UCX,
    .private_slots = true,
    .offer = ucx_offer,
    .accept = ucx_accept,
    .slot = ucx_slot,
    .send = ucx_send,
    .recv = ucx_recv,
    .done = ucx_done,
    .progress = ucx_progress,
    .poll_fd = ucx_poll_fd,
    .close = ucx_close,
};
