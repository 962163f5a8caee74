/* constraint.c: adapts grammar matchers to the engine's interface.
 *
 * The choices of one request share a grammar and its cached states and masks. A server thread
 * creates it and hands it to the engine with the request. The engine never calls two of a
 * request's functions at once, so neither the grammar nor its reference count needs a lock. */
#include "server/constraint.h"

#include "base/mem.h"
#include "base/util.h"
#include "grammar/gbnf.h"
#include "grammar/grammar.h"
#include "schema/json_schema.h"
#include "server/typed_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIGGER_MAX 64
#define OPENING_MAX 8
#define FIRST_MASK_WORK (1 << 21) /* some milliseconds */

struct shared_grammar {
    struct grammar *g;
    const struct token_trie *trie;
    char trigger[TRIGGER_MAX];
    int32_t call;                 /* the token that may replace the answer; TOKEN_NONE: none */
    int32_t opening[OPENING_MAX]; /* [n_opening] the tokens that the answer begins with */
    size_t n_opening;
    bool ignore_end;
    int n_holders;
};

struct constraint {
    struct shared_grammar *shared;
    struct grammar_matcher *matcher;
    bool waiting;    /* for the trigger */
    bool begun;      /* the answer */
    size_t n_opened; /* tokens of the opening */
    bool free;       /* no more is asked: calls, or what followed the trigger does not fit */
    char tail[TRIGGER_MAX]; /* the end of the text while waiting */
    size_t n_tail;
};

/* ---- the engine's functions -------------------------------------------------------------- */

static void fill_all_but_ends(const struct token_trie *trie, uint64_t *mask) {
    size_t n = (size_t)trie->n_tokens;
    memset(mask, 0xff, n / 64 * sizeof *mask);
    if (n % 64 != 0)
        mask[n / 64] = (UINT64_C(1) << n % 64) - 1;
    token_mask_clear_ends(trie, mask);
}

/* What the grammar allows, but for ends that are to be ignored. */
static void fill_from_grammar(const struct constraint *c, const uint64_t *allowed,
                              uint64_t *mask) {
    const struct token_trie *trie = c->shared->trie;
    size_t size = div_up((size_t)trie->n_tokens, 64) * sizeof *mask;
    memcpy(mask, allowed, size);
    if (!c->shared->ignore_end)
        return;
    token_mask_clear_ends(trie, mask);
    if (token_mask_is_empty(trie, mask)) /* the text is complete */
        memcpy(mask, allowed, size);
}

static void add_call_token(const struct constraint *c, uint64_t *mask) {
    int32_t call = c->shared->call;
    if (call >= 0 && !c->begun)
        mask[call / 64] |= UINT64_C(1) << (call % 64);
}

/* Whether only the opening may come now. */
static bool wants_opening(const struct constraint *c) {
    return c->n_opened < c->shared->n_opening && !c->waiting;
}

static void fill_opening(const struct constraint *c, uint64_t *mask) {
    int32_t id = c->shared->opening[c->n_opened];
    memset(mask, 0, div_up((size_t)c->shared->trie->n_tokens, 64) * sizeof *mask);
    mask[id / 64] = UINT64_C(1) << (id % 64);
}

static enum engine_allows constraint_mask(void *state, uint64_t *mask, struct err *err) {
    struct constraint *c = state;
    const uint64_t *allowed;
    if (c->free)
        return ENGINE_ALLOWS_ALL;
    if (wants_opening(c)) {
        fill_opening(c, mask);
        return ENGINE_ALLOWS_SOME;
    }
    if (c->waiting)
        fill_all_but_ends(c->shared->trie, mask);
    else if (grammar_matcher_mask(c->matcher, &allowed, err) != ST_OK)
        return ENGINE_ALLOWS_NONE;
    else
        fill_from_grammar(c, allowed, mask);
    add_call_token(c, mask);
    return ENGINE_ALLOWS_SOME;
}

/* Looks for the trigger's end byte by byte. Returns how many bytes it and the white space behind
 * it end at; what follows in the same token is the grammar's. */
