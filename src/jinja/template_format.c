/* template_format.c: Python's two ways to format: "%s" % args and "{}".format(args). */
#include "jinja/template_value.h"

#include <stdio.h>

struct spec {
    struct value fill;
    char align; /* '<', '>', '^', '=' or 0 */
    char sign;  /* '+', ' ' or 0 */
    bool alternate, comma;
    int64_t width, precision; /* precision -1: none */
    char type;                /* 0: by the value's own kind */
};

#define MAX_WIDTH 10000

static const struct spec plain_spec = {.precision = -1};

static int64_t read_number(struct render *r, struct value s, size_t *at) {
    int64_t n = 0;
    for (; *at < s.len && s.text[*at] >= '0' && s.text[*at] <= '9'; (*at)++) {
        n = n * 10 + (s.text[*at] - '0');
        if (n > MAX_WIDTH)
            render_fail(r, ST_BAD_INPUT, "a format's width of more than %d", MAX_WIDTH);
    }
    return n;
}

/* body with its sign apart, padded to the width. */
static void out_padded(struct render *r, const struct spec *spec, struct value sign,
                       struct value body, char usual_align) {
    int64_t n = (int64_t)(utf8_count(sign.text, sign.len) + utf8_count(body.text, body.len));
    int64_t missing = MAX(spec->width - n, (int64_t)0), before = 0;
    char align = spec->align != 0 ? spec->align : usual_align;
    struct value fill = spec->fill.kind == V_STRING ? spec->fill : value_text(" ", 1);
    if (align == '>' || align == '=')
        before = missing;
    else if (align == '^')
        before = missing / 2;
    if (align == '=')
        out_put(r, sign.text, sign.len);
    for (int64_t i = 0; i < before; i++)
        out_put(r, fill.text, fill.len);
    if (align != '=')
        out_put(r, sign.text, sign.len);
    out_put(r, body.text, body.len);
    for (int64_t i = before; i < missing; i++)
        out_put(r, fill.text, fill.len);
}

/* 1234567 -> 1,234,567 in the digits before the point. */
static struct value with_commas(struct render *r, struct value digits) {
    size_t whole = 0, mark = r->n_out;
    while (whole < digits.len && digits.text[whole] >= '0' && digits.text[whole] <= '9')
        whole++;
    for (size_t i = 0; i < whole; i++) {
        if (i > 0 && (whole - i) % 3 == 0)
            out_put(r, ",", 1);
        out_put(r, digits.text + i, 1);
    }
    out_put(r, digits.text + whole, digits.len - whole);
    return out_take(r, mark);
}

static struct value digits_of(struct render *r, uint64_t u, unsigned base, bool upper) {
    char buf[64];
    size_t at = sizeof buf;
    do {
        buf[--at] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[u % base];
        u /= base;
    } while (u != 0);
    return value_copy(r, buf + at, sizeof buf - at);
}

static struct value sign_text(const struct spec *spec, bool negative) {
    return negative            ? value_cstr("-")
           : spec->sign == '+' ? value_cstr("+")
           : spec->sign == ' ' ? value_cstr(" ")
                               : value_cstr("");
}

static void out_integer(struct render *r, const struct spec *spec, int64_t i) {
    unsigned base = spec->type == 'x' || spec->type == 'X' ? 16
                    : spec->type == 'o'                    ? 8
                    : spec->type == 'b'                    ? 2
                                                           : 10;
    uint64_t u = i < 0 ? -(uint64_t)i : (uint64_t)i;
    struct value sign = sign_text(spec, i < 0),
                 digits = digits_of(r, u, base, spec->type == 'X');
    const char prefix[] = {'0', spec->type};
    if (spec->alternate && base != 10)
        sign = text_concat(r, value_copy(r, sign.text, sign.len), value_copy(r, prefix, 2));
    out_padded(r, spec, sign, spec->comma ? with_commas(r, digits) : digits, '>');
}

