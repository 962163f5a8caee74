/* engine_view.c: keeps what the ranks say of themselves, for other threads. */
#include "engine/engine_internal.h"

#include "base/clock.h"
#include "base/util.h"
#include "fabric/launch_env.h"

#include <stdio.h>
#include <string.h>

static void describe_rank(struct engine_rank_view *out, const struct rank *r, int i,
                          const struct rank_report *report) {
    const struct share *share = &r->plan.shares[i];
    bool experts = r->hp.moe.n_experts != 0;
    *out = (struct engine_rank_view){
        .pid = report->pid,
        .layer_begin = share->layer_begin,
        .layer_end = share->layer_end,
        .head_begin = share->heads[0].begin,
        .head_end = share->heads[0].end,
        .expert_begin = experts ? share->expert_begin : 0,
        .expert_end = experts ? share->expert_end : 0,
        .weight_bytes = report->weight_bytes,
        .cache_bytes = report->kv_bytes + report->state_bytes,
        .buffer_bytes = report->buffer_bytes,
    };
    snprintf(out->device, sizeof out->device, "%s", report->device);
}

/* Ranks of a machine that is not named are here. out: a text of `size` bytes every `stride`. */
static void name_hosts(char *first, size_t stride, size_t size, int n_ranks, const char *text) {
    struct launch_hosts hosts;
    struct err ignored;
    if (text == NULL || launch_hosts(&hosts, text, &ignored) != ST_OK)
        return;
    for (int i = 1; i < MIN(n_ranks, hosts.n); i++) {
        char *out = first + (size_t)i * stride;
        const char *name = hosts.names[i];
        bool v6 = strchr(name, ':') != NULL && hosts.ports[i] != 0;
        if (str_eq(name, hosts.names[0]))
            continue;
        int n = snprintf(out, size, v6 ? "[%.100s]" : "%.100s", name);
        if (hosts.ports[i] != 0)
            snprintf(out + n, size - (size_t)n, ":%d", hosts.ports[i]);
    }
}

/* What the ranks have measured, or those before them of which some were left out. */
static void describe_layouts(struct engine_view *v, const struct instance *in,
                             const char *hosts) {
    const struct considered *before = in->considered;
    const struct calibration_figures *f = in->rank.figures;
    if ((f == NULL || f->n_layouts == 0) && before != NULL) {
        f = &before->figures;
        hosts = before->hosts;
        snprintf(v->placement, sizeof v->placement, "%s", before->why);
    }
    v->n_layouts = f != NULL ? f->n_layouts : 0;
    v->kept = f != NULL ? f->kept : 0;
    for (int i = 0; i < v->n_layouts; i++)
        v->layouts[i] = f->layouts[i];
    memset(v->layout_hosts, 0, sizeof v->layout_hosts);
    if (f != NULL)
        name_hosts(v->layout_hosts[0], sizeof v->layout_hosts[0], sizeof v->layout_hosts[0],
                   f->n_ranks, hosts);
}

static void describe_pairs(struct engine_view *v, const struct rank *r,
                           const struct rank_report *reports) {
    const struct calibration_figures *f = r->figures;
    v->n_pairs = 0;
    for (int a = 0; a < v->n_ranks; a++)
        for (int b = a + 1; b < v->n_ranks; b++) {
            struct engine_pair_view *p = &v->pairs[v->n_pairs++];
            *p = (struct engine_pair_view){.a = a, .b = b, .link = reports[a].links[b]};
            if (f != NULL && f->n_ranks == v->n_ranks) {
                p->latency_s = f->pairs.of[a][b].latency_s;
                p->bandwidth = f->pairs.of[a][b].bandwidth;
            }
            if (a == 0 && r->f != NULL)
                snprintf(p->device, sizeof p->device, "%.31s", fabric_link_device(r->f, b));
        }
}

static void note_work(struct engine_view *v, const struct rank_report *reports) {
    double now = clock_s(), passed_s = now - v->told_s;
    for (int i = 0; i < v->n_ranks; i++) {
        struct engine_rank_view *r = &v->ranks[i];
        r->resident_bytes = reports[i].resident_bytes;
        r->fabric_s = (double)reports[i].fabric_ns * 1e-9;
        r->compute_s = (double)(reports[i].step_ns - reports[i].fabric_ns) * 1e-9;
    }
    for (int i = 0; i < v->n_pairs; i++) {
        struct engine_pair_view *p = &v->pairs[i];
        uint64_t bytes = reports[p->a].sent_bytes[p->b] + reports[p->b].sent_bytes[p->a];
        p->rate = v->told_s > 0 && passed_s > 0 ? (double)(bytes - p->bytes) / passed_s : 0;
        p->bytes = bytes;
    }
    v->told_s = now;
}

void view_begin(struct engine *e, const struct rank_report *reports) {
    struct engine_view *v = e->view;
    const struct rank *r = &e->in.rank;
    v->n_ranks = r->job.n_ranks;
    v->n_layers = r->hp.n_layers;
    v->n_heads = r->hp.attn[0].n_heads;
    v->tp = r->plan.tp;
    v->pp = r->plan.pp;
    v->told_s = 0;
    plan_text(&r->plan, v->parallel, sizeof v->parallel);
    memcpy(v->placement, r->placement, sizeof v->placement);
    describe_layouts(v, &e->in, e->left.opt.hosts);
    for (int i = 0; i < v->n_ranks; i++)
        describe_rank(&v->ranks[i], r, i, &reports[i]);
    name_hosts(v->ranks[0].host, sizeof v->ranks[0], sizeof v->ranks[0].host, v->n_ranks,
               e->left.opt.hosts);
    describe_pairs(v, r, reports);
    note_work(v, reports);
}

void view_go_on(struct engine *e, const struct rank_report *reports) {
    if (e->view->n_ranks == e->in.rank.job.n_ranks)
        note_work(e->view, reports);
}

void engine_view(struct engine *e, struct engine_view *out) {
    pthread_mutex_lock(&e->lock);
    *out = *e->view;
    pthread_mutex_unlock(&e->lock);
}
