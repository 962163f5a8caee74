/* hf_tensors.c: maps the folder's tensors to GGUF's, and finds their rows.
 *
 * A tensor of a layer that no table names is refused: without a bias, answers would be wrong
 * without notice. Tensors outside the layers (vision towers, multi-token prediction) are not
 * loaded. */
#include "base/mem.h"
#include "base/util.h"
#include "hf/hf_impl.h"

#include <inttypes.h>
#include <stdio.h>

/* NAME.weight, or what compressed-tensors keeps in its place. */
static struct hf_tensor *find_weight(const struct hf_folder *f, const char *name) {
    char packed[SAFE_NAME_MAX + 16];
    struct hf_tensor *t = hf_find(f, name);
    if (t || !str_ends(name, ".weight"))
        return t;
    snprintf(packed, sizeof packed, "%s_packed", name);
    return hf_find(f, packed);
}

static struct hf_tensor *take_weight(const struct hf_folder *f, const char *name) {
    struct hf_tensor *t = find_weight(f, name);
    if (t)
        t->used = true;
    return t;
}

/* ---- what becomes of it -------------------------------------------------------------- */

static void every_second_row(struct hf_source *s, uint64_t first) {
    s->first.values += first * s->rows.row_bytes;
    if (s->first.scales)
        s->first.scales += first * s->rows.scale_row_bytes;
    s->rows.row_bytes *= 2;
    s->rows.scale_row_bytes *= 2;
    s->n_rows /= 2;
}

/* Half of the rows of each matrix; a row of scales must not belong to both. */
static bool half_of_rows(struct hf_source *s, bool second) {
    uint64_t rows = s->n_rows / 2, scale_rows = MAX(s->rows.scale_rows, 1u);
    if (s->vector || s->n_rows % 2 != 0 || rows % scale_rows != 0)
        return false;
    s->n_rows = rows;
    if (!second)
        return true;
    s->first.values += rows * s->rows.row_bytes;
    if (s->first.scales)
        s->first.scales += rows / scale_rows * s->rows.scale_row_bytes;
    if (s->first.biases)
        s->first.biases += rows / scale_rows * s->rows.scale_row_bytes;
    return true;
}

static void turn(struct hf_source *s) {
    uint64_t rows = s->n_rows;
    s->rows.col_bytes = s->n_cols * s->elem_bytes;
    s->rows.row_bytes = s->elem_bytes;
    s->n_rows = s->n_cols;
    s->n_cols = rows;
}

/* mlx-lm turns the filters of a convolution, or renames a router, and adds 1 to the norms at
 * once. */
static bool is_turned_by_mlx(const struct hf_folder *f) {
    for (size_t i = 0; i < f->n_tensors; i++) {
        const struct safe_tensor *t = f->tensors[i].t;
        if (str_ends(t->name, ".mlp.gate.router_bias"))
            return true;
        if (str_ends(t->name, ".conv1d.weight") && t->n_dims == 3)
            return t->dims[2] == 1 && t->dims[1] != 1;
    }
    return false;
}

/* [channels, 1, taps], MLX's [channels, taps, 1], or without the 1. */
static enum status squeeze(const struct hf_folder *f, const struct safe_tensor *t,
                           struct hf_source *s, struct err *err) {
    if (t->n_dims == 2 && !s->refused_form)
        return ST_OK;
    if (t->n_dims != 3 || s->refused_form || (t->dims[1] != 1 && t->dims[2] != 1))
        return hf_bad_shape(f, t->name, "expected [channels, 1, taps]", err);
    s->n_rows = t->dims[0];
    s->n_cols = t->dims[1] * t->dims[2];
    s->n = 1;
    s->rows.row_bytes = s->n_cols * s->elem_bytes;
    return ST_OK;
}

