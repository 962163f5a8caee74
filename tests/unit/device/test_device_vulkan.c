/* Devices: found, chosen by name, given memory, told to run.
 *
 * The device is the first there is, or LOCKSTEP_TEST_DEVICE: Mesa's lavapipe where there is no
 * other. ctest runs this once more under Vulkan's validation layer, whose every message is a
 * failure, and once more with LOCKSTEP_DEVICE_PROFILE=apple (tests/CMakeLists.txt).
 *
 * Under AddressSanitizer lavapipe takes some 30 us for a workgroup. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/program.h"
#include "base/util.h"
#include "device/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

#include <cmocka.h>

#define PAGE 4096
#define NUMBERS (PAGE / 4) /* of a page */

static const char *name;

static struct device *open_device(const char *which) {
    struct device *d = NULL;
    struct err err = {0};
    if (device_open(&d, which, &err) != ST_OK)
        fail_msg("%s", err.text);
    return d;
}

static enum status open_with(const char *variable, const char *value, const char *which,
                             struct err *err) {
    struct device *d = NULL;
    setenv(variable, value, 1);
    enum status st = device_open(&d, which, err);
    unsetenv(variable);
    device_close(d);
    return st;
}

/* ---- the list, the choice ------------------------------------------------------------------- */

static void the_list_says_what_is_there(void **state) {
    struct device_info *list;
    size_t n;
    char why[256] = "?";
    (void)state;
    assert_int_equal(device_list(&list, &n, why, sizeof why, NULL), ST_OK);
    assert_true(n > 0);
    assert_string_equal(why, "");
    for (size_t i = 0; i < n; i++) {
        assert_true(list[i].name[0] != '\0' && list[i].driver[0] != '\0');
        assert_true(list[i].memory_bytes >= (uint64_t)1 << 26);
        assert_true(list[i].api_version >= 1000 && list[i].subgroup <= 128);
        if (list[i].lacks[0] == '\0')
            assert_true(list[i].api_version >= 1002 && list[i].subgroup >= 1);
    }
    mem_free(list);
}

static void without_a_library_the_list_is_empty(void **state) {
    struct device_info *list;
    size_t n = 7;
    char why[256] = "";
    struct err err;
    (void)state;
    setenv("LOCKSTEP_VULKAN_LIB", "/nowhere/libvulkan.so", 1);
    assert_int_equal(device_list(&list, &n, why, sizeof why, NULL), ST_OK);
    unsetenv("LOCKSTEP_VULKAN_LIB");
    assert_int_equal(n, 0);
    assert_non_null(strstr(why, "/nowhere/libvulkan.so"));
    mem_free(list);
    assert_int_equal(open_with("LOCKSTEP_VULKAN_LIB", "/nowhere/libvulkan.so", name, &err),
                     ST_BAD_INPUT);
    assert_non_null(strstr(err.text, "/nowhere/libvulkan.so"));
}

/* A library that is no Vulkan. */
static void another_library_is_refused(void **state) {
    struct err err;
    (void)state;
    assert_int_equal(open_with("LOCKSTEP_VULKAN_LIB", "libm.so.6", name, &err), ST_BAD_INPUT);
    assert_non_null(strstr(err.text, "Vulkan"));
}

static void a_device_has_names(void **state) {
    struct device *d = open_device(name);
    char part[64], number[16];
    (void)state;
    snprintf(part, sizeof part, "%.6s", device_info(d)->name);
    device_close(d);
    for (char *p = part; *p != '\0'; p++)
        *p ^= (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ? 0x20 : 0;
    d = open_device(part);
    assert_int_equal(strncasecmp(device_info(d)->name, part, strlen(part)), 0);
    device_close(d);
    for (int i = 0; i < 3; i++) {
        struct err err;
        snprintf(number, sizeof number, "%d", i);
        d = NULL;
        if (device_open(&d, number, &err) != ST_OK)
            assert_true(i > 0 || strstr(err.text, "lacks") != NULL);
        device_close(d);
    }
}

static void other_names_are_answered_with_a_list(void **state) {
    static const char *const wrong[] = {"no such thing",        "",   "99",
                                        "99999999999999999999", "-1", "0x0"};
    struct device *d = open_device(name);
    char known[64];
    struct err err;
    (void)state;
    snprintf(known, sizeof known, "%.40s", device_info(d)->name);
    device_close(d);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        assert_int_equal(device_open(&d, wrong[i], &err), ST_BAD_INPUT);
        assert_non_null(strstr(err.text, known));
    }
}

