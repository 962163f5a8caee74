/* The cluster's key and what follows from it, which files a model is, and what a client makes
 * of answers.
 * labels: waits */
#include "base/content.h"
#include "base/mem.h"
#include "base/util.h"
#include "cluster/client.h"
#include "cluster/identity.h"
#include "cluster/model_files.h"
#include "cluster/source.h"
#include "cluster/store.h"
#include "net/http.h"
#include "node/model_share.h"

#include <fcntl.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

static const struct cluster_key some_key = {
    {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};

/* ---- the key ----------------------------------------------------------------------------- */

static void test_key_text(void **state) {
    (void)state;
    struct cluster_key key, back;
    char text[CLUSTER_KEY_TEXT_BYTES];
    struct err err;
    for (int i = 0; i < 200; i++) {
        assert_int_equal(cluster_key_make(&key, &err), ST_OK);
        cluster_key_text(&key, text);
        assert_int_equal(strlen(text), CLUSTER_KEY_TEXT_BYTES - 1);
        assert_int_equal(cluster_key_parse(&back, text, &err), ST_OK);
        assert_memory_equal(&key, &back, sizeof key);
    }
}

/* Any one mistyped character is noticed, nearly always: the sum has 12 bits. */
static void test_key_mistyped(void **state) {
    (void)state;
    static const char all[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    char text[CLUSTER_KEY_TEXT_BYTES];
    struct cluster_key key;
    struct err err;
    int n = 0, unnoticed = 0;
    cluster_key_text(&some_key, text);
    for (size_t i = 0; text[i] != '\0'; i++)
        for (const char *c = all; text[i] != '-' && *c != '\0'; c++) {
            char was = text[i];
            if (*c == was)
                continue;
            text[i] = *c;
            n++;
            unnoticed += cluster_key_parse(&key, text, &err) == ST_OK;
            text[i] = was;
        }
    assert_int_equal(n, 28 * 31);
    assert_true(unnoticed <= 3);
}

static void test_key_refused(void **state) {
    (void)state;
    static const char *const texts[] = {"", "-", "AB12", "####-####-####-####-####-####-####",
                                        "0000-0000-0000-0000-0000-0000-000\xc3\xa4"};
    struct cluster_key key = some_key;
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        assert_int_equal(cluster_key_parse(&key, texts[i], &err), ST_BAD_INPUT);
        assert_non_null(strstr(err.text, "cluster key"));
    }
    assert_memory_equal(&key, &some_key, sizeof key);
}

static void test_derived_keys_differ(void **state) {
    (void)state;
    struct identity a, again, b;
    struct cluster_key other = some_key;
    struct err err;
    other.secret[15] ^= 1;
    assert_int_equal(identity_make(&a, &some_key, &err), ST_OK);
    assert_int_equal(identity_make(&again, &some_key, &err), ST_OK);
    assert_int_equal(identity_make(&b, &other, &err), ST_OK);
    assert_string_equal(a.pin, again.pin);
    assert_string_equal(a.token, again.token);
    assert_string_equal(a.key_pem, again.key_pem);
    assert_memory_equal(a.beacon_key, again.beacon_key, sizeof a.beacon_key);
    assert_string_not_equal(a.pin, b.pin);
    assert_string_not_equal(a.token, b.token);
    assert_true(memcmp(a.beacon_key, b.beacon_key, sizeof a.beacon_key) != 0);
    identity_deinit(&a);
    identity_deinit(&again);
    identity_deinit(&b);
}

/* ---- a model's files --------------------------------------------------------------------- */

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_cluster-XXXXXX");
    return mkdtemp(folder) != NULL && sodium_init() >= 0 &&
                   setenv("XDG_CACHE_HOME", folder, 1) == 0
               ? 0
               : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* n pseudo-random bytes. */
static void write_file(const char *path, size_t n, uint8_t seed) {
    uint8_t *bytes = mem_alloc(n + 1), key[randombytes_SEEDBYTES] = {seed};
    assert_non_null(bytes);
    randombytes_buf_deterministic(bytes, n, key);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    mem_free(bytes);
}

static void path_in(char *out, size_t size, const char *name) {
    snprintf(out, size, "%s/%s", folder, name);
}

static void flip_byte(const char *path, long at) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_true(fputc(c ^ 1, f) != EOF);
    assert_int_equal(fclose(f), 0);
}