/* What becomes of a delta net's tensors. */
static enum status apply_delta(const struct hf_folder *f, enum hf_how how,
                               const struct safe_tensor *t, struct hf_source *s,
                               struct err *err) {
    struct row_tiling tiling = f->v_heads;
    bool one = how == TAKE_V_EACH || how == TAKE_V_LOG, cols = how == TAKE_V_COLS;
    if (how == TAKE_CONV)
        TRY(squeeze(f, t, s, err));
    if (how == TAKE_V_LOG) {
        if (s->refused_form || !s->vector)
            return hf_bad_shape(f, t->name, "expected a vector", err);
        s->rows.form = ROWS_NEG_EXP;
        s->type = QT_F32;
        if (f->arch->layers == HF_OWN && s->n_cols > f->n_heads)
            s->n_cols = f->n_heads; /* Kimi K3's may go on */
    }
    if (!f->arch->tiled_heads)
        return ST_OK;
    if (one)
        tiling.block = 1;
    if (how != TAKE_QKV && how != TAKE_CONV)
        tiling.first = 0;
    tiling.columns = cols;
    uint64_t n = cols || s->vector ? s->n_cols : s->n_rows;
    if (s->n != 1 || (cols && s->vector) ||
        n != tiling.first + (uint64_t)tiling.block * tiling.n_groups * tiling.n_per_group)
        return hf_bad_shape(f, t->name, "its shape is not that of the value heads", err);
    if (cols && s->refused_form &&
        (tiling.block % MAX(qtype_info(s->type)->block_values, (uint32_t)QK) != 0 ||
         tiling.block % MAX(s->rows.scale_cols, 1u) != 0))
        return hf_bad_shape(f, t->name, "a value head is not whole blocks of it", err);
    s->rows.tiling = tiling;
    return ST_OK;
}

/* A vector becomes a matrix of n_rows rows. */
static enum status stand(const struct hf_folder *f, enum hf_how how,
                         const struct safe_tensor *t, struct hf_source *s, struct err *err) {
    uint64_t n_rows = how == TAKE_GROUPS ? f->n_groups : s->n_cols;
    if (s->refused_form || !s->vector || n_rows == 0 || s->n_cols % n_rows != 0)
        return hf_bad_shape(f, t->name, "expected a vector of whole groups", err);
    s->vector = false;
    s->n_rows = n_rows;
    s->n_cols /= n_rows;
    s->rows.row_bytes = s->n_cols * s->elem_bytes;
    if (how == TAKE_COLUMN_LOG) {
        s->rows.form = ROWS_NEG_EXP;
        s->type = QT_F32;
    }
    return ST_OK;
}

