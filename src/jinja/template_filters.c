/* template_filters.c: filters on one value. Those on sequences are in template_filters_seq.c. */
#include "jinja/template_filters.h"

#include "base/exact.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct value arg_or(const struct call *call, size_t i, struct value otherwise) {
    return call->arg[i].kind == V_MISSING ? otherwise : call->arg[i];
}

int64_t arg_int(struct render *r, const struct call *call, size_t i, int64_t otherwise) {
    return call->arg[i].kind == V_MISSING ? otherwise : need_int(r, call->arg[i]);
}

bool arg_truth(const struct call *call, size_t i, bool otherwise) {
    return call->arg[i].kind == V_MISSING ? otherwise : value_truth(call->arg[i]);
}

static struct value f_tojson(struct render *r, struct value v, struct call *call) {
    bool one_line = arg_or(call, 1, value_none()).kind == V_NONE;
    struct json_style style = {
        .ascii = arg_truth(call, 0, false),
        .indent = arg_or(call, 1, value_none()),
        .sort_keys = arg_truth(call, 3, false),
        .item_separator = value_cstr(one_line ? ", " : ","),
        .key_separator = value_cstr(": "),
    };
    if (is_integral(style.indent) && as_int(style.indent) > 1000)
        render_fail(r, ST_BAD_INPUT, "tojson: an indent of more than 1000");
    struct value separators = arg_or(call, 2, value_none());
    if (separators.kind != V_NONE) {
        if (!is_sequence(separators) || separators.seq->n != 2)
            render_fail(r, ST_BAD_INPUT, "tojson: separators must be two strings");
        style.item_separator = need_text(r, separators.seq->items[0]);
        style.key_separator = need_text(r, separators.seq->items[1]);
    }
    if (style.indent.kind != V_NONE && style.indent.kind != V_STRING)
        style.indent = value_int(need_int(r, style.indent));
    size_t mark = r->n_out;
    out_json(r, v, &style);
    return out_take(r, mark);
}

static struct value f_default(struct render *r, struct value v, struct call *call) {
    (void)r;
    bool replace = v.kind == V_UNDEFINED || (arg_truth(call, 1, false) && !value_truth(v));
    return replace ? arg_or(call, 0, value_text("", 0)) : v;
}

static struct value f_length(struct render *r, struct value v, struct call *call) {
    (void)call;
    return value_int((int64_t)value_length(r, v));
}

static struct value f_string(struct render *r, struct value v, struct call *call) {
    (void)call;
    return value_str(r, v);
}

static struct value f_upper(struct render *r, struct value v, struct call *call) {
    (void)call;
    return text_change_case(r, value_str(r, v), CASE_UPPER);
}

static struct value f_lower(struct render *r, struct value v, struct call *call) {
    (void)call;
    return text_change_case(r, value_str(r, v), CASE_LOWER);
}

static struct value f_capitalize(struct render *r, struct value v, struct call *call) {
    (void)call;
    return text_change_case(r, value_str(r, v), CASE_CAPITAL);
}

/* A word of this filter begins after white space, "-" or an opening bracket. */
static struct value f_title(struct render *r, struct value v, struct call *call) {
    (void)call;
    struct value s = text_change_case(r, value_str(r, v), CASE_LOWER);
    size_t mark = r->n_out, begin = 0;
    for (size_t at = 0, n; at <= s.len; at += n) {
        uint32_t c = ' ';
        n = at < s.len ? utf8_get(s.text + at, s.text + s.len, &c) : 1;
        bool separates = unicode_space(c) || (c < 0x80 && strchr("-({[<", (int)c) != NULL);
        if (!separates)
            continue;
        struct value word = text_slice(s, begin, MIN(at, s.len));
        size_t first = utf8_offset(word.text, word.len, 1);
        out_value(r, text_change_case(r, text_slice(word, 0, first), CASE_UPPER));
        out_put(r, word.text + first, word.len - first);
        if (at < s.len)
            out_put(r, s.text + at, n);
        begin = at + n;
    }
    return out_take(r, mark);
}

static struct value f_trim(struct render *r, struct value v, struct call *call) {
    return text_strip(r, value_str(r, v), arg_or(call, 0, value_none()), 3);
}

static struct value f_replace(struct render *r, struct value v, struct call *call) {
    int64_t count = arg_or(call, 2, value_none()).kind == V_NONE ? -1 : arg_int(r, call, 2, -1);
    return text_replace(r, value_str(r, v), value_str(r, call->arg[0]),
                        value_str(r, call->arg[1]), count);
}

static struct value f_safe(struct render *r, struct value v, struct call *call) {
    (void)call;
    v = value_str(r, v);
    v.safe = true;
    return v;
}

static struct value f_escape(struct render *r, struct value v, struct call *call) {
    (void)call;
    return text_escape(r, v);
}

static struct value f_force_escape(struct render *r, struct value v, struct call *call) {
    (void)call;
    v = value_str(r, v);
    v.safe = false;
    return text_escape(r, v);
}

/* indent(width=4, first=false, blank=false): every line but the first, and not empty ones,
 * unless asked. */