static void auto_is_hardware(void **state) {
    struct device *d = NULL;
    struct err err;
    (void)state;
    if (device_open(&d, "auto", &err) == ST_OK)
        assert_true(device_info(d)->kind != DEVICE_SOFTWARE);
    else
        assert_non_null(strstr(err.text, "software"));
    device_close(d);
}

static void assert_lacks_all_features(const struct device *d) {
    for (int i = 0; i < DEVICE_N_FEATURES; i++)
        assert_false(device_info(d)->features[i]);
}

static void features_can_be_taken_away(void **state) {
    (void)state;
    setenv("LOCKSTEP_DEVICE_WITHOUT", "fma,fma-khr,f64,int64,dot,matrix,unified", 1);
    struct device *d = open_device(name);
    unsetenv("LOCKSTEP_DEVICE_WITHOUT");
    assert_lacks_all_features(d);
    assert_false(device_info(d)->unified);
    device_close(d);
}

static void assert_refused(const char *variable, const char *value) {
    struct err err;
    assert_int_equal(open_with(variable, value, name, &err), ST_BAD_INPUT);
    if (strstr(err.text, variable) == NULL || strstr(err.text, "expected") == NULL)
        fail_msg("%s=%s: %s", variable, value, err.text);
}

static void wrong_settings_are_refused(void **state) {
    static const struct {
        const char *variable, *wrong[12];
    } settings[] = {{"LOCKSTEP_DEVICE_TIMEOUT", {"0", "-1", "1.5", "ten", "86401", "1s", " 1"}},
                    {"LOCKSTEP_DEVICE_FAULT",
                     {"rounding", "fm", "flush:1", "memory", "memory:", "memory:0", "open:-1",
                      "hang:1s", "hang: 1", "memory:x", "division ", ":"}},
                    {"LOCKSTEP_DEVICE_MATRIX", {"8", "on", "32 "}},
                    {"LOCKSTEP_DEVICE_PROFILE", {"apples"}}};
    const char *profile = env_get("LOCKSTEP_DEVICE_PROFILE");
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(settings); i++)
        for (size_t k = 0; k < 12 && settings[i].wrong[k] != NULL; k++)
            assert_refused(settings[i].variable, settings[i].wrong[k]);
    if (profile != NULL)
        setenv("LOCKSTEP_DEVICE_PROFILE", "apple", 1);
}

static void a_profile_lacks_what_others_have(void **state) {
    struct device *d = open_device(name);
    (void)state;
    if (env_get("LOCKSTEP_DEVICE_PROFILE") != NULL)
        assert_lacks_all_features(d);
    device_close(d);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void map(struct device *d, void *host, size_t bytes, enum device_place place) {
    struct err err = {0};
    if (device_map(d, host, bytes, place, &err) != ST_OK)
        fail_msg("%s", err.text);
}

/* Some with gaps, mapped and unmapped in no order: an address is always that of its own range. */
static void addresses_follow_the_ranges(void **state) {
    static const size_t order[] = {3, 0, 6, 4, 1};
    struct device *d = open_device(name);
    char *host = mem_huge_alloc(7 * PAGE);
    uint64_t at[7];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(order); i++)
        map(d, host + order[i] * PAGE, PAGE, DEVICE_SHARED);
    for (size_t i = 0; i < ARRAY_LEN(order); i++)
        at[order[i]] = device_address(d, host + order[i] * PAGE);
    device_unmap(d, host + 4 * PAGE);
    device_unmap(d, host + 0);
    map(d, host + 4 * PAGE, 2 * PAGE, DEVICE_SHARED);
    at[4] = device_address(d, host + 4 * PAGE);
    for (size_t i = 0; i < 7; i++)
        if (i == 1 || i == 3 || i == 4 || i == 6)
            for (size_t k = 0; k < PAGE; k += 1365)
                assert_int_equal(device_address(d, host + i * PAGE + k), at[i] + k);
    assert_int_equal(device_address(d, host + 5 * PAGE), at[4] + PAGE);
    assert_int_equal(device_address(d, host + 6 * PAGE - 1), at[4] + 2 * PAGE - 1);
    assert_int_equal(device_reach(d, host + 5 * PAGE + 4),
                     PAGE - 4); /* 6 is a range of its own */
    assert_int_equal(device_reach(d, host + 4 * PAGE), 2 * PAGE);
    device_close(d);
    mem_huge_free(host, 7 * PAGE);
}

