/* template_eval.c: evaluates the expressions of a template. */
#include "jinja/template_run.h"

#include "base/exact.h"

#include <math.h>

/* ---- numbers ------------------------------------------------------------------------------- */

static _Noreturn void fail_operands(struct render *r, const char *op, struct value a,
                                    struct value b) {
    if (a.kind == V_UNDEFINED)
        undefined_fail(r, a);
    if (b.kind == V_UNDEFINED)
        undefined_fail(r, b);
    if (*op == '+' && a.kind == V_STRING)
        render_fail(r, ST_BAD_INPUT, "can only concatenate str (not \"%s\") to str",
                    type_name(b));
    if (*op == '+' && a.kind == V_LIST)
        render_fail(r, ST_BAD_INPUT, "can only concatenate list (not \"%s\") to list",
                    type_name(b));
    render_fail(r, ST_BAD_INPUT, "unsupported operand type(s) for %s: '%s' and '%s'", op,
                type_name(a), type_name(b));
}

static _Noreturn void fail_overflow(struct render *r) {
    render_fail(r, ST_UNSUPPORTED, "an integer has more than 63 bits");
}

static _Noreturn void fail_zero(struct render *r) {
    render_fail(r, ST_BAD_INPUT, "division by zero");
}

/* Rounds towards minus infinity, as Python does. */
static int64_t floor_div(struct render *r, int64_t a, int64_t b) {
    if (b == 0)
        fail_zero(r);
    if (a == INT64_MIN && b == -1)
        fail_overflow(r);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t int_power(struct render *r, int64_t base, int64_t exponent) {
    int64_t result = 1;
    for (; exponent > 0; exponent >>= 1) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result))
            fail_overflow(r);
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base))
            fail_overflow(r);
    }
    return result;
}

static struct value int_arithmetic(struct render *r, enum node_op op, int64_t a, int64_t b) {
    int64_t result = 0;
    bool overflow = false;
    switch (op) {
    case OP_ADD:
        overflow = __builtin_add_overflow(a, b, &result);
        break;
    case OP_SUB:
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
    case OP_MUL:
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
    case OP_DIV:
        if (b == 0)
            fail_zero(r);
        return value_float((double)a / (double)b);
    case OP_FLOORDIV:
        result = floor_div(r, a, b);
        break;
    case OP_MOD:
        result = b == -1 ? 0 : a - b * floor_div(r, a, b);
        break;
    default:
        if (b < 0)
            return value_float(exact_pow64((double)a, (double)b));
        result = int_power(r, a, b);
        break;
    }
    if (overflow)
        fail_overflow(r);
    return value_int(result);
}

static struct value float_arithmetic(struct render *r, enum node_op op, double a, double b) {
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        fail_zero(r);
    switch (op) {
    case OP_ADD:
        return value_float(a + b);
    case OP_SUB:
        return value_float(a - b);
    case OP_MUL:
        return value_float(a * b);
    case OP_DIV:
        return value_float(a / b);
    case OP_FLOORDIV:
        return value_float(floor(a / b));
    case OP_MOD: {
        double m = fmod(a, b);
        return value_float(m != 0 && (m < 0) != (b < 0) ? m + b : m);
    }
    default:
        return value_float(exact_pow64(a, b));
    }
}

/* ---- binary operators ------------------------------------------------------------------- */

static struct value repeat(struct render *r, struct value v, int64_t times) {
    if (v.kind == V_STRING) {
        size_t mark = r->n_out;
        for (int64_t i = 0; v.len > 0 && i < times; i++)
            out_put(r, v.text, v.len);
        struct value text = out_take(r, mark);
        text.safe = v.safe;
        return text;
    }
    struct value list = seq_new(r, v.kind, 0);
    size_t n = v.seq->n;
    for (int64_t i = 0; n > 0 && i < times; i++)
        for (size_t k = 0; k < n; k++)
            seq_push(r, list, v.seq->items[k]);
    return list;
}

static struct value concat_lists(struct render *r, struct value a, struct value b) {
    struct value list = seq_new(r, a.kind, a.seq->n + b.seq->n);
    for (size_t i = 0; i < a.seq->n; i++)
        seq_push(r, list, a.seq->items[i]);
    for (size_t i = 0; i < b.seq->n; i++)
        seq_push(r, list, b.seq->items[i]);
    return list;
}

