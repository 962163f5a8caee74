/* Kimi K3's answers: frames of tokens around thoughts, the answer and calls, whose arguments say
 * what they are. The texts are what the model's own template writes (golden/chat-templates), and
 * what becomes of them when a part is missing. Each is fed in pieces of every kind
 * (chat_record.h), and what is read from whole ones is rendered back to the same text. */
#include "chat/chat.h"

#include "chat_record.h"
#include "chat_vocabulary.h"

#define OPEN(tag) "<|open|>" tag "<|sep|>"
#define CLOSE(tag) "<|close|>" tag "<|sep|>"
#define FRAME(tag, text) OPEN(tag) text CLOSE(tag)
#define CALL(name, n, arguments) \
    OPEN("call tool=\"" name "\" index=\"" n "\"") arguments CLOSE("call")
#define ARGUMENT(key, type, value) \
    OPEN("argument key=\"" key "\" type=\"" type "\"") value CLOSE("argument")
#define BLOCK(json) OPEN("json type=\"object\"") json CLOSE("json")
#define MESSAGE CLOSE("message")

#define THINKS OPEN("message role=\"assistant\"") OPEN("think")
#define ANSWERS OPEN("message role=\"assistant\"") OPEN("response")

static struct chat *chat;
static json_t *tools;

static int set_up(void **state) {
    (void)state;
    struct template *compiled;
    const char *special = "<x>";
    char *source = read_template("Kimi-K3", &compiled);
    struct tokenizer *t = vocabulary(&special, 1);
    struct err err = {.text = ""};
    json_error_t e;
    assert_int_equal(chat_open(&chat, t, source, strlen(source), &err), ST_OK);
    tools = json_loads(tools_text, 0, &e);
    template_close(compiled);
    tokenizer_close(t);
    free(source);
    return tools == NULL;
}

static int tear_down(void **state) {
    (void)state;
    chat_close(chat);
    json_decref(tools);
    return 0;
}

static const struct record *read_answer(const char *prompt, const char *text, bool with_tools) {
    struct chat_parse_options o = {.style = chat_style(chat),
                                   .prompt = prompt,
                                   .prompt_len = strlen(prompt),
                                   .tools = with_tools ? tools : NULL};
    return parse(&o, text, strlen(text));
}

struct answer {
    const char *prompt, *text, *expected;
};

static void check(const struct answer *answers, size_t n, bool with_tools) {
    for (size_t i = 0; i < n; i++) {
        const struct answer *a = &answers[i];
        const struct record *r = read_answer(a->prompt, a->text, with_tools);
        if (strcmp(r->text, a->expected) != 0)
            print_message("%s\n", a->text);
        assert_string_equal(r->text, a->expected);
    }
}

static void the_template_tells(void **state) {
    (void)state;
    const struct chat_style s = chat_style(chat);
    assert_int_equal(s.format, CHAT_KIMI_K3);
    assert_string_equal(chat_format_name(s.format), "kimi-k3");
    assert_string_equal(s.think_begin, OPEN("think"));
    assert_string_equal(s.think_end, CLOSE("think"));
    assert_string_equal(s.answer_begin, OPEN("response"));
    assert_string_equal(s.answer_end, CLOSE("response"));
}

/* ---- whole answers ----------------------------------------------------------------------- */

