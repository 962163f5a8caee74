/* Formats of calls and thoughts, one table each. The texts are what the models' own templates and
 * documentation show, and what becomes of them when a model leaves something out. Each is fed in
 * pieces of every kind (chat_record.h). */
#include "chat_record.h"

/* The frames of thoughts and answers. */
#define GEMMA "<|channel>thought", "<channel|>", "", ""
#define SEED "<seed:think>", "</seed:think>", "", ""
#define GRANITE "<think>", "</think>", "<response>", "</response>"
#define COMMAND \
    "<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"
#define NORTH "<|START_THINKING|>", "<|END_THINKING|>", "<|START_TEXT|>", "<|END_TEXT|>"
#define APERTUS "<|inner_prefix|>", "<|inner_suffix|>", "", ""

struct answer {
    struct chat_style style;
    const char *prompt, *text, *expected;
};

static void check(const struct answer *answers, size_t n) {
    json_error_t e;
    json_t *tools = json_loads(tools_text, 0, &e);
    assert_non_null(tools);
    for (size_t i = 0; i < n; i++) {
        const struct answer *a = &answers[i];
        struct chat_parse_options o = {.style = a->style,
                                       .prompt = a->prompt,
                                       .prompt_len = strlen(a->prompt),
                                       .tools = tools};
        const struct record *r = parse(&o, a->text, strlen(a->text));
        if (strcmp(r->text, a->expected) != 0)
            print_message("%s: %s\n", chat_format_name(a->style.format), a->text);
        assert_string_equal(r->text, a->expected);
    }
    json_decref(tools);
}

#define Q "<|\"|>"

static void gemma(void **state) {
    (void)state;
    static const struct answer answers[] = {
        {{CHAT_GEMMA, GEMMA},
         "<|turn>model\n",
         "<|channel>thought\nSum them.\n<channel|><|tool_call>call:add{a:1,code:" Q
         "x{y}, \"z\"\n" Q "}<tool_call|><|tool_call>call:sub{}<tool_call|>",
         "R:Sum them.[#add|{\"a\": 1, \"code\": \"x{y}, \\\"z\\\"\\n\"}][#sub|{}]"},
        {{CHAT_GEMMA, GEMMA},
         "<|turn>model\n<|channel>thought\n<channel|>",
         "It is 3.",
         "C:It is 3."},
        {{CHAT_GEMMA, GEMMA}, "<|channel>thought\n", "hm\n<channel|>yes", "R:hmC:yes"},
        {{CHAT_GEMMA, GEMMA}, "", "<|channel>thought\n<channel|>yes", "C:yes"},
        /* the thought is not closed */
        {{CHAT_GEMMA, GEMMA},
         "",
         "<|channel>thought\nhm <|tool_call>call:sub{}<tool_call|>",
         "R:hm[#sub|{}]"},
        /* lists, objects, numbers, names of values, keys with and without quotes */
        {{CHAT_GEMMA, GEMMA},
         "",
         "so <|tool_call>call:typed{l:[1,-2.5e3,true,null,[],{}," Q "a,b" Q "],o:{x:{" Q "k k" Q
         ":" Q Q "}},flag:false}<tool_call|> done",
         "C:so[#typed|{\"l\": [1, -2.5e3, true, null, [], {}, \"a,b\"], \"o\": {\"x\": {\"k k\": "
         "\"\"}}, \"flag\": false}]C: done"},
        /* what Python and JSON would write, and words without quotes */
        {{CHAT_GEMMA, GEMMA},
         "",
         "<|tool_call>call:typed{flag: True, none: None, \"w\": New York , j: \"a \\\"b\\\"\\n\", "
         "n: 01}<tool_call|>",
         "[#typed|{\"flag\": true, \"none\": null, \"w\": \"New York\", \"j\": \"a "
         "\\\"b\\\"\\n\", \"n\": \"01\"}]"},
        /* a string where the function declares one */
        {{CHAT_GEMMA, GEMMA},
         "",
         "<|tool_call>call:add{code:75001,a:75001,x:{code:5}}<tool_call|>",
         "[#add|{\"code\": \"75001\", \"a\": 75001, \"x\": {\"code\": 5}}]"},
        /* left open, or closed by the wrong bracket */
        {{CHAT_GEMMA, GEMMA},
         "",
         "<|tool_call>call:add{a:[1,{b:" Q "x<tool_call|>",
         "[#add|{\"a\": [1, {\"b\": \"x\"}]}]"},
        {{CHAT_GEMMA, GEMMA}, "", "<|tool_call>call:add{a:[1}", "[#add|{\"a\": [1]}]"},
        {{CHAT_GEMMA, GEMMA}, "", "<|tool_call>call:add{a:", "[#add|{\"a\": null}]"},
        {{CHAT_GEMMA, GEMMA}, "", "<|tool_call>call:add{a:1} bye", "[#add|{\"a\": 1}]C:bye"},
        {{CHAT_GEMMA, GEMMA}, "", "<|tool_call>call:add{a:1", "[#add|{\"a\": 1}]"},
        {{CHAT_GEMMA, GEMMA},
         "",
         "<|tool_call>call:add{a:" Q "x" Q " and more}<tool_call|>",
         "[#add|{\"a\": \"x\"}]C:and more}<tool_call|>"},
        /* JSON in the same tags; what is no call */
        {{CHAT_GEMMA, GEMMA},
         "",
         "<|tool_call>{\"name\": \"sub\", \"arguments\": {}}<tool_call|>",
         "[#sub|{}]"},
        {{CHAT_GEMMA, GEMMA},
         "",
         "<|tool_call>add 1<tool_call|>",
         "C:<|tool_call>add 1<tool_call|>"},
        {{CHAT_GEMMA, GEMMA}, "", "<|tool_call>call:ad", "C:<|tool_call>call:ad"},
        {{CHAT_GEMMA, GEMMA},
         "",
         "<|tool_call>call:a b{}<tool_call|>",
         "C:<|tool_call>call:a b{}<tool_call|>"},
    };
    check(answers, ARRAY_LEN(answers));
}

