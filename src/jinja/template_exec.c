/* template_exec.c: executes statements, scopes, loops and macros; template_render(). */
#include "jinja/template_run.h"

#include "base/mem.h"

#define MAX_RENDER_BYTES ((size_t)256 << 20)

/* What a body ended with. */
enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

static enum flow exec_list(struct render *r, const struct ast_node *n);

/* ---- scopes --------------------------------------------------------------------------------- */

struct value *scope_find(const struct scope *s, const struct symbol *name) {
    for (; s != NULL; s = s->parent)
        for (struct binding *b = s->first; b != NULL; b = b->next)
            if (b->name == name)
                return &b->value;
    return NULL;
}

static void scope_set(struct render *r, const struct symbol *name, struct value v) {
    struct scope here = {.first = r->scope->first};
    struct value *old = scope_find(&here, name);
    if (old != NULL) {
        *old = v;
        return;
    }
    struct binding *b = r->spare_bindings;
    if (b != NULL)
        r->spare_bindings = b->next;
    else
        b = RENDER_NEW(r, struct binding);
    *b = (struct binding){name, v, r->scope->first};
    r->scope->first = b;
}

static void scope_push(struct render *r, struct scope *s, struct scope *parent) {
    *s = (struct scope){.parent = parent};
    r->scope = s;
}

/* Its bindings are used again, so that a long loop needs no more memory than a short one. */
static void scope_clear(struct render *r, struct scope *s) {
    while (s->first != NULL) {
        struct binding *b = s->first;
        s->first = b->next;
        b->next = r->spare_bindings;
        r->spare_bindings = b;
    }
}

/* The text that body makes in a scope of its own. */
static struct value exec_captured(struct render *r, const struct ast_node *body) {
    size_t mark = r->n_out;
    struct scope *outer = r->scope;
    scope_push(r, RENDER_NEW(r, struct scope), outer);
    exec_list(r, body);
    r->scope = outer;
    return out_take(r, mark);
}

/* ---- assignment -------------------------------------------------------------------------- */

static void assign(struct render *r, const struct ast_node *target, struct value v);

static void assign_tuple(struct render *r, const struct ast_node *target, struct value v) {
    const struct seq *items = value_iterate(r, v);
    size_t n = 0;
    for (const struct ast_node *t = target->first; t != NULL; t = t->next)
        n++;
    if (items->n != n)
        render_fail(r, ST_BAD_INPUT, "%s values to unpack (expected %zu, got %zu)",
                    items->n < n ? "not enough" : "too many", n, items->n);
    size_t i = 0;
    for (const struct ast_node *t = target->first; t != NULL; t = t->next)
        assign(r, t, items->items[i++]);
}

static void assign(struct render *r, const struct ast_node *target, struct value v) {
    if (target->kind == N_NAME) {
        scope_set(r, target->name, v);
    } else if (target->kind == N_TUPLE) {
        assign_tuple(r, target, v);
    } else {
        struct value object = eval(r, target->a);
        if (object.kind != V_NAMESPACE)
            render_fail(r, ST_BAD_INPUT, "cannot assign attribute on non-namespace object");
        dict_set(r, object.dict, value_text(target->name->text, target->name->len), v);
    }
}

/* ---- loops ------------------------------------------------------------------------------- */

/* Asks the loop's `if`, which sees the loop's variables and what is around the loop, for one
 * more item. The item is then what the variables hold: a tuple of them if they are several. */
static void ask_filter(struct render *r, struct loop *loop) {
    struct scope *caller = r->scope, filter;
    loop->asking = true;
    render_enter(r);
    scope_push(r, &filter, loop->scope);
    assign(r, loop->node->a, loop->unasked->items[loop->n_asked++]);
    if (value_truth(eval(r, loop->node->c)))
        seq_push(r, (struct value){.kind = V_LIST, .seq = loop->items}, eval(r, loop->node->a));
    scope_clear(r, &filter);
    r->scope = caller;
    render_leave(r);
    loop->asking = false;
}

bool loop_has(struct render *r, struct loop *loop, size_t i) {
    while (i >= loop->items->n && loop->unasked != NULL) {
        if (loop->asking)
            render_fail(r, ST_BAD_INPUT, "the 'if' of a loop asks for the loop's next item");
        if (loop->n_asked < loop->unasked->n)
            ask_filter(r, loop);
        else
            loop->unasked = NULL; /* for good, whatever is appended to it */
    }
    return i < loop->items->n;
}

static struct loop *loop_new(struct render *r, const struct ast_node *n, struct value iterable,
                             int64_t depth0) {
    struct loop *loop = RENDER_NEW(r, struct loop);
    *loop = (struct loop){
        .items = value_iterate(r, iterable), .depth0 = depth0, .node = n, .scope = r->scope};
    if (n->c != NULL) {
        loop->unasked = loop->items;
        loop->items = seq_new(r, V_LIST, 0).seq;
    }
    return loop;
}

