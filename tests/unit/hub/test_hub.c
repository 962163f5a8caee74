/* test_hub.c: names of a hub's models, lists of files that strangers write, and which files are
 * the model that is asked for. The lists have the form of the hub's documentation, and names as
 * repositories there have them. */
#include "base/mem.h"
#include "base/util.h"
#include "cluster/model_files.h"
#include "hub/checksum.h"
#include "hub/files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define COMMIT "da39a3ee5e6b4b0d3255bfef95601890afd80709"

static void names(void **state) {
    static const char *const bad[] = {
        "",
        "qwen",
        "/repo",
        "org/",
        "org/repo/x",
        "../repo",
        "org/..",
        "org/a--b",
        "org/a..b",
        "org/re po",
        "org/repo:",
        "org/repo:../x",
        "org/repo:/etc",
        "org/repo:a//b",
        "org/repo:a/./b",
        "org/repo:a\n",
        "hf:",
        "hf:/",
        ".org/repo",
        "org/repo:a\\b",
    };
    struct hub_name n;
    struct err err;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(hub_name_parse(&n, bad[i], &err), ST_BAD_INPUT);
    assert_int_equal(hub_name_parse(&n, "hf:Qwen/Qwen3-0.6B-GGUF:Q8_0", &err), ST_OK);
    assert_string_equal(n.repo, "Qwen/Qwen3-0.6B-GGUF");
    assert_string_equal(n.want, "Q8_0");
    assert_int_equal(hub_name_parse(&n, "unsloth/a_b.c:BF16/x-00001-of-00002.gguf", &err),
                     ST_OK);
    assert_string_equal(n.want, "BF16/x-00001-of-00002.gguf");
    assert_int_equal(hub_name_parse(&n, "org/repo", &err), ST_OK);
    assert_string_equal(n.want, "");
}

/* Reads a list of files of one byte each; names: separated by spaces. */
static enum status read_list(struct hub_files *out, const char *list, struct err *err) {
    char text[2048], *rest = text;
    json_t *all = json_array();
    snprintf(text, sizeof text, "%s", list);
    for (char *name; (name = strsep(&rest, " ")) != NULL;)
        json_array_append_new(all, json_pack("{s:s, s:i, s:s, s:{s:s, s:i}}", "rfilename", name,
                                             "size", 1, "blobId", COMMIT, "lfs", "sha256",
                                             SHA256, "size", 1));
    json_t *reply = json_pack("{s:s, s:o}", "sha", COMMIT, "siblings", all);
    enum status st = hub_files_read(out, reply, err);
    json_decref(reply);
    return st;
}

/* The chosen names, separated by spaces; "" where none is; *st: why not. */
static const char *choose(const char *list, const char *want, enum status *st,
                          struct err *err) {
    static char chosen[1024];
    struct hub_files f;
    struct hub_name name = {"org/repo", ""};
    long first;
    snprintf(name.want, sizeof name.want, "%s", want);
    assert_int_equal(read_list(&f, list, err), ST_OK);
    *st = hub_files_choose(&f, &name, &first, err);
    *chosen = '\0';
    for (size_t i = 0; *st == ST_OK && i < f.n; i++) {
        size_t n = strlen(chosen);
        if (f.list[i].chosen)
            snprintf(chosen + n, sizeof chosen - n, "%s%s", n > 0 ? " " : "", f.list[i].name);
    }
    hub_files_deinit(&f);
    return chosen;
}

#define MANY                                                                                      \
    "README.md a-BF16.gguf a-F16.gguf a-Q4_K_M.gguf a-Q4_K_S.gguf a-Q8_0.gguf a-UD-Q2_K_XL.gguf " \
    "config.json imatrix.gguf mmproj-a-F16.gguf"
#define SPLIT \
    "a-Q8_0.gguf Q4_K_M/a-Q4_K_M-00001-of-00002.gguf Q4_K_M/a-Q4_K_M-00002-of-00002.gguf"

static void choices(void **state) {
    static const struct {
        const char *list, *want, *chosen;
    } rows[] = {
        {MANY, "", "a-Q4_K_M.gguf"},
        {MANY, "q8_0", "a-Q8_0.gguf"},
        {MANY, "F16", "a-F16.gguf"}, /* a word, and not a piece of BF16 */
        {MANY, "Q4_K_S", "a-Q4_K_S.gguf"},
        {MANY, "Q2_K", "a-UD-Q2_K_XL.gguf"}, /* a piece, where nothing else has it */
        {MANY, "UD-Q2_K_XL", "a-UD-Q2_K_XL.gguf"},
        {MANY, "A-bf16.GGUF", "a-BF16.gguf"},
        {SPLIT, "", "Q4_K_M/a-Q4_K_M-00001-of-00002.gguf Q4_K_M/a-Q4_K_M-00002-of-00002.gguf"},
        {SPLIT, "Q4_K_M/a-Q4_K_M-00001-of-00002.gguf",
         "Q4_K_M/a-Q4_K_M-00001-of-00002.gguf Q4_K_M/a-Q4_K_M-00002-of-00002.gguf"},
        {"a.gguf README.md", "", "a.gguf"}, /* the only one */
        {"config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
         "model.safetensors.index.json pytorch_model.bin consolidated.safetensors "
         "original/consolidated.00.pth onnx/model.onnx onnx/config.json tokenizer.json "
         "tokenizer.model chat_template.jinja merges.txt README.md .gitattributes",
         "",
         "config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
         "model.safetensors.index.json tokenizer.json tokenizer.model chat_template.jinja "
         "merges.txt"},
    };
    struct err err;
    enum status st;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_string_equal(choose(rows[i].list, rows[i].want, &st, &err), rows[i].chosen);
}

