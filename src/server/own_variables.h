/* own_variables.h: variables of a request for templates that have names of their own for them. */
#ifndef LOCKSTEP_SERVER_OWN_VARIABLES_H
#define LOCKSTEP_SERVER_OWN_VARIABLES_H

#include "chat/chat_parse.h"
#include "server/service.h"

/* The variables of the request with those that a template of this format reads, as a new reference;
 * NULL: there are none. */
json_t *own_variables(enum chat_format format, const struct service_request *r);

#endif