static void too_much_at_once_is_refused(void **state) {
    struct device *d = open_device(name);
    struct err err;
    char *host = mem_huge_alloc(PAGE);
    size_t most = device_max_map(d);
    (void)state;
    assert_true(most % PAGE == 0 && most >= (size_t)1 << 26);
    if (most < (size_t)1 << 46) {
        assert_int_equal(device_map(d, host, most + PAGE, DEVICE_SHARED, &err), ST_BAD_INPUT);
        assert_int_equal(device_map(d, host, most + PAGE, DEVICE_COPY, &err), ST_BAD_INPUT);
    }
    map(d, host, PAGE, DEVICE_SHARED);
    device_close(d);
    mem_huge_free(host, PAGE);
}

/* LOCKSTEP_DEVICE_PIECE: pages of a piece, but no more than the driver takes. */
static void smaller_pieces_can_be_asked_for(void **state) {
    struct device *d = open_device(name);
    const size_t most = device_max_map(d);
    struct err err = {0};
    (void)state;
    device_close(d);
    setenv("LOCKSTEP_DEVICE_PIECE", "3", 1);
    d = open_device(name);
    assert_int_equal(device_max_map(d), 3 * PAGE);
    device_close(d);
    setenv("LOCKSTEP_DEVICE_PIECE", "1000000000", 1);
    d = open_device(name);
    assert_int_equal(device_max_map(d), MIN(most, (size_t)1000000000 * PAGE));
    device_close(d);
    setenv("LOCKSTEP_DEVICE_PIECE", "0", 1);
    assert_int_equal(device_open(&d, name, &err), ST_BAD_INPUT);
    assert_string_equal(
        err.text, "LOCKSTEP_DEVICE_PIECE=0: expected pages of 4096 bytes from 1 to 1000000000");
    unsetenv("LOCKSTEP_DEVICE_PIECE");
}

/* ---- runs ------------------------------------------------------------------------------------ */

#if defined(LOCKSTEP_HAS_SHADERS)
extern const uint32_t multiply_add_spv[], gather_spv[], slow_spv[], halve_spv[];
extern const size_t multiply_add_spv_bytes, gather_spv_bytes, slow_spv_bytes, halve_spv_bytes;

struct push { /* of multiply_add.comp */
    uint64_t x;
    uint32_t n, summand, unused[27], last;
};
_Static_assert(sizeof(struct push) == 128, "as much as can be pushed");

static struct device_kernel *make_kernel(struct device *d, uint32_t lanes, uint32_t factor) {
    struct device_kernel *k = NULL;
    struct err err = {0};
    if (device_kernel_make(d, &k, multiply_add_spv, multiply_add_spv_bytes,
                           (const uint32_t[]){lanes, factor}, 2, &err) != ST_OK)
        fail_msg("%s", err.text);
    return k;
}

static void finish(struct device *d) {
    struct err err = {0};
    if (device_finish(d, &err) != ST_OK)
        fail_msg("%s", err.text);
}

static struct push push_of(const struct device *d, const uint32_t *x, uint32_t n,
                           uint32_t summand) {
    return (struct push){.x = device_address(d, x), .n = n, .summand = summand};
}

static void a_run_reads_and_writes_shared_memory(void **state) {
    struct device *d = open_device(name);
    uint32_t *x = mem_huge_alloc(2 * PAGE);
    (void)state;
    map(d, x, 2 * PAGE, DEVICE_SHARED);
    for (uint32_t i = 0; i < 2 * NUMBERS; i++)
        x[i] = i;
    struct push push = push_of(d, x + 5, 1500, 7);
    push.last = 100;
    assert_false(device_has_work(d));
    device_run(d, make_kernel(d, 32, 3), &push, sizeof push, (1500 + 31) / 32, 1, 1);
    assert_true(device_has_work(d));
    finish(d);
    assert_false(device_has_work(d));
    for (uint32_t i = 0; i < 2 * NUMBERS; i++)
        assert_int_equal(x[i], i >= 5 && i < 1505 ? 3 * i + 107 : i);
    device_close(d);
    mem_huge_free(x, 2 * PAGE);
}

