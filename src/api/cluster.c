/* cluster.c: GET /v1/cluster of one server: its machines, their ranks and links, and how much it
 * has to do. A node's gateway has the same path for the whole cluster (node/overview.h). */
#include "api/dialects.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"
#include "cluster/history.h"
#include "cluster/machine_facts.h"
#include "engine/view.h"
#include "link/links.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Ranks say how they are every second in which they compute. After this long they rest. */
#define RESTS_S 2.5

/* What there is to tell, on its way. */
struct telling {
    const struct service_facts *facts;
    struct engine_stats stats;
    struct engine_view *view; /* owned; without ranks while they are opened again */
    char self[64];
    double now_s;
};

static const char *host_of(const struct telling *t, int rank) {
    const char *host = t->view->ranks[rank].host;
    return *host != '\0' ? host : t->self;
}

/* ---- machines ---------------------------------------------------------------------------- */

static json_t *worker(const struct telling *t, int rank) {
    const struct engine_rank_view *r = &t->view->ranks[rank];
    json_t *one = json_pack(
        "{s:s, s:i, s:I, s:s, s:s, s:{s:I, s:I, s:I, s:I}, s:[i, i], s:[i, i], s:f, s:f}",
        "model", t->facts->name, "rank", rank, "pid", (json_int_t)r->pid, "device", r->device,
        "parts", t->view->parallel, "memory", "weights", (json_int_t)r->weight_bytes, "cache",
        (json_int_t)r->cache_bytes, "buffers", (json_int_t)r->buffer_bytes, "process",
        (json_int_t)r->resident_bytes, "layers", (int)r->layer_begin, (int)r->layer_end,
        "heads", (int)r->head_begin, (int)r->head_end, "busy_s", r->compute_s, "waits_s",
        r->fabric_s);
    if (r->expert_end > r->expert_begin)
        json_object_set_new(one, "experts",
                            json_pack("[i, i]", (int)r->expert_begin, (int)r->expert_end));
    return one;
}

static json_t *machine(const struct telling *t, const char *host) {
    bool here = str_eq(host, t->self);
    json_t *one = here ? machine_facts(t->facts->path) : json_object();
    json_object_set_new(one, "name", json_string(host));
    json_object_set_new(one, "state", json_string("here"));
    json_object_set_new(one, "version", json_string(LOCKSTEP_VERSION));
    json_object_set_new(one, "workers", json_array());
    return one;
}

static json_t *machines(const struct telling *t) {
    json_t *list = json_array(), *by_host = json_object();
    json_t *self = machine(t, t->self);
    json_array_append_new(list, self);
    json_object_set(by_host, t->self, self);
    for (int i = 0; i < t->view->n_ranks; i++) {
        const char *host = host_of(t, i);
        json_t *one = json_object_get(by_host, host);
        if (one == NULL) {
            one = machine(t, host);
            json_array_append_new(list, one);
            json_object_set(by_host, host, one);
        }
        json_array_append_new(json_object_get(one, "workers"), worker(t, i));
    }
    json_decref(by_host);
    return list;
}

/* ---- links ------------------------------------------------------------------------------- */

static json_t *measured(double v) {
    return v > 0 && isfinite(v) ? json_real(v) : json_null();
}

static json_t *links(const struct telling *t) {
    json_t *list = json_array();
    bool rest = t->now_s - t->view->told_s > RESTS_S;
    for (int i = 0; i < t->view->n_pairs; i++) {
        const struct engine_pair_view *p = &t->view->pairs[i];
        json_array_append_new(
            list, json_pack("{s:s, s:[i, i], s:s, s:s, s:s, s:s, s:o, s:o, s:I, s:f}", "model",
                            t->facts->name, "ranks", p->a, p->b, "a", host_of(t, p->a), "b",
                            host_of(t, p->b), "kind",
                            p->link != FABRIC_LINK_AUTO ? link_name(p->link) : "", "device",
                            p->device, "latency_us", measured(p->latency_s * 1e6), "bandwidth",
                            measured(p->bandwidth), "bytes", (json_int_t)p->bytes, "rate",
                            rest ? 0.0 : p->rate));
    }
    return list;
}

/* ---- the deployment ---------------------------------------------------------------------- */

