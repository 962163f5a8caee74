/* model_share.c: Serves the files of one model to the nodes of the cluster. */
#include "node/model_share.h"

#include "base/file.h"
#include "base/file_id.h"
#include "base/mem.h"
#include "base/sentence.h"
#include "base/util.h"
#include "cluster/client.h"
#include "cluster/source.h"
#include "node/peers.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A rank of every other machine, and some machines with several. */
#define CONNECTIONS_MAX (64 * SOURCE_CONNECTIONS_MAX)
#define CONNECTIONS_OF_ONE (8 * SOURCE_CONNECTIONS_MAX)

struct model_share {
    struct http_server *http;
    const struct model_files *files;
    const char *path;
    struct file_id *seen; /* [files->n], of each file as it was in model_share_open() */
};

/* A whole number of the query; absent: `absent`. */
static bool number(const struct http_request *r, const char *name, uint64_t absent,
                   uint64_t *out) {
    const char *text = http_query(r, name);
    char *end;
    *out = absent;
    if (text == NULL)
        return true;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
}

/* The requested range, within a file of this many bytes and SHARE_PIECE_BYTES. */
static bool parse_pieces(const struct http_request *r, uint64_t file_bytes,
                         struct client_pieces *out) {
    uint64_t at, n, stride, count, last;
    if (!number(r, "at", 0, &at) || !number(r, "n", 0, &n) ||
        !number(r, "stride", 0, &stride) || !number(r, "count", 1, &count) || n == 0 ||
        count == 0 || n > SHARE_PIECE_BYTES || count > SHARE_PIECE_BYTES / n)
        return false;
    if (__builtin_mul_overflow(stride, count - 1, &last) ||
        __builtin_add_overflow(last, at, &last) || __builtin_add_overflow(last, n, &last) ||
        last > file_bytes)
        return false;
    *out = (struct client_pieces){at, (size_t)n, stride, (size_t)count};
    return true;
}

static bool read_pieces(int fd, char *buf, const struct client_pieces *p) {
    for (size_t i = 0; i < p->count; i++)
        if (!file_read_at(fd, buf + i * p->n, p->n, p->at + i * p->stride))
            return false;
    return true;
}

/* Open for reading, as long as it is the file that it was; -1: it is not. */
static int open_file(const struct model_share *s, size_t i) {
    char path[PATH_MAX];
    struct file_id now;
    if (!model_files_place(s->files, i, s->path, path, sizeof path))
        return -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && file_id_of(fd, &now) && file_id_same_data(&now, &s->seen[i]))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void give(struct model_share *s, struct http_request *r, size_t i,
                 const struct client_pieces *p) {
    char sentence[512];
    char *bytes = mem_alloc(p->n * p->count);
    int fd = open_file(s, i);
    sentence_print(sentence, sizeof sentence, "%s has changed, or can no longer be read",
                   s->files->list[i].name);
    if (bytes == NULL)
        peers_refuse(r, 503, "no memory for a piece of a file");
    else if (fd < 0 || !read_pieces(fd, bytes, p))
        peers_refuse(r, 410, sentence);
    else
        http_reply(r, 200, "application/octet-stream", bytes, p->n * p->count);
    if (fd >= 0)
        close(fd);
    mem_free(bytes);
}

static void handle(void *user, struct http_request *r) {
    struct model_share *s = user;
    const char *path = http_path(r);
    size_t i;
    int n = 0;
    struct client_pieces p;
    if (!str_eq(http_method(r), "GET") || sscanf(path, "/v1/files/%zu%n", &i, &n) != 1 ||
        path[n] != '\0' || i >= s->files->n)
        peers_refuse(r, 404, "there is no such file");
    else if (!parse_pieces(r, s->files->list[i].bytes, &p))
        peers_refuse(
            r, 400,
            "a file is read as ?at=..&n=..&stride=..&count=.., at most 16 MiB within it");
    else
        give(s, r, i, &p);
}

static void share_free(struct model_share *s) {
    mem_free(s->seen);
    mem_free(s);
}

static enum status look_at_files(struct model_share *s, struct err *err) {
    char path[PATH_MAX];
    s->seen = mem_calloc(s->files->n, sizeof *s->seen);
    if (s->seen == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to share a model");
    for (size_t i = 0; i < s->files->n; i++)
        if (!model_files_place(s->files, i, s->path, path, sizeof path) ||
            !file_id_at(path, &s->seen[i]))
            return err_set(err, ST_IO, "%s: %s", s->files->list[i].name, strerror(errno));
    return ST_OK;
}

enum status model_share_open(struct model_share **out, const struct identity *id,
                             const struct model_files *files, const char *path,
                             struct err *err) {
    struct model_share *s = mem_calloc(1, sizeof *s);
    if (s == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to share a model");
    s->files = files;
    s->path = path;
    const struct peers_reading reading = {.handle = handle,
                                          .user = s,
                                          .max_connections = CONNECTIONS_MAX,
                                          .max_per_address = CONNECTIONS_OF_ONE};
    enum status st = look_at_files(s, err);
    if (st == ST_OK)
        st = peers_open_to_read(&s->http, &reading, id, err);
    if (st == ST_OK)
        *out = s;
    else
        share_free(s);
    return st;
}

int model_share_port(const struct model_share *s) {
    return http_port(s->http);
}

bool share_is_intact(const struct model_share *s) {
    for (size_t i = 0; i < s->files->n; i++) {
        int fd = open_file(s, i);
        if (fd < 0)
            return false;
        close(fd);
    }
    return true;
}

void model_share_close(struct model_share *s) {
    if (s == NULL)
        return;
    http_drain(s->http, 3000);
    http_close(s->http);
    share_free(s);
}