/* Each needs what the one before it wrote; then the host writes, and it goes on. */
static void runs_come_one_after_another(void **state) {
    struct device *d = open_device(name);
    uint32_t *x = mem_huge_alloc(PAGE), expected = 1;
    struct device_kernel *k[] = {make_kernel(d, 64, 3), make_kernel(d, 64, 5)};
    (void)state;
    map(d, x, PAGE, DEVICE_SHARED);
    for (uint32_t round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < NUMBERS; i++)
            x[i] = expected + i * round;
        for (uint32_t i = 0; i < 300; i++) {
            struct push push = push_of(d, x, NUMBERS, i);
            device_run(d, k[i / 2 % 2], &push, sizeof push, NUMBERS / 64, 1, 1);
        }
        finish(d);
        for (uint32_t i = 0; i < NUMBERS; i++) {
            uint32_t want = expected + i * round;
            for (uint32_t r = 0; r < 300; r++)
                want = want * (r / 2 % 2 ? 5 : 3) + r;
            assert_int_equal(x[i], want);
        }
        expected = x[0];
    }
    struct device_counts counts = device_counts(d);
    assert_true(counts.runs >= 1200 && counts.submissions >= 4 && counts.wait_ns > 0);
    device_close(d);
    mem_huge_free(x, PAGE);
}

/* A list of so many runs, each with a summand and a number of its own. */
static void submit_list(struct device *d, struct device_kernel *k, uint32_t *x, uint32_t n_runs,
                        uint32_t seed) {
    for (uint32_t i = 0; i < n_runs; i++) {
        struct push push = push_of(d, x + i % NUMBERS, 1, seed + i);
        device_run(d, k, &push, sizeof push, 1, 1, 1);
    }
    finish(d);
}

static uint32_t sum_of(const uint32_t *x) {
    uint32_t sum = 0;
    for (size_t i = 0; i < NUMBERS; i++)
        sum += x[i];
    return sum;
}

static void equal_lists_are_recorded_once(void **state) {
    enum { LISTS = 600 }; /* more than are kept */
    struct device *d = open_device(name);
    uint32_t *x = mem_huge_alloc(PAGE), expected = 0;
    struct device_kernel *k = make_kernel(d, 1, 1);
    (void)state;
    memset(x, 0, PAGE);
    map(d, x, PAGE, DEVICE_SHARED);
    uint64_t before = device_counts(d).recorded;
    for (uint32_t i = 0; i < 30; i++) {
        submit_list(d, k, x, 1 + i % 3, i % 3);
        for (uint32_t j = 0; j < 1 + i % 3; j++)
            expected += i % 3 + j;
    }
    assert_int_equal(device_counts(d).recorded - before, 3);
    assert_int_equal(sum_of(x), expected);
    for (uint32_t i = 0; i < LISTS; i++) {
        submit_list(d, k, x, 1, 1000 + i);
        expected += 1000 + i;
    }
    before = device_counts(d).recorded;
    assert_int_equal(sum_of(x), expected);
    submit_list(d, k, x, 1, 1000 + LISTS - 1);
    assert_int_equal(device_counts(d).recorded, before);
    submit_list(d, k, x, 1, 1000); /* one that has given way */
    assert_int_equal(device_counts(d).recorded, before + 1);
    device_close(d);
    mem_huge_free(x, PAGE);
}

/* Beyond what is kept of one list, and of all of them. */
static void long_lists_are_run(void **state) {
    static const uint32_t lengths[] = {20000, 5, 7000, 6000, 5, 9000, 5, 8000, 13000, 5, 20000};
    struct device *d = open_device(name);
    uint32_t *x = mem_huge_alloc(PAGE), expected = 0;
    struct device_kernel *k = make_kernel(d, 1, 1);
    (void)state;
    memset(x, 0, PAGE);
    map(d, x, PAGE, DEVICE_SHARED);
    for (size_t l = 0; l < ARRAY_LEN(lengths); l++) {
        submit_list(d, k, x, lengths[l], 1);
        for (uint32_t i = 0; i < lengths[l]; i++)
            expected += 1 + i;
        assert_int_equal(sum_of(x), expected);
    }
    device_close(d);
    mem_huge_free(x, PAGE);
}

