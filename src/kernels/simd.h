/* simd.h: what the ISA files have in common: how a hot function is written down once and
 * compiled for each number of tiles and tokens. */
#ifndef LOCKSTEP_KERNELS_SIMD_H
#define LOCKSTEP_KERNELS_SIMD_H

/* A body that must vanish into each of its callers, with the callers' constants. */
#define INLINE static inline __attribute__((always_inline))

/* Before a loop whose count is such a constant: arrays indexed by it live in registers. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
