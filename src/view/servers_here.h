/* servers_here.h: which models are up on this machine: at the ports of its node's deployments, and
 * at the default port of lockstep serve. */
#ifndef LOCKSTEP_VIEW_SERVERS_HERE_H
#define LOCKSTEP_VIEW_SERVERS_HERE_H

#include "cli/ask_server.h"

#define SERVERS_HERE_MAX 256

struct server_here {
    char url[SERVER_URL_BYTES];
    char model[256]; /* its name there */
    char state[16];  /* of a deployment (GET /v1/deployments); "": of a server of its own */
    bool tls;        /* its certificate is for other names than this machine's own */
};

/* All that are up, at most SERVERS_HERE_MAX; *out is the caller's to free with mem_free().
 * ST_REFUSED: none, but there is a server that wants another key than `key` (NULL: none), with its
 * sentence. ST_NO_MEMORY, ST_CANCELLED. */
enum status servers_here(struct server_here **out, size_t *n, const char *key, struct err *err);

/* One that answers, and has the model that is `word` on the command line. False: none. */
bool servers_here_find(struct server_here *out, const char *word, const char *key);

/* Does one of that state answer a question? One that is asleep is loaded for it. */
bool server_here_answers(const char *state);

#endif
