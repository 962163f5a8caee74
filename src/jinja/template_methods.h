/* template_methods.h: the tables of methods by type. */
#ifndef LOCKSTEP_JINJA_TEMPLATE_METHODS_H
#define LOCKSTEP_JINJA_TEMPLATE_METHODS_H

#include "jinja/template_value.h"

extern const struct builtin list_methods[], tuple_methods[], dict_methods[], loop_methods[],
    cycler_methods[];
extern const size_t n_list_methods, n_tuple_methods, n_dict_methods, n_loop_methods,
    n_cycler_methods;

#endif
