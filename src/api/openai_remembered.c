/* openai_remembered.c: /v1/responses/ID and what is below it: the responses that are remembered,
 * and those that are made in the background. */
#include "api/openai.h"
#include "base/mem.h"
#include "base/util.h"
#include "server/memo.h"

#include <stdlib.h>

/* Of one under way; its conversation is that before the answer. */
static json_t *recall_job(struct service *s, const char *id, int owner) {
    char *text, *items;
    if (!background_get(service_background(s), id, owner, &text, &items))
        return NULL;
    json_t *v = text != NULL && items != NULL
                    ? json_pack("{s:o, s:o}", "response", json_loads(text, 0, NULL), "items",
                                json_loads(items, 0, NULL))
                    : NULL;
    mem_free(text);
    mem_free(items);
    return v;
}

json_t *openai_recall(struct service *s, const char *id, int owner) {
    json_t *v = recall_job(s, id, owner);
    if (v != NULL)
        return v;
    char *text = memo_get(service_memo(s), id, owner);
    v = text != NULL ? json_loads(text, 0, NULL) : NULL;
    mem_free(text);
    return v;
}

bool openai_is_under_way(const json_t *response) {
    const char *status = json_string_value(json_object_get(response, "status"));
    return status != NULL && (str_eq(status, "queued") || str_eq(status, "in_progress"));
}

static const char *id_in_path(const struct http_request *http) {
    return path_below(http, "/v1/responses/");
}

static void refuse(struct http_request *http, enum status st, const char *sentence,
                   const char *field) {
    struct err why;
    err_set(&why, st, "%s", sentence);
    reply_error(http, &openai_response_dialect, st, &why, field);
}

static void say_unknown(struct http_request *http) {
    refuse(http, ST_NOT_FOUND, "no response with this id is known here, or not any more", "");
}

/* ---- /v1/responses/ID/input_items -------------------------------------------------------- */

/* As the API writes an item down: with an id, and a message with its type and parts. */
static json_t *listed(const json_t *item, const char *response, size_t i) {
    json_t *v = json_copy((json_t *)item), *content = json_object_get(v, "content");
    const char *role = json_string_value(json_object_get(v, "role"));
    bool own = role != NULL && str_eq(role, "assistant");
    if (json_object_get(v, "id") == NULL)
        json_object_set_new(v, "id", json_sprintf("item_%s_%zu", response, i));
    if (json_object_get(v, "type") == NULL)
        json_object_set_new(v, "type", json_string("message"));
    if (json_is_string(content))
        json_object_set_new(v, "content",
                            json_pack("[{s:s, s:O}]", "type",
                                      own ? "output_text" : "input_text", "text", content));
    return v;
}

/* All but the response's own output, in the order that is asked for. */
static json_t *input_of(const json_t *kept, const char *id, bool ascending) {
    const json_t *items = json_object_get(kept, "items");
    const json_t *response = json_object_get(kept, "response");
    size_t n_out = json_array_size(json_object_get(response, "output"));
    size_t n = json_array_size(items) - MIN(n_out, json_array_size(items));
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        size_t at = ascending ? i : n - 1 - i;
        json_array_append_new(list, listed(json_array_get(items, at), id, at));
    }
    return list;
}

/* Leaves out what is up to the item `after`, and what is beyond `limit`. */
static bool cut_page(json_t *list, const char *after, size_t limit) {
    size_t begin = 0, n = json_array_size(list);
    for (size_t i = 0; after != NULL && i < n; i++)
        if (str_eq(json_string_value(json_object_get(json_array_get(list, i), "id")), after))
            begin = i + 1;
    while (begin-- > 0)
        json_array_remove(list, 0);
    bool more = json_array_size(list) > limit;
    while (json_array_size(list) > limit)
        json_array_remove(list, limit);
    return more;
}

static json_t *id_at(const json_t *list, size_t i) {
    json_t *id = json_object_get(json_array_get(list, i), "id");
    return id != NULL ? json_incref(id) : json_null();
}

