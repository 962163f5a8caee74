/* bench.c: lockstep bench: prompt and generation speed beside this machine's own rooflines,
 * measured in the same run with the same number of threads. docs/bench.md explains the numbers.
 */
#include "base/median.h"
#include "base/util.h"
#include "cli/session.h"
#include "commands/bench_links.h"
#include "format/gguf.h"
#include "hf/hf_folder.h"

#include <stdio.h>
#include <stdlib.h>

static int n_prompt, n_generate = 128, n_depth, n_runs = 5;
static const char *compare_links, *trace;

static const struct cli_option options[] = {
    CLI_COMMON("prompt,generate,depth,runs,compare-links,json,quiet,ranks,device,nodes"),
    CLI_INT('p', "prompt", "N", &n_prompt, 1, 1 << 20,
            "tokens of the prompt (default 512, or what fits the\n"
            "model's context)"),
    CLI_INT('n', "generate", "N", &n_generate, 1, 1 << 20, "tokens to generate (default 128)"),
    CLI_INT('d', "depth", "N", &n_depth, 0, 1 << 20,
            "tokens of context before these, whose time does not\n"
            "count (default 0)"),
    CLI_INT('r', "runs", "R", &n_runs, 1, SESSION_RUNS_MAX,
            "number of rounds; the result is their median (default\n"
            "5)"),
    CLI_TEXT(0, "compare-links", "L1,L2,..", &compare_links,
             "prints a table instead: one rank, pipeline and tensor\n"
             "over emulated links with these latencies, such as\n"
             "300us,3us (docs/links.md)"),
    CLI_TEXT(0, "trace", "FILE", &trace,
             "also writes when each rank computes and waits in the\n"
             "last round, for chrome://tracing or ui.perfetto.dev"),
    CLI_FLAG(0, "json", &session_args.json, "one JSON object"),
    CLI_FLAG('q', "quiet", &session_args.quiet, "says nothing on stderr"),
    CLI_INCLUDE(session_options),
    CLI_END};

static const struct cli_command command = {
    "bench", "measures speed, beside what this machine could do at most",
    "Each round measures a prompt and a generation, and the roofs (what the machine could do)\n"
    "before, between and after. Every number is the median of its rounds.\n\n"
    "  prompt_tokens_per_s   prompt tokens / time to the first token\n"
    "  gen_tokens_per_s      tokens after the first / their time, one by one\n"
    "  read_roof_gbs         GB/s that ranks x threads threads read from memory, doing nothing "
    "else;\n"
    "                        of a single rank on a device: that the device reads\n"
    "  gen_read_gbs          gen_tokens_per_s x token_weight_bytes, the weights read for a token\n"
    "  gen_roof_fraction     gen_read_gbs / the mean of the read roofs just before and after\n"
    "  peak_gops             10^9 operations/s of the best multiply-add loop, int8 or f32 as "
    "the\n"
    "                        weights are computed with; a multiply-add is 2 operations\n"
    "  prompt_gops           2 x multiply-adds of the weights x prompt tokens (the output "
    "matrix\n"
    "                        once) / time to the first token\n"
    "  prompt_peak_fraction  prompt_gops / the mean of the peaks just before and after",
    options};

/* ---- medians ----------------------------------------------------------------------------- */

struct series {
    double value[2 * SESSION_RUNS_MAX + 1];
    int n;
};

static void series_add(struct series *s, double v) {
    s->value[s->n++] = v;
}

static double series_median(struct series s) {
    return median(s.value, s.n);
}

static json_t *series_json(const struct series *s) {
    json_t *a = json_array();
    for (int i = 0; i < s->n; i++)
        json_array_append_new(a, json_real(s->value[i]));
    return a;
}

/* ---- measuring --------------------------------------------------------------------------- */

/* Of rank 0's device, for a chunk of a prompt, or a token of a generation; 0: it has none. */
struct device_work {
    double submissions, recorded, dispatches, bus_bytes;
};

