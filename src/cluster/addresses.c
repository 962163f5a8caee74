/* addresses.c: a list of addresses in the order in which they are tried. */
#include "cluster/addresses.h"

#include "base/mem.h"
#include "base/util.h"

void addresses_deinit(struct addresses *a) {
    mem_free(a->list);
    *a = (struct addresses){.list = NULL};
}

bool addresses_has(const struct addresses *a, const char *address) {
    for (size_t i = 0; i < a->n; i++)
        if (str_eq(a->list[i], address))
            return true;
    return false;
}

bool addresses_add(struct addresses *a, const char *address) {
    size_t size = strlen(address) + 1;
    if (addresses_has(a, address))
        return true;
    if (size > sizeof a->list[0] ||
        !mem_reserve(&a->list, &a->cap, a->n + 1, sizeof a->list[0]))
        return false;
    memcpy(a->list[a->n++], address, size);
    return true;
}

void addresses_add_all(struct addresses *a, const struct addresses *more) {
    for (size_t i = 0; i < more->n; i++)
        addresses_add(a, more->list[i]);
}

void addresses_parse(struct addresses *out, const json_t *list, size_t max) {
    size_t i;
    json_t *one;
    *out = (struct addresses){.list = NULL};
    json_array_foreach((json_t *)(uintptr_t)list, i, one) {
        if (json_is_string(one) && out->n < max)
            addresses_add(out, json_string_value(one));
    }
}

json_t *addresses_json(const struct addresses *a) {
    json_t *list = json_array();
    for (size_t i = 0; i < a->n; i++)
        json_array_append_new(list, json_string(a->list[i]));
    return list;
}
