/* isa_family.h: which table of the mixers belongs to a table of kernels: several instruction sets
 * share one. */
#ifndef LOCKSTEP_MIXERS_ISA_FAMILY_H
#define LOCKSTEP_MIXERS_ISA_FAMILY_H

#include "kernels/kernels.h"

static inline bool isa_is_one_of(const struct kernels *k, enum isa a, enum isa b) {
    return k == kernels_get(a) || k == kernels_get(b);
}

/* The address of name_scalar, or of name_avx2... */
#if defined(__x86_64__)
#define ISA_FAMILY(k, name)                                     \
    (isa_is_one_of(k, ISA_AVX512, ISA_AMX)     ? &name##_avx512 \
     : isa_is_one_of(k, ISA_AVX2, ISA_AVXVNNI) ? &name##_avx2   \
                                               : &name##_scalar)
#elif defined(__aarch64__)
#define ISA_FAMILY(k, name) \
    (isa_is_one_of(k, ISA_NEON, ISA_I8MM) ? &name##_neon : &name##_scalar)
#else
#define ISA_FAMILY(k, name) (&name##_scalar)
#endif

#endif
