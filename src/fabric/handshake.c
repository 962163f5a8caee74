/* handshake.c: The keyed handshake of one connection, from both sides. */
#include "fabric/handshake.h"

#include "base/clock.h"
#include "base/util.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>

/* A visitor that has not proved itself by then is taken for a stranger, if his place is needed. */
#define VISITOR_MS 3000

/* mac = keyed hash of the role, both nonces, and the body that the role vouches for. */
static void mac_make(uint8_t mac[WIRE_MAC_BYTES], const uint8_t *token, const char role[8],
                     const struct wire_hello *hello, const struct wire_proof *proof,
                     const void *body, size_t n_bytes) {
    crypto_generichash_state h;
    crypto_generichash_init(&h, token, HANDSHAKE_TOKEN_BYTES, WIRE_MAC_BYTES);
    crypto_generichash_update(&h, (const uint8_t *)role, 8);
    crypto_generichash_update(&h, (const uint8_t *)&hello->version, sizeof hello->version);
    crypto_generichash_update(&h, hello->nonce, sizeof hello->nonce);
    crypto_generichash_update(&h, proof->nonce, sizeof proof->nonce);
    crypto_generichash_update(&h, body, n_bytes);
    crypto_generichash_final(&h, mac, WIRE_MAC_BYTES);
}

static const char role_acceptor[8] = "accept", role_connector[8] = "connect";
#define JOIN_BODY_BYTES offsetof(struct wire_join, mac)

static enum status check_proof(int fd, const struct wire_hello *hello,
                               const struct wire_proof *proof, const uint8_t *token,
                               const char *at, uint64_t deadline_ns, struct err *err) {
    if (proof->magic != WIRE_MAGIC)
        return err_set(err, ST_REFUSED, "%s is not a lockstep group", at);
    if (proof->version != WIRE_VERSION)
        return err_set(err, ST_REFUSED, "%s speaks protocol version %u, this rank speaks %u",
                       at, proof->version, WIRE_VERSION);
    uint8_t mac[WIRE_MAC_BYTES];
    mac_make(mac, token, role_acceptor, hello, proof, NULL, 0);
    if (sodium_memcmp(mac, proof->mac, sizeof mac) == 0)
        return ST_OK;
    struct wire_join goodbye = {.who.rank = WIRE_WRONG_TOKEN};
    net_write(fd, &goodbye, sizeof goodbye, deadline_ns, NULL);
    return err_set(err, ST_REFUSED, "%s belongs to another group: its token is not ours", at);
}

enum status handshake_connect(int fd, const uint8_t token[HANDSHAKE_TOKEN_BYTES],
                              struct wire_join *join, const struct net_address *to,
                              uint64_t deadline_ns, struct err *err) {
    char at[NET_TEXT_BYTES];
    net_text(to, at);
    struct wire_hello hello = {.magic = WIRE_MAGIC, .version = WIRE_VERSION};
    randombytes_buf(hello.nonce, sizeof hello.nonce);
    struct wire_proof proof;
    enum status st = net_write(fd, &hello, sizeof hello, deadline_ns, err);
    if (st == ST_OK)
        st = net_read(fd, &proof, sizeof proof, deadline_ns, err);
    if (st != ST_OK)
        return err_prefix(err, st, "%s: ", at);
    TRY(check_proof(fd, &hello, &proof, token, at, deadline_ns, err));

    mac_make(join->mac, token, role_connector, &hello, &proof, join, JOIN_BODY_BYTES);
    struct wire_answer answer;
    st = net_write(fd, join, sizeof *join, deadline_ns, err);
    if (st == ST_OK)
        st = net_read(fd, &answer, sizeof answer, deadline_ns, err);
    if (st != ST_OK)
        return err_prefix(err, st, "%s: ", at);
    answer.text[sizeof answer.text - 1] = '\0';
    if (answer.status != ST_OK)
        return err_set(err, ST_REFUSED, "%s refused this rank: %s", at, answer.text);
    return ST_OK;
}

void visitor_init(struct visitor *v, int fd, const struct net_address *from) {
    memset(v, 0, sizeof *v);
    v->fd = fd;
    v->from = *from;
    v->deadline_ns = clock_ns() + VISITOR_MS * 1000000ull;
}

static enum status visitor_read(struct visitor *v, void *to, size_t begin, size_t n,
                                struct err *err) {
    size_t at = v->got - begin;
    ssize_t got = recv(v->fd, (char *)to + at, n - at, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return ST_AGAIN;
    if (got <= 0)
        return err_set(err, ST_REFUSED, "it hung up in the handshake");
    v->got += (size_t)got;
    return v->got == begin + n ? ST_OK : ST_AGAIN;
}

/* Answers hello with our proof, also where the versions differ: that is how it learns ours. */
static enum status visitor_prove(struct visitor *v, const uint8_t *token, struct err *err) {
    if (v->hello.magic != WIRE_MAGIC)
        return err_set(err, ST_REFUSED, "it does not speak our protocol");
    v->proof = (struct wire_proof){.magic = WIRE_MAGIC, .version = WIRE_VERSION};
    randombytes_buf(v->proof.nonce, sizeof v->proof.nonce);
    mac_make(v->proof.mac, token, role_acceptor, &v->hello, &v->proof, NULL, 0);
    TRY(net_write(v->fd, &v->proof, sizeof v->proof, v->deadline_ns, err));
    if (v->hello.version != WIRE_VERSION)
        return err_set(err, ST_REFUSED, "it speaks protocol version %u, this group speaks %u",
                       v->hello.version, WIRE_VERSION);
    return ST_AGAIN;
}

static enum status visitor_check(struct visitor *v, const uint8_t *token, struct err *err) {
    if (v->join.who.rank == WIRE_WRONG_TOKEN)
        return err_set(err, ST_REFUSED, "it has another group's token");
    uint8_t mac[WIRE_MAC_BYTES];
    mac_make(mac, token, role_connector, &v->hello, &v->proof, &v->join, JOIN_BODY_BYTES);
    if (sodium_memcmp(mac, v->join.mac, sizeof mac) != 0)
        return err_set(err, ST_REFUSED, "it has no proof of this group's token");
    return ST_OK;
}

enum status visitor_step(struct visitor *v, const uint8_t token[HANDSHAKE_TOKEN_BYTES],
                         struct err *err) {
    if (v->got < sizeof v->hello) {
        TRY(visitor_read(v, &v->hello, 0, sizeof v->hello, err));
        return visitor_prove(v, token, err);
    }
    TRY(visitor_read(v, &v->join, sizeof v->hello, sizeof v->join, err));
    return visitor_check(v, token, err);
}

bool visitor_listens(const struct visitor *v) {
    return v->got >= sizeof v->hello;
}

void visitor_answer(struct visitor *v, enum status st, const char *text) {
    struct wire_answer answer = {.status = st};
    snprintf(answer.text, sizeof answer.text, "%s", text);
    net_write(v->fd, &answer, sizeof answer, v->deadline_ns, NULL);
}
