#include "server/share.h"

#include "base/mem.h"
#include "base/util.h"
#include "server/http.h"
#include "server/reply.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct share {
    struct http_server *http;
    const struct model_files *files;
    const char *path;
};

static void refuse(struct http_request *r, int status, const char *sentence) {
    reply_json(r, status, json_pack("{s:s}", "error", sentence));
}

/* "bytes=0-1023": both ends, as client_range() asks. */
static bool parse_range(const char *text, uint64_t *begin, uint64_t *end) {
    unsigned long long a, b;
    int n = 0;
    if (text == NULL || sscanf(text, "bytes=%llu-%llu%n", &a, &b, &n) != 2 || text[n] != '\0' ||
        b < a || b - a >= SHARE_PIECE_BYTES)
        return false;
    *begin = a;
    *end = b + 1;
    return true;
}

static bool read_at(int fd, char *buf, uint64_t at, size_t n) {
    while (n > 0) {
        ssize_t k = pread(fd, buf, n, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        buf += k;
        at += (uint64_t)k;
        n -= (size_t)k;
    }
    return true;
}

static void give(struct share *s, struct http_request *r, size_t i, uint64_t begin,
                 uint64_t end) {
    char path[PATH_MAX], range[96];
    size_t n = (size_t)(end - begin);
    char *bytes = mem_alloc(n);
    int fd = -1;
    if (model_files_place(s->files, i, s->path, path, sizeof path))
        fd = open(path, O_RDONLY | O_CLOEXEC);
    if (bytes == NULL || fd < 0 || !read_at(fd, bytes, begin, n)) {
        refuse(r, 500, "the file cannot be read");
    } else {
        snprintf(range, sizeof range, "bytes %llu-%llu/%llu", (unsigned long long)begin,
                 (unsigned long long)end - 1, (unsigned long long)s->files->list[i].bytes);
        http_set_header(r, "Content-Range", range);
        http_reply(r, 206, "application/octet-stream", bytes, n);
    }
    if (fd >= 0)
        close(fd);
    mem_free(bytes);
}

static void handle(void *user, struct http_request *r) {
    struct share *s = user;
    const char *path = http_path(r);
    size_t i;
    int n = 0;
    uint64_t begin, end;
    if (!str_eq(http_method(r), "GET") || sscanf(path, "/v1/files/%zu%n", &i, &n) != 1 ||
        path[n] != '\0' || i >= s->files->n)
        refuse(r, 404, "there is no such file");
    else if (!parse_range(http_header(r, "Range"), &begin, &end) ||
             end > s->files->list[i].bytes)
        refuse(r, 416, "a file is read in ranges of at most 16 MiB within its size");
    else
        give(s, r, i, begin, end);
}

enum status share_open(struct share **out, const struct identity *id,
                       const struct model_files *files, const char *path, struct err *err) {
    struct http_config cfg;
    const char *const keys[] = {id->token};
    struct share *s = mem_calloc(1, sizeof *s);
    if (s == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to share a model");
    s->files = files;
    s->path = path;
    http_config_init(&cfg);
    cfg.host = "::";
    cfg.port = 0;
    cfg.tls_cert_pem = id->cert_pem;
    cfg.tls_key_pem = id->key_pem;
    cfg.api_keys = keys;
    cfg.n_api_keys = 1;
    cfg.max_body_bytes = 4096;
    cfg.handle = handle;
    cfg.user = s;
    enum status st = http_open(&s->http, &cfg, err);
    if (st != ST_OK) { /* a system without IPv6 */
        cfg.host = "0.0.0.0";
        st = http_open(&s->http, &cfg, err);
    }
    if (st != ST_OK) {
        mem_free(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

int share_port(const struct share *s) {
    return http_port(s->http);
}

void share_close(struct share *s) {
    if (s == NULL)
        return;
    http_drain(s->http, 3000);
    http_close(s->http);
    mem_free(s);
}
