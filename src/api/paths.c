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

/* What is behind a place at which a path begins; NULL: it does not. */
static const char *behind(const char *place, const char *path) {
    const char *own = path_without_version(place, path);
    return str_starts(path, own) ? path + strlen(own) : NULL;
}

bool path_is(const char *place, const char *path) {
    const char *rest = behind(place, path);
    return rest != NULL && (*rest == '\0' || (str_eq(rest, "/") && strlen(place) > 1));
}

bool path_is_under(const char *place, const char *path) {
    const char *rest = behind(place, path);
    return rest != NULL && (*rest == '\0' || *rest == '/');
}
