/* talk.c: A conversation: its messages, its settings, and the file that keeps it. */
#include "view/talk.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "cli/cli.h"
#include "server/reply.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define FILE_MAX ((size_t)64 << 20)

static enum status no_memory(struct err *err) {
    return err_set(err, ST_NO_MEMORY, "not enough memory for the conversation");
}

enum status talk_begin(struct talk *t, struct talker *talker, struct lockstep_sampling *s,
                       int *n_predict, struct err *err) {
    *t = (struct talk){
        .talker = talker, .messages = json_array(), .settings = {s, n_predict, json_object()}};
    return t->messages != NULL && t->settings.more != NULL ? ST_OK : no_memory(err);
}

void talk_end(struct talk *t) {
    json_decref(t->messages);
    json_decref(t->settings.more);
    *t = (struct talk){.talker = NULL};
}

/* ---- messages ---------------------------------------------------------------------------- */

enum status talk_add(struct talk *t, const char *role, const char *text, size_t n,
                     struct err *err) {
    json_t *content = json_stringn(text, n);
    if (content == NULL)
        return err_set(err, ST_BAD_INPUT, "the message is not UTF-8 text");
    json_t *m = json_pack("{s:s, s:o}", "role", role, "content", content);
    return json_array_append_new(t->messages, m) == 0 ? ST_OK : no_memory(err);
}

enum status talk_add_answer(struct talk *t, const struct talk_answer *a, struct err *err) {
    json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content",
                          bytes_json(a->text.bytes, a->text.len));
    if (m != NULL && a->thoughts.len > 0)
        json_object_set_new(m, "reasoning_content",
                            bytes_json(a->thoughts.bytes, a->thoughts.len));
    return json_array_append_new(t->messages, m) == 0 ? ST_OK : no_memory(err);
}

void talk_drop_last(struct talk *t) {
    json_array_remove(t->messages, json_array_size(t->messages) - 1);
}

static bool is_by(const json_t *message, const char *role) {
    return str_eq(json_text(message, "role"), role);
}

bool talk_reopen(struct talk *t) {
    size_t n = json_array_size(t->messages);
    if (n == 0 || !is_by(json_array_get(t->messages, n - 1), "assistant"))
        return false;
    talk_drop_last(t);
    return n > 1;
}

enum status talk_reset(struct talk *t, const char *system, struct err *err) {
    json_array_clear(t->messages);
    if (t->talker->forget != NULL)
        t->talker->forget(t->talker);
    return system == NULL || *system == '\0'
               ? ST_OK
               : talk_add(t, "system", system, strlen(system), err);
}

/* ---- settings ---------------------------------------------------------------------------- */

/* What servers know beside it (docs/serve.md), with its bounds there. */
static const struct {
    const char *name;
    double min, max;
} of_servers[] = {
    {"typical_p", 0, 1},
    {"presence_penalty", -2, 2},
    {"frequency_penalty", -2, 2},
    {"top_n_sigma", -1, 1000},
    {"xtc_probability", 0, 1},
    {"xtc_threshold", 0, 1},
    {"dry_multiplier", 0, 100},
    {"dry_base", 1, 100},
    {"dry_allowed_length", 1, 1 << 20},
    {"dry_penalty_last_n", -1, 1 << 30},
};

/* Letters as they are, '-' and '_' alike. */
static bool same_name(const char *a, const char *b) {
    for (; *a != '\0' && *b != '\0'; a++, b++)
        if (*a != *b && !((*a == '-' || *a == '_') && (*b == '-' || *b == '_')))
            return false;
    return *a == *b;
}

static enum status set_of_server(struct talk *t, size_t i, const char *value, struct err *err) {
    char *end;
    double v = strtod(value, &end);
    bool whole = same_name(of_servers[i].name, "dry_allowed_length") ||
                 same_name(of_servers[i].name, "dry_penalty_last_n");
    if (!t->talker->is_server)
        return err_set(err, ST_UNSUPPORTED, "%s is for servers: chat --server",
                       of_servers[i].name);
    if (end == value || *end != '\0' || !(v >= of_servers[i].min && v <= of_servers[i].max) ||
        (whole && v != (double)(long)v))
        return err_set(err, ST_BAD_INPUT, "%s %s: expected a %snumber from %g to %g",
                       of_servers[i].name, value, whole ? "whole " : "", of_servers[i].min,
                       of_servers[i].max);
    json_object_set_new(t->settings.more, of_servers[i].name,
                        whole ? json_integer((json_int_t)v) : json_real(v));
    return ST_OK;
}

enum status talk_set(struct talk *t, const char *name, const char *value, struct err *err) {
    struct lockstep_sampling *s = t->settings.sampling;
    const struct cli_option table[] = {
        CLI_FLOAT(0, "temp", "T", &s->temperature, 0, 100, ""),
        CLI_FLOAT(0, "temperature", "T", &s->temperature, 0, 100, ""),
        CLI_INT(0, "top-k", "K", &s->top_k, 0, 1 << 30, ""),
        CLI_FLOAT(0, "top-p", "P", &s->top_p, 0, 1, ""),
        CLI_FLOAT(0, "min-p", "P", &s->min_p, 0, 1, ""),
        CLI_FLOAT(0, "repeat-penalty", "X", &s->repeat_penalty, 0.01, 100, ""),
        CLI_INT(0, "repeat-last-n", "N", &s->repeat_last_n, 0, 1 << 20, ""),
        CLI_U64(0, "seed", "S", &s->seed, ""),
        CLI_INT(0, "predict", "N", t->settings.n_predict, -1, 1 << 24, ""),
        CLI_END};
    for (const struct cli_option *o = table; o->kind != CLI_KIND_END; o++)
        if (same_name(o->name, name))
            return cli_set_option(o, o->name, value, err);
    for (size_t i = 0; i < ARRAY_LEN(of_servers); i++)
        if (same_name(of_servers[i].name, name))
            return set_of_server(t, i, value, err);
    return err_set(err, ST_NOT_FOUND, "there is no setting %s: /set alone lists them", name);
}

