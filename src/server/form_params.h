/* form_params.h: the fields that say which form an answer is to have. */
#ifndef LOCKSTEP_SERVER_FORM_PARAMS_H
#define LOCKSTEP_SERVER_FORM_PARAMS_H

#include "server/params.h"
#include "server/service.h"

/* The dialect's own format (of OpenAI's shape: an object with type, and schema or
 * json_schema.schema), which `field` names; NULL: it has none, or r has its form already. Beside
 * it, in any dialect, llama.cpp's grammar and json_schema, vLLM's guided_json, guided_regex,
 * guided_choice, guided_grammar and structured_outputs. Two forms are a defect. What r borrows is
 * kept alive by the body. */
void param_form(struct params *p, const char *field, const json_t *format,
                struct service_request *r);

#endif
