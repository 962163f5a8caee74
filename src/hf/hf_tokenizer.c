/* hf_tokenizer.c: tokenizer.json and related files to GGUF's tokenizer keys. If tokenizer.json
 * is missing, hf_tiktoken.c or hf_sentencepiece.c makes one from tiktoken.model or
 * tokenizer.model.
 *
 * Two families are known. Byte-level BPE keeps its merges. Its split patterns go to the key
 * tokenizer.lockstep.split, and the tokenizer module refuses patterns that it does not know.
 * SentencePiece's BPE (byte_fallback) gets scores. tokenizer.model has its own; from
 * tokenizer.json a token's score is the rank of the merge that makes it, so the same merge
 * comes first. */
#include "base/mem.h"
#include "base/util.h"
#include "hf/hf_impl.h"

#include <limits.h>
#include <stdio.h>

#define MAX_TOKENIZER_BYTES ((size_t)256 << 20)
#define MAX_SETTINGS_BYTES ((size_t)64 << 20)
#define MAX_SPLITS 8

/* tokenizer.ggml.token_type */
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

#define SPACE "\xe2\x96\x81" /* U+2581, as SentencePiece writes it */
#define ENDS_MAX 32
#define SUPPRESSED_MAX 1024
#define STRIPS_MAX 4096 /* added tokens that remove adjacent spaces */

struct reading {
    struct hf_folder *f;
    const char *file; /* that has the tokens */
    /* tokenizer.json, or what tiktoken.model or tokenizer.model says in its form */
    json_t *tokenizer;
    json_t *settings; /* tokenizer_config.json, or NULL */
    json_t *generation;
    const json_t *model; /* of tokenizer */
    bool spm;
    bool ranks;           /* no merges: ids are ranks */
    bool scored;          /* no merges: type and score came with the tokens */
    uint32_t n;           /* tokens */
    struct gguf_str *str; /* [n] */
    int32_t *type;        /* [n] */
    float *score;         /* [n] */
    char *unused_names;   /* of ids without a token */
    char *spaced;         /* what r->str has instead of texts with U+2581 */
};

/* Its tokens are SentencePiece's, and its merges keep their order, as in GGUF. */
static bool is_gemma4(const struct reading *r) {
    return str_eq(r->f->arch->arch, "gemma4");
}

static enum status bad(const struct reading *r, const char *what, struct err *err) {
    return err_set(err, ST_BAD_INPUT, "%s/%s: %s", r->f->path, r->file, what);
}

static enum status unsupported(const struct reading *r, const char *what, const char *type,
                               struct err *err) {
    char shown[64];
    return err_set(err, ST_UNSUPPORTED, "%s/%s: %s of type %s is not supported", r->f->path,
                   r->file, what,
                   gguf_escape((struct gguf_str){type, strlen(type)}, shown, sizeof shown));
}

static const char *type_of(const json_t *o) {
    const char *type = json_string_value(json_object_get(o, "type"));
    return type ? type : "(none)";
}

static struct gguf_str text_of(const json_t *v) {
    return (struct gguf_str){json_string_value(v), json_string_length(v)};
}

/* ---- tokens -------------------------------------------------------------------------- */

/* "<0x0A>" */
static bool is_byte_token(struct gguf_str s) {
    return s.len == 6 && memcmp(s.ptr, "<0x", 3) == 0 && s.ptr[5] == '>';
}

static enum status put_token(struct reading *r, json_int_t id, struct gguf_str text,
                             int32_t type, struct err *err) {
    if (id < 0 || id >= r->n)
        return err_set(err, ST_BAD_INPUT,
                       "%s/%s: a token has the id %lld, but the embedding has %u rows",
                       r->f->path, r->file, (long long)id, r->n);
    r->str[id] = text;
    r->type[id] = type;
    return ST_OK;
}

static enum status read_vocab(struct reading *r, struct err *err) {
    const json_t *vocab = json_object_get(r->model, "vocab");
    const char *unk = json_string_value(json_object_get(r->model, "unk_token"));
    const char *text;
    json_t *id;
    if (!json_is_object(vocab) || json_object_size(vocab) == 0)
        return bad(r, "model.vocab is not an object of tokens", err);
    json_object_foreach((json_t *)vocab, text, id) {
        struct gguf_str s = {text, strlen(text)};
        int32_t type = r->scored                            ? r->type[json_integer_value(id)]
                       : r->spm && unk && str_eq(text, unk) ? UNKNOWN
                       : r->spm && is_byte_token(s)         ? BYTE
                                                            : NORMAL;
        if (!json_is_integer(id))
            return bad(r, "model.vocab: an id is not an integer", err);
        if (json_integer_value(id) >= 0 && json_integer_value(id) < r->n &&
            r->str[json_integer_value(id)].ptr)
            return bad(r, "model.vocab: two tokens have the same id", err);
        TRY(put_token(r, json_integer_value(id), s, type, err));
    }
    return ST_OK;
}

