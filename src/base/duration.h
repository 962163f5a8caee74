/* duration.h: reads how long something lasts, as people and programs write it: "30m", "1h30m",
 * "500ms", "never". */
#ifndef LOCKSTEP_BASE_DURATION_H
#define LOCKSTEP_BASE_DURATION_H

#include <stdbool.h>
#include <stdint.h>

#define DURATION_NEVER (-1)
/* More is never: a hundred years. */
#define DURATION_MAX_MS ((int64_t)100 * 366 * 86400 * 1000)

/* One or more numbers, each with its unit (ms, s, m, h or d); or one number alone, which is
 * seconds; or "never". What is negative, or too much, is DURATION_NEVER; a part of a millisecond
 * counts as a whole one. False: it is none of this. */
bool duration_parse(const char *text, int64_t *out_ms);
/* The same for a number of seconds. */
int64_t duration_of_seconds(double s);
/* "30m", "1h30m", "45s"; "never". Seconds and less are left out beside hours. */
void duration_print(int64_t ms, char *out, int size);

#endif
