/* chat_parse.c: the output parser's core: the input buffer, markers, content and reasoning,
 * events. chat_formats.c has a table of the formats. chat_parse_json.c, chat_parse_tags.c,
 * chat_parse_loose.c and chat_parse_harmony.c read their calls, chat_parse_frames.c answers that
 * consist of frames. */
#include "chat/chat_parse_impl.h"

#include "base/json.h"
#include "base/mem.h"

#include <stdio.h>

void keep_bytes(struct chat_parser *p, struct buf *b, const char *text, size_t len) {
    p->out_of_memory |= !buf_add(b, text, len);
}

/* ---- input ------------------------------------------------------------------------------- */

/* JSON's and XML's white space: what models put around tags. */
bool is_white(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

void trim(const char **text, size_t *len) {
    while (*len > 0 && is_white(**text)) {
        ++*text;
        --*len;
    }
    while (*len > 0 && is_white((*text)[*len - 1]))
        --*len;
}

/* How much of marker the text begins with: its length, or less if the text ends within it
 * (*cut), or 0. */
static size_t match_here(const char *text, size_t len, const char *marker, bool *cut) {
    size_t n = strlen(marker), k = MIN(n, len);
    *cut = false;
    if (memcmp(text, marker, k) != 0)
        return 0;
    *cut = k < n;
    return k;
}

struct marker_hit find_marker(const struct chat_parser *p, const char *const *markers,
                              size_t n) {
    const char *text = input(p);
    size_t len = input_len(p);
    for (size_t pos = 0; pos < len; pos++) {
        for (size_t i = 0; i < n; i++) {
            bool cut;
            if (markers[i] == NULL || markers[i][0] != text[pos] ||
                match_here(text + pos, len - pos, markers[i], &cut) == 0)
                continue;
            if (!cut)
                return (struct marker_hit){(int)i, pos};
            if (!p->final)
                return (struct marker_hit){-1, pos};
        }
    }
    return (struct marker_hit){-1, len};
}

bool skip_white(struct chat_parser *p) {
    while (input_len(p) > 0 && is_white(*input(p)))
        p->at++;
    return input_len(p) > 0;
}

enum accept accept_text(struct chat_parser *p, const char *text) {
    bool cut;
    size_t n = text == NULL ? 0 : match_here(input(p), input_len(p), text, &cut);
    if (text == NULL || (n == 0 && input_len(p) > 0))
        return ACCEPT_NO;
    if (n < strlen(text))
        return p->final ? ACCEPT_NO : ACCEPT_WAIT;
    p->at += n;
    return ACCEPT_YES;
}

/* ---- output ------------------------------------------------------------------------------ */

static void send(struct chat_parser *p, enum chat_event_kind kind, const char *text,
                 size_t len) {
    struct chat_event event = {
        .kind = kind, .call = p->n_calls, .text = text, .len = len, .id = ""};
    if (kind == CHAT_CALL_BEGIN)
        event.id = buf_cstr(&p->id);
    if (!p->out_of_memory)
        p->o.on_event(p->o.arg, &event);
}

void emit_text(struct chat_parser *p, enum chat_event_kind kind, const char *text, size_t len) {
    while (p->skip_space && len > 0 && is_white(*text)) {
        text++;
        len--;
    }
    if (len == 0)
        return;
    size_t end = len;
    while (end > 0 && is_white(text[end - 1]))
        end--;
    if (end > 0) {
        if (p->space.len > 0)
            send(p, kind, p->space.bytes, p->space.len);
        p->space.len = 0;
        p->skip_space = false;
        p->said |= kind == CHAT_CONTENT;
        send(p, kind, text, end);
    }
    keep_bytes(p, &p->space, text + end, len - end);
}

void emit_verbatim(struct chat_parser *p, enum chat_event_kind kind, const char *text,
                   size_t len) {
    p->said |= kind == CHAT_CONTENT && len > 0;
    if (len > 0)
        send(p, kind, text, len);
}

void emit_tag(struct chat_parser *p) {
    p->space.len = 0;
    p->skip_space = true;
}

void doubt_begin(struct chat_parser *p, size_t marker_len) {
    p->doubtful = true;
    p->mark = p->at;
    p->mark_len = marker_len;
    p->at += marker_len;
}

void doubt_further_call(struct chat_parser *p, size_t tag_len) {
    if (p->doubtful)
        return;
    p->at -= tag_len;
    doubt_begin(p, tag_len);
}

void doubt_fail(struct chat_parser *p) {
    BUG_ON(!p->doubtful);
    p->doubtful = false;
    p->at = p->mark + p->mark_len;
    p->in_list = p->bare = false;
    p->id.len = 0;
    p->state = PARSE_CONTENT;
    emit_text(p, CHAT_CONTENT, p->in.bytes + p->mark, p->mark_len);
}

bool leave(struct chat_parser *p) {
    if (p->doubtful) {
        doubt_fail(p);
        return true;
    }
    call_end(p);
    p->in_list = false;
    p->state = PARSE_CONTENT;
    return true;
}

void call_begin(struct chat_parser *p, const char *name, size_t len) {
    p->doubtful = false;
    p->skip_space = true; /* what came before the call stays, if content follows it */
    p->said = false;
    p->in_call = true;
    p->any_arguments = false;
    memset(&p->written, 0, sizeof p->written);
    p->name.len = 0;
    keep_bytes(p, &p->name, name, len);
    send(p, CHAT_CALL_BEGIN, name, len);
}

void call_begin_named(struct chat_parser *p) {
    struct buf name = p->name; /* call_begin() copies it to p->name */
    p->name = (struct buf){0};
    call_begin(p, name.bytes, name.len);
    buf_free(&name);
}

static void flush_arguments(struct chat_parser *p) {
    if (p->delta.len > 0)
        send(p, CHAT_ARGUMENTS, p->delta.bytes, p->delta.len);
    p->delta.len = 0;
}

/* A byte as it is written in a JSON string; returns the length of out. */
static size_t escape_char(char c, char out[8]) {
    static const char short_forms[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    for (size_t k = 0; k + 1 < sizeof short_forms; k += 2)
        if (c == short_forms[k])
            return (size_t)snprintf(out, 8, "\\%c", short_forms[k + 1]);
    if ((unsigned char)c < 0x20)
        return (size_t)snprintf(out, 8, "\\u%04x", (unsigned char)c);
    *out = c;
    return 1;
}

/* Models write line ends and tabs in an object's strings unescaped, which JSON forbids.
 * Arguments that are not an object (such as a program) are not changed. */
void call_arguments(struct chat_parser *p, const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        char c = text[i], buf[8] = {c};
        bool escaped = p->written.after_backslash;
        size_t n = 1;
        if (!p->any_arguments)
            p->written.object = c == '{';
        p->any_arguments = true;
        if (p->written.in_string && !escaped && (unsigned char)c < 0x20)
            n = escape_char(c, buf);
        keep_bytes(p, &p->delta, buf, n);
        p->written.after_backslash = p->written.in_string && c == '\\' && !escaped;
        if (c == '"' && !escaped)
            p->written.in_string = p->written.object && !p->written.in_string;
    }
}

void call_end(struct chat_parser *p) {
    if (!p->in_call)
        return;
    if (!p->any_arguments && !p->cut)
        call_arguments(p, "{}", 2);
    flush_arguments(p);
    send(p, CHAT_CALL_END, "", 0);
    p->in_call = false;
    p->n_calls++;
    p->id.len = 0;
}

void call_arguments_escaped(struct chat_parser *p, const char *text, size_t len) {
    char buf[8];
    for (size_t i = 0; i < len; i++)
        call_arguments(p, buf, escape_char(text[i], buf));
}

/* ---- the request's tools ----------------------------------------------------------------- */

static const json_t *find_tool(const struct chat_parser *p, const char *name, size_t len) {
    const json_t *tool;
    size_t i;
    json_array_foreach(p->o.tools, i, tool) {
        const json_t *function = json_object_get(tool, "function");
        function = function != NULL ? function : tool;
        const json_t *its = json_object_get(function, "name");
        if (json_is_string(its) && json_string_length(its) == len &&
            memcmp(json_string_value(its), name, len) == 0)
            return function;
    }
    return NULL;
}

bool is_tool_name(const struct chat_parser *p, const char *name, size_t len) {
    return find_tool(p, name, len) != NULL;
}

/* OpenAI's and Anthropic's letters, digits, _ and -; MCP servers' . : and /; and any script's. */
bool is_function_name(const struct chat_parser *p, const char *name, size_t len) {
    bool plausible = len > 0 && len <= MAX_NAME_BYTES;
    for (size_t i = 0; i < len && plausible; i++) {
        unsigned char c = (unsigned char)name[i], lower = c | 0x20;
        bool word =
            (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || c == '_' || c >= 0x80;
        plausible = word || (i > 0 && strchr("-.:/", c) != NULL && c != '\0');
    }
    return plausible || is_tool_name(p, name, len);
}

/* The schema of the current call's arguments. */
const json_t *find_params(const struct chat_parser *p) {
    const json_t *function = find_tool(p, p->name.bytes, p->name.len);
    const json_t *parameters = json_object_get(function, "parameters");
    return parameters != NULL ? parameters : json_object_get(function, "input_schema");
}

const json_t *find_param(const struct chat_parser *p, const char *key) {
    return json_object_get(json_object_get(find_params(p), "properties"), key);
}

const char *nth_param(const struct chat_parser *p, size_t n) {
    json_t *params = json_object_get(find_params(p), "properties");
    void *at = json_object_iter(params);
    while (at != NULL && n-- > 0)
        at = json_object_iter_next(params, at);
    return json_object_iter_key(at);
}

static unsigned named_type(const json_t *name) {
    if (!json_is_string(name))
        return 0;
    const char *s = json_string_value(name);
    return str_eq(s, "string")    ? TYPE_STRING
           : str_eq(s, "null")    ? TYPE_NULL
           : str_eq(s, "boolean") ? TYPE_BOOLEAN
                                  : TYPE_OTHER;
}

static unsigned type_of(const json_t *value) {
    return value == NULL            ? 0
           : json_is_string(value)  ? TYPE_STRING
           : json_is_null(value)    ? TYPE_NULL
           : json_is_boolean(value) ? TYPE_BOOLEAN
                                    : TYPE_OTHER;
}

/* The types that a schema allows. *left: how many more schemas are looked at. References may
 * lead in circles. */
static unsigned schema_types(const json_t *root, const json_t *schema, size_t *left) {
    static const char *const parts[] = {"anyOf", "oneOf", "allOf"};
    const json_t *type = json_object_get(schema, "type"), *one;
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    unsigned types = named_type(type);
    size_t i;
    if (*left == 0)
        return 0;
    --*left;
    json_array_foreach(type, i, one) {
        types |= named_type(one);
    }
    if (types != 0)
        return types;
    json_array_foreach(json_object_get(schema, "enum"), i, one) {
        types |= type_of(one);
    }
    types |= type_of(json_object_get(schema, "const"));
    for (size_t k = 0; k < ARRAY_LEN(parts) && types == 0; k++) {
        json_array_foreach(json_object_get(schema, parts[k]), i, one) {
            types |= schema_types(root, one, left);
        }
    }
    return types == 0 && ref != NULL ? schema_types(root, json_follow(root, ref), left) : types;
}

unsigned types_within(const struct chat_parser *p, const json_t *schema) {
    size_t left = 1000;
    return schema_types(find_params(p), schema, &left);
}

unsigned param_types(const struct chat_parser *p, const char *key) {
    return types_within(p, find_param(p, key));
}

/* ---- content, reasoning ------------------------------------------------------------------ */

/* Llama 3 calls by bare JSON, when the answer begins with it. */
static bool may_be_bare_call(const struct chat_parser *p) {
    return p->o.style.format == CHAT_LLAMA3 && !p->said;
}

/* True if a decision was made; *go_on is then what the step returns. */
static bool try_bare_call(struct chat_parser *p, bool *go_on) {
    size_t white = 0;
    while (white < input_len(p) && is_white(input(p)[white]))
        white++;
    *go_on = false;
    if (white == input_len(p))
        return !p->final; /* wait */
    if (input(p)[white] != '{')
        return false;
    emit_text(p, CHAT_CONTENT, input(p), white);
    p->at += white;
    doubt_begin(p, 1); /* if it fails, the "{" is content and the rest is read on */
    p->at--;
    p->bare = true;
    p->state = PARSE_JSON_FIRST;
    *go_on = true;
    return true;
}

static bool all_white(const char *text, size_t len) {
    for (size_t i = 0; i < len; i++)
        if (!is_white(text[i]))
            return false;
    return true;
}

enum {
    MARK_THINK,
    MARK_THINK_END,
    MARK_ANSWER,
    MARK_ANSWER_END,
    MARK_SECTION,
    MARK_BARE,
    N_MARKS
};

/* Tags of thinking count only before the first content. Later they are text. */
static void content_markers(const struct chat_parser *p, const char *markers[N_MARKS]) {
    const struct chat_style *style = &p->o.style;
    markers[MARK_THINK] = if_any(style->think_begin, !p->said);
    markers[MARK_THINK_END] = if_any(style->think_end, !p->said);
    markers[MARK_ANSWER] = if_any(style->answer_begin, !p->said);
    markers[MARK_ANSWER_END] = if_any(style->answer_end, p->answering);
    markers[MARK_SECTION] = p->syntax->section_begin;
    markers[MARK_BARE] = p->syntax->bare_begin;
}

/* At a tag around thoughts or the answer, which counts where nothing but white space was before
 * it. */
static void take_tag(struct chat_parser *p, int which, const char *tag, bool at_start) {
    if (at_start) {
        emit_tag(p);
        p->answering |= which == MARK_ANSWER;
        p->state = which == MARK_THINK ? PARSE_REASONING : PARSE_CONTENT;
    } else {
        emit_text(p, CHAT_CONTENT, tag, strlen(tag));
    }
    p->at += strlen(tag);
}

/* At the tag that ends the answer: it does if nothing follows it, or a call. */
static bool take_answer_end(struct chat_parser *p, const char *tag) {
    const char *rest = input(p) + strlen(tag);
    size_t len = input_len(p) - strlen(tag), white = 0;
    bool cut = false;
    while (white < len && is_white(rest[white]))
        white++;
    const char *section = p->syntax->section_begin;
    bool calls = white < len && section != NULL &&
                 match_here(rest + white, len - white, section, &cut) > 0;
    if ((white == len || cut) && !p->final)
        return false;
    if (white == len || (calls && !cut)) {
        p->answering = false;
        p->space.len = 0;
        p->at += strlen(tag) + white;
    } else {
        emit_text(p, CHAT_CONTENT, tag, strlen(tag));
        p->at += strlen(tag);
    }
    return true;
}

static bool step_content(struct chat_parser *p) {
    bool go_on;
    const char *markers[N_MARKS];
    if (p->syntax->message_end != NULL)
        return step_framed(p);
    if (input_len(p) == 0)
        return false;
    if (may_be_bare_call(p) && try_bare_call(p, &go_on))
        return go_on;
    content_markers(p, markers);
    struct marker_hit hit = find_marker(p, markers, N_MARKS);
    bool at_start = all_white(input(p), hit.pos);
    emit_text(p, CHAT_CONTENT, input(p), hit.pos);
    p->at += hit.pos;
    if (hit.which < 0)
        return false;
    if (hit.which == MARK_ANSWER_END)
        return take_answer_end(p, markers[hit.which]);
    if (hit.which < MARK_SECTION) {
        take_tag(p, hit.which, markers[hit.which], at_start);
        return true;
    }
    size_t len = strlen(markers[hit.which]);
    doubt_begin(p, len);
    if (hit.which == MARK_BARE)
        p->at -= len; /* the next state reads it */
    p->state = p->syntax->first;
    return true;
}

static bool step_reasoning(struct chat_parser *p) {
    bool calls = p->syntax->ends_thoughts;
    const char *markers[] = {p->o.style.think_end, calls ? p->syntax->section_begin : NULL,
                             calls ? p->syntax->bare_begin : NULL};
    if (p->syntax->message_end != NULL)
        return step_framed(p);
    if (p->skip_space) { /* some repeat the tag that the prompt ended with */
        if (!skip_white(p))
            return false;
        enum accept again = accept_text(p, p->o.style.think_begin);
        if (again != ACCEPT_NO)
            return again == ACCEPT_YES;
    }
    struct marker_hit hit = find_marker(p, markers, ARRAY_LEN(markers));
    emit_text(p, CHAT_REASONING, input(p), hit.pos);
    p->at += hit.pos;
    if (hit.which < 0)
        return false;
    p->at += hit.which == 0 ? strlen(markers[0]) : 0;
    emit_tag(p);
    p->state = PARSE_CONTENT;
    return true;
}

/* ---- the loop ---------------------------------------------------------------------------- */

static const parse_step steps[PARSE_N_STATES] = {
    [PARSE_CONTENT] = step_content,
    [PARSE_REASONING] = step_reasoning,
    [PARSE_JSON_FIRST] = step_json_first,
    [PARSE_JSON_CALL] = step_json_call,
    [PARSE_JSON_NEXT] = step_json_next,
    [PARSE_NAME] = step_name,
    [PARSE_VALUE] = step_value,
    [PARSE_TAGGED_SECTION] = step_tagged_section,
    [PARSE_TAGGED_HEAD] = step_tagged_head,
    [PARSE_TAGGED_FENCE] = step_tagged_fence,
    [PARSE_TAGGED_ARGUMENTS] = step_tagged_arguments,
    [PARSE_XML_FUNCTION] = step_xml_function,
    [PARSE_XML_NAME] = step_xml_name,
    [PARSE_XML_PARAM] = step_xml_param,
    [PARSE_XML_KEY] = step_xml_key,
    [PARSE_XML_VALUE_OPEN] = step_xml_value_open,
    [PARSE_XML_VALUE] = step_xml_value,
    [PARSE_XML_ATTRIBUTES] = step_xml_attributes,
    [PARSE_XML_CLOSE] = step_xml_close,
    [PARSE_XML_JSON] = step_xml_json,
    [PARSE_XML_BLOCK] = step_xml_block,
    [PARSE_RECIPIENT] = step_recipient,
    [PARSE_LOOSE_FIRST] = step_loose_first,
    [PARSE_LOOSE_NAME] = step_loose_name,
    [PARSE_LOOSE] = step_loose,
    [PARSE_LOOSE_NEXT] = step_loose_next,
    [PARSE_NESTED_FIRST] = step_nested_first,
    [PARSE_NESTED_NAME] = step_nested_name,
    [PARSE_NESTED] = step_nested,
    [PARSE_HARMONY_HEADER] = step_harmony_header,
    [PARSE_HARMONY_BODY] = step_harmony_body,
};

static void run(struct chat_parser *p) {
    for (;;) {
        while (!p->out_of_memory && steps[p->state](p)) {
        }
        bool give_up = p->doubtful && (p->final || p->in.len - p->mark > MAX_DOUBT_BYTES);
        if (!give_up || p->out_of_memory)
            break;
        doubt_fail(p);
    }
    size_t done = p->doubtful ? p->mark : p->at;
    if (done > 0) {
        memmove(p->in.bytes, p->in.bytes + done, p->in.len - done);
        p->in.len -= done;
        p->at -= done;
        p->mark -= MIN(p->mark, done);
    }
    flush_arguments(p);
}

/* Whether it does but for white space. */
static bool prompt_ends(const struct chat_parse_options *o, const char *tag) {
    size_t n = strlen(tag), end = o->prompt == NULL ? 0 : o->prompt_len;
    while (end > 0 && is_white(o->prompt[end - 1]))
        end--;
    return n > 0 && end >= n && memcmp(o->prompt + end - n, tag, n) == 0;
}

enum status chat_parser_open(struct chat_parser **out, const struct chat_parse_options *options,
                             struct err *err) {
    struct chat_parser *p = mem_calloc(1, sizeof *p);
    if (p == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for the output parser");
    p->o = *options;
    /* Without tools nothing is a call. Some formats frame every answer, though. */
    if (json_array_size(options->tools) == 0 &&
        !syntax_of(options->style.format)->frames_answers)
        p->o.style.format = CHAT_PLAIN;
    p->syntax = syntax_of(p->o.style.format);
    const char *begin = options->style.think_begin;
    if (prompt_ends(options, begin)) {
        p->state = PARSE_REASONING;
        p->skip_space = true;
    }
    if (p->syntax->first == PARSE_RECIPIENT && prompt_ends(options, p->syntax->section_begin)) {
        doubt_begin(p, 0);
        p->state = PARSE_RECIPIENT;
    }
    if (options->style.format == CHAT_HARMONY)
        harmony_open(p);
    if (p->syntax->message_end != NULL)
        framed_open(p);
    p->o.prompt = NULL;
    *out = p;
    return ST_OK;
}

void chat_parser_close(struct chat_parser *p) {
    if (p == NULL)
        return;
    struct buf *const all[] = {&p->in,    &p->space,     &p->delta,          &p->name,
                               &p->id,    &p->call.text, &p->call.arguments, &p->key,
                               &p->value, &p->header};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        buf_free(all[i]);
    mem_free(p);
}

static enum status report(const struct chat_parser *p, struct err *err) {
    return p->out_of_memory ? err_set(err, ST_NO_MEMORY, "no memory for the model's output")
                            : ST_OK;
}

enum status chat_parser_put(struct chat_parser *p, const char *text, size_t len,
                            struct err *err) {
    keep_bytes(p, &p->in, text, len);
    if (p->in.len > 0)
        run(p);
    return report(p, err);
}

bool chat_parser_holds(const struct chat_parser *p) {
    return p->in.len > 0 || p->space.len > 0;
}

enum status chat_parser_end(struct chat_parser *p, bool cut, struct err *err) {
    p->final = true;
    p->cut = cut;
    if (p->in.bytes != NULL)
        run(p);
    call_end(p);
    bool reasons = p->state == PARSE_REASONING ||
                   (p->state == PARSE_HARMONY_BODY && p->route == ROUTE_REASONING);
    if (p->space.len > 0 && !p->skip_space)
        send(p, reasons ? CHAT_REASONING : CHAT_CONTENT, p->space.bytes, p->space.len);
    p->space.len = 0;
    return report(p, err);
}
