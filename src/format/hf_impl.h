/* hf_impl.h: what the files of hf_*.c share while a folder is opened. */
#ifndef LOCKSTEP_FORMAT_HF_IMPL_H
#define LOCKSTEP_FORMAT_HF_IMPL_H

#include "format/gguf_parse.h"
#include "format/gguf_write.h"
#include "format/map.h"
#include "format/rows.h"
#include "format/safetensors.h"

#include <jansson.h>
#include <math.h>

/* One tensor of the folder. */
struct folder_tensor {
    const struct safe_tensor *t;
    uint32_t file;
    bool used;
};

struct folder {
    const char *path;
    json_t *config; /* config.json */
    json_t *text;   /* of it, the language model's part (borrowed) */
    const struct folder_arch *arch;
    struct file_map *maps;   /* [n_files] */
    struct safe_file *files; /* [n_files] */
    uint32_t n_files;
    struct folder_tensor *tensors; /* [n_tensors], sorted by name */
    size_t n_tensors;
    struct gguf_writer *w;    /* keys, then tensors */
    struct tensor_rows *rows; /* [n_rows] of the tensors written, in order */
    size_t n_rows, cap_rows;
    void **owned; /* parts of rows, made values */
    size_t n_owned, cap_owned;
    uint32_t n_layers, n_experts, n_heads, n_kv_heads;
};

/* A key of GGUF's and where config.json has its value. */
struct folder_key {
    const char *key;           /* behind "<arch>." */
    enum gguf_value_type type; /* GGUF_U32, GGUF_F32, GGUF_BOOL */
    const char *name;          /* with dots for objects in objects */
    const char *other;         /* where the first is not there; may be NULL */
    double fallback;           /* the model's own default; NAN: none, the key is left out */
};

/* What config.json may say only in one way. */
struct folder_must {
    const char *name;
    const char *text; /* NULL: a number, a bool, null or an empty list */
    double number;
};

/* A tensor's name and what becomes of it. */
enum folder_how {
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
    VALUES_EVEN, /* of each row, values 0, 2, 4... */
    VALUES_ODD,
};
struct folder_name {
    const char *to;   /* behind "blk.N." in a layer */
    const char *from; /* behind "model." or "model.layers.N."; %u stands for an expert */
    enum folder_how how;
};

#define FOLDER_MAX_LISTS 5
struct folder_arch {
    const char *model_type;                          /* in config.json */
    const char *arch;                                /* general.architecture */
    const struct folder_key *keys[FOLDER_MAX_LISTS]; /* each ends with a NULL key */
    const struct folder_must *musts[FOLDER_MAX_LISTS];
    const struct folder_name *names[FOLDER_MAX_LISTS];
    uint32_t window_period; /* layer_types: a window unless l % period == period - 1; 0: none */
    bool interleave_heads;  /* RoPE in pairs: GGUF's order of query and key rows */
    bool norms_plus_one;
    bool mla;
};
/* hf_archs.c */
extern const struct folder_arch folder_archs[];
extern const size_t n_folder_archs;

/* hf_folder.c. A file of the folder, of max_bytes at most; ST_NOT_FOUND: there is none. */
enum status folder_map(const struct folder *f, const char *file, size_t max_bytes,
                       struct file_map *out, struct err *err);
enum status folder_json(const struct folder *f, const char *file, size_t max_bytes,
                        json_t **out, struct err *err);
struct folder_tensor *folder_find(const struct folder *f, const char *name);
/* NULL if p is, or there is no memory (p is freed). */
void *folder_own(struct folder *f, void *p);
enum status folder_no_memory(const struct folder *f, struct err *err);

/* hf_config.c. A value by its path ("a.b"); NULL if it is not there or null. */
const json_t *folder_value(const json_t *o, const char *path);
/* A number of config.json; fallback where it is not there or null. ST_BAD_INPUT: it is something
 * else. */
enum status folder_u32_at(const struct folder *f, const char *path, uint32_t fallback,
                          uint32_t *out, struct err *err);
enum status folder_f64_at(const struct folder *f, const char *path, double fallback,
                          double *out, struct err *err);
/* ST_BAD_INPUT: what is there, and what was expected. */
enum status folder_wrong(const struct folder *f, const char *path, const char *expected,
                         struct err *err);
/* Writes the key "<arch>.<name>". */
void folder_put_u32(struct folder *f, const char *name, uint32_t v);
void folder_put_f32(struct folder *f, const char *name, double v);
void folder_put_bool(struct folder *f, const char *name, bool v);
void folder_put_str(struct folder *f, const char *name, const char *v);
/* Finds the architecture and writes its keys. */
enum status folder_read_config(struct folder *f, struct err *err);

/* hf_rope.c. The keys of RoPE, once the architecture and the number of heads are known. */
enum status folder_put_rope(struct folder *f, struct err *err);
/* RoPE's frequency factors that config.json gives by numbers. */
enum status folder_add_rope_factors(struct folder *f, struct err *err);

/* hf_tokenizer.c. Pads the vocabulary to n_vocab. */
enum status folder_read_tokenizer(struct folder *f, uint32_t n_vocab, struct err *err);

/* hf_tiktoken.c. The tokens of FOLDER_TIKTOKEN, n_vocab at most, in the form of a
 * tokenizer.json without merges and pre_tokenizer; a token's id is its rank. settings:
 * tokenizer_config.json, or NULL. The caller owns *out. ST_NOT_FOUND: there is no such file. */
#define FOLDER_TIKTOKEN "tiktoken.model"
enum status folder_tiktoken(const struct folder *f, const json_t *settings, uint32_t n_vocab,
                            json_t **out, struct err *err);

/* hf_sentencepiece.c. The pieces of FOLDER_PIECES, n_vocab at most, in the form of a
 * tokenizer.json without merges, and their types and scores [n_vocab]. settings:
 * tokenizer_config.json, or NULL. The caller owns *out. ST_NOT_FOUND: there is no such file. */
#define FOLDER_PIECES "tokenizer.model"
enum status folder_sentencepiece(const struct folder *f, const json_t *settings,
                                 uint32_t n_vocab, json_t **out, int32_t *type, float *score,
                                 struct err *err);

/* hf_tensors.c */
enum status folder_read_tensors(struct folder *f, struct err *err);
/* Rows of the embedding. */
enum status folder_n_vocab(const struct folder *f, uint32_t *out, struct err *err);
/* A vector of the folder's own making; values are copied. */
enum status folder_add_vector(struct folder *f, const char *to, const float *values, size_t n,
                              struct err *err);

#endif
