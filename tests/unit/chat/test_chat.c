/* Conversations in OpenAI's shape rendered with real templates: what each takes is found out, and
 * the golden text of a case is what its awkward variants (arguments as text, contents as parts,
 * null) give too. Built-in templates by the vocabulary's special tokens. */
#include "base/mem.h"
#include "base/util.h"
#include "chat/chat.h"

#include "chat_vocabulary.h"
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static struct chat *open_chat(const char *source) {
    struct tokenizer *t = vocabulary(NULL, 0);
    struct chat *c;
    struct err err = {.text = ""};
    enum status st = chat_open(&c, t, source, strlen(source), &err);
    if (st != ST_OK)
        print_message("%s\n", err.text);
    assert_int_equal(st, ST_OK);
    tokenizer_close(t);
    return c;
}

static struct chat *open_golden(const char *name) {
    char path[256];
    size_t len = 0;
    snprintf(path, sizeof path, "chat-templates/templates/%s.jinja", name);
    char *source = (char *)read_whole(golden_path(path), &len);
    assert_non_null(source);
    source[len] = '\0';
    struct chat *c = open_chat(source);
    free(source);
    return c;
}

static char *render(const struct chat *c, const json_t *messages, const json_t *tools,
                    const json_t *extra) {
    static const struct template_clock now = {2024, 11, 20, 9, 8, 7};
    const struct chat_request request = {.messages = messages,
                                         .tools = tools,
                                         .extra = extra,
                                         .add_generation_prompt = true,
                                         .now = &now};
    char *text = NULL;
    size_t len;
    struct err err = {.text = ""};
    if (chat_render(c, &request, &text, &len, &err) != ST_OK) {
        text = mem_strdup(err.text);
        print_message("%s\n", err.text);
    }
    return text;
}

/* messages as JSON, without tools. */
static void assert_renders(const struct chat *c, const char *messages, const char *expected) {
    json_error_t e;
    json_t *j = json_loads(messages, 0, &e);
    assert_non_null(j);
    char *text = render(c, j, NULL, NULL);
    assert_string_equal(text, expected);
    mem_free(text);
    json_decref(j);
}

/* ---- adapting ---------------------------------------------------------------------------- */

static json_t *load(const char *name) {
    json_error_t e;
    json_t *j = json_load_file(golden_path(name), 0, &e);
    assert_non_null(j);
    return j;
}

static const char *golden_text(const json_t *file, const char *conversation) {
    const json_t *item;
    size_t i;
    json_array_foreach(json_object_get(file, "cases"), i, item) {
        if (str_eq(json_string_value(json_object_get(item, "conversation")), conversation))
            return json_string_value(json_object_get(item, "expected"));
    }
    return NULL;
}

/* Arguments as text give what the object gave; contents as parts give what the string gave. */
static void check_adapts(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "chat-templates/expected/%s.json", name);
    json_t *file = load(path), *all = load("chat-templates/conversations.json");
    const char *expected = golden_text(file, "tool-call-and-result");
    assert_non_null(expected);
    json_t *conversation = json_object_get(all, "tool-call-and-result");
    json_t *messages = json_object_get(conversation, "messages");
    const json_t *tools = json_object_get(conversation, "tools");
    json_t *extra = json_pack("{s:O, s:O}", "bos_token", json_object_get(file, "bos_token"),
                              "eos_token", json_object_get(file, "eos_token"));
    struct chat *c = open_golden(name);
    char *text = render(c, messages, tools, extra);
    if (strcmp(text, expected) != 0)
        print_message("%s\n", name);
    assert_string_equal(text, expected);
    mem_free(text);

    json_t *call =
        json_array_get(json_object_get(json_array_get(messages, 1), "tool_calls"), 0);
    json_object_set_new(json_object_get(call, "function"), "arguments",
                        json_string("{\"city\": \"Paris\", \"unit\": \"celsius\"}"));
    json_object_set_new(json_array_get(messages, 0), "content",
                        json_pack("[{s:s, s:s}, {s:s, s:s}]", "type", "text", "text",
                                  "Weather ", "type", "text", "text", "in Paris?"));
    text = render(c, messages, tools, extra);
    assert_string_equal(text, expected);
    mem_free(text);
    chat_close(c);
    json_decref(extra);
    json_decref(file);
    json_decref(all);
}

