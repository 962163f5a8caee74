/* template_parse.c: the parser of statements, and template_compile(). */
#include "jinja/template_ast.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>

#define MAX_TREE_BYTES ((size_t)256 << 20)
#define MAX_SOURCE_BYTES ((size_t)4 << 20)

void template_fail(struct compiler *c, enum status st, unsigned line, const char *fmt, ...) {
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    c->status = err_set(c->err, st, "template line %u: %s", line, text);
    longjmp(c->fail, 1);
}

static void *alloc_from(struct compiler *c, struct arena *arena, size_t size_bytes,
                        size_t align) {
    void *p = arena_alloc(arena, size_bytes, align);
    if (p == NULL) {
        c->status = err_set(c->err, ST_NO_MEMORY, "no memory to compile the template");
        longjmp(c->fail, 1);
    }
    return p;
}

void *compiler_alloc(struct compiler *c, size_t size_bytes, size_t align) {
    return alloc_from(c, &c->template->arena, size_bytes, align);
}

void *compiler_scratch(struct compiler *c, size_t size_bytes, size_t align) {
    return alloc_from(c, &c->scratch, size_bytes, align);
}

const struct symbol *symbol_intern(struct compiler *c, const char *text, size_t len) {
    uint32_t hash = 0;
    for (size_t i = 0; i < len; i++)
        hash = hash * 31 + (unsigned char)text[i];
    struct symbol **bucket = &c->symbols[hash % SYMBOL_BUCKETS];
    for (struct symbol *s = *bucket; s != NULL; s = s->next)
        if (s->len == len && memcmp(s->text, text, len) == 0)
            return s;
    struct symbol *s = compiler_alloc(c, sizeof *s, _Alignof(struct symbol));
    char *copy = compiler_alloc(c, len + 1, 1);
    memcpy(copy, text, len);
    copy[len] = '\0';
    *s = (struct symbol){copy, len, *bucket};
    *bucket = s;
    return s;
}

/* ---- statements ----------------------------------------------------------------------- */

/* Parses statements up to {% word %} for one of the words (NULL: to the end of the template).
 * Its "{%" is consumed, and the word is the next token. */
static struct ast_node *parse_body(struct compiler *c, const char *const *ends);

static void expect_block_end(struct compiler *c) {
    if (token_peek(c)->kind != T_BLOCK_END)
        fail_unexpected(c, "the end of the block");
    c->at++;
}

/* Parses body and {% end %} of a block whose head has been read up to its "%}". */
static struct ast_node *parse_block_body(struct compiler *c, const char *end) {
    const char *const ends[] = {end, NULL};
    expect_block_end(c);
    struct ast_node *body = parse_body(c, ends);
    accept_word(c, end);
    return body;
}

static struct ast_node *parse_if(struct compiler *c) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct ast_node *n = node_new(c, N_IF), **tail = &n->first;
    for (bool more = true, is_else = false; more;) {
        struct ast_node *branch = node_new(c, N_BRANCH);
        if (!is_else)
            branch->a = parse_tuple(c, false);
        expect_block_end(c);
        branch->body = parse_body(c, ends);
        *tail = branch;
        tail = &branch->next;
        bool was_else = is_else;
        is_else = !was_else && accept_word(c, "else");
        more = is_else || (!was_else && accept_word(c, "elif"));
    }
    if (!accept_word(c, "endif"))
        fail_unexpected(c, "'endif'");
    return n;
}

static struct ast_node *parse_for(struct compiler *c) {
    static const char *const ends[] = {"else", "endfor", NULL};
    struct ast_node *n = node_new(c, N_FOR);
    n->a = parse_target(c, false);
    if (!accept_word(c, "in"))
        fail_unexpected(c, "'in'");
    n->b = parse_tuple(c, false);
    if (accept_word(c, "if"))
        n->c = parse_expression(c);
    n->op = accept_word(c, "recursive");
    expect_block_end(c);
    c->n_loops++;
    n->body = parse_body(c, ends);
    c->n_loops--;
    if (accept_word(c, "else"))
        n->other = parse_block_body(c, "endfor");
    else if (!accept_word(c, "endfor"))
        fail_unexpected(c, "'endfor'");
    return n;
}

