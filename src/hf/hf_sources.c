/* hf_sources.c: the forms in which a folder keeps numbers: plain, or codes with scales in other
 * tensors, whose names depend on the form. */
#include "base/util.h"
#include "hf/hf_impl.h"

#include <inttypes.h>
#include <stdio.h>

static struct hf_tensor *take(const struct hf_folder *f, const char *name) {
    struct hf_tensor *t = hf_find(f, name);
    if (t)
        t->used = true;
    return t;
}

enum status hf_bad_shape(const struct hf_folder *f, const char *name, const char *what,
                         struct err *err) {
    return err_set(err, ST_BAD_INPUT, "%s: %.200s: %s", f->path, name, what);
}

static bool plain_type(enum safe_dtype t, enum qtype *out) {
    switch (t) {
    case SAFE_F32:
        *out = QT_F32;
        return true;
    case SAFE_F16:
        *out = QT_F16;
        return true;
    case SAFE_BF16:
        *out = QT_BF16;
        return true;
    default:
        return false;
    }
}

/* [rows, cols], [n, rows, cols] or [n]; none is 0. */
static enum status set_shape(const struct hf_folder *f, const struct safe_tensor *t,
                             uint32_t n_dims, struct hf_source *s, struct err *err) {
    const uint64_t *d = t->dims + (n_dims == 3);
    bool long_vector = n_dims == 4 && d[0] == 1 && d[1] == 1 && d[3] == 1; /* Kimi's A_log */
    if (n_dims == 0 || (n_dims > 3 && !long_vector) || t->size_bytes == 0)
        return hf_bad_shape(f, t->name, "expected one to three dimensions, none of them 0",
                            err);
    s->vector = n_dims == 1 || long_vector;
    s->n = n_dims == 3 ? t->dims[0] : 1;
    s->n_rows = s->vector ? 1 : d[0];
    s->n_cols = long_vector ? d[2] : s->vector ? d[0] : d[1];
    return ST_OK;
}

static enum status plain_source(const struct hf_folder *f, const struct safe_tensor *t,
                                struct hf_source *s, struct err *err) {
    TRY(set_shape(f, t, t->n_dims, s, err));
    s->elem_bytes = safe_dtype_bytes(t->dtype);
    s->type = s->rows.from;
    s->rows.form = ROWS_PLAIN;
    s->rows.col_bytes = s->elem_bytes;
    s->rows.row_bytes = s->n_cols * s->elem_bytes;
    s->values_bytes = s->n_rows * s->rows.row_bytes;
    s->first.values = t->data;
    return ST_OK;
}

/* Which rows and columns share a scale: blocks of 128 x 128 (or what config.json says), a row,
 * 32 of a row, or all. Each matrix of a stack has its own. */
static bool fp8_grid(const struct hf_source *s, const struct safe_tensor *scales, uint64_t rows,
                     uint64_t cols, struct tensor_rows *out) {
    bool stack = s->n != 1 && scales->n_dims == 3 && scales->dims[0] == s->n;
    bool matrix = stack || (s->n == 1 && scales->n_dims == 2);
    const uint64_t *d = scales->dims + stack;
    bool one = scales->size_bytes == safe_dtype_bytes(scales->dtype) && scales->n_dims < 2;
    if (one && s->n == 1) {
        rows = s->n_rows;
        cols = s->n_cols;
    } else if (matrix && d[0] == s->n_rows && d[1] == 1) {
        rows = 1;
        cols = s->n_cols;
    } else if (matrix && d[0] == s->n_rows && d[1] == s->n_cols / QK) {
        rows = 1;
        cols = QK;
    } else if (!matrix || d[0] != div_up(s->n_rows, rows) || d[1] != div_up(s->n_cols, cols)) {
        return false;
    }
    out->scale_rows = (uint32_t)rows;
    out->scale_cols = (uint32_t)cols;
    out->scale_row_bytes = div_up(s->n_cols, cols) * safe_dtype_bytes(scales->dtype);
    return rows <= UINT32_MAX && cols <= UINT32_MAX;
}

