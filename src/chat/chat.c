/* chat.c: conversations to prompts. It finds out what a template accepts by rendering. */
#include "chat/chat.h"

#include "base/mem.h"
#include "base/util.h"
#include "chat/chat_adapt.h"
#include "chat/chat_builtin.h"
#include "chat/chat_write.h"

#include <string.h>
#include <time.h>

struct chat {
    struct template *template;
    char *source;
    const char *source_name;
    json_t *token_variables;
    struct chat_style style;
    bool hostile; /* ran into a limit while it was learnt */
    struct chat_habits habits;
};

/* ---- what the template takes ---------------------------------------------------------------- */

#define NEEDLE "nEEdLe"

/* Firefunction's templates read these. The day, not the second: the prompt's beginning is to stay
 * what it was. */
static void add_functions(json_t *vars, const json_t *tools, const struct template_clock *now) {
    time_t t = time(NULL);
    struct tm tm;
    gmtime_r(&t, &tm);
    json_t *day = now != NULL ? json_sprintf("%04d-%02d-%02d", now->year, now->month, now->day)
                              : json_sprintf("%04d-%02d-%02d", tm.tm_year + 1900, tm.tm_mon + 1,
                                             tm.tm_mday);
    json_object_set_new(vars, "functions", chat_functions_text(tools));
    json_object_set_new(vars, "datetime", day);
}

/* The tools as a template takes them, as a new reference; NULL: no memory. */
static json_t *tools_for(const struct chat_habits *h, const json_t *tools) {
    if (json_is_array(tools))
        return chat_adapt_tools(h, tools);
    return h->wants_tool_list ? json_array() : json_null();
}

/* Renders a conversation and says whether the needle came through, whole. A template that runs
 * into a limit is not asked again: opening stays quick. Takes the messages and tools. */
static bool probe_with(struct chat *c, json_t *messages, json_t *tools) {
    json_t *vars = json_deep_copy(c->token_variables);
    json_object_set_new(vars, "messages", messages);
    const struct template_clock now = {2024, 1, 1, 0, 0, 0};
    json_object_set_new(
        vars, "tools", json_is_null(tools) ? tools_for(&c->habits, tools) : json_incref(tools));
    json_object_set_new(vars, "add_generation_prompt", json_false());
    if (c->habits.wants_functions)
        add_functions(vars, tools, &now);
    json_decref(tools);
    char *text = NULL;
    size_t len;
    struct err ignored;
    enum status st = ST_NO_MEMORY;
    if (!c->hostile)
        st = template_render(c->template, vars, &now, &text, &len, &ignored);
    bool found = st == ST_OK && strstr(text, NEEDLE) != NULL;
    c->hostile = st == ST_NO_MEMORY;
    mem_free(text);
    json_decref(vars);
    return found;
}

static bool probe_messages(struct chat *c, json_t *messages) {
    return probe_with(c, messages, json_null());
}

static bool probe(struct chat *c, const char *messages) {
    return probe_messages(c, json_loads(messages, 0, NULL));
}

#define USER(content) "{\"role\": \"user\", \"content\": " content "}"
#define ASSISTANT(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define SYSTEM(text) "{\"role\": \"system\", \"content\": \"" text "\"}"

/* A question, a call and its result. */
struct calling {
    const char *content; /* beside the call; NULL: null */
    const char *id;
    const char *arguments;
    bool as_text;          /* the arguments are a text */
    bool second;           /* there is another call before this one */
    const char *reasoning; /* what was thought, or NULL */
};

static void add_call(json_t *messages, json_t *calls, const char *id, const char *arguments,
                     bool as_text) {
    json_t *value = as_text ? json_string(arguments) : json_loads(arguments, 0, NULL);
    json_array_append_new(calls,
                          json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id, "type", "function",
                                    "function", "name", "look", "arguments", value));
    json_array_append_new(messages,
                          json_pack("{s:s, s:s, s:s, s:s}", "role", "tool", "tool_call_id", id,
                                    "name", "look", "content", "seen"));
}

