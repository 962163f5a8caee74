/* replica.c: Starts, watches and ends the child process that serves a deployment. */
#include "node/replica.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sentence.h"
#include "base/util.h"
#include "cluster/client.h"
#include "ranks/launch.h"

#include <curl/curl.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* What stands before the reason for which the server ends, and is left out of what is shown. */
#define OWN_NAME "lockstep serve: "
#define ASK_MS 2000L

/* ---- its words --------------------------------------------------------------------------- */

/* A list of words that ends in NULL, all of them its own. */
struct words {
    char **list;
    size_t n;
    bool failed;
};

static void add(struct words *w, const char *word) {
    char **list = mem_realloc(w->list, (w->n + 2) * sizeof *list);
    if (list != NULL) {
        w->list = list;
        list[w->n] = mem_strdup(word);
        list[w->n + 1] = NULL;
    }
    if (list == NULL || list[w->n] == NULL)
        w->failed = true;
    else
        w->n++;
}

static void words_deinit(struct words *w) {
    for (size_t i = 0; i < w->n; i++)
        mem_free(w->list[i]);
    mem_free(w->list);
}

static enum status write_private(const char *path, const char *text, struct err *err) {
    struct file_new file;
    TRY(file_make_folders(path, 0700, err));
    TRY(file_new_open(&file, path, err));
    enum status st = ST_OK;
    if (fchmod(fileno(file.f), 0600) != 0 || fputs(text, file.f) < 0)
        st = err_set(err, ST_IO, "cannot write %s: %s", path, strerror(errno));
    if (st == ST_OK)
        st = file_new_finish(&file, false, err);
    file_new_drop(&file);
    return st;
}

/* False: too long. */
static bool file_path(char path[PATH_MAX], const char *folder,
                      const struct deployment_file *file) {
    return snprintf(path, PATH_MAX, "%s/%s", folder, file->option) < PATH_MAX;
}

/* Keys and certificates: files of this node, while it serves. */
static enum status add_files(struct words *w, const char *folder, const struct deployment *d,
                             struct err *err) {
    char path[PATH_MAX], word[32];
    for (size_t i = 0; i < d->n_files; i++) {
        if (!file_path(path, folder, &d->files[i]))
            return err_set(err, ST_BAD_INPUT, "%s: too long a path", folder);
        TRY(write_private(path, d->files[i].text, err));
        snprintf(word, sizeof word, "--%s", d->files[i].option);
        add(w, word);
        add(w, path);
    }
    return ST_OK;
}

static void remove_files(const char *folder, const struct deployment *d) {
    char path[PATH_MAX];
    for (size_t i = 0; i < d->n_files; i++) {
        if (file_path(path, folder, &d->files[i]))
            unlink(path);
    }
    rmdir(folder);
}

/* Where another layout is chosen its words do not count: how many they take; 0: it is none. */
static size_t layout_words(const struct deployment *d, size_t i) {
    static const char *const options[] = {"--parallel", "--split"};
    for (size_t o = 0; o < ARRAY_LEN(options); o++) {
        size_t n = strlen(options[o]);
        if (str_starts(d->args[i], options[o]) && d->args[i][n] == '=')
            return 1;
        if (str_eq(d->args[i], options[o]))
            return i + 1 < d->n_args ? 2 : 1;
    }
    return 0;
}

static void add_args(struct words *w, const struct deployment *d,
                     const struct replica_place *place) {
    for (size_t i = 0; i < d->n_args; i++) {
        size_t n = place->parallel != NULL ? layout_words(d, i) : 0;
        if (n == 0)
            add(w, d->args[i]);
        else
            i += n - 1;
    }
    if (place->parallel != NULL) {
        add(w, "--parallel");
        add(w, place->parallel);
    }
}