static struct value f_indent(struct render *r, struct value v, struct call *call) {
    struct value s = value_str(r, v), width = arg_or(call, 0, value_int(4)), pad;
    bool first = arg_truth(call, 1, false), blank = arg_truth(call, 2, false);
    size_t mark = r->n_out;
    if (width.kind == V_STRING) {
        pad = width;
    } else {
        for (int64_t i = 0, n = need_int(r, width); i < n; i++)
            out_put(r, " ", 1);
        pad = out_take(r, mark);
    }
    for (size_t at = 0; at <= s.len;) {
        size_t nl = text_find(s, value_text("\n", 1), at);
        size_t end = nl == SIZE_MAX ? s.len : nl;
        bool is_first = at == 0;
        if (is_first ? first : blank || end > at)
            out_put(r, pad.text, pad.len);
        out_put(r, s.text + at, end - at + (nl != SIZE_MAX));
        at = end + 1;
    }
    return out_take(r, mark);
}

/* The digits of a text as int() reads them; false if it is not an integer of this base. */
static bool parse_int(struct render *r, struct value s, int base, int64_t *out) {
    char buf[80];
    size_t n = 0;
    s = text_strip(r, s, value_none(), 3);
    for (size_t i = 0; i < s.len; i++) {
        if (s.text[i] == '_' && i > 0)
            continue;
        if (n + 1 == sizeof buf || unicode_space((unsigned char)s.text[i]))
            return false;
        buf[n++] = s.text[i];
    }
    buf[n] = '\0';
    char *end;
    errno = 0;
    long long i = strtoll(buf, &end, base);
    if (end == buf || *end != '\0' || errno == ERANGE)
        return false;
    *out = i;
    return true;
}

static bool parse_float(struct render *r, struct value s, double *out) {
    char buf[400];
    s = text_strip(r, s, value_none(), 3);
    if (s.len == 0 || s.len >= sizeof buf || memchr(s.text, 'x', s.len) != NULL ||
        memchr(s.text, '\0', s.len) != NULL || memchr(s.text, '(', s.len) != NULL)
        return false;
    memcpy(buf, s.text, s.len);
    buf[s.len] = '\0';
    char *end;
    *out = strtod(buf, &end);
    return end != buf && *end == '\0' && !unicode_space((unsigned char)buf[0]);
}

static bool float_to_int(double f, int64_t *out) {
    if (!(f > -9.2e18 && f < 9.2e18))
        return false;
    *out = (int64_t)f;
    return true;
}

static struct value f_int(struct render *r, struct value v, struct call *call) {
    int64_t i = 0, base = arg_int(r, call, 1, 10);
    double f;
    if (is_integral(v))
        return value_int(as_int(v));
    if (v.kind == V_FLOAT && float_to_int(v.number, &i))
        return value_int(i);
    if (base < 0 || base == 1 || base > 36)
        render_fail(r, ST_BAD_INPUT, "int: the base must be 0 or 2 to 36");
    if (v.kind == V_STRING && parse_int(r, v, (int)base, &i))
        return value_int(i);
    if (v.kind == V_STRING && parse_float(r, v, &f) && float_to_int(f, &i))
        return value_int(i);
    if (v.kind == V_UNDEFINED)
        undefined_fail(r, v);
    return arg_or(call, 0, value_int(0));
}

static struct value f_float(struct render *r, struct value v, struct call *call) {
    double f;
    if (is_number(v))
        return value_float(as_double(v));
    if (v.kind == V_STRING && parse_float(r, v, &f))
        return value_float(f);
    if (v.kind == V_UNDEFINED)
        undefined_fail(r, v);
    return arg_or(call, 0, value_float(0));
}

static double round_half_even(double f, int64_t digits) {
    char buf[400];
    if (digits > 22 || !isfinite(f))
        return f;
    if (digits >= 0) { /* the decimal nearest to the exact value, as Python's round() */
        snprintf(buf, sizeof buf, "%.*f", (int)digits, f);
        return strtod(buf, NULL);
    }
    double unit = exact_pow64(10, (double)MAX(-digits, (int64_t)0));
    return isfinite(unit) ? nearbyint(f / unit) * unit : 0;
}

static struct value f_round(struct render *r, struct value v, struct call *call) {
    int64_t digits = arg_int(r, call, 0, 0);
    struct value method = arg_or(call, 1, value_cstr("common"));
    if (v.kind == V_UNDEFINED)
        undefined_fail(r, v);
    if (!is_number(v))
        render_fail(r, ST_BAD_INPUT, "type %s doesn't define __round__ method", type_name(v));
    double f = as_double(v), unit = exact_pow64(10, (double)digits);
    if (text_is(method, "common") && is_integral(v)) /* of an int, Python makes an int */
        return digits >= 0 ? value_int(as_int(v))
                           : value_int((int64_t)round_half_even(f, digits));
    if (text_is(method, "common"))
        return value_float(round_half_even(f, digits));
    if (text_is(method, "ceil"))
        return value_float(ceil(f * unit) / unit);
    if (text_is(method, "floor"))
        return value_float(floor(f * unit) / unit);
    render_fail(r, ST_BAD_INPUT, "method must be common, ceil or floor");
}

