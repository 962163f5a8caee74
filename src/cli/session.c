#include "cli/session.h"

#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct session_args session_args;

const struct cli_option session_options[] = {
    CLI_ARG("MODEL", &session_args.model, "GGUF file, or the first part of a split one"),
    CLI_HEADING("ranks"),
    CLI_INT(0, "ranks", "N", &session_args.n_ranks, 1, LOCKSTEP_MAX_RANKS,
            "processes that share the work (default 1,\nor as many as --split names)"),
    CLI_LIST(0, "split", "A,B,..", &session_args.split,
             "their shares, as relative weights: 3,1 (default equal);\nof the stages or of a "
             "stage's ranks where --parallel\nhas them"),
    CLI_TEXT(0, "parallel", "HOW", &session_args.parallel,
             "tensor: every rank has a part of every layer;\npipeline: some layers each; "
             "tensor2xpipeline2: both;\nauto (default)"),
    CLI_TEXT(0, "link", "auto|shm|tcp", &session_args.link,
             "what carries bytes between ranks (default auto)"),
    CLI_CHOICE(0, "experts", "auto|slice|whole", &session_args.experts,
               "how a mixture of experts is split: a part of each expert,\nor some whole ones "
               "(default auto: slice); never changes\nthe bits"),
    CLI_TEXT(0, "emulate-link", "HOW", &session_args.emulate,
             "make every link worse, to see what a wire does:\nlatency=300us,bandwidth=10Gbit"),
    CLI_INT(0, "silence", "MS", &session_args.silence_ms, 50, 3600000,
            "a rank that is silent for so long is lost (default 3000)"),
    CLI_INT('t', "threads", "T", &session_args.n_threads, 1, 1024,
            "threads per rank (default: the cores, shared out)"),
    CLI_HEADING("context"),
    CLI_INT(0, "ctx", "N", &session_args.n_ctx, 1, 1 << 24,
            "tokens of prompt and answer together\n(default: the model's own, at most 4096)"),
    CLI_INT(0, "chunk", "C", &session_args.n_chunk, 1, 1 << 20,
            "prompt tokens computed at once (default 512);\nnever changes the bits"),
    CLI_CHOICE(0, "kv", "f16|f32", &session_args.kv,
               "how keys and values are kept (default f16)"),
    CLI_END};

struct lockstep_sampling sampling_args;

const struct cli_option sampling_options[] = {
    CLI_HEADING("sampling"),
    CLI_FLOAT(0, "temp", "T", &sampling_args.temperature, 0, 100,
              "temperature; 0 always takes the likeliest (default 0.8)"),
    CLI_INT(0, "top-k", "K", &sampling_args.top_k, 0, 1 << 30,
            "only the K likeliest; 0: off (default 40)"),
    CLI_FLOAT(0, "top-p", "P", &sampling_args.top_p, 0, 1,
              "only the likeliest that sum up to P; 1: off (default 0.95)"),
    CLI_FLOAT(0, "min-p", "P", &sampling_args.min_p, 0, 1,
              "only those of P times the likeliest or more;\n0: off (default 0.05)"),
    CLI_FLOAT(0, "repeat-penalty", "X", &sampling_args.repeat_penalty, 0.01, 100,
              "divides the score of the last 64 tokens; 1: off (default)"),
    CLI_U64(0, "seed", "S", &sampling_args.seed,
            "the same seed gives the same text, on any number of\nranks (default 0)"),
    CLI_END};

void sampling_defaults(void) {
    lockstep_sampling_init(&sampling_args);
}

/* ---- opening ----------------------------------------------------------------------------- */

static int ranks_wanted(void) {
    int tensor, pipeline, end = 0;
    const char *parallel = session_args.parallel;
    if (session_args.n_ranks != 0)
        return session_args.n_ranks;
    if (parallel != NULL &&
        sscanf(parallel, "tensor%dxpipeline%d%n", &tensor, &pipeline, &end) == 2 &&
        parallel[end] == '\0' && tensor >= 1 && pipeline >= 1 && tensor <= LOCKSTEP_MAX_RANKS &&
        pipeline <= LOCKSTEP_MAX_RANKS)
        return tensor * pipeline;
    return session_args.split.n > 0 ? (int)session_args.split.n : 1;
}

static void show_progress(void *user, double fraction) {
    int *shown = user, percent = (int)(fraction * 100);
    if (percent == *shown)
        return;
    *shown = percent;
    fprintf(stderr, percent < 100 ? "\rloading %d%%" : "\r\033[K", percent);
}

static void cancel(void *ls) {
    lockstep_cancel(ls);
}

struct lockstep_options session_lockstep_options(int n_ctx_default) {
    const struct session_args *a = &session_args;
    struct lockstep_options opt;
    lockstep_options_init(&opt);
    opt.model_path = a->model;
    opt.n_ranks = ranks_wanted();
    opt.n_split = (int)a->split.n;
    memcpy(opt.split, a->split.value, a->split.n * sizeof *opt.split);
    opt.parallel = a->parallel;
    opt.link = a->link;
    opt.experts = a->experts;
    opt.emulate_link = a->emulate;
    opt.silence_ms = a->silence_ms;
    opt.n_threads = a->n_threads;
    opt.n_ctx = a->n_ctx != 0 ? a->n_ctx : n_ctx_default;
    opt.n_chunk = a->n_chunk;
    opt.kv_f32 = a->kv != NULL && str_eq(a->kv, "f32");
    return opt;
}