static enum status apply(const struct hf_folder *f, const struct hf_name *name,
                         const struct safe_tensor *t, struct hf_source *s, struct err *err) {
    enum hf_how how = name->how;
    bool turns = how >= TURN && how <= TRANSPOSE_SECOND;
    bool halves = how == TAKE_FIRST || how == TAKE_SECOND || how == TRANSPOSE_FIRST ||
                  how == TRANSPOSE_SECOND;
    bool picks = how == VALUES_EVEN || how == VALUES_ODD;
    if ((turns || picks) && s->refused_form)
        return hf_bad_shape(f, t->name, "expected plain numbers", err);
    if (turns)
        turn(s);
    if ((how == TAKE_EVEN || how == TAKE_ODD || how == TRANSPOSE_EVEN ||
         how == TRANSPOSE_ODD) &&
        (s->vector || s->n_rows % 2 != 0 || s->rows.scale_rows > 1))
        return hf_bad_shape(f, t->name, "expected pairs of rows", err);
    if (how == TAKE_EVEN || how == TRANSPOSE_EVEN)
        every_second_row(s, 0);
    if (how == TAKE_ODD || how == TRANSPOSE_ODD)
        every_second_row(s, 1);
    if (halves && !half_of_rows(s, how == TAKE_SECOND || how == TRANSPOSE_SECOND))
        return hf_bad_shape(f, t->name, "its rows cannot be halved", err);
    if (picks) {
        if (s->n_cols % 2 != 0)
            return hf_bad_shape(f, t->name, "expected pairs of values", err);
        s->first.values += how == VALUES_ODD ? s->elem_bytes : 0;
        s->rows.col_bytes *= 2;
        s->n_cols /= 2;
    }
    if (how == TAKE_NORM && f->norms_plus_one) {
        if (s->refused_form || !s->vector)
            return hf_bad_shape(f, t->name, "expected a vector", err);
        s->rows.form = ROWS_PLUS_ONE;
        s->type = QT_F32;
    }
    if (how == TAKE_HEADS && f->arch->interleave_heads) {
        uint64_t n_heads = strncmp(name->to, "attn_q", 6) == 0 ? f->n_heads : f->n_kv_heads;
        uint64_t n = s->vector ? s->n_cols : s->n_rows;
        if (n % (2 * n_heads) != 0 || n / n_heads > 65536 || s->n != 1)
            return hf_bad_shape(f, t->name, "its rows are not whole heads", err);
        s->rows.halves = (uint32_t)(n / n_heads);
    }
    if (how == TAKE_FLAT && !s->vector) {
        if (s->refused_form || s->n != 1)
            return hf_bad_shape(f, t->name, "expected plain numbers", err);
        s->vector = true;
        s->n_cols *= s->n_rows;
        s->n_rows = 1;
        s->rows.row_bytes = s->n_cols * s->elem_bytes;
    }
    if (how >= TAKE_COLUMN && how != TAKE_FLAT)
        return stand(f, how, t, s, err);
    return how >= TAKE_QKV ? apply_delta(f, how, t, s, err) : ST_OK;
}

/* ---- adding -------------------------------------------------------------------------- */

static enum status add_rows(struct hf_folder *f, const struct tensor_rows *rows,
                            struct err *err) {
    if (!mem_reserve(&f->rows, &f->cap_rows, f->n_rows + 1, sizeof *f->rows))
        return hf_no_memory(f, err);
    f->rows[f->n_rows++] = *rows;
    return ST_OK;
}

static enum status add(struct hf_folder *f, const char *to, struct hf_source *s,
                       struct rows_part *parts, bool stack, struct err *err) {
    const uint64_t dims[3] = {s->n_cols, s->n_rows, s->n};
    if (!hf_own(f, parts))
        return hf_no_memory(f, err);
    s->rows.parts = parts;
    s->rows.rows_per_part = s->n_rows;
    gguf_write_tensor_info(f->w, to, s->type, s->vector ? 1 : stack ? 3 : 2, dims);
    return add_rows(f, &s->rows, err);
}

/* The table of layers' inputs may have fewer rows than the embedding: tokens that stand for
 * pictures and sounds have none. They get zeros, in a part of their own. */
static enum status add_padded(struct hf_folder *f, const char *to, struct hf_source *s,
                              struct err *err) {
    uint64_t rows = s->n_rows, more = f->n_vocab - rows;
    struct rows_part *parts = mem_calloc(2, sizeof *parts);
    uint8_t *zeros = mem_calloc(more, s->rows.row_bytes);
    bool kept = hf_own(f, zeros) != NULL;
    if (!kept || !parts) {
        mem_free(parts);
        return hf_no_memory(f, err);
    }
    parts[0] = s->first; /* in every form a row's scales are shorter than the row */
    parts[1] = (struct rows_part){zeros, s->first.scales ? zeros : NULL,
                                  s->first.biases ? zeros : NULL};
    s->n_rows = f->n_vocab;
    enum status st = add(f, to, s, parts, false, err);
    if (st == ST_OK)
        f->rows[f->n_rows - 1].rows_per_part = rows;
    return st;
}

