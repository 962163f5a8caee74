/* llama_cpp.c: what clients of llama.cpp's server ask for beside OpenAI's API: /props, /slots,
 * /apply-template, /completion and /infill. */
#include "api/openai.h"
#include "base/mem.h"
#include "base/util.h"
#include "server/fim.h"
#include "server/form_params.h"
#include "server/prompts.h"

#include <stdio.h>
#include <string.h>

/* ---- /props, /slots ---------------------------------------------------------------------- */

static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static void props(struct service *s, struct http_request *http) {
    const struct service_facts *f = service_facts(s);
    struct engine_sampling d;
    engine_sampling_init(&d);
    json_t *params = json_pack(
        "{s:f, s:i, s:f, s:f, s:f, s:f, s:i, s:i, s:f, s:f, s:f, s:f}", "temperature",
        (double)d.base.temperature, "top_k", d.base.top_k, "top_p", (double)d.base.top_p,
        "min_p", (double)d.base.min_p, "typical_p", (double)d.typical_p, "repeat_penalty",
        (double)d.base.repeat_penalty, "repeat_last_n", d.base.repeat_last_n, "n_predict", -1,
        "top_n_sigma", (double)d.top_n_sigma, "xtc_probability", (double)d.xtc_probability,
        "xtc_threshold", (double)d.xtc_threshold, "dry_multiplier", (double)d.dry.multiplier);
    reply_json(http, 200,
               json_pack("{s:{s:i, s:o}, s:i, s:s, s:s, s:s, s:{s:b, s:b}, s:s}",
                         "default_generation_settings", "n_ctx", f->n_ctx, "params", params,
                         "total_slots", f->n_places, "model_alias", f->name, "model_path",
                         file_name(f->path), "chat_template", f->template_source, "modalities",
                         "vision", 0, "audio", 0, "build_info", f->fingerprint));
}

/* Requests have no places of their own here: as many as run are shown as busy. */
static void slots(struct service *s, struct http_request *http) {
    const struct service_facts *f = service_facts(s);
    struct engine_stats stats;
    json_t *list = json_array();
    service_stats(s, &stats);
    for (int i = 0; i < f->n_places; i++)
        json_array_append_new(list, json_pack("{s:i, s:i, s:b}", "id", i, "n_ctx", f->n_ctx,
                                              "is_processing", i < stats.running));
    reply_json(http, 200, list);
}

/* ---- /apply-template --------------------------------------------------------------------- */

static void apply(struct service *s, struct http_request *http, struct params *p) {
    struct service_request r;
    char *text = NULL;
    size_t len = 0;
    service_request_init(&r);
    param_array(p, "messages", &r.messages);
    if (p->st == ST_OK && json_array_size(r.messages) == 0)
        params_fail(p, "messages", "messages must be an array of at least one message");
    param_tools(p, &r);
    openai_param_extra(p, NULL, &r);
    if (p->st == ST_OK)
        p->st = service_render(s, &r, &text, &len, &p->err);
    if (p->st == ST_OK)
        reply_json(http, 200, json_pack("{s:o}", "prompt", bytes_json(text, len)));
    mem_free(text);
}

static void apply_template(struct service *s, struct http_request *http) {
    openai_handle(s, http, apply);
}

/* ---- /completion, /infill: replies ------------------------------------------------------- */

static const char *stop_type(const struct engine_done *d) {
    return d->stop == ENGINE_STOP_STRING   ? "word"
           : d->stop == ENGINE_STOP_LENGTH ? "limit"
                                           : "eos";
}

static double ratio(double a, double b) {
    return b > 0 ? a / b : 0.0;
}

static json_t *timings(const struct engine_done *d) {
    size_t n_prompt = d->n_prompt - MIN(d->n_cached, d->n_prompt), n = d->n_generated;
    double prompt_ms = d->prompt_s * 1e3, ms = d->generate_s * 1e3;
    return json_pack("{s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f}", "prompt_n",
                     (json_int_t)n_prompt, "prompt_ms", prompt_ms, "prompt_per_token_ms",
                     ratio(prompt_ms, (double)n_prompt), "prompt_per_second",
                     ratio((double)n_prompt, d->prompt_s), "predicted_n", (json_int_t)n,
                     "predicted_ms", ms, "predicted_per_token_ms", ratio(ms, (double)n),
                     "predicted_per_second", ratio((double)n, d->generate_s));
}