static void messages_are_adapted_to_the_template(void **state) {
    (void)state;
    static const char *const names[] = {
        "Qwen-Qwen2.5-7B-Instruct",
        "Qwen-Qwen3-0.6B",
        "Qwen3-Coder",
        "GLM-4.6",
        "Kimi-K2-Instruct",
        "openai-gpt-oss-120b",
        "MiniMax-M2",
        "ibm-granite-granite-4.0",
        "meta-llama-Llama-3.2-3B-Instruct",
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        check_adapts(names[i]);
}

static void arguments_become_text_where_the_template_adds_strings(void **state) {
    (void)state;
    struct chat *c =
        open_chat("{% for m in messages %}{{ m.content }}{% for t in m.tool_calls or [] %}"
                  "{{ t.function.name + t.function.arguments }}{% endfor %}{% endfor %}");
    assert_renders(
        c,
        "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
        "\"content\": \"\", \"tool_calls\": [{\"id\": \"1\", \"type\": \"function\", "
        "\"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}}]}]",
        "qf{\"a\": 1}");
    chat_close(c);
}

static void null_becomes_empty_where_the_template_fails(void **state) {
    (void)state;
    struct chat *c = open_chat("{% for m in messages %}[{{ m.content + '' }}]"
                               "{% for t in m.tool_calls or [] %}"
                               "{{ t.function.arguments|tojson }}{% endfor %}{% endfor %}");
    assert_renders(c, "[{\"role\": \"assistant\", \"content\": null}]", "[]");
    assert_renders(c, "[{\"role\": \"assistant\"}]", "[]");
    chat_close(c);
}

static void a_refused_system_message_joins_the_user(void **state) {
    (void)state;
    struct chat *c = open_golden("google-gemma-2-2b-it");
    assert_renders(
        c,
        "[{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", "
        "\"content\": \"Hi\"}]",
        "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n");
    chat_close(c);
}

static void a_refused_late_system_message_joins_its_neighbours(void **state) {
    (void)state;
    static const char late[] =
        "[{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"system\", \"content\": \"T\"}, "
        "{\"role\": \"user\", \"content\": \"U\"}, {\"role\": \"system\", \"content\": \"V\"}, "
        "{\"role\": \"assistant\", \"content\": \"A\"}, {\"role\": \"system\", \"content\": \"W\"}, "
        "{\"role\": \"user\", \"content\": \"X\"}, {\"role\": \"assistant\", \"content\": \"B\"}, "
        "{\"role\": \"system\", \"content\": \"Y\"}]";
    struct chat *c = open_chat(
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
        "{{ raise_exception('late') }}{% endif %}[{{ m.role[0] }} {{ m.content }}]{% endfor %}");
    assert_renders(c, late, "[s S\n\nT][u U\n\nV][a A][u W\n\nX][a B][u Y]");
    chat_close(c);
    c = open_chat("{% for m in messages %}[{{ m.role[0] }} {{ m.content }}]{% endfor %}");
    assert_renders(c, late, "[s S][s T][u U][s V][a A][s W][u X][a B][s Y]");
    chat_close(c);
    /* One that keeps it for the next user's message would lose the last. */
    c = open_chat(
        "{% set ns = namespace(s='') %}{% for m in messages %}{% if m.role == 'system' %}"
        "{% set ns.s = m.content %}{% else %}[{{ ns.s + m.content }}]{% set ns.s = '' %}"
        "{% endif %}{% endfor %}");
    assert_renders(
        c,
        "[{\"role\": \"user\", \"content\": \"U\"}, {\"role\": \"system\", \"content\": \"V\"}]",
        "[U\n\nV]");
    chat_close(c);
}

/* What was refused before is text as well. */
static void refusals_are_text(void **state) {
    (void)state;
    struct chat *c = open_chat("{% for m in messages %}[{{ m.content }}]{% endfor %}");
    assert_renders(c,
                   "[{\"role\": \"user\", \"content\": \"Do.\"}, {\"role\": \"assistant\", "
                   "\"content\": [{\"type\": \"refusal\", \"refusal\": \"No, \"}, {\"type\": "
                   "\"text\", \"text\": \"thanks.\"}]}]",
                   "[Do.][No, thanks.]");
    chat_close(c);
}

static void strings_become_parts_where_only_parts_work(void **state) {
    (void)state;
    struct chat *c = open_chat("{% for m in messages %}{% for p in m.content %}"
                               "{{ p.text if p is mapping }}{% endfor %}{% endfor %}");
    assert_renders(c, "[{\"role\": \"user\", \"content\": \"Hi\"}]", "Hi");
    assert_renders(
        c, "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"Ho\"}]}]",
        "Ho");
    chat_close(c);
}

static void assert_refused(const struct chat *c, const char *messages, const char *sentence) {
    json_error_t e;
    json_t *j = json_loads(messages, JSON_DECODE_ANY, &e);
    const struct chat_request request = {.messages = j};
    char *text;
    size_t len;
    struct err err = {.text = ""};
    enum status st = chat_render(c, &request, &text, &len, &err);
    assert_int_not_equal(st, ST_OK);
    if (strstr(err.text, sentence) == NULL)
        print_message("%s\n", err.text);
    assert_non_null(strstr(err.text, sentence));
    json_decref(j);
}

static void wrong_messages_are_refused(void **state) {
    (void)state;
    struct chat *c = open_chat("{% for m in messages %}{{ m.content }}{% endfor %}");
    assert_refused(c, "{}", "messages must be a list");
    assert_refused(c, "[]", "at least one message");
    assert_refused(c, "[5]", "messages[0] must be an object with a role");
    assert_refused(c, "[{\"role\": \"user\", \"content\": \"a\"}, {\"content\": \"b\"}]",
                   "messages[1] must be");
    assert_refused(c, "[{\"role\": \"user\", \"content\": 5}]", "messages[0].content must be");
    assert_refused(c, "[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]",
                   "images are not supported by this model");
    chat_close(c);
    /* A template that takes parts takes no others either: what stands for an image would stand
     * there alone. */
    c = open_chat("{% for m in messages %}{% for p in m.content %}"
                  "{{ p.text if p is mapping }}{% endfor %}{% endfor %}");
    assert_refused(c,
                   "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, "
                   "{\"type\": \"image_url\"}]}]",
                   "images are not supported by this model");
    chat_close(c);
}

/* ---- what comes back from clients -------------------------------------------------------- */

#define ASK "{\"role\": \"user\", \"content\": \"q\"}"
#define CALL(id, arguments)                                                            \
    "{\"id\": \"" id "\", \"type\": \"function\", \"function\": {\"name\": \"look\", " \
    "\"arguments\": " arguments "}}"
#define CALLS(fields, calls) \
    "{\"role\": \"assistant\", " fields ", \"tool_calls\": [" calls "]}"
#define RESULT(id, content) \
    "{\"role\": \"tool\", \"tool_call_id\": \"" id "\", \"content\": " content "}"

/* With a tool, where templates write calls only then. The text, or the refusal. */
static char *render_text(const struct chat *c, const char *messages) {
    json_error_t e;
    json_t *j = json_loads(messages, 0, &e);
    json_t *tools =
        json_loads("[{\"type\": \"function\", \"function\": {\"name\": \"look\", "
                   "\"description\": \"looks\", \"parameters\": {\"type\": \"object\", "
                   "\"properties\": {}}}}]",
                   0, &e);
    assert_non_null(j);
    char *text = render(c, j, tools, NULL);
    json_decref(j);
    json_decref(tools);
    return text;
}

static void assert_same(const char *name, const char *messages, const char *as) {
    struct chat *c = open_golden(name);
    char *text = render_text(c, messages), *expected = render_text(c, as);
    if (strcmp(text, expected) != 0)
        print_message("%s\n", name);
    assert_string_equal(text, expected);
    mem_free(text);
    mem_free(expected);
    chat_close(c);
}

/* Each of the pieces, in this order. */
static void assert_holds(const char *name, const char *messages, const char *const *pieces) {
    struct chat *c = open_golden(name);
    char *text = render_text(c, messages);
    assert_in_order(name, text, pieces);
    mem_free(text);
    chat_close(c);
}

/* As openai-python dumps a message. */
static void null_is_absent(void **state) {
    (void)state;
    static const char *const names[] = {"meta-llama-Llama-3.1-8B-Instruct",
                                        "openai-gpt-oss-120b",
                                        "mistralai-Mistral-Nemo-Instruct-2407",
                                        "Qwen-Qwen3-0.6B",
                                        "GLM-4.6",
                                        "LFM2.5-8B-A1B",
                                        "deepseek-ai-DeepSeek-V3.1"};
    static const char plain[] =
        "[" ASK ", {\"role\": \"assistant\", \"content\": \"a\"}, " ASK "]";
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        assert_same(
            names[i],
            "[" ASK ", {\"role\": \"assistant\", \"content\": \"a\", \"refusal\": null, "
            "\"annotations\": null, \"audio\": null, \"function_call\": null, \"name\": "
            "null, \"tool_calls\": null, \"reasoning_content\": null, \"reasoning\": "
            "null, \"thinking\": null}, " ASK "]",
            plain);
        assert_same(names[i],
                    "[" ASK ", {\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": "
                    "[]}, " ASK "]",
                    plain);
    }
}

