/* chat_record.h: what the output parser makes of a text, as one text, and of a template's own
 * calls. Texts are fed whole, in two pieces, cut at every byte, and byte by byte: all must
 * agree. */
#ifndef LOCKSTEP_TESTS_CHAT_RECORD_H
#define LOCKSTEP_TESTS_CHAT_RECORD_H

#include "base/mem.h"
#include "base/util.h"
#include "chat/chat_parse.h"
#include "jinja/template.h"

#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* All events as one text: "R(reasoning)C(content)[name id|arguments]". */
struct record {
    char text[1 << 16];
    size_t n;
    int last; /* the kind of the last event */
    char arguments[1 << 12];
    size_t n_arguments, n_deltas;
    char content[1 << 16];
    size_t n_content;
};

static inline void append(struct record *r, const char *text, size_t len) {
    assert_true(r->n + len < sizeof r->text);
    memcpy(r->text + r->n, text, len);
    r->n += len;
    r->text[r->n] = '\0';
}

static inline void on_event(void *arg, const struct chat_event *e) {
    struct record *r = arg;
    bool goes_on = r->last == (int)e->kind;
    r->last = (int)e->kind;
    switch (e->kind) {
    case CHAT_CONTENT:
        append(r, goes_on ? "" : "C:", goes_on ? 0 : 2);
        memcpy(r->content + r->n_content, e->text, e->len);
        r->n_content += e->len;
        break;
    case CHAT_REASONING:
        append(r, goes_on ? "" : "R:", goes_on ? 0 : 2);
        break;
    case CHAT_CALL_BEGIN:
        append(r, "[", 1);
        append(r, e->id, strlen(e->id));
        append(r, "#", 1);
        break;
    case CHAT_ARGUMENTS:
        append(r, goes_on ? "" : "|", goes_on ? 0 : 1);
        memcpy(r->arguments + r->n_arguments, e->text, e->len);
        r->n_arguments += e->len;
        r->n_deltas++;
        break;
    case CHAT_CALL_END:
        append(r, "]", 1);
        break;
    }
    append(r, e->text, e->len);
}

static bool cut_off; /* what chat_parser_end() is told */

static inline void parse_pieces(struct record *r, const struct chat_parse_options *options,
                                const char *text, size_t len, size_t first, size_t step) {
    struct chat_parse_options o = *options;
    struct chat_parser *p;
    struct err err;
    *r = (struct record){.last = -1};
    o.on_event = on_event;
    o.arg = r;
    assert_int_equal(chat_parser_open(&p, &o, &err), ST_OK);
    for (size_t at = 0; at < len;) {
        size_t n = MIN(at < first ? first - at : step, len - at);
        assert_int_equal(chat_parser_put(p, text + at, n, &err), ST_OK);
        at += n;
    }
    assert_int_equal(chat_parser_end(p, cut_off, &err), ST_OK);
    chat_parser_close(p);
}

/* Parses whole, and cut at every byte; all must agree. */
static inline struct record *parse(const struct chat_parse_options *options, const char *text,
                                   size_t len) {
    static struct record whole, cut;
    parse_pieces(&whole, options, text, len, len, len);
    for (size_t at = 1; at <= len; at++) {
        parse_pieces(&cut, options, text, len, at, at == len ? 1 : len);
        if (strcmp(cut.text, whole.text) != 0)
            print_message("cut at %zu of %s\n  whole %s\n  cut   %s\n", at, text, whole.text,
                          cut.text);
        assert_string_equal(cut.text, whole.text);
    }
    parse_pieces(&cut, options, text, len, 1, 1);
    assert_string_equal(cut.text, whole.text);
    return &whole;
}

/* ---- golden ------------------------------------------------------------------------------ */

static const struct template_clock golden_clock = {2024, 11, 20, 9, 8, 7};

__attribute__((noinline, unused)) static char *
render(const struct template *t, const json_t *conversation, size_t n_messages, bool prompt) {
    json_t *vars = json_deep_copy(conversation), *messages = json_object_get(vars, "messages");
    while (json_array_size(messages) > n_messages)
        json_array_remove(messages, json_array_size(messages) - 1);
    json_object_set_new(vars, "add_generation_prompt", json_boolean(prompt));
    json_object_set_new(vars, "bos_token", json_string(""));
    json_object_set_new(vars, "eos_token", json_string("<EOS>"));
    char *text = NULL;
    size_t len;
    struct err err;
    if (template_render(t, vars, &golden_clock, &text, &len, &err) != ST_OK)
        text = NULL;
    json_decref(vars);
    return text;
}

/* Where the model's own text begins: after what both have in common, before a tag that only
 * begins alike. */
static inline size_t common_prefix(const char *a, const char *b) {
    size_t k = 0;
    while (a[k] != '\0' && a[k] == b[k])
        k++;
    for (size_t back = 0; back < 10 && back < k && b[k - 1 - back] != '>'; back++)
        if (b[k - 1 - back] == '<')
            return k - 1 - back;
    return k;
}

