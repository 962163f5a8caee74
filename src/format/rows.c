/* rows.c: Reads rows of a tensor, and converts those that the file stores in another order or
 * code. */
#include "format/rows.h"

#include "base/exact.h"
#include "base/util.h"

#include <math.h>

bool tensor_has_data(const struct gguf_tensor *t) {
    return t->data != NULL || t->rows != NULL;
}

static uint64_t stored_in_tiling(const struct row_tiling *t, uint64_t i) {
    if (i < t->first)
        return i;
    uint64_t block = (i - t->first) / t->block, in = (i - t->first) % t->block;
    uint64_t stored = block % t->n_groups * t->n_per_group + block / t->n_groups;
    return t->first + stored * t->block + in;
}

/* Of a row, or of a value of a vector. */
static uint64_t stored_index(const struct tensor_rows *s, uint64_t i) {
    if (s->tiling.block != 0 && !s->tiling.columns)
        return stored_in_tiling(&s->tiling, i);
    if (s->halves == 0)
        return i;
    uint64_t in = i % s->halves;
    return i - in + in % 2 * (s->halves / 2) + in / 2;
}

static uint16_t get_u16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static float get_float(enum qtype type, const uint8_t *p) {
    float v;
    qtype_info(type)->dequantize(p, &v, 1);
    return v;
}

/* ---- the forms: columns [begin, end) of a row to out ---------------------- */

struct row_at {
    const uint8_t *values, *scales, *biases;
};

static void gather(const struct tensor_rows *s, bool vector, const uint8_t *values,
                   uint64_t begin, uint64_t end, uint8_t *out) {
    size_t size = qtype_info(s->from)->block_bytes;
    for (uint64_t c = begin; c < end; c++) {
        uint64_t from = vector ? stored_index(s, c) : c;
        memcpy(out, values + from * s->col_bytes, size);
        out += size;
    }
}

static void change(const struct tensor_rows *s, const uint8_t *values, uint64_t begin,
                   uint64_t end, uint8_t *out) {
    size_t size = qtype_info(s->from)->block_bytes;
    for (uint64_t c = begin; c < end; c++) {
        float v = get_float(s->from, values + stored_index(s, c) * size);
        v = s->form == ROWS_PLUS_ONE ? v + 1.0f : (float)-exact_exp64(v);
        memcpy(out, &v, sizeof v);
        out += sizeof v;
    }
}

