/* top.c: lockstep top: what the cluster does, each second, on the whole terminal; or once. A thread
 * asks, so that keys are obeyed while a node is silent. */
#include "base/clock.h"
#include "base/program.h"
#include "base/thread.h"
#include "base/util.h"
#include "cli/ask_server.h"
#include "cli/cli.h"
#include "cluster/client.h"
#include "view/cluster_source.h"
#include "view/cluster_view.h"
#include "view/screen.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EACH_MS 1000
#define STEP_MS 50
#define HERE "127.0.0.1"

static const char *node_arg, *server_arg, *key_arg;
static bool json_arg, once_arg;

static const struct cli_option options[] = {
    CLI_TEXT(0, "node", "ADDRESS", &node_arg,
             "the node to ask (default: this machine's own; if none\n"
             "runs, the server at port 8080)"),
    CLI_TEXT(0, "server", "URL", &server_arg,
             "asks a server instead: lockstep serve, or the port of\n"
             "lockstep up"),
    CLI_TEXT(0, "api-key", "KEY", &key_arg, "the server's key (or $LOCKSTEP_API_KEY)"),
    CLI_FLAG(0, "once", &once_arg, "prints the overview once and ends"),
    CLI_FLAG(0, "json", &json_arg, "prints what the node says once, as JSON, and ends"),
    CLI_END};

static const struct cli_command command = {
    "top", "shows what the cluster does, each second",
    "Nodes with their memory by what it is used for, models with their speed, requests and cache,\n"
    "copies under way, and events.\n\n"
    "  Tab, left, right   overview, nodes, models, events (also 1 to 4)\n"
    "  up, down           scroll; so do PgUp, PgDn, Home and End\n"
    "  q, Ctrl-C          ends\n\n"
    "NO_COLOR turns colours off.",
    options};

/* ---- asking ------------------------------------------------------------------------------ */

struct watch {
    struct cluster_source *source;
    atomic_bool over;
    pthread_mutex_t lock; /* guards: */
    json_t *latest;       /* owned; NULL: nothing has come */
    double latest_s;      /* clock: when it came */
    char trouble[512];    /* why nothing newer comes; "" */
};

static bool go_on(void *user) {
    struct watch *w = user;
    return !atomic_load(&w->over);
}

static void ask_once(struct watch *w) {
    struct err err = {.text = ""};
    json_t *o = NULL;
    enum status st = cluster_source_get(w->source, &o, &err);
    pthread_mutex_lock(&w->lock);
    if (st == ST_OK) {
        json_decref(w->latest);
        w->latest = o;
        w->latest_s = clock_s();
    }
    snprintf(w->trouble, sizeof w->trouble, "%s", st == ST_OK ? "" : err.text);
    pthread_mutex_unlock(&w->lock);
    screen_wake();
}

static void *watch(void *arg) {
    struct watch *w = arg;
    while (!atomic_load(&w->over)) {
        double next = clock_s() + EACH_MS * 1e-3;
        ask_once(w);
        while (!atomic_load(&w->over) && clock_s() < next)
            poll(NULL, 0, STEP_MS);
    }
    return NULL;
}

/* ---- showing ----------------------------------------------------------------------------- */

struct shown {
    enum cluster_view view;
    size_t from; /* the first line of the body that is shown */
    struct canvas head, body, foot;
};

static void make_head(struct canvas *c, const struct watch *w, enum cluster_view view) {
    canvas_put(c, STYLE_BOLD, "lockstep top  ");
    if (w->latest != NULL)
        view_show_summary(c, w->latest);
    canvas_end_line(c);
    for (int v = 0; v < N_VIEWS; v++)
        canvas_put(c, v == (int)view ? STYLE_BOLD : STYLE_DIM,
                   v == (int)view ? "[%s] " : " %s  ", view_name((enum cluster_view)v));
    canvas_end_line(c);
    if (w->trouble[0] != '\0') {
        char age[16];
        if (w->latest != NULL)
            canvas_put(c, STYLE_BAD, "for %s: ", view_age(clock_s() - w->latest_s, age));
        canvas_put(c, STYLE_BAD, "%s", w->trouble);
    }
    canvas_end_line(c);
}

static void draw(struct shown *s, struct watch *w) {
    int columns, lines;
    bool styled = style_on(STDOUT_FILENO);
    style_window(STDOUT_FILENO, &columns, &lines);
    canvas_begin(&s->head, columns, styled);
    canvas_begin(&s->body, columns, styled);
    canvas_begin(&s->foot, columns, styled);
    pthread_mutex_lock(&w->lock);
    make_head(&s->head, w, s->view);
    if (w->latest != NULL)
        view_show(&s->body, w->latest, s->view);
    pthread_mutex_unlock(&w->lock);
    int room = MAX(lines - (int)s->head.n_lines - 1, 1);
    size_t last = s->body.n_lines > (size_t)room ? s->body.n_lines - (size_t)room : 0;
    s->from = MIN(s->from, last);
    canvas_put(&s->foot, STYLE_DIM, "q quits  Tab changes the view%s",
               last == 0      ? ""
               : s->from == 0 ? "  down scrolls"
                              : "  up and down scroll");
    canvas_end_line(&s->foot);
    screen_draw(&s->head, &s->body, s->from, &s->foot, lines);
}

