/* Which models a cluster serves, and who does it: lists that are merged in any order, and the
 * choice of a node. */
#include "base/util.h"
#include "cluster/deployments.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static json_t *deployment(const char *name, int version, int port) {
    return json_pack(
        "{s:s, s:i, s:s, s:i, s:b, s:s, s:b, s:{s:s, s:b, s:[{s:s, s:i, s:s}]}, s:s, "
        "s:[s, s], s:{s:s}}",
        "name", name, "version", version, "home", "ann", "port", port, "tls", 0, "nodes",
        "auto", "copies", 1, "model", "name", "m.gguf", "folder", 0, "files", "name", "m.gguf",
        "bytes", 5, "digest", "00112233445566778899aabbccddeeff", "hint", "/m.gguf", "args",
        "--ctx", "512", "files", "api-key-file", "key\n");
}

static struct deployments empty(void) {
    struct deployments d;
    deployments_init(&d);
    return d;
}

static enum status merge_one(struct deployments *d, json_t *one, bool *changed,
                             struct err *err) {
    json_t *list = json_pack("[o]", one);
    enum status st = deployments_merge(d, list, changed, err);
    json_decref(list);
    return st;
}

static json_int_t version_of(const struct deployments *d, const char *name) {
    return deployments_find(d, name)->version;
}

static enum status move(struct deployments *d, const char *name, const char *node,
                        const char *nodes, const char *parallel) {
    struct err err;
    const struct deployment_move to = {node, nodes, parallel};
    return deployments_move(d, name, &to, &err);
}

/* A node that knows nothing is asked for a name which others took down before: what was wanted
 * last wins, on all. */
static void test_the_later_wish_wins(void **state) {
    (void)state;
    struct deployments old = empty(), fresh = empty();
    struct err err;
    bool changed;
    json_t *a = deployment("a", 1, 8080);
    json_t *down = json_pack("{s:s, s:I, s:b}", "name", "a", "version",
                             (json_int_t)time(NULL) - 3600, "removed", 1);
    assert_int_equal(merge_one(&old, json_deep_copy(down), &changed, &err), ST_OK);
    assert_int_equal(deployments_put(&fresh, a, &err), ST_OK);
    assert_int_equal(merge_one(&fresh, down, &changed, &err), ST_OK);
    assert_false(changed);
    assert_int_equal(deployments_n_up(&fresh), 1);
    json_t *list = deployments_list(&fresh);
    assert_int_equal(deployments_merge(&old, list, &changed, &err), ST_OK);
    assert_int_equal(deployments_n_up(&old), 1);
    json_decref(list);
    json_decref(a);
    deployments_deinit(&old);
    deployments_deinit(&fresh);
}

