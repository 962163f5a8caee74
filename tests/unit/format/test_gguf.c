/* GGUF: the hostile set, every truncation of a valid file at a guard page, getters, split
 * models. */
#include "base/util.h"
#include "fixture.h"
#include "format/gguf.h"
#include "format/gguf_parse.h"
#include "format/gguf_write.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>

#include <cmocka.h>
#include <jansson.h>

/* Well-formed containers whose keys or tensors do not make a model: model/ and tokenizer/
 * refuse these. Everything else that list.json rejects must not get past gguf_open(). */
static const char *const left_to_later_rooms[] = {
    "arch-missing.gguf",       "arch-wrong-type.gguf",   "arch-unknown.gguf",
    "tensor-missing.gguf",     "tensor-shape.gguf",      "vocab-mismatch.gguf",
    "head-count-0.gguf",       "head-count-kv-0.gguf",   "head-count-kv-3.gguf",
    "block-count-0.gguf",      "block-count-max.gguf",   "block-count-string.gguf",
    "embedding-length-0.gguf", "rope-dims-64.gguf",      "key-length-2e31.gguf",
    "tokens-wrong-type.gguf",  "token-types-short.gguf", "tokens-empty.gguf",
    "experts-used-9.gguf",     "experts-8-of-4.gguf",    "experts-max.gguf",
};

static bool is_left_to_later(const char *file) {
    for (size_t i = 0; i < ARRAY_LEN(left_to_later_rooms); i++)
        if (str_eq(file, left_to_later_rooms[i]))
            return true;
    return false;
}

static void check_hostile(const char *file, const char *expect) {
    char name[256];
    snprintf(name, sizeof name, "hostile/%s", file);
    struct gguf *g = NULL;
    struct err err = {.text = ""};
    enum status st = gguf_open(&g, golden_path(name), NULL, &err);
    bool must_open = str_eq(expect, "accept") || is_left_to_later(file);
    if (must_open && st != ST_OK)
        fail_msg("%s: refused: %s", file, err.text);
    if (str_eq(expect, "reject") && !must_open && st == ST_OK)
        fail_msg("%s: opened", file);
    if (st != ST_OK) {
        assert_null(g);
        assert_true(strstr(err.text, file) != NULL && strlen(err.text) > strlen(file) + 10);
    }
    gguf_close(g);
}

static void hostile_files_are_refused(void **state) {
    (void)state;
    golden_or_skip("hostile/list.json");
    json_t *list = json_load_file(golden_path("hostile/list.json"), 0, NULL);
    assert_true(json_array_size(list) > 80);
    size_t i;
    json_t *entry;
    json_array_foreach(list, i, entry)
        check_hostile(json_string_value(json_object_get(entry, "file")),
                      json_string_value(json_object_get(entry, "expect")));
    json_decref(list);
}

/* ---- guard pages ------------------------------------------------------------------- */

/* A parser that reads one byte too far crashes here. */
static void every_truncation_is_refused_at_a_guard_page(void **state) {
    (void)state;
    golden_or_skip("hostile/valid.gguf");
    size_t len = 0, page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *file = read_whole(golden_path("hostile/valid.gguf"), &len);
    assert_non_null(file);
    size_t room = round_up(len, page);
    uint8_t *map =
        mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map + room, page, PROT_NONE), 0);
    size_t shortest = 0;
    for (size_t n = 0; n <= len; n++) {
        uint8_t *bytes = map + room - n;
        memcpy(bytes, file, n);
        struct gguf_header h;
        struct err err = {.text = ""};
        enum status st = gguf_parse(&h, bytes, n, NULL, &err);
        if (st == ST_OK) {
            shortest = shortest ? shortest : n;
            gguf_header_deinit(&h);
        } else {
            assert_int_equal(shortest, 0);
            assert_true(strlen(err.text) > 10);
        }
    }
    /* Only padding after the last tensor may be missing. */
    assert_true(shortest > len - 32 && shortest <= len);
    munmap(map, room + page);
    free(file);
}

/* ---- what the writer writes, the reader reads -------------------------------------- */

static char dir[] = "/tmp/lockstep-test-gguf-XXXXXX";