static void lfm2(void **state) {
    (void)state;
#define BEGIN "<|tool_call_start|>"
#define END "<|tool_call_end|>"
    static const struct answer answers[] = {
        {{CHAT_LFM2, THINK},
         "",
         "<think>hm</think>" BEGIN "[add(a=1, code='it\\'s \"x\"'), sub()]" END "Adding.",
         "R:hm[#add|{\"a\": 1, \"code\": \"it's \\\"x\\\"\"}][#sub|{}]C:Adding."},
        {{CHAT_LFM2, NO_THINK},
         "",
         BEGIN "[typed(flag=True, none=None, l=[1, (2, 3), {'k': [False], \"j\": {}}], "
               "x=\"a\\\\b\\n\\x41\\u00e9\\d\")]" END,
         "[#typed|{\"flag\": true, \"none\": null, \"l\": [1, [2, 3], {\"k\": [false], \"j\": "
         "{}}], \"x\": \"a\\\\b\\n\\u0041\\u00e9\\\\d\"}]"},
        /* quotes within, as the template writes them */
        {{CHAT_LFM2, NO_THINK},
         "",
         BEGIN "[add(code='it's 5 o'clock', a=2)]" END,
         "[#add|{\"code\": \"it's 5 o'clock\", \"a\": 2}]"},
        /* by place */
        {{CHAT_LFM2, NO_THINK},
         "",
         BEGIN "[add(3, 'x'), sub([1], 2)]" END,
         "[#add|{\"a\": 3, \"code\": \"x\"}][#sub|{\"0\": [1], \"1\": 2}]"},
        /* an expression is a text */
        {{CHAT_LFM2, NO_THINK},
         "",
         BEGIN "[sub(t=date(2024, 1), n=-1.5, w=a b)]" END,
         "[#sub|{\"t\": \"date(2024, 1)\", \"n\": -1.5, \"w\": \"a b\"}]"},
        /* JSON, if the system's message asks for it */
        {{CHAT_LFM2, NO_THINK},
         "",
         BEGIN "[{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"sub\", "
               "\"arguments\": {}}]" END,
         "[#add|{\"a\": 1}][#sub|{}]"},
        {{CHAT_LFM2, NO_THINK}, "", BEGIN "add(a=1)" END, "[#add|{\"a\": 1}]"},
        {{CHAT_LFM2, NO_THINK},
         "",
         BEGIN "[add(a=1, code='x",
         "[#add|{\"a\": 1, \"code\": \"x\"}]"},
        {{CHAT_LFM2, NO_THINK}, "", BEGIN "[add(a=1)" END "so", "[#add|{\"a\": 1}]C:so"},
        {{CHAT_LFM2, NO_THINK},
         "",
         BEGIN "[add(a=1), what now]" END,
         "[#add|{\"a\": 1}]C:, what now]" END},
        {{CHAT_LFM2, NO_THINK}, "", BEGIN "[no call]" END, "C:" BEGIN "[no call]" END},
    };
#undef BEGIN
#undef END
    check(answers, ARRAY_LEN(answers));
}

