/* removal.h: removes a model from this machine, by the name that lockstep models shows: of the
 * hub's cache ("hf:..."), or of a folder of models. What LM Studio and Ollama keep is theirs. */
#ifndef LOCKSTEP_CLUSTER_REMOVAL_H
#define LOCKSTEP_CLUSTER_REMOVAL_H

#include "base/status.h"

#include <stdint.h>

/* folder: of models; NULL: the default one. *bytes: freed. ST_NOT_FOUND: nothing is called so;
 * ST_UNSUPPORTED: it is another program's; ST_BAD_INPUT: several match; ST_IO. */
enum status model_remove(const char *folder, const char *name, uint64_t *bytes,
                         struct err *err);

#endif
