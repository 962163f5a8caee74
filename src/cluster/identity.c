/* identity.c: Derives the certificate that all nodes share, its pin and the token from the
 * cluster's key. */
#include "cluster/identity.h"

#include "base/mem.h"
#include "base/util.h"

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <sodium.h>
#include <stdio.h>

/* 2000 and 9999: a node whose clock is wrong must be accepted, too. */
#define VALID_FROM 946684800
#define VALID_UNTIL 253402300799

enum status identity_pin(char out[IDENTITY_PIN_BYTES], const char *cert_pem, struct err *err) {
    uint8_t hash[crypto_hash_sha256_BYTES];
    char text[48]; /* of 32 bytes */
    gnutls_x509_crt_t cert = NULL;
    gnutls_pubkey_t key = NULL;
    gnutls_datum_t spki = {NULL, 0},
                   pem = {(uint8_t *)(uintptr_t)cert_pem, (unsigned)strlen(cert_pem)};
    int rc = gnutls_x509_crt_init(&cert);
    if (rc >= 0)
        rc = gnutls_x509_crt_import(cert, &pem, GNUTLS_X509_FMT_PEM);
    if (rc >= 0)
        rc = gnutls_pubkey_init(&key);
    if (rc >= 0)
        rc = gnutls_pubkey_import_x509(key, cert, 0);
    if (rc >= 0)
        rc = gnutls_pubkey_export2(key, GNUTLS_X509_FMT_DER, &spki);
    if (rc >= 0) { /* as curl has it: of a SubjectPublicKeyInfo */
        crypto_hash_sha256(hash, spki.data, spki.size);
        sodium_bin2base64(text, sizeof text, hash, sizeof hash, sodium_base64_VARIANT_ORIGINAL);
        snprintf(out, IDENTITY_PIN_BYTES, "sha256//%s", text);
    }
    gnutls_free(spki.data);
    if (key != NULL)
        gnutls_pubkey_deinit(key);
    if (cert != NULL)
        gnutls_x509_crt_deinit(cert);
    return rc >= 0 ? ST_OK
                   : err_set(err, ST_BAD_INPUT, "no certificate: %s", gnutls_strerror(rc));
}

static char *pem_of(gnutls_datum_t *d, int rc) {
    if (rc < 0)
        return NULL;
    char *text = mem_strndup((const char *)d->data, d->size);
    gnutls_free(d->data);
    return text;
}

/* The certificate's fields; a negative number is GnuTLS's error. */
static int fill_certificate(gnutls_x509_crt_t cert, gnutls_x509_privkey_t key) {
    static const char name[] = "lockstep", serial[] = {1};
    int rc = gnutls_x509_crt_set_version(cert, 3);
    if (rc >= 0)
        rc = gnutls_x509_crt_set_serial(cert, serial, sizeof serial);
    if (rc >= 0)
        rc = gnutls_x509_crt_set_dn_by_oid(cert, GNUTLS_OID_X520_COMMON_NAME, 0, name,
                                           sizeof name - 1);
    if (rc >= 0)
        rc = gnutls_x509_crt_set_activation_time(cert, VALID_FROM);
    if (rc >= 0)
        rc = gnutls_x509_crt_set_expiration_time(cert, VALID_UNTIL);
    if (rc >= 0)
        rc = gnutls_x509_crt_set_key(cert, key);
    if (rc >= 0)
        rc = gnutls_x509_crt_sign2(cert, cert, key, GNUTLS_DIG_SHA512, 0);
    return rc;
}

static int make_certificate(struct identity *id, const uint8_t public_key[32],
                            const uint8_t seed[32]) {
    gnutls_x509_privkey_t key = NULL;
    gnutls_x509_crt_t cert = NULL;
    gnutls_datum_t x = {(uint8_t *)(uintptr_t)public_key, 32},
                   k = {(uint8_t *)(uintptr_t)seed, 32}, text;
    int rc = gnutls_x509_privkey_init(&key);
    if (rc >= 0)
        rc = gnutls_x509_privkey_import_ecc_raw(key, GNUTLS_ECC_CURVE_ED25519, &x, NULL, &k);
    if (rc >= 0)
        rc = gnutls_x509_crt_init(&cert);
    if (rc >= 0)
        rc = fill_certificate(cert, key);
    if (rc >= 0) {
        id->cert_pem = pem_of(&text, gnutls_x509_crt_export2(cert, GNUTLS_X509_FMT_PEM, &text));
        id->key_pem =
            pem_of(&text, gnutls_x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, NULL,
                                                            GNUTLS_PKCS_PLAIN, &text));
        if (id->cert_pem == NULL || id->key_pem == NULL)
            rc = GNUTLS_E_MEMORY_ERROR;
    }
    if (cert != NULL)
        gnutls_x509_crt_deinit(cert);
    if (key != NULL)
        gnutls_x509_privkey_deinit(key);
    return rc;
}

enum status identity_make(struct identity *out, const struct cluster_key *key,
                          struct err *err) {
    uint8_t seed[32], public_key[crypto_sign_PUBLICKEYBYTES],
        secret_key[crypto_sign_SECRETKEYBYTES], token[CLUSTER_DERIVED_BYTES],
        admin[CLUSTER_DERIVED_BYTES];
    _Static_assert(sizeof seed == crypto_sign_SEEDBYTES, "an Ed25519 seed");
    struct identity id = {.cert_pem = NULL};
    if (sodium_init() < 0)
        return err_set(err, ST_IO, "libsodium does not start");
    cluster_key_derive(key, "lockstep certificate", seed);
    cluster_key_derive(key, "lockstep token", token);
    cluster_key_derive(key, "lockstep admin", admin);
    cluster_key_derive(key, "lockstep beacon", id.beacon_key);
    crypto_sign_seed_keypair(public_key, secret_key, seed);
    sodium_bin2hex(id.token, sizeof id.token, token, sizeof token);
    sodium_bin2hex(id.admin, sizeof id.admin, admin, sizeof admin);
    int rc = make_certificate(&id, public_key, seed);
    sodium_memzero(seed, sizeof seed);
    sodium_memzero(secret_key, sizeof secret_key);
    if (rc < 0) {
        identity_deinit(&id);
        return err_set(err, rc == GNUTLS_E_MEMORY_ERROR ? ST_NO_MEMORY : ST_IO,
                       "no certificate can be made: %s", gnutls_strerror(rc));
    }
    enum status st = identity_pin(id.pin, id.cert_pem, err);
    if (st != ST_OK) {
        identity_deinit(&id);
        return st;
    }
    *out = id;
    return ST_OK;
}

void identity_deinit(struct identity *id) {
    if (id->key_pem != NULL)
        sodium_memzero(id->key_pem, strlen(id->key_pem));
    mem_free(id->cert_pem);
    mem_free(id->key_pem);
    *id = (struct identity){0};
}
