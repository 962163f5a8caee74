/* history.c: a bounded ring of events, and the merge of several nodes' rings. */
#include "cluster/history.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/sentence.h"
#include "base/util.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Nodes notice a loss within some seconds of each other, and their clocks differ by some. */
#define SAME_S 30.0

static const char *const kinds[HAPPENED_N] = {
    [HAPPENED_UP] = "up",
    [HAPPENED_DOWN] = "down",
    [HAPPENED_LOST] = "lost",
    [HAPPENED_LEFT] = "left",
    [HAPPENED_JOINED] = "joined",
    [HAPPENED_BACK] = "back",
    [HAPPENED_TOOK_OVER] = "took_over",
    [HAPPENED_PLACED] = "placed",
    [HAPPENED_COPIED] = "copied",
    [HAPPENED_FAILED] = "failed",
    [HAPPENED_MOVED] = "moved",
    [HAPPENED_SLEPT] = "slept",
    [HAPPENED_WOKE] = "woke",
};

bool node_history_init(struct history *h, const char *name) {
    *h = (struct history){.list = mem_calloc(HISTORY_MAX, sizeof *h->list)};
    pthread_mutex_init(&h->lock, NULL);
    snprintf(h->name, sizeof h->name, "%s", name);
    return h->list != NULL;
}

void node_history_deinit(struct history *h) {
    mem_free(h->list);
    h->list = NULL;
    pthread_mutex_destroy(&h->lock);
}

double history_now(void) {
    return (double)clock_read_ns(CLOCK_REALTIME) * 1e-9;
}

void history_note(struct history *h, double time, enum happening kind, const char *node,
                  const char *model, const char *sentence, ...) {
    struct event e = {.time = time > 0 ? time : history_now(), .kind = kind};
    va_list ap;
    va_start(ap, sentence);
    sentence_vprint(e.sentence, sizeof e.sentence, sentence, ap);
    va_end(ap);
    snprintf(e.node, sizeof e.node, "%s", node);
    snprintf(e.model, sizeof e.model, "%s", model);
    pthread_mutex_lock(&h->lock);
    if (h->list != NULL)
        h->list[h->n++ % HISTORY_MAX] = e;
    pthread_mutex_unlock(&h->lock);
}

/* The i-th of those that are kept, the oldest first. */
static const struct event *event_at(const struct history *h, size_t i) {
    return &h->list[(h->n - MIN(h->n, HISTORY_MAX) + i) % HISTORY_MAX];
}

static bool is_presence(enum happening kind) {
    return kind == HAPPENED_LOST || kind == HAPPENED_LEFT || kind == HAPPENED_JOINED ||
           kind == HAPPENED_BACK;
}

bool history_is_gone(struct history *h, const char *node) {
    bool gone = false;
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < MIN(h->n, HISTORY_MAX); i++) {
        const struct event *e = event_at(h, i);
        if (is_presence(e->kind) && str_eq(e->node, node))
            gone = e->kind == HAPPENED_LOST || e->kind == HAPPENED_LEFT;
    }
    pthread_mutex_unlock(&h->lock);
    return gone;
}

json_t *history_json(struct history *h) {
    json_t *list = json_array();
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; i < MIN(h->n, HISTORY_MAX); i++) {
        const struct event *e = event_at(h, i);
        json_t *one =
            json_pack("{s:f, s:s, s:s, s:s, s:s}", "time", e->time, "kind", kinds[e->kind],
                      "node", e->node, "sentence", e->sentence, "by", h->name);
        if (e->model[0] != '\0')
            json_object_set_new(one, "model", json_string(e->model));
        json_array_append_new(list, one);
    }
    pthread_mutex_unlock(&h->lock);
    return list;
}

/* ---- several nodes' ---------------------------------------------------------------------- */

struct told_event {
    json_t *json; /* borrowed */
    double time;
    size_t nth; /* among equals the order in which they came */
};

static bool is_event(const json_t *e) {
    bool known = false;
    for (int i = 0; i < HAPPENED_N; i++)
        known |= str_eq(kinds[i], json_text(e, "kind"));
    const json_t *model = json_object_get(e, "model");
    return known && json_is_number(json_object_get(e, "time")) &&
           json_is_string(json_object_get(e, "node")) &&
           json_is_string(json_object_get(e, "sentence")) &&
           (model == NULL || json_is_string(model));
}

static int by_time(const void *a, const void *b) {
    const struct told_event *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return x->nth < y->nth ? -1 : x->nth > y->nth;
}

/* Is it what another node noted already? */
static bool is_noted(const struct told_event *kept, size_t n, const struct told_event *e) {
    while (n-- > 0 && kept[n].time >= e->time - SAME_S)
        if (str_eq(json_text(kept[n].json, "kind"), json_text(e->json, "kind")) &&
            str_eq(json_text(kept[n].json, "node"), json_text(e->json, "node")) &&
            str_eq(json_text(kept[n].json, "model"), json_text(e->json, "model")))
            return kept[n].time == e->time ||
                   !str_eq(json_text(kept[n].json, "by"), json_text(e->json, "by"));
    return false;
}

json_t *history_merge(json_t *const *lists, size_t n) {
    size_t most = 0, n_all = 0, n_kept = 0, i;
    json_t *one, *out = json_array();
    for (size_t l = 0; l < n; l++)
        most += json_array_size(lists[l]);
    struct told_event *all = most > 0 ? mem_calloc(most, sizeof *all) : NULL;
    for (size_t l = 0; l < n && all != NULL; l++)
        json_array_foreach(lists[l], i, one) {
            if (is_event(one))
                all[n_all] = (struct told_event){
                    one, json_number_value(json_object_get(one, "time")), n_all};
            n_all += (size_t)is_event(one);
        }
    if (n_all > 0)
        qsort(all, n_all, sizeof *all, by_time);
    for (size_t e = 0; e < n_all; e++)
        if (!is_noted(all, n_kept, &all[e]))
            all[n_kept++] = all[e];
    for (size_t e = n_kept - MIN(n_kept, HISTORY_MAX); e < n_kept; e++)
        json_array_append(out, all[e].json);
    mem_free(all);
    return out;
}
