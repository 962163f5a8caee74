/* base: the pool's claims and barriers, cores, jobs of the async worker, new files, growing
 * arrays and texts, the counter-based random numbers, medians. */
#include "base/async_worker.h"
#include "base/buf.h"
#include "base/core.h"
#include "base/file.h"
#include "base/json.h"
#include "base/machine.h"
#include "base/median.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/sentence.h"
#include "base/thread.h"
#include "base/util.h"
#include "base/words.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define N_ITEMS 10007

struct job {
    _Atomic unsigned char taken[N_ITEMS];
    int rounds;
    _Atomic int errors;
};

static void job_run(void *arg, struct pool *pool, int thread) {
    struct job *job = arg;
    (void)thread;
    for (int round = 0; round < job->rounds; round++) {
        size_t begin, end;
        while (pool_claim(pool, N_ITEMS, 3, &begin, &end))
            for (size_t i = begin; i < end; i++)
                atomic_fetch_add_explicit(&job->taken[i], 1, memory_order_relaxed);
        pool_barrier(pool);
        for (size_t i = 0; i < N_ITEMS; i += 101)
            if (job->taken[i] != (unsigned char)(round + 1))
                job->errors++;
        pool_barrier(pool);
    }
}

static void every_item_is_claimed_once_per_round(void **state) {
    (void)state;
    for (int n = 1; n <= 5; n++) {
        struct pool *pool;
        struct err err;
        assert_int_equal(pool_open(&pool, n, &err), ST_OK);
        static struct job job;
        memset(&job, 0, sizeof job);
        job.rounds = 100;
        pool_run(pool, job_run, &job);
        pool_run(pool, job_run, &(struct job){.rounds = 1});
        assert_int_equal(job.errors, 0);
        for (size_t i = 0; i < N_ITEMS; i++)
            assert_int_equal(job.taken[i], 100);
        pool_close(pool);
    }
}

/* Thread 0 is late: it claims when nothing is left. */
struct late {
    _Atomic unsigned char taken[N_ITEMS];
    _Atomic size_t n_taken, first[2]; /* first: item claimed, by thread */
};

static void late_run(void *arg, struct pool *pool, int thread) {
    struct late *late = arg;
    size_t begin, end;
    for (int i = 0; thread == 0 && i < 30000 && late->n_taken < N_ITEMS; i++)
        usleep(1000);
    late->first[thread] = SIZE_MAX;
    while (pool_claim(pool, N_ITEMS, 3, &begin, &end)) {
        if (late->first[thread] == SIZE_MAX)
            late->first[thread] = begin;
        for (size_t i = begin; i < end; i++)
            late->taken[i]++;
        late->n_taken += end - begin;
    }
    pool_barrier(pool);
}

static void a_late_threads_share_is_taken_by_the_others(void **state) {
    (void)state;
    struct pool *pool;
    struct err err;
    static struct late late;
    assert_int_equal(pool_open(&pool, 2, &err), ST_OK);
    pool_run(pool, late_run, &late);
    pool_close(pool);
    for (size_t i = 0; i < N_ITEMS; i++)
        assert_int_equal(late.taken[i], 1);
    assert_int_equal(late.first[0], SIZE_MAX);
    assert_int_equal(late.first[1], div_up(N_ITEMS, 2)); /* its own share comes first */
}

static void bad_thread_counts_are_refused(void **state) {
    (void)state;
    struct pool *pool = NULL;
    struct err err;
    assert_int_equal(pool_open(&pool, 0, &err), ST_BAD_INPUT);
    assert_int_equal(pool_open(&pool, 100000, &err), ST_BAD_INPUT);
    assert_null(pool);
}

