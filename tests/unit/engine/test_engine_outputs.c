/* The engine: what comes with a text or instead of it: stop strings, log probabilities, tokens of
 * padding, embeddings. */
#include "engine_fixture.h"

/* ---- stop strings -------------------------------------------------------------------- */

/* Every string of the answer (bytes: a token is a byte or few) as a stop: the text ends before its
 * first occurrence, wherever tokens begin and end. */
static void text_ends_before_a_stop_string(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    static struct call c;
    const struct output *full = &expected[4];
    for (size_t at = 0; at + 12 < full->n_text; at += 5) {
        char stop[16] = "", never[] = "\x01never";
        /* Whole characters. */
        size_t begin = at, end = at + 3 + at % 5;
        while (begin > 0 && ((uint8_t)full->text[begin] & 0xc0) == 0x80)
            begin--;
        while (end < full->n_text && ((uint8_t)full->text[end] & 0xc0) == 0x80)
            end++;
        memcpy(stop, full->text + begin, end - begin);
        if (strlen(stop) != end - begin)
            continue; /* a NUL is part of the text, and none of a string */
        const char *stops[] = {never, stop};
        const char *first = memmem(full->text, full->n_text, stop, strlen(stop));
        c = calls[4];
        c.req.stops = stops;
        c.req.n_stops = 2;
        call_run(e, &c);
        assert_int_equal(c.out[0].done.stop, ENGINE_STOP_STRING);
        assert_string_equal(c.out[0].stop_string, stop);
        assert_int_equal(c.out[0].n_text, first - full->text);
        assert_memory_equal(c.out[0].text, full->text, c.out[0].n_text);
    }
    /* One that never comes holds nothing back in the end. */
    const char *half = "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd!!";
    c = calls[4];
    c.req.stops = &half;
    c.req.n_stops = 1;
    call_run(e, &c);
    assert_same(&c.out[0], full);
    engine_close(e);
}

/* ---- stop tokens, and a least length ------------------------------------------------- */

static void a_stop_token_ends_the_text_and_not_too_early(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    static struct call c;
    const struct output *full = &expected[4];
    const int32_t *stop = &full->ids[7];
    size_t first = 0;
    while (full->ids[first] != *stop)
        first++;
    c = calls[4];
    c.req.stop_ids = stop;
    c.req.n_stop_ids = 1;
    call_run(e, &c); /* though ends are to be ignored */
    assert_int_equal(c.out[0].done.stop, ENGINE_STOP_END);
    assert_int_equal(c.out[0].n_ids, first + 1);
    assert_memory_equal(c.out[0].ids, full->ids, (first + 1) * sizeof *full->ids);
    assert_memory_equal(c.out[0].text, full->text, c.out[0].n_text);
    c = calls[4];
    c.req.stop_ids = stop;
    c.req.n_stop_ids = 1;
    c.req.min_tokens = 20;
    call_run(e, &c);
    assert_true(c.out[0].n_ids >= 20);
    for (size_t i = 0; i < 19; i++)
        assert_int_not_equal(c.out[0].ids[i], *stop);
    const int32_t absurd = 1 << 30;
    struct err err;
    c = calls[4];
    c.req.stop_ids = &absurd;
    c.req.n_stop_ids = 1;
    assert_int_equal(engine_submit(e, &c.req, NULL, &err), ST_BAD_INPUT);
    engine_close(e);
}

/* ---- log probabilities --------------------------------------------------------------- */

struct rows {
    float *logits; /* [n, N_VOCAB] */
    size_t n;
};

static bool keep_rows(void *user, size_t first, size_t n, const float *logits) {
    struct rows *r = user;
    memcpy(r->logits + first * N_VOCAB, logits, n * N_VOCAB * sizeof *logits);
    r->n = first + n;
    return true;
}

static double logprob_in_double(const float *logits, int32_t id) {
    double sum = 0, best = -INFINITY;
    for (int i = 0; i < N_VOCAB; i++)
        best = fmax(best, (double)logits[i]);
    for (int i = 0; i < N_VOCAB; i++)
        sum += exp((double)logits[i] - best);
    return (double)logits[id] - best - log(sum);
}