static enum status read_added(struct reading *r, struct err *err) {
    const json_t *list = json_object_get(r->tokenizer, "added_tokens"), *t;
    int32_t left[STRIPS_MAX], right[STRIPS_MAX];
    size_t i, n_left = 0, n_right = 0;
    char shown[64];
    json_array_foreach(list, i, t) {
        const json_t *id = json_object_get(t, "id"), *text = json_object_get(t, "content");
        bool special = json_is_true(json_object_get(t, "special"));
        if (!json_is_integer(id) || !json_is_string(text))
            return bad(r, "added_tokens: an entry has no id or no content", err);
        if (json_is_true(json_object_get(t, "single_word")))
            return err_set(err, ST_UNSUPPORTED,
                           "%s/%s: the added token %s has single_word, which is not supported",
                           r->f->path, r->file,
                           gguf_escape(text_of(text), shown, sizeof shown));
        json_int_t n = json_integer_value(id);
        if (n >= r->n && n <= INT32_MAX)
            continue; /* nothing stands for it: Gemma 3 1B has the picture token of the others */
        if (r->spm && n >= 0 && n < r->n && r->type[n] == UNKNOWN)
            continue;
        if (json_is_true(json_object_get(t, "lstrip")) && n_left < STRIPS_MAX)
            left[n_left++] = (int32_t)n;
        if (json_is_true(json_object_get(t, "rstrip")) && n_right < STRIPS_MAX)
            right[n_right++] = (int32_t)n;
        TRY(put_token(r, n, text_of(text), special ? CONTROL : USER_DEFINED, err));
    }
    gguf_write_i32_array(r->f->w, "tokenizer.lockstep.strips_left", left, n_left);
    gguf_write_i32_array(r->f->w, "tokenizer.lockstep.strips_right", right, n_right);
    return ST_OK;
}

/* Rows of the embedding that belong to no token. */
static enum status name_unused(struct reading *r, struct err *err) {
    enum { SIZE = 24 };
    r->unused_names = mem_alloc((size_t)r->n * SIZE);
    if (!r->unused_names)
        return hf_no_memory(r->f, err);
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->str[i].ptr)
            continue;
        char *name = r->unused_names + (size_t)i * SIZE;
        int len = snprintf(name, SIZE, "[PAD%u]", i);
        r->str[i] = (struct gguf_str){name, (size_t)len};
        r->type[i] = UNUSED;
    }
    return ST_OK;
}

/* U+2581 in tokens that text is searched for (Gemma's runs of spaces) means a space. In normal
 * tokens readers take it as one; in these GGUF has the space itself. */
static enum status put_spaces(struct reading *r, struct err *err) {
    size_t bytes = 0;
    for (uint32_t t = 0; t < r->n; t++)
        bytes += r->type[t] == USER_DEFINED ? r->str[t].len : 0;
    char *out = r->spaced = mem_alloc(MAX(bytes, 1));
    if (!out)
        return hf_no_memory(r->f, err);
    for (uint32_t t = 0; t < r->n; t++) {
        struct gguf_str s = r->str[t];
        if (r->type[t] != USER_DEFINED)
            continue;
        r->str[t].ptr = out;
        for (size_t i = 0; i < s.len; out++) {
            bool space = s.len - i >= 3 && memcmp(s.ptr + i, SPACE, 3) == 0;
            *out = space ? ' ' : s.ptr[i];
            i += space ? 3 : 1;
        }
        r->str[t].len = (size_t)(out - r->str[t].ptr);
    }
    return ST_OK;
}

/* ---- merges -------------------------------------------------------------------------- */

