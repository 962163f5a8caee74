/* template_run.h: shared by the interpreter's statements (template_exec.c) and expressions
 * (template_eval.c). */
#ifndef LOCKSTEP_JINJA_TEMPLATE_RUN_H
#define LOCKSTEP_JINJA_TEMPLATE_RUN_H

#include "jinja/template_ast.h"

struct binding {
    const struct symbol *name;
    struct value value;
    struct binding *next;
};

/* Loops (each pass anew), macros and blocks have a scope; `if` has none. A name is looked up
 * outwards; set writes here. A macro keeps the scope it was defined in. */
struct scope {
    struct scope *parent;
    struct binding *first;
};

/* A loop evaluates its own `if` for an item only when that item is needed, after the earlier
 * bodies have run: a body may change what the condition depends on. */
struct loop {
    struct seq *items; /* with an `if`: what has passed it so far */
    size_t i;
    struct seq *unasked; /* what the `if` still has to see, from n_asked on; NULL: nothing */
    size_t n_asked;
    bool asking; /* the `if` is being evaluated */
    int64_t depth0;
    const struct ast_node *node;
    struct scope *scope;  /* around it */
    struct value changed; /* what loop.changed() saw last, V_MISSING at first */
};

struct macro {
    const struct ast_node *def;
    struct scope *scope;
};

struct value eval(struct render *r, const struct ast_node *n);
struct value eval_filters(struct render *r, const struct ast_node *n, struct value captured);
/* Evaluates a list of N_ARG. */
struct call eval_arguments(struct render *r, const struct ast_node *args);

struct value loop_recurse(struct render *r, const struct loop *loop, struct value items);
/* Whether there is an item i; asks the loop's `if` for items up to it. */
bool loop_has(struct render *r, struct loop *loop, size_t i);
struct value macro_call(struct render *r, const struct macro *m, const struct call *call);

struct value *scope_find(const struct scope *s, const struct symbol *name);

#endif