static bool is_repeatable(struct value v) {
    return v.kind == V_STRING || v.kind == V_LIST || v.kind == V_TUPLE;
}

static struct value arithmetic(struct render *r, enum node_op op, struct value a,
                               struct value b) {
    static const char *const names[] = {
        [OP_ADD] = "+",       [OP_SUB] = "-", [OP_MUL] = "*",           [OP_DIV] = "/",
        [OP_FLOORDIV] = "//", [OP_MOD] = "%", [OP_POW] = "** or pow()",
    };
    if (is_integral(a) && is_integral(b))
        return int_arithmetic(r, op, as_int(a), as_int(b));
    if (is_number(a) && is_number(b))
        return float_arithmetic(r, op, as_double(a), as_double(b));
    if (op == OP_ADD && a.kind == V_STRING && b.kind == V_STRING)
        return text_concat(r, a, b);
    if (op == OP_ADD && a.kind == b.kind && (a.kind == V_LIST || a.kind == V_TUPLE))
        return concat_lists(r, a, b);
    if (op == OP_MOD && a.kind == V_STRING)
        return format_percent(r, a, b);
    if (op == OP_MUL && is_repeatable(a) && is_integral(b))
        return repeat(r, a, as_int(b));
    if (op == OP_MUL && is_integral(a) && is_repeatable(b))
        return repeat(r, b, as_int(a));
    fail_operands(r, names[op], a, b);
}

static struct value eval_binary(struct render *r, const struct ast_node *n) {
    struct value a = eval(r, n->a);
    if (n->op == OP_AND)
        return value_truth(a) ? eval(r, n->b) : a;
    if (n->op == OP_OR)
        return value_truth(a) ? a : eval(r, n->b);
    struct value b = eval(r, n->b);
    return arithmetic(r, n->op, a, b);
}

static bool compare(struct render *r, enum node_op op, struct value a, struct value b) {
    bool ordered =
        !((a.kind == V_FLOAT && isnan(a.number)) || (b.kind == V_FLOAT && isnan(b.number)));
    switch (op) {
    case OP_EQ:
        return value_equal(r, a, b);
    case OP_NE:
        return !value_equal(r, a, b);
    case OP_LT:
        return value_compare(r, a, b, "<") < 0 && ordered;
    case OP_LE:
        return value_compare(r, a, b, "<=") <= 0 && ordered;
    case OP_GT:
        return value_compare(r, a, b, ">") > 0 && ordered;
    case OP_GE:
        return value_compare(r, a, b, ">=") >= 0 && ordered;
    case OP_IN:
        return value_contains(r, b, a);
    default:
        return !value_contains(r, b, a);
    }
}

/* a < b < c is a < b and b < c, with b evaluated once. */
static struct value eval_compare(struct render *r, const struct ast_node *n) {
    struct value left = eval(r, n->a);
    for (const struct ast_node *operand = n->first; operand != NULL; operand = operand->next) {
        struct value right = eval(r, operand->a);
        if (!compare(r, operand->op, left, right))
            return value_bool(false);
        left = right;
    }
    return value_bool(true);
}

static struct value eval_unary(struct render *r, const struct ast_node *n) {
    struct value a = eval(r, n->a);
    if (n->op == OP_NOT)
        return value_bool(!value_truth(a));
    if (a.kind == V_UNDEFINED)
        undefined_fail(r, a);
    if (!is_number(a))
        render_fail(r, ST_BAD_INPUT, "bad operand type for unary %s: '%s'",
                    n->op == OP_NEG ? "-" : "+", type_name(a));
    if (n->op == OP_POS)
        return a.kind == V_BOOL ? value_int(a.boolean) : a;
    if (a.kind == V_FLOAT)
        return value_float(-a.number);
    return int_arithmetic(r, OP_SUB, 0, as_int(a));
}

static struct value eval_concat(struct render *r, const struct ast_node *n) {
    struct value all = value_text("", 0);
    for (const struct ast_node *part = n->first; part != NULL; part = part->next) {
        struct value s = value_str(r, eval(r, part));
        s.safe = false;
        all = text_concat(r, all, s);
    }
    return all;
}

