/* Fuzzes the output parser. The first byte chooses the format, the second whether it thinks, in
 * which tags, and whether there are tools; the third the pieces that the rest is fed in. Fed whole
 * or in pieces, the result must be the same; plain text must come through byte for byte. */
#include "base/mem.h"
#include "base/util.h"
#include "chat/chat_parse.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct record {
    char *text;
    size_t n, cap;
    size_t n_open, n_calls;
    int last;
};

static void append(struct record *r, const char *text, size_t len) {
    if (len > r->cap - r->n) {
        r->cap = 2 * r->cap + len + 64;
        r->text = realloc(r->text, r->cap);
    }
    memcpy(r->text + r->n, text, len);
    r->n += len;
}

static void on_event(void *arg, const struct chat_event *e) {
    struct record *r = arg;
    char kind = "CR[|]"[e->kind];
    bool text = e->kind == CHAT_CONTENT || e->kind == CHAT_REASONING;
    BUG_ON(text && r->n_open != 0);
    BUG_ON(e->kind == CHAT_ARGUMENTS && r->n_open != 1);
    BUG_ON(e->kind >= CHAT_CALL_BEGIN && e->call != r->n_calls);
    if (e->kind == CHAT_CALL_BEGIN)
        BUG_ON(r->n_open++ != 0 || strlen(e->id) > (size_t)1 << 20);
    if (e->kind == CHAT_CALL_END) {
        BUG_ON(r->n_open-- != 1);
        r->n_calls++;
    }
    if (r->last != (int)e->kind)
        append(r, &kind, 1);
    r->last = (int)e->kind;
    append(r, e->text, e->len);
}

static struct record parse(const struct chat_parse_options *options, const char *text,
                           size_t len, size_t step) {
    struct record r = {.last = -1};
    struct chat_parse_options o = *options;
    struct chat_parser *p;
    struct err err;
    o.on_event = on_event;
    o.arg = &r;
    BUG_ON(chat_parser_open(&p, &o, &err) != ST_OK);
    for (size_t at = 0; at < len; at += MIN(step, len - at))
        BUG_ON(chat_parser_put(p, text + at, MIN(step, len - at), &err) != ST_OK);
    BUG_ON(chat_parser_end(p, (len & 1) != 0, &err) != ST_OK);
    BUG_ON(r.n_open != 0);
    chat_parser_close(p);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static json_t *tools;
    if (tools == NULL) {
        json_error_t e;
        tools =
            json_loads("[{\"function\": {\"name\": \"add\", \"parameters\": {\"properties\": "
                       "{\"a\": {\"type\": \"integer\"}, \"s\": {\"type\": \"string\"}}}}}]",
                       0, &e);
        BUG_ON(tools == NULL);
    }
    if (size < 3)
        return 0;
    static const char *const frames[][4] = {
        {"<think>", "</think>", "", ""},
        {"<|channel>thought", "<channel|>", "", ""},
        {"<think>", "</think>", "<response>", "</response>"},
        {"<|START_THINKING|>", "<|END_THINKING|>", "<|START_TEXT|>", "<|END_TEXT|>"},
        {"<|open|>think<|sep|>", "<|close|>think<|sep|>", "<|open|>response<|sep|>",
         "<|close|>response<|sep|>"},
    };
    static const char *const nothing[4] = {"", "", "", ""};
    bool thinks = (data[1] & 1) != 0, opened = (data[1] & 2) != 0, asked = (data[1] & 8) != 0;
    const char *const *frame = thinks ? frames[(data[1] >> 4) % ARRAY_LEN(frames)] : nothing;
    const char *prompt = asked ? "<|end_header_id|>\n\n>>>" : "<|start|>assistant<think>";
    struct chat_parse_options o = {
        .style = {(enum chat_format)(data[0] % CHAT_N_FORMATS), frame[0], frame[1], frame[2],
                  frame[3]},
        .prompt = opened ? prompt : NULL,
        .prompt_len = opened ? strlen(prompt) : 0,
        .tools = (data[1] & 4) != 0 ? tools : NULL,
    };
    const char *text = (const char *)data + 3;
    size_t len = size - 3;
    struct record whole = parse(&o, text, len, MAX(len, (size_t)1));
    struct record cut = parse(&o, text, len, 1u + data[2] % 16u);
    BUG_ON(whole.n != cut.n || (whole.n > 0 && memcmp(whole.text, cut.text, whole.n) != 0));
    bool plain = o.style.format == CHAT_PLAIN && !thinks;
    BUG_ON(plain && len > 0 && (whole.n != len + 1 || memcmp(whole.text + 1, text, len) != 0));
    free(whole.text);
    free(cut.text);
    return 0;
}
