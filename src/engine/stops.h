/* stops.h: stop strings in a text that comes in pieces. */
#ifndef LOCKSTEP_ENGINE_STOPS_H
#define LOCKSTEP_ENGINE_STOPS_H

#include <stddef.h>

struct stop {
    char *text;
    size_t len; /* > 0 */
};

/* held [len]: what has come and has not been let out. Returns how much of it may go out now: all
 * before the earliest stop string (*which is its index; of several at one place the first in the
 * list), or, if none is there (*which = -1), all but an end in which one may have begun. */
size_t stops_scan(const struct stop *stops, size_t n_stops, const char *held, size_t len,
                  int *which);

#endif