/* ---- members ----------------------------------------------------------------------------- */

/* A bound of a slice: none is `missing`, negative counts from the end, then clamped. */
static int64_t slice_bound(struct render *r, const struct ast_node *n, int64_t missing,
                           int64_t low, int64_t high, int64_t length) {
    struct value v = n == NULL ? value_none() : eval(r, n);
    if (v.kind == V_NONE)
        return missing;
    int64_t i = need_int(r, v);
    if (i < 0)
        i = i < -length ? low : i + length;
    return MAX(low, MIN(i, high));
}

static struct value slice_text(struct render *r, struct value v, int64_t begin, int64_t end,
                               int64_t step) {
    if (step == 1) {
        size_t from = utf8_offset(v.text, v.len, (size_t)begin);
        size_t to = from;
        if (end > begin)
            to += utf8_offset(v.text + from, v.len - from, (size_t)(end - begin));
        return text_slice(v, from, to);
    }
    const struct seq *chars = value_iterate(r, v);
    size_t mark = r->n_out;
    for (int64_t i = begin; step > 0 ? i < end : i > end; i += step)
        out_put(r, chars->items[i].text, chars->items[i].len);
    return out_take(r, mark);
}

static struct value eval_slice(struct render *r, struct value v, const struct ast_node *n) {
    if (v.kind == V_UNDEFINED)
        undefined_fail(r, v);
    if (!is_sequence(v) && v.kind != V_STRING)
        return value_missing_member(r, v, value_cstr("slice"));
    int64_t length = (int64_t)value_length(r, v), step = 1;
    if (n->c != NULL) {
        struct value s = eval(r, n->c);
        step = s.kind == V_NONE ? 1 : need_int(r, s);
    }
    if (step == 0)
        render_fail(r, ST_BAD_INPUT, "slice step cannot be zero");
    step = MAX(-length - 1, MIN(step, length + 1)); /* so that i + step cannot overflow */
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? length : length - 1;
    int64_t begin = slice_bound(r, n->a, step > 0 ? 0 : length - 1, low, high, length);
    int64_t end = slice_bound(r, n->b, step > 0 ? length : -1, low, high, length);
    if (v.kind == V_STRING)
        return slice_text(r, v, begin, end, step);
    struct value list = seq_new(r, v.kind == V_RANGE ? V_LIST : v.kind, 0);
    for (int64_t i = begin; step > 0 ? i < end : i > end; i += step)
        seq_push(r, list, v.seq->items[i]);
    return list;
}

static struct value eval_index(struct render *r, const struct ast_node *n) {
    struct value object = eval(r, n->a);
    if (n->b->kind == N_SLICE)
        return eval_slice(r, object, n->b);
    return value_item(r, object, eval(r, n->b));
}

/* ---- calls --------------------------------------------------------------------------------- */

struct argument_list {
    struct value pos; /* a list */
    struct keyword *kw;
    size_t n_kw, cap_kw;
};

static void add_keyword(struct render *r, struct argument_list *list, const char *name,
                        size_t len, struct value v) {
    if (list->n_kw == list->cap_kw) {
        size_t cap = list->cap_kw * 2 + 4;
        struct keyword *kw = RENDER_ARRAY(r, struct keyword, cap);
        if (list->n_kw != 0)
            memcpy(kw, list->kw, list->n_kw * sizeof *kw);
        list->kw = kw;
        list->cap_kw = cap;
    }
    list->kw[list->n_kw++] = (struct keyword){name, len, v};
}

static void add_argument(struct render *r, struct argument_list *list,
                         const struct ast_node *arg) {
    struct value v = eval(r, arg->a);
    if (arg->op == ARG_POSITIONAL) {
        seq_push(r, list->pos, v);
    } else if (arg->op == ARG_KEYWORD) {
        add_keyword(r, list, arg->name->text, arg->name->len, v);
    } else if (arg->op == ARG_STAR) {
        const struct seq *items = value_iterate(r, v);
        for (size_t i = 0; i < items->n; i++)
            seq_push(r, list->pos, items->items[i]);
    } else {
        if (v.kind != V_DICT)
            render_fail(r, ST_BAD_INPUT, "argument after ** must be a mapping, not %s",
                        type_name(v));
        for (size_t i = 0; i < v.dict->n; i++) {
            struct value key = need_text(r, v.dict->entries[i].key);
            add_keyword(r, list, key.text, key.len, v.dict->entries[i].value);
        }
    }
}

