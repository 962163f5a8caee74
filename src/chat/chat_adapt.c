/* chat_adapt.c: adapts messages to what a template accepts. */
#include "chat/chat_adapt.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "chat/chat.h"
#include "chat/chat_write.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text of a part; NULL if it is not text. An earlier refusal of the model counts as text,
 * too. */
static const json_t *text_of_part(const json_t *part) {
    const json_t *text = json_object_get(part, "text");
    return json_is_string(text) ? text : json_object_get(part, "refusal");
}

void chat_say_no_text(const json_t *part, char sentence[CHAT_PART_BYTES]) {
    static const struct {
        const char *word, *things;
    } kinds[] = {{"image", "images are"},
                 {"audio", "sounds are"},
                 {"video", "videos are"},
                 {"file", "files are"},
                 {"document", "documents are"}};
    const char *type = json_string_value(json_object_get(part, "type"));
    snprintf(sentence, CHAT_PART_BYTES, "only parts of text can be used");
    if (type != NULL)
        snprintf(sentence, CHAT_PART_BYTES, "parts of type \"%.40s\" are not supported", type);
    for (size_t i = 0; type != NULL && i < ARRAY_LEN(kinds); i++)
        if (strstr(type, kinds[i].word) != NULL) {
            snprintf(sentence, CHAT_PART_BYTES, "%s not supported by this model",
                     kinds[i].things);
            return;
        }
}

static enum status refuse_parts(const json_t *parts, size_t i, struct err *err) {
    char sentence[CHAT_PART_BYTES] = "";
    const json_t *part;
    size_t k;
    json_array_foreach((json_t *)parts, k, part) {
        if (json_is_string(text_of_part(part)))
            continue;
        chat_say_no_text(part, sentence);
        break;
    }
    return err_set(err, ST_UNSUPPORTED, "messages[%zu].content: %s", i, sentence);
}

/* The texts of the parts, joined; NULL if a part is not text. */
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

json_t *chat_stand_in(const json_t *part) {
    const char *type = json_string_value(json_object_get(part, "type"));
    const char *tool = json_string_value(json_object_get(part, "tool_name"));
    if (type != NULL && strstr(type, "image") != NULL)
        type = "image"; /* "image_url", "input_image" */
    return tool != NULL ? json_sprintf("[the tool %s]", tool)
                        : json_sprintf("[%.40s left out: this model reads text only]",
                                       type != NULL ? type : "part");
}

json_t *chat_result_text(const json_t *content) {
    if (content == NULL || json_is_null(content))
        return json_string("");
    if (!json_is_array(content))
        return chat_content_text(content);
    json_t *parts = json_array(), *part;
    size_t i;
    json_array_foreach((json_t *)content, i, part) {
        if (json_is_string(text_of_part(part)))
            json_array_append(parts, part);
        else
            json_array_append_new(
                parts, json_pack("{s:s, s:o}", "type", "text", "text", chat_stand_in(part)));
    }
    json_t *text = join_parts(parts);
    json_decref(parts);
    return text;
}

static bool has_role(const json_t *message, const char *role) {
    const char *is = json_string_value(json_object_get(message, "role"));
    return is != NULL && str_eq(is, role);
}