/* Up to 6 MiB every byte counts; what comes out of JSON is what went in. */
static void test_one_file(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 70000, (1 << 20) + 1, 5 << 20};
    char path[128];
    struct err err;
    path_in(path, sizeof path, "one.gguf");
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct model_files m, back;
        write_file(path, sizes[i], (uint8_t)i);
        assert_int_equal(model_files_read(&m, path, &err), ST_OK);
        assert_int_equal(m.n, 1);
        assert_int_equal(m.bytes, sizes[i]);
        assert_string_equal(m.name, "one.gguf");
        json_t *json = model_files_json(&m);
        assert_int_equal(model_files_from_json(&back, json, &err), ST_OK);
        json_decref(json);
        assert_true(model_files_are_at(&back, path));
        for (size_t k = 0; sizes[i] > 0 && k < 5; k++) {
            long at = (long)((sizes[i] - 1) * k / 4);
            flip_byte(path, at);
            assert_false(model_files_are_at(&back, path));
            flip_byte(path, at);
        }
        assert_true(model_files_are_at(&back, path));
        model_files_deinit(&m);
        model_files_deinit(&back);
    }
}

static void test_parts_and_folders(void **state) {
    (void)state;
    char path[128], other[128];
    struct model_files m;
    struct err err;
    path_in(path, sizeof path, "big-00001-of-00003.gguf");
    write_file(path, 10, 1);
    path_in(other, sizeof other, "big-00002-of-00003.gguf");
    write_file(other, 20, 2);
    assert_int_equal(model_files_read(&m, path, &err), ST_NOT_FOUND);
    assert_non_null(strstr(err.text, "big-00003-of-00003.gguf"));
    path_in(other, sizeof other, "big-00003-of-00003.gguf");
    write_file(other, 30, 3);
    assert_int_equal(model_files_read(&m, path, &err), ST_OK);
    assert_int_equal(m.n, 3);
    assert_int_equal(m.bytes, 60);
    assert_string_equal(m.name, "big-00001-of-00003.gguf");
    assert_true(model_files_are_at(&m, path));
    assert_int_equal(unlink(other), 0);
    assert_false(model_files_are_at(&m, path));
    model_files_deinit(&m);

    char dir[128];
    path_in(dir, sizeof dir, "hf");
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(model_files_read(&m, dir, &err), ST_NOT_FOUND);
    path_in(other, sizeof other, "hf/b.safetensors");
    write_file(other, 100, 4);
    path_in(other, sizeof other, "hf/a.json");
    write_file(other, 50, 5);
    path_in(other, sizeof other, "hf/.hidden");
    write_file(other, 50, 5);
    /* Names that other machines would not take are no model's, or there would be fewer files in
     * the list than here. */
    static const char *const odd[] = {"hf/a\xff.txt", "hf/a\n.txt", "odd\xff.gguf",
                                      "odd\n.gguf", ".odd.gguf"};
    for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
        path_in(other, sizeof other, odd[i]);
        FILE *f = fopen(other, "wb");
        if (f == NULL) /* nor does every file system */
            continue;
        fclose(f);
        if (odd[i][0] != 'h') {
            assert_int_equal(model_files_read(&m, other, &err), ST_BAD_INPUT);
            assert_non_null(strstr(err.text, "cannot be told"));
        }
    }
    path_in(path, sizeof path, "hf///");
    assert_int_equal(model_files_read(&m, path, &err), ST_OK);
    assert_true(m.folder);
    assert_string_equal(m.name, "hf");
    assert_int_equal(m.n, 2);
    assert_string_equal(m.list[0].name, "a.json");
    assert_true(model_files_are_at(&m, dir));
    model_files_deinit(&m);
}

/* What another machine sends. */
static void test_hostile_lists(void **state) {
    (void)state;
    static const char digest[] = "00112233445566778899aabbccddeeff";
    static const char *const names[] = {"..",  ".hidden",          "",
                                        "a/b", "../../etc/passwd", "/etc/passwd"};
    struct model_files m;
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        for (int as_file = 0; as_file < 2; as_file++) {
            json_t *o = json_pack("{s:s, s:b, s:[{s:s, s:i, s:s}]}", "name",
                                  as_file ? "m" : names[i], "folder", 1, "files", "name",
                                  as_file ? names[i] : "f", "bytes", 1, "digest", digest);
            assert_int_equal(model_files_from_json(&m, o, &err), ST_BAD_INPUT);
            json_decref(o);
        }
    static const char *const texts[] = {
        "[]",
        "{}",
        "{\"name\":\"a\",\"folder\":false,\"files\":[]}",
        "{\"name\":\"a\",\"folder\":false,\"files\":[7]}",
        "{\"name\":\"a\",\"folder\":false,\"files\":[{\"name\":\"a\",\"bytes\":-1,\"digest\":"
        "\"00112233445566778899aabbccddeeff\"}]}",
        "{\"name\":\"a\",\"folder\":false,\"files\":[{\"name\":\"a\",\"bytes\":1,\"digest\":\"00\"}]}",
        "{\"name\":\"a\",\"folder\":false,\"files\":[{\"name\":\"b\",\"bytes\":1,\"digest\":"
        "\"00112233445566778899aabbccddeeff\"}]}",
        "{\"name\":7,\"folder\":false,\"files\":[{\"name\":\"a\",\"bytes\":1,\"digest\":"
        "\"00112233445566778899aabbccddeeff\"}]}",
    };
    /* Twice the same file; more bytes than there are numbers; a name that writes lines into a
     * log. */
    static const struct {
        const char *name;
        json_int_t bytes;
    } second[] = {{"f", 1}, {"g", INT64_MAX}, {"e", 1}, {"g\nh", 1}};
    for (size_t i = 0; i < ARRAY_LEN(second); i++) {
        json_t *o =
            json_pack("{s:s, s:b, s:[{s:s, s:i, s:s}, {s:s, s:I, s:s}]}", "name", "m", "folder",
                      1, "files", "name", "f", "bytes", 1, "digest", digest, "name",
                      second[i].name, "bytes", second[i].bytes, "digest", digest);
        assert_int_equal(model_files_from_json(&m, o, &err), ST_BAD_INPUT);
        json_decref(o);
    }
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        json_t *o = json_loads(texts[i], 0, NULL);
        assert_non_null(o);
        assert_int_equal(model_files_from_json(&m, o, &err), ST_BAD_INPUT);
        json_decref(o);
    }
}

