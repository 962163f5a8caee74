/* chat_parse_tags.c: calls between special tokens (DeepSeek, Kimi K2) and in XML style
 * (Qwen3-Coder, GLM, MiniMax, Seed, DeepSeek's DSML, Functionary, Kimi K3). */
#include "base/json.h"
#include "chat/chat_parse_impl.h"

#include <stdio.h>

/* ---- special tokens ---------------------------------------------------------------------- */

bool step_tagged_section(struct chat_parser *p) {
    if (!skip_white(p))
        return false;
    size_t before = p->at;
    enum accept begins = accept_text(p, p->syntax->call_begin);
    if (begins == ACCEPT_WAIT)
        return false;
    if (begins == ACCEPT_YES) {
        doubt_further_call(p, p->at - before);
        p->state = PARSE_TAGGED_HEAD;
        return true;
    }
    enum accept ends = accept_text(p, p->syntax->section_end);
    if (ends == ACCEPT_WAIT)
        return false;
    return leave(p);
}

/* Kimi's functions.NAME:0 is the call's id, and holds the name. */
static void begin_kimi_call(struct chat_parser *p, const char *head, size_t len) {
    static const char prefix[] = "functions.";
    size_t skip = sizeof prefix - 1;
    p->id.len = 0;
    keep_bytes(p, &p->id, head, len);
    if (len > skip && memcmp(head, prefix, skip) == 0) {
        head += skip;
        len -= skip;
    }
    size_t n = len; /* up to the last colon, if there is one */
    while (n > 0 && head[n - 1] != ':')
        n--;
    call_begin(p, head, n > 0 ? n - 1 : len);
}

bool step_tagged_head(struct chat_parser *p) {
    const char *const ends[] = {p->syntax->call_sep, p->syntax->call_end};
    struct marker_hit hit = find_marker(p, ends, 2);
    if (hit.which < 0)
        return false;
    const char *head = input(p);
    size_t len = hit.pos;
    trim(&head, &len);
    if (hit.which == 1 || len == 0)
        return leave(p);
    p->fenced = false;
    if (p->o.style.format == CHAT_KIMI) {
        begin_kimi_call(p, head, len);
        p->state = PARSE_TAGGED_ARGUMENTS;
    } else { /* the name in V3.1; V3 and R1 write "function" and the name after it */
        p->header.len = 0;
        keep_bytes(p, &p->header, head, len);
        p->state = PARSE_TAGGED_FENCE;
    }
    p->at += hit.pos + strlen(ends[0]);
    return true;
}

/* After DeepSeek's separator: {...}, or NAME and {...}, in a code fence or not, or nothing. */
bool step_tagged_fence(struct chat_parser *p) {
    if (!skip_white(p))
        return false;
    const char *const ends[] = {"```json", "```", "{", p->syntax->call_end};
    struct marker_hit hit = find_marker(p, ends, ARRAY_LEN(ends));
    if (hit.which < 0)
        return false;
    const char *name = input(p);
    size_t len = hit.pos;
    trim(&name, &len);
    if (len == 0) { /* V3.1's comes before the separator */
        name = p->header.bytes;
        len = p->header.len;
    }
    if (hit.which >= 2 && !is_function_name(p, name, len))
        return leave(p);
    call_begin(p, name, len);
    p->fenced = hit.which < 2;
    p->at += hit.pos + (p->fenced ? strlen(ends[hit.which]) : 0);
    p->state = PARSE_TAGGED_ARGUMENTS;
    return true;
}

/* Arguments without the white space around them: it is held back while more may come. */
static void put_trimmed_arguments(struct chat_parser *p, const char *text, size_t len) {
    if (!p->any_arguments) {
        while (len > 0 && is_white(*text)) {
            text++;
            len--;
        }
    }
    size_t end = len;
    while (end > 0 && is_white(text[end - 1]))
        end--;
    if (end > 0) {
        call_arguments(p, p->value.bytes, p->value.len);
        p->value.len = 0;
        call_arguments(p, text, end);
    }
    if (p->any_arguments)
        keep_bytes(p, &p->value, text + end, len - end);
}

