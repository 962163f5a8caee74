/* The engine: constraints, whose masks are made by threads beside it. */
#include "engine_fixture.h"

/* ---- constraints --------------------------------------------------------------------- */

/* Allows tokens whose id mod 7 is how many came before mod 7; after `left` of them nothing, or
 * all. */
struct sevens {
    int n, left;
    enum engine_allows then;
};
static atomic_int n_living;

static enum engine_allows sevens_mask(void *state, uint64_t *mask, struct err *err) {
    (void)err;
    struct sevens *s = state;
    if (s->left <= 0)
        return s->then;
    for (int i = s->n % 7; i < N_VOCAB; i += 7)
        mask[i / 64] |= 1ull << (i % 64);
    return ENGINE_ALLOWS_SOME;
}

static void sevens_accept(void *state, int32_t id) {
    struct sevens *s = state;
    if (s->left-- > 0)
        assert_int_equal(id % 7, s->n % 7);
    s->n++;
}

static void *sevens_clone(const void *state) {
    struct sevens *copy = malloc(sizeof *copy);
    *copy = *(const struct sevens *)state;
    n_living++;
    return copy;
}

static void sevens_free(void *state) {
    free(state);
    n_living--;
}

static struct engine_constraint sevens(const struct sevens *first) {
    return (struct engine_constraint){.state = sevens_clone(first),
                                      .mask = sevens_mask,
                                      .accept = sevens_accept,
                                      .clone = sevens_clone,
                                      .free = sevens_free};
}

static void constraints_are_obeyed_and_freed(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.kv_memory_bytes = 8 * (size_t)KV_PAGE * 2 * 2 * 2 * 32 * 2;
    struct engine *e = open_engine(&cfg);
    static struct call c;
    const struct sevens first = {.left = 20};
    c = calls[9];
    c.req.n_choices = 3;
    c.req.constraint = sevens(&first);
    call_run(e, &c);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(c.out[i].n_ids, 20);
        for (int j = 0; j < 20; j++)
            assert_int_equal(c.out[i].ids[j] % 7, j % 7);
        assert_int_equal(c.out[i].done.stop, ENGINE_STOP_ERROR);
        assert_int_equal(c.out[i].done.st, ST_BAD_INPUT);
        assert_true(strlen(c.out[i].error) > 10);
    }
    engine_close(e);
    assert_int_equal(n_living, 0);
}

static void a_constraint_may_let_go(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    static struct call c;
    const struct sevens first = {.left = 5, .then = ENGINE_ALLOWS_ALL};
    c = calls[9];
    c.req.constraint = sevens(&first);
    call_run(e, &c);
    assert_int_equal(c.out[0].n_ids, N_PREDICT);
    assert_int_equal(c.out[0].done.stop, ENGINE_STOP_LENGTH);
    size_t n_others = 0;
    for (int j = 0; j < N_PREDICT; j++)
        n_others += c.out[0].ids[j] % 7 != j % 7;
    assert_true(n_others > 0);
    engine_close(e);
    assert_int_equal(n_living, 0);
}

/* Holds the helper thread that makes a mask. */
static struct gate mask_gate;

static enum engine_allows held_mask(void *state, uint64_t *mask, struct err *err) {
    pass_gate(&mask_gate);
    return sevens_mask(state, mask, err);
}

/* Its mask is held: the one after n tokens. */
static void submit_held(struct engine *e, struct call *c, int n) {
    const struct sevens first = {.left = 20};
    *c = calls[9];
    c->req.n_predict = 15;
    c->req.constraint = sevens(&first);
    c->req.constraint.mask = held_mask;
    if (n == 0) {
        close_gate(&mask_gate);
        call_submit(e, c);
    } else {
        gate_close();
        call_submit(e, c);
        gate_wait_reached(); /* the second mask may be made already, the third is not begun */
        close_gate(&mask_gate);
        gate_open();
    }
    wait_reached(&mask_gate);
}

static void assert_sevens(const struct call *c) {
    assert_int_equal(c->out[0].done.stop, ENGINE_STOP_LENGTH);
    assert_int_equal(c->out[0].n_ids, 15);
    for (int j = 0; j < 15; j++)
        assert_int_equal(c->out[0].ids[j] % 7, j % 7);
}

static bool is_over(struct call *c) {
    pthread_mutex_lock(&lock);
    bool over = c->over;
    pthread_mutex_unlock(&lock);
    return over;
}

static void a_mask_in_the_making_delays_nobody_else(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    for (int n = 0; n < 2; n++) {
        static struct call held;
        submit_held(e, &held, n);
        run_together(e);
        assert_false(is_over(&held));
        open_gate(&mask_gate);
        call_wait(&held);
        assert_sevens(&held);
    }
    engine_close(e);
    assert_int_equal(n_living, 0);
}

