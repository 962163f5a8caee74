/* model_files.c: Lists the files of a model, with digests of samples, and compares such lists.
 */
#include "cluster/model_files.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/util.h"
#include "format/gguf.h"
#include "hf/hf_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define END_BYTES ((size_t)1 << 20)
#define SAMPLE_BYTES ((size_t)64 << 10)
#define N_SAMPLES 64
#define NAME_MAX_BYTES 255

/* ---- digests ----------------------------------------------------------------------------- */

static bool hash_range(crypto_generichash_state *h, int fd, char *buf, uint64_t at, size_t n) {
    if (!file_read_at(fd, buf, n, at))
        return false;
    crypto_generichash_update(h, (const uint8_t *)buf, n);
    return true;
}

static bool hash_file(uint8_t out[MODEL_DIGEST_BYTES], int fd, uint64_t bytes) {
    crypto_generichash_state h;
    char *buf = mem_alloc(END_BYTES);
    size_t end = (size_t)MIN((uint64_t)END_BYTES, bytes);
    if (buf == NULL)
        return false;
    crypto_generichash_init(&h, NULL, 0, MODEL_DIGEST_BYTES);
    bool good = hash_range(&h, fd, buf, 0, end) && hash_range(&h, fd, buf, bytes - end, end);
    if (bytes > 2 * END_BYTES + N_SAMPLES * SAMPLE_BYTES)
        for (uint64_t i = 1; good && i <= N_SAMPLES; i++)
            good = hash_range(&h, fd, buf, bytes / (N_SAMPLES + 1) * i, SAMPLE_BYTES);
    else if (bytes > 2 * END_BYTES) /* small: all of it */
        for (uint64_t at = END_BYTES; good && at < bytes - END_BYTES; at += END_BYTES)
            good = hash_range(&h, fd, buf, at,
                              (size_t)MIN((uint64_t)END_BYTES, bytes - END_BYTES - at));
    crypto_generichash_final(&h, out, MODEL_DIGEST_BYTES);
    mem_free(buf);
    return good;
}

/* Size and digest of a regular file. */
static enum status look_at(struct model_file *f, const char *path, struct err *err) {
    struct stat st;
    int fd =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for its writer */
    if (fd < 0)
        return err_set(err, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: %s", path,
                       strerror(errno));
    bool good = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    if (good) {
        f->bytes = (uint64_t)st.st_size;
        good = hash_file(f->digest, fd, f->bytes);
    }
    close(fd);
    return good ? ST_OK : err_set(err, ST_IO, "%s: cannot be read", path);
}

bool model_file_is_at(const struct model_file *f, const char *path) {
    struct model_file there = {.bytes = 0};
    struct stat st;
    return stat(path, &st) == 0 && (uint64_t)st.st_size == f->bytes &&
           look_at(&there, path, NULL) == ST_OK && there.bytes == f->bytes &&
           memcmp(there.digest, f->digest, sizeof there.digest) == 0;
}

void model_files_digest(const struct model_files *m, uint8_t out[MODEL_DIGEST_BYTES]) {
    crypto_generichash_state h;
    crypto_generichash_init(&h, NULL, 0, MODEL_DIGEST_BYTES);
    for (size_t i = 0; i < m->n; i++) {
        crypto_generichash_update(&h, (const uint8_t *)m->list[i].name,
                                  strlen(m->list[i].name) + 1);
        crypto_generichash_update(&h, (const uint8_t *)&m->list[i].bytes,
                                  sizeof m->list[i].bytes);
        crypto_generichash_update(&h, m->list[i].digest, MODEL_DIGEST_BYTES);
    }
    crypto_generichash_final(&h, out, MODEL_DIGEST_BYTES);
}

/* ---- names ------------------------------------------------------------------------------- */

