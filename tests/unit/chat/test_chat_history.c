/* What a conversation's calls and thoughts become in the templates of golden/chat-templates: in the
 * model's own format, where the template shows them and where it hides them. What is expected is
 * what these models write (test_chat_formats.c), in the templates' own frames. */
#include "chat/chat.h"

#include "chat_record.h"
#include "chat_vocabulary.h"

#include <unistd.h>

/* A token of the vocabulary, where the template says nothing of calls; "<x>" is none of them. */
static struct chat *open_with(const char *name, const char *special) {
    struct template *compiled;
    char *source = read_template(name, &compiled);
    struct tokenizer *t = vocabulary(&special, 1);
    struct chat *c;
    struct err err = {.text = ""};
    assert_int_equal(chat_open(&c, t, source, strlen(source), &err), ST_OK);
    template_close(compiled);
    tokenizer_close(t);
    free(source);
    return c;
}

static const char calling[] =
    "[{\"role\": \"user\", \"content\": \"Sum\"},"
    " {\"role\": \"assistant\", \"content\": \"I add.\", \"reasoning_content\": \"Hm.\","
    "  \"tool_calls\": [{\"id\": \"call00001\", \"type\": \"function\", \"function\": "
    "  {\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 1, \\\"code\\\": \\\"it's\\\"}\"}},"
    "  {\"id\": \"call00002\", \"type\": \"function\", \"function\": {\"name\": \"sub\", "
    "   \"arguments\": \"\"}}]},"
    " {\"role\": \"tool\", \"tool_call_id\": \"call00001\", \"content\": \"three\"},"
    " {\"role\": \"tool\", \"tool_call_id\": \"call00002\", \"content\": \"four\"}]";

