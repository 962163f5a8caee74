/* vocab.h: the tokens of a model as bytes, read from its GGUF and checked.
 *
 * Inside the tokenizer a token is the bytes that it stands for. Byte-level BPE's alphabet
 * (U+0120 for a space ...) and SentencePiece's U+2581 are decoded here, once. Read-only after
 * vocab_init(), so any number of threads may use it. */
#ifndef LOCKSTEP_TOKENIZER_VOCAB_H
#define LOCKSTEP_TOKENIZER_VOCAB_H

#include "base/status.h"
#include "format/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vocab_kind {
    VOCAB_BPE,
    VOCAB_SPM,
    VOCAB_SPM_MERGES, /* SentencePiece's tokens, joined by merges as in BPE (Gemma 4) */
};

/* tokenizer.ggml.token_type */
enum token_type {
    TOKEN_UNDEFINED,
    TOKEN_NORMAL,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE,
    N_TOKEN_TYPES
};

#define TOKEN_MAX_BYTES 65536 /* of any token */

struct vocab_slot {
    uint32_t hash;
    int32_t id; /* -1: empty */
};

/* Bytes -> id, open addressing. */
struct vocab_map {
    struct vocab_slot *slots; /* [mask + 1] */
    size_t mask;
};

struct vocab_merge {
    int32_t left, right; /* left -1: empty */
    uint32_t rank;
    int32_t merged;
};

struct vocab {
    enum vocab_kind kind;
    int32_t n_tokens;
    char *bytes;                  /* all tokens one after the other */
    uint32_t *begin;              /* [n_tokens + 1] into bytes */
    uint8_t *type;                /* [n_tokens] enum token_type */
    uint32_t *priority;           /* [n_tokens] VOCAB_SPM: the higher the score, the lower */
    struct vocab_map text_ids;    /* tokens that text is made of */
    struct vocab_map special_ids; /* control, user-defined and unknown tokens */
    int32_t byte_id[256];         /* the token of one byte, -1 if it has none */
    struct vocab_merge *merges;   /* [merge_mask + 1] hashed by (left, right); NULL: none */
    size_t merge_mask;
    size_t max_token_bytes;
    bool words_are_apart; /* no token of text_ids has a space after another character */
    /* VOCAB_BPE without merges: any two that together are a token join, the lowest id first, as
     * tiktoken does. */
    bool by_rank;
};

/* v is all zero before. On failure nothing needs freeing. */
enum status vocab_init(struct vocab *v, enum vocab_kind kind, const struct gguf *g,
                       struct err *err);
void vocab_deinit(struct vocab *v);

static inline struct gguf_str vocab_token(const struct vocab *v, int32_t id) {
    return (struct gguf_str){v->bytes + v->begin[id], v->begin[id + 1] - v->begin[id]};
}

/* A token that stands for itself as a whole: split off before the rest is tokenized. */
static inline bool vocab_is_special(const struct vocab *v, int32_t id) {
    uint8_t type = v->type[id];
    return type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED || type == TOKEN_UNKNOWN;
}

/* Writes text to out (at least len bytes) with a space for each U+2581. SentencePiece reads
 * U+2581 as a space in texts as in its tokens. Returns the number of bytes. */
size_t vocab_spm_bytes(const char *text, size_t len, char *out);

/* The first token with these bytes, -1 if none has them. */
int32_t vocab_find(const struct vocab *v, const struct vocab_map *map, const char *bytes,
                   size_t len);

/* The merge of two tokens; NULL if they do not merge. */
const struct vocab_merge *vocab_find_merge(const struct vocab *v, int32_t left, int32_t right);

#endif
