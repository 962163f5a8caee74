/* pretokenizer.c: runs the rules of a pre-tokenizer with PCRE2.
 *
 * Time is linear in the text. No pattern looks at a character more than a few times. A
 * published pattern that would do so is replaced by an equivalent one (linear_spellings). A
 * match limit proportional to the text's length guards this. A match that reaches it ends the
 * word after GIVE_UP_BYTES. From then on the limit is proportional to that. */
#include "tokenizer/pretokenizer.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "base/util.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string.h>

#define STEPS_PER_BYTE 16 /* a match limit; the patterns need less than 3 */
#define JIT_STACK_MIN (32 * 1024)
#define JIT_STACK_MAX (1024 * 1024)
#define GIVE_UP_BYTES 4096

struct pretokenizer {
    size_t n_rules;
    pcre2_code *codes[PRETOKENIZER_MAX_RULES];
    bool thousands[PRETOKENIZER_MAX_RULES];
};

struct splitter {
    const struct pretokenizer *p;
    pcre2_match_context *context;
    pcre2_match_data *match;
    pcre2_jit_stack *stack;
    uint64_t n_steps, n_given_up;
    enum status (*word)(void *arg, const char *text, size_t len);
    void *arg;
};

static bool has_name(const char *names, struct gguf_str name) {
    for (const char *s = names; *s != '\0';) {
        size_t len = strcspn(s, " ");
        if (len == name.len && memcmp(s, name.ptr, len) == 0)
            return true;
        s += len + (s[len] == ' ');
    }
    return false;
}

const struct pretokenizer_spec *pretokenizer_find(struct gguf_str name) {
    for (size_t i = 0; i < n_pretokenizer_specs; i++)
        if (has_name(pretokenizer_specs[i].names, name))
            return &pretokenizer_specs[i];
    return NULL;
}

/* The next character of a pattern as a number. Escapes of characters (\r, \n, \t, \x{...}) give
 * the character; any other backslash stands for itself. */
static uint32_t next_char(const char **p, const char *end) {
    const char *s = *p;
    if (*s == '\\' && end - s >= 2) {
        const char *letter = strchr("r\rn\nt\t", s[1]);
        if (letter != NULL && (s[1] == 'r' || s[1] == 'n' || s[1] == 't')) {
            *p = s + 2;
            return (uint8_t)letter[1];
        }
        if (s[1] == 'x' && end - s >= 4 && s[2] == '{') {
            uint32_t c = 0;
            for (s += 3; s < end && *s != '}'; s++)
                c = c * 16 + (uint32_t)(*s <= '9' ? *s - '0' : (*s | 32) - 'a' + 10);
            *p = s < end ? s + 1 : end;
            return c;
        }
    }
    int n = utf8_check((const uint8_t *)s, (size_t)(end - s));
    if (n <= 0) {
        *p = s + 1;
        return UINT32_MAX;
    }
    *p = s + n;
    return utf8_decode((const uint8_t *)s, n);
}

/* Rules that replace rules of the table. They are faster, or equivalent for the vocabularies
 * that use them (DeepSeek's early ones have no token of several digits). */
static const struct {
    const char *ours, *published;
} spellings[] = {{"(?<![\\s])\\s++$", "\\s+$"}, {"\\p{N}+", "\\p{N}"}};

static bool same_text(const char *ours, struct gguf_str theirs) {
    const char *a = ours, *a_end = ours + strlen(ours), *b = theirs.ptr,
               *b_end = theirs.ptr + theirs.len;
    while (a < a_end && b < b_end) {
        uint32_t c = next_char(&a, a_end);
        if (c == UINT32_MAX || c != next_char(&b, b_end))
            return false;
    }
    return a == a_end && b == b_end;
}

static bool same_pattern(const char *ours, struct gguf_str theirs) {
    for (size_t i = 0; i < ARRAY_LEN(spellings); i++)
        if (str_eq(ours, spellings[i].ours) && same_text(spellings[i].published, theirs))
            return true;
    return same_text(ours, theirs);
}

const struct pretokenizer_spec *pretokenizer_find_patterns(const struct gguf_str *patterns,
                                                           size_t n, bool ignore_merges) {
    const struct pretokenizer_spec *found = NULL;
    for (size_t i = 0; i < n_pretokenizer_specs; i++) {
        const struct pretokenizer_spec *spec = &pretokenizer_specs[i];
        size_t k = 0;
        while (k < n && k < PRETOKENIZER_MAX_RULES && spec->rules[k].pattern != NULL &&
               !spec->rules[k].thousands && same_pattern(spec->rules[k].pattern, patterns[k]))
            k++;
        if (k < n || (k < PRETOKENIZER_MAX_RULES && spec->rules[k].pattern != NULL))
            continue;
        if (found == NULL || spec->ignore_merges == ignore_merges)
            found = spec;
    }
    return found;
}

