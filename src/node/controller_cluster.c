/* controller_cluster.c: what the cluster is asked at the deployments' ports: GET /v1/cluster, and
 * POST below it. On threads of the requests' own. */
#include "node/controller_asker.h"
#include "node/controller_change.h"

#include "api/dialects.h"
#include "api/managing.h"
#include "base/json.h"
#include "base/util.h"

/* ---- answers ----------------------------------------------------------------------------- */

static void refuse(struct http_request *r, int status, const char *sentence) {
    if (status == 401)
        http_set_header(r, "WWW-Authenticate", "Bearer");
    reply_json(r, status, openai_error(status, ERR_NONE, sentence, ""));
}

static void look(struct asker *a, struct http_request *r, int port) {
    const struct overview_viewer viewer = {.sees = asker_sees,
                                           .user = a,
                                           .waits = true,
                                           .manages = a->manages,
                                           .is_local = port == 0,
                                           .why_not = a->why_not};
    http_set_header(r, "Cache-Control", "no-store");
    reply_json_exactly(r, 200, overview_answer(a->k, &viewer));
}

static void make_change(struct asker *a, struct http_request *r, const char *what, int port) {
    struct err err;
    json_t *out = NULL, *wish = controller_wish(r);
    const struct change change = {.k = a->k,
                                  .wish = wish,
                                  .port = port,
                                  .manages = a->manages,
                                  .sees = asker_sees,
                                  .user = a};
    if (!a->manages && json_object_get(wish, "model") != NULL) { /* models of nodes, not up */
        refuse(r, 403, a->why_not);
        json_decref(wish);
        return;
    }
    enum status st = json_is_object(wish)
                         ? change_make(&change, what, &out, &err)
                         : err_set(&err, ST_BAD_INPUT, "the request is not a JSON object");
    if (st == ST_OK)
        reply_json_exactly(r, 200, out);
    else
        refuse(r, managing_status(st), err.text);
    json_decref(wish);
    wake_ring(&a->k->wake);
}

/* To plan what is up is only to look. */
static void change(struct asker *a, struct http_request *r, const char *what, int port) {
    int status;
    const char *why = managing_why_not_from_page(r, &status);
    if (why != NULL)
        refuse(r, status, why);
    else if (!a->manages && !str_eq(what, "plan"))
        refuse(r, 403, a->why_not);
    else
        make_change(a, r, what, port);
}

/* What the path has below /v1/cluster: "" for that itself. */
static const char *what_of(const struct http_request *r) {
    static const char above[] = "/v1/cluster";
    const char *path = http_path(r);
    path += strlen(path_without_version(above, path));
    return path + (*path == '/');
}

void controller_answer_cluster(void *user, struct http_request *r, int port) {
    struct asker a;
    asker_init(&a, user, r);
    a.admin |= port == 0 && a.manages; /* it is the machine's own page */
    a.looks |= a.admin;
    const char *method = http_method(r), *what = what_of(r);
    bool gets = str_eq(method, "GET") || str_eq(method, "HEAD"), posts = str_eq(method, "POST");
    if (!a.looks)
        refuse(r, 401, "this needs an API key of a model that is up here");
    else if (*what != '\0' && !change_is_known(what))
        refuse(r, 404, "there is nothing at this path");
    else if (*what == '\0' && gets)
        look(&a, r, port);
    else if (*what != '\0' && posts)
        change(&a, r, what, port);
    else
        refuse(r, 405, "this path does not support that method");
    asker_deinit(&a);
}

static bool sees_all(void *user, const char *deployment) {
    (void)user, (void)deployment;
    return true;
}

void controller_handle_cluster(struct controller *k, struct http_request *r) {
    const struct overview_viewer viewer = {.sees = sees_all, .manages = true, .why_not = ""};
    reply_json_exactly(r, 200, overview_answer(k, &viewer));
}
