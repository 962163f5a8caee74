/* service.c: opens the model and watches it.
 *
 * `lock` (read/write) guards `open`, the engine and what belongs to it. Users hold it for
 * reading. The watcher takes the engine away under the write lock, and then closes and opens it
 * without the lock. So requests meanwhile are refused at once, with the reason. */
#include "server/service.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"
#include "cluster/model_files.h"
#include "server/service_internal.h"

#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WATCH_MS 100
#define REOPEN_MS 1000 /* between two tries */
#define MEMO_TEXTS 4096
#define MEMO_BYTES ((size_t)64 << 20)
#define BACKGROUND_JOBS 256
#define BACKGROUND_BYTES ((size_t)64 << 20)

struct service {
    struct service_config cfg;
    struct service_facts facts;
    char fingerprint[16];
    char *name, *path, *template_source, *architecture, *type, *placement;
    struct memo *memo;
    struct background *background;
    pthread_rwlock_t lock;
    struct served_model *open; /* NULL: being opened again, or stopped */
    char why[512];             /* while it is NULL */
    struct engine_stats last;  /* of the engine that was lost */
    pthread_t watcher;
    bool has_watcher;
    atomic_bool stop; /* relaxed: looked at again soon */
};

/* ---- a model ----------------------------------------------------------------------------- */

static void model_close(struct served_model *m) {
    if (m == NULL)
        return;
    engine_close(m->engine);
    token_trie_close(m->trie);
    chat_close(m->chat);
    mem_free(m);
}

static enum status model_open_parts(struct served_model *m, const struct engine_config *cfg,
                                    struct err *err) {
    TRY(engine_open(&m->engine, cfg, err));
    TRY(chat_open(&m->chat, engine_tokenizer(m->engine), NULL, 0, err));
    m->style = chat_style(m->chat);
    return token_trie_open(&m->trie, engine_tokenizer(m->engine), err);
}

