/* template_methods.c: methods of strings, as Python's. Those of lists, dicts and loops are in
 * template_methods_seq.c. */
#include "jinja/template_methods.h"
#include "jinja/template_filters.h"

#include <utf8proc.h>

static bool is_white(const struct call *call, size_t i) { /* None or not given */
    return call->arg[i].kind == V_MISSING || call->arg[i].kind == V_NONE;
}

/* ---- split, join --------------------------------------------------------------------------- */

static size_t skip_while_space(struct value s, size_t at, bool space) {
    while (at < s.len) {
        uint32_t c;
        size_t n = utf8_get(s.text + at, s.text + s.len, &c);
        if (unicode_space(c) != space)
            break;
        at += n;
    }
    return at;
}

/* The last of max + 1 parts is the rest as it stands, with the white space at its far end. */
static struct value split_white(struct render *r, struct value s, int64_t max) {
    struct value list = seq_new(r, V_LIST, 0);
    for (size_t at = skip_while_space(s, 0, true); at < s.len;) {
        size_t end = skip_while_space(s, at, false);
        if (max >= 0 && (int64_t)list.seq->n == max)
            end = s.len;
        seq_push(r, list, text_slice(s, at, end));
        at = skip_while_space(s, end, true);
    }
    return list;
}

static struct value need_separator(struct render *r, const struct call *call) {
    struct value separator = need_text(r, call->arg[0]);
    if (separator.len == 0)
        render_fail(r, ST_BAD_INPUT, "empty separator");
    return separator;
}

static struct value m_split(struct render *r, struct value s, struct call *call) {
    int64_t max = arg_int(r, call, 1, -1);
    if (is_white(call, 0))
        return split_white(r, s, max);
    struct value separator = need_separator(r, call), list = seq_new(r, V_LIST, 0);
    size_t at = 0;
    render_spend(r, s.len / 32);
    while (max < 0 || (int64_t)list.seq->n < max) {
        size_t hit = text_find(s, separator, at);
        if (hit == SIZE_MAX)
            break;
        seq_push(r, list, text_slice(s, at, hit));
        at = hit + separator.len;
    }
    seq_push(r, list, text_slice(s, at, s.len));
    return list;
}

/* The last occurrence that ends at or before `end`. */
static size_t find_last(struct value hay, struct value needle, size_t end) {
    if (needle.len > end)
        return SIZE_MAX;
    for (size_t at = end - needle.len + 1; at-- > 0;)
        if (memcmp(hay.text + at, needle.text, needle.len) == 0)
            return at;
    return SIZE_MAX;
}

static void reverse_list(struct seq *seq) {
    for (size_t i = 0; i < seq->n / 2; i++) {
        struct value kept = seq->items[i];
        seq->items[i] = seq->items[seq->n - 1 - i];
        seq->items[seq->n - 1 - i] = kept;
    }
}

static size_t word_begin(struct value s, size_t end) {
    while (end > 0) {
        size_t last = end - 1;
        while (last > 0 && ((unsigned char)s.text[last] & 0xc0) == 0x80)
            last--;
        uint32_t c;
        utf8_get(s.text + last, s.text + s.len, &c);
        if (unicode_space(c))
            break;
        end = last;
    }
    return end;
}

static struct value m_rsplit(struct render *r, struct value s, struct call *call) {
    int64_t max = arg_int(r, call, 1, -1);
    struct value list = seq_new(r, V_LIST, 0);
    render_spend(r, s.len / 8);
    if (is_white(call, 0)) {
        for (s = text_strip(r, s, value_none(), 2); s.len > 0;) {
            size_t begin = word_begin(s, s.len);
            if (max >= 0 && (int64_t)list.seq->n == max)
                begin = 0;
            seq_push(r, list, text_slice(s, begin, s.len));
            s = text_strip(r, text_slice(s, 0, begin), value_none(), 2);
        }
        reverse_list(list.seq);
        return list;
    }
    struct value separator = need_separator(r, call);
    size_t end = s.len;
    while (max < 0 || (int64_t)list.seq->n < max) {
        size_t hit = find_last(s, separator, end);
        if (hit == SIZE_MAX)
            break;
        seq_push(r, list, text_slice(s, hit + separator.len, end));
        end = hit;
    }
    seq_push(r, list, text_slice(s, 0, end));
    reverse_list(list.seq);
    return list;
}