static const struct answer whole[] = {
    {THINKS, "Hm.\n" CLOSE("think") FRAME("response", " It is 4. ") MESSAGE,
     "R:Hm.\nC: It is 4. "},
    {THINKS, CLOSE("think") FRAME("response", "yes") MESSAGE, "C:yes"},
    {ANSWERS, "\n a < b <|x|>\n" CLOSE("response") MESSAGE, "C:\n a < b <|x|>\n"},
    {THINKS,
     "Sum." CLOSE("think") FRAME("response", "I add.\n")
         FRAME("tools", CALL("add", "1",
                             ARGUMENT("a", "number", "1")
                                 ARGUMENT("code", "string", "\n if \"x\" < y:\t\\n "))) MESSAGE,
     "R:Sum.C:I add.\n[#add|{\"a\": 1, \"code\": \"\\n if \\\"x\\\" < y:\\t\\\\n \"}]"},
    /* several calls, no arguments, every type, values within values */
    {THINKS,
     CLOSE("think") FRAME("response", "")
         FRAME("tools",
               CALL("sub", "1", "") CALL(
                   "typed", "2",
                   ARGUMENT("any", "null", "null") ARGUMENT("flag", "boolean", "true")
                       ARGUMENT("maybe", "number", "-1.5") ARGUMENT(
                           "o", "object", "{\"k\": [1, {\"m\": \"<|close|>\"}], \"é\": \"ü\"}")
                           ARGUMENT("l", "array", "[]") ARGUMENT("e", "object", "{}"))
                   CALL("sub", "3", ARGUMENT("s", "string", ""))) MESSAGE,
     "[#sub|{}][#typed|{\"any\": null, \"flag\": true, \"maybe\": -1.5, \"o\": {\"k\": [1, {\"m\": "
     "\"<|close|>\"}], \"é\": \"ü\"}, \"l\": [], \"e\": {}}][#sub|{\"s\": \"\"}]"},
    /* a string is one whatever it looks like, and whatever the function says */
    {ANSWERS,
     CLOSE("response") FRAME("tools", CALL("add", "1",
                                           ARGUMENT("a", "string", "5")
                                               ARGUMENT("code", "string", "null"))) MESSAGE,
     "[#add|{\"a\": \"5\", \"code\": \"null\"}]"},
    /* names with what an attribute has to escape */
    {ANSWERS,
     CLOSE("response") FRAME(
         "tools", CALL("mcp:a.b/c", "1", ARGUMENT("a&quot;b&amp;quot;", "string", "&amp;")))
         MESSAGE,
     "[#mcp:a.b/c|{\"a\\\"b&quot;\": \"&amp;\"}]"},
};

/* The message that the record tells of, as a client sends it back. */
struct message {
    json_t *message, *calls;
    char text[1 << 12];
    int last;
};

static void end_text(struct message *m) {
    json_t *function =
        json_object_get(json_array_get(m->calls, json_array_size(m->calls) - 1), "function");
    if (m->last == CHAT_REASONING)
        json_object_set_new(m->message, "reasoning_content", json_string(m->text));
    else if (m->last == CHAT_CONTENT)
        json_object_set_new(m->message, "content", json_string(m->text));
    else if (m->last == CHAT_ARGUMENTS)
        json_object_set_new(function, "arguments", json_string(m->text));
    m->text[0] = '\0';
}

static void add_event(void *arg, const struct chat_event *e) {
    struct message *m = arg;
    char id[16];
    if (m->last != (int)e->kind)
        end_text(m);
    m->last = (int)e->kind;
    if (e->kind == CHAT_CALL_BEGIN) {
        snprintf(id, sizeof id, "call_%zu", e->call);
        json_array_append_new(m->calls,
                              json_pack("{s:s, s:s, s:{s:s%}}", "id", id, "type", "function",
                                        "function", "name", e->text, e->len));
    } else {
        strncat(m->text, e->text, e->len);
    }
}

static json_t *message_of(const char *prompt, const char *text) {
    struct message m = {.calls = json_array(), .last = -1};
    struct chat_parse_options o = {.style = chat_style(chat),
                                   .prompt = prompt,
                                   .prompt_len = strlen(prompt),
                                   .tools = tools,
                                   .on_event = add_event,
                                   .arg = &m};
    struct chat_parser *p;
    struct err err;
    m.message =
        json_pack("{s:s, s:s, s:O}", "role", "assistant", "content", "", "tool_calls", m.calls);
    assert_int_equal(chat_parser_open(&p, &o, &err), ST_OK);
    assert_int_equal(chat_parser_put(p, text, strlen(text), &err), ST_OK);
    assert_int_equal(chat_parser_end(p, false, &err), ST_OK);
    chat_parser_close(p);
    end_text(&m);
    json_decref(m.calls);
    return m.message;
}

static char *render_chat(json_t *messages, bool thinking, bool prompt) {
    json_t *extra = json_pack("{s:b}", "thinking", thinking);
    const struct chat_request request = {.messages = messages,
                                         .tools = tools,
                                         .extra = extra,
                                         .add_generation_prompt = prompt,
                                         .now = &golden_clock};
    char *text;
    size_t len;
    struct err err = {.text = ""};
    if (chat_render(chat, &request, &text, &len, &err) != ST_OK)
        fail_msg("%s", err.text);
    json_decref(extra);
    return text;
}

