/* line.c: Reads lines that a person types: with libedit on a terminal, plainly from a pipe or a
 * file. */
#include "view/line.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/util.h"
#include "cli/cli.h"

#include <errno.h>
#include <histedit.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/select.h>
#include <unistd.h>
#include <wchar.h>

#define HISTORY_LINES 1000
#define BLOCK "\"\"\""

struct line_reader {
    bool terminal;
    bool marks_paste; /* the terminal is asked to say what is pasted (bracketed paste) */
    EditLine *el;
    History *history;
    char *history_path; /* malloc'd; NULL: lines are remembered until the end */
    bool is_written;    /* the file has every line of history, or had it */
    const char *prompt;
    /* The line from a pipe, getline()'s memory. */
    char *plain;
    size_t plain_cap;
    /* The message: lines put together. */
    struct buf text;
};

static char *show_prompt(EditLine *el) {
    struct line_reader *r;
    el_get(el, EL_CLIENTDATA, &r);
    return (char *)r->prompt;
}

/* ---- keys ---------------------------------------------------------------------------------
 * While a line is edited, signals only leave a note; what they ask for is done between two
 * keys. They come as soon as no key is there to be read, or before: Ctrl-C makes the system
 * forget the keys before it, not those after it. */
static const int edit_signals[] = {SIGWINCH, SIGCONT, SIGTSTP, SIGQUIT, SIGHUP};
static volatile sig_atomic_t came[ARRAY_LEN(edit_signals)];
/* Places in edit_signals; what comes after them stops or ends the process. */
enum { WINCH, CONT, FIRST_TO_GIVE_WAY };

static void note_signal(int number) {
    for (size_t i = 0; i < ARRAY_LEN(edit_signals); i++)
        if (edit_signals[i] == number)
            came[i] = 1;
}

static bool signal_came(void) {
    bool any = cli_interrupted() != 0;
    for (size_t i = 0; i < ARRAY_LEN(edit_signals); i++)
        any = any || came[i];
    return any;
}

