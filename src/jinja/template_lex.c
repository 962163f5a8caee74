/* template_lex.c: the lexer. It splits the source at {{ }}, {% %} and {# #} with Jinja's rules
 * for white space (trim_blocks, lstrip_blocks and the - and + signs), and makes tokens of what
 * is inside. */
#include "jinja/template_ast.h"

#include <stdlib.h>

struct lexer {
    struct compiler *c;
    const char *s;
    size_t n, at;
    uint32_t line;
    bool line_starts; /* the last tag ended with a newline (or the template begins) */
};

static struct token *token_add(struct lexer *lx, enum token_kind kind, size_t begin,
                               size_t end) {
    struct compiler *c = lx->c;
    if (c->n_tokens == c->cap_tokens) {
        size_t cap = c->cap_tokens * 2 + 256;
        struct token *grown = compiler_scratch(c, cap * sizeof *grown, _Alignof(struct token));
        if (c->n_tokens != 0)
            memcpy(grown, c->tokens, c->n_tokens * sizeof *grown);
        c->tokens = grown;
        c->cap_tokens = cap;
    }
    struct token *t = &c->tokens[c->n_tokens++];
    *t = (struct token){
        .kind = kind, .line = lx->line, .text = lx->s + begin, .len = end - begin};
    t->value = value_text(t->text, t->len);
    return t;
}

static void count_lines(struct lexer *lx, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++)
        lx->line += lx->s[i] == '\n';
}

static bool looking_at(const struct lexer *lx, size_t at, const char *word) {
    size_t n = strlen(word);
    return n <= lx->n - at && memcmp(lx->s + at, word, n) == 0;
}

static size_t skip_space(const struct lexer *lx, size_t at) {
    while (at < lx->n) {
        uint32_t cp;
        size_t n = utf8_get(lx->s + at, lx->s + lx->n, &cp);
        if (!unicode_space(cp))
            break;
        at += n;
    }
    return at;
}

/* Where white space before `end` begins, not before `begin`. */
static size_t space_before(const struct lexer *lx, size_t begin, size_t end) {
    while (end > begin) {
        size_t last = end - 1;
        while (last > begin && ((unsigned char)lx->s[last] & 0xc0) == 0x80)
            last--;
        uint32_t cp;
        if (utf8_get(lx->s + last, lx->s + lx->n, &cp) != end - last || !unicode_space(cp))
            break;
        end = last;
    }
    return end;
}

/* The text [begin, end) before a tag with this sign; blocks and comments also lose the spaces
 * between the line's beginning and themselves. */
static void lex_data(struct lexer *lx, size_t begin, size_t end, char sign, bool is_print) {
    size_t stop = end;
    if (sign == '-') {
        stop = space_before(lx, begin, end);
    } else if (sign != '+' && !is_print) {
        size_t line = end;
        while (line > begin && lx->s[line - 1] != '\n')
            line--;
        bool starts = line > begin || lx->line_starts;
        if (starts && space_before(lx, line, end) == line)
            stop = line;
    }
    if (stop > begin)
        token_add(lx, T_DATA, begin, stop);
    count_lines(lx, begin, end);
}

/* After a tag: "-" eats all white space, none eats one newline, "+" nothing. */
static void after_tag(struct lexer *lx, char sign, bool trims_newline) {
    size_t begin = lx->at;
    if (sign == '-')
        lx->at = skip_space(lx, lx->at);
    else if (sign != '+' && trims_newline && lx->at < lx->n && lx->s[lx->at] == '\n')
        lx->at++;
    lx->line_starts = lx->at > begin && lx->s[lx->at - 1] == '\n';
    count_lines(lx, begin, lx->at);
}

static void lex_comment(struct lexer *lx) {
    const char *end = memmem(lx->s + lx->at, lx->n - lx->at, "#}", 2);
    if (end == NULL)
        template_fail(lx->c, ST_BAD_INPUT, lx->line, "missing end of comment tag");
    size_t close = (size_t)(end - lx->s);
    char sign = close > lx->at ? lx->s[close - 1] : ' ';
    count_lines(lx, lx->at, close);
    lx->at = close + 2;
    after_tag(lx, sign, true);
}

/* {% raw %}: true and past it if this block (at: after "{%" and its sign) is one. */
static bool lex_raw(struct lexer *lx) {
    size_t at = skip_space(lx, lx->at);
    if (!looking_at(lx, at, "raw"))
        return false;
    at = skip_space(lx, at + 3);
    bool strip = looking_at(lx, at, "-%}");
    if (!strip && !looking_at(lx, at, "%}"))
        return false;
    count_lines(lx, lx->at, at);
    lx->at = at + (strip ? 3 : 2);
    after_tag(lx, strip ? '-' : '+', false);

    for (size_t open = lx->at; open < lx->n; open++) {
        if (!looking_at(lx, open, "{%"))
            continue;
        char sign = open + 2 < lx->n ? lx->s[open + 2] : ' ';
        at = skip_space(lx, open + 2 + (sign == '-' || sign == '+'));
        if (!looking_at(lx, at, "endraw"))
            continue;
        at = skip_space(lx, at + 6);
        char end_sign = at < lx->n && lx->s[at] != '%' ? lx->s[at] : ' ';
        at += end_sign == '-' || end_sign == '+';
        if (!looking_at(lx, at, "%}"))
            continue;
        lex_data(lx, lx->at, open, sign, false);
        count_lines(lx, open, at);
        lx->at = at + 2;
        after_tag(lx, end_sign, true);
        return true;
    }
    template_fail(lx->c, ST_BAD_INPUT, lx->line, "missing end of raw directive");
}