static enum status gather(struct words *w, const char *folder, const struct deployment *d,
                          const struct replica_place *place, struct err *err) {
    static const char *const ours[] = {
        "--failover", "--until-eof", "--until-lost", "--host", "*", "--port", "0"};
    char number[16];
    add(w, "serve");
    add(w, place->path);
    add_args(w, d, place);
    TRY(add_files(w, folder, d, err));
    if (place->nodes != NULL) {
        add(w, "--nodes");
        add(w, place->nodes);
    }
    for (size_t i = 0; i < ARRAY_LEN(ours); i++)
        add(w, ours[i]);
    snprintf(number, sizeof number, "%d", LAUNCH_READY_FD);
    add(w, "--ready-fd");
    add(w, number);
    return w->failed ? err_set(err, ST_NO_MEMORY, "no memory to serve a model") : ST_OK;
}

/* ---- its life ---------------------------------------------------------------------------- */

enum status replica_start(struct replica *t, const struct deployment *deployment,
                          const struct replica_place *place, struct err *err) {
    struct words w = {.list = NULL};
    char folder[PATH_MAX];
    if (snprintf(folder, sizeof folder, "%s/files/%s", place->state, deployment->name) >=
        (int)sizeof folder)
        return err_set(err, ST_BAD_INPUT, "%s: too long a path", place->state);
    char *own = mem_strdup(folder);
    struct deployment *copy = deployment_copy(deployment);
    enum status st = own != NULL && copy != NULL
                         ? gather(&w, folder, deployment, place, err)
                         : err_set(err, ST_NO_MEMORY, "no memory to serve a model");
    if (st == ST_OK)
        st = launch_command(&t->pid, &t->fd, &t->ready_fd, place->program, w.list, err);
    words_deinit(&w);
    if (st != ST_OK) {
        remove_files(folder, deployment);
        mem_free(own);
        deployment_free(copy);
        return st;
    }
    t->folder = own;
    t->deployment = copy;
    t->state = REPLICA_STARTING;
    t->begin_s = clock_s();
    t->port = 0;
    t->n_line = 0;
    t->n_ready = 0;
    t->last[0] = '\0';
    return ST_OK;
}

static void close_ready(struct replica *t) {
    if (t->ready_fd >= 0)
        close(t->ready_fd);
    t->ready_fd = -1;
}

/* The line of --ready-fd (cli/ready.h) is there. One that is not understood is of another
 * program: it ends, as one that failed. */
static void hear_ready(struct replica *t, const char *name) {
    json_t *line = json_loadb(t->ready, t->n_ready, 0, NULL);
    json_int_t port = json_integer_value(json_object_get(line, "port"));
    json_decref(line);
    close_ready(t);
    if (port < 1 || port > 65535) {
        log_error("%s: its server does not say which port it listens on", name);
        kill(t->pid, SIGKILL);
    } else if (t->state == REPLICA_STARTING) {
        t->state = REPLICA_LISTENING;
        t->load_s = clock_s() - t->begin_s;
        t->port = (int)port;
    }
}

/* Whether it listens: never waits. */
static void look_for_ready(struct replica *t, const char *name) {
    ssize_t n = 0;
    while (t->ready_fd >= 0 && t->n_ready < sizeof t->ready &&
           (n = read(t->ready_fd, t->ready + t->n_ready, sizeof t->ready - t->n_ready)) > 0)
        t->n_ready += (size_t)n;
    bool whole = t->n_ready > 0 && t->ready[t->n_ready - 1] == '\n';
    if (t->ready_fd >= 0 && (whole || t->n_ready == sizeof t->ready))
        hear_ready(t, name);
    else if (t->ready_fd >= 0 && n == 0) /* it ends without having listened */
        close_ready(t);
}

static void hear_line(struct replica *t, const char *name) {
    t->line[t->n_line] = '\0';
    t->n_line = 0;
    if (t->line[0] == '\0')
        return;
    log_info("%s: %s", name, t->line);
    const char *sentence = str_starts(t->line, OWN_NAME) ? t->line + strlen(OWN_NAME) : t->line;
    sentence_print(t->last, sizeof t->last, "%s", sentence);
}