static void dsml(void **state) {
    (void)state;
#define BEGIN "<｜DSML｜tool_calls>\n"
#define END "</｜DSML｜tool_calls>"
#define INVOKE(name) "<｜DSML｜invoke name=\"" name "\">\n"
#define DONE "</｜DSML｜invoke>\n"
#define PARAMETER(name, text, value) \
    "<｜DSML｜parameter name=\"" name "\" string=\"" text "\">" value "</｜DSML｜parameter>\n"
    static const struct answer answers[] = {
        {{CHAT_DSML, THINK},
         "<｜Assistant｜><think>",
         "hm</think>Well.\n\n" BEGIN INVOKE("add") PARAMETER("a", "false", "1")
             PARAMETER("code", "true", "\nx <b>\n") DONE INVOKE("sub") "\n" DONE END,
         "R:hmC:Well.[#add|{\"a\": 1, \"code\": \"\\nx <b>\\n\"}][#sub|{}]"},
        {{CHAT_DSML_V32, THINK},
         "</think>",
         "\n\n<｜DSML｜function_calls>\n" INVOKE("add")
             PARAMETER("a", "false", "[1, {\"b\": null}]") DONE "</｜DSML｜function_calls>",
         "[#add|{\"a\": [1, {\"b\": null}]}]"},
        /* the attribute says what it is; without it the function does */
        {{CHAT_DSML, NO_THINK},
         "",
         BEGIN INVOKE("add") PARAMETER("a", "true", "1") PARAMETER("code", "false", "1.50")
             PARAMETER("x", "false", "no json") DONE END,
         "[#add|{\"a\": \"1\", \"code\": 1.50, \"x\": \"no json\"}]"},
        {{CHAT_DSML, NO_THINK},
         "",
         BEGIN INVOKE("add") "<｜DSML｜parameter name=\"a\">1</｜DSML｜parameter>"
                             "<｜DSML｜parameter name=\"code\">1</｜DSML｜parameter>" DONE END,
         "[#add|{\"a\": 1, \"code\": \"1\"}]"},
        /* in a thought that was not closed */
        {{CHAT_DSML, THINK}, "<think>", "hm\n\n" BEGIN INVOKE("sub") DONE END, "R:hm[#sub|{}]"},
        {{CHAT_DSML, NO_THINK}, "", BEGIN "nothing" END, "C:" BEGIN "nothing" END},
        {{CHAT_DSML, NO_THINK},
         "",
         BEGIN INVOKE("add") "<｜DSML｜parameter name=\"a\" string=\"tr",
         "[#add|{}]C:a string=\"tr"},
    };
#undef BEGIN
#undef END
#undef INVOKE
#undef DONE
#undef PARAMETER
    check(answers, ARRAY_LEN(answers));
}