/* The next version is at home elsewhere, and all else stays; its home before still takes part. */
static void test_move(void **state) {
    (void)state;
    struct deployments d = empty();
    struct err err;
    json_t *a = deployment("a", 7, 8080), *b = deployment("b", 7, 8080);
    json_object_set_new(a, "home", json_string("ann"));
    json_object_set_new(a, "nodes", json_string("auto"));
    json_object_set_new(b, "home", json_string("ann"));
    json_object_set_new(b, "nodes", json_string("bob"));
    assert_int_equal(deployments_put(&d, a, &err), ST_OK);
    assert_int_equal(deployments_put(&d, b, &err), ST_OK);
    json_int_t first = version_of(&d, "a");
    assert_false(deployments_find(&d, "a")->moved);
    assert_int_equal(move(&d, "a", "bob", NULL, NULL), ST_OK);
    const struct deployment *one = deployments_find(&d, "a");
    assert_true(one->moved && version_of(&d, "a") > first);
    assert_string_equal(one->home, "bob");
    assert_string_equal(one->nodes, "auto");
    /* The same wish once more is what is up. */
    assert_int_equal(deployments_put(&d, a, &err), ST_OK);
    assert_string_equal(deployments_find(&d, "a")->home, "bob");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(move(&d, "b", "bob", NULL, NULL), ST_OK);
        assert_string_equal(deployments_find(&d, "b")->nodes, "bob,ann");
        assert_int_equal(move(&d, "b", "ann", NULL, NULL), ST_OK);
        assert_string_equal(deployments_find(&d, "b")->nodes, "bob,ann");
    }
    /* A layout stays while its nodes serve, and until another one is chosen. */
    assert_null(one->layout_nodes);
    assert_int_equal(move(&d, "a", NULL, "ann,bob", "tensor2"), ST_OK);
    one = deployments_find(&d, "a");
    assert_string_equal(one->home, "bob");
    assert_string_equal(one->layout_nodes, "ann,bob");
    assert_string_equal(one->layout_parallel, "tensor2");
    assert_int_equal(deployments_put(&d, a, &err), ST_OK);
    assert_int_equal(move(&d, "a", "ann", NULL, NULL), ST_OK);
    assert_string_equal(deployments_find(&d, "a")->layout_parallel, "tensor2");
    assert_int_equal(move(&d, "a", "cat", NULL, NULL), ST_OK);
    assert_null(deployments_find(&d, "a")->layout_nodes);
    assert_int_equal(move(&d, "a", "cat", "cat", "one rank"), ST_OK);
    assert_int_equal(move(&d, "a", "cat", "cat", "circle"), ST_BAD_INPUT);
    assert_string_equal(deployments_find(&d, "a")->layout_parallel, "one rank");
    assert_int_equal(move(&d, "a", NULL, "auto", NULL), ST_OK);
    assert_null(deployments_find(&d, "a")->layout_nodes);
    static const char *const good[] = {"auto", "tensor2", "pipeline16", "tensor2xpipeline4"};
    static const char *const bad[] = {"", "tensor0", "tensor2x", "tensor2 ", "2"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(deployment_parallel_is_good(good[i]));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(deployment_parallel_is_good(bad[i]));
    assert_int_equal(move(&d, "c", "ann", NULL, NULL), ST_NOT_FOUND);
    assert_int_equal(deployments_remove(&d, "a", &err), ST_OK);
    assert_int_equal(move(&d, "a", "ann", NULL, NULL), ST_NOT_FOUND);
    json_decref(a);
    json_decref(b);
    deployments_deinit(&d);
}

/* A name is no deployment, follows its own, and is merged as one is. */
static void test_names(void **state) {
    (void)state;
    struct deployments d = empty(), other = empty();
    struct err err;
    bool changed;
    json_t *a = deployment("a", 7, 8080), *b = deployment("b", 7, 8080),
           *x = deployment("x", 7, 8080);
    assert_int_equal(deployments_name(&d, "x", "a", &err), ST_NOT_FOUND);
    assert_int_equal(deployments_put(&d, a, &err), ST_OK);
    assert_int_equal(deployments_put(&d, b, &err), ST_OK);
    assert_int_equal(deployments_name(&d, "a/x", "a", &err), ST_BAD_INPUT);
    assert_int_equal(deployments_name(&d, "b", "a", &err), ST_REFUSED);
    assert_int_equal(deployments_name(&d, "x", "a", &err), ST_OK);
    json_int_t first = version_of(&d, "x");
    assert_int_equal(deployments_name(&d, "x", "a", &err), ST_OK);
    assert_int_equal(version_of(&d, "x"), first);
    assert_int_equal(deployments_name(&d, "y", "a", &err), ST_OK);
    assert_string_equal(deployments_named(&d, "x")->name, "a");
    assert_null(deployments_named(&d, "a"));
    assert_int_equal(deployments_n_up(&d), 2);
    assert_int_equal(deployments_put(&d, x, &err), ST_BAD_INPUT);
    assert_non_null(strstr(err.text, "x is another name of a"));
    /* elsewhere, and from there another one's */
    json_t *list = deployments_list(&d);
    assert_int_equal(deployments_merge(&other, list, &changed, &err), ST_OK);
    json_decref(list);
    assert_string_equal(deployments_named(&other, "x")->name, "a");
    assert_int_equal(deployments_name(&other, "x", "b", &err), ST_OK);
    list = deployments_list(&other);
    assert_int_equal(deployments_merge(&d, list, &changed, &err), ST_OK);
    assert_true(changed);
    json_decref(list);
    assert_string_equal(deployments_named(&d, "x")->name, "b");
    /* a takes y along, and x can be taken away, and be a deployment */
    assert_int_equal(deployments_remove(&d, "a", &err), ST_OK);
    assert_null(deployments_named(&d, "y"));
    assert_null(deployments_find(&d, "y")->of);
    assert_int_equal(deployments_unname(&d, "y", &err), ST_NOT_FOUND);
    assert_int_equal(deployments_unname(&d, "b", &err), ST_NOT_FOUND);
    assert_int_equal(deployments_unname(&d, "x", &err), ST_OK);
    assert_null(deployments_named(&d, "x"));
    assert_int_equal(deployments_put(&d, x, &err), ST_OK);
    json_decref(a);
    json_decref(b);
    json_decref(x);
    deployments_deinit(&d);
    deployments_deinit(&other);
}

