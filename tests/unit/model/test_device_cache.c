/* One cache, two that compute: what a device has put into it is byte for byte what the processor
 * puts there, and each goes on from what the other has left: keys and values, index keys, states.
 * labels: slow once */
#include "base/mem.h"
#include "base/util.h"
#include "device/device.h"
#include "device_fixture.h"
#include "engine/api_impl.h"
#include "model/model_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_PROMPT = 150, N_MORE = 12, N_CTX = 256 }; /* a prompt of three pages */

static const char *device = "0";

static struct lockstep *open_on(const char *model, const char *kv, const char *name) {
    struct lockstep_options opt;
    struct lockstep_error err;
    struct lockstep *ls = NULL;
    lockstep_options_init(&opt);
    opt.model_path = model;
    opt.devices = name;
    opt.kv = kv;
    opt.n_ctx = N_CTX;
    opt.n_threads = 1;
    if (lockstep_open(&ls, &opt, &err) != LOCKSTEP_OK)
        fail_msg("%s on %s: %s", model, name, err.text);
    return ls;
}

/* ---- what a sequence leaves behind ------------------------------------------------------- */

struct part {
    const char *what;
    void *p;
    size_t bytes;
};

static void parts_of(const struct lockstep *ls, struct part parts[4]) {
    const struct model *m = ls->in.rank.model;
    parts[0] = (struct part){"keys and values", m->kv.data, m->kv.data_bytes};
    parts[1] = (struct part){"index keys", m->index.kv.data, m->index.kv.data_bytes};
    parts[2] =
        (struct part){"compressed keys", m->compressed.kv.data, m->compressed.kv.data_bytes};
    parts[3] = (struct part){"states", m->states.data, m->states.data_bytes};
}

static void assert_same_cache(const struct lockstep *a, const struct lockstep *b,
                              const char *of) {
    struct part x[4], y[4];
    parts_of(a, x);
    parts_of(b, y);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(x[i].bytes, y[i].bytes);
        if (x[i].bytes != 0 && memcmp(x[i].p, y[i].p, x[i].bytes) != 0)
            fail_msg("%s: the %s differ", of, x[i].what);
    }
}

static void give_cache(struct lockstep *to, const struct lockstep *from) {
    struct part x[4], y[4];
    parts_of(to, x);
    parts_of(from, y);
    for (int i = 0; i < 4; i++)
        if (x[i].bytes != 0)
            memcpy(x[i].p, y[i].p, x[i].bytes);
}

/* ---- going on ---------------------------------------------------------------------------- */

struct logits {
    float *p;
    size_t n_vocab;
};

static bool keep(void *user, size_t first_pos, size_t n, const float *logits) {
    struct logits *r = user;
    memcpy(r->p + (first_pos - N_PROMPT) * r->n_vocab, logits, n * r->n_vocab * sizeof *logits);
    return true;
}

static void feed(struct lockstep *ls, const int32_t *ids, size_t n, struct logits *rows) {
    struct lockstep_error err;
    if (lockstep_eval(ls, ids, n, rows != NULL ? keep : NULL, rows, &err) != LOCKSTEP_OK)
        fail_msg("%s", err.text);
}

/* The logits of N_MORE tokens behind the prompt, some together, then one by one. */
static struct logits go_on(struct lockstep *ls, const int32_t *ids) {
    struct logits r = {.n_vocab = (size_t)lockstep_model_info(ls)->n_vocab};
    r.p = malloc(N_MORE * r.n_vocab * sizeof *r.p);
    assert_non_null(r.p);
    feed(ls, ids + N_PROMPT, N_MORE / 2, &r);
    for (size_t i = N_MORE / 2; i < N_MORE; i++)
        feed(ls, ids + N_PROMPT + i, 1, &r);
    return r;
}

static void assert_same_rows(const struct logits *a, const struct logits *b, const char *of) {
    if (memcmp(a->p, b->p, N_MORE * a->n_vocab * sizeof *a->p) != 0)
        fail_msg("%s: other logits", of);
}

