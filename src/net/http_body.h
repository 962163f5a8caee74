/* http_body.h: where a request's body ends, and which of the received bytes belong to it (RFC
 * 9112, 6 and 7): by its length, or in chunks. Nothing is allocated; the bytes stay the
 * caller's. */
#ifndef LOCKSTEP_NET_HTTP_BODY_H
#define LOCKSTEP_NET_HTTP_BODY_H

#include "net/http_head.h"

#include <stdint.h>

struct http_body {
    enum {
        BODY_DATA,     /* left bytes of the body, or of a chunk */
        BODY_SIZE,     /* a chunk's size */
        BODY_REST,     /* the rest of that line, up to its LF */
        BODY_DATA_END, /* CR LF behind a chunk */
        BODY_TRAILER,  /* at the beginning of a line behind the last chunk */
        BODY_TRAILER_REST,
        BODY_OVER,
    } at;
    bool chunked;
    uint64_t left;
    int n_digits;     /* of the size */
    size_t n_framing; /* bytes of this line, or of all trailers */
};

/* What a head says about its body. 400: there are two lengths, or the length is not a number;
 * 413: it does not fit 64 bits; 415: the body is compressed; 501: an unknown coding. */
struct http_fault http_body_begin(struct http_body *b, const struct http_head *h);

/* The next piece of the body within [*from, end). Returns its length, with *data at its first
 * byte; *from moves behind the bytes read. 0: all bytes have been read, the body is complete
 * (at == BODY_OVER), or `fault` holds an error. */
size_t http_body_next(struct http_body *b, const char **from, const char *end,
                      const char **data, struct http_fault *fault);

#endif
