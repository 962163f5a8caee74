/* schema_number.h: numbers between two bounds, as GBNF expressions. */
#ifndef LOCKSTEP_TOKENIZER_SCHEMA_NUMBER_H
#define LOCKSTEP_TOKENIZER_SCHEMA_NUMBER_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

/* The largest number that a grammar writes: 15 digits are exact in a double. */
#define SCHEMA_NUMBER_MAX INT64_C(999999999999999)

/* Decimal integers from min to max, both within +-SCHEMA_NUMBER_MAX; nothing ("[]") if
 * max < min. */
void schema_integers(struct buf *t, int64_t min, int64_t max);

struct schema_bounds {
    double min, max; /* infinite: none */
    bool above_min;  /* min itself is excluded */
    bool below_max;
};

/* Decimal fractions within the bounds, with room for six digits behind the point, or for more than
 * the bounds have; nothing ("[]") if there are none. */
void schema_reals(struct buf *t, struct schema_bounds bounds);

#endif
