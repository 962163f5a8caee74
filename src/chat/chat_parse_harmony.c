/* chat_parse_harmony.c: gpt-oss' harmony: messages of a header and a body,
 *
 *   <|start|>assistant<|channel|>analysis<|message|>...<|end|>
 *   <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>
 *       {...}<|call|>
 *   <|start|>assistant<|channel|>final<|message|>...<|return|>
 *
 * analysis is reasoning, a message to a recipient is a call, and the rest is content. The
 * prompt ends with the first "<|start|>assistant" or later. */
#include "chat/chat_parse_impl.h"

#define MAX_HEADER_BYTES 512
#define START "<|start|>"
#define CHANNEL "<|channel|>"
#define MESSAGE "<|message|>"

/* The word after `key` in the header, up to white space or a tag. */
static bool header_word(const struct buf *header, const char *key, const char **word,
                        size_t *len) {
    const char *p =
        header->len == 0 ? NULL : memmem(header->bytes, header->len, key, strlen(key));
    if (p == NULL)
        return false;
    p += strlen(key);
    const char *end = header->bytes + header->len;
    while (p < end && is_white(*p))
        p++;
    *word = p;
    while (p < end && !is_white(*p) && *p != '<')
        p++;
    *len = (size_t)(p - *word);
    return *len > 0;
}

static bool word_is(const char *word, size_t len, const char *s) {
    return len == strlen(s) && memcmp(word, s, len) == 0;
}

/* Of several the last counts: "commentary to=assistant<|channel|>analysis" is thought. */
static bool last_channel(const struct buf *header, const char **word, size_t *len) {
    struct buf rest = *header; /* borrowed */
    bool found = false;
    while (header_word(&rest, CHANNEL, word, len)) {
        found = true;
        rest.len = (size_t)(header->bytes + header->len - *word);
        rest.bytes = header->bytes + header->len - rest.len;
    }
    return found;
}

static void open_body(struct chat_parser *p) {
    static const char prefix[] = "functions.";
    const char *word;
    size_t len;
    p->route = ROUTE_CONTENT;
    p->state = PARSE_HARMONY_BODY;
    p->space.len = 0;
    /* What is said to the assistant is a function's reply, made up. */
    if (json_array_size(p->o.tools) > 0 && header_word(&p->header, "to=", &word, &len) &&
        !word_is(word, len, "user") && !word_is(word, len, "assistant")) {
        size_t skip = len > sizeof prefix - 1 && memcmp(word, prefix, sizeof prefix - 1) == 0
                          ? sizeof prefix - 1
                          : 0;
        p->route = ROUTE_CALL;
        p->value.len = 0;
        call_begin(p, word + skip, len - skip);
    } else if (last_channel(&p->header, &word, &len) && word_is(word, len, "analysis")) {
        p->route = ROUTE_REASONING;
    }
    p->header.len = 0;
}

/* What the prompt has of the message that the model goes on with. */
void harmony_open(struct chat_parser *p) {
    const char *prompt = p->o.prompt;
    size_t len = p->o.prompt_len, at = len;
    p->state = PARSE_HARMONY_HEADER;
    if (prompt == NULL)
        return;
    size_t n = strlen(START);
    while (at > 0 && !(len - at >= n && memcmp(prompt + at, START, n) == 0))
        at--;
    if (at == 0 && (len < n || memcmp(prompt, START, n) != 0))
        return;
    const char *message = memmem(prompt + at, len - at, MESSAGE, strlen(MESSAGE));
    bool closed = memmem(prompt + at, len - at, "<|end|>", 7) != NULL;
    if (closed)
        return;
    size_t end = message != NULL ? (size_t)(message - prompt) : len;
    keep_bytes(p, &p->header, prompt + at, end - at);
    if (message != NULL)
        open_body(p);
}

/* Whether the text in place of a header is not one: the model just answers. */
static bool is_header_text(const char *text, size_t len) {
    static const char *const begins[] = {START,           CHANNEL,     MESSAGE,
                                         "<|constrain|>", "assistant", "to="};
    for (size_t i = 0; i < ARRAY_LEN(begins); i++) {
        size_t k = MIN(len, strlen(begins[i]));
        if (memcmp(text, begins[i], k) == 0)
            return true;
    }
    return len == 0;
}

static bool begins_with(const char *text, const char *end, const char *s) {
    return (size_t)(end - text) >= strlen(s) && memcmp(text, s, strlen(s)) == 0;
}

static bool is_channel(const char *word, size_t len) {
    return word_is(word, len, "analysis") || word_is(word, len, "commentary") ||
           word_is(word, len, "final");
}

