/* talk.h: a conversation: its messages, how answers are sampled, and who gives them: the model of
 * this process, or a server (ask_server.h). It is kept in files as JSON. */
#ifndef LOCKSTEP_VIEW_TALK_H
#define LOCKSTEP_VIEW_TALK_H

#include "base/buf.h"
#include "base/status.h"
#include "lockstep/lockstep.h"
#include "view/writer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* What /set may change. */
struct talk_settings {
    struct lockstep_sampling *sampling; /* borrowed */
    int *n_predict;                     /* borrowed; -1: to the end of the context */
    json_t *more; /* an object: what only servers know, by their names; owned by the talk */
};

struct talk_answer {
    struct buf text;     /* as it goes back to the model with the next message */
    struct buf thoughts; /* where they are not in the text */
    size_t n_prompt, n_generated;
    double first_s, rest_s; /* to the first token; from there to the last */
    bool full;              /* the context is */
    char told[256];         /* what happened to the servers meanwhile; "" */
};

struct talk;

/* Who answers. */
struct talker {
    const char *model; /* its name, for files */
    bool is_server;
    /* Answers t->messages and writes it. Stops, with ST_OK and what there is, when
     * cli_interrupted(). */
    enum status (*answer)(struct talker *self, const struct talk *t, struct writer *w,
                          struct talk_answer *out, struct err *err);
    void (*forget)(struct talker *self); /* the conversation; NULL: there is nothing to do */
    void *user;
};

struct talk {
    struct talker *talker;
    json_t *messages; /* OpenAI's: role, content and perhaps reasoning_content */
    struct talk_settings settings;
};

/* ST_NO_MEMORY */
enum status talk_begin(struct talk *t, struct talker *talker, struct lockstep_sampling *s,
                       int *n_predict, struct err *err);
void talk_end(struct talk *t);

/* Forgets all messages. system: what the new conversation begins with, NULL or "": nothing. */
enum status talk_reset(struct talk *t, const char *system, struct err *err);
/* ST_BAD_INPUT: it is not UTF-8. */
enum status talk_add(struct talk *t, const char *role, const char *text, size_t n,
                     struct err *err);
enum status talk_add_answer(struct talk *t, const struct talk_answer *a, struct err *err);
void talk_drop_last(struct talk *t);
/* Drops the last answer, so that its question is the last message. False: there is none. */
bool talk_reopen(struct talk *t);

/* NAME as the options call it (temp, top-k...); for servers their other samplers, too. */
enum status talk_set(struct talk *t, const char *name, const char *value, struct err *err);
/* The settings as lines. */
void talk_print_settings(const struct talk *t);

/* A JSON object with "messages" and "settings"; ~/ is the home folder. */
enum status talk_save(const struct talk *t, const char *path, struct err *err);
/* What talk_save() wrote, or a bare list of messages. On an error nothing has changed. */
enum status talk_load(struct talk *t, const char *path, struct err *err);

#endif
