/* vnni_on_avx2.h: the kernels for AVX-VNNI where only AVX2 is: the very source, but its one
 * instruction beyond AVX2 is done in several. */
#ifndef LOCKSTEP_TESTS_VNNI_ON_AVX2_H
#define LOCKSTEP_TESTS_VNNI_ON_AVX2_H

#include "kernels/kernels.h"

/* NULL if this machine lacks AVX2. */
const struct kernels *vnni_on_avx2(void);

#endif
