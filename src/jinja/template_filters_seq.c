/* template_filters_seq.c: filters on sequences and dicts. Jinja computes some of them lazily;
 * here they are computed at once. To the template they still are generators: always true,
 * without a length, read once. */
#include "jinja/template_filters.h"

/* ---- sorting ------------------------------------------------------------------------------- */

struct sort_item {
    struct value key, value;
};

static bool is_given(struct value v) { /* none is as good as nothing, in Jinja */
    return v.kind != V_MISSING && v.kind != V_NONE;
}

static struct value sort_key(struct render *r, struct value v, const struct sort_order *order) {
    struct value key = is_given(order->attribute) ? value_path(r, v, order->attribute) : v;
    if (key.kind == V_UNDEFINED && is_given(order->otherwise))
        key = order->otherwise;
    if (key.kind == V_STRING && !order->case_sensitive)
        key = text_change_case(r, key, CASE_LOWER);
    return key;
}

/* Merge sort, from `a` to `a` through `spare`. Reverse keeps equal items in order too. */
static void merge_sort(struct render *r, struct sort_item *a, struct sort_item *spare, size_t n,
                       bool reverse) {
    if (n < 2)
        return;
    size_t half = n / 2, i = 0, k = half;
    merge_sort(r, a, spare, half, reverse);
    merge_sort(r, a + half, spare, n - half, reverse);
    for (size_t at = 0; at < n; at++) {
        bool left;
        if (i == half || k == n)
            left = k == n;
        else if (reverse)
            left = value_compare(r, a[i].key, a[k].key, "<") >= 0;
        else
            left = value_compare(r, a[k].key, a[i].key, "<") >= 0;
        spare[at] = left ? a[i++] : a[k++];
    }
    memcpy(a, spare, n * sizeof *a);
}

void seq_sort(struct render *r, struct seq *seq, const struct sort_order *order) {
    struct sort_item *items = RENDER_ARRAY(r, struct sort_item, seq->n);
    struct sort_item *spare = RENDER_ARRAY(r, struct sort_item, seq->n);
    for (size_t i = 0; i < seq->n; i++)
        items[i] = (struct sort_item){sort_key(r, seq->items[i], order), seq->items[i]};
    merge_sort(r, items, spare, seq->n, order->reverse);
    for (size_t i = 0; i < seq->n; i++)
        seq->items[i] = items[i].value;
}

static struct value copy_list(struct render *r, struct value v, enum value_kind kind) {
    const struct seq *items = value_iterate(r, v);
    struct value list = seq_new(r, kind, items->n);
    for (size_t i = 0; i < items->n; i++)
        seq_push(r, list, items->items[i]);
    return list;
}

static struct value f_sort(struct render *r, struct value v, struct call *call) {
    struct value list = copy_list(r, v, V_LIST);
    struct sort_order order = {.reverse = arg_truth(call, 0, false),
                               .case_sensitive = arg_truth(call, 1, false),
                               .attribute = call->arg[2]};
    seq_sort(r, list.seq, &order);
    return list;
}

static struct value dict_pairs(struct render *r, const struct dict *d, enum value_kind kind) {
    struct value list = seq_new(r, kind, d->n);
    for (size_t i = 0; i < d->n; i++)
        seq_push(r, list, pair_new(r, d->entries[i].key, d->entries[i].value));
    return list;
}

static struct value f_dictsort(struct render *r, struct value v, struct call *call) {
    if (v.kind == V_UNDEFINED)
        undefined_fail(r, v);
    if (v.kind != V_DICT)
        render_fail(r, ST_BAD_INPUT, "'%s object' has no attribute 'items'", type_name(v));
    struct value by = arg_or(call, 1, value_cstr("key"));
    if (!text_is(by, "key") && !text_is(by, "value"))
        render_fail(r, ST_BAD_INPUT, "You can only sort by either \"key\" or \"value\"");
    struct value list = dict_pairs(r, v.dict, V_LIST);
    struct sort_order order = {.attribute = value_int(text_is(by, "value")),
                               .case_sensitive = arg_truth(call, 0, false),
                               .reverse = arg_truth(call, 2, false)};
    seq_sort(r, list.seq, &order);
    return list;
}

/* ---- making lists ------------------------------------------------------------------------- */

static struct value f_list(struct render *r, struct value v, struct call *call) {
    (void)call;
    return copy_list(r, v, V_LIST);
}

