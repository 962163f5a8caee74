/* style.c: Styles of a terminal's text, its size, and the width of characters. */
#include "cli/style.h"

#include "base/program.h"
#include "base/utf8.h"
#include "base/util.h"
#include "cli/cli.h"

#include <langinfo.h>
#include <locale.h>
#include <sys/ioctl.h>
#include <utf8proc.h>

bool style_on(int fd) {
    const char *force = env_get("CLICOLOR_FORCE");
    if (env_get("NO_COLOR") != NULL)
        return false;
    return (force != NULL && !str_eq(force, "0")) || cli_has_escapes(fd);
}

const char *style_text(int fd, enum style s) {
    static const char *const begin[] = {
        [STYLE_NONE] = "\033[0m",  [STYLE_BOLD] = "\033[1m",  [STYLE_DIM] = "\033[2m",
        [STYLE_GOOD] = "\033[32m", [STYLE_WARN] = "\033[33m", [STYLE_BAD] = "\033[31m",
        [STYLE_NAME] = "\033[36m"};
    return style_on(fd) ? begin[s] : "";
}

void style_window(int fd, int *columns, int *lines) {
    struct winsize w = {.ws_col = 0};
    bool known = ioctl(fd, TIOCGWINSZ, &w) == 0;
    *columns = known && w.ws_col > 0 ? w.ws_col : 80;
    *lines = known && w.ws_row > 0 ? w.ws_row : 24;
}

int style_width(unsigned code_point) {
    return utf8proc_charwidth((utf8proc_int32_t)code_point);
}

size_t style_text_width(const char *text, size_t n) {
    size_t width = 0;
    for (size_t i = 0; i < n;) {
        const uint8_t *at = (const uint8_t *)text + i;
        int len = utf8_check(at, n - i);
        width += len > 0 ? (size_t)style_width(utf8_decode(at, len)) : 1;
        i += (size_t)MAX(len, 1);
    }
    return width;
}

void style_use_utf8(void) {
    static const char *const names[] = {"", "C.UTF-8", "UTF-8", "en_US.UTF-8"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (setlocale(LC_CTYPE, names[i]) != NULL && str_eq(nl_langinfo(CODESET), "UTF-8"))
            return;
}
