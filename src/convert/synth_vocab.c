/* synth_vocab.c: filler vocabularies. They have enough of a byte-level BPE to tokenize any text
 * (as bytes and a few merges), the true size, and the family's control tokens. */
#include "base/mem.h"
#include "base/util.h"
#include "convert/synth_parts.h"

#include <stdio.h>

struct special {
    uint32_t id;
    const char *text;
};

struct synth_vocab {
    uint32_t n_tokens;
    const char *pre;
    bool add_bos;
    uint32_t bos, eos, pad;
    uint32_t first_reserved, n_reserved; /* unnamed control tokens, where no special is */
    struct special specials[16];         /* to a NULL text */
    const char *chat_template;
};

#define CHATML                                                                           \
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n" \
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

const struct synth_vocab synth_vocab_llama3 = {
    .n_tokens = 128256,
    .pre = "llama-bpe",
    .add_bos = true,
    .bos = 128000,
    .eos = 128009,
    .pad = 128004,
    .first_reserved = 128000,
    .n_reserved = 256,
    .specials = {{128000, "<|begin_of_text|>"},
                 {128001, "<|end_of_text|>"},
                 {128004, "<|finetune_right_pad_id|>"},
                 {128006, "<|start_header_id|>"},
                 {128007, "<|end_header_id|>"},
                 {128008, "<|eom_id|>"},
                 {128009, "<|eot_id|>"}},
    .chat_template = "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}"
                     "<|end_header_id|>\n\n{{ m['content'] }}<|eot_id|>{% endfor %}"
                     "{% if add_generation_prompt "
                     "%}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
};

const struct synth_vocab synth_vocab_qwen = {
    .n_tokens = 151936,
    .pre = "qwen2",
    .bos = 151643,
    .eos = 151645,
    .pad = 151643,
    .first_reserved = 151643,
    .n_reserved = 151936 - 151643,
    .specials = {{151643, "<|endoftext|>"}, {151644, "<|im_start|>"}, {151645, "<|im_end|>"}},
    .chat_template = CHATML,
};

#define DEEPSEEK_BOS "<｜begin▁of▁sentence｜>"
#define DEEPSEEK_EOS "<｜end▁of▁sentence｜>"

const struct synth_vocab synth_vocab_deepseek2 = {
    .n_tokens = 102400,
    .pre = "deepseek-llm",
    .add_bos = true,
    .bos = 100000,
    .eos = 100001,
    .pad = 100001,
    .first_reserved = 100000,
    .n_reserved = 2400,
    .specials = {{100000, DEEPSEEK_BOS}, {100001, DEEPSEEK_EOS}},
    .chat_template = "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'assistant' %}"
                     "Assistant: {{ m['content'] }}{{ eos_token }}{% else %}User: "
                     "{{ m['content'] }}\n\n{% endif %}{% endfor %}"
                     "{% if add_generation_prompt %}Assistant:{% endif %}",
};

const struct synth_vocab synth_vocab_deepseek3 = {
    .n_tokens = 129280,
    .pre = "deepseek-v3",
    .add_bos = true,
    .bos = 0,
    .eos = 1,
    .pad = 2,
    .first_reserved = 128000,
    .n_reserved = 1280,
    .specials = {{0, DEEPSEEK_BOS},
                 {1, DEEPSEEK_EOS},
                 {2, "<｜▁pad▁｜>"},
                 {128803, "<｜User｜>"},
                 {128804, "<｜Assistant｜>"}},
    .chat_template = "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'assistant' %}"
                     "<｜Assistant｜>{{ m['content'] }}{{ eos_token }}{% else %}<｜User｜>"
                     "{{ m['content'] }}{% endif %}{% endfor %}"
                     "{% if add_generation_prompt %}<｜Assistant｜>{% endif %}",
};

const struct synth_vocab synth_vocab_kimi = {
    .n_tokens = 163840,
    .pre = "kimi-k2",
    .bos = 163584,
    .eos = 163585,
    .pad = 163839,
    .first_reserved = 163584,
    .n_reserved = 256,
    .specials = {{163584, "[BOS]"},
                 {163585, "[EOS]"},
                 {163586, "<|im_end|>"},
                 {163587, "<|im_user|>"},
                 {163588, "<|im_assistant|>"},
                 {163594, "<|im_system|>"},
                 {163601, "<|im_middle|>"},
                 {163839, "[PAD]"}},
    .chat_template =
        "{% for m in messages %}<|im_{{ m['role'] }}|>{{ m['role'] }}<|im_middle|>"
        "{{ m['content'] }}<|im_end|>{% endfor %}"
        "{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}",
};

