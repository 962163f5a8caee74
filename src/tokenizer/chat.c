/* Conversations: what a template takes, and messages adapted to it. */
#include "tokenizer/chat.h"

#include "base/mem.h"
#include "base/util.h"
#include "tokenizer/chat_builtin.h"

#include <string.h>

struct chat {
    struct template *template;
    char *source;
    const char *source_name;
    json_t *token_variables;
    struct chat_style style;
    bool hostile;             /* ran into a limit while it was learnt */
    bool wants_argument_text; /* tool arguments as JSON text, not as an object */
    bool refuses_null;        /* content: null */
    bool refuses_system;      /* a system message */
    bool refuses_late_system; /* one after others, at the end or not */
    bool wants_parts;         /* content as a list of parts only */
};

/* ---- what the template takes ---------------------------------------------------------------- */

#define NEEDLE "nEEdLe"

/* Renders a conversation and says whether the needle came through, whole. A template that runs into
 * a limit is not asked again: opening stays quick. */
static bool probe(struct chat *c, const char *messages) {
    if (c->hostile)
        return false;
    json_error_t e;
    json_t *list = json_loads(messages, 0, &e), *vars = json_deep_copy(c->token_variables);
    json_object_set_new(vars, "messages", list);
    json_object_set_new(vars, "tools", json_null());
    json_object_set_new(vars, "add_generation_prompt", json_false());
    const struct template_clock now = {2024, 1, 1, 0, 0, 0};
    char *text = NULL;
    size_t len;
    struct err ignored;
    enum status st = template_render(c->template, vars, &now, &text, &len, &ignored);
    bool found = st == ST_OK && strstr(text, NEEDLE) != NULL;
    c->hostile = st == ST_NO_MEMORY;
    mem_free(text);
    json_decref(vars);
    return found;
}

#define USER(content) "{\"role\": \"user\", \"content\": " content "}"
#define SYSTEM(text) "{\"role\": \"system\", \"content\": \"" text "\"}"
#define TOOL_CALL(content, arguments)                                                   \
    "{\"role\": \"assistant\", \"content\": " content                                   \
    ", \"tool_calls\": [{\"id\": \"call00001\", \"type\": \"function\", \"function\": " \
    "{\"name\": \"look\", \"arguments\": " arguments "}}]}, "                           \
    "{\"role\": \"tool\", \"tool_call_id\": \"call00001\", \"name\": \"look\", "        \
    "\"content\": \"seen\"}"
#define ARGUMENTS_OBJECT "{\"" NEEDLE "\": \"x\"}"
#define ARGUMENTS_TEXT "\"{\\\"" NEEDLE "\\\": \\\"x\\\"}\""

/* Only what works the other way round is changed: a template that knows no tools at all gets
 * its messages as they are. */
static void learn(struct chat *c) {
    if (!probe(c, "[" USER("\"" NEEDLE "\"") "]"))
        c->wants_parts =
            probe(c, "[" USER("[{\"type\": \"text\", \"text\": \"" NEEDLE "\"}]") "]");
    c->wants_argument_text =
        !probe(c, "[" USER("\"hi\"") ", " TOOL_CALL("\"\"", ARGUMENTS_OBJECT) "]") &&
        probe(c, "[" USER("\"hi\"") ", " TOOL_CALL("\"\"", ARGUMENTS_TEXT) "]");
    c->refuses_null =
        c->wants_argument_text
            ? !probe(c, "[" USER("\"hi\"") ", " TOOL_CALL("null", ARGUMENTS_TEXT) "]")
            : !probe(c, "[" USER("\"hi\"") ", " TOOL_CALL("null", ARGUMENTS_OBJECT) "]");
    c->refuses_system = !probe(c, "[" SYSTEM(NEEDLE) ", " USER("\"hi\"") "]");
    c->refuses_late_system =
        !probe(c, "[" USER("\"hi\"") ", " SYSTEM(NEEDLE) "]") ||
        !probe(c, "[" USER("\"hi\"") ", " SYSTEM(NEEDLE) ", " USER("\"hi\"") "]");
}

/* ---- opening --------------------------------------------------------------------------------- */

static json_t *token_text(const struct tokenizer *t, int32_t id) {
    struct gguf_str s = {0};
    if (id != TOKEN_NONE)
        s = token_bytes(t, id, true);
    json_t *text = s.len > 0 ? json_stringn(s.ptr, s.len) : NULL;
    return text != NULL ? text : json_string("");
}

static bool has_special_token(void *arg, const char *text) {
    return tokenizer_find(arg, text, strlen(text)) != TOKEN_NONE;
}

