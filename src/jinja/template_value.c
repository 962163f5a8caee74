/* template_value.c: creates values and implements Python's operators on them. */
#include "jinja/template_value.h"

#include "base/mem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define MAX_STEPS ((size_t)20 * 1000 * 1000)
#define MAX_OUTPUT_BYTES ((size_t)64 << 20)
#define MAX_DEPTH 600 /* at most about 600 bytes of stack each */

/* ---- failing, counting ------------------------------------------------------------- */

void render_fail(struct render *r, enum status st, const char *fmt, ...) {
    char text[sizeof r->err->text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    r->status = err_set(r->err, st, "template line %u: %s", r->line, text);
    longjmp(r->fail, 1);
}

void render_raise(struct render *r, const char *message, size_t len) {
    int n = (int)MIN(len, sizeof r->err->text - 1);
    r->status = err_set(r->err, ST_BAD_INPUT, "%.*s", n, message);
    longjmp(r->fail, 1);
}

void render_spend(struct render *r, size_t n) {
    if (n > MAX_STEPS - r->n_steps)
        render_fail(r, ST_NO_MEMORY, "the template runs for too long (limit: %zu steps)",
                    MAX_STEPS);
    r->n_steps += n;
}

void render_enter(struct render *r) {
    if (++r->depth > MAX_DEPTH)
        render_fail(r, ST_NO_MEMORY, "maximum recursion depth exceeded");
}

void *render_alloc(struct render *r, size_t n, size_t size_bytes, size_t align) {
    size_t bytes;
    void *p = mul_size(n, size_bytes, &bytes) ? arena_alloc(&r->arena, bytes, align) : NULL;
    if (p == NULL)
        render_fail(r, ST_NO_MEMORY, "the template needs too much memory (limit: %zu MiB)",
                    r->arena.limit >> 20);
    return p;
}

/* ---- the output stack --------------------------------------------------------------- */

void out_put(struct render *r, const char *p, size_t n) {
    if (n > MAX_OUTPUT_BYTES - r->n_out)
        render_fail(r, ST_NO_MEMORY, "the template makes too long a text (limit: %zu MiB)",
                    MAX_OUTPUT_BYTES >> 20);
    if (!mem_reserve(&r->out, &r->cap_out, r->n_out + n, 1))
        render_fail(r, ST_NO_MEMORY, "no memory for the rendered text");
    if (n != 0)
        memcpy(r->out + r->n_out, p, n);
    r->n_out += n;
    render_spend(r, n / 32);
}

void out_puts(struct render *r, const char *s) {
    out_put(r, s, strlen(s));
}

void out_char(struct render *r, uint32_t code_point) {
    char buf[4];
    out_put(r, buf, utf8_put(code_point, buf));
}

struct value out_take(struct render *r, size_t mark) {
    if (r->n_out == mark)
        return value_text("", 0);
    struct value v = value_copy(r, r->out + mark, r->n_out - mark);
    r->n_out = mark;
    return v;
}

/* ---- making values -------------------------------------------------------------------- */

struct value value_cstr(const char *s) {
    return value_text(s, strlen(s));
}

struct value value_copy(struct render *r, const char *p, size_t len) {
    if (len == 0)
        return value_text("", 0);
    char *copy = RENDER_ARRAY(r, char, len);
    memcpy(copy, p, len);
    render_spend(r, len / 32);
    return value_text(copy, len);
}

static struct value undefined_new(struct render *r, struct undefined u) {
    struct undefined *copy = RENDER_NEW(r, struct undefined);
    *copy = u;
    return (struct value){.kind = V_UNDEFINED, .missing = copy};
}

struct value value_undefined(struct render *r, struct value sentence) {
    return undefined_new(r, (struct undefined){.why = UNDEFINED_OTHER, .key = sentence});
}

struct value value_missing_member(struct render *r, struct value owner, struct value key) {
    return undefined_new(
        r, (struct undefined){.why = UNDEFINED_MEMBER, .owner = owner, .key = key});
}

struct value value_missing_name(struct render *r, const char *name, size_t len) {
    return undefined_new(
        r, (struct undefined){.why = UNDEFINED_NAME, .key = value_text(name, len)});
}

/* "'tool' is undefined", as a string. */
static struct value undefined_sentence(struct render *r, struct value v) {
    const struct undefined *u = v.missing;
    size_t mark = r->n_out;
    if (u->why == UNDEFINED_OTHER)
        return u->key;
    bool named = u->why == UNDEFINED_NAME || u->key.kind == V_STRING;
    if (u->why == UNDEFINED_MEMBER) {
        out_puts(r, named ? "'" : "");
        out_puts(r, u->owner.kind == V_NONE ? "None" : type_name(u->owner));
        out_puts(r, u->owner.kind == V_NONE ? "" : " object");
        out_puts(r, named ? "' has no attribute " : " has no element ");
    }
    out_repr(r, u->key);
    if (u->why == UNDEFINED_NAME)
        out_puts(r, " is undefined");
    return out_take(r, mark);
}

void undefined_fail(struct render *r, struct value v) {
    struct value s = undefined_sentence(r, v);
    render_fail(r, ST_BAD_INPUT, "%.*s", (int)MIN(s.len, (size_t)400), s.text);
}

struct value seq_new(struct render *r, enum value_kind kind, size_t cap) {
    struct seq *seq = RENDER_NEW(r, struct seq);
    *seq = (struct seq){.items = RENDER_ARRAY(r, struct value, cap), .cap = cap};
    return (struct value){.kind = kind, .seq = seq};
}

void seq_push(struct render *r, struct value v, struct value item) {
    struct seq *seq = v.seq;
    if (seq->n == seq->cap) {
        size_t cap = seq->cap + seq->cap / 2 + 8;
        struct value *items = RENDER_ARRAY(r, struct value, cap);
        if (seq->n != 0)
            memcpy(items, seq->items, seq->n * sizeof *items);
        seq->items = items;
        seq->cap = cap;
    }
    seq->items[seq->n++] = item;
    render_spend(r, 1);
}

struct value pair_new(struct render *r, struct value a, struct value b) {
    struct value pair = seq_new(r, V_TUPLE, 2);
    seq_push(r, pair, a);
    seq_push(r, pair, b);
    return pair;
}

/* ---- dicts -------------------------------------------------------------------------------- */

#define DICT_LINEAR 8 /* up to here a scan is quicker than an index */

static uint32_t hash_bytes(const char *p, size_t n) {
    uint32_t h = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)p[i]) * 16777619u;
    return h;
}

