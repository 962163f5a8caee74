/* roof_loops.h: the loops of one instruction set, for roof.c and roof_*.c. */
#ifndef LOCKSTEP_ROOF_ROOF_LOOPS_H
#define LOCKSTEP_ROOF_ROOF_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#define ROOF_READ_LOOPS 7

struct roof_loops {
    const char *name; /* as struct kernels' */
    /* Reads bytes (a multiple of 1 MiB) at p, 64-byte aligned. The result only keeps the
     * compiler from dropping the loads. Fewer loops end with NULL. */
    uint64_t (*read[ROOF_READ_LOOPS])(const uint8_t *p, size_t bytes);
    /* `rounds` times int8_macs (f32_macs) multiply-adds. */
    uint64_t (*int8)(uint64_t rounds);
    uint64_t (*f32)(uint64_t rounds);
    double int8_macs, f32_macs;
};

extern const struct roof_loops roof_loops_scalar, roof_loops_avx2, roof_loops_avxvnni,
    roof_loops_avx512, roof_loops_amx, roof_loops_neon, roof_loops_i8mm;

#endif