static void out_float(struct render *r, const struct spec *spec, double f) {
    char buf[400 + MAX_WIDTH], format[] = "%.*f";
    bool percent = spec->type == '%', general = spec->type == 0;
    bool negative = f < 0;
    f = negative ? -f : f;
    size_t n;
    if (general && spec->precision < 0) {
        n = double_repr(f, buf);
    } else {
        format[3] = percent ? 'f' : general ? 'g' : spec->type;
        n = (size_t)snprintf(buf, sizeof buf, format,
                             (int)(spec->precision < 0 ? 6 : spec->precision),
                             percent ? f * 100 : f);
    }
    if (percent)
        buf[n++] = '%';
    struct value digits = value_copy(r, buf, n);
    out_padded(r, spec, sign_text(spec, negative),
               spec->comma ? with_commas(r, digits) : digits, '>');
}

static void out_text(struct render *r, const struct spec *spec, struct value s, char align) {
    if (spec->precision >= 0)
        s = text_slice(s, 0, utf8_offset(s.text, s.len, (size_t)spec->precision));
    out_padded(r, spec, value_cstr(""), s, align);
}

static bool is_one_of(char c, const char *set) {
    return c != 0 && strchr(set, c) != NULL;
}

static void out_number(struct render *r, const struct spec *spec, struct value v) {
    if (v.kind == V_UNDEFINED)
        undefined_fail(r, v);
    if (!is_number(v))
        render_fail(r, ST_BAD_INPUT, "a number is required to format with '%c', not %s",
                    spec->type, type_name(v));
    if (is_one_of(spec->type, "eEfFgG%"))
        out_float(r, spec, as_double(v));
    else if (v.kind != V_FLOAT)
        out_integer(r, spec, as_int(v));
    else if (spec->type == 0)
        out_float(r, spec, v.number);
    else
        render_fail(r, ST_BAD_INPUT, "format '%c' requires an integer, not float", spec->type);
}

/* ---- % ------------------------------------------------------------------------------------- */

struct percent_args {
    struct value args;
    size_t n_used;
};

static struct value next_argument(struct render *r, struct percent_args *p) {
    bool tuple = p->args.kind == V_TUPLE;
    size_t n = tuple ? p->args.seq->n : 1, i = p->n_used++;
    if (i >= n)
        render_fail(r, ST_BAD_INPUT, "not enough arguments for format string");
    return tuple ? p->args.seq->items[i] : p->args;
}

static struct value named_argument(struct render *r, struct percent_args *p, struct value s,
                                   size_t *at) {
    size_t end = text_find(s, value_text(")", 1), *at);
    if (p->args.kind != V_DICT || end == SIZE_MAX)
        render_fail(r, ST_BAD_INPUT, "format requires a mapping");
    const struct value *v = dict_get_text(r, p->args.dict, s.text + *at, end - *at);
    if (v == NULL)
        render_fail(r, ST_BAD_INPUT, "format: there is no such key");
    *at = end + 1;
    p->n_used = 1;
    return *v;
}

static void read_flags(struct spec *spec, struct value s, size_t *at) {
    for (; *at < s.len && is_one_of(s.text[*at], "#0- +"); (*at)++) {
        switch (s.text[*at]) {
        case '#':
            spec->alternate = true;
            break;
        case '0':
            spec->fill = value_text("0", 1);
            spec->align = spec->align != 0 ? spec->align : '=';
            break;
        case '-':
            spec->align = '<';
            spec->fill = value_none();
            break;
        case '+':
            spec->sign = '+';
            break;
        default:
            spec->sign = spec->sign != 0 ? spec->sign : ' ';
            break;
        }
    }
}