/* What ends arguments, in order of preference. Models leave out the call's end at times. */
#define N_ARGUMENT_ENDS 3

bool step_tagged_arguments(struct chat_parser *p) {
    /* The fence's end belongs to the tag only right before it, with or without a line end. */
    static const char *const fences[] = {"", "```\n", "```"};
    const char *const tags[N_ARGUMENT_ENDS] = {p->syntax->call_end, p->syntax->section_end,
                                               p->syntax->call_begin};
    const char *ends[N_ARGUMENT_ENDS * ARRAY_LEN(fences)] = {0};
    char texts[ARRAY_LEN(ends)][64];
    for (size_t i = 0; i < (p->fenced ? ARRAY_LEN(ends) : N_ARGUMENT_ENDS); i++) {
        snprintf(texts[i], sizeof texts[i], "%s%s", fences[i / N_ARGUMENT_ENDS],
                 tags[i % N_ARGUMENT_ENDS]);
        ends[i] = texts[i];
    }
    struct marker_hit hit = find_marker(p, ends, ARRAY_LEN(ends));
    put_trimmed_arguments(p, input(p), hit.pos);
    p->at += hit.pos;
    if (hit.which < 0)
        return false;
    size_t tag = (size_t)hit.which % N_ARGUMENT_ENDS;
    p->at += strlen(ends[hit.which]) - (tag == 0 ? 0 : strlen(tags[tag]));
    p->value.len = 0;
    call_end(p);
    p->state = PARSE_TAGGED_SECTION;
    return true;
}

/* ---- XML style --------------------------------------------------------------------------- */

/* Before <function=. A JSON call in the same tags is taken too. */
bool step_xml_function(struct chat_parser *p) {
    if (!skip_white(p))
        return false;
    if (*input(p) == '{' && p->doubtful) {
        p->state = PARSE_JSON_FIRST;
        return true;
    }
    enum accept begins = accept_text(p, p->syntax->function_begin);
    if (begins == ACCEPT_WAIT)
        return false;
    if (begins == ACCEPT_YES) {
        doubt_further_call(p, strlen(p->syntax->function_begin));
        p->state = PARSE_XML_NAME;
        return true;
    }
    bool framed = p->doubtful && p->syntax->message_end != NULL;
    enum accept ends = framed ? accept_text(p, p->syntax->section_end) : ACCEPT_NO;
    if (ends == ACCEPT_WAIT)
        return false;
    p->doubtful = p->doubtful && ends == ACCEPT_NO; /* a frame with nothing in it is no text */
    return leave(p);
}

/* Text of an attribute, whose quotes are written as in XML, in place. */
static void unescape(struct buf *b) {
    static const struct {
        const char *name;
        char is;
    } all[] = {{"&amp;", '&'}, {"&quot;", '"'}};
    size_t to = 0;
    for (size_t from = 0; from < b->len;) {
        size_t used = 1;
        char c = b->bytes[from];
        for (size_t i = 0; i < ARRAY_LEN(all); i++) {
            size_t n = strlen(all[i].name);
            if (b->len - from < n || memcmp(b->bytes + from, all[i].name, n) != 0)
                continue;
            used = n;
            c = all[i].is;
        }
        b->bytes[to++] = c;
        from += used;
    }
    b->len = to;
}

/* The name of a function in its tag, without other attributes. */
static void keep_name(struct chat_parser *p, const char *name, size_t len) {
    const char *quote = p->syntax->escapes ? memchr(name, '"', len) : NULL;
    p->name.len = 0;
    keep_bytes(p, &p->name, name, quote != NULL ? (size_t)(quote - name) : len);
    if (p->syntax->escapes)
        unescape(&p->name);
}