struct bench {
    struct lockstep *ls;
    int32_t *ids; /* of a prompt, and of the context before a generation */
    struct series prompt, generate, fabric; /* n_runs */
    struct series read_roof, peak;          /* 2 n_runs + 1: before, between and after these */
    const char *peak_kind;
    struct device_work device_prompt, device_token;
};

/* Token ids without a pattern; the same in every run. */
static void fill_ids(int32_t *ids, int n, int n_vocab) {
    uint32_t x = 1;
    for (int i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (int32_t)((x >> 8) % (uint32_t)n_vocab);
    }
}

static enum lockstep_status run(struct bench *b, int n_ids, int n_predict,
                                struct lockstep_result *result, struct lockstep_error *err) {
    struct lockstep_request req;
    struct lockstep_sampling greedy;
    lockstep_request_init(&req);
    lockstep_sampling_init(&greedy);
    req.ids = b->ids;
    req.n_ids = (size_t)n_ids;
    req.n_predict = n_predict;
    req.ignore_end = true;
    greedy.temperature = 0;
    req.sampling = &greedy;
    lockstep_reset(b->ls);
    return lockstep_generate(b->ls, &req, result, err);
}

static enum lockstep_status measure_roofs(struct bench *b, struct lockstep_error *err) {
    struct lockstep_roofs roofs;
    enum lockstep_status st = lockstep_roofs(b->ls, &roofs, err);
    if (st != LOCKSTEP_OK)
        return st;
    series_add(&b->read_roof, roofs.read_gbs);
    series_add(&b->peak, roofs.peak_gops);
    b->peak_kind = roofs.peak_kind;
    return st;
}

static bool is_traced(const struct bench *b) {
    return trace != NULL && b->generate.n + 1 == n_runs; /* the last round */
}

/* The first step of a generation is a prompt's. */
static struct device_work device_work(const struct lockstep_times *t) {
    double steps = (double)MAX(t->steps, (uint64_t)1);
    return (struct device_work){
        (double)t->device_submissions / steps, (double)t->device_recorded / steps,
        (double)t->device_dispatches / steps, (double)t->device_bus_bytes / steps};
}

static enum lockstep_status measure_prompt(struct bench *b, struct lockstep_error *err) {
    struct lockstep_result r;
    struct lockstep_times times;
    enum lockstep_status st = is_traced(b) ? lockstep_trace_begin(b->ls, err) : LOCKSTEP_OK;
    lockstep_times(b->ls, &times, true);
    if (st == LOCKSTEP_OK)
        st = run(b, n_prompt, 1, &r, err);
    if (st != LOCKSTEP_OK)
        return st;
    lockstep_times(b->ls, &times, true);
    series_add(&b->prompt, session_rate(n_prompt, r.prompt_s));
    b->device_prompt = device_work(&times);
    return st;
}

static enum lockstep_status measure_generation(struct bench *b, struct lockstep_error *err) {
    struct lockstep_result r;
    struct lockstep_times times;
    bool traced = is_traced(b);
    lockstep_times(b->ls, &times, true);
    /* One token more, since the first one's time belongs to the prompt. */
    enum lockstep_status st = run(b, n_depth + 1, n_generate + 1, &r, err);
    if (st != LOCKSTEP_OK)
        return st;
    lockstep_times(b->ls, &times, true);
    series_add(&b->generate, session_rate(session_generated(&r), r.generate_s));
    series_add(&b->fabric, session_rate(times.fabric_s, times.fabric_s + times.compute_s));
    b->device_token = device_work(&times);
    return traced ? lockstep_trace_end(b->ls, trace, err) : st;
}

