/* dry.h: DRY, which makes it less and less likely that a sequence of tokens is repeated. As p-e-w
 * defines it (text-generation-webui, pull request 5677), and as llama.cpp takes it over. */
#ifndef LOCKSTEP_ENGINE_DRY_H
#define LOCKSTEP_ENGINE_DRY_H

#include "engine/engine.h"
#include "tokenizer/tokenizer.h"

/* A bit for each of n_vocab tokens whose text has one of the strings in it; mem_free(). NULL: no
 * memory. */
uint64_t *dry_breakers(const struct tokenizer *t, uint32_t n_vocab, const char *const *strings,
                       size_t n);

/* Where the newest tokens of history [n] stood before, the token that followed there loses
 *
 *   multiplier * base ^ (length - allowed_length)
 *
 * of its logit, for the longest such sequence of at least allowed_length tokens. None has a
 * breaker in it. Looks back on last_n tokens. logits [n_vocab]; counts [n_vocab] is zero before
 * and after. */
void dry_penalize(const struct engine_dry *dry, const uint64_t *breakers,
                  const int32_t *history, size_t n, float *logits, uint32_t *counts);

#endif
