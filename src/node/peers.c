/* peers.c: Opens an HTTPS server for holders of the cluster's key, and refuses others with a
 * sentence. */
#include "node/peers.h"

#include "server/reply.h"

enum status peers_open(struct http_server **out, const struct http_config *given,
                       const struct identity *id, struct err *err) {
    struct http_config cfg = *given;
    const char *const keys[] = {id->token};
    cfg.tls_cert_pem = id->cert_pem;
    cfg.tls_key_pem = id->key_pem;
    cfg.api_keys = keys;
    cfg.n_api_keys = 1;
    cfg.host = given->host != NULL ? given->host : "*";
    return http_open(out, &cfg, err);
}

enum status peers_open_to_read(struct http_server **out, const struct peers_reading *reading,
                               const struct identity *id, struct err *err) {
    struct http_config cfg;
    http_config_init(&cfg);
    cfg.host = NULL;
    cfg.port = 0;
    cfg.max_body_bytes = 4096;
    cfg.max_connections = reading->max_connections;
    cfg.max_per_address = reading->max_per_address;
    cfg.handle = reading->handle;
    cfg.user = reading->user;
    return peers_open(out, &cfg, id, err);
}

void peers_refuse(struct http_request *r, int status, const char *sentence) {
    reply_json(r, status, json_pack("{s:s}", "error", sentence));
}