const struct synth_vocab synth_vocab_gpt_oss = {
    .n_tokens = 201088,
    .pre = "gpt-4o",
    .bos = 199998,
    .eos = 200002,
    .pad = 199999,
    .first_reserved = 199998,
    .n_reserved = 201088 - 199998,
    .specials = {{199998, "<|startoftext|>"},
                 {199999, "<|endoftext|>"},
                 {200002, "<|return|>"},
                 {200003, "<|constrain|>"},
                 {200005, "<|channel|>"},
                 {200006, "<|start|>"},
                 {200007, "<|end|>"},
                 {200008, "<|message|>"},
                 {200012, "<|call|>"}},
    .chat_template = "{% for m in messages %}<|start|>{{ m['role'] }}<|message|>"
                     "{{ m['content'] }}<|end|>{% endfor %}"
                     "{% if add_generation_prompt %}<|start|>assistant{% endif %}",
};

const struct synth_vocab synth_vocab_qwen35 = {
    .n_tokens = 248320,
    .pre = "qwen35",
    .bos = 248044,
    .eos = 248046,
    .pad = 248044,
    .first_reserved = 248044,
    .n_reserved = 248320 - 248044,
    .specials = {{248044, "<|endoftext|>"}, {248045, "<|im_start|>"}, {248046, "<|im_end|>"}},
    .chat_template = CHATML,
};

/* Gemma's own vocabulary is no byte-level BPE; this one has its size and its control tokens. */
const struct synth_vocab synth_vocab_gemma4 = {
    .n_tokens = 262144,
    .pre = "gemma4",
    .add_bos = true,
    .bos = 2,
    .eos = 1,
    .pad = 0,
    .first_reserved = 255999,
    .n_reserved = 8,
    .specials = {{0, "<pad>"}, {1, "<eos>"}, {2, "<bos>"}, {105, "<|turn>"}, {106, "<turn|>"}},
    .chat_template = "{{ bos_token }}{% for m in messages %}<|turn>{{ m['role'] }}\n"
                     "{{ m['content'] }}<turn|>\n{% endfor %}"
                     "{% if add_generation_prompt %}<|turn>model\n{% endif %}",
};

/* The families below have ChatML here, whatever their own templates look like: what a model of
 * random weights says does not depend on it. */
#define VOCAB_CHATML(name, n, kind, first)          \
    const struct synth_vocab synth_vocab_##name = { \
        .n_tokens = (n),                            \
        .pre = (kind),                              \
        .bos = (first),                             \
        .eos = (first) + 2,                         \
        .pad = (first),                             \
        .first_reserved = (first),                  \
        .n_reserved = (n) - (first),                \
        .specials = {{(first), "<|endoftext|>"},    \
                     {(first) + 1, "<|im_start|>"}, \
                     {(first) + 2, "<|im_end|>"}},  \
        .chat_template = CHATML,                    \
    }
VOCAB_CHATML(glm4, 154880, "glm4", 154820);
VOCAB_CHATML(minimax, 200064, "minimax-m2", 200000);
VOCAB_CHATML(mistral, 131072, "tekken", 131000);
VOCAB_CHATML(nemotron, 131072, "pixtral", 131000);
VOCAB_CHATML(step, 128896, "deepseek-v3", 128000);
VOCAB_CHATML(granite, 100352, "dbrx", 100256);
VOCAB_CHATML(lfm2, 65536, "lfm2", 64400);
VOCAB_CHATML(llama4, 202048, "llama4", 200000);

uint32_t synth_vocab_size(const struct synth_vocab *v) {
    return v->n_tokens;
}

/* "Ġ" is how byte-level BPE writes a space. */
#define SPACE "\xc4\xa0"

static const struct {
    const char *left, *right;
} merges[] = {
    {SPACE, "t"},      {SPACE, "a"}, {"h", "e"},   {"i", "n"},    {"r", "e"},
    {"o", "n"},        {"e", "r"},   {SPACE, "s"}, {"a", "t"},    {SPACE "t", "he"},
    {"n", "d"},        {SPACE, "w"}, {"o", "u"},   {"i", "t"},    {"i", "s"},
    {SPACE "a", "nd"}, {"in", "g"},  {"o", "f"},   {SPACE, "of"},
};

#define TEXT_BYTES 32 /* of the longest token and merge, with its NUL */

struct tokens {
    char (*text)[TEXT_BYTES]; /* [n] */
    int32_t *type;            /* [n] */
    struct gguf_str *str;     /* [n] */
    uint32_t n;
};

enum { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3 }; /* as in tokenizer.ggml.token_type */

/* Byte-level BPE writes each byte as one character: printable Latin-1 as itself, the others in
 * order as U+0100 and on. */
