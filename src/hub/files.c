/* files.c: Reads the list of a repository's files, and chooses those of the wanted model. */
#include "hub/files.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "format/gguf.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <strings.h>

#define FILES_MAX 20000
#define DEFAULT_QUANT "Q4_K_M"
#define LIST_BYTES 330 /* of a list in a sentence */

/* ---- the list ------------------------------------------------------------------------------ */

bool hub_is_hash(const char *text, size_t n) {
    return strlen(text) == n && strspn(text, "0123456789abcdef") == n;
}

bool hub_files_add(struct hub_files *f, const char *name, uint64_t bytes, const char *hash) {
    if (!mem_reserve(&f->list, &f->cap, f->n + 1, sizeof *f->list))
        return false;
    struct hub_file one = {.name = mem_strdup(name), .bytes = bytes};
    if (one.name == NULL)
        return false;
    if (hash != NULL)
        snprintf(one.hash, sizeof one.hash, "%s", hash);
    f->list[f->n++] = one;
    return true;
}

void hub_files_deinit(struct hub_files *f) {
    for (size_t i = 0; i < f->n; i++)
        mem_free(f->list[i].name);
    mem_free(f->list);
    *f = (struct hub_files){.n = 0};
}

static enum status add_sibling(struct hub_files *f, const json_t *one, struct err *err) {
    const json_t *lfs = json_object_get(one, "lfs");
    const char *name = json_string_value(json_object_get(one, "rfilename"));
    const json_t *size = json_object_get(one, "size");
    if (name == NULL || !hub_file_name_is_safe(name))
        return err_set(err, ST_BAD_INPUT,
                       "the list of files has the name '%.80s', which is refused: it could "
                       "mean a file elsewhere",
                       name != NULL ? name : "");
    const char *hash = json_text(one, "blobId");
    if (json_is_object(lfs)) {
        hash = json_text(lfs, "sha256");
        if (json_object_get(lfs, "size") != NULL)
            size = json_object_get(lfs, "size");
    }
    if (!hub_is_hash(hash, json_is_object(lfs) ? 64 : 40))
        hash = "";
    json_int_t bytes = json_is_integer(size) ? json_integer_value(size) : -1;
    if (bytes < 0)
        return err_set(err, ST_BAD_INPUT, "the list of files gives %.80s no size", name);
    return hub_files_add(f, name, (uint64_t)bytes, hash)
               ? ST_OK
               : err_set(err, ST_NO_MEMORY, "no memory for a list of files");
}

enum status hub_files_read(struct hub_files *out, const json_t *reply, struct err *err) {
    struct hub_files f = {.n = 0};
    const json_t *all = json_object_get(reply, "siblings");
    const char *commit = json_text(reply, "sha");
    size_t i;
    json_t *one;
    if (!hub_is_hash(commit, 40) || !json_is_array(all))
        return err_set(err, ST_BAD_INPUT, "its description has no commit or no list of files");
    if (json_array_size(all) > FILES_MAX)
        return err_set(err, ST_BAD_INPUT, "it has more than %d files", FILES_MAX);
    snprintf(f.commit, sizeof f.commit, "%s", commit);
    enum status st = ST_OK;
    json_array_foreach((json_t *)(uintptr_t)all, i, one) {
        if (st == ST_OK)
            st = add_sibling(&f, one, err);
    }
    if (st == ST_OK)
        *out = f;
    else
        hub_files_deinit(&f);
    return st;
}

/* ---- GGUF files ---------------------------------------------------------------------------- */

/* Of a model that computes text; others go with one, or with its making. */
static bool is_gguf(const char *name) {
    const char *slash = strrchr(name, '/'), *base = slash != NULL ? slash + 1 : name;
    size_t n = strlen(base);
    return n > 5 && strcasecmp(base + n - 5, ".gguf") == 0 &&
           strncasecmp(base, "mmproj", 6) != 0 && strcasestr(base, "imatrix") == NULL;
}

/* The whole file, or the first part of a split one. */
static bool is_first_gguf(const struct hub_file *f) {
    struct gguf_part part;
    return is_gguf(f->name) && (!gguf_part_of(f->name, &part) || part.no == 1);
}

/* The file of that name, or -1. */
static long index_of(const struct hub_files *f, const char *name) {
    for (size_t i = 0; i < f->n; i++)
        if (str_eq(f->list[i].name, name))
            return (long)i;
    return -1;
}