static size_t watch_for_trigger(struct constraint *c, const char *bytes, size_t len) {
    const char *trigger = c->shared->trigger;
    size_t want = strlen(trigger);
    for (size_t i = 0; i < len; i++) {
        if (c->n_tail == want) {
            memmove(c->tail, c->tail + 1, want - 1);
            c->n_tail--;
        }
        c->tail[c->n_tail++] = bytes[i];
        if (c->n_tail != want || memcmp(c->tail, trigger, want) != 0)
            continue;
        c->waiting = false;
        for (i++; i < len && strchr(" \t\r\n", bytes[i]) != NULL; i++)
            continue;
        return i;
    }
    return len;
}

static void constraint_accept(void *state, int32_t id) {
    struct constraint *c = state;
    if (c->free)
        return;
    if (!c->waiting && id == c->shared->call && !c->begun) {
        c->free = true;
        return;
    }
    if (!c->waiting) {
        c->begun = true;
        if (wants_opening(c))
            c->n_opened++;
        else
            grammar_matcher_accept(c->matcher, id);
        return;
    }
    struct gguf_str text = token_bytes(c->shared->trie->t, id, true);
    size_t used = watch_for_trigger(c, text.ptr, text.len);
    if (used < text.len) {
        bool opens = c->shared->n_opening > 0; /* it would have begun with a token of its own */
        c->begun = true;
        c->free = opens ||
                  !grammar_matcher_accept_bytes(c->matcher, text.ptr + used, text.len - used);
    }
}

/* One more token before the answer. False: perhaps the answer has begun, and c is as it was. */
static bool still_waits(struct constraint *c, int32_t id) {
    if (id == TOKEN_NONE)
        return true;
    struct gguf_str text = token_bytes(c->shared->trie->t, id, true);
    struct constraint next = *c;
    watch_for_trigger(&next, text.ptr, text.len);
    if (!next.waiting)
        return false;
    *c = next;
    return true;
}

static enum engine_allows constraint_known(void *state, int32_t id, uint64_t *mask) {
    struct constraint *c = state;
    const uint64_t *allowed;
    if (c->free)
        return ENGINE_ALLOWS_ALL;
    if (c->waiting) {
        if (!still_waits(c, id))
            return ENGINE_ALLOWS_UNKNOWN;
        fill_all_but_ends(c->shared->trie, mask);
    } else if (id != TOKEN_NONE && id == c->shared->call && !c->begun) {
        c->free = true;
        return ENGINE_ALLOWS_ALL;
    } else if (wants_opening(c)) {
        if (id != TOKEN_NONE)
            return ENGINE_ALLOWS_UNKNOWN;
        fill_opening(c, mask);
        return ENGINE_ALLOWS_SOME;
    } else if (!grammar_matcher_known(c->matcher, id, &allowed)) {
        return ENGINE_ALLOWS_UNKNOWN;
    } else {
        c->begun = c->begun || id != TOKEN_NONE;
        fill_from_grammar(c, allowed, mask);
    }
    add_call_token(c, mask);
    return ENGINE_ALLOWS_SOME;
}

static void constraint_free(void *state) {
    struct constraint *c = state;
    if (c == NULL)
        return;
    grammar_matcher_close(c->matcher);
    if (--c->shared->n_holders == 0) {
        grammar_close(c->shared->g);
        mem_free(c->shared);
    }
    mem_free(c);
}

static void *constraint_clone(const void *state) {
    const struct constraint *from = state;
    struct constraint *c = mem_calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    *c = *from;
    c->shared->n_holders++;
    if (grammar_matcher_open(&c->matcher, c->shared->g, NULL) != ST_OK) {
        c->matcher = NULL;
        constraint_free(c);
        return NULL;
    }
    grammar_matcher_copy(c->matcher, from->matcher);
    return c;
}

/* ---- opening ----------------------------------------------------------------------------- */

