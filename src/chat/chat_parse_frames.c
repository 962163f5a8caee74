/* chat_parse_frames.c: answers that consist of frames (Kimi K3): thoughts, the answer and the calls
 * are each between a tag that opens and one that closes, and all tags are made of tokens. So no
 * tag is text, and white space within a frame is. Between frames it is not. */
#include "chat/chat_parse_impl.h"

#include <string.h>

enum {
    FRAME_THINK,
    FRAME_THINK_END,
    FRAME_ANSWER,
    FRAME_ANSWER_END,
    FRAME_MESSAGE_END,
    FRAME_CALLS,
    FRAME_CALLS_END,
    N_FRAMES
};

static void frame_tags(const struct chat_parser *p, const char *tags[N_FRAMES]) {
    const struct chat_style *style = &p->o.style;
    bool calls = json_array_size(p->o.tools) > 0;
    tags[FRAME_THINK] = if_any(style->think_begin, true);
    tags[FRAME_THINK_END] = if_any(style->think_end, true);
    tags[FRAME_ANSWER] = if_any(style->answer_begin, true);
    tags[FRAME_ANSWER_END] = if_any(style->answer_end, true);
    tags[FRAME_MESSAGE_END] = p->syntax->message_end;
    tags[FRAME_CALLS] = if_any(p->syntax->section_begin, calls);
    tags[FRAME_CALLS_END] = if_any(p->syntax->section_end, calls);
}

/* Whether the text is the beginning of a tag, at least its token. */
static bool is_cut_tag(const struct chat_parser *p, const char *text, size_t len,
                       const char *tag) {
    const char *open = p->syntax->open, *close = p->syntax->close;
    bool opens = memcmp(tag, open, strlen(open)) == 0;
    return len >= strlen(opens ? open : close) && len < strlen(tag) &&
           memcmp(text, tag, len) == 0;
}

size_t framed_text_len(const struct chat_parser *p) {
    const struct call_syntax *s = p->syntax;
    const char *const of_calls[] = {s->function_begin, s->function_end, s->param_begin,
                                    s->value_end,      s->block_begin,  s->block_end};
    const char *tags[N_FRAMES + ARRAY_LEN(of_calls)];
    size_t len = input_len(p);
    if (s->message_end == NULL)
        return len;
    frame_tags(p, tags);
    memcpy(tags + N_FRAMES, of_calls, sizeof of_calls);
    for (size_t at = 0; at < len; at++)
        for (size_t i = 0; i < ARRAY_LEN(tags); i++)
            if (tags[i] != NULL && is_cut_tag(p, input(p) + at, len - at, tags[i]))
                return at;
    return len;
}

static void put_text(struct chat_parser *p, size_t len) {
    if (p->state == PARSE_REASONING)
        emit_verbatim(p, CHAT_REASONING, input(p), len);
    else if (p->answering)
        emit_verbatim(p, CHAT_CONTENT, input(p), len);
    else
        emit_text(p, CHAT_CONTENT, input(p), len);
}

bool step_framed(struct chat_parser *p) {
    const char *tags[N_FRAMES];
    frame_tags(p, tags);
    struct marker_hit hit = find_marker(p, tags, N_FRAMES);
    put_text(p, hit.which < 0 && p->final ? framed_text_len(p) : hit.pos);
    p->at += hit.pos;
    if (hit.which < 0)
        return false;
    emit_tag(p);
    p->answering = hit.which == FRAME_ANSWER;
    p->state = hit.which == FRAME_THINK ? PARSE_REASONING : PARSE_CONTENT;
    if (hit.which == FRAME_CALLS) {
        doubt_begin(p, strlen(tags[FRAME_CALLS]));
        p->state = p->syntax->first;
    } else {
        p->at += strlen(tags[hit.which]);
    }
    return true;
}

/* Where the last `tag` of the prompt ends; 0: it has none. */
static size_t last_in_prompt(const struct chat_parser *p, const char *tag) {
    size_t n = strlen(tag);
    for (size_t end = p->o.prompt == NULL ? 0 : p->o.prompt_len; n > 0 && end >= n; end--)
        if (memcmp(p->o.prompt + end - n, tag, n) == 0)
            return end;
    return 0;
}

/* The prompt may end within a frame, in the middle of a text that goes on or at its beginning. */
void framed_open(struct chat_parser *p) {
    const struct chat_style *style = &p->o.style;
    size_t thinks = last_in_prompt(p, style->think_begin);
    size_t answers = last_in_prompt(p, style->answer_begin);
    bool in_thoughts = thinks > last_in_prompt(p, style->think_end) && thinks > answers;
    p->state = in_thoughts ? PARSE_REASONING : PARSE_CONTENT;
    p->answering = !in_thoughts && answers > last_in_prompt(p, style->answer_end);
    p->skip_space = false;
}
