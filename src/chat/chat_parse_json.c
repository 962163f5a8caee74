/* chat_parse_json.c: calls written as JSON objects with a name and arguments (Hermes, Llama 3,
 * Mistral, Granite, Command R, Firefunction), or with the name as key (Apertus). */
#include "chat/chat_parse_impl.h"

/* ---- where a value ends ------------------------------------------------------------------ */

enum scan_result { SCAN_MORE, SCAN_END, SCAN_END_BEFORE, SCAN_BAD };

static bool scan_open(struct json_scan *s, char c) {
    *s = (struct json_scan){.scalar = true};
    if (c == '"')
        *s = (struct json_scan){.in_string = true};
    else if (c == '{' || c == '[')
        *s = (struct json_scan){.depth = 1};
    return c == '"' || c == '{' || c == '[' || c == '-' || (c >= '0' && c <= '9') || c == 't' ||
           c == 'f' || c == 'n';
}

static enum scan_result scan_char(struct json_scan *s, char c) {
    if (s->scalar)
        return c == ',' || c == '}' || c == ']' || is_white(c) ? SCAN_END_BEFORE
               : c == '{' || c == '[' || c == '"' || c == '<'  ? SCAN_BAD
                                                               : SCAN_MORE;
    if (s->in_string) {
        bool closes = c == '"' && !s->escape;
        s->escape = c == '\\' && !s->escape;
        s->in_string = !closes;
        return closes && s->depth == 0 ? SCAN_END : SCAN_MORE;
    }
    if (c == '"')
        s->in_string = true;
    s->depth += c == '{' || c == '[';
    s->depth -= c == '}' || c == ']';
    return s->depth == 0 ? SCAN_END : SCAN_MORE;
}

/* ---- a call ------------------------------------------------------------------------------ */

/* The value of a JSON string. NULL if it is not one; the caller frees with json_decref. */
static json_t *decode_string(const struct buf *text) {
    json_error_t e;
    json_t *v = text->len == 0 ? NULL : json_loadb(text->bytes, text->len, JSON_DECODE_ANY, &e);
    if (v != NULL && !json_is_string(v)) {
        json_decref(v);
        return NULL;
    }
    return v;
}

/* Arguments that are complete: an object as it is; a string holds the object's text. */
static void put_arguments(struct chat_parser *p, const struct buf *text) {
    json_t *inner = decode_string(text);
    if (inner != NULL)
        call_arguments(p, json_string_value(inner), json_string_length(inner));
    else if (text->len > 0 && !(text->len == 4 && memcmp(text->bytes, "null", 4) == 0))
        call_arguments(p, text->bytes, text->len);
    json_decref(inner);
}

static void reset_call(struct chat_parser *p) {
    p->call.at = CALL_OPEN;
    p->call.text.len = p->call.arguments.len = 0;
    p->call.streams = false;
    p->name.len = 0;
}

static void copy_string(struct chat_parser *p, struct buf *to) {
    json_t *s = decode_string(&p->call.text);
    to->len = 0;
    if (s != NULL)
        keep_bytes(p, to, json_string_value(s), json_string_length(s));
    json_decref(s);
}

/* Bare JSON calls only a function that the request has; anything else is an answer in JSON. */
static bool may_call(const struct chat_parser *p) {
    bool any = !p->bare && !p->syntax->known_names;
    return p->name.len > 0 && (any || is_tool_name(p, p->name.bytes, p->name.len));
}

static void key_done(struct chat_parser *p) {
    static const struct {
        const char *key;
        int kind;
    } keys[] = {{"\"name\"", KEY_NAME},
                {"\"tool_name\"", KEY_NAME},
                {"\"arguments\"", KEY_ARGUMENTS},
                {"\"parameters\"", KEY_ARGUMENTS},
                {"\"id\"", KEY_ID}};
    const struct buf *text = &p->call.text;
    p->call.key_kind = KEY_OTHER;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (text->len == strlen(keys[i].key) &&
            memcmp(text->bytes, keys[i].key, text->len) == 0)
            p->call.key_kind = keys[i].kind;
    if (p->syntax->name_is_key && !p->in_call) {
        copy_string(p, &p->name);
        p->call.key_kind = KEY_ARGUMENTS;
    }
}

