/* session.c: The options that run, chat, eval and bench share, and opening a model with them. */
#include "cli/session.h"

#include "base/file.h"
#include "base/machine.h"
#include "base/pool.h"
#include "base/program.h"
#include "base/util.h"
#include "cli/model_names.h"
#include "cli/nodes.h"
#include "fabric/launch_env.h"
#include "format/gguf.h"
#include "hf/hf_folder.h"
#include "tokenizer/pretokenizer.h"
#include "weights/plan.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct session_args session_args = {.rank = -1};

static enum status find_model(const char **word, struct err *err) {
    session_args.word = *word;
    return session_args.anywhere ? ST_OK : models_here(word, err);
}

const struct cli_option session_model_options[] = {
    CLI_ARG_FOUND("MODEL", &session_args.model, find_model, CLI_MODEL_HELP), CLI_END};

const struct cli_option session_split_options[] = {
    CLI_HEADING("ranks"),
    CLI_INT(0, "ranks", "N", &session_args.n_ranks, 1, LOCKSTEP_MAX_RANKS,
            "number of processes that share the work (default: one\n"
            "for each NUMA domain of this machine, or as many as\n"
            "--split has)"),
    CLI_LIST(0, "split", "A,B,..", &session_args.split,
             "the share of each rank, as relative weights, such as\n"
             "3,1. With --parallel: the shares of the stages or of\n"
             "the ranks of a stage. Default: equal; on several\n"
             "machines or unlike devices by measured memory\n"
             "bandwidth and memory"),
    CLI_TEXT(0, "parallel", "HOW", &session_args.parallel,
             "tensor: every rank has a part of every layer;\n"
             "pipeline: each rank has some layers, cut by their\n"
             "bytes;\n"
             "tensor2xpipeline2: both;\n"
             "auto (default): tensor. On several machines, which\n"
             "measure themselves and their wires first: what should\n"
             "be fastest"),
    CLI_CHOICE(0, "experts", "auto|slice|whole|cpu", &session_args.experts,
               "how a mixture of experts is split: a slice of each\n"
               "expert, or whole experts (default auto: slice); cpu:\n"
               "slices on the ranks on processors, and all else on\n"
               "those on devices. Never changes the bits"),
    CLI_TEXT(0, "device", "NAME[,NAME..]", &session_args.devices,
             "what each rank computes on: cpu (default), a name or\n"
             "number that lockstep devices shows, or auto: a graphics\n"
             "processor if there is one. One name for all ranks, or\n"
             "one for each. NAME+cpu: prompts there, tokens on the\n"
             "processor; cpu+NAME: the other way; NAME+auto: tokens\n"
             "where they are faster. NODE=NAME,..: of each node's\n"
             "ranks. Never changes the bits"),
    CLI_INT('t', "threads", "T", &session_args.n_threads, 1, POOL_MAX_THREADS,
            "threads per rank (default: the cores, divided among\n"
            "the ranks of this machine)"),
    CLI_END};

const struct cli_option session_context_options[] = {
    CLI_HEADING("context"),
    CLI_INT(0, "ctx", "N", &session_args.n_ctx, 1, 1 << 24,
            "tokens of prompt and answer together (default: the\n"
            "model's own limit, at most 4096)"),
    CLI_INT(0, "chunk", "C", &session_args.n_chunk, 1, 1 << 20,
            "prompt tokens computed at once (default 512). Never\n"
            "changes the bits"),
    CLI_CHOICE(0, "kv", "f16|f32|q8_0", &session_args.kv,
               "type of the KV cache (default f16). q8_0 needs little\n"
               "more than half the memory of f16"),
    CLI_END};