/* NAME.weight's scales: NAME.weight_scale_inv (DeepSeek), NAME.weight_scale (compressed-tensors,
 * which may call the weight NAME.weight_packed), or NAME.scale (DeepSeek V4). */
static const struct hf_tensor *take_scales(const struct hf_folder *f,
                                           const struct safe_tensor *t) {
    static const char *const ends[] = {"_scale_inv", "_scale"};
    const int n = (int)strlen(t->name), packed = str_ends(t->name, "_packed") ? 7 : 0;
    char name[SAFE_NAME_MAX + 16];
    const struct hf_tensor *scales = NULL;
    for (size_t i = 0; i < ARRAY_LEN(ends) && !scales; i++) {
        snprintf(name, sizeof name, "%.*s%s", n - packed, t->name, ends[i]);
        scales = take(f, name);
    }
    if (scales || !str_ends(t->name, ".weight"))
        return scales;
    snprintf(name, sizeof name, "%.*sscale", n - (int)strlen("weight"), t->name);
    return take(f, name);
}

/* Exponents of two, a byte each. */
static bool is_exponents(const struct safe_tensor *scales) {
    return scales->dtype == SAFE_F8_E8M0 || scales->dtype == SAFE_U8;
}

static enum status fp8_source(const struct hf_folder *f, const struct safe_tensor *t,
                              struct hf_source *s, struct err *err) {
    const json_t *block = hf_value(f->config, "quantization_config.weight_block_size");
    json_int_t rows = json_integer_value(json_array_get(block, 0)),
               cols = json_integer_value(json_array_get(block, 1));
    const struct hf_tensor *scales = take_scales(f, t);
    TRY(set_shape(f, t, t->n_dims, s, err));
    if (!block)
        rows = cols = 128;
    if (rows < 1 || rows > 65536 || cols < QK || cols > 65536 || cols % QK != 0)
        return err_set(err, ST_UNSUPPORTED,
                       "%s/config.json: weight_block_size must be whole blocks of %d columns",
                       f->path, QK);
    s->rows.scale_exponents = scales && is_exponents(scales->t);
    if (!scales || s->vector ||
        (!s->rows.scale_exponents && !plain_type(scales->t->dtype, &s->rows.scale_type)) ||
        !fp8_grid(s, scales->t, (uint64_t)rows, (uint64_t)cols, &s->rows))
        return hf_bad_shape(
            f, t->name,
            "FP8 weights need their NAME_scale_inv or NAME_scale: a number for each "
            "block, for each row or for all",
            err);
    if (s->n_cols % QK != 0)
        return hf_bad_shape(f, t->name, "FP8 rows must be whole blocks of 32", err);
    s->type = QT_F8_E4M3;
    s->refused_form = true;
    s->rows.form = ROWS_FP8;
    s->rows.row_bytes = s->n_cols;
    s->values_bytes = s->n_rows * s->n_cols;
    s->scales_bytes = div_up(s->n_rows, s->rows.scale_rows) * s->rows.scale_row_bytes;
    s->first = (struct rows_part){t->data, scales->t->data, NULL};
    return ST_OK;
}

/* A table of whole numbers, which GGUF has in 32 bits. */
static enum status table_source(const struct hf_folder *f, const struct safe_tensor *t,
                                struct hf_source *s, struct err *err) {
    TRY(set_shape(f, t, t->n_dims, s, err));
    s->type = s->rows.from = QT_I32;
    s->refused_form = true;
    s->rows.form = t->dtype == SAFE_I64 ? ROWS_I64 : ROWS_PLAIN;
    s->rows.col_bytes = safe_dtype_bytes(t->dtype);
    s->rows.row_bytes = s->n_cols * s->rows.col_bytes;
    s->values_bytes = s->n_rows * s->rows.row_bytes;
    s->first.values = t->data;
    return ST_OK;
}

