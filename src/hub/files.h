/* files.h: the files of a repository, and which of them are the model that is asked for. */
#ifndef LOCKSTEP_HUB_FILES_H
#define LOCKSTEP_HUB_FILES_H

#include "hub/name.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HUB_HASH_BYTES 65 /* hexadecimal digits of a SHA-256, with their end */

struct hub_file {
    char *name;
    uint64_t bytes;
    char hash[HUB_HASH_BYTES]; /* SHA-256, or git's SHA-1 of a small file; "": not known */
    bool chosen;
};

struct hub_files {
    char commit[HUB_HASH_BYTES];
    struct hub_file *list;
    size_t n, cap;
};

/* From a hub's reply to api/models/ORG/REPO/revision/REV?blobs=true. ST_BAD_INPUT: another form,
 * or a name that would leave its folder. */
enum status hub_files_read(struct hub_files *out, const json_t *reply, struct err *err);
/* False: no memory. hash may be NULL. */
bool hub_files_add(struct hub_files *f, const char *name, uint64_t bytes, const char *hash);
void hub_files_deinit(struct hub_files *f);

/* Marks the files of the model that name means. *first: the one to open, or -1: all are a
 * folder of safetensors. A GGUF is chosen by what name->want says: its name, a word of it, or a
 * piece of it, in any case of letters. Without that it is Q4_K_M, or the only one. All parts of a
 * split one are chosen. ST_NOT_FOUND, ST_BAD_INPUT (several match): the sentence lists them. */
enum status hub_files_choose(struct hub_files *f, const struct hub_name *name, long *first,
                             struct err *err);

/* One line for each model that could be chosen: calls fn with the word to choose it by, its size
 * and its files' number; with NULL for a folder of safetensors. */
void hub_files_each(const struct hub_files *f,
                    void (*fn)(void *user, const char *word, uint64_t bytes, size_t n_files),
                    void *user);

/* The quantization that a GGUF's name tells ("Q4_K_M", "UD-Q2_K_XL", "BF16"), as written there;
 * "": none. */
void hub_quant_of(const char *file, char *out, size_t size);

/* Is it so many hexadecimal digits, in lower case? */
bool hub_is_hash(const char *text, size_t n);

#endif
