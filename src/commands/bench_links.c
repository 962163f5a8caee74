/* bench_links.c: compares links. All configurations stay open and take turns, round by round.
 * So a drift in the machine's speed affects all of them equally. A rank that waits for its turn
 * sleeps. */
#include "commands/bench_links.h"

#include "base/median.h"
#include "base/util.h"
#include "base/words.h"
#include "cli/session.h"

#include <stdio.h>
#include <stdlib.h>

#define CASES_MAX 17
struct bench_case {
    char label[64], latency[32]; /* latency: "" for one rank */
    struct lockstep *ls;
    double prompt[SESSION_RUNS_MAX], generate[SESSION_RUNS_MAX], fabric[SESSION_RUNS_MAX];
    uint64_t exchanges; /* of one generated token */
};

struct table {
    struct bench_case cases[CASES_MAX];
    int n, n_runs;
    double read_one[SESSION_RUNS_MAX],
        read_all[SESSION_RUNS_MAX]; /* GB/s of one rank's threads, of all ranks' */
};

static int open_case(struct table *t, const char *parallel, int n_ranks, const char *latency,
                     int n_ctx) {
    struct lockstep_options opt = session_lockstep_options(n_ctx);
    struct lockstep_error err;
    struct bench_case *c = &t->cases[t->n];
    char emulate[64];
    snprintf(emulate, sizeof emulate, "latency=%s", latency);
    snprintf(c->label, sizeof c->label, "%s", n_ranks == 1 ? "one rank" : parallel);
    snprintf(c->latency, sizeof c->latency, "%s", latency);
    opt.n_ranks = n_ranks;
    opt.parallel = parallel;
    opt.n_split = n_ranks == 1 ? 0 : opt.n_split;
    opt.n_threads = opt.n_threads != 0 ? opt.n_threads : 1;
    opt.emulate_link = n_ranks == 1 ? NULL : emulate;
    if (!session_args.quiet)
        fprintf(stderr, "opening %s%s%s\n", c->label, *latency ? " at " : "", latency);
    enum lockstep_status st = lockstep_open(&c->ls, &opt, &err);
    if (st != LOCKSTEP_OK)
        return session_fail(st, &err);
    t->n++;
    return CLI_GO_ON;
}

#define LATENCIES_MAX ((CASES_MAX - 1) / 2)
struct latencies {
    int n;
    char text[LATENCIES_MAX][32];
};

/* "300us,3us". */
static bool parse_latencies(struct latencies *out, const char *list) {
    double seconds;
    size_t len;
    out->n = 0;
    for (const char *at; (at = words_next(&list, &len)) != NULL;) {
        if (out->n == LATENCIES_MAX || len >= sizeof out->text[0])
            return false;
        char *text = out->text[out->n++];
        snprintf(text, sizeof out->text[0], "%.*s", (int)len, at);
        if (!cli_parse_time(text, &seconds))
            return false;
    }
    return true;
}

static int open_cases(struct table *t, const struct latencies *l, int n_ctx) {
    int n_ranks = session_lockstep_options(n_ctx).n_ranks;
    n_ranks = n_ranks > 1 ? n_ranks : 2;
    int status = open_case(t, "tensor", 1, "", n_ctx);
    for (int i = 0; i < l->n && status == CLI_GO_ON; i++) {
        status = open_case(t, "pipeline", n_ranks, l->text[i], n_ctx);
        if (status == CLI_GO_ON)
            status = open_case(t, "tensor", n_ranks, l->text[i], n_ctx);
    }
    return status;
}

static enum lockstep_status measure_case(struct bench_case *c, int run, const int32_t *ids,
                                         int n_prompt, int n_generate,
                                         struct lockstep_error *err) {
    struct lockstep_request req;
    struct lockstep_sampling greedy;
    struct lockstep_result r;
    struct lockstep_times times;
    lockstep_request_init(&req);
    lockstep_sampling_init(&greedy);
    req.ids = ids;
    req.ignore_end = true;
    greedy.temperature = 0;
    req.sampling = &greedy;
    req.n_ids = (size_t)n_prompt;
    req.n_predict = 1;
    lockstep_reset(c->ls);
    enum lockstep_status st = lockstep_generate(c->ls, &req, &r, err);
    if (st != LOCKSTEP_OK)
        return st;
    c->prompt[run] = session_rate(n_prompt, r.prompt_s);
    req.n_ids = 1;
    req.n_predict = n_generate + 1;
    lockstep_reset(c->ls);
    lockstep_times(c->ls, &times, true);
    st = lockstep_generate(c->ls, &req, &r, err);
    if (st != LOCKSTEP_OK)
        return st;
    lockstep_times(c->ls, &times, true);
    c->generate[run] = session_rate(session_generated(&r), r.generate_s);
    c->fabric[run] = session_rate(times.fabric_s, times.fabric_s + times.compute_s);
    c->exchanges = times.steps != 0 ? times.exchanges / times.steps : 0;
    return st;
}

