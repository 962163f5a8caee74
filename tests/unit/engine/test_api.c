/* The public library (include/lockstep/lockstep.h), for what its callers do wrong, or do
 * besides. */
#include "base/util.h"
#include "flush.h"
#include "lockstep/lockstep.h"

#include <errno.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char program[4096];

static void model_options(struct lockstep_options *opt, int n_ranks) {
    lockstep_options_init(opt);
    opt->model_path = SOURCE_DIR "/models/jargon-3m-f16.gguf";
    opt->worker_path = program;
    opt->n_ranks = n_ranks;
    opt->n_threads = 1;
}

static struct lockstep *open_model(int n_ranks) {
    struct lockstep_options opt;
    struct lockstep_error err = {.text = ""};
    struct lockstep *ls = NULL;
    model_options(&opt, n_ranks);
    assert_int_equal(lockstep_open(&ls, &opt, &err), LOCKSTEP_OK);
    return ls;
}

static void test_words_that_are_none(void **state) {
    (void)state;
    struct lockstep *ls = open_model(1);
    struct lockstep_error err = {.text = ""};
    char *text = NULL;
    size_t len = 7;
    int32_t n_vocab = lockstep_model_info(ls)->n_vocab;
    const int32_t wrong[] = {-1, INT32_MIN, n_vocab, INT32_MAX};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        const int32_t ids[] = {5, wrong[i]};
        assert_int_equal(lockstep_detokenize(ls, ids, 2, true, &text, &len, &err),
                         LOCKSTEP_BAD_INPUT);
        assert_non_null(strstr(err.text, "is none of the"));
        assert_null(text);
        assert_int_equal(len, 7);
    }
    const int32_t last[] = {n_vocab - 1};
    assert_int_equal(lockstep_detokenize(ls, last, 1, true, &text, &len, &err), LOCKSTEP_OK);
    lockstep_free(text);
    lockstep_close(ls);
}

/* A program tells a prompt that is too long from other bad input by the code, never by the words;
 * the next error has none. */
static void test_codes(void **state) {
    (void)state;
    struct lockstep *ls = open_model(1);
    struct lockstep_error err = {.code = -1};
    static char text[1 << 22];
    memset(text, ' ', sizeof text);
    assert_int_equal(lockstep_check_text(ls, text, sizeof text, &err), LOCKSTEP_BAD_INPUT);
    assert_int_equal(err.code, LOCKSTEP_ERROR_PROMPT_TOO_LONG);
    assert_int_equal(lockstep_trace_begin(ls, &err), LOCKSTEP_OK);
    assert_int_equal(lockstep_trace_end(ls, NULL, &err), LOCKSTEP_BAD_INPUT);
    assert_int_equal(err.code, LOCKSTEP_ERROR_NONE);
    lockstep_close(ls);
}

static void test_conversations_that_are_none(void **state) {
    (void)state;
    static const struct {
        struct lockstep_message message;
        const char *why;
    } cases[] = {{{NULL, "hi"}, "message 1 of the conversation has no role"},
                 {{"user", NULL}, "message 1 of the conversation has no content"},
                 {{"user", "\xff"}, "message 1 of the conversation is not UTF-8"}};
    struct lockstep *ls = open_model(1);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct lockstep_error err = {.text = ""};
        const struct lockstep_message list[] = {{"system", "Be brief."}, cases[i].message};
        char *text;
        size_t len;
        assert_int_equal(lockstep_chat_prompt(ls, list, 2, &text, &len, &err),
                         LOCKSTEP_BAD_INPUT);
        assert_string_equal(err.text, cases[i].why);
    }
    struct lockstep_error err = {.text = ""};
    assert_int_equal(lockstep_trace_begin(ls, &err), LOCKSTEP_OK);
    assert_int_equal(lockstep_trace_end(ls, NULL, &err), LOCKSTEP_BAD_INPUT);
    lockstep_close(ls);
}

/* ---- calls inside calls ------------------------------------------------------------------ */

struct caller {
    struct lockstep *ls;
    int n_refused;
};

