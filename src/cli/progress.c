/* progress.c: prints the progress line of commands that write a large file. */
#include "cli/progress.h"

#include "base/clock.h"
#include "cli/cli.h"

#include <stdio.h>
#include <unistd.h>

#define REDRAW_NS 100000000u

static void nothing(void *arg) {
    (void)arg;
}

static bool draw(void *arg, uint64_t done, uint64_t total) {
    struct cli_progress *p = arg;
    uint64_t now = clock_ns();
    if (p->draws && now - p->last_ns >= REDRAW_NS) {
        char a[32], b[32];
        p->last_ns = now;
        fprintf(stderr, "\r%s: %3.0f %%  %s of %s \x1b[K", p->verb,
                total ? 100.0 * (double)done / (double)total : 100.0, cli_bytes(done, a),
                cli_bytes(total, b));
    }
    return !cli_interrupted();
}

void cli_progress_begin(struct cli_progress *p, const char *verb) {
    *p = (struct cli_progress){.verb = verb,
                               .begin_ns = clock_ns(),
                               .draws = cli_has_escapes(STDERR_FILENO),
                               .progress = {draw, p}};
    cli_on_interrupt(nothing, NULL);
}

double cli_progress_end(struct cli_progress *p) {
    cli_on_interrupt(NULL, NULL);
    if (p->draws)
        fprintf(stderr, "\r\x1b[K");
    return (double)(clock_ns() - p->begin_ns) * 1e-9;
}