static void logprobs_are_those_of_the_unmodified_distribution(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    static struct call c;
    c = calls[8];
    c.req.logprobs = true;
    c.req.n_top = 3;
    c.req.sampling.base.repeat_penalty = 1.5f;
    c.req.sampling.frequency_penalty = 0.5f;
    call_run(e, &c);
    engine_close(e);
    struct lockstep *ls = open_lockstep(NULL);
    struct rows rows = {.logits = malloc(512 * N_VOCAB * sizeof(float))};
    int32_t ids[512];
    size_t n = c.req.n_ids;
    memcpy(ids, c.req.ids, n * sizeof *ids);
    memcpy(ids + n, c.out[0].ids, c.out[0].n_ids * sizeof *ids);
    assert_int_equal(lockstep_eval(ls, ids, n + c.out[0].n_ids, keep_rows, &rows, NULL),
                     LOCKSTEP_OK);
    lockstep_close(ls);
    for (size_t i = 0; i < c.out[0].n_ids; i++) {
        const float *row = rows.logits + (n + i - 1) * N_VOCAB;
        /* exp is good to 2 ulp, and 1e-6 is several of a logprob of 8. */
        assert_float_equal(c.out[0].logprobs[i], logprob_in_double(row, c.out[0].ids[i]), 2e-6);
        for (int t = 0; t < 3; t++) {
            struct engine_top top = c.out[0].tops[i][t];
            int better = 0;
            for (int v = 0; v < N_VOCAB; v++)
                better += row[v] > row[top.id] || (row[v] == row[top.id] && v < top.id);
            assert_int_equal(better, t);
            assert_float_equal(top.logprob, logprob_in_double(row, top.id), 2e-6);
        }
    }
    free(rows.logits);
}

/* ---- log probabilities of prompts ---------------------------------------------------- */

struct told {
    struct call call; /* first: its callbacks get it as theirs */
    int32_t ids[512];
    float logprobs[512];
    struct engine_top tops[512][3];
    size_t n;
};

static void keep_prompt(void *user, const struct engine_token *t) {
    struct told *told = user;
    assert_int_equal(t->choice, 0);
    assert_int_equal(t->len, 0);
    assert_int_equal(told->call.out[0].n_ids, 0); /* before all of the answer */
    told->ids[told->n] = t->id;
    told->logprobs[told->n] = t->logprob;
    for (int i = 0; i < t->n_top; i++)
        told->tops[told->n][i] = t->top[i];
    told->n++;
}

static void told_begin(struct engine *e, struct told *told, int which) {
    memset(told, 0, sizeof *told);
    told->call = calls[which];
    told->call.req.logprobs = told->call.req.prompt_logprobs = true;
    told->call.req.n_top = 3;
    told->call.req.on_prompt = keep_prompt;
    call_submit(e, &told->call);
}

static void assert_told_same(const struct told *a, const struct told *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
    assert_true(isnan(a->logprobs[0]));
    assert_memory_equal(a->logprobs + 1, b->logprobs + 1, (a->n - 1) * sizeof *a->logprobs);
    assert_memory_equal(a->tops + 1, b->tops + 1, (a->n - 1) * sizeof *a->tops);
    assert_same(&a->call.out[0], &b->call.out[0]);
}

static void a_prompts_logprobs_are_those_of_its_logits(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    static struct told told;
    told_begin(e, &told, 12);
    call_wait(&told.call);
    engine_close(e);
    size_t n = told.call.req.n_ids;
    struct lockstep *ls = open_lockstep(NULL);
    struct rows rows = {.logits = malloc(512 * N_VOCAB * sizeof(float))};
    assert_int_equal(lockstep_eval(ls, told.call.req.ids, n, keep_rows, &rows, NULL),
                     LOCKSTEP_OK);
    lockstep_close(ls);
    assert_int_equal(told.n, n);
    assert_memory_equal(told.ids, told.call.req.ids, n * sizeof *told.ids);
    for (size_t i = 1; i < n; i++) {
        const float *row = rows.logits + (i - 1) * N_VOCAB;
        assert_float_equal(told.logprobs[i], logprob_in_double(row, told.ids[i]), 2e-6);
        for (int t = 0; t < 3; t++)
            assert_float_equal(told.tops[i][t].logprob,
                               logprob_in_double(row, told.tops[i][t].id), 2e-6);
        assert_true(row[told.tops[i][0].id] >= row[told.tops[i][1].id]);
    }
    assert_same(&told.call.out[0], &expected[12]);
    free(rows.logits);
}

