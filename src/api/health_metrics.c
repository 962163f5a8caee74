/* health_metrics.c: lockstep's own endpoints: tokens, health, metrics, and the web page. */
#include "api/dialects.h"
#include "api/openai.h"
#include "base/mem.h"
#include "base/util.h"
#include "server/prompts.h"

#include <math.h>
#include <stdio.h>

/* ---- /tokenize, /detokenize -------------------------------------------------------------- */

static void send_tokens(struct http_request *http, const int32_t *ids, size_t n) {
    json_t *tokens = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(tokens, json_integer(ids[i]));
    reply_json(http, 200, json_pack("{s:o, s:I}", "tokens", tokens, "count", (json_int_t)n));
}

static void tokenize_body(struct service *s, struct http_request *http, struct params *p) {
    const char *content = NULL;
    bool add_special = false, parse_special = true;
    int32_t *ids;
    size_t n;
    param_text(p, "content", &content);
    param_bool(p, "add_special", &add_special);
    param_bool(p, "parse_special", &parse_special);
    if (p->st == ST_OK && content == NULL)
        params_fail(p, "content", "content is missing: the text to tokenize");
    if (p->st == ST_OK)
        p->st = service_tokenize(s, content, strlen(content), add_special, parse_special, &ids,
                                 &n, &p->err);
    if (p->st != ST_OK)
        return;
    send_tokens(http, ids, n);
    mem_free(ids);
}

static void detokenize_body(struct service *s, struct http_request *http, struct params *p) {
    struct prompts tokens = {0};
    char *text;
    size_t len;
    param_prompts(p, "tokens", 1, &tokens);
    if (p->st == ST_OK && tokens.list[0].ids == NULL)
        params_fail(p, "tokens", "tokens must be an array of token ids");
    for (size_t i = 0; p->st == ST_OK && i < tokens.list[0].n_ids; i++)
        if (tokens.list[0].ids[i] >= service_facts(s)->n_vocab)
            params_fail(p, "tokens", "tokens: %d is none of the %d tokens of this model",
                        tokens.list[0].ids[i], service_facts(s)->n_vocab);
    if (p->st == ST_OK)
        p->st = service_detokenize(s, tokens.list[0].ids, tokens.list[0].n_ids, &text, &len,
                                   &p->err);
    prompts_deinit(&tokens);
    if (p->st != ST_OK)
        return;
    reply_json(http, 200, json_pack("{s:o}", "content", bytes_json(text, len)));
    mem_free(text);
}

static void handle_tokenize(struct service *s, struct http_request *http) {
    openai_handle(s, http, tokenize_body);
}

static void handle_detokenize(struct service *s, struct http_request *http) {
    openai_handle(s, http, detokenize_body);
}

/* ---- /health ----------------------------------------------------------------------------- */

static void health(struct service *s, struct http_request *http) {
    struct engine_stats stats;
    service_stats(s, &stats);
    if (stats.recovering)
        reply_json(http, 503,
                   json_pack("{s:s, s:s, s:i}", "status", "recovering", "why", stats.why,
                             "ranks", stats.n_ranks));
    else if (stats.healthy)
        reply_json(http, 200,
                   json_pack("{s:s, s:i, s:i, s:i, s:s*}", "status", "ok", "running",
                             stats.running, "queued", stats.queued, "ranks", stats.n_ranks,
                             "left_out", *stats.left_out != '\0' ? stats.left_out : NULL));
    else
        reply_json(http, 503, json_pack("{s:s, s:s}", "status", "unhealthy", "why", stats.why));
}

/* ---- /metrics, in the text format of Prometheus ------------------------------------------ */

static void number(struct buf *t, const char *name, const char *type, const char *help,
                   double value) {
    buf_printf(t, "# HELP lockstep_%s %s\n# TYPE lockstep_%s %s\n", name, help, name, type);
    buf_printf(t, "lockstep_%s %.17g\n", name, value);
}

static void histogram(struct buf *t, const char *name, const char *help,
                      const struct engine_histogram *h) {
    uint64_t below = 0;
    buf_printf(t, "# HELP lockstep_%s %s\n# TYPE lockstep_%s histogram\n", name, help, name);
    for (size_t i = 0; i < ARRAY_LEN(h->bounds); i++) {
        below += h->counts[i];
        if (isinf(h->bounds[i]))
            buf_printf(t, "lockstep_%s_bucket{le=\"+Inf\"} %llu\n", name,
                       (unsigned long long)below);
        else
            buf_printf(t, "lockstep_%s_bucket{le=\"%g\"} %llu\n", name, h->bounds[i],
                       (unsigned long long)below);
    }
    buf_printf(t, "lockstep_%s_sum %.9g\nlockstep_%s_count %llu\n", name, h->sum, name,
               (unsigned long long)h->n);
}

