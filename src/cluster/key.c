/* key.c: Makes, reads, writes and checks the cluster's key. */
#include "cluster/key.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/program.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Crockford's alphabet: no I, L, O and U. */
static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
#define DIGIT_BITS 5
#define N_DIGITS 28
#define GROUP 4
#define SUM_BITS (N_DIGITS * DIGIT_BITS - CLUSTER_KEY_BYTES * 8) /* 12 */
_Static_assert(N_DIGITS + N_DIGITS / GROUP == CLUSTER_KEY_TEXT_BYTES,
               "dashes between, a 0 behind");

#define FILE_MAX 4096

enum status cluster_key_make(struct cluster_key *out, struct err *err) {
    if (sodium_init() < 0)
        return err_set(err, ST_IO, "libsodium does not start");
    randombytes_buf(out->secret, sizeof out->secret);
    return ST_OK;
}

void cluster_key_derive(const struct cluster_key *key, const char *purpose,
                        uint8_t out[CLUSTER_DERIVED_BYTES]) {
    crypto_generichash(out, CLUSTER_DERIVED_BYTES, (const uint8_t *)purpose, strlen(purpose),
                       key->secret, sizeof key->secret);
}

/* ---- text -------------------------------------------------------------------------------- */

static unsigned checksum(const struct cluster_key *key) {
    uint8_t hash[CLUSTER_DERIVED_BYTES];
    cluster_key_derive(key, "lockstep checksum", hash);
    return ((unsigned)hash[0] << 8 | hash[1]) & ((1u << SUM_BITS) - 1);
}

/* The secret's bits and the checksum's, from the left. */
static void to_bits(const struct cluster_key *key, uint8_t bits[18]) {
    unsigned sum = checksum(key) << (16 - SUM_BITS);
    memcpy(bits, key->secret, CLUSTER_KEY_BYTES);
    bits[CLUSTER_KEY_BYTES] = (uint8_t)(sum >> 8);
    bits[CLUSTER_KEY_BYTES + 1] = (uint8_t)sum;
}

void cluster_key_text(const struct cluster_key *key, char out[CLUSTER_KEY_TEXT_BYTES]) {
    uint8_t bits[18];
    to_bits(key, bits);
    for (size_t i = 0; i < N_DIGITS; i++) {
        unsigned digit = 0;
        for (size_t b = i * DIGIT_BITS; b < (i + 1) * DIGIT_BITS; b++)
            digit = digit << 1 | (bits[b / 8] >> (7 - b % 8) & 1);
        if (i > 0 && i % GROUP == 0)
            *out++ = '-';
        *out++ = digits[digit];
    }
    *out = '\0';
}