/* What comes back is what the `else` ended with: that may break the loop around this one. */
static enum flow run_loop(struct render *r, const struct ast_node *n, struct value iterable,
                          int64_t depth0) {
    struct scope *outer = r->scope;
    struct loop *loop = loop_new(r, n, iterable, depth0);
    struct value loop_value = {.kind = V_LOOP, .loop = loop};
    scope_push(r, RENDER_NEW(r, struct scope), outer);
    enum flow flow = FLOW_ON;
    bool any = false; /* a pass came to its end; else Jinja takes the loop for empty */
    for (size_t i = 0; flow != FLOW_BREAK && loop_has(r, loop, i); i++) {
        loop->i = i;
        scope_clear(r, r->scope);
        scope_set(r, r->template->sym_loop, loop_value);
        assign(r, n->a, loop->items->items[i]);
        flow = exec_list(r, n->body);
        any |= flow == FLOW_ON;
        render_spend(r, 1);
    }
    scope_clear(r, r->scope);
    flow = any ? FLOW_ON : exec_list(r, n->other);
    r->scope = outer;
    return flow;
}

struct value loop_recurse(struct render *r, const struct loop *loop, struct value items) {
    size_t mark = r->n_out;
    struct scope *caller = r->scope;
    render_enter(r);
    r->scope = loop->scope;
    run_loop(r, loop->node, items, loop->depth0 + 1);
    r->scope = caller;
    render_leave(r);
    return out_take(r, mark);
}

/* ---- macros ------------------------------------------------------------------------------ */

/* The keyword argument of this name, or NULL. */
static const struct keyword *find_keyword(const struct call *call, const struct symbol *name) {
    for (size_t i = 0; i < call->n_kw; i++)
        if (call->kw[i].len == name->len &&
            memcmp(call->kw[i].name, name->text, name->len) == 0)
            return &call->kw[i];
    return NULL;
}

static bool is_parameter(const struct macro *m, const struct keyword *kw) {
    for (const struct ast_node *p = m->def->first; p != NULL; p = p->next)
        if (p->name->len == kw->len && memcmp(p->name->text, kw->name, kw->len) == 0)
            return true;
    return false;
}

/* Defaults are evaluated at the call and see the parameters before them. */
static size_t bind_parameters(struct render *r, const struct macro *m,
                              const struct call *call) {
    size_t i = 0;
    for (const struct ast_node *p = m->def->first; p != NULL; p = p->next, i++) {
        const struct keyword *kw = find_keyword(call, p->name);
        if (i < call->n_pos && kw != NULL)
            render_fail(r, ST_BAD_INPUT, "macro got multiple values for argument '%.100s'",
                        p->name->text);
        if (i < call->n_pos)
            scope_set(r, p->name, call->pos[i]);
        else if (kw != NULL)
            scope_set(r, p->name, kw->value);
        else if (p->a != NULL)
            scope_set(r, p->name, eval(r, p->a));
        else
            scope_set(r, p->name, value_missing_name(r, p->name->text, p->name->len));
    }
    return i;
}

static void bind_rest(struct render *r, const struct macro *m, const struct call *call,
                      size_t n_params) {
    const struct template *t = r->template;
    struct value varargs = seq_new(r, V_TUPLE, 0), kwargs = dict_new(r);
    for (size_t i = n_params; i < call->n_pos; i++)
        seq_push(r, varargs, call->pos[i]);
    for (size_t i = 0; i < call->n_kw; i++) {
        const struct keyword *kw = &call->kw[i];
        bool is_caller = t->sym_caller->len == kw->len && memcmp(kw->name, "caller", 6) == 0;
        if (is_caller && (m->def->op & MACRO_CALLER) != 0)
            scope_set(r, t->sym_caller, kw->value);
        else if (!is_parameter(m, kw))
            dict_set(r, kwargs.dict, value_text(kw->name, kw->len), kw->value);
    }
    if (varargs.seq->n != 0 && (m->def->op & MACRO_VARARGS) == 0)
        render_fail(r, ST_BAD_INPUT, "macro '%.100s' takes not more than %zu argument(s)",
                    m->def->name->text, n_params);
    if (kwargs.dict->n != 0 && (m->def->op & MACRO_KWARGS) == 0)
        render_fail(r, ST_BAD_INPUT, "macro '%.100s' takes no keyword argument '%.*s'",
                    m->def->name->text, (int)MIN(kwargs.dict->entries[0].key.len, (size_t)60),
                    kwargs.dict->entries[0].key.text);
    if ((m->def->op & MACRO_VARARGS) != 0)
        scope_set(r, t->sym_varargs, varargs);
    if ((m->def->op & MACRO_KWARGS) != 0)
        scope_set(r, t->sym_kwargs, kwargs);
}

struct value macro_call(struct render *r, const struct macro *m, const struct call *call) {
    size_t mark = r->n_out;
    struct scope *outer = r->scope;
    render_enter(r);
    scope_push(r, RENDER_NEW(r, struct scope), m->scope);
    size_t n_params = bind_parameters(r, m, call);
    bind_rest(r, m, call, n_params);
    exec_list(r, m->def->body);
    r->scope = outer;
    render_leave(r);
    return out_take(r, mark);
}

