/* local_page.c: serves the page and the cluster's paths at a port of this machine alone. */
#include "node/local_page.h"

#include "api/dialects.h"
#include "api/page.h"
#include "base/mem.h"
#include "base/util.h"
#include "node/controller_internal.h"

#define CONNECTIONS_MAX 64
#define BODY_MAX ((size_t)1 << 20)

struct local_page {
    struct controller *k;
    struct http_server *http;
};

static void fail(void *user, struct http_request *r, int status, const char *sentence) {
    (void)user;
    reply_json(r, status, openai_error(status, ERR_NONE, sentence, ""));
}

static void answer_cluster(struct controller *k, struct http_request *r) {
    controller_answer_cluster(k, r, 0);
}

/* What the page asks a model's port for beside the cluster. */
static void answer_without_model(struct http_request *r) {
    static const char why[] = "no model answers here: each has a port of its own";
    http_set_header(r, "Cache-Control", "no-store");
    if (str_eq(http_path(r), "/health"))
        reply_json(r, 503, json_pack("{s:s, s:s}", "status", "elsewhere", "why", why));
    else if (str_eq(http_path(r), "/v1/models"))
        reply_json(r, 200, json_pack("{s:s, s:[]}", "object", "list", "data"));
    else
        fail(NULL, r, 404, why);
}

static void handle(void *user, struct http_request *r) {
    struct local_page *p = user;
    if (page_answer(r))
        return;
    if (path_is_under("/v1/cluster", http_path(r)))
        controller_run_later(p->k, r, answer_cluster);
    else
        answer_without_model(r);
}

enum status local_page_open(struct local_page **out, struct controller *k, int port,
                            struct err *err) {
    struct http_config http;
    struct local_page *p = mem_calloc(1, sizeof *p);
    if (p == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a page");
    p->k = k;
    http_config_init(&http);
    http.host = "127.0.0.1";
    http.port = port;
    http.local_only = true;
    http.max_connections = CONNECTIONS_MAX;
    http.max_body_bytes = BODY_MAX;
    http.handle = handle;
    http.fail = fail;
    http.user = p;
    enum status st = http_open(&p->http, &http, err);
    if (st == ST_IO && port != 0) {
        http.port = 0;
        st = http_open(&p->http, &http, err);
    }
    if (st != ST_OK)
        mem_free(p);
    else
        *out = p;
    return st;
}

int local_page_port(const struct local_page *p) {
    return http_port(p->http);
}

void local_page_close(struct local_page *p) {
    if (p == NULL)
        return;
    (void)http_drain(p->http, 0);
    controller_wait_for_later(p->k);
    http_close(p->http);
    mem_free(p);
}
