/* openai.h: what OpenAI's endpoints share. */
#ifndef LOCKSTEP_SERVER_OPENAI_H
#define LOCKSTEP_SERVER_OPENAI_H

#include "server/dialects.h"
#include "server/request_params.h"

extern const struct dialect openai_chat_dialect, openai_completion_dialect,
    openai_embedding_dialect;

json_t *openai_usage(const struct reply *r);
const char *openai_finish(enum service_finish f);
void openai_stream_error(struct reply *r, enum status st, const char *sentence);

void openai_chat(struct service *s, struct http_request *r);
void openai_completions(struct service *s, struct http_request *r);
void openai_embeddings(struct service *s, struct http_request *r);

/* Refuses a request with the defect found. */
void openai_refuse(struct http_request *http, const struct params *p);

/* stream and stream_options.include_usage. */
void openai_param_stream(struct params *p, bool *stream, bool *include_usage);

#endif
