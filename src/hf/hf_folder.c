/* hf_folder.c: opens a folder: finds its files, joins the tensors of its shards, and has the
 * other hf_*.c files make keys and rows. */
#include "hf/hf_folder.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "hf/hf_impl.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_CONFIG_BYTES ((size_t)16 << 20)
#define MAX_INDEX_BYTES ((size_t)128 << 20)
#define MAX_SHARDS 10000

enum status hf_no_memory(const struct hf_folder *f, struct err *err) {
    return err_set(err, ST_NO_MEMORY, "%s: no memory to open it", f->path);
}

/* ---- files --------------------------------------------------------------------------- */

static enum status path_of(const struct hf_folder *f, const char *file, char *buf, size_t size,
                           struct err *err) {
    int n = snprintf(buf, size, "%s/%s", f->path, file);
    if (n < 0 || (size_t)n >= size)
        return err_set(err, ST_BAD_INPUT, "%s: the path is too long", f->path);
    return ST_OK;
}

enum status hf_map(const struct hf_folder *f, const char *file, size_t max_bytes,
                   struct file_map *out, struct err *err) {
    char path[PATH_MAX];
    TRY(path_of(f, file, path, sizeof path, err));
    TRY(file_map_open(out, path, err));
    if (out->size <= max_bytes)
        return ST_OK;
    file_map_close(out);
    return err_set(err, ST_BAD_INPUT, "%s: more than %zu MiB", path, max_bytes >> 20);
}

enum status hf_json(const struct hf_folder *f, const char *file, size_t max_bytes, json_t **out,
                    struct err *err) {
    struct file_map m;
    TRY(hf_map(f, file, max_bytes, &m, err));
    json_error_t why;
    const char *bytes = (const char *)m.bytes;
    /* transformers says "no limit" as int(1e30), for one in tokenizer_config.json's
     * model_max_length. */
    json_t *o = json_read(bytes, m.size, JSON_REJECT_DUPLICATES, &why);
    file_map_close(&m);
    if (!json_is_object(o)) {
        char text[100];
        gguf_escape((struct gguf_str){why.text, strlen(why.text)}, text, sizeof text);
        json_decref(o);
        return err_set(err, ST_BAD_INPUT, "%s/%s: not a JSON object%s%s", f->path, file,
                       o ? "" : ": ", o ? "" : text);
    }
    *out = o;
    return ST_OK;
}

bool hf_embeds(const struct hf_folder *f) {
    char path[PATH_MAX];
    return path_of(f, "modules.json", path, sizeof path, NULL) == ST_OK &&
           access(path, R_OK) == 0;
}

/* ---- shards -------------------------------------------------------------------------- */

static bool is_shard_name(const char *s) {
    static const char tail[] = ".safetensors";
    size_t n = strlen(s);
    return n >= sizeof tail && n < NAME_MAX && s[0] != '.' && !strchr(s, '/') &&
           !strchr(s, '\\') && str_eq(s + n - (sizeof tail - 1), tail);
}

static enum status open_shard(struct hf_folder *f, const char *file, struct err *err) {
    char path[PATH_MAX];
    TRY(path_of(f, file, path, sizeof path, err));
    if (f->n_files == MAX_SHARDS)
        return err_set(err, ST_BAD_INPUT, "%s: more than %d shards", f->path, MAX_SHARDS);
    struct file_map *maps = mem_realloc(f->maps, (f->n_files + 1) * sizeof *maps);
    if (!maps)
        return hf_no_memory(f, err);
    f->maps = maps;
    struct safe_file *files = mem_realloc(f->files, (f->n_files + 1) * sizeof *files);
    if (!files)
        return hf_no_memory(f, err);
    f->files = files;
    struct file_map m;
    TRY(file_map_open(&m, path, err));
    enum status st = safetensors_parse(&files[f->n_files], m.bytes, m.size, err);
    if (st != ST_OK) {
        file_map_close(&m);
        return err_prefix(err, st, "%s: ", path);
    }
    maps[f->n_files++] = m;
    return ST_OK;
}

