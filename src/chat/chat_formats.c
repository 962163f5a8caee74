/* chat_formats.c: the formats of calls and thoughts, and how a template's text tells which it
 * uses. */
#include "chat/chat_parse_impl.h"

#include <string.h>

static const struct call_syntax syntaxes[CHAT_N_FORMATS] = {
    [CHAT_PLAIN] = {.name = "plain"},
    [CHAT_HERMES] = {.name = "hermes",
                     .first = PARSE_JSON_FIRST,
                     .section_begin = "<tool_call>",
                     .section_end = "</tool_call>"},
    [CHAT_QWEN_XML] = {.name = "qwen-xml",
                       .first = PARSE_XML_FUNCTION,
                       .section_begin = "<tool_call>",
                       .section_end = "</tool_call>",
                       .bare_begin = "<function=",
                       .function_begin = "<function=",
                       .function_name_end = ">",
                       .function_end = "</function>",
                       .param_begin = "<parameter=",
                       .key_end = ">",
                       .value_end = "</parameter>",
                       .value_lines = true},
    [CHAT_SEED] = {.name = "seed",
                   .first = PARSE_XML_FUNCTION,
                   .section_begin = "<seed:tool_call>",
                   .section_end = "</seed:tool_call>",
                   .ends_thoughts = true,
                   .function_begin = "<function=",
                   .function_name_end = ">",
                   .function_end = "</function>",
                   .param_begin = "<parameter=",
                   .key_end = ">",
                   .value_end = "</parameter>"},
#define M3 "]<]minimax[>["
    [CHAT_MINIMAX_M3] = {.name = "minimax-m3",
                         .first = PARSE_NESTED_FIRST,
                         .section_begin = M3 "<tool_call>",
                         .section_end = M3 "</tool_call>",
                         .ends_thoughts = true,
                         .function_begin = M3 "<invoke name=\"",
                         .function_name_end = "\">",
                         .quote = M3},
#undef M3
    [CHAT_MINIMAX] = {.name = "minimax",
                      .first = PARSE_XML_FUNCTION,
                      .section_begin = "<minimax:tool_call>",
                      .section_end = "</minimax:tool_call>",
                      .function_begin = "<invoke name=\"",
                      .function_name_end = "\">",
                      .function_end = "</invoke>",
                      .param_begin = "<parameter name=\"",
                      .key_end = "\">",
                      .value_end = "</parameter>",
                      .value_lines = true},
#define DSML(section)                                                                 \
    .first = PARSE_XML_FUNCTION, .section_begin = "<｜DSML｜" section ">",            \
    .section_end = "</｜DSML｜" section ">", .ends_thoughts = true,                   \
    .function_begin = "<｜DSML｜invoke name=\"", .function_name_end = "\">",          \
    .function_end = "</｜DSML｜invoke>", .param_begin = "<｜DSML｜parameter name=\"", \
    .key_end = "\"", .attributes_end = ">", .value_end = "</｜DSML｜parameter>"
    [CHAT_DSML_V32] = {.name = "dsml-v3.2", DSML("function_calls")},
    [CHAT_DSML] = {.name = "dsml", DSML("tool_calls")},
#undef DSML
    [CHAT_GLM] = {.name = "glm",
                  .first = PARSE_XML_NAME,
                  .section_begin = "<tool_call>",
                  .function_name_end = "\n",
                  .function_end = "</tool_call>",
                  .param_begin = "<arg_key>",
                  .key_end = "</arg_key>",
                  .value_begin = "<arg_value>",
                  .value_end = "</arg_value>"},
    [CHAT_LLAMA3] = {.name = "llama3",
                     .first = PARSE_JSON_FIRST,
                     .section_begin = "<|python_tag|>"},
    [CHAT_MISTRAL] = {.name = "mistral",
                      .first = PARSE_JSON_FIRST,
                      .section_begin = "[TOOL_CALLS]"},
    [CHAT_GRANITE] = {.name = "granite",
                      .first = PARSE_JSON_FIRST,
                      .section_begin = "<|tool_call|>",
                      .section_end = "<|/tool_call|>", /* of Phi 4 mini alone */
                      .ends_thoughts = true},
    [CHAT_NEMOTRON] = {.name = "nemotron",
                       .first = PARSE_JSON_FIRST,
                       .section_begin = "<TOOLCALL>",
                       .section_end = "</TOOLCALL>"},
    [CHAT_TOOL_CALLS] = {.name = "tool-calls",
                         .first = PARSE_JSON_FIRST,
                         .section_begin = "<tool_calls>",
                         .section_end = "</tool_calls>"},
    [CHAT_GIGACHAT] = {.name = "gigachat",
                       .first = PARSE_JSON_FIRST,
                       .section_begin = "<|function_call|>",
                       .ends_thoughts = true},
    [CHAT_COMMAND_R] = {.name = "command-r",
                        .first = PARSE_JSON_FIRST,
                        .section_begin = "Action:",
                        .section_end = "```",
                        .known_names = true},
    [CHAT_COMMAND_A] = {.name = "command-a",
                        .first = PARSE_JSON_FIRST,
                        .section_begin = "<|START_ACTION|>",
                        .section_end = "<|END_ACTION|>",
                        .ends_thoughts = true},
    [CHAT_APERTUS] = {.name = "apertus",
                      .first = PARSE_JSON_FIRST,
                      .section_begin = "<|tools_prefix|>",
                      .section_end = "<|tools_suffix|>",
                      .ends_thoughts = true,
                      .name_is_key = true},
    [CHAT_FIREFUNCTION] = {.name = "firefunction",
                           .first = PARSE_JSON_FIRST,
                           .section_begin = "functools"},
    [CHAT_FUNCTIONARY] = {.name = "functionary",
                          .first = PARSE_XML_NAME,
                          .section_begin = "<function=",
                          .function_name_end = ">",
                          .function_end = "</function>",
                          .value_is_json = true},
    [CHAT_FUNCTIONARY_V32] = {.name = "functionary-v3.2",
                              .first = PARSE_RECIPIENT,
                              .section_begin = ">>>",
                              .known_names = true,
                              .frames_answers = true},
    [CHAT_GEMMA] = {.name = "gemma",
                    .first = PARSE_LOOSE_FIRST,
                    .section_begin = "<|tool_call>",
                    .section_end = "<tool_call|>",
                    .ends_thoughts = true,
                    .call_begin = "call:",
                    .call_sep = "{",
                    .quote = "<|\"|>"},
    [CHAT_LFM2] = {.name = "lfm2",
                   .first = PARSE_LOOSE_FIRST,
                   .section_begin = "<|tool_call_start|>",
                   .section_end = "<|tool_call_end|>",
                   .ends_thoughts = true,
                   .call_sep = "("},
    [CHAT_DEEPSEEK] = {.name = "deepseek",
                       .first = PARSE_TAGGED_SECTION,
                       .section_begin = "<｜tool▁calls▁begin｜>",
                       .section_end = "<｜tool▁calls▁end｜>",
                       .ends_thoughts = true,
                       .call_begin = "<｜tool▁call▁begin｜>",
                       .call_sep = "<｜tool▁sep｜>",
                       .call_end = "<｜tool▁call▁end｜>"},
    [CHAT_KIMI] = {.name = "kimi",
                   .first = PARSE_TAGGED_SECTION,
                   .section_begin = "<|tool_calls_section_begin|>",
                   .section_end = "<|tool_calls_section_end|>",
                   .bare_begin = "<|tool_call_begin|>",
                   .ends_thoughts = true,
                   .call_begin = "<|tool_call_begin|>",
                   .call_sep = "<|tool_call_argument_begin|>",
                   .call_end = "<|tool_call_end|>"},
    [CHAT_KIMI_K3] = {.name = "kimi-k3",
                      .first = PARSE_XML_FUNCTION,
                      .section_begin = "<|open|>tools<|sep|>",
                      .section_end = "<|close|>tools<|sep|>",
                      .ends_thoughts = true,
                      .frames_answers = true,
                      .function_begin = "<|open|>call tool=\"",
                      .function_name_end = "<|sep|>",
                      .function_end = "<|close|>call<|sep|>",
                      .param_begin = "<|open|>argument key=\"",
                      .key_end = "\"",
                      .attributes_end = "<|sep|>",
                      .value_end = "<|close|>argument<|sep|>",
                      .block_begin = "<|open|>json",
                      .block_end = "<|close|>json<|sep|>",
                      .escapes = true,
                      .message_end = "<|close|>message<|sep|>",
                      .open = "<|open|>",
                      .close = "<|close|>"},
    [CHAT_HARMONY] = {.name = "harmony", .frames_answers = true},
};

