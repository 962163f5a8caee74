/* sequence_shard.h: shards the tokens of a long step over the members of a team. Work that is
 * the same on every member (norms, packing, routing) is divided: each member does it for its
 * own tokens. */
#ifndef LOCKSTEP_MODEL_SEQUENCE_SHARD_H
#define LOCKSTEP_MODEL_SEQUENCE_SHARD_H

#include "weights/plan.h"

/* Tokens of the smallest step that is sharded: telling each other costs a wire's latency once
 * more. */
#define SHARD_LEAST 64

/* Member i of the stage has tokens first[i]..first[i + 1): whole groups (ACT_GROUP), in
 * proportion to its share of the FFN or the experts. first [tp + 1] */
void shard_tokens(const struct plan *plan, int stage, uint32_t n_tokens, uint32_t *first);

#endif