static void value_done(struct chat_parser *p) {
    struct call_scan *c = &p->call;
    if (c->key_kind == KEY_NAME && !p->in_call)
        copy_string(p, &p->name);
    else if (c->key_kind == KEY_ID && !p->in_call)
        copy_string(p, &p->id);
    else if (c->key_kind == KEY_ARGUMENTS && !c->streams && p->in_call && !p->any_arguments)
        put_arguments(p, &c->text);
    else if (c->key_kind == KEY_ARGUMENTS && !c->streams)
        keep_bytes(p, &c->arguments, c->text.bytes, c->text.len);
    c->streams = false;
    c->text.len = 0;
    c->at = CALL_COMMA_OR_END;
    if (p->syntax->name_is_key) /* another key is another call */
        call_end(p);
}

/* An object's arguments go out as they come once the name is known. */
static bool value_open(struct chat_parser *p, char ch) {
    struct call_scan *c = &p->call;
    if (!scan_open(&c->value_scan, ch) || (p->syntax->name_is_key && ch != '{'))
        return false;
    c->at = CALL_VALUE;
    c->text.len = 0;
    if (c->key_kind == KEY_ARGUMENTS && may_call(p) && !p->in_call) {
        call_begin_named(p);
        c->streams = ch == '{';
    }
    if (c->streams)
        call_arguments(p, &ch, 1);
    else
        keep_bytes(p, &c->text, &ch, 1);
    return true;
}

/* The object's closing brace. False if it was no call. */
static bool object_done(struct chat_parser *p) {
    bool called = p->syntax->name_is_key && !p->doubtful;
    if (!p->in_call && !called) {
        bool complete = may_call(p) && (!p->bare || p->call.arguments.len > 0);
        if (!complete)
            return false;
        call_begin_named(p);
        put_arguments(p, &p->call.arguments);
    }
    call_end(p);
    p->state = PARSE_JSON_NEXT;
    return true;
}

/* One character within a value. *again: it was not part of it. */
static bool value_char(struct chat_parser *p, char ch, bool *again) {
    struct call_scan *c = &p->call;
    enum scan_result result = scan_char(&c->value_scan, ch);
    *again = result == SCAN_END_BEFORE;
    if (result == SCAN_BAD)
        return false;
    if (result != SCAN_END_BEFORE && c->streams)
        call_arguments(p, &ch, 1);
    else if (result != SCAN_END_BEFORE)
        keep_bytes(p, &c->text, &ch, 1);
    if (result != SCAN_MORE)
        value_done(p);
    return true;
}

/* One character of the call's object; false if that cannot be. */
static bool call_char(struct chat_parser *p, char ch, bool *again) {
    struct call_scan *c = &p->call;
    *again = false;
    if (c->at == CALL_VALUE)
        return value_char(p, ch, again);
    if (c->at == CALL_KEY) {
        keep_bytes(p, &c->text, &ch, 1);
        if (scan_char(&c->value_scan, ch) == SCAN_END) {
            key_done(p);
            c->at = CALL_COLON;
        }
        return true;
    }
    if (is_white(ch))
        return true;
    switch (c->at) {
    case CALL_OPEN:
        c->at = CALL_KEY_OR_END;
        return ch == '{';
    case CALL_KEY_OR_END:
        if (ch == '}')
            return object_done(p);
        c->text.len = 0;
        keep_bytes(p, &c->text, &ch, 1);
        c->at = CALL_KEY;
        return scan_open(&c->value_scan, ch) && ch == '"';
    case CALL_COLON:
        c->at = CALL_VALUE_OPEN;
        return ch == ':';
    case CALL_VALUE_OPEN:
        return value_open(p, ch);
    default:
        c->at = CALL_KEY_OR_END;
        return ch == ',' || (ch == '}' && object_done(p));
    }
}

/* GLM has no sections: the end of a function takes their place. */
static const char *section_end(const struct chat_parser *p) {
    return p->syntax->section_end != NULL ? p->syntax->section_end : p->syntax->function_end;
}

/* Not what a call looks like. If it has begun already, it ends here and the rest is content. */
static void call_broken(struct chat_parser *p) {
    p->in_list = p->bare = false;
    if (p->doubtful) {
        doubt_fail(p);
        return;
    }
    call_end(p);
    p->state = section_end(p) != NULL ? PARSE_JSON_NEXT : PARSE_CONTENT;
}

bool step_json_call(struct chat_parser *p) {
    while (input_len(p) > 0 && p->state == PARSE_JSON_CALL) {
        bool again;
        if (!call_char(p, *input(p), &again)) {
            call_broken(p);
            return true;
        }
        p->at += !again;
    }
    return p->state != PARSE_JSON_CALL;
}

/* ---- around calls ------------------------------------------------------------------------ */

