/* template_methods_seq.c: methods of lists, dicts, loops and cyclers. */
#include "jinja/template_filters.h"
#include "jinja/template_methods.h"
#include "jinja/template_run.h"

/* ---- lists ------------------------------------------------------------------------------- */

static struct value m_append(struct render *r, struct value v, struct call *call) {
    seq_push(r, v, call->arg[0]);
    return value_none();
}

static struct value m_extend(struct render *r, struct value v, struct call *call) {
    const struct seq *items = value_iterate(r, call->arg[0]);
    for (size_t i = 0, n = items->n; i < n; i++) /* n: a list may extend itself */
        seq_push(r, v, items->items[i]);
    return value_none();
}

static struct value m_insert(struct render *r, struct value v, struct call *call) {
    int64_t n = (int64_t)v.seq->n, i = need_int(r, call->arg[0]);
    i = i < 0 ? MAX(i + n, (int64_t)0) : MIN(i, n);
    seq_push(r, v, value_none());
    struct value *at = v.seq->items + i;
    memmove(at + 1, at, (size_t)(n - i) * sizeof *at);
    *at = call->arg[1];
    render_spend(r, (size_t)(n - i) / 2);
    return value_none();
}

static struct value remove_at(struct render *r, struct seq *seq, size_t i) {
    struct value item = seq->items[i];
    seq->n--;
    memmove(&seq->items[i], &seq->items[i + 1], (seq->n - i) * sizeof *seq->items);
    render_spend(r, (seq->n - i) / 2);
    return item;
}

static struct value m_list_pop(struct render *r, struct value v, struct call *call) {
    int64_t n = (int64_t)v.seq->n, i = arg_int(r, call, 0, -1);
    i += i < 0 ? n : 0;
    if (i < 0 || i >= n)
        render_fail(r, ST_BAD_INPUT, n == 0 ? "pop from empty list" : "pop index out of range");
    return remove_at(r, v.seq, (size_t)i);
}

/* The index of arg[0], or n. */
static size_t index_of(struct render *r, const struct seq *seq, struct value item) {
    for (size_t i = 0; i < seq->n; i++)
        if (value_equal(r, seq->items[i], item))
            return i;
    return seq->n;
}

static struct value m_remove(struct render *r, struct value v, struct call *call) {
    size_t i = index_of(r, v.seq, call->arg[0]);
    if (i == v.seq->n)
        render_fail(r, ST_BAD_INPUT, "list.remove(x): x not in list");
    remove_at(r, v.seq, i);
    return value_none();
}

static struct value m_list_index(struct render *r, struct value v, struct call *call) {
    size_t i = index_of(r, v.seq, call->arg[0]);
    if (i == v.seq->n)
        render_fail(r, ST_BAD_INPUT, "the value is not in the list");
    return value_int((int64_t)i);
}

static struct value m_list_count(struct render *r, struct value v, struct call *call) {
    int64_t n = 0;
    for (size_t i = 0; i < v.seq->n; i++)
        n += value_equal(r, v.seq->items[i], call->arg[0]);
    return value_int(n);
}

static struct value m_list_clear(struct render *r, struct value v, struct call *call) {
    (void)r;
    (void)call;
    v.seq->n = 0;
    return value_none();
}

static struct value m_list_copy(struct render *r, struct value v, struct call *call) {
    (void)call;
    struct value copy = seq_new(r, V_LIST, v.seq->n);
    for (size_t i = 0; i < v.seq->n; i++)
        seq_push(r, copy, v.seq->items[i]);
    return copy;
}

static struct value m_list_reverse(struct render *r, struct value v, struct call *call) {
    (void)call;
    for (size_t i = 0, n = v.seq->n; i < n / 2; i++) {
        struct value kept = v.seq->items[i];
        v.seq->items[i] = v.seq->items[n - 1 - i];
        v.seq->items[n - 1 - i] = kept;
    }
    render_spend(r, v.seq->n / 4);
    return value_none();
}

static struct value m_list_sort(struct render *r, struct value v, struct call *call) {
    struct sort_order order = {.case_sensitive = true,
                               .reverse = arg_truth(call, 0, false),
                               .attribute = {.kind = V_MISSING}};
    seq_sort(r, v.seq, &order);
    return value_none();
}

const struct builtin list_methods[] = {
    {"append", "item", 1, m_append},       {"extend", "items", 1, m_extend},
    {"insert", "index,item", 2, m_insert}, {"pop", "index", 0, m_list_pop},
    {"remove", "item", 1, m_remove},       {"index", "item", 1, m_list_index},
    {"count", "item", 1, m_list_count},    {"clear", "", 0, m_list_clear},
    {"copy", "", 0, m_list_copy},          {"reverse", "", 0, m_list_reverse},
    {"sort", "reverse", 0, m_list_sort},
};
const size_t n_list_methods = ARRAY_LEN(list_methods);

const struct builtin tuple_methods[] = {
    {"index", "item", 1, m_list_index},
    {"count", "item", 1, m_list_count},
};
const size_t n_tuple_methods = ARRAY_LEN(tuple_methods);

/* ---- dicts -------------------------------------------------------------------------------- */

static struct value m_get(struct render *r, struct value v, struct call *call) {
    const struct value *item = dict_get(r, v.dict, call->arg[0]);
    return item != NULL ? *item : arg_or(call, 1, value_none());
}

