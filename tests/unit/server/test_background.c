/* Answers that go on without a client: whose they are, how many there may be, and what is dropped
 * for whom. Streams and cancelling by requests are in tests/e2e/test_serve_background.sh. */
#include "base/mem.h"
#include "base/util.h"
#include "server/background.h"
#include "server/memo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static int n_cancelled;

static void cancel(void *user) {
    assert_ptr_equal(user, &n_cancelled);
    n_cancelled++;
}

static struct background *open_jobs(size_t n_max, size_t max_bytes) {
    struct background *b;
    struct err err;
    assert_int_equal(background_open(&b, n_max, max_bytes, &err), ST_OK);
    return b;
}

static enum status begin_as(struct background *b, const char *id, int owner, bool events,
                            struct background_job **job, struct err *err) {
    const struct background_start start = {.id = id,
                                           .owner = owner,
                                           .text = mem_strdup("queued"),
                                           .conversation = mem_strdup("[1]"),
                                           .events = events,
                                           .cancel = cancel,
                                           .user = &n_cancelled};
    return background_begin(b, &start, job, err);
}

static struct background_job *begin(struct background *b, const char *id, bool events) {
    struct background_job *job;
    struct err err;
    assert_int_equal(begin_as(b, id, 1, events, &job, &err), ST_OK);
    assert_non_null(job);
    return job;
}

/* NULL: there is none. */
static void expect_text(struct background *b, const char *id, int owner, const char *want) {
    char *text, *conversation;
    assert_int_equal(background_get(b, id, owner, &text, &conversation), want != NULL);
    if (want != NULL) {
        assert_string_equal(text, want);
        assert_string_equal(conversation, "[1]");
    }
    mem_free(text);
    mem_free(conversation);
}

static void test_from_begin_to_end(void **state) {
    (void)state;
    struct background *b = open_jobs(4, 4096);
    struct background_job *job = begin(b, "a", false), *same;
    struct err err;
    expect_text(b, "a", 1, "queued");
    expect_text(b, "a", 2, NULL);
    expect_text(b, "b", 1, NULL);
    background_show(job, mem_strdup("in_progress"));
    background_show(job, NULL); /* no memory: the old one stays */
    expect_text(b, "a", 1, "in_progress");
    assert_int_equal(begin_as(b, "a", 1, false, &same, &err), ST_OK);
    assert_null(same); /* it is the one that there is */
    assert_int_equal(begin_as(b, "a", 2, false, &same, &err), ST_OK);
    assert_non_null(same); /* another owner's is another one */
    assert_true(background_end(same, mem_strdup("x")));
    assert_true(background_end(job, mem_strdup("done")));
    expect_text(b, "a", 1, NULL);
    background_close(b);
}

static void test_forgotten(void **state) {
    (void)state;
    struct background *b = open_jobs(4, 4096);
    struct background_job *job = begin(b, "a", true);
    struct err err;
    n_cancelled = 0;
    assert_false(background_forget(b, "a", 2));
    assert_int_equal(n_cancelled, 0);
    assert_true(background_forget(b, "a", 1));
    assert_int_equal(n_cancelled, 1);
    assert_true(background_is_cancelled(job));
    assert_false(background_forget(b, "a", 1));
    expect_text(b, "a", 1, NULL);
    assert_int_equal(background_follow(b, "a", 1, -1, NULL, &err), ST_NOT_FOUND);
    assert_false(background_cancel(b, "a", 1, NULL));
    background_tell(job, "event", 5); /* to nobody */
    assert_false(background_end(job, mem_strdup("done")));
    background_close(b);
}

static void test_as_many_as_may_be(void **state) {
    (void)state;
    struct background *b = open_jobs(2, 4096);
    struct background_job *first = begin(b, "a", true), *second = begin(b, "b", false), *job;
    struct err err;
    assert_int_equal(begin_as(b, "c", 1, false, &job, &err), ST_AGAIN);
    assert_non_null(strstr(err.text, "2 of 2"));
    /* One that has ended, and whose events are kept, makes room. */
    background_tell(first, "event", 5);
    assert_true(background_end(first, NULL));
    job = begin(b, "c", false);
    assert_int_equal(background_follow(b, "a", 1, -1, NULL, &err), ST_NOT_FOUND);
    assert_true(background_end(second, NULL));
    assert_true(background_end(job, NULL));
    background_close(b);
}

/* Events that find no room cost their job all of them, and no other that is under way any. */
static void test_events_beyond_the_bound(void **state) {
    (void)state;
    enum { ROOM = 8192 };
    char event[1000];
    struct background *b = open_jobs(8, ROOM);
    struct background_job *ended = begin(b, "ended", true), *few = begin(b, "few", true),
                          *many = begin(b, "many", true);
    struct err err;
    memset(event, 'e', sizeof event);
    background_tell(ended, event, sizeof event);
    assert_true(background_end(ended, NULL));
    background_tell(few, event, sizeof event);
    for (int i = 0; i < ROOM / (int)sizeof event; i++)
        background_tell(many, event, sizeof event);
    assert_int_equal(background_follow(b, "ended", 1, -1, NULL, &err), ST_NOT_FOUND);
    assert_int_equal(background_follow(b, "many", 1, -1, NULL, &err), ST_UNSUPPORTED);
    /* What they took is free again. */
    for (int i = 0; i < 4; i++)
        background_tell(few, event, sizeof event);
    struct background_job *late = begin(b, "late", true);
    for (int i = 0; i < 4; i++)
        background_tell(late, event, sizeof event);
    assert_int_equal(background_follow(b, "late", 1, -1, NULL, &err), ST_UNSUPPORTED);
    assert_true(background_end(few, NULL));
    assert_true(background_end(many, NULL));
    assert_true(background_end(late, NULL));
    background_close(b);
}

/* What is remembered has owners, too. */
static void test_memo_owners(void **state) {
    (void)state;
    struct memo *m;
    struct err err;
    assert_int_equal(memo_open(&m, 4, 4096, &err), ST_OK);
    memo_put(m, "a", 1, mem_strdup("one"));
    memo_put(m, "a", 2, mem_strdup("two"));
    assert_null(memo_get(m, "a", 2));
    assert_false(memo_forget(m, "a", 2));
    char *text = memo_get(m, "a", 1);
    assert_string_equal(text, "one");
    mem_free(text);
    assert_true(memo_forget(m, "a", 1));
    assert_null(memo_get(m, "a", 1));
    memo_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_from_begin_to_end), cmocka_unit_test(test_forgotten),
        cmocka_unit_test(test_as_many_as_may_be),
        cmocka_unit_test(test_events_beyond_the_bound), cmocka_unit_test(test_memo_owners)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
