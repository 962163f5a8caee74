/* tokenizer.c: opens a tokenizer from a GGUF's metadata, and looks up tokens. encode.c turns
 * text into ids, decode.c ids into text. */
#include "tokenizer/tokenizer.h"

#include "base/mem.h"
#include "base/util.h"
#include "tokenizer/tokenizer_impl.h"

#include <strings.h>

#define KEY(name) "tokenizer.ggml." name

/* --- reading the metadata --- */

/* A missing key leaves *out as it is. */
static enum status optional_bool(const struct gguf *g, const char *key, bool *out,
                                 struct err *err) {
    enum status st = gguf_bool(g, key, out, err);
    return st == ST_NOT_FOUND ? ST_OK : st;
}

/* The id of a special token; TOKEN_NONE if the key is missing or holds -1. */
static enum status optional_id(const struct gguf *g, const char *key, int32_t n_tokens,
                               int32_t *out, struct err *err) {
    uint32_t id;
    enum status st = gguf_u32(g, key, &id, err);
    *out = TOKEN_NONE;
    if (st == ST_NOT_FOUND)
        return ST_OK;
    TRY(st);
    if (id == UINT32_MAX)
        return ST_OK;
    if (id >= (uint32_t)n_tokens)
        return err_set(err, ST_BAD_INPUT, "%s: token %u does not exist, the vocabulary has %d",
                       key, id, n_tokens);
    *out = (int32_t)id;
    return ST_OK;
}

