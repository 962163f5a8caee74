/* catalog.c: Lists the models in a folder, by name. */
#include "cluster/catalog.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "cluster/model_files.h"
#include "format/gguf.h"
#include "hub/stores.h"

#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define CATALOG_MAX 4096

static bool join(char out[PATH_MAX], const char *folder, const char *name) {
    return snprintf(out, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

static bool is_file(const char *path, uint64_t *bytes) {
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return false;
    *bytes = (uint64_t)st.st_size;
    return true;
}

static void add(json_t *all, const char *path, uint64_t bytes, size_t n_files) {
    char *name = model_name_of(path);
    json_t *one = name != NULL && json_array_size(all) < CATALOG_MAX
                      ? json_pack("{s:s, s:s, s:I, s:I, s:I}", "name", name, "path", path,
                                  "bytes", (json_int_t)bytes, "files", (json_int_t)n_files,
                                  "used", (json_int_t)file_used_s(path))
                      : NULL;
    if (one != NULL)
        json_array_append_new(all, one);
    mem_free(name);
}

/* A GGUF, unless it is a part that is not the first. */
static void add_gguf(json_t *all, const char *path) {
    struct gguf_part part;
    uint64_t bytes, sum = 0;
    if (!gguf_part_of(path, &part)) {
        if (is_file(path, &bytes))
            add(all, path, bytes, 1);
        return;
    }
    if (part.no != 1)
        return;
    for (unsigned i = 1; i <= part.count; i++) {
        char other[PATH_MAX];
        if (!gguf_part_name(path, &part, i, other, sizeof other) || !is_file(other, &bytes))
            return;
        sum += bytes;
    }
    add(all, path, sum, part.count);
}

static void add_folder(json_t *all, const char *path, int depth);

static void look_at(json_t *all, const char *folder, const struct dirent *e, int depth) {
    char path[PATH_MAX];
    struct stat st;
    size_t n = strlen(e->d_name);
    if (e->d_name[0] == '.' || !join(path, folder, e->d_name))
        return;
    if (n > 5 && str_eq(e->d_name + n - 5, ".gguf"))
        add_gguf(all, path);
    else if (depth > 0 && lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
        add_folder(all, path, depth - 1);
}

/* Many repositories of GGUF files have a config.json, too: it is weights that make a folder a
 * model. */
static bool is_model_folder(const char *path) {
    static const char *const weights[] = {"model.safetensors.index.json", "model.safetensors"};
    char file[PATH_MAX];
    uint64_t bytes;
    if (!join(file, path, "config.json") || !is_file(file, &bytes))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(weights); i++)
        if (join(file, path, weights[i]) && is_file(file, &bytes))
            return true;
    return false;
}

/* A model itself, or what is in it. */
static void add_folder(json_t *all, const char *path, int depth) {
    char file[PATH_MAX];
    uint64_t bytes, sum = 0;
    size_t n_files = 0;
    DIR *dir = opendir(path);
    if (dir == NULL)
        return;
    bool is_model = is_model_folder(path);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (!is_model)
            look_at(all, path, e, depth);
        else if (e->d_name[0] != '.' && join(file, path, e->d_name) && is_file(file, &bytes)) {
            sum += bytes;
            n_files++;
        }
    }
    closedir(dir);
    if (is_model)
        add(all, path, sum, n_files);
}

static int depth_of(const char *path) {
    int n = 0;
    for (const char *slash = path; (slash = strchr(slash, '/')) != NULL; slash++)
        n++;
    return n;
}

int catalog_compare_paths(const char *a, const char *b) {
    int deeper = depth_of(a) - depth_of(b);
    return deeper != 0 ? deeper : strcmp(a, b);
}

static int compare(const void *a, const void *b) {
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    int by_name = strcmp(json_text(x, "name"), json_text(y, "name"));
    return by_name != 0 ? by_name
                        : catalog_compare_paths(json_text(x, "path"), json_text(y, "path"));
}

json_t *catalog_sorted(const json_t *models) {
    json_t *sorted = json_array(), *one;
    size_t i, n = json_array_size(models);
    const json_t **list = mem_calloc(n + 1, sizeof *list);
    if (list != NULL && sorted != NULL) {
        json_array_foreach((json_t *)(uintptr_t)models, i, one) {
            list[i] = one;
        }
        qsort(list, n, sizeof *list, compare);
        for (i = 0; i < n; i++)
            json_array_append(sorted, (json_t *)(uintptr_t)list[i]);
    }
    mem_free(list);
    return sorted;
}

json_t *catalog_read(const char *folder) {
    json_t *all = json_array();
    if (all == NULL)
        return NULL;
    add_folder(all, folder, CATALOG_DEPTH);
    json_t *sorted = catalog_sorted(all);
    json_decref(all);
    return sorted;
}

json_t *catalog_read_all(const char *folder) {
    json_t *all = catalog_read(folder), *others = stores_list();
    if (all != NULL && others != NULL)
        json_array_extend(all, others);
    json_decref(others);
    return all;
}

const char *catalog_find(const json_t *catalog, const char *name) {
    size_t i;
    json_t *one;
    char *bare = model_name_of(name);
    const char *path = NULL;
    json_array_foreach((json_t *)(uintptr_t)catalog, i, one) {
        const char *its = json_text(one, "name");
        if (path == NULL && (str_eq(its, name) || (bare != NULL && str_eq(its, bare))))
            path = json_text(one, "path");
    }
    mem_free(bare);
    return path;
}