/* Both forms: "a b" and ["a", "b"]; joined into buf with a space. */
static bool merge_text(const json_t *m, struct gguf_str *out, char *buf, size_t size) {
    if (json_is_string(m)) {
        *out = text_of(m);
        return true;
    }
    struct gguf_str a = text_of(json_array_get(m, 0)), b = text_of(json_array_get(m, 1));
    if (json_array_size(m) != 2 || !a.ptr || !b.ptr || a.len + b.len + 1 > size)
        return false;
    memcpy(buf, a.ptr, a.len);
    buf[a.len] = ' ';
    memcpy(buf + a.len + 1, b.ptr, b.len);
    *out = (struct gguf_str){buf, a.len + 1 + b.len};
    return true;
}

static enum status write_merges(struct reading *r, const json_t *merges, struct err *err) {
    size_t n = json_array_size(merges), i, bytes = 0;
    const json_t *m;
    json_array_foreach(merges, i, m) if (json_is_array(m)) bytes +=
        text_of(json_array_get(m, 0)).len + text_of(json_array_get(m, 1)).len + 1;
    struct gguf_str *strs = mem_calloc(MAX(n, 1), sizeof *strs);
    char *buf = mem_alloc(MAX(bytes, 1));
    enum status st = strs && buf ? ST_OK : hf_no_memory(r->f, err);
    size_t at = 0;
    json_array_foreach(merges, i, m) {
        if (st != ST_OK)
            break;
        if (!merge_text(m, &strs[i], buf + at, bytes - at))
            st = bad(r, "model.merges: an entry is not two tokens", err);
        else if (json_is_array(m))
            at += strs[i].len;
    }
    if (st == ST_OK)
        gguf_write_str_array(r->f->w, "tokenizer.ggml.merges", strs, n);
    mem_free(strs);
    mem_free(buf);
    return st;
}

/* score[t] = -rank of the first merge that makes t. */
static enum status score_merges(struct reading *r, const json_t *merges, struct err *err) {
    const json_t *vocab = json_object_get(r->model, "vocab"), *m;
    size_t i;
    char joined[1024], buf[1024];
    for (uint32_t t = 0; t < r->n; t++)
        r->score[t] = -1e9f;
    json_array_foreach(merges, i, m) {
        struct gguf_str s;
        if (!merge_text(m, &s, buf, sizeof buf) || s.len >= sizeof joined)
            return bad(r, "model.merges: an entry is not two tokens", err);
        const char *space = s.len > 1 ? memchr(s.ptr + 1, ' ', s.len - 1) : NULL;
        if (!space)
            return bad(r, "model.merges: an entry is not two tokens", err);
        size_t left = (size_t)(space - s.ptr), right = s.len - left - 1;
        memcpy(joined, s.ptr, left);
        memcpy(joined + left, space + 1, right);
        joined[left + right] = '\0';
        const json_t *id = json_object_get(vocab, joined);
        json_int_t n = json_integer_value(id);
        if (json_is_integer(id) && n >= 0 && n < r->n && r->score[n] == -1e9f)
            r->score[n] = -(float)i;
    }
    return ST_OK;
}

/* ---- how text is cut ----------------------------------------------------------------- */

#define GPT2_PATTERN \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

struct splits {
    struct gguf_str patterns[MAX_SPLITS];
    size_t n;
};

static bool is_isolated(const json_t *o) {
    const char *behavior = json_string_value(json_object_get(o, "behavior"));
    bool invert = json_is_true(json_object_get(o, "invert"));
    return behavior && ((str_eq(behavior, "Isolated") && !invert) ||
                        (str_eq(behavior, "Removed") && invert));
}

static enum status read_split(struct reading *r, const json_t *o, struct splits *out,
                              struct err *err) {
    const char *type = type_of(o);
    struct gguf_str pattern = {NULL, 0};
    if (str_eq(type, "Split")) {
        pattern = text_of(json_object_get(json_object_get(o, "pattern"), "Regex"));
        if (!pattern.ptr || !is_isolated(o))
            return unsupported(r, "a pre_tokenizer", "Split (of another kind)", err);
    } else if (str_eq(type, "Digits")) {
        pattern = json_is_true(json_object_get(o, "individual_digits"))
                      ? (struct gguf_str){"\\p{N}", 5}
                      : (struct gguf_str){"\\p{N}+", 6};
    } else if (str_eq(type, "ByteLevel")) {
        if (json_is_true(json_object_get(o, "add_prefix_space")))
            return unsupported(r, "a pre_tokenizer", "ByteLevel with add_prefix_space", err);
        if (json_is_false(json_object_get(o, "use_regex")))
            return ST_OK;
        pattern = (struct gguf_str){GPT2_PATTERN, sizeof GPT2_PATTERN - 1};
    } else {
        return unsupported(r, "a pre_tokenizer", type, err);
    }
    if (out->n == MAX_SPLITS)
        return bad(r, "pre_tokenizer: too many steps", err);
    out->patterns[out->n++] = pattern;
    return ST_OK;
}