/* gpt-oss: NAME_blocks [n, rows, cols/32, 16] and NAME_scales [n, rows, cols/32]. */
static enum status mxfp4_source(const struct hf_folder *f, const struct safe_tensor *t,
                                struct hf_source *s, struct err *err) {
    char name[SAFE_NAME_MAX + 16];
    snprintf(name, sizeof name, "%.*s_scales", (int)(strlen(t->name) - strlen("_blocks")),
             t->name);
    const struct hf_tensor *scales = take(f, name);
    if (!scales || t->n_dims != 4 || t->dims[3] != 16 || scales->t->n_dims != 3 ||
        scales->t->dtype != SAFE_U8 || scales->t->dims[0] != t->dims[0] ||
        scales->t->dims[1] != t->dims[1] || scales->t->dims[2] != t->dims[2])
        return hf_bad_shape(
            f, t->name,
            "MXFP4 blocks must be [n, rows, blocks, 16] with NAME_scales beside them", err);
    TRY(set_shape(f, t, 3, s, err));
    s->n_cols = t->dims[2] * QK;
    s->type = QT_MXFP4;
    s->refused_form = true;
    s->rows.form = ROWS_MXFP4;
    s->rows.row_bytes = t->dims[2] * 16;
    s->rows.scale_rows = 1;
    s->rows.scale_cols = QK;
    s->rows.scale_row_bytes = t->dims[2];
    s->values_bytes = s->n_rows * s->rows.row_bytes;
    s->scales_bytes = s->n_rows * s->rows.scale_row_bytes;
    s->first = (struct rows_part){t->data, scales->t->data, NULL};
    return ST_OK;
}

/* n_cols values in t's rows, with e4m3 scales of 16. */
static enum status nvfp4_rows(const struct hf_folder *f, const struct safe_tensor *t,
                              const struct safe_tensor *scales, struct hf_source *s,
                              struct err *err) {
    if (s->n_cols % QK_NVFP4 != 0)
        return hf_bad_shape(f, t->name, "NVFP4 rows must be whole blocks of 64", err);
    s->type = QT_NVFP4;
    s->refused_form = true;
    s->rows.form = ROWS_NVFP4;
    s->rows.row_bytes = s->n_cols / 2;
    s->rows.scale_rows = 1;
    s->rows.scale_cols = QK_NVFP4 / 4;
    s->rows.scale_row_bytes = s->n_cols / s->rows.scale_cols;
    s->values_bytes = s->n_rows * s->rows.row_bytes;
    s->scales_bytes = s->n_rows * s->rows.scale_row_bytes;
    s->first = (struct rows_part){t->data, scales->data, NULL};
    return ST_OK;
}

/* What config.json says of a module's weights: its own entry, or that of all. */
struct mlx_quantization {
    uint32_t group; /* 0: none that is known */
    /* affine, which a module's own entry may leave out, has biases, the others do not */
    enum mlx_mode { MLX_AFFINE, MLX_MXFP4, MLX_MXFP8, MLX_NVFP4, N_MLX_MODES } mode;
};

static enum status mlx_quantization(const struct hf_folder *f, const char *module,
                                    struct mlx_quantization *out, struct err *err) {
    const json_t *all = json_object_get(f->config, "quantization");
    const json_t *own = json_object_get(all, module), *q = json_is_object(own) ? own : all;
    const json_t *mode = json_object_get(q, "mode");
    const char *text = json_is_string(mode) ? json_string_value(mode) : "affine";
    json_int_t group = json_integer_value(json_object_get(q, "group_size"));
    char shown[64];
    static const char *const modes[N_MLX_MODES] = {"affine", "mxfp4", "mxfp8", "nvfp4"};
    while (out->mode < N_MLX_MODES && !str_eq(text, modes[out->mode]))
        out->mode++;
    if (out->mode == N_MLX_MODES)
        return err_set(err, ST_UNSUPPORTED,
                       "%s/config.json: MLX's mode %s is not supported, only affine, mxfp4, "
                       "mxfp8 and nvfp4",
                       f->path,
                       gguf_escape((struct gguf_str){text, strlen(text)}, shown, sizeof shown));
    bool known = out->mode == MLX_AFFINE  ? group == 32 || group == 64 || group == 128
                 : out->mode == MLX_NVFP4 ? group == 16
                                          : group == QK;
    out->group = known ? (uint32_t)group : 0;
    return ST_OK;
}