/* What n_probs asks for, and of which fields the answer is to consist. */
struct completion_state {
    bool probs, chances;
    json_t *fields; /* owned; NULL: all */
};

static void state_deinit(void *state) {
    struct completion_state *s = state;
    json_decref(s->fields);
}

/* The value at a path such as timings/prompt_n; NULL: there is none. */
static json_t *value_at(json_t *v, const char *path) {
    char name[64];
    while (v != NULL && *path != '\0') {
        size_t n = strcspn(path, "/");
        snprintf(name, sizeof name, "%.*s", (int)MIN(n, sizeof name - 1), path);
        v = json_object_get(v, name);
        path += n + (path[n] == '/');
    }
    return v;
}

/* Only the fields that are asked for, by the names that are; v is taken over. */
static json_t *chosen(const struct reply *r, json_t *v) {
    const struct completion_state *s = r->state;
    const json_t *field;
    size_t i;
    if (json_array_size(s->fields) == 0)
        return v;
    json_t *out = json_object();
    json_array_foreach(s->fields, i, field) {
        const char *path = json_string_value(field);
        json_t *value = path != NULL ? value_at(v, path) : NULL;
        if (value != NULL)
            json_object_set(out, path, value);
    }
    json_decref(v);
    return out;
}

static json_t *prob_json(const struct service_event *ev, int32_t id, float value,
                         const char *name) {
    const char *bytes;
    size_t n = generation_token_bytes(ev->generation, id, &bytes);
    json_t *numbers = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(numbers, json_integer((unsigned char)bytes[i]));
    return json_pack("{s:i, s:o, s:o, s:f}", "id", (int)id, "token", bytes_json(bytes, n),
                     "bytes", numbers, name, (double)MAX(value, -9999.0f));
}

static void keep_probs(const struct reply *r, const struct service_event *ev) {
    const struct completion_state *s = r->state;
    const struct engine_token *t = ev->token;
    struct reply_choice *c = &r->choices[0];
    const char *name = s->chances ? "prob" : "logprob";
    json_t *entry = prob_json(ev, t->id, t->logprob, name), *top = json_array();
    for (int i = 0; i < t->n_top; i++)
        json_array_append_new(top, prob_json(ev, t->top[i].id, t->top[i].logprob, name));
    json_object_set_new(entry, s->chances ? "top_probs" : "top_logprobs", top);
    if (c->logprobs == NULL)
        c->logprobs = json_array();
    json_array_append_new(c->logprobs, entry);
}

/* v, with those of the tokens since they were told last. */
static json_t *with_probs(const struct reply *r, json_t *v) {
    const struct completion_state *s = r->state;
    json_t *list = s->probs ? openai_take_logprobs(&r->choices[0]) : NULL;
    if (s->probs)
        json_object_set_new(v, "completion_probabilities", list != NULL ? list : json_array());
    return v;
}

static json_t *end_json(const struct reply *r, json_t *content) {
    const struct engine_done *d = &r->choices[0].done;
    struct reply_usage u = reply_usage(r);
    return json_pack("{s:i, s:o, s:b, s:s, s:I, s:I, s:I, s:b, s:s, s:s, s:o}", "index", 0,
                     "content", content, "stop", 1, "model", service_facts(r->service)->name,
                     "tokens_predicted", (json_int_t)u.n_generated, "tokens_evaluated",
                     (json_int_t)u.n_prompt, "tokens_cached", (json_int_t)u.n_cached,
                     "truncated", 0, "stop_type", stop_type(d), "stopping_word",
                     d->stop_string != NULL ? d->stop_string : "", "timings", timings(d));
}

static void completion_event(struct reply *r, int choice, const struct service_event *ev) {
    (void)choice;
    if (ev->kind == EVENT_TOKEN)
        keep_probs(r, ev);
    else if (r->stream && ev->kind == EVENT_CONTENT)
        reply_sse(r, NULL,
                  with_probs(r, json_pack("{s:i, s:o, s:b}", "index", 0, "content",
                                          bytes_json(ev->text, ev->len), "stop", 0)));
}

static void completion_end(struct reply *r) {
    reply_sse(r, NULL, with_probs(r, end_json(r, json_string(""))));
}

static json_t *completion_whole(struct reply *r) {
    return chosen(r, with_probs(r, end_json(r, buf_json(&r->choices[0].content))));
}

