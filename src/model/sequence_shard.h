/* sequence_shard.h: the tokens of a long step sharded to the members of a team: of what every
 * member would do alike (norms, packing, routing), each does its own tokens' part. */
#ifndef LOCKSTEP_MODEL_SEQUENCE_SHARD_H
#define LOCKSTEP_MODEL_SEQUENCE_SHARD_H

#include "model/plan.h"

/* Tokens of the smallest step that is sharded: telling each other costs a wire's latency once
 * more. */
#define SHARD_LEAST 64

/* Member i of the stage has tokens first[i]..first[i + 1): whole groups (ACT_GROUP), as large a
 * part as its part of the FFN or the experts is. first [tp + 1] */
void shard_tokens(const struct plan *plan, int stage, uint32_t n_tokens, uint32_t *first);

#endif