/* Whether any of the steps of a normalizer, pre-tokenizer or the like has this type. */
static const json_t *find_step(const json_t *o, const char *type) {
    static const char *const lists[] = {"normalizers", "pretokenizers", "processors"};
    if (str_eq(type_of(o), type))
        return o;
    for (size_t l = 0; l < ARRAY_LEN(lists); l++) {
        const json_t *list = json_object_get(o, lists[l]), *step;
        size_t i;
        json_array_foreach(list, i, step) if (str_eq(type_of(step), type)) return step;
    }
    return NULL;
}

static enum status write_splits(struct reading *r, struct err *err) {
    const json_t *pre = json_object_get(r->tokenizer, "pre_tokenizer"), *step;
    struct splits splits = {.n = 0};
    size_t i;
    if (json_is_object(pre) && str_eq(type_of(pre), "Sequence")) {
        json_array_foreach(json_object_get(pre, "pretokenizers"), i, step)
            TRY(read_split(r, step, &splits, err));
    } else if (json_is_object(pre)) {
        TRY(read_split(r, pre, &splits, err));
    }
    if (splits.n == 0)
        return bad(r, "byte-level BPE without a pre_tokenizer that cuts text is not supported",
                   err);
    gguf_write_str_array(r->f->w, "tokenizer.lockstep.split", splits.patterns, splits.n);
    gguf_write_bool(r->f->w, "tokenizer.lockstep.nfc",
                    find_step(json_object_get(r->tokenizer, "normalizer"), "NFC") != NULL);
    gguf_write_bool(r->f->w, "tokenizer.lockstep.ignore_merges",
                    json_is_true(json_object_get(r->model, "ignore_merges")));
    return ST_OK;
}

/* A normalizer's Prepend puts U+2581 in front of every piece between special tokens, as
 * llama.cpp does. A Metaspace does not if the piece already begins with it; its scheme may
 * limit it to the start of the text. */
static void write_space_prefix(const struct reading *r) {
    const json_t *meta = find_step(json_object_get(r->tokenizer, "pre_tokenizer"), "Metaspace");
    const char *scheme = json_string_value(json_object_get(meta, "prepend_scheme"));
    bool prepend = find_step(json_object_get(r->tokenizer, "normalizer"), "Prepend");
    bool by_meta = meta && !prepend &&
                   (scheme ? !str_eq(scheme, "never")
                           : !json_is_false(json_object_get(meta, "add_prefix_space")));
    gguf_write_bool(r->f->w, "tokenizer.ggml.add_space_prefix", prepend || by_meta);
    if (by_meta) {
        gguf_write_bool(r->f->w, "tokenizer.lockstep.prefix_unless_space", true);
        gguf_write_bool(r->f->w, "tokenizer.lockstep.prefix_first",
                        scheme && str_eq(scheme, "first"));
    }
}

static bool is_text(const json_t *v, const char *text) {
    const char *s = json_string_value(v);
    return s && str_eq(s, text);
}

/* A Replace or Split looks for spaces. */
static bool finds_spaces(const json_t *step) {
    return is_text(json_object_get(json_object_get(step, "pattern"), "String"), " ");
}

/* NFC is the tokenizer's business (tokenizer/normalize.h), and spaces become U+2581 as in
 * SentencePiece. Any other step that changes letters is refused. tokenizer.model's Prepend has no
 * text. */
static enum status check_normalizer(const struct reading *r, struct err *err) {
    const json_t *o = json_object_get(r->tokenizer, "normalizer");
    const json_t *list = json_object_get(o, "normalizers");
    size_t i, n = json_is_array(list) ? json_array_size(list) : json_is_object(o);
    for (i = 0; i < n; i++) {
        const json_t *step = json_is_array(list) ? json_array_get(list, i) : o;
        const json_t *prepend = json_object_get(step, "prepend");
        const char *type = type_of(step);
        if (r->spm && str_eq(type, "Replace")) {
            if (!finds_spaces(step) || !is_text(json_object_get(step, "content"), SPACE))
                return unsupported(r, "a normalizer",
                                   "Replace (of other than spaces by U+2581)", err);
        } else if (r->spm && str_eq(type, "Prepend")) {
            if (prepend && !is_text(prepend, SPACE))
                return unsupported(r, "a normalizer", "Prepend (of other than U+2581)", err);
        } else if (!str_eq(type, "NFC")) {
            return unsupported(r, "a normalizer", type, err);
        }
    }
    return ST_OK;
}