static struct value f_items(struct render *r, struct value v, struct call *call) {
    (void)call;
    if (v.kind == V_UNDEFINED)
        return seq_new(r, V_GENERATOR, 0);
    if (v.kind != V_DICT)
        render_fail(r, ST_BAD_INPUT, "Can only get item pairs from a mapping.");
    return dict_pairs(r, v.dict, V_GENERATOR);
}

static struct value f_reverse(struct render *r, struct value v, struct call *call) {
    (void)call;
    struct value items = copy_list(r, v, V_GENERATOR);
    for (size_t i = 0; i < items.seq->n / 2; i++) {
        struct value *a = &items.seq->items[i], *b = &items.seq->items[items.seq->n - 1 - i];
        struct value kept = *a;
        *a = *b;
        *b = kept;
    }
    if (v.kind != V_STRING)
        return items;
    size_t mark = r->n_out;
    for (size_t i = 0; i < items.seq->n; i++)
        out_value(r, items.seq->items[i]);
    return out_take(r, mark);
}

static struct value f_unique(struct render *r, struct value v, struct call *call) {
    const struct seq *items = value_iterate(r, v);
    struct value seen = dict_new(r), list = seq_new(r, V_GENERATOR, 0);
    struct sort_order order = {.case_sensitive = arg_truth(call, 0, false),
                               .attribute = call->arg[1]};
    for (size_t i = 0; i < items->n; i++) {
        struct value key = sort_key(r, items->items[i], &order);
        if (dict_get(r, seen.dict, key) != NULL)
            continue;
        dict_set(r, seen.dict, key, value_none());
        seq_push(r, list, items->items[i]);
    }
    return list;
}

static struct value f_batch(struct render *r, struct value v, struct call *call) {
    const struct seq *items = value_iterate(r, v);
    struct value list = seq_new(r, V_GENERATOR, 0), row = value_none();
    int64_t width = arg_int(r, call, 0, 1);
    for (size_t i = 0; i < items->n; i++) {
        if (row.kind == V_NONE || (int64_t)row.seq->n == width) {
            row = seq_new(r, V_LIST, 0);
            seq_push(r, list, row);
        }
        seq_push(r, row, items->items[i]);
    }
    bool fill = row.kind != V_NONE && arg_or(call, 1, value_none()).kind != V_NONE;
    while (fill && (int64_t)row.seq->n < width)
        seq_push(r, row, call->arg[1]);
    return list;
}

/* slice(n, fill_with): n columns, the first ones longer. */
static struct value f_slice(struct render *r, struct value v, struct call *call) {
    const struct seq *items = value_iterate(r, v);
    struct value list = seq_new(r, V_GENERATOR, 0);
    int64_t n = arg_int(r, call, 0, 1);
    if (n <= 0)
        render_fail(r, ST_BAD_INPUT, "slice: the number of slices must be positive");
    size_t each = items->n / (size_t)n, longer = items->n % (size_t)n, at = 0;
    for (size_t k = 0; k < (size_t)n; k++) {
        struct value column = seq_new(r, V_LIST, 0);
        for (size_t i = 0; i < each + (k < longer); i++)
            seq_push(r, column, items->items[at++]);
        if (k >= longer && longer != 0 && arg_or(call, 1, value_none()).kind != V_NONE)
            seq_push(r, column, call->arg[1]);
        seq_push(r, list, column);
    }
    return list;
}

/* Groups are compared as they are sorted, without regard to case. A group's name is the key of
 * its first item, unchanged. */
static struct value f_groupby(struct render *r, struct value v, struct call *call) {
    static const char *const names[] = {"grouper", "list"};
    struct value sorted = copy_list(r, v, V_LIST), groups = seq_new(r, V_LIST, 0);
    struct value last = value_none(), members = value_none();
    struct sort_order order = {.attribute = call->arg[0],
                               .otherwise = call->arg[1],
                               .case_sensitive = arg_truth(call, 2, false)};
    struct sort_order as_it_stands = order;
    as_it_stands.case_sensitive = true;
    seq_sort(r, sorted.seq, &order);
    for (size_t i = 0; i < sorted.seq->n; i++) {
        struct value item = sorted.seq->items[i], key = sort_key(r, item, &order);
        if (i == 0 || !value_equal(r, last, key)) {
            last = key;
            members = seq_new(r, V_LIST, 0);
            struct value group = pair_new(r, sort_key(r, item, &as_it_stands), members);
            group.seq->names = names;
            seq_push(r, groups, group);
        }
        seq_push(r, members, item);
    }
    return groups;
}

