/* chat_parse_impl.h: shared by the parts of the output parser: the input that is not parsed
 * yet, markers, and emitting events. */
#ifndef LOCKSTEP_CHAT_CHAT_PARSE_IMPL_H
#define LOCKSTEP_CHAT_CHAT_PARSE_IMPL_H

#include "base/buf.h"
#include "base/util.h"
#include "chat/chat_parse.h"

/* Where the parser is. Each state has a step that reads input or asks for more. */
enum parse_state {
    PARSE_CONTENT,
    PARSE_REASONING,
    PARSE_JSON_FIRST,     /* before a call written as JSON, or a list of them */
    PARSE_JSON_CALL,      /* in it */
    PARSE_JSON_NEXT,      /* after it: another one, or what closes */
    PARSE_NAME,           /* Mistral's NAME[ARGS] */
    PARSE_VALUE,          /* one JSON value as arguments */
    PARSE_TAGGED_SECTION, /* calls between special tokens: before the next one */
    PARSE_TAGGED_HEAD,
    PARSE_TAGGED_FENCE,
    PARSE_TAGGED_ARGUMENTS,
    PARSE_XML_FUNCTION, /* calls in XML style: before the function's name */
    PARSE_XML_NAME,
    PARSE_XML_PARAM,
    PARSE_XML_KEY,
    PARSE_XML_ATTRIBUTES,
    PARSE_XML_VALUE_OPEN,
    PARSE_XML_VALUE,
    PARSE_XML_CLOSE,
    PARSE_XML_JSON,    /* a function's arguments in one piece */
    PARSE_XML_BLOCK,   /* the same, between tags */
    PARSE_RECIPIENT,   /* Functionary's >>>NAME */
    PARSE_LOOSE_FIRST, /* calls written nearly as JSON or Python */
    PARSE_LOOSE_NAME,
    PARSE_LOOSE,
    PARSE_LOOSE_NEXT,
    PARSE_NESTED_FIRST, /* tags within tags: before a call */
    PARSE_NESTED_NAME,
    PARSE_NESTED,
    PARSE_HARMONY_HEADER,
    PARSE_HARMONY_BODY,
    PARSE_N_STATES
};

/* A JSON value, character by character: where it ends. */
struct json_scan {
    unsigned depth;
    bool in_string, escape, scalar;
};

struct call_scan {
    enum {
        CALL_OPEN,
        CALL_KEY_OR_END,
        CALL_KEY,
        CALL_COLON,
        CALL_VALUE_OPEN,
        CALL_VALUE,
        CALL_COMMA_OR_END
    } at;
    enum { KEY_OTHER, KEY_NAME, KEY_ARGUMENTS, KEY_ID } key_kind;
    struct json_scan value_scan;
    struct buf text;      /* the key, or the value that is collected */
    struct buf arguments; /* where they came before the name */
    bool streams;         /* the value goes out as it comes */
};

#define LOOSE_MAX_DEPTH 64

/* Arguments that are nearly JSON, and what of them is written as JSON already. */
struct loose_scan {
    enum {
        LOOSE_KEY,
        LOOSE_COLON,
        LOOSE_VALUE,
        LOOSE_TEXT,
        LOOSE_WORD,
        LOOSE_AFTER /* a value */
    } at;
    bool of_key;     /* the text is a key */
    char quote;      /* that ends the text; 0: the syntax's */
    unsigned nested; /* brackets within a word */
    size_t n_args;   /* without a name */
    size_t depth; /* of open brackets, below: '[' or '{', and whether there is a member yet */
    char open[LOOSE_MAX_DEPTH];
    bool filled[LOOSE_MAX_DEPTH];
    const json_t *schema[LOOSE_MAX_DEPTH + 1]; /* of what is open, and of the value to come */
};

struct chat_parser {
    struct chat_parse_options o;
    const struct call_syntax *syntax;
    enum parse_state state;
    bool final, out_of_memory;
    bool cut; /* chat_parser_end() */

    struct buf in; /* input; what is before `at` is done with, unless doubtful */
    size_t at;
    bool doubtful;         /* since `mark` we read a call that may prove to be none */
    size_t mark, mark_len; /* of its marker, which then is content */

