/* encode.c: text to ids.
 *
 * Special tokens are split off first. For BPE, the text between them goes through the
 * pre-tokenizer, and each word through the merges. For SentencePiece, it goes through the
 * merges as a whole. Bytes that are not valid UTF-8 are words of their own, and each becomes
 * the token of its byte. So nothing is lost. */
#include "base/mem.h"
#include "base/utf8.h"
#include "base/util.h"
#include "tokenizer/merge.h"
#include "tokenizer/normalize.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_impl.h"

/* Words come again: where in the output the ids of a recent word are. Worth its memory only
 * for texts that are not tiny. */
#define CACHE_SIZE 8192
#define CACHE_WORD_MAX 64
#define CACHE_FROM_BYTES 2048

struct cached_word {
    const char *text; /* in the caller's text or a normalized one, NULL: empty */
    uint32_t len, n_ids;
    size_t first_id;
};

/* One call of tokenize(). */
struct token_run {
    const struct tokenizer *t;
    const char *text; /* the caller's, as a whole */
    struct merger merger;
    struct splitter *splitter;
    struct cached_word *cache; /* [CACHE_SIZE] or NULL */
    char *undone; /* the text with U+2581 undone, where runs of spaces are tokens; or NULL */
    char *spaced; /* SentencePiece: the text with U+2581 undone and spaces in front */
    size_t n_spaced;
    char **normal; /* BPE: what normalizing made of pieces, for the cache */
    size_t n_normal, cap_normal;
    int32_t *ids;
    size_t n_ids, cap;
};

static enum status put_id(struct token_run *r, int32_t id) {
    if (!mem_reserve(&r->ids, &r->cap, r->n_ids + 1, sizeof *r->ids))
        return ST_NO_MEMORY;
    r->ids[r->n_ids++] = id;
    return ST_OK;
}

/* A symbol that no token stands for: its bytes, or the unknown token, or nothing. */
static enum status put_unknown(struct token_run *r, const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        int32_t id = r->t->v.byte_id[(uint8_t)text[i]];
        if (id >= 0)
            TRY(put_id(r, id));
        else if (r->t->facts.unk != TOKEN_NONE)
            return put_id(r, r->t->facts.unk);
    }
    return ST_OK;
}

static enum status put_merged(struct token_run *r, const char *text, size_t len) {
    TRY(merge_word(&r->merger, text, len));
    for (int32_t i = 0; i >= 0; i = r->merger.symbols[i].next) {
        const struct merge_symbol *s = &r->merger.symbols[i];
        TRY(s->id >= 0 ? put_id(r, s->id) : put_unknown(r, text + s->begin, s->len));
    }
    return ST_OK;
}

static struct cached_word *cache_slot(struct token_run *r, const char *text, size_t len) {
    uint64_t h = len;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (uint8_t)text[i]) * 0x100000001b3u;
    return &r->cache[(h ^ h >> 29) % CACHE_SIZE];
}

static enum status put_cached(struct token_run *r, const char *text, size_t len) {
    struct cached_word *slot = cache_slot(r, text, len);
    if (slot->text != NULL && slot->len == len && memcmp(slot->text, text, len) == 0) {
        for (uint32_t i = 0; i < slot->n_ids; i++)
            TRY(put_id(r, r->ids[slot->first_id + i]));
        return ST_OK;
    }
    size_t first = r->n_ids;
    TRY(put_merged(r, text, len));
    *slot = (struct cached_word){text, (uint32_t)len, (uint32_t)(r->n_ids - first), first};
    return ST_OK;
}

static enum status put_word(void *arg, const char *text, size_t len) {
    struct token_run *r = arg;
    if (r->t->ignore_merges) {
        int32_t id = vocab_find(&r->t->v, &r->t->v.text_ids, text, len);
        if (id >= 0)
            return put_id(r, id);
    }
    if (r->cache != NULL && len <= CACHE_WORD_MAX)
        return put_cached(r, text, len);
    return put_merged(r, text, len);
}

/* Valid text. What normalizing makes of it stays until the end. */
static enum status put_valid(struct token_run *r, const char *text, size_t len) {
    char *normal = NULL;
    size_t n = 0;
    if (r->t->nfc)
        TRY(normalize_nfc(text, len, &normal, &n));
    if (normal == NULL)
        return splitter_run(r->splitter, text, len, put_word, r);
    if (!mem_reserve(&r->normal, &r->cap_normal, r->n_normal + 1, sizeof *r->normal)) {
        mem_free(normal);
        return ST_NO_MEMORY;
    }
    r->normal[r->n_normal++] = normal;
    return splitter_run(r->splitter, normal, n, put_word, r);
}