static void put_counters(struct buf *t, const struct engine_stats *e) {
    number(t, "requests_total", "counter", "Requests taken.", (double)e->requests);
    number(t, "prompt_tokens_total", "counter", "Prompt tokens computed or found.",
           (double)e->tokens_prompt);
    number(t, "cached_tokens_total", "counter", "Prompt tokens found in the prefix cache.",
           (double)e->tokens_cached);
    number(t, "generated_tokens_total", "counter", "Tokens generated.",
           (double)e->tokens_generated);
    number(t, "steps_total", "counter", "Steps of the engine.", (double)e->steps);
    number(t, "preemptions_total", "counter", "Requests put back for want of pages.",
           (double)e->preemptions);
    number(t, "recoveries_total", "counter", "Times that lost ranks were done without.",
           (double)e->recoveries);
    number(t, "rejoins_total", "counter", "Times that machines which were back were taken in.",
           (double)e->rejoins);
    number(t, "speculated_tokens_total", "counter", "Tokens guessed.", (double)e->speculated);
    number(t, "accepted_tokens_total", "counter", "Guesses that were right.",
           (double)e->accepted);
}

static void put_gauges(struct buf *t, const struct engine_stats *e) {
    number(t, "healthy", "gauge", "1 if requests are served.", e->healthy && !e->recovering);
    number(t, "ranks", "gauge", "Ranks that compute.", e->n_ranks);
    number(t, "requests_running", "gauge", "Sequences that decode.", e->running);
    number(t, "requests_queued", "gauge", "Requests that wait.", e->queued);
    number(t, "batch_tokens", "gauge", "Tokens in the last step.", e->batch);
    number(t, "kv_pages", "gauge", "KV pages in all.", (double)e->pages_total);
    number(t, "kv_pages_used", "gauge", "KV pages in use.", (double)e->pages_used);
    number(t, "kv_pages_cached", "gauge", "Free KV pages that can be found again.",
           (double)e->pages_cached);
    number(t, "states", "gauge", "States of recurrent layers in all.", (double)e->states_total);
    number(t, "states_used", "gauge", "States in use.", (double)e->states_used);
    number(t, "states_kept", "gauge", "States that can be found again.",
           (double)e->states_kept);
}

static void of_ranks(struct buf *t, const char *name, const char *type, const char *help,
                     const double *values, int n) {
    buf_printf(t, "# HELP lockstep_%s %s\n# TYPE lockstep_%s %s\n", name, help, name, type);
    for (int i = 0; i < n; i++)
        buf_printf(t, "lockstep_%s{rank=\"%d\"} %.17g\n", name, i, values[i]);
}

/* Of the ranks that compute now, which may be fewer than at first. */
static void put_ranks(struct buf *t, struct service *s, int n_now) {
    int n_first = service_facts(s)->n_ranks, n = MIN(n_now, n_first);
    struct engine_rank_stats *ranks = mem_calloc((size_t)n_first, sizeof *ranks);
    double *values = mem_calloc(3 * (size_t)n, sizeof *values);
    if (ranks != NULL && values != NULL && service_rank_stats(s, ranks, NULL) == ST_OK) {
        for (int i = 0; i < n; i++) {
            values[i] = ranks[i].compute_s;
            values[n + i] = ranks[i].fabric_s;
            values[2 * n + i] = (double)ranks[i].resident_bytes;
        }
        of_ranks(t, "rank_compute_seconds_total", "counter",
                 "Time of each rank in kernels, since these ranks came together.", values, n);
        of_ranks(t, "rank_fabric_seconds_total", "counter",
                 "Time of each rank waiting for others and copying, since then.", values + n,
                 n);
        of_ranks(t, "rank_resident_bytes", "gauge", "Memory of each rank's process.",
                 values + 2 * n, n);
    }
    mem_free(ranks);
    mem_free(values);
}

/* ---- the same by names that ready-made dashboards know ----------------------------------- */

static void other(struct buf *t, const char *name, const char *type, const char *help,
                  const char *labels, double value) {
    buf_printf(t, "# HELP %s %s\n# TYPE %s %s\n%s%s %.17g\n", name, help, name, type, name,
               labels, value);
}

static void other_histogram(struct buf *t, const char *name, const char *help,
                            const char *label, const struct engine_histogram *h) {
    uint64_t below = 0;
    buf_printf(t, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name);
    for (size_t i = 0; i < ARRAY_LEN(h->bounds); i++) {
        char bound[32] = "+Inf";
        below += h->counts[i];
        if (!isinf(h->bounds[i]))
            snprintf(bound, sizeof bound, "%g", h->bounds[i]);
        buf_printf(t, "%s_bucket{%s,le=\"%s\"} %llu\n", name, label, bound,
                   (unsigned long long)below);
    }
    buf_printf(t, "%s_sum{%s} %.9g\n%s_count{%s} %llu\n", name, label, h->sum, name, label,
               (unsigned long long)h->n);
}

