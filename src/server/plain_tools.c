/* plain_tools.c: Describes tools in the system message, and calls and results as text. */
#include "server/plain_tools.h"

#include "base/util.h"
#include "chat/chat.h"
#include "server/reply.h"

#include <stdlib.h>

static void put_json(struct buf *b, const json_t *v) {
    char *text = v != NULL ? json_dumps(v, JSON_ENCODE_ANY) : NULL;
    buf_add_str(b, text != NULL ? text : "{}");
    free(text);
}

json_t *messages_with_system(const json_t *messages, const char *paragraph) {
    json_t *out = json_copy((json_t *)messages);
    const json_t *first = json_array_get(out, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    json_t *content = chat_content_text(json_object_get(first, "content"));
    if (role != NULL && str_eq(role, "system") && content != NULL)
        json_array_set_new(
            out, 0,
            json_pack("{s:s, s:o}", "role", "system", "content",
                      json_sprintf("%s\n\n%s", json_string_value(content), paragraph)));
    else
        json_array_insert_new(out, 0,
                              json_pack("{s:s, s:s}", "role", "system", "content", paragraph));
    json_decref(content);
    return out;
}

/* A call's arguments are a text in OpenAI's shape, an object in others; of a call without any,
 * nothing in either. */
static void put_call(struct buf *b, const json_t *call) {
    const json_t *function = json_object_get(call, "function");
    const json_t *arguments = json_object_get(function, "arguments");
    buf_add_str(b, b->len > 0 ? "\n<tool_call>\n{\"name\": " : "<tool_call>\n{\"name\": ");
    put_json(b, json_object_get(function, "name"));
    buf_add_str(b, ", \"arguments\": ");
    if (json_is_string(arguments) && json_string_length(arguments) > 0)
        buf_add_str(b, json_string_value(arguments));
    else
        put_json(b, json_is_object(arguments) || json_is_array(arguments) ? arguments : NULL);
    buf_add_str(b, "}\n</tool_call>");
}

static json_t *message_as_text(const json_t *m) {
    const json_t *calls = json_object_get(m, "tool_calls"), *call;
    const char *role = json_string_value(json_object_get(m, "role"));
    bool result = role != NULL && str_eq(role, "tool");
    json_t *content = result ? chat_result_text(json_object_get(m, "content"))
                             : chat_content_text(json_object_get(m, "content"));
    result = result && content != NULL;
    struct buf text = {0};
    size_t i;
    if (!result && json_array_size(calls) == 0) {
        json_decref(content);
        return json_incref((json_t *)m);
    }
    if (result)
        buf_add_str(&text, "<tool_response>\n");
    buf_add_str(&text, content != NULL ? json_string_value(content) : "");
    json_decref(content);
    if (result)
        buf_add_str(&text, "\n</tool_response>");
    json_array_foreach((json_t *)calls, i, call) {
        put_call(&text, call);
    }
    json_t *out = result ? json_object() : json_copy((json_t *)m); /* with what was thought */
    json_object_del(out, "tool_calls");
    json_object_set_new(out, "role", json_string(result ? "user" : "assistant"));
    json_object_set_new(out, "content", buf_json(&text));
    buf_free(&text);
    return out;
}

json_t *messages_as_text(const json_t *messages) {
    json_t *plain = json_array(), *m;
    size_t i;
    json_array_foreach((json_t *)messages, i, m)
        json_array_append_new(plain, message_as_text(m));
    return plain;
}

json_t *messages_with_tools(const json_t *messages, const json_t *tools) {
    struct buf text = {0};
    json_t *plain = messages_as_text(messages), *tool;
    size_t i;
    buf_add_str(&text, "You may call these functions, given as JSON:\n<tools>\n");
    json_array_foreach((json_t *)tools, i, tool) {
        put_json(&text, tool);
        buf_add_str(&text, "\n");
    }
    buf_add_str(&text,
                "</tools>\nTo call one, write\n<tool_call>\n{\"name\": NAME, \"arguments\": "
                "OBJECT}\n</tool_call>\nThe result comes back within <tool_response>.");
    json_t *out = messages_with_system(plain, text.bytes);
    json_decref(plain);
    buf_free(&text);
    return out;
}
