#include "tokenizer/schema_number.h"

#include "base/util.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define NOTHING "[]"
#define FRACTION "(\".\" [0-9]{1,6})?"

/* --- integers --- */

static void digits(struct text *t, char low, char high) {
    if (low == high)
        text_printf(t, "\"%c\"", low);
    else
        text_printf(t, "[%c-%c]", low, high);
}

static void any_digits(struct text *t, size_t n) {
    if (n > 0)
        text_printf(t, " [0-9]{%zu}", n);
}

/* Strings of digits as long as s and not below it (above: not above it). */
static void beyond(struct text *t, const char *s, bool above) {
    size_t n = strlen(s);
    if (n == 0) {
        text_add(t, "\"\"");
        return;
    }
    text_add(t, "(");
    text_printf(t, "\"%c\" ", s[0]);
    beyond(t, s + 1, above);
    if (above ? s[0] < '9' : s[0] > '0') {
        text_add(t, " | ");
        digits(t, above ? (char)(s[0] + 1) : '0', above ? '9' : (char)(s[0] - 1));
        any_digits(t, n - 1);
    }
    text_add(t, ")");
}

/* Strings of digits from low to high, which have the same length. */
static void between(struct text *t, const char *low, const char *high) {
    size_t same = 0;
    while (low[same] != '\0' && low[same] == high[same])
        same++;
    text_add(t, "(");
    if (same > 0) {
        text_literal(t, low, same);
        text_add(t, " ");
    }
    low += same;
    high += same;
    if (low[0] != '\0') {
        text_printf(t, "(\"%c\" ", low[0]);
        beyond(t, low + 1, true);
        text_printf(t, " | \"%c\" ", high[0]);
        beyond(t, high + 1, false);
        if (low[0] + 1 < high[0]) {
            text_add(t, " | ");
            digits(t, (char)(low[0] + 1), (char)(high[0] - 1));
            any_digits(t, strlen(low) - 1);
        }
        text_add(t, ")");
    } else if (same == 0) {
        text_add(t, "\"\"");
    }
    text_add(t, ")");
}

/* 0 <= min <= max: one alternative per number of digits. */
static void naturals(struct text *t, int64_t min, int64_t max) {
    text_add(t, "(");
    for (int64_t low = min; low <= max;) {
        int64_t power = 10;
        while (power <= low)
            power *= 10;
        int64_t high = MIN(max, power - 1);
        char a[24], b[24];
        snprintf(a, sizeof a, "%" PRId64, low);
        snprintf(b, sizeof b, "%" PRId64, high);
        text_add(t, low > min ? " | " : "");
        between(t, a, b);
        low = power;
    }
    text_add(t, ")");
}

void schema_integers(struct text *t, int64_t min, int64_t max) {
    if (max < min) {
        text_add(t, NOTHING);
        return;
    }
    text_add(t, "(");
    if (min < 0) {
        text_add(t, "\"-\" ");
        naturals(t, max < 0 ? -max : 1, -min);
    }
    if (max >= 0) {
        text_add(t, min < 0 ? " | " : "");
        naturals(t, MAX(min, INT64_C(0)), max);
    }
    text_add(t, ")");
}

/* --- reals --- */

/* The numbers k/10^digits within 0 <= bounds. */
static void spaced(struct text *t, struct schema_bounds b, int n_digits) {
    double scale = pow(10, n_digits);
    int64_t first = (int64_t)ceil(b.min * scale), last = (int64_t)floor(b.max * scale);
    text_add(t, "(" NOTHING);
    for (int64_t k = first; k <= last; k++) {
        double value = (double)k / scale;
        if (value < b.min || value > b.max || (b.above_min && value == b.min) ||
            (b.below_max && value == b.max))
            continue;
        text_printf(t, " | \"%.*f\"", n_digits, value);
    }
    text_add(t, ")");
}

/* Non-negative bounds. */
static void fractions(struct text *t, struct schema_bounds b) {
    double max = MIN(b.max, (double)SCHEMA_NUMBER_MAX);
    if (b.min > max) {
        text_add(t, NOTHING);
        return;
    }
    int64_t first = (int64_t)ceil(b.min), last = (int64_t)floor(max);
    if (last <= first) { /* no room between integers */
        int n_digits = 0;
        b.max = max;
        while (n_digits < 6 && (max - b.min) * pow(10, n_digits + 1) <= 1000)
            n_digits++;
        spaced(t, b, n_digits);
        return;
    }
    bool first_counts = !(b.above_min && (double)first == b.min);
    bool last_counts = !(b.below_max && (double)last == max);
    text_add(t, "(");
    if (!first_counts)
        text_printf(t, "\"%" PRId64 ".\" [0-9]{0,5} [1-9] | ", first);
    if (first + !first_counts <= last - 1) {
        naturals(t, first + !first_counts, last - 1);
        text_add(t, " " FRACTION " | ");
    }
    if (last_counts)
        text_printf(t, "\"%" PRId64 "\"", last);
    else
        text_add(t, NOTHING);
    text_add(t, ")");
}

void schema_reals(struct text *t, struct schema_bounds b) {
    text_add(t, "(");
    if (b.max >= 0) {
        struct schema_bounds up = b;
        if (up.min < 0) {
            up.min = 0;
            up.above_min = false;
        }
        fractions(t, up);
    }
    if (b.min < 0) {
        struct schema_bounds down = {-b.max, -b.min, b.below_max, b.above_min};
        if (down.min < 0) {
            down.min = 0;
            down.above_min = true; /* zero is among the others */
        }
        text_add(t, b.max >= 0 ? " | \"-\" " : "\"-\" ");
        fractions(t, down);
    }
    text_add(t, ")");
}