static bool byte_is_itself(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

static void byte_text(int byte, char out[TEXT_BYTES]) {
    int code = byte;
    if (!byte_is_itself(byte)) {
        code = 256;
        for (int b = 0; b < byte; b++)
            code += !byte_is_itself(b);
    }
    if (code < 128)
        snprintf(out, TEXT_BYTES, "%c", code);
    else
        snprintf(out, TEXT_BYTES, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 63));
}

/* A space and two or more syllables: different for each i, and like no merge. */
static void filler_text(uint32_t i, char out[TEXT_BYTES]) {
    static const char consonants[] = "bdfghjklmnprstvwxyzc", vowels[] = "aeiou";
    int n = snprintf(out, TEXT_BYTES, SPACE);
    for (int syllable = 0; syllable < 2 || i > 0; syllable++, i /= 100) {
        out[n++] = consonants[i % 100 / 5];
        out[n++] = vowels[i % 5];
    }
    out[n] = '\0';
}

/* The text of the i-th token that is not a control token. */
static void normal_text(uint32_t i, char out[TEXT_BYTES]) {
    if (i < 256)
        byte_text((int)i, out);
    else if (i - 256 < ARRAY_LEN(merges))
        snprintf(out, TEXT_BYTES, "%s%s", merges[i - 256].left, merges[i - 256].right);
    else
        filler_text(i - 256 - (uint32_t)ARRAY_LEN(merges), out);
}

static const char *special_text(const struct synth_vocab *v, uint32_t id) {
    for (const struct special *s = v->specials; s->text; s++)
        if (s->id == id)
            return s->text;
    return NULL;
}

static void make_tokens(const struct synth_vocab *v, struct tokens *t) {
    uint32_t n_normal = 0;
    for (uint32_t id = 0; id < t->n; id++) {
        const char *special = special_text(v, id);
        t->type[id] = TOKEN_CONTROL;
        if (special) {
            snprintf(t->text[id], TEXT_BYTES, "%s", special);
        } else if (id - v->first_reserved < v->n_reserved) {
            snprintf(t->text[id], TEXT_BYTES, "<|reserved_%u|>", id);
        } else {
            t->type[id] = TOKEN_NORMAL;
            normal_text(n_normal++, t->text[id]);
        }
        t->str[id] = (struct gguf_str){t->text[id], strlen(t->text[id])};
    }
}

static void write_merges(struct gguf_writer *w) {
    char text[ARRAY_LEN(merges)][TEXT_BYTES];
    struct gguf_str strs[ARRAY_LEN(merges)];
    for (size_t i = 0; i < ARRAY_LEN(merges); i++) {
        int n = snprintf(text[i], TEXT_BYTES, "%s %s", merges[i].left, merges[i].right);
        strs[i] = (struct gguf_str){text[i], (size_t)n};
    }
    gguf_write_str_array(w, "tokenizer.ggml.merges", strs, ARRAY_LEN(merges));
}

static void write_keys(const struct synth_vocab *v, const struct tokens *t,
                       struct gguf_writer *w) {
    gguf_write_str(w, "tokenizer.ggml.model", "gpt2");
    gguf_write_str(w, "tokenizer.ggml.pre", v->pre);
    gguf_write_str_array(w, "tokenizer.ggml.tokens", t->str, t->n);
    gguf_write_i32_array(w, "tokenizer.ggml.token_type", t->type, t->n);
    write_merges(w);
    gguf_write_u32(w, "tokenizer.ggml.bos_token_id", v->bos);
    gguf_write_u32(w, "tokenizer.ggml.eos_token_id", v->eos);
    gguf_write_u32(w, "tokenizer.ggml.padding_token_id", v->pad);
    gguf_write_bool(w, "tokenizer.ggml.add_bos_token", v->add_bos);
    gguf_write_str(w, "tokenizer.chat_template", v->chat_template);
}

enum status synth_vocab_write(const struct synth_vocab *v, struct gguf_writer *w,
                              struct err *err) {
    struct tokens t = {
        .text = mem_calloc(v->n_tokens, sizeof *t.text),
        .type = mem_calloc(v->n_tokens, sizeof *t.type),
        .str = mem_calloc(v->n_tokens, sizeof *t.str),
        .n = v->n_tokens,
    };
    enum status st = ST_OK;
    if (t.text && t.type && t.str) {
        make_tokens(v, &t);
        write_keys(v, &t, w);
    } else {
        st = err_set(err, ST_NO_MEMORY, "no memory for a vocabulary of %u tokens", v->n_tokens);
    }
    mem_free(t.text);
    mem_free(t.type);
    mem_free(t.str);
    return st;
}