static bool probe_calling(struct chat *c, struct calling q) {
    json_t *calls = json_array();
    json_t *message = json_pack("{s:s, s:s?, s:o}", "role", "assistant", "content", q.content,
                                "tool_calls", calls);
    json_t *messages = json_pack("[{s:s, s:s}, o]", "role", "user", "content", "hi", message);
    if (q.reasoning != NULL)
        chat_set_reasoning(message, q.reasoning);
    if (q.second)
        add_call(messages, calls, "call00000", "{}", q.as_text);
    add_call(messages, calls, q.id, q.arguments, q.as_text);
    return probe_messages(c, messages);
}

static void learn_calls(struct chat *c) {
    struct chat_habits *h = &c->habits;
    struct calling plain = {
        .content = "", .id = "call00001", .arguments = "{\"" NEEDLE "\": \"x\"}"};
    bool takes = probe_calling(c, plain);
    if (!takes) {
        plain.as_text = true;
        takes = h->wants_argument_text = probe_calling(c, plain);
        plain.as_text = takes;
    }
    struct calling other = plain;
    other.content = NULL;
    h->refuses_null = !probe_calling(c, other);
    if (!takes) {
        h->writes = chat_writes_calls(c->style.format) ? c->style.format : CHAT_PLAIN;
        return;
    }
    other = plain;
    other.id = "call_0123456789abcdef";
    h->refuses_ids = !probe_calling(c, other);
    other = plain;
    other.arguments = "{\"" NEEDLE;
    other.as_text = true;
    h->refuses_text_calls = !probe_calling(c, other);
    other = plain;
    other.content = "so";
    bool takes_content = probe_calling(c, other);
    other.reasoning = "hm";
    h->refuses_both = takes_content && !probe_calling(c, other);
    other = plain;
    other.second = true;
    h->refuses_many = !probe_calling(c, other);
    other = plain;
    other.arguments = "{}";
    other.content = NEEDLE;
    if (probe_calling(c, other))
        return;
    other.content = "";
    other.reasoning = NEEDLE;
    h->hides_content = probe_calling(c, other);
}

/* Whether a question comes through with this tool in the request. */
static bool probe_tool(struct chat *c, const char *function) {
    json_t *tools = json_pack("[{s:s, s:o}]", "type", "function", "function",
                              json_loads(function, 0, NULL));
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", NEEDLE);
    return probe_with(c, messages, tools);
}

/* Whether a block of thoughts is read: not if all that is in it comes through, as of any object
 * that is printed. */
static bool probe_block(struct chat *c) {
#define THOUGHTS(more)                                                                      \
    "[" USER("\"hi\"") ", {\"role\": \"assistant\", \"content\": {\"blocks\": [{\"type\": " \
                       "\"thoughts\", " more                                                \
                       "}, {\"type\": \"response\", \"text\": \"so\"}]}}]"
    return probe(c, THOUGHTS("\"text\": \"" NEEDLE "\"")) &&
           !probe(c, THOUGHTS("\"text\": \"hm\", \"other\": \"" NEEDLE "\""));
#undef THOUGHTS
}

static void learn_blocks(struct chat *c) {
    json_t *named = json_pack("{s:s, s:s}", "role", "assistant", "content", "so");
    chat_set_reasoning(named, NEEDLE);
    json_t *messages = json_pack("[{s:s, s:s}, o]", "role", "user", "content", "hi", named);
    c->habits.thinks_in_blocks = !probe_messages(c, messages) && probe_block(c);
}

