/* The engine: whose turn it is, how much may wait, what ends a request, what is refused. */
#include "engine_fixture.h"

/* ---- turns, limits, ends ------------------------------------------------------------- */

/* One slot, taken while the others are submitted: nine of client 1, then one of client 2.
 * Whoever has not been served comes first; after that they alternate. */
static void clients_take_turns(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.n_running_max = 1;
    struct engine *e = open_engine(&cfg);
    static struct call many[9], other[2];
    n_ended = 0;
    gate_close();
    for (int i = 0; i < 9; i++) {
        many[i] = calls[0];
        many[i].req.client = 1;
        call_submit(e, &many[i]);
        if (i == 0)
            gate_wait_reached();
    }
    for (int i = 0; i < 2; i++) {
        other[i] = calls[0];
        other[i].req.client = 2;
        call_submit(e, &other[i]);
    }
    gate_open();
    for (int i = 0; i < 9; i++)
        call_wait(&many[i]);
    for (int i = 0; i < 2; i++) {
        call_wait(&other[i]);
        assert_int_equal(other[i].place, 1 + 2 * i);
    }
    for (int i = 1; i < 9; i++) /* in the order of their submission */
        assert_int_equal(many[i].place, i == 1 ? 2 : i + 2);
    engine_close(e);
}

static void the_queue_is_bounded(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.n_running_max = 1;
    cfg.n_queue_max = 2;
    struct engine *e = open_engine(&cfg);
    static struct call some[3];
    gate_close();
    for (int i = 0; i < 3; i++) {
        some[i] = calls[0];
        some[i].req.n_predict = 400;
        some[i].cancel_at = 30;
        call_submit(e, &some[i]);
        if (i == 0)
            gate_wait_reached(); /* it runs, and does not wait */
    }
    struct err err = {.text = ""};
    assert_int_equal(engine_submit(e, &calls[0].req, NULL, &err), ST_AGAIN);
    assert_true(strlen(err.text) > 0);
    gate_open();
    for (int i = 0; i < 3; i++) {
        call_wait(&some[i]);
        assert_int_equal(some[i].out[0].done.stop, ENGINE_STOP_CANCELLED);
    }
    call_run(e, &calls[0]);
    engine_close(e);
}

static void cancelled_within_a_step(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.no_speculation = true;
    struct engine *e = open_engine(&cfg);
    static struct call c;
    c = calls[2];
    c.cancel_at = 3;
    call_run(e, &c);
    assert_int_equal(c.out[0].done.stop, ENGINE_STOP_CANCELLED);
    assert_int_equal(c.out[0].n_ids, 3);
    assert_int_equal(idle_stats_of(e).pages_used, 0);
    engine_close(e);
}

static void *close_engine(void *e) {
    engine_close(e);
    return NULL;
}

static void closing_ends_everything(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.n_running_max = 2;
    struct engine *e = open_engine(&cfg);
    gate_close();
    for (int i = 0; i < N_REQUESTS; i++)
        call_submit(e, &calls[i]);
    gate_wait_reached();
    pthread_t closer;
    assert_int_equal(pthread_create(&closer, NULL, close_engine, e), 0);
    for (bool closing = false; !closing; usleep(100)) {
        pthread_mutex_lock(&e->lock);
        closing = e->closing;
        pthread_mutex_unlock(&e->lock);
    }
    gate_open();
    pthread_join(closer, NULL);
    for (int i = 0; i < N_REQUESTS; i++) {
        assert_true(calls[i].over);
        assert_int_equal(calls[i].out[0].done.stop, ENGINE_STOP_CANCELLED);
    }
}

static void bad_requests_are_refused_with_a_sentence(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    struct engine_request good = calls[0].req, bad[12];
    int32_t outside = N_VOCAB;
    const char *empty_stop = "";
    struct engine_bias bias = {.id = -1};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        bad[i] = good;
    bad[0].n_ids = 0;
    bad[1].n_ids = 512;
    bad[1].ids = calls[12].req.ids;
    bad[2].ids = &outside;
    bad[3].sampling.base.temperature = NAN;
    bad[4].sampling.base.top_p = 0;
    bad[5].sampling.typical_p = -1;
    bad[6].n_choices = 0;
    bad[7].n_top = 21;
    bad[8].stops = &empty_stop;
    bad[8].n_stops = 1;
    bad[9].sampling.biases = &bias;
    bad[9].sampling.n_biases = 1;
    bad[10].n_predict = -2;
    bad[11].sampling.presence_penalty = INFINITY;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err err = {.text = ""};
        assert_int_equal(engine_submit(e, &bad[i], NULL, &err), ST_BAD_INPUT);
        assert_true(strlen(err.text) > 10);
    }
    assert_int_equal(stats_of(e).queued, 0);
    engine_close(e);
    cfg.kv_memory_bytes = 1000;
    struct err err = {.text = ""};
    assert_int_equal(engine_open(&e, &cfg, &err), ST_BAD_INPUT);
    assert_non_null(strstr(err.text, "context"));
}

int main(int argc, char **argv) {
    if (is_worker(argc, argv))
        return lockstep_worker_main(argc - 1, argv + 1);
    golden_or_skip(MODEL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_take_turns),
        cmocka_unit_test(the_queue_is_bounded),
        cmocka_unit_test(cancelled_within_a_step),
        cmocka_unit_test(closing_ends_everything),
        cmocka_unit_test(bad_requests_are_refused_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, make_expected, NULL);
}