int session_open(struct lockstep **out, int n_ctx_default) {
    const struct session_args *a = &session_args;
    struct lockstep_options opt = session_lockstep_options(n_ctx_default);
    struct lockstep_error err;
    int percent = 0;
    if (isatty(STDERR_FILENO) && !a->quiet) {
        opt.progress = show_progress;
        opt.progress_user = &percent;
    }
    struct lockstep *ls;
    enum lockstep_status st = lockstep_open(&ls, &opt, &err);
    if (percent > 0 && percent < 100)
        fprintf(stderr, "\r\033[K");
    if (st != LOCKSTEP_OK)
        return session_fail(st, &err);
    cli_on_interrupt(cancel, ls);
    *out = ls;
    return CLI_GO_ON;
}

void session_close(struct lockstep *ls) {
    cli_on_interrupt(NULL, NULL);
    lockstep_close(ls);
}

int session_fail(enum lockstep_status st, const struct lockstep_error *err) {
    return cli_fail((enum status)st, "%s", err->text);
}

/* ---- what it is -------------------------------------------------------------------------- */

int session_say(struct lockstep *ls) {
    const struct lockstep_model_info *m = lockstep_model_info(ls);
    char weights[32];
    if (session_args.quiet)
        return CLI_GO_ON;
    fprintf(stderr,
            "%s%s%s: %.3g M parameters, %s, %s; %s, %d thread%s%s, %s; loaded in %.2f s\n",
            m->architecture, m->name[0] != '\0' ? " " : "", m->name, (double)m->n_params * 1e-6,
            m->type, cli_bytes(m->weight_bytes, weights), m->parallel, m->n_threads,
            m->n_threads == 1 ? "" : "s", m->n_ranks > 1 ? " each" : "", m->isa, m->load_s);
    for (int rank = 0; rank < m->n_ranks; rank++) {
        struct lockstep_rank_info info;
        struct lockstep_error err;
        enum lockstep_status st = lockstep_rank_info(ls, rank, &info, &err);
        if (st != LOCKSTEP_OK)
            return session_fail(st, &err);
        fprintf(stderr, "  %s\n", info.text);
    }
    return CLI_GO_ON;
}

static json_t *rank_json(int rank, const struct lockstep_rank_info *r) {
    return json_pack("{s:i, s:i, s:s, s:[ii], s:[ii], s:[ii], s:[ii], s:I, s:I, s:I, s:I, s:I}",
                     "rank", rank, "pid", r->pid, "link", r->link, "layers", r->layer_begin,
                     r->layer_end, "heads", r->head_begin, r->head_end, "ffn", r->ffn_begin,
                     r->ffn_end, "vocabulary", r->vocab_begin, r->vocab_end, "weight_bytes",
                     (json_int_t)r->weight_bytes, "replicated_bytes",
                     (json_int_t)r->replicated_bytes, "kv_bytes", (json_int_t)r->kv_bytes,
                     "buffer_bytes", (json_int_t)r->buffer_bytes, "resident_bytes",
                     (json_int_t)r->resident_bytes);
}

/* The link between rank 0 and the others; a mixed group names them all. */
static void link_names(struct lockstep *ls, char *buf, size_t size, json_t *ranks) {
    snprintf(buf, size, "self");
    for (int rank = 0; rank < lockstep_model_info(ls)->n_ranks; rank++) {
        struct lockstep_rank_info info;
        if (lockstep_rank_info(ls, rank, &info, NULL) != LOCKSTEP_OK)
            return;
        json_array_append_new(ranks, rank_json(rank, &info));
        if (rank == 1)
            snprintf(buf, size, "%s", info.link);
        else if (rank > 1 && strstr(buf, info.link) == NULL)
            snprintf(buf + strlen(buf), size - strlen(buf), "+%s", info.link);
    }
}

json_t *session_json(struct lockstep *ls) {
    const struct lockstep_model_info *m = lockstep_model_info(ls);
    char link[64];
    json_t *ranks = json_array();
    link_names(ls, link, sizeof link, ranks);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:s, s:s, s:s, s:i, s:i, s:f, s:o}", "model",
        session_args.model, "name", m->name, "architecture", m->architecture, "type", m->type,
        "parameters", (json_int_t)m->n_params, "weight_bytes", (json_int_t)m->weight_bytes,
        "vocabulary", m->n_vocab, "context", m->n_ctx, "parallel", m->parallel, "link", link,
        "isa", m->isa, "ranks", m->n_ranks, "threads", m->n_threads, "load_s", m->load_s,
        "held", ranks);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double session_median(const double *values, int n) {
    double sorted[SESSION_RUNS_MAX];
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

double session_rate(double n, double seconds) {
    return seconds > 0 ? n / seconds : 0;
}

double session_generated(const struct lockstep_result *r) {
    return r->n_generated > 1 ? (double)r->n_generated - 1 : 0;
}
