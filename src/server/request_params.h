/* request_params.h: the fields that several dialects share. */
#ifndef LOCKSTEP_SERVER_REQUEST_PARAMS_H
#define LOCKSTEP_SERVER_REQUEST_PARAMS_H

#include "server/params.h"
#include "server/service.h"

#define STOPS_PER_REQUEST 16

/* What a request needs to stay alive until it is submitted. */
struct request_memory {
    struct engine_bias *biases;
    const char *stops[STOPS_PER_REQUEST];
    const char *breakers[STOPS_PER_REQUEST];
    int32_t stop_ids[STOPS_PER_REQUEST];
    int32_t *ids; /* a prompt */
};
void request_memory_deinit(struct request_memory *m);

/* temperature, top_p, top_k, min_p, typical_p, repeat_penalty (also as repetition_penalty),
 * presence_penalty, frequency_penalty, logit_bias, seed (a random one if absent), ignore_eos,
 * stop_token_ids, min_tokens, top_n_sigma, xtc_*, dry_*. What others have beside these, and nothing
 * here does, is a defect if it asks for anything. r->n_choices is known before. */
void param_sampling(struct params *p, struct service_request *r, struct request_memory *m);
/* How many tokens, under the dialect's name: -1 is without a limit, as others read it. */
void param_limit(struct params *p, const char *field, bool may_be_none,
                 struct service_request *r);
/* stop, under the dialect's name. */
void param_stops(struct params *p, const char *field, struct service_request *r,
                 struct request_memory *m);
/* OpenAI's tools, tool_choice, parallel_tool_calls; the latter two for tools that r has
 * already. */
void param_tools(struct params *p, struct service_request *r);
void param_tool_choice(struct params *p, struct service_request *r);
/* A call that must be is one of r's tools, and so is the function that it names. */
void tool_choice_check(struct params *p, const struct service_request *r);
/* model: ours, or a defect of ST_NOT_FOUND. */
void param_model(struct params *p, const struct service *s);
/* How an embedding is made: dimensions, at most the model's, and pooling, "mean" or "last"; without
 * it, as the model's file says, else "mean". */
void param_embedding(struct params *p, const struct service *s, struct service_request *r);
/* tools and the names in them; tools may be NULL. */
bool tools_check(struct params *p, const json_t *tools);

/* How much to think, as variables of the template. Some templates (DeepSeek-V3.1) have no
 * reasoning_effort, but a switch. An effort turns it on, unless extra has it already. */
void extra_effort(json_t *extra, const char *effort);

/* Whether the last message is the beginning of an answer: the model's, with a text and no
 * calls. */
bool ends_with_answer(const json_t *messages);

#endif
