/* http_head.h: the head of an HTTP/1.1 request (RFC 9112): the request line and the fields. It
 * is strict if two parsers could understand a head differently. It knows nothing of sockets.
 *
 * Pure functions on bytes. The first error ends the parse, with the status and the sentence
 * that the client gets. */
#ifndef LOCKSTEP_NET_HTTP_HEAD_H
#define LOCKSTEP_NET_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>

#define HTTP_LINE_MAX ((size_t)8 << 10)  /* the request line; beyond it 414 */
#define HTTP_HEAD_MAX ((size_t)32 << 10) /* the whole head; beyond it 431 */
#define HTTP_FIELDS_MAX 100
#define HTTP_ARGS_MAX 64

struct http_field {
    const char *name, *value; /* value: without blanks at either end */
};

struct http_head {
    char *text;         /* owned; everything below points into it, or is a literal */
    const char *method; /* "" until it is known, as is path */
    const char *path;   /* decoded, without the query; of http://host/path the path */
    bool is_1_0;        /* HTTP/1.0; else 1.1 or a later 1.x */
    struct http_field fields[HTTP_FIELDS_MAX];
    size_t n_fields;
    struct http_field args[HTTP_ARGS_MAX]; /* of the query, decoded */
    size_t n_args;
};

/* Why a head, or a body's framing, is refused. status 0: it is not. */
struct http_fault {
    int status;
    const char *sentence; /* a literal */
};

/* The length of the head at the beginning of bytes, including the blank line that ends it; 0:
 * it is not complete yet. *seen: where to continue the search, 0 at first, kept between calls.
 */
size_t http_head_end(const char *bytes, size_t len, size_t *seen);

/* Bytes that are not a whole head yet: whether they can still become one within the limits. */
struct http_fault http_head_limits(const char *bytes, size_t len);

/* Reads a whole head of len bytes (http_head_end()), or, for its path alone, the beginning of one
 * that was refused. After a fault, method and path are set as far as they could be read. Free with
 * http_head_deinit() in any case. 500: no memory. */
struct http_fault http_head_parse(struct http_head *h, const char *bytes, size_t len);
void http_head_deinit(struct http_head *h);

/* The first value of that name, in any letter case; NULL: it is absent. */
const char *http_head_field(const struct http_head *h, const char *name);
size_t http_head_count(const struct http_head *h, const char *name);
/* Whether a list in the field ("close, TE") has the word, in any case of letters. */
bool http_head_lists(const struct http_head *h, const char *name, const char *word);

#endif
