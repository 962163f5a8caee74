/* median.c: The median of measured values. */
#include "base/median.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sort_values(double *x, size_t n) {
    qsort(x, n, sizeof *x, by_value);
}

double median(double *x, size_t n) {
    if (n == 0)
        return 0;
    sort_values(x, n);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

double quantile(double *x, size_t n, double share) {
    if (n == 0)
        return 0;
    sort_values(x, n);
    return x[(size_t)(share * (double)(n - 1))];
}
