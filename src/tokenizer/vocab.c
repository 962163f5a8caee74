/* vocab.c: reads tokenizer.ggml.{tokens,token_type,scores,merges}. It refuses invalid data,
 * naming the key and the element. */
#include "tokenizer/vocab.h"

#include "base/hex.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "base/util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_TYPES "tokenizer.ggml.token_type"
#define KEY_SCORES "tokenizer.ggml.scores"
#define KEY_MERGES "tokenizer.ggml.merges"
#define KEY_BY_RANK "tokenizer.lockstep.by_rank"

#define MAX_TOKENS (1 << 24)
#define MAX_MERGES (1 << 25)

/* --- hashing --- */

static uint64_t load_tail(const char *s, size_t n) {
    uint64_t x = 0;
    memcpy(&x, s, n);
    return x;
}

static uint32_t hash_bytes(const char *s, size_t n) {
    const uint64_t k = 0x9e3779b97f4a7c15u;
    uint64_t h = n * k;
    while (n >= 8) {
        h = (h ^ load_tail(s, 8)) * k;
        h ^= h >> 32;
        s += 8;
        n -= 8;
    }
    h = (h ^ load_tail(s, n)) * k;
    return (uint32_t)(h >> 32);
}

static size_t hash_pair(int32_t left, int32_t right) {
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    return (size_t)(h ^ h >> 29) * 0xbf58476d1ce4e5b9u >> 20;
}

/* The smallest power of two that leaves at least half of the slots empty. */
static size_t slots_for(size_t n) {
    size_t size = 16;
    while (size < 2 * n)
        size *= 2;
    return size;
}

/* --- bytes to id --- */

static bool map_init(struct vocab_map *map, size_t n) {
    size_t size = slots_for(n);
    map->slots = mem_alloc(size * sizeof *map->slots);
    if (map->slots == NULL)
        return false;
    map->mask = size - 1;
    for (size_t i = 0; i < size; i++)
        map->slots[i].id = -1;
    return true;
}

/* The slot with these bytes, or the empty one where they belong. */
static struct vocab_slot *map_slot(const struct vocab *v, const struct vocab_map *map,
                                   uint32_t hash, const char *bytes, size_t len) {
    for (size_t i = hash & map->mask;; i = (i + 1) & map->mask) {
        struct vocab_slot *slot = &map->slots[i];
        if (slot->id < 0)
            return slot;
        if (slot->hash != hash)
            continue;
        struct gguf_str token = vocab_token(v, slot->id);
        if (token.len == len && memcmp(token.ptr, bytes, len) == 0)
            return slot;
    }
}

int32_t vocab_find(const struct vocab *v, const struct vocab_map *map, const char *bytes,
                   size_t len) {
    return map_slot(v, map, hash_bytes(bytes, len), bytes, len)->id;
}

/* The first of several equal tokens stays. */
static void map_add(const struct vocab *v, struct vocab_map *map, int32_t id) {
    struct gguf_str token = vocab_token(v, id);
    if (token.len == 0)
        return;
    uint32_t hash = hash_bytes(token.ptr, token.len);
    struct vocab_slot *slot = map_slot(v, map, hash, token.ptr, token.len);
    if (slot->id < 0)
        *slot = (struct vocab_slot){hash, id};
}

/* --- what a token's text stands for --- */

/* Byte-level BPE writes each byte as a printable character. A byte that is printable (! to ~,
 * U+A1 to U+AC, U+AE to U+FF) stands for itself. The 68 others become U+0100 and up, in order.
 */
static int byte_of_char(uint32_t c) {
    if ((c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xff && c != 0xad))
        return (int)c;
    if (c < 0x100 || c >= 0x144)
        return -1;
    uint32_t n = c - 0x100; /* 0x00-0x20, 0x7f-0xa0, 0xad */
    return (int)(n < 0x21 ? n : n < 0x43 ? n - 0x21 + 0x7f : 0xad);
}

/* Characters outside that alphabet stand for themselves. Never longer than the text. */
static size_t bpe_bytes(const char *text, size_t len, char *out) {
    const uint8_t *s = (const uint8_t *)text;
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        int n_char = utf8_check(s + i, len - i);
        int byte = n_char > 0 ? byte_of_char(utf8_decode(s + i, n_char)) : -1;
        size_t step = n_char > 0 ? (size_t)n_char : 1;
        if (byte >= 0) {
            out[n++] = (char)byte;
        } else {
            memcpy(out + n, s + i, step);
            n += step;
        }
        i += step;
    }
    return n;
}

