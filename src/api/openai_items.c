/* openai_items.c: Checks the items of a request to the Responses API, and converts them to
 * messages. */
#include "api/openai_items.h"

#include "base/json.h"
#include "base/util.h"
#include "chat/chat.h"
#include "server/reply.h"

#include <stdlib.h>

/* What an item is: messages need not say it. */
static const char *type_of(const json_t *item) {
    const char *type = json_text(item, "type");
    return type[0] == '\0' && json_object_get(item, "role") != NULL ? "message" : type;
}

/* The key of a part's text; NULL for parts that are not text. */
static const char *text_key(const json_t *part) {
    static const char *const kinds[] = {"input_text", "output_text", "text", "summary_text",
                                        "reasoning_text"};
    const char *type = json_text(part, "type");
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (str_eq(type, kinds[i]))
            return "text";
    return str_eq(type, "refusal") ? "refusal" : NULL;
}

/* ---- checking ---------------------------------------------------------------------------- */

/* A text, or a list of parts that are texts. */
static bool check_texts(struct params *p, size_t i, const json_t *item, const char *key) {
    const json_t *content = json_object_get(item, key), *part;
    char sentence[CHAT_PART_BYTES];
    size_t k;
    if (json_is_string(content))
        return true;
    if (!json_is_array(content))
        return params_fail(p, "input", "input[%zu].%s must be a string or an array, not %s", i,
                           key, json_kind(content));
    json_array_foreach((json_t *)content, k, part) {
        const char *text = text_key(part);
        if (text == NULL) {
            chat_say_no_text(part, sentence);
            return params_fail(p, "input", "input[%zu].%s[%zu]: %s", i, key, k, sentence);
        }
        if (!json_is_string(json_object_get(part, text)))
            return params_fail(p, "input", "input[%zu].%s[%zu].%s must be a string", i, key, k,
                               text);
    }
    return true;
}

static bool check_strings(struct params *p, size_t i, const json_t *item,
                          const char *const *keys) {
    for (; *keys != NULL; keys++)
        if (!json_is_string(json_object_get(item, *keys)))
            return params_fail(p, "input", "input[%zu].%s must be a string, not %s", i, *keys,
                               json_kind(json_object_get(item, *keys)));
    return true;
}

static bool check_message(struct params *p, size_t i, const json_t *item) {
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    const char *role = json_text(item, "role");
    for (size_t k = 0; k < ARRAY_LEN(roles); k++)
        if (str_eq(role, roles[k]))
            return check_texts(p, i, item, "content");
    return params_fail(p, "input",
                       "input[%zu].role must be \"user\", \"assistant\", \"system\" or "
                       "\"developer\"",
                       i);
}

static bool check_reasoning(struct params *p, size_t i, const json_t *item) {
    static const char *const keys[] = {"content", "summary"};
    for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
        const json_t *v = json_object_get(item, keys[k]);
        if (v != NULL && !json_is_null(v) && !check_texts(p, i, item, keys[k]))
            return false;
    }
    return true;
}

/* A function's result: a text, parts (some may not be text), or nothing. */
static bool check_output(struct params *p, size_t i, const json_t *item) {
    const json_t *output = json_object_get(item, "output");
    if (output == NULL || json_is_null(output) || json_is_string(output) ||
        json_is_array(output))
        return true;
    return params_fail(p, "input", "input[%zu].output must be a string or an array, not %s", i,
                       json_kind(output));
}

static bool check_item(struct params *p, size_t i, const json_t *item) {
    static const char *const call[] = {"call_id", "name", "arguments", NULL};
    static const char *const custom[] = {"call_id", "name", "input", NULL};
    static const char *const result[] = {"call_id", NULL};
    const char *type = type_of(item);
    if (!json_is_object(item))
        return params_fail(p, "input", "input[%zu] must be an object, not %s", i,
                           json_kind(item));
    if (str_eq(type, "message"))
        return check_message(p, i, item);
    if (str_eq(type, "function_call"))
        return check_strings(p, i, item, call);
    if (str_eq(type, "custom_tool_call"))
        return check_strings(p, i, item, custom);
    if (str_eq(type, "function_call_output") || str_eq(type, "custom_tool_call_output"))
        return check_strings(p, i, item, result) && check_output(p, i, item);
    if (str_eq(type, "reasoning"))
        return check_reasoning(p, i, item);
    return params_fail(p, "input", "input[%zu]: items of type \"%.40s\" are not supported", i,
                       type);
}

void items_add_input(struct params *p, json_t *items) {
    json_t *input = json_object_get(p->body, "input"), *item;
    size_t i;
    if (json_is_string(input)) {
        json_array_append_new(items, json_pack("{s:s, s:s, s:O}", "type", "message", "role",
                                               "user", "content", input));
        return;
    }
    if (!json_is_array(input)) {
        params_fail(p, "input", "input must be a string or an array of items, not %s",
                    json_kind(input));
        return;
    }
    json_array_foreach(input, i, item) if (!check_item(p, i, item)) return;
    json_array_extend(items, input);
}

/* ---- messages ---------------------------------------------------------------------------- */

