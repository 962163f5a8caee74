/* ollama_pull.c: Downloads a model for a client of Ollama's API, and tells how far it is. */
#include "api/ollama_pull.h"

#include "api/dialects.h"
#include "base/clock.h"
#include "base/program.h"
#include "base/util.h"
#include "hub/pull.h"
#include "server/reply.h"

#include <stdio.h>
#include <sys/stat.h>

#define SILENCE_S 30
#define CONNECTIONS 4
#define LINE_S 0.25
#define IDLE_LINE_S 5.0 /* between lines that say the same */
#define SHA256_DIGITS 64

struct pulling {
    const struct ollama_client *client;
    bool stream;
    const struct hub_files *files;
    char folder[PATH_MAX]; /* of the repository in the cache; "": not known */
    size_t n_told;         /* the files before this one were told whole */
    uint64_t told;         /* of this one */
    double told_s;
};

/* ---- lines ---------------------------------------------------------------------------------- */

static void say(const struct pulling *p, json_t *line) {
    struct buf text = {0};
    if (!p->stream) {
        json_decref(line);
        return;
    }
    if (buf_add_json(&text, line) && buf_add_str(&text, "\n"))
        (void)http_stream_write(p->client->request, text.bytes, text.len);
    buf_free(&text);
}

static void say_status(const struct pulling *p, const char *status) {
    say(p, json_pack("{s:s}", "status", status));
}

static void say_file(struct pulling *p, const struct hub_file *f, uint64_t here) {
    bool large = strlen(f->hash) == SHA256_DIGITS;
    say(p, json_pack("{s:o, s:o, s:I, s:I}", "status", json_sprintf("pulling %.12s", f->hash),
                     "digest", json_sprintf("%s:%s", large ? "sha256" : "sha1", f->hash),
                     "total", (json_int_t)f->bytes, "completed", (json_int_t)here));
    p->told = here;
    p->told_s = clock_s();
}

/* What is on the disk of it: also where another pull is at work, and before what came earlier
 * was read again. */
static uint64_t bytes_here(const struct pulling *p, const struct hub_file *f) {
    static const char *const tails[] = {"", HUB_INCOMPLETE};
    for (size_t i = 0; i < ARRAY_LEN(tails); i++) {
        char path[PATH_MAX];
        struct stat st;
        if (snprintf(path, sizeof path, "%s/blobs/%s%s", p->folder, f->hash, tails[i]) <
                PATH_MAX &&
            stat(path, &st) == 0)
            return MIN((uint64_t)st.st_size, f->bytes);
    }
    return 0;
}

/* The files that come before byte `done` of all are whole. Returns the one that is under way;
 * NULL: none is. */
static const struct hub_file *tell_whole(struct pulling *p, uint64_t done) {
    uint64_t end = 0;
    for (size_t i = 0; i < p->files->n; i++) {
        const struct hub_file *f = &p->files->list[i];
        if (!f->chosen)
            continue;
        end += f->bytes;
        if (done < end)
            return f;
        if (i < p->n_told)
            continue;
        say_file(p, f, f->bytes);
        p->n_told = i + 1;
        p->told = 0;
    }
    return NULL;
}

static bool tell(void *user, uint64_t done, uint64_t total) {
    struct pulling *p = user;
    const struct hub_file *f = total > 0 ? tell_whole(p, done) : NULL;
    double since_s = clock_s() - p->told_s;
    if (f != NULL && since_s >= LINE_S) {
        uint64_t here = bytes_here(p, f);
        if (here != p->told || since_s >= IDLE_LINE_S)
            say_file(p, f, here);
    }
    return p->client->goes_on(p->client->waiter);
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Who may not read it, or lacks a token, is told so; the rest as everywhere. */
static int status_of(enum status st) {
    return st == ST_REFUSED ? 403 : http_status_of(st);
}

static void end(const struct pulling *p, enum status st, const struct err *err,
                const char *next) {
    struct http_request *r = p->client->request;
    int status = st == ST_OK ? 200 : status_of(st);
    if (!p->stream) {
        reply_json(r, status,
                   st == ST_OK ? json_pack("{s:s}", "status", "success")
                               : ollama_error(status, err->code, err->text, ""));
        return;
    }
    if (st == ST_OK) {
        say_status(p, "verifying sha256 digest");
        say_status(p, "writing manifest");
        say_status(p, next);
        say_status(p, "success");
    } else {
        say(p, ollama_error(status, err->code, err->text, ""));
    }
    http_stream_end(r);
}

static enum status pull(struct pulling *p, const struct hub_name *name, struct err *err) {
    char token[4096];
    struct hub_files files;
    struct hub_pulled got;
    const struct progress progress = {tell, p};
    const struct hub_settings settings = {.endpoint = hub_endpoint(),
                                          .token =
                                              hub_token(token, sizeof token) ? token : NULL,
                                          .certificates = env_get("SSL_CERT_FILE"),
                                          .silence_s = SILENCE_S,
                                          .n_connections = CONNECTIONS,
                                          .go_on = p->client->goes_on,
                                          .user = p->client->waiter};
    TRY(hub_list(name, &settings, "main", &files, err));
    p->files = &files;
    enum status st = hub_pull_listed(name, &settings, "main", &files, &progress, &got, err);
    if (st == ST_OK)
        (void)tell_whole(p, UINT64_MAX);
    hub_files_deinit(&files);
    return st;
}

void ollama_pull_from_hub(const struct ollama_client *c, const struct hub_name *name,
                          bool stream, const char *next) {
    struct pulling p = {.client = c, .stream = stream};
    struct err err;
    if (hub_cache_folder(name->repo, p.folder, &err) != ST_OK)
        p.folder[0] = '\0';
    if (stream)
        http_stream_begin(c->request, 200, "application/x-ndjson");
    say_status(&p, "pulling manifest");
    enum status st = pull(&p, name, &err);
    if (st == ST_CANCELLED)
        err_set(&err, st, "%s: this server ends; the next pull goes on from here", name->repo);
    end(&p, st, &err, next);
}
