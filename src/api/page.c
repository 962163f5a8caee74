/* page.c: gives browsers the chat page and its files, compressed. The name of a file below /page/
 * has a hash of its bytes, so a browser keeps it for good; it asks for the page each time. */
#include "api/page.h"

#include "base/util.h"

#include <string.h>
#include <strings.h>

static const struct page_file *find(const char *path) {
    for (size_t i = 0; i < n_page_files; i++)
        if (str_eq(page_files[i].path, path))
            return &page_files[i];
    return NULL;
}

bool page_has(const char *path) {
    return find(path) != NULL;
}

/* Browsers ask for HTML; a client such as curl gets text at "/" (health_metrics.c). */
static bool wants(const struct http_request *r, const struct page_file *f) {
    const char *accept = http_header(r, "Accept"), *method = http_method(r);
    bool reads = str_eq(method, "GET") || str_eq(method, "HEAD");
    return reads && (!str_eq(f->path, "/") || (accept != NULL && strstr(accept, "text/html")));
}

/* "gzip" in a list such as "gzip;q=0.5, br", but not with a weight of zero. */
static bool takes_gzip(const struct http_request *r) {
    const char *list = http_header(r, "Accept-Encoding");
    while (list != NULL && *list != '\0') {
        list += strspn(list, " \t,");
        size_t n = strcspn(list, ",");
        if (strncasecmp(list, "gzip", 4) == 0 && strchr(" \t;,", list[4]) != NULL) {
            const char *weight = memchr(list, '=', n);
            return weight == NULL || strcspn(weight, "123456789") < n - (size_t)(weight - list);
        }
        list += n;
    }
    return false;
}

static const char *type_of(const char *path) {
    return str_eq(path, "/") ? "text/html; charset=utf-8" : "text/javascript; charset=utf-8";
}

static void give(struct http_request *r, const struct page_file *f) {
    bool zipped = f->plain == NULL || takes_gzip(r), is_page = str_eq(f->path, "/");
    const char *known = http_header(r, "If-None-Match");
    http_set_header(r, "ETag", f->tag);
    http_set_header(r, "Cache-Control",
                    is_page ? "no-cache" : "public, max-age=31536000, immutable");
    http_set_header(r, "Vary", "Accept, Accept-Encoding");
    http_set_header(r, "X-Content-Type-Options", "nosniff");
    if (is_page) {
        http_set_header(r, "Content-Security-Policy", "frame-ancestors 'none'");
        http_set_header(r, "Referrer-Policy", "no-referrer");
    }
    if (known != NULL && strstr(known, f->tag) != NULL) {
        http_reply(r, 304, type_of(f->path), "", 0);
        return;
    }
    if (zipped)
        http_set_header(r, "Content-Encoding", "gzip");
    http_reply(r, 200, type_of(f->path), zipped ? f->zipped : f->plain,
               zipped ? f->n_zipped : f->n_plain);
}

static const struct page_file *asked(const struct http_request *r) {
    const struct page_file *f = find(http_path(r));
    return f != NULL && wants(r, f) ? f : NULL;
}

bool page_is_asked(const struct http_request *r) {
    return asked(r) != NULL;
}

bool page_answer(struct http_request *r) {
    const struct page_file *f = asked(r);
    if (f != NULL)
        give(r, f);
    return f != NULL;
}