/* The system may move a thread at any time, so once in a hundred is enough. */
static void a_thread_leaves_its_core_and_stays_free(void **state) {
    (void)state;
    int left = 0, here = core_here();
    core_leave(&here, 1);
    for (int i = 0; i < 100 && left == 0; i++) {
        here = core_here();
        core_leave(&here, 1);
        left = core_here() != here;
    }
    if (here < 0 || machine_n_cores() < 2)
        skip();
    assert_int_equal(left, 1);
    int all[1024];
    for (int i = 0; i < (int)ARRAY_LEN(all); i++)
        all[i] = i;
    for (int i = 0; i < 1000; i++) /* nowhere to go: stays */
        core_leave(all, (int)ARRAY_LEN(all));
    core_leave(all, 0);
    assert_true(core_here() >= 0);
}

static void add_one(void *n) {
    ++*(int *)n;
}

#ifdef __linux__
static void *room_of(void *arg) {
    pthread_attr_t attr;
    *(size_t *)arg = 0;
    if (pthread_getattr_np(pthread_self(), &attr) != 0)
        return NULL;
    pthread_attr_getstacksize(&attr, (size_t *)arg);
    pthread_attr_destroy(&attr);
    return NULL;
}

/* Where the system gives threads little (musl, ulimit -s), ours have what products need. */
static void a_thread_has_room(void **state) {
    (void)state;
    pthread_attr_t before, small;
    pthread_t thread;
    size_t bytes;
    assert_int_equal(pthread_getattr_default_np(&before), 0);
    assert_int_equal(pthread_getattr_default_np(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, 128 << 10), 0);
    assert_int_equal(pthread_setattr_default_np(&small), 0);
    int rc = thread_start(&thread, room_of, &bytes);
    assert_int_equal(pthread_setattr_default_np(&before), 0);
    assert_int_equal(rc, 0);
    pthread_join(thread, NULL);
    assert_true(bytes >= 1 << 20);
}
#endif

/* Not atomic: what either thread wrote must be visible to the other (ThreadSanitizer looks on). */
static void jobs_are_run_one_after_the_other(void **state) {
    (void)state;
    struct async_worker *e;
    struct err err;
    int n = 0;
    assert_int_equal(async_worker_open(&e, &err), ST_OK);
    for (int i = 0; i < 1000; i++) {
        n++;
        async_worker_start(e, add_one, &n);
        async_worker_wait(e);
        assert_int_equal(n, 2 * i + 2);
    }
    async_worker_close(e);
    assert_int_equal(async_worker_open(&e, &err), ST_OK);
    async_worker_close(e);
    async_worker_close(NULL);
}

/* Known answer of Philox4x32-10 for zero counter and key: 6627e8d5 e169c58d bc57ac4c 9b00dbd8
 * (Random123's kat_vectors). We return the first two words. */
static void philox_known_answer(void **state) {
    (void)state;
    assert_int_equal(rng_u64(0, 0), 0xe169c58d6627e8d5u);
    assert_true(rng_uniform(1, 2) >= 0 && rng_uniform(1, 2) < 1);
    assert_true(rng_u64(1, 2) != rng_u64(2, 1));
}

static void medians(void **state) {
    (void)state;
    double x[] = {3, -1, 7, 2, 100};
    assert_true(median(x, 0) == 0);
    assert_true(median(x, 1) == 3);
    assert_true(median(x, 4) == 2.5);
    assert_true(x[0] == -1 && x[3] == 7 && x[4] == 100);
    assert_true(median(x, 5) == 3);
}

/* Some, and no more than there is. */
static void an_array_grows(void **state) {
    uint32_t *a = NULL;
    size_t cap = 0, n_moves = 0;
    (void)state;
    assert_true(mem_reserve(&a, &cap, 0, sizeof *a));
    assert_null(a);
    for (uint32_t i = 0; i < 100000; i++) {
        size_t before = cap;
        assert_true(mem_reserve(&a, &cap, i + 1, sizeof *a));
        assert_true(cap > i);
        n_moves += cap != before;
        a[i] = i;
    }
    for (uint32_t i = 0; i < 100000; i++)
        assert_int_equal(a[i], i);
    assert_true(n_moves <= 17); /* 2^17 > 100000 */
    uint32_t *const same = a;
    const size_t cap_before = cap;
    /* Bytes beyond size_t. (To be asked for less than that, and more than there is,
     * AddressSanitizer calls a fault.) */
    assert_false(mem_reserve(&a, &cap, SIZE_MAX / sizeof *a + 1, sizeof *a));
    assert_ptr_equal(a, same);
    assert_int_equal(cap, cap_before);
    mem_free(a);
}

