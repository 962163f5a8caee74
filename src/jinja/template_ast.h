/* template_ast.h: from source to tree. The lexer makes an array of tokens, and the parser a
 * tree of nodes in the template's arena. A syntax error leaves both through template_fail(). */
#ifndef LOCKSTEP_JINJA_TEMPLATE_AST_H
#define LOCKSTEP_JINJA_TEMPLATE_AST_H

#include "jinja/template_value.h"

/* A name of the template; equal names share one symbol, so they compare by address. */
struct symbol {
    const char *text; /* NUL-terminated */
    size_t len;
    struct symbol *next;
};

enum node_kind {
    /* expressions */
    N_CONST,
    N_NAME,    /* name */
    N_LIST,    /* first */
    N_TUPLE,   /* first */
    N_DICT,    /* first: keys and values in turn */
    N_UNARY,   /* op a */
    N_BINARY,  /* a op b */
    N_COMPARE, /* a, then first: N_OPERAND op a */
    N_OPERAND,
    N_CONCAT, /* first ~ ... */
    N_COND,   /* a if b else c (c may be NULL) */
    N_ATTR,   /* a.name */
    N_INDEX,  /* a[b] */
    N_SLICE,  /* a:b:c, each may be NULL; only as b of N_INDEX */
    N_CALL,   /* a(first: N_ARG) */
    N_ARG,    /* a; op says positional, keyword (name), * or ** */
    N_FILTER, /* a | name(first); a is NULL for the body of a filter block */
    N_TEST,   /* a is name(first) */
    /* statements */
    N_TEXT,     /* constant */
    N_PRINT,    /* a */
    N_IF,       /* first: N_BRANCH */
    N_BRANCH,   /* if a (NULL: else) body */
    N_FOR,      /* for a in b if c, body, other; op: recursive */
    N_SET,      /* a = b */
    N_CAPTURE,  /* set a, body, endset; b: the filters or NULL */
    N_MACRO,    /* name(first: N_PARAM) body; op: what it uses */
    N_PARAM,    /* name = a (NULL: no default) */
    N_CALLING,  /* call a: body with first: N_PARAM, as caller() */
    N_FILTERED, /* filter b, body */
    N_WITH,     /* first: N_SET; body */
    N_SCOPE,    /* generation, block: body */
    N_BREAK,
    N_CONTINUE,
};

enum node_op {
    OP_NONE,
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_AND,
    OP_OR,
    OP_NOT,
    OP_NEG,
    OP_POS,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
};

enum { ARG_POSITIONAL, ARG_KEYWORD, ARG_STAR, ARG_STAR_STAR };
enum { MACRO_VARARGS = 1, MACRO_KWARGS = 2, MACRO_CALLER = 4 };

struct ast_node {
    uint8_t kind, op;
    uint32_t line;
    struct ast_node *next; /* in a list */
    const struct symbol *name;
    struct ast_node *a, *b, *c;
    struct ast_node *first;        /* a list */
    struct ast_node *body, *other; /* lists of statements */
    struct value constant;
};

enum token_kind {
    T_END,
    T_DATA,
    T_PRINT_BEGIN,
    T_PRINT_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_OPERATOR, /* text is it */
};

struct token {
    enum token_kind kind;
    uint32_t line;
    struct value value; /* T_DATA, T_STRING: the text; numbers: the number */
    const char *text;   /* as it stands in the source */
    size_t len;
};

struct template {
    struct arena arena;
    struct ast_node *body;
    const struct symbol *sym_loop, *sym_caller, *sym_varargs, *sym_kwargs;
};

#define SYMBOL_BUCKETS 64

/* The state of one compilation. */
struct compiler {
    struct template *template;
    struct arena scratch; /* tokens */
    const char *source;
    size_t len;
    struct token *tokens;
    size_t n_tokens, cap_tokens;
    size_t at; /* the parser's token */
    unsigned depth, n_loops;
    uint8_t macro_uses; /* MACRO_ flags of the macro being parsed */
    struct symbol *symbols[SYMBOL_BUCKETS];
    jmp_buf fail;
    enum status status;
    struct err *err;
};

_Noreturn __attribute__((format(printf, 4, 5))) void
template_fail(struct compiler *c, enum status st, unsigned line, const char *fmt, ...);
void *compiler_alloc(struct compiler *c, size_t size_bytes, size_t align); /* the template's */
void *compiler_scratch(struct compiler *c, size_t size_bytes, size_t align); /* until it ends */
const struct symbol *symbol_intern(struct compiler *c, const char *text, size_t len);

void template_lex(struct compiler *c);

/* Expressions (template_parse_expr.c) and what both use. */
enum { PARSE_DEPTH_MAX = 120 };
struct ast_node *node_new(struct compiler *c, enum node_kind kind);
const struct token *token_peek(const struct compiler *c);
bool accept_operator(struct compiler *c, const char *op);
void expect_operator(struct compiler *c, const char *op);
bool at_operator(const struct compiler *c, const char *op);
bool accept_word(struct compiler *c, const char *word);
bool at_word(const struct compiler *c, const char *word);
const struct symbol *expect_name(struct compiler *c);
_Noreturn void fail_unexpected(struct compiler *c, const char *expected);
void parse_enter(struct compiler *c);
void parse_leave(struct compiler *c);
struct ast_node *parse_expression(struct compiler *c);
/* One or more separated by commas: a tuple, or the expression itself if there is one. */
struct ast_node *parse_tuple(struct compiler *c, bool with_condition);
struct ast_node *parse_target(struct compiler *c, bool with_namespace);
/* name(args)|name... behind an optional object. */
struct ast_node *parse_filters(struct compiler *c, struct ast_node *object);
struct ast_node *parse_unary(struct compiler *c, bool with_filters);

#endif
