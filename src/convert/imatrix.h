/* imatrix.h: an importance matrix: how much each input column of a weight matrix matters.
 *
 * llama.cpp's llama-imatrix makes it from a calibration text. Both of its formats are read:
 * GGUF (NAME.in_sum2 [cols, matrices] and NAME.counts) and the older .dat. An importance is the
 * mean square of the activation that a column is multiplied with. So the weighted error of a
 * row's quantization is about the square of its product's error. An importance is at least 1e-4
 * of its matrix's mean, or (.dat) of the tensor's. */
#ifndef LOCKSTEP_CONVERT_IMATRIX_H
#define LOCKSTEP_CONVERT_IMATRIX_H

#include "format/gguf.h"

struct imatrix;

/* Every importance is finite and not negative; names are not checked against a model. */
enum status imatrix_open(struct imatrix **out, const char *path, struct err *err);
void imatrix_close(struct imatrix *m); /* NULL is fine */
size_t imatrix_n(const struct imatrix *m);

/* The importances of tensor t: [matrices of t, columns]; *out is NULL if it has none.
 * ST_BAD_INPUT: they are of a tensor of another shape. Borrowed. */
enum status imatrix_find(const struct imatrix *m, const struct gguf_tensor *t,
                         const float **out, struct err *err);

#endif
