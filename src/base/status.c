/* status.c: Fills a struct err; names and exit codes of each status. */
#include "base/status.h"

#include "base/sentence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void err_vset(struct err *err, enum err_code code, const char *fmt, va_list ap) {
    if (err == NULL)
        return;
    sentence_vprint(err->text, sizeof err->text, fmt, ap);
    err->code = code;
}

enum status err_set(struct err *err, enum status st, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    err_vset(err, ERR_NONE, fmt, ap);
    va_end(ap);
    return st;
}

enum status err_set_code(struct err *err, enum status st, enum err_code code, const char *fmt,
                         ...) {
    va_list ap;
    va_start(ap, fmt);
    err_vset(err, code, fmt, ap);
    va_end(ap);
    return st;
}

enum status err_prefix(struct err *err, enum status st, const char *fmt, ...) {
    if (err == NULL)
        return st;
    struct err tail = *err;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof err->text)
        snprintf(err->text + n, sizeof err->text - (size_t)n, "%s", tail.text);
    sentence_mend(err->text);
    return st;
}

const char *status_name(enum status st) {
    static const char *const names[ST_N] = {
        [ST_OK] = "ok",
        [ST_AGAIN] = "not now",
        [ST_BAD_INPUT] = "bad input",
        [ST_NOT_FOUND] = "not found",
        [ST_UNSUPPORTED] = "unsupported",
        [ST_NO_MEMORY] = "no memory",
        [ST_IO] = "input/output error",
        [ST_TIMEOUT] = "timeout",
        [ST_PEER_LOST] = "peer lost",
        [ST_REFUSED] = "refused",
        [ST_CANCELLED] = "cancelled",
    };
    return (unsigned)st < ST_N ? names[st] : "unknown status";
}

int status_exit_code(enum status st) {
    switch (st) {
    case ST_OK:
        return 0;
    case ST_BAD_INPUT:
    case ST_NOT_FOUND:
    case ST_UNSUPPORTED:
        return 2;
    case ST_PEER_LOST:
    case ST_TIMEOUT:
    case ST_REFUSED:
        return 3;
    default:
        return 1;
    }
}

_Noreturn void bug_at(const char *file, int line, const char *what) {
    fprintf(stderr, "lockstep: bug at %s:%d: %s\n", file, line, what);
    abort();
}
