/* cluster_view.c: What lockstep top shows: nodes with their memory, models with their speed,
 * copies, links and events, as lines. */
#include "view/cluster_view.h"

#include "base/json.h"
#include "base/util.h"
#include "cli/cli.h"

#include <stdio.h>
#include <time.h>

#define NAME_COLUMNS 14
#define BAR 20
#define EVENT_COLUMN 20 /* where an event's sentence begins */

/* ---- values ------------------------------------------------------------------------------ */

double view_number(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : -1;
}

const char *view_age(double s, char out[16]) {
    if (!(s >= 0) || s > 1e11)
        snprintf(out, 16, "-");
    else if (s < 100)
        snprintf(out, 16, "%.0f s", s);
    else if (s < 6000)
        snprintf(out, 16, "%.0f min", s / 60);
    else if (s < 48 * 3600)
        snprintf(out, 16, "%.0f h", s / 3600);
    else
        snprintf(out, 16, "%.0f d", s / 86400);
    return out;
}

const char *view_bytes(double bytes, char out[32]) {
    if (bytes >= 0 && bytes < 1e19)
        return cli_bytes((uint64_t)bytes, out);
    snprintf(out, 32, "-");
    return out;
}

static void put_number(struct canvas *c, enum style s, int width, const char *fmt, double v) {
    char text[32] = "-";
    if (v >= 0)
        snprintf(text, sizeof text, fmt, v);
    canvas_cell(c, s, width, text);
}

static bool is_state(const json_t *o, const char *state) {
    return str_eq(json_text(o, "state"), state);
}

#define EACH(list, o, key) json_array_foreach(json_object_get((o), (key)), i_##list, list)

double view_deployment_bytes(const json_t *cluster, const char *name) {
    static const char *const parts[] = {"weights", "cache", "buffers"};
    size_t i_node, i_worker;
    json_t *node, *worker;
    double all = -1;
    EACH(node, cluster, "nodes") {
        EACH(worker, node, "workers") {
            if (!str_eq(json_text(worker, "model"), name))
                continue;
            for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
                double v = view_number(json_object_get(worker, "memory"), parts[k]);
                if (v >= 0)
                    all = MAX(all, 0) + v;
            }
        }
    }
    return all;
}

static bool computes(const json_t *node, const char *model) {
    size_t i_worker;
    json_t *worker;
    EACH(worker, node, "workers") {
        if (str_eq(json_text(worker, "model"), model))
            return true;
    }
    return false;
}

void view_deployment_nodes(const json_t *cluster, const json_t *deployment, char *out,
                           size_t size) {
    const char *serving = json_text(deployment, "node");
    size_t i_node;
    json_t *node;
    int n = snprintf(out, size, "%s", serving);
    EACH(node, cluster, "nodes") {
        const char *name = json_text(node, "name");
        if (n < (int)size && !str_eq(name, serving) &&
            computes(node, json_text(deployment, "name")))
            n += snprintf(out + n, size - (size_t)n, "%s%s", n > 0 ? ", " : "", name);
    }
    if (n == 0)
        snprintf(out, size, "-");
}

/* ---- nodes ------------------------------------------------------------------------------- */

/* What the memory of a node is used for. */
enum use { USE_WEIGHTS, USE_CACHE, USE_BUFFERS, USE_OTHER, USE_FREE, N_USES };
static const char use_mark[N_USES] = {'#', '=', '+', ':', '.'};
static const enum style use_style[N_USES] = {STYLE_NAME, STYLE_GOOD, STYLE_WARN, STYLE_NONE,
                                             STYLE_DIM};

static void add_memory(const json_t *worker, double uses[N_USES]) {
    static const char *const names[] = {"weights", "cache", "buffers"};
    const json_t *memory = json_object_get(worker, "memory");
    for (size_t k = 0; k < ARRAY_LEN(names); k++)
        uses[k] += MAX(view_number(memory, names[k]), 0);
}

/* False: its memory is not known. */
static bool node_memory(const json_t *node, double uses[N_USES]) {
    double all = view_number(node, "memory"), free_bytes = view_number(node, "memory_free");
    size_t i_worker;
    json_t *worker;
    for (size_t k = 0; k < N_USES; k++)
        uses[k] = 0;
    if (all <= 0 || free_bytes < 0)
        return false;
    EACH(worker, node, "workers") {
        if (*json_text(worker, "device") == '\0') /* others have memory of their own */
            add_memory(worker, uses);
    }
    uses[USE_FREE] = MIN(free_bytes, all);
    uses[USE_OTHER] =
        MAX(all - uses[USE_FREE] - uses[USE_WEIGHTS] - uses[USE_CACHE] - uses[USE_BUFFERS], 0);
    return true;
}