/* A label with the model's name, but for what must not stand in one. */
static void put_label(char *out, size_t size, const char *name) {
    char value[128];
    size_t n = 0;
    for (; *name != '\0' && n + 1 < sizeof value; name++)
        if (*name != '"' && *name != '\\' && *name != '\n')
            value[n++] = *name;
    value[n] = '\0';
    snprintf(out, size, "model_name=\"%s\"", value);
}

static double pages_used(const struct engine_stats *e) {
    return e->pages_total > 0 ? (double)e->pages_used / (double)e->pages_total : 0;
}

static void put_vllm(struct buf *t, const struct engine_stats *e, const char *name) {
    char label[160], labels[168];
    put_label(label, sizeof label, name);
    snprintf(labels, sizeof labels, "{%s}", label);
    other(t, "vllm:num_requests_running", "gauge", "Sequences that decode.", labels,
          e->running);
    other(t, "vllm:num_requests_waiting", "gauge", "Requests that wait.", labels, e->queued);
    other(t, "vllm:kv_cache_usage_perc", "gauge", "KV pages in use, of 1.", labels,
          pages_used(e));
    other(t, "vllm:prompt_tokens_total", "counter", "Prompt tokens computed or found.", labels,
          (double)e->tokens_prompt);
    other(t, "vllm:generation_tokens_total", "counter", "Tokens generated.", labels,
          (double)e->tokens_generated);
    other(t, "vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked for.", labels,
          (double)e->tokens_prompt);
    other(t, "vllm:prefix_cache_hits_total", "counter", "Prompt tokens found.", labels,
          (double)e->tokens_cached);
    other(t, "vllm:num_preemptions_total", "counter", "Requests put back.", labels,
          (double)e->preemptions);
    other_histogram(t, "vllm:time_to_first_token_seconds", "To the first token.", label,
                    &e->first_token_s);
    other_histogram(t, "vllm:inter_token_latency_seconds", "Between two tokens.", label,
                    &e->between_tokens_s);
    other_histogram(t, "vllm:request_queue_time_seconds", "Waiting before the prompt.", label,
                    &e->queue_s);
}

static void put_llama_cpp(struct buf *t, const struct engine_stats *e) {
    other(t, "llamacpp:prompt_tokens_total", "counter", "Prompt tokens computed.", "",
          (double)(e->tokens_prompt - e->tokens_cached));
    other(t, "llamacpp:tokens_predicted_total", "counter", "Tokens generated.", "",
          (double)e->tokens_generated);
    other(t, "llamacpp:n_decode_total", "counter", "Steps of the engine.", "",
          (double)e->steps);
    other(t, "llamacpp:requests_processing", "gauge", "Sequences that decode.", "", e->running);
    other(t, "llamacpp:requests_deferred", "gauge", "Requests that wait.", "", e->queued);
    other(t, "llamacpp:kv_cache_usage_ratio", "gauge", "KV pages in use, of 1.", "",
          pages_used(e));
}

static void metrics(struct service *s, struct http_request *http) {
    struct engine_stats stats;
    struct buf t = {0};
    service_stats(s, &stats);
    put_counters(&t, &stats);
    put_gauges(&t, &stats);
    put_ranks(&t, s, stats.n_ranks);
    histogram(&t, "first_token_seconds", "From the request to the first token.",
              &stats.first_token_s);
    histogram(&t, "between_tokens_seconds", "Between two tokens of a request.",
              &stats.between_tokens_s);
    histogram(&t, "queue_seconds", "Waiting before the prompt was begun.", &stats.queue_s);
    put_vllm(&t, &stats, service_facts(s)->name);
    put_llama_cpp(&t, &stats);
    http_reply(http, 200, "text/plain; version=0.0.4", t.bytes, t.len);
    buf_free(&t);
}

/* ---- / ----------------------------------------------------------------------------------- */

static void gateway_page(struct service *s, struct http_request *http) {
    struct buf t = {0};
    const struct service_facts *f = service_facts(s);
    if (http_is_trusted(http))
        buf_printf(&t, "lockstep serves %s (%s, %s) on %d rank%s.\n", f->name, f->architecture,
                   f->type, f->n_ranks, f->n_ranks == 1 ? "" : "s");
    else
        buf_add_str(&t,
                    "lockstep serves a model; its name is for those who have an API key.\n");
    buf_printf(
        &t, "It speaks OpenAI's API below /v1, Anthropic's at /v1/messages and Ollama's below "
            "/api; /health and /metrics say how it is.\n");
    http_reply(http, 200, "text/plain; charset=utf-8", t.bytes, t.len);
    buf_free(&t);
}

const struct route misc_routes[] = {{"POST", "/tokenize", handle_tokenize},
                                    {"POST", "/detokenize", handle_detokenize},
                                    {"GET", "/health", health},
                                    {"GET", "/metrics", metrics},
                                    {"GET", "/", gateway_page},
                                    {NULL, NULL, NULL}};