/* Of a layout's ranks. */
static json_t *hosts_of(const struct telling *t, uint64_t ranks) {
    json_t *list = json_array(), *seen = json_object();
    for (int i = 0; i < PLAN_MAX_RANKS; i++) {
        const char *host = t->view->layout_hosts[i];
        host = *host != '\0' ? host : t->self;
        if ((ranks >> i & 1) == 0 || json_object_get(seen, host) != NULL)
            continue;
        json_object_set_new(seen, host, json_true());
        json_array_append_new(list, json_string(host));
    }
    json_decref(seen);
    return list;
}

static json_t *layout_json(const struct calibration_layout *c) {
    struct plan shape = {.n_ranks = c->tp * c->pp, .tp = c->tp, .pp = c->pp};
    char layout[64];
    plan_text(&shape, layout, sizeof layout);
    return json_pack("{s:s, s:s, s:b, s:s, s:o, s:o, s:o, s:o}", "layout", layout, "from",
                     "ranks", "fits", c->fits, "sentence", c->why_not, "tokens_per_second",
                     measured(c->tokens_per_s), "prompt_per_second",
                     measured(c->prompt_s > 0 ? 1 / c->prompt_s : 0), "reading_ms",
                     measured(c->reading_s * 1e3), "wires_ms", measured(c->between_s * 1e3));
}

static json_t *candidates(const struct telling *t) {
    json_t *list = json_array();
    for (int i = 0; i < t->view->n_layouts; i++) {
        const struct calibration_layout *c = &t->view->layouts[i];
        json_t *one = layout_json(c);
        json_object_set_new(one, "chosen",
                            json_boolean(c->ranks == t->view->kept && c->tp == t->view->tp &&
                                         c->pp == t->view->pp));
        json_object_set_new(one, "nodes", hosts_of(t, c->ranks));
        json_array_append_new(list, one);
    }
    return list;
}

static const char *state_of(const struct engine_stats *e) {
    return e->recovering ? "recovering" : e->healthy ? "listening" : "failed";
}

static json_t *deployment(const struct telling *t) {
    const struct service_facts *f = t->facts;
    const struct engine_stats *e = &t->stats;
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:s, s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:o, s:{s:i, s:i}, s:f, "
        "s:f, s:{s:I, s:I}}",
        "name", f->name, "model", f->name, "state", state_of(e), "node", t->self, "since",
        (json_int_t)f->created, "sentence", e->healthy && !e->recovering ? "" : e->why,
        "layers", f->n_layers, "heads", (int)t->view->n_heads, "context", f->n_ctx, "ranks",
        e->n_ranks, "parallel", t->view->parallel, "left_out", e->left_out, "placement",
        t->view->placement, "candidates", candidates(t), "requests", "running", e->running,
        "waiting", e->queued, "tokens_per_second", throughput_per_s(&e->generated, t->now_s),
        "prompt_per_second", throughput_per_s(&e->prompted, t->now_s), "cache", "pages",
        (json_int_t)e->pages_total, "used", (json_int_t)e->pages_used);
}

/* ---- the answer -------------------------------------------------------------------------- */

static json_t *tell(const struct telling *t) {
    return json_pack("{s:s, s:s, s:f, s:{s:b, s:s}, s:o, s:o, s:[o], s:[]}", "self", t->self,
                     "version", LOCKSTEP_VERSION, "time", history_now(), "may", "manage", 0,
                     "sentence",
                     "lockstep serve serves this model: lockstep up has models moved", "nodes",
                     machines(t), "links", links(t), "deployments", deployment(t), "events");
}

static void cluster(struct service *s, struct http_request *http) {
    struct err ignored;
    struct telling t = {.facts = service_facts(s), .now_s = clock_s()};
    gethostname(t.self, sizeof t.self - 1);
    t.self[strcspn(t.self, ".")] = '\0';
    t.view = mem_calloc(1, sizeof *t.view);
    if (t.view == NULL) {
        reply_json(http, 503, openai_error(503, ERR_NONE, "no memory for an answer", ""));
        return;
    }
    service_stats(s, &t.stats);
    if (service_view(s, t.view, &ignored) != ST_OK)
        t.view->n_ranks = 0;
    http_set_header(http, "Cache-Control", "no-store");
    reply_json_exactly(http, 200, tell(&t));
    mem_free(t.view);
}

const struct route cluster_routes[] = {{"GET", "/v1/cluster", cluster}, {NULL, NULL, NULL}};
