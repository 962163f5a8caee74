/* identity.h: what nodes show each other over HTTPS.
 *
 * All nodes of a cluster share one certificate: Ed25519, self-signed, its key pair derived from
 * the cluster key. Whoever has the key knows which public key to expect (the pin), before any
 * node was ever seen: nothing has to be signed, sent round or trusted at first sight. A client
 * proves itself by a token, derived too. That a node could pose as another one gives nothing
 * away: whoever has the key may ask any node anything. */
#ifndef LOCKSTEP_CLUSTER_IDENTITY_H
#define LOCKSTEP_CLUSTER_IDENTITY_H

#include "cluster/key.h"

#define IDENTITY_TOKEN_BYTES 65
#define IDENTITY_PIN_BYTES 64

struct identity {
    char *cert_pem, *key_pem;         /* owned */
    char pin[IDENTITY_PIN_BYTES];     /* "sha256//..." of the public key, as curl has it */
    char token[IDENTITY_TOKEN_BYTES]; /* "Authorization: Bearer TOKEN"; hex */
    uint8_t beacon_key[CLUSTER_DERIVED_BYTES];
};

/* ST_IO: the TLS library says no; ST_NO_MEMORY. */
enum status identity_make(struct identity *out, const struct cluster_key *key, struct err *err);
void identity_deinit(struct identity *id);

/* The pin of another certificate. ST_BAD_INPUT: it is none. */
enum status identity_pin(char out[IDENTITY_PIN_BYTES], const char *cert_pem, struct err *err);

#endif