/* What a callback may not call is refused with the reason; what it may, works. */
static void compute_from_within(struct caller *c) {
    static const int32_t ids[] = {280, 104};
    struct lockstep_error err = {.text = ""};
    struct lockstep_request req;
    int32_t *some = NULL;
    size_t n;
    lockstep_request_init(&req);
    req.ids = ids;
    req.n_ids = ARRAY_LEN(ids);
    assert_int_equal(lockstep_eval(c->ls, ids, 2, NULL, NULL, &err), LOCKSTEP_BAD_INPUT);
    assert_non_null(strstr(err.text, "one call at a time"));
    assert_int_equal(lockstep_generate(c->ls, &req, NULL, NULL), LOCKSTEP_BAD_INPUT);
    assert_int_equal(lockstep_tokenize(c->ls, "bit", 3, false, false, &some, &n, NULL),
                     LOCKSTEP_OK);
    lockstep_free(some);
    c->n_refused++;
}

static bool call_at_token(void *user, int32_t id, const char *text, size_t len) {
    struct caller *c = user;
    struct lockstep_rank_info info;
    (void)id;
    (void)text;
    (void)len;
    compute_from_within(c);
    return lockstep_rank_info(c->ls, 0, &info, NULL) == LOCKSTEP_OK; /* between steps */
}

static bool call_at_rows(void *user, size_t first_pos, size_t n, const float *logits) {
    struct caller *c = user;
    struct lockstep_error err = {.text = ""};
    struct lockstep_rank_info info;
    (void)first_pos;
    (void)n;
    (void)logits;
    compute_from_within(c);
    assert_int_equal(lockstep_rank_info(c->ls, 0, &info, &err), LOCKSTEP_BAD_INPUT);
    assert_non_null(strstr(err.text, "in a step"));
    assert_int_equal(lockstep_trace_begin(c->ls, NULL), LOCKSTEP_BAD_INPUT);
    return true;
}

static void test_a_callback_that_calls(void **state) {
    (void)state;
    static const int32_t ids[] = {280, 104, 250, 60, 279, 67};
    for (int n_ranks = 1; n_ranks <= 2; n_ranks++) {
        struct lockstep_error err = {.text = ""};
        struct lockstep_request req;
        struct lockstep_result result;
        struct caller c = {.ls = open_model(n_ranks)};
        lockstep_request_init(&req);
        req.ids = ids;
        req.n_ids = ARRAY_LEN(ids);
        req.n_predict = 3;
        req.ignore_end = true;
        req.on_token = call_at_token;
        req.user = &c;
        assert_int_equal(lockstep_generate(c.ls, &req, &result, &err), LOCKSTEP_OK);
        assert_int_equal(result.n_generated, 3);
        assert_int_equal(c.n_refused, 3);
        lockstep_reset(c.ls);
        assert_int_equal(lockstep_eval(c.ls, ids, ARRAY_LEN(ids), call_at_rows, &c, &err),
                         LOCKSTEP_OK);
        assert_true(c.n_refused > 3);
        lockstep_close(c.ls);
    }
}

/* A child has none of its parent's threads, and must not speak to its ranks. */
static void test_a_child_with_its_parents_model(void **state) {
    (void)state;
    static const int32_t ids[] = {280, 104, 250, 60};
    struct lockstep_error err = {.text = ""};
    struct lockstep *ls = open_model(2);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60); /* it would wait for threads that it has not */
        enum lockstep_status st = lockstep_eval(ls, ids, ARRAY_LEN(ids), NULL, NULL, &err);
        lockstep_close(ls);
        _exit(st == LOCKSTEP_BAD_INPUT && strstr(err.text, "is open in the process") ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(lockstep_eval(ls, ids, ARRAY_LEN(ids), NULL, NULL, &err), LOCKSTEP_OK);
    lockstep_close(ls);
}

static void test_ports_that_are_none(void **state) {
    (void)state;
    static const char *const wrong[] = {"127.0.0.1:65536", "127.0.0.1:99999999999999999999",
                                        "127.0.0.1:", "127.0.0.1"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct lockstep_options opt;
        struct lockstep_error err = {.text = ""};
        struct lockstep *ls;
        lockstep_options_init(&opt);
        opt.model_path = SOURCE_DIR "/models/jargon-3m-f16.gguf";
        opt.n_ranks = 2;
        opt.secret = "secret";
        opt.rendezvous = wrong[i];
        assert_int_equal(lockstep_open(&ls, &opt, &err), LOCKSTEP_BAD_INPUT);
        assert_non_null(strstr(err.text, "rendezvous \"127.0.0.1"));
    }
}

/* A program that does not care for its children: they end as ever, and nobody else is taken for
 * them. */