static void a_text_grows(void **state) {
    struct buf b = {0};
    (void)state;
    assert_string_equal(buf_cstr(&b), "");
    assert_true(buf_add(&b, NULL, 0) && b.len == 0);
    assert_true(buf_add_str(&b, "one") && buf_add(&b, " two", 4));
    assert_true(buf_printf(&b, ", %d and %0100d", 3, 4));
    assert_int_equal(b.len, strlen(b.bytes));
    assert_int_equal(b.len, strlen("one two, 3 and ") + 100);
    b.len = 3; /* what is added next, or asked for, ends it there */
    assert_string_equal(buf_cstr(&b), "one");
    assert_true(buf_add(&b, "\0!", 2) && b.len == 5 && b.bytes[4] == '!' && b.bytes[5] == '\0');
    /* What has failed stays as it was, until it begins anew. */
    assert_false(buf_add(&b, "x", SIZE_MAX - 5));
    assert_false(buf_add(&b, "x", SIZE_MAX));
    assert_false(buf_add_str(&b, "x") || buf_printf(&b, "x"));
    assert_true(b.failed && b.len == 5);
    assert_string_equal(buf_cstr(&b), "");
    buf_clear(&b);
    assert_true(buf_add_str(&b, "x"));
    assert_string_equal(b.bytes, "x");
    buf_free(&b);
    assert_true(b.bytes == NULL && b.len == 0 && b.cap == 0 && !b.failed);
}

#ifdef HAS_WRAPPED_PAGES
/* What the library asks (CMakeLists.txt: --wrap) of a system whose pages are larger than this
 * one's: 16 KiB on a Mac, up to 64 KiB on Linux for arm64. 0: of this one. */
static long pretended_page_bytes;
static uint8_t *unmapped; /* where munmap() last began */

long __real_sysconf(int name);
long __wrap_sysconf(int name);
long __wrap_sysconf(int name) {
    bool pretended = name == _SC_PAGESIZE && pretended_page_bytes != 0;
    return pretended ? pretended_page_bytes : __real_sysconf(name);
}

int __real_munmap(void *p, size_t n);
int __wrap_munmap(void *p, size_t n);
int __wrap_munmap(void *p, size_t n) {
    unmapped = p;
    return __real_munmap(p, n);
}

/* munmap() refuses to begin inside a page: what lies behind the block would stay for good. */
static void a_huge_block_is_whole_pages(void **state) {
    const size_t page = 65536, size = ((size_t)4 << 20) + 100;
    (void)state;
    pretended_page_bytes = (long)page;
    uint8_t *p = mem_huge_alloc(size), *behind = unmapped;
    mem_huge_free(p, size);
    pretended_page_bytes = 0;
    assert_non_null(p);
    assert_ptr_equal(behind, p + round_up(size, page));
    assert_ptr_equal(unmapped, p);
}
#endif

static void available_memory_is_within_the_machine(void **state) {
    (void)state;
    uint64_t available = mem_available();
    uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    assert_true(available > 0 && available <= mem_total());
    assert_true(mem_total() <= all);
}

/* A system may promise it, and end the process that writes there. */
static void no_block_is_more_than_the_machine_has(void **state) {
    (void)state;
    assert_true(mem_total() > 0);
    assert_null(mem_huge_alloc((size_t)mem_total() + 1));
    assert_null(mem_huge_alloc(SIZE_MAX - 100));
}

/* ---- new files --------------------------------------------------------------------------- */

static char dir[] = "/tmp/lockstep-base-XXXXXX", path[64];

