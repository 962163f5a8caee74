/* template_filters.h: the tables of filters, and reading bound arguments. */
#ifndef LOCKSTEP_JINJA_TEMPLATE_FILTERS_H
#define LOCKSTEP_JINJA_TEMPLATE_FILTERS_H

#include "jinja/template_value.h"

extern const struct builtin sequence_filters[];
extern const size_t n_sequence_filters;

/* Argument i of a bound call, or something else if it was not given. */
struct value arg_or(const struct call *call, size_t i, struct value otherwise);
int64_t arg_int(struct render *r, const struct call *call, size_t i, int64_t otherwise);
bool arg_truth(const struct call *call, size_t i, bool otherwise);

/* Sorts in place, stably: by key (an attribute path) unless it is V_MISSING. Strings are
 * compared without regard to case unless case_sensitive. */
struct sort_order {
    struct value attribute; /* V_MISSING: the item itself */
    struct value otherwise; /* the key where the attribute is undefined; V_MISSING: that */
    bool case_sensitive, reverse;
};
void seq_sort(struct render *r, struct seq *seq, const struct sort_order *order);

#endif
