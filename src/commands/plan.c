/* plan.c: lockstep plan: shows which rank would hold what, from a model's header alone. Nothing
 * is loaded and no rank is started. So it works for models of any size and for imagined
 * clusters. */
#include "base/mem.h"
#include "base/util.h"
#include "cli/session.h"
#include "hf/hf_folder.h"
#include "model/model.h"
#include "ranks/forecast.h"
#include "ranks/placement.h"

#include <stdio.h>

/* Each needs some buffers of its own. For imagined machines, --threads sets the number. */
#define DEFAULT_THREADS 16

static const char *memory_text, *bandwidth_text, *latency_text, *gpu_text;

static const struct cli_option options[] = {
    CLI_TEXT(0, "memory", "A,B,..", &memory_text,
             "memory of each rank's machine, such as 512G,512G,256G.\n"
             "Shares follow it unless --split is given. A plan that does\n"
             "not fit is refused"),
    CLI_TEXT(0, "bandwidth", "A,B,..", &bandwidth_text,
             "bytes/s at which each rank reads weights, such as\n"
             "819G,273G (one number: the same for all). Predicts the\n"
             "speed of every layout (docs/links.md), with shares by\n"
             "bandwidth and memory. The plan shown is the fastest, or\n"
             "that of --parallel"),
    CLI_TEXT(0, "latency", "TIME", &latency_text,
             "time of one exchange between ranks, such as 5us or 0.3ms;\n"
             "needs --bandwidth or --gpu"),
    CLI_TEXT(0, "gpu", "B,M,C[,I]/..", &gpu_text,
             "ranks on GPUs: each reads B GB/s, has M GB, and takes C us\n"
             "from a submission to its result on the host, such as\n"
             "1008,24,25. I are TOP/s of int8: then it says what they\n"
             "allow for prompts. One for all ranks, or one for each,\n"
             "with / between; cpu: the rank has what --bandwidth and\n"
             "--memory say. Several ranks need --latency (docs/gpu.md)"),
    CLI_FLAG(0, "json", &session_args.json, "one JSON object"),
    CLI_INCLUDE(session_model_options),
    CLI_INCLUDE(session_split_options),
    CLI_INCLUDE(session_context_options),
    CLI_END};

static const struct cli_command command = {
    "plan", "shows which rank would hold what",
    "Reads the header only (lockstep synth --header-only makes one of a true shape). Prints the\n"
    "layers, heads, experts and bytes of each rank: weights as packed in memory, the KV cache\n"
    "of the whole context, and buffers for a step of --chunk tokens. Layers of several kinds\n"
    "have their heads and widths one after the other (0-16/0-8). The token embedding counts\n"
    "for no rank, since it is read from the file as tokens come. Links and the system need some\n"
    "more memory.",
    options};

struct planned {
    struct gguf *g;
    struct hparams hp;
    struct plan plan;
    struct model_config cfg; /* of one sequence; n_pages[KV_WINDOW]: that it holds at once */
    uint64_t memory[PLAN_MAX_RANKS]; /* 0: not said */
    int n_memory, n_rates;
    double rates[PLAN_MAX_RANKS], latency_s;
    /* of ranks on GPUs; of a processor everything is 0 */
    struct placement_machine gpus[PLAN_MAX_RANKS];
    int n_gpus;
    struct placement *placement; /* owned; NULL: no bandwidths were given */
    struct {
        uint64_t weights, kv, states, buffers, sum;
        uint64_t windows, index; /* of kv: of layers with a window, of an indexer's keys */
    } bytes[PLAN_MAX_RANKS];
};

static bool take_memory(struct planned *p, const char *text) {
    return p->n_memory < PLAN_MAX_RANKS && cli_parse_size(text, &p->memory[p->n_memory]) &&
           p->memory[p->n_memory++] != 0;
}

static bool take_rate(struct planned *p, const char *text) {
    return p->n_rates < PLAN_MAX_RANKS && cli_parse_rate(text, &p->rates[p->n_rates++]);
}

