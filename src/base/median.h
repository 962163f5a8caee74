/* median.h: the median of repeated measurements. */
#ifndef LOCKSTEP_BASE_MEDIAN_H
#define LOCKSTEP_BASE_MEDIAN_H

#include <stddef.h>

/* Ascending. */
void sort_values(double *x, size_t n);

/* Sorts x [n] and returns its middle: of an even number the mean of the two there; 0 of none. */
double median(double *x, size_t n);

/* Sorts x [n] and returns the value that about so large a share (0 to 1) of the others is
 * below; 0 of none. */
double quantile(double *x, size_t n, double share);

#endif
