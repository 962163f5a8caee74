/* Weights that come from elsewhere slice by slice are those that are read from the file, byte
 * for byte: all models of the golden set, several shares of each. And a source that fails is
 * one error, not a half-loaded rank.
 * labels: waits */
#include "arch/hparams.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/util.h"
#include "cluster/model_files.h"
#include "weights/plan.h"
#include "weights/weights.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* A source that reads the file beside, counts, and fails after so many bytes. */
struct counted {
    int fd;
    _Atomic uint64_t bytes;
    uint64_t limit;
};

static enum status read_counted(void *user, uint32_t part, uint64_t at, size_t n,
                                uint64_t stride, size_t count, uint8_t *out, size_t out_stride,
                                struct err *err) {
    struct counted *c = user;
    assert_int_equal(part, 0);
    if (atomic_fetch_add(&c->bytes, n * count) + n * count > c->limit)
        return err_set(err, ST_IO, "the wire was cut");
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pread(c->fd, out + i * out_stride, n, (off_t)(at + i * stride)), n);
    return ST_OK;
}

/* The first bytes of the file, alone. */
static void copy_head(const char *path, const char *to, uint64_t n) {
    uint8_t *bytes = mem_alloc((size_t)n);
    FILE *in = fopen(path, "rb"), *out = fopen(to, "wb");
    assert_non_null(bytes);
    assert_non_null(in);
    assert_non_null(out);
    assert_int_equal(fread(bytes, 1, (size_t)n, in), n);
    assert_int_equal(fwrite(bytes, 1, (size_t)n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
    mem_free(bytes);
}

static const struct gguf_options header_only = {.header_only = true};
static char head_path[] = "/tmp/test_weights_source-XXXXXX";
static struct pool *pool;

static int open_all(void **state) {
    (void)state;
    int fd = mkstemp(head_path);
    if (fd < 0)
        return -1;
    close(fd);
    return pool_open(&pool, 2, NULL) == ST_OK ? 0 : -1;
}

static int close_all(void **state) {
    (void)state;
    pool_close(pool);
    return unlink(head_path);
}

static void compare(const struct weights *here, const struct weights *there,
                    const struct hparams *hp, bool embeds) {
    assert_int_equal(here->block_bytes, there->block_bytes);
    if (here->block_bytes != 0)
        assert_memory_equal(here->block, there->block, here->block_bytes);
    float *a = mem_alloc(hp->n_embd * sizeof *a), *b = mem_alloc(hp->n_embd * sizeof *b);
    for (uint32_t id = 0; embeds && id < hp->n_vocab; id += 1 + hp->n_vocab / 7) {
        weights_embed_row(here, (int32_t)id, a);
        weights_embed_row(there, (int32_t)id, b);
        assert_memory_equal(a, b, hp->n_embd * sizeof *a);
    }
    mem_free(a);
    mem_free(b);
    for (uint32_t l = 0; l < here->n_layers; l++) {
        const struct moe_weights *moe = here->layers[l].moe;
        if (moe != NULL && moe->of_token != NULL)
            assert_memory_equal(moe->of_token, there->layers[l].moe->of_token,
                                (size_t)hp->n_vocab * hp->moe.n_used * sizeof *moe->of_token);
    }
}

struct model {
    struct gguf *whole, *head;
    struct hparams hp, head_hp; /* strings of each file's own */
    struct counted from;
};

/* False: golden/logits holds models of architectures that lockstep does not know yet, too. */
static bool open_model(struct model *m, const char *path) {
    struct model_files files;
    struct err err;
    assert_int_equal(model_files_read(&files, path, &err), ST_OK);
    assert_int_equal(model_files_find_heads(&files, path, &err), ST_OK);
    assert_true(model_files_have_heads(&files));
    copy_head(path, head_path, files.list[0].head);
    model_files_deinit(&files);
    assert_int_equal(gguf_open(&m->whole, path, NULL, &err), ST_OK);
    assert_int_equal(gguf_open(&m->head, head_path, &header_only, &err), ST_OK);
    enum status st = hparams_read(&m->hp, m->whole, &err);
    if (st == ST_UNSUPPORTED) {
        gguf_close(m->whole);
        gguf_close(m->head);
        return false;
    }
    assert_int_equal(st, ST_OK);
    assert_int_equal(hparams_read(&m->head_hp, m->head, &err), ST_OK);
    m->from = (struct counted){.fd = open(path, O_RDONLY), .limit = UINT64_MAX};
    assert_true(m->from.fd >= 0);
    return true;
}

static void close_model(struct model *m) {
    gguf_close(m->whole);
    gguf_close(m->head);
    close(m->from.fd);
}

/* Rank 1 of 2 in tensor (sliced and whole experts), of 3 with odd shares, and both stages of a
 * pipeline. */
static void check_shares(struct model *m, const char *path) {
    static const struct {
        int tp, pp, rank, n_weights;
        double weights[3];
        enum experts_mode experts;
    } cases[] = {{1, 1, 0, 0, {0}, EXPERTS_SLICE}, {2, 1, 1, 0, {0}, EXPERTS_SLICE},
                 {2, 1, 0, 0, {0}, EXPERTS_WHOLE}, {3, 1, 1, 3, {1, 2, 1}, EXPERTS_SLICE},
                 {1, 2, 0, 0, {0}, EXPERTS_SLICE}, {1, 2, 1, 0, {0}, EXPERTS_SLICE}};
    const struct file_source source = {read_counted, &m->from};
    const struct gguf_tensor *inputs = gguf_tensor(m->whole, "per_layer_token_embd.weight");
    uint64_t embeddings = gguf_tensor(m->whole, "token_embd.weight")->size_bytes +
                          (inputs != NULL ? inputs->size_bytes : 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct plan plan;
        struct weights here, there;
        struct err err;
        assert_int_equal(plan_make(&plan, &m->hp, m->whole, cases[i].tp, cases[i].pp,
                                   cases[i].weights, cases[i].n_weights, cases[i].experts,
                                   &err),
                         ST_OK);
        const struct share *share = &plan.shares[cases[i].rank];
        assert_int_equal(
            weights_load(&here, m->whole, &m->hp, share, NULL, 0, pool, NULL, NULL, &err),
            ST_OK);
        m->from.bytes = 0;
        enum status st = weights_load(&there, m->head, &m->head_hp, share, &source, 0, pool,
                                      NULL, NULL, &err);
        if (st != ST_OK)
            fail_msg("%s: %s", path, err.text);
        compare(&here, &there, &m->hp, share->stage == 0);
        /* What is packed, at most by a block's rounding larger in the file, and the embeddings. */
        assert_true(m->from.bytes <= there.packed_bytes * 2 + embeddings);
        assert_true(m->from.bytes <= gguf_file_bytes(m->whole) + embeddings);
        weights_free(&here);
        weights_free(&there);
    }
}

/* Wherever the wire is cut. */
static void check_failures(struct model *m) {
    const struct file_source source = {read_counted, &m->from};
    struct plan plan;
    struct weights w;
    struct err err;
    assert_int_equal(plan_make(&plan, &m->hp, m->whole, 1, 1, NULL, 0, EXPERTS_SLICE, &err),
                     ST_OK);
    m->from.bytes = 0;
    assert_int_equal(weights_load(&w, m->head, &m->head_hp, &plan.shares[0], &source, 0, pool,
                                  NULL, NULL, &err),
                     ST_OK);
    weights_free(&w);
    uint64_t all = m->from.bytes;
    for (int i = 0; i < 8; i++) {
        m->from.bytes = 0;
        m->from.limit = all * (uint64_t)i / 8;
        assert_int_equal(weights_load(&w, m->head, &m->head_hp, &plan.shares[0], &source, 0,
                                      pool, NULL, NULL, &err),
                         ST_IO);
        assert_string_equal(err.text, "the wire was cut");
    }
    m->from.limit = UINT64_MAX;
}

static int check_folder(const char *folder) {
    DIR *dir = opendir(folder);
    int n = 0;
    if (dir == NULL)
        return 0;
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char path[PATH_MAX];
        struct model m;
        const char *dot = strrchr(e->d_name, '.');
        if (dot == NULL || !str_eq(dot, ".gguf"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (!open_model(&m, path))
            continue;
        check_shares(&m, path);
        if (n++ % 8 == 0)
            check_failures(&m);
        close_model(&m);
    }
    closedir(dir);
    return n;
}

static void test_bundled(void **state) {
    (void)state;
    assert_int_equal(check_folder(SOURCE_DIR "/models"), 1);
}

static void test_golden(void **state) {
    (void)state;
    int n = check_folder(SHARED_DIR "/golden/logits") +
            check_folder(SHARED_DIR "/golden/quant-models");
    printf("%d models\n", n);
}

/* A header without its data and nobody who has them. */
static void test_no_source(void **state) {
    (void)state;
    struct model m;
    struct err err;
    struct gguf *g = NULL;
    assert_true(open_model(&m, SOURCE_DIR "/models/jargon-3m-f16.gguf"));
    assert_int_equal(gguf_open(&g, head_path, NULL, &err), ST_BAD_INPUT);
    assert_null(g);
    close_model(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bundled),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_no_source),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