size_t vocab_spm_bytes(const char *text, size_t len, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        if (len - i >= 3 && memcmp(text + i, "\xe2\x96\x81", 3) == 0) {
            out[n++] = ' ';
            i += 3;
        } else {
            out[n++] = text[i++];
        }
    }
    return n;
}

/* <0x0A> -> 10; -1 if the text is not of this form. */
static int byte_of_text(struct gguf_str text) {
    if (text.len != 6 || memcmp(text.ptr, "<0x", 3) != 0 || text.ptr[5] != '>')
        return -1;
    int high = hex_digit(text.ptr[3]), low = hex_digit(text.ptr[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Writes the bytes of token id to out (at least text.len bytes); returns how many. */
static size_t token_to_bytes(struct vocab *v, int32_t id, struct gguf_str text, char *out) {
    if (vocab_is_special(v, id)) {
        memcpy(out, text.ptr, text.len);
        return text.len;
    }
    if (v->kind == VOCAB_BPE)
        return bpe_bytes(text.ptr, text.len, out);
    int byte = v->type[id] == TOKEN_BYTE ? byte_of_text(text) : -1;
    if (byte < 0)
        return vocab_spm_bytes(text.ptr, text.len, out);
    out[0] = (char)byte;
    if (v->byte_id[byte] < 0)
        v->byte_id[byte] = id;
    return 1;
}

/* --- reading --- */

static bool is_integer(enum gguf_value_type type) {
    return type != GGUF_F32 && type != GGUF_F64 && type != GGUF_BOOL && type != GGUF_STRING &&
           type != GGUF_ARRAY;
}

static enum status read_types(struct vocab *v, const struct gguf *g, struct err *err) {
    struct gguf_array types;
    enum status st = gguf_array(g, KEY_TYPES, &types, err);
    if (st == ST_NOT_FOUND) {
        memset(v->type, TOKEN_NORMAL, (size_t)v->n_tokens);
        return ST_OK;
    }
    TRY(st);
    if (!is_integer(types.type))
        return err_set(err, ST_BAD_INPUT, KEY_TYPES ": the elements must be integers");
    if (types.n != (size_t)v->n_tokens)
        return err_set(err, ST_BAD_INPUT, KEY_TYPES ": %zu types for %d tokens", types.n,
                       v->n_tokens);
    for (int32_t i = 0; i < v->n_tokens; i++) {
        int64_t type = gguf_array_int(&types, (size_t)i);
        if (type < 0 || type >= N_TOKEN_TYPES)
            return err_set(err, ST_BAD_INPUT,
                           KEY_TYPES ": token %d has type %lld, only 0 to %d are known", i,
                           (long long)type, N_TOKEN_TYPES - 1);
        v->type[i] = (uint8_t)type;
    }
    return ST_OK;
}

static enum status read_tokens(struct vocab *v, const struct gguf *g, struct err *err) {
    struct gguf_array tokens;
    enum status st = gguf_array(g, KEY_TOKENS, &tokens, err);
    if (st == ST_NOT_FOUND)
        return err_set(err, ST_BAD_INPUT, KEY_TOKENS " is missing: the file has no vocabulary");
    TRY(st);
    if (tokens.type != GGUF_STRING)
        return err_set(err, ST_BAD_INPUT, KEY_TOKENS ": the elements must be strings");
    if (tokens.n == 0)
        return err_set(err, ST_BAD_INPUT, KEY_TOKENS ": the vocabulary is empty");
    if (tokens.n > MAX_TOKENS)
        return err_set(err, ST_BAD_INPUT, KEY_TOKENS ": %zu tokens, at most %d are possible",
                       tokens.n, MAX_TOKENS);
    size_t total = 0;
    for (size_t i = 0; i < tokens.n; i++) {
        if (tokens.strs[i].len > TOKEN_MAX_BYTES)
            return err_set(err, ST_BAD_INPUT,
                           KEY_TOKENS ": token %zu has %zu bytes, at most %d are possible", i,
                           tokens.strs[i].len, TOKEN_MAX_BYTES);
        total += tokens.strs[i].len;
    }
    if (total > UINT32_MAX)
        return err_set(err, ST_BAD_INPUT, KEY_TOKENS ": %zu bytes of tokens, at most 4 GiB",
                       total);

    v->n_tokens = (int32_t)tokens.n;
    v->bytes = mem_alloc(total);
    v->begin = mem_calloc(tokens.n + 1, sizeof *v->begin);
    v->type = mem_alloc(tokens.n);
    if (v->bytes == NULL || v->begin == NULL || v->type == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for %zu tokens", tokens.n);
    TRY(read_types(v, g, err));

    size_t at = 0;
    for (int32_t i = 0; i < v->n_tokens; i++) {
        size_t len = token_to_bytes(v, i, tokens.strs[i], v->bytes + at);
        at += len;
        v->begin[i + 1] = (uint32_t)at;
        v->max_token_bytes = MAX(v->max_token_bytes, len);
    }
    return ST_OK;
}

static bool has_inner_space(struct gguf_str token) {
    for (size_t i = 1; i < token.len; i++)
        if (token.ptr[i] == ' ' && token.ptr[i - 1] != ' ')
            return true;
    return false;
}

/* Whether text may become this token, if it is not special. */
static bool is_text(const struct vocab *v, int32_t id) {
    if (v->by_rank)
        return v->type[id] == TOKEN_NORMAL;
    return v->kind == VOCAB_BPE || v->type[id] != TOKEN_BYTE;
}

static enum status index_tokens(struct vocab *v, struct err *err) {
    size_t n_special = 0;
    for (int32_t i = 0; i < v->n_tokens; i++)
        n_special += vocab_is_special(v, i);
    if (!map_init(&v->text_ids, (size_t)v->n_tokens) || !map_init(&v->special_ids, n_special))
        return err_set(err, ST_NO_MEMORY, "no memory for an index of %d tokens", v->n_tokens);
    v->words_are_apart = true;
    for (int32_t i = 0; i < v->n_tokens; i++) {
        if (vocab_is_special(v, i)) {
            map_add(v, &v->special_ids, i);
        } else if (is_text(v, i)) {
            map_add(v, &v->text_ids, i);
            v->words_are_apart = v->words_are_apart && !has_inner_space(vocab_token(v, i));
        }
    }
    if (v->kind == VOCAB_BPE) {
        /* A user-defined token may also be what merges lead to. */
        for (int32_t i = 0; i < v->n_tokens; i++)
            if (v->type[i] == TOKEN_USER_DEFINED && !v->by_rank)
                map_add(v, &v->text_ids, i);
        for (int b = 0; b < 256; b++)
            v->byte_id[b] = vocab_find(v, &v->text_ids, &(char){(char)b}, 1);
    }
    return ST_OK;
}

/* Floats in descending order become integers in ascending order. */
static uint32_t priority_of_score(double score) {
    float f = (float)score;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return ~ascending;
}

static enum status read_scores(struct vocab *v, const struct gguf *g, struct err *err) {
    struct gguf_array scores;
    enum status st = gguf_array(g, KEY_SCORES, &scores, err);
    if (st == ST_NOT_FOUND)
        return err_set(err, ST_BAD_INPUT,
                       KEY_SCORES " is missing: a SentencePiece vocabulary needs scores");
    TRY(st);
    if (scores.type != GGUF_F32 && scores.type != GGUF_F64 && !is_integer(scores.type))
        return err_set(err, ST_BAD_INPUT, KEY_SCORES ": the elements must be numbers");
    if (scores.n != (size_t)v->n_tokens)
        return err_set(err, ST_BAD_INPUT, KEY_SCORES ": %zu scores for %d tokens", scores.n,
                       v->n_tokens);
    v->priority = mem_alloc(scores.n * sizeof *v->priority);
    if (v->priority == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for %zu scores", scores.n);
    for (size_t i = 0; i < scores.n; i++) {
        double score = is_integer(scores.type) ? (double)gguf_array_int(&scores, i)
                                               : gguf_array_float(&scores, i);
        if (isnan(score))
            return err_set(err, ST_BAD_INPUT, KEY_SCORES ": the score of token %zu is NaN", i);
        v->priority[i] = priority_of_score(score);
    }
    return ST_OK;
}

static struct vocab_merge *merge_slot(const struct vocab *v, int32_t left, int32_t right) {
    for (size_t i = hash_pair(left, right) & v->merge_mask;; i = (i + 1) & v->merge_mask) {
        struct vocab_merge *m = &v->merges[i];
        if (m->left < 0 || (m->left == left && m->right == right))
            return m;
    }
}

const struct vocab_merge *vocab_find_merge(const struct vocab *v, int32_t left, int32_t right) {
    if (left < 0 || right < 0)
        return NULL;
    const struct vocab_merge *m = merge_slot(v, left, right);
    return m->left < 0 ? NULL : m;
}

/* "left right" as tokens are written; the first space after the first byte separates them. A
 * merge whose parts or result are not tokens can never be applied and is left out. Vocabularies
 * that were reduced have such merges. */
static enum status add_merge(struct vocab *v, size_t rank, struct gguf_str text, char *buf,
                             struct err *err) {
    const char *space = text.len < 2 ? NULL : memchr(text.ptr + 1, ' ', text.len - 1);
    if (space == NULL || space + 1 == text.ptr + text.len)
        return err_set(err, ST_BAD_INPUT,
                       KEY_MERGES ": merge %zu is not two parts with a space between", rank);
    size_t (*undo)(const char *text, size_t len, char *out) =
        v->kind == VOCAB_BPE ? bpe_bytes : vocab_spm_bytes;
    size_t n_left = undo(text.ptr, (size_t)(space - text.ptr), buf);
    size_t n_right = undo(space + 1, (size_t)(text.ptr + text.len - space - 1), buf + n_left);
    int32_t left = vocab_find(v, &v->text_ids, buf, n_left);
    int32_t right = vocab_find(v, &v->text_ids, buf + n_left, n_right);
    int32_t merged = vocab_find(v, &v->text_ids, buf, n_left + n_right);
    if (left < 0 || right < 0 || merged < 0)
        return ST_OK;
    struct vocab_merge *m = merge_slot(v, left, right);
    if (m->left < 0)
        *m = (struct vocab_merge){left, right, (uint32_t)rank, merged};
    return ST_OK;
}

static enum status read_merges(struct vocab *v, const struct gguf *g, struct err *err) {
    struct gguf_array merges;
    enum status st = gguf_array(g, KEY_MERGES, &merges, err);
    if (st == ST_NOT_FOUND)
        return err_set(err, ST_BAD_INPUT,
                       KEY_MERGES " is missing: a BPE vocabulary needs merges");
    TRY(st);
    if (merges.type != GGUF_STRING)
        return err_set(err, ST_BAD_INPUT, KEY_MERGES ": the elements must be strings");
    if (merges.n > MAX_MERGES)
        return err_set(err, ST_BAD_INPUT, KEY_MERGES ": %zu merges, at most %d are possible",
                       merges.n, MAX_MERGES);
    size_t n_slots = slots_for(merges.n);
    v->merges = mem_alloc(n_slots * sizeof *v->merges);
    if (v->merges == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for %zu merges", merges.n);
    v->merge_mask = n_slots - 1;
    for (size_t i = 0; i < n_slots; i++)
        v->merges[i].left = -1;

    char *buf = mem_alloc(2 * TOKEN_MAX_BYTES);
    if (buf == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for the merges");
    st = ST_OK;
    for (size_t i = 0; i < merges.n && st == ST_OK; i++) {
        if (merges.strs[i].len > 2 * TOKEN_MAX_BYTES)
            st = err_set(err, ST_BAD_INPUT, KEY_MERGES ": merge %zu has %zu bytes", i,
                         merges.strs[i].len);
        else
            st = add_merge(v, i, merges.strs[i], buf, err);
    }
    mem_free(buf);
    return st;
}

static enum status vocab_read(struct vocab *v, const struct gguf *g, struct err *err) {
    TRY(read_tokens(v, g, err));
    if (v->kind == VOCAB_BPE) {
        enum status st = gguf_bool(g, KEY_BY_RANK, &v->by_rank, err);
        if (st != ST_OK && st != ST_NOT_FOUND)
            return st;
    }
    TRY(index_tokens(v, err));
    if (v->by_rank)
        return ST_OK;
    return v->kind == VOCAB_SPM ? read_scores(v, g, err) : read_merges(v, g, err);
}

enum status vocab_init(struct vocab *v, enum vocab_kind kind, const struct gguf *g,
                       struct err *err) {
    v->kind = kind;
    for (int b = 0; b < 256; b++)
        v->byte_id[b] = -1;
    enum status st = vocab_read(v, g, err);
    if (st != ST_OK)
        vocab_deinit(v);
    return st;
}

void vocab_deinit(struct vocab *v) {
    mem_free(v->bytes);
    mem_free(v->begin);
    mem_free(v->type);
    mem_free(v->priority);
    mem_free(v->text_ids.slots);
    mem_free(v->special_ids.slots);
    mem_free(v->merges);
    *v = (struct vocab){0};
}
