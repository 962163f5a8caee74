/* sentencepiece.c: reads the protocol buffer in tokenizer.model. Unknown fields are skipped. If
 * a field is repeated, the last value counts, as in any protocol buffer. */
#include "hf/sentencepiece.h"

#include "base/mem.h"
#include "base/util.h"

#include <math.h>

enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

struct field {
    uint32_t number;
    enum wire wire;
    uint64_t value;       /* VARINT, FIXED32 */
    struct gguf_str text; /* BYTES */
};

struct message {
    const uint8_t *at, *end;
};

static struct message message_of(struct gguf_str s) {
    const uint8_t *at = (const uint8_t *)s.ptr;
    return (struct message){at, at + s.len};
}

static bool get_varint(struct message *m, uint64_t *out) {
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        uint8_t byte = *m->at++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = v;
            return true;
        }
    }
    return false;
}

static bool get_bytes(struct message *m, uint64_t n, struct gguf_str *out) {
    if (n > (uint64_t)(m->end - m->at))
        return false;
    *out = (struct gguf_str){(const char *)m->at, (size_t)n};
    m->at += n;
    return true;
}

/* The next field of a message that has not ended. */
static bool get_field(struct message *m, struct field *f) {
    uint64_t tag, n = 0;
    *f = (struct field){0};
    if (!get_varint(m, &tag) || tag >> 3 == 0 || tag >> 3 > UINT32_MAX)
        return false;
    f->number = (uint32_t)(tag >> 3);
    f->wire = (enum wire)(tag & 7);
    switch (f->wire) {
    case VARINT:
        return get_varint(m, &f->value);
    case FIXED64:
        return get_bytes(m, 8, &f->text);
    case BYTES:
        return get_varint(m, &n) && get_bytes(m, n, &f->text);
    case FIXED32:
        if (!get_bytes(m, 4, &f->text))
            return false;
        for (int i = 3; i >= 0; i--)
            f->value = f->value << 8 | (uint8_t)f->text.ptr[i];
        return true;
    }
    return false; /* groups, which the format had once */
}

static enum status broken(struct err *err) {
    return err_set(err, ST_BAD_INPUT,
                   "is not a valid SentencePiece model: a field is broken or cut off");
}

static bool is(const struct field *f, uint32_t number, enum wire wire) {
    return f->number == number && f->wire == wire;
}

/* ---- ModelProto.SentencePiece ------------------------------------------------------------ */

static enum status read_piece(struct sp_model *out, struct gguf_str s, struct err *err) {
    struct message m = message_of(s);
    struct sp_piece p = {.type = 1};
    struct field f;
    while (m.at < m.end) {
        if (!get_field(&m, &f))
            return broken(err);
        if (is(&f, 1, BYTES)) {
            p.text = f.text;
        } else if (is(&f, 2, FIXED32)) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&p.score, &bits, sizeof p.score);
        } else if (is(&f, 3, VARINT)) {
            p.type = f.value <= 6 ? (int32_t)f.value : 0;
        }
    }
    if (p.text.len == 0 || memchr(p.text.ptr, '\0', p.text.len) != NULL)
        return err_set(err, ST_BAD_INPUT, "piece %zu has no text, or a zero byte in it",
                       out->n);
    if (p.type == 0 || !isfinite(p.score))
        return err_set(err, ST_BAD_INPUT, "piece %zu has a type or score that cannot be",
                       out->n);
    out->pieces[out->n++] = p;
    return ST_OK;
}

/* ---- the specifications ------------------------------------------------------------------ */

enum { UNIGRAM = 1, BPE = 2 };

static enum status read_trainer(uint64_t *kind, bool *bytes, bool *suffix, struct gguf_str s,
                                struct err *err) {
    struct message m = message_of(s);
    struct field f;
    while (m.at < m.end) {
        if (!get_field(&m, &f))
            return broken(err);
        if (is(&f, 3, VARINT))
            *kind = f.value;
        else if (is(&f, 24, VARINT))
            *suffix = f.value != 0;
        else if (is(&f, 35, VARINT))
            *bytes = f.value != 0;
    }
    return ST_OK;
}

static enum status read_normalizer(bool *map, bool *prefix, bool *trim, bool *escape,
                                   struct gguf_str s, struct err *err) {
    struct message m = message_of(s);
    struct field f;
    while (m.at < m.end) {
        if (!get_field(&m, &f))
            return broken(err);
        if (is(&f, 2, BYTES))
            *map = f.text.len != 0;
        else if (is(&f, 3, VARINT))
            *prefix = f.value != 0;
        else if (is(&f, 4, VARINT))
            *trim = f.value != 0;
        else if (is(&f, 5, VARINT))
            *escape = f.value != 0;
    }
    return ST_OK;
}

/* Defaults are the format's. */
static enum status read_model(struct sp_model *out, struct message m, struct err *err) {
    uint64_t kind = UNIGRAM;
    bool bytes = false, suffix = false, map = false, trim = true, escape = true;
    struct field f;
    out->space_prefix = true;
    while (m.at < m.end) {
        if (!get_field(&m, &f))
            return broken(err);
        if (is(&f, 1, BYTES))
            TRY(read_piece(out, f.text, err));
        else if (is(&f, 2, BYTES))
            TRY(read_trainer(&kind, &bytes, &suffix, f.text, err));
        else if (is(&f, 3, BYTES))
            TRY(read_normalizer(&map, &out->space_prefix, &trim, &escape, f.text, err));
    }
    if (out->n == 0)
        return err_set(err, ST_BAD_INPUT,
                       "is not a valid SentencePiece model: it has no pieces");
    if (kind != BPE)
        return err_set(err, ST_UNSUPPORTED,
                       "a SentencePiece model of kind %llu%s is not supported, "
                       "only BPE",
                       (unsigned long long)kind, kind == UNIGRAM ? " (unigram)" : "");
    if (!bytes)
        return err_set(err, ST_UNSUPPORTED,
                       "a SentencePiece model without byte_fallback is not supported");
    if (map || trim || !escape || suffix)
        return err_set(err, ST_UNSUPPORTED, "a SentencePiece model that %s is not supported",
                       map    ? "normalizes letters (precompiled_charsmap)"
                       : trim ? "drops spaces (remove_extra_whitespaces)"
                       : suffix
                           ? "keeps spaces at the end of words (treat_whitespace_as_suffix)"
                           : "does not write spaces as U+2581 (escape_whitespaces)");
    return ST_OK;
}

/* At most: fields of the outermost message that are pieces, or look like them. */
static size_t count_pieces(struct message m) {
    struct field f;
    size_t n = 0;
    while (m.at < m.end && get_field(&m, &f))
        n += is(&f, 1, BYTES);
    return n;
}

enum status sp_parse(struct sp_model *out, const uint8_t *bytes, size_t len, struct err *err) {
    struct message m = {bytes, bytes + len};
    struct sp_model model = {.n = 0};
    size_t n = count_pieces(m);
    if (n > SP_MAX_PIECES)
        return err_set(err, ST_BAD_INPUT, "has %zu pieces: at most %u are possible", n,
                       SP_MAX_PIECES);
    model.pieces = mem_calloc(MAX(n, (size_t)1), sizeof *model.pieces);
    if (model.pieces == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for %zu pieces", n);
    enum status st = read_model(&model, m, err);
    if (st == ST_OK)
        *out = model;
    else
        sp_deinit(&model);
    return st;
}

void sp_deinit(struct sp_model *m) {
    mem_free(m->pieces);
    *m = (struct sp_model){0};
}