static enum status open_shared(struct constraint *c, const char *gbnf, bool of_schema,
                               struct err *err) {
    enum status st = grammar_open(&c->shared->g, gbnf, strlen(gbnf), c->shared->trie, err);
    if (st != ST_OK && of_schema && err->code == ERR_GRAMMAR_ENDLESS)
        return err_set_code(err, st, ERR_GRAMMAR_ENDLESS,
                            "the schema allows no value that could be written");
    if (st != ST_OK)
        return st;
    return grammar_matcher_open(&c->matcher, c->shared->g, err);
}

static int32_t find_token(const struct token_trie *trie, const char *text) {
    return text != NULL && *text != '\0' ? tokenizer_find(trie->t, text, strlen(text))
                                         : TOKEN_NONE;
}

/* False: no memory. */
static bool find_opening(struct shared_grammar *s, const char *text) {
    int32_t *ids = NULL;
    size_t n = 0;
    struct err ignored;
    s->opening[0] = find_token(s->trie, text);
    s->n_opening = s->opening[0] >= 0;
    if (text == NULL || s->n_opening > 0)
        return true;
    if (tokenize(s->trie->t, text, strlen(text), TOKENIZE_SPECIAL, &ids, &n, &ignored) != ST_OK)
        return false;
    s->n_opening = n <= OPENING_MAX ? n : 0;
    memcpy(s->opening, ids, s->n_opening * sizeof *ids);
    mem_free(ids);
    return true;
}

enum status constraint_open(struct engine_constraint *out, const struct constraint_rules *rules,
                            const struct token_trie *trie, struct err *err) {
    const char *trigger = rules->trigger;
    struct constraint *c = mem_calloc(1, sizeof *c);
    struct shared_grammar *shared = mem_calloc(1, sizeof *shared);
    if (shared != NULL)
        shared->trie = trie;
    if (c == NULL || shared == NULL || !find_opening(shared, rules->opening)) {
        mem_free(c);
        mem_free(shared);
        return err_set(err, ST_NO_MEMORY, "no memory for a grammar");
    }
    shared->n_holders = 1;
    shared->ignore_end = rules->ignore_end;
    snprintf(shared->trigger, sizeof shared->trigger, "%s", trigger != NULL ? trigger : "");
    shared->call = shared->n_opening == 0 ? find_token(trie, rules->call) : TOKEN_NONE;
    c->shared = shared;
    c->waiting = shared->trigger[0] != '\0';
    enum status st = open_shared(c, rules->gbnf, rules->of_schema, err);
    if (st == ST_OK && !c->waiting) /* the prompt need not wait for it */
        grammar_matcher_prepare(c->matcher, FIRST_MASK_WORK);
    if (st != ST_OK) {
        constraint_free(c);
        return st;
    }
    *out = (struct engine_constraint){.state = c,
                                      .mask = constraint_mask,
                                      .accept = constraint_accept,
                                      .known = constraint_known,
                                      .clone = constraint_clone,
                                      .free = constraint_free};
    return ST_OK;
}

/* ---- tool calls -------------------------------------------------------------------------- */

/* The schema of a function's arguments, a document of its own: what a $ref in it means is
 * within it. Of one without parameters an object. */
static const json_t *arguments_schema(const json_t *function, const json_t *any) {
    const json_t *parameters = json_object_get(function, "parameters");
    return json_object_size(parameters) != 0 ? parameters : any;
}

/* Can no grammar say what the schema of this tool's arguments asks, and need none? */
static bool wants_loose(const json_t *function, const json_t *any) {
    struct err err;
    char *rules = NULL;
    if (json_is_true(json_object_get(function, "strict")))
        return false;
    enum status st = json_schema_to_gbnf(arguments_schema(function, any), &rules, &err);
    mem_free(rules);
    return st == ST_UNSUPPORTED;
}

/* How calls are written, in GBNF: around the name and the arguments of one, the rule `call`, and
 * around them all, the rule `calls`. */
struct wrapping {
    enum chat_format format;
    const char *before, *between, *after;
    bool bare_name;              /* the name is no JSON string */
    const char *one, *with_more; /* `calls` */
    const char *opening;         /* the control token before them */
    bool typed;                  /* arguments one by one, and names are attributes */
};