static void wait_for_key_or_signal(void) {
    sigset_t all, before;
    fd_set keys;
    FD_ZERO(&keys);
    FD_SET(STDIN_FILENO, &keys);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    if (!signal_came())
        pselect(STDIN_FILENO + 1, &keys, NULL, NULL, NULL, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

static void begin_editing(struct line_reader *r) {
    el_set(r->el, EL_PREP_TERM, 1);
    /* read() does not wait: a Ctrl-C right before it may have taken away the key that was
     * there. */
    el_set(r->el, EL_SETTY, "-d", "min=\\000", NULL);
    if (r->marks_paste)
        printf("\033[?2004h");
}

static void end_editing(struct line_reader *r) {
    el_set(r->el, EL_PREP_TERM, 0);
    if (r->marks_paste)
        printf("\033[?2004l");
    fflush(stdout);
}

/* The signal does what it does without an editor, to a terminal that looks like it. */
static void give_way(struct line_reader *r, int number) {
    struct sigaction ours, usual = {.sa_handler = SIG_DFL};
    sigemptyset(&usual.sa_mask);
    end_editing(r);
    sigaction(number, &usual, &ours);
    raise(number);
    sigaction(number, &ours, NULL);
    came[CONT] = 1; /* also where no shell is there to stop for */
}

static void clear_below(struct line_reader *r) {
    el_set(r->el, EL_ECHOTC, "-s", "cd", NULL);
}

static void obey_signals(struct line_reader *r) {
    for (size_t i = FIRST_TO_GIVE_WAY; i < ARRAY_LEN(edit_signals); i++)
        if (came[i]) {
            came[i] = 0;
            give_way(r, edit_signals[i]);
        }
    if (!came[WINCH] && !came[CONT])
        return;
    if (came[CONT]) /* the previous user of the terminal may have left it in any mode */
        end_editing(r);
    came[WINCH] = came[CONT] = 0;
    begin_editing(r);
    printf("\r");
    clear_below(r);
    el_resize(r->el);
    el_set(r->el, EL_REFRESH);
}

/* As read(): 1, 0 at the end, -1 (EINTR after SIGINT and SIGTERM). */
static int next_byte(struct line_reader *r, char *byte) {
    for (;;) {
        wait_for_key_or_signal();
        if (cli_interrupted()) {
            errno = EINTR;
            return -1;
        }
        if (signal_came()) {
            obey_signals(r);
            continue;
        }
        ssize_t n = read(STDIN_FILENO, byte, 1);
        if (n == 0 ? !signal_came() : n > 0 || (errno != EINTR && errno != EAGAIN))
            return (int)n;
    }
}

static int next_key(EditLine *el, wchar_t *key) {
    struct line_reader *r;
    mbstate_t state = {0};
    char byte;
    int n;
    el_get(el, EL_CLIENTDATA, &r);
    while ((n = next_byte(r, &byte)) == 1) {
        size_t length = mbrtowc(key, &byte, 1, &state);
        if (length == (size_t)-1) { /* no character; this byte may begin one */
            state = (mbstate_t){0};
            length = mbrtowc(key, &byte, 1, &state);
        }
        if (length <= 1)
            return 1;
        if (length == (size_t)-1)
            state = (mbstate_t){0};
    }
    return n;
}

#define PASTE_BEGIN "\033[200~"
#define PASTE_END "\033[201~"

static void insert(EditLine *el, wchar_t key) {
    char bytes[MB_LEN_MAX + 1];
    mbstate_t state = {0};
    size_t n = wcrtomb(bytes, key, &state);
    if (key == L'\0' || n == (size_t)-1)
        return;
    bytes[n] = '\0';
    el_insertstr(el, bytes);
}

/* Ends of lines in pasted text do not send it. The editor has the terminal exchange '\r' and
 * '\n'. */
static unsigned char paste(EditLine *el, wint_t key_) {
    size_t n_end = 0; /* of PASTE_END's characters, seen */
    wchar_t key, last = L'\0';
    (void)key_;
    while (next_key(el, &key) == 1) {
        for (size_t i = 0; key != PASTE_END[n_end] && i < n_end; i++)
            insert(el, PASTE_END[i]);
        n_end = key == PASTE_END[n_end] ? n_end + 1 : key == PASTE_END[0];
        if (n_end == strlen(PASTE_END))
            return CC_REFRESH;
        if (n_end == 0 && !(key == L'\r' && last == L'\n'))
            insert(el, key == L'\r' ? L'\n' : key);
        last = key;
    }
    return CC_EOF;
}

static unsigned char new_line(EditLine *el, wint_t key) {
    (void)key;
    el_insertstr(el, "\n");
    return CC_REFRESH;
}

/* ---- the history --------------------------------------------------------------------------
 * Other conversations write the same file. So their additions are read before each line. It is
 * not an error if the file cannot be read or written. Then only the lines of this conversation
 * are kept, while it lasts. */
static void load_history(struct line_reader *r) {
    HistEvent event;
    if (r->history_path == NULL || !r->is_written || access(r->history_path, R_OK) != 0)
        return;
    history(r->history, &event, H_CLEAR);
    history(r->history, &event, H_LOAD, r->history_path);
}

static void remember(struct line_reader *r, const char *typed) {
    HistEvent event;
    struct file_new file;
    struct err err;
    load_history(r);
    history(r->history, &event, H_ENTER, typed);
    r->is_written = false;
    if (r->history_path == NULL || file_new_open(&file, r->history_path, &err) != ST_OK)
        return;
    if (history(r->history, &event, H_SAVE_FP, file.f) >= 0)
        r->is_written = file_new_finish(&file, false, &err) == ST_OK;
    else
        file_new_drop(&file);
}

/* ---- the editor --------------------------------------------------------------------------- */

static enum status open_editor(struct line_reader *r, struct err *err) {
    HistEvent event;
    r->el = el_init("lockstep", stdin, stdout, stderr);
    r->history = history_init();
    if (r->el == NULL || r->history == NULL)
        return err_set(err, ST_NO_MEMORY, "not enough memory for line editing");
    history(r->history, &event, H_SETSIZE, HISTORY_LINES);
    history(r->history, &event, H_SETUNIQUE, 1);
    r->is_written = true;
    load_history(r);
    el_set(r->el, EL_CLIENTDATA, r);
    el_set(r->el, EL_PROMPT, show_prompt);
    el_set(r->el, EL_GETCFN, next_key);
    el_set(r->el, EL_EDITOR, "emacs");
    el_set(r->el, EL_HIST, history, r->history);
    el_set(r->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    /* el_set() would leak its copies of the names. */
    el_wset(r->el, EL_ADDFN, L"paste", L"inserts what is pasted", paste);
    el_set(r->el, EL_BIND, PASTE_BEGIN, "paste", NULL);
    el_wset(r->el, EL_ADDFN, L"new-line", L"begins another line", new_line);
    el_set(r->el, EL_BIND, "\033\r", "new-line", NULL); /* Alt-Enter */
    el_set(r->el, EL_BIND, "\033\n", "new-line", NULL);
    return ST_OK;
}

enum status line_open(struct line_reader **out, const char *history_path, struct err *err) {
    struct line_reader *r = mem_calloc(1, sizeof *r);
    if (r == NULL)
        return err_set(err, ST_NO_MEMORY, "not enough memory to read lines");
    r->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    r->marks_paste = cli_has_escapes(STDOUT_FILENO);
    if (history_path != NULL && (r->history_path = realpath(history_path, NULL)) == NULL)
        r->history_path = strdup(history_path);
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
    free(r->history_path);
    buf_free(&r->text);
    mem_free(r);
}

bool line_is_terminal(const struct line_reader *r) {
    return r->terminal;
}

/* ---- one line ---------------------------------------------------------------------------- */

static const char *get_line(struct line_reader *r, int *n) {
    struct sigaction ours = {.sa_handler = note_signal}, before[ARRAY_LEN(edit_signals)];
    sigemptyset(&ours.sa_mask);
    for (size_t i = 0; i < ARRAY_LEN(edit_signals); i++)
        sigaction(edit_signals[i], &ours, &before[i]);
    begin_editing(r);
    const char *typed = el_gets(r->el, n);
    end_editing(r);
    for (size_t i = 0; i < ARRAY_LEN(edit_signals); i++)
        sigaction(edit_signals[i], &before[i], NULL);
    for (size_t i = 0; i < ARRAY_LEN(edit_signals); i++)
        if (came[i]) { /* after the last key */
            came[i] = 0;
            raise(edit_signals[i]);
        }
    return typed;
}

static enum line_result edit_line(struct line_reader *r, const char *prompt, const char **line,
                                  size_t *len) {
    int n = 0;
    r->prompt = prompt;
    const char *typed = get_line(r, &n);
    int signal_number = typed == NULL ? cli_take_interrupt() : 0;
    if (signal_number != 0) {
        el_reset(r->el);
        printf("\n");
        clear_below(r);
        return signal_number == SIGINT ? LINE_INTERRUPTED : LINE_TERMINATED;
    }
    if (typed == NULL || n <= 0)
        return LINE_END;
    *line = typed;
    *len = (size_t)n - (typed[n - 1] == '\n');
    if (*len > 0)
        remember(r, typed);
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

static bool ends_with(const char *s, size_t n, const char *suffix) {
    size_t k = strlen(suffix);
    return n >= k && memcmp(s + n - k, suffix, k) == 0;
}

enum line_result line_read(struct line_reader *r, const char *prompt, const char **text,
                           size_t *n_text) {
    bool in_block = false, more = true;
    buf_clear(&r->text);
    for (bool first = true; more; first = false) {
        const char *line = "";
        size_t len = 0;
        enum line_result got = r->terminal ? edit_line(r,
                                                       first      ? prompt
                                                       : in_block ? BLOCK " "
                                                                  : "... ",
                                                       &line, &len)
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
        if (!buf_add(&r->text, line, len) || (more && !buf_add_str(&r->text, "\n")))
            return LINE_END;
    }
    *text = r->text.bytes;
    *n_text = r->text.len;
    return LINE_OK;
}