const struct call_syntax *syntax_of(enum chat_format format) {
    return &syntaxes[format];
}

/* ---- which format ------------------------------------------------------------------------ */

static const struct {
    enum chat_format format;
    const char *telltale, *and_also; /* both in the template's text */
} formats[] = {
    {CHAT_HARMONY, "<|channel|>", "<|message|>"},
    {CHAT_KIMI, "<|tool_calls_section_begin|>", ""},
    {CHAT_KIMI_K3, "<|open|>", "<|close|>"},
    {CHAT_DSML, "｜DSML｜", "tool_calls>"},
    {CHAT_DSML_V32, "｜DSML｜", "function_calls>"},
    {CHAT_DEEPSEEK, "<｜tool▁calls▁begin｜>", ""},
    {CHAT_GEMMA, "<|tool_call>", "<tool_call|>"},
    {CHAT_LFM2, "<|tool_call_start|>", ""},
    {CHAT_LFM2, "<|tool_list_start|>", ""},
    {CHAT_COMMAND_A, "<|START_ACTION|>", ""},
    {CHAT_APERTUS, "<|tools_prefix|>", ""},
    {CHAT_GRANITE, "<|tool_call|>", ""},
    {CHAT_MISTRAL, "[TOOL_CALLS]", ""},
    {CHAT_MINIMAX, "<minimax:tool_call>", ""},
    {CHAT_MINIMAX_M3, "]<]minimax[>[", ""},
    {CHAT_SEED, "<seed:tool_call>", ""},
    {CHAT_GLM, "<arg_key>", "<tool_call>"},
    {CHAT_QWEN_XML, "<function=", "<parameter="},
    {CHAT_TOOL_CALLS, "<tool_calls>", ""}, /* Apriel's speaks of both */
    {CHAT_HERMES, "<tool_call>", ""},
    {CHAT_NEMOTRON, "<TOOLCALL>", ""},
    {CHAT_GIGACHAT, "<|function_call|>", ""},
    {CHAT_FUNCTIONARY, "<function=", "</function>"},
    {CHAT_FUNCTIONARY_V32, ">>>all", ""},
    {CHAT_FIREFUNCTION, "functools[", ""},
    {CHAT_COMMAND_R, "Action:", "\"tool_name\""},
    {CHAT_LLAMA3, "<|python_tag|>", ""},
    {CHAT_LLAMA3, "<|start_header_id|>", "\"parameters\""},
};