static int make_dir(void **state) {
    (void)state;
    if (mkdtemp(dir) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/out", dir);
    return 0;
}

static int remove_dir(void **state) {
    (void)state;
    unlink(path);
    return rmdir(dir); /* nothing else is left */
}

static void has(const char *want) {
    struct err err;
    char *text;
    assert_int_equal(file_read_text(&text, NULL, path, 100, &err), ST_OK);
    assert_string_equal(text, want);
    mem_free(text);
}

static void write_file(const char *text) {
    struct file_new f;
    struct err err;
    assert_int_equal(file_new_open(&f, path, &err), ST_OK);
    fputs(text, f.f);
    assert_int_equal(file_new_finish(&f, false, &err), ST_OK);
    has(text);
}

/* A link that somebody has put where the part will be: what it leads to is left alone. */
static void a_planted_link_is_not_followed(void **state) {
    (void)state;
    char part[sizeof path + 8], victim[sizeof path + 8];
    struct file_new f;
    struct err err;
    snprintf(part, sizeof part, "%s.part", path);
    snprintf(victim, sizeof victim, "%s.victim", path);
    assert_int_equal(symlink(victim, part), 0);
    assert_int_equal(file_new_open(&f, path, &err), ST_IO);
    assert_int_not_equal(access(victim, F_OK), 0);
    unlink(part);
}

/* One at a time; who comes second is told, and does no harm to the first. */
static void a_new_file_has_one_writer(void **state) {
    (void)state;
    struct file_new first, second;
    struct err err;
    assert_int_equal(file_new_open(&first, path, &err), ST_OK);
    fputs("whole", first.f);
    assert_int_equal(file_new_open(&second, path, &err), ST_IO);
    assert_non_null(strstr(err.text, "is being written by another"));
    assert_int_equal(file_new_finish(&first, true, &err), ST_OK);
    has("whole");
    write_file("again");
    /* What was begun and given up, or left by one who was killed, is in nobody's way. */
    assert_int_equal(file_new_open(&first, path, &err), ST_OK);
    fputs("half", first.f);
    file_new_drop(&first);
    has("again");
    char part[80];
    snprintf(part, sizeof part, "%s.part", path);
    FILE *left = fopen(part, "w");
    fputs("much longer than what comes", left);
    fclose(left);
    write_file("short");
    assert_int_not_equal(access(part, F_OK), 0);
}

/* An integer beyond 64 bits is a real; all else is as it was, strings and integers beside it. */
/* What cannot be made is named, not what would have been in it; and why, not that it is not
 * there. */
static void folders_that_cannot_be_made(void **state) {
    (void)state;
    char folder[] = "/tmp/test_base-XXXXXX", file[64], inside[96];
    struct err err;
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/a/b/file", folder);
    assert_int_equal(file_make_folders(file, 0700, &err), ST_OK);
    assert_int_equal(file_make_folders(file, 0700, &err), ST_OK);
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    close(fd);
    snprintf(inside, sizeof inside, "%s/c/d/e", file);
    assert_int_equal(file_make_folders(inside, 0700, &err), ST_IO);
    snprintf(inside, sizeof inside, "%s: Not a directory", file);
    assert_string_equal(err.text, inside);
    assert_int_equal(unlink(file), 0);
    for (const char *tail[] = {"/a/b", "/a", ""}, **t = tail; t < tail + 3; t++) {
        snprintf(inside, sizeof inside, "%s%s", folder, *t);
        assert_int_equal(rmdir(inside), 0);
    }
    if (access("/sys/kernel", F_OK) != 0)
        return;
    /* Nobody makes folders there, not even root. */
    assert_int_equal(file_make_folders("/sys/kernel/no/such/file", 0700, &err), ST_IO);
    assert_true(str_starts(err.text, "/sys/kernel/no: "));
    assert_null(strstr(err.text, "No such file"));
}

static void json_of_any_integer(void **state) {
    (void)state;
    static const struct {
        const char *text, *read; /* NULL: no JSON */
    } cases[] = {
        {"[18446744073709551615,5]", "[1.8446744073709552e19, 5]"},
        {"[-9223372036854775808,-9223372036854775809,9223372036854775807]",
         "[-9223372036854775808, -9.2233720368547758e18, 9223372036854775807]"},
        {"{\"a \\\"18446744073709551616\":1000000000000000019884624838656}",
         "{\"a \\\"18446744073709551616\": 1e30}"},
        {"[99999999999999999999e1,1.00000000000000000000000]", "[1e21, 1.0]"},
        {"99999999999999999999", "1e20"},
        {"[99999999999999999999", NULL},
        {"[99999999999999999999,\"a", NULL},
        {"[1e999,99999999999999999999]", NULL},
        {"[--99999999999999999999]", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_error_t why = {.text = ""};
        size_t len = strlen(cases[i].text);
        char *exact = malloc(len); /* nothing ends it */
        memcpy(exact, cases[i].text, len);
        json_t *v = json_read(exact, len, JSON_DECODE_ANY, &why);
        free(exact);
        char *text = json_dumps(v, JSON_ENCODE_ANY);
        if (cases[i].read != NULL) {
            assert_non_null(text);
            assert_string_equal(text, cases[i].read);
        } else {
            assert_null(v);
            assert_string_not_equal(why.text, "");
        }
        free(text);
        json_decref(v);
    }
}

/* Sentences have names in them that somebody else has chosen, and are cut where a buffer ends:
 * jansson takes no text that is not UTF-8. */
static void sentences_are_utf8(void **state) {
    (void)state;
    static const struct {
        const char *text, *kept;
    } cases[] = {
        {"12345678", "1234567"},
        {"12345\xc3\xa9", "12345\xc3\xa9"},
        {"123456\xc3\xa9", "123456"},
        {"12345\xe2\x82\xac", "12345"},
        {"123\xf0\x9f\x98\x80", "123\xf0\x9f\x98\x80"},
        {"1234\xf0\x9f\x98\x80", "1234"},
        {"a\xe9z", "a?z"},
        {"a\xe9", "a"},
        {"\x80\xff", "??"},
        {"", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char out[8];
        sentence_print(out, sizeof out, "%s", cases[i].text);
        assert_string_equal(out, cases[i].kept);
    }
    struct err err;
    char name[sizeof err.text + 1];
    for (size_t i = 0; i < 3;
         i++) { /* "\xe2\x82\xac" again and again, cut at each of its bytes */
        for (size_t k = 0; k < sizeof name - 1; k++)
            name[k] = "\xe2\x82\xac"[(i + k) % 3];
        name[sizeof name - 1] = '\0';
        err_set(&err, ST_IO, "%s", name);
        json_t *v = json_string(err.text);
        assert_non_null(v);
        json_decref(v);
        err_prefix(&err, ST_IO, "%.*s", (int)i, "ab");
        v = json_string(err.text);
        assert_non_null(v);
        json_decref(v);
    }
    err_set(&err, ST_IO, "%.2s: what a precision cuts", "\xe2\x82\xac");
    assert_string_equal(err.text, "??: what a precision cuts");
}

/* A code belongs to one sentence: a context in front of it keeps it, another sentence does not. */
static void a_code_belongs_to_one_sentence(void **state) {
    (void)state;
    struct err err;
    assert_int_equal(err_set_code(&err, ST_BAD_INPUT, ERR_PROMPT_TOO_LONG, "%d tokens", 9),
                     ST_BAD_INPUT);
    assert_string_equal(err.text, "9 tokens");
    assert_int_equal(err.code, ERR_PROMPT_TOO_LONG);
    assert_int_equal(err_prefix(&err, ST_BAD_INPUT, "m: "), ST_BAD_INPUT);
    assert_string_equal(err.text, "m: 9 tokens");
    assert_int_equal(err.code, ERR_PROMPT_TOO_LONG);
    assert_int_equal(err_set(&err, ST_IO, "the disk is full"), ST_IO);
    assert_int_equal(err.code, ERR_NONE);
    assert_int_equal(err_set_code(NULL, ST_IO, ERR_PROMPT_TOO_LONG, "nobody asks"), ST_IO);
}

/* Counted in the text as in the tree. */
static size_t count_tree(const json_t *v) {
    size_t n = 1, i;
    const char *key;
    json_t *one;
    json_array_foreach((json_t *)v, i, one) n += count_tree(one);
    json_object_foreach((json_t *)v, key, one) n += count_tree(one);
    return n;
}

static void json_values_are_counted(void **state) {
    (void)state;
    static const char *const texts[] = {
        "1",
        "\"a,b[{\\\",[1,2]\"",
        "{}",
        "[ ]",
        "[\n]",
        "[{},{ },[],[[]]]",
        "[1,2,3]",
        " { \"a\" : [ 1 , { \"b,\" : null } ] , \"c\" : \"[\" } ",
        "[[[[[[[[1]]]]]]]]"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        size_t len = strlen(texts[i]);
        char *exact = malloc(len);
        memcpy(exact, texts[i], len);
        json_t *v = json_loadb(exact, len, JSON_DECODE_ANY, NULL);
        assert_non_null(v);
        assert_int_equal(json_count(exact, len), count_tree(v));
        json_decref(v);
        for (size_t k = 0; k < len; k++) /* cut off: no byte behind it is read */
            assert_true(json_count(exact + len - k, k) <= k + 1);
        free(exact);
    }
}

/* Words between commas, each in brackets. */
static void a_list_has_words(void **state) {
    (void)state;
    static const struct {
        const char *list, *words, *short_ones;
        size_t n;
    } cases[] = {{NULL, "", "", 0},
                 {"", "[]", "[]", 1},
                 {"a", "[a]", "[a]", 1},
                 {"ab,c", "[ab][c]", "[][c]", 2},
                 {",a,", "[][a][]", "[][a][]", 3}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char got[32] = "";
        const char *rest = cases[i].list, *word;
        for (size_t n, at = 0; (word = words_next(&rest, &n)) != NULL;)
            at += (size_t)snprintf(got + at, sizeof got - at, "[%.*s]", (int)n, word);
        assert_string_equal(got, cases[i].words);
        assert_null(rest);
        assert_int_equal(words_count(cases[i].list), cases[i].n);
        char one[2];
        got[0] = '\0';
        rest = cases[i].list;
        for (size_t at = 0; words_take(&rest, one, sizeof one);)
            at += (size_t)snprintf(got + at, sizeof got - at, "[%s]", one);
        assert_string_equal(got, cases[i].short_ones);
    }
    assert_true(str_list_has("ab,c", "ab") && str_list_has("ab,c", "c"));
    assert_false(str_list_has("ab,c", "a") || str_list_has("ab,c", "abc") ||
                 str_list_has("ab,c", "") || str_list_has(NULL, "a"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_has_words),
        cmocka_unit_test(every_item_is_claimed_once_per_round),
        cmocka_unit_test(a_late_threads_share_is_taken_by_the_others),
        cmocka_unit_test(bad_thread_counts_are_refused),
        cmocka_unit_test(a_thread_leaves_its_core_and_stays_free),
#ifdef __linux__
        cmocka_unit_test(a_thread_has_room),
#endif
        cmocka_unit_test(jobs_are_run_one_after_the_other),
        cmocka_unit_test(philox_known_answer),
        cmocka_unit_test(medians),
        cmocka_unit_test(json_of_any_integer),
        cmocka_unit_test(sentences_are_utf8),
        cmocka_unit_test(a_code_belongs_to_one_sentence),
        cmocka_unit_test(json_values_are_counted),
        cmocka_unit_test(an_array_grows),
        cmocka_unit_test(a_text_grows),
#ifdef HAS_WRAPPED_PAGES
        cmocka_unit_test(a_huge_block_is_whole_pages),
#endif
        cmocka_unit_test(available_memory_is_within_the_machine),
        cmocka_unit_test(no_block_is_more_than_the_machine_has),
        cmocka_unit_test(a_planted_link_is_not_followed),
        cmocka_unit_test(a_new_file_has_one_writer),
        cmocka_unit_test(folders_that_cannot_be_made),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