bool step_xml_name(struct chat_parser *p) {
    const struct call_syntax *s = p->syntax;
    if (s->function_begin == NULL && !skip_white(p))
        return false;
    if (s->function_begin == NULL && *input(p) == '{') {
        p->state = PARSE_JSON_FIRST;
        return true;
    }
    const char *const ends[] = {s->function_name_end, s->param_begin, s->function_end};
    struct marker_hit hit = find_marker(p, ends, ARRAY_LEN(ends));
    if (hit.which < 0 && hit.pos <= MAX_NAME_BYTES)
        return false;
    const char *name = input(p);
    size_t len = hit.pos;
    trim(&name, &len);
    if (hit.pos <= MAX_NAME_BYTES)
        keep_name(p, name, len);
    if (hit.pos > MAX_NAME_BYTES || !is_function_name(p, p->name.bytes, p->name.len))
        return leave(p);
    p->at += hit.pos + (hit.which == 0 ? strlen(ends[0]) : 0);
    p->n_params = 0;
    p->in_block = false;
    p->state = s->value_is_json ? PARSE_XML_JSON : PARSE_XML_PARAM;
    if (s->message_end != NULL) /* no text has such a tag */
        call_begin_named(p);
    return true;
}

/* After the name of a function that takes its arguments as one object. */
bool step_xml_json(struct chat_parser *p) {
    if (!skip_white(p))
        return false;
    if (*input(p) != '{')
        return leave(p);
    call_begin_named(p);
    p->call.streams = false; /* the value has not begun */
    p->state = PARSE_VALUE;
    return true;
}

/* A line with the recipient: >>>all is the user, any other is a function. Prose has such lines,
 * too, but not with the name of a function and an object. */
bool step_recipient(struct chat_parser *p) {
    const char *const ends[] = {"\n"};
    struct marker_hit hit = find_marker(p, ends, 1);
    const char *name = input(p);
    size_t len = hit.pos;
    bool all = hit.which == 0 && len == 3 && memcmp(name, "all", 3) == 0;
    if (hit.pos > MAX_NAME_BYTES || (hit.which == 0 && !all && !is_tool_name(p, name, len)))
        return leave(p);
    if (hit.which < 0)
        return false;
    p->name.len = 0;
    keep_bytes(p, &p->name, name, len);
    p->at += len + 1;
    p->state = all ? PARSE_CONTENT : PARSE_XML_JSON;
    p->doubtful = !all && p->doubtful;
    return true;
}

static void end_xml_call(struct chat_parser *p) {
    if (p->n_params > 0)
        call_arguments(p, "}", 1);
    call_end(p);
    p->state = PARSE_XML_CLOSE;
}

/* The text ends within the call. */
static void break_off_xml_call(struct chat_parser *p) {
    if (!p->cut) {
        end_xml_call(p);
        return;
    }
    call_end(p);
    p->state = PARSE_XML_CLOSE;
}

/* The same within a tag, whose text so far is content, but where tags are made of tokens. */
static void break_off_in_tag(struct chat_parser *p) {
    size_t len = input_len(p);
    break_off_xml_call(p);
    if (p->syntax->message_end == NULL) {
        emit_text(p, CHAT_CONTENT, p->key.bytes, p->key.len);
        emit_text(p, CHAT_CONTENT, input(p), len);
    }
    p->at += len;
}

/* After a function's name: people write about <function=main>, but then no parameter follows, and
 * no end. */
static bool begin_xml_call(struct chat_parser *p) {
    const struct call_syntax *s = p->syntax;
    const char *const signs[] = {s->param_begin, s->function_end, s->section_end};
    struct marker_hit hit = find_marker(p, signs, ARRAY_LEN(signs));
    if (hit.pos > 0)
        return leave(p);
    if (hit.which >= 0)
        call_begin_named(p);
    return hit.which >= 0;
}

