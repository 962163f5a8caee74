/* paths.c: what a request's path says beside its route. */
#include "api/dialects.h"
#include "base/util.h"

#include <string.h>

const char *path_without_version(const char *route, const char *path) {
    bool has = str_starts(route, "/v1/") && !str_starts(path, "/v1/");
    return has ? route + strlen("/v1") : route;
}

const char *path_below(const struct http_request *r, const char *route) {
    return http_path(r) + strlen(path_without_version(route, http_path(r)));
}