static void learn_tools(struct chat *c) {
#define NAME "{\"name\": \"look\""
#define DESCRIPTION ", \"description\": \"\""
#define PARAMETERS(more) ", \"parameters\": {\"type\": \"object\"" more "}"
#define PROPERTIES ", \"properties\": {}"
#define BARE_PROPERTY ", \"properties\": {\"x\": {\"type\": \"string\"}}"
    bool takes_less = probe_tool(c, NAME "}") &&
                      probe_tool(c, NAME DESCRIPTION PARAMETERS(BARE_PROPERTY) "}") &&
                      probe_tool(c, NAME DESCRIPTION PARAMETERS("") "}") &&
                      probe_tool(c, NAME PARAMETERS(PROPERTIES) "}");
    c->habits.wants_whole_tools =
        !takes_less && probe_tool(c, NAME DESCRIPTION PARAMETERS(PROPERTIES) "}");
#undef NAME
#undef DESCRIPTION
#undef PARAMETERS
#undef PROPERTIES
#undef BARE_PROPERTY
}

static void learn_turns(struct chat *c) {
    struct chat_habits *h = &c->habits;
#define ASKS USER("\"" NEEDLE "\"")
    h->refuses_repeats = !probe(c, "[" USER("\"hi\"") ", " ASKS "]") &&
                         probe(c, "[" USER("\"hi\"") ", " ASSISTANT("so") ", " ASKS "]");
    h->counts_turns = h->refuses_repeats && !probe(c, "[" ASSISTANT("so") ", " ASKS "]");
#undef ASKS
}

/* The variables without which a template prints nothing. */
static void learn_variables(struct chat *c) {
    bool *const wants[] = {&c->habits.wants_tool_list, &c->habits.wants_functions};
    for (size_t i = 0; i < ARRAY_LEN(wants); i++) {
        if (probe(c, "[" USER("\"" NEEDLE "\"") "]"))
            return;
        *wants[i] = true;
        *wants[i] = probe(c, "[" USER("\"" NEEDLE "\"") "]");
    }
}

/* Only what works the other way round is changed: a template that knows no tools at all gets
 * its messages as they are. */
static void learn(struct chat *c) {
    struct chat_habits *h = &c->habits;
    learn_variables(c);
    if (!probe(c, "[" USER("\"" NEEDLE "\"") "]"))
        h->wants_parts =
            probe(c, "[" USER("[{\"type\": \"text\", \"text\": \"" NEEDLE "\"}]") "]");
    learn_calls(c);
    learn_blocks(c);
    learn_tools(c);
    learn_turns(c);
    h->refuses_system = !probe(c, "[" SYSTEM(NEEDLE) ", " USER("\"hi\"") "]");
    h->refuses_late_system =
        !probe(c, "[" USER("\"hi\"") ", " SYSTEM(NEEDLE) "]") ||
        !probe(c, "[" USER("\"hi\"") ", " SYSTEM(NEEDLE) ", " USER("\"hi\"") "]") ||
        (h->counts_turns && !probe(c, "[" USER("\"hi\"") ", " ASSISTANT("so") ", " SYSTEM(
                                          NEEDLE) ", " USER("\"hi\"") "]"));
}

/* ---- opening ----------------------------------------------------------------------------- */

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

/* ---- rendering ----------------------------------------------------------------------------- */

/* Marks where the last message's content ends. */
static enum status mark_end(json_t *messages, struct err *err) {
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *content = json_object_get(last, "content");
    json_t *text = chat_content_text(content);
    json_t *marked = text != NULL ? json_sprintf("%s" NEEDLE, json_string_value(text)) : NULL;
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
    json_t *tools = tools_for(&c->habits, request->tools);
    enum status st = ST_NO_MEMORY;
    if (vars == NULL || messages == NULL || tools == NULL)
        err_set(err, st, "no memory for the messages");
    else
        st = request->continue_last ? mark_end(messages, err) : ST_OK;
    if (st == ST_OK)
        st = chat_adapt(&c->habits, messages, err);
    if (st == ST_OK) {
        if (c->habits.wants_functions)
            add_functions(vars, request->tools, request->now);
        if (request->extra != NULL)
            json_object_update(vars, (json_t *)request->extra);
        json_object_set(vars, "messages", messages);
        json_object_set(vars, "tools", tools);
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
    json_decref(tools);
    json_decref(vars);
    return st;
}