/* Each use has its share of the bar; what is used is never shown as less than nothing. */
static void put_bar(struct canvas *c, const double uses[N_USES], double all) {
    double sum = 0;
    int at = 0;
    canvas_put(c, STYLE_DIM, "[");
    for (int k = 0; k < N_USES; k++) {
        char marks[BAR + 1];
        sum += uses[k];
        int end = k == USE_FREE ? BAR : (int)(sum / all * BAR + 0.5);
        end = MAX(at, MIN(end, BAR));
        memset(marks, use_mark[k], sizeof marks);
        canvas_put(c, use_style[k], "%.*s", end - at, marks);
        at = end;
    }
    canvas_put(c, STYLE_DIM, "] ");
}

static void show_node_state(struct canvas *c, const json_t *node) {
    char age[16], text[32];
    bool here = is_state(node, "here");
    snprintf(text, sizeof text, "%s%s%s", json_text(node, "state"), here ? "" : " ",
             here ? "" : view_age(view_number(node, "age_s"), age));
    canvas_cell(c, here ? STYLE_GOOD : is_state(node, "lost") ? STYLE_BAD : STYLE_DIM, 9, text);
}

static void show_node(struct canvas *c, const json_t *node) {
    double uses[N_USES];
    char a[32], b[32];
    canvas_cell(c, STYLE_BOLD, NAME_COLUMNS, json_text(node, "name"));
    show_node_state(c, node);
    put_number(c, STYLE_NONE, -5, "%.0f", view_number(node, "cores"));
    put_number(c, STYLE_NONE, -5, "%.1f", view_number(node, "load"));
    canvas_put(c, STYLE_NONE, " ");
    if (is_state(node, "here") && node_memory(node, uses)) {
        double all = view_number(node, "memory");
        put_bar(c, uses, all);
        canvas_put(c, STYLE_NONE, "%s of %s", view_bytes(all - uses[USE_FREE], a),
                   view_bytes(all, b));
    }
    canvas_end_line(c);
}

static void show_nodes_head(struct canvas *c) {
    canvas_cell(c, STYLE_DIM, NAME_COLUMNS, "NODE");
    canvas_cell(c, STYLE_DIM, 9, "STATE");
    canvas_cell(c, STYLE_DIM, -5, "CORES");
    canvas_cell(c, STYLE_DIM, -5, "LOAD");
    canvas_put(c, STYLE_DIM, " MEM ");
    static const char *const names[N_USES] = {"weights", "cache", "buffers", "other", "free"};
    for (int k = 0; k < N_USES; k++) {
        canvas_put(c, use_style[k], "%c", use_mark[k]);
        canvas_put(c, STYLE_DIM, "%s ", names[k]);
    }
    canvas_end_line(c);
}

static void show_nodes(struct canvas *c, const json_t *cluster) {
    size_t i_node;
    json_t *node;
    show_nodes_head(c);
    EACH(node, cluster, "nodes") {
        show_node(c, node);
    }
}

static void put_span(struct canvas *c, const json_t *span, const char *what) {
    if (json_array_size(span) == 2)
        canvas_put(c, STYLE_NONE, " %s %lld-%lld", what,
                   (long long)json_integer_value(json_array_get(span, 0)),
                   (long long)json_integer_value(json_array_get(span, 1)) - 1);
}

static void show_worker(struct canvas *c, const json_t *w) {
    const char *device = json_text(w, "device");
    const json_t *memory = json_object_get(w, "memory");
    char a[32], b[32], d[32];
    canvas_put(c, STYLE_NAME, "  %s", json_text(w, "model"));
    canvas_put(c, STYLE_NONE, " rank %.0f on %s:", MAX(view_number(w, "rank"), 0),
               *device != '\0' ? device : "the processor");
    canvas_put(c, STYLE_NONE, " weights %s, cache %s, buffers %s;",
               view_bytes(view_number(memory, "weights"), a),
               view_bytes(view_number(memory, "cache"), b),
               view_bytes(view_number(memory, "buffers"), d));
    put_span(c, json_object_get(w, "layers"), "layers");
    put_span(c, json_object_get(w, "heads"), "heads");
    put_span(c, json_object_get(w, "experts"), "experts");
    double busy = view_number(w, "busy_s"), waits = view_number(w, "waits_s");
    if (busy >= 0 && waits >= 0 && busy + waits > 0)
        canvas_put(c, STYLE_NONE, "; %.0f %% in the wires", 100 * waits / (busy + waits));
    canvas_end_line(c);
}