bool step_xml_param(struct chat_parser *p) {
    if (!skip_white(p)) {
        if (p->final && p->in_call)
            break_off_xml_call(p);
        return false;
    }
    if (!p->in_call)
        return begin_xml_call(p);
    enum accept begins = p->in_block ? ACCEPT_NO : accept_text(p, p->syntax->param_begin);
    if (begins == ACCEPT_YES) {
        p->key.len = 0;
        p->state = PARSE_XML_KEY;
        return true;
    }
    enum accept block =
        p->in_block || p->n_params > 0 ? ACCEPT_NO : accept_text(p, p->syntax->block_begin);
    if (block == ACCEPT_YES) {
        p->key.len = 0;
        p->in_block = true;
        p->state = PARSE_XML_ATTRIBUTES;
        return true;
    }
    enum accept ends = accept_text(p, p->syntax->function_end);
    if (ends == ACCEPT_NO && begins == ACCEPT_NO && block == ACCEPT_NO) {
        break_off_xml_call(p);
        return true;
    }
    if (ends == ACCEPT_YES)
        end_xml_call(p);
    return ends == ACCEPT_YES;
}

/* The value's opening: its key is known, and so its type. */
static void begin_value(struct chat_parser *p) {
    const char *key = buf_cstr(&p->key);
    unsigned types = p->value_says == SAYS_NOTHING  ? param_types(p, key)
                     : p->value_says == SAYS_STRING ? TYPE_STRING
                                                    : TYPE_OTHER;
    p->value_types = types;
    p->value_kind = (types & TYPE_STRING) == 0 ? VALUE_COLLECTED
                    : (types & TYPE_NULL) != 0 ? VALUE_TEXT_OR_NULL
                                               : VALUE_TEXT;
    p->value_at_start = true;
    p->value.len = 0;
    call_arguments(p, p->n_params == 0 ? "{\"" : ", \"", p->n_params == 0 ? 2 : 3);
    p->n_params++;
    call_arguments_escaped(p, key, p->key.len);
    call_arguments(p, "\": ", 3);
    if (p->value_kind == VALUE_TEXT)
        call_arguments(p, "\"", 1);
    p->state = PARSE_XML_VALUE;
}

bool step_xml_key(struct chat_parser *p) {
    const char *const ends[] = {p->syntax->key_end};
    struct marker_hit hit = find_marker(p, ends, 1);
    keep_bytes(p, &p->key, input(p), hit.pos);
    p->at += hit.pos;
    if (hit.which < 0 && p->final)
        break_off_in_tag(p);
    if (hit.which < 0)
        return false;
    p->at += strlen(ends[0]);
    const char *key = p->key.bytes;
    size_t len = p->key.len;
    if (len > 0) {
        trim(&key, &len);
        memmove(p->key.bytes, key, len);
        p->key.len = len;
    }
    if (p->syntax->escapes)
        unescape(&p->key);
    p->value_says = SAYS_NOTHING;
    if (p->syntax->attributes_end != NULL)
        p->state = PARSE_XML_ATTRIBUTES;
    else if (p->syntax->value_begin != NULL)
        p->state = PARSE_XML_VALUE_OPEN;
    else
        begin_value(p);
    return true;
}

/* DeepSeek and Kimi K3 say of each value whether it is a string as it stands, or JSON. */
static void read_attributes(struct chat_parser *p, const char *text, size_t len) {
    static const char *const strings[] = {"string=\"true\"", "type=\"string\""};
    static const char *const json[] = {"string=\"false\"", "type=\""};
    for (size_t i = 0; i < ARRAY_LEN(json) && p->value_says == SAYS_NOTHING; i++) {
        if (memmem(text, len, strings[i], strlen(strings[i])) != NULL)
            p->value_says = SAYS_STRING;
        else if (memmem(text, len, json[i], strlen(json[i])) != NULL)
            p->value_says = SAYS_JSON;
    }
}

bool step_xml_attributes(struct chat_parser *p) {
    const char *const ends[] = {p->syntax->attributes_end};
    struct marker_hit hit = find_marker(p, ends, 1);
    if (hit.which < 0 && p->final)
        break_off_in_tag(p);
    if (hit.which < 0)
        return false;
    if (!p->in_block)
        read_attributes(p, input(p), hit.pos);
    p->at += hit.pos + strlen(ends[0]);
    p->value.len = 0;
    if (p->in_block)
        p->state = PARSE_XML_BLOCK;
    else
        begin_value(p);
    return true;
}

