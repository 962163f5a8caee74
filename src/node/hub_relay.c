/* hub_relay.c: Serves what has come of a repository's files, as a hub would. */
#include "node/hub_relay.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/util.h"
#include "hub/cache.h"
#include "node/peers.h"
#include "server/reply.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHA256_DIGITS 64
/* Eight machines, each with one download at a time. */
#define CONNECTIONS_MAX 64

struct hub_relay {
    struct http_server *http;
    const struct hub_name *name;
    const struct hub_files *files;
    char folder[PATH_MAX]; /* of the repository in the cache */
};

/* ---- the list ------------------------------------------------------------------------------ */

static json_t *file_json(const struct hub_file *f) {
    json_int_t size = (json_int_t)f->bytes;
    if (strlen(f->hash) != SHA256_DIGITS)
        return json_pack("{s:s, s:I, s:s}", "rfilename", f->name, "size", size, "blobId",
                         f->hash);
    return json_pack("{s:s, s:I, s:{s:s, s:I}}", "rfilename", f->name, "size", size, "lfs",
                     "sha256", f->hash, "size", size);
}

static void give_list(const struct hub_relay *relay, struct http_request *r) {
    json_t *all = json_array();
    for (size_t i = 0; i < relay->files->n; i++)
        json_array_append_new(all, file_json(&relay->files->list[i]));
    reply_json(r, 200, json_pack("{s:s, s:o}", "sha", relay->files->commit, "siblings", all));
}

/* ---- a file -------------------------------------------------------------------------------- */

/* Where "Range: bytes=N-" begins; without it 0. False: another form. */
static bool range_begin(const struct http_request *r, uint64_t *at) {
    const char *text = http_header(r, "Range");
    char *end;
    *at = 0;
    if (text == NULL)
        return true;
    if (!str_starts(text, "bytes=") || text[6] < '0' || text[6] > '9')
        return false;
    errno = 0;
    *at = strtoull(text + 6, &end, 10);
    return errno == 0 && str_eq(end, "-");
}

/* The file as far as it is here, open for reading: whole, or under way. -1: nothing is. */
static int open_blob(const struct hub_relay *relay, const struct hub_file *f, uint64_t *bytes) {
    static const char *const tails[] = {"", HUB_INCOMPLETE};
    for (size_t i = 0; i < ARRAY_LEN(tails); i++) {
        char path[PATH_MAX];
        struct stat st;
        if (snprintf(path, sizeof path, "%s/blobs/%s%s", relay->folder, f->hash, tails[i]) >=
            PATH_MAX)
            return -1;
        int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && fstat(fd, &st) == 0) {
            *bytes = MIN((uint64_t)st.st_size, f->bytes);
            return fd;
        }
        if (fd >= 0)
            close(fd);
    }
    return -1;
}

static void give_piece(struct http_request *r, const struct hub_file *f, int fd, uint64_t at,
                       size_t n) {
    char range[80];
    char *piece = mem_alloc(n);
    snprintf(range, sizeof range, "bytes %llu-%llu/%llu", (unsigned long long)at,
             (unsigned long long)(at + n - 1), (unsigned long long)f->bytes);
    if (piece == NULL || !file_read_at(fd, piece, n, at)) {
        peers_refuse(r, 503, "this piece cannot be read just now");
    } else {
        http_set_header(r, "Content-Range", range);
        http_reply(r, 206, "application/octet-stream", piece, n);
    }
    mem_free(piece);
}

static void give_file(const struct hub_relay *relay, struct http_request *r,
                      const struct hub_file *f) {
    uint64_t at, here = 0;
    if (!range_begin(r, &at) || at >= f->bytes) {
        peers_refuse(r, 416, "a file is read from one of its bytes on");
        return;
    }
    int fd = open_blob(relay, f, &here);
    if (fd < 0 || at >= here)
        peers_refuse(r, 503, "this part has not come yet");
    else
        give_piece(r, f, fd, at, (size_t)MIN(here - at, (uint64_t)HUB_RELAY_PIECE_BYTES));
    if (fd >= 0)
        close(fd);
}

/* ---- requests ------------------------------------------------------------------------------ */

static const struct hub_file *file_called(const struct hub_files *files, const char *name) {
    for (size_t i = 0; i < files->n; i++)
        if (str_eq(files->list[i].name, name) && files->list[i].hash[0] != '\0')
            return &files->list[i];
    return NULL;
}

static void handle(void *user, struct http_request *r) {
    struct hub_relay *relay = user;
    const char *path = http_path(r);
    const struct hub_file *f = NULL;
    char list[HUB_REPO_BYTES + 32], file[HUB_REPO_BYTES + HUB_HASH_BYTES + 32];
    snprintf(list, sizeof list, "/api/models/%s/revision/", relay->name->repo);
    snprintf(file, sizeof file, "/%s/resolve/%s/", relay->name->repo, relay->files->commit);
    bool reads = str_eq(http_method(r), "GET");
    if (reads && str_starts(path, file))
        f = file_called(relay->files, path + strlen(file));
    if (reads && str_starts(path, list))
        give_list(relay, r);
    else if (f != NULL)
        give_file(relay, r, f);
    else
        peers_refuse(r, 404, "there is no such file");
}

/* ---- opening ------------------------------------------------------------------------------- */

enum status hub_relay_open(struct hub_relay **out, const struct identity *id,
                           const struct hub_name *name, const struct hub_files *files,
                           struct err *err) {
    struct hub_relay *relay = mem_calloc(1, sizeof *relay);
    if (relay == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to pass a model on");
    relay->name = name;
    relay->files = files;
    const struct peers_reading reading = {
        .handle = handle, .user = relay, .max_connections = CONNECTIONS_MAX};
    enum status st = hub_cache_folder(name->repo, relay->folder, err);
    if (st == ST_OK)
        st = peers_open_to_read(&relay->http, &reading, id, err);
    if (st == ST_OK)
        *out = relay;
    else
        mem_free(relay);
    return st;
}

int hub_relay_port(const struct hub_relay *relay) {
    return http_port(relay->http);
}

void hub_relay_close(struct hub_relay *relay) {
    if (relay == NULL)
        return;
    http_drain(relay->http, 3000);
    http_close(relay->http);
    mem_free(relay);
}