/* ---- one value of many ---------------------------------------------------------------------- */

static struct value f_first(struct render *r, struct value v, struct call *call) {
    (void)call;
    const struct seq *items = value_iterate(r, v);
    return items->n > 0 ? items->items[0]
                        : value_undefined(r, value_cstr("No first item, sequence was empty."));
}

static struct value f_last(struct render *r, struct value v, struct call *call) {
    (void)call;
    const struct seq *items = value_iterate(r, v);
    return items->n > 0 ? items->items[items->n - 1]
                        : value_undefined(r, value_cstr("No last item, sequence was empty."));
}

static struct value f_join(struct render *r, struct value v, struct call *call) {
    const struct seq *items = value_iterate(r, v);
    struct value separator = value_str(r, arg_or(call, 0, value_text("", 0)));
    struct value attribute = arg_or(call, 1, value_none());
    size_t mark = r->n_out;
    for (size_t i = 0; i < items->n; i++) {
        struct value item = items->items[i];
        if (attribute.kind != V_NONE)
            item = value_path(r, item, attribute);
        if (i > 0)
            out_put(r, separator.text, separator.len);
        out_value(r, item);
    }
    return out_take(r, mark);
}

static struct value f_sum(struct render *r, struct value v, struct call *call) {
    const struct seq *items = value_iterate(r, v);
    struct value attribute = arg_or(call, 0, value_none());
    struct value total = arg_or(call, 1, value_int(0));
    for (size_t i = 0; i < items->n; i++) {
        struct value item = items->items[i];
        if (attribute.kind != V_NONE)
            item = value_path(r, item, attribute);
        if (!is_number(item) || !is_number(total))
            render_fail(r, ST_BAD_INPUT, "unsupported operand type(s) for +: '%s' and '%s'",
                        type_name(total), type_name(item));
        int64_t sum;
        if (total.kind == V_FLOAT || item.kind == V_FLOAT)
            total = value_float(as_double(total) + as_double(item));
        else if (!__builtin_add_overflow(as_int(total), as_int(item), &sum))
            total = value_int(sum);
        else
            render_fail(r, ST_UNSUPPORTED, "an integer has more than 63 bits");
    }
    return total;
}

static struct value extreme(struct render *r, struct value v, const struct call *call,
                            int sign) {
    const struct seq *items = value_iterate(r, v);
    struct sort_order order = {.case_sensitive = arg_truth(call, 0, false),
                               .attribute = call->arg[1]};
    if (items->n == 0)
        return value_undefined(r, value_cstr("No aggregated item, sequence was empty."));
    struct value best = items->items[0];
    for (size_t i = 1; i < items->n; i++) {
        struct value a = sort_key(r, items->items[i], &order), b = sort_key(r, best, &order);
        if (value_compare(r, a, b, sign < 0 ? "<" : ">") * sign > 0)
            best = items->items[i];
    }
    return best;
}

static struct value f_min(struct render *r, struct value v, struct call *call) {
    return extreme(r, v, call, -1);
}

static struct value f_max(struct render *r, struct value v, struct call *call) {
    return extreme(r, v, call, 1);
}

/* ---- map, select, reject -------------------------------------------------------------------- */

static const struct value *find_kw(const struct call *call, const char *name) {
    for (size_t i = 0; i < call->n_kw; i++)
        if (text_is(value_text(call->kw[i].name, call->kw[i].len), name))
            return &call->kw[i].value;
    return NULL;
}

/* The call without its first n positional arguments: what goes to the filter or test. */
static struct call call_rest(const struct call *call, size_t n) {
    struct call rest = {.kw = call->kw, .n_kw = call->n_kw};
    if (call->n_pos > n) {
        rest.pos = call->pos + n;
        rest.n_pos = call->n_pos - n;
    }
    return rest;
}

/* These filters take none and false for an empty list. */
static const struct seq *iterate_if_true(struct render *r, struct value v) {
    return value_truth(v) ? value_iterate(r, v) : seq_new(r, V_LIST, 0).seq;
}