/* All arguments as they stand, up to the block's end or, without one, the function's. */
bool step_xml_block(struct chat_parser *p) {
    const char *const ends[] = {p->syntax->block_end, p->syntax->function_end};
    struct marker_hit hit = find_marker(p, ends, ARRAY_LEN(ends));
    bool over = hit.which < 0 && p->final;
    put_trimmed_arguments(p, input(p), over ? framed_text_len(p) : hit.pos);
    p->at += hit.pos;
    if (hit.which < 0 && !over)
        return false;
    p->at += hit.which == 0 ? strlen(ends[0]) : 0;
    p->state = PARSE_XML_PARAM; /* where the function's end is read */
    return true;
}

bool step_xml_value_open(struct chat_parser *p) {
    if (!skip_white(p)) {
        if (p->final)
            break_off_xml_call(p);
        return false;
    }
    enum accept opens = accept_text(p, p->syntax->value_begin);
    if (opens == ACCEPT_YES)
        begin_value(p);
    else if (opens == ACCEPT_NO)
        break_off_xml_call(p);
    return opens != ACCEPT_WAIT;
}

static void put_value(struct chat_parser *p, const char *text, size_t len);

/* As long as the value may become null it is held back; then its text so far goes out. */
static void put_text_or_null(struct chat_parser *p, const char *text, size_t len) {
    const char *null = p->syntax->value_lines ? "null\n" : "null";
    keep_bytes(p, &p->value, text, len);
    if (p->value.len <= strlen(null) && memcmp(p->value.bytes, null, p->value.len) == 0)
        return;
    struct buf all = p->value;
    p->value = (struct buf){0};
    p->value_kind = VALUE_TEXT;
    call_arguments(p, "\"", 1);
    put_value(p, all.bytes, all.len);
    buf_free(&all);
}

/* A line end right after the opening tag and one before the closing tag are layout (Qwen). */
static void put_value(struct chat_parser *p, const char *text, size_t len) {
    if (p->value_at_start && len > 0) {
        p->value_at_start = false;
        if (p->syntax->value_lines && *text == '\n') {
            text++;
            len--;
        }
    }
    if (len == 0)
        return;
    if (p->value_kind == VALUE_COLLECTED) {
        keep_bytes(p, &p->value, text, len);
        return;
    }
    if (p->value_kind == VALUE_TEXT_OR_NULL) {
        put_text_or_null(p, text, len);
        return;
    }
    call_arguments_escaped(p, p->value.bytes, p->value.len); /* a line end held back */
    p->value.len = 0;
    if (p->syntax->value_lines && text[len - 1] == '\n')
        keep_bytes(p, &p->value, text + --len, 1);
    call_arguments_escaped(p, text, len);
}