static void scroll(struct shown *s, long lines) {
    if (lines < 0)
        s->from -= MIN((size_t)-lines, s->from);
    else
        s->from += (size_t)lines; /* draw() knows the end */
}

static void turn(struct shown *s, int view) {
    s->view = (enum cluster_view)((view + N_VIEWS) % N_VIEWS);
    s->from = 0;
}

/* False: it is to end. */
static bool obey(struct shown *s, enum screen_key key, char letter) {
    int columns, lines;
    style_window(STDOUT_FILENO, &columns, &lines);
    switch (key) {
    case SCREEN_KEY_QUIT:
    case SCREEN_KEY_INTERRUPT:
        return false;
    case SCREEN_KEY_UP:
        scroll(s, -1);
        break;
    case SCREEN_KEY_DOWN:
        scroll(s, 1);
        break;
    case SCREEN_KEY_PAGE_UP:
        scroll(s, -(lines - 5));
        break;
    case SCREEN_KEY_PAGE_DOWN:
        scroll(s, lines - 5);
        break;
    case SCREEN_KEY_HOME:
        s->from = 0;
        break;
    case SCREEN_KEY_END:
        s->from = INT32_MAX;
        break;
    case SCREEN_KEY_NEXT:
        turn(s, (int)s->view + 1);
        break;
    case SCREEN_KEY_BACK:
        turn(s, (int)s->view - 1);
        break;
    default:
        if (letter >= '1' && letter < '1' + N_VIEWS)
            turn(s, letter - '1');
    }
    return true;
}

static int show(struct watch *w) {
    struct shown s = {.view = VIEW_OVERVIEW};
    enum screen_key key = SCREEN_KEY_NONE;
    pthread_t thread;
    struct err err;
    char letter = 0;
    enum status st = screen_open(&err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    bool started = thread_start(&thread, watch, w) == 0;
    while (started && obey(&s, key, letter)) {
        draw(&s, w);
        key = screen_key(EACH_MS, &letter);
    }
    atomic_store(&w->over, true);
    screen_close();
    if (started)
        pthread_join(thread, NULL);
    canvas_free(&s.head);
    canvas_free(&s.body);
    canvas_free(&s.foot);
    if (!started)
        return cli_fail(ST_NO_MEMORY, "no thread to ask the cluster");
    return key == SCREEN_KEY_INTERRUPT ? 130 : 0;
}

/* ---- once -------------------------------------------------------------------------------- */

static void print_view(const json_t *o) {
    struct canvas c = {.columns = 0};
    int columns = 0, lines;
    if (isatty(STDOUT_FILENO))
        style_window(STDOUT_FILENO, &columns, &lines);
    canvas_begin(&c, columns, style_on(STDOUT_FILENO));
    view_show_summary(&c, o);
    canvas_end_line(&c);
    canvas_end_line(&c);
    view_show(&c, o, VIEW_OVERVIEW);
    fputs(buf_cstr(&c.text), stdout);
    canvas_free(&c);
}

static int print_once(struct cluster_source *source) {
    struct err err;
    json_t *o;
    enum status st = cluster_source_get(source, &o, &err);
    if (st == ST_TIMEOUT && node_arg == NULL && server_arg == NULL)
        return cli_fail(st,
                        "neither a node nor a server answers on this machine (lockstep node, "
                        "lockstep serve); --node and --server name others");
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    if (json_arg) /* times have more digits than cli_print_json() writes */
        json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    else
        print_view(o);
    json_decref(o);
    if (json_arg)
        putchar('\n');
    int status = cli_flush();
    return status == CLI_GO_ON ? 0 : status;
}

/* The node here, if one answers; otherwise a server at the default port. */
static void choose(struct cluster_source_config *cfg) {
    struct cluster_source *s;
    struct err err;
    json_t *o = NULL;
    cfg->node = node_arg == NULL && server_arg == NULL ? HERE : node_arg;
    cfg->server = server_arg;
    if (node_arg != NULL || server_arg != NULL)
        return;
    bool answers = false;
    if (cluster_source_open(&s, cfg, &err) == ST_OK) {
        enum status st = cluster_source_get(s, &o, &err);
        answers = st != ST_TIMEOUT;
        json_decref(o);
        cluster_source_close(s);
    }
    if (answers)
        return;
    cfg->node = NULL;
    cfg->server = HERE;
}

int cmd_top(int argc, char **argv) {
    struct watch w = {.source = NULL};
    struct cluster_source_config cfg = {.go_on = go_on, .user = &w};
    struct err err;
    int status = cli_parse(&command, argc, argv);
    if (status != CLI_GO_ON)
        return status;
    if (node_arg != NULL && server_arg != NULL)
        return cli_fail(ST_BAD_INPUT, "either --node or --server, not both");
    cfg.key = key_arg != NULL ? key_arg : env_get("LOCKSTEP_API_KEY");
    choose(&cfg);
    enum status st = cluster_source_open(&w.source, &cfg, &err);
    if (st != ST_OK)
        return cli_fail(st, "%s", err.text);
    pthread_mutex_init(&w.lock, NULL);
    status = once_arg || json_arg ? print_once(w.source) : show(&w);
    cluster_source_close(w.source);
    json_decref(w.latest);
    pthread_mutex_destroy(&w.lock);
    return status;
}