static void runs_beside_each_other(void **state) {
    struct device *d = open_device(name);
    uint32_t *x = mem_huge_alloc(8 * PAGE);
    struct device_kernel *k = make_kernel(d, 64, 1);
    (void)state;
    map(d, x, 8 * PAGE, DEVICE_SHARED);
    for (uint32_t i = 0; i < 8; i++) {
        struct push push = push_of(d, x + i * NUMBERS, NUMBERS, i + 1);
        device_run_beside(d, k, &push, sizeof push, NUMBERS / 64, 1, 1);
    }
    struct push all = push_of(d, x, 8 * NUMBERS, 1000);
    device_run(d, k, &all, sizeof all, 8 * NUMBERS / 64, 1, 1);
    finish(d);
    for (uint32_t i = 0; i < 8 * NUMBERS; i++)
        assert_int_equal(x[i], i / NUMBERS + 1001);
    device_close(d);
    mem_huge_free(x, 8 * PAGE);
}

/* One lane each, so that one dimension does not hold them. */
static void many_workgroups_are_folded(void **state) {
    static const uint32_t counts[] = {1, 65535, 65537};
    struct device *d = open_device(name);
    size_t bytes = (2 * 65535 * 4 / PAGE + 1) * PAGE;
    uint32_t *x = mem_huge_alloc(bytes), runs = 0;
    struct device_kernel *k = make_kernel(d, 1, 1);
    (void)state;
    map(d, x, bytes, DEVICE_SHARED);
    for (size_t c = 0; c < ARRAY_LEN(counts); c++, runs++) {
        struct push push = push_of(d, x, counts[c], 1);
        device_run(d, k, &push, sizeof push, counts[c], 1, 1);
    }
    finish(d);
    for (uint32_t i = 0; i < 2 * 65535; i++) {
        uint32_t want = 0;
        for (size_t c = 0; c < ARRAY_LEN(counts); c++)
            want += i < counts[c];
        assert_int_equal(x[i], want);
    }
    device_close(d);
    mem_huge_free(x, bytes);
}

static void nothing_to_do_is_done_at_once(void **state) {
    struct device *d = open_device(name);
    uint32_t *x = mem_huge_alloc(PAGE);
    struct device_kernel *k = make_kernel(d, 64, 1);
    uint64_t before = device_counts(d).submissions;
    (void)state;
    map(d, x, PAGE, DEVICE_SHARED);
    struct push push = push_of(d, x, NUMBERS, 1);
    finish(d);
    device_run(d, k, &push, sizeof push, 0, 1, 1);
    device_run(d, k, &push, sizeof push, 1, 0, 1);
    device_run_beside(d, k, &push, sizeof push, 1, 1, 0);
    assert_false(device_has_work(d));
    finish(d);
    assert_int_equal(device_counts(d).submissions, before);
    assert_int_equal(x[0], 0);
    device_close(d);
    mem_huge_free(x, PAGE);
}

/* The device's own memory: more than the pieces in which it is filled. What the host has is then
 * of no meaning, so that a second run copies it to where both see it. */
static void a_copy_is_in_the_devices_memory(void **state) {
    const size_t bytes = ((size_t)17 << 20) + PAGE, n = bytes / 4;
    (void)state;
    setenv("LOCKSTEP_DEVICE_WITHOUT", "unified", 1);
    struct device *d = open_device(name);
    unsetenv("LOCKSTEP_DEVICE_WITHOUT");
    uint32_t *x = mem_huge_alloc(bytes), *y = mem_huge_alloc(PAGE);
    for (size_t i = 0; i < n; i++)
        x[i] = (uint32_t)i * 7;
    map(d, x, bytes, DEVICE_COPY);
    map(d, y, PAGE, DEVICE_SHARED);
#ifdef __linux__
    for (size_t i = 0; i < n; i += 99991) /* its pages were given back */
        assert_int_equal(x[i], 0);
#endif
    struct push push = push_of(d, x, (uint32_t)n, 1);
    device_run(d, make_kernel(d, 256, 2), &push, sizeof push, (uint32_t)div_up(n, 256), 1, 1);
    finish(d);
    struct device_kernel *copy;
    assert_int_equal(device_kernel_make(d, &copy, gather_spv, gather_spv_bytes, NULL, 0, NULL),
                     ST_OK);
    for (size_t i = 0; i < n; i += NUMBERS * 97) {
        const struct {
            uint64_t from, to;
        } places = {device_address(d, x + i), device_address(d, y)};
        device_run(d, copy, &places, sizeof places, NUMBERS / 64, 1, 1);
        finish(d);
        for (size_t k = 0; k < NUMBERS; k++)
            assert_int_equal(y[k], (uint32_t)(i + k) * 14 + 1);
    }
    device_unmap(d, x);
    map(d, x, bytes, DEVICE_COPY);
    device_close(d);
    mem_huge_free(x, bytes);
    mem_huge_free(y, PAGE);
}

