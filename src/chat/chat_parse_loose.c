/* chat_parse_loose.c: calls whose arguments are nearly JSON. They are converted to JSON as they
 * arrive:
 *
 *   Gemma 4  call:NAME{key:<|"|>text<|"|>,n:5,list:[true,{k:1}]}
 *   LFM2     [NAME(key='text', n=5, list=[True, {'k': 1}]), ...], or a list of JSON calls
 *   MiniMax M3  <invoke name="NAME"><key>text</key><list><item>1</item></list></invoke>, with a
 *            token before each tag
 *
 * Once a call has begun, it stays a call. A bare word that is not JSON becomes a string, and
 * brackets that the model leaves open are closed. */
#include "base/hex.h"
#include "base/json.h"
#include "chat/chat_parse_impl.h"

#include <stdio.h>
#include <string.h>

static bool is_python(const struct chat_parser *p) {
    return p->syntax->quote == NULL;
}

/* ---- before the arguments ---------------------------------------------------------------- */

/* At a list, which may be one of JSON calls: what comes after its bracket says so. */
static bool open_list(struct chat_parser *p) {
    size_t white = 1;
    while (white < input_len(p) && is_white(input(p)[white]))
        white++;
    if (white == input_len(p))
        return false;
    if (input(p)[white] == '{') {
        p->state = PARSE_JSON_FIRST;
        return true;
    }
    p->at++;
    p->in_list = true;
    return true;
}

bool step_loose_first(struct chat_parser *p) {
    if (!skip_white(p))
        return false;
    if (*input(p) == '{') {
        p->state = PARSE_JSON_FIRST;
        return true;
    }
    if (is_python(p) && *input(p) == '[' && !p->in_list)
        return open_list(p);
    if (p->syntax->call_begin != NULL) {
        enum accept begins = accept_text(p, p->syntax->call_begin);
        if (begins != ACCEPT_YES)
            return begins == ACCEPT_NO && leave(p);
    }
    p->state = PARSE_LOOSE_NAME;
    return true;
}

bool step_loose_name(struct chat_parser *p) {
    const char *const ends[] = {p->syntax->call_sep, p->syntax->section_end};
    struct marker_hit hit = find_marker(p, ends, ARRAY_LEN(ends));
    const char *name = input(p);
    size_t len = hit.pos;
    trim(&name, &len);
    if (hit.which < 0 && hit.pos <= MAX_NAME_BYTES)
        return false;
    if (hit.which != 0 || !is_function_name(p, name, len))
        return leave(p);
    call_begin(p, name, len);
    p->at += hit.pos + strlen(ends[0]);
    p->loose = (struct loose_scan){.at = LOOSE_KEY, .depth = 1, .open = {'{'}};
    p->value.len = 0;
    call_arguments(p, "{", 1);
    p->state = PARSE_LOOSE;
    return true;
}

/* ---- brackets and members ---------------------------------------------------------------- */

static bool in_object(const struct loose_scan *s) {
    return s->open[s->depth - 1] == '{';
}

static void begin_member(struct chat_parser *p) {
    bool *filled = &p->loose.filled[p->loose.depth - 1];
    if (*filled)
        call_arguments(p, ", ", 2);
    *filled = true;
}

static void put_key(struct chat_parser *p, const char *key, size_t len) {
    begin_member(p);
    call_arguments(p, "\"", 1);
    call_arguments_escaped(p, key, len);
    call_arguments(p, "\": ", 3);
    p->value_types = 0;
    if (p->loose.depth == 1) {
        struct buf name = {0};
        keep_bytes(p, &name, key, len);
        p->value_types = param_types(p, buf_cstr(&name));
        buf_free(&name);
    }
    p->loose.at = LOOSE_VALUE;
}

/* Before a value in a list. */
static void begin_element(struct chat_parser *p) {
    if (in_object(&p->loose))
        return;
    begin_member(p);
    p->value_types = 0;
}

static void open_bracket(struct chat_parser *p, char ch) {
    struct loose_scan *s = &p->loose;
    begin_element(p);
    s->open[s->depth] = ch == '{' ? '{' : '[';
    s->filled[s->depth] = false;
    call_arguments(p, &s->open[s->depth], 1);
    s->at = ch == '{' ? LOOSE_KEY : LOOSE_VALUE;
    s->depth++;
}

