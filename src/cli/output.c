/* output.c: what commands print: errors, text, JSON, numbers of bytes. It also checks that the
 * output was written. */
#include "cli/cli.h"

#include "base/file.h"
#include "base/program.h"
#include "base/util.h"
#include "format/gguf.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static const char *running = NULL; /* the subcommand, for messages */

void cli_set_command(const char *name) {
    running = name;
}

int cli_fail(enum status st, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fflush(stdout);
    fprintf(stderr, "lockstep%s%s: %s\n", running != NULL ? " " : "",
            running != NULL ? running : "", text);
    return status_exit_code(st);
}

int cli_flush(void) {
    static bool said; /* a command looks before it ends, and run() once more */
    if (fflush(stdout) == 0 && !ferror(stdout))
        return CLI_GO_ON;
    if (errno == EPIPE || said)
        return 1;
    said = true;
    return cli_fail(ST_IO, "cannot write to standard output: %s", strerror(errno));
}

bool cli_has_escapes(int fd) {
    const char *term = env_get("TERM");
    return isatty(fd) && term != NULL && !str_eq(term, "dumb");
}

void cli_print_text(const char *text, size_t n) {
    static int terminal = -1;
    if (terminal < 0)
        terminal = isatty(STDOUT_FILENO);
    if (!terminal) {
        fwrite(text, 1, n, stdout);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        unsigned char next = i + 1 < n ? (unsigned char)text[i + 1] : 0;
        bool c1 = c == 0xc2 && next >= 0x80 && next <= 0x9f; /* U+0080 to U+009F */
        if (c1) {
            printf("\\u%04x", next);
            i++;
        } else if ((c < ' ' && c != '\n' && c != '\t') || c == 0x7f) {
            printf("^%c", c ^ 0x40);
        } else {
            putchar(c);
        }
    }
}

json_t *cli_json_text(const char *s, size_t n) {
    json_t *text = json_stringn(s, n);
    if (text != NULL)
        return text;
    char escaped[1024];
    return json_string(gguf_escape((struct gguf_str){s, n}, escaped, sizeof escaped));
}

FILE *cli_beside(const char *path) {
    return file_own_output(path) == STDOUT_FILENO ? stderr : stdout;
}

int cli_print_json(json_t *value) {
    bool ok = value != NULL &&
              json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0 &&
              putchar('\n') != EOF;
    json_decref(value);
    if (value == NULL)
        return cli_fail(ST_NO_MEMORY, "not enough memory for the JSON output");
    int status = ok ? cli_flush() : cli_fail(ST_IO, "cannot write the JSON output");
    return status == CLI_GO_ON ? 0 : status;
}

const char *cli_bytes(uint64_t size_bytes, char buf[32]) {
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB"};
    double v = (double)size_bytes;
    size_t u = 0;
    while (v >= 999.5 && u + 1 < ARRAY_LEN(units)) {
        v /= 1000;
        u++;
    }
    int digits = u == 0 || v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2;
    snprintf(buf, 32, "%.*f %s", digits, v, units[u]);
    return buf;
}