static void show_node_details(struct canvas *c, const json_t *node) {
    size_t i_worker, i_device;
    json_t *worker, *device;
    char a[32];
    canvas_put(c, STYLE_DIM, "  %s  %s  disk %s free  lockstep %s", json_text(node, "address"),
               json_text(node, "processor"), view_bytes(view_number(node, "disk_free"), a),
               json_text(node, "version"));
    canvas_end_line(c);
    EACH(device, node, "devices") {
        const char *error = json_text(device, "error");
        canvas_put(c, STYLE_NONE, "  %s, %s, %s%s%s", json_text(device, "name"),
                   json_text(device, "kind"),
                   view_bytes(view_number(device, "memory_bytes"), a),
                   *error != '\0' ? "; not usable: " : "", error);
        canvas_end_line(c);
    }
    EACH(worker, node, "workers") {
        show_worker(c, worker);
    }
}

static void show_link(struct canvas *c, const json_t *l) {
    char a[32], b[32];
    canvas_put(c, STYLE_NAME, "%s", json_text(l, "model"));
    canvas_put(c, STYLE_NONE, ": %s - %s  %s %s", json_text(l, "a"), json_text(l, "b"),
               json_text(l, "kind"), json_text(l, "device"));
    if (view_number(l, "latency_us") >= 0)
        canvas_put(c, STYLE_NONE, "  %.0f us", view_number(l, "latency_us"));
    if (view_number(l, "bandwidth") >= 0)
        canvas_put(c, STYLE_NONE, "  %s/s at most", view_bytes(view_number(l, "bandwidth"), a));
    canvas_put(c, STYLE_NONE, "  %s/s now, %s so far", view_bytes(view_number(l, "rate"), a),
               view_bytes(view_number(l, "bytes"), b));
    canvas_end_line(c);
}

static void show_all_of_nodes(struct canvas *c, const json_t *cluster) {
    size_t i_node, i_link;
    json_t *node, *link;
    show_nodes_head(c);
    EACH(node, cluster, "nodes") {
        show_node(c, node);
        show_node_details(c, node);
    }
    if (json_array_size(json_object_get(cluster, "links")) == 0)
        return;
    canvas_end_line(c);
    canvas_put(c, STYLE_DIM, "LINKS");
    canvas_end_line(c);
    EACH(link, cluster, "links") {
        show_link(c, link);
    }
}

/* ---- models ------------------------------------------------------------------------------ */

static enum style state_style(const json_t *d) {
    return is_state(d, "listening") ? STYLE_GOOD
           : is_state(d, "failed")  ? STYLE_BAD
           : is_state(d, "asleep")  ? STYLE_DIM
                                    : STYLE_WARN;
}

static void show_model(struct canvas *c, const json_t *cluster, const json_t *d) {
    const json_t *requests = json_object_get(d, "requests"), *cache;
    double pages = view_number(cache = json_object_get(d, "cache"), "pages");
    double used = view_number(cache, "used");
    char nodes[256], text[32] = "-";
    view_deployment_nodes(cluster, d, nodes, sizeof nodes);
    canvas_cell(c, STYLE_BOLD, NAME_COLUMNS, json_text(d, "name"));
    canvas_cell(c, state_style(d), 10, json_text(d, "state"));
    put_number(c, STYLE_BOLD, -7, "%.1f", view_number(d, "tokens_per_second"));
    put_number(c, STYLE_NONE, -7, "%.0f", view_number(d, "prompt_per_second"));
    put_number(c, STYLE_NONE, -4, "%.0f", view_number(requests, "running"));
    put_number(c, view_number(requests, "waiting") > 0 ? STYLE_WARN : STYLE_NONE, -4, "%.0f",
               view_number(requests, "waiting"));
    if (pages > 0 && used >= 0)
        snprintf(text, sizeof text, "%.0f %%", 100 * used / pages);
    canvas_cell(c, STYLE_NONE, -5, text);
    canvas_put(c, STYLE_NONE, " %s", nodes);
    canvas_end_line(c);
}

static void show_models_head(struct canvas *c) {
    canvas_cell(c, STYLE_DIM, NAME_COLUMNS, "MODEL");
    canvas_cell(c, STYLE_DIM, 10, "STATE");
    canvas_cell(c, STYLE_DIM, -7, "TOK/S");
    canvas_cell(c, STYLE_DIM, -7, "PROMPT");
    canvas_cell(c, STYLE_DIM, -4, "RUN");
    canvas_cell(c, STYLE_DIM, -4, "WAIT");
    canvas_cell(c, STYLE_DIM, -5, "CACHE");
    canvas_put(c, STYLE_DIM, " ON");
    canvas_end_line(c);
}

