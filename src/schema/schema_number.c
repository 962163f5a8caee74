/* schema_number.c: numbers between two bounds. A bound becomes decimal text, digit by digit,
 * and so does the range between two bounds. Numbers below and above zero are written
 * separately, as ranges of magnitudes. */
#include "schema/schema_number.h"

#include "base/util.h"
#include "grammar/gbnf.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTHING "[]"
#define MAX_PLACES 40 /* of a bound */
#define NINES "99999999999999999999"

_Static_assert(sizeof NINES == SCHEMA_MAX_DIGITS + 1, "the largest number");

/* --- bounds as text --- */

/* A number >= 0; the fraction has no zeros at its end. */
struct decimal {
    char whole[SCHEMA_MAX_DIGITS + 2];
    char fraction[MAX_PLACES + 2];
};

struct side {
    struct decimal at;
    bool strict;
    bool none; /* of high: no bound */
};

struct span {
    struct side low, high;
};

int schema_compare(const json_t *a, const json_t *b) {
    if (json_is_integer(a) && json_is_integer(b)) {
        json_int_t x = json_integer_value(a), y = json_integer_value(b);
        return x < y ? -1 : x > y;
    }
    double x = json_number_value(a), y = json_number_value(b);
    return x < y ? -1 : x > y;
}

static bool is_negative(const json_t *v) {
    return json_number_value(v) < 0;
}

/* The digits of |v| without the point, and how many of them stand before it. */
static int digits_of(const json_t *v, char digits[48]) {
    if (json_is_integer(v)) {
        json_int_t i = json_integer_value(v);
        uint64_t magnitude = i < 0 ? -(uint64_t)i : (uint64_t)i;
        return snprintf(digits, 48, "%" PRIu64, magnitude);
    }
    double x = json_real_value(v) < 0 ? -json_real_value(v) : json_real_value(v);
    for (int places = 14; places <= 16; places++) { /* the shortest text that is x */
        snprintf(digits, 48, "%.*e", places, x);
        if (strtod(digits, NULL) == x)
            break;
    }
    char *e = strchr(digits, 'e');
    int point = 1 + atoi(e + 1);
    *e = '\0';
    memmove(digits + 1, digits + 2, strlen(digits + 1));
    return x > 0 ? point : 1;
}

static void strip_zeros(char *fraction) {
    for (size_t n = strlen(fraction); n > 0 && fraction[n - 1] == '0'; n--)
        fraction[n - 1] = '\0';
}

/* Adds 1 at the last digit; true if the first one carries. */
static bool increment(char *digits) {
    for (size_t i = strlen(digits); i-- > 0;) {
        if (digits[i] != '9') {
            digits[i]++;
            return false;
        }
        digits[i] = '0';
    }
    return true;
}

static void add_one(char *whole) {
    if (increment(whole)) {
        memmove(whole + 1, whole, strlen(whole) + 1);
        *whole = '1';
    }
}

/* Of a number above 0. */
static void subtract_one(char *whole) {
    size_t i = strlen(whole) - 1;
    for (; whole[i] == '0'; i--)
        whole[i] = '9';
    whole[i]--;
    if (whole[0] == '0' && whole[1] != '\0')
        memmove(whole, whole + 1, strlen(whole));
}

/* |bound|. What has more places than fit is rounded up or down, away from the bound. False: it
 * has too many digits before the point. */
static bool read_side(struct schema_bound bound, bool up, struct side *out) {
    char digits[48];
    int point = digits_of(bound.value, digits), n = (int)strlen(digits);
    *out = (struct side){.strict = bound.strict};
    if (point > SCHEMA_MAX_DIGITS)
        return false;
    for (int i = 0; i < point; i++)
        out->at.whole[i] = i < n ? digits[i] : '0';
    if (point <= 0)
        out->at.whole[0] = '0';
    bool cut = false;
    for (int i = MIN(point, 0), k = 0; (i < 0 && k < MAX_PLACES) || point + k < n; i++, k++) {
        char digit = point + k < 0 ? '0' : digits[point + k];
        if (k < MAX_PLACES)
            out->at.fraction[k] = digit;
        cut = cut || (k >= MAX_PLACES && digit != '0');
    }
    if (cut) {
        out->strict = false;
        if (up && increment(out->at.fraction))
            add_one(out->at.whole);
    }
    strip_zeros(out->at.fraction);
    return true;
}