/* At once, in small pieces, one by one, from the cache, beside others, put back in between: the
 * same bits, each told once. */
static void a_prompts_logprobs_do_not_depend_on_the_rest(void **state) {
    (void)state;
    static struct told alone, told, again;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    told_begin(e, &alone, 12);
    call_wait(&alone.call);
    told_begin(e, &again, 12); /* what is in the cache is looked at again */
    call_wait(&again.call);
    assert_told_same(&again, &alone);
    engine_close(e);
    static const int chunks[] = {1, 7, 64};
    for (size_t i = 0; i < ARRAY_LEN(chunks); i++) {
        cfg = plain_config();
        cfg.n_step_tokens = chunks[i];
        e = open_engine(&cfg);
        struct call stream = calls[0];
        call_submit(e, &stream); /* beside which steps are small */
        told_begin(e, &told, 12);
        call_wait(&told.call);
        call_wait(&stream);
        assert_told_same(&told, &alone);
        assert_same(&stream.out[0], &expected[0]);
        engine_close(e);
    }
    cfg = plain_config();
    cfg.kv_memory_bytes = 8 * (size_t)KV_PAGE * 2 * 2 * 2 * 32 * 2;
    e = open_engine(&cfg);
    for (int round = 0; round < 20 && stats_of(e).preemptions < 3; round++) {
        for (int i = 0; i < N_REQUESTS; i++)
            if (i != 12)
                call_submit(e, &calls[i]);
        told_begin(e, &told, 12);
        for (int i = 0; i < N_REQUESTS; i++)
            if (i != 12)
                call_wait(&calls[i]);
        call_wait(&told.call);
        assert_told_same(&told, &alone);
    }
    assert_true(stats_of(e).preemptions > 0);
    engine_close(e);
}

static void a_prompt_is_told_once_and_with_no_answer(void **state) {
    (void)state;
    static const int which[] = {0, 2, 3, 4, 12}; /* of 1, 63, 64, 65 and 300 tokens */
    static struct told told;
    struct engine_config cfg = plain_config();
    struct engine *e = open_engine(&cfg);
    for (size_t i = 0; i < ARRAY_LEN(which); i++)
        for (int n_choices = 1; n_choices <= 3; n_choices += 2)
            for (int n_predict = 0; n_predict < 2; n_predict++) {
                memset(&told, 0, sizeof told);
                told.call = calls[which[i]];
                told.call.req.prompt_logprobs = true;
                told.call.req.on_prompt = keep_prompt;
                told.call.req.n_choices = n_choices;
                told.call.req.n_predict = n_predict;
                call_run(e, &told.call);
                assert_int_equal(told.n, told.call.req.n_ids);
                for (int c = 0; c < n_choices; c++) {
                    assert_int_equal(told.call.out[c].n_ids, n_predict);
                    assert_int_equal(told.call.out[c].done.stop, ENGINE_STOP_LENGTH);
                    assert_int_equal(told.call.out[c].done.n_generated, n_predict);
                }
            }
    engine_close(e);
}

/* ---- padding ------------------------------------------------------------------------- */

/* A copy of the model whose last `n` tokens are unused ones. */
static void write_padded_model(const char *path, uint32_t n) {
    static const char key[] = "tokenizer.ggml.token_type";
    static char bytes[4 << 20];
    const uint32_t unused = 5;
    FILE *f = fopen(golden_path(MODEL), "rb");
    size_t len = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    char *at = memmem(bytes, len, key, sizeof key - 1);
    assert_non_null(at);
    at += sizeof key - 1 + 4 + 4 + 8; /* value type, element type, number */
    for (uint32_t i = N_VOCAB - n; i < N_VOCAB; i++)
        memcpy(at + 4 * i, &unused, sizeof unused);
    f = fopen(path, "wb");
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    fclose(f);
}

