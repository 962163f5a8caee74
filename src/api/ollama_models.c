/* ollama_models.c: the models endpoints of Ollama's API: there is one model, always loaded. */
#include "api/ollama.h"

#include "base/util.h"
#include "server/request_params.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

/* The version of Ollama whose API this is. Clients refuse a version that lacks what they need.
 */
#define API_VERSION "0.15.0"

static json_t *details(const struct service_facts *f) {
    char size[32];
    double n = (double)f->n_params;
    snprintf(size, sizeof size, n < 1e9 ? "%.1fM" : "%.1fB", n < 1e9 ? n * 1e-6 : n * 1e-9);
    return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s}", "parent_model", "", "format", "gguf",
                     "family", f->architecture, "families", f->architecture, "parameter_size",
                     size, "quantization_level", f->type);
}

/* Not the file's hash, which would take a while: one of its name and size. */
static json_t *digest(const struct service_facts *f) {
    unsigned char hash[32];
    char text[512], hex[2 * sizeof hash + 1];
    int n =
        snprintf(text, sizeof text, "%s %llu", f->name, (unsigned long long)f->weight_bytes);
    crypto_generichash(hash, sizeof hash, (const unsigned char *)text,
                       (size_t)MIN(n, (int)sizeof text - 1), NULL, 0);
    return json_string(sodium_bin2hex(hex, sizeof hex, hash, sizeof hash));
}

/* Ollama's names always have a tag, and some clients add it before they look for the name. */
static json_t *tagged_name(const struct service_facts *f) {
    return json_sprintf("%s%s", f->name, strchr(f->name, ':') == NULL ? ":latest" : "");
}

static json_t *model_json(const struct service_facts *f) {
    return json_pack("{s:o, s:o, s:I, s:o, s:o}", "name", tagged_name(f), "model",
                     tagged_name(f), "size", (json_int_t)f->weight_bytes, "digest", digest(f),
                     "details", details(f));
}

static void tags(struct service *s, struct http_request *http) {
    const struct service_facts *f = service_facts(s);
    json_t *m = model_json(f);
    json_object_set_new(m, "modified_at", time_json(f->file_modified));
    reply_json(http, 200, json_pack("{s:[o]}", "models", m));
}

static void ps(struct service *s, struct http_request *http) {
    const struct service_facts *f = service_facts(s);
    json_t *m = model_json(f);
    json_object_set_new(m, "expires_at", json_string("9999-12-31T23:59:59Z"));
    json_object_set_new(m, "size_vram", json_integer(0));
    json_object_set_new(m, "context_length", json_integer(f->n_ctx));
    reply_json(http, 200, json_pack("{s:[o]}", "models", m));
}

static void version(struct service *s, struct http_request *http) {
    (void)s;
    reply_json(http, 200, json_pack("{s:s}", "version", API_VERSION));
}

static void set_info(json_t *info, const struct service_facts *f, const char *key, json_t *v) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", f->architecture, key);
    json_object_set_new(info, name, v);
}

static json_t *model_info(const struct service_facts *f) {
    json_t *info = json_pack("{s:s, s:s, s:I}", "general.architecture", f->architecture,
                             "general.basename", f->name, "general.parameter_count",
                             (json_int_t)f->n_params);
    set_info(info, f, "context_length",
             json_integer(f->n_ctx)); /* clients size their prompts by it */
    set_info(info, f, "embedding_length", json_integer(f->n_embd));
    set_info(info, f, "block_count", json_integer(f->n_layers));
    set_info(info, f, "vocab_size", json_integer(f->n_vocab));
    return info;
}

static json_t *show_json(const struct service_facts *f) {
    json_t *capabilities = json_pack("[s, s, s]", "completion", "embedding", "tools");
    if (f->thinks)
        json_array_append_new(capabilities, json_string("thinking"));
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "modelfile", "", "parameters", "",
                     "template", f->template_source, "details", details(f), "model_info",
                     model_info(f), "capabilities", capabilities, "modified_at",
                     time_json(f->file_modified));
}

static void show(struct service *s, struct http_request *http) {
    struct params p;
    if (params_init(&p, http))
        ollama_param_model(&p, s);
    if (p.st == ST_OK)
        reply_json(http, 200, show_json(service_facts(s)));
    else
        reply_error(http, &ollama_dialect, p.st, &p.err, p.field);
    params_deinit(&p);
}

const struct route ollama_routes[] = {{"POST", "/api/chat", ollama_chat},
                                      {"POST", "/api/generate", ollama_generate},
                                      {"POST", "/api/embed", ollama_embed},
                                      {"POST", "/api/embeddings", ollama_embeddings},
                                      {"GET", "/api/tags", tags},
                                      {"GET", "/api/ps", ps},
                                      {"GET", "/api/version", version},
                                      {"POST", "/api/show", show},
                                      {NULL, NULL, NULL}};