static void test_children_that_nobody_waits_for(void **state) {
    (void)state;
    signal(SIGCHLD, SIG_IGN);
    struct lockstep *ls = open_model(2);
    lockstep_close(ls);
    signal(SIGCHLD, SIG_DFL);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

/* Nor is it said of one that was killed that it ended well. */
static void test_a_lost_child_that_nobody_waits_for(void **state) {
    (void)state;
    static const int32_t ids[] = {280, 104, 250, 60};
    struct lockstep_error err = {.text = ""};
    struct lockstep_rank_info worker;
    signal(SIGCHLD, SIG_IGN);
    struct lockstep *ls = open_model(2);
    assert_int_equal(lockstep_rank_info(ls, 1, &worker, &err), LOCKSTEP_OK);
    assert_int_equal(kill(worker.pid, SIGKILL), 0);
    assert_int_equal(lockstep_eval(ls, ids, ARRAY_LEN(ids), NULL, NULL, &err),
                     LOCKSTEP_PEER_LOST);
    lockstep_close(ls);
    signal(SIGCHLD, SIG_DFL);
    assert_null(strstr(err.text, "exit status"));
    assert_non_null(strstr(err.text, "has ended for an unknown reason"));
}

/* ---- where the worker is ----------------------------------------------------------------- */

/* A folder that has the program's name is not the program, and an empty variable names none. */
static void test_the_worker_is_found_in_path(void **state) {
    (void)state;
    char folder[] = "/tmp/lockstep-path-XXXXXX", command[2 * sizeof program + 256], path[256];
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command,
             "mkdir -p %s/first/lockstep %s/second && ln -s '%s' %s/second/lockstep", folder,
             folder, program, folder);
    assert_int_equal(system(command), 0);
    char *before = strdup(getenv("PATH"));
    snprintf(path, sizeof path, "%s/first:%s/second", folder, folder);
    struct lockstep_options opt;
    struct lockstep_error err = {.text = ""};
    struct lockstep *ls = NULL;
    model_options(&opt, 2);
    opt.worker_path = NULL;
    assert_int_equal(setenv("PATH", path, 1) | setenv("LOCKSTEP_WORKER", "", 1), 0);
    enum lockstep_status st = lockstep_open(&ls, &opt, &err);
    assert_int_equal(setenv("PATH", before, 1) | unsetenv("LOCKSTEP_WORKER"), 0);
    free(before);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    if (st != LOCKSTEP_OK)
        fail_msg("%s", err.text);
    lockstep_close(ls);
}

/* ---- the floating-point environment ------------------------------------------------------ */

struct rows {
    size_t n; /* floats */
    float *list;
};

static bool keep_rows(void *user, size_t first_pos, size_t n, const float *logits) {
    struct rows *r = user;
    (void)first_pos;
    memcpy(r->list + r->n, logits, n * 2048 * sizeof *logits);
    r->n += n * 2048;
    return true;
}

static struct rows eval_on(int n_ranks) {
    static const int32_t ids[] = {280, 104, 250, 60, 279, 67, 48, 188, 170, 12, 270, 50};
    struct lockstep_error err = {.text = ""};
    struct rows r = {.list = calloc(ARRAY_LEN(ids) * 2048, sizeof *r.list)};
    struct lockstep *ls = open_model(n_ranks);
    assert_non_null(r.list);
    assert_int_equal(lockstep_model_info(ls)->n_vocab, 2048);
    assert_int_equal(lockstep_eval(ls, ids, ARRAY_LEN(ids), keep_rows, &r, &err), LOCKSTEP_OK);
    lockstep_close(ls);
    return r;
}

/* A caller whose stack would not hold a product (128 KiB; one takes up to 140) gets the same
 * bits. */
static void *eval_on_small_stack(void *rows) {
    *(struct rows *)rows = eval_on(1);
    return NULL;
}

static void test_a_caller_with_a_small_stack(void **state) {
    (void)state;
    struct rows want = eval_on(1), got = {0};
    pthread_t thread;
    pthread_attr_t small;
    assert_int_equal(pthread_attr_init(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, 128 << 10), 0);
    assert_int_equal(pthread_create(&thread, &small, eval_on_small_stack, &got), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&small);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.list, want.list, want.n * sizeof *want.list);
    free(got.list);
    free(want.list);
}

/* A caller who rounds upwards and flushes subnormals gets the bits of everybody, and keeps his
 * ways. */