static void ids_become_what_the_template_takes(void **state) {
    (void)state;
    static const char *const names[] = {"mistralai-Mistral-Nemo-Instruct-2407",
                                        "Mistral-Small-3.2-24B-Instruct-2506"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct chat *c = open_golden(names[i]);
        char *text = render_text(
            c, "[" ASK ", " CALLS(
                   "\"content\": null",
                   CALL("call_83150123456789", "\"{}\"") ", " CALL(
                       "toolu_1", "\"{}\"")) ", " RESULT("call_83150123456789",
                                                         "\"A\"") ", " RESULT("toolu_1",
                                                                              "\"B\"") "]");
        /* FNV-1a of the ids, in digits of base 62, the least first (computed with Python). */
        static const char *const ids[] = {"gNr5XIwIU", "m0aUJ3nAi"};
        for (size_t k = 0; k < ARRAY_LEN(ids); k++) {
            const char *call = strstr(text, ids[k]);
            assert_non_null(call);
            assert_non_null(strstr(call + 9, ids[k]));
        }
        mem_free(text);
        chat_close(c);
        /* One that fits stays; a result without id is its call's, by its place or by its name. */
        static const char *const fits[] = {"aB3456789", "aB3456789", NULL};
        assert_holds(names[i],
                     "[" ASK ", " CALLS(
                         "\"content\": \"\"",
                         CALL("aB3456789", "{}")) ", "
                                                  "{\"role\": \"tool\", \"content\": \"A\"}]",
                     fits);
        static const char *const named[] = {"call00001", "call00002", "call00002", "call00001",
                                            NULL};
        assert_holds(
            names[i],
            "[" ASK ", " CALLS(
                "\"content\": \"\"",
                CALL(
                    "call00001",
                    "{}") ", {\"id\": \"call00002\", "
                          "\"type\": \"function\", \"function\": {\"name\": "
                          "\"hear\", \"arguments\": {}}}") ", "
                                                           "{\"role\": \"tool\", \"tool_name\": \"hear\", \"content\": \"A\"}, "
                                                           "{\"role\": \"tool\", \"tool_name\": \"look\", \"content\": \"B\"}]",
            named);
    }
    struct chat *c = open_chat("{% for m in messages %}{{ m.content }}"
                               "{% for t in m.tool_calls or [] %}"
                               "<{{ t.id }} {{ t.function.arguments|tojson }}>{% endfor %}"
                               "<{{ m.tool_call_id or '' }}>{% endfor %}");
    assert_renders(c,
                   "[" ASK ", " CALLS("\"content\": \"\"",
                                      CALL("call_1", "{}")) ", " RESULT("call_1", "\"A\"") "]",
                   "q<><call_1 {}><>A<call_1>");
    chat_close(c);
}