#if defined(__x86_64__) || defined(__aarch64__)
/* With a profile that flushes subnormals, a software device does so; otherwise it may. */
static void subnormals_are_flushed_if_asked(void **state) {
    struct device *d = open_device(name);
    struct device_kernel *k;
    float *x = mem_huge_alloc(PAGE);
    (void)state;
    map(d, x, PAGE, DEVICE_SHARED);
    for (size_t i = 0; i < NUMBERS; i++)
        x[i] = i % 2 ? 0x1p-140f : 0x1p-126f; /* subnormal before, and only after */
    assert_int_equal(device_kernel_make(d, &k, halve_spv, halve_spv_bytes, NULL, 0, NULL),
                     ST_OK);
    const uint64_t at = device_address(d, x);
    device_run(d, k, &at, sizeof at, NUMBERS / 64, 1, 1);
    finish(d);
    if (env_get("LOCKSTEP_DEVICE_PROFILE") != NULL && device_info(d)->kind == DEVICE_SOFTWARE)
        for (size_t i = 0; i < NUMBERS; i++)
            assert_true(x[i] == 0);
    device_close(d);
    mem_huge_free(x, PAGE);
}
#endif

static void a_crossing_takes_some_time(void **state) {
    struct device *d = open_device(name);
    (void)state;
    uint64_t ns = 0;
    assert_int_equal(device_crossing(d, &ns, NULL), ST_OK);
    assert_true(ns > 100 && ns < 1000000000);
    device_close(d);
}

static enum status run_slowly(struct device *d, const struct device_kernel *k,
                              const uint32_t *x, uint32_t groups, struct err *err) {
    const struct {
        uint64_t x;
        uint32_t start, unused;
    } push = {device_address(d, x), 2, 0};
    device_run(d, k, &push, sizeof push, MIN(groups, 4096), (uint32_t)div_up(groups, 4096), 1);
    return device_finish(d, err);
}

static void emulated_matrix_units_are_measured(void **state) {
    (void)state;
    setenv("LOCKSTEP_DEVICE_MATRIX", "16", 1);
    struct device *d = open_device(name);
    unsetenv("LOCKSTEP_DEVICE_MATRIX");
    struct device_roofs roofs = {0};
    struct err err;
    assert_int_equal(device_roofs(d, &roofs, &err), ST_OK);
    assert_true(device_info(d)->features[DEVICE_MATRIX] ==
                (env_get("LOCKSTEP_DEVICE_PROFILE") == NULL));
    assert_true((roofs.matrix_gops > 1e-4) == device_info(d)->features[DEVICE_MATRIX]);
    assert_true(roofs.matrix_gops < 1e8);
    device_close(d);
}

/* Whatever they are: more than nothing, and less than the best there is. */
static void roofs_are_measured(void **state) {
    struct device *d = open_device(name);
    struct device_roofs roofs = {0};
    struct err err;
    const struct device_counts before = device_counts(d);
    (void)state;
    assert_int_equal(device_roofs(d, &roofs, &err), ST_OK);
    assert_true(roofs.read_gbs > 1e-3 && roofs.read_gbs < 1e5);
    assert_true(roofs.int8_gops > 1e-3 && roofs.int8_gops < 1e8);
    assert_true(roofs.f32_gops > 1e-3 && roofs.f32_gops < 1e7);
    assert_true((roofs.matrix_gops > 0) == device_info(d)->features[DEVICE_MATRIX]);
    assert_int_equal(device_counts(d).submissions, before.submissions); /* it does not count */
    assert_false(device_has_work(d));
    device_close(d);
}

/* Twice as many workgroups each time, until they take longer than the second that is allowed.
 * Nothing goes on after that, and nothing waits. */