/* White space up to its last line end. As published, a run without a line end is gone through
 * once more backwards, in one match: millions of steps for a long one. */
#define UP_TO_LAST_LINE_END "(?:[\\t\\x{b}\\x{c}\\x{85}\\p{Z}]*+[\\r\\n]++)++"
static const struct {
    const char *published, *linear;
} linear_spellings[] = {{"\\s*[\\r\\n]+", UP_TO_LAST_LINE_END},
                        {"\\s*[\\r\\n]", UP_TO_LAST_LINE_END}};

/* Writes the other form of a pattern in linear_spellings[] to out. Returns how many bytes of
 * the pattern that was, 0 for none. */
static size_t spell_linearly(const char *pattern, char **out) {
    for (size_t i = 0; i < ARRAY_LEN(linear_spellings); i++)
        if (str_starts(pattern, linear_spellings[i].published)) {
            *out = stpcpy(*out, linear_spellings[i].linear);
            return strlen(linear_spellings[i].published);
        }
    return 0;
}

/* The models' \s is Unicode's White_Space; PCRE2's has U+180E besides. Writes the
 * pattern with \s and \S spelled out, and in linear time; out is large enough for 20 bytes per
 * input byte. */
static void spell_out(const char *pattern, char *out) {
    static const char set[] = "\\t-\\r\\x{85}\\p{Z}";
    bool in_class = false;
    for (const char *s = pattern; *s != '\0'; s++) {
        size_t n = in_class ? 0 : spell_linearly(s, &out);
        if (n > 0) {
            s += n - 1;
        } else if (*s == '\\' && (s[1] == 's' || s[1] == 'S')) {
            BUG_ON(in_class && s[1] == 'S');
            const char *open = in_class ? "" : s[1] == 's' ? "[" : "[^";
            out = stpcpy(stpcpy(stpcpy(out, open), set), in_class ? "" : "]");
            s++;
        } else if (*s == '\\') {
            *out++ = *s++;
            *out++ = *s;
        } else {
            in_class = in_class ? *s != ']' : *s == '[';
            *out++ = *s;
        }
    }
    *out = '\0';
}

/* A letter since Unicode 14 (U+1DF00), one since 15 (U+1E4D0), one since 16 (U+1C8A). */
bool pretokenizer_unicode_is_usual(void) {
    static const char pattern[] = "\\A\\p{Ll}\\p{Cn}\\p{Cn}\\z",
                      text[] = "\xf0\x9d\xbc\x80\xf0\x9e\x93\x90\xe1\xb2\x8a";
    int code;
    PCRE2_SIZE at;
    pcre2_code *p = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                  PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    pcre2_match_data *match = p != NULL ? pcre2_match_data_create(1, NULL) : NULL;
    bool is = match == NULL ||
              pcre2_match(p, (PCRE2_SPTR)text, sizeof text - 1, 0, 0, match, NULL) >= 0;
    pcre2_match_data_free(match);
    pcre2_code_free(p);
    return is; /* without memory nothing is said */
}

static enum status compile(pcre2_code **out, const char *pattern, uint32_t options,
                           struct err *err) {
    char *text = mem_alloc(20 * strlen(pattern) + 1);
    if (text == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a pre-tokenizer's pattern");
    spell_out(pattern, text);
    int code;
    PCRE2_SIZE at;
    *out = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_UCP | options, &code, &at, NULL);
    mem_free(text);
    if (*out == NULL) {
        BUG_ON(code != PCRE2_ERROR_HEAP_FAILED && code < 0);
        bug_at(__FILE__, __LINE__, pattern);
    }
    /* Without JIT (a system that forbids it) pcre2_match() interprets: slower, same result. */
    pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return ST_OK;
}