static int compare_tensor(const void *a, const void *b) {
    const struct hf_tensor *x = a, *y = b;
    return strcmp(x->t->name, y->t->name);
}

struct hf_tensor *hf_find(const struct hf_folder *f, const char *name) {
    size_t begin = 0, end = f->n_tensors;
    while (begin < end) {
        size_t mid = begin + (end - begin) / 2;
        int c = strcmp(name, f->tensors[mid].t->name);
        if (c == 0)
            return &f->tensors[mid];
        if (c < 0)
            end = mid;
        else
            begin = mid + 1;
    }
    return NULL;
}

static enum status join_shards(struct hf_folder *f, struct err *err) {
    size_t n = 0;
    for (uint32_t i = 0; i < f->n_files; i++)
        n += f->files[i].n;
    f->tensors = mem_calloc(MAX(n, 1), sizeof *f->tensors);
    if (!f->tensors)
        return hf_no_memory(f, err);
    for (uint32_t i = 0; i < f->n_files; i++)
        for (size_t k = 0; k < f->files[i].n; k++)
            f->tensors[f->n_tensors++] =
                (struct hf_tensor){.t = &f->files[i].tensors[k], .file = i};
    qsort(f->tensors, n, sizeof *f->tensors, compare_tensor);
    for (size_t i = 1; i < n; i++)
        if (str_eq(f->tensors[i - 1].t->name, f->tensors[i].t->name))
            return err_set(err, ST_BAD_INPUT, "%s: tensor %.200s is in two shards", f->path,
                           f->tensors[i].t->name);
    return ST_OK;
}

/* The shards that the index names, each once: sorted by name. */
static int compare_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum status open_named(struct hf_folder *f, const json_t *map, struct err *err) {
    size_t n = 0;
    const char *name;
    json_t *file;
    const char **files = mem_calloc(MAX(json_object_size(map), (size_t)1), sizeof *files);
    if (!files)
        return hf_no_memory(f, err);
    enum status st = ST_OK;
    json_object_foreach((json_t *)map, name, file) {
        const char *s = json_string_value(file);
        if (!s || !is_shard_name(s)) {
            char shown[100];
            st = err_set(
                err, ST_BAD_INPUT,
                "%s/model.safetensors.index.json: '%s' is not the name of a shard in this "
                "folder",
                f->path,
                s ? gguf_escape((struct gguf_str){s, strlen(s)}, shown, sizeof shown)
                  : "(not a string)");
            break;
        }
        files[n++] = s;
    }
    qsort(files, n, sizeof *files, compare_text);
    for (size_t i = 0; i < n && st == ST_OK; i++)
        if (i == 0 || !str_eq(files[i - 1], files[i]))
            st = open_shard(f, files[i], err);
    mem_free(files);
    return st;
}

static enum status check_index(const struct hf_folder *f, const json_t *map, struct err *err) {
    const char *name;
    json_t *file;
    json_object_foreach((json_t *)map, name, file) {
        const struct hf_tensor *t = hf_find(f, name);
        size_t dir = strlen(f->path) + 1;
        if (!t || !str_eq(f->maps[t->file].path + dir, json_string_value(file)))
            return err_set(
                err, ST_BAD_INPUT,
                "%s: model.safetensors.index.json says that %.100s is in %.100s, but "
                "it is not",
                f->path, name, json_string_value(file));
    }
    return ST_OK;
}

