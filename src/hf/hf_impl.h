/* hf_impl.h: shared declarations of the hf_*.c files, which open a folder. */
#ifndef LOCKSTEP_HF_HF_IMPL_H
#define LOCKSTEP_HF_HF_IMPL_H

#include "base/file_map.h"
#include "format/gguf_parse.h"
#include "format/gguf_write.h"
#include "format/rows.h"
#include "hf/safetensors.h"

#include <jansson.h>
#include <math.h>

/* One tensor of the folder. */
struct hf_tensor {
    const struct safe_tensor *t;
    uint32_t file;
    bool used;
};

struct hf_folder {
    const char *path;
    json_t *config; /* config.json */
    json_t *text;   /* of it, the language model's part (borrowed) */
    const struct hf_arch *arch;
    struct file_map *maps;   /* [n_files] */
    struct safe_file *files; /* [n_files] */
    uint32_t n_files;
    struct hf_tensor *tensors; /* [n_tensors], sorted by name */
    size_t n_tensors;
    struct gguf_writer *w;    /* keys, then tensors */
    struct tensor_rows *rows; /* [n_rows] of the tensors written, in order */
    size_t n_rows, cap_rows;
    void **owned; /* parts of rows, made values */
    size_t n_owned, cap_owned;
    uint32_t n_layers, n_experts, n_heads, n_kv_heads;
    uint32_t n_vocab; /* rows of the embedding, once the tensors are known */
    /* Value heads of delta nets, in tiles of one head (v_dim rows) each; first: the rows of
     * queries and keys, which stand before them in attn_qkv. */
    struct row_tiling v_heads;
    uint32_t n_groups;   /* of Mamba-2 */
    bool norms_plus_one; /* the architecture adds 1 to norms, and the folder has not yet */
};

/* A key of GGUF's and where config.json has its value. */
struct hf_key {
    const char *key;           /* behind "<arch>." */
    enum gguf_value_type type; /* GGUF_U32, GGUF_F32, GGUF_BOOL */
    const char *name;          /* with dots for objects in objects */
    const char *other;         /* where the first is not there; may be NULL */
    double fallback;           /* the model's own default; NAN: none, the key is left out */
};

/* What config.json may say only in one way. */
struct hf_must {
    const char *name;
    const char *text; /* NULL: a number, a bool, null or an empty list */
    double number;
};

/* A tensor's name and what becomes of it. */
enum hf_how {
    TAKE,           /* as it is */
    TAKE_HEADS,     /* query or key rows, whose halves some architectures interleave */
    TAKE_NORM,      /* a norm's weight, to which some architectures add 1 */
    TAKE_EVEN,      /* rows 0, 2, 4... */
    TAKE_ODD,       /* rows 1, 3, 5... */
    TAKE_FIRST,     /* the first half of the rows */
    TAKE_SECOND,    /* the second */
    TURN,           /* matrices stored by columns */
    TRANSPOSE_EVEN, /* the same, of every second row */
    TRANSPOSE_ODD,
    TRANSPOSE_FIRST, /* the same, of the first half of the rows */
    TRANSPOSE_SECOND,
    VALUES_EVEN, /* of each row, values 0, 2, 4... */
    VALUES_ODD,
    /* Delta nets, whose value heads some architectures tile (hf_folder.v_heads): */
    TAKE_QKV,    /* rows of queries and keys, then of value heads */
    TAKE_CONV,   /* the same, [channels, 1, taps], or MLX's [channels, taps, 1] */
    TAKE_V_ROWS, /* rows of value heads */
    TAKE_V_COLS, /* columns of value heads */
    TAKE_V_EACH, /* one row, or value, of each value head */
    TAKE_V_LOG,  /* the same, the logarithm of what is wanted, with the other sign */
    /* Mamba-2's vectors, which GGUF has as matrices: */
    TAKE_COLUMN,     /* a row for each value */
    TAKE_COLUMN_LOG, /* the same, the logarithm of what is wanted, with the other sign */
    TAKE_GROUPS,     /* a row for each group */
    TAKE_FLAT,       /* the other way round: a matrix, or a vector, becomes a vector */
};
struct hf_name {
    const char *to;   /* behind "blk.N." in a layer */
    const char *from; /* behind "model." or "model.layers.N."; %u stands for an expert */
    enum hf_how how;
};

/* How config.json says what each layer is. */
enum hf_layers {
    HF_WINDOWS, /* layer_types: full or sliding attention, as window_period says */
    HF_DELTA,   /* layer_types: delta nets but for every full_attention_interval-th */
    HF_CONV,    /* layer_types: attention or short convolutions */
    HF_MAMBA,   /* layer_types: attention or Mamba-2 */
    HF_BLOCKS,  /* hybrid_override_pattern: each layer is one block */
    HF_OWN,     /* hf_arch.put reads it */
};

