/* options.c: the option tables of cli.h: parsing, help texts, man pages. Every message is one
 * sentence that names the option and what it takes. */
#include "cli/cli.h"

#include "base/util.h"
#include "base/words.h"
#include "cli/style.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PLAIN_TEXT_MAX 256

/* The first entry, included tables too, for which match says true; or NULL. */
static const struct cli_option *
table_find(const struct cli_option *table,
           bool (*match)(const struct cli_option *, const void *), const void *key) {
    for (const struct cli_option *o = table; o->kind != CLI_KIND_END; o++) {
        const struct cli_option *found = NULL;
        if (o->kind == CLI_KIND_INCLUDE)
            found = table_find(o->out, match, key);
        else if (match(o, key))
            found = o;
        if (found != NULL)
            return found;
    }
    return NULL;
}

static bool is_positional(const struct cli_option *o) {
    return o->kind == CLI_KIND_ARG || o->kind == CLI_KIND_ARG_MAY;
}

static bool is_option(const struct cli_option *o) {
    return o->kind >= CLI_KIND_FLAG;
}

/* refused: of a CLI_WITHOUT before it, or NULL. */
static bool is_shown(const struct cli_option *o, const char *refused) {
    return is_option(o) && (refused == NULL || !str_list_has(refused, o->name));
}

struct name_key {
    const char *name;
    size_t len;
};

static bool match_name(const struct cli_option *o, const void *key) {
    const struct name_key *k = key;
    return is_option(o) && o->name != NULL && strlen(o->name) == k->len &&
           strncmp(o->name, k->name, k->len) == 0;
}

static bool match_letter(const struct cli_option *o, const void *key) {
    return is_option(o) && o->letter == *(const char *)key;
}

struct nth_key {
    int skip; /* positional entries still to pass over */
};

static bool match_nth_arg(const struct cli_option *o, const void *key) {
    struct nth_key *k = (struct nth_key *)key;
    return is_positional(o) && k->skip-- == 0;
}

static const struct cli_option *nth_arg(const struct cli_option *table, int n) {
    struct nth_key key = {n};
    return table_find(table, match_nth_arg, &key);
}

/* ---- suggestions ------------------------------------------------------------------------- */