static int measure(struct bench *b) {
    struct lockstep_error err;
    enum lockstep_status st = measure_roofs(b, &err);
    static enum lockstep_status (*const parts[])(struct bench *, struct lockstep_error *) = {
        measure_prompt, measure_roofs, measure_generation, measure_roofs};
    const int n_parts = (int)ARRAY_LEN(parts);
    for (int i = 0; i < n_runs * n_parts && st == LOCKSTEP_OK && !cli_interrupted(); i++)
        st = parts[i % n_parts](b, &err);
    if (cli_interrupted())
        return 130;
    return st == LOCKSTEP_OK ? CLI_GO_ON : session_fail(st, &err);
}

/* ---- results ----------------------------------------------------------------------------- */

struct summary {
    double prompt, generate;                  /* tokens/s */
    double read_roof, gen_read, gen_fraction; /* GB/s */
    double peak, prompt_gops, prompt_fraction;
    double fabric; /* of a generation's time */
};

/* The median over the rounds of a rate, relative to the mean of the roofs measured around it;
 * first: the first roof. */
static double fraction(const struct series *rate, double unit, const struct series *roof,
                       int first) {
    struct series x = {.n = 0};
    for (int i = 0; i < rate->n; i++) {
        const double *around = roof->value + 2 * i + first;
        series_add(&x, session_rate(rate->value[i] * unit, (around[0] + around[1]) / 2));
    }
    return series_median(x);
}

static struct summary summarize(const struct bench *b) {
    const struct lockstep_model_info *m = lockstep_model_info(b->ls);
    double output_macs = (double)m->n_vocab * m->n_embd;
    double prompt_macs = ((double)m->token_macs - output_macs) * n_prompt + output_macs;
    struct summary s = {
        .prompt = series_median(b->prompt),
        .generate = series_median(b->generate),
        .read_roof = series_median(b->read_roof),
        .peak = series_median(b->peak),
        .fabric = series_median(b->fabric),
    };
    double token_gb = (double)m->token_weight_bytes * 1e-9,
           token_gop = 2e-9 * prompt_macs / n_prompt;
    s.gen_read = s.generate * token_gb;
    s.gen_fraction = fraction(&b->generate, token_gb, &b->read_roof, 1);
    s.prompt_gops = s.prompt * token_gop;
    s.prompt_fraction = fraction(&b->prompt, token_gop, &b->peak, 0);
    return s;
}

static json_t *device_json(const struct device_work *d) {
    return json_pack("{s:f, s:f, s:f, s:f}", "submissions", d->submissions, "recorded",
                     d->recorded, "dispatches", d->dispatches, "bus_bytes", d->bus_bytes);
}

static int print_json(const struct bench *b, const struct summary *s) {
    json_t *o = session_json(b->ls);
    json_t *mine = json_pack(
        "{s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:I, s:f, s:f, s:f, s:s, s:f, s:f, s:f, s:o, s:o, s:o, s:o}",
        "prompt_tokens", n_prompt, "generated_tokens", n_generate, "depth", n_depth, "runs",
        n_runs, "prompt_tokens_per_s", s->prompt, "gen_tokens_per_s", s->generate,
        "read_roof_gbs", s->read_roof, "token_weight_bytes",
        (json_int_t)lockstep_model_info(b->ls)->token_weight_bytes, "gen_read_gbs", s->gen_read,
        "gen_roof_fraction", s->gen_fraction, "peak_gops", s->peak, "peak_kind", b->peak_kind,
        "prompt_gops", s->prompt_gops, "prompt_peak_fraction", s->prompt_fraction,
        "gen_fabric_fraction", s->fabric, "prompt_runs", series_json(&b->prompt), "gen_runs",
        series_json(&b->generate), "read_roof_runs", series_json(&b->read_roof), "peak_runs",
        series_json(&b->peak));
    json_object_update(o, mine);
    json_decref(mine);
    if (lockstep_model_info(b->ls)->device_until != 0) {
        json_object_set_new(o, "device_prompt", device_json(&b->device_prompt));
        json_object_set_new(o, "device_token", device_json(&b->device_token));
    }
    return cli_print_json(o);
}

