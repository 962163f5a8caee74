/* template_value.h: the values of a template and the state of one render.
 *
 * Everything that a render allocates lives in its arena and is never freed before the end. So
 * values are copied by assignment and may point at each other. Strings are (pointer, length)
 * and immutable, often borrowed from the JSON or from the compiled template.
 *
 * A failure anywhere below leaves through render_fail(), which jumps back to template_render().
 * All memory belongs to the render, so nothing needs cleaning up on the way. This is the one
 * place in lockstep where status is not returned call by call. */
#ifndef LOCKSTEP_JINJA_TEMPLATE_VALUE_H
#define LOCKSTEP_JINJA_TEMPLATE_VALUE_H

#include "base/status.h"
#include "base/util.h"
#include "jinja/template.h"
#include "jinja/template_arena.h"

#include <setjmp.h>

enum value_kind {
    V_MISSING, /* an argument that was not given; never reaches a template */
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STRING,
    V_LIST,
    V_TUPLE,
    V_RANGE,
    V_VIEW,      /* dict.keys(), .values(), .items(): no indexing */
    V_GENERATOR, /* map, select ...: always true, no length, read once */
    V_DICT,
    V_NAMESPACE,
    V_LOOP,
    V_MACRO,
    V_BUILTIN,
    V_METHOD,
    V_CYCLER,
    V_JOINER,
};

struct value {
    enum value_kind kind;
    bool safe; /* strings: Markup, the result of |safe or |escape; + escapes the other side */
    union {
        bool boolean;
        int64_t integer;
        double number;
        const char *text;
        struct seq *seq;                 /* list, tuple, range, view, generator, cycler */
        struct dict *dict;               /* dict, namespace */
        const struct undefined *missing; /* undefined */
        struct loop *loop;
        const struct macro *macro;
        const struct builtin *builtin;
        const struct method *method;
        struct joiner *joiner;
    };
    size_t len; /* strings: bytes */
};

struct seq {
    struct value *items;
    size_t n, cap;
    size_t pos;        /* generator, cycler: what comes next */
    const char *label; /* range, view, generator: how str() begins; static or in the arena */
    const char *const *names; /* tuple: what its items are called too, static; else NULL */
};

struct dict_entry {
    struct value key, value;
    uint32_t hash;
};

/* In order of insertion. index holds entry numbers + 1 by open addressing, NULL while small. */
struct dict {
    struct dict_entry *entries;
    size_t n, cap;
    uint32_t *index;
    size_t n_index; /* a power of two */
};

/* Why a value is undefined, for the sentence that using it gives. */
struct undefined {
    enum { UNDEFINED_NAME, UNDEFINED_MEMBER, UNDEFINED_OTHER } why;
    struct value owner; /* of a member */
    struct value key;   /* the name; of OTHER: the sentence */
};

struct joiner {
    struct value separator;
    bool used;
};

struct keyword {
    const char *name;
    size_t len;
    struct value value;
};

#define MAX_BOUND 6

/* Arguments of a call; `arg` is filled for builtins that name their parameters. */
struct call {
    const struct value *pos;
    size_t n_pos;
    const struct keyword *kw;
    size_t n_kw;
    struct value arg[MAX_BOUND];
};

struct render;

/* A filter, test, function or method. self: the filtered value, or the object. */
struct builtin {
    const char *name;
    const char *params; /* "width,first,blank"; NULL: fn reads pos and kw itself */
    size_t n_required;
    struct value (*fn)(struct render *r, struct value self, struct call *call);
};

struct method {
    const struct builtin *fn;
    struct value self;
};

struct render {
    const struct template *template;
    const struct template_clock *now;
    struct arena arena;
    char *out; /* the text so far; a stack: captured parts are taken off its end */
    size_t n_out, cap_out;
    size_t n_steps;
    unsigned depth;
    unsigned line;        /* of the template, where we are */
    struct value context; /* dict of the variables given */
    struct scope *scope;
    struct value captured; /* inside a filter block: its body */
    struct binding *spare_bindings;
    jmp_buf fail;
    enum status status;
    struct err *err;
};