#define OBJECT(name, arguments)                         \
    .before = "\"{\" ws \"\\\"" name "\\\"\" \":\" ws", \
    .between = "\",\" ws \"\\\"" arguments "\\\"\" \":\" ws", .after = "ws \"}\""
#define HERMES "\"<tool_call>\\n\" call \"\\n</tool_call>\""
#define LIST(begin, end)                       \
    .one = "\"" begin "[\" call \"]" end "\"", \
    .with_more = "\"" begin "[\" call (\",\" ws call)* \"]" end "\""

#define K3_CALLS(calls)  \
    K3_CLOSE("response") \
    " " K3_OPEN("tools") " " calls " " K3_CLOSE("tools") " (" K3_CLOSE("message") ")?"

static const struct wrapping wrappings[] = {
    {CHAT_HERMES, OBJECT("name", "arguments"), .one = HERMES,
     .with_more = HERMES " (\"\\n\" " HERMES ")*"},
    {CHAT_LLAMA3, OBJECT("name", "parameters"), .one = "call", .with_more = "call"},
    {CHAT_FIREFUNCTION, OBJECT("name", "arguments"), LIST(" functools", "")},
    {CHAT_COMMAND_R, OBJECT("tool_name", "parameters"), LIST("Action:\\n```json\\n", "\\n```")},
    {CHAT_FUNCTIONARY, .before = "\"<function=\"", .between = "\">\"",
     .after = "\"</function>\"", .bare_name = true, .one = "call", .with_more = "call+"},
    {CHAT_FUNCTIONARY_V32, .before = "", .between = "\"\\n\"", .after = "", .bare_name = true,
     .one = "call", .with_more = "call (\">>>\" call)*"},
    {CHAT_NEMOTRON, OBJECT("name", "arguments"), LIST("<TOOLCALL>", "</TOOLCALL>")},
    {CHAT_TOOL_CALLS, OBJECT("name", "arguments"), LIST("<tool_calls>", "</tool_calls>")},
    {CHAT_GIGACHAT, OBJECT("name", "arguments"), .one = "call", .with_more = "call",
     .opening = "<|function_call|>"},
    {CHAT_GRANITE, OBJECT("name", "arguments"), LIST("", ""), .opening = "<|tool_call|>"},
    {CHAT_COMMAND_A, OBJECT("tool_name", "parameters"), LIST("", ""),
     .opening = "<|START_ACTION|>"},
    {CHAT_APERTUS, .before = "\"{\"", .between = "\":\" ws", .after = "\"}\"", LIST("", ""),
     .opening = "<|tools_prefix|>"},
    {CHAT_LFM2, OBJECT("name", "arguments"), LIST("", ""), .opening = "<|tool_call_start|>"},
    {CHAT_GEMMA, .before = "\"call:\"", .between = "", .after = "", .bare_name = true,
     .one = "call", .with_more = "call", .opening = "<|tool_call>"},
    /* in place of an answer, whose frame is open */
    {CHAT_KIMI_K3, .before = "<|open|> \"call tool=\\\"\"",
     .between = "\"\\\" index=\\\"\" call-number \"\\\"\" <|sep|>", .after = K3_CLOSE("call"),
     .one = K3_CALLS("call"), .with_more = K3_CALLS("call+"), .typed = true},
};
#undef OBJECT
#undef HERMES
#undef LIST
#undef K3_CALLS

static void add_name(struct buf *t, const json_t *name, const struct wrapping *w) {
    char *quoted = json_dumps(name, JSON_ENCODE_ANY);
    const char *text = w->bare_name || w->typed ? json_string_value(name) : quoted;
    struct buf attribute = {0};
    if (w->typed && text != NULL) {
        typed_attribute(&attribute, text, strlen(text));
        text = attribute.failed ? NULL : buf_cstr(&attribute);
    }
    gbnf_literal(t, text != NULL ? text : "", text != NULL ? strlen(text) : 0);
    t->failed = t->failed || text == NULL;
    buf_free(&attribute);
    free(quoted);
}