/* Whatever the client calls it, whatever the template reads. */
static void reasoning_is_found_under_any_name(void **state) {
    (void)state;
    static const char *const names[] = {"openai-gpt-oss-120b", "Qwen-Qwen3-0.6B", "GLM-4.6",
                                        "LFM2.5-8B-A1B", "upstage-Solar-Open-100B"};
    static const char *const keys[] = {"reasoning_content", "reasoning", "thinking"};
    static const char *const pieces[] = {"I muse.", "look", NULL};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
            char messages[1024];
            snprintf(messages, sizeof messages,
                     "[" ASK
                     ", " CALLS("\"content\": \"\", \"%s\": \"I muse.\"",
                                CALL("call00001", "{}")) ", " RESULT("call00001", "\"A\"") "]",
                     keys[k]);
            assert_holds(names[i], messages, pieces);
        }
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_holds(names[i],
                     "[" ASK
                     ", " CALLS("\"content\": \"\", \"reasoning_content\": \"\", "
                                "\"reasoning\": \"I muse.\", \"thinking\": \"\"",
                                CALL("call00001", "{}")) ", " RESULT("call00001", "\"A\"") "]",
                     pieces);
}

static void a_preamble_and_reasoning_come_before_a_call(void **state) {
    (void)state;
    static const char *const names[] = {"openai-gpt-oss-120b", "Qwen-Qwen3-0.6B"};
    static const char *const pieces[] = {"I muse.", "I shall look.", "look", NULL};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_holds(names[i],
                     "[" ASK
                     ", " CALLS("\"content\": \"I shall look.\", \"thinking\": "
                                "\"I muse.\"",
                                CALL("call00001", "{}")) ", " RESULT("call00001", "\"A\"") "]",
                     pieces);
}

/* A tool needs neither a description nor parameters, whatever its template looks for; where
 * that looks for nothing, the tool stays as it is. */
static void tools_may_be_bare(void **state) {
    (void)state;
    static const char *const names[] = {"openai-gpt-oss-120b",
                                        "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
                                        "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
                                        "ByteDance-Seed-OSS",
                                        "Apertus-8B-Instruct",
                                        "Qwen-Qwen3-0.6B"};
    static const char *const functions[] = {
        "", ", \"description\": null, \"parameters\": null", ", \"description\": \"d\"",
        ", \"parameters\": {\"type\": \"object\"}",
        ", \"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"enum\": [1]}}}"};
    json_t *messages = json_loads("[" ASK "]", 0, NULL);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct chat *c = open_golden(names[i]);
        for (size_t k = 0; k < ARRAY_LEN(functions); k++) {
            char function[256];
            snprintf(function, sizeof function, "{\"name\": \"look\"%s}", functions[k]);
            json_t *tools = json_pack("[{s:s, s:o}]", "type", "function", "function",
                                      json_loads(function, 0, NULL));
            char *text = render(c, messages, tools, NULL);
            assert_non_null(strstr(text, "look"));
            assert_null(strstr(text, "template line"));
            if (i + 1 == ARRAY_LEN(names))
                assert_non_null(strstr(text, function));
            mem_free(text);
            json_decref(tools);
        }
        chat_close(c);
    }
    json_decref(messages);
}