bool step_json_first(struct chat_parser *p) {
    if (!skip_white(p))
        return false;
    enum accept fence = section_end(p) == NULL ? ACCEPT_NO : accept_text(p, "```json");
    if (fence != ACCEPT_NO)
        return fence == ACCEPT_YES;
    char ch = *input(p);
    reset_call(p);
    p->in_list = ch == '[' && !p->bare;
    p->at += p->in_list;
    if (ch == '{' || p->in_list)
        p->state = PARSE_JSON_CALL;
    else if (p->o.style.format == CHAT_MISTRAL)
        p->state = PARSE_NAME;
    else
        doubt_fail(p);
    return true;
}

static void section_over(struct chat_parser *p) {
    p->in_list = p->bare = false;
    p->state = PARSE_CONTENT;
}

/* The section's end, also after a code fence's or a brace too many; without it these are
 * content. */
static enum accept accept_section_end(struct chat_parser *p) {
    size_t before = p->at;
    bool fence = section_end(p) != NULL && *section_end(p) != '`';
    while (input_len(p) > 0 &&
           (is_white(*input(p)) || *input(p) == '}' || (fence && *input(p) == '`')))
        p->at++;
    enum accept closes = accept_text(p, section_end(p));
    if (closes != ACCEPT_YES)
        p->at = before;
    return closes;
}

/* After a call: "," and another in a list, ";" and another for Llama, another one in the same
 * tags, the end of the section, or content. */
bool step_json_next(struct chat_parser *p) {
    if (!skip_white(p))
        return false;
    char ch = *input(p);
    if (p->in_list && ch == ',') {
        p->at++;
        return true;
    }
    if (p->in_list && ch == ']') {
        p->at++;
        p->in_list = false;
        return true;
    }
    bool llama = p->o.style.format == CHAT_LLAMA3;
    bool same_tags = section_end(p) != NULL;
    if ((ch == '{' && (p->in_list || llama || same_tags)) || (ch == ';' && llama)) {
        doubt_begin(p, 1);
        p->at -= ch == '{';
        reset_call(p);
        p->bare = llama;
        p->state = p->in_list ? PARSE_JSON_CALL : PARSE_JSON_FIRST;
        return true;
    }
    enum accept closes = accept_section_end(p);
    if (closes == ACCEPT_WAIT)
        return false;
    section_over(p);
    return true;
}

/* ---- Mistral's newer form: NAME[ARGS]{...}, NAME[CALL_ID]ID[ARGS]{...}, NAME{...} -------- */

bool step_name(struct chat_parser *p) {
    static const char *const ends[] = {"[ARGS]", "{", "[CALL_ID]"};
    struct marker_hit hit = find_marker(p, ends, ARRAY_LEN(ends));
    if (hit.pos > MAX_NAME_BYTES) {
        doubt_fail(p);
        return true;
    }
    if (hit.which < 0)
        return false;
    const char *head = input(p);
    size_t len = hit.pos;
    if (hit.which == 2) {
        p->name.len = 0;
        keep_bytes(p, &p->name, head, len);
        p->at += len + strlen(ends[2]);
        return true;
    }
    if (p->name.len > 0) { /* what we read now is the id */
        p->id.len = 0;
        keep_bytes(p, &p->id, head, len);
    } else {
        while (len > 0 && is_white(head[len - 1]))
            len--;
        keep_bytes(p, &p->name, head, len);
    }
    if (!is_function_name(p, p->name.bytes, p->name.len)) {
        doubt_fail(p);
        return true;
    }
    p->at += hit.pos + (hit.which == 0 ? strlen(ends[0]) : 0);
    p->call.streams = false; /* the value has not begun */
    call_begin_named(p);
    p->state = PARSE_VALUE;
    return true;
}

bool step_value(struct chat_parser *p) {
    struct call_scan *c = &p->call;
    if (!c->streams) {
        if (!skip_white(p))
            return false;
        c->streams = scan_open(&c->value_scan, *input(p));
        if (!c->streams) {
            call_broken(p);
            return true;
        }
        call_arguments(p, input(p), 1);
        p->at++;
    }
    while (input_len(p) > 0) {
        enum scan_result result = scan_char(&c->value_scan, *input(p));
        bool part = result != SCAN_END_BEFORE && result != SCAN_BAD;
        if (part) {
            call_arguments(p, input(p), 1);
            p->at++;
        }
        if (result != SCAN_MORE) {
            call_end(p);
            section_over(p);
            if (p->syntax->value_is_json)
                p->state = PARSE_JSON_NEXT; /* where the function's end is read */
            return true;
        }
    }
    return false;
}