static void list_input(struct service *s, struct http_request *http, const char *id) {
    const char *order = http_query(http, "order"), *limit = http_query(http, "limit");
    long n = limit != NULL ? strtol(limit, NULL, 10) : 20;
    if (n < 1 || n > 100) {
        refuse(http, ST_BAD_INPUT, "limit must be from 1 to 100", "limit");
        return;
    }
    json_t *kept = openai_recall(s, id, http_key(http));
    if (kept == NULL) {
        say_unknown(http);
        return;
    }
    json_t *list = input_of(kept, id, order != NULL && str_eq(order, "asc"));
    bool more = cut_page(list, http_query(http, "after"), (size_t)n);
    json_decref(kept);
    json_t *first = id_at(list, 0), *last = id_at(list, json_array_size(list) - 1);
    reply_json(http, 200,
               json_pack("{s:s, s:o, s:o, s:o, s:b}", "object", "list", "data", list,
                         "first_id", first, "last_id", last, "has_more", more));
}

/* ---- /v1/responses/ID -------------------------------------------------------------------- */

/* The ID of a path ID/tail, copied (mem_free); NULL: it is another path. */
static char *id_before(const struct http_request *http, const char *tail) {
    char *id = mem_strdup(id_in_path(http));
    size_t n = id != NULL ? strlen(id) : 0, n_tail = strlen(tail);
    if (n <= n_tail || !str_eq(id + n - n_tail, tail)) {
        mem_free(id);
        return NULL;
    }
    id[n - n_tail] = '\0';
    return id;
}

/* Its events, from the one after starting_after on. */
static void stream(struct service *s, struct http_request *http, const char *id) {
    const char *after = http_query(http, "starting_after");
    char *end = NULL;
    struct err why;
    long number = after != NULL ? strtol(after, &end, 10) : -1;
    if (after != NULL && (*after == '\0' || *end != '\0' || number < 0)) {
        refuse(http, ST_BAD_INPUT, "starting_after must be an event's sequence_number",
               "starting_after");
        return;
    }
    enum status st =
        background_follow(service_background(s), id, http_key(http), number, http, &why);
    json_t *known = st == ST_NOT_FOUND ? openai_recall(s, id, http_key(http)) : NULL;
    if (known != NULL)
        st = err_set(&why, ST_UNSUPPORTED,
                     "stream: only a background response that was made with stream can be "
                     "streamed again, as long as its events are kept");
    if (st != ST_OK)
        reply_error(http, &openai_response_dialect, st, &why,
                    st == ST_UNSUPPORTED ? "stream" : "");
    json_decref(known);
}

static void show(struct service *s, struct http_request *http, const char *id) {
    const char *streams = http_query(http, "stream");
    if (streams != NULL && str_eq(streams, "true")) {
        stream(s, http, id);
        return;
    }
    json_t *v = openai_recall(s, id, http_key(http));
    if (v == NULL) {
        say_unknown(http);
        return;
    }
    reply_json(http, 200, json_incref(json_object_get(v, "response")));
    json_decref(v);
}

void openai_response_show(struct service *s, struct http_request *http) {
    char *id = id_before(http, "/input_items");
    if (id != NULL && strchr(id, '/') == NULL)
        list_input(s, http, id);
    else if (strchr(id_in_path(http), '/') != NULL)
        refuse(http, ST_NOT_FOUND, "there is nothing at this path", "");
    else
        show(s, http, id_in_path(http));
    mem_free(id);
}

/* Of what has ended, the end is told again. */
static void say_ended(struct service *s, struct http_request *http, const char *id) {
    json_t *v = openai_recall(s, id, http_key(http));
    json_t *response = json_object_get(v, "response");
    if (v == NULL)
        say_unknown(http);
    else if (json_is_true(json_object_get(response, "background")))
        reply_json(http, 200, json_incref(response));
    else
        refuse(http, ST_BAD_INPUT,
               "only a background response can be cancelled; of others the client closes the "
               "connection",
               "");
    json_decref(v);
}

void openai_response_cancel(struct service *s, struct http_request *http) {
    char *id = id_before(http, "/cancel");
    if (id == NULL || strchr(id, '/') != NULL)
        refuse(http, ST_NOT_FOUND, "there is nothing at this path", "");
    else if (!background_cancel(service_background(s), id, http_key(http), http))
        say_ended(s, http, id);
    mem_free(id);
}

void openai_response_forget(struct service *s, struct http_request *http) {
    const char *id = id_in_path(http);
    bool was_job = background_forget(service_background(s), id, http_key(http));
    if (memo_forget(service_memo(s), id, http_key(http)) || was_job)
        reply_json(http, 200,
                   json_pack("{s:s, s:s, s:b}", "id", id, "object", "response", "deleted", 1));
    else
        say_unknown(http);
}