static const struct side zero = {.at = {.whole = "0"}};

/* The numbers from 0 on, or those below as magnitudes. False: there are none. */
static bool span_of(struct schema_bounds b, bool below_zero, struct span *out) {
    struct schema_bound low = below_zero ? b.max : b.min, high = below_zero ? b.min : b.max;
    bool low_beyond_zero =
        low.value != NULL && (is_negative(low.value) == below_zero ||
                              (below_zero && json_number_value(low.value) == 0));
    out->low = out->high = zero;
    out->low.strict = below_zero;
    if (low_beyond_zero && json_number_value(low.value) == 0)
        out->low.strict = below_zero || low.strict;
    else if (low_beyond_zero && !read_side(low, true, &out->low))
        return false;
    if (high.value != NULL && json_number_value(high.value) != 0 &&
        is_negative(high.value) != below_zero)
        return false;
    out->high.none = high.value == NULL || !read_side(high, false, &out->high);
    return true;
}

bool schema_number_steps(const json_t *v, uint32_t *m, uint32_t *places) {
    char digits[48];
    int point = digits_of(v, digits), n = (int)strlen(digits);
    while (n > point && n > 1 && digits[n - 1] == '0')
        n--;
    int behind = n > point ? n - point : 0;
    uint64_t value = 0;
    for (int i = 0; i < MAX(point, n) && value <= UINT32_MAX; i++)
        value = value * 10 + (i < n ? (uint64_t)(digits[i] - '0') : 0);
    *m = (uint32_t)value;
    *places = (uint32_t)behind;
    return value > 0 && value <= 100000 && behind < 20;
}

bool schema_bounds_usable(struct schema_bounds b) {
    struct side side;
    return !(b.min.value != NULL && !is_negative(b.min.value) &&
             !read_side(b.min, true, &side)) &&
           !(b.max.value != NULL && is_negative(b.max.value) && !read_side(b.max, true, &side));
}

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

static int compare_whole(const char *a, const char *b) {
    size_t n = strlen(a), k = strlen(b);
    return n != k ? (n < k ? -1 : 1) : strcmp(a, b);
}

/* Whole numbers from low to high: one alternative per number of digits. */
static void naturals(struct buf *t, const char *low, const char *high) {
    size_t shortest = strlen(low), longest = strlen(high);
    char least[SCHEMA_MAX_DIGITS + 2];
    buf_add_str(t, "(" NOTHING);
    for (size_t n = shortest; n <= longest; n++) {
        snprintf(least, sizeof least, "1%0*d", (int)n - 1, 0);
        least[n] = '\0';
        const char *from = n == shortest ? low : least;
        const char *to = n == longest ? high : &NINES[SCHEMA_MAX_DIGITS - n];
        if (strcmp(from, to) <= 0) {
            buf_add_str(t, " | ");
            between(t, from, to);
        }
    }
    buf_add_str(t, ")");
}

static void integers_of(struct buf *t, struct span s) {
    char *low = s.low.at.whole, *high = s.high.at.whole;
    bool below = s.high.strict && s.high.at.fraction[0] == '\0';
    if (s.low.strict || s.low.at.fraction[0] != '\0')
        add_one(low);
    if (s.high.none)
        memcpy(high, NINES, sizeof NINES);
    else if (below && str_eq(high, "0"))
        low = strcpy(s.low.at.whole, "1"); /* nothing is below 0 */
    else if (below)
        subtract_one(high);
    if (strlen(low) <= SCHEMA_MAX_DIGITS)
        naturals(t, low, high);
    else
        buf_add_str(t, NOTHING);
}

