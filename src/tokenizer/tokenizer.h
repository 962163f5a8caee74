/* tokenizer.h: text <-> token ids, as the model's GGUF says.
 *
 * Byte-level BPE (tokenizer.ggml.model = gpt2, the pre-tokenizer by tokenizer.ggml.pre) and
 * SentencePiece (llama). Works on vocabulary-only files. Any number of threads may use a const
 * struct tokenizer. It keeps no pointer into the GGUF.
 *
 * The tokens stand for exactly the given bytes, except where the model's own tokenizer brings text
 * into Unicode's form C first: Qwen's (pre-tokenizers qwen2 and qwen35), and a folder's whose
 * tokenizer.json says so. llama.cpp does not do that. */
#ifndef LOCKSTEP_TOKENIZER_TOKENIZER_H
#define LOCKSTEP_TOKENIZER_TOKENIZER_H

#include "base/status.h"
#include "format/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

enum status tokenizer_open(struct tokenizer **out, const struct gguf *g, struct err *err);
void tokenizer_close(struct tokenizer *t); /* NULL is fine */

#define TOKEN_NONE (-1)

struct tokenizer_facts {
    const char *model; /* "gpt2", "llama" */
    const char *pre;   /* the pre-tokenizer's name in the file, or a folder's; "": none */
    int32_t n_tokens;
    int32_t n_text;                  /* tokens from here on are padding: unused, all of them */
    int32_t bos, eos, eot, pad, unk; /* TOKEN_NONE if the file names none */
    bool add_bos, add_eos;
    const char *chat_template; /* the Jinja text, NULL if the file has none */
};
const struct tokenizer_facts *tokenizer_facts(const struct tokenizer *t);

/* True for every token that ends a turn: eos, eot, and the well-known ones (<|im_end|>,
 * <|eot_id|>, <|end_of_text|>, <|return|>, ...). The latter are found by name if they are
 * control or user-defined tokens. */
bool tokenizer_is_end(const struct tokenizer *t, int32_t id);
/* All of them; how many. */
size_t tokenizer_ends(const struct tokenizer *t, const int32_t **ids);
bool tokenizer_is_control(const struct tokenizer *t, int32_t id);
/* The id of the token that stands for exactly these bytes (" the", "<|im_end|>"), TOKEN_NONE if
 * it does not exist. */
int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len);

enum {
    TOKENIZE_BOS = 1,     /* add BOS/EOS if the file says so */
    TOKENIZE_SPECIAL = 2, /* special tokens in the text are recognized */
};

/* Any bytes, valid UTF-8 or not, never fail for their content. *ids is malloc'd, the
 * caller frees it (mem_free). ST_NO_MEMORY; ST_BAD_INPUT for a text over 2^31 bytes. */
enum status tokenize(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
                     int32_t **ids, size_t *n_ids, struct err *err);

/* A lower bound of the number of ids for a text of len bytes: len divided by the longest
 * token's bytes. The text is read only if this tokenizer drops spaces. 0: no bound is known. */
size_t tokenizer_least_ids(const struct tokenizer *t, const char *text, size_t len);

/* The raw bytes that a token stands for (may be part of a character); control tokens give
 * nothing unless special is true. Borrowed. Out of range: an empty string. */
struct gguf_str token_bytes(const struct tokenizer *t, int32_t id, bool special);

/* Streaming decode: bytes come out only as whole UTF-8 characters; invalid bytes become
 * U+FFFD. One per stream, no allocation. SentencePiece's leading space is dropped at the start. */
struct token_stream {
    const struct tokenizer *t;
    bool special;
    bool started;
    uint8_t held[4];
    uint8_t n_held;
};
void token_stream_init(struct token_stream *s, const struct tokenizer *t, bool special);
/* Writes at most cap bytes (cap >= tokenizer_max_token_bytes()). Returns the number of bytes
 * written, not NUL-terminated. */
size_t token_stream_put(struct token_stream *s, int32_t id, char *buf, size_t cap);
/* What is still held, as U+FFFD if it is half a character. cap >= 12. */
size_t token_stream_end(struct token_stream *s, char *buf, size_t cap);
/* A buffer of this size is always enough for token_stream_put(). */
size_t tokenizer_max_token_bytes(const struct tokenizer *t);

/* Whole text of ids. *text is malloc'd and NUL-terminated. */
enum status detokenize(const struct tokenizer *t, const int32_t *ids, size_t n, bool special,
                       char **text, size_t *len, struct err *err);

#endif