static enum status adapt_content(const struct chat_habits *h, json_t *message, size_t i,
                                 struct err *err) {
    if (has_role(message, "tool")) {
        json_t *text = chat_result_text(json_object_get(message, "content"));
        if (text != NULL)
            json_object_set_new(message, "content", text);
    }
    const json_t *content = json_object_get(message, "content");
    json_t *adapted = NULL;
    if (json_is_array(content)) {
        json_t *text = join_parts(content);
        if (text == NULL)
            return refuse_parts(content, i, err);
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

/* Nothing, for a call without arguments, is an object without members. */
static json_t *parsed(const json_t *arguments) {
    const char *text = json_string_value(arguments);
    if (arguments == NULL || json_is_null(arguments) ||
        (text != NULL && text[strspn(text, " \t\r\n")] == '\0'))
        return json_object();
    json_error_t e;
    json_t *v = text != NULL
                    ? json_read(text, json_string_length(arguments), JSON_REJECT_DUPLICATES, &e)
                    : NULL;
    return v != NULL ? v : json_incref((json_t *)arguments);
}

/* A call's arguments in the form that the template accepts. A text that is not JSON (for
 * example cut off) is kept: if only objects are accepted, it becomes a member of one. */
static void adapt_arguments(const struct chat_habits *h, json_t *function) {
    json_t *arguments = parsed(json_object_get(function, "arguments"));
    if (h->wants_argument_text && !json_is_string(arguments)) {
        char *text = json_dumps(arguments, JSON_ENCODE_ANY);
        json_object_set_new(function, "arguments", json_string(text != NULL ? text : "{}"));
        free(text);
    } else if (h->refuses_text_calls && !json_is_object(arguments)) {
        json_object_set_new(function, "arguments", json_pack("{s:O}", "arguments", arguments));
    } else {
        json_object_set(function, "arguments", arguments);
    }
    json_decref(arguments);
}

/* Clients that send back what they got write null for fields that a message does not have.
 * Templates that test for the field would find it. The same holds for an empty list of calls. */
static void drop_absent(json_t *message) {
    const char *key;
    json_t *v;
    void *next;
    json_object_foreach_safe(message, next, key, v) {
        if ((json_is_null(v) && !str_eq(key, "content")) ||
            (str_eq(key, "tool_calls") && json_is_array(v) && json_array_size(v) == 0))
            json_object_del(message, key);
    }
}

static const char *const reasoning_keys[] = {"reasoning_content", "reasoning", "thinking"};

void chat_set_reasoning(json_t *message, const char *text) {
    for (size_t i = 0; i < ARRAY_LEN(reasoning_keys); i++) {
        const json_t *has = json_object_get(message, reasoning_keys[i]);
        if (has == NULL || (json_is_string(has) && json_string_length(has) == 0))
            json_object_set_new(message, reasoning_keys[i], json_string(text));
    }
}

/* Every API has its own name for what the model thought, and every template reads one of them. */
static void spread_reasoning(json_t *message) {
    for (size_t i = 0; i < ARRAY_LEN(reasoning_keys); i++) {
        const char *text = json_string_value(json_object_get(message, reasoning_keys[i]));
        if (text != NULL && *text != '\0') {
            chat_set_reasoning(message, text);
            return;
        }
    }
}

/* gpt-oss's template refuses a content beside reasoning. It writes either as the model's
 * analysis before the call. Joined into one text, nothing is lost. */
static void join_reasoning(json_t *message) {
    const char *reasoning = json_string_value(json_object_get(message, reasoning_keys[0]));
    json_t *content = chat_content_text(json_object_get(message, "content"));
    if (reasoning != NULL && json_string_length(content) > 0) {
        json_object_set_new(message, "content",
                            json_sprintf("%s\n\n%s", reasoning, json_string_value(content)));
        for (size_t i = 0; i < ARRAY_LEN(reasoning_keys); i++)
            json_object_del(message, reasoning_keys[i]);
    }
    json_decref(content);
}

/* Where a template shows what was thought before a call, but not what was said, both are. */
static void content_as_reasoning(json_t *message) {
    const char *reasoning = json_string_value(json_object_get(message, reasoning_keys[0]));
    json_t *content = chat_content_text(json_object_get(message, "content"));
    bool both = reasoning != NULL && *reasoning != '\0';
    if (json_string_length(content) > 0) {
        json_t *all = json_sprintf("%s%s%s", both ? reasoning : "", both ? "\n\n" : "",
                                   json_string_value(content));
        for (size_t i = 0; i < ARRAY_LEN(reasoning_keys); i++)
            json_object_set(message, reasoning_keys[i], all);
        json_decref(all);
    }
    json_decref(content);
}

static enum status adapt_message(const struct chat_habits *h, json_t *message, size_t i,
                                 struct err *err) {
    if (!json_is_object(message) || !json_is_string(json_object_get(message, "role")))
        return err_set(err, ST_BAD_INPUT, "messages[%zu] must be an object with a role", i);
    drop_absent(message);
    spread_reasoning(message);
    json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t k;
    json_array_foreach(calls, k, call) {
        adapt_arguments(h, json_object_get(call, "function"));
    }
    if (calls != NULL && h->refuses_both)
        join_reasoning(message);
    if (calls != NULL && h->hides_content)
        content_as_reasoning(message);
    return adapt_content(h, message, i, err);
}

/* ---- calls and their results ------------------------------------------------------------- */

/* Some APIs leave ids out: a result is that of the call in its place, or of the next one of its
 * name. From the message at i on, which has calls. */
static void complete_ids(json_t *messages, size_t i) {
    json_t *calls = json_object_get(json_array_get(messages, i), "tool_calls"), *call, *result;
    json_t *by_name = json_object(); /* lists of ids, the first at the end */
    for (size_t k = json_array_size(calls); k-- > 0;) {
        call = json_array_get(calls, k);
        if (!json_is_string(json_object_get(call, "id")))
            json_object_set_new(call, "id", json_sprintf("call_%zu", k));
        const char *name =
            json_string_value(json_object_get(json_object_get(call, "function"), "name"));
        if (name == NULL)
            continue;
        if (json_object_get(by_name, name) == NULL)
            json_object_set_new(by_name, name, json_array());
        json_array_append(json_object_get(by_name, name), json_object_get(call, "id"));
    }
    for (size_t k = 0; has_role(result = json_array_get(messages, i + 1 + k), "tool"); k++) {
        const char *name = json_string_value(json_object_get(result, "tool_name"));
        json_t *ids = json_object_get(by_name, name != NULL ? name : "");
        json_t *id = json_object_get(json_array_get(calls, k), "id");
        size_t n = json_array_size(ids);
        if (json_object_get(result, "tool_call_id") != NULL)
            continue;
        if (n > 0)
            id = json_array_get(ids, n - 1);
        if (id != NULL)
            json_object_set(result, "tool_call_id", id);
        if (n > 0)
            json_array_remove(ids, n - 1);
    }
    json_decref(by_name);
}

/* Mistral's templates accept ids of 9 letters and digits. Any other id becomes one by its hash:
 * the same for a call and its result, and in later requests. So the cached prompt stays valid.
 */
static void shorten_id(json_t *holder, const char *key) {
    static const char digits[] =
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const char *id = json_string_value(json_object_get(holder, key));
    if (id == NULL || (strlen(id) == 9 && strspn(id, digits) == 9))
        return;
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *id != '\0'; id++)
        hash = (hash ^ (unsigned char)*id) * 1099511628211u;
    char fits[10] = {0};
    for (size_t i = 0; i < 9; i++, hash /= 62)
        fits[i] = digits[hash % 62];
    json_object_set_new(holder, key, json_string(fits));
}

static void shorten_ids(json_t *messages) {
    json_t *message, *call;
    size_t i, k;
    json_array_foreach(messages, i, message) {
        shorten_id(message, "tool_call_id");
        json_array_foreach(json_object_get(message, "tool_calls"), k, call) {
            shorten_id(call, "id");
        }
    }
}

/* Of a message with n calls n with one, each in a list that its results join. What was said is
 * said by the first. */
static json_t *split_message(const struct chat_habits *h, const json_t *message) {
    json_t *split = json_array(), *call;
    size_t k;
    json_array_foreach(json_object_get(message, "tool_calls"), k, call) {
        json_t *one = k == 0 ? json_copy((json_t *)message)
                             : json_pack("{s:s, s:s}", "role", "assistant", "content", "");
        json_object_set_new(one, "tool_calls", json_pack("[O]", call));
        adapt_content(h, one, 0, &(struct err){.text = ""});
        json_array_append_new(split, json_pack("[o]", one));
    }
    return split;
}

/* Splits the message at i, each call followed by its results; returns where they end. Results
 * of no call are the last one's. */
static size_t split_calls(const struct chat_habits *h, const json_t *messages, size_t i,
                          json_t *out) {
    const json_t *message = json_array_get(messages, i);
    json_t *split = split_message(h, message), *by_id = json_object(), *one;
    size_t k;
    json_array_foreach(split, k, one) {
        const json_t *call = json_array_get(json_object_get(message, "tool_calls"), k);
        const char *id = json_string_value(json_object_get(call, "id"));
        if (id != NULL)
            json_object_set(by_id, id, one);
    }
    for (i++; has_role(json_array_get(messages, i), "tool"); i++) {
        json_t *result = json_array_get(messages, i);
        const char *id = json_string_value(json_object_get(result, "tool_call_id"));
        json_t *call = json_object_get(by_id, id != NULL ? id : "");
        json_array_append(
            call != NULL ? call : json_array_get(split, json_array_size(split) - 1), result);
    }
    json_array_foreach(split, k, one) {
        json_array_extend(out, one);
    }
    json_decref(split);
    json_decref(by_id);
    return i;
}

static void split_all(const struct chat_habits *h, json_t *messages) {
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(messages);) {
        json_t *message = json_array_get(messages, i);
        if (json_array_size(json_object_get(message, "tool_calls")) > 1) {
            i = split_calls(h, messages, i, out);
        } else {
            json_array_append(out, message);
            i++;
        }
    }
    json_array_clear(messages);
    json_array_extend(messages, out);
    json_decref(out);
}