static void test_a_caller_who_rounds_otherwise(void **state) {
    (void)state;
    struct rows want = eval_on(1);
    fenv_t before;
    fegetenv(&before);
    for (int n_ranks = 1; n_ranks <= 2; n_ranks++) {
        fesetround(FE_UPWARD);
        flush_subnormals(true);
        struct rows got = eval_on(n_ranks);
        int rounding = fegetround();
        bool flushes = flushes_subnormals();
        fesetenv(&before);
        assert_int_equal(rounding, FE_UPWARD);
        assert_true(flushes);
        assert_int_equal(got.n, want.n);
        assert_memory_equal(got.list, want.list, want.n * sizeof *want.list);
        free(got.list);
    }
    free(want.list);
}

/* ---- the caller's language --------------------------------------------------------------- */

/* A locale with a comma in its numbers, made here where the system has none. False: neither. */
static bool speak_german(const char *folder) {
    char command[512];
    if (setlocale(LC_ALL, "de_DE.UTF-8") != NULL)
        return true;
    snprintf(command, sizeof command,
             "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", folder);
    return system(command) == 0 && setenv("LOCPATH", folder, 1) == 0 &&
           setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
}

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* What the model reads, what is understood of options, and what programs read are the same for
 * everybody, and the caller's locale is his. The template's text is what Jinja makes of it. */
static void in_german(const char *folder) {
    char model[256], template[256], trace[256], command[2048], want[128], got[16];
    struct lockstep_options opt;
    struct lockstep_error err = {.text = ""};
    struct lockstep *ls = NULL;
    const struct lockstep_message message = {"user", "hi"};
    const int32_t ids[] = {5, 6, 7};
    char *text;
    size_t len;
    snprintf(model, sizeof model, "%s/model.gguf", folder);
    snprintf(template, sizeof template, "%s/template", folder);
    snprintf(trace, sizeof trace, "%s/trace.json", folder);
    write_text(template, "{{ 0.5 + 1 }}, {{ '%.1f' | format(2.5) }}, {{ '3.5' | float }}, "
                         "{{ strftime_now('%A') }}, {{ messages[0].content }}");
    model_options(&opt, 2);
    snprintf(command, sizeof command, "python3 %s/tests/support/gguf_with_template.py %s %s %s",
             SOURCE_DIR, opt.model_path, model, template);
    assert_int_equal(system(command), 0);
    opt.model_path = model;
    opt.emulate_link = "latency=0.5us";
    assert_int_equal(lockstep_open(&ls, &opt, &err), LOCKSTEP_OK);
    const char *days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                          "Thursday", "Friday", "Saturday"};
    bool found = false;
    assert_int_equal(lockstep_chat_prompt(ls, &message, 1, &text, &len, &err), LOCKSTEP_OK);
    for (size_t i = 0; i < ARRAY_LEN(days); i++) {
        snprintf(want, sizeof want, "1.5, 2.5, 3.5, %s, hi", days[i]);
        found |= len == strlen(want) && memcmp(text, want, len) == 0;
    }
    assert_true(found);
    lockstep_free(text);
    assert_int_equal(lockstep_trace_begin(ls, &err), LOCKSTEP_OK);
    assert_int_equal(lockstep_eval(ls, ids, ARRAY_LEN(ids), NULL, NULL, &err), LOCKSTEP_OK);
    assert_int_equal(lockstep_trace_end(ls, trace, &err), LOCKSTEP_OK);
    snprintf(command, sizeof command, "python3 -m json.tool %s >/dev/null", trace);
    assert_int_equal(system(command), 0);
    lockstep_close(ls);
    snprintf(got, sizeof got, "%.1f", 0.5);
    assert_string_equal(got, "0,5");
}

static void test_a_caller_who_speaks_german(void **state) {
    (void)state;
    char folder[] = "/tmp/lockstep-german-XXXXXX", command[64];
    assert_non_null(mkdtemp(folder));
    bool can = system("python3 -c ''") == 0 && speak_german(folder);
    if (can)
        in_german(folder);
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    if (!can) {
        printf("skip: no python3, or neither a German locale nor localedef to make one\n");
        skip();
    }
}

/* ---- ranks that do not come back --------------------------------------------------------- */

#define NO_WORKER "TEST_API_NO_WORKER" /* set: workers end at once */
#define LOST_AT 5