/* ---- copies ------------------------------------------------------------------------------ */

struct stop_at {
    uint64_t bytes; /* gives up beyond */
    uint64_t first; /* what was heard first */
};

static bool stop_there(void *user, uint64_t bytes) {
    struct stop_at *s = user;
    if (s->first == 0)
        s->first = bytes;
    return bytes < s->bytes;
}

/* Any pieces within the file, and none beyond it; and through a source, rows as the loader asks
 * for them. */
static void check_pieces(const struct identity *id, const char *address, const char *path,
                         size_t n) {
    static const struct {
        struct client_pieces p;
        enum status st;
    } asked[] = {
        {{0, 1, 0, 1}, ST_OK},
        {{100, 7, 1000, 50}, ST_OK},
        {{5, 10, 3, 4}, ST_OK}, /* overlapping */
        {{(20u << 20) - 1, 1, 0, 1}, ST_OK},
        {{(20u << 20) - 1, 2, 0, 1}, ST_BAD_INPUT},
        {{20u << 20, 1, 0, 1}, ST_BAD_INPUT},
        {{0, 1, UINT64_MAX / 2, 4}, ST_BAD_INPUT},
        {{UINT64_MAX, 1, 0, 1}, ST_BAD_INPUT},
        {{0, 0, 0, 1}, ST_BAD_INPUT},
        {{0, 1, 0, 0}, ST_BAD_INPUT},
        {{0, (16u << 20) + 1, 0, 1}, ST_BAD_INPUT},
        {{0, 1 << 20, 1 << 20, 17}, ST_BAD_INPUT},
    };
    uint8_t *whole = mem_alloc(n), *out = mem_alloc(n);
    struct client *c;
    struct file_source source;
    struct err err;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(whole, 1, n, f), n);
    fclose(f);
    assert_int_equal(client_open(&c, id, address, &err), ST_OK);
    for (size_t i = 0; i < ARRAY_LEN(asked); i++) {
        const struct client_pieces *p = &asked[i].p;
        assert_int_equal(client_pieces(c, "/v1/files/0", p, out, &err), asked[i].st);
        for (size_t k = 0; asked[i].st == ST_OK && k < p->count; k++)
            assert_memory_equal(out + k * p->n, whole + p->at + k * p->stride, p->n);
    }
    const struct client_pieces one = {.n = 1, .count = 1};
    assert_int_equal(client_pieces(c, "/v1/files/1", &one, out, &err), ST_NOT_FOUND);
    assert_int_equal(client_pieces(c, "/v1/files/0x", &one, out, &err), ST_NOT_FOUND);
    client_close(c);

    assert_int_equal(source_open(&source, id, address, &err), ST_OK);
    /* Everything at once, as rows that follow each other; some columns of many rows; larger
     * than any request. */
    assert_int_equal(source.read(source.user, 0, 0, 1000, 1000, n / 1000, out, 1000, &err),
                     ST_OK);
    assert_memory_equal(out, whole, n / 1000 * 1000);
    memset(out, 0, n);
    assert_int_equal(source.read(source.user, 0, 300, 40, 1000, 20000, out + 300, 1000, &err),
                     ST_OK);
    for (size_t r = 0; r < 20000; r++) {
        assert_memory_equal(out + r * 1000 + 300, whole + r * 1000 + 300, 40);
        assert_int_equal(out[r * 1000 + 299], 0);
        assert_int_equal(out[r * 1000 + 340], 0);
    }
    assert_int_equal(source.read(source.user, 0, n, 1, 0, 1, out, 0, &err), ST_BAD_INPUT);
    assert_int_equal(source.read(source.user, 0, 0, 0, 0, 1, out, 0, &err), ST_OK);
    source_close(&source);
    mem_free(whole);
    mem_free(out);
}

