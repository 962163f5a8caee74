/* The end of a group, when two threads find a reason at once. */
#include "fabric/group.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void *finish(void *f_) {
    struct fabric *f = f_;
    usleep(20000);
    strcpy(f->lost_text, "the first reason");
    atomic_store_explicit(&f->failure, GROUP_FAILED, memory_order_release);
    return NULL;
}

/* A thread that finds a message damaged while another one is writing why the group ends must
 * not see the group whole after it: it would take the message. */
static void the_second_reason_waits_for_the_first(void **state) {
    (void)state;
    static struct fabric f;
    struct err err = {0};
    pthread_t first;
    atomic_store(&f.failure, GROUP_FAILING); /* it has begun to write */
    assert_int_equal(pthread_create(&first, NULL, finish, &f), 0);
    group_failure_set(&f, 1, "the second reason");
    assert_int_equal(group_failure_check(&f, &err), ST_PEER_LOST);
    assert_string_equal(err.text, "the first reason");
    pthread_join(first, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_second_reason_waits_for_the_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