static void whole_answers_come_back(void **state) {
    (void)state;
    check(whole, ARRAY_LEN(whole), true);
    for (size_t i = 0; i < ARRAY_LEN(whole); i++) {
        bool thinking = strcmp(whole[i].prompt, THINKS) == 0;
        json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "Sum");
        char *prompt = render_chat(messages, thinking, true);
        json_array_append_new(messages, message_of(prompt, whole[i].text));
        char *all = render_chat(messages, thinking, false);
        size_t n = strlen(prompt);
        assert_memory_equal(all, prompt, n);
        assert_int_equal(strncmp(all + n, whole[i].text, strlen(whole[i].text)), 0);
        assert_string_equal(all + n + strlen(whole[i].text), "<|end_of_msg|>");
        mem_free(prompt);
        mem_free(all);
        json_decref(messages);
    }
}

/* ---- others ------------------------------------------------------------------------------ */

static void all_arguments_in_a_block(void **state) {
    (void)state;
    static const struct answer answers[] = {
        {ANSWERS,
         CLOSE("response")
             FRAME("tools", CALL("add", "1", BLOCK("{\"a\": 1, \"code\": \"<|close|>\"}"))
                                CALL("sub", "2", BLOCK(" {} "))) MESSAGE,
         "[#add|{\"a\": 1, \"code\": \"<|close|>\"}][#sub|{}]"},
        {ANSWERS, CLOSE("response") FRAME("tools", CALL("add", "1", BLOCK(""))), "[#add|{}]"},
        /* without its end */
        {ANSWERS,
         CLOSE("response")
             FRAME("tools", CALL("add", "1", OPEN("json type=\"object\"") "{\"a\": 1}")),
         "[#add|{\"a\": 1}]"},
        /* not beside others */
        {ANSWERS,
         CLOSE("response") FRAME("tools", CALL("add", "1", BLOCK("{\"a\": 1}") "x")) MESSAGE,
         "[#add|{\"a\": 1}]C:x" CLOSE("call")},
    };
    check(answers, ARRAY_LEN(answers), true);
}

/* No tag is text, wherever the model stops, and where it leaves one out. */
static void frames_that_are_broken(void **state) {
    (void)state;
    static const struct answer answers[] = {
        /* the thought is not closed */
        {THINKS, "hm" FRAME("response", "yes") MESSAGE, "R:hmC:yes"},
        {THINKS, "hm" FRAME("tools", CALL("sub", "1", "")) MESSAGE, "R:hm[#sub|{}]"},
        {THINKS, "hm" MESSAGE, "R:hm"},
        {THINKS, OPEN("think") "hm" CLOSE("think") FRAME("response", "yes"), "R:hmC:yes"},
        /* nor the answer */
        {ANSWERS, "so" FRAME("tools", CALL("sub", "1", "")) MESSAGE, "C:so[#sub|{}]"},
        {ANSWERS, "so" MESSAGE, "C:so"},
        {ANSWERS, "so", "C:so"},
        /* no frame at all, between frames, after all of them */
        {"", "yes ", "C:yes "},
        {THINKS, "hm" CLOSE("think") "\n yes", "R:hmC:yes"},
        {THINKS,
         "hm" CLOSE("think") "\n" FRAME("response", "yes") "\n" FRAME("tools", "") " " MESSAGE
                                                                                   "\n",
         "R:hmC:yes"},
        {ANSWERS,
         CLOSE("response") FRAME("tools", CALL("sub", "1", "")) FRAME("response", " so"),
         "[#sub|{}]C: so"},
        /* thoughts after the answer are thoughts */
        {ANSWERS, "a" CLOSE("response") FRAME("think", "hm") FRAME("response", "b"),
         "C:aR:hmC:b"},
        /* stopped within a tag */
        {THINKS, "hm<|close|>th", "R:hm"},
        {THINKS, "hm<|clo", "R:hm<|clo"},
        {ANSWERS, "yes<|close|>respon", "C:yes"},
        {ANSWERS, "yes" CLOSE("response") "<|close|>", "C:yes"},
        {ANSWERS, "yes" CLOSE("response") "<|open|>too", "C:yes"},
        /* what is no call */
        {ANSWERS, CLOSE("response") FRAME("tools", "add 1") MESSAGE,
         "C:" OPEN("tools") "add 1"},
        {ANSWERS, CLOSE("response") FRAME("tools", CALL("a b", "1", "")) MESSAGE,
         "C:" OPEN("tools") CALL("a b", "1", "")},
        /* other attributes, or none; what the value is, the function says then */
        {ANSWERS,
         FRAME("tools",
               OPEN("call tool=\"add\"") OPEN("argument key=\"a\"") "1" CLOSE("argument")
                   OPEN("argument key=\"code\" x=\"y\"") "2" CLOSE("argument") CLOSE("call")),
         "[#add|{\"a\": 1, \"code\": \"2\"}]"},
        {ANSWERS, FRAME("tools", CALL("add", "1", ARGUMENT("a", "number", "one"))),
         "[#add|{\"a\": \"one\"}]"},
        /* ends that are left out */
        {ANSWERS,
         FRAME("tools", OPEN("call tool=\"add\" index=\"1\"") ARGUMENT("a", "number", "1")
                            CALL("sub", "2", "")),
         "[#add|{\"a\": 1}][#sub|{}]"},
        {ANSWERS,
         FRAME("tools", CALL("add", "1", OPEN("argument key=\"a\" type=\"number\"") "1")) "so",
         "[#add|{\"a\": 1}]C:so"},
        {ANSWERS,
         OPEN("tools") OPEN("call tool=\"add\" index=\"1\"")
             OPEN("argument key=\"code\" type=\"string\"") "x<|close|>argu",
         "[#add|{\"code\": \"x\"}]"},
        {ANSWERS,
         OPEN("tools") OPEN("call tool=\"add\" index=\"1\"") "<|open|>argument key=\"co",
         "[#add|{}]"},
    };
    check(answers, ARRAY_LEN(answers), true);
}

