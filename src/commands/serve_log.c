/* serve_log.c: The lines of lockstep serve --log-requests: one for each request, as text or
 * JSON. */
#include "base/printable.h"
#include "base/util.h"
#include "commands/serve.h"
#include "net/http.h"
#include "server/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* What programs ask each second to see how the server is. */
static bool is_of_no_interest(const struct http_record *r) {
    static const char *const paths[] = {"/health", "/metrics", "/v1/cluster", "/cluster"};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        if (str_eq(r->path, paths[i]) && r->status == 200)
            return true;
    return false;
}

/* "2026-11-30T09:08:07.123Z" */
static void time_text(double unix_s, char out[40]) {
    time_t whole = (time_t)unix_s;
    char date[24];
    struct tm tm;
    gmtime_r(&whole, &tm);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, 40, "%s.%03dZ", date, (int)((unix_s - (double)whole) * 1000));
}

/* "key 2", or the client's address. */
static void who_text(const struct http_record *r, char *out, size_t size) {
    if (r->key > 0)
        snprintf(out, size, "%s key %d", r->address, r->key);
    else
        snprintf(out, size, "%s", r->address);
}

void serve_log_text(const struct http_record *r) {
    const struct http_account *a = &r->account;
    char when[40], who[96], path[200], name[96], figures[320] = "", line[1024];
    if (is_of_no_interest(r))
        return;
    time_text(r->begun_unix_s, when);
    who_text(r, who, sizeof who);
    copy_printable(path, sizeof path, r->path, strlen(r->path));
    copy_printable(name, sizeof name, a->name, strlen(a->name));
    if (*a->name != '\0')
        snprintf(figures, sizeof figures, "  %s  in %zu (%zu cached)  out %zu  first %.3f s",
                 name, a->n_in, a->n_cached, a->n_out, a->first_s);
    snprintf(line, sizeof line, "%s  %s  %.16s %s  %d%s%s  all %.3f s\n", when, who, r->method,
             path, r->status, r->left ? " (the client left)" : "", figures, r->all_s);
    fputs(line, stderr);
}

void serve_log_json(const struct http_record *r) {
    const struct http_account *a = &r->account;
    char when[40];
    if (is_of_no_interest(r))
        return;
    time_text(r->begun_unix_s, when);
    json_t *o = json_pack("{s:s, s:s, s:o, s:o, s:o, s:i, s:b}", "time", when, "address",
                          r->address, "key", r->key > 0 ? json_integer(r->key) : json_null(),
                          "method", bytes_json(r->method, strlen(r->method)), "path",
                          bytes_json(r->path, strlen(r->path)), "status", r->status, "left",
                          (int)r->left);
    if (*a->name != '\0')
        json_object_update_new(o, json_pack("{s:o, s:I, s:I, s:I, s:f}", "model",
                                            bytes_json(a->name, strlen(a->name)), "tokens_in",
                                            (json_int_t)a->n_in, "tokens_cached",
                                            (json_int_t)a->n_cached, "tokens_out",
                                            (json_int_t)a->n_out, "first_s", a->first_s));
    json_object_set_new(o, "all_s", json_real(r->all_s));
    char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(o);
    struct buf line = {0};
    if (text != NULL && buf_add_str(&line, text) && buf_add_str(&line, "\n"))
        fputs(line.bytes, stderr); /* in one piece: others write, too */
    buf_free(&line);
    free(text);
}