static const char *in_dir(const char *name) {
    static char path[2][256];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static struct gguf *open_or_fail(const char *path, const struct gguf_options *opts) {
    struct gguf *g = NULL;
    struct err err = {.text = ""};
    if (gguf_open(&g, path, opts, &err) != ST_OK)
        fail_msg("%s", err.text);
    return g;
}

static void write_keys(struct gguf_writer *w) {
    struct gguf_str words[] = {{"one", 3}, {"", 0}, {"t\0wo", 4}};
    gguf_write_u32(w, "a.u32", 4000000000u);
    gguf_write_u64(w, "a.u64", UINT64_MAX);
    gguf_write_f32(w, "a.f32", 0.5f);
    gguf_write_f32(w, "a.long", 1000042); /* a true rope base (Falcon 3) */
    gguf_write_bool(w, "a.bool", true);
    gguf_write_str(w, "a.str", "replaced below");
    gguf_write_str(w, "a.str", "line\nbreak");
    gguf_write_str_array(w, "a.words", words, 3);
    gguf_write_f32_array(w, "a.floats", (float[]){1, -2.5f}, 2);
    gguf_write_i32_array(w, "a.ints", (int32_t[]){7, -8, 9}, 3);
    gguf_write_i32_array(w, "a.nothing", NULL, 0);
}

/* x: 3 x 2 f32; y: 64 x 3 q8_0, whose size is no multiple of the alignment; z: 1 i8. */
static void write_infos(struct gguf_writer *w) {
    gguf_write_tensor_info(w, "x", QT_F32, 2, (uint64_t[]){3, 2});
    gguf_write_tensor_info(w, "y", QT_Q8_0, 2, (uint64_t[]){64, 3});
    gguf_write_tensor_info(w, "z", QT_I8, 1, (uint64_t[]){1});
}

#define DATA_BYTES (24 + 204 + 1)

static void write_sample(const char *path, size_t piece, bool header_only) {
    struct gguf_writer *w;
    struct err err;
    uint8_t data[DATA_BYTES];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7);
    assert_int_equal(gguf_writer_open(&w, path, &err), ST_OK);
    write_keys(w);
    write_infos(w);
    assert_int_equal(gguf_writer_begin_data(w, header_only, &err), ST_OK);
    for (size_t i = 0; i < sizeof data && !header_only; i += piece)
        assert_int_equal(gguf_write_data(w, data + i, MIN(piece, sizeof data - i), &err),
                         ST_OK);
    assert_int_equal(gguf_writer_finish(w, &err), ST_OK);
    gguf_writer_close(w);
}

static void check_keys(const struct gguf *g) {
    struct err err;
    uint32_t u32 = 1;
    uint64_t u64;
    float f32;
    bool b;
    struct gguf_str s;
    struct gguf_array a;
    assert_int_equal(gguf_n_keys(g), 10);
    assert_int_equal(gguf_u32(g, "a.u32", &u32, &err), ST_OK);
    assert_true(u32 == 4000000000u);
    assert_int_equal(gguf_u64(g, "a.u32", &u64, &err), ST_OK);
    assert_int_equal(gguf_u64(g, "a.u64", &u64, &err), ST_OK);
    assert_true(u64 == UINT64_MAX);
    assert_int_equal(gguf_f32(g, "a.f32", &f32, &err), ST_OK);
    assert_true(f32 == 0.5f);
    assert_int_equal(gguf_f32(g, "a.u32", &f32, &err), ST_OK);
    assert_true(f32 == 4e9f);
    assert_int_equal(gguf_bool(g, "a.bool", &b, &err), ST_OK);
    assert_true(b);
    assert_int_equal(gguf_str(g, "a.str", &s, &err), ST_OK);
    assert_int_equal(s.len, 10);
    assert_memory_equal(s.ptr, "line\nbreak", 10);
    assert_int_equal(gguf_array(g, "a.words", &a, &err), ST_OK);
    assert_true(a.type == GGUF_STRING && a.n == 3 && a.strs[1].len == 0);
    assert_memory_equal(a.strs[2].ptr, "t\0wo", 4);
    assert_int_equal(gguf_array(g, "a.ints", &a, &err), ST_OK);
    assert_int_equal(gguf_array_int(&a, 1), -8);
    assert_true(gguf_array_float(&a, 2) == 9.0);
    assert_int_equal(gguf_array(g, "a.floats", &a, &err), ST_OK);
    assert_true(gguf_array_float(&a, 1) == -2.5);
    assert_int_equal(gguf_array(g, "a.nothing", &a, &err), ST_OK);
    assert_int_equal(a.n, 0);
}

static void refusals_name_file_and_key(const struct gguf *g) {
    struct err err;
    uint32_t u32 = 7;
    struct gguf_array a;
    assert_int_equal(gguf_u32(g, "a.missing", &u32, &err), ST_NOT_FOUND);
    assert_non_null(strstr(err.text, "a.missing"));
    assert_int_equal(gguf_u32(g, "a.u64", &u32, &err), ST_BAD_INPUT);
    assert_non_null(strstr(err.text, "a.u64"));
    assert_non_null(strstr(err.text, gguf_path(g)));
    assert_int_equal(gguf_u32(g, "a.str", &u32, &err), ST_BAD_INPUT);
    assert_int_equal(gguf_array(g, "a.str", &a, &err), ST_BAD_INPUT);
    assert_int_equal(u32, 7); /* outputs are written only on success */
    assert_false(gguf_has(g, "a"));
}