/* A number, in this unit if it has none. */
static bool parse_number(const char *text, const char *unit, double *out) {
    char with_unit[64];
    const size_t n = strlen(text);
    const bool plain = n > 0 && text[n - 1] >= '0' && text[n - 1] <= '9';
    return snprintf(with_unit, sizeof with_unit, "%s%s", text, plain ? unit : "") <
               (int)sizeof with_unit &&
           (str_eq(unit, "us") ? cli_parse_time(with_unit, out)
                               : cli_parse_rate(with_unit, out));
}

/* BANDWIDTH,MEMORY,CROSSING[,INT8], or cpu. */
static bool take_gpu(struct planned *p, const char *text) {
    static const char *const units[] = {"G", "G", "us", "T"};
    double value[ARRAY_LEN(units)] = {0};
    char words[256], *at = words;
    size_t n = 0;
    if (p->n_gpus == PLAN_MAX_RANKS ||
        snprintf(words, sizeof words, "%s", text) >= (int)sizeof words)
        return false;
    struct placement_machine *gpu = &p->gpus[p->n_gpus++];
    if (str_eq(text, "cpu"))
        return true;
    for (char *next; at != NULL; at = next, n++) {
        next = strchr(at, ',');
        if (next != NULL)
            *next++ = '\0';
        if (n == ARRAY_LEN(units) || !parse_number(at, units[n], &value[n]))
            return false;
    }
    *gpu = (struct placement_machine){.rate = value[0],
                                      .memory_bytes = (uint64_t)value[1],
                                      .crossing_s = value[2],
                                      .int8_ops = value[3]};
    return n >= 3 && gpu->memory_bytes != 0;
}

/* An option's words between separators. */
static int parse_each(struct planned *p, const char *list, char between,
                      bool (*take)(struct planned *, const char *), const char *option,
                      const char *expected) {
    char text[1024], *at = text;
    if (list == NULL)
        return CLI_GO_ON;
    if (snprintf(text, sizeof text, "%s", list) >= (int)sizeof text)
        return cli_fail(ST_BAD_INPUT, "%s is too long", option);
    for (char *next; at != NULL; at = next) {
        next = strchr(at, between);
        if (next != NULL)
            *next++ = '\0';
        if (!take(p, at))
            return cli_fail(ST_BAD_INPUT, "%s %s: expected %s", option, list, expected);
    }
    return CLI_GO_ON;
}

static int parse_machines(struct planned *p) {
    int status = parse_each(p, memory_text, ',', take_memory, "--memory", "sizes as 512G,256G");
    if (status == CLI_GO_ON)
        status = parse_each(p, bandwidth_text, ',', take_rate, "--bandwidth",
                            "bytes a second as 819G,273G");
    if (status == CLI_GO_ON)
        status = parse_each(p, gpu_text, '/', take_gpu, "--gpu",
                            "GB/s, GB and us of each as 1008,24,25/819,512,150, or cpu");
    if (status == CLI_GO_ON && gpu_text == NULL &&
        (bandwidth_text == NULL) != (latency_text == NULL))
        return cli_fail(ST_BAD_INPUT, "--bandwidth and --latency go together");
    if (status == CLI_GO_ON && latency_text != NULL &&
        !cli_parse_time(latency_text, &p->latency_s))
        return cli_fail(ST_BAD_INPUT, "--latency %s: expected a time above 0, as 5us or 0.3ms",
                        latency_text);
    return status;
}

static int threads(void) {
    return session_args.n_threads != 0 ? session_args.n_threads : DEFAULT_THREADS;
}

/* Rank r's; false: nothing says how fast it is. */
static bool machine_of(struct planned *p, int r, struct placement_machine *out) {
    const struct placement_machine *gpu = &p->gpus[p->n_gpus == 1 ? 0 : r];
    *out = *gpu;
    if (p->n_gpus == 0 || gpu->rate == 0) {
        out->rate = p->n_rates != 0 ? p->rates[p->n_rates == 1 ? 0 : r] : 0;
        out->memory_bytes = p->memory[r];
    }
    p->memory[r] = out->memory_bytes;
    out->n_threads = threads();
    return out->rate > 0;
}