struct calls {
    struct call_rules rules;
    struct buf call; /* the rule `call` */
};

static void calls_deinit(struct calls *c) {
    call_rules_deinit(&c->rules);
    buf_free(&c->call);
}

/* A call of one tool, as an alternative of the rule `call`. loose: with any object for arguments
 * that no grammar can say. */
static void add_call(struct calls *c, const json_t *function, const struct wrapping *w,
                     bool loose, const json_t *any) {
    const json_t *schema =
        loose && wants_loose(function, any) ? any : arguments_schema(function, any);
    struct buf *t = &c->call;
    buf_printf(t, " | %s ", w->before);
    add_name(t, json_object_get(function, "name"), w);
    buf_printf(t, " %s ", w->between);
    if (w->typed)
        typed_arguments(t, &c->rules, schema, schema == any);
    else
        buf_add_str(t, call_rules_add(&c->rules, NULL, schema, NULL));
    buf_printf(t, " %s", w->after);
}

static enum status calls_init(struct calls *c, const json_t *tools, const char *only,
                              const struct wrapping *w, bool loose, const json_t *any,
                              struct err *err) {
    size_t i;
    const json_t *tool;
    *c = (struct calls){0};
    buf_add_str(&c->call, "call ::= []");
    json_array_foreach((json_t *)tools, i, tool) {
        const json_t *function = json_object_get(tool, "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        if (name != NULL && (only == NULL || str_eq(name, only)))
            add_call(c, function, w, loose, any);
    }
    buf_add_str(&c->call, w->typed ? "\n" K3_RULES : "\n");
    if (!c->rules.failed && !c->call.failed)
        return ST_OK;
    calls_deinit(c);
    return err_set(err, ST_NO_MEMORY, "no memory for a grammar");
}

static const struct wrapping *wrapping_of(enum chat_format format) {
    for (size_t i = 0; i < ARRAY_LEN(wrappings); i++)
        if (wrappings[i].format == format)
            return &wrappings[i];
    return NULL;
}

bool constraint_knows_calls(enum chat_format format) {
    const struct wrapping *w = wrapping_of(format);
    return w != NULL && w->opening == NULL;
}

const char *constraint_opening(enum chat_format format) {
    const struct wrapping *w = wrapping_of(format);
    return w != NULL ? w->opening : NULL;
}

static enum status calls_gbnf(const struct wrapping *w, const json_t *tools, const char *only,
                              bool parallel, bool loose, const json_t *answer, char **gbnf,
                              struct err *err) {
    struct calls c;
    json_t *any = json_pack("{s:s}", "type", "object");
    enum status st = any != NULL ? calls_init(&c, tools, only, w, loose, any, err)
                                 : err_set(err, ST_NO_MEMORY, "no memory for a grammar");
    if (st != ST_OK) {
        json_decref(any);
        return st;
    }
    if (answer != NULL)
        call_rules_add(&c.rules, "answer", answer, NULL);
    buf_printf(&c.call, "root ::= calls%s\ncalls ::= %s\n", answer != NULL ? " | answer" : "",
               parallel ? w->with_more : w->one);
    st = c.call.failed || c.rules.failed
             ? err_set(err, ST_NO_MEMORY, "no memory for a grammar")
             : json_schema_rules_to_gbnf(c.rules.rules, c.rules.n, c.call.bytes, gbnf, err);
    calls_deinit(&c);
    json_decref(any);
    return st;
}

enum status constraint_tool_gbnf(enum chat_format format, const json_t *tools, const char *only,
                                 bool parallel, const json_t *answer, char **gbnf,
                                 struct err *err) {
    const struct wrapping *w = wrapping_of(format);
    BUG_ON(w == NULL);
    enum status st = calls_gbnf(w, tools, only, parallel, false, answer, gbnf, err);
    return st != ST_UNSUPPORTED ? st
                                : calls_gbnf(w, tools, only, parallel, true, answer, gbnf, err);
}
