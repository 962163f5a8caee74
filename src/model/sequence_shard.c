/* sequence_shard.c: Divides the tokens of a long step among the members of a team. */
#include "model/sequence_shard.h"

#include "base/util.h"
#include "kernels/kernels.h"

static uint64_t part_of(const struct share *sh) {
    uint64_t experts = sh->expert_end - sh->expert_begin,
             columns = sh->expert_ff_end - sh->expert_ff_begin;
    return experts * columns != 0 ? experts * columns : sh->ff[0].end - sh->ff[0].begin;
}

void shard_tokens(const struct plan *plan, int stage, uint32_t n_tokens, uint32_t *first) {
    const struct share *members = plan->shares + (ptrdiff_t)stage * plan->tp;
    uint64_t total = 0, before = 0;
    for (int i = 0; i < plan->tp; i++)
        total += part_of(&members[i]);
    for (int i = 0; i < plan->tp; i++) {
        uint64_t groups = act_n_groups(n_tokens) * before / MAX(total, (uint64_t)1);
        first[i] = (uint32_t)MIN(groups * ACT_GROUP, (uint64_t)n_tokens);
        before += part_of(&members[i]);
    }
    first[plan->tp] = n_tokens;
}