static enum status put_text_bpe(struct token_run *r, const char *text, size_t len) {
    const uint8_t *s = (const uint8_t *)text;
    for (size_t i = 0; i < len;) {
        size_t n = utf8_valid_prefix(s + i, len - i);
        if (n > 0)
            TRY(put_valid(r, text + i, n));
        i += n;
        for (n = 0; i + n < len && utf8_check(s + i + n, len - i - n) <= 0;)
            n++;
        if (n > 0)
            TRY(put_merged(r, text + i, n));
        i += n;
    }
    return ST_OK;
}

/* Merges never join a space to the text before it, unless the vocabulary has such a token. So
 * words can be merged one by one, and looked up in the cache. */
static enum status put_words_spm(struct token_run *r, const char *text, size_t len) {
    size_t begin = 0;
    for (size_t i = 1; i < len; i++)
        if (r->t->v.words_are_apart && text[i] == ' ' && text[i - 1] != ' ') {
            TRY(put_word(r, text + begin, i - begin));
            begin = i;
        }
    return put_word(r, text + begin, len - begin);
}

/* The words of a vocabulary with merges are runs of line ends and what lies between. A run that is
 * a token is taken as such. */
static enum status put_lines(struct token_run *r, const char *text, size_t len) {
    for (size_t i = 0, n; i < len; i += n) {
        const bool ends = text[i] == '\n';
        for (n = 1; i + n < len && (text[i + n] == '\n') == ends;)
            n++;
        int32_t id = ends ? vocab_find(&r->t->v, &r->t->v.text_ids, text + i, n) : -1;
        TRY(id >= 0 ? put_id(r, id) : put_words_spm(r, text + i, n));
    }
    return ST_OK;
}

static bool begins_with_space(const char *text, size_t len) {
    char first[3]; /* U+2581 */
    return vocab_spm_bytes(text, MIN(len, sizeof first), first) > 0 && first[0] == ' ';
}

static bool wants_prefix(const struct token_run *r, const char *text, size_t len) {
    const struct tokenizer *t = r->t;
    return t->add_space_prefix && !(t->prefix_unless_space && begins_with_space(text, len)) &&
           !(t->prefix_first && text != r->text);
}

/* A piece begins the text or follows a special token, so each gets the space in front that
 * the vocabulary may ask for. */
static enum status put_text_spm(struct token_run *r, const char *text, size_t len) {
    char *out = r->spaced + r->n_spaced;
    size_t n = 0;
    if (wants_prefix(r, text, len))
        out[n++] = ' ';
    n += vocab_spm_bytes(text, len, out + n);
    r->n_spaced += n;
    return r->t->v.kind == VOCAB_SPM ? put_words_spm(r, out, n) : put_lines(r, out, n);
}

static enum status put_text(struct token_run *r, const char *text, size_t len) {
    if (len == 0)
        return ST_OK;
    return r->t->v.kind == VOCAB_BPE ? put_text_bpe(r, text, len) : put_text_spm(r, text, len);
}

static bool strips(const struct tokenizer *t, int32_t id, int side) {
    return t->strips != NULL && id >= 0 && (t->strips[id] & side) != 0;
}

