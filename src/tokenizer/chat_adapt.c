/* Messages adapted to what a template takes. */
#include "tokenizer/chat_adapt.h"

#include "base/mem.h"
#include "base/util.h"
#include "tokenizer/chat.h"

#include <string.h>

/* What a part says; NULL if it is no text. An answer that the model has refused before is one, too. */
static const json_t *text_of_part(const json_t *part) {
    const json_t *text = json_object_get(part, "text");
    return json_is_string(text) ? text : json_object_get(part, "refusal");
}

/* The texts of the parts, joined; NULL if a part is no text. */
static json_t *join_parts(const json_t *parts) {
    size_t len = 0, i;
    const json_t *part;
    json_array_foreach(parts, i, part) {
        const json_t *text = text_of_part(part);
        if (!json_is_string(text))
            return NULL;
        len += json_string_length(text);
    }
    char *joined = mem_alloc(len + 1);
    if (joined == NULL)
        return NULL;
    len = 0;
    json_array_foreach(parts, i, part) {
        const json_t *text = text_of_part(part);
        memcpy(joined + len, json_string_value(text), json_string_length(text));
        len += json_string_length(text);
    }
    json_t *result = json_stringn(joined, len);
    mem_free(joined);
    return result;
}

json_t *chat_content_text(const json_t *content) {
    return json_is_array(content)    ? join_parts(content)
           : json_is_string(content) ? json_incref((json_t *)content)
                                     : NULL;
}

static enum status adapt_content(const struct chat_habits *h, json_t *message, size_t i,
                                 struct err *err) {
    const json_t *content = json_object_get(message, "content");
    json_t *adapted = NULL;
    if (json_is_array(content)) {
        json_t *text = join_parts(content);
        if (text == NULL)
            return err_set(err, ST_UNSUPPORTED,
                           "messages[%zu].content: only parts of text can be used", i);
        if (h->wants_parts)
            json_decref(text);
        else
            adapted = text;
    } else if (json_is_string(content) && h->wants_parts) {
        adapted = json_pack("[{s:s, s:O}]", "type", "text", "text", content);
    } else if ((content == NULL || json_is_null(content)) && h->refuses_null) {
        adapted = json_string("");
    } else if (content != NULL && !json_is_string(content) && !json_is_null(content) &&
               !json_is_array(content)) {
        return err_set(err, ST_BAD_INPUT,
                       "messages[%zu].content must be a string, a list of parts or null", i);
    }
    if (adapted != NULL)
        json_object_set_new(message, "content", adapted);
    return ST_OK;
}

/* A call's arguments as the template wants them. A text that is no JSON object stays one. */
static void adapt_call(const struct chat_habits *h, json_t *call) {
    json_t *function = json_object_get(call, "function");
    json_t *arguments = json_object_get(function, "arguments"), *adapted = NULL;
    if (h->wants_argument_text && (json_is_object(arguments) || json_is_array(arguments))) {
        char *text = json_dumps(arguments, 0);
        adapted = text != NULL ? json_string(text) : NULL;
        free(text);
    } else if (!h->wants_argument_text && json_is_string(arguments)) {
        json_error_t e;
        adapted = json_loadb(json_string_value(arguments), json_string_length(arguments),
                             JSON_REJECT_DUPLICATES, &e);
    }
    if (adapted != NULL)
        json_object_set_new(function, "arguments", adapted);
}

static enum status adapt_message(const struct chat_habits *h, json_t *message, size_t i,
                                 struct err *err) {
    if (!json_is_object(message) || !json_is_string(json_object_get(message, "role")))
        return err_set(err, ST_BAD_INPUT, "messages[%zu] must be an object with a role", i);
    TRY(adapt_content(h, message, i, err));
    json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t k;
    json_array_foreach(calls, k, call) {
        adapt_call(h, call);
    }
    return ST_OK;
}

static bool has_role(const json_t *message, const char *role) {
    const char *is = json_string_value(json_object_get(message, "role"));
    return is != NULL && str_eq(is, role);
}

/* Puts a text in front of a message's own, or behind it. False: it has none, or no memory. */
static bool join_text(json_t *message, const char *text, bool in_front) {
    const char *own = json_string_value(json_object_get(message, "content"));
    if (own == NULL)
        return false;
    json_t *joined = json_sprintf("%s\n\n%s", in_front ? text : own, in_front ? own : text);
    return joined != NULL && json_object_set_new(message, "content", joined) == 0;
}

/* What is said by the system in the middle of a conversation belongs to the message before it, if that is the system's
 * or the user's, else to the user's after it; between two others it is a user's message. */
static void merge_late_systems(json_t *messages) {
    for (size_t i = 1; i < json_array_size(messages);) {
        json_t *message = json_array_get(messages, i),
               *before = json_array_get(messages, i - 1);
        json_t *after = json_array_get(messages, i + 1);
        const char *text = json_string_value(json_object_get(message, "content"));
        if (!has_role(message, "system") || text == NULL) {
            i++;
            continue;
        }
        bool ours = has_role(before, "system") || has_role(before, "user");
        if ((ours && join_text(before, text, false)) ||
            (has_role(after, "user") && join_text(after, text, true)))
            json_array_remove(messages, i);
        else
            json_object_set_new(message, "role", json_string("user"));
    }
}

/* Puts a leading system message in front of the first user message's text. */
static void merge_system(json_t *messages) {
    const json_t *system = json_array_get(messages, 0);
    const json_t *text = json_object_get(system, "content");
    json_t *message;
    size_t i;
    if (!has_role(system, "system") || !json_is_string(text))
        return;
    json_array_foreach(messages, i, message) {
        if (!has_role(message, "user") || !json_is_string(json_object_get(message, "content")))
            continue;
        if (join_text(message, json_string_value(text), true))
            json_array_remove(messages, 0);
        return;
    }
}

enum status chat_adapt(const struct chat_habits *h, json_t *messages, struct err *err) {
    json_t *message;
    size_t i;
    json_array_foreach(messages, i, message) {
        TRY(adapt_message(h, message, i, err));
    }
    if (h->refuses_late_system)
        merge_late_systems(messages);
    if (h->refuses_system)
        merge_system(messages);
    return ST_OK;
}