/* Bit r: rank r is on a processor. */
static uint64_t processors_of(const struct planned *p, int n_ranks) {
    uint64_t ranks = 0;
    for (int r = 0; r < n_ranks; r++)
        if (p->n_gpus == 0 || p->gpus[p->n_gpus == 1 ? 0 : r].rate == 0)
            ranks |= (uint64_t)1 << r;
    return ranks;
}

/* All layouts by their speed. The one that is shown: that of --parallel, or the fastest. */
static enum status rank_layouts(struct planned *p, const struct lockstep_options *opt,
                                enum experts_mode experts, int n_ranks, struct err *err) {
    struct placement_machine machines[PLAN_MAX_RANKS];
    struct placement_wires wires;
    int tp, pp;
    TRY(plan_parse_parallel(opt->parallel, n_ranks, &tp, &pp, err));
    for (int r = 0; r < n_ranks; r++)
        if (!machine_of(p, r, &machines[r]))
            return err_set(err, ST_BAD_INPUT,
                           "rank %d is on a processor, and needs --bandwidth", r);
    if (n_ranks > 1 && latency_text == NULL)
        return err_set(err, ST_BAD_INPUT, "%d ranks need --latency, the time of an exchange",
                       n_ranks);
    placement_wires_set(&wires, p->latency_s);
    p->placement = mem_alloc(sizeof *p->placement);
    if (p->placement == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a placement");
    p->placement->n = 0;
    const struct placement_wish wish = {.g = p->g,
                                        .hp = &p->hp,
                                        .cfg = &p->cfg,
                                        .experts = experts,
                                        .processors = processors_of(p, n_ranks),
                                        .n_ranks = n_ranks,
                                        .machines = machines,
                                        .wires = &wires,
                                        .shares = opt->split,
                                        .n_shares = opt->n_split};
    TRY(placement_rank(p->placement, &wish, err));
    bool any = opt->parallel == NULL || str_eq(opt->parallel, "auto");
    const struct placement_candidate *c = p->placement->list, *end = c + p->placement->n;
    while (!any && c < end && c->tp != tp)
        c++;
    if (c == end) /* it suits other layouts: says what is wrong with the split */
        return plan_make(&p->plan, &p->hp, p->g, tp, pp, opt->split, opt->n_split, experts,
                         err);
    p->plan = c->plan;
    if (c->fits)
        return ST_OK;
    char why[400];
    placement_refusal(p->placement, why, sizeof why);
    return err_set(err, ST_BAD_INPUT, "the model does not fit these machines: %s",
                   any ? why : c->why_not);
}

/* Weights of the ranks: --split, or else what --bandwidth and the machines' memory make of it,
 * or else equal. */
static enum status make_plan(struct planned *p, struct err *err) {
    const struct lockstep_options opt = session_lockstep_options(0);
    double weights[PLAN_MAX_RANKS];
    enum experts_mode experts;
    int tp, pp, n_weights = opt.n_split, n_ranks = opt.n_ranks, n = p->n_memory;
    if (session_args.n_ranks == 0 && n_weights == 0)
        n_ranks = MAX(MAX(1, n), MAX(p->n_rates, p->n_gpus));
    TRY(plan_parse_parallel(opt.parallel, n_ranks, &tp, &pp, err));
    TRY(plan_parse_experts(opt.experts, &experts, err));
    if (n_weights > n_ranks)
        return err_set(err, ST_BAD_INPUT, "the split has %d weights, but there are %d ranks",
                       n_weights, n_ranks);
    if (n != 0 && n != n_ranks)
        return err_set(err, ST_BAD_INPUT, "--memory names %d machines for %d ranks", n,
                       n_ranks);
    if (p->n_rates > 1 && p->n_rates != n_ranks)
        return err_set(err, ST_BAD_INPUT, "--bandwidth names %d machines for %d ranks",
                       p->n_rates, n_ranks);
    if (p->n_gpus > 1 && p->n_gpus != n_ranks)
        return err_set(err, ST_BAD_INPUT, "--gpu names %d machines for %d ranks", p->n_gpus,
                       n_ranks);
    if (p->n_rates + p->n_gpus != 0)
        return rank_layouts(p, &opt, experts, n_ranks, err);
    for (int i = 0; i < n_weights; i++)
        weights[i] = opt.split[i];
    for (int i = 0; i < n && opt.n_split == 0; i++, n_weights = n)
        weights[i] = (double)p->memory[i];
    return plan_make(&p->plan, &p->hp, p->g, tp, pp, weights, n_weights, experts, err);
}

static enum status measure(struct planned *p, struct err *err) {
    for (int r = 0; r < p->plan.n_ranks; r++) {
        struct model_bytes sizes;
        TRY(model_measure(&sizes, p->g, &p->hp, &p->plan, r, &p->cfg, threads(), err));
        p->bytes[r].weights = sizes.weights;
        p->bytes[r].buffers = sizes.buffers;
        p->bytes[r].windows = sizes.kv_windows;
        p->bytes[r].index = sizes.kv_index;
        p->bytes[r].kv = sizes.kv;
        p->bytes[r].states = sizes.states;
        p->bytes[r].sum =
            p->bytes[r].weights + p->bytes[r].kv + p->bytes[r].states + p->bytes[r].buffers;
        char need[32], have[32];
        if (p->memory[r] != 0 && p->bytes[r].sum > p->memory[r])
            return err_set(
                err, ST_BAD_INPUT,
                "rank %d would need %s (weights, the KV cache of %u tokens, buffers), "
                "its machine has %s",
                r, cli_bytes(p->bytes[r].sum, need), p->cfg.n_ctx,
                cli_bytes(p->memory[r], have));
    }
    return ST_OK;
}

static enum status configure(struct planned *p, struct err *err) {
    TRY(kv_parse_type(session_args.kv, &p->cfg.kv_type, err));
    return forecast_configure(&p->cfg, &p->hp, (uint32_t)session_args.n_ctx,
                              (uint32_t)session_args.n_chunk, err);
}

static enum status plan_all(struct planned *p, struct err *err) {
    const struct gguf_options header = {.header_only = true};
    TRY(hf_open_any(&p->g, session_args.model, &header, err));
    TRY(hparams_read(&p->hp, p->g, err));
    TRY(configure(p, err));
    TRY(make_plan(p, err));
    return measure(p, err);
}

static void put_range(json_t *o, const char *name, bool exists, uint32_t begin, uint32_t end) {
    if (exists)
        json_object_set_new(o, name, json_pack("[ii]", (int)begin, (int)end));
}

static void put_bytes(json_t *o, const char *name, uint64_t bytes) {
    json_object_set_new(o, name, json_integer((json_int_t)bytes));
}

/* Of each kind of attention, where there are several. */
static json_t *kinds_json(const struct hparams *hp, const struct share *sh) {
    json_t *all = json_array();
    for (uint32_t i = 0; i < hp->n_attn; i++) {
        const struct head_share *h = &sh->heads[i];
        json_array_append_new(all, json_pack("{s:i, s:[ii], s:[ii]}", "window",
                                             (int)hp->attn[i].window, "heads", (int)h->begin,
                                             (int)h->end, "kv_heads", (int)h->kv_begin,
                                             (int)h->kv_end));
    }
    return all;
}

/* Parts that the model does not have are left out. */
static json_t *rank_json(const struct planned *p, int r) {
    const struct share *sh = &p->plan.shares[r];
    bool moe = p->hp.moe.n_experts != 0;
    json_t *o =
        json_pack("{s:i, s:i, s:i}", "rank", r, "stage", sh->stage, "member", sh->member);
    put_range(o, "layers", true, sh->layer_begin, sh->layer_end);
    put_range(o, "heads", true, sh->heads[0].begin, sh->heads[0].end);
    put_range(o, "kv_heads", true, sh->heads[0].kv_begin, sh->heads[0].kv_end);
    if (p->hp.n_attn > 1)
        json_object_set_new(o, "attention", kinds_json(&p->hp, sh));
    put_range(o, "ffn", hparams_has_dense(&p->hp), sh->ff[0].begin, sh->ff[0].end);
    put_range(o, "experts", moe, sh->expert_begin, sh->expert_end);
    put_range(o, "expert_ffn", moe, sh->expert_ff_begin, sh->expert_ff_end);
    put_range(o, "shared_ffn", p->hp.moe.n_ff_shared != 0, sh->shared_begin, sh->shared_end);
    put_range(o, "vocabulary", true, sh->vocab_begin, sh->vocab_end);
    put_bytes(o, "weight_bytes", p->bytes[r].weights);
    put_bytes(o, "kv_bytes", p->bytes[r].kv);
    put_bytes(o, "kv_window_bytes", p->bytes[r].windows);
    put_bytes(o, "kv_index_bytes", p->bytes[r].index);
    put_bytes(o, "state_bytes", p->bytes[r].states);
    put_bytes(o, "buffer_bytes", p->bytes[r].buffers);
    put_bytes(o, "sum_bytes", p->bytes[r].sum);
    if (p->memory[r] != 0)
        put_bytes(o, "memory_bytes", p->memory[r]);
    return o;
}

static json_t *numbers_json(const double *x, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_real(x[i]));
    return list;
}