/* Levenshtein's distance, of short words. */
int cli_edit_distance(const char *a, size_t n_a, const char *b) {
    int row[64];
    size_t n_b = MIN(strlen(b), ARRAY_LEN(row) - 1);
    for (size_t j = 0; j <= n_b; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n_a; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            int substitute = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = MIN(substitute, MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[n_b];
}

struct nearest {
    struct name_key word;
    const char *best;
    int distance;
    const char *refused; /* what the command says no to, further on: no help to anybody */
};

static bool match_nearest(const struct cli_option *o, const void *key) {
    struct nearest *k = (struct nearest *)key;
    if (o->kind == CLI_KIND_WITHOUT)
        k->refused = o->name;
    if (o->name == NULL || !is_shown(o, k->refused))
        return false;
    int d = cli_edit_distance(k->word.name, k->word.len, o->name);
    if (k->word.len >= 3 && strncmp(o->name, k->word.name, k->word.len) == 0)
        d = 1;
    if (d < k->distance) {
        k->distance = d;
        k->best = o->name;
    }
    return false;
}

static int unknown_option(const struct cli_command *cmd, const char *arg) {
    const char *name = arg + strspn(arg, "-");
    struct nearest near = {{name, strcspn(name, "=")}, NULL, 3, NULL};
    if (near.word.len >= 3)
        table_find(cmd->options, match_nearest, &near);
    if (near.best != NULL)
        return cli_fail(ST_BAD_INPUT, "unknown option %s (did you mean --%s?)", arg, near.best);
    return cli_fail(ST_BAD_INPUT, "unknown option %s; see lockstep %s --help", arg, cmd->name);
}

/* ---- values ------------------------------------------------------------------------------ */

struct unit {
    const char *name;
    double factor;
};

static bool parse_real(const char *s, double min, double max, double *out) {
    char *end;
    if (*s == '\0' || isspace((unsigned char)*s))
        return false;
    double v = strtod(s, &end);
    if (*end != '\0' || !(v >= min && v <= max))
        return false;
    *out = v;
    return true;
}

bool cli_parse_int(const char *s, double min, double max, int *out) {
    double v;
    if (s[strspn(s, "+-0123456789")] != '\0' || !parse_real(s, min, max, &v))
        return false;
    *out = (int)v;
    return true;
}

static bool parse_u64(const char *s, uint64_t *out) {
    uint64_t v = 0;
    if (*s == '\0')
        return false;
    for (; *s != '\0'; s++) {
        if (*s < '0' || *s > '9' || __builtin_mul_overflow(v, 10u, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
            return false;
    }
    *out = v;
    return true;
}

bool cli_parse_size(const char *s, uint64_t *out) {
    static const char units[] = "KMGT";
    char *end;
    if (*s < '0' || *s > '9')
        return false;
    double v = strtod(s, &end);
    if (*end != '\0') {
        const char *unit = strchr(units, toupper((unsigned char)*end));
        if (unit == NULL)
            return false;
        bool decimal = end[1] == 'B' || end[1] == 'b'; /* GB; G is GiB */
        for (const char *u = units; u <= unit; u++)
            v *= decimal ? 1000 : 1024;
        end++;
        if (*end == 'i')
            end++;
        if (*end == 'B' || *end == 'b')
            end++;
    }
    if (*end != '\0' || !(v < 9e18))
        return false;
    *out = (uint64_t)v;
    return true;
}

/* A number > 0 with one of the units; the last one is {NULL, 0}. */
static bool parse_with_unit(const char *s, const struct unit *units, double *out) {
    char *end;
    double v = *s >= '0' && *s <= '9' ? strtod(s, &end) : 0;
    for (; v > 0 && v < 1e18 && units->name != NULL; units++)
        if (str_eq(end, units->name)) {
            *out = v * units->factor;
            return true;
        }
    return false;
}

bool cli_parse_time(const char *s, double *out) {
    static const struct unit units[] = {
        {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {NULL, 0}};
    return parse_with_unit(s, units, out);
}

bool cli_parse_rate(const char *s, double *out) {
    static const struct unit units[] = {{"", 1},      {"K", 1e3},  {"M", 1e6},  {"G", 1e9},
                                        {"T", 1e12},  {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9},
                                        {"TB", 1e12}, {NULL, 0}};
    return parse_with_unit(s, units, out);
}

static bool parse_list(const char *s, struct cli_list *out) {
    struct cli_list list = {0};
    size_t len;
    for (const char *word; (word = words_next(&s, &len)) != NULL; list.n++) {
        char number[40];
        if (len >= sizeof number || list.n == CLI_LIST_MAX)
            return false;
        memcpy(number, word, len);
        number[len] = '\0';
        if (!parse_real(number, 1e-6, 1e9, &list.value[list.n]))
            return false;
    }
    *out = list;
    return true;
}

static bool choice_has(const char *choices, const char *word) {
    size_t len = strlen(word);
    for (const char *c = choices;; c++) {
        size_t n = strcspn(c, "|");
        if (n == len && strncmp(c, word, n) == 0)
            return true;
        c += n;
        if (*c == '\0')
            return false;
    }
}

static enum status bad_value(const struct cli_option *o, const char *shown, const char *value,
                             struct err *err) {
    switch (o->kind) {
    case CLI_KIND_INT:
        return err_set(err, ST_BAD_INPUT, "%s %s: expected a whole number from %.0f to %.0f",
                       shown, value, o->min, o->max);
    case CLI_KIND_FLOAT:
        return err_set(err, ST_BAD_INPUT, "%s %s: expected a number from %g to %g", shown,
                       value, o->min, o->max);
    case CLI_KIND_SIZE:
        return err_set(err, ST_BAD_INPUT, "%s %s: expected a size such as 512, 64K or 1.5G",
                       shown, value);
    case CLI_KIND_LIST:
        return err_set(err, ST_BAD_INPUT,
                       "%s %s: expected up to %d positive numbers with commas, such as 3,1",
                       shown, value, CLI_LIST_MAX);
    case CLI_KIND_CHOICE:
    case CLI_KIND_SWITCH:
        return err_set(err, ST_BAD_INPUT, "%s %s: expected one of %s", shown, value,
                       o->choices);
    default:
        return err_set(err, ST_BAD_INPUT, "%s %s: expected a whole number from 0 to %llu",
                       shown, value, (unsigned long long)INT64_MAX);
    }
}

static enum status option_set(const struct cli_option *o, const char *shown, const char *value,
                              struct err *err) {
    bool ok = true;
    double real;
    switch (o->kind) {
    case CLI_KIND_INT:
        ok = cli_parse_int(value, o->min, o->max, o->out);
        break;
    case CLI_KIND_U64:
        ok = parse_u64(value, o->out) && *(uint64_t *)o->out <= INT64_MAX; /* as JSON's */
        break;
    case CLI_KIND_FLOAT:
        ok = parse_real(value, o->min, o->max, &real);
        if (ok)
            *(float *)o->out = (float)real;
        break;
    case CLI_KIND_SIZE:
        ok = cli_parse_size(value, o->out);
        break;
    case CLI_KIND_LIST:
        ok = parse_list(value, o->out);
        break;
    case CLI_KIND_CHOICE:
    case CLI_KIND_SWITCH:
        ok = choice_has(o->choices, value);
        if (ok)
            *(const char **)o->out = value;
        break;
    default:
        *(const char **)o->out = value;
        break;
    }
    return ok ? ST_OK : bad_value(o, shown, value, err);
}

enum status cli_set_option(const struct cli_option *o, const char *shown, const char *value,
                           struct err *err) {
    return option_set(o, shown, value, err);
}

/* ---- help -------------------------------------------------------------------------------- */

static const char *value_name(const struct cli_option *o) {
    return o->kind == CLI_KIND_CHOICE ? o->choices : o->value;
}

static void option_spelled(const struct cli_option *o, char *buf, size_t size) {
    const char *value = value_name(o);
    char letter[8] = "";
    if (o->letter != 0)
        snprintf(letter, sizeof letter, "-%c%s", o->letter, o->name != NULL ? ", " : "");
    if (o->kind == CLI_KIND_SWITCH)
        snprintf(buf, size, "--%s[=%s]", o->name, o->choices);
    else
        snprintf(buf, size, "%s%s%s%s%s", letter, o->name != NULL ? "--" : "",
                 o->name != NULL ? o->name : "", value != NULL ? " " : "",
                 value != NULL ? value : "");
}

#define HELP_COLUMN 26

static const char *styled(enum style s) {
    return style_text(STDOUT_FILENO, s);
}

static void help_entry(const char *left, const char *text) {
    int width = (int)strlen(left) + 2;
    printf("  %s%s%s", styled(STYLE_NAME), left, styled(STYLE_NONE));
    for (const char *line = text; line != NULL && *line != '\0';) {
        size_t len = strcspn(line, "\n");
        if (width > HELP_COLUMN - 2) {
            putchar('\n');
            width = 0;
        }
        printf("%*s%.*s\n", HELP_COLUMN - width, "", (int)len, line);
        width = 0;
        line += len + (line[len] == '\n');
    }
    if (width > 0)
        putchar('\n');
}

static void help_positionals(const struct cli_option *table, bool man) {
    const struct cli_option *o;
    for (int i = 0; (o = nth_arg(table, i)) != NULL; i++) {
        if (man)
            printf(".TP\n.I %s\n%s\n", o->name, o->help);
        else
            help_entry(o->name, o->help);
    }
}

/* What a help text shows, on its way through a table. */
struct help {
    const char *common;  /* of CLI_COMMON; NULL: all */
    const char *refused; /* of CLI_WITHOUT */
    const char *heading; /* for the next option that is shown; NULL: none */
    size_t n_left_out;
};

static bool is_named_in(const struct cli_option *o, const char *list) {
    char letter[2] = {o->letter, '\0'};
    return str_list_has(list, o->name != NULL ? o->name : letter);
}

static void help_option(struct help *h, const struct cli_option *o) {
    char left[160];
    if (h->common != NULL && !is_named_in(o, h->common)) {
        h->n_left_out++;
        return;
    }
    if (h->heading != NULL)
        printf("\n%s%s:%s\n", styled(STYLE_BOLD), h->heading, styled(STYLE_NONE));
    h->heading = NULL;
    option_spelled(o, left, sizeof left);
    help_entry(left, o->help);
}

static void help_options(struct help *h, const struct cli_option *table) {
    const char *refused = h->refused; /* of this table on */
    for (const struct cli_option *o = table; o->kind != CLI_KIND_END; o++) {
        if (o->kind == CLI_KIND_WITHOUT)
            h->refused = o->name;
        else if (o->kind == CLI_KIND_HEADING)
            h->heading = o->name;
        else if (o->kind == CLI_KIND_INCLUDE)
            help_options(h, o->out);
        else if (is_shown(o, h->refused))
            help_option(h, o);
    }
    h->refused = refused;
}

static bool match_common(const struct cli_option *o, const void *key) {
    (void)key;
    return o->kind == CLI_KIND_COMMON;
}

static void each_option(const struct cli_option *table, const char *refused,
                        void (*fn)(const struct cli_option *o, void *arg), void *arg) {
    for (const struct cli_option *o = table; o->kind != CLI_KIND_END; o++)
        if (o->kind == CLI_KIND_WITHOUT)
            refused = o->name;
        else if (o->kind == CLI_KIND_INCLUDE)
            each_option(o->out, refused, fn, arg);
        else if (is_shown(o, refused))
            fn(o, arg);
}

void cli_each_option(const struct cli_option *table,
                     void (*fn)(const struct cli_option *o, void *arg), void *arg) {
    each_option(table, NULL, fn, arg);
}

static void usage_line(const struct cli_command *cmd) {
    printf("lockstep %s", cmd->name);
    const struct cli_option *o;
    for (int i = 0; (o = nth_arg(cmd->options, i)) != NULL; i++)
        printf(o->kind == CLI_KIND_ARG ? " %s" : " [%s]", o->name);
    printf(" [options]\n");
}

static void help_text(const struct cli_command *cmd, bool all) {
    const struct cli_option *common = table_find(cmd->options, match_common, NULL);
    struct help h = {.common = common != NULL && !all ? common->name : NULL,
                     .heading = "options"};
    printf("%susage:%s ", styled(STYLE_BOLD), styled(STYLE_NONE));
    usage_line(cmd);
    printf("\n%s\n", cmd->summary);
    if (nth_arg(cmd->options, 0) != NULL)
        putchar('\n');
    help_positionals(cmd->options, false);
    help_options(&h, cmd->options);
    if (h.heading != NULL && str_eq(h.heading, "options")) /* there is no other */
        printf("\n%soptions:%s\n", styled(STYLE_BOLD), styled(STYLE_NONE));
    help_entry(common != NULL ? "--help [all]" : "--help", common == NULL ? "this text"
                                                           : all ? "what one needs most"
                                                                 : "this text, or all options");
    if (cmd->details != NULL)
        printf("\n%s\n", cmd->details);
    if (h.n_left_out > 0)
        printf("\n%slockstep %s --help all%s has %zu more options.\n", styled(STYLE_BOLD),
               cmd->name, styled(STYLE_NONE), h.n_left_out);
}

/* roff takes a leading dot or quote for a request, and '\' and '-' as special. */
static void man_text(const char *text) {
    bool line_begins = true;
    for (const char *c = text; *c != '\0'; c++) {
        if (line_begins && (*c == '.' || *c == '\''))
            printf("\\&");
        if (*c == '\\')
            printf("\\e");
        else if (*c == '-')
            printf("\\-");
        else
            putchar(*c);
        line_begins = *c == '\n';
    }
    putchar('\n');
}

static void man_options(const struct cli_option *table, const char *refused) {
    char left[160];
    for (const struct cli_option *o = table; o->kind != CLI_KIND_END; o++) {
        if (o->kind == CLI_KIND_WITHOUT) {
            refused = o->name;
        } else if (o->kind == CLI_KIND_HEADING) {
            printf(".SS %s\n", o->name);
        } else if (o->kind == CLI_KIND_INCLUDE) {
            man_options(o->out, refused);
        } else if (is_shown(o, refused)) {
            option_spelled(o, left, sizeof left);
            printf(".TP\n.B ");
            man_text(left);
            man_text(o->help);
        }
    }
}

static void man_page(const struct cli_command *cmd) {
    printf(".TH LOCKSTEP-%s 1 \"\" \"lockstep " LOCKSTEP_VERSION "\" \"lockstep manual\"\n",
           cmd->name);
    printf(".SH NAME\nlockstep\\-%s \\- ", cmd->name);
    man_text(cmd->summary);
    printf(".SH SYNOPSIS\n");
    usage_line(cmd);
    printf(".SH OPTIONS\n");
    help_positionals(cmd->options, true);
    man_options(cmd->options, NULL);
    if (cmd->details != NULL) {
        printf(".SH DESCRIPTION\n.nf\n");
        man_text(cmd->details);
        printf(".fi\n");
    }
    printf(".SH EXIT STATUS\n" CLI_EXIT_STATUSES ".\n"
           ".SH SEE ALSO\n.BR lockstep (1)\n");
}

/* ---- parsing ----------------------------------------------------------------------------- */

/* An option as it is written: --ctx, --ctx=512, -n, -n5. */
struct spelling {
    const struct cli_option *option; /* NULL: the table has none */
    const char *value;               /* within the same word, or NULL */
    char shown[64];
};

static struct spelling spelling_of(const struct cli_option *table, const char *arg) {
    struct spelling s = {NULL, NULL, ""};
    if (arg[1] == '-') {
        struct name_key key = {arg + 2, strcspn(arg + 2, "=")};
        s.option = table_find(table, match_name, &key);
        if (arg[2 + key.len] == '=')
            s.value = arg + 2 + key.len + 1;
        snprintf(s.shown, sizeof s.shown, "--%.*s", (int)MIN(key.len, 40), key.name);
    } else {
        s.option = table_find(table, match_letter, &arg[1]);
        if (arg[2] != '\0')
            s.value = arg + 2;
        snprintf(s.shown, sizeof s.shown, "-%c", arg[1]);
    }
    return s;
}

/* Finds the value, at words[*i] or behind, and advances *i over it. */
static enum status find_value(struct spelling *s, size_t n, const char *const *words, size_t *i,
                              struct err *err) {
    if (s->option->kind == CLI_KIND_FLAG)
        return s->value == NULL ? ST_OK
                                : err_set(err, ST_BAD_INPUT, "%s takes no value", s->shown);
    if (s->value == NULL && s->option->kind == CLI_KIND_SWITCH)
        s->value = s->option->usual;
    if (s->value == NULL && *i + 1 >= n)
        return err_set(err, ST_BAD_INPUT, "%s needs a value: %s", s->shown,
                       value_name(s->option));
    if (s->value == NULL)
        s->value = words[++*i];
    return ST_OK;
}

/* One option at argv[*i]; advances *i over a separate value. */
static int parse_option(const struct cli_command *cmd, int argc, char **argv, size_t *i) {
    struct err err;
    struct spelling s = spelling_of(cmd->options, argv[*i]);
    if (s.option == NULL)
        return unknown_option(cmd, argv[*i]);
    enum status st = find_value(&s, (size_t)argc, (const char *const *)argv, i, &err);
    if (st == ST_OK && s.option->kind == CLI_KIND_FLAG)
        *(bool *)s.option->out = true;
    else if (st == ST_OK)
        st = option_set(s.option, s.shown, s.value, &err);
    return st == ST_OK ? CLI_GO_ON : cli_fail(st, "%s", err.text);
}

/* Text of a stranger, for an option that reads no file of that name. */
static bool is_plain_text(const char *value) {
    size_t n = 0;
    for (; value[n] != '\0'; n++)
        if ((uint8_t)value[n] < ' ' || value[n] == 0x7f)
            return false;
    return n <= PLAIN_TEXT_MAX;
}

static enum status check_value(const struct spelling *s, struct err *err) {
    union {
        int i;
        float f;
        uint64_t u;
        const char *text;
        struct cli_list list;
    } nowhere;
    struct cli_option copy = *s->option;
    copy.out = &nowhere;
    TRY(option_set(&copy, s->shown, s->value, err));
    if (copy.kind == CLI_KIND_TEXT && !is_plain_text(s->value))
        return err_set(err, ST_BAD_INPUT, "%s: expected at most %d bytes of text", s->shown,
                       PLAIN_TEXT_MAX);
    return ST_OK;
}

enum status cli_check_words(const struct cli_option *table, const char *allowed,
                            const char *const *words, size_t n, struct err *err) {
    for (size_t i = 0; i < n; i++) {
        if (words[i][0] != '-' || words[i][1] == '\0' || str_eq(words[i], "--"))
            return err_set(err, ST_BAD_INPUT, "'%.80s' is not an option", words[i]);
        struct spelling s = spelling_of(table, words[i]);
        if (s.option == NULL || s.option->name == NULL ||
            !str_list_has(allowed, s.option->name))
            return err_set(err, ST_BAD_INPUT, "%s is not an option that may be given here",
                           s.shown);
        TRY(find_value(&s, n, words, &i, err));
        if (s.value != NULL)
            TRY(check_value(&s, err));
    }
    return ST_OK;
}

static int parse_positional(const struct cli_command *cmd, const char *arg, int index) {
    const struct cli_option *o = nth_arg(cmd->options, index);
    if (o == NULL)
        return cli_fail(ST_BAD_INPUT, "unexpected argument '%s'; see lockstep %s --help", arg,
                        cmd->name);
    if (*arg == '\0')
        return cli_fail(ST_BAD_INPUT, "%s is empty; see lockstep %s --help", o->name,
                        cmd->name);
    struct err err;
    enum status st = o->find != NULL ? o->find(&arg, &err) : ST_OK;
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    *(const char **)o->out = arg;
    return CLI_GO_ON;
}

static bool asks_for_help(const char *arg) {
    return str_eq(arg, "--help") || str_eq(arg, "-h") || str_eq(arg, "--help-all");
}

int cli_parse(const struct cli_command *cmd, int argc, char **argv) {
    int n_args = 0;
    bool options_end = false;
    for (size_t i = 1; i < (size_t)argc; i++) {
        const char *arg = argv[i];
        int status;
        if (!options_end && str_eq(arg, "--")) {
            options_end = true;
            continue;
        }
        if (!options_end && asks_for_help(arg)) {
            const char *next = i + 1 < (size_t)argc ? argv[i + 1] : "";
            help_text(cmd, str_eq(arg, "--help-all") || str_eq(next, "all"));
            return 0;
        }
        if (!options_end && str_eq(arg, "--help-man")) {
            man_page(cmd);
            return 0;
        }
        if (!options_end && str_starts(arg, CLI_COMPLETION)) {
            cli_completion_command(arg + strlen(CLI_COMPLETION), cmd);
            return 0;
        }
        if (!options_end && arg[0] == '-' && arg[1] != '\0')
            status = parse_option(cmd, argc, argv, &i);
        else
            status = parse_positional(cmd, arg, n_args++);
        if (status != CLI_GO_ON)
            return status;
    }
    const struct cli_option *missing = nth_arg(cmd->options, n_args);
    if (missing != NULL && missing->kind == CLI_KIND_ARG)
        return cli_fail(ST_BAD_INPUT, "%s is missing; see lockstep %s --help", missing->name,
                        cmd->name);
    return CLI_GO_ON;
}