const struct cli_option session_how_options[] = {
    CLI_INCLUDE(session_split_options),
    CLI_TEXT(0, "link", "NAME", &session_args.link,
             "the link between ranks: shm, tcp, verbs or ucx\n"
             "(default auto)"),
    CLI_TEXT(0, "emulate-link", "HOW", &session_args.emulate,
             "slows every link down, to show what a wire does:\n"
             "latency=300us,bandwidth=10Gbit"),
    CLI_INT(0, "silence", "MS", &session_args.silence_ms, 50, 3600000,
            "a rank that is silent for MS milliseconds is lost\n"
            "(default 3000)"),
    CLI_FLAG(0, "failover", &session_args.failover,
             "if a rank is lost, answers pause and continue on the\n"
             "remaining ranks, with the same bits"),
    CLI_HEADING("several machines"),
    CLI_TEXT(0, "nodes", "auto|A,B,..", &session_args.nodes,
             "runs a rank here and on each of these nodes (lockstep\n"
             "node): all that are found, or names and addresses"),
    CLI_CHOICE(0, "weights", "auto|copy|stream", &session_args.weights,
               "how nodes get a model that they do not have.\n"
               "copy: all of it, which they keep;\n"
               "stream: only the slices of their ranks, each time;\n"
               "auto (default): a copy if the disk has room"),
    CLI_TEXT(0, "hosts", "A,B,..", &session_args.hosts,
             "runs a rank on each host, in this order. This machine\n"
             "is A and starts the others over ssh. @FILE: one host\n"
             "per line"),
    CLI_TEXT(0, "join", "env|HOST:PORT", &session_args.join,
             "a launcher starts the ranks, and rank 0 listens at\n"
             "HOST:PORT. env: torchrun, srun or mpirun say where,\n"
             "how many ranks there are, and which one this is"),
    CLI_INT(0, "rank", "R", &session_args.rank, 0, LOCKSTEP_MAX_RANKS - 1,
            "the number of this rank, with --join, or with --hosts\n"
            "if a launcher starts the ranks"),
    CLI_TEXT(0, "secret-file", "FILE", &session_args.secret_file,
             "the secret of a group with --join, the same on all\n"
             "ranks (or $LOCKSTEP_SECRET)"),
    CLI_TEXT(0, "rdma-matrix", "FILE", &session_args.rdma_matrix,
             "MLX's JSON matrix of RDMA devices between ranks\n"
             "(default: found by trying)"),
    CLI_INCLUDE(session_context_options),
    CLI_END};

const struct cli_option session_options[] = {CLI_INCLUDE(session_model_options),
                                             CLI_INCLUDE(session_how_options), CLI_END};

bool session_says_how(void) {
    const struct session_args *a = &session_args;
    return a->n_ranks != 0 || a->split.n > 0 || a->parallel != NULL || a->link != NULL ||
           a->emulate != NULL || a->experts != NULL || a->kv != NULL || a->devices != NULL ||
           a->hosts != NULL || a->nodes != NULL || a->weights != NULL || a->join != NULL ||
           a->secret_file != NULL || a->rdma_matrix != NULL || a->rank >= 0 ||
           a->n_threads != 0 || a->n_ctx != 0 || a->n_chunk != 0 || a->silence_ms != 0 ||
           a->failover;
}

struct lockstep_sampling sampling_args;

const struct cli_option sampling_options[] = {
    CLI_HEADING("sampling"),
    CLI_FLOAT(0, "temp", "T", &sampling_args.temperature, 0, 100,
              "temperature; 0 always takes the most likely token\n"
              "(default 0.8)"),
    CLI_INT(0, "top-k", "K", &sampling_args.top_k, 0, 1 << 30,
            "only the K most likely tokens; 0: off (default 40)"),
    CLI_FLOAT(0, "top-p", "P", &sampling_args.top_p, 0, 1,
              "only the most likely tokens whose probabilities add up\n"
              "to P; 1: off (default 0.95)"),
    CLI_FLOAT(0, "min-p", "P", &sampling_args.min_p, 0, 1,
              "only tokens at least P times as likely as the most\n"
              "likely one; 0: off (default 0.05)"),
    CLI_FLOAT(0, "repeat-penalty", "X", &sampling_args.repeat_penalty, 0.01, 100,
              "divides the scores of the last 64 tokens; 1: off\n"
              "(default)"),
    CLI_U64(0, "seed", "S", &sampling_args.seed,
            "the same seed gives the same text, on any number of\n"
            "ranks (default 0)"),
    CLI_END};

void sampling_defaults(void) {
    lockstep_sampling_init(&sampling_args);
}

/* ---- opening ----------------------------------------------------------------------------- */

