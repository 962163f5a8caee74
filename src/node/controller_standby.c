/* controller_standby.c: whether this node could take over from the serving node, and if not,
 * why not. Users learn this before they need it. The digest of the whole model
 * (base/content.h) shows that the copy has the same bytes as the served one. A thread of its
 * own reads it. The controller's thread calls these functions. */
#include "node/controller_internal.h"

#include "base/mem.h"
#include "base/sentence.h"
#include "base/thread.h"
#include "base/util.h"
#include "cluster/store.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

/* ---- the digest of its copy -------------------------------------------------------------- */

struct reading {
    pthread_t thread;
    const struct replica_run *run; /* its model and path do not change meanwhile */
    atomic_bool unwanted, done;    /* release when set, acquire when read */
    uint8_t content[CONTENT_BYTES];
    enum status st;
};

static bool is_reading_wanted(void *user, uint64_t bytes) {
    struct reading *d = user;
    (void)bytes;
    return !atomic_load_explicit(&d->unwanted, memory_order_acquire);
}

static enum status read_files(struct reading *d) {
    const struct content_progress progress = {is_reading_wanted, d, .gently = true};
    const struct model_files *files = &d->run->wanted->model;
    struct content all;
    uint8_t file[CONTENT_BYTES];
    char path[PATH_MAX];
    struct err ignored;
    content_begin(&all);
    for (size_t i = 0; i < files->n; i++) {
        if (!model_files_place(files, i, d->run->path, path, sizeof path))
            return ST_BAD_INPUT;
        TRY(content_read(file, path, &progress, &ignored));
        content_add(&all, file);
    }
    content_end(&all, d->content);
    return ST_OK;
}

static void *reading_main(void *user) {
    struct reading *d = user;
    d->st = read_files(d);
    atomic_store_explicit(&d->done, true, memory_order_release);
    return NULL;
}

static void end_reading(struct replica_run *r) {
    struct reading *d = r->reading;
    pthread_join(d->thread, NULL);
    if (d->st == ST_OK)
        sodium_bin2hex(r->content, sizeof r->content, d->content, CONTENT_BYTES);
    mem_free(d);
    r->reading = NULL;
}

void controller_stop_reading(struct replica_run *r) {
    if (r->reading != NULL) {
        atomic_store_explicit(&r->reading->unwanted, true, memory_order_release);
        end_reading(r);
    }
    r->content[0] = '\0';
}

void controller_read_content(struct replica_run *r, double now) {
    if (r->reading != NULL) {
        if (atomic_load_explicit(&r->reading->done, memory_order_acquire))
            end_reading(r);
        return;
    }
    /* Not while the model is being loaded somewhere. Not soon after another process was found
     * to read the same file, or after the file could not be read. */
    if (r->content[0] != '\0' || r->path[0] == '\0' || *r->target == '\0' || now < r->read_s)
        return;
    r->read_s = now + CONTROLLER_READ_S;
    struct reading *d = mem_calloc(1, sizeof *d);
    if (d == NULL)
        return;
    d->run = r;
    if (thread_start(&d->thread, reading_main, d) == 0)
        r->reading = d;
    else
        mem_free(d);
}

void controller_compare_content(struct replica_run *r, const char *node, const char *content) {
    if (*content == '\0')
        return;
    snprintf(r->served_content, sizeof r->served_content, "%s", content);
    snprintf(r->served_by, sizeof r->served_by, "%s", node);
}

bool controller_differs(const struct replica_run *r) {
    return r->content[0] != '\0' && r->served_content[0] != '\0' &&
           !str_eq(r->content, r->served_content);
}

/* ---- why not ----------------------------------------------------------------------------- */

static void set_lack(struct replica_run *r, enum controller_lack lack, const char *sentence) {
    r->lack = lack;
    snprintf(r->lack_why, sizeof r->lack_why, "%s", sentence);
}

void controller_note_missing(const struct controller *k, struct replica_run *r) {
    char path[PATH_MAX], text[sizeof r->lack_why];
    if (store_find_other(k->models, &r->wanted->model, r->wanted->hint, path, sizeof path)) {
        snprintf(text, sizeof text, "%.300s is damaged, or another model", path);
        set_lack(r, LACK_DAMAGED, text);
    } else if (r->lack != LACK_DISK) { /* which a try to copy it has found */
        set_lack(r, LACK_MISSING, "it has no copy of the model");
    }
}

void controller_note_no_copy(struct replica_run *r, enum status st, const char *sentence) {
    char text[sizeof r->lack_why];
    if (st == ST_NO_MEMORY)
        snprintf(text, sizeof text, "there is no room on its disk: %.300s", sentence);
    else
        snprintf(text, sizeof text, "it cannot get a copy: %.300s", sentence);
    set_lack(r, st == ST_NO_MEMORY ? LACK_DISK : LACK_MISSING, text);
}

/* sentence: printf style. */
__attribute__((format(printf, 3, 4))) static bool
say(struct run_report *out, enum standby standby, const char *sentence, ...) {
    char text[600];
    va_list ap;
    va_start(ap, sentence);
    sentence_vprint(text, sizeof text, sentence, ap);
    va_end(ap);
    out->standby = standby;
    return report_set_text(&out->standby_sentence, text);
}

bool controller_say_standby(const struct replica_run *r, double now, struct run_report *out) {
    static const enum standby lacks[] = {
        [LACK_MISSING] = STANDBY_MISSING,
        [LACK_DAMAGED] = STANDBY_DAMAGED,
        [LACK_DISK] = STANDBY_DISK,
    };
    if (r->wanted == NULL || !r->named || r->replica.state != REPLICA_IDLE || r->asleep)
        return true; /* STANDBY_NONE: it serves, or never would */
    if (r->fetch != NULL)
        return say(out, STANDBY_COPYING, "its copy of the model is under way");
    if (r->path[0] == '\0')
        return say(out, lacks[r->lack], "%s", r->lack_why);
    if (controller_differs(r))
        return say(
            out, STANDBY_DIFFERENT,
            "%.300s differs from the model that %s serves: delete it to have it copied again",
            r->path, r->served_by);
    if (now < r->retry_s)
        return say(out, STANDBY_FAILED, "it failed there: %s", r->replica.last);
    if (r->memory_left < r->wanted->model.bytes)
        return say(out, STANDBY_MEMORY,
                   "there is not enough memory: the remaining machines have %.1f GB, the "
                   "model needs %.1f GB",
                   (double)r->memory_left * 1e-9, (double)r->wanted->model.bytes * 1e-9);
    return say(out, STANDBY_READY, "%s", "");
}