/* ---- failing, counting ------------------------------------------------------------- */

/* Ends the render with "template line N: " and the sentence. */
_Noreturn __attribute__((format(printf, 3, 4))) void
render_fail(struct render *r, enum status st, const char *fmt, ...);
/* The same with the sentence alone (raise_exception). */
_Noreturn void render_raise(struct render *r, const char *message, size_t len);

/* Counts n units of work (about one visit of a node, or 32 bytes touched). */
void render_spend(struct render *r, size_t n);
/* Around every recursion, the template's or the data's. */
void render_enter(struct render *r);
static inline void render_leave(struct render *r) {
    r->depth--;
}

void *render_alloc(struct render *r, size_t n, size_t size_bytes, size_t align);
#define RENDER_NEW(r, type) ((type *)render_alloc(r, 1, sizeof(type), _Alignof(type)))
#define RENDER_ARRAY(r, type, n) ((type *)render_alloc(r, n, sizeof(type), _Alignof(type)))

/* ---- the output stack --------------------------------------------------------------- */

void out_put(struct render *r, const char *p, size_t n);
void out_puts(struct render *r, const char *s);
void out_char(struct render *r, uint32_t code_point);
void out_value(struct render *r, struct value v); /* str(v) */
/* Takes what was put since n_out was `mark` off the output, as a string. */
struct value out_take(struct render *r, size_t mark);

/* ---- making values -------------------------------------------------------------------- */

static inline struct value value_none(void) {
    return (struct value){.kind = V_NONE};
}
static inline struct value value_bool(bool b) {
    return (struct value){.kind = V_BOOL, .boolean = b};
}
static inline struct value value_int(int64_t i) {
    return (struct value){.kind = V_INT, .integer = i};
}
static inline struct value value_float(double f) {
    return (struct value){.kind = V_FLOAT, .number = f};
}
/* Borrows the bytes. */
static inline struct value value_text(const char *p, size_t len) {
    return (struct value){.kind = V_STRING, .text = p, .len = len};
}
struct value value_cstr(const char *s); /* borrows */
struct value value_copy(struct render *r, const char *p, size_t len);
struct value value_undefined(struct render *r, struct value sentence);
struct value value_missing_member(struct render *r, struct value owner, struct value key);
struct value value_missing_name(struct render *r, const char *name, size_t len);
_Noreturn void undefined_fail(struct render *r, struct value v);

struct value seq_new(struct render *r, enum value_kind kind, size_t cap);
void seq_push(struct render *r, struct value seq, struct value item);
struct value pair_new(struct render *r, struct value a, struct value b); /* a tuple */

struct value dict_new(struct render *r);
void dict_set(struct render *r, struct dict *d, struct value key, struct value v);
/* NULL if it is absent; fails for keys that Python cannot hash. */
struct value *dict_get(struct render *r, const struct dict *d, struct value key);
struct value *dict_get_text(struct render *r, const struct dict *d, const char *p, size_t len);
bool dict_delete(struct render *r, struct dict *d, struct value key);

struct value value_from_json(struct render *r, const json_t *j);

/* ---- reading values ----------------------------------------------------------------- */

static inline bool is_sequence(struct value v) { /* has items, a length and an order */
    return v.kind == V_LIST || v.kind == V_TUPLE || v.kind == V_RANGE;
}
static inline bool is_number(struct value v) { /* bool is an int, as in Python */
    return v.kind == V_BOOL || v.kind == V_INT || v.kind == V_FLOAT;
}
static inline bool is_integral(struct value v) {
    return v.kind == V_BOOL || v.kind == V_INT;
}
static inline int64_t as_int(struct value v) { /* of an integral */
    return v.kind == V_BOOL ? v.boolean : v.integer;
}
static inline double as_double(struct value v) { /* of a number */
    return v.kind == V_FLOAT ? v.number : (double)as_int(v);
}
static inline bool text_is(struct value v, const char *s) {
    return v.kind == V_STRING && v.len == strlen(s) && memcmp(v.text, s, v.len) == 0;
}