struct loss {
    struct lockstep *ls;
    size_t n_tokens;
    bool lose; /* rank 1, after LOST_AT tokens */
    pthread_t canceller;
    int32_t ids[20];
};

static void *cancel_soon(void *ls) {
    usleep(500000);
    lockstep_cancel(ls);
    return NULL;
}

static bool lose_rank(void *user, int32_t id, const char *text, size_t len) {
    (void)text;
    (void)len;
    struct loss *l = user;
    l->ids[l->n_tokens++] = id;
    if (!l->lose || l->n_tokens != LOST_AT)
        return true;
    struct lockstep_rank_info rank;
    assert_int_equal(lockstep_rank_info(l->ls, 1, &rank, NULL), LOCKSTEP_OK);
    assert_int_equal(setenv(NO_WORKER, "1", 1), 0);
    assert_int_equal(kill(rank.pid, SIGKILL), 0);
    assert_int_equal(pthread_create(&l->canceller, NULL, cancel_soon, l->ls), 0);
    return true;
}

static void answer(struct loss *l, struct lockstep_result *result) {
    struct lockstep_error err = {.text = ""};
    struct lockstep_request req;
    const int32_t prompt[] = {65, 66, 67, 68, 69, 70};
    lockstep_request_init(&req);
    req.ids = prompt;
    req.n_ids = ARRAY_LEN(prompt);
    req.n_predict = (int)ARRAY_LEN(l->ids);
    req.ignore_end = true;
    req.on_token = lose_rank;
    req.user = l;
    assert_int_equal(lockstep_generate(l->ls, &req, result, &err), LOCKSTEP_OK);
}

/* Cancelled while it tries to open the model again, generate ends as it does at any time. The
 * model is not open then, which who asks for figures survives; and the next call tries again. */
static void test_cancelled_while_ranks_do_not_come_back(void **state) {
    (void)state;
    struct lockstep_options opt;
    struct lockstep_error err = {.text = ""};
    struct lockstep_result result;
    struct lockstep_rank_info rank;
    struct lockstep_times times;
    struct loss whole = {.n_tokens = 0}, cut = {.lose = true}, again = {.n_tokens = 0};
    model_options(&opt, 2);
    opt.failover = true;
    assert_int_equal(lockstep_open(&whole.ls, &opt, &err), LOCKSTEP_OK);
    again.ls = cut.ls = whole.ls;
    answer(&whole, &result);
    answer(&cut, &result);
    pthread_join(cut.canceller, NULL);
    assert_string_equal(result.stop, "cancelled");
    assert_int_equal(result.n_generated, LOST_AT);
    assert_int_equal(lockstep_rank_info(cut.ls, 0, &rank, &err), LOCKSTEP_PEER_LOST);
    lockstep_times(cut.ls, &times, true);
    assert_int_equal(times.steps, 0);
    assert_int_equal(unsetenv(NO_WORKER), 0);
    answer(&again, &result);
    assert_string_equal(result.stop, "length");
    assert_memory_equal(again.ids, whole.ids, sizeof whole.ids);
    lockstep_close(again.ls);
}

struct last_row {
    size_t pos, n_vocab;
    float logits[4096];
};

static bool keep_last(void *user, size_t first_pos, size_t n, const float *logits) {
    struct last_row *last = user;
    last->pos = first_pos + n - 1;
    memcpy(last->logits, logits + (n - 1) * last->n_vocab, last->n_vocab * sizeof *logits);
    return true;
}

/* A recovery fails, since the model's file is away. When it is there again the next call goes
 * on after all that was fed. */
