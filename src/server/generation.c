/* generation.c: one request on its way through the engine.
 *
 * A generation has two holders: its owner, until generation_release(), and the engine, until
 * the last on_done has returned. `lock` guards the number of holders and the engine's handle.
 * The handle is valid until then, so a client that disconnects may cancel at any time. */
#include "base/mem.h"
#include "base/util.h"
#include "schema/json_schema.h"
#include "server/constraint.h"
#include "server/own_variables.h"
#include "server/plain_tools.h"
#include "server/service_internal.h"

#include <sodium.h>
#include <stdio.h>

struct choice {
    struct chat_parser *parser; /* NULL: the text is content as it is */
    struct generation *g;
    int index;
    size_t n_calls;
    const struct engine_token *token; /* while its text is read */
    bool failed;
    bool in_call;
    bool cut;           /* the model was stopped before it had ended */
    bool over;          /* its one call has ended: the rest of the output is dropped */
    size_t n_generated; /* tokens up to there */
};

struct generation {
    pthread_mutex_t lock;
    int n_holders;
    struct engine_request_handle *handle; /* NULL: ended */
    struct engine *engine;
    const struct tokenizer *t; /* the engine's */

    void (*on_event)(void *user, const struct service_event *ev);
    void *user;
    bool logprobs;
    bool special; /* control tokens are text */
    bool one_call;
    uint8_t origin[16]; /* what ids of calls are made of: the prompt and the seed */
    json_t *tools;      /* a reference: the parsers look into it */
    int n_dimensions;   /* of an embedding, as in the request */
    int n_choices;
    int n_wanted;            /* choices neither over nor done; the engine's thread */
    struct choice choices[]; /* [n_choices] */
};

void service_request_init(struct service_request *r) {
    *r = (struct service_request){.n_predict = -1, .n_choices = 1};
    engine_sampling_init(&r->sampling);
}

/* ---- holders ----------------------------------------------------------------------------- */