static bool any_part_in(const char *store) {
    char command[160];
    snprintf(command, sizeof command, "find %s -name '*.part' | grep -q .", store);
    return system(command) == 0;
}

static void test_copy(void **state) {
    (void)state;
    struct identity id, stranger;
    struct cluster_key other = some_key;
    struct model_files m;
    struct model_share *share;
    struct err err;
    char path[128], store[128], out[256], address[64];
    const size_t n = 20u << 20;
    other.secret[0] ^= 1;
    assert_int_equal(identity_make(&id, &some_key, &err), ST_OK);
    assert_int_equal(identity_make(&stranger, &other, &err), ST_OK);
    path_in(path, sizeof path, "copied.gguf");
    path_in(store, sizeof store, "deep/store");
    write_file(path, n, 9);
    assert_int_equal(model_files_read(&m, path, &err), ST_OK);
    assert_int_equal(model_share_open(&share, &id, &m, path, &err), ST_OK);
    snprintf(address, sizeof address, "127.0.0.1:%d", model_share_port(share));

    assert_int_equal(store_fetch(store, &stranger, address, &m, NULL, out, sizeof out, &err),
                     ST_REFUSED);
    /* Given up in the middle, then gone on with. */
    struct stop_at stop = {.bytes = n / 2};
    const struct store_progress half = {stop_there, &stop};
    assert_int_equal(store_fetch(store, &id, address, &m, &half, out, sizeof out, &err),
                     ST_CANCELLED);
    assert_false(store_find(store, &m, NULL, out, sizeof out));
    struct stop_at rest = {.bytes = UINT64_MAX};
    const struct store_progress all = {stop_there, &rest};
    assert_int_equal(store_fetch(store, &id, address, &m, &all, out, sizeof out, &err), ST_OK);
    assert_true(rest.first >= n / 2);
    assert_true(model_files_are_at(&m, out));
    assert_true(store_find(store, &m, NULL, out, sizeof out));
    assert_true(store_find("/nowhere", &m, path, out, sizeof out));
    assert_string_equal(out, path);
    assert_false(store_find("/nowhere", &m, "relative/copied.gguf", out, sizeof out));

    /* The same name with other content goes beside it; a damaged source gives nothing. */
    char first[256];
    assert_true(store_find(store, &m, NULL, first, sizeof first));
    model_share_close(share);
    model_files_deinit(&m);
    write_file(path, n, 10);
    assert_int_equal(model_files_read(&m, path, &err), ST_OK);
    assert_int_equal(model_share_open(&share, &id, &m, path, &err), ST_OK);
    snprintf(address, sizeof address, "127.0.0.1:%d", model_share_port(share));
    m.list[0].digest[0] ^= 1;
    assert_int_equal(store_fetch(store, &id, address, &m, NULL, out, sizeof out, &err), ST_IO);
    assert_non_null(strstr(err.text, "damaged"));
    m.list[0].digest[0] ^= 1;
    assert_int_equal(store_fetch(store, &id, address, &m, NULL, out, sizeof out, &err), ST_OK);
    assert_string_not_equal(out, first);
    assert_true(model_files_are_at(&m, out));
    check_pieces(&id, address, path, n);
    /* Who writes a model while it is copied gets no mixture. */
    const struct timeval long_ago[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(utimes(path, long_ago), 0);
    path_in(store, sizeof store, "another");
    assert_int_equal(store_fetch(store, &id, address, &m, NULL, out, sizeof out, &err), ST_IO);
    assert_non_null(strstr(err.text, "has changed"));
    assert_false(any_part_in(store));
    model_share_close(share);
    assert_int_equal(store_fetch("/proc", &id, address, &m, NULL, out, sizeof out, &err),
                     ST_NO_MEMORY);
    model_files_deinit(&m);
    identity_deinit(&id);
    identity_deinit(&stranger);
}

/* A machine that lost its power while a copy came: the part is as long as it was told to be, or
 * longer, and its last data are zeros, where no sample of the digest in model_files.h is taken. */
static void lose_power(const char *part, size_t n) {
    static const char zeros[100 << 10];
    struct stat st;
    int fd = open(part, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &st) == 0 && (size_t)st.st_size >= n / 3);
    off_t between = (off_t)(n / 65 * (n / 3 / (n / 65)) + (80 << 10));
    assert_true(between > (2 << 20) && between + (off_t)sizeof zeros < st.st_size);
    assert_int_equal(pwrite(fd, zeros, sizeof zeros, between), sizeof zeros);
    close(fd);
}