/* So many, and they are not forgotten as what was taken down is. */
static void test_many_names(void **state) {
    (void)state;
    struct deployments d = empty();
    struct err err;
    char name[16];
    json_t *a = deployment("a", 7, 8080);
    assert_int_equal(deployments_put(&d, a, &err), ST_OK);
    for (int i = 0; i < DEPLOYMENTS_NAMES_MAX; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(deployments_name(&d, name, "a", &err), ST_OK);
    }
    assert_int_equal(deployments_name(&d, "more", "a", &err), ST_NO_MEMORY);
    for (int i = 0; i < DEPLOYMENTS_DOWN_MAX + 5; i++) {
        snprintf(name, sizeof name, "d%d", i);
        json_t *one = deployment(name, 7, 8080);
        assert_int_equal(deployments_put(&d, one, &err), ST_OK);
        assert_int_equal(deployments_remove(&d, name, &err), ST_OK);
        json_decref(one);
    }
    assert_non_null(deployments_named(&d, "n0"));
    assert_int_equal(d.n, 1 + DEPLOYMENTS_NAMES_MAX + DEPLOYMENTS_DOWN_MAX);
    assert_int_equal(deployments_remove(&d, "a", &err), ST_OK);
    assert_int_equal(d.n, DEPLOYMENTS_DOWN_MAX);
    json_decref(a);
    deployments_deinit(&d);
}

static void test_put_and_remove(void **state) {
    (void)state;
    struct deployments d = empty();
    json_int_t began = (json_int_t)time(NULL);
    struct err err;
    json_t *a = deployment("a", 7, 8080), *b = deployment("b", 1, 8080),
           *c = deployment("c", 1, 8080);
    json_object_set_new(json_object_get(b, "files"), "tls-cert", json_string("cert"));
    assert_int_equal(deployments_put(&d, a, &err), ST_OK);
    json_int_t first = version_of(&d, "a");
    assert_true(first >= began);
    assert_int_equal(deployments_put(&d, a, &err), ST_OK);
    json_object_set_new(a, "home", json_string("bob")); /* asked for somewhere else */
    assert_int_equal(deployments_put(&d, a, &err), ST_OK);
    assert_int_equal(version_of(&d, "a"), first);
    json_object_set_new(a, "nodes", json_string("bob"));
    assert_int_equal(deployments_put(&d, a, &err), ST_BAD_INPUT);
    assert_non_null(strstr(err.text, "a is up already"));
    assert_int_equal(deployments_put(&d, b, &err), ST_BAD_INPUT);
    assert_non_null(strstr(err.text, "a has that port with another certificate"));
    json_object_set_new(b, "port", json_integer(8081));
    assert_int_equal(deployments_put(&d, b, &err), ST_OK);
    json_object_set_new(json_object_get(c, "files"), "api-key-file", json_string("other\n"));
    assert_int_equal(deployments_put(&d, c, &err), ST_OK);
    assert_int_equal(deployments_n_up(&d), 3);
    assert_int_equal(deployments_remove(&d, "a", &err), ST_OK);
    assert_int_equal(deployments_remove(&d, "a", &err), ST_NOT_FOUND);
    assert_int_equal(deployments_remove(&d, "never", &err), ST_NOT_FOUND);
    assert_int_equal(deployments_n_up(&d), 2);
    json_object_set_new(a, "since", json_integer(5));
    assert_int_equal(deployments_put(&d, a, &err), ST_OK);
    assert_true(version_of(&d, "a") >= first + 2);
    json_object_set_new(a, "since", json_integer(6)); /* once more, later */
    assert_int_equal(deployments_put(&d, a, &err), ST_OK);
    assert_int_equal(deployments_find(&d, "a")->since, 5);
    json_decref(a);
    json_decref(b);
    json_decref(c);
    deployments_deinit(&d);
}

