/* key.h: the cluster key. Whoever has it is one of us; whoever lacks it is nobody.
 *
 * 128 random bits, made by the first machine and carried to the others by hand: as the file, or
 * as text of seven groups of four letters and digits that can be read aloud and typed (the last
 * bits are a checksum). All else that nodes keep secret from strangers is derived from it: what
 * signs beacons (beacon.h), and the nodes' certificate and token (identity.h). */
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

/* Where the key is kept unless somebody says otherwise: $LOCKSTEP_CLUSTER_KEY, or
 * lockstep/cluster.key in $XDG_CONFIG_HOME or ~/.config. ST_NOT_FOUND: there is no home. */
enum status cluster_key_path(char *out, size_t size, struct err *err);
/* ST_NOT_FOUND: no such file; ST_BAD_INPUT: it holds no key. */
enum status cluster_key_read(struct cluster_key *out, const char *path, struct err *err);
/* For its owner's eyes alone (0600); makes the folders above. ST_IO. */
enum status cluster_key_write(const struct cluster_key *key, const char *path, struct err *err);
/* The key that is kept there; where there is none, a new one (*made), the same one for all
 * processes that begin at once. */
enum status cluster_key_find(struct cluster_key *out, const char *path, bool *made,
                             struct err *err);

#endif
