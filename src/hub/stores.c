/* stores.c: Finds the models of the hub's cache, of LM Studio and of Ollama. */
#include "hub/stores.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/program.h"
#include "base/util.h"
#include "hub/cache.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define OLLAMA "ollama:"
#define LMSTUDIO "lmstudio:"
#define MANIFEST_BYTES_MAX ((size_t)1 << 20)
#define LIST_MAX 4096

static void add(json_t *all, const char *name, const char *path, uint64_t bytes, size_t n_files,
                const char *quant, const char *store) {
    json_t *one =
        json_array_size(all) < LIST_MAX
            ? json_pack("{s:s, s:s, s:I, s:I, s:s, s:s, s:I}", "name", name, "path", path,
                        "bytes", (json_int_t)bytes, "files", (json_int_t)n_files, "quant",
                        quant, "store", store, "used", (json_int_t)file_used_s(path))
            : NULL; /* a path that is not UTF-8, too */
    if (one != NULL)
        json_array_append_new(all, one);
}

/* Calls fn for each name in a folder that does not begin with a dot. */
static void each_name(const char *folder,
                      void (*fn)(void *user, const char *folder, const char *name),
                      void *user) {
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;)
        if (e->d_name[0] != '.')
            fn(user, folder, e->d_name);
    closedir(dir);
}

/* ---- repositories: the hub's cache, and LM Studio ------------------------------------------- */

struct repository {
    json_t *all;
    const char *repo, *prefix, *store;
    const char *root; /* what the names of files stand behind */
    bool found;
};

/* One that is known by its word: the path is asked for by that. */
static void add_model(void *user, const char *word, uint64_t bytes, size_t n_files) {
    struct repository *r = user;
    char name[1024], path[PATH_MAX];
    struct hub_name one;
    struct hub_files files;
    struct err err;
    long first;
    snprintf(name, sizeof name, "%s%s%s%s", r->prefix, r->repo, word != NULL ? ":" : "",
             word != NULL ? word : "");
    if (hub_name_parse(&one, name + strlen(r->prefix), &err) != ST_OK ||
        hub_files_in(r->root, &files, &err) != ST_OK)
        return;
    if (hub_files_choose(&files, &one, &first, &err) == ST_OK &&
        snprintf(path, sizeof path, "%s%s%s", r->root, first >= 0 ? "/" : "",
                 first >= 0 ? files.list[first].name : "") < PATH_MAX) {
        char quant[64] = "";
        if (first >= 0)
            hub_quant_of(files.list[first].name, quant, sizeof quant);
        add(r->all, name, path, bytes, n_files, quant, r->store);
        r->found = true;
    }
    hub_files_deinit(&files);
}

static void add_repository(struct repository *r) {
    struct hub_files files;
    struct err err;
    if (hub_files_in(r->root, &files, &err) != ST_OK)
        return;
    hub_files_each(&files, add_model, r);
    hub_files_deinit(&files);
}

/* "models--ORG--REPO"; the first of its snapshots that has a model. */
static void add_cached(void *user, const char *folder, const char *name) {
    char repo[HUB_REPO_BYTES], path[PATH_MAX];
    struct hub_name whole;
    struct err err;
    const char *org = name + strlen("models--"), *dashes;
    if (!str_starts(name, "models--") || (dashes = strstr(org, "--")) == NULL ||
        snprintf(repo, sizeof repo, "%.*s/%s", (int)(dashes - org), org, dashes + 2) >=
            (int)sizeof repo ||
        hub_name_parse(&whole, repo, &err) != ST_OK ||
        snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH_MAX)
        return;
    struct repository r = {user, repo, HUB_PREFIX, "Hugging Face", NULL, false};
    char root[PATH_MAX];
    for (size_t i = 0; !r.found && hub_cache_snapshot(path, i, root); i++) {
        r.root = root;
        add_repository(&r);
    }
}

static void add_repo_of_org(void *user, const char *folder, const char *name) {
    const char *slash = strrchr(folder, '/');
    char repo[HUB_REPO_BYTES], root[PATH_MAX];
    struct hub_name whole;
    struct err err;
    if (slash == NULL ||
        snprintf(repo, sizeof repo, "%s/%s", slash + 1, name) >= (int)sizeof repo ||
        snprintf(root, sizeof root, "%s/%s", folder, name) >= PATH_MAX ||
        hub_name_parse(&whole, repo, &err) != ST_OK)
        return;
    struct repository r = {user, repo, LMSTUDIO, "LM Studio", root, false};
    add_repository(&r);
}

static void add_org(void *user, const char *folder, const char *name) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) < PATH_MAX)
        each_name(path, add_repo_of_org, user);
}

static void add_lmstudio(json_t *all) {
    static const char *const places[] = {".lmstudio/models", ".cache/lm-studio/models"};
    const char *home = env_get("HOME");
    char path[PATH_MAX];
    for (size_t i = 0; home != NULL && i < ARRAY_LEN(places); i++)
        if (snprintf(path, sizeof path, "%s/%s", home, places[i]) < PATH_MAX)
            each_name(path, add_org, all);
}

/* ---- Ollama --------------------------------------------------------------------------------- */

struct ollama {
    json_t *all;
    char root[PATH_MAX];
    char parts[3][256]; /* host, namespace, name */
    int depth;
};