static struct value f_abs(struct render *r, struct value v, struct call *call) {
    (void)call;
    if (v.kind == V_FLOAT)
        return value_float(fabs(v.number));
    int64_t i = need_int(r, v);
    if (i == INT64_MIN)
        render_fail(r, ST_UNSUPPORTED, "an integer has more than 63 bits");
    return value_int(i < 0 ? -i : i);
}

static struct value f_center(struct render *r, struct value v, struct call *call) {
    struct value s = value_str(r, v);
    int64_t width = arg_int(r, call, 0, 80), n = (int64_t)value_length(r, s);
    int64_t pad = MAX(width - n, (int64_t)0);
    int64_t left = pad / 2 + (pad & width & 1);
    size_t mark = r->n_out;
    for (int64_t i = 0; i < left; i++)
        out_put(r, " ", 1);
    out_put(r, s.text, s.len);
    for (int64_t i = left; i < pad; i++)
        out_put(r, " ", 1);
    return out_take(r, mark);
}

static struct value f_wordcount(struct render *r, struct value v, struct call *call) {
    (void)call;
    struct value s = value_str(r, v);
    int64_t n = 0;
    bool in_word = false;
    for (size_t at = 0; at < s.len;) {
        uint32_t c;
        at += utf8_get(s.text + at, s.text + s.len, &c);
        bool word =
            c == '_' || (c < 0x80 ? (c | 32u) - 'a' < 26u || c - '0' < 10u : !unicode_space(c));
        n += word && !in_word;
        in_word = word;
    }
    return value_int(n);
}

static struct value f_format(struct render *r, struct value v, struct call *call) {
    if (call->n_kw != 0) {
        struct value named = dict_new(r);
        for (size_t i = 0; i < call->n_kw; i++)
            dict_set(r, named.dict, value_text(call->kw[i].name, call->kw[i].len),
                     call->kw[i].value);
        return format_percent(r, value_str(r, v), named);
    }
    struct value args = seq_new(r, V_TUPLE, call->n_pos);
    for (size_t i = 0; i < call->n_pos; i++)
        seq_push(r, args, call->pos[i]);
    return format_percent(r, value_str(r, v), args);
}

static struct value f_attr(struct render *r, struct value v, struct call *call) {
    struct value name = need_text(r, call->arg[0]);
    if (v.kind == V_DICT && method_find(V_DICT, name.text, name.len) == NULL)
        return value_missing_member(r, v, name); /* attributes only, no members */
    return value_attribute(r, v, name.text, name.len);
}

static struct value f_urlencode(struct render *r, struct value v, struct call *call) {
    (void)call;
    struct value s = value_str(r, v);
    size_t mark = r->n_out;
    for (size_t i = 0; i < s.len; i++) {
        unsigned c = (unsigned char)s.text[i];
        bool plain = (c | 32) - 'a' < 26 || c - '0' < 10 || strchr("_.-~/", (int)c) != NULL;
        char buf[4];
        if (plain && c != 0)
            out_put(r, s.text + i, 1);
        else
            out_put(r, buf, (size_t)snprintf(buf, sizeof buf, "%%%02X", c));
    }
    return out_take(r, mark);
}

static const struct builtin filters[] = {
    {"tojson", "ensure_ascii,indent,separators,sort_keys", 0, f_tojson},
    {"default", "default_value,boolean", 0, f_default},
    {"d", "default_value,boolean", 0, f_default},
    {"length", "", 0, f_length},
    {"count", "", 0, f_length},
    {"string", "", 0, f_string},
    {"upper", "", 0, f_upper},
    {"lower", "", 0, f_lower},
    {"capitalize", "", 0, f_capitalize},
    {"title", "", 0, f_title},
    {"trim", "chars", 0, f_trim},
    {"replace", "old,new,count", 2, f_replace},
    {"safe", "", 0, f_safe},
    {"escape", "", 0, f_escape},
    {"e", "", 0, f_escape},
    {"forceescape", "", 0, f_force_escape},
    {"indent", "width,first,blank", 0, f_indent},
    {"int", "default,base", 0, f_int},
    {"float", "default", 0, f_float},
    {"round", "precision,method", 0, f_round},
    {"abs", "", 0, f_abs},
    {"center", "width", 0, f_center},
    {"wordcount", "", 0, f_wordcount},
    {"format", NULL, 0, f_format},
    {"attr", "name", 1, f_attr},
    {"urlencode", "", 0, f_urlencode},
};

const struct builtin *builtin_find(const struct builtin *table, size_t n, const char *name,
                                   size_t len) {
    for (size_t i = 0; i < n; i++)
        if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0)
            return &table[i];
    return NULL;
}

const struct builtin *filter_find(const char *name, size_t len) {
    const struct builtin *filter = builtin_find(filters, ARRAY_LEN(filters), name, len);
    return filter != NULL ? filter
                          : builtin_find(sequence_filters, n_sequence_filters, name, len);
}
