/* api_text.c: the tokens and conversations of lockstep.h. */
#include "base/c_locale.h"
#include "chat/chat.h"
#include "engine/api_impl.h"
#include "tokenizer/tokenizer.h"

enum lockstep_status lockstep_tokenize(struct lockstep *ls, const char *text, size_t len,
                                       bool add_bos, bool special, int32_t **ids, size_t *n_ids,
                                       struct lockstep_error *err_) {
    struct err local, *err = api_err(err_, &local);
    unsigned flags = (add_bos ? TOKENIZE_BOS : 0u) | (special ? TOKENIZE_SPECIAL : 0u);
    return api_done(tokenize(ls->in.tokenizer, text, len, flags, ids, n_ids, err));
}

enum lockstep_status lockstep_check_text(struct lockstep *ls, const char *text, size_t len,
                                         struct lockstep_error *err_) {
    struct err local, *err = api_err(err_, &local);
    return api_done(
        api_check_room(ls, "at least ", tokenizer_least_ids(ls->in.tokenizer, text, len), err));
}

enum lockstep_status lockstep_detokenize(struct lockstep *ls, const int32_t *ids, size_t n,
                                         bool special, char **text, size_t *len,
                                         struct lockstep_error *err_) {
    struct err local, *err = api_err(err_, &local);
    int32_t n_vocab = tokenizer_facts(ls->in.tokenizer)->n_tokens;
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return api_done(err_set(err, ST_BAD_INPUT,
                                    "%d is none of the %d tokens of this model", ids[i],
                                    n_vocab));
    return api_done(detokenize(ls->in.tokenizer, ids, n, special, text, len, err));
}

/* The conversation as OpenAI's messages. */
static enum status messages_json(json_t **out, const struct lockstep_message *messages,
                                 size_t n, struct err *err) {
    json_t *list = json_array();
    enum status st = ST_OK;
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        const struct lockstep_message *m = &messages[i];
        if (m->role == NULL || m->content == NULL)
            st = err_set(err, ST_BAD_INPUT, "message %zu of the conversation has no %s", i,
                         m->role == NULL ? "role" : "content");
        else if (json_array_append_new(list, json_pack("{s:s, s:s}", "role", m->role, "content",
                                                       m->content)) != 0)
            st = err_set(err, ST_BAD_INPUT, "message %zu of the conversation is not UTF-8", i);
    }
    if (st == ST_OK)
        *out = list;
    else
        json_decref(list);
    return st;
}

enum lockstep_status lockstep_chat_prompt(struct lockstep *ls,
                                          const struct lockstep_message *messages, size_t n,
                                          char **text, size_t *len,
                                          struct lockstep_error *err_) {
    struct err local, *err = api_err(err_, &local);
    struct chat *chat = NULL;
    json_t *list = NULL;
    locale_t callers = c_locale_begin(); /* templates have numbers */
    enum status st = messages_json(&list, messages, n, err);
    const struct chat_request request = {.messages = list, .add_generation_prompt = true};
    if (st == ST_OK)
        st = chat_open(&chat, ls->in.tokenizer, NULL, 0, err);
    if (st == ST_OK)
        st = chat_render(chat, &request, text, len, err);
    chat_close(chat);
    json_decref(list);
    c_locale_end(callers);
    return api_done(st);
}
