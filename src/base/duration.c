/* duration.c: Reads and prints durations. */
#include "base/duration.h"

#include "base/util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct unit {
    const char *name;
    double ms;
} units[] = {{"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}, {"d", 86400e3}};

int64_t duration_of_seconds(double s) {
    if (!(s >= 0) || s * 1e3 > (double)DURATION_MAX_MS)
        return DURATION_NEVER;
    return (int64_t)ceil(s * 1e3);
}

/* A number in digits, perhaps with a point; false: there is none. */
static bool read_number(const char **at, double *out) {
    size_t n = strspn(*at, "0123456789"), n_all = n;
    if ((*at)[n] == '.')
        n_all += 1 + strspn(*at + n + 1, "0123456789");
    char number[40];
    if (n_all == 0 || n_all >= sizeof number || (n == 0 && n_all < 2))
        return false;
    memcpy(number, *at, n_all);
    number[n_all] = '\0';
    *out = strtod(number, NULL);
    *at += n_all;
    return true;
}

static const struct unit *read_unit(const char **at) {
    size_t n = strspn(*at, "abcdefghijklmnopqrstuvwxyz");
    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (strlen(units[i].name) == n && strncmp(*at, units[i].name, n) == 0) {
            *at += n;
            return &units[i];
        }
    return NULL;
}

bool duration_parse(const char *text, int64_t *out_ms) {
    bool negative = *text == '-';
    const char *at = text + negative;
    double ms = 0, number;
    if (str_eq(text, "never")) {
        *out_ms = DURATION_NEVER;
        return true;
    }
    do {
        if (!read_number(&at, &number))
            return false;
        const struct unit *unit = read_unit(&at);
        bool alone = unit == NULL && *at == '\0' && ms == 0;
        if (unit == NULL && !alone)
            return false;
        ms += number * (unit != NULL ? unit->ms : 1e3);
    } while (*at != '\0');
    *out_ms = negative && ms > 0 ? DURATION_NEVER : duration_of_seconds(ms * 1e-3);
    return true;
}

void duration_print(int64_t ms, char *out, int size) {
    int64_t s = ms / 1000, h = s / 3600, m = s / 60 % 60;
    if (ms < 0)
        snprintf(out, (size_t)size, "never");
    else if (h > 0)
        snprintf(out, (size_t)size, m > 0 ? "%lldh%lldm" : "%lldh", (long long)h, (long long)m);
    else if (m > 0)
        snprintf(out, (size_t)size, s % 60 > 0 ? "%lldm%llds" : "%lldm", (long long)m,
                 (long long)(s % 60));
    else
        snprintf(out, (size_t)size, "%llds", (long long)s);
}