#define FOLDER_MAX_LISTS 6
struct hf_arch {
    const char *model_type;                      /* in config.json */
    const char *arch;                            /* general.architecture */
    const struct hf_key *keys[FOLDER_MAX_LISTS]; /* each ends with a NULL key */
    const struct hf_must *musts[FOLDER_MAX_LISTS];
    const struct hf_name *names[FOLDER_MAX_LISTS];
    uint32_t window_period; /* layer_types: a window unless l % period == period - 1; 0: none */
    bool interleave_heads;  /* RoPE in pairs: GGUF's order of query and key rows */
    bool norms_plus_one;
    bool mla;
    enum hf_layers layers;
    bool tiled_heads;                         /* GGUF tiles the value heads of delta nets */
    bool no_experts;                          /* this row is for models without experts */
    bool sigmoid;                             /* of a router, where config.json does not say */
    bool own_gating;                          /* put writes which it is */
    uint32_t default_heads, default_kv_heads; /* where config.json names none; 0: it must */
    /* Keys that no table can say, and checks; NULL: none. */
    enum status (*put)(struct hf_folder *f, struct err *err);
    /* The same for tensors, whose names begin with prefix ("model."). */
    enum status (*add)(struct hf_folder *f, const char *prefix, struct err *err);
};
/* hf_archs.c */
extern const struct hf_arch hf_archs[];
extern const size_t n_folder_archs;
/* hf_layered_archs.c: those with put or add. */
extern const struct hf_arch hf_layered_archs[];
extern const size_t n_layered_archs;

/* hf_folder.c. A file of the folder, of at most max_bytes; ST_NOT_FOUND: it is missing. */
enum status hf_map(const struct hf_folder *f, const char *file, size_t max_bytes,
                   struct file_map *out, struct err *err);
enum status hf_json(const struct hf_folder *f, const char *file, size_t max_bytes, json_t **out,
                    struct err *err);
#define HF_POOLING_LAST 3 /* as GGUF has it */
/* A model for embeddings: the folder has sentence-transformers' list of modules. */
bool hf_embeds(const struct hf_folder *f);
struct hf_tensor *hf_find(const struct hf_folder *f, const char *name);
/* NULL if p is NULL, or no memory (p is freed). */
void *hf_own(struct hf_folder *f, void *p);
enum status hf_no_memory(const struct hf_folder *f, struct err *err);

/* hf_config.c. A value by its path ("a.b"); NULL if it is not there or null. */
const json_t *hf_value(const json_t *o, const char *path);
/* quantization_config, of the model or of its language model; NULL: none. */
const json_t *hf_quantization(const struct hf_folder *f);
/* A number of config.json; fallback where it is not there or null. ST_BAD_INPUT: it is something
 * else. */
enum status hf_u32_at(const struct hf_folder *f, const char *path, uint32_t fallback,
                      uint32_t *out, struct err *err);
enum status hf_f64_at(const struct hf_folder *f, const char *path, double fallback, double *out,
                      struct err *err);
/* ST_BAD_INPUT: what is there, and what was expected. */
enum status hf_wrong(const struct hf_folder *f, const char *path, const char *expected,
                     struct err *err);
/* Writes the key "<arch>.<name>". */
void hf_put_u32(struct hf_folder *f, const char *name, uint32_t v);
void hf_put_f32(struct hf_folder *f, const char *name, double v);
void hf_put_bool(struct hf_folder *f, const char *name, bool v);
void hf_put_str(struct hf_folder *f, const char *name, const char *v);
void hf_put_f32_array(struct hf_folder *f, const char *name, const float *v, size_t n);
void hf_put_i32_array(struct hf_folder *f, const char *name, const int32_t *v, size_t n);
/* A list with one of two words for each layer: out[n_layers] is 1 where it is the first one. */
enum status hf_read_words(const struct hf_folder *f, const char *name, const char *yes,
                          const char *no, int32_t *out, struct err *err);
/* Finds the architecture and writes its keys. */
enum status hf_read_config(struct hf_folder *f, struct err *err);

/* hf_layers.c. The keys that say what each layer is, once the heads are counted. */
enum status hf_put_layers(struct hf_folder *f, struct err *err);

/* hf_layered.c. A number for each layer; the folder owns it. */
int32_t *hf_of_layers(struct hf_folder *f);
/* A number that config.json must have. */
enum status hf_need_u32(const struct hf_folder *f, const char *name, uint32_t *out,
                        struct err *err);
