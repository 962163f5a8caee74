/* catalog.h: which models lie in a folder, by the names that people call them. */
#ifndef LOCKSTEP_CLUSTER_CATALOG_H
#define LOCKSTEP_CLUSTER_CATALOG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* The GGUF files (a split one once, and only with all its parts) and Hugging Face folders in
 * `folder` and CATALOG_DEPTH folders below: [{"name": model_name_of(), "path", "bytes",
 * "files": how many}], sorted by name; nothing hidden, no links to folders, no path that is no
 * UTF-8. A folder that cannot be read is empty. A new reference; NULL: no memory. */
#define CATALOG_DEPTH 3
json_t *catalog_read(const char *folder);

/* Of two models of one name, which is meant (< 0: a): the one that lies less deep, as a copy of
 * another machine's does where its name was taken (store.h); else the first by its path. */
int catalog_compare_paths(const char *a, const char *b);

/* By "name", and then by "path" where there is one, as catalog_compare_paths() says: a new
 * array of the same. */
json_t *catalog_sorted(const json_t *models);

/* The path of the first of that name (with or without ".gguf"), borrowed; NULL: there is none. */
const char *catalog_find(const json_t *catalog, const char *name);

#endif
