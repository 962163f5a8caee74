/* service_internal.h: shared by service.c and generation.c. */
#ifndef LOCKSTEP_SERVER_SERVICE_INTERNAL_H
#define LOCKSTEP_SERVER_SERVICE_INTERNAL_H

#include "chat/chat.h"
#include "engine/engine.h"
#include "grammar/token_trie.h"
#include "server/service.h"

#include <pthread.h>

/* An engine and what belongs to its model. */
struct served_model {
    struct engine *engine;
    struct chat *chat;
    struct chat_style style;
    struct token_trie *trie;
};

/* Holds the model until service_give_back(); ST_PEER_LOST: there is none, with the reason. */
enum status service_borrow(struct service *s, struct served_model **out, struct err *err);
void service_give_back(struct service *s);

#endif