/* Puts the calls behind what was said. */
static void write_calls(const struct chat_habits *h, json_t *message) {
    const json_t *calls = json_object_get(message, "tool_calls");
    json_t *content = chat_content_text(json_object_get(message, "content"));
    json_t *text = json_array_size(calls) > 0 ? chat_write_calls(h->writes, calls) : NULL;
    if (text != NULL) {
        const char *said = json_string_value(content);
        json_object_set_new(
            message, "content",
            json_sprintf("%s%s", said != NULL ? said : "", json_string_value(text)));
        json_object_del(message, "tool_calls");
    }
    json_decref(text);
    json_decref(content);
}

static void adapt_calls(const struct chat_habits *h, json_t *messages) {
    json_t *message;
    size_t i;
    json_array_foreach(messages, i, message) {
        if (json_object_get(message, "tool_calls") != NULL)
            complete_ids(messages, i);
    }
    if (h->refuses_many)
        split_all(h, messages);
    if (h->refuses_ids)
        shorten_ids(messages);
    json_array_foreach(messages, i, message) {
        if (h->writes != CHAT_PLAIN)
            write_calls(h, message);
    }
}

/* ---- the system's messages --------------------------------------------------------------- */

/* Puts a text in front of what a message has under a key, or behind it. False: it has none, or
 * no memory. */