/* SentencePiece's kind merges a text as a whole: steps that cut it are refused. Gemma's finds
 * no space any more where the normalizer has replaced them. */
static enum status check_whole(const struct reading *r, struct err *err) {
    const json_t *o = json_object_get(r->tokenizer, "pre_tokenizer");
    const json_t *list = json_object_get(o, "pretokenizers");
    bool replaced = find_step(json_object_get(r->tokenizer, "normalizer"), "Replace");
    size_t i, n = json_is_array(list) ? json_array_size(list) : json_is_object(o);
    for (i = 0; i < n; i++) {
        const json_t *step = json_is_array(list) ? json_array_get(list, i) : o;
        const char *type = type_of(step);
        if (str_eq(type, "Metaspace")) {
            if (!is_text(json_object_get(step, "replacement"), SPACE))
                return unsupported(r, "a pre_tokenizer",
                                   "Metaspace (of another replacement than U+2581)", err);
            if (!json_is_false(json_object_get(step, "split")))
                return unsupported(r, "a pre_tokenizer", "Metaspace (that splits)", err);
        } else if (str_eq(type, "Split")) {
            if (!replaced || !finds_spaces(step) ||
                json_is_true(json_object_get(step, "invert")))
                return unsupported(r, "a pre_tokenizer", "Split (of another kind)", err);
        } else {
            return unsupported(r, "a pre_tokenizer", type, err);
        }
    }
    return ST_OK;
}

/* ---- special tokens ------------------------------------------------------------------ */

/* The id of a token by its text: of an added one first. */
static bool find_token(const struct reading *r, const char *text, uint32_t *out) {
    const json_t *list = json_object_get(r->tokenizer, "added_tokens"), *t;
    const json_t *id = json_object_get(json_object_get(r->model, "vocab"), text);
    size_t i;
    json_array_foreach(list, i, t) {
        const char *content = json_string_value(json_object_get(t, "content"));
        if (content && str_eq(content, text))
            id = json_object_get(t, "id");
    }
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= r->n)
        return false;
    *out = (uint32_t)json_integer_value(id);
    return true;
}

/* "bos_token": "<s>" or {"content": "<s>"} */
static const char *settings_token(const struct reading *r, const char *name) {
    const json_t *v = json_object_get(r->settings, name);
    return json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
}

static bool id_in(const json_t *v, size_t i, uint32_t n, uint32_t *out) {
    v = json_is_array(v) ? json_array_get(v, i) : i == 0 ? v : NULL;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= n)
        return false;
    *out = (uint32_t)json_integer_value(v);
    return true;
}

static void put_id(struct reading *r, const char *key, const char *token, const char *id_name) {
    uint32_t id;
    const char *text = settings_token(r, token);
    if ((text && find_token(r, text, &id)) ||
        id_in(json_object_get(r->generation, id_name), 0, r->n, &id) ||
        id_in(hf_value(r->f->text, id_name), 0, r->n, &id))
        gguf_write_u32(r->f->w, key, id);
}

/* eos_token, and the ends that generation_config.json names, or, where it names none,
 * config.json. */
static void put_ends(struct reading *r) {
    const json_t *ends = json_object_get(r->generation, "eos_token_id");
    const char *text = settings_token(r, "eos_token");
    int32_t all[ENDS_MAX];
    uint32_t id, eos = UINT32_MAX;
    size_t n = 0, other = 0;
    if (ends == NULL || json_is_null(ends))
        ends = hf_value(r->f->text, "eos_token_id");
    for (size_t i = 0; i < MAX(json_array_size(ends), (size_t)1) && n < ENDS_MAX; i++)
        if (id_in(ends, i, r->n, &id))
            all[n++] = (int32_t)id;
    if (n > 0)
        gguf_write_i32_array(r->f->w, "tokenizer.lockstep.end_token_ids", all, n);
    if (n > 0 && (text == NULL || !find_token(r, text, &eos)))
        eos = (uint32_t)all[0];
    while (other < n && (uint32_t)all[other] == eos)
        other++;
    if (other < n) /* the one that GGUF has a name for, for other programs */
        gguf_write_u32(r->f->w, "tokenizer.ggml.eot_token_id", (uint32_t)all[other]);
}

