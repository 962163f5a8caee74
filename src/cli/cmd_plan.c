/* cmd_plan.c: lockstep plan: who would hold what, from the header of a model alone: nothing is loaded and no
 * rank is started, so models of any size and clusters that do not exist can be looked at. */
#include "base/util.h"
#include "cli/session.h"
#include "engine/instance.h"
#include "model/model.h"

#include <stdio.h>

static const char *memory_text;

static const struct cli_option options[] = {
    CLI_TEXT(
        0, "memory", "A,B,..", &memory_text,
        "memory of each rank's machine, as 512G,512G,256G: shares\nfollow it unless --split "
        "says otherwise, and what does not\nfit is refused"),
    CLI_FLAG(0, "json", &session_args.json, "one JSON object"), CLI_INCLUDE(session_options),
    CLI_END};

static const struct cli_command command = {
    "plan", "who would hold what",
    "Reads the header only (lockstep synth --header-only makes one of a true shape) and prints "
    "for "
    "each\nrank its layers, heads, experts and bytes. Bytes of weights are as packed in "
    "memory; the "
    "token\nembedding is read from the file as tokens come and counts for nobody.",
    options};

struct planned {
    struct gguf *g;
    struct hparams hp;
    struct plan plan;
    uint32_t n_ctx, n_window_pages; /* the latter: that a sequence holds at once */
    uint64_t memory[PLAN_MAX_RANKS]; /* 0: not said */
    struct {
        uint64_t weights, kv, windows; /* of kv, for layers with a window */
    } bytes[PLAN_MAX_RANKS];
};

static int parse_memory(struct planned *p, int *n) {
    char text[1024], *at = text;
    *n = 0;
    if (memory_text == NULL)
        return CLI_GO_ON;
    if (snprintf(text, sizeof text, "%s", memory_text) >= (int)sizeof text)
        return cli_fail(ST_BAD_INPUT, "--memory is too long");
    for (char *next; at != NULL; at = next) {
        next = strchr(at, ',');
        if (next != NULL)
            *next++ = '\0';
        if (*n == PLAN_MAX_RANKS || !cli_parse_size(at, &p->memory[*n]) || p->memory[*n] == 0)
            return cli_fail(ST_BAD_INPUT, "--memory %s: expected sizes as 512G,256G",
                            memory_text);
        (*n)++;
    }
    return CLI_GO_ON;
}

/* Weights of the ranks: --split, or else the machines' memory, or else equal. */
static enum status make_plan(struct planned *p, int n_memory, struct err *err) {
    const struct lockstep_options opt = session_lockstep_options(0);
    double weights[PLAN_MAX_RANKS];
    enum experts_mode experts;
    int tp, pp, n_weights = opt.n_split, n_ranks = opt.n_ranks;
    if (n_memory != 0 && session_args.n_ranks == 0 && n_weights == 0)
        n_ranks = n_memory;
    TRY(plan_parse_parallel(opt.parallel, n_ranks, &tp, &pp, err));
    TRY(plan_parse_experts(opt.experts, &experts, err));
    if (n_memory != 0 && n_memory != n_ranks)
        return err_set(err, ST_BAD_INPUT, "--memory names %d machines for %d ranks", n_memory,
                       n_ranks);
    for (int i = 0; i < n_weights; i++)
        weights[i] = opt.split[i];
    for (int i = 0; i < n_memory && opt.n_split == 0; i++, n_weights = n_memory)
        weights[i] = (double)p->memory[i];
    return plan_make(&p->plan, &p->hp, p->g, tp, pp, weights, n_weights, experts, err);
}

static enum status measure(struct planned *p, struct err *err) {
    enum kv_type type;
    TRY(kv_parse_type(session_args.kv, &type, err));
    for (int r = 0; r < p->plan.n_ranks; r++) {
        const struct share *sh = &p->plan.shares[r];
        size_t page[KV_KINDS];
        model_kv_page_bytes(&p->hp, sh, type, page);
        struct weights_sizes sizes;
        TRY(weights_measure(&sizes, p->g, &p->hp, sh, err));
        p->bytes[r].weights = sizes.packed_bytes + sizes.replicated_bytes;
        p->bytes[r].windows = (uint64_t)p->n_window_pages * page[KV_WINDOW];
        p->bytes[r].kv =
            (uint64_t)div_up(p->n_ctx, KV_PAGE) * page[KV_WHOLE] + p->bytes[r].windows;
        uint64_t sum = p->bytes[r].weights + p->bytes[r].kv;
        char need[32], have[32];
        if (p->memory[r] != 0 && sum > p->memory[r])
            return err_set(err, ST_BAD_INPUT,
                           "rank %d would need %s (weights and the KV cache of %u tokens), its "
                           "machine has %s",
                           r, cli_bytes(sum, need), p->n_ctx, cli_bytes(p->memory[r], have));
    }
    return ST_OK;
}

