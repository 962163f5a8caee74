/* server.h: serves the service over HTTP, in all dialects. */
#ifndef LOCKSTEP_API_SERVER_H
#define LOCKSTEP_API_SERVER_H

#include "base/status.h"
#include "net/http.h"
#include "server/service.h"

struct server;

struct server_config {
    struct service_config service;
    struct http_config http; /* handlers are set by server_open() */
};
void server_config_init(struct server_config *cfg);

enum status server_open(struct server **out, const struct server_config *cfg, struct err *err);
int server_port(const struct server *s);
/* What http_config wished for, or less (http.h). */
int server_max_connections(const struct server *s);
struct service *server_service(struct server *s);
/* Refuses the new and lets what runs finish, at most wait_ms; then cuts it. NULL is fine. */
void server_close(struct server *s, int wait_ms);

#endif