/* The fastest first. */
static json_t *candidates_json(const struct placement *p) {
    json_t *all = json_array();
    for (int i = 0; i < p->n; i++) {
        const struct placement_candidate *c = &p->list[i];
        char how[64];
        plan_text(&c->plan, how, sizeof how);
        const int n_ranks = c->plan.n_ranks;
        json_t *shares = numbers_json(c->shares, MIN(c->n_shares, n_ranks)),
               *bytes = json_array();
        for (int r = 0; r < n_ranks; r++)
            json_array_append_new(bytes, json_integer((json_int_t)c->bytes[r]));
        json_t *o =
            json_pack("{s:s, s:i, s:i, s:b, s:f, s:f, s:f, s:f, s:i, s:o, s:o}", "parallel",
                      how, "tensor", c->tp, "pipeline", c->pp, "fits", c->fits, "tokens_per_s",
                      placement_tokens_per_s(c), "reading_s", c->read_s, "between_s",
                      c->between_s, "crossings_s", c->crossing_s, "submissions",
                      (int)c->n_waits, "shares", shares, "sum_bytes", bytes);
        if (c->n_shares > n_ranks)
            json_object_set_new(o, "expert_shares", numbers_json(c->shares + n_ranks, n_ranks));
        if (c->prompt_s > 0)
            json_object_set_new(o, "prompt_tokens_per_s_at_most", json_real(1 / c->prompt_s));
        if (!c->fits)
            json_object_set_new(o, "why_not", json_string(c->why_not));
        json_array_append_new(all, o);
    }
    return all;
}

