/* Pages: every page is in exactly one state; equal beginnings share pages and different ones never
 * do, though their hashes or their later tokens agree; least recently used go first. A model in
 * plain arrays (each sequence's tokens) says what must be found. */
#include "base/rng.h"
#include "base/util.h"
#include "engine/pages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct pages *open_pages(uint32_t n, bool find) {
    struct pages *p = NULL;
    struct err err;
    assert_int_equal(pages_open(&p, n, find, &err), ST_OK);
    return p;
}

static void fill(int32_t *ids, int32_t v) {
    for (int i = 0; i < KV_PAGE; i++)
        ids[i] = v;
}

static void taken_once_each_and_then_no_more(void **state) {
    (void)state;
    struct pages *p = open_pages(5, true);
    bool seen[5] = {false};
    uint32_t list[5];
    for (int i = 0; i < 5; i++) {
        list[i] = pages_take(p);
        assert_true(list[i] < 5 && !seen[list[i]]);
        seen[list[i]] = true;
    }
    assert_int_equal(pages_take(p), PAGE_NONE);
    assert_int_equal(pages_count(p).held, 5);
    pages_release(p, list + 2, 2);
    assert_int_equal(pages_available(p), 2);
    assert_int_equal(pages_count(p).cached, 0);
    pages_take(p);
    pages_take(p);
    assert_int_equal(pages_take(p), PAGE_NONE);
    pages_close(p);
}

static void a_page_is_found_after_the_same_beginning_only(void **state) {
    (void)state;
    struct pages *p = open_pages(8, true);
    int32_t a[KV_PAGE], b[KV_PAGE], c[KV_PAGE];
    fill(a, 1), fill(b, 2), fill(c, 3);
    uint32_t first[2] = {pages_take(p), pages_take(p)};
    assert_int_equal(pages_find(p, PAGE_NONE, a), PAGE_NONE);
    assert_int_equal(pages_publish(p, first[0], PAGE_NONE, a), first[0]);
    assert_int_equal(pages_publish(p, first[1], first[0], b), first[1]);
    /* b follows a, not the start, and not c. */
    assert_int_equal(pages_find(p, PAGE_NONE, b), PAGE_NONE);
    uint32_t other = pages_take(p);
    assert_int_equal(pages_publish(p, other, PAGE_NONE, c), other);
    assert_int_equal(pages_find(p, other, b), PAGE_NONE);
    /* One token differs. */
    b[KV_PAGE - 1] = 9;
    assert_int_equal(pages_find(p, first[0], b), PAGE_NONE);
    b[KV_PAGE - 1] = 2;
    /* Another holder, while the first holds it and after. */
    uint32_t second[2] = {pages_find(p, PAGE_NONE, a), 0};
    second[1] = pages_find(p, second[0], b);
    assert_int_equal(second[0], first[0]);
    assert_int_equal(second[1], first[1]);
    pages_release(p, first, 2);
    assert_int_equal(pages_count(p).cached, 0);
    pages_release(p, second, 2);
    assert_int_equal(pages_count(p).cached, 2);
    assert_int_equal(pages_find(p, PAGE_NONE, a), first[0]);
    assert_int_equal(pages_count(p).cached, 1);
    pages_close(p);
}

/* Two requests with one prompt computed it side by side. */
static void equal_pages_become_one(void **state) {
    (void)state;
    struct pages *p = open_pages(4, true);
    int32_t a[KV_PAGE], b[KV_PAGE];
    fill(a, 1), fill(b, 2);
    uint32_t x[2] = {pages_take(p), pages_take(p)}, y[2] = {pages_take(p), pages_take(p)};
    x[0] = pages_publish(p, x[0], PAGE_NONE, a);
    x[1] = pages_publish(p, x[1], x[0], b);
    y[0] = pages_publish(p, y[0], PAGE_NONE, a);
    y[1] = pages_publish(p, y[1], y[0], b);
    assert_int_equal(y[0], x[0]);
    assert_int_equal(y[1], x[1]);
    assert_int_equal(pages_count(p).held, 2);
    pages_release(p, x, 2);
    assert_int_equal(pages_count(p).held, 2);
    pages_release(p, y, 2);
    assert_int_equal(pages_count(p).cached, 2);
    assert_int_equal(pages_available(p), 4);
    pages_close(p);
}