static enum status open_shards(struct hf_folder *f, struct err *err) {
    json_t *index = NULL;
    enum status st = hf_json(f, "model.safetensors.index.json", MAX_INDEX_BYTES, &index, err);
    if (st == ST_NOT_FOUND) {
        st = open_shard(f, "model.safetensors", err);
        if (st == ST_NOT_FOUND)
            return err_set(err, ST_NOT_FOUND,
                           "%s: neither model.safetensors nor model.safetensors.index.json is "
                           "there",
                           f->path);
        return st == ST_OK ? join_shards(f, err) : st;
    }
    if (st != ST_OK)
        return st;
    const json_t *map = json_object_get(index, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        st = err_set(err, ST_BAD_INPUT, "%s/model.safetensors.index.json: has no weight_map",
                     f->path);
    if (st == ST_OK)
        st = open_named(f, map, err);
    if (st == ST_OK)
        st = join_shards(f, err);
    if (st == ST_OK)
        st = check_index(f, map, err);
    json_decref(index);
    return st;
}

/* ---- the whole ----------------------------------------------------------------------- */

void *hf_own(struct hf_folder *f, void *p) {
    if (!p)
        return NULL;
    if (!mem_reserve(&f->owned, &f->cap_owned, f->n_owned + 1, sizeof *f->owned)) {
        mem_free(p);
        return NULL;
    }
    return f->owned[f->n_owned++] = p;
}

static enum status read_all(struct hf_folder *f, struct err *err) {
    uint32_t n_vocab;
    enum status st = hf_json(f, "config.json", MAX_CONFIG_BYTES, &f->config, err);
    if (st == ST_NOT_FOUND)
        return err_set(err, ST_NOT_FOUND, "%s: a folder without config.json is not a model",
                       f->path);
    TRY(st);
    TRY(gguf_writer_open_header(&f->w, f->path, err));
    TRY(hf_read_config(f, err));
    TRY(open_shards(f, err));
    TRY(hf_n_vocab(f, &n_vocab, err));
    TRY(hf_read_tokenizer(f, n_vocab, err));
    return hf_read_tensors(f, err);
}

static enum status hand_over(struct hf_folder *f, struct gguf **out, struct err *err) {
    struct gguf_made made = {.parts = f->maps, .n_parts = f->n_files};
    TRY(gguf_writer_header(f->w, &made.header, &made.header_len, err));
    made.folder = mem_strdup(f->path);
    bool kept = hf_own(f, made.header) != NULL;
    if (!made.folder || !kept || (f->n_rows > 0 && !hf_own(f, f->rows))) {
        f->rows = NULL; /* freed or owned */
        mem_free(made.folder);
        return hf_no_memory(f, err);
    }
    made.rows = f->rows;
    f->rows = NULL;
    made.owned = f->owned;
    made.n_owned = f->n_owned;
    char *name = made.folder;
    enum status st = gguf_open_made(out, &made, err);
    if (st != ST_OK) {
        mem_free(name);
        return err_prefix(err, st, "%s: ", f->path);
    }
    f->maps = NULL;
    f->owned = NULL;
    f->n_owned = 0;
    return ST_OK;
}

static void hf_deinit(struct hf_folder *f) {
    for (uint32_t i = 0; i < f->n_files; i++) {
        if (f->maps)
            file_map_close(&f->maps[i]);
        safetensors_deinit(&f->files[i]);
    }
    for (size_t i = 0; i < f->n_owned; i++)
        mem_free(f->owned[i]);
    mem_free(f->owned);
    mem_free(f->rows);
    mem_free(f->tensors);
    mem_free(f->maps);
    mem_free(f->files);
    gguf_writer_close(f->w);
    json_decref(f->config);
}

enum status hf_open(struct gguf **out, const char *path, struct err *err) {
    char clean[PATH_MAX];
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    snprintf(clean, sizeof clean, "%.*s", (int)MIN(n, sizeof clean - 1), path);
    struct hf_folder f = {.path = clean};
    enum status st = read_all(&f, err);
    if (st == ST_OK)
        st = hand_over(&f, out, err);
    hf_deinit(&f);
    return st;
}

enum status hf_open_any(struct gguf **out, const char *path, const struct gguf_options *opts,
                        struct err *err) {
    struct stat sb;
    return stat(path, &sb) == 0 && S_ISDIR(sb.st_mode) ? hf_open(out, path, err)
                                                       : gguf_open(out, path, opts, err);
}
