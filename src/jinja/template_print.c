/* template_print.c: values as text: Python's str() and repr(), and JSON as Python's json.dumps.
 */
#include "base/printable.h"
#include "jinja/template_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

/* Digits d.ddd and a decimal exponent, as few digits as read back the same. */
static int shortest_digits(double f, char digits[24], int *exponent) {
    for (int n = 1;; n++) {
        char text[40];
        snprintf(text, sizeof text, "%.*e", n - 1, f);
        if (n < 17 && strtod(text, NULL) != f)
            continue;
        char *e = strchr(text, 'e');
        *exponent = atoi(e + 1);
        int n_digits = 0;
        for (const char *p = text; p < e; p++)
            if (*p != '.')
                digits[n_digits++] = *p;
        return n_digits;
    }
}

size_t double_repr(double f, char buf[40]) {
    if (isnan(f))
        return (size_t)snprintf(buf, 40, "nan");
    if (isinf(f))
        return (size_t)snprintf(buf, 40, "%sinf", f < 0 ? "-" : "");
    char digits[24];
    int exponent, n = shortest_digits(fabs(f), digits, &exponent);
    size_t at = 0;
    if (signbit(f))
        buf[at++] = '-';
    if (exponent < -4 || exponent >= 16) {
        buf[at++] = digits[0];
        if (n > 1)
            buf[at++] = '.';
        for (int i = 1; i < n; i++)
            buf[at++] = digits[i];
        return at + (size_t)snprintf(buf + at, 40 - at, "e%+03d", exponent);
    }
    if (exponent < 0) {
        buf[at++] = '0';
        buf[at++] = '.';
        for (int i = exponent + 1; i < 0; i++)
            buf[at++] = '0';
        for (int i = 0; i < n; i++)
            buf[at++] = digits[i];
        return at;
    }
    for (int i = 0; i < MAX(exponent + 2, n); i++) {
        if (i == exponent + 1)
            buf[at++] = '.';
        buf[at++] = i < n ? digits[i] : '0';
    }
    return at;
}

static void out_double(struct render *r, double f) {
    char buf[40];
    out_put(r, buf, double_repr(f, buf));
}

static void out_int(struct render *r, int64_t i) {
    char buf[24];
    out_put(r, buf, (size_t)snprintf(buf, sizeof buf, "%lld", (long long)i));
}

/* As Python's str.isprintable(): of spaces only the one of ASCII. */
static bool python_prints(uint32_t c) {
    return is_printable(c) &&
           (c == ' ' || utf8proc_category((utf8proc_int32_t)c) != UTF8PROC_CATEGORY_ZS);
}