static void close_bracket(struct chat_parser *p) {
    struct loose_scan *s = &p->loose;
    if (s->at == LOOSE_VALUE && in_object(s)) /* a key without a value */
        call_arguments(p, "null", 4);
    call_arguments(p, in_object(s) ? "}" : "]", 1);
    s->depth--;
    s->at = LOOSE_AFTER;
    if (s->depth == 0) {
        call_end(p);
        p->state = PARSE_LOOSE_NEXT;
    }
}

/* The text ends within the call, or continues with something that cannot belong to it. */
static void break_off(struct chat_parser *p) {
    if (p->loose.at == LOOSE_COLON && !p->cut)
        put_key(p, p->key.bytes, p->key.len);
    if (p->loose.at == LOOSE_WORD && p->cut) {
        begin_element(p);
        call_arguments(p, p->value.bytes, p->value.len);
    }
    p->key.len = p->value.len = 0;
    while (p->loose.depth > 0 && !p->cut)
        close_bracket(p);
    call_end(p);
    p->state = PARSE_LOOSE_NEXT;
}

static bool is_closer(char c) {
    return c == '}' || c == ']' || c == ')';
}

/* ---- words: numbers, names of values, and what models forget to quote -------------------- */

static const char *literal_of(const char *text, size_t len) {
    static const char *const all[][2] = {{"true", "true"},   {"false", "false"},
                                         {"null", "null"},   {"True", "true"},
                                         {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (len == strlen(all[i][0]) && memcmp(text, all[i][0], len) == 0)
            return all[i][1];
    return NULL;
}

static bool is_json(const char *text, size_t len) {
    json_error_t e;
    json_t *v = len > 0 ? json_read(text, len, JSON_DECODE_ANY, &e) : NULL;
    json_decref(v);
    return v != NULL;
}

static void end_word(struct chat_parser *p) {
    const char *text = p->value.bytes;
    size_t len = p->value.len;
    if (len > 0)
        trim(&text, &len);
    const char *literal = literal_of(text, len);
    bool wants_text = p->value_types == TYPE_STRING;
    begin_element(p);
    if (literal != NULL && !wants_text) {
        call_arguments(p, literal, strlen(literal));
    } else if (!wants_text && is_json(text, len)) {
        call_arguments(p, text, len);
    } else {
        call_arguments(p, "\"", 1);
        call_arguments_escaped(p, text, len);
        call_arguments(p, "\"", 1);
    }
    p->value.len = 0;
    p->loose.at = LOOSE_AFTER;
}

/* Up to a comma or a closing bracket that is not the word's own. */
static bool put_word(struct chat_parser *p) {
    const char *const ends[] = {p->syntax->section_end};
    struct marker_hit hit = find_marker(p, ends, 1);
    const char *text = input(p);
    size_t n = 0;
    for (; n < hit.pos; n++) {
        bool closes = is_closer(text[n]);
        if (p->loose.nested == 0 && (closes || text[n] == ','))
            break;
        p->loose.nested += text[n] == '(' || text[n] == '[' || text[n] == '{';
        p->loose.nested -= closes;
    }
    keep_bytes(p, &p->value, text, n);
    p->at += n;
    if (n == hit.pos && hit.which < 0 && !(p->final && !p->cut))
        return false;
    end_word(p);
    return true;
}

/* ---- texts ------------------------------------------------------------------------------- */

static void put_text(struct chat_parser *p, const char *text, size_t len) {
    if (p->loose.of_key)
        keep_bytes(p, &p->key, text, len);
    else
        call_arguments_escaped(p, text, len);
}

static void end_text(struct chat_parser *p) {
    p->loose.at = p->loose.of_key ? LOOSE_COLON : LOOSE_AFTER;
    if (!p->loose.of_key)
        call_arguments(p, "\"", 1);
}

static void begin_text(struct chat_parser *p, char quote, bool of_key) {
    p->loose.quote = quote;
    p->loose.of_key = of_key;
    p->loose.at = LOOSE_TEXT;
    p->key.len = 0;
    if (of_key)
        return;
    begin_element(p);
    call_arguments(p, "\"", 1);
}

/* At a text's beginning: which quote it has. */
static enum accept accept_quote(struct chat_parser *p, char *quote) {
    char ch = *input(p);
    *quote = 0;
    if (ch == '"' || (ch == '\'' && is_python(p))) {
        *quote = ch;
        p->at++;
        return ACCEPT_YES;
    }
    return accept_text(p, p->syntax->quote);
}

static bool is_hex(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (hex_digit(text[i]) < 0)
            return false;
    return true;
}

/* At a backslash: how many bytes it and what it escapes take, or 0 if more is needed. One that
 * escapes nothing stands for itself, as in Python. */
static size_t put_escape(struct chat_parser *p, const char *text, size_t len) {
    static const char escapes[] = "n\nt\tr\rb\bf\f\\\\''\"\"//";
    char json[8];
    if (len < 2)
        return p->final ? (put_text(p, "\\", 1), 1) : 0;
    for (size_t i = 0; i + 1 < sizeof escapes; i += 2)
        if (text[1] == escapes[i])
            return put_text(p, &escapes[i + 1], 1), 2;
    size_t digits = text[1] == 'u' ? 4 : text[1] == 'x' ? 2 : 0;
    size_t there = MIN(len - 2, digits);
    bool may_be = digits > 0 && !p->loose.of_key && is_hex(text + 2, there);
    if (may_be && there < digits && !p->final)
        return 0;
    if (!may_be || there < digits)
        return put_text(p, "\\", 1), 1;
    snprintf(json, sizeof json, "\\u%s%.*s", digits == 2 ? "00" : "", (int)digits, text + 2);
    call_arguments(p, json, 6);
    return 2 + digits;
}

/* Whether a quote ends the text: what may follow a value follows it. Models write quotes within
 * texts as they are, and so do their templates. */
static enum accept quote_ends(const struct chat_parser *p, const char *text, size_t len,
                              bool more) {
    size_t i = 0;
    while (i < len && is_white(text[i]))
        i++;
    if (i == len)
        return more ? ACCEPT_WAIT : ACCEPT_YES;
    return is_closer(text[i]) || text[i] == ',' || (p->loose.of_key && text[i] == ':')
               ? ACCEPT_YES
               : ACCEPT_NO;
}

/* A text in plain quotes, up to its end or that of the calls. */
static bool put_quoted(struct chat_parser *p) {
    const char *const ends[] = {p->syntax->section_end};
    struct marker_hit hit = find_marker(p, ends, 1);
    bool more = hit.which < 0 && !p->final;
    const char *text = input(p);
    for (size_t i = 0; i < hit.pos;) {
        size_t used = 1;
        if (text[i] == '\\') {
            used = put_escape(p, text + i, hit.pos - i);
        } else if (text[i] == p->loose.quote) {
            enum accept over = quote_ends(p, text + i + 1, hit.pos - i - 1, more);
            if (over == ACCEPT_YES) {
                p->at += i + 1;
                end_text(p);
                return true;
            }
            used = over == ACCEPT_NO;
            put_text(p, text + i, used);
        } else {
            put_text(p, text + i, 1);
        }
        if (used == 0) {
            p->at += i;
            return false;
        }
        i += used;
    }
    p->at += hit.pos;
    if (hit.which >= 0)
        end_text(p);
    return hit.which >= 0;
}

static bool step_text(struct chat_parser *p) {
    bool plain = p->loose.quote != 0;
    if (!plain) {
        const char *const ends[] = {p->syntax->quote, p->syntax->section_end};
        struct marker_hit hit = find_marker(p, ends, ARRAY_LEN(ends));
        put_text(p, input(p), hit.pos);
        p->at += hit.pos + (hit.which == 0 ? strlen(ends[0]) : 0);
        if (hit.which >= 0) {
            end_text(p);
            return true;
        }
    } else if (put_quoted(p)) {
        return true;
    }
    if (p->final && !p->cut)
        end_text(p);
    return p->final && !p->cut;
}

/* ---- keys and values --------------------------------------------------------------------- */

/* An argument without a name, which Python's calls may have: it is the parameter in its place. */
static void put_nth_key(struct chat_parser *p) {
    char other[24];
    const char *name = nth_param(p, p->loose.n_args);
    snprintf(other, sizeof other, "%zu", p->loose.n_args++);
    name = name != NULL ? name : other;
    put_key(p, name, strlen(name));
}

static bool step_key(struct chat_parser *p) {
    bool named = is_python(p) && p->loose.depth == 1; /* NAME=VALUE */
    const char *const ends[] = {named ? "=" : ":", ",", "}", ")", "]", p->syntax->section_end};
    char ch = *input(p), quote;
    if (ch == ',' || is_closer(ch)) {
        if (ch == ',')
            p->at++;
        else
            p->at++, close_bracket(p);
        return true;
    }
    if (named && strchr("'\"[{(", ch) != NULL) {
        put_nth_key(p);
        return true;
    }
    enum accept quoted = named ? ACCEPT_NO : accept_quote(p, &quote);
    if (quoted == ACCEPT_YES)
        begin_text(p, quote, true);
    if (quoted != ACCEPT_NO)
        return quoted == ACCEPT_YES;
    struct marker_hit hit = find_marker(p, ends, ARRAY_LEN(ends));
    if (hit.which < 0)
        return false;
    if (named && hit.which != 0) {
        put_nth_key(p);
        return true;
    }
    const char *key = input(p);
    size_t len = hit.pos;
    trim(&key, &len);
    put_key(p, key, len);
    p->at += hit.pos + (hit.which == 0);
    return true;
}

static bool step_colon(struct chat_parser *p) {
    put_key(p, p->key.bytes, p->key.len);
    p->key.len = 0;
    if (*input(p) == ':')
        p->at++;
    return true;
}

static bool step_value_at(struct chat_parser *p) {
    struct loose_scan *s = &p->loose;
    char ch = *input(p), quote;
    if (is_closer(ch)) {
        p->at++;
        close_bracket(p);
        return true;
    }
    if (ch == ',') {
        p->at += !in_object(s);
        if (in_object(s))
            call_arguments(p, "null", 4);
        s->at = in_object(s) ? LOOSE_AFTER : LOOSE_VALUE;
        return true;
    }
    enum accept quoted = accept_quote(p, &quote);
    if (quoted == ACCEPT_YES)
        begin_text(p, quote, false);
    if (quoted != ACCEPT_NO)
        return quoted == ACCEPT_YES;
    if ((ch == '{' || ch == '[' || (ch == '(' && is_python(p))) && s->depth < LOOSE_MAX_DEPTH) {
        p->at++;
        open_bracket(p, ch);
        return true;
    }
    s->nested = 0;
    s->at = LOOSE_WORD;
    return true;
}

static bool step_after(struct chat_parser *p) {
    char ch = *input(p);
    if (is_closer(ch)) {
        p->at++;
        close_bracket(p);
    } else if (ch == ',') {
        p->at++;
        p->loose.at = in_object(&p->loose) ? LOOSE_KEY : LOOSE_VALUE;
    } else {
        break_off(p);
    }
    return true;
}

/* Between texts and words. */
static bool step_between(struct chat_parser *p) {
    if (!skip_white(p))
        return false;
    enum accept ends = accept_text(p, p->syntax->section_end);
    if (ends == ACCEPT_WAIT)
        return false;
    if (ends == ACCEPT_YES) {
        p->at -= strlen(p->syntax->section_end); /* the next state reads it */
        break_off(p);
        return true;
    }
    return p->loose.at == LOOSE_KEY     ? step_key(p)
           : p->loose.at == LOOSE_COLON ? step_colon(p)
           : p->loose.at == LOOSE_VALUE ? step_value_at(p)
                                        : step_after(p);
}

bool step_loose(struct chat_parser *p) {
    bool goes_on = p->loose.at == LOOSE_TEXT   ? step_text(p)
                   : p->loose.at == LOOSE_WORD ? put_word(p)
                                               : step_between(p);
    if (goes_on || !p->final)
        return goes_on;
    break_off(p);
    return true;
}

/* After a call: another one in the list, or the end of them. */
bool step_loose_next(struct chat_parser *p) {
    if (!skip_white(p))
        return false;
    if (p->in_list && *input(p) == ',') {
        doubt_begin(p, 1);
        p->state = PARSE_LOOSE_FIRST;
        return true;
    }
    if (p->in_list && *input(p) == ']') {
        p->at++;
        p->in_list = false;
        return true;
    }
    if (accept_text(p, p->syntax->section_end) == ACCEPT_WAIT)
        return false;
    return leave(p);
}

/* ---- tags within tags -------------------------------------------------------------------- */

/* Before a call, or after one: the end of them. */
bool step_nested_first(struct chat_parser *p) {
    if (!skip_white(p))
        return false;
    size_t before = p->at;
    enum accept begins = accept_text(p, p->syntax->function_begin);
    if (begins == ACCEPT_WAIT)
        return false;
    if (begins == ACCEPT_YES) {
        doubt_further_call(p, p->at - before);
        p->state = PARSE_NESTED_NAME;
        return true;
    }
    if (!p->doubtful && accept_text(p, p->syntax->section_end) == ACCEPT_WAIT)
        return false;
    return leave(p);
}

bool step_nested_name(struct chat_parser *p) {
    const char *const ends[] = {p->syntax->function_name_end, p->syntax->quote};
    struct marker_hit hit = find_marker(p, ends, ARRAY_LEN(ends));
    if (hit.which < 0 && hit.pos <= MAX_NAME_BYTES)
        return false;
    if (hit.which != 0 || !is_function_name(p, input(p), hit.pos))
        return leave(p);
    call_begin(p, input(p), hit.pos);
    p->at += hit.pos + strlen(ends[0]);
    p->loose = (struct loose_scan){.at = LOOSE_AFTER, .depth = 1, .open = {'{'}};
    p->loose.schema[0] = find_params(p);
    p->value.len = 0;
    call_arguments(p, "{", 1);
    p->state = PARSE_NESTED;
    return true;
}

/* The tag after the token: its name, without the brackets. False: it is not there yet, or never. */
static bool find_tag(const struct chat_parser *p, const char **name, size_t *len) {
    size_t skip = strlen(p->syntax->quote), n = input_len(p);
    const char *tag = input(p) + skip;
    if (n <= skip + 1 || *tag != '<')
        return false;
    const char *end = memchr(tag, '>', MIN(n - skip, (size_t)MAX_NAME_BYTES + 3));
    if (end == NULL)
        return false;
    *name = tag + 1;
    *len = (size_t)(end - *name);
    return true;
}

/* What is wrong with it can be seen. */
static bool never_a_tag(const struct chat_parser *p) {
    size_t skip = strlen(p->syntax->quote), n = input_len(p);
    return p->final || n > skip + MAX_NAME_BYTES + 3 || (n > skip && input(p)[skip] != '<');
}

static void open_element(struct chat_parser *p, const char *name, size_t len) {
    struct loose_scan *s = &p->loose;
    const json_t *schema = s->schema[s->depth - 1];
    p->key.len = 0;
    keep_bytes(p, &p->key, name, len);
    if (in_object(s)) {
        put_key(p, name, len);
        schema = json_object_get(json_object_get(schema, "properties"), buf_cstr(&p->key));
    } else {
        begin_element(p);
        schema = json_object_get(schema, "items");
    }
    p->key.len = 0;
    s->schema[s->depth] = schema;
    p->value_types = types_within(p, schema);
    s->at = p->value_types == TYPE_STRING ? LOOSE_TEXT : LOOSE_WORD;
    if (s->at == LOOSE_TEXT)
        call_arguments(p, "\"", 1);
}

/* A value's text, which is a string where the function says so, else JSON if it can be. */
static void put_plain(struct chat_parser *p) {
    bool json = (p->value_types & TYPE_STRING) == 0 && p->value.len > 0 &&
                is_json(p->value.bytes, p->value.len);
    const char *text = p->value.bytes;
    size_t len = p->value.len;
    if (json)
        trim(&text, &len);
    call_arguments(p, "\"", !json);
    if (json)
        call_arguments(p, text, len);
    else
        call_arguments_escaped(p, text, len);
    call_arguments(p, "\"", !json);
    p->value.len = 0;
    p->loose.at = LOOSE_AFTER;
}

static bool is_blank(const struct buf *b) {
    for (size_t i = 0; i < b->len; i++)
        if (!is_white(b->bytes[i]))
            return false;
    return true;
}

/* The first tag within an element says what it is: a list of items, or an object. */
static void open_nested(struct chat_parser *p, const char *name, size_t len) {
    struct loose_scan *s = &p->loose;
    bool list = len == 4 && memcmp(name, "item", 4) == 0;
    s->open[s->depth] = list ? '[' : '{';
    s->filled[s->depth] = false;
    call_arguments(p, &s->open[s->depth], 1);
    s->depth++;
    p->value.len = 0;
    s->at = LOOSE_AFTER; /* where the tag is read again */
}

/* Within an element that has no tags yet. */
static bool step_nested_text(struct chat_parser *p) {
    struct loose_scan *s = &p->loose;
    const char *const ends[] = {p->syntax->quote}, *name = "";
    struct marker_hit hit = find_marker(p, ends, 1);
    size_t len = 0;
    if (s->at == LOOSE_TEXT)
        call_arguments_escaped(p, input(p), hit.pos);
    else
        keep_bytes(p, &p->value, input(p), hit.pos);
    p->at += hit.pos;
    if (hit.which < 0)
        return false;
    bool tag = find_tag(p, &name, &len);
    if (!tag && !never_a_tag(p))
        return false;
    bool opens = tag && *name != '/';
    if (opens && s->at == LOOSE_WORD && is_blank(&p->value) && s->depth < LOOSE_MAX_DEPTH) {
        open_nested(p, name, len);
        return true;
    }
    if (!tag || opens) { /* the token is text */
        if (s->at == LOOSE_TEXT)
            call_arguments_escaped(p, input(p), 1);
        else
            keep_bytes(p, &p->value, input(p), 1);
        p->at++;
        return true;
    }
    p->at += strlen(ends[0]) + len + 2;
    if (s->at == LOOSE_TEXT) {
        call_arguments(p, "\"", 1);
        s->at = LOOSE_AFTER;
    } else {
        put_plain(p);
    }
    return true;
}

/* Between elements. */
static bool step_nested_between(struct chat_parser *p) {
    const char *name = "";
    size_t len = 0;
    if (!skip_white(p))
        return false;
    size_t before = p->at;
    enum accept token = accept_text(p, p->syntax->quote);
    p->at = before;
    bool tag = token == ACCEPT_YES && find_tag(p, &name, &len);
    if (token == ACCEPT_WAIT || (token == ACCEPT_YES && !tag && !never_a_tag(p)))
        return false;
    bool calls_end = tag && len == 10 && memcmp(name, "/tool_call", 10) == 0;
    if (!tag || calls_end) {
        break_off(p);
        p->state = PARSE_NESTED_FIRST;
        return true;
    }
    p->at += strlen(p->syntax->quote) + len + 2;
    if (*name != '/') {
        open_element(p, name, len);
        return true;
    }
    close_bracket(p);
    if (p->loose.depth == 0)
        p->state = PARSE_NESTED_FIRST;
    return true;
}

/* The text ends within a call. */
static void end_nested(struct chat_parser *p) {
    struct loose_scan *s = &p->loose;
    if (s->at == LOOSE_TEXT && !p->cut)
        call_arguments(p, "\"", 1);
    else if (s->at == LOOSE_WORD && !p->cut)
        put_plain(p);
    else if (s->at == LOOSE_WORD)
        call_arguments(p, p->value.bytes, p->value.len);
    p->value.len = 0;
    s->at = LOOSE_AFTER;
    break_off(p);
    p->state = PARSE_NESTED_FIRST;
}

bool step_nested(struct chat_parser *p) {
    bool text = p->loose.at == LOOSE_TEXT || p->loose.at == LOOSE_WORD;
    bool goes_on = text ? step_nested_text(p) : step_nested_between(p);
    if (goes_on || !p->final)
        return goes_on;
    end_nested(p);
    return true;
}
