/* anthropic_messages.c: converts conversations of Anthropic's API into OpenAI's shape, which
 * the service takes. tool_use blocks become tool_calls, tool_result blocks messages of the role
 * "tool", and thinking blocks reasoning_content. */
#include "api/anthropic.h"

#include "base/json.h"
#include "base/util.h"
#include "chat/chat.h"

#include <stdlib.h>

/* One message being taken apart. */
struct parts {
    struct buf text, thinking;
    json_t *calls;   /* array */
    json_t *results; /* array of messages */
};

static void add_text(struct buf *b, const char *text) {
    if (b->len > 0)
        buf_add_str(b, "\n");
    buf_add_str(b, text);
}

/* A text, or the text blocks of a list. False: neither. */
static bool read_texts(const json_t *content, struct buf *out) {
    size_t i;
    json_t *block;
    if (json_is_string(content)) {
        add_text(out, json_string_value(content));
        return true;
    }
    json_array_foreach((json_t *)content, i, block) {
        if (!str_eq(json_text(block, "type"), "text"))
            return false;
        add_text(out, json_text(block, "text"));
    }
    return json_is_array(content);
}

/* A document that is text, below its title. False: it is another. */
static bool add_document(const json_t *block, struct buf *out) {
    const json_t *source = json_object_get(block, "source");
    const char *type = json_text(source, "type"), *title = json_text(block, "title");
    if (!str_eq(type, "text") && !str_eq(type, "content"))
        return false;
    if (*title != '\0')
        add_text(out, title);
    return read_texts(json_object_get(source, str_eq(type, "text") ? "data" : "content"), out);
}

/* A result of the client's own search: where it is from, and what it says. */
static bool add_search_result(const json_t *block, struct buf *out) {
    static const char *const head[] = {"title", "source"};
    for (size_t i = 0; i < ARRAY_LEN(head); i++)
        if (*json_text(block, head[i]) != '\0')
            add_text(out, json_text(block, head[i]));
    return read_texts(json_object_get(block, "content"), out);
}

/* What a tool found, which the model may see in part: an image there must not end the
 * conversation. */
static void add_result(const json_t *block, struct buf *out) {
    if (str_eq(json_text(block, "type"), "text")) {
        add_text(out, json_text(block, "text"));
    } else if (str_eq(json_text(block, "type"), "search_result")) {
        (void)add_search_result(block, out);
    } else if (!add_document(block, out)) {
        json_t *stands_in = chat_stand_in(block);
        if (stands_in != NULL)
            add_text(out, json_string_value(stands_in));
        json_decref(stands_in);
    }
}

static bool read_results(const json_t *content, struct buf *out) {
    size_t i;
    json_t *block;
    if (content == NULL || json_is_null(content))
        return true;
    if (!json_is_array(content))
        return read_texts(content, out);
    json_array_foreach((json_t *)content, i, block) {
        add_result(block, out);
    }
    return true;
}

static json_t *call_of(const json_t *block) {
    const json_t *input = json_object_get(block, "input");
    char *arguments = json_dumps(input != NULL ? input : json_null(), JSON_COMPACT);
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", json_text(block, "id"), "type",
                             "function", "function", "name", json_text(block, "name"),
                             "arguments", arguments != NULL ? arguments : "{}");
    free(arguments);
    return call;
}

static bool read_result(struct params *p, const json_t *block, struct parts *parts) {
    struct buf text = {0};
    const json_t *content = json_object_get(block, "content");
    bool good = read_results(content, &text);
    if (good)
        json_array_append_new(parts->results,
                              json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id",
                                        json_text(block, "tool_use_id"), "content",
                                        buf_json(&text)));
    else
        params_fail(p, "messages", "a tool_result's content must be a string or an array");
    buf_free(&text);
    return good;
}

static bool refuse_block(struct params *p, size_t i, const json_t *block) {
    char sentence[CHAT_PART_BYTES];
    chat_say_no_text(block, sentence);
    return params_fail(p, "messages", "messages[%zu]: %s", i, sentence);
}

static bool read_block(struct params *p, size_t i, const json_t *block, struct parts *parts) {
    const char *type = json_text(block, "type");
    if (str_eq(type, "text"))
        add_text(&parts->text, json_text(block, "text"));
    else if (str_eq(type, "thinking"))
        add_text(&parts->thinking, json_text(block, "thinking"));
    else if (str_eq(type, "tool_use"))
        json_array_append_new(parts->calls, call_of(block));
    else if (str_eq(type, "tool_result"))
        return read_result(p, block, parts);
    else if (str_eq(type, "document"))
        return add_document(block, &parts->text) ||
               params_fail(p, "messages", "messages[%zu]: only text can be read of a document",
                           i);
    else if (str_eq(type, "search_result"))
        return add_search_result(block, &parts->text) ||
               params_fail(p, "messages",
                           "messages[%zu]: a search_result's content must be text blocks", i);
    else if (!str_eq(type, "redacted_thinking"))
        return refuse_block(p, i, block);
    return true;
}

