/* raw_ucx.c: The bare loop over UCX that fabric bench compares the ucx link with. */
#include "link/raw_ucx.h"

#include "base/util.h"

#if defined(LOCKSTEP_HAS_UCX)
#include "link/ucx_lib.h"

#include <stdatomic.h>
#include <sys/mman.h>

#define ADDRESS_BYTES 4096

/* In memory that the two processes share, but for what each has of its own. */
struct raw_ucx {
    struct {
        _Atomic size_t n_bytes; /* 0: not there yet (release/acquire) */
        uint8_t address[ADDRESS_BYTES];
    } doors[2];
};

/* This process's; a process measures one link at a time. */
static struct {
    const struct ucx_lib *lib;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
} own;

enum status raw_ucx_open(struct raw_ucx **out, struct err *err) {
    void *p =
        mmap(NULL, sizeof **out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_set(err, ST_NO_MEMORY, "no memory for the raw loop");
    *out = p;
    return ST_OK;
}

void raw_ucx_close(struct raw_ucx *r) {
    if (r != NULL)
        munmap(r, sizeof *r);
}

/* The link has opened before, so UCX works here: that it now fails would be a bug. */
static void start(struct raw_ucx *r, int side) {
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_TAG};
    const ucp_worker_params_t worker = {0};
    ucp_config_t *config;
    ucp_address_t *address;
    size_t n;
    BUG_ON(ucx_lib_get(&own.lib, NULL) != ST_OK);
    BUG_ON(own.lib->ucp_config_read(NULL, NULL, &config) != UCS_OK);
    BUG_ON(own.lib->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config,
                                     &own.context) != UCS_OK);
    own.lib->ucp_config_release(config);
    BUG_ON(own.lib->ucp_worker_create(own.context, &worker, &own.worker) != UCS_OK);
    BUG_ON(own.lib->ucp_worker_get_address(own.worker, &address, &n) != UCS_OK ||
           n > ADDRESS_BYTES);
    memcpy(r->doors[side].address, address, n);
    own.lib->ucp_worker_release_address(own.worker, address);
    atomic_store_explicit(&r->doors[side].n_bytes, n, memory_order_release);
    while (atomic_load_explicit(&r->doors[!side].n_bytes, memory_order_acquire) == 0)
        own.lib->ucp_worker_progress(own.worker);
    const ucp_ep_params_t ep = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                .address = (const ucp_address_t *)r->doors[!side].address};
    BUG_ON(own.lib->ucp_ep_create(own.worker, &ep, &own.ep) != UCS_OK);
}

static void finish(void *request) {
    BUG_ON(UCS_PTR_IS_ERR(request));
    if (request == NULL)
        return;
    while (own.lib->ucp_request_check_status(request) == UCS_INPROGRESS)
        own.lib->ucp_worker_progress(own.worker);
    own.lib->ucp_request_free(request);
}

void raw_ucx_send(struct raw_ucx *r, int side, const void *buf, size_t n) {
    static const ucp_request_param_t how = {0};
    if (own.ep == NULL)
        start(r, side);
    finish(own.lib->ucp_tag_send_nbx(own.ep, buf, n, 1, &how));
}

void raw_ucx_recv(struct raw_ucx *r, int side, void *buf, size_t n) {
    static const ucp_request_param_t how = {0};
    if (own.ep == NULL)
        start(r, side);
    finish(own.lib->ucp_tag_recv_nbx(own.worker, buf, n, 1, ~(ucp_tag_t)0, &how));
}
#else
enum status raw_ucx_open(struct raw_ucx **out, struct err *err) {
    (void)out;
    return err_set(err, ST_UNSUPPORTED, "built without <ucp/api/ucp.h>");
}
void raw_ucx_close(struct raw_ucx *r) {
    (void)r;
}
void raw_ucx_send(struct raw_ucx *r, int side, const void *buf, size_t n) {
    (void)r, (void)side, (void)buf, (void)n;
}
void raw_ucx_recv(struct raw_ucx *r, int side, void *buf, size_t n) {
    (void)r, (void)side, (void)buf, (void)n;
}
#endif
