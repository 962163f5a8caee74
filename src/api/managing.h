/* managing.h: who may change what a server has, beyond who may use it: models on its disk, and
 * what a cluster serves. */
#ifndef LOCKSTEP_API_MANAGING_H
#define LOCKSTEP_API_MANAGING_H

#include "base/status.h"
#include "net/http.h"

#include <stdbool.h>

/* Whether a program on this very machine asks: no proxy and no gateway stands between, and no
 * page of another name has sent it. */
bool managing_is_from_here(const struct http_request *r);

/* A page of another origin cannot make a browser send a change without asking first, and is not
 * let in when it asks. NULL: it is good; else a sentence, with its status. */
const char *managing_why_not_from_page(const struct http_request *r, int *status);

/* The status of a change that failed: ST_REFUSED is for now, and not for who asks: 409. */
int managing_status(enum status st);

#endif
