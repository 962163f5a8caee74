/* hf_tiktoken.c: tiktoken.model, which Kimi K2 and Moonshot's other models have instead of
 * tokenizer.json.
 *
 * Each line has a token's bytes in base64 and its rank, which is its id. The file does not say
 * how text is split. Moonshot's Python class TikTokenTokenizer does, so no other class is
 * accepted. The ids after the last rank are special tokens, named by tokenizer_config.json or
 * "<|reserved_token_N|>". */
#include "base/mem.h"
#include "base/util.h"
#include "hf/hf_impl.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_BYTES ((size_t)64 << 20)
#define MAX_TOKEN 1024 /* bytes; Kimi K2's longest has 128 */
#define N_RESERVED 256 /* TikTokenTokenizer.num_reserved_special_tokens */
#define PYTHON_CLASS "TikTokenTokenizer"

static enum status bad_line(const struct hf_folder *f, size_t line, const char *what,
                            struct err *err) {
    return err_set(err, ST_BAD_INPUT, "%s/" FOLDER_TIKTOKEN ": line %zu: %s", f->path, line,
                   what);
}

/* Byte-level BPE's alphabet: a byte that prints is itself, the 68 others are U+0100 on, in
 * order. */
static size_t put_byte(uint8_t byte, char *out) {
    uint32_t c = byte;
    if (byte <= 0x20)
        c = 0x100u + byte;
    else if (byte >= 0x7f && byte <= 0xa0)
        c = 0x121u + byte - 0x7f;
    else if (byte == 0xad)
        c = 0x143;
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

/* "aGk= 123" into the vocabulary. */
static enum status add_line(const struct hf_folder *f, const char *s, size_t len, size_t line,
                            json_t *vocab, struct err *err) {
    uint8_t token[MAX_TOKEN];
    char text[2 * MAX_TOKEN + 1];
    const char *space = memchr(s, ' ', len);
    size_t n_token, n_digits = space ? (size_t)(s + len - space) - 1 : 0, at = 0;
    if (n_digits == 0 || n_digits > 9 || space == s)
        return bad_line(f, line, "expected a token in base64, a space and its rank", err);
    if (sodium_base642bin(token, sizeof token, s, (size_t)(space - s), NULL, &n_token, NULL,
                          sodium_base64_VARIANT_ORIGINAL) != 0 ||
        n_token == 0)
        return bad_line(f, line, "the token is not in base64, or longer than 1024 bytes", err);
    json_int_t rank = 0;
    for (const char *d = space + 1; d < s + len; d++) {
        if (*d < '0' || *d > '9')
            return bad_line(f, line, "the rank is not a number", err);
        rank = rank * 10 + (*d - '0');
    }
    for (size_t i = 0; i < n_token; i++)
        at += put_byte(token[i], text + at);
    text[at] = '\0';
    if (json_object_get(vocab, text))
        return bad_line(f, line, "the token is there already", err);
    if (json_object_set_new(vocab, text, json_integer(rank)) != 0)
        return hf_no_memory(f, err);
    return ST_OK;
}

static enum status read_ranks(const struct hf_folder *f, const struct file_map *m,
                              json_t *vocab, struct err *err) {
    const char *s = (const char *)m->bytes, *end = s + m->size;
    for (size_t line = 1; s < end; line++) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        size_t len = (size_t)((stop ? stop : end) - s);
        size_t n = len > 0 && s[len - 1] == '\r' ? len - 1 : len;
        if (n > 0)
            TRY(add_line(f, s, n, line, vocab, err));
        s += len + 1;
    }
    return ST_OK;
}

/* Ranks 0 to n-1 (that no two are equal is seen where ids become tokens), every byte among the
 * tokens. */
static enum status check_ranks(const struct hf_folder *f, const json_t *vocab, uint32_t n_vocab,
                               struct err *err) {
    size_t n = json_object_size(vocab);
    const char *text;
    json_t *rank;
    if (n > n_vocab)
        return err_set(err, ST_BAD_INPUT,
                       "%s/" FOLDER_TIKTOKEN ": has %zu tokens, but the embedding has %u rows",
                       f->path, n, n_vocab);
    json_object_foreach(
        (json_t *)vocab, text,
        rank) if ((size_t)json_integer_value(rank) >=
                  n) return err_set(err, ST_BAD_INPUT,
                                    "%s/" FOLDER_TIKTOKEN
                                    ": a token has the rank %lld, but there are %zu tokens",
                                    f->path, (long long)json_integer_value(rank), n);
    for (unsigned b = 0; b < 256; b++) {
        char one[3] = "";
        put_byte((uint8_t)b, one);
        if (!json_object_get(vocab, one))
            return err_set(err, ST_BAD_INPUT,
                           "%s/" FOLDER_TIKTOKEN ": no token is the byte 0x%02x alone", f->path,
                           b);
    }
    return ST_OK;
}