static void a_device_that_does_not_answer_is_lost(void **state) {
    struct err err = {0};
    enum status st = ST_OK;
    (void)state;
    setenv("LOCKSTEP_DEVICE_TIMEOUT", "1", 1);
    struct device *d = open_device(name);
    unsetenv("LOCKSTEP_DEVICE_TIMEOUT");
    uint32_t *x = mem_huge_alloc(2 * PAGE);
    struct device_kernel *k;
    map(d, x, PAGE, DEVICE_SHARED);
    assert_int_equal(device_kernel_make(d, &k, slow_spv, slow_spv_bytes, NULL, 0, NULL), ST_OK);
    for (uint32_t groups = 64; st == ST_OK && groups < (uint32_t)1 << 27; groups *= 2)
        st = run_slowly(d, k, x, groups, &err);
    assert_int_equal(st, ST_PEER_LOST);
    assert_non_null(strstr(err.text, device_info(d)->name));
    assert_non_null(strstr(err.text, "1 s"));
    double begin = clock_s();
    err.text[0] = '\0';
    assert_int_equal(run_slowly(d, k, x, 1, &err), ST_PEER_LOST);
    assert_non_null(strstr(err.text, device_info(d)->name));
    assert_int_equal(device_map(d, x + NUMBERS, PAGE, DEVICE_SHARED, NULL), ST_PEER_LOST);
    assert_int_equal(device_kernel_make(d, &k, slow_spv, slow_spv_bytes, NULL, 0, NULL),
                     ST_PEER_LOST);
    assert_true(clock_s() - begin < 0.5);
    device_unmap(d, x);
    device_close(d); /* waits for what still runs, at most a second; x stays in any case */
}
#endif

/* Whether Vulkan's validation layer looks on, if it was asked for. */
static bool is_validated(void) {
    char line[1024];
    bool found = env_get("VK_INSTANCE_LAYERS") == NULL;
    struct device *d = open_device(name);
    FILE *maps = fopen("/proc/self/maps", "r");
    while (!found && maps != NULL && fgets(line, sizeof line, maps) != NULL)
        found = strstr(line, "khronos_validation") != NULL;
    if (maps != NULL)
        fclose(maps);
    device_close(d);
    return found;
}

static bool can_run(void) {
    struct device_info *list;
    size_t n;
    char why[256];
    name = env_get("LOCKSTEP_TEST_DEVICE");
    if (name == NULL)
        name = "0";
    if (device_list(&list, &n, why, sizeof why, NULL) != ST_OK || n == 0) {
        printf("skip: %s\n", why);
        return false;
    }
    mem_free(list);
    if (is_validated())
        return true;
    printf("skip: Vulkan's validation layers are not installed\n");
    return false;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_says_what_is_there),
        cmocka_unit_test(without_a_library_the_list_is_empty),
        cmocka_unit_test(another_library_is_refused),
        cmocka_unit_test(a_device_has_names),
        cmocka_unit_test(other_names_are_answered_with_a_list),
        cmocka_unit_test(auto_is_hardware),
        cmocka_unit_test(features_can_be_taken_away),
        cmocka_unit_test(wrong_settings_are_refused),
        cmocka_unit_test(a_profile_lacks_what_others_have),
        cmocka_unit_test(addresses_follow_the_ranges),
        cmocka_unit_test(too_much_at_once_is_refused),
        cmocka_unit_test(smaller_pieces_can_be_asked_for),
#if defined(LOCKSTEP_HAS_SHADERS)
        cmocka_unit_test(a_run_reads_and_writes_shared_memory),
        cmocka_unit_test(runs_come_one_after_another),
        cmocka_unit_test(equal_lists_are_recorded_once),
        cmocka_unit_test(long_lists_are_run),
        cmocka_unit_test(runs_beside_each_other),
        cmocka_unit_test(many_workgroups_are_folded),
        cmocka_unit_test(nothing_to_do_is_done_at_once),
        cmocka_unit_test(a_copy_is_in_the_devices_memory),
#if defined(__x86_64__) || defined(__aarch64__)
        cmocka_unit_test(subnormals_are_flushed_if_asked),
#endif
        cmocka_unit_test(a_crossing_takes_some_time),
        cmocka_unit_test(roofs_are_measured),
        cmocka_unit_test(emulated_matrix_units_are_measured),
        cmocka_unit_test(a_device_that_does_not_answer_is_lost),
#endif
    };
    if (!can_run())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