static void test_form(void **state) {
    (void)state;
    static const char *const fields[] = {"name",   "home",  "port", "tls",  "nodes",
                                         "copies", "model", "hint", "args", "files"};
    struct deployments d = empty();
    struct err err;
    bool changed;
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        for (int kind = 0; kind < 3; kind++) {
            json_t *one = deployment("a", 1, 8080);
            if (kind == 0)
                json_object_del(one, fields[i]);
            else
                json_object_set_new(one, fields[i], kind == 1 ? json_null() : json_pack("[n]"));
            assert_int_equal(merge_one(&d, one, &changed, &err), ST_BAD_INPUT);
            assert_false(changed);
        }
    static const char *const names[] = {
        "",    ".",
        ".a",  "a b",
        "a/b", "a,b",
        "a\n", "0123456789012345678901234567890123456789012345678901234567890123"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_int_equal(merge_one(&d, deployment(names[i], 1, 80), &changed, &err),
                         ST_BAD_INPUT);
    assert_int_equal(merge_one(&d, deployment("a", 0, 80), &changed, &err), ST_BAD_INPUT);
    assert_int_equal(merge_one(&d, deployment("a", 1, 0), &changed, &err), ST_BAD_INPUT);
    assert_int_equal(merge_one(&d, deployment("a", 1, 65536), &changed, &err), ST_BAD_INPUT);
    json_t *one = deployment("a", 1, 80);
    json_object_set_new(json_object_get(one, "files"), "../x", json_string(""));
    assert_int_equal(merge_one(&d, one, &changed, &err), ST_BAD_INPUT);
    assert_int_equal(deployments_merge(&d, NULL, &changed, &err), ST_BAD_INPUT);
    assert_int_equal(d.n, 0);
    deployments_deinit(&d);
}

/* Every field of the form, as whoever acts on it reads it. */
static void test_fields(void **state) {
    (void)state;
    struct deployment *d, *copy;
    struct err err;
    char id[2][DEPLOYMENTS_DIGEST_BYTES];
    json_t *one = deployment("a", 7, 8080);
    json_object_set_new(one, "since", json_integer(5));
    assert_int_equal(deployment_parse(&d, one, &err), ST_OK);
    json_decref(one); /* it has a copy */
    assert_string_equal(d->name, "a");
    assert_true(d->up && d->copies && !d->tls);
    assert_int_equal(d->version, 7);
    assert_string_equal(d->home, "ann");
    assert_string_equal(d->nodes, "auto");
    assert_string_equal(d->hint, "/m.gguf");
    assert_int_equal(d->since, 5);
    assert_int_equal(d->port, 8080);
    assert_string_equal(d->model.name, "m.gguf");
    assert_int_equal(d->model.bytes, 5);
    assert_int_equal(d->n_args, 2);
    assert_string_equal(d->args[0], "--ctx");
    assert_string_equal(d->args[1], "512");
    assert_int_equal(d->n_files, 1);
    assert_string_equal(deployment_file(d, "api-key-file"), "key\n");
    assert_null(deployment_file(d, "tls-cert"));
    copy = deployment_copy(d);
    assert_non_null(copy);
    assert_true(deployment_equal(d, copy));
    deployment_digest(d, id[0]);
    deployment_digest(copy, id[1]);
    assert_string_equal(id[0], id[1]);
    deployment_free(d);
    assert_string_equal(copy->args[1], "512");
    deployment_free(copy);
    one = json_pack("{s:s, s:i, s:b}", "name", "a", "version", 8, "removed", 1);
    assert_int_equal(deployment_parse(&d, one, &err), ST_OK);
    assert_false(d->up);
    assert_string_equal(d->nodes, "");
    assert_int_equal(d->n_args, 0);
    deployment_free(d);
    json_decref(one);
}

static void test_words(void **state) {
    (void)state;
    struct deployment *d;
    struct err err;
    for (int n = DEPLOYMENT_ARGS_MAX; n <= DEPLOYMENT_ARGS_MAX + 1; n++) {
        json_t *one = deployment("a", 1, 80), *args = json_array();
        for (int i = 0; i < n; i++)
            json_array_append_new(args, json_string("-q"));
        json_object_set_new(one, "args", args);
        assert_int_equal(deployment_parse(&d, one, &err),
                         n <= DEPLOYMENT_ARGS_MAX ? ST_OK : ST_BAD_INPUT);
        if (n <= DEPLOYMENT_ARGS_MAX)
            deployment_free(d);
        json_decref(one);
    }
    json_t *one = deployment("a", 1, 80);
    json_array_append_new(json_object_get(one, "args"), json_stringn("a\0b", 3));
    assert_int_equal(deployment_parse(&d, one, &err), ST_BAD_INPUT);
    assert_string_equal(err.text, "word 2 of a deployment is not a string");
    json_decref(one);
}

/* Whoever hears what, in which order and how often, ends with the same. */
static void test_merge_in_any_order(void **state) {
    (void)state;
    enum { N = 40, ROUNDS = 50 };
    json_t *all[N];
    char digest[2][DEPLOYMENTS_DIGEST_BYTES], name[8];
    struct err err;
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "n%u", randombytes_uniform(6));
        int version = 1 + (int)randombytes_uniform(4);
        all[i] =
            randombytes_uniform(3) == 0
                ? json_pack("{s:s, s:i, s:b}", "name", name, "version", version, "removed", 1)
                : deployment(name, version, 1 + (int)randombytes_uniform(3));
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct deployments d = empty();
        bool changed;
        for (int i = N - 1; i > 0; i--) {
            int j = (int)randombytes_uniform((uint32_t)i + 1);
            json_t *swap = all[i];
            all[i] = all[j];
            all[j] = swap;
        }
        for (int i = 0; i < N; i++)
            assert_int_equal(merge_one(&d, json_incref(all[i]), &changed, &err), ST_OK);
        for (int i = 0; i < N; i++) {
            assert_int_equal(merge_one(&d, json_incref(all[i]), &changed, &err), ST_OK);
            assert_false(changed);
        }
        deployments_digest(&d, digest[round > 0]);
        assert_string_equal(digest[0], digest[round > 0]);
        deployments_deinit(&d);
    }
    for (int i = 0; i < N; i++)
        json_decref(all[i]);
}

