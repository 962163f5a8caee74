/* openai.c: errors, usage and /v1/models in OpenAI's shapes. */
#include "server/openai.h"

#include "base/util.h"

static const char *error_type(int http_status) {
    switch (http_status) {
    case 401: return "authentication_error";
    case 429: return "rate_limit_error";
    case 500: return "server_error";
    case 503: return "service_unavailable_error";
    default: return "invalid_request_error";
    }
}

json_t *openai_error(int http_status, const char *sentence, const char *field) {
    const char *code = http_status == 401 ? "invalid_api_key"
                       : http_status == 404 && str_eq(field, "model") ? "model_not_found"
                                                                      : NULL;
    return json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", sentence, "type",
                     error_type(http_status), "param", field[0] != '\0' ? field : NULL, "code",
                     code);
}

json_t *openai_usage(const struct reply *r) {
    struct reply_usage u = reply_usage(r);
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)u.n_prompt,
                     "completion_tokens", (json_int_t)u.n_generated, "total_tokens",
                     (json_int_t)(u.n_prompt + u.n_generated), "prompt_tokens_details",
                     "cached_tokens", (json_int_t)u.n_cached);
}

const char *openai_finish(enum service_finish f) {
    switch (f) {
    case FINISH_LENGTH: return "length";
    case FINISH_CALLS: return "tool_calls";
    default: return "stop";
    }
}

void openai_stream_error(struct reply *r, enum status st, const char *sentence) {
    reply_sse(r, NULL, openai_error(http_status_of(st), sentence, ""));
}

void openai_refuse(struct http_request *http, const struct params *p) {
    reply_error(http, &openai_chat_dialect, p->st, p->err.text, p->field);
}

void openai_param_stream(struct params *p, bool *stream, bool *include_usage) {
    const json_t *options = NULL;
    param_bool(p, "stream", stream);
    param_object(p, "stream_options", &options);
    const json_t *usage = json_object_get(options, "include_usage");
    if (usage != NULL && !json_is_boolean(usage) && !json_is_null(usage))
        params_fail(p, "stream_options", "stream_options.include_usage must be true or false");
    *include_usage = json_is_true(usage);
}

/* ---- /v1/models ------------------------------------------------------------------------------------ */

static json_t *model_json(const struct service *s) {
    const struct service_facts *f = service_facts(s);
    return json_pack("{s:s, s:s, s:I, s:s, s:{s:i, s:i, s:I, s:s}}", "id", f->name, "object",
                     "model", "created", (json_int_t)f->created, "owned_by", "lockstep", "meta",
                     "n_ctx", f->n_ctx, "n_vocab", f->n_vocab, "n_params",
                     (json_int_t)f->n_params, "type", f->type);
}

static void list_models(struct service *s, struct http_request *r) {
    reply_json(r, 200, json_pack("{s:s, s:[o]}", "object", "list", "data", model_json(s)));
}

static void show_model(struct service *s, struct http_request *r) {
    const char *name = http_path(r) + strlen("/v1/models/");
    if (service_is_model(s, name))
        reply_json(r, 200, model_json(s));
    else
        reply_error(r, &openai_chat_dialect, ST_NOT_FOUND, "no such model is served here",
                    "model");
}


const struct route openai_routes[] = {{"POST", "/v1/chat/completions", openai_chat},
                                      {"POST", "/v1/completions", openai_completions},
                                      {"POST", "/v1/embeddings", openai_embeddings},
                                      {"GET", "/v1/models", list_models},
                                      {"GET", "/v1/models/", show_model},
                                      {NULL, NULL, NULL}};
