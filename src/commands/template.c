/* template.c: lockstep template: prints the prompt that a model's chat template makes of a test
 * case. */
#include "base/file.h"
#include "base/mem.h"
#include "base/util.h"
#include "chat/chat.h"
#include "cli/cli.h"
#include "cli/model_names.h"
#include "hf/hf_folder.h"

#include <stdio.h>
#include <string.h>

#define MAX_TEMPLATE_BYTES ((size_t)16 << 20)
#define MAX_CASE_BYTES ((size_t)64 << 20)

static enum status load_case(const char *path, json_t **out, struct err *err) {
    json_error_t e;
    char *text;
    size_t len;
    TRY(file_read_text(&text, &len, path, MAX_CASE_BYTES, err));
    json_t *vars = json_loadb(text, len, JSON_ALLOW_NUL, &e);
    mem_free(text);
    if (vars == NULL)
        return err_set(err, ST_BAD_INPUT, "%s:%d: %s", path, e.line, e.text);
    if (!json_is_object(vars)) {
        json_decref(vars);
        return err_set(err, ST_BAD_INPUT, "%s: must be a JSON object", path);
    }
    if (json_object_get(vars, "tools") == NULL)
        json_object_set_new(vars, "tools", json_null());
    *out = vars;
    return ST_OK;
}

/* "now": "2024-11-20T09:08:07" (or a space for the T) is taken out of the variables. */
static enum status take_clock(json_t *vars, struct template_clock *now, bool *given,
                              struct err *err) {
    const json_t *value = json_object_get(vars, "now");
    *given = value != NULL;
    if (value == NULL)
        return ST_OK;
    const char *s = json_is_string(value) ? json_string_value(value) : "";
    int n = sscanf(s, "%4d-%2d-%2d%*1[T ]%2d:%2d:%2d", &now->year, &now->month, &now->day,
                   &now->hour, &now->minute, &now->second);
    if (n != 6)
        return err_set(err, ST_BAD_INPUT, "now must be like \"2024-11-20T09:08:07\"");
    json_object_del(vars, "now");
    return ST_OK;
}

static enum status render_case(const struct template *t, const char *case_path,
                               const json_t *token_variables, struct err *err) {
    json_t *vars;
    struct template_clock now;
    bool has_clock;
    char *text = NULL;
    size_t len = 0;
    TRY(load_case(case_path, &vars, err));
    enum status st = take_clock(vars, &now, &has_clock, err);
    if (st == ST_OK) {
        json_object_update_missing(vars, (json_t *)token_variables);
        st = template_render(t, vars, has_clock ? &now : NULL, &text, &len, err);
    }
    if (st == ST_OK)
        fwrite(text, 1, len, stdout);
    mem_free(text);
    json_decref(vars);
    return st;
}

static enum status run_file(const char *path, const char *case_path, struct err *err) {
    char *source = NULL;
    size_t len = 0;
    struct template *t;
    TRY(file_read_text(&source, &len, path, MAX_TEMPLATE_BYTES, err));
    enum status st = template_compile(&t, source, len, err);
    mem_free(source);
    if (st != ST_OK)
        return err_prefix(err, st, "%s: ", path);
    st = render_case(t, case_path, NULL, err);
    template_close(t);
    return st;
}

static enum status open_model(const char *path, struct chat **chat, struct err *err) {
    struct gguf *g;
    struct tokenizer *t;
    TRY(hf_open_any(&g, path, NULL, err));
    enum status st = tokenizer_open(&t, g, err);
    gguf_close(g);
    if (st == ST_OK) {
        st = chat_open(chat, t, NULL, 0, err);
        tokenizer_close(t);
    }
    return st == ST_OK ? ST_OK : err_prefix(err, st, "%s: ", path);
}

static enum status run_model(const char *path, const char *case_path, bool source,
                             struct err *err) {
    struct chat *chat;
    TRY(models_here(&path, err));
    TRY(open_model(path, &chat, err));
    enum status st = ST_OK;
    if (source)
        fputs(chat_source(chat), stdout);
    else
        st = render_case(chat_template(chat), case_path, chat_token_variables(chat), err);
    chat_close(chat);
    return st;
}

int cmd_template(int argc, char **argv) {
    const char *first = NULL, *second = NULL, *file = NULL;
    bool source = false;
    const struct cli_option table[] = {
        CLI_ARG_MAY("MODEL", &first, CLI_MODEL_HELP "; left out\nwith --template-file"),
        CLI_ARG_MAY("CASE", &second,
                    "JSON object: messages, tools, add_generation_prompt, bos_token,\n"
                    "eos_token, now (\"2024-11-20T09:08:07\"); every other key is a variable"),
        CLI_TEXT(0, "template-file", "F", &file, "the template itself instead of a model"),
        CLI_FLAG(0, "source", &source, "print the model's template, without a case"), CLI_END};
    const struct cli_command cmd = {
        "template", "renders a model's chat template",
        "Writes the prompt to standard output, without a line end. If the file has no template, a\n"
        "built-in one is chosen by its special tokens. bos_token and eos_token are the model's\n"
        "unless CASE has them.",
        table};
    int status = cli_parse(&cmd, argc, argv);
    if (status != CLI_GO_ON)
        return status;

    size_t wanted = (file == NULL) + !source, given = (first != NULL) + (second != NULL);
    if (given != wanted || (source && file != NULL))
        return cli_fail(ST_BAD_INPUT, "expected MODEL CASE, MODEL --source, or --template-file "
                                      "F CASE");
    struct err err;
    enum status st =
        file != NULL ? run_file(file, first, &err) : run_model(first, second, source, &err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}