static void several_calls_are_split_where_one_is_taken(void **state) {
    (void)state;
    static const char *const names[] = {"meta-llama-Llama-3.1-8B-Instruct",
                                        "openai-gpt-oss-120b", "GigaChat3.1-10B-A1.8B"};
    /* Results in another order, and what follows them. */
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_same(
            names[i],
            "[" ASK ", " CALLS(
                "\"content\": \"c\"",
                CALL("call1", "{\"a\": 1}") ", " CALL("call2", "{\"a\": 2}") ", " CALL(
                    "call3",
                    "{\"a\": 3}")) ", " RESULT("call2",
                                               "\"R2\"") ", " RESULT("call1",
                                                                     "\"R1\"") ", " RESULT("call3",
                                                                                           "\"R3\"") ", " ASK
                                                                                                     "]",
            "[" ASK
            ", " CALLS("\"content\": \"c\"", CALL("call1", "{\"a\": 1}")) ", " RESULT("call1", "\"R1\"") ", " CALLS(
                "\"content\": \"\"",
                CALL(
                    "call2",
                    "{\"a\": 2}")) ", " RESULT("call2",
                                               "\"R2\"") ", " CALLS("\"content\": \"\"",
                                                                    CALL(
                                                                        "call3",
                                                                        "{\"a\": 3}")) ", " RESULT("call3",
                                                                                                   "\"R3\"") ", " ASK
                                                                                                             "]");
    static const char *const pieces[] = {"\"a\": 1", "\"a\": 2", "R1", "R2", NULL};
    assert_holds(
        "Qwen-Qwen3-0.6B",
        "[" ASK
        ", " CALLS("\"content\": \"\"",
                   CALL("call1", "{\"a\": 1}") ", " CALL(
                       "call2", "{\"a\": 2}")) ", " RESULT("call1",
                                                           "\"R1\"") ", " RESULT("call2",
                                                                                 "\"R2\"") "]",
        pieces);
}

static void arguments_may_be_none_or_cut_off(void **state) {
    (void)state;
    static const char *const names[] = {"Qwen3-Coder", "MiniMax-M2", "GLM-4.6",
                                        "Qwen-Qwen3-0.6B", "openai-gpt-oss-120b"};
#define WITH(arguments)                     \
    "[" ASK ", " CALLS("\"content\": \"\"", \
                       CALL("call00001", arguments)) ", " RESULT("call00001", "\"A\"") "]"
    static const char *const cut[] = {"look", "Par", NULL};
    static const char *const list[] = {"look", "5", NULL};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        assert_same(names[i], WITH("\"\""), WITH("{}"));
        assert_same(names[i], WITH("\" \""), WITH("{}"));
        assert_same(names[i], WITH("null"), WITH("{}"));
        assert_holds(names[i], WITH("\"{\\\"city\\\": \\\"Par\""), cut);
        assert_holds(names[i], WITH("\"[5]\""), list);
        /* JSON, though with an integer that jansson does not read. */
        assert_same(names[i], WITH("\"{\\\"n\\\": 99999999999999999999, \\\"i\\\": 5}\""),
                    WITH("{\"n\": 1e20, \"i\": 5}"));
    }
    assert_same("Qwen3-Coder", WITH("\"Par\""), WITH("{\"arguments\": \"Par\"}"));
    assert_same("meetkai-functionary-medium-v3.2", WITH("\"\""), WITH("\"{}\""));
}

static void results_are_text_whatever_they_were(void **state) {
    (void)state;
    struct chat *c = open_chat("{% for m in messages %}[{{ m.content + '' }}]{% endfor %}");
    assert_renders(c, "[" ASK ", " RESULT("a", "null") "]", "[q][]");
    assert_renders(c, "[" ASK ", {\"role\": \"tool\"}]", "[q][]");
    assert_renders(c,
                   "[" ASK
                   ", " RESULT("a", "[{\"type\": \"text\", \"text\": \"seen: \"}, "
                                    "{\"type\": \"image_url\", \"image_url\": {}}]") "]",
                   "[q][seen: [image left out: this model reads text only]]");
    assert_renders(
        c,
        "[" ASK ", " RESULT("a", "[{\"type\": \"document\"}, {\"type\": "
                                 "\"tool_reference\", \"tool_name\": \"look\"}, 5]") "]",
        "[q][[document left out: this model reads text only][the tool look][part left "
        "out: this model reads text only]]");
    assert_refused(c, "[" ASK ", " RESULT("a", "5") "]", "messages[1].content must be");
    chat_close(c);
}

