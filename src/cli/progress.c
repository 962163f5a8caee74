/* progress.c: prints the progress of commands that write a large file. */
#include "cli/progress.h"

#include "base/clock.h"
#include "cli/cli.h"

#include <stdio.h>
#include <unistd.h>

#define REDRAW_NS 100000000u
#define MARK_NS 5000000000u
#define PLAIN_NS 10000000000u

static void nothing(void *arg) {
    (void)arg;
}

/* ", 12.3 MB/s, 4 min left", by what came since the mark before the last one; "" at first. */
static const char *rate(struct cli_progress *p, uint64_t now, uint64_t done, uint64_t total,
                        char *out, size_t size) {
    char amount[32];
    if (p->mark[1].ns == 0 || now - p->mark[1].ns >= MARK_NS) {
        p->mark[0] = p->mark[1].ns != 0 ? p->mark[1] : (struct cli_mark){now, done};
        p->mark[1] = (struct cli_mark){now, done};
    }
    double s = (double)(now - p->mark[0].ns) * 1e-9;
    *out = '\0';
    if (s < 1 || done <= p->mark[0].bytes || total < done)
        return out;
    double a_second = (double)(done - p->mark[0].bytes) / s;
    double left = (double)(total - done) / a_second;
    snprintf(out, size, ", %s/s, %.0f %s left", cli_bytes((uint64_t)a_second, amount),
             left < 100    ? left
             : left < 6000 ? left / 60
                           : left / 3600,
             left < 100    ? "s"
             : left < 6000 ? "min"
                           : "h");
    return out;
}

/* "qwen:  32 %  1.2 GB of 4.1 GB, 110 MB/s, 27 s left" */
static void say(struct cli_progress *p, uint64_t now, uint64_t done, uint64_t total) {
    char a[32], b[32], c[80];
    p->last_ns = now;
    fprintf(stderr, "%s%s: %3.0f %%  %s of %s%s%s", p->draws ? "\r" : "", p->verb,
            100.0 * (double)done / (double)total, cli_bytes(done, a), cli_bytes(total, b),
            rate(p, now, done, total, c, sizeof c), p->draws ? " \x1b[K" : "\n");
}

static bool draw(void *arg, uint64_t done, uint64_t total) {
    struct cli_progress *p = arg;
    uint64_t now = clock_ns();
    if (total > 0 && now - p->last_ns >= (p->draws ? REDRAW_NS : PLAIN_NS))
        say(p, now, done, total);
    return !cli_interrupted();
}

void cli_progress_begin(struct cli_progress *p, const char *verb) {
    *p = (struct cli_progress){.verb = verb,
                               .begin_ns = clock_ns(),
                               .last_ns = cli_has_escapes(STDERR_FILENO) ? 0 : clock_ns(),
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