/* What hf_arch.put is for the families of hf_layered_archs.c. */
enum status hf_put_gemma4(struct hf_folder *f, struct err *err);
enum status hf_put_gemma3n(struct hf_folder *f, struct err *err);
enum status hf_put_llama4(struct hf_folder *f, struct err *err);
enum status hf_put_kimi(struct hf_folder *f, struct err *err);
enum status hf_put_minimax_m3(struct hf_folder *f, struct err *err);
enum status hf_put_step35(struct hf_folder *f, struct err *err);
enum status hf_put_hunyuan(struct hf_folder *f, struct err *err);
enum status hf_put_bailing(struct hf_folder *f, struct err *err);
enum status hf_put_deepseek4(struct hf_folder *f, struct err *err);
enum status hf_put_mimo2(struct hf_folder *f, struct err *err);

/* hf_rope.c. The keys of RoPE, once the architecture and the number of heads are known. */
enum status hf_put_rope(struct hf_folder *f, struct err *err);
/* The base of a layer without a window: a number, or the first one of a list. */
enum status hf_rope_base(const struct hf_folder *f, double fallback, double *out,
                         struct err *err);
/* RoPE's frequency factors that config.json gives by numbers. */
enum status hf_add_rope_factors(struct hf_folder *f, struct err *err);

/* hf_tokenizer.c. Pads the vocabulary to n_vocab. */
enum status hf_read_tokenizer(struct hf_folder *f, uint32_t n_vocab, struct err *err);

/* hf_tiktoken.c. The tokens of FOLDER_TIKTOKEN, at most n_vocab, in the form of a
 * tokenizer.json without merges and pre_tokenizer. A token's id is its rank. settings:
 * tokenizer_config.json, or NULL. The caller owns *out. ST_NOT_FOUND: the file is missing. */
#define FOLDER_TIKTOKEN "tiktoken.model"
enum status hf_tiktoken(const struct hf_folder *f, const json_t *settings, uint32_t n_vocab,
                        json_t **out, struct err *err);

/* hf_sentencepiece.c. The pieces of FOLDER_PIECES, at most n_vocab, in the form of a
 * tokenizer.json without merges, and their types and scores [n_vocab]. settings:
 * tokenizer_config.json, or NULL. The caller owns *out. ST_NOT_FOUND: the file is missing. */
#define FOLDER_PIECES "tokenizer.model"
enum status hf_sentencepiece(const struct hf_folder *f, const json_t *settings,
                             uint32_t n_vocab, json_t **out, int32_t *type, float *score,
                             struct err *err);

/* Matrices of one kind: [n] of [rows, cols], rows as stored. */
struct hf_source {
    struct tensor_rows rows; /* parts: of the first matrix */
    struct rows_part first;
    enum qtype type;
    uint64_t n, n_rows, n_cols;
    uint64_t values_bytes, scales_bytes; /* from one matrix of a stack to the next */
    uint32_t elem_bytes;
    float scale; /* of the whole first matrix, which GGUF keeps beside it; 0: none */
    bool vector;
    bool refused_form; /* codes: values of a row cannot be picked */
};

/* hf_sources.c. Where a tensor's numbers are, and in which form. */
enum status hf_find_source(const struct hf_folder *f, const struct safe_tensor *t,
                           struct hf_source *s, struct err *err);
/* ST_BAD_INPUT: what is wrong with this tensor. */
enum status hf_bad_shape(const struct hf_folder *f, const char *name, const char *what,
                         struct err *err);

/* hf_tensors.c */
enum status hf_read_tensors(struct hf_folder *f, struct err *err);
/* Rows of the embedding. */
enum status hf_n_vocab(const struct hf_folder *f, uint32_t *out, struct err *err);
/* The tensor prefix + name->from, if it is there. */
enum status hf_add_named(struct hf_folder *f, const char *to, const struct hf_name *name,
                         const char *prefix, struct err *err);
/* NAME with a number for %u, n of them: one tensor of n matrices. Nothing, if the first is not
 * there. */
enum status hf_add_stack(struct hf_folder *f, const char *to, const struct hf_name *name,
                         const char *prefix, uint32_t n, struct err *err);
/* What hf_arch.add is for the families of hf_layered_archs.c. */
enum status hf_check_gemma4(struct hf_folder *f, const char *prefix, struct err *err);
enum status hf_add_gemma3n(struct hf_folder *f, const char *prefix, struct err *err);
enum status hf_add_kimi_k3(struct hf_folder *f, const char *prefix, struct err *err);
enum status hf_add_deepseek4(struct hf_folder *f, const char *prefix, struct err *err);
enum status hf_check_mimo2(struct hf_folder *f, const char *prefix, struct err *err);
/* A vector of the folder's own making; values are copied. */
enum status hf_add_vector(struct hf_folder *f, const char *to, const float *values, size_t n,
                          struct err *err);

#endif