static void hear(struct replica *t, const char *name) {
    char bytes[1024];
    ssize_t n;
    while ((n = recv(t->fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        for (ssize_t i = 0; i < n; i++) {
            if (bytes[i] == '\n')
                hear_line(t, name);
            else if (t->n_line < sizeof t->line - 1) /* else the rest is left out */
                t->line[t->n_line++] = bytes[i];
        }
}

bool replica_look(struct replica *t, const char *name) {
    int status;
    if (t->state == REPLICA_IDLE)
        return false;
    hear(t, name);
    look_for_ready(t, name);
    if (t->state == REPLICA_STOPPING && clock_s() - t->stop_s >= REPLICA_FINISH_S)
        kill(t->pid, SIGKILL);
    if (waitpid(t->pid, &status, WNOHANG) != t->pid)
        return false;
    hear(t, name);
    if (t->n_line > 0)
        hear_line(t, name);
    if (WIFSIGNALED(status) && t->state != REPLICA_STOPPING)
        sentence_print(t->last, sizeof t->last, "lockstep serve was killed by signal %d (%s)",
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
    close(t->fd);
    close_ready(t);
    t->state = REPLICA_IDLE;
    t->pid = 0;
    t->port = 0;
    remove_files(t->folder, t->deployment);
    mem_free(t->folder);
    deployment_free(t->deployment);
    t->folder = NULL;
    t->deployment = NULL;
    return true;
}

static size_t take(char *bytes, size_t size, size_t n, void *user) {
    return buf_add(user, bytes, size * n) ? n : 0;
}

/* The first of its keys, as a header; NULL: everybody may ask, or no memory. */
static struct curl_slist *show_key(const struct deployment *d) {
    char line[1024];
    const char *keys = deployment_file(d, "api-key-file");
    if (keys == NULL)
        return NULL;
    snprintf(line, sizeof line, "Authorization: Bearer %.*s", (int)strcspn(keys, "\n"), keys);
    struct curl_slist *headers = curl_slist_append(NULL, line);
    sodium_memzero(line, sizeof line);
    return headers;
}

json_t *replica_ask(const struct replica *t) {
    char url[64];
    struct buf text = {0};
    CURL *h = client_curl();
    if (h == NULL)
        return NULL;
    struct curl_slist *headers = show_key(t->deployment);
    snprintf(url, sizeof url, "http%s://127.0.0.1:%d/v1/cluster", t->deployment->tls ? "s" : "",
             t->port);
    bool good = curl_easy_setopt(h, CURLOPT_URL, url) == CURLE_OK &&
                curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, ASK_MS) == CURLE_OK &&
                curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers) == CURLE_OK &&
                curl_easy_setopt(h, CURLOPT_SSL_VERIFYPEER, 0L) == CURLE_OK &&
                curl_easy_setopt(h, CURLOPT_SSL_VERIFYHOST, 0L) == CURLE_OK &&
                curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, take) == CURLE_OK &&
                curl_easy_setopt(h, CURLOPT_WRITEDATA, &text) == CURLE_OK &&
                curl_easy_perform(h) == CURLE_OK;
    curl_easy_cleanup(h);
    curl_slist_free_all(headers);
    json_t *said = good ? json_loads(buf_cstr(&text), 0, NULL) : NULL;
    buf_free(&text);
    return said;
}

void replica_stop(struct replica *t) {
    if (t->state == REPLICA_IDLE || t->state == REPLICA_STOPPING)
        return;
    t->state = REPLICA_STOPPING;
    t->stop_s = clock_s();
    shutdown(t->fd, SHUT_WR);
}

void replica_kill(struct replica *t) {
    if (t->state == REPLICA_IDLE)
        return;
    replica_stop(t);
    kill(t->pid, SIGKILL);
}