    struct buf space; /* the white space at the end of content or reasoning, held back */
    bool skip_space;  /* next to a tag */
    bool said;        /* content since the beginning or the last call */
    bool answering;   /* the tag that the answer begins with was there */

    size_t n_calls;
    bool in_call, any_arguments;
    struct buf delta; /* arguments not yet emitted */
    struct {
        bool object, in_string, after_backslash; /* after what has been put there */
    } written;
    struct buf name, id; /* of the call; both NUL-terminated when used */

    struct call_scan call;
    struct loose_scan loose;
    bool in_list, bare;

    struct buf key, value; /* XML style */
    size_t n_params;
    unsigned value_types;                                     /* TYPE_x */
    enum { SAYS_NOTHING, SAYS_STRING, SAYS_JSON } value_says; /* an attribute */
    enum {
        VALUE_COLLECTED, /* to see what it is; its text is in `value` */
        VALUE_TEXT_OR_NULL,
        VALUE_TEXT /* a string, streamed */
    } value_kind;
    bool value_at_start;
    bool in_block;                                             /* all arguments are in one */
    bool fenced;                                               /* DeepSeek V3's ```json */
    enum { ROUTE_CONTENT, ROUTE_REASONING, ROUTE_CALL } route; /* harmony */
    struct buf header;
};

/* The strings that a format is made of; NULL where it has none. */
struct call_syntax {
    const char *name;
    enum parse_state first; /* after a section's beginning */
    const char *section_begin, *section_end;
    const char *bare_begin; /* of a call whose section's beginning was left out */
    bool ends_thoughts;     /* calls are made of tokens that no thought has */
    bool known_names;       /* only for functions that exist: the tags are not tokens */
    bool frames_answers;    /* whether or not there are functions to call */
    bool name_is_key;       /* a call's JSON is {"NAME": {...}} */
    const char *call_begin, *call_sep, *call_end;                  /* between special tokens */
    const char *function_begin, *function_name_end, *function_end; /* XML style */
    const char *param_begin, *key_end, *attributes_end, *value_begin, *value_end;
    bool value_lines;   /* a line end after a value's beginning and before its end is layout */
    bool value_is_json; /* all arguments are one */
    const char *block_begin, *block_end; /* around all arguments, instead of parameters */
    bool escapes;                        /* names and keys are attributes, as in XML */
    /* Of answers that consist of frames: what ends a message, and the tokens that a tag begins
     * with. White space in frames is the text's own. */
    const char *message_end, *open, *close;
    const char *quote; /* of texts, where it is a token */
};

const struct call_syntax *syntax_of(enum chat_format format);

/* ---- buffers ----------------------------------------------------------------------------- */

/* Adds to one; out of memory is remembered in p and reported by put and end. */
void keep_bytes(struct chat_parser *p, struct buf *b, const char *text, size_t len);

/* ---- input ------------------------------------------------------------------------------- */

/* What a call may take before it proves to be one: further on, the parser does not look. It bounds
 * what is read twice. */
#define MAX_DOUBT_BYTES ((size_t)32 << 10)

static inline const char *input(const struct chat_parser *p) {
    return p->in.bytes + p->at;
}
static inline size_t input_len(const struct chat_parser *p) {
    size_t end = p->doubtful ? MIN(p->in.len, p->mark + MAX_DOUBT_BYTES) : p->in.len;
    return end - p->at;
}

struct marker_hit {
    int which;  /* -1: none yet */
    size_t pos; /* of the marker; if none: what lies before it can be no part of one */
};

/* The first of the markers (NULL ones are passed over) in the input. */
struct marker_hit find_marker(const struct chat_parser *p, const char *const *markers,
                              size_t n);

/* Consumes white space; false when there is nothing after it (yet). */
bool skip_white(struct chat_parser *p);

enum accept { ACCEPT_NO, ACCEPT_YES, ACCEPT_WAIT };
/* Consumes text if the input begins with it. */
enum accept accept_text(struct chat_parser *p, const char *text);

bool is_white(char c);
void trim(const char **text, size_t *len);

/* ---- output ------------------------------------------------------------------------------ */

void emit_text(struct chat_parser *p, enum chat_event_kind kind, const char *text, size_t len);
/* The same, with the white space at its ends. */
void emit_verbatim(struct chat_parser *p, enum chat_event_kind kind, const char *text,
                   size_t len);