static void cut_calls_do_not_look_whole(void **state) {
    (void)state;
#define BEGUN OPEN("tools") OPEN("call tool=\"add\" index=\"1\"")
    static const struct answer answers[] = {
        {ANSWERS, BEGUN OPEN("argument key=\"a\" type=\"number\"") "12", "[#add|{\"a\": 12]"},
        {ANSWERS, BEGUN OPEN("argument key=\"code\" type=\"string\"") "aa<|close|>a",
         "[#add|{\"code\": \"aa]"},
        {ANSWERS, BEGUN ARGUMENT("a", "number", "1") "<|open|>argument key=\"c",
         "[#add|{\"a\": 1]"},
        {ANSWERS, BEGUN ARGUMENT("a", "number", "1"), "[#add|{\"a\": 1]"},
        {ANSWERS, BEGUN OPEN("json type=\"object\"") "{\"a\": 1", "[#add|{\"a\": 1]"},
        {ANSWERS, BEGUN "<|close|>ca", "[#add]"},
    };
#undef BEGUN
    cut_off = true;
    check(answers, ARRAY_LEN(answers), true);
    cut_off = false;
}

/* The frames are there without tools, too; what looks like a call is text. */
static void without_tools(void **state) {
    (void)state;
    static const struct answer answers[] = {
        {THINKS, "hm" CLOSE("think") FRAME("response", "yes") MESSAGE, "R:hmC:yes"},
        {ANSWERS, "yes" CLOSE("response") FRAME("tools", CALL("sub", "1", "")) MESSAGE,
         "C:yes" FRAME("tools", CALL("sub", "1", ""))},
    };
    check(answers, ARRAY_LEN(answers), false);
}

/* The prompt ends with the answer so far; earlier turns' frames are closed. */
static void a_begun_answer_goes_on(void **state) {
    (void)state;
    static const struct answer answers[] = {
        {ANSWERS "It is", " 4.\n" CLOSE("response") MESSAGE, "C: 4.\n"},
        {ANSWERS "a" CLOSE("response") MESSAGE THINKS, "hm" CLOSE("think"), "R:hm"},
        {THINKS "a" CLOSE("think") FRAME("response", "b") MESSAGE ANSWERS, "c ", "C:c "},
    };
    check(answers, ARRAY_LEN(answers), true);
    check(answers, ARRAY_LEN(answers), false);
}

static void arguments_are_streamed(void **state) {
    (void)state;
    static const struct streamed cases[] = {
        {CHAT_KIMI_K3,
         FRAME("tools", CALL("add", "1", ARGUMENT("code", "string", "long long long text")))},
        {CHAT_KIMI_K3,
         FRAME("tools", CALL("add", "1", BLOCK("{\"code\": \"long long long text\"}")))},
    };
    check_streamed(cases, ARRAY_LEN(cases));
}

int main(void) {
    golden_or_skip("chat-templates/conversations.json");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_template_tells),
        cmocka_unit_test(whole_answers_come_back),
        cmocka_unit_test(all_arguments_in_a_block),
        cmocka_unit_test(frames_that_are_broken),
        cmocka_unit_test(cut_calls_do_not_look_whole),
        cmocka_unit_test(without_tools),
        cmocka_unit_test(a_begun_answer_goes_on),
        cmocka_unit_test(arguments_are_streamed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
