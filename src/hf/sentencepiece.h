/* sentencepiece.h: a SentencePiece model (tokenizer.model), from bytes to pieces.
 *
 * The file is a protocol buffer, ModelProto of sentencepiece_model.proto. It has the pieces
 * with score and type, how the model was trained, and how text is normalized before it is
 * split. Accepted are models that merge pieces by score, have a piece for every byte, and
 * change only spaces in the text: those of Llama, Mistral, Gemma and Phi-3. Pure: reads only
 * the bytes. */
#ifndef LOCKSTEP_HF_SENTENCEPIECE_H
#define LOCKSTEP_HF_SENTENCEPIECE_H

#include "base/status.h"
#include "format/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SP_MAX_PIECES (1u << 24)

struct sp_piece {
    struct gguf_str text; /* in the file's bytes; not empty, no NUL inside */
    float score;          /* finite */
    int32_t type;         /* 1 to 6, as tokenizer.ggml.token_type has them */
};

struct sp_model {
    struct sp_piece *pieces; /* [n] by id */
    size_t n;
    bool space_prefix; /* a text gets a space in front */
};

/* bytes are borrowed for the life of the pieces. ST_BAD_INPUT: broken; ST_UNSUPPORTED: a model of
 * another kind. The sentence does not name the file. */
enum status sp_parse(struct sp_model *out, const uint8_t *bytes, size_t len, struct err *err);
void sp_deinit(struct sp_model *m);

#endif
