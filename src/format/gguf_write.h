/* gguf_write.h: writes GGUF v3: metadata first, then tensor descriptions, then data in that
 * order. Data is written as it comes, so the model may be larger than memory. quantize, synth
 * and tests use it. Not thread-safe. */
#ifndef LOCKSTEP_FORMAT_GGUF_WRITE_H
#define LOCKSTEP_FORMAT_GGUF_WRITE_H

#include "format/gguf.h"

struct gguf_writer;

/* The file is there, and complete, after gguf_writer_finish() (base/file.h). */
enum status gguf_writer_open(struct gguf_writer **out, const char *path, struct err *err);
/* No file: the header alone, for gguf_writer_header(). */
enum status gguf_writer_open_header(struct gguf_writer **out, const char *name,
                                    struct err *err);
/* Closes; without a successful finish the temporary file is removed. NULL is fine. */
void gguf_writer_close(struct gguf_writer *w);

/* Metadata, before the first tensor. Keys and strings are copied. A key written twice: the last
 * value counts. Failures (memory) are remembered and come out of gguf_writer_begin_data(). */
void gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_write_u64(struct gguf_writer *w, const char *key, uint64_t v);
void gguf_write_f32(struct gguf_writer *w, const char *key, float v);
void gguf_write_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_write_str(struct gguf_writer *w, const char *key, const char *v);
void gguf_write_text(struct gguf_writer *w, const char *key, struct gguf_str v);
void gguf_write_str_array(struct gguf_writer *w, const char *key, const struct gguf_str *v,
                          size_t n);
void gguf_write_f32_array(struct gguf_writer *w, const char *key, const float *v, size_t n);
void gguf_write_i32_array(struct gguf_writer *w, const char *key, const int32_t *v, size_t n);
/* All keys of g as they are, but for those of its layout (split.*, general.alignment). */
void gguf_write_keys_of(struct gguf_writer *w, const struct gguf *g);

void gguf_write_tensor_info(struct gguf_writer *w, const char *name, enum qtype type,
                            uint32_t n_dims, const uint64_t *dims);
/* The header of all that was written so far; *bytes is the caller's (mem_free). */
enum status gguf_writer_header(struct gguf_writer *w, uint8_t **bytes, size_t *len,
                               struct err *err);
/* Ends the header. header_only: nothing may follow but finish. */
enum status gguf_writer_begin_data(struct gguf_writer *w, bool header_only, struct err *err);
/* The data of the tensors in the order of their infos, in pieces of any size. */
enum status gguf_write_data(struct gguf_writer *w, const void *data, size_t len,
                            struct err *err);
/* Checks that all data has come, syncs, renames. */
enum status gguf_writer_finish(struct gguf_writer *w, struct err *err);

/* The number for general.file_type ("mostly ..."), as other programs show it. */
uint32_t gguf_file_type(enum qtype type);

#endif