static void seed(void **state) {
    (void)state;
    static const struct answer answers[] = {
        {{CHAT_SEED, SEED},
         "<seed:bos>assistant\n",
         "<seed:think>a<seed:cot_budget_reflect>9 left</seed:cot_budget_reflect>b</seed:think>\n"
         "Yes.\n<seed:tool_call>\n<function=add>\n<parameter=a>12</parameter>\n<parameter=code>\n"
         "x\n</parameter>\n</function>\n</seed:tool_call>",
         "R:a<seed:cot_budget_reflect>9 left</seed:cot_budget_reflect>bC:Yes."
         "[#add|{\"a\": 12, \"code\": \"\\nx\\n\"}]"},
        {{CHAT_SEED, SEED},
         "",
         "<seed:tool_call>\n<function=typed>\n<parameter=flag>True</parameter>\n<parameter=any>5"
         "</parameter>\n</function>\n</seed:tool_call>\n<seed:tool_call><function=sub></function>"
         "</seed:tool_call>",
         "[#typed|{\"flag\": true, \"any\": \"5\"}][#sub|{}]"},
        {{CHAT_SEED, SEED},
         "",
         "<seed:tool_call>add</seed:tool_call>",
         "C:<seed:tool_call>add</seed:tool_call>"},
    };
    check(answers, ARRAY_LEN(answers));
}

static void granite(void **state) {
    (void)state;
    static const struct answer answers[] = {
        {{CHAT_GRANITE, GRANITE},
         "",
         "<|tool_call|>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"sub\", "
         "\"arguments\": {}}]",
         "[#add|{\"a\": 1}][#sub|{}]"},
        {{CHAT_GRANITE, GRANITE},
         "",
         "<think>hm</think>\n<response>It is\n3.</response>",
         "R:hmC:It is\n3."},
        {{CHAT_GRANITE, GRANITE},
         "",
         "<response>The tag </response> ends it.</response> ",
         "C:The tag </response> ends it."},
        {{CHAT_GRANITE, GRANITE},
         "",
         "Write <response> and </response>",
         "C:Write <response> and </response>"},
        /* Phi 4 mini */
        {{CHAT_GRANITE, NO_THINK},
         "",
         "<|tool_call|>[{\"name\": \"sub\", \"arguments\": {}}]<|/tool_call|>",
         "[#sub|{}]"},
        {{CHAT_GRANITE, NO_THINK}, "", "<|tool_call|>none", "C:<|tool_call|>none"},
    };
    check(answers, ARRAY_LEN(answers));
}

static void command(void **state) {
    (void)state;
    static const struct answer answers[] = {
        {{CHAT_COMMAND_A, COMMAND},
         "<|CHATBOT_TOKEN|><|START_THINKING|>",
         "I will add.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
         "\"tool_name\": \"add\", \"parameters\": {\"a\": 1}},\n    {\"tool_call_id\": \"1\", "
         "\"tool_name\": \"sub\", \"parameters\": {}}\n]<|END_ACTION|>",
         "R:I will add.[#add|{\"a\": 1}][#sub|{}]"},
        {{CHAT_COMMAND_A, COMMAND},
         "<|START_THINKING|><|END_THINKING|>",
         "<|START_RESPONSE|>It is 3.<|END_RESPONSE|>",
         "C:It is 3."},
        {{CHAT_COMMAND_A, NORTH},
         "<|START_THINKING|>",
         "hm<|END_THINKING|><|START_TEXT|>First I add.<|END_TEXT|><|START_ACTION|>[{\"tool_name\": "
         "\"sub\", \"parameters\": {}}]<|END_ACTION|>",
         "R:hmC:First I add.[#sub|{}]"},
        {{CHAT_COMMAND_A, COMMAND},
         "",
         "<|START_ACTION|>[]<|END_ACTION|>",
         "C:<|START_ACTION|>[]<|END_ACTION|>"},
        {{CHAT_COMMAND_R, NO_THINK},
         "",
         "I will add.\nAction:\n```json\n[\n    {\n        \"tool_name\": \"add\",\n        "
         "\"parameters\": {\n            \"a\": 1\n        }\n    },\n    {\"tool_name\": \"sub\", "
         "\"parameters\": {}}\n]```\n",
         "C:I will add.[#add|{\n            \"a\": 1\n        }][#sub|{}]"},
        {{CHAT_COMMAND_R, NO_THINK},
         "",
         "Action: ```json\n[{\"tool_name\": \"directly-answer\", \"parameters\": {}}]\n```",
         "C:Action: ```json\n[{\"tool_name\": \"directly-answer\", \"parameters\": {}}]\n```"},
        {{CHAT_COMMAND_R, NO_THINK}, "", "Action: none. [x]", "C:Action: none. [x]"},
    };
    check(answers, ARRAY_LEN(answers));
}