/* ---- inside a tag ----------------------------------------------------------------------- */

static bool is_digit(char ch) {
    return ch >= '0' && ch <= '9';
}

static bool is_name_start(char ch) {
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '_' ||
           (unsigned char)ch >= 0x80;
}

static char char_at(const struct lexer *lx, size_t at) {
    return at < lx->n ? lx->s[at] : '\0';
}

static size_t skip_digits(const struct lexer *lx, size_t at) {
    while (is_digit(char_at(lx, at)) ||
           (char_at(lx, at) == '_' && is_digit(char_at(lx, at + 1))))
        at++;
    return at;
}

static int digit_of(char ch) {
    return is_digit(ch)             ? ch - '0'
           : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
           : ch >= 'A' && ch <= 'F' ? ch - 'A' + 10
                                    : 99;
}

static void lex_integer(struct lexer *lx, size_t begin, size_t end, int base) {
    int64_t value = 0;
    for (size_t i = begin; i < end; i++) {
        if (lx->s[i] == '_')
            continue;
        if (__builtin_mul_overflow(value, (int64_t)base, &value) ||
            __builtin_add_overflow(value, (int64_t)digit_of(lx->s[i]), &value))
            template_fail(lx->c, ST_UNSUPPORTED, lx->line, "integers have at most 63 bits");
    }
    token_add(lx, T_INT, begin, end)->value = value_int(value);
    lx->at = end;
}

static void lex_float(struct lexer *lx, size_t end) {
    char text[400];
    size_t n = 0;
    for (size_t i = lx->at; i < end; i++) {
        if (n + 1 == sizeof text)
            template_fail(lx->c, ST_BAD_INPUT, lx->line, "a number is too long");
        if (lx->s[i] != '_')
            text[n++] = lx->s[i];
    }
    text[n] = '\0';
    token_add(lx, T_FLOAT, lx->at, end)->value = value_float(strtod(text, NULL));
    lx->at = end;
}

static void lex_number(struct lexer *lx) {
    char kind = char_at(lx, lx->at + 1);
    int base = kind == 'x' || kind == 'X'   ? 16
               : kind == 'o' || kind == 'O' ? 8
               : kind == 'b' || kind == 'B' ? 2
                                            : 10;
    if (char_at(lx, lx->at) == '0' && base != 10) {
        size_t end = lx->at + 2;
        while (digit_of(char_at(lx, end)) < base || char_at(lx, end) == '_')
            end++;
        lex_integer(lx, lx->at + 2, end, base);
        return;
    }
    size_t end = skip_digits(lx, lx->at), whole = end;
    bool is_member = lx->at > 0 && lx->s[lx->at - 1] == '.'; /* a.0.1 holds no float */
    if (!is_member && char_at(lx, end) == '.' && is_digit(char_at(lx, end + 1)))
        end = skip_digits(lx, end + 1);
    char e = char_at(lx, end);
    if (!is_member && (e == 'e' || e == 'E')) {
        char sign = char_at(lx, end + 1);
        size_t digits = end + 1 + (sign == '+' || sign == '-');
        if (is_digit(char_at(lx, digits)))
            end = skip_digits(lx, digits);
    }
    if (end == whole)
        lex_integer(lx, lx->at, end, 10);
    else
        lex_float(lx, end);
}

/* One escape at s[at] == '\\': writes what it stands for and returns its length. Unknown ones
 * stay as they are, as in Python. */
static size_t lex_escape(struct lexer *lx, size_t at, size_t end, char *out, size_t *n_out) {
    static const char simple[][2] = {{'n', '\n'},  {'t', '\t'}, {'r', '\r'}, {'\\', '\\'},
                                     {'\'', '\''}, {'"', '"'},  {'a', '\a'}, {'b', '\b'},
                                     {'f', '\f'},  {'v', '\v'}};
    char kind = lx->s[at + 1];
    if (kind == '\n')
        return 2;
    for (size_t i = 0; i < ARRAY_LEN(simple); i++) {
        if (kind == simple[i][0]) {
            out[(*n_out)++] = simple[i][1];
            return 2;
        }
    }
    bool octal = kind >= '0' && kind <= '7';
    size_t want = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : octal ? 3 : 0;
    size_t first = at + (octal ? 1 : 2), i = first;
    uint32_t c = 0;
    for (; i < end && i - first < want && digit_of(lx->s[i]) < (octal ? 8 : 16); i++)
        c = c * (octal ? 8 : 16) + (uint32_t)digit_of(lx->s[i]);
    if (want == 0) {
        out[(*n_out)++] = '\\';
        return 1;
    }
    if (!octal && i - first != want)
        template_fail(lx->c, ST_BAD_INPUT, lx->line, "a truncated \\%c escape", kind);
    *n_out += utf8_put(c, out + *n_out); /* never longer than the escape */
    return i - at;
}