static void check_text(const struct gguf *g, const char *key, size_t size,
                       const char *expected) {
    char buf[64];
    gguf_value_text(g, key, buf, size);
    assert_string_equal(buf, expected);
}

static void values_as_text(const struct gguf *g) {
    check_text(g, "a.str", 64, "line\\x0abreak");
    check_text(g, "a.str", 14, "line\\x0abreak");
    check_text(g, "a.str", 13, "line\\x0ab...");
    check_text(g, "a.str", 1, "");
    check_text(g, "a.words", 64, "[3 strings]");
    check_text(g, "a.ints", 64, "[3 i32]");
    check_text(g, "a.u64", 64, "18446744073709551615");
    check_text(g, "a.bool", 64, "true");
    check_text(g, "a.f32", 64, "0.5");
    check_text(g, "a.long", 64, "1000042");
    check_text(g, "a.missing", 64, "(absent)");
}

static void check_tensors(const struct gguf *g) {
    assert_int_equal(gguf_n_tensors(g), 3);
    const struct gguf_tensor *x = gguf_tensor(g, "x"), *y = gguf_tensor(g, "y");
    const struct gguf_tensor *z = gguf_tensor(g, "z");
    assert_ptr_equal(y, gguf_tensor_at(g, 1));
    assert_null(gguf_tensor(g, ""));
    assert_null(gguf_tensor(g, "xx"));
    assert_true(y->n_dims == 2 && y->dims[0] == 64 && y->dims[1] == 3 && y->dims[2] == 1);
    assert_true(x->size_bytes == 24 && y->size_bytes == 204 && z->size_bytes == 1);
    assert_int_equal(x->data[23], 23 * 7);
    assert_int_equal(y->data[0], 24 * 7);
    assert_int_equal(z->data[0], (uint8_t)(228 * 7));
    assert_int_equal((uintptr_t)y->data % 32, 0);
}

static void what_is_written_is_read(void **state) {
    (void)state;
    static const size_t pieces[] = {1, 5, 24, 100, DATA_BYTES};
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        write_sample(in_dir("sample.gguf"), pieces[i], false);
        struct gguf *g = open_or_fail(in_dir("sample.gguf"), NULL);
        assert_int_equal(access(in_dir("sample.gguf.part"), F_OK), -1);
        check_keys(g);
        refusals_name_file_and_key(g);
        values_as_text(g);
        check_tensors(g);
        gguf_forget(g, gguf_tensor_at(g, 0)->data, DATA_BYTES);
        check_tensors(g);
        gguf_close(g);
    }
}

static void a_header_alone_needs_its_option(void **state) {
    (void)state;
    write_sample(in_dir("header.gguf"), 1, true);
    struct gguf *g = NULL;
    struct err err;
    assert_int_equal(gguf_open(&g, in_dir("header.gguf"), NULL, &err), ST_BAD_INPUT);
    const struct gguf_options opts = {.header_only = true};
    g = open_or_fail(in_dir("header.gguf"), &opts);
    check_keys(g);
    assert_null(gguf_tensor(g, "y")->data);
    assert_int_equal(gguf_tensor(g, "y")->size_bytes, 204);
    gguf_close(g);
    /* The option does no harm to a file with data. */
    write_sample(in_dir("sample.gguf"), 50, false);
    g = open_or_fail(in_dir("sample.gguf"), &opts);
    check_tensors(g);
    gguf_close(g);
}

static void an_unfinished_file_does_not_appear(void **state) {
    (void)state;
    struct gguf_writer *w;
    struct err err;
    assert_int_equal(gguf_writer_open(&w, in_dir("half.gguf"), &err), ST_OK);
    write_infos(w);
    assert_int_equal(gguf_writer_begin_data(w, false, &err), ST_OK);
    assert_int_equal(gguf_write_data(w, "abc", 3, &err), ST_OK);
    assert_int_equal(gguf_writer_finish(w, &err), ST_BAD_INPUT);
    assert_non_null(strstr(err.text, "tensor x"));
    gguf_writer_close(w);
    assert_int_equal(access(in_dir("half.gguf"), F_OK), -1);
    assert_int_equal(access(in_dir("half.gguf.part"), F_OK), -1);

    assert_int_equal(gguf_writer_open(&w, in_dir("no/such/dir.gguf"), &err), ST_IO);
    assert_int_equal(gguf_writer_open(&w, in_dir("bad.gguf"), &err), ST_OK);
    gguf_write_tensor_info(w, "t", QT_Q4_K, 1, (uint64_t[]){128});
    write_infos(w);
    assert_int_equal(gguf_writer_begin_data(w, false, &err), ST_BAD_INPUT);
    assert_non_null(strstr(err.text, "q4_K"));
    gguf_writer_close(w);
}