static void apertus(void **state) {
    (void)state;
    static const struct answer answers[] = {
        {{CHAT_APERTUS, APERTUS},
         "<|assistant_start|>",
         "<|inner_prefix|>hm<|inner_suffix|>So.<|tools_prefix|>[{\"add\": {\"a\": 1}}, {\"sub\": "
         "{}}]<|tools_suffix|>",
         "R:hmC:So.[#add|{\"a\": 1}][#sub|{}]"},
        {{CHAT_APERTUS, APERTUS},
         "",
         "<|inner_prefix|>hm <|tools_prefix|>[{\"sub\": {}, \"add\": {\"code\": \"{\"}}]",
         "R:hm[#sub|{}][#add|{\"code\": \"{\"}]"},
        {{CHAT_APERTUS, APERTUS},
         "",
         "<|tools_prefix|>[{\"add\": 5}]<|tools_suffix|>",
         "C:<|tools_prefix|>[{\"add\": 5}]<|tools_suffix|>"},
        {{CHAT_APERTUS, APERTUS},
         "",
         "<|tools_prefix|>[{\"add\": {}, \"b\": 5}]<|tools_suffix|>",
         "[#add|{}]C:5}]<|tools_suffix|>"},
    };
    check(answers, ARRAY_LEN(answers));
}

static void functionary(void **state) {
    (void)state;
    static const struct answer answers[] = {
        {{CHAT_FUNCTIONARY, NO_THINK},
         "",
         "So.<function=add>{\"a\": 1, \"code\": \"</function>\"}</function><function=sub>{}"
         "</function>",
         "C:So.[#add|{\"a\": 1, \"code\": \"</function>\"}][#sub|{}]"},
        {{CHAT_FUNCTIONARY, NO_THINK},
         "",
         "In <function=main at 0x1> and <function=add> there.",
         "C:In <function=main at 0x1> and <function=add> there."},
        {{CHAT_FUNCTIONARY_V32, NO_THINK},
         "<|end_header_id|>\n\n>>>",
         "all\nI will add.>>>add\n{\"a\": 1}>>>sub\n{}",
         "C:I will add.[#add|{\"a\": 1}][#sub|{}]"},
        {{CHAT_FUNCTIONARY_V32, NO_THINK}, ">>>", "sub\n{}", "[#sub|{}]"},
        {{CHAT_FUNCTIONARY_V32, NO_THINK}, ">>>", "all\n>>> print(1)\n1", "C:>>> print(1)\n1"},
        {{CHAT_FUNCTIONARY_V32, NO_THINK}, "", ">>>all\nyes", "C:yes"},
        {{CHAT_FUNCTIONARY_V32, NO_THINK}, ">>>", "other\n{}", "C:other\n{}"},
        {{CHAT_FUNCTIONARY_V32, NO_THINK}, ">>>", "add\nnothing", "C:add\nnothing"},
        {{CHAT_FUNCTIONARY_V32, NO_THINK}, ">>>", "al", "C:al"},
        {{CHAT_FIREFUNCTION, NO_THINK},
         "",
         " functools[{\"name\": \"add\", \"arguments\": {\"a\": 7.0}}, {\"name\": \"sub\", "
         "\"arguments\": {}}]",
         "[#add|{\"a\": 7.0}][#sub|{}]"},
        {{CHAT_FIREFUNCTION, NO_THINK},
         "",
         "import functools\n@functools.cache",
         "C:import functools\n@functools.cache"},
    };
    check(answers, ARRAY_LEN(answers));
}