/* `reader` has fed another prompt; with the cache of `writer` it goes on as `writer` would. */
static struct logits go_on_from(struct lockstep *reader, const struct lockstep *writer,
                                const int32_t *other, const int32_t *ids) {
    lockstep_reset(reader);
    feed(reader, other, N_PROMPT, NULL);
    give_cache(reader, writer);
    return go_on(reader, ids);
}

static void make_ids(int32_t *ids, size_t n, int n_vocab, uint32_t seed) {
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)((seed >> 8) % (uint32_t)n_vocab);
    }
}

static void check(const char *model, const char *kv) {
    if (access(model, R_OK) != 0)
        return;
    struct lockstep *on_device = open_on(model, kv, device),
                    *on_cpu = open_on(model, kv, "cpu");
    int32_t ids[N_PROMPT + N_MORE], other[N_PROMPT];
    int n_vocab = lockstep_model_info(on_cpu)->n_vocab;
    assert_non_null(on_device->in.rank.shaders);
    assert_null(on_cpu->in.rank.shaders);
    make_ids(ids, ARRAY_LEN(ids), n_vocab, 1);
    make_ids(other, ARRAY_LEN(other), n_vocab, 2);

    feed(on_device, ids, N_PROMPT, NULL);
    feed(on_cpu, ids, N_PROMPT, NULL);
    assert_same_cache(on_device, on_cpu, model);
    struct logits want = go_on(on_cpu, ids);

    struct logits cpu_reads = go_on_from(on_cpu, on_device, other, ids);
    assert_same_rows(&want, &cpu_reads, model);
    lockstep_reset(on_cpu);
    feed(on_cpu, ids, N_PROMPT, NULL);
    struct logits device_reads = go_on_from(on_device, on_cpu, other, ids);
    assert_same_rows(&want, &device_reads, model);
    free(want.p);
    free(cpu_reads.p);
    free(device_reads.p);
    lockstep_close(on_device);
    lockstep_close(on_cpu);
}

#define GOLDEN(name) SHARED_DIR "/golden/logits/" name ".gguf"

static void dense(void **state) {
    (void)state;
    check(SOURCE_DIR "/models/jargon-3m-f16.gguf", "f16");
    check(GOLDEN("llama"), "q8_0");
    check(GOLDEN("qwen3"), "f32");
}

static void windows(void **state) {
    (void)state;
    check(GOLDEN("gemma3"), "f16");
    check(GOLDEN("gpt-oss-mxfp4"), "q8_0");
}

static void mixtures(void **state) {
    (void)state;
    check(GOLDEN("qwen3moe"), "q8_0");
}

static void latents(void **state) {
    (void)state;
    check(GOLDEN("deepseek2-v3-mla"), "f16");
}

static void states(void **state) {
    (void)state;
    check(GOLDEN("qwen3next"), "f16");
    check(GOLDEN("qwen35"), "q8_0");
    check(GOLDEN("kimi-linear"), "f32");
    check(GOLDEN("granitehybrid"), "f16");
    check(GOLDEN("lfm2"), "f16");
}

/* Pages in several pieces of memory, of which a sequence needs more than one; a large matrix is in
 * several, too. */
static void pieces(void **state) {
    (void)state;
    setenv("LOCKSTEP_DEVICE_PIECE", "128", 1); /* 512 KiB */
    check(SOURCE_DIR "/models/jargon-3m-f16.gguf", "f32");
    check(GOLDEN("gemma3"), "f32");
    check(GOLDEN("qwen3next"), "f16");
    unsetenv("LOCKSTEP_DEVICE_PIECE");
}

/* Layers of which the processor does a part, in the same memory. */
static void states_and_index_keys(void **state) {
    (void)state;
    check(GOLDEN("glm-dsa"), "f16");
    check(GOLDEN("deepseek4"), "f16");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense),    cmocka_unit_test(windows),
        cmocka_unit_test(mixtures), cmocka_unit_test(latents),
        cmocka_unit_test(states),   cmocka_unit_test(states_and_index_keys),
        cmocka_unit_test(pieces),
    };
    if (!device_is_testable())
        return 77;
    if (getenv("LOCKSTEP_TEST_DEVICE") != NULL)
        device = getenv("LOCKSTEP_TEST_DEVICE");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