static enum status open_with(struct pretokenizer **out, const struct pretokenizer_spec *spec,
                             uint32_t options, struct err *err) {
    struct pretokenizer *p = mem_calloc(1, sizeof *p);
    if (p == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory for a pre-tokenizer");
    for (size_t i = 0; i < PRETOKENIZER_MAX_RULES && spec->rules[i].pattern != NULL; i++) {
        enum status st = compile(&p->codes[i], spec->rules[i].pattern, options, err);
        if (st != ST_OK) {
            pretokenizer_close(p);
            return st;
        }
        p->thousands[i] = spec->rules[i].thousands;
        p->n_rules++;
    }
    *out = p;
    return ST_OK;
}

enum status pretokenizer_open(struct pretokenizer **out, const struct pretokenizer_spec *spec,
                              struct err *err) {
    return open_with(out, spec, 0, err);
}

enum status pretokenizer_open_counting(struct pretokenizer **out,
                                       const struct pretokenizer_spec *spec, struct err *err) {
    return open_with(out, spec, PCRE2_AUTO_CALLOUT, err);
}

void pretokenizer_close(struct pretokenizer *p) {
    if (p == NULL)
        return;
    for (size_t i = 0; i < p->n_rules; i++)
        pcre2_code_free(p->codes[i]);
    mem_free(p);
}

static int count_step(pcre2_callout_block *block, void *arg) {
    struct splitter *s = arg;
    (void)block;
    s->n_steps++;
    return 0;
}

struct splitter *splitter_open(const struct pretokenizer *p) {
    struct splitter *s = mem_calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->p = p;
    s->context = pcre2_match_context_create(NULL);
    s->match = pcre2_match_data_create(1, NULL);
    s->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    if (s->context == NULL || s->match == NULL) {
        splitter_close(s);
        return NULL;
    }
    pcre2_set_callout(s->context, count_step, s); /* called if opened for counting alone */
    if (s->stack != NULL)                         /* NULL without a JIT */
        pcre2_jit_stack_assign(s->context, NULL, s->stack);
    return s;
}

struct splitter_work splitter_work(const struct splitter *s) {
    return (struct splitter_work){s->n_steps, s->n_given_up};
}

void splitter_close(struct splitter *s) {
    if (s == NULL)
        return;
    pcre2_match_context_free(s->context);
    pcre2_match_data_free(s->match);
    pcre2_jit_stack_free(s->stack);
    mem_free(s);
}

static enum status apply(struct splitter *s, size_t rule, const char *text, size_t len);

/* The digits of a match in threes from the right: 1 234 567. */
static enum status apply_thousands(struct splitter *s, size_t rule, const char *text,
                                   size_t len) {
    size_t n_chars = 0;
    for (size_t i = 0; i < len; i++)
        n_chars += ((uint8_t)text[i] & 0xc0) != 0x80;
    size_t begin = 0, left = n_chars;
    while (begin < len) {
        size_t take = left % 3 == 0 ? 3 : left % 3;
        size_t end = begin;
        for (size_t i = 0; i < take; i++)
            do
                end++;
            while (end < len && ((uint8_t)text[end] & 0xc0) == 0x80);
        TRY(apply(s, rule + 1, text + begin, end - begin));
        begin = end;
        left -= take;
    }
    return ST_OK;
}

static void set_limit(struct splitter *s, size_t n_bytes) {
    uint64_t limit = (uint64_t)STEPS_PER_BYTE * (n_bytes + GIVE_UP_BYTES);
    pcre2_set_match_limit(s->context, (uint32_t)MIN(limit, UINT32_MAX));
}

/* Where to go on when the engine gave up at `at`: some way further, between characters. */
static size_t give_up(struct splitter *s, const char *text, size_t len, size_t at) {
    s->n_given_up++;
    set_limit(s, GIVE_UP_BYTES);
    if (len - at <= GIVE_UP_BYTES)
        return len;
    size_t end = at + GIVE_UP_BYTES;
    while (((uint8_t)text[end] & 0xc0) == 0x80)
        end--;
    return end;
}

static enum status apply(struct splitter *s, size_t rule, const char *text, size_t len) {
    if (rule == s->p->n_rules)
        return s->word(s->arg, text, len);
    size_t done = 0;
    while (done < len) {
        int n = pcre2_match(s->p->codes[rule], (PCRE2_SPTR)text, len, done,
                            PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, s->match, s->context);
        size_t begin = len, end = len;
        if (n > 0) {
            const PCRE2_SIZE *at = pcre2_get_ovector_pointer(s->match);
            begin = at[0];
            end = at[1];
        } else if (n != PCRE2_ERROR_NOMATCH) {
            begin = end = give_up(s, text, len, done);
        }
        if (begin > done)
            TRY(apply(s, rule + 1, text + done, begin - done));
        if (end > begin)
            TRY(s->p->thousands[rule] ? apply_thousands(s, rule, text + begin, end - begin)
                                      : apply(s, rule + 1, text + begin, end - begin));
        done = end;
    }
    return ST_OK;
}

enum status splitter_run(struct splitter *s, const char *text, size_t len,
                         enum status (*word)(void *arg, const char *text, size_t len),
                         void *arg) {
    s->word = word;
    s->arg = arg;
    set_limit(s, len);
    return apply(s, 0, text, len);
}