static void a_token_of_padding_never_comes(void **state) {
    (void)state;
    char path[] = "/tmp/lockstep-padded-XXXXXX";
    close(mkstemp(path));
    write_padded_model(path, 3);
    struct engine_config cfg = plain_config();
    cfg.model.model_path = path;
    struct engine *e = open_engine(&cfg);
    static struct call c;
    const struct engine_bias biases[] = {{N_VOCAB - 1, 1e5f}, {N_VOCAB - 3, 1e5f}};
    c = calls[9];
    c.req.sampling.biases = biases;
    c.req.sampling.n_biases = 2;
    call_run(e, &c);
    assert_int_equal(c.out[0].n_ids, N_PREDICT);
    for (size_t i = 0; i < c.out[0].n_ids; i++)
        assert_true(c.out[0].ids[i] < N_VOCAB - 3);
    engine_close(e);
    remove(path);
}

/* ---- embeddings ---------------------------------------------------------------------- */

/* The last hidden state times the output matrix (f32 in this file) are the logits. */
static void the_last_hidden_state_gives_the_logits(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.model.kv = "f32";
    struct engine *e = open_engine(&cfg);
    static struct call c;
    c = calls[8];
    c.req.embed = c.req.embed_last = true;
    call_run(e, &c);
    struct lockstep *ls = open_lockstep("f32");
    struct rows rows = {.logits = malloc(512 * N_VOCAB * sizeof(float))};
    lockstep_eval(ls, c.req.ids, c.req.n_ids, keep_rows, &rows, NULL);
    lockstep_close(ls);
    const struct gguf_tensor *w = gguf_tensor(engine_gguf(e), "output.weight");
    assert_non_null(w);
    const float *weights = (const float *)(const void *)w->data;
    size_t n_embd = (size_t)engine_model_info(e)->n_embd;
    for (size_t v = 0; v < N_VOCAB; v++) {
        double sum = 0;
        for (size_t i = 0; i < n_embd; i++)
            sum += (double)weights[v * n_embd + i] * (double)c.embedding[i];
        /* 128 products in f32: 128 * 2^-24 * the sum of their sizes, which is below 30. */
        assert_float_equal((float)sum, rows.logits[(c.req.n_ids - 1) * N_VOCAB + v], 2.5e-4);
    }
    free(rows.logits);
    engine_close(e);
}

/* The mean is that of the last states of all beginnings, beside streams and in pieces. */
static void the_mean_is_that_of_all_positions(void **state) {
    (void)state;
    struct engine_config cfg = plain_config();
    cfg.n_step_tokens = 13;
    struct engine *e = open_engine(&cfg);
    static struct call c, stream;
    double sum[512] = {0};
    size_t n_embd = (size_t)engine_model_info(e)->n_embd;
    stream = calls[0];
    stream.req.n_predict = 300;
    call_submit(e, &stream);
    for (size_t n = 1; n <= 70; n++) {
        c = calls[8];
        c.req.embed = c.req.embed_last = true;
        c.req.n_ids = n;
        call_run(e, &c);
        for (size_t i = 0; i < n_embd; i++)
            sum[i] += (double)c.embedding[i];
    }
    c.req.embed_last = false;
    call_run(e, &c);
    for (size_t i = 0; i < n_embd; i++)
        assert_true(c.embedding[i] == (float)(sum[i] / 70));
    call_wait(&stream);
    assert_memory_equal(stream.out[0].ids, expected[0].ids, N_PREDICT * sizeof(int32_t));
    engine_close(e);
}

int main(int argc, char **argv) {
    if (is_worker(argc, argv))
        return lockstep_worker_main(argc - 1, argv + 1);
    golden_or_skip(MODEL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_ends_before_a_stop_string),
        cmocka_unit_test(a_stop_token_ends_the_text_and_not_too_early),
        cmocka_unit_test(logprobs_are_those_of_the_unmodified_distribution),
        cmocka_unit_test(a_prompts_logprobs_are_those_of_its_logits),
        cmocka_unit_test(a_prompts_logprobs_do_not_depend_on_the_rest),
        cmocka_unit_test(a_prompt_is_told_once_and_with_no_answer),
        cmocka_unit_test(a_token_of_padding_never_comes),
        cmocka_unit_test(the_last_hidden_state_gives_the_logits),
        cmocka_unit_test(the_mean_is_that_of_all_positions),
    };
    return cmocka_run_group_tests(tests, make_expected, NULL);
}