/* A name that stays in its folder, and on its line of a log. */
static bool is_plain_name(const char *name) {
    for (const char *c = name; *c != '\0'; c++)
        if ((uint8_t)*c < ' ' || *c == '/' || *c == 127)
            return false;
    return *name != '\0' && *name != '.' && strlen(name) <= NAME_MAX_BYTES;
}

/* A name that another machine will accept, too. A name that JSON cannot express would be
 * missing in the list there, and all files after it would be confused. */
static bool can_be_told(const char *name) {
    json_t *text = json_string(name); /* UTF-8, or NULL */
    json_decref(text);
    return text != NULL && is_plain_name(name);
}

/* ---- the files of a model ---------------------------------------------------------------- */

void model_files_deinit(struct model_files *m) {
    for (size_t i = 0; i < m->n; i++)
        mem_free(m->list[i].name);
    mem_free(m->list);
    mem_free(m->name);
    *m = (struct model_files){0};
}

static enum status add_file(struct model_files *m, const struct model_file *f, const char *name,
                            struct err *err) {
    if (m->n == MODEL_FILES_MAX)
        return err_set(err, ST_BAD_INPUT, "%s: more than %d files", m->name, MODEL_FILES_MAX);
    struct model_file *list = mem_realloc(m->list, (m->n + 1) * sizeof *list);
    if (list == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a list of files");
    m->list = list;
    list[m->n] = *f;
    list[m->n].name = mem_strdup(name);
    if (list[m->n].name == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a list of files");
    m->n++;
    m->bytes += f->bytes;
    return ST_OK;
}

static enum status add_path(struct model_files *m, const char *path, struct err *err) {
    struct model_file f = {.bytes = 0};
    const char *slash = strrchr(path, '/');
    TRY(look_at(&f, path, err));
    return add_file(m, &f, slash != NULL ? slash + 1 : path, err);
}

static int compare_names(const void *a, const void *b) {
    const struct model_file *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Regular files that are not hidden. A name that is not UTF-8 does not belong to a model, since
 * config.json and the index are text. */
static enum status add_folder(struct model_files *m, const char *path, struct err *err) {
    DIR *dir = opendir(path);
    if (dir == NULL)
        return err_set(err, ST_IO, "%s: %s", path, strerror(errno));
    enum status st = ST_OK;
    for (struct dirent *e; st == ST_OK && (e = readdir(dir)) != NULL;) {
        char file[PATH_MAX];
        struct stat there;
        if (!can_be_told(e->d_name) ||
            snprintf(file, sizeof file, "%s/%s", path, e->d_name) >= (int)sizeof file ||
            stat(file, &there) != 0 || !S_ISREG(there.st_mode))
            continue;
        st = add_path(m, file, err);
    }
    closedir(dir);
    if (m->n > 0)
        qsort(m->list, m->n, sizeof *m->list, compare_names);
    return st;
}

/* REPO of "models--ORG--REPO/snapshots/COMMIT", a folder of Hugging Face's cache (hub/cache.h),
 * which is n letters long; NULL: it is none. *n: of the result. */
static const char *name_of_snapshot(const char *path, size_t *n) {
    static const char middle[] = "/snapshots/";
    const char *at = NULL;
    for (const char *next = path; (next = strstr(next, middle)) != NULL; next++)
        at = next;
    if (at == NULL || *n != (size_t)(at - path) + strlen(middle) + 40 ||
        strspn(at + strlen(middle), "0123456789abcdef") < 40)
        return NULL;
    const char *begin = at;
    while (begin > path && begin[-1] != '/')
        begin--;
    const char *org = str_starts(begin, "models--") ? begin + strlen("models--") : NULL;
    const char *dashes = org != NULL ? strstr(org, "--") : NULL;
    if (dashes == NULL || dashes + 2 >= at)
        return NULL;
    *n = (size_t)(at - dashes) - 2;
    return dashes + 2;
}

char *model_name_of(const char *path) {
    struct gguf_part part;
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end, n = end;
    const char *repo = name_of_snapshot(path, &n);
    if (repo != NULL)
        return mem_strndup(repo, n);
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    if (gguf_part_of(path, &part) && part.n_stem > begin)
        end = part.n_stem;
    else if (end - begin > 5 && strncmp(path + end - 5, ".gguf", 5) == 0)
        end -= 5;
    return mem_strndup(path + begin, end - begin);
}

/* All parts of "...-00001-of-0000N.gguf", or the one file. */
static enum status add_parts(struct model_files *m, const char *path, struct err *err) {
    struct gguf_part part;
    if (!gguf_part_of(path, &part) || part.no != 1)
        return add_path(m, path, err);
    for (unsigned i = 1; i <= part.count; i++) {
        char other[PATH_MAX];
        if (!gguf_part_name(path, &part, i, other, sizeof other))
            return err_set(err, ST_BAD_INPUT, "%s: too long a name", path);
        TRY(add_path(m, other, err));
    }
    return ST_OK;
}

enum status model_files_read(struct model_files *out, const char *path, struct err *err) {
    struct model_files m = {.name = NULL};
    char real[PATH_MAX];
    struct stat st;
    if (sodium_init() < 0)
        return err_set(err, ST_IO, "libsodium does not start");
    /* A folder may be named "." or end in a slash; what a link is called counts, not where it
     * leads. */
    snprintf(real, sizeof real, "%s", path);
    for (size_t n = strlen(real); n > 1 && real[n - 1] == '/'; n--)
        real[n - 1] = '\0';
    const char *base = strrchr(real, '/');
    base = base != NULL ? base + 1 : real;
    if (stat(path, &st) != 0)
        return err_set(err, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: %s", path,
                       strerror(errno));
    if (S_ISDIR(st.st_mode) && (str_eq(base, ".") || str_eq(base, "..") || *base == '\0')) {
        if (realpath(path, real) == NULL)
            return err_set(err, ST_IO, "%s: %s", path, strerror(errno));
        base = strrchr(real, '/') + 1;
    }
    if (!can_be_told(base))
        return err_set(
            err, ST_BAD_INPUT,
            "%s: other machines cannot be told of a name that begins with a dot, has "
            "control characters, or is not valid UTF-8",
            path);
    m.folder = S_ISDIR(st.st_mode);
    m.name = mem_strdup(base);
    if (m.name == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a list of files");
    enum status result = m.folder ? add_folder(&m, real, err) : add_parts(&m, real, err);
    if (result == ST_OK && m.n == 0)
        result = err_set(err, ST_NOT_FOUND, "%s: an empty folder is not a model", path);
    if (result != ST_OK) {
        model_files_deinit(&m);
        return result;
    }
    *out = m;
    return ST_OK;
}

bool model_files_place(const struct model_files *m, size_t i, const char *path, char *out,
                       size_t size) {
    const char *slash = strrchr(path, '/');
    int n;
    if (m->folder)
        n = snprintf(out, size, "%s/%s", path, m->list[i].name);
    else
        n = snprintf(out, size, "%.*s%s", slash != NULL ? (int)(slash + 1 - path) : 0, path,
                     m->list[i].name);
    return n >= 0 && (size_t)n < size;
}

bool model_files_are_at(const struct model_files *m, const char *path) {
    char file[PATH_MAX];
    struct stat st;
    if (stat(path, &st) != 0 || S_ISDIR(st.st_mode) != m->folder)
        return false;
    for (size_t i = 0; i < m->n; i++)
        if (!model_files_place(m, i, path, file, sizeof file) ||
            !model_file_is_at(&m->list[i], file))
            return false;
    return true;
}

enum status model_files_find_heads(struct model_files *m, const char *path, struct err *err) {
    struct gguf *g;
    if (m->folder)
        return ST_OK;
    TRY(hf_open_any(&g, path, NULL, err));
    for (size_t i = 0; i < m->n; i++)
        m->list[i].head = m->list[i].bytes;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->part < m->n)
            m->list[t->part].head = MIN(m->list[t->part].head, t->offset);
    }
    gguf_close(g);
    return ST_OK;
}

bool model_files_have_heads(const struct model_files *m) {
    for (size_t i = 0; i < m->n; i++)
        if (m->list[i].head == 0)
            return false;
    return m->n > 0 && !m->folder;
}

/* ---- as JSON ----------------------------------------------------------------------------- */

json_t *model_files_json(const struct model_files *m) {
    json_t *list = json_array();
    for (size_t i = 0; i < m->n; i++) {
        char hex[2 * MODEL_DIGEST_BYTES + 1];
        sodium_bin2hex(hex, sizeof hex, m->list[i].digest, MODEL_DIGEST_BYTES);
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:s}", "name", m->list[i].name,
                                              "bytes", (json_int_t)m->list[i].bytes, "head",
                                              (json_int_t)m->list[i].head, "digest", hex));
    }
    return json_pack("{s:s, s:b, s:o}", "name", m->name, "folder", m->folder, "files", list);
}