static int measure(struct table *t, int n_prompt, int n_generate) {
    struct lockstep_error err;
    enum lockstep_status st = LOCKSTEP_OK;
    int32_t *ids = calloc((size_t)n_prompt, sizeof *ids);
    if (ids == NULL)
        return cli_fail(ST_NO_MEMORY, "not enough memory for a prompt of %d tokens", n_prompt);
    uint32_t n_vocab = (uint32_t)lockstep_model_info(t->cases[0].ls)->n_vocab;
    for (int i = 0; i < n_prompt; i++)
        ids[i] = (int32_t)((uint32_t)i * 7919u % n_vocab);
    for (int run = 0; run < t->n_runs && st == LOCKSTEP_OK; run++) {
        struct lockstep_roofs one, all;
        st = lockstep_roofs(t->cases[0].ls, &one, &err);
        if (st == LOCKSTEP_OK)
            st = lockstep_roofs(t->cases[t->n - 1].ls, &all, &err);
        t->read_one[run] = one.read_gbs;
        t->read_all[run] = all.read_gbs;
        for (int i = 0; i < t->n && st == LOCKSTEP_OK; i++)
            st = measure_case(&t->cases[i], run, ids, n_prompt, n_generate, &err);
    }
    free(ids);
    return st == LOCKSTEP_OK ? CLI_GO_ON : session_fail(st, &err);
}

/* Of a text that the emulation has taken: "300us". */
static double latency_s(const char *text) {
    double s = 0;
    (void)cli_parse_time(text, &s);
    return s;
}

/* What the table says of one way at one latency, in words. `fabric`: the share of the time
 * between ranks. */
static void say_bound(const struct bench_case *c, double token_s, double speedup, double fabric,
                      double bus) {
    if (c->latency[0] == '\0' || !str_eq(c->label, "tensor"))
        return;
    double wire_s = (double)c->exchanges * latency_s(c->latency);
    double slower_s = MAX(fabric * token_s - wire_s, 0);
    printf(
        "At %s tensor parallel %s: %.2f times as fast as one rank. Of a token's %.1f ms the latency of %llu "
        "exchanges is %.2f, waiting for the slower rank %.2f; ",
        c->latency, speedup < 1 ? "loses" : "wins", speedup, token_s * 1e3,
        (unsigned long long)c->exchanges, wire_s * 1e3, slower_s * 1e3);
    printf("%d ranks read memory %.2f times as fast as one. The bound that it meets is %s.\n",
           lockstep_model_info(c->ls)->n_ranks, bus,
           speedup > 0.85 * bus ? "the memory bus"
           : wire_s > slower_s  ? "the wire"
                                : "the slower rank");
}

static int print_table(struct table *t) {
    double bus = median(t->read_all, t->n_runs) / median(t->read_one, t->n_runs);
    double base = median(t->cases[0].generate, t->n_runs);
    json_t *list = json_array();
    if (!session_args.json)
        printf("%-10s %-8s %10s %10s %9s %14s %12s\n", "split", "latency", "prompt t/s",
               "answer t/s", "against 1", "exchanges/tok", "time waiting");
    for (int i = 0; i < t->n; i++) {
        struct bench_case *c = &t->cases[i];
        double gen = median(c->generate, t->n_runs), prompt = median(c->prompt, t->n_runs);
        double fabric = median(c->fabric, t->n_runs);
        if (session_args.json)
            json_array_append_new(
                list,
                json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:I, s:f, s:f}", "split", c->label,
                          "latency", c->latency, "ranks", lockstep_model_info(c->ls)->n_ranks,
                          "prompt_tokens_per_s", prompt, "gen_tokens_per_s", gen, "speedup",
                          gen / base, "exchanges_per_token", (json_int_t)c->exchanges,
                          "fabric_fraction", fabric, "memory_bus_ratio", bus));
        else
            printf("%-10s %-8s %10.1f %10.1f %8.2fx %14llu %11.1f%%\n", c->label,
                   *c->latency ? c->latency : "-", prompt, gen, gen / base,
                   (unsigned long long)c->exchanges, 100 * fabric);
    }
    if (session_args.json)
        return cli_print_json(list);
    json_decref(list);
    for (int i = 0; i < t->n; i++) {
        struct bench_case *c = &t->cases[i];
        double gen = median(c->generate, t->n_runs);
        say_bound(c, 1 / gen, gen / base, median(c->fabric, t->n_runs), bus);
    }
    int status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}

/* Options that the table sets itself, that mean one split alone, or other machines. */
static const char *out_of_place(void) {
    const struct session_args *a = &session_args;
    return a->parallel != NULL      ? "--parallel"
           : a->emulate != NULL     ? "--emulate-link"
           : a->nodes != NULL       ? "--nodes"
           : a->weights != NULL     ? "--weights"
           : a->hosts != NULL       ? "--hosts"
           : a->join != NULL        ? "--join"
           : a->rank >= 0           ? "--rank"
           : a->secret_file != NULL ? "--secret-file"
           : a->rdma_matrix != NULL ? "--rdma-matrix"
           : a->n_ranks == 1        ? "--ranks 1"
                                    : NULL;
}

int bench_links(const char *latencies, int n_prompt, int n_generate, int n_runs) {
    const char *other = out_of_place();
    struct latencies list;
    if (other != NULL)
        return cli_fail(ST_BAD_INPUT, "--compare-links and %s exclude each other", other);
    if (!parse_latencies(&list, latencies))
        return cli_fail(ST_BAD_INPUT,
                        "--compare-links %s: expected up to 8 latencies, as 300us,3us",
                        latencies);
    struct table *t = calloc(1, sizeof *t);
    if (t == NULL)
        return cli_fail(ST_NO_MEMORY, "not enough memory for a table");
    t->n_runs = MIN(n_runs, SESSION_RUNS_MAX);
    int status = open_cases(t, &list, MAX(n_prompt, n_generate + 1) + 1);
    if (status == CLI_GO_ON)
        status = measure(t, n_prompt, n_generate);
    if (status == CLI_GO_ON)
        status = print_table(t);
    for (int i = 0; i < t->n; i++)
        lockstep_close(t->cases[i].ls);
    free(t);
    return status;
}