static void lex_string(struct lexer *lx) {
    char quote = lx->s[lx->at];
    size_t begin = lx->at + 1, end = begin;
    bool escaped = false;
    while (end < lx->n && lx->s[end] != quote) {
        escaped |= lx->s[end] == '\\';
        end += lx->s[end] == '\\' ? 2 : 1;
    }
    if (end >= lx->n)
        template_fail(lx->c, ST_BAD_INPUT, lx->line, "a string without an end");
    struct token *t = token_add(lx, T_STRING, begin, end);
    if (escaped) {
        char *out = compiler_alloc(lx->c, end - begin, 1);
        size_t n = 0;
        for (size_t i = begin; i < end;) {
            if (lx->s[i] == '\\')
                i += lex_escape(lx, i, end, out, &n);
            else
                out[n++] = lx->s[i++];
        }
        t->value = value_text(out, n);
    }
    count_lines(lx, begin, end);
    lx->at = end + 1;
}

static void lex_operator(struct lexer *lx) {
    static const char *const operators[] = {"//", "**", "==", "!=", "<=", ">=", "+", "-", "*",
                                            "/",  "%",  "~",  "<",  ">",  "=",  "(", ")", "[",
                                            "]",  "{",  "}",  ".",  ":",  "|",  ",", ";"};
    for (size_t i = 0; i < ARRAY_LEN(operators); i++) {
        if (looking_at(lx, lx->at, operators[i])) {
            size_t n = strlen(operators[i]);
            token_add(lx, T_OPERATOR, lx->at, lx->at + n);
            lx->at += n;
            return;
        }
    }
    template_fail(lx->c, ST_BAD_INPUT, lx->line, "unexpected character '%c'",
                  (unsigned char)lx->s[lx->at] < 0x20 ? '?' : lx->s[lx->at]);
}

/* The end of the tag at this place, with its sign, if it is one. */
static bool lex_tag_end(struct lexer *lx, bool is_print) {
    char sign = lx->s[lx->at];
    bool has_sign = sign == '-' || (sign == '+' && !is_print);
    if (!looking_at(lx, lx->at + has_sign, is_print ? "}}" : "%}"))
        return false;
    token_add(lx, is_print ? T_PRINT_END : T_BLOCK_END, lx->at, lx->at);
    lx->at += 2 + has_sign;
    after_tag(lx, has_sign ? sign : ' ', !is_print);
    return true;
}

static void lex_tag(struct lexer *lx, bool is_print) {
    uint32_t first_line = lx->line;
    size_t open = 0; /* brackets: inside them "}}" closes two dicts */
    token_add(lx, is_print ? T_PRINT_BEGIN : T_BLOCK_BEGIN, lx->at, lx->at);
    for (;;) {
        size_t begin = lx->at;
        lx->at = skip_space(lx, lx->at);
        count_lines(lx, begin, lx->at);
        if (lx->at >= lx->n)
            template_fail(lx->c, ST_BAD_INPUT, first_line, "a tag without an end");
        if (open == 0 && lex_tag_end(lx, is_print))
            return;
        char ch = lx->s[lx->at];
        if (is_digit(ch)) {
            lex_number(lx);
        } else if (ch == '\'' || ch == '"') {
            lex_string(lx);
        } else if (is_name_start(ch)) {
            size_t end = lx->at;
            while (is_name_start(char_at(lx, end)) || is_digit(char_at(lx, end)))
                end++;
            token_add(lx, T_NAME, lx->at, end);
            lx->at = end;
        } else {
            lex_operator(lx);
            open += ch == '(' || ch == '[' || ch == '{';
            open -= open > 0 && (ch == ')' || ch == ']' || ch == '}');
        }
    }
}

/* The next "{{", "{%" or "{#" at or after `at`. */
static size_t find_tag(const struct lexer *lx, size_t at) {
    for (; at + 1 < lx->n; at++)
        if (lx->s[at] == '{' && strchr("{%#", lx->s[at + 1]) != NULL && lx->s[at + 1] != '\0')
            return at;
    return lx->n;
}

void template_lex(struct compiler *c) {
    struct lexer lx = {.c = c, .s = c->source, .n = c->len, .line = 1, .line_starts = true};
    while (lx.at < lx.n) {
        size_t begin = lx.at, open = find_tag(&lx, lx.at);
        if (open == lx.n) {
            token_add(&lx, T_DATA, begin, open);
            break;
        }
        char kind = lx.s[open + 1], sign = char_at(&lx, open + 2);
        lex_data(&lx, begin, open, sign, kind == '{');
        lx.at = open + 2 + (sign == '-' || sign == '+');
        if (kind == '#')
            lex_comment(&lx);
        else if (kind == '{' || !lex_raw(&lx))
            lex_tag(&lx, kind == '{');
    }
    token_add(&lx, T_END, lx.n, lx.n);
}