const char *type_name(struct value v); /* Python's: "str", "NoneType", ... */
bool value_truth(struct value v);
bool value_equal(struct render *r, struct value a, struct value b);
/* <0, 0, >0; op names the operator in the TypeError's sentence. */
int value_compare(struct render *r, struct value a, struct value b, const char *op);
bool value_contains(struct render *r, struct value container, struct value item);
size_t value_length(struct render *r, struct value v);

/* for x in v: the items as a list value (shared with v where it is one). */
struct seq *value_iterate(struct render *r, struct value v);

int64_t need_int(struct render *r, struct value v);
struct value need_text(struct render *r, struct value v);  /* or a TypeError */
struct value value_str(struct render *r, struct value v);  /* str(v) */
struct value value_repr(struct render *r, struct value v); /* repr(v) */
void out_repr(struct render *r, struct value v);
/* Python's repr of a double: the shortest digits that read back the same. */
size_t double_repr(double f, char buf[40]);

/* obj.name and obj[key], which try each other's way second, as Jinja's do. */
struct value value_attribute(struct render *r, struct value v, const char *name, size_t len);
struct value value_item(struct render *r, struct value v, struct value key);
/* "a.b.0" as the attribute= of map, sort, selectattr ... */
struct value value_path(struct render *r, struct value v, struct value path);

/* ---- calling ------------------------------------------------------------------------- */

struct value value_call(struct render *r, struct value callee, struct call *call);
struct value builtin_call(struct render *r, const struct builtin *b, struct value self,
                          struct call *call);
const struct builtin *filter_find(const char *name, size_t len);
const struct builtin *test_find(const char *name, size_t len);
const struct builtin *function_find(const char *name, size_t len);
const struct builtin *method_find(enum value_kind kind, const char *name, size_t len);
const struct builtin *builtin_find(const struct builtin *table, size_t n, const char *name,
                                   size_t len);

/* ---- text ------------------------------------------------------------------------------ */

/* Decodes one code point at p < end; returns its number of bytes (1 for an invalid byte). */
size_t utf8_get(const char *p, const char *end, uint32_t *code_point);
size_t utf8_put(uint32_t code_point, char buf[4]);
bool utf8_valid(const char *p, size_t len);
size_t utf8_count(const char *p, size_t len);
/* The byte offset of code point i (<= count). */
size_t utf8_offset(const char *p, size_t len, size_t i);
bool unicode_space(uint32_t code_point); /* str.isspace of Python */

/* First occurrence of needle in [from, len), or SIZE_MAX. */
size_t text_find(struct value hay, struct value needle, size_t from);
struct value text_slice(struct value s, size_t begin, size_t end); /* bytes; borrows */
/* chars: V_NONE or V_MISSING strips white space. side: 1 left, 2 right, 3 both. */
struct value text_strip(struct render *r, struct value s, struct value chars, int side);
struct value text_replace(struct render *r, struct value s, struct value old, struct value new,
                          int64_t count);
struct value text_escape(struct render *r, struct value s); /* HTML; the result is safe */
enum text_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL, CASE_SWAP };
struct value text_change_case(struct render *r, struct value s, enum text_case how);
struct value text_concat(struct render *r, struct value a, struct value b);

struct json_style {
    bool ascii, sort_keys;
    struct value indent; /* V_NONE: one line */
    struct value item_separator, key_separator;
};
void out_json(struct render *r, struct value v, const struct json_style *style);

/* "%s and %d" % args, and "{} {name}".format(...) */
struct value format_percent(struct render *r, struct value format, struct value args);
struct value format_braces(struct render *r, struct value format, const struct call *call);

#endif