/* Type and form of packed rows by their words and scales; false: no such form. */
static bool mlx_form(const struct mlx_quantization *q, enum safe_dtype scales, uint64_t n_words,
                     struct hf_source *s) {
    bool four = n_words * 8 == s->n_cols, f16 = scales == SAFE_F16;
    if (q->mode == MLX_MXFP4) {
        s->type = QT_MXFP4;
        s->rows.form = ROWS_MXFP4;
        return four && scales == SAFE_U8;
    }
    if (q->mode == MLX_MXFP8) {
        s->type = QT_F8_E4M3;
        s->rows.form = ROWS_FP8;
        s->rows.scale_exponents = true;
        return n_words * 4 == s->n_cols && scales == SAFE_U8;
    }
    if (q->mode == MLX_NVFP4)
        return four && scales == SAFE_U8; /* nvfp4_rows() says the rest */
    s->type = four ? (f16 ? QT_Q4_1 : QT_MLX4) : f16 ? QT_MLX8_F16 : QT_MLX8;
    s->rows.form = four ? ROWS_MLX4 : ROWS_MLX8;
    return (four || n_words * 4 == s->n_cols) && (f16 || scales == SAFE_BF16);
}

/* Scales (and biases) have the shape of the words, but for the groups of a row. */
static bool same_rows(const struct safe_tensor *t, const struct safe_tensor *scales) {
    return scales->n_dims == t->n_dims &&
           memcmp(scales->dims, t->dims, (t->n_dims - 1) * sizeof *t->dims) == 0;
}