/* e8m0 */
static float power_of_two(uint8_t e) {
    const uint32_t bits = e == 0 ? 0x00400000u : e == 255 ? 0x7fc00000u : (uint32_t)e << 23;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static void fp8_blocks(const struct tensor_rows *s, const struct row_at *at, uint64_t begin,
                       uint64_t end, uint8_t *out) {
    size_t size = s->scale_exponents ? 1 : qtype_info(s->scale_type)->block_bytes;
    for (uint64_t b = begin / QK; b < end / QK; b++) {
        struct block_f8_e4m3 block;
        const uint8_t *scale = at->scales + b * QK / s->scale_cols * size;
        block.d = s->scale_exponents ? power_of_two(*scale) : get_float(s->scale_type, scale);
        memcpy(block.qs, at->values + b * QK, QK);
        for (int i = 0; i < QK; i++)
            if ((block.qs[i] & 0x7f) == 0x7f) /* NaN: the kernels look at the scale only */
                block.d = NAN;
        memcpy(out, &block, sizeof block);
        out += sizeof block;
    }
}

static void narrow(const uint8_t *values, uint64_t begin, uint64_t end, uint8_t *out) {
    for (uint64_t c = begin; c < end; c++) {
        int64_t wide;
        memcpy(&wide, values + c * sizeof wide, sizeof wide);
        int32_t v = wide < 0 || wide > INT32_MAX ? -1 : (int32_t)wide;
        memcpy(out, &v, sizeof v);
        out += sizeof v;
    }
}

/* n bytes of neighbouring pairs to GGUF's halves: low nibbles values 0 to n - 1, high the rest. */
static void unpair_n(const uint8_t *pairs, int n, uint8_t *halves) {
    for (int i = 0; i < n; i++) {
        int low = pairs[i / 2] >> i % 2 * 4 & 15, high = pairs[(n + i) / 2] >> i % 2 * 4 & 15;
        halves[i] = (uint8_t)(low | high << 4);
    }
}

static void unpair(const uint8_t *pairs, uint8_t *halves) {
    unpair_n(pairs, QK / 2, halves);
}

static void mxfp4_blocks(const struct row_at *at, uint64_t begin, uint64_t end, uint8_t *out) {
    for (uint64_t b = begin / QK; b < end / QK; b++) {
        struct block_mxfp4 block = {.e = at->scales[b]};
        unpair(at->values + b * (QK / 2), block.qs);
        memcpy(out, &block, sizeof block);
        out += sizeof block;
    }
}

static void nvfp4_blocks(const struct row_at *at, uint64_t begin, uint64_t end, uint8_t *out) {
    for (uint64_t b = begin / QK_NVFP4; b < end / QK_NVFP4; b++) {
        struct block_nvfp4 block;
        memcpy(block.d, at->scales + b * sizeof block.d, sizeof block.d);
        for (size_t i = 0; i < sizeof block.d; i++)
            unpair_n(at->values + b * (QK_NVFP4 / 2) + 8 * i, 8, block.qs + 8 * i);
        memcpy(out, &block, sizeof block);
        out += sizeof block;
    }
}

/* Codes lie in little-endian words, the first one lowest: bytes of neighbouring pairs. */
static void mlx4_blocks(const struct tensor_rows *s, const struct row_at *at, uint64_t begin,
                        uint64_t end, uint8_t *out) {
    for (uint64_t b = begin / QK; b < end / QK; b++) {
        uint64_t group = b * QK / s->scale_cols;
        struct block_q4_1 block = {.d = get_u16(at->scales + 2 * group),
                                   .m = get_u16(at->biases + 2 * group)};
        unpair(at->values + b * (QK / 2), block.qs);
        memcpy(out, &block, sizeof block);
        out += sizeof block;
    }
}

static void int4_blocks(const struct tensor_rows *s, const struct row_at *at, uint64_t begin,
                        uint64_t end, uint8_t *out) {
    for (uint64_t b = begin / QK; b < end / QK; b++) {
        const uint8_t *scale = at->scales + 2 * (b * QK / s->scale_cols);
        if (s->scale_type == QT_F16) {
            struct block_q4_0 block = {.d = get_u16(scale)};
            unpair(at->values + b * (QK / 2), block.qs);
            memcpy(out, &block, sizeof block);
            out += sizeof block;
        } else { /* bf16 has exponents that f16 lacks; -8 * scale is exact in bf16 */
            float m = -8.0f * get_float(QT_BF16, scale);
            uint32_t bits;
            memcpy(&bits, &m, sizeof bits);
            struct block_q4_1 block = {.d = get_u16(scale), .m = (uint16_t)(bits >> 16)};
            unpair(at->values + b * (QK / 2), block.qs);
            memcpy(out, &block, sizeof block);
            out += sizeof block;
        }
    }
}

static void mlx8_blocks(const struct tensor_rows *s, const struct row_at *at, uint64_t begin,
                        uint64_t end, uint8_t *out) {
    for (uint64_t b = begin / QK; b < end / QK; b++) {
        uint64_t group = b * QK / s->scale_cols;
        struct block_mlx8 block = {.d = get_u16(at->scales + 2 * group),
                                   .m = get_u16(at->biases + 2 * group)};
        memcpy(block.qs, at->values + b * QK, QK);
        memcpy(out, &block, sizeof block);
        out += sizeof block;
    }
}

/* ---- a row ---------------------------------------------------------------------------------- */

static struct row_at find_row(const struct gguf_tensor *t, uint64_t row) {
    const struct tensor_rows *s = t->rows;
    const struct rows_part *part = &s->parts[row / s->rows_per_part];
    uint64_t in = row % s->rows_per_part;
    if (t->n_dims > 1)
        in = stored_index(s, in);
    struct row_at at = {.values = part->values + in * s->row_bytes};
    if (part->scales != NULL)
        at.scales = part->scales + in / s->scale_rows * s->scale_row_bytes;
    if (part->biases != NULL)
        at.biases = part->biases + in / s->scale_rows * s->scale_row_bytes;
    return at;
}

static bool as_stored(const struct gguf_tensor *t) {
    const struct tensor_rows *s = t->rows;
    return s->form == ROWS_PLAIN && s->col_bytes == qtype_info(s->from)->block_bytes &&
           (s->tiling.block == 0 || !s->tiling.columns) &&
           (t->n_dims > 1 || (s->halves == 0 && s->tiling.block == 0));
}

/* Stored columns [begin, end); of a vector, the ones that are wanted. */
static void convert(const struct gguf_tensor *t, const struct row_at at, uint64_t begin,
                    uint64_t end, uint8_t *out) {
    const struct tensor_rows *s = t->rows;
    switch (s->form) {
    case ROWS_PLAIN:
        gather(s, t->n_dims == 1, at.values, begin, end, out);
        break;
    case ROWS_PLUS_ONE:
    case ROWS_NEG_EXP:
        change(s, at.values, begin, end, out);
        break;
    case ROWS_I64:
        narrow(at.values, begin, end, out);
        break;
    case ROWS_FP8:
        fp8_blocks(s, &at, begin, end, out);
        break;
    case ROWS_MXFP4:
        mxfp4_blocks(&at, begin, end, out);
        break;
    case ROWS_NVFP4:
        nvfp4_blocks(&at, begin, end, out);
        break;
    case ROWS_MLX4:
        mlx4_blocks(s, &at, begin, end, out);
        break;
    case ROWS_MLX8:
        mlx8_blocks(s, &at, begin, end, out);
        break;
    case ROWS_INT4:
        int4_blocks(s, &at, begin, end, out);
        break;
    }
}

/* Where column col of a row lies. */
static size_t column_at(const struct gguf_tensor *t, uint64_t col) {
    const struct qtype_info *info = qtype_info(t->type);
    return (size_t)(col / info->block_values * info->block_bytes);
}

static void make_row(const struct gguf_tensor *t, uint64_t row, uint64_t begin, uint64_t end,
                     uint8_t *out) {
    const struct row_tiling *tiling = &t->rows->tiling;
    const struct row_at at = find_row(t, row);
    if (tiling->block == 0 || !tiling->columns) {
        convert(t, at, begin, end, out);
        return;
    }
    for (uint64_t c = begin, next; c < end; c = next) {
        next = MIN((c / tiling->block + 1) * tiling->block, end);
        uint64_t stored = stored_in_tiling(tiling, c);
        convert(t, at, stored, stored + (next - c), out);
        out += column_at(t, next - c);
    }
}

static const uint8_t *row_in_place(const struct gguf_tensor *t, uint64_t row) {
    if (t->rows != NULL)
        return find_row(t, row).values;
    BUG_ON(t->data == NULL);
    return t->data + row * column_at(t, t->dims[0]);
}

static bool in_place(const struct gguf_tensor *t) {
    return t->rows == NULL || as_stored(t);
}

const uint8_t *tensor_row(const struct gguf_tensor *t, uint64_t row, uint64_t col_begin,
                          uint64_t n_cols, uint8_t *buf) {
    if (in_place(t))
        return row_in_place(t, row);
    const uint64_t block = qtype_info(t->type)->block_values;
    const uint64_t end = round_up(col_begin + n_cols, block);
    make_row(t, row, col_begin / block * block, end, buf + column_at(t, col_begin));
    return buf;
}

#define PIECE_VALUES 256

void tensor_row_f32(const struct gguf_tensor *t, uint64_t row, uint64_t col_begin,
                    uint64_t n_cols, float *out) {
    const struct qtype_info *info = qtype_info(t->type);
    if (in_place(t)) {
        info->dequantize(row_in_place(t, row) + column_at(t, col_begin), out,
                         n_cols / info->block_values);
        return;
    }
    for (uint64_t done = 0; done < n_cols; done += PIECE_VALUES) {
        uint8_t piece[PIECE_VALUES * sizeof(float) * 2];
        uint64_t begin = col_begin + done, n = MIN(n_cols - done, (uint64_t)PIECE_VALUES);
        make_row(t, row, begin, begin + n, piece);
        info->dequantize(piece, out + done, n / info->block_values);
    }
}

enum status tensor_fetch_rows(const struct gguf_tensor *t, const struct file_source *from,
                              uint64_t begin, uint64_t n, uint64_t col_begin, uint64_t n_cols,
                              uint8_t *buf, struct err *err) {
    uint64_t block = qtype_info(t->type)->block_values;
    size_t row_bytes = column_at(t, t->dims[0]), first = column_at(t, col_begin),
           end = column_at(t, round_up(col_begin + n_cols, block));
    BUG_ON(t->rows != NULL);
    return from->read(from->user, t->part, t->offset + begin * row_bytes + first, end - first,
                      row_bytes, n, buf + first, row_bytes, err);
}

void tensor_forget_rows(const struct gguf *g, const struct gguf_tensor *t, uint64_t begin,
                        uint64_t n) {
    const struct tensor_rows *s = t->rows;
    if (n == 0)
        return;
    if (s == NULL) {
        size_t row_bytes = column_at(t, t->dims[0]);
        gguf_forget(g, t->data + begin * row_bytes, n * row_bytes);
        return;
    }
    /* Whole heads, where rows change places within them; small errors only cost a second read.
     * Rows in tiles lie all over the tensor, which is then kept. */
    if (s->tiling.block != 0)
        return;
    for (uint64_t row = begin; row < begin + n;) {
        uint64_t in = row % s->rows_per_part,
                 left = MIN(s->rows_per_part - in, begin + n - row);
        const uint8_t *first = s->parts[row / s->rows_per_part].values + in * s->row_bytes;
        if (s->col_bytes <= s->row_bytes)
            gguf_forget(g, first, left * s->row_bytes);
        row += left;
    }
}
