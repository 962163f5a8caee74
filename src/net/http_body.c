/* http_body.c: Finds the end of a request's body: by its length, or chunk by chunk. */
#include "net/http_body.h"

#include "base/hex.h"
#include "base/util.h"

#include <ctype.h>
#include <strings.h>

#define FAULT(status, sentence) ((struct http_fault){(status), (sentence)})
#define SIZE_DIGITS 15 /* of a chunk's size: below 2^60 */
#define FRAMING_MAX 8192

static bool is_packed(const struct http_head *h) {
    const char *coding = http_head_field(h, "Content-Encoding");
    return coding != NULL && *coding != '\0' && strcasecmp(coding, "identity") != 0;
}

static struct http_fault read_length(struct http_body *b, const char *digits) {
    b->left = 0;
    if (*digits == '\0')
        return FAULT(400, "Content-Length is not a valid number");
    for (const char *c = digits; *c != '\0'; c++)
        if (!isdigit((unsigned char)*c))
            return FAULT(400, "Content-Length is not a valid number");
    for (const char *c = digits; *c != '\0'; c++)
        if (__builtin_mul_overflow(b->left, 10, &b->left) ||
            __builtin_add_overflow(b->left, *c - '0', &b->left))
            return FAULT(413, "the request's body is too large");
    return (struct http_fault){0};
}

struct http_fault http_body_begin(struct http_body *b, const struct http_head *h) {
    const char *coding = http_head_field(h, "Transfer-Encoding");
    const char *length = http_head_field(h, "Content-Length");
    *b = (struct http_body){.at = BODY_OVER};
    /* The length or the chunks mark the end of a body. A body of any other kind ends only when
     * the client closes its side, which it may do after the answer. */
    if (coding != NULL && strcasecmp(coding, "chunked") != 0)
        return FAULT(501, "the only transfer coding of a body is chunked");
    /* What stands between client and server might believe the other one. */
    if (http_head_count(h, "Transfer-Encoding") + http_head_count(h, "Content-Length") > 1)
        return FAULT(400, "the request's body has more than one length");
    if (is_packed(h))
        return FAULT(415, "a request's body comes as it is, without Content-Encoding");
    b->chunked = coding != NULL;
    if (b->chunked)
        b->at = BODY_SIZE;
    if (length == NULL)
        return (struct http_fault){0};
    struct http_fault fault = read_length(b, length);
    b->at = fault.status == 0 && b->left > 0 ? BODY_DATA : BODY_OVER;
    return fault;
}

/* One byte of what stands between chunks. */
static struct http_fault take_framing(struct http_body *b, char c) {
    int digit = hex_digit(c);
    if (++b->n_framing > FRAMING_MAX)
        return FAULT(400, "a chunk of the request's body begins with too long a line");
    switch (b->at) {
    case BODY_SIZE:
        if (digit >= 0 && b->n_digits == SIZE_DIGITS)
            return FAULT(413, "a chunk of the request's body is too large");
        if (digit >= 0) {
            b->left = b->left * 16 + (unsigned)digit;
            b->n_digits++;
        } else if (b->n_digits == 0 || (c != '\r' && c != '\n' && c != ';' && c != ' ')) {
            return FAULT(400, "a chunk of the request's body does not begin with its size");
        } else {
            b->at = BODY_REST;
        }
        if (c != '\n')
            break;
        /* fall through */
    case BODY_REST:
        if (c != '\n')
            break;
        b->at = b->left > 0 ? BODY_DATA : BODY_TRAILER;
        b->n_framing = 0;
        break;
    case BODY_DATA_END:
        if (c != '\n' && (c != '\r' || b->n_framing > 1))
            return FAULT(400, "a chunk of the request's body is longer than its size");
        if (c == '\n') {
            b->at = BODY_SIZE;
            b->n_framing = 0;
            b->n_digits = 0;
        }
        break;
    case BODY_TRAILER:
        if (c == '\n')
            b->at = BODY_OVER;
        else if (c != '\r')
            b->at = BODY_TRAILER_REST;
        break;
    default: /* BODY_TRAILER_REST: trailers are not needed */
        if (c == '\n')
            b->at = BODY_TRAILER;
    }
    return (struct http_fault){0};
}

size_t http_body_next(struct http_body *b, const char **from, const char *end,
                      const char **data, struct http_fault *fault) {
    *fault = (struct http_fault){0};
    while (*from < end && b->at != BODY_OVER && fault->status == 0) {
        if (b->at != BODY_DATA) {
            *fault = take_framing(b, *(*from)++);
            continue;
        }
        size_t n = (size_t)MIN(b->left, (uint64_t)(end - *from));
        *data = *from;
        *from += n;
        b->left -= n;
        if (b->left == 0) {
            b->at = b->chunked ? BODY_DATA_END : BODY_OVER;
            b->n_framing = 0;
        }
        return n;
    }
    return 0;
}
