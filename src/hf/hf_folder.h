/* hf_folder.h: a Hugging Face or MLX folder as a model: config.json, tokenizer.json and
 * safetensors.
 *
 * The folder is presented as a GGUF. Its keys are made from the JSON files (hf_config.c,
 * hf_tokenizer.c), and its tensors get GGUF names (hf_tensors.c). Code behind gguf.h does not
 * know the difference. Weights stay in the maps of the shards. If a GGUF would hold rows in
 * another order or code, they are converted as they are read (rows.h). docs/folders.md says
 * what is converted and what is refused. */
#ifndef LOCKSTEP_HF_HF_FOLDER_H
#define LOCKSTEP_HF_HF_FOLDER_H

#include "format/gguf.h"

/* Of a folder. */
enum status hf_open(struct gguf **out, const char *path, struct err *err);

/* hf_open() of a folder, gguf_open() of anything else. */
enum status hf_open_any(struct gguf **out, const char *path, const struct gguf_options *opts,
                        struct err *err);

#endif
