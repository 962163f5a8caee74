/* gateway_wait.c: tells a client whose answer waits for another server why, in comments of its
 * stream of events, which clients that do not know them leave out:
 *
 *     : lockstep {"lost": "rack", "next": null, "sentence": ..}
 *     : lockstep {"lost": "rack", "next": "shelf", "sentence": ..}
 *
 * A model that somebody moves is told in the same form, with another sentence. */
#include "gateway/gateway_internal.h"

#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>

static void print_sentence(const struct passing *p, char *out, size_t size) {
    bool known = p->next[0] != '\0';
    if (str_eq(p->lost, p->next))
        snprintf(out, size, "%s begins again, and the answer goes on", p->lost);
    else if (p->moves)
        snprintf(out, size, "the model moves from %s%s%s, and the answer goes on", p->lost,
                 known ? " to " : "", p->next);
    else
        snprintf(out, size, "%s is lost; %s takes over, and the answer goes on", p->lost,
                 known ? p->next : "another node");
}

static void say(struct passing *p) {
    char sentence[256];
    bool known = p->next[0] != '\0';
    print_sentence(p, sentence, sizeof sentence);
    json_t *news = json_pack("{s:s, s:o, s:s}", "lost", p->lost, "next",
                             known ? json_string(p->next) : json_null(), "sentence", sentence);
    char *text = news != NULL ? json_dumps(news, JSON_COMPACT) : NULL;
    struct buf comment = {0};
    if (text != NULL && buf_printf(&comment, ": lockstep %s\n\n", text))
        (void)http_stream_write(p->r, comment.bytes, comment.len);
    buf_free(&comment);
    free(text);
    json_decref(news);
}

static bool is_move(struct passing *p) {
    pthread_mutex_lock(&p->f->lock);
    bool moves = p->route->moves;
    pthread_mutex_unlock(&p->f->lock);
    return moves;
}

static void copy_coming(struct passing *p, char out[64]) {
    pthread_mutex_lock(&p->f->lock);
    memcpy(out, p->route->coming, 64);
    pthread_mutex_unlock(&p->f->lock);
}

void wait_end(struct passing *p) {
    if (p->lost[0] == '\0' || str_eq(p->served_by, p->lost) || str_eq(p->served_by, p->next))
        return;
    memcpy(p->next, p->served_by, sizeof p->next);
    say(p);
}

void wait_note_lost(struct passing *p) {
    if (!p->begun || !p->events || p->served_by[0] == '\0')
        return;
    if (str_eq(p->lost, p->served_by)) { /* it has been told, and the tries go on */
        wait_look(p);
        return;
    }
    memcpy(p->lost, p->served_by, sizeof p->lost);
    p->moves = is_move(p);
    copy_coming(p, p->next);
    say(p);
}

void wait_look(struct passing *p) {
    char next[64];
    if (p->lost[0] == '\0')
        return;
    copy_coming(p, next);
    if (next[0] == '\0' || str_eq(next, p->next))
        return;
    memcpy(p->next, next, sizeof p->next);
    say(p);
}
