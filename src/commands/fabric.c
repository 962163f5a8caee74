/* fabric.c: lockstep fabric bench: measures the links. lockstep fabric doctor: checks what they
 * need. */
#include "cli/cli.h"
#include "cli/session.h"

#include "base/file.h"
#include "base/util.h"
#include "base/words.h"
#include "fabric/meter.h"
#include "link/doctor.h"
#include "link/links.h"

#include <math.h>
#include <stdio.h>

/* ---- bench --------------------------------------------------------------------------------- */

static void print_rows(const struct meter_row *rows, size_t n) {
    printf("%-10s %-9s %9s %11s %11s %11s %7s %11s\n", "link", "op", "bytes", "median us",
           "p99 us", "raw us", "x raw", "raw both us");
    for (size_t i = 0; i < n; i++) {
        const struct meter_row *r = &rows[i];
        printf("%-10s %-9s %9zu %11.2f %11.2f ", r->link, r->op, r->bytes, r->median_us,
               r->p99_us);
        if (r->raw_median_us > 0)
            printf("%11.2f %7.2f %11.2f\n", r->raw_median_us, r->median_us / r->raw_median_us,
                   r->raw_exchange_us);
        else
            printf("%11s %7s %11s\n", "-", "-", "-");
    }
}

static json_t *rows_to_json(const struct meter_row *rows, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const struct meter_row *r = &rows[i];
        json_t *row =
            json_pack("{s:s, s:s, s:I, s:f, s:f}", "link", r->link, "op", r->op, "bytes",
                      (json_int_t)r->bytes, "median_us", r->median_us, "p99_us", r->p99_us);
        json_object_set_new(row, "raw_median_us",
                            r->raw_median_us > 0 ? json_real(r->raw_median_us) : json_null());
        json_object_set_new(row, "raw_exchange_us",
                            r->raw_exchange_us > 0 ? json_real(r->raw_exchange_us)
                                                   : json_null());
        json_array_append_new(list, row);
    }
    return list;
}

/* A log-log plot: one line per (link, op), the raw loop of each link dashed. */
#define PLOT_W 720.0
#define PLOT_H 440.0
#define PLOT_LEFT 70.0
#define PLOT_BOTTOM 50.0

static double plot_x(double bytes) {
    return PLOT_LEFT + (PLOT_W - PLOT_LEFT - 160) * log2(bytes / 8) / 17; /* 8 B to 1 MiB */
}

static double plot_y(double us) {
    double decades = log10(MIN(MAX(us, 0.05), 5000.0) / 0.05); /* 0.05 us to 5 ms: 5 decades */
    return PLOT_H - PLOT_BOTTOM - (PLOT_H - PLOT_BOTTOM - 30) * decades / 5;
}

static void plot_axes(FILE *out) {
    static const char *const sizes[] = {"8 B", "64 B", "512 B", "4 KiB", "32 KiB", "256 KiB"};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        double x = plot_x(8 * pow(8, (double)i));
        fprintf(out,
                "<path d='M%.0f 30V%.0f' stroke='#ddd'/><text x='%.0f' y='%.0f' "
                "text-anchor='middle'>%s</text>\n",
                x, PLOT_H - PLOT_BOTTOM, x, PLOT_H - PLOT_BOTTOM + 18, sizes[i]);
    }
    for (double us = 0.1; us < 5000; us *= 10)
        fprintf(out,
                "<path d='M%.0f %.0fH%.0f' stroke='#ddd'/><text x='%.0f' y='%.0f' "
                "text-anchor='end'>%g us</text>\n",
                PLOT_LEFT, plot_y(us), PLOT_W - 160, PLOT_LEFT - 6, plot_y(us) + 4, us);
}

static void plot_line(FILE *out, const struct meter_row *rows, size_t n, bool raw, int line) {
    static const char *const colours[] = {"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728",
                                          "#9467bd", "#8c564b", "#e377c2", "#17becf"};
    const char *colour = colours[(size_t)line % ARRAY_LEN(colours)];
    fprintf(out, "<polyline fill='none' stroke='%s' stroke-width='2'%s points='", colour,
            raw ? " stroke-dasharray='5 4'" : "");
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%.1f,%.1f ", plot_x((double)rows[i].bytes),
                plot_y(raw ? rows[i].raw_median_us : rows[i].median_us));
    fprintf(out, "'/><text x='%.0f' y='%d' fill='%s'>%s %s</text>\n", PLOT_W - 150,
            45 + 18 * line, colour, rows[0].link, raw ? "raw" : rows[0].op);
}

static size_t run_length(const struct meter_row *rows, size_t n) {
    size_t k = 1;
    while (k < n && rows[k].link == rows[0].link && rows[k].op == rows[0].op)
        k++;
    return k;
}

static enum status write_plot(const char *path, const struct meter_row *rows, size_t n,
                              struct err *err) {
    struct file_new file;
    TRY(file_new_open(&file, path, err));
    FILE *out = file.f;
    fprintf(out,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' "
            "font-family='sans-serif' font-size='12'>\n<rect width='100%%' height='100%%' "
            "fill='white'/><text x='%.0f' y='18'>median time by size</text>\n",
            PLOT_W, PLOT_H, PLOT_LEFT);
    plot_axes(out);
    int line = 0;
    for (size_t i = 0, k; i < n; i += k) {
        k = run_length(rows + i, n - i);
        if (str_eq(rows[i].op, "pingpong") && rows[i].raw_median_us > 0)
            plot_line(out, rows + i, k, true, line++);
        plot_line(out, rows + i, k, false, line++);
    }
    fprintf(out, "</svg>\n");
    return file_new_finish(&file, false, err);
}