static int print_json(const struct planned *p) {
    char how[64];
    plan_text(&p->plan, how, sizeof how);
    json_t *ranks = json_array();
    for (int r = 0; r < p->plan.n_ranks; r++)
        json_array_append_new(ranks, rank_json(p, r));
    json_t *o =
        json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:o}", "architecture", p->hp.arch->name,
                  "parallel", how, "tensor", p->plan.tp, "pipeline", p->plan.pp, "n_ctx",
                  (int)p->cfg.n_ctx, "n_chunk", (int)p->cfg.n_tokens_max, "ranks", ranks);
    if (p->placement != NULL)
        json_object_set_new(o, "candidates", candidates_json(p->placement));
    return cli_print_json(o);
}

/* "3-7", or "-" for a part that the model does not have. Returns buf. */
static const char *range(bool exists, uint32_t begin, uint32_t end, char buf[24]) {
    if (exists)
        snprintf(buf, 24, "%u-%u", begin, end);
    else
        snprintf(buf, 24, "-");
    return buf;
}

/* The ranges of several kinds of layers, "0-16/0-8", those that are alike once. */
struct ranges {
    char text[24 * MAX(ATTN_KINDS_MAX, FF_WIDTHS_MAX)];
    size_t len;
};

static void add_range(struct ranges *all, uint32_t begin, uint32_t end) {
    char one[24];
    range(true, begin, end, one);
    const size_t n = strlen(one);
    for (const char *at = all->text; (at = strstr(at, one)) != NULL; at += n)
        if ((at == all->text || at[-1] == '/') && (at[n] == '/' || at[n] == '\0'))
            return;
    all->len += (size_t)snprintf(all->text + all->len, sizeof all->text - all->len, "%s%s",
                                 all->len != 0 ? "/" : "", one);
}

