/* cache.h: the folder that programs for Hugging Face's hub share, in huggingface_hub's layout:
 *
 *   models--ORG--REPO/blobs/HASH                  a file, named after its content
 *   models--ORG--REPO/snapshots/COMMIT/NAME       a link to it, under its own name
 *   models--ORG--REPO/refs/main                   the commit that was current
 *
 * So a model that one program has downloaded is there for the others. */
#ifndef LOCKSTEP_HUB_CACHE_H
#define LOCKSTEP_HUB_CACHE_H

#include "hub/files.h"

#include <limits.h>

/* The end of a blob's name while it comes. */
#define HUB_INCOMPLETE ".incomplete"

/* $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub.
 * ST_NOT_FOUND: there is no home directory. */
enum status hub_cache_root(char out[PATH_MAX], struct err *err);
/* The token that the variable HF_TOKEN or the file token in HF_HOME has; false: none. */
bool hub_token(char *out, size_t size);

/* The folder of a repository; it need not be there. ST_BAD_INPUT: too long a path. */
enum status hub_cache_folder(const char *repo, char out[PATH_MAX], struct err *err);

/* The path of a model that has come whole: of its first file, or of the folder of safetensors.
 * The current commit comes first, then others, the newest first. ST_NOT_FOUND: there is none;
 * ST_BAD_INPUT: several match. */
enum status hub_cache_find(const struct hub_name *name, char out[PATH_MAX], struct err *err);

/* The folder of snapshot number i, in that order; false: there are no more. */
bool hub_cache_snapshot(const char *folder, size_t i, char out[PATH_MAX]);
/* What a folder and those below it have, as a list of a repository's files; a hash is there
 * where a file is a link to a blob. ST_NO_MEMORY. */
enum status hub_files_in(const char *folder, struct hub_files *out, struct err *err);

/* Makes the folders above FOLDER/rest. No part of rest may be a link, which would lead
 * elsewhere. ST_IO. */
enum status hub_cache_make(const char *folder, const char *rest, struct err *err);
/* Links a blob into a snapshot under its name. ST_IO. */
enum status hub_cache_link(const char *folder, const char *commit, const struct hub_file *file,
                           struct err *err);
/* Says which commit is the current one. ST_IO. */
enum status hub_cache_set_main(const char *folder, const char *commit, struct err *err);

#endif