static void no_choice(void **state) {
    struct err err;
    enum status st;
    (void)state;
    choose("a-Q8_0.gguf a-Q2_K.gguf", "", &st, &err);
    assert_int_equal(st, ST_BAD_INPUT);
    assert_non_null(strstr(err.text, "Q8_0 (0.00 GB), Q2_K (0.00 GB)"));
    choose(MANY, "Q4_K", &st, &err); /* a piece of two */
    assert_int_equal(st, ST_BAD_INPUT);
    choose(MANY, "Q5_K_M", &st, &err);
    assert_int_equal(st, ST_NOT_FOUND);
    choose(MANY, "mmproj", &st, &err);
    assert_int_equal(st, ST_NOT_FOUND);
    choose("a-Q4_K_M-00001-of-00003.gguf a-Q4_K_M-00003-of-00003.gguf", "", &st, &err);
    assert_int_equal(st, ST_BAD_INPUT);
    choose("README.md pytorch_model.bin config.json", "", &st, &err);
    assert_int_equal(st, ST_NOT_FOUND);
    choose("config.json model.safetensors", "Q8_0", &st, &err);
    assert_int_equal(st, ST_NOT_FOUND);
}

static void hostile_lists(void **state) {
    static const char *const bad[] = {"../a.gguf", "/etc/a.gguf", "a/../../b.gguf",
                                      "a//b.gguf", ".",           "..",
                                      "a/.",       "a\x01.gguf"};
    static const char *const replies[] = {
        "[]",
        "{}",
        "{\"sha\":\"../../x\",\"siblings\":[]}",
        "{\"sha\":\"" COMMIT "\"}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":{}}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[1]}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":5}]}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"a\",\"size\":-1}]}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"a\",\"size\":1e300}]}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"a\"}]}"};
    struct hub_files f;
    struct err err;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(read_list(&f, bad[i], &err), ST_BAD_INPUT);
    for (size_t i = 0; i < ARRAY_LEN(replies); i++) {
        json_t *reply = json_loads(replies[i], 0, NULL);
        assert_non_null(reply);
        assert_int_equal(hub_files_read(&f, reply, &err), ST_BAD_INPUT);
        json_decref(reply);
    }
    /* What could be a path is no checksum. */
    json_t *reply =
        json_loads("{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"a\",\"size\":1,"
                   "\"blobId\":\"../../../x\"}]}",
                   0, NULL);
    assert_int_equal(hub_files_read(&f, reply, &err), ST_OK);
    assert_string_equal(f.list[0].hash, "");
    hub_files_deinit(&f);
    json_decref(reply);
}

/* The digests of nothing and of "abc" are FIPS 180's; git's are those of `git hash-object`. */
static void checksums(void **state) {
    static const struct {
        const char *text, *sum;
    } rows[] = {{"", SHA256},
                {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
                {"", "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"},
                {"abc", "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f"}};
    struct hub_checksum c;
    char is[HUB_HASH_BYTES];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        size_t n = strlen(rows[i].text);
        assert_int_equal(hub_checksum_begin(&c, rows[i].sum, n, NULL), ST_OK);
        assert_int_equal(hub_checksum_add(&c, rows[i].text, n, NULL), ST_OK);
        hub_checksum_end(&c, is);
        assert_string_equal(is, rows[i].sum);
    }
}

static void quants(void **state) {
    static const char *const rows[][2] = {{"Qwen3-0.6B-Q8_0.gguf", "Q8_0"},
                                          {"a/b-UD-IQ2_XXS-00001-of-00003.gguf", "UD-IQ2_XXS"},
                                          {"gpt-oss-20b-mxfp4.gguf", "mxfp4"},
                                          {"llama-3.1-bf16.gguf", "bf16"},
                                          {"model.Q4_K_M.gguf", "Q4_K_M"},
                                          {"qwen-q.gguf", ""},
                                          {"x-TQ1_0.gguf", "TQ1_0"}};
    char is[64];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        hub_quant_of(rows[i][0], is, sizeof is);
        assert_string_equal(is, rows[i][1]);
    }
}

/* What a model of the cache is called where it is served. */
static void names_of_snapshots(void **state) {
    static const char *const rows[][2] = {
        {"/c/models--Qwen--Qwen3-8B/snapshots/" COMMIT, "Qwen3-8B"},
        {"/c/models--Qwen--Qwen3-8B/snapshots/" COMMIT "/", "Qwen3-8B"},
        {"/c/models--Qwen--Qwen3-8B/snapshots/" COMMIT "/a-Q8_0.gguf", "a-Q8_0"},
        {"/c/other/snapshots/" COMMIT, COMMIT},
        {"models--a--/snapshots/" COMMIT, COMMIT},
        {"/snapshots/" COMMIT, COMMIT}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *is = model_name_of(rows[i][0]);
        assert_string_equal(is, rows[i][1]);
        mem_free(is);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(choices),
        cmocka_unit_test(no_choice),
        cmocka_unit_test(hostile_lists),
        cmocka_unit_test(checksums),
        cmocka_unit_test(quants),
        cmocka_unit_test(names_of_snapshots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
