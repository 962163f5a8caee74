/* stores.h: models that other programs keep on this machine, found and used where they lie:
 *
 *   hf:ORG/REPO:QUANT        the cache of Hugging Face's hub (cache.h)
 *   lmstudio:ORG/REPO:QUANT  ~/.lmstudio/models or ~/.cache/lm-studio/models
 *   ollama:NAME:TAG          $OLLAMA_MODELS or ~/.ollama/models */
#ifndef LOCKSTEP_HUB_STORES_H
#define LOCKSTEP_HUB_STORES_H

#include "hub/files.h"

#include <limits.h>

/* All that have come whole: [{"name", "path", "bytes", "files", "quant", "store", "used": as file_used_s()}]. quant may be
 * "". A new reference; NULL: no memory. */
json_t *stores_list(void);

/* Does the word begin as a name of one of these does? */
bool stores_is_name(const char *word);
/* What to open. ST_NOT_FOUND, ST_BAD_INPUT: the sentence says what is there. */
enum status stores_find(const char *name, char out[PATH_MAX], struct err *err);

#endif