static void functionary_speaks_to_all_without_tools(void **state) {
    (void)state;
    struct chat_parse_options o = {
        .style = {CHAT_FUNCTIONARY_V32, NO_THINK}, .prompt = ">>>", .prompt_len = 3};
    assert_string_equal(parse(&o, "all\nHello", 9)->text, "C:Hello");
    assert_string_equal(parse(&o, "add\n{}", 6)->text, "C:add\n{}");
}

/* Without a section around it, and in a thought that was not closed. */
static void kimi(void **state) {
    (void)state;
#define CALL(id, arguments) \
    "<|tool_call_begin|>" id "<|tool_call_argument_begin|>" arguments "<|tool_call_end|>"
    static const struct answer answers[] = {
        {{CHAT_KIMI, NO_THINK},
         "",
         "So. " CALL("functions.add:0", "{\"a\": 1}") CALL("functions.sub:1", "{}"),
         "C:So.[functions.add:0#add|{\"a\": 1}][functions.sub:1#sub|{}]"},
        {{CHAT_KIMI, THINK},
         "<think>",
         "hm " CALL("functions.sub:0", "{}") "<|tool_calls_section_end|>",
         "R:hm[functions.sub:0#sub|{}]"},
        {{CHAT_KIMI, THINK},
         "<think>",
         "hm <|tool_calls_section_begin|>" CALL("functions.sub:0",
                                                "{}") "<|tool_calls_section_end|></think>yes",
         "R:hm[functions.sub:0#sub|{}]C:yes"},
        {{CHAT_KIMI, NO_THINK},
         "",
         "<|tool_call_begin|> begins one",
         "C:<|tool_call_begin|> begins one"},
    };
#undef CALL
    check(answers, ARRAY_LEN(answers));
}

/* Of two channels in a header the second counts. */
static void harmony(void **state) {
    (void)state;
    static const struct answer answers[] = {
        {{CHAT_HARMONY, NO_THINK},
         "<|start|>assistant",
         "<|channel|>commentary to=assistant<|channel|>analysis<|message|>Hm.<|end|>"
         "<|start|>assistant<|channel|>final<|message|>Yes.",
         "R:Hm.C:Yes."},
        {{CHAT_HARMONY, NO_THINK},
         "<|start|>assistant<|channel|>commentary to=assistant",
         "<|channel|>analysis<|message|>Hm.<|end|>",
         "R:Hm."},
    };
    check(answers, ARRAY_LEN(answers));
}

