/* model_files.h: which files a model consists of. With this list another machine knows whether
 * it has the same model, and copies what it lacks.
 *
 * A file is identified by its name, its size and a digest of samples (its first and last MiB
 * and 64 samples of 64 KiB between). Reading 700 GB to compare them would take longer than
 * starting the model. A change of single weights in place under the same name is not noticed. */
#ifndef LOCKSTEP_CLUSTER_MODEL_FILES_H
#define LOCKSTEP_CLUSTER_MODEL_FILES_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_DIGEST_BYTES 16
#define MODEL_FILES_MAX 4096

struct model_file {
    char *name; /* without a folder */
    uint64_t bytes;
    /* of a GGUF: bytes before the data of its tensors; 0: not known, or no GGUF */
    uint64_t head;
    uint8_t digest[MODEL_DIGEST_BYTES];
};

struct model_files {
    char *name; /* what is opened: the first file's name, or the folder's */
    bool folder;
    struct model_file *list;
    size_t n;
    uint64_t bytes; /* of all */
};

/* A model's default name: "models/llama-3b.gguf": "llama-3b"; "kimi-00001-of-00013.gguf":
 * "kimi"; "models/Qwen3-8B/", a folder: "Qwen3-8B", also as a snapshot of Hugging Face's cache,
 * "models--Qwen--Qwen3-8B/snapshots/COMMIT". Free with mem_free(); NULL: no memory. */
char *model_name_of(const char *path);

/* The files of the model at `path`: one GGUF, all parts of a split one, or what lies in a
 * folder. ST_NOT_FOUND, ST_IO, ST_BAD_INPUT (too many; a name that model_files_from_json()
 * would refuse), ST_NO_MEMORY. */
enum status model_files_read(struct model_files *out, const char *path, struct err *err);
void model_files_deinit(struct model_files *m);

/* Fills in the heads of a GGUF's parts, so that a rank elsewhere may do with these and its
 * slices. Nothing to do for a folder. What is wrong about the file: as hf_open_any(). */
enum status model_files_find_heads(struct model_files *m, const char *path, struct err *err);
bool model_files_have_heads(const struct model_files *m);

/* A new reference; NULL: no memory. */
json_t *model_files_json(const struct model_files *m);
/* From another machine. ST_BAD_INPUT: another form, or a name that is not a plain file name. */
enum status model_files_from_json(struct model_files *out, const json_t *json, struct err *err);

/* The path of file i if the model is opened as `path`: inside the folder, or beside the file.
 * False: too long. */
bool model_files_place(const struct model_files *m, size_t i, const char *path, char *out,
                       size_t size);
/* Is the model at `path` this one, by the names of its files, their sizes and digests? */
bool model_files_are_at(const struct model_files *m, const char *path);
/* The same for one file. */
bool model_file_is_at(const struct model_file *f, const char *path);

/* A digest of all of it, to name things after. */
void model_files_digest(const struct model_files *m, uint8_t out[MODEL_DIGEST_BYTES]);

#endif
