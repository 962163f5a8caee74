/* shaders_fixture.h: the device of the tests of shaders, with and without what it may lack, and
 * mapped memory to compute in. */
#ifndef LOCKSTEP_TESTS_SHADERS_FIXTURE_H
#define LOCKSTEP_TESTS_SHADERS_FIXTURE_H

#include "device_fixture.h"
#include "kernel_fixture.h"

#include "base/mem.h"
#include "shaders/samples.h"
#include "shaders/shaders.h"

#include <stdlib.h>

/* ---- devices ----------------------------------------------------------------------------- */

/* What each is without: a fused FMA is done by f64, or by f32 alone; packed dot products by
 * shifts. */
static const char *const without[] = {"fma", "fma,f64", "dot"};
#define VARIANTS ARRAY_LEN(without)

#define MEMORY (16u << 20)

/* An open device, and mapped memory of which tests take pieces. */
struct on {
    struct device *d;
    struct shaders *s;
    uint8_t *memory;
    size_t used;
    const char *without;
};
static struct on devices[VARIANTS];

static inline void open_variant(struct on *on, const char *lacks) {
    struct err err = {0};
    const char *name = getenv("LOCKSTEP_TEST_DEVICE");
    setenv("LOCKSTEP_DEVICE_WITHOUT", lacks, 1);
    if (device_open(&on->d, name != NULL ? name : "0", &err) != ST_OK ||
        shaders_open(&on->s, on->d, &err) != ST_OK)
        fail_msg("without %s: %s", lacks, err.text);
    on->memory = mem_huge_alloc(MEMORY);
    on->without = lacks;
    if (device_map(on->d, on->memory, MEMORY, DEVICE_SHARED, &err) != ST_OK)
        fail_msg("without %s: %s", lacks, err.text);
    unsetenv("LOCKSTEP_DEVICE_WITHOUT");
}

static inline void close_variant(struct on *on) {
    shaders_close(on->s);
    device_unmap(on->d, on->memory);
    device_close(on->d);
    mem_huge_free(on->memory, MEMORY);
}

#define FOR_EACH_DEVICE(on) \
    for (struct on *on = devices; on < devices + VARIANTS; on->used = 0, on++)

static inline void *take(struct on *on, size_t bytes) {
    uint8_t *p = on->memory + on->used;
    on->used += round_up(bytes, 64);
    assert_true(on->used <= MEMORY);
    return p;
}

static inline void *take_copy(struct on *on, const void *from, size_t bytes) {
    return memcpy(take(on, bytes), from, bytes);
}

static inline float *take_floats(struct on *on, size_t n, uint64_t seed) {
    float *x = take(on, n * sizeof *x);
    samples_floats(x, n, seed);
    return x;
}

static inline float *take_blocks(struct on *on, size_t n, uint64_t seed) {
    float *x = take(on, n * sizeof *x);
    samples_blocks(x, n, seed);
    return x;
}

static inline struct act take_act(struct on *on, enum act_kind kind, uint32_t n_tokens,
                                  uint32_t n_cols) {
    uint8_t *at = take(on, samples_act_bytes(kind, n_tokens, n_cols));
    return samples_act_at(at, kind, n_tokens, n_cols);
}

static inline void finish(struct on *on) {
    struct err err = {0};
    if (device_finish(on->d, &err) != ST_OK)
        fail_msg("without %s: %s", on->without, err.text);
}

static inline void compare(const struct on *on, const float *got, const float *want, size_t n,
                           const char *what) {
    check_floats(got, want, n, on->without, what, 0);
}

static inline void compare_bytes(const struct on *on, const void *got, const void *want,
                                 size_t n, const char *what) {
    if (memcmp(got, want, n) != 0)
        fail_msg("without %s: %s", on->without, what);
}

static inline int open_all(void **state) {
    (void)state;
    for (size_t i = 0; i < VARIANTS; i++)
        open_variant(&devices[i], without[i]);
    return 0;
}

static inline int close_all(void **state) {
    (void)state;
    for (size_t i = 0; i < VARIANTS; i++)
        close_variant(&devices[i]);
    return 0;
}

#endif
