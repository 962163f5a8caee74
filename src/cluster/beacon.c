/* beacon.c: Writes, signs, reads and checks beacons. It sends nothing. */
#include "cluster/beacon.h"

#include "base/printable.h"
#include "base/util.h"

#include <assert.h>
#include <sodium.h>

static const char magic[8] = "lockstep";
#define VERSION_AT sizeof magic
#define KIND_AT (VERSION_AT + 2)
#define NODE_AT (KIND_AT + 1)
#define MACHINE_AT (NODE_AT + BEACON_ID_BYTES)
#define PORT_AT (MACHINE_AT + BEACON_ID_BYTES)
#define COUNT_AT (PORT_AT + 2)
#define NAME_AT (COUNT_AT + 8)
#define MAC_BYTES crypto_auth_BYTES

static_assert(BEACON_KEY_BYTES == crypto_auth_KEYBYTES, "the cluster's key is the MAC's");
static_assert(NAME_AT + sizeof((struct beacon *)0)->name + sizeof((struct beacon *)0)->version +
                      MAC_BYTES <=
                  BEACON_BYTES_MAX,
              "the longest beacon fits");

/* ---- the rules --------------------------------------------------------------------------- */

static bool printable_text(const char *s, size_t n) {
    for (size_t at = 0; at < n;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t len =
            utf8proc_iterate((const utf8proc_uint8_t *)s + at, (utf8proc_ssize_t)(n - at), &c);
        if (len <= 0 || !is_printable((uint32_t)c))
            return false;
        at += (size_t)len;
    }
    return true;
}

static enum status check_text(const char *what, const char *s, size_t n, size_t size,
                              struct err *err) {
    if (n >= size)
        return err_set(err, ST_BAD_INPUT, "a node's %s has at most %zu bytes", what, size - 1);
    if (!printable_text(s, n))
        return err_set(err, ST_BAD_INPUT, "a node's %s is not printable UTF-8", what);
    return ST_OK;
}

static enum status check_port(enum beacon_kind kind, uint16_t port, const char *name,
                              struct err *err) {
    if (port == 0 && kind != BEACON_ASK)
        return err_set(err, ST_BAD_INPUT, "a node needs a port");
    if (port != 0 && name[0] == '\0')
        return err_set(err, ST_BAD_INPUT, "a node needs a name");
    return ST_OK;
}

enum status beacon_check(const struct beacon *b, struct err *err) {
    if (b->kind < BEACON_HERE || b->kind > BEACON_LEAVING)
        return err_set(err, ST_BAD_INPUT, "no kind of beacon has the number %d", (int)b->kind);
    TRY(check_text("name", b->name, strnlen(b->name, sizeof b->name), sizeof b->name, err));
    TRY(check_text("version", b->version, strnlen(b->version, sizeof b->version),
                   sizeof b->version, err));
    return check_port(b->kind, b->port, b->name, err);
}

/* ---- bytes ------------------------------------------------------------------------------- */

static void put16(uint8_t *to, unsigned x) {
    to[0] = (uint8_t)(x >> 8);
    to[1] = (uint8_t)x;
}

static uint16_t get16(const uint8_t *from) {
    return (uint16_t)(from[0] << 8 | from[1]);
}

static void put64(uint8_t *to, uint64_t x) {
    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)(x >> (56 - 8 * i));
}

static uint64_t get64(const uint8_t *from) {
    uint64_t x = 0;
    for (int i = 0; i < 8; i++)
        x = x << 8 | from[i];
    return x;
}

/* One byte of length, the text; returns what follows. */
static uint8_t *put_text(uint8_t *to, const char *s) {
    size_t n = strlen(s);
    to[0] = (uint8_t)n;
    memcpy(to + 1, s, n);
    return to + 1 + n;
}

size_t beacon_write(uint8_t out[BEACON_BYTES_MAX], const struct beacon *b,
                    const uint8_t key[BEACON_KEY_BYTES]) {
    BUG_ON(beacon_check(b, NULL) != ST_OK);
    memcpy(out, magic, sizeof magic);
    put16(out + VERSION_AT, BEACON_PROTOCOL);
    out[KIND_AT] = (uint8_t)b->kind;
    memcpy(out + NODE_AT, b->node, BEACON_ID_BYTES);
    memcpy(out + MACHINE_AT, b->machine, BEACON_ID_BYTES);
    put16(out + PORT_AT, b->port);
    put64(out + COUNT_AT, b->count);
    uint8_t *mac = put_text(put_text(out + NAME_AT, b->name), b->version);
    crypto_auth(mac, out, (size_t)(mac - out), key);
    return (size_t)(mac - out) + MAC_BYTES;
}

/* Where the text that begins at `at` ends, n being the end of all; 0: outside. */
static size_t text_end(const uint8_t *bytes, size_t at, size_t n) {
    size_t end = at < n ? at + 1 + bytes[at] : n + 1;
    return end <= n ? end : 0;
}

static enum status get_text(char *out, size_t size, const char *what, const uint8_t *from,
                            struct err *err) {
    size_t n = from[0];
    TRY(check_text(what, (const char *)from + 1, n, size, err));
    memcpy(out, from + 1, n);
    memset(out + n, 0, size - n);
    return ST_OK;
}

enum status beacon_read(struct beacon *out, const uint8_t *bytes, size_t n,
                        const uint8_t key[BEACON_KEY_BYTES], struct err *err) {
    if (n < KIND_AT || memcmp(bytes, magic, sizeof magic) != 0)
        return err_set(err, ST_BAD_INPUT, "not a beacon of lockstep");
    if (get16(bytes + VERSION_AT) != BEACON_PROTOCOL)
        return err_set(err, ST_REFUSED,
                       "a beacon of protocol version %u; this program speaks %d",
                       get16(bytes + VERSION_AT), BEACON_PROTOCOL);
    if (n < NAME_AT + MAC_BYTES)
        return err_set(err, ST_BAD_INPUT, "a beacon that is cut off after %zu bytes", n);
    size_t body = n - MAC_BYTES;
    size_t version_at = text_end(bytes, NAME_AT, body);
    if (version_at == 0 || text_end(bytes, version_at, body) != body)
        return err_set(err, ST_BAD_INPUT, "a beacon whose texts do not fill its %zu bytes", n);
    if (crypto_auth_verify(bytes + body, bytes, body, key) != 0)
        return err_set(err, ST_REFUSED, "a beacon that our cluster's key has not signed");

    /* From a holder of the key; still checked, its program may be another. */
    struct beacon b = {.kind = bytes[KIND_AT],
                       .port = get16(bytes + PORT_AT),
                       .count = get64(bytes + COUNT_AT)};
    memcpy(b.node, bytes + NODE_AT, BEACON_ID_BYTES);
    memcpy(b.machine, bytes + MACHINE_AT, BEACON_ID_BYTES);
    TRY(get_text(b.name, sizeof b.name, "name", bytes + NAME_AT, err));
    TRY(get_text(b.version, sizeof b.version, "version", bytes + version_at, err));
    TRY(beacon_check(&b, err));
    *out = b;
    return ST_OK;
}
