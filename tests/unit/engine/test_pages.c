/* Pages and the cache that they number: every page is in exactly one state; equal beginnings
 * share pages and different ones never do, though their hashes or their later tokens agree;
 * least recently used go first. A model in plain arrays (each sequence's tokens) says what must
 * be found. */
#include "base/mem.h"
#include "base/rng.h"
#include "base/util.h"
#include "engine/pages.h"
#include "model/kv_prefault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

static struct pages *open_pages(uint32_t n, bool find) {
    struct pages *p = NULL;
    struct err err;
    assert_int_equal(pages_open(&p, n, 0, find, &err), ST_OK);
    return p;
}

static struct pages *open_both(uint32_t n, uint32_t n_window) {
    struct pages *p = NULL;
    struct err err;
    assert_int_equal(pages_open(&p, n, n_window, true, &err), ST_OK);
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

/* ---- layers with a window ---------------------------------------------------------------- */

static void a_window_page_is_found_beside_its_page_until_the_room_is_needed(void **state) {
    (void)state;
    struct pages *p = open_both(4, 2);
    int32_t ids[3][KV_PAGE];
    uint32_t page[3], window[3], before = PAGE_NONE;
    for (int i = 0; i < 3; i++) {
        fill(ids[i], i);
        page[i] = pages_take(p);
        window[i] = pages_window_take(p); /* the third takes the first one's room */
        assert_true(window[i] < 2);
        page[i] = before = pages_publish(p, page[i], before, ids[i]);
        assert_false(pages_window_known(p, page[i]));
        window[i] = pages_window_publish(p, page[i], window[i]);
        assert_true(pages_window_known(p, page[i]));
        pages_window_release(p, window[i]);
    }
    assert_int_equal(window[2], window[0]);
    assert_false(pages_window_known(p, page[0]));
    assert_int_equal(pages_window_hold(p, page[1]), window[1]);
    assert_int_equal(pages_window_count(p).held, 1);
    assert_int_equal(pages_window_count(p).cached, 1);
    assert_int_equal(pages_window_take(p), window[2]);
    assert_false(pages_window_known(p, page[2]));
    assert_int_equal(pages_window_take(p), PAGE_NONE);
    pages_window_release(p, window[2]);
    pages_window_release(p, window[1]);
    /* With its page, it is forgotten. */
    pages_release(p, page, 3);
    for (int i = 0; i < 4; i++)
        assert_true(pages_take(p) != PAGE_NONE);
    assert_int_equal(pages_window_count(p).cached, 0);
    assert_int_equal(pages_window_available(p), 2);
    pages_close(p);
}

/* Two sequences computed the same page side by side; a later one computes again what was
 * dropped. */
static void equal_window_pages_become_one(void **state) {
    (void)state;
    struct pages *p = open_both(4, 3);
    int32_t ids[KV_PAGE];
    fill(ids, 1);
    uint32_t page[3], window[3];
    for (int i = 0; i < 3; i++) {
        page[i] = pages_take(p);
        window[i] = pages_window_take(p);
    }
    uint32_t spare = window[1];
    for (int i = 0; i < 2; i++) {
        page[i] = pages_publish(p, page[i], PAGE_NONE, ids);
        window[i] = pages_window_publish(p, page[i], window[i]);
    }
    assert_int_equal(window[1], window[0]);
    assert_int_equal(pages_window_count(p).held, 2);
    pages_window_release(p, window[0]);
    pages_window_release(p, window[1]);
    assert_int_equal(pages_window_take(p), spare);
    assert_int_equal(pages_window_take(p), window[0]); /* dropped */
    page[2] = pages_publish(p, page[2], PAGE_NONE, ids);
    assert_int_equal(page[2], page[0]);
    assert_int_equal(pages_window_publish(p, page[2], window[2]), window[2]);
    assert_true(pages_window_known(p, page[0]));
    pages_close(p);
}

/* Sequences as the engine has them: from the longest known beginning of which the last WINDOW
 * pages are there, page by page, each holding its last WINDOW ones. A window page must be of
 * the same beginning as the page that it is found beside: `of` notes which that is. */
#define WINDOW 2
#define N_WINDOW 15 /* of N_SEQS * WINDOW + N_SEQS */

struct windowed {
    struct seq s;
    uint32_t windows[SEQ_PAGES];
    size_t first;
    int wish[SEQ_PAGES];
};

static int beginning(const struct windowed *w, size_t n) {
    int code = 1;
    for (size_t i = 0; i < n; i++)
        code = code * 2 + w->wish[i];
    return code;
}

static size_t window_first(size_t n) {
    return n > WINDOW ? n - WINDOW : 0;
}

static void begin_windowed(struct pages *p, struct windowed *w, const int *of,
                           size_t *n_found) {
    int32_t ids[KV_PAGE];
    uint32_t before = PAGE_NONE;
    size_t n_known = 0, n = 0;
    for (int i = 0; i < SEQ_PAGES; i++)
        w->wish[i] = (int)any(2);
    for (; n_known < SEQ_PAGES; n_known++) {
        fill(ids, w->wish[n_known]);
        before = pages_find(p, before, ids);
        if (before == PAGE_NONE)
            break;
        w->s.pages[n_known] = before;
    }
    for (size_t end = 1; end <= n_known; end++) {
        bool all = true;
        for (size_t i = window_first(end); i < end; i++)
            all = all && pages_window_known(p, w->s.pages[i]);
        n = all ? end : n;
    }
    pages_release(p, w->s.pages + n, n_known - n);
    w->s.n = n;
    for (size_t i = w->first = window_first(n); i < n; i++) {
        w->windows[i] = pages_window_hold(p, w->s.pages[i]);
        assert_int_equal(of[w->windows[i]], beginning(w, i + 1));
    }
    *n_found += n;
}

static void grow_windowed(struct pages *p, struct windowed *w, int *of) {
    if (w->s.n == SEQ_PAGES || pages_available(p) == 0 || pages_window_available(p) == 0)
        return;
    int32_t ids[KV_PAGE];
    size_t i = w->s.n;
    uint32_t window = pages_window_take(p), page = pages_take(p);
    fill(ids, w->wish[i]);
    of[window] = beginning(w, i + 1);
    w->s.pages[i] = pages_publish(p, page, i > 0 ? w->s.pages[i - 1] : PAGE_NONE, ids);
    w->windows[i] = pages_window_publish(p, w->s.pages[i], window);
    assert_int_equal(of[w->windows[i]], beginning(w, i + 1));
    w->s.n++;
    for (; w->first < window_first(w->s.n); w->first++)
        pages_window_release(p, w->windows[w->first]);
}

static void random_windows_never_mix(void **state) {
    (void)state;
    struct pages *p = open_both(N_PAGES, N_WINDOW);
    static struct windowed seqs[N_SEQS];
    int of[N_WINDOW] = {0};
    size_t n_found = 0;
    for (int round = 0; round < 20000; round++) {
        struct windowed *w = &seqs[any(N_SEQS)];
        if (w->s.n == SEQ_PAGES || any(6) == 0) {
            for (size_t i = w->first; i < w->s.n; i++)
                pages_window_release(p, w->windows[i]);
            pages_release(p, w->s.pages, w->s.n);
            w->s.n = w->first = 0;
        } else if (w->s.n == 0) {
            begin_windowed(p, w, of, &n_found);
            grow_windowed(p, w, of);
        } else {
            grow_windowed(p, w, of);
        }
        bool held[N_WINDOW] = {false};
        size_t n = 0;
        for (int s = 0; s < N_SEQS; s++)
            for (size_t i = seqs[s].first; i < seqs[s].s.n; i++) {
                n += !held[seqs[s].windows[i]];
                held[seqs[s].windows[i]] = true;
            }
        assert_int_equal(pages_window_count(p).held, n);
    }
    assert_true(n_found > 1000);
    pages_close(p);
}

/* ---- the cache ------------------------------------------------------------------------------ */

#define N_LAYERS 5

static const enum kv_kind kinds[N_LAYERS] = {KV_WINDOW, KV_WHOLE, KV_WINDOW, KV_WINDOW,
                                             KV_WHOLE};
static const uint32_t n_pages_of[KV_KINDS] = {[KV_WHOLE] = 40, [KV_WINDOW] = 7};

/* Layers of one kind are alike; those of the other keep more. */
static struct kv_shape shape_of(enum kv_kind kind) {
    return (struct kv_shape){.type = KV_F16,
                             .n_kv_heads = kind == KV_WHOLE ? 1 : 2,
                             .k_dim = kind == KV_WHOLE ? 96 : 64,
                             .v_dim = 32};
}

static size_t bytes_of(enum kv_kind kind) {
    const struct kv_shape shape = shape_of(kind);
    return kv_page_bytes(&shape);
}

static void open_cache_of(struct kv_cache *kv, const uint32_t n_pages[KV_KINDS]) {
    struct kv_keep keeps[N_LAYERS];
    struct err err;
    for (uint32_t i = 0; i < N_LAYERS; i++)
        keeps[i] = (struct kv_keep){kinds[i], shape_of(kinds[i])};
    assert_int_equal(kv_open(kv, keeps, N_LAYERS, n_pages, &err), ST_OK);
}

static void open_cache(struct kv_cache *kv) {
    open_cache_of(kv, n_pages_of);
}

/* Writes a number of its own all over each part, or looks whether it is still there. */
static void each_part(const struct kv_cache *kv, bool look) {
    uint32_t number = 0;
    for (uint32_t layer = 0; layer < N_LAYERS; layer++)
        for (uint32_t page = 0; page < n_pages_of[kinds[layer]]; page++, number++) {
            size_t bytes = bytes_of(kinds[layer]);
            uint8_t *part = kv_page(kv, layer, page);
            assert_true(part >= kv->data && part + bytes <= kv->data + kv->data_bytes);
            for (size_t i = 0; i + sizeof number <= bytes; i += sizeof number)
                if (look)
                    assert_memory_equal(part + i, &number, sizeof number);
                else
                    memcpy(part + i, &number, sizeof number);
        }
}

static void every_part_of_every_page_has_its_own_place(void **state) {
    (void)state;
    struct kv_cache kv;
    open_cache(&kv);
    assert_int_equal(kv_bytes(&kv), bytes_of(KV_WHOLE) * 2 * 40 + bytes_of(KV_WINDOW) * 3 * 7);
    each_part(&kv, false);
    each_part(&kv, true);
    kv_close(&kv);
}

/* What makes pages resident reads along with the steps that write: nothing may change. */
static void making_pages_ready_changes_nothing(void **state) {
    (void)state;
    struct kv_cache kv;
    open_cache(&kv);
    struct kv_prefault *a = kv_prefault_open(&kv);
    each_part(&kv, false);
    for (uint32_t page = 0; page < n_pages_of[KV_WHOLE]; page++) {
        kv_prefault_note(a, KV_WHOLE, page);
        kv_prefault_note(a, KV_WINDOW, page % n_pages_of[KV_WINDOW]);
    }
    each_part(&kv, true);
    kv_prefault_close(a);
    each_part(&kv, true);
    kv_prefault_note(NULL, KV_WHOLE, 3);
    kv_prefault_close(NULL);
    kv_close(&kv);
}

/* Bytes, in whole pages of the system. */
static size_t resident(uint8_t *p, size_t n_bytes) {
    static unsigned char in_memory[8192];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t n = div_up(n_bytes, page), found = 0;
    assert_true(n <= sizeof in_memory);
    assert_int_equal(mincore(p, n_bytes, (void *)in_memory), 0);
    for (size_t i = 0; i < n; i++)
        found += in_memory[i] & 1;
    return found * page;
}

static bool system_can_populate(void) {
    const size_t n = 65536;
    uint8_t *p = mem_huge_alloc(n);
    assert_non_null(p);
    bool can = mem_populate(p, n) && resident(p, n) >= n;
    mem_huge_free(p, n);
    return can;
}

#define WAIT_MS 10000

static void without_steps_the_whole_cache_is_made_ready(void **state) {
    (void)state;
    struct kv_cache kv;
    if (!system_can_populate())
        skip();
    open_cache_of(&kv, (const uint32_t[KV_KINDS]){[KV_WHOLE] = 400, [KV_WINDOW] = 7});
    struct kv_prefault *a = kv_prefault_open(&kv);
    assert_non_null(a);
    kv_prefault_step_begin(a);
    kv_prefault_note(a, KV_WHOLE, 0);
    poll(NULL, 0, 400);
    /* 17 of 400 pages of one kind, all of the other, and what lies beside them in huge ones. */
    assert_true(resident(kv.data, kv.data_bytes) < kv.data_bytes / 2);
    kv_prefault_step_end(a);
    for (int ms = 0; ms < WAIT_MS && resident(kv.data, kv.data_bytes) < kv.data_bytes; ms += 10)
        poll(NULL, 0, 10);
    assert_true(resident(kv.data, kv.data_bytes) >= kv.data_bytes);
    kv_prefault_close(a);
    kv_close(&kv);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(taken_once_each_and_then_no_more),
        cmocka_unit_test(a_page_is_found_after_the_same_beginning_only),
        cmocka_unit_test(equal_pages_become_one),
        cmocka_unit_test(the_least_recently_used_go_first),
        cmocka_unit_test(nothing_is_found_when_it_is_off),
        cmocka_unit_test(random_sequences_never_mix),
        cmocka_unit_test(a_window_page_is_found_beside_its_page_until_the_room_is_needed),
        cmocka_unit_test(equal_window_pages_become_one),
        cmocka_unit_test(random_windows_never_mix),
        cmocka_unit_test(every_part_of_every_page_has_its_own_place),
        cmocka_unit_test(making_pages_ready_changes_nothing),
        cmocka_unit_test(without_steps_the_whole_cache_is_made_ready),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