void talk_print_settings(const struct talk *t) {
    const struct lockstep_sampling *s = t->settings.sampling;
    const char *name;
    json_t *v;
    fprintf(stderr,
            "  temp                %g\n  top-k               %d\n"
            "  top-p               %g\n  min-p               %g\n"
            "  repeat-penalty      %g\n  repeat-last-n       %d\n"
            "  seed                %llu\n  predict             %d\n",
            s->temperature, s->top_k, s->top_p, s->min_p, s->repeat_penalty, s->repeat_last_n,
            (unsigned long long)s->seed, *t->settings.n_predict);
    if (!t->talker->is_server)
        return;
    json_object_foreach(t->settings.more, name, v) {
        fprintf(stderr, "  %-19s %g\n", name, json_number_value(v));
    }
    fprintf(stderr, "  servers know more:");
    for (size_t i = 0; i < ARRAY_LEN(of_servers); i++)
        fprintf(stderr, " %s", of_servers[i].name);
    fprintf(stderr, "\n");
}

/* ---- files ------------------------------------------------------------------------------- */

static void expand(char *out, size_t size, const char *path) {
    const char *home = getenv("HOME");
    if (str_starts(path, "~/") && home != NULL)
        snprintf(out, size, "%s%s", home, path + 1);
    else
        snprintf(out, size, "%s", path);
}

/* As people write it: the double of a float has more digits. */
static json_t *short_real(float v) {
    char text[32];
    snprintf(text, sizeof text, "%.7g", (double)v);
    return json_real(strtod(text, NULL));
}

static json_t *settings_json(const struct talk *t) {
    const struct lockstep_sampling *s = t->settings.sampling;
    json_t *o = json_pack("{s:o, s:i, s:o, s:o, s:o, s:i, s:I, s:i}", "temp",
                          short_real(s->temperature), "top-k", s->top_k, "top-p",
                          short_real(s->top_p), "min-p", short_real(s->min_p), "repeat-penalty",
                          short_real(s->repeat_penalty), "repeat-last-n", s->repeat_last_n,
                          "seed", (json_int_t)s->seed, "predict", *t->settings.n_predict);
    json_object_update(o, t->settings.more);
    return o;
}

enum status talk_save(const struct talk *t, const char *path, struct err *err) {
    char full[PATH_MAX];
    struct file_new file;
    expand(full, sizeof full, path);
    json_t *o = json_pack("{s:s, s:O, s:o}", "model", t->talker->model, "messages", t->messages,
                          "settings", settings_json(t));
    if (o == NULL)
        return no_memory(err);
    enum status st = file_new_open(&file, full, err);
    if (st == ST_OK && (json_dumpf(o, file.f, JSON_INDENT(1) | JSON_REAL_PRECISION(7)) != 0 ||
                        fputc('\n', file.f) == EOF)) {
        st = file_new_failed(&file, errno, err);
        file_new_drop(&file);
    } else if (st == ST_OK) {
        st = file_new_finish(&file, false, err);
    }
    json_decref(o);
    return st;
}

static enum status check_messages(const json_t *messages, const char *path, struct err *err) {
    size_t i;
    json_t *m;
    if (!json_is_array(messages))
        return err_set(err, ST_BAD_INPUT, "%s: there is no list of messages in it", path);
    json_array_foreach((json_t *)(uintptr_t)messages, i, m) {
        if (!json_is_string(json_object_get(m, "content")))
            return err_set(err, ST_BAD_INPUT, "%s: messages[%zu].content is not a string", path,
                           i);
        if (!is_by(m, "user") && !is_by(m, "assistant") && !is_by(m, "system"))
            return err_set(err, ST_BAD_INPUT,
                           "%s: messages[%zu].role is not user, assistant or system", path, i);
    }
    return ST_OK;
}

static void take_settings(struct talk *t, const json_t *settings) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)settings, name, v) {
        char text[64];
        struct err ignored; /* of another version, or of a server's */
        if (json_is_integer(v))
            snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
        else
            snprintf(text, sizeof text, "%.9g", json_number_value(v));
        if (json_is_number(v))
            (void)talk_set(t, name, text, &ignored);
    }
}

enum status talk_load(struct talk *t, const char *path, struct err *err) {
    char full[PATH_MAX];
    char *text;
    size_t n;
    json_error_t why;
    expand(full, sizeof full, path);
    TRY(file_read_text(&text, &n, full, FILE_MAX, err));
    json_t *o =
        json_count(text, n) <= JSON_REQUEST_VALUES_MAX ? json_loadb(text, n, 0, &why) : NULL;
    mem_free(text);
    json_t *messages = json_is_array(o) ? o : json_object_get(o, "messages");
    enum status st = check_messages(messages, full, err);
    if (st == ST_OK) {
        if (t->talker->forget != NULL)
            t->talker->forget(t->talker);
        json_incref(messages);
        json_decref(t->messages);
        t->messages = messages;
        take_settings(t, json_object_get(o, "settings"));
    }
    json_decref(o);
    return st;
}