/* What models write as in Python, where the type has such a value. */
static const char *python_literal(const struct chat_parser *p, const char *text, size_t len) {
    static const struct {
        const char *python, *json;
        unsigned type;
    } all[] = {{"True", "true", TYPE_BOOLEAN},
               {"False", "false", TYPE_BOOLEAN},
               {"None", "null", TYPE_NULL}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if ((p->value_types & all[i].type) != 0 && (p->value_types & TYPE_STRING) == 0 &&
            len == strlen(all[i].python) && memcmp(text, all[i].python, len) == 0)
            return all[i].json;
    return NULL;
}

/* Where no string is asked for, what is JSON is taken as it is, and the rest is a string. */
static void end_value(struct chat_parser *p) {
    json_error_t e;
    if (p->value_kind == VALUE_TEXT) {
        call_arguments(p, "\"", 1);
        p->value.len = 0;
        return;
    }
    const char *text = p->value.bytes;
    size_t len = p->value.len;
    if (p->syntax->value_lines && len > 0 && text[len - 1] == '\n')
        len--;
    json_t *json = len > 0 ? json_read(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e) : NULL;
    const char *trimmed = text, *literal;
    size_t n_trimmed = len;
    trim(&trimmed, &n_trimmed);
    literal = python_literal(p, trimmed, n_trimmed);
    if (literal != NULL) {
        call_arguments(p, literal, strlen(literal));
    } else if (json != NULL) {
        call_arguments(p, trimmed, n_trimmed);
    } else {
        call_arguments(p, "\"", 1);
        call_arguments_escaped(p, text, len);
        call_arguments(p, "\"", 1);
    }
    json_decref(json);
    p->value.len = 0;
}

/* At a function's end within a value: it is the value's text if the value's own end comes before
 * another parameter. */
static enum accept function_ends(const struct chat_parser *p) {
    const char *const next[] = {p->syntax->value_end, p->syntax->param_begin};
    struct marker_hit hit = find_marker(p, next, 2);
    if (hit.pos >= MAX_DOUBT_BYTES)
        return ACCEPT_YES;
    if (hit.which < 0 && !p->final)
        return ACCEPT_WAIT;
    return hit.which == 0 ? ACCEPT_NO : ACCEPT_YES;
}

/* A parameter may begin within a value whose own end was left out. It ends the value if it
 * begins a line and names a parameter of the function. */
static enum accept next_param_begins(struct chat_parser *p) {
    const char *key_end = p->syntax->key_end, *key = input(p) + strlen(p->syntax->param_begin);
    size_t len = input_len(p) - strlen(p->syntax->param_begin);
    bool at_line =
        p->syntax->value_lines && p->value.len > 0 && p->value.bytes[p->value.len - 1] == '\n';
    if (!at_line)
        return ACCEPT_NO;
    const char *end = memmem(key, len, key_end, strlen(key_end));
    if (end == NULL && !p->final && len < MAX_NAME_BYTES + strlen(key_end))
        return ACCEPT_WAIT;
    if (end == NULL || end - key > MAX_NAME_BYTES)
        return ACCEPT_NO;
    p->key.len = 0;
    keep_bytes(p, &p->key, key, (size_t)(end - key));
    return find_param(p, buf_cstr(&p->key)) != NULL ? ACCEPT_YES : ACCEPT_NO;
}

bool step_xml_value(struct chat_parser *p) {
    const struct call_syntax *s = p->syntax;
    const char *const ends[] = {s->value_end, s->function_end, s->param_begin};
    struct marker_hit hit = find_marker(p, ends, ARRAY_LEN(ends));
    put_value(p, input(p), hit.which < 0 && p->final ? framed_text_len(p) : hit.pos);
    p->at += hit.pos;
    if (hit.which < 0 && !p->final)
        return false;
    enum accept over = hit.which == 1   ? function_ends(p)
                       : hit.which == 2 ? next_param_begins(p)
                                        : ACCEPT_YES;
    if (over == ACCEPT_WAIT)
        return false;
    if (over == ACCEPT_NO) { /* its first character is text: the rest is looked at again */
        put_value(p, input(p), 1);
        p->at++;
        return true;
    }
    if (hit.which < 0 && p->cut)
        call_arguments(p, p->value_kind == VALUE_TEXT ? "" : p->value.bytes,
                       p->value_kind == VALUE_TEXT ? 0 : p->value.len);
    else
        end_value(p);
    p->at += hit.which == 0 ? strlen(s->value_end) : 0;
    p->state = PARSE_XML_PARAM; /* where the function's end is read */
    return true;
}

/* After a function: another one, or the section's end. */
bool step_xml_close(struct chat_parser *p) {
    if (p->syntax->section_end == NULL) {
        p->state = PARSE_CONTENT;
        return true;
    }
    if (!skip_white(p))
        return false;
    enum accept ends = accept_text(p, p->syntax->section_end);
    if (ends == ACCEPT_WAIT)
        return false;
    p->state = ends == ACCEPT_YES ? PARSE_CONTENT : PARSE_XML_FUNCTION;
    return true;
}