static const struct dialect completion_dialect = {.stream_type = "text/event-stream",
                                                  .event = completion_event,
                                                  .end = completion_end,
                                                  .stream_error = openai_stream_error,
                                                  .whole = completion_whole,
                                                  .state_deinit = state_deinit,
                                                  .error = openai_error};

/* ---- the request ------------------------------------------------------------------------- */

/* fields: borrowed from the body. */
static void read_request(struct params *p, const struct service *s, struct service_request *r,
                         struct request_memory *m, bool *stream, const json_t **fields) {
    service_request_init(r);
    param_model(p, s);
    param_limit(p, "n_predict", true, r);
    param_limit(p, "max_tokens", true, r);
    param_sampling(p, r, m);
    param_stops(p, "stop", r, m);
    param_form(p, "", NULL, r);
    param_bool(p, "stream", stream);
    param_array(p, "response_fields", fields);
    param_int(p, "n_probs", 0, 20, &r->n_top);
    param_bool(p, "post_sampling_probs", &r->chances);
    r->logprobs = r->n_top > 0;
    r->chances = r->chances && r->logprobs;
}

static void answer(struct service *s, struct http_request *http, struct service_request *r,
                   bool stream, const json_t *fields) {
    struct reply *reply =
        reply_open(s, http, &completion_dialect, 1, 1, stream, sizeof(struct completion_state));
    if (reply == NULL)
        return;
    *(struct completion_state *)reply->state = (struct completion_state){
        .probs = r->logprobs, .chances = r->chances, .fields = json_incref((json_t *)fields)};
    reply_submit(reply, r);
}

static void complete(struct service *s, struct http_request *http, struct params *p) {
    struct service_request r, *each;
    struct request_memory m = {0};
    struct prompts prompts = {0};
    const json_t *fields = NULL;
    bool stream = false;
    read_request(p, s, &r, &m, &stream, &fields);
    param_prompts(p, "prompt", 1, &prompts);
    each = p->st == ST_OK ? prompts_requests(&prompts, &r) : NULL;
    if (p->st == ST_OK && each == NULL)
        params_fail(p, "prompt", "no memory for the prompt");
    if (p->st == ST_OK)
        answer(s, http, each, stream, fields);
    mem_free(each);
    prompts_deinit(&prompts);
    request_memory_deinit(&m);
}

/* Other files, then the prefix, then what stands between it and the answer. */
static void param_before(struct params *p, struct buf *out) {
    const char *prefix = "", *prompt = "";
    const json_t *extra = NULL, *file;
    size_t i;
    param_text(p, "input_prefix", &prefix);
    param_text(p, "prompt", &prompt);
    param_array(p, "input_extra", &extra);
    json_array_foreach((json_t *)extra, i, file) {
        const char *text = json_string_value(json_object_get(file, "text"));
        if (text == NULL)
            params_fail(p, "input_extra", "input_extra[%zu].text must be a string", i);
        else
            buf_printf(out, "%s\n", text);
    }
    buf_printf(out, "%s%s", prefix, prompt);
}

static void infill(struct service *s, struct http_request *http, struct params *p) {
    struct service_request r;
    struct request_memory m = {0};
    const char *suffix = "";
    struct buf before = {0};
    int32_t *ids = NULL;
    const json_t *fields = NULL;
    bool stream = false;
    read_request(p, s, &r, &m, &stream, &fields);
    param_text(p, "input_suffix", &suffix);
    param_before(p, &before);
    if (p->st == ST_OK)
        p->st = fim_prompt(s, buf_cstr(&before), suffix, &ids, &r.n_ids, &p->err);
    r.ids = ids;
    if (p->st == ST_OK)
        answer(s, http, &r, stream, fields);
    mem_free(ids);
    buf_free(&before);
    request_memory_deinit(&m);
}

static void handle_completion(struct service *s, struct http_request *http) {
    openai_handle(s, http, complete);
}

static void handle_infill(struct service *s, struct http_request *http) {
    openai_handle(s, http, infill);
}

const struct route llama_cpp_routes[] = {{"GET", "/props", props},
                                         {"GET", "/slots", slots},
                                         {"POST", "/apply-template", apply_template},
                                         {"POST", "/completion", handle_completion},
                                         {"POST", "/infill", handle_infill},
                                         {NULL, NULL, NULL}};