static void test_power_cut(void **state) {
    (void)state;
    struct identity id;
    struct model_files m;
    struct model_share *share;
    struct err err;
    struct file_id at;
    char path[128], store[128], part[256], blocks[300], out[256], address[64], hex[17];
    uint8_t kept[CONTENT_BYTES], read[CONTENT_BYTES];
    const size_t n = 20u << 20;
    assert_int_equal(identity_make(&id, &some_key, &err), ST_OK);
    path_in(path, sizeof path, "cut.gguf");
    path_in(store, sizeof store, "cut");
    write_file(path, n, 13);
    assert_int_equal(model_files_read(&m, path, &err), ST_OK);
    assert_int_equal(model_share_open(&share, &id, &m, path, &err), ST_OK);
    snprintf(address, sizeof address, "127.0.0.1:%d", model_share_port(share));
    sodium_bin2hex(hex, sizeof hex, m.list[0].digest, 8);
    snprintf(part, sizeof part, "%s/cut.gguf.%s.part", store, hex);
    snprintf(blocks, sizeof blocks, "%s/cut.gguf.%s.blocks", store, hex);
    for (int without_blocks = 0; without_blocks < 2; without_blocks++) {
        struct stop_at stop = {.bytes = n / 2};
        const struct store_progress half = {stop_there, &stop};
        assert_int_equal(store_fetch(store, &id, address, &m, &half, out, sizeof out, &err),
                         ST_CANCELLED);
        lose_power(part, n);
        if (without_blocks) /* as an older version left it */
            assert_int_equal(unlink(blocks), 0);
        assert_int_equal(store_fetch(store, &id, address, &m, NULL, out, sizeof out, &err),
                         ST_OK);
        char command[600];
        snprintf(command, sizeof command, "cmp %s %s", path, out);
        assert_int_equal(system(command), 0);
        assert_int_equal(access(blocks, F_OK), -1);
        /* Its digest is known, and is what reading it gives. */
        assert_true(file_id_at(out, &at) && content_recall(&at, kept));
        assert_int_equal(setenv("XDG_CACHE_HOME", store, 1), 0);
        assert_int_equal(content_read(read, out, NULL, &err), ST_OK);
        assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
        assert_memory_equal(kept, read, sizeof kept);
        assert_int_equal(unlink(out), 0);
    }
    model_share_close(share);
    model_files_deinit(&m);
    identity_deinit(&id);
}

/* Somebody else planted links where the copy's own files will be: it is refused, and what they lead
 * to stays as it is. */
static void test_planted_links(void **state) {
    (void)state;
    struct identity id;
    struct model_files m;
    struct model_share *share;
    struct err err;
    char path[128], store[128], victim[128], planted[256], out[256], address[64], hex[17];
    static const char *const ends[] = {"part", "blocks"};
    assert_int_equal(identity_make(&id, &some_key, &err), ST_OK);
    path_in(path, sizeof path, "planted.gguf");
    path_in(store, sizeof store, "planted");
    path_in(victim, sizeof victim, "victim");
    write_file(path, 100000, 14);
    assert_int_equal(model_files_read(&m, path, &err), ST_OK);
    assert_int_equal(model_share_open(&share, &id, &m, path, &err), ST_OK);
    snprintf(address, sizeof address, "127.0.0.1:%d", model_share_port(share));
    sodium_bin2hex(hex, sizeof hex, m.list[0].digest, 8);
    assert_int_equal(mkdir(store, 0700), 0);
    for (size_t i = 0; i < 2; i++) {
        struct stat st;
        write_file(victim, 1234, 15);
        snprintf(planted, sizeof planted, "%s/planted.gguf.%s.%s", store, hex, ends[i]);
        assert_int_equal(symlink(victim, planted), 0);
        assert_int_equal(store_fetch(store, &id, address, &m, NULL, out, sizeof out, &err),
                         ST_IO);
        assert_non_null(strstr(err.text, planted));
        assert_int_equal(stat(victim, &st), 0);
        assert_int_equal(st.st_size, 1234);
        unlink(planted); /* where the failed copy has not done so */
    }
    assert_int_equal(store_fetch(store, &id, address, &m, NULL, out, sizeof out, &err), ST_OK);
    model_share_close(share);
    model_files_deinit(&m);
    identity_deinit(&id);
}

struct waiting {
    int fd; /* of the part, locked */
    char part[300], end[300];
    int asked;
};

/* The other one ends while somebody waits: with the file, with nothing, or not at all. */
static bool let_go(void *user, uint64_t bytes) {
    struct waiting *w = user;
    (void)bytes;
    if (++w->asked == 3 && w->end[0] != '\0')
        assert_int_equal(rename(w->part, w->end), 0);
    else if (w->asked == 3)
        assert_int_equal(unlink(w->part), 0);
    if (w->asked == 3)
        close(w->fd);
    return w->asked < 1000;
}