/* *out is a NUL-terminated copy, or NULL if the key is missing. */
static enum status optional_text(const struct gguf *g, const char *key, const char **out,
                                 struct err *err) {
    struct gguf_str s;
    enum status st = gguf_str(g, key, &s, err);
    *out = NULL;
    if (st == ST_NOT_FOUND)
        return ST_OK;
    TRY(st);
    *out = mem_strndup(s.ptr, s.len);
    if (*out == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for %s", key);
    return ST_OK;
}

static enum status read_model(struct tokenizer *t, const struct gguf *g, struct err *err) {
    TRY(optional_text(g, KEY("model"), &t->facts.model, err));
    if (t->facts.model == NULL)
        return err_set(err, ST_BAD_INPUT,
                       KEY("model") " is missing: the file has no tokenizer");
    if (!str_eq(t->facts.model, "gpt2") && !str_eq(t->facts.model, "llama") &&
        !str_eq(t->facts.model, "gemma4"))
        return err_set(
            err, ST_UNSUPPORTED,
            KEY("model") " is \"%.64s\"; lockstep knows gpt2 (byte-level BPE), llama "
                         "(SentencePiece) and gemma4 (SentencePiece with merges)",
            t->facts.model);
    TRY(optional_text(g, KEY("pre"), &t->facts.pre, err));
    if (t->facts.pre == NULL && (t->facts.pre = mem_strdup("")) == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a tokenizer");
    return optional_text(g, "tokenizer.chat_template", &t->facts.chat_template, err);
}

/* A folder has patterns instead of a name, and says itself what merges are for
 * (hf/hf_folder.h). */
static enum status open_patterns(struct tokenizer *t, const struct gguf *g,
                                 const struct gguf_array *patterns, struct err *err) {
    TRY(optional_bool(g, "tokenizer.lockstep.ignore_merges", &t->ignore_merges, err));
    const struct pretokenizer_spec *spec =
        patterns->strs == NULL
            ? NULL
            : pretokenizer_find_patterns(patterns->strs, patterns->n, t->ignore_merges);
    if (spec == NULL) {
        char shown[100] = "";
        if (patterns->strs != NULL && patterns->n > 0)
            gguf_escape(patterns->strs[0], shown, sizeof shown);
        return err_set(
            err, ST_UNSUPPORTED,
            "tokenizer.json: lockstep does not know this pre_tokenizer (%zu patterns, "
            "the first is %s)",
            patterns->n, shown);
    }
    mem_free((char *)t->facts.pre);
    t->facts.pre = mem_strndup(spec->names, strcspn(spec->names, " "));
    if (t->facts.pre == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a tokenizer");
    return pretokenizer_open(&t->pre, spec, err);
}

/* Files older than the key pre mean the rules called "default". */
static enum status open_pretokenizer(struct tokenizer *t, const struct gguf *g,
                                     struct err *err) {
    struct gguf_array patterns;
    if (gguf_array(g, "tokenizer.lockstep.split", &patterns, NULL) == ST_OK)
        return open_patterns(t, g, &patterns, err);
    const char *name = t->facts.pre[0] != '\0' ? t->facts.pre : "default";
    const struct pretokenizer_spec *spec =
        pretokenizer_find((struct gguf_str){name, strlen(name)});
    if (spec == NULL)
        return err_set(err, ST_UNSUPPORTED,
                       KEY("pre") " is \"%.64s\": lockstep does not know how this model cuts "
                                  "text into words",
                       name);
    t->ignore_merges = spec->ignore_merges;
    t->facts.add_bos = spec->add_bos;
    return pretokenizer_open(&t->pre, spec, err);
}

/* Ids of tokens, if the file has that key; invalid ids are left out. */
static void each_id(struct tokenizer *t, const struct gguf *g, const char *key,
                    void (*fn)(struct tokenizer *t, int32_t id)) {
    struct gguf_array ids;
    if (gguf_array(g, key, &ids, NULL) != ST_OK || ids.type != GGUF_I32)
        return;
    for (size_t i = 0; i < ids.n; i++) {
        int64_t id = gguf_array_int(&ids, i);
        if (id >= 0 && id < t->facts.n_tokens)
            fn(t, (int32_t)id);
    }
}

static bool is_of_arch(const struct gguf *g, const char *arch) {
    struct gguf_str s;
    struct err ignored;
    return gguf_str(g, "general.architecture", &s, &ignored) == ST_OK &&
           s.len == strlen(arch) && memcmp(s.ptr, arch, s.len) == 0;
}

/* ---- tokens that swallow spaces ---- */

static void strip_left(struct tokenizer *t, int32_t id) {
    t->strips[id] |= STRIPS_LEFT;
}

static void strip_right(struct tokenizer *t, int32_t id) {
    t->strips[id] |= STRIPS_RIGHT;
}

/* Phi-3 strips spaces after its special tokens, but no key says so. The architecture does. In a
 * file that was rewritten as a llama, the model's name does ("Phi3", "Phi-3-mini", "Phi 3 Mini
 * 4k Instruct"). */
static bool is_phi3(const struct gguf *g) {
    struct gguf_str name;
    struct err ignored;
    if (is_of_arch(g, "phi3"))
        return true;
    if (gguf_str(g, "general.name", &name, &ignored) != ST_OK)
        return false;
    for (size_t i = 0; i + 4 <= name.len; i++)
        if (strncasecmp(name.ptr + i, "phi3", 4) == 0 ||
            (i + 5 <= name.len && (strncasecmp(name.ptr + i, "phi-3", 5) == 0 ||
                                   strncasecmp(name.ptr + i, "phi 3", 5) == 0)))
            return true;
    return false;
}

static void strip_as_phi3(struct tokenizer *t) {
    static const char *const exceptions[] = {"<s>", "<unk>", "<|endoftext|>"};
    for (int32_t id = 0; id < t->facts.n_tokens; id++) {
        struct gguf_str token = vocab_token(&t->v, id);
        bool is_one = vocab_is_special(&t->v, id);
        for (size_t i = 0; i < ARRAY_LEN(exceptions) && is_one; i++)
            is_one = token.len != strlen(exceptions[i]) ||
                     memcmp(token.ptr, exceptions[i], token.len) != 0;
        if (is_one)
            strip_right(t, id);
    }
}

/* A folder says it of each token (hf/hf_tokenizer.c). */
static enum status read_strips(struct tokenizer *t, const struct gguf *g, struct err *err) {
    static const char left[] = "tokenizer.lockstep.strips_left",
                      right[] = "tokenizer.lockstep.strips_right";
    bool phi3 = t->v.kind == VOCAB_SPM && is_phi3(g);
    struct gguf_array ids;
    bool said =
        gguf_array(g, left, &ids, NULL) == ST_OK || gguf_array(g, right, &ids, NULL) == ST_OK;
    if (!said && !phi3)
        return ST_OK;
    t->strips = mem_calloc((size_t)t->facts.n_tokens, sizeof *t->strips);
    if (t->strips == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a tokenizer");
    each_id(t, g, left, strip_left);
    each_id(t, g, right, strip_right);
    if (!said)
        strip_as_phi3(t);
    return ST_OK;
}

/* A folder says it; of GGUFs it is known of the names under which Qwen's tokenizer goes. */
static enum status read_normal_form(struct tokenizer *t, const struct gguf *g,
                                    struct err *err) {
    t->nfc = str_eq(t->facts.pre, "qwen2") || str_eq(t->facts.pre, "qwen35");
    return optional_bool(g, "tokenizer.lockstep.nfc", &t->nfc, err);
}

static bool is_spaces(struct gguf_str text) {
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] != ' ')
            return false;
    return text.len > 0;
}

static bool has_tokens_of_spaces(const struct vocab *v) {
    for (int32_t id = 0; id < v->n_tokens; id++)
        if (v->type[id] == TOKEN_USER_DEFINED && is_spaces(vocab_token(v, id)))
            return true;
    return false;
}

static enum status read_spm_rules(struct tokenizer *t, const struct gguf *g, struct err *err) {
    t->facts.add_bos = true;
    t->spaces_are_tokens = has_tokens_of_spaces(&t->v);
    /* Gemma's vocabularies want none; Ollama's converter leaves the key out. */
    t->add_space_prefix = t->v.kind == VOCAB_SPM && !is_of_arch(g, "gemma3");
    TRY(optional_bool(g, KEY("add_space_prefix"), &t->add_space_prefix, err));
    /* A folder's Metaspace (hf/hf_tokenizer.c). */
    TRY(optional_bool(g, "tokenizer.lockstep.prefix_unless_space", &t->prefix_unless_space,
                      err));
    return optional_bool(g, "tokenizer.lockstep.prefix_first", &t->prefix_first, err);
}

static enum status read_special_ids(struct tokenizer *t, const struct gguf *g,
                                    struct err *err) {
    struct tokenizer_facts *f = &t->facts;
    int32_t n = f->n_tokens;
    TRY(optional_id(g, KEY("bos_token_id"), n, &f->bos, err));
    TRY(optional_id(g, KEY("eos_token_id"), n, &f->eos, err));
    TRY(optional_id(g, KEY("eot_token_id"), n, &f->eot, err));
    TRY(optional_id(g, KEY("padding_token_id"), n, &f->pad, err));
    TRY(optional_id(g, KEY("unknown_token_id"), n, &f->unk, err));
    if (t->v.kind == VOCAB_SPM) { /* the names that every SentencePiece model has */
        if (f->bos == TOKEN_NONE)
            f->bos = vocab_find(&t->v, &t->v.special_ids, "<s>", 3);
        if (f->eos == TOKEN_NONE)
            f->eos = vocab_find(&t->v, &t->v.special_ids, "</s>", 4);
        if (f->unk == TOKEN_NONE)
            f->unk = vocab_find(&t->v, &t->v.special_ids, "<unk>", 5);
    }
    TRY(optional_bool(g, KEY("add_bos_token"), &f->add_bos, err));
    TRY(optional_bool(g, KEY("add_eos_token"), &f->add_eos, err));
    f->add_bos = f->add_bos && f->bos != TOKEN_NONE;
    f->add_eos = f->add_eos && f->eos != TOKEN_NONE;
    return ST_OK;
}

/* --- the end of a turn --- */

static int32_t find_special(const struct tokenizer *t, const char *name) {
    return vocab_find(&t->v, &t->v.special_ids, name, strlen(name));
}

static void add_end(struct tokenizer *t, int32_t id) {
    if (id != TOKEN_NONE && !tokenizer_is_end(t, id)) {
        BUG_ON(t->n_ends == MAX_END_TOKENS);
        t->ends[t->n_ends++] = id;
    }
}

/* As many as fit. */
static void add_named_end(struct tokenizer *t, int32_t id) {
    if (t->n_ends < MAX_END_TOKENS)
        add_end(t, id);
}

/* Files name one end token at most, models have several; their names are well known. */
static enum status find_ends(struct tokenizer *t, const struct gguf *g, struct err *err) {
    static const char *const names[] = {
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end_of_text|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<|return|>",
        "<|call|>",
        "<|calls|>",
        "<|flush|>",
        "<end_of_turn>",
        "<turn|>",
        "<eos>",
        "</s>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "[e~[",
        "<|tool_response>", /* Gemma 4 waits for what a call gives */
        "<|tools_suffix|>", /* so does Apertus */
        "<|end_of_msg|>",
        "<end_of_utterance>",
        "<\xef\xbd\x9c"
        "end\xe2\x96\x81"
        "of\xe2\x96\x81"
        "sentence\xef\xbd\x9c>",
        /* of models that fill in code */
        "<|fim_pad|>",
        "<|repo_name|>",
        "<|file_sep|>",
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        add_end(t, find_special(t, names[i]));
    /* In harmony and in Solar's format <|end|> ends a message and the turn goes on. */
    bool has_call = find_special(t, "<|call|>") >= 0 || find_special(t, "<|calls|>") >= 0;
    if (!has_call || (find_special(t, "<|return|>") < 0 && find_special(t, "<|flush|>") < 0))
        add_end(t, find_special(t, "<|end|>"));
    int32_t eom;
    TRY(optional_id(g, KEY("eom_token_id"), t->facts.n_tokens, &eom, err));
    add_end(t, eom);
    add_end(t, t->facts.eos);
    add_end(t, t->facts.eot);
    each_id(t, g, "tokenizer.lockstep.end_token_ids", add_named_end); /* a folder's */
    return ST_OK;
}

bool tokenizer_is_end(const struct tokenizer *t, int32_t id) {
    for (size_t i = 0; i < t->n_ends; i++)
        if (t->ends[i] == id)
            return true;
    return false;
}

size_t tokenizer_ends(const struct tokenizer *t, const int32_t **ids) {
    *ids = t->ends;
    return t->n_ends;
}

/* --- opening --- */

static enum vocab_kind kind_of(const struct tokenizer *t) {
    if (str_eq(t->facts.model, "gemma4") || str_eq(t->facts.pre, "gemma4"))
        return VOCAB_SPM_MERGES;
    return str_eq(t->facts.model, "gpt2") ? VOCAB_BPE : VOCAB_SPM;
}

static enum status tokenizer_read(struct tokenizer *t, const struct gguf *g, struct err *err) {
    TRY(read_model(t, g, err));
    TRY(vocab_init(&t->v, kind_of(t), g, err));
    t->facts.n_tokens = t->facts.n_text = t->v.n_tokens;
    while (t->facts.n_text > 1 && t->v.type[t->facts.n_text - 1] == TOKEN_UNUSED)
        t->facts.n_text--;
    TRY(special_init(&t->special, &t->v, err));
    TRY(t->v.kind == VOCAB_BPE ? open_pretokenizer(t, g, err) : read_spm_rules(t, g, err));
    if (t->v.kind == VOCAB_BPE)
        TRY(read_normal_form(t, g, err));
    if (t->v.by_rank)
        t->ignore_merges = true; /* as tiktoken does */
    TRY(read_strips(t, g, err));
    TRY(read_special_ids(t, g, err));
    return find_ends(t, g, err);
}

enum status tokenizer_open(struct tokenizer **out, const struct gguf *g, struct err *err) {
    struct tokenizer *t = mem_calloc(1, sizeof *t);
    if (t == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a tokenizer");
    enum status st = tokenizer_read(t, g, err);
    if (st != ST_OK) {
        tokenizer_close(t);
        return st;
    }
    *out = t;
    return ST_OK;
}

void tokenizer_close(struct tokenizer *t) {
    if (t == NULL)
        return;
    vocab_deinit(&t->v);
    special_deinit(&t->special);
    pretokenizer_close(t->pre);
    mem_free(t->strips);
    mem_free((char *)t->facts.model);
    mem_free((char *)t->facts.pre);
    mem_free((char *)t->facts.chat_template);
    mem_free(t);
}

/* --- questions --- */

const struct tokenizer_facts *tokenizer_facts(const struct tokenizer *t) {
    return &t->facts;
}

bool tokenizer_is_control(const struct tokenizer *t, int32_t id) {
    if (id < 0 || id >= t->v.n_tokens)
        return false;
    return t->v.type[id] == TOKEN_CONTROL || t->v.type[id] == TOKEN_UNKNOWN;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len) {
    int32_t id = vocab_find(&t->v, &t->v.special_ids, text, len);
    return id >= 0 ? id : vocab_find(&t->v, &t->v.text_ids, text, len);
}

struct gguf_str token_bytes(const struct tokenizer *t, int32_t id, bool special) {
    if (id < 0 || id >= t->v.n_tokens || (!special && tokenizer_is_control(t, id)))
        return (struct gguf_str){"", 0};
    return vocab_token(&t->v, id);
}