/* x.weight's numbers for its whole matrices, as GGUF keeps them: x.scale. */
static enum status add_scales(struct hf_folder *f, const char *to, const float *scales,
                              size_t n, struct err *err) {
    char name[GGUF_NAME_MAX + 8];
    const char *end = str_ends(to, ".weight") ? to + strlen(to) - strlen(".weight") : NULL;
    if (!end)
        return err_set(err, ST_UNSUPPORTED, "%s: %s cannot be NVFP4", f->path, to);
    snprintf(name, sizeof name, "%.*s.scale", (int)(end - to), to);
    return hf_add_vector(f, name, scales, n, err);
}

static enum status add_one(struct hf_folder *f, const char *to, const struct hf_name *name,
                           const struct safe_tensor *t, struct err *err) {
    struct hf_source s;
    TRY(hf_find_source(f, t, &s, err));
    TRY(apply(f, name, t, &s, err));
    if (s.n > 65536)
        return hf_bad_shape(f, t->name, "too many matrices", err);
    if (str_eq(to, "per_layer_token_embd.weight") && s.n_rows < f->n_vocab &&
        f->n_vocab - s.n_rows <= s.n_rows && s.n == 1)
        return add_padded(f, to, &s, err);
    struct rows_part *parts = mem_calloc(s.n, sizeof *parts);
    for (uint64_t i = 0; parts && i < s.n; i++) {
        parts[i] = s.first;
        parts[i].values += i * s.values_bytes;
        if (parts[i].scales)
            parts[i].scales += i * s.scales_bytes;
        if (parts[i].biases)
            parts[i].biases += i * s.scales_bytes;
    }
    TRY(add(f, to, &s, parts, t->n_dims >= 3, err));
    return s.scale != 0.0f ? add_scales(f, to, &s.scale, 1, err) : ST_OK;
}

static bool same_form(const struct hf_source *a, const struct hf_source *b) {
    return a->type == b->type && a->n == b->n && a->n_rows == b->n_rows &&
           a->n_cols == b->n_cols && a->vector == b->vector && a->rows.form == b->rows.form &&
           a->rows.scale_type == b->rows.scale_type &&
           a->rows.scale_exponents == b->rows.scale_exponents &&
           a->rows.scale_cols == b->rows.scale_cols && a->rows.scale_rows == b->rows.scale_rows;
}

/* from holds %u: n matrices. */
static enum status add_each(struct hf_folder *f, const char *to, const struct hf_name *name,
                            const char *prefix, uint32_t n, struct err *err) {
    const char *gap = strstr(name->from, "%u");
    struct rows_part *parts = mem_calloc(n, sizeof *parts);
    float *scales = hf_own(f, mem_calloc(n, sizeof *scales));
    struct hf_source first, s;
    enum status st = parts && scales ? ST_OK : hf_no_memory(f, err);
    for (uint32_t i = 0; i < n && st == ST_OK; i++) {
        char full[SAFE_NAME_MAX + 1];
        snprintf(full, sizeof full, "%s%.*s%u%s", prefix, (int)(gap - name->from), name->from,
                 i, gap + 2);
        const struct hf_tensor *t = take_weight(f, full);
        if (!t) {
            st = err_set(err, ST_BAD_INPUT, "%s: the tensor %s is missing", f->path, full);
            break;
        }
        st = hf_find_source(f, t->t, &s, err);
        if (st == ST_OK)
            st = apply(f, name, t->t, &s, err);
        if (st == ST_OK && (s.n != 1 || s.vector || (i > 0 && !same_form(&s, &first))))
            st = hf_bad_shape(f, full, "its shape or type is not that of the other experts",
                              err);
        if (i == 0)
            first = s;
        parts[i] = s.first;
        scales[i] = s.scale;
    }
    if (st != ST_OK) {
        mem_free(parts);
        return st;
    }
    first.n = n;
    TRY(add(f, to, &first, parts, true, err));
    return first.scale != 0.0f ? add_scales(f, to, scales, n, err) : ST_OK;
}