/* One conversion; *at is after its "%". */
static void out_conversion(struct render *r, struct percent_args *p, struct value s,
                           size_t *at) {
    struct spec spec = plain_spec;
    struct value named = {.kind = V_MISSING};
    if (*at < s.len && s.text[*at] == '(') {
        ++*at;
        named = named_argument(r, p, s, at);
    }
    read_flags(&spec, s, at);
    spec.width = read_number(r, s, at);
    if (*at < s.len && s.text[*at] == '.') {
        ++*at;
        spec.precision = read_number(r, s, at);
    }
    while (*at < s.len && is_one_of(s.text[*at], "hlL"))
        ++*at;
    if (*at >= s.len)
        render_fail(r, ST_BAD_INPUT, "incomplete format");
    spec.type = s.text[(*at)++];
    if (spec.type == '%') {
        out_put(r, "%", 1);
        return;
    }
    struct value v = named.kind != V_MISSING ? named : next_argument(r, p);
    if (spec.type == 's' || spec.type == 'r' || spec.type == 'a') {
        if (spec.align == '=')
            spec.align = '>';
        spec.fill = value_none();
        out_text(r, &spec, spec.type == 's' ? value_str(r, v) : value_repr(r, v), '>');
    } else if (spec.type == 'c' && v.kind == V_STRING) {
        out_text(r, &spec, v, '>');
    } else if (is_one_of(spec.type, "diu")) {
        spec.type = 'd';
        if (v.kind == V_FLOAT && v.number > -9e18 && v.number < 9e18)
            v = value_int((int64_t)v.number);
        out_number(r, &spec, v);
    } else if (is_one_of(spec.type, "oxXeEfFgG")) {
        out_number(r, &spec, v);
    } else {
        render_fail(r, ST_BAD_INPUT, "unsupported format character");
    }
}

struct value format_percent(struct render *r, struct value format, struct value args) {
    struct percent_args p = {.args = args};
    size_t mark = r->n_out, at = 0;
    while (at < format.len) {
        size_t percent = text_find(format, value_text("%", 1), at);
        if (percent == SIZE_MAX)
            percent = format.len;
        out_put(r, format.text + at, percent - at);
        at = percent + 1;
        if (percent < format.len)
            out_conversion(r, &p, format, &at);
    }
    if (args.kind == V_TUPLE ? p.n_used < args.seq->n
                             : p.n_used == 0 && args.kind != V_DICT && args.kind != V_LIST)
        render_fail(r, ST_BAD_INPUT, "not all arguments converted during string formatting");
    return out_take(r, mark);
}

/* ---- format() ---------------------------------------------------------------------------- */

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static struct spec read_spec(struct render *r, struct value s) {
    struct spec spec = plain_spec;
    size_t at = 0;
    uint32_t c;
    size_t first = s.len > 0 ? utf8_get(s.text, s.text + s.len, &c) : 0;
    if (first > 0 && first < s.len && is_one_of(s.text[first], "<>^=")) {
        spec.fill = text_slice(s, 0, first);
        spec.align = s.text[first];
        at = first + 1;
    } else if (s.len > 0 && is_one_of(s.text[0], "<>^=")) {
        spec.align = s.text[at++];
    }
    if (at < s.len && is_one_of(s.text[at], "+- "))
        spec.sign = s.text[at++];
    if (at < s.len && s.text[at] == '#') {
        spec.alternate = true;
        at++;
    }
    if (at < s.len && s.text[at] == '0') {
        at++;
        if (spec.align == 0) {
            spec.fill = value_text("0", 1);
            spec.align = '=';
        }
    }
    spec.width = read_number(r, s, &at);
    if (at < s.len && s.text[at] == ',') {
        spec.comma = true;
        at++;
    }
    if (at < s.len && s.text[at] == '.') {
        at++;
        spec.precision = read_number(r, s, &at);
    }
    if (at < s.len)
        spec.type = s.text[at++];
    if (at < s.len || (spec.type != 0 && !is_one_of(spec.type, "sdbonxXeEfFgG%")))
        render_fail(r, ST_BAD_INPUT, "Invalid format specifier");
    return spec;
}

static void out_field(struct render *r, struct value v, struct value spec_text) {
    struct spec spec = read_spec(r, spec_text);
    bool numeric = is_number(v) && v.kind != V_BOOL;
    if (spec_text.len == 0)
        out_value(r, v);
    else if ((numeric || v.kind == V_BOOL) && spec.type != 's' && (numeric || spec.type != 0))
        out_number(r, &spec, v);
    else if (spec.type == 0 || spec.type == 's')
        out_text(r, &spec, value_str(r, v), '<');
    else
        render_fail(r, ST_BAD_INPUT, "Unknown format code '%c' for object of type '%s'",
                    spec.type, type_name(v));
}