static void minimax_m3(void **state) {
    (void)state;
#define NS "]<]minimax[>["
#define MM "<mm:think>", "</mm:think>", "", ""
#define CALLS(calls) NS "<tool_call>\n" calls NS "</tool_call>"
#define INVOKE(name, arguments) NS "<invoke name=\"" name "\">" arguments NS "</invoke>\n"
#define TAG(name, text) NS "<" name ">" text NS "</" name ">"
    static const struct answer answers[] = {
        {{CHAT_MINIMAX_M3, MM},
         "<mm:think>",
         "hm</mm:think>So.\n" CALLS(INVOKE("add", TAG("a", "1") TAG("code", " <b>\n 5"))
                                        INVOKE("sub", "")) " done",
         "R:hmC:So.[#add|{\"a\": 1, \"code\": \" <b>\\n 5\"}][#sub|{}]C:\ndone"},
        {{CHAT_MINIMAX_M3, NO_THINK},
         "",
         CALLS(INVOKE("typed", TAG("any", "5") TAG("flag", "true") TAG(
                                   "l", TAG("item", "1") "\n" TAG(
                                            "item", TAG("k", "v") TAG("m", TAG("item", "x"))))
                                   TAG("e", ""))),
         "[#typed|{\"any\": \"5\", \"flag\": true, \"l\": [1, {\"k\": \"v\", \"m\": "
         "[\"x\"]}], \"e\": \"\"}]"},
        /* left open */
        {{CHAT_MINIMAX_M3, NO_THINK},
         "",
         NS "<tool_call>" NS "<invoke name=\"add\">" NS "<l>" NS "<item>1",
         "[#add|{\"l\": [1]}]"},
        {{CHAT_MINIMAX_M3, NO_THINK},
         "",
         CALLS(NS "<invoke name=\"add\">" TAG("a", "1")) "so",
         "[#add|{\"a\": 1}]C:so"},
        {{CHAT_MINIMAX_M3, NO_THINK}, "", CALLS("none"), "C:" CALLS("none")},
        {{CHAT_MINIMAX_M3, NO_THINK},
         "",
         CALLS(INVOKE("add", TAG("code", "a " NS " b"))),
         "[#add|{\"code\": \"a " NS " b\"}]"},
        {{CHAT_NEMOTRON, THINK},
         "<think>\n",
         "hm</think>\n<TOOLCALL>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": "
         "\"sub\", \"arguments\": {}}]</TOOLCALL>",
         "R:hm[#add|{\"a\": 1}][#sub|{}]"},
        {{CHAT_TOOL_CALLS, NO_THINK},
         "",
         "<tool_calls>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n{\"name\": \"sub\", "
         "\"arguments\": {}}\n</tool_calls>",
         "[#add|{\"a\": 1}][#sub|{}]"},
    };
#undef NS
#undef MM
#undef CALLS
#undef INVOKE
#undef TAG
    check(answers, ARRAY_LEN(answers));
}

/* What max_tokens leaves of a call must not parse. */
static void cut_calls_do_not_look_whole(void **state) {
    (void)state;
    static const struct answer answers[] = {
        {{CHAT_GEMMA, NO_THINK}, "", "<|tool_call>call:add{a:12", "[#add|{\"a\": 12]"},
        {{CHAT_GEMMA, NO_THINK},
         "",
         "<|tool_call>call:add{code:" Q "aa",
         "[#add|{\"code\": \"aa]"},
        {{CHAT_LFM2, NO_THINK},
         "",
         "<|tool_call_start|>[add(a=[1, 2], code='a",
         "[#add|{\"a\": [1, 2], \"code\": \"a]"},
        {{CHAT_APERTUS, NO_THINK},
         "",
         "<|tools_prefix|>[{\"add\": {\"a\": 1",
         "[#add|{\"a\": 1]"},
        {{CHAT_FUNCTIONARY, NO_THINK}, "", "<function=add>{\"a\": 1", "[#add|{\"a\": 1]"},
        {{CHAT_DSML, NO_THINK},
         "",
         "<｜DSML｜tool_calls><｜DSML｜invoke name=\"add\"><｜DSML｜parameter name=\"code\" "
         "string=\"true\">aa",
         "[#add|{\"code\": \"aa]"},
    };
    cut_off = true;
    check(answers, ARRAY_LEN(answers));
    cut_off = false;
}

