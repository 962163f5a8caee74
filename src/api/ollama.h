/* ollama.h: shared by the files of Ollama's dialect. */
#ifndef LOCKSTEP_API_OLLAMA_H
#define LOCKSTEP_API_OLLAMA_H

#include "api/dialects.h"
#include "server/params.h"

extern const struct dialect ollama_dialect;

/* The model by its name, which older clients call `name`. */
void ollama_param_model(struct params *p, struct service *s);

void ollama_chat(struct service *s, struct http_request *http);
void ollama_generate(struct service *s, struct http_request *http);
void ollama_embed(struct service *s, struct http_request *http);
void ollama_embeddings(struct service *s, struct http_request *http);

#endif