static struct ast_node *parse_set(struct compiler *c) {
    struct ast_node *n = node_new(c, N_SET);
    n->a = parse_target(c, true);
    if (accept_operator(c, "=")) {
        n->b = parse_tuple(c, true);
        return n;
    }
    n->kind = N_CAPTURE;
    if (accept_operator(c, "|"))
        n->b = parse_filters(c, NULL);
    n->body = parse_block_body(c, "endset");
    return n;
}

static struct ast_node *parse_parameters(struct compiler *c) {
    struct ast_node *first = NULL, **tail = &first;
    expect_operator(c, "(");
    while (!accept_operator(c, ")")) {
        if (first != NULL) {
            expect_operator(c, ",");
            if (accept_operator(c, ")"))
                break;
        }
        struct ast_node *param = node_new(c, N_PARAM);
        param->name = expect_name(c);
        if (accept_operator(c, "="))
            param->a = parse_expression(c);
        *tail = param;
        tail = &param->next;
    }
    return first;
}

/* The parameters (at "(") and body of a macro or call block. Loops outside are not its own. */
static void parse_macro_body(struct compiler *c, struct ast_node *n, const char *end) {
    uint8_t uses = c->macro_uses;
    unsigned n_loops = c->n_loops;
    c->macro_uses = 0;
    c->n_loops = 0;
    n->body = parse_block_body(c, end);
    n->op = c->macro_uses;
    c->macro_uses = uses;
    c->n_loops = n_loops;
}

static struct ast_node *parse_macro(struct compiler *c) {
    struct ast_node *n = node_new(c, N_MACRO);
    n->name = expect_name(c);
    n->first = parse_parameters(c);
    parse_macro_body(c, n, "endmacro");
    return n;
}

static struct ast_node *parse_call_block(struct compiler *c) {
    struct ast_node *n = node_new(c, N_CALLING);
    n->name = c->template->sym_caller;
    if (at_operator(c, "("))
        n->first = parse_parameters(c);
    n->a = parse_unary(c, true);
    if (n->a->kind != N_CALL)
        fail_unexpected(c, "a call");
    parse_macro_body(c, n, "endcall");
    return n;
}

static struct ast_node *parse_filter_block(struct compiler *c) {
    struct ast_node *n = node_new(c, N_FILTERED);
    n->b = parse_filters(c, NULL);
    n->body = parse_block_body(c, "endfilter");
    return n;
}

static struct ast_node *parse_with(struct compiler *c) {
    struct ast_node *n = node_new(c, N_WITH), **tail = &n->first;
    while (token_peek(c)->kind != T_BLOCK_END) {
        if (n->first != NULL)
            expect_operator(c, ",");
        struct ast_node *set = node_new(c, N_SET);
        set->a = parse_target(c, false);
        expect_operator(c, "=");
        set->b = parse_expression(c);
        *tail = set;
        tail = &set->next;
    }
    n->body = parse_block_body(c, "endwith");
    return n;
}

static struct ast_node *parse_generation(struct compiler *c) {
    struct ast_node *n = node_new(c, N_SCOPE);
    n->body = parse_block_body(c, "endgeneration");
    return n;
}

static struct ast_node *parse_named_block(struct compiler *c) {
    struct ast_node *n = node_new(c, N_SCOPE);
    n->name = expect_name(c);
    const char *const ends[] = {"endblock", NULL};
    expect_block_end(c);
    n->body = parse_body(c, ends);
    accept_word(c, "endblock");
    accept_word(c, n->name->text);
    return n;
}

static struct ast_node *parse_jump(struct compiler *c, enum node_kind kind) {
    if (c->n_loops == 0)
        template_fail(c, ST_BAD_INPUT, token_peek(c)->line, "'%s' outside of a loop",
                      kind == N_BREAK ? "break" : "continue");
    return node_new(c, kind);
}

static struct ast_node *parse_break(struct compiler *c) {
    return parse_jump(c, N_BREAK);
}

static struct ast_node *parse_continue(struct compiler *c) {
    return parse_jump(c, N_CONTINUE);
}

static struct ast_node *parse_statement(struct compiler *c) {
    static const struct {
        const char *word;
        struct ast_node *(*parse)(struct compiler *c);
    } statements[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call_block},
        {"filter", parse_filter_block},
        {"with", parse_with},
        {"generation", parse_generation},
        {"block", parse_named_block},
        {"break", parse_break},
        {"continue", parse_continue},
    };
    for (size_t i = 0; i < ARRAY_LEN(statements); i++) {
        if (accept_word(c, statements[i].word)) {
            struct ast_node *n = statements[i].parse(c);
            expect_block_end(c);
            return n;
        }
    }
    const struct token *t = token_peek(c);
    if (t->kind == T_NAME)
        template_fail(c, ST_BAD_INPUT, t->line, "unknown or misplaced tag '%.*s'",
                      (int)MIN(t->len, (size_t)60), t->text);
    fail_unexpected(c, "a statement");
}