static bool not_for_long(void *user, uint64_t bytes) {
    (void)bytes;
    return ++*(int *)user < 3;
}

static void test_two_copies_at_once(void **state) {
    (void)state;
    struct identity id;
    struct model_files m;
    struct model_share *share;
    struct err err;
    char path[128], store[128], out[256], address[64], hex[17];
    const size_t n = 3u << 20;
    assert_int_equal(identity_make(&id, &some_key, &err), ST_OK);
    path_in(path, sizeof path, "twice.gguf");
    path_in(store, sizeof store, "twice");
    assert_int_equal(mkdir(store, 0755), 0);
    write_file(path, n, 11);
    assert_int_equal(model_files_read(&m, path, &err), ST_OK);
    assert_int_equal(model_share_open(&share, &id, &m, path, &err), ST_OK);
    snprintf(address, sizeof address, "127.0.0.1:%d", model_share_port(share));
    sodium_bin2hex(hex, sizeof hex, m.list[0].digest, 8);
    for (int with_file = 0; with_file < 2; with_file++) {
        struct waiting w = {.asked = 0};
        const struct store_progress progress = {let_go, &w};
        snprintf(w.part, sizeof w.part, "%s/twice.gguf.%s.part", store, hex);
        if (with_file)
            snprintf(w.end, sizeof w.end, "%s/twice.gguf", store);
        write_file(w.part, n, 11);
        w.fd = open(w.part, O_RDWR | O_CLOEXEC);
        assert_true(w.fd >= 0);
        assert_int_equal(flock(w.fd, LOCK_EX), 0);
        int asked = 0;
        const struct store_progress impatient = {not_for_long, &asked};
        assert_int_equal(
            store_fetch(store, &id, address, &m, &impatient, out, sizeof out, &err),
            ST_CANCELLED);
        assert_int_equal(store_fetch(store, &id, address, &m, &progress, out, sizeof out, &err),
                         ST_OK);
        assert_true(model_files_are_at(&m, out));
        assert_false(any_part_in(store));
        assert_int_equal(unlink(out), 0);
    }
    /* A folder where the file would go, a file where the folder would go: beside it. */
    char inside[256];
    path_in(inside, sizeof inside, "twice/twice.gguf");
    assert_int_equal(mkdir(inside, 0755), 0);
    assert_int_equal(store_fetch(store, &id, address, &m, NULL, out, sizeof out, &err), ST_OK);
    assert_true(store_find(store, &m, NULL, inside, sizeof inside));
    model_share_close(share);
    model_files_deinit(&m);
    path_in(path, sizeof path, "pair");
    path_in(inside, sizeof inside, "pair/config.json");
    assert_int_equal(mkdir(path, 0755), 0);
    write_file(inside, 10, 1);
    path_in(inside, sizeof inside, "twice/pair");
    write_file(inside, 10, 2);
    assert_int_equal(model_files_read(&m, path, &err), ST_OK);
    assert_int_equal(model_share_open(&share, &id, &m, path, &err), ST_OK);
    snprintf(address, sizeof address, "127.0.0.1:%d", model_share_port(share));
    assert_int_equal(store_fetch(store, &id, address, &m, NULL, out, sizeof out, &err), ST_OK);
    assert_true(model_files_are_at(&m, out));
    model_share_close(share);
    model_files_deinit(&m);
    identity_deinit(&id);
}

/* Two commands that read their slices from one machine each, of the same model, at the same
 * moment: no error, the second waits. */
static void test_two_links_at_once(void **state) {
    (void)state;
    struct identity id;
    struct model_files m;
    struct model_share *share;
    struct err err;
    char path[128], store[128], out[256], address[64], found[64], part[300], command[600];
    static const char *const names[] = {"linked.gguf", ".address"};
    assert_int_equal(identity_make(&id, &some_key, &err), ST_OK);
    path_in(path, sizeof path, "linked.gguf");
    path_in(store, sizeof store, "links");
    write_file(path, 3u << 20, 21);
    assert_int_equal(model_files_read(&m, path, &err), ST_OK);
    assert_int_equal(model_share_open(&share, &id, &m, path, &err), ST_OK);
    snprintf(address, sizeof address, "127.0.0.1:%d", model_share_port(share));
    assert_int_equal(store_link(store, &id, address, &m, NULL, out, sizeof out, &err),
                     ST_UNSUPPORTED);
    m.list[0].head = (2u << 20) + 5;
    uint8_t digest[MODEL_DIGEST_BYTES];
    char hex[2 * MODEL_DIGEST_BYTES + 1];
    model_files_digest(&m, digest);
    sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
    snprintf(command, sizeof command, "mkdir -p %s/.links/%s", store, hex);
    assert_int_equal(system(command), 0);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct waiting w = {.asked = 0};
        const struct store_progress progress = {let_go, &w};
        snprintf(part, sizeof part, "%s/.links/%s/%s.part", store, hex, names[i]);
        snprintf(w.part, sizeof w.part, "%s", part);
        write_file(part, 10, 22);
        w.fd = open(part, O_RDWR | O_CLOEXEC);
        assert_true(w.fd >= 0);
        assert_int_equal(flock(w.fd, LOCK_EX), 0);
        /* The head is here the second time, and nothing is asked for it. */
        assert_int_equal(store_link(store, &id, address, &m, &progress, out, sizeof out, &err),
                         ST_OK);
        assert_true(w.asked >= 3);
        assert_false(any_part_in(store));
    }
    snprintf(command, sizeof command, "head -c %d %s | cmp -s - %s", (2 << 20) + 5, path, out);
    assert_int_equal(system(command), 0);
    assert_true(store_find_link(store, &m, out, sizeof out, found, sizeof found));
    assert_string_equal(found, address);
    model_share_close(share);
    model_files_deinit(&m);
    identity_deinit(&id);
}

