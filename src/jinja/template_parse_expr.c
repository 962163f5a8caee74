/* template_parse_expr.c: the parser of expressions: recursive descent in Jinja's order of
 * precedence. */
#include "jinja/template_ast.h"

/* ---- tokens ------------------------------------------------------------------------------ */

const struct token *token_peek(const struct compiler *c) {
    return &c->tokens[c->at]; /* the last one is T_END, which is never passed */
}

static const struct token *token_after(const struct compiler *c) {
    return &c->tokens[MIN(c->at + 1, c->n_tokens - 1)];
}

static void token_skip(struct compiler *c) {
    if (c->tokens[c->at].kind != T_END)
        c->at++;
}

static bool token_is(const struct token *t, enum token_kind kind, const char *text) {
    return t->kind == kind && t->len == strlen(text) && memcmp(t->text, text, t->len) == 0;
}

bool at_operator(const struct compiler *c, const char *op) {
    return token_is(token_peek(c), T_OPERATOR, op);
}

bool at_word(const struct compiler *c, const char *word) {
    return token_is(token_peek(c), T_NAME, word);
}

bool accept_operator(struct compiler *c, const char *op) {
    bool is = at_operator(c, op);
    if (is)
        token_skip(c);
    return is;
}

bool accept_word(struct compiler *c, const char *word) {
    bool is = at_word(c, word);
    if (is)
        token_skip(c);
    return is;
}

void fail_unexpected(struct compiler *c, const char *expected) {
    const struct token *t = token_peek(c);
    if (t->kind == T_END)
        template_fail(c, ST_BAD_INPUT, t->line, "unexpected end of the template, expected %s",
                      expected);
    if (t->len == 0)
        template_fail(c, ST_BAD_INPUT, t->line, "unexpected %s of a tag, expected %s",
                      t->kind == T_BLOCK_END || t->kind == T_PRINT_END ? "end" : "beginning",
                      expected);
    template_fail(c, ST_BAD_INPUT, t->line, "unexpected '%.*s', expected %s",
                  (int)MIN(t->len, (size_t)60), t->text, expected);
}

void expect_operator(struct compiler *c, const char *op) {
    char quoted[8] = {'\'', op[0], '\''};
    if (!accept_operator(c, op))
        fail_unexpected(c, quoted);
}

const struct symbol *expect_name(struct compiler *c) {
    const struct token *t = token_peek(c);
    if (t->kind != T_NAME)
        fail_unexpected(c, "a name");
    token_skip(c);
    return symbol_intern(c, t->text, t->len);
}

/* ---- nodes --------------------------------------------------------------------------------- */

struct ast_node *node_new(struct compiler *c, enum node_kind kind) {
    struct ast_node *n = compiler_alloc(c, sizeof *n, _Alignof(struct ast_node));
    *n = (struct ast_node){.kind = (uint8_t)kind, .line = token_peek(c)->line};
    return n;
}

static struct ast_node *constant_new(struct compiler *c, struct value v) {
    struct ast_node *n = node_new(c, N_CONST);
    n->constant = v;
    return n;
}

static struct ast_node *binary_new(struct compiler *c, enum node_op op, struct ast_node *a,
                                   struct ast_node *b) {
    struct ast_node *n = node_new(c, N_BINARY);
    n->op = (uint8_t)op;
    n->a = a;
    n->b = b;
    n->line = a->line;
    return n;
}

void parse_enter(struct compiler *c) {
    if (++c->depth > PARSE_DEPTH_MAX)
        template_fail(c, ST_BAD_INPUT, token_peek(c)->line, "nested more than %d levels deep",
                      PARSE_DEPTH_MAX);
}

void parse_leave(struct compiler *c) {
    c->depth--;
}

/* ---- primaries ------------------------------------------------------------------------------ */

static struct ast_node *parse_list(struct compiler *c, enum node_kind kind, const char *close) {
    struct ast_node *n = node_new(c, kind), **tail = &n->first;
    while (!accept_operator(c, close)) {
        if (n->first != NULL) {
            expect_operator(c, ",");
            if (accept_operator(c, close))
                break;
        }
        *tail = parse_expression(c);
        tail = &(*tail)->next;
        if (kind == N_DICT) {
            expect_operator(c, ":");
            *tail = parse_expression(c);
            tail = &(*tail)->next;
        }
    }
    return n;
}

static struct ast_node *parse_parentheses(struct compiler *c) {
    if (accept_operator(c, ")"))
        return node_new(c, N_TUPLE);
    struct ast_node *n = parse_tuple(c, true);
    expect_operator(c, ")");
    return n;
}

