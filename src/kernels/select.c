/* select.c: which kernels this binary has and this machine runs. */
#include "base/amx_permission.h"
#include "base/program.h"
#include "base/util.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__linux__) && defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

extern const struct kernels kernels_scalar, kernels_avx2, kernels_avxvnni, kernels_avx512,
    kernels_amx, kernels_neon, kernels_i8mm;
static const char *const names[ISA_N] = {"scalar", "avx2", "avxvnni", "avx512",
                                         "amx",    "neon", "i8mm"};

#if defined(__x86_64__)
/* F16C needs no question: it is older than AVX2. */
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi2");
}

/* CPUID leaf 7, subleaf 1: gcc 12's __builtin_cpu_supports() does not know the name. */
static bool has_avxvnni(void) {
    unsigned eax, ebx, ecx, edx;
    return has_avx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 4 & 1);
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
}

/* CPUID leaf 7: tiles and their int8 products. */
static bool has_amx(void) {
    unsigned eax, ebx, ecx, edx;
    return has_avx512() && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) &&
           (edx >> 24 & 3) == 3 && amx_permitted();
}
#elif defined(__aarch64__)
/* Dot product. Every arm64 Mac has it. */
static bool has_neon(void) {
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
    return true;
#endif
}

/* int8 matrix products. */
static bool has_i8mm(void) {
#if defined(__linux__)
    return has_neon() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
#else
    int has = 0;
    size_t size = sizeof has;
    return sysctlbyname("hw.optional.arm.FEAT_I8MM", &has, &size, NULL, 0) == 0 && has != 0;
#endif
}
#endif

const struct kernels *kernels_get(enum isa isa) {
    switch (isa) {
    case ISA_SCALAR:
        return &kernels_scalar;
#if defined(__x86_64__)
    case ISA_AVX2:
        return has_avx2() ? &kernels_avx2 : NULL;
    case ISA_AVXVNNI:
        return has_avxvnni() ? &kernels_avxvnni : NULL;
    case ISA_AVX512:
        return has_avx512() ? &kernels_avx512 : NULL;
    case ISA_AMX:
        return has_amx() ? &kernels_amx : NULL;
#elif defined(__aarch64__)
    case ISA_NEON:
        return has_neon() ? &kernels_neon : NULL;
    case ISA_I8MM:
        return has_i8mm() ? &kernels_i8mm : NULL;
#endif
    default:
        return NULL;
    }
}

enum status kernels_select(const struct kernels **out, struct err *err) {
    const char *wanted = env_get("LOCKSTEP_ISA");
    char usable[128] = "";
    for (int i = 0; i < ISA_N; i++) {
        const struct kernels *k = kernels_get((enum isa)i);
        if (k == NULL)
            continue;
        size_t n = strlen(usable);
        snprintf(usable + n, sizeof usable - n, "%s%s", n ? ", " : "", names[i]);
        if (wanted == NULL || str_eq(wanted, names[i]))
            *out = k; /* the last is the best */
        if (wanted != NULL && str_eq(wanted, names[i]))
            return ST_OK;
    }
    if (wanted != NULL)
        return err_set(err, ST_BAD_INPUT, "LOCKSTEP_ISA is %s: this machine runs %s", wanted,
                       usable);
    return ST_OK;
}
