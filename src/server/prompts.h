/* prompts.h: prompts of OpenAI's older endpoints: a text, texts, tokens, or lists of tokens. */
#ifndef LOCKSTEP_SERVER_PROMPTS_H
#define LOCKSTEP_SERVER_PROMPTS_H

#include "server/params.h"
#include "server/service.h"

struct prompts {
    size_t n;
    struct one_prompt {
        const char *text; /* borrowed from the body; NULL: ids */
        size_t len;
        int32_t *ids; /* owned */
        size_t n_ids;
    } * list; /* [n] */
};

/* Texts for vectors in one request, as many as OpenAI takes. */
#define EMBED_INPUTS_MAX 2048

void param_prompts(struct params *p, const char *field, size_t max, struct prompts *out);
void prompts_deinit(struct prompts *prompts);

/* One copy of r for each; mem_free it. NULL without memory. */
struct service_request *prompts_requests(const struct prompts *prompts,
                                         const struct service_request *r);

#endif
