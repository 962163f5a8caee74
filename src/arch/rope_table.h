/* rope_table.h: the angles of RoPE, scaled as the model was trained (none, linear, llama-3
 * factors, YaRN). Frequencies are computed once in double with our own functions, and cos and
 * sin per position when a step needs them. */
#ifndef LOCKSTEP_ARCH_ROPE_TABLE_H
#define LOCKSTEP_ARCH_ROPE_TABLE_H

#include "arch/hparams.h"

/* freqs [n_rot/2]: radians per position of each pair. factors [n_rot/2] divides them (NULL:
 * none). scale: multiplies cos and sin (YaRN's attention factor; 1 otherwise).
 *
 * ST_BAD_INPUT: a pair would rotate backwards, or within n_ctx positions by more than
 * exact_sincos64() accepts. Only numbers of a damaged or hostile file do this.
 *
 * freq_i = base^(-2i/n_rot) / factors[i]; linear: / factor; YaRN (arXiv 2309.00071): a blend of
 * freq and freq/factor by a ramp over the pairs between beta_fast and beta_slow turns in the
 * trained context, attention factor 1 + 0.1 ln(factor). */
enum status rope_table_freqs(const struct rope_params *p, const float *factors, uint32_t n_ctx,
                             double *freqs, float *scale, struct err *err);

/* cos, sin [n_rot/2] of one position. */
void rope_table_at(const double *freqs, uint32_t n_pairs, float scale, uint32_t pos, float *cos,
                   float *sin);

#endif
