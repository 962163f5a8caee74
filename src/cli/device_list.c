/* device_list.c: Reads --device with a device for each node. */
#include "cli/device_list.h"

#include "base/util.h"
#include "base/words.h"

#include <stdio.h>
#include <string.h>

bool device_list_has_nodes(const char *text) {
    return text != NULL && strchr(text, '=') != NULL;
}

/* One word of the list. */
struct word {
    const char *node, *device;
    size_t node_len, device_len;
};

/* *at: the next word; it ends at the end of text. False: there is none. */
static bool next_word(struct word *w, const char **at) {
    size_t n;
    const char *text = words_next(at, &n);
    if (text == NULL)
        return false;
    const char *equals = memchr(text, '=', n);
    *w = (struct word){.node = text, .node_len = equals != NULL ? (size_t)(equals - text) : 0};
    w->device = text + (equals != NULL ? w->node_len + 1 : 0);
    w->device_len = n - (size_t)(w->device - text);
    return true;
}

static bool is_of(const struct word *w, const char *name) {
    return words_equal(w->node, w->node_len, name);
}

static enum status check_word(const struct word *w, const char *text, struct err *err) {
    struct word other;
    const char *at = text;
    if (w->node_len == 0 || w->device_len == 0)
        return err_set(err, ST_BAD_INPUT,
                       "--device %s: expected NODE=DEVICE of each node, or no node at all",
                       text);
    while (next_word(&other, &at) && other.node != w->node)
        if (other.node_len == w->node_len && memcmp(other.node, w->node, w->node_len) == 0)
            return err_set(err, ST_BAD_INPUT, "--device %s: %.*s is named twice", text,
                           (int)w->node_len, w->node);
    return ST_OK;
}

enum status device_list_check(const char *text, const struct device_host *hosts, size_t n,
                              const char **absent, size_t *absent_len, struct err *err) {
    struct word w;
    *absent = NULL;
    for (const char *at = text; next_word(&w, &at);) {
        bool is_there = false;
        TRY(check_word(&w, text, err));
        for (size_t i = 0; i < n; i++)
            is_there |= is_of(&w, hosts[i].name);
        if (!is_there && *absent == NULL) {
            *absent = w.node;
            *absent_len = w.node_len;
        }
    }
    return ST_OK;
}

enum status device_list_of_ranks(char *out, size_t size, const char *text,
                                 const struct device_host *hosts, size_t n, struct err *err) {
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        struct word its = {.device = "cpu", .device_len = 3}, w;
        for (const char *rest = text; next_word(&w, &rest);)
            if (is_of(&w, hosts[i].name))
                its = w;
        for (int k = 0; k < hosts[i].n_ranks && at < size; k++)
            at += (size_t)snprintf(out + at, size - at, "%s%.*s", at > 0 ? "," : "",
                                   (int)its.device_len, its.device);
    }
    return at < size ? ST_OK : err_set(err, ST_BAD_INPUT, "--device is too long");
}