static enum status plan_all(struct planned *p, int n_memory, struct err *err) {
    const struct gguf_options header = {.header_only = true};
    TRY(gguf_open(&p->g, session_args.model, &header, err));
    TRY(hparams_read(&p->hp, p->g, err));
    p->n_ctx =
        session_args.n_ctx != 0 ? (uint32_t)session_args.n_ctx
                                : MIN(p->hp.n_ctx_train, (uint32_t)INSTANCE_DEFAULT_CTX);
    if (p->n_ctx > p->hp.n_ctx_train)
        return err_set(err, ST_BAD_INPUT, "a context of %u is more than the model's %u",
                       p->n_ctx, p->hp.n_ctx_train);
    uint32_t n_chunk =
        session_args.n_chunk != 0 ? (uint32_t)session_args.n_chunk : INSTANCE_DEFAULT_CHUNK;
    if (p->hp.window != 0)
        p->n_window_pages = kv_window_pages(p->hp.window, p->n_ctx,
                                            MIN(n_chunk, p->n_ctx));
    TRY(make_plan(p, n_memory, err));
    return measure(p, err);
}

static int print_json(const struct planned *p) {
    char how[64];
    plan_text(&p->plan, how, sizeof how);
    json_t *ranks = json_array();
    for (int r = 0; r < p->plan.n_ranks; r++) {
        const struct share *sh = &p->plan.shares[r];
        json_array_append_new(
            ranks,
            json_pack("{s:i, s:[ii], s:[ii], s:[ii], s:[ii], s:[ii], s:[ii], s:[ii], s:I, s:I, "
                      "s:I}",
                      "rank", r, "layers", (int)sh->layer_begin, (int)sh->layer_end, "heads",
                      (int)sh->head_begin, (int)sh->head_end, "kv_heads", (int)sh->kv_begin,
                      (int)sh->kv_end, "ffn", (int)sh->ff_begin, (int)sh->ff_end, "experts",
                      (int)sh->expert_begin, (int)sh->expert_end, "expert_ffn",
                      (int)sh->expert_ff_begin, (int)sh->expert_ff_end, "vocabulary",
                      (int)sh->vocab_begin, (int)sh->vocab_end, "weight_bytes",
                      (json_int_t)p->bytes[r].weights, "kv_bytes", (json_int_t)p->bytes[r].kv,
                      "kv_window_bytes", (json_int_t)p->bytes[r].windows));
    }
    return cli_print_json(json_pack("{s:s, s:s, s:i, s:o}", "architecture", p->hp.arch->name,
                                    "parallel", how, "n_ctx", (int)p->n_ctx, "ranks", ranks));
}

static int print_table(const struct planned *p) {
    char how[64], a[32], b[32], c[32];
    uint64_t weights = 0, kv = 0, windows = 0;
    plan_text(&p->plan, how, sizeof how);
    printf("%s, %s, a context of %u\n", p->hp.arch->name, how, p->n_ctx);
    printf("%4s %9s %9s %8s %13s %9s %12s %15s %10s %10s %10s\n", "rank", "layers", "heads",
           "kv heads", "FFN", "experts", "expert FFN", "vocabulary", "weights", "KV cache",
           "sum");
    for (int r = 0; r < p->plan.n_ranks; r++) {
        const struct share *sh = &p->plan.shares[r];
        char layers[24], heads[24], kvs[24], ff[24], experts[24], eff[24], vocab[24];
        snprintf(layers, sizeof layers, "%u-%u", sh->layer_begin, sh->layer_end);
        snprintf(heads, sizeof heads, "%u-%u", sh->head_begin, sh->head_end);
        snprintf(kvs, sizeof kvs, "%u-%u", sh->kv_begin, sh->kv_end);
        snprintf(ff, sizeof ff, "%u-%u", sh->ff_begin, sh->ff_end);
        snprintf(experts, sizeof experts, "%u-%u", sh->expert_begin, sh->expert_end);
        snprintf(eff, sizeof eff, "%u-%u", sh->expert_ff_begin, sh->expert_ff_end);
        snprintf(vocab, sizeof vocab, "%u-%u", sh->vocab_begin, sh->vocab_end);
        printf("%4d %9s %9s %8s %13s %9s %12s %15s %10s %10s %10s\n", r, layers, heads, kvs, ff,
               p->hp.moe.n_experts ? experts : "-", p->hp.moe.n_experts ? eff : "-", vocab,
               cli_bytes(p->bytes[r].weights, a), cli_bytes(p->bytes[r].kv, b),
               cli_bytes(p->bytes[r].weights + p->bytes[r].kv, c));
        weights += p->bytes[r].weights;
        kv += p->bytes[r].kv;
        windows += p->bytes[r].windows;
    }
    printf("all ranks: %s of weights, %s of KV cache\n", cli_bytes(weights, a),
           cli_bytes(kv, b));
    if (p->hp.window != 0)
        printf("of the KV cache: %s for layers that see everything, %s for those with a window of "
               "%u, which keep %u positions at most\n",
               cli_bytes(kv - windows, a), cli_bytes(windows, b), p->hp.window,
               p->n_window_pages * KV_PAGE);
    int status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}

int cmd_plan(int argc, char **argv) {
    static struct planned p;
    struct err err;
    int n_memory = 0, status = cli_parse(&command, argc, argv);
    if (status == CLI_GO_ON)
        status = parse_memory(&p, &n_memory);
    if (status == CLI_GO_ON) {
        enum status st = plan_all(&p, n_memory, &err);
        status = st != ST_OK         ? cli_fail(st, "%s", err.text)
                 : session_args.json ? print_json(&p)
                                     : print_table(&p);
    }
    gguf_close(p.g);
    return status;
}
