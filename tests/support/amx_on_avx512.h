/* amx_on_avx512.h: the kernels for AMX where only AVX-512 is: the very source, but its tiles
 * are plain memory. */
#ifndef LOCKSTEP_TESTS_AMX_ON_AVX512_H
#define LOCKSTEP_TESTS_AMX_ON_AVX512_H

#include "kernels/kernels.h"

/* NULL if this machine lacks AVX-512. */
const struct kernels *amx_on_avx512(void);

#endif