static json_t *texts_json(const json_t *item, const char *key) {
    const json_t *content = json_object_get(item, key), *part;
    struct buf text = {0};
    size_t i;
    if (json_is_string(content))
        return json_incref((json_t *)content);
    json_array_foreach((json_t *)content, i, part) {
        const char *piece = json_text(part, text_key(part));
        buf_add_str(&text, piece);
    }
    json_t *v = buf_json(&text);
    buf_free(&text);
    return v;
}

/* The conversation while it is read. open: the assistant's message that what follows may belong
 * to. */
struct reading {
    json_t *messages, *open;
};

static json_t *add_message(struct reading *r, const char *role, json_t *content) {
    json_t *m = json_pack("{s:s, s:o}", "role", role, "content", content);
    json_array_append_new(r->messages, m);
    r->open = str_eq(role, "assistant") ? m : NULL;
    return m;
}

static bool has_answered(const json_t *message) {
    return json_text(message, "content")[0] != '\0' ||
           json_object_get(message, "tool_calls") != NULL;
}

static void add_said(struct reading *r, const json_t *item) {
    const char *role = json_text(item, "role");
    json_t *content = texts_json(item, "content");
    if (str_eq(role, "assistant") && r->open != NULL && !has_answered(r->open))
        json_object_set_new(r->open, "content", content);
    else
        add_message(r, str_eq(role, "developer") ? "system" : role, content);
}

/* Marks the following text as a thought of ours in plain text. OpenAI's encrypted thoughts have
 * no such mark. */
#define CARRIED "lockstep:"

json_t *items_carried(const json_t *thought) {
    return json_sprintf("%s%s", CARRIED, json_string_value(thought));
}

static json_t *carried_text(const json_t *item) {
    const char *text = json_text(item, "encrypted_content");
    return json_string(str_starts(text, CARRIED) ? text + strlen(CARRIED) : "");
}

static void add_thought(struct reading *r, const json_t *item) {
    json_t *text = texts_json(item, "content");
    if (json_string_length(text) == 0) {
        json_decref(text);
        text = carried_text(item);
    }
    if (json_string_length(text) == 0) {
        json_decref(text);
        text = texts_json(item, "summary");
    }
    if (json_string_length(text) == 0) {
        json_decref(text);
        return;
    }
    if (r->open == NULL || has_answered(r->open) ||
        json_object_get(r->open, "reasoning_content") != NULL)
        add_message(r, "assistant", json_string(""));
    json_object_set_new(r->open, "reasoning_content", text);
}

static void add_call(struct reading *r, const json_t *item) {
    json_t *open = r->open != NULL ? r->open : add_message(r, "assistant", json_string(""));
    json_t *calls = json_object_get(open, "tool_calls");
    if (calls == NULL) {
        calls = json_array();
        json_object_set_new(open, "tool_calls", calls);
    }
    json_array_append_new(calls, json_pack("{s:s, s:s, s:{s:s, s:s}}", "id",
                                           json_text(item, "call_id"), "type", "function",
                                           "function", "name", json_text(item, "name"),
                                           "arguments", json_text(item, "arguments")));
}

/* A custom tool's: a function of one text to the model. */
static void add_custom_call(struct reading *r, const json_t *item) {
    json_t *input = json_pack("{s:O}", "input", json_object_get(item, "input"));
    char *arguments = json_dumps(input, JSON_COMPACT);
    json_t *call =
        json_pack("{s:s, s:s, s:s}", "call_id", json_text(item, "call_id"), "name",
                  json_text(item, "name"), "arguments", arguments != NULL ? arguments : "{}");
    add_call(r, call);
    json_decref(call);
    json_decref(input);
    free(arguments);
}

static void add_result(struct reading *r, const json_t *item) {
    json_t *m = add_message(r, "tool", chat_result_text(json_object_get(item, "output")));
    json_object_set_new(m, "tool_call_id", json_string(json_text(item, "call_id")));
}

/* Templates take one system message, at the beginning. */
static void add_instructions(json_t *messages, const char *instructions) {
    json_t *first = json_array_get(messages, 0);
    if (str_eq(json_text(first, "role"), "system"))
        json_object_set_new(
            first, "content",
            json_sprintf("%s\n\n%s", instructions, json_text(first, "content")));
    else
        json_array_insert_new(
            messages, 0, json_pack("{s:s, s:s}", "role", "system", "content", instructions));
}

json_t *items_messages(const json_t *items, const char *instructions) {
    struct reading r = {.messages = json_array()};
    json_t *item;
    size_t i;
    json_array_foreach((json_t *)items, i, item) {
        const char *type = type_of(item);
        if (str_eq(type, "message"))
            add_said(&r, item);
        else if (str_eq(type, "reasoning"))
            add_thought(&r, item);
        else if (str_eq(type, "function_call"))
            add_call(&r, item);
        else if (str_eq(type, "custom_tool_call"))
            add_custom_call(&r, item);
        else if (str_eq(type, "function_call_output") ||
                 str_eq(type, "custom_tool_call_output"))
            add_result(&r, item);
    }
    if (instructions != NULL && *instructions != '\0')
        add_instructions(r.messages, instructions);
    return r.messages;
}
