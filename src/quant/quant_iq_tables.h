/* quant_iq_tables.h: the codebooks of the IQ types, for dequant_iq.c and for packing (kernels). */
#ifndef LOCKSTEP_QUANT_QUANT_IQ_TABLES_H
#define LOCKSTEP_QUANT_QUANT_IQ_TABLES_H

#include <stdint.h>

/* A word holds 8 digits of 2 bits, or (iq3) 4 digits of 4 bits, the first one lowest. */
extern const uint16_t quant_iq2xxs_words[256], quant_iq2xs_words[512], quant_iq2s_words[1024],
    quant_iq3xxs_words[256], quant_iq3s_words[512], quant_iq1s_words[2048];

#endif
