/* chat_parse.h: parses a model's output into content, reasoning and tool calls, while it is
 * written.
 *
 * Text arrives as it is decoded, in pieces of any size. Events are sent as soon as they are
 * certain. The division into pieces never changes the whole result. Nothing is lost: text that
 * looked like a call but is not one becomes content. White space next to a tag belongs to the
 * tag. If a call stands between two contents, the white space before the call stays.
 *
 * Decode with the special tokens shown (token_stream's special), but without the end tokens:
 * most formats consist of special tokens.
 *
 * One thread at a time per parser. */
#ifndef LOCKSTEP_CHAT_CHAT_PARSE_H
#define LOCKSTEP_CHAT_CHAT_PARSE_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum chat_format {
    CHAT_PLAIN,    /* no tool calls */
    CHAT_HERMES,   /* <tool_call>{"name": ..., "arguments": {...}}</tool_call> (Qwen, Hermes) */
    CHAT_QWEN_XML, /* <tool_call><function=NAME><parameter=KEY>VALUE</parameter>... */
    CHAT_SEED,     /* <seed:tool_call><function=NAME><parameter=KEY>VALUE</parameter>... */
    CHAT_MINIMAX,  /* <minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE... */
    CHAT_MINIMAX_M3, /* the same, each tag after ]<]minimax[>[, and <KEY>VALUE</KEY> */
    CHAT_DSML_V32, /* <｜DSML｜function_calls><｜DSML｜invoke name="NAME">... of DeepSeek V3.2 */
    CHAT_DSML,       /* <｜DSML｜tool_calls>... of DeepSeek V4 */
    CHAT_GLM,        /* <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>... */
    CHAT_LLAMA3,     /* {"name": ..., "parameters": {...}}, alone or after <|python_tag|> */
    CHAT_MISTRAL,    /* [TOOL_CALLS][{"name": ...}] or [TOOL_CALLS]NAME[ARGS]{...} */
    CHAT_GRANITE,    /* <|tool_call|>[{"name": ...}] of Granite 3; Phi 4 mini closes it, too */
    CHAT_NEMOTRON,   /* <TOOLCALL>[{"name": ...}]</TOOLCALL> of Nemotron Nano v2 */
    CHAT_TOOL_CALLS, /* <tool_calls>{"name": ...}</tool_calls> of MiniMax M1, Apriel */
    CHAT_GIGACHAT,   /* <|function_call|>{"name": ...} of GigaChat 3.1 */
    CHAT_COMMAND_R,  /* Action: ```json [{"tool_name": ..., "parameters": {...}}]``` */
    CHAT_COMMAND_A,  /* <|START_ACTION|>[{"tool_name": ...}]<|END_ACTION|>, from R7B on */
    CHAT_APERTUS,    /* <|tools_prefix|>[{"NAME": {...}}]<|tools_suffix|> */
    CHAT_FIREFUNCTION,    /* functools[{"name": ..., "arguments": {...}}] */
    CHAT_FUNCTIONARY,     /* <function=NAME>{...}</function>, of v3.1 */
    CHAT_FUNCTIONARY_V32, /* >>>NAME and {...} on the next line; >>>all and the answer */
    CHAT_GEMMA,           /* <|tool_call>call:NAME{KEY:VALUE,...}<tool_call|>, of Gemma 4 */
    CHAT_LFM2,            /* <|tool_call_start|>[NAME(KEY=VALUE, ...)]<|tool_call_end|> */
    CHAT_DEEPSEEK,        /* <｜tool▁calls▁begin｜>... of V3, R1 and V3.1 */
    CHAT_KIMI,            /* <|tool_calls_section_begin|>... of Kimi K2 */
    CHAT_HARMONY,         /* gpt-oss: <|channel|>analysis<|message|>... */
    CHAT_KIMI_K3,         /* <|open|>call tool="NAME" index="1"<|sep|>..., in frames */
    CHAT_N_FORMATS
};

/* How a model's output is to be read. The tags are static; "" if it does not think in tags. */
struct chat_style {
    enum chat_format format;
    const char *think_begin, *think_end;
    const char *answer_begin,
        *answer_end; /* what follows may be in tags, too; "" or NULL: not */
};

/* Detects the style by the text of the template, and then by `has_token` (may be NULL), which
 * tells whether the vocabulary has a special token with this text. */
struct chat_style chat_style_detect(const char *template_text,
                                    bool (*has_token)(void *arg, const char *text), void *arg);
const char *chat_format_name(enum chat_format format); /* "hermes"; never NULL */
/* What a model writes before its calls, a token in most vocabularies; of harmony, where calls
 * have a channel, after them. "": calls are bare JSON, or there are none. */
const char *chat_format_call(enum chat_format format);

enum chat_event_kind {
    CHAT_CONTENT,    /* text */
    CHAT_REASONING,  /* text */
    CHAT_CALL_BEGIN, /* text: the function's name; id: what the model calls the call, or "" */
    CHAT_ARGUMENTS,  /* text: a piece of the arguments' JSON */
    CHAT_CALL_END,
};

struct chat_event {
    enum chat_event_kind kind;
    size_t call;      /* the number of the call, from 0 */
    const char *text; /* len bytes, not NUL-terminated; borrowed, for the time of the call */
    size_t len;
    const char *id; /* NUL-terminated */
};

struct chat_parse_options {
    struct chat_style style;
    /* The end of the prompt. It shows whether the prompt already opened the thinking (or a
     * harmony message); NULL: it did not. Only read in chat_parser_open(). */
    const char *prompt;
    size_t prompt_len;
    /* The request's tools, or NULL: without any, nothing is a call, and what looks like one is
     * content. Gives the types of arguments that are written without quotes. Borrowed for the
     * parser's life. */
    const json_t *tools;
    void (*on_event)(void *arg, const struct chat_event *event);
    void *arg;
};

struct chat_parser;

enum status chat_parser_open(struct chat_parser **out, const struct chat_parse_options *options,
                             struct err *err);
void chat_parser_close(struct chat_parser *p); /* NULL is fine */

/* More text. ST_NO_MEMORY: the parser is of no more use. */
enum status chat_parser_put(struct chat_parser *p, const char *text, size_t len,
                            struct err *err);
/* Whether some of the text so far may come out yet. */
bool chat_parser_holds(const struct chat_parser *p);
/* The model has finished: held text is released, and an unfinished call is ended. cut: the
 * model was stopped in the middle. The arguments of its unfinished call then stay as they are
 * and do not parse, since half a file must not look like a whole one. */
enum status chat_parser_end(struct chat_parser *p, bool cut, struct err *err);

#endif