static int print_text(const struct bench *b, const struct summary *s) {
    printf("prompt   %5d tokens  %9.1f tokens/s  %8.1f Gop/s  %5.1f%% of the %s peak of %.1f\n",
           n_prompt, s->prompt, s->prompt_gops, 100 * s->prompt_fraction, b->peak_kind,
           s->peak);
    printf(
        "generate %5d tokens  %9.1f tokens/s  %8.2f GB/s   %5.1f%% of the read roof of %.2f\n",
        n_generate, s->generate, s->gen_read, 100 * s->gen_fraction, s->read_roof);
    const struct lockstep_model_info *m = lockstep_model_info(b->ls);
    char read[32], all[32];
    if (m->token_weight_bytes < m->weight_bytes / 2) /* experts: most of them rest */
        printf("         %s of %s of weights are read for a token\n",
               cli_bytes(m->token_weight_bytes, read), cli_bytes(m->weight_bytes, all));
    if (lockstep_model_info(b->ls)->n_ranks > 1)
        printf("         %.1f%% of a generation's time is spent between ranks\n",
               100 * s->fabric);
    const struct device_work *d = &b->device_token;
    if (d->submissions > 0)
        printf(
            "         the device has %.1f submissions and %.0f dispatches a token, and %s cross "
            "the bus\n",
            d->submissions, d->dispatches, cli_bytes((uint64_t)d->bus_bytes, read));
    int status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}

#define PROMPT_DEFAULT 512

/* For a model with a short context: what fits beside the first token of the answer. */
static int default_prompt(void) {
    struct gguf *g;
    struct gguf_str arch;
    char key[128];
    uint32_t n_ctx = 0;
    if (hf_open_any(&g, session_args.model, NULL, NULL) != ST_OK)
        return PROMPT_DEFAULT; /* opening says why */
    if (gguf_str(g, "general.architecture", &arch, NULL) == ST_OK) {
        snprintf(key, sizeof key, "%.*s.context_length", (int)MIN(arch.len, (size_t)64),
                 arch.ptr);
        gguf_u32(g, key, &n_ctx, NULL);
    }
    gguf_close(g);
    return n_ctx > 1 && n_ctx <= PROMPT_DEFAULT ? (int)n_ctx - 1 : PROMPT_DEFAULT;
}

static int bench(struct lockstep *ls) {
    const int n_ids = MAX(n_prompt, n_depth + 1);
    struct bench b = {.ls = ls, .ids = calloc((size_t)n_ids, sizeof *b.ids)};
    if (b.ids == NULL)
        return cli_fail(ST_NO_MEMORY, "not enough memory for a prompt of %d tokens", n_ids);
    fill_ids(b.ids, n_ids, lockstep_model_info(ls)->n_vocab);
    int status = measure(&b);
    if (status == CLI_GO_ON) {
        struct summary s = summarize(&b);
        status = session_args.json ? print_json(&b, &s) : print_text(&b, &s);
    }
    free(b.ids);
    return status;
}

int cmd_bench(int argc, char **argv) {
    struct lockstep *ls = NULL;
    int status = cli_parse(&command, argc, argv);
    if (status == CLI_GO_ON && compare_links != NULL && trace != NULL)
        return cli_fail(ST_BAD_INPUT, "--compare-links and --trace exclude each other");
    if (status == CLI_GO_ON && n_prompt == 0)
        n_prompt = default_prompt();
    session_args.output = trace;
    if (status == CLI_GO_ON && compare_links != NULL)
        return bench_links(compare_links, n_prompt, n_generate, n_runs);
    if (status == CLI_GO_ON)
        status = session_open(&ls, MAX(n_prompt, n_depth + n_generate + 1) + 1);
    if (status == CLI_GO_ON)
        status = session_say(ls);
    if (status == CLI_GO_ON)
        status = bench(ls);
    if (ls != NULL)
        session_close(ls);
    return status;
}
