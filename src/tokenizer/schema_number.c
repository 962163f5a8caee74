#include "tokenizer/schema_number.h"

#include "base/util.h"
#include "tokenizer/gbnf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define NOTHING "[]"
#define FRACTION "(\".\" [0-9]{1,6})?"

/* --- integers --- */

static void digits(struct buf *t, char low, char high) {
    if (low == high)
        buf_printf(t, "\"%c\"", low);
    else
        buf_printf(t, "[%c-%c]", low, high);
}

static void any_digits(struct buf *t, size_t n) {
    if (n > 0)
        buf_printf(t, " [0-9]{%zu}", n);
}

/* Strings of digits as long as s and not below it (above: not above it). */
static void beyond(struct buf *t, const char *s, bool above) {
    size_t n = strlen(s);
    if (n == 0) {
        buf_add_str(t, "\"\"");
        return;
    }
    buf_add_str(t, "(");
    buf_printf(t, "\"%c\" ", s[0]);
    beyond(t, s + 1, above);
    if (above ? s[0] < '9' : s[0] > '0') {
        buf_add_str(t, " | ");
        digits(t, above ? (char)(s[0] + 1) : '0', above ? '9' : (char)(s[0] - 1));
        any_digits(t, n - 1);
    }
    buf_add_str(t, ")");
}

/* Strings of digits from low to high, which have the same length. */
static void between(struct buf *t, const char *low, const char *high) {
    size_t same = 0;
    while (low[same] != '\0' && low[same] == high[same])
        same++;
    buf_add_str(t, "(");
    if (same > 0) {
        gbnf_literal(t, low, same);
        buf_add_str(t, " ");
    }
    low += same;
    high += same;
    if (low[0] != '\0') {
        buf_printf(t, "(\"%c\" ", low[0]);
        beyond(t, low + 1, true);
        buf_printf(t, " | \"%c\" ", high[0]);
        beyond(t, high + 1, false);
        if (low[0] + 1 < high[0]) {
            buf_add_str(t, " | ");
            digits(t, (char)(low[0] + 1), (char)(high[0] - 1));
            any_digits(t, strlen(low) - 1);
        }
        buf_add_str(t, ")");
    } else if (same == 0) {
        buf_add_str(t, "\"\"");
    }
    buf_add_str(t, ")");
}

/* 0 <= min <= max: one alternative per number of digits. */
static void naturals(struct buf *t, int64_t min, int64_t max) {
    buf_add_str(t, "(");
    for (int64_t low = min; low <= max;) {
        int64_t power = 10;
        while (power <= low)
            power *= 10;
        int64_t high = MIN(max, power - 1);
        char a[24], b[24];
        snprintf(a, sizeof a, "%" PRId64, low);
        snprintf(b, sizeof b, "%" PRId64, high);
        buf_add_str(t, low > min ? " | " : "");
        between(t, a, b);
        low = power;
    }
    buf_add_str(t, ")");
}

void schema_integers(struct buf *t, int64_t min, int64_t max) {
    if (max < min) {
        buf_add_str(t, NOTHING);
        return;
    }
    buf_add_str(t, "(");
    if (min < 0) {
        buf_add_str(t, "\"-\" ");
        naturals(t, max < 0 ? -max : 1, -min);
    }
    if (max >= 0) {
        buf_add_str(t, min < 0 ? " | " : "");
        naturals(t, MAX(min, INT64_C(0)), max);
    }
    buf_add_str(t, ")");
}

/* --- reals --- */

#define MAX_PLACES 15 /* of a bound; a double has no more digits */
#define MIN_PLACES 6  /* that may be written */

/* A number >= 0: its whole part and the digits of its fraction. */
struct decimal {
    int64_t whole;
    char fraction[24];
};

/* x with as many digits as a double has; where that is not x itself it is the next one above,
 * or below, and within a bound that x is itself beyond. */
static struct decimal decimal_of(double x, bool above, bool *strict) {
    char text[40], *point;
    int places = MAX_PLACES;
    for (double power = 1; power <= x && places > 0; power *= 10)
        places--;
    snprintf(text, sizeof text, "%.*f", places, x + 0.0);
    double value = strtod(text, NULL);
    point = strchr(text, '.');
    if (point != NULL)
        memmove(point, point + 1, strlen(point));
    int64_t digits = strtoll(text, NULL, 10), scale = 1;
    digits += (above && value < x) - (!above && value > x);
    for (int i = 0; i < places; i++)
        scale *= 10;
    struct decimal d = {.whole = digits / scale};
    for (int i = places; i-- > 0; digits /= 10)
        d.fraction[i] = (char)('0' + digits % 10);
    for (size_t n = strlen(d.fraction); n > 0 && d.fraction[n - 1] == '0'; n--)
        d.fraction[n - 1] = '\0';
    *strict = *strict && value == x;
    return d;
}