/* The request is over at once; its one slot is free when the helper is. */
static void a_request_is_cancelled_while_its_mask_is_made(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.n_running_max = 1;
    struct engine *e = open_engine(&cfg);
    for (int n = 0; n < 2; n++) {
        static struct call held;
        submit_held(e, &held, n);
        engine_cancel(e, held.handle);
        call_wait(&held);
        assert_int_equal(held.out[0].done.stop, ENGINE_STOP_CANCELLED);
        assert_int_equal(n_living, 1);
        call_submit(e, &calls[3]);
        open_gate(&mask_gate);
        call_wait(&calls[3]);
        assert_same(&calls[3].out[0], &expected[3]);
        assert_int_equal(n_living, 0);
    }
    engine_close(e);
}

static void *open_mask_gate(void *arg) {
    usleep(50 * 1000); /* closing has begun by now, most likely */
    open_gate(&mask_gate);
    return arg;
}

static void an_engine_is_closed_while_a_mask_is_made(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    static struct call held;
    pthread_t opener;
    submit_held(e, &held, 1);
    assert_int_equal(pthread_create(&opener, NULL, open_mask_gate, NULL), 0);
    engine_close(e);
    pthread_join(opener, NULL);
    assert_true(is_over(&held));
    assert_int_equal(held.out[0].done.stop, ENGINE_STOP_CANCELLED);
    assert_int_equal(n_living, 0);
}

/* The ranks are lost while all who run wait for a mask: the text goes on where it was. */
static void a_rank_is_lost_while_a_mask_is_made(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.model.n_ranks = 2;
    cfg.model.failover = true;
    struct engine *e = open_engine(&cfg);
    static struct call held;
    submit_held(e, &held, 1);
    lose(e, 1, 0);
    wait_for_recovery(e, 1);
    assert_false(is_over(&held));
    open_gate(&mask_gate);
    call_wait(&held);
    assert_sevens(&held);
    engine_close(e);
    assert_int_equal(n_living, 0);
}

/* The jobs of one request never overlap, those of another run beside them. */
static atomic_int n_in_mask;

static enum engine_allows lonely_mask(void *state, uint64_t *mask, struct err *err) {
    assert_int_equal(atomic_fetch_add(&n_in_mask, 1), 0);
    enum engine_allows allows = sevens_mask(state, mask, err);
    usleep(100);
    atomic_fetch_sub(&n_in_mask, 1);
    return allows;
}

static void masks_of_one_request_are_made_one_by_one(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    static struct call c, held;
    const struct sevens first = {.left = 20};
    submit_held(e, &held, 0);
    c = calls[9];
    c.req.n_choices = CHOICES;
    c.req.constraint = sevens(&first);
    c.req.constraint.mask = lonely_mask;
    call_run(e, &c);
    for (int i = 0; i < CHOICES; i++)
        assert_int_equal(c.out[i].n_ids, 20);
    assert_false(is_over(&held));
    open_gate(&mask_gate);
    call_wait(&held);
    engine_close(e);
    assert_int_equal(n_living, 0);
}

/* What is known is answered at once, and why nothing fits is said. */
static enum engine_allows sevens_known(void *state, int32_t id, uint64_t *mask) {
    struct sevens *s = state;
    if (s->n % 2 == 0 || s->left <= 1)
        return ENGINE_ALLOWS_UNKNOWN;
    if (id != TOKEN_NONE)
        sevens_accept(s, id);
    return sevens_mask(s, mask, NULL);
}

static enum engine_allows odd_mask(void *state, uint64_t *mask, struct err *err) {
    const struct sevens *s = state;
    assert_true(s->n == 0 || s->n % 2 == 1 || s->left <= 0);
    if (s->left <= 0)
        err_set(err, ST_UNSUPPORTED, "that is all");
    return sevens_mask(state, mask, err);
}

static void what_is_known_of_a_mask_is_used(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    static struct call c;
    const struct sevens first = {.left = 20};
    c = calls[9];
    c.req.constraint = sevens(&first);
    c.req.constraint.mask = odd_mask;
    c.req.constraint.known = sevens_known;
    call_run(e, &c);
    assert_int_equal(c.out[0].n_ids, 20);
    for (int j = 0; j < 20; j++)
        assert_int_equal(c.out[0].ids[j] % 7, j % 7);
    assert_int_equal(c.out[0].done.st, ST_BAD_INPUT);
    assert_string_equal(c.out[0].error, "that is all");
    engine_close(e);
    assert_int_equal(n_living, 0);
}

int main(int argc, char **argv) {
    if (is_worker(argc, argv))
        return lockstep_worker_main(argc - 1, argv + 1);
    golden_or_skip(MODEL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constraints_are_obeyed_and_freed),
        cmocka_unit_test(a_constraint_may_let_go),
        cmocka_unit_test(a_mask_in_the_making_delays_nobody_else),
        cmocka_unit_test(a_request_is_cancelled_while_its_mask_is_made),
        cmocka_unit_test(an_engine_is_closed_while_a_mask_is_made),
        cmocka_unit_test(a_rank_is_lost_while_a_mask_is_made),
        cmocka_unit_test(masks_of_one_request_are_made_one_by_one),
        cmocka_unit_test(what_is_known_of_a_mask_is_used),
    };
    return cmocka_run_group_tests(tests, make_expected, NULL);
}