static void the_least_recently_used_go_first(void **state) {
    (void)state;
    struct pages *p = open_pages(4, true);
    int32_t ids[4][KV_PAGE];
    uint32_t pg[4];
    for (int i = 0; i < 4; i++) {
        fill(ids[i], i);
        pg[i] = pages_publish(p, pages_take(p), PAGE_NONE, ids[i]);
    }
    for (int i = 0; i < 4; i++)
        pages_release(p, &pg[i], 1);
    uint32_t again = pages_find(p, PAGE_NONE, ids[0]); /* used: now the newest */
    pages_release(p, &again, 1);
    assert_int_equal(pages_take(p), pg[1]);
    assert_int_equal(pages_find(p, PAGE_NONE, ids[1]), PAGE_NONE);
    assert_int_equal(pages_take(p), pg[2]);
    assert_int_equal(pages_find(p, PAGE_NONE, ids[0]), pg[0]);
    assert_int_equal(pages_take(p), pg[3]);
    assert_int_equal(pages_take(p), PAGE_NONE);
    pages_close(p);
}

static void nothing_is_found_when_it_is_off(void **state) {
    (void)state;
    struct pages *p = open_pages(2, false);
    int32_t a[KV_PAGE];
    fill(a, 1);
    uint32_t x = pages_publish(p, pages_take(p), PAGE_NONE, a);
    assert_int_equal(pages_find(p, PAGE_NONE, a), PAGE_NONE);
    pages_release(p, &x, 1);
    assert_int_equal(pages_count(p).cached, 0);
    pages_close(p);
}

/* Random sequences of random lengths over two kinds of page, so that beginnings are often shared.
 * `held[page]` is what must be true of a page: the tokens of its sequence up to its end. */
#define N_SEQS 6
#define N_PAGES 24
#define SEQ_PAGES 5

struct seq {
    uint32_t pages[SEQ_PAGES];
    int kinds[SEQ_PAGES];
    size_t n;
};

static uint32_t any(uint32_t below) {
    static uint64_t counter;
    return (uint32_t)(rng_u64(7, counter++) % below);
}

static void check_states(const struct pages *p, const struct seq *seqs) {
    bool held[N_PAGES] = {false};
    size_t n = 0;
    for (int s = 0; s < N_SEQS; s++)
        for (size_t i = 0; i < seqs[s].n; i++) {
            if (!held[seqs[s].pages[i]])
                n++;
            held[seqs[s].pages[i]] = true;
        }
    assert_int_equal(pages_count(p).held, n);
    /* One page, one beginning. */
    for (int s = 0; s < N_SEQS; s++)
        for (int t = 0; t < N_SEQS; t++)
            for (size_t i = 0; i < MIN(seqs[s].n, seqs[t].n); i++)
                if (seqs[s].pages[i] == seqs[t].pages[i])
                    assert_memory_equal(seqs[s].kinds, seqs[t].kinds, (i + 1) * sizeof(int));
}

static void grow(struct pages *p, struct seq *s, size_t *n_found) {
    int32_t ids[KV_PAGE];
    s->kinds[s->n] = (int)any(2);
    fill(ids, s->kinds[s->n]);
    uint32_t before = s->n > 0 ? s->pages[s->n - 1] : PAGE_NONE;
    uint32_t page = any(2) == 0 ? pages_find(p, before, ids) : PAGE_NONE;
    if (page != PAGE_NONE) {
        ++*n_found;
    } else {
        page = pages_take(p);
        if (page == PAGE_NONE)
            return;
        page = pages_publish(p, page, before, ids);
    }
    s->pages[s->n++] = page;
}

static void random_sequences_never_mix(void **state) {
    (void)state;
    struct pages *p = open_pages(N_PAGES, true);
    struct seq seqs[N_SEQS] = {0};
    size_t n_found = 0;
    for (int round = 0; round < 20000; round++) {
        struct seq *s = &seqs[any(N_SEQS)];
        if (s->n == SEQ_PAGES || any(6) == 0) {
            pages_release(p, s->pages, s->n);
            s->n = 0;
        } else {
            grow(p, s, &n_found);
        }
        check_states(p, seqs);
    }
    assert_true(n_found > 1000);
    for (int s = 0; s < N_SEQS; s++)
        pages_release(p, seqs[s].pages, seqs[s].n);
    assert_int_equal(pages_available(p), N_PAGES);
    pages_close(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(taken_once_each_and_then_no_more),
        cmocka_unit_test(a_page_is_found_after_the_same_beginning_only),
        cmocka_unit_test(equal_pages_become_one),
        cmocka_unit_test(the_least_recently_used_go_first),
        cmocka_unit_test(nothing_is_found_when_it_is_off),
        cmocka_unit_test(random_sequences_never_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
