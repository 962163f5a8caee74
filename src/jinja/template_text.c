/* template_text.c: text of templates: UTF-8 by code points, and the string operations that
 * filters and methods share. */
#include "jinja/template_value.h"

#include <utf8proc.h>

size_t utf8_get(const char *p, const char *end, uint32_t *code_point) {
    const unsigned char *s = (const unsigned char *)p;
    size_t left = (size_t)(end - p);
    if (s[0] < 0x80) {
        *code_point = s[0];
        return 1;
    }
    size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    *code_point = 0xfffd;
    if (s[0] < 0xc2 || s[0] > 0xf4 || n > left)
        return 1;
    uint32_t c = s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 1;
        c = c << 6 | (s[i] & 0x3fu);
    }
    if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 1;
    *code_point = c;
    return n;
}

size_t utf8_put(uint32_t c, char buf[4]) {
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        c = 0xfffd;
    if (c < 0x80) {
        buf[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        buf[i] = (char)(0x80 | (c & 0x3f));
    buf[0] = (char)((0xf00u >> n & 0xf0u) | c);
    return n;
}

bool utf8_valid(const char *p, size_t len) {
    for (size_t at = 0; at < len;) {
        uint32_t c;
        size_t n = utf8_get(p + at, p + len, &c);
        if (n == 1 && (unsigned char)p[at] >= 0x80)
            return false;
        at += n;
    }
    return true;
}

size_t utf8_count(const char *p, size_t len) {
    size_t n = 0;
    uint32_t c;
    for (size_t at = 0; at < len; n++)
        at += utf8_get(p + at, p + len, &c);
    return n;
}

size_t utf8_offset(const char *p, size_t len, size_t i) {
    size_t at = 0;
    uint32_t c;
    for (; i > 0 && at < len; i--)
        at += utf8_get(p + at, p + len, &c);
    return at;
}

bool unicode_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

size_t text_find(struct value hay, struct value needle, size_t from) {
    if (from > hay.len || needle.len > hay.len - from)
        return SIZE_MAX;
    if (needle.len == 0)
        return from;
    const char *p = memmem(hay.text + from, hay.len - from, needle.text, needle.len);
    return p == NULL ? SIZE_MAX : (size_t)(p - hay.text);
}

struct value text_slice(struct value s, size_t begin, size_t end) {
    struct value part = value_text(s.text + begin, end - begin);
    part.safe = s.safe;
    return part;
}

/* Whether the character at p is to be stripped. */
static bool in_set(const char *p, size_t n, uint32_t c, struct value chars) {
    if (chars.kind != V_STRING)
        return unicode_space(c);
    uint32_t other;
    for (size_t at = 0, m; at < chars.len; at += m) {
        m = utf8_get(chars.text + at, chars.text + chars.len, &other);
        if (m == n && memcmp(chars.text + at, p, n) == 0)
            return true;
    }
    return false;
}

struct value text_strip(struct render *r, struct value s, struct value chars, int side) {
    if (chars.kind != V_MISSING && chars.kind != V_NONE)
        need_text(r, chars);
    size_t begin = 0, end = s.len, n;
    uint32_t c;
    while ((side & 1) != 0 && begin < end) {
        n = utf8_get(s.text + begin, s.text + end, &c);
        if (!in_set(s.text + begin, n, c, chars))
            break;
        begin += n;
    }
    while ((side & 2) != 0 && end > begin) {
        size_t last = end - 1;
        while (last > begin && end - last < 4 && ((unsigned char)s.text[last] & 0xc0) == 0x80)
            last--;
        n = utf8_get(s.text + last, s.text + end, &c);
        if (n != end - last) { /* not UTF-8: a byte by itself */
            last = end - 1;
            n = utf8_get(s.text + last, s.text + end, &c);
        }
        if (!in_set(s.text + last, n, c, chars))
            break;
        end = last;
    }
    render_spend(r, (s.len - (end - begin)) * (chars.kind == V_STRING ? chars.len + 1 : 1) / 8);
    return text_slice(s, begin, end);
}

struct value text_replace(struct render *r, struct value s, struct value old, struct value new,
                          int64_t count) {
    size_t mark = r->n_out, at = 0;
    render_spend(r, s.len / 32);
    for (int64_t done = 0; count < 0 || done < count; done++) {
        size_t hit = text_find(s, old, at);
        if (hit == SIZE_MAX)
            break;
        out_put(r, s.text + at, hit - at);
        out_put(r, new.text, new.len);
        at = hit + old.len;
        if (old.len == 0) { /* Python: before every character, and at the end */
            if (at == s.len) {
                at = SIZE_MAX;
                break;
            }
            uint32_t c;
            size_t n = utf8_get(s.text + at, s.text + s.len, &c);
            out_put(r, s.text + at, n);
            at += n;
        }
        render_spend(r, 1);
    }
    if (at == 0 && r->n_out == mark)
        return s;
    if (at < s.len)
        out_put(r, s.text + at, s.len - at);
    struct value v = out_take(r, mark);
    v.safe = s.safe;
    return v;
}

struct value text_escape(struct render *r, struct value s) {
    s = value_str(r, s);
    if (s.safe)
        return s;
    size_t mark = r->n_out;
    render_spend(r, s.len / 4);
    for (size_t i = 0; i < s.len; i++) {
        const char *entity = s.text[i] == '&'    ? "&amp;"
                             : s.text[i] == '<'  ? "&lt;"
                             : s.text[i] == '>'  ? "&gt;"
                             : s.text[i] == '\'' ? "&#39;"
                             : s.text[i] == '"'  ? "&#34;"
                                                 : NULL;
        if (entity != NULL)
            out_puts(r, entity);
        else
            out_put(r, s.text + i, 1);
    }
    struct value v = out_take(r, mark);
    v.safe = true;
    return v;
}

static bool is_cased_letter(uint32_t c) {
    utf8proc_category_t cat = utf8proc_category((utf8proc_int32_t)c);
    return cat == UTF8PROC_CATEGORY_LU || cat == UTF8PROC_CATEGORY_LL ||
           cat == UTF8PROC_CATEGORY_LT;
}

static void put_upper(struct render *r, uint32_t c, bool only_first) {
    if (c == 0xdf) /* sharp s: the one common letter whose capital has two letters */
        out_puts(r, only_first ? "Ss" : "SS");
    else if (only_first)
        out_char(r, (uint32_t)utf8proc_totitle((utf8proc_int32_t)c));
    else
        out_char(r, (uint32_t)utf8proc_toupper((utf8proc_int32_t)c));
}

static void put_lower(struct render *r, uint32_t c) {
    out_char(r, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}

struct value text_change_case(struct render *r, struct value s, enum text_case how) {
    size_t mark = r->n_out;
    bool in_word = false;
    render_spend(r, s.len / 4);
    for (size_t at = 0, n; at < s.len; at += n) {
        uint32_t c;
        n = utf8_get(s.text + at, s.text + s.len, &c);
        bool is_upper = utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LU;
        bool starts = how == CASE_TITLE ? !in_word : at == 0;
        if (how == CASE_UPPER || (how == CASE_SWAP && !is_upper))
            put_upper(r, c, false);
        else if ((how == CASE_TITLE || how == CASE_CAPITAL) && starts)
            put_upper(r, c, true);
        else
            put_lower(r, c);
        in_word = is_cased_letter(c);
    }
    struct value v = out_take(r, mark);
    v.safe = s.safe;
    return v;
}

struct value text_concat(struct render *r, struct value a, struct value b) {
    bool safe = a.safe || b.safe;
    if (safe) {
        a = text_escape(r, a);
        b = text_escape(r, b);
    }
    struct value v = a;
    if (b.len == 0) {
        v = a;
    } else if (a.len == 0) {
        v = b;
    } else if (arena_extend(&r->arena, a.text + a.len, b.len)) {
        memcpy((char *)a.text + a.len, b.text, b.len); /* our own arena: writable */
        v.len = a.len + b.len;
        render_spend(r, b.len / 32);
    } else {
        char *p = RENDER_ARRAY(r, char, a.len + b.len);
        memcpy(p, a.text, a.len);
        memcpy(p + a.len, b.text, b.len);
        render_spend(r, (a.len + b.len) / 32);
        v = value_text(p, a.len + b.len);
    }
    v.safe = safe;
    return v;
}