static bool is_word_letter(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static bool looks_like_quant(const char *w, size_t n) {
    static const char *const plain[] = {"BF16", "F16", "F32", "FP16", "FP32", "FP8"};
    for (size_t i = 0; i < ARRAY_LEN(plain); i++)
        if (n == strlen(plain[i]) && strncasecmp(w, plain[i], n) == 0)
            return true;
    if (n >= 5 && strncasecmp(w, "MXFP4", 5) == 0)
        return true;
    if (n > 2 && strchr("iItT", *w) != NULL)
        w++, n--;
    return n > 1 && (*w == 'Q' || *w == 'q') && isdigit((unsigned char)w[1]);
}

void hub_quant_of(const char *file, char *out, size_t size) {
    const char *slash = strrchr(file, '/');
    *out = '\0';
    for (const char *p = slash != NULL ? slash + 1 : file; *p != '\0'; p++) {
        size_t n = 0;
        while (is_word_letter(p[n]))
            n++;
        if (n > 0 && looks_like_quant(p, n)) {
            bool ud = p - file >= 3 && strncasecmp(p - 3, "UD-", 3) == 0;
            snprintf(out, size, "%.*s", (int)n + (ud ? 3 : 0), ud ? p - 3 : p);
        }
        if (n > 0)
            p += n - 1;
    }
}

/* How well `want` describes the name: 3 its name, 2 a word of it, 1 a piece of it, 0 not. */
static int match(const char *name, const char *want) {
    const char *slash = strrchr(name, '/');
    size_t n = strlen(want);
    int best = 0;
    if (strcasecmp(name, want) == 0 || (slash != NULL && strcasecmp(slash + 1, want) == 0))
        return 3;
    for (const char *at = name; best < 2 && (at = strcasestr(at, want)) != NULL; at++) {
        bool begins = at == name || !is_word_letter(at[-1]);
        best = begins && !is_word_letter(at[n]) ? 2 : 1;
    }
    return best;
}

/* Calls visit for all parts; false: one is missing, or visit said so. */
static bool each_part(const struct hub_files *f, size_t first,
                      void (*visit)(struct hub_file *one, void *arg), void *arg) {
    struct gguf_part part;
    if (!gguf_part_of(f->list[first].name, &part)) {
        visit(&f->list[first], arg);
        return true;
    }
    for (unsigned i = 1; i <= part.count && part.count <= f->n; i++) {
        char other[PATH_MAX];
        long at = gguf_part_name(f->list[first].name, &part, i, other, sizeof other)
                      ? index_of(f, other)
                      : -1;
        if (at < 0)
            return false;
        visit(&f->list[at], arg);
    }
    return part.count <= f->n;
}

struct sum {
    uint64_t bytes;
    size_t n;
};

static void add_up(struct hub_file *one, void *arg) {
    struct sum *s = arg;
    s->bytes += one->bytes;
    s->n++;
}

static void choose_file(struct hub_file *one, void *arg) {
    (void)arg;
    one->chosen = true;
}

/* ---- folders of safetensors ---------------------------------------------------------------- */

/* What opening it reads: the weights, and small files beside them. */
static bool is_of_folder(const char *name) {
    static const char *const tails[] = {".json", ".jinja", ".model", ".tiktoken"};
    if (strchr(name, '/') != NULL || *name == '.')
        return false;
    if (str_ends(name, ".safetensors"))
        return !str_starts(name, "consolidated") && !str_starts(name, "adapter");
    for (size_t i = 0; i < ARRAY_LEN(tails); i++)
        if (str_ends(name, tails[i]))
            return true;
    return str_eq(name, "merges.txt");
}

static bool is_folder_model(const struct hub_files *f) {
    return index_of(f, "config.json") >= 0 &&
           (index_of(f, "model.safetensors.index.json") >= 0 ||
            index_of(f, "model.safetensors") >= 0);
}

static enum status choose_folder(struct hub_files *f, const struct hub_name *name, long *first,
                                 struct err *err) {
    if (!is_folder_model(f))
        return err_set(err, ST_NOT_FOUND,
                       "%s has no GGUF file, and no config.json with model.safetensors",
                       name->repo);
    for (size_t i = 0; i < f->n; i++)
        f->list[i].chosen = is_of_folder(f->list[i].name);
    *first = -1;
    return ST_OK;
}

/* ---- what there is, in a sentence ---------------------------------------------------------- */

void hub_files_each(const struct hub_files *f,
                    void (*fn)(void *user, const char *word, uint64_t bytes, size_t n_files),
                    void *user) {
    struct sum all = {0, 0};
    for (size_t i = 0; i < f->n; i++) {
        char quant[64];
        struct sum s = {0, 0};
        if (is_of_folder(f->list[i].name))
            add_up(&f->list[i], &all);
        if (!is_first_gguf(&f->list[i]) || !each_part(f, i, add_up, &s))
            continue;
        hub_quant_of(f->list[i].name, quant, sizeof quant);
        fn(user, *quant != '\0' ? quant : f->list[i].name, s.bytes, s.n);
    }
    if (is_folder_model(f))
        fn(user, NULL, all.bytes, all.n);
}

struct listing {
    struct buf text;
    size_t n_left_out;
};

static void list_one(void *user, const char *word, uint64_t bytes, size_t n_files) {
    struct listing *l = user;
    (void)n_files;
    if (word == NULL)
        return;
    if (l->text.len > LIST_BYTES) {
        l->n_left_out++;
        return;
    }
    buf_printf(&l->text, "%s%.80s (%.2f GB)", l->text.len > 0 ? ", " : "", word,
               (double)bytes * 1e-9);
}

/* begin: with its colon. */
static enum status say_what_there_is(const struct hub_files *f, enum status st,
                                     const char *begin, struct err *err) {
    struct listing l = {.n_left_out = 0};
    hub_files_each(f, list_one, &l);
    if (l.n_left_out > 0)
        buf_printf(&l.text, " and %zu more (lockstep pull --list)", l.n_left_out);
    err_set(err, st, "%s: %s", begin, buf_cstr(&l.text));
    buf_free(&l.text);
    return st;
}

/* ---- choosing ------------------------------------------------------------------------------ */

/* The best that matches; *n: how many match as well. */
static long best_match(const struct hub_files *f, const char *want, size_t *n) {
    int best = 0;
    long found = -1;
    *n = 0;
    for (size_t i = 0; i < f->n; i++) {
        int m = is_first_gguf(&f->list[i]) ? match(f->list[i].name, want) : 0;
        if (m == 0 || m < best)
            continue;
        *n = m > best ? 1 : *n + 1;
        best = m;
        found = (long)i;
    }
    return found;
}

static size_t count_gguf(const struct hub_files *f, long *any) {
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        if (is_first_gguf(&f->list[i])) {
            n++;
            *any = (long)i;
        }
    return n;
}

static enum status choose_gguf(struct hub_files *f, const struct hub_name *name, long *first,
                               struct err *err) {
    char begin[HUB_REPO_BYTES + 160];
    long any = -1;
    size_t n_all = count_gguf(f, &any), n_match;
    bool asked = *name->want != '\0';
    long found = best_match(f, asked ? name->want : DEFAULT_QUANT, &n_match);
    if (!asked && found < 0 && n_all == 1)
        found = any;
    if (found < 0 || n_match > 1) {
        if (n_match > 1)
            snprintf(begin, sizeof begin, "%s has %zu models that '%.60s' could mean, of these",
                     name->repo, n_match, asked ? name->want : DEFAULT_QUANT);
        else if (asked)
            snprintf(begin, sizeof begin, "%s has nothing called '%.60s', but", name->repo,
                     name->want);
        else
            snprintf(begin, sizeof begin,
                     "%s has %zu models, and no %s: name one, as in %s:", name->repo, n_all,
                     DEFAULT_QUANT, "ORG/REPO:QUANT");
        return say_what_there_is(f, n_match > 1 || !asked ? ST_BAD_INPUT : ST_NOT_FOUND, begin,
                                 err);
    }
    if (!each_part(f, (size_t)found, choose_file, NULL))
        return err_set(err, ST_BAD_INPUT, "%s: parts of %.200s are missing", name->repo,
                       f->list[found].name);
    *first = found;
    return ST_OK;
}

enum status hub_files_choose(struct hub_files *f, const struct hub_name *name, long *first,
                             struct err *err) {
    long any;
    for (size_t i = 0; i < f->n; i++)
        f->list[i].chosen = false;
    if (count_gguf(f, &any) > 0)
        return choose_gguf(f, name, first, err);
    if (*name->want != '\0')
        return err_set(err, ST_NOT_FOUND, "%s has no GGUF file, and so none called '%.200s'",
                       name->repo, name->want);
    return choose_folder(f, name, first, err);
}
