/* controller_plan.c: what placements would give: of a server that runs, from what its ranks have
 * measured; of a model that is not up, from what the nodes know of themselves. */
#include "node/controller_change.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "node/overview_internal.h"

#include <stdio.h>

bool change_is_of_nodes(const json_t *candidate, const char *words) {
    const json_t *names = json_object_get(candidate, "nodes");
    size_t i, n = 0;
    json_t *name;
    for (const char *at = words; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        n++;
    }
    json_array_foreach((json_t *)(uintptr_t)names, i, name) {
        if (!json_is_string(name) || !str_list_has(words, json_string_value(name)))
            return false;
    }
    return n == json_array_size(names);
}

json_t *change_measured(const struct change *c, const char *name) {
    const struct overview_viewer viewer = {
        .sees = c->sees, .user = c->user, .waits = true, .why_not = ""};
    json_t *all = overview_answer(c->k, &viewer), *one, *found = NULL;
    size_t i;
    json_array_foreach(json_object_get(all, "deployments"), i, one) {
        if (str_eq(json_text(one, "name"), name))
            found = json_incref(json_object_get(one, "candidates"));
    }
    json_decref(all);
    return found;
}

static enum status plan_running(const struct change *c, const char *name, const char *nodes,
                                json_t **out) {
    json_t *one, *list = json_array(), *all = change_measured(c, name);
    size_t i;
    json_array_foreach(all, i, one) {
        if (*nodes == '\0' || change_is_of_nodes(one, nodes))
            json_array_append(list, one);
    }
    json_decref(all);
    *out = json_pack("{s:s, s:s, s:O}", "name", name, "sentence",
                     json_array_size(list) > 0
                         ? "predicted from what the machines measured when the server began"
                         : "nothing was measured for these machines: lockstep plan predicts "
                           "it from numbers",
                     "candidates", list);
    json_decref(list);
    return ST_OK;
}

enum status change_plan(const struct change *c, json_t **out, struct err *err) {
    const char *name = json_string_value(json_object_get(c->wish, "name"));
    char nodes[CHANGE_NODES_BYTES];
    TRY(change_nodes(c->wish, nodes, err));
    if (name == NULL || *name == '\0')
        return err_set(err, ST_BAD_INPUT, "the request has no \"name\"");
    if (!c->sees(c->user, name))
        return err_set(err, ST_NOT_FOUND, "no deployment is called %.80s", name);
    return plan_running(c, name, nodes, out);
}
