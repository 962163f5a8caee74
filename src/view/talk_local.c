/* talk_local.c: The model of this process answers in lockstep chat. The library computes only what
 * its cache does not hold yet; what it writes is parsed into thoughts and text. */
#include "view/talkers.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "chat/chat_parse.h"
#include "cli/session.h"
#include "hf/hf_folder.h"

struct local {
    struct talker talker;
    struct lockstep *ls;
    struct chat_style style;
    /* The answer under way. */
    struct writer *writer;
    struct talk_answer *answer;
    struct chat_parser *parser;
    char *held; /* a control token's name: not shown if it is the last, which ends the answer */
    size_t n_held;
    bool any_control;   /* some were not the last */
    struct buf content; /* the text without thoughts and control tokens */
    enum status st;
    struct err err;
};

static void on_event(void *user, const struct chat_event *e) {
    struct local *l = user;
    if (e->kind != CHAT_CONTENT && e->kind != CHAT_REASONING)
        return;
    if (e->kind == CHAT_CONTENT)
        buf_add(&l->content, e->text, e->len);
    if (!writer_put(l->writer, e->text, e->len, e->kind == CHAT_REASONING))
        l->st = err_set(&l->err, ST_IO, "cannot write the answer");
}

/* The name of a control token, which takes no part in the text; NULL: it is no such token. */
static char *control_name(struct local *l, int32_t id, size_t *n) {
    char *shown, *hidden;
    size_t n_hidden;
    if (lockstep_detokenize(l->ls, &id, 1, true, &shown, n, NULL) != LOCKSTEP_OK)
        return NULL;
    if (lockstep_detokenize(l->ls, &id, 1, false, &hidden, &n_hidden, NULL) != LOCKSTEP_OK)
        n_hidden = *n;
    else
        lockstep_free(hidden);
    if (n_hidden == 0 && *n > 0)
        return shown;
    lockstep_free(shown);
    return NULL;
}

static bool put(struct local *l, const char *text, size_t n) {
    if (l->st == ST_OK)
        l->st = chat_parser_put(l->parser, text, n, &l->err);
    return l->st == ST_OK;
}

static bool on_token(void *user, int32_t id, const char *text, size_t len) {
    struct local *l = user;
    if (l->held != NULL)
        l->any_control = put(l, l->held, l->n_held);
    lockstep_free(l->held);
    l->held = len == 0 ? control_name(l, id, &l->n_held) : NULL;
    /* The library forgets a signal that came before it began. */
    return buf_add(&l->answer->text, text, len) && put(l, text, len) && cli_interrupted() == 0;
}

static enum status prompt_of(struct local *l, const struct talk *t, char **out, size_t *len,
                             struct lockstep_error *err) {
    size_t n = json_array_size(t->messages), i;
    json_t *m;
    struct lockstep_message *list = mem_calloc(n, sizeof *list);
    if (list == NULL)
        return (enum status)LOCKSTEP_NO_MEMORY;
    json_array_foreach(t->messages, i, m) {
        list[i] = (struct lockstep_message){json_text(m, "role"), json_text(m, "content")};
    }
    enum lockstep_status st = lockstep_chat_prompt(l->ls, list, n, out, len, err);
    mem_free(list);
    return (enum status)st;
}

static enum status open_parser(struct local *l, const char *prompt, size_t len,
                               struct err *err) {
    struct chat_parse_options o = {
        .style = l->style, .prompt = prompt, .prompt_len = len, .on_event = on_event, .arg = l};
    return chat_parser_open(&l->parser, &o, err);
}

static void close_parser(struct local *l, const struct lockstep_result *r) {
    if (l->st == ST_OK)
        l->st = chat_parser_end(l->parser, !str_eq(r->stop, "end"), &l->err);
    chat_parser_close(l->parser);
    l->parser = NULL;
    lockstep_free(l->held);
    l->held = NULL;
}

