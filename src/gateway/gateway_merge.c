/* gateway_merge.c: Merges answers of several servers into one: lists of models, health,
 * metrics. */
#include "gateway/gateway_merge.h"

#include "api/dialects.h"
#include "base/json.h"
#include "base/util.h"

#define NOBODY "no node serves it just now"

enum gateway_merge gateway_merge_of(const char *path) {
    static const char *const lists[] = {"/v1/models", "/api/v0/models", "/api/tags", "/api/ps"};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        if (path_is(lists[i], path))
            return MERGE_LISTS;
    return path_is("/health", path)    ? MERGE_HEALTH
           : path_is("/metrics", path) ? MERGE_METRICS
                                       : MERGE_NONE;
}

static json_t *parse(const struct gateway_part *part) {
    json_t *v =
        part->text.len > 0 ? json_loadb(part->text.bytes, part->text.len, 0, NULL) : NULL;
    return json_is_object(v) ? v : (json_decref(v), NULL);
}

/* Of those that are not good, the first that has words. */
static int give_bad(const struct gateway_part *parts, size_t n, struct buf *out) {
    for (size_t i = 0; i < n; i++)
        if (parts[i].status != 0) {
            buf_add(out, parts[i].text.bytes, parts[i].text.len);
            return parts[i].status;
        }
    return 503;
}

/* ---- lists ------------------------------------------------------------------------------- */

static json_t *list_in(const json_t *object) {
    json_t *data = json_object_get(object, "data");
    return json_is_array(data) ? data : json_object_get(object, "models");
}

/* Anthropic's say where they end. */
static void set_end(json_t *all) {
    json_t *list = list_in(all);
    json_t *last =
        json_object_get(json_array_get(list, MAX(json_array_size(list), (size_t)1) - 1), "id");
    if (json_object_get(all, "last_id") != NULL && last != NULL)
        json_object_set(all, "last_id", last);
}

/* As each dialect names a model. Ollama's names have a tag. */
static json_t *renamed(const json_t *model, const char *name) {
    static const char *const keys[] = {"id", "display_name", "name", "model"};
    json_t *copy = json_copy((json_t *)(uintptr_t)model);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        bool tagged =
            str_ends(json_text(copy, keys[i]), ":latest") && strchr(name, ':') == NULL;
        if (json_object_get(copy, keys[i]) != NULL)
            json_object_set_new(copy, keys[i],
                                json_sprintf("%s%s", name, tagged ? ":latest" : ""));
    }
    return copy;
}

static void add_renamed(json_t *list, const json_t *names) {
    size_t i, k, n = json_array_size(list);
    json_t *name;
    json_array_foreach((json_t *)(uintptr_t)names, i, name) {
        for (k = 0; k < n; k++)
            json_array_append_new(list,
                                  renamed(json_array_get(list, k), json_string_value(name)));
    }
}

static int merge_lists(const struct gateway_part *parts, size_t n, struct buf *out) {
    json_t *all = NULL;
    for (size_t i = 0; i < n; i++) {
        json_t *one = parts[i].status == 200 ? parse(&parts[i]) : NULL;
        add_renamed(list_in(one), parts[i].names);
        if (all == NULL) {
            all = one;
            continue;
        }
        json_array_extend(list_in(all), list_in(one));
        json_decref(one);
    }
    if (all == NULL)
        return give_bad(parts, n, out);
    set_end(all);
    buf_add_json(out, all);
    return 200;
}

/* ---- health ------------------------------------------------------------------------------ */

static int merge_health(const struct gateway_part *parts, size_t n, struct buf *out) {
    json_t *models = json_object(), *status = NULL, *why = NULL;
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        json_t *one = parse(&parts[i]);
        if (one == NULL)
            one = json_pack("{s:s, s:s}", "status", "unhealthy", "why", NOBODY);
        any |= parts[i].status == 200;
        if (parts[i].status != 200 && status == NULL) {
            status = json_string(json_text(one, "status"));
            why = json_sprintf("%s: %s", parts[i].name, json_text(one, "why"));
        }
        json_object_set_new(models, parts[i].name, one);
    }
    json_t *all =
        json_pack("{s:o, s:o*, s:o}", "status", status != NULL ? status : json_string("ok"),
                  "why", why, "models", models);
    buf_add_json(out, all);
    return any ? 200 : 503;
}

/* ---- metrics ----------------------------------------------------------------------------- */

#define HELP "# HELP "

/* A metric's lines, from its help to the next one's: [begin, end). */
struct family {
    const char *begin, *end;
    size_t n_head; /* of begin: "# HELP name " */
};

static bool next_family(const char *at, struct family *f) {
    f->begin = at != NULL ? strstr(at, HELP) : NULL;
    if (f->begin == NULL)
        return false;
    const char *next = strstr(f->begin, "\n" HELP);
    f->end = next != NULL ? next + 1 : f->begin + strlen(f->begin);
    f->n_head = strlen(HELP) + strcspn(f->begin + strlen(HELP), " \n") + 1;
    return f->begin + f->n_head <= f->end;
}

static bool find_family(const struct gateway_part *part, const struct family *like,
                        struct family *f) {
    const char *at = part->status == 200 ? part->text.bytes : NULL;
    for (; next_family(at, f); at = f->end)
        if (f->n_head == like->n_head && strncmp(f->begin, like->begin, f->n_head) == 0)
            return true;
    return false;
}

/* As label values are written in Prometheus' text format. */
static void add_label(struct buf *out, const char *name) {
    buf_add_str(out, "model=\"");
    for (const char *c = name; *c != '\0'; c++) {
        if (*c == '\\' || *c == '"')
            buf_add_str(out, "\\");
        buf_add(out, c, 1);
    }
    buf_add_str(out, "\"");
}

/* comments: those lines of the family; else its samples, named. */
static void add_lines(struct buf *out, const struct family *f, const char *name,
                      bool comments) {
    for (const char *at = f->begin, *end; at < f->end; at = end) {
        end = at + strcspn(at, "\n");
        end += *end == '\n';
        if ((*at == '#') != comments)
            continue;
        size_t n = comments ? 0 : strcspn(at, "{ \n");
        buf_add(out, at, n);
        if (!comments) {
            bool has_labels = at[n] == '{';
            buf_add_str(out, "{");
            add_label(out, name);
            buf_add_str(out, has_labels ? "," : "}");
            n += has_labels;
        }
        buf_add(out, at + n, (size_t)(end - at) - n);
    }
}

static int merge_metrics(const struct gateway_part *parts, size_t n, struct buf *out) {
    struct family f, same;
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (parts[i].status != 200)
            continue;
        any = true;
        for (const char *at = parts[i].text.bytes; next_family(at, &f); at = f.end) {
            bool done = false;
            for (size_t j = 0; j < i && !done; j++)
                done = find_family(&parts[j], &f, &same);
            if (done)
                continue;
            add_lines(out, &f, NULL, true);
            for (size_t j = i; j < n; j++)
                if (find_family(&parts[j], &f, &same))
                    add_lines(out, &same, parts[j].name, false);
        }
    }
    return any ? 200 : give_bad(parts, n, out);
}

int gateway_merge(enum gateway_merge how, const struct gateway_part *parts, size_t n,
                  struct buf *out) {
    switch (how) {
    case MERGE_HEALTH:
        return merge_health(parts, n, out);
    case MERGE_METRICS:
        return merge_metrics(parts, n, out);
    default:
        return merge_lists(parts, n, out);
    }
}