/* Of all kinds of layers: heads, key-value heads, columns of dense FFNs. */
struct split_text {
    struct ranges heads, kv_heads, ffn;
};

static void split_text(struct split_text *t, const struct hparams *hp, const struct share *sh) {
    memset(t, 0, sizeof *t);
    for (uint32_t i = 0; i < hp->n_attn; i++) {
        add_range(&t->heads, sh->heads[i].begin, sh->heads[i].end);
        add_range(&t->kv_heads, sh->heads[i].kv_begin, sh->heads[i].kv_end);
    }
    for (uint32_t i = 0; i < hp->n_ff_widths && hparams_has_dense(hp); i++)
        add_range(&t->ffn, sh->ff[i].begin, sh->ff[i].end);
    if (t->ffn.len == 0)
        t->ffn.len = (size_t)snprintf(t->ffn.text, sizeof t->ffn.text, "-");
}

/* The widths of these columns. */
struct widths {
    int heads, kv_heads, ffn;
};

static struct widths widths_of(const struct planned *p) {
    struct widths w = {9, 8, 13};
    for (int r = 0; r < p->plan.n_ranks; r++) {
        struct split_text t;
        split_text(&t, &p->hp, &p->plan.shares[r]);
        w.heads = MAX(w.heads, (int)t.heads.len);
        w.kv_heads = MAX(w.kv_heads, (int)t.kv_heads.len);
        w.ffn = MAX(w.ffn, (int)t.ffn.len);
    }
    return w;
}

static void print_rank(const struct planned *p, int r, const struct widths *width) {
    const struct share *sh = &p->plan.shares[r];
    char text[4][24], a[32], b[32], c[32], d[32];
    bool moe = p->hp.moe.n_experts != 0;
    struct split_text split;
    split_text(&split, &p->hp, sh);
    printf("%4d %9s %*s %*s %*s %9s %12s %15s %9s %9s %9s %9s\n", r,
           range(true, sh->layer_begin, sh->layer_end, text[0]), width->heads, split.heads.text,
           width->kv_heads, split.kv_heads.text, width->ffn, split.ffn.text,
           range(moe, sh->expert_begin, sh->expert_end, text[1]),
           range(moe, sh->expert_ff_begin, sh->expert_ff_end, text[2]),
           range(sh->last_stage, sh->vocab_begin, sh->vocab_end, text[3]),
           cli_bytes(p->bytes[r].weights, a), cli_bytes(p->bytes[r].kv + p->bytes[r].states, b),
           cli_bytes(p->bytes[r].buffers, c), cli_bytes(p->bytes[r].sum, d));
}