/* ---- turns ------------------------------------------------------------------------------- */

#define USER(text) "{\"role\": \"user\", \"content\": \"" text "\"}"
#define ASSISTANT(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define LOOK CALLS("\"content\": null", CALL("call00001", "\"{}\""))
#define SEEN RESULT("call00001", "\"seen\"")

static const char *const alternating[] = {
    "mistralai-Mistral-Nemo-Instruct-2407", "Mistral-Small-3.2-24B-Instruct-2506",
    "mistralai-Ministral-3-14B-Reasoning-2512", "google-gemma-2-2b-it"};

static void repeats_become_one_where_roles_must_alternate(void **state) {
    (void)state;
    static const struct {
        const char *messages, *as;
    } cases[] = {
        {USER("a") ", " USER("b") ", " USER("c"), USER("a\\n\\nb\\n\\nc")},
        {USER("a") ", " ASSISTANT("b") ", " ASSISTANT("c") ", " USER("d"),
         USER("a") ", " ASSISTANT("b\\n\\nc") ", " USER("d")},
        {"{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
         "\"text\", \"text\": \"b\"}]}, " USER("") ", " USER("c"),
         USER("ab\\n\\nc")},
        {USER("a") ", {\"role\": \"assistant\"}, " ASSISTANT("b") ", " USER("c"),
         USER("a") ", " ASSISTANT("b") ", " USER("c")},
        {ASSISTANT("a") ", " USER("b"), USER(" ") ", " ASSISTANT("a") ", " USER("b")},
        {"{\"role\": \"system\", \"content\": \"s\"}, " ASSISTANT("a") ", " USER("b"),
         "{\"role\": \"system\", \"content\": \"s\"}, " USER(" ") ", " ASSISTANT("a") ", " USER(
             "b")},
        {USER("a") ", " ASSISTANT("b") ", {\"role\": \"system\", \"content\": \"s\"}, " USER(
             "c"),
         USER("a") ", " ASSISTANT("b") ", " USER("s\\n\\nc")},
    };
    for (size_t i = 0; i < ARRAY_LEN(alternating); i++)
        for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
            char messages[1024], as[1024];
            snprintf(messages, sizeof messages, "[%s]", cases[k].messages);
            snprintf(as, sizeof as, "[%s]", cases[k].as);
            assert_same(alternating[i], messages, as);
            assert_holds(alternating[i], messages,
                         (const char *const[]){"a", "b", NULL}); /* no refusal */
        }
    struct chat *c = open_golden("google-gemma-2-2b-it");
    assert_renders(c, "[" USER("a") ", " USER("b") "]",
                   "<s><start_of_turn>user\na\n\nb<end_of_turn>\n<start_of_turn>model\n");
    assert_refused(c,
                   "[" USER("a") ", {\"role\": \"user\", \"content\": [{\"type\": "
                                 "\"image_url\"}]}]",
                   "messages[1].content: images are not supported by this model");
    chat_close(c);
}

/* The user's words stay the user's, and the system's message is there: Nemo writes that with
 * the last one only. */
static void the_user_may_speak_after_a_result(void **state) {
    (void)state;
    for (size_t i = 0; i + 1 < ARRAY_LEN(alternating); i++) {
        static const char *const pieces[] = {
            "[INST]a[/INST]", "look", "seen", "[/TOOL_RESULTS] </s>", "[INST]b\n\nc[/INST]",
            "look",           "seen", "</s>", "[INST]d[/INST]",       NULL};
        assert_holds(alternating[i],
                     "[" USER("a") ", " LOOK ", " SEEN
                                   ", " USER("b") ", " USER("c") ", " LOOK ", " SEEN
                                                                 ", " USER("d") "]",
                     pieces);
        static const char *const told[] = {"seen", "[/TOOL_RESULTS][INST] [/INST]so</s>", NULL};
        assert_holds(alternating[i],
                     "[" USER("a") ", " ASSISTANT("b") ", " LOOK ", " SEEN
                                                       ", " ASSISTANT("so") ", " USER("c") "]",
                     told);
    }
    struct chat *c = open_golden(alternating[0]);
    assert_renders(c,
                   "[{\"role\": \"system\", \"content\": \"s\"}, " USER("a") ", " LOOK ", " SEEN
                                                                             ", " USER("b") "]",
                   "<s>[INST]a[/INST][TOOL_CALLS][{\"name\": \"look\", \"arguments\": {}, "
                   "\"id\": \"call00001\"}]</s>[TOOL_RESULTS]{\"content\": seen, \"call_id\": "
                   "\"call00001\"}[/TOOL_RESULTS] </s>[INST]s\n\nb[/INST]");
    chat_close(c);
}