static enum status model_open(struct served_model **out, const struct engine_config *cfg,
                              struct err *err) {
    struct served_model *m = mem_calloc(1, sizeof *m);
    if (m == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a service");
    enum status st = model_open_parts(m, cfg, err);
    if (st != ST_OK) {
        model_close(m);
        return st;
    }
    *out = m;
    return ST_OK;
}

enum status service_borrow(struct service *s, struct served_model **out, struct err *err) {
    pthread_rwlock_rdlock(&s->lock);
    if (s->open != NULL) {
        *out = s->open;
        return ST_OK;
    }
    enum status st = err_set(err, ST_PEER_LOST, "%s", s->why);
    pthread_rwlock_unlock(&s->lock);
    return st;
}

void service_give_back(struct service *s) {
    pthread_rwlock_unlock(&s->lock);
}

/* ---- the watcher ------------------------------------------------------------------------- */

/* Takes the model away; requests are refused with `why` from here on. */
static struct served_model *take_model(struct service *s, const char *why) {
    struct engine_stats last;
    service_stats(s, &last);
    pthread_rwlock_wrlock(&s->lock);
    struct served_model *m = s->open;
    s->open = NULL;
    s->last = last;
    snprintf(s->why, sizeof s->why, "%s", why);
    pthread_rwlock_unlock(&s->lock);
    return m;
}

static bool stopping(struct service *s) {
    return atomic_load_explicit(&s->stop, memory_order_relaxed);
}

static void wait_ms(struct service *s, int ms) {
    for (; ms > 0 && !stopping(s); ms -= 50)
        usleep(50000);
}

static void reopen(struct service *s, const char *why) {
    struct served_model *fresh = NULL;
    struct err err;
    log_error("%s; opening the model again", why);
    model_close(take_model(s, why));
    while (!stopping(s) && model_open(&fresh, &s->cfg.engine, &err) != ST_OK) {
        log_error("cannot open the model again: %s", err.text);
        wait_ms(s, REOPEN_MS);
    }
    if (fresh == NULL)
        return;
    pthread_rwlock_wrlock(&s->lock);
    s->open = fresh;
    pthread_rwlock_unlock(&s->lock);
    log_info("the model is open again");
}

static void *watch(void *arg) {
    struct service *s = arg;
    struct engine_stats stats;
    while (!stopping(s)) {
        service_stats(s, &stats);
        if (!stats.healthy && !stats.hopeless)
            reopen(s, stats.why);
        wait_ms(s, WATCH_MS);
    }
    return NULL;
}

/* ---- opening and closing ----------------------------------------------------------------- */

static void make_fingerprint(struct service *s, const struct lockstep_model_info *info) {
    unsigned char hash[crypto_generichash_BYTES_MIN];
    char text[1024], hex[2 * sizeof hash + 1];
    const char *kv = s->cfg.engine.model.kv;
    int n =
        snprintf(text, sizeof text, "%s %s %s %llu %s", LOCKSTEP_VERSION, s->name, info->type,
                 (unsigned long long)info->weight_bytes, kv != NULL ? kv : "f16");
    crypto_generichash(hash, sizeof hash, (const unsigned char *)text,
                       (size_t)MIN(n, (int)sizeof text - 1), NULL, 0);
    snprintf(s->fingerprint, sizeof s->fingerprint, "fp_%.12s",
             sodium_bin2hex(hex, sizeof hex, hash, sizeof hash));
}

/* An unknown one is POOLING_NONE. */
static enum pooling pooling_of(const struct gguf *g, const char *architecture) {
    char key[128];
    uint32_t type = POOLING_NONE;
    struct err err;
    snprintf(key, sizeof key, "%s.pooling_type", architecture);
    bool known = gguf_u32(g, key, &type, &err) == ST_OK && type <= POOLING_RANK;
    return known ? (enum pooling)type : POOLING_NONE;
}

static enum status describe(struct service *s, struct err *err) {
    const struct served_model *m = s->open;
    const struct lockstep_model_info *info = engine_model_info(m->engine);
    struct stat file = {0};
    const char *path = s->cfg.engine.model.model_path;
    stat(path, &file);
    s->path = mem_strdup(path);
    s->name = s->cfg.name != NULL ? mem_strdup(s->cfg.name) : model_name_of(path);
    s->template_source = mem_strdup(chat_source(m->chat));
    s->architecture = mem_strdup(info->architecture);
    s->type = mem_strdup(info->type);
    s->placement = mem_strdup(info->placement);
    if (s->path == NULL || s->name == NULL || s->template_source == NULL ||
        s->architecture == NULL || s->type == NULL || s->placement == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a service");
    make_fingerprint(s, info);
    s->facts = (struct service_facts){
        .name = s->name,
        .fingerprint = s->fingerprint,
        .path = s->path,
        .architecture = s->architecture,
        .type = s->type,
        .placement = s->placement,
        .chat_format = chat_format_name(m->style.format),
        .template_source = s->template_source,
        .n_ctx = info->n_ctx,
        .n_ctx_train = info->n_ctx_train,
        .n_vocab = info->n_vocab,
        .n_embd = info->n_embd,
        .n_ranks = info->n_ranks,
        .n_layers = info->n_layers,
        .n_places = s->cfg.engine.n_running_max,
        .n_params = info->n_params,
        .weight_bytes = info->weight_bytes,
        .thinks = m->style.think_end[0] != '\0' || m->style.format == CHAT_HARMONY,
        .pooling = pooling_of(engine_gguf(m->engine), info->architecture),
        .created = (int64_t)time(NULL),
        .file_modified = (int64_t)file.st_mtime};
    return ST_OK;
}

static enum status open_parts(struct service *s, struct err *err) {
    TRY(memo_open(&s->memo, MEMO_TEXTS, MEMO_BYTES, err));
    TRY(background_open(&s->background, BACKGROUND_JOBS, BACKGROUND_BYTES, err));
    TRY(model_open(&s->open, &s->cfg.engine, err));
    /* Progress is shown only at the first opening, while a user watches. */
    s->cfg.engine.model.progress = NULL;
    TRY(describe(s, err));
    if (!s->cfg.restart)
        return ST_OK;
    if (thread_start(&s->watcher, watch, s) != 0)
        return err_set(err, ST_NO_MEMORY, "no thread for a service");
    s->has_watcher = true;
    return ST_OK;
}

enum status service_open(struct service **out, const struct service_config *cfg,
                         struct err *err) {
    struct service *s = mem_calloc(1, sizeof *s);
    if (s == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a service");
    s->cfg = *cfg;
    pthread_rwlock_init(&s->lock, NULL);
    enum status st = open_parts(s, err);
    if (st != ST_OK) {
        service_close(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void service_stop(struct service *s) {
    atomic_store_explicit(&s->stop, true, memory_order_relaxed);
    if (s->has_watcher)
        pthread_join(s->watcher, NULL);
    s->has_watcher = false;
    model_close(take_model(s, "the server is shutting down"));
}

void service_close(struct service *s) {
    if (s == NULL)
        return;
    service_stop(s);
    pthread_rwlock_destroy(&s->lock);
    memo_close(s->memo);
    background_close(s->background);
    mem_free(s->name);
    mem_free(s->path);
    mem_free(s->template_source);
    mem_free(s->architecture);
    mem_free(s->placement);
    mem_free(s->type);
    mem_free(s);
}

/* ---- what it is -------------------------------------------------------------------------- */

const struct service_facts *service_facts(const struct service *s) {
    return &s->facts;
}

bool service_name_is(const char *given, const char *name) {
    size_t n = strlen(name);
    return strncmp(given, name, n) == 0 && (given[n] == '\0' || str_eq(given + n, ":latest"));
}

bool service_means_any(const char *given) {
    return service_name_is(given, "default") || service_name_is(given, "lockstep");
}

bool service_is_model(const struct service *s, const char *name) {
    const char *file = strrchr(s->path, '/');
    file = file != NULL ? file + 1 : s->path;
    return name == NULL || service_name_is(name, s->name) || service_name_is(name, file) ||
           service_means_any(name);
}

void service_stats(struct service *s, struct engine_stats *out) {
    struct served_model *m;
    struct err err;
    if (service_borrow(s, &m, &err) == ST_OK) {
        engine_stats(m->engine, out);
        service_give_back(s);
        return;
    }
    *out = s->last;
    out->healthy = out->recovering = false;
    out->running = out->queued = out->batch = 0;
    snprintf(out->why, sizeof out->why, "%s", err.text);
}

enum status service_view(struct service *s, struct engine_view *out, struct err *err) {
    struct served_model *m;
    TRY(service_borrow(s, &m, err));
    engine_view(m->engine, out);
    service_give_back(s);
    return ST_OK;
}

enum status service_rank_stats(struct service *s, struct engine_rank_stats *out,
                               struct err *err) {
    struct served_model *m;
    TRY(service_borrow(s, &m, err));
    engine_rank_stats(m->engine, out);
    service_give_back(s);
    return ST_OK;
}

struct memo *service_memo(struct service *s) {
    return s->memo;
}

struct background *service_background(struct service *s) {
    return s->background;
}

/* ---- text -------------------------------------------------------------------------------- */

enum status service_tokenize(struct service *s, const char *text, size_t len, bool add_special,
                             bool parse_special, int32_t **ids, size_t *n_ids,
                             struct err *err) {
    struct served_model *m;
    unsigned flags =
        (add_special ? TOKENIZE_BOS : 0u) | (parse_special ? TOKENIZE_SPECIAL : 0u);
    TRY(service_borrow(s, &m, err));
    enum status st = tokenize(engine_tokenizer(m->engine), text, len, flags, ids, n_ids, err);
    service_give_back(s);
    return st;
}

enum status service_detokenize(struct service *s, const int32_t *ids, size_t n, char **text,
                               size_t *len, struct err *err) {
    struct served_model *m;
    TRY(service_borrow(s, &m, err));
    enum status st = detokenize(engine_tokenizer(m->engine), ids, n, true, text, len, err);
    service_give_back(s);
    return st;
}
