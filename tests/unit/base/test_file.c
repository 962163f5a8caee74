/* What is said to be on the disk is there: a file of base/file.h that is finished with sync has
 * its bytes synced before it gets its name, and its folder after. That a power cut takes a
 * rename unless the folder is synced is from fsync(2): "Calling fsync() does not necessarily
 * ensure that the entry in the directory containing the file has also reached disk". */
#include "base/file.h"
#include "cluster/deployments.h"
#include "cluster/key.h"

#include <errno.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/syscall.h>
#endif

#include <cmocka.h>

static char events[64]; /* 'f' a file was synced, 'd' a folder, in order */
static bool was_named;  /* the file had its name already when it was synced */
static int folder_error;
static char folder[64], path[128];

/* In place of the C library's. */
int fsync(int fd) {
    struct stat st;
    bool is_folder = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    strcat(events, is_folder ? "d" : "f");
    if (!is_folder)
        was_named = access(path, F_OK) == 0;
    if (is_folder && folder_error != 0) {
        errno = folder_error;
        return -1;
    }
#ifdef __linux__
    return (int)syscall(SYS_fsync, fd);
#else
    return 0;
#endif
}

static void begin(const char *name) {
    events[0] = '\0';
    folder_error = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
}

static void test_new_file(void **state) {
    struct file_new n;
    (void)state;
    begin("new");
    assert_int_equal(file_new_open(&n, path, NULL), ST_OK);
    fputs("text", n.f);
    assert_int_equal(file_new_finish(&n, true, NULL), ST_OK);
    assert_string_equal(events, "fd");
    assert_false(was_named);
}

static void test_folder_that_fails(void **state) {
    struct file_new n;
    struct err err;
    (void)state;
    begin("lost");
    folder_error = EIO;
    assert_int_equal(file_new_open(&n, path, NULL), ST_OK);
    assert_int_equal(file_new_finish(&n, true, &err), ST_IO);
    assert_non_null(strstr(err.text, folder));
    folder_error = EINVAL; /* a file system that syncs no folders */
    assert_int_equal(file_new_open(&n, path, NULL), ST_OK);
    assert_int_equal(file_new_finish(&n, true, NULL), ST_OK);
}

static void test_deployments(void **state) {
    struct deployments d;
    (void)state;
    begin("deployments.json");
    deployments_init(&d);
    assert_int_equal(deployments_write(&d, path, NULL), ST_OK);
    assert_string_equal(events, "fd");
    folder_error = EIO;
    assert_int_equal(deployments_write(&d, path, NULL), ST_IO);
    deployments_deinit(&d);
}

static void test_key(void **state) {
    struct cluster_key key;
    bool made;
    (void)state;
    begin("key");
    assert_int_equal(cluster_key_find(&key, path, &made, NULL), ST_OK);
    assert_true(made);
    assert_string_equal(events, "fd");
    begin("key"); /* over the one that is there */
    assert_int_equal(cluster_key_write(&key, path, NULL), ST_OK);
    assert_string_equal(events, "fd");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_new_file), cmocka_unit_test(test_folder_that_fails),
        cmocka_unit_test(test_deployments), cmocka_unit_test(test_key)};
    strcpy(folder, "/tmp/lockstep-file-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    static const char *const names[] = {"new", "lost", "deployments.json", "key"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
    return failed;
}