/* The path of the blob "sha256:HEX"; false: no such digest. */
static bool blob_of(const struct ollama *o, const char *digest, char out[PATH_MAX]) {
    return str_starts(digest, "sha256:") && hub_is_hash(digest + 7, 64) &&
           snprintf(out, PATH_MAX, "%s/blobs/sha256-%s", o->root, digest + 7) < PATH_MAX;
}

static json_t *read_json(const char *path) {
    char *text = NULL;
    size_t n;
    struct err ignored;
    if (file_read_text(&text, &n, path, MANIFEST_BYTES_MAX, &ignored) != ST_OK)
        return NULL;
    json_t *o =
        json_count(text, n) < JSON_REQUEST_VALUES_MAX ? json_loadb(text, n, 0, NULL) : NULL;
    mem_free(text);
    return o;
}

/* The only layer that is a model; NULL: none, or several. Borrowed. */
static const char *model_layer(const json_t *manifest) {
    const char *digest = NULL;
    size_t i, n = 0;
    json_t *layer;
    json_array_foreach(json_object_get(manifest, "layers"), i, layer) {
        if (str_eq(json_text(layer, "mediaType"), "application/vnd.ollama.image.model")) {
            digest = json_text(layer, "digest");
            n++;
        }
    }
    return n == 1 ? digest : NULL;
}

static void add_manifest(struct ollama *o, const char *path, const char *tag) {
    char blob[PATH_MAX], config[PATH_MAX], name[1024];
    struct stat st;
    json_t *manifest = read_json(path), *settings = NULL;
    const char *digest = model_layer(manifest);
    if (digest != NULL && blob_of(o, digest, blob) && stat(blob, &st) == 0 &&
        S_ISREG(st.st_mode)) {
        if (blob_of(o, json_text(json_object_get(manifest, "config"), "digest"), config))
            settings = read_json(config);
        bool own = str_eq(o->parts[1], "library");
        snprintf(name, sizeof name, OLLAMA "%s%s%s:%s", own ? "" : o->parts[1], own ? "" : "/",
                 o->parts[2], tag);
        add(o->all, name, blob, (uint64_t)st.st_size, 1, json_text(settings, "file_type"),
            "Ollama");
    }
    json_decref(settings);
    json_decref(manifest);
}

/* manifests/HOST/NAMESPACE/NAME/TAG */
static void walk_manifests(void *user, const char *folder, const char *name) {
    struct ollama *o = user;
    char path[PATH_MAX];
    struct stat st;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH_MAX || stat(path, &st) != 0)
        return;
    if (o->depth == 3 && S_ISREG(st.st_mode))
        add_manifest(o, path, name);
    if (o->depth < 3 && S_ISDIR(st.st_mode)) {
        snprintf(o->parts[o->depth++], sizeof o->parts[0], "%s", name);
        each_name(path, walk_manifests, o);
        o->depth--;
    }
}

static void add_ollama(json_t *all) {
    struct ollama o = {.all = all};
    char manifests[PATH_MAX];
    const char *own = env_get("OLLAMA_MODELS"), *home = env_get("HOME");
    int n = -1;
    if (own != NULL)
        n = snprintf(o.root, sizeof o.root, "%s", own);
    else if (home != NULL)
        n = snprintf(o.root, sizeof o.root, "%s/.ollama/models", home);
    if (n >= 0 && n < PATH_MAX &&
        snprintf(manifests, sizeof manifests, "%s/manifests", o.root) < PATH_MAX)
        each_name(manifests, walk_manifests, &o);
}

/* ---- all of them ---------------------------------------------------------------------------- */

json_t *stores_list(void) {
    char root[PATH_MAX];
    struct err ignored;
    json_t *all = json_array();
    if (all == NULL)
        return NULL;
    if (hub_cache_root(root, &ignored) == ST_OK)
        each_name(root, add_cached, all);
    add_lmstudio(all);
    add_ollama(all);
    return all;
}

bool stores_is_name(const char *word) {
    return str_starts(word, HUB_PREFIX) || str_starts(word, OLLAMA) ||
           str_starts(word, LMSTUDIO);
}

/* A whole name, or one without its last part where that leaves one model. */
static enum status find_listed(const char *name, char out[PATH_MAX], struct err *err) {
    size_t i, n = strlen(name), n_found = 0;
    json_t *all = stores_list(), *one;
    json_array_foreach(all, i, one) {
        const char *its = json_text(one, "name");
        bool whole = str_eq(its, name);
        if (!whole && !(strncmp(its, name, n) == 0 && its[n] == ':'))
            continue;
        n_found = whole ? 1 : n_found + 1;
        snprintf(out, PATH_MAX, "%s", json_text(one, "path"));
        if (whole)
            break;
    }
    json_decref(all);
    if (n_found == 1)
        return ST_OK;
    return err_set(err, n_found > 1 ? ST_BAD_INPUT : ST_NOT_FOUND,
                   n_found > 1 ? "%s: several models are called so (lockstep models lists them)"
                               : "%s: there is no such model (lockstep models lists them)",
                   name);
}

enum status stores_find(const char *name, char out[PATH_MAX], struct err *err) {
    struct hub_name hub;
    if (!str_starts(name, HUB_PREFIX))
        return find_listed(name, out, err);
    TRY(hub_name_parse(&hub, name, err));
    return hub_cache_find(&hub, out, err);
}