/* Names ascend, as model_files_read() has them, so that none is there twice; the sum is a
 * number. */
static bool may_follow(const struct model_files *m, const struct model_file *f,
                       const char *name) {
    uint64_t sum;
    return (m->n == 0 || strcmp(m->list[m->n - 1].name, name) < 0) &&
           !__builtin_add_overflow(m->bytes, f->bytes, &sum) && sum <= INT64_MAX;
}

/* The ith file of a list, after those before it. */
static enum status add_from_json(struct model_files *m, size_t i, json_t *e, struct err *err) {
    struct model_file f = {.bytes = 0};
    const char *name, *hex;
    json_int_t bytes, head = 0;
    size_t n_digest = 0;
    if (json_unpack(e, "{s:s, s:I, s?I, s:s}", "name", &name, "bytes", &bytes, "head", &head,
                    "digest", &hex) != 0 ||
        bytes < 0 || head < 0 || head > bytes || !is_plain_name(name) ||
        sodium_hex2bin(f.digest, sizeof f.digest, hex, strlen(hex), NULL, &n_digest, NULL) !=
            0 ||
        n_digest != sizeof f.digest)
        return err_set(err, ST_BAD_INPUT,
                       "file %zu of the model is not {\"name\": .., \"bytes\": .., "
                       "\"digest\": ..}",
                       i);
    f.bytes = (uint64_t)bytes;
    f.head = (uint64_t)head;
    if (!may_follow(m, &f, name))
        return err_set(err, ST_BAD_INPUT, "file %zu of the model is out of order or too large",
                       i);
    return add_file(m, &f, name, err);
}

enum status model_files_from_json(struct model_files *out, const json_t *json,
                                  struct err *err) {
    struct model_files m = {.name = NULL};
    const char *name;
    json_t *list, *e;
    size_t i;
    int folder;
    enum status st = ST_OK;
    if (json_unpack((json_t *)(uintptr_t)json, "{s:s, s:b, s:o}", "name", &name, "folder",
                    &folder, "files", &list) != 0 ||
        !json_is_array(list) || json_array_size(list) == 0)
        return err_set(err, ST_BAD_INPUT,
                       "a model is {\"name\": .., \"folder\": .., \"files\": [..]}");
    m.folder = folder != 0;
    m.name = mem_strdup(name);
    if (m.name == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a list of files");
    json_array_foreach(list, i, e) {
        st = add_from_json(&m, i, e, err);
        if (st != ST_OK)
            break;
    }
    if (st == ST_OK &&
        (!is_plain_name(m.name) || (!m.folder && !str_eq(m.name, m.list[0].name))))
        st = err_set(err, ST_BAD_INPUT, "the model's name is none of a file");
    if (st != ST_OK) {
        model_files_deinit(&m);
        return st;
    }
    *out = m;
    return ST_OK;
}