static void show_models(struct canvas *c, const json_t *cluster) {
    size_t i_one;
    json_t *one;
    show_models_head(c);
    EACH(one, cluster, "deployments") {
        show_model(c, cluster, one);
        if (*json_text(one, "sentence") != '\0') {
            canvas_put(c, state_style(one), "  %s", json_text(one, "sentence"));
            canvas_end_line(c);
        }
    }
    if (json_array_size(json_object_get(cluster, "deployments")) == 0) {
        canvas_put(c, STYLE_DIM, "no model is up (lockstep up MODEL)");
        canvas_end_line(c);
    }
}

/* "qwen to shelf: 32 %, 1.2 GB of 4.1 GB, 110 MB/s, 27 s left" */
static void show_transfer(struct canvas *c, const char *what, const char *to, const json_t *o) {
    double bytes = view_number(o, "bytes"), total = view_number(o, "total");
    char a[32], b[32], age[16];
    canvas_put(c, STYLE_NAME, "%s", what);
    canvas_put(c, STYLE_NONE, " to %s: ", to);
    if (bytes >= 0 && total > 0)
        canvas_put(c, STYLE_BOLD, "%.0f %%", 100 * bytes / total);
    canvas_put(c, STYLE_NONE, "  %s of %s", view_bytes(bytes, a), view_bytes(total, b));
    if (view_number(o, "rate") >= 0)
        canvas_put(c, STYLE_NONE, "  %s/s", view_bytes(view_number(o, "rate"), a));
    if (view_number(o, "left_s") >= 0)
        canvas_put(c, STYLE_NONE, "  %s left", view_age(view_number(o, "left_s"), age));
    canvas_end_line(c);
}

static size_t count_transfers(const json_t *cluster) {
    size_t n = 0, i_one;
    json_t *one;
    EACH(one, cluster, "deployments") {
        n += json_array_size(json_object_get(one, "copies"));
    }
    EACH(one, cluster, "nodes") {
        n += json_array_size(json_object_get(one, "downloads"));
    }
    return n;
}

static void show_transfers(struct canvas *c, const json_t *cluster) {
    size_t i_one, i_copy;
    json_t *one, *copy;
    if (count_transfers(cluster) == 0)
        return;
    canvas_end_line(c);
    canvas_put(c, STYLE_DIM, "COPIES");
    canvas_end_line(c);
    EACH(one, cluster, "deployments") {
        EACH(copy, one, "copies") {
            show_transfer(c, json_text(one, "name"), json_text(copy, "to"), copy);
        }
    }
    EACH(one, cluster, "nodes") {
        EACH(copy, one, "downloads") {
            show_transfer(c, json_text(copy, "model"), json_text(one, "name"), copy);
        }
    }
}

static void show_standby(struct canvas *c, const json_t *d) {
    size_t i_one;
    json_t *one;
    EACH(one, d, "standby") {
        bool ready = *json_text(one, "reason") == '\0';
        canvas_put(c, ready ? STYLE_NONE : STYLE_WARN, "  %s %s%s", json_text(one, "node"),
                   ready ? "could take over" : "could not take over: ",
                   ready ? "" : json_text(one, "sentence"));
        canvas_end_line(c);
    }
    EACH(one, d, "silent") {
        canvas_put(c, STYLE_WARN, "  not at %s: %s", json_text(one, "node"),
                   json_text(one, "sentence"));
        canvas_end_line(c);
    }
}

static void show_candidates(struct canvas *c, const json_t *d) {
    size_t i_one;
    json_t *one;
    EACH(one, d, "candidates") {
        canvas_put(c, STYLE_NONE, "  %c ",
                   json_is_true(json_object_get(one, "chosen")) ? '*' : ' ');
        canvas_cell(c, STYLE_NONE, 20, json_text(one, "layout"));
        put_number(c, STYLE_NONE, -8, "%.1f", view_number(one, "tokens_per_second"));
        canvas_put(c, STYLE_NONE, "tokens/s predicted  %s", json_text(one, "sentence"));
        canvas_end_line(c);
    }
}

