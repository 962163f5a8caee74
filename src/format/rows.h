/* rows.h: reads the rows of a tensor, however they are stored.
 *
 * A GGUF's rows lie one after the other. A tensor of a Hugging Face folder may have its values
 * elsewhere (an expert per tensor, gate and up interleaved, query rows in another order) or in
 * another code. Its rows are located, and converted if necessary, one at a time as the loader
 * asks for them. Nothing is copied as a whole, and only the bytes of the requested columns are
 * read. */
#ifndef LOCKSTEP_FORMAT_ROWS_H
#define LOCKSTEP_FORMAT_ROWS_H

#include "format/gguf.h"
#include "format/source.h"

enum rows_form {
    ROWS_PLAIN,    /* f32, f16, bf16 */
    ROWS_PLUS_ONE, /* the same, as f32, plus 1 */
    ROWS_NEG_EXP,  /* the same, x becomes -exp(x) as f32 */
    ROWS_I64,      /* -> QT_I32; what 32 bits do not hold becomes -1 */
    ROWS_FP8,      /* e4m3 bytes, a scale for scale_rows x scale_cols of them -> QT_F8_E4M3 */
    ROWS_MXFP4,    /* gpt-oss, MLX: 16 bytes of neighbouring pairs, a u8 exponent -> QT_MXFP4 */
    ROWS_NVFP4,    /* the same pairs, an e4m3 scale for 16 -> QT_NVFP4 */
    ROWS_MLX4,     /* MLX: codes in words, 16-bit scales and biases -> QT_Q4_1, QT_MLX4 */
    ROWS_MLX8,     /* -> QT_MLX8, QT_MLX8_F16 */
    ROWS_INT4, /* compressed-tensors: MLX4's codes, (code - 8) * scale -> QT_Q4_0, QT_MLX4 */
};

/* Of one matrix. Borrowed from the maps, or from the folder's own memory. */
struct rows_part {
    const uint8_t *values, *scales, *biases;
};

/* Blocks of `block` rows that are stored group by group, n_per_group each, and are wanted the
 * first of every group, then the second of every group, and so on. */
struct row_tiling {
    uint64_t first; /* rows before this one stay where they are */
    uint32_t block; /* 0: as stored */
    uint32_t n_groups, n_per_group;
    bool columns; /* it is columns (of a matrix) that move, and not rows */
};

struct tensor_rows {
    enum rows_form form;
    enum qtype from;          /* ROWS_PLAIN, _PLUS_ONE, _NEG_EXP: how values are stored */
    struct rows_part *parts;  /* [matrices of the tensor] */
    uint64_t rows_per_part;   /* of the tensor */
    uint64_t row_bytes;       /* from one row of values to the next */
    uint64_t col_bytes;       /* ROWS_PLAIN: from one value of a row to the next */
    enum qtype scale_type;    /* ROWS_FP8: f32, f16 or bf16; ROWS_INT4: f16 or bf16 */
    bool scale_exponents;     /* ROWS_FP8: not that, but bytes e: 2^(e - 127), 255 is NaN */
    uint64_t scale_row_bytes; /* from one row of scales (and biases) to the next */
    uint32_t scale_rows;      /* rows that share a row of scales */
    uint32_t scale_cols;      /* values of a row that share a scale */
    /* Heads of this many rows (of a vector: values) whose halves become neighbours: row 2i + j
     * is the stored row i + j * halves / 2. 0: as stored. */
    uint32_t halves;
    struct row_tiling tiling;
};

/* False for a file that has only a header. */
bool tensor_has_data(const struct gguf_tensor *t);

/* Row `row` (rows count through all matrices), as blocks of t->type: a pointer to its column 0.
 * Only the blocks of columns [col_begin, col_begin + n_cols) are valid. buf holds a whole row
 * (qtype_row_bytes); it is used if the row must be converted. */
const uint8_t *tensor_row(const struct gguf_tensor *t, uint64_t row, uint64_t col_begin,
                          uint64_t n_cols, uint8_t *buf);

/* The same as f32, without a buffer: out [n_cols]. The type must have a dequantizer. */
void tensor_row_f32(const struct gguf_tensor *t, uint64_t row, uint64_t col_begin,
                    uint64_t n_cols, float *out);

/* Rows [begin, begin + n) of a GGUF's tensor without data from elsewhere, to buf [n *
 * qtype_row_bytes]. Of each row only columns [col_begin, col_begin + n_cols) come (whole
 * blocks), to their places. */
enum status tensor_fetch_rows(const struct gguf_tensor *t, const struct file_source *from,
                              uint64_t begin, uint64_t n, uint64_t col_begin, uint64_t n_cols,
                              uint8_t *buf, struct err *err);

/* gguf_forget() of rows [begin, begin + n) and what they were made from. */
void tensor_forget_rows(const struct gguf *g, const struct gguf_tensor *t, uint64_t begin,
                        uint64_t n);

#endif