static bool same_kind(const struct safe_tensor *a, const struct safe_tensor *b) {
    return a->dtype == b->dtype && a->n_dims == b->n_dims &&
           memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

/* NAME.weight [rows, words], NAME.scales and, in the affine mode, NAME.biases [rows, groups];
 * perhaps of n matrices. */
static enum status mlx_source(const struct hf_folder *f, const struct safe_tensor *t,
                              struct hf_source *s, struct err *err) {
    char module[SAFE_NAME_MAX + 1], name[SAFE_NAME_MAX + 16];
    struct mlx_quantization q = {0};
    snprintf(module, sizeof module, "%.*s", (int)(strlen(t->name) - strlen(".weight")),
             t->name);
    TRY(mlx_quantization(f, module, &q, err));
    snprintf(name, sizeof name, "%s.scales", module);
    const struct hf_tensor *scales = take(f, name);
    snprintf(name, sizeof name, "%s.biases", module);
    const bool affine = q.mode == MLX_AFFINE;
    const struct hf_tensor *biases = affine ? take(f, name) : NULL;
    TRY(set_shape(f, t, t->n_dims, s, err));
    if (!scales || q.group == 0 || s->vector || !same_rows(t, scales->t) ||
        (affine && (!biases || !same_kind(scales->t, biases->t))))
        return hf_bad_shape(
            f, t->name,
            "packed weights need scales and biases of their groups of 32, 64 or 128; in modes "
            "mxfp4 and mxfp8 scales alone, of 32, in nvfp4 of 16 (config.json: quantization)",
            err);
    uint64_t n_groups = scales->t->dims[t->n_dims - 1], n_words = s->n_cols;
    if (n_groups > UINT32_MAX || n_words > UINT32_MAX)
        return hf_bad_shape(f, t->name, "its rows are too long", err);
    s->n_cols = n_groups * q.group;
    if (!mlx_form(&q, scales->t->dtype, n_words, s))
        return hf_bad_shape(f, t->name,
                            affine
                                ? "only codes of 4 or 8 bits with scales of F16 or BF16 are "
                                  "supported"
                                : "its mode wants codes of 4 bits (mxfp8: 8) and scales of U8",
                            err);
    if (q.mode == MLX_NVFP4)
        return nvfp4_rows(f, t, scales->t, s, err);
    s->refused_form = true;
    s->rows.row_bytes = n_words * 4;
    s->rows.scale_rows = 1;
    s->rows.scale_cols = q.group;
    s->rows.scale_row_bytes = n_groups * safe_dtype_bytes(scales->t->dtype);
    s->values_bytes = s->n_rows * s->rows.row_bytes;
    s->scales_bytes = s->n_rows * s->rows.scale_row_bytes;
    s->first = (struct rows_part){t->data, scales->t->data, biases ? biases->t->data : NULL};
    return ST_OK;
}

/* Rows and columns as numbers of 64 bits (llm-compressor) or of 32 (Kimi K2 Thinking). */
static bool is_shape(const struct safe_tensor *t, uint64_t rows, uint64_t cols) {
    int32_t small[2];
    int64_t dims[2];
    if (t->dtype == SAFE_I32 && t->size_bytes == sizeof small) {
        memcpy(small, t->data, sizeof small);
        dims[0] = small[0];
        dims[1] = small[1];
    } else if (t->dtype == SAFE_I64 && t->size_bytes == sizeof dims) {
        memcpy(dims, t->data, sizeof dims);
    } else {
        return false;
    }
    return dims[0] >= 0 && (uint64_t)dims[0] == rows && dims[1] >= 0 &&
           (uint64_t)dims[1] == cols;
}

/* compressed-tensors' pack-quantized: NAME.weight_packed [rows, cols/8], NAME.weight_scale
 * [rows, groups], NAME.weight_shape: rows and cols. */
static enum status int4_source(const struct hf_folder *f, const struct safe_tensor *t,
                               struct hf_source *s, struct err *err) {
    char name[SAFE_NAME_MAX + 16];
    int stem = (int)(strlen(t->name) - strlen("_packed"));
    snprintf(name, sizeof name, "%.*s_scale", stem, t->name);
    const struct hf_tensor *scales = take(f, name);
    snprintf(name, sizeof name, "%.*s_shape", stem, t->name);
    const struct hf_tensor *shape = take(f, name);
    TRY(set_shape(f, t, t->n_dims, s, err));
    if (!scales || t->n_dims != 2 || scales->t->n_dims != 2 ||
        scales->t->dims[0] != s->n_rows || scales->t->dims[1] == 0 || s->n_cols > UINT32_MAX ||
        !shape || !is_shape(shape->t, s->n_rows, s->n_cols * 8))
        return hf_bad_shape(
            f, t->name,
            "packed weights need their NAME.weight_scale and a NAME.weight_shape that "
            "agrees",
            err);
    s->n_cols *= 8;
    uint64_t group = s->n_cols / scales->t->dims[1];
    if (group * scales->t->dims[1] != s->n_cols ||
        (group != 32 && group != 64 && group != 128) ||
        !plain_type(scales->t->dtype, &s->rows.scale_type) || s->rows.scale_type == QT_F32)
        return hf_bad_shape(
            f, t->name, "only groups of 32, 64 or 128 with scales of F16 or BF16 are supported",
            err);
    s->type = s->rows.scale_type == QT_F16 ? QT_Q4_0 : QT_MLX4;
    s->refused_form = true;
    s->rows.form = ROWS_INT4;
    s->rows.row_bytes = t->dims[1] * 4;
    s->rows.scale_rows = 1;
    s->rows.scale_cols = (uint32_t)group;
    s->rows.scale_row_bytes = scales->t->dims[1] * 2;
    s->first = (struct rows_part){t->data, scales->t->data, NULL};
    return ST_OK;
}

/* MXFP4: [rows, cols/2], of neighbouring pairs, the first one lowest, and scales [rows, cols/32].
 * compressed-tensors' mxfp4-pack-quantized, DeepSeek V4's experts. */
static enum status packed_mxfp4_source(const struct hf_folder *f, const struct safe_tensor *t,
                                       const struct hf_tensor *scales, struct hf_source *s,
                                       struct err *err) {
    if (!scales || t->n_dims != 2 || scales->t->n_dims != 2 || !is_exponents(scales->t) ||
        scales->t->dims[0] != t->dims[0] || t->dims[1] % (QK / 2) != 0 ||
        scales->t->dims[1] != t->dims[1] / (QK / 2))
        return hf_bad_shape(f, t->name,
                            "MXFP4 weights need their NAME.weight_scale: an exponent for 32 "
                            "values",
                            err);
    TRY(set_shape(f, t, t->n_dims, s, err));
    s->n_cols *= 2;
    s->type = QT_MXFP4;
    s->refused_form = true;
    s->rows.form = ROWS_MXFP4;
    s->rows.row_bytes = t->dims[1];
    s->rows.scale_rows = 1;
    s->rows.scale_cols = QK;
    s->rows.scale_row_bytes = scales->t->dims[1];
    s->first = (struct rows_part){t->data, scales->t->data, NULL};
    return ST_OK;
}

/* NVFP4: MXFP4's pairs, scales e4m3 [rows, cols/16], and a number for the whole matrix, which
 * multiplies (ModelOpt's NAME.weight_scale_2) or divides (compressed-tensors'
 * NAME.weight_global_scale). Activations are not rounded, so their scales are not needed. */
static enum status nvfp4_source(const struct hf_folder *f, const struct safe_tensor *t,
                                const struct safe_tensor *scales, struct hf_source *s,
                                struct err *err) {
    static const char *const names[] = {"weight_scale_2", "weight_global_scale", "input_scale",
                                        "input_global_scale"};
    const int module = (int)(strrchr(t->name, '.') - t->name);
    char name[SAFE_NAME_MAX + 32];
    const struct hf_tensor *found[ARRAY_LEN(names)];
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(name, sizeof name, "%.*s.%s", module, t->name, names[i]);
        found[i] = take(f, name);
    }
    const struct hf_tensor *one = found[0] ? found[0] : found[1];
    if (!one || one->t->dtype != SAFE_F32 || one->t->size_bytes != sizeof s->scale ||
        t->n_dims != 2 || scales->n_dims != 2 || scales->dims[0] != t->dims[0] ||
        t->dims[1] % 8 != 0 || scales->dims[1] != t->dims[1] / 8)
        return hf_bad_shape(f, t->name,
                            "NVFP4 weights need their NAME.weight_scale, a number for 16 "
                            "values, and NAME.weight_scale_2 or NAME.weight_global_scale, one "
                            "for all",
                            err);
    memcpy(&s->scale, one->t->data, sizeof s->scale);
    if (!found[0])
        s->scale = 1.0f / s->scale;
    if (!(s->scale > 0.0f) || isinf(s->scale))
        return hf_bad_shape(f, t->name, "the scale of all its values is not a number above 0",
                            err);
    TRY(set_shape(f, t, t->n_dims, s, err));
    s->n_cols *= 2;
    return nvfp4_rows(f, t, scales, s, err);
}

