/* The output parser. What models write is taken from their own templates (golden/chat-templates):
 * an assistant's message with a tool call, rendered, is what the model would have written, and
 * parsing it must give the call back. Every text is also fed in two pieces, cut at every byte,
 * and byte by byte: the result must not change. */
#include "chat_record.h"

static void templates_own_calls_come_back(void **state) {
    (void)state;
    static const struct {
        const char *name;
        enum chat_format format;
        const char *id;
    } cases[] = {
        {"Qwen-Qwen2.5-7B-Instruct", CHAT_HERMES, ""},
        {"Qwen-Qwen3-0.6B", CHAT_HERMES, ""},
        {"Qwen-QwQ-32B", CHAT_HERMES, ""},
        {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", CHAT_HERMES, ""},
        {"ibm-granite-granite-4.0", CHAT_HERMES, ""},
        {"ibm-granite-granite-4.1", CHAT_HERMES, ""},
        {"MiMo-VL", CHAT_HERMES, ""},
        {"Bielik-11B-v3.0-Instruct", CHAT_HERMES, ""},
        {"Reka-Edge", CHAT_HERMES, ""},
        {"Qwen3-Coder", CHAT_QWEN_XML, ""},
        {"Qwen3.5-4B", CHAT_QWEN_XML, ""},
        {"StepFun3.5-Flash", CHAT_QWEN_XML, ""},
        {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", CHAT_QWEN_XML, ""},
        {"MiniMax-M2", CHAT_MINIMAX, ""},
        {"MiniMax-M3", CHAT_MINIMAX_M3, ""},
        {"MiniMax-M1", CHAT_TOOL_CALLS, ""},
        {"unsloth-Apriel-1.5", CHAT_TOOL_CALLS, ""},
        {"NVIDIA-Nemotron-Nano-v2", CHAT_NEMOTRON, ""},
        {"GigaChat3.1-10B-A1.8B", CHAT_GIGACHAT, ""},
        {"GLM-4.6", CHAT_GLM, ""},
        {"GLM-4.6-ik", CHAT_GLM, ""},
        {"GLM-4.7-Flash", CHAT_GLM, ""},
        {"GLM-5.2", CHAT_GLM, ""},
        {"inclusionai-ling-3.0-flash", CHAT_GLM, ""},
        {"poolside-Laguna-XS.2", CHAT_GLM, ""},
        {"meta-llama-Llama-3.1-8B-Instruct", CHAT_LLAMA3, ""},
        {"meta-llama-Llama-3.2-3B-Instruct", CHAT_LLAMA3, ""},
        {"mistralai-Mistral-Nemo-Instruct-2407", CHAT_MISTRAL, ""},
        {"unsloth-mistral-Devstral-Small-2507", CHAT_MISTRAL, ""},
        {"Mistral-Small-3.2-24B-Instruct-2506", CHAT_MISTRAL, "call00001"},
        {"mistralai-Ministral-3-14B-Reasoning-2512", CHAT_MISTRAL, ""},
        {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", CHAT_DEEPSEEK, ""},
        {"deepseek-ai-DeepSeek-V3.1", CHAT_DEEPSEEK, ""},
        {"Kimi-K2-Instruct", CHAT_KIMI, "functions.get_weather:0"},
        {"Kimi-K2-Thinking", CHAT_KIMI, "functions.get_weather:0"},
        {"moonshotai-Kimi-K2", CHAT_KIMI, "functions.get_weather:0"},
        {"Kimi-K3", CHAT_KIMI_K3, ""},
        {"openai-gpt-oss-120b", CHAT_HARMONY, ""},
        {"ByteDance-Seed-OSS", CHAT_SEED, ""},
        {"deepseek-ai-DeepSeek-V3.2", CHAT_DSML_V32, ""},
        {"deepseek-ai-DeepSeek-V4", CHAT_DSML, ""},
        {"deepseek-ai-DeepSeek-V4-ik", CHAT_DSML, ""},
        {"deepseek-ai-DeepSeek-V4-Flash-0731", CHAT_DSML, ""},
        {"google-gemma-4-31B-it", CHAT_GEMMA, ""},
        {"google-gemma-4-31B-it-interleaved", CHAT_GEMMA, ""},
        {"LFM2.5-8B-A1B", CHAT_LFM2, ""},
        {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", CHAT_COMMAND_A, ""},
        {"Cohere2MoE", CHAT_COMMAND_A, ""},
        {"Apertus-8B-Instruct", CHAT_APERTUS, ""},
        {"meetkai-functionary-medium-v3.1", CHAT_FUNCTIONARY, ""},
    };
    json_error_t e;
    json_t *all = json_load_file(golden_path("chat-templates/conversations.json"), 0, &e);
    const json_t *conversation = json_object_get(all, "tool-call-and-result");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_template(cases[i].name, cases[i].format, cases[i].id, conversation);
    json_decref(all);
}

/* ---- by hand ----------------------------------------------------------------------------- */

static const struct {
    struct chat_style style;
    const char *prompt, *text, *expected;
} by_hand[] = {
    /* Text without calls comes through, byte for byte. */
    {{CHAT_PLAIN, NO_THINK}, "", " a <tool_call> b\n\n", "C: a <tool_call> b\n\n"},
    {{CHAT_HERMES, NO_THINK}, "", "\n a < b <tool_cal\n", "C:\n a < b <tool_cal\n"},
    {{CHAT_HARMONY, NO_THINK}, "", "hello ", "C:hello "},
    {{CHAT_PLAIN, NO_THINK}, "", "", ""},

    /* Thinking, in the text or opened by the prompt. */
    {{CHAT_PLAIN, THINK}, "", "<think>\nhm\n\n</think>\n\nyes", "R:hmC:yes"},
    {{CHAT_PLAIN, THINK}, "<think>\n", "hm</think>yes", "R:hmC:yes"},
    {{CHAT_PLAIN, THINK}, "<think>\n", "<think>\nhm</think>yes", "R:hmC:yes"},
    {{CHAT_PLAIN, THINK}, "", "</think>\n\nyes", "C:yes"},
    {{CHAT_PLAIN, THINK}, "<think>", "never ends ", "R:never ends "},
    {{CHAT_PLAIN, THINK}, "<think>\n\n</think>\n\n", "yes", "C:yes"},
    {{CHAT_PLAIN, THINK},
     "",
     "The tag <think> is </think> one",
     "C:The tag <think> is </think> one"},
    {{CHAT_MISTRAL, "[THINK]", "[/THINK]", "", ""}, "", "[THINK]a[/THINK]b", "R:aC:b"},
    {{CHAT_KIMI, THINK},
     "<think>",
     "so <|tool_calls_section_begin|><|tool_call_begin|>functions.add:3"
     "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     "R:so[functions.add:3#add|{}]"},

    /* JSON calls. */
    {{CHAT_HERMES, NO_THINK},
     "",
     "Let me see.\n\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \"}\\\"{\"}}\n"
     "</tool_call>\n<tool_call>{\"name\":\"sub\",\"arguments\":{}}</tool_call>\n",
     "C:Let me see.[#add|{\"a\": \"}\\\"{\"}][#sub|{}]"},
    {{CHAT_HERMES, NO_THINK},
     "",
     "<tool_call>{\"arguments\": {\"a\": [1, {}]}, \"name\": \"add\"}</tool_call> done",
     "[#add|{\"a\": [1, {}]}]C:done"},
    {{CHAT_HERMES, NO_THINK},
     "",
     "<tool_call>{\"name\": \"n\\u00e4h\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
     "[#näh|{\"a\": 1}]"},
    {{CHAT_HERMES, NO_THINK}, "", "<tool_call>{\"name\": \"add\"}</tool_call>", "[#add|{}]"},
    /* What JSON wants escaped, as models write it. */
    {{CHAT_HERMES, NO_THINK},
     "",
     "<tool_call>{\"name\": \"add\", \"arguments\":\n\t{\"a\": \"x\n\ty\\n\x01\"}}</tool_call>"
     "<tool_call>{\"arguments\": {\"a\":\t\"\r\"}, \"name\": \"add\"}</tool_call>",
     "[#add|{\"a\": \"x\\n\\ty\\n\\u0001\"}][#add|{\"a\":\t\"\\r\"}]"},
    {{CHAT_HERMES, NO_THINK},
     "",
     "<tool_call>{\"name\": \"add\", \"arguments\": null, \"x\": 1.5}</tool_call>",
     "[#add|{}]"},
    {{CHAT_HERMES, NO_THINK},
     "",
     "Ok <tool_call>{\"name\": \"sub\"}</tool_call>\n<tool_call>{\"name\": \"sub\"}</tool_call>"
     "\nbye ",
     "C:Ok[#sub|{}][#sub|{}]C: bye "},
    {{CHAT_HERMES, THINK},
     "",
     "<think>hm\n</think>\n<tool_call>{\"name\": \"sub\"}</tool_call>\nbye",
     "R:hm[#sub|{}]C:bye"},
    /* What small models get wrong: braces, code fences, two calls in the same tags. */
    {{CHAT_HERMES, NO_THINK},
     "",
     "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}}\n</tool_call>\nso",
     "[#add|{\"a\": 1}]C:so"},
    {{CHAT_HERMES, NO_THINK},
     "",
     "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}\n</tool_call>",
     "[#add|{\"a\": 1}]"},
    {{CHAT_HERMES, NO_THINK},
     "",
     "<tool_call>\n```json\n{\"name\": \"sub\", \"arguments\": {}}\n```\n</tool_call>",
     "[#sub|{}]"},
    {{CHAT_HERMES, NO_THINK},
     "",
     "<tool_call>\n{\"name\": \"sub\", \"arguments\": {}}\n{\"name\": \"add\", \"arguments\": "
     "{\"a\": 1}}\n</tool_call>",
     "[#sub|{}][#add|{\"a\": 1}]"},
    {{CHAT_HERMES, NO_THINK},
     "",
     "<tool_call>\n{\"name\": \"sub\", \"arguments\": {}} } so",
     "[#sub|{}]C:} so"},
    {{CHAT_GLM, NO_THINK},
     "",
     "<tool_call>{\"name\": \"sub\", \"arguments\": {}}</tool_call>so",
     "[#sub|{}]C:so"},
    /* What is no call is content; the next one counts again. */
    {{CHAT_HERMES, NO_THINK},
     "",
     "<tool_call>oops <tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>",
     "C:<tool_call>oops[#add|{}]"},
    {{CHAT_HERMES, NO_THINK},
     "",
     "<tool_call>{\"nam\": 1}</tool_call>",
     "C:<tool_call>{\"nam\": 1}</tool_call>"},
    {{CHAT_HERMES, NO_THINK}, "", "<tool_call>{\"name\": \"ad", "C:<tool_call>{\"name\": \"ad"},
    {{CHAT_HERMES, NO_THINK}, "", "<tool_call> []", "C:<tool_call> []"},
    /* Cut off by the token limit. */
    {{CHAT_HERMES, NO_THINK},
     "",
     "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1",
     "[#add|{\"a\": 1]"},

    /* Llama 3: bare JSON, of a function that there is. */
    {{CHAT_LLAMA3, NO_THINK},
     "",
     "{\"name\": \"add\", \"parameters\": {\"a\": 1}}",
     "[#add|{\"a\": 1}]"},
    {{CHAT_LLAMA3, NO_THINK},
     "",
     "{\"type\": \"function\", \"name\": \"add\", \"parameters\": {\"a\": 1}}; "
     "{\"name\": \"sub\", \"parameters\": {}}",
     "[#add|{\"a\": 1}][#sub|{}]"},
    {{CHAT_LLAMA3, NO_THINK},
     "",
     "<|python_tag|>{\"name\": \"other\", \"parameters\": {}}",
     "[#other|{}]"},
    {{CHAT_LLAMA3, NO_THINK},
     "",
     " {\"name\": \"Bob\", \"parameters\": {}}",
     "C: {\"name\": \"Bob\", \"parameters\": {}}"},
    {{CHAT_LLAMA3, NO_THINK}, "", "{\"answer\": 5}\n", "C:{\"answer\": 5}\n"},
    {{CHAT_LLAMA3, NO_THINK}, "", "<|python_tag|>print(1)", "C:<|python_tag|>print(1)"},
    {{CHAT_LLAMA3, NO_THINK},
     "",
     "See {\"name\": \"add\", \"parameters\": {}}",
     "C:See {\"name\": \"add\", \"parameters\": {}}"},

    /* Mistral, old and new. */
    {{CHAT_MISTRAL, NO_THINK},
     "",
     "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 1}, \"id\": \"x\"}, "
     "{\"name\": \"sub\", \"arguments\": {}}]",
     "[#add|{\"a\": 1}][#sub|{}]"},
    {{CHAT_MISTRAL, NO_THINK},
     "",
     "ok[TOOL_CALLS]add{\"a\": 1}[TOOL_CALLS]sub[ARGS]{}",
     "C:ok[#add|{\"a\": 1}][#sub|{}]"},
    {{CHAT_MISTRAL, NO_THINK},
     "",
     "[TOOL_CALLS]add[ARGS]{\"a\": \"x\ny\"}",
     "[#add|{\"a\": \"x\\ny\"}]"},
    {{CHAT_KIMI, NO_THINK},
     "",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>"
     "{\"a\":\n\"x\ny\\\\\n\"}<|tool_call_end|><|tool_calls_section_end|>",
     "[functions.add:0#add|{\"a\":\n\"x\\ny\\\\\\n\"}]"},
    {{CHAT_MISTRAL, NO_THINK},
     "",
     "[TOOL_CALLS]add[CALL_ID]abc[ARGS]{\"a\": 1}",
     "[abc#add|{\"a\": 1}]"},
    {{CHAT_MISTRAL, NO_THINK}, "", "[TOOL_CALLS]add", "C:[TOOL_CALLS]add"},

    /* DeepSeek: V3 with a code fence, V3.1 without. */
    {{CHAT_DEEPSEEK, NO_THINK},
     "",
     "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n"
     "{\"a\": "
     "\"```\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>sub\n"
     "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "C:Hm.[#add|{\"a\": \"```\"}][#sub|{}]"},
    {{CHAT_DEEPSEEK, NO_THINK},
     "",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
     "<｜tool▁call▁begin｜>sub<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "[#add|{\"a\": 1}][#sub|{}]"},
    {{CHAT_DEEPSEEK, NO_THINK},
     "",
     "<｜tool▁calls▁begin｜> none",
     "C:<｜tool▁calls▁begin｜> none"},

    /* Another fence or none, no arguments, no call's end. */
    {{CHAT_DEEPSEEK, NO_THINK},
     "",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```\n{\"a\": 1}\n```"
     "<｜tool▁call▁end｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n{\"a\": 2}"
     "<｜tool▁call▁end｜><｜tool▁call▁begin｜>sub<｜tool▁sep｜><｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>",
     "[#add|{\"a\": 1}][#add|{\"a\": 2}][#sub|{}]"},
    {{CHAT_DEEPSEEK, NO_THINK},
     "",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": 1}\n"
     "```\n<｜tool▁call▁begin｜>sub<｜tool▁sep｜>{}<｜tool▁calls▁end｜>so",
     "[#add|{\"a\": 1}][#sub|{}]C:so"},
    {{CHAT_DEEPSEEK, NO_THINK},
     "",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>none at all<｜tool▁call▁end｜>",
     "C:<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>none at all<｜tool▁call▁end｜>"},
    {{CHAT_KIMI, NO_THINK},
     "",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|"
     ">{\"a\": 1}<|tool_calls_section_end|>so",
     "[functions.add:0#add|{\"a\": 1}]C:so"},

    /* Kimi. */
    {{CHAT_KIMI, NO_THINK},
     "",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|"
     ">"
     "{\"a\": "
     "1}<|tool_call_end|><|tool_call_begin|>functions.sub:1<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "[functions.add:0#add|{\"a\": 1}][functions.sub:1#sub|{}]"},

    /* XML style: types by the tools' schema, or by what the value looks like. */
    {{CHAT_QWEN_XML, NO_THINK},
     "",
     "<tool_call>\n<function=add>\n<parameter=a>\n5\n</parameter>\n<parameter=code>\n"
     "if a < b:\n\tprint(\"x\")\n\n</parameter>\n</function>\n</tool_call>",
     "[#add|{\"a\": 5, \"code\": \"if a < b:\\n\\tprint(\\\"x\\\")\\n\"}]"},
    {{CHAT_QWEN_XML, NO_THINK},
     "",
     "Now <function=sub><parameter=l>[1, 2]</parameter><parameter=s>a "
     "b</parameter></function>\n"
     "</tool_call>",
     "C:Now[#sub|{\"l\": [1, 2], \"s\": \"a b\"}]"},
    {{CHAT_QWEN_XML, NO_THINK},
     "",
     "<tool_call>\n<function=sub>\n</function>\n</tool_call>",
     "[#sub|{}]"},
    {{CHAT_QWEN_XML, NO_THINK},
     "",
     "<tool_call>\n<function=add>\n<parameter=code>\nabc",
     "[#add|{\"code\": \"abc\"}]"},
    {{CHAT_QWEN_XML, NO_THINK},
     "",
     "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>",
     "[#add|{}]"},
    {{CHAT_MINIMAX, NO_THINK},
     "",
     "<minimax:tool_call>\n<invoke name=\"add\">\n<parameter "
     "name=\"a\">1</parameter>\n</invoke>\n"
     "<invoke name=\"sub\">\n</invoke>\n</minimax:tool_call>",
     "[#add|{\"a\": 1}][#sub|{}]"},
    {{CHAT_GLM, NO_THINK},
     "",
     "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>code</arg_key>\n"
     "<arg_value>1</arg_value>\n</tool_call>\n<tool_call>sub</tool_call>",
     "[#add|{\"a\": 1, \"code\": \"1\"}][#sub|{}]"},

    /* Where a string may be, all but null is one; Python's names of values where they may be. */
    {{CHAT_QWEN_XML, NO_THINK},
     "",
     "<tool_call>\n<function=typed>\n<parameter=any>\n1.10\n</parameter>\n<parameter=list>\n"
     "null\n</parameter>\n<parameter=enum>\n1\n</parameter>\n<parameter=flag>\nTrue\n"
     "</parameter>\n<parameter=maybe>\nNone\n</parameter>\n</function>\n</tool_call>",
     "[#typed|{\"any\": \"1.10\", \"list\": null, \"enum\": \"1\", \"flag\": true, \"maybe\": "
     "null}]"},
    {{CHAT_QWEN_XML, NO_THINK},
     "",
     "<tool_call>\n<function=typed>\n<parameter=any>\nnullable\n</parameter>\n<parameter=list>"
     "\nnul\n</parameter>\n<parameter=maybe>\n1.50\n</parameter>\n<parameter=flag>\nNone\n"
     "</parameter>\n</function>\n</tool_call>",
     "[#typed|{\"any\": \"nullable\", \"list\": \"nul\", \"maybe\": 1.50, \"flag\": \"None\"}]"},
    {{CHAT_GLM, NO_THINK},
     "",
     "<tool_call>typed\n<arg_key>any</arg_key>\n<arg_value>12345</arg_value>\n<arg_key>list"
     "</arg_key>\n<arg_value>null</arg_value>\n<arg_key>enum</arg_key>\n<arg_value>None"
     "</arg_value>\n</tool_call>",
     "[#typed|{\"any\": \"12345\", \"list\": null, \"enum\": \"None\"}]"},
    /* What is said of a parameter may stand elsewhere: zod refers to the first of two alike,
     * Pydantic to $defs. */
    {{CHAT_QWEN_XML, NO_THINK},
     "",
     "<tool_call>\n<function=typed>\n<parameter=same>\n12\n</parameter>\n<parameter=all>\n1\n"
     "</parameter>\n<parameter=none>\n2\n</parameter>\n<parameter=round>\n3\n</parameter>\n"
     "<parameter=lost>\n[4]\n</parameter>\n</function>\n</tool_call>",
     "[#typed|{\"same\": \"12\", \"all\": \"1\", \"none\": \"2\", \"round\": 3, \"lost\": [4]}]"},
    {{CHAT_GLM, NO_THINK},
     "",
     "<tool_call>typed\n<arg_key>none</arg_key>\n<arg_value>null</arg_value>\n<arg_key>all"
     "</arg_key>\n<arg_value>true</arg_value>\n</tool_call>",
     "[#typed|{\"none\": null, \"all\": \"true\"}]"},

    /* A function's end within a value is text. */
    {{CHAT_QWEN_XML, NO_THINK},
     "",
     "<tool_call>\n<function=add>\n<parameter=code>\n<function=x>y</function>\nrest\n"
     "</parameter>\n</function>\n</tool_call>",
     "[#add|{\"code\": \"<function=x>y</function>\\nrest\"}]"},
    {{CHAT_GLM, NO_THINK},
     "",
     "<tool_call>add\n<arg_key>code</arg_key>\n<arg_value>x </tool_call> y</arg_value>\n"
     "</tool_call>",
     "[#add|{\"code\": \"x </tool_call> y\"}]"},
    {{CHAT_MINIMAX, NO_THINK},
     "",
     "<minimax:tool_call>\n<invoke name=\"add\">\n<parameter name=\"code\">a</invoke>b</invoke>c"
     "</parameter>\n</invoke>\n</minimax:tool_call>",
     "[#add|{\"code\": \"a</invoke>b</invoke>c\"}]"},
    /* Without the value's own end it counts, before another call too. */
    {{CHAT_QWEN_XML, NO_THINK},
     "",
     "<tool_call>\n<function=add>\n<parameter=code>\nabc\n</function>\n</tool_call>\n"
     "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
     "[#add|{\"code\": \"abc\"}][#add|{\"a\": 1}]"},
    {{CHAT_QWEN_XML, NO_THINK},
     "",
     "<tool_call>\n<function=add>\n<parameter=a>\n1\n</function>\n</tool_call>\ndone",
     "[#add|{\"a\": 1}]C:done"},
    /* So does the next parameter, on its own line and of a name that the function has. */
    {{CHAT_QWEN_XML, NO_THINK},
     "",
     "<tool_call>\n<function=add>\n<parameter=code>\nabc\n<parameter=a>\n1\n</parameter>\n"
     "</function>\n</tool_call>",
     "[#add|{\"code\": \"abc\", \"a\": 1}]"},
    {{CHAT_QWEN_XML, NO_THINK},
     "",
     "<tool_call>\n<function=add>\n<parameter=code>\nabc <parameter=a>\n<parameter=b>\n"
     "</parameter>\n</function>\n</tool_call>",
     "[#add|{\"code\": \"abc <parameter=a>\\n<parameter=b>\"}]"},

    /* Who writes about tags does not call. */
    {{CHAT_GLM, NO_THINK},
     "",
     "I wrap it in <tool_call> tags, then.\nBye.",
     "C:I wrap it in <tool_call> tags, then.\nBye."},
    {{CHAT_GLM, NO_THINK}, "", "Use <tool_call> tags\nso.", "C:Use <tool_call> tags\nso."},
    {{CHAT_QWEN_XML, NO_THINK},
     "",
     "In the log I see <function=main at 0x1> twice.",
     "C:In the log I see <function=main at 0x1> twice."},
    {{CHAT_QWEN_XML, NO_THINK},
     "",
     "See <function=main> and <function=add>\n<parameter=a>\n1\n</parameter>\n</function>",
     "C:See <function=main> and[#add|{\"a\": 1}]"},
    {{CHAT_QWEN_XML, NO_THINK},
     "",
     "<tool_call>\n<function=a.b:c-d>\n</tool_call>",
     "[#a.b:c-d|{}]"},
    {{CHAT_MISTRAL, NO_THINK},
     "",
     "The token [TOOL_CALLS] is used to begin a call, like {\"a\":1}. Fine.",
     "C:The token [TOOL_CALLS] is used to begin a call, like {\"a\":1}. Fine."},

    /* Harmony. */
    /* a program is no JSON */
    {{CHAT_HARMONY, NO_THINK},
     "",
     "<|channel|>commentary to=functions.add code<|message|>print(\"\"\"a\nb\"\"\")<|call|>",
     "[#add|print(\"\"\"a\nb\"\"\")]"},
    {{CHAT_HARMONY, NO_THINK},
     "<|start|>assistant",
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.add <|constrain|>json<|message|>{\"a\": 1}<|call|>",
     "R:Hm.[#add|{\"a\": 1}]"},
    {{CHAT_HARMONY, NO_THINK},
     "<|start|>assistant",
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes."
     " "
     "<|return|>",
     "R:Hm.C:Yes."},
    {{CHAT_HARMONY, NO_THINK},
     "<|start|>assistant<|channel|>final<|message|>",
     "Yes.",
     "C:Yes."},
    {{CHAT_HARMONY, NO_THINK},
     "<|start|>assistant<|channel|>analysis<|message|>",
     "Hm",
     "R:Hm"},
    {{CHAT_HARMONY, NO_THINK},
     "<|start|>assistant",
     " to=functions.sub<|channel|>commentary json<|message|>{}<|call|>",
     "[#sub|{}]"},
    /* Text about the tokens is no header. */
    {{CHAT_HARMONY, NO_THINK},
     "<|start|>assistant<|channel|>final<|message|>",
     "See <|channel|> then <|end|> done",
     "C:See <|channel|> then done"},
    {{CHAT_HARMONY, NO_THINK},
     "<|start|>assistant<|channel|>final<|message|>",
     "The token <|channel|>analysis begins thinking and <|message|> the body.",
     "C:The token <|channel|>analysis begins thinking and <|message|> the body."},
    {{CHAT_HARMONY, NO_THINK},
     "<|start|>assistant",
     "assistant is a word.<|end|>",
     "C:assistant is a word."},
    {{CHAT_HARMONY, NO_THINK},
     "<|start|>assistant<|channel|>analysis<|message|>",
     "Hm. <|channel|>final<|message|>Yes. <|start|>assistant<|channel|>commentary "
     "to=functions.add <|constrain|> json<|message|>{}",
     "R:Hm.C:Yes.[#add|{}]"},
    /* A function's reply that the model made up is no call. */
    {{CHAT_HARMONY, NO_THINK},
     "<|start|>assistant",
     "<|channel|>commentary to=functions.add<|message|>{}<|call|><|start|>functions.add "
     "to=assistant<|channel|>commentary<|message|>5<|end|>",
     "[#add|{}]C:5"},
};

static void formats_by_hand(void **state) {
    (void)state;
    json_error_t e;
    json_t *tools = json_loads(tools_text, 0, &e);
    assert_non_null(tools);
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        struct chat_parse_options o = {.style = by_hand[i].style,
                                       .prompt = by_hand[i].prompt,
                                       .prompt_len = strlen(by_hand[i].prompt),
                                       .tools = tools};
        const struct record *r = parse(&o, by_hand[i].text, strlen(by_hand[i].text));
        if (strcmp(r->text, by_hand[i].expected) != 0)
            print_message("%s: %s\n", chat_format_name(by_hand[i].style.format),
                          by_hand[i].text);
        assert_string_equal(r->text, by_hand[i].expected);
    }
    json_decref(tools);
}

static void bare_json_without_tools_is_content(void **state) {
    (void)state;
    struct chat_parse_options o = {.style = {CHAT_LLAMA3, NO_THINK}};
    const char text[] = "{\"name\": \"add\", \"parameters\": {}}";
    assert_string_equal(parse(&o, text, strlen(text))->content, text);
}

/* Without tools, or with tool_choice "none", a call's text is content, white space and all; what
 * frames thinking and harmony's messages is read as ever. */
static void without_tools_nothing_is_a_call(void **state) {
    (void)state;
    static const struct {
        struct chat_style style;
        const char *text, *expected;
    } cases[] = {
        {{CHAT_HERMES, NO_THINK},
         "Write <tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call> so.",
         "C:Write <tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call> so."},
        {{CHAT_HERMES, THINK},
         "<think>\nhm\n</think>\n\n<tool_call>{\"name\": \"rm\"}</tool_call>",
         "R:hmC:<tool_call>{\"name\": \"rm\"}</tool_call>"},
        {{CHAT_QWEN_XML, NO_THINK}, "<function=rm></function>", "C:<function=rm></function>"},
        {{CHAT_MISTRAL, NO_THINK}, "[TOOL_CALLS]rm{}", "C:[TOOL_CALLS]rm{}"},
        {{CHAT_HARMONY, NO_THINK},
         "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.rm<|message|>{\"a\": 1}<|call|>",
         "R:Hm.C:{\"a\": 1}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *empty = i % 2 == 0 ? NULL : json_array();
        struct chat_parse_options o = {.style = cases[i].style, .tools = empty};
        assert_string_equal(parse(&o, cases[i].text, strlen(cases[i].text))->text,
                            cases[i].expected);
        json_decref(empty);
    }
}

/* Arguments come in pieces as the text does, not at the end. */
static void arguments_are_streamed(void **state) {
    (void)state;
    static const struct streamed cases[] = {
        {CHAT_HERMES,
         "<tool_call>{\"name\": \"add\", \"arguments\": {\"code\": \"long long long "
         "text\"}}</tool_call>"},
        {CHAT_QWEN_XML, "<tool_call><function=add><parameter=code>long long long text"
                        "</parameter></function></tool_call>"},
        {CHAT_KIMI, "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0"
                    "<|tool_call_argument_begin|>{\"code\": \"long long long text\"}"
                    "<|tool_call_end|><|tool_calls_section_end|>"},
        {CHAT_HARMONY,
         "<|channel|>commentary to=functions.add<|message|>{\"code\": \"long long "
         "long text\"}<|call|>"},
    };
    check_streamed(cases, ARRAY_LEN(cases));
}

/* What max_tokens leaves of a call must not parse, in any format. */
static void a_cut_call_does_not_look_whole(void **state) {
    (void)state;
    static const struct {
        enum chat_format format;
        const char *text, *expected;
    } cases[] = {
        {CHAT_HERMES, "<tool_call>{\"name\": \"add\", \"arguments\": {\"code\": \"aa",
         "[#add|{\"code\": \"aa]"},
        {CHAT_QWEN_XML, "<tool_call>\n<function=add>\n<parameter=code>\naaaa\n",
         "[#add|{\"code\": \"aaaa]"},
        {CHAT_QWEN_XML, "<tool_call>\n<function=add>\n<parameter=a>\n12", "[#add|{\"a\": 12]"},
        {CHAT_QWEN_XML, "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n",
         "[#add|{\"a\": 1]"},
        {CHAT_GLM,
         "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>code"
         "</arg_key>\n",
         "[#add|{\"a\": 1]"},
        {CHAT_KIMI,
         "<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0"
         "<|tool_call_argument_begin|>",
         "[functions.add:0#add]"},
        /* This one is whole: the end of the value was left out. */
        {CHAT_QWEN_XML, "<function=add>\n<parameter=code>\naaaa\n</function>",
         "[#add|{\"code\": \"aaaa\"}]"},
    };
    json_error_t e;
    json_t *tools = json_loads(tools_text, 0, &e);
    cut_off = true;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct chat_parse_options o = {.style = {cases[i].format, NO_THINK}, .tools = tools};
        assert_string_equal(parse(&o, cases[i].text, strlen(cases[i].text))->text,
                            cases[i].expected);
    }
    cut_off = false;
    json_decref(tools);
}

/* A call that never proves to be one is given up after 32 KiB, wherever the pieces end. */
static void doubt_has_an_end(void **state) {
    (void)state;
    static char text[40000];
    static struct record whole, cut;
    size_t n = (size_t)sprintf(text, "<tool_call>{\"x\": \"");
    memset(text + n, 'y', sizeof text - 1 - n);
    json_error_t e;
    json_t *tools = json_loads(tools_text, 0, &e);
    struct chat_parse_options o = {.style = {CHAT_HERMES, NO_THINK}, .tools = tools};
    parse_pieces(&whole, &o, text, strlen(text), strlen(text), 1);
    assert_int_equal(whole.n_content, strlen(text));
    static const size_t steps[] = {1, 7, 1000, 32768, 32769};
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        parse_pieces(&cut, &o, text, strlen(text), 1, steps[i]);
        assert_string_equal(cut.text, whole.text);
    }
    json_decref(tools);
}

int main(void) {
    golden_or_skip("chat-templates/conversations.json");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_own_calls_come_back),
        cmocka_unit_test(formats_by_hand),
        cmocka_unit_test(bare_json_without_tools_is_content),
        cmocka_unit_test(without_tools_nothing_is_a_call),
        cmocka_unit_test(arguments_are_streamed),
        cmocka_unit_test(a_cut_call_does_not_look_whole),
        cmocka_unit_test(doubt_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