static struct value f_map(struct render *r, struct value v, struct call *call) {
    const struct seq *items = iterate_if_true(r, v);
    struct value list = seq_new(r, V_GENERATOR, items->n);
    const struct value *attribute = call->n_pos == 0 ? find_kw(call, "attribute") : NULL;
    const struct value *otherwise = find_kw(call, "default");
    if (attribute != NULL) {
        for (size_t i = 0; i < items->n; i++) {
            struct value item = value_path(r, items->items[i], *attribute);
            bool missing = item.kind == V_UNDEFINED && otherwise != NULL;
            seq_push(r, list, missing ? *otherwise : item);
        }
        return list;
    }
    if (call->n_pos == 0)
        render_fail(r, ST_BAD_INPUT, "map requires a filter argument");
    struct value name = need_text(r, call->pos[0]);
    const struct builtin *filter = filter_find(name.text, name.len);
    if (filter == NULL)
        render_fail(r, ST_UNSUPPORTED, "No filter named '%.*s' found.",
                    (int)MIN(name.len, (size_t)60), name.text);
    render_enter(r); /* a filter may be map itself */
    for (size_t i = 0; i < items->n; i++) {
        struct call rest = call_rest(call, 1);
        seq_push(r, list, builtin_call(r, filter, items->items[i], &rest));
    }
    render_leave(r);
    return list;
}

/* select, reject (with_attribute: selectattr, rejectattr): keeps the items for which the test
 * gives `keep`. */
static struct value choose(struct render *r, struct value v, const struct call *call,
                           bool with_attribute, bool keep) {
    const struct seq *items = iterate_if_true(r, v);
    struct value list = seq_new(r, V_GENERATOR, items->n);
    const struct builtin *test = NULL;
    if (with_attribute && call->n_pos == 0)
        render_fail(r, ST_BAD_INPUT, "selectattr and rejectattr require an attribute");
    if (call->n_pos > with_attribute) {
        struct value name = need_text(r, call->pos[with_attribute]);
        test = test_find(name.text, name.len);
        if (test == NULL)
            render_fail(r, ST_UNSUPPORTED, "No test named '%.*s' found.",
                        (int)MIN(name.len, (size_t)60), name.text);
    }
    for (size_t i = 0; i < items->n; i++) {
        struct value subject = items->items[i];
        if (with_attribute)
            subject = value_path(r, subject, call->pos[0]);
        struct call rest = call_rest(call, 1u + with_attribute);
        bool passes =
            value_truth(test != NULL ? builtin_call(r, test, subject, &rest) : subject);
        if (passes == keep)
            seq_push(r, list, items->items[i]);
    }
    return list;
}

static struct value f_select(struct render *r, struct value v, struct call *call) {
    return choose(r, v, call, false, true);
}

static struct value f_reject(struct render *r, struct value v, struct call *call) {
    return choose(r, v, call, false, false);
}

static struct value f_selectattr(struct render *r, struct value v, struct call *call) {
    return choose(r, v, call, true, true);
}

static struct value f_rejectattr(struct render *r, struct value v, struct call *call) {
    return choose(r, v, call, true, false);
}

const struct builtin sequence_filters[] = {
    {"join", "d,attribute", 0, f_join},
    {"list", "", 0, f_list},
    {"items", "", 0, f_items},
    {"map", NULL, 0, f_map},
    {"select", NULL, 0, f_select},
    {"reject", NULL, 0, f_reject},
    {"selectattr", NULL, 0, f_selectattr},
    {"rejectattr", NULL, 0, f_rejectattr},
    {"first", "", 0, f_first},
    {"last", "", 0, f_last},
    {"sort", "reverse,case_sensitive,attribute", 0, f_sort},
    {"dictsort", "case_sensitive,by,reverse", 0, f_dictsort},
    {"reverse", "", 0, f_reverse},
    {"unique", "case_sensitive,attribute", 0, f_unique},
    {"batch", "linecount,fill_with", 1, f_batch},
    {"slice", "slices,fill_with", 1, f_slice},
    {"groupby", "attribute,default,case_sensitive", 1, f_groupby},
    {"sum", "attribute,start", 0, f_sum},
    {"min", "case_sensitive,attribute", 0, f_min},
    {"max", "case_sensitive,attribute", 0, f_max},
};
const size_t n_sequence_filters = ARRAY_LEN(sequence_filters);