/* -1: no digit. */
static int digit_of(char c) {
    if (c >= 'a' && c <= 'z')
        c = (char)(c - 'a' + 'A');
    c = c == 'O' ? '0' : c == 'I' || c == 'L' ? '1' : c;
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

enum status cluster_key_parse(struct cluster_key *out, const char *text, struct err *err) {
    struct cluster_key key;
    uint8_t bits[18] = {0}, expected[18];
    size_t n = 0;
    for (; *text != '\0'; text++) {
        if (strchr("- \t\r\n", *text) != NULL)
            continue;
        int digit = digit_of(*text);
        if (digit < 0 || n == N_DIGITS)
            return err_set(err, ST_BAD_INPUT,
                           digit < 0 ? "a cluster key is letters and digits in seven groups of "
                                       "four; \"%c\" is not one of them"
                                     : "a cluster key ends before \"%c\": seven groups of four",
                           *text >= ' ' && *text < 127 ? *text : '?');
        for (size_t b = 0; b < DIGIT_BITS; b++)
            if (digit >> (DIGIT_BITS - 1 - b) & 1)
                bits[(n * DIGIT_BITS + b) / 8] |= (uint8_t)(0x80 >> (n * DIGIT_BITS + b) % 8);
        n++;
    }
    if (n < N_DIGITS)
        return err_set(err, ST_BAD_INPUT,
                       "%zu letters and digits are too few for a cluster key: it has %d", n,
                       N_DIGITS);
    memcpy(key.secret, bits, sizeof key.secret);
    to_bits(&key, expected);
    if (memcmp(bits, expected, sizeof bits) != 0)
        return err_set(err, ST_BAD_INPUT,
                       "this is not a valid cluster key: a letter or digit of it is mistyped");
    *out = key;
    return ST_OK;
}

/* ---- the file ---------------------------------------------------------------------------- */

enum status cluster_key_path(char *out, size_t size, struct err *err) {
    const char *given = env_get("LOCKSTEP_CLUSTER_KEY"), *config = env_get("XDG_CONFIG_HOME"),
               *home = env_get("HOME");
    int n = -1;
    if (given != NULL)
        n = snprintf(out, size, "%s", given);
    else if (config != NULL)
        n = snprintf(out, size, "%s/lockstep/cluster.key", config);
    else if (home != NULL)
        n = snprintf(out, size, "%s/.config/lockstep/cluster.key", home);
    if (n < 0 || (size_t)n >= size)
        return err_set(err, ST_NOT_FOUND,
                       "there is no place for a cluster key: neither $HOME nor "
                       "$LOCKSTEP_CLUSTER_KEY is set");
    return ST_OK;
}

static void warn_of_readers(const char *path) {
    struct stat st;
    if (stat(path, &st) == 0 && (st.st_mode & (S_IRGRP | S_IROTH)) != 0)
        log_warn("other users can read the cluster's key in %s, and with it run models here: "
                 "chmod 600 it",
                 path);
}

enum status cluster_key_read(struct cluster_key *out, const char *path, struct err *err) {
    char *text;
    TRY(file_read_text(&text, NULL, path, FILE_MAX, err));
    warn_of_readers(path);
    enum status st = cluster_key_parse(out, text, err);
    sodium_memzero(text, strlen(text));
    mem_free(text);
    return st == ST_OK ? st : err_prefix(err, st, "%s: ", path);
}

/* Creates a file beside path, with a name that no other process has and its final rights, so
 * that nobody can read it in between. */
static enum status write_part(const struct cluster_key *key, const char *path,
                              char part[PATH_MAX], struct err *err) {
    char text[CLUSTER_KEY_TEXT_BYTES];
    if (*path == '\0' || snprintf(part, PATH_MAX, "%s.XXXXXX", path) >= PATH_MAX)
        return err_set(err, ST_BAD_INPUT, "\"%s\" cannot name a key's file", path);
    TRY(file_make_folders(path, 0700, err));
    int fd = mkstemp(part);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (f == NULL) {
        int why = errno;
        if (fd >= 0) {
            close(fd);
            (void)unlink(part);
        }
        return err_set(err, ST_IO, "%s: %s", path, strerror(why));
    }
    cluster_key_text(key, text);
    bool good = fprintf(f, "%s\n", text) > 0 && fflush(f) == 0 && fsync(fd) == 0;
    int why = errno;
    sodium_memzero(text, sizeof text);
    if (fclose(f) == 0 && good)
        return ST_OK;
    (void)unlink(part);
    return err_set(err, ST_IO, "%s: %s", path, strerror(good ? errno : why));
}

enum status cluster_key_write(const struct cluster_key *key, const char *path,
                              struct err *err) {
    char part[PATH_MAX], real[PATH_MAX];
    struct stat there;
    if (realpath(path, real) != NULL) { /* a link stays one */
        path = real;
        if (stat(path, &there) != 0 || !S_ISREG(there.st_mode))
            return err_set(err, ST_BAD_INPUT, "%s is not a file: it cannot hold the key", path);
    }
    TRY(write_part(key, path, part, err));
    if (rename(part, path) == 0)
        return file_sync_folder(path, err);
    enum status st = err_set(err, ST_IO, "%s: %s", path, strerror(errno));
    (void)unlink(part);
    return st;
}

enum status cluster_key_find(struct cluster_key *out, const char *path, bool *made,
                             struct err *err) {
    char part[PATH_MAX];
    enum status st = cluster_key_read(out, path, err);
    *made = false;
    if (st != ST_NOT_FOUND)
        return st;
    TRY(cluster_key_make(out, err));
    TRY(write_part(out, path, part, err));
    *made = link(part, path) == 0;
    int why = *made ? 0 : errno;
    (void)unlink(part);
    if (*made)
        return file_sync_folder(path, err);
    if (why == EEXIST) /* another process was faster */
        return cluster_key_read(out, path, err);
    *made = true; /* a file system without links */
    return cluster_key_write(out, path, err);
}