static struct ast_node *parse_print(struct compiler *c) {
    struct ast_node *n = node_new(c, N_PRINT);
    n->a = parse_tuple(c, true);
    if (token_peek(c)->kind != T_PRINT_END)
        fail_unexpected(c, "'}}'");
    c->at++;
    return n;
}

static bool at_one_of(const struct compiler *c, const char *const *words) {
    for (; words != NULL && *words != NULL; words++)
        if (at_word(c, *words))
            return true;
    return false;
}

static struct ast_node *parse_body(struct compiler *c, const char *const *ends) {
    struct ast_node *first = NULL, **tail = &first;
    parse_enter(c);
    for (;;) {
        const struct token *t = token_peek(c);
        if (t->kind == T_END) {
            if (ends != NULL)
                fail_unexpected(c, ends[1] == NULL ? ends[0] : "the end of this block");
            break;
        }
        c->at++;
        if (t->kind == T_BLOCK_BEGIN && at_one_of(c, ends))
            break;
        if (t->kind == T_DATA) {
            *tail = node_new(c, N_TEXT);
            (*tail)->constant = t->value;
        } else if (t->kind == T_PRINT_BEGIN) {
            *tail = parse_print(c);
        } else {
            *tail = parse_statement(c);
        }
        (*tail)->line = t->line;
        tail = &(*tail)->next;
    }
    parse_leave(c);
    return first;
}

/* ---- compiling -------------------------------------------------------------------------- */

/* Newlines become \n, and one at the end is dropped, as Jinja does. */
static void copy_source(struct compiler *c, const char *source, size_t len) {
    if (len > MAX_SOURCE_BYTES)
        template_fail(c, ST_UNSUPPORTED, 1, "the template is longer than %zu MiB",
                      MAX_SOURCE_BYTES >> 20);
    char *copy = compiler_alloc(c, len, 1);
    size_t n = 0;
    uint32_t line = 1;
    for (size_t i = 0; i < len; i++) {
        bool is_return = source[i] == '\r';
        if (is_return && i + 1 < len && source[i + 1] == '\n')
            continue;
        copy[n++] = is_return ? '\n' : source[i];
    }
    for (size_t i = 0, width; i < n; i += width) {
        uint32_t cp;
        width = utf8_get(copy + i, copy + n, &cp);
        if (width == 1 && (unsigned char)copy[i] >= 0x80)
            template_fail(c, ST_BAD_INPUT, line, "invalid UTF-8");
        line += copy[i] == '\n';
    }
    c->source = copy;
    c->len = n - (n > 0 && copy[n - 1] == '\n');
}

enum status template_compile(struct template **out, const char *source, size_t len,
                             struct err *err) {
    struct template *t = mem_calloc(1, sizeof *t);
    struct compiler *c = mem_calloc(1, sizeof *c);
    if (t == NULL || c == NULL) {
        mem_free(t);
        mem_free(c);
        return err_set(err, ST_NO_MEMORY, "no memory to compile the template");
    }
    struct err unread;
    arena_init(&t->arena, MAX_TREE_BYTES);
    arena_init(&c->scratch, MAX_TREE_BYTES);
    c->template = t;
    c->err = err != NULL ? err : &unread;
    if (setjmp(c->fail) == 0) {
        t->sym_loop = symbol_intern(c, "loop", 4);
        t->sym_caller = symbol_intern(c, "caller", 6);
        t->sym_varargs = symbol_intern(c, "varargs", 7);
        t->sym_kwargs = symbol_intern(c, "kwargs", 6);
        copy_source(c, source, len);
        template_lex(c);
        t->body = parse_body(c, NULL);
    }
    enum status st = c->status;
    arena_deinit(&c->scratch);
    mem_free(c);
    if (st != ST_OK) {
        template_close(t);
        return st;
    }
    *out = t;
    return ST_OK;
}

void template_close(struct template *t) {
    if (t == NULL)
        return;
    arena_deinit(&t->arena);
    mem_free(t);
}