static void generation_free(struct generation *g) {
    for (int i = 0; i < g->n_choices; i++)
        chat_parser_close(g->choices[i].parser);
    json_decref(g->tools);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

static void drop(struct generation *g) {
    pthread_mutex_lock(&g->lock);
    int n = --g->n_holders;
    pthread_mutex_unlock(&g->lock);
    if (n == 0)
        generation_free(g);
}

void generation_release(struct generation *g) {
    if (g != NULL)
        drop(g);
}

void generation_cancel(struct generation *g) {
    pthread_mutex_lock(&g->lock);
    if (g->handle != NULL)
        engine_cancel(g->engine, g->handle);
    pthread_mutex_unlock(&g->lock);
}

size_t generation_token_bytes(const struct generation *g, int32_t id, const char **bytes) {
    struct gguf_str text = token_bytes(g->t, id, true);
    *bytes = text.ptr;
    return text.len;
}

size_t generation_token_chars(const struct generation *g, int32_t id) {
    struct gguf_str text = token_bytes(g->t, id, g->special);
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += ((uint8_t)text.ptr[i] & 0xc0) != 0x80;
    return n;
}

/* ---- events, on the engine's thread ------------------------------------------------------ */

static void make_call_id(char id[32], const struct choice *c) {
    unsigned char bytes[crypto_generichash_BYTES_MIN];
    char hex[2 * 12 + 1];
    const uint64_t which[2] = {(uint64_t)c->index, c->n_calls};
    crypto_generichash(bytes, sizeof bytes, (const uint8_t *)which, sizeof which, c->g->origin,
                       sizeof c->g->origin);
    snprintf(id, 32, "call_%s", sodium_bin2hex(hex, sizeof hex, bytes, 12));
}

/* The engine computes the choices of a request until all have ended, unless no client waits for
 * any of them. */
static void want_one_less(struct generation *g) {
    if (--g->n_wanted == 0)
        generation_cancel(g);
}

static void end_choice(struct choice *c) {
    c->over = true;
    if (c->token == NULL) /* it ends anyway */
        return;
    c->n_generated = c->token->n_generated;
    want_one_less(c->g);
}

static void on_chat_event(void *arg, const struct chat_event *from) {
    static const enum service_event_kind kinds[] = {[CHAT_CONTENT] = EVENT_CONTENT,
                                                    [CHAT_REASONING] = EVENT_REASONING,
                                                    [CHAT_CALL_BEGIN] = EVENT_CALL_BEGIN,
                                                    [CHAT_ARGUMENTS] = EVENT_ARGUMENTS,
                                                    [CHAT_CALL_END] = EVENT_CALL_END};
    struct choice *c = arg;
    char id[32];
    if (c->over)
        return;
    struct service_event ev = {.kind = kinds[from->kind],
                               .choice = c->index,
                               .text = from->text,
                               .len = from->len,
                               .call = from->call,
                               .id = from->id,
                               .cut = c->cut,
                               .token = c->token,
                               .generation = c->g};
    if (from->kind == CHAT_CALL_END)
        c->in_call = false;
    if (from->kind == CHAT_CALL_BEGIN) {
        c->in_call = true;
        c->n_calls++;
        if (from->id == NULL || from->id[0] == '\0') {
            make_call_id(id, c);
            ev.id = id;
        }
    }
    c->g->on_event(c->g->user, &ev);
    if (from->kind == CHAT_CALL_END && c->g->one_call)
        end_choice(c);
}

/* Logprobs wait for the text that their tokens become: if none is held back, there was none. */
static void read_text(struct choice *c, const struct engine_token *t) {
    struct generation *g = c->g;
    c->token = t;
    c->failed = chat_parser_put(c->parser, t->text, t->len, NULL) != ST_OK;
    c->token = NULL;
    bool all_out = t->len >= token_bytes(g->t, t->id, g->special).len;
    if (!g->logprobs || c->over || !all_out || chat_parser_holds(c->parser))
        return;
    const struct service_event ev = {
        .kind = EVENT_MARKUP, .choice = c->index, .token = t, .generation = g};
    g->on_event(g->user, &ev);
}

static void on_token(void *user, const struct engine_token *t) {
    struct generation *g = user;
    struct choice *c = &g->choices[t->choice];
    struct service_event ev = {
        .choice = t->choice, .text = t->text, .len = t->len, .token = t, .generation = g};
    if (c->over)
        return;
    if (g->logprobs && !tokenizer_is_end(g->t, t->id)) {
        ev.kind = EVENT_TOKEN;
        g->on_event(g->user, &ev);
    }
    if (t->len == 0 || c->failed)
        return;
    if (c->parser != NULL) {
        read_text(c, t);
    } else {
        ev.kind = EVENT_CONTENT;
        g->on_event(g->user, &ev);
    }
}

static void on_prompt(void *user, const struct engine_token *t) {
    struct generation *g = user;
    const struct service_event ev = {.kind = EVENT_PROMPT, .token = t, .generation = g};
    g->on_event(g->user, &ev);
}

static void on_embedding(void *user, const float *v, size_t n) {
    struct generation *g = user;
    const struct service_event ev = {.kind = EVENT_EMBEDDING,
                                     .vector = v,
                                     .n_embd =
                                         g->n_dimensions > 0 ? (size_t)g->n_dimensions : n};
    g->on_event(g->user, &ev);
}

static void on_begun(void *user) {
    struct generation *g = user;
    const struct service_event ev = {.kind = EVENT_BEGUN, .generation = g};
    g->on_event(g->user, &ev);
}

static void on_lost(void *user, const char *host) {
    struct generation *g = user;
    const struct service_event ev = {
        .kind = EVENT_LOST, .text = host, .len = strlen(host), .generation = g};
    g->on_event(g->user, &ev);
}

/* whole: no call was cut off. */
static enum service_finish finish_of(const struct choice *c, const struct engine_done *d,
                                     bool whole) {
    switch (d->stop) {
    case ENGINE_STOP_LENGTH:
        return FINISH_LENGTH;
    case ENGINE_STOP_CANCELLED:
        return FINISH_CANCELLED;
    case ENGINE_STOP_ERROR:
        return FINISH_ERROR;
    default:
        return c->n_calls > 0 && whole ? FINISH_CALLS : FINISH_STOP;
    }
}

static void on_done(void *user, const struct engine_done *d) {
    struct generation *g = user;
    struct choice *c = &g->choices[d->choice];
    struct engine_done done = *d;
    /* By a stop string too: the file that a call writes may have it in the middle. */
    c->cut = d->stop != ENGINE_STOP_END;
    bool whole = !c->cut || !c->in_call;
    if (c->over) { /* as if the model had ended there, however it went on */
        done.stop = ENGINE_STOP_END;
        done.stop_string = NULL;
        done.n_generated = c->n_generated;
    } else if (!d->last) {
        want_one_less(g);
    }
    if (c->parser != NULL && !c->failed)
        c->failed = chat_parser_end(c->parser, c->cut, NULL) != ST_OK;
    if (c->failed) {
        done.stop = ENGINE_STOP_ERROR;
        done.st = ST_NO_MEMORY;
        done.error = "no memory for the answer";
    }
    struct service_event ev = {
        .kind = EVENT_DONE, .choice = d->choice, .done = &done, .last = d->last};
    ev.finish = finish_of(c, &done, whole);
    if (d->last) {
        pthread_mutex_lock(&g->lock);
        g->handle = NULL;
        pthread_mutex_unlock(&g->lock);
    }
    g->on_event(g->user, &ev);
    if (d->last)
        drop(g);
}

/* ---- the prompt -------------------------------------------------------------------------- */

struct prompt {
    char *text; /* NULL if it was given as tokens */
    size_t len;
    int32_t *ids;
    size_t n_ids;
};

static void prompt_free(struct prompt *p) {
    mem_free(p->text);
    mem_free(p->ids);
}

static const json_t *tools_of(const struct service_request *r) {
    return r->tool_choice == TOOLS_NONE || json_array_size(r->tools) == 0 ? NULL : r->tools;
}

static enum status copy_ids(const struct service_request *r, struct prompt *p,
                            struct err *err) {
    p->ids = mem_calloc(r->n_ids + 1, sizeof *p->ids);
    if (p->ids == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a prompt of %zu tokens", r->n_ids);
    memcpy(p->ids, r->ids, r->n_ids * sizeof *p->ids);
    p->n_ids = r->n_ids;
    return ST_OK;
}

/* The template knows no tools, but the request has some. */
static bool tools_are_plain(const struct served_model *m, const struct service_request *r) {
    return m->style.format == CHAT_PLAIN && r->messages != NULL && tools_of(r) != NULL;
}

static struct chat_style style_of(const struct served_model *m,
                                  const struct service_request *r) {
    struct chat_style style = m->style;
    if (tools_are_plain(m, r))
        style.format = CHAT_HERMES;
    return style;
}

/* A call that cannot be enforced is asked for. */
static json_t *messages_with_order(const struct service_request *r) {
    char order[256];
    if (r->tool_name != NULL)
        snprintf(order, sizeof order, "Answer with a call of the function %s.", r->tool_name);
    else
        snprintf(order, sizeof order, "Answer with a call of one of the functions.");
    return messages_with_system(r->messages, order);
}

/* The messages as they are to be changed for the template; NULL: they stay. One that knows no
 * tools reads past calls and results as text, whether or not tools are offered still. */
static json_t *changed_messages(const struct served_model *m, const struct service_request *r,
                                bool order) {
    if (order)
        return messages_with_order(r);
    if (tools_are_plain(m, r))
        return messages_with_tools(r->messages, r->tools);
    return m->style.format == CHAT_PLAIN ? messages_as_text(r->messages) : NULL;
}

static enum status render(const struct served_model *m, const struct service_request *r,
                          bool order, struct prompt *p, struct err *err) {
    json_t *changed = changed_messages(m, r, order);
    json_t *extra = own_variables(m->style.format, r);
    const struct chat_request request = {.messages = changed != NULL ? changed : r->messages,
                                         .tools = tools_are_plain(m, r) ? NULL : tools_of(r),
                                         .extra = extra,
                                         .add_generation_prompt = true,
                                         .continue_last = r->continue_last};
    enum status st = chat_render(m->chat, &request, &p->text, &p->len, err);
    json_decref(changed);
    json_decref(extra);
    /* A template's limits say so, and it is the conversation that has reached them. */
    return st == ST_NO_MEMORY ? ST_UNSUPPORTED : st;
}

/* to_fit: a text that the context cannot hold is refused before it is tokenized. */
static enum status prompt_tokenize(const struct served_model *m, const char *text, size_t len,
                                   unsigned flags, bool to_fit, bool embed, struct prompt *p,
                                   struct err *err) {
    if (to_fit)
        TRY(engine_check_text(m->engine, text, len, embed, err));
    return tokenize(engine_tokenizer(m->engine), text, len, flags, &p->ids, &p->n_ids, err);
}

/* The end token, whose state may be the embedding, stays the last. */
static void prompt_cut(struct prompt *p, size_t n, const struct tokenizer_facts *f) {
    if (p->n_ids <= n)
        return;
    bool ended = f->add_eos && p->ids[p->n_ids - 1] == f->eos;
    p->n_ids = n;
    if (ended)
        p->ids[n - 1] = f->eos;
}

/* order: a call of a function is to be asked for in words. */
static enum status prompt_make(const struct served_model *m, const struct service_request *r,
                               bool order, bool to_fit, struct prompt *p, struct err *err) {
    if (r->ids != NULL)
        return copy_ids(r, p, err);
    if (r->messages == NULL)
        return prompt_tokenize(m, r->prompt, r->prompt_len,
                               TOKENIZE_BOS | (r->embed ? 0u : TOKENIZE_SPECIAL), to_fit,
                               r->embed, p, err);
    TRY(render(m, r, order, p, err));
    /* The template writes the beginning-of-text token itself if the model needs one. */
    return prompt_tokenize(m, p->text, p->len, TOKENIZE_SPECIAL, to_fit, r->embed, p, err);
}

enum status service_prompt(struct service *s, const struct service_request *r, int32_t **ids,
                           size_t *n_ids, struct err *err) {
    struct served_model *m;
    struct prompt p = {0};
    TRY(service_borrow(s, &m, err));
    enum status st = prompt_make(m, r, false, false, &p, err);
    service_give_back(s);
    if (st == ST_OK) {
        *ids = p.ids;
        *n_ids = p.n_ids;
        p.ids = NULL;
    }
    prompt_free(&p);
    return st;
}

enum status service_render(struct service *s, const struct service_request *r, char **text,
                           size_t *len, struct err *err) {
    struct served_model *m;
    struct prompt p = {0};
    TRY(service_borrow(s, &m, err));
    enum status st = render(m, r, false, &p, err);
    service_give_back(s);
    *text = p.text;
    *len = p.len;
    return st;
}

/* ---- the constraint ---------------------------------------------------------------------- */

/* The last `tag` in the text begins at this offset + 1; 0: none. */
static size_t last_of(const struct prompt *p, const char *tag) {
    size_t at = 0, n = strlen(tag);
    for (size_t i = 0; n > 0 && i + n <= p->len; i++)
        if (memcmp(p->text + i, tag, n) == 0)
            at = i + 1;
    return at;
}

/* What the model writes before its answer proper; "" if it answers at once. */
static const char *trigger_of(const struct served_model *m, const struct prompt *p) {
    if (p->text == NULL)
        return "";
    if (m->style.format == CHAT_HARMONY)
        return "<|channel|>final<|message|>";
    size_t begun = last_of(p, m->style.think_begin), ended = last_of(p, m->style.think_end);
    return begun > ended ? m->style.think_end : "";
}

/* The model must call, or may: what is asked of the form is asked of its answer then, not of
 * calls. */
static enum status calls_gbnf(const struct served_model *m, const struct service_request *r,
                              char **gbnf, struct err *err) {
    json_t *object = json_pack("{s:s}", "type", "object");
    const json_t *answer = r->tool_choice == TOOLS_REQUIRED ? NULL
                           : r->form == FORM_SCHEMA         ? r->schema
                                                            : object;
    enum status st = constraint_tool_gbnf(style_of(m, r).format, r->tools, r->tool_name,
                                          !r->one_call, answer, gbnf, err);
    json_decref(object);
    return st;
}

/* What has to come before the text that is to be enforced: the token before calls, or the tag that
 * begins an answer where the prompt does not end with it. NULL: nothing. */
static const char *opening_of(const struct served_model *m, const struct service_request *r,
                              const char *trigger) {
    if (m->style.format == CHAT_KIMI_K3)
        return *trigger != '\0' ? m->style.answer_begin : NULL;
    const char *opening = constraint_opening(style_of(m, r).format);
    const struct tokenizer *t = engine_tokenizer(m->engine);
    bool must_call = r->tool_choice == TOOLS_REQUIRED && tools_of(r) != NULL;
    return must_call && opening != NULL && tokenizer_find(t, opening, strlen(opening)) >= 0
               ? opening
               : NULL;
}

/* *gbnf is NULL for no constraint. *order: calls are wanted, and those of this format cannot be
 * enforced. */
static enum status gbnf_of(const struct served_model *m, const struct service_request *r,
                           char **gbnf, bool *order, struct err *err) {
    bool must_call = r->tool_choice == TOOLS_REQUIRED && tools_of(r) != NULL;
    bool knows_calls = constraint_knows_calls(style_of(m, r).format);
    bool has_form = r->form == FORM_SCHEMA || r->form == FORM_JSON;
    *gbnf = NULL;
    *order = must_call && !knows_calls && opening_of(m, r, "") == NULL;
    if (*order)
        return ST_OK;
    if (must_call || (has_form && knows_calls && tools_of(r) != NULL))
        return calls_gbnf(m, r, gbnf, err);
    if (r->form == FORM_SCHEMA)
        return json_schema_to_gbnf(r->schema, gbnf, err);
    if (r->form == FORM_TEXT)
        return ST_OK;
    *gbnf = mem_strdup(r->form == FORM_JSON ? json_object_gbnf() : r->gbnf);
    return *gbnf != NULL ? ST_OK : err_set(err, ST_NO_MEMORY, "no memory for a grammar");
}

/* The token by which the model may begin a call instead of an answer in the requested form;
 * NULL: it must not, or the grammar includes calls. */
static const char *call_of(const struct served_model *m, const struct service_request *r) {
    bool has_form = r->form == FORM_SCHEMA || r->form == FORM_JSON;
    enum chat_format format = style_of(m, r).format;
    return has_form && tools_of(r) != NULL && !constraint_knows_calls(format)
               ? chat_format_call(format)
               : NULL;
}

/* ---- submission -------------------------------------------------------------------------- */

/* Whether the model's text has to be read, rather than passed on. */
static bool needs_parser(const struct served_model *m, const struct service_request *r) {
    return r->messages != NULL && !r->embed &&
           (style_of(m, r).format != CHAT_PLAIN || m->style.think_end[0] != '\0');
}

static enum status open_parsers(struct generation *g, const struct served_model *m,
                                const struct service_request *r, const struct prompt *p,
                                struct err *err) {
    for (int i = 0; i < g->n_choices; i++) {
        struct choice *c = &g->choices[i];
        *c = (struct choice){.g = g, .index = i};
        const struct chat_parse_options options = {.style = style_of(m, r),
                                                   .prompt = p->text,
                                                   .prompt_len = p->len,
                                                   .tools = g->tools,
                                                   .on_event = on_chat_event,
                                                   .arg = c};
        if (needs_parser(m, r))
            TRY(chat_parser_open(&c->parser, &options, err));
    }
    return ST_OK;
}

/* Ids of calls. A client sends them back, and a template may write them into the next prompt.
 * So the same request with the same seed gives the same ids on every machine. */
static void name_origin(struct generation *g, const struct service_request *r,
                        const struct prompt *p) {
    crypto_generichash_state h;
    const uint64_t seed = r->sampling.base.seed;
    crypto_generichash_init(&h, NULL, 0, sizeof g->origin);
    crypto_generichash_update(&h, (const uint8_t *)&seed, sizeof seed);
    crypto_generichash_update(&h, (const uint8_t *)p->ids, p->n_ids * sizeof *p->ids);
    crypto_generichash_final(&h, g->origin, sizeof g->origin);
}

static enum status generation_new(struct generation **out, const struct served_model *m,
                                  const struct service_request *r, const struct prompt *p,
                                  struct err *err) {
    size_t n = (size_t)MAX(r->n_choices, 1);
    struct generation *g = mem_calloc(1, sizeof *g + n * sizeof *g->choices);
    if (g == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a request");
    pthread_mutex_init(&g->lock, NULL);
    g->n_holders = 2;
    g->engine = m->engine;
    g->t = engine_tokenizer(m->engine);
    g->on_event = r->on_event;
    g->user = r->user;
    g->logprobs = r->logprobs;
    g->special = needs_parser(m, r);
    g->one_call = r->one_call;
    g->n_dimensions = r->n_dimensions;
    g->n_choices = g->n_wanted = (int)n;
    name_origin(g, r, p);
    g->tools = json_incref((json_t *)tools_of(r));
    enum status st = open_parsers(g, m, r, p, err);
    if (st != ST_OK) {
        generation_free(g);
        return st;
    }
    *out = g;
    return ST_OK;
}

static enum status submit(const struct served_model *m, const struct service_request *r,
                          const struct prompt *p, const struct engine_constraint *constraint,
                          struct generation *g, struct err *err) {
    struct engine_request er;
    engine_request_init(&er);
    er.ids = p->ids;
    er.n_ids = p->n_ids;
    er.n_choices = r->n_choices;
    er.n_predict = r->n_predict;
    er.ignore_end = r->ignore_end;
    er.follows = r->follows;
    er.special = g->special;
    er.sampling = r->sampling;
    er.stops = r->stops;
    er.n_stops = r->n_stops;
    er.stop_ids = r->stop_ids;
    er.n_stop_ids = r->n_stop_ids;
    er.min_tokens = r->min_tokens;
    er.logprobs = r->logprobs;
    er.n_top = r->n_top;
    er.chances = r->chances;
    er.prompt_logprobs = r->prompt_logprobs;
    er.on_prompt = on_prompt;
    er.constraint = *constraint;
    er.client = r->client;
    er.embed = r->embed;
    er.embed_last = r->embed_last;
    er.on_embedding = on_embedding;
    er.on_token = on_token;
    er.on_done = on_done;
    er.on_begun = on_begun;
    er.on_lost = on_lost;
    er.user = g;
    pthread_mutex_lock(&g->lock);
    enum status st = engine_submit(m->engine, &er, &g->handle, err);
    pthread_mutex_unlock(&g->lock);
    return st;
}

static enum status generate_with(const struct served_model *m, const struct service_request *r,
                                 const struct prompt *p, const char *gbnf,
                                 struct generation **out, struct err *err) {
    struct engine_constraint constraint = {0};
    struct generation *g = NULL;
    const char *trigger = trigger_of(m, p);
    const struct constraint_rules rules = {.gbnf = gbnf,
                                           .of_schema = r->form != FORM_GBNF,
                                           .trigger = trigger,
                                           .call = call_of(m, r),
                                           .opening = opening_of(m, r, trigger),
                                           .ignore_end = r->ignore_end};
    if (gbnf != NULL)
        TRY(constraint_open(&constraint, &rules, m->trie, err));
    enum status st = generation_new(&g, m, r, p, err);
    if (st == ST_OK) {
        *out = g; /* before an event may come */
        st = submit(m, r, p, &constraint, g, err);
    }
    if (st == ST_OK)
        return ST_OK;
    *out = NULL;
    if (g != NULL)
        generation_free(g);
    if (constraint.free != NULL)
        constraint.free(constraint.state);
    return st;
}

enum status service_generate(struct service *s, const struct service_request *r,
                             struct generation **out, struct err *err) {
    struct served_model *m;
    struct prompt p = {0};
    struct generation *g = NULL;
    char *gbnf = NULL;
    bool order;
    TRY(service_borrow(s, &m, err));
    enum status st = gbnf_of(m, r, &gbnf, &order, err);
    if (st == ST_OK)
        st = prompt_make(m, r, order, !r->truncate, &p, err);
    if (r->truncate)
        prompt_cut(&p, (size_t)service_facts(s)->n_ctx,
                   tokenizer_facts(engine_tokenizer(m->engine)));
    if (st == ST_OK)
        st = generate_with(m, r, &p, gbnf, out != NULL ? out : &g, err);
    service_give_back(s);
    if (st == ST_OK && out == NULL)
        generation_release(g);
    mem_free(gbnf);
    prompt_free(&p);
    return st;
}