struct intruder {
    char path[300];
    uint64_t at, last;
    bool there, fell_back;
};

/* Somebody else's file comes to where the model was to go. */
static bool put_there(void *user, uint64_t bytes) {
    struct intruder *in = user;
    in->fell_back |= bytes < in->last;
    in->last = bytes;
    if (!in->there && bytes >= in->at) {
        write_file(in->path, 1000, 99);
        in->there = true;
    }
    return true;
}

/* What comes to a model's place while it is copied stays, and the model goes beside it, with
 * what of it has come already. */
static void test_place_taken_meanwhile(void **state) {
    (void)state;
    struct identity id;
    struct model_files m;
    struct model_share *share;
    struct err err;
    char path[128], inside[256], store[128], out[256], plain[256], address[64], own[128];
    assert_int_equal(identity_make(&id, &some_key, &err), ST_OK);
    path_in(own, sizeof own, "own");
    write_file(own, 1000, 99);
    struct model_files theirs;
    assert_int_equal(model_files_read(&theirs, own, &err), ST_OK);
    for (int as_folder = 0; as_folder < 2; as_folder++) {
        path_in(path, sizeof path, as_folder ? "late" : "late.gguf");
        snprintf(inside, sizeof inside, "%s%s", path, as_folder ? "/a.json" : "");
        if (as_folder) {
            assert_int_equal(mkdir(path, 0755), 0);
            write_file(inside, 5000, 12);
            snprintf(inside, sizeof inside, "%s/b.safetensors", path);
        }
        write_file(inside, 3u << 20, 13);
        path_in(store, sizeof store, as_folder ? "late-folders" : "late-files");
        assert_int_equal(mkdir(store, 0755), 0);
        assert_int_equal(model_files_read(&m, path, &err), ST_OK);
        assert_int_equal(model_share_open(&share, &id, &m, path, &err), ST_OK);
        snprintf(address, sizeof address, "127.0.0.1:%d", model_share_port(share));
        snprintf(plain, sizeof plain, "%s/%s", store, m.name);
        struct intruder in = {.at = 2u << 20};
        snprintf(in.path, sizeof in.path, "%s%s", plain, as_folder ? "/b.safetensors" : "");
        const struct store_progress progress = {put_there, &in};
        assert_int_equal(store_fetch(store, &id, address, &m, &progress, out, sizeof out, &err),
                         ST_OK);
        assert_true(in.there);
        assert_false(in.fell_back);
        assert_true(model_file_is_at(&theirs.list[0], in.path));
        assert_string_not_equal(out, plain);
        assert_true(model_files_are_at(&m, out));
        assert_true(store_find(store, &m, NULL, out, sizeof out));
        assert_false(any_part_in(store));
        model_share_close(share);
        model_files_deinit(&m);
    }
    /* Such is a link to a disk that is not mounted. */
    assert_int_equal(model_files_read(&m, own, &err), ST_OK);
    assert_int_equal(model_share_open(&share, &id, &m, own, &err), ST_OK);
    snprintf(address, sizeof address, "127.0.0.1:%d", model_share_port(share));
    path_in(plain, sizeof plain, "late-files/own");
    assert_int_equal(symlink("/nowhere/own", plain), 0);
    path_in(store, sizeof store, "late-files");
    assert_int_equal(store_fetch(store, &id, address, &m, NULL, out, sizeof out, &err), ST_OK);
    assert_string_not_equal(out, plain);
    assert_int_equal(readlink(plain, out, sizeof out), strlen("/nowhere/own"));
    model_share_close(share);
    model_files_deinit(&m);
    model_files_deinit(&theirs);
    identity_deinit(&id);
}

/* ---- a node that answers nonsense -------------------------------------------------------- */

typedef _Atomic(struct http_request *) request_pointer;

