/* ollama_pull.h: one download from a hub, told as Ollama tells it: lines of JSON with digest,
 * total and completed of each file. */
#ifndef LOCKSTEP_API_OLLAMA_PULL_H
#define LOCKSTEP_API_OLLAMA_PULL_H

#include "api/ollama_store.h"
#include "hub/name.h"

/* Answers the client's request. next: a last line before the success: what to do with it. */
void ollama_pull_from_hub(const struct ollama_client *c, const struct hub_name *name,
                          bool stream, const char *next);

#endif
