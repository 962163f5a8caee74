/* stops.c: Finds stop strings in text that arrives in pieces. */
#include "engine/stops.h"

#include "base/util.h"

size_t stops_scan(const struct stop *stops, size_t n_stops, const char *held, size_t len,
                  int *which) {
    *which = -1;
    for (size_t at = 0; at < len; at++)
        for (size_t i = 0; i < n_stops; i++)
            if (stops[i].len <= len - at &&
                memcmp(held + at, stops[i].text, stops[i].len) == 0) {
                *which = (int)i;
                return at;
            }
    for (size_t at = 0; at < len; at++)
        for (size_t i = 0; i < n_stops; i++)
            if (len - at < stops[i].len && memcmp(held + at, stops[i].text, len - at) == 0)
                return at;
    return len;
}
