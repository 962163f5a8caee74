/* simd.h: shared by the ISA files: a hot function is written once and compiled for each number
 * of tiles and tokens. */
#ifndef LOCKSTEP_KERNELS_SIMD_H
#define LOCKSTEP_KERNELS_SIMD_H

/* A body that must vanish into each of its callers, with the callers' constants. */
#define INLINE static inline __attribute__((always_inline))

/* Before a loop with such a constant count: it keeps arrays that are indexed by it in
 * registers. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