static enum status open_source(struct chat *c, const struct tokenizer *t, const char *source,
                               size_t len, struct err *err) {
    const struct tokenizer_facts *facts = tokenizer_facts(t);
    c->source_name = "given";
    if (source == NULL && facts->chat_template != NULL) {
        c->source_name = "model";
        source = facts->chat_template;
        len = strlen(source);
    } else if (source == NULL) {
        const struct chat_builtin *builtin = chat_builtin_choose(t);
        c->source_name = builtin->name;
        source = builtin->source;
        len = strlen(source);
    }
    c->source = mem_strndup(source, len);
    c->token_variables = json_pack("{s:o, s:o}", "bos_token", token_text(t, facts->bos),
                                   "eos_token", token_text(t, facts->eos));
    if (c->source == NULL || c->token_variables == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for the chat template");
    c->style = chat_style_detect(c->source, has_special_token, (void *)t);
    return template_compile(&c->template, source, len, err);
}

enum status chat_open(struct chat **out, const struct tokenizer *t, const char *source,
                      size_t len, struct err *err) {
    struct chat *c = mem_calloc(1, sizeof *c);
    if (c == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for the chat template");
    enum status st = open_source(c, t, source, len, err);
    if (st != ST_OK) {
        chat_close(c);
        return st;
    }
    learn(c);
    *out = c;
    return ST_OK;
}

void chat_close(struct chat *c) {
    if (c == NULL)
        return;
    template_close(c->template);
    mem_free(c->source);
    json_decref(c->token_variables);
    mem_free(c);
}

const char *chat_source(const struct chat *c) {
    return c->source;
}

const char *chat_source_name(const struct chat *c) {
    return c->source_name;
}

struct chat_style chat_style(const struct chat *c) {
    return c->style;
}

const struct template *chat_template(const struct chat *c) {
    return c->template;
}

const json_t *chat_token_variables(const struct chat *c) {
    return c->token_variables;
}

/* ---- adapting messages --------------------------------------------------------------------- */

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

static enum status adapt_content(const struct chat *c, json_t *message, size_t i,
                                 struct err *err) {
    const json_t *content = json_object_get(message, "content");
    json_t *adapted = NULL;
    if (json_is_array(content)) {
        json_t *text = join_parts(content);
        if (text == NULL)
            return err_set(err, ST_UNSUPPORTED,
                           "messages[%zu].content: only parts of text can be used", i);
        if (c->wants_parts)
            json_decref(text);
        else
            adapted = text;
    } else if (json_is_string(content) && c->wants_parts) {
        adapted = json_pack("[{s:s, s:O}]", "type", "text", "text", content);
    } else if ((content == NULL || json_is_null(content)) && c->refuses_null) {
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
static void adapt_call(const struct chat *c, json_t *call) {
    json_t *function = json_object_get(call, "function");
    json_t *arguments = json_object_get(function, "arguments"), *adapted = NULL;
    if (c->wants_argument_text && (json_is_object(arguments) || json_is_array(arguments))) {
        char *text = json_dumps(arguments, 0);
        adapted = text != NULL ? json_string(text) : NULL;
        free(text);
    } else if (!c->wants_argument_text && json_is_string(arguments)) {
        json_error_t e;
        adapted = json_loadb(json_string_value(arguments), json_string_length(arguments),
                             JSON_REJECT_DUPLICATES, &e);
    }
    if (adapted != NULL)
        json_object_set_new(function, "arguments", adapted);
}

static enum status adapt_message(const struct chat *c, json_t *message, size_t i,
                                 struct err *err) {
    if (!json_is_object(message) || !json_is_string(json_object_get(message, "role")))
        return err_set(err, ST_BAD_INPUT, "messages[%zu] must be an object with a role", i);
    TRY(adapt_content(c, message, i, err));
    json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t k;
    json_array_foreach(calls, k, call) {
        adapt_call(c, call);
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

static enum status adapt_messages(const struct chat *c, json_t *messages, struct err *err) {
    json_t *message;
    size_t i;
    json_array_foreach(messages, i, message) {
        TRY(adapt_message(c, message, i, err));
    }
    if (c->refuses_late_system)
        merge_late_systems(messages);
    if (c->refuses_system)
        merge_system(messages);
    return ST_OK;
}

/* Marks where the last message's content ends. */
static enum status mark_end(json_t *messages, struct err *err) {
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *content = json_object_get(last, "content");
    json_t *text =
        json_is_array(content) ? join_parts(content) : json_incref((json_t *)content);
    json_t *marked =
        json_is_string(text) ? json_sprintf("%s" NEEDLE, json_string_value(text)) : NULL;
    json_decref(text);
    if (marked == NULL)
        return err_set(err, ST_BAD_INPUT, "a message that is to go on must have a text");
    json_object_set_new(last, "content", marked);
    return ST_OK;
}

static enum status cut_at_mark(char *text, size_t *len, struct err *err) {
    const size_t n = strlen(NEEDLE);
    for (size_t at = *len; at >= n; at--)
        if (memcmp(text + at - n, NEEDLE, n) == 0) {
            *len = at - n;
            text[*len] = '\0';
            return ST_OK;
        }
    return err_set(err, ST_UNSUPPORTED,
                   "this model's chat template does not let the last message go on");
}

enum status chat_render(const struct chat *c, const struct chat_request *request, char **text,
                        size_t *len, struct err *err) {
    if (!json_is_array(request->messages) || json_array_size(request->messages) == 0)
        return err_set(err, ST_BAD_INPUT, "messages must be a list with at least one message");
    json_t *vars = json_copy((json_t *)c->token_variables);
    json_t *messages = json_deep_copy(request->messages);
    enum status st = ST_NO_MEMORY;
    if (vars == NULL || messages == NULL)
        err_set(err, st, "no memory for the messages");
    else
        st = request->continue_last ? mark_end(messages, err) : ST_OK;
    if (st == ST_OK)
        st = adapt_messages(c, messages, err);
    if (st == ST_OK) {
        if (request->extra != NULL)
            json_object_update(vars, (json_t *)request->extra);
        json_object_set(vars, "messages", messages);
        if (request->tools != NULL)
            json_object_set(vars, "tools", (json_t *)request->tools);
        else
            json_object_set_new(vars, "tools", json_null());
        json_object_set_new(
            vars, "add_generation_prompt",
            json_boolean(request->add_generation_prompt && !request->continue_last));
        st = template_render(c->template, vars, request->now, text, len, err);
    }
    if (st == ST_OK && request->continue_last && (st = cut_at_mark(*text, len, err)) != ST_OK) {
        mem_free(*text);
        *text = NULL;
    }
    json_decref(messages);
    json_decref(vars);
    return st;
}