/* req has the prompt. */
static enum status generate(struct local *l, struct lockstep_request *req, struct err *err) {
    struct lockstep_result r = {.stop = "cancelled"};
    struct lockstep_error why;
    enum lockstep_status st = LOCKSTEP_OK;
    req->on_token = on_token;
    req->user = l;
    l->st = ST_OK;
    l->any_control = false;
    buf_clear(&l->content);
    if (!cli_interrupted())
        st = lockstep_generate(l->ls, req, &r, &why);
    close_parser(l, &r);
    if (st != LOCKSTEP_OK)
        return err_set(err, (enum status)st, "%s", why.text);
    if (l->st != ST_OK)
        return err_set(err, l->st, "%s", l->err.text);
    if (l->any_control) { /* tags that the text does not have: it would be read as all answer */
        buf_clear(&l->answer->text);
        buf_add(&l->answer->text, l->content.bytes, l->content.len);
    }
    l->answer->n_prompt = r.n_prompt;
    l->answer->n_generated = r.n_generated;
    l->answer->first_s = r.prompt_s;
    l->answer->rest_s = r.generate_s;
    l->answer->full = str_eq(r.stop, "context");
    return ST_OK;
}

static enum status answer(struct talker *self, const struct talk *t, struct writer *w,
                          struct talk_answer *out, struct err *err) {
    struct local *l = self->user;
    struct lockstep_request req;
    struct lockstep_error why = {.text = "not enough memory for the conversation"};
    char *prompt;
    int32_t *ids;
    size_t len;
    lockstep_request_init(&req);
    l->writer = w;
    l->answer = out;
    enum status st = prompt_of(l, t, &prompt, &len, &why);
    if (st != ST_OK)
        return err_set(err, st, "%s", why.text);
    /* The template writes the beginning-of-text token itself if the model needs one. */
    st = (enum status)session_tokenize(l->ls, prompt, len, false, &ids, &req.n_ids, &why);
    if (st != ST_OK)
        err_set(err, st, "%s", why.text);
    else if ((st = open_parser(l, prompt, len, err)) != ST_OK)
        lockstep_free(ids);
    lockstep_free(prompt);
    TRY(st);
    req.ids = ids;
    req.n_predict = *t->settings.n_predict;
    req.sampling = t->settings.sampling;
    st = generate(l, &req, err);
    lockstep_free(ids);
    return st;
}

static void forget(struct talker *self) {
    struct local *l = self->user;
    lockstep_reset(l->ls);
}

static bool has_token(void *user, const char *text) {
    struct local *l = user;
    int32_t *ids;
    size_t n = 0;
    if (lockstep_tokenize(l->ls, text, strlen(text), false, true, &ids, &n, NULL) !=
        LOCKSTEP_OK)
        return false;
    lockstep_free(ids);
    return n == 1;
}

/* By the template of the model's file. One without a template does not think in tags. */
static void find_style(struct local *l, const char *path) {
    struct gguf *g;
    struct gguf_str source = {NULL, 0};
    if (hf_open_any(&g, path, NULL, NULL) != ST_OK)
        return;
    char *text = gguf_str(g, "tokenizer.chat_template", &source, NULL) == ST_OK
                     ? mem_strndup(source.ptr, source.len)
                     : NULL;
    gguf_close(g);
    if (text != NULL)
        l->style = chat_style_detect(text, has_token, l);
    mem_free(text);
}

enum status talk_local_open(struct talker **out, struct lockstep *ls, const char *path,
                            struct err *err) {
    struct local *l = mem_calloc(1, sizeof *l);
    if (l == NULL)
        return err_set(err, ST_NO_MEMORY, "not enough memory for the conversation");
    l->talker = (struct talker){
        .model = lockstep_model_info(ls)->name, .answer = answer, .forget = forget, .user = l};
    l->ls = ls;
    l->style = (struct chat_style){CHAT_PLAIN, "", "", "", ""};
    find_style(l, path);
    *out = &l->talker;
    return ST_OK;
}

void talk_local_close(struct talker *t) {
    if (t == NULL)
        return;
    struct local *l = t->user;
    buf_free(&l->content);
    mem_free(l);
}
