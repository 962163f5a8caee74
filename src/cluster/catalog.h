/* catalog.h: lists the models in a folder by the names that people use. */
#ifndef LOCKSTEP_CLUSTER_CATALOG_H
#define LOCKSTEP_CLUSTER_CATALOG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* The GGUF files and Hugging Face folders in `folder` and up to CATALOG_DEPTH folders below,
 * sorted by name: [{"name": model_name_of(), "path", "bytes", "files": how many, "used": file_used_s()}]. A split GGUF
 * is listed once, and only if it has all its parts. Hidden files, links to folders and paths
 * that are not UTF-8 are skipped. A folder that cannot be read is empty. A new reference; NULL:
 * no memory. */
#define CATALOG_DEPTH 3
json_t *catalog_read(const char *folder);

/* The same, and behind them what other programs keep on this machine (hub/stores.h), by those
 * names: what can be put up here. */
json_t *catalog_read_all(const char *folder);

/* Which of two models of one name is meant (< 0: a). It is the one in fewer folders: a copy of
 * another machine's model lies deeper if its name was taken (store.h). Otherwise the first by
 * path. */
int catalog_compare_paths(const char *a, const char *b);

/* By "name", and then by "path" where there is one, as catalog_compare_paths() says: a new
 * array of the same. */
json_t *catalog_sorted(const json_t *models);

/* The path of the first model of that name (with or without ".gguf"), borrowed; NULL: none. */
const char *catalog_find(const json_t *catalog, const char *name);

#endif