static enum status add_special(const struct hf_folder *f, json_t *list, size_t id,
                               const char *text, bool special, struct err *err) {
    json_t *t = json_pack("{s:I, s:s, s:b}", "id", (json_int_t)id, "content", text, "special",
                          (int)special);
    return json_array_append_new(list, t) == 0 ? ST_OK : hf_no_memory(f, err);
}

/* added_tokens_decoder: {"163584": {"content": "[BOS]", "special": true}, ...}; the ids that it
 * leaves out of the reserved ones get their names. */
static enum status add_specials(const struct hf_folder *f, const json_t *settings,
                                size_t n_ranks, uint32_t n_vocab, json_t *list,
                                struct err *err) {
    const json_t *decoder = json_object_get(settings, "added_tokens_decoder");
    const char *key;
    json_t *token;
    json_object_foreach((json_t *)decoder, key, token) {
        char *end;
        unsigned long id = strtoul(key, &end, 10);
        const char *text = json_string_value(json_object_get(token, "content"));
        if (*key < '0' || *key > '9' || *end != '\0' || id < n_ranks || id >= n_vocab ||
            !text || !*text)
            return err_set(
                err, ST_BAD_INPUT,
                "%s/tokenizer_config.json: added_tokens_decoder: an entry has no content, "
                "or its id is not one of %zu to %u",
                f->path, n_ranks, n_vocab - 1);
        TRY(add_special(f, list, id, text, json_is_true(json_object_get(token, "special")),
                        err));
    }
    for (size_t id = n_ranks; id < MIN(n_ranks + N_RESERVED, (size_t)n_vocab); id++) {
        char number[24], name[48];
        snprintf(number, sizeof number, "%zu", id);
        snprintf(name, sizeof name, "<|reserved_token_%zu|>", id);
        if (!json_object_get(decoder, number))
            TRY(add_special(f, list, id, name, true, err));
    }
    return ST_OK;
}

static enum status check_class(const struct hf_folder *f, const json_t *settings,
                               struct err *err) {
    const char *class = json_string_value(json_object_get(settings, "tokenizer_class"));
    char shown[64] = "missing";
    if (class && str_eq(class, PYTHON_CLASS))
        return ST_OK;
    if (class)
        gguf_escape((struct gguf_str){class, strlen(class)}, shown, sizeof shown);
    return err_set(
        err, ST_UNSUPPORTED,
        "%s/tokenizer_config.json: tokenizer_class is %s: lockstep knows how text is cut "
        "for " FOLDER_TIKTOKEN " only of " PYTHON_CLASS,
        f->path, shown);
}

enum status hf_tiktoken(const struct hf_folder *f, const json_t *settings, uint32_t n_vocab,
                        json_t **out, struct err *err) {
    struct file_map m;
    TRY(hf_map(f, FOLDER_TIKTOKEN, MAX_BYTES, &m, err));
    json_t *vocab = json_object(), *list = json_array();
    enum status st = check_class(f, settings, err);
    if (st == ST_OK)
        st = read_ranks(f, &m, vocab, err);
    if (st == ST_OK)
        st = check_ranks(f, vocab, n_vocab, err);
    if (st == ST_OK)
        st = add_specials(f, settings, json_object_size(vocab), n_vocab, list, err);
    file_map_close(&m);
    json_t *o = st != ST_OK ? NULL
                            : json_pack("{s:{s:s, s:O, s:[]}, s:O}", "model", "type", "BPE",
                                        "vocab", vocab, "merges", "added_tokens", list);
    json_decref(vocab);
    json_decref(list);
    if (st == ST_OK && !o)
        return hf_no_memory(f, err);
    if (st == ST_OK)
        *out = o;
    return st;
}