/* Whether the text is of header's parts alone: a role, a channel that there is, recipients, and a
 * word for the body's type. Prose about the tokens has more words between them. */
static bool is_header(const char *text, size_t len) {
    static const char *const tokens[] = {START, CHANNEL, "<|constrain|>"};
    const char *end = text + len;
    size_t n_words = 1; /* that may come before the next token */
    while (text < end) {
        if (is_white(*text)) {
            text++;
            continue;
        }
        size_t which = 0;
        while (which < ARRAY_LEN(tokens) && !begins_with(text, end, tokens[which]))
            which++;
        bool token = which < ARRAY_LEN(tokens), recipient = begins_with(text, end, "to=");
        text += token ? strlen(tokens[which]) : 0;
        const char *word = text;
        while (text < end && !is_white(*text) && *text != '<')
            text++;
        size_t n = (size_t)(text - word);
        bool known = which == 1 ? is_channel(word, n) : which == 2 || n > 0;
        if (!known || (!token && !recipient && n_words-- == 0))
            return false;
        if (token) /* the type may come after a blank */
            n_words = which == 1 || (which == 2 && n == 0);
    }
    return true;
}

static const char *const header_ends[] = {MESSAGE, "<|end|>", "<|return|>", "<|call|>"};

bool step_harmony_header(struct chat_parser *p) {
    const char *const *ends = header_ends;
    struct marker_hit hit = find_marker(p, ends, ARRAY_LEN(header_ends));
    const char *text = input(p);
    size_t white = 0;
    while (white < input_len(p) && is_white(text[white]))
        white++;
    bool too_long = hit.pos > MAX_HEADER_BYTES;
    bool is_text = hit.which > 0 && !is_header(text, hit.pos);
    if (!is_header_text(text + white, input_len(p) - white) || too_long || is_text ||
        (p->final && hit.which < 0)) {
        if (input_len(p) == 0)
            return false;
        if (p->route != ROUTE_CONTENT)
            p->space.len = 0;
        /* The first character goes now: a tag there would lead back here. */
        size_t first = MIN(white + 1, input_len(p));
        emit_text(p, CHAT_CONTENT, text, first);
        p->at += first;
        p->route = ROUTE_CONTENT;
        p->state = PARSE_HARMONY_BODY;
        p->header.len = 0;
        return true;
    }
    if (hit.which < 0)
        return false;
    if (hit.which > 0) { /* no body */
        p->at += hit.pos + strlen(ends[hit.which]);
        p->header.len = 0;
        return true;
    }
    keep_bytes(p, &p->header, text, hit.pos);
    p->at += hit.pos + strlen(MESSAGE);
    open_body(p);
    return true;
}

static void put_body(struct chat_parser *p, const char *text, size_t len) {
    if (p->route == ROUTE_CALL)
        call_arguments(p, text, len);
    else
        emit_text(p, p->route == ROUTE_REASONING ? CHAT_REASONING : CHAT_CONTENT, text, len);
}

/* At a token within a body that begins a header, or is text. */
static enum accept header_begins(const struct chat_parser *p) {
    struct marker_hit hit = find_marker(p, header_ends, ARRAY_LEN(header_ends));
    if (p->route == ROUTE_CALL)
        return ACCEPT_YES;
    if (hit.pos > MAX_HEADER_BYTES)
        return ACCEPT_NO;
    if (hit.which < 0)
        return p->final ? ACCEPT_NO : ACCEPT_WAIT;
    return is_header(input(p), hit.pos) ? ACCEPT_YES : ACCEPT_NO;
}

bool step_harmony_body(struct chat_parser *p) {
    static const char *const ends[] = {START, "<|end|>", "<|return|>", "<|call|>", CHANNEL};
    struct marker_hit hit = find_marker(p, ends, ARRAY_LEN(ends));
    put_body(p, input(p), hit.pos);
    p->at += hit.pos;
    if (hit.which < 0)
        return false;
    bool next_header = hit.which == 0 || hit.which == 4; /* left where it is */
    enum accept header = next_header ? header_begins(p) : ACCEPT_YES;
    if (header == ACCEPT_WAIT)
        return false;
    if (header == ACCEPT_NO) {
        put_body(p, input(p), 1);
        p->at++;
        return true;
    }
    p->at += next_header ? 0 : strlen(ends[hit.which]);
    call_end(p);
    p->skip_space = true; /* what came before stays if no header follows */
    p->state = PARSE_HARMONY_HEADER;
    return true;
}
