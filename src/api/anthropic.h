/* anthropic.h: reads requests of Anthropic's API. */
#ifndef LOCKSTEP_API_ANTHROPIC_H
#define LOCKSTEP_API_ANTHROPIC_H

#include "api/dialects.h"
#include "server/request_params.h"

/* system and messages, and tools, in OpenAI's shape: new references. */
json_t *anthropic_messages_of(struct params *p);
json_t *anthropic_tools_of(struct params *p);

/* The model, and the list of it, as this API has them. */
json_t *anthropic_model(const struct service *s);
json_t *anthropic_models(const struct service *s);

extern const struct dialect anthropic_dialect;

#endif