/* Equal keys hash alike: 1, 1.0 and True are one key in Python. */
static uint32_t hash_value(struct render *r, struct value v) {
    switch (v.kind) {
    case V_STRING:
        return hash_bytes(v.text, v.len);
    case V_BOOL:
    case V_INT:
    case V_FLOAT: {
        double d = as_double(v) + 0.0;
        return hash_bytes((const char *)&d, sizeof d);
    }
    case V_NONE:
        return 7;
    case V_TUPLE: {
        uint32_t h = 11;
        render_enter(r);
        for (size_t i = 0; i < v.seq->n; i++)
            h = h * 31 + hash_value(r, v.seq->items[i]);
        render_leave(r);
        return h;
    }
    default:
        render_fail(r, ST_BAD_INPUT, "unhashable type: '%s'", type_name(v));
    }
}

struct value dict_new(struct render *r) {
    struct dict *d = RENDER_NEW(r, struct dict);
    *d = (struct dict){0};
    return (struct value){.kind = V_DICT, .dict = d};
}

static bool entry_matches(struct render *r, const struct dict_entry *e, uint32_t hash,
                          struct value key) {
    return e->hash == hash && value_equal(r, e->key, key);
}

/* The number of the entry, or d->n. */
static size_t dict_lookup(struct render *r, const struct dict *d, struct value key,
                          uint32_t hash) {
    if (d->index == NULL) {
        for (size_t i = 0; i < d->n; i++)
            if (entry_matches(r, &d->entries[i], hash, key))
                return i;
        return d->n;
    }
    for (size_t at = hash & (d->n_index - 1);; at = (at + 1) & (d->n_index - 1)) {
        render_spend(r, 1);
        if (d->index[at] == 0)
            return d->n;
        if (entry_matches(r, &d->entries[d->index[at] - 1], hash, key))
            return d->index[at] - 1;
    }
}