static int ranks_wanted(void) {
    int tensor, pipeline;
    const char *parallel = session_args.parallel;
    if (session_args.n_ranks != 0)
        return session_args.n_ranks;
    if (parallel != NULL && plan_parse_layout(parallel, &tensor, &pipeline))
        return tensor * pipeline;
    return session_args.split.n > 0 ? (int)session_args.split.n : machine_n_domains();
}

static int percent_shown; /* what stands on the terminal's line; 0 or 100: nothing */

static void show_progress(void *user, double fraction) {
    int percent = (int)(fraction * 100);
    (void)user;
    if (percent == percent_shown)
        return;
    percent_shown = percent;
    fprintf(stderr, percent < 100 ? "\rloading %d%%" : "\r\033[K", percent);
}

void session_progress_begin(struct lockstep_options *opt) {
    percent_shown = 0;
    if (cli_has_escapes(STDERR_FILENO) && !session_args.quiet)
        opt->progress = show_progress;
}

void session_progress_end(void) {
    if (percent_shown > 0 && percent_shown < 100)
        fprintf(stderr, "\r\033[K");
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
    opt.devices = a->devices;
    opt.emulate_link = a->emulate;
    opt.silence_ms = a->silence_ms;
    opt.failover = a->failover;
    opt.n_threads = a->n_threads;
    opt.n_ctx = a->n_ctx != 0 ? a->n_ctx : n_ctx_default;
    opt.n_chunk = a->n_chunk;
    opt.kv = a->kv;
    return opt;
}

/* ---- what is written ---------------------------------------------------------------------- */

static enum status check_model(const char *path, struct err *err) {
    struct gguf *g;
    if (session_args.model == NULL || hf_open_any(&g, session_args.model, NULL, NULL) != ST_OK)
        return ST_OK; /* its reader will say why not */
    enum status st = gguf_check_output(g, path, err);
    gguf_close(g);
    return st;
}