static struct value view_new(struct render *r, const struct dict *d, const char *label) {
    struct value view = seq_new(r, V_VIEW, d->n);
    view.seq->label = label;
    return view;
}

static struct value m_keys(struct render *r, struct value v, struct call *call) {
    (void)call;
    struct value view = view_new(r, v.dict, "dict_keys");
    for (size_t i = 0; i < v.dict->n; i++)
        seq_push(r, view, v.dict->entries[i].key);
    return view;
}

static struct value m_values(struct render *r, struct value v, struct call *call) {
    (void)call;
    struct value view = view_new(r, v.dict, "dict_values");
    for (size_t i = 0; i < v.dict->n; i++)
        seq_push(r, view, v.dict->entries[i].value);
    return view;
}

static struct value m_items(struct render *r, struct value v, struct call *call) {
    (void)call;
    struct value view = view_new(r, v.dict, "dict_items");
    for (size_t i = 0; i < v.dict->n; i++)
        seq_push(r, view, pair_new(r, v.dict->entries[i].key, v.dict->entries[i].value));
    return view;
}

static struct value m_dict_pop(struct render *r, struct value v, struct call *call) {
    const struct value *item = dict_get(r, v.dict, call->arg[0]);
    if (item == NULL && call->arg[1].kind != V_MISSING)
        return call->arg[1];
    if (item == NULL)
        render_fail(r, ST_BAD_INPUT, "dict.pop: there is no such key");
    struct value kept = *item;
    dict_delete(r, v.dict, call->arg[0]);
    return kept;
}

static struct value m_setdefault(struct render *r, struct value v, struct call *call) {
    const struct value *item = dict_get(r, v.dict, call->arg[0]);
    if (item != NULL)
        return *item;
    dict_set(r, v.dict, call->arg[0], arg_or(call, 1, value_none()));
    return arg_or(call, 1, value_none());
}

static struct value m_update(struct render *r, struct value v, struct call *call) {
    if (call->n_pos > 1 || (call->n_pos == 1 && call->pos[0].kind != V_DICT))
        render_fail(r, ST_BAD_INPUT, "dict.update takes a dict");
    if (call->n_pos == 1) {
        const struct dict *from = call->pos[0].dict;
        for (size_t i = 0, n = from->n; i < n; i++)
            dict_set(r, v.dict, from->entries[i].key, from->entries[i].value);
    }
    for (size_t i = 0; i < call->n_kw; i++)
        dict_set(r, v.dict, value_text(call->kw[i].name, call->kw[i].len), call->kw[i].value);
    return value_none();
}

static struct value m_dict_clear(struct render *r, struct value v, struct call *call) {
    (void)r;
    (void)call;
    *v.dict = (struct dict){0};
    return value_none();
}

static struct value m_dict_copy(struct render *r, struct value v, struct call *call) {
    (void)call;
    struct value copy = dict_new(r);
    for (size_t i = 0; i < v.dict->n; i++)
        dict_set(r, copy.dict, v.dict->entries[i].key, v.dict->entries[i].value);
    return copy;
}

const struct builtin dict_methods[] = {
    {"get", "key,default", 1, m_get},
    {"items", "", 0, m_items},
    {"keys", "", 0, m_keys},
    {"values", "", 0, m_values},
    {"pop", "key,default", 1, m_dict_pop},
    {"setdefault", "key,default", 1, m_setdefault},
    {"update", NULL, 0, m_update},
    {"clear", "", 0, m_dict_clear},
    {"copy", "", 0, m_dict_copy},
};
const size_t n_dict_methods = ARRAY_LEN(dict_methods);

/* ---- loops, cyclers ------------------------------------------------------------------------ */

static struct value m_cycle(struct render *r, struct value v, struct call *call) {
    if (call->n_pos == 0)
        render_fail(r, ST_BAD_INPUT, "no items for cycling given");
    return call->pos[v.loop->i % call->n_pos];
}

/* Whether the arguments differ from those of the last call. */
static struct value m_changed(struct render *r, struct value v, struct call *call) {
    struct value now = seq_new(r, V_TUPLE, call->n_pos);
    for (size_t i = 0; i < call->n_pos; i++)
        seq_push(r, now, call->pos[i]);
    bool same = v.loop->changed.kind == V_TUPLE && value_equal(r, v.loop->changed, now);
    v.loop->changed = now;
    return value_bool(!same);
}

const struct builtin loop_methods[] = {
    {"cycle", NULL, 0, m_cycle},
    {"changed", NULL, 0, m_changed},
};
const size_t n_loop_methods = ARRAY_LEN(loop_methods);

static struct value m_next(struct render *r, struct value v, struct call *call) {
    (void)r;
    (void)call;
    struct value item = v.seq->items[v.seq->pos];
    v.seq->pos = (v.seq->pos + 1) % v.seq->n;
    return item;
}

static struct value m_reset(struct render *r, struct value v, struct call *call) {
    (void)r;
    (void)call;
    v.seq->pos = 0;
    return value_none();
}

const struct builtin cycler_methods[] = {
    {"next", "", 0, m_next},
    {"reset", "", 0, m_reset},
};
const size_t n_cycler_methods = ARRAY_LEN(cycler_methods);