/* What a template takes stays as it is. */
static void turns_stay_where_the_template_takes_them(void **state) {
    (void)state;
    static const char turns[] = "[" ASSISTANT("a") ", " USER("b") ", " USER(
        "c") ", " LOOK ", " SEEN ", " USER("d") ", " ASSISTANT("e") ", " ASSISTANT("f") "]";
    struct chat *c = open_chat("{% for m in messages %}[{{ m.content or '' }}]{% endfor %}");
    assert_renders(c, turns, "[a][b][c][][seen][d][e][f]");
    chat_close(c);
    /* This one looks at neighbours only: calls and results are some, and an answer may begin. */
    c = open_chat(
        "{% for m in messages %}{% if not loop.first and loop.previtem.role == m.role %}"
        "{{ raise_exception('twice') }}{% endif %}[{{ m.content or '' }}]{% endfor %}");
    assert_renders(c, turns, "[a][b\n\nc][][seen][d][e\n\nf]");
    chat_close(c);
}

static void syntax_errors_are_told_at_opening(void **state) {
    (void)state;
    struct tokenizer *t = vocabulary(NULL, 0);
    struct chat *c = NULL;
    struct err err = {.text = ""};
    assert_int_equal(chat_open(&c, t, "\n{% if %}", 9, &err), ST_BAD_INPUT);
    assert_non_null(strstr(err.text, "template line 2"));
    assert_null(c);
    tokenizer_close(t);
}

/* A template without end costs one render's limit, not one for each thing to be found out. */
static void a_hostile_template_opens_soon(void **state) {
    (void)state;
    struct timespec begin, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    struct chat *c = open_chat("{% for a in range(100000) %}{% for b in range(100000) %}"
                               "{% set x = a == b %}{% endfor %}{% endfor %}");
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    assert_true(end.tv_sec - begin.tv_sec < 10);
    assert_refused(c, "[{\"role\": \"user\", \"content\": \"a\"}]", "too");
    chat_close(c);
}

/* ---- built-in templates ------------------------------------------------------------------ */

#define SYSTEM_AND_TURNS                                                                       \
    "[{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"U1\"}, " \
    "{\"role\": \"assistant\", \"content\": \"A1\"}, {\"role\": \"user\", \"content\": "       \
    "\"U2\"}]"

/* The prompts as the models' cards and llama.cpp's own built-in formats have them. */
static void built_in_templates_by_special_tokens(void **state) {
    (void)state;
    static const struct {
        const char *special, *name, *expected;
    } cases[] = {
        {"<|im_start|>", "chatml",
         "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU1<|im_end|>\n"
         "<|im_start|>assistant\nA1<|im_end|>\n<|im_start|>user\nU2<|im_end|>\n"
         "<|im_start|>assistant\n"},
        {"<none>", "chatml",
         "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU1<|im_end|>\n"
         "<|im_start|>assistant\nA1<|im_end|>\n<|im_start|>user\nU2<|im_end|>\n"
         "<|im_start|>assistant\n"},
        {"<|start_header_id|>", "llama3",
         "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
         "<|start_header_id|>user<|end_header_id|>\n\nU1<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\nA1<|eot_id|>"
         "<|start_header_id|>user<|end_header_id|>\n\nU2<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\n"},
        {"<start_of_turn>", "gemma",
         "<s><start_of_turn>user\nS\n\nU1<end_of_turn>\n<start_of_turn>model\nA1<end_of_turn>\n"
         "<start_of_turn>user\nU2<end_of_turn>\n<start_of_turn>model\n"},
        {"<｜User｜>", "deepseek",
         "<s>S<｜User｜>U1<｜Assistant｜>A1<｜end▁of▁sentence｜><｜User｜>U2<｜Assistant｜>"},
        {"[INST]", "mistral", "<s>[INST] S\n\nU1[/INST] A1</s>[INST] U2[/INST]"},
        {"<|assistant|>", "phi3",
         "<|system|>\nS<|end|>\n<|user|>\nU1<|end|>\n<|assistant|>\nA1<|end|>\n"
         "<|user|>\nU2<|end|>\n<|assistant|>\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tokenizer *t = vocabulary(&cases[i].special, 1);
        struct chat *c;
        struct err err;
        assert_int_equal(chat_open(&c, t, NULL, 0, &err), ST_OK);
        tokenizer_close(t);
        assert_string_equal(chat_source_name(c), cases[i].name);
        assert_renders(c, SYSTEM_AND_TURNS, cases[i].expected);
        chat_close(c);
    }
}

/* Each names a built-in template to a vocabulary that has it. */
static const char *const specials[] = {"<|im_start|>",    "<|start_header_id|>",
                                       "<start_of_turn>", "<｜User｜>",
                                       "[INST]",          "<|assistant|>"};

static struct chat *open_built_in(const char *special) {
    struct tokenizer *t = vocabulary(&special, 1);
    struct chat *c;
    struct err err;
    assert_int_equal(chat_open(&c, t, NULL, 0, &err), ST_OK);
    tokenizer_close(t);
    return c;
}

static void every_built_in_template_takes_a_tool_conversation(void **state) {
    (void)state;
    json_t *all = load("chat-templates/conversations.json");
    const json_t *conversation = json_object_get(all, "tool-call-content-null");
    for (size_t i = 0; i < ARRAY_LEN(specials); i++) {
        struct chat *c = open_built_in(specials[i]);
        char *text = render(c, json_object_get(conversation, "messages"),
                            json_object_get(conversation, "tools"), NULL);
        assert_non_null(strstr(text, "sunny"));
        mem_free(text);
        chat_close(c);
    }
    json_decref(all);
}

/* The prompt of everything before it, then the beginning, and nothing behind it. */
static void an_answer_goes_on(void **state) {
    (void)state;
    json_t *before = json_pack("[{s:s, s:s}]", "role", "user", "content", "U"), *after;
    for (size_t i = 0; i < ARRAY_LEN(specials); i++) {
        struct chat *c = open_built_in(specials[i]);
        char *prompt = render(c, before, NULL, NULL), *text = NULL;
        struct err err;
        size_t len;
        after = json_pack("[O, {s:s, s:s}]", json_array_get(before, 0), "role", "assistant",
                          "content", "It is |im_end");
        const struct chat_request r = {
            .messages = after, .add_generation_prompt = true, .continue_last = true};
        assert_int_equal(chat_render(c, &r, &text, &len, &err), ST_OK);
        assert_int_equal(len, strlen(text));
        assert_memory_equal(text, prompt, strlen(prompt));
        const char *rest = text + strlen(prompt);
        assert_string_equal(rest + (*rest == ' '), "It is |im_end"); /* [/INST] A1 */
        mem_free(prompt);
        mem_free(text);
        json_decref(after);
        chat_close(c);
    }
    json_decref(before);
}

static void a_template_that_hides_the_answer_says_so(void **state) {
    (void)state;
    struct chat *c = open_chat("{% for m in messages %}{{ m.role }}{% endfor %}");
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "assistant", "content", "A");
    const struct chat_request r = {.messages = messages, .continue_last = true};
    char *text;
    size_t len;
    struct err err;
    assert_int_equal(chat_render(c, &r, &text, &len, &err), ST_UNSUPPORTED);
    assert_non_null(strstr(err.text, "go on"));
    json_decref(messages);
    chat_close(c);
}

