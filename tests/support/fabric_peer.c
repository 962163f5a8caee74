/* fabric_peer RANK N_RANKS HOST:PORT LINK suite|ROUNDS SILENCE_MS: one rank of a group that
 * spans machines. "suite" runs all of link_suite.h; ROUNDS makes every kind of call so often,
 * checking what comes out. Says what happened in one line; exit status 0 all was right, 3 a
 * rank was lost (with the sentence and the time since the call began), 1 anything else. */
#include "link_suite.h"

static enum status check_sum_of(struct fabric *f, struct team *t, size_t n, int round,
                                struct err *err) {
    static int64_t x[50000];
    for (size_t i = 0; i < n; i++)
        x[i] = term(2, fabric_rank(f), i + (size_t)round);
    TRY(fabric_allreduce(t, x, n, err));
    for (size_t i = 0; i < n; i++) {
        int64_t sum = 0;
        for (int r = 0; r < fabric_n_ranks(f); r++)
            sum += term(2, r, i + (size_t)round);
        if (x[i] != sum)
            return err_set(err, ST_BAD_INPUT, "WRONG SUM at %zu of %zu", i, n);
    }
    return ST_OK;
}

static enum status one_round(struct fabric *f, struct team *t, int round, struct err *err) {
    static const size_t sizes[] = {1, 100, 2048, 10000, 50000};
    uint64_t word = fabric_rank(f) == 0 ? 42u + (unsigned)round : 0;
    int me = fabric_rank(f), n = fabric_n_ranks(f);
    TRY(check_sum_of(f, t, sizes[(size_t)round % ARRAY_LEN(sizes)], round, err));
    TRY(fabric_broadcast(t, 0, &word, sizeof word, err));
    if (word != 42u + (unsigned)round)
        return err_set(err, ST_BAD_INPUT, "WRONG BROADCAST");
    TRY(fabric_send(f, (me + 1) % n, &word, sizeof word, err));
    TRY(fabric_recv(f, (me + n - 1) % n, &word, sizeof word, err));
    return fabric_barrier(t, err);
}

static void whole_suite(struct fabric *f) {
    struct ranks r = {.n = fabric_n_ranks(f)}; /* no memory in common: notes is NULL */
    run_sums(&r, f);
    run_sends(&r, f);
    run_algorithms(&r, f); /* broadcasts, gathers and barriers too */
}

static enum status run(const struct fabric_config *cfg, int rounds, uint64_t *begin,
                       struct err *err) {
    struct fabric *f = NULL;
    struct team *t;
    int ranks[FABRIC_MAX_RANKS];
    for (int i = 0; i < FABRIC_MAX_RANKS; i++)
        ranks[i] = i;
    TRY(fabric_open(&f, cfg, err));
    enum status st = fabric_team(f, &t, ranks, cfg->n_ranks, err);
    if (st == ST_OK && rounds == 0)
        whole_suite(f);
    for (int k = 0; st == ST_OK && k < rounds; k++) {
        *begin = clock_ns();
        st = one_round(f, t, k, err);
    }
    if (st == ST_OK)
        printf("rank %d: %s over %s\n", cfg->rank,
               rounds == 0 ? "the whole suite" : "all rounds", fabric_link_name(f, !cfg->rank));
    fabric_close(f);
    return st;
}

int main(int argc, char **argv) {
    struct fabric_config cfg;
    struct err err;
    uint64_t begin = clock_ns();
    if (argc != 7)
        return 1;
    fabric_config_defaults(&cfg);
    cfg.rank = atoi(argv[1]);
    cfg.n_ranks = atoi(argv[2]);
    cfg.rendezvous = argv[3];
    cfg.silence_ms = atoi(argv[6]);
    cfg.bootstrap_ms = 2 * cfg.silence_ms + 60000; /* the other machine may still be booting */
    for (const struct link_ops *const *ops = link_table; *ops != NULL; ops++)
        if (str_eq((*ops)->name, argv[4]))
            cfg.link = (*ops)->id;
    int rounds = str_eq(argv[5], "suite") ? 0 : atoi(argv[5]);
    enum status st = run(&cfg, rounds, &begin, &err);
    if (st != ST_OK)
        printf("rank %d: %s after %.0f ms: %s\n", cfg.rank, status_name(st),
               (double)(clock_ns() - begin) * 1e-6, err.text);
    return st == ST_OK ? 0 : st == ST_PEER_LOST ? 3 : 1;
}