static bool read_content(struct params *p, size_t i, const json_t *content,
                         struct parts *parts) {
    size_t k;
    json_t *block;
    if (json_is_string(content)) {
        add_text(&parts->text, json_string_value(content));
        return true;
    }
    if (!json_is_array(content))
        return params_fail(p, "messages",
                           "messages[%zu].content must be a string or an array, "
                           "not %s",
                           i, json_kind(content));
    json_array_foreach((json_t *)content, k,
                       block) if (!read_block(p, i, block, parts)) return false;
    return true;
}

static void write_parts(const char *role, struct parts *parts, json_t *out) {
    json_array_extend(out, parts->results);
    bool silent = parts->text.len == 0;
    if (silent && json_array_size(parts->calls) == 0 && json_array_size(parts->results) > 0)
        return;
    json_t *m = json_pack("{s:s, s:o}", "role", role, "content", buf_json(&parts->text));
    if (parts->thinking.len > 0)
        json_object_set_new(m, "reasoning_content", buf_json(&parts->thinking));
    if (json_array_size(parts->calls) > 0)
        json_object_set(m, "tool_calls", parts->calls);
    json_array_append_new(out, m);
}

static bool read_message(struct params *p, size_t i, const json_t *message, json_t *out) {
    const char *role = json_text(message, "role");
    if (!str_eq(role, "user") && !str_eq(role, "assistant") && !str_eq(role, "system"))
        return params_fail(p, "messages",
                           "messages[%zu].role must be \"user\", \"assistant\" or \"system\"",
                           i);
    struct parts parts = {.calls = json_array(), .results = json_array()};
    bool good = read_content(p, i, json_object_get(message, "content"), &parts);
    if (good)
        write_parts(role, &parts, out);
    buf_free(&parts.text);
    buf_free(&parts.thinking);
    json_decref(parts.calls);
    json_decref(parts.results);
    return good;
}

/* What a client puts before its instructions to have itself counted. It differs with every
 * conversation, so with it no prompt would begin like another. */
#define BILLING "x-anthropic-billing-header:"

/* The length of the lines of it that the text begins with. */
static size_t billing_len(const char *text) {
    const char *at = text, *end;
    while (str_starts(at, BILLING)) {
        end = strchr(at, '\n');
        if (end == NULL)
            return strlen(text);
        at = end + strspn(end, "\n");
    }
    return (size_t)(at - text);
}

/* The system prompt without it, as a new reference. */
static json_t *without_billing(const json_t *system) {
    json_t *left = json_deep_copy(system), *block;
    if (getenv("LOCKSTEP_KEEP_BILLING_HEADER") != NULL)
        return left;
    if (json_is_string(left)) {
        json_t *text =
            json_string(json_string_value(left) + billing_len(json_string_value(left)));
        json_decref(left);
        return text;
    }
    while ((block = json_array_get(left, 0)) != NULL) {
        const char *text = json_text(block, "text");
        size_t n = billing_len(text);
        if (n == 0)
            break;
        if (text[n] != '\0') {
            json_object_set_new(block, "text", json_string(text + n));
            break;
        }
        json_array_remove(left, 0);
    }
    return left;
}

static void read_system(struct params *p, json_t *out) {
    struct buf text = {0};
    if (json_object_get(p->body, "system") == NULL ||
        json_is_null(json_object_get(p->body, "system")))
        return;
    json_t *system = without_billing(json_object_get(p->body, "system"));
    bool good = read_texts(system, &text);
    json_decref(system);
    if (!good)
        params_fail(p, "system", "system must be a string or an array of text blocks");
    else if (text.len > 0)
        json_array_append_new(
            out, json_pack("{s:s, s:o}", "role", "system", "content", buf_json(&text)));
    buf_free(&text);
}

json_t *anthropic_messages_of(struct params *p) {
    const json_t *messages = NULL;
    json_t *out = json_array(), *message;
    size_t i;
    param_array(p, "messages", &messages);
    if (p->st == ST_OK && json_array_size(messages) == 0)
        params_fail(p, "messages", "messages must be an array of at least one message");
    read_system(p, out);
    json_array_foreach((json_t *)messages, i,
                       message) if (p->st != ST_OK || !read_message(p, i, message, out)) break;
    return out;
}

/* What Anthropic's own servers do (web_search_20250305 and the like): those have a type and no
 * schema. */
static bool is_anthropics(const json_t *tool) {
    const char *type = json_string_value(json_object_get(tool, "type"));
    return type != NULL && !str_eq(type, "custom") &&
           json_object_get(tool, "input_schema") == NULL;
}

json_t *anthropic_tools_of(struct params *p) {
    const json_t *tools = NULL;
    json_t *out = json_array(), *tool;
    size_t i;
    param_array(p, "tools", &tools);
    json_array_foreach((json_t *)tools, i, tool) {
        const json_t *schema = json_object_get(tool, "input_schema");
        if (is_anthropics(tool) && json_array_size(tools) > 1)
            continue; /* the model has the others */
        if (!json_is_string(json_object_get(tool, "name")) || !json_is_object(schema)) {
            params_fail(p, "tools", "tools[%zu] must have a name and an input_schema", i);
            break;
        }
        json_t *function =
            json_pack("{s:s, s:s, s:O}", "name", json_text(tool, "name"), "description",
                      json_text(tool, "description"), "parameters", schema);
        json_array_append_new(
            out, json_pack("{s:s, s:o}", "type", "function", "function", function));
    }
    return out;
}