static void test_limits(void **state) {
    (void)state;
    struct deployments d = empty();
    struct err err;
    bool changed;
    char name[16];
    for (int i = 0; i <= DEPLOYMENTS_MAX; i++) {
        snprintf(name, sizeof name, "n%d", i);
        json_t *one = deployment(name, 1, 1 + i);
        assert_int_equal(deployments_put(&d, one, &err),
                         i < DEPLOYMENTS_MAX ? ST_OK : ST_NO_MEMORY);
        json_decref(one);
    }
    assert_int_equal(deployments_n_up(&d), DEPLOYMENTS_MAX);
    for (int i = DEPLOYMENTS_MAX; i <= DEPLOYMENTS_HEARD_MAX; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(merge_one(&d, deployment(name, 1, 8080), &changed, &err),
                         i < DEPLOYMENTS_HEARD_MAX ? ST_OK : ST_NO_MEMORY);
    }
    assert_int_equal(deployments_n_up(&d), DEPLOYMENTS_HEARD_MAX);
    deployments_deinit(&d);
}

static json_t *taken_down(int i) {
    char name[16];
    snprintf(name, sizeof name, "n%d", i);
    return json_pack("{s:s, s:i, s:b}", "name", name, "version", 1 + i, "removed", 1);
}

/* However many names there ever were, there is room for another one. What is forgotten are
 * those that were taken down first, on all nodes the same, whoever heard of what first. */