static void dict_index(struct render *r, struct dict *d) {
    d->index = NULL;
    if (d->n < DICT_LINEAR)
        return;
    size_t size = 4 * DICT_LINEAR;
    while (size < d->cap * 2)
        size *= 2;
    d->index = RENDER_ARRAY(r, uint32_t, size);
    d->n_index = size;
    memset(d->index, 0, size * sizeof *d->index);
    for (size_t i = 0; i < d->n; i++) {
        size_t at = d->entries[i].hash & (size - 1);
        while (d->index[at] != 0)
            at = (at + 1) & (size - 1);
        d->index[at] = (uint32_t)(i + 1);
    }
    render_spend(r, d->n);
}

static void dict_grow(struct render *r, struct dict *d) {
    size_t cap = d->cap * 2 + DICT_LINEAR;
    if (cap > UINT32_MAX / 4)
        render_fail(r, ST_NO_MEMORY, "a dict of %zu members is too large", d->n);
    struct dict_entry *entries = RENDER_ARRAY(r, struct dict_entry, cap);
    if (d->n != 0)
        memcpy(entries, d->entries, d->n * sizeof *entries);
    d->entries = entries;
    d->cap = cap;
    dict_index(r, d);
}

void dict_set(struct render *r, struct dict *d, struct value key, struct value v) {
    uint32_t hash = hash_value(r, key);
    size_t i = dict_lookup(r, d, key, hash);
    render_spend(r, 1);
    if (i < d->n) {
        d->entries[i].value = v;
        return;
    }
    if (d->n == d->cap)
        dict_grow(r, d);
    d->entries[d->n++] = (struct dict_entry){key, v, hash};
    if (d->index == NULL) {
        dict_index(r, d);
        return;
    }
    size_t at = hash & (d->n_index - 1);
    while (d->index[at] != 0)
        at = (at + 1) & (d->n_index - 1);
    d->index[at] = (uint32_t)d->n;
}

struct value *dict_get(struct render *r, const struct dict *d, struct value key) {
    size_t i = dict_lookup(r, d, key, hash_value(r, key));
    return i < d->n ? &d->entries[i].value : NULL;
}

struct value *dict_get_text(struct render *r, const struct dict *d, const char *p, size_t len) {
    return dict_get(r, d, value_text(p, len));
}

bool dict_delete(struct render *r, struct dict *d, struct value key) {
    size_t i = dict_lookup(r, d, key, hash_value(r, key));
    if (i == d->n)
        return false;
    memmove(&d->entries[i], &d->entries[i + 1], (d->n - i - 1) * sizeof *d->entries);
    d->n--;
    render_spend(r, d->n);
    dict_index(r, d);
    return true;
}

/* ---- JSON ------------------------------------------------------------------------------- */

static struct value dict_from_json(struct render *r, const json_t *j) {
    struct value v = dict_new(r);
    json_t *object = (json_t *)j; /* jansson iterates only what is not const */
    for (void *it = json_object_iter(object); it != NULL;
         it = json_object_iter_next(object, it))
        dict_set(r, v.dict, value_text(json_object_iter_key(it), json_object_iter_key_len(it)),
                 value_from_json(r, json_object_iter_value(it)));
    return v;
}

static struct value list_from_json(struct render *r, const json_t *j) {
    size_t n = json_array_size(j);
    struct value v = seq_new(r, V_LIST, n);
    for (size_t i = 0; i < n; i++)
        seq_push(r, v, value_from_json(r, json_array_get(j, i)));
    return v;
}

struct value value_from_json(struct render *r, const json_t *j) {
    render_enter(r);
    struct value v = value_none();
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        v = dict_from_json(r, j);
        break;
    case JSON_ARRAY:
        v = list_from_json(r, j);
        break;
    case JSON_STRING:
        v = value_text(json_string_value(j), json_string_length(j));
        break;
    case JSON_INTEGER:
        v = value_int(json_integer_value(j));
        break;
    case JSON_REAL:
        v = value_float(json_real_value(j));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        v = value_bool(json_is_true(j));
        break;
    case JSON_NULL:
        break;
    }
    render_leave(r);
    return v;
}

