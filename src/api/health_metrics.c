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