static bool join_text(json_t *message, const char *key, const char *text, bool in_front) {
    const char *own = json_string_value(json_object_get(message, key));
    if (own == NULL)
        return false;
    json_t *joined = json_sprintf("%s\n\n%s", in_front ? text : own, in_front ? own : text);
    return joined != NULL && json_object_set_new(message, key, joined) == 0;
}

/* A system message in the middle of a conversation joins the message before it, if that is the
 * system's or the user's. Otherwise it joins the user's message after it. Between two others it
 * becomes a user's message. */
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
        if ((ours && join_text(before, "content", text, false)) ||
            (has_role(after, "user") && join_text(after, "content", text, true)))
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
        if (join_text(message, "content", json_string_value(text), true))
            json_array_remove(messages, 0);
        return;
    }
}

/* ---- turns ------------------------------------------------------------------------------- */

/* Whose turn a message is: 'u', 'a'; 0: of no one's that takes turns, like a call and its
 * result. */
static char turn_of(const json_t *message) {
    if (has_role(message, "user"))
        return 'u';
    bool calls = json_object_get(message, "tool_calls") != NULL;
    return has_role(message, "assistant") && !calls ? 'a' : 0;
}

/* Puts what the next message has under a key behind what this one has. */
static void join_key(json_t *message, const json_t *next, const char *key) {
    const json_t *own = json_object_get(message, key), *text = json_object_get(next, key);
    if (json_string_length(text) == 0)
        return;
    if (json_string_length(own) == 0)
        json_object_set(message, key, (json_t *)text);
    else
        (void)join_text(message, key, json_string_value(text), false);
}

/* As Anthropic's API combines turns. */
static void merge_repeats(json_t *messages) {
    for (size_t i = 1; i < json_array_size(messages);) {
        json_t *before = json_array_get(messages, i - 1),
               *message = json_array_get(messages, i);
        char turn = turn_of(message);
        if (turn == 0 || turn != turn_of(before)) {
            i++;
            continue;
        }
        join_key(before, message, "content");
        for (size_t k = 0; k < ARRAY_LEN(reasoning_keys); k++)
            join_key(before, message, reasoning_keys[k]);
        json_array_remove(messages, i);
    }
}