static inline void cut_at_end_token(char *text) {
    static const char *const ends[] = {"<EOS>",
                                       "<|im_end|>",
                                       "<|eot_id|>",
                                       "<|end_of_text|>",
                                       "</assistant>",
                                       "<｜end▁of▁sentence｜>",
                                       "<|role_end|>",
                                       "<sep>",
                                       "[e~[",
                                       "<|eom_id|>",
                                       "<turn|>",
                                       "<|END_OF_TURN_TOKEN|>",
                                       "<|tool_response>",
                                       "<seed:eos>",
                                       "<|message_sep|>",
                                       "<end_of_sentence>",
                                       "<|end|>",
                                       "<|end_of_msg|>",
                                       "<SPECIAL_12>"};
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        char *end = strstr(text, ends[i]);
        if (end != NULL)
            text[end - text] = '\0';
    }
}

static inline char *read_template(const char *name, struct template **t) {
    char path[256];
    size_t len = 0;
    struct err err = {.text = ""};
    snprintf(path, sizeof path, "chat-templates/templates/%s.jinja", name);
    char *source = (char *)read_whole(golden_path(path), &len);
    assert_non_null(source);
    source[len] = '\0';
    assert_int_equal(template_compile(t, source, len, &err), ST_OK);
    return source;
}

static inline void check_template(const char *name, enum chat_format format, const char *begin,
                                  const json_t *conversation) {
    struct template *t;
    char *source = read_template(name, &t);
    struct chat_style style = chat_style_detect(source, NULL, NULL);
    if (style.format != format)
        print_message("%s: taken for %s\n", name, chat_format_name(style.format));
    assert_int_equal(style.format, format);
    char *prompt = render(t, conversation, 1, true), *full = render(t, conversation, 2, false);
    assert_non_null(prompt);
    assert_non_null(full);
    size_t k = common_prefix(prompt, full);
    char *text = full + k;
    cut_at_end_token(text);
    struct chat_parse_options o = {.style = style,
                                   .prompt = prompt,
                                   .prompt_len = k,
                                   .tools = json_object_get(conversation, "tools")};
    const struct record *r = parse(&o, text, strlen(text));
    char expected[256];
    snprintf(expected, sizeof expected,
             "[%s#get_weather|{\"city\": \"Paris\", \"unit\": \"celsius\"}]", begin);
    if (strcmp(r->text, expected) != 0)
        print_message("%s: %s\n", name, text);
    assert_string_equal(r->text, expected);
    mem_free(prompt);
    mem_free(full);
    template_close(t);
    free(source);
}

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"add\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"code\": {\"type\": "
    "\"string\"}}}}}, {\"name\": \"sub\", \"parameters\": {}}, "
    "{\"name\": \"typed\", \"input_schema\": {\"properties\": {\"any\": {\"anyOf\": "
    "[{\"type\": \"string\"}, {\"type\": \"null\"}]}, \"list\": {\"type\": [\"string\", "
    "\"null\"]}, \"enum\": {\"enum\": [\"1\", \"2\"]}, \"flag\": {\"type\": \"boolean\"}, "
    "\"maybe\": {\"type\": [\"number\", \"null\"]}, "
    "\"same\": {\"$ref\": \"#/properties/enum\"}, \"all\": {\"allOf\": [{\"$ref\": "
    "\"#/$defs/E\"}], \"default\": \"1\"}, \"none\": {\"anyOf\": [{\"$ref\": \"#/$defs/E\"}, "
    "{\"type\": \"null\"}]}, \"round\": {\"$ref\": \"#/$defs/R\"}, \"lost\": {\"$ref\": \"#/x\"}}, "
    "\"$defs\": {\"E\": {\"type\": \"string\", \"enum\": [\"1\", \"2\"]}, \"R\": {\"anyOf\": "
    "[{\"$ref\": \"#/$defs/R\"}, {\"$ref\": \"#/$defs/R\"}]}}}}]";

#define THINK "<think>", "</think>", "", ""
#define NO_THINK "", "", "", ""

/* A call of add whose code is "long long long text". */
struct streamed {
    enum chat_format format;
    const char *text;
};

/* Arguments come in pieces as the text does, not at the end. */
static inline void check_streamed(const struct streamed *cases, size_t n) {
    json_error_t e;
    json_t *tools = json_loads(tools_text, 0, &e);
    for (size_t i = 0; i < n; i++) {
        static struct record r;
        struct chat_parse_options o = {.style = {cases[i].format, NO_THINK}, .tools = tools};
        parse_pieces(&r, &o, cases[i].text, strlen(cases[i].text), 1, 3);
        assert_true(r.n_deltas >= 5);
        r.arguments[r.n_arguments] = '\0';
        assert_string_equal(r.arguments, "{\"code\": \"long long long text\"}");
    }
    json_decref(tools);
}

#endif