struct call eval_arguments(struct render *r, const struct ast_node *args) {
    if (args == NULL)
        return (struct call){0};
    struct argument_list list = {.pos = seq_new(r, V_LIST, 4)};
    for (; args != NULL; args = args->next)
        add_argument(r, &list, args);
    return (struct call){
        .pos = list.pos.seq->items, .n_pos = list.pos.seq->n, .kw = list.kw, .n_kw = list.n_kw};
}

/* The number of the parameter in "a,b,c", or MAX_BOUND. */
static size_t find_param(const char *params, const char *name, size_t len) {
    for (size_t i = 0; *params != '\0'; i++) {
        size_t n = strcspn(params, ",");
        if (n == len && memcmp(params, name, n) == 0)
            return i;
        params += n + (params[n] == ',');
    }
    return MAX_BOUND;
}

static size_t count_params(const char *params) {
    size_t n = *params != '\0';
    for (; *params != '\0'; params++)
        n += *params == ',';
    return n;
}

static void bind_arguments(struct render *r, const struct builtin *b, struct call *call) {
    size_t n_params = count_params(b->params);
    BUG_ON(n_params > MAX_BOUND);
    if (call->n_pos > n_params)
        render_fail(r, ST_BAD_INPUT, "%s takes at most %zu arguments (%zu given)", b->name,
                    n_params, call->n_pos);
    for (size_t i = 0; i < MAX_BOUND; i++)
        call->arg[i] = i < call->n_pos ? call->pos[i] : (struct value){.kind = V_MISSING};
    for (size_t i = 0; i < call->n_kw; i++) {
        const struct keyword *kw = &call->kw[i];
        size_t at = find_param(b->params, kw->name, kw->len);
        if (at == MAX_BOUND || call->arg[at].kind != V_MISSING)
            render_fail(r, ST_BAD_INPUT, "%s got an unexpected or second argument '%.*s'",
                        b->name, (int)MIN(kw->len, (size_t)60), kw->name);
        call->arg[at] = kw->value;
    }
    for (size_t i = 0; i < b->n_required; i++)
        if (call->arg[i].kind == V_MISSING)
            render_fail(r, ST_BAD_INPUT, "%s is missing a required argument", b->name);
}

struct value builtin_call(struct render *r, const struct builtin *b, struct value self,
                          struct call *call) {
    render_spend(r, 1);
    if (b->params != NULL)
        bind_arguments(r, b, call);
    return b->fn(r, self, call);
}

static struct value call_loop(struct render *r, const struct loop *loop,
                              const struct call *call) {
    if (loop->node->op == 0)
        render_fail(r, ST_BAD_INPUT, "the loop must have the 'recursive' marker to be called");
    if (call->n_pos != 1)
        render_fail(r, ST_BAD_INPUT, "loop() takes one argument");
    return loop_recurse(r, loop, call->pos[0]);
}

static struct value call_joiner(struct joiner *j) {
    bool first = !j->used;
    j->used = true;
    return first ? value_text("", 0) : j->separator;
}

struct value value_call(struct render *r, struct value callee, struct call *call) {
    switch (callee.kind) {
    case V_BUILTIN:
        return builtin_call(r, callee.builtin, value_none(), call);
    case V_METHOD:
        return builtin_call(r, callee.method->fn, callee.method->self, call);
    case V_MACRO:
        return macro_call(r, callee.macro, call);
    case V_LOOP:
        return call_loop(r, callee.loop, call);
    case V_JOINER:
        return call_joiner(callee.joiner);
    case V_UNDEFINED:
        undefined_fail(r, callee);
    default:
        render_fail(r, ST_BAD_INPUT, "'%s' object is not callable", type_name(callee));
    }
}