static void test_names_that_were(void **state) {
    (void)state;
    enum { N = DEPLOYMENTS_DOWN_MAX + 100 };
    struct deployments d = empty(), other = empty();
    char digest[2][DEPLOYMENTS_DIGEST_BYTES];
    struct err err;
    bool changed;
    json_t *one = deployment("a", 1, 8080);
    for (int i = 0; i < N; i++) {
        assert_int_equal(merge_one(&d, taken_down(i), &changed, &err), ST_OK);
        assert_int_equal(merge_one(&other, taken_down(N - 1 - i), &changed, &err), ST_OK);
        assert_int_equal(changed, i < DEPLOYMENTS_DOWN_MAX);
    }
    assert_int_equal(d.n, DEPLOYMENTS_DOWN_MAX);
    assert_null(deployments_find(&d, "n99"));
    assert_non_null(deployments_find(&d, "n100"));
    deployments_digest(&d, digest[0]);
    deployments_digest(&other, digest[1]);
    assert_string_equal(digest[0], digest[1]);
    assert_int_equal(deployments_put(&d, one, &err), ST_OK);
    assert_int_equal(deployments_remove(&d, "a", &err), ST_OK);
    assert_false(deployments_find(&d, "a")->up);
    assert_null(deployments_find(&d, "n100"));
    json_decref(one);
    deployments_deinit(&d);
    deployments_deinit(&other);
}

/* As many as may be up are; elsewhere one of them is taken down, and another put up: names that
 * come before and after it in the list. Two parts of a cluster that did not see each other may
 * even have more together. */
static void test_full_lists_merge(void **state) {
    (void)state;
    struct deployments a = empty(), b = empty(), *both[] = {&a, &b};
    struct err err;
    bool changed;
    char name[16], digests[2][DEPLOYMENTS_DIGEST_BYTES];
    for (int i = 0; i < DEPLOYMENTS_MAX; i++) {
        snprintf(name, sizeof name, "n%02d", i);
        for (int k = 0; k < 2; k++)
            assert_int_equal(merge_one(both[k], deployment(name, 1, 1 + i), &changed, &err),
                             ST_OK);
    }
    json_t *one = deployment("a", 1, 8080), *two = deployment("b", 1, 8080);
    assert_int_equal(deployments_remove(&a, "n63", &err), ST_OK);
    assert_int_equal(deployments_put(&a, one, &err), ST_OK);
    assert_int_equal(deployments_remove(&b, "n63", &err), ST_OK);
    assert_int_equal(deployments_put(&b, two, &err), ST_OK);
    for (int k = 0; k < 2; k++) {
        json_t *list = deployments_list(both[k]);
        assert_int_equal(deployments_merge(both[!k], list, &changed, &err), ST_OK);
        json_decref(list);
    }
    for (int k = 0; k < 2; k++) {
        assert_false(deployments_find(both[k], "n63")->up);
        assert_true(deployments_find(both[k], "a")->up);
        deployments_digest(both[k], digests[k]);
        deployments_deinit(both[k]);
    }
    assert_string_equal(digests[0], digests[1]);
    json_decref(one);
    json_decref(two);
}