/* If a turn of the other role is missing, a message with a single space stands in for it
 * (Ministral accepts no empty one). This happens before an answer that begins the conversation,
 * and between a tool's result and a user's message. The user's words could join the result, but
 * then they would no longer be the user's, which the model obeys. Also, Mistral Nemo's template
 * drops the system message if the user's message is not the last. */
static void fill_turns(json_t *messages) {
    char turn = 'u';
    for (size_t i = 0; i < json_array_size(messages); i++) {
        char is = turn_of(json_array_get(messages, i));
        if (is == 0)
            continue;
        if (is != turn)
            json_array_insert_new(messages, i,
                                  json_pack("{s:s, s:s}", "role",
                                            turn == 'u' ? "user" : "assistant", "content",
                                            " "));
        turn = turn == 'u' ? 'a' : 'u';
    }
}

/* ---- blocks ------------------------------------------------------------------------------ */

static bool is_said(const json_t *text) {
    return json_is_string(text) && json_string_length(text) > 0;
}

/* What was thought and said, as blocks of one content. */
static void to_blocks(json_t *message) {
    json_t *thoughts = json_object_get(message, reasoning_keys[0]);
    json_t *content = json_object_get(message, "content"), *blocks = json_array();
    if (is_said(thoughts))
        json_array_append_new(blocks,
                              json_pack("{s:s, s:O}", "type", "thoughts", "text", thoughts));
    if (is_said(content))
        json_array_append_new(blocks,
                              json_pack("{s:s, s:O}", "type", "response", "text", content));
    json_object_set_new(message, "content", json_pack("{s:o}", "blocks", blocks));
}

/* Such a template wants all answers so, or none. */
static void use_blocks(json_t *messages) {
    json_t *message;
    size_t i;
    bool thoughts = false;
    json_array_foreach(messages, i, message) {
        thoughts |= has_role(message, "assistant") &&
                    is_said(json_object_get(message, reasoning_keys[0]));
    }
    json_array_foreach(messages, i, message) {
        if (thoughts && has_role(message, "assistant"))
            to_blocks(message);
    }
}

enum status chat_adapt(const struct chat_habits *h, json_t *messages, struct err *err) {
    json_t *message;
    size_t i;
    json_array_foreach(messages, i, message) {
        TRY(adapt_message(h, message, i, err));
    }
    adapt_calls(h, messages);
    if (h->refuses_late_system)
        merge_late_systems(messages);
    if (h->refuses_repeats)
        merge_repeats(messages);
    if (h->counts_turns)
        fill_turns(messages);
    if (h->refuses_system)
        merge_system(messages);
    if (h->thinks_in_blocks)
        use_blocks(messages);
    return ST_OK;
}

static void set_missing(json_t *object, const char *key, json_t *value) {
    const json_t *old = json_object_get(object, key);
    if (old == NULL || json_is_null(old))
        json_object_set(object, key, value);
    json_decref(value);
}

json_t *chat_adapt_tools(const struct chat_habits *h, const json_t *tools) {
    if (!h->wants_whole_tools)
        return json_incref((json_t *)tools);
    json_t *whole = json_deep_copy(tools), *tool, *property;
    const char *key;
    size_t i;
    json_array_foreach(whole, i, tool) {
        json_t *function = json_object_get(tool, "function");
        set_missing(function, "description", json_string(""));
        set_missing(function, "parameters", json_pack("{s:s}", "type", "object"));
        set_missing(json_object_get(function, "parameters"), "properties", json_object());
        json_object_foreach(
            json_object_get(json_object_get(function, "parameters"), "properties"), key,
            property) {
            set_missing(property, "description", json_string(""));
        }
    }
    return whole;
}

json_t *chat_functions_text(const json_t *tools) {
    json_t *functions = json_array(), *tool;
    size_t i;
    json_array_foreach((json_t *)tools, i, tool) {
        json_t *function = json_object_get(tool, "function");
        json_array_append(functions, function != NULL ? function : tool);
    }
    char *text = json_dumps(functions, JSON_INDENT(4));
    json_t *result = text != NULL ? json_string(text) : NULL;
    free(text);
    json_decref(functions);
    return result;
}
