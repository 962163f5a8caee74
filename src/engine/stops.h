/* stops.h: finds stop strings in text that arrives in pieces. */
#ifndef LOCKSTEP_ENGINE_STOPS_H
#define LOCKSTEP_ENGINE_STOPS_H

#include <stddef.h>

struct stop {
    char *text;
    size_t len; /* > 0 */
};

/* held [len]: text that has arrived and has not been released. Returns how much of it may be
 * released now: everything before the earliest stop string (*which is its index; of several at
 * one place the first in the list). If there is none (*which = -1): everything except an end in
 * which one may have begun. */
size_t stops_scan(const struct stop *stops, size_t n_stops, const char *held, size_t len,
                  int *which);

#endif
