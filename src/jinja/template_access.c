/* template_access.c: obj.name and obj[key], without slices. Jinja looks for the member in two
 * ways, one after the other. */
#include "jinja/template_value.h"

#include "jinja/template_run.h"

/* How many items there are in all. */
static int64_t loop_length(struct render *r, struct loop *loop) {
    loop_has(r, loop, SIZE_MAX);
    return (int64_t)loop->items->n;
}

static struct value loop_member(struct render *r, struct loop *loop, const char *name,
                                size_t len) {
    struct value key = value_text(name, len), self = {.kind = V_LOOP, .loop = loop};
    int64_t i = (int64_t)loop->i;
    if (text_is(key, "index0"))
        return value_int(i);
    if (text_is(key, "index"))
        return value_int(i + 1);
    if (text_is(key, "first"))
        return value_bool(i == 0);
    if (text_is(key, "last"))
        return value_bool(!loop_has(r, loop, loop->i + 1));
    if (text_is(key, "length"))
        return value_int(loop_length(r, loop));
    if (text_is(key, "revindex"))
        return value_int(loop_length(r, loop) - i);
    if (text_is(key, "revindex0"))
        return value_int(loop_length(r, loop) - i - 1);
    if (text_is(key, "depth"))
        return value_int(loop->depth0 + 1);
    if (text_is(key, "depth0"))
        return value_int(loop->depth0);
    if (text_is(key, "previtem"))
        return i > 0 ? loop->items->items[i - 1]
                     : value_undefined(r, value_cstr("there is no previous item"));
    if (text_is(key, "nextitem"))
        return loop_has(r, loop, loop->i + 1)
                   ? loop->items->items[i + 1]
                   : value_undefined(r, value_cstr("there is no next item"));
    return value_missing_member(r, self, key);
}

static struct value bind_method(struct render *r, const struct builtin *fn, struct value self) {
    struct method *m = RENDER_NEW(r, struct method);
    *m = (struct method){fn, self};
    return (struct value){.kind = V_METHOD, .method = m};
}

/* getattr(): methods and the fields of namespaces, loops and named tuples. V_MISSING if absent.
 */
static struct value get_field(struct render *r, struct value v, const char *name, size_t len) {
    const struct builtin *fn = method_find(v.kind, name, len);
    if (fn != NULL)
        return bind_method(r, fn, v);
    if (v.kind == V_NAMESPACE) {
        const struct value *field = dict_get_text(r, v.dict, name, len);
        if (field != NULL)
            return *field;
    }
    if (v.kind == V_LOOP) {
        struct value field = loop_member(r, v.loop, name, len);
        if (field.kind != V_UNDEFINED || field.missing->why == UNDEFINED_OTHER)
            return field;
    }
    if (v.kind == V_TUPLE && v.seq->names != NULL)
        for (size_t i = 0; i < v.seq->n; i++)
            if (text_is(value_text(name, len), v.seq->names[i]))
                return v.seq->items[i];
    if (v.kind == V_MACRO && text_is(value_text(name, len), "name"))
        return value_text(v.macro->def->name->text, v.macro->def->name->len);
    if (v.kind == V_CYCLER && text_is(value_text(name, len), "current"))
        return v.seq->items[v.seq->pos];
    return (struct value){.kind = V_MISSING};
}

/* obj[key] alone. V_MISSING if absent. */
static struct value get_element(struct render *r, struct value v, struct value key) {
    if (v.kind == V_DICT) {
        bool hashable = key.kind != V_LIST && key.kind != V_DICT && key.kind != V_UNDEFINED;
        const struct value *item = hashable ? dict_get(r, v.dict, key) : NULL;
        return item != NULL ? *item : (struct value){.kind = V_MISSING};
    }
    if (!is_integral(key) || !(is_sequence(v) || v.kind == V_STRING))
        return (struct value){.kind = V_MISSING};
    int64_t i = as_int(key), n = (int64_t)value_length(r, v);
    if (i < 0)
        i += n;
    if (i < 0 || i >= n)
        return (struct value){.kind = V_MISSING};
    if (is_sequence(v))
        return v.seq->items[i];
    size_t begin = utf8_offset(v.text, v.len, (size_t)i);
    uint32_t c;
    return text_slice(v, begin, begin + utf8_get(v.text + begin, v.text + v.len, &c));
}

struct value value_attribute(struct render *r, struct value v, const char *name, size_t len) {
    if (v.kind == V_UNDEFINED)
        undefined_fail(r, v);
    struct value found = get_field(r, v, name, len);
    if (found.kind == V_MISSING)
        found = get_element(r, v, value_text(name, len));
    if (found.kind == V_MISSING)
        return value_missing_member(r, v, value_text(name, len));
    return found;
}

struct value value_item(struct render *r, struct value v, struct value key) {
    if (v.kind == V_UNDEFINED)
        undefined_fail(r, v);
    struct value found = get_element(r, v, key);
    if (found.kind == V_MISSING && key.kind == V_STRING)
        found = get_field(r, v, key.text, key.len);
    if (found.kind == V_MISSING)
        return value_missing_member(r, v, key);
    return found;
}

static bool all_digits(struct value s) {
    for (size_t i = 0; i < s.len; i++)
        if (s.text[i] < '0' || s.text[i] > '9')
            return false;
    return s.len > 0 && s.len < 10;
}

struct value value_path(struct render *r, struct value v, struct value path) {
    if (path.kind != V_STRING)
        return value_item(r, v, path);
    for (size_t at = 0; at <= path.len;) {
        size_t dot = text_find(path, value_text(".", 1), at);
        size_t end = dot == SIZE_MAX ? path.len : dot;
        struct value part = text_slice(path, at, end);
        if (all_digits(part)) {
            int64_t i = 0;
            for (size_t k = 0; k < part.len; k++)
                i = i * 10 + (part.text[k] - '0');
            part = value_int(i);
        }
        v = value_item(r, v, part);
        at = end + 1;
    }
    return v;
}
