/* openai_embeddings.c: /v1/embeddings: the mean of the last hidden states, or the last one,
 * normalized to length 1. */
#include "api/openai.h"
#include "base/mem.h"
#include "base/util.h"
#include "server/prompts.h"

#include <sodium.h>

struct embedding_state {
    bool base64;
};

/* The vector as little-endian f32 in base64, which OpenAI's clients ask for. */
static json_t *base64_json(const json_t *vector) {
    size_t n = json_array_size(vector), cap;
    float *v = mem_calloc(n, sizeof *v);
    cap = sodium_base64_encoded_len(n * sizeof *v, sodium_base64_VARIANT_ORIGINAL);
    char *text = mem_alloc(cap);
    json_t *out = NULL;
    if (v != NULL && text != NULL) {
        for (size_t i = 0; i < n; i++)
            v[i] = (float)json_real_value(json_array_get(vector, i));
        sodium_bin2base64(text, cap, (const unsigned char *)v, n * sizeof *v,
                          sodium_base64_VARIANT_ORIGINAL);
        out = json_string(text);
    }
    mem_free(v);
    mem_free(text);
    return out;
}

static json_t *embedding_whole(struct reply *r) {
    const struct embedding_state *state = r->state;
    json_t *data = json_array();
    for (int i = 0; i < r->n_parts; i++) {
        const json_t *vector = r->choices[i].vector;
        json_t *v = state->base64 ? base64_json(vector) : json_incref((json_t *)vector);
        json_array_append_new(data, json_pack("{s:s, s:i, s:o}", "object", "embedding", "index",
                                              i, "embedding", v));
    }
    struct reply_usage u = reply_usage(r);
    return json_pack("{s:s, s:o, s:s, s:{s:I, s:I}}", "object", "list", "data", data, "model",
                     service_facts(r->service)->name, "usage", "prompt_tokens",
                     (json_int_t)u.n_prompt, "total_tokens", (json_int_t)u.n_prompt);
}

const struct dialect openai_embedding_dialect = {.whole = embedding_whole,
                                                 .error = openai_error};

static void read_request(struct params *p, const struct service *s, struct service_request *r,
                         bool *base64) {
    const char *format = "float";
    service_request_init(r);
    param_model(p, s);
    param_text(p, "encoding_format", &format);
    *base64 = str_eq(format, "base64");
    if (!*base64 && !str_eq(format, "float"))
        params_fail(p, "encoding_format", "encoding_format must be \"float\" or \"base64\"");
    param_embedding(p, s, r);
}

static void answer(struct service *s, struct http_request *http,
                   const struct service_request *r, const struct prompts *inputs, bool base64) {
    struct service_request *each = prompts_requests(inputs, r);
    if (each == NULL) {
        struct err why;
        enum status st = err_set(&why, ST_NO_MEMORY, "no memory for the input");
        reply_error(http, &openai_embedding_dialect, st, &why, "");
        return;
    }
    struct reply *reply = reply_open(s, http, &openai_embedding_dialect, (int)inputs->n, 1,
                                     false, sizeof(struct embedding_state));
    if (reply != NULL) {
        *(struct embedding_state *)reply->state = (struct embedding_state){base64};
        reply_submit(reply, each);
    }
    mem_free(each);
}

static void embeddings(struct service *s, struct http_request *http, struct params *p) {
    struct service_request r;
    struct prompts inputs = {0};
    bool base64 = false;
    read_request(p, s, &r, &base64);
    param_prompts(p, "input", EMBED_INPUTS_MAX, &inputs);
    if (p->st == ST_OK)
        answer(s, http, &r, &inputs, base64);
    prompts_deinit(&inputs);
}

void openai_embeddings(struct service *s, struct http_request *http) {
    openai_handle(s, http, embeddings);
}