/* Arguments come in pieces as the text does, not at the end. */
static void arguments_are_streamed(void **state) {
    (void)state;
    static const struct streamed cases[] = {
        {CHAT_GEMMA, "<|tool_call>call:add{code:" Q "long long long text" Q "}<tool_call|>"},
        {CHAT_LFM2, "<|tool_call_start|>[add(code='long long long text')]<|tool_call_end|>"},
        {CHAT_APERTUS, "<|tools_prefix|>[{\"add\": {\"code\": \"long long long text\"}}]"},
        {CHAT_FUNCTIONARY, "<function=add>{\"code\": \"long long long text\"}</function>"},
        {CHAT_DSML, "<｜DSML｜tool_calls><｜DSML｜invoke name=\"add\"><｜DSML｜parameter "
                    "name=\"code\" string=\"true\">long long long text</｜DSML｜parameter>"
                    "</｜DSML｜invoke></｜DSML｜tool_calls>"},
    };
    check_streamed(cases, ARRAY_LEN(cases));
}

/* Of the templates: the format, and what thoughts and answers are framed by. */
static void templates_tell(void **state) {
    (void)state;
    static const struct {
        const char *name;
        struct chat_style style;
    } cases[] = {
        {"google-gemma-4-31B-it", {CHAT_GEMMA, GEMMA}},
        {"deepseek-ai-DeepSeek-V3.2", {CHAT_DSML_V32, THINK}},
        {"deepseek-ai-DeepSeek-V4", {CHAT_DSML, THINK}},
        {"ibm-granite-granite-3.3-2B-Instruct", {CHAT_GRANITE, GRANITE}},
        {"ibm-granite-granite-4.0", {CHAT_HERMES, NO_THINK}},
        {"ByteDance-Seed-OSS", {CHAT_SEED, SEED}},
        {"LFM2-8B-A1B", {CHAT_LFM2, NO_THINK}},
        {"LFM2.5-8B-A1B", {CHAT_LFM2, THINK}},
        {"CohereForAI-c4ai-command-r-plus-tool_use", {CHAT_COMMAND_R, NO_THINK}},
        {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", {CHAT_COMMAND_A, COMMAND}},
        {"Cohere2MoE", {CHAT_COMMAND_A, NORTH}},
        {"Apertus-8B-Instruct", {CHAT_APERTUS, APERTUS}},
        {"meetkai-functionary-medium-v3.1", {CHAT_FUNCTIONARY, NO_THINK}},
        {"meetkai-functionary-medium-v3.1-old", {CHAT_FUNCTIONARY, NO_THINK}},
        {"meetkai-functionary-medium-v3.2", {CHAT_FUNCTIONARY_V32, NO_THINK}},
        {"fireworks-ai-llama-3-firefunction-v2", {CHAT_FIREFUNCTION, NO_THINK}},
        {"MiniMax-M2", {CHAT_MINIMAX, THINK}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct template *t;
        char *source = read_template(cases[i].name, &t);
        struct chat_style is = chat_style_detect(source, NULL, NULL),
                          *should = (void *)&cases[i].style;
        if (is.format != should->format)
            print_message("%s: %s\n", cases[i].name, chat_format_name(is.format));
        assert_int_equal(is.format, should->format);
        assert_string_equal(is.think_begin, should->think_begin);
        assert_string_equal(is.think_end, should->think_end);
        assert_string_equal(is.answer_begin, should->answer_begin);
        assert_string_equal(is.answer_end, should->answer_end);
        template_close(t);
        free(source);
    }
}

int main(void) {
    golden_or_skip("chat-templates/conversations.json");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemma),
        cmocka_unit_test(lfm2),
        cmocka_unit_test(dsml),
        cmocka_unit_test(seed),
        cmocka_unit_test(granite),
        cmocka_unit_test(command),
        cmocka_unit_test(apertus),
        cmocka_unit_test(functionary),
        cmocka_unit_test(functionary_speaks_to_all_without_tools),
        cmocka_unit_test(minimax_m3),
        cmocka_unit_test(kimi),
        cmocka_unit_test(harmony),
        cmocka_unit_test(cut_calls_do_not_look_whole),
        cmocka_unit_test(arguments_are_streamed),
        cmocka_unit_test(templates_tell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