static enum status find_link(const char *name, size_t n, enum fabric_link *id,
                             struct err *err) {
    char known[128] = "";
    for (const struct link_ops *const *ops = link_table; *ops != NULL; ops++) {
        if (strlen((*ops)->name) == n && strncmp((*ops)->name, name, n) == 0) {
            *id = (*ops)->id;
            return ST_OK;
        }
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "", (*ops)->name);
    }
    return err_set(err, ST_BAD_INPUT, "no link is called \"%.*s\": expected %s", (int)n, name,
                   known);
}

static enum status bench_links(const char *links, struct meter_config *cfg,
                               struct meter_row *rows, size_t max, size_t *n, struct err *err) {
    size_t len, k;
    for (const char *at, *rest = links; (at = words_next(&rest, &len)) != NULL;) {
        if (*n + METER_MAX_ROWS > max)
            return err_set(err, ST_BAD_INPUT, "too many links in \"%s\"", links);
        TRY(find_link(at, len, &cfg->link, err));
        enum status st = meter_run(cfg, rows + *n, &k, err);
        if (st != ST_OK)
            return err_prefix(err, st, "%.*s: ", (int)len, at);
        *n += k;
    }
    return ST_OK;
}

static int fabric_bench(int argc, char **argv) {
    static struct meter_row rows[8 * METER_MAX_ROWS];
    struct meter_config cfg = {.n_ranks = 2, .n_rounds = 10, .max_bytes = (size_t)1 << 20};
    const char *links = "shm,tcp", *svg = NULL;
    bool json = false;
    const struct cli_option table[] = {
        CLI_TEXT(0, "links", "LIST", &links,
                 "links to measure: shm, tcp, verbs, ucx (default shm,tcp)"),
        CLI_INT(0, "ranks", "N", &cfg.n_ranks, 2, FABRIC_MAX_RANKS,
                "ranks on this host (default 2)"),
        CLI_INT(0, "rounds", "N", &cfg.n_rounds, 1, 1000,
                "interleaved rounds over all sizes (default 10)"),
        CLI_TEXT(0, "emulate-link", "SPEC", &cfg.emulate,
                 "slows every link down: latency=300us,bandwidth=10Gbit"),
        CLI_FLAG(0, "json", &json, "an array of objects instead of the table"),
        CLI_TEXT(0, "svg", "FILE", &svg, "also draw the medians"),
        CLI_END};
    const struct cli_command cmd = {
        "fabric bench", "measures ping-pong and exact sum over each link, by size",
        "bytes are those on the wire: a sum of 8192 bytes has 2048 elements. raw is one way over\n"
        "the bare medium in the same run. raw both means that both sides send and then both\n"
        "receive, which is what a sum of two ranks does.",
        table};
    int status = cli_parse(&cmd, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    struct err err;
    size_t n = 0;
    status = session_check_output(svg);
    if (status != CLI_GO_ON)
        return status;
    enum status st = bench_links(links, &cfg, rows, ARRAY_LEN(rows), &n, &err);
    if (st == ST_OK && svg != NULL)
        st = write_plot(svg, rows, n, &err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    if (json)
        return cli_print_json(rows_to_json(rows, n));
    print_rows(rows, n);
    status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}

/* ---- doctor -------------------------------------------------------------------------------- */

static const char *const finding_names[] = {
    [FINDING_FACT] = "-", [FINDING_GOOD] = "ok", [FINDING_BAD] = "BAD"};

static int fabric_doctor(int argc, char **argv) {
    static struct finding findings[DOCTOR_MAX_FINDINGS];
    bool json = false;
    const struct cli_option table[] = {
        CLI_FLAG(0, "json", &json, "an array of objects instead of lines"), CLI_END};
    const struct cli_command cmd = {"fabric doctor", "checks what the links of this host need",
                                    NULL, table};
    int status = cli_parse(&cmd, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    int n = doctor_look(findings);
    json_t *list = json ? json_array() : NULL;
    for (int i = 0; i < n; i++) {
        const struct finding *f = &findings[i];
        if (json)
            json_array_append_new(list,
                                  json_pack("{s:b, s:s, s:s}", "ok", f->kind != FINDING_BAD,
                                            "what", f->what, "mend", f->mend));
        else
            printf("%-4s %s%s%s\n", finding_names[f->kind], f->what,
                   f->mend[0] ? "\n     mend: " : "", f->mend);
    }
    if (json)
        return cli_print_json(list);
    status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}

/* ---- which one ----------------------------------------------------------------------------- */

int cmd_fabric(int argc, char **argv) {
    const char *what = NULL;
    const struct cli_option table[] = {
        {.kind = CLI_KIND_ARG,
         .name = "WHAT",
         .out = &what,
         .choices = "bench|doctor",
         .help = "bench: measures the links; doctor: checks what they need\n"
                 "(fabric bench --help, fabric doctor --help)"},
        CLI_END};
    const struct cli_command cmd = {"fabric", "measures the links between ranks", NULL, table};
    if (argc >= 2 && str_eq(argv[1], "bench"))
        return fabric_bench(argc - 1, argv + 1);
    if (argc >= 2 && str_eq(argv[1], "doctor"))
        return fabric_doctor(argc - 1, argv + 1);
    int status = cli_parse(&cmd, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    return cli_fail(ST_BAD_INPUT, "\"%s\" is not \"bench\" or \"doctor\"", what);
}
