/* schema_number.h: numbers between two bounds, as GBNF expressions. */
#ifndef LOCKSTEP_SCHEMA_SCHEMA_NUMBER_H
#define LOCKSTEP_SCHEMA_SCHEMA_NUMBER_H

#include "base/buf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Digits before the point, at most: integers of 64 bits fit. */
#define SCHEMA_MAX_DIGITS 20

/* Pieces of GBNF. The digits after the first, what may stand behind a point, and an exponent that
 * leaves a number of 20 digits finite. */
#define SCHEMA_MORE_DIGITS "[0-9]{0,19}"
#define SCHEMA_FRACTION "(\".\" [0-9]{1,20})?"
#define SCHEMA_EXPONENT_UP "\"+\"? ([0-9]{1,2} | \"1\" [0-9]{2} | \"2\" [0-7] [0-9])"
#define SCHEMA_EXPONENT "([eE] (\"-\" [0-9]{1,3} | " SCHEMA_EXPONENT_UP "))?"

struct schema_bound {
    const json_t *value; /* a number, borrowed; NULL: no bound */
    bool strict;         /* the bound itself is excluded */
};

struct schema_bounds {
    struct schema_bound min, max;
};

/* -1, 0, 1: how two JSON numbers compare; exactly where both are integers. */
int schema_compare(const json_t *a, const json_t *b);

/* A number above 0 as m / 10^places; false if m or places are too large to be of use. */
bool schema_number_steps(const json_t *v, uint32_t *m, uint32_t *places);

/* False: all numbers within the bounds have more than SCHEMA_MAX_DIGITS digits. */
bool schema_bounds_usable(struct schema_bounds bounds);

/* Decimal integers within the bounds; nothing ("[]") if there are none. */
void schema_integers(struct buf *t, struct schema_bounds bounds);

/* Decimal fractions within the bounds, with 20 digits after the point. If a bound is excluded,
 * they have one digit more than the bounds, but at least 6 (so that a double distinguishes
 * them). Exponents are allowed if every possible one stays within the bounds. The result is
 * empty ("[]") if no number fits. */
void schema_reals(struct buf *t, struct schema_bounds bounds);

#endif