static void show_all_of_models(struct canvas *c, const json_t *cluster) {
    double now = view_number(cluster, "time");
    size_t i_one;
    json_t *one;
    char age[16], bytes[32];
    EACH(one, cluster, "deployments") {
        double since = view_number(one, "since"), unloads = view_number(one, "unloads");
        show_models_head(c);
        show_model(c, cluster, one);
        canvas_put(c, STYLE_DIM, "  %s, %s, port %.0f, up for %s", json_text(one, "model"),
                   view_bytes(view_deployment_bytes(cluster, json_text(one, "name")), bytes),
                   MAX(view_number(one, "port"), 0),
                   view_age(since > 0 && now >= since ? now - since : -1, age));
        if (unloads > 0)
            canvas_put(c, STYLE_DIM, ", unloaded in %s without a question",
                       view_age(MAX(unloads - now, 0), age));
        canvas_end_line(c);
        if (*json_text(one, "sentence") != '\0') {
            canvas_put(c, state_style(one), "  %s", json_text(one, "sentence"));
            canvas_end_line(c);
        }
        show_candidates(c, one);
        show_standby(c, one);
        canvas_end_line(c);
    }
    show_transfers(c, cluster);
}

/* ---- events ------------------------------------------------------------------------------ */

static enum style event_style(const char *kind) {
    return str_eq(kind, "lost") || str_eq(kind, "failed") ? STYLE_BAD
           : str_eq(kind, "left") || str_eq(kind, "down") ? STYLE_WARN
                                                          : STYLE_GOOD;
}

static void show_event(struct canvas *c, const json_t *e, bool whole) {
    char clock[16] = "-";
    double time = view_number(e, "time");
    time_t seconds = (time_t)time;
    struct tm tm;
    if (time >= 0 && time < 1e11 && localtime_r(&seconds, &tm) != NULL)
        strftime(clock, sizeof clock, "%H:%M:%S", &tm);
    canvas_cell(c, STYLE_DIM, 8, clock);
    canvas_cell(c, event_style(json_text(e, "kind")), 10, json_text(e, "kind"));
    if (whole) {
        canvas_wrap(c, STYLE_NONE, EVENT_COLUMN, json_text(e, "sentence"));
        return;
    }
    canvas_put(c, STYLE_NONE, "%s", json_text(e, "sentence"));
    canvas_end_line(c);
}

/* The latest first. most: 0: all, and each sentence to its end. */
static void show_events(struct canvas *c, const json_t *cluster, size_t most) {
    const json_t *list = json_object_get(cluster, "events");
    size_t n = json_array_size(list);
    canvas_put(c, STYLE_DIM, "EVENTS");
    canvas_end_line(c);
    for (size_t i = 0; i < n && (most == 0 || i < most); i++)
        show_event(c, json_array_get(list, n - 1 - i), most == 0);
    if (n == 0) {
        canvas_put(c, STYLE_DIM, "nothing has happened yet");
        canvas_end_line(c);
    }
}

/* ---- views ------------------------------------------------------------------------------- */

const char *view_name(enum cluster_view v) {
    static const char *const names[] = {"overview", "nodes", "models", "events"};
    return names[v];
}

void view_show(struct canvas *c, const json_t *cluster, enum cluster_view v) {
    switch (v) {
    case VIEW_NODES:
        show_all_of_nodes(c, cluster);
        break;
    case VIEW_MODELS:
        show_all_of_models(c, cluster);
        break;
    case VIEW_EVENTS:
        show_events(c, cluster, 0);
        break;
    default:
        show_nodes(c, cluster);
        canvas_end_line(c);
        show_models(c, cluster);
        show_transfers(c, cluster);
        canvas_end_line(c);
        show_events(c, cluster, 10);
    }
}

void view_show_summary(struct canvas *c, const json_t *cluster) {
    size_t i_one, n_here = 0, n_lost = 0;
    json_t *one;
    double tokens = 0;
    size_t n_models = json_array_size(json_object_get(cluster, "deployments"));
    EACH(one, cluster, "nodes") {
        n_here += is_state(one, "here");
        n_lost += is_state(one, "lost");
    }
    EACH(one, cluster, "deployments") {
        tokens += MAX(view_number(one, "tokens_per_second"), 0);
    }
    canvas_put(c, STYLE_BOLD, "%s", json_text(cluster, "self"));
    canvas_put(c, STYLE_NONE, "  %zu node%s", n_here, n_here == 1 ? "" : "s");
    if (n_lost > 0)
        canvas_put(c, STYLE_BAD, ", %zu lost", n_lost);
    canvas_put(c, STYLE_NONE, "  %zu model%s  %.1f tokens/s", n_models,
               n_models == 1 ? "" : "s", tokens);
}