static void test_a_sequence_outlives_a_recovery_that_fails(void **state) {
    (void)state;
    const int32_t first[] = {65, 66, 67, 68, 69}, second[] = {70, 71};
    char path[] = "/tmp/lockstep-model-XXXXXX";
    struct lockstep_options opt;
    struct lockstep_error err = {.text = ""};
    struct lockstep_rank_info rank;
    struct lockstep *ls = NULL;
    assert_non_null(mkdtemp(path));
    char file[sizeof path + 16];
    snprintf(file, sizeof file, "%s/model.gguf", path);
    model_options(&opt, 2);
    assert_int_equal(symlink(opt.model_path, file), 0);
    const char *target = opt.model_path;
    opt.model_path = file;
    opt.failover = true;
    assert_int_equal(lockstep_open(&ls, &opt, &err), LOCKSTEP_OK);
    static struct last_row want, got;
    want.n_vocab = got.n_vocab = (size_t)lockstep_model_info(ls)->n_vocab;
    assert_true(want.n_vocab <= ARRAY_LEN(want.logits));
    assert_int_equal(lockstep_eval(ls, first, 5, NULL, NULL, &err), LOCKSTEP_OK);
    assert_int_equal(lockstep_eval(ls, second, 2, keep_last, &want, &err), LOCKSTEP_OK);
    lockstep_reset(ls);
    assert_int_equal(lockstep_eval(ls, first, 5, NULL, NULL, &err), LOCKSTEP_OK);
    assert_int_equal(lockstep_rank_info(ls, 1, &rank, &err), LOCKSTEP_OK);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(kill(rank.pid, SIGKILL), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_not_equal(lockstep_eval(ls, second, 2, keep_last, &got, &err), LOCKSTEP_OK);
        assert_non_null(strstr(err.text, file));
    }
    assert_int_equal(symlink(target, file), 0);
    assert_int_equal(lockstep_eval(ls, second, 2, keep_last, &got, &err), LOCKSTEP_OK);
    assert_int_equal(got.pos, 6);
    assert_memory_equal(got.logits, want.logits, want.n_vocab * sizeof *want.logits);
    lockstep_close(ls);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(path), 0);
}

static bool keep_last_and_stop(void *user, size_t first_pos, size_t n, const float *logits) {
    keep_last(user, first_pos, n, logits);
    return false;
}

/* Who stops at a row goes on after it, however far the chunk went that it came from. */
static void test_a_stopped_sequence_ends_with_its_rows(void **state) {
    (void)state;
    struct lockstep_error err = {.text = ""};
    struct lockstep *ls = open_model(2);
    static struct last_row want, got;
    int32_t ids[100];
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        ids[i] = (int32_t)(i * 7 % 280);
    want.n_vocab = got.n_vocab = (size_t)lockstep_model_info(ls)->n_vocab;
    assert_int_equal(lockstep_eval(ls, ids, ARRAY_LEN(ids), keep_last_and_stop, &got, &err),
                     LOCKSTEP_CANCELLED);
    size_t n = got.pos + 1;
    assert_true(n < ARRAY_LEN(ids)); /* or nothing is behind the rows */
    assert_int_equal(lockstep_eval(ls, ids, 1, keep_last, &got, &err), LOCKSTEP_OK);
    assert_int_equal(got.pos, n);
    lockstep_reset(ls);
    assert_int_equal(lockstep_eval(ls, ids, n, NULL, NULL, &err), LOCKSTEP_OK);
    assert_int_equal(lockstep_eval(ls, ids, 1, keep_last, &want, &err), LOCKSTEP_OK);
    assert_memory_equal(got.logits, want.logits, want.n_vocab * sizeof *want.logits);
    lockstep_close(ls);
}

struct stopper {
    int pid, n_calls; /* pid: 0 when it was killed */
};

static bool kill_and_stop(void *user, size_t first_pos, size_t n, const float *logits) {
    struct stopper *s = user;
    (void)first_pos;
    (void)n;
    (void)logits;
    if (s->pid != 0)
        kill(s->pid, SIGKILL);
    s->pid = 0;
    return ++s->n_calls > 1; /* who is called again after all takes anything */
}

/* A rank is lost after the caller has stopped, in the same step, which is made again: without
 * him. */
static void test_who_has_stopped_is_not_called_again(void **state) {
    (void)state;
    static const int32_t ids[100];
    struct lockstep_options opt;
    struct lockstep_error err = {.text = ""};
    struct lockstep_rank_info rank;
    struct lockstep *ls = NULL;
    model_options(&opt, 2);
    opt.failover = true;
    assert_int_equal(lockstep_open(&ls, &opt, &err), LOCKSTEP_OK);
    assert_int_equal(lockstep_rank_info(ls, 1, &rank, &err), LOCKSTEP_OK);
    struct stopper s = {.pid = rank.pid};
    assert_int_equal(lockstep_eval(ls, ids, ARRAY_LEN(ids), kill_and_stop, &s, &err),
                     LOCKSTEP_CANCELLED);
    assert_int_equal(s.n_calls, 1);
    lockstep_close(ls);
}

/* ---- structs of other versions ----------------------------------------------------------- */

/* A caller of a later version: two fields more than this library knows. */
struct later_options {
    struct lockstep_options known;
    int more, most;
};