static void answer_nonsense(void *user, struct http_request *r) {
    static const char garbage[] = "{\"name\": ";
    const char *path = http_path(r);
    if (str_eq(path, "/v1/never")) {
        atomic_store((request_pointer *)user, r);
    } else if (str_eq(path, "/v1/long")) {
        char *big = mem_calloc(1, 20u << 20);
        assert_non_null(big);
        http_reply(r, 200, "application/json", big, 20u << 20);
        mem_free(big);
    } else if (str_eq(path, "/v1/refused")) {
        http_reply(r, 400, "application/json", "{\"error\": \"not so\"}", 19);
    } else if (str_eq(path, "/v1/wordless")) {
        http_reply(r, 500, "text/html", "<h1>", 4);
    } else {
        http_reply(r, 200, "application/json", garbage, sizeof garbage - 1);
    }
}

static bool until_asked(void *user) {
    return atomic_load((request_pointer *)user) == NULL;
}

static bool no_line(void *user, char *line) {
    (void)line;
    ++*(int *)user;
    return true;
}

static void test_client_and_nonsense(void **state) {
    (void)state;
    struct identity id;
    struct http_config cfg;
    struct http_server *s;
    struct client *c;
    struct err err;
    json_t *reply = NULL, *body = json_object();
    char address[64];
    uint8_t bytes[100];
    request_pointer unanswered = NULL;
    int n_lines = 0;
    static const char *const none[] = {"", "a b", "x/y:1", "http://x", "a#b", "me@x", "x?y"};
    const struct client_stream to = {.line = no_line, .user = &n_lines};
    assert_int_equal(identity_make(&id, &some_key, &err), ST_OK);
    http_config_init(&cfg);
    cfg.tls_cert_pem = id.cert_pem;
    cfg.tls_key_pem = id.key_pem;
    cfg.handle = answer_nonsense;
    cfg.user = &unanswered;
    assert_int_equal(http_open(&s, &cfg, &err), ST_OK);
    snprintf(address, sizeof address, "127.0.0.1:%d", http_port(s));
    assert_int_equal(client_open(&c, &id, address, &err), ST_OK);
    assert_int_equal(client_json(c, "/v1/x", NULL, &reply, &err), ST_IO);
    assert_non_null(strstr(err.text, "not valid JSON"));
    assert_int_equal(client_json(c, "/v1/long", NULL, &reply, &err), ST_IO);
    assert_non_null(strstr(err.text, "more than"));
    assert_int_equal(client_json(c, "/v1/refused", body, &reply, &err), ST_BAD_INPUT);
    assert_non_null(strstr(err.text, "not so"));
    assert_int_equal(client_json(c, "/v1/wordless", body, &reply, &err), ST_IO);
    assert_non_null(strstr(err.text, "500"));
    const struct client_pieces pieces = {.n = sizeof bytes, .count = 1};
    assert_int_equal(client_pieces(c, "/v1/x", &pieces, bytes, &err), ST_IO);
    assert_int_equal(client_lines(c, "/v1/refused", body, &to, &err), ST_BAD_INPUT);
    assert_int_equal(client_lines(c, "/v1/long", body, &to, &err), ST_IO);
    assert_int_equal(n_lines, 0);
    /* Who answers nothing is not waited for longer than its caller likes. */
    client_ask_whether(c, until_asked, &unanswered);
    assert_int_equal(client_pieces(c, "/v1/never", &pieces, bytes, &err), ST_CANCELLED);
    client_ask_whether(c, NULL, NULL);
    assert_null(reply);
    client_close(c);
    http_reply(atomic_load(&unanswered), 200, "text/plain", "", 0);
    http_close(s);
    for (size_t i = 0; i < ARRAY_LEN(none); i++)
        assert_int_equal(client_open(&c, &id, none[i], &err), ST_BAD_INPUT);
    /* Nobody there any more. */
    assert_int_equal(client_open(&c, &id, address, &err), ST_OK);
    assert_int_equal(client_json(c, "/v1/x", NULL, &reply, &err), ST_TIMEOUT);
    assert_non_null(strstr(err.text, address));
    client_close(c);
    json_decref(body);
    identity_deinit(&id);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key_text),
        cmocka_unit_test(test_key_mistyped),
        cmocka_unit_test(test_key_refused),
        cmocka_unit_test(test_derived_keys_differ),
        cmocka_unit_test(test_one_file),
        cmocka_unit_test(test_parts_and_folders),
        cmocka_unit_test(test_hostile_lists),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_power_cut),
        cmocka_unit_test(test_planted_links),
        cmocka_unit_test(test_two_copies_at_once),
        cmocka_unit_test(test_two_links_at_once),
        cmocka_unit_test(test_place_taken_meanwhile),
        cmocka_unit_test(test_client_and_nonsense),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
