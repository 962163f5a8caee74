/* template_functions.c: the global functions that a template may call. */
#include "jinja/template_filters.h"

#include <stdio.h>
#include <time.h>

#define MAX_RANGE 100000 /* the sandbox's own limit */

static struct value g_range(struct render *r, struct value self, struct call *call) {
    (void)self;
    bool one = call->arg[1].kind == V_MISSING;
    int64_t begin = one ? 0 : need_int(r, call->arg[0]);
    int64_t end = need_int(r, call->arg[one ? 0 : 1]), step = arg_int(r, call, 2, 1);
    if (step == 0)
        render_fail(r, ST_BAD_INPUT, "range() arg 3 must not be zero");
    struct value range = seq_new(r, V_RANGE, 0);
    for (int64_t i = begin; step > 0 ? i < end : i > end;) {
        if (range.seq->n == MAX_RANGE)
            render_fail(r, ST_BAD_INPUT, "Range too big. The limit is %d.", MAX_RANGE);
        seq_push(r, range, value_int(i));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    char *label = RENDER_ARRAY(r, char, 80);
    if (step == 1)
        snprintf(label, 80, "range(%lld, %lld)", (long long)begin, (long long)end);
    else
        snprintf(label, 80, "range(%lld, %lld, %lld)", (long long)begin, (long long)end,
                 (long long)step);
    range.seq->label = label;
    return range;
}

/* dict({...} or pairs, key=value ...) */
static struct value g_dict(struct render *r, struct value self, struct call *call) {
    (void)self;
    struct value d = dict_new(r);
    if (call->n_pos > 1)
        render_fail(r, ST_BAD_INPUT, "dict expected at most 1 argument, got %zu", call->n_pos);
    if (call->n_pos == 1 && call->pos[0].kind == V_DICT) {
        const struct dict *from = call->pos[0].dict;
        for (size_t i = 0; i < from->n; i++)
            dict_set(r, d.dict, from->entries[i].key, from->entries[i].value);
    } else if (call->n_pos == 1) {
        const struct seq *pairs = value_iterate(r, call->pos[0]);
        for (size_t i = 0; i < pairs->n; i++) {
            const struct seq *pair = value_iterate(r, pairs->items[i]);
            if (pair->n != 2)
                render_fail(r, ST_BAD_INPUT, "dict: item %zu is not a pair", i);
            dict_set(r, d.dict, pair->items[0], pair->items[1]);
        }
    }
    for (size_t i = 0; i < call->n_kw; i++)
        dict_set(r, d.dict, value_text(call->kw[i].name, call->kw[i].len), call->kw[i].value);
    return d;
}

static struct value g_namespace(struct render *r, struct value self, struct call *call) {
    struct value ns = g_dict(r, self, call);
    ns.kind = V_NAMESPACE;
    return ns;
}

static struct value g_raise_exception(struct render *r, struct value self, struct call *call) {
    (void)self;
    struct value message = value_str(r, call->arg[0]);
    render_raise(r, message.text, message.len);
}

static struct tm clock_to_tm(const struct template_clock *now) {
    struct tm tm = {0};
    if (now == NULL) {
        time_t t = time(NULL);
        gmtime_r(&t, &tm);
        return tm;
    }
    tm.tm_year = now->year - 1900;
    tm.tm_mon = now->month - 1;
    tm.tm_mday = now->day;
    tm.tm_hour = now->hour;
    tm.tm_min = now->minute;
    tm.tm_sec = now->second;
    struct tm copy = tm; /* timegm works out the day of the week and of the year */
    timegm(&copy);
    tm.tm_wday = copy.tm_wday;
    tm.tm_yday = copy.tm_yday;
    return tm;
}

static struct value g_strftime_now(struct render *r, struct value self, struct call *call) {
    (void)self;
    struct value format = need_text(r, call->arg[0]);
    char f[257], text[4096];
    if (format.len + 1 >= sizeof f)
        render_fail(r, ST_BAD_INPUT, "strftime_now: a format of more than 255 bytes");
    /* The space tells an empty result from one that is too long. */
    snprintf(f, sizeof f, " %.*s", (int)format.len, format.text);
    struct tm tm = clock_to_tm(r->now);
    size_t n = strftime(text, sizeof text, f, &tm);
    if (n == 0 || !utf8_valid(text, n))
        render_fail(r, ST_BAD_INPUT, "strftime_now: the format makes no text");
    return value_copy(r, text + 1, n - 1);
}

static struct value g_cycler(struct render *r, struct value self, struct call *call) {
    (void)self;
    if (call->n_pos == 0)
        render_fail(r, ST_BAD_INPUT, "at least one item has to be provided");
    struct value cycler = seq_new(r, V_CYCLER, call->n_pos);
    for (size_t i = 0; i < call->n_pos; i++)
        seq_push(r, cycler, call->pos[i]);
    return cycler;
}

static struct value g_joiner(struct render *r, struct value self, struct call *call) {
    (void)self;
    struct joiner *j = RENDER_NEW(r, struct joiner);
    *j = (struct joiner){.separator = arg_or(call, 0, value_cstr(", "))};
    return (struct value){.kind = V_JOINER, .joiner = j};
}

static const struct builtin functions[] = {
    {"raise_exception", "message", 1, g_raise_exception},
    {"namespace", NULL, 0, g_namespace},
    {"range", "start,stop,step", 1, g_range},
    {"strftime_now", "format", 1, g_strftime_now},
    {"dict", NULL, 0, g_dict},
    {"joiner", "sep", 0, g_joiner},
    {"cycler", NULL, 0, g_cycler},
};

const struct builtin *function_find(const char *name, size_t len) {
    return builtin_find(functions, ARRAY_LEN(functions), name, len);
}