static void test_a_caller_of_another_version(void **state) {
    (void)state;
    struct lockstep *ls = NULL;
    struct lockstep_error err = {.text = ""};
    struct later_options later;
    memset(&later, 0xaa, sizeof later);
    lockstep_options_defaults(&later.known, sizeof later);
    assert_int_equal(later.known.size, sizeof later);
    assert_int_equal(later.known.n_ranks, 1);
    assert_int_equal(later.more + later.most, 0);
    later.known.model_path = SOURCE_DIR "/models/jargon-3m-f16.gguf";
    assert_int_equal(lockstep_open(&ls, &later.known, &err), LOCKSTEP_OK);
    lockstep_close(ls);
    later.most = 1;
    assert_int_equal(lockstep_open(&ls, &later.known, &err), LOCKSTEP_BAD_INPUT);
    assert_non_null(strstr(err.text, "has a field that this library"));

    /* An earlier one ends before what the callbacks' fields hold, which is not looked at. */
    struct lockstep_options earlier;
    size_t size = offsetof(struct lockstep_options, placed);
    memset(&earlier, 0xaa, sizeof earlier);
    lockstep_options_defaults(&earlier, size);
    assert_int_equal(*((unsigned char *)&earlier + size), 0xaa);
    earlier.model_path = later.known.model_path;
    assert_int_equal(lockstep_open(&ls, &earlier, &err), LOCKSTEP_OK);
    lockstep_close(ls);
}

static void test_a_struct_that_nobody_initialised(void **state) {
    (void)state;
    struct lockstep *ls = NULL;
    struct lockstep_error err = {.text = ""};
    const size_t wrong[] = {0, sizeof(size_t), 65537, SIZE_MAX};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct lockstep_options opt = {.size = wrong[i], .model_path = "/nowhere"};
        assert_int_equal(lockstep_open(&ls, &opt, &err), LOCKSTEP_BAD_INPUT);
        assert_string_equal(err.text,
                            "struct lockstep_options: call lockstep_options_init() first");
        assert_int_equal(lockstep_follow(&opt, &err), LOCKSTEP_BAD_INPUT);
    }
    ls = open_model(1);
    const struct lockstep_request none = {.n_ids = 1};
    assert_int_equal(lockstep_generate(ls, &none, NULL, &err), LOCKSTEP_BAD_INPUT);
    assert_non_null(strstr(err.text, "lockstep_request_init()"));
    const struct lockstep_sampling no_size = {.temperature = 0};
    struct lockstep_request req;
    lockstep_request_init(&req);
    req.sampling = &no_size;
    assert_int_equal(lockstep_generate(ls, &req, NULL, &err), LOCKSTEP_BAD_INPUT);
    assert_non_null(strstr(err.text, "lockstep_sampling_init()"));
    lockstep_close(ls);
}

/* ---- answers of a form ------------------------------------------------------------------- */

struct text {
    char s[512];
    size_t n;
};

static bool collect(void *user, int32_t id, const char *text, size_t len) {
    struct text *t = user;
    (void)id;
    assert_true(t->n + len < sizeof t->s);
    memcpy(t->s + t->n, text, len);
    t->n += len;
    t->s[t->n] = '\0';
    return true;
}

/* What the model says of the form after "What is a bit bucket?". */
static enum lockstep_status say(struct lockstep *ls, struct lockstep_request *req,
                                struct text *t, struct lockstep_result *result,
                                struct lockstep_error *err) {
    static const char question[] = "What is a bit bucket?";
    int32_t *ids;
    size_t n;
    assert_int_equal(
        lockstep_tokenize(ls, question, sizeof question - 1, true, false, &ids, &n, NULL),
        LOCKSTEP_OK);
    req->ids = ids;
    req->n_ids = n;
    req->on_token = collect;
    req->user = t;
    t->n = 0;
    t->s[0] = '\0';
    enum lockstep_status st = lockstep_generate(ls, req, result, err);
    lockstep_free(ids);
    return st;
}