static struct value eval_call(struct render *r, const struct ast_node *n) {
    struct value callee = eval(r, n->a);
    struct call call = eval_arguments(r, n->first);
    r->line = n->line;
    return value_call(r, callee, &call);
}

static struct value eval_filter(struct render *r, const struct ast_node *n) {
    struct value v = n->a != NULL ? eval(r, n->a) : r->captured;
    const struct builtin *filter = filter_find(n->name->text, n->name->len);
    if (filter == NULL)
        render_fail(r, ST_UNSUPPORTED, "No filter named '%.100s' found.", n->name->text);
    struct call call = eval_arguments(r, n->first);
    r->line = n->line;
    return builtin_call(r, filter, v, &call);
}

struct value eval_filters(struct render *r, const struct ast_node *n, struct value captured) {
    struct value outer = r->captured;
    r->captured = captured;
    struct value v = eval(r, n);
    r->captured = outer;
    return v;
}

static struct value eval_test(struct render *r, const struct ast_node *n) {
    struct value v = eval(r, n->a);
    const struct builtin *test = test_find(n->name->text, n->name->len);
    if (test == NULL)
        render_fail(r, ST_UNSUPPORTED, "No test named '%.100s' found.", n->name->text);
    struct call call = eval_arguments(r, n->first);
    return builtin_call(r, test, v, &call);
}

/* ---- the rest ------------------------------------------------------------------------------ */

static struct value eval_name(struct render *r, const struct ast_node *n) {
    const struct value *v = scope_find(r->scope, n->name);
    if (v == NULL)
        v = dict_get_text(r, r->context.dict, n->name->text, n->name->len);
    if (v != NULL)
        return *v;
    const struct builtin *fn = function_find(n->name->text, n->name->len);
    if (fn != NULL)
        return (struct value){.kind = V_BUILTIN, .builtin = fn};
    return value_missing_name(r, n->name->text, n->name->len);
}

static struct value eval_items(struct render *r, const struct ast_node *n,
                               enum value_kind kind) {
    struct value list = seq_new(r, kind, 4);
    for (const struct ast_node *item = n->first; item != NULL; item = item->next)
        seq_push(r, list, eval(r, item));
    return list;
}

static struct value eval_dict(struct render *r, const struct ast_node *n) {
    struct value d = dict_new(r);
    for (const struct ast_node *key = n->first; key != NULL; key = key->next->next) {
        struct value k = eval(r, key);
        dict_set(r, d.dict, k, eval(r, key->next));
    }
    return d;
}

static struct value eval_condition(struct render *r, const struct ast_node *n) {
    if (value_truth(eval(r, n->b)))
        return eval(r, n->a);
    if (n->c != NULL)
        return eval(r, n->c);
    return value_undefined(r, value_cstr("the inline if-expression evaluated to false and no "
                                         "else section was defined."));
}

static struct value eval_node(struct render *r, const struct ast_node *n) {
    switch (n->kind) {
    case N_CONST:
        return n->constant;
    case N_NAME:
        return eval_name(r, n);
    case N_LIST:
        return eval_items(r, n, V_LIST);
    case N_TUPLE:
        return eval_items(r, n, V_TUPLE);
    case N_DICT:
        return eval_dict(r, n);
    case N_UNARY:
        return eval_unary(r, n);
    case N_BINARY:
        return eval_binary(r, n);
    case N_COMPARE:
        return eval_compare(r, n);
    case N_CONCAT:
        return eval_concat(r, n);
    case N_COND:
        return eval_condition(r, n);
    case N_ATTR:
        return value_attribute(r, eval(r, n->a), n->name->text, n->name->len);
    case N_INDEX:
        return eval_index(r, n);
    case N_CALL:
        return eval_call(r, n);
    case N_FILTER:
        return eval_filter(r, n);
    case N_TEST:
        return eval_test(r, n);
    default:
        bug_at(__FILE__, __LINE__, "a statement where an expression belongs");
    }
}

struct value eval(struct render *r, const struct ast_node *n) {
    render_enter(r);
    render_spend(r, 1);
    r->line = n->line;
    struct value v = eval_node(r, n);
    render_leave(r);
    return v;
}