static void test_on_disk(void **state) {
    (void)state;
    struct deployments d = empty(), back = empty();
    struct err err;
    struct stat st;
    char folder[] = "/tmp/test_deployments-XXXXXX", path[64],
         digest[2][DEPLOYMENTS_DIGEST_BYTES];
    bool changed;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/state/d.json", folder);
    assert_int_equal(deployments_read(&back, path, &err), ST_NOT_FOUND);
    assert_int_equal(merge_one(&d, deployment("a", 3, 80), &changed, &err), ST_OK);
    assert_int_equal(deployments_write(&d, path, &err), ST_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(deployments_read(&back, path, &err), ST_OK);
    deployments_digest(&d, digest[0]);
    deployments_digest(&back, digest[1]);
    assert_string_equal(digest[0], digest[1]);
    assert_int_equal(truncate(path, st.st_size / 2), 0);
    assert_int_equal(deployments_read(&back, path, &err), ST_BAD_INPUT);
    assert_non_null(strstr(err.text, path));
    /* What is there and cannot be opened is no list that is not there: a node would write an
     * empty one over it. */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("d.json", path), 0);
    assert_int_equal(deployments_read(&back, path, &err), ST_IO);
    assert_non_null(strstr(err.text, path));
    unlink(path);
    snprintf(path, sizeof path, "%s/state", folder);
    rmdir(path);
    rmdir(folder);
    deployments_deinit(&d);
    deployments_deinit(&back);
}

static void test_owner(void **state) {
    (void)state;
    struct deployment_candidate list[] = {{"id0", "ann", 0, 0, 0, true},
                                          {"id1", "bob", 0, 0, 0, true},
                                          {"id2", "cat", 0, 0, 0, true}};
    const size_t n = ARRAY_LEN(list);
    assert_int_equal(deployment_owner("m", "bob", list, n), 1);
    assert_int_equal(deployment_owner("m", "bob", list, 0), 0);
    list[1].able = false;
    size_t heir = deployment_owner("m", "bob", list, n);
    assert_true(heir == 0 || heir == 2);
    /* Whoever runs it keeps it, though home is back. Of two, which could not see each other, the
     * one that has served longer; but more ranks count more than that. */
    list[1].able = true;
    list[heir].term = 2;
    assert_int_equal(deployment_owner("m", "bob", list, n), heir);
    list[2 - heir].term = 3;
    assert_int_equal(deployment_owner("m", "bob", list, n), heir);
    list[2 - heir].ranks = 2;
    list[heir].ranks = 1;
    assert_int_equal(deployment_owner("m", "bob", list, n), 2 - heir);
    list[heir].ranks = 2;
    assert_int_equal(deployment_owner("m", "bob", list, n), heir);
    /* One that fails makes room. */
    list[0].term = list[2].term = 0;
    list[1].failures = 1;
    assert_int_not_equal(deployment_owner("m", "bob", list, n), 1);
    for (size_t i = 0; i < n; i++)
        list[i].able = false;
    assert_int_equal(deployment_owner("m", "bob", list, n), n);
    /* All nodes choose the same, in whatever order they list each other. */
    for (size_t i = 0; i < n; i++)
        list[i] = (struct deployment_candidate){list[i].node, list[i].name, 0, 0, 0, true};
    const char *first = list[deployment_owner("m", "gone", list, n)].name;
    struct deployment_candidate turned[] = {list[2], list[0], list[1]};
    assert_string_equal(turned[deployment_owner("m", "gone", turned, n)].name, first);
}

/* Several deployments whose home is gone do not all move to one node. */
static void test_owners_differ(void **state) {
    (void)state;
    const struct deployment_candidate list[] = {{"id0", "ann", 0, 0, 0, true},
                                                {"id1", "bob", 0, 0, 0, true}};
    int n_first = 0;
    char name[16];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "m%d", i);
        n_first += deployment_owner(name, "gone", list, 2) == 0;
    }
    assert_in_range(n_first, 20, 80);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_put_and_remove),
                                       cmocka_unit_test(test_move),
                                       cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_many_names),
                                       cmocka_unit_test(test_the_later_wish_wins),
                                       cmocka_unit_test(test_form),
                                       cmocka_unit_test(test_fields),
                                       cmocka_unit_test(test_words),
                                       cmocka_unit_test(test_merge_in_any_order),
                                       cmocka_unit_test(test_limits),
                                       cmocka_unit_test(test_names_that_were),
                                       cmocka_unit_test(test_full_lists_merge),
                                       cmocka_unit_test(test_on_disk),
                                       cmocka_unit_test(test_owner),
                                       cmocka_unit_test(test_owners_differ)};
    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