static struct value macro_new(struct render *r, const struct ast_node *def) {
    struct macro *m = RENDER_NEW(r, struct macro);
    *m = (struct macro){def, r->scope};
    return (struct value){.kind = V_MACRO, .macro = m};
}

/* {% call f(x) %} body {% endcall %}: f(x, caller = the body as a macro). */
static void exec_calling(struct render *r, const struct ast_node *n) {
    struct value callee = eval(r, n->a->a);
    struct call call = eval_arguments(r, n->a->first);
    struct keyword *kw = RENDER_ARRAY(r, struct keyword, call.n_kw + 1);
    if (call.n_kw != 0)
        memcpy(kw, call.kw, call.n_kw * sizeof *kw);
    kw[call.n_kw++] = (struct keyword){n->name->text, n->name->len, macro_new(r, n)};
    call.kw = kw;
    out_value(r, value_call(r, callee, &call));
}

/* ---- statements --------------------------------------------------------------------------- */

static enum flow exec_if(struct render *r, const struct ast_node *n) {
    for (const struct ast_node *branch = n->first; branch != NULL; branch = branch->next)
        if (branch->a == NULL || value_truth(eval(r, branch->a)))
            return exec_list(r, branch->body);
    return FLOW_ON;
}

static void exec_capture(struct render *r, const struct ast_node *n) {
    struct value text = exec_captured(r, n->body);
    assign(r, n->a, n->b != NULL ? eval_filters(r, n->b, text) : text);
}

static enum flow exec_scope(struct render *r, const struct ast_node *n) {
    struct scope *outer = r->scope, *inner = RENDER_NEW(r, struct scope);
    *inner = (struct scope){.parent = outer};
    for (const struct ast_node *set = n->first; set != NULL; set = set->next) {
        struct value v = eval(r, set->b); /* of {% with %}: seen from outside */
        r->scope = inner;
        assign(r, set->a, v);
        r->scope = outer;
    }
    r->scope = inner;
    enum flow flow = exec_list(r, n->body);
    r->scope = outer;
    return flow;
}

static enum flow exec_statement(struct render *r, const struct ast_node *n) {
    switch (n->kind) {
    case N_TEXT:
        out_put(r, n->constant.text, n->constant.len);
        return FLOW_ON;
    case N_PRINT:
        out_value(r, eval(r, n->a));
        return FLOW_ON;
    case N_IF:
        return exec_if(r, n);
    case N_FOR:
        return run_loop(r, n, eval(r, n->b), 0);
    case N_SET:
        assign(r, n->a, eval(r, n->b));
        return FLOW_ON;
    case N_CAPTURE:
        exec_capture(r, n);
        return FLOW_ON;
    case N_MACRO:
        scope_set(r, n->name, macro_new(r, n));
        return FLOW_ON;
    case N_CALLING:
        exec_calling(r, n);
        return FLOW_ON;
    case N_FILTERED:
        out_value(r, eval_filters(r, n->b, exec_captured(r, n->body)));
        return FLOW_ON;
    case N_WITH:
    case N_SCOPE:
        return exec_scope(r, n);
    case N_BREAK:
        return FLOW_BREAK;
    case N_CONTINUE:
        return FLOW_CONTINUE;
    default:
        bug_at(__FILE__, __LINE__, "an expression where a statement belongs");
    }
}

static enum flow exec_list(struct render *r, const struct ast_node *n) {
    enum flow flow = FLOW_ON;
    render_enter(r);
    for (; n != NULL && flow == FLOW_ON; n = n->next) {
        r->line = n->line;
        render_spend(r, 1);
        flow = exec_statement(r, n);
    }
    render_leave(r);
    return flow;
}

/* ---- rendering ----------------------------------------------------------------------------- */

static void render_run(struct render *r, const json_t *vars) {
    struct scope root;
    r->context = value_from_json(r, vars);
    scope_push(r, &root, NULL);
    exec_list(r, r->template->body);
    out_put(r, "", 1); /* the NUL */
}

enum status template_render(const struct template *t, const json_t *vars,
                            const struct template_clock *now, char **text, size_t *len,
                            struct err *err) {
    if (!json_is_object(vars))
        return err_set(err, ST_BAD_INPUT, "the variables of a template must be an object");
    struct render *r = mem_calloc(1, sizeof *r);
    if (r == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to render the template");
    struct err unread;
    r->template = t;
    r->now = now;
    r->err = err != NULL ? err : &unread;
    arena_init(&r->arena, MAX_RENDER_BYTES);
    if (setjmp(r->fail) == 0)
        render_run(r, vars);
    enum status st = r->status;
    if (st == ST_OK) {
        *text = r->out;
        *len = r->n_out - 1;
    } else {
        mem_free(r->out);
    }
    arena_deinit(&r->arena);
    mem_free(r);
    return st;
}