/* Unicode's White_Space, which is what the models' own tokenizers strip. */
static bool is_space(uint32_t c) {
    return c == ' ' || (c >= '\t' && c <= '\r') || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* The length of the space at the beginning of text, 0 if it begins with something else. */
static size_t space_at(const char *text, size_t len) {
    const uint8_t *s = (const uint8_t *)text;
    int n = len > 0 ? utf8_check(s, len) : 0;
    return n > 0 && is_space(utf8_decode(s, n)) ? (size_t)n : 0;
}

/* The length of the space that text ends with; none has more than three bytes. */
static size_t space_before_end(const char *text, size_t len) {
    for (size_t n = 1; n <= MIN(len, (size_t)3); n++)
        if (space_at(text + len - n, n) == n)
            return n;
    return 0;
}

/* The number of bytes of text that are not white space. */
static size_t count_without_spaces(const char *text, size_t len) {
    size_t count = 0;
    for (size_t i = 0; i < len;) {
        size_t n = space_at(text + i, len - i);
        count += n == 0;
        i += MAX(n, (size_t)1);
    }
    return count;
}

/* Bytes without a token that have no unknown token either become nothing. */
static bool knows_all_bytes(const struct tokenizer *t) {
    for (size_t i = 0; i < 256; i++)
        if (t->v.byte_id[i] < 0 && t->facts.unk == TOKEN_NONE)
            return false;
    return true;
}

size_t tokenizer_least_ids(const struct tokenizer *t, const char *text, size_t len) {
    if (!knows_all_bytes(t))
        return 0;
    if (t->strips != NULL)
        len = count_without_spaces(text, len);
    /* An unknown character is one id. U+2581, three bytes, is SentencePiece's space. */
    size_t most = MAX(t->v.max_token_bytes, (size_t)4) * (t->v.kind == VOCAB_BPE ? 1 : 3);
    if (t->nfc)
        most *= NFC_SHRINKS;
    return div_up(len, most);
}

static enum status put_all(struct token_run *r, const char *text, size_t len, unsigned flags) {
    const struct tokenizer *t = r->t;
    bool bos = (flags & TOKENIZE_BOS) != 0 && t->facts.add_bos;
    if (bos)
        TRY(put_id(r, t->facts.bos));
    for (size_t at = 0; at < len;) {
        struct special_match m =
            special_find(&t->special, &t->v, text, len, at, (flags & TOKENIZE_SPECIAL) != 0);
        size_t end = m.begin, n = 0;
        while (strips(t, m.id, STRIPS_LEFT) && (n = space_before_end(text + at, end - at)) > 0)
            end -= n;
        TRY(put_text(r, text + at, end - at));
        at = m.end;
        if (m.id < 0)
            break;
        TRY(put_id(r, m.id));
        while (strips(t, m.id, STRIPS_RIGHT) && (n = space_at(text + at, len - at)) > 0)
            at += n;
    }
    if ((flags & TOKENIZE_BOS) != 0 && t->facts.add_eos)
        TRY(put_id(r, t->facts.eos));
    return ST_OK;
}

/* Gemma's own tokenizer looks for runs of U+2581, which spaces become; here both are spaces. */
static enum status undo_spaces(struct token_run *r, size_t *len) {
    r->undone = mem_alloc(*len + 1);
    if (r->undone == NULL)
        return ST_NO_MEMORY;
    *len = vocab_spm_bytes(r->text, *len, r->undone);
    r->text = r->undone;
    return ST_OK;
}

static enum status run_init(struct token_run *r, size_t len) {
    if (len >= CACHE_FROM_BYTES) /* without memory for it: without it */
        r->cache = mem_calloc(CACHE_SIZE, sizeof *r->cache);
    if (r->t->v.kind == VOCAB_BPE)
        r->splitter = splitter_open(r->t->pre);
    else /* each piece is one byte at least and gets one more */
        r->spaced = mem_alloc(2 * len);
    return r->splitter == NULL && r->spaced == NULL ? ST_NO_MEMORY : ST_OK;
}

/* All but the ids. */
static void run_deinit(struct token_run *r) {
    splitter_close(r->splitter);
    merger_deinit(&r->merger);
    mem_free(r->cache);
    mem_free(r->spaced);
    mem_free(r->undone);
    for (size_t i = 0; i < r->n_normal; i++)
        mem_free(r->normal[i]);
    mem_free(r->normal);
}

enum status tokenize(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
                     int32_t **ids, size_t *n_ids, struct err *err) {
    if (len > INT32_MAX)
        return err_set(err, ST_BAD_INPUT, "a text of %zu bytes is too long to tokenize", len);
    struct token_run r = {.t = t, .text = text, .merger = {.v = &t->v}};
    enum status st = t->spaces_are_tokens ? undo_spaces(&r, &len) : ST_OK;
    if (st == ST_OK)
        st = run_init(&r, len);
    if (st == ST_OK)
        st = put_all(&r, r.text, len, flags);
    if (st == ST_OK && r.ids == NULL) /* no ids: still something to free */
        st = (r.ids = mem_alloc(1)) == NULL ? ST_NO_MEMORY : ST_OK;
    run_deinit(&r);
    if (st != ST_OK) {
        mem_free(r.ids);
        return err_set(err, st, "no memory to tokenize %zu bytes", len);
    }
    *ids = r.ids;
    *n_ids = r.n_ids;
    return ST_OK;
}