/* With ranks on GPUs there are columns more, where they say something. */
static void print_candidate(const struct placement_candidate *c, bool gpus, bool prompts) {
    char how[64], shares[400];
    placement_layout_text(c, how, sizeof how);
    placement_candidate_shares_text(c, PLAN_MAX_RANKS, shares, sizeof shares);
    printf("%9.1f %8.2f ms %8.2f ms", placement_tokens_per_s(c), c->read_s * 1e3,
           c->between_s * 1e3);
    if (gpus)
        printf(" %8.2f ms %11u", c->crossing_s * 1e3, c->n_waits);
    if (prompts)
        printf(" %13.0f", 1 / c->prompt_s);
    printf("  %s", how);
    if (c->fits)
        printf("%s%s\n", c->plan.n_ranks > 1 ? ", " : "", c->plan.n_ranks > 1 ? shares : "");
    else
        printf(": %s\n", c->why_not);
}

static void print_candidates(const struct placement *p) {
    const bool gpus = p->list[0].n_waits != 0, prompts = p->list[0].prompt_s > 0;
    printf("predicted for one stream, from an empty context:\n%9s %11s %11s", "tokens/s",
           "reading", "between");
    if (gpus)
        printf(" %11s %11s", "crossings", "submissions");
    if (prompts)
        printf(" %13s", "prompts up to");
    printf("\n");
    for (int i = 0; i < p->n; i++)
        print_candidate(&p->list[i], gpus, prompts);
}

/* What the cache is made of, where it is more than keys and values of all positions. */
static void print_cache_parts(const struct planned *p, uint64_t kv) {
    uint64_t windows = 0, index = 0, states = 0;
    char a[32], b[32];
    for (int r = 0; r < p->plan.n_ranks; r++) {
        windows += p->bytes[r].windows;
        index += p->bytes[r].index;
        states += p->bytes[r].states;
    }
    if (p->hp.window != 0)
        printf(
            "of the KV cache: %s for layers that see everything, %s for those with a window of "
            "%u, which keep %u positions at most\n",
            cli_bytes(kv - windows, a), cli_bytes(windows, b), p->hp.window,
            p->cfg.n_pages[KV_WINDOW] * KV_PAGE);
    if (index != 0)
        printf("of the KV cache: %s for the keys that an indexer chooses by\n",
               cli_bytes(index, a));
    if (states != 0)
        printf("of the KV cache: %s for %u states of recurrent layers, whatever the context\n",
               cli_bytes(states, a), p->cfg.n_states);
}

static int print_table(const struct planned *p) {
    char how[64], a[32], b[32], c[32], d[32];
    uint64_t weights = 0, kv = 0, sum = 0;
    const struct widths width = widths_of(p);
    plan_text(&p->plan, how, sizeof how);
    printf("%s, %s, a context of %u\n", p->hp.arch->name, how, p->cfg.n_ctx);
    printf("%4s %9s %*s %*s %*s %9s %12s %15s %9s %9s %9s %9s\n", "rank", "layers", width.heads,
           "heads", width.kv_heads, "kv heads", width.ffn, "FFN", "experts", "expert FFN",
           "vocabulary", "weights", "KV cache", "buffers", "sum");
    for (int r = 0; r < p->plan.n_ranks; r++) {
        print_rank(p, r, &width);
        weights += p->bytes[r].weights;
        kv += p->bytes[r].kv + p->bytes[r].states;
        sum += p->bytes[r].sum;
    }
    printf("all ranks: %s of weights, %s of KV cache, %s of buffers: %s\n",
           cli_bytes(weights, a), cli_bytes(kv, b), cli_bytes(sum - weights - kv, c),
           cli_bytes(sum, d));
    print_cache_parts(p, kv);
    if (p->placement != NULL)
        print_candidates(p->placement);
    int status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}

int cmd_plan(int argc, char **argv) {
    static struct planned p;
    struct err err;
    int status = cli_parse(&command, argc, argv);
    if (status == CLI_GO_ON)
        status = parse_machines(&p);
    if (status == CLI_GO_ON) {
        enum status st = plan_all(&p, &err);
        status = st != ST_OK         ? cli_fail(st, "%s", err.text)
                 : session_args.json ? print_json(&p)
                                     : print_table(&p);
    }
    mem_free(p.placement);
    gguf_close(p.g);
    return status;
}