static bool is_index(struct value s) {
    for (size_t i = 0; i < s.len; i++)
        if (s.text[i] < '0' || s.text[i] > '9')
            return false;
    return s.len > 0 && s.len < 6;
}

static int64_t index_value(struct value s) {
    int64_t i = 0;
    for (size_t k = 0; k < s.len; k++)
        i = i * 10 + (s.text[k] - '0');
    return i;
}

static struct value field_argument(struct render *r, const struct call *call, struct value name,
                                   size_t *automatic) {
    if (name.len == 0 || is_index(name)) {
        size_t i = name.len == 0 ? (*automatic)++ : (size_t)index_value(name);
        if (i >= call->n_pos)
            render_fail(r, ST_BAD_INPUT,
                        "Replacement index %zu out of range for positional args tuple", i);
        return call->pos[i];
    }
    for (size_t i = 0; i < call->n_kw; i++)
        if (call->kw[i].len == name.len && memcmp(call->kw[i].name, name.text, name.len) == 0)
            return call->kw[i].value;
    render_fail(r, ST_BAD_INPUT, "format: there is no argument '%.*s'",
                (int)MIN(name.len, (size_t)60), name.text);
}

/* name, 0, a.b, a[b] */
static struct value field_value(struct render *r, const struct call *call, struct value path,
                                size_t *automatic) {
    size_t at = 0;
    while (at < path.len && path.text[at] != '.' && path.text[at] != '[')
        at++;
    struct value v = field_argument(r, call, text_slice(path, 0, at), automatic);
    while (at < path.len) {
        bool bracket = path.text[at] == '[';
        size_t begin = ++at;
        while (at < path.len &&
               (bracket ? path.text[at] != ']' : path.text[at] != '.' && path.text[at] != '['))
            at++;
        struct value name = text_slice(path, begin, at);
        if (!bracket)
            v = value_attribute(r, v, name.text, name.len);
        else
            v = value_item(r, v, is_index(name) ? value_int(index_value(name)) : name);
        at += bracket && at < path.len;
    }
    return v;
}

/* One {...}; *at is after its "{". */
static void out_replacement(struct render *r, struct value s, size_t *at,
                            const struct call *call, size_t *automatic) {
    size_t end = text_find(s, value_text("}", 1), *at);
    if (end == SIZE_MAX)
        render_fail(r, ST_BAD_INPUT, "expected '}' before end of string");
    struct value field = text_slice(s, *at, end);
    if (memchr(field.text, '{', field.len) != NULL)
        render_fail(r, ST_UNSUPPORTED, "format: a replacement within a replacement");
    *at = end + 1;
    size_t colon = MIN(text_find(field, value_text(":", 1), 0), field.len);
    struct value spec = text_slice(field, MIN(colon + 1, field.len), field.len);
    struct value path = text_slice(field, 0, colon);
    char conversion = 0;
    if (path.len >= 2 && path.text[path.len - 2] == '!') {
        conversion = path.text[path.len - 1];
        path = text_slice(path, 0, path.len - 2);
    }
    struct value v = field_value(r, call, path, automatic);
    if (conversion != 0)
        v = conversion == 's' ? value_str(r, v) : value_repr(r, v);
    out_field(r, v, spec);
}

struct value format_braces(struct render *r, struct value format, const struct call *call) {
    size_t mark = r->n_out, automatic = 0;
    for (size_t at = 0; at < format.len;) {
        char c = format.text[at++];
        bool brace = c == '{' || c == '}';
        if (brace && at < format.len && format.text[at] == c) {
            out_put(r, &c, 1);
            at++;
        } else if (c == '{') {
            out_replacement(r, format, &at, call, &automatic);
        } else if (c == '}') {
            render_fail(r, ST_BAD_INPUT, "Single '}' encountered in format string");
        } else {
            out_put(r, &c, 1);
        }
    }
    return out_take(r, mark);
}