/* "a" "b" is "ab". */
static struct ast_node *parse_string(struct compiler *c) {
    struct value s = token_peek(c)->value;
    token_skip(c);
    while (token_peek(c)->kind == T_STRING) {
        struct value more = token_peek(c)->value;
        char *joined = compiler_alloc(c, s.len + more.len, 1);
        memcpy(joined, s.text, s.len);
        memcpy(joined + s.len, more.text, more.len);
        s = value_text(joined, s.len + more.len);
        token_skip(c);
    }
    return constant_new(c, s);
}

static struct ast_node *parse_name(struct compiler *c) {
    static const struct {
        const char *word;
        struct value value;
    } constants[] = {
        {"true", {.kind = V_BOOL, .boolean = true}},
        {"True", {.kind = V_BOOL, .boolean = true}},
        {"false", {.kind = V_BOOL}},
        {"False", {.kind = V_BOOL}},
        {"none", {.kind = V_NONE}},
        {"None", {.kind = V_NONE}},
    };
    for (size_t i = 0; i < ARRAY_LEN(constants); i++)
        if (accept_word(c, constants[i].word))
            return constant_new(c, constants[i].value);
    struct ast_node *n = node_new(c, N_NAME);
    n->name = expect_name(c);
    const struct template *t = c->template;
    c->macro_uses |= n->name == t->sym_varargs  ? MACRO_VARARGS
                     : n->name == t->sym_kwargs ? MACRO_KWARGS
                     : n->name == t->sym_caller ? MACRO_CALLER
                                                : 0;
    return n;
}

static struct ast_node *parse_primary(struct compiler *c) {
    const struct token *t = token_peek(c);
    switch (t->kind) {
    case T_NAME:
        return parse_name(c);
    case T_STRING:
        return parse_string(c);
    case T_INT:
    case T_FLOAT:
        token_skip(c);
        return constant_new(c, t->value);
    default:
        break;
    }
    if (accept_operator(c, "("))
        return parse_parentheses(c);
    if (accept_operator(c, "["))
        return parse_list(c, N_LIST, "]");
    if (accept_operator(c, "{"))
        return parse_list(c, N_DICT, "}");
    fail_unexpected(c, "an expression");
}

/* ---- what follows a primary ------------------------------------------------------------- */

/* Behind "(". */
static struct ast_node *parse_call_arguments(struct compiler *c) {
    struct ast_node *first = NULL, **tail = &first;
    while (!accept_operator(c, ")")) {
        if (first != NULL) {
            expect_operator(c, ",");
            if (accept_operator(c, ")"))
                break;
        }
        struct ast_node *arg = node_new(c, N_ARG);
        if (accept_operator(c, "**")) {
            arg->op = ARG_STAR_STAR;
        } else if (accept_operator(c, "*")) {
            arg->op = ARG_STAR;
        } else if (token_peek(c)->kind == T_NAME && token_is(token_after(c), T_OPERATOR, "=")) {
            arg->op = ARG_KEYWORD;
            arg->name = expect_name(c);
            expect_operator(c, "=");
        }
        arg->a = parse_expression(c);
        *tail = arg;
        tail = &arg->next;
    }
    return first;
}

/* One part of a[...]: an expression or a slice. */
static struct ast_node *parse_subscript(struct compiler *c) {
    struct ast_node *n = node_new(c, N_SLICE), *part = NULL;
    if (!at_operator(c, ":")) {
        part = parse_expression(c);
        if (!at_operator(c, ":"))
            return part;
    }
    n->a = part;
    expect_operator(c, ":");
    if (!at_operator(c, ":") && !at_operator(c, "]"))
        n->b = parse_expression(c);
    if (accept_operator(c, ":") && !at_operator(c, "]"))
        n->c = parse_expression(c);
    return n;
}

static struct ast_node *parse_member(struct compiler *c, struct ast_node *object) {
    struct ast_node *n = node_new(c, N_ATTR);
    n->a = object;
    const struct token *t = token_peek(c);
    if (t->kind == T_INT) { /* a.0 */
        n->kind = N_INDEX;
        n->b = constant_new(c, t->value);
        token_skip(c);
    } else {
        n->name = expect_name(c);
    }
    return n;
}

static struct ast_node *parse_call(struct compiler *c, struct ast_node *callee) {
    struct ast_node *n = node_new(c, N_CALL);
    n->a = callee;
    n->first = parse_call_arguments(c);
    return n;
}

static struct ast_node *parse_postfix(struct compiler *c, struct ast_node *object) {
    for (;;) {
        if (accept_operator(c, ".")) {
            object = parse_member(c, object);
        } else if (accept_operator(c, "[")) {
            struct ast_node *n = node_new(c, N_INDEX);
            n->a = object;
            n->b = parse_subscript(c);
            expect_operator(c, "]");
            object = n;
        } else if (accept_operator(c, "(")) {
            object = parse_call(c, object);
        } else {
            return object;
        }
    }
}

