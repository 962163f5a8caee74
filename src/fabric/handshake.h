/* handshake.h: the keyed handshake on one new connection (wire.h), both roles.
 *
 * The connector's role blocks with a deadline. The acceptor's is a non-blocking state machine,
 * so a stranger who connects and sends nothing delays no other rank. */
#ifndef LOCKSTEP_FABRIC_HANDSHAKE_H
#define LOCKSTEP_FABRIC_HANDSHAKE_H

#include "link/wire.h"
#include "net/net.h"

#define HANDSHAKE_TOKEN_BYTES 32

/* As connector: proves the token, checks the other's proof, sends *join with its MAC filled in.
 * `to` is for the sentence. ST_REFUSED: wrong token or version, or the acceptor said no. */
enum status handshake_connect(int fd, const uint8_t token[HANDSHAKE_TOKEN_BYTES],
                              struct wire_join *join, const struct net_address *to,
                              uint64_t deadline_ns, struct err *err);

/* A connection that has not proved itself yet. */
struct visitor {
    int fd; /* -1: free */
    struct net_address from;
    uint64_t deadline_ns; /* then his place is for others */
    struct wire_hello hello;
    struct wire_proof proof;
    struct wire_join join;
    size_t got; /* bytes of hello, then of hello + join */
};

void visitor_init(struct visitor *v, int fd, const struct net_address *from);
/* Call when fd is readable. ST_OK: v->join is proved (fd still belongs to v); ST_AGAIN: more
 * is to come; else the sentence says why it is turned away (the visitor is told). */
enum status visitor_step(struct visitor *v, const uint8_t token[HANDSHAKE_TOKEN_BYTES],
                         struct err *err);
/* Has he had our proof? Before that he would take any answer for it. */
bool visitor_listens(const struct visitor *v);
/* The last word to the visitor: ST_OK or why not. A failed write is the visitor's problem. */
void visitor_answer(struct visitor *v, enum status st, const char *text);

#endif