static const char tools_of_it[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"add\", \"description\": \"adds\", "
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, "
    "\"code\": {\"type\": \"string\"}}}}}, {\"type\": \"function\", \"function\": {\"name\": "
    "\"sub\"}}]";

static void assert_holds(const char *name, const char *special, const char *const *pieces) {
    struct chat *c = open_with(name, special);
    json_error_t e;
    json_t *messages = json_loads(calling, 0, &e), *tools = json_loads(tools_of_it, 0, &e);
    json_t *extra = json_pack("{s:b, s:b}", "enable_thinking", 1, "thinking", 1);
    assert_non_null(messages);
    assert_non_null(tools);
    const struct chat_request request = {.messages = messages,
                                         .tools = tools,
                                         .extra = extra,
                                         .add_generation_prompt = true,
                                         .now = &golden_clock};
    char *text = NULL;
    size_t len;
    struct err err = {.text = ""};
    if (chat_render(c, &request, &text, &len, &err) != ST_OK)
        text = mem_strdup(err.text);
    assert_in_order(name, text, pieces);
    mem_free(text);
    json_decref(messages);
    json_decref(tools);
    json_decref(extra);
    chat_close(c);
}

#define Q "<|\"|>"
#define MAX_PIECES 8

static void calls_and_thoughts_are_in_the_models_format(void **state) {
    (void)state;
    static const struct {
        const char *name, *special, *pieces[MAX_PIECES];
    } cases[] = {
        {"google-gemma-4-31B-it",
         "<x>",
         {"<|channel>thought\nHm.\n<channel|><|tool_call>call:add{a:1,code:" Q "it's" Q
          "}<tool_call|><|tool_call>call:sub{}<tool_call|>",
          "three", "four", "I add."}},
        {"deepseek-ai-DeepSeek-V3.2",
         "<x>",
         {"<think>Hm.</think>I add.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"add\">\n"
          "<｜DSML｜parameter name=\"a\" string=\"false\">1</｜DSML｜parameter>",
          "string=\"true\">it's<", "invoke name=\"sub\"", "<result>three", "<result>four"}},
        {"deepseek-ai-DeepSeek-V4",
         "<x>",
         {"<think>Hm.</think>I add.\n\n<｜DSML｜tool_calls>\n",
          "name=\"a\" string=\"false\">1<", "<tool_result>three"}},
        {"ByteDance-Seed-OSS",
         "<x>",
         {"<seed:think>Hm.</seed:think>", "I add.",
          "<seed:tool_call>\n<function=add>\n<parameter=a>1</parameter>\n", "<function=sub>",
          "three"}},
        {"MiniMax-M3",
         "<x>",
         {"I add.",
          "<tool_call>\n]<]minimax[>[<invoke name=\"add\">]<]minimax[>[<a>1]<]minimax[>[</a>",
          "<invoke name=\"sub\">", "three"}},
        {"NVIDIA-Nemotron-Nano-v2",
         "<x>",
         {"I add.",
          "<TOOLCALL>[{\"name\": \"add\", \"arguments\": {\"a\": 1, \"code\": \"it's\"}}, "
          "{\"name\": \"sub\", \"arguments\": {}}]</TOOLCALL>",
          "three"}},
        /* hidden by the template */
        {"ibm-granite-granite-3.3-2B-Instruct",
         "<x>",
         {"I add.<|tool_call|>[{\"name\": \"add\", \"arguments\": {\"a\": 1, \"code\": "
          "\"it's\"}}, {\"name\": \"sub\", \"arguments\": {}}]<|end_of_text|>",
          "three", "four"}},
        {"LFM2-8B-A1B",
         "<x>",
         {"I add.<|tool_call_start|>[add(a=1, code='it\\'s'), sub()]<|tool_call_end|><|im_end|>",
          "<|tool_response_start|>three"}},
        {"LFM2.5-Instruct",
         "<|tool_call_start|>",
         {"I add.<|tool_call_start|>[add(a=1, code='it\\'s'), sub()]<|tool_call_end|>",
          "three"}},
        {"LFM2.5-8B-A1B",
         "<x>",
         {"<think>Hm.</think>I add.<|tool_call_start|>[add(a=1, code='it's'), sub()]",
          "three"}},
        {"CohereForAI-c4ai-command-r7b-12-2024-tool_use",
         "<x>",
         {"<|START_THINKING|>Hm.\n\nI add.<|END_THINKING|><|START_ACTION|>[", "\"add\"",
          "\"sub\"", "three", "four"}},
        {"Cohere2MoE",
         "<x>",
         {"<|START_THINKING|>Hm.\n\nI add.<|END_THINKING|><|START_ACTION|>[", "\"add\"",
          "\"sub\"", "three", "four"}},
        {"CohereForAI-c4ai-command-r-plus-tool_use",
         "<x>",
         {"def add(a: Optional[int] = None", "I add.\nAction:\n```json\n[",
          "\"tool_name\": \"add\"", "\"tool_name\": \"sub\"", "<results>\nthree", "four"}},
        {"Apertus-8B-Instruct",
         "<x>",
         {"<|inner_prefix|>Hm.<|inner_suffix|>I add.<|tools_prefix|>[{\"add\": {\"a\": 1, \"code\": \"it's\"}}, {\"sub\": "
          "{}}]<|tools_suffix|>[three, four]"}},
        {"meetkai-functionary-medium-v3.1",
         "<x>",
         {"I add.<function=add>{", "}</function><function=sub>{}</function>", "three"}},
        {"meetkai-functionary-medium-v3.1-old",
         "<x>",
         {"I add.<function=add>{\"a\": 1, \"code\": \"it's\"}</function>", "three"}},
        {"meetkai-functionary-medium-v3.2",
         "<x>",
         {">>>all\nI add.>>>add\n{\"a\": 1, \"code\": \"it's\"}>>>sub\n{}", "three"}},
        {"fireworks-ai-llama-3-firefunction-v2",
         "<x>",
         {"\"name\": \"add\"", "Today is 2024-11-20.", "I add. functools[{\"name\": \"add\"",
          "three"}},
        {"fireworks-ai-llama-3-firefunction-v2-old",
         "<x>",
         {"I add. functools[{\"name\": \"add\", \"arguments\": {\"a\": 1, \"code\": \"it's\"}}, "
          "{\"name\": \"sub\", \"arguments\": {}}]",
          "three"}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_holds(cases[i].name, cases[i].special, cases[i].pieces);
}

/* Such a template is given an empty list, or text. */
static void no_tools_is_fine_for_templates_that_read_them(void **state) {
    (void)state;
    static const char *const names[] = {
        "CohereForAI-c4ai-command-r-plus-tool_use", "fireworks-ai-llama-3-firefunction-v2",
        "meetkai-functionary-medium-v3.1", "meetkai-functionary-medium-v3.2"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct chat *c = open_with(names[i], "<x>");
        json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "Hi there");
        const struct chat_request request = {.messages = messages,
                                             .add_generation_prompt = true};
        char *text;
        size_t len;
        struct err err = {.text = ""};
        enum status st = chat_render(c, &request, &text, &len, &err);
        if (st != ST_OK)
            print_message("%s: %s\n", names[i], err.text);
        assert_int_equal(st, ST_OK);
        assert_non_null(strstr(text, "Hi there"));
        mem_free(text);
        json_decref(messages);
        chat_close(c);
    }
}

int main(void) {
    golden_or_skip("chat-templates/conversations.json");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_and_thoughts_are_in_the_models_format),
        cmocka_unit_test(no_tools_is_fine_for_templates_that_read_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