static void test_an_answer_has_the_form_of_a_grammar(void **state) {
    (void)state;
    struct text first = {.n = 0};
    for (int n_ranks = 1; n_ranks <= 2; n_ranks++) {
        struct lockstep *ls = open_model(n_ranks);
        struct lockstep_error err = {.text = ""};
        struct lockstep_result result;
        struct lockstep_request req;
        struct text t;
        lockstep_request_init(&req);
        req.grammar = "root ::= (\"yes\" | \"no\") \", \" [0-9]{4} \"!\"";
        assert_int_equal(say(ls, &req, &t, &result, &err), LOCKSTEP_OK);
        assert_string_equal(result.stop, "end");
        const char *rest = strstr(t.s, ", ");
        assert_non_null(rest);
        assert_true(memcmp(t.s, "yes", 3) == 0 || memcmp(t.s, "no", 2) == 0);
        assert_int_equal(strspn(rest + 2, "0123456789"), 4);
        assert_string_equal(rest + 6, "!");
        /* The same on any number of ranks. */
        if (n_ranks == 1)
            first = t;
        assert_string_equal(t.s, first.s);
        /* Complete is complete, also where ends are to be ignored. */
        req.ignore_end = true;
        assert_int_equal(say(ls, &req, &t, &result, &err), LOCKSTEP_OK);
        assert_string_equal(t.s, first.s);
        assert_string_equal(result.stop, "end");
        lockstep_close(ls);
    }
}

static void test_an_answer_has_the_form_of_a_schema(void **state) {
    (void)state;
    struct lockstep *ls = open_model(1);
    struct lockstep_error err = {.text = ""};
    struct lockstep_result result;
    struct lockstep_request req;
    struct text t;
    lockstep_request_init(&req);
    req.json_schema = "{\"type\": \"object\", \"properties\": {\"sure\": {\"const\": true}}, "
                      "\"required\": [\"sure\"]}";
    assert_int_equal(say(ls, &req, &t, &result, &err), LOCKSTEP_OK);
    assert_int_equal(t.s[0], '{');
    assert_non_null(strstr(t.s, "\"sure\""));
    assert_non_null(strstr(t.s, "true"));
    assert_int_equal(t.s[t.n - 1], '}');
    req.grammar = "root ::= \"yes\"";
    assert_int_equal(say(ls, &req, &t, &result, &err), LOCKSTEP_BAD_INPUT);
    assert_string_equal(err.text, "a request has a grammar or a JSON schema, not both of them");
    req.grammar = NULL;
    req.json_schema = "{\"type\":";
    assert_int_equal(say(ls, &req, &t, &result, &err), LOCKSTEP_BAD_INPUT);
    assert_non_null(strstr(err.text, "the schema is not valid JSON"));
    req.json_schema = NULL;
    req.grammar = "root ::= other";
    assert_int_equal(say(ls, &req, &t, &result, &err), LOCKSTEP_BAD_INPUT);
    /* A refused one leaves the model as it was. */
    req.grammar = NULL;
    req.n_predict = 2;
    assert_int_equal(say(ls, &req, &t, &result, &err), LOCKSTEP_OK);
    lockstep_close(ls);
}

int main(int argc, char **argv) {
    if (argc > 1 && str_eq(argv[1], "worker"))
        return getenv(NO_WORKER) != NULL ? 1 : lockstep_worker_main(argc - 1, argv + 1);
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[MAX(n, (ssize_t)0)] = '\0';
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_that_are_none),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_conversations_that_are_none),
        cmocka_unit_test(test_a_callback_that_calls),
        cmocka_unit_test(test_a_child_with_its_parents_model),
        cmocka_unit_test(test_ports_that_are_none),
        cmocka_unit_test(test_children_that_nobody_waits_for),
        cmocka_unit_test(test_a_lost_child_that_nobody_waits_for),
        cmocka_unit_test(test_the_worker_is_found_in_path),
        cmocka_unit_test(test_a_caller_with_a_small_stack),
        cmocka_unit_test(test_a_caller_who_rounds_otherwise),
        cmocka_unit_test(test_a_caller_who_speaks_german),
        cmocka_unit_test(test_cancelled_while_ranks_do_not_come_back),
        cmocka_unit_test(test_a_sequence_outlives_a_recovery_that_fails),
        cmocka_unit_test(test_a_stopped_sequence_ends_with_its_rows),
        cmocka_unit_test(test_who_has_stopped_is_not_called_again),
        cmocka_unit_test(test_a_caller_of_another_version),
        cmocka_unit_test(test_a_struct_that_nobody_initialised),
        cmocka_unit_test(test_an_answer_has_the_form_of_a_grammar),
        cmocka_unit_test(test_an_answer_has_the_form_of_a_schema),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