static void out_text_repr(struct render *r, struct value s) {
    bool single = memchr(s.text, '\'', s.len) == NULL || memchr(s.text, '"', s.len) != NULL;
    char quote = single ? '\'' : '"';
    out_put(r, &quote, 1);
    render_spend(r, s.len / 4);
    for (size_t at = 0, n; at < s.len; at += n) {
        uint32_t c;
        char buf[16];
        n = utf8_get(s.text + at, s.text + s.len, &c);
        if (c == '\\' || c == (uint32_t)quote)
            snprintf(buf, sizeof buf, "\\%c", (int)c);
        else if (c == '\n' || c == '\r' || c == '\t')
            snprintf(buf, sizeof buf, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (python_prints(c))
            snprintf(buf, sizeof buf, "%.*s", (int)n, s.text + at);
        else if (c < 0x100)
            snprintf(buf, sizeof buf, "\\x%02x", c);
        else
            snprintf(buf, sizeof buf, c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
        out_puts(r, buf);
    }
    out_put(r, &quote, 1);
}

static void out_items_repr(struct render *r, const struct seq *seq, const char *open,
                           const char *close) {
    out_puts(r, open);
    for (size_t i = 0; i < seq->n; i++) {
        out_puts(r, i == 0 ? "" : ", ");
        out_repr(r, seq->items[i]);
    }
    out_puts(r, close);
}

static void out_dict_repr(struct render *r, const struct dict *d) {
    out_puts(r, "{");
    for (size_t i = 0; i < d->n; i++) {
        out_puts(r, i == 0 ? "" : ", ");
        out_repr(r, d->entries[i].key);
        out_puts(r, ": ");
        out_repr(r, d->entries[i].value);
    }
    out_puts(r, "}");
}

void out_repr(struct render *r, struct value v) {
    render_enter(r);
    render_spend(r, 1);
    switch (v.kind) {
    case V_UNDEFINED:
        out_puts(r, "Undefined");
        break;
    case V_NONE:
        out_puts(r, "None");
        break;
    case V_BOOL:
        out_puts(r, v.boolean ? "True" : "False");
        break;
    case V_INT:
        out_int(r, v.integer);
        break;
    case V_FLOAT:
        out_double(r, v.number);
        break;
    case V_STRING:
        out_puts(r, v.safe ? "Markup(" : "");
        out_text_repr(r, v);
        out_puts(r, v.safe ? ")" : "");
        break;
    case V_LIST:
        out_items_repr(r, v.seq, "[", "]");
        break;
    case V_TUPLE:
        out_items_repr(r, v.seq, "(", v.seq->n == 1 ? ",)" : ")");
        break;
    case V_RANGE:
        out_puts(r, v.seq->label);
        break;
    case V_VIEW:
        out_puts(r, v.seq->label);
        out_items_repr(r, v.seq, "([", "])");
        break;
    case V_DICT:
        out_dict_repr(r, v.dict);
        break;
    case V_NAMESPACE:
        out_puts(r, "<Namespace ");
        out_dict_repr(r, v.dict);
        out_puts(r, ">");
        break;
    default:
        out_puts(r, "<");
        out_puts(r, type_name(v));
        out_puts(r, " object>");
        break;
    }
    render_leave(r);
}

void out_value(struct render *r, struct value v) {
    if (v.kind == V_STRING)
        out_put(r, v.text, v.len);
    else if (v.kind != V_UNDEFINED)
        out_repr(r, v);
}

struct value value_str(struct render *r, struct value v) {
    if (v.kind == V_STRING)
        return v;
    size_t mark = r->n_out;
    out_value(r, v);
    return out_take(r, mark);
}

struct value value_repr(struct render *r, struct value v) {
    size_t mark = r->n_out;
    out_repr(r, v);
    return out_take(r, mark);
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void out_json_text(struct render *r, struct value s, bool ascii) {
    size_t plain = 0, n; /* what needs no escape is put in one piece */
    out_puts(r, "\"");
    render_spend(r, s.len / 4);
    for (size_t at = 0; at < s.len; at += n) {
        uint32_t c;
        char buf[16] = "";
        n = utf8_get(s.text + at, s.text + s.len, &c);
        const char *short_form = strchr("\"\\\nn\rr\tt\bb\ff", (int)c);
        if (c == '"' || c == '\\')
            snprintf(buf, sizeof buf, "\\%c", (int)c);
        else if (c != 0 && c < 0x20 && short_form != NULL)
            snprintf(buf, sizeof buf, "\\%c", short_form[1]);
        else if (c < 0x20 || (ascii && c >= 0x7f && c < 0x10000))
            snprintf(buf, sizeof buf, "\\u%04x", c);
        else if (ascii && c >= 0x10000)
            snprintf(buf, sizeof buf, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                     0xdc00 + ((c - 0x10000) & 0x3ff));
        if (buf[0] == '\0')
            continue;
        out_put(r, s.text + plain, at - plain);
        out_puts(r, buf);
        plain = at + n;
    }
    out_put(r, s.text + plain, s.len - plain);
    out_puts(r, "\"");
}

static void out_json_key(struct render *r, struct value key, const struct json_style *style) {
    if (key.kind == V_STRING) {
        out_json_text(r, key, style->ascii);
        return;
    }
    if (key.kind != V_NONE && !is_number(key))
        render_fail(r, ST_BAD_INPUT, "keys must be str, int, float, bool or None, not %s",
                    type_name(key));
    out_puts(r, "\"");
    out_json(r, key, style);
    out_puts(r, "\"");
}

/* indent is a number of spaces or the text itself. depth counts open brackets. */
static void out_json_newline(struct render *r, const struct json_style *style, size_t depth) {
    if (style->indent.kind == V_NONE)
        return;
    out_puts(r, "\n");
    for (size_t i = 0; i < depth; i++) {
        if (style->indent.kind == V_STRING)
            out_put(r, style->indent.text, style->indent.len);
        else
            for (int64_t k = 0; k < as_int(style->indent); k++)
                out_puts(r, " ");
    }
}

static void out_json_at(struct render *r, struct value v, const struct json_style *style,
                        size_t depth);

static void out_json_list(struct render *r, const struct seq *seq,
                          const struct json_style *style, size_t depth) {
    out_puts(r, "[");
    for (size_t i = 0; i < seq->n; i++) {
        if (i != 0)
            out_put(r, style->item_separator.text, style->item_separator.len);
        out_json_newline(r, style, depth + 1);
        out_json_at(r, seq->items[i], style, depth + 1);
    }
    if (seq->n != 0)
        out_json_newline(r, style, depth);
    out_puts(r, "]");
}

/* Entry numbers in the order of their keys. */
static struct value sorted_keys(struct render *r, const struct dict *d) {
    struct value keys = seq_new(r, V_LIST, d->n);
    for (size_t i = 0; i < d->n; i++)
        seq_push(r, keys, d->entries[i].key);
    struct value sort = value_item(r, keys, value_cstr("sort"));
    struct call no_arguments = {0};
    value_call(r, sort, &no_arguments);
    return keys;
}

static void out_json_dict(struct render *r, const struct dict *d,
                          const struct json_style *style, size_t depth) {
    struct value keys = value_none();
    if (style->sort_keys)
        keys = sorted_keys(r, d);
    out_puts(r, "{");
    for (size_t i = 0; i < d->n; i++) {
        struct value key = style->sort_keys ? keys.seq->items[i] : d->entries[i].key;
        if (i != 0)
            out_put(r, style->item_separator.text, style->item_separator.len);
        out_json_newline(r, style, depth + 1);
        out_json_key(r, key, style);
        out_put(r, style->key_separator.text, style->key_separator.len);
        out_json_at(r, style->sort_keys ? *dict_get(r, d, key) : d->entries[i].value, style,
                    depth + 1);
    }
    if (d->n != 0)
        out_json_newline(r, style, depth);
    out_puts(r, "}");
}

static void out_json_at(struct render *r, struct value v, const struct json_style *style,
                        size_t depth) {
    render_enter(r);
    render_spend(r, 1);
    switch (v.kind) {
    case V_NONE:
        out_puts(r, "null");
        break;
    case V_BOOL:
        out_puts(r, v.boolean ? "true" : "false");
        break;
    case V_INT:
        out_int(r, v.integer);
        break;
    case V_FLOAT:
        if (isfinite(v.number))
            out_double(r, v.number);
        else
            out_puts(r, isnan(v.number) ? "NaN" : v.number < 0 ? "-Infinity" : "Infinity");
        break;
    case V_STRING:
        out_json_text(r, v, style->ascii);
        break;
    case V_LIST:
    case V_TUPLE:
        out_json_list(r, v.seq, style, depth);
        break;
    case V_DICT:
        out_json_dict(r, v.dict, style, depth);
        break;
    default:
        render_fail(r, ST_BAD_INPUT, "Object of type %s is not JSON serializable",
                    type_name(v));
    }
    render_leave(r);
}

void out_json(struct render *r, struct value v, const struct json_style *style) {
    out_json_at(r, v, style, 0);
}
