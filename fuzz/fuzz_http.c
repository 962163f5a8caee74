/* Fuzzes the head of an HTTP request and the framing of its body: read whole, and byte by byte,
 * with the same result. */
#include "base/mem.h"
#include "net/http_body.h"
#include "net/http_head.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct body_read {
    int status;
    size_t n_bytes, n_read;
    bool over;
};

static struct body_read read_body(struct http_body b, const char *from, const char *end,
                                  size_t piece) {
    struct http_fault fault = {0};
    struct body_read out = {0};
    const char *at = from, *bytes;
    while (at < end && b.at != BODY_OVER && fault.status == 0) {
        const char *stop = (size_t)(end - at) > piece ? at + piece : end;
        for (size_t n; (n = http_body_next(&b, &at, stop, &bytes, &fault)) > 0;)
            out.n_bytes += n;
    }
    out.status = fault.status;
    out.n_read = (size_t)(at - from);
    out.over = b.at == BODY_OVER;
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    struct http_head h;
    struct http_body b;
    size_t seen = 0, n = http_head_end(text, size, &seen), slow = 0;
    seen = 0;
    for (size_t i = 0; i <= size && slow == 0; i++)
        slow = http_head_end(text, i, &seen);
    if (slow != n)
        abort();
    (void)http_head_limits(text, size);
    struct http_fault fault = http_head_parse(&h, text, n != 0 ? n : size);
    for (size_t i = 0; i < h.n_fields; i++)
        if (http_head_field(&h, h.fields[i].name) == NULL)
            abort();
    (void)http_head_lists(&h, "Connection", "close");
    if (fault.status == 0)
        fault = http_body_begin(&b, &h);
    http_head_deinit(&h);
    if (fault.status != 0 || n == 0)
        return 0;
    struct body_read whole = read_body(b, text + n, text + size, size);
    struct body_read bytes = read_body(b, text + n, text + size, 1);
    if (whole.status != bytes.status || whole.n_bytes != bytes.n_bytes ||
        whole.n_read != bytes.n_read || whole.over != bytes.over)
        abort();
    return 0;
}