/* Tokens that are never generated. */
static void put_suppressed(struct reading *r) {
    const json_t *list = json_object_get(r->generation, "suppress_tokens");
    int32_t all[SUPPRESSED_MAX];
    uint32_t id;
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list) && n < SUPPRESSED_MAX; i++)
        if (id_in(list, i, r->n, &id))
            all[n++] = (int32_t)id;
    if (n > 0)
        gguf_write_i32_array(r->f->w, "tokenizer.ggml.suppress_tokens", all, n);
}

/* Whether the post-processor begins a text with bos; without a tokenizer.json the Python
 * classes do. */
static bool adds_bos(const struct reading *r) {
    const json_t *own = json_object_get(r->settings, "add_bos_token");
    if (json_is_boolean(own) || r->scored || is_gemma4(r)) /* whose file says nothing of it */
        return !json_is_false(own);
    const json_t *template =
        find_step(json_object_get(r->tokenizer, "post_processor"), "TemplateProcessing");
    const json_t *first = json_array_get(json_object_get(template, "single"), 0);
    const char *id =
        json_string_value(json_object_get(json_object_get(first, "SpecialToken"), "id"));
    const char *bos = settings_token(r, "bos_token");
    return id && (!bos || str_eq(id, bos));
}

/* The special token that the post-processor ends a text with, which texts for embeddings have
 * (Qwen3-Embedding), and which the file does not call the end of an answer. */
static bool ending(const struct reading *r, uint32_t *id) {
    const json_t *template =
        find_step(json_object_get(r->tokenizer, "post_processor"), "TemplateProcessing");
    const json_t *single = json_object_get(template, "single");
    const json_t *last = json_array_get(single, json_array_size(single) - 1);
    const char *text =
        json_string_value(json_object_get(json_object_get(last, "SpecialToken"), "id"));
    return json_array_size(single) > 1 && text && find_token(r, text, id);
}

/* Whether texts get the end token: as the settings say, or the template of an embedding model. */
static void put_adds_eos(struct reading *r) {
    bool adds = json_is_true(json_object_get(r->settings, "add_eos_token"));
    uint32_t id;
    if (hf_embeds(r->f) && ending(r, &id)) {
        adds = true;
        gguf_write_u32(r->f->w, "tokenizer.ggml.eos_token_id", id);
    } else {
        put_id(r, "tokenizer.ggml.eos_token_id", "eos_token", "eos_token_id");
    }
    gguf_write_bool(r->f->w, "tokenizer.ggml.add_eos_token", adds);
}

static enum status put_template(struct reading *r, struct err *err) {
    static const char key[] = "tokenizer.chat_template";
    char path[PATH_MAX];
    struct file_map m;
    int n = snprintf(path, sizeof path, "%s/chat_template.jinja", r->f->path);
    if (n > 0 && (size_t)n < sizeof path && file_map_open(&m, path, NULL) == ST_OK) {
        enum status st = ST_OK;
        if (m.size > MAX_SETTINGS_BYTES)
            st = err_set(err, ST_BAD_INPUT, "%s: too large", path);
        else
            gguf_write_text(r->f->w, key, (struct gguf_str){(const char *)m.bytes, m.size});
        file_map_close(&m);
        return st;
    }
    const json_t *t = json_object_get(r->settings, "chat_template"), *named;
    size_t i;
    json_array_foreach(t, i, named) {
        const char *name = json_string_value(json_object_get(named, "name"));
        if (name && str_eq(name, "default"))
            gguf_write_text(r->f->w, key, text_of(json_object_get(named, "template")));
    }
    if (json_is_string(t))
        gguf_write_text(r->f->w, key, text_of(t));
    return ST_OK;
}

/* ---- the whole ----------------------------------------------------------------------- */