/* ---- reading values ----------------------------------------------------------------- */

const char *type_name(struct value v) {
    static const char *const names[] = {
        [V_MISSING] = "missing",
        [V_UNDEFINED] = "Undefined",
        [V_NONE] = "NoneType",
        [V_BOOL] = "bool",
        [V_INT] = "int",
        [V_FLOAT] = "float",
        [V_STRING] = "str",
        [V_LIST] = "list",
        [V_TUPLE] = "tuple",
        [V_RANGE] = "range",
        [V_GENERATOR] = "generator",
        [V_DICT] = "dict",
        [V_NAMESPACE] = "Namespace",
        [V_LOOP] = "LoopContext",
        [V_MACRO] = "Macro",
        [V_BUILTIN] = "function",
        [V_METHOD] = "builtin_function_or_method",
        [V_CYCLER] = "Cycler",
        [V_JOINER] = "Joiner",
    };
    if (v.kind == V_VIEW)
        return v.seq->label;
    if (v.kind == V_STRING && v.safe)
        return "Markup";
    return names[v.kind];
}

bool value_truth(struct value v) {
    switch (v.kind) {
    case V_MISSING:
    case V_UNDEFINED:
    case V_NONE:
        return false;
    case V_BOOL:
        return v.boolean;
    case V_INT:
        return v.integer != 0;
    case V_FLOAT:
        return v.number != 0;
    case V_STRING:
        return v.len != 0;
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
    case V_VIEW:
        return v.seq->n != 0;
    case V_DICT:
        return v.dict->n != 0;
    default:
        return true;
    }
}

static bool seq_equal(struct render *r, const struct seq *a, const struct seq *b) {
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!value_equal(r, a->items[i], b->items[i]))
            return false;
    return true;
}

static bool dict_equal(struct render *r, const struct dict *a, const struct dict *b) {
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct value *other = dict_get(r, b, a->entries[i].key);
        if (other == NULL || !value_equal(r, a->entries[i].value, *other))
            return false;
    }
    return true;
}

bool value_equal(struct render *r, struct value a, struct value b) {
    render_spend(r, 1);
    if (is_number(a) && is_number(b)) {
        if (is_integral(a) && is_integral(b))
            return as_int(a) == as_int(b);
        return as_double(a) == as_double(b);
    }
    if (a.kind != b.kind)
        return false;
    bool equal;
    switch (a.kind) {
    case V_UNDEFINED:
    case V_NONE:
        return true;
    case V_STRING:
        render_spend(r, MIN(a.len, b.len) / 32);
        return a.len == b.len && memcmp(a.text, b.text, a.len) == 0;
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
    case V_VIEW:
        render_enter(r);
        equal = seq_equal(r, a.seq, b.seq);
        render_leave(r);
        return equal;
    case V_DICT:
        render_enter(r);
        equal = dict_equal(r, a.dict, b.dict);
        render_leave(r);
        return equal;
    default:
        return a.seq == b.seq; /* identity: any of the pointers */
    }
}

static int compare_sequences(struct render *r, const struct seq *a, const struct seq *b,
                             const char *op) {
    for (size_t i = 0; i < MIN(a->n, b->n); i++)
        if (!value_equal(r, a->items[i], b->items[i]))
            return value_compare(r, a->items[i], b->items[i], op);
    return (a->n > b->n) - (a->n < b->n);
}

