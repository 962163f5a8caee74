#include "cli/line.h"

#include "base/mem.h"
#include "base/util.h"
#include "cli/cli.h"

#include <errno.h>
#include <histedit.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HISTORY_LINES 1000
#define BLOCK "\"\"\""

struct line_reader {
    bool terminal;
    EditLine *el;
    History *history;
    char *history_path;
    const char *prompt;
    /* The line from a pipe, getline()'s memory. */
    char *plain;
    size_t plain_cap;
    /* The message: lines put together. */
    char *text;
    size_t len, cap;
};

static char *show_prompt(EditLine *el) {
    struct line_reader *r;
    el_get(el, EL_CLIENTDATA, &r);
    return (char *)r->prompt;
}

static enum status open_editor(struct line_reader *r, struct err *err) {
    HistEvent event;
    r->el = el_init("lockstep", stdin, stdout, stderr);
    r->history = history_init();
    if (r->el == NULL || r->history == NULL)
        return err_set(err, ST_NO_MEMORY, "not enough memory for line editing");
    history(r->history, &event, H_SETSIZE, HISTORY_LINES);
    history(r->history, &event, H_SETUNIQUE, 1);
    if (r->history_path != NULL)
        history(r->history, &event, H_LOAD, r->history_path);
    el_set(r->el, EL_CLIENTDATA, r);
    el_set(r->el, EL_PROMPT, show_prompt);
    el_set(r->el, EL_EDITOR, "emacs");
    el_set(r->el, EL_HIST, history, r->history);
    el_set(r->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    return ST_OK;
}

enum status line_open(struct line_reader **out, const char *history_path, struct err *err) {
    struct line_reader *r = mem_calloc(1, sizeof *r);
    if (r == NULL)
        return err_set(err, ST_NO_MEMORY, "not enough memory to read lines");
    r->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    r->history_path = history_path != NULL ? mem_strdup(history_path) : NULL;
    enum status st = r->terminal ? open_editor(r, err) : ST_OK;
    if (st == ST_OK)
        *out = r;
    else
        line_close(r);
    return st;
}

void line_close(struct line_reader *r) {
    if (r == NULL)
        return;
    if (r->history != NULL)
        history_end(r->history);
    if (r->el != NULL)
        el_end(r->el);
    free(r->plain);
    mem_free(r->history_path);
    mem_free(r->text);
    mem_free(r);
}

bool line_is_terminal(const struct line_reader *r) {
    return r->terminal;
}

/* ---- one line ---------------------------------------------------------------------------- */

static void wake(void *arg) {
    (void)arg; /* the signal itself ends the read */
}

static enum line_result edit_line(struct line_reader *r, const char *prompt, const char **line,
                                  size_t *len) {
    int n = 0;
    HistEvent event;
    r->prompt = prompt;
    cli_on_interrupt(wake, NULL);
    const char *typed = el_gets(r->el, &n);
    int signal_number = cli_interrupted();
    cli_on_interrupt(NULL, NULL);
    if (signal_number != 0) {
        el_reset(r->el);
        printf("\n");
        return signal_number == SIGINT ? LINE_INTERRUPTED : LINE_TERMINATED;
    }
    if (typed == NULL || n <= 0)
        return LINE_END;
    *line = typed;
    *len = (size_t)n - (typed[n - 1] == '\n');
    if (*len > 0) {
        history(r->history, &event, H_ENTER, typed);
        if (r->history_path != NULL)
            history(r->history, &event, H_SAVE, r->history_path);
    }
    return LINE_OK;
}

static enum line_result plain_line(struct line_reader *r, const char **line, size_t *len) {
    ssize_t n = getline(&r->plain, &r->plain_cap, stdin);
    if (n <= 0)
        return ferror(stdin) ? LINE_FAILED : LINE_END;
    *line = r->plain;
    *len = (size_t)n - (r->plain[n - 1] == '\n');
    return LINE_OK;
}

/* ---- a message --------------------------------------------------------------------------- */

static bool append(struct line_reader *r, const char *s, size_t n) {
    if (r->len + n + 1 > r->cap) {
        size_t cap = 2 * (r->len + n) + 256;
        char *grown = mem_realloc(r->text, cap);
        if (grown == NULL)
            return false;
        r->text = grown;
        r->cap = cap;
    }
    memcpy(r->text + r->len, s, n);
    r->len += n;
    r->text[r->len] = '\0';
    return true;
}

static bool ends_with(const char *s, size_t n, const char *suffix) {
    size_t k = strlen(suffix);
    return n >= k && memcmp(s + n - k, suffix, k) == 0;
}

enum line_result line_read(struct line_reader *r, const char *prompt, const char **text,
                           size_t *n_text) {
    bool in_block = false, more = true;
    r->len = 0;
    for (bool first = true; more; first = false) {
        const char *line = "";
        size_t len = 0;
        enum line_result got = r->terminal ? edit_line(r, first ? prompt : "... ", &line, &len)
                                           : plain_line(r, &line, &len);
        if (got != LINE_OK && (got != LINE_END || first))
            return got;
        more = got == LINE_OK;
        if (first && len >= strlen(BLOCK) && strncmp(line, BLOCK, strlen(BLOCK)) == 0) {
            in_block = true;
            line += strlen(BLOCK);
            len -= strlen(BLOCK);
        }
        if (in_block && ends_with(line, len, BLOCK)) {
            len -= strlen(BLOCK);
            more = false;
        } else if (!in_block) {
            more = more && ends_with(line, len, "\\");
            len -= more;
        }
        if (!append(r, line, len) || (more && !append(r, "\n", 1)))
            return LINE_END;
    }
    *text = r->text;
    *n_text = r->len;
    return LINE_OK;
}