static void the_style_is_known(void **state) {
    (void)state;
    struct chat *c = open_golden("Qwen-Qwen3-0.6B");
    assert_int_equal(chat_style(c).format, CHAT_HERMES);
    assert_string_equal(chat_style(c).think_begin, "<think>");
    chat_close(c);
    c = open_golden("google-gemma-2-2b-it");
    assert_int_equal(chat_style(c).format, CHAT_PLAIN);
    assert_string_equal(chat_style(c).think_begin, "");
    chat_close(c);
}

int main(void) {
    golden_or_skip("chat-templates/conversations.json");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_adapted_to_the_template),
        cmocka_unit_test(arguments_become_text_where_the_template_adds_strings),
        cmocka_unit_test(null_becomes_empty_where_the_template_fails),
        cmocka_unit_test(a_refused_system_message_joins_the_user),
        cmocka_unit_test(a_refused_late_system_message_joins_its_neighbours),
        cmocka_unit_test(refusals_are_text),
        cmocka_unit_test(strings_become_parts_where_only_parts_work),
        cmocka_unit_test(wrong_messages_are_refused),
        cmocka_unit_test(null_is_absent),
        cmocka_unit_test(ids_become_what_the_template_takes),
        cmocka_unit_test(reasoning_is_found_under_any_name),
        cmocka_unit_test(a_preamble_and_reasoning_come_before_a_call),
        cmocka_unit_test(tools_may_be_bare),
        cmocka_unit_test(several_calls_are_split_where_one_is_taken),
        cmocka_unit_test(arguments_may_be_none_or_cut_off),
        cmocka_unit_test(results_are_text_whatever_they_were),
        cmocka_unit_test(repeats_become_one_where_roles_must_alternate),
        cmocka_unit_test(the_user_may_speak_after_a_result),
        cmocka_unit_test(turns_stay_where_the_template_takes_them),
        cmocka_unit_test(syntax_errors_are_told_at_opening),
        cmocka_unit_test(a_hostile_template_opens_soon),
        cmocka_unit_test(built_in_templates_by_special_tokens),
        cmocka_unit_test(every_built_in_template_takes_a_tool_conversation),
        cmocka_unit_test(an_answer_goes_on),
        cmocka_unit_test(a_template_that_hides_the_answer_says_so),
        cmocka_unit_test(the_style_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