/* A tag: white space before it is dropped, and so is what follows. */
void emit_tag(struct chat_parser *p);

/* A section begins at the input's marker of this length: doubtful until a call begins. */
void doubt_begin(struct chat_parser *p, size_t marker_len);
/* The tag of a call, of this length, has been read. After a call that was one, it is in doubt
 * again. */
void doubt_further_call(struct chat_parser *p, size_t tag_len);
/* It was none: its marker is content, and the rest is read again. */
void doubt_fail(struct chat_parser *p);
/* Ends what was begun: the call if there is one, and the section. What comes next is content. */
bool leave(struct chat_parser *p);

void call_begin(struct chat_parser *p, const char *name, size_t len);
void call_begin_named(struct chat_parser *p); /* its name is in p->name already */
void call_arguments(struct chat_parser *p, const char *text, size_t len);
void call_end(struct chat_parser *p);

/* What the tools say of a parameter of the current call: NULL if they have none of this name. */
const json_t *find_param(const struct chat_parser *p, const char *key);
/* The types that they allow it; 0: they do not say. */
enum { TYPE_STRING = 1, TYPE_NULL = 2, TYPE_BOOLEAN = 4, TYPE_OTHER = 8 };
unsigned param_types(const struct chat_parser *p, const char *key);
/* The schema of the current call's arguments, and the types that a part of it allows. */
const json_t *find_params(const struct chat_parser *p);
unsigned types_within(const struct chat_parser *p, const json_t *schema);
/* The name of the function's parameter at this position; NULL: there is none. */
const char *nth_param(const struct chat_parser *p, size_t n);
bool is_tool_name(const struct chat_parser *p, const char *name, size_t len);
/* Whether a function can have this name. Formats that do not quote it would take prose for it. */
bool is_function_name(const struct chat_parser *p, const char *name, size_t len);
#define MAX_NAME_BYTES 256

/* A text as a JSON string without its quotes. */
void call_arguments_escaped(struct chat_parser *p, const char *text, size_t len);

/* ---- steps: true to go on, false when more input is needed ------------------------------- */

typedef bool (*parse_step)(struct chat_parser *p);

bool step_json_first(struct chat_parser *p);
bool step_json_call(struct chat_parser *p);
bool step_json_next(struct chat_parser *p);
bool step_name(struct chat_parser *p);
bool step_value(struct chat_parser *p);
bool step_tagged_section(struct chat_parser *p);
bool step_tagged_head(struct chat_parser *p);
bool step_tagged_fence(struct chat_parser *p);
bool step_tagged_arguments(struct chat_parser *p);
bool step_xml_function(struct chat_parser *p);
bool step_xml_name(struct chat_parser *p);
bool step_xml_param(struct chat_parser *p);
bool step_xml_key(struct chat_parser *p);
bool step_xml_value_open(struct chat_parser *p);
bool step_xml_value(struct chat_parser *p);
bool step_xml_attributes(struct chat_parser *p);
bool step_xml_close(struct chat_parser *p);
bool step_xml_json(struct chat_parser *p);
bool step_xml_block(struct chat_parser *p);
bool step_recipient(struct chat_parser *p);
bool step_loose_first(struct chat_parser *p);
bool step_loose_name(struct chat_parser *p);
bool step_loose(struct chat_parser *p);
bool step_loose_next(struct chat_parser *p);
bool step_nested_first(struct chat_parser *p);
bool step_nested_name(struct chat_parser *p);
bool step_nested(struct chat_parser *p);
bool step_harmony_header(struct chat_parser *p);
bool step_harmony_body(struct chat_parser *p);
void harmony_open(struct chat_parser *p);
/* Content and reasoning of answers that consist of frames. */
bool step_framed(struct chat_parser *p);
void framed_open(struct chat_parser *p);
/* How much of the input is text when no more comes: all, but for a tag that was cut off. */
size_t framed_text_len(const struct chat_parser *p);

/* A tag that is looked for; NULL: there is none, or not now. */
static inline const char *if_any(const char *tag, bool wanted) {
    return wanted && tag != NULL && *tag != '\0' ? tag : NULL;
}

#endif
