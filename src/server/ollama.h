/* ollama.h: what the files of Ollama's dialect share. */
#ifndef LOCKSTEP_SERVER_OLLAMA_H
#define LOCKSTEP_SERVER_OLLAMA_H

#include "server/dialects.h"

extern const struct dialect ollama_dialect;

json_t *ollama_time(int64_t unix_s); /* "2024-11-20T09:08:07Z" */

void ollama_chat(struct service *s, struct http_request *http);
void ollama_generate(struct service *s, struct http_request *http);
void ollama_embed(struct service *s, struct http_request *http);

#endif
