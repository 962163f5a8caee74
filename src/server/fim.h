/* fim.h: prompts for filling in the middle, with the model's own tokens for it. */
#ifndef LOCKSTEP_SERVER_FIM_H
#define LOCKSTEP_SERVER_FIM_H

#include "server/service.h"

/* The prompt whose answer stands between prefix and suffix, as tokens; *ids is the caller's
 * (mem_free). ST_UNSUPPORTED: the model has no such tokens. */
enum status fim_prompt(struct service *s, const char *prefix, const char *suffix, int32_t **ids,
                       size_t *n_ids, struct err *err);

#endif