enum status hf_add_stack(struct hf_folder *f, const char *to, const struct hf_name *name,
                         const char *prefix, uint32_t n, struct err *err) {
    const char *gap = strstr(name->from, "%u");
    char full[SAFE_NAME_MAX + 1];
    snprintf(full, sizeof full, "%s%.*s0%s", prefix, (int)(gap - name->from), name->from,
             gap + 2);
    return n != 0 && find_weight(f, full) ? add_each(f, to, name, prefix, n, err) : ST_OK;
}

enum status hf_add_named(struct hf_folder *f, const char *to, const struct hf_name *name,
                         const char *prefix, struct err *err) {
    char full[SAFE_NAME_MAX + 1];
    if (strstr(name->from, "%u"))
        return hf_add_stack(f, to, name, prefix, f->n_experts, err);
    snprintf(full, sizeof full, "%s%s", prefix, name->from);
    const struct hf_tensor *t = take_weight(f, full);
    return t ? add_one(f, to, name, t->t, err) : ST_OK;
}

enum status hf_add_vector(struct hf_folder *f, const char *to, const float *values, size_t n,
                          struct err *err) {
    float *copy = mem_alloc(n * sizeof *copy);
    struct rows_part *part = mem_calloc(1, sizeof *part);
    if (copy)
        memcpy(copy, values, n * sizeof *copy);
    if (!hf_own(f, copy)) {
        mem_free(part);
        return hf_no_memory(f, err);
    }
    struct hf_source s = {.type = QT_F32, .n = 1, .n_rows = 1, .n_cols = n, .vector = true};
    s.rows = (struct tensor_rows){.form = ROWS_PLAIN,
                                  .from = QT_F32,
                                  .col_bytes = sizeof *copy,
                                  .row_bytes = n * sizeof *copy};
    if (part)
        part->values = (const uint8_t *)copy;
    return add(f, to, &s, part, false, err);
}

/* ---- the whole model ----------------------------------------------------------------- */

/* What the names of the language model begin with. */
static const char *const prefixes[] = {"model.", "language_model.model.",
                                       "model.language_model.", "backbone.", ""};
/* Its embedding. */
static const char *const embeddings[] = {"embed_tokens.weight", "embeddings.weight",
                                         "word_embeddings.weight", "embed.weight"};

/* The embedding, and what its name begins with; NULL: there is none. */
static const struct safe_tensor *find_embedding(const struct hf_folder *f,
                                                const char **prefix) {
    char name[64];
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        for (size_t k = 0; k < ARRAY_LEN(embeddings); k++) {
            snprintf(name, sizeof name, "%s%s", prefixes[i], embeddings[k]);
            const struct hf_tensor *t = hf_find(f, name);
            *prefix = prefixes[i];
            if (t)
                return t->t;
        }
    return NULL;
}

enum status hf_n_vocab(const struct hf_folder *f, uint32_t *out, struct err *err) {
    const char *prefix;
    const struct safe_tensor *t = find_embedding(f, &prefix);
    if (!t)
        return err_set(err, ST_BAD_INPUT, "%s: the tensor model.embed_tokens.weight is missing",
                       f->path);
    if (t->n_dims != 2 || t->dims[0] == 0 || t->dims[0] > (1u << 24))
        return hf_bad_shape(f, t->name, "expected [tokens, values]", err);
    *out = (uint32_t)t->dims[0];
    return ST_OK;
}

static enum status add_ends(struct hf_folder *f, const char *prefix, struct err *err) {
    static const struct hf_name begins[] = {
        {"token_embd.weight", "embed_tokens.weight", TAKE},
        {"token_embd.weight", "embeddings.weight", TAKE},
        {"token_embd.weight", "word_embeddings.weight", TAKE},
        {"token_embd.weight", "embed.weight", TAKE},
        {"output_norm.weight", "norm.weight", TAKE_NORM},
        {"output_norm.weight", "norm_f.weight", TAKE},
        {"token_embd_norm.weight", "embedding_norm.weight", TAKE},
        {"per_layer_token_embd.weight", "embed_tokens_per_layer.weight", TAKE},
        {"per_layer_model_proj.weight", "per_layer_model_projection.weight", TAKE},
        {"per_layer_proj_norm.weight", "per_layer_projection_norm.weight", TAKE}};
    static const struct hf_name heads[] = {
        {"output.weight", "lm_head.weight", TAKE},
        {"output.weight", "language_model.lm_head.weight", TAKE}};
    for (size_t i = 0; i < ARRAY_LEN(begins); i++)
        TRY(hf_add_named(f, begins[i].to, &begins[i], prefix, err));
    const json_t *tied = hf_value(f->config, "tie_word_embeddings");
    if (json_is_true(tied ? tied : hf_value(f->text, "tie_word_embeddings")))
        return ST_OK; /* some files hold the matrix twice */
    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        TRY(hf_add_named(f, heads[i].to, &heads[i], "", err));
    return ST_OK;
}

