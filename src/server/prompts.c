/* prompts.c: Reads prompts as OpenAI's older endpoints take them. */
#include "server/prompts.h"

#include "base/mem.h"
#include "base/util.h"

static void read_ids(struct params *p, const char *field, const json_t *v,
                     struct one_prompt *out) {
    size_t n = json_array_size(v);
    out->ids = mem_calloc(n + 1, sizeof *out->ids);
    if (out->ids == NULL) {
        params_fail(p, field, "no memory for %s", field);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(v, i);
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value > INT32_MAX) {
            params_fail(p, field, "%s: number %zu is not a valid token id", field, i);
            return;
        }
        out->ids[i] = (int32_t)value;
    }
    out->n_ids = n;
}

static void read_one(struct params *p, const char *field, const json_t *v,
                     struct one_prompt *out) {
    if (json_is_string(v)) {
        out->text = json_string_value(v);
        out->len = json_string_length(v);
        if (out->len == 0)
            params_fail(p, field, "%s must not be empty", field);
    } else if (json_is_array(v) && json_array_size(v) > 0) {
        read_ids(p, field, v, out);
    } else {
        params_fail(p, field, "%s must be a string, an array of strings, or tokens", field);
    }
}

void param_prompts(struct params *p, const char *field, size_t max, struct prompts *out) {
    const json_t *v = json_object_get(p->body, field);
    if (p->st != ST_OK)
        return;
    if (v == NULL || json_is_null(v)) {
        params_fail(p, field, "%s is missing", field);
        return;
    }
    bool many = json_is_array(v) && !json_is_integer(json_array_get(v, 0));
    size_t n = many ? json_array_size(v) : 1;
    if (n == 0 || n > max) {
        params_fail(p, field, "%s must have 1 to %zu items, not %zu", field, max, n);
        return;
    }
    out->list = mem_calloc(n, sizeof *out->list);
    if (out->list == NULL) {
        params_fail(p, field, "no memory for %s", field);
        return;
    }
    out->n = n;
    for (size_t i = 0; i < n && p->st == ST_OK; i++)
        read_one(p, field, many ? json_array_get(v, i) : v, &out->list[i]);
}

void prompts_deinit(struct prompts *prompts) {
    for (size_t i = 0; i < prompts->n; i++)
        mem_free(prompts->list[i].ids);
    mem_free(prompts->list);
}

struct service_request *prompts_requests(const struct prompts *prompts,
                                         const struct service_request *r) {
    struct service_request *each = mem_calloc(prompts->n, sizeof *each);
    for (size_t i = 0; each != NULL && i < prompts->n; i++) {
        each[i] = *r;
        each[i].prompt = prompts->list[i].text;
        each[i].prompt_len = prompts->list[i].len;
        each[i].ids = prompts->list[i].ids;
        each[i].n_ids = prompts->list[i].n_ids;
    }
    return each;
}