/* Names of filters and tests may hold dots. */
static const struct symbol *parse_dotted_name(struct compiler *c) {
    const struct symbol *name = expect_name(c);
    while (accept_operator(c, ".")) {
        const struct symbol *more = expect_name(c);
        char *joined = compiler_alloc(c, name->len + 1 + more->len, 1);
        memcpy(joined, name->text, name->len);
        joined[name->len] = '.';
        memcpy(joined + name->len + 1, more->text, more->len);
        name = symbol_intern(c, joined, name->len + 1 + more->len);
    }
    return name;
}

static struct ast_node *parse_filter(struct compiler *c, struct ast_node *object) {
    struct ast_node *n = node_new(c, N_FILTER);
    n->a = object;
    n->name = parse_dotted_name(c);
    if (accept_operator(c, "("))
        n->first = parse_call_arguments(c);
    return n;
}

struct ast_node *parse_filters(struct compiler *c, struct ast_node *object) {
    do
        object = parse_filter(c, object);
    while (accept_operator(c, "|"));
    return object;
}

/* `is divisibleby 3` needs no parentheses. */
static bool at_bare_test_argument(const struct compiler *c) {
    const struct token *t = token_peek(c);
    if (t->kind == T_NAME)
        return !at_word(c, "else") && !at_word(c, "or") && !at_word(c, "and") &&
               !at_word(c, "if") && !at_word(c, "is") && !at_word(c, "in") &&
               !at_word(c, "not");
    return t->kind == T_STRING || t->kind == T_INT || t->kind == T_FLOAT ||
           at_operator(c, "[") || at_operator(c, "{");
}

static struct ast_node *parse_test(struct compiler *c, struct ast_node *object) {
    bool negated = accept_word(c, "not");
    struct ast_node *n = node_new(c, N_TEST);
    n->a = object;
    n->name = parse_dotted_name(c);
    if (accept_operator(c, "(")) {
        n->first = parse_call_arguments(c);
    } else if (at_bare_test_argument(c)) {
        n->first = node_new(c, N_ARG);
        n->first->a = parse_postfix(c, parse_primary(c));
    }
    if (!negated)
        return n;
    struct ast_node *not = node_new(c, N_UNARY);
    not ->op = OP_NOT;
    not ->a = n;
    return not ;
}

static struct ast_node *parse_filters_and_tests(struct compiler *c, struct ast_node *object) {
    for (;;) {
        if (accept_operator(c, "|"))
            object = parse_filter(c, object);
        else if (accept_word(c, "is"))
            object = parse_test(c, object);
        else if (accept_operator(c, "("))
            object = parse_call(c, object);
        else
            return object;
    }
}

/* ---- operators, the tightest first --------------------------------------------------------- */

struct ast_node *parse_unary(struct compiler *c, bool with_filters) {
    struct ast_node *n;
    parse_enter(c);
    bool minus = at_operator(c, "-");
    if (minus || at_operator(c, "+")) {
        n = node_new(c, N_UNARY);
        token_skip(c);
        n->op = minus ? OP_NEG : OP_POS;
        n->a = parse_unary(c, false);
    } else {
        n = parse_primary(c);
    }
    n = parse_postfix(c, n);
    if (with_filters)
        n = parse_filters_and_tests(c, n);
    parse_leave(c);
    return n;
}

static struct ast_node *parse_power(struct compiler *c) {
    struct ast_node *n = parse_unary(c, true);
    while (accept_operator(c, "**"))
        n = binary_new(c, OP_POW, n, parse_unary(c, true));
    return n;
}

static struct ast_node *parse_product(struct compiler *c) {
    struct ast_node *n = parse_power(c);
    for (;;) {
        enum node_op op = accept_operator(c, "*")    ? OP_MUL
                          : accept_operator(c, "/")  ? OP_DIV
                          : accept_operator(c, "//") ? OP_FLOORDIV
                          : accept_operator(c, "%")  ? OP_MOD
                                                     : OP_NONE;
        if (op == OP_NONE)
            return n;
        n = binary_new(c, op, n, parse_power(c));
    }
}

static struct ast_node *parse_concat(struct compiler *c) {
    struct ast_node *part = parse_product(c);
    if (!at_operator(c, "~"))
        return part;
    struct ast_node *n = node_new(c, N_CONCAT);
    n->first = part;
    while (accept_operator(c, "~")) {
        part->next = parse_product(c);
        part = part->next;
    }
    return n;
}