static enum status add_layer(struct hf_folder *f, const char *prefix, uint32_t layer,
                             struct err *err) {
    char from[64], to[GGUF_NAME_MAX + 1];
    snprintf(from, sizeof from, "%slayers.%u.", prefix, layer);
    for (size_t i = 0; i < FOLDER_MAX_LISTS; i++) {
        for (const struct hf_name *n = f->arch->names[i]; n && n->to; n++) {
            snprintf(to, sizeof to, "blk.%u.%s", layer, n->to);
            TRY(hf_add_named(f, to, n, from, err));
        }
    }
    return ST_OK;
}

/* The layer of a name; false: it is of none that the model has. */
static bool layer_of(const struct hf_folder *f, const char *prefix, const char *name) {
    char layers[64];
    snprintf(layers, sizeof layers, "%slayers.", prefix);
    if (!str_starts(name, layers))
        return false;
    return strtoul(name + strlen(layers), NULL, 10) < f->n_layers;
}

/* GPTQ and AWQ: NAME.qweight with NAME.qzeros and NAME.scales, in older folders without a word
 * of it in config.json. */
static enum status refuse(const struct hf_folder *f, const char *name, struct err *err) {
    char shown[200];
    gguf_escape((struct gguf_str){name, strlen(name)}, shown, sizeof shown);
    if (str_ends(name, ".qweight") || str_ends(name, ".qzeros") || str_ends(name, ".g_idx"))
        return err_set(
            err, ST_UNSUPPORTED,
            "%s: has the tensor %s: weights quantized by GPTQ or AWQ are not supported; take "
            "the original folder, or one in fp8, mxfp4 or MLX's groups",
            f->path, shown);
    return err_set(err, ST_UNSUPPORTED,
                   "%s: has the tensor %s, which lockstep does not know for model_type %s",
                   f->path, shown, f->arch->model_type);
}

static enum status check_unused(const struct hf_folder *f, const char *prefix,
                                struct err *err) {
    for (size_t i = 0; i < f->n_tensors; i++) {
        const char *name = f->tensors[i].t->name;
        if (f->tensors[i].used || !layer_of(f, prefix, name) ||
            str_ends(name, "rotary_emb.inv_freq") || str_ends(name, ".k_scale") ||
            str_ends(name, ".v_scale")) /* of a cache in FP8, which ours is not */
            continue;
        return refuse(f, name, err);
    }
    return ST_OK;
}

enum status hf_read_tensors(struct hf_folder *f, struct err *err) {
    const char *prefix;
    f->norms_plus_one =
        f->arch->norms_plus_one &&
        !((f->arch->layers == HF_DELTA || f->arch->layers == HF_OWN) && is_turned_by_mlx(f));
    find_embedding(f, &prefix);
    TRY(hf_n_vocab(f, &f->n_vocab, err));
    TRY(add_ends(f, prefix, err));
    TRY(hf_add_rope_factors(f, err));
    for (uint32_t l = 0; l < f->n_layers; l++)
        TRY(add_layer(f, prefix, l, err));
    if (f->arch->add)
        TRY(f->arch->add(f, prefix, err));
    return check_unused(f, prefix, err);
}