/* What thoughts are written between and, where it is too, the answer after them. */
static const struct {
    const char *begin, *end, *answer_begin, *answer_end;
    const char *telltale; /* that there is more to it than `end`; "": there is not */
} frames[] = {
    {"<seed:think>", "</seed:think>", "", "", ""},
    {"<mm:think>", "</mm:think>", "", "", ""},
    {"[THINK]", "[/THINK]", "", "", ""},
    {"<|channel>thought", "<channel|>", "", "", ""},
    {"<|inner_prefix|>", "<|inner_suffix|>", "", "", ""},
    {"<|START_THINKING|>", "<|END_THINKING|>", "<|START_TEXT|>", "<|END_TEXT|>",
     "<|END_TEXT|>"},
    {"<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", ""},
    {"<think>", "</think>", "<response>", "</response>", "<response></response>"},
    {"<think>", "</think>", "", "", ""},
};

/* A template puts these together from their parts. */
static const struct chat_style kimi_k3 = {CHAT_KIMI_K3, "<|open|>think<|sep|>",
                                          "<|close|>think<|sep|>", "<|open|>response<|sep|>",
                                          "<|close|>response<|sep|>"};

static bool text_has(void *text, const char *part) {
    return strstr(text, part) != NULL;
}

static bool find_frame(struct chat_style *style, bool (*has)(void *, const char *), void *arg) {
    for (size_t i = 0; i < ARRAY_LEN(frames); i++) {
        bool more = frames[i].telltale[0] != '\0';
        if (!has(arg, frames[i].end) || (more && !has(arg, frames[i].telltale)))
            continue;
        style->think_begin = frames[i].begin;
        style->think_end = frames[i].end;
        style->answer_begin = frames[i].answer_begin;
        style->answer_end = frames[i].answer_end;
        return true;
    }
    return false;
}

struct chat_style chat_style_detect(const char *text, bool (*has_token)(void *, const char *),
                                    void *arg) {
    struct chat_style style = {CHAT_PLAIN, "", "", "", ""};
    for (size_t i = ARRAY_LEN(formats); i-- > 0;) {
        bool in_text = strstr(text, formats[i].telltale) != NULL &&
                       strstr(text, formats[i].and_also) != NULL;
        if (in_text)
            style.format = formats[i].format;
    }
    /* A template without tools leaves it to the vocabulary. */
    for (size_t i = 0;
         style.format == CHAT_PLAIN && has_token != NULL && i < ARRAY_LEN(formats); i++)
        if (formats[i].format != CHAT_LLAMA3 && has_token(arg, formats[i].telltale))
            style.format = formats[i].format;
    if (style.format == CHAT_KIMI_K3)
        return kimi_k3;
    if (style.format != CHAT_HARMONY && !find_frame(&style, text_has, (void *)text) &&
        has_token != NULL)
        (void)find_frame(&style, has_token, arg);
    return style;
}

const char *chat_format_name(enum chat_format format) {
    return (unsigned)format < CHAT_N_FORMATS ? syntaxes[format].name : "unknown";
}

const char *chat_format_call(enum chat_format format) {
    if (format == CHAT_HARMONY)
        return "<|call|>";
    const char *begin =
        (unsigned)format < CHAT_N_FORMATS ? syntaxes[format].section_begin : NULL;
    return begin != NULL ? begin : "";
}