static struct ast_node *parse_sum(struct compiler *c) {
    struct ast_node *n = parse_concat(c);
    for (;;) {
        enum node_op op = accept_operator(c, "+")   ? OP_ADD
                          : accept_operator(c, "-") ? OP_SUB
                                                    : OP_NONE;
        if (op == OP_NONE)
            return n;
        n = binary_new(c, op, n, parse_concat(c));
    }
}

static enum node_op accept_comparison(struct compiler *c) {
    static const struct {
        const char *text;
        enum node_op op;
    } operators[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<", OP_LT},
                     {"<=", OP_LE}, {">", OP_GT},  {">=", OP_GE}};
    for (size_t i = 0; i < ARRAY_LEN(operators); i++)
        if (accept_operator(c, operators[i].text))
            return operators[i].op;
    if (accept_word(c, "in"))
        return OP_IN;
    if (at_word(c, "not") && token_is(token_after(c), T_NAME, "in")) {
        token_skip(c);
        token_skip(c);
        return OP_NOT_IN;
    }
    return OP_NONE;
}

static struct ast_node *parse_comparison(struct compiler *c) {
    struct ast_node *left = parse_sum(c), *n = NULL, **tail = NULL;
    for (enum node_op op; (op = accept_comparison(c)) != OP_NONE;) {
        if (n == NULL) {
            n = node_new(c, N_COMPARE);
            n->a = left;
            tail = &n->first;
        }
        struct ast_node *operand = node_new(c, N_OPERAND);
        operand->op = (uint8_t)op;
        operand->a = parse_sum(c);
        *tail = operand;
        tail = &operand->next;
    }
    return n == NULL ? left : n;
}

static struct ast_node *parse_not(struct compiler *c) {
    if (!at_word(c, "not"))
        return parse_comparison(c);
    parse_enter(c);
    struct ast_node *n = node_new(c, N_UNARY);
    token_skip(c);
    n->op = OP_NOT;
    n->a = parse_not(c);
    parse_leave(c);
    return n;
}

static struct ast_node *parse_and(struct compiler *c) {
    struct ast_node *n = parse_not(c);
    while (accept_word(c, "and"))
        n = binary_new(c, OP_AND, n, parse_not(c));
    return n;
}

static struct ast_node *parse_or(struct compiler *c) {
    struct ast_node *n = parse_and(c);
    while (accept_word(c, "or"))
        n = binary_new(c, OP_OR, n, parse_and(c));
    return n;
}

struct ast_node *parse_expression(struct compiler *c) {
    parse_enter(c);
    struct ast_node *n = parse_or(c);
    while (at_word(c, "if")) {
        struct ast_node *cond = node_new(c, N_COND);
        token_skip(c);
        cond->a = n;
        cond->b = parse_or(c);
        if (accept_word(c, "else"))
            cond->c = parse_expression(c);
        n = cond;
    }
    parse_leave(c);
    return n;
}

static bool at_tuple_end(const struct compiler *c) {
    enum token_kind kind = token_peek(c)->kind;
    return kind == T_BLOCK_END || kind == T_PRINT_END || kind == T_END || at_operator(c, ")") ||
           at_operator(c, "=");
}

struct ast_node *parse_tuple(struct compiler *c, bool with_condition) {
    struct ast_node *first = with_condition ? parse_expression(c) : parse_or(c);
    if (!at_operator(c, ","))
        return first;
    struct ast_node *n = node_new(c, N_TUPLE), *last = first;
    n->first = first;
    while (accept_operator(c, ",") && !at_tuple_end(c)) {
        last->next = with_condition ? parse_expression(c) : parse_or(c);
        last = last->next;
    }
    return n;
}

/* ---- what is assigned to ------------------------------------------------------------------- */

static struct ast_node *parse_one_target(struct compiler *c, bool with_namespace) {
    if (accept_operator(c, "(")) {
        parse_enter(c);
        struct ast_node *inner = parse_target(c, false);
        parse_leave(c);
        expect_operator(c, ")");
        return inner;
    }
    struct ast_node *n = node_new(c, N_NAME);
    n->name = expect_name(c);
    if (!with_namespace || !accept_operator(c, "."))
        return n;
    struct ast_node *member = node_new(c, N_ATTR);
    member->a = n;
    member->name = expect_name(c);
    return member;
}

struct ast_node *parse_target(struct compiler *c, bool with_namespace) {
    struct ast_node *first = parse_one_target(c, with_namespace);
    if (!at_operator(c, ","))
        return first;
    struct ast_node *n = node_new(c, N_TUPLE), *last = first;
    n->first = first;
    while (accept_operator(c, ",") && !at_tuple_end(c) && !at_word(c, "in")) {
        last->next = parse_one_target(c, with_namespace);
        last = last->next;
    }
    return n;
}
