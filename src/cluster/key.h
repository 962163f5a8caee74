/* key.h: the cluster key. Its holders are the members of the cluster.
 *
 * 128 random bits, made by the first machine and carried to the others by hand. It is a file,
 * or text that can be read aloud and typed: seven groups of four letters and digits, whose last
 * bits are a checksum. All other secrets are derived from it: what signs beacons (beacon.h),
 * and the nodes' certificate and token (identity.h). */
#ifndef LOCKSTEP_CLUSTER_KEY_H
#define LOCKSTEP_CLUSTER_KEY_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define CLUSTER_KEY_BYTES 16
#define CLUSTER_KEY_TEXT_BYTES 35 /* "AB12-...-XY89" and its 0 */
#define CLUSTER_DERIVED_BYTES 32

struct cluster_key {
    uint8_t secret[CLUSTER_KEY_BYTES];
};

enum status cluster_key_make(struct cluster_key *out, struct err *err);
void cluster_key_text(const struct cluster_key *key, char out[CLUSTER_KEY_TEXT_BYTES]);
/* In any case, with or without dashes and blanks; O and 0, and I, L and 1 are the same.
 * ST_BAD_INPUT. */
enum status cluster_key_parse(struct cluster_key *out, const char *text, struct err *err);

/* A key for one purpose: BLAKE2b of its name, keyed with the secret. */
void cluster_key_derive(const struct cluster_key *key, const char *purpose,
                        uint8_t out[CLUSTER_DERIVED_BYTES]);

/* The default place of the key: $LOCKSTEP_CLUSTER_KEY, or lockstep/cluster.key in
 * $XDG_CONFIG_HOME or ~/.config. ST_NOT_FOUND: there is no home directory. */
enum status cluster_key_path(char *out, size_t size, struct err *err);
/* ST_NOT_FOUND: no such file; ST_BAD_INPUT: it holds no key. */
enum status cluster_key_read(struct cluster_key *out, const char *path, struct err *err);
/* For its owner's eyes alone (0600); makes the folders above. ST_IO. */
enum status cluster_key_write(const struct cluster_key *key, const char *path, struct err *err);
/* Reads the key there, or creates a new one (*made). Processes that start at once get the same
 * key. */
enum status cluster_key_find(struct cluster_key *out, const char *path, bool *made,
                             struct err *err);

#endif
