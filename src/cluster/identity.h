/* identity.h: how nodes identify themselves over HTTPS.
 *
 * All nodes of a cluster share one certificate: Ed25519, self-signed, with a key pair derived
 * from the cluster key. A holder of the key knows which public key to expect (the pin) before
 * it has met any node. So nothing has to be signed, distributed or trusted on first use. A
 * client proves itself by a token, which is derived too. A node that impersonates another gains
 * nothing: every holder of the key may ask any node anything. */
#ifndef LOCKSTEP_CLUSTER_IDENTITY_H
#define LOCKSTEP_CLUSTER_IDENTITY_H

#include "cluster/key.h"

#define IDENTITY_TOKEN_BYTES 65
#define IDENTITY_PIN_BYTES 64

struct identity {
    char *cert_pem, *key_pem;         /* owned */
    char pin[IDENTITY_PIN_BYTES];     /* "sha256//..." of the public key, as curl has it */
    char token[IDENTITY_TOKEN_BYTES]; /* "Authorization: Bearer TOKEN"; hex */
    /* Who shows it may change what is up, at the deployments' ports; hex. Of less use than token:
     * it starts no worker and reads no file. */
    char admin[IDENTITY_TOKEN_BYTES];
    uint8_t beacon_key[CLUSTER_DERIVED_BYTES];
};

/* ST_IO: the TLS library says no; ST_NO_MEMORY. */
enum status identity_make(struct identity *out, const struct cluster_key *key, struct err *err);
void identity_deinit(struct identity *id);

/* The pin of another certificate. ST_BAD_INPUT: not a certificate. */
enum status identity_pin(char out[IDENTITY_PIN_BYTES], const char *cert_pem, struct err *err);

#endif