/* Two values of four bits in a byte. */
static enum status packed_source(const struct hf_folder *f, const struct safe_tensor *t,
                                 struct hf_source *s, struct err *err) {
    const struct hf_tensor *scales = take_scales(f, t);
    return scales && scales->t->dtype == SAFE_F8_E4M3
               ? nvfp4_source(f, t, scales->t, s, err)
               : packed_mxfp4_source(f, t, scales, s, err);
}

enum status hf_find_source(const struct hf_folder *f, const struct safe_tensor *t,
                           struct hf_source *s, struct err *err) {
    *s = (struct hf_source){0};
    if (plain_type(t->dtype, &s->rows.from))
        return plain_source(f, t, s, err);
    if (t->dtype == SAFE_F8_E4M3)
        return fp8_source(f, t, s, err);
    if (t->dtype == SAFE_U8 && str_ends(t->name, "_blocks"))
        return mxfp4_source(f, t, s, err);
    if ((t->dtype == SAFE_U8 && str_ends(t->name, ".weight_packed")) ||
        ((t->dtype == SAFE_I8 || t->dtype == SAFE_U8) && take_scales(f, t)))
        return packed_source(f, t, s, err);
    if ((t->dtype == SAFE_I32 || t->dtype == SAFE_I64) && str_ends(t->name, ".tid2eid"))
        return table_source(f, t, s, err);
    if (t->dtype == SAFE_U32 && str_ends(t->name, ".weight"))
        return mlx_source(f, t, s, err);
    if (t->dtype == SAFE_I32 && str_ends(t->name, ".weight_packed"))
        return int4_source(f, t, s, err);
    return err_set(err, ST_UNSUPPORTED, "%s: %.200s: weights of type %s are not supported",
                   f->path, t->name, safe_dtype_name(t->dtype));
}