void schema_integers(struct buf *t, struct schema_bounds bounds) {
    struct span span;
    buf_add_str(t, "(" NOTHING);
    if (span_of(bounds, true, &span)) {
        buf_add_str(t, " | \"-\" ");
        integers_of(t, span);
    }
    if (span_of(bounds, false, &span)) {
        buf_add_str(t, " | ");
        integers_of(t, span);
    }
    buf_add_str(t, ")");
}

/* --- reals --- */

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
static void with_whole(struct buf *t, const char *whole, struct fractions f, unsigned room) {
    if (may_end(f))
        buf_printf(t, " | \"%s\"", whole);
    buf_printf(t, " | \"%s.\" ", whole);
    fraction(t, f, 1, room);
}

/* Exponents: below 1 where zero bounds from below; from 1 on where nothing bounds from above. */
static void with_exponents(struct buf *t, const struct span *s) {
#define MANTISSA " | [1-9] " SCHEMA_FRACTION " [eE] "
    bool from_zero = str_eq(s->low.at.whole, "0") && s->low.at.fraction[0] == '\0';
    bool from_one =
        str_eq(s->low.at.whole, "0") ||
        (str_eq(s->low.at.whole, "1") && s->low.at.fraction[0] == '\0' && !s->low.strict);
    if (from_zero && (s->high.none || !str_eq(s->high.at.whole, "0")))
        buf_add_str(t, MANTISSA "\"-\" (\"0\"? [1-9] | [1-9] [0-9] | [12] [0-9]{2})");
    if (from_one && s->high.none)
        buf_add_str(t, MANTISSA SCHEMA_EXPONENT_UP);
}

static bool is_zero(const struct side *s) {
    return str_eq(s->at.whole, "0") && s->at.fraction[0] == '\0';
}

static unsigned room_for(const struct span *s, size_t n) {
    bool near = (s->low.strict && !is_zero(&s->low)) || (!s->high.none && s->high.strict);
    return MAX(near ? 6 : SCHEMA_MAX_DIGITS, (unsigned)n + 1);
}

static void reals_of(struct buf *t, struct span s) {
    const char *low = s.low.at.whole, *high = s.high.at.whole;
    int order = s.high.none ? -1 : compare_whole(low, high);
    struct fractions both = {.above = s.low.strict, .below = s.high.strict};
    size_t n = MAX(strlen(s.low.at.fraction), strlen(s.high.at.fraction));
    unsigned room = room_for(&s, n);
    buf_add_str(t, "(" NOTHING);
    with_exponents(t, &s);
    pad(s.low.at.fraction, n);
    pad(s.high.at.fraction, n);
    both.low = s.low.at.fraction;
    both.high = s.high.at.fraction;
    if (order == 0) {
        with_whole(t, low, both, room);
    } else if (order < 0) {
        struct fractions from = both, to = both;
        from.high = to.low = NULL;
        with_whole(t, low, from, room);
        if (!s.high.none)
            with_whole(t, high, to, room);
        char first[SCHEMA_MAX_DIGITS + 3], last[SCHEMA_MAX_DIGITS + 3] = NINES;
        add_one(strcpy(first, low));
        if (!s.high.none)
            subtract_one(strcpy(last, high));
        if (compare_whole(first, last) <= 0) {
            buf_add_str(t, " | ");
            naturals(t, first, last);
            buf_add_str(t, " " SCHEMA_FRACTION);
        }
    }
    buf_add_str(t, ")");
}

void schema_reals(struct buf *t, struct schema_bounds b) {
    struct span span;
    buf_add_str(t, "(" NOTHING);
    if (span_of(b, false, &span)) {
        buf_add_str(t, " | ");
        reals_of(t, span);
    }
    if (span_of(b, true, &span)) {
        buf_add_str(t, " | \"-\" ");
        reals_of(t, span);
    }
    buf_add_str(t, ")");
}