static enum status read_model(struct reading *r, struct err *err) {
    r->model = json_object_get(r->tokenizer, "model");
    const char *type = json_string_value(json_object_get(r->model, "type"));
    const json_t *merges = json_object_get(r->model, "merges");
    if (!json_is_object(r->model))
        return bad(r, "has no model", err);
    if (type ? !str_eq(type, "BPE") : !json_is_array(merges))
        return unsupported(r, "a tokenizer", type ? type : "(none)", err);
    if (!json_is_array(merges))
        return bad(r, "model.merges is not a list", err);
    r->spm = json_is_true(json_object_get(r->model, "byte_fallback"));
    TRY(check_normalizer(r, err));
    if (r->spm)
        TRY(check_whole(r, err));
    TRY(read_vocab(r, err));
    TRY(read_added(r, err));
    TRY(name_unused(r, err));
    if (r->spm)
        TRY(put_spaces(r, err));
    bool spm_merges = r->spm && is_gemma4(r) && !r->scored;
    gguf_write_str(r->f->w, "tokenizer.ggml.model",
                   spm_merges ? "gemma4"
                   : r->spm   ? "llama"
                              : "gpt2");
    gguf_write_str_array(r->f->w, "tokenizer.ggml.tokens", r->str, r->n);
    gguf_write_i32_array(r->f->w, "tokenizer.ggml.token_type", r->type, r->n);
    if (r->spm) {
        write_space_prefix(r);
        if (spm_merges)
            return write_merges(r, merges, err);
        if (!r->scored)
            TRY(score_merges(r, merges, err));
        gguf_write_f32_array(r->f->w, "tokenizer.ggml.scores", r->score, r->n);
        return ST_OK;
    }
    if (r->ranks) {
        gguf_write_bool(r->f->w, "tokenizer.lockstep.by_rank", true);
        gguf_write_str(r->f->w, "tokenizer.ggml.pre", "kimi-k2");
        return ST_OK;
    }
    TRY(write_merges(r, merges, err));
    return write_splits(r, err);
}

static enum status open_tokens(struct reading *r, struct err *err) {
    enum status st = hf_json(r->f, r->file, MAX_TOKENIZER_BYTES, &r->tokenizer, err);
    if (st != ST_NOT_FOUND)
        return st;
    r->file = FOLDER_TIKTOKEN;
    st = hf_tiktoken(r->f, r->settings, r->n, &r->tokenizer, err);
    r->ranks = st == ST_OK;
    if (st != ST_NOT_FOUND)
        return st;
    r->file = FOLDER_PIECES;
    st = hf_sentencepiece(r->f, r->settings, r->n, &r->tokenizer, r->type, r->score, err);
    r->scored = st == ST_OK;
    if (st == ST_NOT_FOUND)
        return err_set(err, st,
                       "%s: none of tokenizer.json, " FOLDER_TIKTOKEN " and " FOLDER_PIECES
                       " is there",
                       r->f->path);
    return st;
}

static enum status read_all(struct reading *r, struct err *err) {
    r->str = mem_calloc(r->n, sizeof *r->str);
    r->type = mem_calloc(r->n, sizeof *r->type);
    r->score = mem_calloc(r->n, sizeof *r->score);
    if (!r->str || !r->type || !r->score)
        return hf_no_memory(r->f, err);
    enum status st =
        hf_json(r->f, "tokenizer_config.json", MAX_SETTINGS_BYTES, &r->settings, err);
    if (st == ST_OK || st == ST_NOT_FOUND)
        st = hf_json(r->f, "generation_config.json", MAX_SETTINGS_BYTES, &r->generation, err);
    if (st != ST_OK && st != ST_NOT_FOUND)
        return st;
    TRY(open_tokens(r, err));
    TRY(read_model(r, err));
    put_id(r, "tokenizer.ggml.bos_token_id", "bos_token", "bos_token_id");
    put_ends(r);
    if (is_gemma4(r))
        put_suppressed(r);
    put_id(r, "tokenizer.ggml.padding_token_id", "pad_token", "pad_token_id");
    gguf_write_bool(r->f->w, "tokenizer.ggml.add_bos_token", adds_bos(r));
    put_adds_eos(r);
    return put_template(r, err);
}

enum status hf_read_tokenizer(struct hf_folder *f, uint32_t n_vocab, struct err *err) {
    struct reading r = {.f = f, .n = n_vocab, .file = "tokenizer.json"};
    enum status st = read_all(&r, err);
    json_decref(r.tokenizer);
    json_decref(r.settings);
    json_decref(r.generation);
    mem_free(r.str);
    mem_free(r.type);
    mem_free(r.score);
    mem_free(r.unused_names);
    mem_free(r.spaced);
    return st;
}
