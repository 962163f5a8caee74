/* cluster.c: GET /v1/cluster of one server: its machines, their ranks and links, and how much it
 * has to do. A node's gateway has the same path for the whole cluster (node/overview.h). */
#include "api/dialects.h"
#include "base/clock.h"
#include "base/util.h"
#include "cluster/machine_facts.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the deployment ---------------------------------------------------------------------- */

static const char *state_of(const struct engine_stats *e) {
    return e->recovering ? "recovering" : e->healthy ? "listening" : "failed";
}

static json_t *deployment(struct service *s, const struct engine_stats *e, const char *self) {
    const struct service_facts *f = service_facts(s);
    double now = clock_s();
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:s, s:i, s:i, s:i, s:s, s:s, s:{s:i, s:i}, s:f, s:f, "
        "s:{s:I, s:I}}",
        "name", f->name, "model", f->name, "state", state_of(e), "node", self, "since",
        (json_int_t)f->created, "sentence", e->why, "layers", f->n_layers, "context", f->n_ctx,
        "ranks", e->n_ranks, "left_out", e->left_out, "placement", f->placement, "requests",
        "running", e->running, "waiting", e->queued, "tokens_per_second",
        throughput_per_s(&e->generated, now), "prompt_per_second",
        throughput_per_s(&e->prompted, now), "cache", "pages", (json_int_t)e->pages_total,
        "used", (json_int_t)e->pages_used);
}

/* ---- the answer -------------------------------------------------------------------------- */

static void cluster(struct service *s, struct http_request *http) {
    struct engine_stats stats;
    char self[64] = "";
    struct timespec now;
    gethostname(self, sizeof self - 1);
    self[strcspn(self, ".")] = '\0';
    clock_gettime(CLOCK_REALTIME, &now);
    service_stats(s, &stats);
    json_t *node = machine_facts(service_facts(s)->path);
    json_object_set_new(node, "name", json_string(self));
    json_object_set_new(node, "state", json_string("here"));
    json_object_set_new(node, "version", json_string(LOCKSTEP_VERSION));
    json_object_set_new(node, "workers", json_array());
    http_set_header(http, "Cache-Control", "no-store");
    reply_json_exactly(http, 200,
                       json_pack("{s:s, s:s, s:f, s:{s:b, s:s}, s:[o], s:[], s:[o], s:[]}",
                                 "self", self, "version", LOCKSTEP_VERSION, "time",
                                 (double)now.tv_sec + (double)now.tv_nsec * 1e-9, "may",
                                 "manage", 0, "sentence",
                                 "this model was started by lockstep serve, not by lockstep up",
                                 "nodes", node, "links", "deployments",
                                 deployment(s, &stats, self), "events"));
}

const struct route cluster_routes[] = {{"GET", "/v1/cluster", cluster}, {NULL, NULL, NULL}};