static void pad(char *fraction, size_t n) {
    for (size_t i = strlen(fraction); i < n; i++)
        fraction[i] = '0';
    fraction[n] = '\0';
}

static bool zeros(const char *s) {
    return s[strspn(s, "0")] == '\0';
}

/* What is left of both bounds' fractions, which have the same length, where the digits before
 * were the bound's; NULL: they were within it already. */
struct fractions {
    const char *low, *high;
    bool above, below; /* and not equal */
};

/* Whether the digits may end here. */
static bool may_end(struct fractions f) {
    return (f.low == NULL || (zeros(f.low) && !f.above)) &&
           (f.high == NULL || !zeros(f.high) || !f.below);
}

/* `least` to `room` digits of a fraction. */
static void fraction(struct buf *t, struct fractions f, unsigned least, unsigned room) {
    const char *left = f.low != NULL ? f.low : f.high;
    if (left == NULL) {
        buf_printf(t, "[0-9]{%u,%u}", least, room);
        return;
    }
    buf_add_str(t, "(" NOTHING);
    if (*left == '\0' && f.high == NULL && f.above) {
        buf_printf(t, " | \"0\"{0,%u} [1-9] [0-9]{0,%u}", room - 1, room - 1);
    } else if (*left == '\0' && may_end(f)) {
        buf_printf(t, f.high == NULL ? " | [0-9]{%u,%u}" : " | \"0\"{%u,%u}", least, room);
    } else if (*left != '\0') {
        struct fractions low = {f.low != NULL ? f.low + 1 : NULL, NULL, f.above, f.below};
        struct fractions high = {NULL, f.high != NULL ? f.high + 1 : NULL, f.above, f.below};
        char first = f.low != NULL ? *f.low : '0' - 1,
             last = f.high != NULL ? *f.high : '9' + 1;
        if (least == 0 && may_end(f))
            buf_add_str(t, " | \"\"");
        if (first == last)
            low.high = high.high;
        if (f.low != NULL && first <= last) {
            buf_printf(t, " | \"%c\" ", first);
            fraction(t, low, 0, room - 1);
        }
        if (f.high != NULL && first < last) {
            buf_printf(t, " | \"%c\" ", last);
            fraction(t, high, 0, room - 1);
        }
        if (first + 1 < last) {
            buf_add_str(t, " | ");
            digits(t, (char)(first + 1), (char)(last - 1));
            buf_printf(t, " [0-9]{0,%u}", room - 1);
        }
    }
    buf_add_str(t, ")");
}

/* The numbers with this whole part. */
static void with_whole(struct buf *t, int64_t whole, struct fractions f, unsigned room) {
    if (may_end(f))
        buf_printf(t, " | \"%" PRId64 "\"", whole);
    buf_printf(t, " | \"%" PRId64 ".\" ", whole);
    fraction(t, f, 1, room);
}

/* Non-negative bounds. */
static void reals_from_0(struct buf *t, struct schema_bounds b) {
    double max = MIN(b.max, (double)SCHEMA_NUMBER_MAX);
    if (b.min > max) {
        buf_add_str(t, NOTHING);
        return;
    }
    struct fractions both = {.above = b.above_min, .below = b.below_max && max == b.max};
    struct decimal low = decimal_of(b.min, true, &both.above);
    struct decimal high = decimal_of(max, false, &both.below);
    size_t n = MAX(strlen(low.fraction), strlen(high.fraction));
    unsigned room = MAX(MIN_PLACES, (unsigned)n + 1);
    pad(low.fraction, n);
    pad(high.fraction, n);
    both.low = low.fraction;
    both.high = high.fraction;
    buf_add_str(t, "(" NOTHING);
    if (low.whole == high.whole) {
        with_whole(t, low.whole, both, room);
    } else if (low.whole < high.whole) {
        struct fractions from = both, to = both;
        from.high = to.low = NULL;
        with_whole(t, low.whole, from, room);
        if (low.whole + 1 < high.whole) {
            buf_add_str(t, " | ");
            naturals(t, low.whole + 1, high.whole - 1);
            buf_add_str(t, " " FRACTION);
        }
        with_whole(t, high.whole, to, room);
    }
    buf_add_str(t, ")");
}

void schema_reals(struct buf *t, struct schema_bounds b) {
    buf_add_str(t, "(" NOTHING);
    if (b.max >= 0) {
        buf_add_str(t, " | ");
        struct schema_bounds up = b;
        if (up.min < 0) {
            up.min = 0;
            up.above_min = false;
        }
        reals_from_0(t, up);
    }
    if (b.min < 0) {
        struct schema_bounds down = {-b.max, -b.min, b.below_max, b.above_min};
        if (down.min <= 0) {
            down.min = 0;
            down.above_min = true; /* zero is among the others */
        }
        buf_add_str(t, " | \"-\" ");
        reals_from_0(t, down);
    }
    buf_add_str(t, ")");
}