int session_check_output(const char *path) {
    struct file_new file;
    struct err err;
    struct stat at;
    if (path == NULL || (stat(path, &at) == 0 && !S_ISREG(at.st_mode)))
        return CLI_GO_ON; /* a pipe's reader must not see an end */
    enum status st = check_model(path, &err);
    if (st == ST_OK)
        st = file_new_open(&file, path, &err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    file_new_drop(&file);
    return CLI_GO_ON;
}

/* ---- where the ranks are ------------------------------------------------------------------ */

#define TEXT_MAX (1u << 16)

/* A file's text. Options point into it for the rest of the process: out is static. */
static enum status read_text(char **out, const char *path, struct err *err) {
    TRY(file_read_text(out, NULL, path, TEXT_MAX, err));
    return **out != '\0' ? ST_OK : err_set(err, ST_BAD_INPUT, "%s: nothing in it", path);
}

static enum status find_secret(struct lockstep_options *opt, struct err *err) {
    static char *text;
    if (session_args.secret_file == NULL) {
        opt->secret = env_get("LOCKSTEP_SECRET");
        return opt->secret != NULL
                   ? ST_OK
                   : err_set(err, ST_BAD_INPUT,
                             "ranks that are joined need a secret: --secret-file, or "
                             "$LOCKSTEP_SECRET, the same for all");
    }
    TRY(read_text(&text, session_args.secret_file, err));
    text[strcspn(text, "\r\n")] = '\0';
    opt->secret = text;
    return ST_OK;
}

static const char *environment(const char *name) {
    return getenv(name);
}

#define DEFAULT_PORT 7341

/* Rank 0 may leave out the host (then it listens on all interfaces). No rank may leave out the
 * port, which must be the same for all. */
static enum status check_rendezvous(const char *text, struct err *err) {
    const char *colon = strrchr(text, ':');
    int port;
    if (colon != NULL && cli_parse_int(colon + 1, 1, 65535, &port))
        return ST_OK;
    return err_set(err, ST_BAD_INPUT, "--join %s: expected env or HOST:PORT, as a:7341", text);
}

/* Rank, number and rendezvous, wherever they come from. */
static enum status find_place(struct launch_place *place, const char *hosts, struct err *err) {
    const struct session_args *a = &session_args;
    if (hosts != NULL)
        return launch_from_hosts(place, hosts, a->rank, DEFAULT_PORT, err);
    TRY(launch_from_env(place, environment, DEFAULT_PORT, err));
    if (a->rank >= 0 && a->n_ranks > 0) {
        place->rank = a->rank;
        place->n_ranks = a->n_ranks;
    } else if (place->by == NULL) {
        return err_set(
            err, ST_BAD_INPUT,
            "--join: no launcher has said which rank this is; --rank and --ranks do");
    }
    if (!str_eq(a->join, "env")) {
        TRY(check_rendezvous(a->join, err));
        snprintf(place->rendezvous, sizeof place->rendezvous, "%s", a->join);
    }
    if (place->rendezvous[0] == '\0')
        return err_set(err, ST_BAD_INPUT,
                       "%s does not say where rank 0 is: use --join HOST:PORT", place->by);
    if (place->rank >= place->n_ranks)
        return err_set(err, ST_BAD_INPUT, "--rank %d: there are %d ranks", place->rank,
                       place->n_ranks);
    return ST_OK;
}

/* All but asking nodes. */
static enum status find_ranks(struct lockstep_options *opt, struct err *err) {
    static struct launch_place place;
    const struct session_args *a = &session_args;
    static char *matrix, *list;
    if (a->rdma_matrix != NULL) {
        TRY(read_text(&matrix, a->rdma_matrix, err));
        opt->rdma_matrix = matrix;
    }
    if (a->nodes != NULL) {
        if (a->hosts != NULL || a->join != NULL || a->rank >= 0 || a->n_ranks != 0)
            return err_set(
                err, ST_BAD_INPUT,
                "--nodes says where the ranks are: not with --ranks, --hosts, --join "
                "or --rank");
        return ST_OK;
    }
    const char *hosts = a->hosts;
    if (hosts != NULL && *hosts == '@') {
        TRY(read_text(&list, hosts + 1, err));
        hosts = list;
    }
    if (hosts != NULL && a->join != NULL)
        return err_set(err, ST_BAD_INPUT, "either --hosts or --join, not both");
    if (hosts == NULL && a->join == NULL)
        return a->rank < 0 ? ST_OK
                           : err_set(err, ST_BAD_INPUT, "--rank goes with --join or --hosts");
    if (hosts != NULL && a->rank < 0) {
        opt->hosts = hosts;
        return ST_OK;
    }
    TRY(find_place(&place, hosts, err));
    opt->n_ranks = place.n_ranks;
    opt->rank = place.rank;
    opt->n_local = place.n_local;
    opt->local_rank = place.local_rank;
    opt->rendezvous = place.rendezvous;
    return place.n_ranks > 1 ? find_secret(opt, err) : ST_OK;
}

/* What a prompt becomes is a matter of rank 0's PCRE2. */
static void warn_of_unicode(void) {
    if (!session_args.quiet && !pretokenizer_unicode_is_usual())
        fprintf(
            stderr,
            "warning: the library PCRE2 here does not have the characters of Unicode " PRETOKENIZER_UNICODE
            ": rare ones may become other tokens than on other machines\n");
}

int session_place(struct lockstep_options *opt) {
    const struct session_args *a = &session_args;
    struct err err;
    warn_of_unicode();
    enum status st = find_ranks(opt, &err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    if (opt->rank > 0) {
        struct lockstep_error why;
        enum lockstep_status followed = lockstep_follow(opt, &why);
        return followed == LOCKSTEP_OK ? 0 : session_fail(followed, &why);
    }
    int status = session_check_output(a->output);
    if (status == CLI_GO_ON) {
        st = a->nodes != NULL ? nodes_place(opt, a->nodes, a->weights, a->quiet, &err)
                              : nodes_name_devices(opt, a->quiet, &err);
        status = st == ST_OK ? CLI_GO_ON : cli_fail(st, "%s", err.text);
    }
    return status;
}

int session_open(struct lockstep **out, int n_ctx_default) {
    struct lockstep_options opt = session_lockstep_options(n_ctx_default);
    struct lockstep_error err;
    int status = session_place(&opt);
    if (status != CLI_GO_ON)
        return status;
    session_progress_begin(&opt);
    struct lockstep *ls;
    enum lockstep_status st = lockstep_open(&ls, &opt, &err);
    if (st == LOCKSTEP_AGAIN) {
        struct err why;
        session_progress_end();
        enum status placed = nodes_place_again(&opt, &why);
        if (placed != ST_OK) {
            nodes_end();
            return cli_fail(placed, "%s", why.text);
        }
        st = lockstep_open(&ls, &opt, &err);
    }
    session_progress_end();
    if (st != LOCKSTEP_OK) {
        nodes_end();
        return session_fail(st, &err);
    }
    cli_on_interrupt(cancel, ls);
    *out = ls;
    return CLI_GO_ON;
}

void session_close(struct lockstep *ls) {
    cli_on_interrupt(NULL, NULL);
    lockstep_close(ls);
    nodes_end();
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
    fprintf(
        stderr,
        "%s%s%s: %.3g M parameters, %s, %s; %s, %d thread%s%s, %s, sums: %s; loaded in %.2f "
        "s\n",
        m->architecture, m->name[0] != '\0' ? " " : "", m->name, (double)m->n_params * 1e-6,
        m->type, cli_bytes(m->weight_bytes, weights), m->parallel, m->n_threads,
        m->n_threads == 1 ? "" : "s", m->n_ranks > 1 ? " each" : "", m->isa, m->sums,
        m->load_s);
    if (m->placement[0] != '\0')
        fprintf(stderr, "placement: %s\n", m->placement);
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
    json_t *o = json_pack(
        "{s:i, s:i, s:s, s:[ii], s:[ii], s:[ii], s:[ii], s:I, s:I, s:I, s:I, s:I}", "rank",
        rank, "pid", r->pid, "link", r->link, "layers", r->layer_begin, r->layer_end, "heads",
        r->head_begin, r->head_end, "ffn", r->ffn_begin, r->ffn_end, "vocabulary",
        r->vocab_begin, r->vocab_end, "weight_bytes", (json_int_t)r->weight_bytes,
        "replicated_bytes", (json_int_t)r->replicated_bytes, "kv_bytes",
        (json_int_t)r->kv_bytes, "buffer_bytes", (json_int_t)r->buffer_bytes, "resident_bytes",
        (json_int_t)r->resident_bytes);
    if (r->rdma_device[0] != '\0')
        json_object_set_new(o, "rdma_device", json_string(r->rdma_device));
    if (r->expert_end != 0) {
        json_object_set_new(o, "experts", json_pack("[ii]", r->expert_begin, r->expert_end));
        json_object_set_new(o, "expert_ffn",
                            json_pack("[ii]", r->expert_ffn_begin, r->expert_ffn_end));
    }
    return o;
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
    json_t *o = json_pack(
        "{s:o, s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:s, s:s, s:s, s:s, s:i, s:i, s:f, s:o}",
        "model", cli_json_text(session_args.model, strlen(session_args.model)), "name", m->name,
        "architecture", m->architecture, "type", m->type, "parameters", (json_int_t)m->n_params,
        "weight_bytes", (json_int_t)m->weight_bytes, "vocabulary", m->n_vocab, "context",
        m->n_ctx, "parallel", m->parallel, "link", link, "isa", m->isa, "sums", m->sums,
        "ranks", m->n_ranks, "threads", m->n_threads, "load_s", m->load_s, "held", ranks);
    if (m->device_until != 0)
        json_object_set_new(
            o, "device_steps",
            json_pack("[i, o]", m->device_from,
                      m->device_until < INT_MAX ? json_integer(m->device_until) : json_null()));
    return o;
}

enum lockstep_status session_tokenize(struct lockstep *ls, const char *prompt, size_t len,
                                      bool add_bos, int32_t **ids, size_t *n_ids,
                                      struct lockstep_error *err) {
    enum lockstep_status st = lockstep_check_text(ls, prompt, len, err);
    return st == LOCKSTEP_OK
               ? lockstep_tokenize(ls, prompt, len, add_bos, true, ids, n_ids, err)
               : st;
}

double session_rate(double n, double seconds) {
    return seconds > 0 ? n / seconds : 0;
}

double session_generated(const struct lockstep_result *r) {
    return r->n_generated > 1 ? (double)r->n_generated - 1 : 0;
}
