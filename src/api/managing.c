/* managing.c: Looks at where a request comes from that would change something. */
#include "api/managing.h"

#include "base/util.h"
#include "net/net.h"
#include "server/reply.h"

#include <strings.h>

bool managing_is_from_here(const struct http_request *r) {
    static const char *const passed[] = {
        "Forwarded",         "Via",       "X-Forwarded-For", "X-Forwarded-Host",
        "X-Forwarded-Proto", "X-Real-IP", REPLY_NAME_HEADER};
    char host[NET_TEXT_BYTES];
    http_client_host(r, host, sizeof host);
    for (size_t i = 0; i < ARRAY_LEN(passed); i++)
        if (http_header(r, passed[i]) != NULL)
            return false;
    if (http_is_1_0(r)) /* as nginx passes requests on, with no header of its own, by default */
        return false;
    return (str_starts(host, "127.") || str_eq(host, "::1")) && http_why_not_local(r) == NULL;
}

const char *managing_why_not_from_page(const struct http_request *r, int *status) {
    static const char json[] = "application/json";
    const char *type = http_header(r, "Content-Type"), *origin = http_header(r, "Origin");
    const char *host = http_header(r, "Host"),
               *from = origin != NULL ? strstr(origin, "://") : NULL;
    size_t n = strlen(json);
    *status = 415;
    if (type == NULL || strncasecmp(type, json, n) != 0 || (type[n] != '\0' && type[n] != ';'))
        return "the Content-Type of a change is application/json";
    *status = 403;
    if (origin != NULL && (from == NULL || host == NULL || strcasecmp(from + 3, host) != 0))
        return "the Origin header names another page than that of this server";
    return NULL;
}

int managing_status(enum status st) {
    return st == ST_REFUSED ? 409 : http_status_of(st);
}
