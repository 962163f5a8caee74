/* The threads that make masks (engine/masks.h): every job is answered once, with what its own
 * state says; the jobs of one request never overlap; what is dropped is not begun any more. Runs
 * under TSan as well. */
#include "base/util.h"
#include "engine/masks.h"
#include "tokenizer/tokenizer.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define N_LINES 4
#define N_JOBS 6 /* of a line */
#define N_ROUNDS 200

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t made = PTHREAD_COND_INITIALIZER;
static unsigned n_made;

static void on_made(void *user) {
    (void)user;
    pthread_mutex_lock(&lock);
    n_made++;
    pthread_cond_signal(&made);
    pthread_mutex_unlock(&lock);
}

/* A state counts what it has accepted; the states of a request share a count, without a lock. */
struct shared {
    int n_calls;
};

struct counting {
    struct shared *shared;
    int n;
    bool knows;
};

static void count_accept(void *state, int32_t id) {
    struct counting *c = state;
    c->shared->n_calls++;
    c->n += id;
}

static enum engine_allows count_mask(void *state, uint64_t *mask, struct err *err) {
    struct counting *c = state;
    (void)err;
    c->shared->n_calls++;
    mask[0] = (uint64_t)c->n;
    return ENGINE_ALLOWS_SOME;
}

static enum engine_allows count_known(void *state, int32_t id, uint64_t *mask) {
    struct counting *c = state;
    c->shared->n_calls++;
    if (!c->knows)
        return ENGINE_ALLOWS_UNKNOWN;
    c->n += id != TOKEN_NONE ? id : 0;
    mask[0] = (uint64_t)c->n;
    return ENGINE_ALLOWS_SOME;
}

static const struct engine_constraint counting = {
    .mask = count_mask, .accept = count_accept, .known = count_known};

struct all {
    struct mask_line lines[N_LINES];
    struct shared shared[N_LINES];
    struct counting states[N_LINES][N_JOBS];
    struct mask_job jobs[N_LINES][N_JOBS];
    uint64_t masks[N_LINES][N_JOBS];
};

static void set_up(struct all *a) {
    *a = (struct all){0};
    for (int i = 0; i < N_LINES; i++)
        for (int k = 0; k < N_JOBS; k++) {
            a->states[i][k] = (struct counting){.shared = &a->shared[i], .knows = k == 0};
            a->jobs[i][k] = (struct mask_job){.constraint = &counting,
                                              .state = &a->states[i][k],
                                              .line = &a->lines[i],
                                              .mask = &a->masks[i][k]};
        }
}

/* As the engine's thread waits: nothing that is made meanwhile is missed. */
static void wait_for(struct mask_job *job) {
    for (;;) {
        pthread_mutex_lock(&lock);
        unsigned before = n_made;
        pthread_mutex_unlock(&lock);
        if (masks_are_made(job))
            return;
        pthread_mutex_lock(&lock);
        while (n_made == before)
            pthread_cond_wait(&made, &lock);
        pthread_mutex_unlock(&lock);
    }
}

static void every_job_is_answered(void **state) {
    (void)state;
    static struct all a;
    struct masks *m;
    set_up(&a);
    assert_int_equal(masks_open(&m, 2, 1, on_made, NULL, NULL), ST_OK);
    for (int round = 0; round < N_ROUNDS; round++) {
        for (int i = 0; i < N_LINES; i++)
            for (int k = 0; k < N_JOBS; k++)
                masks_begin(m, &a.jobs[i][k], round == 0 ? TOKEN_NONE : i + k);
        for (int i = 0; i < N_LINES; i++)
            for (int k = 0; k < N_JOBS; k++) {
                wait_for(&a.jobs[i][k]);
                assert_int_equal(a.jobs[i][k].allows, ENGINE_ALLOWS_SOME);
                assert_int_equal(a.masks[i][k], round * (i + k));
            }
    }
    masks_close(m);
}

/* Dropped at any time: waiting, running or made. Each state has accepted what was begun at most. */
static void jobs_are_dropped(void **state) {
    (void)state;
    static struct all a;
    struct masks *m;
    set_up(&a);
    assert_int_equal(masks_open(&m, 2, 1, on_made, NULL, NULL), ST_OK);
    for (int round = 0; round < N_ROUNDS; round++) {
        for (int i = 0; i < N_LINES; i++)
            for (int k = 0; k < N_JOBS; k++)
                masks_begin(m, &a.jobs[i][k], 1);
        for (int i = 0; i < N_LINES; i++)
            for (int k = N_JOBS - 1; k >= 0; k--)
                if (!masks_drop(m, &a.jobs[i][k]))
                    wait_for(&a.jobs[i][k]);
    }
    for (int i = 0; i < N_LINES; i++)
        for (int k = 0; k < N_JOBS; k++)
            assert_in_range(a.states[i][k].n, 0, N_ROUNDS);
    masks_close(m);
}

/* What still waits when it is closed is not begun. */
static void closed_with_jobs(void **state) {
    (void)state;
    static struct all a;
    struct masks *m;
    for (int round = 0; round < 50; round++) {
        set_up(&a);
        assert_int_equal(masks_open(&m, 2, 1, on_made, NULL, NULL), ST_OK);
        for (int i = 0; i < N_LINES; i++)
            for (int k = 0; k < N_JOBS; k++)
                masks_begin(m, &a.jobs[i][k], 1);
        masks_close(m);
        for (int i = 0; i < N_LINES; i++)
            assert_int_equal(a.states[i][0].n, 1); /* known: it was the line's first job */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_job_is_answered),
        cmocka_unit_test(jobs_are_dropped),
        cmocka_unit_test(closed_with_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