/* splitlines(keepends): at \n, \r, \r\n and the other line boundaries of Python. */
static struct value m_splitlines(struct render *r, struct value s, struct call *call) {
    bool keep = arg_truth(call, 0, false);
    struct value list = seq_new(r, V_LIST, 0);
    size_t begin = 0;
    for (size_t at = 0, n; at < s.len; at += n) {
        uint32_t c;
        n = utf8_get(s.text + at, s.text + s.len, &c);
        if (!((c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
              c == 0x2029))
            continue;
        if (c == '\r' && at + 1 < s.len && s.text[at + 1] == '\n')
            n++;
        seq_push(r, list, text_slice(s, begin, keep ? at + n : at));
        begin = at + n;
    }
    if (begin < s.len)
        seq_push(r, list, text_slice(s, begin, s.len));
    return list;
}

static struct value m_partition(struct render *r, struct value s, struct call *call) {
    struct value separator = need_separator(r, call), t = seq_new(r, V_TUPLE, 3);
    size_t hit = text_find(s, separator, 0), end = hit + separator.len;
    bool found = hit != SIZE_MAX;
    seq_push(r, t, found ? text_slice(s, 0, hit) : s);
    seq_push(r, t, found ? separator : value_text("", 0));
    seq_push(r, t, found ? text_slice(s, end, s.len) : value_text("", 0));
    return t;
}

static struct value m_rpartition(struct render *r, struct value s, struct call *call) {
    struct value separator = need_separator(r, call), t = seq_new(r, V_TUPLE, 3);
    render_spend(r, s.len / 8);
    size_t hit = find_last(s, separator, s.len), end = hit + separator.len;
    bool found = hit != SIZE_MAX;
    seq_push(r, t, found ? text_slice(s, 0, hit) : value_text("", 0));
    seq_push(r, t, found ? separator : value_text("", 0));
    seq_push(r, t, found ? text_slice(s, end, s.len) : s);
    return t;
}

static struct value m_join(struct render *r, struct value s, struct call *call) {
    const struct seq *items = value_iterate(r, call->arg[0]);
    size_t mark = r->n_out;
    for (size_t i = 0; i < items->n; i++) {
        if (items->items[i].kind != V_STRING)
            render_fail(r, ST_BAD_INPUT, "sequence item %zu: expected str instance, %s found",
                        i, type_name(items->items[i]));
        if (i > 0)
            out_put(r, s.text, s.len);
        out_put(r, items->items[i].text, items->items[i].len);
    }
    return out_take(r, mark);
}

/* ---- strip, replace, case ------------------------------------------------------------------- */

static struct value m_strip(struct render *r, struct value s, struct call *call) {
    return text_strip(r, s, call->arg[0], 3);
}

static struct value m_lstrip(struct render *r, struct value s, struct call *call) {
    return text_strip(r, s, call->arg[0], 1);
}

static struct value m_rstrip(struct render *r, struct value s, struct call *call) {
    return text_strip(r, s, call->arg[0], 2);
}

static bool starts_with(struct value s, struct value prefix) {
    return prefix.len <= s.len && memcmp(s.text, prefix.text, prefix.len) == 0;
}

static bool ends_with(struct value s, struct value suffix) {
    return suffix.len <= s.len &&
           memcmp(s.text + s.len - suffix.len, suffix.text, suffix.len) == 0;
}

/* startswith(x, begin, end) where x may be a tuple. */
static struct value affix(struct render *r, struct value s, const struct call *call,
                          bool (*has)(struct value, struct value)) {
    int64_t n = (int64_t)value_length(r, s);
    int64_t begin = is_white(call, 1) ? 0 : need_int(r, call->arg[1]);
    int64_t end = is_white(call, 2) ? n : need_int(r, call->arg[2]);
    begin = begin < 0 ? MAX(begin + n, (int64_t)0) : begin;
    end = end < 0 ? MAX(end + n, (int64_t)0) : MIN(end, n);
    if (begin > end)
        return value_bool(false);
    s = text_slice(s, utf8_offset(s.text, s.len, (size_t)begin),
                   utf8_offset(s.text, s.len, (size_t)end));
    if (call->arg[0].kind != V_TUPLE)
        return value_bool(has(s, need_text(r, call->arg[0])));
    const struct seq *options = call->arg[0].seq;
    for (size_t i = 0; i < options->n; i++)
        if (has(s, need_text(r, options->items[i])))
            return value_bool(true);
    return value_bool(false);
}

static struct value m_startswith(struct render *r, struct value s, struct call *call) {
    return affix(r, s, call, starts_with);
}

static struct value m_endswith(struct render *r, struct value s, struct call *call) {
    return affix(r, s, call, ends_with);
}

static struct value m_removeprefix(struct render *r, struct value s, struct call *call) {
    struct value prefix = need_text(r, call->arg[0]);
    return starts_with(s, prefix) ? text_slice(s, prefix.len, s.len) : s;
}

static struct value m_removesuffix(struct render *r, struct value s, struct call *call) {
    struct value suffix = need_text(r, call->arg[0]);
    return ends_with(s, suffix) ? text_slice(s, 0, s.len - suffix.len) : s;
}

static struct value m_replace(struct render *r, struct value s, struct call *call) {
    return text_replace(r, s, need_text(r, call->arg[0]), need_text(r, call->arg[1]),
                        arg_int(r, call, 2, -1));
}

static struct value m_upper(struct render *r, struct value s, struct call *call) {
    (void)call;
    return text_change_case(r, s, CASE_UPPER);
}

static struct value m_lower(struct render *r, struct value s, struct call *call) {
    (void)call;
    return text_change_case(r, s, CASE_LOWER);
}

static struct value m_title(struct render *r, struct value s, struct call *call) {
    (void)call;
    return text_change_case(r, s, CASE_TITLE);
}

static struct value m_capitalize(struct render *r, struct value s, struct call *call) {
    (void)call;
    return text_change_case(r, s, CASE_CAPITAL);
}

static struct value m_swapcase(struct render *r, struct value s, struct call *call) {
    (void)call;
    return text_change_case(r, s, CASE_SWAP);
}

/* Spaces (or call->arg[1]) on the left and right, up to arg[0] characters in all. */
static struct value pad(struct render *r, struct value s, const struct call *call, bool both,
                        bool left) {
    int64_t missing = need_int(r, call->arg[0]) - (int64_t)value_length(r, s);
    struct value fill = arg_or(call, 1, value_text(" ", 1));
    if (value_length(r, need_text(r, fill)) != 1)
        render_fail(r, ST_BAD_INPUT, "The fill character must be exactly one character long");
    missing = MAX(missing, (int64_t)0);
    int64_t before = both   ? missing / 2 + (missing & as_int(call->arg[0]) & 1)
                     : left ? missing
                            : 0;
    size_t mark = r->n_out;
    for (int64_t i = 0; i < before; i++)
        out_put(r, fill.text, fill.len);
    out_put(r, s.text, s.len);
    for (int64_t i = before; i < missing; i++)
        out_put(r, fill.text, fill.len);
    return out_take(r, mark);
}

static struct value m_ljust(struct render *r, struct value s, struct call *call) {
    return pad(r, s, call, false, false);
}

static struct value m_rjust(struct render *r, struct value s, struct call *call) {
    return pad(r, s, call, false, true);
}

static struct value m_center(struct render *r, struct value s, struct call *call) {
    return pad(r, s, call, true, false);
}

static struct value m_zfill(struct render *r, struct value s, struct call *call) {
    int64_t missing = need_int(r, call->arg[0]) - (int64_t)value_length(r, s);
    size_t sign = s.len > 0 && (s.text[0] == '-' || s.text[0] == '+'), mark = r->n_out;
    out_put(r, s.text, sign);
    for (int64_t i = 0; i < missing; i++)
        out_put(r, "0", 1);
    out_put(r, s.text + sign, s.len - sign);
    return out_take(r, mark);
}

static struct value m_format(struct render *r, struct value s, struct call *call) {
    return format_braces(r, s, call);
}

/* ---- find -------------------------------------------------------------------------------- */

/* The code point where arg[0] begins within [arg[1], arg[2]), or -1. */
static int64_t find_index(struct render *r, struct value s, const struct call *call,
                          bool last) {
    struct value needle = need_text(r, call->arg[0]);
    int64_t n = (int64_t)value_length(r, s);
    int64_t begin = is_white(call, 1) ? 0 : need_int(r, call->arg[1]);
    int64_t end = is_white(call, 2) ? n : need_int(r, call->arg[2]);
    begin = begin < 0 ? MAX(begin + n, (int64_t)0) : begin;
    end = end < 0 ? end + n : MIN(end, n);
    if (begin > end)
        return -1;
    size_t from = utf8_offset(s.text, s.len, (size_t)begin);
    struct value part = text_slice(s, from, utf8_offset(s.text, s.len, (size_t)end));
    render_spend(r, s.len / 8);
    size_t hit = last ? find_last(part, needle, part.len) : text_find(part, needle, 0);
    return hit == SIZE_MAX ? -1 : begin + (int64_t)utf8_count(part.text, hit);
}

static struct value m_find(struct render *r, struct value s, struct call *call) {
    return value_int(find_index(r, s, call, false));
}

static struct value m_rfind(struct render *r, struct value s, struct call *call) {
    return value_int(find_index(r, s, call, true));
}

static struct value must_find(struct render *r, int64_t at) {
    if (at < 0)
        render_fail(r, ST_BAD_INPUT, "substring not found");
    return value_int(at);
}

static struct value m_index(struct render *r, struct value s, struct call *call) {
    return must_find(r, find_index(r, s, call, false));
}

static struct value m_rindex(struct render *r, struct value s, struct call *call) {
    return must_find(r, find_index(r, s, call, true));
}

static struct value m_count(struct render *r, struct value s, struct call *call) {
    struct value needle = need_text(r, call->arg[0]);
    if (needle.len == 0)
        return value_int((int64_t)value_length(r, s) + 1);
    int64_t n = 0;
    for (size_t at = 0; (at = text_find(s, needle, at)) != SIZE_MAX; at += needle.len)
        n++;
    render_spend(r, s.len / 32 + (size_t)n);
    return value_int(n);
}

/* ---- what the characters are ------------------------------------------------------------- */

static bool is_letter(utf8proc_category_t cat) {
    return cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
}

static bool all_characters(struct value s, bool (*is)(uint32_t c)) {
    for (size_t at = 0; at < s.len;) {
        uint32_t c;
        at += utf8_get(s.text + at, s.text + s.len, &c);
        if (!is(c))
            return false;
    }
    return s.len > 0;
}

static utf8proc_category_t category(uint32_t c) {
    return utf8proc_category((utf8proc_int32_t)c);
}

static bool is_alpha(uint32_t c) {
    return is_letter(category(c));
}

static bool is_decimal(uint32_t c) {
    return category(c) == UTF8PROC_CATEGORY_ND;
}

static bool is_numeric(uint32_t c) {
    return is_decimal(c) || category(c) == UTF8PROC_CATEGORY_NL ||
           category(c) == UTF8PROC_CATEGORY_NO;
}

static bool is_alnum(uint32_t c) {
    return is_alpha(c) || is_numeric(c);
}

static bool is_ascii(uint32_t c) {
    return c < 0x80;
}

static bool not_upper(uint32_t c) {
    return category(c) != UTF8PROC_CATEGORY_LU;
}

static bool not_lower(uint32_t c) {
    return category(c) != UTF8PROC_CATEGORY_LL;
}

#define CHARACTER_METHOD(name, condition)                                           \
    static struct value name(struct render *r, struct value s, struct call *call) { \
        (void)r;                                                                    \
        (void)call;                                                                 \
        return value_bool(condition);                                               \
    }

CHARACTER_METHOD(m_isalpha, all_characters(s, is_alpha))
CHARACTER_METHOD(m_isdigit, all_characters(s, is_decimal))
CHARACTER_METHOD(m_isnumeric, all_characters(s, is_numeric))
CHARACTER_METHOD(m_isalnum, all_characters(s, is_alnum))
CHARACTER_METHOD(m_isspace, all_characters(s, unicode_space))
CHARACTER_METHOD(m_isascii, s.len == 0 || all_characters(s, is_ascii))
CHARACTER_METHOD(m_islower, all_characters(s, not_upper) && !all_characters(s, not_lower))
CHARACTER_METHOD(m_isupper, all_characters(s, not_lower) && !all_characters(s, not_upper))

static const struct builtin string_methods[] = {
    {"split", "sep,maxsplit", 0, m_split},
    {"rsplit", "sep,maxsplit", 0, m_rsplit},
    {"splitlines", "keepends", 0, m_splitlines},
    {"partition", "sep", 1, m_partition},
    {"rpartition", "sep", 1, m_rpartition},
    {"join", "iterable", 1, m_join},
    {"strip", "chars", 0, m_strip},
    {"lstrip", "chars", 0, m_lstrip},
    {"rstrip", "chars", 0, m_rstrip},
    {"startswith", "prefix,start,end", 1, m_startswith},
    {"endswith", "suffix,start,end", 1, m_endswith},
    {"removeprefix", "prefix", 1, m_removeprefix},
    {"removesuffix", "suffix", 1, m_removesuffix},
    {"replace", "old,new,count", 2, m_replace},
    {"upper", "", 0, m_upper},
    {"lower", "", 0, m_lower},
    {"casefold", "", 0, m_lower},
    {"title", "", 0, m_title},
    {"capitalize", "", 0, m_capitalize},
    {"swapcase", "", 0, m_swapcase},
    {"ljust", "width,fillchar", 1, m_ljust},
    {"rjust", "width,fillchar", 1, m_rjust},
    {"center", "width,fillchar", 1, m_center},
    {"zfill", "width", 1, m_zfill},
    {"format", NULL, 0, m_format},
    {"find", "sub,start,end", 1, m_find},
    {"rfind", "sub,start,end", 1, m_rfind},
    {"index", "sub,start,end", 1, m_index},
    {"rindex", "sub,start,end", 1, m_rindex},
    {"count", "sub", 1, m_count},
    {"isalpha", "", 0, m_isalpha},
    {"isdigit", "", 0, m_isdigit},
    {"isdecimal", "", 0, m_isdigit},
    {"isnumeric", "", 0, m_isnumeric},
    {"isalnum", "", 0, m_isalnum},
    {"isspace", "", 0, m_isspace},
    {"isascii", "", 0, m_isascii},
    {"islower", "", 0, m_islower},
    {"isupper", "", 0, m_isupper},
};

const struct builtin *method_find(enum value_kind kind, const char *name, size_t len) {
    switch (kind) {
    case V_STRING:
        return builtin_find(string_methods, ARRAY_LEN(string_methods), name, len);
    case V_LIST:
        return builtin_find(list_methods, n_list_methods, name, len);
    case V_TUPLE:
    case V_RANGE:
        return builtin_find(tuple_methods, n_tuple_methods, name, len);
    case V_DICT:
        return builtin_find(dict_methods, n_dict_methods, name, len);
    case V_LOOP:
        return builtin_find(loop_methods, n_loop_methods, name, len);
    case V_CYCLER:
        return builtin_find(cycler_methods, n_cycler_methods, name, len);
    default:
        return NULL;
    }
}