static void keys_are_copied_between_files(void **state) {
    (void)state;
    write_sample(in_dir("sample.gguf"), 50, false);
    struct gguf *g = open_or_fail(in_dir("sample.gguf"), NULL);
    struct gguf_writer *w;
    struct err err;
    assert_int_equal(gguf_writer_open(&w, in_dir("copy.gguf"), &err), ST_OK);
    gguf_write_str(w, "a.str", "this comes first and is replaced");
    gguf_write_keys_of(w, g);
    gguf_close(g);
    assert_int_equal(gguf_writer_begin_data(w, false, &err), ST_OK);
    assert_int_equal(gguf_writer_finish(w, &err), ST_OK);
    gguf_writer_close(w);
    g = open_or_fail(in_dir("copy.gguf"), NULL); /* no tensors, as a vocabulary has */
    check_keys(g);
    gguf_close(g);
}

/* ---- split models ------------------------------------------------------------------ */

struct part_says {
    uint32_t no, count, total;
    const char *tensor;
};

static void write_part(const char *path, struct part_says says) {
    struct gguf_writer *w;
    struct err err;
    assert_int_equal(gguf_writer_open(&w, path, &err), ST_OK);
    if (says.no == 0)
        gguf_write_str(w, "general.name", "in three parts");
    gguf_write_u32(w, "split.no", says.no);
    gguf_write_u32(w, "split.count", says.count);
    gguf_write_u32(w, "split.tensors.count", says.total);
    if (says.tensor)
        gguf_write_tensor_info(w, says.tensor, QT_I32, 1, (uint64_t[]){1});
    assert_int_equal(gguf_writer_begin_data(w, false, &err), ST_OK);
    if (says.tensor)
        assert_int_equal(gguf_write_data(w, &(uint32_t){100 + says.no}, 4, &err), ST_OK);
    assert_int_equal(gguf_writer_finish(w, &err), ST_OK);
    gguf_writer_close(w);
}

#define PART(n) in_dir("model-0000" #n "-of-00003.gguf")

static void write_good_parts(void) {
    write_part(PART(1),
               (struct part_says){0, 3, 2, NULL}); /* metadata only, as some tools write */
    write_part(PART(2), (struct part_says){1, 3, 2, "a"});
    write_part(PART(3), (struct part_says){2, 3, 2, "b"});
}

static void check_split_refused(const char *path, const char *word) {
    struct gguf *g = NULL;
    struct err err = {.text = ""};
    assert_int_not_equal(gguf_open(&g, path, NULL, &err), ST_OK);
    assert_null(g);
    if (!strstr(err.text, word))
        fail_msg("'%s' does not say %s", err.text, word);
}

static void split_models_are_joined(void **state) {
    (void)state;
    write_good_parts();
    struct gguf *g = open_or_fail(PART(1), NULL);
    assert_int_equal(gguf_n_parts(g), 3);
    assert_int_equal(gguf_n_tensors(g), 2);
    const struct gguf_tensor *b = gguf_tensor(g, "b");
    assert_true(b->part == 2 && b->data[0] == 102 && gguf_tensor(g, "a")->data[0] == 101);
    assert_string_equal(gguf_part_path(g, 2), PART(3));
    check_text(g, "general.name", 64, "in three parts");
    gguf_close(g);
}

static void broken_splits_are_refused(void **state) {
    (void)state;
    write_good_parts();
    check_split_refused(PART(2), "open the first");
    write_part(PART(3), (struct part_says){1, 3, 2, "b"});
    check_split_refused(PART(1), "expected part 3 of 3");
    write_part(PART(3), (struct part_says){2, 4, 2, "b"});
    check_split_refused(PART(1), "expected part 3 of 3");
    write_part(PART(3), (struct part_says){2, 3, 2, "a"});
    check_split_refused(PART(1), "two parts");
    write_part(PART(3), (struct part_says){2, 3, 2, NULL});
    check_split_refused(PART(1), "split.tensors.count");
    assert_int_equal(unlink(PART(3)), 0);
    check_split_refused(PART(1), "model-00003-of-00003.gguf: No such file");
    check_split_refused(in_dir("absent.gguf"), "No such file");
    check_split_refused(dir, "not a regular file"); /* hf_open_any() opens folders */
}

static int make_dir(void **state) {
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    static const char *const names[] = {"sample.gguf", "header.gguf", "copy.gguf"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        unlink(in_dir(names[i]));
    unlink(PART(1));
    unlink(PART(2));
    return rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_files_are_refused),
        cmocka_unit_test(every_truncation_is_refused_at_a_guard_page),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(a_header_alone_needs_its_option),
        cmocka_unit_test(an_unfinished_file_does_not_appear),
        cmocka_unit_test(keys_are_copied_between_files),
        cmocka_unit_test(split_models_are_joined),
        cmocka_unit_test(broken_splits_are_refused),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