int value_compare(struct render *r, struct value a, struct value b, const char *op) {
    render_spend(r, 1);
    if (is_integral(a) && is_integral(b))
        return (as_int(a) > as_int(b)) - (as_int(a) < as_int(b));
    if (is_number(a) && is_number(b))
        return (as_double(a) > as_double(b)) - (as_double(a) < as_double(b));
    if (a.kind == V_STRING && b.kind == V_STRING) {
        /* UTF-8 sorts as its code points do. */
        int c = memcmp(a.text, b.text, MIN(a.len, b.len));
        return c != 0 ? c : (a.len > b.len) - (a.len < b.len);
    }
    if (a.kind == b.kind && (a.kind == V_LIST || a.kind == V_TUPLE)) {
        render_enter(r);
        int c = compare_sequences(r, a.seq, b.seq, op);
        render_leave(r);
        return c;
    }
    if (a.kind == V_UNDEFINED)
        undefined_fail(r, a);
    if (b.kind == V_UNDEFINED)
        undefined_fail(r, b);
    render_fail(r, ST_BAD_INPUT, "'%s' not supported between instances of '%s' and '%s'", op,
                type_name(a), type_name(b));
}

bool value_contains(struct render *r, struct value container, struct value item) {
    switch (container.kind) {
    case V_STRING:
        if (item.kind == V_UNDEFINED)
            undefined_fail(r, item);
        if (item.kind != V_STRING)
            render_fail(r, ST_BAD_INPUT,
                        "'in <string>' requires string as left operand, not %s",
                        type_name(item));
        render_spend(r, container.len / 32);
        return text_find(container, item, 0) != SIZE_MAX;
    case V_DICT:
        return dict_get(r, container.dict, item) != NULL;
    case V_UNDEFINED:
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
    case V_VIEW:
    case V_GENERATOR: {
        const struct seq *seq = value_iterate(r, container);
        for (size_t i = 0; i < seq->n; i++)
            if (value_equal(r, seq->items[i], item))
                return true;
        return false;
    }
    default:
        render_fail(r, ST_BAD_INPUT, "argument of type '%s' is not iterable",
                    type_name(container));
    }
}

size_t value_length(struct render *r, struct value v) {
    switch (v.kind) {
    case V_UNDEFINED:
        return 0;
    case V_STRING:
        render_spend(r, v.len / 8);
        return utf8_count(v.text, v.len);
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
    case V_VIEW:
        return v.seq->n;
    case V_DICT:
        return v.dict->n;
    default:
        render_fail(r, ST_BAD_INPUT, "object of type '%s' has no len()", type_name(v));
    }
}

static struct seq *characters(struct render *r, struct value s) {
    struct value list = seq_new(r, V_LIST, utf8_count(s.text, s.len));
    for (size_t at = 0, n; at < s.len; at += n) {
        uint32_t code_point;
        n = utf8_get(s.text + at, s.text + s.len, &code_point);
        seq_push(r, list, value_text(s.text + at, n));
    }
    return list.seq;
}

static struct seq *drain(struct render *r, struct seq *generator) {
    struct value rest = seq_new(r, V_LIST, generator->n - generator->pos);
    while (generator->pos < generator->n)
        seq_push(r, rest, generator->items[generator->pos++]);
    return rest.seq;
}

struct seq *value_iterate(struct render *r, struct value v) {
    switch (v.kind) {
    case V_UNDEFINED:
        return seq_new(r, V_LIST, 0).seq;
    case V_STRING:
        return characters(r, v);
    case V_LIST:
    case V_TUPLE:
    case V_RANGE:
    case V_VIEW:
        return v.seq;
    case V_GENERATOR:
        return drain(r, v.seq);
    case V_DICT: {
        struct value keys = seq_new(r, V_LIST, v.dict->n);
        for (size_t i = 0; i < v.dict->n; i++)
            seq_push(r, keys, v.dict->entries[i].key);
        return keys.seq;
    }
    default:
        render_fail(r, ST_BAD_INPUT, "'%s' object is not iterable", type_name(v));
    }
}

int64_t need_int(struct render *r, struct value v) {
    if (v.kind == V_UNDEFINED)
        undefined_fail(r, v);
    if (!is_integral(v))
        render_fail(r, ST_BAD_INPUT, "'%s' object cannot be interpreted as an integer",
                    type_name(v));
    return as_int(v);
}

struct value need_text(struct render *r, struct value v) {
    if (v.kind == V_UNDEFINED)
        undefined_fail(r, v);
    if (v.kind != V_STRING)
        render_fail(r, ST_BAD_INPUT, "expected a string, not '%s'", type_name(v));
    return v;
}
