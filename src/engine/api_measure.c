/* api_measure.c: the speed part of lockstep.h: times, traces, and the rooflines of the machine.
 */
#include "base/machine.h"
#include "base/mem.h"
#include "base/util.h"
#include "device/device.h"
#include "engine/api_impl.h"
#include "engine/trace.h"
#include "roof/roof.h"

void lockstep_times(struct lockstep *ls, struct lockstep_times *out, bool reset) {
    struct model_times t = {0};
    if (ls->in.rank.model != NULL) /* or a recovery failed */
        t = model_times(ls->in.rank.model, reset);
    *out = (struct lockstep_times){
        .compute_s = (double)(t.step_ns - t.fabric_ns) * 1e-9,
        .fabric_s = (double)t.fabric_ns * 1e-9,
        .steps = t.steps,
        .exchanges = t.exchanges,
        .device_submissions = t.device_submissions,
        .device_recorded = t.device_recorded,
        .device_dispatches = t.device_dispatches,
        .device_bus_bytes = t.device_bus_bytes,
    };
}

enum lockstep_status lockstep_trace_begin(struct lockstep *ls, struct lockstep_error *err_) {
    struct err local, *err = api_err(err_, &local);
    enum status st = api_check_ask(ls, err);
    if (st == ST_OK)
        st = api_check_open(ls, err);
    if (st == ST_OK)
        st = instance_explain(&ls->in, rank_lead_trace_begin(&ls->in.rank, err), err);
    return api_done(st);
}

enum lockstep_status lockstep_trace_end(struct lockstep *ls, const char *path,
                                        struct lockstep_error *err_) {
    struct err local, *err = api_err(err_, &local);
    struct trace_event *events = NULL;
    size_t n[PLAN_MAX_RANKS];
    if (path == NULL)
        return api_done(err_set(err, ST_BAD_INPUT, "a trace needs a path to be written to"));
    enum status st = api_check_ask(ls, err);
    if (st != ST_OK)
        return api_done(st);
    st = rank_lead_trace_end(&ls->in.rank, &events, n, err);
    if (st == ST_OK)
        st = trace_write(path, events, n, ls->in.rank.job.n_ranks, err);
    mem_free(events);
    return api_done(instance_explain(&ls->in, st, err));
}

/* Larger than any cache, smaller than any model worth measuring. */
#define ROOF_BYTES ((size_t)1 << 30)
#define ROOF_ROUNDS 3

/* Of the only rank, which is on a device. */
static enum status device_part(struct device *d, bool f32, struct lockstep_roofs *out,
                               struct err *err) {
    struct device_roofs roofs;
    TRY(device_roofs(d, &roofs, err));
    *out = (struct lockstep_roofs){
        .read_gbs = roofs.read_gbs,
        .peak_gops = f32 ? roofs.f32_gops : roofs.int8_gops,
        .peak_kind = f32 ? "f32" : "int8",
    };
    return ST_OK;
}

enum lockstep_status lockstep_roofs(struct lockstep *ls, struct lockstep_roofs *out,
                                    struct lockstep_error *err_) {
    struct err local, *err = api_err(err_, &local);
    const struct rank *r = &ls->in.rank;
    struct pool *pool;
    /* Ranks in NUMA domains of their own have roofs of their own, which add up; this thread is
     * in the first's. */
    const size_t n_ranks = (size_t)r->job.n_ranks;
    const size_t n_domains = (size_t)MIN(MAX(r->job.n_local, 1), machine_n_domains());
    enum status st = api_check_open(ls, err);
    enum qtype type = QT_F32;
    (void)qtype_from_name(ls->in.info.type, &type);
    bool f32 = act_kind_for(type) == ACT_F32;
    if (st == ST_OK && n_ranks == 1 && r->device != NULL)
        return api_done(device_part(r->device, f32, out, err));
    if (st == ST_OK)
        st = pool_open(&pool, (int)div_up(n_ranks, n_domains) * r->job.n_threads, err);
    if (st != ST_OK)
        return api_done(st);
    /* The weights themselves are the best buffer: what decode reads. A share that is too small is
     * replaced by a block of its own. */
    const struct weights *w = model_weights(r->model);
    void *own = w->block_bytes >= ROOF_BYTES / 2 ? NULL : mem_huge_alloc(ROOF_BYTES);
    const void *buf = own != NULL ? own : w->block;
    size_t bytes = own != NULL ? ROOF_BYTES : w->block_bytes;
    if (own != NULL)
        memset(own, 1, ROOF_BYTES);
    *out = (struct lockstep_roofs){
        .read_gbs = (double)n_domains * roof_read_gbs(pool, buf, bytes, ROOF_ROUNDS),
        .peak_gops = (double)n_domains * (f32 ? roof_f32_gops(pool) : roof_int8_gops(pool)),
        .peak_kind = f32 ? "f32" : "int8",
    };
    if (own != NULL)
        mem_huge_free(own, ROOF_BYTES);
    pool_close(pool);
    return LOCKSTEP_OK;
}
